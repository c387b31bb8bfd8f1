//! The paper's numbers, settings there and back, ledgers of any bytes.

use core::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn micros(value: f64) -> Nanos {
    Nanos((value * 1e3).round() as u64)
}

#[test]
fn equation_1_gives_the_papers_throughputs() {
    let gb = |fabric: Fabric| fabric.read_throughput(fabric.rtt).giga();
    assert!((gb(Fabric::DXPU_68) - 2.64).abs() < 0.005, "{}", gb(Fabric::DXPU_68));
    assert!((gb(Fabric::DXPU_49) - 3.66).abs() < 0.005, "{}", gb(Fabric::DXPU_49));
    assert_eq!(Fabric::DXPU_68.htod_rate(), Fabric::DXPU_68.read_throughput(micros(6.8)));
    // Writes wait for nothing.
    assert_eq!(Fabric::DXPU_68.dtoh_rate().get(), 11_600_000_000);
}

#[test]
fn small_operations_cost_what_the_paper_says() {
    let fabric = Fabric::DXPU_68;
    assert_eq!(fabric.delta(), micros(5.6));
    assert_eq!(fabric.kernel_extra(), micros(5.6));
    assert_eq!(fabric.memset_extra(), micros(5.6));
    assert_eq!(fabric.htod_extra(4), Nanos(5_602));
    assert_eq!(fabric.dtoh_extra(4), micros(2.8));
    assert_eq!(fabric.htod_extra(0), Nanos::ZERO);
}

#[test]
fn without_a_fabric_nothing_costs_more() {
    let native = Fabric::DXPU_68.with_rtt(micros(1.2)).unwrap();
    let settings = Settings { off: KindSet::EMPTY, ..Settings::of(native) };
    for kind in Kind::ALL {
        assert_eq!(settings.extra(kind, 1 << 30), Nanos::ZERO, "{kind:?}");
    }
    assert_eq!(
        Fabric::DXPU_68.with_rtt(Nanos(1_199)),
        Err(FabricError::ShorterThanNative { rtt: Nanos(1_199), native: Nanos(1_200) })
    );
}

#[test]
fn a_kind_that_is_off_costs_nothing_and_the_others_do() {
    let settings = Settings::of(Fabric::DXPU_68);
    let off = Settings { off: KindSet::EMPTY.with(Kind::Memset), ..settings };
    assert_eq!(off.extra(Kind::Memset, 64), Nanos::ZERO);
    assert_eq!(off.extra(Kind::Kernel, 0), micros(5.6));
    assert_eq!(settings.extra(Kind::Doorbell, 0), Nanos::ZERO);
}

#[test]
fn writes_of_the_cpu_are_as_fast_as_they_were_measured() {
    let push = Fabric { push: Some(Fabric::DXPU_PUSH), ..Fabric::DXPU_68 };
    assert_eq!(push.htod_rate(), Fabric::DXPU_PUSH);
    assert!(push.htod_extra(40_000_000) < Fabric::DXPU_68.htod_extra(40_000_000));
    assert_eq!(push.htod_extra(4), micros(2.8));
    // What the GPU reads itself nobody pushes.
    let (pushed, read) = (Settings::of(push), Settings::of(Fabric::DXPU_68));
    let all = |it: Settings| Settings { off: KindSet::EMPTY, ..it };
    for kind in [Kind::Managed, Kind::Mapped] {
        assert_eq!(all(pushed).extra(kind, 4_096), all(read).extra(kind, 4_096), "{kind:?}");
    }
}

#[test]
fn load_adds_to_the_added_time_only() {
    let half = Fabric::DXPU_68.under_load(0.5);
    assert_eq!(half.delta(), micros(8.4));
    assert_eq!(Fabric::DXPU_68.under_load(0.0), Fabric::DXPU_68);
    assert_eq!(Fabric::DXPU_68.under_load(f64::NAN), Fabric::DXPU_68);
    assert!(Fabric::DXPU_68.under_load(7.0).delta() < micros(600.0));
}

