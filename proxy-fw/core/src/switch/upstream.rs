//! Where a TLP from a device goes: to the root complex, or to another device where access control
//! allows it (PCIe 5.0 section 6.12).

use super::config::{access_control as acs, header};
use super::downstream::{Space, is_poisoned_request, received_abort};
use super::sink::TlpSink;
use super::verdict::{Cause, Counted, DownstreamVerdict, PortError, UpstreamVerdict as Verdict};
use super::{Refusal, VirtualSwitch, Who};
use crate::canaries::{Canary, planted};
use crate::time::Instant;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{AddressType, Class, MsgCode, MsgRouting, Packet, TlpType};

impl VirtualSwitch {
    /// A TLP from the device behind a port.
    ///
    /// `out` takes what the switch has to say to the root complex (it may be full: it waits), and
    /// `back` the completion that a refused request gets, for which it must have room.
    pub fn handle_upstream(
        &mut self,
        _now: Instant,
        port: PortId,
        tlp: &mut [u8],
        out: &mut impl TlpSink,
        back: &mut impl TlpSink,
    ) -> Verdict {
        let routed = match Packet::new_checked(&mut *tlp) {
            Ok(packet) => self.route_upstream(port, &packet),
            Err(_) => Err(Who::Port(port).refuses(Cause::Malformed)),
        };
        let verdict =
            routed.unwrap_or_else(|refusal| Verdict::Discarded(self.refuse(refusal, tlp, back)));
        self.flush(out);
        verdict
    }

    /// Whether a TLP from the device behind a port is a memory write that goes to the root complex
    /// and leaves no trace in the switch: what [`handle_upstream`](Self::handle_upstream) would find
    /// out, by as few questions as there are. `false` says nothing.
    pub fn passes_write(&self, port: PortId, packet: &Packet<&[u8]>) -> bool {
        let slot = self.port(port);
        let below = &slot.bridge.decoded;
        let address = packet.address();
        packet.tlp_type() == TlpType::MWr
            && packet.prefix_bytes().is_empty()
            && !packet.is_poisoned()
            && packet.address_type() == AddressType::Untranslated
            && packet.payload_len() <= below.max_payload
            && slot.is_open()
            && below.masters
            && self.upstream.decoded.masters
            && (!below.controls_access(acs::SOURCE_VALIDATION)
                || below.holds_bus(packet.requester().bus().get()))
            && !self.reach.holds(address)
            && !self.upstream.decoded.claims_memory(address)
            && self.says_nothing()
    }

    fn route_upstream(
        &mut self,
        port: PortId,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let who = Who::Port(port);
        let slot = self.port(port);
        if !slot.is_open() {
            return Err(who.refuses(Cause::LinkDown));
        }
        if packet.payload_len() > slot.bridge.decoded.max_payload {
            return Err(who.refuses(Cause::PayloadTooLarge));
        }
        self.check_source(port, packet)?;
        if packet.is_poisoned() {
            if planted(Canary::DropPoisoned) {
                return Ok(Verdict::Consumed);
            }
            self.poisoned_upstream(port, packet);
        }
        let verdict = self.routed_upstream(port, packet)?;
        if packet.is_poisoned() && matches!(verdict, Verdict::ToRoot | Verdict::ToPort(_)) {
            self.counters.count(Counted::PoisonedPassed);
        }
        if is_poisoned_request(packet) {
            match verdict {
                Verdict::ToRoot => {
                    let config = &mut self.upstream.config;
                    if config.any(header::COMMAND, header::PARITY_RESPONSE) {
                        config.set(header::COMMAND, header::MASTER_DATA_PARITY);
                    }
                }
                Verdict::ToPort(port) => self.poisoned_leaves_by(port),
                _ => {}
            }
        }
        Ok(verdict)
    }

    fn routed_upstream(
        &mut self,
        port: PortId,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let who = Who::Port(port);
        match packet.tlp_type() {
            TlpType::IORd | TlpType::IOWr => self.request_upstream(port, Space::Io, packet),
            TlpType::MRd
            | TlpType::MWr
            | TlpType::DMWr
            | TlpType::FetchAdd
            | TlpType::Swap
            | TlpType::Cas
            | TlpType::Msg(MsgRouting::ByAddress)
            | TlpType::MsgD(MsgRouting::ByAddress) => {
                self.check_translation(port, packet)?;
                self.request_upstream(port, Space::Memory, packet)
            }
            TlpType::Cpl | TlpType::CplD | TlpType::CplLk | TlpType::CplDLk => {
                self.completion_upstream(port, packet)
            }
            TlpType::Msg(routing) | TlpType::MsgD(routing) => {
                self.message_upstream(port, routing, packet)
            }
            // Only the root complex configures (section 2.2.7.1) and locks (section 6.5).
            TlpType::MRdLk
            | TlpType::CfgRd0
            | TlpType::CfgWr0
            | TlpType::CfgRd1
            | TlpType::CfgWr1 => Err(who.refuses(Cause::UnsupportedType)),
            TlpType::Unknown(_) => Err(who.refuses(Cause::Malformed)),
        }
    }

    /// ACS Source Validation: requests name a requester on a bus behind the port.
    fn check_source(&self, port: PortId, packet: &Packet<&mut [u8]>) -> Result<(), Refusal> {
        let bridge = &self.port(port).bridge;
        let validates = bridge.decoded.controls_access(acs::SOURCE_VALIDATION);
        let request = packet.class() != Some(Class::Completion);
        if validates && request && !bridge.decoded.holds_bus(packet.requester().bus().get()) {
            return Err(Who::Port(port).refuses(Cause::SourceValidation));
        }
        Ok(())
    }

