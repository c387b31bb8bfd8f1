//! A proxy that comes back with its tables: somebody on its machine kept what the manager had
//! written into them, its term and its number, and writes it again before the manager is dialled.
//! It is another life all the same, with another incarnation: what the former life had on its links
//! is gone, and the other ends still have the bindings of that one, or lend on without it.

use super::control::BoundEnd;
use super::{Event, World};
use crate::manager::{Lent, Shared, share_of};
use crate::oracle::{Verdict, Violation};
use proxy_core::control::{ControlError, OperationId, PortState, Reply, Request, SlotState, Term};
use proxy_core::time::Instant;
use std::time::Duration;

/// Numbers of requests from here on are those of whoever kept the tables.
const OWN: u64 = 1 << 63;
/// How often what cannot be done yet is tried again: a device is being reset and looked at.
const AGAIN: Duration = Duration::from_millis(1);
/// After so long it goes on with what it has.
const WITHIN: Duration = Duration::from_millis(500);

/// What is kept of a proxy's tables.
#[derive(Default)]
pub(super) struct Tables {
    /// What the manager had written and the proxy had taken: for each peer, slot and port the last.
    written: Vec<Request>,
    /// What is to be written again, by its number, and until when.
    left: Vec<Option<Request>>,
    until: Instant,
    /// It dies, and all this stays.
    survive: bool,
}

/// What a request writes: a peer, a slot's function or a port.
fn place(request: &Request) -> Option<(u8, u32)> {
    match request {
        Request::SetPeer(peer) => Some((0, peer.node.get().into())),
        Request::RemovePeer(node) => Some((0, node.get().into())),
        Request::BindSlot(binding) => {
            Some(place_of_slot(binding.key.slot.get(), binding.key.function.get()))
        }
        Request::BindPort(binding) => Some(place_of_port(binding.port.get())),
        _ => None,
    }
}

fn place_of_slot(slot: u8, function: u16) -> (u8, u32) {
    (1, u32::from(slot) << 16 | u32::from(function))
}

fn place_of_port(port: u8) -> (u8, u32) {
    (2, port.into())
}

/// Whether a request writes something into a proxy's tables.
pub(super) fn is_kept(request: &Request) -> bool {
    place(request).is_some()
}

/// What a binding may send, by what was written.
fn share(written: Option<&Request>) -> Shared {
    match written {
        Some(Request::BindPort(binding)) => share_of(binding.share),
        Some(Request::BindSlot(binding)) => share_of(binding.share),
        _ => Shared::default(),
    }
}

impl Tables {
    /// The proxy took it.
    pub(super) fn took(&mut self, request: &Request) {
        let Some(place) = self::place(request) else { return };
        self.written.retain(|before| self::place(before) != Some(place));
        if !matches!(request, Request::RemovePeer(_)) {
            self.written.push(request.clone());
        }
    }
}

impl World {
    /// What the proxies' tables have, those of the hosts and those of the boxes. Shares are in none that
    /// can be read: they are those that were written last.
    pub(super) fn lent(&self) -> (Vec<Lent>, Vec<Lent>) {
        let hosts = self.hosts.len();
        let (mut at_hosts, mut at_boxes) = (Vec::new(), Vec::new());
        for (host, node) in self.hosts.iter().enumerate() {
            let Some(role) = &node.role else { continue };
            let ports = role.switch().port_ids().map(|port| role.mapping_entry(port));
            for entry in ports.filter(|entry| entry.used) {
                let written = self.written(host, place_of_port(entry.port.get()));
                let at_box = usize::from(entry.box_node) - 1 - hosts;
                at_hosts.extend(entry.functions.iter().map(|(function, epoch)| Lent {
                    host,
                    port: Some(entry.port.get()),
                    at_box,
                    slot: entry.slot,
                    function: function.get(),
                    epoch: epoch.bits(),
                    paths: entry.path_set.0,
                    share: share(written),
                }));
            }
        }
        for (at_box, node) in self.boxes.iter().enumerate() {
            let entries = node.role.iter().flat_map(|role| role.slot_entries());
            at_boxes.extend(entries.filter(|entry| entry.used).map(|entry| {
                let (slot, function) = (entry.slot.get(), entry.function.get());
                let place = place_of_slot(slot, function);
                let host = usize::from(entry.host_node) - 1;
                let share = share(self.written(hosts + at_box, place));
                let (epoch, paths) = (entry.epoch, entry.path_set.0);
                Lent { host, port: None, at_box, slot, function, epoch, paths, share }
            }));
        }
        (at_hosts, at_boxes)
    }

    /// What was written last into a place of a node's tables.
    fn written(&self, node: usize, at: (u8, u32)) -> Option<&Request> {
        self.lives[node].tables.written.iter().find(|request| place(request) == Some(at))
    }

    /// What is in use in a proxy's tables is what was written there last.
    pub(super) fn check_written(&self) -> Verdict {
        let hosts = self.hosts.len();
        let (at_hosts, at_boxes) = self.lent();
        for lent in at_hosts.iter().chain(&at_boxes) {
            let (node, at) = match lent.port {
                Some(port) => (lent.host, place_of_port(port)),
                None => (hosts + lent.at_box, place_of_slot(lent.slot, lent.function)),
            };
            let right = match self.written(node, at) {
                Some(Request::BindPort(b)) => {
                    let functions = b.functions.iter().map(|f| (f.0.get(), f.1.bits()));
                    usize::from(b.box_node.get()) - 1 == hosts + lent.at_box
                        && b.slot.get() == lent.slot
                        && functions.into_iter().any(|f| f == (lent.function, lent.epoch))
                        && b.path_set.0 == lent.paths
                }
                Some(Request::BindSlot(b)) => {
                    usize::from(b.host.get()) - 1 == lent.host
                        && b.key.epoch.bits() == lent.epoch
                        && b.path_set.0 == lent.paths
                }
                _ => false,
            };
            if !right {
                let what = format!("node {} has {lent:?}, which nobody wrote last", node + 1);
                return Err(Violation::new(4, what));
            }
        }
        Ok(())
    }

