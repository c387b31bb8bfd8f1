//! `record` and `fetch`: wait for the end of a recording, which `record` starts, and write its
//! file.

use super::args::{Fetch, Record};
use super::{Failure, Output};
use crate::store::leads_to;
use crate::types::{RecordingId, Role};
use manager_client::Client;
use manager_client::bodies::RecordBody;
use manager_client::views::{EndReason, Format, NotRecorded, RecordingView};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long one question waits for the end of the recording.
const TURN_MS: u32 = 500;
/// Where a signal ends this program, its number is added to this, as shells have it.
const BY_SIGNAL: i32 = 128;

/// Says in what format a file of this name is, unless it was said.
fn format_of(record: &Record) -> Format {
    let is_json = record.out.extension().is_some_and(|extension| extension == "json");
    record.format.unwrap_or(if is_json { Format::Perfetto } else { Format::Frames })
}

/// Records.
pub(super) fn record(client: &Client, out: &Output, record: Record) -> Result<(), Failure> {
    // What cannot be written is known before anything is recorded, and what is there stays until
    // there is something to put in its place.
    let file = Target::open(&record.out).map_err(|e| not_written(&record.out, &e))?;
    let body = RecordBody {
        binding: record.binding,
        format: format_of(&record),
        seen_from: Some(record.seen_from.into()),
        duration_ms: Some(record.duration.as_millis().try_into().unwrap_or(u32::MAX)),
        limit_bytes: Some(record.limit),
        snap: record.snap,
    };
    let view = client.post("/v1/recordings", &body, None)?;
    finish(client, out, view, file)
}

/// Fetches one that was started before.
pub(super) fn fetch(client: &Client, out: &Output, which: &Fetch) -> Result<(), Failure> {
    let file = Target::open(&which.out).map_err(|e| not_written(&which.out, &e))?;
    let view = client.get(&format!("/v1/recordings/{}", which.recording))?;
    finish(client, out, view, file)
}

/// Where a recording goes: a file beside the one that was named, which takes its name when it is
/// whole; what is no regular file is written to as it is.
struct Target<'a> {
    file: std::fs::File,
    named: &'a Path,
    /// Where that is: a name may lead elsewhere, and goes on leading there.
    place: PathBuf,
    /// Removed unless it takes the name.
    partial: Option<PathBuf>,
    interrupt: Arc<Interrupt>,
}

impl<'a> Target<'a> {
    /// Opens it, and heeds Ctrl-C from before there is a file.
    fn open(named: &'a Path) -> std::io::Result<Self> {
        let place = leads_to(named)?;
        if named.exists() && !named.is_file() {
            let file = std::fs::OpenOptions::new().write(true).open(named)?;
            return Ok(Self {
                file,
                named,
                place,
                partial: None,
                interrupt: Interrupt::heed(None),
            });
        }
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(name);
        let interrupt = Interrupt::heed(Some(partial.clone()));
        let file = std::fs::File::create_new(&partial)?;
        Ok(Self { file, named, place, partial: Some(partial), interrupt })
    }

