//! What happened: a hash over every event, the last events as a story, and on demand all of them
//! as text and all frames as a capture.

use crate::pcap::Capture;
use crate::random::{fold, mix};
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use tlp_codec::fabric::{Frame, Record};
use tlp_codec::tlp::{Packet, Repr};

/// Events whose story is kept.
const STORY: usize = 512;
/// Bytes kept of each.
const HEAD: usize = 40;

/// What kind of thing happened. Node numbers are the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// A proxy sent a frame.
    FrameSent = 1,
    /// A proxy got a frame.
    FrameCame,
    /// The network lost a frame.
    FrameLost,
    /// The PCIe side handed a TLP to its proxy.
    TlpIn,
    /// A proxy handed a TLP to its PCIe side.
    TlpOut,
    /// A message of the manager reached a proxy.
    Asked,
    /// A proxy's message left for the manager.
    Told,
    /// Anything else, in words.
    Note,
}

struct Item {
    at: Instant,
    node: u16,
    what: What,
    length: u32,
    head: [u8; HEAD],
    words: Option<Box<str>>,
}

/// The trace of one run.
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    story: VecDeque<Item>,
    text: Option<Box<dyn Write>>,
    capture: Option<Capture>,
    /// What could not be written first, and why; each ends with its first time.
    unwritten: Option<(Recording, io::Error)>,
}

/// What a run can be recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Every event, as text.
    Trace,
    /// Every frame.
    Capture,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            hash: 0x6a09_e667_f3bc_c908,
            events: 0,
            story: VecDeque::with_capacity(STORY),
            text: None,
            capture: None,
            unwritten: None,
        }
    }

    /// Writes every event there, too.
    pub(crate) fn write_text(&mut self, out: Box<dyn Write>) {
        self.text = Some(out);
    }

    /// Writes every frame that is sent there, too.
    pub(crate) fn write_capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// The hash over everything so far.
    pub(crate) fn hash(&self) -> u64 {
        mix(self.hash)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    fn absorb(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }

    fn absorb_bytes(&mut self, bytes: &[u8]) {
        self.hash = fold(self.hash, bytes);
    }

    /// Something happened at a node.
    pub(crate) fn note(&mut self, at: Instant, node: u16, what: What, bytes: &[u8]) {
        self.keep(at, node, what, bytes, None);
    }

    /// A frame for a node was lost.
    pub(crate) fn lost(&mut self, at: Instant, node: u16, why: &'static str, frame: &[u8]) {
        self.keep(at, node, What::FrameLost, frame, Some(why.into()));
    }

    /// Something happened that words say best; the words are part of the hash.
    pub(crate) fn say(&mut self, at: Instant, node: u16, words: String) {
        self.absorb_bytes(words.as_bytes());
        self.keep(at, node, What::Note, &[], Some(words.into_boxed_str()));
    }

    /// A control message: its bytes are what `debug` prints.
    pub(crate) fn control(&mut self, at: Instant, node: u16, what: What, debug: String) {
        self.absorb_bytes(debug.as_bytes());
        self.keep(at, node, what, &[], Some(debug.into_boxed_str()));
    }

    fn keep(&mut self, at: Instant, node: u16, what: What, bytes: &[u8], words: Option<Box<str>>) {
        self.events += 1;
        self.absorb(at.as_nanos());
        self.absorb(u64::from(node) << 8 | what as u64);
        self.absorb_bytes(bytes);
        let mut head = [0; HEAD];
        let kept = bytes.len().min(HEAD);
        head[..kept].copy_from_slice(&bytes[..kept]);
        let item = Item { at, node, what, length: bytes.len() as u32, head, words };
        let written = match &mut self.text {
            Some(text) => writeln!(text, "{}", line(&item, bytes)),
            None => Ok(()),
        };
        if let Err(error) = written {
            self.text = None;
            self.unwritten.get_or_insert((Recording::Trace, error));
        }
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back(item);
    }

    /// A frame leaves a node, for the capture.
    pub(crate) fn capture(&mut self, at: Instant, from: u16, to: u16, path: u8, frame: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        if let Err(error) = capture.frame(at, from, to, path, frame) {
            self.capture = None;
            self.unwritten.get_or_insert((Recording::Capture, error));
        }
    }

    /// The last events, oldest first. Frames are left out of it but for what only they tell.
    pub(crate) fn story(&self, lines: usize) -> Vec<String> {
        let told = self
            .story
            .iter()
            .filter(|item| !matches!(item.what, What::FrameSent | What::FrameCame));
        let told: Vec<&Item> = told.collect();
        let from = told.len().saturating_sub(lines);
        told[from..]
            .iter()
            .map(|item| line(item, &item.head[..(item.length as usize).min(HEAD)]))
            .collect()
    }

    /// Ends what is being written; what could not be, and why.
    pub(crate) fn finish(&mut self) -> Option<(Recording, io::Error)> {
        let text = self.text.take().map_or(Ok(()), |mut text| text.flush());
        let capture = self.capture.take().map_or(Ok(()), Capture::finish);
        for (record, ended) in [(Recording::Trace, text), (Recording::Capture, capture)] {
            if let Err(error) = ended {
                self.unwritten.get_or_insert((record, error));
            }
        }
        self.unwritten.take()
    }
}

