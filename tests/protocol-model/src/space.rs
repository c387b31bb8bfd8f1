//! The states, and what can happen in each.

use crate::fair;
use crate::happenings::spend;
use crate::leader::{self, Leader};
use crate::proxies::{Answer, BoxProxy, HostProxy, Request, Tlp};
use crate::records::Records;
use crate::seen::Seen;
use stateright::{Model, Property};
use std::collections::HashSet;
use std::sync::Mutex;

/// How often each thing may happen in one run. All orders within these bounds are explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Requests to lend.
    pub allocations: u8,
    /// Requests to take back, orderly.
    pub releases: u8,
    /// Requests to take back by force.
    pub forces: u8,
    /// Connections lost that a manager notices first.
    pub losses: u8,
    /// Managers killed and started again.
    pub crashes: u8,
    /// Second managers that are started from a backup while the first one goes on.
    pub takeovers: u8,
    /// Boxes that restart without their tables.
    pub box_restarts: u8,
    /// Hosts that restart without their tables.
    pub host_restarts: u8,
    /// Table entries that a proxy loses without restarting.
    pub forgets: u8,
    /// TLPs that are sent. One is on its way at a time, as long as it likes.
    pub tlps: u8,
}

/// A mistake that is planted, so that the checker shows that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A release resets the device before the host let go of it.
    SlotFirst,
    /// An epoch is given out again, and the box takes it.
    EpochAgain,
    /// A manager that is started from a backup begins no term of its own above the others.
    SameTerm,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A TLP of one binding was taken for another's.
    Crossed,
    /// The device was reset while a host that could be asked still used it.
    ResetUnderUse,
    /// A manager changed a table after the proxy had obeyed a later one.
    NotFenced,
}

/// A control connection, as both of its ends see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) leader: usize,
    /// The proxy's life that dialled.
    pub(crate) incarnation: u32,
    /// Whether the manager takes it for open.
    pub(crate) open: bool,
    /// Whether that life of the proxy is over.
    pub(crate) gone: bool,
    /// Whether the manager has read the tables.
    pub(crate) ready: bool,
    pub(crate) sync_wanted: bool,
    pub(crate) sync: leader::Sync,
    pub(crate) requests: Vec<Request>,
    pub(crate) answers: Vec<Answer>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) leaders: [Option<Leader>; 2],
    pub(crate) backup: Records,
    pub(crate) the_box: BoxProxy,
    pub(crate) hosts: [HostProxy; 2],
    /// Of the box, then of the hosts.
    pub(crate) connections: [Option<Connection>; 3],
    pub(crate) tlp: Option<Tlp>,
    pub(crate) left: Bounds,
    /// Lives of bindings so far.
    pub(crate) lives: u8,
    pub(crate) wrong: Option<Wrong>,
}

/// One thing that happens. Proxies are numbered: the box, then the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// A manager is asked to lend the slot to a host.
    Allocate(usize, usize),
    /// A manager is asked to take it back.
    Release(usize),
    /// By force.
    Force(usize),
    /// A manager does what is next for the binding.
    Drive(usize),
    /// A manager goes on with comparing a proxy's tables.
    Compare(usize),
    /// A proxy does what it is asked for next.
    Obey(usize),
    /// A manager takes in what a proxy says next.
    Hear(usize),
    /// The box notices that the link of its binding is dead.
    BoxNotices,
    /// A host does.
    HostNotices(usize),
    /// A host's operating system enables the device.
    Enable(usize),
    /// A proxy dials a manager.
    Dial(usize, usize),
    /// A manager loses a proxy's connection.
    Lose(usize),
    /// What a manager has made is on the disk.
    Write(usize),
    /// A manager is killed and started again.
    Crash(usize),
    /// The records are backed up.
    Backup,
    /// A second manager is started from the backup.
    TakeOver,
    /// The box restarts.
    RestartBox,
    /// A host restarts.
    RestartHost(usize),
    /// A proxy loses its table's entry.
    Forget(usize),
    /// A host reads the device, or the device writes to the host.
    Send(usize, bool),
    /// The TLP arrives.
    Arrive,
}

/// The model: bounds, a mistake or none, and what was seen.
#[derive(Debug)]
pub struct Protocol {
    /// The bounds.
    pub bounds: Bounds,
    /// A mistake that is planted.
    pub bug: Option<Bug>,
    /// What the manager's code did.
    pub seen: Mutex<Seen>,
    /// States from which all comes to rest well.
    pub(crate) good: Mutex<HashSet<u64>>,
}

impl Protocol {
    /// With these bounds.
    pub fn new(bounds: Bounds, bug: Option<Bug>) -> Self {
        Self { bounds, bug, seen: Mutex::default(), good: Mutex::default() }
    }
}

