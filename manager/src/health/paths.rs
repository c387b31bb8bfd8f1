//! Paths that do not carry what a proxy sends by them.
//!
//! A proxy tells that this changed, and how it is whenever it joins. What it told stands, whether it is
//! connected or not and whether this manager goes on or another one begins on its records, until the
//! path is shown to carry frames:
//!
//! - the proxy says so (`path-found`);
//! - or the link was made anew, and every other path of it was found since. A link comes up by one
//!   path, which carries frames then and of which nothing more is said; of the others each is found
//!   when it does. So much is inferred while the proxy stays connected: when it joins again it says it
//!   of all its paths itself.
//!
//! It is forgotten when the two have nothing to do with each other any more.

use crate::records::Tables;
use crate::types::{HealthState, NodeName, Subject};
use proxy_core::limits::MAX_PATHS;
use std::collections::BTreeMap;

/// What one proxy sends to another, a bit for each path.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// What does not arrive.
    lost: u8,
    /// The paths that were not found since the link was made anew, one of which it came up by; none
    /// if that is not known.
    unproven: u8,
}

impl Sent {
    fn settle(&mut self) {
        if self.unproven.count_ones() == 1 {
            self.lost &= !self.unproven;
            self.unproven = 0;
        }
    }
}

fn bit(path: u8) -> u8 {
    1 << (usize::from(path) % MAX_PATHS)
}

/// The paths that are lost between all proxies.
#[derive(Default)]
pub(super) struct LostPaths(BTreeMap<(NodeName, NodeName), Sent>);

impl LostPaths {
    /// As the records had them last. One that was bad for less than it takes to be suspect is not in
    /// them.
    pub(super) fn recorded(tables: &Tables) -> Self {
        let mut all = Self::default();
        for record in tables.health().values() {
            let is_lost = matches!(record.state, HealthState::Suspect | HealthState::Failed);
            if let (Subject::Path { from, to, path }, true) = (&record.subject, is_lost) {
                all.seen(from, to, *path, false);
            }
        }
        all
    }

    /// What is sent by a path arrives, or does not.
    /// Whether that is news: proxies tell all of their paths again when they have been away.
    pub(super) fn seen(&mut self, from: &NodeName, to: &NodeName, path: u8, arrives: bool) -> bool {
        let key = (from.clone(), to.clone());
        let before = self.0.get(&key).is_some_and(|sent| sent.lost & bit(path) != 0);
        if !arrives {
            let sent = self.0.entry(key).or_default();
            sent.lost |= bit(path);
            // One that was good without having been found is the one that the link came up by.
            if sent.unproven & bit(path) != 0 {
                sent.unproven = 0;
            }
        } else if let Some(sent) = self.0.get_mut(&key) {
            sent.lost &= !bit(path);
            sent.unproven &= !bit(path);
            sent.settle();
            if sent.lost == 0 {
                self.0.remove(&key);
            }
        }
        before == arrives
    }

    /// A link of so many paths has come up.
    pub(super) fn link_up(&mut self, from: &NodeName, to: &NodeName, paths: usize) {
        let key = (from.clone(), to.clone());
        let Some(sent) = self.0.get_mut(&key) else { return };
        sent.unproven = (0..paths.min(MAX_PATHS)).fold(0, |set, path| set | 1 << path);
        // It may have had more before.
        sent.lost &= sent.unproven;
        sent.settle();
        if sent.lost == 0 {
            self.0.remove(&key);
        }
    }

    /// A proxy joins, or leaves until it does: it tells all of its paths then, and of which it has not
    /// told since the links came up is no longer counted.
    pub(super) fn tells_all(&mut self, from: &NodeName) {
        let own = self.0.iter_mut().filter(|((sender, _), _)| sender == from);
        own.for_each(|(_, sent)| sent.unproven = 0);
    }

    /// One has forgotten the other.
    pub(super) fn parted(&mut self, from: &NodeName, to: &NodeName) {
        self.0.remove(&(from.clone(), to.clone()));
    }

    /// A proxy was forgotten.
    pub(super) fn forgotten(&mut self, name: &NodeName) {
        self.0.retain(|(from, to), _| from != name && to != name);
    }

    /// All of them.
    pub(super) fn bad(&self) -> impl Iterator<Item = (NodeName, NodeName, u8)> {
        self.0.iter().flat_map(|((from, to), sent)| {
            let paths = (0..MAX_PATHS as u8).filter(|path| sent.lost & bit(*path) != 0);
            paths.map(|path| (from.clone(), to.clone(), path))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happened, and what is lost then, a bit for each path.
    #[derive(Clone, Copy)]
    enum What {
        Up(usize),
        Lost(u8),
        Found(u8),
        Joins,
    }

    #[test]
    fn a_path_is_lost_until_it_is_shown_to_carry_frames() {
        use What::{Found, Joins, Lost, Up};
        let (from, to) = (NodeName::new("host1").unwrap(), NodeName::new("box1").unwrap());
        let rows: [&[(What, u8)]; 10] = [
            &[(Lost(1), 0b10), (Found(0), 0b10), (Found(1), 0)],
            // The link is made anew, and the path is as bad: nothing is said of it.
            &[(Lost(1), 0b10), (Up(2), 0b10)],
            // It carries frames, and the link came up by the other one.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(1), 0)],
            // The link came up by it: the other one was found.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(0), 0)],
            &[(Lost(1), 0b10), (Up(3), 0b10), (Found(0), 0b10), (Found(2), 0)],
            // The link came up by the first, and nothing is said of the second.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Lost(0), 0b11), (Found(0), 0b10)],
            // One that was found since is not the one that the link came up by.
            &[(Lost(1), 0b10), (Up(3), 0b10), (Found(2), 0b10), (Lost(2), 0b110), (Found(2), 0b10)],
            // A proxy that joins again tells all, and the dead one last.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Joins, 0b10), (Found(0), 0b10), (Lost(1), 0b10)],
            // It has one path, or fewer than it had.
            &[(Lost(0), 1), (Up(1), 0)],
            &[(Lost(3), 0b1000), (Up(2), 0)],
        ];
        for row in rows {
            let mut paths = LostPaths::default();
            for (index, (what, expected)) in row.iter().enumerate() {
                match *what {
                    Up(count) => paths.link_up(&from, &to, count),
                    Joins => paths.tells_all(&from),
                    Lost(path) => {
                        paths.seen(&from, &to, path, false);
                    }
                    Found(path) => {
                        paths.seen(&from, &to, path, true);
                    }
                }
                let lost = paths.0.get(&(from.clone(), to.clone())).map_or(0, |sent| sent.lost);
                assert_eq!(lost, *expected, "after {} of {}", index + 1, row.len());
            }
        }
    }

    #[test]
    fn what_is_told_again_is_no_news() {
        let (from, to) = (NodeName::new("host1").unwrap(), NodeName::new("box1").unwrap());
        let mut paths = LostPaths::default();
        let (lost, found) = (false, true);
        let told = [
            (0, found, false),
            (1, lost, true),
            (1, lost, false),
            (0, found, false),
            (0, lost, true),
            (1, found, true),
            (1, found, false),
            (0, found, true),
            (0, found, false),
            (1, lost, true),
        ];
        for (index, (path, arrives, news)) in told.into_iter().enumerate() {
            assert_eq!(paths.seen(&from, &to, path, arrives), news, "the {index}th");
        }
    }
}
