//! Text for people. Nobody should parse it: that is what `--json` is for.

use crate::types::{AuditRecord, EventKind, EventRecord, OperationRecord, Timestamp};
use comfy_table::{Table, TableStyle};
use manager_client::views::{
    AllTables, AllocationView, BindingView, BoxTable, BoxView, Counters, HostTable, HostView,
    Latency, List, NodeView, Range, RecordingView, RootComplexView, SlotView, SlowRequest, Split,
    StampedKind, Stamps,
};
use std::time::Duration;

/// A table with a heading and no lines around its cells.
pub(super) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn text_or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn pci_id(slot: &SlotView) -> String {
    or_dash(slot.functions.first().map(|f| format!("{:04x}:{:04x}", f.pci.vendor, f.pci.device)))
}

fn status(slot: &SlotView) -> String {
    if slot.connected { slot.status.to_string() } else { format!("{} (box away)", slot.status) }
}

/// The pool.
pub(super) fn slots(list: &List<SlotView>) -> String {
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
pub(super) fn slot(slot: &SlotView) -> String {
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
    let facts = super::placement::facts(&slot.facts);
    format!("{}\n\n{functions}{facts}", slot_table(std::slice::from_ref(slot)))
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

/// The audit log.
pub(super) fn audit(list: &List<AuditRecord>) -> String {
    table(
        ["AT", "ACTOR", "FROM", "REQUEST", "OPERATION", "OUTCOME"],
        list.items.iter().map(|entry| {
            [
                entry.at.to_string(),
                or_dash(entry.actor.as_ref()),
                entry.peer.clone(),
                format!("{} {}", entry.method, entry.path),
                or_dash(entry.operation),
                entry.problem.map_or_else(|| "done".to_owned(), |problem| problem.to_string()),
            ]
        }),
    )
}

/// Proxies.
pub(super) fn nodes(list: &List<NodeView>) -> String {
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
fn root_complex(view: Option<&RootComplexView>) -> String {
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
pub(super) fn one_box(found: &BoxView) -> String {
    format!("{}\n\n{}", node_line(&found.node), slot_table(&found.slots))
}

/// A host.
pub(super) fn host(host: &HostView) -> String {
    let ports = host.free_ports.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let used = bindings(&host.bindings);
    format!("{}\nfree ports: {}\n\n{used}", node_line(&host.node), text_or_dash(&ports))
}

fn bindings<'a>(list: impl IntoIterator<Item = &'a BindingView>) -> String {
    table(
        ["BINDING", "ALLOCATION", "SLOT", "MODEL", "HOST", "PORT", "EPOCH", "PHASE", "TROUBLE"],
        list.into_iter().map(|b| {
            [
                b.id.to_string(),
                b.allocation.to_string(),
                b.slot.to_string(),
                text_or_dash(&b.model),
                b.host.to_string(),
                b.port.to_string(),
                or_dash(b.functions.first().map(|f| &f.epoch)),
                b.phase.to_string(),
                or_dash(b.trouble.as_ref()),
            ]
        }),
    )
}

/// A binding.
pub(super) fn binding(binding: &BindingView) -> String {
    bindings([binding])
}

/// An allocation.
pub(super) fn allocation(allocation: &AllocationView) -> String {
    let reason = allocation.reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
    let heading = format!(
        "{} for host {} since {}{reason}",
        allocation.id, allocation.host, allocation.since
    );
    let lease = allocation.lease.as_ref().map(|lease| {
        let left = Duration::from_secs(lease.left_ms / 1000);
        let left = humantime::format_duration(left);
        format!("\nlent until {}, for {left} from now", lease.until)
    });
    format!("{heading}{}\n\n{}", lease.unwrap_or_default(), bindings(&allocation.bindings))
}

/// All allocations.
pub(super) fn allocations(list: &List<AllocationView>) -> String {
    bindings(list.items.iter().flat_map(|allocation| &allocation.bindings))
}

fn what(operation: &OperationRecord) -> String {
    use crate::types::OperationKind::{Allocate, Drain, Forget, Release, Replace, TakeBack};
    let list = |slots: &[crate::types::SlotAddress]| {
        slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    match &operation.what {
        Allocate { host, slots, .. } => format!("lend {} to {host}", list(slots)),
        Release { slots, reason, .. } => {
            let why = reason.as_ref().map(|why| format!(", because {why}")).unwrap_or_default();
            format!("take back {}{why}", list(slots))
        }
        Replace { host, slots, reason, .. } => {
            format!("{} in the place of {} at {host}, because {reason}", slots[1], slots[0])
        }
        Drain { place, slots, reason, .. } => {
            format!("drain {place} ({}), because {reason}", list(slots))
        }
        Forget { node, slots } if slots.is_empty() => format!("forget {node}"),
        Forget { node, slots } => format!("forget {node} ({})", list(slots)),
        TakeBack { slots, due, reason, stage, .. } => {
            format!("take back {} at {due}, because {reason} ({stage})", list(slots))
        }
    }
}

/// All operations.
pub(super) fn operations(list: &List<OperationRecord>) -> String {
    table(
        ["OPERATION", "STATE", "STEPS", "WHAT", "STARTED", "ENDED", "ERROR"],
        list.items.iter().map(|o| {
            [
                o.id.to_string(),
                o.state.to_string(),
                format!("{}/{}", o.progress().0, o.progress().1),
                what(o),
                o.started.to_string(),
                or_dash(o.ended),
                or_dash(o.error.as_ref().map(|problem| &problem.detail)),
            ]
        }),
    )
}

/// An operation.
pub(super) fn operation(operation: &OperationRecord) -> String {
    let mut text = format!("{}: {}: {}", operation.id, what(operation), operation.state);
    if let Some(problem) = &operation.error {
        text = format!("{text}\nbecause {problem}");
    }
    for warning in &operation.warnings {
        text = format!("{text}\nwarning: {warning}");
    }
    format!("{text}\n\n{}", steps(operation))
}

fn steps(operation: &OperationRecord) -> String {
    table(
        ["STEP", "TARGET", "STATE", "CHANGED", "DETAIL"],
        operation.steps.iter().map(|step| {
            [
                step.name.to_string(),
                step.target.clone(),
                step.state.to_string(),
                step.changed.to_string(),
                or_dash(step.detail.as_ref()),
            ]
        }),
    )
}

/// What happened in an operation: a line for its beginning, one for each event, and how it stands.
pub(super) fn story(story: &super::operations::Story) -> String {
    let operation = &story.operation;
    let mut text = format!("{}: {}\n", operation.id, what(operation));
    for event in &story.events {
        let time = since(operation.started, event.at);
        let again = match event.kind {
            EventKind::ManagerStarted => " (the operation goes on by itself)",
            _ => "",
        };
        text += &format!("{time:>10}  {:<22}  {}{again}\n", event.kind, event.detail);
    }
    let (over, all) = operation.progress();
    let took = operation.ended.map_or_else(
        || "so far".to_owned(),
        |ended| format!("after {}", since(operation.started, ended).trim_start_matches('+')),
    );
    format!(
        "{text}{}: {} {took}, {over} of {all} steps\n\n{}",
        operation.id,
        operation.state,
        steps(operation)
    )
}

/// From one time to another, as `+1.234 s`.
fn since(from: Timestamp, to: Timestamp) -> String {
    let millis = to.as_millis().saturating_sub(from.as_millis());
    format!("+{}.{:03} s", millis / 1000, millis % 1000)
}

/// One event, in one line.
pub(super) fn event(event: &EventRecord) -> String {
    format!("{:>6}  {}  {:<22}  {}", event.sequence, event.at, event.kind, event.detail)
}

fn range(range: Option<Range>) -> String {
    or_dash(range.map(|r| format!("{:#x}-{:#x}", r.base, r.limit)))
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    text_or_dash(&texts.join(" "))
}

/// A host's mapping table.
pub(super) fn host_table(host: &HostTable) -> String {
    let heading = [
        "PORT",
        "USED",
        "STATE",
        "BUSES",
        "DEVICE",
        "MEMORY",
        "PREFETCHABLE",
        "BOX",
        "SLOT",
        "FUNCTION:EPOCH",
        "PATHS",
    ];
    let rows = host.entries.iter().map(|entry| {
        let node = (entry.box_node != 0).then(|| entry.box_node.to_string());
        [
            entry.port.to_string(),
            if entry.used { "yes" } else { "no" }.to_owned(),
            entry.state.clone(),
            format!("{:02x}-{:02x}", entry.secondary_bus, entry.subordinate_bus),
            entry.device.clone(),
            range(entry.memory),
            range(entry.prefetchable),
            or_dash(entry.box_name.as_ref().map(ToString::to_string).or(node)),
            if entry.used { entry.slot.to_string() } else { "-".to_owned() },
            list(entry.functions.iter().map(|f| format!("{}:{}", f.function, f.epoch))),
            list(&entry.paths),
        ]
    });
    let root_complex = root_complex(host.root_complex.as_ref());
    let (name, node, rows) = (&host.host, host.node, table(heading, rows));
    format!("mapping table of host {name} (node {node}){root_complex}\n\n{rows}")
}

/// A box's slot table.
pub(super) fn box_table(found: &BoxTable) -> String {
    let heading = [
        "ENTRY", "SLOT", "FUNCTION", "VALID", "USED", "STATE", "HOST", "EPOCH", "PATHS", "WINDOWS",
    ];
    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    let rows = found.entries.iter().map(|entry| {
        let node = (entry.host_node != 0).then(|| entry.host_node.to_string());
        let windows = entry.windows.iter().map(|w| {
            let may =
                format!("{}{}", if w.read { "r" } else { "" }, if w.write { "w" } else { "" });
            format!("{:#x}-{:#x} {may} -> node {} at {:#x}", w.base, w.limit, w.node, w.target)
        });
        [
            entry.entry.to_string(),
            entry.slot.to_string(),
            entry.function.to_string(),
            yes(entry.valid),
            yes(entry.used),
            entry.state.to_string(),
            or_dash(entry.host.as_ref().map(ToString::to_string).or(node)),
            or_dash(entry.epoch.as_ref()),
            list(&entry.paths),
            text_or_dash(&windows.collect::<Vec<_>>().join("; ")),
        ]
    });
    format!(
        "slot table of box {} (node {})\n\n{}",
        found.box_name,
        found.node,
        table(heading, rows)
    )
}

/// All tables.
pub(super) fn tables(all: &AllTables) -> String {
    let hosts = all.hosts.iter().map(host_table);
    let boxes = all.boxes.iter().map(box_table);
    let silent = all.silent.iter().map(|proxy| format!("{}: {}", proxy.name, proxy.reason));
    hosts.chain(boxes).chain(silent).collect::<Vec<_>>().join("\n\n")
}

/// A proxy's counters.
pub(super) fn counters(counters: &Counters) -> String {
    let rows = counters.counters.iter().map(|(name, value)| [name.clone(), value.to_string()]);
    table(["COUNTER", "VALUE"], rows)
}

/// A proxy's stage stamps.
pub(super) fn stamps(stamps: &Stamps) -> String {
    if stamps.stamps.is_empty() {
        return format!("no stamps: sample TLPs with `stamps {} --sampling all`", stamps.name);
    }
    let heading = [
        "PEER",
        "SLOT",
        "FUNCTION",
        "EPOCH",
        "ENTRY",
        "SEQUENCE",
        "ASKED BY",
        "KIND",
        "ARRIVED (NS)",
        "ENCODED (NS)",
        "SENT (NS)",
        "RECEIVED (NS)",
        "DECODED (NS)",
        "DELIVERED (NS)",
    ];
    table(
        heading,
        stamps.stamps.iter().map(|stamp| {
            let at = |stage: usize| or_dash(stamp.at.get(stage).copied().flatten());
            [
                stamp.peer.to_string(),
                stamp.slot.to_string(),
                stamp.function.to_string(),
                stamp.epoch.clone(),
                match (stamp.index, stamp.generation) {
                    (Some(index), Some(generation)) => format!("{index}.{generation}"),
                    _ => "-".to_owned(),
                },
                or_dash(stamp.sequence),
                if stamp.from_host { "host" } else { "device" }.to_owned(),
                match stamp.kind {
                    StampedKind::Request => "request",
                    StampedKind::Completion => "completion",
                    StampedKind::Posted => "posted",
                }
                .to_owned(),
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
            ]
        }),
    )
}

/// Recordings.
pub(super) fn recordings(list: &List<RecordingView>) -> String {
    let heading = ["RECORDING", "BINDING", "SLOT", "HOST", "SINCE", "PACKETS", "BYTES", "ENDED"];
    let rows = list.items.iter().map(|recording| {
        [
            recording.id.to_string(),
            recording.binding.to_string(),
            recording.slot.to_string(),
            recording.host.to_string(),
            recording.since.to_string(),
            recording.packets.to_string(),
            recording.bytes.to_string(),
            or_dash(recording.ended.as_ref().map(|ended| &ended.detail)),
        ]
    });
    table(heading, rows)
}

/// A look at the round trips of all lent devices.
pub(super) fn latency(latency: &Latency) -> String {
    let heading = [
        "BINDING",
        "SLOT",
        "HOST",
        "MODEL",
        "ASKED BY",
        "REQUESTS/S",
        "SAMPLES",
        "P50 (US)",
        "P99 (US)",
        "ORIGINAL",
        "NETWORK",
        "HOST PROXY",
        "BOX PROXY",
    ];
    let rows = latency.devices.iter().flat_map(|device| {
        let ends = [
            ("host", device.host_requests_per_s, &device.from_host),
            ("device", device.device_requests_per_s, &device.from_device),
        ];
        ends.map(|(asker, per_s, split)| {
            let us = |of: fn(&Split) -> u64| or_dash(split.as_ref().map(|s| micros(of(s))));
            [
                device.binding.to_string(),
                device.slot.to_string(),
                device.host.to_string(),
                text_or_dash(&device.model),
                asker.to_owned(),
                format!("{per_s:.0}"),
                split.as_ref().map_or(0, |s| s.samples).to_string(),
                us(|s| s.p50_ns),
                us(|s| s.p99_ns),
                us(|s| s.original_ns),
                us(|s| s.network_ns),
                us(|s| s.host_conversion_ns),
                us(|s| s.box_conversion_ns),
            ]
        })
    });
    let mut text = table(heading, rows.collect::<Vec<_>>());
    for slow in &latency.slowest {
        let stages = slow.stages.iter().map(|s| format!("    {:>10} {}", micros(s.ns), s.stage));
        text.push_str(&format!(
            "\n{} us  {} of {}, asked by the {}: {}\n{}\n",
            micros(slow.total_ns),
            slow.slot,
            slow.host,
            slow.asker,
            slow_request(slow),
            stages.collect::<Vec<_>>().join("\n")
        ));
    }
    for missing in &latency.missing {
        text.push_str(&format!("\nnot looked at: {missing}"));
    }
    text
}

fn slow_request(slow: &SlowRequest) -> String {
    let address = slow.address.map(|address| format!(" {address:#x}"));
    let target = slow.target.as_ref().map(|target| format!(" {target}"));
    let bytes = slow.bytes.map(|bytes| format!(" {bytes} B"));
    [Some(slow.kind.clone()), address, target, bytes].into_iter().flatten().collect()
}

/// Nanoseconds as microseconds.
fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}
