//! What the demo does, step by step.

use crate::Cli;
use crate::bandwidth::bandwidth;
use crate::input;
use crate::programs::{Programs, number, text};
use crate::report::Report;
use crate::running::{ACCELERATOR_BOX, HOST, Running};
use crate::split::{Split, Stamps, split};
use anyhow::{Result, anyhow, bail, ensure};
use processes::namespaces;
use serde_json::{Value, json};
use std::path::Path;

/// The host's names of the two devices.
struct Devices {
    drive: String,
    accelerator: String,
    /// Bus address of the accelerator's registers.
    registers: u64,
}

pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<()> {
    processes::catch_signals()?;
    namespaces::remove_leftovers("dxpu-demo", |what| report.step(what));
    let folder = tempfile::Builder::new().prefix("dxpu-demo-").tempdir()?;
    let (file, bytes) = match &cli.file {
        Some(file) => input::users(file)?,
        None => input::repository(&cli.repository, &folder.path().join("files"))?,
    };
    input::check_room(bytes, folder.path())?;
    let mut kept = false;
    let mut result = Running::start(cli, report, folder.path(), bytes).and_then(|mut running| {
        let result = tell(cli, report, &mut running, &file, bytes);
        // What a terminal's interrupt ended here it also ended there.
        if cli.keep && !processes::interrupted() {
            kept = running.keep(report);
        }
        result
    });
    if processes::interrupted() && result.is_err() {
        // A command that the same signal ended says nothing new.
        result = Err(anyhow!("interrupted"));
    }
    if kept || result.is_err() && !processes::interrupted() {
        let folder = folder.keep();
        report.step(&format!("logs, store and image: {}", folder.display()));
    }
    result
}

fn tell(
    cli: &Cli,
    report: &mut Report,
    running: &mut Running,
    file: &Path,
    bytes: u64,
) -> Result<()> {
    pool(report, &running.programs)?;
    let before = tables(report, &running.programs, "the tables before")?;
    let allocations = allocate(report, &running.programs)?;
    let devices = find_devices(report, running)?;
    let lent = tables(report, &running.programs, "the tables while the devices are lent")?;
    transfer(report, &running.programs, &devices, file, bytes)?;
    round_trip(cli, report, &running.programs, &devices)?;
    bandwidth(cli, report, &running.programs, &devices.accelerator)?;
    report.record("resident_bytes", running.resident());
    release(report, &running.programs, &devices, &allocations)?;
    let after = tables(report, &running.programs, "the tables after")?;
    report.record("tables", json!({ "before": before, "lent": lent, "after": after }));
    running.check()
}

fn pool(report: &mut Report, programs: &Programs) -> Result<()> {
    report.step("the manager has numbered the nodes");
    report.text(&programs.manager_text(&["nodes"])?);
    report.record("nodes", programs.manager_json(&["nodes"])?);
    report.step("the pool");
    report.text(&programs.manager_text(&["list"])?);
    report.record("pool", programs.manager_json(&["list"])?);
    Ok(())
}

fn tables(report: &mut Report, programs: &Programs, what: &str) -> Result<Value> {
    report.step(what);
    report.text(&programs.manager_text(&["tables"])?);
    programs.manager_json(&["tables"])
}

fn allocate(report: &mut Report, programs: &Programs) -> Result<Vec<String>> {
    let mut allocations = Vec::new();
    for model in ["nvme", "accelerator"] {
        report.step(&format!("dxpu-manager allocate --host {HOST} --model {model}"));
        let answer = programs.manager_json(&["allocate", "--host", HOST, "--model", model])?;
        let id = text(&answer, "/id")?;
        report.text(&programs.manager_text(&["show", &id])?);
        allocations.push(id);
    }
    report.record("allocations", json!(allocations));
    Ok(allocations)
}

fn find_devices(report: &mut Report, running: &Running) -> Result<Devices> {
    let programs = &running.programs;
    report.step("the host finds them behind its switch, by hot-plug");
    let seconds = running.appear.as_secs().to_string();
    let found = programs.host_json(&["wait", "--devices", "2", "--seconds", &seconds])?;
    report.text(&programs.host_text(&["lspci"])?);
    let tree = programs.host_json(&["lspci"])?;
    let mut devices = Devices { drive: String::new(), accelerator: String::new(), registers: 0 };
    walk(&tree, &mut |node| {
        let class = node.get("class").and_then(Value::as_u64);
        let bdf = node.get("bdf").and_then(Value::as_str).unwrap_or_default();
        match class {
            Some(0x01_0802) => devices.drive = bdf.into(),
            Some(0x12_0000) => {
                devices.accelerator = bdf.into();
                devices.registers =
                    node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap_or(0);
            }
            _ => {}
        }
    });
    ensure!(
        !devices.drive.is_empty() && !devices.accelerator.is_empty() && devices.registers != 0,
        "the host found {found}, not a drive and an accelerator"
    );
    report.record("tree", tree);
    Ok(devices)
}

