//! CUDA programs on the stand-in alone.

use std::collections::BTreeMap;

use cuda_hooks::by_version;
use cuda_tests::{Binding, Run, StandIn, compile, python};

/// What the program `workload` calls, by the names that the resolver takes.
const WORKLOAD: &[(&str, usize)] = &[
    ("cuCtxSynchronize", 1),
    ("cuEventQuery", 1),
    ("cuEventRecord", 2),
    ("cuEventSynchronize", 1),
    ("cuGraphExecDestroy", 1),
    ("cuGraphInstantiateWithFlags", 2),
    ("cuGraphLaunch", 3),
    ("cuLaunchCooperativeKernel", 1),
    ("cuLaunchGridAsync", 1),
    ("cuLaunchHostFunc", 1),
    ("cuLaunchKernel", 7),
    ("cuLaunchKernelEx", 1),
    ("cuMemAlloc", 2),
    ("cuMemAllocAsync", 1),
    ("cuMemAllocHost", 1),
    ("cuMemAllocManaged", 1),
    ("cuMemFree", 3),
    ("cuMemFreeAsync", 1),
    ("cuMemFreeHost", 1),
    ("cuMemHostRegister", 1),
    ("cuMemHostUnregister", 1),
    ("cuMemPrefetchAsync", 1),
    ("cuMemcpy", 1),
    ("cuMemcpy2D", 1),
    ("cuMemcpy2DAsync", 1),
    ("cuMemcpy3D", 1),
    ("cuMemcpyAsync", 1),
    ("cuMemcpyBatchAsync", 1),
    ("cuMemcpyDtoD", 1),
    ("cuMemcpyDtoDAsync", 1),
    ("cuMemcpyDtoH", 4),
    ("cuMemcpyDtoHAsync", 4),
    ("cuMemcpyHtoD", 1),
    ("cuMemcpyHtoDAsync", 2),
    ("cuMemsetD2D32Async", 1),
    ("cuMemsetD32", 2),
    ("cuMemsetD8", 2),
    ("cuMemsetD8Async", 1),
    ("cuStreamAddCallback", 1),
    ("cuStreamBeginCapture", 1),
    ("cuStreamDestroy", 1),
    ("cuStreamEndCapture", 1),
    ("cuStreamQuery", 1),
    ("cuStreamSynchronize", 10),
    ("cuStreamWaitEvent", 1),
];

fn workload(binding: Binding) -> Run {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "workload", binding).unwrap();
    let run = stand_in.run(stand_in.command(program)).unwrap();
    run.must_succeed();
    assert_eq!(run.stdout, "done\n", "{binding:?}");
    run
}

/// Calls of functions that the shim hooks.
fn hooked(run: &Run) -> BTreeMap<&str, usize> {
    let mut counts = run.counts();
    counts.retain(|symbol, _| cuda_hooks::by_symbol(symbol).is_some());
    counts
}

#[test]
fn programs_call_what_they_ask_for_in_every_way_to_the_driver() {
    for binding in Binding::ALL {
        let run = workload(binding);
        let wanted: BTreeMap<&str, usize> = WORKLOAD
            .iter()
            .map(|(name, count)| {
                let form = by_version(name, 12090, binding == Binding::Own).unwrap();
                (form.symbol, *count)
            })
            .collect();
        let called = hooked(&run);
        let missing = |from: &BTreeMap<&str, usize>, of: &BTreeMap<&str, usize>| -> Vec<String> {
            let rest = from.iter().filter(|(symbol, count)| of.get(*symbol) != Some(count));
            rest.map(|(symbol, count)| format!("{symbol} {count}")).collect()
        };
        let ends = ["cuDevicePrimaryCtxRelease_v2 1"];
        assert_eq!(missing(&called, &wanted), ends, "{binding:?}");
        assert_eq!(missing(&wanted, &called), [""; 0], "{binding:?}");
    }
}

