//! The virtual PCIe switch that a host sees: one upstream port, 1 to 32 downstream ports with
//! hot-plug slots, each with a full configuration space.
//!
//! It takes TLPs from the root complex ([`VirtualSwitch::handle_downstream`]) and from the devices
//! ([`VirtualSwitch::handle_upstream`]), says where each goes, and makes what a switch makes
//! itself: completions for its own configuration space and for requests that nobody claims,
//! interrupts, error messages, power management acknowledgements. The hot-plug side is
//! [`VirtualSwitch::plug`], [`VirtualSwitch::request_removal`] and
//! [`VirtualSwitch::surprise_remove`]; what software does to the ports comes back by
//! [`VirtualSwitch::poll_event`]. `docs/switch.md` is the longer story.
//!
//! | file | what |
//! |---|---|
//! | `config` | registers and capabilities, as tables |
//! | `bridge`, `port` | a port's function; a downstream port and what is behind it |
//! | `configuration` | configuration requests and what writes do |
//! | `downstream`, `upstream` | where a TLP goes |
//! | `messages` | messages by their routing; INTx wires; PME_Turn_Off |
//! | `hotplug`, `placeholder` | the slot sequence; room held at boot |
//! | `errors`, `signals` | AER; everything that is sent to the root complex unasked |
//! | `completion` | completions |

pub(crate) mod bridge;
pub mod completion;
pub(crate) mod config;
mod configuration;
mod downstream;
pub(crate) mod errors;
mod events;
mod hotplug;
mod messages;
mod placeholder;
mod port;
mod settings;
mod signals;
mod sink;
mod upstream;
mod verdict;

#[cfg(test)]
mod tests;

pub use crate::config_space::ResetKind;
pub use config::express::{LINK_SPEED, LINK_WIDTH};
pub use config::slot::Indicator;
pub use events::SwitchEvent;
pub use hotplug::{PLACEHOLDER_GAP, PLACEHOLDER_REMOVAL, PRESS_SETTLES, RemovalRequest};
pub use placeholder::{Placeholder, PlaceholderSize};
pub use settings::{SwitchConfig, SwitchConfigError};
pub use sink::TlpSink;
pub use verdict::{Cause, DownstreamVerdict, PortError, UpstreamVerdict};

use crate::canaries::{Canary, planted};
use crate::control::WindowRange;
use crate::counters::CounterList;
use crate::time::Instant;
use alloc::boxed::Box;
use bridge::{Bridge, Decoded, MemoryClaim};
use completion::Completion;
use config::{header, identity, layouts};
use events::Notice;
use messages::TurnOff;
use port::{DownstreamPort, Ports};
use tlp_codec::ids::{Bdf, Bus, Device, Function, PortId};
use tlp_codec::tlp::{Class, CplStatus, Packet};
use verdict::{Counted, Counters};

/// A downstream port as the operating system programmed it: one entry of the mapping table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// Secondary and subordinate bus number; both 0 before enumeration.
    pub buses: (u8, u8),
    /// The routing ID that the device behind the port has
    /// ([`device_id`](VirtualSwitch::device_id)).
    pub device: Bdf,
    /// 32-bit non-prefetchable window, first and last address.
    pub memory: WindowRange,
    /// 64-bit prefetchable window.
    pub prefetchable: WindowRange,
    /// I/O window.
    pub io: WindowRange,
    /// Memory Space Enable of the port.
    pub memory_enabled: bool,
    /// I/O Space Enable of the port.
    pub io_enabled: bool,
    /// Whether memory and I/O requests of the device go upstream.
    pub bus_master: bool,
}

/// A port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Upstream,
    Port(PortId),
}

impl Who {
    const fn refuses(self, cause: Cause) -> Refusal {
        Refusal { by: self, cause }
    }
}

/// A TLP that goes nowhere: which port says so, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    by: Who,
    cause: Cause,
}

/// The virtual switch.
pub struct VirtualSwitch {
    upstream: Bridge,
    /// The upstream port's ID, as the last configuration write told it.
    id: Bdf,
    ports: Ports,
    /// The ports' open memory windows, for look-up.
    claims: Box<[MemoryClaim]>,
    /// From the first to the last address that any port claims. Most of a device's requests are
    /// for host memory, outside of it, and need one look.
    reach: MemoryClaim,
    /// Ports that may have something to send: bit n is port n, bit 32 the upstream port.
    dirty: u64,
    /// A sink was full; what is left goes with the next call.
    blocked: bool,
    /// When power management events are due again, if any may wait for service.
    power_events_at: Option<Instant>,
    /// INTA to INTD as they were last sent upstream.
    wires: u8,
    turn_off: TurnOff,
    counters: Counters,
}

const UPSTREAM_DIRTY: u64 = 1 << 32;

