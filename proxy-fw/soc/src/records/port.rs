//! One end of the wire.

use super::format::{Beside, Body, HEADER, LONGEST, Record, VERSION};
use crate::board::{EthernetMac, Happening, PcieSide, SlotWire, Windows};
use crate::ethernet;
use crate::waiting::{self, Waiting, class_of};
use alloc::boxed::Box;
use alloc::vec::Vec;
use heapless::Deque;
use proxy_core::boxes::SlotSignal;
use proxy_core::config_space::ResetKind;
use proxy_core::limits::{MAX_SLOTS, TLP_BUFFER};
use proxy_core::link::ClassSet;
use tlp_codec::tlp::Class;

/// EtherType of a record's frame: IEEE 802, local experimental EtherType 2.
const ETHERTYPE: u16 = 0x88b6;

/// What happened beside TLPs and was not taken. With so much waiting nothing more is received.
const BESIDES: usize = 2 * MAX_SLOTS;

/// Records that one look takes in.
const RECORDS_A_LOOK: usize = 16;

/// A grant waits until it is worth a record: this part of the window.
const WORTH: u32 = 2;

/// A TLP that came in.
#[derive(Clone, Copy, Debug)]
struct Stored {
    class: Class,
    /// Its buffer.
    buffer: u8,
    length: u16,
}

impl waiting::Stored for Stored {
    fn class(&self) -> Class {
        self.class
    }
}

/// What an end knows of a place.
struct Place {
    /// TLPs sent, and how many may have been, by class.
    sent: [u32; 3],
    limits: [u32; 3],
    /// TLPs that came.
    received: [u32; 3],
    /// TLPs that were taken away, and how many the other end was told it may have sent.
    freed: [u32; 3],
    granted: [u32; 3],
    stored: Waiting<Stored>,
    buffers: Box<[[u8; TLP_BUFFER]]>,
    free: Vec<u8>,
    /// Which one was given last.
    given: usize,
}

impl Place {
    fn new(windows: Windows) -> Self {
        let count = windows.total();
        assert!((1..u8::MAX as usize).contains(&count), "buffers are numbered with 8 bits");
        let mut place = Self {
            sent: [0; 3],
            limits: [0; 3],
            received: [0; 3],
            freed: [0; 3],
            granted: [0; 3],
            stored: Waiting::new(windows),
            buffers: alloc::vec![[0; TLP_BUFFER]; count].into_boxed_slice(),
            free: Vec::with_capacity(count),
            given: 0,
        };
        place.begin();
        place
    }

    /// Bytes of its buffers.
    fn packet_pool(&self) -> usize {
        size_of_val(&*self.buffers)
    }

    /// As after hello.
    fn begin(&mut self) {
        for counts in [&mut self.sent, &mut self.limits, &mut self.received] {
            *counts = [0; 3];
        }
        (self.freed, self.granted) = ([0; 3], [0; 3]);
        self.stored.clear();
        self.free.clear();
        self.free.extend(0..self.buffers.len() as u8);
    }

    /// Stores a TLP; false: it came without a grant.
    fn store(&mut self, tlp: &[u8]) -> bool {
        let class = class_of(tlp);
        let received = &mut self.received[class as usize];
        if *received == self.granted[class as usize] {
            return false;
        }
        *received = received.wrapping_add(1);
        let buffer = self.free.pop().expect("what is granted has a buffer");
        self.buffers[usize::from(buffer)][..tlp.len()].copy_from_slice(tlp);
        self.stored.push(Stored { class, buffer, length: tlp.len() as u16 });
        true
    }

    fn take(&mut self, index: usize) {
        if let Some(taken) = self.stored.take(index) {
            self.give_back(taken);
        }
    }

    /// Drops what came in and was not taken.
    fn drop_stored(&mut self) {
        while let Some(taken) = self.stored.pop() {
            self.give_back(taken);
        }
    }

    fn give_back(&mut self, taken: Stored) {
        assert!(self.free.len() < self.buffers.len(), "there are no more buffers");
        self.free.push(taken.buffer);
        let class = taken.class as usize;
        self.freed[class] = self.freed[class].wrapping_add(1);
    }

