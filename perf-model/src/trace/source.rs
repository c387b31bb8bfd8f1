//! From a file to its trace: what kind of file it is, and decompression.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use flate2::read::MultiGzDecoder;

use super::builder::Builder;
use super::error::{Place, ReadError};
use super::model::Trace;
use super::{csv, kineto, nsys};

/// The kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome JSON, as PyTorch's profiler (Kineto) writes it.
    Kineto,
    /// A SQLite export of Nsight Systems.
    Nsys,
    /// Plain CSV.
    Csv,
}

/// How to read a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What kind of file it is; `None`: as its first bytes say.
    pub format: Option<Format>,
    /// Takes what is right of a file that is cut off or has wrong events in it, and says what was
    /// left out ([`super::Notes`]), instead of refusing it.
    pub salvage: bool,
}

/// What is looked at to see what a file is.
const HEAD: usize = 4096;

/// Chunks of decompressed text that wait for being read, and how large they are.
const CHUNKS_AHEAD: usize = 4;
const CHUNK: usize = 1 << 20;

/// Reads the trace in a file.
///
/// # Errors
///
/// [`ReadError`]: where the file cannot be read, or something in it is wrong.
pub fn read_file(path: &Path, options: &Options) -> Result<Trace, ReadError> {
    let mut file = File::open(path)?;
    if path.extension().is_some_and(|it| it == "nsys-rep" || it == "qdrep") {
        return Err(ReadError::NsysReport);
    }
    let head = head_of(&mut file)?;
    let mut builder = Builder::new(options.salvage);
    if is_gzip(&head) {
        let mut text = decompress_ahead(head, file);
        let head = decompressed(head_of(&mut text)?)?;
        read_plain(head, text, options, &mut builder)?;
    } else {
        match options.format.or_else(|| format_of(&head)) {
            Some(Format::Nsys) => nsys::read(path, &mut builder)?,
            _ => read_plain(head, file, options, &mut builder)?,
        }
    }
    builder.finish()
}

/// Reads a trace of text (Chrome JSON or CSV, compressed or not) that comes from anywhere.
///
/// # Errors
///
/// [`ReadError`]: where it cannot be read, something in it is wrong, or it is no text.
pub fn read_text(mut reader: impl Read, options: &Options) -> Result<Trace, ReadError> {
    let mut builder = Builder::new(options.salvage);
    let head = head_of(&mut reader)?;
    if is_gzip(&head) {
        let mut text = MultiGzDecoder::new(io::Cursor::new(head).chain(reader));
        let head = decompressed(head_of(&mut text)?)?;
        read_plain(head, text, options, &mut builder)?;
    } else {
        read_plain(head, reader, options, &mut builder)?;
    }
    builder.finish()
}

fn read_plain(
    mut head: Vec<u8>,
    rest: impl Read,
    options: &Options,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let format = options.format.or_else(|| format_of(&head));
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let reader = io::Cursor::new(head).chain(rest);
    match format {
        Some(Format::Kineto) => kineto::read(reader, builder),
        Some(Format::Csv) => csv::read(reader, builder),
        Some(Format::Nsys) | None => Err(ReadError::UnknownFormat),
    }
}

/// The first bytes of a file, fewer only where it has no more.
fn head_of(reader: &mut impl Read) -> Result<Vec<u8>, ReadError> {
    let mut head = Vec::new();
    match reader.take(HEAD as u64).read_to_end(&mut head) {
        // A compressed file that is cut off: its reader finds that again.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        other => drop(other?),
    }
    Ok(head)
}

/// The first bytes of what was compressed, unless there are none.
fn decompressed(head: Vec<u8>) -> Result<Vec<u8>, ReadError> {
    if head.is_empty() {
        return Err(ReadError::wrong(
            Place::File,
            "it is compressed and was cut off before anything that can be read",
        ));
    }
    Ok(head)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b])
}

/// What a file is, as its first bytes say.
fn format_of(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"SQLite format 3\0") {
        return Some(Format::Nsys);
    }
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
    match text.first()? {
        b'{' | b'[' => Some(Format::Kineto),
        _ => {
            let line = text.split(|byte| *byte == b'\n').next()?;
            csv::is_heading(line).then_some(Format::Csv)
        }
    }
}

/// Decompresses in a thread of its own, some chunks ahead of whoever reads.
fn decompress_ahead(head: Vec<u8>, file: File) -> impl Read {
    let (give, take) = sync_channel(CHUNKS_AHEAD);
    std::thread::spawn(move || {
        let mut text = MultiGzDecoder::new(io::Cursor::new(head).chain(file));
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = text.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
            let last = chunk.is_empty() || read.is_err();
            // Nobody reads any more where this fails.
            let given = (chunk.is_empty() || give.send(Ok(chunk)).is_ok())
                && read.map_or_else(|error| give.send(Err(error)).is_ok(), |_| true);
            if last || !given {
                return;
            }
        }
    });
    Chunks { take, chunk: io::Cursor::new(Vec::new()), failed: None }
}

struct Chunks {
    take: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    /// What went wrong: said again to whoever asks again.
    failed: Option<io::ErrorKind>,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.chunk.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if let Some(kind) = self.failed {
                return Err(kind.into());
            }
            match self.take.recv() {
                Ok(Ok(chunk)) => self.chunk = io::Cursor::new(chunk),
                Ok(Err(error)) => {
                    self.failed = Some(error.kind());
                    return Err(error);
                }
                // The other end is gone: there is no more.
                Err(_) => return Ok(0),
            }
        }
    }
}
