//! `dxpu-perf model`: Equation 1 and the closed forms.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use perf_core::{BytesPerSecond, Fabric, Kind, KindSet, Nanos, ReadSize, Settings, Tags};
use serde_json::{Value, json};

use super::fabric::{FabricArgs, RttArg};
use crate::profile::Profile;
use crate::quantity::{self, show_bytes};
use crate::table::Table;

/// What is asked of `dxpu-perf model`.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    #[command(flatten)]
    rtt: RttArg,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Average duration of a kernel: says what is left of the performance of a program whose GPU
    /// is never idle. May be given several times.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    kernel: Vec<Nanos>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The sizes that copies are shown for.
const SIZES: [u64; 7] = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 40_000_000, 1 << 30];

/// PCIe generations: name, bytes a second of one lane after line coding (PCIe 6.0, section 1.2;
/// 128b/130b from 8 GT/s on, flits of 242 in 256 bytes at 64 GT/s).
const GENERATIONS: [(&str, f64); 4] =
    [("3.0", 0.985e9), ("4.0", 1.969e9), ("5.0", 3.938e9), ("6.0", 7.563e9)];

/// Does it.
///
/// # Errors
/// A fabric that cannot be; those of `out`.
pub(super) fn run(args: &ModelArgs, out: &mut dyn Write) -> Result<()> {
    let profile = args.fabric.profile(args.rtt.rtt)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &as_json(&profile, &args.kernel))?;
        writeln!(out)?;
        return Ok(());
    }
    write_round_trip(&profile, out)?;
    write_operations(&profile.fabric, out)?;
    write_copies(&profile.fabric, out)?;
    write_variants(&profile.fabric, out)?;
    write_generations(&profile.fabric, out)?;
    write_kernels(&profile.fabric, &args.kernel, out)
}

fn write_round_trip(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let fabric = &profile.fabric;
    writeln!(
        out,
        "round trip {} ({} native, {} added)",
        fabric.rtt,
        fabric.native_rtt,
        fabric.delta()
    )?;
    if let Some(split) = profile.split {
        let share = |time: Nanos| format!("{:.1} %", 100.0 * time.0 as f64 / fabric.rtt.0 as f64);
        let mut table = Table::default();
        for (name, time) in [
            ("original", split.original),
            ("network", split.network),
            ("conversion", split.conversion),
        ] {
            table.row([name.to_owned(), time.to_string(), share(time)]);
        }
        table.write(out, 2)?;
    }
    let throughput = fabric.read_throughput(fabric.rtt);
    writeln!(
        out,
        "\nEquation 1: {} tags x {} bytes{} / {} = {:.2} GB/s (native {:.1} GB/s)",
        fabric.tags.get(),
        fabric.read_size.get(),
        if fabric.read_ahead == 0 {
            String::new()
        } else {
            format!(" + {} read ahead", show_bytes(fabric.read_ahead))
        },
        fabric.rtt,
        throughput.giga(),
        fabric.native_htod.giga(),
    )?;
    Ok(())
}

/// What one operation of each kind that has no size takes longer.
fn operations(fabric: &Fabric) -> impl Iterator<Item = (Kind, Nanos)> + use<> {
    let settings = Settings { off: KindSet::EMPTY, ..Settings::of(*fabric) };
    [Kind::Kernel, Kind::Memset, Kind::Synchronise, Kind::HostCallback, Kind::Doorbell]
        .into_iter()
        .map(move |kind| (kind, settings.extra(kind, 0)))
}

fn write_operations(fabric: &Fabric, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nwhat each takes longer, where nothing hides it")?;
    let mut table = Table::default();
    for (kind, extra) in operations(fabric) {
        table.row([kind.title().to_owned(), extra.to_string()]);
    }
    table.write(out, 2)?;
    Ok(())
}

fn write_copies(fabric: &Fabric, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\ncopies")?;
    let mut table = Table::new(["size", "to GPU, native", "fabric", "from GPU, native", "fabric"]);
    for bytes in SIZES {
        let (to, from) = native_times(fabric, bytes);
        table.row([
            show_bytes(bytes),
            to.to_string(),
            to.saturating_add(fabric.htod_extra(bytes)).to_string(),
            from.to_string(),
            from.saturating_add(fabric.dtoh_extra(bytes)).to_string(),
        ]);
    }
    table.write(out, 2)?;
    Ok(())
}

/// A copy to the GPU waits for a round trip, one from it for none.
fn native_times(fabric: &Fabric, bytes: u64) -> (Nanos, Nanos) {
    let to = fabric.native_htod.time(bytes).saturating_add(fabric.native_rtt);
    let from = fabric.native_dtoh.time(bytes).saturating_add(fabric.native_rtt.half());
    (to, from)
}

