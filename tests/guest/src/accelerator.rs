//! Bandwidth test of the accelerator for measurements, from user space.

use crate::function::{Bar, Function, address, expect};
use crate::memory::HugePage;
use anyhow::{Context, Result, bail, ensure};
use host_model::accelerator::regs;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Host memory that a job goes over again and again.
const WINDOW: usize = 1 << 20;
/// A job that makes no progress for so long has failed.
const STALL: Duration = Duration::from_secs(20);
/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(2);
const SEED: u64 = 0xd0ac;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The accelerator, such as 10000:04:00.0
    #[arg(value_parser = address)]
    function: String,
    /// MiB to move each way
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    mib: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What moving data one way gave, by the device's clock.
#[derive(Debug, Serialize)]
struct Way {
    bytes: u64,
    elapsed_ns: u64,
    megabytes_per_second: f64,
    tags: u32,
    request_bytes: u32,
    rtt_mean_ns: u64,
    /// Equation 1 of the DxPU paper: tags x request / round trip; nothing for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    equation_1_megabytes_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    memory_bytes: u64,
    host_to_device: Way,
    device_to_host: Way,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let function = Function::open(&args.function)?;
    function.enable()?;
    let registers = function.bar(regs::REGISTER_BAR)?;
    ensure!(registers.len() as u64 > regs::DOORBELL, "BAR 0 is too short for an accelerator");
    expect("ID", registers.read32(regs::ID), regs::ID_VALUE)?;
    expect("the major version", registers.read32(regs::VERSION) >> 16, regs::VERSION_MAJOR)?;
    registers.write32(regs::CONTROL, regs::CONTROL_RESET);
    let memory_bytes = registers.read64(regs::MEMORY_SIZE);
    check_memory(&function, memory_bytes)?;
    let mut page = HugePage::take()?;
    let bytes = u64::from(args.mib) << 20;
    let host_to_device = to_device(&registers, &mut page, bytes).context("host to device")?;
    let device_to_host =
        to_host(&registers, &mut page, bytes, memory_bytes).context("device to host")?;
    let report = Report { memory_bytes, host_to_device, device_to_host };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// The first and last word of device memory, through its BAR.
fn check_memory(function: &Function, bytes: u64) -> Result<()> {
    let memory = function.bar(regs::MEMORY_BAR)?;
    ensure!(memory.len() as u64 == bytes, "BAR 2 has {} bytes, not {bytes}", memory.len());
    for (at, value) in [(0, 0x0123_4567), (bytes / 2, 0x89ab_cdef), (bytes - 4, 0xfedc_ba98)] {
        memory.write32(at, value);
        expect(&format!("device memory at {at:#x}"), memory.read32(at), value)?;
    }
    Ok(())
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|k| regs::pattern_word(seed, k));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

/// CRC of `bytes` bytes that are `data` again and again.
fn crc_of(data: &[u8], bytes: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(data.len() as u64);
        crc.update(&data[..part as usize]);
        left -= part;
    }
    crc.finalize()
}

fn to_device(registers: &Bar, page: &mut HugePage, bytes: u64) -> Result<Way> {
    let data = pattern(!SEED, WINDOW);
    page.write(&data);
    job(registers, regs::OP_READ, page.physical(), WINDOW as u64, bytes)?;
    expect("CRC", registers.read32(regs::SLOT_CRC), crc_of(&data, bytes))?;
    Ok(way(registers, bytes, true))
}

fn to_host(registers: &Bar, page: &mut HugePage, bytes: u64, memory: u64) -> Result<Way> {
    let filled = memory.min(bytes);
    job(registers, regs::OP_FILL, SEED, 0, filled)?;
    page.write(&[0; WINDOW]);
    job(registers, regs::OP_WRITE, page.physical(), WINDOW as u64, bytes)?;
    let data = pattern(SEED, filled as usize);
    expect("CRC", registers.read32(regs::SLOT_CRC), crc_of(&data, bytes))?;
    let way = way(registers, bytes, false);
    // Byte i of the job is at i modulo the window; the last bytes stayed.
    let window = (WINDOW as u64).min(bytes);
    let found = page.read(window as usize);
    let first = bytes - window;
    for at in first..bytes {
        let (found, wanted) = (found[(at % WINDOW as u64) as usize], data[(at % filled) as usize]);
        ensure!(found == wanted, "byte {at} in host memory is {found:#04x}, not {wanted:#04x}");
    }
    Ok(way)
}

fn job(registers: &Bar, operation: u32, host: u64, window: u64, length: u64) -> Result<()> {
    registers.write64(regs::SLOT_HOST, host);
    registers.write64(regs::SLOT_HOST_WINDOW, window);
    registers.write64(regs::SLOT_DEVICE, 0);
    registers.write64(regs::SLOT_LENGTH, length);
    registers.write32(regs::SLOT_COMMAND, operation);
    registers.write32(regs::DOORBELL, 1);
    let (mut moved, mut since) = (0, Instant::now());
    loop {
        let status = registers.read32(regs::SLOT_STATUS);
        match status as u8 {
            regs::STATE_DONE => return Ok(()),
            regs::STATE_RUNNING => {}
            state => {
                let why = regs::error_name((status >> 8) as u8);
                bail!("the job is in state {state}: {why}");
            }
        }
        let now_moved = registers.read64(regs::SLOT_TRANSFERRED);
        if now_moved != moved {
            (moved, since) = (now_moved, Instant::now());
        }
        ensure!(since.elapsed() < STALL, "the job stalls at {moved} of {length} bytes");
        std::thread::sleep(LOOK);
    }
}

fn way(registers: &Bar, bytes: u64, reads: bool) -> Way {
    let elapsed_ns = registers.read64(regs::SLOT_ELAPSED).max(1);
    let payload = registers.read32(regs::PAYLOAD);
    let tags = registers.read32(regs::TAGS);
    let requests = registers.read64(regs::SLOT_REQUESTS).max(1);
    let rtt_mean_ns = registers.read64(regs::SLOT_RTT_SUM) / requests;
    let request_bytes = if reads { payload >> 16 } else { payload & 0xffff };
    let rate = |bytes: f64, ns: u64| bytes * 1e3 / ns as f64;
    let in_flight = f64::from(tags) * f64::from(request_bytes);
    Way {
        bytes,
        elapsed_ns,
        megabytes_per_second: rate(bytes as f64, elapsed_ns),
        tags,
        request_bytes,
        rtt_mean_ns,
        equation_1_megabytes_per_second: reads.then(|| rate(in_flight, rtt_mean_ns.max(1))),
    }
}

fn print(report: &Report) {
    println!("accelerator with {} MiB of memory", report.memory_bytes >> 20);
    for (name, way) in
        [("host to device", &report.host_to_device), ("device to host", &report.device_to_host)]
    {
        print!(
            "{name}: {} MiB, {:.1} MB/s, requests of {} bytes",
            way.bytes >> 20,
            way.megabytes_per_second,
            way.request_bytes
        );
        match way.equation_1_megabytes_per_second {
            Some(most) => println!(
                ", {} tags, mean round trip {:.1} us; Equation 1: {most:.1} MB/s",
                way.tags,
                way.rtt_mean_ns as f64 / 1e3
            ),
            None => println!(),
        }
    }
    println!("every byte was right");
}
