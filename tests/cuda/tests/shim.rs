//! CUDA programs on the stand-in, under the shim.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use cuda_tests::{Binding, Run, StandIn, client, compile, python, shim};
use perf_core::{Fact, Kind, LEDGER_VARIABLE, Ledger, VARIABLE};

/// 6.8 us instead of 1.2 us, and no kernel measured.
const SETTINGS: &str = "rtt=6800,measure=0";

/// What that is more, in nanoseconds.
const DELTA: u64 = 5600;

/// The shim's kernel that spends a delay.
const DELAY: &str = "dxpu_delay";

/// The stand-in, and a folder for ledgers.
struct Under {
    stand_in: StandIn,
    ledgers: tempfile::TempDir,
}

impl Under {
    fn new() -> Self {
        Self { stand_in: StandIn::new().unwrap(), ledgers: tempfile::tempdir().unwrap() }
    }

    /// A command that runs under the shim: with settings and a ledger, or as if only preloaded.
    fn command(&self, program: impl AsRef<Path>, settings: Option<&str>) -> Command {
        let mut command = self.stand_in.command(program);
        command.env("LD_PRELOAD", shim().unwrap());
        match settings {
            Some(settings) => {
                command.env(VARIABLE, settings).env(LEDGER_VARIABLE, self.ledgers.path())
            }
            None => command.env_remove(VARIABLE).env_remove(LEDGER_VARIABLE),
        };
        command
    }

    /// Runs the program `workload` to its good end.
    fn workload(&self, binding: Binding, settings: Option<&str>) -> Run {
        let program = compile(&self.stand_in, "workload", binding).unwrap();
        let run = self.stand_in.run(self.command(program, settings)).unwrap();
        assert_eq!(run.must_succeed().stdout, "done\n", "{binding:?}");
        run
    }

    /// The bytes of the ledgers that were left.
    fn ledgers(&self) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(self.ledgers.path()).unwrap();
        entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    /// What the one ledger says.
    fn counts(&self) -> Counts {
        let ledgers = self.ledgers();
        assert_eq!(ledgers.len(), 1);
        let words = Ledger::words(&ledgers[0]).unwrap();
        let ledger = Ledger::open(&words).unwrap();
        let row = |kind: &Kind| {
            let row = ledger.row(*kind);
            (kind.name(), [row.calls, row.operations, row.bytes, row.delays, row.added])
        };
        Counts {
            kinds: Kind::ALL.iter().map(row).collect(),
            gpu: ledger.fact(Fact::GpuDelays),
            lost: ledger.fact(Fact::LostDelays),
        }
    }
}

/// What a ledger has: for each kind calls, operations, bytes, delays, and the time of those.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    kinds: BTreeMap<&'static str, [u64; 5]>,
    gpu: u64,
    lost: u64,
}

/// The calls of a run that a program without the shim has too, in its order; the others.
fn shared(alone: &Run, under: &Run) -> (usize, Vec<String>) {
    let mut wanted = alone.calls.iter().map(|call| (&call.symbol, call.status)).peekable();
    let (mut count, mut more) = (0, Vec::new());
    for call in &under.calls {
        if wanted.peek() == Some(&(&call.symbol, call.status)) {
            wanted.next();
            count += 1;
        } else {
            more.push(call.symbol.clone());
        }
    }
    (count, more)
}

#[test]
fn nothing_to_add_changes_nothing() {
    let alone = StandIn::new().unwrap();
    for binding in Binding::ALL {
        let program = compile(&alone, "workload", binding).unwrap();
        let without = alone.run(alone.command(program)).unwrap();
        for settings in [None, Some("rtt=1200,measure=0")] {
            let with = Under::new().workload(binding, settings);
            let (count, more) = shared(&without, &with);
            assert_eq!(count, without.calls.len(), "{binding:?}: {more:?}");
            // It may ask what things are, and does nothing to them.
            for symbol in more {
                let asks = ["Get", "Query", "IsCapturing"].iter().any(|part| symbol.contains(part));
                assert!(asks, "{symbol}");
            }
            let work = |run: &Run| -> Vec<(String, u64, u64, String, Option<u64>)> {
                run.device()
                    .map(|r| (r.kind.clone(), r.duration, r.bytes, r.name.clone(), r.stream))
                    .collect()
            };
            assert_eq!(work(&with), work(&without), "{binding:?}");
        }
    }
}

#[test]
fn every_call_is_caught_once_in_every_way_to_the_driver() {
    let mut first: Option<Counts> = None;
    for binding in Binding::ALL {
        let under = Under::new();
        let run = under.workload(binding, Some(SETTINGS));
        let counts = under.counts();
        // One launch and two copies are only recorded, in a graph that is launched once.
        for (kind, calls) in [
            (Kind::Kernel, 9),
            (Kind::Graph, 3),
            (Kind::Memset, 6),
            (Kind::HostToDevice, 4),
            (Kind::DeviceToHost, 10),
            (Kind::DeviceToDevice, 3),
            (Kind::Managed, 1),
            (Kind::HostCallback, 2),
        ] {
            assert_eq!(counts.kinds[kind.name()][0], calls, "{binding:?} {kind:?}");
        }
        for (kind, delays) in [(Kind::Kernel, 9), (Kind::Graph, 3), (Kind::Memset, 6)] {
            let [.., count, time] = counts.kinds[kind.name()];
            assert_eq!((count, time), (delays, delays * DELTA), "{binding:?} {kind:?}");
        }
        assert_eq!(counts.lost, 0, "{binding:?}");
        let delays = run.device().filter(|row| row.name == DELAY).count();
        assert_eq!(delays as u64, counts.gpu, "{binding:?}");
        if let Some(first) = &first {
            assert_eq!(&counts, first, "{binding:?}");
        }
        first = Some(counts);
    }
}

