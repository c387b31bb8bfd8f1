//! Decode and encode are each other's inverse, in both directions, and nothing panics.

use proptest::prelude::*;
use proptest::sample::select;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::*;

fn bdf() -> impl Strategy<Value = Bdf> {
    any::<u16>().prop_map(Bdf::from_bits)
}

fn tag() -> impl Strategy<Value = Tag> {
    (0_u16..1024).prop_map(|tag| Tag::new(tag).unwrap())
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u32>().prop_map(u64::from), any::<u64>()].prop_map(|address| address & !3)
}

/// A range that crosses no 4 KB boundary: address and bytes.
fn range() -> impl Strategy<Value = (u64, usize)> {
    (prop_oneof![any::<u32>().prop_map(u64::from), any::<u64>()], 1_usize..=4096).prop_map(
        |(address, bytes)| {
            let room = 4096 - (address & 0xfff) as usize;
            (address, bytes.min(room))
        },
    )
}

fn hint() -> impl Strategy<Value = Option<TphHint>> {
    proptest::option::of(
        (0_u8..4, any::<u8>())
            .prop_map(|(processing_hint, steering_tag)| TphHint { processing_hint, steering_tag }),
    )
}

fn message() -> impl Strategy<Value = (MsgRouting, MsgCode, u8, usize)> {
    (any::<u8>(), 0_u8..8, 0_u8..8, 0_usize..4).prop_map(|(code, routing, tc, dw)| {
        let (code, mut routing, mut tc) =
            (MsgCode::from_byte(code), MsgRouting::from_bits(routing), tc);
        let mut len = dw * 4;
        if let Some(form) = code.form() {
            while !form.allows_routing(routing) {
                routing = MsgRouting::from_bits(routing as u8 + 1);
            }
            if !form.allows_data(len) {
                len = form.data.0.into();
            }
            if form.traffic_class_0 {
                tc = 0;
            }
        }
        (routing, code, tc, len)
    })
}

static DATA: [u8; 4096] = {
    let mut data = [0; 4096];
    let mut i = 0;
    while i < data.len() {
        data[i] = (i * 7 + i / 251) as u8;
        i += 1;
    }
    data
};

/// A kind, and the traffic class where the kind decides it.
fn kind() -> impl Strategy<Value = (Kind<'static>, Option<u8>)> {
    let read = (bdf(), tag(), range(), hint(), any::<bool>()).prop_map(
        |(requester, tag, (at, bytes), hint, locked)| {
            let (enables, length_dw) = ByteEnables::for_range(at, bytes);
            let enables = if hint.is_some() { ByteEnables::all(length_dw) } else { enables };
            let address = at & !3;
            (Kind::MemRead { requester, tag, address, length_dw, enables, hint, locked }, None)
        },
    );
    let write = (bdf(), tag(), range(), hint(), any::<bool>()).prop_map(
        |(requester, tag, (at, bytes), hint, deferrable)| {
            let bytes = if deferrable { bytes.min(125) } else { bytes };
            let (enables, length_dw) = ByteEnables::for_range(at, bytes);
            let (address, data) = (at & !3, &DATA[..usize::from(length_dw) * 4]);
            let kind = if deferrable {
                let enables = if hint.is_some() { ByteEnables::all(length_dw) } else { enables };
                Kind::DeferrableMemWrite { requester, tag, address, enables, hint, data }
            } else {
                let tag = if hint.is_some() { tag.without_low_byte() } else { tag };
                Kind::MemWrite { requester, tag, address, enables, hint, data }
            };
            (kind, None)
        },
    );
    let io = (bdf(), tag(), any::<u32>(), 0_u8..16, any::<bool>()).prop_map(
        |(requester, tag, address, first_be, write)| {
            let address = address & !3;
            let kind = if write {
                Kind::IoWrite { requester, tag, address, first_be, data: &DATA[4..8] }
            } else {
                Kind::IoRead { requester, tag, address, first_be }
            };
            (kind, Some(0))
        },
    );
    let config = (bdf(), tag(), bdf(), 0_u16..1024, 0_u8..16, any::<bool>(), any::<bool>())
        .prop_map(|(requester, tag, destination, register, first_be, write, type1)| {
            let register = register * 4;
            let kind = if write {
                let data = &DATA[8..12];
                Kind::ConfigWrite { type1, requester, tag, destination, register, first_be, data }
            } else {
                Kind::ConfigRead { type1, requester, tag, destination, register, first_be }
            };
            (kind, Some(0))
        });
    let message = (bdf(), tag(), message(), any::<[u8; 8]>()).prop_map(
        |(requester, tag, (routing, code, tc, len), fields)| {
            let data = &DATA[..len];
            (Kind::Message { routing, code, requester, tag, fields, data }, Some(tc))
        },
    );
    let completion = (
        (bdf(), bdf(), tag()),
        (0_u8..8, any::<bool>(), any::<bool>()),
        (1_u16..=4096, 0_u8..128, 0_usize..=1024),
    )
        .prop_map(
            |((completer, requester, tag), (status, bcm, locked), (byte_count, lower, dw))| {
                let most = (usize::from(lower & 3) + usize::from(byte_count)).div_ceil(4);
                let data = &DATA[..dw.min(most) * 4];
                let status = CplStatus::from_bits(status);
                let kind = Kind::Completion {
                    completer,
                    requester,
                    tag,
                    status,
                    bcm,
                    byte_count,
                    lower_address: lower,
                    locked,
                    data,
                };
                (kind, None)
            },
        );
    let atomic = (
        bdf(),
        tag(),
        address(),
        hint(),
        select(vec![
            (AtomicOp::FetchAdd, 4),
            (AtomicOp::FetchAdd, 8),
            (AtomicOp::Swap, 4),
            (AtomicOp::Swap, 8),
            (AtomicOp::Cas, 4),
            (AtomicOp::Cas, 8),
            (AtomicOp::Cas, 16),
        ]),
    )
        .prop_map(|(requester, tag, address, hint, (op, operand))| {
            let address = address & !(operand as u64 - 1);
            let len = if op == AtomicOp::Cas { operand * 2 } else { operand };
            (Kind::Atomic { op, requester, tag, address, hint, data: &DATA[..len] }, None)
        });
    prop_oneof![read, write, io, config, message, completion, atomic]
}

