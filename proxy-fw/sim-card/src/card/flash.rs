//! The flash: two banks, each of which is reached as a parallel part with Intel's command set and
//! over SPI, one at a time.

use std::time::Duration;

use nor_model::{CfiNor, EraseKind, Nor, Part, SpiNor};

use super::TICK_NANOS;
use super::spi::Parts;
use crate::iss::Width;

/// Banks of the flash.
pub const BANKS: usize = 2;

/// A bank: as large as QEMU's and erased in the same blocks, with the times of a real part (those
/// of Winbond's W25Q128JV, revision F, section 9.6; a block as its 64 KB).
pub const FLASH_PART: Part = Part {
    page: 256,
    erases: &[EraseKind { size: 256 << 10, opcode: 0xd8, time: Duration::from_millis(150) }],
    jedec: [0x89, 0x40, 0x19],
    timing: Part::W25Q128.timing,
    ..Part::QEMU_VIRT
};

/// Who has the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    Parallel,
    Serial,
}

/// The face that does not have the cells has a few of its own that nobody sees.
#[derive(Debug)]
struct Bank {
    parallel: CfiNor,
    serial: SpiNor,
    face: Face,
    /// Until when time has passed for it.
    ticks: u64,
}

impl Bank {
    fn new(seed: u64) -> Self {
        Self {
            parallel: CfiNor::new(Nor::new(FLASH_PART, seed), 2),
            serial: SpiNor::new(Nor::new(Part::small(1 << 10), seed)),
            face: Face::Parallel,
            ticks: 0,
        }
    }

    fn turn_to(&mut self, face: Face) {
        if self.face != face {
            std::mem::swap(&mut self.parallel.nor, &mut self.serial.nor);
            self.face = face;
        }
    }

    fn nor(&mut self) -> &mut Nor {
        match self.face {
            Face::Parallel => &mut self.parallel.nor,
            Face::Serial => &mut self.serial.nor,
        }
    }

    fn pass_until(&mut self, ticks: u64) {
        let passed = Duration::from_nanos((ticks - self.ticks) * TICK_NANOS);
        self.ticks = ticks;
        self.nor().advance(passed);
    }
}

#[derive(Debug)]
pub(super) struct Flash {
    banks: [Bank; BANKS],
}

impl Flash {
    pub(super) fn new() -> Self {
        Self { banks: [Bank::new(1), Bank::new(2)] }
    }

    pub(super) fn nor(&mut self, bank: usize, ticks: u64) -> &mut Nor {
        self.banks[bank].pass_until(ticks);
        self.banks[bank].nor()
    }

    /// The reset pin of the parts: what goes on is torn.
    pub(super) fn reset(&mut self, ticks: u64) {
        for bank in &mut self.banks {
            bank.pass_until(ticks);
            bank.turn_to(Face::Parallel);
            bank.serial.power_off();
            bank.serial.power_on();
            bank.parallel.power_off();
            bank.parallel.power_on();
        }
    }

    fn bank(&mut self, offset: u32, ticks: u64) -> &mut Bank {
        let bank = &mut self.banks[(offset / FLASH_PART.size) as usize];
        bank.pass_until(ticks);
        bank.turn_to(Face::Parallel);
        bank
    }

    /// A word of the window.
    pub(super) fn read(&mut self, offset: u32, ticks: u64) -> u32 {
        self.bank(offset, ticks).parallel.read(offset % FLASH_PART.size)
    }

    /// A write to the window. Lanes that it does not reach are 1, which programs nothing.
    pub(super) fn write(&mut self, offset: u32, width: Width, value: u32, ticks: u64) {
        let shift = 8 * (offset & 3);
        let mask = match width {
            Width::Byte => 0xff,
            Width::Half => 0xffff,
            Width::Word => u32::MAX,
        };
        let word = !(mask << shift) | (value & mask) << shift;
        self.bank(offset, ticks).parallel.write(offset % FLASH_PART.size, word);
    }
}

impl Parts for Flash {
    fn select(&mut self, before: u32, now: u32, ticks: u64) {
        for (index, bank) in self.banks.iter_mut().enumerate() {
            let bit = 1 << index;
            if (before ^ now) & bit == 0 {
                continue;
            }
            bank.pass_until(ticks);
            bank.turn_to(Face::Serial);
            if now & bit != 0 { bank.serial.select() } else { bank.serial.deselect() }
        }
    }

    /// The banks' outputs are wired together.
    fn exchange(&mut self, selected: u32, byte: u8, ticks: u64) -> u8 {
        let selected = self.banks.iter_mut().enumerate().filter(|(i, _)| selected & 1 << i != 0);
        selected.fold(0xff, |sum, (_, bank)| {
            bank.pass_until(ticks);
            sum & bank.serial.exchange(byte)
        })
    }
}
