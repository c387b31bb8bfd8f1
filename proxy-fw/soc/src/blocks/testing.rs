//! Registers, memory and queues as the hardware has them, for tests of what drives them.

use super::queue::{Buffers, Ring};
use card_regs::{Access, Bus, Card, REGISTERS};
use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::vec::Vec;

/// Where buffers are, and how far apart.
const BUFFERS: u32 = 0x4000_0000;
const APART: u32 = 0x1000;

/// In a descriptor's status.
const OWN: u32 = 1 << 31;

/// Offsets in a queue's registers.
const BASE: u32 = 0x00;
const SIZE: u32 = 0x04;
const CONTROL: u32 = 0x08;
const STATUS: u32 = 0x0c;
const TAIL: u32 = 0x10;
const HEAD: u32 = 0x14;
const ERROR: u32 = 0x1c;

/// What happens when a register is written.
type Effect = fn(&Hardware, u32, u32);

/// The card's hardware.
pub(super) struct Hardware {
    registers: RefCell<BTreeMap<u32, u32>>,
    effects: RefCell<BTreeMap<u32, Effect>>,
    /// Words of descriptors, by address.
    words: RefCell<BTreeMap<u32, u32>>,
    /// Bytes of buffers, as the hardware sees them.
    buffers: RefCell<Vec<Vec<u8>>>,
    /// How often a tail was written.
    pub(super) doorbells: Cell<u32>,
}

impl Hardware {
    pub(super) fn new() -> Self {
        let registers = REGISTERS.iter().map(|info| (info.address, info.reset)).collect();
        let hardware = Self {
            registers: RefCell::new(registers),
            effects: RefCell::default(),
            words: RefCell::default(),
            buffers: RefCell::default(),
            doorbells: Cell::new(0),
        };
        for info in REGISTERS {
            let effect: Effect = match info.path.rsplit_once('.') {
                Some((_, "tail")) => Self::doorbell,
                Some((path, "control")) if is_queue(path) => Self::enable,
                Some((path, "error")) if is_queue(path) => Self::clear,
                _ if info.access == Access::ReadOnly => Self::refuse,
                _ => continue,
            };
            hardware.effects.borrow_mut().insert(info.address, effect);
        }
        hardware
    }

    pub(super) fn card(&self) -> Card<&Self> {
        Card::at(self, 0)
    }

    /// What a register holds.
    pub(super) fn get(&self, path: &str) -> u32 {
        self.registers.borrow()[&address(path)]
    }

    /// Changes a register as the hardware does.
    pub(super) fn set(&self, path: &str, value: u32) {
        self.registers.borrow_mut().insert(address(path), value);
    }

    fn register(&self, address: u32) -> u32 {
        self.registers.borrow()[&address]
    }

    fn put(&self, address: u32, value: u32) {
        self.registers.borrow_mut().insert(address, value);
    }

    fn refuse(&self, address: u32, _: u32) {
        panic!("{address:#x} is read-only");
    }

    fn doorbell(&self, address: u32, value: u32) {
        self.put(address, value);
        self.doorbells.set(self.doorbells.get() + 1);
        let queue = address - TAIL;
        let ahead = (value as u16).wrapping_sub(self.register(queue + HEAD) as u16);
        assert!(u32::from(ahead) <= 1 << self.register(queue + SIZE), "beyond the ring's size");
        assert_eq!(self.register(queue + CONTROL), 1, "the queue does not run");
    }

    fn enable(&self, address: u32, value: u32) {
        let queue = address - CONTROL;
        if value & !self.register(address) & 1 != 0 {
            self.put(queue + HEAD, 0);
            self.put(queue + TAIL, 0);
        }
        self.put(queue + STATUS, value & 1);
        self.put(address, value);
    }

    fn clear(&self, address: u32, value: u32) {
        self.put(address, self.register(address) & !value);
    }

    /// A queue stops by itself.
    pub(super) fn fail(&self, queue: &str) {
        let queue = address_of(queue);
        self.put(queue + STATUS, 0);
        self.put(queue + ERROR, 1);
    }

    /// Descriptors that the hardware has.
    pub(super) fn level(&self, queue: &str) -> u16 {
        let queue = address_of(queue);
        (self.register(queue + TAIL) as u16).wrapping_sub(self.register(queue + HEAD) as u16)
    }

