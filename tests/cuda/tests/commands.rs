//! `dxpu-perf` as a person calls it, with the stand-in as the machine's driver.

use std::path::Path;
use std::process::{Command, Output};

use cuda_tests::{Binding, StandIn, compile, dxpu_perf, shim};
use serde_json::Value;

fn command(stand_in: &StandIn, arguments: &[&str]) -> Command {
    let mut command = stand_in.command(dxpu_perf().unwrap());
    command.args(arguments).env("DXPU_PERF_SHIM", shim().unwrap());
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn calibrate_measures_what_the_stand_in_takes() {
    let stand_in = StandIn::new().unwrap();
    let profile = stand_in.folder().join("mine.toml");
    let name = profile.to_str().unwrap();
    let (code, out, error) = output(&mut command(&stand_in, &["calibrate", "--json", "-o", name]));
    assert_eq!(code, Some(0), "{error}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["gpu"], "DxPU stand-in");
    // `read_ns` of its settings.
    assert_eq!(said["read_rtt_ns"], 1_200);
    let delays = said["delays"].as_array().unwrap();
    for delay in delays {
        let [asked, took] = ["asked_ns", "took_ns"].map(|key| delay[key].as_u64().unwrap());
        assert!(took.abs_diff(asked) * 100 <= asked + 100, "{delay}");
    }
    let copy = said["copies"].as_array().unwrap().last().unwrap();
    let rate = copy["bytes"].as_f64().unwrap() / copy["htod_ns"].as_f64().unwrap();
    assert!((rate - 11.2).abs() < 0.1, "{rate} GB/s");
    // The profile says the same, and can be used.
    let (code, out, error) =
        output(&mut command(&stand_in, &["model", "--json", "--profile", name]));
    assert_eq!(code, Some(0), "{error}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["native_rtt_ns"], &said["delta_ns"]), (&1_200.into(), &5_600.into()));
}

#[test]
fn run_reports_and_ends_as_the_program_ends() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let program = program.to_str().unwrap();
    let [report, page] = ["r.json", "r.html"].map(|name| stand_in.folder().join(name));
    let arguments = [
        "run",
        "--rtt",
        "6.8us",
        "--json",
        report.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
        "--",
        program,
        "50",
        "k5us@1",
        "h4096@1",
        "s1",
    ];
    let (code, out, error) = output(&mut command(&stand_in, &arguments));
    assert_eq!(code, Some(0), "{error}");
    // The program's own output is its own; the report is beside it.
    assert!(out.trim().parse::<u64>().is_ok(), "{out}");
    assert!(
        error.contains("what would help") && error.contains("host-to-device copies"),
        "{error}"
    );
    let report = json(&report);
    // Once before the clock.
    assert_eq!(report["kinds"]["kernel"]["calls"], 51);
    assert_eq!(report["kinds"]["kernel"]["added_ns"], 51 * 5_600);
    assert_eq!(report["kinds"]["htod"]["bytes"], 51 * 4096);
    assert!(std::fs::read_to_string(page).unwrap().contains("What the fabric cost"));

    let (code, _, _) = output(&mut command(&stand_in, &["run", "-q", "--", "sh", "-c", "exit 7"]));
    assert_eq!(code, Some(7));
    let (code, _, _) =
        output(&mut command(&stand_in, &["run", "-q", "--", "sh", "-c", "kill -9 $$"]));
    assert_eq!(code, Some(137));
    let (code, _, error) = output(&mut command(&stand_in, &["run", "--", "/no/such/program"]));
    assert_eq!(code, Some(2));
    assert!(error.contains("/no/such/program cannot be started"), "{error}");
}

#[test]
fn sweep_finds_where_performance_falls() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let program = program.to_str().unwrap();
    let page = stand_in.folder().join("sweep.html");
    let arguments = [
        "sweep",
        "--rtt",
        "2us..20us",
        "--steps",
        "4",
        "--repeat",
        "2",
        "--metric",
        "^([0-9]+)$",
        "--lower-is-better",
        "--off",
        "sync",
        "--measure-every",
        "0",
        "--json",
        "--html",
        page.to_str().unwrap(),
        "--",
        program,
        "100",
        "k50us@1",
    ];
    let mut command = command(&stand_in, &arguments);
    command.env("STAND_IN", "call_ns=1,get_ns=1,query_ns=1,delay_ns=1,launch_ns=20,reach_ns=20");
    let (code, out, error) = output(&mut command);
    assert_eq!(code, Some(0), "{error}");
    let said: Value = serde_json::from_str(&out).unwrap();
    let steps = said["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    for step in steps {
        // Kernels of 50 us, one after the other.
        let added = step["rtt_ns"].as_f64().unwrap() - 1_200.0;
        let performance = 50_000.0 / (50_000.0 + added);
        let is = step["performance"].as_f64().unwrap();
        assert!((is - performance).abs() < 0.002, "{step}: not {performance}");
        assert!(step["confidence_95"].is_array());
    }
    // 50 / 0.9 - 50 + 1.2, between two steps.
    let falls = said["falls_below_level_at_ns"].as_f64().unwrap();
    assert!((falls - 6_755.0).abs() < 300.0, "{falls}");
    assert!(std::fs::read_to_string(page).unwrap().contains("<polyline"));
}

#[test]
fn a_sweep_of_a_range_that_is_open_at_the_end_is_of_all_of_it() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "timeline", Binding::Dlsym).unwrap();
    let program = program.to_str().unwrap();
    let sweep = ["sweep", "--rtt", "4us..4us", "--steps", "1", "--repeat", "1", "--json"];
    let range = |kind: &str| {
        let more = ["--level", "99.5", "--range", "profiler", "--", program, kind, "50"];
        output(&mut command(&stand_in, &[&sweep[..], &more].concat()))
    };
    let (code, out, error) = range("open");
    assert_eq!(code, Some(0), "{error}");
    let said: Value = serde_json::from_str(&out).unwrap();
    for seconds in [&said["native"][0], &said["steps"][0]["values"][0]] {
        assert!(seconds.as_f64().unwrap() >= 0.1, "{said}");
    }
    let (code, _, error) = range("kernel");
    assert_eq!(code, Some(2));
    assert!(error.contains("no process called cuProfilerStart"), "{error}");
}