    /// The grant that the other end should hear of.
    fn grant(&self, windows: Windows) -> Option<[u32; 3]> {
        let mut grant = [0; 3];
        let mut worth = false;
        for (class, granted) in grant.iter_mut().enumerate() {
            let window = u32::from(windows.0[class]);
            *granted = self.freed[class].wrapping_add(window);
            let more = granted.wrapping_sub(self.granted[class]);
            worth |= more >= (window / WORTH).max(1);
        }
        worth.then_some(grant)
    }
}

/// What an end counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    wrong: u64,
    ungranted: u64,
    hellos: u64,
}

/// One end of the wire: what is on the card beside the role, or a model beside an emulated card.
pub struct RecordPort<M> {
    mac: M,
    windows: Windows,
    /// Those with the numbers from `first` on.
    places: Box<[Place]>,
    first: u8,
    beside: Deque<(SlotWire, Beside), BESIDES>,
    /// Places, by bit, with a device or a root complex as far as it was handed out: what still waits
    /// ends with a hello, and is never told. And those whose was there when the other end began anew.
    present: u32,
    gone: u32,
    /// A hello is to be said, as an answer or by itself.
    hello: Option<bool>,
    /// The other end has said hello.
    met: bool,
    /// Places, by index, where buffers were given back since the last grant.
    owed: u32,
    /// The last look may have left records.
    more: bool,
    /// Frames that had been sent when somebody asked whether it stands still.
    sent_before: u64,
    counts: Counts,
}

impl<M: EthernetMac> RecordPort<M> {
    /// An end with places of these numbers. It says hello by itself.
    ///
    /// # Panics
    ///
    /// When there are more places than slots, or more than 254 buffers in a place.
    pub fn new(mac: M, places: core::ops::RangeInclusive<u8>, windows: Windows) -> Self {
        let first = *places.start();
        assert!(places.clone().count() <= MAX_SLOTS, "no more places than slots");
        Self {
            mac,
            windows,
            places: places.map(|_| Place::new(windows)).collect(),
            first,
            beside: Deque::new(),
            present: 0,
            gone: 0,
            hello: Some(false),
            met: false,
            owed: 0,
            more: false,
            sent_before: 0,
            counts: Counts::default(),
        }
    }

    /// Whether the other end is there.
    pub fn is_met(&self) -> bool {
        self.met
    }

    /// Times that the other end began: another number means that it knows nothing of before.
    pub fn meetings(&self) -> u64 {
        self.counts.hellos
    }

    /// Bytes of the buffers in which TLPs wait here.
    pub fn packet_pool(&self) -> usize {
        self.places.iter().map(Place::packet_pool).sum()
    }

