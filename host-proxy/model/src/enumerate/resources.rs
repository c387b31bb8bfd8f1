//! Giving out addresses: sizes from the leaves up, places from the root down.
//!
//! Two spaces: 32-bit memory, where everything goes that is not both 64-bit and prefetchable, and
//! 64-bit prefetchable memory. A hot-plug port's windows are at least as large as what is
//! reserved for each, so that what comes later has room.

use super::{Enumerator, Problem};
use crate::config::HotPlugConfig;
use crate::port::TlpPort;
use crate::topology::{BarKind, Node, Range, Topology};
use tlp_codec::ids::Bdf;

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Memory32,
    Prefetch64,
}

impl Space {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory32 => "32-bit",
            Self::Prefetch64 => "64-bit prefetchable",
        }
    }
}

/// Windows of bridges come in steps of 1 MB (PCI-to-PCI Bridge 1.2 section 3.2.5.8).
const WINDOW_STEP: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Bar(Bdf, u8),
    Window(Bdf),
}

/// Something that needs a place.
#[derive(Clone, Copy, Debug)]
struct Need {
    item: Item,
    size: u64,
    align: u64,
}

/// Everything right below a bridge (or the root port) that needs a place in a space.
fn needs(
    topology: &Topology,
    parent: Option<Bdf>,
    space: Space,
    prefetch64: bool,
    config: &HotPlugConfig,
) -> Vec<Need> {
    let mut list = Vec::new();
    for node in topology.children(parent) {
        for (index, bar) in node.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let wide = bar.kind == BarKind::Memory64 && bar.prefetchable && prefetch64;
            let fits = match space {
                Space::Memory32 => bar.kind != BarKind::Io && !wide,
                Space::Prefetch64 => wide,
            };
            if fits {
                let item = Item::Bar(node.bdf, index as u8);
                list.push(Need { item, size: bar.size, align: bar.size });
            }
        }
        list.extend(window_need(topology, node, space, prefetch64, config));
    }
    list
}

fn window_need(
    topology: &Topology,
    node: &Node,
    space: Space,
    prefetch64: bool,
    config: &HotPlugConfig,
) -> Option<Need> {
    let bridge = node.bridge?;
    let prefetch64 = prefetch64 && bridge.prefetch64;
    if space == Space::Prefetch64 && !prefetch64 {
        return None;
    }
    let mut inside = needs(topology, Some(node.bdf), space, prefetch64, config);
    let mut align = inside.iter().map(|need| need.align).max().unwrap_or(0);
    let mut size = pack(&mut inside);
    if bridge.hot_plug() {
        let reserve = match space {
            Space::Memory32 => config.memory,
            Space::Prefetch64 => config.prefetch,
        };
        if reserve > 0 {
            size = size.max(reserve);
            // One register as large as the whole reserve has to fit too.
            align = align.max(1 << reserve.ilog2());
        }
    }
    let size = size.checked_next_multiple_of(WINDOW_STEP)?;
    (size > 0).then(|| Need { item: Item::Window(node.bdf), size, align: align.max(WINDOW_STEP) })
}

/// Bytes that the needs take together, from a start that the largest alignment divides. Sorts
/// them by alignment, the largest first, as [`place`] does.
fn pack(list: &mut [Need]) -> u64 {
    list.sort_by_key(|need| std::cmp::Reverse(need.align));
    list.iter().fold(0, |at, need| next(at, need.align).saturating_add(need.size))
}

