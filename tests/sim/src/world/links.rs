//! What may take a link down: its peer's end, another life of its peer, or that for most of the time
//! that a link waits its two ends did not hear each other.

use proxy_core::control::LinkDownReason;
use proxy_core::limits::LINK_GIVE_UP;
use proxy_core::time::Instant;
use std::time::Duration;

/// What is under way for no longer than this is on time.
const SHORT: Duration = LINK_GIVE_UP.checked_div(50).expect("not zero");
/// For so much of the time before a link gives up there has to be silence, that of both directions
/// added up: of what is lost one way, the other one loses the answers.
const ENOUGH: Duration = LINK_GIVE_UP.checked_div(2).expect("not zero");
/// Silences that are remembered of a direction.
const REMEMBERED: usize = 64;

/// One end of a link: what its node knows of its peer, and heard of it.
#[derive(Clone, Debug, Default)]
struct End {
    /// The life of the peer that the manager has introduced.
    life: u32,
    /// Since when the link may be there that is there.
    since: Option<Instant>,
    /// When a link of this end went down last.
    down: Option<Instant>,
    /// The manager had the peer taken away.
    removed: bool,
    /// Since when something is under way to this end, and nothing came.
    waits: Option<Instant>,
    silences: Vec<(Instant, Instant)>,
}

/// All links' ends.
pub(super) struct Links {
    nodes: usize,
    ends: Vec<End>,
    /// Who was introduced just now: to whom, who, and which life of it.
    new: Vec<(usize, usize, u32)>,
}

impl End {
    fn silent(&mut self, since: Instant, now: Instant) {
        if now.saturating_since(since) <= SHORT {
            return;
        }
        if self.silences.len() == REMEMBERED {
            self.silences.remove(0);
        }
        self.silences.push((since, now));
    }
}

