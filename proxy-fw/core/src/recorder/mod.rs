//! The flight recorder: what bindings do, kept while they do it.
//!
//! The manager says which bindings are recorded and what of them ([`Recorded`]): the stage stamps
//! of their TLPs, the bytes of those TLPs, the frames that carry their records. Each becomes an
//! [`Entry`] in a ring of bytes, which the manager reads by position
//! ([`Request::ReadRecorder`](crate::control::Request::ReadRecorder)). Reading from a position
//! frees what is before it, so a page that got lost on its way can be asked for again. When the
//! ring is full, entries that are new are lost, and counted; an entry says so where they are
//! missing.
//!
//! **Frames are cut.** A frame may carry records of several bindings, and whoever may see one may
//! not see the others: they are replaced by NOP records, which take a link sequence as they did,
//! and the frame gets the length and CRC that it then has. That others sent records beside this
//! binding's, and how many, can be seen; how long they were, and what they said, cannot.
//!
//! **Off costs nothing.** TLPs are recorded where they are stamped, which only happens to sampled
//! ones; a request asks one flag more whether it is sampled, and a frame one flag whether it is
//! recorded.

mod ring;
#[cfg(all(test, any(not(dxpu_limits = "card"), feature = "card-recorder")))]
mod tests;

use crate::control::{RecorderPage, StampEntry};
use crate::limits::{HAS_RECORDER, MAX_RECORDED, RECORDED_FRAME};
use crate::stamps::{StampKey, StampRecord};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use heapless::Vec;
use ring::Ring;
use serde::{Deserialize, Serialize};
use tlp_codec::fabric::{Frame, FrameKind, FrameWriter, Full, Record};
use tlp_codec::ids::{BindingKey, NodeId, PathId};

/// One binding that is recorded, and what of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The other end's node.
    pub peer: NodeId,
    /// The binding.
    pub binding: BindingKey,
    /// One request of this end in so many is stamped, with its completions, at both ends; 0: none
    /// because of this.
    pub one_in: u32,
    /// Bytes that are kept of each stamped TLP, those that the other end had stamped among them;
    /// 0: only its stamps.
    pub tlps: u16,
    /// Bytes that are kept of each frame with a record of the binding; 0: no frames.
    pub frames: u16,
}

/// What stands in the recorder. In a page each entry is its length in bytes (16 bits,
/// little-endian) and so many bytes: this, as in a message, and of a TLP or frame the bytes that
/// were kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A stamped TLP was put into its first frame, or was taken from the link to be handed to the
    /// PCIe side. Its bytes follow, as they were on the wire.
    Tlp {
        /// Joins it with its [`Entry::Stamps`] at this proxy.
        id: u32,
        /// Bytes of the whole TLP.
        length: u16,
        /// What it is, and its stamps so far.
        stamps: StampEntry,
    },
    /// All stamps that this end takes of a TLP: it left in a frame, or the PCIe side has it.
    Stamps {
        /// See [`Entry::Tlp`].
        id: u32,
        /// What it is, and its stamps.
        stamps: StampEntry,
    },
    /// A frame with a record of the binding left or came. Its bytes follow, with the records of
    /// other bindings replaced by NOP records.
    Frame {
        /// When, nanoseconds by the proxy's clock.
        at: u64,
        /// Whether it came.
        received: bool,
        /// The other end's node.
        peer: NodeId,
        /// The binding.
        binding: BindingKey,
        /// The path.
        path: PathId,
        /// Bytes of the whole frame, after the others' records were replaced.
        length: u16,
    },
    /// Entries are missing here, because there was no room for them.
    Lost {
        /// How many.
        entries: u64,
    },
}

/// The entries of a page, each with the bytes that were kept with it.
pub fn entries(page: &[u8]) -> Entries<'_> {
    Entries { rest: page }
}

/// See [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

/// A page has something that is no entry, or is cut short; what follows cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnEntry;

impl fmt::Display for NotAnEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was recorded does not decode")
    }
}

impl core::error::Error for NotAnEntry {}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(Entry, &'a [u8]), NotAnEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let (length, behind) = bytes
            .split_first_chunk()
            .map_or((u16::MAX, &[][..]), |(l, b)| (u16::from_le_bytes(*l), b));
        let Some((entry, rest)) = behind.split_at_checked(length.into()) else {
            return Some(Err(NotAnEntry));
        };
        let Ok(found) = postcard::take_from_bytes(entry) else { return Some(Err(NotAnEntry)) };
        self.rest = rest;
        Some(Ok(found))
    }
}

