//! The hot-plug sequence of a port (PCIe 5.0 section 6.7; how operating systems drive it is read
//! from Linux's pciehp).
//!
//! | what | slot | what software does |
//! |---|---|---|
//! | a device is plugged | presence and link active at once, both changes latched, interrupt | power indicator blinks, enumerates, indicator on |
//! | removal is asked for | attention button, only while the power indicator is on | indicator blinks 5 s, unbinds drivers, indicator off |
//! | indicator off | presence and link cleared at once, both changes latched, interrupt | nothing: the slot is off already |
//! | removal by force | presence and link cleared, changes latched, interrupt | unbinds what is gone, indicator off |
//! | a device is plugged after that before software is done | as above | the same for the one that is gone, then for the new one |
//!
//! So an indicator that goes off before it was ever lit for the device that is there now was meant
//! for the one before, and changes nothing. Nor does one that is lit while software was still busy with
//! that one: it had found it, and its drivers took their time.
//!
//! A second press within the 5 s cancels the first, so the button is not pressed again before
//! software has either let go, gone back to "on", or not reacted for [`PRESS_SETTLES`].
//!
//! Some software listens to the button and leaves the indicators alone (Linux behind Intel's VMD
//! leaves them to its user). What it does with the device itself tells then: it has found the
//! device when it configures it, and it has let go when it put the device down or, some time after
//! the button, when no function masters the bus.
//!
//! While nobody listens (hot-plug interrupts off: firmware, an operating system without hot-plug)
//! a plug or removal just happens, and the power indicator follows it, so that software that
//! comes later finds it right.
//!
//! A reset from above makes the indicator follow, too, and software that recovers from one puts the
//! whole register back as it was, with an indicator that may have been off all the time. So the first
//! value that it gives the indicator after a reset says nothing about the device. Software that would
//! let go by that one is asked for the device by button, like any that has not let go, or loses it by
//! force.

use super::VirtualSwitch;
use super::config::slot::{self, Indicator};
use super::events::Notice;
use super::port::{Occupant, Use};
use super::sink::TlpSink;
use super::verdict::Counted;
use crate::control::PortState;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::ids::PortId;

/// How long after a press without any reaction the button may be pressed again. Above the 5 s in
/// which a second press cancels the first.
pub const PRESS_SETTLES: Duration = Duration::from_secs(6);

/// How long software may take to let go of a placeholder before it is taken away: the 5 s of the
/// attention button and as much again for a loaded machine.
pub const PLACEHOLDER_REMOVAL: Duration = Duration::from_secs(10);

/// How long a slot stays empty between a placeholder and the device that follows it.
pub const PLACEHOLDER_GAP: Duration = Duration::from_millis(200);

/// What a port's hot-plug sequence waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// Nothing.
    Settled,
    /// The button was pressed to get the device out.
    Pressed {
        at: Instant,
        /// The indicator has blinked since, or would have, if software used it.
        acknowledged: bool,
        /// When a device that software leaves idle counts as let go, where the indicators do not
        /// tell.
        settles: Option<Instant>,
    },
    /// The placeholder has to go before the device comes.
    MakingRoom { until: Instant, pressed: bool },
    /// The placeholder is gone; the device comes at this time.
    Gap { until: Instant },
}

impl Motion {
    /// Whoever was asked by button has been reset; a plug that was begun goes on.
    pub(crate) fn after_reset(self) -> Self {
        match self {
            Self::Pressed { .. } => Self::Settled,
            Self::MakingRoom { until, .. } => Self::MakingRoom { until, pressed: false },
            other => other,
        }
    }

    fn deadline(self) -> Option<Instant> {
        match self {
            Self::MakingRoom { until, .. } | Self::Gap { until } => Some(until),
            Self::Pressed { settles, .. } => settles,
            Self::Settled => None,
        }
    }
}

/// What came of asking for an orderly removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RemovalRequest {
    /// The attention button was pressed. [`SwitchEvent::LetGo`](super::SwitchEvent::LetGo)
    /// follows when software has let go.
    Pressed,
    /// It was pressed before, and software is at it.
    InProgress,
    /// The power indicator is not solidly on: software is busy with the slot. Ask again when a
    /// [`SwitchEvent::PowerIndicator`](super::SwitchEvent::PowerIndicator) says that it is.
    MustWait,
    /// Software does not listen to the button. It will not let go by itself.
    Unattended,
    /// No device is there. A plug that was under way is called off.
    Empty,
    /// Software has let go of the device already; pressing the button would make it take it up
    /// again.
    LetGo,
}

