use super::Bench;
use crate::figures::{Aim, Held, Plot, Results, Series};
use crate::floor::{By, Ends, Floor};
use crate::network::Traffic;
use crate::process::{number, processor_time};
use crate::system::{Layout, System, Transport};
use anyhow::{Result, ensure};
use proxy_core::limits::{DEVICE_OUTSTANDING, MAX_PAYLOAD_OFFERED};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The shares of the bare stream that are aimed for.
const WRITE_TARGET: f64 = 0.85;
const READ_TARGET: f64 = 0.75;

/// What carries the frames, and its name.
const TRANSPORTS: [(&str, Transport, By); 2] = [
    ("rings", Transport::Rings, By::Rings),
    ("UDP", Transport::Udp { segmentation: true }, By::Udp),
];

/// Bytes of a write, and of a read request, that the targets are about. No size of a request is in
/// the target of reads, so they are as large as they can be.
const WRITE: usize = 256;
const READ: usize = 4096;

/// Tags of the reads: as many as 8 bits tell apart.
pub(super) const TAGS: usize = 256;

/// A system with one accelerator that has all tags, and sizes as large as there are.
pub(super) struct Subject<'a> {
    pub(super) bench: &'a Bench,
    system: System,
    device: String,
}

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for (name, transport, by) in TRANSPORTS {
        targets(&Subject::start(bench, transport)?, name, by, results)?;
    }
    let subject = Subject::start(bench, Transport::Rings)?;
    writes(&subject, results)?;
    reads(&subject, results)
}

impl<'a> Subject<'a> {
    /// Starts a system of which the device is the only one, and lends it.
    pub(super) fn start(bench: &'a Bench, transport: Transport) -> Result<Self> {
        let slot = format!("1=accelerator,memory=1M,tags={DEVICE_OUTSTANDING},read={READ}");
        let slots = [slot.as_str()];
        let layout = Layout { transport, payload: MAX_PAYLOAD_OFFERED, ..Layout::of(&slots) };
        let system = System::start(&bench.programs, &bench.network, &layout)?;
        let device = system.lend("accelerator", 1)?.remove(0).name;
        Ok(Self { bench, system, device })
    }

    /// One direction's job in TLPs of so many bytes; what it says of itself.
    pub(super) fn job(&self, way: &str, bytes: u64, request: usize, tags: usize) -> Result<Value> {
        let (bytes, request, tags) = (bytes.to_string(), request.to_string(), tags.to_string());
        let job = ["bandwidth", &self.device, "--only", way, "--bytes", &bytes];
        let report =
            self.system.host(&[&job[..], &["--request", &request, "--tags", &tags]].concat())?;
        let key = if way == "read" { "host_to_device" } else { "device_to_host" };
        let mut job = report[key].clone();
        for key in ["unloaded_rtt_ns", "equation1_unloaded_bytes_per_second"] {
            job[key] = report[key].clone();
        }
        let used = number(&job, "/request_bytes")?.to_string();
        ensure!(used == request, "the device's TLPs are of {used} bytes, not {request}");
        Ok(job)
    }

    /// A job of writes.
    pub(super) fn write(&self, bytes: u64, payload: usize) -> Result<Value> {
        self.job("write", bytes, payload, TAGS)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bench.pick(256 << 20, 64 << 20)
    }
}

pub(super) fn rate(job: &Value) -> Result<f64> {
    number(job, "/bytes_per_second")
}

