//! TLPs that are none, and what is wrong with them.

use crate::counters::CounterList;
use crate::limits::TLP_BUFFER;
use tlp_codec::ids::OutstandingRef;
use tlp_codec::tlp::{Class, Packet, Rule};

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

    /// A TLP that fits a buffer and keeps the rules of the specification. Any other is counted.
    #[inline]
    pub(crate) fn sound<'a>(&mut self, tlp: &'a [u8]) -> Option<Packet<&'a [u8]>> {
        if tlp.len() > TLP_BUFFER {
            self.too_long += 1;
            return None;
        }
        Packet::new_sound(tlp).map_err(|error| self.by_rule[error.rule as usize] += 1).ok()
    }

    /// A TLP from the wire that is sound, of the class that its record said, and has an outstanding
    /// entry just where there must be one.
    #[inline]
    pub(crate) fn as_said<'a>(
        &mut self,
        tlp: &'a [u8],
        class: Class,
        outstanding: Option<OutstandingRef>,
    ) -> Option<Packet<&'a [u8]>> {
        let packet = self.sound(tlp)?;
        let said =
            packet.class() == Some(class) && outstanding.is_some() == (class != Class::Posted);
        self.not_as_said += u64::from(!said);
        said.then_some(packet)
    }

    /// Every counter with its name.
    pub(crate) fn list(&self, list: &mut CounterList) {
        list.add_values(&Rule::COUNTERS, &self.by_rule);
        list.add([
            ("malformed.TooLong", self.too_long),
            ("malformed.NotAsItsRecordSays", self.not_as_said),
        ]);
    }
}
