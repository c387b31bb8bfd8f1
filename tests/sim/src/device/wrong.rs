//! Answers that are wrong: each way to say something else than what a request is owed.

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// What of an answer is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wrong {
    /// The tag: it may be that of another request that is outstanding.
    Tag,
    ByteCount,
    LowerAddress,
    /// A doubleword of data too much or one too few.
    Length,
    /// Another status than the answer had, or one that is reserved; without data.
    Status,
    /// It says that somebody else asked.
    Requester,
    /// Data where none is owed, or none where some is.
    Data,
    /// Data that comes with another status than success.
    FailureWithData,
}

/// Bytes of a completion's header (PCIe 5.0 section 2.2.9).
const HEADER: usize = 12;
/// In its first byte: data follows.
const WITH_DATA: u8 = 0x40;
/// Tags that differ by no more than this are often outstanding together.
const OTHER_TAGS: u64 = 3;

impl Wrong {
    /// Those that are drawn: all.
    pub(crate) const DRAWN: [Self; 8] = [
        Self::Tag,
        Self::ByteCount,
        Self::LowerAddress,
        Self::Length,
        Self::Status,
        Self::Requester,
        Self::Data,
        Self::FailureWithData,
    ];

    /// Makes a right answer wrong. It is still a TLP of the length that it says.
    pub(crate) fn spoil(self, answer: &mut Vec<u8>, random: &mut Random) {
        let data = answer.len() - HEADER;
        match self {
            Self::Tag => answer[10] ^= random.between(1, OTHER_TAGS) as u8,
            Self::ByteCount => {
                let right = u64::from(answer[6] & 0x0f) << 8 | u64::from(answer[7]);
                let wrong = other(random, 0x1000, right);
                answer[6] = answer[6] & 0xf0 | (wrong >> 8) as u8;
                answer[7] = wrong as u8;
            }
            Self::LowerAddress => {
                answer[11] = other(random, 0x80, (answer[11] & 0x7f).into()) as u8;
            }
            Self::Length if data > 0 && random.chance(500_000) => set_data(answer, data - 4),
            Self::Length => set_data(answer, data + 4),
            Self::Status => {
                set_status(answer, random);
                set_data(answer, 0);
            }
            Self::Requester => {
                let wrong = 1 + random.below(0xffff);
                answer[8] ^= (wrong >> 8) as u8;
                answer[9] ^= wrong as u8;
            }
            Self::Data if data == 0 => set_data(answer, 4),
            Self::Data => set_data(answer, 0),
            Self::FailureWithData => set_status(answer, random),
        }
    }
}

/// So many bytes of data, whole doublewords: what is too much is cut off, what lacks made up.
fn set_data(answer: &mut Vec<u8>, bytes: usize) {
    answer.resize(HEADER + bytes, 0xd1);
    let dwords = bytes / 4;
    answer[0] = if bytes > 0 { answer[0] | WITH_DATA } else { answer[0] & !WITH_DATA };
    answer[2] = answer[2] & !0x03 | (dwords >> 8 & 0x03) as u8;
    answer[3] = dwords as u8;
}

/// Unsupported Request, retry, Completer Abort or a reserved status, but not the one that it has.
fn set_status(answer: &mut [u8], random: &mut Random) {
    let has = answer[6] >> 5;
    let others: Vec<u8> = [0b001, 0b010, 0b100, 0b111].into_iter().filter(|s| *s != has).collect();
    let status = others[random.below(others.len() as u64) as usize];
    answer[6] = answer[6] & 0x1f | status << 5;
}

/// Below `end`, and another one.
fn other(random: &mut Random, end: u64, right: u64) -> u64 {
    (right + 1 + random.below(end - 1)) % end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Drawer;
    use tlp_codec::tlp::Packet;

    #[test]
    fn each_way_changes_what_it_says_and_leaves_a_tlp() {
        // A read's answer of 4 bytes, and that of a configuration write.
        let read = [0x4a, 0, 0, 1, 3, 0, 0, 4, 0, 8, 7, 0x10, 1, 2, 3, 4];
        let write = [0x0a, 0, 0, 0, 3, 0, 0, 4, 0, 8, 7, 0];
        let mut random = Random::stream(1, Drawer::Answer, 0);
        for (right, wrong) in [&read[..], &write].iter().flat_map(|r| Wrong::DRAWN.map(|w| (*r, w)))
        {
            for _ in 0..100 {
                let mut bytes = right.to_vec();
                wrong.spoil(&mut bytes, &mut random);
                let (was, is) =
                    (Packet::new_checked(right).unwrap(), Packet::new_checked(&bytes[..]));
                let is = is.unwrap_or_else(|e| panic!("{wrong:?}: {e}"));
                let differ = [
                    (Wrong::Tag, was.tag() != is.tag()),
                    (Wrong::ByteCount, was.byte_count() != is.byte_count()),
                    (Wrong::LowerAddress, was.lower_address() != is.lower_address()),
                    (Wrong::Length, was.payload_len() != is.payload_len()),
                    (Wrong::Status, was.status() != is.status()),
                    (Wrong::Requester, was.requester() != is.requester()),
                    (Wrong::Data, was.has_data() != is.has_data()),
                    (Wrong::FailureWithData, was.status() != is.status()),
                ];
                for (what, differs) in differ {
                    assert!(differs || what != wrong, "{wrong:?}: {right:x?}, {bytes:x?}");
                }
                assert!(bytes[1..] != right[1..] || bytes.len() != right.len());
            }
        }
    }
}
