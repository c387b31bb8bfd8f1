//! Completions that the switch makes itself (PCIe 5.0 sections 2.2.9 and 2.3.1.1).

use tlp_codec::ids::Bdf;
use tlp_codec::tlp::{Attributes, ByteEnables, CplStatus, Kind, Packet, Repr, TlpType};

/// Bytes of the longest completion that is made here: header and one doubleword.
pub const COMPLETION_BYTES: usize = 16;

/// A completion, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    bytes: [u8; COMPLETION_BYTES],
    length: u8,
}

impl Completion {
    /// The TLP.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Answers a configuration read with a register's value.
    pub fn with_register<T: AsRef<[u8]>>(
        request: &Packet<T>,
        completer: Bdf,
        value: u32,
    ) -> Completion {
        make(request, completer, CplStatus::Success, &value.to_le_bytes())
    }

    /// Answers a request without data: success of a configuration or I/O write, or failure of
    /// anything non-posted.
    pub fn without_data<T: AsRef<[u8]>>(
        request: &Packet<T>,
        completer: Bdf,
        status: CplStatus,
    ) -> Completion {
        make(request, completer, status, &[])
    }
}

fn make<T: AsRef<[u8]>>(
    request: &Packet<T>,
    completer: Bdf,
    status: CplStatus,
    data: &[u8],
) -> Completion {
    let (byte_count, lower_address) = expected(request);
    let attributes = request.attributes();
    let repr = Repr {
        traffic_class: request.traffic_class(),
        // IDO is the completer's own choice; the others are the request's (section 2.2.9).
        attributes: Attributes { id_based_ordering: false, ..attributes },
        ..Repr::new(Kind::Completion {
            completer,
            requester: request.requester(),
            tag: request.tag(),
            status,
            bcm: false,
            byte_count,
            lower_address,
            locked: request.tlp_type() == TlpType::MRdLk,
            data,
        })
    };
    let mut bytes = [0; COMPLETION_BYTES];
    let length = repr.emit(&mut bytes);
    assert!(length.is_ok(), "a completion for a request that was checked");
    Completion { bytes, length: length.map_or(0, |n| n as u8) }
}

/// Byte count and lower address of the first completion of a request: what a memory read or
/// atomic operation asks for; 4 and 0 for everything else.
fn expected<T: AsRef<[u8]>>(request: &Packet<T>) -> (u16, u8) {
    match request.tlp_type() {
        TlpType::MRd | TlpType::MRdLk => {
            let enables = if request.has_hints() {
                // The byte enables' place holds the steering tag; all bytes are meant.
                ByteEnables::all(request.length_dw())
            } else {
                request.byte_enables()
            };
            read_extent(request.address(), request.length_dw(), enables)
        }
        TlpType::FetchAdd | TlpType::Swap => ((4 * request.length_dw()).min(4096), 0),
        TlpType::Cas => ((2 * request.length_dw()).clamp(1, 4096), 0),
        _ => (4, 0),
    }
}

/// From the first to the last enabled byte (section 2.3.1.1, tables 2-38 and 2-39). A read of
/// nothing (no byte enabled) counts as one byte.
fn read_extent(address: u64, length_dw: u16, enables: ByteEnables) -> (u16, u8) {
    let first = if enables.first == 0 { 0 } else { enables.first.trailing_zeros() as u16 };
    let last_enables = if length_dw == 1 { enables.first } else { enables.last };
    let last = if last_enables == 0 { 0 } else { 7 - last_enables.leading_zeros() as u16 };
    let count = (4 * (length_dw - 1) + last + 1).saturating_sub(first).max(1);
    (count, (address as u8 & 0x7c) | first as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::Tag;

    fn read(address: u64, length_dw: u16, first: u8, last: u8) -> (u16, u8, bool) {
        let mut bytes = [0; 16];
        let repr = Repr::new(Kind::MemRead {
            requester: Bdf::from_bits(0x0100),
            tag: Tag::new(0x155).unwrap(),
            address,
            length_dw,
            enables: ByteEnables { first, last },
            hint: None,
            locked: false,
        });
        let length = repr.emit(&mut bytes).unwrap();
        let request = Packet::new_checked(&bytes[..length]).unwrap();
        let answer = Completion::without_data(
            &request,
            Bdf::from_bits(0x0200),
            CplStatus::UnsupportedRequest,
        );
        let packet = Packet::new_checked(answer.as_bytes()).unwrap();
        assert_eq!(packet.tag(), request.tag());
        assert_eq!(packet.requester(), request.requester());
        assert_eq!(packet.completer(), Bdf::from_bits(0x0200));
        assert_eq!(packet.status(), CplStatus::UnsupportedRequest);
        (packet.byte_count(), packet.lower_address(), packet.has_data())
    }

    /// Rows of table 2-38 (byte count) and 2-39 (lower address).
    #[test]
    fn byte_count_and_lower_address_follow_the_byte_enables() {
        assert_eq!(read(0x1000, 1, 0b1111, 0), (4, 0x00, false));
        assert_eq!(read(0x1004, 1, 0b0101, 0), (3, 0x04, false));
        assert_eq!(read(0x1004, 1, 0b1010, 0), (3, 0x05, false));
        assert_eq!(read(0x1078, 1, 0b0110, 0), (2, 0x79, false));
        assert_eq!(read(0x1078, 1, 0b1000, 0), (1, 0x7b, false));
        assert_eq!(read(0x1078, 1, 0b0000, 0), (1, 0x78, false));
        assert_eq!(read(0x1000, 4, 0b1110, 0b0011), (13, 0x01, false));
        assert_eq!(read(0x1_0000_0f80, 32, 0b1111, 0b1111), (128, 0x00, false));
        assert_eq!(read(0x2000, 1024, 0b1111, 0b1111), (4096, 0x00, false));
    }

    #[test]
    fn a_locked_read_gets_a_locked_completion() {
        let mut bytes = [0; 16];
        let repr = Repr::new(Kind::MemRead {
            requester: Bdf::from_bits(1),
            tag: Tag::new(1).unwrap(),
            address: 0,
            length_dw: 1,
            enables: ByteEnables::all(1),
            hint: None,
            locked: true,
        });
        let length = repr.emit(&mut bytes).unwrap();
        let request = Packet::new_checked(&bytes[..length]).unwrap();
        let answer =
            Completion::without_data(&request, Bdf::default(), CplStatus::UnsupportedRequest);
        assert_eq!(Packet::new_checked(answer.as_bytes()).unwrap().tlp_type(), TlpType::CplLk);
    }
}
