//! Answers to the manager: what waits to be sent, and how long lists are cut into pages.

use crate::control::{ErasureCode, FromProxy, Name, OperationId, Reply, SlotState};
use crate::limits::MAX_PATHS;
use crate::node::{Node, PeerLink};
use crate::time::Instant;
use core::fmt::Write as _;
use heapless::Vec;
use tlp_codec::ids::PathId;

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

/// Cuts one page out of a list of places, some of which have an entry. Pages begin at places and not
/// at entries: whatever comes and goes while they are read, each of the others is on one of them.
pub(crate) fn page<T, const N: usize>(
    places: impl Iterator<Item = Option<T>>,
    from: u16,
) -> (Vec<T, N>, Option<u16>) {
    let mut out = Vec::new();
    for (place, entry) in (0_u16..).zip(places).skip(from.into()) {
        let Some(entry) = entry else { continue };
        if out.push(entry).is_err() {
            return (out, Some(place));
        }
    }
    (out, None)
}

/// The name of a counter, as much of it as there is room for.
pub(crate) fn short(name: &str) -> Name {
    let mut short = Name::new();
    let _ = name.chars().try_for_each(|c| short.push(c));
    short
}

/// A page of counters: those that there always are, then the places of others.
pub(crate) fn counters_page(
    counters: impl Iterator<Item = (&'static str, u64)>,
    others: impl Iterator<Item = Option<(Name, u64)>>,
    from: u16,
) -> Reply {
    let counters = counters.map(|(name, value)| Some((short(name), value)));
    let (entries, next) = page(counters.chain(others), from);
    Reply::Counters { entries, next }
}

impl Node {
    /// What was sent by each path to each peer since its link came up, and lost there: the places
    /// for it.
    pub(crate) fn path_counters(&self) -> impl Iterator<Item = Option<(Name, u64)>> {
        (0..self.peers.len() * MAX_PATHS * 2).map(|place| self.path_counter(place))
    }

    // One function, and not an iterator of iterators: that is kilobytes of a card's code.
    fn path_counter(&self, place: usize) -> Option<(Name, u64)> {
        let (nth, is_lost) = (place / 2, place % 2 == 1);
        let PeerLink { peer, link, .. } = self.peers[nth / MAX_PATHS].as_ref()?;
        let wanted = |(path, ..): &(PathId, u64, u32)| usize::from(path.get()) == nth % MAX_PATHS;
        let (path, sent, lost) = link.path_traffic().find(wanted)?;
        let (what, count) = if is_lost { ("lost", lost.into()) } else { ("sent", sent) };
        let mut name = Name::new();
        write!(name, "path {}/{path}: frames {what}", peer.node).expect("it is short");
        Some((name, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(list: &[Option<u8>], from: u16) -> (Vec<u8, 4>, Option<u16>) {
        page(list.iter().copied(), from)
    }

    #[test]
    fn pages_end_where_the_entries_do() {
        let list = [1, 2, 3, 4, 5].map(Some);
        assert_eq!(page_of(&list[..3], 0), (Vec::from_array([1, 2, 3]), None));
        assert_eq!(page_of(&list[..4], 0), (Vec::from_array([1, 2, 3, 4]), None));
        assert_eq!(page_of(&list, 0), (Vec::from_array([1, 2, 3, 4]), Some(4)));
        assert_eq!(page_of(&list, 4), (Vec::from_array([5]), None));
        assert_eq!(page_of(&list, 9), (Vec::new(), None));
    }

    #[test]
    fn what_comes_and_goes_between_two_pages_hides_and_doubles_nothing_else() {
        let mut list = [1, 0, 3, 4, 5, 6, 7].map(|n| (n > 0).then_some(n));
        let (first, next) = page_of(&list, 0);
        assert_eq!((&first[..], next), (&[1, 3, 4, 5][..], Some(5)));
        (list[0], list[2]) = (None, None);
        assert_eq!(page_of(&list, 5), (Vec::from_array([6, 7]), None));
        (list[0], list[1], list[2]) = (Some(1), Some(2), Some(3));
        assert_eq!(page_of(&list, 5), (Vec::from_array([6, 7]), None));
    }
}
