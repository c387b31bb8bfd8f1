use super::Bench;
use crate::figures::{Aim, Plot, Results, Series};
use crate::floor::{Ends, Floor};
use crate::network::Traffic;
use crate::process::{number, processor_time};
use crate::system::{Layout, System};
use anyhow::{Result, ensure};
use proxy_core::limits::{DEVICE_OUTSTANDING, MAX_PAYLOAD_OFFERED};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The shares of the bare stream that are aimed for.
const WRITE_TARGET: f64 = 0.85;
const READ_TARGET: f64 = 0.75;

/// Largest payload of a function: bits 7:5 of Device Control (PCIe 5.0 section 7.5.3.4).
const PAYLOAD_SHIFT: u32 = 5;
/// Bytes of a read request that the targets are about.
pub(super) const READ: u16 = 512;
/// The same, of a write.
pub(super) const WRITE: usize = 256;

/// A system with one accelerator that has all tags.
pub(super) struct Subject<'a> {
    pub(super) bench: &'a Bench,
    system: System,
    device: String,
    /// Offset of its Device Control register.
    control: u64,
}

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let slot = Subject::slot();
    let slots = [slot.as_str()];
    let subject = Subject::start(bench, &Layout::of(&slots))?;
    targets(&subject, results)?;
    writes(&subject, results)?;
    reads(&subject, results)?;
    results.skipped.push(format!(
        "payloads over {MAX_PAYLOAD_OFFERED} bytes and more than {DEVICE_OUTSTANDING} tags: the \
         proxies offer no more (proxy-core's limits); writes of 64 bytes: Max_Payload_Size begins \
         at 128"
    ));
    Ok(())
}

/// Finds the PCI Express capability of a function.
fn device_control(system: &System, device: &str) -> Result<u64> {
    const EXPRESS: u32 = 0x10;
    let read = |register: u64| -> Result<u32> {
        let value = system.host(&["config-read", device, &register.to_string()])?;
        Ok(number(&value, "/value")? as u32)
    };
    let mut at = u64::from(read(0x34)? & 0xfc);
    while at != 0 {
        let header = read(at)?;
        if header & 0xff == EXPRESS {
            return Ok(at + 8);
        }
        at = u64::from(header >> 8 & 0xfc);
    }
    anyhow::bail!("{device} has no PCI Express capability")
}

impl<'a> Subject<'a> {
    /// The device's slot, as a box's command line has it.
    pub(super) fn slot() -> String {
        format!("1=accelerator,memory=1M,tags={DEVICE_OUTSTANDING},read={READ}")
    }

    /// Starts a system of which the slot is the only one, and lends the device.
    pub(super) fn start(bench: &'a Bench, layout: &Layout<'_>) -> Result<Self> {
        let system = System::start(&bench.programs, &bench.network, layout)?;
        let device = system.lend("accelerator", 1)?.remove(0).name;
        let control = device_control(&system, &device)?;
        Ok(Self { bench, system, device, control })
    }

    /// Sets the largest payload of the device's writes; bytes, a power of two from 128.
    pub(super) fn set_payload(&self, bytes: usize) -> Result<()> {
        let register = self.control.to_string();
        let now = self.system.host(&["config-read", &self.device, &register])?;
        // Writing ones to the status half would clear it.
        let now = number(&now, "/value")? as u32 & 0xffff & !(7 << PAYLOAD_SHIFT);
        let value = now | (bytes.trailing_zeros() - 7) << PAYLOAD_SHIFT;
        self.system.host(&["config-write", &self.device, &register, &value.to_string()])?;
        Ok(())
    }

    /// One direction's job; what it says of itself.
    pub(super) fn job(&self, way: &str, bytes: u64, more: &[&str]) -> Result<Value> {
        let bytes = bytes.to_string();
        let words = ["bandwidth", &self.device, "--only", way, "--bytes", &bytes];
        let report = self.system.host(&[&words, more].concat())?;
        let key = if way == "read" { "host_to_device" } else { "device_to_host" };
        let mut job = report[key].clone();
        for key in ["unloaded_rtt_ns", "equation1_unloaded_bytes_per_second"] {
            job[key] = report[key].clone();
        }
        Ok(job)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bench.pick(256 << 20, 64 << 20)
    }
}

pub(super) fn rate(job: &Value) -> Result<f64> {
    number(job, "/bytes_per_second")
}

