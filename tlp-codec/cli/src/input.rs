//! Where lines and captures come from.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _};
use std::os::fd::AsFd;
use std::path::Path;

/// What there is to read.
pub(crate) enum Source {
    /// Arguments, one line each.
    Arguments(Vec<String>),
    /// Lines of text.
    Lines(Stream),
    /// A capture file.
    Capture(Format, Stream),
}

/// The two kinds of capture files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Pcap,
    PcapNg,
}

/// A file or stdin, of which at most the first bytes have been looked at.
pub(crate) struct Stream {
    pub(crate) bytes: Box<dyn BufRead>,
    /// More may come after a while, and whoever waits for it wants to see what came. That is so of all
    /// but regular files.
    live: bool,
}

impl Stream {
    pub(crate) fn new(bytes: impl BufRead + 'static, live: bool) -> Self {
        Self { bytes: Box::new(bytes), live }
    }

    fn of(file: File) -> Self {
        let live = !file.metadata().is_ok_and(|data| data.is_file());
        Self::new(BufReader::new(file), live)
    }
}

impl Source {
    /// Whether each part of the output is wanted as soon as there is what it is made of.
    pub(crate) fn is_live(&self) -> bool {
        match self {
            Self::Arguments(_) => false,
            Self::Lines(stream) | Self::Capture(_, stream) => stream.live,
        }
    }
}

/// Opens what the command line named: arguments, a file (`-` for stdin), else stdin.
pub(crate) fn open(arguments: &[String], file: Option<&Path>) -> Result<Source> {
    let (name, stream) = match file {
        None if !arguments.is_empty() => return Ok(Source::Arguments(arguments.to_vec())),
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
            (Some(name), Stream::of(file))
        }
        _ => {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            (None, Stream::of(stdin.context("cannot read the input")?.into()))
        }
    };
    of_stream(stream, name)
}

/// What a stream is by its first bytes; `name` is that of a file.
pub(crate) fn of_stream(stream: Stream, name: Option<String>) -> Result<Source> {
    let cannot = || format!("cannot read {}", name.as_deref().unwrap_or("the input"));
    let Stream { bytes, live } = stream;
    let mut stream = Stream { bytes: with_its_start(bytes).with_context(cannot)?, live };
    let start = stream.bytes.fill_buf().with_context(cannot)?;
    if let Some(format) = format(start) {
        return Ok(Source::Capture(format, stream));
    }
    // Of stdin every line is taken for itself: what writes there may go wrong and come right again.
    if let Some(name) = name.filter(|_| is_binary(start)) {
        bail!(
            "{name} is neither a capture (pcap or pcapng) nor text; `tlp decode --help` and `tlp \
             encode --help` say what they read"
        );
    }
    Ok(Source::Lines(stream))
}

/// Whether a file that starts so is no text: a control character that no text has stands near its
/// start.
fn is_binary(start: &[u8]) -> bool {
    const LOOKED_AT: usize = 512;
    let text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace() || *byte == b'\x1b';
    !start.iter().take(LOOKED_AT).all(text)
}

/// How capture files start.
const STARTS: [(u32, Format); 5] = [
    (0x0a0d_0d0a, Format::PcapNg),
    // In the byte order of whoever wrote it: times in microseconds, and in nanoseconds.
    (0xa1b2_c3d4, Format::Pcap),
    (0xd4c3_b2a1, Format::Pcap),
    (0xa1b2_3c4d, Format::Pcap),
    (0x4d3c_b2a1, Format::Pcap),
];

/// Which kind of capture file starts so, if any.
fn format(start: &[u8]) -> Option<Format> {
    let starts = |(magic, _): &&(u32, _)| start.starts_with(&magic.to_be_bytes());
    STARTS.iter().find(starts).map(|(_, format)| *format)
}

/// Whether a capture file starts so, of which there is more to see.
fn may_be_capture(start: &[u8]) -> bool {
    let goes_on = |magic: [u8; 4]| start.len() < magic.len() && magic.starts_with(start);
    STARTS.iter().any(|(magic, _)| goes_on(magic.to_be_bytes()))
}

/// The stream, where its buffer has enough to tell what it is. A pipe may give a byte at a time; of one
/// that gives lines no more is waited for than tells that they are lines.
fn with_its_start(mut bytes: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
    let mut start = Vec::new();
    while may_be_capture(&start) {
        let there = bytes.fill_buf()?;
        if there.is_empty() || start.is_empty() && !may_be_capture(there) {
            break;
        }
        start.push(there[0]);
        bytes.consume(1);
    }
    Ok(if start.is_empty() { bytes } else { Box::new(Cursor::new(start).chain(bytes)) })
}

/// The longest line that is read, bytes. The longest TLP takes 9 KiB in hex, 13 KiB with blanks
/// between its bytes, and less than 20 KiB as text or JSON with all that is known of it.
const LONGEST_LINE: usize = 64 << 10;

/// A line that is longer than any TLP's. It was passed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the line is too long: more than {LONGEST_LINE} bytes")
    }
}

