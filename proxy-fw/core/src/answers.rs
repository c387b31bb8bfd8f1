//! Answers to the manager: what waits to be sent, and how long lists are cut into pages.

use crate::control::{ErasureCode, FromProxy, Name, OperationId, Reply, SlotState};
use crate::time::Instant;
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

/// A page of counters.
pub(crate) fn counters_page(
    counters: impl Iterator<Item = (&'static str, u64)>,
    from: u16,
) -> Reply {
    let (entries, next) = page(counters.map(|(name, value)| (short(name), value)), from);
    Reply::Counters { entries, next }
}
