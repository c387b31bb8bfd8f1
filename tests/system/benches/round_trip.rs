//! The whole path's round trip beside its floor, and the memory of a full box proxy.
//!
//! A 4-byte register read goes from the model host through host proxy, raw Ethernet on veth, box
//! proxy and device model, and its completion back. The floor is a bare frame of the same length
//! bouncing between two `AF_PACKET` sockets of the same kind on the same interfaces and processors,
//! under another EtherType, so that the proxies do not get it. Both are measured in turns, so that
//! what disturbs one disturbs the other.
//!
//! `cargo bench -p system-tests --bench round_trip [-- --json] [--reads N] [--repeats N]
//! [--spin-us N] [--no-memory]`, as root.

use anyhow::{Context, Result, bail, ensure};
use proxy_net::{Port, RawOptions, RawPort, floor};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The round trip that is aimed for, in floors.
const TARGET: f64 = 2.0;

/// The memory that is aimed for: a box proxy of 16 slots, in bytes.
const MEMORY_TARGET: u64 = 64 << 20;

/// Traffic through the full box proxy.
const TRAFFIC: Duration = Duration::from_secs(10);

/// How long daemons, devices and hot-plug get.
const PATIENCE: Duration = Duration::from_secs(30);

const HOST_PROCESSOR: usize = 0;
const BOX_PROCESSOR: usize = 1;

struct Options {
    json: bool,
    reads: u32,
    repeats: usize,
    spin_us: Option<String>,
    memory: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1).cloned()
    };
    let count = |name: &str| value(name).and_then(|text| text.parse::<u32>().ok());
    let options = Options {
        json: flag("--json"),
        reads: count("--reads").unwrap_or(20_000).max(1),
        repeats: count("--repeats").unwrap_or(7).max(1) as usize,
        spin_us: value("--spin-us"),
        memory: !flag("--no-memory"),
    };
    // Cargo says --bench when figures are wanted, not when it only tries whether benches run.
    if !flag("--bench") {
        println!("SKIPPED round_trip: measured by cargo bench only");
        return ExitCode::SUCCESS;
    }
    // SAFETY: geteuid(2) only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED round_trip: network namespaces and raw sockets need root");
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(results) => {
            if options.json {
                println!("{results:#}");
            }
            let missed = |part| results.pointer(part) == Some(&Value::Bool(false));
            if missed("/round_trip/met") || missed("/memory/met") {
                eprintln!("a target is missed");
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED round_trip: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Value> {
    let programs = build()?;
    let spaces = Namespaces::make().context("network namespaces (package iproute2)")?;
    let trip = round_trip(options, &programs, &spaces)?;
    if !options.json {
        show_round_trip(&trip);
    }
    if !options.memory {
        return Ok(json!({ "round_trip": trip }));
    }
    let memory = full_box(options, &programs, &spaces)?;
    if !options.json {
        show_memory(&memory);
    }
    Ok(json!({ "round_trip": trip, "memory": memory }))
}

/// Builds the programs as they are shipped, so that none is older than its source.
fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "-p", "manager", "-p", "host-proxy"]);
    command.args(["-p", "box-proxy", "--bins"]);
    // Found from the folder that this program was started in, the package's.
    output(&mut command)?;
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).context("this program is not in target/release/deps")?;
    Ok(folder.to_path_buf())
}