/// The two directions at the sizes that the targets are about, by turns with bare frames.
fn targets(subject: &Subject<'_>, transport: &str, by: By, results: &mut Results) -> Result<()> {
    let (bench, system) = (subject.bench, &subject.system);
    let run = Duration::from_millis(bench.pick(500, 150));
    let mut floor = Floor::open(&bench.network, By::Rings)?;
    // Of two ports with rings each would get what is sent to the other.
    let mut carrier = match by {
        By::Rings => None,
        _ => Some(Floor::open(&bench.network, by)?),
    };
    let mut rows = Vec::new();
    for _ in 0..bench.repeats {
        let bare = floor.stream(Ends::Bare, run)?;
        let work = floor.stream(Ends::CopyAndCrcs, run)?;
        let before = (Traffic::of(&bench.network)?, Instant::now());
        let times = processor_times(system)?;
        let write = subject.write(subject.bytes(), WRITE)?;
        let of_write = since(times, system)?;
        let frames = Traffic::of(&bench.network)?.since(before.0).received;
        let most = carrier.as_mut().unwrap_or(&mut floor).stream(Ends::Writes(WRITE), run)?;
        let again = floor.stream(Ends::CopyAndCrcs, run)?;
        let times = processor_times(system)?;
        let read = subject.job("read", subject.bytes(), READ, TAGS)?;
        let of_read = since(times, system)?;
        rows.push(Row { bare, work, most, again, write, read, frames, of_write, of_read });
    }
    let of =
        |figure: &dyn Fn(&Row) -> Result<f64>| rows.iter().map(figure).collect::<Result<Vec<_>>>();
    let name = |what: &str| format!("{transport}: {what}");
    results.figure(name("bare stream of 9000-byte frames"), "MB/s", of(&|row| Ok(row.bare / 1e6))?);
    let what = "the same with one copy and both CRCs at each end";
    results.figure(name(what), "MB/s", of(&|row| Ok((row.work + row.again) / 2e6))?);
    let write = format!("DMA write, TLPs of {WRITE} bytes");
    results.figure(name(&write), "MB/s", of(&|row| Ok(rate(&row.write)? / 1e6))?);
    let read = format!("DMA read, {TAGS} tags of {READ} bytes");
    results.figure(name(&read), "MB/s", of(&|row| Ok(rate(&row.read)? / 1e6))?);
    for (what, ratio, target) in [
        (write, of(&|row| Ok(rate(&row.write)? / row.work))?, WRITE_TARGET),
        (read, of(&|row| Ok(rate(&row.read)? / row.again))?, READ_TARGET),
    ] {
        let what = format!("{what}, of the stream with copy and CRCs");
        results.aimed(name(&what), "", ratio, Held::Median, Aim::AtLeast, target);
    }
    let what = format!("what copies and CRCs alone leave to TLPs of {WRITE} bytes, of that stream");
    results.figure(name(&what), "", of(&|row| Ok(row.most / row.work))?);
    let tlps = |row: &Row| number(&row.write, "/requests");
    let seconds = |row: &Row| Ok::<_, anyhow::Error>(number(&row.write, "/elapsed_ns")? / 1e9);
    let figure = of(&|row| Ok(tlps(row)? / seconds(row)? / 1e6))?;
    results.figure(name("TLPs, DMA write"), "M/s", figure);
    // A frame that the kernel cuts into datagrams late is counted once with the others.
    if by == By::Rings {
        let figure = of(&|row| Ok(row.frames / seconds(row)? / 1e6))?;
        results.figure(name("frames, DMA write"), "M/s", figure);
        results.figure(name("TLPs in a frame"), "", of(&|row| Ok(tlps(row)? / row.frames))?);
    }
    for (at, who) in ["host proxy", "box proxy"].into_iter().enumerate() {
        let nanos = of(&|row| Ok(row.of_write[at].as_nanos() as f64 / tlps(row)?))?;
        let what = format!("processor time of the {who} for a TLP, DMA write");
        results.figure(name(&what), "ns", nanos);
        // Requests have no data, and how many completions answer one is the root complex's choice.
        let reads = |row: &Row| number(&row.read, "/requests");
        let nanos = of(&|row| Ok(row.of_read[at].as_nanos() as f64 / reads(row)?))?;
        let what = format!("processor time of the {who} for {READ} bytes, DMA read");
        results.figure(name(&what), "ns", nanos);
    }
    Ok(())
}

/// Processor time of host proxy and box proxy up to now.
fn processor_times(system: &System) -> Result<[Duration; 2]> {
    Ok([processor_time(&system.host_proxy)?, processor_time(&system.boxes)?])
}

fn since(before: [Duration; 2], system: &System) -> Result<[Duration; 2]> {
    let [host, boxes] = processor_times(system)?;
    Ok([host - before[0], boxes - before[1]])
}

/// One turn of bare streams and jobs.
struct Row {
    bare: f64,
    work: f64,
    most: f64,
    again: f64,
    write: Value,
    read: Value,
    frames: f64,
    of_write: [Duration; 2],
    of_read: [Duration; 2],
}

