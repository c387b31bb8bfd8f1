//! What comes: requests to be completed, completions of our own, messages.

use super::errors::{Advisory, Fault};
use super::outbound::Origin;
use super::port::function_0;
use super::registers::*;
use super::requester::{DmaError, Taken};
use super::{Endpoint, Function};
use std::time::Duration;
use tlp_codec::tlp::{
    ByteEnables, Class, CplStatus, Handling, Kind, MsgCode, MsgRouting, Packet, Repr,
};

/// A memory request's place: first byte enabled to last byte enabled.
struct Span {
    address: u64,
    len: usize,
}

/// Bytes from the first to the last that are enabled (PCIe 5.0 table 2-39). A request that
/// enables none has length 0 and the address of its first doubleword.
fn span(address: u64, dwords: usize, enables: ByteEnables) -> Span {
    let lead = enables.first.trailing_zeros().min(4) as usize;
    if dwords == 1 {
        let end = 8 - enables.first.leading_zeros() as usize;
        let len = end.saturating_sub(lead);
        return Span { address: address + if len == 0 { 0 } else { lead as u64 }, len };
    }
    let tail = enables.last.leading_zeros() as usize - 4;
    Span { address: address + lead as u64, len: (dwords * 4 - tail).saturating_sub(lead) }
}

impl<F: Function> Endpoint<F> {
    pub(super) fn receive(&mut self, now: Duration, tlp: &[u8]) {
        let Ok(packet) = Packet::new_checked(tlp) else {
            self.malformed(None);
            return;
        };
        let header = &tlp[packet.prefix_bytes().len()..packet.header_len()];
        if packet.class() == Some(Class::NonPosted) && !self.port.completions.has_room() {
            self.port.counters.receiver_overflow += 1;
            self.port.fault(Fault::ReceiverOverflow, Advisory::No, None);
            return;
        }
        let repr = match Repr::parse(&packet) {
            Ok(repr) => repr,
            Err(error) => {
                match error.handling() {
                    Handling::UnsupportedRequest => self.refuse(&packet, header),
                    Handling::MalformedTlp | Handling::EcrcFailed => self.malformed(Some(header)),
                    Handling::PoisonedTlp => {
                        self.port.add_status(STATUS_DETECTED_PARITY);
                        self.poisoned(&packet, header);
                    }
                }
                return;
            }
        };
        // No prefix is supported (PCIe 5.0 sections 2.2.10.1 and 2.2.10.2).
        if !repr.prefixes.is_empty() || repr.data().len() > self.port.settings.max_payload {
            self.malformed(Some(header));
            return;
        }
        // Whatever else becomes of it (PCIe 5.0 section 7.5.1.1.4).
        if repr.poisoned {
            self.port.add_status(STATUS_DETECTED_PARITY);
        }
        match repr.kind {
            Kind::ConfigRead { type1: false, .. } | Kind::ConfigWrite { type1: false, .. } => {
                self.config_request(now, &packet, &repr, header);
            }
            Kind::MemRead { address, length_dw, enables, locked: false, .. } => {
                self.memory_read(now, &packet, header, address, length_dw.into(), enables);
            }
            Kind::MemWrite { address, enables, data, .. } => {
                self.memory_write(now, &packet, header, address, data, enables);
            }
            Kind::Completion { .. } => self.completion(now, &packet, header),
            Kind::Message { routing, code, data, .. } => {
                self.message(&packet, header, routing, code, data);
            }
            // Type 1 requests are for bridges; locked, I/O, atomic and deferrable requests for
            // devices that say they take them.
            _ => self.refuse(&packet, header),
        }
    }

    fn malformed(&mut self, header: Option<&[u8]>) {
        self.port.counters.malformed += 1;
        self.port.fault(Fault::Malformed, Advisory::No, header);
    }

    fn unexpected(&mut self, header: &[u8]) {
        self.port.counters.unexpected_completions += 1;
        self.port.fault(Fault::UnexpectedCompletion, Advisory::Yes, Some(header));
    }

    /// Unsupported Request: completed if it is non-posted, else reported.
    fn refuse(&mut self, packet: &Packet<&[u8]>, header: &[u8]) {
        self.port.counters.unsupported_requests += 1;
        let posted = packet.class() != Some(Class::NonPosted);
        let advisory = if posted { Advisory::No } else { Advisory::Yes };
        self.port.fault(Fault::UnsupportedRequest, advisory, Some(header));
        if !posted {
            self.complete(packet, CplStatus::UnsupportedRequest);
        }
    }

