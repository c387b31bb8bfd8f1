//! The user side of the PCIe block (`hw/regs/card.md`, "tlp").
//!
//! One queue in each direction carries the TLPs of all slots, and what happened at them in between.
//! So nothing may wait in a queue: every TLP that comes in was granted, has a buffer in the queue
//! and waits at its slot's place; none goes out that the slot has not granted.

mod place;

use super::queue::{Buffer, Buffers, Done, Pool, Queue, Ring};
use super::timer::Timer;
use crate::board::{Happening, PcieSide, SlotWire, Windows};
use crate::waiting::{self, class_of};
use alloc::boxed::Box;
use card_regs::tlp_descriptor::{Length, Status};
use card_regs::values::{SlotEvent, TlpClass};
use card_regs::{Bits, Bus, Card};
use heapless::Deque;
use place::{Change, Place};
use proxy_core::boxes::SlotSignal;
use proxy_core::control::Name;
use proxy_core::limits::{MAX_SLOTS, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use tlp_codec::tlp::Class;

/// What happened beside TLPs and was not taken. With so much waiting nothing more is received.
const HAPPENINGS: usize = 2 * MAX_SLOTS;

/// Buffers in the receive queue beside those for granted TLPs: for events, which use none, but wait
/// for one.
pub const EVENT_BUFFERS: usize = 8;

/// Descriptors that one look takes in: all that a ring has. An event may be the last of them, and what is to be
/// sent is not to be sent before it is known.
const DESCRIPTORS_A_LOOK: usize = 256;

/// A slot's grants are at most so far ahead (`slot.receive_grant`, `slot.transmit_grant`).
const MAX_AHEAD: u8 = 128;

/// Descriptors of the block's two queues.
#[derive(Clone, Copy, Debug)]
pub struct TlpRings<R> {
    /// Of TLPs and events from the slots.
    pub receive: Ring<R>,
    /// Of TLPs to the slots.
    pub transmit: Ring<R>,
}

/// A TLP that came in.
#[derive(Debug)]
struct Stored {
    class: Class,
    buffer: Buffer,
    length: u16,
}

impl waiting::Stored for Stored {
    fn class(&self) -> Class {
        self.class
    }
}

/// What the driver counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    wrong: u64,
    malformed: u64,
    aborted: u64,
    discarded: u64,
    lost: u64,
    not_sent: u64,
    restarts: u64,
}

/// The block as a card's PCIe side.
#[derive(Debug)]
pub struct TlpPort<B, R, M> {
    timer: Timer<B>,
    pool: Pool<M>,
    receive: Queue<B, R>,
    transmit: Queue<B, R>,
    /// Those with the numbers from `first` on, which are the block's slots from 0 on.
    places: Box<[Place<B>]>,
    first: u8,
    windows: Windows,
    happenings: Deque<Happening, HAPPENINGS>,
    /// A queue may have been stopped by the hardware.
    stopped: bool,
    /// The last look may have left descriptors.
    more: bool,
    /// TLPs that left the transmit queue, and how many had when somebody asked whether it stands still.
    left: u32,
    left_before: u32,
    counts: Counts,
}

impl<B: Bus + Copy, R: Bus, M: Buffers> TlpPort<B, R, M> {
    /// The PCIe side of a host card. Its link is enabled.
    ///
    /// # Panics
    ///
    /// See [`of_box`](Self::of_box).
    pub fn of_host(card: Card<B>, rings: TlpRings<R>, memory: M, windows: Windows) -> Self {
        let slot = card.tlp().slot(0).expect("there is one");
        let places = Box::new([Place::root(slot, windows)]);
        Self::new(card, rings, memory, places, SlotWire::HOST.0, windows)
    }

