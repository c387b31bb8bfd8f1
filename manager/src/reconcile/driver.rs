//! Does what [`super::action`] decides, for each binding by itself.
//!
//! A binding is looked at whenever its record changed or one of its proxies connected. One task at
//! a time works on a binding; it goes on until there is nothing to do or something has to change
//! first, and waits longer after each failure. A binding and its epochs are durable before a proxy is
//! asked for them; what a proxy did is found again by asking once more, so the next step does not wait
//! for that.

use super::action::{self, Action, Ends};
use super::steps::{
    Done, Failure, Introduced, bind_port, bind_slot, record, unbind_port, unbind_slot,
};
use crate::control::RequestError;
use crate::manager::Manager;
use crate::operations::{forget, progress};
use crate::records::Unwritten;
use crate::types::{BindingId, BindingRecord, Desired, Phase, Problem, ProblemCode};
use proxy_core::control::ControlError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The first wait after a failure; each further one is twice as long, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait after a failure.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A binding that stood for so long and then fails, or is made again, begins with the first wait again.
const STEADY: Duration = Duration::from_secs(30);
/// A host that has not said within this time that a device is in use may have said so before: it
/// says it once, and a binding can be written twice. Its table says it, too.
const UNTOLD: Duration = Duration::from_millis(500);

/// Works until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut working: HashMap<BindingId, Arc<Notify>> = HashMap::new();
    let mut tasks: JoinSet<BindingId> = JoinSet::new();
    loop {
        tokio::select! {
            // In this order, so that the same happens each time that the same has happened.
            biased;
            touched = manager.records.touched() => for id in touched {
                let signal = working.entry(id).or_insert_with(|| {
                    let signal = Arc::new(Notify::new());
                    tasks.spawn(work(manager.clone(), id, signal.clone()));
                    signal
                });
                signal.notify_one();
            },
            Some(ended) = tasks.join_next() => match ended {
                Ok(id) => drop(working.remove(&id)),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = manager.stopping() => return,
        }
    }
}

/// How long to wait: each time twice as long, until it has not happened for a while.
#[derive(Default)]
struct Waits {
    times: u32,
    last: Option<Instant>,
}

impl Waits {
    /// It has happened again. The first `free` times there is no wait.
    fn next(&mut self, now: Instant, free: u32) -> Duration {
        if self.last.is_none_or(|last| now - last > STEADY) {
            self.times = 0;
        }
        self.last = Some(now);
        self.times = self.times.saturating_add(1);
        let doubled =
            |times: u32| FIRST_WAIT.saturating_mul(1 << (times - 1).min(16)).min(MAX_WAIT);
        self.times.checked_sub(free).filter(|times| *times > 0).map_or(Duration::ZERO, doubled)
    }
}

/// Works on one binding until it is gone.
async fn work(manager: Arc<Manager>, id: BindingId, signal: Arc<Notify>) -> BindingId {
    let (mut failures, mut remakes) = (Waits::default(), Waits::default());
    let mut looked_at = None;
    let mut made = None;
    loop {
        let Some(binding) = manager.records.snapshot().bindings().get(&id).cloned() else {
            return id;
        };
        // One that comes and goes, whatever the reason, uses up an epoch each time.
        let is_anew = made.is_none_or(|made| made < binding.port_epoch());
        if binding.phase == Phase::Reserved
            && is_anew
            && made.replace(binding.port_epoch()).is_some()
        {
            let wait = remakes.next(Instant::now(), 1);
            sleep_unless_other(&manager, &binding, &signal, wait).await;
            continue;
        }
        match step(&manager, &binding).await {
            Step::Went => {}
            Step::Nothing
                if binding.phase == Phase::Bound && looked_at != Some(binding.port_epoch()) =>
            {
                if tokio::time::timeout(UNTOLD, signal.notified()).await.is_err() {
                    looked_at = Some(binding.port_epoch());
                    if let Some(at_host) = manager.registry.ready(&binding.host) {
                        at_host.sync.notify_one();
                    }
                }
            }
            Step::Nothing => signal.notified().await,
            Step::Failed => {
                let wait = failures.next(Instant::now(), 0);
                sleep_unless_other(&manager, &binding, &signal, wait).await;
            }
        }
    }
}

