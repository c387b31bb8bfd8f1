//! The manager's own code in virtual time: records, planner, operations, reconcile, sessions and
//! the bytes of the control protocol, on a runtime of one thread whose clock stands still until
//! the simulation moves it. Only the store is another one (memory), and what carries the bytes.
//!
//! An operator asks it for one slot for one host, again whenever there is no such lending; where slots
//! roam, for the next host when the slot was released.

mod leases;
mod life;
mod operator;

use crate::director::{Order, Terms};
use leases::Watched;
use life::{Heard, Life, MemoryStore};
use manager::config::Settings;
use manager::records::{WallClock, next_generation};
use manager::types::{Desired, EventKind, NodeName, Phase, Place, SlotAddress};
use operator::Wish;
use proxy_core::control::{
    CONTROL_VERSION, FromProxy, Hello, OperationId, PathAddress, RoleKind, Share, Term, ToProxy,
};
use proxy_core::time::Instant;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a manager that crashed stays away.
const AWAY: Duration = Duration::from_millis(200);
/// How long a host without a root complex keeps what it has. No host here is without one for
/// longer than a moment, so nothing is ever taken back for that.
const GRACE: Duration = Duration::from_millis(100);
/// How long before its end the borrower of a lease is told, and how long its operating system has then.
const LEASE_WARNING: Duration = Duration::from_millis(200);
const LEASE_GRACE: Duration = Duration::from_secs(1);
/// What wall clocks say when a run begins, milliseconds of Unix time.
const EPOCH_MS: u64 = 1_800_000_000_000;
/// In the number of a request: it comes from the manager before the one that is in charge, over the
/// connection that it has still, and so does the answer go.
const STALE: u64 = 1 << 62;

/// The manager, the one before it that has not noticed yet, and the operator.
pub(crate) struct Managed {
    current: Option<Life>,
    stale: Option<Life>,
    /// Nodes that have left that one, and hear it yet.
    moved: BTreeSet<usize>,
    /// What the next life finds.
    left: Arc<MemoryStore>,
    back_at: Option<Instant>,
    wishes: Vec<Wish>,
    /// What the operator works on.
    at_work: Vec<Place>,
    looked_at_holds: Instant,
    /// Whether a slot that was released is lent to the next host.
    roams: bool,
    /// For how long something is lent, and until when that is asked for.
    lease_ms: [u64; 2],
    leases_until: Instant,
    /// What the wall clock says, and by how much it has jumped, milliseconds.
    wall: Arc<AtomicU64>,
    jumped_ms: i64,
    jumped_at: Instant,
    watched: Watched,
    terms: Terms,
    settings: Settings,
    hosts: usize,
    ports: u8,
    slots: u8,
    paths: usize,
    frame: u16,
    /// Nodes whose connection ended.
    pub(crate) closed: Vec<usize>,
    pub(crate) crashes: u64,
}

/// What a life says to a node, for the simulation.
#[allow(clippy::large_enum_variant)] // one at a time
enum Said {
    Order(Order),
    Closed,
    Nothing,
}

/// A life said something to a node.
fn attend(life: &mut Life, node: usize, heard: Heard) -> Said {
    match heard {
        Heard::Said(ToProxy::Request { id, term, body }) => Said::Order((node, id, term, body)),
        Heard::Said(ToProxy::Ping) => {
            life.say(node, FromProxy::Pong);
            Said::Nothing
        }
        Heard::Said(ToProxy::Welcome(welcome)) => {
            assert_eq!(usize::from(welcome.node.get()), node + 1, "a number is for ever");
            Said::Nothing
        }
        Heard::Said(ToProxy::Refused(_)) | Heard::Closed => {
            life.disconnect(node);
            Said::Closed
        }
    }
}

/// The number in a name that [`name`] gave: of the host, or of the box.
fn number(name: &NodeName) -> usize {
    let digits = name.as_str().trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().expect("the names here end in a number")
}

fn name(hosts: usize, node: usize) -> NodeName {
    let text = if node < hosts { format!("host{node}") } else { format!("box{}", node - hosts) };
    NodeName::new(&text).expect("a name")
}

impl Managed {
    pub(crate) fn new(
        now: Instant,
        hosts: usize,
        lendings: &[(usize, usize, usize, usize)],
        (ports, slots): (usize, usize),
        (paths, frame): (usize, usize),
        terms: Terms,
    ) -> Self {
        let wish = |&(host, _, at_box, slot): &(usize, usize, usize, usize)| {
            let slot =
                SlotAddress::new(name(hosts, hosts + at_box), crate::director::slot_id(slot));
            Wish::new(host, slot.expect("a slot"))
        };
        let store = Arc::new(MemoryStore::default());
        let settings = Settings {
            host_grace: Some(GRACE),
            lease_warning: LEASE_WARNING,
            lease_grace: LEASE_GRACE,
            ..Settings::default()
        };
        let wall = Arc::new(AtomicU64::new(EPOCH_MS));
        let clock = WallClock::Told(wall.clone());
        let life = Life::new(now, &clock, store.clone(), &settings);
        Self {
            watched: Watched::new(now, &life.manager.records.snapshot()),
            current: Some(life),
            stale: None,
            moved: BTreeSet::new(),
            left: store,
            back_at: None,
            wishes: lendings.iter().map(wish).collect(),
            at_work: Vec::new(),
            looked_at_holds: now,
            roams: false,
            lease_ms: [0; 2],
            leases_until: Instant::ZERO,
            wall,
            jumped_ms: 0,
            jumped_at: Instant::ZERO,
            terms,
            settings,
            hosts,
            ports: ports as u8,
            slots: slots as u8,
            paths,
            frame: frame as u16,
            closed: Vec::new(),
            crashes: 0,
        }
    }

