//! Configuration space and BARs at random: what a host proxy has to survive.

use crate::function::{Bar, Function, address};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The functions, such as 10000:04:00.0; nothing of them is in use
    #[arg(value_parser = address, required = true)]
    functions: Vec<String>,
    /// How long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Put right, after so many accesses, what requests need to get to a function: bus numbers,
    /// windows, BARs, control registers; and leave Slot Control alone, by which a host lets go of a
    /// device. Without, a bridge is soon one that nothing passes
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    mend_every: Option<u64>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Accesses to BARs.
    memory: u64,
    /// Random accesses to configuration space.
    configuration: u64,
    /// Of these, those that the kernel refused.
    refused: u64,
    /// Writes to configuration space that put something right.
    mending: u64,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        host_model::accelerator::regs::pattern_word(self.0, 0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut random = Random(args.seed);
    // From the root port down: a function is reached by what is above it.
    let names: BTreeSet<&String> = args.functions.iter().collect();
    let (mut functions, mut bars) = (Vec::new(), Vec::new());
    for name in names {
        let function = Function::open(name)?;
        // A bridge has no BARs, and one without room has none either.
        bars.extend(function.enable().map(|()| function.bars()).unwrap_or_default());
        functions.push(function);
    }
    let settings = functions.iter().map(Settings::of).collect::<Result<Vec<_>>>()?;
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut report = Report::default();
    while Instant::now() < end {
        if random.below(2) == 0 && !bars.is_empty() {
            report.memory += 1;
            access_bar(&bars[random.below(bars.len() as u64) as usize], &mut random);
        } else {
            report.configuration += 1;
            let which = random.below(functions.len() as u64) as usize;
            let function = &functions[which];
            let spared = settings[which].slot_control.filter(|_| args.mend_every.is_some());
            report.refused += u64::from(!access_config(function, spared, &mut random));
        }
        let done = report.memory + report.configuration;
        if args.mend_every.is_some_and(|every| done.is_multiple_of(every)) {
            for (function, settings) in functions.iter().zip(&settings) {
                report.mending += settings.write(function);
            }
        }
    }
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        let Report { memory, configuration, refused, mending } = report;
        println!(
            "{memory} accesses to BARs, {configuration} to configuration space, of which the \
             kernel refused {refused}; {mending} writes that put things right"
        );
    }
    Ok(())
}

/// What a function's registers have to hold so that requests get there: offset and bytes, in the
/// order of writing.
struct Settings {
    places: Vec<(u64, Vec<u8>)>,
    /// Where Slot Control is.
    slot_control: Option<u64>,
}

/// PCI Express and power management (PCI Code and ID Assignment Specification, section 2).
const EXPRESS: u8 = 0x10;
const POWER: u8 = 0x01;

impl Settings {
    fn of(function: &Function) -> Result<Self> {
        let mut space = [0; 256];
        function.config().read_exact_at(&mut space, 0).context("reading configuration space")?;
        let (mut places, mut slot_control) = (Vec::new(), None);
        // Capabilities: the list's length is bounded by the room for it.
        let mut at = usize::from(space[0x34] & !3);
        for _ in 0..48 {
            if !(0x40..=0xe0).contains(&at) {
                break;
            }
            match space[at] {
                // Device, Link and Slot Control.
                EXPRESS => {
                    places.extend([(at + 8, 2), (at + 0x10, 2), (at + 0x18, 2)]);
                    slot_control = Some(at as u64 + 0x18);
                }
                // Control and Status: D0.
                POWER => places.push((at + 4, 2)),
                _ => {}
            }
            at = usize::from(space[at + 1] & !3);
        }
        match space[0x0e] & 0x7f {
            // Bus numbers, windows, Bridge Control.
            1 => places.extend([
                (0x18, 4),
                (0x1c, 2),
                (0x20, 4),
                (0x24, 4),
                (0x28, 4),
                (0x2c, 4),
                (0x3e, 2),
            ]),
            _ => places.extend((0x10..0x28).step_by(4).map(|bar| (bar, 4))),
        }
        places.push((4, 2));
        let bytes = |(at, len): (usize, usize)| (at as u64, space[at..at + len].to_vec());
        Ok(Self { places: places.into_iter().map(bytes).collect(), slot_control })
    }

    /// Writes them, and says how many; what the kernel refuses stays as it is.
    fn write(&self, function: &Function) -> u64 {
        for (at, bytes) in &self.places {
            let _ = function.config().write_at(bytes, *at);
        }
        self.places.len() as u64
    }
}

fn access_bar(bar: &Bar, random: &mut Random) {
    let size = 1 << random.below(4);
    let at = random.below(bar.len() as u64 / 8) * 8 + random.below(8 / size) * size;
    let value = random.next();
    let write = random.below(2) == 0;
    match (size, write) {
        (1, false) => drop(bar.read8(at)),
        (1, true) => bar.write8(at, value as u8),
        (8, false) => drop(bar.read64(at)),
        (8, true) => bar.write64(at, value),
        (_, false) => drop(bar.read32(at & !3)),
        (_, true) => bar.write32(at & !3, value as u32),
    }
}

/// Whether the kernel let it happen. The word at `spared` is not written.
fn access_config(function: &Function, spared: Option<u64>, random: &mut Random) -> bool {
    let size = 1 << random.below(3);
    let space = if random.below(2) == 0 { 256 } else { 4096 };
    let at = random.below(space / size) * size;
    let mut bytes = random.next().to_le_bytes();
    let bytes = &mut bytes[..size as usize];
    let spare = spared.is_some_and(|word| at < word + 2 && word < at + size);
    if random.below(2) == 0 || spare {
        return function.config().read_at(bytes, at).is_ok();
    }
    function.config().write_at(bytes, at).is_ok()
}
