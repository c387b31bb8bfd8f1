//! Configuration space and BARs at random: what a host proxy has to survive.

use crate::function::{Bar, Function, address};
use anyhow::Result;
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
    /// Leave the bridges' bus numbers and windows, and the BARs, as they are
    #[arg(long)]
    gently: bool,
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
    let mut functions = Vec::new();
    for name in &args.functions {
        let function = Function::open(name)?;
        // A bridge has no BARs, and one without room has none either.
        let bars = function.enable().map(|()| function.bars()).unwrap_or_default();
        functions.push((function, bars));
    }
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let (mut accesses, mut failed) = (0_u64, 0_u64);
    while Instant::now() < end {
        let which = random.below(functions.len() as u64) as usize;
        let (function, bars) = &functions[which];
        accesses += 1;
        match random.below(4) {
            0 | 1 if !bars.is_empty() => {
                let bar = &bars[random.below(bars.len() as u64) as usize];
                access_bar(bar, &mut random);
            }
            _ => failed += u64::from(!access_config(function, args.gently, &mut random)),
        }
    }
    println!("{accesses} accesses, {failed} refused by the kernel");
    Ok(())
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

/// Whether the kernel let it happen.
fn access_config(function: &Function, gently: bool, random: &mut Random) -> bool {
    let size = 1 << random.below(3);
    let space = if random.below(2) == 0 { 256 } else { 4096 };
    let at = random.below(space / size) * size;
    let mut bytes = random.next().to_le_bytes();
    let bytes = &mut bytes[..size as usize];
    let spared = gently && (0x10..0x34).contains(&at);
    if random.below(2) == 0 || spared {
        return function.config().read_at(bytes, at).is_ok();
    }
    function.config().write_at(bytes, at).is_ok()
}
