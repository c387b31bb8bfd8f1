//! The shim's delays on the stand-in's timeline: those that were asked for, where they belong.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use cuda_tests::{Binding, Run, StandIn, compile, shim};
use perf_core::{Fact, Kind, LEDGER_VARIABLE, Ledger, Nanos, Row, Settings, VARIABLE};

/// What the shim's kernel is called.
const DELAY: &str = "dxpu_delay";

/// A run and what the shim counted of it.
struct Under {
    run: Run,
    rows: BTreeMap<&'static str, Row>,
    lost: u64,
    /// Kernels that were measured: how many, and their average in nanoseconds.
    measured: (u64, f64),
}

impl Under {
    fn row(&self, kind: Kind) -> Row {
        self.rows[kind.name()]
    }

    /// The rows of the shim's kernel on the timeline.
    fn delays(&self) -> Vec<&cuda_tests::Row> {
        self.run.device().filter(|row| row.name == DELAY).collect()
    }

    /// What the program printed: the time that it took.
    fn time(&self) -> u64 {
        self.run.stdout.trim().parse().expect("the program prints a number")
    }
}

/// The stand-in and the client, compiled once for each way to the driver.
fn client(binding: Binding) -> (&'static StandIn, &'static Path) {
    static MADE: Mutex<Vec<(Binding, &StandIn, &Path)>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap();
    if let Some((_, stand_in, program)) = made.iter().find(|made| made.0 == binding) {
        return (stand_in, program);
    }
    let stand_in: &'static StandIn = Box::leak(Box::new(StandIn::new().unwrap()));
    let program = compile(stand_in, "timeline", binding).unwrap();
    let program: &'static Path = Box::leak(program.into_boxed_path());
    made.push((binding, stand_in, program));
    (stand_in, program)
}

/// The client under the shim.
fn run(settings: &str, binding: Binding, arguments: &[&str]) -> Under {
    let (stand_in, program) = client(binding);
    let ledgers = tempfile::tempdir().unwrap();
    let mut command = stand_in.command(program);
    command.args(arguments).env("LD_PRELOAD", shim().unwrap());
    command.env(VARIABLE, settings).env(LEDGER_VARIABLE, ledgers.path());
    let run = stand_in.run(command).unwrap();
    run.must_succeed();
    let mut under = Under { run, rows: BTreeMap::new(), lost: 0, measured: (0, 0.0) };
    for kind in Kind::ALL {
        under.rows.insert(kind.name(), Row::default());
    }
    for entry in std::fs::read_dir(ledgers.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let words = Ledger::words(&bytes).unwrap();
        let ledger = Ledger::open(&words).unwrap();
        for kind in Kind::ALL {
            under.rows.insert(kind.name(), ledger.row(kind));
        }
        under.lost += ledger.fact(Fact::LostDelays);
        let kernels = ledger.kernels();
        under.measured = (kernels.count(), kernels.mean().unwrap_or(0.0));
    }
    under
}

/// Runs a kind of work with a delay and without. Gives the two times, and the run with the delay.
fn compare(rtt: u64, more: &str, kind: &str, times: u64) -> (u64, Under) {
    let arguments = [kind, &times.to_string()];
    let settings = |rtt: u64| format!("rtt={rtt},measure=0{more}");
    let bare = run(&settings(1_200), Binding::Dlsym, &arguments);
    assert_eq!(bare.delays(), Vec::<&cuda_tests::Row>::new());
    let under = run(&settings(rtt), Binding::Dlsym, &arguments);
    assert_eq!(under.lost, 0);
    (under.time() - bare.time(), under)
}

fn extra(rtt: u64, kind: Kind, bytes: u64) -> u64 {
    let settings: Settings = format!("rtt={rtt}").parse().unwrap();
    let Nanos(extra) = settings.extra(kind, bytes);
    extra
}

