//! What a driver does with a model device beside registers and transfers: writes and reads of many
//! bytes, reads of none, messages either way.

use super::Question;
use super::model::ModelDriver;
use crate::device::{self, LONGEST_MESSAGE, SAYINGS};
use crate::egress::Egress;
use crate::host::{Asker, HOST_ID, Purpose, first};
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::random::Random;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{ByteEnables, Kind, MsgCode, MsgRouting, Repr};

/// Bytes of a device's memory that drivers write and read; where devices ask each other it is theirs.
const AREA: usize = device::PARTS * device::PART as usize;
/// Watts and scale: 25 W.
const POWER_LIMIT: [u8; 4] = [25, 0, 0, 0];
const VENDOR: [u8; 2] = [0x1b, 0x36];

/// What it did so far.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// What the device's memory holds; nothing before it was written.
    area: Vec<u8>,
    /// Reads of it that are outstanding: until then nothing is written.
    reading: usize,
    /// Messages that were said.
    said: u32,
}

impl ModelDriver {
    /// Writes bytes of the device's memory, or reads some.
    pub(super) fn write_wide(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        let whole = self.kinds.area.is_empty();
        if whole {
            self.kinds.area.resize(AREA, 0);
        }
        if self.kinds.reading > 0 || !whole && random.chance(400_000) {
            let length = random.between(1, AREA as u64) as usize;
            let from = random.below((AREA - length + 1) as u64) as usize;
            self.kinds.reading += 1;
            let question = Question::Wide { from: from as u16 };
            return self.ask_for_bytes(out, device::part(0) + from as u64, length, question);
        }
        let length =
            if whole { AREA } else { random.between(1, self.payload.min(AREA) as u64) as usize };
        let from = random.below((AREA - length + 1) as u64) as usize;
        pattern::fill(random.next(), 0, &mut self.kinds.area[from..from + length]);
        let mut at = from;
        while at < from + length {
            let address = device::part(0) + at as u64;
            let front = (address & 3) as usize;
            let piece = (from + length - at).min(self.payload - front);
            let (enables, dwords) = ByteEnables::for_range(address, piece);
            let mut data = vec![0xbb; usize::from(dwords) * 4];
            data[front..front + piece].copy_from_slice(&self.kinds.area[at..at + piece]);
            self.write_some(out, (self.port, address & !3), (&data, enables), false);
            at += piece;
        }
        self.done += 1;
    }

    /// Reads bytes of the device's registers, wherever they begin.
    pub(super) fn ask_for_bytes(
        &mut self,
        out: &mut Egress<Purpose>,
        at: u64,
        length: usize,
        question: Question,
    ) {
        let address = self.registers(self.port) + at;
        let (enables, length_dw) = ByteEnables::for_range(address, length);
        self.ask(out, question, |requester, tag| Kind::MemRead {
            requester,
            tag,
            address: address & !3,
            length_dw,
            enables,
            hint: None,
            locked: false,
        });
    }

    /// Some of what was written is here again.
    pub(super) fn part_of_wide(
        &mut self,
        from: u16,
        done: &Completed<Asker>,
        payload: &[u8],
    ) -> Verdict {
        self.kinds.reading -= usize::from(done.last);
        let Some(bytes) = done.bytes.filter(|_| !done.doubtful) else { return Ok(()) };
        let at = usize::from(from) + done.offset;
        let data = &payload[done.skip..][..bytes];
        match data.iter().zip(&self.kinds.area[at..]).position(|(is, was)| is != was) {
            None => Ok(()),
            Some(wrong) => {
                let what = format!("byte {} of a device's memory read wrong", at + wrong);
                Err(Violation::new(3, what))
            }
        }
    }

    /// A read of no bytes, which only says that everything before it has come.
    pub(super) fn ask_for_nothing(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        let address = self.registers(self.port) + random.below(16) * 4;
        self.ask(out, Question::Nothing, |requester, tag| Kind::MemRead {
            requester,
            tag,
            address,
            length_dw: 1,
            enables: ByteEnables { first: 0, last: 0 },
            hint: None,
            locked: false,
        });
    }

    /// Has the device send a message.
    pub(super) fn have_it_say(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        let saying = random.below(SAYINGS) as u8;
        let dwords = random.below(2) * random.below(LONGEST_MESSAGE as u64 / 4 + 1);
        let [a, b, c, d] = self.next_number();
        self.write(out, device::SAY, &[saying, dwords as u8, 0, 0, a, b, c, d]);
        self.done += 1;
    }

    fn next_number(&mut self) -> [u8; 4] {
        self.kinds.said += 1;
        (self.life << 16 | self.kinds.said & 0xffff).to_le_bytes()
    }

    /// Sends a message: to its device, to all of its host, or to the switch.
    pub(super) fn send_message(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        let code =
            if random.chance(500_000) { MsgCode::VendorDefined0 } else { MsgCode::VendorDefined1 };
        let (routing, code, purpose) = match random.below(6) {
            0..=2 => (MsgRouting::ById, code, Purpose::Posted { port: first(self.port) }),
            3 | 4 => (MsgRouting::Broadcast, code, Purpose::Broadcast),
            _ if random.chance(500_000) => {
                (MsgRouting::Local, MsgCode::SetSlotPowerLimit, Purpose::Ends)
            }
            _ => (MsgRouting::Local, MsgCode::VendorDefined1, Purpose::Ends),
        };
        let length =
            random.below(2) as usize * random.below(LONGEST_MESSAGE as u64 / 4 + 1) as usize;
        let number = self.next_number();
        let words = [number[0]; LONGEST_MESSAGE];
        let mut fields = [0; 8];
        let data: &[u8] = if code == MsgCode::SetSlotPowerLimit {
            &POWER_LIMIT
        } else {
            if routing == MsgRouting::ById {
                fields[..2]
                    .copy_from_slice(&self.layout.device_id(first(self.port)).bits().to_be_bytes());
            }
            fields[2..4].copy_from_slice(&VENDOR);
            fields[4..].copy_from_slice(&number);
            &words[..length * 4]
        };
        let tag = Tag::new(number[0].into()).expect("8 bits");
        let kind = Kind::Message { routing, code, requester: HOST_ID, tag, fields, data };
        let mut repr = Repr::new(kind);
        let class = if code == MsgCode::SetSlotPowerLimit { 0 } else { self.class };
        self.dresser.message(&mut repr, class);
        out.push(&repr, purpose);
        self.done += 1;
    }
}
