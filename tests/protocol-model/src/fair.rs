//! What happens when the trouble is over: everybody goes on, in turn, and nothing else goes wrong.

use crate::space::{Act, Protocol, State};
use manager::types::Desired;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Steps within which all has to come to rest. The longest way that was seen is far shorter.
const MAX_STEPS: usize = 600;

/// Comparisons that nothing but the clock brings about, within which all has to agree.
const MAX_ROUNDS: usize = 4;

/// Whether records and tables come to agree, and everything that was to end has ended, if nothing
/// goes wrong any more and nobody asks for anything.
pub fn settles(model: &Protocol, state: &State) -> bool {
    let mut state = state.clone();
    let passed = run(model, &mut state);
    passed.is_some_and(|passed| {
        let mut good = model.good.lock().expect("no one panics while holding it");
        good.extend(passed);
        true
    })
}

/// Lets everybody go on until all is at rest. The states on the way; nothing if it does not come
/// to rest, or is not well then.
pub(crate) fn run(model: &Protocol, state: &mut State) -> Option<HashSet<u64>> {
    let leader = only_leader(state)?;
    state.tlp = None;
    let mut passed = HashSet::new();
    let mut rounds = 0;
    for _ in 0..MAX_STEPS {
        let print = fingerprint(state);
        if model.good.lock().expect("no one panics while holding it").contains(&print) {
            return Some(passed);
        }
        passed.insert(print);
        match step(model, state, leader) {
            // What must never happen must not on the way to rest, either.
            Some(next) if next.wrong.is_some() => return None,
            Some(next) => *state = next,
            None if agrees(state, leader) => return Some(passed),
            None => {
                rounds += 1;
                if rounds > MAX_ROUNDS {
                    return None;
                }
                for connection in state.connections.iter_mut().flatten() {
                    connection.sync_wanted = true;
                }
            }
        }
    }
    None
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    // How often something may still go wrong does not count: nothing does.
    let State { leaders, the_box, hosts, connections, .. } = state;
    (leaders, the_box, hosts, connections).hash(&mut hasher);
    hasher.finish()
}

/// Ends every manager but the one with the highest term, as whoever runs it does in the end.
fn only_leader(state: &mut State) -> Option<usize> {
    let term = |index: &usize| state.leader(*index).map(|leader| leader.records.term());
    let best = (0..2).max_by_key(term)?;
    for index in (0..2).filter(|index| *index != best) {
        state.leaders[index] = None;
        for proxy in 0..3 {
            if state.connections[proxy].as_ref().is_some_and(|c| c.leader == index) {
                state.connections[proxy] = None;
            }
        }
    }
    Some(best)
}

/// The next thing that somebody does.
fn step(model: &Protocol, state: &State, leader: usize) -> Option<State> {
    let proxies = || 0..3;
    let mut acts: Vec<Act> = Vec::new();
    acts.extend(proxies().map(Act::Obey));
    acts.extend(proxies().map(Act::Hear));
    acts.extend([Act::BoxNotices, Act::HostNotices(0), Act::HostNotices(1)]);
    acts.extend(proxies().map(|proxy| Act::Dial(proxy, leader)));
    acts.extend(proxies().map(Act::Compare));
    acts.push(Act::Drive(leader));
    acts.extend([Act::Enable(0), Act::Enable(1)]);
    let next = acts.into_iter().find_map(|act| model.apply(state, act));
    next.or_else(|| {
        // A manager that was told of a later one is restarted.
        let told = state.leader(leader)?.records.tables.meta();
        if told.highest_term_seen <= told.term {
            return None;
        }
        let mut next = state.clone();
        model.restart_leader(&mut next, leader)?;
        Some(next)
    })
}

/// Whether the tables have what the records have, and nothing is on its way out.
fn agrees(state: &State, leader: usize) -> bool {
    let Some(leader) = state.leader(leader) else { return false };
    let ready = |proxy: usize| state.connections[proxy].as_ref().is_some_and(|c| c.ready);
    if !(0..3).all(ready) {
        return false;
    }
    let at = |host: usize| state.hosts[host].bound.map(|e| (e.epoch, e.dead));
    let at_box = state.the_box.bound.map(|e| (e.host, e.epoch, e.dead));
    match (leader.records.binding(), leader.records.host()) {
        (Some(binding), Some(host)) => {
            let epoch = binding.port_epoch();
            binding.desired == Desired::Bound
                && binding.phase.at_host()
                && at_box == Some((host, epoch, false))
                && at(host) == Some((epoch, false))
                && at(1 - host).is_none()
        }
        _ => at_box.is_none() && at(0).is_none() && at(1).is_none(),
    }
}
