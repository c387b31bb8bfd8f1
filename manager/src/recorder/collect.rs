//! What one reader keeps of what one proxy recorded.

use super::clock::{Anchor, Clock};
use super::tap::Piece;
use proxy_core::control::StampEntry;
use proxy_core::limits::MAX_FRAME;
use proxy_core::recorder::{Entry, Recorded};
use std::collections::HashMap;
use tlp_codec::fabric::{Frame, FrameWriter, Record};
use tlp_codec::ids::{BindingKey, PathId};

/// Bytes of memory that an entry takes beside those that were kept with it.
const ENTRY: usize = 128;

/// A TLP that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTlp {
    /// What joins it with its stamps.
    pub id: u32,
    /// Bytes of the whole TLP.
    pub length: u16,
    /// What it is, and its stamps so far.
    pub stamps: StampEntry,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// A frame that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFrame {
    /// When, by the proxy's clock, nanoseconds.
    pub at: u64,
    /// Whether the proxy received it.
    pub received: bool,
    /// The binding whose records are in it.
    pub binding: BindingKey,
    /// The path.
    pub path: PathId,
    /// Bytes of the whole frame.
    pub length: u16,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Entries that are missing before it.
    pub lost_before: u64,
}

/// What one proxy recorded of the bindings that somebody wanted.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    wanted: Vec<Recorded>,
    /// TLPs, in the order of recording.
    pub tlps: Vec<KeptTlp>,
    /// Stamps of whole TLPs, in the order of recording, by the ids of [`KeptTlp`].
    pub stamps: Vec<(u32, StampEntry)>,
    /// Frames, in the order of recording.
    pub frames: Vec<KeptFrame>,
    /// Entries that the proxy lost for lack of room. It does not know of which binding.
    pub lost: u64,
    /// Bytes of memory that all of it takes, about.
    pub bytes: usize,
    /// The proxy's clock.
    pub clock: Clock,
    requests: HashMap<BindingKey, (u64, u64)>,
    lost_before: u64,
}

impl Collected {
    /// Nothing yet of what is wanted. Both ends' are dated from the same time.
    pub fn new(wanted: Vec<Recorded>, anchor: Anchor) -> Self {
        Self { wanted, clock: Clock::new(anchor), ..Self::default() }
    }

    /// Whether no piece can have anything for it.
    pub fn wants_nothing(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Takes what is wanted of a piece.
    pub fn take(&mut self, piece: &Piece) {
        self.clock.take(&piece.clock);
        for (peer, binding, count) in &piece.requests {
            if self.wanted.iter().any(|r| r.peer == *peer && r.binding == *binding) {
                self.requests.entry(*binding).or_insert((*count, *count)).1 = *count;
            }
        }
        for (entry, bytes) in &piece.entries {
            self.entry(entry, bytes);
        }
    }

    fn entry(&mut self, entry: &Entry, bytes: &[u8]) {
        let wanted = |peer, binding| {
            self.wanted.iter().find(|r| r.peer == peer && r.binding == binding).copied()
        };
        let cut = |snap: u16| bytes[..bytes.len().min(snap.into())].to_vec();
        match entry {
            Entry::Tlp { id, length, stamps } => {
                let Some(r) = wanted(stamps.peer, stamps.binding) else { return };
                if r.tlps > 0 {
                    let (bytes, stamps) = (cut(r.tlps), stamps.clone());
                    self.bytes += ENTRY + bytes.len();
                    self.tlps.push(KeptTlp { id: *id, length: *length, stamps, bytes });
                }
            }
            Entry::Stamps { id, stamps } => {
                let Some(r) = wanted(stamps.peer, stamps.binding) else { return };
                if r.one_in > 0 {
                    self.bytes += ENTRY;
                    self.stamps.push((*id, stamps.clone()));
                }
            }
            Entry::Frame { at, received, peer, binding, path, length } => {
                let Some(r) = wanted(*peer, *binding) else { return };
                // A proxy may say anything.
                let is_frame = (bytes.len()..=MAX_FRAME).contains(&usize::from(*length));
                if r.frames > 0 && is_frame {
                    let frame = KeptFrame {
                        at: *at,
                        received: *received,
                        binding: *binding,
                        path: *path,
                        length: *length,
                        bytes: cut(r.frames),
                        lost_before: 0,
                    };
                    self.frame(frame);
                }
            }
            // Others lost it.
            Entry::Lost { .. } if self.wants_nothing() => {}
            Entry::Lost { entries } => {
                // A proxy may say anything.
                self.lost = self.lost.saturating_add(*entries);
                self.lost_before = self.lost_before.saturating_add(*entries);
            }
        }
    }

    /// Keeps a frame. A proxy records it once for each function that has records in it, with those of
    /// the others left out: what is of one device is put together again, unless it was cut.
    fn frame(&mut self, frame: KeptFrame) {
        if let Some(last) = self.frames.last_mut()
            && let Some(whole) = together(last, &frame)
        {
            self.bytes = self.bytes + whole.len() - last.bytes.len();
            (last.length, last.bytes) = (whole.len() as u16, whole);
            return;
        }
        self.bytes += ENTRY + frame.bytes.len();
        let lost_before = std::mem::take(&mut self.lost_before);
        self.frames.push(KeptFrame { lost_before, ..frame });
    }

    /// Requests that the proxy sent of a binding between the first and the last piece.
    pub fn requests(&self, binding: &BindingKey) -> u64 {
        self.requests.get(binding).map_or(0, |(first, last)| last.saturating_sub(*first))
    }

    /// The date of a time of this proxy, nanoseconds since 1970-01-01T00:00:00Z.
    pub fn date(&self, time: u64) -> u64 {
        self.clock.date(time)
    }
}

/// One frame from two that have some of its records each; nothing if they are of different ones, or not
/// whole.
fn together(one: &KeptFrame, other: &KeptFrame) -> Option<Vec<u8>> {
    let place = |frame: &KeptFrame| (frame.at, frame.received, frame.path);
    if place(one) != place(other) || one.binding == other.binding {
        return None;
    }
    let [one, other] = [one, other].map(|frame| Frame::new_checked(&frame.bytes[..]).ok());
    let (one, other) = (one?, other?);
    if one.header() != other.header() {
        return None;
    }
    let mut whole = vec![0; MAX_FRAME];
    let mut writer = FrameWriter::new(&mut whole, &one.header()).ok()?;
    let mut others = other.records();
    for record in one.records() {
        let (record, other) = (record.ok()?, others.next()?.ok()?);
        writer.push(if record == Record::Nop { &other } else { &record }).ok()?;
    }
    let length = writer.finish();
    whole.truncate(length);
    others.next().is_none().then_some(whole)
}

#[cfg(test)]
mod tests;
