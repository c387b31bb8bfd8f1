//! Pages in a real browser: they show what they should, from a file, without a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use perf_core::{Fabric, Histogram, Kind, Nanos, Row, Settings};
use perf_model::report::{Curve, Delays, Page, Point, Process, Report};

/// The browser, where it is installed.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file())
}

/// What the browser made of a page.
struct Shown {
    /// The document after it was loaded.
    dom: String,
    /// The picture's width and height, and how many pixels have each colour.
    size: (u32, u32),
    colours: BTreeMap<[u8; 3], usize>,
}

fn show(browser: &Path, html: &str, width: u32) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, html).unwrap();
    let picture = folder.path().join("picture.png");
    let run = |what: &[String]| {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--enable-logging=stderr", "--log-level=0"])
            // Whatever it would fetch is not to be had.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .args(what)
            .arg(&page)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        assert!(!errors.contains("CONSOLE"), "{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let dom = run(&["--dump-dom".to_owned()]);
    let shot = format!("--screenshot={}", picture.display());
    run(&[shot, format!("--window-size={width},2400")]);
    let file = std::io::BufReader::new(std::fs::File::open(&picture).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let mut colours = BTreeMap::new();
    for pixel in bytes[..info.buffer_size()].chunks(info.color_type.samples()) {
        *colours.entry([pixel[0], pixel[1], pixel[2]]).or_insert(0) += 1;
    }
    Shown { dom, size: (info.width, info.height), colours }
}

fn report() -> Report {
    let settings = Settings::of(Fabric::DXPU_68);
    let mut kernels = Histogram::default();
    for nanos in [2_000, 3_000, 4_000, 9_000, 25_000, 300_000] {
        kernels.add(nanos);
    }
    let mut rows = [Row::default(); Kind::ALL.len()];
    let row = |calls, bytes, added| Row { calls, operations: calls, bytes, delays: calls, added };
    rows[Kind::Kernel.number()] = row(40_000, 0, 224_000_000);
    rows[Kind::HostToDevice.number()] = row(100, 1_000_000_000, 290_000_000);
    Report {
        command: vec!["train \u{7} <b>\"it\"</b>".to_owned()],
        settings,
        profile: "dxpu-68".to_owned(),
        wall: Nanos(1_000_000_000),
        ended: None,
        processes: vec![Process {
            pid: 77,
            program: "<img src=x onerror=alert(1)>".to_owned(),
            device: "GPU".to_owned(),
            active: Nanos(1_000_000_000),
            rows,
            kernels,
            ranges: Nanos::ZERO,
            ranges_begun: 0,
            unmeasured: 2,
            calls: 40_100,
            delays: Delays {
                gpu: 40_100,
                cpu: 0,
                lost: 0,
                put: 40_100,
                putting: Nanos(120_300_000),
            },
            pushed: Row::default(),
            pageable: 0,
            notes: Vec::new(),
        }],
        lost: Vec::new(),
    }
}

/// The colours of the page's style by day: bars by number and by time, and the level of a curve.
const NUMBER: [u8; 3] = [0x2f, 0x6f, 0xde];
const TIME: [u8; 3] = [0xe0, 0x8a, 0x1e];

#[test]
fn a_browser_shows_the_report() {
    let Some(browser) = browser() else {
        println!("SKIPPED: no Chromium is installed");
        return;
    };
    let shown = show(&browser, &report().to_html(), 900);
    assert_eq!(shown.size, (900, 2400));
    for colour in [NUMBER, TIME] {
        let pixels = shown.colours.get(&colour).copied().unwrap_or(0);
        assert!(pixels > 2_000, "{colour:?}: {pixels} pixels of bars");
    }
    assert!(!shown.dom.contains("<img") && !shown.dom.contains("<b>"), "{}", shown.dom);
    assert!(shown.dom.contains("</svg>") && shown.dom.contains("What would help"));
    // On a telephone the page is as wide as the telephone: tables scroll in their own place.
    let narrow = show(&browser, &report().to_html(), 400);
    assert!(narrow.colours.get(&NUMBER).is_some_and(|pixels| *pixels > 400));
}

#[test]
fn a_browser_shows_the_curve() {
    let Some(browser) = browser() else {
        println!("SKIPPED: no Chromium is installed");
        return;
    };
    let point = |x, y| Point { x, y, interval: (y - 0.02, y + 0.02) };
    let points = vec![point(1.2, 1.0), point(8.0, 0.9), point(19.0, 0.8)];
    let mut page = Page::new("Performance against round trip");
    let curve = Curve { points, x_title: "round trip, us".to_owned(), level: 0.9 };
    page.plot(&curve.svg("performance against round trip"));
    let shown = show(&browser, &page.finish(), 900);
    assert!(shown.colours.get(&NUMBER).is_some_and(|pixels| *pixels > 500));
    assert_eq!(shown.dom.matches("<circle").count(), 3);
}
