//! `store check`: what of a store's file does not read.

use super::{Failure, Output};
use crate::records::generation_after;
use crate::store::{self, Report};
use std::fmt::Write;
use std::path::Path;

/// What is said of a store, or of a backup, that goes back to the write before its last.
pub(super) const LAST_WRITE_IS_MISSING: &str = "last write is not there as it was written; these are the \
     records of the one before, and what the last one did may have been told to somebody";

/// Reads all of a store and says what does not read.
pub(super) fn check(out: &Output, path: &Path, repair: bool) -> Result<(), Failure> {
    let report = store::check(path, repair)?;
    out.print(&report, text)?;
    if report.is_good() {
        return Ok(());
    }
    let what = match report.is_repairable() {
        true if report.goes_back && report.damaged.is_empty() => {
            "a manager that starts on it, or `dxpu-manager store check --repair`, goes back to the \
             write before the last and begins a new generation"
        }
        true if report.whole => "`dxpu-manager store check --repair` takes out what does not read",
        true => {
            "put a backup in its place with `dxpu-manager restore`; or `dxpu-manager store check \
             --repair` makes a store of what reads, which may have records with bytes that changed"
        }
        false => "that cannot be repaired; put a backup in its place with `dxpu-manager restore`",
    };
    Err(Failure::Damaged(format!("the store {} is damaged; {what}", path.display())))
}

fn text(report: &Report) -> String {
    let mut text = format!("{}: {} records", report.store.display(), report.records);
    if !report.whole {
        text += "\nits pages are not as they were written; records that read may have changed, too";
    }
    if report.goes_back {
        let _ = write!(text, "\nits {LAST_WRITE_IS_MISSING}");
    }
    let (own, shown) = (report.generation, report.shown_generation);
    // Of a whole store that is as it should be, and of one that is repaired too, but the numbers
    // that a repair begins with are above.
    let next = generation_after(own, shown).filter(|next| *next > shown);
    if let Some(next) = next.filter(|_| !report.is_good() && own < shown) {
        let _ = write!(
            text,
            "\nits generation is {own}, but there is an epoch of generation {shown}, of a box that was \
             in another pool, or {own} is not as it was written; a repair begins generation {next}"
        );
    }
    for damage in &report.damaged {
        let key = damage.key.as_ref().map(|key| format!(", key {key}")).unwrap_or_default();
        let _ = write!(text, "\ntable {}{key}: {}", damage.table, damage.reason);
    }
    match &report.repaired {
        Some(repaired) => {
            let (kept, taken_out) = (repaired.kept.display(), repaired.taken_out.display());
            let begins = repaired.generation;
            let above = if begins > shown { ", above all that its records show" } else { "" };
            let _ = write!(
                text,
                "\nrepaired; as it was it is {kept}, what was taken out is in {taken_out}; it begins \
                 generation {begins}{above}"
            );
        }
        None if report.is_good() => text += ", all of which read",
        None => {}
    }
    text
}
