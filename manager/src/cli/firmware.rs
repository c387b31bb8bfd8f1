//! `firmware`: what cards run, and how they get something else.

use super::args::{Care, Firmware, Push};
use super::progress::Progress;
use super::render::{or_dash, table};
use super::{Failure, Output};
use crate::types::{
    CardState, MAX_IMAGE, NodeName, RolloutCard, RolloutId, RolloutKind, RolloutState,
};
use manager_client::bodies::RolloutBody;
use manager_client::views::{CardView, FirmwareSlotView, ImageView, List, RolloutView};
use manager_client::{Client, ClientError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Where the latest rollout is.
const ROLLOUT: &str = "/v1/firmware/rollout";

/// How often it is asked for.
const TURN: Duration = Duration::from_millis(250);

/// Questions without an answer before a manager is taken for gone: one that restarts goes on.
const PATIENCE: u32 = 120;

/// Bytes of cards' names that go into an address.
const MAX_NAMES: usize = 8 << 10;

/// Does what was said.
pub(super) fn firmware(client: &Client, out: &Output, which: Firmware) -> Result<(), Failure> {
    match which {
        Firmware::List => list(client, out),
        Firmware::Push(push) => self::push(client, out, push),
        Firmware::Status { watch } => {
            let view: RolloutView = client.get(ROLLOUT)?;
            if watch { finish(client, out, view) } else { out.print(&view, render) }
        }
        Firmware::Rollback { node, care } => {
            let body = RolloutBody {
                image: None,
                nodes: Some(vec![node]),
                wave_size: None,
                interrupt: care.interrupt,
                within_s: Some(care.within_s),
            };
            begin(client, out, &body, &care)
        }
    }
}

/// What there is.
#[derive(Serialize)]
struct Listed {
    images: Vec<ImageView>,
    cards: Vec<CardView>,
}

fn list(client: &Client, out: &Output) -> Result<(), Failure> {
    let images = client.get::<List<ImageView>>("/v1/firmware/images")?.items;
    let cards = client.get::<List<CardView>>("/v1/firmware/cards")?.items;
    out.print(&Listed { images, cards }, |listed| {
        let images = table(
            ["IMAGE", "VERSION", "BOARD", "ROLE", "SECURITY", "KEY", "BYTES", "SINCE"],
            listed.images.iter().map(|image| {
                let label = &image.label;
                [
                    label.id.to_string(),
                    label.version.clone(),
                    label.board.clone(),
                    label.role.map_or_else(|| "any".to_owned(), |role| role.to_string()),
                    label.security.to_string(),
                    label.key.to_string(),
                    label.bytes.to_string(),
                    image.since.to_string(),
                ]
            }),
        );
        let cards = table(
            ["CARD", "ROLE", "BOARD", "RUNS", "SLOT A", "SLOT B"],
            listed.cards.iter().map(|card| {
                [
                    card.name.to_string(),
                    card.role.to_string(),
                    card.board.clone(),
                    or_dash(card.runs().and_then(|slot| slot.version.as_ref())),
                    card.problem.clone().unwrap_or_else(|| or_dash(card.slots.first().map(slot))),
                    or_dash(card.slots.get(1).map(slot)),
                ]
            }),
        );
        format!("{images}\n\n{cards}")
    })
}

fn slot(slot: &FirmwareSlotView) -> String {
    let state = serde_json::to_value(slot.state).expect("a state is JSON");
    let state = state.as_str().unwrap_or_default();
    match &slot.version {
        Some(version) => format!("{version} ({state})"),
        None => state.to_owned(),
    }
}

fn push(client: &Client, out: &Output, push: Push) -> Result<(), Failure> {
    let bytes = read(&push.image)?;
    let image: ImageView = client.post_bytes(&address(&push), &bytes)?;
    let body = RolloutBody {
        image: Some(image.label.id),
        nodes: (!push.all).then_some(push.nodes),
        wave_size: Some(push.wave_size),
        interrupt: push.care.interrupt,
        within_s: Some(push.care.within_s),
    };
    begin(client, out, &body, &push.care)
}

/// Where the image goes: with the cards that it is for, so that one that none of them takes has no place
/// in the store. Names that are too many for an address are looked at when the rollout begins.
fn address(push: &Push) -> String {
    let images = "/v1/firmware/images";
    let names: Vec<&str> = push.nodes.iter().map(NodeName::as_str).collect();
    match names.join(",") {
        _ if push.all => format!("{images}?cards=*"),
        names if names.len() <= MAX_NAMES => format!("{images}?cards={names}"),
        _ => images.to_owned(),
    }
}

/// Reads an image, and no more of a file than the longest one can have: a device has no end.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let named = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_IMAGE as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::Argument(format!("{named} cannot be read: {error}")))?;
    if bytes.len() > MAX_IMAGE {
        let why = "which is the most of an image; is it the file that is meant?";
        return Err(Failure::Argument(format!("{named} has more than {MAX_IMAGE} bytes, {why}")));
    }
    Ok(bytes)
}

