//! Contexts of several devices, and contexts that go.

use cuda_tests::{Binding, Run, StandIn, compile, shim};
use perf_core::{Fact, Kind, LEDGER_VARIABLE, Ledger, VARIABLE};

/// What the program `two_gpus` did under the shim, and what the shim counted.
fn under(what: &str, settings: &str, see: impl FnOnce(&Run, Ledger<'_>)) {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "two_gpus", Binding::Elf).unwrap();
    let ledgers = tempfile::tempdir().unwrap();
    let mut command = stand_in.command(&program);
    command.arg(what).env("STAND_IN", "devices=2").env("LD_PRELOAD", shim().unwrap());
    command.env(VARIABLE, settings).env(LEDGER_VARIABLE, ledgers.path());
    let run = stand_in.run(command).unwrap();
    run.must_succeed();
    let file = std::fs::read_dir(ledgers.path()).unwrap().next().unwrap().unwrap();
    let words = Ledger::words(&std::fs::read(file.path()).unwrap()).unwrap();
    see(&run, Ledger::open(&words).unwrap());
}

#[test]
fn a_primary_context_that_goes_leaves_nothing_behind() {
    // On the CPU no context has a kernel, and on the GPU each has.
    for place in ["cpu", "gpu"] {
        let settings = format!("rtt=6800,measure=1,place={place}");
        under("reset", &settings, |_, ledger| {
            // More than are measured at a time: each context's events are free when it is gone. And a
            // capture that went with its context holds up no measurement and no wait.
            assert_eq!(ledger.fact(Fact::KernelsMeasured), 150, "{place}");
            let waits = ledger.row(Kind::Synchronise);
            assert_eq!((waits.calls, waits.delays), (150, 150), "{place}");
        });
    }
}

#[test]
fn what_delays_need_is_on_each_gpu_before_a_range_begins() {
    under("range", "rtt=6800,measure=0,range=profiler", |run, ledger| {
        assert_eq!(ledger.row(Kind::Kernel).delays, 2);
        let at = |symbol: &str| run.calls.iter().rposition(|call| call.symbol == symbol);
        let first = run.calls.iter().position(|call| call.symbol == "cuLaunchKernel");
        assert!(at("cuModuleLoadData") < first);
        // The program's own contexts are as they were.
        let count = |symbol| run.counts().get(symbol).copied().unwrap_or(0);
        assert_eq!(count("cuDevicePrimaryCtxRetain") - count("cuDevicePrimaryCtxRelease_v2"), 2);
    });
    // Where no stream is delayed nothing is loaded: the program's two modules are all.
    under("range", "rtt=6800,measure=0,range=profiler,place=cpu", |run, _| {
        assert_eq!(run.counts()["cuModuleLoadData"], 2);
    });
}
