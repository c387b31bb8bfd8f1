//! Everything at once on a bad network, from many seeds; and then, when the network is good again,
//! everything must have arrived.

use super::network::{Route, Trouble};
use super::pair::*;
use crate::control::BindingFailure;
use crate::limits::{MAX_FRAME, MIN_FRAME, TLP_BUFFER};
use crate::link::faults::Fault;
use crate::link::*;
use core::time::Duration;
use std::format;
use std::string::String;
use tlp_codec::fabric::Sideband;
use tlp_codec::tlp::Class;

const SLOTS: usize = 3;

/// One binding after the other in one slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    counter: u32,
    open: [bool; 2],
}

pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) trouble: Trouble,
    pub(super) config: LinkConfig,
    pub(super) fault: Option<Fault>,
    pub(super) steps: usize,
}

impl Scenario {
    pub(super) fn new(seed: u64, trouble: Trouble) -> Self {
        Self { seed, trouble, config: LinkConfig::default(), fault: None, steps: 250 }
    }

    /// Runs it. What must hold and did not is the error.
    pub(super) fn run(&self) -> Result<Pair, String> {
        let mut pair = Pair::new(self.seed, self.trouble, self.config);
        pair.start_sequences_at(u32::MAX - 300);
        for end in &mut pair.ends {
            end.fault = self.fault;
        }
        let mut slots = [Slot::default(); SLOTS];
        for _ in 0..self.steps {
            self.act(&mut pair, &mut slots)?;
            let wait = Duration::from_micros(pair.rng.below(300));
            pair.run_for(wait);
            self.end_failed(&mut pair, &mut slots)?;
        }
        pair.network.trouble = Trouble::default();
        for route in &mut pair.network.routes {
            (route.cut, route.mtu) = ([false; 2], MAX_FRAME);
        }
        for index in 0..SLOTS {
            for end in 0..2 {
                self.open(&mut pair, &mut slots, index, end);
            }
        }
        for _ in 0..20 {
            pair.drain_for(Duration::from_millis(100))?;
            self.end_failed(&mut pair, &mut slots)?;
        }
        if !pair.both_up() {
            let states = pair.ends.each_ref().map(Link::state);
            return Err(format!("a link went down: {states:?}, {:?}", pair.dropped));
        }
        if pair.oracle.missing() > 0 {
            return Err(format!("{} TLPs never came", pair.oracle.missing()));
        }
        Ok(pair)
    }

    fn act(&self, pair: &mut Pair, slots: &mut [Slot; SLOTS]) -> Result<(), String> {
        let end = pair.rng.below(2) as usize;
        let index = pair.rng.below(SLOTS as u64) as usize;
        let slot = slots[index];
        let now = key(index as u8 + 1, slot.counter.max(1));
        match pair.rng.below(100) {
            0..3 if slot.open[end] => {
                pair.close(end, now);
                slots[index].open[end] = false;
            }
            3..10 if slot.open[end] => {
                let record = [Sideband::HotReset, Sideband::DeviceReady, Sideband::LinkEnable]
                    [pair.rng.below(3) as usize];
                pair.send_sideband(end, now, record);
            }
            10..50 if slot.open[end] => {
                for _ in 0..pair.rng.below(20) {
                    let class = Class::ALL[pair.rng.below(3) as usize];
                    let most = if pair.rng.chance(500) { 16 } else { TLP_BUFFER as u64 };
                    let length = 12 + pair.rng.below((most - 12) / 4 + 1) * 4;
                    let relaxed = pair.rng.chance(200);
                    pair.send(end, now, class, relaxed, length as usize);
                }
            }
            50..80 => {
                let ready = Class::ALL.into_iter().filter(|_| pair.rng.chance(700)).collect();
                let most = pair.rng.below(40) as usize;
                pair.drain(end, ready, most)?;
            }
            80..98 => self.open(pair, slots, index, end),
            98.. => self.meddle(pair),
            _ => {}
        }
        Ok(())
    }

    /// Changes a path. The first one goes on as it is, so that the link does not give up.
    fn meddle(&self, pair: &mut Pair) {
        let path = 1 + pair.rng.below(7) as usize;
        if path >= self.config.paths {
            return;
        }
        let cut = [pair.rng.chance(300), pair.rng.chance(300)];
        let delay = Duration::from_micros(pair.rng.below(1000));
        let mtu = if pair.rng.chance(200) { 1300 } else { MAX_FRAME };
        pair.network.routes[path] = Route { delay, cut, mtu, loss: 0 };
    }

