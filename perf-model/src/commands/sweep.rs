//! `dxpu-perf sweep`: a program's performance against the round trip.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use perf_core::{Nanos, Proxies, Range, Settings};
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::files;
use super::shim::ShimArgs;
use super::tell;
use crate::launch::{self, Launch, Said};
use crate::profile::Profile;
use crate::quantity;
use crate::report::{Curve, Page, Point, ranges};
use crate::signals::{Signals, Stopped};
use crate::sweep::{self, Better, Performance, Step};
use crate::table::Table;

/// What is asked of `dxpu-perf sweep`.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Round trips, as 2us..20us. What lies below the smallest that can be injected here is raised
    /// to it.
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    rtt: (Nanos, Nanos),
    /// How many, evenly.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// How often the program runs at each; from 2 on there are confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// A regular expression for the program's output whose first group is the metric; `^` and `$`
    /// are a line's ends, and the last match counts. Without it the metric is the time
    /// that the program runs, or that its ranges take (`--range profiler`).
    #[arg(long, value_name = "REGEX", value_parser = metric)]
    metric: Option<Regex>,
    /// A smaller metric is better.
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// The share of native performance, in percent, whose round trip is looked for.
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    level: f64,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The curve goes into this file as a page, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    shim: ShimArgs,
}

fn range(text: &str) -> Result<(Nanos, Nanos), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("{text:?}: FROM..TO is wanted, as 2us..20us"))?;
    let (from, to) = (quantity::time(from)?, quantity::time(to)?);
    if from > to {
        return Err(format!("{from} is longer than {to}"));
    }
    Ok((from, to))
}

fn metric(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).multi_line(true).build()
}

/// What a sweep found.
struct Found {
    profile: Profile,
    proxies: Proxies,
    command: Vec<String>,
    better: Better,
    native: Vec<f64>,
    steps: Vec<Step>,
    curve: Vec<Performance>,
    level: f64,
    at_level: Option<Nanos>,
    /// Why not all of it was measured.
    ended: Option<String>,
}

/// Does it.
///
/// # Errors
/// A run that fails, or whose output has no metric, after what was measured until then is said.
pub(super) fn run(args: &SweepArgs, out: &mut dyn Write) -> Result<ExitCode> {
    let profile = args.shim.profile(None)?;
    let settings = args.shim.settings(&profile)?;
    let launch = args.shim.launch()?;
    if !(args.level > 0.0 && args.level <= 100.0) {
        bail!("--level: {} is not above 0 and at most 100", args.level);
    }
    if let Some(path) = &args.html {
        files::probe(path)?;
    }
    let Measured { found, ended } = measure(args, &profile, &settings, &launch)?;
    let written = found.map_or(Ok(()), |found| found.write(args, out));
    let Some(error) = ended else { return written.map(|()| ExitCode::SUCCESS) };
    let Some(Stopped(signal)) = error.downcast_ref() else {
        return files::all([Err(error), written]).map(|()| ExitCode::SUCCESS);
    };
    let code = u8::try_from(128 + signal).unwrap_or(2);
    tell(&format!("{error:#}"));
    if let Err(error) = written {
        tell(&format!("{error:#}"));
    }
    Ok(ExitCode::from(code))
}

/// What came of a sweep.
struct Measured {
    /// What was measured, if that is something.
    found: Option<Found>,
    /// Why not all of it was.
    ended: Option<anyhow::Error>,
}

