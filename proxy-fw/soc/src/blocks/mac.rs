//! An Ethernet port (`hw/regs/card.md`, "mac").
//!
//! Frames of the fabric and all others come in queues of their own; both are asked in turn, so
//! neither waits for the other's burst.

use super::queue::{Buffers, Done, Pool, Queue, Ring};
use crate::board::{Arrived, EthernetMac, MacCounters};
use crate::ethernet;
use card_regs::Bus;
use card_regs::frame_descriptor::{Length, Status};
use card_regs::mac::{AddressHigh, AddressLow, Control, Fabric, Mac as Block, MaxFrame};
use core::cell::Cell;
use tlp_codec::fabric::ETHERTYPE;

/// The least and the longest frame that `mac.max_frame` can be set to.
const MAX_FRAME: core::ops::RangeInclusive<u16> = 64..=9216;

/// The hardware is told of buffers when this part of a queue was given back, or when nothing more
/// is there to be done.
const WORTH: u16 = 4;

/// Descriptors of a port's three queues.
#[derive(Clone, Copy, Debug)]
pub struct MacRings<R> {
    /// Of received frames of the fabric.
    pub fabric: Ring<R>,
    /// Of all other received frames.
    pub other: Ring<R>,
    /// Of frames to send.
    pub transmit: Ring<R>,
}

/// A count of the hardware's, modulo 2^32, carried on.
#[derive(Debug, Default)]
struct Carried {
    last: Cell<u32>,
    total: Cell<u64>,
}

impl Carried {
    /// What it is now. To be asked before it grows by 2^32.
    fn at(&self, now: u32) -> u64 {
        let more = now.wrapping_sub(self.last.replace(now));
        self.total.set(self.total.get() + u64::from(more));
        self.total.get()
    }
}

/// What the driver counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    damaged: u64,
    full: u64,
    aborted: u64,
    restarts: u64,
}

/// A port.
#[derive(Debug)]
pub struct MacPort<B, R, M> {
    block: Block<B>,
    address: [u8; 6],
    max_frame: u16,
    pool: Pool<M>,
    fabric: Queue<B, R>,
    other: Queue<B, R>,
    transmit: Queue<B, R>,
    /// The last frame was of the fabric: the other queue is asked first.
    fabric_was_last: bool,
    counts: Counts,
    dropped_fabric: Carried,
    dropped_other: Carried,
    errors: Carried,
    lengths: Carried,
}

impl<B: Bus + Copy, R: Bus, M: Buffers> MacPort<B, R, M> {
    /// Starts a port with this address. Both receive queues are filled with buffers, and the others
    /// are for frames to send. `max_frame` is the longest frame in bytes, without the frame check
    /// sequence.
    ///
    /// # Panics
    ///
    /// When there are no more buffers than the receive queues take, or they have no room for such a
    /// frame, or the block cannot take it (64 to 9216 bytes): the board's constants are wrong.
    pub fn new(
        block: Block<B>,
        rings: MacRings<R>,
        memory: M,
        address: [u8; 6],
        max_frame: u16,
    ) -> Self {
        let mut pool = Pool::new(memory);
        assert!(MAX_FRAME.contains(&max_frame), "the block takes 64 to 9216 bytes");
        assert!(pool.room() >= max_frame, "a buffer has room for a frame");
        block.control().write(Control::RESET);
        let [a, b, c, d, e, f] = address;
        let low = u32::from_le_bytes([a, b, c, d]);
        block.address_low().write(AddressLow::RESET.with_bytes(low));
        block.address_high().write(AddressHigh::RESET.with_bytes(u16::from_le_bytes([e, f])));
        block.max_frame().write(MaxFrame::RESET.with_bytes(max_frame));
        block.fabric().write(Fabric::RESET.with_ethertype(ETHERTYPE));
        let mut fabric = Queue::new(block.receive_fabric(), rings.fabric);
        let mut other = Queue::new(block.receive_other(), rings.other);
        let transmit = Queue::new(block.transmit(), rings.transmit);
        for queue in [&mut fabric, &mut other] {
            while !queue.is_full() {
                let buffer = pool.take().expect("there are buffers for the receive queues");
                offer(queue, &mut pool, buffer);
            }
            queue.ring();
        }
        assert!(!pool.is_empty(), "there are buffers for frames to send");
        let control = Control::RESET.with_receive(true).with_transmit(true).with_broadcast(true);
        block.control().write(control);
        Self {
            address,
            max_frame,
            pool,
            fabric,
            other,
            transmit,
            fabric_was_last: false,
            counts: Counts::default(),
            dropped_fabric: Carried::default(),
            dropped_other: Carried::default(),
            errors: Carried::default(),
            lengths: Carried::default(),
            block,
        }
    }

    /// Bytes of the buffers in which frames wait.
    pub fn packet_pool(&self) -> usize {
        self.pool.size()
    }

