//! What every port of the switch is: a function with a type 1 header.

use super::config::header::Range;
use super::config::{
    ConfigSpace, Layout, ResetKind, Written, access_control, express, header, identity, msi, power,
    slot,
};
use super::errors::Severities;
use super::settings::SwitchConfig;

/// What a port still has to send towards the root complex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) interrupt: bool,
    pub(crate) power_event: bool,
    pub(crate) errors: Severities,
}

/// What software programmed, decoded: looked at for every TLP, changed by few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// In D0.
    pub(crate) awake: bool,
    /// Bus Master Enable, and in D0.
    pub(crate) masters: bool,
    /// Memory Space Enable, and in D0.
    pub(crate) memory_enabled: bool,
    /// I/O Space Enable, and in D0.
    pub(crate) io_enabled: bool,
    isa: bool,
    pub(crate) secondary: u8,
    pub(crate) subordinate: u8,
    pub(crate) memory: Range,
    pub(crate) prefetchable: Range,
    pub(crate) io: Range,
    /// Max_Payload_Size as software set it, never above what is supported, in bytes.
    pub(crate) max_payload: usize,
    /// AtomicOp Egress Blocking.
    pub(crate) blocks_atomics: bool,
    /// End-End TLP Prefix Blocking.
    pub(crate) blocks_prefixes: bool,
    /// ACS Control, as its register has it. (The upstream port has none.)
    access_control: u32,
}

impl Decoded {
    fn of(config: &ConfigSpace) -> Self {
        let awake = !config.any(power::CONTROL, power::STATE);
        let enabled = |bit| awake && config.any(header::COMMAND, bit);
        let (secondary, subordinate) = header::buses(config);
        Self {
            awake,
            masters: enabled(header::BUS_MASTER),
            memory_enabled: enabled(header::MEMORY_ENABLE),
            io_enabled: enabled(header::IO_ENABLE),
            isa: config.any(header::BRIDGE_CONTROL, header::BRIDGE_ISA),
            secondary,
            subordinate,
            memory: header::memory_window(config),
            prefetchable: header::prefetchable_window(config),
            io: header::io_window(config),
            max_payload: max_payload(config),
            blocks_atomics: config.any(express::DEVICE_CONTROL_2, express::ATOMIC_BLOCKING),
            blocks_prefixes: config.any(express::DEVICE_CONTROL_2, express::PREFIX_BLOCKING),
            access_control: config.read(access_control::CONTROL),
        }
    }

    /// Whether an ACS control is on.
    pub(crate) fn controls_access(&self, control: u32) -> bool {
        self.access_control & control != 0
    }

    /// Whether an address is in one of the open memory windows.
    pub(crate) fn claims_memory(&self, address: u64) -> bool {
        self.memory_enabled
            && (header::holds(self.memory, address) || header::holds(self.prefetchable, address))
    }

    /// Whether an I/O address is in the open window.
    pub(crate) fn claims_io(&self, address: u64) -> bool {
        self.io_enabled
            && header::holds(self.io, address)
            && !(self.isa && header::is_isa_alias(address))
    }

    /// Whether a bus number is from secondary to subordinate. Bus 0 is behind no switch.
    pub(crate) fn holds_bus(&self, bus: u8) -> bool {
        self.secondary != 0 && (self.secondary..=self.subordinate).contains(&bus)
    }
}

fn max_payload(config: &ConfigSpace) -> usize {
    let set = (config.get(express::DEVICE_CONTROL) & express::PAYLOAD_SIZE) >> 5;
    let most = config.get(express::DEVICE_CAPABILITIES) & express::PAYLOAD_SUPPORTED;
    128 << set.min(most)
}

/// The open memory windows of a port, side by side with the other ports' in one short table: every
/// memory request of a device is held against all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryClaim {
    memory: (u64, u64),
    prefetchable: (u64, u64),
}

impl MemoryClaim {
    /// Holds no address.
    pub(crate) const NOTHING: Self = Self { memory: (u64::MAX, 0), prefetchable: (u64::MAX, 0) };

    pub(crate) fn of(decoded: &Decoded) -> Self {
        let open = |range: Range| range.filter(|_| decoded.memory_enabled).unwrap_or((u64::MAX, 0));
        Self { memory: open(decoded.memory), prefetchable: open(decoded.prefetchable) }
    }

    /// Whether it holds any address.
    pub(crate) fn is_some(&self) -> bool {
        let any = |(base, limit): (u64, u64)| base <= limit;
        any(self.memory) || any(self.prefetchable)
    }

    /// Holds what either holds, and what is between.
    pub(crate) fn hull(self, other: &Self) -> Self {
        let both = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
        Self {
            memory: both(self.memory, other.memory),
            prefetchable: both(self.prefetchable, other.prefetchable),
        }
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        let within = |(base, limit): (u64, u64)| base <= address && address <= limit;
        within(self.memory) | within(self.prefetchable)
    }
}

