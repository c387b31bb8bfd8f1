//! `dxpu-perf predict`: what a fabric would cost a program, by a trace of it.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use perf_core::{Fabric, Nanos};
use serde_json::{Value, json};

use super::compare::{Changes, changes, compared};
use super::fabric::{FabricArgs, RttArg};
use super::files;
use super::kinds::{KindArgs, ProxiesArg};
use crate::predict::{Native, Predicted, Prediction};
use crate::quantity;
use crate::replay::{Graph, Scenario, Untraced};
use crate::table::Table;
use crate::trace::{Format, Options, Trace, read_file};

/// What is asked of `dxpu-perf predict`.
#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    /// Traces: PyTorch's (.json, .json.gz), SQLite exports of Nsight Systems, or CSV
    /// (docs/predict.md). Several are played together, as a job's ranks.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    rtt: RttArg,
    #[command(flatten)]
    fabric: FabricArgs,
    #[command(flatten)]
    kinds: KindArgs,
    /// Predicts also what this would change, for each value: rtt, tags, mrs, read-ahead, push,
    /// fabric-rate, kernel-round-trips or proxies, as rtt=2us,4.9us; several at once with +, as
    /// tags=280+mrs=512.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = changes)]
    compare: Vec<Changes>,
    /// Which proxies the devices are behind: all behind one, whose rate they share, or each behind
    /// one of its own.
    #[arg(long, value_enum, default_value = "one")]
    proxies: ProxiesArg,
    /// Where the rates of copies without a fabric are from: the trace, as far as it has large
    /// copies, or the profile.
    #[arg(long, value_enum, default_value = "trace")]
    native_rates: NativeRates,
    /// What a step takes without the profiler that took the trace, on average; without steps, what
    /// the whole of the trace takes. Calls and what lies between them are taken to be shorter
    /// without it, and hide less.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    untraced: Option<Nanos>,
    /// As `dxpu-perf run` shows it: each delay costs the CPU so much to put it into its stream.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    putting: Option<Nanos>,
    /// Only what was done on these devices.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,...")]
    device: Vec<u32>,
    /// Only what these processes asked for.
    #[arg(long, value_delimiter = ',', value_name = "PID,...", allow_negative_numbers = true)]
    process: Vec<i64>,
    /// What kind of file the traces are, where their first bytes do not say it.
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Takes what is right of a trace that is cut off or has wrong events in it.
    #[arg(long)]
    salvage: bool,
    /// How many kernels and copies that lose most are named.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The prediction goes into this file as a page with plots, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NativeRates {
    Trace,
    Profile,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Kineto,
    Nsys,
    Csv,
}

