//! Chrome traces (Trace Event Format, JSON) as PyTorch's profiler, Kineto, writes them: an object
//! with `traceEvents`, or only that array.
//!
//! Events of interest have `ph` X and one of these in `cat`: `kernel`, `gpu_memcpy`, `gpu_memset`
//! (done by the device, with `device`, `stream`, `correlation` and `bytes` in `args`),
//! `cuda_runtime`, `cuda_driver` (calls, with `correlation`), `cuda_sync` (what a call waited
//! for), and `user_annotation` for the profiler's steps. `ts` and `dur` are microseconds, with or
//! without a fraction.

use std::io::Read;

use super::builder::{Builder, FoundCall, FoundOperation, FoundTarget, FoundWait, StreamKey};
use super::error::{Place, ReadError};
use super::json::{Cursor, Fault, Text, nanoseconds, whole};
use super::model::{Direction, Memory, OperationKind};

/// The longest single value: an event, or a member beside the events.
const VALUE_BYTES: usize = 64 << 20;

/// What is read from the file at once.
const CHUNK: usize = 1 << 20;

/// Reads a trace of this kind.
pub(super) fn read(reader: impl Read, builder: &mut Builder) -> Result<(), ReadError> {
    let mut window = Window::new(reader);
    match read_all(&mut window, builder) {
        Err(ReadError::Truncated { place }) if builder.salvages() => {
            builder.remark(format!("The file was cut off: it ends {place}."));
            Ok(())
        }
        // Where the next event begins cannot be told.
        Err(ReadError::Wrong { place, reason }) if builder.salvages() => {
            builder.remark(format!("What comes after this was not read: {place}: {reason}."));
            Ok(())
        }
        other => other,
    }
}

fn read_all<R: Read>(window: &mut Window<R>, builder: &mut Builder) -> Result<(), ReadError> {
    match window.peek()? {
        b'[' => read_events(window, builder)?,
        b'{' => read_object(window, builder)?,
        _ => return Err(window.wrong("neither an object nor an array begins here")),
    }
    if window.is_at_end()? { Ok(()) } else { Err(window.wrong("something comes after the trace")) }
}

fn read_object<R: Read>(window: &mut Window<R>, builder: &mut Builder) -> Result<(), ReadError> {
    window.take(b'{')?;
    let mut events = false;
    let mut first = true;
    while !window.take(b'}')? {
        if !std::mem::take(&mut first) && !window.take(b',')? {
            return Err(window.wrong("a comma or a closing brace is wanted here"));
        }
        let key = window.value(|cursor, _| {
            let key = match cursor.string()?.raw {
                b"traceEvents" => Member::Events,
                b"baseTimeNanoseconds" => Member::Base,
                _ => Member::Other,
            };
            if cursor.take(b':')? { Ok(key) } else { cursor.wrong("a colon is wanted here") }
        })?;
        match key {
            Member::Events if std::mem::replace(&mut events, true) => {
                return Err(window.wrong("a second traceEvents"));
            }
            Member::Events => read_events(window, builder)?,
            Member::Base => {
                builder.base = window.value(|cursor, _| match whole(cursor.scalar()?) {
                    Some(base) => Ok(base),
                    None => cursor.wrong("baseTimeNanoseconds is no whole number"),
                })?;
            }
            Member::Other => window.value(|cursor, _| cursor.skip())?,
        }
    }
    if events { Ok(()) } else { Err(ReadError::wrong(Place::File, "no traceEvents in it")) }
}

enum Member {
    Events,
    Base,
    Other,
}

fn read_events<R: Read>(window: &mut Window<R>, builder: &mut Builder) -> Result<(), ReadError> {
    if !window.take(b'[')? {
        return Err(window.wrong("traceEvents is no array"));
    }
    let mut first = true;
    loop {
        // One event at a time; the comma before it and the bracket after the last with it, since
        // this runs for each.
        let more = window.value(|cursor, origin| {
            if cursor.take(b']')? {
                return Ok(Ok(false));
            }
            if !first && !cursor.take(b',')? {
                return cursor.wrong("a comma or a closing bracket is wanted here");
            }
            cursor.peek()?;
            let at = cursor.at();
            let event = Event::take(cursor)?;
            let Some((category, event)) = event else { return Ok(Ok(true)) };
            Ok(match event.enter(category, builder)? {
                Ok(()) => Ok(true),
                Err(reason) => builder.wrong(origin.place(at), reason).map(|()| true),
            })
        })??;
        if !more {
            return Ok(());
        }
        first = false;
    }
}