fn prefixes() -> impl Strategy<Value = Prefixes> {
    let local = proptest::option::of((0x80_u8..0x90, any::<[u8; 3]>()));
    let end_to_end = proptest::collection::vec((0x90_u8..0xa0, any::<[u8; 3]>()), 0..=4);
    (local, end_to_end).prop_map(|(local, end_to_end)| {
        let mut prefixes = Prefixes::none();
        for (first, [a, b, c]) in local.into_iter().chain(end_to_end) {
            prefixes.push(Prefix::from_bytes([first, a, b, c]).unwrap()).unwrap();
        }
        prefixes
    })
}

/// Any TLP that keeps the rules.
fn repr() -> impl Strategy<Value = Repr<'static>> {
    (
        kind(),
        prop_oneof![3 => Just(Prefixes::none()), 1 => prefixes()],
        (0_u8..8, 0_u8..8, 0_u8..4),
        any::<bool>(),
        any::<bool>(),
        any::<Option<u32>>(),
    )
        .prop_map(|((kind, tc), prefixes, (any_tc, attributes, at), ln, poisoned, digest)| {
            let fixed = matches!(
                kind,
                Kind::IoRead { .. }
                    | Kind::IoWrite { .. }
                    | Kind::ConfigRead { .. }
                    | Kind::ConfigWrite { .. }
            );
            Repr {
                prefixes,
                traffic_class: tc.unwrap_or(any_tc),
                attributes: Attributes::from_bits(if fixed { attributes & 4 } else { attributes }),
                address_type: AddressType::from_bits(if fixed { 0 } else { at }),
                ln,
                poisoned,
                digest,
                ..Repr::new(kind)
            }
        })
}

/// Any field values, most of which no TLP may have.
fn wild() -> impl Strategy<Value = Repr<'static>> {
    let ids = (bdf(), bdf(), tag());
    let numbers = (any::<u64>(), any::<u16>(), any::<u16>(), any::<u8>(), any::<u8>());
    let small = (0_u8..32, 0_u8..16, any::<bool>(), 0_usize..=40, 0_u8..8);
    let rest = (hint(), any::<u32>(), prefixes(), any::<[u8; 8]>());
    (ids, numbers, small, rest).prop_map(
        |((requester, destination, tag), (address, a, b, code, c), small, rest)| {
            let (first, last, flag, len, which) = small;
            let (hint, ignored, prefixes, fields) = rest;
            let (data, enables) = (&DATA[..len], ByteEnables { first, last });
            let kind = match which {
                0 => {
                    let (length_dw, locked) = (a, flag);
                    Kind::MemRead { requester, tag, address, length_dw, enables, hint, locked }
                }
                1 => Kind::MemWrite { requester, tag, address, enables, hint, data },
                2 => Kind::DeferrableMemWrite { requester, tag, address, enables, hint, data },
                3 => Kind::IoWrite { requester, tag, address: ignored, first_be: first, data },
                4 => Kind::ConfigWrite {
                    type1: flag,
                    requester,
                    tag,
                    destination,
                    register: a,
                    first_be: first,
                    data,
                },
                5 => {
                    let (routing, code) = (MsgRouting::from_bits(c), MsgCode::from_byte(code));
                    Kind::Message { routing, code, requester, tag, fields, data }
                }
                6 => Kind::Completion {
                    completer: destination,
                    requester,
                    tag,
                    status: CplStatus::from_bits(c),
                    bcm: flag,
                    byte_count: b,
                    lower_address: code,
                    locked: false,
                    data,
                },
                _ => Kind::Atomic { op: AtomicOp::Cas, requester, tag, address, hint, data },
            };
            let ignored = IgnoredBits::from_bits(if flag { 0 } else { ignored });
            Repr { prefixes, traffic_class: c & 0x0f, ignored, ..Repr::new(kind) }
        },
    )
}