    /// Whether a slot that was released goes to the next host.
    pub(crate) fn roaming(self, roams: bool) -> Self {
        Self { roams, ..self }
    }

    /// For how long something is lent that has an end.
    pub(crate) fn leasing(self, lease_ms: [u64; 2]) -> Self {
        Self { lease_ms, ..self }
    }

    /// From now until then some of it is asked for with an end.
    pub(crate) fn lends_for_a_time(&mut self, until: Instant) {
        self.leases_until = until;
    }

    /// The wall clock jumps: that of every manager.
    pub(crate) fn clock_jumps(&mut self, now: Instant, by_ms: i64) {
        self.jumped_ms += by_ms;
        self.jumped_at = now;
    }

    /// What the wall clock says.
    fn wall_ms(&self, now: Instant) -> u64 {
        (EPOCH_MS + now.as_nanos() / 1_000_000).saturating_add_signed(self.jumped_ms)
    }

    fn begin_life(&mut self, now: Instant) {
        let clock = WallClock::Told(self.wall.clone());
        let life = Life::new(now, &clock, self.left.clone(), &self.settings);
        self.watched = Watched::new(now, &life.manager.records.snapshot());
        self.current = Some(life);
    }

    /// A proxy dials in.
    pub(crate) fn connected(&mut self, node: usize, incarnation: u32, term: Term) {
        let address = |path| PathAddress::Ethernet {
            mac: [2, 0xd0, 0xac, path as u8, 0, node as u8],
            vlan: None,
        };
        let role = if node < self.hosts {
            RoleKind::Host { ports: self.ports }
        } else {
            RoleKind::Box { slots: self.slots }
        };
        let hello = Hello {
            version: CONTROL_VERSION,
            name: name(self.hosts, node).as_str().try_into().expect("a short name"),
            role,
            incarnation,
            node: None,
            paths: (0..self.paths).map(address).collect(),
            mtu: self.frame,
            term,
        };
        match &mut self.current {
            Some(life) => life.connect(node, hello),
            None => self.closed.push(node),
        }
    }

    /// A proxy leaves for the manager that is in charge. Every second one goes on hearing the one before,
    /// and is heard by it.
    pub(crate) fn redials(&mut self, node: usize) {
        if node.is_multiple_of(2) {
            return self.disconnected(node);
        }
        if self.stale.as_ref().is_some_and(|life| life.knows(node)) {
            self.moved.insert(node);
        }
        if let Some(life) = &mut self.current {
            life.disconnect(node);
        }
    }

    /// A proxy's connection ends.
    pub(crate) fn disconnected(&mut self, node: usize) {
        self.moved.remove(&node);
        for life in [&mut self.current, &mut self.stale].into_iter().flatten() {
            life.disconnect(node);
        }
    }

    /// A proxy says something.
    pub(crate) fn told(&mut self, node: usize, message: &FromProxy) {
        let (current, stale) = (self.current.iter(), self.stale.iter());
        match message {
            FromProxy::Response { id, result } if id.0 & STALE != 0 => {
                let id = OperationId(id.0 & !STALE);
                stale.for_each(|life| {
                    life.say(node, FromProxy::Response { id, result: result.clone() })
                });
            }
            FromProxy::Response { .. } if self.moved.contains(&node) => {
                current.for_each(|life| life.say(node, message.clone()));
            }
            _ => current.chain(stale).for_each(|life| life.say(node, message.clone())),
        }
    }

    /// It dies at its n-th write from now, which is made or not.
    pub(crate) fn dies_at(&mut self, writes: u64, made: bool) {
        if let Some(life) = &self.current {
            let mut stored = life.store.stored();
            stored.dies_at = Some((stored.commits + writes.max(1), made));
        }
    }

    /// Another one takes over, and this one goes on as long as anybody listens to it. It has a copy of
    /// the records, which goes to its next generation as a restored one does: what the first one
    /// lends from now on may be known to nobody when it is needed.
    /// Whether there is one to be taken over.
    pub(crate) fn taken_over(&mut self, now: Instant) -> bool {
        let Some(before) = self.current.take() else { return false };
        self.left = Arc::new(before.store.copy());
        next_generation(self.left.as_ref(), Path::new("memory"), 0).expect("there are 255 more");
        self.stale = Some(before);
        self.moved.clear();
        self.begin_life(now);
        true
    }

    /// The one before is gone at last.
    pub(crate) fn end_stale(&mut self) {
        if let Some(stale) = self.stale.take() {
            let moved = std::mem::take(&mut self.moved);
            self.closed.extend(stale.nodes().filter(|node| !moved.contains(node)));
        }
    }

