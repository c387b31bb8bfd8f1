use super::*;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::vec::Vec;

/// Room of either FIFO.
const FIFO: usize = 16;

/// The block, and a device that answers each byte with its complement.
struct Model {
    registers: RefCell<[u32; 9]>,
    waiting: RefCell<VecDeque<u8>>,
    came: RefCell<VecDeque<u8>>,
    /// What the device saw: bytes, and `None` where it was let go.
    seen: RefCell<Vec<Option<u8>>>,
    stands_still: Cell<bool>,
}

impl Model {
    fn new() -> Self {
        let mut registers = [0; 9];
        registers[6] = 0x0301; // the window is open
        Self {
            registers: RefCell::new(registers),
            waiting: RefCell::default(),
            came: RefCell::default(),
            seen: RefCell::default(),
            stands_still: Cell::new(false),
        }
    }

    fn selected(&self) -> u32 {
        self.registers.borrow()[0] >> 8
    }

    /// A byte passes.
    fn go_on(&self) {
        if self.stands_still.get() {
            return;
        }
        let Some(byte) = self.waiting.borrow_mut().pop_front() else { return };
        if self.selected() == 1 {
            self.seen.borrow_mut().push(Some(byte));
        }
        self.came.borrow_mut().push_back(!byte);
        assert!(self.came.borrow().len() <= FIFO, "a byte is lost");
    }
}

impl Bus for Model {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            0x0c => self.came.borrow_mut().pop_front().map_or(0, |byte| 1 << 8 | u32::from(byte)),
            0x10 => {
                let (waiting, came) = (self.waiting.borrow().len(), self.came.borrow().len());
                self.go_on();
                ((FIFO - waiting) | came << 8 | usize::from(waiting > 0) << 16) as u32
            }
            _ => self.registers.borrow()[offset as usize / 4],
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        assert_ne!(offset, 0x0c, "read-only");
        if offset == 0x08 {
            assert_eq!(self.registers.borrow()[6] & 1, 0, "the window is open");
            assert!(self.waiting.borrow().len() < FIFO, "a byte is lost");
            self.waiting.borrow_mut().push_back(value as u8);
            return;
        }
        if offset == 0 {
            if value >> 8 != self.selected() && !self.stands_still.get() {
                assert!(self.waiting.borrow().is_empty(), "a byte is under way");
            }
            if self.selected() == 1 && value >> 8 == 0 {
                self.seen.borrow_mut().push(None);
            }
            if value & 1 == 0 {
                self.waiting.borrow_mut().clear();
                self.came.borrow_mut().clear();
            }
        }
        self.registers.borrow_mut()[offset as usize / 4] = value;
    }
}

struct NoDelay;

impl DelayNs for NoDelay {
    fn delay_ns(&mut self, _: u32) {}
}

fn port(model: &Model) -> SpiPort<&Model, NoDelay> {
    SpiPort::new(Block::at(model, 0), NoDelay, 0, 4)
}

#[test]
fn all_operations_of_a_transaction_are_under_one_chip_select() {
    let model = Model::new();
    let mut port = port(&model);
    let (mut read, mut longer, mut place) = ([0; 2], [0; 3], [7, 8]);
    let mut operations = [
        Operation::Write(&[1, 2]),
        Operation::Read(&mut read),
        Operation::DelayNs(10),
        Operation::Transfer(&mut longer, &[5]),
        Operation::TransferInPlace(&mut place),
    ];
    port.transaction(&mut operations).unwrap();
    let seen = [1, 2, 0, 0, 5, 0, 0, 7, 8].map(Some);
    assert_eq!(model.seen.borrow()[..9], seen);
    assert_eq!(model.seen.borrow()[9..], [None]);
    assert_eq!((read, longer, place), ([!0; 2], [!5, !0, !0], [!7, !8]));
}

#[test]
fn long_transfers_lose_nothing() {
    let model = Model::new();
    let bytes: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    let mut there = bytes.clone();
    port(&model).transfer_in_place(&mut there).unwrap();
    assert!(there.iter().zip(&bytes).all(|(got, sent)| *got == !*sent));
}

#[test]
fn the_window_is_closed_meanwhile() {
    let model = Model::new();
    let port = port(&model);
    assert_eq!(model.registers.borrow()[6], 0x0300);
    assert_eq!(model.registers.borrow()[1], 4);
    drop(port);
    assert_eq!((model.registers.borrow()[6], model.registers.borrow()[0]), (0x0301, 0));
}

#[test]
fn a_block_that_hangs_is_given_up() {
    let model = Model::new();
    let mut port = port(&model);
    model.stands_still.set(true);
    assert_eq!(port.write(&[1]), Err(SpiStuck));
    model.stands_still.set(false);
    model.seen.borrow_mut().clear();
    assert_eq!(port.write(&[2]), Ok(()));
    assert_eq!(*model.seen.borrow(), [Some(2), None], "nothing of before is left");
}