/// Does it.
///
/// # Errors
/// A trace that cannot be read; a fabric that cannot be; those of `out`.
pub(super) fn run(args: &PredictArgs, out: &mut dyn Write) -> Result<()> {
    let traced = args.trace()?;
    let traced_graph = Graph::of(&traced);
    let untraced = args.untraced.and_then(|wanted| traced_graph.untraced(wanted));
    let without_profiler = args.untraced.map(|wanted| says(&traced, wanted, untraced.as_ref()));
    let (trace, graph) = match &untraced {
        Some(untraced) => (&untraced.trace, traced_graph.of_untraced(untraced)),
        None => (&traced, traced_graph),
    };
    let native = Native::of(trace);
    let mut fabric = args.fabric.profile(args.rtt.rtt)?.fabric;
    let mut tags_needed = None;
    if args.native_rates == NativeRates::Trace {
        let said = args.fabric.says_reads();
        let rated = native.with_rates(fabric);
        tags_needed = needs_tags(&fabric, &rated, said);
        // What was asked for is what is predicted.
        let tags = if said { fabric.tags } else { rated.tags };
        fabric = Fabric { tags, ..rated };
    }
    let base = Scenario {
        putting: args.putting.unwrap_or(Nanos::ZERO),
        ..Scenario::of(args.kinds.settings(fabric)?, args.proxies.into())
    };
    // All that was asked for can be, before any of it is played.
    let scenarios = compared(&args.compare, &base)?;

    let prediction = Prediction::of(&graph, base);
    let compared: Vec<(String, Prediction)> = scenarios
        .into_iter()
        .map(|(change, scenario)| (change, Prediction::of(&graph, scenario)))
        .collect();
    let slower = slower_fabric(&base.settings.fabric);
    let of_trace = trace.notes.remarks.iter().chain(&graph.remarks);
    let remarks: Vec<&String> =
        of_trace.chain(&without_profiler).chain(&tags_needed).chain(&slower).collect();
    let mut page_written = Ok(());
    if let Some(path) = &args.html {
        let traces: Vec<String> =
            args.traces.iter().map(|path| path.display().to_string()).collect();
        let page = Predicted {
            traces: &traces,
            native: &native,
            prediction: &prediction,
            compared: &compared,
            remarks: &remarks,
            top: args.top,
        };
        page_written = files::write(path, page.to_html().as_bytes());
    }
    if args.json {
        let mut value = args.as_json(trace, &native, &prediction, &compared, &remarks);
        value["untraced"] = args.untraced.map_or(Value::Null, |wanted| {
            json!({
                "wanted_ns": wanted.0,
                "reached_ns": trace.measure(),
                "cpu_left": untraced.as_ref().map_or(1.0, |untraced| untraced.left),
            })
        });
        serde_json::to_writer_pretty(&mut *out, &value)?;
        writeln!(out)?;
        return page_written;
    }
    native.write_text(out)?;
    prediction.write_text(&native, args.top, out)?;
    write_compared(&native, &prediction, &compared, out)?;
    for (at, remark) in remarks.iter().enumerate() {
        writeln!(out, "{}{remark}", if at == 0 { "\n" } else { "" })?;
    }
    page_written
}

impl PredictArgs {
    /// Reads the traces, and keeps of them what was asked for.
    fn trace(&self) -> Result<Trace> {
        let format = self.format.map(|format| match format {
            FormatArg::Kineto => Format::Kineto,
            FormatArg::Nsys => Format::Nsys,
            FormatArg::Csv => Format::Csv,
        });
        let options = Options { format, salvage: self.salvage };
        let read = |path: &PathBuf| {
            read_file(path, &options).with_context(|| format!("{}", path.display()))
        };
        let mut traces: Vec<Trace> = self.traces.iter().map(read).collect::<Result<_>>()?;
        let mut trace = match (traces.len(), traces.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                traces.extend(last);
                Trace::together(traces)
            }
        };
        if !self.device.is_empty() || !self.process.is_empty() {
            // Not those that calls waited for, and that did nothing.
            let number = |it| trace.devices[trace.device_of(it).index()].number;
            let has = format!(
                "it has devices {} and processes {}",
                list(trace.operations.iter().map(number)),
                list(trace.processes.iter().copied())
            );
            trace.keep(&self.device, &self.process);
            if trace.operations.is_empty() {
                bail!("nothing is left of the trace with --device and --process: {has}");
            }
        }
        Ok(trace)
    }

    fn as_json(
        &self,
        trace: &Trace,
        native: &Native,
        prediction: &Prediction,
        compared: &[(String, Prediction)],
        remarks: &[&String],
    ) -> Value {
        let compared: Vec<Value> = compared
            .iter()
            .map(|(change, prediction)| {
                json!({ "change": change, "prediction": prediction.to_json(native, self.top) })
            })
            .collect();
        let traces: Vec<_> = self.traces.iter().map(|path| path.to_string_lossy()).collect();
        json!({
            "traces": traces,
            "trace": native.to_json(),
            "prediction": prediction.to_json(native, self.top),
            "compare": compared,
            "left_out": trace.notes.left_out,
            "remarks": remarks,
        })
    }
}

/// A smaller part of the CPU's time than this is the least that is tried.
const LEAST_LEFT: f64 = 0.12;

