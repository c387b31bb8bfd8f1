//! What carries the frames: packet rings, and UDP with the kernel taking many frames at once or
//! each alone. Beside each, by turns, the stream of bare frames over rings whose ends copy and
//! compute both CRCs.

use super::Bench;
use super::throughput::{READ, Subject, WRITE, rate};
use crate::figures::Results;
use crate::floor::{Ends, Floor};
use crate::system::{Layout, Transport};
use anyhow::Result;
use proxy_core::limits::MAX_PAYLOAD_OFFERED;
use std::time::Duration;

const TRANSPORTS: [(&str, Transport); 3] = [
    ("rings", Transport::Rings),
    ("UDP, segmented", Transport::Udp { segmentation: true }),
    ("UDP, one by one", Transport::Udp { segmentation: false }),
];

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for (name, transport) in TRANSPORTS {
        let slot = Subject::slot();
        let slots = [slot.as_str()];
        let subject = Subject::start(bench, &Layout { transport, ..Layout::of(&slots) })?;
        one(&subject, name, results)?;
    }
    Ok(())
}

fn one(subject: &Subject<'_>, name: &str, results: &mut Results) -> Result<()> {
    let bench = subject.bench;
    let run = Duration::from_millis(bench.pick(500, 150));
    let mut floor = Floor::open(&bench.network, true)?;
    let mut rows = Vec::new();
    for _ in 0..bench.repeats {
        let bare = floor.stream(Ends::CopyAndCrcs, run)?;
        subject.set_payload(WRITE)?;
        let write = rate(&subject.job("write", subject.bytes(), &[])?)?;
        // A device that takes no more than it writes would refuse the host's completions.
        subject.set_payload(MAX_PAYLOAD_OFFERED)?;
        let long = rate(&subject.job("write", subject.bytes(), &[])?)?;
        let read = rate(&subject.job("read", subject.bytes(), &[])?)?;
        rows.push([bare, write, long, read]);
    }
    let whats = [
        format!("writes of {WRITE} B"),
        format!("writes of {MAX_PAYLOAD_OFFERED} B"),
        format!("reads of {READ} B"),
    ];
    for (at, what) in whats.into_iter().enumerate() {
        let rates = rows.iter().map(|row| row[at + 1] / 1e6).collect::<Vec<_>>();
        results.figure(format!("{name}: {what}"), "MB/s", rates);
        let shares = rows.iter().map(|row| row[at + 1] / row[0]).collect::<Vec<_>>();
        results.figure(format!("{name}: {what}, of the stream"), "", shares);
    }
    Ok(())
}
