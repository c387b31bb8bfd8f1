//! `tlp encode`.

use crate::input::Source;
use crate::text::{self, Line};
use crate::{Outcome, builder, fields, input};
use anyhow::Result;
use std::io::Write;

/// Writes every line's TLP as hex, reports the lines that cannot be.
pub(crate) fn run(source: Source, out: &mut impl Write, err: &mut dyn Write) -> Result<Outcome> {
    let (mut outcome, live) = (Outcome::Clean, source.is_live());
    input::for_each_line(source, |place, line| {
        match line.map_err(|error| error.to_string()).and_then(encode) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                writeln!(out, "{}", fields::hex(&bytes))?;
                // Who writes the lines may wait before the next one.
                if live {
                    out.flush()?;
                }
            }
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
