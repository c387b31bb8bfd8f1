//! The TLP parser: what it takes it writes back byte for byte, and nothing that the view reads or
//! rewrites panics.

use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Packet, Repr, ecrc};

/// Takes a TLP's bytes.
pub fn run(data: &[u8]) {
    view(data);
    rewrite(data);
    let Ok(repr) = Repr::from_bytes(data) else { return };
    let mut buffer = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut buffer).expect("what was read can be written");
    assert_eq!(buffer[..length], *data, "{repr:?}");
    assert_eq!(repr.check(), Ok(()), "what was read keeps every rule");
    let packet = Packet::new_checked(data).expect("what has a meaning has a header");
    assert_eq!(Some(repr.class()), packet.class());
    assert_eq!(repr.tlp_type(), packet.tlp_type());
    // One byte less is no room.
    let short = buffer.len() - 1;
    assert!(repr.emit(&mut buffer[..short]).is_err());
}

/// Every accessor, whatever the type is.
fn view(data: &[u8]) {
    let _ = ecrc(data);
    let Ok(packet) = Packet::new_header_checked(data) else {
        assert!(Packet::new_checked(data).is_err());
        return;
    };
    let whole = Packet::new_checked(data).is_ok();
    assert_eq!(whole, packet.total_len() == data.len());
    let _ = (packet.tlp_type(), packet.class(), packet.traffic_class(), packet.attributes());
    let _ = (packet.has_ln(), packet.has_hints(), packet.has_digest(), packet.is_poisoned());
    let _ = (packet.address_type(), packet.requester(), packet.tag(), packet.byte_enables());
    let _ = (packet.address(), packet.destination(), packet.register(), packet.message_routing());
    let _ = (packet.message_fields(), packet.message_code(), packet.completer(), packet.status());
    let _ = (packet.has_bcm(), packet.byte_count(), packet.lower_address(), packet.prefix_bytes());
    let _ = (packet.digest(), packet.digest_is_good(), packet.check_digest());
    assert!(packet.payload().len() <= packet.payload_len());
    assert!((1..=1024).contains(&packet.length_dw()));
    assert!((1..=4096).contains(&packet.byte_count()));
}

/// A rewritten ID or tag is read back, and nothing else of the TLP changes its meaning.
fn rewrite(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Ok(mut packet) = Packet::new_checked(&mut bytes[..]) else { return };
    let (before, class) = (packet.tlp_type(), packet.class());
    let tag = Tag::new(0x2a5).expect("a tag");
    packet.set_requester(Bdf::from_bits(0x1234));
    packet.set_tag(tag);
    assert_eq!((packet.requester().bits(), packet.tag()), (0x1234, tag));
    assert_eq!((packet.tlp_type(), packet.class()), (before, class));
}
