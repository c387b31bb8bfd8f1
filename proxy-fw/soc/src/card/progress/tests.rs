use super::*;
use crate::board::Happening;
use proxy_core::boxes::SlotSignal;

/// A PCIe side at some places of which a TLP waits.
#[derive(Default)]
struct Side {
    waits: PlaceBits,
    still: bool,
}

impl PcieSide for Side {
    fn happening(&mut self) -> Option<Happening> {
        None
    }

    fn has_more(&self) -> bool {
        false
    }

    fn next(&mut self, at: SlotWire, _of: ClassSet) -> Option<&[u8]> {
        (self.waits & bit(at) != 0).then_some(&[0; 12])
    }

    fn take(&mut self, _at: SlotWire) {}

    fn room(&mut self, _at: SlotWire) -> ClassSet {
        ClassSet::ALL
    }

    fn send_with(&mut self, _: SlotWire, _: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        false
    }

    fn can_signal(&mut self, _at: SlotWire) -> bool {
        false
    }

    fn signal(&mut self, _at: SlotWire, _signal: SlotSignal) {}

    fn stands_still(&mut self) -> bool {
        self.still
    }
}

struct Bench {
    now: Instant,
    watch: PcieWatch,
    side: Side,
}

impl Bench {
    fn new(waits: PlaceBits) -> Self {
        let side = Side { waits, still: false };
        Self { now: Instant::ZERO, watch: PcieWatch::new(), side }
    }

    /// Looks so often, with these places moved before each; what it found.
    fn looks(&mut self, count: u8, moved: PlaceBits) -> Option<Hang> {
        let mut found = None;
        for _ in 0..count {
            self.watch.moved(moved);
            self.now = self.now + LOOK;
            found = found.or(self.watch.look(self.now, &mut self.side));
        }
        found
    }
}

#[test]
fn what_waits_for_nothing_is_found_once_and_forgotten_when_it_moves() {
    let (third, last) = (SlotWire(3), SlotWire(MAX_SLOTS as u8));
    for at in [third, last] {
        let mut bench = Bench::new(bit(at));
        assert_eq!(bench.looks(LOOKS, 0), None);
        assert!(bench.watch.is_well());
        assert_eq!(bench.looks(1, 0), Some(Hang::Incoming(at)));
        assert_eq!(bench.looks(3, 0), None, "it is said once");
        assert!(!bench.watch.is_well());
        assert_eq!(bench.looks(1, bit(at)), None);
        assert!(bench.watch.is_well());
    }
}

#[test]
fn what_moves_or_is_refused_is_no_hang_and_hides_none() {
    let (one, two) = (bit(SlotWire(1)), bit(SlotWire(2)));
    let mut bench = Bench::new(one | two);
    assert_eq!(bench.looks(200, one | two), None);
    assert_eq!(bench.looks(LOOKS + 1, one), Some(Hang::Incoming(SlotWire(2))));
    // Each of them moves now and then.
    let mut bench = Bench::new(one | two);
    for _ in 0..20 {
        assert_eq!(bench.looks(LOOKS - 2, one), None);
        assert_eq!(bench.looks(1, one | two), None);
    }
    assert!(bench.watch.is_well());
}

#[test]
fn a_side_that_stands_still_is_found() {
    let mut bench = Bench::new(0);
    bench.side.still = true;
    assert_eq!(bench.looks(LOOKS, 0), None);
    assert_eq!(bench.looks(1, 0), Some(Hang::Side));
    bench.side.still = false;
    assert_eq!(bench.looks(1, 0), None);
    assert!(bench.watch.is_well());
}

#[test]
fn time_in_which_nobody_looks_does_not_count() {
    let mut bench = Bench::new(1);
    for _ in 0..LOOKS {
        bench.now = bench.now + Duration::from_secs(3600);
        assert!(bench.watch.is_due(bench.now));
        assert_eq!(bench.watch.look(bench.now, &mut bench.side), None);
        assert!(!bench.watch.is_due(bench.now), "it has looked");
    }
    assert!(bench.watch.is_well());
}