    /// The PCIe side of a box card, with a slot for each of `models`, which is what a device in
    /// that slot is called. A device is given power when it is there, and is told of when its link
    /// is up for the first time.
    ///
    /// # Panics
    ///
    /// When the board's constants are wrong: more slots than the block has, windows of 0 or of more
    /// than 128 TLPs, a receive queue without room for the windows of all slots and
    /// [`EVENT_BUFFERS`], no buffers beside those, or buffers smaller than [`TLP_BUFFER`].
    pub fn of_box(
        card: Card<B>,
        rings: TlpRings<R>,
        memory: M,
        windows: Windows,
        models: impl IntoIterator<Item = Name>,
    ) -> Self {
        let slot = |index| card.tlp().slot(index).expect("the block has 16 slots");
        let models = models.into_iter().enumerate();
        let place = |(index, model)| Place::slot(slot(index), model, windows);
        let places = models.map(place).collect();
        Self::new(card, rings, memory, places, 1, windows)
    }

    fn new(
        card: Card<B>,
        rings: TlpRings<R>,
        memory: M,
        places: Box<[Place<B>]>,
        first: u8,
        windows: Windows,
    ) -> Self {
        assert!(windows.0.iter().all(|window| (1..=MAX_AHEAD).contains(window)), "1 to 128 TLPs");
        let mut pool = Pool::new(memory);
        assert!(usize::from(pool.room()) >= TLP_BUFFER, "a buffer has room for a TLP");
        let mut receive = Queue::new(card.tlp().receive(), rings.receive);
        let transmit = Queue::new(card.tlp().transmit(), rings.transmit);
        let buffers = places.len() * windows.total() + EVENT_BUFFERS;
        assert!(buffers <= receive.size().into(), "what is granted has a descriptor");
        for _ in 0..buffers {
            let buffer = pool.take().expect("what is granted has a buffer");
            offer(&mut receive, &mut pool, buffer);
        }
        assert!(!pool.is_empty(), "there are buffers for TLPs to send");
        receive.ring();
        let mut port = Self {
            timer: Timer::new(card.timer()),
            pool,
            receive,
            transmit,
            places,
            first,
            windows,
            happenings: Deque::new(),
            stopped: false,
            more: false,
            left: 0,
            left_before: 0,
            counts: Counts::default(),
        };
        let now = port.timer.now();
        port.places.iter_mut().for_each(|place| place.start(now));
        port.grant();
        port
    }

    /// Bytes of the buffers in which TLPs wait.
    pub fn packet_pool(&self) -> usize {
        self.pool.size()
    }

