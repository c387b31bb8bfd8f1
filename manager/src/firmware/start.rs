//! Which cards a rollout is for, and what stands in its way.

use super::card::version;
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{
    CardState, EventKind, EventRecord, ImageId, ImageLabel, NodeName, Problem, ProblemCode, Role,
    RolloutCard, RolloutId, RolloutKind, RolloutRecord, RolloutState,
};
use proxy_core::control::{
    ControlError, FirmwareError, FirmwareRequest, FirmwareSlot, FirmwareState, FirmwareStatus,
    Reply, Request,
};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Most cards that may be updated at a time.
pub const MAX_WAVE: u32 = 1000;

/// Longest time that a card may be given, seconds.
pub const MAX_WITHIN_S: u32 = 24 * 3600;

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The image; none: back to the one before.
    pub image: Option<ImageId>,
    /// The cards; none: all that are connected and that the image is for.
    pub nodes: Option<Vec<NodeName>>,
    /// Cards at a time, 1 to [`MAX_WAVE`].
    pub wave_size: u32,
    /// Whether cards with bindings are restarted, too.
    pub interrupt: bool,
    /// Seconds for a card, 1 to [`MAX_WITHIN_S`].
    pub within_s: u32,
}

/// What uses a card, for a person: the first of its bindings.
pub(super) fn uses(tables: &Tables, node: &NodeName) -> Option<String> {
    let binding = tables.bindings_at(node).next()?;
    Some(format!("{} is lent to {}", binding.slot, binding.owner()))
}

/// A connected card and what is in its slots.
pub type CardStatus = (Arc<Session>, FirmwareStatus);