    /// Its proxy is about to die; with its tables, or they are lost with it.
    pub(super) fn keep_tables(&mut self, node: usize, kept: bool) {
        let tables = std::mem::take(&mut self.lives[node].tables);
        if kept {
            let left = tables.left.into_iter().flatten();
            let written = tables.written.into_iter();
            let written = written.filter(|request| self.holds(node, request)).chain(left).collect();
            self.lives[node].tables = Tables { written, survive: true, ..Tables::default() };
        }
    }

    /// Whether that is still in a proxy's tables, and well: what has failed is only there to be
    /// taken out.
    fn holds(&self, node: usize, request: &Request) -> bool {
        match request {
            Request::BindSlot(binding) => {
                let role = self.boxes[node - self.hosts.len()].role.as_ref();
                let mut entries = role.into_iter().flat_map(|role| role.slot_entries());
                entries.any(|entry| {
                    (entry.slot, entry.function) == (binding.key.slot, binding.key.function)
                        && entry.epoch == binding.key.epoch.bits()
                        && (entry.used, entry.state) == (true, SlotState::Bound)
                })
            }
            Request::BindPort(binding) => self.hosts[node].role.as_ref().is_some_and(|role| {
                let entry = role.mapping_entry(binding.port);
                entry.functions == binding.functions && entry.state != PortState::Failed
            }),
            _ => true,
        }
    }

    /// A proxy has started. If its tables were kept they are written again first, and `true`.
    pub(super) fn begin_restore(&mut self, node: usize) -> bool {
        let now = self.now();
        let life = &mut self.lives[node];
        let Tables { written, survive, .. } = std::mem::take(&mut life.tables);
        if !survive {
            life.term = 0;
            return false;
        }
        let (count, term) = (written.len(), life.term);
        let left = written.into_iter().map(Some).collect();
        life.tables.left = left;
        life.tables.until = now + WITHIN;
        let obeyed = self.role(node).expect("it has just started").obey(Term(term));
        obeyed.expect("it has obeyed nobody else in this life");
        self.trace.say(now, node as u16 + 1, format!("it kept its tables: {count} entries"));
        self.agenda.plan(now, Event::Restore(node));
        true
    }

    /// What is left of a proxy's former tables is written again, then it dials.
    pub(super) fn restore(&mut self, node: usize) -> Verdict {
        let now = self.now();
        // It may have died again, or dialled.
        if self.role(node).is_none() || self.lives[node].connected {
            return Ok(());
        }
        if let Some(thaws) = self.lives[node].frozen {
            self.agenda.plan(thaws + Duration::from_nanos(1), Event::Restore(node));
            return Ok(());
        }
        let (term, local) = (Term(self.lives[node].term), self.local(node));
        for number in 0..self.lives[node].tables.left.len() {
            let Some(request) = self.lives[node].tables.left[number].clone() else { continue };
            let role = self.role(node).expect("looked at above");
            role.handle_control(local, OperationId(OWN | number as u64), term, &request);
            self.listen(node)?;
        }
        let tables = &mut self.lives[node].tables;
        if now >= tables.until {
            tables.left.clear();
        }
        if tables.left.iter().flatten().next().is_some() {
            self.agenda.plan(now + AGAIN, Event::Restore(node));
        } else {
            self.connect(node)?;
        }
        self.pump(node)?;
        self.check_tables()
    }

    /// A proxy answered somebody. Whether it was whoever kept its tables.
    pub(super) fn restored(
        &mut self,
        node: usize,
        id: OperationId,
        result: &Result<Reply, ControlError>,
    ) -> Verdict<bool> {
        if id.0 & OWN == 0 {
            return Ok(false);
        }
        let tables = &mut self.lives[node].tables;
        let place = tables.left.get_mut((id.0 & !OWN) as usize);
        let Some(place) = place.filter(|place| place.is_some()) else { return Ok(true) };
        if matches!(result, Err(ControlError::NotReady(_) | ControlError::Busy)) {
            return Ok(true);
        }
        let request = place.take().expect("looked at just now");
        if result.is_ok() {
            tables.took(&request);
            self.did.once("entries of tables that were written again");
            self.watch(node, &request);
            self.bound_again(node, &request)?;
        }
        Ok(true)
    }

    /// A binding is there again under the epoch that it had. For those who watch it stays over, and
    /// what was under way to its former life never comes: the links of that one are gone. The other
    /// end may not have noticed yet.
    fn bound_again(&mut self, node: usize, request: &Request) -> Verdict {
        for (index, end) in self.ends_of(node, request)? {
            self.end_again(node, index, end);
        }
        Ok(())
    }

    fn end_again(&mut self, node: usize, index: usize, end: BoundEnd) {
        let binding = self.bindings.get(index);
        match end {
            BoundEnd::Slot { at_box, slot } => {
                binding.down.drop_all();
                self.boxes[at_box].slots[slot].binding = Some(index);
            }
            BoundEnd::Port(port) => {
                binding.up.drop_all();
                binding.port = Some(port);
                self.hosts[node].ports[port] = Some(index);
            }
        }
    }
}
