//! Who is connected.

use super::session::RootComplex;
use super::{MAX_PROXIES, Session};
use crate::planner::Liveness;
use crate::types::{NodeName, Timestamp};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tlp_codec::ids::PortId;
use tokio::time::Instant;

/// How long proxies have to come back to a manager that starts. They try again after two seconds at
/// most.
const COMING_BACK: Duration = Duration::from_secs(5);

/// When a proxy left.
#[derive(Clone, Copy)]
struct Left {
    /// For people.
    at: Timestamp,
    /// What is decided goes by it: nobody sets this clock.
    since: Instant,
}

/// Why a proxy is not entered.
pub enum NoEntry {
    /// It is connected already, by this.
    There(Arc<Session>),
    /// [`MAX_PROXIES`] others are connected.
    Full,
}

/// The connected proxies by name.
#[derive(Default)]
pub struct Registry {
    /// When the manager started.
    began: Option<Instant>,
    sessions: RwLock<HashMap<NodeName, Arc<Session>>>,
    /// When each that was connected since the manager started left last. No larger than the
    /// records' list of proxies.
    left: RwLock<HashMap<NodeName, Left>>,
    /// How long a host without a root complex keeps what it has; nothing: for ever.
    grace: Option<Duration>,
}

impl Registry {
    /// With nobody connected. Hosts without a root complex keep for `grace` what they have.
    pub fn new(grace: Option<Duration>) -> Self {
        Self { grace, began: Some(Instant::now()), ..Self::default() }
    }

    /// A proxy, if it is connected.
    pub fn get(&self, name: &NodeName) -> Option<Arc<Session>> {
        self.sessions.read().expect("no one panics while holding it").get(name).cloned()
    }

    /// A proxy, if it is connected and its tables have been read.
    pub fn ready(&self, name: &NodeName) -> Option<Arc<Session>> {
        self.get(name).filter(|session| session.is_ready())
    }

    /// All that are connected.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.read().expect("no one panics while holding it").values().cloned().collect()
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.sessions.read().expect("no one panics while holding it").len()
    }

    /// Enters a proxy, unless it is connected already, or there is no room for one more.
    pub fn enter(&self, session: &Arc<Session>) -> Result<(), NoEntry> {
        let mut sessions = self.sessions.write().expect("no one panics while holding it");
        match sessions.get(session.name()) {
            Some(there) if there.close_reason().is_none() => Err(NoEntry::There(there.clone())),
            None if sessions.len() >= MAX_PROXIES => Err(NoEntry::Full),
            _ => {
                sessions.insert(session.name().clone(), session.clone());
                Ok(())
            }
        }
    }

    /// Takes a proxy out, unless another connection of it is there by now. Whether it did.
    pub fn leave(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.write().expect("no one panics while holding it");
        let is_there =
            sessions.get(session.name()).is_some_and(|there| Arc::ptr_eq(there, session));
        if is_there {
            let mut left = self.left.write().expect("no one panics while holding it");
            let now = Left { at: Timestamp::now(), since: Instant::now() };
            left.insert(session.name().clone(), now);
            sessions.remove(session.name());
        }
        is_there
    }

    /// A proxy was forgotten: when it left is nothing that one of its name is asked for.
    pub fn forget(&self, name: &NodeName) {
        self.left.write().expect("no one panics while holding it").remove(name);
    }

    /// Whether a host has a root complex; nothing if it is not connected, or has not said so yet.
    pub fn root_complex(&self, host: &NodeName) -> Option<RootComplex> {
        self.ready(host)?.root_complex()
    }

    /// The hosts that are connected and have no root complex, and since when.
    pub fn hosts_without_root_complex(&self) -> Vec<(NodeName, Instant)> {
        let away = |session: Arc<Session>| match session.root_complex() {
            Some(RootComplex::Away { since, .. }) if session.is_ready() => {
                Some((session.name().clone(), since))
            }
            _ => None,
        };
        self.all().into_iter().filter_map(away).collect()
    }

    /// That a host has no root complex, and since when, for a person; nothing if it has one or is not
    /// connected. Not for how long: what shows it would change by itself, and its entity tag with it.
    pub fn no_root_complex(&self, host: &NodeName) -> Option<String> {
        match self.root_complex(host)? {
            RootComplex::Present => None,
            RootComplex::Away { at, .. } => {
                Some(format!("{host} has had no root complex since {at}"))
            }
        }
    }

    /// When a proxy left last since the manager started.
    pub fn left(&self, name: &NodeName) -> Option<Timestamp> {
        self.last_left(name).map(|left| left.at)
    }

    /// How long ago that was.
    pub fn left_ago(&self, name: &NodeName) -> Option<Duration> {
        self.last_left(name).map(|left| left.since.elapsed())
    }

    fn last_left(&self, name: &NodeName) -> Option<Left> {
        self.left.read().expect("no one panics while holding it").get(name).copied()
    }

    /// That a proxy is away and since when, for a person; nothing if it is connected.
    pub fn absence(&self, name: &NodeName) -> Option<String> {
        if self.get(name).is_some() {
            return None;
        }
        let left = self.left.read().expect("no one panics while holding it");
        let since = match left.get(name) {
            Some(left) => left.at.to_string(),
            None => "the manager started".to_owned(),
        };
        Some(format!("{name} has not been connected since {since}"))
    }
}

