//! The shim before programs in C, over a driver in C that says what it is asked.
//!
//! The driver's functions say each call that reaches them, so a call that the shim caught twice, or
//! delayed twice, shows, and one that it changed does too.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use perf_core::{Fact, Kind, LEDGER_VARIABLE, Ledger, Text, VARIABLE, WORDS};

/// 6.8 us instead of 1.2 us, and no kernel measured.
const SETTINGS: &str = "rtt=6800,measure=0";

/// What the driver says of a kernel's delay at these settings.
const KERNEL_DELAY: &str = "cuLaunchKernel delay stream=5 5600";

/// The folder with the programs, made once.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        let map = source("driver.map");
        let script = format!("-Wl,--version-script={}", map.display());
        let library = ["-shared", "-fPIC"];
        let driver = ["-Wl,-soname,libcuda.so.1", &script];
        compile(&folder, "driver.c", "libcuda.so.1", &[&library[..], &driver].concat());
        compile(&folder, "wrapmalloc.c", "libwrapmalloc.so", &library);
        compile(&folder, "wrapper.c", "libwrapper.so", &library);
        let cupti = folder.join("cupti");
        std::fs::create_dir_all(&cupti).expect("the target folder can be written");
        compile(&cupti, "cupti.c", "libcupti.so.12", &library);
        let gdr = folder.join("gdr");
        std::fs::create_dir_all(&gdr).expect("the target folder can be written");
        compile(&gdr, "gdr.c", "libgdrapi.so.2", &library);
        compile(&folder, "injected.c", "injected", &["-D_GNU_SOURCE"]);
        compile(&folder, "bench.c", "bench", &[]);
        compile(&folder, "plain.c", "plain", &[]);
        compile(&folder, "client.c", "client", &["-pthread"]);
        let linked = folder.join("libcuda.so.1");
        let linked = linked.to_str().expect("a path in ASCII");
        compile(
            &folder,
            "local.c",
            "libplugin.so",
            &[&library[..], &["-DPLUGIN", linked]].concat(),
        );
        compile(&folder, "local.c", "local", &[]);
        compile(&folder, "client.c", "linked", &["-pthread", "-DLINKED", linked]);
        folder
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

fn compile(folder: &Path, name: &str, to: &str, options: &[&str]) {
    let output = Command::new("cc")
        .args(["-O1", "-w", "-o"])
        .arg(folder.join(to))
        .arg(source(name))
        .args(options)
        .arg("-ldl")
        .output()
        .expect("a C compiler is installed as cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The shim, which cargo builds beside these tests.
fn shim() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().expect("it is in a folder");
    let shim = folder.join("libdxpu_perf.so");
    assert!(shim.is_file(), "{} is not there", shim.display());
    shim
}

/// A program under the shim.
struct Run {
    output: Output,
    ledgers: Vec<Box<[AtomicU64; WORDS]>>,
}

/// What is loaded before the program.
#[derive(Clone, Copy)]
enum Before<'a> {
    Nothing,
    Shim,
    /// The shim, then this library.
    ShimAnd(&'a str),
    /// This library, then the shim.
    AndShim(&'a str),
}

fn run(before: Before, settings: &str, command: &[&str]) -> Run {
    run_with(before, settings, command, &[])
}

fn run_with(before: Before, settings: &str, command: &[&str], variables: &[(&str, &str)]) -> Run {
    let folder = programs();
    let ledgers = tempfile::tempdir().expect("a folder for ledgers");
    let shim = shim().display().to_string();
    let library = |name: &str| folder.join(name).display().to_string();
    let preload = match before {
        Before::Nothing => String::new(),
        Before::Shim => shim,
        Before::ShimAnd(name) => format!("{shim}:{}", library(name)),
        Before::AndShim(name) => format!("{}:{shim}", library(name)),
    };
    let program = folder.join(command[0]);
    let program = if program.is_file() { program } else { PathBuf::from(command[0]) };
    let output = Command::new(program)
        .args(&command[1..])
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", preload)
        .env(VARIABLE, settings)
        .env(LEDGER_VARIABLE, ledgers.path())
        .envs(variables.iter().copied())
        .output()
        .expect("the program starts");
    Run { output, ledgers: read(ledgers.path()) }
}

/// The ledgers of a folder.
fn read(folder: &Path) -> Vec<Box<[AtomicU64; WORDS]>> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    entries
        .map(|entry| std::fs::read(entry.expect("it is listed").path()).expect("it is a file"))
        .map(|bytes| Ledger::words(&bytes).expect("a ledger is whole"))
        .collect()
}

impl Run {
    fn text(&self) -> String {
        let error = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "{}: {error}", self.output.status);
        String::from_utf8(self.output.stdout.clone()).expect("text")
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// How often each line is there.
    fn counted(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines() {
            *counts.entry(line).or_default() += 1;
        }
        counts
    }

    fn ledgers(&self) -> Vec<Ledger<'_>> {
        self.ledgers.iter().map(|words| Ledger::open(words).expect("it was begun")).collect()
    }

    /// The only ledger.
    fn ledger(&self) -> Ledger<'_> {
        let ledgers = self.ledgers();
        assert_eq!(ledgers.len(), 1);
        ledgers[0]
    }
}

