//! Requests of devices: DMA to host memory, interrupts, messages.

use super::{HOST_ID, Message, RootComplex, send_on};
use crate::interrupts::{MSI_RANGE, Vector};
use crate::port::{PortError, TlpPort};
use std::time::Instant;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AddressType, AtomicOp, Attributes, ByteEnables, CplStatus, Kind, Repr};

/// What a completion takes over from its request.
#[derive(Clone, Copy)]
struct Asker {
    requester: Bdf,
    tag: Tag,
    traffic_class: u8,
    attributes: Attributes,
}

impl Asker {
    fn new(repr: &Repr<'_>, requester: Bdf, tag: Tag) -> Self {
        Self { requester, tag, traffic_class: repr.traffic_class, attributes: repr.attributes }
    }

    fn completion(
        self,
        status: CplStatus,
        locked: bool,
        byte_count: u16,
        lower_address: u8,
        data: &[u8],
    ) -> Repr<'_> {
        let mut repr = Repr::new(Kind::Completion {
            completer: HOST_ID,
            requester: self.requester,
            tag: self.tag,
            status,
            bcm: false,
            byte_count,
            lower_address,
            locked,
            data,
        });
        repr.traffic_class = self.traffic_class;
        repr.attributes = self.attributes;
        repr
    }
}

impl<P: TlpPort> RootComplex<P> {
    pub(super) fn take_request(&mut self, repr: &Repr<'_>) -> Result<(), PortError> {
        // No translation was granted and no prefix is supported: neither means memory here.
        let plain = repr.address_type == AddressType::Untranslated && repr.prefixes.is_empty();
        match repr.kind {
            Kind::MemRead {
                requester, tag, address, length_dw, enables, locked: false, ..
            } if plain => {
                let asker = Asker::new(repr, requester, tag);
                self.device_read(asker, address, length_dw, enables)
            }
            Kind::MemWrite { address, enables, data, .. } => {
                let done = plain && !repr.poisoned && self.device_write(address, enables, data);
                if !done {
                    self.counters.posted_dropped += 1;
                    let so_far = self.counters.posted_dropped;
                    // A device can do this as often as it likes, and the log is the host's: ever
                    // fewer of them are told.
                    if so_far.is_power_of_two() {
                        tracing::warn!(address, so_far, "memory write of a device dropped");
                    }
                }
                Ok(())
            }
            Kind::Atomic { op, requester, tag, address, data, .. } if plain && !repr.poisoned => {
                self.device_atomic(Asker::new(repr, requester, tag), op, address, data)
            }
            Kind::Message { requester, code, fields, .. } => {
                self.keep_message(Message { requester, code, fields, at: Instant::now() });
                Ok(())
            }
            Kind::MemRead { requester, tag, locked, .. } => {
                self.unsupported(Asker::new(repr, requester, tag), locked)
            }
            Kind::Atomic { requester, tag, .. }
            | Kind::DeferrableMemWrite { requester, tag, .. }
            | Kind::IoRead { requester, tag, .. }
            | Kind::IoWrite { requester, tag, .. }
            | Kind::ConfigRead { requester, tag, .. }
            | Kind::ConfigWrite { requester, tag, .. } => {
                self.unsupported(Asker::new(repr, requester, tag), false)
            }
            Kind::Completion { .. } => unreachable!("completions are taken elsewhere"),
        }
    }

    fn unsupported(&mut self, asker: Asker, locked: bool) -> Result<(), PortError> {
        self.counters.unsupported_requests += 1;
        self.complete(asker, CplStatus::UnsupportedRequest, locked, 4, 0, &[])
    }

    /// Sends a completion that is made of nothing but what is given.
    fn complete(
        &mut self,
        asker: Asker,
        status: CplStatus,
        locked: bool,
        byte_count: u16,
        lower_address: u8,
        data: &[u8],
    ) -> Result<(), PortError> {
        self.send(&asker.completion(status, locked, byte_count, lower_address, data))
    }

    fn device_read(
        &mut self,
        asker: Asker,
        address: u64,
        length_dw: u16,
        enables: ByteEnables,
    ) -> Result<(), PortError> {
        let total = usize::from(length_dw) * 4;
        if self.memory.get(address, total).is_none() {
            return self.unsupported(asker, false);
        }
        self.counters.device_reads += 1;
        let (skip, count) = extent(length_dw, enables);
        if length_dw == 1 && enables.first == 0 {
            // A read of no bytes orders what went before; its doubleword means nothing.
            return self.complete(
                asker,
                CplStatus::Success,
                false,
                1,
                address as u8 & 0x7f,
                &[0; 4],
            );
        }
        self.counters.device_bytes_read += count as u64;
        let (mut at, end) = (address + skip as u64, address + (skip + count) as u64);
        let payload = self.payload(asker.requester) as u64;
        while at < end {
            let stop = self.completion_end(at, end, payload);
            let (first, last) = (at & !3, stop.next_multiple_of(4));
            let data = self.memory.get(first, (last - first) as usize);
            let data = data.expect("the whole range was looked up");
            let (left, lower) = ((end - at) as u16, at as u8 & 0x7f);
            let repr = asker.completion(CplStatus::Success, false, left, lower, data);
            send_on(&mut self.port, &mut self.tx, &repr)?;
            at = stop;
        }
        Ok(())
    }