/// Runs the program at every round trip. The repetitions go through all round trips one after the
/// other, so that a machine that grows slower with time does not bend the curve.
fn measure(
    args: &SweepArgs,
    profile: &Profile,
    settings: &Settings,
    launch: &Launch,
) -> Result<Measured> {
    let native_rtt = profile.fabric.native_rtt;
    let least = profile.least_rtt();
    let (from, to) = (args.rtt.0.max(least), args.rtt.1.max(least));
    if profile.smallest_delay.is_none() {
        tell(
            "how small a delay can be is not known: `dxpu-perf calibrate` makes a --profile that says",
        );
    }
    if from > args.rtt.0 {
        tell(&format!("{} cannot be injected here; beginning at {from}", args.rtt.0));
    }
    let mut round_trips = vec![native_rtt];
    round_trips.extend(sweep::round_trips(from, to, args.steps));
    round_trips.dedup();
    if round_trips.len() == 1 {
        bail!("--rtt: every round trip would be the native one, {native_rtt}");
    }
    let signals = Signals::catch()?;
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); round_trips.len()];
    let mut measure = || {
        for repetition in 1..=args.repeat {
            for (rtt, values) in round_trips.iter().zip(&mut values) {
                let settings = at(profile, settings, *rtt)?;
                let value = one(args, &settings, launch, &signals)
                    .with_context(|| format!("run {repetition} at a round trip of {rtt}"))?;
                tell(&format!("run {repetition} of {} at {rtt}: {value}", args.repeat));
                values.push(value);
            }
        }
        Ok(())
    };
    let ended = measure().err();
    // Who ends this program from now on does not want what it says.
    drop(signals);
    let native = values.remove(0);
    round_trips.remove(0);
    let steps = round_trips.into_iter().zip(values).map(|(rtt, values)| Step { rtt, values });
    let steps: Vec<Step> = steps.filter(|step| !step.values.is_empty()).collect();
    if steps.is_empty() {
        return Ok(Measured { found: None, ended });
    }
    let better = match (&args.metric, args.lower_is_better) {
        (Some(_), false) => Better::Higher,
        _ => Better::Lower,
    };
    let curve = sweep::performances(&native, &steps, better);
    let level = args.level / 100.0;
    let at_level = sweep::falls_below(&curve, native_rtt, level);
    let found = Found {
        profile: profile.clone(),
        proxies: settings.proxies,
        command: launch::shown(&launch.command),
        better,
        native,
        steps,
        curve,
        level,
        at_level,
        ended: ended.as_ref().map(|error| format!("{error:#}")),
    };
    Ok(Measured { found: Some(found), ended })
}

/// What a run at a round trip is asked for. The native one is the machine as it is, where no copy is
/// pushed.
fn at(profile: &Profile, settings: &Settings, rtt: Nanos) -> Result<Settings> {
    let fabric = profile.fabric.with_rtt(rtt)?;
    let push_copies = settings.push_copies.filter(|_| !fabric.is_native());
    Ok(Settings { fabric, push_copies, ..*settings })
}

/// One run's metric.
fn one(args: &SweepArgs, settings: &Settings, launch: &Launch, signals: &Signals) -> Result<f64> {
    let said = if args.metric.is_some() { Said::Kept } else { Said::ToErrors };
    let outcome = launch.run(settings, said, signals, || ())?;
    if let Some(signal) = outcome.signal {
        return Err(Stopped(signal).into());
    }
    if let Some(ended) = launch::ended(outcome.status) {
        bail!("the program {ended}: {}", tail(&outcome.output));
    }
    if outcome.processes.is_empty() {
        bail!("no process called CUDA's driver through the shim: there is nothing to delay");
    }
    let ranges = ranges(&outcome.processes);
    if settings.range == Range::Profiler {
        if outcome.processes.iter().all(|process| process.ranges_begun == 0) {
            bail!(
                "no process called cuProfilerStart (torch.cuda.profiler.start()), as --range \
                 profiler wants: nothing was delayed"
            );
        }
        if ranges == Nanos::ZERO {
            bail!(
                "no process called CUDA's driver after cuProfilerStart, where --range profiler \
                 begins: nothing was delayed. Call it before the work that is to count"
            );
        }
    }
    let Some(metric) = &args.metric else {
        let time = if settings.range == Range::Profiler { ranges } else { outcome.wall };
        return Ok(time.0 as f64 / 1e9);
    };
    let output = String::from_utf8_lossy(&outcome.output);
    let group = metric
        .captures_iter(&output)
        .last()
        .and_then(|captures| captures.get(1).or_else(|| captures.get(0)))
        .with_context(|| {
            format!("--metric {metric} is nowhere in its output: {}", tail(&outcome.output))
        })?;
    let value: f64 = group
        .as_str()
        .trim()
        .parse()
        .with_context(|| format!("--metric {metric} found {:?}", group.as_str()))?;
    // Squares of them are numbers, too.
    if !(1e-150..1e150).contains(&value) {
        bail!("--metric {metric} found {value}: from 1e-150 to 1e150 is wanted");
    }
    Ok(value)
}

/// The end of a program's output.
fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    if lines.is_empty() {
        return "it wrote nothing".to_owned();
    }
    format!("it ends with {:?}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

fn percents(performance: &Performance) -> (String, String) {
    let interval = performance
        .interval
        .map_or("-".to_owned(), |(low, high)| format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high));
    (format!("{:.1}", 100.0 * performance.mean), interval)
}