    /// AT other than 0 needs to be granted, and ACS Translation Blocking stops it all the same.
    pub(super) fn check_translation(
        &self,
        port: PortId,
        packet: &Packet<&mut [u8]>,
    ) -> Result<(), Refusal> {
        if packet.address_type() == AddressType::Untranslated {
            return Ok(());
        }
        let slot = self.port(port);
        if slot.bridge.decoded.controls_access(acs::TRANSLATION_BLOCKING) {
            return Err(Who::Port(port).refuses(Cause::Translation));
        }
        if !slot.translation_granted {
            return Err(Who::Port(port).refuses(Cause::NotGranted));
        }
        Ok(())
    }

    fn request_upstream(
        &self,
        port: PortId,
        space: Space,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let who = Who::Port(port);
        let bridge = &self.port(port).bridge;
        if !bridge.decoded.masters && !planted(Canary::MasterAlways) {
            return Err(who.refuses(Cause::BusMasterOff));
        }
        let address = packet.address();
        if bridge.decoded.claims(space, address) {
            // The device means itself: only an access control service above can want that.
            if bridge.decoded.controls_access(acs::UPSTREAM_FORWARDING) {
                return self.to_root(packet);
            }
            return Err(who.refuses(Cause::OwnWindow));
        }
        if let Some(peer) = self.port_of_address(space, address) {
            if bridge.decoded.controls_access(acs::REQUEST_REDIRECT)
                && !planted(Canary::IgnoreRequestRedirect)
            {
                return self.to_root(packet);
            }
            return self.to_peer(peer, packet);
        }
        if self.upstream.decoded.claims(space, address) {
            return Err(Who::Upstream.refuses(Cause::NoWindow));
        }
        self.to_root(packet)
    }

    /// A memory or I/O request leaves by the upstream port.
    fn to_root(&self, packet: &Packet<&mut [u8]>) -> Result<Verdict, Refusal> {
        if !self.upstream.decoded.masters {
            return Err(Who::Upstream.refuses(Cause::BusMasterOff));
        }
        self.up(packet)
    }

    fn to_peer(&self, peer: PortId, packet: &Packet<&mut [u8]>) -> Result<Verdict, Refusal> {
        match self.leave_by(peer, packet)? {
            DownstreamVerdict::Forward(peer) => Ok(Verdict::ToPort(peer)),
            _ => Err(Who::Port(peer).refuses(Cause::LinkDown)),
        }
    }

    fn completion_upstream(
        &mut self,
        port: PortId,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        self.count_unsuccessful(packet.status());
        let aborted = received_abort(packet.status());
        if let Some(bit) = aborted {
            self.port_mut(port).bridge.config.set(header::IO, bit);
        }
        // Completions with relaxed ordering are not redirected (section 6.12.1.1).
        if planted(Canary::RefuseAnswers) && !self.port(port).bridge.decoded.masters {
            return Err(Who::Port(port).refuses(Cause::BusMasterOff));
        }
        let redirect = self.port(port).bridge.decoded.controls_access(acs::COMPLETION_REDIRECT)
            && !packet.attributes().relaxed_ordering
            && !planted(Canary::IgnoreCompletionRedirect);
        let bus = packet.requester().bus().get();
        let verdict = self.by_id(port, bus, redirect, Cause::UnexpectedCompletion, packet)?;
        if let (Some(bit), Verdict::ToRoot) = (aborted, verdict) {
            // One for a peer does not come to the upstream port.
            self.upstream.config.set(header::IO, bit);
        }
        Ok(verdict)
    }

    /// A completion, or a message that is routed by ID, to whoever is on a bus.
    pub(super) fn by_id(
        &self,
        port: PortId,
        bus: u8,
        redirect: bool,
        nobody: Cause,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, Refusal> {
        let bridge = &self.port(port).bridge;
        if bridge.decoded.holds_bus(bus) {
            if bridge.decoded.controls_access(acs::UPSTREAM_FORWARDING) {
                return self.up(packet);
            }
            return Err(Who::Port(port).refuses(nobody));
        }
        if let Some(peer) = self.port_of_bus(bus) {
            if redirect {
                return self.up(packet);
            }
            return self.to_peer(peer, packet);
        }
        if self.upstream.decoded.holds_bus(bus) {
            return Err(Who::Upstream.refuses(nobody));
        }
        self.up(packet)
    }

    /// To the root complex, if the upstream port lets it leave.
    fn up(&self, packet: &Packet<&mut [u8]>) -> Result<Verdict, Refusal> {
        self.check_egress(Who::Upstream, packet)?;
        Ok(Verdict::ToRoot)
    }

    /// As `poisoned_downstream`, for the port's other side.
    fn poisoned_upstream(&mut self, port: PortId, packet: &Packet<&mut [u8]>) {
        let completion = packet.class() == Some(Class::Completion);
        let bridge = &mut self.port_mut(port).bridge;
        bridge.config.set(header::IO, header::DETECTED_PARITY);
        if completion && bridge.config.any(header::BRIDGE_CONTROL, header::BRIDGE_PARITY_RESPONSE) {
            bridge.config.set(header::IO, header::MASTER_DATA_PARITY);
        }
        bridge.report(PortError::Poisoned, true, Some(packet.as_bytes()));
        self.mark(port);
    }

    /// An error message from below: whether both ports let it pass.
    pub(super) fn error_message(&mut self, port: PortId, code: MsgCode) -> bool {
        let Some(severity) = super::errors::Severity::of_message(code) else {
            return true;
        };
        self.port_mut(port).bridge.passes_error(severity) && self.upstream.passes_error(severity)
    }
}