/// What a program under the shim has more than one without it: delays and what they need.
fn without_delays(lines: &[String]) -> Vec<&str> {
    let more = ["delay ", "cuModule", "cuStreamQuery"];
    let kept = |line: &&str| !more.iter().any(|more| line.contains(more));
    lines.iter().map(String::as_str).filter(kept).collect()
}

/// Every way to the driver that a program in C has.
const WAYS: [&[&str]; 4] = [
    &["linked", "all"],
    &["client", "all"],
    &["client", "all", "12080", "0"],
    &["client", "all", "12080", "2"],
];

#[test]
fn every_way_is_caught_once() {
    for way in WAYS {
        let bare = run(Before::Nothing, SETTINGS, way).lines();
        let under = run(Before::Shim, SETTINGS, way);
        let lines = under.lines();
        assert_eq!(without_delays(&lines), bare, "{way:?}");
        let delays: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_once(" delay "))
            .map(|(_, delay)| delay)
            .collect();
        let expected = [
            // Two kernels; the third failed.
            "stream=5 5600",
            "stream=0 5600",
            // 4 KiB to the device; the megabyte from pageable memory held up the call instead.
            "stream=5 6788",
            "stream=5 2825",
            // A copy whose name does not say which way it goes.
            "stream=5 2801",
            // Eight bytes from pageable memory: staged.
            "stream=0 5602",
            // Two memsets.
            "stream=6 5600",
            "stream=0 5600",
            // Around the function of the host.
            "stream=5 2800",
            "stream=5 2800",
        ];
        assert_eq!(delays, expected, "{way:?}");
        let ledger = under.ledger();
        assert_eq!(ledger.row(Kind::Kernel).calls, 2, "{way:?}");
        assert_eq!(ledger.row(Kind::Kernel).added, 11_200);
        assert_eq!(ledger.row(Kind::HostToDevice).calls, 3);
        assert_eq!(ledger.row(Kind::HostToDevice).bytes, 4096 + (1 << 20) + 8);
        assert_eq!(ledger.row(Kind::DeviceToHost).calls, 3);
        assert_eq!(ledger.row(Kind::DeviceToDevice).bytes, 100);
        assert_eq!(ledger.row(Kind::DeviceToDevice).delays, 0);
        assert_eq!(ledger.row(Kind::Memset).bytes, 40 + 40);
        assert_eq!(ledger.row(Kind::HostCallback).added, 5_600);
        // The stream's, those of the copies that held up their call, and of the one that was staged in
        // its turn.
        assert_eq!(ledger.row(Kind::Synchronise).calls, 1);
        assert_eq!(ledger.row(Kind::Synchronise).delays, 4);
        assert_eq!(ledger.fact(Fact::GpuDelays), expected.len() as u64);
        assert_eq!(ledger.fact(Fact::PutDelays), expected.len() as u64);
        assert_eq!(ledger.fact(Fact::LostDelays), 0);
    }
}

#[test]
fn a_kernel_that_is_measured_has_its_delay_before_it() {
    let lines = run(Before::Shim, "rtt=6800,measure=1", WAYS[1]).lines();
    let of_stream: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.contains(" stream=5 ") && !line.starts_with("cuStream"))
        .take(4)
        .collect();
    let kernel = of_stream[2];
    assert!(kernel.starts_with("cuLaunchKernel stream=5"), "{of_stream:?}");
    let event = "cuEventRecord stream=5 224";
    assert_eq!(of_stream, [KERNEL_DELAY, event, kernel, event]);
}

#[test]
fn a_short_kernel_that_an_idle_gpu_was_given_is_not_measured() {
    // The events are reached as soon as they are asked for: the GPU has nothing else to do.
    for (elapsed, measured) in [("1000", true), ("0.000001", false)] {
        let variables = [("REACHED", "1"), ("ELAPSED_MS", elapsed)];
        let under = run_with(Before::Shim, "rtt=6800,measure=1,events=2000", WAYS[1], &variables);
        let ledger = under.ledger();
        let facts = [Fact::KernelsMeasured, Fact::KernelsUnmeasured].map(|fact| ledger.fact(fact));
        assert_eq!(facts.map(|count| count > 0), [measured, !measured], "{elapsed}: {facts:?}");
        if measured {
            // What lies around every kernel is not the kernel's.
            assert_eq!(ledger.kernels().mean(), Some(1e9 - 2e3));
        }
    }
}

#[test]
fn without_delays_nothing_is_added() {
    for way in WAYS {
        let bare = run(Before::Nothing, "", way).lines();
        let under = run(Before::Shim, "rtt=1200,measure=0", way);
        assert_eq!(under.lines(), bare, "{way:?}");
        let ledger = under.ledger();
        assert_eq!(ledger.row(Kind::Kernel).calls, 2);
        assert_eq!(ledger.fact(Fact::GpuDelays) + ledger.fact(Fact::CpuDelays), 0);
    }
}