/// How much longer than asked for, in nanoseconds, is as long: the CPU's time is cut in small steps.
const ROUNDING: u64 = 1_000;

/// What became of a trace that takes so long without the profiler.
fn says(traced: &Trace, wanted: Nanos, untraced: Option<&Untraced>) -> String {
    let what = if traced.steps.is_empty() { "The trace" } else { "A step of the trace" };
    let took = Nanos(traced.measure());
    match untraced {
        None => format!(
            "{what} takes {took}, no longer than --untraced says ({wanted}): it is played as it is."
        ),
        Some(Untraced { trace, left, .. })
            if trace.measure() > wanted.0.saturating_add(ROUNDING) =>
        {
            let reached = Nanos(trace.measure());
            let least = "with a tenth of the CPU's time, the least that is tried, it still takes";
            match *left < LEAST_LEFT {
                true => format!(
                    "{what} takes {took}; {least} {reached}, more than --untraced says ({wanted}). \
                     That is played."
                ),
                false => format!(
                    "{what} takes {took}; with {:.0} % of the CPU's time {reached}, and with less \
                     hardly less. What is left of the difference to --untraced ({wanted}) is not the \
                     CPU's: a profiler makes kernels longer, too. That is played.",
                    100.0 * left
                ),
            }
        }
        Some(Untraced { trace, left, .. }) => format!(
            "{what} takes {took}; with {:.0} % of the CPU's time, the rest of which is taken to be the \
             profiler's, {}. That is played.",
            100.0 * left,
            Nanos(trace.measure())
        ),
    }
}

/// What a person should know of copies that are faster, without a fabric, than the tags of `asked`
/// allow; `rated` has as many as they need.
fn needs_tags(asked: &Fabric, rated: &Fabric, said: bool) -> Option<String> {
    let (has, needs) = (asked.tags.get(), rated.tags.get());
    (needs > has).then(|| {
        let taken = match said {
            true => format!("--tags and --mrs are taken as they are, with {has}"),
            false => format!("so many are taken instead of the profile's {has} (--tags)"),
        };
        format!(
            "The trace's copies to the device have {:.2} GB/s without a fabric, which {needs} tags with \
             {} bytes each give at a round trip of {}: {taken}.",
            rated.native_htod.giga(),
            asked.read_size.get(),
            asked.native_rtt
        )
    })
}

/// What a person should know of a fabric that is slower than the GPU's own link.
fn slower_fabric(fabric: &Fabric) -> Option<String> {
    (!fabric.is_native() && fabric.fabric_rate < fabric.native_htod).then(|| {
        format!(
            "Without a fabric copies to the device have {:.2} GB/s; the fabric carries {:.2} \
             (--fabric-rate), whatever its round trip.",
            fabric.native_htod.giga(),
            fabric.fabric_rate.giga()
        )
    })
}

/// Numbers in order, each once.
fn list<T: Ord + ToString>(numbers: impl Iterator<Item = T>) -> String {
    let numbers: std::collections::BTreeSet<T> = numbers.collect();
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn write_compared(
    native: &Native,
    base: &Prediction,
    compared: &[(String, Prediction)],
    out: &mut dyn Write,
) -> Result<()> {
    if compared.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ncompared")?;
    let mut table = Table::new(["", "predicted", "performance", "lost", "hidden"]);
    let as_it_is = ("as above".to_owned(), base);
    let others = compared.iter().map(|(change, prediction)| (change.clone(), prediction));
    for (change, prediction) in std::iter::once(as_it_is).chain(others) {
        let hidden = prediction.hidden_percent();
        table.row([
            change,
            Nanos(prediction.length_ns).to_string(),
            format!("{:.2} %", native.performance(prediction)),
            Nanos(prediction.lost_ns()).to_string(),
            hidden.map_or_else(|| "-".to_owned(), |hidden| format!("{hidden:.1} %")),
        ]);
    }
    table.write(out, 2)?;
    Ok(())
}
