//! `VFIO_USER_DEVICE_SET_IRQS`.

use crate::bench::Bench;
use crate::client::*;
use crate::errno::*;
use std::os::fd::{AsFd, OwnedFd};
use vfio_user_server::Irq;

// Data: none, booleans, eventfds. Actions: mask, unmask, trigger.
const NONE: u32 = 1;
const BOOL: u32 = 2;
const EVENTFD: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 0x10;
const TRIGGER: u32 = 0x20;

const INTX: u32 = 0;
const MSIX: u32 = 2;
const ERR: u32 = 3;
const REQ: u32 = 4;

impl Bench {
    fn set(&mut self, flags: u32, index: u32, start: u32, count: u32, fds: &[OwnedFd]) -> i32 {
        self.errno(SET_IRQS, &set_irqs(flags, index, start, count, &[]), &borrowed(fds))
    }
}

fn eventfds(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| eventfd()).collect()
}

#[test]
fn every_kind_is_triggered() {
    let mut bench = Bench::new();
    for irq in Irq::ALL {
        let fds = eventfds(1);
        assert!(!bench.server.trigger(irq, 0));
        assert_eq!(bench.set(EVENTFD | TRIGGER, irq.index() as u32, 0, 1, &fds), 0);
        assert!(bench.server.trigger(irq, 0));
        assert_eq!(written(&fds[0]), 1);
        // Without file descriptors they are taken away again.
        assert_eq!(bench.set(EVENTFD | TRIGGER, irq.index() as u32, 0, 1, &[]), 0);
        assert!(!bench.server.trigger(irq, 0));
        assert_eq!(written(&fds[0]), 0);
        assert!(!bench.server.trigger(irq, 64) && !bench.server.trigger(irq, u32::MAX));
    }
}

#[test]
fn vectors_are_set_and_replaced_by_ranges() {
    let mut bench = Bench::new();
    let (first, second) = (eventfds(4), eventfds(2));
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 60, 4, &first), 0);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 61, 2, &second), 0);
    for vector in 59..64 {
        assert_eq!(bench.server.trigger(Irq::Msix, vector), vector > 59);
    }
    let all: Vec<u64> = first.iter().chain(&second).map(written).collect();
    assert_eq!(all, [1, 0, 0, 1, 1, 1]);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 62, 2, &[]), 0);
    for vector in 60..64 {
        assert_eq!(bench.server.trigger(Irq::Msix, vector), vector < 62);
    }
    // All of the kind.
    assert_eq!(bench.set(NONE | TRIGGER, MSIX, 0, 0, &[]), 0);
    assert!((0..64).all(|vector| !bench.server.trigger(Irq::Msix, vector)));
}

#[test]
fn as_many_as_one_message_has() {
    let mut bench = Bench::new();
    let fds = eventfds(16);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 0, 16, &fds), 0);
    assert!((0..16).all(|vector| bench.server.trigger(Irq::Msix, vector)));
    assert!(fds.iter().all(|fd| written(fd) == 1));
}

#[test]
fn the_client_triggers_by_itself() {
    let mut bench = Bench::new();
    let fds = eventfds(3);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 1, 3, &fds), 0);
    assert_eq!(bench.set(NONE | TRIGGER, MSIX, 0, 3, &[]), 0);
    assert_eq!(fds.iter().map(written).collect::<Vec<_>>(), [1, 1, 0]);
    let chosen = set_irqs(BOOL | TRIGGER, MSIX, 1, 3, &[0, 1, 0xff]);
    assert_eq!(bench.errno(SET_IRQS, &chosen, &[]), 0);
    assert_eq!(fds.iter().map(written).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn a_masked_vector_waits() {
    let mut bench = Bench::new();
    let (fds, on_mask, on_unmask) = (eventfds(2), eventfds(2), eventfds(2));
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 0, 2, &fds), 0);
    assert_eq!(bench.set(EVENTFD | MASK, MSIX, 0, 2, &on_mask), 0);
    assert_eq!(bench.set(EVENTFD | UNMASK, MSIX, 0, 2, &on_unmask), 0);
    let all = |fds: &[OwnedFd]| fds.iter().map(written).collect::<Vec<_>>();

    assert_eq!(bench.errno(SET_IRQS, &set_irqs(BOOL | MASK, MSIX, 0, 2, &[0, 1]), &[]), 0);
    assert_eq!(bench.set(NONE | MASK, MSIX, 1, 1, &[]), 0);
    assert_eq!(all(&on_mask), [0, 1], "once, when it is masked");
    for _ in 0..3 {
        assert!(bench.server.trigger(Irq::Msix, 0) && bench.server.trigger(Irq::Msix, 1));
    }
    assert_eq!(all(&fds), [3, 0]);
    assert_eq!(bench.set(NONE | UNMASK, MSIX, 0, 2, &[]), 0);
    assert_eq!((all(&fds), all(&on_unmask)), (vec![0, 1], vec![0, 1]));
    assert_eq!(bench.set(NONE | UNMASK, MSIX, 0, 2, &[]), 0);
    assert_eq!((all(&fds), all(&on_unmask)), (vec![0, 0], vec![0, 0]));

    // Disabled, it is masked no more, and what waited is gone.
    assert_eq!(bench.set(NONE | MASK, MSIX, 0, 2, &[]), 0);
    assert!(bench.server.trigger(Irq::Msix, 0));
    assert_eq!(bench.set(NONE | TRIGGER, MSIX, 0, 0, &[]), 0);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 0, 2, &fds), 0);
    assert_eq!(all(&fds), [0, 0]);
    assert!(bench.server.trigger(Irq::Msix, 0));
    assert_eq!(all(&fds), [1, 0]);
}