    /// Does a queue's next descriptor: `change` gets its words for length and status and the
    /// buffer, and leaves them as the hardware does. False: there is none.
    pub(super) fn carry_out(
        &self,
        queue: &str,
        change: impl FnOnce(&mut u32, &mut u32, &mut [u8]),
    ) -> bool {
        let at = address_of(queue);
        if self.level(queue) == 0 || self.register(at + STATUS) == 0 {
            return false;
        }
        let head = self.register(at + HEAD);
        let index = head & ((1 << self.register(at + SIZE)) - 1);
        let descriptor = self.register(at + BASE) + index * 16;
        let mut words = self.words.borrow_mut();
        let (mut length, mut status) = (words[&(descriptor + 4)], words[&(descriptor + 8)]);
        assert!(status & OWN != 0, "it is not the hardware's");
        let buffer = (words[&descriptor] - BUFFERS) / APART;
        change(&mut length, &mut status, &mut self.buffers.borrow_mut()[buffer as usize]);
        words.insert(descriptor + 4, length);
        words.insert(descriptor + 8, status & !OWN);
        drop(words);
        self.put(at + HEAD, (head + 1) & 0xffff);
        true
    }

    /// Memory for a ring.
    pub(super) fn ring(&self, address: u32, order: u32) -> Ring<Words<'_>> {
        Ring::new(Words { hardware: self, address }, address, order)
    }

    /// Memory for buffers. To be called once.
    pub(super) fn memory(&self, count: u16, room: u16) -> Memory<'_> {
        *self.buffers.borrow_mut() = std::vec![std::vec![0; room.into()]; count.into()];
        let copies = std::vec![std::vec![0; room.into()]; count.into()];
        Memory { hardware: self, copies, lent: std::vec![false; count.into()], room }
    }
}

fn is_queue(path: &str) -> bool {
    ["receive", "receive_fabric", "receive_other", "transmit"]
        .iter()
        .any(|queue| path.rsplit('.').next() == Some(queue))
}

fn address(path: &str) -> u32 {
    let info = REGISTERS.iter().find(|info| info.path == path);
    info.unwrap_or_else(|| panic!("no register {path}")).address
}

fn address_of(queue: &str) -> u32 {
    address(&std::format!("{queue}.base"))
}

impl Bus for Hardware {
    fn read32(&self, offset: u32) -> u32 {
        self.register(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        let effect = self.effects.borrow().get(&offset).copied();
        match effect {
            Some(effect) => effect(self, offset, value),
            None => self.put(offset, value),
        }
    }
}

/// Words of a ring, as the core has them.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    hardware: &'a Hardware,
    address: u32,
}

impl Bus for Words<'_> {
    fn read32(&self, offset: u32) -> u32 {
        self.hardware.words.borrow()[&(self.address + offset)]
    }

    fn write32(&self, offset: u32, value: u32) {
        self.hardware.words.borrow_mut().insert(self.address + offset, value);
    }
}

/// Buffers as a core with a cache has them: what is in memory and what the core sees are the same
/// only after it was lent or reclaimed. Each use out of order is a panic.
pub(super) struct Memory<'a> {
    hardware: &'a Hardware,
    copies: Vec<Vec<u8>>,
    lent: Vec<bool>,
    room: u16,
}

impl Buffers for Memory<'_> {
    fn count(&self) -> u16 {
        self.copies.len() as u16
    }

    fn room(&self) -> u16 {
        self.room
    }

    fn address(&self, index: u16) -> u32 {
        BUFFERS + u32::from(index) * APART
    }

    fn bytes(&mut self, index: u16) -> &mut [u8] {
        assert!(!self.lent[usize::from(index)], "the hardware has it");
        &mut self.copies[usize::from(index)]
    }

    fn lend(&mut self, index: u16) {
        let index = usize::from(index);
        assert!(!core::mem::replace(&mut self.lent[index], true), "it is lent already");
        self.hardware.buffers.borrow_mut()[index].copy_from_slice(&self.copies[index]);
    }

    fn reclaim(&mut self, index: u16) {
        let index = usize::from(index);
        assert!(core::mem::replace(&mut self.lent[index], false), "it is not lent");
        self.copies[index].copy_from_slice(&self.hardware.buffers.borrow()[index]);
    }
}
