//! What devices ask of the host, TLP by TLP.

use crate::fabric::quick;
use host_model::{HostConfig, HostEvent, ModelHost, PortError, TlpPort};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Instant;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{
    AddressType, AtomicOp, Attributes, ByteEnables, CplStatus, Kind, MAX_TLP, MsgCode, MsgRouting,
    Packet, Pasid, Prefix, Repr,
};

/// Keeps what the host sends, and gives it what the test wants to say.
#[derive(Default)]
struct Scripted {
    to_host: VecDeque<Vec<u8>>,
    from_host: Vec<Vec<u8>>,
    /// Whether more than was waited for is at hand.
    shows_more: bool,
}

impl TlpPort for Scripted {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        self.from_host.push(tlp.to_vec());
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], _: Instant) -> Result<Option<usize>, PortError> {
        let tlp = self.to_host.pop_front();
        Ok(tlp.map(|tlp| {
            buf[..tlp.len()].copy_from_slice(&tlp);
            tlp.len()
        }))
    }

    fn at_hand(&mut self, buf: &mut [u8]) -> Option<usize> {
        if !self.shows_more {
            return None;
        }
        self.recv(buf, Instant::now()).unwrap()
    }
}

/// Behind a request what is at hand is taken, but not without end, and nothing behind a completion:
/// whoever waits for that goes on.
#[test]
fn what_is_at_hand_behind_a_request_is_taken_with_it() {
    let read = read(MEMORY, 1, ByteEnables::all(1));
    let completion = Repr::new(Kind::Completion {
        completer: DEVICE,
        requester: Bdf::from_bits(0),
        tag: tag(),
        status: CplStatus::UnsupportedRequest,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[],
    });
    for (script, left) in [
        (vec![&read; 5], 0),
        (vec![&read; 100], 68),
        (vec![&completion, &read, &read], 2),
        (vec![&read, &completion, &read], 1),
    ] {
        let mut host = host(quick());
        host.root_mut().port_mut().shows_more = true;
        for repr in &script {
            let mut buf = vec![0; MAX_TLP];
            let len = repr.emit(&mut buf).unwrap();
            host.root_mut().port_mut().to_host.push_back(buf[..len].to_vec());
        }
        assert!(host.root_mut().pump(Instant::now()).unwrap());
        assert_eq!(host.root_mut().port_mut().to_host.len(), left, "of {}", script.len());
    }
}

type Host = ModelHost<Scripted>;

const DEVICE: Bdf = Bdf::from_bits(0x0300);
const MEMORY: u64 = 1 << 32;

fn host(config: HostConfig) -> Host {
    ModelHost::new(Scripted::default(), config).unwrap()
}

fn tag() -> Tag {
    Tag::new(0x155).unwrap()
}

/// What the host answers to a TLP.
fn say(host: &mut Host, repr: &Repr<'_>) -> Vec<Vec<u8>> {
    let mut buf = vec![0; MAX_TLP];
    let len = repr.emit(&mut buf).unwrap();
    host.root_mut().port_mut().to_host.push_back(buf[..len].to_vec());
    host.root_mut().pump(Instant::now()).unwrap();
    std::mem::take(&mut host.root_mut().port_mut().from_host)
}

/// Status, byte count, lower address and data of the only answer.
fn one(answers: &[Vec<u8>]) -> (CplStatus, u16, u8, Vec<u8>) {
    let [answer] = answers else { panic!("{} answers", answers.len()) };
    let packet = Packet::new_checked(answer.as_slice()).unwrap();
    let repr = Repr::parse(&packet).unwrap();
    let Kind::Completion { requester, tag: of, status, byte_count, lower_address, data, .. } =
        repr.kind
    else {
        panic!("{repr:?}")
    };
    assert_eq!((requester, of), (DEVICE, tag()));
    (status, byte_count, lower_address, data.to_vec())
}

fn read(address: u64, length_dw: u16, enables: ByteEnables) -> Repr<'static> {
    Repr::new(Kind::MemRead {
        requester: DEVICE,
        tag: tag(),
        address,
        length_dw,
        enables,
        hint: None,
        locked: false,
    })
}

fn write(address: u64, enables: ByteEnables, data: &[u8]) -> Repr<'_> {
    Repr::new(Kind::MemWrite { requester: DEVICE, tag: tag(), address, enables, hint: None, data })
}

fn fill(host: &mut Host, len: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..len).map(|i| (i * 31 + i / 256) as u8).collect();
    host.root_mut().memory_mut().get_mut(MEMORY, len).unwrap().copy_from_slice(&data);
    data
}

