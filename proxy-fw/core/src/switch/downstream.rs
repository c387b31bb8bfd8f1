//! Where a TLP from the root complex goes.

use super::config::header;
use super::port::Occupant;
use super::sink::TlpSink;
use super::verdict::{Cause, Counted, DownstreamVerdict as Verdict, PortError};
use super::{Refusal, VirtualSwitch, Who};
use crate::time::Instant;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{Class, CplStatus, MsgRouting, Packet, TlpType};

/// The two address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Memory,
    Io,
}

impl VirtualSwitch {
    /// A TLP from the root complex. A configuration request for a device is rewritten in place as
    /// the last bridge does it (type 1 to type 0); nothing else is changed.
    ///
    /// `out` takes what the switch itself has to say to the root complex. It must have room for
    /// one TLP, the completion that a request may get at once; interrupts and messages that find
    /// no room wait for a later call.
    pub fn handle_downstream(
        &mut self,
        now: Instant,
        tlp: &mut [u8],
        out: &mut impl TlpSink,
    ) -> Verdict {
        let routed = self.route_downstream(now, tlp, out);
        let verdict =
            routed.unwrap_or_else(|refusal| Verdict::Discarded(self.refuse(refusal, tlp, out)));
        self.flush(out);
        verdict
    }

    fn route_downstream(
        &mut self,
        now: Instant,
        tlp: &mut [u8],
        out: &mut impl TlpSink,
    ) -> Result<Verdict, Refusal> {
        let Ok(packet) = Packet::new_checked(&mut *tlp) else {
            return Err(Who::Upstream.refuses(Cause::Malformed));
        };
        if packet.payload_len() > self.upstream.decoded.max_payload {
            return Err(Who::Upstream.refuses(Cause::PayloadTooLarge));
        }
        let leaves_a_trace = leaves_a_trace(&packet);
        let verdict = self.routed_downstream(now, packet, out);
        if leaves_a_trace && !matches!(verdict, Ok(Verdict::Forward(_))) {
            let passed = matches!(verdict, Ok(Verdict::Broadcast));
            if passed && Packet::known(&*tlp).is_poisoned() {
                self.counters.count(Counted::PoisonedPassed);
            }
            self.note_downstream(None, &Packet::known(&*tlp));
        }
        verdict
    }

    /// A TLP from the root complex was handed on to the device behind a port, as
    /// [`handle_downstream`](Self::handle_downstream) had said; `packet` is as it came. What is handed
    /// in again and again until there is room is noted once.
    #[inline]
    pub fn forwarded(&mut self, port: PortId, packet: &Packet<&[u8]>, out: &mut impl TlpSink) {
        if leaves_a_trace(packet) {
            if packet.is_poisoned() {
                self.counters.count(Counted::PoisonedPassed);
            }
            self.note_downstream(Some(port), packet);
            self.flush(out);
        }
    }

    /// Notes what a TLP leaves behind in the port that it came in by, and in the one that it left by.
    #[cold]
    #[inline(never)]
    fn note_downstream(&mut self, port: Option<PortId>, packet: &Packet<&[u8]>) {
        if packet.is_poisoned() {
            self.poisoned_downstream(packet);
        }
        if packet.class() == Some(Class::Completion) {
            self.unsuccessful_downstream(port, packet.status());
        } else if let (true, Some(port)) = (packet.is_poisoned(), port) {
            self.poisoned_leaves_by(port);
        }
    }

    fn unsuccessful_downstream(&mut self, port: Option<PortId>, status: CplStatus) {
        if port.is_some() {
            self.count_unsuccessful(status);
        }
        if let Some(bit) = received_abort(status) {
            self.upstream.config.set(header::COMMAND, bit);
            if let Some(port) = port {
                self.port_mut(port).bridge.config.set(header::COMMAND, bit);
            }
        }
    }

    fn routed_downstream(
        &mut self,
        now: Instant,
        packet: Packet<&mut [u8]>,
        out: &mut impl TlpSink,
    ) -> Result<Verdict, Refusal> {
        match packet.tlp_type() {
            TlpType::CfgRd0 | TlpType::CfgWr0 | TlpType::CfgRd1 | TlpType::CfgWr1 => {
                self.route_configuration(now, packet, out)
            }
            TlpType::IORd | TlpType::IOWr => self.route_address(Space::Io, &packet),
            TlpType::MRd
            | TlpType::MRdLk
            | TlpType::MWr
            | TlpType::DMWr
            | TlpType::FetchAdd
            | TlpType::Swap
            | TlpType::Cas => self.route_address(Space::Memory, &packet),
            TlpType::Cpl | TlpType::CplD | TlpType::CplLk | TlpType::CplDLk => {
                self.route_completion(&packet)
            }
            TlpType::Msg(MsgRouting::ByAddress) | TlpType::MsgD(MsgRouting::ByAddress) => {
                self.route_address(Space::Memory, &packet)
            }
            TlpType::Msg(routing) | TlpType::MsgD(routing) => {
                self.message_downstream(now, routing, &packet)
            }
            TlpType::Unknown(_) => Err(Who::Upstream.refuses(Cause::Malformed)),
        }
    }

