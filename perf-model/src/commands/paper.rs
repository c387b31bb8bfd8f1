//! `dxpu-perf paper`: the model beside every row that DxPU's paper measured.

use std::io::Write;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::paper::{self, Row, Use};
use crate::table::Table;

/// What is asked of `dxpu-perf paper`.
#[derive(Debug, Args)]
pub(super) struct PaperArgs {
    /// How it is written.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
    /// As in docs/paper.md.
    Markdown,
}

/// Does it.
///
/// # Errors
/// Those of `out`.
pub(super) fn run(args: &PaperArgs, out: &mut dyn Write) -> Result<()> {
    match args.output {
        Output::Text => text(out),
        Output::Json => json(out),
        Output::Markdown => Ok(write!(out, "{}", markdown())?),
    }
}

fn trips() -> f64 {
    f64::from(paper::fit().0) / 1e3
}

fn points(value: Option<f64>, signed: bool) -> String {
    match value {
        Some(value) if signed => format!("{value:+.1}"),
        Some(value) => format!("{value:.1}"),
        None => "-".to_owned(),
    }
}

fn verdict(row: &Row) -> String {
    match (row.used, row.holds()) {
        (Use::Fitted, _) => "fitted".to_owned(),
        (Use::Judged(bound), Some(true)) => format!("within {bound}"),
        (Use::Judged(bound), _) => format!("NOT within {bound}"),
        (Use::Reported(_), _) => "reported".to_owned(),
    }
}

fn text(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "round trips for each kernel in training, fitted: {:.3}\n", trips())?;
    let mut table =
        Table::new(["WORKLOAD", "SOURCE", "MODEL %", "MEASURED %", "POINTS", "VERDICT"]);
    for row in paper::rows() {
        table.row([
            row.workload.clone(),
            row.source.to_owned(),
            points(row.model, false),
            format!("{:.1}", row.measured),
            points(row.error(), true),
            verdict(&row),
        ]);
    }
    table.write(out, 0)?;
    Ok(())
}

fn json(out: &mut dyn Write) -> Result<()> {
    let rows: Vec<_> = paper::rows()
        .iter()
        .map(|row| {
            let reason = match row.used {
                Use::Reported(reason) => Some(reason),
                Use::Fitted | Use::Judged(_) => None,
            };
            json!({
                "source": row.source,
                "workload": row.workload,
                "told": row.told,
                "model_percent": row.model,
                "measured_percent": row.measured,
                "fitted": row.used == Use::Fitted,
                "within_bound": row.holds(),
                "reason": reason,
            })
        })
        .collect();
    let object = json!({ "kernel_round_trips_training": trips(), "rows": rows });
    serde_json::to_writer_pretty(&mut *out, &object)?;
    writeln!(out)?;
    Ok(())
}

/// The table of docs/paper.md.
pub(super) fn markdown() -> String {
    let mut text = format!("Round trips for each kernel in training, fitted: {:.3}.\n\n", trips());
    text += "| source | workload | the model is told | model % | measured % | points | |\n";
    text += "|---|---|---|---:|---:|---:|---|\n";
    for row in paper::rows() {
        text += &format!(
            "| {} | {} | {} | {} | {:.1} | {} | {} |\n",
            row.source,
            row.workload,
            row.told,
            points(row.model, false),
            row.measured,
            points(row.error(), true),
            verdict(&row),
        );
    }
    let mut reasons: Vec<(String, &str)> = Vec::new();
    for row in paper::rows() {
        if let Use::Reported(reason) = row.used
            && !reasons.iter().any(|(_, known)| *known == reason)
        {
            let name = row.workload.split(", batch").next().unwrap_or_default();
            let name = name.split(", 1 GPU").next().unwrap_or_default();
            reasons.push((name.to_owned(), reason));
        }
    }
    text += "\nWhy some are only reported:\n\n";
    for (name, reason) in reasons {
        text += &format!("- {name}: {reason}.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_says_what_the_program_says() {
        let page = include_str!("../../docs/paper.md");
        let (_, table) = page.split_once("--output markdown -->\n").expect("the page has the mark");
        assert_eq!(table, super::markdown(), "run `dxpu-perf paper --output markdown`");
    }
}
