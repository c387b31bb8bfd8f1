//! How a card's flash has its boot loader.

use crc::{CRC_32_ISO_HDLC, Crc};
use thiserror::Error;

/// What starts a card's boot loader, and so what the flash has of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "probe", derive(serde::Deserialize))]
#[cfg_attr(feature = "probe", serde(rename_all = "kebab-case"))]
pub enum BootLoader {
    /// The core itself, whose first instruction is the first in flash: the program, and behind it two
    /// words of 32 bits each and little-endian, the program's bytes and their CRC-32 (ISO-HDLC). Nobody
    /// on the card looks at these: they tell a boot loader from any other file before it is written.
    #[default]
    Plain,
    /// LiteX's BIOS: two words in front, of 32 bits each and little-endian, the program's bytes and
    /// their CRC-32 (ISO-HDLC). It copies the program to the beginning of main memory and enters it
    /// (enjoy-digital/litex, `litex/soc/software/bios/boot.c`, `flashboot`).
    LitexBios,
}

/// Why a file is no boot loader.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoBootLoader {
    /// Nothing behind it says that it is one, and all of it.
    #[error(
        "it is no boot loader, or not all of one: those end with two words, their length and their CRC-32"
    )]
    Plain,
    /// The length in front is another than that of what follows.
    #[error(
        "LiteX's BIOS wants the program's length in its first word: that says {said}, {there} bytes follow"
    )]
    Length {
        /// What the first word has.
        said: u32,
        /// Bytes behind the two words.
        there: usize,
    },
    /// The CRC in front is another.
    #[error(
        "LiteX's BIOS wants the program's CRC-32 in its second word: that says {said:#010x}, it is {is:#010x}"
    )]
    Crc {
        /// What the second word has.
        said: u32,
        /// What it would have to be.
        is: u32,
    },
}

/// Bytes of the two words.
const WORDS: usize = 8;

/// The fewest bytes of a program that LiteX's BIOS starts.
const LEAST: usize = 32;

/// A program's length and CRC.
fn words(program: &[u8]) -> [u8; WORDS] {
    let length = u32::try_from(program.len()).expect("a program is shorter than that");
    (u64::from(length) | u64::from(crc(program)) << 32).to_le_bytes()
}

fn crc(program: &[u8]) -> u32 {
    Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(program)
}

impl BootLoader {
    /// A program as the flash has it. What is too short for the BIOS is filled up with zeros.
    ///
    /// # Panics
    ///
    /// When it has 4 GB.
    #[must_use]
    pub fn in_flash(self, program: &[u8]) -> Vec<u8> {
        let mut program = program.to_vec();
        if self == Self::LitexBios {
            program.resize(program.len().max(LEAST), 0);
        }
        let words = words(&program);
        match self {
            Self::Plain => [&program[..], &words].concat(),
            Self::LitexBios => [&words[..], &program].concat(),
        }
    }

    /// Whether bytes are what the flash has of a boot loader, as far as whatever starts it looks.
    ///
    /// # Errors
    ///
    /// Why it would not be started.
    pub fn check(self, bytes: &[u8]) -> Result<(), NoBootLoader> {
        if self == Self::Plain {
            let parts = bytes.split_last_chunk::<WORDS>();
            let is_whole = |(program, end): (&[u8], &[u8; WORDS])| {
                !program.is_empty() && words(program) == *end
            };
            return if parts.is_some_and(is_whole) { Ok(()) } else { Err(NoBootLoader::Plain) };
        }
        let word =
            |at: usize| bytes.get(at..at + 4).map_or([0; 4], |word| word.try_into().expect("4"));
        let (length, said) = (u32::from_le_bytes(word(0)), u32::from_le_bytes(word(4)));
        let program = bytes.get(WORDS..).unwrap_or_default();
        if program.len() < LEAST || length as usize != program.len() {
            return Err(NoBootLoader::Length { said: length, there: program.len() });
        }
        let is = crc(program);
        if said == is { Ok(()) } else { Err(NoBootLoader::Crc { said, is }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bios_finds_length_and_crc_in_front() {
        // The check value of CRC-32/ISO-HDLC is that of these nine bytes.
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        let program = [7; 40];
        let bytes = BootLoader::LitexBios.in_flash(&program);
        assert_eq!(bytes[..4], [40, 0, 0, 0]);
        assert_eq!(bytes[4..8], crc(&program).to_le_bytes());
        assert_eq!(bytes[8..], program);
        assert_eq!(BootLoader::LitexBios.check(&bytes), Ok(()));
        let short = BootLoader::LitexBios.in_flash(&[1]);
        assert_eq!((short.len(), BootLoader::LitexBios.check(&short)), (WORDS + LEAST, Ok(())));
    }

    #[test]
    fn what_the_core_starts_says_at_its_end_what_it_is() {
        let program = [7; 40];
        let bytes = BootLoader::Plain.in_flash(&program);
        assert_eq!(bytes[..40], program);
        assert_eq!(bytes[40..44], [40, 0, 0, 0]);
        assert_eq!(bytes[44..], crc(&program).to_le_bytes());
        assert_eq!(BootLoader::Plain.check(&bytes), Ok(()));
        for length in 0..bytes.len() {
            assert_eq!(BootLoader::Plain.check(&bytes[..length]), Err(NoBootLoader::Plain));
            let mut damaged = bytes.clone();
            damaged[length] ^= 0x10;
            assert_eq!(BootLoader::Plain.check(&damaged), Err(NoBootLoader::Plain));
        }
        for other in [&b"a text, and no boot loader\n"[..], &[0; 64], &[0xff; 64], &[0; 8]] {
            assert_eq!(BootLoader::Plain.check(other), Err(NoBootLoader::Plain));
        }
    }

    #[test]
    fn what_the_bios_would_not_start_is_told() {
        let bytes = BootLoader::LitexBios.in_flash(&[7; 40]);
        let said = |bytes: &[u8]| BootLoader::LitexBios.check(bytes).unwrap_err().to_string();
        for length in 0..bytes.len() {
            assert!(said(&bytes[..length]).contains("first word"), "{length}");
        }
        let mut damaged = bytes.clone();
        damaged[20] ^= 1;
        assert!(said(&damaged).contains("CRC-32 in its second word"), "{}", said(&damaged));
        damaged.push(0);
        assert!(said(&damaged).contains("that says 40, 41 bytes follow"), "{}", said(&damaged));
    }
}
