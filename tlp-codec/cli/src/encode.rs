//! `tlp encode`.

use crate::input::Source;
use crate::text::{self, Line};
use crate::{Outcome, builder, fields, input};
use anyhow::Result;
use std::io::Write;

/// Writes every line's TLP as hex, reports the lines that cannot be.
pub(crate) fn run(source: Source, out: &mut impl Write, err: &mut dyn Write) -> Result<Outcome> {
    let mut outcome = Outcome::Clean;
    input::for_each_line(source, |place, line| {
        match encode(line) {
            Ok(None) => {}
            Ok(Some(bytes)) => writeln!(out, "{}", fields::hex(&bytes))?,
            Err(reason) => {
                out.flush()?;
                writeln!(err, "tlp: {place}: {reason}")?;
                outcome = Outcome::SomeBroken;
            }
        }
        Ok(())
    })?;
    Ok(outcome)
}

fn encode(line: &str) -> Result<Option<Vec<u8>>, String> {
    match text::parse(line)? {
        Line::Nothing => Ok(None),
        Line::Tlp(fields) => builder::build(fields).map(Some),
    }
}
