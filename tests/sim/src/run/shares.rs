//! What bindings get of a cable that is too narrow for them: by their weights, limits and guaranteed
//! rates, and by others when these change while everything else runs.

use crate::director::Terms;
use crate::host::driver::Task;
use crate::profile::{Profile, Shares};
use crate::schedule::{Act, Entry};
use crate::world::World;
use proxy_core::control::Share;
use proxy_core::limits::MAX_FRAME;
use std::time::Duration;
use tlp_codec::fabric::TLP_OVERHEAD;
use tlp_codec::ids::Epoch;

/// What the bindings share.
#[derive(Clone, Copy, Debug)]
struct Cable {
    rate_mbps: u64,
    /// Send buffers of a link.
    shared_buffers: usize,
    /// Bytes of the largest frame.
    mtu: usize,
}

/// Fast and slow ones, and one whose proxies have few buffers: who has less than a round trip's worth
/// of them gets no more than that, whatever its weight.
const CABLES: &[Cable] = if cfg!(dxpu_limits = "card") {
    // A card's queues hold less than two large frames, and a round trip of nothing faster.
    &[SLOW]
} else {
    &[
        Cable { rate_mbps: 1000, shared_buffers: 1024, mtu: MAX_FRAME },
        Cable { rate_mbps: 60, shared_buffers: 1024, mtu: MAX_FRAME },
        SLOW,
    ]
};
const SLOW: Cable = Cable { rate_mbps: 200, shared_buffers: 256, mtu: 1500 };

const SLOTS: usize = 4;
/// Bytes of a transfer, and of the data of a TLP.
const BYTES: u64 = 4096;
const PAYLOAD: usize = 512;
/// Bytes of records for each of data, of which shares are. Behind a transfer comes an interrupt.
const IN_RECORDS: f64 = {
    let (tlps, overhead) = (BYTES as usize / PAYLOAD, 12 + TLP_OVERHEAD);
    (tlps * (PAYLOAD + overhead) + 4 + overhead) as f64 / BYTES as f64
};
/// So long it is measured, milliseconds.
const FOR_MS: u64 = 150;

/// The first device is bound anew so long after everything began, and has work again so much later.
const ANEW_MS: u64 = 600;
const AWAY_MS: u64 = 200;

/// A time in milliseconds, and what happens then.
type Then = (u64, Act);

/// Who was silent has done something so long after it has work, milliseconds: what the others have in
/// the queues of the slowest cable leaves first.
const AT_ONCE_MS: u64 = 20;

/// A burst for a device that lasts for as long as it is measured, and longer.
const fn work(port: usize, task: Task) -> Act {
    Act::Work { host: 0, port, task, operations: 1_000_000 }
}

/// Four devices of a box that write into one host when they have work.
fn world(seed: u64, cable: Cable, guaranteed_ppm: Option<u32>, list: &[Then]) -> World {
    World::new(seed, &profile([1, SLOTS], cable, guaranteed_ppm), entries(list))
}

/// One host and so many boxes with so many devices each.
fn profile([boxes, slots]: [usize; 2], cable: Cable, guaranteed_ppm: Option<u32>) -> Profile {
    let Cable { rate_mbps, shared_buffers, mtu } = cable;
    let mut profile = Profile::find("shares").unwrap();
    (profile.fabric.hosts, profile.fabric.boxes, profile.fabric.slots) = (1, boxes, slots);
    (profile.work.bytes, profile.work.stalls_ppm) = ([BYTES; 2], 0);
    profile.work.payload = PAYLOAD;
    // What a device has under way waits in its proxy, not in the network.
    profile.fabric.shared_buffers = shared_buffers;
    (profile.fabric.cable.mark_kb, profile.fabric.cable.queue_kb) = (4, 64);
    (profile.fabric.cable.rate_mbps, profile.fabric.cable.mtu) = (rate_mbps, mtu);
    let of = |percent: [u64; 2]| percent.map(|percent| rate_mbps * percent / 100);
    let shares = profile.fabric.shares.take().expect("it is what the profile is for");
    profile.fabric.shares = Some(match guaranteed_ppm {
        None => {
            let (weights, limit_mbps, guarantee_mbps) = ([0, 4], of([5, 20]), of([10, 30]));
            Shares { weights, limit_mbps, guarantee_mbps, ..shares }
        }
        // Without them those of great weight would get nearly all.
        Some(guaranteed_ppm) => {
            let (weights, guarantee_mbps) = ([1, 16], of([15, 22]));
            Shares { weights, guarantee_mbps, guaranteed_ppm, limited_ppm: 0, ..shares }
        }
    });
    (profile.time.busy_ms, profile.time.crosses_ms) = (10_000, 0);
    profile
}

