//! Choosing slots for what is recorded. While the records stand still it is only chosen: an expression
//! is read and asked before, and why nothing fits is found out after, from the same records.

use super::replace::{self, Replace};
use super::request::{self, ClientKey, Terms};
use crate::manager::Manager;
use crate::planner::{self, Plan, PlanRequest, Prepared};
use crate::records::{Tables, Txn};
use crate::spares::SparesConfig;
use crate::types::{BindingId, OperationRecord, Problem, ProblemCode};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// How often a choice is made again because proxies came or went while it was explained why there
/// was none, or because what is wished depends on what has changed meanwhile.
const TRIES: usize = 3;

/// Chooses by a request, from the records as they are inside a change.
pub type Choice<'a> = dyn FnMut(&PlanRequest, &Tables) -> Result<Plan, Problem> + 'a;

/// Why there was no choice.
enum Missed {
    /// Something else is wished than what was worked out before.
    Otherwise,
    /// Nothing of this fits.
    Unfit(Box<Tables>),
}

/// Does what takes long where nobody else waits for it: on another thread, unless there is to be none.
///
/// # Errors
///
/// What `work` returns, or that the manager is stopping.
pub async fn aside<R: Send + 'static>(
    manager: &Manager,
    work: impl FnOnce() -> Result<R, Problem> + Send + 'static,
) -> Result<R, Problem> {
    if manager.records.has_one_thread() {
        return work();
    }
    joined(tokio::task::spawn_blocking(work)).await?
}

/// What comes of a task. If it panics, so does who waits for it.
///
/// # Errors
///
/// That the manager is stopping.
pub async fn joined<R>(task: JoinHandle<R>) -> Result<R, Problem> {
    task.await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Problem::new(ProblemCode::Stopping, "the manager is stopping"),
    })
}

/// Whether a problem says nothing of what was asked: the manager cannot do it now.
pub fn is_the_managers(problem: &Problem) -> bool {
    matches!(problem.code, ProblemCode::StoreFailed | ProblemCode::Stopping)
}

/// Lends.
///
/// # Errors
///
/// As [`request::allocate`]; spares that are kept are not taken.
pub async fn allocate(
    manager: &Arc<Manager>,
    request: &PlanRequest,
    terms: &Terms,
    key: Option<&ClientKey>,
) -> Result<OperationRecord, Problem> {
    let wished = |_: &Tables| Some(request.clone());
    record(manager, &manager.settings.spares, wished, |txn, choose| {
        let (live, terms) = (&manager.registry, terms.clone());
        let choose = |tables: &Tables| {
            planner::check_excluded(request, tables)?;
            choose(request, tables)
        };
        request::allocate_chosen(txn, live, request, choose, terms, key.cloned())
    })
    .await
}

/// Replaces. `check` is asked inside the change, before anything else.
///
/// # Errors
///
/// What `check` returns, or as [`replace::replace`].
pub async fn replace(
    manager: &Arc<Manager>,
    id: BindingId,
    how: &Replace,
    key: Option<&ClientKey>,
    check: impl Fn(&Txn) -> Result<(), Problem> + Send + Sync,
) -> Result<OperationRecord, Problem> {
    let wished =
        |tables: &Tables| tables.bindings().get(&id).map(|old| replace::wishes(tables, old, how));
    // A replacement is what spares are for.
    record(manager, &SparesConfig::default(), wished, |txn, choose| {
        check(txn)?;
        replace::replace(txn, id, how, choose, key.cloned())
    })
    .await
}

/// Records what needs a choice. `wished` is what is chosen by, as far as it is known before; `spares`
/// are not taken.
async fn record(
    manager: &Arc<Manager>,
    spares: &SparesConfig,
    wished: impl Fn(&Tables) -> Option<PlanRequest> + Send + Sync,
    change: impl Fn(&mut Txn, &mut Choice<'_>) -> Result<OperationRecord, Problem> + Send + Sync,
) -> Result<OperationRecord, Problem> {
    let mut tries = 0;
    loop {
        tries += 1;
        let prepared = match wished(&manager.records.snapshot()) {
            Some(request) => Some(prepare(manager, request, spares).await?),
            None => None,
        };
        let mut missed = None;
        let changed = manager.records.change(|txn| {
            change(txn, &mut |request, tables| {
                missed = Some(match prepared.as_ref().filter(|p| p.request() == request) {
                    None => Missed::Otherwise,
                    Some(prepared) => match planner::choose(prepared, tables, &manager.registry)? {
                        Some(plan) => return Ok(plan),
                        None => Missed::Unfit(Box::new(tables.clone())),
                    },
                });
                let detail = "the pool is changing; try again in a moment";
                Err(Problem::new(ProblemCode::NothingFits, detail).passing(true))
            })
        });
        let changed = changed.await;
        let (Some(missed), Err(unexplained)) = (missed, &changed) else { return changed };
        if unexplained.code != ProblemCode::NothingFits {
            return changed;
        }
        if let (Missed::Unfit(tables), Some(prepared)) = (missed, prepared) {
            let asked = manager.clone();
            aside(manager, move || planner::plan_prepared(&prepared, &tables, &asked.registry))
                .await?;
        }
        if tries == TRIES {
            return changed;
        }
    }
}

/// Reads the expression of a request, and asks it where it takes long.
async fn prepare(
    manager: &Arc<Manager>,
    request: PlanRequest,
    spares: &SparesConfig,
) -> Result<Prepared, Problem> {
    let mut prepared = Prepared::read(request)?.keeping(spares);
    if !prepared.asks_devices() {
        return Ok(prepared);
    }
    let asked = manager.clone();
    aside(manager, move || {
        prepared.ask_devices(&asked.records.snapshot(), &asked.registry);
        Ok(prepared)
    })
    .await
}