/// The fabric, and what one change would do to its host-to-device rate.
fn variants(fabric: &Fabric) -> Vec<(String, BytesPerSecond)> {
    let mut variants = vec![("as it is".to_owned(), fabric.htod_rate())];
    let mut add = |name: String, fabric: Fabric| variants.push((name, fabric.htod_rate()));
    for factor in [2, 4] {
        if let Ok(tags) = Tags::new(fabric.tags.get() * factor) {
            add(format!("{} tags", tags.get()), Fabric { tags, ..*fabric });
        }
    }
    for bytes in [256, 512, 1024, 4096] {
        if let (Ok(read_size), true) = (ReadSize::new(bytes), bytes > fabric.read_size.get()) {
            add(format!("reads of {bytes} bytes"), Fabric { read_size, ..*fabric });
        }
    }
    add("64 KiB read ahead".to_owned(), Fabric { read_ahead: 64 << 10, ..*fabric });
    if fabric.push.is_none() {
        add(
            "writes of the CPU instead of reads".to_owned(),
            Fabric { push: Some(Fabric::DXPU_PUSH), ..*fabric },
        );
    }
    variants
}

fn write_variants(fabric: &Fabric, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nhost to device, large copies")?;
    let mut table = Table::default();
    for (name, rate) in variants(fabric) {
        let share = 100.0 * rate.giga() / fabric.native_htod.giga();
        let rate = format!("{:.2} GB/s", rate.giga());
        table.row([name, rate, format!("{share:.0} % of native")]);
    }
    table.write(out, 2)?;
    Ok(())
}

/// A PCIe generation with 16 lanes: its rate, and the tags that fill it at this round trip.
fn generations(fabric: &Fabric) -> impl Iterator<Item = (&'static str, f64, u64)> {
    // A completion of 128 bytes has 12 bytes of header and 8 of framing and LCRC around it.
    let efficiency = 128.0 / 148.0;
    GENERATIONS.into_iter().map(move |(name, lane)| {
        let rate = lane * 16.0 * efficiency;
        let in_flight = rate * fabric.rtt.0 as f64 / 1e9;
        (name, rate, (in_flight / f64::from(fabric.read_size.get())).ceil() as u64)
    })
}

fn write_generations(fabric: &Fabric, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nwhat 16 lanes would need at this round trip")?;
    let mut table = Table::new(["PCIe", "payload", "reads in flight", "as it is"]);
    for (name, rate, reads) in generations(fabric) {
        let share = 100.0 * fabric.read_throughput(fabric.rtt).giga() * 1e9 / rate;
        table.row([
            name.to_owned(),
            format!("{:.1} GB/s", rate / 1e9),
            format!("{reads} of {} bytes", fabric.read_size.get()),
            format!("{:.0} % of it", share.min(100.0)),
        ]);
    }
    table.write(out, 2)?;
    Ok(())
}

/// What is left of a busy GPU's performance when each kernel ends later, 0 to 1.
fn busy(fabric: &Fabric, kernel: Nanos) -> f64 {
    let native = kernel.0.max(1) as f64;
    native / (native + fabric.kernel_extra().0 as f64)
}

fn write_kernels(fabric: &Fabric, kernels: &[Nanos], out: &mut dyn Write) -> Result<()> {
    if kernels.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nperformance of a GPU that is never idle, by its average kernel")?;
    let mut table = Table::default();
    for kernel in kernels {
        table.row([kernel.to_string(), format!("{:.1} %", 100.0 * busy(fabric, *kernel))]);
    }
    table.write(out, 2)?;
    Ok(())
}

fn as_json(profile: &Profile, kernels: &[Nanos]) -> Value {
    let fabric = &profile.fabric;
    let copies: Vec<Value> = SIZES
        .into_iter()
        .map(|bytes| {
            let (to, from) = native_times(fabric, bytes);
            json!({
                "bytes": bytes,
                "htod_native_ns": to.0,
                "htod_ns": to.saturating_add(fabric.htod_extra(bytes)).0,
                "dtoh_native_ns": from.0,
                "dtoh_ns": from.saturating_add(fabric.dtoh_extra(bytes)).0,
            })
        })
        .collect();
    let by_name = |entries: Vec<(String, Value)>| Value::Object(entries.into_iter().collect());
    json!({
        "profile": profile.name,
        "rtt_ns": fabric.rtt.0,
        "native_rtt_ns": fabric.native_rtt.0,
        "delta_ns": fabric.delta().0,
        "split_ns": profile.split.map(|split| json!({
            "original": split.original.0,
            "network": split.network.0,
            "conversion": split.conversion.0,
        })),
        "tags": fabric.tags.get(),
        "read_size": fabric.read_size.get(),
        "read_ahead": fabric.read_ahead,
        "equation_1_bytes_per_second": fabric.read_throughput(fabric.rtt).get(),
        "htod_bytes_per_second": fabric.htod_rate().get(),
        "dtoh_bytes_per_second": fabric.dtoh_rate().get(),
        "added_ns": by_name(
            operations(fabric).map(|(kind, extra)| (kind.name().to_owned(), json!(extra.0))).collect()
        ),
        "copies": copies,
        "variants_bytes_per_second": by_name(
            variants(fabric).into_iter().map(|(name, rate)| (name, json!(rate.get()))).collect()
        ),
        "generations": generations(fabric).map(|(name, rate, reads)| json!({
            "pcie": name,
            "bytes_per_second": rate.round(),
            "reads_in_flight": reads,
        })).collect::<Vec<_>>(),
        "busy_performance": kernels.iter().map(|kernel| json!({
            "kernel_ns": kernel.0,
            "performance": busy(fabric, *kernel),
        })).collect::<Vec<_>>(),
    })
}
