//! Access control of a switch's downstream ports (PCIe 5.0 section 6.12): which way what one device
//! sends another one has to go, aside or by the root complex, by what the operating system has set at
//! the sender's port.

use super::order::{Seen, Sent};
use super::{Verdict, Violation};
use crate::host::port_name;
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use tlp_codec::tlp::Class;

/// Bits of ACS Control.
const SOURCE_VALIDATION: u16 = 1 << 0;
const REQUEST_REDIRECT: u16 = 1 << 2;
const COMPLETION_REDIRECT: u16 = 1 << 3;
const UPSTREAM_FORWARDING: u16 = 1 << 4;
/// What Linux sets where it keeps devices apart.
pub(crate) const AS_LINUX: u16 =
    SOURCE_VALIDATION | REQUEST_REDIRECT | COMPLETION_REDIRECT | UPSTREAM_FORWARDING;

/// Since when requests, and completions, of the device behind a port are redirected.
#[derive(Clone, Copy, Debug, Default)]
struct Redirects {
    requests: Option<Instant>,
    completions: Option<Instant>,
}

/// What is set at the ports of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Access {
    ports: BTreeMap<(usize, usize), Redirects>,
}

impl Access {
    /// A host's switch has taken that for a port.
    pub(crate) fn set(&mut self, now: Instant, (host, port): (usize, usize), bits: u16) {
        let redirects = self.ports.entry((host, port)).or_default();
        for (since, bit) in [
            (&mut redirects.requests, REQUEST_REDIRECT),
            (&mut redirects.completions, COMPLETION_REDIRECT),
        ] {
            *since = (bits & bit != 0).then(|| since.unwrap_or(now));
        }
    }

    /// A host's switch is as after a reset.
    pub(crate) fn reset(&mut self, host: usize) {
        self.ports.retain(|(of, _), _| *of != host);
    }

    /// Since when such a TLP of the device behind a port goes by the root complex, if it does.
    /// Completions with relaxed ordering are not redirected (section 6.12.1.1).
    fn redirected_since(&self, place: (usize, usize), seen: &Seen) -> Option<Instant> {
        let redirects = self.ports.get(&place)?;
        match seen.class {
            Class::Completion if seen.is_relaxed() => None,
            Class::Completion => redirects.completions,
            Class::Posted | Class::NonPosted => redirects.requests,
        }
    }

    /// Whether completions of the device behind a port that came to the root complex, or did not, go
    /// another way than what it writes (section 6.12.5).
    pub(super) fn parts(&self, place: (usize, usize), by_root: bool) -> bool {
        let writes = self.ports.get(&place).is_some_and(|set| set.requests.is_some());
        writes != by_root
    }

    /// It came to the device that it is for without the root complex: the switch let it pass after it
    /// was sent, so it is wrong if it was to be redirected already then.
    pub(super) fn came_aside(&self, place: (usize, usize), seen: &Seen, sent: &Sent) -> Verdict {
        match self.redirected_since(place, seen) {
            // What is alike may be what the asker's own proxy says when the time is over.
            Some(since) if since <= sent.at && !seen.refuses => {
                let name = port_name(place.1);
                let what = format!(
                    "a {:?} TLP of {name}'s device came aside to another one, which has gone by the root \
                     complex since {since:?}",
                    seen.class
                );
                Err(Violation::new(2, what))
            }
            _ => Ok(()),
        }
    }

    /// It came to the root complex, as the switch has just decided.
    pub(crate) fn came_to_root(&self, place: (usize, usize), seen: &Seen) -> Verdict {
        if self.redirected_since(place, seen).is_some() {
            return Ok(());
        }
        let what = format!(
            "a {:?} TLP of {}'s device for another one came to the root complex, where nothing \
             redirects it",
            seen.class,
            port_name(place.1)
        );
        Err(Violation::new(2, what))
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::Flow;
    use super::*;
    use std::time::Duration;
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{CplStatus, Kind, Repr};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn answer(relaxed: bool) -> Seen {
        let mut repr = Repr::new(Kind::Completion {
            completer: Bdf::from_bits(0x300),
            requester: Bdf::from_bits(0x400),
            tag: Tag::new(1).unwrap(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: 4,
            lower_address: 0,
            locked: false,
            data: &[0; 4],
        });
        repr.attributes.relaxed_ordering = relaxed;
        let mut bytes = [0; 32];
        let length = repr.emit(&mut bytes).unwrap();
        Seen::of(&bytes[..length]).unwrap()
    }

    #[test]
    fn each_way_is_wrong_where_the_other_one_is_set() {
        let (mut access, seen, place) = (Access::default(), answer(false), (0, 2));
        let sent = |ms| {
            let mut flow = Flow::default();
            flow.send(at(ms), seen, 1, false);
            flow.deliver(seen, None).unwrap()
        };
        let aside = |access: &Access, ms| access.came_aside(place, &seen, &sent(ms)).is_ok();
        assert!(aside(&access, 5) && access.came_to_root(place, &seen).is_err());
        access.set(at(10), place, REQUEST_REDIRECT);
        assert!(aside(&access, 15) && access.came_to_root(place, &seen).is_err());
        access.set(at(20), place, AS_LINUX);
        access.set(at(30), place, AS_LINUX);
        assert!(aside(&access, 19), "the switch may have let it pass before");
        assert!(!aside(&access, 20) && access.came_to_root(place, &seen).is_ok());
        assert!(access.came_to_root(place, &answer(true)).is_err(), "with relaxed ordering");
        assert!(access.came_to_root((1, 2), &seen).is_err(), "another host");
        access.reset(1);
        assert!(!aside(&access, 25));
        access.reset(0);
        assert!(aside(&access, 25));
    }
}