/// The categories of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    Kernel,
    Copy,
    Memset,
    Call,
    Wait,
    Annotation,
}

impl Category {
    /// Older versions of the profiler wrote other words.
    fn of(text: &[u8]) -> Option<Category> {
        Some(match text {
            b"kernel" | b"Kernel" => Category::Kernel,
            b"gpu_memcpy" | b"Memcpy" => Category::Copy,
            b"gpu_memset" | b"Memset" => Category::Memset,
            b"cuda_runtime" | b"cuda_driver" | b"hip_runtime" | b"hip_driver" | b"Runtime" => {
                Category::Call
            }
            b"cuda_sync" => Category::Wait,
            b"user_annotation" => Category::Annotation,
            _ => return None,
        })
    }
}

/// The members of an event that are of interest, as they stand in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Event<'a> {
    name: Option<Text<'a>>,
    pid: Option<&'a [u8]>,
    tid: Option<&'a [u8]>,
    ts: Option<&'a [u8]>,
    dur: Option<&'a [u8]>,
    device: Option<&'a [u8]>,
    stream: Option<&'a [u8]>,
    correlation: Option<&'a [u8]>,
    bytes: Option<&'a [u8]>,
    on_stream: Option<&'a [u8]>,
    on_record: Option<&'a [u8]>,
}

/// Why an event cannot be entered, and that the file cannot be read on.
type Entered = Result<Result<(), &'static str>, Fault>;

impl<'a> Event<'a> {
    /// Takes an event: `None` for one that is not of interest.
    fn take(cursor: &mut Cursor<'a>) -> Result<Option<(Category, Event<'a>)>, Fault> {
        let mut event = Event::default();
        let mut category = None;
        let mut other = false;
        let whole = cursor.object(|cursor, key| {
            match key.raw {
                b"ph" => other |= cursor.scalar()? != b"X",
                b"cat" => {
                    category = Category::of(cursor.scalar()?);
                    other |= category.is_none();
                }
                b"name" if cursor.peek()? == b'"' => event.name = Some(cursor.string()?),
                b"pid" => event.pid = Some(cursor.scalar()?),
                b"tid" => event.tid = Some(cursor.scalar()?),
                b"ts" => event.ts = Some(cursor.scalar()?),
                b"dur" => event.dur = Some(cursor.scalar()?),
                b"args" if !other && cursor.peek()? == b'{' => event.take_arguments(cursor)?,
                _ => cursor.skip()?,
            }
            // Most events are not of interest: what is left of those is not looked at.
            if other { Err(Fault::End) } else { Ok(()) }
        });
        match whole {
            Err(Fault::End) if other => cursor.skip_rest().map(|()| None),
            Err(fault) => Err(fault),
            Ok(()) => Ok(category.map(|category| (category, event))),
        }
    }

    fn take_arguments(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        cursor.object(|cursor, key| {
            let field = match key.raw {
                b"device" => &mut self.device,
                b"stream" => &mut self.stream,
                b"correlation" => &mut self.correlation,
                b"bytes" => &mut self.bytes,
                b"wait_on_stream" => &mut self.on_stream,
                b"wait_on_cuda_event_record_corr_id" => &mut self.on_record,
                _ => return cursor.skip(),
            };
            *field = Some(cursor.scalar()?);
            Ok(())
        })
    }

    /// Gives the event to the builder.
    fn enter(self, category: Category, builder: &mut Builder) -> Entered {
        Ok(match category {
            Category::Kernel => self.operation(OperationKind::Kernel, builder),
            Category::Memset => self.operation(OperationKind::Memset, builder),
            Category::Copy => self.copy(builder),
            Category::Call => self.call(builder),
            Category::Wait => self.wait(builder),
            Category::Annotation => self.annotation(builder),
        })
    }

