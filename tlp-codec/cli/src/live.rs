//! `tlp live`: how long round trips take now, per device, and which are the slowest.
//!
//! The manager looks (`GET /v1/latency`); what it answers is shown here.

use crate::args::Live;
use anyhow::{Context, bail};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

/// What a manager may take to answer beyond the time for which it looks, and then until its answer is
/// here to its end.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an answer may have, bytes: as many as `dxpu-manager latency` takes.
const MAX_ANSWER: u64 = 1 << 30;

/// Looks again and again, or once.
///
/// # Errors
///
/// When the manager cannot be asked the first time, or says no, or the output cannot be written.
pub(crate) fn run(args: &Live, out: &mut impl Write, err: &mut dyn Write) -> anyhow::Result<()> {
    let agent = agent(args.interval + PATIENCE, PATIENCE);
    let repaint = !args.once && !args.json && io::stdout().is_terminal();
    let mut seen = false;
    loop {
        let began = Instant::now();
        match ask(&agent, args) {
            Ok(latency) => {
                seen = true;
                if args.json {
                    writeln!(out, "{latency}")?;
                } else {
                    // Home, and erase what was there (ECMA-48, CUP and ED).
                    let clear = if repaint { "\x1b[H\x1b[2J" } else { "" };
                    writeln!(out, "{clear}{}", text(&latency))?;
                }
                out.flush()?;
            }
            // A manager that restarts comes back.
            Err(error) if seen && !args.once => writeln!(err, "tlp: {error:#}")?,
            Err(error) => return Err(error),
        }
        if args.once {
            return Ok(());
        }
        // A manager that has nothing to look at answers at once.
        thread::sleep(args.interval.saturating_sub(began.elapsed()));
    }
}

/// Waits so long for an answer, and then until it is here.
fn agent(answer: Duration, rest: Duration) -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(5)))
        .timeout_recv_response(Some(answer))
        // A machine that dies behind the start of its answer ends no connection.
        .timeout_recv_body(Some(rest))
        // A manager is reached directly.
        .proxy(None)
        .build()
        .new_agent()
}

/// What the manager sees in one interval.
fn ask(agent: &ureq::Agent, args: &Live) -> anyhow::Result<Value> {
    let server = args.manager.trim_end_matches('/');
    let server = match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    };
    let mut request = agent
        .get(format!("{server}/v1/latency"))
        .query("window_ms", args.interval.as_millis().to_string())
        .query("one_in", args.one_in.to_string())
        .query("slowest", args.slowest.to_string());
    if let Some(node) = &args.node {
        request = request.query("node", node);
    }
    let unreachable = || {
        format!(
            "the manager at {server} cannot be asked; is it running, and is --manager (or \
                 DXPU_MANAGER) its address?"
        )
    };
    let mut answer = request.call().with_context(unreachable)?;
    let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    let body = body.with_context(|| {
        let less = if args.node.is_none() { ", or with --node for less" } else { "" };
        format!("the answer of the manager at {server} did not come to its end; ask again{less}")
    })?;
    let value: Value = serde_json::from_slice(&body)
        .with_context(|| format!("{server} does not answer as a dxpu-manager does"))?;
    if !answer.status().is_success() {
        bail!("{}", value["detail"].as_str().unwrap_or("the manager says no without a reason"));
    }
    Ok(value)
}

fn micros(ns: &Value) -> String {
    ns.as_u64().map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1000.0))
}

fn word(value: &Value) -> &str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("-")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What was seen, for people.
fn text(latency: &Value) -> String {
    let mut text = format!(
        "round trips in {} ms, one in {} stamped; medians in µs, split as in DxPU's Table 6\n\n",
        latency["window_ms"], latency["one_in"]
    );
    let mut rows = vec![
        [
            "SLOT",
            "HOST",
            "MODEL",
            "ASKED BY",
            "REQ/S",
            "P50",
            "P99",
            "ORIGINAL",
            "NETWORK",
            "CONVERSION",
            "(HOST",
            "BOX)",
        ]
        .map(str::to_owned),
    ];
    let mut lost = 0;
    for device in items(&latency["devices"]) {
        // A proxy does not know of which device: each of them says the same.
        lost = lost.max(device["lost"].as_u64().unwrap_or(0));
        for (asker, rate, split) in [
            ("host", "host_requests_per_s", "from_host"),
            ("device", "device_requests_per_s", "from_device"),
        ] {
            let split = &device[split];
            rows.push([
                word(&device["slot"]).to_owned(),
                word(&device["host"]).to_owned(),
                word(&device["model"]).to_owned(),
                asker.to_owned(),
                device[rate].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
                micros(&split["p50_ns"]),
                micros(&split["p99_ns"]),
                micros(&split["original_ns"]),
                micros(&split["network_ns"]),
                micros(&split["conversion_ns"]),
                micros(&split["host_conversion_ns"]),
                micros(&split["box_conversion_ns"]),
            ]);
        }
    }
    text.push_str(&aligned(&rows));
    let slowest = items(&latency["slowest"]);
    if !slowest.is_empty() {
        text.push_str("\nslowest requests\n");
    }
    for slow in slowest {
        slow_request(&mut text, slow);
    }
    if lost > 0 {
        let _ = writeln!(text, "\n{lost} entries or more were lost: give --one-in a larger number");
    }
    for device in items(&latency["devices"]) {
        if let Some(why) = device["not_recorded"]["detail"].as_str() {
            let (slot, host) = (word(&device["slot"]), word(&device["host"]));
            let _ = writeln!(text, "\nnot split: {slot} of {host}: {why}");
        }
    }
    for cut_short in items(&latency["cut_short"]) {
        let _ = writeln!(text, "\ncut short: {}", word(cut_short));
    }
    for missing in items(&latency["missing"]) {
        let _ = writeln!(text, "\nnot looked at: {}", word(missing));
    }
    text
}