    /// What was counted, by name.
    pub fn counters(&self) -> [(&'static str, u64); 7] {
        let counts = self.counts;
        [
            ("pcie: descriptors that say what cannot be", counts.wrong),
            ("pcie: malformed TLPs", counts.malformed),
            ("pcie: TLPs that were cut off", counts.aborted),
            ("pcie: TLPs thrown away in a reset", counts.discarded),
            ("pcie: TLPs lost when a queue stopped", counts.lost),
            ("pcie: TLPs that were not sent", counts.not_sent),
            ("pcie: queues that stopped", counts.restarts),
        ]
    }

    /// A queue may have been stopped by the hardware, as interrupt source `queue_error` says: in the
    /// next turn it is set up anew. TLPs that were under way may be lost; they are counted.
    pub fn recover(&mut self) {
        self.stopped = true;
    }

    fn mend(&mut self) {
        if self.receive.has_failed() && self.receive.stop() {
            while !self.happenings.is_full()
                && let Some(done) = self.receive.done(&mut self.pool)
            {
                self.take_in(done);
            }
            for index in 0..self.places.len() {
                while !self.happenings.is_full()
                    && let Some(event) = self.places[index].missed()
                {
                    self.happens(index, event);
                }
            }
            if self.happenings.is_full() {
                // They are taken first; the queue stands still meanwhile.
                return;
            }
            self.counts.restarts += 1;
            for place in &mut self.places {
                self.counts.lost += place.catch_up();
            }
            self.receive.restart(&mut self.pool);
        }
        if self.transmit.has_failed() && self.transmit.stop() {
            self.counts.restarts += 1;
            self.reclaim();
            if let Some((buffer, status)) = self.transmit.withdraw(&mut self.pool) {
                self.pool.put(buffer);
                self.counts.lost += 1;
                if let Some((place, class)) = self.of_transmit(status) {
                    place.unsend(class);
                }
            }
            self.transmit.restart(&mut self.pool);
        }
        self.stopped = false;
    }

    fn place(&mut self, at: SlotWire) -> Option<&mut Place<B>> {
        let index = usize::from(at.0.checked_sub(self.first)?);
        self.places.get_mut(index)
    }

    /// The place and class of a TLP that was given to the transmit queue.
    fn of_transmit(&mut self, status: u32) -> Option<(&mut Place<B>, Class)> {
        let status = Status::from_bits(status);
        let place = self.places.get_mut(status.slot().get() as usize)?;
        Some((place, class_from(status.class())?))
    }

    /// Takes in what arrived and what was sent, and grants what there is room for.
    fn look(&mut self) {
        self.reclaim();
        self.more = true;
        for _ in 0..DESCRIPTORS_A_LOOK {
            if self.happenings.is_full() {
                break;
            }
            let Some(done) = self.receive.done(&mut self.pool) else {
                self.more = false;
                break;
            };
            self.take_in(done);
        }
        if self.stopped {
            self.mend();
        }
        if self.places.iter().any(Place::waits_for_time) {
            let now = self.timer.now();
            self.time_goes_on(now);
        }
        // Buffers first: a grant is for what has one.
        self.receive.ring();
        self.grant();
    }

    /// Does what was to be done at the places by now. What came in from one that is reset is thrown away.
    fn time_goes_on(&mut self, now: Instant) {
        let Self { places, receive, pool, counts, .. } = self;
        for place in places {
            if place.time_goes_on(now) {
                discard(place, receive, pool, counts);
            }
        }
    }

    fn grant(&mut self) {
        let windows = self.windows;
        self.places.iter_mut().for_each(|place| place.grant(windows));
    }

    fn reclaim(&mut self) {
        while let Some(done) = self.transmit.done(&mut self.pool) {
            self.left = self.left.wrapping_add(1);
            let status = Status::from_bits(done.status);
            self.counts.not_sent += u64::from(status.aborted() || status.malformed());
            self.pool.put(done.buffer);
            match self.of_transmit(done.status) {
                Some((place, _)) => place.sent_one(),
                None => self.counts.wrong += 1,
            }
        }
    }

    /// Takes in an event of a slot, for which there is room.
    fn happens(&mut self, index: usize, event: SlotEvent) {
        let Self { pool, receive, places, first, happenings, counts, timer, .. } = self;
        let place = &mut places[index];
        let Change { happening, clear, wrong } =
            place.event(event, SlotWire(*first + index as u8), timer);
        counts.wrong += u64::from(wrong);
        if clear {
            discard(place, receive, pool, counts);
        }
        if let Some(happening) = happening {
            let pushed = happenings.push_back(happening);
            assert!(pushed.is_ok(), "there was room");
        }
    }

    /// Takes in a TLP or an event.
    fn take_in(&mut self, done: Done) {
        let Self { pool, receive, places, counts, .. } = self;
        let status = Status::from_bits(done.status);
        let index = status.slot().get() as usize;
        let Some(place) = places.get_mut(index) else {
            counts.wrong += 1;
            return offer(receive, pool, done.buffer);
        };
        if status.event() != SlotEvent::None {
            offer(receive, pool, done.buffer);
            return self.happens(index, status.event());
        }
        let Some(class) = class_from(status.class()).filter(|class| place.deliver(*class)) else {
            counts.wrong += 1;
            return offer(receive, pool, done.buffer);
        };
        let length = Length::from_bits(done.length).bytes();
        let why_not = if status.aborted() {
            Some(&mut counts.aborted)
        } else if status.malformed() || length > pool.room() {
            Some(&mut counts.malformed)
        } else if place.is_in_reset() {
            Some(&mut counts.discarded)
        } else {
            None
        };
        if let Some(count) = why_not {
            *count += 1;
            place.free(class);
            return offer(receive, pool, done.buffer);
        }
        place.waiting.push(Stored { class, buffer: done.buffer, length });
    }
}

/// Offers a buffer for a TLP to come. The queue has room for all that there are.
fn offer<B: Bus + Copy, R: Bus, M: Buffers>(
    queue: &mut Queue<B, R>,
    pool: &mut Pool<M>,
    buffer: Buffer,
) {
    let length = Length::RESET.with_room(pool.room()).bits();
    queue.give(pool, buffer, length, Status::RESET.bits());
}

/// Throws away what came in at a place.
fn discard<B: Bus + Copy, R: Bus, M: Buffers>(
    place: &mut Place<B>,
    receive: &mut Queue<B, R>,
    pool: &mut Pool<M>,
    counts: &mut Counts,
) {
    while let Some(stored) = place.waiting.pop() {
        counts.discarded += 1;
        place.free(stored.class);
        offer(receive, pool, stored.buffer);
    }
}

fn class_from(class: TlpClass) -> Option<Class> {
    match class {
        TlpClass::Posted => Some(Class::Posted),
        TlpClass::NonPosted => Some(Class::NonPosted),
        TlpClass::Completion => Some(Class::Completion),
        TlpClass::Unknown(_) => None,
    }
}

fn class_bits(class: Class) -> TlpClass {
    match class {
        Class::Posted => TlpClass::Posted,
        Class::NonPosted => TlpClass::NonPosted,
        Class::Completion => TlpClass::Completion,
    }
}

impl<B: Bus + Copy, R: Bus, M: Buffers> PcieSide for TlpPort<B, R, M> {
    fn happening(&mut self) -> Option<Happening> {
        self.look();
        self.happenings.pop_front()
    }