proptest! {
    #[test]
    fn completions_are_cut_where_they_may_be_and_join_to_what_was_asked(
        start in 0_u64..4096,
        len in 1_usize..=4096,
        boundary in prop_oneof![Just(64_u16), Just(128)],
        power in 7_u32..=12,
        split: bool,
    ) {
        let len = len.min(4096 - start as usize);
        let mut config = quick();
        config.root.read_completion_boundary = boundary;
        config.root.split_at_boundary = split;
        config.root.max_payload = 4096;
        let mut host = host(config);
        let payload = 1 << power;
        host.root_mut().set_payload(DEVICE, payload);
        let data = fill(&mut host, 8192);
        let (enables, length_dw) = ByteEnables::for_range(start, len);
        let answers = say(&mut host, &read(MEMORY + (start & !3), length_dw, enables));
        let (mut at, end) = (start, start + len as u64);
        let mut joined = Vec::new();
        for answer in &answers {
            let (status, byte_count, lower, part) = one(std::slice::from_ref(answer));
            prop_assert_eq!(status, CplStatus::Success);
            prop_assert_eq!(u64::from(byte_count), end - at);
            prop_assert_eq!(u64::from(lower), at & 0x7f);
            prop_assert!(part.len() <= usize::from(payload));
            let here = (part.len() - (at & 3) as usize).min((end - at) as usize);
            joined.extend_from_slice(&part[(at & 3) as usize..][..here]);
            at += here as u64;
            prop_assert!(at == end || at % u64::from(boundary) == 0, "cut at {:#x}", at);
        }
        prop_assert_eq!(joined, &data[start as usize..][..len]);
        if split {
            let first = start / u64::from(boundary);
            let last = (end - 1) / u64::from(boundary);
            prop_assert_eq!(answers.len() as u64, last - first + 1);
        }
    }

    #[test]
    fn only_enabled_bytes_are_written(first in 1_u8..16, last in 1_u8..16, one_dw: bool) {
        let mut host = host(quick());
        let before = fill(&mut host, 64);
        // Two doublewords from a multiple of 8 may have gaps.
        let data: Vec<u8> = (0..if one_dw { 4 } else { 8 }).map(|i| 0xa0 + i).collect();
        let enables = ByteEnables { first, last: if one_dw { 0 } else { last } };
        prop_assert!(say(&mut host, &write(MEMORY + 16, enables, &data)).is_empty());
        let mask = u16::from(first) | u16::from(enables.last) << 4;
        let after = host.root().memory().get(MEMORY, 64).unwrap();
        for i in 0..64 {
            let written = (16..16 + data.len()).contains(&i) && mask >> (i - 16) & 1 != 0;
            prop_assert_eq!(after[i], if written { data[i - 16] } else { before[i] }, "byte {}", i);
        }
    }
}

#[test]
fn a_completion_takes_class_and_attributes_over() {
    let mut host = host(quick());
    let mut request = read(MEMORY, 1, ByteEnables::all(1));
    request.traffic_class = 5;
    request.attributes =
        Attributes { relaxed_ordering: true, no_snoop: false, id_based_ordering: true };
    let answers = say(&mut host, &request);
    let packet = Packet::new_checked(answers[0].as_slice()).unwrap();
    assert_eq!((packet.traffic_class(), packet.attributes()), (5, request.attributes));
}

#[test]
fn a_read_of_nothing_is_answered_with_one_doubleword() {
    let mut host = host(quick());
    let answers = say(&mut host, &read(MEMORY + 8, 1, ByteEnables { first: 0, last: 0 }));
    assert_eq!(one(&answers), (CplStatus::Success, 1, 8, vec![0; 4]));
}

#[test]
fn atomics_give_back_what_was_there() {
    let mut host = host(quick());
    let mut atomic = |op, data: &[u8]| {
        let kind = Kind::Atomic {
            op,
            requester: DEVICE,
            tag: tag(),
            address: MEMORY + 32,
            hint: None,
            data,
        };
        let (status, count, _, before) = one(&say(&mut host, &Repr::new(kind)));
        assert_eq!((status, usize::from(count)), (CplStatus::Success, before.len()));
        let now = host.root().memory().get(MEMORY + 32, before.len()).unwrap().to_vec();
        (before, now)
    };
    let eight = |n: u64| n.to_le_bytes().to_vec();
    assert_eq!(atomic(AtomicOp::Swap, &eight(7)), (eight(0), eight(7)));
    assert_eq!(atomic(AtomicOp::FetchAdd, &eight(u64::MAX)), (eight(7), eight(6)));
    let four = |n: u32| n.to_le_bytes().to_vec();
    assert_eq!(atomic(AtomicOp::FetchAdd, &four(u32::MAX)), (four(6), four(5)));
    let wrong = [four(6), four(9)].concat();
    assert_eq!(atomic(AtomicOp::Cas, &wrong), (four(5), four(5)));
    let right = [four(5), four(9)].concat();
    assert_eq!(atomic(AtomicOp::Cas, &right), (four(5), four(9)));
    let sixteen = |n: u128| n.to_le_bytes().to_vec();
    let wide = [sixteen(9), sixteen(u128::MAX)].concat();
    assert_eq!(atomic(AtomicOp::Cas, &wide), (sixteen(9), sixteen(u128::MAX)));
}

