//! The command line.

use crate::minimise;
use crate::profile::{BUILT_IN, Profile, quick};
use crate::random::mix;
use crate::run::{Outcome, Recording, Run, keep_panics};
use crate::schedule::{self, Entry};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand, value_parser};
use processes::quoted;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often it is shown how far it is; and how often that is a line in a file.
const SHOWN: Duration = Duration::from_millis(500);
const LOGGED: Duration = Duration::from_secs(30);

/// Simulates a whole fabric from seeds and watches that every promise is kept.
///
/// Exit status: 0 when every seed kept every promise, 1 when one did not or `bench` was too slow, 2
/// when it could not run.
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
    Bench {
        /// Exit status 1 when the median is less, in TLPs a second.
        #[arg(long, value_name = "RATE")]
        at_least: Option<u64>,
    },
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
    /// One JSON object for each seed that broke a promise, and one for each profile.
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
    if text.contains("..=") {
        return Err(format!("{text}: a range is A..B, of which B is not in it"));
    }
    let number = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => {
            let seed = number(text)?;
            let next = seed.checked_add(1);
            seed..next.ok_or_else(|| format!("{text}: the last seed is {}", seed - 1))?
        }
    };
    if range.is_empty() { Err(format!("{text}: no seed is in it")) } else { Ok(range) }
}

/// The program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    keep_panics();
    let result = match cli.command {
        Some(Command::Bench { at_least }) => bench(at_least),
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

/// Seconds that a core spent on this thread: what else the computer does counts for nothing.
fn core_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Three runs; the median of their rates. Whether it is as much as it has to be.
fn bench(at_least: Option<u64>) -> Result<bool> {
    let profile = Profile::find("bench")?;
    let mut rates = Vec::new();
    for seed in 1..=3 {
        let run = Run::new(seed, &profile);
        let begin = core_seconds();
        let outcome = run.go();
        let rate = outcome.tlps as f64 / (core_seconds() - begin);
        if let Some(violation) = outcome.violation {
            println!("seed {seed} broke promise {}: {}", violation.promise, violation.what);
            return Ok(false);
        }
        println!("seed {seed}: {} TLPs, {rate:.0} a second", outcome.tlps);
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    println!("median: {:.0} TLPs a second on one core", rates[1]);
    let enough = at_least.is_none_or(|least| rates[1] >= least as f64);
    if !enough {
        println!("it has to be {} at least", at_least.unwrap_or_default());
    }
    Ok(enough)
}

/// What all seeds of a profile came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    tlps: u64,
    operations: u64,
    bindings: u64,
    broken: u64,
    /// Of all that happened, whichever seed came to its end first.
    hash: u64,
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
        let mut written: Vec<_> = [&self.trace, &self.pcap, &self.minimise, &self.schedule]
            .into_iter()
            .flatten()
            .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()))
            .collect();
        written.sort();
        let twice = written.windows(2).find(|pair| pair[0] == pair[1]);
        if let Some([path, _]) = twice {
            bail!("{} is said twice: each file is for one thing", path.display());
        }
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
        let mut run = Run::of(seed, profile, self.whole_schedule(seed, profile)?);
        self.record(&mut run)?;
        Ok(run)
    }

    fn whole_schedule(&self, seed: u64, profile: &Profile) -> Result<Vec<Entry>> {
        match &self.schedule {
            None => Ok(schedule::make(seed, profile)),
            Some(path) => read_schedule(path, profile),
        }
    }

    /// Whether all that was wanted of a run was recorded.
    fn check_recorded(&self, outcome: &Outcome) -> Result<()> {
        let Some((record, why)) = &outcome.unwritten else { return Ok(()) };
        let (what, path) = match record {
            Recording::Trace => ("trace", &self.trace),
            Recording::Capture => ("capture", &self.pcap),
        };
        let path = path.as_deref().unwrap_or(Path::new("")).display();
        bail!("the {what} {path} cannot be written: {why}")
    }

    /// Trace and capture of a run, if they are wanted.
    fn record(&self, run: &mut Run) -> Result<()> {
        if let Some(path) = &self.trace {
            run.trace_to(path).with_context(|| format!("the trace {}", path.display()))?;
        }
        if let Some(path) = &self.pcap {
            run.capture_to(path).with_context(|| format!("the capture {}", path.display()))?;
        }
        Ok(())
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
                    let (all, end) = (Ordering::Relaxed, self.seeds.end);
                    let take = |seed| (seed < end).then(|| seed + 1);
                    while !stop.load(all) {
                        let Ok(seed) = next.fetch_update(all, all, take) else { break };
                        let outcome = self.prepare(seed, profile).map(Run::go);
                        if results.send(outcome).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(results);
            let mut shown = Instant::now();
            let every = if std::io::stderr().is_terminal() { SHOWN } else { LOGGED };
            for outcome in arrived {
                let outcome = outcome.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                sum.seeds += 1;
                sum.tlps += outcome.tlps;
                sum.operations += outcome.operations;
                sum.bindings += outcome.bindings as u64;
                sum.hash = sum.hash.wrapping_add(mix(outcome.hash ^ outcome.seed));
                if outcome.violation.is_some() {
                    sum.broken += 1;
                    self.tell(name, &outcome, self.schedule.as_deref(), json!({}));
                    if !self.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                self.check_recorded(&outcome)?;
                if shown.elapsed() > every {
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
        let all = self.seeds.end - self.seeds.start;
        let line = format!("{name}: {} of {all} seeds, {} TLPs", sum.seeds, sum.tlps);
        // Where it cannot be said nothing is lost.
        let _ = if out.is_terminal() { write!(out, "\r{line} ") } else { writeln!(out, "{line}") };
    }

    fn conclude(&self, name: &str, sum: &Sum, took: Duration) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let seconds = took.as_secs_f64();
        if self.json {
            let line = json!({
                "profile": name, "seeds": sum.seeds, "broken": sum.broken, "tlps": sum.tlps,
                "operations": sum.operations, "bindings": sum.bindings, "seconds": seconds,
                "hash": format!("{:016x}", sum.hash),
            });
            println!("{line}");
            return;
        }
        println!(
            "{name}: {} seeds, {} broken; {} TLPs, {} operations, {} bindings in {seconds:.1} s ({:.0} TLPs a \
             second); hash {:016x}",
            sum.seeds,
            sum.broken,
            sum.tlps,
            sum.operations,
            sum.bindings,
            sum.tlps as f64 / seconds,
            sum.hash
        );
    }

    /// The command that plays a seed again, with that schedule.
    fn replay(&self, name: &str, seed: u64, schedule: Option<&Path>) -> String {
        let mut command = format!("{} --seeds {seed} --profile {}", program(), quoted(name));
        if let Some(nodes) = self.nodes {
            command += &format!(" --nodes {nodes}");
        }
        if let Some(path) = schedule {
            command += &format!(" --schedule {}", quoted(&path.to_string_lossy()));
        }
        // Of a profile that is a file, the records lie where the command is given.
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let [trace, capture] = ["txt", "pcap"].map(|kind| quoted(&format!("{stem}-{seed}.{kind}")));
        format!("{command} --trace {trace} --pcap {capture}")
    }

    /// What a seed broke. `more` is said, too, in JSON.
    fn tell(&self, name: &str, outcome: &Outcome, schedule: Option<&Path>, more: Value) {
        let Some(violation) = &outcome.violation else { return };
        let replay = self.replay(name, outcome.seed, schedule);
        if self.json {
            let mut line = json!({ "profile": name, "outcome": outcome, "replay": replay });
            if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
                line.extend(more);
            }
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
        println!("to see all of it: {replay}");
    }

    fn minimise(&self, profile: &Profile, path: &Path) -> Result<bool> {
        let seed = self.seeds.start;
        let whole = self.whole_schedule(seed, profile)?;
        // It takes thousands of runs: what cannot be written is found out before.
        let places = [Some(path), self.trace.as_deref(), self.pcap.as_deref()];
        let _outputs = places.into_iter().flatten().map(Output::at).collect::<Result<Vec<_>>>()?;
        let found = minimise::shrink(seed, profile, whole.clone(), |left, tried| {
            eprintln!("{left} entries left after {tried} runs");
        });
        let again = |schedule: Vec<Entry>| {
            if self.trace.is_none() && self.pcap.is_none() {
                return Ok(());
            }
            let mut run = Run::of(seed, profile, schedule);
            self.record(&mut run)?;
            self.check_recorded(&run.go())
        };
        let Some(found) = found else {
            if self.json {
                println!("{}", json!({ "profile": self.profile, "seed": seed, "broken": 0 }));
            } else {
                println!("seed {seed} keeps every promise; there is nothing to shrink");
            }
            again(whole)?;
            return Ok(true);
        };
        let text = serde_json::to_string_pretty(&found.schedule)?;
        std::fs::write(path, text).with_context(|| format!("{} is not written", path.display()))?;
        let (left, before) = (found.schedule.len(), found.before);
        let more = json!({ "entries": left, "entries_before": before });
        self.tell(&self.profile, &found.outcome, Some(path), more);
        if !self.json {
            println!("{left} of {before} entries are enough: {}", path.display());
        }
        again(found.schedule)?;
        Ok(false)
    }
}

/// A file that will be written.
struct Output<'a> {
    path: &'a Path,
    /// It was not there before.
    new: bool,
}

impl<'a> Output<'a> {
    /// Makes sure that it can be; what is in it stays until then.
    fn at(path: &'a Path) -> Result<Self> {
        let new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self { path, new })
    }
}