    /// A completion without data, with the byte count that its request's kind wants: what was
    /// asked for if it was a memory read, 4 for all others (PCIe 5.0 section 2.2.9).
    fn complete(&mut self, packet: &Packet<&[u8]>, status: CplStatus) {
        let count = match Repr::parse(packet).map(|repr| repr.kind) {
            Ok(Kind::MemRead { address, length_dw, enables, .. }) => {
                span(address, length_dw.into(), enables).len.max(1) as u16
            }
            _ => 4,
        };
        let order = self.port.next_order();
        self.port.completions.push_status(order, origin(packet), status, count);
    }

    fn config_request(
        &mut self,
        now: Duration,
        packet: &Packet<&[u8]>,
        repr: &Repr,
        header: &[u8],
    ) {
        if !self.is_ready(now) {
            self.port.counters.config_retries += 1;
            self.complete(packet, CplStatus::ConfigRetry);
            return;
        }
        match repr.kind {
            Kind::ConfigRead { destination, register, .. } if destination.function().get() == 0 => {
                self.port.refresh_status();
                let data = self.port.config.read(register).to_vec();
                let order = self.port.next_order();
                self.port.completions.push_data(order, origin(packet), 0, 4, data);
            }
            Kind::ConfigWrite { destination, register, first_be, data, .. }
                if destination.function().get() == 0 =>
            {
                let bus = destination.bus().get();
                self.port.id = function_0(bus, destination.device().get());
                if repr.poisoned {
                    self.poisoned(packet, header);
                    return;
                }
                if let Ok(data) = data.try_into() {
                    self.port.write_config(register, data, first_be);
                }
                self.complete(packet, CplStatus::Success);
                self.check_function_reset(now);
            }
            _ => self.refuse(packet, header),
        }
    }

    /// A poisoned request is not carried out; one that needs a completion gets Unsupported
    /// Request (PCIe 5.0 section 2.7.2.2).
    fn poisoned(&mut self, packet: &Packet<&[u8]>, header: &[u8]) {
        self.port.counters.poisoned += 1;
        self.port.fault(Fault::Poisoned, Advisory::Yes, Some(header));
        if packet.class() == Some(Class::NonPosted) {
            self.complete(packet, CplStatus::UnsupportedRequest);
        }
    }

    fn memory_read(
        &mut self,
        now: Duration,
        packet: &Packet<&[u8]>,
        header: &[u8],
        address: u64,
        dwords: usize,
        enables: ByteEnables,
    ) {
        let Some((bar, offset)) = self.port.settings.find_bar(address, 4 * dwords as u64) else {
            self.refuse(packet, header);
            return;
        };
        let span = span(address, dwords, enables);
        let mut data = vec![0; 4 * dwords];
        let lead = (span.address - address) as usize;
        if span.len > 0 {
            let wanted = &mut data[lead..lead + span.len];
            self.read_bar(now, bar, offset + lead as u64, wanted);
        }
        // A read of nothing is completed with one doubleword and byte count 1.
        let count = span.len.max(1);
        let order = self.port.next_order();
        self.port.completions.push_data(order, origin(packet), span.address, count, data);
    }

    fn read_bar(&mut self, now: Duration, bar: usize, offset: u64, data: &mut [u8]) {
        let msix = self.port.layout.msix.filter(|m| m.bar == bar);
        if let Some(msix) = msix {
            let (table, pba) = (msix.table_range(), msix.pba_range());
            if table.contains(&offset) {
                self.port.interrupts.read_table(offset - table.start, data);
                return;
            }
            if pba.contains(&offset) {
                self.port.interrupts.read_pending(offset - pba.start, data);
                return;
            }
        }
        self.function.read(&mut self.port, now, bar, offset, data);
    }

    fn memory_write(
        &mut self,
        now: Duration,
        packet: &Packet<&[u8]>,
        header: &[u8],
        address: u64,
        data: &[u8],
        enables: ByteEnables,
    ) {
        let Some((bar, offset)) = self.port.settings.find_bar(address, data.len() as u64) else {
            self.refuse(packet, header);
            return;
        };
        if packet.is_poisoned() {
            self.poisoned(packet, header);
            return;
        }
        for run in enabled_runs(data.len() / 4, enables) {
            self.write_bar(now, bar, offset + run.start as u64, &data[run]);
        }
        self.finish_reads(now);
    }

