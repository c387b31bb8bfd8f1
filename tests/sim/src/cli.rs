//! The command line.

use crate::minimise;
use crate::profile::{BUILT_IN, Profile, quick};
use crate::run::{Outcome, Run, keep_panics};
use crate::schedule::{self, Entry};
use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, value_parser};
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Simulates a whole fabric from seeds and watches that every promise is kept.
///
/// Exit status: 0 when every seed kept every promise, 1 when one did not, 2 when it could not run.
#[derive(Parser)]
#[command(name = "dxpu-sim", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Subcommand)]
enum Command {
    /// How many TLPs are simulated in a second on one core, proxies and oracles and all.
    Bench,
    /// The profiles that are built in.
    Profiles,
}

#[derive(Args)]
struct Seeds {
    /// Seeds, from A to before B; or one seed.
    #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "0..100")]
    seeds: Range<u64>,
    /// A profile that is built in, a TOML file, or `all`: every built-in one but day and bench.
    #[arg(long, value_name = "NAME", default_value = "all")]
    profile: String,
    /// Other than the profile's number of nodes: half of them hosts.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Threads, 1 to 1024; each runs one seed at a time.
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// One JSON object for each seed that broke a promise, and one at the end.
    #[arg(long)]
    json: bool,
    /// Writes every event of the seed here, as text.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Writes every frame of the seed here, as a capture that Wireshark opens.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Plays this schedule (JSON, as --minimise writes it) instead of the seed's own.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Shrinks the schedule of a seed that breaks a promise, and writes it here.
    #[arg(long, value_name = "FILE")]
    minimise: Option<PathBuf>,
    /// Goes on after the first seed that breaks a promise.
    #[arg(long)]
    keep_going: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(text)?..number(text)? + 1,
    };
    if range.is_empty() { Err(format!("{text}: no seed is in it")) } else { Ok(range) }
}