/// The bare stream beside a sweep: all that was measured of it, as a line in the sweep's picture.
struct Beside {
    floor: Floor,
    run: Duration,
    rates: Vec<f64>,
}

impl Beside {
    fn open(bench: &Bench) -> Result<Self> {
        let run = Duration::from_millis(bench.pick(100, 30));
        Ok(Self { floor: Floor::open(&bench.network, By::Rings)?, run, rates: Vec::new() })
    }

    /// Measures it once.
    fn turn(&mut self) -> Result<()> {
        self.rates.push(self.floor.stream(Ends::Bare, self.run)? / 1e6);
        Ok(())
    }

    /// What it came to, and a line of that.
    fn end(self, sweep: &str, from: f64, to: f64, results: &mut Results) -> Series {
        let name = format!("bare stream of 9000-byte frames beside {sweep}");
        let median = results.figure(name, "MB/s", self.rates).median;
        Series { name: "bare frames".into(), points: vec![(from, median), (to, median)] }
    }
}

/// Writes by payload.
fn writes(subject: &Subject<'_>, results: &mut Results) -> Result<()> {
    let (mut points, mut bare) = (Vec::new(), Beside::open(subject.bench)?);
    for payload in [64, 128, 256, 512, 1024, 2048, 4096] {
        let mut rates = Vec::new();
        for _ in 0..subject.bench.repeats {
            bare.turn()?;
            rates.push(rate(&subject.write(subject.bytes() / 4, payload)?)? / 1e6);
        }
        let name = format!("DMA write, payload {payload} bytes");
        points.push((payload as f64, results.figure(name, "MB/s", rates).median));
    }
    let bare = bare.end("the writes", 64.0, 4096.0, results);
    results.plots.push(Plot {
        title: "DMA write by payload".into(),
        x: "payload of a TLP, bytes".into(),
        y: "MB/s".into(),
        series: vec![Series { name: "measured".into(), points }, bare],
    });
    Ok(())
}

/// Reads by tags and by the size of a request, beside Equation 1 of the DxPU paper.
fn reads(subject: &Subject<'_>, results: &mut Results) -> Result<()> {
    /// Bytes of a request where tags are counted: what usual systems allow.
    const USUAL: usize = 512;
    let by_tags = [1, 4, 16, 64, 140, 256, 512, DEVICE_OUTSTANDING].map(|tags| (tags, USUAL));
    let by_size = [64, 128, 256, 512, 1024, 2048, 4096].map(|size| (TAGS, size));
    for (title, x, cases) in [
        (format!("DMA read by tags, requests of {USUAL} bytes"), "tags", &by_tags[..]),
        (format!("DMA read by size of a request, {TAGS} tags"), "bytes of a request", &by_size[..]),
    ] {
        let at = |&(tags, size): &(usize, usize)| if x == "tags" { tags } else { size } as f64;
        let (mut measured, mut predicted) = (Vec::new(), Vec::new());
        let mut bare = Beside::open(subject.bench)?;
        for &(tags, size) in cases {
            let bytes = subject.bytes().min((tags as u64) << subject.bench.pick(21, 19));
            let (mut rates, mut equation) = (Vec::new(), Vec::new());
            for _ in 0..subject.bench.repeats {
                bare.turn()?;
                let job = subject.job("read", bytes, size, tags)?;
                rates.push(rate(&job)? / 1e6);
                equation.push(number(&job, "/equation1_unloaded_bytes_per_second")? / 1e6);
            }
            let at = at(&(tags, size));
            let name = format!("DMA read, {tags} tags of {size} bytes");
            measured.push((at, results.figure(&name, "MB/s", rates).median));
            let name = format!("{name}, by Equation 1");
            predicted.push((at, results.figure(name, "MB/s", equation).median));
        }
        let series = [("measured", measured), ("tags × request ÷ round trip", predicted)];
        let mut series: Vec<_> =
            series.into_iter().map(|(name, points)| Series { name: name.into(), points }).collect();
        let (first, last) = (at(&cases[0]), at(&cases[cases.len() - 1]));
        series.push(bare.end(&format!("the reads by {x}"), first, last, results));
        results.plots.push(Plot { title, x: x.into(), y: "MB/s".into(), series });
    }
    Ok(())
}
