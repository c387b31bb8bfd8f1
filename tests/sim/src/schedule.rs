//! What happens when, beside what everybody does by themselves: a list, made from seed and
//! profile before the run begins, that can be written down, shortened and played again.

use crate::device::Wrong;
use crate::host::driver::Task;
use crate::host::os::{Change, Setting};
use crate::network::Cables;
use crate::profile::{Fabric, Kind, Profile, Trouble};
use crate::random::{Drawer, Random};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its name: what it draws comes from a stream of this number, whatever else is in the list.
    pub(crate) id: u32,
    /// Microseconds after everything was lent for the first time.
    pub(crate) at_us: u64,
    /// How long it lasts, microseconds.
    pub(crate) for_us: u64,
    pub(crate) act: Act,
}

/// What the manager can be asked to empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Site {
    Slot { at_box: usize, slot: usize },
    Box { at_box: usize },
    Host { host: usize },
    Path { path: u8 },
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    /// A driver gets work.
    Work {
        host: usize,
        port: usize,
        task: Task,
        operations: u64,
    },
    Storm {
        cables: Cables,
        trouble: Trouble,
    },
    DelaySpike {
        cables: Cables,
        delay_us: u64,
    },
    Pause {
        cables: Cables,
    },
    /// A node is cut off: what it sends, what it gets, or both.
    CutOff {
        node: usize,
        sends: bool,
        gets: bool,
    },
    PathDeath {
        node: usize,
        path: u8,
    },
    /// Of one path of a node what it sends goes nowhere, or what it gets.
    PathOneWay {
        node: usize,
        path: u8,
        sends: bool,
    },
    /// So many paths between a host and a box are left.
    PathsChange {
        host: usize,
        at_box: usize,
        count: usize,
    },
    MtuShrink {
        path: u8,
        mtu: usize,
    },
    SwitchReboot {
        path: u8,
    },
    ProxyCrash {
        node: usize,
        /// It comes back with its tables.
        #[serde(default)]
        tables: bool,
    },
    Freeze {
        node: usize,
    },
    HostReboot {
        host: usize,
        /// With PERST#, as a machine does it; without, as an operating system that starts another one.
        #[serde(default = "with_perst")]
        perst: bool,
    },
    /// The bus behind a port is reset.
    BusReset {
        host: usize,
        port: usize,
    },
    /// One function of the device behind a port is reset.
    FunctionReset {
        host: usize,
        port: usize,
    },
    /// A setting of a device, or of the port that it is behind, is changed, and changed back.
    Changes {
        host: usize,
        port: usize,
        change: Change,
    },
    DevicePulled {
        at_box: usize,
        slot: usize,
    },
    Manner {
        at_box: usize,
        slot: usize,
        manner: Bad,
    },
    /// A root complex answers devices so.
    RootManner {
        host: usize,
        manner: Bad,
    },
    Flood {
        at_box: usize,
        slot: usize,
        strays: bool,
    },
    ControlLost {
        node: usize,
    },
    Release {
        at_box: usize,
        slot: usize,
        force: bool,
    },
    /// The manager replaces a device.
    Replace {
        at_box: usize,
        slot: usize,
        force: bool,
    },
    /// The manager empties something, as long as it lasts.
    Drain {
        site: Site,
        replace: bool,
    },
    /// What the manager was asked for last is called back.
    CallBack,
    /// The lender takes a device back; its borrower has so long before its operating system is asked.
    TakeBack {
        at_box: usize,
        slot: usize,
        grace_ms: u64,
    },
    /// Lent for so long from then on, if it is lent with an end.
    Extend {
        at_box: usize,
        slot: usize,
        lease_ms: u64,
    },
    /// The manager's wall clock jumps.
    ClockJump {
        by_ms: i64,
    },
    /// At its n-th write from then on, which is made or not.
    ManagerCrash {
        writes: u64,
        made: bool,
    },
    ManagerTakeover,
    ManagerSlow {
        by_us: u64,
    },
}

