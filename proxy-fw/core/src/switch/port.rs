//! A downstream port: its function, and what is behind it.

use super::bridge::Bridge;
use super::config::{ResetKind, express, header, layouts, slot};
use super::events::{Notice, Notices};
use super::hotplug::Motion;
use super::placeholder::PlaceholderFunction;
use super::settings::SwitchConfig;
use crate::canaries::{Canary, planted};
use crate::config_space::lanes;
use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use tlp_codec::ids::PortId;

/// What is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    Nobody,
    Placeholder,
    Device,
}

/// What the Command registers of a device's functions tell about what software does with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    command: [u16; 8],
    /// Memory space of function 0 was turned off and not on again: that is done before a reset that
    /// the driver lives through, and not by pciehp.
    closed: bool,
    /// Software wrote to the device's configuration space: it has found it.
    pub(crate) found: bool,
}

impl Use {
    /// Software wrote the bytes that `enables` names of a Command register.
    pub(crate) fn written(&mut self, function: u8, command: u16, enables: u8) {
        let Some(held) = self.command.get_mut(usize::from(function)) else { return };
        let lanes = lanes(enables) as u16;
        let before = *held;
        *held = before & !lanes | command & lanes;
        if function == 0 {
            let opens = |command| u32::from(command) & header::MEMORY_ENABLE != 0;
            self.closed = !opens(*held) && (self.closed || opens(before));
        }
    }

    /// Whether no function can master the bus: no driver has it.
    pub(crate) fn is_idle(&self) -> bool {
        self.command.iter().all(|command| u32::from(*command) & header::BUS_MASTER == 0)
    }

    /// Whether the device was left as Linux's pciehp leaves one that it is done with: Bus Master
    /// and SERR# off, INTx disabled. (Function 0 is the last that it comes to.)
    pub(crate) fn is_put_down(&self) -> bool {
        let all = header::BUS_MASTER | header::SERR_ENABLE | header::INTX_DISABLE;
        u32::from(self.command[0]) & all == header::INTX_DISABLE && !self.closed
    }
}

/// One downstream port.
pub(crate) struct DownstreamPort {
    pub(crate) bridge: Bridge,
    pub(crate) occupant: Occupant,
    /// The placeholder that it shows at boot, if any.
    pub(crate) placeholder: Option<PlaceholderFunction>,
    /// The link is up: what Data Link Layer Link Active says.
    link_up: bool,
    /// Whether the device takes requests; until then configuration requests are to be retried.
    pub(crate) ready: bool,
    /// The power indicator has been lit for the device that is here now: switching it off lets go
    /// of this one.
    pub(crate) taken_up: bool,
    /// Software was still busy with the device before when this one came: it lights the indicator once
    /// for that one.
    pub(crate) busy_before: bool,
    /// Software has switched the power indicator since the last reset, and not only put it back: what it
    /// shows means something.
    pub(crate) uses_indicators: bool,
    /// Software has given the power indicator a value since the last reset.
    pub(crate) is_controlled: bool,
    /// What software did with the device that is here now.
    pub(crate) use_of_device: Use,
    /// What the hot-plug sequence waits for.
    pub(crate) motion: Motion,
    pub(crate) notices: Notices,
    /// INTA to INTD as the device asserts them, bits 0 to 3.
    pub(crate) wires: u8,
    /// Whether the device may use translated addresses.
    pub(crate) translation_granted: bool,
    /// Bus mastering as it was last told.
    pub(crate) mastering: bool,
}

/// All downstream ports of a switch, and whether one may have something to tell: whoever was given
/// one to change may have left a notice there.
pub(crate) struct Ports {
    all: Box<[DownstreamPort]>,
    changed: bool,
    /// The port whose notices are told next.
    next: usize,
}

impl Ports {
    pub(crate) fn new(all: Box<[DownstreamPort]>) -> Self {
        Self { all, changed: true, next: 0 }
    }

    /// The next notice, and the index of its port. Costs nothing while no port was changed.
    pub(crate) fn take_notice(&mut self) -> Option<(usize, Notice)> {
        if !self.changed {
            return None;
        }
        for _ in 0..self.all.len() {
            let index = self.next;
            if let Some(notice) = self.all[index].notices.take() {
                return Some((index, notice));
            }
            self.next = (index + 1) % self.all.len();
        }
        self.changed = false;
        None
    }
}

impl Deref for Ports {
    type Target = [DownstreamPort];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Ports {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.changed = true;
        &mut self.all
    }
}

impl DownstreamPort {
    #[inline(never)] // it is done once: short code counts
    pub(crate) fn new(id: PortId, settings: &SwitchConfig) -> Self {
        let mut bridge = Bridge::new(&layouts::DOWNSTREAM, settings, settings.downstream_device_id);
        let number = u32::from(settings.first_slot_number + u16::from(id.get()));
        bridge.config.define(
            slot::SLOT_CAPABILITIES,
            slot::PHYSICAL_NUMBER,
            number << slot::PHYSICAL_NUMBER_SHIFT,
        );
        // Port number 0 is the upstream port.
        let number = u32::from(id.get()) + 1;
        bridge.config.define(express::LINK_CAPABILITIES, express::PORT_NUMBER, number << 24);
        let placeholder = settings.placeholders[usize::from(id.get())]
            .map(|what| PlaceholderFunction::new(&what, settings));
        let occupant = if placeholder.is_some() { Occupant::Placeholder } else { Occupant::Nobody };
        let mut port = Self {
            bridge,
            occupant,
            placeholder,
            link_up: false,
            ready: false,
            taken_up: false,
            busy_before: false,
            uses_indicators: false,
            is_controlled: false,
            use_of_device: Use::default(),
            motion: Motion::Settled,
            notices: Notices::default(),
            wires: 0,
            translation_granted: false,
            mastering: false,
        };
        port.show_presence();
        port
    }