    fn copy(self, builder: &mut Builder) -> Result<(), &'static str> {
        let name = self.name.ok_or("no name")?.text();
        match copy_kind(&name) {
            Some(Some(kind)) => self.operation(kind, builder),
            // From host memory to host memory: no device has to do with it.
            Some(None) => Ok(()),
            None => {
                Err("a copy whose name does not say from where to where (HtoD, DtoH, DtoD, PtoP)")
            }
        }
    }

    fn operation(self, kind: OperationKind, builder: &mut Builder) -> Result<(), &'static str> {
        // The profiler shows devices as processes and streams as threads.
        let device = self.device.or(self.pid).and_then(whole);
        let stream = StreamKey {
            process: None,
            device: device.and_then(|it| u32::try_from(it).ok()).ok_or("no number of a device")?,
            number: self.stream.or(self.tid).and_then(whole).ok_or("no number of a stream")?,
        };
        let bytes = match self.bytes {
            None => 0,
            Some(text) => whole(text)
                .and_then(|bytes| u64::try_from(bytes).ok())
                .ok_or("bytes is no whole number")?,
        };
        let (start, duration) = self.times()?;
        let name = self.name.ok_or("no name")?.text();
        let name = builder.name(&name).map_err(|_| "more than 256 MiB of names")?;
        let correlation = self.correlation();
        builder.operation(FoundOperation {
            start,
            duration,
            bytes,
            correlation,
            stream,
            name,
            kind,
        })
    }

    fn call(self, builder: &mut Builder) -> Result<(), &'static str> {
        let (start, duration) = self.times()?;
        let thread = self.thread(builder)?;
        let name = self.name.ok_or("no name")?.text();
        let name = builder.name(&name).map_err(|_| "more than 256 MiB of names")?;
        let correlation = self.correlation();
        builder.call(FoundCall {
            start,
            duration,
            correlation,
            thread,
            name,
            kind: None,
            target: None,
        })
    }

    fn wait(self, builder: &mut Builder) -> Result<(), &'static str> {
        let Some(correlation) = self.correlation() else { return Ok(()) };
        let device = self.device.and_then(whole).and_then(|it| u32::try_from(it).ok());
        let stream = |number: Option<&[u8]>| {
            let number = number.and_then(whole)?;
            Some(StreamKey { process: None, device: device?, number })
        };
        let record = self.on_record.and_then(whole).and_then(|it| u64::try_from(it).ok());
        let event = stream(self.on_stream).zip(record);
        let target = FoundTarget { stream: stream(self.stream), device, event };
        builder.wait(FoundWait { correlation, process: None, target })
    }

    fn annotation(self, builder: &mut Builder) -> Result<(), &'static str> {
        if !self.name.is_some_and(|name| name.raw.starts_with(b"ProfilerStep#")) {
            return Ok(());
        }
        let (start, duration) = self.times()?;
        let thread = self.thread(builder)?;
        builder.step(thread, start, duration)
    }

    fn times(&self) -> Result<(i64, i64), &'static str> {
        let start = self.ts.ok_or("no ts")?;
        let start = nanoseconds(start).ok_or("ts is no number of microseconds")?;
        let duration = self.dur.ok_or("no dur")?;
        let duration = nanoseconds(duration).ok_or("dur is no number of microseconds")?;
        Ok((start, duration))
    }

    fn correlation(&self) -> Option<u64> {
        // 0 and -1 mean none.
        self.correlation.and_then(whole).and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0)
    }

    fn thread(&self, builder: &mut Builder) -> Result<super::ThreadId, &'static str> {
        let process = identity(self.pid.ok_or("no pid")?);
        let thread = identity(self.tid.ok_or("no tid")?);
        let process = builder.process(process);
        Ok(builder.thread(process, thread))
    }
}

/// Processes and threads mostly have numbers; those that have words get a number of the word.
fn identity(text: &[u8]) -> i64 {
    whole(text).unwrap_or_else(|| {
        // FNV-1a, 64 bit, made negative: no process has such a number.
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash | 1 << 63).cast_signed()
    })
}

