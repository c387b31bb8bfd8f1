//! What a host does not see of a device's configuration space: capabilities of what does not cross a
//! network, or is granted to no device. They are taken out of the list in the completions of the host's
//! reads, and what it writes there is 0, which is off.
//!
//! - Precision Time Measurement (PCIe 5.0 section 6.22): its messages stay on one link, and a time that
//!   crossed a network would be wrong.
//! - Address Translation and Page Requests (PCIe 5.0 chapter 10): translation is granted to no device
//!   (`wire.md`, section 12), and an operating system that has turned it on waits for answers to its
//!   invalidations that a switch does not let pass.

/// A kind of capability that hosts do not see: its ID, and how many bytes its registers have.
const KINDS: [(u16, u16); MOST] = [
    // Address Translation Services (PCIe 5.0 section 10.5.1).
    (0x000f, 8),
    // Page Request (section 10.5.2).
    (0x0013, 16),
    // Precision Time Measurement (section 7.9.16).
    (0x001f, 12),
];

/// A device has one of each at most; further ones are none that an operating system looks for.
const MOST: usize = 3;

/// Where the list of extended capabilities begins.
const FIRST: u16 = 0x100;

/// Bits of a register's number, which is a multiple of four below 4096: `0` is that of none.
const BITS: u32 = 10;

/// A capability that is there and not shown: where its header is, the one that is shown and points to it,
/// directly or by others that are not shown (0 when there is none before), and the one that it points to
/// (0: none). A card has many of them: all of it is in one word. The whole is 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capability(u32);

impl Capability {
    fn new(kind: usize, at: u16, before: u16, next: u16) -> Self {
        let [at, before, next] = [at, before, next].map(|register| u32::from(register >> 2));
        Self((kind as u32) << (3 * BITS) | next << (2 * BITS) | before << BITS | at)
    }

    fn register(self, nth: u32) -> u16 {
        (self.0 >> (nth * BITS) & ((1 << BITS) - 1)) as u16 * 4
    }

    fn at(self) -> u16 {
        self.register(0)
    }

    fn before(self) -> u16 {
        self.register(1)
    }

    fn next(self) -> u16 {
        self.register(2)
    }

    /// Whether a register is one of its own.
    fn covers(self, register: u16) -> bool {
        let (_, bytes) = KINDS[(self.0 >> (3 * BITS)) as usize];
        self.0 != 0 && (self.at()..self.at() + bytes).contains(&register)
    }
}

/// The capabilities of one function that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden([Capability; MOST]);

impl Hidden {
    /// Takes in the capability with this header at `at`, found by following `before`, the last one that
    /// is shown. Whether it is one that hosts do not see.
    pub(super) fn takes(&mut self, header: u32, at: u16, before: Option<u16>) -> bool {
        let kind = KINDS.iter().position(|(id, _)| *id == header as u16);
        let place = self.0.iter_mut().find(|entry| **entry == Capability::default());
        let (Some(kind), Some(place)) = (kind, place) else { return false };
        let next = (header >> 20) as u16 & 0xffc;
        *place = Capability::new(kind, at, before.unwrap_or(0), next);
        true
    }

    /// Whether a register is one of a capability that is not shown.
    pub(super) fn covers(&self, register: u16) -> bool {
        self.0.iter().any(|entry| entry.covers(register))
    }

    /// The first capability that is shown, from one on.
    fn follow(&self, mut at: u16) -> u16 {
        for _ in 0..MOST {
            let Some(entry) = self.0.iter().find(|entry| at != 0 && entry.at() == at) else {
                break;
            };
            at = entry.next();
        }
        at
    }

    /// What a host reads where the device says `value`.
    pub(super) fn shown(&self, register: u16, value: u32) -> u32 {
        if self.covers(register) {
            // The head of the list cannot be left out: it becomes one of no kind (ID 0, version
            // 0), as Linux's vfio shows it.
            let head = if register == FIRST { self.follow(FIRST) } else { 0 };
            return u32::from(head) << 20;
        }
        if register != 0 && self.0.iter().any(|entry| entry.before() == register) {
            let next = self.follow((value >> 20) as u16 & 0xffc);
            return value & 0x000f_ffff | u32::from(next) << 20;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTM: u32 = 0x1801_001f;

    fn hidden(list: &[(u32, u16, Option<u16>)]) -> Hidden {
        let mut hidden = Hidden::default();
        for (header, at, before) in list {
            assert!(hidden.takes(*header, *at, *before));
        }
        hidden
    }

    #[test]
    fn the_one_before_points_past_it() {
        let hidden = hidden(&[(PTM, 0x140, Some(0x100))]);
        assert_eq!(hidden.shown(0x100, 0x1402_0001), 0x1802_0001);
        for register in [0x140, 0x144, 0x148] {
            assert!(hidden.covers(register));
            assert_eq!(hidden.shown(register, PTM), 0);
        }
        for register in [0x000, 0x104, 0x13c, 0x14c, 0x180] {
            assert!(!hidden.covers(register));
            assert_eq!(hidden.shown(register, PTM), PTM);
        }
    }

    #[test]
    fn the_first_one_becomes_one_of_no_kind() {
        let hidden = hidden(&[(PTM, 0x100, None)]);
        assert_eq!(hidden.shown(0x100, PTM), 0x1800_0000);
        assert_eq!(hidden.shown(0x104, 7), 0);
    }

    /// Error reporting, address translation, page requests, time measurement, serial number.
    #[test]
    fn several_side_by_side_are_passed_all_at_once() {
        let ats = (0x1501_000f, 0x140, Some(0x100));
        let pri = (0x1601_0013, 0x150, Some(0x100));
        let hidden = hidden(&[ats, pri, (PTM, 0x160, Some(0x100))]);
        assert_eq!(hidden.shown(0x100, 0x1402_0001), 0x1802_0001);
        for register in [0x140, 0x144, 0x150, 0x154, 0x158, 0x15c, 0x160, 0x168] {
            assert_eq!(hidden.shown(register, 0x1111_1111), 0);
        }
        assert_eq!(hidden.shown(0x148, 0x1111_1111), 0x1111_1111);
    }

    #[test]
    fn several_that_begin_and_end_the_list_leave_the_rest_of_it() {
        let hidden = hidden(&[
            (0x1101_000f, 0x100, None),
            (0x1201_0013, 0x110, None),
            (0x0001_001f, 0xff0, Some(0x120)),
        ]);
        assert_eq!(hidden.shown(0x100, 0x1101_000f), 0x1200_0000);
        assert_eq!(hidden.shown(0x120, 0xff02_0001), 0x0002_0001);
        assert_eq!(hidden.shown(0xffc, 7), 7);
        assert_eq!(hidden.shown(0xff8, 7), 0);
    }

    #[test]
    fn others_are_shown() {
        assert!(!Hidden::default().takes(0x1401_0003, 0x100, None));
        assert_eq!(Hidden::default(), hidden(&[]));
        assert!(!Hidden::default().covers(0));
    }
}