fn entries(list: &[Then]) -> Vec<Entry> {
    let entry = |(id, &(at_ms, act))| Entry { id: id as u32, at_us: at_ms * 1000, for_us: 0, act };
    list.iter().enumerate().map(entry).collect()
}

fn run(world: &mut World, ms: u64) {
    let until = world.now() + Duration::from_millis(ms);
    while world.step(until).expect("no promise is broken") {}
}

/// Bytes of records a second with which each device's data came.
fn measure(world: &mut World, for_ms: u64) -> Vec<f64> {
    let before = world.done_by_port(0);
    run(world, for_ms);
    let after = world.done_by_port(0);
    let rate = |(after, before): (&u64, &u64)| {
        (after - before) as f64 * BYTES as f64 * IN_RECORDS * 1e3 / for_ms as f64
    };
    after.iter().zip(&before).map(rate).collect()
}

fn limit(share: &Share) -> f64 {
    if share.limit == 0 { f64::MAX } else { share.limit as f64 }
}

/// What it gets whatever the others want.
fn floor(share: &Share) -> f64 {
    (share.guarantee as f64).min(limit(share))
}

/// What each should get of so much: what it is guaranteed first, the rest by weight, none more than
/// its limit.
fn fair(shares: &[Share], all: f64) -> Vec<f64> {
    let floor: Vec<f64> = shares.iter().map(floor).collect();
    let at = |level: f64| {
        let by_weight = |share: &Share| f64::from(share.weight.max(1)) * level;
        let each = shares.iter().zip(&floor);
        each.map(|(s, floor)| by_weight(s).max(*floor).min(limit(s))).collect::<Vec<f64>>()
    };
    let (mut low, mut high) = (0.0, all);
    for _ in 0..60 {
        let level = (low + high) / 2.0;
        if at(level).iter().sum::<f64>() > all { high = level } else { low = level }
    }
    at(low)
}

fn compare(shares: &[Share], got: &[f64], least: f64, what: &str) {
    let all: f64 = got.iter().sum();
    let fair = fair(shares, all);
    println!("{what}: {shares:?}\n  got {got:.0?}\n  of {fair:.0?}");
    for (number, (got, fair)) in got.iter().zip(&fair).enumerate() {
        assert!(*got > fair * least, "{what}: device {number} got {got:.0} of {fair:.0}");
    }
    keeps_promises(shares, got, what);
}

/// Who is guaranteed something has it, and what its other records take.
fn keeps_promises(shares: &[Share], got: &[f64], what: &str) {
    for (number, (got, share)) in got.iter().zip(shares).enumerate() {
        let promised = floor(share);
        assert!(*got >= promised * 0.9, "{what}: device {number} got {got:.0}, not {promised:.0}");
    }
}

#[test]
fn bindings_get_their_shares_and_others_when_they_are_bound_anew() {
    for (seed, cable) in (0..4).flat_map(|seed| CABLES.iter().map(move |cable| (seed, *cable))) {
        one_run(seed, cable);
    }
}

