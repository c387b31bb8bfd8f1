//! The firmware's log: defmt's frames, which say by number what the firmware's ELF file has in
//! words.

pub mod source;

use std::collections::BTreeMap;

use defmt_decoder::{Encoding, Location, Table};
use serde::Serialize;

/// What a firmware's ELF file has of its log.
pub struct Texts {
    table: Table,
    places: BTreeMap<u64, Location>,
}

/// Why a file has no texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextsError {
    /// It is no ELF file, or one of another version of defmt.
    #[error("its log cannot be decoded: {0}")]
    Unreadable(String),
    /// Its frames are not told from each other.
    #[error(
        "its log has the encoding raw, in which nobody finds the next frame; build it with rzCOBS, defmt's default"
    )]
    Raw,
    /// It has none.
    #[error(
        "it has no log; give the firmware's ELF file as cargo built it, not the image and not stripped"
    )]
    None,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Time, as the firmware prints it.
    pub time: Option<String>,
    /// `trace` to `error`; none when it has no level.
    pub level: Option<String>,
    /// The text.
    pub text: String,
    /// File and line of the firmware's source.
    pub place: Option<String>,
}

impl Texts {
    /// Those of an ELF file.
    ///
    /// # Errors
    ///
    /// When it has none.
    pub fn parse(elf: &[u8]) -> Result<Self, TextsError> {
        let unreadable = |error| TextsError::Unreadable(format!("{error:#}"));
        let table = Table::parse(elf).map_err(unreadable)?.ok_or(TextsError::None)?;
        if table.encoding() != Encoding::Rzcobs {
            return Err(TextsError::Raw);
        }
        // Without debug information there are no places, and that is all.
        let places = table.get_locations(elf).unwrap_or_default();
        Ok(Self { table, places })
    }

    /// A decoder.
    #[must_use]
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder { texts: self, pending: Vec::new(), damaged: 0, decoded: 0 }
    }

    /// The line of a frame, without the zero that ends it.
    fn line(&self, frame: &[u8]) -> Option<Line> {
        let mut stream = self.table.new_stream_decoder();
        stream.received(frame);
        stream.received(&[0]);
        let frame = stream.decode().ok()?;
        Some(Line {
            time: frame.display_timestamp().map(|time| time.to_string()),
            level: frame.level().map(|level| level.as_str().to_owned()),
            text: frame.display_message().to_string(),
            place: self
                .places
                .get(&frame.index())
                .map(|place| format!("{}:{}", place.file.display(), place.line)),
        })
    }
}

/// Bytes of the longest frame. What is longer is none.
const LONGEST: usize = 16 << 10;

/// Makes lines of bytes. Frames end with a zero (defmt's encoding rzCOBS); between them there may be
/// plain words, which are a boot loader's.
pub struct Decoder<'texts> {
    texts: &'texts Texts,
    /// What came since the last zero.
    pending: Vec<u8>,
    damaged: u64,
    decoded: u64,
}

impl Decoder<'_> {
    /// Frames that were none: bytes were lost, or the ELF file is of another firmware.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Frames that were lines.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Takes bytes as they come and gives the lines that are whole.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == 0) {
            match part.split_last() {
                Some((0, rest)) => {
                    self.pending.extend_from_slice(rest);
                    let frame = std::mem::take(&mut self.pending);
                    self.end(frame, &mut lines);
                }
                _ => self.pending.extend_from_slice(part),
            }
        }
        // A boot loader that stays has said all there is to say; no zero follows.
        if self.pending.ends_with(b"\n") && plain_from(&self.pending).is_some() {
            self.words(&mut lines);
        } else if self.pending.len() > LONGEST {
            self.pending.clear();
            self.damaged += 1;
        }
        lines
    }

    /// Nothing follows: the words that no end of a line and no zero came behind. A frame that is not
    /// whole is none.
    pub fn finish(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        self.words(&mut lines);
        lines
    }

    /// A frame is whole, or what was between two.
    fn end(&mut self, frame: Vec<u8>, lines: &mut Vec<Line>) {
        if frame.is_empty() {
            return;
        }
        match self.texts.line(&frame) {
            Some(line) => {
                self.decoded += 1;
                lines.push(line);
            }
            None if plain_from(&frame).is_none() => self.damaged += 1,
            None => {
                self.pending = frame;
                self.words(lines);
            }
        }
    }

    /// Takes the words that end what is pending. What is in front of them is a frame that was cut
    /// short, or a byte that the line made up when the card's power came.
    fn words(&mut self, lines: &mut Vec<Line>) {
        if let Some(from) = plain_from(&self.pending) {
            self.damaged += u64::from(from != 0);
            lines.extend(plain(&self.pending[from..]));
            self.pending.clear();
        }
    }
}

/// Where words begin that go on to the end, if any do: with all of it, or with the first line behind
/// the last byte that is no letter of theirs, which frames have.
fn plain_from(bytes: &[u8]) -> Option<usize> {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    let from = match bytes.iter().rposition(|byte| !printable(byte)) {
        None => 0,
        Some(at) => at + bytes[at..].iter().position(|byte| *byte == b'\n')? + 1,
    };
    (bytes.len() - from >= 4).then_some(from)
}

fn plain(words: &[u8]) -> Vec<Line> {
    let text = String::from_utf8_lossy(words);
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| Line { time: None, level: None, text: line.to_owned(), place: None }).collect()
}

#[cfg(test)]
mod tests;
