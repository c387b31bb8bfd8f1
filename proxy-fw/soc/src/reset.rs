//! What outlasts a reset in memory: why the last life ended, and what the boot loader started.
//!
//! A board keeps [`RETAINED`] bytes where neither boot loader nor firmware put anything else. The
//! boot loader [begins](begin) each life; the firmware learns of it ([`life`]), and
//! [writes down](write_down) what ends it. A CRC tells all that from what memory has after power
//! came on, so there is nothing to be set up.

use card_image::SlotId;
use core::fmt::{self, Write};
use crc::{CRC_32_ISO_HDLC, Crc, Table};
use heapless::String;
use proxy_core::control::{MAX_RESET_TEXT, ResetCause, ResetReport};

/// Bytes that a board keeps.
pub const RETAINED: usize = LIFE + DEATH;

/// Bytes of what is known of the life: CRC, number, slot, cause, counts.
const LIFE: usize = 32;

/// Bytes of what ended one: CRC, number of the life, cause, length of the text, place, time.
const DEATH: usize = 24 + MAX_RESET_TEXT;

/// Small tables: it is computed a few times in a life.
const CRC: Crc<u32, Table<0>> = Crc::<u32, Table<0>>::new(&CRC_32_ISO_HDLC);

/// Resets by cause, since power came on; each stays at its end.
pub type ResetCounts = [u16; ResetCause::ALL.len()];

/// What they are called among the card's counters.
pub const COUNTERS: [&str; ResetCause::ALL.len()] = [
    "resets: power came on",
    "resets: from outside",
    "resets: by the watchdog",
    "resets: asked for",
    "resets: panics",
    "resets: by a debugger",
    "resets: traps",
    "resets: clock stood still",
];

/// A cause in a word or two, for the log.
pub fn name(cause: ResetCause) -> &'static str {
    match cause {
        ResetCause::Power => "power on",
        ResetCause::Pin => "outside",
        ResetCause::Watchdog => "watchdog",
        ResetCause::Software => "asked for",
        ResetCause::Panic => "panic",
        ResetCause::Debugger => "debugger",
        ResetCause::Trap => "trap",
        ResetCause::Clock => "clock",
    }
}

/// The life that the boot loader began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its number since power came on, from 1.
    pub number: u32,
    /// Why it began.
    pub cause: ResetCause,
    /// How often each cause has been.
    pub counts: ResetCounts,
    /// What the boot loader started.
    pub started: Option<Started>,
}

/// What the boot loader started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The slot whose image it is.
    pub slot: SlotId,
    /// It has yet to report that it is healthy.
    pub trying: bool,
    /// The other slot has an image that was healthy, which is started when this one's starts are used
    /// up: they are not yet.
    pub fallback: bool,
}

impl Started {
    /// Whether it is on trial, with another one to go back to: a life that comes to nothing ends then,
    /// since the boot loader counts it.
    pub fn gives_way(self) -> bool {
        self.trying && self.fallback
    }

    fn emit(self) -> u8 {
        0x80 | self.slot as u8 | u8::from(self.trying) << 1 | u8::from(self.fallback) << 2
    }

    fn parse(byte: u8) -> Option<Self> {
        let slot = SlotId::ALL[usize::from(byte & 1)];
        let started = Self { slot, trying: byte & 2 != 0, fallback: byte & 4 != 0 };
        (started.emit() == byte).then_some(started)
    }
}

/// The end of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Why.
    pub cause: ResetCause,
    /// Address of the instruction, or 0.
    pub place: u32,
    /// Milliseconds since the life began.
    pub lived_ms: u64,
    /// For a person.
    pub text: String<MAX_RESET_TEXT>,
}

impl Death {
    /// One of this cause, with a text of which what fits is kept.
    pub fn new(cause: ResetCause, place: u32, lived_ms: u64, text: fmt::Arguments<'_>) -> Self {
        let mut kept = Kept(String::new());
        // It takes all that it is given.
        let _ = kept.write_fmt(text);
        Self { cause, place, lived_ms, text: kept.0 }
    }
}

