//! A debugger at an emulated card, as a probe at a real one: looks into its memory and changes it.
//!
//! It speaks GDB's remote serial protocol (Debugging with GDB, appendix E) to the emulator.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the emulator may take for an answer.
const BOUND: Duration = Duration::from_secs(20);

/// Bytes of the longest answer that is waited for.
const LONGEST: usize = 16 << 10;

/// A debugger that is attached: the card stands still until it is [detached](Self::detach).
pub struct Debugger<S = UnixStream> {
    stream: S,
}

impl Debugger {
    /// Attaches to the card whose debugger's socket this is (`NAME.gdb` in the network's folder), which
    /// stops it.
    ///
    /// # Errors
    ///
    /// When the emulator is not there.
    pub fn attach(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| {
            format!("no emulator is at {}: does the card run?", socket.display())
        })?;
        stream.set_read_timeout(Some(BOUND))?;
        stream.set_write_timeout(Some(BOUND))?;
        Ok(Self { stream })
    }
}

impl<S: Read + Write> Debugger<S> {
    /// The word at an address.
    ///
    /// # Errors
    ///
    /// When nothing is there, or the emulator is gone.
    pub fn word(&mut self, at: u32) -> Result<u32> {
        let answer = self.ask(&format!("m{at:x},4"))?;
        ensure!(answer.len() == 8, "the word at {at:#010x} cannot be read: {answer}");
        let word = u32::from_str_radix(&answer, 16);
        Ok(word.with_context(|| format!("the word at {at:#010x} is {answer}"))?.swap_bytes())
    }

    /// Changes the word at an address.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or the emulator is gone.
    pub fn set_word(&mut self, at: u32, word: u32) -> Result<()> {
        let answer = self.ask(&format!("M{at:x},4:{:08x}", word.swap_bytes()))?;
        ensure!(answer == "OK", "the word at {at:#010x} cannot be written: {answer}");
        Ok(())
    }

    /// Lets the card go on.
    ///
    /// # Errors
    ///
    /// When the emulator is gone.
    pub fn detach(mut self) -> Result<()> {
        let answer = self.ask("D")?;
        ensure!(answer == "OK", "the card does not go on: {answer}");
        Ok(())
    }

    /// What is answered to a command.
    fn ask(&mut self, command: &str) -> Result<String> {
        let sum = sum(command.as_bytes());
        write!(self.stream, "${command}#{sum:02x}").context("the emulator is gone")?;
        loop {
            let answer = self.packet().with_context(|| format!("the answer to `{command}`"))?;
            // It waits for this before it takes another command.
            self.stream.write_all(b"+").context("the emulator is gone")?;
            // That the card has stopped is said whenever it has, which attaching makes it do.
            if !answer.starts_with(['T', 'S']) {
                return Ok(answer);
            }
        }
    }

    /// The next packet, behind the acknowledgement of what was said before.
    fn packet(&mut self) -> Result<String> {
        loop {
            match self.byte()? {
                b'$' => break,
                b'+' => {}
                b'-' => bail!("the emulator wants it again"),
                other => bail!("no packet begins with {:?}", char::from(other)),
            }
        }
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => text.push(byte),
            }
            ensure!(text.len() <= LONGEST, "it has no end");
        }
        let said = String::from_utf8_lossy(&[self.byte()?, self.byte()?]).into_owned();
        ensure!(
            u8::from_str_radix(&said, 16).ok() == Some(sum(&text)),
            "its checksum is {said} and should be {:02x}",
            sum(&text)
        );
        String::from_utf8(text).context("it is no text")
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).context("the emulator says nothing")?;
        Ok(byte[0])
    }
}

/// A packet's checksum.
fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// An emulator that says what it was told to, whatever it hears.
    struct Emulator {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Emulator {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.says.read(into)
        }
    }

    impl Write for Emulator {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn debugger(says: &str) -> Debugger<Emulator> {
        let says = io::Cursor::new(says.as_bytes().to_vec());
        Debugger { stream: Emulator { says, heard: Vec::new() } }
    }

    #[test]
    fn words_have_their_bytes_in_the_cards_order() {
        // That it has stopped is said between.
        let mut debugger = debugger("+$T02thread:01;#04$17caac57#5c+$OK#9a");
        assert_eq!(debugger.word(0x8000_0000).unwrap(), 0x57ac_ca17);
        debugger.set_word(0x8000_0000, 0x1234_5678).unwrap();
        let heard = String::from_utf8(debugger.stream.heard).unwrap();
        assert_eq!(heard, "$m80000000,4#55++$M80000000,4:78563412#13+");
    }

    #[test]
    fn what_the_emulator_does_not_do_is_said() {
        for (says, why) in [
            ("+$E14#aa", "the word at 0x00000004 cannot be read: E14"),
            ("+$17caac57#00", "its checksum is 00 and should be 5c"),
            ("+$17ca", "the emulator says nothing"),
            ("-", "the emulator wants it again"),
            ("+x", "no packet begins with 'x'"),
        ] {
            let error = format!("{:#}", debugger(says).word(4).unwrap_err());
            assert!(error.contains(why), "{says}: {error}");
        }
        let error = debugger("+$E01#a6").set_word(4, 0).unwrap_err().to_string();
        assert!(error.contains("cannot be written: E01"), "{error}");
    }
}