/// A guaranteed rate is there when it is wanted: at once after a long time in which the others had it,
/// and not only where somebody always asks for it.
#[test]
fn who_was_silent_gets_what_is_guaranteed() {
    for (seed, cable) in (0..4).flat_map(|seed| CABLES.iter().map(move |cable| (seed, *cable))) {
        let silent = seed as usize % SLOTS;
        let at = |port| (if port == silent { ANEW_MS } else { 0 }, work(port, Task::DmaWrites));
        let list: Vec<_> = (0..SLOTS).map(at).collect();
        let mut world = world(seed, cable, Some(1_000_000), &list);
        let terms = Terms::new(seed, &world.profile.fabric);
        let epoch = Epoch::new(0, 1).unwrap();
        let shares: Vec<_> = (0..SLOTS).map(|slot| terms.of(0, slot, epoch, true).0).collect();
        assert!(shares.iter().all(|share| share.guarantee > 0));
        while world.done() < 100 {
            run(&mut world, 1);
        }
        let began = world.began().expect("there is work");
        let until = began + Duration::from_millis(ANEW_MS);
        while world.step(until).expect("no promise is broken") {}
        assert_eq!(world.done_by_port(0)[silent], 0, "it is silent");
        run(&mut world, AT_ONCE_MS);
        assert!(world.done_by_port(0)[silent] > 0, "seed {seed}, {cable:?}: nothing yet");
        let got = measure(&mut world, FOR_MS);
        compare(&shares, &got, 0.8, &format!("seed {seed}, {cable:?}, {silent} was silent"));
    }
}

fn one_run(seed: u64, cable: Cable) {
    let mut list: Vec<_> = (0..SLOTS).map(|port| (0, work(port, Task::DmaWrites))).collect();
    list.push((ANEW_MS, Act::Release { at_box: 0, slot: 0, force: true }));
    list.push((ANEW_MS + AWAY_MS, work(0, Task::DmaWrites)));
    let mut world = world(seed, cable, None, &list);
    let terms = Terms::new(seed, &world.profile.fabric);
    let mut epochs = [Epoch::new(0, 1).unwrap(); SLOTS];
    let shares = |epochs: &[Epoch]| -> Vec<Share> {
        epochs.iter().enumerate().map(|(slot, epoch)| terms.of(0, slot, *epoch, true).0).collect()
    };
    while world.done() < 100 {
        run(&mut world, 1);
    }
    run(&mut world, 100);
    let got = measure(&mut world, FOR_MS);
    compare(&shares(&epochs), &got, 0.8, &format!("seed {seed}, {cable:?}"));
    // The others go on meanwhile.
    run(&mut world, ANEW_MS + AWAY_MS - FOR_MS);
    epochs[0] = epochs[0].next().unwrap();
    let got = measure(&mut world, FOR_MS);
    assert!(got[0] > 0.0, "it works again");
    compare(&shares(&epochs), &got, 0.8, &format!("seed {seed}, {cable:?}, bound anew"));
}

/// Each device is in a box of its own: they share the host's cable, and no link.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "its queues hold less than its share of a fast cable")]
fn bindings_of_several_boxes_get_their_shares_of_the_hosts_cable() {
    for cable in [SLOW_HOST, FAST_HOST] {
        for (seed, guaranteed_ppm) in [(0, None), (1, Some(300_000)), (3, Some(300_000))] {
            let profile = cable.profile(guaranteed_ppm);
            let (shares, got) = of_several_boxes(seed, &profile, Task::DmaWrites);
            compare(&shares, &got, 0.6, &format!("seed {seed}, a box each, {cable:?}"));
        }
    }
}

/// One of them is guaranteed more than an even part, or two are, or one most of that; from the host and to
/// it. In a slow queue bytes wait for many times as long as the cable is.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "its queues hold less than its share of a fast cable")]
fn what_is_guaranteed_holds_between_boxes() {
    // A device has no more than a quarter of the cable by what it may have read at a time.
    let whose = [(Task::DmaWrites, 40, 1), (Task::DmaWrites, 40, 2), (Task::DmaReads, 20, 1)];
    let deep = Narrow { mark_kb: 32, queue_kb: 256, ..GIGABIT };
    for (cable, (task, percent, count)) in
        [SLOW_HOST, GIGABIT, deep].into_iter().flat_map(|cable| whose.map(|whose| (cable, whose)))
    {
        let profile = cable.guaranteed(250_000 * count as u32, percent);
        let are_so_many = |seed: &u64| {
            let shares = of_boxes(*seed, &profile, task);
            shares.iter().filter(|share| share.guarantee > 0).count() == count
        };
        for seed in (0..).filter(are_so_many).take(3) {
            let (shares, got) = of_several_boxes(seed, &profile, task);
            let what = format!("seed {seed}, {task:?}, {cable:?}");
            println!("{what}: {shares:?}\n  got {got:.0?}");
            keeps_promises(&shares, &got, &what);
        }
    }
}