fn walk(node: &Value, visit: &mut dyn FnMut(&Value)) {
    visit(node);
    for list in ["devices", "children"] {
        for child in node.get(list).and_then(Value::as_array).into_iter().flatten() {
            walk(child, visit);
        }
    }
}

fn transfer(
    report: &mut Report,
    programs: &Programs,
    devices: &Devices,
    file: &Path,
    bytes: u64,
) -> Result<()> {
    let sent = input::sha256(file)?;
    report.step(&format!("writing {bytes} bytes to the remote drive {}", devices.drive));
    let name = file.display().to_string();
    let write = programs.host_watched(report, &["nvme-write", &devices.drive, &name])?;
    let back = programs.place.folder.join("back");
    report.step("reading them back");
    let path = back.display().to_string();
    let count = bytes.to_string();
    let read = ["nvme-read", &devices.drive, &path, "--bytes", &count];
    let read = programs.host_watched(report, &read)?;
    let got = input::sha256(&back)?;
    let rate = |value: &Value| number(value, "/bytes_per_second").map(|rate| rate / 1e6);
    report.text(&format!("written at {:.1} MB/s, read at {:.1} MB/s", rate(&write)?, rate(&read)?));
    report.text(&format!("SHA-256 {sent} sent\nSHA-256 {got} read"));
    report.record(
        "transfer",
        json!({ "bytes": bytes, "sha256_sent": sent, "sha256_read": got, "write": write, "read": read }),
    );
    ensure!(sent == got, "what was read back is not what was written");
    Ok(())
}

fn round_trip(
    cli: &Cli,
    report: &mut Report,
    programs: &Programs,
    devices: &Devices,
) -> Result<()> {
    report.step("round trip of a register read, from stamps at each stage (DxPU's Table 6)");
    for node in [HOST, ACCELERATOR_BOX] {
        programs.manager_json(&["stamps", node, "--sampling", "all"])?;
    }
    let reads = cli.reads.to_string();
    let latency = programs.host_json(&["latency", &devices.accelerator, "--reads", &reads])?;
    let stamps = |node| -> Result<Stamps> {
        Ok(serde_json::from_value(programs.manager_json(&["stamps", node])?)?)
    };
    let parts = split(&stamps(HOST)?, &stamps(ACCELERATOR_BOX)?);
    for node in [HOST, ACCELERATOR_BOX] {
        programs.manager_json(&["stamps", node, "--sampling", "off"])?;
    }
    ensure!(parts.samples > 0, "no round trip was stamped at both ends");
    report.text(&split_table(&parts));
    let median = number(&latency, "/median_ns")? / 1e3;
    report.text(&format!("as the host's program sees it: median {median:.2} us"));
    report.record("round_trip", json!({ "split": parts, "seen_by_host": latency }));
    Ok(())
}

fn split_table(split: &Split) -> String {
    let row = |name: &str, nanos: u64| format!("{name:<28} {:>9.2} us", nanos as f64 / 1e3);
    [
        row("original (the device)", split.original_ns),
        row("network", split.network_ns),
        row("conversion (host proxy)", split.host_conversion_ns),
        row("conversion (box proxy)", split.box_conversion_ns),
        row("whole round trip", split.total_ns),
        format!("medians of {} round trips", split.samples),
    ]
    .join("\n")
}

fn release(
    report: &mut Report,
    programs: &Programs,
    devices: &Devices,
    allocations: &[String],
) -> Result<()> {
    report.step(&format!("dxpu-manager release {}", allocations.join(" ")));
    let mut arguments = vec!["release"];
    arguments.extend(allocations.iter().map(String::as_str));
    let released = programs.manager_watched(report, &arguments)?;
    report.record("released", released);
    report.text(&programs.manager_text(&["list"])?);
    report.step("what the host gets when it still asks");
    let config = programs.host_failure(&["config-read", &devices.drive, "0"])?;
    let address = format!("{:#x}", devices.registers);
    let memory = programs.host_failure(&["mmio-read", &address])?;
    for answer in [&config, &memory] {
        report.text(answer);
        if !answer.contains("Unsupported Request") {
            bail!("an access after the release was answered with: {answer}");
        }
    }
    report.record("after_release", json!({ "config_read": config, "memory_read": memory }));
    Ok(())
}
