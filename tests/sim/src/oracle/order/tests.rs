//! The table, row by row.

use super::*;
use crate::dress;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Kind, Prefix, Repr, TphHint};

const AT: Instant = Instant::ZERO;

fn seen(kind: Kind<'_>, relaxed: bool, by_id: bool) -> Seen {
    let mut repr = Repr::new(kind);
    repr.attributes.relaxed_ordering = relaxed;
    repr.attributes.id_based_ordering = by_id;
    let mut bytes = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut bytes).unwrap();
    Seen::of(&bytes[..length]).unwrap()
}

fn tag(n: u16) -> Tag {
    Tag::new(n).unwrap()
}

fn posted(requester: u16, address: u64, relaxed: bool, by_id: bool) -> Seen {
    let enables = ByteEnables::all(1);
    let requester = Bdf::from_bits(requester);
    let kind = Kind::MemWrite {
        requester,
        tag: tag(0),
        address,
        enables,
        hint: None,
        data: &[1, 2, 3, 4],
    };
    seen(kind, relaxed, by_id)
}

fn read(requester: u16, address: u64, relaxed: bool, by_id: bool) -> Seen {
    let requester = Bdf::from_bits(requester);
    let enables = ByteEnables::all(1);
    let (hint, locked) = (None, false);
    let kind =
        Kind::MemRead { requester, tag: tag(1), address, length_dw: 1, enables, hint, locked };
    seen(kind, relaxed, by_id)
}

fn completion(completer: u16, data: &[u8], relaxed: bool, by_id: bool) -> Seen {
    let kind = Kind::Completion {
        completer: Bdf::from_bits(completer),
        requester: Bdf::from_bits(9),
        tag: tag(3),
        status: CplStatus::Success,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data,
    };
    seen(kind, relaxed, by_id)
}

/// Sends both, delivers the second one.
fn passes(first: Seen, second: Seen) -> bool {
    let mut flow = Flow::default();
    flow.send(AT, first, 1, false);
    flow.send(AT, second, 2, false);
    flow.deliver(second, None).is_ok()
}

#[test]
fn column_posted() {
    let before = posted(1, 0x1000, false, false);
    // Row A: posted.
    assert!(!passes(before, posted(1, 0x2000, false, false)));
    assert!(passes(before, posted(1, 0x2000, true, false)));
    assert!(!passes(before, posted(1, 0x2000, false, true)), "the same requester");
    assert!(passes(before, posted(2, 0x2000, false, true)));
    // Row B: read requests. Relaxed ordering does not help them.
    assert!(!passes(before, read(1, 0x2000, false, false)));
    assert!(!passes(before, read(1, 0x2000, true, false)));
    assert!(passes(before, read(2, 0x2000, false, true)));
    // Row D: completions.
    assert!(!passes(before, completion(1, &[0; 4], false, false)));
    assert!(passes(before, completion(1, &[0; 4], true, false)));
    assert!(!passes(before, completion(1, &[0; 4], false, true)));
    assert!(passes(before, completion(2, &[0; 4], false, true)));
    let bare = completion(1, &[], false, false);
    assert!(passes(before, bare.answers_write(true)), "a configuration write's");
    assert!(!passes(before, bare), "a read's without success");
}

#[test]
fn the_other_columns() {
    for first in [read(1, 0x1000, false, false), completion(1, &[9; 4], false, false)] {
        assert!(passes(first, posted(1, 0x2000, false, false)));
        assert!(passes(first, read(1, 0x2000, false, false)));
        assert!(passes(first, completion(1, &[0; 4], false, false)), "of another request");
    }
    let mut flow = Flow::default();
    flow.send(AT, completion(1, &[1; 4], false, false), 7, false);
    flow.send(AT, completion(1, &[2; 4], false, false), 7, false);
    assert!(flow.deliver(completion(1, &[2; 4], false, false), Some(7)).is_err(), "D5b");
}

#[test]
fn twice_never_and_damaged() {
    let one = posted(1, 0x1000, false, false);
    let mut flow = Flow::default();
    assert!(flow.deliver(one, None).is_err(), "never sent");
    flow.send(AT, one, 0, false);
    assert!(flow.deliver(posted(1, 0x1004, false, false), None).is_err(), "damaged");
    assert!(flow.deliver(one, None).is_ok());
    assert!(flow.deliver(one, None).is_err(), "twice");
}

#[test]
fn ids_and_tags_are_nobodys_business_but_addresses_are() {
    let as_sent = posted(1, 0x1000, false, false);
    let mut flow = Flow::default();
    flow.send(AT, as_sent, 0, false);
    assert!(flow.deliver(posted(77, 0x1000, false, false), None).is_ok());
    assert_ne!(as_sent.digest, posted(1, 0x1000, true, false).digest, "attributes count");
}