impl Liveness for Registry {
    fn paths(&self, name: &NodeName) -> Option<usize> {
        self.get(name).map(|session| session.identity().paths.len())
    }

    fn is_ready(&self, name: &NodeName) -> bool {
        self.ready(name).is_some_and(|session| !session.is_leaving())
    }

    fn is_connecting(&self, name: &NodeName) -> bool {
        match self.get(name) {
            Some(there) => {
                (!there.is_ready() || there.is_leaving()) && there.close_reason().is_none()
            }
            None => {
                self.left(name).is_none()
                    && self.began.is_some_and(|began| began.elapsed() < COMING_BACK)
            }
        }
    }

    fn stray_ports(&self, host: &NodeName) -> BTreeSet<PortId> {
        self.get(host).map(|session| session.stray_ports()).unwrap_or_default()
    }

    fn without_root_complex(&self, host: &NodeName) -> Option<String> {
        let why = self.no_root_complex(host)?;
        Some(match self.grace {
            Some(grace) => {
                let bound = grace.as_secs();
                format!("{why}; what it gets is taken back if none comes within {bound} s")
            }
            None => format!("{why}; what it gets waits there for one"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::session::Identity;
    use crate::types::Role;
    use proxy_core::control::Term;
    use std::net::{Ipv4Addr, SocketAddr};
    use tlp_codec::ids::NodeId;

    fn connected(registry: &Registry, incarnation: u32) -> Arc<Session> {
        let identity = Identity {
            name: NodeName::new("host1").unwrap(),
            role: Role::Host,
            size: 1,
            node: NodeId::new(1).unwrap(),
            incarnation,
            paths: Vec::new(),
            mtu: 1500,
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            since: Timestamp::now(),
        };
        let (session, _) = Session::new(identity, Term(1));
        let session = Arc::new(session);
        registry.enter(&session).map_err(drop).unwrap();
        session
    }

    #[test]
    fn who_was_forgotten_never_left() {
        let (registry, name) = (Registry::default(), NodeName::new("host1").unwrap());
        let session = connected(&registry, 1);
        assert!(registry.leave(&session) && !registry.leave(&session));
        assert!(registry.left(&name).is_some());
        registry.forget(&name);
        assert!(registry.left(&name).is_none() && registry.count() == 0);
    }

    /// The wall clock may be set meanwhile.
    #[test]
    fn how_long_ago_who_left_is_not_told_by_the_wall_clock() {
        let (registry, name) = (Registry::default(), NodeName::new("host1").unwrap());
        assert_eq!(registry.left_ago(&name), None);
        registry.leave(&connected(&registry, 1));
        registry.left.write().unwrap().get_mut(&name).unwrap().at = Timestamp::from_millis(0);
        assert!(registry.left_ago(&name).unwrap() < COMING_BACK);
    }

    #[test]
    fn who_may_be_on_its_way_back_is_connecting() {
        let (registry, name) = (Registry::new(None), NodeName::new("host1").unwrap());
        assert!(registry.is_connecting(&name));
        let session = connected(&registry, 1);
        assert!(registry.is_connecting(&name), "its tables are being read");
        session.set_ready();
        assert!(!registry.is_connecting(&name));
        registry.leave(&session);
        assert!(!registry.is_connecting(&name), "it was here");
        let other = NodeName::new("host2").unwrap();
        assert!(registry.is_connecting(&other));
        let began = Instant::now().checked_sub(COMING_BACK);
        let registry = Registry { began, ..Registry::default() };
        assert!(!registry.is_connecting(&other), "it had its time");
    }

    #[test]
    fn the_later_connection_stays() {
        let registry = Registry::default();
        let first = connected(&registry, 1);
        assert!(registry.enter(&first).is_err(), "it is there");
        first.close("another one came");
        let second = connected(&registry, 2);
        assert!(!registry.leave(&first), "it is another one's place now");
        assert!(Arc::ptr_eq(&registry.get(second.name()).unwrap(), &second));
    }
}
