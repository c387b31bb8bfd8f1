//! Requests and their completions.

use super::*;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Kind, Repr};

fn emit(kind: Kind<'_>) -> Vec<u8> {
    let repr = Repr::new(kind);
    let mut bytes = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn ask(requests: &mut Requests<()>, address: u64, bytes: usize) -> u16 {
    let tag = requests.free_tag().unwrap();
    let (enables, length_dw) = ByteEnables::for_range(address, bytes);
    let read = emit(Kind::MemRead {
        requester: Bdf::from_bits(8),
        tag: Tag::new(tag).unwrap(),
        address: address & !3,
        length_dw,
        enables,
        hint: None,
        locked: false,
    });
    requests.ask(Instant::ZERO, &read, 1, ());
    tag
}

fn answer(tag: u16, byte_count: u16, lower_address: u8, data: &[u8], status: CplStatus) -> Vec<u8> {
    emit(Kind::Completion {
        completer: Bdf::from_bits(0),
        requester: Bdf::from_bits(8),
        tag: Tag::new(tag).unwrap(),
        status,
        bcm: false,
        byte_count,
        lower_address,
        locked: false,
        data,
    })
}

/// The same with a doubleword too much, which nobody writes.
fn longer(mut answer: Vec<u8>) -> Vec<u8> {
    answer[3] += 1;
    answer.extend([0; 4]);
    answer
}

#[test]
fn a_read_in_pieces_of_odd_bytes() {
    let mut requests = Requests::new();
    let tag = ask(&mut requests, 0x1003, 70);
    let first = answer(tag, 70, 3, &[0; 64], CplStatus::Success);
    let done = requests.complete(&first, false).unwrap();
    assert_eq!((done.offset, done.skip, done.last), (0, 3, false));
    assert!(requests.complete(&first, false).is_err(), "the same piece again");
    let second = answer(tag, 9, 0x40, &[0; 12], CplStatus::Success);
    let done = requests.complete(&second, false).unwrap();
    assert_eq!((done.offset, done.skip, done.last), (61, 0, true));
    assert_eq!(requests.complete(&second, false).unwrap_err().promise, 3);
    assert_eq!(requests.live(), 0);
}

#[test]
fn what_does_not_fit_is_found() {
    let mut requests = Requests::new();
    let tag = ask(&mut requests, 0x1000, 8);
    assert!(requests.complete(&answer(tag, 12, 0, &[0; 8], CplStatus::Success), false).is_err());
    assert!(requests.complete(&answer(tag, 8, 4, &[0; 8], CplStatus::Success), false).is_err());
    for doubtful in [false, true] {
        let long = longer(answer(tag, 8, 0, &[0; 8], CplStatus::Success));
        assert!(requests.complete(&long, doubtful).is_err(), "a doubleword too much");
    }
    assert!(requests.complete(&answer(tag, 8, 0, &[], CplStatus::ConfigRetry), false).is_err());
    assert!(
        requests
            .complete(&answer(tag, 8, 0, &[], CplStatus::UnsupportedRequest), false)
            .unwrap()
            .last
    );
}

#[test]
fn the_last_doubleword_of_a_read_may_be_filled_up() {
    for (address, bytes, dwords) in [(0x1000, 1, 1), (0x1003, 1, 1), (0x1003, 2, 2), (0x1001, 8, 3)]
    {
        let mut requests = Requests::new();
        let tag = ask(&mut requests, address, bytes);
        let lower = address as u8 & 0x7f;
        let data = &[0; 12][..dwords * 4];
        let right = answer(tag, bytes as u16, lower, data, CplStatus::Success);
        let long = longer(right.clone());
        assert!(requests.complete(&long, false).is_err(), "{bytes} at {address:#x}");
        assert!(requests.complete(&right, false).unwrap().last);
    }
}

#[test]
fn what_waits_too_long_is_found() {
    let mut requests = Requests::new();
    ask(&mut requests, 0x1000, 8);
    let bound = Duration::from_secs(2);
    let never = |_| Duration::ZERO;
    assert!(requests.check(Instant::from_nanos(2_000_000_000), bound, never).is_ok());
    assert!(requests.check(Instant::from_nanos(2_000_000_001), bound, never).is_err());
    let still = |since| {
        assert_eq!(since, Instant::ZERO, "the oldest one");
        Duration::from_nanos(1)
    };
    assert!(requests.check(Instant::from_nanos(2_000_000_001), bound, still).is_ok());
    assert!(requests.check(Instant::from_nanos(2_000_000_002), bound, still).is_err());
}

#[test]
fn tags_come_round_late() {
    let mut requests = Requests::new();
    let first = ask(&mut requests, 0, 4);
    requests.complete(&answer(first, 4, 0, &[0; 4], CplStatus::Success), false).unwrap();
    assert!((0..255).all(|_| ask(&mut requests, 0, 4) != first));
    assert_eq!(requests.free_tag(), Some(first));
    ask(&mut requests, 0, 4);
    assert_eq!(requests.free_tag(), None);
}

#[test]
fn a_completion_has_the_class_and_attributes_of_its_request() {
    let mut requests = Requests::new();
    let tag = ask(&mut requests, 0x1000, 4);
    let right = answer(tag, 4, 0, &[0; 4], CplStatus::Success);
    // Traffic class, relaxed ordering, no snoop; ID-based ordering is free.
    for (at, bit, fits) in [(1, 0x10, false), (2, 0x20, false), (2, 0x10, false), (1, 0x04, true)] {
        let mut other = right.clone();
        other[at] |= bit;
        assert_eq!(requests.complete(&other, false).is_ok(), fits, "byte {at}, {bit:#x}");
    }
}
