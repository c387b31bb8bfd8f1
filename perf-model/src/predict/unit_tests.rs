use perf_core::{Fabric, Settings};

use super::*;
use crate::replay::Proxies;
use crate::trace::{Options, read_text};

/// Two steps: a copy of 1 MiB in 0.1 ms, a kernel of 5 us and one of 50, a wait.
fn trace() -> Trace {
    let mut text = String::from("start_ns,duration_ns,kind,stream,bytes,name,correlation,thread\n");
    for step in 0..2_u64 {
        let at = step * 1_000_000;
        text += &format!("{at},900000,step,,,ProfilerStep#{step},,1\n");
        for (start, duration, rest) in [
            (0, 4_000, "launch,,,cuMemcpyHtoDAsync,#1,1"),
            (6_000, 100_000, "htod,7,1048576,copy,#1,"),
            (5_000, 4_000, "launch,,,cuLaunchKernel,#2,1"),
            (107_000, 5_000, "kernel,7,,short,#2,"),
            (10_000, 4_000, "launch,,,cuLaunchKernel,#3,1"),
            (113_000, 50_000, "kernel,7,,long,#3,"),
            (15_000, 150_000, "sync,7,,cuStreamSynchronize,#4,1"),
        ] {
            let rest = rest.replace('#', &(step + 1).to_string());
            text += &format!("{},{duration},{rest}\n", at + start);
        }
    }
    read_text(text.as_bytes(), &Options::default()).unwrap()
}

fn predict(trace: &Trace, fabric: Fabric) -> (Native, Prediction) {
    let native = Native::of(trace);
    let scenario = Scenario::of(Settings::of(native.with_rates(fabric)), Proxies::One);
    (native, Prediction::of(&Graph::of(trace), scenario))
}

#[test]
fn a_trace_says_what_its_machine_does() {
    let native = Native::of(&trace());
    assert_eq!(native.counts, [8, 6, 1]);
    // From the first one's begin to the last one's end.
    assert_eq!(native.steps, Some((2, 950_000.0)));
    assert_eq!(native.rates[0].unwrap().get(), 10_485_760_000);
    assert_eq!(native.rates[1], None);
    assert_eq!((native.classes[1], native.classes[3]), ((2, 10_000), (2, 100_000)));
    assert_eq!(native.share_below(2), (0.5, 10.0 / 110.0));
    let fabric = native.with_rates(Fabric::DXPU_68);
    assert_eq!(fabric.native_htod.get(), 10_485_760_000);
    assert_eq!(fabric.native_dtoh, Fabric::DXPU_68.native_dtoh);
}

#[test]
fn a_step_takes_longer_by_what_is_lost_in_it() {
    let trace = trace();
    let (native, prediction) = predict(&trace, Fabric::DXPU_68);
    // By hand: the copy at 140 tags x 128 B / 6.8 us, a round trip, two kernels' ends, and half
    // a round trip until the CPU sees it.
    let rate = 140.0 * 128.0 / 6.8e-6;
    let copy = 1_048_576.0 / rate * 1e9 - 100_000.0;
    let longer = copy + 3.0 * 5_600.0 + 2_800.0;
    let step = prediction.step_ns.unwrap();
    assert!((step - 950_000.0 - longer).abs() < 2.0, "{step} {longer}");
    assert!((native.performance(&prediction) - 100.0 * 950_000.0 / step).abs() < 1e-9);
    assert_eq!(prediction.lost_ns(), prediction.length_ns - native.length_ns);
    assert_eq!(prediction.names[0].1, "copy");
    assert!(prediction.hidden_percent().unwrap() < 1e-9);

    let (native, same) = predict(&trace, Fabric::NATIVE);
    assert_eq!((same.length_ns, same.hidden_percent()), (native.length_ns, None));
    assert!((native.performance(&same) - 100.0).abs() < 1e-9);
}

#[test]
fn a_step_ends_when_its_work_does() {
    // A CPU that marks three steps before the GPU has done the first, and waits at the end.
    let mut text = String::from("start_ns,duration_ns,kind,stream,name,correlation,thread\n");
    for at in 0..300_u64 {
        text += &format!("{},4000,launch,,cuLaunchKernel,{},1\n", at * 5_000, at + 1);
        text += &format!("{},20000,kernel,7,k,{},\n", at * 21_000 + 10_000, at + 1);
    }
    for step in 0..3 {
        text += &format!("{},500000,step,,ProfilerStep#{step},,1\n", step * 500_000);
    }
    text += "1500000,4812000,sync,7,cuStreamSynchronize,999,1\n";
    let trace = read_text(text.as_bytes(), &Options::default()).unwrap();
    let (native, prediction) = predict(&trace, Fabric::DXPU_68);
    assert_eq!(native.steps, Some((3, 6_309_000.0 / 3.0)));
    // Each kernel's end is longer by a round trip's difference, and none of it is hidden.
    let step = prediction.step_ns.unwrap();
    assert!((step - (6_309_000.0 + 300.0 * 5_600.0) / 3.0).abs() < 2.0, "{step}");
    let whole = 100.0 * native.length_ns as f64 / prediction.length_ns as f64;
    assert!((native.performance(&prediction) - whole).abs() < 0.1, "{whole}");
}

#[test]
fn text_and_json_say_the_same() {
    let trace = trace();
    let (native, prediction) = predict(&trace, Fabric::DXPU_68);
    let mut text = Vec::new();
    native.write_text(&mut text).unwrap();
    prediction.write_text(&native, 10, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let json = prediction.to_json(&native, 10);
    let performance = json["performance_percent"].as_f64().unwrap();
    for said in [
        &format!("{performance:.2} %"),
        "6 operations on 1 devices, 8 calls",
        "3.00 us to 10.00 us",
        "a step, of 2",
        "host-to-device copies",
        "copy",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!(json["top"][0]["name"], "copy");
    assert_eq!(json["lost_ns"], prediction.lost_ns());
    assert_eq!(json["causes"]["kernel"]["count"], 4);
    assert_eq!(native.to_json()["kernels"]["count"], 4);
}