/// Sleeps, but not on when something else is wanted of the binding meanwhile.
async fn sleep_unless_other(
    manager: &Manager,
    binding: &BindingRecord,
    signal: &Notify,
    wait: Duration,
) {
    let other = async {
        loop {
            signal.notified().await;
            let tables = manager.records.snapshot();
            match tables.bindings().get(&binding.id) {
                Some(now) if now.desired == binding.desired => {}
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(wait, other).await;
}

enum Step {
    /// Something was done; look again.
    Went,
    /// Nothing to do until something changes.
    Nothing,
    /// It could not be done; try again later.
    Failed,
}

/// Does what is next, and what comes after it as far as that does not wait for the disk.
async fn step(manager: &Arc<Manager>, binding: &BindingRecord) -> Step {
    let (mut now, mut introduced) = (binding.clone(), None);
    let mut unwritten = None;
    let step = loop {
        match one_step(manager, &now, &mut introduced).await {
            Ok(Done::Nothing) if unwritten.is_some() => break Step::Went,
            Ok(Done::Nothing) => break Step::Nothing,
            Ok(Done::Recorded) => break Step::Went,
            Ok(Done::Not) => break Step::Failed,
            Ok(Done::GoesOn(next, made)) => {
                now = *next;
                if is_lost(unwritten.replace(made)).await {
                    break Step::Failed;
                }
            }
            Err(failure) => break answer(manager, &now, failure).await,
        }
    };
    if !is_lost(unwritten).await {
        return step;
    }
    // What the proxies have is further than the records.
    let ends = [binding.slot.box_name(), &binding.host];
    let ready = ends.into_iter().filter_map(|name| manager.registry.ready(name));
    ready.for_each(|session| session.sync.notify_one());
    Step::Failed
}

/// Whether what was made could not be written.
async fn is_lost(made: Option<Unwritten>) -> bool {
    match made {
        Some(made) => made.written().await.is_err(),
        None => false,
    }
}

async fn one_step(
    manager: &Arc<Manager>,
    binding: &BindingRecord,
    introduced: &mut Introduced,
) -> Result<Done, Failure> {
    let before = introduced.take();
    let at_box = manager.registry.ready(binding.slot.box_name());
    let at_host = manager.registry.ready(&binding.host);
    let ends = Ends {
        at_box: at_box.as_ref().map(|s| s.identity().incarnation),
        at_host: at_host.as_ref().map(|s| s.identity().incarnation),
    };
    let action = action::next(binding, ends);
    match (action, at_box, at_host) {
        (Action::Wait, ..) if forget::is_lost(&manager.records.snapshot(), binding) => {
            record(manager, |txn| forget::lost(txn, binding)).await
        }
        (Action::Wait, ..) => Ok(Done::Nothing),
        (Action::Fail(why), ..) => {
            record(manager, |txn| progress::failed(txn, binding.id, why)).await
        }
        (Action::SkipPort, ..) => {
            let how = "it is not connected; what it still has of it is taken out when it is back";
            let done = record(manager, |txn| progress::withdrawn(txn, binding, how)).await;
            // It may be back already, and its table have been read before.
            if let Some(session) = manager.registry.get(&binding.host) {
                session.sync.notify_one();
            }
            done
        }
        (Action::BindSlot, Some(at_box), Some(at_host)) => {
            let bound = bind_slot(manager, binding, &at_box, &at_host).await;
            *introduced = matches!(bound, Ok(Done::GoesOn(..))).then_some((at_box, at_host));
            bound
        }
        (Action::BindPort, Some(at_box), Some(at_host)) => {
            let known = before.is_some_and(|(one, other)| {
                Arc::ptr_eq(&one, &at_box) && Arc::ptr_eq(&other, &at_host)
            });
            bind_port(manager, binding, &at_box, at_host, known).await
        }
        (Action::UnbindPort(mode), _, Some(at_host)) => {
            unbind_port(manager, binding, at_host, mode).await
        }
        (Action::UnbindSlot, Some(at_box), _) => unbind_slot(manager, binding, at_box).await,
        (action, ..) => unreachable!("{action:?} needs a proxy that is not there"),
    }
}

/// What a refusal or failure means for the binding.
async fn answer(manager: &Manager, binding: &BindingRecord, failure: Failure) -> Step {
    let Failure { session, error } = failure;
    let name = session.name();
    let problem = error.problem(name);
    let RequestError::Refused(refusal) = &error else {
        // The connection is gone; the next one brings us back.
        let _ = record(manager, |txn| progress::trouble(txn, binding, &problem, false)).await;
        return Step::Nothing;
    };
    let lasting = match refusal {
        ControlError::StaleEpoch(highest) => {
            let from = session.identity().role;
            let _ = record(manager, |txn| progress::outdated(txn, binding, from, *highest)).await;
            return Step::Failed;
        }
        // It is there and cannot be used: a port whose link went down keeps its dead binding.
        ControlError::InUse(epoch) if binding.functions.iter().any(|f| f.epoch == *epoch) => {
            let why = format!("{name} has it, but dead");
            let _ = record(manager, |txn| progress::failed(txn, binding.id, &why)).await;
            return Step::Failed;
        }
        // Something that the records do not have is there: comparing the tables takes it out.
        ControlError::InUse(_) => {
            session.sync.notify_one();
            false
        }
        ControlError::NoSuchPort(_) if binding.desired != Desired::Bound => {
            let how = "the host has no such port any more";
            let _ = record(manager, |txn| progress::withdrawn(txn, binding, how)).await;
            return Step::Failed;
        }
        // Trying again introduces the peer again, which makes a link anew that went down.
        ControlError::UnknownPeer(_) | ControlError::LinkDown(_) => false,
        ControlError::Busy | ControlError::StaleTerm(_) => false,
        _ => true,
    };
    let problem = match refusal {
        ControlError::Quarantined(_) => Problem { code: ProblemCode::SlotQuarantined, ..problem },
        ControlError::SlotEmpty(_) => Problem { code: ProblemCode::SlotEmpty, ..problem },
        _ => problem,
    };
    let _ = record(manager, |txn| progress::trouble(txn, binding, &problem, lasting)).await;
    Step::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_and_again_waits_longer_each_time() {
        let (ms, mut now) = (Duration::from_millis, Instant::now());
        let (mut failures, mut remakes) = (Waits::default(), Waits::default());
        for wait in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(ms) {
            assert_eq!(failures.next(now, 0), wait);
            now += wait;
        }
        assert_eq!([0, 100, 200].map(ms), [0; 3].map(|_| remakes.next(now, 1)));
        now += STEADY + ms(1);
        assert_eq!((failures.next(now, 0), remakes.next(now, 1)), (ms(100), ms(0)));
        for _ in 0..100 {
            assert!(failures.next(now, 0) <= MAX_WAIT);
        }
    }
}
