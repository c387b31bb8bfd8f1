//! What is predicted from a program's trace is what happens when the shim delays it: the same
//! programs without the shim, whose timeline is the trace, and under it, on the stand-in's timeline.

use std::path::PathBuf;

use cuda_tests::{Binding, Run, StandIn, compile, shim};
use perf_core::{Fabric, Graphs, Kind, Nanos, Settings, VARIABLE};
use perf_model::replay::{Graph, Proxies, Scenario};
use perf_model::trace::{Options, Trace, read_file};

/// A call costs next to nothing here: the shim makes more of them than the program does, and on a
/// GPU that is a cost of injecting, not of a fabric.
const CALLS: &str = "call_ns=1,get_ns=1,query_ns=1,delay_ns=1,launch_ns=20,sync_ns=5,reach_ns=500";

/// What is right within so many percent.
const PERCENT: u64 = 3;

/// A kind of workload: its name, how often, its words (see `clients/scripted.c`).
type Workload = (&'static str, u32, &'static [&'static str]);

const WORKLOADS: &[Workload] = &[
    ("short kernels", 400, &["k3us@1", "k2us@1", "k5us@1"]),
    ("long kernels", 50, &["k800us@1", "k350us@1"]),
    ("short and long kernels", 100, &["k4us@1", "k120us@1", "k7us@1", "k30us@1"]),
    ("kernels in the default stream", 200, &["k20us@0", "k6us@0"]),
    ("two streams", 200, &["k30us@1", "k10us@2"]),
    ("four streams, uneven", 100, &["k50us@1", "k20us@2", "k20us@3", "k5us@4"]),
    (
        "eight streams",
        60,
        &["k9us@1", "k8us@2", "k7us@3", "k6us@4", "k5us@5", "k4us@6", "k3us@7", "k2us@8"],
    ),
    ("streams that wait for each other", 150, &["k20us@1", "e1>2", "k15us@2", "e2>1"]),
    ("a fork and a join", 100, &["k10us@1", "e1>2", "e1>3", "k40us@2", "k25us@3", "e2>1", "e3>1"]),
    ("bound by the CPU", 200, &["w30000", "k5us@1", "w20000", "k8us@1"]),
    // Two kernels without the CPU between them show what lies between kernels.
    ("nearly bound by the CPU", 200, &["w24000", "k10us@1", "k10us@1"]),
    ("the CPU in bursts", 60, &["k20us@1", "k20us@1", "k20us@1", "w90000"]),
    ("small copies to the device", 300, &["h4096@1", "k15us@1"]),
    ("large copies to the device", 30, &["h4194304@1", "k100us@1"]),
    ("copies beside kernels", 40, &["h1048576@2", "k150us@1", "e2>1"]),
    ("copies from the device", 100, &["k20us@1", "d262144@1"]),
    ("copies both ways", 40, &["h1048576@1", "k60us@1", "d1048576@1"]),
    ("copies alone", 40, &["h8388608@1", "d8388608@2"]),
    ("memsets", 200, &["m65536@1", "k10us@1", "m4096@1"]),
    ("a step that waits", 150, &["h65536@1", "k40us@1", "k25us@1", "d64@1", "s1", "w5000"]),
    ("waiting after each kernel", 200, &["k12us@1", "s1"]),
    ("synchronous copies", 150, &["H4096", "k20us@0", "D4096"]),
    ("graphs", 60, &["g20x5us@1"]),
    ("graphs and copies", 50, &["h32768@1", "g10x8us@1", "d4096@1", "s1"]),
    ("host callbacks", 100, &["k10us@1", "b1", "k10us@1"]),
    (
        "inference, one at a time",
        60,
        &["w4000", "h150528@1", "k30us@1", "k60us@1", "k45us@1", "k8us@1", "d4000@1", "s1"],
    ),
    (
        "a training step",
        30,
        &[
            "h1048576@2",
            "e2>1",
            "k60us@1",
            "k90us@1",
            "k5us@1",
            "k3us@1",
            "m8192@1",
            "k120us@1",
            "k70us@1",
            "k4us@1",
            "k2us@1",
            "k2us@1",
            "w10000",
            "k6us@1",
            "d4@1",
            "s1",
        ],
    ),
];

/// The program, and what it runs on.
struct Client {
    stand_in: StandIn,
    program: PathBuf,
}

fn client() -> Client {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Resolver).unwrap();
    Client { stand_in, program }
}

/// Runs a workload, under the shim where there are settings.
fn run(client: &Client, workload: &Workload, settings: Option<&Settings>) -> Run {
    let Client { stand_in, program } = client;
    let mut command = stand_in.command(program);
    command.arg(workload.1.to_string()).args(workload.2).env("STAND_IN", CALLS);
    if let Some(settings) = settings {
        command.env("LD_PRELOAD", shim().unwrap()).env(VARIABLE, settings.to_env());
    }
    let run = stand_in.run(command).unwrap();
    run.must_succeed();
    run
}

/// The time that a program says its work took, in nanoseconds.
fn said(run: &Run) -> u64 {
    run.stdout.trim().parse().unwrap()
}

fn trace(run: &Run) -> Trace {
    read_file(&run.timeline_file, &Options::default()).unwrap()
}

/// What is predicted from a run's timeline: how much longer all of it takes.
fn predicted(trace: &Trace, settings: Settings) -> u64 {
    let graph = Graph::of(trace);
    let scenario = Scenario::of(settings, Proxies::One);
    graph.play(&scenario).length_ns()
}

fn settings(rtt: u64, graphs: Graphs) -> Settings {
    let fabric = Fabric::DXPU_68.with_rtt(Nanos(rtt)).unwrap();
    Settings { graphs, measure_every: 0, ..Settings::of(fabric) }
}

#[test]
fn what_is_predicted_is_what_happens() {
    let client = client();
    let mut wrong = Vec::new();
    println!("{:<34} {:>9} {:>9} {:>9} {:>7}", "", "native", "injected", "predicted", "");
    for workload in WORKLOADS {
        let bare = run(&client, workload, None);
        let native = trace(&bare);
        for (rtt, graphs) in
            [(4_900, Graphs::Launch), (6_800, Graphs::Node), (19_000, Graphs::Launch)]
        {
            let settings = settings(rtt, graphs);
            let under = run(&client, workload, Some(&settings));
            let injected = said(&under);
            // What is before the work takes as long in both.
            let before = native.length_ns() - said(&bare);
            let predicted = predicted(&native, settings) - before;
            let error = 100.0 * (predicted as f64 / injected as f64 - 1.0);
            let name = format!("{} at {:.1} us", workload.0, rtt as f64 / 1e3);
            println!(
                "{name:<42} {:>9.1} {:>9.1} {:>9.1} us {error:>+6.2} %",
                said(&bare) as f64 / 1e3,
                injected as f64 / 1e3,
                predicted as f64 / 1e3,
            );
            if predicted.abs_diff(injected) * 100 > PERCENT * injected {
                wrong.push(format!("{name}: {error:+.2} %"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nothing_added_is_nothing_predicted() {
    let client = client();
    for workload in WORKLOADS {
        let bare = trace(&run(&client, workload, None));
        let settings = settings(1_200, Graphs::Launch);
        let (is, was) = (predicted(&bare, settings), bare.length_ns());
        assert!(is.abs_diff(was) * 1000 <= was, "{}: {is} instead of {was} ns", workload.0);
        assert_eq!(settings.extra(Kind::Kernel, 0), Nanos::ZERO);
    }
}
