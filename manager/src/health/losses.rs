//! How much proxies lose of what they send: each by each of its paths, and all together.

use super::HealthConfig;
use crate::types::NodeName;
use std::collections::BTreeMap;

/// Readings in a row that are over the bound until something is bad: one alone may be a cable that was
/// moved.
const LOSSY_READINGS: u32 = 2;

/// Frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// That were sent.
    pub(super) sent: u64,
    /// Of these, as many as were found to be lost.
    pub(super) lost: u64,
}

impl Traffic {
    /// What came since an earlier time; all of it, if the counters began anew.
    pub(super) fn since(self, then: Self) -> Self {
        if self.sent < then.sent || self.lost < then.lost {
            return self;
        }
        Self { sent: self.sent - then.sent, lost: self.lost - then.lost }
    }

    fn and(self, other: Self) -> Self {
        let sent = self.sent.saturating_add(other.sent);
        Self { sent, lost: self.lost.saturating_add(other.lost) }
    }

    fn permille(self) -> u128 {
        u128::from(self.lost) * 1000 / u128::from(self.sent.max(1))
    }

    /// Whether it lost too much. Too little says nothing.
    fn is_lossy(self, config: &HealthConfig) -> Option<bool> {
        let says = self.sent >= config.loss_frames;
        says.then(|| self.permille() >= u128::from(config.loss_permille))
    }
}

/// How many readings in a row something lost too much.
#[derive(Clone, Debug, Default)]
struct Loss {
    row: u32,
    /// Readings in a row since that said nothing.
    silent: u32,
    /// What it lost last.
    last: Traffic,
}

impl Loss {
    /// Takes in what was sent and lost since the last reading, if that is known and says anything:
    /// whether it is too much. What gets nothing new because of its loss sends little, and would
    /// never be good again if that did not count in the end.
    fn take(&mut self, traffic: Traffic, is_lossy: Option<bool>) {
        match is_lossy {
            Some(true) => {
                self.silent = 0;
                self.row = self.row.saturating_add(1);
                self.last = traffic;
            }
            Some(false) => *self = Self::default(),
            None => {
                self.silent += 1;
                if self.silent >= LOSSY_READINGS {
                    *self = Self::default();
                }
            }
        }
    }

    const fn is_bad(&self) -> bool {
        self.row >= LOSSY_READINGS
    }

    /// How much of what was sent.
    fn much(&self) -> String {
        let Traffic { sent, lost } = self.last;
        let percent = self.last.permille() as f64 / 10.0;
        format!("lost {lost} of {sent} frames that it sent ({percent:.1} %)")
    }
}

/// What proxies that are connected lose.
#[derive(Default)]
pub(super) struct Losses {
    proxies: BTreeMap<NodeName, Loss>,
    /// From, to, path.
    paths: BTreeMap<(NodeName, NodeName, u8), Loss>,
}

impl Losses {
    /// Takes in what a proxy sent and lost since its last reading: on all of its links, if that is
    /// known, and by each path to each peer, if it counts that. When one of its paths is good, it is
    /// the others that are not, and not the proxy.
    pub(super) fn take(
        &mut self,
        from: &NodeName,
        all: Option<Traffic>,
        paths: BTreeMap<(NodeName, u8), Traffic>,
        config: &HealthConfig,
    ) {
        let one_is_good = paths.values().any(|traffic| traffic.is_lossy(config) == Some(false));
        let all = match paths.is_empty() {
            true => all,
            false => Some(paths.values().copied().fold(Traffic::default(), Traffic::and)),
        };
        let is_lossy = all.and_then(|all| all.is_lossy(config));
        let is_lossy = is_lossy.map(|is_lossy| is_lossy && !one_is_good);
        let own = self.proxies.entry(from.clone()).or_default();
        own.take(all.unwrap_or_default(), is_lossy);
        self.paths
            .retain(|(of, to, path), _| of != from || paths.contains_key(&(to.clone(), *path)));
        for ((to, path), traffic) in paths {
            let own = self.paths.entry((from.clone(), to, path)).or_default();
            own.take(traffic, traffic.is_lossy(config));
        }
    }

    /// A proxy is gone.
    pub(super) fn left(&mut self, name: &NodeName) {
        self.proxies.remove(name);
        self.paths.retain(|(from, ..), _| from != name);
    }

    /// One has forgotten the other.
    pub(super) fn parted(&mut self, of: &NodeName, peer: &NodeName) {
        self.paths.retain(|(from, to, _), _| from != of || to != peer);
    }

