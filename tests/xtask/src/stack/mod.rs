//! How deep the stack of each firmware and of each boot loader can get, from its machine code.
//!
//! Each function's own bytes and whom it calls are read from its instructions ([`code`]). Where a
//! call goes through a register, it is taken to go to any function whose address the program has
//! anywhere; such calls are taken to nest [`UNKNOWN`] deep at most, since formatting text is what
//! they are for: a message, a value in it, a part of that, and where it is written to. Functions
//! that call themselves have no bound and are an error, but for those of [`RECURSIVE`].

mod code;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::firmware::{BOOT_LOADERS, folder};
use crate::report::Done;

/// Bytes that a card's stack may have (`boards/common/src/stack.rs`).
const BUDGET: u32 = 128 << 10;

/// Bytes that a boot loader's stack may have: what its linker's script leaves it at least
/// (`boards/common/boot.x`).
const BOOT_BUDGET: u32 = 64 << 10;

/// How deep calls through registers nest.
const UNKNOWN: usize = 4;

/// Functions that may call themselves, by parts of their names, and how often: the end of a life
/// says only what does not panic again; of a host's ports each is let go once; a link that is
/// enabled again is a hot reset, which is nothing else.
const RECURSIVE: [(&str, u32); 3] =
    [("rust_begin_unwind", 1), ("process_switch_events", 32), ("Pending::want", 1)];

/// Firmware.
const FIRMWARE: [&str; 4] = ["fw-box", "fw-host", "litex-box", "litex-host"];

/// Where a firmware's start-up code ends, and what may interrupt whatever runs then.
const MAIN: &str = "main";
const HANDLER: &str = "_start_trap";

/// Where a boot loader's first instructions end, and who gets traps, for whom the stack is empty again.
const BOOT: &str = "run_boot";
const BOOT_TRAPPED: &str = "boot_trapped";

/// Says how deep each program's stack gets, which the budget bounds.
pub(crate) fn check() -> Result<Done> {
    let mut details = Vec::new();
    let firmware = FIRMWARE.map(|name| (name, BUDGET));
    let boot_loaders = BOOT_LOADERS.map(|(name, _)| (name, BOOT_BUDGET));
    for (name, budget) in firmware.into_iter().chain(boot_loaders) {
        let path = folder().join(name);
        let Ok(bytes) = std::fs::read(&path) else {
            return Ok(Done::skipped("there is no firmware: its build was skipped"));
        };
        let program = Program::read(&bytes).with_context(|| path.display().to_string())?;
        let (main, most) = if budget == BUDGET {
            let (main, handler) = (program.deepest(MAIN)?, program.deepest(HANDLER)?);
            let most = main.bytes.saturating_add(handler.bytes);
            println!("{name}: {most} B of stack at most, {} of them in interrupts", handler.bytes);
            (main, most)
        } else {
            let mut main = program.deepest(BOOT)?;
            main.deepen(program.deepest(BOOT_TRAPPED)?);
            println!("{name}: {} B of stack at most", main.bytes);
            let most = main.bytes;
            (main, most)
        };
        for (name, frame) in main.path.iter().filter(|(_, frame)| *frame >= 256) {
            println!("    {frame:6} {name}");
        }
        ensure!(most <= budget, "{name} may need {most} B of stack: the budget is {budget}");
        details.push(format!("{name} {most} of {budget} B"));
    }
    Ok(Done::with(details.join(", ")))
}

/// A program's functions by their addresses.
struct Program {
    functions: BTreeMap<u32, (String, code::Function)>,
    /// Where each name is: several may be at one place.
    places: BTreeMap<String, u32>,
    /// Functions whose addresses the program has somewhere: Rust's, which have paths, and handlers
    /// of interrupts (`MachineTimer`). What else there is is assembly, which nothing comes back to.
    taken: Vec<u32>,
}

/// The deepest that a function gets.
#[derive(Clone, Default)]
struct Depth {
    bytes: u32,
    /// Who is on the stack then, with the bytes of each.
    path: Vec<(String, u32)>,
}

