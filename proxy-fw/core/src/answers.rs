//! Answers to the manager: what waits to be sent, and how long lists are cut into pages.

use crate::control::{ErasureCode, FromProxy, Name, OperationId, Reply, SlotState};
use crate::node::{Node, PeerLink};
use crate::time::Instant;
use core::fmt::Write as _;
use heapless::Vec;

/// An answer, small until it is sent: pages are read out then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Done,
    Slot(SlotState),
    Erasure(ErasureCode),
    Removed {
        orderly: bool,
    },
    Page(Page, u16),
    /// What the recorder has from this position on, asked for at this time.
    Recorder(u64, Instant),
}

/// What is read in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Table,
    Inventory,
    Counters,
    Stamps,
}

/// An answer in the queue, taken apart by the role.
#[allow(clippy::large_enum_variant)] // lives on the stack for one call
pub(crate) enum Outbound {
    Message(FromProxy),
    Page(OperationId, Page, u16),
    Recorder(OperationId, u64, Instant),
}

/// Cuts one page out of a list.
pub(crate) fn page<T, const N: usize>(
    entries: impl Iterator<Item = T>,
    from: u16,
) -> (Vec<T, N>, Option<u16>) {
    let mut rest = entries.skip(from as usize);
    let mut out = Vec::new();
    while !out.is_full() {
        match rest.next() {
            Some(entry) => {
                let _ = out.push(entry);
            }
            None => return (out, None),
        }
    }
    let next = rest.next().is_some().then(|| from.saturating_add(N as u16));
    (out, next)
}

/// The name of a counter, as much of it as there is room for.
pub(crate) fn short(name: &str) -> Name {
    let mut short = Name::new();
    let _ = name.chars().try_for_each(|c| short.push(c));
    short
}

/// A page of counters: those that there always are, then others, of which there may be more while
/// pages are read.
pub(crate) fn counters_page(
    counters: impl Iterator<Item = (&'static str, u64)>,
    others: impl Iterator<Item = (Name, u64)>,
    from: u16,
) -> Reply {
    let counters = counters.map(|(name, value)| (short(name), value));
    let (entries, next) = page(counters.chain(others), from);
    Reply::Counters { entries, next }
}

impl Node {
    /// What was sent by each path to each peer since its link came up, and lost there.
    pub(crate) fn path_counters(&self) -> impl Iterator<Item = (Name, u64)> {
        (0..).map_while(|nth| self.path_counter(nth))
    }

    // One function, and not an iterator of iterators: that is kilobytes of a card's code.
    fn path_counter(&self, nth: usize) -> Option<(Name, u64)> {
        let mut before = nth / 2;
        for PeerLink { peer, link } in self.peers.iter().flatten() {
            for (path, sent, lost) in link.path_traffic() {
                if before > 0 {
                    before -= 1;
                    continue;
                }
                let (what, count) =
                    if nth.is_multiple_of(2) { ("sent", sent) } else { ("lost", lost.into()) };
                let mut name = Name::new();
                write!(name, "path {}/{path}: frames {what}", peer.node).expect("it is short");
                return Some((name, count));
            }
        }
        None
    }
}
