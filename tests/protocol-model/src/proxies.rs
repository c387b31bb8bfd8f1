//! The proxies, as far as the protocol sees them, and what is on its way to and from them.

use crate::records::{function, node, port, slot};
use proxy_core::control::{
    ControlError, InventoryEntry, MappingEntry, Name, PathSet, PortState, SlotEntry, SlotState,
    Term,
};
use tlp_codec::ids::{Bdf, Epoch, SlotFunction};

/// What a manager asks for. A proxy's introduction to a peer comes with what needs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// `ReadInventory` and `ReadTable`.
    Read,
    /// `SetPeer`.
    SetPeer {
        /// 0 is the box, then the hosts.
        peer: usize,
        /// The life that the peer is in.
        incarnation: u32,
    },
    /// `SetPeer`, then `BindSlot`.
    BindSlot {
        /// For which host.
        host: usize,
        /// In which of its lives.
        incarnation: u32,
        /// Under which epoch.
        epoch: Epoch,
        /// Which binding this really is.
        life: u8,
    },
    /// `UnbindSlot`.
    UnbindSlot {
        /// Of which epoch.
        epoch: Epoch,
        /// Whether the manager has had the host let go, or never could.
        host_asked: bool,
    },
    /// `SetPeer`, then `BindPort`.
    BindPort {
        /// In which of the box's lives.
        incarnation: u32,
        /// Under which epoch.
        epoch: Epoch,
        /// Which binding this really is.
        life: u8,
    },
    /// `UnbindPort`, orderly or not: the operating system lets go, or is not asked for long.
    UnbindPort {
        /// Of which epoch.
        epoch: Epoch,
    },
}

/// Whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The driver of the binding.
    Driver,
    /// The comparison of tables.
    Sync,
}

/// A request on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Who waits for the answer.
    pub way: Way,
    /// The manager's term.
    pub term: u64,
    /// What it asks for.
    pub body: Body,
}

/// What a proxy says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is done.
    Done(Way),
    /// It is refused.
    Refused(Way, Refusal),
    /// What a box had when it was read.
    Box(BoxProxy),
    /// What a host had when it was read.
    Host(HostProxy),
    /// Nobody asked: a link is down, and what is bound over it under this epoch is dead.
    LinkDown(Epoch),
    /// Nobody asked: the operating system has enabled the device.
    Configured,
}

/// The refusals that the protocol has; `ControlError` is not hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `StaleTerm`.
    StaleTerm(u64),
    /// `StaleEpoch`.
    StaleEpoch(Epoch),
    /// `InUse`.
    InUse(Epoch),
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::StaleTerm(term) => Self::StaleTerm(Term(term)),
            Refusal::StaleEpoch(epoch) => Self::StaleEpoch(epoch),
            Refusal::InUse(epoch) => Self::InUse(epoch),
        }
    }
}

/// A binding in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The host at the other end; at a host, itself.
    pub host: usize,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its link went down.
    pub dead: bool,
    /// Which binding this really is.
    pub life: u8,
}

/// The box.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoxProxy {
    /// Its life.
    pub incarnation: u32,
    /// The highest term that it obeyed.
    pub term: u64,
    /// The highest epoch of the slot; lost with its life.
    pub highest: Option<Epoch>,
    /// What is in the slot's entry.
    pub bound: Option<Entry>,
    /// In which life it knows each host.
    pub peers: [Option<u32>; 2],
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostProxy {
    /// Its life.
    pub incarnation: u32,
    /// The highest term that it obeyed.
    pub term: u64,
    /// What is at the port.
    pub bound: Option<Entry>,
    /// Whether the operating system has enabled it.
    pub configured: bool,
    /// In which life it knows the box.
    pub peer: Option<u32>,
}

/// A TLP on the fabric, as long as it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tlp {
    /// From the host to the device, or from the device to the host's memory.
    pub to_device: bool,
    /// The host.
    pub host: usize,
    /// Lives of the sender and of whom it sends to, as the sender knows them.
    pub incarnations: (u32, u32),
    /// The binding's epoch.
    pub epoch: Epoch,
    /// Which binding this really is.
    pub life: u8,
}

impl BoxProxy {
    pub(crate) fn new(incarnation: u32) -> Self {
        Self { incarnation, term: 0, highest: None, bound: None, peers: [None; 2] }
    }