#[test]
fn the_timeline_depends_on_the_program_alone() {
    let device = |run: &Run| -> Vec<(u64, u64, String, Option<u64>, u64)> {
        let row = |row: &cuda_tests::Row| {
            (row.start, row.duration, row.kind.clone(), row.stream, row.bytes)
        };
        run.device().map(row).collect()
    };
    let first = workload(Binding::Elf);
    assert!(device(&first).len() > 30);
    for binding in [Binding::Elf, Binding::Dlsym, Binding::Resolver] {
        assert_eq!(device(&workload(binding)), device(&first), "{binding:?}");
    }
    // With its own default stream, the thread's work is the same, and not when it is.
    let own: Vec<u64> = device(&workload(Binding::Own)).iter().map(|row| row.1).collect();
    assert_eq!(own, device(&first).iter().map(|row| row.1).collect::<Vec<_>>());
}

#[test]
fn a_driver_that_is_loaded_locally_by_a_plugin_is_one() {
    let stand_in = StandIn::new().unwrap();
    let plugin = cuda_tests::compile_plugin(&stand_in, "workload").unwrap();
    let program = compile(&stand_in, "plugin", Binding::Dlsym).unwrap();
    let mut command = stand_in.command(program);
    command.arg(plugin);
    let run = stand_in.run(command).unwrap();
    assert_eq!(run.must_succeed().stdout, "done\n");
    assert_eq!(run.counts(), workload(Binding::Elf).counts());
}

#[test]
fn errors_order_captures_and_times_are_the_drivers() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "semantics", Binding::Elf).unwrap();
    let mut command = stand_in.command(&program);
    command.env("STAND_IN", "devices=2");
    assert_eq!(stand_in.run(command).unwrap().must_succeed().stdout, "done\n");
    // The same checks fail where things take another time.
    let mut command = stand_in.command(program);
    command.env("STAND_IN", "devices=2,reach_ns=1001");
    let run = stand_in.run(command).unwrap();
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("not so: standInStreamEnd"), "{}", run.stdout);
}

#[test]
fn settings_that_are_wrong_end_the_program() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "workload", Binding::Elf).unwrap();
    let mut command = stand_in.command(program);
    command.env("STAND_IN", "device=2");
    let run = stand_in.run(command).unwrap();
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("there is no setting `device`"), "{}", run.stderr);
}

/// Runs a Python program of `clients` with a set of packages; none where that is not installed.
fn python_client(set: &str, client: &str) -> Option<Run> {
    let python = match python(set) {
        Ok(python) => python,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return None;
        }
    };
    let stand_in = StandIn::new().unwrap();
    let mut command = stand_in.command(python);
    command.arg(cuda_tests::client(client));
    command.env("DEV", "CUDA:PTX").env("HOME", stand_in.folder());
    let run = stand_in.run(command).unwrap();
    assert_eq!(run.must_succeed().stdout, "done\n", "{}", run.stderr);
    Some(run)
}

/// How often each of some functions was called.
fn called(run: &Run, symbols: &[&str]) -> Vec<usize> {
    let counts = run.counts();
    symbols.iter().map(|symbol| counts.get(symbol).copied().unwrap_or(0)).collect()
}

#[test]
fn tinygrad_runs() {
    let Some(run) = python_client("tinygrad", "tinygrad_client.py") else { return };
    let work = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoH_v2"];
    assert_eq!(called(&run, &work), [1, 1, 1]);
    assert!(run.look_ups.is_empty(), "it binds by dlsym");
}

#[test]
fn the_bindings_of_both_cuda_versions_run() {
    for (set, version) in [("bindings-12", 12), ("bindings-13", 13)] {
        let Some(run) = python_client(set, "bindings_client.py") else { continue };
        let work = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"];
        assert_eq!(called(&run, &work), [1, 3, 1], "{set}");
        let work = ["cuMemsetD8_v2", "cuMemcpyDtoH_v2", "cuStreamSynchronize"];
        assert_eq!(called(&run, &work), [1, 1, 1], "{set}");
        let newest = run.look_ups.iter().map(|look_up| look_up.version).max();
        assert_eq!(newest.map(|newest| newest / 1000), Some(version), "{set}");
    }
}

#[test]
fn numba_runs() {
    let Some(run) = python_client("numba", "numba_client.py") else { return };
    let work = ["cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2"];
    assert_eq!(called(&run, &work), [3, 1]);
    let kernels = run.device().filter(|row| row.kind == "kernel").map(|kernel| kernel.duration);
    assert_eq!(kernels.collect::<Vec<_>>(), [10_000; 3]);
}