impl Program {
    fn read(elf: &[u8]) -> Result<Self> {
        let file = object::File::parse(elf).context("no ELF file")?;
        let mut starts = BTreeMap::new();
        let mut places = BTreeMap::new();
        for symbol in file.symbols() {
            let is_code = symbol
                .section_index()
                .and_then(|index| file.section_by_index(index).ok())
                .is_some_and(|section| section.kind() == SectionKind::Text);
            let name = symbol.name().unwrap_or_default();
            let is_place = name.is_empty() || name.starts_with('.') || name.starts_with('$');
            if is_code && !is_place && symbol.kind() != SymbolKind::Section {
                places.insert(name.to_owned(), symbol.address() as u32);
                let entry = starts.entry(symbol.address() as u32).or_insert((name, 0));
                entry.1 = entry.1.max(symbol.size() as u32);
            }
        }
        let mut functions = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for section in file.sections() {
            let base = section.address() as u32;
            let data = section.data().unwrap_or_default();
            match section.kind() {
                SectionKind::Text => {
                    let end = base + data.len() as u32;
                    for (&start, &(name, size)) in starts.range(base..end) {
                        // Assembly says no sizes: up to the next one.
                        let next = starts.range(start + 1..).next().map_or(end, |(at, _)| *at);
                        let size = if size > 0 { size } else { next.min(end) - start };
                        let from = (start - base) as usize;
                        let code = data.get(from..from + size as usize).context("a bad size")?;
                        let function = code::read(code, start);
                        numbers.extend(&function.numbers);
                        let name = format!("{:#}", rustc_demangle::demangle(name));
                        functions.insert(start, (name, function));
                    }
                }
                SectionKind::ReadOnlyData | SectionKind::Data => {
                    let (words, _) = data.as_chunks::<4>();
                    numbers.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
                }
                _ => {}
            }
        }
        let taken = functions.iter().filter(|(start, (name, _))| {
            numbers.contains(start) && (name.contains("::") || name.starts_with(char::is_uppercase))
        });
        let taken = taken.map(|(start, _)| *start).collect();
        let mut program = Self { functions, places, taken };
        program.add_what_is_left_to_them();
        Ok(program)
    }

    /// What a routine leaves to who calls it, as those that save registers do (`board-common`,
    /// `saved.rs`), lies below all that its caller calls.
    fn add_what_is_left_to_them(&mut self) {
        let functions = self.functions.iter().filter(|(_, (_, function))| function.leaves > 0);
        let leaves: BTreeMap<u32, u32> =
            functions.map(|(at, (_, function))| (*at, function.leaves)).collect();
        for (_, function) in self.functions.values_mut() {
            let left = function.calls.iter().filter_map(|to| leaves.get(to));
            function.frame = left.fold(function.frame, |sum, left| sum.saturating_add(*left));
        }
    }

    /// Where the function of that name is: the whole name, or in Rust the last of it.
    fn place(&self, name: &str) -> Option<&u32> {
        let is_last = |whole: &str| whole.rsplit("::").next() == Some(name);
        let by_path = || self.functions.iter().find(|(_, (whole, _))| is_last(whole));
        self.places.get(name).or_else(|| by_path().map(|(start, _)| start))
    }

    /// How deep the function of that name gets.
    fn deepest(&self, name: &str) -> Result<Depth> {
        let start = self.place(name);
        let start = start.with_context(|| format!("there is no function `{name}`"))?;
        let (known, rounds) = (HashMap::new(), HashMap::new());
        let mut search =
            Search { program: self, known, open: Vec::new(), rounds, closes: usize::MAX };
        search.depth(*start, UNKNOWN)
    }

    /// The function that begins there, or has that address inside it.
    fn containing(&self, at: u32) -> Option<u32> {
        self.functions.range(..=at).next_back().map(|(start, _)| *start)
    }
}

/// Depths that were found, and functions that are being looked at.
struct Search<'a> {
    program: &'a Program,
    known: HashMap<(u32, usize), Depth>,
    open: Vec<(u32, usize)>,
    /// What the rounds take by which open functions come to themselves again, and who goes them.
    rounds: HashMap<(u32, usize), (String, u32)>,
    /// The outermost of the open functions that was come to again.
    closes: usize,
}