fn round_trip(options: &Options, programs: &Path, spaces: &Namespaces) -> Result<Value> {
    let system = System::start(options, programs, spaces, &["1=accelerator,memory=1M"], 1)?;
    let device = system.lend("accelerator", 1)?.remove(0);
    let reads = options.reads.to_string();
    let latency = || system.host(&["latency", &device, "--reads", &reads]);
    // The first one warms up, and shows how long the frames are and how many a read takes.
    let before = Traffic::of(spaces)?;
    latency()?;
    let traffic = Traffic::of(spaces)?.since(before);
    let frame = traffic.frame_length()?;
    let mut floor = Floor::open(spaces)?;
    let mut rounds = Vec::new();
    for _ in 0..options.repeats {
        let bare = floor.measure(frame, options.reads)?;
        let path = number(&latency()?, "/median_ns")? / 1e3;
        rounds.push((bare, path));
    }
    let floors = Spread::of(rounds.iter().map(|r| r.0));
    let paths = Spread::of(rounds.iter().map(|r| r.1));
    let ratios = Spread::of(rounds.iter().map(|r| r.1 / r.0));
    Ok(json!({
        "frame_bytes": frame,
        "frames_sent_per_read": traffic.sent as f64 / f64::from(options.reads),
        "frames_received_per_read": traffic.received as f64 / f64::from(options.reads),
        "reads": options.reads,
        "floor_us": floors.json(),
        "path_us": paths.json(),
        "ratio": ratios.json(),
        "target_ratio": TARGET,
        "met": ratios.median <= TARGET,
    }))
}

fn show_round_trip(trip: &Value) {
    let at = |path: &str| trip.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    println!("round trip of a 4-byte MRd over veth; medians of {} each, by turns", at("/reads"));
    println!("{:34} {:>8} {:>8} {:>8}", "", "median", "least", "most");
    for (name, key) in [
        ("bare frame, AF_PACKET (us)", "floor_us"),
        ("both daemons and the device (us)", "path_us"),
        ("ratio", "ratio"),
    ] {
        let cell = |which: &str| format!("{:>8.2}", at(&format!("/{key}/{which}")));
        println!("{name:34} {} {} {}", cell("median"), cell("min"), cell("max"));
    }
    println!(
        "target ratio {TARGET}: {}; {} bytes a frame; frames a read: {:.2} to the box, {:.2} back",
        if trip["met"] == true { "met" } else { "missed" },
        at("/frame_bytes"),
        at("/frames_sent_per_read"),
        at("/frames_received_per_read"),
    );
}

/// A box proxy with 16 slots, idle and under traffic.
fn full_box(options: &Options, programs: &Path, spaces: &Namespaces) -> Result<Value> {
    let slots: Vec<String> = (1..=16)
        .map(|slot| match slot {
            1..=8 => format!("{slot}=nvme,image=drive-{slot}.img,size=16M,model=nvme"),
            _ => format!("{slot}=accelerator,memory=1M"),
        })
        .collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let system = System::start(options, programs, spaces, &slots, 16)?;
    let idle = system.boxes.resident()?;
    let drives = system.lend("nvme", 8)?;
    let accelerators = system.lend("accelerator", 8)?;
    let lent = system.boxes.resident()?;
    let data = system.folder.path().join("data");
    std::fs::write(&data, vec![0xa5; 1 << 20])?;
    let data = data.display().to_string();
    let start = Instant::now();
    let mut samples = Vec::new();
    for turn in 0.. {
        let accelerator = &accelerators[turn % accelerators.len()];
        system.host(&["bandwidth", accelerator, "--bytes", "4194304"])?;
        system.host(&["latency", accelerator, "--reads", "2000"])?;
        system.host(&["nvme-write", &drives[turn % drives.len()], &data])?;
        samples.push(system.boxes.resident()?);
        // All devices have had their turn before the last samples.
        if start.elapsed() > TRAFFIC && turn >= 2 * drives.len() {
            break;
        }
    }
    let last = *samples.last().expect("at least one");
    let half = samples[samples.len() / 2];
    Ok(json!({
        "slots": 16,
        "idle_bytes": idle,
        "lent_bytes": lent,
        "after_half_of_the_traffic_bytes": half,
        "after_traffic_bytes": last,
        "traffic_seconds": start.elapsed().as_secs_f64(),
        "target_bytes": MEMORY_TARGET,
        "met": last <= MEMORY_TARGET,
    }))
}

