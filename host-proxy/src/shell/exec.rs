//! What the commands do.

use super::CountingPort;
use super::bandwidth::{Wish, bandwidth};
use super::protocol::{Command, Line, MAX_READS};
use super::server::Reply;
use host_model::operations::OperationError;
use host_model::topology::BarKind;
use host_model::{ModelHost, StreamOptions, StreamReport};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, Bus, Device, Function};

/// Text for people and the same for programs, or why it failed.
pub(super) type Outcome = Result<(String, Value), String>;

/// Carries out a command; progress goes to `reply`, the last line comes back.
pub fn run(host: &mut ModelHost<impl CountingPort>, command: &Command, reply: &Reply) -> Line {
    match carry_out(host, command, reply) {
        Ok((text, value)) => Line::Result { text, value },
        Err(error) => Line::Error(error),
    }
}

fn carry_out(host: &mut ModelHost<impl CountingPort>, command: &Command, reply: &Reply) -> Outcome {
    match command {
        Command::Lspci => {
            let tree = host.tree();
            Ok((tree.to_string(), to_json(&tree)?))
        }
        Command::Wait { devices, seconds } => wait(host, *devices, *seconds, reply),
        Command::ConfigRead { device, register } => {
            let (bdf, register) = (bdf(device)?, config_register(*register)?);
            let value = host.config_read(bdf, register, 4).map_err(text)?;
            Ok((format!("{value:#010x}"), json!({ "value": value })))
        }
        Command::ConfigWrite { device, register, value } => {
            let (bdf, register) = (bdf(device)?, config_register(*register)?);
            host.config_write(bdf, register, 4, word(*value)?).map_err(text)?;
            Ok(("written".into(), json!({})))
        }
        Command::MmioRead { address } => {
            let mut bytes = [0; 4];
            host.mmio_read(aligned(*address)?, &mut bytes).map_err(text)?;
            let value = u32::from_le_bytes(bytes);
            Ok((format!("{value:#010x}"), json!({ "value": value })))
        }
        Command::MmioWrite { address, value, times } => {
            let (address, bytes) = (aligned(*address)?, word(*value)?.to_le_bytes());
            for _ in 0..*times {
                host.mmio_write(address, &bytes).map_err(text)?;
            }
            Ok(("written".into(), json!({})))
        }
        Command::NvmeIdentify { device } => {
            let bdf = bdf(device)?;
            let value = to_json(&host.nvme_show(bdf).map_err(|e| about(bdf, &e))?)?;
            Ok((serde_json::to_string_pretty(&value).map_err(text)?, value))
        }
        Command::NvmeWrite { device, file, depth } => {
            nvme_write(host, bdf(device)?, file, *depth, reply)
        }
        Command::NvmeRead { device, file, bytes, depth, chunk } => {
            let mut options = stream(*depth);
            options.chunk = chunk.unwrap_or(options.chunk);
            nvme_read(host, bdf(device)?, file, *bytes, options, reply)
        }
        Command::Bandwidth { devices, bytes, only, tags, request } => {
            let wish = Wish { bytes: *bytes, only: *only, tags: *tags, request: *request };
            bandwidth(host, &all_different(devices)?, &wish, reply)
        }
        Command::Latency { device, reads, outstanding } => {
            latency(host, bdf(device)?, *reads, *outstanding)
        }
        Command::Counters => counters(host),
    }
}

