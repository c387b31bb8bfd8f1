//! Messages, by their routing (PCIe 5.0 section 2.2.8), with the two things that a switch keeps
//! track of: INTx wires and the acknowledgements of PME_Turn_Off.

use super::config::{access_control as acs, express};
use super::verdict::{Cause, DownstreamVerdict, UpstreamVerdict};
use super::{Refusal, VirtualSwitch, Who};
use crate::limits::SYNTHESISED_COMPLETION;
use crate::time::Instant;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{MsgCode, MsgRouting, Packet};

/// PME_Turn_Off on its way through the switch (section 5.3.3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOff {
    /// Nobody asked.
    Idle,
    /// Ports whose device has not acknowledged yet: bit n is port n.
    Gathering { waiting: u32, until: Instant },
    /// All have; the acknowledgement is to be sent.
    Gathered,
    /// It was sent: what is above may go off, and sends a reset when it is back.
    Done,
}

impl TurnOff {
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Gathering { until, .. } => Some(until),
            Self::Idle | Self::Gathered | Self::Done => None,
        }
    }

    /// Whether ports may send power management events: not any more once they were told that power
    /// goes, until a reset.
    pub(super) fn lets_wake(self) -> bool {
        self == Self::Idle
    }

    /// A device acknowledged, or is not there to do it.
    pub(super) fn acknowledged(&mut self, port: PortId) {
        if let Self::Gathering { waiting, until } = *self {
            let waiting = waiting & !(1 << port.get());
            *self = if waiting == 0 { Self::Gathered } else { Self::Gathering { waiting, until } };
        }
    }
}

/// What a port does with a message that ends there.
fn is_ignored(code: MsgCode) -> bool {
    matches!(
        code,
        // Type 1 is silently discarded by whoever does not know it (section 2.2.8.6); the
        // hot-plug messages of PCIe 1.0 are ignored (section 2.2.8.7).
        MsgCode::VendorDefined1
            | MsgCode::AttentionIndicatorOn
            | MsgCode::AttentionIndicatorBlink
            | MsgCode::AttentionIndicatorOff
            | MsgCode::PowerIndicatorOn
            | MsgCode::PowerIndicatorBlink
            | MsgCode::PowerIndicatorOff
            | MsgCode::AttentionButtonPressed
    )
}

impl VirtualSwitch {
    /// A message from the root complex that is not routed by address.
    pub(super) fn message_downstream(
        &mut self,
        now: Instant,
        routing: MsgRouting,
        packet: &Packet<&mut [u8]>,
    ) -> Result<DownstreamVerdict, Refusal> {
        let code = packet.message_code();
        let unsupported = Err(Who::Upstream.refuses(Cause::UnsupportedMessage));
        match routing {
            MsgRouting::ById => {
                let bus = packet.destination().bus().get();
                match self.port_of_bus(bus) {
                    Some(port) => self.leave_by(port, packet),
                    None if is_ignored(code) => Err(Who::Upstream.refuses(Cause::IgnoredMessage)),
                    None => unsupported,
                }
            }
            MsgRouting::Broadcast => {
                if code == MsgCode::PmeTurnOff {
                    self.turn_off(now);
                }
                Ok(DownstreamVerdict::Broadcast)
            }
            MsgRouting::Local if code == MsgCode::SetSlotPowerLimit => {
                if packet.is_poisoned() {
                    return Err(Who::Upstream.refuses(Cause::Poisoned));
                }
                if let Some(limit) = packet.payload().first_chunk::<4>() {
                    // Value and scale, ten bits (section 2.2.8.5).
                    let limit = u32::from_le_bytes(*limit) << 18;
                    let captured = express::CAPTURED_POWER_LIMIT;
                    self.upstream.config.put(express::DEVICE_CAPABILITIES, captured, limit);
                }
                Ok(DownstreamVerdict::Consumed)
            }
            MsgRouting::Local | MsgRouting::Reserved6 | MsgRouting::Reserved7
                if is_ignored(code) =>
            {
                Err(Who::Upstream.refuses(Cause::IgnoredMessage))
            }
            _ => unsupported,
        }
    }