#[test]
fn kinds_that_are_off_are_counted_and_not_delayed() {
    let under = run(Before::Shim, "rtt=6800,measure=0,off=kernel+callback+sync", WAYS[1]);
    let ledger = under.ledger();
    for kind in [Kind::Kernel, Kind::HostCallback, Kind::Synchronise] {
        assert_eq!(ledger.row(kind).delays, 0, "{kind:?}");
        assert!(ledger.row(kind).calls > 0, "{kind:?}");
    }
    assert_eq!(ledger.row(Kind::Memset).delays, 2);
}

#[test]
fn a_copy_that_costs_nothing_more_is_waited_for_as_before() {
    let under = run(Before::Shim, "rtt=6800,measure=0,off=htod+dtoh", WAYS[1]);
    let ledger = under.ledger();
    assert_eq!(ledger.row(Kind::HostToDevice).delays + ledger.row(Kind::DeviceToHost).delays, 0);
    assert_eq!(ledger.row(Kind::Synchronise).delays, 4);
    // And one whose wait costs nothing more takes its own time.
    let under = run(Before::Shim, "rtt=6800,measure=0,off=sync", WAYS[1]);
    let ledger = under.ledger();
    assert_eq!(
        (ledger.row(Kind::HostToDevice).delays, ledger.row(Kind::Synchronise).delays),
        (3, 0)
    );
}

#[test]
fn a_staged_copy_sees_late_what_it_waited_for() {
    // One in the legacy stream and one in the thread's own, which waits for that; with nothing left
    // there none is late.
    let delays = |settings: &str| {
        let under = run(Before::Shim, settings, &["client", "turn"]);
        let ledger = under.ledger();
        assert_eq!(ledger.row(Kind::HostToDevice).calls, 6);
        ledger.row(Kind::Synchronise).delays
    };
    assert_eq!(delays(SETTINGS), 2);
    assert_eq!(delays("rtt=6800,measure=0,off=htod"), 2);
    assert_eq!(delays("rtt=6800,measure=0,off=sync"), 0);
}

#[test]
fn a_pushed_copy_sees_late_what_the_threads_own_stream_waited_for() {
    for (reached, delays) in [(&[][..], 1), (&[("REACHED", "1")], 0)] {
        let settings = "rtt=6800,measure=0,push=1024-65536";
        let under = run_with(Before::Shim, settings, &["client", "push turn"], reached);
        let ledger = under.ledger();
        assert_eq!(ledger.fact(Fact::PushedBytes), 4096);
        assert_eq!(ledger.row(Kind::Synchronise).delays, delays);
    }
}

#[test]
fn a_copy_of_nothing_is_not_waited_for() {
    let under = run(Before::Shim, SETTINGS, &["client", "empty"]);
    let ledger = under.ledger();
    assert_eq!(ledger.row(Kind::DeviceToHost).calls, 2);
    assert_eq!(ledger.row(Kind::Synchronise).delays, 0);
}

#[test]
fn pageable_copies_that_cost_nothing_more_are_not_told_of() {
    let bytes = |off: &str| {
        let settings = format!("{SETTINGS},{off}");
        run(Before::Shim, &settings, &["client", "all"]).ledger().fact(Fact::PageableBytes)
    };
    assert_eq!(bytes("off=memset"), (1 << 20) + 8);
    assert_eq!(bytes("off=htod"), 8);
}

#[test]
fn a_range_that_is_open_at_the_end_counts_until_the_last_call() {
    for settings in ["rtt=1200", "rtt=6800", "rtt=6800,off=htod+sync"] {
        let settings = format!("{settings},measure=0,range=profiler");
        let under = run(Before::Shim, &settings, &["client", "open range"]);
        let ledger = under.ledger();
        let [begun, last] = [Fact::RangeBegun, Fact::LastCall].map(|fact| ledger.fact(fact));
        assert_eq!(ledger.row(Kind::HostToDevice).calls, 10, "{settings}");
        assert!(begun > 0 && last >= begun + 50_000_000, "{settings}: {begun} to {last}");
    }
}

#[test]
fn the_cpu_waits_where_that_is_wanted() {
    let under = run(Before::Shim, "rtt=6800,measure=0,place=cpu", WAYS[1]);
    let lines = under.lines();
    assert!(!lines.iter().any(|line| line.contains("delay ")), "{lines:?}");
    let ledger = under.ledger();
    assert_eq!(ledger.fact(Fact::GpuDelays), 0);
    assert_eq!(ledger.row(Kind::Kernel).added, 11_200);
}

#[test]
fn bypassed_it_hooks_nothing() {
    let folder = programs();
    let output = Command::new(folder.join("linked"))
        .arg("all")
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", shim())
        .env(VARIABLE, SETTINGS)
        .env(perf_core::BYPASS_VARIABLE, "1")
        .output()
        .expect("the program starts");
    let bare = run(Before::Nothing, "", &["linked", "all"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), bare.text());
}

#[test]
fn settings_that_are_wrong_are_said_and_delay_nothing() {
    let under = run(Before::Shim, "rtt=fast", WAYS[0]);
    let bare = run(Before::Nothing, "", WAYS[0]);
    assert_eq!(under.text(), bare.text());
    let said = String::from_utf8_lossy(&under.output.stderr).into_owned();
    assert!(said.contains("rtt=fast"), "{said}");
    assert!(under.ledger().text(Text::Note).contains("rtt=fast"));
}

