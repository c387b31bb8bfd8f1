//! `dxpu-manager erasures` and `erase`.

use super::render::{or_dash, table};
use super::{Failure, Output};
use crate::types::{ErasureState, SlotAddress};
use manager_client::Client;
use manager_client::bodies::EraseBody;
use manager_client::views::{ErasureView, List};

/// Of `erase`.
#[derive(Debug, clap::Args)]
pub struct Erase {
    /// The slot, BOX/SLOT
    pub slot: SlotAddress,
    /// Do not erase: take a device that could not be erased as it is, for this reason
    #[arg(long, value_name = "REASON")]
    pub waive: Option<String>,
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
    let Erase { slot, waive } = erase;
    let path = format!("/v1/boxes/{}/slots/{}/erase", slot.box_name(), slot.slot());
    let view: ErasureView = client.post(&path, &EraseBody { waive }, None)?;
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