fn show_memory(memory: &Value) {
    let mib = |key: &str| memory[key].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20);
    println!("\nresident memory of a box proxy: 8 drives of 16 MiB and 8 accelerators of 1 MiB");
    for (name, key) in [
        ("idle", "idle_bytes"),
        ("all lent", "lent_bytes"),
        ("after half of the traffic", "after_half_of_the_traffic_bytes"),
        ("after the traffic", "after_traffic_bytes"),
    ] {
        println!("{name:34} {:>8.1} MiB", mib(key));
    }
    let met = if memory["met"] == true { "met" } else { "missed" };
    println!("target {} MiB: {met}", MEMORY_TARGET >> 20);
}

/// Median and extremes of some figures.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = figures.collect();
        all.sort_unstable_by(f64::total_cmp);
        Self { median: all[all.len() / 2], min: all[0], max: all[all.len() - 1] }
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// Two network namespaces with a veth pair between them.
struct Namespaces {
    host: String,
    boxes: String,
}

const MANAGER_ADDRESS: &str = "10.214.0.1";
const BOX_ADDRESS: &str = "10.214.0.2";
/// The interfaces at the host's end and at the box's.
const PROXIES: [&str; 2] = ["host0", "box0"];
/// The floor's EtherType: the second of the two for local experiments (IEEE 802-2014, clause 9.2).
const BARE_ETHERTYPE: u16 = 0x88B6;

impl Namespaces {
    fn make() -> Result<Self> {
        let id = std::process::id();
        let spaces = Self { host: format!("dxpu-bench-h{id}"), boxes: format!("dxpu-bench-b{id}") };
        for space in [&spaces.host, &spaces.boxes] {
            ip(&["netns", "add", space])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
        }
        let [near, far] = PROXIES;
        let mut words = vec!["link", "add", near, "mtu", "9000", "netns", &spaces.host];
        words.extend(["type", "veth", "peer", "name", far, "mtu", "9000"]);
        words.extend(["netns", &spaces.boxes]);
        ip(&words)?;
        ip(&["-n", &spaces.host, "link", "set", near, "up"])?;
        ip(&["-n", &spaces.boxes, "link", "set", far, "up"])?;
        let address = |ip: &str| format!("{ip}/24");
        ip(&["-n", &spaces.host, "address", "add", &address(MANAGER_ADDRESS), "dev", near])?;
        ip(&["-n", &spaces.boxes, "address", "add", &address(BOX_ADDRESS), "dev", far])?;
        Ok(spaces)
    }

    /// Opens a port for bare frames on an interface in one of the namespaces. The port stays there.
    fn open(space: &str, interface: &'static str) -> Result<RawPort> {
        let file = File::open(format!("/run/netns/{space}"))?;
        let opened = std::thread::spawn(move || {
            // SAFETY: setns(2) takes a descriptor, which is open, and changes this thread only.
            let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
            ensure!(done == 0, "setns: {}", std::io::Error::last_os_error());
            let options = RawOptions { ethertype: BARE_ETHERTYPE, ..RawOptions::new(interface) };
            Ok(RawPort::open(&options)?)
        });
        opened.join().expect("opening a port does not panic")
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.host]);
        let _ = ip(&["netns", "delete", &self.boxes]);
    }
}

fn ip(words: &[&str]) -> Result<()> {
    output(Command::new("ip").args(words)).map(drop)
}

/// What the host's interface has counted.
#[derive(Clone, Copy)]
struct Traffic {
    sent: u64,
    sent_bytes: u64,
    received: u64,
}