#[test]
fn settings_that_are_no_text_are_said_and_delay_nothing() {
    let ledgers = tempfile::tempdir().expect("a folder for ledgers");
    let output = Command::new(programs().join("linked"))
        .arg("all")
        .env("LD_LIBRARY_PATH", programs())
        .env("LD_PRELOAD", shim())
        .env(VARIABLE, std::ffi::OsStr::from_bytes(b"rtt=6800\xff"))
        .env(LEDGER_VARIABLE, ledgers.path())
        .output()
        .expect("the program starts");
    let under = Run { output, ledgers: read(ledgers.path()) };
    assert_eq!(under.text(), run(Before::Nothing, "", WAYS[0]).text());
    let said = String::from_utf8_lossy(&under.output.stderr).into_owned();
    assert!(said.contains("DXPU_PERF") && said.contains("rtt=6800"), "{said}");
    assert!(under.ledger().text(Text::Note).contains("rtt=6800"));
}

/// The program `linked all`, with standard error where nothing can be written.
fn unheard(preload: &Path, settings: &str, ledgers: &str) -> Output {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    Command::new(programs().join("linked"))
        .arg("all")
        .env("LD_LIBRARY_PATH", programs())
        .env("LD_PRELOAD", preload)
        .env(VARIABLE, settings)
        .env(LEDGER_VARIABLE, ledgers)
        .stderr(full)
        .output()
        .expect("the program starts")
}

