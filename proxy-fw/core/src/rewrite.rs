//! Changing a TLP on its way.

use crate::canaries::{Canary, planted};
use tlp_codec::tlp::Packet;

/// Changes fields of a TLP and computes its digest anew, if it has one. A digest that was wrong
/// before stays wrong: whoever checks it is to find what broke (PCIe 5.0 section 2.7.1).
pub(crate) fn rewrite<T: AsRef<[u8]> + AsMut<[u8]>>(
    packet: &mut Packet<T>,
    change: impl FnOnce(&mut Packet<T>),
) {
    if !packet.has_digest() {
        return change(packet);
    }
    let good = packet.digest_is_good();
    change(packet);
    if good == Some(true) && !planted(Canary::StaleDigest) {
        packet.update_digest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{ByteEnables, Kind, Repr};

    fn read() -> [u8; 16] {
        let mut repr = Repr::new(Kind::MemRead {
            requester: Bdf::from_bits(0x0300),
            tag: Tag::new(1).unwrap(),
            address: 0x1000,
            length_dw: 1,
            enables: ByteEnables::all(1),
            hint: None,
            locked: false,
        });
        repr.digest = Some(0);
        let mut bytes = [0; 16];
        assert_eq!(repr.emit(&mut bytes), Ok(16));
        Packet::new_checked(&mut bytes[..]).unwrap().update_digest();
        bytes
    }

    #[test]
    fn a_right_digest_stays_right_and_a_wrong_one_wrong() {
        for broken in [false, true] {
            let mut bytes = read();
            bytes[11] ^= u8::from(broken) << 2;
            let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
            rewrite(&mut packet, |p| p.set_tag(Tag::new(7).unwrap()));
            assert_eq!(packet.tag().get(), 7);
            assert_eq!(packet.digest_is_good(), Some(!broken));
        }
    }
}