    /// Where the completion that starts at `at` ends: at the end of the read, or at a Read
    /// Completion Boundary (PCIe 5.0 section 2.3.1.1).
    fn completion_end(&self, at: u64, end: u64, payload: u64) -> u64 {
        let boundary = u64::from(self.config.read_completion_boundary);
        let reach = (at & !3) + payload;
        if self.config.split_at_boundary {
            (at + 1).next_multiple_of(boundary).min(end)
        } else if reach >= end {
            end
        } else {
            reach / boundary * boundary
        }
    }

    /// Whether the write was done.
    fn device_write(&mut self, address: u64, enables: ByteEnables, data: &[u8]) -> bool {
        if MSI_RANGE.contains(&address) {
            // An interrupt is one whole doubleword (PCIe 5.0 section 6.1.4).
            let Ok(data) = <[u8; 4]>::try_from(data) else { return false };
            if enables.first != 0xf {
                return false;
            }
            self.counters.interrupts += 1;
            self.interrupts.signal(Vector::from_write(address, u32::from_le_bytes(data)));
            return true;
        }
        let Some(memory) = self.memory.get_mut(address, data.len()) else { return false };
        let dwords = data.len() / 4;
        if (enables.first, enables.last) == (0xf, 0xf) || dwords == 1 && enables.first == 0xf {
            memory.copy_from_slice(data);
        } else {
            for (i, (to, from)) in memory.chunks_mut(4).zip(data.chunks(4)).enumerate() {
                let mask = match i {
                    0 => enables.first,
                    i if i + 1 == dwords => enables.last,
                    _ => 0xf,
                };
                for byte in (0..4).filter(|byte| mask >> byte & 1 != 0) {
                    to[byte] = from[byte];
                }
            }
        }
        self.counters.device_writes += 1;
        self.counters.device_bytes_written += data.len() as u64;
        true
    }

    fn device_atomic(
        &mut self,
        asker: Asker,
        op: AtomicOp,
        address: u64,
        data: &[u8],
    ) -> Result<(), PortError> {
        let size = if op == AtomicOp::Cas { data.len() / 2 } else { data.len() };
        let Some(memory) = self.memory.get_mut(address, size) else {
            return self.unsupported(asker, false);
        };
        let mut before = [0; 16];
        before[..size].copy_from_slice(memory);
        match op {
            AtomicOp::Swap => memory.copy_from_slice(data),
            AtomicOp::FetchAdd => {
                let sum = number(memory).wrapping_add(number(data)).to_le_bytes();
                memory.copy_from_slice(&sum[..size]);
            }
            AtomicOp::Cas => {
                let (compare, swap) = data.split_at(size);
                if &*memory == compare {
                    memory.copy_from_slice(swap);
                }
            }
        }
        self.counters.device_atomics += 1;
        // Byte count is the operand's size, lower address is reserved (PCIe 5.0 section 2.3.1.1).
        self.complete(asker, CplStatus::Success, false, size as u16, 0, &before[..size])
    }
}

fn number(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(wide)
}

/// Offset of the first byte that a read asks for and the bytes from there to the last one
/// (PCIe 5.0 table 2-39).
fn extent(length_dw: u16, enables: ByteEnables) -> (usize, usize) {
    let total = usize::from(length_dw) * 4;
    let first = if enables.first == 0 { 0 } else { enables.first.trailing_zeros() as usize };
    let last_enables = if length_dw == 1 { enables.first } else { enables.last };
    let cut = if last_enables == 0 { 3 } else { last_enables.leading_zeros() as usize - 4 };
    (first, total - cut - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_those_of_the_specifications_table() {
        // PCIe 5.0 table 2-39: first enables, last enables, length, byte count.
        for (first, last, length, count) in [
            (0b1001, 0, 1, 4),
            (0b0101, 0, 1, 3),
            (0b1010, 0, 1, 3),
            (0b0011, 0, 1, 2),
            (0b0110, 0, 1, 2),
            (0b1100, 0, 1, 2),
            (0b0001, 0, 1, 1),
            (0b1000, 0, 1, 1),
            (0b0000, 0, 1, 1),
            (0b1111, 0b1111, 2, 8),
            (0b1111, 0b0001, 2, 5),
            (0b1110, 0b0111, 3, 10),
            (0b1000, 0b0001, 3, 6),
        ] {
            let enables = ByteEnables { first, last };
            assert_eq!(extent(length, enables).1, count, "{first:04b} {last:04b} {length}");
        }
    }
}
