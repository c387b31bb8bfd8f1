//! A manager's loops around its own decisions: the driver of the binding and the comparison of
//! tables, as `reconcile::driver` and `reconcile::sync` have them, one message at a time.

use crate::proxies::{Answer, Body, Refusal, Request, Way};
use crate::records::{Records, box_name, function, host_name};
use crate::seen::{EndsSeen, desired_number, phase_number};
use crate::space::{Bug, Protocol, State};
use manager::operations::progress;
use manager::reconcile::action::{self, Action, Ends};
use manager::reconcile::compare;
use manager::types::{BindingRecord, Desired, DeviceState, Phase, Role};
use proxy_core::control::PathSet;
use tlp_codec::ids::{Epoch, SlotFunction};

/// What the operating system is given, milliseconds. The number is passed on and nothing else.
const WITHIN_MS: u32 = 1;

/// A manager that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub(crate) records: Records,
    /// Those that are on the disk, which a manager that is killed comes back with. What a proxy was
    /// heard to have done may not be there yet.
    pub(crate) durable: Records,
    pub(crate) driver: Option<Driver>,
}

/// A step that is being done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Driver {
    /// The records when it began.
    asked: Records,
    step: Step,
    /// The lives of box and host that it is done with.
    ends: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The host is told of the box; then `BindSlot`.
    TellHost,
    BindSlot,
    /// The box is told of the host; then `BindPort`.
    TellBox,
    BindPort,
    UnbindPort,
    UnbindSlot,
}

/// How far the comparison of a proxy's tables is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sync {
    /// Nothing to do.
    Idle,
    /// They are being read; what the records were before.
    Reading(Records),
    /// A box has what no record has: its host is looked at first.
    HostFirst(Epoch, usize),
    /// What no record has is being taken out.
    Removing,
}

impl Leader {
    pub(crate) fn new(records: Records) -> Self {
        Self { durable: records.clone(), records, driver: None }
    }

    /// Changes the records, and with them all that is not durable yet is.
    pub(crate) fn record(&mut self, records: Records) {
        self.durable = records.clone();
        self.records = records;
    }

    /// A connection ended: what waits for an answer on it does no longer.
    pub(crate) fn lost(&mut self, proxy: usize) {
        let waits = |driver: &Driver| {
            let host = driver.asked.host().map_or(0, |host| host + 1);
            match driver.step {
                Step::TellHost | Step::BindPort | Step::UnbindPort => proxy == host,
                Step::BindSlot | Step::TellBox | Step::UnbindSlot => proxy == 0,
            }
        };
        if self.driver.as_ref().is_some_and(waits) {
            self.driver = None;
        }
    }
}

/// Lends, if both ends are ready.
pub(crate) fn allocate(
    state: &mut State,
    index: usize,
    host: usize,
    bug: Option<Bug>,
) -> Option<()> {
    let ready = |proxy| state.open(proxy, index).is_some_and(|c| c.ready);
    if !ready(0) || !ready(host + 1) {
        return None;
    }
    let records = &state.leader(index)?.records;
    let reuse = bug == Some(Bug::EpochAgain);
    let records = records.lent_to(host, state.lives + 1, reuse)?;
    state.lives += 1;
    state.leaders[index].as_mut()?.record(records);
    Some(())
}

/// Takes back.
pub(crate) fn release(state: &mut State, index: usize, force: bool) -> Option<()> {
    let leader = state.leaders[index].as_mut()?;
    let now = leader.records.binding()?.desired;
    let desired = match force {
        true => Desired::Forced,
        false => Desired::Released { within_ms: WITHIN_MS },
    };
    if now == Desired::Forced || now == desired {
        return None;
    }
    leader.record(leader.records.wanted(desired));
    Some(())
}

