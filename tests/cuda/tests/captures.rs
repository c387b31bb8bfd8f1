//! Captures that end in other ways than they should: the shim knows when they are over.

use cuda_tests::{Binding, StandIn, compile, shim};
use perf_core::{Kind, LEDGER_VARIABLE, Ledger, VARIABLE};

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
