//! `dxpu-bench-vm`: what the fabric costs a guest. The same guest, front-end and drive model with
//! the fabric between and without (`dxpu-direct`), by turns in one run; and beside them NVMe/TCP
//! between two guests, which is what one would take instead.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use processes::namespaces::ip;
use processes::{Daemon, own_folder, wait_for};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use vm::{BOOT_BOUND, Cache, Fabric, Guest, Kernel, News, Options, TALK_BOUND};

/// What the fabric costs a guest: random reads of 4 KiB and register reads, beside the same without
/// a fabric, and beside NVMe/TCP.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 both targets are met, 1 one is missed or something failed, \
                  2 wrong arguments."
)]
struct Cli {
    /// The guests' kernel
    #[arg(long, value_enum, default_value = "6.12")]
    kernel: Kernel,
    /// How often each is measured; medians are taken
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// How long each measurement of the drive takes, seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Raw Ethernet on a veth pair in place of UDP on loopback (as root)
    #[arg(long)]
    l2: bool,
    /// How long proxies, and what is without a fabric, spin before they sleep, microseconds
    #[arg(long, value_name = "US", default_value_t = 50)]
    spin_us: u32,
    /// The same after a read of a register, if longer, microseconds
    #[arg(long, value_name = "US", default_value_t = 200)]
    spin_after_read_us: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Read requests that the drive has at a time.
const DEPTHS: [u32; 2] = [1, 32];

/// Share of the reads a second that has to be left.
const READS_TARGET: f64 = 0.60;
/// What a register read may take, in round trips without a fabric.
const ROUND_TRIP_TARGET: f64 = 1.5;

const BOUND: Duration = Duration::from_secs(600);
const SIZE: &str = "64M";

/// What one way to a drive gave, each repeat's number.
#[derive(Debug, Default, Serialize)]
struct Measured {
    /// Reads a second, for each of [`DEPTHS`].
    reads: [Vec<f64>; DEPTHS.len()],
    /// Register read, microseconds; nothing where there is no register.
    round_trip: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    /// What the proxies' frames travel by.
    network: &'static str,
    fabric: Measured,
    direct: Measured,
    nvme_tcp: Measured,
    /// Of medians, for each depth.
    reads_ratio: [f64; DEPTHS.len()],
    round_trip_ratio: f64,
    reads_target: f64,
    round_trip_target: f64,
    passed: bool,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A drive as a guest sees it, and an accelerator's address where there is one.
struct Way {
    guest: usize,
    drive: String,
    accelerator: Option<String>,
}

impl Way {
    fn measure(&self, guests: &mut [Guest], seconds: u32, into: &mut Measured) -> Result<()> {
        let guest = &mut guests[self.guest];
        for (depth, reads) in DEPTHS.iter().zip(&mut into.reads) {
            let output = guest.sh(
                &format!(
                    "fio --name=r --filename={} --rw=randread --bs=4k --iodepth={depth} \
                     --ioengine=libaio --direct=1 --size={SIZE} --time_based --runtime={seconds} \
                     --output-format=json",
                    self.drive
                ),
                BOUND,
            )?;
            ensure!(output.status == 0, "fio: {}", output.text);
            let start = output.text.find('{').context("fio says nothing")?;
            let report: Value = serde_json::from_str(&output.text[start..])?;
            let iops = report.pointer("/jobs/0/read/iops").and_then(Value::as_f64);
            reads.push(iops.context("fio counts no reads")?);
        }
        if let Some(address) = &self.accelerator {
            let text = guest.ok(&format!("dxpu-guest round-trip {address} --json"))?;
            let report: Value = serde_json::from_str(text.trim())?;
            let median = report["median_ns"].as_f64().context("no round trip")?;
            into.round_trip.push(median / 1e3);
        }
        Ok(())
    }
}

fn accelerator(guest: &mut Guest) -> Result<String> {
    let find = "basename $(dirname $(grep -l 0xd0ac /sys/bus/pci/devices/*/device))";
    guest.until(&format!("test -n \"$({find} 2>/dev/null)\""), TALK_BOUND)?;
    Ok(guest.ok(find)?.trim().to_owned())
}

/// A target in one guest, over a file in memory, and a connection to it from another.
fn connect(guests: &mut [Guest], from: usize, to: usize) -> Result<String> {
    let network = |guest: &mut Guest, address: &str| {
        guest.ok(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"))
    };
    network(&mut guests[from], "10.9.0.1")?;
    network(&mut guests[to], "10.9.0.2")?;
    guests[to].ok(&format!(
        "modprobe nvmet-tcp && mount -t configfs c /sys/kernel/config && \
         dd if=/dev/zero of=/tmp/drive bs=1M count={} 2>/dev/null && \
         cd /sys/kernel/config/nvmet && mkdir -p subsystems/t/namespaces/1 ports/1 && \
         echo 1 > subsystems/t/attr_allow_any_host && \
         echo 1 > subsystems/t/namespaces/1/buffered_io && \
         echo -n /tmp/drive > subsystems/t/namespaces/1/device_path && \
         echo 1 > subsystems/t/namespaces/1/enable && \
         echo tcp > ports/1/addr_trtype && echo ipv4 > ports/1/addr_adrfam && \
         echo 10.9.0.2 > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid && \
         ln -s /sys/kernel/config/nvmet/subsystems/t ports/1/subsystems/t",
        SIZE.trim_end_matches('M')
    ))?;
    let guest = &mut guests[from];
    guest.ok("modprobe nvme-tcp && \
         echo transport=tcp,traddr=10.9.0.2,trsvcid=4420,nqn=t > /dev/nvme-fabrics")?;
    let find = "for c in /sys/class/nvme/nvme*; do \
                grep -q tcp $c/transport && ls -d $c/nvme*n1; done | head -1";
    guest.until(&format!("test -n \"$({find})\""), TALK_BOUND)?;
    let path = guest.ok(find)?;
    let name = Path::new(path.trim()).file_name().and_then(|name| name.to_str());
    // Multipath gives a name without the controller's.
    let name = name.context("a block device has a name")?;
    let name = match name.split_once('c').zip(name.rsplit_once('n')) {
        Some(((before, _), (_, number))) => format!("{before}n{number}"),
        None => name.to_owned(),
    };
    Ok(format!("/dev/{name}"))
}

/// A cable between the proxies, which is a veth pair; gone when dropped.
struct Cable;

impl Cable {
    /// The host proxy's end and the box's.
    const ENDS: [&str; 2] = ["dxpu-vm-host", "dxpu-vm-box"];

    fn lay() -> Result<Self> {
        let [near, far] = Self::ENDS;
        ip(&format!("link add {near} mtu 9000 type veth peer name {far} mtu 9000"))
            .context("--l2 makes network interfaces, which needs root and iproute2")?;
        let cable = Self;
        for end in Self::ENDS {
            // No neighbour discovery between the frames.
            ip(&format!("link set {end} addrgenmode none"))?;
            ip(&format!("link set {end} up"))?;
        }
        Ok(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = ip(&format!("link delete {}", Self::ENDS[0]));
    }
}

struct Stage {
    guests: Vec<Guest>,
    ways: [Way; 3],
    _direct: Daemon,
    _fabric: Fabric,
    _cable: Option<Cable>,
}

fn set_up(cli: &Cli, folder: &Path) -> Result<Stage> {
    let programs = own_folder()?;
    let cache = Cache::open(&[cli.kernel], &mut |news| {
        if let News::Step(text) = news {
            eprintln!("{text}");
        }
    })?;
    let tools = vm::guest_tools(&programs)?;
    let mut fabric = Fabric::start(&programs, folder)?;
    let cable = cli.l2.then(Cable::lay).transpose()?;
    let (usual, after_read) = (cli.spin_us.to_string(), cli.spin_after_read_us.to_string());
    let spin = ["--spin-us", &usual, "--spin-after-read-us", &after_read];
    let travel_by = |fabric: &mut Fabric, end: &str| {
        let network = if cli.l2 { format!("eth:{end}") } else { "udp:127.0.0.1:0".to_owned() };
        fabric.network =
            [&["--fabric", &network][..], &spin].concat().iter().map(ToString::to_string).collect();
    };
    let [host_end, box_end] = Cable::ENDS;
    let slots = [format!("1=nvme,image=fabric.img,size={SIZE}"), "2=accelerator".to_owned()];
    travel_by(&mut fabric, box_end);
    fabric.add_box("box-a", &slots)?;
    travel_by(&mut fabric, host_end);
    let fabric_socket = fabric.add_host("host-1", &["--ports", "2"])?;
    fabric.wait_ready()?;
    let direct_socket = folder.join("direct.sock");
    let mut command = Command::new(programs.join("dxpu-direct"));
    command.arg("--vm").arg(&direct_socket).arg("--nvme").arg(folder.join("direct.img"));
    command.args(spin);
    let mut direct = Daemon::start("direct", folder, command, false)?;
    wait_for("dxpu-direct's socket", BOUND, || {
        direct.check()?;
        Ok(direct_socket.exists().then_some(()))
    })?;

    let ends: [PathBuf; 2] = ["link-1", "link-2"].map(|name| folder.join(name));
    let options = |name: &str| {
        let mut options = Options::new(name, cli.kernel);
        options.append = "pci=hpmmiosize=8M,hpmmioprefsize=64M".to_owned();
        options.niceness = 0;
        options.files = vec![("usr/bin/dxpu-guest".to_owned(), tools.clone())];
        options
    };
    let mut lender = options("fabric").with_vfio_user(&fabric_socket).with_modules(["virtio_net"]);
    lender.link = Some((ends[0].clone(), ends[1].clone()));
    let alone = options("direct").with_vfio_user(&direct_socket);
    let mut target = options("target").with_modules(["virtio_net"]);
    target.link = Some((ends[1].clone(), ends[0].clone()));
    eprintln!("booting three guests");
    let mut guests = Vec::new();
    for options in [lender, alone, target] {
        guests.push(Guest::start(&cache, &options, folder)?);
    }
    for guest in &mut guests {
        guest.boot(BOOT_BOUND)?;
    }
    for slot in ["box-a/1", "box-a/2"] {
        fabric.allocate("host-1", slot)?;
    }
    for guest in &mut guests[..2] {
        guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
    }
    let way = |guest: usize, accelerator: String| Way {
        guest,
        drive: "/dev/nvme0n1".to_owned(),
        accelerator: Some(accelerator),
    };
    let with = way(0, accelerator(&mut guests[0])?);
    let without = way(1, accelerator(&mut guests[1])?);
    let tcp = Way { guest: 0, drive: connect(&mut guests, 0, 2)?, accelerator: None };
    Ok(Stage {
        guests,
        ways: [with, without, tcp],
        _direct: direct,
        _fabric: fabric,
        _cable: cable,
    })
}

fn run(cli: &Cli) -> Result<bool> {
    processes::catch_signals()?;
    let folder = tempfile::tempdir()?;
    let mut stage = set_up(cli, folder.path())?;
    let mut measured: [Measured; 3] = Default::default();
    for repeat in 1..=cli.repeats {
        eprintln!("measuring, {repeat} of {}", cli.repeats);
        for (way, into) in stage.ways.iter().zip(&mut measured) {
            way.measure(&mut stage.guests, cli.seconds, into)?;
        }
    }
    let [fabric, direct, nvme_tcp] = measured;
    let ratio = |of: &[f64], to: &[f64]| median(of) / median(to);
    let reads_ratio = std::array::from_fn(|n| ratio(&fabric.reads[n], &direct.reads[n]));
    let round_trip_ratio = ratio(&fabric.round_trip, &direct.round_trip);
    let passed = reads_ratio.iter().all(|ratio| *ratio >= READS_TARGET)
        && round_trip_ratio <= ROUND_TRIP_TARGET;
    let report = Report {
        kernel: cli.kernel.to_string(),
        network: if cli.l2 { "raw Ethernet on a veth pair" } else { "UDP on loopback" },
        fabric,
        direct,
        nvme_tcp,
        reads_ratio,
        round_trip_ratio,
        reads_target: READS_TARGET,
        round_trip_target: ROUND_TRIP_TARGET,
        passed,
    };
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(passed)
}

fn print(report: &Report) {
    println!("the fabric is {}", report.network);
    println!("{:24}{:>14}{:>14}{:>14}", "", "4 KiB, QD 1", "4 KiB, QD 32", "register read");
    for (name, way) in [
        ("through the fabric", &report.fabric),
        ("without a fabric", &report.direct),
        ("NVMe/TCP, two guests", &report.nvme_tcp),
    ] {
        let reads: Vec<String> =
            way.reads.iter().map(|reads| format!("{:.0} /s", median(reads))).collect();
        let round_trip = if way.round_trip.is_empty() {
            "-".to_owned()
        } else {
            format!("{:.1} us", median(&way.round_trip))
        };
        println!("{name:24}{:>14}{:>14}{round_trip:>14}", reads[0], reads[1]);
    }
    println!(
        "{:24}{:>14.2}{:>14.2}{:>14.2}",
        "ratio", report.reads_ratio[0], report.reads_ratio[1], report.round_trip_ratio
    );
    println!(
        "targets: reads at least {READS_TARGET:.2}, register read at most \
         {ROUND_TRIP_TARGET:.2}: {}",
        if report.passed { "met" } else { "missed" }
    );
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dxpu-bench-vm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