impl VirtualSwitch {
    /// A device is behind the port, linked: shows it to the host. A placeholder is removed first,
    /// which takes a while; [`SwitchEvent::Inserted`](super::SwitchEvent::Inserted) says when the
    /// device is visible. The device counts as ready (see [`VirtualSwitch::set_ready`]). Where
    /// there is a device already, nothing happens.
    pub fn plug(&mut self, now: Instant, port: PortId, out: &mut impl TlpSink) {
        let slot = self.port(port);
        match (slot.occupant, slot.motion) {
            (Occupant::Device, _) | (_, Motion::MakingRoom { .. } | Motion::Gap { .. }) => {}
            (Occupant::Nobody, _) => self.insert(port),
            (Occupant::Placeholder, _) if slot.is_attended() => {
                let until = now + PLACEHOLDER_REMOVAL;
                self.port_mut(port).motion = Motion::MakingRoom { until, pressed: false };
                self.press_for_room(port);
            }
            (Occupant::Placeholder, _) => {
                self.vacate(port);
                self.insert(port);
            }
        }
        self.flush(out);
    }

    /// Asks the host's software to let go of the device, by attention button.
    pub fn request_removal(
        &mut self,
        now: Instant,
        port: PortId,
        out: &mut impl TlpSink,
    ) -> RemovalRequest {
        let answer = self.request(now, port);
        self.flush(out);
        answer
    }

    fn request(&mut self, now: Instant, port: PortId) -> RemovalRequest {
        let slot = self.port_mut(port);
        if slot.occupant != Occupant::Device {
            slot.motion = Motion::Settled;
            return RemovalRequest::Empty;
        }
        if let Motion::Pressed { at, acknowledged, .. } = slot.motion
            && (acknowledged || now.saturating_since(at) < PRESS_SETTLES)
        {
            return RemovalRequest::InProgress;
        }
        if !slot.is_attended() {
            return RemovalRequest::Unattended;
        }
        let unlit = !slot.uses_indicators && slot.use_of_device.found;
        if unlit && slot.use_of_device.is_put_down() {
            return RemovalRequest::LetGo;
        }
        let lit = slot.power_indicator() == Indicator::On && slot.taken_up;
        if !lit && !unlit {
            return RemovalRequest::MustWait;
        }
        let settles = unlit.then(|| now + PRESS_SETTLES);
        slot.motion = Motion::Pressed { at: now, acknowledged: false, settles };
        self.press(port);
        RemovalRequest::Pressed
    }

    /// The device is gone, or is taken by force: shows the port empty at once. Calls off a plug
    /// that waits for a placeholder.
    pub fn surprise_remove(&mut self, _now: Instant, port: PortId, out: &mut impl TlpSink) {
        let slot = self.port_mut(port);
        slot.motion = Motion::Settled;
        if slot.occupant == Occupant::Device {
            self.vacate(port);
        }
        self.flush(out);
    }

    /// What the port shows.
    pub fn port_state(&self, port: PortId) -> PortState {
        let slot = self.port(port);
        match (slot.occupant, slot.motion) {
            (Occupant::Nobody, _) => PortState::Empty,
            (Occupant::Placeholder, _) => PortState::Placeholder,
            (Occupant::Device, Motion::Pressed { .. }) => PortState::Removing,
            (Occupant::Device, _) => PortState::Present,
        }
    }

    /// Whether a device (not a placeholder) is visible behind the port.
    pub fn is_present(&self, port: PortId) -> bool {
        self.port(port).occupant == Occupant::Device
    }

    /// What the port's power indicator shows.
    pub fn power_indicator(&self, port: PortId) -> Indicator {
        self.port(port).power_indicator()
    }

    fn insert(&mut self, port: PortId) {
        let slot = self.port_mut(port);
        slot.occupant = Occupant::Device;
        slot.ready = true;
        slot.taken_up = false;
        let blinks = slot.power_indicator() == Indicator::Blink;
        let busy = slot.busy_before || slot.use_of_device.found;
        slot.busy_before = blinks && busy && slot.is_attended();
        slot.use_of_device = Use::default();
        slot.motion = Motion::Settled;
        slot.notices.note(Notice::Inserted);
        self.follow_presence(port);
    }

    fn vacate(&mut self, port: PortId) {
        let slot = self.port_mut(port);
        slot.occupant = Occupant::Nobody;
        slot.ready = false;
        slot.notices.forget(Notice::Inserted);
        self.follow_presence(port);
    }