/// One port's function.
pub(crate) struct Bridge {
    pub(crate) config: ConfigSpace,
    pub(crate) decoded: Decoded,
    pub(crate) unsent: Unsent,
    /// Causes for which an interrupt was due already.
    interrupting: u32,
    /// Causes for which a power management event was due already.
    waking: u32,
}

impl Bridge {
    pub(crate) fn new(layout: &'static Layout, settings: &SwitchConfig, device_id: u16) -> Self {
        let mut config = ConfigSpace::new(layout);
        let id = u32::from(device_id) << 16 | u32::from(settings.vendor_id);
        config.define(header::ID, u32::MAX, id);
        config.define(header::CLASS, 0xff, u32::from(settings.revision));
        let (vendor, subsystem) = settings.subsystem;
        let subsystem = u32::from(subsystem) << 16 | u32::from(vendor);
        config.define(identity::SUBSYSTEM, u32::MAX, subsystem);
        let payload = settings.payload_code();
        config.define(express::DEVICE_CAPABILITIES, express::PAYLOAD_SUPPORTED, payload);
        let decoded = Decoded::of(&config);
        Self { config, decoded, unsent: Unsent::default(), interrupting: 0, waking: 0 }
    }

    /// Software writes a register.
    pub(crate) fn write(&mut self, register: u16, value: u32, enables: u8) -> Option<Written> {
        let mut written = self.config.write(register, value, enables)?;
        if written.offset == power::CONTROL && !power::is_supported(written.new) {
            // A state that is not supported is not entered (PCIe 5.0 section 7.5.2.2).
            self.config.put(power::CONTROL, power::STATE, written.old);
            written.new = self.config.get(power::CONTROL);
        }
        self.decoded = Decoded::of(&self.config);
        Some(written)
    }

    /// The function is reset, and with it everything that was to be signalled is forgotten.
    pub(crate) fn reset(&mut self, kind: ResetKind) {
        self.config.reset(kind);
        self.decoded = Decoded::of(&self.config);
        self.unsent = Unsent::default();
        self.interrupting = 0;
        self.waking = 0;
    }

    /// Hot-plug events that are enabled and active (PCIe 5.0 section 6.7.3.1), as bits of the slot's
    /// status.
    fn events(&self) -> u32 {
        let slot = self.config.read(slot::CONTROL);
        let mut events = 0;
        for (enable, status) in [
            (slot::BUTTON_ENABLE, slot::BUTTON_PRESSED),
            (slot::PRESENCE_ENABLE, slot::PRESENCE_CHANGED),
            (slot::LINK_STATE_ENABLE, slot::LINK_STATE_CHANGED),
        ] {
            if slot & enable != 0 {
                events |= slot & status;
            }
        }
        events
    }

    /// Causes of an interrupt: those events, where they interrupt, and link bandwidth management
    /// (PCIe 5.0 section 7.5.3.7), as bits of both status registers.
    fn causes(&self, events: u32) -> u32 {
        let interrupts = self.config.any(slot::CONTROL, slot::INTERRUPT_ENABLE);
        let link = self.config.read(express::LINK_CONTROL);
        let bandwidth = match link & express::BANDWIDTH_INTERRUPT {
            0 => 0,
            _ => link & express::BANDWIDTH_STATUS,
        };
        if interrupts { events | bandwidth } else { bandwidth }
    }

    /// Looks whether an interrupt, or from D3hot a power management event, is due.
    ///
    /// PCIe asks for a message whenever the condition "enabled, and some enabled status bit set"
    /// becomes true. This sends one for *each* enabled status bit that becomes set, which
    /// includes all of those: software that clears status bits one by one misses nothing.
    pub(crate) fn update_interrupt(&mut self, upstream_masters: bool) {
        let can_interrupt =
            self.decoded.masters && upstream_masters && self.config.any(msi::AT, msi::ENABLE);
        let can_wake = !self.decoded.awake && self.config.any(power::CONTROL, power::PME_ENABLE);
        let events = self.events();
        let interrupting = if can_interrupt { self.causes(events) } else { 0 };
        // Whether events interrupt is nothing to this: software that sleeps wants to be woken alone
        // (PCIe 5.0 section 6.7.3.4).
        let waking = if can_wake { events } else { 0 };
        if interrupting & !self.interrupting != 0 {
            self.unsent.interrupt = true;
        } else if interrupting == 0 {
            self.unsent.interrupt = false;
        }
        if waking & !self.waking != 0 && self.config.set(power::CONTROL, power::PME_STATUS) {
            self.unsent.power_event = true;
        }
        self.interrupting = interrupting;
        self.waking = waking;
    }

    /// Whether its power management event waits for software to clear PME_Status.
    pub(crate) fn waits_for_service(&self) -> bool {
        let power = self.config.read(power::CONTROL);
        let asks = power & power::PME_ENABLE != 0 && power & power::PME_STATUS != 0;
        asks && !self.decoded.awake
    }

    /// Its event is to be sent, or sent again, if it still waits for service.
    pub(crate) fn may_wake(&mut self) {
        self.unsent.power_event = self.waits_for_service();
    }
}
