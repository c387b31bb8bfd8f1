//! Plain CSV: a line for each operation and call, columns by the names in the first line.
//!
//! docs/predict.md has the columns. Those that are needed: `start_ns`, `duration_ns` (or
//! `start_us`, `duration_us`) and `kind`; `bytes` for copies, and `stream` for what the device
//! does. Columns that are not known are passed over.

use std::io::Read;

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::builder::{Builder, FoundCall, FoundOperation, FoundTarget, StreamKey};
use super::call::{CallKind, Scope};
use super::error::{Place, ReadError};
use super::json::{nanoseconds, whole};
use super::model::{Direction, Memory, OperationKind};

macro_rules! columns {
    ($($column:ident: $($name:literal)|+;)*) => {
        /// Where each column is, from 0.
        #[derive(Clone, Copy, Debug, Default)]
        struct Columns {
            $($column: Option<usize>,)*
        }

        impl Columns {
            /// The columns, as the first line names them.
            fn of(heading: &ByteRecord) -> Columns {
                let mut columns = Columns::default();
                for (place, name) in heading.iter().enumerate() {
                    let is = |it: &&str| name.eq_ignore_ascii_case(it.as_bytes());
                    $(if [$($name),+].iter().any(is) {
                        columns.$column.get_or_insert(place);
                    })*
                }
                columns
            }
        }
    };
}

columns! {
    start_ns: "start_ns";
    start_us: "start_us";
    start: "start";
    duration_ns: "duration_ns";
    duration_us: "duration_us";
    duration: "duration";
    kind: "kind";
    stream: "stream";
    bytes: "bytes";
    name: "name";
    device: "device";
    correlation: "correlation";
    thread: "thread";
    process: "process";
    memory: "memory";
    event_stream: "event_stream";
    event_correlation: "event_correlation";
}

/// Whether this can be the first line.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let names: Vec<_> = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let has = |name: &str| names.iter().any(|it| it.eq_ignore_ascii_case(name.as_bytes()));
    has("kind") && (has("start_ns") || has("start_us") || has("start"))
}

/// Reads a trace of this kind.
pub(super) fn read(reader: impl Read, builder: &mut Builder) -> Result<(), ReadError> {
    match read_all(reader, builder) {
        Err(ReadError::Truncated { place }) if builder.salvages() => {
            builder.remark(format!("The file was cut off: it ends {place}."));
            Ok(())
        }
        other => other,
    }
}

fn read_all(reader: impl Read, builder: &mut Builder) -> Result<(), ReadError> {
    let lines = Lines { reader, last: b'\n', ended: false };
    let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(lines);
    let heading = reader.byte_headers().map_err(of_csv)?.clone();
    let columns = Columns::of(&heading);
    let wrong = |name: &str, reason: &'static str| {
        let place = Place::Cell { line: 1, column: name.to_owned() };
        ReadError::wrong(place, reason)
    };
    let missing = "there is no such column";
    // A guess would be wrong by a factor of 1000 and nobody would notice.
    let no_unit = "the name has no unit; end it with _ns or _us";
    if columns.start_ns.or(columns.start_us).is_none() {
        let unnamed = columns.start.map(|_| wrong("start", no_unit));
        return Err(unnamed.unwrap_or_else(|| wrong("start_ns", missing)));
    }
    if columns.duration_ns.or(columns.duration_us).is_none() {
        let unnamed = columns.duration.map(|_| wrong("duration", no_unit));
        return Err(unnamed.unwrap_or_else(|| wrong("duration_ns", missing)));
    }
    columns.kind.ok_or_else(|| wrong("kind", missing))?;

    let (mut record, mut next) = (ByteRecord::new(), ByteRecord::new());
    let mut more = reader.read_byte_record(&mut record).map_err(of_csv)?;
    while more {
        // Where it ends is known.
        let end = reader.position().clone();
        let line = end.line() - 1 - lines_in(&record);
        let read = reader.read_byte_record(&mut next).map_err(of_csv);
        let is_last = matches!(read, Ok(false));
        if is_last && record.len() < heading.len() && reader.get_ref().is_cut_off() {
            let place = Place::Byte { byte: end.byte(), line };
            return Err(ReadError::Truncated { place });
        }
        let row = Row { columns: &columns, record: &record };
        if let Err(Wrong { column, reason }) = row.enter(builder) {
            builder.wrong(Place::Cell { line, column: column.to_owned() }, reason)?;
        }
        more = read?;
        std::mem::swap(&mut record, &mut next);
    }
    if reader.get_ref().is_cut_off() {
        // Files that people write end so, too.
        builder.remark(
            "The last line of the CSV does not end: if the file was cut off there, what stands last \
             in it may be cut, too."
                .to_owned(),
        );
    }
    Ok(())
}

