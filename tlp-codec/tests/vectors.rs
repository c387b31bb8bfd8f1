//! Every vector of `tests/vectors`, byte for byte both ways, and what the view reads of it.

mod common;

use common::{bytes_of, from_hex, vectors};
use serde_json::Value;
use tlp_codec::tlp::{ByteEnables, Handling, Kind, MsgCode, Packet, Repr, Rule, ecrc};

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        other => other.as_u64(),
    }
}

/// Compares what the view reads with the vector's fields; each that is there is compared.
fn compare(name: &str, packet: &Packet<&[u8]>, fields: &Value) {
    let flag = |key: &str| fields[key].as_bool().unwrap_or(false);
    let attributes = packet.attributes();
    assert_eq!(packet.tlp_type().name(), fields["type"], "{name}");
    assert_eq!(u64::from(packet.traffic_class()), fields["tc"].as_u64().unwrap_or(0), "{name}");
    assert_eq!(attributes.relaxed_ordering, flag("ro"), "{name}");
    assert_eq!(attributes.no_snoop, flag("ns"), "{name}");
    assert_eq!(attributes.id_based_ordering, flag("ido"), "{name}");
    assert_eq!(packet.has_ln(), flag("ln"), "{name}");
    assert_eq!(packet.is_poisoned(), flag("poisoned"), "{name}");
    assert_eq!(packet.requester().to_string(), fields["requester"], "{name}");
    let at = ["untranslated", "translation-request", "translated", "reserved"];
    let expected_at = fields["at"].as_str().unwrap_or(at[0]);
    assert_eq!(at[packet.address_type() as usize], expected_at, "{name}");
    let steering_in_tag = fields["type"] == "MWr" && packet.has_hints();
    if !steering_in_tag {
        assert_eq!(u64::from(packet.tag().get()), fields["tag"], "{name}");
    }
    let numbers = [
        ("address", packet.address()),
        ("register", packet.register().into()),
        ("length", packet.length_dw().into()),
        ("first_be", packet.byte_enables().first.into()),
        ("last_be", packet.byte_enables().last.into()),
        ("byte_count", packet.byte_count().into()),
        ("lower_address", packet.lower_address().into()),
    ];
    for (key, read) in numbers {
        if let Some(expected) = number(&fields[key]) {
            assert_eq!(read, expected, "{name}: {key}");
        }
    }
    let texts = [
        ("completer", packet.completer().to_string()),
        ("destination", packet.destination().to_string()),
        ("routing", packet.message_routing().to_string()),
        ("code", packet.message_code().to_string()),
        ("status", packet.status().to_string()),
    ];
    for (key, read) in texts {
        if let Value::String(expected) = &fields[key] {
            assert_eq!(&read, expected, "{name}: {key}");
        }
    }
    if let Value::String(data) = &fields["data"] {
        assert_eq!(packet.payload(), from_hex(data), "{name}: data");
    }
}