/// Why something with a function failed; many reasons name the function already.
pub(super) fn about(bdf: Bdf, error: &OperationError) -> String {
    let (function, reason) = (bdf.to_string(), error.to_string());
    if reason.contains(&function) { reason } else { format!("{function}: {reason}") }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn to_json(value: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(text)
}

fn word(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{value:#x} does not fit 32 bits"))
}

fn aligned(address: u64) -> Result<u64, String> {
    if address.is_multiple_of(4) {
        Ok(address)
    } else {
        Err(format!("{address:#x}: not a multiple of 4"))
    }
}

fn config_register(register: u64) -> Result<u16, String> {
    match u16::try_from(register) {
        Ok(register) if register < 4096 && register % 4 == 0 => Ok(register),
        _ => Err(format!("register {register:#x}: a multiple of 4 below 0x1000")),
    }
}

/// Bus, device and function as lspci prints them.
fn bdf(text: &str) -> Result<Bdf, String> {
    let parts = || {
        let (bus, rest) = text.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let number = |text| u8::from_str_radix(text, 16).ok();
        let bus = Bus::new(number(bus)?).ok()?;
        let device = Device::new(number(device)?).ok()?;
        Some(Bdf::new(bus, device, Function::new(number(function)?).ok()?))
    };
    parts().ok_or_else(|| format!("{text:?}: bus:device.function, as lspci prints it: 03:00.0"))
}

/// The functions of these names, one at least and each named once.
fn all_different(names: &[String]) -> Result<Vec<Bdf>, String> {
    let mut list = Vec::new();
    for name in names {
        let bdf = bdf(name)?;
        if list.contains(&bdf) {
            return Err(format!("{bdf} is named twice: name each device once"));
        }
        list.push(bdf);
    }
    if list.is_empty() {
        return Err("no device is named: name one at least".to_owned());
    }
    Ok(list)
}

/// Endpoints that are enumerated and have their driver, where there is one.
fn endpoints(host: &ModelHost<impl CountingPort>) -> Vec<Bdf> {
    let devices = host.topology().iter().filter(|node| node.bridge.is_none());
    devices.map(|node| node.bdf).collect()
}

fn wait(
    host: &mut ModelHost<impl CountingPort>,
    devices: usize,
    seconds: u64,
    reply: &Reply,
) -> Outcome {
    let deadline = Instant::now().checked_add(Duration::from_secs(seconds));
    let deadline = deadline.ok_or_else(|| format!("{seconds} seconds: nobody waits so long"))?;
    loop {
        let there = endpoints(host);
        if there.len() >= devices {
            let names: Vec<String> = there.iter().map(ToString::to_string).collect();
            return Ok((names.join("\n"), json!({ "devices": names })));
        }
        let now = Instant::now();
        reply.is_heard()?;
        if now >= deadline {
            let found = there.len();
            return Err(format!("{found} of {devices} devices are there after {seconds} s"));
        }
        super::serve(host, deadline.min(now + Duration::from_millis(10))).map_err(text)?;
        while host.poll_event().is_some() {}
    }
}

fn stream(depth: u16) -> StreamOptions {
    StreamOptions { queue_depth: depth.max(1), ..StreamOptions::default() }
}

fn said(what: &str, report: &StreamReport) -> String {
    let rate = report.bytes_per_second / 1e6;
    format!("{what} {} bytes in {:.3} s, {rate:.1} MB/s", report.bytes, seconds(report.elapsed_ns))
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Refuses what a drive's namespace does not hold, before anything is written anywhere.
fn check_fits(host: &mut ModelHost<impl CountingPort>, bdf: Bdf, bytes: u64) -> Result<(), String> {
    let namespace = StreamOptions::default().namespace;
    let drive = host.nvme_show(bdf).map_err(|e| about(bdf, &e))?;
    let held = drive.namespaces.iter().find(|there| there.id() == namespace);
    let held = held.ok_or_else(|| format!("{bdf} has no namespace {namespace}"))?.bytes();
    if bytes > held {
        return Err(format!(
            "{bytes} bytes are more than namespace {namespace} of {bdf} holds: {held}"
        ));
    }
    Ok(())
}

/// Opens a file. A named pipe keeps nobody waiting for its other end: the links would wait, too.
fn open(options: &mut std::fs::OpenOptions, path: &Path) -> Result<File, String> {
    let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = options.custom_flags(at_once).open(path);
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

fn nvme_write(
    host: &mut ModelHost<impl CountingPort>,
    bdf: Bdf,
    path: &Path,
    depth: u16,
    reply: &Reply,
) -> Outcome {
    let name = path.display();
    let file = open(File::options().read(true), path)?;
    let data = file.metadata().map_err(|e| format!("{name}: {e}"))?;
    if !data.is_file() {
        return Err(format!("{name} is not a file"));
    }
    let bytes = data.len();
    check_fits(host, bdf, bytes)?;
    let mut progress = |p: nvme_driver::Progress| {
        reply.progress(p.done, bytes);
    };
    let mut source = BufReader::with_capacity(1 << 20, file);
    let report = host
        .nvme_write(bdf, stream(depth), &mut source, Some(bytes), &mut progress)
        .map_err(|e| about(bdf, &e))?;
    Ok((said("wrote", &report), to_json(&report)?))
}

fn nvme_read(
    host: &mut ModelHost<impl CountingPort>,
    bdf: Bdf,
    path: &Path,
    bytes: u64,
    options: StreamOptions,
    reply: &Reply,
) -> Outcome {
    check_fits(host, bdf, bytes)?;
    let name = path.display();
    let file = open(File::options().write(true).create(true).truncate(true), path)?;
    if file.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
        return Err(format!("{name} is a named pipe, whose reader the host would wait for"));
    }
    let mut progress = |p: nvme_driver::Progress| {
        reply.progress(p.done, bytes);
    };
    let mut sink = BufWriter::with_capacity(1 << 20, file);
    let report = host
        .nvme_read(bdf, options, bytes, &mut sink, &mut progress)
        .map_err(|e| about(bdf, &e))?;
    sink.flush().map_err(|e| format!("{name}: {e}"))?;
    Ok((said("read", &report), to_json(&report)?))
}

fn latency(
    host: &mut ModelHost<impl CountingPort>,
    bdf: Bdf,
    reads: u32,
    outstanding: u16,
) -> Outcome {
    if !(1..=MAX_READS).contains(&reads) {
        return Err(format!("{reads} reads: 1 to {MAX_READS}"));
    }
    let node = host.topology().get(bdf).ok_or_else(|| format!("there is no function {bdf}"))?;
    let is_memory =
        |bar: &Option<host_model::topology::Bar>| bar.is_some_and(|bar| bar.kind != BarKind::Io);
    let bar = node.bars.iter().position(is_memory);
    let bar = bar.ok_or_else(|| format!("{bdf} has no memory BAR"))? as u8;
    let report = host.mmio_latency(bdf, bar, 0, reads as usize, outstanding.into());
    let report = report.map_err(text)?;
    let us = |nanos: u64| nanos as f64 / 1e3;
    let text = format!(
        "round trip of a 4-byte read: median {:.2} us, minimum {:.2} us, 99 % {:.2} us, {} reads, \
         {:.0} a second",
        us(report.median_ns),
        us(report.min_ns),
        us(report.p99_ns),
        report.count,
        report.per_second,
    );
    Ok((text, to_json(&report)?))
}

fn counters(host: &mut ModelHost<impl CountingPort>) -> Outcome {
    let mut all = host.root().counters().entries();
    all.extend(host.root_mut().port_mut().counters());
    let lines: Vec<String> =
        all.iter().map(|(name, value)| format!("{value:>12}  {name}")).collect();
    let value: serde_json::Map<String, Value> =
        all.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Ok((lines.join("\n"), Value::Object(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_keeps_nobody_waiting_for_its_other_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let sink = open(File::options().write(true).create(true).truncate(true), &pipe);
        assert!(sink.unwrap_err().contains("pipe: No such device or address"));
        let source = open(File::options().read(true), &pipe).unwrap();
        assert!(!source.metadata().unwrap().is_file(), "and so it is refused");
        let file = folder.path().join("file");
        open(File::options().write(true).create(true).truncate(true), &file).unwrap();
        assert!(open(File::options().read(true), &file).is_ok());
    }

    #[test]
    fn functions_are_named_as_lspci_names_them() {
        assert_eq!(bdf("3a:1f.7").unwrap().bits(), 0x3aff);
        for wrong in ["", "3", "3:0", "3:20.0", "3:0.8", "x:0.0"] {
            assert!(bdf(wrong).unwrap_err().contains("03:00.0"), "{wrong}");
        }
    }

    #[test]
    fn devices_are_named_and_each_once() {
        assert!(all_different(&[]).unwrap_err().contains("name one"));
        let twice = ["03:00.0", "03:0.0"].map(str::to_owned);
        assert!(all_different(&twice).unwrap_err().contains("named twice"));
        assert_eq!(all_different(&twice[..1]).unwrap().len(), 1);
    }

    #[test]
    fn a_reason_names_its_function_once() {
        let bdf = bdf("03:00.0").unwrap();
        for error in [OperationError::NoFunction(bdf), OperationError::Invalid("no".into())] {
            assert_eq!(about(bdf, &error).matches("03:00.0").count(), 1, "{error}");
        }
    }

    #[test]
    fn registers_and_addresses_are_checked() {
        assert_eq!(config_register(0xffc), Ok(0xffc));
        assert!(config_register(0x1000).is_err());
        assert!(config_register(2).is_err());
        assert!(aligned(6).is_err());
        assert!(word(1 << 32).is_err());
    }
}