impl Traffic {
    fn of(spaces: &Namespaces) -> Result<Self> {
        let words = ["-n", &spaces.host, "-j", "-s", "link", "show", PROXIES[0]];
        let text = output(Command::new("ip").args(words))?;
        let links: Value = serde_json::from_str(&text)?;
        let count = |name: &str| -> Result<u64> {
            Ok(number(&links, &format!("/0/stats64/{name}"))? as u64)
        };
        Ok(Self {
            sent: count("tx/packets")?,
            sent_bytes: count("tx/bytes")?,
            received: count("rx/packets")?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            sent_bytes: self.sent_bytes - before.sent_bytes,
            received: self.received - before.received,
        }
    }

    /// Mean length of the frames sent without their Ethernet headers, in bytes.
    fn frame_length(self) -> Result<usize> {
        ensure!(self.sent > 0, "the reads sent no frames over {}", PROXIES[0]);
        Ok(((self.sent_bytes / self.sent) as usize).saturating_sub(14).max(8))
    }
}

/// Two bare sockets.
struct Floor {
    near: RawPort,
    far: RawPort,
}

impl Floor {
    fn open(spaces: &Namespaces) -> Result<Self> {
        let near = Namespaces::open(&spaces.host, PROXIES[0])?;
        let far = Namespaces::open(&spaces.boxes, PROXIES[1])?;
        Ok(Self { near, far })
    }

    /// Median of some round trips, in microseconds.
    fn measure(&mut self, frame: usize, count: u32) -> Result<f64> {
        let (near, far) = (&mut self.near, &mut self.far);
        let (to, stop) = (far.local_address(), AtomicBool::new(false));
        let trips = std::thread::scope(|scope| {
            let reflector = scope.spawn(|| {
                pin(BOX_PROCESSOR);
                floor::reflect(far, &stop)
            });
            let measured = scope.spawn(|| {
                pin(HOST_PROCESSOR);
                floor::round_trips(near, &to, frame, count)
            });
            let trips = measured.join().expect("measuring does not panic");
            stop.store(true, Ordering::Relaxed);
            reflector.join().expect("reflecting does not panic")?;
            trips
        })?;
        let trips = trips.context("no bare frame came back")?;
        Ok(trips.quantile(500).as_secs_f64() * 1e6)
    }
}

/// Keeps this thread on a processor, if there are enough.
fn pin(processor: usize) {
    // SAFETY: cpu_set_t is plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the processor number is far below the set's size.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set lives through the call and has that size; 0 is this thread. Where there is
    // no such processor the thread stays free, and the figures are less steady.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// Manager, host proxy and one box proxy. The order is that of stopping.
struct System {
    host_proxy: Daemon,
    boxes: Daemon,
    manager: Daemon,
    programs: PathBuf,
    space: String,
    server: String,
    folder: tempfile::TempDir,
}

impl System {
    fn start(
        options: &Options,
        programs: &Path,
        spaces: &Namespaces,
        slots: &[&str],
        ports: usize,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("dxpu-bench-").tempdir()?;
        let command = |space: &str, program: &str| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", space]).arg(programs.join(program));
            command.current_dir(folder.path());
            command
        };
        let any = format!("{MANAGER_ADDRESS}:0");
        let ready = folder.path().join("ready.json");
        let mut manager = command(&spaces.host, "dxpu-manager");
        manager.args(["serve", "--listen", &any, "--control", &any, "--store", "manager.redb"]);
        manager.arg("--ready-file").arg(&ready);
        let manager = Daemon::start("manager", folder.path(), manager, None)?;
        let addresses: Value = wait_for("the manager to listen", || {
            let text = std::fs::read_to_string(&ready).ok();
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
        })?;
        let address = |path| -> Result<&str> {
            addresses.pointer(path).and_then(Value::as_str).context("an address of the manager")
        };
        let common = |program: &mut Command, name: &str, interface: &str| -> Result<()> {
            program.args(["--name", name, "--manager", address("/control")?]);
            program.args(["--fabric", &format!("eth:{interface}"), "--log", "warn"]);
            if let Some(spin) = &options.spin_us {
                program.args(["--spin-us", spin]);
            }
            Ok(())
        };
        let mut host = command(&spaces.host, "host-proxy");
        common(&mut host, "host", PROXIES[0])?;
        host.args(["--model-host", "host.sock", "--ports", &ports.to_string()]);
        host.args(["--model-button-ms", "10"]);
        let mut boxes = command(&spaces.boxes, "box-proxy");
        common(&mut boxes, "box", PROXIES[1])?;
        for slot in slots {
            boxes.args(["--slot", slot]);
        }
        let host_proxy = Daemon::start("host", folder.path(), host, Some(HOST_PROCESSOR))?;
        let boxes = Daemon::start("box", folder.path(), boxes, Some(BOX_PROCESSOR))?;
        let server = format!("http://{}", address("/listen")?);
        let (programs, space) = (programs.to_path_buf(), spaces.host.clone());
        let system = Self { host_proxy, boxes, manager, programs, space, server, folder };
        wait_for("the devices to be in the pool", || {
            let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
            let nodes = count(&system.manage(&["nodes"])?);
            Ok((nodes == 2 && count(&system.manage(&["list", "--free"])?) == slots.len())
                .then_some(()))
        })
        .with_context(|| system.logs())?;
        Ok(system)
    }

    /// Ends of the daemons' logs.
    fn logs(&self) -> String {
        [&self.manager, &self.host_proxy, &self.boxes].map(Daemon::last_lines).join("\n")
    }

    fn manage(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]).arg(self.programs.join("dxpu-manager"));
        command.args(["--server", &self.server]).args(words).arg("--json");
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    fn host(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.programs.join("dxpu-host"));
        command.arg("--socket").arg(self.folder.path().join("host.sock"));
        command.arg("--json").args(words);
        let text = output(&mut command).with_context(|| self.logs())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Lends so many devices of a model to the host; its names for all of that class.
    fn lend(&self, model: &str, count: usize) -> Result<Vec<String>> {
        for _ in 0..count {
            self.manage(&["allocate", "--host", "host", "--model", model])?;
        }
        let class = if model == "nvme" { 0x01_0802 } else { 0x12_0000 };
        wait_for("the host to find the devices", || {
            let mut found = Vec::new();
            find(&self.host(&["lspci"])?, class, &mut found);
            Ok((found.len() == count).then_some(found))
        })
    }
}

