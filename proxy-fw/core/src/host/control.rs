//! What the manager asks of a host proxy.

use super::HostRole;
use super::ports::Meant;
use crate::answers::{Outbound, Page, counters_page, page};
use crate::control::{ControlError, FromProxy, MappingEntry, OperationId, PathSet, Reply, Request};
use crate::time::Instant;
use heapless::Vec;
use tlp_codec::ids::{NodeId, PortId};

impl HostRole {
    pub(super) fn control(&mut self, now: Instant, id: OperationId, request: &Request) {
        let bound_to = |node: NodeId| {
            self.ports
                .iter()
                .any(|p| p.binding.as_ref().is_some_and(|b| b.request.box_node == node))
        };
        if let Request::RemovePeer(node) = request
            && bound_to(*node)
        {
            self.node.answer(id, Err(ControlError::Busy));
            return;
        }
        if let Request::SetPeer(peer) = request {
            self.node.close_earlier_life(now, peer);
            self.process_link_events(now);
        }
        if let Some(result) = self.node.handle_common(now, request) {
            self.process_link_events(now);
            self.node.answer(id, result);
            return;
        }
        let result = match request {
            Request::BindPort(binding) => Some(self.bind_port(now, binding)),
            Request::UnbindPort { port, box_node, slot, epoch, mode } => {
                let meant = Meant { box_node: *box_node, slot: *slot, epoch: *epoch };
                self.unbind_port(now, id, *port, meant, *mode)
            }
            _ => Some(Err(ControlError::WrongRole)),
        };
        if let Some(result) = result {
            self.node.answer(id, result);
        }
    }

    pub(super) fn outbound(&mut self) -> Option<FromProxy> {
        let (id, what, from) = match self.node.poll_outbound()? {
            Outbound::Message(message) => return Some(message),
            Outbound::Page(id, what, from) => (id, what, from),
            Outbound::Recorder(id, from, asked) => {
                let page = self.node.stamps.recorder.read(from, asked);
                return Some(FromProxy::Response { id, result: Ok(Reply::Recorder(page)) });
            }
        };
        let result = match what {
            Page::Table => Ok(self.mapping_page(from)),
            Page::Counters => Ok(counters_page(self.counters(), self.node.path_counters(), from)),
            Page::Stamps => Ok(self.node.stamps_page(from)),
            Page::Inventory => Err(ControlError::WrongRole),
        };
        Some(FromProxy::Response { id, result })
    }

    fn mapping_page(&self, from: u16) -> Reply {
        let ports = (0..self.ports.len()).map(|i| PortId::new(i as u8).expect("at most 32 ports"));
        let (entries, next) = page(ports.map(|port| Some(self.mapping_entry(port))), from);
        Reply::Mapping { root_complex: self.root_complex, entries, next }
    }

    /// The mapping table's entry of a port.
    ///
    /// # Panics
    ///
    /// When the switch has no such port.
    pub fn mapping_entry(&self, port: PortId) -> MappingEntry {
        let map = self.switch.mapping(port);
        let bound = self.ports[port.get() as usize].binding.as_ref().map(|b| &b.request);
        MappingEntry {
            port,
            used: bound.is_some(),
            state: self.port_state(port),
            buses: map.buses,
            device: map.device,
            memory: map.memory,
            prefetchable: map.prefetchable,
            io: map.io,
            box_node: bound.map_or(0, |b| b.box_node.get()),
            slot: bound.map_or(0, |b| b.slot.get()),
            functions: bound.map_or(Vec::new(), |b| b.functions.clone()),
            path_set: bound.map_or(PathSet(0), |b| b.path_set),
            configured: self.ports[port.get() as usize].is_configured(),
        }
    }
}
