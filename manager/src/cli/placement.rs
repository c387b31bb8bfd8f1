//! What is to be said about placement, and the inventory that it goes by.

use super::render::{or_dash, table};
use super::{Failure, Output, args};
use crate::types::topology::BoxKind;
use crate::types::{Amount, Explanation};
use manager_client::Client;
use manager_client::bodies::Unambiguous;
use manager_client::views::{FactsView, InventoryView};
use std::io::Read;
use std::path::Path;

/// Where the inventory is.
const INVENTORY: &str = "/v1/inventory";

/// Shows or replaces the inventory.
///
/// # Errors
///
/// When the file does not read, or the manager does not take it.
pub(super) fn inventory(
    client: &Client,
    out: &Output,
    which: &args::Inventory,
) -> Result<(), Failure> {
    match which {
        args::Inventory::Show => out.get::<InventoryView>(client, INVENTORY, shown),
        args::Inventory::Apply { file } => {
            let document = read(file)?;
            let now: InventoryView = client.put_for(INVENTORY, &document)?;
            out.print(&now, |now| {
                let warnings = now.warnings.iter().map(|warning| format!("\nwarning: {warning}"));
                format!(
                    "the inventory has revision {}{}",
                    now.revision,
                    warnings.collect::<String>()
                )
            })
        }
    }
}

/// A file as JSON; whether it is an inventory is the manager's to say.
fn read(file: &Path) -> Result<serde_json::Value, Failure> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::Argument(format!("{}: {error}", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(|error| wrong(&error))?;
    } else {
        text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    }
    let yaml = || {
        let _: Unambiguous = yaml_serde::from_str(&text).map_err(|error| wrong(&error))?;
        yaml_serde::from_str(&text).map_err(|error| wrong(&error))
    };
    match file.extension().and_then(|end| end.to_str()) {
        Some("toml") => toml::from_str(&text).map_err(|error| wrong(&error)),
        Some("json") => {
            let _: Unambiguous = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
            serde_json::from_str(&text).map_err(|error| wrong(&error))
        }
        Some("yaml" | "yml") => yaml(),
        // JSON is YAML, too.
        _ if file == Path::new("-") => yaml(),
        _ => Err(wrong(&"its name should end in .toml, .yaml, .yml or .json")),
    }
}

/// The inventory as a file would say it.
fn shown(view: &InventoryView) -> String {
    let head = match view.revision {
        0 => "# there is no inventory".to_owned(),
        revision => format!("# revision {revision}, since {}", view.since),
    };
    let warnings = view.warnings.iter().map(|warning| format!("\n# warning: {warning}"));
    let body = match view.revision {
        0 => String::new(),
        _ => yaml_serde::to_string(&view.inventory).expect("an inventory is YAML"),
    };
    format!("{head}{}\n{body}", warnings.collect::<String>())
}

/// What is known of a slot's device and its place, below other text; nothing if nothing is.
pub(super) fn facts(facts: &FactsView) -> String {
    let mut known = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        known.extend(value.map(|value| format!("{name}: {value}")));
    };
    add("memory", facts.memory.map(|bytes| Amount(bytes).to_string()));
    add("firmware", facts.firmware.clone());
    add("rack", facts.rack.as_ref().map(ToString::to_string));
    add("site", facts.site.as_ref().map(ToString::to_string));
    add("box kind", (facts.kind != BoxKind::default()).then(|| facts.kind.to_string()));
    add("island", facts.island.map(|island| island.to_string()));
    for (name, value) in &facts.attributes {
        add(name, Some(value.to_string()));
    }
    for warning in &facts.warnings {
        add("warning", Some(warning.clone()));
    }
    if known.is_empty() { String::new() } else { format!("\n\n{}", known.join("\n")) }
}

/// Why a request gets the slots that it gets, or none.
pub(super) fn explanation(why: &Explanation) -> String {
    let mut parts = Vec::new();
    parts.push(match why.slots.is_empty() {
        true => format!("nothing fits: {} for host {}", why.wanted, why.host),
        false => table(
            ["SLOT", "MODEL", "PORT", "RACK", "ISLAND"],
            why.slots.iter().map(|found| {
                [
                    found.slot.to_string(),
                    Some(&found.model)
                        .filter(|model| !model.is_empty())
                        .map_or("-".into(), String::clone),
                    found.port.to_string(),
                    or_dash(found.rack.as_ref()),
                    or_dash(found.island),
                ]
            }),
        ),
    });
    parts.push(
        why.reasons.iter().map(|reason| format!("  - {reason}")).collect::<Vec<_>>().join("\n"),
    );
    let constraints = table(
        ["CONSTRAINT", "REMOVES ALONE", "LEFT"],
        why.constraints.iter().map(|constraint| {
            let removes = format!("{} of {}", constraint.removes, why.devices);
            [constraint.constraint.clone(), removes, constraint.left.to_string()]
        }),
    );
    parts.push(constraints);
    if !why.candidates.is_empty() {
        parts.push(table(
            ["BOX", "DEVICES", "BANDWIDTH FOR", "BYTES/S LEFT"],
            why.candidates.iter().map(|found| {
                [
                    found.box_name.to_string(),
                    found.devices.to_string(),
                    found.usable.to_string(),
                    Amount(found.bandwidth_left).to_string(),
                ]
            }),
        ));
    }
    let more = why.candidate_boxes - why.candidates.len();
    if more > 0 {
        parts.push(format!("and {more} more boxes"));
    }
    parts.push(format!(
        "host {}: {} ports free, {} bytes/s left",
        why.host,
        why.free_ports,
        Amount(why.host_bandwidth_left)
    ));
    parts.join("\n\n")
}