/// Bus numbers of the functions of a class in a tree that have memory.
fn find(node: &Value, class: u64, found: &mut Vec<String>) {
    let memory = node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap_or(0) != 0;
    if node["class"].as_u64() == Some(class) && memory {
        found.extend(node["bdf"].as_str().map(str::to_string));
    }
    for list in ["devices", "children"] {
        for child in node[list].as_array().into_iter().flatten() {
            find(child, class, found);
        }
    }
}

/// A process that runs until it is dropped.
struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it, on one processor or on all.
    fn start(
        name: &str,
        folder: &Path,
        command: Command,
        processor: Option<usize>,
    ) -> Result<Self> {
        let enough = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let mut command = match processor.filter(|_| enough) {
            None => command,
            Some(processor) => {
                let mut pinned = Command::new("taskset");
                pinned.args(["--cpu-list", &processor.to_string()]).arg(command.get_program());
                pinned.args(command.get_args()).current_dir(folder);
                pinned
            }
        };
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name}: {command:?}"))?;
        Ok(Self { child, log })
    }

    fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Memory that it has resident, in bytes.
    fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kilobytes.context("no VmRSS: the daemon has ended")? << 10)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet, so its ID is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

/// Runs a command to its end; its standard output, or an error with what it said.
fn output(command: &mut Command) -> Result<String> {
    let result = command.stdin(Stdio::null()).output();
    let result = result.with_context(|| format!("{command:?} could not be run"))?;
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        bail!("{command:?} ended with {}: {}", result.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn number(value: &Value, path: &str) -> Result<f64> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.with_context(|| format!("no number {path} in {value}"))
}
