//! The command line: what was said ([`args`]) is done here.

pub mod args;
mod config;
mod images;
mod logs;
mod output;
mod regions;
mod show;
pub mod usage;
mod views;
mod write;

use std::io::{self, IsTerminal};
use std::path::Path;

use card_image::{BoardName, TrustedKey};
use soc::settings::Policy;
use tracing_subscriber::EnvFilter;

use crate::board::{Board, twice};
use crate::card::{Candidates, Card, or_left_halted};
use crate::failure::{Failure, Kind, Outcome};
use crate::files;
use crate::image::keys::{self, KeyError};
use args::{Args, Command};
use output::Output;

/// Of a card that somebody has halted, or was cut off from while its program stood still.
const WAS_HALTED: &str =
    "the card's program stood still before this, and does: `dxpu-flash reset` starts it";

/// Instead of a board file.
const ITS_OWN: &str = "--board names a board of the program's own";

/// What all commands have.
struct Bench {
    args: Args,
    out: Output,
}

/// Does what was said.
///
/// # Errors
///
/// Why it could not be done.
pub fn run(mut args: Args) -> Outcome<()> {
    if let Some(filter) = args.probe_filter() {
        start_log(filter)?;
    }
    args.take_environment(|name| std::env::var_os(name))
        .map_err(|error| Failure::new(Kind::Input, error))?;
    let out = Output::new(args.json);
    let command = std::mem::replace(&mut args.command, Command::List);
    let bench = Bench { args, out };
    let done = match command {
        Command::List => show::list(&bench),
        Command::Info => show::info(&bench),
        Command::Write(write) => write::write(&bench, &write),
        Command::Verify(verify) => show::verify(&bench, &verify),
        Command::Read(read) => regions::read(&bench, &read),
        Command::Erase(erase) => regions::erase(&bench, &erase),
        Command::Reset { halt } => reset(&bench, halt),
        Command::Config(config) => config::config(&bench, &config),
        Command::Log(log) => logs::log(&bench, &log),
        Command::Image(image) => images::image(&bench, &image),
    };
    // Of a card that is lost it is said already.
    done.map_err(|failure| match failure.kind {
        Kind::Lost => failure,
        _ => or_left_halted(failure),
    })
}

fn start_log(filter: &str) -> Outcome<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(Kind::Input, format!("--probe-log {filter:?} is not valid: {error}"))
            .check("use a level such as info, debug or trace")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .init();
    Ok(())
}

impl Bench {
    /// The boards that a card may be.
    fn candidates(&self) -> Outcome<Candidates> {
        if let Some(path) = &self.args.board_file {
            let text =
                files::text(path).map_err(|error| cannot_read(path, &error).check(ITS_OWN))?;
            let board = Board::parse(&path.display().to_string(), &text).map_err(|error| {
                Failure::new(Kind::Input, error)
                    .check("docs/boards.md says what a board file has")
                    .check(ITS_OWN)
            })?;
            return Ok(Candidates { boards: vec![board], named: true });
        }
        let mut boards = Board::built_in();
        let Some(name) = self.args.board else { return Ok(Candidates { boards, named: false }) };
        boards.retain(|board| board.name == name);
        if boards.is_empty() {
            return Err(unknown_board(name));
        }
        Ok(Candidates { boards, named: true })
    }

    /// The card.
    fn card(&self) -> Outcome<Card> {
        Card::open(self.args.probe.as_ref(), &self.candidates()?, self.args.clock)
    }

    /// Says that the card's program stood still before its flash was read, and does so again: whoever
    /// does not know waits for it in vain. For people; who reads JSON asks `info`.
    fn tell_halted(&self, card: &Card) {
        if card.was_halted() {
            self.note(WAS_HALTED);
        }
    }

    /// Tells a person what is no failure.
    fn note(&self, what: &str) {
        if !self.args.json {
            eprintln!("dxpu-flash: {what}");
        }
    }

