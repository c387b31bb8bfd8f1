//! What a file says of the pool.

use super::App;
use super::conditional::{IfMatch, shown};
use super::extract::{Octets, from_json};
use crate::audit;
use crate::records::Tables;
use crate::types::{EventKind, EventRecord, Inventory, Problem};
use axum::Json;
use axum::extract::State;
use manager_client::bodies::{ProblemBody, Unambiguous};
use manager_client::views::InventoryView;

/// Largest inventory, bytes of JSON: that of 100,000 slots of which each is described.
pub(super) const MAX_INVENTORY: usize = 16 << 20;

/// Most faults that are named at once.
const MAX_FAULTS: usize = 32;

/// Most contradictions that become events at once.
const MAX_EVENTS: usize = 100;

/// What the inventory says and is not so.
fn contradictions(tables: &Tables) -> impl Iterator<Item = String> {
    let of_slots = tables.pool().boxes().flat_map(|entry| {
        entry.slots.iter().flat_map(|slot| tables.contradictions(&entry.address(slot.slot)))
    });
    tables.misplaced().into_iter().chain(of_slots)
}

/// What is in force, and what speaks against it.
fn view(tables: &Tables) -> InventoryView {
    let record = tables.pool().facts().record().clone();
    InventoryView {
        revision: record.revision,
        since: record.since,
        inventory: record.inventory,
        warnings: contradictions(tables).chain(tables.never_here()).collect(),
    }
}

/// The inventory that is in force: what a file says of the pool that proxies cannot know.
#[utoipa::path(get, path = "/v1/inventory", tag = "pool",
    responses((status = 200, description = "The inventory; an empty one if none was given", body = InventoryView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(State(manager): State<App>) -> Json<InventoryView> {
    Json(view(&manager.records.snapshot()))
}

/// Reads an inventory.
///
/// # Errors
///
/// What is wrong with it; `field` and `reasons` name the fields, such as
/// `boxes.box1.islands[0].slots[3]`.
fn read(bytes: &[u8]) -> Result<Inventory, Problem> {
    let inventory: Inventory = from_json(bytes)?;
    let mut document = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize::<_, Unambiguous>(&mut document)
        .map_err(|error| Problem::invalid(&error.path().to_string(), error.inner()))?;
    let faults = inventory.faults();
    let Some(first) = faults.first() else { return Ok(inventory) };
    let mut problem = Problem::invalid(&first.path, &first.why);
    problem.reasons = faults.iter().take(MAX_FAULTS).map(ToString::to_string).collect();
    if faults.len() > MAX_FAULTS {
        problem.reasons.push(format!("and {} more", faults.len() - MAX_FAULTS));
    }
    Err(problem)
}

/// Put an inventory in the place of the one before; all of it, or nothing if it has a fault.
#[utoipa::path(put, path = "/v1/inventory", tag = "pool", request_body = Inventory,
    params(("If-Match" = Option<String>, Header, description = "Only if the inventory has this entity tag")),
    responses((status = 200, description = "What is in force now, and what the proxies report otherwise", body = InventoryView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn replace(
    State(manager): State<App>,
    matches: IfMatch,
    Octets(bytes): Octets,
) -> Result<Json<InventoryView>, Problem> {
    audit::asks(&format_args!("an inventory of {} bytes", bytes.len()));
    let inventory = read(&bytes)?;
    let changed = manager.records.change(|txn| {
        matches.check(|| Some(shown(&view(txn))))?;
        if txn.pool().facts().record().inventory == inventory {
            let now = view(txn);
            audit::asks(&format_args!("the inventory of revision {} again", now.revision));
            return Ok(now);
        }
        txn.put_inventory(inventory);
        let now = view(txn);
        let detail = format!("the inventory has revision {}", now.revision);
        audit::asks(&detail);
        txn.event(EventRecord::new(EventKind::InventoryChanged, detail));
        let contradictions: Vec<String> = contradictions(txn).take(MAX_EVENTS).collect();
        for warning in contradictions {
            txn.event(EventRecord::new(EventKind::InventoryContradicted, warning));
        }
        Ok(now)
    });
    changed.await.map(Json)
}