#[test]
fn wrong_numbers_are_refused() {
    assert_eq!(Tags::new(0), Err(FabricError::Tags(0)));
    assert_eq!(Tags::new(16_385), Err(FabricError::Tags(16_385)));
    for size in [0, 64, 129, 8192] {
        assert_eq!(ReadSize::new(size), Err(FabricError::ReadSize(size)));
    }
    assert_eq!(BytesPerSecond::new(0), Err(FabricError::Rate));
}

#[test]
fn a_setting_that_is_wrong_is_named() {
    for (text, part) in [
        ("tags=0", "\"tags=0\": 0 tags"),
        ("rtt=1", "\"rtt=1\": the round trip 1 ns is shorter"),
        ("colour=red", "\"colour=red\": this setting is not known"),
        ("rtt", "\"rtt\": KEY=VALUE"),
        ("rtt=9000,rtt=9000", "\"rtt=9000\": it is there twice"),
        ("off=kernel+dance", "\"off=kernel+dance\": a kind"),
        ("push=9-1", "\"push=9-1\": the smallest"),
        ("place=moon", "gpu or cpu"),
    ] {
        let error = text.parse::<Settings>().unwrap_err().to_string();
        assert!(error.starts_with("DXPU_PERF: ") && error.contains(part), "{text}: {error}");
    }
    assert_eq!("".parse(), Ok(Settings::of(Fabric::DXPU_68)));
}

#[test]
fn the_bins_follow_each_other() {
    let mut last = None;
    for number in (0..4).chain(8..Bin::COUNT) {
        let bin = Bin::from_number(number).unwrap();
        assert_eq!(Bin::of(bin.start()), bin);
        assert!(last.is_none_or(|last| last < bin.start()));
        if bin.start() > 0 {
            assert!(Bin::of(bin.start() - 1) < bin);
        }
        last = Some(bin.start());
    }
    assert_eq!(Bin::of(u64::MAX).number(), 255);
    assert_eq!(Bin::from_number(256), None);
}

#[test]
fn the_share_of_short_kernels_is_by_number_and_by_time() {
    let mut histogram = Histogram::default();
    for nanos in [1_000, 2_000, 9_999, 10_000, 77_001] {
        histogram.add(nanos);
    }
    let (number, time) = histogram.short();
    assert!((number - 0.6).abs() < 1e-9 && (time - 0.12999).abs() < 1e-9, "{number} {time}");
    assert_eq!(histogram.mean(), Some(20_000.0));
    assert_eq!(Histogram::default().short(), (0.0, 0.0));
    let mut twice = histogram.clone();
    twice.merge(&histogram);
    assert_eq!((twice.count(), twice.nanos()), (10, 200_000));
    assert_eq!(twice.short(), histogram.short());
}

#[test]
fn a_ledger_says_what_was_written() {
    let words: Box<[AtomicU64; WORDS]> = Ledger::words(&vec![0; WORDS * 8]).unwrap();
    assert_eq!(Ledger::open(&words).err(), Some(LedgerError::Magic));
    let ledger = Ledger::begin(&words);
    let row = Row { calls: 1, operations: 2, bytes: 3, delays: 4, added: 5 };
    ledger.add(Kind::Doorbell, row);
    ledger.add(Kind::HostToDevice, Row { calls: 7, ..Row::default() });
    for fact in Fact::ALL {
        ledger.set_fact(fact, fact as u64 + 100);
    }
    ledger.add_kernel(5_000);
    for text in Text::ALL {
        ledger.set_text(text, &format!("{text:?} ").repeat(99));
    }
    ledger.set_text(Text::Note, &"ü".repeat(200));

    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes())
        .collect();
    let words = Ledger::words(&bytes).unwrap();
    let read = Ledger::open(&words).unwrap();
    assert_eq!(read.row(Kind::Doorbell), row);
    assert_eq!(read.row(Kind::HostToDevice).calls, 7);
    assert_eq!(read.row(Kind::Kernel), Row::default());
    assert_eq!(read.fact(Fact::Pid), 100);
    assert_eq!(read.fact(Fact::KernelsMeasured), 107);
    let kernels = read.kernels();
    assert_eq!((kernels.count(), kernels.nanos()), (1, 5_000));
    assert!(read.text(Text::Device).starts_with("Device Device"));
    assert_eq!(read.text(Text::Note), "ü".repeat(127));
    assert_eq!(read.text(Text::NoPush).len(), 255);
    assert_eq!(Ledger::words(&bytes[1..]).err(), Some(LedgerError::Length(WORDS * 8 - 1)));
}