fn lines_in(record: &ByteRecord) -> u64 {
    memchr::memchr_iter(b'\n', record.as_slice()).count() as u64
}

/// Text whose lines all end with a line feed and nothing else, the last one, too.
struct Lines<R> {
    reader: R,
    /// The last byte that was read.
    last: u8,
    ended: bool,
}

impl<R> Lines<R> {
    /// Whether the last line did not end: known when all was read.
    fn is_cut_off(&self) -> bool {
        self.last != b'\n'
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while !self.ended && !buffer.is_empty() {
            let read = self.reader.read(buffer)?;
            if read == 0 {
                self.ended = true;
                buffer[0] = b'\n';
                return Ok(1);
            }
            let mut kept = 0;
            for at in 0..read {
                buffer[kept] = buffer[at];
                kept += usize::from(buffer[at] != b'\r');
            }
            if kept > 0 {
                self.last = buffer[kept - 1];
                return Ok(kept);
            }
        }
        Ok(0)
    }
}

fn of_csv(error: csv::Error) -> ReadError {
    let place = error.position().map_or(Place::File, |position| Place::Byte {
        byte: position.byte(),
        line: position.line(),
    });
    let reason = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ReadError::Truncated { place }
        }
        csv::ErrorKind::Io(error) => ReadError::Io(error),
        _ => ReadError::wrong(place, reason),
    }
}

/// What is wrong in a row, and in which column.
struct Wrong {
    column: &'static str,
    reason: &'static str,
}

impl Wrong {
    fn in_column(column: &'static str) -> impl Fn(&'static str) -> Wrong {
        move |reason| Wrong { column, reason }
    }
}

#[derive(Clone, Copy)]
struct Row<'a> {
    columns: &'a Columns,
    record: &'a ByteRecord,
}