/// The program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    keep_panics();
    let result = match cli.command {
        Some(Command::Bench) => bench(),
        Some(Command::Profiles) => profiles(),
        None => cli.seeds.run(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("dxpu-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn profiles() -> Result<bool> {
    for (name, _) in BUILT_IN {
        println!("{name:<10} {}", Profile::find(name)?.about);
    }
    Ok(true)
}

/// Three runs; the median of their rates.
fn bench() -> Result<bool> {
    let profile = Profile::find("bench")?;
    let mut rates = Vec::new();
    for seed in 1..=3 {
        let run = Run::new(seed, &profile);
        let begin = Instant::now();
        let outcome = run.go();
        let rate = outcome.tlps as f64 / begin.elapsed().as_secs_f64();
        let broken = outcome.violation.map(|v| v.what);
        ensure!(broken.is_none(), "seed {seed}: {}", broken.unwrap_or_default());
        println!("seed {seed}: {} TLPs, {rate:.0} a second", outcome.tlps);
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    println!("median: {:.0} TLPs a second on one core", rates[1]);
    Ok(true)
}

/// What all seeds of a profile came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    tlps: u64,
    operations: u64,
    bindings: u64,
    broken: u64,
}

fn read_schedule(path: &Path, profile: &Profile) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the schedule {} cannot be read", path.display()))?;
    let wrong = || format!("the schedule {} is not right", path.display());
    let list: Vec<Entry> = serde_json::from_str(&text).with_context(wrong)?;
    schedule::check(&list, &profile.fabric).with_context(wrong)?;
    Ok(list)
}

impl Seeds {
    fn run(&self) -> Result<bool> {
        let names: Vec<&str> = match self.profile.as_str() {
            "all" => quick().collect(),
            name => vec![name],
        };
        let one = self.trace.is_some() || self.pcap.is_some() || self.schedule.is_some();
        if one || self.minimise.is_some() {
            let single = self.seeds.end - self.seeds.start == 1 && names.len() == 1;
            ensure!(
                single,
                "--trace, --pcap, --schedule and --minimise are of one seed and one profile: say \
                 --seeds N --profile NAME"
            );
        }
        let mut good = true;
        for name in names {
            let mut profile = Profile::find(name)?;
            if let Some(nodes) = self.nodes {
                profile = profile.with_nodes(nodes)?;
            }
            if let Some(path) = &self.minimise {
                return self.minimise(&profile, path);
            }
            let sum = self.run_profile(name, &profile)?;
            good &= sum.broken == 0;
            if !good && !self.keep_going {
                break;
            }
        }
        Ok(good)
    }

    fn prepare(&self, seed: u64, profile: &Profile) -> Result<Run> {
        let mut run = match &self.schedule {
            None => Run::new(seed, profile),
            Some(path) => Run::of(seed, profile, read_schedule(path, profile)?),
        };
        if let Some(path) = &self.trace {
            run.trace_to(path).with_context(|| format!("the trace {}", path.display()))?;
        }
        if let Some(path) = &self.pcap {
            run.capture_to(path).with_context(|| format!("the capture {}", path.display()))?;
        }
        Ok(run)
    }

    fn run_profile(&self, name: &str, profile: &Profile) -> Result<Sum> {
        let next = AtomicU64::new(self.seeds.start);
        let stop = AtomicBool::new(false);
        let (results, arrived) = mpsc::channel();
        let mut sum = Sum::default();
        let begin = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            for _ in 0..self.jobs {
                let (results, next, stop) = (results.clone(), &next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.seeds.end {
                            break;
                        }
                        let outcome = self.prepare(seed, profile).map(Run::go);
                        if results.send(outcome).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(results);
            let mut shown = Instant::now();
            for outcome in arrived {
                let outcome = outcome.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                sum.seeds += 1;
                sum.tlps += outcome.tlps;
                sum.operations += outcome.operations;
                sum.bindings += outcome.bindings as u64;
                if outcome.violation.is_some() {
                    sum.broken += 1;
                    self.tell(name, &outcome);
                    if !self.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                if shown.elapsed() > Duration::from_millis(500) {
                    shown = Instant::now();
                    self.progress(name, &sum);
                }
            }
            Ok(())
        })?;
        self.conclude(name, &sum, begin.elapsed());
        Ok(sum)
    }

    fn progress(&self, name: &str, sum: &Sum) {
        let mut out = std::io::stderr();
        if out.is_terminal() {
            let all = self.seeds.end - self.seeds.start;
            let _ = write!(out, "\r{name}: {} of {all} seeds, {} TLPs ", sum.seeds, sum.tlps);
        }
    }

    fn conclude(&self, name: &str, sum: &Sum, took: Duration) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let seconds = took.as_secs_f64();
        if self.json {
            let line = serde_json::json!({
                "profile": name, "seeds": sum.seeds, "broken": sum.broken, "tlps": sum.tlps,
                "operations": sum.operations, "bindings": sum.bindings, "seconds": seconds,
            });
            println!("{line}");
            return;
        }
        println!(
            "{name}: {} seeds, {} broken; {} TLPs, {} operations, {} bindings in {seconds:.1} s ({:.0} TLPs a \
             second)",
            sum.seeds,
            sum.broken,
            sum.tlps,
            sum.operations,
            sum.bindings,
            sum.tlps as f64 / seconds
        );
    }

    fn replay(&self, name: &str, seed: u64) -> String {
        let nodes = self.nodes.map(|n| format!(" --nodes {n}")).unwrap_or_default();
        let what = format!("./dx sim --seeds {seed} --profile {name}{nodes}");
        format!("{what} --trace {name}-{seed}.txt --pcap {name}-{seed}.pcap")
    }

    fn tell(&self, name: &str, outcome: &Outcome) {
        let Some(violation) = &outcome.violation else { return };
        if self.json {
            let replay = self.replay(name, outcome.seed);
            let line = serde_json::json!({
                "profile": name, "outcome": outcome, "replay": replay,
            });
            println!("{line}");
            return;
        }
        let promise = match violation.promise {
            0 => "liveness".to_owned(),
            n => format!("promise {n}"),
        };
        println!("seed {} of profile {name} broke {promise}: {}", outcome.seed, violation.what);
        println!("the last events before it:");
        for line in &outcome.story {
            println!("  {line}");
        }
        println!("to see all of it: {}", self.replay(name, outcome.seed));
    }

    fn minimise(&self, profile: &Profile, path: &Path) -> Result<bool> {
        let seed = self.seeds.start;
        let whole = match &self.schedule {
            Some(path) => read_schedule(path, profile)?,
            None => schedule::make(seed, profile),
        };
        let Some(found) = minimise::shrink(seed, profile, whole, |left, tried| {
            eprintln!("{left} entries left after {tried} runs");
        }) else {
            println!("seed {seed} keeps every promise; there is nothing to shrink");
            return Ok(true);
        };
        let text = serde_json::to_string_pretty(&found.schedule)?;
        std::fs::write(path, text).with_context(|| format!("{} is not written", path.display()))?;
        self.tell(&self.profile, &found.outcome);
        println!(
            "{} of {} entries are enough: {}; play them with --schedule {}",
            found.schedule.len(),
            found.before,
            path.display(),
            path.display()
        );
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        assert_eq!(seeds("5"), Ok(5..6));
        assert!(seeds("7..7").is_err() && seeds("x").is_err() && seeds("1..y").is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