    /// Keys whose images a card starts: those that were named, its board's, and those that its
    /// settings trust.
    fn keys(&self, board: Option<&Board>, settings: &Policy) -> Outcome<Vec<TrustedKey>> {
        let mut trusted = board.map_or_else(Vec::new, |board| board.keys.clone());
        // The first of a number counts, as in the boot loader: its own before the settings'.
        trusted.extend_from_slice(&settings.keys);
        let named = |(id, path): &(_, std::path::PathBuf)| {
            let key = keys::read_public(path).map_err(|error| key_trouble(&error))?;
            Ok(TrustedKey { id: *id, key })
        };
        let named = self.args.trust.iter().map(named).collect::<Outcome<Vec<_>>>()?;
        if let Some(id) = twice(&named) {
            let what = format!("--trust names two keys with the number {id}");
            return Err(Failure::new(Kind::Input, what)
                .check("name the one that the card's boot loader was built with"));
        }
        // What a person says comes first.
        trusted.splice(0..0, named);
        Ok(trusted)
    }
}

fn unknown_board(name: BoardName) -> Failure {
    let known: Vec<String> = Board::built_in().iter().map(|board| board.name.to_string()).collect();
    Failure::new(Kind::Input, format!("there is no board {name} in this program"))
        .check(format!("it knows {}", known.join(", ")))
        .check("for another board give its file with --board-file (docs/boards.md)")
}

/// Reads an image that was named.
fn read_image(path: &Path) -> Outcome<Vec<u8>> {
    files::image(path).map_err(|error| cannot_read(path, &error))
}

/// Reads a program that was named: an ELF file, or the bytes as they are in flash.
fn read_program(path: &Path) -> Outcome<Vec<u8>> {
    files::program(path).map_err(|error| cannot_read(path, &error))
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    file_trouble(format!("cannot read {}: {error}", path.display()), error)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    file_trouble(format!("cannot write {}: {error}", path.display()), error)
}

/// What is wrong with a file, and what to do about it.
fn file_trouble(what: impl std::fmt::Display, error: &io::Error) -> Failure {
    use io::ErrorKind;
    Failure::new(Kind::Input, what).check(match error.kind() {
        ErrorKind::NotFound => "is its name right? It is looked for from the current folder on",
        ErrorKind::PermissionDenied => {
            "may you read and write it, and its folder? `ls -l` shows it"
        }
        ErrorKind::AlreadyExists => {
            "nothing is overwritten: give another name, or take the file away"
        }
        ErrorKind::ResourceBusy => {
            "wait until the other one is done, or give another name; nothing of it was touched"
        }
        ErrorKind::IsADirectory => "give a file in that folder",
        ErrorKind::InvalidFilename => "give a shorter name: files' names have 255 bytes at most",
        ErrorKind::StorageFull => "make room on its disk, or give a file on another",
        ErrorKind::FileTooLarge | ErrorKind::InvalidData => "is it the file that is meant?",
        _ => "is its disk there, and does it work? Try a copy of the file on another",
    })
}

/// What is wrong with a key's file.
fn key_trouble(error: &KeyError) -> Failure {
    match error {
        KeyError::Read { error: why, .. } | KeyError::Write { error: why, .. } => {
            file_trouble(error, why)
        }
        KeyError::NotAKey { .. } => Failure::new(Kind::Input, error)
            .check("`dxpu-flash image keygen` writes two files: which of them is wanted?"),
        KeyError::Random(_) => {
            Failure::new(Kind::Other, error).check("make the key on another computer")
        }
    }
}

fn reset(bench: &Bench, halt: bool) -> Outcome<()> {
    let mut card = bench.card()?;
    if halt {
        card.reset_and_halt()?;
    } else {
        card.reset()?;
    }
    let state = if halt { "halted before its first instruction" } else { "reset" };
    let body = serde_json::json!({ "board": card.board.name.as_str(), "card": state });
    bench.out.print(&body, |_| format!("{}: {state}", card.board.name))
}