fn there_and_back(name: &str, bytes: &[u8]) {
    let packet = Packet::new_checked(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    let repr = Repr::parse(&packet).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut buf = vec![0; repr.buffer_len()];
    assert_eq!(repr.emit(&mut buf), Ok(bytes.len()), "{name}");
    assert_eq!(buf, bytes, "{name}");
    assert_eq!(repr.tlp_type(), packet.tlp_type(), "{name}");
    assert_eq!(Some(repr.class()), packet.class(), "{name}");
    assert_eq!(repr.transaction_id().0, packet.requester(), "{name}");
}

#[test]
fn every_vector_reads_and_writes_byte_for_byte() {
    for file in ["cocotbext.json", "captures.json", "hand.json"] {
        for vector in vectors(file) {
            let name = format!("{file}: {}", vector["name"]);
            let mut bytes = bytes_of(&vector);
            let packet = Packet::new_header_checked(&bytes[..]).unwrap();
            compare(&name, &packet, &vector["tlp"]);
            if let Some(whole) = vector["cut_short_of"].as_u64() {
                let error = Packet::new_checked(&bytes[..]).unwrap_err();
                assert!(error.to_string().contains("bytes"), "{name}: {error}");
                // The header and what there is of the data, with any data behind.
                bytes.resize(whole as usize, 0xa5);
            }
            there_and_back(&name, &bytes);
        }
    }
}

/// Their bytes come from elsewhere than our table of codes.
#[test]
fn every_known_message_code_has_a_vector() {
    let mut seen = Vec::new();
    for file in ["cocotbext.json", "captures.json", "hand.json"] {
        for vector in vectors(file) {
            if let Some(code) = vector["tlp"]["code"].as_str() {
                // The message code is the header's byte 7; prefixes are 4 bytes, of format 100b.
                let bytes = bytes_of(&vector);
                let first = (0..).step_by(4).find(|&at| bytes[at] >> 5 != 4).unwrap();
                seen.push((bytes[first + 7], code.to_owned()));
            }
        }
    }
    let missing: Vec<&MsgCode> = MsgCode::KNOWN
        .iter()
        .filter(|code| !seen.contains(&(code.byte(), code.to_string())))
        .collect();
    assert!(missing.is_empty(), "no vector has {missing:?}");
}

#[test]
fn every_broken_vector_breaks_the_rule_that_it_names() {
    let mut seen = Vec::new();
    for vector in vectors("broken.json") {
        let bytes = bytes_of(&vector);
        let error = Repr::from_bytes(&bytes).expect_err(&vector["name"].to_string());
        assert_eq!(error.rule.name(), vector["rule"], "{}: {error}", vector["name"]);
        seen.push(error.rule);
    }
    // These depend on how the receiver is set up and are checked one by one elsewhere.
    let asked = [
        Rule::PayloadAboveMax,
        Rule::UnknownMessage,
        Rule::ReadCompletionBoundary,
        Rule::Poisoned,
        Rule::Ecrc,
    ];
    for rule in Rule::ALL {
        assert!(seen.contains(rule) || asked.contains(rule), "no vector breaks {}", rule.name());
        assert!(rule.section().contains("section") || rule.section().contains("ECN"));
        assert_ne!(rule.handling().aer_bit(), 0);
    }
}

#[test]
fn digests_are_told_right_from_wrong() {
    let mut right = 0;
    for vector in vectors("hand.json") {
        let Some(good) = vector["ecrc"].as_bool() else { continue };
        let bytes = bytes_of(&vector);
        let mut packet = Packet::new_checked(bytes.clone()).unwrap();
        assert_eq!(packet.digest_is_good(), Some(good), "{}", vector["name"]);
        assert_eq!(packet.check_digest().is_ok(), good);
        packet.update_digest();
        assert_eq!(packet.digest_is_good(), Some(true));
        if good {
            right += 1;
            assert_eq!(packet.into_inner(), bytes);
            let (tlp, digest) = bytes.split_at(bytes.len() - 4);
            assert_eq!(ecrc(tlp).to_le_bytes(), digest);
        } else {
            let error = packet_error(&bytes);
            assert_eq!((error.rule, error.handling()), (Rule::Ecrc, Handling::EcrcFailed));
        }
    }
    assert!(right >= 7);
}

fn packet_error(bytes: &[u8]) -> tlp_codec::tlp::RuleError {
    Packet::new_checked(bytes).unwrap().check_digest().unwrap_err()
}

#[test]
fn first_completions_count_what_cocotbext_counts() {
    let mut reads = 0;
    for vector in vectors("cocotbext.json") {
        let Some(count) = vector["first_completion_byte_count"].as_u64() else { continue };
        let bytes = bytes_of(&vector);
        let repr = Repr::from_bytes(&bytes).unwrap();
        let Kind::MemRead { enables, length_dw, .. } = repr.kind else { panic!("not a read") };
        assert_eq!(u64::from(enables.byte_count(length_dw)), count, "{}", vector["name"]);
        reads += 1;
    }
    assert!(reads > 20);
}

/// The rows of the specification's tables (PCIe 5.0 section 2.2.9).
#[test]
fn byte_counts_and_lower_addresses_are_those_of_the_tables() {
    let be = |first, last| ByteEnables { first, last };
    let rows = [
        (be(0b1001, 0), 1, 4, 0),
        (be(0b0101, 0), 1, 3, 0),
        (be(0b1010, 0), 1, 3, 1),
        (be(0b0011, 0), 1, 2, 0),
        (be(0b0110, 0), 1, 2, 1),
        (be(0b1100, 0), 1, 2, 2),
        (be(0b0001, 0), 1, 1, 0),
        (be(0b0010, 0), 1, 1, 1),
        (be(0b0100, 0), 1, 1, 2),
        (be(0b1000, 0), 1, 1, 3),
        (be(0b0000, 0), 1, 1, 0),
        (be(0b1111, 0b1111), 8, 32, 0),
        (be(0b1111, 0b0100), 8, 31, 0),
        (be(0b1111, 0b0010), 8, 30, 0),
        (be(0b1111, 0b0001), 8, 29, 0),
        (be(0b1010, 0b1000), 8, 31, 1),
        (be(0b1100, 0b0111), 8, 29, 2),
        (be(0b1000, 0b0001), 8, 26, 3),
    ];
    for (enables, length, count, offset) in rows {
        assert_eq!(enables.byte_count(length), count, "{enables:?}");
        assert_eq!(enables.lower_address(0x1_0000_01c0), 0x40 | offset, "{enables:?}");
    }
}

#[test]
fn rules_that_need_the_receivers_settings() {
    let completion = from_hex("4a000001050000080100050001020304");
    let repr = Repr::from_bytes(&completion).unwrap();
    // Four of eight bytes end at 4, which is no boundary.
    let error = repr.check_read_completion_boundary(64).unwrap_err();
    assert_eq!((error.rule, error.found), (Rule::ReadCompletionBoundary, 4));
    // The last one may end anywhere; one that ends at 64 is right for 64 and wrong for 128.
    let last = from_hex("4a000001050000040100050001020304");
    assert_eq!(Repr::from_bytes(&last).unwrap().check_read_completion_boundary(64), Ok(()));
    let at_64 = from_hex("4a000001050000080100053c01020304");
    let at_64 = Repr::from_bytes(&at_64).unwrap();
    assert_eq!(at_64.check_read_completion_boundary(64), Ok(()));
    assert!(at_64.check_read_completion_boundary(128).is_err());

    assert_eq!(repr.check_max_payload(4), Ok(()));
    assert_eq!(repr.check_max_payload(0).unwrap_err().rule, Rule::PayloadAboveMax);

    let poisoned = Repr { poisoned: true, ..repr };
    assert_eq!(poisoned.check_poison().unwrap_err().handling(), Handling::PoisonedTlp);
    assert_eq!(repr.check_poison(), Ok(()));

    let unknown = from_hex("30000000010000990102030405060708");
    let error = Repr::from_bytes(&unknown).unwrap().check_known_message().unwrap_err();
    assert_eq!((error.rule, error.found), (Rule::UnknownMessage, 0x99));
    assert_eq!(error.handling(), Handling::UnsupportedRequest);
}