impl Found {
    /// Says it, and writes the page: that last, so that the rest is said where it cannot be.
    fn write(&self, args: &SweepArgs, out: &mut dyn Write) -> Result<()> {
        let said = if args.json { self.write_json(out) } else { self.text(out) };
        let page =
            args.html.as_ref().map_or(Ok(()), |path| files::write(path, self.html().as_bytes()));
        files::all([said, page])
    }

    fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        serde_json::to_writer_pretty(&mut *out, &self.json())?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    fn verdict(&self) -> String {
        // As it was given: the share has no more places.
        let level = (1e10 * self.level).round() / 1e8;
        match (self.at_level, self.curve.last()) {
            (Some(rtt), _) => {
                format!("below {level} % of native performance from a round trip of {rtt} on")
            }
            (None, Some(last)) => {
                format!("{level} % of native performance and more up to {}", last.rtt)
            }
            (None, None) => "nothing was measured".to_owned(),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let mut rows = vec![vec![
            self.profile.fabric.native_rtt.to_string(),
            format!("{:.4}", mean(&self.native)),
            "100.0".to_owned(),
            "native".to_owned(),
        ]];
        for (step, performance) in self.steps.iter().zip(&self.curve) {
            let (percent, interval) = percents(performance);
            let metric = format!("{:.4}", mean(&step.values));
            rows.push(vec![step.rtt.to_string(), metric, percent, interval]);
        }
        rows
    }

    fn text(&self, out: &mut dyn Write) -> Result<()> {
        let mut table = Table::new(["RTT", "METRIC", "PERFORMANCE %", "95 % CONFIDENCE"]);
        for row in self.rows() {
            table.row(row);
        }
        table.write(out, 0)?;
        writeln!(out, "{}", self.verdict())?;
        Ok(out.flush()?)
    }

    fn json(&self) -> Value {
        json!({
            "command": self.command,
            "profile": self.profile.name,
            "native_rtt_ns": self.profile.fabric.native_rtt.0,
            "proxies": self.proxies.name(),
            "higher_is_better": self.better == Better::Higher,
            "native": self.native,
            "steps": self.steps.iter().zip(&self.curve).map(|(step, performance)| json!({
                "rtt_ns": step.rtt.0,
                "values": step.values,
                "performance": performance.mean,
                "confidence_95": performance.interval.map(|(low, high)| [low, high]),
            })).collect::<Vec<_>>(),
            "level": self.level,
            "falls_below_level_at_ns": self.at_level.map(|rtt| rtt.0),
            "ended": self.ended,
        })
    }

    fn html(&self) -> String {
        let mut page = Page::new("Performance against round trip");
        page.code(&self.command.join(" "));
        page.paragraph(&format!("{}.", self.verdict()));
        if let Some(ended) = &self.ended {
            page.paragraph(&format!("Not all of it was measured: {ended}."));
        }
        let native = self.profile.fabric.native_rtt;
        let mut points = vec![Point { x: native.micros(), y: 1.0, interval: (1.0, 1.0) }];
        points.extend(self.curve.iter().map(|performance| Point {
            x: performance.rtt.micros(),
            y: performance.mean,
            interval: performance.interval.unwrap_or((performance.mean, performance.mean)),
        }));
        let x_title = "round trip, us".to_owned();
        let curve = Curve { points, x_title, level: self.level };
        page.plot(&curve.svg("performance against round trip"));
        page.table(&["round trip", "metric", "performance, %", "95 % confidence"], &self.rows());
        page.finish()
    }
}

#[cfg(test)]
mod unit_tests {
    use perf_core::{Fabric, PushCopies};

    use super::*;

    #[test]
    fn the_native_round_trip_is_the_machine_as_it_is() {
        let profile = Profile::load("dxpu-68").unwrap();
        let push_copies = Some(PushCopies { least: 1, most: 1 << 20 });
        let settings = Settings { push_copies, ..Settings::of(Fabric::DXPU_68) };
        let pushed = |rtt| at(&profile, &settings, rtt).unwrap().push_copies;
        assert_eq!(pushed(profile.fabric.native_rtt), None);
        assert_eq!(pushed(Nanos(6_800)), push_copies);
    }
}
