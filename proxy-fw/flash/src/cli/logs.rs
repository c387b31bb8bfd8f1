//! `log`: the firmware's log, live.

use std::io::{self, IsTerminal};
use std::path::Path;

use card_image::{Header, PayloadCheck, SlotId};

use super::args::{Level, Log, Uart};
use super::output::next_line;
use super::write::{InSlots, headers};
use super::{Bench, read_program};
use crate::card::Card;
use crate::failure::{Failure, Kind, Outcome};
use crate::image::{from_elf, purpose};
use crate::log::source::{FileSource, RttSource, Source, TcpSource};
use crate::log::{Line, Texts};

/// Damaged frames after which that is said where nothing else came and nothing follows. Fewer are what a
/// line makes up when power comes.
const TOO_FEW: u64 = 3;

/// Damaged frames in a row after which it is said that the ELF file may be another's.
const SUSPICIOUS: u64 = 10;

pub(super) fn log(bench: &Bench, said: &Log) -> Outcome<()> {
    let elf = read_program(&said.elf)?;
    let texts = Texts::parse(&elf)
        .map_err(|error| Failure::new(Kind::Input, format!("{}: {error}", said.elf.display())))?;
    let mut source: Box<dyn Source> = match &said.uart {
        Some(Uart::File(path)) => Box::new(FileSource::open(path, !said.no_follow)?),
        Some(Uart::Tcp(address)) => Box::new(TcpSource::connect(*address)?),
        None => {
            let mut card = bench.card()?;
            let build = find_build(&mut card, &elf)?;
            // What stands still says nothing.
            bench.tell_halted(&card);
            let Some(build) = build else {
                let what = format!("{} is not what is on the card", said.elf.display());
                return Err(Failure::new(Kind::Image, what).checks(&[
                    "give the ELF file that the card's image was built of: its log is numbers that only that file explains",
                    "`dxpu-flash info` shows what is on the card",
                ]));
            };
            if let Some(told) = build.not_started() {
                bench.note(&told);
            }
            Box::new(RttSource::attach(card, &elf)?)
        }
    };
    // Over a probe the card's own images were looked at.
    let role = purpose(&elf).map(|purpose| purpose.role).filter(|_| said.uart.is_some());
    show(bench, said.level, (&texts, role), &mut *source)
}

/// The words with which a boot loader says what it starts, up to the slot.
const STARTING: &str = "starting slot ";

/// What to tell where a console's boot loader starts a firmware of another role than the ELF file's.
fn other_role(lines: &[Line], role: &str) -> Option<String> {
    let started = lines.iter().filter(|line| line.level.is_none()).find_map(|line| {
        let (_, image) = line.text.strip_prefix(STARTING)?.split_once(": ")?;
        let started = image.split(' ').next()?;
        ["box", "host"].contains(&started).then_some(started)
    })?;
    (started != role).then(|| {
        format!(
            "this is the ELF file of a {role}, and a {started} is started: its log is explained wrong; give \
             its own ELF file"
        )
    })
}

fn show(
    bench: &Bench,
    level: Level,
    (texts, role): (&Texts, Option<String>),
    source: &mut dyn Source,
) -> Outcome<()> {
    let colors = !bench.args.json
        && io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut decoder = texts.decoder();
    let mut bytes = [0; 4096];
    // Frames that were damaged before the last good one. What a boot loader says in words is none.
    let (mut good_until, mut decoded) = (0, 0);
    let (mut told, mut told_role) = (false, false);
    loop {
        let some = source.next(&mut bytes)?;
        let lines = match some {
            0 => decoder.finish(),
            _ => decoder.take(&bytes[..some]),
        };
        if decoder.decoded() > decoded {
            (decoded, good_until) = (decoder.decoded(), decoder.damaged());
        }
        let is_none = some == 0 && decoded == 0 && decoder.damaged() >= TOO_FEW;
        if !told && (is_none || decoder.damaged() >= good_until + SUSPICIOUS) {
            told = true;
            bench.note(
                "nothing of the log can be decoded; is it the ELF file of the firmware that runs?",
            );
        }
        let other =
            role.as_deref().filter(|_| !told_role).and_then(|role| other_role(&lines, role));
        if let Some(other) = other {
            told_role = true;
            bench.note(&other);
        }
        for one in lines.iter().filter(|one| is_shown(one, level)) {
            if !next_line(&if bench.args.json { json(one) } else { text(one, colors) })? {
                return Ok(());
            }
        }
        if some == 0 {
            return Ok(());
        }
    }
}

/// Lines without a level are always shown.
fn is_shown(line: &Line, least: Level) -> bool {
    line.level.as_deref().and_then(level_of).is_none_or(|level| level >= least)
}