fn next(at: u64, align: u64) -> u64 {
    at.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

/// Places for the needs in a window; `None` where one does not fit any more.
fn place(list: &mut [Need], window: Option<Range>) -> Vec<(Need, Option<Range>)> {
    list.sort_by_key(|need| std::cmp::Reverse(need.align));
    let (mut at, end) = window.map_or((0, 0), |w| (w.base, w.base.saturating_add(w.size)));
    let mut placed = Vec::with_capacity(list.len());
    for need in list {
        let base = next(at, need.align);
        let fits = window.is_some() && base.checked_add(need.size).is_some_and(|top| top <= end);
        if fits {
            at = base + need.size;
        }
        placed.push((*need, fits.then_some(Range { base, size: need.size })));
    }
    placed
}

impl<P: TlpPort> Enumerator<'_, P> {
    /// Gives out addresses to everything behind a bridge (or the root port) from its windows.
    pub(super) fn assign(
        &mut self,
        parent: Option<Bdf>,
        memory: Option<Range>,
        prefetch: Option<Range>,
    ) {
        for (space, window) in [(Space::Memory32, memory), (Space::Prefetch64, prefetch)] {
            let wide = prefetch.is_some();
            let config = &self.config.hot_plug;
            let mut list = needs(self.topology, parent, space, wide, config);
            for (need, range) in place(&mut list, window) {
                match range {
                    Some(range) => self.give(need.item, space, range),
                    None => self.no_room(need, space),
                }
            }
        }
        let bridges: Vec<_> = self
            .topology
            .children(parent)
            .filter_map(|node| node.bridge.map(|info| (node.bdf, info)))
            .collect();
        for (bdf, info) in bridges {
            self.assign(Some(bdf), info.memory, info.prefetch);
        }
    }

    fn give(&mut self, item: Item, space: Space, range: Range) {
        match item {
            Item::Bar(bdf, index) => {
                let node = self.topology.get_mut(bdf);
                if let Some(bar) = node.and_then(|node| node.bars[usize::from(index)].as_mut()) {
                    bar.address = Some(range.base);
                }
            }
            Item::Window(bdf) => {
                let node = self.topology.get_mut(bdf);
                if let Some(bridge) = node.and_then(|node| node.bridge.as_mut()) {
                    match space {
                        Space::Memory32 => bridge.memory = Some(range),
                        Space::Prefetch64 => bridge.prefetch = Some(range),
                    }
                }
            }
        }
    }

    fn no_room(&mut self, need: Need, space: Space) {
        let (size, space) = (need.size, space.name());
        match need.item {
            Item::Bar(bdf, bar) => self.problem(bdf, Problem::NoRoom { bdf, bar, size, space }),
            Item::Window(bdf) => self.problem(bdf, Problem::NoWindow { bdf, size, space }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::bdf;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_sized_fits_apart_and_aligned(
            powers in proptest::collection::vec(4_u32..40, 0..24),
            base in 0_u64..1 << 20,
        ) {
            let mut list: Vec<Need> = powers
                .iter()
                .enumerate()
                .map(|(i, power)| Need {
                    item: Item::Bar(bdf(1, i as u8, 0), 0),
                    size: 1 << power,
                    align: 1 << power,
                })
                .collect();
            let align = list.iter().map(|need| need.align).max().unwrap_or(1);
            let size = pack(&mut list);
            let window = Range { base: base * align, size };
            let placed = place(&mut list, Some(window));
            let mut end = window.base;
            for (need, range) in placed {
                let range = range.expect("as much as was asked for is enough");
                prop_assert_eq!(range.base % need.align, 0);
                prop_assert!(range.base >= end && range.limit() <= window.limit());
                end = range.base + range.size;
            }
        }
    }

    #[test]
    fn what_does_not_fit_gets_no_place_and_the_rest_does() {
        let need = |n, size| Need { item: Item::Bar(bdf(1, n, 0), 0), size, align: size };
        let mut list = [need(0, 0x1000), need(1, 0x10_0000), need(2, 0x2000)];
        let placed = place(&mut list, Some(Range { base: 0x10_0000, size: 0x4000 }));
        let sizes: Vec<_> =
            placed.iter().map(|(need, range)| (need.size, range.is_some())).collect();
        assert_eq!(sizes, [(0x10_0000, false), (0x2000, true), (0x1000, true)]);
    }
}
