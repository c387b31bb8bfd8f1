//! `dxpu-perf predict` as a person calls it.

use std::path::Path;

use clap::Parser;
use perf_model::Args;
use serde_json::Value;

const TRACE: &str = "\
start_ns,duration_ns,kind,device,stream,bytes,name,correlation,thread,process
0,4000,launch,,,,cuLaunchKernel,1,1,10
6000,20000,kernel,0,7,,first,1,,10
5000,4000,launch,,,,cuMemcpyHtoDAsync,2,1,10
27000,100000,htod,0,7,1000000,copy,2,,10
10000,120000,sync,0,7,,cuStreamSynchronize,3,1,10
500,4000,launch,,,,cuLaunchKernel,1,1,20
6500,30000,kernel,1,7,,second,1,,20
";

fn predict(arguments: &[&str]) -> Result<String, String> {
    let command = ["dxpu-perf", "predict"];
    let args =
        Args::try_parse_from(command.iter().chain(arguments)).map_err(|it| it.to_string())?;
    let mut out = Vec::new();
    perf_model::run(args, &mut out).map_err(|error| format!("{error:#}"))?;
    Ok(String::from_utf8(out).expect("text"))
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn json(arguments: &[&str]) -> Value {
    let text = predict(&[arguments, &["--json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_trace_is_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "t.csv", TRACE);
    let text = predict(&[&trace, "--rtt", "6.8us", "--compare", "rtt=4.9us,1.2us"]).unwrap();
    for said in ["3 operations on 2 devices", "what loses most", "copy", "rtt=4.9us", "100.00 %"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // The kernel's end, the copy at Equation 1's rate, a round trip, and half of one.
    let alone = json(&[&trace, "--rtt", "6.8us", "--device", "0", "--native-rates", "profile"]);
    let fabric = perf_core::Fabric::DXPU_68;
    let longer = 5_600 + fabric.htod_extra(1_000_000).0 + 2_800;
    assert_eq!(alone["trace"]["native_ns"], 130_000);
    assert_eq!(alone["prediction"]["predicted_ns"], 130_000 + longer);
    assert_eq!(alone["prediction"]["lost_ns"], longer);
    assert_eq!(alone["prediction"]["top"][0]["name"], "copy");

    let same = json(&[&trace, "--rtt", "1.2us", "--compare", "rtt=6.8us", "--off", "kernel"]);
    assert_eq!(same["prediction"]["performance_percent"], 100.0);
    let compared = &same["compare"][0];
    assert_eq!(
        (&compared["change"], &compared["prediction"]["rtt_ns"]),
        (&"rtt=6.8us".into(), &6800.into())
    );
    assert!(compared["prediction"]["causes"]["kernel"].is_null());
}

#[test]
fn copies_that_are_off_need_nothing_of_the_proxy_that_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let text = "start_ns,duration_ns,kind,device,stream,bytes,name,correlation,thread\n\
                0,1000,launch,,,,cuMemcpyHtoDAsync,1,1\n2000,1000000,htod,0,7,11000000,c,1,\n\
                0,1000,launch,,,,cuMemcpyHtoDAsync,2,2\n2000,1000000,htod,1,7,11000000,c,2,\n";
    let trace = write(folder.path(), "t.csv", text);
    let percent = |off: &[&str]| {
        let said = json(&[&[&trace[..], "--rtt", "6.8us"], off].concat());
        said["prediction"]["performance_percent"].as_f64().unwrap()
    };
    assert!(percent(&[]) < 55.0);
    assert!((percent(&["--off", "htod,dtoh"]) - 100.0).abs() < 1e-9);
    assert!(percent(&["--off", "dtoh"]) < 55.0);
}

#[test]
fn tags_that_were_asked_for_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    // 50 GB/s: 469 reads of 128 bytes under way at 1.2 us.
    let copy = "start_ns,duration_ns,kind,bytes\n0,1000000,htod,50000000\n";
    let trace = write(folder.path(), "t.csv", copy);
    let tags = |said: &Value| said["prediction"]["tags"].as_u64().unwrap();
    let remark = |said: &Value| said["remarks"].to_string();

    let raised = json(&[&trace]);
    assert_eq!(tags(&raised), 469);
    assert!(remark(&raised).contains("instead of the profile's 140"), "{raised}");
    let asked = json(&[&trace, "--tags", "32", "--compare", "tags=32"]);
    assert_eq!(tags(&asked), 32);
    assert!(remark(&asked).contains("taken as they are, with 32"), "{asked}");
    let percent = |it: &Value| it["prediction"]["performance_percent"].as_f64().unwrap();
    assert!((percent(&asked) - percent(&asked["compare"][0])).abs() < 1e-9, "{asked}");
    assert_eq!(tags(&json(&[&trace, "--mrs", "256"])), 140);

    // Where the trace shows no rate a profile's file keeps its tags.
    let profile = write(folder.path(), "p.toml", "rtt = \"6.8us\"\ntags = 32\n");
    let small = write(folder.path(), "s.csv", &copy.replace("50000000", "500"));
    assert_eq!(tags(&json(&[&small, "--profile", &profile])), 32);
}

#[test]
fn several_files_are_one_job() {
    let folder = tempfile::tempdir().unwrap();
    let one = write(folder.path(), "0.csv", TRACE);
    let two = write(folder.path(), "1.csv", TRACE);
    let both = json(&[&one, &two]);
    assert_eq!(both["trace"]["devices"], 4);
    assert_eq!(both["trace"]["native_ns"], 130_000);
    let each = json(&[&one, &two, "--proxies", "each"]);
    let length = |value: &Value| value["prediction"]["predicted_ns"].as_u64().unwrap();
    assert!(length(&each) < length(&both));
}

#[test]
fn what_is_wrong_is_said_with_the_file_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "t.csv", TRACE);
    let wrong = write(folder.path(), "wrong.csv", &TRACE.replace("6000,20000", "6000,-1"));
    for (arguments, says) in [
        (vec![wrong.as_str()], "wrong.csv: in line 3, column duration_ns: a negative duration"),
        (vec!["/no/such/file"], "/no/such/file: cannot be read"),
        (vec![&trace, "--format", "kineto"], "neither an object nor an array"),
        (vec![&trace, "--device", "5"], "it has devices 0, 1 and processes 10, 20"),
        (vec![&trace, "--rtt", "1us"], "shorter than the native one"),
        (vec![&trace, "--compare", "speed=2"], "is none of rtt, tags"),
        (vec![&trace, "--off", "sync", "--on", "sync"], "both --on and --off"),
        (vec![], "required"),
    ] {
        let error = predict(&arguments).unwrap_err();
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let saved = json(&[&wrong, "--salvage"]);
    assert_eq!((&saved["left_out"], &saved["trace"]["operations"]), (&1.into(), &2.into()));
}

#[test]
fn a_prediction_is_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "t.csv", &TRACE.replace("first", "<script>f()</script>"));
    let page = folder.path().join("page.html");
    let arguments =
        [&trace, "--rtt", "6.8us", "--compare", "tags=280", "--html", page.to_str().unwrap()];
    predict(&arguments).unwrap();
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
    for said in ["What loses most", "tags=280", "<svg", "of native performance"] {
        assert!(html.contains(said), "{said}: {html}");
    }
}

