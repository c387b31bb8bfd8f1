//! Queues of descriptors in memory (`hw/regs/card.md`, "queue"), and the buffers that they carry.
//!
//! A buffer is the core's or the hardware's, never both's: a [`Buffer`] is moved into a queue when
//! it is given to the hardware, and comes out when its descriptor is done, so nobody can look into
//! one that the hardware has.

use alloc::boxed::Box;
use alloc::vec::Vec;
use card_regs::queue::{Base, Control, Error, Queue as Block, Size, Tail};
use card_regs::{Bits, Bus, frame_descriptor, tlp_descriptor};
use core::sync::atomic::{Ordering, fence};

/// Bytes of a descriptor, and where its words are.
const DESCRIPTOR: u32 = 16;
const BUFFER: u32 = 0x0;
const LENGTH: u32 = 0x4;
const STATUS: u32 = 0x8;

/// In the status of either kind: it is the hardware's.
const OWN: u32 = tlp_descriptor::Status::RESET.with_own(true).bits();

const _: () = {
    assert!(OWN == frame_descriptor::Status::RESET.with_own(true).bits());
    assert!(DESCRIPTOR == tlp_descriptor::SIZE && DESCRIPTOR == frame_descriptor::SIZE);
};

/// Largest binary logarithm of a ring's size (`queue.size`).
const MAX_ORDER: u32 = 15;

/// How often a queue that was stopped is asked whether it has ended its last descriptor: one whole
/// TLP or frame, some microseconds.
const POLLS: u32 = 100_000;

/// Memory that the core and the hardware hand to each other, as buffers of the same size, numbered
/// from 0.
///
/// The blocks' drivers keep this order for each buffer: [`lend`](Self::lend), then
/// [`reclaim`](Self::reclaim), and [`bytes`](Self::bytes) only where it is not lent.
pub trait Buffers {
    /// How many there are.
    fn count(&self) -> u16;

    /// Bytes of each.
    fn room(&self) -> u16;

    /// Where a buffer is for the hardware. Buffers of TLPs begin at multiples of 4, buffers of
    /// frames at even addresses.
    fn address(&self, index: u16) -> u32;

    /// What is in a buffer: [`room`](Self::room) bytes.
    fn bytes(&mut self, index: u16) -> &mut [u8];

    /// The hardware gets a buffer: what the core wrote into it has to be in memory, where the core
    /// has a cache that the hardware does not see.
    fn lend(&mut self, index: u16);

    /// The hardware is done with a buffer: what the core reads from it has to come from memory.
    fn reclaim(&mut self, index: u16);
}

/// A buffer of a [`Pool`], while the core has it.
#[derive(Debug)]
pub(super) struct Buffer(u16);

/// Buffers that nobody uses, and access to those that the core has.
#[derive(Debug)]
pub(super) struct Pool<M> {
    memory: M,
    free: Vec<Buffer>,
}

impl<M: Buffers> Pool<M> {
    pub(super) fn new(memory: M) -> Self {
        let free = (0..memory.count()).rev().map(Buffer).collect();
        Self { memory, free }
    }

    pub(super) fn room(&self) -> u16 {
        self.memory.room()
    }

    /// Bytes of all its buffers.
    pub(super) fn size(&self) -> usize {
        usize::from(self.memory.count()) * usize::from(self.room())
    }

    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Gives a buffer back. The list has room for all that there are, so nothing is allocated.
    pub(super) fn put(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    pub(super) fn bytes(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.memory.bytes(buffer.0)
    }
}

/// Memory of a queue's descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Ring<R> {
    words: R,
    address: u32,
    order: u32,
}

impl<R: Bus> Ring<R> {
    /// 2 to the power of `order` descriptors of 16 bytes, through `words` for the core, and from
    /// `address` on for the hardware.
    ///
    /// # Panics
    ///
    /// When the address is no multiple of 16, or the order more than 15: the board's constants are
    /// wrong.
    pub fn new(words: R, address: u32, order: u32) -> Self {
        assert!(address.is_multiple_of(DESCRIPTOR), "rings begin at multiples of 16");
        assert!(order <= MAX_ORDER, "a ring has 32768 descriptors at most");
        Self { words, address, order }
    }

    fn size(&self) -> u16 {
        1 << self.order
    }
}

/// What the hardware was given with a descriptor.
#[derive(Debug)]
struct Lent {
    buffer: Buffer,
    length: u32,
    status: u32,
}

/// A descriptor that is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) buffer: Buffer,
    /// The descriptor's words, as the hardware left them.
    pub(super) length: u32,
    pub(super) status: u32,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Queue<B, R> {
    block: Block<B>,
    ring: Ring<R>,
    /// Positions: of the first descriptor that was not seen to be done, behind the last that was
    /// given, and what the hardware was told of it.
    head: u16,
    tail: u16,
    rung: u16,
    /// By index in the ring.
    lent: Box<[Option<Lent>]>,
}

impl<B: Bus + Copy, R: Bus> Queue<B, R> {
    /// Starts a queue, with nothing in it.
    ///
    /// # Panics
    ///
    /// When the queue does not stop what a life before this one began: only broken gateware does
    /// that.
    pub(super) fn new(block: Block<B>, ring: Ring<R>) -> Self {
        let lent = (0..ring.size()).map(|_| None).collect();
        let mut queue = Self { block, ring, head: 0, tail: 0, rung: 0, lent };
        assert!(queue.stop(), "a queue that is told to stop does");
        queue.begin();
        queue
    }