impl Links {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, ends: vec![End::default(); nodes * nodes], new: Vec::new() }
    }

    fn end(&mut self, node: usize, peer: usize) -> &mut End {
        &mut self.ends[node * self.nodes + peer]
    }

    /// A frame sets out.
    pub(super) fn sent(&mut self, now: Instant, from: usize, to: usize) {
        self.end(to, from).waits.get_or_insert(now);
    }

    /// A proxy was given a frame that is whole.
    pub(super) fn came(&mut self, now: Instant, from: usize, to: usize) {
        let end = self.end(to, from);
        if let Some(since) = end.waits.take() {
            end.silent(since, now);
        }
    }

    /// A proxy stood still: it heard nobody.
    pub(super) fn stood_still(&mut self, since: Instant, now: Instant, node: usize) {
        for peer in 0..self.nodes {
            let end = self.end(node, peer);
            let waits = end.waits;
            end.silent(waits.unwrap_or(since).min(since), now);
            // Each moment counts once.
            end.waits = waits.map(|_| now);
        }
    }

    /// A proxy took what the manager says of a peer. What the link was before may be told of yet.
    pub(super) fn introduced(&mut self, node: usize, peer: usize, life: u32) {
        self.new.push((node, peer, life));
    }

    /// A proxy forgot a peer.
    pub(super) fn removed(&mut self, now: Instant, node: usize, peer: usize) {
        let end = self.end(node, peer);
        (end.removed, end.down, end.since) = (true, Some(now), None);
    }

    /// All was told: who was introduced is whom the links are with.
    pub(super) fn settle(&mut self, now: Instant) {
        for (node, peer, life) in std::mem::take(&mut self.new) {
            let end = self.end(node, peer);
            (end.life, end.removed) = (life, false);
            end.since.get_or_insert(now);
        }
    }

    /// A proxy is gone, and its links with it.
    pub(super) fn died(&mut self, now: Instant, node: usize) {
        for peer in 0..self.nodes {
            let silences = std::mem::take(&mut self.end(node, peer).silences);
            *self.end(node, peer) = End { down: Some(now), silences, ..End::default() };
        }
        self.new.retain(|new| new.0 != node);
    }

    /// An end goes down. What there is against it: `None` if that has a cause. `life`: the one that
    /// the peer has, if it lives. `whole`: a path was whole for as long as a link waits, at either end
    /// of which a proxy was awake.
    pub(super) fn down(
        &mut self,
        now: Instant,
        (node, peer): (usize, usize),
        reason: LinkDownReason,
        life: Option<u32>,
        whole: bool,
    ) -> Option<&'static str> {
        let silent = self.silent(now, node, peer) + self.silent(now, peer, node);
        let ended = self.end(peer, node).down;
        let told =
            self.new.iter().rev().find(|new| (new.0, new.1) == (node, peer)).map(|new| new.2);
        let end = self.end(node, peer);
        let ended = ended.is_some() && ended >= end.since;
        let known = end.life;
        let other = life != Some(known);
        let removed = end.removed;
        (end.down, end.since) = (Some(now), None);
        match reason {
            LinkDownReason::Protocol => Some("its peer broke no rule"),
            // One that the manager tells of may have died since.
            LinkDownReason::PeerRestarted
                if [life, told].into_iter().flatten().all(|life| life == known) =>
            {
                Some("its peer is the one that it was")
            }
            LinkDownReason::PeerClosed if !ended => Some("its peer's end did not go down"),
            LinkDownReason::Removed if !removed => Some("nobody took its peer away"),
            LinkDownReason::GaveUp if !other && !ended && whole => {
                Some("a path between them was whole all the time")
            }
            LinkDownReason::GaveUp if !other && !ended && silent < ENOUGH => {
                Some("the two heard each other")
            }
            _ => None,
        }
    }

    /// How long one did not hear the other, of the time in which a link gives up.
    fn silent(&mut self, now: Instant, node: usize, peer: usize) -> Duration {
        let end = self.end(node, peer);
        let open = end.waits.map(|since| (since, now));
        let all = end.silences.iter().copied().chain(open);
        // As a time before which nothing counts, which there may not be yet.
        let age = |at: Instant| now.saturating_since(at).min(LINK_GIVE_UP);
        all.map(|(from, to)| age(from) - age(to)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LinkDownReason::{GaveUp, PeerClosed, PeerRestarted, Protocol, Removed};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The links of two nodes that know each other's first life.
    fn links() -> Links {
        let mut links = Links::new(2);
        links.introduced(0, 1, 1);
        links.introduced(1, 0, 1);
        links.settle(at(0));
        links
    }

    /// Whether the first one's end may go down for that reason.
    fn may(links: &mut Links, ms: u64, reason: LinkDownReason, life: Option<u32>) -> bool {
        links.down(at(ms), (0, 1), reason, life, false).is_none()
    }

    #[test]
    fn between_two_that_are_well_nothing_goes_down() {
        for reason in [GaveUp, PeerRestarted, PeerClosed, Removed, Protocol] {
            assert!(!may(&mut links(), 5000, reason, Some(1)), "{reason:?}");
        }
    }

    #[test]
    fn a_silence_excuses_giving_up_for_as_long_as_a_link_waits() {
        for (since, until, now, excused) in
            [(100, 700, 1000, true), (100, 500, 1000, false), (100, 700, 1300, false)]
        {
            let mut links = self::links();
            links.sent(at(since), 1, 0);
            links.came(at(until), 1, 0);
            assert_eq!(may(&mut links, now, GaveUp, Some(1)), excused, "{since} to {until}");
        }
        let mut links = self::links();
        links.sent(at(1000), 0, 1);
        assert!(may(&mut links, 1600, GaveUp, Some(1)), "it lasts");
        let mut links = self::links();
        links.stood_still(at(100), at(700), 0);
        assert!(may(&mut links, 1000, GaveUp, Some(1)), "its end stood still");
    }

    #[test]
    fn no_silence_excuses_giving_up_beside_a_path_that_is_whole() {
        for whole in [false, true] {
            let mut links = self::links();
            links.sent(at(100), 1, 0);
            let against = links.down(at(1100), (0, 1), GaveUp, Some(1), whole);
            assert_eq!(against.is_some(), whole);
        }
        let mut links = self::links();
        assert_eq!(links.down(at(1100), (0, 1), GaveUp, Some(2), true), None, "another life");
    }

    #[test]
    fn another_life_is_one_that_was_not_introduced() {
        assert!(may(&mut links(), 10, PeerRestarted, Some(2)));
        assert!(!may(&mut links(), 10, PeerRestarted, None), "nobody is there who could say it");
        let mut links = self::links();
        links.introduced(0, 1, 2);
        assert!(may(&mut links, 10, PeerRestarted, Some(2)), "the manager says it now");
        links.settle(at(10));
        assert!(!may(&mut links, 20, PeerRestarted, Some(2)));
    }

    #[test]
    fn what_the_other_end_did_excuses_one_link() {
        let mut links = self::links();
        links.down(at(5), (1, 0), GaveUp, Some(1), false);
        assert!(may(&mut links, 10, PeerClosed, Some(1)));
        links.introduced(0, 1, 1);
        links.settle(at(20));
        assert!(!may(&mut links, 30, PeerClosed, Some(1)));
    }
}
