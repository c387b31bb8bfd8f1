//! What one card needs until it runs what it should, from wherever it stands.

use super::start::uses;
use super::turns::{Blocked, Turn, other_end};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{
    CardState, EventKind, EventRecord, ImageId, ImageRecord, NodeName, RolloutCard, RolloutKind,
    RolloutRecord,
};
use proxy_core::control::{
    ControlError, FIRMWARE_HEADER, FIRMWARE_PIECE, FirmwareError, FirmwareRequest, FirmwareState,
    FirmwareStatus, Reply, Request, SlotFirmware,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks whether a card is back.
const TICK: Duration = Duration::from_millis(100);

/// Times that a card's flash may fail before the card is given up.
const FLASH_TRIES: u32 = 3;

/// What stops a card's turn.
enum Stop {
    /// It does not do it: for a person.
    Failed(String),
    /// Its connection went: it is asked again when it is back.
    Away,
    /// Its flash failed, and may not the next time.
    Flash,
    /// The other end of a binding restarts just now, or the restart cannot be recorded: why, for a
    /// person. It has all of its time when that is over.
    NotYet(String),
    /// The other end of a binding is away: why, for a person. It may never come.
    OtherAway(String),
}

impl From<Blocked> for Stop {
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::Restarts(why) => Self::NotYet(why),
            Blocked::Away(why) => Self::OtherAway(why),
        }
    }
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(ControlError::Firmware(FirmwareError::Flash)) => Self::Flash,
            // It had forgotten what was begun: it restarted meanwhile.
            RequestError::Refused(ControlError::Firmware(FirmwareError::NothingBegun)) => {
                Self::Away
            }
            RequestError::Refused(error) => Self::Failed(format!("it refused: {error}")),
            RequestError::Closed | RequestError::TimedOut(_) | RequestError::Nonsense => Self::Away,
        }
    }
}

/// Goes on with a card until it has ended, and records each step.
pub(super) async fn bring(manager: Arc<Manager>, node: NodeName) {
    let mut flash_failed = 0;
    let own_turn = Turn::of(&manager, &node);
    // From when on it counts how long the card has for its next thing. A manager that restarts
    // gives it its whole time.
    let mut since = Instant::now();
    // The same for those that it waits for.
    let mut others_since = None;
    let mut furthest = None;
    let mut leaving = None;
    while !manager.is_stopping() {
        let Some(rollout) = manager.records.snapshot().rollout().cloned() else { return };
        let Some(card) = rollout.card(&node) else { return };
        let turn = async {
            match card.state {
                CardState::Writing => write(&manager, &rollout, &own_turn, &node, since).await,
                CardState::Restarting { incarnation, left } => {
                    let life = (incarnation, left);
                    restart(&manager, &rollout, &own_turn, &mut leaving, &node, life, since).await
                }
                _ => Ok(None),
            }
        };
        let turn = turn.await;
        let waits = match &turn {
            Err(Stop::NotYet(why) | Stop::OtherAway(why)) => Some(why.clone()),
            _ => None,
        };
        manager.transfers.waits(&node, waits);
        let next = match turn {
            Ok(None) => return,
            Ok(Some(next)) => Ok(next),
            Err(Stop::Failed(reason)) => Err(reason),
            Err(Stop::NotYet(_)) => {
                // It has all of its time when its turn comes, which it does: the other comes to an end.
                tokio::time::sleep(TICK).await;
                (since, others_since) = (Instant::now(), None);
                continue;
            }
            Err(Stop::OtherAway(why)) => {
                let begun = *others_since.get_or_insert_with(Instant::now);
                if begun.elapsed() <= within(&rollout) {
                    tokio::time::sleep(TICK).await;
                    // What the other takes is none of its own time.
                    since = Instant::now();
                    continue;
                }
                Err(other_stays_away(&manager, &rollout, &node, &why))
            }
            Err(Stop::Flash) => {
                flash_failed += 1;
                if flash_failed < FLASH_TRIES {
                    continue;
                }
                Err("its flash failed".to_owned())
            }
            Err(Stop::Away) => {
                // A card that restarts while it is written is at another place each time, and gets on
                // only when it is beyond where it was before.
                let written = manager.transfers.written(&node);
                if written > furthest {
                    (furthest, since) = (written, Instant::now());
                }
                if since.elapsed() <= within(&rollout) + Duration::from_secs(1) {
                    tokio::time::sleep(TICK).await;
                    continue;
                }
                Err(format!("it did not get on within {} s", rollout.within_s))
            }
        };
        manager.transfers.set(&node, None);
        manager.transfers.waits(&node, None);
        let next = next.unwrap_or_else(|reason| Next {
            state: CardState::Failed { reason },
            before: None,
            before_image: None,
            runs: None,
        });
        record(&manager, &node, next).await;
        (since, others_since) = (Instant::now(), None);
        leaving = None;
    }
}