/// More is guaranteed than the cable carries: what goes at it all does not make it carry less.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "its queues hold less than its share of a fast cable")]
fn guarantees_that_are_too_many_share_the_cable() {
    for cable in [SLOW_HOST, GIGABIT] {
        let profile = cable.guaranteed(1_000_000, 40);
        let (_, got) = of_several_boxes(0, &profile, Task::DmaWrites);
        let whole = cable.rate_mbps as f64 * 1e6 / 8.0;
        let parts: Vec<_> = got.iter().map(|got| got / whole).collect();
        println!("{cable:?}: {parts:.2?}");
        assert!(parts.iter().sum::<f64>() > 0.85, "{cable:?}: {parts:.2?}");
        assert!(parts.iter().all(|part| *part > 0.05), "{cable:?}: {parts:.2?}");
    }
}

/// The cable of the host, and what the queue in front of it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Narrow {
    pub(super) rate_mbps: u64,
    pub(super) mark_kb: u64,
    pub(super) queue_kb: u64,
}

const GIGABIT: Narrow = Narrow { rate_mbps: 1000, mark_kb: 8, queue_kb: 64 };
pub(super) const SLOW_HOST: Narrow = Narrow { rate_mbps: 10_000, mark_kb: 64, queue_kb: 512 };
pub(super) const FAST_HOST: Narrow = Narrow { rate_mbps: 25_000, mark_kb: 128, queue_kb: 1024 };

impl Narrow {
    /// Makes all cables of a profile such ones.
    pub(super) fn set(self, profile: &mut Profile) {
        let cable = &mut profile.fabric.cable;
        (cable.rate_mbps, cable.mark_kb, cable.queue_kb) =
            (self.rate_mbps, self.mark_kb, self.queue_kb);
    }

    fn profile(self, guaranteed_ppm: Option<u32>) -> Profile {
        let cable = Cable { rate_mbps: self.rate_mbps, shared_buffers: 1024, mtu: MAX_FRAME };
        let mut profile = profile([SLOTS, 1], cable, guaranteed_ppm);
        self.set(&mut profile);
        profile
    }

    /// As [`Self::profile`], with so much of the cable for each who is guaranteed something.
    fn guaranteed(self, guaranteed_ppm: u32, percent: u64) -> Profile {
        let mut profile = self.profile(Some(guaranteed_ppm));
        let shares = profile.fabric.shares.as_mut().expect("it has some");
        shares.guarantee_mbps = [self.rate_mbps * percent / 100; 2];
        profile
    }
}

/// The shares of each box's device in the direction of the work.
fn of_boxes(seed: u64, profile: &Profile, task: Task) -> Vec<Share> {
    let terms = Terms::new(seed, &profile.fabric);
    let (epoch, up) = (Epoch::new(0, 1).unwrap(), task == Task::DmaWrites);
    (0..SLOTS).map(|at_box| terms.of(at_box, 0, epoch, up).0).collect()
}

/// These, and what each got.
fn of_several_boxes(seed: u64, profile: &Profile, task: Task) -> (Vec<Share>, Vec<f64>) {
    let list: Vec<_> = (0..SLOTS).map(|port| (0, work(port, task))).collect();
    let mut world = World::new(seed, profile, entries(&list));
    while world.done() < 100 {
        run(&mut world, 1);
    }
    run(&mut world, 30);
    (of_boxes(seed, profile, task), measure(&mut world, 50))
}
