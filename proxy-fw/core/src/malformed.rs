//! TLPs that are none, and what is wrong with them.

use crate::limits::TLP_BUFFER;
use tlp_codec::ids::OutstandingRef;
use tlp_codec::tlp::{Class, Packet, Repr, Rule, RuleError};

/// TLPs that were not taken, by what is wrong with them.
pub(crate) struct Malformed {
    by_rule: [u64; Rule::COUNT],
    too_long: u64,
    not_as_said: u64,
}

impl Malformed {
    pub(crate) const fn new() -> Self {
        Self { by_rule: [0; Rule::COUNT], too_long: 0, not_as_said: 0 }
    }

    /// Whether a TLP fits a buffer and keeps the rules of the specification. If not it is counted.
    pub(crate) fn is_sound(&mut self, tlp: &[u8]) -> bool {
        if tlp.len() > TLP_BUFFER {
            self.too_long += 1;
            return false;
        }
        let parsed = match Packet::new_checked(tlp) {
            Ok(packet) => Repr::parse(&packet).map(|_| ()),
            Err(error) => Err(error.into()),
        };
        match parsed {
            Ok(()) => true,
            Err(error) => {
                let error: RuleError = error;
                self.by_rule[error.rule as usize] += 1;
                false
            }
        }
    }

    /// Whether a TLP from the wire is sound, of the class that its record said, and has an
    /// outstanding entry just where there must be one.
    pub(crate) fn is_as_said(
        &mut self,
        tlp: &[u8],
        class: Class,
        outstanding: Option<OutstandingRef>,
    ) -> bool {
        if !self.is_sound(tlp) {
            return false;
        }
        let said = Packet::new_checked(tlp).is_ok_and(|packet| packet.class() == Some(class))
            && outstanding.is_some() == (class != Class::Posted);
        self.not_as_said += u64::from(!said);
        said
    }

    /// Every counter with its name.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let by_rule = Rule::ALL.iter().map(|&rule| (rule.counter(), self.by_rule[rule as usize]));
        by_rule.chain([
            ("malformed.TooLong", self.too_long),
            ("malformed.NotAsItsRecordSays", self.not_as_said),
        ])
    }
}