/// Whether a time is within 1 % of what was asked for.
fn close(what: &str, is: u64, asked: u64) {
    assert!(is.abs_diff(asked) * 100 <= asked, "{what}: {is} ns instead of {asked} ns");
}

#[test]
fn only_ranges_are_delayed_and_counted_where_that_is_wanted() {
    const TIMES: u64 = 100;
    let each = extra(6_800, Kind::Kernel, 0);
    for binding in [Binding::Elf, Binding::Dlsym] {
        let run = |settings: &str| run(settings, binding, &["ranges", &TIMES.to_string()]);
        let bare = run("rtt=1200,measure=0");
        // One before the time is taken; in a range and out of it.
        let all = run("rtt=6800,measure=0");
        assert_eq!(all.row(Kind::Kernel).operations, 2 * TIMES + 1, "{binding:?}");
        assert_eq!(all.delays().len() as u64, 2 * TIMES + 1);
        let ranges = run("rtt=6800,measure=0,range=profiler");
        assert_eq!(ranges.row(Kind::Kernel).operations, TIMES, "{binding:?}");
        assert_eq!(ranges.row(Kind::Kernel).added, TIMES * each);
        assert_eq!(ranges.delays().len() as u64, TIMES);
        // The waits at the end are in no range.
        assert_eq!(ranges.row(Kind::Synchronise), Row::default());
        close("ranges", ranges.time() - bare.time(), TIMES * each);
        // A kernel whose range is over when it is seen to have ended counts.
        let measured = run("rtt=6800,measure=1,range=profiler").measured;
        assert_eq!(measured, (TIMES, 25_000.0), "{binding:?}");
    }
}

#[test]
fn the_delay_asked_for_is_the_delay_on_the_timeline() {
    const TIMES: u64 = 200;
    const BYTES: u64 = 1 << 20;
    for rtt in [4_900, 6_800, 19_000] {
        // At the end the CPU waits once more for what the GPU wrote.
        let wait = extra(rtt, Kind::Synchronise, 0);
        for (work, kind, bytes) in [
            ("kernel", Kind::Kernel, 0),
            ("legacy", Kind::Kernel, 0),
            ("htod", Kind::HostToDevice, BYTES),
            ("dtoh", Kind::DeviceToHost, BYTES),
        ] {
            let (added, under) = compare(rtt, "", work, TIMES);
            let each = extra(rtt, kind, bytes);
            let asked = TIMES * each;
            let ends = added.saturating_sub(2 * wait)..=added;
            let nearest = asked.clamp(*ends.start(), *ends.end());
            close(work, nearest, asked);
            // One before the time is taken.
            let delays = under.delays();
            let here = delays.iter().filter(|row| row.duration == each).count() as u64;
            assert!(here >= TIMES, "{work}: {here} of {TIMES} delays are {each} ns long");
            assert_eq!(
                under.row(kind).delays,
                delays.len() as u64 - u64::from(kind != Kind::Kernel)
            );
        }
    }
}

#[test]
fn a_delay_follows_what_it_is_for_in_the_same_stream() {
    let under = run("rtt=6800,measure=0", Binding::Resolver, &["streams", "50"]);
    let mut streams: BTreeMap<u64, Vec<&cuda_tests::Row>> = BTreeMap::new();
    for row in under.run.device() {
        streams.entry(row.stream.expect("work is in a stream")).or_default().push(row);
    }
    assert_eq!(streams.len(), 2);
    for rows in streams.values_mut() {
        rows.sort_by_key(|row| row.start);
        for pair in rows.chunks(2) {
            let [kernel, delay] = pair else { panic!("a kernel without its delay") };
            assert_eq!((kernel.name.as_str(), delay.name.as_str()), ("last_25us", DELAY));
            assert_eq!(delay.duration, 5_600);
            assert!(delay.start >= kernel.start + kernel.duration);
        }
    }
}

#[test]
fn streams_stay_side_by_side() {
    let (one, _) = compare(6_800, "", "kernel", 100);
    let (both, under) = compare(6_800, "", "streams", 100);
    assert_eq!(under.row(Kind::Kernel).delays, 201);
    close("two streams", both, one);
}