    /// Descriptors that it has room for at a time.
    pub(super) fn size(&self) -> u16 {
        self.ring.size()
    }

    /// Descriptors that were given and not seen to be done.
    pub(super) fn level(&self) -> u16 {
        self.tail.wrapping_sub(self.head)
    }

    pub(super) fn is_full(&self) -> bool {
        self.level() == self.size()
    }

    /// Descriptors that were given and of which the hardware does not know.
    pub(super) fn unrung(&self) -> u16 {
        self.tail.wrapping_sub(self.rung)
    }

    fn index(&self, position: u16) -> usize {
        usize::from(position & (self.size() - 1))
    }

    fn begin(&mut self) {
        (self.head, self.tail, self.rung) = (0, 0, 0);
        let order = Bits::new(self.ring.order).expect("it was looked at");
        self.block.error().write(Error::from_bits(u32::MAX));
        self.block.base().write(Base::RESET.with_address(self.ring.address));
        self.block.size().write(Size::RESET.with_order(order));
        self.block.control().write(Control::RESET.with_enable(true));
    }

    /// Gives the hardware a buffer, of which it learns at the next [`ring`](Self::ring).
    ///
    /// # Panics
    ///
    /// When the queue is full.
    pub(super) fn give<M: Buffers>(
        &mut self,
        pool: &mut Pool<M>,
        buffer: Buffer,
        length: u32,
        status: u32,
    ) {
        assert!(!self.is_full(), "who gives has looked");
        let index = self.index(self.tail);
        let at = index as u32 * DESCRIPTOR;
        let address = pool.memory.address(buffer.0);
        pool.memory.lend(buffer.0);
        self.ring.words.write32(at + BUFFER, address);
        self.ring.words.write32(at + LENGTH, length);
        // All of the buffer and of the descriptor is written before it is the hardware's.
        fence(Ordering::Release);
        self.ring.words.write32(at + STATUS, status | OWN);
        self.lent[index] = Some(Lent { buffer, length, status });
        self.tail = self.tail.wrapping_add(1);
    }

    /// Tells the hardware of what was given.
    pub(super) fn ring(&mut self) {
        if self.rung != self.tail {
            fence(Ordering::Release);
            self.block.tail().write(Tail::RESET.with_position(self.tail));
            self.rung = self.tail;
        }
    }

    /// The status of the oldest descriptor, if the hardware is done with it.
    fn status_of_done(&self) -> Option<u32> {
        if self.head == self.rung {
            return None;
        }
        let at = self.index(self.head) as u32 * DESCRIPTOR;
        Some(self.ring.words.read32(at + STATUS)).filter(|status| status & OWN == 0)
    }

    /// Whether the hardware is done with the oldest descriptor.
    pub(super) fn is_done(&self) -> bool {
        self.status_of_done().is_some()
    }

    /// The oldest descriptor, if the hardware is done with it.
    pub(super) fn done<M: Buffers>(&mut self, pool: &mut Pool<M>) -> Option<Done> {
        let status = self.status_of_done()?;
        // What else is read was written before that word.
        fence(Ordering::Acquire);
        let index = self.index(self.head);
        let at = index as u32 * DESCRIPTOR;
        let length = self.ring.words.read32(at + LENGTH);
        let lent = self.lent[index].take().expect("it was given");
        pool.memory.reclaim(lent.buffer.0);
        self.head = self.head.wrapping_add(1);
        Some(Done { buffer: lent.buffer, length, status })
    }

    /// Whether the hardware stopped the queue: it has to be set up anew.
    pub(super) fn has_failed(&self) -> bool {
        self.block.error().read() != Error::RESET
    }

    /// Stops the queue; false: it does not end. What is done then is still to be asked for.
    pub(super) fn stop(&mut self) -> bool {
        self.block.control().write(Control::RESET);
        (0..POLLS).any(|_| !self.block.status().read().running())
    }

    /// Takes the oldest descriptor away, done or not, from a queue that was stopped: its buffer,
    /// and the status that it was given with.
    pub(super) fn withdraw<M: Buffers>(&mut self, pool: &mut Pool<M>) -> Option<(Buffer, u32)> {
        let index = self.index(self.head);
        let lent = self.lent[index].take()?;
        pool.memory.reclaim(lent.buffer.0);
        self.head = self.head.wrapping_add(1);
        Some((lent.buffer, lent.status))
    }

    /// Starts a queue that was stopped, with all that it still had, in the same order.
    pub(super) fn restart<M: Buffers>(&mut self, pool: &mut Pool<M>) {
        let (level, first) = (self.level(), self.index(self.head));
        self.lent.rotate_left(first);
        self.begin();
        for index in 0..usize::from(level) {
            let Lent { buffer, length, status } = self.lent[index].take().expect("it was given");
            pool.memory.reclaim(buffer.0);
            self.give(pool, buffer, length, status);
        }
        self.ring();
    }
}

#[cfg(test)]
mod tests;