/// The two directions at the sizes that the targets are about, by turns with bare frames.
fn targets(subject: &Subject<'_>, results: &mut Results) -> Result<()> {
    let (bench, system) = (subject.bench, &subject.system);
    let run = Duration::from_millis(bench.pick(500, 150));
    let mut floor = Floor::open(&bench.network, true)?;
    let mut rows = Vec::new();
    for _ in 0..bench.repeats {
        let bare = floor.stream(Ends::Bare, run)?;
        let work = floor.stream(Ends::CopyAndCrcs, run)?;
        subject.set_payload(WRITE)?;
        let before = (Traffic::of(&bench.network)?, Instant::now());
        let times = [processor_time(&system.host_proxy)?, processor_time(&system.boxes)?];
        let write = subject.job("write", subject.bytes(), &[])?;
        let since = [
            processor_time(&system.host_proxy)? - times[0],
            processor_time(&system.boxes)? - times[1],
        ];
        let frames = Traffic::of(&bench.network)?.since(before.0).received;
        // A device that takes no more than it writes would refuse the host's completions.
        subject.set_payload(MAX_PAYLOAD_OFFERED)?;
        let again = floor.stream(Ends::CopyAndCrcs, run)?;
        let read = subject.job("read", subject.bytes(), &[])?;
        rows.push(Row { bare, work, again, write, read, frames, since });
    }
    let of =
        |figure: &dyn Fn(&Row) -> Result<f64>| rows.iter().map(figure).collect::<Result<Vec<_>>>();
    results.figure("bare stream of 9000-byte frames", "MB/s", of(&|row| Ok(row.bare / 1e6))?);
    let name = "the same with one copy and both CRCs at each end";
    results.figure(name, "MB/s", of(&|row| Ok((row.work + row.again) / 2e6))?);
    results.figure("DMA write, 256-byte TLPs", "MB/s", of(&|row| Ok(rate(&row.write)? / 1e6))?);
    let read_name = format!("DMA read, {DEVICE_OUTSTANDING} tags of {READ} bytes");
    results.figure(read_name, "MB/s", of(&|row| Ok(rate(&row.read)? / 1e6))?);
    let ratio = of(&|row| Ok(rate(&row.write)? / row.work))?;
    results.aimed(
        "DMA write of the stream with copy and CRCs",
        "",
        ratio,
        Aim::AtLeast,
        WRITE_TARGET,
    );
    let ratio = of(&|row| Ok(rate(&row.read)? / row.again))?;
    results.aimed(
        "DMA read of the stream with copy and CRCs",
        "",
        ratio,
        Aim::AtLeast,
        READ_TARGET,
    );
    let tlps = |row: &Row| number(&row.write, "/requests");
    let seconds = |row: &Row| Ok::<_, anyhow::Error>(number(&row.write, "/elapsed_ns")? / 1e9);
    results.figure("TLPs, DMA write", "M/s", of(&|row| Ok(tlps(row)? / seconds(row)? / 1e6))?);
    results.figure("frames, DMA write", "M/s", of(&|row| Ok(row.frames / seconds(row)? / 1e6))?);
    results.figure("TLPs in a frame", "", of(&|row| Ok(tlps(row)? / row.frames))?);
    for (at, who) in ["host proxy", "box proxy"].into_iter().enumerate() {
        let nanos = of(&|row| Ok(row.since[at].as_nanos() as f64 / tlps(row)?))?;
        results.figure(format!("processor time of the {who} for a TLP"), "ns", nanos);
    }
    Ok(())
}

/// One turn of bare streams and jobs.
struct Row {
    bare: f64,
    work: f64,
    again: f64,
    write: Value,
    read: Value,
    frames: f64,
    since: [Duration; 2],
}

/// Writes by payload.
fn writes(subject: &Subject<'_>, results: &mut Results) -> Result<()> {
    let mut points = Vec::new();
    for payload in [128, 256, 512] {
        subject.set_payload(payload)?;
        let rates = (0..subject.bench.repeats)
            .map(|_| {
                let job = subject.job("write", subject.bytes() / 4, &[])?;
                let used = number(&job, "/request_bytes")? as usize;
                ensure!(used == payload, "the device writes {used} bytes, not {payload}");
                Ok(rate(&job)? / 1e6)
            })
            .collect::<Result<Vec<_>>>()?;
        let name = format!("DMA write, payload {payload} bytes");
        points.push((payload as f64, results.figure(name, "MB/s", rates).median));
    }
    subject.set_payload(MAX_PAYLOAD_OFFERED)?;
    results.plots.push(Plot {
        title: "DMA write by payload".into(),
        x: "payload of a TLP, bytes".into(),
        y: "MB/s".into(),
        series: vec![Series { name: "measured".into(), points }],
    });
    Ok(())
}

/// Reads by tags and by the size of a request, beside Equation 1 of the DxPU paper.
fn reads(subject: &Subject<'_>, results: &mut Results) -> Result<()> {
    let by_tags = [1, 4, 16, 64, 140, 256].map(|tags| (tags, READ));
    let by_size =
        [64, 128, 256, 512, 1024, 2048, 4096].map(|size| (DEVICE_OUTSTANDING as u16, size));
    for (title, x, cases) in [
        (format!("DMA read by tags, requests of {READ} bytes"), "tags", &by_tags[..]),
        (
            format!("DMA read by size of a request, {DEVICE_OUTSTANDING} tags"),
            "bytes of a request",
            &by_size[..],
        ),
    ] {
        let (mut measured, mut predicted) = (Vec::new(), Vec::new());
        for &(tags, size) in cases {
            let bytes = subject.bytes().min(u64::from(tags) << subject.bench.pick(21, 19));
            let (mut rates, mut equation) = (Vec::new(), Vec::new());
            for _ in 0..subject.bench.pick(3, 1) {
                let more = ["--tags", &tags.to_string(), "--request", &size.to_string()];
                let job = subject.job("read", bytes, &more)?;
                rates.push(rate(&job)? / 1e6);
                equation.push(number(&job, "/equation1_unloaded_bytes_per_second")? / 1e6);
            }
            let at = if x == "tags" { f64::from(tags) } else { f64::from(size) };
            let name = format!("DMA read, {tags} tags of {size} bytes");
            measured.push((at, results.figure(&name, "MB/s", rates).median));
            let name = format!("{name}, by Equation 1");
            predicted.push((at, results.figure(name, "MB/s", equation).median));
        }
        let series = [("measured", measured), ("tags × request ÷ round trip", predicted)];
        let series =
            series.into_iter().map(|(name, points)| Series { name: name.into(), points }).collect();
        results.plots.push(Plot { title, x: x.into(), y: "MB/s".into(), series });
    }
    Ok(())
}
