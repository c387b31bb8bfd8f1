//! Requests of devices: DMA to the machine's memory, interrupts, messages, and what one device
//! wants of another behind the same root port.

use crate::adapter::Adapter;
use crate::guest::{Guest, MemoryFault, NoMessage, Token};
use proxy_core::outstanding::RequestInfo;
use proxy_core::switch::PortError;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{
    AddressType, Attributes, ByteEnables, CplStatus, Kind, MsgCode, Packet, Repr,
};

/// Addresses at which a memory write is an interrupt (Intel SDM volume 3, "Message Signalled
/// Interrupts").
const MSI_RANGE: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;

/// Where a completion may be cut (PCIe 5.0 section 2.3.1.1); the root port says 64 bytes.
const BOUNDARY: u64 = 64;

/// The most that one read asks for.
pub const LONGEST_READ: usize = 4096;

/// A device's request that is owed completions.
enum Owed {
    /// Completed without data.
    Status { info: RequestInfo, status: CplStatus },
    /// The bytes of `data` that `span` still has.
    Data { asker: Asker, span: Span, data: Vec<u8> },
    /// The machine is asked for the data, or will be when it has room for a message.
    Asked { asker: Asker, info: RequestInfo, span: Span, token: Option<Token> },
}

impl Owed {
    fn is_ready(&self) -> bool {
        !matches!(self, Self::Asked { .. })
    }

    fn requester(&self) -> Bdf {
        match self {
            Self::Status { info, .. } => info.requester,
            Self::Data { asker, .. } | Self::Asked { asker, .. } => asker.requester,
        }
    }
}

/// What a completion takes over from its request.
#[derive(Clone, Copy)]
struct Asker {
    requester: Bdf,
    tag: Tag,
    traffic_class: u8,
    attributes: Attributes,
}

/// The bytes of a read that are still owed: offsets, since the address behind the last one may be
/// 2⁶⁴. Each byte has an address, since no request that parses goes over a 4 KB boundary.
#[derive(Clone, Copy)]
struct Span {
    /// Address of the first doubleword.
    start: u64,
    /// Where in the read the next completion begins.
    at: usize,
    /// Where the last one ends.
    end: usize,
}

impl Span {
    /// What a read asks for.
    fn of(start: u64, length_dw: u16, enables: ByteEnables) -> Self {
        let at = usize::from(enables.first_offset());
        Self { start, at, end: at + usize::from(enables.byte_count(length_dw)) }
    }

    /// Bytes.
    fn len(self) -> usize {
        self.end - self.at
    }

    /// Bytes that the machine is asked for: whole doublewords.
    fn whole(self) -> usize {
        self.end.next_multiple_of(4)
    }

    /// Where the next completion ends: at the end of the read, or at a Read Completion Boundary.
    fn completion_end(self, payload: usize) -> usize {
        let reach = (self.at & !3) + payload;
        if reach >= self.end {
            return self.end;
        }
        // Before the last byte, and so in the address space.
        reach - ((self.start + reach as u64) % BOUNDARY) as usize
    }
}

/// Requests of devices that are owed completions, oldest first.
#[derive(Default)]
pub(crate) struct Reads {
    owed: VecDeque<Owed>,
    /// Buffers that are not in use.
    spare: Vec<Vec<u8>>,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.owed.len()
    }

    /// Forgets everything; the last message whose answer may still come.
    pub(crate) fn clear(&mut self) -> Option<Token> {
        let asked = self.owed.drain(..).filter_map(|owed| match owed {
            Owed::Asked { token, .. } => token,
            _ => None,
        });
        asked.max()
    }

    /// Whether a completion can be had now.
    pub(crate) fn is_ready(&self) -> bool {
        self.owed.iter().any(Owed::is_ready)
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(LONGEST_READ));
        buffer.resize(len, 0);
        buffer
    }

    /// The answer to a read by message.
    pub(crate) fn answered(&mut self, token: Token, result: Result<&[u8], ()>) -> bool {
        let asked = |owed: &Owed| matches!(owed, Owed::Asked { token: t, .. } if *t == Some(token));
        let Some(index) = self.owed.iter().position(asked) else { return false };
        let Owed::Asked { asker, info, span, .. } = self.owed[index] else { return false };
        let len = span.whole();
        self.owed[index] = match result {
            Ok(bytes) if bytes.len() == len => {
                let mut data = self.buffer(len);
                data.copy_from_slice(bytes);
                Owed::Data { asker, span, data }
            }
            _ => Owed::Status { info, status: CplStatus::UnsupportedRequest },
        };
        true
    }

    /// Asks the machine for what it was not asked for yet, oldest first, as long as it has room.
    /// The requests that it will never take, as they are to be refused.
    fn ask(&mut self, guest: &mut impl Guest) -> u64 {
        let mut refused = 0;
        for owed in &mut self.owed {
            let Owed::Asked { info, span, token: token @ None, .. } = owed else { continue };
            match guest.begin_read(span.start, span.whole()) {
                Ok(asked) => *token = Some(asked),
                Err(NoMessage::Busy) => break,
                Err(NoMessage::Never) => {
                    refused += 1;
                    *owed = Owed::Status { info: *info, status: CplStatus::UnsupportedRequest };
                }
            }
        }
        refused
    }

    /// The next completion for a requester that `takes` one, written into `buf`; its length.
    pub(crate) fn poll(
        &mut self,
        completer: Bdf,
        payload: usize,
        takes: impl Fn(Bdf) -> bool,
        buf: &mut [u8],
    ) -> Option<usize> {
        let ready = |owed: &Owed| owed.is_ready() && takes(owed.requester());
        let index = self.owed.iter().position(ready)?;
        let (length, over) = match &mut self.owed[index] {
            Owed::Status { info, status } => {
                let tlp = info.completion(completer, *status);
                buf[..tlp.len()].copy_from_slice(&tlp);
                (Ok(tlp.len()), true)
            }
            Owed::Data { asker, span, data } => {
                let stop = span.completion_end(payload);
                let (first, last) = (span.at & !3, stop.next_multiple_of(4));
                let mut repr = Repr::new(Kind::Completion {
                    completer,
                    requester: asker.requester,
                    tag: asker.tag,
                    status: CplStatus::Success,
                    bcm: false,
                    byte_count: span.len() as u16,
                    lower_address: (span.start + span.at as u64) as u8 & 0x7f,
                    locked: false,
                    data: &data[first..last],
                });
                repr.traffic_class = asker.traffic_class;
                repr.attributes = asker.attributes;
                span.at = stop;
                (repr.emit(buf), stop == span.end)
            }
            Owed::Asked { .. } => return None,
        };
        if over && let Some(Owed::Data { data, .. }) = self.owed.remove(index) {
            self.spare.push(data);
        }
        Some(length.expect("a completion of what was asked for keeps the rules"))
    }
}

