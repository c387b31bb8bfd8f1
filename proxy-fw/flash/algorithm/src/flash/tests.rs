//! The driver against the model of a part.

use core::time::Duration;
use std::vec::Vec;
use std::{format, vec};

use nor_model::{EraseKind, Nor, Part as ModelPart, SpiNor};
use proptest::prelude::*;

use super::*;

/// A model at a port, which looks that everything is left as it was found.
struct ModelPort {
    nor: SpiNor,
    open: bool,
    selected: bool,
}

impl ModelPort {
    fn new(part: ModelPart) -> Self {
        Self { nor: SpiNor::new(Nor::new(part, 1)), open: true, selected: false }
    }
}

impl Port for ModelPort {
    fn close_window(&mut self) {
        assert!(std::mem::replace(&mut self.open, false), "it was open");
    }

    fn open_window(&mut self) {
        assert!(!std::mem::replace(&mut self.open, true) && !self.selected);
    }

    fn select(&mut self) {
        assert!(!self.open && !std::mem::replace(&mut self.selected, true));
        self.nor.select();
    }

    fn deselect(&mut self) {
        assert!(std::mem::replace(&mut self.selected, false));
        self.nor.deselect();
        self.nor.nor.advance(Duration::from_micros(500));
    }

    fn exchange(&mut self, byte: u8) -> Result<u8, Fault> {
        Ok(self.nor.exchange(byte))
    }
}

const SMALL: ModelPart = ModelPart::W25Q128;

const LARGE: ModelPart = ModelPart {
    erases: &[EraseKind { size: 256 << 10, opcode: 0xd8, time: Duration::from_millis(150) }],
    ..ModelPart::QEMU_VIRT
};

fn flash(part: ModelPart, erase_block: u32) -> Flash<ModelPort> {
    Flash::new(ModelPort::new(part), erase_block)
}

fn read(flash: &mut Flash<ModelPort>, at: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    flash.port.nor.nor.read(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn pages_are_written_and_blocks_erased() {
    for (part, block) in
        [(SMALL, 64 << 10), (SMALL, 4 << 10), (SMALL, 256 << 10), (LARGE, 256 << 10)]
    {
        let mut flash = flash(part, block);
        flash.identify().unwrap();
        // Beyond what three bytes of address reach, where the part is that large.
        let at = flash.port.nor.nor.part().size - block;
        flash.erase(at).unwrap();
        flash.program(at + block - 256, &[0x5a; 256]).unwrap();
        flash.program(at + 3, &[1, 2, 3]).unwrap();
        assert_eq!(read(&mut flash, at, 8), [0xff, 0xff, 0xff, 1, 2, 3, 0xff, 0xff]);
        assert_eq!(read(&mut flash, at + block - 256, 256), [0x5a; 256]);
        flash.erase(at).unwrap();
        assert_eq!(read(&mut flash, at, block as usize), vec![0xff; block as usize]);
        assert!(flash.port.open);
    }
}

#[test]
fn protection_bits_are_seen() {
    let mut small = flash(SMALL, 64 << 10);
    assert_eq!(small.is_protected(), Ok(false));
    small.port.close_window();
    small.command(&[WRITE_ENABLE]).unwrap();
    small.command(&[0x01, 1 << 3]).unwrap();
    small.wait().unwrap();
    small.port.open_window();
    assert_eq!(small.is_protected(), Ok(true));
    assert!(small.port.open);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut small = flash(SMALL, 64 << 10);
    let size = small.port.nor.nor.part().size;
    assert_eq!(small.erase(4096), Err(Fault::OutOfRange));
    assert_eq!(small.erase(size), Err(Fault::OutOfRange));
    assert_eq!(small.program(size, &[1]), Err(Fault::OutOfRange));
    assert_eq!(small.program(255, &[1, 2]), Err(Fault::OutOfRange));
    assert_eq!(small.program(0, &[]), Err(Fault::OutOfRange));
    assert_eq!(small.jedec_id(), Ok(SMALL.jedec));
    assert_eq!(flash(LARGE, 64 << 10).identify(), Err(Fault::NoSuchErase));
    small.port.nor.power_off();
    assert_eq!(small.identify(), Err(Fault::NotAnswering));
    assert!(small.port.open, "the window is open whatever happened");
}

#[test]
fn numbers_are_faults() {
    for fault in Fault::ALL {
        assert_eq!(Fault::from_code(fault as u32), Some(fault));
        assert!(!format!("{fault}").is_empty());
    }
    assert_eq!(Fault::from_code(0), None);
}

proptest! {
    /// Whatever a part says of itself.
    #[test]
    fn any_parameters_are_read(table in prop::array::uniform32(any::<[u8; 2]>()), block in any::<u32>()) {
        let table: Vec<u8> = table.into_iter().flatten().collect();
        if let Ok(part) = Part::from_table(&table.try_into().unwrap(), block) {
            prop_assert!(part.size.is_power_of_two() && block.is_multiple_of(part.erase.0));
        }
    }
}
