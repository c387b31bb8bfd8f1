//! What a host does not see of a device's configuration space: Precision Time Measurement. Its
//! messages stay on one link (PCIe 5.0 section 6.22), and a time that crossed a network would be
//! wrong. The capability is taken out of the list in the completions of the host's reads.

/// Extended capability ID of Precision Time Measurement (PCIe 5.0 section 7.9.16).
const PTM: u16 = 0x001f;

/// Its registers: header, capabilities, control.
const PTM_BYTES: u16 = 12;

/// Where the list of extended capabilities begins.
const FIRST: u16 = 0x100;

/// A capability that is there and not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Where its header is.
    at: u16,
    /// The capability that points to it; none when it is the first.
    before: Option<u16>,
    /// The one that it points to; 0: none.
    next: u16,
}

impl Hidden {
    /// Of the capability with this header at `at`, found by following `before`; `None` when it is
    /// one that a host may see.
    pub(super) fn of(header: u32, at: u16, before: Option<u16>) -> Option<Self> {
        let next = (header >> 20) as u16 & 0xffc;
        (header as u16 == PTM).then_some(Self { at, before, next })
    }

    /// Whether a register is one of its own.
    pub(super) fn covers(&self, register: u16) -> bool {
        (self.at..self.at + PTM_BYTES).contains(&register)
    }

    /// What a host reads where the device says `value`.
    pub(super) fn shown(&self, register: u16, value: u32) -> u32 {
        let next = u32::from(self.next) << 20;
        if self.before == Some(register) {
            return value & 0x000f_ffff | next;
        }
        match self.covers(register) {
            // The head of the list cannot be left out: it becomes one of no kind (ID 0, version
            // 0), as Linux's vfio shows it.
            true if register == FIRST => next,
            true => 0,
            false => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: u32 = 0x1801_001f;

    #[test]
    fn the_one_before_points_past_it() {
        let hidden = Hidden::of(HEADER, 0x140, Some(0x100)).unwrap();
        assert_eq!(hidden.shown(0x100, 0x1402_0001), 0x1802_0001);
        for register in [0x140, 0x144, 0x148] {
            assert_eq!(hidden.shown(register, HEADER), 0);
        }
        for register in [0x104, 0x13c, 0x14c, 0x180] {
            assert_eq!(hidden.shown(register, HEADER), HEADER);
        }
    }

    #[test]
    fn the_first_one_becomes_one_of_no_kind() {
        let hidden = Hidden::of(HEADER, 0x100, None).unwrap();
        assert_eq!(hidden.shown(0x100, HEADER), 0x1800_0000);
        assert_eq!(hidden.shown(0x104, 7), 0);
    }

    #[test]
    fn others_are_shown() {
        assert_eq!(Hidden::of(0x1401_0003, 0x100, None), None);
    }
}