/// Begins what is next for the binding.
pub(crate) fn drive(state: &mut State, index: usize, model: &Protocol) -> Option<()> {
    let leader = state.leader(index).filter(|leader| leader.driver.is_none())?;
    let asked = leader.records.clone();
    let binding = asked.binding()?.clone();
    let host = asked.host()? + 1;
    let life = |proxy| state.open(proxy, index).filter(|c| c.ready).map(|c| c.incarnation);
    let ends = Ends { at_box: life(0), at_host: life(host) };
    let action = action::next(&binding, ends);
    saw(model, &binding, ends, action);
    let action = match action {
        Action::UnbindPort(_) if model.bug == Some(Bug::SlotFirst) && ends.at_box.is_some() => {
            Action::UnbindSlot
        }
        action => action,
    };
    let step = match action {
        Action::Wait => return None,
        Action::Fail(why) => {
            let after = asked.with(|txn| progress::failed(txn, binding.id, why)).0;
            state.leaders[index].as_mut()?.record(after.clone());
            return (after != asked).then_some(());
        }
        Action::SkipPort => {
            let mut after = asked.with(|txn| progress::withdrawn(txn, &binding, "skipped")).0;
            after.skipped = true;
            state.leaders[index].as_mut()?.record(after);
            return Some(());
        }
        Action::BindSlot => Step::TellHost,
        Action::BindPort => Step::TellBox,
        Action::UnbindPort(_) => Step::UnbindPort,
        Action::UnbindSlot => Step::UnbindSlot,
    };
    let ends = (ends.at_box.unwrap_or(0), ends.at_host.unwrap_or(0));
    state.leaders[index].as_mut()?.driver = Some(Driver { asked, step, ends });
    ask(state, index);
    Some(())
}

fn saw(model: &Protocol, binding: &BindingRecord, ends: Ends, action: Action) {
    let end = |had: Option<u32>, has: Option<u32>| match (had, has) {
        (_, None) => EndsSeen::Away,
        (Some(had), Some(has)) if had != has => EndsSeen::Later,
        _ => EndsSeen::Same,
    };
    let at_box = end(binding.box_incarnation, ends.at_box);
    let at_host = end(binding.host_incarnation, ends.at_host);
    let key = (phase_number(binding.phase), desired_number(binding.desired), at_box, at_host);
    model.seen.lock().expect("no one panics while holding it").actions.insert(key, action);
}

/// Sends the request of the step that a manager's driver is at.
fn ask(state: &mut State, index: usize) {
    let leader = state.leaders[index].as_ref().expect("it runs");
    let driver = leader.driver.as_ref().expect("it has a step");
    let binding = driver.asked.binding().expect("it had one");
    let host = driver.asked.host().expect("it had one");
    let (epoch, life) = (binding.port_epoch(), driver.asked.life);
    let (proxy, body) = match driver.step {
        Step::TellHost => (host + 1, Body::SetPeer { peer: 0, incarnation: driver.ends.0 }),
        Step::TellBox => (0, Body::SetPeer { peer: host + 1, incarnation: driver.ends.1 }),
        Step::BindSlot => (0, Body::BindSlot { host, incarnation: driver.ends.1, epoch, life }),
        Step::BindPort => (host + 1, Body::BindPort { incarnation: driver.ends.0, epoch, life }),
        Step::UnbindPort => (host + 1, Body::UnbindPort { epoch }),
        Step::UnbindSlot => (0, Body::UnbindSlot { epoch, host_asked: !driver.asked.skipped }),
    };
    let term = leader.records.term();
    let sent = state.connections[proxy].as_mut().filter(|c| c.open && c.leader == index);
    match sent {
        Some(connection) => connection.requests.push(Request { way: Way::Driver, term, body }),
        // The session is closed by now.
        None => state.leaders[index].as_mut().expect("it runs").driver = None,
    }
}