    /// What was counted, by name.
    pub fn counters(&self) -> [(&'static str, u64); 3] {
        let counts = self.counts;
        [
            ("records: frames that are no record", counts.wrong),
            ("records: TLPs that came without a grant", counts.ungranted),
            ("records: times that the other end began", counts.hellos),
        ]
    }

    /// The network that the records travel on.
    pub fn mac(&mut self) -> &mut M {
        &mut self.mac
    }

    fn place(&mut self, at: SlotWire) -> Option<&mut Place> {
        let index = usize::from(at.0.checked_sub(self.first)?);
        self.places.get_mut(index)
    }

    /// Takes in what arrived, and says what the other end should know. To be called in every turn.
    pub fn look(&mut self) {
        let taken = (0..RECORDS_A_LOOK).find(|_| self.beside.is_full() || !self.receive());
        self.more = taken.is_none() || self.beside.is_full();
        if let Some(answer) = self.hello
            && self.say(SlotWire::HOST, Body::Hello { version: VERSION, answer })
        {
            self.hello = None;
        }
        if self.met && self.hello.is_none() {
            self.grant();
        }
    }

    fn grant(&mut self) {
        let mut owed = self.owed;
        while owed != 0 {
            let index = owed.trailing_zeros() as usize;
            owed &= owed - 1;
            if let Some(limits) = self.places[index].grant(self.windows) {
                if !self.say(SlotWire(self.first + index as u8), Body::Room(limits)) {
                    return;
                }
                self.places[index].granted = limits;
            }
            self.owed &= !(1 << index);
        }
    }

    /// Takes in a frame. Whether there was one.
    fn receive(&mut self) -> bool {
        let Self { mac, places, first, beside, present, gone, hello, met, owed, counts, .. } = self;
        let index_of = |at: SlotWire| at.0.checked_sub(*first).map(usize::from);
        let received = mac.receive(|arrived| {
            let record = record_in(arrived.bytes);
            if let Some((at, tlp)) = record.and_then(Record::parse_tlp) {
                match index_of(at).and_then(|index| places.get_mut(index)).filter(|_| *met) {
                    Some(place) => counts.ungranted += u64::from(!place.store(tlp)),
                    None => counts.wrong += 1,
                }
                return;
            }
            let Some(record) = record.and_then(|record| Record::parse(record).ok()) else {
                counts.wrong += 1;
                return;
            };
            if let Body::Hello { version, answer } = record.body {
                if version != VERSION {
                    counts.wrong += 1;
                } else if !(answer && *met) {
                    // Everything begins anew, for both.
                    places.iter_mut().for_each(Place::begin);
                    *owed = u32::MAX >> (u32::BITS - places.len() as u32);
                    beside.clear();
                    (*gone, *present) = (*gone | *present, 0);
                    *hello = (!answer).then_some(true);
                    *met = true;
                    counts.hellos += 1;
                }
                return;
            }
            let index = index_of(record.at);
            let Some(place) = index.and_then(|index| places.get_mut(index)).filter(|_| *met) else {
                counts.wrong += 1;
                return;
            };
            match record.body {
                Body::Room(limits) => place.limits = limits,
                Body::Beside(what) => {
                    if ends_all(&what) {
                        // Nobody is told of it behind what it ends.
                        place.drop_stored();
                        *owed |= 1 << (record.at.0 - *first);
                    }
                    // Not with expect: that takes what turns names into text.
                    let pushed = beside.push_back((record.at, what));
                    assert!(pushed.is_ok(), "there was room");
                }
                Body::Tlp(_) | Body::Hello { .. } => unreachable!("it was looked at"),
            }
        });
        received.is_some()
    }

    /// Sends a record, if there is room.
    pub fn say(&mut self, at: SlotWire, body: Body<'_>) -> bool {
        let record = Record { at, body };
        self.transmit(|room| Some(record.emit(room)))
    }

    /// Sends the record that `write` writes, if there is room, and something was.
    fn transmit(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let own = self.mac.address();
        let sent = self.mac.transmit(ethernet::HEADER + LONGEST, |room| {
            let (header, room) = room.split_at_mut(ethernet::HEADER);
            let Some(length) = write(room) else { return (0, false) };
            // There is one other end: everybody is it.
            header[..6].fill(0xff);
            header[6..12].copy_from_slice(&own);
            header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
            (ethernet::HEADER + length, true)
        });
        sent == Some(true)
    }

    /// What happened beside TLPs, as it was said.
    pub fn beside(&mut self) -> Option<(SlotWire, Beside)> {
        let (at, what) = self.beside.pop_front()?;
        match what {
            Beside::Inserted(_) | Beside::RootComplex(true) => self.present |= 1 << at.0,
            Beside::Removed | Beside::RootComplex(false) => self.present &= !(1 << at.0),
            Beside::Reset(_) => {}
        }
        Some((at, what))
    }

    /// A place whose device or root complex was there when the other end began anew.
    fn lost(&mut self) -> Option<SlotWire> {
        let at = self.gone.trailing_zeros();
        self.gone &= self.gone.wrapping_sub(1);
        (at < u32::BITS).then_some(SlotWire(at as u8))
    }
}

/// Whether what came in before it means nothing any more.
fn ends_all(what: &Beside) -> bool {
    match what {
        Beside::Inserted(_) | Beside::RootComplex(true) => false,
        Beside::Reset(SlotSignal::Perst { asserted }) => *asserted,
        Beside::Reset(SlotSignal::HotReset) | Beside::Removed | Beside::RootComplex(false) => true,
    }
}

/// What a frame carries, if it is one of records.
fn record_in(frame: &[u8]) -> Option<&[u8]> {
    let (header, rest) = frame.split_first_chunk::<{ ethernet::HEADER }>()?;
    (header[12..] == ETHERTYPE.to_be_bytes()).then_some(rest)
}

impl<M: EthernetMac> PcieSide for RecordPort<M> {
    fn happening(&mut self) -> Option<Happening> {
        self.look();
        if let Some(at) = self.lost() {
            let root = at == SlotWire::HOST;
            return Some(if root { Happening::RootComplex(false) } else { Happening::Removed(at) });
        }
        loop {
            let (at, beside) = self.beside()?;
            return Some(match beside {
                Beside::Inserted(model) => Happening::Inserted(at, model),
                Beside::Removed => Happening::Removed(at),
                Beside::RootComplex(present) => Happening::RootComplex(present),
                Beside::Reset(SlotSignal::HotReset) => Happening::Reset(ResetKind::Hot),
                Beside::Reset(SlotSignal::Perst { asserted: true }) => {
                    Happening::Reset(ResetKind::Fundamental)
                }
                // The role was reset when it was asserted.
                Beside::Reset(SlotSignal::Perst { asserted: false }) => continue,
            });
        }
    }