#[test]
fn what_a_run_said_is_not_lost() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let program = program.to_str().unwrap();
    // A ledger that the program spoiled: the others are reported, and the program's own end.
    let script = format!("{program} 5 k5us@1 s1; : > $DXPU_PERF_LEDGERS/1.ledger; exit 3");
    let (code, _, error) = output(&mut command(&stand_in, &["run", "--", "sh", "-c", &script]));
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("counts are lost: ") && error.contains("1.ledger"), "{error}");
    assert!(error.contains("kernels"), "{error}");
    // A report that cannot be written is known before the program runs.
    let ran = stand_in.folder().join("ran");
    let script = format!("touch {}", ran.display());
    let arguments = ["run", "--html", "/no/such/folder/r.html", "--", "sh", "-c", &script];
    let (code, _, error) = output(&mut command(&stand_in, &arguments));
    assert_eq!(code, Some(2));
    assert!(error.contains("/no/such/folder/r.html cannot be written"), "{error}");
    assert!(!ran.exists());
    // Without a metric the program's own output is no part of the JSON.
    let arguments = [
        "sweep", "--rtt", "2us..3us", "--steps", "2", "--repeat", "1", "--json", "--", program,
        "5", "k5us@1",
    ];
    let (code, out, error) = output(&mut command(&stand_in, &arguments));
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str::<Value>(&out).unwrap();
    // A program that leaves somebody behind with its output is not waited for longer.
    let script =
        format!("{program} 5 k5us@1 > /dev/null; echo speed 4; sleep 100 2> /dev/null & exit 0");
    let arguments = [
        "sweep",
        "--rtt",
        "2us..3us",
        "--steps",
        "1",
        "--repeat",
        "1",
        "--metric",
        "speed (.*)",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let begun = std::time::Instant::now();
    let (code, out, error) = output(&mut command(&stand_in, &arguments));
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("4.0000") && begun.elapsed().as_secs() < 90, "{out}");
}

