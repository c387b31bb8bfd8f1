//! Calling the functions of a flash algorithm, one at a time.
//!
//! probe-rs has a flasher of its own, which erases and writes a list of pages in one go, after a
//! reset. A card's boot state wants erasing, writing and reading by turns, in an order that
//! depends on what was read. So the algorithm is assembled by probe-rs and called here.

use std::time::{Duration, Instant};

use flash_algorithm::Fault;
use probe_rs::flashing::FlashAlgorithm;
use probe_rs::{Core, RegisterValue, Target};

use super::flash::FlashFault;
use super::{HALT_TIMEOUT, is_of_bus};
use crate::board::Board;

/// How long the functions may take that neither erase nor write.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// An algorithm in a card's memory.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    algorithm: FlashAlgorithm,
}

impl Loaded {
    /// Resets and halts the card, and puts the algorithm into its memory.
    pub(super) fn load(
        core: &mut Core<'_>,
        target: &Target,
        board: &Board,
    ) -> Result<Self, FlashFault> {
        let raw = board.algorithm();
        let algorithm =
            FlashAlgorithm::assemble_from_raw_with_core(raw, &target.cores[0].name, target)
                .map_err(|error| FlashFault::Algorithm(error.to_string()))?;
        core.reset_and_halt(HALT_TIMEOUT)?;
        use probe_rs::MemoryInterface;
        let no_memory = |error| match is_of_bus(&error) {
            true => FlashFault::Memory,
            false => error.into(),
        };
        core.write_32(algorithm.load_address, &algorithm.instructions).map_err(no_memory)?;
        let mut back = vec![0; algorithm.instructions.len()];
        core.read_32(algorithm.load_address, &mut back).map_err(no_memory)?;
        if back != algorithm.instructions {
            return Err(FlashFault::Memory);
        }
        let loaded = Self { algorithm };
        if let Some(init) = loaded.algorithm.pc_init {
            let window = board.window;
            loaded.call(core, init, &[window, 0, 0], CALL_TIMEOUT).and_then(done)?;
        }
        Ok(loaded)
    }

    pub(super) fn erase(&self, core: &mut Core<'_>, address: u32) -> Result<(), FlashFault> {
        let timeout = self.algorithm.flash_properties.erase_sector_timeout;
        let timeout = Duration::from_millis(timeout.into());
        self.call(core, self.algorithm.pc_erase_sector, &[address], timeout).and_then(done)
    }

    pub(super) fn check_blank(
        &self,
        core: &mut Core<'_>,
        address: u32,
        length: u32,
    ) -> Result<(), FlashFault> {
        let check = self.algorithm.pc_blank_check.expect("board files are checked for it");
        self.call(core, check, &[address, length, 0xff], CALL_TIMEOUT).and_then(done)
    }

    /// Writes bytes of one page.
    pub(super) fn program(
        &self,
        core: &mut Core<'_>,
        address: u32,
        bytes: &[u8],
    ) -> Result<(), FlashFault> {
        use probe_rs::MemoryInterface;
        let buffer = self.algorithm.page_buffers[0];
        // Whole words are written at once; what follows the bytes does not matter.
        let words: Vec<u32> = bytes
            .chunks(4)
            .map(|chunk| {
                let mut word = [0xff; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_le_bytes(word)
            })
            .collect();
        core.write_32(buffer, &words)?;
        let timeout = self.algorithm.flash_properties.program_page_timeout;
        let timeout = Duration::from_millis(timeout.into());
        let arguments = [address, bytes.len() as u32, buffer as u32];
        self.call(core, self.algorithm.pc_program_page, &arguments, timeout).and_then(done)
    }

    /// Calls a function and gives what it returns.
    fn call(
        &self,
        core: &mut Core<'_>,
        function: u64,
        arguments: &[u32],
        timeout: Duration,
    ) -> Result<u32, FlashFault> {
        let registers = core.registers();
        for (number, argument) in arguments.iter().enumerate() {
            core.write_core_reg(registers.argument_register(number), *argument)?;
        }
        core.write_core_reg(core.stack_pointer(), self.algorithm.stack_top as u32)?;
        // A breakpoint is where it returns to.
        core.write_core_reg(core.return_address(), self.algorithm.load_address as u32)?;
        core.write_core_reg(core.program_counter(), function as u32)?;
        core.run()?;
        let began = Instant::now();
        while !core.core_halted()? {
            if began.elapsed() > timeout {
                core.halt(HALT_TIMEOUT)?;
                return Err(FlashFault::Late(timeout));
            }
        }
        let at: u32 = core.read_core_reg(core.program_counter())?;
        if u64::from(at) != self.algorithm.load_address {
            return Err(FlashFault::Astray(at));
        }
        let result: RegisterValue = core.read_core_reg(registers.result_register(0))?;
        let result: u32 = result.try_into()?;
        Ok(result)
    }
}

/// What a function's answer means.
fn done(answer: u32) -> Result<(), FlashFault> {
    match Fault::from_code(answer) {
        None if answer == 0 => Ok(()),
        Some(fault) => Err(FlashFault::Part(fault)),
        None => Err(FlashFault::Strange(answer)),
    }
}