struct Listed {
    what: Recorded,
    countdown: u32,
    requests: u64,
}

/// Bindings that there is room for in the list.
const LISTED: usize = if HAS_RECORDER { MAX_RECORDED } else { 0 };

/// The recorder of one proxy.
pub struct Recorder {
    list: Vec<Listed, LISTED>,
    stamping: bool,
    framing: bool,
    ring: Ring,
    /// For the frame that is cut.
    scratch: Box<[u8]>,
}

impl Recorder {
    /// With a ring of so many bytes; with none, or where there is no recorder
    /// ([`HAS_RECORDER`]), it records nothing.
    pub fn new(bytes: usize) -> Self {
        let bytes = if HAS_RECORDER { bytes } else { 0 };
        let scratch = if bytes == 0 { 0 } else { RECORDED_FRAME };
        Self {
            list: Vec::new(),
            stamping: false,
            framing: false,
            ring: Ring::new(bytes),
            scratch: vec![0; scratch].into_boxed_slice(),
        }
    }

    /// Bytes that it has taken.
    pub(crate) fn allocated(&self) -> usize {
        self.ring.size() + self.scratch.len()
    }

    /// Whether it can record anything.
    pub fn has_room(&self) -> bool {
        HAS_RECORDER && !self.scratch.is_empty()
    }

    /// Entries that were lost for lack of room.
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// Records these bindings from now on and no others. What was recorded stays until it is
    /// read; the requests that were counted of a binding that stays are counted on.
    pub fn set(&mut self, list: &[Recorded]) {
        if !self.has_room() {
            return;
        }
        let mut before = core::mem::take(&mut self.list);
        if before.is_empty() {
            // Whoever wanted what is left in the ring is gone.
            self.ring.clear();
        }
        for what in list {
            let same = |l: &&mut Listed| (l.what.peer, l.what.binding) == (what.peer, what.binding);
            let known = before.iter_mut().find(same);
            // The first one is sampled, so that a device that asks little is seen, too; and nobody
            // who wants more of them waits for as long as somebody who wanted fewer.
            let (countdown, requests) =
                known.map_or((1, 0), |l| (l.countdown.min(what.one_in.max(1)), l.requests));
            let listed = Listed { what: *what, countdown, requests };
            if self.list.push(listed).is_err() {
                break;
            }
        }
        self.stamping = self.list.iter().any(|l| l.what.one_in > 0 || l.what.tlps > 0);
        self.framing = self.list.iter().any(|l| l.what.frames > 0);
    }

    /// Records nothing any more and forgets what was not read.
    pub fn stop(&mut self) {
        self.set(&[]);
        self.ring.clear();
    }

    /// Whether stamps are recorded.
    #[inline]
    pub fn wants_stamps(&self) -> bool {
        HAS_RECORDER && self.stamping
    }

    /// Whether frames are recorded.
    #[inline]
    pub fn wants_frames(&self) -> bool {
        HAS_RECORDER && self.framing
    }

    fn listed(&mut self, peer: NodeId, binding: BindingKey) -> Option<&mut Listed> {
        self.list.iter_mut().find(|l| l.what.binding == binding && l.what.peer == peer)
    }

    /// Whether a request of this end is to be stamped because of its binding. Counts it.
    #[cold]
    #[inline(never)]
    pub fn sample(&mut self, key: &StampKey) -> bool {
        let Some(listed) = self.listed(key.peer, key.binding) else { return false };
        listed.requests += 1;
        if listed.what.one_in == 0 {
            return false;
        }
        if listed.countdown == 0 {
            listed.countdown = listed.what.one_in;
        }
        listed.countdown -= 1;
        listed.countdown == 0
    }

    /// A stamped TLP is sent, or is taken from the link.
    #[cold]
    #[inline(never)]
    pub(crate) fn tlp(&mut self, id: u32, record: &StampRecord, tlp: &[u8]) {
        let Some(listed) = self.listed(record.key.peer, record.key.binding) else { return };
        let kept = tlp.len().min(listed.what.tlps.into());
        if kept > 0 {
            let (length, stamps) = (tlp.len() as u16, record.entry());
            self.ring.push(&Entry::Tlp { id, length, stamps }, &tlp[..kept]);
        }
    }