    fn has_more(&self) -> bool {
        self.more || self.stopped || self.places.iter().any(Place::holds_reset)
    }

    fn next(&mut self, at: SlotWire, of: ClassSet) -> Option<&[u8]> {
        let index = usize::from(at.0.checked_sub(self.first)?);
        let place = self.places.get_mut(index)?;
        let (index, stored) = place.waiting.first_of(of)?;
        let bytes = self.pool.bytes(&stored.buffer);
        let tlp = &bytes[..usize::from(stored.length)];
        place.given = index;
        Some(tlp)
    }

    fn take(&mut self, at: SlotWire) {
        let Some(place) = self.place(at) else { return };
        let Some(stored) = place.waiting.take(place.given) else { return };
        place.free(stored.class);
        offer(&mut self.receive, &mut self.pool, stored.buffer);
    }

    fn room(&mut self, at: SlotWire) -> ClassSet {
        self.reclaim();
        if self.transmit.is_full() || self.pool.is_empty() {
            return ClassSet::NONE;
        }
        self.place(at).map_or(ClassSet::NONE, Place::room)
    }

    fn send_with(&mut self, at: SlotWire, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let buffer = self.pool.take().expect("there was room");
        let bytes = self.pool.bytes(&buffer);
        let Some(length) = write(&mut bytes[..TLP_BUFFER]) else {
            self.pool.put(buffer);
            return false;
        };
        let class = class_of(&bytes[..length]);
        let index = at.0 - self.first;
        self.place(at).expect("a place with room").send(class);
        let Self { pool, transmit, .. } = self;
        let slot = Bits::new(index.into()).expect("a place is a slot");
        let status = Status::RESET.with_slot(slot).with_class(class_bits(class));
        let status = status.with_interrupt(true);
        let length = Length::RESET.with_bytes(length as u16);
        transmit.give(pool, buffer, length.bits(), status.bits());
        transmit.ring();
        true
    }

    /// One signal waits for the TLPs that are on their way there, since the block drives a slot's wires
    /// at once. It keeps further ones from going there, so that its turn comes.
    fn can_signal(&mut self, at: SlotWire) -> bool {
        self.place(at).is_some_and(|place| place.signal.is_none())
    }

    fn signal(&mut self, at: SlotWire, signal: SlotSignal) {
        self.reclaim();
        let Some(place) = self.place(at) else { return };
        let before = place.signal.replace(signal);
        assert!(before.is_none(), "who signals has looked");
        let now = self.timer.now();
        self.time_goes_on(now);
    }

    /// No TLP is in the transmit queue that its slot has not granted, so none waits there for anybody;
    /// a queue that has stopped is started again by the next look, if it lets itself be.
    fn stands_still(&mut self) -> bool {
        self.reclaim();
        let before = core::mem::replace(&mut self.left_before, self.left);
        let keeps = self.transmit.level() > 0 && self.left == before;
        keeps || self.receive.has_failed() || self.transmit.has_failed()
    }
}

#[cfg(test)]
mod tests;