#[test]
fn errors_that_nobody_reads_change_no_exit_code() {
    let stand_in = StandIn::new().unwrap();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (arguments, code) in [(&["model", "--tags", "0"][..], 2), (&["run", "--", "true"], 0)] {
        let status = command(&stand_in, arguments).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_no_other_result() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let program = program.to_str().unwrap();
    let [report, page] = ["r.json", "r.html"].map(|name| stand_in.folder().join(name));
    let (report_name, page_name) = (report.to_str().unwrap(), page.to_str().unwrap());
    let files = ["--report", "/dev/full", "--json", report_name, "--html", page_name];
    let arguments = [&["run"], &files[..], &["--", program, "5", "k5us@1"]].concat();
    let (code, _, error) = output(&mut command(&stand_in, &arguments));
    assert_eq!(code, Some(2));
    assert!(error.contains("synchronisation"), "{error}");
    assert!(error.contains("/dev/full cannot be written"), "{error}");
    assert_eq!(json(&report)["kinds"]["kernel"]["calls"], 6);
    assert!(std::fs::read_to_string(&page).unwrap().contains("What the fabric cost"));

    // A program that cannot be started leaves no report.
    let new = stand_in.folder().join("new.json");
    let arguments = ["run", "--json", new.to_str().unwrap(), "--", "/no/such/program"];
    let (code, _, _) = output(&mut command(&stand_in, &arguments));
    assert_eq!((code, new.exists()), (Some(2), false));
    // An earlier report stays where there is no new one.
    let (code, _, _) =
        output(&mut command(&stand_in, &["run", "--json", report_name, "--", "/no/such/program"]));
    assert_eq!((code, &json(&report)["kinds"]["kernel"]["calls"]), (Some(2), &6.into()));

    let sweep = ["sweep", "--rtt", "2us..3us", "--steps", "2", "--repeat", "1", "--json"];
    let sweep = [&sweep[..], &["--html", "/dev/full", "--", program, "5", "k5us@1"]].concat();
    let (code, out, error) = output(&mut command(&stand_in, &sweep));
    assert_eq!(code, Some(2));
    assert!(error.contains("/dev/full cannot be written"), "{error}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((said["steps"].as_array().unwrap().len(), &said["ended"]), (2, &Value::Null));
}

#[test]
fn copies_between_gpus_cost_what_the_proxies_make_of_them() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "two_gpus", Binding::Elf).unwrap();
    let report = stand_in.folder().join("r.json");
    let settings: perf_core::Settings = "rtt=6800,proxies=each".parse().unwrap();
    let each = settings.extra(perf_core::Kind::PeerToPeer, 1 << 20).0;
    let trace = stand_in.folder().join("trace.csv");
    std::fs::write(
        &trace,
        "start_ns,duration_ns,kind,stream,bytes,device,correlation\n\
         0,1000,launch,1,0,0,1\n2000,95000,peer,1,1048576,0,1\n",
    )
    .unwrap();
    for (proxies, added) in [(&[][..], 0), (&["--proxies", "each"], each)] {
        let run = ["run", "-q", "--rtt", "6.8us", "--json", report.to_str().unwrap()];
        let run = [&run[..], proxies, &["--", program.to_str().unwrap(), "peer"]].concat();
        let mut run = command(&stand_in, &run);
        let (code, out, error) = output(run.env("STAND_IN", "devices=2"));
        assert_eq!(code, Some(0), "{out}{error}");
        let report = json(&report);
        let peer = &report["kinds"]["peer"];
        assert_eq!((&peer["operations"], &peer["added_ns"]), (&2.into(), &(2 * added).into()));
        // What is predicted has the same without being asked, and says so as well.
        let predict = ["predict", trace.to_str().unwrap(), "--rtt", "6.8us", "--json"];
        let (code, out, error) = output(&mut command(&stand_in, &[&predict, proxies].concat()));
        assert_eq!(code, Some(0), "{error}");
        let said: Value = serde_json::from_str(&out).unwrap();
        let said = &said["prediction"];
        assert_eq!(said["proxies"], report["proxies"]);
        let peers = said["causes"]["peer"]["added_ns"].as_u64().unwrap_or(0);
        assert_eq!(peers, added, "{said}");
    }
}