    /// What the trait's counters have no name for.
    pub fn further_counters(&self) -> [(&'static str, u64); 2] {
        [
            ("mac: frames that were not sent", self.counts.aborted),
            ("mac: queues that stopped", self.counts.restarts),
        ]
    }

    /// Sets up anew what queues the hardware stopped. To be called after interrupt source
    /// `queue_error`. Frames that came and were not taken, and one that was being sent, are lost
    /// and counted. Whether frames that come are taken then; not where a queue does not end.
    pub fn recover(&mut self) -> bool {
        let Self { fabric, other, transmit, pool, counts, .. } = self;
        let mut receives = true;
        for queue in [fabric, other] {
            if queue.has_failed() {
                if !queue.stop() {
                    receives = false;
                    continue;
                }
                counts.restarts += 1;
                while let Some(done) = queue.done(pool) {
                    counts.damaged += 1;
                    pool.put(done.buffer);
                }
                queue.restart(pool);
                while !queue.is_full()
                    && let Some(buffer) = pool.take()
                {
                    offer(queue, pool, buffer);
                }
                queue.ring();
            }
        }
        if transmit.has_failed() && transmit.stop() {
            counts.restarts += 1;
            while let Some(done) = transmit.done(pool) {
                ended(counts, pool, done);
            }
            if let Some((buffer, _)) = transmit.withdraw(pool) {
                counts.aborted += 1;
                pool.put(buffer);
            }
            transmit.restart(pool);
        }
        receives
    }

    /// The oldest frame of one of the queues: whether it is the fabric's.
    fn next(&mut self) -> Option<(bool, Done)> {
        let Self { fabric, other, pool, fabric_was_last, .. } = self;
        for of_fabric in [!*fabric_was_last, *fabric_was_last] {
            let queue = if of_fabric { &mut *fabric } else { &mut *other };
            if let Some(done) = queue.done(pool) {
                *fabric_was_last = of_fabric;
                return Some((of_fabric, done));
            }
        }
        None
    }

    /// Tells the hardware of all buffers for frames to come.
    fn ring(&mut self) {
        self.fabric.ring();
        self.other.ring();
    }

    fn reclaim(&mut self) {
        while let Some(done) = self.transmit.done(&mut self.pool) {
            ended(&mut self.counts, &mut self.pool, done);
        }
    }
}

/// Offers a buffer for a frame to come.
fn offer<B: Bus + Copy, R: Bus, M: Buffers>(
    queue: &mut Queue<B, R>,
    pool: &mut Pool<M>,
    buffer: super::queue::Buffer,
) {
    let length = Length::RESET.with_room(pool.room()).bits();
    queue.give(pool, buffer, length, Status::RESET.bits());
}

/// A frame was sent, or not.
fn ended<M: Buffers>(counts: &mut Counts, pool: &mut Pool<M>, done: Done) {
    let aborted = Status::from_bits(done.status).aborted();
    counts.aborted += u64::from(aborted);
    counts.sent += u64::from(!aborted);
    pool.put(done.buffer);
}

impl<B: Bus + Copy, R: Bus, M: Buffers> EthernetMac for MacPort<B, R, M> {
    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn link_is_up(&mut self) -> bool {
        self.block.link().read().up()
    }

    fn max_frame(&self) -> usize {
        self.max_frame.into()
    }

    fn has_arrived(&mut self) -> bool {
        let has_arrived = self.fabric.is_done() || self.other.is_done();
        if !has_arrived {
            self.ring();
        }
        has_arrived
    }

    fn receive<T>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> T) -> Option<T> {
        loop {
            let Some((of_fabric, done)) = self.next() else {
                self.ring();
                return None;
            };
            let Self { fabric, other, pool, counts, .. } = self;
            let queue = if of_fabric { fabric } else { other };
            let length = usize::from(Length::from_bits(done.length).bytes());
            let bytes = pool.bytes(&done.buffer).get_mut(..length);
            let Some(bytes) = bytes.filter(|bytes| bytes.len() >= ethernet::HEADER) else {
                // It says what cannot be.
                counts.damaged += 1;
                offer(queue, pool, done.buffer);
                continue;
            };
            counts.received += 1;
            let marked = Status::from_bits(done.status).congestion_experienced();
            let result = sink(&mut Arrived { bytes, marked });
            offer(queue, pool, done.buffer);
            if queue.unrung() >= queue.size() / WORTH {
                queue.ring();
            }
            return Some(result);
        }
    }

    fn can_transmit(&mut self) -> bool {
        self.reclaim();
        !self.transmit.is_full() && !self.pool.is_empty()
    }

    fn transmit<T>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, T),
    ) -> Option<T> {
        if !self.can_transmit() {
            self.counts.full += 1;
            return None;
        }
        let Self { pool, transmit, .. } = self;
        let buffer = pool.take()?;
        let (length, result) = fill(&mut pool.bytes(&buffer)[..room]);
        if length == 0 {
            pool.put(buffer);
        } else {
            assert!(length <= room, "no more than there is room for");
            let length = Length::RESET.with_bytes(length as u16).bits();
            transmit.give(pool, buffer, length, Status::RESET.with_interrupt(true).bits());
            transmit.ring();
        }
        Some(result)
    }

    fn counters(&self) -> MacCounters {
        let Counts { sent, received, damaged, full, .. } = self.counts;
        let block = self.block;
        let dropped = self.dropped_fabric.at(block.dropped_fabric().read().count())
            + self.dropped_other.at(block.dropped_other().read().count());
        let damaged = damaged
            + self.errors.at(block.receive_errors().read().count())
            + self.lengths.at(block.receive_lengths().read().count());
        MacCounters { sent, received, dropped, damaged, full }
    }
}

#[cfg(test)]
mod tests;
