//! What of a drain waits for its other replacements on the same host. While both devices are in place
//! a replacement takes one more port there, and bandwidth for both; at its end the next one can have
//! them.

use crate::records::Tables;
use crate::types::{BindingId, OperationId, OperationKind};
use std::collections::BTreeMap;

/// The devices for which nothing was found, with the replacements of the same drain that ran on their
/// hosts then. None is tried again before one of those has ended: to find out why nothing fits is slow.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<BindingId, Vec<OperationId>>);

impl Waiting {
    /// Whether a device waits for just what runs now.
    pub(super) fn waits(&self, tables: &Tables, drain: OperationId, binding: BindingId) -> bool {
        self.0.get(&binding).is_some_and(|others| *others == beside(tables, drain, binding))
    }

    /// Notes that nothing was found for a device, as things were: whether there is anything to wait
    /// for.
    pub(super) fn note(&mut self, tables: &Tables, drain: OperationId, binding: BindingId) -> bool {
        let others = beside(tables, drain, binding);
        let waits = !others.is_empty();
        if waits {
            self.0.insert(binding, others);
        }
        waits
    }

    /// Forgets what is gone.
    pub(super) fn tidy(&mut self, tables: &Tables) {
        self.0.retain(|binding, _| tables.bindings().contains_key(binding));
    }
}

/// The replacements of a drain that run on a device's host.
fn beside(tables: &Tables, drain: OperationId, binding: BindingId) -> Vec<OperationId> {
    let host = tables.bindings().get(&binding).map(|binding| &binding.host);
    let on_host = |id: &OperationId| match &tables.operations()[id].what {
        OperationKind::Replace { host: own, .. } => Some(own) == host,
        _ => false,
    };
    super::children(tables, drain).into_iter().filter(on_host).collect()
}