/// Where a card stands next.
struct Next {
    state: CardState,
    /// What ran before.
    before: Option<String>,
    /// Its image, where the card goes back.
    before_image: Option<ImageId>,
    /// What runs now.
    runs: Option<String>,
}

async fn record(manager: &Manager, node: &NodeName, next: Next) {
    let changed = manager.records.apply(|txn| {
        let Some(mut rollout) = txn.rollout().map(|rollout| RolloutRecord::clone(rollout)) else {
            return;
        };
        let id = rollout.id;
        let Some(card) = rollout.cards.iter_mut().find(|card| card.node == *node) else { return };
        let runs = next.runs.clone().unwrap_or_default();
        let event = match &next.state {
            CardState::Updated => {
                Some((EventKind::FirmwareUpdated, format!("{node} runs {runs} ({id})")))
            }
            CardState::Failed { reason } => {
                Some((EventKind::FirmwareFailed, format!("{node}: {reason} ({id})")))
            }
            _ => None,
        };
        card.state = next.state;
        card.before = next.before.or_else(|| card.before.take());
        card.before_image = next.before_image.or(card.before_image);
        card.runs = next.runs;
        txn.put_rollout(rollout);
        if let Some((kind, detail)) = event {
            txn.event(EventRecord::new(kind, detail).node(node));
        }
    });
    if let Err(problem) = changed.await {
        tracing::error!("where {node} stands cannot be recorded: {problem}");
        tokio::time::sleep(manager.settings.reconcile_interval).await;
    }
}

/// The card's session, when it is there.
async fn session(
    manager: &Manager,
    rollout: &RolloutRecord,
    node: &NodeName,
    since: Instant,
) -> Result<Arc<Session>, Stop> {
    match manager.registry.ready(node) {
        Some(session) => Ok(session),
        None if since.elapsed() > within(rollout) => {
            let seconds = rollout.within_s;
            Err(Stop::Failed(format!("it was not connected within {seconds} s")))
        }
        None => Err(Stop::Away),
    }
}

fn within(rollout: &RolloutRecord) -> Duration {
    Duration::from_secs(rollout.within_s.into())
}

async fn ask(manager: &Manager, card: &Session, what: FirmwareRequest) -> Result<Box<Reply>, Stop> {
    Ok(card.request(Request::Firmware(what), manager.settings.request_bound).await?)
}

/// As [`ask`], for what is answered by [`Reply::Done`].
async fn done(manager: &Manager, card: &Session, what: FirmwareRequest) -> Result<(), Stop> {
    match *ask(manager, card, what).await? {
        Reply::Done => Ok(()),
        _ => Err(card.nonsense().into()),
    }
}

async fn status(manager: &Manager, card: &Session) -> Result<FirmwareStatus, Stop> {
    match *ask(manager, card, FirmwareRequest::Status).await? {
        Reply::Firmware(status) => Ok(status),
        _ => Err(card.nonsense().into()),
    }
}

/// The version in a slot, for people.
pub(super) fn version(slot: &SlotFirmware) -> Option<String> {
    slot.version.map(|version| version.to_string())
}