    /// Opens the next binding of a slot at one end, once the last one is closed at both.
    fn open(&self, pair: &mut Pair, slots: &mut [Slot; SLOTS], index: usize, end: usize) {
        let slot = &mut slots[index];
        if slot.open[end] {
            return;
        }
        slot.counter += u32::from(slot.open == [false; 2]);
        // An end that has had this one and closed it is refused; the other end is told.
        let name = key(index as u8 + 1, slot.counter);
        slot.open[end] = pair.ends[end].open_channel(name).is_ok();
    }

    /// What a proxy does when a binding fails: it closes it.
    fn end_failed(&self, pair: &mut Pair, slots: &mut [Slot; SLOTS]) -> Result<(), String> {
        for end in 0..2 {
            for event in core::mem::take(&mut pair.events[end]) {
                let LinkEvent::ChannelFailed { key, reason, .. } = event else { continue };
                if self.trouble.lies == 0 && reason == BindingFailure::TlpCrc {
                    return Err(format!("{key} failed though no memory lies"));
                }
                let slot = &mut slots[usize::from(key.slot.get()) - 1];
                if slot.open[end] && slot.counter == key.epoch.counter() {
                    pair.close(end, key);
                    slot.open[end] = false;
                }
            }
        }
        Ok(())
    }
}

/// TLPs that each seed delivers at the least, on average: where nothing is sent, nothing is missing.
const AT_LEAST: usize = 100;

fn seeds(count: u64, scenario: impl Fn(u64) -> Scenario) -> usize {
    let mut delivered = 0;
    for seed in 0..count {
        match scenario(seed).run() {
            Ok(pair) => delivered += pair.oracle.delivered,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    std::println!("{} TLPs a seed", delivered / count as usize);
    assert!(delivered >= AT_LEAST * count as usize, "{delivered} TLPs of {count} seeds");
    delivered
}

#[test]
fn a_quiet_network() {
    let delivered = seeds(20, |seed| Scenario::new(seed, Trouble::default()));
    assert!(delivered > 5_000, "{delivered} TLPs");
}

#[test]
fn loss() {
    seeds(30, |seed| Scenario::new(seed, Trouble { loss: 200, ..Trouble::default() }));
}

#[test]
fn duplication_and_reordering() {
    let trouble = Trouble { duplication: 300, jitter_us: 2000, ..Trouble::default() };
    seeds(30, |seed| Scenario::new(seed, trouble));
}

#[test]
fn damage() {
    seeds(30, |seed| Scenario::new(seed, Trouble { damage: 200, ..Trouble::default() }));
}

#[test]
fn everything_at_once() {
    seeds(60, |seed| Scenario::new(seed, Trouble::HEAVY));
}

#[test]
fn everything_at_once_in_small_frames() {
    let config = LinkConfig { max_frame: MIN_FRAME, ..LinkConfig::default() };
    seeds(60, |seed| Scenario { config, ..Scenario::new(seed, Trouble::HEAVY) });
}

#[test]
fn little_memory() {
    let config = LinkConfig {
        channels: SLOTS,
        shared_receive: 10,
        shared_send: 10,
        ..LinkConfig::default()
    };
    seeds(400, |seed| Scenario { config, ..Scenario::new(seed, Trouble::HEAVY) });
}

#[test]
fn everything_at_once_on_several_paths() {
    for paths in [2, 3, 8] {
        let config = LinkConfig { paths, ..LinkConfig::default() };
        seeds(60, |seed| Scenario { config, ..Scenario::new(seed, Trouble::HEAVY) });
    }
}

#[test]
#[ignore = "long: minutes of other seeds"]
fn everything_at_once_from_many_seeds() {
    let config = LinkConfig { max_frame: MIN_FRAME, ..LinkConfig::default() };
    seeds(30_000, |seed| Scenario::new(1000 + seed, Trouble::HEAVY));
    seeds(30_000, |seed| Scenario { config, ..Scenario::new(50_000 + seed, Trouble::HEAVY) });
    let config = LinkConfig { paths: 3, ..LinkConfig::default() };
    seeds(30_000, |seed| Scenario { config, ..Scenario::new(90_000 + seed, Trouble::HEAVY) });
    let config = LinkConfig { channels: SLOTS, shared_receive: 10, shared_send: 10, ..config };
    seeds(30_000, |seed| Scenario { config, ..Scenario::new(130_000 + seed, Trouble::HEAVY) });
}

#[test]
fn memory_that_lies_fails_bindings_and_nothing_else() {
    let trouble = Trouble { lies: 100, ..Trouble::HEAVY };
    seeds(40, |seed| Scenario::new(seed, trouble));
}