    fn route_address(
        &mut self,
        space: Space,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let address = packet.address();
        let nobody = Who::Upstream.refuses(Cause::NoWindow);
        if !self.upstream.decoded.claims(space, address) {
            return Err(nobody);
        }
        let port = self.port_of_address(space, address).ok_or(nobody)?;
        if packet.tlp_type() == TlpType::MRdLk {
            return Err(Who::Port(port).refuses(Cause::UnsupportedType));
        }
        self.leave_by(port, packet)
    }

    /// The port that claims an address.
    pub(super) fn port_of_address(&self, space: Space, address: u64) -> Option<PortId> {
        match space {
            Space::Memory if !self.reach.holds(address) => None,
            Space::Memory => {
                let index = self.claims.iter().position(|claim| claim.holds(address))?;
                PortId::new(index as u8).ok()
            }
            Space::Io => self.port_where(|bridge| bridge.decoded.claims_io(address)),
        }
    }

    /// Checks that a TLP can leave by a port.
    pub(super) fn leave_by(
        &self,
        port: PortId,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let who = Who::Port(port);
        self.check_egress(who, packet)?;
        let slot = self.port(port);
        if slot.is_open() {
            return Ok(Verdict::Forward(port));
        }
        // A placeholder answers configuration requests only, like a function that is not enabled.
        let placeholder = slot.occupant == Occupant::Placeholder && slot.link_is_up();
        Err(who.refuses(if placeholder { Cause::NoFunction } else { Cause::LinkDown }))
    }

    /// Counts a completion that passes and does not say success.
    pub(super) fn count_unsuccessful(&mut self, status: CplStatus) {
        if status != CplStatus::Success {
            self.counters.count(Counted::Unsuccessful);
        }
    }

    fn route_completion(&mut self, packet: &Packet<&mut [u8]>) -> Result<Verdict, Refusal> {
        let port = self.port_of_bus(packet.requester().bus().get());
        let port = port.ok_or(Who::Upstream.refuses(Cause::UnexpectedCompletion))?;
        self.leave_by(port, packet)
    }

    /// A poisoned TLP is passed on; the port that it came in by takes note (PCIe 5.0 sections
    /// 2.7.2.2 and 7.5.1.1.4).
    fn poisoned_downstream(&mut self, packet: &Packet<&[u8]>) {
        let completion = packet.class() == Some(Class::Completion);
        let config = &mut self.upstream.config;
        config.set(header::COMMAND, header::DETECTED_PARITY);
        if completion && config.any(header::COMMAND, header::PARITY_RESPONSE) {
            config.set(header::COMMAND, header::MASTER_DATA_PARITY);
        }
        // Passing it on leaves the error to the one that is meant (section 6.2.3.2.4.3).
        self.upstream.report(PortError::Poisoned, true, Some(packet.as_bytes()));
        self.mark_who(Who::Upstream);
    }

    /// A poisoned request leaves by a port's other side (section 7.5.1.3.7).
    pub(super) fn poisoned_leaves_by(&mut self, port: PortId) {
        let config = &mut self.port_mut(port).bridge.config;
        if config.any(header::BRIDGE_CONTROL, header::BRIDGE_PARITY_RESPONSE) {
            config.set(header::IO, header::MASTER_DATA_PARITY);
        }
    }
}

/// Whether a TLP leaves something behind in the switch: one that is poisoned, and a completion that does
/// not say success.
fn leaves_a_trace<T: AsRef<[u8]>>(packet: &Packet<T>) -> bool {
    packet.is_poisoned()
        || packet.class() == Some(Class::Completion) && packet.status() != CplStatus::Success
}

/// Whether data that is asked to be written, or to be taken into account, is poisoned.
pub(super) fn is_poisoned_request(packet: &Packet<&mut [u8]>) -> bool {
    packet.is_poisoned() && packet.class() != Some(Class::Completion)
}

/// The status bit of a port that a completion of this status comes in by.
pub(super) fn received_abort(status: CplStatus) -> Option<u32> {
    match status {
        CplStatus::UnsupportedRequest => Some(header::RECEIVED_MASTER_ABORT),
        CplStatus::CompleterAbort => Some(header::RECEIVED_TARGET_ABORT),
        _ => None,
    }
}

impl super::bridge::Decoded {
    /// Whether an address is in an open window of that space.
    pub(super) fn claims(&self, space: Space, address: u64) -> bool {
        match space {
            Space::Memory => self.claims_memory(address),
            Space::Io => self.claims_io(address),
        }
    }
}
