//! Reports of runs that were never run: what is in the ledger is in the report.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_core::{
    Fabric, Fact, Histogram, Kind, Ledger, Nanos, Proxies, Range, Row, Settings, Text, WORDS,
};

use super::{Bars, Curve, Point, Report, advise};

/// A ledger's file as the shim would leave it.
fn ledger(pid: u64, fill: impl Fn(&Ledger<'_>)) -> Vec<u8> {
    let words: Box<[AtomicU64; WORDS]> = Ledger::words(&vec![0; WORDS * 8]).unwrap();
    let ledger = Ledger::begin(&words);
    ledger.set_fact(Fact::Pid, pid);
    fill(&ledger);
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

/// A run of one second: 40,000 short kernels, 100 large copies, a name that HTML could trip over.
pub(crate) fn report() -> Report {
    let settings = Settings::of(Fabric::DXPU_68);
    let folder = tempfile::tempdir().unwrap();
    let bytes = ledger(77, |ledger| {
        ledger.set_text(Text::Program, "<script>alert(1)</script>");
        ledger.set_text(Text::Device, "Stand-in");
        ledger.set_text(Text::NoPush, "the driver maps no GPU memory");
        let row =
            |calls, bytes, added| Row { calls, operations: calls, bytes, delays: calls, added };
        ledger.add(Kind::Kernel, row(40_000, 0, 40_000 * 5_600));
        let copy = settings.extra(Kind::HostToDevice, 10_000_000).0;
        ledger.add(Kind::HostToDevice, row(100, 1_000_000_000, 100 * copy));
        // The launches of graphs brought some that nobody put.
        ledger.set_fact(Fact::GpuDelays, 90_100);
        ledger.set_fact(Fact::PutDelays, 40_100);
        ledger.set_fact(Fact::LostDelays, 3);
        ledger.set_fact(Fact::PuttingNanos, 120_300_000);
        ledger.set_fact(Fact::KernelsUnmeasured, 12);
        for nanos in [2_000, 3_000, 4_000, 300_000] {
            ledger.add_kernel(nanos);
        }
    });
    fs::write(folder.path().join("77.ledger"), bytes).unwrap();
    fs::write(folder.path().join("5.ledger"), ledger(5, |_| {})).unwrap();
    fs::write(folder.path().join("notes.txt"), "not a ledger").unwrap();
    let (processes, lost) = Report::read_processes(folder.path());
    Report {
        command: vec!["python".to_owned(), "a <b> & \"c\".py".to_owned()],
        settings,
        profile: "dxpu-68".to_owned(),
        wall: Nanos(1_000_000_000),
        ended: None,
        processes,
        lost,
    }
}

fn text(report: &Report) -> String {
    let mut text = Vec::new();
    report.write_text(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn copies_between_gpus_say_which_proxies_these_are_behind() {
    let mut report = report();
    assert!(!text(&report).contains("--proxies"));
    report.processes[0].rows[Kind::PeerToPeer.number()].operations = 1;
    for (proxies, says) in [(Proxies::One, "behind one proxy"), (Proxies::Each, "of its own")] {
        report.settings.proxies = proxies;
        assert!(text(&report).contains(says) && report.to_html().contains(says), "{proxies:?}");
    }
}

#[test]
fn the_text_says_what_was_counted() {
    let report = report();
    assert_eq!(report.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [5, 77]);
    let text = text(&report);
    for part in [
        "6.80 us in the fabric",
        "40000  ",
        "224.00 ms",
        "22.4 %",
        "4 measured, 77.25 us on average; 75 % by number and 3 % by time",
        "12 more were too short",
        "120.30 ms of a CPU (12.0 %) went into putting delays into streams, 3.00 us each",
        "--putting 3000ns",
        "push copies are not available here: the driver maps no GPU memory",
        "delays that had no place and were left out: 3",
        "Launch fewer and longer kernels",
        "--push-copies",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn what_putting_costs_is_one_processs_and_not_the_sum_of_all() {
    let mut report = report();
    let ranks = vec![report.processes[1].clone(); 8];
    report.processes = ranks;
    assert!(text(&report).contains("120.30 ms of a CPU (12.0 %)"));
    assert_eq!(report.to_json()["putting_ns"], 8 * 120_300_000_u64);
}

#[test]
fn kernels_that_could_not_be_measured_are_told_where_none_was() {
    let mut report = report();
    report.processes.iter_mut().for_each(|process| process.kernels = Histogram::default());
    for said in [text(&report), report.to_html()] {
        assert!(said.contains("none measured; 12 more were too short"), "{said}");
    }
}

#[test]
fn what_is_outside_ranges_is_no_part_of_the_run() {
    let settings = Settings { range: Range::Profiler, ..report().settings };
    let mut report = Report { settings, ..report() };
    assert!(text(&report).contains("nothing of it was delayed or counted: no process called"));
    // One that ended before anything was waited for, and one that did not.
    report.processes[1].ranges_begun = 1;
    assert!(text(&report).contains("and 0 ns of that between cuProfilerStart"));
    report.processes[1].ranges = Nanos(500_000_000);
    let text = text(&report);
    for part in ["ran 1.00 s, and 500.00 ms of that between cuProfilerStart", "44.8 %"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let page = report.to_html();
    assert!(page.contains("It ran 1.00 s, and 500.00 ms of that") && page.contains("44.8 %"));
    let json = report.to_json();
    assert_eq!(json["wall_ns"], 1_000_000_000);
    assert_eq!(json["counted_ns"], 500_000_000);
}

#[test]
fn a_range_that_the_program_ended_in_counts_as_far_as_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = ledger(7, |ledger| {
        ledger.set_fact(Fact::RangeNanos, 1_000);
        ledger.set_fact(Fact::Ranges, 2);
        ledger.set_fact(Fact::RangeBegun, 50_000);
        ledger.set_fact(Fact::LastCall, 50_300);
    });
    fs::write(folder.path().join("7.ledger"), bytes).unwrap();
    let (processes, lost) = Report::read_processes(folder.path());
    assert_eq!((processes[0].ranges, processes[0].ranges_begun), (Nanos(1_300), 2));
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn the_advice_that_saves_most_comes_first_and_saves_no_more_than_was_added() {
    let report = report();
    let advice = advise(&report);
    assert_eq!(advice.len(), 2, "{advice:?}");
    assert!(advice[0].saves >= advice[1].saves);
    assert!(advice.iter().all(|advice| advice.saves <= report.added()));
    let copies = report.row(Kind::HostToDevice).added;
    assert!(advice[0].what.contains("CPU write") && advice[0].saves.0 <= copies);
}

#[test]
fn copies_that_were_pushed_are_not_advised_to_be() {
    let mut report = report();
    let asks = |report: &Report, what| advise(report).iter().any(|it| it.what.contains(what));
    assert!(asks(&report, "--push-copies"));
    // A tenth is left to the GPU's reads, and then nothing.
    let all = report.row(Kind::HostToDevice);
    let part = |tenths| Row {
        calls: all.calls * tenths / 10,
        operations: all.operations * tenths / 10,
        bytes: all.bytes * tenths / 10,
        delays: all.delays * tenths / 10,
        added: all.added * tenths / 10,
    };
    report.processes[1].pushed = part(9);
    let left = advise(&report).into_iter().find(|it| it.what.contains("--push-copies")).unwrap();
    assert!(left.because.contains("100.0 MB go to the GPU as its reads"), "{left:?}");
    report.processes[1].pushed = part(10);
    assert!(!asks(&report, "--push-copies") && !asks(&report, "less often"));
}

#[test]
fn a_copy_that_was_pushed_waits_for_no_round_trip() {
    let mut report = report();
    // Ten thousand copies to the GPU, of which it read few.
    let trip = report.settings.extra(Kind::HostToDevice, 1).0;
    let row = |copies, trip| Row {
        calls: copies,
        operations: copies,
        bytes: copies * 4_000,
        delays: copies,
        added: copies * trip,
    };
    let pushed = row(9_000, trip / 2);
    let reads = row(1_000, trip);
    let all = &mut report.processes[1].rows[Kind::HostToDevice.number()];
    *all = Row { added: pushed.added + reads.added, ..row(10_000, 0) };
    report.processes[1].pushed = pushed;
    let advice = advise(&report);
    let small = advice.iter().find(|it| it.what.contains("less often")).unwrap();
    assert!(small.because.starts_with("1000 copies to the GPU of 4000 B"), "{small:?}");
    assert_eq!(small.saves.0, reads.added);
}

#[test]
fn only_waits_that_were_late_are_told_of() {
    let mut report = report();
    // Synchronous copies wait without a call that only waits; a wait for nothing is not late.
    report.processes[1].rows[Kind::Synchronise.number()] =
        Row { calls: 2, operations: 2, bytes: 0, delays: 5_300, added: 5_300 * 2_800 };
    let advice = advise(&report);
    let wait = advice.iter().find(|advice| advice.what.contains("Wait less often")).unwrap();
    assert!(wait.because.starts_with("5300 times the CPU waited"), "{wait:?}");
}

#[test]
fn memory_that_is_not_pinned_is_advised_against() {
    let mut report = report();
    assert!(!advise(&report).iter().any(|advice| advice.what.contains("Pin")));
    report.processes[1].pageable = 500_000_000;
    let advice = advise(&report);
    let pin = advice.iter().find(|advice| advice.what.contains("pin_memory")).unwrap();
    assert!(pin.because.contains("500.0 MB"), "{pin:?}");
    assert_eq!(pin.saves.0, report.row(Kind::HostToDevice).added / 2);
}

#[test]
fn without_a_fabric_there_is_nothing_to_advise() {
    let mut report = report();
    report.settings = Settings::of(Fabric::DXPU_68.with_rtt(Nanos(1_200)).unwrap());
    for process in &mut report.processes {
        for row in &mut process.rows {
            row.added = 0;
            row.delays = 0;
        }
    }
    assert_eq!(advise(&report), []);
}

#[test]
fn a_program_without_cuda_is_said_to_be_one() {
    let report = Report { processes: Vec::new(), ..report() };
    assert!(text(&report).contains("no process called CUDA's driver"));
    assert!(report.to_html().contains("No process called CUDA"));
    assert_eq!(report.to_json()["added_ns"], 0);
}

#[test]
fn json_has_the_same_numbers() {
    let json = report().to_json();
    assert_eq!(json["kinds"]["kernel"]["calls"], 40_000);
    assert_eq!(json["kinds"]["htod"]["bytes"], 1_000_000_000);
    assert_eq!(json["kernels"]["count"], 4);
    assert_eq!(json["processes"][1]["delays_lost"], 3);
    assert_eq!(json["advice"].as_array().unwrap().len(), 2);
}

#[test]
fn the_page_takes_no_name_for_markup_and_fetches_nothing() {
    let html = report().to_html();
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    assert!(html.contains("a &lt;b&gt; &amp; &quot;c&quot;.py"));
    assert!(html.contains("<svg") && html.contains("by number"));
    for fetched in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(fetched), "{fetched}");
    }
}

#[test]
fn the_shares_of_the_bars_add_up() {
    let svg = Bars::of(&report().kernels()).unwrap().svg("bars");
    for class in ["number", "time"] {
        let sum: f64 = svg
            .split(&format!("<rect class=\"{class}\""))
            .skip(1)
            .map(|bar| {
                let title = bar.split("<title>").nth(1).unwrap();
                title.split(" %").next().unwrap().parse::<f64>().unwrap()
            })
            .sum();
        assert!((sum - 100.0).abs() < 0.5, "{class}: {sum}");
    }
    assert!(Bars::of(&perf_core::Histogram::default()).is_none());
}

#[test]
fn a_curve_has_a_point_for_each_step() {
    let point = |x, y| Point { x, y, interval: (y - 0.01, y + 0.01) };
    let points = vec![point(1.2, 1.0), point(8.0, 0.9), point(19.0, 0.8)];
    let svg = Curve { points, x_title: "us".to_owned(), level: 0.9 }.svg("curve");
    assert_eq!(svg.matches("<circle").count(), 3);
    let one = Curve { points: vec![point(0.0, 1.0)], x_title: String::new(), level: 0.9 };
    assert!(!one.svg("one").contains("NaN"));
}

#[test]
fn a_ledger_that_is_none_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("9.ledger"), "short").unwrap();
    fs::write(folder.path().join("5.ledger"), ledger(5, |_| {})).unwrap();
    let (processes, lost) = Report::read_processes(folder.path());
    assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [5]);
    assert!(lost[0].contains("9.ledger") && lost[0].contains("has 5 bytes"), "{lost:?}");
    let (processes, lost) = Report::read_processes(&folder.path().join("gone"));
    assert!(processes.is_empty() && lost[0].contains("gone"), "{lost:?}");
    let report = Report { lost, ..report() };
    assert!(text(&report).contains("counts are lost: the folder of ledgers"));
}
