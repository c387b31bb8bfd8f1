//! Nothing stands still for a path's sake as long as another one is whole: what is on the dead one
//! goes by that one, within the time that it takes to see that nothing comes back. A device that
//! misbehaves may take nothing itself, and hold up the others of its host for a time; so may one that
//! is cut off.

use super::World;
use super::boxes::SlotNode;
use crate::oracle::{Verdict, Violation};
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::time::Duration;

/// Where each binding's two directions stood at the last look: how many TLPs had come, and since
/// when it is so many.
#[derive(Debug, Default)]
pub(super) struct Standstills {
    flows: Vec<[(u64, Instant); 2]>,
}

impl Standstills {
    /// Since when nothing of a flow has come, of which so much has by now, and something is under way
    /// since `owed`; or since when who gets it `takes` all that there may be.
    fn since(
        &mut self,
        now: Instant,
        at: (usize, usize),
        (delivered, takes): (u64, bool),
        owed: Instant,
    ) -> Instant {
        let (binding, way) = at;
        if self.flows.len() <= binding {
            self.flows.resize(binding + 1, [(0, now); 2]);
        }
        let flow = &mut self.flows[binding][way];
        if flow.0 != delivered || !takes {
            *flow = (delivered, now);
        }
        flow.1.max(owed)
    }
}

/// So long before.
fn before(at: Instant, time: Duration) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(time.as_nanos() as u64))
}

impl World {
    /// Whether two nodes had a path that is whole for so long until now, or for longer, and neither
    /// of their proxies stood still meanwhile.
    pub(super) fn had_a_path(&self, time: Duration, one: usize, other: usize) -> bool {
        let now = self.now();
        let whole = self.silences.whole_since(&self.network, now, one, other);
        whole.is_some_and(|whole| {
            let since = before(now, time);
            let still = |node: usize| self.lives[node].stood_still(since, now);
            now.saturating_since(whole) >= time && (still(one) + still(other)).is_zero()
        })
    }

    /// No binding in use stands still for longer than the profile says while a path is whole.
    pub(super) fn check_standing(&mut self) -> Verdict {
        let (now, hosts) = (self.now(), self.hosts.len());
        let bound = Duration::from_millis(self.profile.time.stands_ms);
        if bound.is_zero() {
            return Ok(());
        }
        for index in 0..self.bindings.all().len() {
            let binding = &self.bindings.all()[index];
            for (way, flow) in [&binding.down, &binding.up].into_iter().enumerate() {
                let owed = flow.owed().1.filter(|_| binding.is_sound()).unwrap_or(now);
                // One that floods takes no requests until that has left it, which its host may let wait; nor
                // does a drive that has its hands full.
                let entry = &self.boxes[binding.at_box].slots[binding.slot];
                let takes = way == 1 || entry.device.room() == ClassSet::ALL;
                let came = (flow.delivered, takes);
                let since = self.standstills.since(now, (index, way), came, owed);
                let stands = now.saturating_since(since);
                let host = binding.host;
                // What one did not answer holds up what comes behind, until the time of that is over.
                let asking = before(since, self.bound);
                // What is for one of a host's devices goes before what is for the others.
                let well = |other: usize| {
                    let took = |slot: &SlotNode| !slot.spells.within(asking, now);
                    self.had_a_path(stands, host, hosts + other)
                        && self.boxes[other].slots.iter().all(took)
                };
                if stands > bound && (0..self.boxes.len()).all(well) {
                    let name = self.slot_of_box(binding.at_box, binding.slot);
                    let way = ["to", "from"][way];
                    let what = format!(
                        "nothing came {way} the device in {name} since {since:?}, though a path is whole"
                    );
                    return Err(Violation::new(0, what));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_something_come_or_waits_for_nothing_does_not_stand_still() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut all = Standstills::default();
        let mut look = |ms, came, owed| all.since(at(ms), (3, 1), came, at(owed));
        assert_eq!(look(50, (0, true), 20), at(50), "it was not looked at before");
        assert_eq!(look(100, (0, true), 20), at(50));
        assert_eq!(look(150, (1, true), 20), at(150), "one came");
        assert_eq!(look(200, (1, true), 180), at(180), "that was all, and the next one is new");
        assert_eq!(look(250, (1, true), 250), at(250), "nothing is under way");
        assert_eq!(look(300, (1, false), 270), at(300), "it does not take all");
        assert_eq!(look(350, (1, true), 270), at(300));
    }
}