#[test]
fn a_name_that_is_no_text_is_shown_as_well_as_it_can_be() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"\xfe.csv"));
    std::fs::write(&path, TRACE).unwrap();
    let command = ["dxpu-perf", "predict", "--json"].map(std::ffi::OsString::from);
    let args = Args::try_parse_from(command.into_iter().chain([path.into_os_string()])).unwrap();
    let mut out = Vec::new();
    perf_model::run(args, &mut out).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();
    assert!(json["traces"][0].as_str().unwrap().ends_with(".csv"));
}

#[test]
fn steps_are_where_their_calls_are_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n".to_owned();
    let calls = 50_000_u64;
    for at in 0..calls {
        text += &format!("{},1000,launch,,cuLaunchKernel,{at},1\n", at * 10_000);
        text += &format!("{},5000,kernel,7,k,{at},\n", at * 10_000 + 2_000);
    }
    // A thread without calls has steps, too.
    for at in 0..5_000 {
        text += &format!("{},90000,step,,s,,{}\n", at * 100_000_u64, 1 + at % 2);
    }
    // One that no trace can have is left out.
    text += "4611686018427387904,1,step,,s,,1\n";
    let trace = write(folder.path(), "t.csv", &text);
    let said = json(&[&trace, "--rtt", "6.8us"]);
    assert_eq!(said["trace"]["steps"], 5_000);
    // Each thread marks half of them, and the last kernel ends after the last step.
    assert_eq!(said["trace"]["native_step_ns"], 499_997_000.0 / 2_500.0);
}