fn level_of(name: &str) -> Option<Level> {
    Some(match name {
        "trace" => Level::Trace,
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => return None,
    })
}

fn json(line: &Line) -> String {
    serde_json::to_string(line).expect("a line is JSON")
}

fn text(line: &Line, colors: bool) -> String {
    let level = line.level.as_deref().unwrap_or("");
    let level = match (colors, level_of(level)) {
        (true, Some(Level::Error)) => format!("\x1b[31m{level:5}\x1b[0m"),
        (true, Some(Level::Warn)) => format!("\x1b[33m{level:5}\x1b[0m"),
        (true, Some(Level::Info)) => format!("\x1b[32m{level:5}\x1b[0m"),
        _ => format!("{level:5}"),
    };
    let time = line.time.as_deref().unwrap_or("");
    let place = line.place.as_deref().map_or(String::new(), |place| format!("  ({})", near(place)));
    format!("{time} {level} {}{place}", line.text).trim_start().to_owned()
}

/// A place in the source as one names it from here.
fn near(place: &str) -> &str {
    let here = std::env::current_dir().ok();
    let from_here = here.and_then(|here| Path::new(place).strip_prefix(here).ok()?.to_str());
    from_here.unwrap_or(place)
}

/// Where on the card the image of an ELF file is.
struct Build {
    slots: Vec<SlotId>,
    /// The slot that is started, where that is recorded.
    started: Option<SlotId>,
}

impl Build {
    /// What to tell where only the slot that is not started has it: its numbers may explain another
    /// image's log wrong. Which image runs is not known for sure: a reset may have come between.
    fn not_started(&self) -> Option<String> {
        let started = self.started.filter(|slot| !self.slots.contains(slot))?;
        let slot = started.other();
        Some(format!(
            "this is slot {slot}'s image; slot {started} is the one that is started, and where that one \
             runs its log is explained wrong: give its ELF file"
        ))
    }
}

/// Looks for the image of an ELF file in the card's slots. None: neither has it.
fn find_build(card: &mut Card, elf: &[u8]) -> Outcome<Option<Build>> {
    let program = from_elf(elf)
        .map_err(|error| Failure::new(Kind::Input, format!("the ELF file: {error}")))?;
    let InSlots { next, there, .. } = headers(card)?;
    let has_it = |header: &Header| {
        let mut payload = PayloadCheck::new();
        payload.update(&program.payload);
        payload.finish(header).is_ok()
    };
    let slots: Vec<SlotId> =
        there.iter().filter(|(_, header)| has_it(header)).map(|(slot, _)| *slot).collect();
    Ok((!slots.is_empty()).then_some(Build { slots, started: next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: Option<&str>) -> Line {
        let level = level.map(str::to_owned);
        Line { time: Some("12".into()), level, text: "up".into(), place: Some("a.rs:3".into()) }
    }

    #[test]
    fn an_image_that_is_not_started_is_told() {
        use SlotId::{A, B};
        let told = |slots: &[SlotId], started| Build { slots: slots.into(), started }.not_started();
        let words = told(&[A], Some(B)).unwrap();
        assert!(words.starts_with("this is slot a's image; slot b is the one that is started"));
        for (slots, started) in [(&[A][..], Some(A)), (&[A, B], Some(B)), (&[B], None)] {
            assert_eq!(told(slots, started), None, "{slots:?} {started:?}");
        }
    }

    #[test]
    fn a_console_with_another_role_is_told() {
        let lines = |text: &str| [Line { text: text.into(), ..said(None) }];
        let told = other_role(&lines("starting slot b: box 0.2.0+0"), "host").unwrap();
        assert!(told.contains("the ELF file of a host, and a box is started"), "{told}");
        for other in
            ["starting slot b: host 0.2.0+0", "starting slot b: any 1.0.0+0", "slot b: box 1"]
        {
            assert_eq!(other_role(&lines(other), "host"), None, "{other}");
        }
    }

    #[test]
    fn lines_are_filtered_and_shown() {
        assert!(is_shown(&said(Some("warn")), Level::Warn));
        assert!(!is_shown(&said(Some("info")), Level::Warn));
        assert!(is_shown(&said(None), Level::Error));
        assert_eq!(text(&said(Some("info")), false), "12 info  up  (a.rs:3)");
        assert_eq!(text(&said(Some("error")), true), "12 \x1b[31merror\x1b[0m up  (a.rs:3)");
        assert_eq!(json(&said(None)), r#"{"time":"12","level":null,"text":"up","place":"a.rs:3"}"#);
    }
}
