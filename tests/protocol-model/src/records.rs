//! A manager's records: its own tables, compared by what matters to the protocol.

use manager::records::{Tables, Txn};
use manager::types::{
    AllocationRecord, BindingRecord, Desired, FunctionAddress, FunctionEpoch, NodeName, NodeRecord,
    Phase, Role, SlotAddress, Timestamp,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use tlp_codec::ids::{Epoch, NodeId, PortId, SlotFunction, SlotId};

/// What of the records counts. Times, texts, events and numbers that are only names do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Digest {
    term: u64,
    highest_term_seen: u64,
    generation: u8,
    highest_epoch: Option<Epoch>,
    binding: Option<BindingDigest>,
}

/// Host, phase, what is wanted, epoch, and the lives in which box and host got it.
type BindingDigest = (usize, Phase, Desired, Epoch, Option<u32>, Option<u32>);

/// Records. Which binding life they have at the moment is known to nobody but the model.
#[derive(Clone)]
pub struct Records {
    pub(crate) tables: Arc<Tables>,
    digest: Digest,
    /// Which of all lives that a binding ever had, in the order in which they were made.
    pub(crate) life: u8,
    /// Whether the host was left out because it could not be asked.
    pub(crate) skipped: bool,
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        (&self.digest, self.life, self.skipped) == (&other.digest, other.life, other.skipped)
    }
}

impl Eq for Records {}

impl Hash for Records {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.digest, self.life, self.skipped).hash(state);
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} life {} skipped {}", self.digest, self.life, self.skipped)
    }
}

/// The box's name.
pub(crate) fn box_name() -> NodeName {
    NodeName::new("box").expect("it is a name")
}

/// A host's name.
pub(crate) fn host_name(host: usize) -> NodeName {
    NodeName::new(["host-a", "host-b"][host]).expect("it is a name")
}

/// The node number of a proxy: 0 is the box, then the hosts.
pub(crate) fn node(proxy: usize) -> NodeId {
    NodeId::new(proxy as u16 + 1).expect("small numbers are nodes")
}

/// The one slot.
pub(crate) fn slot() -> SlotAddress {
    SlotAddress::new(box_name(), SlotId::new(1).expect("1 is a slot")).expect("boxes have it")
}

/// The one port of each host.
pub(crate) fn port() -> PortId {
    PortId::new(0).expect("0 is a port")
}

/// What error messages call the store.
fn nowhere() -> &'static Path {
    Path::new("the model")
}

impl Records {
    /// Of a pool in which everybody has been, in its first term.
    pub(crate) fn new() -> Self {
        let mut txn = Txn::new(Tables::default());
        let now = txn.now();
        let names =
            [(box_name(), Role::Box), (host_name(0), Role::Host), (host_name(1), Role::Host)];
        for (index, (name, role)) in names.into_iter().enumerate() {
            let node = node(index);
            txn.put_node(NodeRecord::new(name, node, role, 1, now));
        }
        txn.begin_term(nowhere()).expect("the first term");
        Self::of(txn.into_tables(), 0, false)
    }

    fn of(tables: Tables, life: u8, skipped: bool) -> Self {
        let meta = tables.meta();
        let binding = tables.bindings().values().next().map(|binding| {
            let host = usize::from(binding.host == host_name(1));
            let ends = (binding.box_incarnation, binding.host_incarnation);
            (host, binding.phase, binding.desired, binding.port_epoch(), ends.0, ends.1)
        });
        let digest = Digest {
            term: meta.term,
            highest_term_seen: meta.highest_term_seen,
            generation: meta.generation,
            highest_epoch: tables.highest_epoch(&function()),
            binding,
        };
        Self { tables: Arc::new(tables), digest, life, skipped }
    }

    /// The one binding.
    pub(crate) fn binding(&self) -> Option<&BindingRecord> {
        self.tables.bindings().values().next()
    }

    /// The host that it is for.
    pub(crate) fn host(&self) -> Option<usize> {
        self.digest.binding.map(|binding| binding.0)
    }

    pub(crate) fn term(&self) -> u64 {
        self.digest.term
    }

    /// With a change that the manager's own code makes.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Txn) -> R) -> (Self, R) {
        let mut txn = Txn::new(Tables::clone(&self.tables));
        let result = change(&mut txn);
        (Self::of(txn.into_tables(), self.life, self.skipped), result)
    }

    /// As after a start.
    pub(crate) fn in_next_term(&self) -> Self {
        self.with(|txn| txn.begin_term(nowhere()).expect("there are generations left")).0
    }

    /// As after `restore`.
    pub(crate) fn in_next_generation(&self) -> Self {
        self.with(|txn| txn.begin_generation(nowhere(), 0).expect("there are generations left")).0
    }

    /// With the slot lent to a host. Nothing if it is lent already.
    pub(crate) fn lent_to(&self, host: usize, life: u8, reuse: bool) -> Option<Self> {
        if self.binding().is_some() {
            return None;
        }
        let (mut records, ()) = self.with(|txn| {
            let highest = txn.highest_epoch(&function());
            let epoch = match highest {
                // The planted mistake.
                Some(highest) if reuse => highest,
                _ => txn.new_epoch(&function()).expect("there are epochs left"),
            };
            let now = txn.now();
            let (allocation, id) = (txn.new_allocation_id(), txn.new_binding_id());
            // The fields that the protocol does not look at have their defaults.
            let record = allocation_record(allocation, host, now);
            txn.put_allocation(record);
            let functions = vec![FunctionEpoch { function: SlotFunction::ZERO, epoch }];
            txn.add_binding(binding_record(id, allocation, host, functions, now));
        });
        (records.life, records.skipped) = (life, false);
        Some(records)
    }

    /// With something else wanted of the binding.
    pub(crate) fn wanted(&self, desired: Desired) -> Self {
        self.with(|txn| {
            let binding = txn.bindings().values().next().cloned().expect("there is one");
            txn.update_binding(BindingRecord { desired, ..binding });
        })
        .0
    }
}

/// The one function.
pub(crate) fn function() -> FunctionAddress {
    FunctionAddress { slot: slot(), function: SlotFunction::ZERO }
}

/// Only what the protocol looks at; the rest is as an older store would leave it.
fn allocation_record(
    id: manager::types::AllocationId,
    host: usize,
    since: Timestamp,
) -> AllocationRecord {
    let record = serde_json::json!({ "id": id, "host": host_name(host), "since": since });
    serde_json::from_value(record).expect("what is left out has a default")
}

fn binding_record(
    id: manager::types::BindingId,
    allocation: manager::types::AllocationId,
    host: usize,
    functions: Vec<FunctionEpoch>,
    now: Timestamp,
) -> BindingRecord {
    BindingRecord {
        id,
        allocation,
        slot: slot(),
        functions,
        host: host_name(host),
        port: port(),
        model: String::new(),
        demand: None,
        path_set: None,
        phase: Phase::Reserved,
        desired: Desired::Bound,
        box_incarnation: None,
        host_incarnation: None,
        operation: None,
        trouble: None,
        since: now,
        changed: now,
    }
}
