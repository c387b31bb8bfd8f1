//! What has to pass a class for which there is no credit (wire.md, section 9; PCIe 5.0 table 2-40). The
//! roles never let it come to that with requests, of which each has its credit; a link knows nothing of it.

use super::pair::*;
use crate::link::*;
use core::time::Duration;
use tlp_codec::tlp::Class::{self, Completion, NonPosted, Posted};

/// More than all queues and all credits of a class have room for.
const MANY: usize = 3000;

/// What passes has to come so soon after it was sent: no timer waits so short.
const SOON: Duration = Duration::from_micros(200);

/// A class passes others, of which the receiver takes none, and whose sender has used all credits up.
fn passes(end: usize, class: Class, blocked: &[Class]) {
    let (mut pair, key) = Pair::bound();
    let ready = blocked.iter().fold(ClassSet::ALL, |ready, class| ready.without(*class));
    for class in blocked {
        // Until the sender's own queue is full, too.
        for _ in 0..MANY {
            pair.send(end, key, *class, false, 16);
            pair.run_for(SOON);
        }
        assert!(!pair.send(end, key, *class, false, 16), "{class:?} has room");
    }
    assert_eq!(pair.drain(1 - end, ready, usize::MAX), Ok(0));
    let came = pair.oracle.delivered;
    for number in 1..=MANY {
        assert!(pair.send(end, key, class, false, 16), "number {number} has no room");
        pair.run_for(SOON);
        pair.drain(1 - end, ready, usize::MAX).unwrap();
        assert_eq!(pair.oracle.delivered, came + number, "{class:?} waits behind {blocked:?}");
    }
    pair.drain_for(Duration::from_millis(50)).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn posted_tlps_pass_requests_and_completions_without_credit() {
    for end in 0..2 {
        passes(end, Posted, &[NonPosted]);
        passes(end, Posted, &[Completion]);
        passes(end, Posted, &[NonPosted, Completion]);
    }
}

#[test]
fn completions_pass_requests_without_credit() {
    for end in 0..2 {
        passes(end, Completion, &[NonPosted]);
    }
}

#[test]
fn requests_pass_completions_without_credit() {
    for end in 0..2 {
        passes(end, NonPosted, &[Completion]);
    }
}
