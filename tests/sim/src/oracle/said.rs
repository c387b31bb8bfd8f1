//! What a device has said in answer while it lied, and since: of one that answers twice, or under wrong
//! tags, any of that may come out for what waited when it was said, right answers to others, too. Nothing
//! else may.

use super::order::Seen;
use crate::random::mix;
use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::Bdf;

/// Nobody waits for longer: what was said before comes out nowhere.
pub(crate) const REMEMBERED: Duration = SYNTHESISED_COMPLETION.saturating_mul(3);

/// Answers of one function, or of a root complex: when they were taken, and their digests.
#[derive(Debug, Default)]
pub(crate) struct Said {
    all: VecDeque<(Instant, u64)>,
}

impl Said {
    /// Its proxy took an answer of it.
    pub(crate) fn note(&mut self, now: Instant, digest: u64) {
        while self.all.front().is_some_and(|said| now.saturating_since(said.0) > REMEMBERED) {
            self.all.pop_front();
        }
        self.all.push_back((now, digest));
    }

    /// Whether it has said that since then.
    pub(crate) fn since(&self, since: Instant, digest: u64) -> bool {
        self.all.iter().rev().take_while(|said| said.0 >= since).any(|said| said.1 == digest)
    }
}

/// The digest of an answer to a requester and to nobody else, as what a root complex says is.
pub(crate) fn digest_to(requester: Bdf, seen: &Seen) -> u64 {
    seen.digest ^ mix(requester.bits().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::Tag;
    use tlp_codec::tlp::{CplStatus, Kind, Repr};

    fn answer(data: u8, tag: u16) -> u64 {
        let mut bytes = [0; 16];
        let kind = Kind::Completion {
            completer: Bdf::from_bits(8),
            requester: Bdf::from_bits(9),
            tag: Tag::new(tag).unwrap(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: 4,
            lower_address: 0,
            locked: false,
            data: &[data; 4],
        };
        Repr::new(kind).emit(&mut bytes).unwrap();
        Seen::of(&bytes).unwrap().digest
    }

    #[test]
    fn what_was_said_comes_out_under_any_tag_for_who_waited_then() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut said = Said::default();
        said.note(at(100), answer(1, 7));
        assert!(said.since(at(100), answer(1, 9)));
        assert!(!said.since(at(101), answer(1, 7)), "it was asked only then");
        assert!(!said.since(at(50), answer(2, 7)), "nobody said that");
        said.note(at(100) + REMEMBERED + Duration::from_millis(1), answer(2, 7));
        assert!(!said.since(at(50), answer(1, 7)), "nobody waits so long");
    }
}