    fn write_bar(&mut self, now: Duration, bar: usize, offset: u64, data: &[u8]) {
        let msix = self.port.layout.msix.filter(|m| m.bar == bar);
        if let Some(msix) = msix {
            let (table, pba) = (msix.table_range(), msix.pba_range());
            if table.contains(&offset) {
                self.port.interrupts.write_table(offset - table.start, data);
                self.port.send_interrupts();
                return;
            }
            if pba.contains(&offset) {
                return;
            }
        }
        self.function.write(&mut self.port, now, bar, offset, data);
    }

    fn completion(&mut self, now: Duration, packet: &Packet<&[u8]>, header: &[u8]) {
        if packet.requester() != self.port.id {
            self.unexpected(header);
            return;
        }
        match self.port.requester.complete(now, packet) {
            Taken::Expected => {}
            Taken::Unexpected => self.unexpected(header),
            Taken::Stale => self.port.counters.stale_completions += 1,
            Taken::Failed(DmaError::Poisoned) => {
                self.port.counters.poisoned += 1;
                if self.port.config.get16(COMMAND) & COMMAND_PARITY != 0 {
                    self.port.add_status(STATUS_MASTER_PARITY);
                }
                self.port.fault(Fault::Poisoned, Advisory::No, Some(header));
            }
            Taken::Failed(DmaError::Malformed) => {
                self.port.counters.failed_completions += 1;
                self.malformed(Some(header));
            }
            Taken::Failed(error) => {
                self.port.counters.failed_completions += 1;
                let bit = if error == DmaError::CompleterAbort {
                    STATUS_RECEIVED_TARGET_ABORT
                } else {
                    STATUS_RECEIVED_MASTER_ABORT
                };
                self.port.add_status(bit);
            }
        }
    }

    fn message(
        &mut self,
        packet: &Packet<&[u8]>,
        header: &[u8],
        routing: MsgRouting,
        code: MsgCode,
        data: &[u8],
    ) {
        match (code, routing) {
            (MsgCode::SetSlotPowerLimit, _) if data.len() == 4 => {
                if packet.is_poisoned() {
                    self.poisoned(packet, header);
                    return;
                }
                let limit = u32::from_le_bytes([data[0], data[1], data[2], data[3]]);
                let kept = self.port.config.get32(DEVICE_CAPABILITIES) & !CAPTURED_POWER_LIMIT;
                let limit = limit << 18 & CAPTURED_POWER_LIMIT;
                self.port.config.set32(DEVICE_CAPABILITIES, kept | limit);
            }
            (MsgCode::PmeTurnOff, _) => {
                self.port.send_message(MsgRouting::Gathered, MsgCode::PmeToAck);
            }
            (MsgCode::VendorDefined0, _) => self.refuse(packet, header),
            (
                MsgCode::Unlock
                | MsgCode::VendorDefined1
                | MsgCode::AttentionIndicatorOff
                | MsgCode::AttentionIndicatorOn
                | MsgCode::AttentionIndicatorBlink
                | MsgCode::PowerIndicatorOff
                | MsgCode::PowerIndicatorOn
                | MsgCode::PowerIndicatorBlink,
                _,
            ) => self.port.counters.ignored_messages += 1,
            _ => {
                self.port.counters.ignored_messages += 1;
                self.refuse(packet, header);
            }
        }
    }
}

fn origin(packet: &Packet<&[u8]>) -> Origin {
    Origin {
        requester: packet.requester(),
        tag: packet.tag(),
        traffic_class: packet.traffic_class(),
        attributes: packet.attributes(),
        locked: packet.tlp_type() == tlp_codec::tlp::TlpType::MRdLk,
    }
}

/// The runs of enabled bytes of a write.
fn enabled_runs(dwords: usize, enables: ByteEnables) -> Vec<std::ops::Range<usize>> {
    let len = dwords * 4;
    let all = ByteEnables::all(dwords as u16);
    if (enables.first, enables.last) == (all.first, all.last) {
        return std::iter::once(0..len).collect();
    }
    let enabled = |i: usize| {
        if i < 4 {
            enables.first >> i & 1 != 0
        } else if i >= len - 4 {
            enables.last >> (i - (len - 4)) & 1 != 0
        } else {
            true
        }
    };
    let mut runs: Vec<std::ops::Range<usize>> = Vec::with_capacity(1);
    for i in (0..len).filter(|&i| enabled(i)) {
        match runs.last_mut() {
            Some(run) if run.end == i => run.end += 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}
