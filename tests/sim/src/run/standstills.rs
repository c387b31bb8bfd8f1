//! What it costs that proxies stand still for longer than their links wait, as those of a computer do
//! whose processors are taken away: no more than the time itself, and no smaller frames.

use crate::host::driver::Task;
use crate::profile::Profile;
use crate::random::{Drawer, Random};
use crate::schedule::{Act, Entry};
use crate::world::World;
use std::time::Duration;

/// The nodes: one host and one box.
const NODES: usize = 2;
/// They stand still by turns, one of them in each so many milliseconds,
const EACH_MS: u64 = 40;
/// for so many microseconds: that is two or three timeouts.
const FOR_US: [u64; 2] = [8_000, 20_000];
/// It begins when there was work for so long, and goes on for so long, milliseconds,
const FROM_MS: u64 = 60;
const IN_ALL_MS: u64 = 400;
/// and then nobody does for so long.
const AFTER_MS: u64 = 100;

/// The share that is done at least of what would be in the time in which nobody stands still.
const LEAST: f64 = 0.95;
/// Frames for each transfer, at most so many times what they are where nobody stands still: meanwhile,
/// since what waited is acknowledged at once and in more frames, and afterwards. With frames of the least
/// size it would be nearly three times that.
const MOST_FRAMES: [f64; 2] = [1.4, 1.1];

/// One device writes into its host, and one reads from it, for as long as it is measured.
fn world(seed: u64, paths: usize, stands: &[Entry]) -> World {
    let mut profile = Profile::calm();
    (profile.fabric.hosts, profile.fabric.boxes, profile.fabric.slots) = (1, 1, 2);
    profile.fabric.paths = paths;
    profile.fabric.shared_buffers = 1024;
    profile.fabric.cable.rate_mbps = 2_000;
    profile.fabric.cable.delay_ns = 20_000;
    (profile.work.bytes, profile.work.payload, profile.work.stalls_ppm) = ([4096; 2], 256, 0);
    (profile.time.busy_ms, profile.time.crosses_ms) = (10_000, 0);
    let work = |(port, task)| {
        let act = Act::Work { host: 0, port, task, operations: 10_000_000 };
        Entry { id: port as u32, at_us: 0, for_us: 0, act }
    };
    let tasks = [Task::DmaWrites, Task::DmaReads];
    let entries = tasks.into_iter().enumerate().map(work).chain(stands.iter().copied());
    World::new(seed, &profile, entries.collect())
}

/// When who stands still.
fn stands(seed: u64) -> Vec<Entry> {
    let mut random = Random::stream(seed, Drawer::Schedule, 0);
    let entry = |turn: u64| {
        let slack = EACH_MS * 1000 - FOR_US[1];
        let at_us = (FROM_MS + turn * EACH_MS) * 1000 + random.below(slack);
        let for_us = random.between(FOR_US[0], FOR_US[1]);
        Entry {
            id: 100 + turn as u32,
            at_us,
            for_us,
            act: Act::Freeze { node: turn as usize % NODES },
        }
    };
    (0..IN_ALL_MS / EACH_MS).map(entry).collect()
}

/// Transfers that end, by the port, and frames.
#[derive(Clone, Copy, Debug)]
struct Done {
    transfers: [u64; 2],
    frames: u64,
}

impl Done {
    fn frames_each(&self) -> f64 {
        self.frames as f64 / self.transfers.iter().sum::<u64>() as f64
    }

    /// The part of another one that was done, by the port.
    fn of(&self, whole: &Self) -> [f64; 2] {
        [0, 1].map(|port| self.transfers[port] as f64 / whole.transfers[port] as f64)
    }
}

/// What is done while proxies stand still now and then, and in the time after that.
fn measure(seed: u64, paths: usize, stands: &[Entry]) -> [Done; 2] {
    let mut world = world(seed, paths, stands);
    while world.began().is_none() {
        let until = world.now() + Duration::from_millis(1);
        while world.step(until).expect("no promise is broken") {}
    }
    let began = world.began().expect("it was waited for");
    let mut at = |ms| {
        while world.step(began + Duration::from_millis(ms)).expect("no promise is broken") {}
        (world.done_by_port(0), world.frames().sent)
    };
    let [from, to, end] =
        [FROM_MS, FROM_MS + IN_ALL_MS, FROM_MS + IN_ALL_MS + AFTER_MS].map(&mut at);
    [(&from, &to), (&to, &end)].map(|(before, after)| Done {
        transfers: [0, 1].map(|port| after.0[port] - before.0[port]),
        frames: after.1 - before.1,
    })
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "its queues hold less than two large frames")]
fn proxies_that_stand_still_lose_the_time_and_no_more() {
    for (seed, paths) in [(0, 1), (3, 1), (3, 2)] {
        let list = stands(seed);
        let (whole, done) = (measure(seed, paths, &[]), measure(seed, paths, &list));
        let away: u64 = list.iter().map(|entry| entry.for_us).sum();
        let left = 1.0 - away as f64 / (IN_ALL_MS * 1000) as f64;
        for (n, left) in [left, 1.0].into_iter().enumerate() {
            let got = done[n].of(&whole[n]).map(|part| part / left);
            let frames = done[n].frames_each() / whole[n].frames_each();
            let what = format!(
                "seed {seed}, {paths} paths: in {left:.2} of the time {got:.2?} of what it is good for, \
                 {frames:.2} times the frames"
            );
            println!("{what}");
            assert!(got.iter().all(|got| *got > LEAST), "{what}");
            assert!(frames < MOST_FRAMES[n], "{what}");
        }
    }
}