prop_compose! {
    fn fabrics()(
        native in 1..10_000_u64, more in 0..1_000_000_u64, tags in 1..=16_384_u32,
        read in 7..=12_u32, ahead in 0..1_u64 << 30, rates in [1..u64::MAX, 1..u64::MAX, 1..u64::MAX],
        trips in 0..100_000_u32, push in proptest::option::of(1..u64::MAX),
    ) -> Fabric {
        let rate = |rate| BytesPerSecond::new(rate).unwrap();
        Fabric {
            native_rtt: Nanos(native), rtt: Nanos(native + more), tags: Tags::new(tags).unwrap(),
            read_size: ReadSize::new(1 << read).unwrap(), read_ahead: ahead,
            native_htod: rate(rates[0]), native_dtoh: rate(rates[1]), fabric_rate: rate(rates[2]),
            kernel_round_trips: Thousandths(trips), push: push.map(rate),
        }
    }
}

proptest! {
    #[test]
    fn settings_come_back_as_they_went(
        fabric in fabrics(), gpu: bool, node: bool, off in 0..1_u32 << 13, measure: u32, cost: u64,
        events: u64, ranges: bool, each: bool,
        push in proptest::option::of((0..u64::MAX / 2, 0..u64::MAX / 2)),
    ) {
        let settings = Settings {
            fabric,
            place: if gpu { Place::Gpu } else { Place::Cpu },
            graphs: if node { Graphs::Node } else { Graphs::Launch },
            proxies: if each { Proxies::Each } else { Proxies::One },
            off: Kind::ALL.into_iter().filter(|kind| off & 1 << kind.number() != 0).collect(),
            measure_every: measure,
            push_copies: push.map(|(least, more)| PushCopies { least, most: least + more }),
            delay_cost: Nanos(cost),
            event_cost: Nanos(events),
            range: if ranges { Range::Profiler } else { Range::All },
        };
        prop_assert_eq!(settings.to_env().parse::<Settings>(), Ok(settings));
    }

    #[test]
    fn any_text_is_settings_or_an_error(text in "[a-z=,0-9+-]{0,60}") {
        let _ = text.parse::<Settings>();
    }

    #[test]
    fn more_bytes_and_longer_round_trips_never_cost_less(
        fabric in fabrics(), bytes: u64, more: u64, longer in 0..100_000_u64,
    ) {
        let slower = Fabric { rtt: Nanos(fabric.rtt.0 + longer), ..fabric };
        for kind in Kind::ALL {
            let extra = |fabric, bytes| {
                Settings { off: KindSet::EMPTY, ..Settings::of(fabric) }.extra(kind, bytes).0
            };
            prop_assert!(extra(slower, bytes) >= extra(fabric, bytes) || fabric.is_native());
            // Rounding to whole nanoseconds may lose one on each side.
            let larger = bytes.saturating_add(more);
            prop_assert!(extra(fabric, larger).saturating_add(2) >= extra(fabric, bytes));
        }
    }

    #[test]
    fn any_words_are_a_ledger_or_an_error(seed: u64, begun: bool) {
        let words: Box<[AtomicU64; WORDS]> = Ledger::words(&vec![0; WORDS * 8]).unwrap();
        let mut state = seed;
        for word in words.iter() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.store(state, std::sync::atomic::Ordering::Relaxed);
        }
        if begun {
            Ledger::begin(&words);
        }
        if let Ok(ledger) = Ledger::open(&words) {
            let _ = (ledger.kernels().mean(), ledger.text(Text::Program), ledger.row(Kind::Graph));
        }
    }
}