    fn has_more(&self) -> bool {
        self.more
    }

    fn next(&mut self, at: SlotWire, of: ClassSet) -> Option<&[u8]> {
        let place = self.place(at)?;
        let (index, stored) = place.stored.first_of(of)?;
        place.given = index;
        Some(&place.buffers[usize::from(stored.buffer)][..usize::from(stored.length)])
    }

    fn take(&mut self, at: SlotWire) {
        if let Some(place) = self.place(at) {
            place.take(place.given);
            self.owed |= 1 << (at.0 - self.first);
        }
    }

    fn room(&mut self, at: SlotWire) -> ClassSet {
        if !self.mac.can_transmit() || !self.met {
            return ClassSet::NONE;
        }
        let Some(place) = self.place(at) else { return ClassSet::NONE };
        let open = |class: &Class| place.sent[*class as usize] != place.limits[*class as usize];
        Class::ALL.into_iter().filter(open).collect()
    }

    fn send_with(&mut self, at: SlotWire, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let mut class = None;
        let sent = self.transmit(|room| {
            let (header, tlp) = room.split_first_chunk_mut().expect("there is room");
            let length = write(tlp)?;
            class = Some(class_of(&tlp[..length]));
            Record::emit_tlp_header(at, length, header);
            Some(HEADER + length)
        });
        if let Some(class) = class.filter(|_| sent) {
            let place = self.place(at).expect("a place with room");
            let sent = &mut place.sent[class as usize];
            *sent = sent.wrapping_add(1);
        }
        sent
    }

    fn can_signal(&mut self, _at: SlotWire) -> bool {
        self.mac.can_transmit()
    }

    fn signal(&mut self, at: SlotWire, signal: SlotSignal) {
        let said = self.say(at, Body::Beside(Beside::Reset(signal)));
        assert!(said, "there was room");
        let Some(place) = self.place(at) else { return };
        place.drop_stored();
        self.owed |= 1 << (at.0 - self.first);
    }

    /// A wire that has a partner and takes nothing: TLPs on it were granted, and it is no place for
    /// others to wait.
    fn stands_still(&mut self) -> bool {
        let sent = self.mac.counters().sent;
        let before = core::mem::replace(&mut self.sent_before, sent);
        sent == before && self.mac.link_is_up() && !self.mac.can_transmit()
    }
}

const _: () = assert!(HEADER + TLP_BUFFER == LONGEST);

#[cfg(test)]
mod tests;
