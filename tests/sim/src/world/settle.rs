//! When the faults have stopped, everything is right again within a bound.

use super::World;
use super::hosts::HostNode;
use crate::host::os::Stage;
use crate::host::{FUNCTIONS, host_name, port_name};
use crate::manager::Lent;
use crate::oracle::{Verdict, Violation};
use proxy_core::boxes::ANSWER_BOUND;
use proxy_core::role::InHand;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Epoch, PortId};

/// The first lending takes no longer than this.
const BEGINS: Duration = Duration::from_secs(20);
/// What is held when everything is at rest, for acknowledgements and returned credits, is gone
/// within this time: some round trips, and the longest back-off of one that was lost.
const EMPTIES: Duration = Duration::from_secs(2);
/// Between two looks whether all is quiet.
const LOOK: Duration = Duration::from_millis(10);

impl World {
    /// Whether everything is lent, used and at rest.
    pub(super) fn is_quiet(&self) -> bool {
        self.lender.is_settled()
            && self.hosts.iter().all(|host| {
                host.role.is_some()
                    && host.out.len() == 0
                    && host.requests.live() == 0
                    && (0..host.ports.len()).all(|port| {
                        host.ports[port].is_none_or(|index| {
                            self.is_given_up(host, port, index)
                                // What is over comes back under a new epoch only.
                                || !self.bindings.all()[index].is_over()
                                    && host.os.driver(port).is_some_and(|driver| driver.is_idle())
                        })
                    })
            })
            && self.bindings.all().iter().enumerate().all(|(index, binding)| {
                let owed = || binding.up.owed().0 + binding.down.owed().0;
                !binding.is_sound() || owed() + self.bindings.owed_aside(index).0 == 0
            })
    }

    /// Whether a binding that is over has left its port, which nothing has taken since: its slot is
    /// another host's, or comes back by another port.
    fn is_given_up(&self, host: &HostNode, port: usize, index: usize) -> bool {
        let id = PortId::new((port / FUNCTIONS) as u8).expect("few ports");
        self.bindings.all()[index].is_over()
            && host.os.stage(port) == Stage::Empty
            && host.role.as_ref().is_some_and(|role| !role.mapping_entry(id).used)
    }

    /// Runs until everything that was planned has happened and everything is at rest.
    ///
    /// # Errors
    ///
    /// The first promise that is broken.
    pub(crate) fn run(&mut self) -> Verdict {
        let faults_end = self.run_to_faults_end()?;
        self.network.heal();
        self.trace.say(faults_end, 0, "the faults have stopped".into());
        // A card, which asks little at a time, takes longer.
        let times = if cfg!(dxpu_limits = "card") { 2 } else { 1 };
        let deadline = faults_end + Duration::from_millis(self.profile.time.settle_ms) * times;
        // A proxy that has just started is at rest; that the manager knows it takes a moment more.
        while !self.is_quiet() || self.check_records().is_err() {
            if self.now() >= deadline {
                if self.is_quiet() {
                    return self.check_records();
                }
                return World::broken(0, format!("not at rest: {}", self.restless()));
            }
            let until = self.now() + LOOK;
            while self.step(until)? {}
        }
        self.check()?;
        self.run_to_empty()?;
        self.run_until_none(EMPTIES, 1, World::wrong_wires)?;
        self.run_to_whole()?;
        self.drives.check()
    }

    /// Until no proxy holds or keeps anything in its links or has a request in its tables: what is
    /// forgotten there would be seen otherwise only when somebody starves.
    fn run_to_empty(&mut self) -> Verdict {
        self.run_until_none(EMPTIES, 5, |world| {
            let held = world.held_buffers();
            let what = || format!("at rest, link.buffers_in_use of (node, buffers) is {held:?}");
            (!held.is_empty()).then(what)
        })?;
        // What nobody waits for any more, since who asked or was asked is gone, runs into its bound. A
        // tag that a root complex may still answer is its until then.
        let last = self.hosts.iter().filter_map(|host| host.root.last_at()).max();
        let said = last.map_or(Duration::ZERO, |last| last.saturating_since(self.now()));
        // A box counts a request of its own by which a device may still mean it, after the time in which
        // it waited for the answer itself.
        self.run_until_none(self.bound + ANSWER_BOUND + said, 5, |world| {
            let left = world.left_in_hand();
            (!left.is_empty()).then(|| format!("at rest, these nodes have in hand: {left:?}"))
        })
    }