/// Bytes that are often a TLP: a header whose first byte is mostly a known type.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let types = vec![
        0x00, 0x20, 0x01, 0x21, 0x40, 0x60, 0x02, 0x42, 0x04, 0x44, 0x05, 0x45, 0x30, 0x34, 0x70,
        0x74, 0x0a, 0x4a, 0x0b, 0x4b, 0x4c, 0x6c, 0x4d, 0x6d, 0x4e, 0x6e, 0x5b, 0x7b, 0x80, 0x91,
    ];
    let first = prop_oneof![9 => select(types), 1 => any::<u8>()];
    (first, proptest::collection::vec(any::<u8>(), 0..64), any::<bool>()).prop_map(
        |(first, mut rest, sized)| {
            rest.insert(0, first);
            if let (true, Some(&length)) = (sized, rest.get(3)) {
                rest[2] &= 0xfc;
                rest[3] = length & 7;
                if let Ok(packet) = Packet::new_header_checked(&rest[..]) {
                    let need = packet.total_len();
                    rest.resize(need, 0x5a);
                }
            }
            rest
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn what_is_emitted_parses_to_the_same(repr in repr()) {
        let mut buf = vec![0xee; repr.buffer_len() + 8];
        let len = repr.emit(&mut buf).unwrap();
        prop_assert_eq!(len, repr.buffer_len());
        prop_assert!(buf[len..].iter().all(|&byte| byte == 0xee));
        let packet = Packet::new_checked(&buf[..len]).unwrap();
        prop_assert_eq!(Repr::parse(&packet).unwrap(), repr);
    }

    /// Whatever a byte of the header is, for who only asks as for who reads.
    #[test]
    fn sound_is_what_parses(repr in repr(), changes in proptest::collection::vec((0..24usize, any::<u8>()), 0..3)) {
        let mut buf = vec![0; repr.buffer_len()];
        repr.emit(&mut buf).unwrap();
        for (at, byte) in changes {
            if let Some(place) = buf.get_mut(at) {
                *place = byte;
            }
        }
        let parsed = Repr::from_bytes(&buf).map(|_| ());
        prop_assert_eq!(Packet::new_sound(&buf[..]).map(|_| ()), parsed);
        let cut = &buf[..buf.len() - 1];
        prop_assert_eq!(Packet::new_sound(cut).map(|_| ()), Repr::from_bytes(cut).map(|_| ()));
    }

    #[test]
    fn sound_bytes_are_what_parses(bytes in bytes()) {
        let parsed = Repr::from_bytes(&bytes).map(|_| ());
        prop_assert_eq!(Packet::new_sound(&bytes[..]).map(|_| ()), parsed);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_leaves_the_buffer(repr in wild()) {
        let mut buf = vec![0xee; MAX_TLP];
        match repr.emit(&mut buf) {
            Err(_) => prop_assert!(buf.iter().all(|&byte| byte == 0xee)),
            Ok(len) => {
                prop_assert_eq!(Repr::from_bytes(&buf[..len]), Ok(repr));
            }
        }
        prop_assert!(repr.emit(&mut buf[..repr.buffer_len() - 1]).is_err());
    }

    #[test]
    fn what_parses_is_emitted_as_the_same_bytes(bytes in bytes()) {
        let Ok(packet) = Packet::new_checked(&bytes[..]) else { return Ok(()) };
        let Ok(repr) = Repr::parse(&packet) else { return Ok(()) };
        let mut buf = vec![0; repr.buffer_len()];
        repr.emit(&mut buf).unwrap();
        prop_assert_eq!(buf, bytes);
    }

    #[test]
    fn no_accessor_panics_on_a_header(bytes in bytes()) {
        let Ok(mut packet) = Packet::new_header_checked(bytes) else { return Ok(()) };
        let _ = (packet.payload().len(), packet.digest(), packet.digest_is_good());
        let _ = (packet.requester(), packet.tag(), packet.address(), packet.destination());
        let _ = (packet.message_fields(), packet.lower_address(), packet.register());
        let at = packet.address();
        packet.set_address(at);
        packet.set_tag(Tag::MAX);
        packet.payload_mut().fill(0);
        packet.update_digest();
        let _ = Repr::parse(&Packet::new_header_checked(packet.as_bytes()).unwrap());
    }

    #[test]
    fn an_updated_digest_is_good_until_a_covered_bit_changes(
        repr in repr(), bit in any::<prop::sample::Index>(),
    ) {
        let repr = Repr { digest: Some(0), ..repr };
        let mut buf = vec![0; repr.buffer_len()];
        repr.emit(&mut buf).unwrap();
        let mut packet = Packet::new_checked(buf).unwrap();
        packet.update_digest();
        prop_assert_eq!(packet.digest_is_good(), Some(true));

        // EP and the lowest type bit may change on the way; all data may not.
        packet.set_poisoned(!repr.poisoned);
        prop_assert_eq!(packet.digest_is_good(), Some(true));
        if !repr.data().is_empty() {
            let at = bit.index(repr.data().len());
            packet.payload_mut()[at] ^= 1;
            prop_assert_eq!(packet.digest_is_good(), Some(false));
        }
    }
}
