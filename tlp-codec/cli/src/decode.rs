//! `tlp decode`.

use crate::args::Decode;
use crate::fields::{self, Fields};
use crate::input::{self, NotHex, Source};
use crate::{Outcome, capture, text};
use anyhow::Result;
use serde_json::{Map, Value};
use std::io::Write;
use std::path::Path;

/// Prints every TLP, reports what cannot be read.
pub(crate) fn run(
    args: &Decode,
    source: Source,
    out: &mut impl Write,
    err: &mut dyn Write,
) -> Result<Outcome> {
    let (arguments, _) = named(args);
    let (json, all, live) = (args.json, args.all, source.is_live());
    let mut printer = Printer { json, all, live, outcome: Outcome::Clean, out, err };
    match source {
        Source::Capture(format, stream) => capture::read(format, stream, &mut printer)?,
        lines => input::for_each_line(lines, |place, line| {
            let line = match line {
                Ok(line) => text::without_comment(line),
                Err(reason) => return printer.broken(place, &reason.to_string()),
            };
            if line.trim().is_empty() {
                return Ok(());
            }
            match input::parse_hex(line) {
                Ok(bytes) => printer.tlp(place, &bytes, None)?,
                Err(reason @ NotHex::Character(_)) if !arguments.is_empty() => {
                    printer.broken(place, &format!("{reason}, and {}", not_the_file(line)))?;
                    printer.outcome = Outcome::WrongArgument;
                }
                Err(reason) => printer.broken(place, &reason.to_string())?,
            }
            printer.part_ends()
        })?,
    }
    Ok(printer.outcome)
}

/// The TLPs that the command line names, or the file.
pub(crate) fn named(args: &Decode) -> (&[String], Option<&Path>) {
    let file = args.file.as_deref().or(the_one_file(&args.tlps));
    (if file.is_some() { &[][..] } else { &args.tlps }, file)
}

/// The file that the arguments are, if they are one that is not hex.
fn the_one_file(arguments: &[String]) -> Option<&Path> {
    match arguments {
        [one] if input::parse_hex(one).is_err() && is_readable(one) => Some(Path::new(one)),
        _ => None,
    }
}

/// Whether it is a file, or what can be read like one, as a pipe.
fn is_readable(name: &str) -> bool {
    Path::new(name).exists() && !Path::new(name).is_dir()
}

/// Why an argument that is not hex was not read as a file, and what to do.
fn not_the_file(argument: &str) -> String {
    let path = Path::new(argument);
    if path.is_dir() {
        format!("`{argument}` is a directory: name one file in it")
    } else if path.exists() {
        format!("`{argument}` is a file among other arguments: give it alone, or with --file")
    } else {
        format!("there is no file `{argument}`: give hex, or the name of a file that is there")
    }
}

/// Prints TLPs as they come and keeps count of what did not go well.
pub(crate) struct Printer<'a, W: Write> {
    json: bool,
    all: bool,
    live: bool,
    outcome: Outcome,
    out: &'a mut W,
    err: &'a mut dyn Write,
}

impl<W: Write> Printer<'_, W> {
    /// Prints a TLP, or says why not.
    pub(crate) fn tlp(
        &mut self,
        place: &str,
        bytes: &[u8],
        from: Option<Map<String, Value>>,
    ) -> Result<()> {
        match fields::describe(bytes) {
            Ok(fields) => self.line(&Fields { from, ..fields }),
            Err(error) => self.broken(place, &error.to_string()),
        }
    }

    /// As [`Self::tlp`], of one that came before in the same capture.
    pub(crate) fn tlp_again(
        &mut self,
        place: &str,
        bytes: &[u8],
        from: Map<String, Value>,
    ) -> Result<()> {
        match fields::describe(bytes) {
            Ok(mut fields) => {
                fields.map.insert(text::AGAIN.into(), true.into());
                self.line(&Fields { from: Some(from), ..fields })
            }
            Err(error) => self.broken(place, &error.to_string()),
        }
    }

    /// Prints a record that is not a TLP, if that was asked for.
    pub(crate) fn record(&mut self, what: &str, from: Map<String, Value>) -> Result<()> {
        if !self.all {
            return Ok(());
        }
        if self.json {
            let mut object = Map::new();
            object.insert("record".into(), what.into());
            object.insert("from".into(), Value::Object(from));
            writeln!(self.out, "{}", Value::Object(object))?;
        } else {
            writeln!(self.out, "# {what}; {}", text::place(&from))?;
        }
        Ok(())
    }

    /// Reports something that cannot be read.
    pub(crate) fn broken(&mut self, place: &str, reason: &str) -> Result<()> {
        self.out.flush()?;
        writeln!(self.err, "tlp: {place}: {reason}")?;
        // What is wrong with the command line is not made less by what else is broken.
        if self.outcome != Outcome::WrongArgument {
            self.outcome = Outcome::SomeBroken;
        }
        Ok(())
    }

    /// A line or a packet was read to its end, and the next one may not be there yet.
    pub(crate) fn part_ends(&mut self) -> Result<()> {
        if self.live {
            self.out.flush()?;
        }
        Ok(())
    }

    fn line(&mut self, fields: &Fields) -> Result<()> {
        let line = if self.json { text::to_json(fields) } else { text::to_text(fields) };
        writeln!(self.out, "{line}")?;
        Ok(())
    }
}