impl VirtualSwitch {
    /// A switch after power-on, with its placeholders in place and no device.
    ///
    /// # Errors
    ///
    /// When the configuration is not possible.
    #[inline(never)] // it is done once: short code counts
    pub fn new(config: &SwitchConfig) -> Result<Self, SwitchConfigError> {
        config.check()?;
        let mut upstream = Bridge::new(&layouts::UPSTREAM, config, config.upstream_device_id);
        let serial = config.serial;
        upstream.config.define(identity::SERIAL_LOWER, u32::MAX, serial as u32);
        upstream.config.define(identity::SERIAL_UPPER, u32::MAX, (serial >> 32) as u32);
        let ports = (0..config.ports).filter_map(|port| PortId::new(port).ok());
        let ports: Box<[_]> = ports.map(|port| DownstreamPort::new(port, config)).collect();
        let claims = ports.iter().map(|port| MemoryClaim::of(&port.bridge.decoded)).collect();
        Ok(Self {
            upstream,
            id: Bdf::default(),
            ports: Ports::new(ports),
            claims,
            reach: MemoryClaim::NOTHING,
            dirty: 0,
            blocked: false,
            power_events_at: None,
            wires: 0,
            turn_off: TurnOff::Idle,
            counters: Counters::new(),
        })
    }

    /// Whether the switch has this port.
    pub fn has_port(&self, port: PortId) -> bool {
        usize::from(port.get()) < self.ports.len()
    }

    /// The downstream ports, in order.
    pub fn port_ids(&self) -> impl Iterator<Item = PortId> + use<> {
        let count = self.ports.len() as u8;
        (0..count).filter_map(|port| PortId::new(port).ok())
    }

    /// # Panics
    ///
    /// When the switch has no such port. Every method that takes a port says the same: ports come
    /// from the owner's own tables.
    fn port(&self, port: PortId) -> &DownstreamPort {
        &self.ports[usize::from(port.get())]
    }

    fn port_mut(&mut self, port: PortId) -> &mut DownstreamPort {
        &mut self.ports[usize::from(port.get())]
    }

    /// The routing ID of a downstream port itself.
    pub fn port_id(&self, port: PortId) -> Bdf {
        let bus = Bus::new(self.upstream.decoded.secondary).unwrap_or(Bus::MAX);
        let device = Device::new(port.get()).unwrap_or(Device::MAX);
        Bdf::from_bits(Bdf::new(bus, device, Function::MAX).bits() & !7)
    }

    /// The routing ID that the device behind a port has: device 0, function 0 of the port's
    /// secondary bus.
    pub fn device_id(&self, port: PortId) -> Bdf {
        Bdf::from_bits(u16::from(self.port(port).bridge.decoded.secondary) << 8)
    }

    /// The routing ID of the upstream port, from the last configuration write to it.
    pub fn upstream_id(&self) -> Bdf {
        self.id
    }

    /// Bus numbers and windows of a port, as they are programmed now.
    pub fn mapping(&self, port: PortId) -> PortMapping {
        let decoded = &self.port(port).bridge.decoded;
        PortMapping {
            buses: (decoded.secondary, decoded.subordinate),
            device: self.device_id(port),
            memory: decoded.memory,
            prefetchable: decoded.prefetchable,
            io: decoded.io,
            memory_enabled: decoded.memory_enabled,
            io_enabled: decoded.io_enabled,
            bus_master: decoded.masters && self.upstream.decoded.masters,
        }
    }

    /// Max_Payload_Size as software set it for the link to the device behind a port, in bytes.
    pub fn max_payload(&self, port: PortId) -> usize {
        self.port(port).bridge.decoded.max_payload
    }

    /// Max_Payload_Size as software set it for the link to the root complex, in bytes.
    pub fn upstream_max_payload(&self) -> usize {
        self.upstream.decoded.max_payload
    }

    /// Whether the port's link is up: something is there, and software holds the link neither
    /// disabled nor in reset.
    pub fn is_link_up(&self, port: PortId) -> bool {
        self.port(port).link_is_up()
    }

    /// Whether TLPs pass between the switch and the device behind a port.
    pub fn is_open(&self, port: PortId) -> bool {
        self.port(port).is_open()
    }

    /// Whether the device behind a port takes requests. While it does not, configuration requests
    /// get retry status, and everything else is refused both ways as if the link were down.
    /// [`VirtualSwitch::plug`] makes it ready; every reset of the port makes it not ready.
    pub fn set_ready(&mut self, port: PortId, ready: bool) {
        let slot = self.port_mut(port);
        slot.ready = ready && slot.occupant == port::Occupant::Device;
    }

    /// Whether the device behind a port may use translated addresses (AT other than 0).
    /// Translation Blocking still stops it.
    pub fn grant_translation(&mut self, port: PortId, granted: bool) {
        self.port_mut(port).translation_granted = granted;
    }

