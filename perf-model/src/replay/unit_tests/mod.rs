//! Programs on the machine, and what the replay makes of their traces.

mod exports;
mod machine;

use std::path::Path;

use perf_core::{BytesPerSecond, Fabric, Graphs, Kind, KindSet, Nanos, Settings, Thousandths};
use proptest::prelude::*;

use super::*;
use crate::trace::{Options, Trace, read_file, read_text};
use machine::{Do, Machine, Written};

fn settings(rtt: u64) -> Settings {
    Settings::of(Fabric::DXPU_68.with_rtt(Nanos(rtt)).unwrap())
}

/// Everything costs more, also what has to be asked for.
fn all_on(rtt: u64) -> Settings {
    Settings { off: KindSet::EMPTY, ..settings(rtt) }
}

const NATIVE: u64 = 1_200;

fn read(text: &str) -> Trace {
    read_text(text.as_bytes(), &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn scenario(settings: Settings) -> Scenario {
    Scenario::of(settings, Proxies::One)
}

fn repeat(count: usize, steps: &[Do]) -> Vec<Do> {
    (0..count).flat_map(|_| steps.iter().copied()).collect()
}

/// Programs by what makes them slow.
#[rustfmt::skip]
fn programs() -> Vec<(&'static str, Vec<Vec<Do>>)> {
    use Do::*;
    let many_streams = |count: usize, time: u64| -> Vec<Do> {
        repeat(200, &(0..count).map(|stream| Kernel(stream, time)).collect::<Vec<_>>())
    };
    let one = |steps: Vec<Do>| vec![steps];
    vec![
        ("short kernels, the GPU never idle", one(repeat(3000, &[Kernel(1, 6_000)]))),
        ("very short kernels, the CPU is slower", one(repeat(2000, &[Work(6_000), Kernel(1, 2_000)]))),
        ("kernels as long as launches", one(repeat(2000, &[Work(1_000), Kernel(1, 5_000)]))),
        ("long kernels", one(repeat(500, &[Kernel(1, 250_000)]))),
        ("long kernels in a slow program", one(repeat(500, &[Work(300_000), Kernel(1, 250_000)]))),
        ("each kernel waited for", one(repeat(500, &[Kernel(1, 12_000), AwaitStream(1), Work(3_000)]))),
        ("steps of kernels and a wait", one(repeat(60, &[
            Kernel(1, 4_000), Kernel(1, 9_000), Memset(1), Kernel(1, 30_000), Kernel(1, 2_500),
            Kernel(1, 70_000), AwaitStream(1), Work(20_000)]))),
        ("two streams", one(many_streams(2, 20_000))),
        ("eight streams", one(many_streams(8, 60_000))),
        ("eight streams of short kernels", one(many_streams(8, 9_000))),
        ("streams that wait for each other", one(repeat(300, &[
            Kernel(1, 15_000), Record(1, 1), Wait(2, 1), Kernel(2, 12_000), Record(2, 2), Wait(1, 2)]))),
        ("streams that wait for each other, idle", one(repeat(300, &[
            Kernel(1, 8_000), Record(1, 1), Wait(2, 1), Kernel(2, 6_000), Record(2, 2), Wait(1, 2),
            Work(30_000)]))),
        ("large copies to the GPU", one(repeat(60, &[ToDevice(1, 8 << 20)]))),
        ("small copies to the GPU", one(repeat(800, &[ToDevice(1, 512), Kernel(1, 20_000)]))),
        ("copies from the GPU", one(repeat(100, &[Kernel(1, 30_000), FromDevice(1, 1 << 20)]))),
        ("pageable copies both ways", one(repeat(200, &[
            ToDevicePageable(1, 64 << 10), Kernel(1, 25_000), FromDevicePageable(1, 4096)]))),
        ("the next batch is copied meanwhile", one(repeat(60, &[
            ToDevice(2, 4 << 20), Record(2, 2), Kernel(1, 400_000), Kernel(1, 500_000), Wait(1, 2)]))),
        ("copies in two streams share an engine", one(repeat(80, &[
            ToDevice(1, 1 << 20), Kernel(1, 50_000), ToDevice(2, 1 << 20), Kernel(2, 50_000)]))),
        ("graphs", one(repeat(80, &[Graph(1, 40, 3_000), AwaitStream(1), Work(15_000)]))),
        ("graphs without waiting", one(repeat(200, &[Graph(1, 25, 4_000)]))),
        ("a full launch queue", one(repeat(4000, &[Kernel(1, 15_000)]))),
        ("a full launch queue before the CPU works", one(
            [repeat(3000, &[Kernel(1, 20_000)]), vec![Work(60_000_000), AwaitStream(1)]].concat())),
        ("events waited for", one(repeat(150, &[
            Kernel(1, 40_000), Record(1, 1), Kernel(1, 60_000), AwaitEvent(1), Work(10_000)]))),
        ("the device waited for", one(repeat(100, &[
            Kernel(1, 20_000), Kernel(2, 45_000), Memset(3), AwaitDevice, Work(25_000)]))),
        ("a result is read in each step", one(repeat(100, &[
            ToDevice(1, 300_000), Kernel(1, 90_000), Kernel(1, 5_000), Kernel(1, 5_000),
            FromDevicePageable(1, 4), Work(40_000)]))),
        ("two threads in turn", vec![
            repeat(30, &[Kernel(1, 9_000), Kernel(1, 9_000), AwaitStream(1), Work(500), HandOver]),
            repeat(30, &[Work(200_000), Kernel(1, 7_000), Kernel(1, 40_000), AwaitStream(1), HandOver]),
        ]),
    ]
}

#[test]
fn predicted_and_run_agree_within_three_percent() {
    let mut worst: Vec<(f64, String)> = Vec::new();
    for waits in [false, true] {
        let written = Written::with(waits);
        for (name, program) in programs() {
            let (native, text) = Machine::run(&program, &settings(NATIVE), written);
            let trace = read(&text);
            let graph = Graph::of(&trace);
            assert_eq!(graph.play(&scenario(settings(NATIVE))).length_ns(), trace.length_ns());
            assert_eq!(trace.length_ns(), native, "{name}");
            for fabric in [settings(4_900), settings(6_800), settings(19_000), all_on(6_800)] {
                let (run, _) = Machine::run(&program, &fabric, written);
                let predicted = graph.play(&scenario(fabric)).length_ns();
                let error = predicted as f64 / run as f64 - 1.0;
                let what = format!(
                    "{name} at {}: native {native}, run {run}, predicted {predicted}, {:+.2} %",
                    fabric.fabric.rtt,
                    error * 100.0
                );
                worst.push((error.abs(), what));
            }
        }
    }
    worst.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, what) in worst.iter().take(12) {
        eprintln!("{what}");
    }
    assert!(worst.len() >= 2 * 4 * 20);
    let beyond: Vec<_> = worst.iter().filter(|(error, _)| *error > 0.03).collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[test]
fn a_trace_hides_no_more_than_the_program_without_the_profiler() {
    let traced = Written { waits: true, slower: 2 };
    let (mut worst, mut shorter, mut plain) = (Vec::new(), 0, 0.0_f64);
    for (name, program) in programs() {
        let (native, _) = Machine::run(&program, &settings(NATIVE), Written::with(true));
        let (slow, text) = Machine::run(&program, &settings(NATIVE), traced);
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let Some(untraced) = graph.untraced(Nanos(native)) else {
            assert!(slow <= native, "{name}");
            continue;
        };
        shorter += 1;
        let graph = graph.of_untraced(&untraced);
        let length = untraced.trace.length_ns();
        assert!(length.abs_diff(native) * 100 <= native, "{name}: {length} instead of {native}");
        assert_eq!(graph.play(&scenario(settings(NATIVE))).length_ns(), length, "{name}");
        let (run, _) = Machine::run(&program, &settings(6_800), Written::with(true));
        let played = graph.play(&scenario(settings(6_800)));
        assert_eq!(played.lost().lost_ns(), played.length_ns() - length, "{name}");
        let error = played.length_ns() as f64 / run as f64 - 1.0;
        let as_traced = Graph::of(&trace).play(&scenario(settings(6_800))).length_ns();
        // What the trace says as it is: its own length, and what is not hidden there.
        plain = plain.max((as_traced as f64 / slow as f64 - run as f64 / native as f64).abs());
        worst.push((error.abs(), format!("{name}: run {run}, predicted {:+.2} %", error * 100.0)));
    }
    worst.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, what) in worst.iter().take(8) {
        eprintln!("{what}");
    }
    assert!(shorter >= 15, "{shorter}");
    let beyond: Vec<_> = worst.iter().filter(|(error, _)| *error > 0.01).collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    assert!(plain > 0.2, "without it no program is predicted wrong: {plain}");
}

#[test]
fn an_operation_that_begins_before_its_call_does_not_begin_before_the_trace() {
    // Clocks that do not agree: the second kernel begins 600 ns before it is asked for. The wait
    // before that takes longer with a fabric.
    let text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n\
                0,50,launch,,cuLaunchKernel,1,1\n\
                10,50,kernel,8,j,1,\n\
                60,40,sync,8,cuStreamSynchronize,2,1\n\
                700,4000,launch,,cuLaunchKernel,3,1\n\
                100,50000,kernel,7,k,3,\n\
                5000,70000,sync,7,cuStreamSynchronize,4,1\n";
    let trace = read(text);
    let graph = Graph::of(&trace);
    let untraced = graph.untraced(Nanos(trace.measure() * 9 / 10)).unwrap();
    let graph = graph.of_untraced(&untraced);
    let played = graph.play(&scenario(all_on(6_800)));
    assert_eq!(played.lost().lost_ns(), played.length_ns() - untraced.trace.length_ns());
}

#[test]
fn what_the_shim_costs_the_cpu_shows_where_the_cpu_is_waited_for() {
    // The CPU needs 6 us and more for each kernel: 4 us more are seen, and no fabric's are.
    let slow = vec![repeat(500, &[Do::Work(20_000), Do::Kernel(1, 2_000)])];
    let busy = vec![repeat(500, &[Do::Kernel(1, 50_000)])];
    for (program, seen) in [(slow, 500 * 4_000), (busy, 0)] {
        let (_, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let fabric = scenario(settings(6_800));
        let under = Scenario { putting: Nanos(4_000), ..fabric };
        let [plain, under] = [fabric, under].map(|it| graph.play(&it).length_ns());
        assert!((under - plain).abs_diff(seen) * 100 <= seen + 1_000_000, "{plain} {under}");
        let both = graph.play(&Scenario { putting: Nanos(4_000), ..fabric });
        let lost = both.lost();
        assert_eq!(lost.lost_ns(), under - trace.length_ns());
        let putting = lost.causes[&Cause::Putting];
        assert_eq!((putting.count, putting.added_ns), (500, 500 * 4_000));
        assert!(putting.lost_ns.abs_diff(seen) * 100 <= seen + 1_000_000, "{putting:?}");
        // Without delays nothing is put anywhere.
        let native = Scenario { putting: Nanos(4_000), ..scenario(settings(NATIVE)) };
        assert_eq!(graph.play(&native).length_ns(), trace.length_ns());
    }
}

#[test]
fn only_calls_that_put_delays_into_streams_cost_the_shims_launches() {
    let node = |settings: Settings| Settings { graphs: Graphs::Node, ..settings };
    for (what, program, settings, puts) in [
        ("copies that wait", repeat(50, &[Do::ToDevicePageable(1, 65_537)]), settings(6_800), 0),
        ("staged copies", repeat(50, &[Do::ToDevicePageable(1, 65_536)]), settings(6_800), 50),
        ("copies that do not", repeat(50, &[Do::ToDevice(1, 4_096)]), settings(6_800), 50),
        ("graphs", repeat(50, &[Do::Graph(1, 20, 3_000)]), settings(6_800), 50),
        ("captured graphs", repeat(50, &[Do::Graph(1, 20, 3_000)]), node(settings(6_800)), 0),
    ] {
        let (_, text) = Machine::run(&[program], &self::settings(NATIVE), Written::with(true));
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let under = Scenario { putting: Nanos(4_000), ..scenario(settings) };
        let lost = graph.play(&under).lost();
        let added = lost.causes.get(&Cause::Putting).map_or(0, |it| it.added_ns);
        assert_eq!(added, puts * 4_000, "{what}");
    }
}

#[test]
fn a_copy_that_is_staged_at_once_holds_up_its_call_no_more_than_a_pinned_one() {
    // Its end comes before the call returns, which has nothing to do with it.
    let played = |memory: &str, bytes: u64, putting| {
        let mut text =
            "start_ns,duration_ns,kind,stream,bytes,name,correlation,thread,memory\n".to_owned();
        for call in 0..200 {
            let start = call * 20_000;
            text += &format!("{start},10000,call,,,cuMemcpyHtoDAsync,{},1,\n", call + 1);
            text += &format!("{},3000,htod,7,{bytes},c,{},,{memory}\n", start + 5_000, call + 1);
        }
        let trace = read(&text);
        let scenario = Scenario { putting: Nanos(putting), ..scenario(settings(6_800)) };
        Graph::of(&trace).play(&scenario).length_ns()
    };
    for putting in [0, 3_500] {
        let [pageable, pinned] = ["pageable", "pinned"].map(|it| played(it, 4_096, putting));
        assert_eq!(pageable, pinned, "{putting}");
        let [pageable, pinned] = ["pageable", "pinned"].map(|it| played(it, 65_537, putting));
        assert!(pageable > pinned, "{putting}");
    }
}

#[test]
fn a_synchronous_copy_that_is_staged_waits_for_its_turn_and_sees_it_late() {
    let fabric = settings(6_800);
    let seen = fabric.extra(Kind::Synchronise, 0).0;
    assert!(seen > 0);
    let later = |kernel: &str, copied: u64, returned: u64| {
        let text = format!(
            "start_ns,duration_ns,kind,stream,bytes,name,correlation,thread,memory\n\
             0,3000,launch,,,cuLaunchKernel,1,1,\n6000,{kernel},,k,1,,\n\
             14000,{},call,,,cuMemcpyHtoD,2,1,\n{copied},3000,htod,7,4096,c,2,,pageable\n",
            returned - 14_000
        );
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let played = graph.play(&scenario(fabric));
        played.calls[1].end - trace.calls[1].end()
    };
    // A kernel of 50 us, whose end the call waits for; in another stream it is the kernel's own end.
    assert_eq!(later("50000,kernel,7", 57_000, 64_000), 5_600 + seen);
    assert_eq!(later("50000,kernel,8", 57_000, 64_000), seen);
    // One that had ended before the call is nothing to wait for.
    assert_eq!(later("2000,kernel,7", 20_000, 24_000), 0);
    // Nor is the driver's own way, however long it was.
    assert_eq!(later("2000,kernel,7", 29_200, 33_000), 0);
}

/// What another thread saw end meanwhile does not hide it.
#[test]
fn a_staged_copy_sees_late_what_it_waited_for_beside_a_thread_that_was_blocked() {
    let fabric = settings(6_800);
    let text = "start_ns,duration_ns,kind,stream,bytes,name,correlation,thread,memory\n\
                0,3000,launch,,,cuLaunchKernel,1,1,\n6000,150000,kernel,8,,k,1,,\n\
                14000,150000,call,,,cuMemcpyHtoD,2,1,\n157000,3000,htod,7,4096,c,2,,pageable\n\
                50000,112000,launch,,,cuLaunchKernel,3,2,\n165000,1000,kernel,9,,k,3,,\n";
    let trace = read(text);
    let graph = Graph::of(&trace);
    let played = graph.play(&scenario(fabric));
    let copy = trace.calls.iter().position(|call| call.start == 14_000).unwrap();
    let later = played.calls[copy].end - trace.calls[copy].end();
    assert!(later >= fabric.extra(Kind::Synchronise, 0).0, "{later}");
}

#[test]
fn a_graph_that_ends_with_a_copy_between_gpus_costs_its_launch() {
    let text = "start_ns,duration_ns,kind,stream,name,correlation,thread,bytes\n\
                0,3000,launch,,cuGraphLaunch,1,1,\n\
                5000,9000,kernel,7,k,1,,\n\
                15000,9000,peer,7,,1,,4096\n";
    let trace = read(text);
    let graph = Graph::of(&trace);
    let by_node = Settings { graphs: Graphs::Node, ..settings(6_800) };
    let peer = Fabric::DXPU_68.peer_extra(4_096).0;
    for (settings, proxies, longer) in [
        (settings(6_800), Proxies::One, 5_600),
        (settings(6_800), Proxies::Each, 5_600),
        (by_node, Proxies::One, 5_600),
        (by_node, Proxies::Each, 5_600 + peer),
    ] {
        let played = graph.play(&Scenario::of(settings, proxies));
        assert_eq!(played.length_ns() - trace.length_ns(), longer, "{proxies:?}");
    }
}

#[test]
fn a_wait_for_a_device_is_for_what_another_thread_asked_for_during_the_last_wait() {
    let event = |category: &str, name: &str, thread: u32, times: [u32; 2], arguments: &str| {
        let [start, duration] = times;
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 9, "tid": {thread},
                "ts": {start}, "dur": {duration}, "args": {{{arguments}}}}}"#
        )
    };
    let on_stream =
        |correlation| format!(r#""device": 0, "stream": 7, "correlation": {correlation}"#);
    let call = |name, thread, times, correlation: u32| {
        event("cuda_runtime", name, thread, times, &format!(r#""correlation": {correlation}"#))
    };
    let wait = |times, correlation: u32| {
        let device = format!(r#""device": 0, "correlation": {correlation}"#);
        event("cuda_sync", "Context Sync", 0, times, &device)
    };
    let events = [
        call("cudaLaunchKernel", 1, [80, 3], 1),
        event("kernel", "first", 0, [90, 108], &on_stream(1)),
        call("cudaDeviceSynchronize", 1, [100, 100], 2),
        wait([100, 100], 2),
        call("cudaLaunchKernel", 2, [150, 3], 3),
        event("kernel", "second", 0, [199, 100], &on_stream(3)),
        call("cudaDeviceSynchronize", 1, [210, 90], 4),
        wait([210, 90], 4),
    ];
    let trace = read(&format!(r#"{{"traceEvents": [{}]}}"#, events.join(",")));
    let played = Graph::of(&trace).play(&scenario(settings(6_800))).length_ns();
    // The end of both kernels, and that the second wait sees it.
    assert_eq!(played - trace.length_ns(), 2 * 5_600 + 2_800);
}

#[test]
fn a_wait_for_what_nothing_was_asked_of_waits_for_nothing() {
    // A kernel of 10 us in stream 7 ends while the call goes on, which has nothing to do with it.
    let after = |wait: &str, duration: u32| {
        let text = format!(
            "start_ns,duration_ns,kind,device,stream,name,correlation,thread,event_stream,event_correlation\n\
             0,3000,launch,,,cuLaunchKernel,1,1,,\n\
             9000,{duration},kernel,0,7,k,1,,,\n\
             4000,1000,call,,,cuEventRecord,2,1,,\n\
             18000,{},{wait}\n",
            duration - 9_000 + 3_000
        );
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let played = graph.play(&scenario(settings(6_800)));
        let last = trace.calls.len() - 1;
        played.calls[last].end - trace.calls[last].end()
    };
    for wait in [
        "sync,0,8,cuStreamSynchronize,3,1,,",
        "sync,1,,cuCtxSynchronize,3,1,,",
        "sync,0,,cuEventSynchronize,3,1,8,2",
    ] {
        assert_eq!(after(wait, 10_000), 0, "{wait}");
    }
    // Where something was asked for, or nobody says where, its end is seen later.
    for wait in ["sync,0,7,cuStreamSynchronize,3,1,,", "sync,,,cuCtxSynchronize,3,1,,"] {
        assert_eq!(after(wait, 10_000), 5_600 + 2_800, "{wait}");
    }
    // A call that takes 0.2 ms has waited, though the stream it names is another.
    assert_eq!(after("sync,0,8,cuStreamSynchronize,3,1,,", 200_000), 5_600 + 2_800);
}

#[test]
fn a_cpu_that_changes_nothing_is_not_made_faster() {
    // The GPU is never idle, and its kernels are longer under the profiler: no CPU makes up for that.
    let program = vec![repeat(500, &[Do::Kernel(1, 50_000)])];
    let (native, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
    let trace = read(&text);
    let untraced = Graph::of(&trace).untraced(Nanos(native / 100 * 98)).unwrap();
    assert!(untraced.left > 0.5, "{}", untraced.left);
    assert!(untraced.trace.length_ns() >= native / 1_000 * 990);
}

#[test]
fn a_step_is_as_long_as_the_gpu_works_for_it() {
    // The CPU marks steps of 1 ms, and is ahead of a GPU that takes 2 ms for each.
    let mut text = "start_ns,duration_ns,kind,stream,name,correlation,thread\n".to_owned();
    for at in 0..10_u64 {
        text += &format!("{},1000000,step,,s,,1\n", at * 1_000_000);
        text += &format!("{},10000,launch,,cuLaunchKernel,{at},1\n", at * 1_000_000);
        text += &format!("{},2000000,kernel,7,k,{at},\n", at * 2_000_000 + 10_000);
    }
    assert_eq!(read(&text).measure(), 2_001_000);
}

#[test]
fn what_is_lost_adds_up_to_what_the_whole_takes_longer() {
    for (name, program) in programs() {
        let (native, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let played = graph.play(&scenario(all_on(6_800)));
        let lost = played.lost();
        assert_eq!(lost.lost_ns(), played.length_ns() - native, "{name}");
        let by_name: u64 = lost.names.values().map(|lost| lost.lost_ns).sum();
        assert_eq!(by_name, lost.lost_ns(), "{name}");
        for (cause, lost) in &lost.causes {
            assert!(lost.lost_ns <= lost.added_ns, "{name}: {cause:?} {lost:?}");
        }
    }
}

#[test]
fn what_is_behind_a_busy_gpu_or_a_slow_cpu_is_hidden() {
    // The CPU needs 50 us for each kernel of 10 us: 5.6 us more are nothing.
    let slow = vec![repeat(200, &[Do::Work(46_000), Do::Kernel(1, 10_000)])];
    // Kernels one after the other pay for each end; a copy beside them pays nothing.
    let busy = vec![repeat(200, &[Do::Kernel(1, 100_000), Do::ToDevice(2, 1000)])];
    for (program, kind, share) in [(slow, Kind::Kernel, 0.01), (busy, Kind::HostToDevice, 0.0)] {
        let (_, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let lost = graph.play(&scenario(settings(6_800))).lost();
        let of_kind = lost.causes[&Cause::Kind(kind)];
        assert_eq!(of_kind.count, 200);
        assert!(of_kind.lost_ns as f64 <= share * of_kind.added_ns as f64, "{of_kind:?}");
    }
}

/// The same program on several GPUs, each of its own process.
fn on_gpus(text: &str, count: usize) -> String {
    let mut lines = text.lines();
    let mut all = format!("{},device,process\n", lines.next().unwrap());
    for line in lines {
        for gpu in 0..count {
            all += &format!("{line},{gpu},{gpu}\n");
        }
    }
    all
}

#[test]
fn several_gpus_share_one_proxy() {
    let program = vec![repeat(40, &[Do::ToDevice(1, 4 << 20), Do::Kernel(1, 2_000_000)])];
    let (_, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
    let lengths: Vec<u64> = [1, 2, 4, 8]
        .into_iter()
        .map(|gpus| {
            let trace = read(&on_gpus(&text, gpus));
            let graph = Graph::of(&trace);
            let shared = graph.play(&scenario(settings(6_800)));
            let own = graph.play(&Scenario::of(settings(6_800), Proxies::Each));
            let native = graph.play(&scenario(settings(NATIVE)));
            assert_eq!(native.length_ns(), trace.length_ns());
            assert!(own.length_ns() <= shared.length_ns());
            if gpus == 8 {
                let waits = shared.lost().causes[&Cause::SharedProxy];
                assert!(waits.added_ns > 0, "{waits:?}");
                assert_eq!(shared.lost().lost_ns(), shared.length_ns() - trace.length_ns());
            }
            shared.length_ns()
        })
        .collect();
    assert!(lengths.is_sorted(), "{lengths:?}");
    // Eight ask for more than the proxy carries: it is all that counts.
    let all = Fabric::DXPU_68.fabric_rate.time(8 * 40 * (4 << 20)).0;
    assert!(lengths[3] > all, "{lengths:?} {all}");
}

#[test]
fn a_faster_fabric_and_fewer_round_trips_cost_less() {
    let (_, program) = programs().swap_remove(6);
    let (_, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
    let trace = read(&text);
    let graph = Graph::of(&trace);
    let length = |settings| graph.play(&scenario(settings)).length_ns();
    let base = settings(6_800);
    let fewer = Fabric { kernel_round_trips: Thousandths(500), ..base.fabric };
    assert!(length(Settings::of(fewer)) < length(base));
    assert!(length(settings(4_900)) < length(base));
    assert!(length(all_on(6_800)) >= length(base));
}

#[test]
fn a_trace_without_calls_hides_nothing() {
    let text = "start_ns,duration_ns,kind,stream,name\n\
                0,10000,kernel,1,a\n11000,10000,kernel,1,b\n50000,10000,kernel,2,c\n";
    let trace = read(text);
    let graph = Graph::of(&trace);
    let played = graph.play(&scenario(settings(6_800)));
    assert_eq!(played.length_ns(), 60_000 + 3 * 5_600);
    assert!(graph.remarks[0].contains("Of 3 of 3 operations"), "{:?}", graph.remarks);
}

#[test]
fn times_between_calls_move_with_the_calls() {
    let program = vec![repeat(10, &[Do::Kernel(1, 50_000), Do::AwaitStream(1), Do::Work(10_000)])];
    let (native, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
    let trace = read(&text);
    let graph = Graph::of(&trace);
    // All of one thread.
    let thread: Vec<u32> = (0..).take(trace.calls.len()).collect();
    let played = graph.play(&scenario(settings(6_800)));
    assert_eq!(played.time_in_thread(&thread, 0), 0);
    assert_eq!(played.time_in_thread(&[], 7), 7);
    let added = played.length_ns() - trace.length_ns();
    assert_eq!(played.time_in_thread(&thread, native), native + added);
    let middle = trace.calls[9].end() + 3_000;
    assert_eq!(played.time_in_thread(&thread, middle) - middle, added / 2);
}

#[test]
fn real_traces_are_played_where_there_are_some() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    for name in ["kineto-alexnet.json.gz", "nsys-h100-2gpu-1s.sqlite"] {
        let path = folder.join(name);
        if !path.exists() {
            eprintln!("SKIPPED: there is no {}", path.display());
            continue;
        }
        let trace = read_file(&path, &Options::default()).unwrap();
        let graph = Graph::of(&trace);
        assert_eq!(graph.play(&scenario(settings(NATIVE))).length_ns(), trace.length_ns());
        let played = graph.play(&scenario(settings(6_800)));
        let lost = played.lost();
        assert_eq!(lost.lost_ns(), played.length_ns() - trace.length_ns(), "{name}");
        eprintln!("{name}: {} -> {}: {:?}", trace.length_ns(), played.length_ns(), lost.causes);
    }
}

proptest! {
    /// Whatever a trace has in it: without a fabric it takes what it took, and with one more.
    #[test]
    fn any_trace_plays_as_it_was(
        rows in prop::collection::vec(
            (0_i64..400_000, 0_i64..150_000, 0_usize..9, 0_i64..4, 0_u64..30, 0_i64..3, 0_i64..2),
            1..120),
        rate in 1_000_000_000_u64..20_000_000_000,
    ) {
        let kinds =
            ["kernel", "htod", "dtoh", "memset", "launch", "sync", "call", "peer", "callback"];
        let names = ["cuStreamWaitEvent", "cuMemcpyDtoH", "cuGraphLaunch", "cuLaunchKernel"];
        let mut text =
            String::from("start_ns,duration_ns,kind,stream,correlation,thread,device,bytes,name\n");
        for (start, duration, kind, stream, correlation, thread, device) in rows {
            let (kind, name) = (kinds[kind], names[start as usize % names.len()]);
            text += &format!(
                "{start},{duration},{kind},{stream},{correlation},{thread},{device},{duration},{name}\n"
            );
        }
        let trace = read(&text);
        let graph = Graph::of(&trace);
        let played = graph.play(&scenario(settings(NATIVE)));
        for (operation, times) in trace.operations.iter().zip(&played.operations) {
            prop_assert_eq!((operation.start, operation.end()), (times.start, times.end));
        }
        for (call, times) in trace.calls.iter().zip(&played.calls) {
            prop_assert_eq!((call.start, call.end()), (times.start, times.end));
        }
        let fabric = Fabric {
            fabric_rate: BytesPerSecond::new(rate).unwrap(),
            ..all_on(6_800).fabric
        };
        for proxies in [Proxies::One, Proxies::Each] {
            let settings = Settings { off: KindSet::EMPTY, ..Settings::of(fabric) };
            let played = graph.play(&Scenario::of(settings, proxies));
            let longer = played.length_ns() - trace.length_ns();
            prop_assert_eq!(played.lost().lost_ns(), longer);
            for (operation, times) in trace.operations.iter().zip(&played.operations) {
                prop_assert!(operation.start <= times.start && operation.end() <= times.end);
            }
        }
    }
}