impl Drop for Output<'_> {
    /// Takes it away again where nothing was written to it.
    fn drop(&mut self) {
        if self.new && self.path.metadata().is_ok_and(|file| file.len() == 0) {
            // An empty file that stays does no harm.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// What runs this program again: whoever started it may know better than it does.
fn program() -> String {
    std::env::var("DXPU_SIM_COMMAND").unwrap_or_else(|_| {
        quoted(&std::env::args().next().unwrap_or_else(|| "dxpu-sim".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        assert_eq!(seeds("5"), Ok(5..6));
        assert!(seeds("7..7").is_err() && seeds("x").is_err() && seeds("1..y").is_err());
        let last = u64::MAX - 1;
        assert_eq!(seeds(&last.to_string()), Ok(last..u64::MAX));
        assert!(seeds(&u64::MAX.to_string()).unwrap_err().contains(&last.to_string()));
    }

    #[test]
    fn the_last_seed_is_the_last_one_on_every_thread() {
        let args = ["dxpu-sim", "--seeds", "18446744073709551614", "--profile", "calm", "--jobs"];
        let cli = Cli::parse_from(args.into_iter().chain(["4"]));
        let sum = cli.seeds.run_profile("calm", &Profile::calm()).unwrap();
        assert_eq!((sum.seeds, sum.broken), (1, 0));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