fn line(item: &Item, bytes: &[u8]) -> String {
    let nanos = item.at.as_nanos();
    let mut line =
        format!("{:>6}.{:06} ms  node {:<2} ", nanos / 1_000_000, nanos % 1_000_000, item.node);
    let what = match item.what {
        What::FrameSent => "sends frame",
        What::FrameCame => "gets frame",
        What::FrameLost => "a frame for it is lost:",
        What::TlpIn => "PCIe → proxy",
        What::TlpOut => "proxy → PCIe",
        What::Asked => "is asked",
        What::Told => "tells",
        What::Note => "",
    };
    line.push_str(what);
    match (&item.words, item.what) {
        (Some(words), _) => {
            let _ = write!(line, " {words}");
        }
        (None, What::TlpIn | What::TlpOut) => {
            let _ = write!(line, " {}", tlp(bytes, item.length as usize));
        }
        (None, What::FrameSent | What::FrameCame) => {
            let _ = write!(line, " {}", frame(bytes, item.length as usize));
        }
        (None, _) => {
            let _ = write!(line, " {} bytes", item.length);
        }
    }
    line
}

fn tlp(bytes: &[u8], length: usize) -> String {
    let mut whole = bytes.to_vec();
    whole.resize(length, 0);
    match Packet::new_checked(&whole[..]) {
        Err(error) => format!("no TLP ({error})"),
        Ok(packet) => match Repr::parse(&packet) {
            Ok(repr) => {
                let mut text = format!("{:?}", repr.kind);
                if let Some(at) = text.find(", data: [") {
                    text.truncate(at);
                    let _ = write!(text, ", {} bytes }}", packet.payload_len());
                }
                text
            }
            Err(error) => format!("unsound TLP ({error})"),
        },
    }
}

fn frame(bytes: &[u8], length: usize) -> String {
    match Frame::new_checked(bytes) {
        Err(_) => format!("{length} bytes"),
        Ok(frame) => {
            let header = frame.header();
            let mut text = format!("{length} bytes: {header:?}");
            for record in frame.records() {
                match record {
                    Ok(Record::Tlp(record)) => {
                        let _ = write!(text, "; TLP of {} bytes", record.tlp.len());
                    }
                    Ok(other) => {
                        let _ = write!(text, "; {other:?}");
                    }
                    Err(error) => {
                        let _ = write!(text, "; {error}");
                    }
                }
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_changes_the_hash() {
        let hash = |nanos, node, what, bytes: &[u8]| {
            let mut trace = Trace::new();
            trace.note(Instant::from_nanos(nanos), node, what, bytes);
            trace.hash()
        };
        let base = hash(1, 1, What::TlpIn, b"12345678a");
        assert_eq!(base, hash(1, 1, What::TlpIn, b"12345678a"));
        assert_ne!(base, hash(2, 1, What::TlpIn, b"12345678a"));
        assert_ne!(base, hash(1, 2, What::TlpIn, b"12345678a"));
        assert_ne!(base, hash(1, 1, What::TlpOut, b"12345678a"));
        assert_ne!(base, hash(1, 1, What::TlpIn, b"12345678b"));
        assert_ne!(base, hash(1, 1, What::TlpIn, b"12345678a\0"));
    }
}