impl Adapter {
    pub(crate) fn take_request(
        &mut self,
        packet: &Packet<&[u8]>,
        repr: &Repr<'_>,
        guest: &mut impl Guest,
    ) {
        let masters = self.root.masters() && self.endpoint.masters();
        let plain = repr.address_type == AddressType::Untranslated && repr.prefixes.is_empty();
        match repr.kind {
            Kind::Message { requester, code, .. } => self.take_message(requester, code, packet),
            Kind::MemRead { address, .. }
            | Kind::MemWrite { address, .. }
            | Kind::DeferrableMemWrite { address, .. }
            | Kind::Atomic { address, .. }
                if masters && plain && self.root.claims_memory(address) =>
            {
                self.turn(packet);
            }
            Kind::MemRead {
                requester, tag, address, length_dw, enables, locked: false, ..
            } if masters && plain => {
                let asker = Asker {
                    requester,
                    tag,
                    traffic_class: repr.traffic_class,
                    attributes: repr.attributes,
                };
                self.device_read(packet, asker, address, length_dw, enables, guest);
            }
            Kind::MemWrite { address, enables, data, .. } if masters && plain => {
                if repr.poisoned {
                    self.counters.writes_dropped += 1;
                    self.root.report(PortError::Poisoned, false, Some(packet.as_bytes()));
                } else if !self.device_write(address, enables, data, guest) {
                    self.refuse(packet);
                }
            }
            _ => self.refuse(packet),
        }
    }

    /// A request that is not for anybody here.
    fn refuse(&mut self, packet: &Packet<&[u8]>) {
        self.counters.unsupported += 1;
        let owed = RequestInfo::of(packet);
        self.root.report(PortError::UnsupportedRequest, owed.is_some(), Some(packet.as_bytes()));
        if let Some(info) = owed {
            let status = CplStatus::UnsupportedRequest;
            self.reads.owed.push_back(Owed::Status { info, status });
        } else {
            self.counters.writes_dropped += 1;
        }
    }

    /// What is for another device goes down again by the same root port.
    pub(crate) fn turn(&mut self, packet: &Packet<&[u8]>) {
        self.counters.turned += 1;
        let pushed = self.turned.push(packet.as_bytes());
        assert!(pushed, "the caller saw room");
    }

    fn take_message(&mut self, from: Bdf, code: MsgCode, packet: &Packet<&[u8]>) {
        if self.root.handle_message(from, code) {
            self.counters.messages += 1;
            return;
        }
        self.counters.messages_ignored += 1;
        // Who sends a message that a root complex has to know is told (PCIe 5.0 section 2.2.8.6).
        if code == MsgCode::VendorDefined0 {
            self.root.report(PortError::UnsupportedRequest, false, Some(packet.as_bytes()));
        }
    }