#[test]
fn a_step_has_what_the_cpu_does_before_its_first_call() {
    let folder = tempfile::tempdir().unwrap();
    // Three steps of 20 ms: the CPU loads data for 15 ms, then launches. Before them one of nothing.
    let mut text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n".to_owned();
    text += "80000000,20000000,step,,s,,1\n";
    for at in [100_000_000_u64, 120_000_000, 140_000_000] {
        text += &format!("{at},20000000,step,,s,,1\n");
        text += &format!("{},4000,launch,,cuLaunchKernel,{at},1\n", at + 15_000_000);
        text += &format!("{},4900000,kernel,7,k,{at},1\n", at + 15_010_000);
    }
    let trace = write(folder.path(), "t.csv", &text);
    let said = json(&[&trace, "--rtt", "6.8us"]);
    assert_eq!(said["trace"]["steps"], 3);
    assert_eq!(said["trace"]["native_step_ns"], 20_000_000.0);
    let part = json(&[&trace, "--rtt", "6.8us", "--device", "0"]);
    assert_eq!(part["trace"], said["trace"]);
    let shorter = json(&[&trace, "--rtt", "6.8us", "--untraced", "18ms"]);
    assert!(!shorter["remarks"].to_string().contains("no longer than"), "{shorter}");
}

#[test]
fn the_profiler_cost_what_the_cpu_does_before_its_first_call_too() {
    let folder = tempfile::tempdir().unwrap();
    // Steps of 20 ms, 15 of them the CPU's: 2 less of them are 0.867 of the CPU's time.
    for steps in [1, 3] {
        let mut text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n".to_owned();
        for at in (0..steps).map(|step| step * 20_000_000_u64) {
            text += &format!("{at},20000000,step,,s,,1\n");
            let call = at + 15_000_000;
            text += &format!("{call},4000,launch,,cuLaunchKernel,{call},1\n");
            text += &format!("{},4900000,kernel,7,k,{call},1\n", call + 10_000);
            text += &format!("{0},4910000,sync,7,cuStreamSynchronize,{0},1\n", call + 5_000);
        }
        let trace = write(folder.path(), "t.csv", &text);
        let said = json(&[&trace, "--rtt", "6.8us", "--untraced", "18ms"]);
        let left = said["untraced"]["cpu_left"].as_f64().unwrap();
        assert!((left / 0.867 - 1.0).abs() < 0.01, "{steps}: {said}");
        let step = said["trace"]["native_step_ns"].as_f64().unwrap();
        assert!((step / 18e6 - 1.0).abs() < 0.01, "{steps}: {said}");
        assert!(!said["remarks"].to_string().contains("is not the CPU's"), "{said}");
    }
}

/// A CPU that is slow, as under a profiler: 30 us between kernels of 5 us.
fn traced(folder: &Path) -> String {
    let mut text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n".to_owned();
    for at in 0..1_000_u64 {
        text += &format!("{},10000,launch,,cuLaunchKernel,{at},1\n", at * 30_000);
        text += &format!("{},5000,kernel,7,k,{at},\n", at * 30_000 + 12_000);
    }
    write(folder, "t.csv", &text)
}

#[test]
fn what_the_profiler_cost_can_be_taken_off() {
    let folder = tempfile::tempdir().unwrap();
    let trace = traced(folder.path());
    let performance = |said: &Value| said["prediction"]["performance_percent"].as_f64().unwrap();
    let remark = |said: &Value| said["remarks"].as_array().unwrap().last().cloned().unwrap();

    let plain = json(&[&trace, "--rtt", "6.8us"]);
    assert!(performance(&plain) > 99.0, "{plain}");
    // A kernel each 9 us: its end hides less.
    let without = json(&[&trace, "--rtt", "6.8us", "--untraced", "9ms"]);
    let native = without["trace"]["native_ns"].as_f64().unwrap();
    assert!((native / 9e6 - 1.0).abs() < 0.01, "{without}");
    assert!((performance(&without) - 100.0 * 9.0 / 11.6).abs() < 2.0, "{without}");
    assert!(remark(&without).as_str().unwrap().contains("of the CPU's time"), "{without}");

    let longer = json(&[&trace, "--rtt", "6.8us", "--untraced", "1s"]);
    assert_eq!(longer["trace"]["native_ns"], plain["trace"]["native_ns"]);
    assert!(remark(&longer).as_str().unwrap().contains("played as it is"), "{longer}");
    let too_short = json(&[&trace, "--rtt", "6.8us", "--untraced", "1ms"]);
    assert!(remark(&too_short).as_str().unwrap().contains("is not the CPU's"), "{too_short}");
    assert_eq!(too_short["untraced"]["wanted_ns"], 1_000_000);
    assert_eq!(
        (&without["untraced"]["wanted_ns"], &plain["untraced"]),
        (&9_000_000.into(), &Value::Null)
    );
    assert!(predict(&[&trace, "--untraced", "9"]).unwrap_err().contains("unit"));

    let shim = json(&[&trace, "--rtt", "6.8us", "--putting", "4us"]);
    assert!((performance(&shim) - 100.0 * 30.0 / 34.0).abs() < 1.0, "{shim}");
}
