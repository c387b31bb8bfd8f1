//! Who lends: the manager's own code, or the director in its place.

use crate::director::{Director, Order};
use crate::manager::Managed;
use proxy_core::control::{FromProxy, Term};
use proxy_core::time::Instant;

/// Who lends.
pub(crate) enum Lender {
    Director(Box<Director>),
    Manager(Box<Managed>),
}

impl Lender {
    pub(crate) fn connected(&mut self, node: usize, incarnation: u32, term: Term) {
        match self {
            Self::Director(director) => director.connected(node, incarnation),
            Self::Manager(manager) => manager.connected(node, incarnation, term),
        }
    }

    /// A proxy leaves for the manager that is in charge.
    pub(crate) fn redials(&mut self, node: usize) {
        if let Self::Manager(manager) = self {
            manager.redials(node);
        }
    }

    pub(crate) fn disconnected(&mut self, node: usize) {
        if let Self::Manager(manager) = self {
            manager.disconnected(node);
        }
    }

    pub(crate) fn told(&mut self, now: Instant, node: usize, message: &FromProxy) {
        match self {
            Self::Director(director) => director.told(now, node, message),
            Self::Manager(manager) => manager.told(node, message),
        }
    }

    pub(crate) fn orders(&mut self, now: Instant) -> Vec<Order> {
        match self {
            Self::Director(director) => director.orders(now),
            Self::Manager(manager) => manager.orders(now),
        }
    }

    /// Nodes whose connection it ended.
    pub(crate) fn take_closed(&mut self) -> Vec<usize> {
        match self {
            Self::Director(_) => Vec::new(),
            Self::Manager(manager) => std::mem::take(&mut manager.closed),
        }
    }

    /// Whether there is anything to be released.
    pub(crate) fn release(&mut self, at_box: usize, slot: usize, force: bool) -> bool {
        match self {
            Self::Director(director) => director.release(at_box, slot, force),
            Self::Manager(manager) => manager.release(at_box, slot, force),
        }
    }

    /// So many paths between a host and a box are left. The manager's own code has what its proxies
    /// tell it; no profile asks that of it.
    pub(crate) fn set_paths(&mut self, host: usize, at_box: usize, count: usize) {
        match self {
            Self::Director(director) => director.set_paths(host, at_box, count),
            Self::Manager(_) => {}
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Director(director) => director.is_settled(),
            Self::Manager(manager) => manager.is_settled(),
        }
    }

    pub(crate) fn unsettled(&self) -> String {
        match self {
            Self::Director(director) => director.unsettled(),
            Self::Manager(manager) => manager.unsettled(),
        }
    }

    pub(crate) fn manager(&mut self) -> Option<&mut Managed> {
        match self {
            Self::Director(_) => None,
            Self::Manager(manager) => Some(manager),
        }
    }
}