    /// Until every path carries something again, of the links that bindings are on.
    fn run_to_whole(&mut self) -> Verdict {
        self.run_until_none(EMPTIES, 0, |world| {
            let lame = world.lame_links();
            let what =
                || format!("at rest, paths do not come back: (from, to, good ones) {lame:?}");
            (!lame.is_empty()).then(what)
        })
    }

    /// Until there is nothing of what is not to last longer; that breaks a promise if it does.
    fn run_until_none(
        &mut self,
        within: Duration,
        promise: u8,
        left: impl Fn(&Self) -> Option<String>,
    ) -> Verdict {
        let deadline = self.now() + within;
        while let Some(what) = left(self) {
            if self.now() >= deadline {
                return World::broken(promise, what);
            }
            let until = self.now() + LOOK;
            while self.step(until)? {}
        }
        Ok(())
    }

    /// The nodes that have something in hand, and what.
    fn left_in_hand(&self) -> Vec<(usize, InHand)> {
        let hosts = self.hosts.iter().map(|host| {
            let mut in_hand = host.role.as_ref()?.in_hand();
            // Each lie of a root complex may have left an answer that fits nothing.
            in_hand.set_aside = in_hand.set_aside.saturating_sub(host.root.misdeeds[1] as usize);
            Some(in_hand)
        });
        let boxes = self.boxes.iter().map(|node| node.role.as_ref().map(|role| role.in_hand()));
        let all = hosts.chain(boxes).map(Option::unwrap_or_default).enumerate();
        let all = all.map(|(node, in_hand)| (node + 1, in_hand));
        all.filter(|(_, in_hand)| *in_hand != InHand::default()).collect()
    }

    /// The nodes whose links hold something, or keep room for something, and how many buffers.
    fn held_buffers(&self) -> Vec<(usize, u64)> {
        let held = |node| Some((node + 1, in_use(self.counters(node)?)));
        (0..self.lives.len()).filter_map(held).filter(|(_, held)| *held > 0).collect()
    }

    /// Until the schedule is over, and no further.
    pub(super) fn run_to_faults_end(&mut self) -> Verdict<Instant> {
        let start = self.now();
        while self.began.is_none() {
            let until = self.now() + LOOK;
            while self.began.is_none() && self.step(until)? {}
            if self.now().saturating_since(start) > BEGINS {
                let what = format!("nothing works from the start: {}", self.restless());
                return Err(Violation::new(0, what));
            }
        }
        let began = self.began.expect("it has begun");
        let faults_end = began + Duration::from_millis(self.profile.time.busy_ms);
        while self.step(faults_end)? {}
        Ok(faults_end)
    }

    /// What the manager's records say, the proxies' tables say, too, and nothing else.
    fn check_records(&mut self) -> Verdict {
        let Some(manager) = self.lender.manager() else { return Ok(()) };
        if manager.gave_a_host_up() {
            return World::broken(4, "a host that only rebooted lost its devices".into());
        }
        let mut records = manager.records();
        records.sort_unstable();
        let (mut at_hosts, mut at_boxes) = self.lent();
        at_hosts.sort_unstable();
        at_boxes.sort_unstable();
        let mut of_boxes: Vec<_> = records.iter().map(|r| Lent { port: None, ..*r }).collect();
        of_boxes.sort_unstable();
        if records == at_hosts && of_boxes == at_boxes {
            return Ok(());
        }
        let what = format!("records {records:?}, hosts {at_hosts:?}, boxes {at_boxes:?}");
        World::broken(4, what)
    }