    /// Whether the link is up: something is there, and software does not hold the link down.
    pub(crate) fn link_is_up(&self) -> bool {
        self.link_up
    }

    /// Whether TLPs pass between the switch and a device.
    pub(crate) fn is_open(&self) -> bool {
        self.occupant == Occupant::Device && self.ready && self.link_is_up()
    }

    fn link_should_be_up(&self, upstream_in_reset: bool) -> bool {
        self.occupant != Occupant::Nobody
            && !upstream_in_reset
            && !self.bridge.config.any(express::LINK_CONTROL, express::LINK_DISABLE)
            && !self.bridge.config.any(header::BRIDGE_CONTROL, header::SECONDARY_BUS_RESET)
    }

    /// Lets presence and link state follow what is there, and latches their changes
    /// (PCIe 5.0 section 6.7.3.3).
    pub(crate) fn update_presence(&mut self, upstream_in_reset: bool) {
        let present = self.occupant != Occupant::Nobody;
        if present != self.bridge.config.any(slot::CONTROL, slot::PRESENT) {
            let state = if present { slot::PRESENT } else { 0 };
            self.bridge.config.put(slot::CONTROL, slot::PRESENT, state);
            self.bridge.config.set(slot::CONTROL, slot::PRESENCE_CHANGED);
        }
        let up = self.link_should_be_up(upstream_in_reset);
        if up != self.link_up {
            self.link_up = up;
            let state = if up { express::LINK_ACTIVE } else { 0 };
            self.bridge.config.put(express::LINK_CONTROL, express::LINK_ACTIVE, state);
            self.bridge.config.set(slot::CONTROL, slot::LINK_STATE_CHANGED);
        }
        if !up && !planted(Canary::KeepWires) {
            // A link that is down holds no wire (PCIe 5.0 section 2.2.8.1).
            self.wires = 0;
        }
    }

    /// After a reset: presence, link and power indicator show what is there, and nothing counts
    /// as changed.
    fn show_presence(&mut self) {
        self.update_presence(false);
        let changes = slot::PRESENCE_CHANGED | slot::LINK_STATE_CHANGED;
        self.bridge.config.put(slot::CONTROL, changes, 0);
        let lit = self.occupant != Occupant::Nobody;
        self.set_power_indicator(if lit { slot::Indicator::On } else { slot::Indicator::Off });
    }

    /// What the power indicator shows. (A reserved value is never stored.)
    pub(crate) fn power_indicator(&self) -> slot::Indicator {
        let bits = self.bridge.config.get(slot::CONTROL) >> slot::POWER_CONTROL_SHIFT;
        slot::Indicator::from_bits(bits).unwrap_or(slot::Indicator::Off)
    }

    /// What the attention indicator shows.
    pub(crate) fn attention_indicator(&self) -> slot::Indicator {
        let bits = self.bridge.config.get(slot::CONTROL) >> slot::ATTENTION_CONTROL_SHIFT;
        slot::Indicator::from_bits(bits).unwrap_or(slot::Indicator::Off)
    }

    /// The power indicator follows what is here: nobody listens.
    pub(crate) fn set_power_indicator(&mut self, indicator: slot::Indicator) {
        self.taken_up = indicator == slot::Indicator::On;
        if self.power_indicator() != indicator {
            self.notices.note(Notice::PowerIndicator);
        }
        let bits = indicator.bits() << slot::POWER_CONTROL_SHIFT;
        self.bridge.config.put(slot::CONTROL, slot::POWER_CONTROL, bits);
    }

    /// Whether software listens to the attention button: by interrupts, by looking, or when it is
    /// woken.
    pub(crate) fn is_attended(&self) -> bool {
        self.bridge.config.any(slot::CONTROL, slot::BUTTON_ENABLE)
    }

    /// The port is reset, from above.
    pub(crate) fn reset(&mut self, kind: ResetKind) {
        self.bridge.reset(kind);
        self.link_up = false;
        if kind == ResetKind::Fundamental
            && self.occupant == Occupant::Nobody
            && self.placeholder.is_some()
        {
            // The host boots again: the room is shown again.
            self.occupant = Occupant::Placeholder;
            if let Motion::Gap { until } = self.motion {
                // A device that was about to come has its way to make once more.
                self.motion = Motion::MakingRoom { until, pressed: false };
            }
        }
        if let Some(placeholder) = &mut self.placeholder {
            placeholder.reset(kind);
        }
        self.wires = 0;
        self.ready = false;
        self.uses_indicators = false;
        self.is_controlled = false;
        self.use_of_device = Use::default();
        self.motion = self.motion.after_reset();
        self.notices.note(Notice::WindowsChanged);
        self.show_presence();
    }
}