/// Has the card written, or told to go back, and then restarted.
async fn write(
    manager: &Manager,
    rollout: &RolloutRecord,
    own_turn: &Turn<'_>,
    node: &NodeName,
    since: Instant,
) -> Result<Option<Next>, Stop> {
    let card = session(manager, rollout, node, since).await?;
    let status = status(manager, &card).await?;
    let running = *status.running();
    let runs = version(&running);
    let recorded = rollout.card(node);
    if rollout.what == RolloutKind::RollBack && recorded.is_some_and(begins) {
        let (state, before_image) = (CardState::Writing, Some(running.image.into()));
        return Ok(Some(Next { state, before: runs, before_image, runs: None }));
    }
    let is_done = match &rollout.what {
        RolloutKind::Push { image } => running.image == image.id.into(),
        RolloutKind::RollBack => {
            recorded.is_some_and(|card| went_back(card, running.image.into(), runs.as_ref()))
        }
    };
    let before = recorded.and_then(|card| card.before.clone()).or_else(|| runs.clone());
    if is_done {
        if running.state != FirmwareState::Healthy {
            // It joined, and could not record so yet.
            return Err(Stop::Away);
        }
        if let RolloutKind::Push { image } = &rollout.what
            && status.wanted().image != image.id.into()
        {
            if status.wanted().state == FirmwareState::Healthy {
                // To take that back would be to lose it.
                let back = version(status.wanted()).unwrap_or_default();
                return Err(Stop::Failed(format!(
                    "it runs {}, and was told to go back to {back}, which it does at its next restart; \
                     give `firmware rollback` again, and then this one",
                    runs.unwrap_or_default()
                )));
            }
            // It got another one, and was not restarted: it would start that the next time. To begin to
            // write over that one takes it back; that is a record of the boot state.
            begin(manager, &card, &image_bytes(manager, image.id)?.bytes, image.id).await?;
            return Err(Stop::Away);
        }
        return Ok(Some(Next { state: CardState::Updated, before, before_image: None, runs }));
    }
    let tables = manager.records.snapshot();
    may_interrupt(&tables, rollout, node)?;
    // One that waits in vain has nothing in its slots that it would start some day.
    own_turn.others_are_there(&tables)?;
    match &rollout.what {
        RolloutKind::Push { image } => {
            let there = image_bytes(manager, image.id)?;
            transfer(manager, rollout, &card, &there.bytes, image.id).await?;
        }
        RolloutKind::RollBack => {
            done(manager, &card, FirmwareRequest::RollBack(running.image)).await?;
        }
    }
    let (incarnation, left) = (card.identity().incarnation, ImageId::from(running.image));
    let state = CardState::Restarting { incarnation, left };
    Ok(Some(Next { state, before, before_image: None, runs: None }))
}

/// Whether it is not recorded yet what a card goes back from.
fn begins(card: &RolloutCard) -> bool {
    card.before_image.is_none() && card.before.is_none()
}

/// Whether a card went back, and restarted before that was recorded here. To go back once more would
/// be forward.
fn went_back(card: &RolloutCard, running: ImageId, runs: Option<&String>) -> bool {
    match card.before_image {
        Some(before) => running != before,
        // An older manager began the rollout.
        None => card.before.is_some() && card.before.as_ref() != runs,
    }
}

/// An image, with its bytes.
fn image_bytes(manager: &Manager, id: ImageId) -> Result<Arc<ImageRecord>, Stop> {
    let there = manager.records.snapshot().images().get(&id).cloned();
    there.ok_or_else(|| Stop::Failed("the image is gone".into()))
}

/// Has the card begin an image in the slot that does not run.
async fn begin(
    manager: &Manager,
    card: &Session,
    image: &[u8],
    id: ImageId,
) -> Result<Box<Reply>, Stop> {
    let header = image.iter().copied().take(FIRMWARE_HEADER).collect();
    ask(manager, card, FirmwareRequest::Begin { image: id.into(), header }).await
}

/// Sends what the card does not have of an image, and has it checked there.
async fn transfer(
    manager: &Manager,
    rollout: &RolloutRecord,
    card: &Session,
    image: &[u8],
    id: ImageId,
) -> Result<(), Stop> {
    let mut reply = begin(manager, card, image, id).await?;
    // More answers than this, and the card is no further for what it gets.
    let answers = 2 * image.len() / FIRMWARE_PIECE + 16;
    for _ in 0..answers {
        let Reply::FirmwareNext(offset) = *reply else { return Err(card.nonsense().into()) };
        manager.transfers.set(card.name(), Some(offset));
        // Each piece may have it erase a block, and stand still for as long as that takes.
        may_interrupt(&manager.records.snapshot(), rollout, card.name())?;
        let Some(rest) = image.get(offset as usize..) else { return Err(card.nonsense().into()) };
        if rest.is_empty() {
            return done(manager, card, FirmwareRequest::Finish(id.into())).await;
        }
        let bytes = rest.iter().copied().take(FIRMWARE_PIECE).collect();
        reply = ask(manager, card, FirmwareRequest::Piece { offset, bytes }).await?;
    }
    Err(Stop::Failed("it takes bytes of the image and wants them again".into()))
}

/// A card that is about to restart, and gets nothing new until this is dropped.
struct Leaving(Arc<Session>);

impl Leaving {
    fn mark(card: Arc<Session>) -> Self {
        card.set_leaving(true);
        Self(card)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.set_leaving(false);
    }
}