fn begin(client: &Client, out: &Output, body: &RolloutBody, care: &Care) -> Result<(), Failure> {
    let view: RolloutView = client.post(ROLLOUT, body, None).map_err(|error| match error {
        ClientError::Unreachable { asked: true, .. } => Failure::RolloutUnanswered(error),
        error => error.into(),
    })?;
    if care.no_wait { out.print(&view, render) } else { finish(client, out, view) }
}

/// Waits for the end, and says on standard error what happens meanwhile.
fn finish(client: &Client, out: &Output, first: RolloutView) -> Result<(), Failure> {
    let told = Progress::new(out, first.rollout.id);
    let mut said = vec![String::new(); first.rollout.cards.len()];
    let (mut view, mut unanswered) = (first, 0);
    loop {
        for (card, said) in view.rollout.cards.iter().zip(&mut said) {
            let line = progress(&view, card);
            if line != *said && !matches!(card.state, CardState::Waiting) {
                // What comes and goes is in the bar.
                if !told.is_bar() || is_over(card) {
                    told.say(&format!("{}: {line}", card.node));
                }
            }
            *said = line;
        }
        let cards = &view.rollout.cards;
        let now = cards
            .iter()
            .zip(&said)
            .filter(|(card, _)| !is_over(card) && !matches!(card.state, CardState::Waiting));
        let now = now.map(|(card, line)| format!("{} {line}", card.node)).collect::<Vec<_>>();
        let over = cards.iter().filter(|card| is_over(card)).count();
        told.at(over, cards.len(), &now.join(", "));
        if view.rollout.state != RolloutState::Running {
            break;
        }
        std::thread::sleep(TURN);
        match client.get::<RolloutView>(ROLLOUT) {
            Ok(next) => (view, unanswered) = (as_awaited(view.rollout.id, next)?, 0),
            Err(error) if error.is_away() && unanswered < PATIENCE => unanswered += 1,
            Err(error) => return Err(error.into()),
        }
    }
    drop(told);
    out.print(&view, render)?;
    match view.rollout.state {
        RolloutState::Failed => {
            let failed = view.rollout.cards.iter().filter_map(|card| match &card.state {
                CardState::Failed { reason } => Some(format!("{}: {reason}", card.node)),
                _ => None,
            });
            let failed = failed.collect::<Vec<_>>().join("; ");
            Err(Failure::Rollout(format!("{} is stopped: {failed}", view.rollout.id)))
        }
        RolloutState::Running | RolloutState::Succeeded => Ok(()),
    }
}

