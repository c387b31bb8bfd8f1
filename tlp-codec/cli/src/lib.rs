//! What the `tlp` command does: transaction layer packets as text and JSON, and back.
//!
//! A library, so that it can be run on any input without a process.

mod args;
mod bare;
mod builder;
mod capture;
mod decode;
mod encode;
mod fields;
mod input;
mod joiner;
mod live;
mod notes;
mod pcapng;
mod recent;
mod segments;
mod taker;
mod text;

pub use args::Args;

use args::{Command, Decode};
use input::Stream;
use std::io::{BufRead, Write};

/// How a run that was not stopped by an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything went through.
    Clean,
    /// Something did not, and was reported.
    SomeBroken,
    /// An argument is neither a TLP in hex nor a file that could be read, and was reported. The
    /// others went through as far as they could.
    WrongArgument,
}

/// Does what the command line says. What cannot be read or written is reported on `err`.
///
/// # Errors
///
/// When the input cannot be opened, or the output not be written.
pub fn run(args: &Args, out: &mut impl Write, err: &mut dyn Write) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::Decode(args) => {
            let (arguments, file) = decode::named(args);
            decode::run(args, input::open(arguments, file)?, out, err)
        }
        Command::Live(args) => live::run(args, out, err).map(|()| Outcome::Clean),
        Command::Encode(args) => {
            encode::run(input::open(&args.lines, args.file.as_deref())?, out, err)
        }
    }
}

/// `tlp decode` of what a stream holds, lines or a capture, as text or JSON, with the records that
/// are not TLPs or without.
///
/// # Errors
///
/// When the stream cannot be read, or the output not be written.
pub fn decode(
    input: impl BufRead + 'static,
    json: bool,
    all: bool,
    out: &mut impl Write,
    err: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    let args = Decode { json, all, file: None, tlps: Vec::new() };
    let stream = Stream::new(input, false);
    decode::run(&args, input::of_stream(stream, None)?, out, err)
}

/// `tlp encode` of what a stream holds.
///
/// # Errors
///
/// When it is a capture, the stream cannot be read, or the output not be written.
pub fn encode(
    input: impl BufRead + 'static,
    out: &mut impl Write,
    err: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    encode::run(input::of_stream(Stream::new(input, false), None)?, out, err)
}