    fn device_read(
        &mut self,
        packet: &Packet<&[u8]>,
        asker: Asker,
        address: u64,
        length_dw: u16,
        enables: ByteEnables,
        guest: &mut impl Guest,
    ) {
        let info = RequestInfo::of(packet).expect("a read is non-posted");
        let total = usize::from(length_dw) * 4;
        let span = Span::of(address, length_dw, enables);
        let found = if self.posted.is_done() {
            let mut data = self.reads.buffer(total);
            match guest.read(address, &mut data) {
                Ok(()) => Ok(data),
                Err(fault) => {
                    self.reads.spare.push(data);
                    Err(fault)
                }
            }
        } else {
            Err(by_message(guest.is_readable(address, total)))
        };
        match found {
            Ok(data) => {
                self.counters.reads += 1;
                self.counters.bytes_read += span.len() as u64;
                self.reads.owed.push_back(Owed::Data { asker, span, data });
            }
            Err(MemoryFault::ByMessage) => {
                self.counters.reads_by_message += 1;
                self.reads.owed.push_back(Owed::Asked { asker, info, span, token: None });
                self.ask(guest);
            }
            Err(MemoryFault::Nothing) => self.refuse(packet),
        }
    }

    /// Asks for memory that is reached by messages, behind the writes that came before: a read
    /// must not pass them.
    pub(crate) fn ask(&mut self, guest: &mut impl Guest) {
        if self.posted.is_sent() {
            self.counters.unsupported += self.reads.ask(guest);
        }
    }

    /// Whether there is anybody to take it.
    fn device_write(
        &mut self,
        address: u64,
        enables: ByteEnables,
        data: &[u8],
        guest: &mut impl Guest,
    ) -> bool {
        if MSI_RANGE.contains(&address) {
            // An interrupt is one whole doubleword (PCIe 5.0 section 6.1.4).
            let Ok(data) = <[u8; 4]>::try_from(data) else { return false };
            if enables.first == 0xf {
                self.interrupt(address, u32::from_le_bytes(data), guest);
            }
            return enables.first == 0xf;
        }
        self.counters.writes += 1;
        self.counters.bytes_written += data.len() as u64;
        let dwords = (data.len() / 4) as u16;
        if enables == ByteEnables::all(dwords) {
            return self.store(address, data, guest);
        }
        runs(enables, data.len())
            .all(|(from, to)| self.store(address + from as u64, &data[from..to], guest))
    }

    fn store(&mut self, address: u64, data: &[u8], guest: &mut impl Guest) -> bool {
        let found = if self.posted.is_done() {
            guest.write(address, data)
        } else {
            Err(by_message(guest.is_writable(address, data.len())))
        };
        match found {
            Ok(()) => true,
            Err(MemoryFault::ByMessage) => {
                self.counters.writes_by_message += 1;
                self.posted.write(address, data, guest);
                true
            }
            Err(MemoryFault::Nothing) => false,
        }
    }

    /// An interrupt of a device or of the root port.
    pub(crate) fn interrupt(&mut self, address: u64, data: u32, guest: &mut impl Guest) {
        self.counters.interrupts += 1;
        if self.endpoint.bypasses() {
            self.posted.interrupt(address, data, guest);
        } else {
            // The driver puts the vector where an APIC's number would be.
            self.posted.signal((address >> 12) as u16 & 0xff, guest);
        }
    }
}

/// Memory behind a write that goes by message: a request must not pass that (PCIe 5.0 section
/// 2.4.1), and goes the same way.
fn by_message(is_there: bool) -> MemoryFault {
    if is_there { MemoryFault::ByMessage } else { MemoryFault::Nothing }
}

/// The runs of bytes that a write enables, as ranges of its data.
fn runs(enables: ByteEnables, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let dwords = len / 4;
    let enabled = move |at: usize| {
        let mask = match at / 4 {
            0 => enables.first,
            last if last + 1 == dwords => enables.last,
            _ => 0xf,
        };
        mask >> (at % 4) & 1 != 0
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = (at..len).find(|at| enabled(*at))?;
        at = (from..len).find(|at| !enabled(*at)).unwrap_or(len);
        Some((from, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_the_byte_enables_say() {
        let of = |first, last, len| runs(ByteEnables { first, last }, len).collect::<Vec<_>>();
        assert_eq!(of(0b1111, 0, 4), [(0, 4)]);
        assert_eq!(of(0b1010, 0, 4), [(1, 2), (3, 4)]);
        assert_eq!(of(0b1100, 0b0011, 12), [(2, 10)]);
        assert_eq!(of(0b0101, 0b1010, 12), [(0, 1), (2, 3), (4, 8), (9, 10), (11, 12)]);
        assert_eq!(of(0, 0, 4), []);
    }

    #[test]
    fn completions_end_at_boundaries() {
        let of = |start, at, end, payload| Span { start, at, end }.completion_end(payload);
        assert_eq!(of(0, 0, 64, 128), 64);
        assert_eq!(of(0x1004, 0, 0x200, 128), 0x7c);
        assert_eq!(of(0x1004, 0x7c, 0x200, 128), 0xfc);
        assert_eq!(of(0x1004, 0x17c, 0x200, 256), 0x200);
        assert_eq!(of(0x103c, 3, 0xc4, 128), 0x44);
        // The end is no address.
        assert_eq!(of(u64::MAX - 0xfff, 0, 0x1000, 128), 0x80);
        assert_eq!(of(u64::MAX - 0xfff, 0xf80, 0x1000, 128), 0x1000);
    }
}