/// Calls `each` with a place ("line 3") and the line, for every line or argument.
pub(crate) fn for_each_line(
    source: Source,
    mut each: impl FnMut(&str, Result<&str, TooLong>) -> Result<()>,
) -> Result<()> {
    match source {
        Source::Arguments(lines) => {
            for (n, line) in lines.iter().enumerate() {
                each(&format!("argument {}", n + 1), Ok(line))?;
            }
        }
        Source::Lines(mut stream) => {
            let mut bytes = Vec::new();
            for n in 1_u64.. {
                let whole = match read_line(&mut stream.bytes, &mut bytes) {
                    Ok(Some(whole)) => whole,
                    Ok(None) => break,
                    Err(error) => return Err(error).context("cannot read the input"),
                };
                let line = String::from_utf8_lossy(&bytes);
                each(&format!("line {n}"), if whole { Ok(&line) } else { Err(TooLong) })?;
            }
        }
        Source::Capture(..) => bail!("that is a capture file; `tlp decode` reads those"),
    }
    Ok(())
}

/// Reads one line to its end, and says whether it is whole: of one that is too long, the start is
/// kept. Nothing behind the last one.
fn read_line(stream: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    if stream.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.len() < LONGEST_LINE || line.ends_with(b"\n") {
        return Ok(Some(true));
    }
    // More than its end means that there is more of it.
    let mut whole = true;
    loop {
        let there = stream.fill_buf()?;
        let end = there.iter().position(|byte| *byte == b'\n');
        whole &= end.unwrap_or(there.len()) == 0;
        let (read, ends) =
            (end.map_or(there.len(), |at| at + 1), end.is_some() || there.is_empty());
        stream.consume(read);
        if ends {
            return Ok(Some(whole));
        }
    }
}

/// Why a text is not hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHex {
    /// It has a character that is no digit.
    Character(char),
    /// The last byte has one digit only.
    Odd,
}

impl fmt::Display for NotHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character(c) => write!(f, "`{}` is not hex", c.escape_debug()),
            Self::Odd => f.write_str("an odd number of hex digits"),
        }
    }
}

impl From<NotHex> for String {
    fn from(error: NotHex) -> Self {
        error.to_string()
    }
}

/// Reads hex: an optional `0x`, then digits with blanks, `_` or `:` between them.
pub(crate) fn parse_hex(text: &str) -> Result<Vec<u8>, NotHex> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    let mut high = None;
    for c in digits.chars().filter(|c| !c.is_whitespace() && !matches!(c, '_' | ':')) {
        let digit = c.to_digit(16).ok_or(NotHex::Character(c))?;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push((high << 4 | digit) as u8),
        }
    }
    if high.is_some() {
        return Err(NotHex::Odd);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_may_be_spaced_out() {
        assert_eq!(parse_hex("0x0a_0B: 0c"), Ok(vec![10, 11, 12]));
        assert_eq!(parse_hex(""), Ok(vec![]));
        assert!(parse_hex("0ab").unwrap_err().to_string().contains("odd"));
        assert!(parse_hex("0g").unwrap_err().to_string().contains("`g`"));
        assert_eq!(parse_hex("é"), Err(NotHex::Character('é')));
    }

    /// Gives a byte at a time, and fails when more is asked for than it has.
    struct Slow(Cursor<Vec<u8>>);

    impl io::Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(&mut buffer[..1])? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                one => Ok(one),
            }
        }
    }

    #[test]
    fn a_pipe_that_gives_a_byte_at_a_time_is_waited_for_as_long_as_it_may_be_a_capture() {
        let is_capture = |start: &[u8]| {
            let slow = Slow(Cursor::new(start.to_vec()));
            let stream = Stream::new(BufReader::new(slow), true);
            of_stream(stream, None).map(|source| match source {
                Source::Capture(format, _) => Some(format),
                _ => None,
            })
        };
        assert_eq!(is_capture(&[0x0a, 0x0d, 0x0d, 0x0a]).unwrap(), Some(Format::PcapNg));
        assert_eq!(is_capture(&[0xd4, 0xc3, 0xb2, 0xa1]).unwrap(), Some(Format::Pcap));
        for lines in [&b"0"[..], b"\n0", b"\n\r\n", b"\xd4\xc3\xb2\n"] {
            assert_eq!(is_capture(lines).unwrap(), None, "{lines:?}");
        }
        assert!(is_capture(b"\n\r").is_err(), "waited for");
    }

    #[test]
    fn captures_are_told_by_their_first_bytes() {
        assert_eq!(format(&[0xd4, 0xc3, 0xb2, 0xa1]), Some(Format::Pcap));
        assert_eq!(format(&[0xa1, 0xb2, 0x3c, 0x4d, 0]), Some(Format::Pcap));
        assert_eq!(format(&[0x0a, 0x0d, 0x0d, 0x0a]), Some(Format::PcapNg));
        assert_eq!(format(b"00000001"), None);
        assert_eq!(format(b"00"), None);
    }
}