impl Protocol {
    /// What comes of an act; nothing if it cannot happen or changes nothing.
    pub(crate) fn apply(&self, before: &State, act: Act) -> Option<State> {
        let mut state = before.clone();
        let now = &mut state;
        match act {
            Act::Allocate(leader, host) => {
                spend(&mut now.left.allocations)?;
                leader::allocate(now, leader, host, self.bug)?;
            }
            Act::Release(leader) => {
                spend(&mut now.left.releases)?;
                leader::release(now, leader, false)?;
            }
            Act::Force(leader) => {
                spend(&mut now.left.forces)?;
                leader::release(now, leader, true)?;
            }
            Act::Drive(leader) => leader::drive(now, leader, self)?,
            Act::Compare(proxy) => leader::compare(now, proxy)?,
            Act::Obey(proxy) => now.obey(proxy, self.bug)?,
            Act::Hear(proxy) => leader::hear(now, proxy, self)?,
            Act::BoxNotices => now.box_notices()?,
            Act::HostNotices(host) => now.host_notices(host)?,
            Act::Enable(host) => now.enable(host)?,
            Act::Dial(proxy, leader) => now.dial(proxy, leader)?,
            Act::Lose(proxy) => {
                now.connections[proxy].as_ref().filter(|c| c.open)?;
                spend(&mut now.left.losses)?;
                now.close(proxy);
            }
            Act::Write(leader) => {
                let leader = now.leaders[leader].as_mut()?;
                if leader.durable == leader.records {
                    return None;
                }
                leader.durable = leader.records.clone();
            }
            Act::Crash(leader) => {
                spend(&mut now.left.crashes)?;
                now.crash(leader)?;
            }
            Act::Backup => {
                let records = &now.leaders[0].as_ref()?.durable;
                if now.left.takeovers == 0 || *records == now.backup {
                    return None;
                }
                now.backup = records.clone();
            }
            Act::TakeOver => now.take_over(self.bug)?,
            Act::RestartBox => {
                spend(&mut now.left.box_restarts)?;
                now.the_box = BoxProxy::new(now.the_box.incarnation + 1);
                now.restarted(0);
            }
            Act::RestartHost(host) => {
                spend(&mut now.left.host_restarts)?;
                now.hosts[host] = HostProxy::new(now.hosts[host].incarnation + 1);
                now.restarted(host + 1);
            }
            Act::Forget(proxy) => {
                spend(&mut now.left.forgets)?;
                let entry = match proxy {
                    0 => &mut now.the_box.bound,
                    host => &mut now.hosts[host - 1].bound,
                };
                entry.take()?;
                // The clock brings a comparison about, some time.
                if let Some(connection) = now.connections[proxy].as_mut().filter(|c| c.open) {
                    connection.sync_wanted = true;
                }
            }
            Act::Send(host, to_device) => now.send(host, to_device)?,
            Act::Arrive => now.arrive()?,
        }
        // A manager that is killed may come back with what was before, which is no change.
        if !matches!(act, Act::Crash(_)) {
            self.note(before, now);
        }
        Some(state)
    }

    /// Restarts a manager that was told of a later one, for the fair schedule.
    pub(crate) fn restart_leader(&self, state: &mut State, leader: usize) -> Option<()> {
        state.crash(leader)
    }

    /// Remembers what the records did, and gives a binding that got new epochs a new life.
    fn note(&self, before: &State, now: &mut State) {
        for index in 0..2 {
            let (Some(old), Some(new)) = (&before.leaders[index], &mut now.leaders[index]) else {
                continue;
            };
            let (Some(from), Some(to)) = (old.records.binding(), new.records.binding()) else {
                continue;
            };
            if from.id != to.id {
                continue;
            }
            if from.phase != to.phase {
                let mut seen = self.seen.lock().expect("no one panics while holding it");
                seen.phases(from.phase, to.phase);
            }
            if from.functions != to.functions {
                now.lives += 1;
                (new.records.life, new.records.skipped) = (now.lives, false);
                new.durable = new.records.clone();
            }
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let records = Records::new();
        let mut state = State {
            leaders: [Some(Leader::new(records.clone())), None],
            backup: records,
            the_box: BoxProxy::new(1),
            hosts: [HostProxy::new(1), HostProxy::new(1)],
            connections: [None, None, None],
            tlp: None,
            left: self.bounds,
            lives: 0,
            wrong: None,
        };
        // All are connected and have been read: the way there comes again after every loss.
        fair::run(self, &mut state);
        vec![state]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for leader in 0..2 {
            if state.leaders[leader].is_some() {
                let hosts = (0..2).map(|host| Act::Allocate(leader, host));
                acts.extend(hosts);
                acts.extend([Act::Release(leader), Act::Force(leader), Act::Drive(leader)]);
                acts.extend([Act::Write(leader), Act::Crash(leader)]);
                acts.extend((0..3).map(|proxy| Act::Dial(proxy, leader)));
            }
        }
        for proxy in 0..3 {
            acts.extend([
                Act::Compare(proxy),
                Act::Obey(proxy),
                Act::Hear(proxy),
                Act::Lose(proxy),
            ]);
        }
        for host in 0..2 {
            acts.push(Act::Forget(host + 1));
            acts.extend([Act::HostNotices(host), Act::Enable(host), Act::RestartHost(host)]);
            acts.extend([Act::Send(host, true), Act::Send(host, false)]);
        }
        acts.push(Act::Forget(0));
        acts.extend([Act::BoxNotices, Act::RestartBox, Act::Backup, Act::TakeOver, Act::Arrive]);
    }

    fn next_state(&self, before: &State, act: Act) -> Option<State> {
        self.apply(before, act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no TLP crosses from one binding to another", |_, state: &State| {
                state.wrong != Some(Wrong::Crossed)
            }),
            Property::always("no device is reset while its host uses it", |_, state: &State| {
                state.wrong != Some(Wrong::ResetUnderUse)
            }),
            Property::always("two managers never have one term", |_, state: &State| {
                state.wrong != Some(Wrong::NotFenced)
            }),
            Property::always("one host at most reaches the device", |_, state: &State| {
                !(state.reaches(0) && state.reaches(1))
            }),
            Property::always("records and tables agree when the trouble is over", fair::settles),
            Property::sometimes("a host reaches the device", |_, state: &State| state.reaches(0)),
            Property::sometimes("a second manager lends it", |_, state: &State| {
                let second = state.leader(1).and_then(|leader| leader.records.binding());
                let highest = state.the_box.bound.map(|entry| entry.epoch.generation());
                second.is_some() && highest.is_some_and(|generation| generation > 0)
            }),
        ]
    }
}