#[test]
fn what_may_be_lost_may_be_passed_and_what_is_over_may_not_come() {
    let (one, two) = (posted(1, 0x1000, false, false), posted(1, 0x2000, false, false));
    let mut flow = Flow::default();
    flow.send(AT, one, 0, false);
    assert_eq!(flow.owed().0, 1);
    flow.relax();
    flow.send(AT, two, 0, false);
    assert!(flow.deliver(two, None).is_ok());
    flow.close();
    flow.send(AT, two, 0, true);
    assert_eq!(flow.deliver(two, None).unwrap_err().promise, 2);
}

/// What was sent before its function had an address went another way than what comes later for it by
/// its number: passed, it is not lost. Among themselves such TLPs keep their order.
#[test]
fn what_went_before_there_was_an_address_is_in_order_with_its_like_only() {
    let early = posted(1, 0x1000, false, false).unplaced(true);
    assert!(passes(early, read(1, 0x2000, false, false)));
    assert!(passes(posted(1, 0x1000, false, false), read(1, 0x2000, false, false).unplaced(true)));
    assert!(!passes(early, read(1, 0x2000, false, false).unplaced(true)));
    assert!(!passes(early, posted(1, 0x2000, false, false).unplaced(true)));
    let mut flow = Flow::default();
    let later = read(1, 0x2000, false, false);
    flow.send(AT, early, 0, true);
    flow.send(AT, early, 0, true);
    flow.send(AT, later, 1, false);
    let come = posted(1, 0x1000, false, false);
    assert!(flow.deliver(come, None).is_ok());
    assert!(flow.deliver(later, None).is_ok());
    assert!(flow.deliver(come, None).is_ok());
    assert!(flow.deliver(come, None).is_err(), "each came once already");
}

#[test]
fn of_two_that_are_alike_the_one_is_meant_that_would_be_right() {
    let (twin, other) = (posted(1, 0x1000, false, false), posted(1, 0x2000, false, false));
    let mut flow = Flow::default();
    flow.send(AT, twin, 0, true);
    assert!(flow.knows(&twin, None) && !flow.owes(&twin, None));
    flow.send(AT, other, 0, false);
    flow.send(AT, twin, 0, false);
    assert!(flow.owes(&twin, None));
    assert!(flow.deliver(twin, None).unwrap().is_optional());
    assert!(flow.deliver(twin, None).is_err(), "the other one is owed first");
    flow.deliver(other, None).unwrap();
    assert!(!flow.deliver(twin, None).unwrap().is_optional());
    assert_eq!(flow.owed(), (0, None));
}

/// A read or write as it goes, under that tag, with a prefix and a digest that is wrong by so much.
fn dressed(kind: Kind<'_>, under: u16, prefix: u8, wrong: u32) -> u64 {
    let mut repr = Repr::new(kind);
    repr.prefixes.push(Prefix::from_bytes([0x9e, 0, 0, prefix]).unwrap()).unwrap();
    repr.digest = Some(wrong);
    let mut bytes = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut bytes).unwrap();
    dress::finish(&mut bytes[..length]);
    if repr.class() == Class::NonPosted {
        dress::set_tag(&mut bytes[..length], tag(under));
    }
    Seen::of(&bytes[..length]).unwrap().digest
}

#[test]
fn prefixes_digests_and_steering_tags_come_as_they_were_sent() {
    let requester = Bdf::from_bits(9);
    let enables = ByteEnables::all(1);
    let (address, length_dw, hint, locked) = (0x1000, 1, None, false);
    let read = Kind::MemRead { requester, tag: tag(0), address, length_dw, enables, hint, locked };
    assert_eq!(dressed(read, 1, 7, 0), dressed(read, 2, 7, 0), "another tag and its digest");
    assert_ne!(dressed(read, 1, 7, 0), dressed(read, 1, 8, 0), "another prefix");
    assert_ne!(dressed(read, 1, 7, 0), dressed(read, 1, 7, 5), "one that is wrong is right");
    assert_eq!(dressed(read, 1, 7, 5), dressed(read, 2, 7, 5), "one that is wrong stays so");
    let write = |steering_tag| {
        let hint = Some(TphHint { processing_hint: 1, steering_tag });
        Kind::MemWrite { requester, tag: tag(0), address, enables, hint, data: &[1, 2, 3, 4] }
    };
    assert_eq!(dressed(write(3), 0, 7, 0), dressed(write(3), 0, 7, 0));
    assert_ne!(dressed(write(3), 0, 7, 0), dressed(write(4), 0, 7, 0), "another steering tag");
    assert_ne!(
        dressed(write(3), 0, 7, 5),
        dressed(write(3), 0, 7, 6),
        "what is posted is as it was"
    );
}
