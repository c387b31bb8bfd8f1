//! What is written down: a line for each call, and the timeline.
//!
//! A call is the thread, the symbol and the answer. What the resolver is asked for is the thread,
//! `?`, the name, the version, the flags, and 1 where there was a function.
//!
//! The timeline is the plain CSV that `dxpu-perf predict` reads. Operations of a device have the
//! kinds `kernel`, `htod`, `dtoh`, `dtod`, `peer`, `memset` and `callback`; calls `launch` (a launch,
//! a copy or a memset was asked for), `sync` (waits), `wait` (has a stream wait for an event) and
//! `call`. A call and what it asked for have the same correlation, and what waits for an event has
//! the stream and the correlation of the call that recorded it. Stream 0 is the first context's
//! legacy default stream.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// The files, where they are wanted.
pub(crate) struct Record {
    calls: Option<File>,
    timeline: Option<File>,
}

/// A row of the timeline.
pub(crate) struct Row<'a> {
    pub(crate) start: u64,
    pub(crate) duration: u64,
    pub(crate) kind: &'static str,
    /// None for a call that is about no stream.
    pub(crate) stream: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) name: &'a str,
    pub(crate) device: usize,
    pub(crate) correlation: u64,
    /// The host's end of a copy: `pinned` or `pageable`; nothing for others.
    pub(crate) memory: &'static str,
    pub(crate) event: Option<Recorded>,
}

/// The call that recorded an event: its stream in the timeline, and its correlation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) stream: u64,
    pub(crate) correlation: u64,
}

const COLUMNS: &str = "start_ns,duration_ns,kind,stream,bytes,name,device,correlation,thread,\
                       memory,event_stream,event_correlation\n";

impl Record {
    /// Opens what the environment names. Processes that a test starts share the files.
    pub(crate) fn open() -> Self {
        let mut record = Self { calls: open("STAND_IN_LOG"), timeline: open("STAND_IN_TIMELINE") };
        if let Some(file) = &mut record.timeline
            && file.metadata().is_ok_and(|data| data.len() == 0)
        {
            write(file, COLUMNS);
        }
        record
    }

    /// Writes that a function was called, and what it answered.
    pub(crate) fn call(&mut self, symbol: &str, code: i32) {
        if let Some(file) = &mut self.calls {
            write(file, &format!("{} {symbol} {code}\n", thread()));
        }
    }

    /// Writes that the resolver was asked for a name.
    pub(crate) fn look_up(&mut self, name: &str, version: i32, flags: u64, is_found: bool) {
        if let Some(file) = &mut self.calls {
            let found = i32::from(is_found);
            write(file, &format!("{} ? {name} {version} {flags} {found}\n", thread()));
        }
    }

    /// Writes a row of the timeline.
    pub(crate) fn row(&mut self, row: &Row<'_>) {
        let Some(file) = &mut self.timeline else { return };
        let Row { start, duration, kind, bytes, device, correlation, memory, .. } = row;
        let name = row.name.replace('"', "\"\"");
        let number = |number: Option<u64>| number.map_or(String::new(), |it| it.to_string());
        let (stream, thread) = (number(row.stream), thread());
        let on = number(row.event.map(|event| event.stream));
        let by = number(row.event.map(|event| event.correlation));
        let line = format!(
            "{start},{duration},{kind},{stream},{bytes},\"{name}\",{device},{correlation},{thread},\
             {memory},{on},{by}\n"
        );
        write(file, &line);
    }
}

fn open(variable: &str) -> Option<File> {
    let path = std::env::var_os(variable)?;
    let file = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = &file {
        eprintln!("stand-in CUDA driver: {variable}: {}: {error}", path.display());
    }
    file.ok()
}

/// One write for a line, so that lines of several threads and processes stay whole.
fn write(file: &mut File, line: &str) {
    if let Err(error) = file.write_all(line.as_bytes()) {
        eprintln!("stand-in CUDA driver: a record cannot be written: {error}");
    }
}

/// The calling thread's number in the system.
pub(crate) fn thread() -> i32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() }
}
