use super::lane::tests::{Below, pass, write};
use super::*;
use crate::front::lines::tests::Log;
use tracing::Dispatch;

fn turner() -> (tempfile::TempDir, Turner<Below>) {
    let folder = tempfile::tempdir().unwrap();
    let front = VmFront::open(&folder.path().join("s"), &VmdConfig::default()).unwrap();
    (folder, front.above(Below::new()))
}

#[test]
fn what_went_unsaid_is_in_the_next_line() {
    let (_folder, mut turner) = turner();
    let log = Log::default();
    tracing::dispatcher::with_default(&Dispatch::new(log.clone()), || {
        for millis in (0..1000).chain([61_000]) {
            turner.counts.given_up += 3;
            turner.tell_given_up(Instant::ZERO + Duration::from_millis(millis));
        }
    });
    let lines = log.lines();
    assert!(lines.len() < 12 && lines[0].ends_with(" 3 so far"), "{lines:?}");
    assert!(lines.last().unwrap().ends_with(" 3003 so far"), "{lines:?}");
}

#[test]
fn when_the_machine_has_sent_no_more_its_writes_have_all_their_time_again() {
    let (_folder, mut turner) = turner();
    turner.below.full = 0b11;
    let hold = |turner: &mut Turner<Below>, port, from| {
        pass(&mut turner.requests, &mut turner.below, &write(port), from)
    };
    assert_eq!(hold(&mut turner, 0, 0), (Passed::GivenUp, 1500));
    assert!(!turner.take_events());
    assert_eq!(hold(&mut turner, 1, 1500), (Passed::GivenUp, 1500));
}