/// What a copy's name says of it, such as `Memcpy HtoD (Pageable -> Device)`; `Some(None)` for one
/// from host to host.
fn copy_kind(name: &str) -> Option<Option<OperationKind>> {
    const WORDS: [(&str, Option<Direction>); 15] = [
        ("HtoD", Some(Direction::HostToDevice)),
        ("HtoA", Some(Direction::HostToDevice)),
        ("HostToDevice", Some(Direction::HostToDevice)),
        ("DtoH", Some(Direction::DeviceToHost)),
        ("AtoH", Some(Direction::DeviceToHost)),
        ("DeviceToHost", Some(Direction::DeviceToHost)),
        ("DtoD", Some(Direction::DeviceToDevice)),
        ("AtoA", Some(Direction::DeviceToDevice)),
        ("AtoD", Some(Direction::DeviceToDevice)),
        ("DtoA", Some(Direction::DeviceToDevice)),
        ("DeviceToDevice", Some(Direction::DeviceToDevice)),
        ("PtoP", Some(Direction::PeerToPeer)),
        ("PeerToPeer", Some(Direction::PeerToPeer)),
        ("HtoH", None),
        ("HostToHost", None),
    ];
    let (_, direction) = WORDS.iter().find(|(word, _)| name.contains(word))?;
    let pageable = name.contains("Pageable");
    let memory = if pageable { Memory::Pageable } else { Memory::Pinned };
    Some(direction.map(|direction| OperationKind::Copy(direction, memory)))
}

/// The part of the file that is in memory: whole values, from where reading stands.
struct Window<R> {
    reader: R,
    /// What was read; what was taken of it is dropped when more is needed.
    bytes: Vec<u8>,
    /// Where reading stands in that.
    at: usize,
    /// Whether the file has no more.
    ended: bool,
    origin: Origin,
}

/// Where the part in memory begins in the file.
#[derive(Clone, Copy, Debug)]
struct Origin {
    byte: u64,
    line: u64,
}

/// Where a part of the file lies, for what is taken from it.
struct Part<'a> {
    bytes: &'a [u8],
    origin: Origin,
}

impl Part<'_> {
    fn place(&self, at: usize) -> Place {
        let at = at.min(self.bytes.len());
        Place::Byte {
            byte: self.origin.byte + at as u64,
            line: self.origin.line + lines(&self.bytes[..at]),
        }
    }
}

fn lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

impl<R: Read> Window<R> {
    fn new(reader: R) -> Window<R> {
        let origin = Origin { byte: 0, line: 1 };
        Window { reader, bytes: Vec::new(), at: 0, ended: false, origin }
    }

    /// Takes a value, which `take` may have to be asked for several times: until all of it is here.
    fn value<T>(
        &mut self,
        mut take: impl for<'a> FnMut(&mut Cursor<'a>, &Part<'a>) -> Result<T, Fault>,
    ) -> Result<T, ReadError> {
        loop {
            let part = Part { bytes: &self.bytes, origin: self.origin };
            let mut cursor = Cursor::new(&self.bytes, self.at);
            match take(&mut cursor, &part) {
                Ok(value) => {
                    self.at = cursor.at();
                    return Ok(value);
                }
                Err(Fault::Wrong { at, reason }) => {
                    return Err(ReadError::wrong(part.place(at), reason));
                }
                Err(Fault::End) if self.ended => {
                    return Err(ReadError::Truncated { place: part.place(self.bytes.len()) });
                }
                Err(Fault::End) if self.bytes.len() - self.at >= VALUE_BYTES => {
                    return Err(self.wrong("a single value of more than 64 MiB begins here"));
                }
                Err(Fault::End) => self.more()?,
            }
        }
    }

    fn peek(&mut self) -> Result<u8, ReadError> {
        self.value(|cursor, _| cursor.peek())
    }

    fn take(&mut self, byte: u8) -> Result<bool, ReadError> {
        self.value(|cursor, _| cursor.take(byte))
    }

    /// Whether nothing but white space is left.
    fn is_at_end(&mut self) -> Result<bool, ReadError> {
        match self.peek() {
            Ok(_) => Ok(false),
            Err(ReadError::Truncated { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Something is wrong where reading stands.
    fn wrong(&self, reason: &str) -> ReadError {
        let part = Part { bytes: &self.bytes, origin: self.origin };
        ReadError::wrong(part.place(self.at), reason)
    }

    /// Reads on, as much again as there is of the value that is being taken.
    fn more(&mut self) -> Result<(), ReadError> {
        self.origin.byte += self.at as u64;
        self.origin.line += lines(&self.bytes[..self.at]);
        self.bytes.drain(..self.at);
        self.at = 0;
        let wanted = CHUNK.max(self.bytes.len()) as u64;
        match self.reader.by_ref().take(wanted).read_to_end(&mut self.bytes) {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            // What compressed files say when they are cut off.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => self.ended = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
