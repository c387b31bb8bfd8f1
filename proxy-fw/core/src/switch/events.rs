//! What the switch tells its owner.
//!
//! Events are kept as one bit each and port, so that there is always room: what happens twice
//! before it is polled is told once, with the state that it led to. A reset that was both begun
//! and ended is told as both, in that order.

use super::config::slot::Indicator;
use tlp_codec::ids::PortId;

/// Something that the host's software did to the switch, or that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchEvent {
    /// Software resets what is below the port (Secondary Bus Reset of the port or of the upstream
    /// port). From the assertion on, until [`set_ready`](super::VirtualSwitch::set_ready), a
    /// device is not ready: configuration requests get retry status.
    SecondaryBusReset {
        /// The port.
        port: PortId,
        /// Whether the reset begins or ends.
        asserted: bool,
    },
    /// Software disabled the port's link, or enabled it again. A device that comes back has been
    /// reset, and is not ready until [`set_ready`](super::VirtualSwitch::set_ready).
    LinkDisabled {
        /// The port.
        port: PortId,
        /// Which of both.
        disabled: bool,
    },
    /// Software let go of the device: the power indicator went off. The port is empty already:
    /// presence and link state were cleared before this is told.
    LetGo {
        /// The port.
        port: PortId,
        /// Whether the attention button had been pressed for it.
        requested: bool,
    },
    /// The power indicator went back on after the attention button was pressed: software keeps
    /// the device.
    RemovalCancelled(PortId),
    /// A device that [`plug`](super::VirtualSwitch::plug) announced is visible now.
    Inserted(PortId),
    /// The power indicator shows this.
    PowerIndicator(PortId, Indicator),
    /// The attention indicator shows this.
    AttentionIndicator(PortId, Indicator),
    /// Whether memory and I/O requests of the device go upstream changed (Bus Master Enable and
    /// power state of the port and the upstream port).
    BusMaster {
        /// The port.
        port: PortId,
        /// Whether they do.
        enabled: bool,
    },
    /// Bus numbers, a window or an enable bit changed: read
    /// [`mapping`](super::VirtualSwitch::mapping) again.
    WindowsChanged(PortId),
}

/// The bits, lowest first told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Notice {
    ResetAsserted = 1 << 0,
    ResetDeasserted = 1 << 1,
    LinkDisabled = 1 << 2,
    LinkEnabled = 1 << 3,
    LetGo = 1 << 4,
    LetGoUnrequested = 1 << 5,
    RemovalCancelled = 1 << 6,
    Inserted = 1 << 7,
    PowerIndicator = 1 << 8,
    AttentionIndicator = 1 << 9,
    BusMaster = 1 << 10,
    WindowsChanged = 1 << 11,
}

/// What one port has to tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices(u16);

impl Notices {
    pub(crate) fn note(&mut self, notice: Notice) {
        self.0 |= notice as u16;
        // A new assertion makes an end that was not told yet an end of the past.
        match notice {
            Notice::ResetAsserted => self.0 &= !(Notice::ResetDeasserted as u16),
            Notice::LinkDisabled => self.0 &= !(Notice::LinkEnabled as u16),
            _ => {}
        }
    }

    pub(crate) fn forget(&mut self, notice: Notice) {
        self.0 &= !(notice as u16);
    }

    pub(crate) fn take(&mut self) -> Option<Notice> {
        use Notice as N;
        const ORDER: [Notice; 12] = [
            N::ResetAsserted,
            N::ResetDeasserted,
            N::LinkDisabled,
            N::LinkEnabled,
            N::LetGo,
            N::LetGoUnrequested,
            N::RemovalCancelled,
            N::Inserted,
            N::PowerIndicator,
            N::AttentionIndicator,
            N::BusMaster,
            N::WindowsChanged,
        ];
        if self.0 == 0 {
            return None;
        }
        let first = ORDER.into_iter().find(|notice| self.0 & *notice as u16 != 0)?;
        self.0 &= !(first as u16);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_that_begins_and_ends_unseen_is_told_as_both() {
        let mut notices = Notices::default();
        notices.note(Notice::ResetAsserted);
        notices.note(Notice::ResetDeasserted);
        assert_eq!(notices.take(), Some(Notice::ResetAsserted));
        assert_eq!(notices.take(), Some(Notice::ResetDeasserted));
        assert_eq!(notices.take(), None);
    }

    #[test]
    fn a_reset_that_begins_again_is_not_told_as_ended() {
        let mut notices = Notices::default();
        notices.note(Notice::ResetDeasserted);
        notices.note(Notice::ResetAsserted);
        assert_eq!(notices.take(), Some(Notice::ResetAsserted));
        assert_eq!(notices.take(), None);
    }
}