#[test]
fn the_line_masks_itself() {
    let mut bench = Bench::new();
    let fds = eventfds(1);
    assert_eq!(bench.set(EVENTFD | TRIGGER, INTX, 0, 1, &fds), 0);
    assert!(bench.server.trigger(Irq::Intx, 0) && bench.server.trigger(Irq::Intx, 0));
    assert_eq!(written(&fds[0]), 1);
    assert_eq!(bench.set(NONE | UNMASK, INTX, 0, 1, &[]), 0);
    assert_eq!(written(&fds[0]), 1, "the second one waited");
    assert_eq!(bench.set(NONE | UNMASK, INTX, 0, 1, &[]), 0);
    assert_eq!(written(&fds[0]), 0);
    assert!(bench.server.trigger(Irq::Intx, 0));
    assert_eq!(written(&fds[0]), 1);
}

#[test]
fn what_does_not_go_together_is_invalid_and_changes_nothing() {
    let mut bench = Bench::new();
    let kept = eventfds(2);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 0, 2, &kept), 0);
    let fds = eventfds(2);
    for flags in 0..0x80 {
        let one_data = (flags & 7_u32).count_ones() == 1;
        let one_action = (flags & 0x38_u32).count_ones() == 1;
        if flags > 0x3f || !one_data || !one_action {
            assert_eq!(bench.set(flags, MSIX, 0, 1, &[]), EINVAL, "{flags:#x}");
        }
    }
    for (flags, index, start, count, with) in [
        // No such kind, no such vectors, a range that wraps around.
        (EVENTFD | TRIGGER, 5, 0, 1, 1),
        (NONE | TRIGGER, u32::MAX, 0, 0, 0),
        (EVENTFD | TRIGGER, MSIX, 64, 1, 1),
        (EVENTFD | TRIGGER, MSIX, 63, 2, 2),
        (EVENTFD | TRIGGER, MSIX, u32::MAX, 2, 2),
        (NONE | TRIGGER, MSIX, 1, u32::MAX, 0),
        (EVENTFD | TRIGGER, ERR, 0, 2, 2),
        // No range, for what is not all.
        (NONE | TRIGGER, MSIX, 1, 0, 0),
        (NONE | MASK, MSIX, 0, 0, 0),
        (EVENTFD | TRIGGER, MSIX, 0, 0, 0),
        (BOOL | TRIGGER, MSIX, 0, 0, 0),
        // File descriptors that are not as many as vectors, or for nothing.
        (EVENTFD | TRIGGER, MSIX, 0, 2, 1),
        (EVENTFD | TRIGGER, MSIX, 0, 1, 2),
        (NONE | TRIGGER, MSIX, 0, 1, 1),
        (NONE | TRIGGER, MSIX, 0, 0, 1),
        // What cannot be masked.
        (NONE | MASK, ERR, 0, 1, 0),
        (NONE | UNMASK, REQ, 0, 1, 0),
        (EVENTFD | MASK, ERR, 0, 1, 1),
    ] {
        let errno = bench.set(flags, index, start, count, &fds[..with]);
        assert_eq!(errno, EINVAL, "{flags:#x} {index} {start} {count} {with}");
    }
    // Booleans that are not as many as vectors.
    for data in [0, 1, 3] {
        let payload = set_irqs(BOOL | TRIGGER, MSIX, 0, 2, &[1, 1, 1][..data]);
        assert_eq!(bench.errno(SET_IRQS, &payload, &[]), EINVAL);
    }
    assert!(bench.server.trigger(Irq::Msix, 0) && bench.server.trigger(Irq::Msix, 1));
    assert_eq!(kept.iter().map(written).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn only_eventfds_are_taken() {
    let mut bench = Bench::new();
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
    let folder = std::fs::File::open("/").unwrap();
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    );
    let no_eventfds: [OwnedFd; 6] =
        [read, write, left.into(), folder.into(), memfd(8), timer.unwrap()];
    let good = eventfd();
    for fd in &no_eventfds {
        let pair = [good.as_fd(), fd.as_fd()];
        let payload = set_irqs(EVENTFD | TRIGGER, MSIX, 0, 2, &[]);
        assert_eq!(bench.errno(SET_IRQS, &payload, &pair), EINVAL);
        assert!(!bench.server.trigger(Irq::Msix, 0), "all or none");
    }
}

#[test]
fn an_eventfd_that_is_full_does_not_block() {
    let mut bench = Bench::new();
    let fds = eventfds(1);
    assert_eq!(bench.set(EVENTFD | TRIGGER, MSIX, 0, 1, &fds), 0);
    rustix::io::write(&fds[0], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert!(bench.server.trigger(Irq::Msix, 0), "the client is told already");
    assert!(written(&fds[0]) >= u64::MAX - 1);
    assert!(bench.server.trigger(Irq::Msix, 0));
    assert_eq!(written(&fds[0]), 1);
}
