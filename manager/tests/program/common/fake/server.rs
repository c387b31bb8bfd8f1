//! How a pretended proxy obeys.

use super::pages::{
    counter_page, inventory_page, mapping_page, recorder_page, serial_of, slot_page,
};
use super::{Script, Slot, State, receive, send};
use proxy_core::control::*;
use proxy_core::stamps::StampedTlp;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, SlotFunction, SlotId};

pub(super) fn emit(stream: &TcpStream, events: &Mutex<u64>, event: Event) {
    let mut next = events.lock().unwrap();
    let sequence = *next;
    *next += 1;
    let _ = send(stream, &FromProxy::Event { sequence, event });
}

pub(super) struct Server {
    pub(super) stream: TcpStream,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) role: RoleKind,
    pub(super) events: Arc<Mutex<u64>>,
}

impl Server {
    pub(super) fn run(self, mut buffer: Vec<u8>) {
        for event in std::mem::take(&mut self.state.lock().unwrap().first) {
            emit(&self.stream, &self.events, event);
        }
        while let Some(message) = receive(&self.stream, &mut buffer) {
            let sent = match message {
                ToProxy::Ping => send(&self.stream, &FromProxy::Pong),
                ToProxy::Request { id, term, body } => match self.request(id, term, body) {
                    Some(sent) => sent,
                    None => break,
                },
                other => panic!("not in a conversation: {other:?}"),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Answers, or ends the connection.
    fn request(&self, id: OperationId, term: Term, body: Request) -> Option<std::io::Result<()>> {
        let mut state = self.state.lock().unwrap();
        let mut rules = std::mem::take(&mut state.rules);
        let script = rules.iter_mut().find_map(|rule| rule(&body));
        state.rules.extend(rules);
        state.log.push(body.clone());
        let result = match script {
            Some(Script::Refuse(error)) => Err(error),
            Some(Script::Answer(reply)) => Ok(*reply),
            Some(Script::Ignore) => return Some(Ok(())),
            Some(Script::Vanish) => return None,
            Some(Script::ObeyAndVanish) => {
                let _ = self.obey(&mut state, term, body);
                return None;
            }
            None => self.obey(&mut state, term, body.clone()),
        };
        let bound = matches!((&body, &result), (Request::BindPort(_), Ok(_)));
        let sent = send(&self.stream, &FromProxy::Response { id, result });
        if let Request::BindPort(binding) = body
            && bound
            && state.enumerates
            && state.tells
        {
            emit(&self.stream, &self.events, Event::DeviceConfigured { port: binding.port });
        }
        Some(sent)
    }

    fn obey(&self, state: &mut State, term: Term, body: Request) -> Result<Reply, ControlError> {
        if term.0 < state.term {
            return Err(ControlError::StaleTerm(Term(state.term)));
        }
        state.term = term.0;
        let host = matches!(self.role, RoleKind::Host { .. });
        match body {
            Request::SetPeer(peer) => {
                state.peers.insert(peer.node.get(), peer);
                Ok(Reply::Done)
            }
            Request::RemovePeer(node) => {
                state.peers.remove(&node.get());
                Ok(Reply::Done)
            }
            Request::ReadTable { from } if host => Ok(mapping_page(state, self.role, from)),
            Request::ReadTable { from } => Ok(slot_page(state, from)),
            Request::ReadCounters { from } => Ok(counter_page(state, from)),
            Request::SetSampling(_) | Request::SetLogLevel(_) => Ok(Reply::Done),
            Request::ReadStamps { .. } => {
                let at = [Some(1), Some(2), Some(3), None, None, None];
                let key = BindingKey {
                    slot: SlotId::new(1).unwrap(),
                    function: SlotFunction::ZERO,
                    epoch: Epoch::new(0, 1).unwrap(),
                };
                let stamp = StampEntry {
                    peer: NodeId::new(2).unwrap(),
                    binding: key,
                    from_host: true,
                    tlp: StampedTlp::Request(OutstandingRef { index: 5, generation: 6 }),
                    at,
                };
                // Places in a ring are in no order of time.
                let at = [Some(4), Some(5), Some(6), None, None, None];
                let posted = StampEntry { tlp: StampedTlp::Posted(Some(77)), at, ..stamp.clone() };
                Ok(Reply::Stamps { entries: [posted, stamp].into_iter().collect(), next: None })
            }
            Request::SetRecorder(list) => {
                state.recorded = list;
                Ok(Reply::Done)
            }
            Request::ReadRecorder { from } => Ok(Reply::Recorder(recorder_page(state, host, from))),
            Request::BindPort(binding) if host => bind_port(state, binding),
            Request::UnbindPort { port, box_node, slot, epoch, mode } if host => {
                let there = state.ports.get(&port.get());
                let there = there.map(|(b, _)| (b.box_node, b.slot, b.functions[0].1));
                if there == Some((box_node, slot, epoch)) {
                    state.ports.remove(&port.get());
                }
                Ok(Reply::Removed { orderly: mode != Removal::Force })
            }
            Request::BindSlot(binding) if !host => bind_slot(state, binding),
            Request::UnbindSlot(key) if !host => unbind_slot(state, key),
            Request::Recover(slot) if !host => {
                let slot = slot_of(state, slot)?;
                slot.state = SlotState::Free;
                Ok(Reply::Slot(SlotState::Free))
            }
            Request::ReadInventory { from } if !host => Ok(inventory_page(state, from)),
            // Erased in a moment, by the first means.
            Request::Erase(erase) if !host => {
                let node = state.node;
                let slot = slot_of(state, erase.key.slot)?;
                if slot.state == SlotState::Probing {
                    return Err(ControlError::Busy);
                }
                if serial_of(node, erase.key.slot.get() - 1, slot) != erase.serial {
                    return Err(ControlError::SlotEmpty(erase.key.slot));
                }
                let done = erase.methods.iter().next().map(Erasure::Done);
                let answer = done.unwrap_or(Erasure::Failed(EraseFailure::NotOffered));
                Ok(Reply::Erasure(answer.into()))
            }
            Request::Firmware(_) => Err(ControlError::NoFirmware),
            _ => Err(ControlError::WrongRole),
        }
    }
}

fn slot_of(state: &mut State, slot: SlotId) -> Result<&mut Slot, ControlError> {
    let index = usize::from(slot.get()).wrapping_sub(1);
    state.slots.get_mut(index).ok_or(ControlError::NoSuchSlot(slot))
}

fn bind_port(state: &mut State, binding: PortBinding) -> Result<Reply, ControlError> {
    if !state.peers.contains_key(&binding.box_node.get()) {
        return Err(ControlError::UnknownPeer(binding.box_node));
    }
    match state.ports.get(&binding.port.get()) {
        Some((there, _)) if *there == binding => Ok(Reply::Done),
        Some((there, _)) => Err(ControlError::InUse(there.functions[0].1)),
        None => {
            state.ports.insert(binding.port.get(), (binding, PortState::Present));
            Ok(Reply::Done)
        }
    }
}

fn bind_slot(state: &mut State, binding: SlotBinding) -> Result<Reply, ControlError> {
    if !state.peers.contains_key(&binding.host.get()) {
        return Err(ControlError::UnknownPeer(binding.host));
    }
    let slot = slot_of(state, binding.key.slot)?;
    if slot.bound.as_ref() == Some(&binding) {
        return Ok(Reply::Done);
    }
    match slot.state {
        SlotState::Empty => return Err(ControlError::SlotEmpty(binding.key.slot)),
        SlotState::Quarantined => return Err(ControlError::Quarantined(binding.key.slot)),
        SlotState::Probing => return Err(ControlError::Busy),
        _ => {}
    }
    if let Some(there) = &slot.bound {
        return Err(ControlError::InUse(there.key.epoch));
    }
    if binding.key.epoch.bits() <= slot.highest {
        return Err(ControlError::StaleEpoch(Epoch::from_bits(slot.highest).unwrap()));
    }
    slot.highest = binding.key.epoch.bits();
    slot.state = SlotState::Bound;
    slot.bound = Some(binding);
    Ok(Reply::Done)
}

fn unbind_slot(state: &mut State, key: BindingKey) -> Result<Reply, ControlError> {
    let slot = slot_of(state, key.slot)?;
    if slot.bound.as_ref().is_some_and(|b| b.key == key) {
        slot.bound = None;
        slot.state = if slot.fails_reset { SlotState::Quarantined } else { SlotState::Free };
    }
    Ok(Reply::Slot(slot.state))
}