/// How the rollout that is waited for stands, by the answer about the latest one: another may have
/// begun since the last look.
fn as_awaited(id: RolloutId, latest: RolloutView) -> Result<RolloutView, Failure> {
    if latest.rollout.id == id {
        return Ok(latest);
    }
    let next = latest.rollout.id;
    match latest.rollout.former {
        Some(former) if former.id == id => {
            Ok(RolloutView { rollout: *former, written: BTreeMap::new(), waits: BTreeMap::new() })
        }
        _ => Err(Failure::Rollout(format!(
            "{id} has ended, and {next} has begun; `dxpu-manager events` says how it ended"
        ))),
    }
}

/// Whether nothing more is done to a card.
fn is_over(card: &RolloutCard) -> bool {
    matches!(card.state, CardState::Updated | CardState::Failed { .. } | CardState::LeftAlone)
}

/// Where a card stands, for a person. Of what is written only whole tenths.
fn progress(view: &RolloutView, card: &RolloutCard) -> String {
    let version = |version: &Option<String>| or_dash(version.as_ref());
    if let (true, Some(why)) = (card.state.is_in_flight(), view.waits.get(card.node.as_str())) {
        return format!("waits: {why}");
    }
    match &card.state {
        CardState::Waiting => "waits for its wave".to_owned(),
        CardState::Writing => match (&view.rollout.what, view.written.get(card.node.as_str())) {
            (RolloutKind::Push { image }, Some(written)) => {
                let tenths = u64::from(*written) * 10 / image.bytes.max(1);
                format!("has {} % of {}", tenths * 10, image.version)
            }
            (RolloutKind::Push { image }, None) => format!("is to get {}", image.version),
            (RolloutKind::RollBack, _) => "is to go back".to_owned(),
        },
        CardState::Restarting { .. } => "restarts".to_owned(),
        CardState::Updated => format!("runs {}", version(&card.runs)),
        CardState::Failed { reason } => format!("failed: {reason}"),
        CardState::LeftAlone => "was left alone".to_owned(),
    }
}

/// All of a rollout.
fn render(view: &RolloutView) -> String {
    let rollout = &view.rollout;
    let what = match &rollout.what {
        RolloutKind::Push { image } => format!("{} ({})", image.version, image.id),
        RolloutKind::RollBack => "back to the image before".to_owned(),
    };
    let state = match rollout.state {
        RolloutState::Running => "running",
        RolloutState::Succeeded => "succeeded",
        RolloutState::Failed => "stopped: a card failed",
    };
    let cards = table(
        ["CARD", "WAVE", "STATE", "BEFORE", ""],
        rollout.cards.iter().map(|card| {
            [
                card.node.to_string(),
                or_dash(card.wave),
                card.state.name().to_owned(),
                or_dash(card.before.as_ref()),
                progress(view, card),
            ]
        }),
    );
    format!("{}: {what}: {state}\n\n{cards}", rollout.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rollout_that_ended_is_known_when_another_has_begun() {
        let latest = |id: u64, former: serde_json::Value| {
            let record = |id: u64, state: &str| {
                json!({
                    "id": format!("roll-{id}"), "what": { "kind": "roll-back" }, "state": state,
                    "wave_size": 1, "interrupt": false, "within_s": 1, "cards": [],
                    "started": "2026-01-01T00:00:00.000Z", "written": {},
                })
            };
            let mut view = record(id, "running");
            if let Some(id) = former.as_u64() {
                view["former"] = record(id, "succeeded");
            }
            serde_json::from_value::<RolloutView>(view).unwrap()
        };
        let state = |latest| as_awaited(RolloutId(3), latest).map(|view| view.rollout.state);
        assert_eq!(state(latest(3, json!(2))).unwrap(), RolloutState::Running);
        assert_eq!(state(latest(4, json!(3))).unwrap(), RolloutState::Succeeded);
        for lost in [latest(5, json!(4)), latest(5, json!(null))] {
            let failure = state(lost).unwrap_err();
            assert_eq!(failure.exit_code(), 7);
            assert!(failure.to_string().contains("roll-3 has ended, and roll-5 has begun"));
        }
    }
}
