//! Paths that do not carry what a proxy sends by them.
//!
//! A proxy tells that this changed, and how it is whenever it joins. What it told stands, whether it is
//! connected or not and whether this manager goes on or another one begins on its records, until the
//! path is shown to carry frames:
//!
//! - the proxy says so (`path-found`), as it does of the one of several by which a link has come up;
//! - or the link was made anew and has this path alone.
//!
//! It is forgotten when the two have nothing to do with each other any more.

use crate::records::Tables;
use crate::types::{HealthState, NodeName, Subject};
use proxy_core::limits::MAX_PATHS;
use std::collections::BTreeMap;

fn bit(path: u8) -> u8 {
    1 << (usize::from(path) % MAX_PATHS)
}

/// The paths that are lost between all proxies: of what one sends to another, a bit for each that does not
/// arrive. Who has none is not in it.
#[derive(Default)]
pub(super) struct LostPaths(BTreeMap<(NodeName, NodeName), u8>);

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
        let before = self.lost(from, to);
        let now = if arrives { before & !bit(path) } else { before | bit(path) };
        self.keep(from, to, now);
        before != now
    }

    /// A link of so many paths has come up: by one of them, which is told where there are several. It may
    /// have had more before.
    pub(super) fn link_up(&mut self, from: &NodeName, to: &NodeName, paths: usize) {
        let told =
            if paths > 1 { (0..MAX_PATHS.min(paths)).fold(0, |set, n| set | 1 << n) } else { 0 };
        self.keep(from, to, self.lost(from, to) & told);
    }

    fn lost(&self, from: &NodeName, to: &NodeName) -> u8 {
        self.0.get(&(from.clone(), to.clone())).copied().unwrap_or_default()
    }

    fn keep(&mut self, from: &NodeName, to: &NodeName, lost: u8) {
        let key = (from.clone(), to.clone());
        if lost == 0 {
            self.0.remove(&key);
        } else {
            self.0.insert(key, lost);
        }
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
        self.0.iter().flat_map(|((from, to), lost)| {
            let paths = (0..MAX_PATHS as u8).filter(move |path| lost & bit(*path) != 0);
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
    }

    #[test]
    fn a_path_is_lost_until_it_is_shown_to_carry_frames() {
        use What::{Found, Lost, Up};
        let (from, to) = (NodeName::new("host1").unwrap(), NodeName::new("box1").unwrap());
        let rows: [&[(What, u8)]; 7] = [
            &[(Lost(1), 0b10), (Found(0), 0b10), (Found(1), 0)],
            // The link is made anew by the other one, and this one is as bad.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(0), 0b10), (Lost(1), 0b10)],
            // It carries frames again: the link came up by the other one, or by this one.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(0), 0b10), (Found(1), 0)],
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(1), 0), (Found(0), 0)],
            // By this one, and the other one does not work from the beginning.
            &[(Lost(1), 0b10), (Up(2), 0b10), (Found(1), 0), (Lost(0), 1), (Found(0), 0)],
            // It has one path, or fewer than it had.
            &[(Lost(0), 1), (Up(1), 0)],
            &[(Lost(3), 0b1000), (Up(2), 0)],
        ];
        for row in rows {
            let mut paths = LostPaths::default();
            for (index, (what, expected)) in row.iter().enumerate() {
                match *what {
                    Up(count) => paths.link_up(&from, &to, count),
                    Lost(path) => {
                        paths.seen(&from, &to, path, false);
                    }
                    Found(path) => {
                        paths.seen(&from, &to, path, true);
                    }
                }
                let lost = paths.lost(&from, &to);
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