/// Takes text up to its end, and no more.
struct Kept(String<MAX_RESET_TEXT>);

impl Write for Kept {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.push(character).is_err() {
                break;
            }
        }
        Ok(())
    }
}

type Retained = [u8; RETAINED];

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Puts the CRC in front.
fn close(part: &mut [u8]) {
    let crc = CRC.checksum(&part[4..]);
    part[..4].copy_from_slice(&crc.to_le_bytes());
}

fn is_whole(part: &[u8]) -> bool {
    word(part, 0) == CRC.checksum(&part[4..])
}

/// The life that the boot loader began; `None` when no boot loader did.
pub fn life(retained: &Retained) -> Option<Life> {
    let life = &retained[..LIFE];
    let number = word(life, 4);
    if !is_whole(life) || number == 0 {
        return None;
    }
    let mut counts = ResetCounts::default();
    let (pairs, _) = life[12..].as_chunks::<2>();
    counts.iter_mut().zip(pairs).for_each(|(count, pair)| *count = u16::from_le_bytes(*pair));
    Some(Life {
        number,
        cause: ResetCause::from_number(life[8])?,
        counts,
        started: Started::parse(life[9]),
    })
}

fn set_life(retained: &mut Retained, life: &Life) {
    let part = &mut retained[..LIFE];
    part.fill(0);
    part[4..8].copy_from_slice(&life.number.to_le_bytes());
    part[8] = life.cause as u8;
    part[9] = life.started.map_or(0, Started::emit);
    let (pairs, _) = part[12..].as_chunks_mut::<2>();
    pairs.iter_mut().zip(life.counts).for_each(|(pair, count)| *pair = count.to_le_bytes());
    close(part);
}

/// Begins a life, which is the boot loader's to do once after each reset. `hardware` is the cause
/// where the board has a register for it; what the firmware wrote down says more than that.
pub fn begin(retained: &mut Retained, hardware: Option<ResetCause>) -> Life {
    let before = life(retained);
    let written = before.and_then(|before| death(retained, before.number)).map(|death| death.cause);
    let silent = if before.is_some() { ResetCause::Pin } else { ResetCause::Power };
    let cause = written.or(hardware).unwrap_or(silent);
    let mut life = Life {
        number: before.map_or(0, |before| before.number).saturating_add(1),
        cause,
        counts: before.map_or_else(ResetCounts::default, |before| before.counts),
        started: None,
    };
    let count = &mut life.counts[cause as usize];
    *count = count.saturating_add(1);
    set_life(retained, &life);
    life
}

/// The boot loader says what it is about to start.
pub fn set_started(retained: &mut Retained, started: Started) {
    if let Some(life) = life(retained) {
        set_life(retained, &Life { started: Some(started), ..life });
    }
}

/// The firmware writes down what ends this life.
pub fn write_down(retained: &mut Retained, death: &Death) {
    let number = life(retained).map_or(0, |life| life.number);
    let part = &mut retained[LIFE..];
    part.fill(0);
    part[4..8].copy_from_slice(&number.to_le_bytes());
    part[8] = death.cause as u8;
    part[9] = death.text.len() as u8;
    part[12..16].copy_from_slice(&death.place.to_le_bytes());
    part[16..24].copy_from_slice(&death.lived_ms.to_le_bytes());
    part[24..][..death.text.len()].copy_from_slice(death.text.as_bytes());
    close(part);
}

/// What ended the life of this number, if that was written down.
fn death(retained: &Retained, number: u32) -> Option<Death> {
    let part = &retained[LIFE..];
    if !is_whole(part) || word(part, 4) != number {
        return None;
    }
    let text = part[24..].get(..usize::from(part[9]))?;
    Some(Death {
        cause: ResetCause::from_number(part[8])?,
        place: word(part, 12),
        lived_ms: u64::from(word(part, 20)) << 32 | u64::from(word(part, 16)),
        text: String::try_from(core::str::from_utf8(text).ok()?).ok()?,
    })
}