    /// Reset from the root complex: in-band, or PERST#. The ports forget what software told them;
    /// what is behind them stays, and is not ready until [`VirtualSwitch::set_ready`]. After
    /// [`ResetKind::Fundamental`] empty ports show their placeholders again.
    pub fn handle_reset(&mut self, kind: ResetKind) {
        self.upstream.reset(kind);
        self.id = Bdf::default();
        self.turn_off = TurnOff::Idle;
        self.wires = 0;
        self.blocked = false;
        self.power_events_at = None;
        for port in self.ports.iter_mut() {
            port.reset(kind);
        }
        self.programmed();
        self.dirty = 0;
    }

    /// Reports something that is wrong with a port or with what is behind it: latched, logged
    /// with the header of `tlp`, and told by an error message where software enabled it.
    pub fn report_error(
        &mut self,
        _now: Instant,
        port: PortId,
        error: PortError,
        tlp: Option<&[u8]>,
        out: &mut impl TlpSink,
    ) {
        self.port_mut(port).bridge.report(error, false, tlp);
        self.mark(port);
        self.flush(out);
    }

    /// Reports bytes that break TLP rules: they came to a downstream port, or without one to the
    /// upstream port, and are gone.
    pub fn report_malformed(&mut self, port: Option<PortId>, tlp: &[u8], out: &mut impl TlpSink) {
        let who = port.map_or(Who::Upstream, Who::Port);
        self.bridge_mut(who).report(PortError::Malformed, false, Some(tlp));
        self.mark_who(who);
        self.flush(out);
    }