    /// A TLP has all its stamps of this end.
    #[cold]
    #[inline(never)]
    pub(crate) fn stamps(&mut self, id: u32, record: &StampRecord) {
        if self.listed(record.key.peer, record.key.binding).is_some() {
            self.ring.push(&Entry::Stamps { id, stamps: record.entry() }, &[]);
        }
    }

    /// Something that was to be recorded was forgotten before it could be.
    #[cold]
    #[inline(never)]
    pub(crate) fn lose(&mut self) {
        self.ring.lose();
    }

    /// A frame left for a peer or came from it. `from_host` says whether its sender is a host.
    #[cold]
    #[inline(never)]
    pub fn frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        received: bool,
        from_host: bool,
        frame: &Frame<&[u8]>,
    ) {
        for listed in &self.list {
            let Recorded { binding, frames, .. } = listed.what;
            if frames == 0 || listed.what.peer != peer {
                continue;
            }
            let most = frame.size().min(frames.into());
            if !self.ring.has_room(most) {
                // It is not cut for nothing.
                if has_any_of(frame, &binding, from_host) {
                    self.ring.lose();
                }
                continue;
            }
            match cut(frame, &binding, from_host, &mut self.scratch) {
                Ok(Some(length)) => {
                    let (at, path) = (now.as_nanos(), frame.header().path);
                    let kept = length.min(frames.into());
                    let length = length as u16;
                    let entry = Entry::Frame { at, received, peer, binding, path, length };
                    self.ring.push(&entry, &self.scratch[..kept]);
                }
                Ok(None) => {}
                Err(Full) => self.ring.lose(),
            }
        }
    }

    /// As [`frame`](Self::frame), of the bytes of a frame that this end made.
    #[cold]
    #[inline(never)]
    pub(crate) fn sent_frame(&mut self, now: Instant, peer: NodeId, from_host: bool, bytes: &[u8]) {
        let Ok(frame) = Frame::new_checked(bytes) else {
            unreachable!("this end makes right frames")
        };
        self.frame(now, peer, false, from_host, &frame);
    }

    /// What stands from a position on, as much as fits a page. What is before it is forgotten.
    pub fn read(&mut self, from: u64, now: Instant) -> RecorderPage {
        let bytes = if HAS_RECORDER {
            self.ring.free(from);
            self.ring.tell_missing();
            self.ring.page()
        } else {
            Vec::new()
        };
        RecorderPage {
            first: self.ring.head(),
            end: self.ring.tail(),
            lost: self.ring.lost(),
            now: now.as_nanos(),
            requests: self.list.iter().map(|l| l.requests).collect(),
            bytes,
        }
    }
}

/// Writes a frame once more with the records of one binding, and NOP records in place of others;
/// its length. `None` when it has none of that binding.
fn cut(
    frame: &Frame<&[u8]>,
    binding: &BindingKey,
    from_host: bool,
    out: &mut [u8],
) -> Result<Option<usize>, Full> {
    if !has_any_of(frame, binding, from_host) {
        return Ok(None);
    }
    let mut writer = FrameWriter::new(out, &frame.header())?;
    for record in records(frame) {
        let mine = is_of(&record, binding, from_host);
        writer.push(if mine { &record } else { &Record::Nop })?;
    }
    Ok(Some(writer.finish()))
}

/// Whether a frame has any record of a binding.
fn has_any_of(frame: &Frame<&[u8]>, binding: &BindingKey, from_host: bool) -> bool {
    frame.kind() == FrameKind::Data
        && records(frame).any(|record| is_of(&record, binding, from_host))
}

/// What is behind a record that cannot be read belongs to nobody.
fn records<'a>(frame: &'a Frame<&[u8]>) -> impl Iterator<Item = Record<'a>> {
    frame.records().map_while(Result::ok)
}

fn is_of(record: &Record<'_>, binding: &BindingKey, from_host: bool) -> bool {
    let address = match record {
        Record::Nop => return false,
        Record::Tlp(r) => &r.address,
        Record::SplitHeader(r) => &r.address,
        Record::SplitData(r) => &r.address,
        Record::Credits(r) => &r.address,
        Record::Sideband(address, _) | Record::Unbind(address) => address,
    };
    address.binding(from_host) == *binding
}
