//! Text for people. Nobody should parse it: that is what `--json` is for.

use comfy_table::{Table, TableStyle};

mod history;
mod lending;
mod pool;
mod recording;
mod tables;

pub(super) use history::{audit, event, operation, operations, story};
pub(super) use lending::{allocation, allocations, binding};
pub(super) use pool::{host, nodes, one_box, slot, slots};
pub(super) use recording::{counters, latency, recordings, stamps};
pub(super) use tables::{box_table, host_table, tables};

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