    /// Lets it do what is to be done; what it says to the proxies.
    pub(crate) fn orders(&mut self, now: Instant) -> Vec<Order> {
        self.wall.store(self.wall_ms(now), Relaxed);
        if self.back_at.is_some_and(|at| at <= now) {
            self.back_at = None;
            self.begin_life(now);
        }
        self.operate(now);
        let mut orders = Vec::new();
        let Self { current, stale, closed, moved, .. } = self;
        for (node, heard) in current.iter().flat_map(|life| life.run_until(now)).collect::<Vec<_>>()
        {
            let life = current.as_mut().expect("it said something");
            match attend(life, node, heard) {
                Said::Order(order) => orders.push(order),
                Said::Closed => closed.push(node),
                Said::Nothing => {}
            }
        }
        for (node, heard) in stale.iter().flat_map(|life| life.run_until(now)).collect::<Vec<_>>() {
            let left = moved.contains(&node);
            match attend(stale.as_mut().expect("it said something"), node, heard) {
                Said::Order((node, id, term, body)) if left => {
                    orders.push((node, OperationId(id.0 | STALE), term, body));
                }
                Said::Order(order) => orders.push(order),
                Said::Closed if !left => closed.push(node),
                Said::Closed | Said::Nothing => {}
            }
        }
        if self.current.as_ref().is_some_and(|life| life.store.is_dead()) {
            let life = self.current.take().expect("looked at just now");
            self.left = Arc::new(life.store.copy());
            self.closed.extend(life.nodes());
            self.back_at = Some(now + AWAY);
            self.crashes += 1;
        }
        orders
    }

    /// How many nodes have their numbers.
    #[cfg(test)]
    pub(crate) fn known_nodes(&self) -> usize {
        self.current.as_ref().map_or(0, |life| life.manager.records.snapshot().nodes().len())
    }

    /// How often it has written into its records in this life.
    #[cfg(test)]
    pub(crate) fn writes(&self) -> u64 {
        self.current.as_ref().map_or(0, |life| life.store.stored().commits)
    }

    /// Whether every wish is granted and nothing is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled().is_empty()
    }

    /// What is not, for a person.
    pub(crate) fn unsettled(&self) -> String {
        let Some(life) = &self.current else { return "there is no manager".into() };
        let tables = life.manager.records.snapshot();
        let waits =
            self.wishes.iter().filter_map(|wish| match tables.binding_at_slot(&wish.slot) {
                None => Some(format!("{} is not lent", wish.slot)),
                Some(b) if b.phase != Phase::Configured || b.desired != Desired::Bound => {
                    Some(format!("{}: {} ({:?})", wish.slot, b.phase, b.trouble))
                }
                Some(b) => b.operation.map(|operation| format!("{}: {operation}", wish.slot)),
            });
        let ends = tables.leased().map(|allocation| format!("{} has an end", allocation.id));
        let runs = tables.running().map(|operation| format!("{} goes on", operation.id));
        let held = tables.holds().keys().map(|place| format!("{place} is held back"));
        waits.chain(held).chain(ends).chain(runs).collect::<Vec<_>>().join(", ")
    }

    /// Whether it took devices back from a host for having no root complex.
    pub(crate) fn gave_a_host_up(&self) -> bool {
        let Some(life) = &self.current else { return false };
        let tables = life.manager.records.snapshot();
        tables.events().values().any(|event| event.kind == EventKind::HostGraceOver)
    }

    /// The bindings as the records have them, each function's.
    pub(crate) fn records(&self) -> Vec<Lent> {
        let Some(life) = &self.current else { return Vec::new() };
        let tables = life.manager.records.snapshot();
        let entries = |b: &manager::types::BindingRecord| {
            let (host, at_box) = (number(&b.host), number(b.slot.box_name()));
            let (port, slot) = (Some(b.port.get()), b.slot.slot().get());
            let share = share_of(tables.link_use(b).share());
            // What has none is in no box.
            let paths = b.path_set.map_or(0, |paths| paths.0);
            let functions = b.functions.iter().map(|f| (f.function.get(), f.epoch.bits()));
            let functions: Vec<_> = functions.collect();
            functions.into_iter().map(move |(function, epoch)| Lent {
                host,
                port,
                at_box,
                slot,
                function,
                epoch,
                paths,
                share,
            })
        };
        tables.bindings().values().flat_map(entries).collect()
    }
}

/// A binding of one function, as somebody's tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lent {
    pub(crate) host: usize,
    /// Which a box does not know.
    pub(crate) port: Option<u8>,
    pub(crate) at_box: usize,
    pub(crate) slot: u8,
    pub(crate) function: u16,
    pub(crate) epoch: u32,
    /// Paths, a bit for each.
    pub(crate) paths: u8,
    pub(crate) share: Shared,
}

/// Weight, limit and guaranteed rate.
pub(crate) type Shared = (u8, u64, u64);

pub(crate) fn share_of(share: Share) -> Shared {
    (share.weight, share.limit, share.guarantee)
}
