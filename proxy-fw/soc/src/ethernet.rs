//! Ethernet II headers, and what a frame is for.

use tlp_codec::fabric::ETHERTYPE;

/// Destination, source, EtherType.
pub const HEADER: usize = 14;

/// 802.1Q.
const VLAN_TAG: u16 = 0x8100;

/// Bytes of a VLAN tag.
pub const TAG: usize = 4;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It carries a fabric frame, from this offset on.
    Fabric(usize),
    /// It is for the card's IP.
    Ip,
    /// It is for somebody else, too short, or of another VLAN.
    Nobody,
}

/// Says what a frame is for that came to a card with this address, in this VLAN or in none.
pub fn purpose(frame: &[u8], own: [u8; 6], vlan: Option<u16>) -> Purpose {
    let Some((header, rest)) = frame.split_first_chunk::<HEADER>() else { return Purpose::Nobody };
    let is_group = header[0] & 1 != 0;
    if !is_group && header[..6] != own {
        return Purpose::Nobody;
    }
    let ethertype = u16::from_be_bytes([header[12], header[13]]);
    match (ethertype, vlan) {
        // Fabric frames go from one node to another.
        (ETHERTYPE, None) if !is_group => Purpose::Fabric(HEADER),
        (VLAN_TAG, Some(vlan)) if !is_group => {
            let Some((tag, _)) = rest.split_first_chunk::<TAG>() else { return Purpose::Nobody };
            let of = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
            let inner = u16::from_be_bytes([tag[2], tag[3]]);
            let ours = of == vlan && inner == ETHERTYPE;
            if ours { Purpose::Fabric(HEADER + TAG) } else { Purpose::Nobody }
        }
        (ETHERTYPE | VLAN_TAG, _) => Purpose::Nobody,
        _ => Purpose::Ip,
    }
}

/// Writes the header of a fabric frame; its length.
///
/// # Panics
///
/// When `out` is shorter than a header with a tag.
pub fn emit(to: [u8; 6], from: [u8; 6], vlan: Option<u16>, out: &mut [u8]) -> usize {
    out[..6].copy_from_slice(&to);
    out[6..12].copy_from_slice(&from);
    match vlan {
        None => {
            out[12..HEADER].copy_from_slice(&ETHERTYPE.to_be_bytes());
            HEADER
        }
        Some(vlan) => {
            out[12..14].copy_from_slice(&VLAN_TAG.to_be_bytes());
            out[14..16].copy_from_slice(&vlan.to_be_bytes());
            out[16..HEADER + TAG].copy_from_slice(&ETHERTYPE.to_be_bytes());
            HEADER + TAG
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn what_is_written_is_understood() {
        for vlan in [None, Some(100)] {
            let mut frame = [0; 64];
            let length = emit(OWN, PEER, vlan, &mut frame);
            assert_eq!(purpose(&frame, OWN, vlan), Purpose::Fabric(length));
            assert_eq!(purpose(&frame, PEER, vlan), Purpose::Nobody, "another's");
            let other = if vlan.is_some() { None } else { Some(7) };
            assert_eq!(purpose(&frame, OWN, other), Purpose::Nobody, "another VLAN");
            for cut in 0..length {
                assert_eq!(purpose(&frame[..cut], OWN, vlan), Purpose::Nobody, "{cut}");
            }
        }
    }

    #[test]
    fn a_fabric_frame_for_many_is_for_nobody() {
        let mut frame = [0; 64];
        emit([0xff; 6], PEER, None, &mut frame);
        assert_eq!(purpose(&frame, OWN, None), Purpose::Nobody);
    }

    #[test]
    fn arp_and_ip_are_for_the_stack() {
        for ethertype in [0x0800_u16, 0x0806] {
            let mut frame = [0xff; 64];
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            assert_eq!(purpose(&frame, OWN, None), Purpose::Ip);
        }
    }
}