/// Goes on with comparing a proxy's tables.
pub(crate) fn compare(state: &mut State, proxy: usize) -> Option<()> {
    let connection = state.connections[proxy].as_ref().filter(|c| c.open)?;
    let index = connection.leader;
    let records = state.leader(index)?.records.clone();
    let term = records.term();
    let (body, sync) = match connection.sync {
        Sync::Idle if connection.sync_wanted => (Body::Read, Sync::Reading(records)),
        Sync::HostFirst(epoch, host) => {
            let there = state.open(host + 1, index);
            if there.is_some_and(|c| c.sync_wanted || c.sync != Sync::Idle) {
                return None;
            }
            (Body::UnbindSlot { epoch, host_asked: there.is_some() }, Sync::Removing)
        }
        _ => return None,
    };
    let connection = state.connections[proxy].as_mut()?;
    if matches!(sync, Sync::Reading(_)) {
        connection.sync_wanted = false;
    }
    connection.sync = sync;
    connection.requests.push(Request { way: Way::Sync, term, body });
    Some(())
}

/// Takes in what a proxy says next.
pub(crate) fn hear(state: &mut State, proxy: usize, model: &Protocol) -> Option<()> {
    let connection = state.connections[proxy].as_mut().filter(|c| c.open)?;
    if connection.answers.is_empty() {
        return None;
    }
    let answer = connection.answers.remove(0);
    let (index, incarnation) = (connection.leader, connection.incarnation);
    match answer {
        Answer::Refused(_, Refusal::StaleTerm(term)) => {
            let leader = state.leaders[index].as_mut()?;
            leader.record(leader.records.with(|txn| txn.learn_term(term)).0);
            state.close(proxy);
        }
        Answer::Box(the_box) => {
            let Sync::Reading(before) = connection.sync.clone() else { return Some(()) };
            let leader = state.leaders[index].as_mut()?;
            let (inventory, table) = (the_box.inventory(), the_box.table());
            let (records, diff) = leader.records.with(|txn| {
                let before = &before.tables;
                compare::box_tables(txn, before, &box_name(), incarnation, &inventory, &table, &[])
            });
            leader.record(records);
            let stray = diff.stray.first().map(|stray| stray.key.epoch);
            let host = the_box.bound.map(|entry| entry.host);
            match stray.zip(host) {
                Some((epoch, host)) => {
                    let connection = state.connections[proxy].as_mut()?;
                    connection.sync = Sync::HostFirst(epoch, host);
                    want_sync(state, host + 1, index);
                }
                None => synced(state, proxy, false),
            }
        }
        Answer::Host(there) => {
            let Sync::Reading(before) = connection.sync.clone() else { return Some(()) };
            let leader = state.leaders[index].as_mut()?;
            let name = host_name(proxy - 1);
            let (records, diff) = leader.records.with(|txn| {
                compare::host_table(txn, &before.tables, &name, incarnation, &there.table())
            });
            leader.record(records);
            match diff.stray.first().map(|stray| stray.epoch) {
                Some(epoch) => {
                    let term = leader.records.term();
                    let connection = state.connections[proxy].as_mut()?;
                    connection.sync = Sync::Removing;
                    let body = Body::UnbindPort { epoch };
                    connection.requests.push(Request { way: Way::Sync, term, body });
                }
                None => synced(state, proxy, false),
            }
        }
        Answer::Done(Way::Sync) => synced(state, proxy, true),
        Answer::Refused(Way::Sync, _) => synced(state, proxy, false),
        Answer::LinkDown(epoch) => link_down(state, proxy, index, epoch),
        Answer::Configured => {
            let leader = state.leaders[index].as_mut()?;
            let host = host_name(proxy - 1);
            let records = leader
                .records
                .with(|txn| {
                    let binding = txn.binding_at_port(&host, crate::records::port()).map(|b| b.id);
                    if let Some(id) = binding {
                        progress::configured(txn, id, incarnation);
                    }
                })
                .0;
            leader.record(records);
        }
        Answer::Done(Way::Driver) => done(state, index, model),
        Answer::Refused(Way::Driver, refusal) => refused(state, index, proxy, refusal),
    }
    Some(())
}

fn want_sync(state: &mut State, proxy: usize, index: usize) {
    if let Some(connection) = &mut state.connections[proxy]
        && connection.open
        && connection.leader == index
    {
        connection.sync_wanted = true;
    }
}

