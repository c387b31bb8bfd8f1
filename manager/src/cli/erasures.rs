//! `dxpu-manager erasures` and `erase`.

use super::render::{or_dash, table};
use super::{Failure, Output};
use crate::types::{ErasureId, ErasureState, SlotAddress};
use manager_client::Client;
use manager_client::bodies::{EraseBody, WaiveBody};
use manager_client::views::{ErasureView, List};
use std::str::FromStr;
use std::time::Duration;

/// What `erase` is about.
#[derive(Clone, Debug)]
pub enum What {
    /// What is in a slot.
    Slot(SlotAddress),
    /// The device of an erasure, wherever it is.
    Erasure(ErasureId),
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(id) => Ok(Self::Erasure(id)),
            Err(_) => text.parse().map(Self::Slot).map_err(|error| format!("{error}")),
        }
    }
}

/// Of `erase`.
#[derive(Debug, clap::Args)]
pub struct Erase {
    /// The slot, BOX/SLOT; with --waive also an erasure, erase-N, of a device that was taken out
    #[arg(value_name = "SLOT")]
    pub what: What,
    /// Do not erase: take a device that could not be erased as it is, for this reason
    #[arg(long, value_name = "REASON")]
    pub waive: Option<String>,
    /// Print the erasure and do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
}

/// How often it is looked how far an erasure is: so long first, and twice as long each time up to
/// the bound.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const MAX_LOOK: Duration = Duration::from_secs(2);

/// Waits for the end, which has to be a good one.
fn wait(client: &Client, mut view: ErasureView) -> Result<ErasureView, Failure> {
    let mut pause = FIRST_LOOK;
    while view.state == ErasureState::Running {
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_LOOK);
        // It goes on when a manager that went away is back.
        view = client.get_patiently(&format!("/v1/erasures/{}", view.id))?;
    }
    ended(view)
}

/// Only what is erased is done: a device that was taken out or taken as it is meanwhile still has
/// its data.
fn ended(view: ErasureView) -> Result<ErasureView, Failure> {
    match view.state {
        ErasureState::Done => Ok(view),
        _ => Err(Failure::Erasure(Box::new(view))),
    }
}

pub(super) fn list(client: &Client, out: &Output) -> Result<(), Failure> {
    out.get::<List<ErasureView>>(client, "/v1/erasures", |list| {
        table(
            ["ERASURE", "STATE", "SLOT", "MODEL", "SERIAL", "HAD BY", "SINCE", "ENDED", "DETAIL"],
            list.items.iter().map(|e| {
                [
                    e.id.to_string(),
                    state(e),
                    e.slot.to_string(),
                    e.model.clone(),
                    or_dash(e.serial.as_ref()),
                    or_dash(e.host.as_ref()),
                    e.since.to_string(),
                    or_dash(e.ended),
                    e.detail.clone(),
                ]
            }),
        )
    })
}

pub(super) fn erase(client: &Client, out: &Output, erase: Erase) -> Result<(), Failure> {
    let view: ErasureView = match erase {
        Erase { what: What::Slot(slot), waive, no_wait } => {
            let path = format!("/v1/boxes/{}/slots/{}/erase", slot.box_name(), slot.slot());
            // What is waived is over with the answer, and not to be erased.
            let no_wait = no_wait || waive.is_some();
            let view = client.post(&path, &EraseBody { waive }, None)?;
            if no_wait { view } else { wait(client, view)? }
        }
        Erase { what: What::Erasure(id), waive: Some(reason), .. } => {
            client.post(&format!("/v1/erasures/{id}/waive"), &WaiveBody { reason }, None)?
        }
        Erase { what: What::Erasure(id), waive: None, .. } => {
            let message = format!("{id} is an erasure; name the slot of its device, or --waive it");
            return Err(Failure::Argument(message));
        }
    };
    out.print(&view, |e| format!("{}: {}: {}: {}", e.id, e.slot, state(e), e.detail))
}

fn state(erasure: &ErasureView) -> String {
    match erasure.state {
        ErasureState::Running if erasure.permille > 0 => {
            format!("{} {} %", erasure.state, erasure.permille / 10)
        }
        state => state.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_erased_is_done() {
        for (state, code) in
            [("done", None), ("failed", Some(7)), ("owed", Some(7)), ("waived", Some(7))]
        {
            let view = serde_json::json!({
                "id": "erase-7", "slot": "box1/3", "model": "H200", "state": state, "permille": 0,
                "detail": "taken out", "required": true, "since": "2026-01-01T00:00:00.000Z",
            });
            let failure = ended(serde_json::from_value(view).unwrap()).err();
            assert_eq!(failure.as_ref().map(Failure::exit_code), code, "{state}");
            if let Some(failure) = failure {
                let said = format!("erase-7: box1/3 is not erased ({state}): taken out");
                assert_eq!(failure.to_string(), said);
            }
        }
    }
}