#[test]
fn a_kernels_end_comes_as_much_later_as_was_asked_for() {
    for binding in Binding::ALL {
        let under = Under::new();
        let run = under.workload(binding, Some(SETTINGS));
        let rows: Vec<_> = run.device().collect();
        let mut checked = 0;
        for (index, row) in rows.iter().enumerate() {
            if row.kind != "kernel" || row.name == DELAY {
                continue;
            }
            // A graph's nodes are under the launch's number; the delay is behind the last.
            if run.call_of(row).is_some_and(|call| call.name.starts_with("cuGraphLaunch")) {
                continue;
            }
            let next = rows[index + 1..].iter().find(|next| next.stream == row.stream).unwrap();
            assert_eq!(next.name, DELAY, "{binding:?}: {row:?}");
            assert_eq!(next.start, row.start + row.duration, "{binding:?}");
            assert!(next.duration.abs_diff(DELTA) <= DELTA / 100, "{binding:?}: {next:?}");
            checked += 1;
        }
        assert_eq!(checked, 9, "{binding:?}");
    }
}

#[test]
fn third_party_programs_run_as_without_the_shim() {
    for (set, script, launches) in [
        ("tinygrad", "tinygrad_client.py", 1),
        ("bindings-12", "bindings_client.py", 3),
        ("bindings-13", "bindings_client.py", 3),
        ("numba", "numba_client.py", 3),
    ] {
        let python = match python(set) {
            Ok(python) => python,
            Err(reason) => {
                println!("SKIPPED: {reason}");
                continue;
            }
        };
        let under = Under::new();
        let mut command = under.command(python, Some(SETTINGS));
        command.arg(client(script)).env("DEV", "CUDA:PTX");
        command.env("HOME", under.stand_in.folder());
        let run = under.stand_in.run(command).unwrap();
        assert_eq!(run.must_succeed().stdout, "done\n", "{set}: {}", run.stderr);
        let kernels = |is_delay: bool| {
            let of =
                |row: &&cuda_tests::Row| row.kind == "kernel" && (row.name == DELAY) == is_delay;
            run.device().filter(of).count()
        };
        assert_eq!(kernels(false), launches, "{set}");
        assert!(kernels(true) >= launches, "{set}");
        let counts = under.counts();
        assert_eq!(counts.kinds[Kind::Kernel.name()][0], launches as u64, "{set}");
        assert_eq!(counts.gpu, kernels(true) as u64, "{set}");
    }
}

#[test]
fn programs_without_cuda_leave_nothing() {
    let under = Under::new();
    let mut command = under.command("bash", Some(SETTINGS));
    command.args(["-c", "ls / | sort | head -3; python3 -c 'import ctypes; print(6 * 7)'"]);
    let with = under.stand_in.run(command).unwrap();
    let mut command = under.stand_in.command("bash");
    command.args(["-c", "ls / | sort | head -3; python3 -c 'import ctypes; print(6 * 7)'"]);
    let without = under.stand_in.run(command).unwrap();
    assert_eq!((&with.stdout, &with.stderr), (&without.stdout, &without.stderr));
    assert!(with.stdout.ends_with("42\n"), "{}", with.stdout);
    assert!(under.ledgers().is_empty());
    assert!(with.calls.is_empty() && with.look_ups.is_empty());
}

#[test]
fn a_full_disk_costs_the_counts_and_not_the_program() {
    let under = Under::new();
    let ledgers = under.ledgers.path().display().to_string();
    let unshare = |script: &str| {
        let words = ["--user", "--map-root-user", "--mount", "sh", "-c", script];
        Command::new("unshare").args(words).output()
    };
    // A file system without a free block, which only this program sees.
    let mount = format!("mount -t tmpfs -o size=4k none {ledgers} && ");
    if !unshare(&format!("{mount} true")).is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: nothing can be mounted here");
        return;
    }
    let program = compile(&under.stand_in, "workload", Binding::Elf).unwrap();
    let script = format!(
        "{mount} head -c 4096 /dev/zero > {ledgers}/full && LD_PRELOAD={shim} LD_LIBRARY_PATH={library} \
         {VARIABLE}={SETTINGS} {LEDGER_VARIABLE}={ledgers} {program} && ls {ledgers}",
        shim = shim().unwrap().display(),
        library = under.stand_in.folder().display(),
        program = program.display(),
    );
    let output = unshare(&script).unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "done\nfull\n", "{}: {errors}", output.status);
    assert!(errors.contains(&format!("no ledger in {ledgers}")), "{errors}");
}
