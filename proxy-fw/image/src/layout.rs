//! Where in a card's flash things are.

use core::fmt;

use crate::header::HEADER_LEN;
use crate::state::SlotId;

/// Some bytes in a row, of flash or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub start: u32,
    /// Bytes.
    pub len: u32,
}

impl Region {
    /// Where it ends: one after its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start as u64 + self.len as u64
    }

    /// Whether so many bytes from there on are all within.
    #[must_use]
    pub const fn contains(&self, start: u32, len: u32) -> bool {
        start >= self.start && start as u64 + len as u64 <= self.end()
    }

    const fn overlaps(&self, other: &Self) -> bool {
        (self.start as u64) < other.end() && (other.start as u64) < self.end()
    }
}

/// What a board says of its flash, not checked yet. All regions are whole erase blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutParts {
    /// Bytes of the flash.
    pub flash: u32,
    /// Bytes that are erased at once, a power of two of at least 256.
    pub erase_block: u32,
    /// Bytes of an image after which its writing is recorded, whole erase blocks: what a power
    /// cut costs at most.
    pub progress: u32,
    /// The boot loader.
    pub boot_loader: Region,
    /// The boot state: two erase blocks.
    pub boot_state: Region,
    /// The configuration: two erase blocks.
    pub config: Region,
    /// The slots, a and b, equally long.
    pub slots: [Region; 2],
}