/// Has the card start what it has got, and looks what it runs then. Told once, it is `leaving` until
/// it has another life: it says so and goes when it can.
async fn restart(
    manager: &Manager,
    rollout: &RolloutRecord,
    own_turn: &Turn<'_>,
    leaving: &mut Option<Leaving>,
    node: &NodeName,
    (incarnation, left): (u32, ImageId),
    since: Instant,
) -> Result<Option<Next>, Stop> {
    let over = since.elapsed() > within(rollout);
    let card = match manager.registry.ready(node) {
        Some(card) => card,
        None if over => {
            let seconds = rollout.within_s;
            let why = format!(
                "it was told to restart and has not joined again within {seconds} s; its boot \
                 loader goes back to the image before when it gives this one up"
            );
            return Err(Stop::Failed(why));
        }
        None => return Err(Stop::Away),
    };
    if card.identity().incarnation == incarnation {
        if over {
            return Err(Stop::Failed("it was told to restart and did not".into()));
        }
        // Bindings are made in changes of the records, so that in one there is no new one between the
        // look at those and the mark that keeps the card from more.
        let begun = manager.records.apply(|txn| {
            may_interrupt(txn, rollout, node)?;
            own_turn.take(txn)?;
            let is_marked = leaving.as_ref().is_some_and(|told| Arc::ptr_eq(&told.0, &card));
            Ok((!is_marked).then(|| Leaving::mark(card.clone())))
        });
        // A store that fails is told by who writes to it.
        let unrecorded = |_| Err(Stop::NotYet("the store cannot be written".to_owned()));
        let begun = begun.await.unwrap_or_else(unrecorded)?;
        let told = done(manager, &card, FirmwareRequest::Restart { incarnation }).await;
        // Who does not answer may have heard it all the same.
        if !matches!(told, Err(Stop::Failed(_) | Stop::Flash)) {
            *leaving = begun.or(leaving.take());
        }
        if told.is_ok() {
            // It has gone when it is looked for again, and that is soon enough to tell why it is away.
            let closed = Duration::from_secs(2).min(within(rollout) / 4);
            let _ = tokio::time::timeout(closed, card.closed()).await;
        }
        return Err(told.err().unwrap_or(Stop::Away));
    }
    *leaving = None;
    let status = status(manager, &card).await?;
    let running = *status.running();
    let runs = version(&running);
    let as_it_should = match &rollout.what {
        RolloutKind::Push { image } => running.image == image.id.into(),
        RolloutKind::RollBack => ImageId::from(running.image) != left,
    };
    if !as_it_should {
        return Err(Stop::Failed(instead(rollout, &status)));
    }
    if running.state != FirmwareState::Healthy {
        // It joined, and could not record so yet.
        return match over {
            true => Err(Stop::Failed("it runs, and cannot record that it is healthy".into())),
            false => Err(Stop::Away),
        };
    }
    Ok(Some(Next { state: CardState::Updated, before: None, before_image: None, runs }))
}

/// Why it runs what it should not.
fn instead(rollout: &RolloutRecord, status: &FirmwareStatus) -> String {
    let running = status.running();
    let runs = version(running).unwrap_or_else(|| "an image without a header".to_owned());
    let wanted = match &rollout.what {
        RolloutKind::Push { image } => image.version.clone(),
        RolloutKind::RollBack => return format!("it still runs {runs}"),
    };
    let other = status.slots.iter().find(|slot| slot.image != running.image);
    let why = match other.map(|slot| slot.state) {
        Some(FirmwareState::Failed) => {
            "its boot loader refused the new image, or gave it up because it never joined; the \
             card's console says which"
        }
        _ => "it did not start the new image",
    };
    format!("it runs {runs} and not {wanted}: {why}")
}

/// Why a card is given up whose binding's other end does not come, and what can be done.
fn other_stays_away(
    manager: &Manager,
    rollout: &RolloutRecord,
    node: &NodeName,
    why: &str,
) -> String {
    let tables = manager.records.snapshot();
    let away = |other: &&NodeName| manager.registry.ready(other).is_none();
    let other = tables.bindings_at(node).map(|b| other_end(b, node)).find(away);
    let gone = other.map_or_else(String::new, |other| {
        format!(", or `dxpu-manager forget {other} --force` if it does not come back")
    });
    format!(
        "{why}, for longer than {} s: both ends of a binding are never away at once. Give the command \
         again when it is there; else release what is lent{gone}",
        rollout.within_s
    )
}

/// Whether nothing on the card stands in the way of being written and restarted.
fn may_interrupt(tables: &Tables, rollout: &RolloutRecord, node: &NodeName) -> Result<(), Stop> {
    match uses(tables, node) {
        Some(use_) if !rollout.interrupt => {
            let again = "release it and give the command again, or give it with --interrupt";
            Err(Stop::Failed(format!("{use_} by now; {again}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