/// The comparison is over; what was taken out is looked at again.
fn synced(state: &mut State, proxy: usize, again: bool) {
    if let Some(connection) = &mut state.connections[proxy] {
        connection.sync = Sync::Idle;
        connection.ready = true;
        connection.sync_wanted |= again;
    }
}

/// What was bound over a link that is down, under this epoch, has failed, and both ends are looked at.
fn link_down(state: &mut State, proxy: usize, index: usize, epoch: Epoch) {
    let Some(leader) = &mut state.leaders[index] else { return };
    let host = leader.records.host();
    if let Some(host) = host.filter(|host| proxy == 0 || *host + 1 == proxy) {
        let records = leader
            .records
            .with(|txn| {
                let its = |b: &&BindingRecord| b.port_epoch() == epoch;
                let failed = txn.bindings().values().find(its).map(|b| b.id);
                if let Some(id) = failed {
                    progress::failed(txn, id, "the link went down");
                }
            })
            .0;
        leader.record(records);
        want_sync(state, host + 1, index);
    }
    want_sync(state, 0, index);
    want_sync(state, proxy, index);
}

/// A step's request is done.
fn done(state: &mut State, index: usize, model: &Protocol) {
    let Some(leader) = &mut state.leaders[index] else { return };
    let Some(driver) = leader.driver.take() else { return };
    let Some(binding) = driver.asked.binding().cloned() else { return };
    let next = match driver.step {
        Step::TellHost => Some(Step::BindSlot),
        Step::TellBox => Some(Step::BindPort),
        _ => None,
    };
    if let Some(step) = next {
        leader.driver = Some(Driver { step, ..driver });
        return ask(state, index);
    }
    let slot_first = model.bug == Some(Bug::SlotFirst);
    let (at_box, at_host) = driver.ends;
    let skipped = leader.records.skipped;
    let mut records = leader
        .records
        .with(|txn| match driver.step {
            Step::BindSlot => progress::slot_bound(txn, &binding, at_box, PathSet::FIRST, 1),
            Step::BindPort => progress::port_bound(txn, &binding, at_host),
            Step::UnbindPort => progress::withdrawn(txn, &binding, "taken out"),
            // With the planted mistake the host comes last, or not at all.
            Step::UnbindSlot if slot_first && binding.phase != Phase::Withdrawn => {
                progress::withdrawn(txn, &binding, "the slot first");
            }
            _ => progress::freed(txn, &[], &binding, &[(SlotFunction::ZERO, DeviceState::Free)]),
        })
        .0;
    records.skipped = skipped && records.binding().is_some();
    // The next step does not wait until these are durable.
    let goes_on = matches!(driver.step, Step::BindSlot | Step::UnbindPort);
    if goes_on && state.left.crashes > 0 {
        leader.records = records;
    } else {
        leader.record(records);
    }
}

/// A step's request is refused.
fn refused(state: &mut State, index: usize, proxy: usize, refusal: Refusal) {
    let Some(leader) = &mut state.leaders[index] else { return };
    let Some(driver) = leader.driver.take() else { return };
    let Some(binding) = driver.asked.binding().cloned() else { return };
    match refusal {
        Refusal::StaleEpoch(highest) => {
            let from = if proxy == 0 { Role::Box } else { Role::Host };
            let records = leader
                .records
                .with(|txn| {
                    txn.learn_epoch(&function(), highest);
                    progress::outdated(txn, &binding, from, highest);
                })
                .0;
            leader.record(records);
        }
        Refusal::InUse(epoch) if epoch == binding.port_epoch() => {
            let records =
                leader.records.with(|txn| progress::failed(txn, binding.id, "it is dead")).0;
            leader.record(records);
        }
        Refusal::InUse(_) => want_sync(state, proxy, index),
        Refusal::StaleTerm(_) => unreachable!("it ends the connection"),
    }
}
