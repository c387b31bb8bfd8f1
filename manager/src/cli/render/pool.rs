//! Slots, boxes, hosts and their proxies.

use super::lending::bindings;
use super::{or_dash, table, text_or_dash};
use manager_client::views::{BoxView, HostView, List, NodeView, RootComplexView, SlotView};

/// The pool.
pub(in crate::cli) fn slots(list: &List<SlotView>) -> String {
    slot_table(&list.items)
}

fn slot_table(slots: &[SlotView]) -> String {
    let heading = ["SLOT", "MODEL", "PCI ID", "STATUS", "HOST", "ALLOCATION", "SINCE"];
    table(
        heading,
        slots.iter().map(|slot| {
            let owner = slot.owner.as_ref();
            [
                slot.slot.to_string(),
                text_or_dash(&slot.model),
                pci_id(slot),
                status(slot),
                or_dash(owner.map(|o| &o.host)),
                or_dash(owner.map(|o| o.allocation)),
                or_dash(owner.map(|o| o.since)),
            ]
        }),
    )
}

/// One slot.
pub(in crate::cli) fn slot(slot: &SlotView) -> String {
    let functions = table(
        ["FUNCTION", "STATE", "MODEL", "PCI ID", "CLASS", "SERIAL", "BARS", "HIGHEST EPOCH"],
        slot.functions.iter().map(|f| {
            let bars = f.bars.iter().filter(|bar| **bar != 0).map(|bar| size(*bar));
            [
                f.function.to_string(),
                f.state.to_string(),
                text_or_dash(&f.model),
                format!("{:04x}:{:04x}", f.pci.vendor, f.pci.device),
                format!("{:06x}", f.pci.class),
                or_dash(f.serial.as_ref()),
                text_or_dash(&bars.collect::<Vec<_>>().join(" ")),
                or_dash(f.highest_epoch.as_ref()),
            ]
        }),
    );
    let facts = crate::cli::placement::facts(&slot.facts);
    format!("{}\n\n{functions}{facts}", slot_table(std::slice::from_ref(slot)))
}

fn pci_id(slot: &SlotView) -> String {
    or_dash(slot.functions.first().map(|f| format!("{:04x}:{:04x}", f.pci.vendor, f.pci.device)))
}

fn status(slot: &SlotView) -> String {
    if slot.connected { slot.status.to_string() } else { format!("{} (box away)", slot.status) }
}

/// Bytes in the largest unit that leaves a whole number.
fn size(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024 && value.is_multiple_of(1024) {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", units[unit])
}

/// Proxies.
pub(in crate::cli) fn nodes(list: &List<NodeView>) -> String {
    table(
        ["NAME", "NODE", "ROLE", "SIZE", "STATE", "FROM", "PATHS", "LAST CONNECTED"],
        list.items.iter().map(|node| {
            let connection = node.connection.as_ref();
            let state = match connection {
                None => "away",
                Some(connection) if connection.ready => "connected",
                Some(_) => "connecting",
            };
            let state = format!("{state}{}", root_complex(node.root_complex.as_ref()));
            [
                node.name.to_string(),
                node.node.to_string(),
                node.role.to_string(),
                node.size.to_string(),
                state,
                or_dash(connection.map(|c| &c.remote)),
                or_dash(connection.map(|c| c.paths.join(", "))),
                node.last_connected.to_string(),
            ]
        }),
    )
}

/// What is to say of a host's root complex, behind other words; nothing if it has one.
pub(super) fn root_complex(view: Option<&RootComplexView>) -> String {
    let Some(RootComplexView { present: false, away_ms, taken_back_in_ms }) = view else {
        return String::new();
    };
    let mut text = format!(", no root complex for {} s", away_ms.unwrap_or_default() / 1000);
    if let Some(left) = taken_back_in_ms {
        text += &format!(", devices are taken back in {} s", left.div_ceil(1000));
    }
    text
}

fn node_line(node: &NodeView) -> String {
    let state = match &node.connection {
        Some(connection) => {
            let root_complex = root_complex(node.root_complex.as_ref());
            format!("connected from {}{root_complex}", connection.remote)
        }
        None => format!("away (last connected {})", node.last_connected),
    };
    format!("{} {}, node {}, {state}", node.role, node.name, node.node)
}

/// A box.
pub(in crate::cli) fn one_box(found: &BoxView) -> String {
    format!("{}\n\n{}", node_line(&found.node), slot_table(&found.slots))
}

/// A host.
pub(in crate::cli) fn host(host: &HostView) -> String {
    let ports = host.free_ports.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let used = bindings(&host.bindings);
    format!("{}\nfree ports: {}\n\n{used}", node_line(&host.node), text_or_dash(&ports))
}
