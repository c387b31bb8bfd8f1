//! What a proxy's table and the records say differently.

use crate::records::Tables;
use crate::types::{BindingId, NodeName, Phase};
use proxy_core::control::{MappingEntry, PortState, SlotEntry};
use std::collections::BTreeSet;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotId};

/// A binding in a box's table that no record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StraySlot {
    /// What the box calls it.
    pub key: BindingKey,
    /// The host that it is bound to, if that is a node number.
    pub host: Option<NodeId>,
}

/// A binding in a host's table that no record has, or only as one that was taken out there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayPort {
    /// The port.
    pub port: PortId,
    /// Where the binding there leads to.
    pub box_node: NodeId,
    /// See `box_node`.
    pub slot: SlotId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// What to do about a box's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoxDiff {
    /// To be taken out.
    pub stray: Vec<StraySlot>,
    /// Bindings that the table should have and has not.
    pub missing: Vec<BindingId>,
    /// As `missing`, but the box has had them, and has ended them: nobody heard why.
    pub over: Vec<BindingId>,
    /// What is there belonged to a binding that ended while the table was read. It may be on its way
    /// out or not: only the next look tells.
    pub unsure: bool,
}

/// What to do about a host's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDiff {
    /// To be taken out.
    pub stray: Vec<StrayPort>,
    /// Ports that are used although no record says that they are: the stray ones, and those that cannot be
    /// named.
    pub stray_ports: BTreeSet<PortId>,
    /// Bindings that the table should have and has not.
    pub missing: Vec<BindingId>,
    /// Bindings whose port shows the link down.
    pub failed: Vec<BindingId>,
    /// Bindings whose device the operating system has enabled, which the records do not say yet.
    pub configured: Vec<BindingId>,
    /// As [`BoxDiff::unsure`].
    pub unsure: bool,
}

/// Compares a box's table with the records as they were before it was read (`before`) and as they
/// are after (`after`). What changed between is on its way and is left alone: a binding counts as
/// missing only if it was in the table's place before the table was read and is unchanged, and as
/// stray only if neither knows it. What only the former knows is looked at again.
///
/// An entry keeps the highest epoch that it was bound under. One that has reached a binding's epoch
/// without having the binding says that it is over. To write it again would be refused, unless
/// the box has forgotten by then: so it must not be tried.
pub fn of_box(name: &NodeName, table: &[SlotEntry], before: &Tables, after: &Tables) -> BoxDiff {
    let mut diff = BoxDiff::default();
    let used = || table.iter().filter(|entry| entry.used);
    let key_of = |entry: &SlotEntry| {
        let epoch = Epoch::from_bits(entry.epoch).ok()?;
        Some(BindingKey { slot: entry.slot, function: entry.function, epoch })
    };
    let known = |key: BindingKey, tables: &Tables| {
        let slot = crate::types::SlotAddress::new(name.clone(), key.slot).ok();
        slot.and_then(|slot| tables.binding_at_slot(&slot)).is_some_and(|b| b.has_key(key))
    };
    for entry in used() {
        let Some(key) = key_of(entry).filter(|key| !known(*key, after)) else { continue };
        if known(key, before) {
            diff.unsure = true;
        } else {
            diff.stray.push(StraySlot { key, host: NodeId::new(entry.host_node).ok() });
        }
    }
    let there: Vec<BindingKey> = used().filter_map(key_of).collect();
    for binding in after.bindings_at(name) {
        let settled = before.bindings().get(&binding.id) == Some(binding);
        let should = binding.slot.box_name() == name
            && binding.phase.at_box()
            && !binding.desired.is_release();
        let mut lacking = binding.keys().filter(|key| !there.contains(key)).peekable();
        if !settled || !should || lacking.peek().is_none() {
            continue;
        }
        let had = |key: BindingKey| {
            let of_it =
                |entry: &&SlotEntry| (entry.slot, entry.function) == (key.slot, key.function);
            table.iter().filter(of_it).any(|entry| entry.epoch >= key.epoch.bits())
        };
        let bindings = if lacking.any(had) { &mut diff.over } else { &mut diff.missing };
        bindings.push(binding.id);
    }
    diff
}

/// As [`of_box`], for a host.
pub fn of_host(
    name: &NodeName,
    table: &[MappingEntry],
    before: &Tables,
    after: &Tables,
) -> HostDiff {
    let mut diff = HostDiff::default();
    let is_entry = |entry: &MappingEntry, tables: &Tables| {
        tables
            .binding_at_port(name, entry.port)
            .filter(|binding| {
                let box_node = tables.nodes().get(binding.slot.box_name()).map(|n| n.node.get());
                let functions = binding.functions.iter().map(|f| (f.function, f.epoch));
                box_node == Some(entry.box_node)
                    && binding.slot.slot().get() == entry.slot
                    && functions.eq(entry.functions.iter().copied())
            })
            .map(|binding| binding.id)
    };
    for entry in table.iter().filter(|entry| entry.used) {
        if entry.configured
            && let Some(id) = is_entry(entry, after)
            && after.bindings()[&id].phase.may_become(Phase::Configured)
        {
            diff.configured.push(id);
        }
        // One that counts as withdrawn was taken out, or was skipped while the host was away.
        let is_over = |tables: &Tables| {
            is_entry(entry, tables)
                .is_none_or(|id| tables.bindings()[&id].phase == Phase::Withdrawn)
        };
        diff.unsure |= is_over(after) && !is_over(before);
        if is_over(before) && is_over(after) {
            diff.stray_ports.insert(entry.port);
            if let Some((_, epoch)) = entry.functions.first()
                && let Ok(box_node) = NodeId::new(entry.box_node)
                && let Ok(slot) = SlotId::new(entry.slot)
            {
                let (port, epoch) = (entry.port, *epoch);
                diff.stray.push(StrayPort { port, box_node, slot, epoch });
            }
        }
    }
    for binding in after.bindings_at(name) {
        let settled = before.bindings().get(&binding.id) == Some(binding);
        let should =
            binding.host == *name && binding.phase.at_host() && !binding.desired.is_release();
        if !settled || !should {
            continue;
        }
        let entry =
            table.iter().find(|entry| entry.used && is_entry(entry, after) == Some(binding.id));
        match entry {
            None => diff.missing.push(binding.id),
            Some(entry) if entry.state == PortState::Failed => diff.failed.push(binding.id),
            Some(_) => {}
        }
    }
    diff
}

#[cfg(test)]
pub(super) mod tests;