impl<'a> Row<'a> {
    /// What stands in a column; `None` where there is no such column, or nothing in it.
    fn cell(self, place: Option<usize>) -> Option<&'a [u8]> {
        self.record.get(place?).filter(|text| !text.is_empty())
    }

    fn enter(self, builder: &mut Builder) -> Result<(), Wrong> {
        let kind = self.cell(self.columns.kind);
        let memory = match self.cell(self.columns.memory) {
            None => Memory::Pinned,
            Some(text) if text.eq_ignore_ascii_case(b"pinned") => Memory::Pinned,
            Some(text) if text.eq_ignore_ascii_case(b"pageable") => Memory::Pageable,
            Some(_) => return Err(Wrong::in_column("memory")("neither pinned nor pageable")),
        };
        let copy = |direction| OperationKind::Copy(direction, memory);
        match kind.unwrap_or_default() {
            b"kernel" => self.operation(OperationKind::Kernel, builder),
            b"graph" => self.operation(OperationKind::Graph, builder),
            b"htod" => self.operation(copy(Direction::HostToDevice), builder),
            b"dtoh" => self.operation(copy(Direction::DeviceToHost), builder),
            b"dtod" => self.operation(copy(Direction::DeviceToDevice), builder),
            b"peer" | b"ptop" => self.operation(copy(Direction::PeerToPeer), builder),
            b"callback" => self.operation(OperationKind::Callback, builder),
            b"memset" => self.operation(OperationKind::Memset, builder),
            // No device has to do with it.
            b"htoh" => Ok(()),
            b"launch" => self.call(Said::Launch, builder),
            b"sync" => self.call(Said::Sync, builder),
            b"wait" => self.call(Said::Wait, builder),
            b"call" => self.call(Said::Call, builder),
            b"step" => self.step(builder),
            _ => Err(Wrong::in_column("kind")(
                "none of kernel, graph, htod, dtoh, dtod, peer, htoh, memset, callback, launch, sync, wait, call, step",
            )),
        }
    }

    fn operation(self, kind: OperationKind, builder: &mut Builder) -> Result<(), Wrong> {
        let (start, duration) = self.times()?;
        let process = self.process(builder)?;
        let number = self.number("stream", self.columns.stream)?;
        let stream =
            StreamKey { process, device: self.device()?.unwrap_or(0), number: number.unwrap_or(0) };
        let bytes = self.natural("bytes", self.columns.bytes)?.unwrap_or(0);
        let correlation = self.correlation()?;
        let name = self.name(builder)?;
        builder
            .operation(FoundOperation { start, duration, bytes, correlation, stream, name, kind })
            .map_err(Wrong::in_column("duration_ns"))
    }

    fn call(self, said: Said, builder: &mut Builder) -> Result<(), Wrong> {
        let (start, duration) = self.times()?;
        let target = self.target(builder)?;
        let thread = self.thread(builder)?;
        let name = self.name(builder)?;
        let by_name = CallKind::of(&self.text(self.columns.name));
        let kind = said.kind(by_name, target.stream.is_some());
        let correlation = self.correlation()?;
        let target = kind.waits().then(|| Box::new(target));
        builder
            .call(FoundCall {
                start,
                duration,
                correlation,
                thread,
                name,
                kind: Some(kind),
                target,
            })
            .map_err(Wrong::in_column("duration_ns"))
    }

    fn step(self, builder: &mut Builder) -> Result<(), Wrong> {
        let (start, duration) = self.times()?;
        let thread = self.thread(builder)?;
        builder.step(thread, start, duration).map_err(Wrong::in_column("duration_ns"))
    }

    fn target(self, builder: &mut Builder) -> Result<FoundTarget, Wrong> {
        let process = self.process(builder)?;
        let device = self.device()?;
        let stream = |number| StreamKey { process, device: device.unwrap_or(0), number };
        let on = self.number("event_stream", self.columns.event_stream)?;
        let recorded = self.natural("event_correlation", self.columns.event_correlation)?;
        Ok(FoundTarget {
            stream: self.number("stream", self.columns.stream)?.map(stream),
            device,
            event: on.map(stream).zip(recorded),
        })
    }

    fn times(self) -> Result<(i64, i64), Wrong> {
        let time =
            |column, ns: Option<usize>, us: Option<usize>| match (self.cell(ns), self.cell(us)) {
                (Some(text), _) => whole(text)
                    .ok_or("no whole number of nanoseconds")
                    .map_err(Wrong::in_column(column)),
                (None, Some(text)) => nanoseconds(text)
                    .ok_or("no number of microseconds")
                    .map_err(Wrong::in_column(column)),
                (None, None) => Err(Wrong::in_column(column)("nothing stands there")),
            };
        let start = time("start_ns", self.columns.start_ns, self.columns.start_us)?;
        let duration = time("duration_ns", self.columns.duration_ns, self.columns.duration_us)?;
        Ok((start, duration))
    }

    fn number(self, name: &'static str, place: Option<usize>) -> Result<Option<i64>, Wrong> {
        let Some(text) = self.cell(place) else { return Ok(None) };
        whole(text).map(Some).ok_or("no whole number").map_err(Wrong::in_column(name))
    }

    fn natural(self, name: &'static str, place: Option<usize>) -> Result<Option<u64>, Wrong> {
        let number = self.number(name, place)?;
        number.map(u64::try_from).transpose().map_err(|_| Wrong::in_column(name)("less than 0"))
    }

    fn device(self) -> Result<Option<u32>, Wrong> {
        let number = self.number("device", self.columns.device)?;
        let wrong = |_| Wrong::in_column("device")("no number of a device");
        number.map(u32::try_from).transpose().map_err(wrong)
    }

    fn correlation(self) -> Result<Option<u64>, Wrong> {
        let correlation = self.natural("correlation", self.columns.correlation)?;
        Ok(correlation.filter(|it| *it > 0))
    }

    /// The process, where there is such a column.
    fn process(self, builder: &mut Builder) -> Result<Option<super::ProcessId>, Wrong> {
        let number = self.number("process", self.columns.process)?;
        Ok(number.map(|number| builder.process(number)))
    }

    fn thread(self, builder: &mut Builder) -> Result<super::ThreadId, Wrong> {
        let process = self.process(builder)?.unwrap_or_else(|| builder.process(0));
        let number = self.number("thread", self.columns.thread)?;
        Ok(builder.thread(process, number.unwrap_or(0)))
    }

    fn text(self, place: Option<usize>) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.cell(place).unwrap_or_default())
    }

    fn name(self, builder: &mut Builder) -> Result<super::NameId, Wrong> {
        let name = self.text(self.columns.name);
        builder.name(&name).map_err(|_| Wrong::in_column("name")("more than 256 MiB of names"))
    }
}

/// What the column `kind` says of a call.
#[derive(Clone, Copy)]
enum Said {
    Launch,
    Sync,
    Wait,
    Call,
}

impl Said {
    /// The kind of a call, with what its function's name says.
    fn kind(self, by_name: CallKind, has_stream: bool) -> CallKind {
        match (self, by_name) {
            (Said::Call, any) => any,
            (Said::Wait, _) => CallKind::StreamWait,
            (Said::Launch, CallKind::IssueGraph | CallKind::IssueAndWait) => by_name,
            (Said::Launch, _) => CallKind::Issue,
            // A copy that waits stands as what waits, too.
            (Said::Sync, CallKind::Synchronise(_) | CallKind::IssueAndWait) => by_name,
            (Said::Sync, _) if has_stream => CallKind::Synchronise(Scope::Stream),
            (Said::Sync, _) => CallKind::Synchronise(Scope::Device),
        }
    }
}