    fn follow_presence(&mut self, port: PortId) {
        let upstream_in_reset = self.upstream_in_reset();
        let slot = self.port_mut(port);
        slot.update_presence(upstream_in_reset);
        if !slot.is_attended() {
            let lit = slot.occupant != Occupant::Nobody;
            slot.set_power_indicator(if lit { Indicator::On } else { Indicator::Off });
        }
        self.link_changed(port);
    }

    fn press(&mut self, port: PortId) {
        self.port_mut(port).bridge.config.set(slot::CONTROL, slot::BUTTON_PRESSED);
        self.counters.count(Counted::ButtonPress);
        self.mark(port);
    }

    fn press_for_room(&mut self, port: PortId) {
        let slot = self.port_mut(port);
        if let Motion::MakingRoom { until, pressed: false } = slot.motion
            && slot.power_indicator() == Indicator::On
        {
            slot.motion = Motion::MakingRoom { until, pressed: true };
            self.press(port);
        }
    }

    /// Software has set the power indicator, and not only put it back.
    pub(crate) fn power_indicator_set(&mut self, now: Instant, port: PortId, to: Indicator) {
        let slot = self.port_mut(port);
        slot.uses_indicators = true;
        let busy_before = core::mem::take(&mut slot.busy_before);
        slot.taken_up |= to != Indicator::Off && !(busy_before && to == Indicator::On);
        match (to, slot.motion) {
            (Indicator::Off, _) => self.let_go(now, port),
            (Indicator::Blink, Motion::Pressed { at, .. }) => {
                slot.motion = Motion::Pressed { at, acknowledged: true, settles: None };
            }
            (Indicator::On, Motion::Pressed { .. }) => {
                slot.motion = Motion::Settled;
                slot.notices.note(Notice::RemovalCancelled);
            }
            (Indicator::On, Motion::MakingRoom { until, .. }) => {
                slot.motion = Motion::MakingRoom { until, pressed: false };
                self.press_for_room(port);
            }
            (Indicator::On | Indicator::Blink, _) => {}
        }
    }

    fn let_go(&mut self, now: Instant, port: PortId) {
        let slot = self.port_mut(port);
        let motion = slot.motion;
        match slot.occupant {
            Occupant::Nobody => return,
            Occupant::Placeholder => {
                if let Motion::MakingRoom { .. } = motion {
                    slot.motion = Motion::Gap { until: now + PLACEHOLDER_GAP };
                }
            }
            Occupant::Device if !slot.taken_up => return,
            Occupant::Device => {
                let requested = matches!(motion, Motion::Pressed { .. });
                slot.motion = Motion::Settled;
                slot.notices.note(if requested { Notice::LetGo } else { Notice::LetGoUnrequested });
            }
        }
        self.vacate(port);
    }

    /// Software configures the device.
    pub fn device_found(&mut self, port: PortId) {
        self.port_mut(port).use_of_device.found = true;
    }

    /// Software wrote the bytes that `enables` names of the Command register of a function of the
    /// device, and the device has taken them.
    pub fn command_written(
        &mut self,
        port: PortId,
        function: u8,
        (command, enables): (u16, u8),
        out: &mut impl TlpSink,
    ) {
        let slot = self.port_mut(port);
        slot.use_of_device.written(function, command, enables);
        if let Motion::Pressed { acknowledged, settles, .. } = slot.motion
            && !slot.uses_indicators
        {
            let settled = acknowledged && settles.is_none();
            if slot.use_of_device.is_put_down() || settled && slot.use_of_device.is_idle() {
                self.let_go_unlit(port);
            }
        }
        self.flush(out);
    }

    /// Software that leaves the indicators alone has let go after the button was pressed.
    fn let_go_unlit(&mut self, port: PortId) {
        let slot = self.port_mut(port);
        slot.motion = Motion::Settled;
        slot.notices.note(Notice::LetGo);
        self.vacate(port);
    }

    /// The first time at which a hot-plug sequence goes on by itself.
    pub(crate) fn hotplug_deadline(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|slot| slot.motion.deadline()).min()
    }

    pub(crate) fn hotplug_timeout(&mut self, now: Instant) {
        for port in self.port_ids() {
            let slot = self.port_mut(port);
            match slot.motion {
                Motion::MakingRoom { until, .. } if until <= now => {
                    slot.motion = Motion::Gap { until: now + PLACEHOLDER_GAP };
                    self.vacate(port);
                }
                Motion::Gap { until } if until <= now => self.insert(port),
                Motion::Pressed { at, settles: Some(until), .. } if until <= now => {
                    slot.motion = Motion::Pressed { at, acknowledged: true, settles: None };
                    if slot.use_of_device.is_idle() {
                        self.let_go_unlit(port);
                    }
                }
                _ => {}
            }
        }
    }
}