    /// What is not at rest, for a person.
    pub(super) fn restless(&self) -> String {
        let mut text = Vec::new();
        if !self.lender.is_settled() {
            text.push(format!("not lent: {}", self.lender.unsettled()));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if host.role.is_none() {
                text.push(format!("{} has no proxy", host_name(index)));
            }
            if host.out.len() + host.requests.live() > 0 {
                let (waits, asked) = (host.out.len(), host.requests.live());
                let name = host_name(index);
                text.push(format!("{name}: {waits} TLPs wait, {asked} requests are outstanding"));
            }
            for (port, bound) in host.ports.iter().enumerate() {
                let Some(bound) = bound else { continue };
                if self.is_given_up(host, port, *bound) {
                    continue;
                }
                let name = format!("{} {}", host_name(index), port_name(port));
                if self.bindings.all()[*bound].is_over() {
                    text.push(format!("{name}: in use under an epoch that is over"));
                }
                match host.os.driver(port) {
                    None => {
                        let stage = host.os.stage(port);
                        text.push(format!("{name}: {stage:?}"));
                    }
                    Some(driver) if !driver.is_idle() => {
                        text.push(format!("{name}: {}", driver.leftover()));
                    }
                    Some(_) => {}
                }
            }
        }
        for (index, binding) in self.bindings.all().iter().enumerate().filter(|b| b.1.is_sound()) {
            let (aside, since) = self.bindings.owed_aside(index);
            let name = self.slot_of_box(binding.at_box, binding.slot);
            if aside > 0 {
                text.push(format!(
                    "{aside} TLPs of {name} for other devices never came (the oldest from {since:?})"
                ));
            }
            let (up, down) = (binding.up.owed(), binding.down.owed());
            if up.0 + down.0 > 0 {
                text.push(format!(
                    "{name} epoch {}: {} TLPs to the device and {} from it never came (the oldest \
                     from {:?})",
                    Epoch::from_bits(binding.epoch).expect("an epoch that was lent under"),
                    down.0,
                    up.0,
                    up.1.or(down.1)
                ));
            }
        }
        text.join("; ")
    }
}

/// Of a role's counters, the buffers that its links hold or keep.
fn in_use(mut counters: impl Iterator<Item = (&'static str, u64)>) -> u64 {
    counters.find(|(name, _)| *name == "link.buffers_in_use").expect("every role counts that").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::driver::Task;
    use crate::profile::Profile;
    use crate::schedule::{self, Act};

    /// What a run says in which one bit of a drive's medium is changed from outside; from then on
    /// nobody writes.
    fn with_rot(at: impl FnOnce(&World) -> Option<usize>) -> Verdict {
        let mut profile = Profile::find("nvme").unwrap();
        profile.faults.clear();
        let mut schedule = schedule::make(1, &profile);
        let half = profile.time.busy_ms * 500;
        let reads = |act| matches!(act, Act::Work { task: Task::BlockReads, .. });
        schedule.retain(|entry| entry.at_us < half || reads(entry.act));
        let mut world = World::new(1, &profile, schedule);
        while world.began.is_none() {
            let until = world.now() + LOOK;
            while world.step(until)? {}
        }
        let until = world.now() + Duration::from_micros(half) + LOOK * 10;
        while world.step(until)? {}
        if let Some(at) = at(&world) {
            world.drives.get(0).medium().rot(at);
        }
        world.run()
    }

    #[test]
    fn a_byte_that_changes_on_a_medium_is_noticed() {
        assert_eq!(with_rot(|_| None), Ok(()));
        // Far from where the drivers read most, it is seen at the end at the latest.
        let last = with_rot(|_| Some(crate::device::CAPACITY - 1)).unwrap_err();
        assert!(last.what.contains("it may hold"), "{last:?}");
        // Where they read all the time, one of their reads finds it.
        let hot = with_rot(|world| world.drives.get(0).known_write()).unwrap_err();
        assert_eq!(hot.promise, 3, "{hot:?}");
    }
}