#[test]
fn what_the_host_does_not_do_is_an_unsupported_request() {
    let mut host = host(quick());
    let end = MEMORY + host.root().memory().size() as u64;
    let all = ByteEnables::all(1);
    let (requester, tag, data) = (DEVICE, tag(), [0; 4].as_slice());
    let mut translated = read(MEMORY, 1, all);
    translated.address_type = AddressType::Translated;
    let mut with_pasid = read(MEMORY, 1, all);
    let pasid = Pasid { value: 1, execute_requested: false, privileged_requested: false };
    with_pasid.prefixes.push(Prefix::pasid(pasid)).unwrap();
    let (first_be, address) = (15, 0x100);
    let mut locked = read(MEMORY, 1, all);
    if let Kind::MemRead { locked, .. } = &mut locked.kind {
        *locked = true;
    }
    let requests = [
        read(end, 1, all),
        read(MEMORY - 4, 1, all),
        read(0, 1, all),
        translated,
        with_pasid,
        locked,
        Repr::new(Kind::Atomic {
            op: AtomicOp::Swap,
            requester,
            tag,
            address: end,
            hint: None,
            data,
        }),
        Repr::new(Kind::DeferrableMemWrite {
            requester,
            tag,
            address: MEMORY,
            enables: all,
            hint: None,
            data,
        }),
        Repr::new(Kind::IoRead { requester, tag, address, first_be }),
        Repr::new(Kind::IoWrite { requester, tag, address, first_be, data }),
        Repr::new(Kind::ConfigRead {
            type1: false,
            requester,
            tag,
            destination: Bdf::default(),
            register: 0,
            first_be,
        }),
    ];
    let count = requests.len() as u64;
    for request in &requests {
        let (status, _, _, data) = one(&say(&mut host, request));
        assert_eq!((status, data.len()), (CplStatus::UnsupportedRequest, 0), "{request:?}");
    }
    assert_eq!(host.root().counters().unsupported_requests, count);
}

#[test]
fn writes_that_reach_no_memory_are_dropped_and_counted() {
    let mut host = host(quick());
    let before = fill(&mut host, 64);
    let end = MEMORY + host.root().memory().size() as u64;
    let data = [9; 8];
    let all = ByteEnables::all(2);
    let mut poisoned = write(MEMORY, all, &data);
    poisoned.poisoned = true;
    let mut translated = write(MEMORY, all, &data);
    translated.address_type = AddressType::Translated;
    for request in [write(end, all, &data), write(0, all, &data), poisoned, translated] {
        assert!(say(&mut host, &request).is_empty());
    }
    assert_eq!(host.root().counters().posted_dropped, 4);
    assert_eq!(host.root().memory().get(MEMORY, 64).unwrap(), before);
}

#[test]
fn an_interrupt_is_one_whole_doubleword() {
    let mut host = host(quick());
    let vector = host.root_mut().interrupts().allocate(1).unwrap();
    let data = vector.data().to_le_bytes();
    say(&mut host, &write(vector.address(), ByteEnables { first: 1, last: 0 }, &data));
    say(&mut host, &write(vector.address(), ByteEnables::all(2), &[data, data].concat()));
    assert!(!host.root_mut().interrupts().take(vector));
    assert_eq!(host.root().counters().posted_dropped, 2);
    say(&mut host, &write(vector.address(), ByteEnables::all(1), &data));
    assert!(host.root_mut().interrupts().take(vector));
}

#[test]
fn messages_are_kept_and_errors_told() {
    let mut host = host(quick());
    for (code, routing) in [
        (MsgCode::PmPme, MsgRouting::ToRootComplex),
        (MsgCode::AssertInta, MsgRouting::Local),
        (MsgCode::ErrFatal, MsgRouting::ToRootComplex),
    ] {
        let (requester, fields, data) = (DEVICE, [0; 8], [].as_slice());
        let kind = Kind::Message { routing, code, requester, tag: tag(), fields, data };
        assert!(say(&mut host, &Repr::new(kind)).is_empty());
    }
    host.service(Instant::now()).unwrap();
    assert_eq!(
        host.poll_event(),
        Some(HostEvent::ErrorMessage { requester: DEVICE, severity: "fatal", status: None })
    );
    let codes: Vec<MsgCode> = host.messages().map(|message| message.code).collect();
    assert_eq!(codes, [MsgCode::PmPme, MsgCode::AssertInta, MsgCode::ErrFatal]);
}
