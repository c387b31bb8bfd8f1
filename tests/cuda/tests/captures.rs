//! Captures that end in other ways than they should: the shim knows when they are over. And graphs
//! that are changed: it knows what is in them.

use cuda_tests::{Binding, StandIn, compile, shim};
use perf_core::{Kind, LEDGER_VARIABLE, Ledger, Row, VARIABLE};

/// What a program did of a kind under the shim, and how long the delays on the device took, each.
fn under(name: &str, settings: &str, kind: Kind) -> (Row, Vec<u64>) {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, name, Binding::Elf).unwrap();
    let ledgers = tempfile::tempdir().unwrap();
    let mut command = stand_in.command(&program);
    command.env("LD_PRELOAD", shim().unwrap()).env(LEDGER_VARIABLE, ledgers.path());
    command.env(VARIABLE, settings);
    let run = stand_in.run(command).unwrap();
    run.must_succeed();
    let file = std::fs::read_dir(ledgers.path()).unwrap().next().unwrap().unwrap();
    let words = Ledger::words(&std::fs::read(file.path()).unwrap()).unwrap();
    let row = Ledger::open(&words).unwrap().row(kind);
    let delays = run.device().filter(|row| row.name == "dxpu_delay").map(|row| row.duration);
    (row, delays.collect())
}

#[test]
fn a_capture_ends_when_it_ends_and_no_earlier() {
    let stand_in = StandIn::new().unwrap();
    for binding in Binding::ALL {
        let program = compile(&stand_in, "captures", binding).unwrap();
        let bare = stand_in.run(stand_in.command(&program)).unwrap();
        bare.must_succeed();
        let ledgers = tempfile::tempdir().unwrap();
        let mut command = stand_in.command(&program);
        command.env("LD_PRELOAD", shim().unwrap()).env(LEDGER_VARIABLE, ledgers.path());
        // What asks a stream that is captured spoils the capture: measuring, and an idle GPU.
        command.env(VARIABLE, "rtt=6800,measure=1,off=mapped");
        stand_in.run(command).unwrap().must_succeed();
        let file = std::fs::read_dir(ledgers.path()).unwrap().next().unwrap().unwrap();
        let words = Ledger::words(&std::fs::read(file.path()).unwrap()).unwrap();
        let ledger = Ledger::open(&words).unwrap();
        assert_eq!(ledger.row(Kind::Graph).operations, 4, "{binding:?}");
        // Every wait is for a kernel that has not ended.
        let waits = ledger.row(Kind::Synchronise);
        assert_eq!((waits.calls, waits.delays), (13, 13), "{binding:?}");
    }
}

#[test]
fn a_graph_in_a_graph_is_not_the_whole_of_it() {
    for (graphs, delays) in [("launch", 2), ("node", 8)] {
        let settings = format!("rtt=6800,measure=0,graphs={graphs}");
        let (row, _) = under("child_graph", &settings, Kind::Graph);
        // Four kernels, launched twice; what each costs comes after the launch, together.
        assert_eq!((row.calls, row.operations), (2, 8), "{graphs}");
        assert_eq!(row.added, delays * 5_600, "{graphs}");
    }
}

#[test]
fn each_node_is_delayed_once_whether_it_was_captured_or_not() {
    // What the launch of a graph costs is not what its nodes do.
    for off in ["doorbell", "doorbell+graph"] {
        let settings = format!("rtt=6800,measure=0,graphs=node,off={off}");
        let (row, delays) = under("nested_graphs", &settings, Kind::Graph);
        assert_eq!((row.calls, row.operations), (6, 2 + 2 + 5 + 5 + 3 + 3), "{off}");
        // What was captured has a delay for each node, the others one for all.
        let one = |kernels: u64| kernels * 5_600;
        let expected = [1, 1, 1, 1, 1, 1, 3, 1, 1, 3, 1, 1, 1, 3].map(one);
        assert_eq!(delays, expected, "{off}");
        assert_eq!((row.delays, row.added), (14, 20 * 5_600), "{off}");
    }
}