/// What there is to say of the reset that began this life.
pub fn report(retained: &Retained) -> Option<ResetReport> {
    let life = life(retained)?;
    let death = death(retained, life.number - 1).filter(|death| death.cause == life.cause);
    let (place, lived_ms, text) =
        death.map_or_else(Default::default, |death| (death.place, death.lived_ms, death.text));
    Some(ResetReport { cause: life.cause, boots: life.number, lived_ms, place, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_life_begins_with_the_end_of_the_one_before() {
        let mut kept = [0x5a; RETAINED];
        assert_eq!((life(&kept), report(&kept)), (None, None));
        let first = begin(&mut kept, None);
        assert_eq!((first.number, first.cause), (1, ResetCause::Power));
        let started = Started { slot: SlotId::B, trying: true, fallback: false };
        set_started(&mut kept, started);
        assert_eq!(life(&kept).unwrap().started, Some(started));

        let death = Death::new(ResetCause::Panic, 0x8000_1234, 5 << 32, format_args!("no {}", 7));
        write_down(&mut kept, &death);
        let second = begin(&mut kept, Some(ResetCause::Software));
        assert_eq!((second.number, second.cause), (2, ResetCause::Panic), "it says more");
        assert_eq!(second.started, None, "nothing yet in this life");
        let said = report(&kept).unwrap();
        assert_eq!((said.cause, said.boots, said.lived_ms), (ResetCause::Panic, 2, 5 << 32));
        assert_eq!((said.place, said.text.as_str()), (0x8000_1234, "no 7"));

        // Nobody wrote anything down: the old words are not taken for new ones.
        let third = begin(&mut kept, None);
        assert_eq!(third.cause, ResetCause::Pin);
        assert_eq!(report(&kept).unwrap().text, "");
        let fourth = begin(&mut kept, Some(ResetCause::Debugger));
        assert_eq!(fourth.cause, ResetCause::Debugger);
        assert_eq!(fourth.counts, [1, 1, 0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn counts_stay_at_their_end() {
        let mut kept = [0; RETAINED];
        let mut life = begin(&mut kept, None);
        life.counts[1] = u16::MAX;
        set_life(&mut kept, &life);
        assert_eq!(begin(&mut kept, None).counts[1], u16::MAX);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(MAX_RESET_TEXT);
        let death = Death::new(ResetCause::Trap, 0, 0, format_args!("x{text}"));
        assert_eq!(death.text.len(), MAX_RESET_TEXT - 1);
        let mut kept = [0; RETAINED];
        begin(&mut kept, None);
        write_down(&mut kept, &death);
        begin(&mut kept, None);
        assert_eq!(report(&kept).unwrap().text, death.text);
    }

    #[test]
    fn each_slot_is_known_again() {
        let mut kept = [0; RETAINED];
        begin(&mut kept, None);
        for slot in SlotId::ALL {
            for (trying, fallback) in [(false, false), (false, true), (true, false), (true, true)] {
                let started = Started { slot, trying, fallback };
                set_started(&mut kept, started);
                assert_eq!(life(&kept).unwrap().started, Some(started));
            }
        }
    }

    #[test]
    fn a_flipped_bit_makes_it_nothing() {
        let mut kept = [0; RETAINED];
        begin(&mut kept, None);
        write_down(&mut kept, &Death::new(ResetCause::Watchdog, 1, 2, format_args!("here")));
        for bit in 0..RETAINED * 8 {
            let mut flipped = kept;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let cause = begin(&mut flipped, None).cause;
            let expected = if bit < LIFE * 8 { ResetCause::Power } else { ResetCause::Pin };
            assert_eq!(cause, expected, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_life_or_not(
            bytes in prop::collection::vec(any::<u8>(), RETAINED),
            close_life: bool,
            close_death: bool,
        ) {
            let mut kept: Retained = bytes.try_into().unwrap();
            if close_life {
                close(&mut kept[..LIFE]);
            }
            if close_death {
                close(&mut kept[LIFE..]);
            }
            let _ = (life(&kept), report(&kept));
            begin(&mut kept, None);
            prop_assert!(life(&kept).is_some());
        }
    }
}