/// Why a layout is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// An erase block is no power of two of at least 256 bytes.
    EraseBlock,
    /// The unit of progress is not whole erase blocks.
    Progress,
    /// This region is empty, not whole erase blocks, or ends beyond the flash.
    Region(&'static str),
    /// Boot state or configuration are not two erase blocks.
    NotTwoBlocks(&'static str),
    /// The slots are not equally long, or have no room for a payload.
    Slots,
    /// These two have bytes in common.
    Overlap(&'static str, &'static str),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EraseBlock => {
                f.write_str("the erase block must be a power of two of at least 256 bytes")
            }
            Self::Progress => f.write_str("the unit of progress must be whole erase blocks"),
            Self::Region(name) => {
                write!(f, "the {name} must be whole erase blocks within the flash")
            }
            Self::NotTwoBlocks(name) => write!(f, "the {name} must be two erase blocks"),
            Self::Slots => {
                f.write_str("the slots must be equally long, with room for more than a header")
            }
            Self::Overlap(one, other) => write!(f, "the {one} and the {other} overlap"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// A layout that was checked: nothing overlaps, and all is whole erase blocks within the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout(LayoutParts);

const NAMES: [&str; 5] = ["boot loader", "boot state", "configuration", "slot a", "slot b"];

impl Layout {
    /// Checks a layout. In a constant, what is wrong stops the compiler:
    ///
    /// ```
    /// use card_image::Layout;
    /// const LAYOUT: Layout = match Layout::packed(1 << 20, 4096, 64 << 10, 256 << 10) {
    ///     Ok(layout) => layout,
    ///     Err(_) => panic!("the board's flash layout is wrong"),
    /// };
    /// assert_eq!(LAYOUT.slots()[0].start, (64 << 10) + 4 * 4096);
    /// ```
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub const fn new(parts: LayoutParts) -> Result<Self, LayoutError> {
        let block = parts.erase_block;
        if !block.is_power_of_two() || block < HEADER_LEN as u32 {
            return Err(LayoutError::EraseBlock);
        }
        if parts.progress == 0 || !parts.progress.is_multiple_of(block) {
            return Err(LayoutError::Progress);
        }
        let [a, b] = parts.slots;
        let regions = [parts.boot_loader, parts.boot_state, parts.config, a, b];
        let mut one = 0;
        while one < regions.len() {
            let region = &regions[one];
            let whole = region.start.is_multiple_of(block) && region.len.is_multiple_of(block);
            if region.len == 0 || !whole || region.end() > parts.flash as u64 {
                return Err(LayoutError::Region(NAMES[one]));
            }
            let mut other = 0;
            while other < one {
                if regions[other].overlaps(region) {
                    return Err(LayoutError::Overlap(NAMES[other], NAMES[one]));
                }
                other += 1;
            }
            one += 1;
        }
        if parts.boot_state.len / 2 != block {
            return Err(LayoutError::NotTwoBlocks(NAMES[1]));
        }
        if parts.config.len / 2 != block {
            return Err(LayoutError::NotTwoBlocks(NAMES[2]));
        }
        if a.len != b.len || a.len <= HEADER_LEN as u32 {
            return Err(LayoutError::Slots);
        }
        Ok(Self(parts))
    }

    /// One after the other from offset 0 on: boot loader, boot state, configuration, slot a,
    /// slot b. Progress is recorded every 64 KB, or every erase block where those are larger.
    ///
    /// # Errors
    ///
    /// As of [`new`](Self::new).
    pub const fn packed(
        flash: u32,
        erase_block: u32,
        boot_loader: u32,
        slot: u32,
    ) -> Result<Self, LayoutError> {
        // Too large for 32 bits is too large for the flash, too.
        let block = erase_block as u64;
        let state = boot_loader as u64;
        let slot_a = state + 4 * block;
        if slot_a + 2 * slot as u64 > flash as u64 {
            return Err(LayoutError::Region(NAMES[4]));
        }
        let (state, slot_a) = (state as u32, slot_a as u32);
        let progress = if erase_block > 64 << 10 { erase_block } else { 64 << 10 };
        Self::new(LayoutParts {
            flash,
            erase_block,
            progress,
            boot_loader: Region { start: 0, len: boot_loader },
            boot_state: Region { start: state, len: 2 * erase_block },
            config: Region { start: state + 2 * erase_block, len: 2 * erase_block },
            slots: [
                Region { start: slot_a, len: slot },
                Region { start: slot_a + slot, len: slot },
            ],
        })
    }

    /// What was checked.
    #[must_use]
    pub const fn parts(&self) -> &LayoutParts {
        &self.0
    }

    /// Bytes that are erased at once.
    #[must_use]
    pub const fn erase_block(&self) -> u32 {
        self.0.erase_block
    }

    /// Bytes of an image after which its writing is recorded.
    #[must_use]
    pub const fn progress(&self) -> u32 {
        self.0.progress
    }

    /// The boot loader.
    #[must_use]
    pub const fn boot_loader(&self) -> Region {
        self.0.boot_loader
    }

    /// The boot state's two erase blocks.
    #[must_use]
    pub const fn boot_state(&self) -> Region {
        self.0.boot_state
    }

    /// The configuration's two erase blocks.
    #[must_use]
    pub const fn config(&self) -> Region {
        self.0.config
    }

    /// The slots, a and b.
    #[must_use]
    pub const fn slots(&self) -> [Region; 2] {
        self.0.slots
    }

    /// One of the slots.
    #[must_use]
    pub const fn slot(&self, slot: SlotId) -> Region {
        self.0.slots[slot.index()]
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn parts() -> LayoutParts {
        *Layout::packed(64 << 10, 4 << 10, 8 << 10, 20 << 10).unwrap().parts()
    }

    #[test]
    fn packed_fills_the_flash() {
        let LayoutParts { boot_state, config, slots, progress, .. } = parts();
        assert_eq!((boot_state.start, config.start, progress), (8 << 10, 16 << 10, 64 << 10));
        assert_eq!(slots.map(|slot| slot.start), [24 << 10, 44 << 10]);
        assert_eq!(slots[1].end(), 64 << 10);
        let virt = Layout::packed(64 << 20, 256 << 10, 256 << 10, 1 << 20).unwrap();
        assert_eq!((virt.progress(), virt.slot(SlotId::B).start), (256 << 10, 0x24_0000));
    }

    #[test]
    fn wrong_layouts_are_refused() {
        let check = |change: fn(&mut LayoutParts)| {
            let mut parts = parts();
            change(&mut parts);
            Layout::new(parts).unwrap_err()
        };
        assert_eq!(check(|p| p.erase_block = 3 << 10), LayoutError::EraseBlock);
        assert_eq!(check(|p| p.erase_block = 128), LayoutError::EraseBlock);
        assert_eq!(check(|p| p.progress = 1 << 10), LayoutError::Progress);
        assert_eq!(check(|p| p.progress = 0), LayoutError::Progress);
        assert_eq!(check(|p| p.boot_loader.len = 0), LayoutError::Region("boot loader"));
        assert_eq!(check(|p| p.config.start += 1), LayoutError::Region("configuration"));
        assert_eq!(check(|p| p.flash -= 1), LayoutError::Region("slot b"));
        assert_eq!(check(|p| p.slots[1].start = 0xffff_f000), LayoutError::Region("slot b"));
        assert_eq!(check(|p| p.boot_state.len /= 2), LayoutError::NotTwoBlocks("boot state"));
        assert_eq!(check(|p| p.config.len /= 2), LayoutError::NotTwoBlocks("configuration"));
        assert_eq!(check(|p| p.slots[0].len -= 4 << 10), LayoutError::Slots);
        assert_eq!(
            check(|p| p.boot_loader.len += 4 << 10),
            LayoutError::Overlap("boot loader", "boot state")
        );
        assert_eq!(
            check(|p| p.slots[1].start -= 4 << 10),
            LayoutError::Overlap("slot a", "slot b")
        );
        assert!(Layout::packed(64 << 10, 4 << 10, 8 << 10, u32::MAX).is_err());
    }
}