    /// A proxy was forgotten, by its peers too.
    pub(super) fn forgotten(&mut self, name: &NodeName) {
        self.left(name);
        self.paths.retain(|(_, to, _), _| to != name);
    }

    /// The proxies that lose too much, and why.
    pub(super) fn bad_proxies(&self) -> impl Iterator<Item = (NodeName, String)> + use<'_> {
        let bad = self.proxies.iter().filter(|(_, loss)| loss.is_bad());
        bad.map(|(name, loss)| (name.clone(), format!("{name} {}", loss.much())))
    }

    /// The paths that lose too much, and why.
    pub(super) fn bad_paths(
        &self,
    ) -> impl Iterator<Item = ((NodeName, NodeName, u8), String)> + use<'_> {
        let bad = self.paths.iter().filter(|(_, loss)| loss.is_bad());
        bad.map(|(path, loss)| {
            let (from, to, number) = path;
            (path.clone(), format!("{from} {} to {to} by path {number}", loss.much()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn frames(sent: u64, lost: u64) -> Traffic {
        Traffic { sent, lost }
    }

    #[test]
    fn loss_is_bad_by_its_rate_twice_in_a_row() {
        let (config, host) = (HealthConfig::default(), name("host1"));
        let mut losses = Losses::default();
        let mut take = |sent, lost| {
            losses.take(&host, Some(frames(sent, lost)), BTreeMap::new(), &config);
            losses.bad_proxies().next().is_some()
        };
        // Sent, lost, whether it is bad then: ten of a thousand are, and a few frames say nothing.
        let rows = [
            (1000, 10, false),
            (1000, 9, false),
            (1000, 10, false),
            (10, 0, false),
            (2000, 2000, true),
            (10, 0, true),
            (1000, 10, true),
            (10, 10, true),
            // Two in a row that say nothing are a recovery.
            (10, 10, false),
            (1000, 10, false),
            (1000, 10, true),
            (100_000, 10, false),
        ];
        for (sent, lost, bad) in rows {
            assert_eq!(take(sent, lost), bad, "{lost} of {sent}");
        }
    }

    #[test]
    fn a_path_that_loses_is_bad_and_not_the_proxy_whose_others_are_good() {
        let (config, host, peer) = (HealthConfig::default(), name("host1"), name("box1"));
        let mut losses = Losses::default();
        let mut take = |first: Traffic, second: Traffic| {
            let paths = [((peer.clone(), 0), first), ((peer.clone(), 1), second)].into();
            // What it counts on its links together is of records, and says less.
            losses.take(&host, Some(frames(1, 1)), paths, &config);
            let paths = losses.bad_paths().map(|((.., path), _)| path).collect::<Vec<_>>();
            (losses.bad_proxies().next().is_some(), paths)
        };
        let (good, lossy, few) = (frames(5000, 1), frames(5000, 500), frames(3, 3));
        assert_eq!(take(good, lossy), (false, vec![]));
        assert_eq!(take(good, lossy), (false, vec![1]));
        // None is good: it is the proxy's own cable.
        assert_eq!(take(lossy, lossy), (false, vec![1]));
        assert_eq!(take(lossy, lossy), (true, vec![0, 1]));
        assert_eq!(take(few, lossy), (true, vec![0, 1]), "too few say nothing, once");
        assert_eq!(take(few, good), (false, vec![]));
        assert_eq!(take(good, lossy), (false, vec![]));
        assert_eq!(take(good, lossy), (false, vec![1]));
        let why = losses.bad_paths().next().unwrap().1;
        assert_eq!(why, "host1 lost 500 of 5000 frames that it sent (10.0 %) to box1 by path 1");
        // They have parted.
        losses.take(&host, Some(frames(1, 0)), BTreeMap::new(), &config);
        assert!(losses.paths.is_empty());
    }

    #[test]
    fn what_is_gone_has_no_losses() {
        let (config, host, peer) = (HealthConfig::default(), name("host1"), name("box1"));
        let mut losses = Losses::default();
        let take = |losses: &mut Losses| {
            let paths = BTreeMap::from([((peer.clone(), 0), frames(5000, 500))]);
            losses.take(&host, None, paths, &config);
        };
        take(&mut losses);
        losses.left(&host);
        assert!(losses.proxies.is_empty() && losses.paths.is_empty());
        take(&mut losses);
        losses.forgotten(&peer);
        assert!(losses.paths.is_empty() && losses.proxies.len() == 1);
    }
}
