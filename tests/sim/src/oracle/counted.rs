//! What comes from outside is taken, or dropped for a reason that is counted: a proxy's counters of
//! frames add up to the frames that it was given, and none of those that were damaged is taken.

use super::{Verdict, Violation};
use crate::network::Harm;

/// What the counters call a frame that was taken.
const TAKEN: &str = "link.frames_received";
/// And one whose sender broke the protocol: between two that do not, there is none.
const VIOLATIONS: &str = "link.violations";
/// Frames of who is no peer.
const STRANGERS: &str = "frames dropped: from an unknown node";
/// How the names of all other reasons begin.
const DROPPED: &str = "link.dropped_";
/// How they end where the bytes are no frame.
const NO_FRAME: [&str; 9] =
    ["cut_short", "version", "length", "key", "kind", "node", "ranges", "body", "frame_crc"];
/// The same; but so does a whole frame on a path that was taken away.
const NO_PATH: &str = "path";
/// TLPs whose own CRC was wrong in a right frame.
const WRONG_TLP: &str = "link.tlp_crc_errors";

/// The frames that a proxy was given in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    given: u64,
    /// Of these: changed on the way, so that their CRC is wrong.
    damaged: u64,
    /// TLPs that were changed under a right CRC of their frame.
    lies: u64,
}

impl Counted {
    /// It is given a frame.
    pub(crate) fn give(&mut self, harm: &Harm) {
        self.given += 1;
        self.damaged += u64::from(!harm.flipped.is_empty());
        self.lies += harm.lies.len() as u64;
    }

    /// What it counted, by its own word.
    pub(crate) fn check(&self, counters: impl Iterator<Item = (&'static str, u64)>) -> Verdict {
        let (mut taken, mut dropped, mut none, mut no_path, mut wrong) = (0, 0, 0, 0, 0);
        for (name, count) in counters {
            match name {
                TAKEN => taken += count,
                VIOLATIONS if count > 0 => {
                    let what =
                        format!("{count} frames of other proxies are said to break the rules");
                    return Err(Violation::new(1, what));
                }
                STRANGERS => dropped += count,
                WRONG_TLP => wrong += count,
                _ => {
                    let Some(why) = name.strip_prefix(DROPPED) else { continue };
                    dropped += count;
                    none += if NO_FRAME.contains(&why) { count } else { 0 };
                    no_path += if why == NO_PATH { count } else { 0 };
                }
            }
        }
        let Self { given, damaged, lies } = *self;
        let what = if taken + dropped != given {
            format!("{given} frames came; {taken} are counted as taken, {dropped} as dropped")
        } else if !(none..=none + no_path).contains(&damaged) {
            format!(
                "{damaged} frames were damaged on their way; {none} are counted as no frames, and \
                 {no_path} of paths that there are not"
            )
        } else if wrong > lies {
            format!("{wrong} TLPs are counted as damaged in right frames; {lies} were")
        } else {
            return Ok(());
        };
        Err(Violation::new(6, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{BindingKey, Epoch, SlotFunction, SlotId};

    fn check(counted: Counted, counters: &[(&'static str, u64)]) -> Option<u8> {
        counted.check(counters.iter().copied()).err().map(|violation| violation.promise)
    }

    #[test]
    fn every_frame_is_counted_once_and_no_damaged_one_as_taken() {
        let mut counted = Counted::default();
        let slot = SlotId::new(1).unwrap();
        let epoch = Epoch::new(0, 1).unwrap();
        let lie = BindingKey { slot, function: SlotFunction::ZERO, epoch };
        let frames = [(vec![], vec![]), (vec![], vec![lie]), (vec![7], vec![]), (vec![], vec![])];
        for (flipped, lies) in frames {
            counted.give(&Harm { flipped, lies });
        }
        let right = [
            ("link.frames_received", 2),
            ("link.dropped_frame_crc", 1),
            ("link.violations", 0),
            ("frames dropped: from an unknown node", 1),
            ("link.frames_sent", 70),
            ("link.tlp_crc_errors", 1),
        ];
        assert_eq!(check(counted, &right), None);
        let mut forgotten = right;
        forgotten[1].1 = 0;
        assert_eq!(check(counted, &forgotten), Some(6), "one is not counted");
        let mut twice = right;
        twice[3].1 = 2;
        assert_eq!(check(counted, &twice), Some(6), "one is counted twice");
        let mut taken = right;
        (taken[0].1, taken[1].1) = (3, 0);
        assert_eq!(check(counted, &taken), Some(6), "a damaged one was taken");
        let mut lost = right;
        (lost[0].1, lost[1].1) = (1, 2);
        assert_eq!(check(counted, &lost), Some(6), "a right one is called damaged");
        let mut blamed = right;
        blamed[5].1 = 2;
        assert_eq!(check(counted, &blamed), Some(6), "TLPs that were not damaged");
        let mut broken = right;
        (broken[0].1, broken[2].1) = (1, 1);
        assert_eq!(check(counted, &broken), Some(1), "nobody broke a rule");
    }
}