impl Search<'_> {
    /// How deep a function gets when calls through registers nest so deep yet.
    fn depth(&mut self, start: u32, unknown: usize) -> Result<Depth> {
        let key = (start, unknown);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let program = self.program;
        let (name, function) = &program.functions[&start];
        if self.open.contains(&key) {
            let from = self.open.iter().position(|open| *open == key).unwrap_or(0);
            let round: Vec<_> =
                self.open[from..].iter().map(|(at, _)| &program.functions[at]).collect();
            let names: Vec<_> = round.iter().map(|(name, _)| &**name).collect();
            let known =
                RECURSIVE.iter().find(|(part, _)| names.iter().any(|name| name.contains(part)));
            let Some((_, times)) = known else {
                bail!("`{name}` calls itself, by {}: no stack is enough", names.join(", "));
            };
            let bytes = times * round.iter().map(|(_, function)| function.frame).sum::<u32>();
            let said = format!("{times} times: {}", names.join(", "));
            let entry = self.rounds.entry(key).or_default();
            if bytes > entry.1 {
                *entry = (said, bytes);
            }
            // All rounds are added where the first begins, to what it takes without them.
            self.closes = self.closes.min(from);
            return Ok(Depth::default());
        }
        let outside = std::mem::replace(&mut self.closes, usize::MAX);
        self.open.push(key);
        let mut below = Depth::default();
        for call in &function.calls {
            below.deepen(self.of(*call, unknown)?);
        }
        if function.calls_unknown {
            below.deepen(self.anybody(unknown)?);
        }
        let bytes = below.bytes.saturating_add(function.frame);
        let mut whole = Depth { bytes, path: below.path };
        whole.path.insert(0, (name.clone(), function.frame));
        // Its own bytes are given back then.
        for tail in &function.tails {
            whole.deepen(self.of(*tail, unknown)?);
        }
        if function.jumps_unknown {
            whole.deepen(self.anybody(unknown)?);
        }
        self.open.pop();
        if let Some((said, bytes)) = self.rounds.remove(&key) {
            whole.bytes = whole.bytes.saturating_add(bytes);
            whole.path.insert(0, (said, bytes));
        }
        if self.closes >= self.open.len() {
            self.known.insert(key, whole.clone());
            self.closes = usize::MAX;
        }
        // Else it lacks the rounds of what is open still.
        self.closes = self.closes.min(outside);
        Ok(whole)
    }

    fn of(&mut self, at: u32, unknown: usize) -> Result<Depth> {
        let start = self.program.containing(at);
        self.depth(start.with_context(|| format!("a call of {at:#x}, where no code is"))?, unknown)
    }

    /// The deepest of those that a register may hold.
    fn anybody(&mut self, unknown: usize) -> Result<Depth> {
        let mut deepest = Depth::default();
        if unknown > 0 {
            for start in self.program.taken.clone() {
                deepest.deepen(self.depth(start, unknown - 1)?);
            }
        }
        Ok(deepest)
    }
}

impl Depth {
    fn deepen(&mut self, other: Self) {
        if other.bytes > self.bytes {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions at the addresses 0, 10, 20, ... of so many bytes each, and whom each calls.
    fn program(functions: &[(&str, u32, &[u32])]) -> Program {
        let function = |(at, (name, frame, calls)): (u32, &(&str, u32, &[u32]))| {
            let calls = calls.iter().map(|callee| callee * 10).collect();
            let function = code::Function { frame: *frame, calls, ..code::Function::default() };
            (at * 10, (String::from(*name), function))
        };
        let functions = (0..).zip(functions).map(function).collect();
        Program { functions, places: BTreeMap::new(), taken: Vec::new() }
    }

    fn deepest(program: &Program, name: &str) -> u32 {
        program.deepest(name).unwrap().bytes
    }

    #[test]
    fn the_deepest_way_counts() {
        let calls = program(&[("main", 1, &[1, 2]), ("a", 5, &[]), ("b", 2, &[1])]);
        assert_eq!(deepest(&calls, "main"), 8);
    }

    #[test]
    fn what_is_left_to_a_function_lies_below_all_that_it_calls() {
        let mut calls = program(&[("main", 4, &[1, 2]), ("save", 32, &[]), ("a", 40, &[])]);
        calls.functions.get_mut(&10).unwrap().1.leaves = 32;
        calls.add_what_is_left_to_them();
        assert_eq!(deepest(&calls, "main"), 4 + 32 + 40);
    }

    /// Each round has its bytes, and the last one calls what lies deepest.
    #[test]
    fn what_the_last_round_calls_counts_behind_all_of_them() {
        let rounds = program(&[
            ("main", 1, &[3, 1]),
            ("process_switch_events", 100, &[2]),
            ("within", 10, &[1, 4]),
            ("beside", 1, &[2]),
            ("deep", 1000, &[]),
        ]);
        let whole = 32 * 110 + 110 + 1000;
        assert_eq!(deepest(&rounds, "process_switch_events"), whole);
        // Entered from its middle it begins with what is there, whoever was looked at first.
        assert_eq!(deepest(&rounds, "beside"), 1 + 32 * 110 + 10 + 1000);
        assert_eq!(deepest(&rounds, "main"), 1 + whole);
    }

    #[test]
    fn what_calls_itself_and_is_not_listed_has_no_bound() {
        let rounds = program(&[("main", 1, &[1]), ("again", 1, &[1])]);
        assert!(rounds.deepest("main").is_err_and(|error| error.to_string().contains("again")));
    }
}