    /// The epoch of what this made dead.
    pub(crate) fn set_peer(&mut self, host: usize, incarnation: u32) -> Option<Epoch> {
        let news = self.peers[host] != Some(incarnation);
        self.peers[host] = Some(incarnation);
        match &mut self.bound {
            Some(entry) if news && entry.host == host && !entry.dead => {
                entry.dead = true;
                Some(entry.epoch)
            }
            _ => None,
        }
    }

    pub(crate) fn bind(
        &mut self,
        host: usize,
        epoch: Epoch,
        life: u8,
        lax: bool,
    ) -> Result<(), Refusal> {
        match self.bound {
            Some(entry) if entry.host == host && entry.epoch == epoch && !entry.dead => {
                return Ok(());
            }
            Some(entry) => return Err(Refusal::InUse(entry.epoch)),
            None => {}
        }
        if let Some(highest) = self.highest
            && epoch <= highest
            && !lax
        {
            return Err(Refusal::StaleEpoch(highest));
        }
        self.highest = Some(epoch);
        self.bound = Some(Entry { host, epoch, dead: false, life });
        Ok(())
    }

    fn state(&self) -> SlotState {
        if self.bound.is_some() { SlotState::Bound } else { SlotState::Free }
    }

    /// What it says is in its slot.
    pub(crate) fn inventory(&self) -> Vec<InventoryEntry> {
        vec![InventoryEntry {
            slot: slot().slot(),
            function: SlotFunction::ZERO,
            state: self.state(),
            model: Name::try_from("device").expect("it is short"),
            id: (1, 1),
            subsystem: (1, 1),
            class: 0x01_0802,
            revision: 0,
            serial: 1,
            bars: [0; 6],
            highest_epoch: self.highest.map_or(0, Epoch::bits),
        }]
    }

    /// Its table.
    pub(crate) fn table(&self) -> Vec<SlotEntry> {
        vec![SlotEntry {
            entry: 0,
            valid: true,
            used: self.bound.is_some(),
            state: self.state(),
            slot: slot().slot(),
            function: function().function,
            host_node: self.bound.map_or(0, |entry| node(entry.host + 1).get()),
            path_set: PathSet::FIRST,
            epoch: self.bound.map(|entry| entry.epoch).or(self.highest).map_or(0, Epoch::bits),
            windows: Default::default(),
        }]
    }
}

impl HostProxy {
    pub(crate) fn new(incarnation: u32) -> Self {
        Self { incarnation, term: 0, bound: None, configured: false, peer: None }
    }

    /// The epoch of what this made dead.
    pub(crate) fn set_peer(&mut self, incarnation: u32) -> Option<Epoch> {
        let news = self.peer != Some(incarnation);
        self.peer = Some(incarnation);
        match &mut self.bound {
            Some(entry) if news && !entry.dead => {
                entry.dead = true;
                Some(entry.epoch)
            }
            _ => None,
        }
    }

    pub(crate) fn bind(&mut self, host: usize, epoch: Epoch, life: u8) -> Result<(), Refusal> {
        match self.bound {
            Some(entry) if entry.epoch == epoch && !entry.dead => Ok(()),
            Some(entry) => Err(Refusal::InUse(entry.epoch)),
            None => {
                self.bound = Some(Entry { host, epoch, dead: false, life });
                self.configured = false;
                Ok(())
            }
        }
    }

    /// Its table.
    pub(crate) fn table(&self) -> Vec<MappingEntry> {
        let state = match self.bound {
            None => PortState::Empty,
            Some(entry) if entry.dead => PortState::Failed,
            Some(_) => PortState::Present,
        };
        vec![MappingEntry {
            port: port(),
            used: self.bound.is_some(),
            state,
            buses: (0, 0),
            device: Bdf::from_bits(0),
            memory: None,
            prefetchable: None,
            io: None,
            box_node: self.bound.map_or(0, |_| node(0).get()),
            slot: self.bound.map_or(0, |_| slot().slot().get()),
            functions: self.bound.iter().map(|e| (SlotFunction::ZERO, e.epoch)).collect(),
            path_set: PathSet::FIRST,
            configured: self.configured && self.bound.is_some_and(|entry| !entry.dead),
        }]
    }
}