    /// A message from a device that is not routed by address.
    pub(super) fn message_upstream(
        &mut self,
        port: PortId,
        routing: MsgRouting,
        packet: &Packet<&mut [u8]>,
    ) -> Result<UpstreamVerdict, Refusal> {
        let who = Who::Port(port);
        let code = packet.message_code();
        let unsupported = Err(who.refuses(Cause::UnsupportedMessage));
        match routing {
            MsgRouting::ToRootComplex => self.message_to_root(port, code, packet),
            MsgRouting::ById => {
                if code == MsgCode::InvalidateCompletion && !self.port(port).translation_granted {
                    return Err(who.refuses(Cause::NotGranted));
                }
                let bus = packet.destination().bus().get();
                let redirect =
                    self.port(port).bridge.decoded.controls_access(acs::REQUEST_REDIRECT);
                let nobody = if is_ignored(code) { Cause::IgnoredMessage } else { Cause::NoBus };
                self.by_id(port, bus, redirect, nobody, packet)
            }
            MsgRouting::Gathered if code == MsgCode::PmeToAck => {
                self.turn_off.acknowledged(port);
                Ok(UpstreamVerdict::Consumed)
            }
            MsgRouting::Local if self.wire_message(port, code) => Ok(UpstreamVerdict::Consumed),
            MsgRouting::Local | MsgRouting::Reserved6 | MsgRouting::Reserved7
                if is_ignored(code) =>
            {
                Err(who.refuses(Cause::IgnoredMessage))
            }
            _ => unsupported,
        }
    }

    fn message_to_root(
        &mut self,
        port: PortId,
        code: MsgCode,
        packet: &Packet<&mut [u8]>,
    ) -> Result<UpstreamVerdict, Refusal> {
        if code == MsgCode::PageRequest {
            self.check_granted(port)?;
        }
        if !self.error_message(port, code) {
            return Err(Who::Port(port).refuses(Cause::ErrorMessageMasked));
        }
        self.check_egress(Who::Upstream, packet)?;
        Ok(UpstreamVerdict::ToRoot)
    }

    fn check_granted(&self, port: PortId) -> Result<(), Refusal> {
        if self.port(port).translation_granted {
            return Ok(());
        }
        Err(Who::Port(port).refuses(Cause::NotGranted))
    }

    /// Assert_INTx and Deassert_INTx: `false` when it is neither.
    fn wire_message(&mut self, port: PortId, code: MsgCode) -> bool {
        let wires = &mut self.port_mut(port).wires;
        match code.byte() {
            assert @ 0x20..=0x23 => *wires |= 1 << (assert - 0x20),
            deassert @ 0x24..=0x27 => *wires &= !(1 << (deassert - 0x24)),
            _ => return false,
        }
        self.mark(port);
        true
    }

    /// The wires as they leave the upstream port: each port's are turned by its device number
    /// (section 2.2.8.1, table 2-20), and one is asserted while any port asserts it.
    pub(super) fn wires_upstream(&self) -> u8 {
        self.ports.iter().enumerate().fold(0, |wires, (device, port)| {
            let twice = u16::from(port.wires) * 0x11;
            wires | (twice << (device % 4) >> 4) as u8 & 0xf
        })
    }

    fn turn_off(&mut self, now: Instant) {
        let waiting = self
            .port_ids()
            .filter(|port| self.port(*port).is_open())
            .fold(0, |waiting, port| waiting | 1 << port.get());
        self.turn_off = if waiting == 0 {
            TurnOff::Gathered
        } else {
            // A device that never answers must not keep the host from powering off.
            TurnOff::Gathering { waiting, until: now + SYNTHESISED_COMPLETION }
        };
    }

    pub(super) fn turn_off_timeout(&mut self, now: Instant) {
        if self.turn_off.deadline().is_some_and(|until| until <= now) {
            self.turn_off = TurnOff::Gathered;
        }
    }
}