/// How far a wall clock jumps, forth or back: less is taken for a clock that is steered.
const NEAREST_JUMP_MS: u64 = 1_100;
const FARTHEST_JUMP_MS: u64 = 3_600_000;

/// Bad manners of a device, or of a root complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bad {
    Hangs,
    Stuck,
    Late { by_us: u64 },
    Twice,
    Wrong { what: Wrong },
}

impl Act {
    /// Whether it is work and not a fault.
    pub(crate) fn is_work(&self) -> bool {
        matches!(self, Self::Work { .. })
    }
}

/// The list of a seed, in the order of time.
pub(crate) fn make(seed: u64, profile: &Profile) -> Vec<Entry> {
    let mut random = Random::stream(seed, Drawer::Schedule, 0);
    let mut list = Vec::new();
    let busy_us = profile.time.busy_ms * 1000;
    let work = &profile.work;
    for _ in 0..random.between(work.bursts[0], work.bursts[1]) {
        let Some(task) = random.weighted(&Task::weighed(work)) else { break };
        let host = random.below(profile.fabric.hosts as u64) as usize;
        let port = random.below(64) as usize;
        let operations = random.between(work.operations[0], work.operations[1]);
        let act = Act::Work { host, port, task, operations };
        list.push(Entry { id: list.len() as u32, at_us: random.below(busy_us), for_us: 0, act });
    }
    for (number, fault) in profile.faults.iter().enumerate() {
        // Each kind draws from a stream of its own, so that one more of a kind moves no other.
        let mut random = Random::stream(seed, Drawer::Schedule, number as u64 + 1);
        for _ in 0..random.between(fault.count[0], fault.count[1]) {
            let act = draw(fault, profile, &mut random);
            let at_us = random.below(busy_us);
            let for_us = random.between(fault.for_ms[0] * 1000, fault.for_ms[1] * 1000);
            let for_us = for_us.min(busy_us - at_us);
            list.push(Entry { id: list.len() as u32, at_us, for_us, act });
        }
    }
    list.sort_by_key(|entry| (entry.at_us, entry.id));
    list
}

const fn with_perst() -> bool {
    true
}

/// Whether everything that a list names is there in a fabric.
///
/// # Errors
///
/// Names the first entry that speaks of what is not there.
pub(crate) fn check(list: &[Entry], fabric: &Fabric) -> Result<()> {
    for entry in list {
        let fits = fits(&entry.act, fabric);
        ensure!(fits, "entry {} is not of this profile's fabric: {:?}", entry.id, entry.act);
    }
    Ok(())
}

fn fits(act: &Act, fabric: &Fabric) -> bool {
    let is_node = |node: usize| node < fabric.hosts + fabric.boxes;
    let is_path = |path: u8| usize::from(path) < fabric.paths;
    match *act {
        Act::Work { host, .. }
        | Act::HostReboot { host, .. }
        | Act::RootManner { host, .. }
        | Act::BusReset { host, .. }
        | Act::FunctionReset { host, .. }
        | Act::Changes { host, .. } => host < fabric.hosts,
        Act::Storm { cables, .. } | Act::DelaySpike { cables, .. } | Act::Pause { cables } => {
            match cables {
                Cables::From { node, path }
                | Cables::To { node, path }
                | Cables::Of { node, path } => is_node(node) && is_path(path),
                Cables::Plane { path } => is_path(path),
            }
        }
        Act::PathDeath { node, path } | Act::PathOneWay { node, path, .. } => {
            is_node(node) && is_path(path)
        }
        Act::PathsChange { host, at_box, count } => {
            host < fabric.hosts && at_box < fabric.boxes && (1..=fabric.paths).contains(&count)
        }
        Act::MtuShrink { path, .. } | Act::SwitchReboot { path } => is_path(path),
        Act::CutOff { node, .. }
        | Act::ProxyCrash { node, .. }
        | Act::Freeze { node }
        | Act::ControlLost { node } => is_node(node),
        Act::DevicePulled { at_box, slot }
        | Act::Manner { at_box, slot, .. }
        | Act::Flood { at_box, slot, .. }
        | Act::Release { at_box, slot, .. }
        | Act::Replace { at_box, slot, .. }
        | Act::TakeBack { at_box, slot, .. }
        | Act::Extend { at_box, slot, .. } => at_box < fabric.boxes && slot < fabric.slots,
        Act::Drain { site, .. } => match site {
            Site::Slot { at_box, slot } => at_box < fabric.boxes && slot < fabric.slots,
            Site::Box { at_box } => at_box < fabric.boxes,
            Site::Host { host } => host < fabric.hosts,
            Site::Path { path } => is_path(path),
        },
        Act::CallBack
        | Act::ClockJump { .. }
        | Act::ManagerCrash { .. }
        | Act::ManagerTakeover
        | Act::ManagerSlow { .. } => true,
    }
}

