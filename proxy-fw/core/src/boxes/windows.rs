//! DMA windows: which of a device's addresses reach whose memory.

use crate::control::{ControlError, Window};
use tlp_codec::ids::{Epoch, NodeId};

/// Windows begin and end at multiples of this many bytes.
const PAGE: u64 = 4096;

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// No window holds the whole range.
    NoWindow,
    /// The window does not allow this kind of access.
    Forbidden,
}

/// Checks a list of windows: each in order and not empty, of whole pages, none over another, every
/// target range within the address space. What crosses no page on one side crosses none on the other
/// (PCIe 5.0 section 2.2.7).
///
/// # Errors
///
/// [`ControlError::BadWindows`].
pub fn check(windows: &[Window]) -> Result<(), ControlError> {
    let whole = |w: &Window| (w.base | w.target | w.limit.wrapping_add(1)).is_multiple_of(PAGE);
    let sound = |w: &Window| {
        whole(w) && w.base <= w.limit && w.target.checked_add(w.limit - w.base).is_some()
    };
    let apart = |a: &Window, b: &Window| a.limit < b.base || b.limit < a.base;
    let fine = !windows.is_empty()
        && windows.iter().all(sound)
        && windows.iter().enumerate().all(|(i, a)| windows[i + 1..].iter().all(|b| apart(a, b)));
    if fine { Ok(()) } else { Err(ControlError::BadWindows) }
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The node that owns the memory.
    pub node: NodeId,
    /// The epoch of that sharer.
    pub epoch: Epoch,
    /// The address there.
    pub address: u64,
}

/// Looks up a range of `bytes` bytes (at least 1) that starts at `address`.
///
/// # Errors
///
/// [`Outside`] when no window holds all of it, or its window does not allow the access.
pub fn lookup(
    windows: &[Window],
    address: u64,
    bytes: u64,
    write: bool,
) -> Result<Mapped, Outside> {
    let last = address.checked_add(bytes.max(1) - 1).ok_or(Outside::NoWindow)?;
    let window =
        windows.iter().find(|w| w.base <= address && last <= w.limit).ok_or(Outside::NoWindow)?;
    if !(if write { window.write } else { window.read }) {
        return Err(Outside::Forbidden);
    }
    let address = window.target + (address - window.base);
    Ok(Mapped { node: window.node, epoch: window.epoch, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::PathSet;

    fn window(base: u64, limit: u64, target: u64) -> Window {
        Window {
            base,
            limit,
            node: NodeId::new(7).unwrap(),
            path_set: PathSet::FIRST,
            epoch: Epoch::new(0, 1).unwrap(),
            target,
            read: true,
            write: false,
        }
    }

    #[test]
    fn a_range_must_lie_in_one_window() {
        let windows = [window(0x1000, 0x1fff, 0x9000), window(0x2000, 0x2fff, 0x5000)];
        assert_eq!(lookup(&windows, 0x1ffc, 4, false).unwrap().address, 0x9ffc);
        assert_eq!(lookup(&windows, 0x2000, 0x1000, false).unwrap().address, 0x5000);
        assert_eq!(lookup(&windows, 0x1ffc, 8, false), Err(Outside::NoWindow));
        assert_eq!(lookup(&windows, 0xffc, 8, false), Err(Outside::NoWindow));
        assert_eq!(lookup(&windows, u64::MAX, 2, false), Err(Outside::NoWindow));
        assert_eq!(lookup(&windows, 0x1000, 4, true), Err(Outside::Forbidden));
    }

    #[test]
    fn the_window_over_everything_maps_every_address_to_itself() {
        let (node, epoch) = (NodeId::new(7).unwrap(), Epoch::new(0, 1).unwrap());
        let all = [Window::everything(node, PathSet::FIRST, epoch)];
        assert_eq!(check(&all), Ok(()));
        for address in [0, 0x1234_5678, u64::MAX - 3] {
            assert_eq!(lookup(&all, address, 4, true).unwrap().address, address);
        }
    }

    #[test]
    fn windows_that_overlap_or_run_over_are_refused() {
        assert!(check(&[]).is_err());
        assert!(check(&[window(2, 1, 0)]).is_err());
        assert!(check(&[window(0, 0xfff, 0), window(0, 0x1fff, 0)]).is_err());
        assert!(check(&[window(0, 0x1fff, u64::MAX - 0xfff)]).is_err());
        assert!(check(&[window(0x2000, 0x2fff, 0), window(0, 0x1fff, 0x5000)]).is_ok());
        assert!(check(&[window(0, 0xfff, u64::MAX - 0xfff)]).is_ok());
    }

    #[test]
    fn windows_are_of_whole_pages() {
        for (base, limit, target) in
            [(0x1000, 0x1fff, 0x9002), (0x1000, 0x1fff, 0x2880), (0, 10, 0), (0x800, 0x17ff, 0)]
        {
            assert!(check(&[window(base, limit, target)]).is_err(), "{base:#x} {target:#x}");
        }
    }
}