fn slow_request(text: &mut String, slow: &Value) {
    let mut what = word(&slow["kind"]).to_owned();
    if let Some(address) = slow["address"].as_u64() {
        let _ = write!(what, " {address:#x}");
    }
    if let Some(target) = slow["target"].as_str() {
        let _ = write!(what, " {target}");
    }
    if let Some(bytes) = slow["bytes"].as_u64() {
        let _ = write!(what, " {bytes} B");
    }
    let (slot, asker) = (word(&slow["slot"]), word(&slow["asker"]));
    let _ = writeln!(text, "{:>12} µs  {slot}, {asker}: {what}", micros(&slow["total_ns"]));
    let stages = items(&slow["stages"]).iter();
    let stages: Vec<String> =
        stages.map(|s| format!("{} {}", word(&s["stage"]), micros(&s["ns"]))).collect();
    let _ = writeln!(text, "{:>15}  {}", "", stages.join(" · "));
}

/// Columns as wide as what is in them; all but the first four are numbers.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < 4 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use serde_json::json;
    use std::net::TcpListener;
    use std::sync::mpsc;

    /// No test waits for longer.
    const LONG: Duration = Duration::from_secs(60);

    /// Asks a manager that says so much for an answer, and then nothing more; waits so long for the
    /// rest.
    fn ask_one_that_says(answer: &str, rest: Duration) -> anyhow::Result<Value> {
        let manager = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = manager.local_addr().unwrap().to_string();
        let (told, result) = mpsc::channel();
        thread::spawn(move || {
            let args = ["tlp", "live", "--interval", "10ms", "--manager", &address];
            let Command::Live(args) = Args::parse_from(args).command else { unreachable!() };
            let agent = agent(LONG, rest);
            told.send(ask(&agent, &args)).unwrap();
        });
        let mut stream = manager.accept().unwrap().0;
        // Who asked may have heard enough.
        let _ = stream.write_all(answer.as_bytes());
        result.recv_timeout(LONG).expect("it waits for no more")
    }

    fn answer(length: usize, body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    #[test]
    fn an_answer_that_does_not_go_on_is_not_waited_for() {
        let error = ask_one_that_says(&answer(100, "{"), Duration::from_millis(200)).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("did not come to its end") && said.contains("timeout"), "{said}");
    }

    #[test]
    fn an_answer_of_many_devices_is_read() {
        let long = format!("[\"{}\"]", "x".repeat(11 << 20));
        let value = ask_one_that_says(&answer(long.len(), &long), LONG).unwrap();
        assert_eq!(value.to_string().len(), long.len());
    }

    #[test]
    fn a_look_is_a_table_and_the_slowest_requests() {
        let split = json!({ "samples": 3, "p50_ns": 8000, "p99_ns": 9500, "original_ns": 3000,
            "network_ns": 2000, "conversion_ns": 2900, "host_conversion_ns": 1000,
            "box_conversion_ns": 2000 });
        let latency = json!({
            "window_ms": 1000, "one_in": 4, "missing": ["bind-9: away"],
            "cut_short": ["box-a: looked at for 3ms only"],
            "devices": [{ "binding": "bind-1", "slot": "box-a/1", "host": "host-a", "model": "",
                "host_requests_per_s": 1234.5, "device_requests_per_s": 0.0, "from_host": split,
                "from_device": null, "lost": 7 }],
            "slowest": [{ "slot": "box-a/1", "asker": "host", "kind": "MRd",
                "address": 0xfe00_0010_u64, "target": null, "bytes": 4, "total_ns": 9500,
                "stages": [{ "stage": "device", "ns": 3100 }] }],
        });
        let text = text(&latency);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start));
            let words = found.unwrap_or_else(|| panic!("{start} is not in {text}"));
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("box-a/1"), "box-a/1 host-a - host 1234 8.0 9.5 3.0 2.0 2.9 1.0 2.0");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let idle = "box-a/1 host-a - device 0 - - - - - - -";
        assert!(text.lines().any(|line| words(line) == idle), "{text}");
        assert_eq!(line("9.5"), "9.5 µs box-a/1, host: MRd 0xfe000010 4 B");
        assert_eq!(line("device 3.1"), "device 3.1");
        assert!(text.contains("one in 4 stamped"), "{text}");
        assert_eq!(line("not looked at"), "not looked at: bind-9: away");
        assert_eq!(line("cut short"), "cut short: box-a: looked at for 3ms only");
        assert!(line("7 entries").contains("--one-in"));
        assert!(!text.contains("not split"), "{text}");
    }

    #[test]
    fn of_a_device_with_a_card_at_one_end_what_is_known_is_shown() {
        let split = json!({ "samples": 3, "p50_ns": 8000, "p99_ns": 9500, "original_ns": null,
            "network_ns": null, "conversion_ns": null, "host_conversion_ns": 1000,
            "box_conversion_ns": null });
        let text = text(&json!({
            "window_ms": 1000, "one_in": 1, "missing": [], "slowest": [],
            "devices": [{ "slot": "box-a/1", "host": "host-a", "model": "nvme", "lost": 0,
                "host_requests_per_s": 1234.5, "device_requests_per_s": null, "from_host": split,
                "from_device": null,
                "not_recorded": { "end": "box", "detail": "box-a has no memory" } }],
        }));
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines: Vec<String> = lines.collect();
        for line in [
            "box-a/1 host-a nvme host 1234 8.0 9.5 - - - 1.0 -",
            "box-a/1 host-a nvme device - - - - - - - -",
            "not split: box-a/1 of host-a: box-a has no memory",
        ] {
            assert!(lines.iter().any(|there| there == line), "{line} is not in {text}");
        }
    }
}