    /// The first time at which [`VirtualSwitch::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.blocked {
            return Some(Instant::ZERO);
        }
        let deadlines = [self.hotplug_deadline(), self.turn_off.deadline(), self.power_events_at];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut impl TlpSink) {
        self.hotplug_timeout(now);
        self.turn_off_timeout(now);
        self.power_events_timeout(now);
        self.flush(out);
        // Those that were sent just now wait from now on.
        self.power_events_timeout(now);
    }

    /// What happened. To be polled until there is nothing more, after every call.
    pub fn poll_event(&mut self) -> Option<SwitchEvent> {
        let (index, notice) = self.ports.take_notice()?;
        let port = PortId::new(index as u8).unwrap_or(PortId::MAX);
        Some(self.event(port, notice))
    }

    fn event(&self, port: PortId, notice: Notice) -> SwitchEvent {
        let slot = self.port(port);
        match notice {
            Notice::ResetAsserted => SwitchEvent::SecondaryBusReset { port, asserted: true },
            Notice::ResetDeasserted => SwitchEvent::SecondaryBusReset { port, asserted: false },
            Notice::LinkDisabled => SwitchEvent::LinkDisabled { port, disabled: true },
            Notice::LinkEnabled => SwitchEvent::LinkDisabled { port, disabled: false },
            Notice::LetGo => SwitchEvent::LetGo { port, requested: true },
            Notice::LetGoUnrequested => SwitchEvent::LetGo { port, requested: false },
            Notice::RemovalCancelled => SwitchEvent::RemovalCancelled(port),
            Notice::Inserted => SwitchEvent::Inserted(port),
            Notice::PowerIndicator => SwitchEvent::PowerIndicator(port, slot.power_indicator()),
            Notice::AttentionIndicator => {
                SwitchEvent::AttentionIndicator(port, slot.attention_indicator())
            }
            Notice::BusMaster => SwitchEvent::BusMaster { port, enabled: slot.mastering },
            Notice::WindowsChanged => SwitchEvent::WindowsChanged(port),
        }
    }

    /// Names and values of all counters.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut list = CounterList::default();
        self.list_counters(&mut list);
        list.into_iter()
    }

    pub(crate) fn list_counters(&self, list: &mut CounterList) {
        self.counters.list(list);
    }

    fn mark(&mut self, port: PortId) {
        self.dirty |= 1 << port.get();
    }

    fn mark_upstream(&mut self) {
        // Bus mastering and error forwarding of the upstream port matter to every port.
        self.dirty |= UPSTREAM_DIRTY | (UPSTREAM_DIRTY - 1) >> (32 - self.ports.len());
    }

    fn mark_who(&mut self, who: Who) {
        match who {
            Who::Upstream => self.dirty |= UPSTREAM_DIRTY,
            Who::Port(port) => self.mark(port),
        }
    }

    fn bridge_mut(&mut self, who: Who) -> &mut Bridge {
        match who {
            Who::Upstream => &mut self.upstream,
            Who::Port(port) => &mut self.port_mut(port).bridge,
        }
    }

    fn upstream_in_reset(&self) -> bool {
        self.upstream.config.any(header::BRIDGE_CONTROL, header::SECONDARY_BUS_RESET)
    }

    /// The port behind which a function is, by the bus of its ID.
    pub fn port_behind(&self, id: Bdf) -> Option<PortId> {
        self.port_of_bus(id.bus().get())
    }

    /// The port behind which a bus is.
    fn port_of_bus(&self, bus: u8) -> Option<PortId> {
        // A port on the switch's own bus number is not programmed yet.
        let own = self.upstream.decoded.secondary;
        self.port_where(|bridge| bridge.decoded.secondary != own && bridge.decoded.holds_bus(bus))
    }

    fn port_where(&self, claims: impl Fn(&Bridge) -> bool) -> Option<PortId> {
        let index = self.ports.iter().position(|port| claims(&port.bridge))?;
        PortId::new(index as u8).ok()
    }

    /// Something was programmed: looks what follows for the ports.
    fn programmed(&mut self) {
        let above = self.upstream.decoded.masters;
        self.reach = MemoryClaim::NOTHING;
        for (port, claim) in self.ports.iter_mut().zip(&mut self.claims) {
            if !(planted(Canary::KeepWindows) && claim.is_some()) {
                *claim = MemoryClaim::of(&port.bridge.decoded);
            }
            self.reach = self.reach.hull(claim);
            let masters = above && port.bridge.decoded.masters;
            if masters != port.mastering {
                port.mastering = masters;
                port.notices.note(Notice::BusMaster);
            }
        }
    }

    /// The link of a port may have changed.
    fn link_changed(&mut self, port: PortId) {
        self.mark(port);
        if !self.port(port).is_open() {
            self.turn_off.acknowledged(port);
        }
    }

    fn complete(&mut self, completion: &Completion, sink: &mut impl TlpSink) {
        if !sink.push(completion.as_bytes()) {
            self.counters.count(Counted::CompletionLost);
        }
    }

    /// Answers, reports and counts a TLP that goes nowhere.
    fn refuse(&mut self, refusal: Refusal, tlp: &[u8], sink: &mut impl TlpSink) -> Cause {
        let Refusal { by, cause } = refusal;
        self.counters.discard(cause);
        let Ok(packet) = Packet::new_checked(tlp) else {
            return cause;
        };
        let (status, error) = cause.answer();
        let answered = packet.class() == Some(Class::NonPosted);
        if answered {
            let completer = match by {
                Who::Upstream => self.id,
                Who::Port(port) => self.port_id(port),
            };
            self.complete(&Completion::without_data(&packet, completer, status), sink);
            if status == CplStatus::CompleterAbort {
                // Only what comes from below is aborted.
                let bridge = self.bridge_mut(by);
                bridge.config.set(header::IO, header::SIGNALED_TARGET_ABORT);
            }
        }
        if let Some(error) = error {
            // Section 6.2.3.2.4: who completes a request unsuccessfully, or gets a completion
            // that it did not expect, leaves the error to the requester.
            let advisory = answered || error == PortError::UnexpectedCompletion;
            self.bridge_mut(by).report(error, advisory, Some(tlp));
            self.mark_who(by);
        }
        cause
    }

    /// Whether a broadcast message leaves by a port, whose link is up. What the port lets nobody have
    /// is an error of it.
    pub(crate) fn passes_broadcast(
        &mut self,
        port: PortId,
        tlp: &mut [u8],
        sink: &mut impl TlpSink,
    ) -> bool {
        if !self.is_link_up(port) {
            return false;
        }
        let checked = self.check_egress(Who::Port(port), &Packet::known(&mut *tlp));
        if let Err(refusal) = checked {
            self.refuse(refusal, tlp, sink);
            self.flush(sink);
        }
        checked.is_ok()
    }

    /// Checks that a TLP may leave by a port (PCIe 5.0 sections 6.15 and 2.2.10.2).
    fn check_egress(&self, by: Who, packet: &Packet<&mut [u8]>) -> Result<(), Refusal> {
        use tlp_codec::tlp::TlpType::{Cas, FetchAdd, Swap};
        let egress: &Decoded = match by {
            Who::Upstream => &self.upstream.decoded,
            Who::Port(port) => &self.port(port).bridge.decoded,
        };
        if egress.blocks_atomics && matches!(packet.tlp_type(), FetchAdd | Swap | Cas) {
            return Err(by.refuses(Cause::AtomicBlocked));
        }
        // Bit 4 of a prefix's type tells end-end from local.
        let mut prefixes = packet.prefix_bytes().chunks_exact(4);
        if egress.blocks_prefixes && prefixes.any(|prefix| prefix[0] & 0x10 != 0) {
            return Err(by.refuses(Cause::PrefixBlocked));
        }
        Ok(())
    }
}