    fn write(mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        let Some(partial) = &self.partial else { return Ok(()) };
        std::fs::rename(partial, &self.place)?;
        self.partial = None;
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// Waits for the end of a recording and writes its file.
fn finish(
    client: &Client,
    out: &Output,
    mut view: RecordingView,
    file: Target<'_>,
) -> Result<(), Failure> {
    let (id, path) = (view.id, file.named);
    file.interrupt.runs.store(view.ended.is_none(), Ordering::Relaxed);
    if out.form == super::Form::Table && view.ended.is_none() {
        super::complain!("dxpu-manager: {id} runs; Ctrl-C ends it now");
    }
    while view.ended.is_none() {
        view = if file.interrupt.wanted.load(Ordering::Relaxed) {
            // To stop it twice is to stop it once.
            client.post_patiently(&format!("/v1/recordings/{id}/stop"), &serde_json::json!({}))?
        } else {
            client.get_patiently(&format!("/v1/recordings/{id}?wait_ms={TURN_MS}"))?
        };
    }
    file.interrupt.runs.store(false, Ordering::Relaxed);
    let bytes = client.bytes_patiently(&format!("/v1/recordings/{id}/file"))?;
    file.write(&bytes).map_err(|error| {
        let why = not_written(path, &error);
        Failure::Argument(format!("{why}; `dxpu-manager fetch {id} --out FILE` tries again"))
    })?;
    forget(client, id);
    out.print(&view, |view| done(view, path))
}

/// The file is there: the manager need not keep it. If it cannot be told, it forgets by itself.
fn forget(client: &Client, id: RecordingId) {
    let _ = client.remove(&format!("/v1/recordings/{id}"));
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Argument(format!("{} cannot be written: {error}", path.display()))
}

/// What Ctrl-C does, and in its way an end that is asked for and a terminal that goes: where a
/// recording runs, the first ends it; else it ends this program, whatever the manager does.
#[derive(Debug, Default)]
struct Interrupt {
    /// There is a recording that can be ended.
    runs: AtomicBool,
    /// It is to end.
    wanted: AtomicBool,
}

impl Interrupt {
    /// Heeds it from now on. This program does not end without removing that file.
    fn heed(partial: Option<PathBuf>) -> Arc<Self> {
        let interrupt = Arc::new(Self::default());
        let its = interrupt.clone();
        let (heeds, heeded) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without it, Ctrl-C ends this program, and the recording ends at its time.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let Ok(mut signals) = caught() else { return };
                drop(heeds);
                loop {
                    let number = next(&mut signals).await;
                    its.came(number, partial.as_deref());
                }
            });
        });
        // Nothing comes: the other end goes when it is heeded, or cannot be.
        let _ = heeded.recv();
        interrupt
    }

    fn came(&self, number: i32, partial: Option<&Path>) {
        if self.wanted.swap(true, Ordering::Relaxed) || !self.runs.load(Ordering::Relaxed) {
            partial.into_iter().for_each(|partial| drop(std::fs::remove_file(partial)));
            std::process::exit(BY_SIGNAL + number);
        }
    }
}

/// The signals that are heeded, caught from now on. What this program was started to ignore (`nohup`) it
/// ignores; Ctrl-C, which shells have what runs in the background ignore, may still be sent by name.
fn caught() -> std::io::Result<Vec<(i32, Signal)>> {
    let ignored = ignored();
    let is_ignored = |kind: SignalKind| ignored & 1 << (kind.as_raw_value() - 1) != 0;
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .filter(|kind| *kind == SignalKind::interrupt() || !is_ignored(*kind))
        .map(|kind| Ok((kind.as_raw_value(), signal(kind)?)))
        .collect()
}

/// The signals that this process ignores, a bit each, from 1 on; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// The number of the signal that comes next.
async fn next(signals: &mut [(i32, Signal)]) -> i32 {
    std::future::poll_fn(|context| {
        let came = |one: &mut (i32, Signal)| {
            let has_come = matches!(one.1.poll_recv(context), Poll::Ready(Some(())));
            has_come.then_some(one.0)
        };
        signals.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn done(view: &RecordingView, path: &Path) -> String {
    let what = if view.format == Format::Frames { "frames" } else { "TLPs" };
    let ended = view.ended.as_ref();
    let mut text = format!(
        "{}: {} {what} of {} ({} lent to {}) in {}",
        view.id,
        view.packets,
        view.binding,
        view.slot,
        view.host,
        path.display()
    );
    if let Some(ended) = ended.filter(|ended| ended.reason != EndReason::Time) {
        text.push_str(&format!("\nended early: {}", ended.detail));
    }
    if let Some(NotRecorded { end, detail }) = &view.not_recorded {
        let card = if *end == Role::Host { &view.host } else { view.slot.box_name() };
        text.push_str(&format!(
            "\n{detail}: its stages are missing, and what it asked itself has none unless \
             `stamps {card} --sampling all` was said"
        ));
    }
    let lost = view.lost_at_host + view.lost_at_box;
    if lost > 0 {
        text.push_str(&format!(
            "\n{lost} entries were lost because a proxy had no room for them; --snap makes them \
             smaller"
        ));
    }
    text
}