/// What is in a proxy's slots; none where it has no firmware in slots.
///
/// # Errors
///
/// When it does not answer.
pub async fn status(
    manager: &Manager,
    session: &Session,
) -> Result<Option<FirmwareStatus>, RequestError> {
    let ask = Request::Firmware(FirmwareRequest::Status);
    match session.request(ask, manager.settings.request_bound).await {
        Ok(reply) => match *reply {
            Reply::Firmware(status) => Ok(Some(status)),
            _ => Err(session.nonsense()),
        },
        Err(RequestError::Refused(ControlError::NoFirmware)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connected card, and what is in its slots or why it does not say.
pub type AskedCard = (Arc<Session>, Result<FirmwareStatus, FirmwareError>);

/// All cards that are connected, by name. Proxies that do not answer are left out: they are not
/// connected any more.
pub async fn cards(manager: &Arc<Manager>) -> Vec<AskedCard> {
    let mut asked = JoinSet::new();
    for session in manager.registry.all().into_iter().filter(|session| session.is_ready()) {
        let manager = manager.clone();
        asked.spawn(async move {
            match status(&manager, &session).await {
                Ok(status) => status.map(|status| (session, Ok(status))),
                Err(RequestError::Refused(ControlError::Firmware(error))) => {
                    Some((session, Err(error)))
                }
                Err(_) => None,
            }
        });
    }
    let mut cards = Vec::new();
    while let Some(card) = asked.join_next().await {
        cards.extend(card.expect("it does not panic"));
    }
    cards.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    cards
}

/// Begins a rollout, if what `as_seen` looks at inside the change is as it should be.
///
/// # Errors
///
/// What `as_seen` says.
/// When another one runs, there is no such image, or it is not for one of the cards; when one of
/// them is away, is no card, has nothing to go back to, or is in use and not to be interrupted.
pub async fn start(
    manager: &Arc<Manager>,
    wish: Wish,
    as_seen: impl FnOnce(&Tables) -> Result<(), Problem>,
) -> Result<RolloutRecord, Problem> {
    let tables = manager.records.snapshot();
    let image = wish.image.map(|id| label(&tables, id)).transpose()?;
    let chosen = choose(manager, &tables, image.as_ref(), wish.nodes.as_deref()).await?;
    let begun = manager.records.change(|txn| {
        as_seen(txn)?;
        begin(txn, &wish, image, &chosen)
    });
    begun.await
}

/// Whether an image is for all of these cards or, where none is named, for one of those that are there.
///
/// # Errors
///
/// As [`start`] has them for it, before anything of the image is kept.
pub async fn takes(
    manager: &Arc<Manager>,
    image: &ImageLabel,
    nodes: Option<&[NodeName]>,
) -> Result<(), Problem> {
    choose(manager, &manager.records.snapshot(), Some(image), nodes).await.map(drop)
}

/// The cards that are meant, and what is in their slots. Without an image they go back.
async fn choose(
    manager: &Arc<Manager>,
    tables: &Tables,
    image: Option<&ImageLabel>,
    nodes: Option<&[NodeName]>,
) -> Result<Vec<CardStatus>, Problem> {
    let cards = match nodes {
        Some(nodes) => named(manager, nodes).await?,
        None => {
            let role = image.and_then(|image| image.role);
            let is_meant =
                |(session, _): &AskedCard| role.is_none_or(|r| r == session.identity().role);
            cards(manager).await.into_iter().filter(is_meant).map(said).collect::<Result<_, _>>()?
        }
    };
    let mut chosen = Vec::new();
    for (session, status) in cards {
        let wrong = match image {
            Some(image) => fits(image, &session, &status),
            None => goes_back(tables, &session, &status),
        };
        match (wrong, nodes) {
            (Ok(()), _) => chosen.push((session, status)),
            (Err(problem), Some(_)) => return Err(problem),
            // Of all, it is for those that it fits.
            (Err(_), None) => {}
        }
    }
    if chosen.is_empty() {
        let detail = "no card is connected that the image is for; `firmware list` shows the cards";
        return Err(Problem::new(ProblemCode::NothingFits, detail));
    }
    Ok(chosen)
}

fn label(tables: &Tables, id: ImageId) -> Result<ImageLabel, Problem> {
    let image = tables.images().get(&id).map(|image| image.label.clone());
    image.ok_or_else(|| {
        let detail = format!("there is no image {id}; send it first, or look at `firmware list`");
        Problem::new(ProblemCode::NoSuchImage, detail)
    })
}

/// A card of which it is known what is in its slots. To leave one out that does not say would be to call a
/// rollout done that is not.
fn said((session, status): AskedCard) -> Result<CardStatus, Problem> {
    match status {
        Ok(status) => Ok((session, status)),
        Err(error) => {
            let detail = format!(
                "{} does not say what is in its slots ({error}): its flash may be broken; to update the \
                 others name them with --node",
                session.name()
            );
            Err(Problem::new(ProblemCode::ProxyRefused, detail))
        }
    }
}

async fn named(manager: &Arc<Manager>, nodes: &[NodeName]) -> Result<Vec<CardStatus>, Problem> {
    let mut cards: Vec<CardStatus> = Vec::new();
    for node in nodes {
        if !manager.records.snapshot().nodes().contains_key(node) {
            let detail = format!("there is no proxy with the name {node}, or it was forgotten");
            return Err(Problem::new(ProblemCode::NoSuchNode, detail));
        }
        if cards.iter().any(|(card, _)| card.name() == node) {
            return Err(Problem::invalid("nodes", format!("{node} is there twice")));
        }
        let session = manager.registry.ready(node).ok_or_else(|| {
            Problem::new(ProblemCode::NotConnected, format!("{node} is not connected"))
        })?;
        let asked = status(manager, &session).await.map_err(|error| error.problem(node))?;
        let status = asked.ok_or_else(|| {
            let detail = format!(
                "{node} is no card with firmware in slots; a proxy that is a program is updated by its \
                 package, on its machine"
            );
            Problem::new(ProblemCode::NotACard, detail)
        })?;
        cards.push((session, status));
    }
    Ok(cards)
}

/// Whether an image is for a card, as far as its label says.
fn fits(image: &ImageLabel, session: &Session, status: &FirmwareStatus) -> Result<(), Problem> {
    let name = session.name();
    let role = session.identity().role;
    let wrong = |why: String| Err(Problem::new(ProblemCode::WrongImage, why));
    if image.board != status.board.as_str() {
        let (is_for, has) = (&image.board, &status.board);
        return wrong(format!("the image is for the board {is_for}, and {name} is a {has}"));
    }
    if image.role.is_some_and(|is_for| is_for != role) {
        let is_for = if role == Role::Box { Role::Host } else { Role::Box };
        return wrong(format!("the image is for a {is_for}, and {name} is a {role}"));
    }
    if image.bytes > u64::from(status.room) {
        let (bytes, room) = (image.bytes, status.room);
        return wrong(format!("the image has {bytes} bytes, and a slot of {name} only {room}"));
    }
    if image.security < status.lowest_security {
        let (has, lowest) = (image.security, status.lowest_security);
        return wrong(format!(
            "the image has security version {has}, and {name} runs none below {lowest}; take a newer \
             one, or have the card start older ones with `dxpu-flash config set downgrade=allow`"
        ));
    }
    Ok(())
}

/// Whether a card has an image to go back to that it would start, as far as is known here: the security
/// version of one that the manager does not have is the card's to say.
fn goes_back(tables: &Tables, session: &Session, status: &FirmwareStatus) -> Result<(), Problem> {
    let name = session.name();
    let none = |why: String| Err(Problem::new(ProblemCode::NoWayBack, why));
    let other = &status.slots[usize::from(status.running == FirmwareSlot::A)];
    let has = version(other).unwrap_or_else(|| "an image without a header".to_owned());
    let why = match other.state {
        FirmwareState::Healthy => None,
        FirmwareState::Empty => Some("is empty".to_owned()),
        FirmwareState::Writing { .. } => Some("has only a part of an image".to_owned()),
        FirmwareState::Staged => Some(format!("has {has}, which was never started")),
        FirmwareState::Trying { .. } => Some(format!("has {has}, which has not joined yet")),
        FirmwareState::Failed => Some(format!("has {has}, which failed when it was started")),
    };
    if let Some(why) = why {
        return none(format!(
            "{name} has no image to go back to: its other slot {why}; push the image that it should run"
        ));
    }
    let security =
        tables.images().get(&ImageId::from(other.image)).map(|image| image.label.security);
    match security {
        Some(security) if security < status.lowest_security => none(format!(
            "{name} would go back to {has}, which has security version {security}, and runs none below \
             {}; push a newer one, or have the card start older ones with `dxpu-flash config set \
             downgrade=allow`",
            status.lowest_security
        )),
        _ => Ok(()),
    }
}

fn begin(
    txn: &mut crate::records::Txn,
    wish: &Wish,
    image: Option<ImageLabel>,
    cards: &[CardStatus],
) -> Result<RolloutRecord, Problem> {
    let last = txn.rollout().cloned();
    if let Some(RolloutRecord { id, state: RolloutState::Running, .. }) = last.as_deref() {
        let detail = format!("{id} still runs: `firmware status --watch` shows how far it is");
        return Err(Problem::new(ProblemCode::RolloutRuns, detail));
    }
    if let Some(image) = &image {
        // It may have made way for others meanwhile.
        label(txn, image.id)?;
    }
    // A card that runs the image already is not restarted.
    let stays = |status: &FirmwareStatus| {
        let running = status.running();
        let runs = image.as_ref().is_some_and(|image| running.image == image.id.into());
        runs && running.state == FirmwareState::Healthy
    };
    let restarted = cards.iter().filter(|(_, status)| !stays(status));
    let reasons: Vec<String> =
        restarted.filter_map(|(session, _)| uses(txn, session.name())).collect();
    if !wish.interrupt && !reasons.is_empty() {
        let detail = "a restart would interrupt what is lent; release it, or say --interrupt";
        return Err(Problem::new(ProblemCode::CardInUse, detail).because(reasons));
    }
    let card = |(session, status): &CardStatus| RolloutCard {
        node: session.name().clone(),
        state: CardState::Waiting,
        wave: None,
        before: version(status.running()),
        before_image: Some(status.running().image.into()),
        runs: None,
    };
    let record = RolloutRecord {
        id: RolloutId(last.as_ref().map_or(1, |last| last.id.0 + 1)),
        what: image.map_or(RolloutKind::RollBack, |image| RolloutKind::Push { image }),
        state: RolloutState::Running,
        wave_size: wish.wave_size,
        interrupt: wish.interrupt,
        within_s: wish.within_s,
        cards: cards.iter().map(card).collect(),
        started: txn.now(),
        ended: None,
        former: last.map(|last| Box::new(RolloutRecord { former: None, ..(*last).clone() })),
    };
    let what = match &record.what {
        RolloutKind::Push { image } => format!("{} goes to", image.version),
        RolloutKind::RollBack => "back to the image before:".to_owned(),
    };
    let count = record.cards.len();
    let cards =
        if count == 1 { record.cards[0].node.to_string() } else { format!("{count} cards") };
    let detail = format!("{}: {what} {cards}", record.id);
    txn.event(EventRecord::new(EventKind::FirmwareRolloutStarted, detail));
    txn.put_rollout(record.clone());
    Ok(record)
}
