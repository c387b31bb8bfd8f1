//! `dxpu-perf calibrate`: measures this host and GPU, and writes a profile.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use perf_core::Nanos;
use perf_cuda::Gpu;
use serde_json::{Value, json};

use super::fabric::{FabricArgs, RttArg};
use super::files;
use super::tell;
use crate::calibrate::{Calibration, measure};
use crate::profile::Profile;
use crate::quantity::show_bytes;
use crate::table::Table;

/// What is asked of `dxpu-perf calibrate`.
#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// Which GPU.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: i32,
    /// The file that the profile goes into; `--profile` takes it.
    #[arg(short, long, value_name = "FILE", default_value = "dxpu-profile.toml")]
    output: PathBuf,
    /// What was measured as one JSON object instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rtt: RttArg,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Does it.
///
/// # Errors
/// No GPU; what the driver says; a file that cannot be written.
pub(super) fn run(args: &CalibrateArgs, out: &mut dyn Write) -> Result<()> {
    let base = args.fabric.profile(None)?;
    let gpu = Gpu::open(args.gpu).with_context(|| format!("GPU {}", args.gpu))?;
    let calibration = measure(&gpu, |what| tell(&format!("measuring {what}")))?;
    let mut fabric = calibration.fabric(base.fabric)?;
    if let Some(rtt) = args.rtt.rtt {
        fabric = fabric.with_rtt(rtt).context("--rtt")?;
    }
    let profile = Profile {
        name: base.name,
        fabric,
        split: None,
        gpu: Some(calibration.gpu.clone()),
        smallest_delay: Some(calibration.smallest_delay()),
        delay_cost: Some(calibration.delay_cost()),
        event_cost: Some(calibration.events[0]),
    };
    let written = files::write(&args.output, profile.to_toml().as_bytes());
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &as_json(&calibration))?;
        writeln!(out)?;
        written?;
    } else {
        text(&calibration, out)?;
        written?;
        writeln!(out, "written to {}", args.output.display())?;
    }
    Ok(())
}

fn text(calibration: &Calibration, out: &mut dyn Write) -> Result<()> {
    let (to_device, to_host) = calibration.rates()?;
    writeln!(out, "{} at {}", calibration.gpu, calibration.pci_address)?;
    let mut table = Table::default();
    table.row(["read of the host's memory".to_owned(), calibration.read_rtt.to_string()]);
    table.row(["copies to the GPU".to_owned(), format!("{:.2} GB/s", to_device.giga())]);
    table.row(["copies from the GPU".to_owned(), format!("{:.2} GB/s", to_host.giga())]);
    table.row(["launch, CPU".to_owned(), calibration.launch_cpu.to_string()]);
    table.row(["launch, GPU".to_owned(), calibration.launch_gpu.to_string()]);
    table.row(["events around a kernel".to_owned(), calibration.events[0].to_string()]);
    table.row(["reads under way, at least".to_owned(), show_bytes(calibration.in_flight()?)]);
    let read_size = calibration
        .read_size
        .map_or("not to be read by this user".to_owned(), |size| format!("{size} B"));
    table.row(["Max_Read_Request_Size".to_owned(), read_size]);
    table.write(out, 2)?;
    let mut delays = Table::new(["delay asked for", "took", "without its cost"]);
    for (asked, got) in &calibration.delays {
        let net = got.saturating_sub(calibration.delay_cost());
        delays.row([asked.to_string(), got.to_string(), net.to_string()]);
    }
    delays.write(out, 2)?;
    let mut table = Table::new(["size", "to the GPU", "from it"]);
    for copy in &calibration.copies {
        let nanos = |time: std::time::Duration| Nanos(time.as_nanos() as u64).to_string();
        table.row([show_bytes(copy.bytes as u64), nanos(copy.to_device), nanos(copy.to_host)]);
    }
    table.write(out, 2)?;
    Ok(())
}

fn as_json(calibration: &Calibration) -> Value {
    json!({
        "gpu": calibration.gpu,
        "pci_address": calibration.pci_address,
        "read_rtt_ns": calibration.read_rtt.0,
        "launch_cpu_ns": calibration.launch_cpu.0,
        "launch_gpu_ns": calibration.launch_gpu.0,
        "events_around_kernel_ns": calibration.events[0].0,
        "events_around_nothing_ns": calibration.events[1].0,
        "delays": calibration.delays.iter().map(|(asked, got)| json!({
            "asked_ns": asked.0,
            "took_ns": got.0,
        })).collect::<Vec<_>>(),
        "in_flight_bytes": calibration.in_flight().ok(),
        "max_read_request_size": calibration.read_size,
        "copies": calibration.copies.iter().map(|copy| json!({
            "bytes": copy.bytes,
            "htod_ns": copy.to_device.as_nanos() as u64,
            "dtoh_ns": copy.to_host.as_nanos() as u64,
        })).collect::<Vec<_>>(),
    })
}
