//! The mapping tables of the proxies.

use super::pool::root_complex;
use super::{or_dash, table, text_or_dash};
use manager_client::views::{AllTables, BoxTable, HostTable, Range};

/// All tables.
pub(in crate::cli) fn tables(all: &AllTables) -> String {
    let hosts = all.hosts.iter().map(host_table);
    let boxes = all.boxes.iter().map(box_table);
    let silent = all.silent.iter().map(|proxy| format!("{}: {}", proxy.name, proxy.reason));
    hosts.chain(boxes).chain(silent).collect::<Vec<_>>().join("\n\n")
}

/// A host's mapping table.
pub(in crate::cli) fn host_table(host: &HostTable) -> String {
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
pub(in crate::cli) fn box_table(found: &BoxTable) -> String {
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

fn range(range: Option<Range>) -> String {
    or_dash(range.map(|r| format!("{:#x}-{:#x}", r.base, r.limit)))
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    text_or_dash(&texts.join(" "))
}