#[test]
fn a_program_goes_on_where_nothing_can_be_said() {
    let bare = unheard(Path::new(""), "", "");
    assert!(bare.status.success());
    for (settings, ledgers) in [("rtt=fast", ""), ("rtt=fast", "/dev/null/none")] {
        let under = unheard(&shim(), settings, ledgers);
        assert_eq!(under.status, bare.status, "{settings} {ledgers}");
        assert_eq!(under.stdout, bare.stdout, "{settings} {ledgers}");
    }
    let heard = injected(false, &[]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let under = Command::new(programs().join("injected"))
        .env("LD_LIBRARY_PATH", programs())
        .env("CUDA_INJECTION64_PATH", shim())
        .stderr(full)
        .output()
        .expect("the program starts");
    assert_eq!((under.status, under.stdout), (heard.output.status, heard.output.stdout));
}

#[test]
fn a_batch_is_delayed_copy_by_copy() {
    for version in ["12080", "13000"] {
        let under = run(Before::Shim, SETTINGS, &["client", "batch", version, "0"]);
        let ledger = under.ledger();
        let rows = [Kind::HostToDevice, Kind::DeviceToHost, Kind::DeviceToDevice]
            .map(|kind| ledger.row(kind))
            .map(|row| (row.calls, row.operations, row.bytes, row.delays));
        assert_eq!(rows, [(1, 1, 100, 1), (1, 1, 200, 1), (1, 1, 300, 0)], "CUDA {version}");
    }
}

#[test]
fn a_form_that_is_newer_than_the_table_is_left_and_said() {
    let under = run(Before::Shim, SETTINGS, &["client", "batch", "99000", "0"]);
    assert!(under.text().contains("later_batch"));
    let note = under.ledger().text(Text::Note);
    assert!(note.contains("cuMemcpyBatchAsync for CUDA 99.0 is not hooked"), "{note}");
}

#[test]
fn a_library_that_wraps_the_driver_is_caught_once_in_both_orders() {
    for before in [Before::ShimAnd("libwrapper.so"), Before::AndShim("libwrapper.so")] {
        for way in ["linked", "client"] {
            let under = run(before, SETTINGS, &[way, "threads"]);
            let counts = under.counted();
            let wrapped = counts.get("wrapper").copied().unwrap_or(0);
            // A program that asks its driver's handle passes by libraries that wrap it.
            assert_eq!(wrapped, if way == "linked" { 8_000 } else { 0 }, "{way}");
            assert_eq!(counts["cuLaunchKernel stream=5 7"], 8_000, "{way}");
            assert_eq!(counts[KERNEL_DELAY], 8_000, "{way}");
            assert_eq!(under.ledger().row(Kind::Kernel).calls, 8_000, "{way}");
        }
    }
}

#[test]
fn a_query_is_late_once() {
    let under = run(Before::Shim, SETTINGS, &["client", "query"]);
    let row = under.ledger().row(Kind::Synchronise);
    // Ready twice and waited for once; late the first time, after it was not ready.
    assert_eq!((row.calls, row.delays, row.added), (3, 1, 2_800));
}

#[test]
fn what_was_waited_for_or_is_gone_is_not_late_again() {
    let under = run(Before::Shim, SETTINGS, &["client", "seen"]);
    let row = under.ledger().row(Kind::Synchronise);
    // Both waits are late, and none of the four queries that say yes.
    assert_eq!((row.calls, row.delays), (6, 2));
}

#[test]
fn a_wait_during_a_capture_is_late_if_a_query_said_that_there_is_something() {
    let under = run(Before::Shim, SETTINGS, &["client", "seen in a capture"]);
    assert_eq!(under.ledger().row(Kind::Synchronise).delays, 1);
}

#[test]
fn what_was_waited_for_before_a_range_is_not_waited_for_in_it() {
    let under = run(Before::Shim, "rtt=6800,measure=0,range=profiler", &["client", "range wait"]);
    let row = under.ledger().row(Kind::Synchronise);
    assert_eq!((row.calls, row.delays), (1, 0));
}

#[test]
fn a_wait_for_a_context_is_late_if_something_was_put_in() {
    let under = run(Before::Shim, SETTINGS, &["client", "context wait"]);
    let row = under.ledger().row(Kind::Synchronise);
    // Late after the launch in both contexts, and after the memset in both.
    assert_eq!((row.calls, row.delays, row.added), (8, 4, 4 * 2_800));
}

#[test]
fn a_context_that_comes_back_gets_a_kernel_of_its_own() {
    let lines = run(Before::Shim, SETTINGS, &["client", "context"]).lines();
    let loads = lines.iter().filter(|line| line.starts_with("cuModuleLoadData")).count();
    assert_eq!(loads, 2);
}

#[test]
fn what_is_said_of_a_context_names_its_device() {
    let (command, variables) = (["client", "two contexts"], [("NO_MODULE", "1")]);
    let under = run_with(Before::Shim, SETTINGS, &command, &variables);
    let ledger = under.ledger();
    assert_eq!((ledger.fact(Fact::GpuDelays), ledger.fact(Fact::LostDelays)), (1, 1));
    assert_eq!(ledger.text(Text::Device), "Test GPU 0");
    let said = ledger.text(Text::NoGpuDelays);
    let expected = "in a context of device 1 (Test GPU 1): the delaying kernel could not be loaded: \
                    CUDA error 209";
    assert_eq!(said, expected);
}

#[test]
fn a_captured_launch_is_delayed_as_a_node_or_not_at_all() {
    let delays = |settings| {
        let under = run(Before::Shim, settings, &["client", "capture"]);
        let lines = under.lines();
        let delays = lines.iter().filter(|line| line.contains("delay stream=77")).count();
        (delays, under.ledger().row(Kind::Kernel).calls)
    };
    // The launch before the capture ended is a node, and not counted as a kernel.
    assert_eq!(delays("rtt=6800,measure=0,graphs=launch"), (1, 2));
    assert_eq!(delays("rtt=6800,measure=0,graphs=node"), (2, 2));
}

#[test]
fn what_the_shim_asks_ends_no_capture_that_began_meanwhile() {
    // Measuring, an idle GPU, waits, and copies that are pushed.
    for (what, settings) in
        [("all", "rtt=6800,measure=1,off=mapped"), ("push", "rtt=6800,push=1024-65536")]
    {
        let variables = [("GLOBAL", "1"), ("REACHED", "1")];
        let lines = run_with(Before::Shim, settings, &["client", what], &variables).lines();
        for asked in ["cuModuleLoadData", "cuStreamQuery", "cuEventQuery"] {
            let is_asked = lines.iter().any(|line| line.starts_with(asked));
            assert!(is_asked || what == "push", "{asked}: {lines:?}");
        }
        let ends = lines.iter().filter(|line| line.starts_with("ends a capture"));
        // What the program asks itself is as it was: the thread has its own mode again.
        let own = if what == "all" { vec!["ends a capture: cuNotHooked 0"] } else { Vec::new() };
        assert_eq!(ends.collect::<Vec<_>>(), own, "{what}");
    }
}

#[test]
fn a_forked_child_has_its_own_ledger_and_its_parent_goes_on() {
    let under = run(Before::Shim, SETTINGS, &["client", "fork"]);
    assert!(under.text().contains("client child 0"));
    let mut calls: Vec<u64> =
        under.ledgers().iter().map(|ledger| ledger.row(Kind::Kernel).calls).collect();
    calls.sort_unstable();
    assert_eq!(calls, [2, 2]);
    let pids: Vec<u64> = under.ledgers().iter().map(|ledger| ledger.fact(Fact::Pid)).collect();
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn a_process_that_becomes_many_programs_gets_so_many_ledgers_and_no_words() {
    let under = run(Before::Shim, SETTINGS, &["client", "exec", "104", "0"]);
    assert!(under.output.status.success());
    assert_eq!(under.ledgers.len(), 100);
    assert_eq!(String::from_utf8_lossy(&under.output.stderr), "");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_once() {
    let output = Command::new(programs().join("client"))
        .arg("fork")
        .env("LD_LIBRARY_PATH", programs())
        .env("LD_PRELOAD", shim())
        .env(VARIABLE, SETTINGS)
        .env(LEDGER_VARIABLE, "/dev/null/none")
        .output()
        .expect("the program starts");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("no ledger in /dev/null/none").count(), 1, "{said}");
}

#[test]
fn a_driver_that_is_closed_and_opened_again_is_still_hooked() {
    let counts = run(Before::Shim, SETTINGS, &["client", "again"]).counted();
    assert_eq!(counts["client same thunk 1"], 1);
    assert_eq!(counts["client dlvsym is the driver's 1"], 1);
    assert_eq!(counts[KERNEL_DELAY], 3);
}

#[test]
fn programs_without_cuda_are_as_they_were() {
    let bare = run(Before::Nothing, SETTINGS, &["plain"]);
    let under = run(Before::Shim, SETTINGS, &["plain"]);
    assert_eq!(under.text(), bare.text());
    assert!(!under.text().contains(" no\n"), "{}", under.text());
    assert_eq!(under.ledgers.len(), 0);
}

#[test]
fn a_driver_that_is_loaded_for_one_alone_is_found_by_that_one() {
    let bare = run(Before::Nothing, SETTINGS, &["local"]);
    assert!(bare.output.status.success(), "{}", bare.text());
    let under = run(Before::Shim, SETTINGS, &["local"]);
    assert_eq!(under.text(), bare.text());
    for line in ["program: all 0, next 0", "plugin: all 1, next 1", "program with all: all 1"] {
        assert!(under.text().contains(line), "{}", under.text());
    }
}

#[test]
fn a_shell_runs_everything_else_as_before() {
    let script = "ls -d /; printf '%s\\n' b a | sort | tr a-z A-Z; (exit 3); echo $?; \
                  n=0; for i in 1 2 3; do n=$((n + i)); done; echo $n; sh -c 'sh -c \"kill -9 \\$\\$\"'; \
                  echo $?";
    let command = ["/bin/sh", "-c", script];
    let bare = run(Before::Nothing, SETTINGS, &command);
    let malloc = "libwrapmalloc.so";
    for before in [Before::Shim, Before::ShimAnd(malloc), Before::AndShim(malloc)] {
        let under = run(before, SETTINGS, &command);
        assert_eq!(under.text(), bare.text());
        assert_eq!(under.ledgers.len(), 0);
        let wrapped = |line: &&str| *line == "malloc wrapped";
        let said = String::from_utf8_lossy(&under.output.stderr).into_owned();
        let rest: Vec<&str> = said.lines().filter(|line| !wrapped(line)).collect();
        let bare = String::from_utf8_lossy(&bare.output.stderr).into_owned();
        assert_eq!(rest, bare.lines().collect::<Vec<_>>());
        let wraps = !matches!(before, Before::Shim);
        assert_eq!(said.lines().filter(wrapped).count() > 0, wraps, "{said}");
    }
}

/// The shim as CUDA loads it, with CUPTI or without.
fn injected(cupti: bool, more: &[(&str, &str)]) -> Run {
    let folder = programs();
    let ledgers = tempfile::tempdir().expect("a folder for ledgers");
    let mut path = folder.display().to_string();
    if cupti {
        path += &format!(":{}", folder.join("cupti").display());
    }
    let output = Command::new(folder.join("injected"))
        .env("LD_LIBRARY_PATH", path)
        .env("CUDA_INJECTION64_PATH", shim())
        .env(VARIABLE, SETTINGS)
        .env(LEDGER_VARIABLE, ledgers.path())
        .envs(more.iter().copied())
        .output()
        .expect("the program starts");
    Run { output, ledgers: read(ledgers.path()) }
}

#[test]
fn through_cupti_each_call_is_caught_once() {
    let under = injected(true, &[]);
    let counts = under.counted();
    assert_eq!(counts["cuLaunchKernel stream=5 7"], 2);
    assert_eq!(counts[KERNEL_DELAY], 2);
    let ledger = under.ledger();
    assert_eq!(ledger.row(Kind::Kernel).calls, 2);
    assert_eq!(ledger.row(Kind::Synchronise).delays, 1);
    assert_eq!(ledger.text(Text::Note), "");
}

#[test]
fn through_cupti_and_loaded_before_the_program_each_call_is_caught_once() {
    let shim = shim().display().to_string();
    let under = injected(true, &[("LD_PRELOAD", shim.as_str())]);
    // This client takes the driver's own functions, past what is loaded before it; what counts is
    // that CUPTI was left alone.
    assert_eq!(under.counted().get(KERNEL_DELAY), None);
}

#[test]
fn cupti_that_is_missing_or_taken_is_said() {
    for (run, why) in [
        (injected(false, &[]), "CUPTI (libcupti.so) is not found"),
        (injected(true, &[("CUPTI_TAKEN", "1")]), "CUPTI is in use by a profiler"),
    ] {
        assert_eq!(run.counted()["cuLaunchKernel stream=5 7"], 2);
        assert_eq!(run.counted().get(KERNEL_DELAY), None);
        let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
        assert!(said.contains(why), "{said}");
        assert!(run.ledger().text(Text::Note).contains(why));
    }
}

/// What a call costs when nothing is delayed. Its time is printed, for `cargo test --release -p
/// perf-shim -- --nocapture costs`; what is asserted is that each call came to the driver and was counted.
#[test]
fn what_a_call_costs_when_nothing_is_delayed() {
    const CALLS: u64 = 100_000;
    let calls = CALLS.to_string();
    let under = run(Before::Shim, "rtt=1200,measure=0", &["bench", &calls]);
    let text = under.text();
    println!("{text}");
    // Two functions, five rounds, past the shim and through it.
    assert!(text.contains(&format!("{} right", 2 * 5 * 2 * CALLS)), "{text}");
    let ledger = under.ledger();
    assert_eq!(ledger.row(Kind::Memset).calls, 5 * CALLS);
    assert_eq!(ledger.row(Kind::Memset).bytes, 5 * CALLS * 3);
    assert_eq!(ledger.row(Kind::DeviceToDevice).bytes, 5 * CALLS * 3);
    assert_eq!(ledger.fact(Fact::Calls), 2 * 5 * CALLS);
}

/// The shim pushes copies of 1 KiB to 64 KiB; what is installed for that is in the folders `more`.
fn pushing(more: &[&str], variables: &[(&str, &str)]) -> Run {
    let folder = programs();
    let ledgers = tempfile::tempdir().expect("a folder for ledgers");
    let mut path = folder.display().to_string();
    for more in more {
        path += &format!(":{}", folder.join(more).display());
    }
    let output = Command::new(folder.join("client"))
        .arg("push")
        .env("LD_LIBRARY_PATH", path)
        .env("LD_PRELOAD", shim())
        .env(VARIABLE, "rtt=6800,measure=0,push=1024-65536")
        .env(LEDGER_VARIABLE, ledgers.path())
        .envs(variables.iter().copied())
        .output()
        .expect("the program starts");
    Run { output, ledgers: read(ledgers.path()) }
}

#[test]
fn copies_are_pushed_through_a_dma_buf_or_gdrcopy() {
    for (more, unpinned) in [(&[][..], 0), (&["gdr"][..], 1)] {
        let under = pushing(more, &[]);
        let counts = under.counted();
        let said = |what: &str| counts.get(&format!("client {what} 1")).copied().unwrap_or(0);
        for what in [
            "now right",
            "not in turn: left",
            "in turn: right",
            "default stream: left",
            "too small: left",
            "unnamed: right",
            "mapped again: right",
        ] {
            assert_eq!(said(what), 1, "{what}: {}", under.text());
        }
        // What is left: out of turn, default stream, too small, past the allocation's end.
        let of_driver =
            |name: &str| under.lines().iter().filter(|line| line.starts_with(name)).count();
        assert_eq!(of_driver("cuMemcpyHtoDAsync_v2"), 2);
        assert_eq!(of_driver("cuMemcpyHtoD_v2"), 2);
        assert_eq!(of_driver("cuMemcpyAsync"), 0);
        assert_eq!(counts.get("unpinned").copied().unwrap_or(0), unpinned);
        let ledger = under.ledger();
        assert_eq!(ledger.fact(Fact::PushedBytes), 3 * 4096 + 5000);
        assert_eq!(ledger.fact(Fact::PushedCopies), 4);
        let added = ledger.fact(Fact::PushedNanos);
        assert!(0 < added && added < ledger.row(Kind::HostToDevice).added);
        assert_eq!(ledger.row(Kind::HostToDevice).calls, 8);
        // The two that the driver did wait; of those that were pushed the first, for its stream.
        assert_eq!(ledger.row(Kind::Synchronise).delays, 3);
        assert_eq!(ledger.text(Text::NoPush), "");
    }
}

#[test]
fn a_pushed_copy_is_nothing_to_wait_for() {
    let (settings, variables) = ("rtt=6800,measure=0,push=1024-65536", [("REACHED", "1")]);
    let under = run_with(Before::Shim, settings, &["client", "push wait"], &variables);
    let ledger = under.ledger();
    assert_eq!(ledger.fact(Fact::PushedBytes), 4096);
    let row = ledger.row(Kind::Synchronise);
    assert_eq!((row.calls, row.delays), (1, 0));
}

#[test]
fn a_thread_whose_stream_is_full_holds_up_no_other() {
    for (what, settings, waited) in [
        ("full kernel", "rtt=6800,measure=1", "cuEventRecord stream=5 224"),
        ("full copy", "rtt=6800,measure=0,push=1024-65536", "cuEventRecord stream=0 224"),
    ] {
        let counts = run(Before::Shim, settings, &["client", what]).counted();
        assert!(counts.contains_key(waited), "{what}: {counts:?}");
        assert_eq!(counts.get("nobody made room - 0"), None, "{what}");
    }
}

#[test]
fn why_copies_are_not_pushed_is_said() {
    for (more, variables, why) in [
        (
            &[][..],
            &[("NO_DMA_BUF", "1")][..],
            "GDRCopy (libgdrapi.so.2) is not installed; the driver",
        ),
        (
            &["gdr"][..],
            &[("NO_DMA_BUF", "1"), ("NO_GDRDRV", "1")][..],
            "(/dev/gdrdrv) is not there",
        ),
    ] {
        let under = pushing(more, variables);
        assert!(under.text().contains("cuMemcpyHtoD_v2 - 4096"));
        let ledger = under.ledger();
        assert_eq!(ledger.fact(Fact::PushedBytes), 0);
        let said = ledger.text(Text::NoPush);
        assert!(said.contains(why) && said.contains("CUDA error 801"), "{said}");
        assert!(said.starts_with("on device 0 (Test GPU 0): "), "{said}");
    }
}

#[test]
fn memory_whose_place_may_change_is_not_pushed_to() {
    let under = pushing(&[], &[("POOL", "1")]);
    let ledger = under.ledger();
    assert_eq!(ledger.fact(Fact::PushedBytes), 0);
    assert!(ledger.text(Text::NoPush).contains("its place may change"));
    assert!(under.text().contains("cuMemcpyHtoD_v2 - 4096"));
}

#[test]
fn managed_and_mapped_memory_is_known_by_what_kernels_are_given() {
    let under = run(Before::Shim, "rtt=6800,measure=0,off=kernel+doorbell", &["client", "memory"]);
    let lines = under.lines();
    let delays: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once(" delay stream=5 "))
        .map(|(_, delay)| delay)
        .collect();
    let settings: perf_core::Settings = "rtt=6800".parse().expect("settings");
    let there = settings.fabric.htod_extra(1 << 20).0.to_string();
    let home = settings.fabric.dtoh_extra(1 << 20).0.to_string();
    // One read of mapped memory, 128 bytes.
    let read = settings.fabric.htod_extra(128).0.to_string();
    // To the device with the first kernel, home and there again by the next, there by a prefetch;
    // then a kernel with mapped memory, while it is mapped.
    assert_eq!(delays, [&there, &home, &there, &there, &read]);
    let ledger = under.ledger();
    assert_eq!(ledger.row(Kind::Managed).bytes, 4 << 20);
    assert_eq!(ledger.row(Kind::Mapped).calls, 1);
    assert_eq!(ledger.row(Kind::Kernel).calls, 8);
    assert_eq!(ledger.row(Kind::Kernel).delays, 0);
}

#[test]
fn what_of_managed_memory_is_on_the_host_moves_with_a_kernel() {
    let under = run(Before::Shim, "rtt=6800,measure=0,off=kernel+doorbell", &["client", "parts"]);
    let lines = under.lines();
    let delays = lines.iter().filter_map(|line| line.split_once(" delay stream=5 "));
    let settings: perf_core::Settings = "rtt=6800".parse().expect("settings");
    let there = |quarters: u64| settings.fabric.htod_extra(quarters << 18).0.to_string();
    let home = |quarters: u64| settings.fabric.dtoh_extra(quarters << 18).0.to_string();
    let expected = [there(1), there(1), there(3), home(2), there(2), home(4)];
    assert_eq!(delays.map(|(_, delay)| delay.to_owned()).collect::<Vec<_>>(), expected);
    // What is discarded counts as a prefetch of nothing.
    let row = under.ledger().row(Kind::Managed);
    assert_eq!((row.operations, row.bytes, row.delays), (7, 13 << 18, 6));
}

#[test]
fn a_prefetch_that_the_driver_refuses_moves_nothing() {
    let settings: perf_core::Settings = "rtt=6800".parse().expect("settings");
    let there = settings.fabric.htod_extra(1 << 20).0.to_string();
    let read = settings.fabric.htod_extra(128).0.to_string();
    for (what, expected) in [("memory", vec![&there, &read]), ("parts", vec![&there])] {
        let off = "rtt=6800,measure=0,off=kernel+doorbell";
        let lines = run_with(Before::Shim, off, &["client", what], &[("NO_PREFETCH", "1")]).lines();
        let delays = lines.iter().filter_map(|line| line.split_once(" delay stream=5 "));
        assert_eq!(delays.map(|(_, delay)| delay).collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn memory_goes_with_its_context() {
    let settings = "rtt=6800,measure=0,off=kernel+doorbell";
    // Not with the device's primary one, nor with one that the driver keeps.
    for (what, variables, delays) in [
        ("context memory", &[][..], 0),
        ("context memory", &[("NO_DESTROY", "1")][..], 1),
        ("primary memory", &[][..], 1),
    ] {
        let under = run_with(Before::Shim, settings, &["client", what], variables);
        let ledger = under.ledger();
        assert_eq!(ledger.row(Kind::Kernel).calls, 2);
        let of = |kind| ledger.row(kind).delays;
        assert_eq!([of(Kind::Managed), of(Kind::Mapped)], [delays; 2], "{what}: {variables:?}");
    }
}

#[test]
fn a_gpu_that_is_idle_hears_of_work_late() {
    let under = run(Before::Shim, "rtt=6800,measure=0,off=kernel+memset", &["client", "idle"]);
    let lines = under.lines();
    let delay = "cuLaunchKernel delay stream=5 8400";
    let work: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("cuLaunchKernel") || line.starts_with("cuMemset"))
        .collect();
    let (kernel, memset) = ("cuLaunchKernel stream=5 7", "cuMemsetD32Async stream=5 10");
    // The first is put in while the stream has work.
    assert_eq!(work, [kernel, delay, kernel, delay, memset]);
    assert_eq!(under.ledger().row(Kind::Doorbell).delays, 2);
}