fn draw(fault: &crate::profile::FaultKind, profile: &Profile, random: &mut Random) -> Act {
    let fabric = &profile.fabric;
    let below = |n: usize, random: &mut Random| random.below(n as u64) as usize;
    let node = below(fabric.hosts + fabric.boxes, random);
    let path = below(fabric.paths, random) as u8;
    let host = below(fabric.hosts, random);
    let (at_box, slot) = (below(fabric.boxes, random), below(fabric.slots, random));
    let cables = match random.below(4) {
        0 => Cables::From { node, path },
        1 => Cables::To { node, path },
        2 => Cables::Of { node, path },
        _ => Cables::Plane { path },
    };
    let [low, high] = fault.late_ms;
    let late_us = |random: &mut Random| random.between(low * 1000 + 10, high * 1000);
    let long = |random: &mut Random| random.between(fault.late_ms[0], fault.late_ms[1]);
    let manner = |manner| Act::Manner { at_box, slot, manner };
    let changes = |setting, random: &mut Random| {
        let of_port = setting != Setting::Place && random.chance(500_000);
        let change = Change { setting, of_port, gently: random.chance(400_000) };
        Act::Changes { host, port: random.below(64) as usize, change }
    };
    match fault.kind {
        Kind::Storm => Act::Storm { cables, trouble: fault.trouble },
        Kind::DelaySpike => Act::DelaySpike { cables, delay_us: random.between(500, 60_000) },
        Kind::Pause => Act::Pause { cables },
        Kind::OneWay => {
            let sends = random.chance(500_000);
            Act::CutOff { node, sends, gets: !sends }
        }
        Kind::Partition => Act::CutOff { node, sends: true, gets: true },
        Kind::PathDeath => Act::PathDeath { node, path },
        Kind::PathOneWay => Act::PathOneWay { node, path, sends: random.chance(500_000) },
        Kind::PathsChange => {
            let fewer = (fabric.paths - 1).max(1);
            Act::PathsChange { host, at_box, count: random.between(1, fewer as u64) as usize }
        }
        Kind::MtuShrink => Act::MtuShrink { path, mtu: fault.mtu },
        Kind::SwitchReboot => Act::SwitchReboot { path },
        Kind::HostProxyCrash => Act::ProxyCrash { node: host, tables: false },
        Kind::BoxProxyCrash => Act::ProxyCrash { node: fabric.hosts + at_box, tables: false },
        Kind::HostProxyRestart => Act::ProxyCrash { node: host, tables: true },
        Kind::BoxProxyRestart => Act::ProxyCrash { node: fabric.hosts + at_box, tables: true },
        Kind::Freeze => Act::Freeze { node },
        Kind::HostReboot => Act::HostReboot { host, perst: random.chance(500_000) },
        Kind::BusReset => Act::BusReset { host, port: random.below(64) as usize },
        Kind::FunctionReset => Act::FunctionReset { host, port: random.below(64) as usize },
        Kind::BusMasterOff => changes(Setting::BusMaster, random),
        Kind::MemoryOff => changes(Setting::Memory, random),
        Kind::PowerDown => changes(Setting::Power, random),
        Kind::RegistersMove => changes(Setting::Place, random),
        Kind::DevicePulled => Act::DevicePulled { at_box, slot },
        Kind::DeviceHangs => manner(Bad::Hangs),
        Kind::DeviceStuck => manner(Bad::Stuck),
        Kind::DeviceLate => manner(Bad::Late { by_us: late_us(random) }),
        Kind::DeviceTwice => manner(Bad::Twice),
        Kind::DeviceWrong => {
            let what = Wrong::DRAWN[below(Wrong::DRAWN.len(), random)];
            manner(Bad::Wrong { what })
        }
        Kind::RootLate => Act::RootManner { host, manner: Bad::Late { by_us: late_us(random) } },
        Kind::RootTwice => Act::RootManner { host, manner: Bad::Twice },
        Kind::RootWrong => {
            let what = Wrong::DRAWN[below(Wrong::DRAWN.len(), random)];
            Act::RootManner { host, manner: Bad::Wrong { what } }
        }
        Kind::DeviceFloods => Act::Flood { at_box, slot, strays: false },
        Kind::DeviceStrays => Act::Flood { at_box, slot, strays: true },
        Kind::ControlLost => Act::ControlLost { node },
        Kind::ManagerCrash => {
            Act::ManagerCrash { writes: random.between(1, 12), made: random.chance(500_000) }
        }
        Kind::ManagerTakeover => Act::ManagerTakeover,
        Kind::ManagerSlow => Act::ManagerSlow { by_us: late_us(random) },
        Kind::Release => Act::Release { at_box, slot, force: false },
        Kind::ForcedRelease => Act::Release { at_box, slot, force: true },
        Kind::Replace => Act::Replace { at_box, slot, force: random.chance(300_000) },
        Kind::CallBack => Act::CallBack,
        Kind::TakeBack => Act::TakeBack { at_box, slot, grace_ms: long(random) },
        Kind::Extend => Act::Extend { at_box, slot, lease_ms: long(random) },
        Kind::ClockJump => {
            let far = random.between(NEAREST_JUMP_MS, FARTHEST_JUMP_MS) as i64;
            Act::ClockJump { by_ms: if random.chance(500_000) { far } else { -far } }
        }
        Kind::Drain => {
            let (site, may_replace) = match random.below(4) {
                0 => (Site::Slot { at_box, slot }, true),
                1 => (Site::Box { at_box }, true),
                2 => (Site::Host { host }, false),
                _ => (Site::Path { path }, false),
            };
            Act::Drain { site, replace: may_replace && random.chance(500_000) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_of_its_seed_and_reads_as_it_is_written() {
        let profile = Profile::find("storm").unwrap();
        let list = make(5, &profile);
        assert_eq!(list, make(5, &profile));
        assert_ne!(list, make(6, &profile));
        assert!(list.iter().any(|e| !e.act.is_work()) && list.iter().any(|e| e.act.is_work()));
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Entry>>(&text).unwrap(), list);
        assert!(list.iter().all(|e| e.at_us + e.for_us <= profile.time.busy_ms * 1000));
    }

    #[test]
    fn every_wrong_answer_is_drawn() {
        for name in ["devices", "storm"] {
            let profile = Profile::find(name).unwrap();
            let list: Vec<Entry> = (0..100).flat_map(|seed| make(seed, &profile)).collect();
            for what in Wrong::DRAWN {
                let drawn = |e: &Entry| matches!(e.act, Act::Manner { manner, .. } if manner == Bad::Wrong { what });
                assert!(list.iter().any(drawn), "{name}: {what:?}");
            }
        }
    }

    #[test]
    fn proxies_come_back_with_their_tables_and_without() {
        for name in ["nodes", "manager", "nvme", "storm"] {
            let profile = Profile::find(name).unwrap();
            let hosts = profile.fabric.hosts;
            let drawn: Vec<(bool, bool)> = (0..20)
                .flat_map(|seed| make(seed, &profile))
                .filter_map(|entry| match entry.act {
                    Act::ProxyCrash { node, tables } => Some((node < hosts, tables)),
                    _ => None,
                })
                .collect();
            for kind in [(false, false), (false, true), (true, false), (true, true)] {
                assert!(drawn.contains(&kind), "{name}: (a host's, with tables) {kind:?}");
            }
        }
        let old = r#"{"proxy-crash":{"node":1}}"#;
        let without = Act::ProxyCrash { node: 1, tables: false };
        assert_eq!(serde_json::from_str::<Act>(old).unwrap(), without, "as it was written before");
    }

    /// Of a kind of fault, and smaller than the fabric's frames where that is what it is about.
    fn is_drawn(name: &str, wanted: impl Fn(&Act, &Fabric) -> bool) -> bool {
        let profile = Profile::find(name).unwrap();
        (0..50).flat_map(|seed| make(seed, &profile)).any(|e| wanted(&e.act, &profile.fabric))
    }

    #[test]
    fn frames_become_too_large_wherever_something_else_goes_wrong() {
        for name in ["lossy", "nodes", "devices", "nvme", "paths", "storm", "day"] {
            let shrinks = |act: &Act, fabric: &Fabric| match act {
                Act::MtuShrink { mtu, .. } => *mtu < fabric.frame,
                _ => false,
            };
            assert!(is_drawn(name, shrinks), "{name}");
        }
    }

    #[test]
    fn functions_are_reset_and_devices_take_nothing() {
        for name in ["functions", "devices", "nvme", "storm", "reset", "day"] {
            let resets = |act: &Act, _: &Fabric| matches!(act, Act::FunctionReset { .. });
            assert!(is_drawn(name, resets), "{name}");
        }
        let stuck = |act: &Act, _: &Fabric| matches!(act, Act::Manner { manner: Bad::Stuck, .. });
        for name in ["hung", "peers", "storm", "day"] {
            assert!(is_drawn(name, stuck), "{name}");
        }
    }

    #[test]
    fn settings_are_changed_of_functions_and_of_ports_gently_and_roughly() {
        for setting in [Setting::BusMaster, Setting::Memory, Setting::Power, Setting::Place] {
            for (of_port, gently) in [(false, false), (false, true), (true, false), (true, true)] {
                let wanted = Change { setting, of_port, gently };
                let changes = |act: &Act, _: &Fabric| matches!(act, Act::Changes { change, .. } if *change == wanted);
                let there_is = setting != Setting::Place || !of_port;
                assert_eq!(is_drawn("configuration", changes), there_is, "{wanted:?}");
            }
        }
    }

    #[test]
    fn paths_die_in_either_direction_wherever_there_are_several() {
        for (name, _) in crate::profile::BUILT_IN {
            if Profile::find(name).unwrap().fabric.paths == 1 {
                continue;
            }
            for sent in [false, true] {
                let dies = |act: &Act, _: &Fabric| matches!(act, Act::PathOneWay { sends, .. } if *sends == sent);
                assert!(is_drawn(name, dies), "{name}: what a node sends is lost: {sent}");
            }
        }
    }

    #[test]
    fn a_number_of_paths_is_drawn_that_is_another_one() {
        for left in 1..3 {
            let wanted = |act: &Act, fabric: &Fabric| matches!(act, Act::PathsChange { count, .. } if *count == left && left < fabric.paths);
            assert!(is_drawn("paths", wanted), "{left}");
        }
    }

    #[test]
    fn a_schedule_of_another_fabric_is_refused() {
        let (storm, calm) = (Profile::find("storm").unwrap(), Profile::calm());
        let list = make(5, &storm);
        assert!(check(&list, &storm.fabric).is_ok());
        let said = check(&list, &calm.fabric).unwrap_err().to_string();
        assert!(said.contains("not of this profile's fabric"), "{said}");
    }
}