#[test]
fn a_synchronous_copy_and_a_wait_hold_up_the_cpu() {
    let (added, under) = compare(6_800, "", "now", 50);
    let wait = extra(6_800, Kind::Synchronise, 0);
    let copy = extra(6_800, Kind::HostToDevice, 1 << 20);
    close("copies", added, 50 * (copy + wait) + wait);
    assert_eq!(under.row(Kind::HostToDevice).added, 50 * copy);
    let (added, _) = compare(6_800, ",off=kernel+doorbell+mapped", "sync", 50);
    // What the shim asks before a wait is over before the wait is.
    close("waits", added, 50 * wait + wait);
}

#[test]
fn work_on_the_device_alone_costs_nothing() {
    let (added, under) = compare(6_800, ",off=kernel+sync+doorbell+mapped+peer", "dtod", 50);
    assert_eq!(added, 0);
    assert_eq!(under.row(Kind::DeviceToDevice).operations, 50);
}

#[test]
fn memsets_and_callbacks_are_delayed() {
    let (_, under) = compare(6_800, "", "memset", 20);
    assert_eq!(under.row(Kind::Memset).added, 20 * 5_600);
    let (_, under) = compare(6_800, "", "callback", 20);
    let row = under.row(Kind::HostCallback);
    assert_eq!((row.delays, row.added), (40, 20 * 5_600));
}

#[test]
fn what_a_delay_itself_costs_is_taken_off_it() {
    let (_, under) = compare(6_800, ",cost=1500", "memset", 20);
    let durations =
        |under: &Under| -> Vec<u64> { under.delays().iter().map(|delay| delay.duration).collect() };
    // One for each memset, and for the kernel that the program begins with.
    assert_eq!(durations(&under), [5_600 - 1_500; 21]);
    assert_eq!(under.row(Kind::Memset).added, 20 * 5_600);
    let (_, under) = compare(6_800, ",cost=9000", "memset", 20);
    assert_eq!(durations(&under), [0; 21]);
}

#[test]
fn a_graph_is_delayed_once_or_by_node() {
    let (launch, under) = compare(6_800, ",graphs=launch", "graph", 50);
    let row = under.row(Kind::Graph);
    assert_eq!((row.calls, row.operations, row.added), (50, 200, 50 * 5_600));
    let (node, under) = compare(6_800, ",graphs=node", "graph", 50);
    let row = under.row(Kind::Graph);
    assert_eq!((row.calls, row.operations, row.delays, row.added), (50, 200, 200, 200 * 5_600));
    let wait = extra(6_800, Kind::Synchronise, 0);
    let at_most = |added: u64, asked: u64| (asked..=asked + 3 * wait).contains(&added);
    assert!(at_most(launch, 50 * 5_600), "{launch}");
    assert!(at_most(node, 200 * 5_600), "{node}");
}

#[test]
fn place_cpu_delays_the_call() {
    let (added, under) = compare(6_800, ",place=cpu", "memset", 50);
    assert_eq!(under.delays().len(), 0);
    // The device is done before the CPU comes with the next one: 2 us for a call of the stand-in.
    let asked = 50 * (5_600 + 2_000);
    assert!(added > 0 && (asked..asked + asked / 50).contains(&under.time()), "{}", under.time());
}

#[test]
fn measured_kernels_last_as_long_as_kernels_and_not_as_their_delays() {
    for rtt in [1_200, 6_800] {
        let settings = format!("rtt={rtt},measure=10");
        let under = run(&settings, Binding::Dlsym, &["kernel", "199"]);
        let (count, mean) = under.measured;
        // One of ten of 200, all of which had ended when the program last waited.
        assert_eq!(count, 20);
        // Where the device is idle before, the time from event to kernel is in it.
        assert!((25_000.0..26_000.0).contains(&mean), "{mean} ns");
    }
}
