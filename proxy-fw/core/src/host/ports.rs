//! The downstream ports: what they are bound to, plugging and unplugging.

use super::bars::{Bar, Bars};
use super::hold::Hold;
use super::peers::Held;
use super::pending::{Pending, Wanted};
use super::{DeviceRequest, HostRequest, HostRole};
use crate::answers::Answer;
use crate::canaries::{Canary, planted};
use crate::control::{
    BindingFailure, ControlError, Event, OperationId, PortBinding, PortState, Removal,
};
use crate::limits::MAX_FUNCTIONS;
use crate::link::{ChannelId, LinkEvent, LinkState, TakenSideband};
use crate::node::Target;
use crate::outstanding::Table;
use crate::role::InHand;
use crate::switch::{RemovalRequest, SwitchEvent};
use crate::time::Instant;
use core::time::Duration;
use heapless::Vec;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotId};
use tlp_codec::tlp::{Packet, TlpType};

/// How long a driver may take to enable a device after the operating system gave it an address,
/// before it is taken for one that has no driver.
const SETTLES: Duration = Duration::from_secs(1);

/// How often a removal looks whether the button can be pressed now.
const PRESS_RETRY: Duration = Duration::from_millis(50);

/// One downstream port.
pub(super) struct Port {
    pub(super) binding: Option<Bound>,
    pub(super) removal: Option<Removing>,
    pub(super) failed: bool,
    /// Requests of the host, and of other devices, to the device; the index goes on the wire.
    pub(super) requests: Table<HostRequest>,
    /// Requests of the device to the root complex or another device; the index is the tag.
    pub(super) upstream: Table<DeviceRequest>,
    /// The place in `upstream` of each function's last request that was let through.
    pub(super) last: [u16; MAX_FUNCTIONS],
    /// TLPs for another port's device that had no room there.
    pub(super) held: Held,
    /// How long its own device has had no room.
    pub(super) hold: Hold,
    /// The function that is served next.
    pub(super) turn: usize,
    /// What its box has still to be told.
    pub(super) pending: Pending,
    /// The functions, by number in the binding, that have answered nothing since they were flushed:
    /// what comes of them was sent before.
    pub(super) flushed: u8,
}

/// What a port is bound to.
pub(super) struct Bound {
    pub(super) peer: usize,
    pub(super) request: PortBinding,
    pub(super) channels: Vec<(BindingKey, ChannelId), MAX_FUNCTIONS>,
    pub(super) plugged: bool,
    /// Whether the operating system was seen to enumerate the device.
    configured: bool,
    bars: Bars,
    /// It gave the device its addresses. If no driver enables it until then, that is all.
    settles: Option<Instant>,
    /// What it let go of by itself: that shows in no table.
    let_go: Option<BindingKey>,
}

/// A removal that is going on.
pub(super) struct Removing {
    operation: Option<OperationId>,
    deadline: Instant,
    next_press: Option<Instant>,
}

impl Port {
    /// The channel of the function with this number, or of the first one.
    pub(super) fn target(&self, function: Option<u8>) -> Option<Target> {
        let bound = self.binding.as_ref()?;
        let wanted = |key: &BindingKey| function.is_none_or(|f| key.function.get() == u16::from(f));
        let (key, channel) = bound.channels.iter().find(|(key, _)| wanted(key))?;
        Some(Target {
            peer: bound.peer,
            node: bound.request.box_node,
            channel: *channel,
            key: *key,
        })
    }

    /// The function whose memory, or I/O space, a TLP for the device is about, where several are lent:
    /// what is for one goes on its own channel, since between channels there is no order. `None` for
    /// what does not go by an address, and where one function alone is lent.
    #[inline(never)] // once is enough on a card
    pub(super) fn function_of(&self, packet: Packet<&[u8]>) -> Option<u8> {
        let bound = self.binding.as_ref().filter(|bound| bound.channels.len() > 1)?;
        let io = match packet.tlp_type() {
            TlpType::MRd | TlpType::MRdLk | TlpType::MWr | TlpType::DMWr => false,
            TlpType::FetchAdd | TlpType::Swap | TlpType::Cas => false,
            TlpType::IORd | TlpType::IOWr => true,
            _ => return None,
        };
        bound.bars.function_at(packet.address(), io)
    }

    /// Whether completions of a request of a function have yet to find room. Room that another one of it
    /// kept meanwhile would never be used: its completions come behind those, which would wait for it.
    /// So none of it is let through then, and only the last that was can be the one, since completions
    /// end where a completer may end them (PCIe 5.0 section 2.3.1.1).
    #[inline(never)] // once is enough on a card
    pub(super) fn is_short(&self, function: usize) -> bool {
        let last = self.upstream.at_index(self.last[function]);
        last.is_some_and(|(_, request)| {
            request.function == function && request.reserved < request.info.completions()
        })
    }

    /// What it has in hand.
    pub(super) fn in_hand(&self) -> InHand {
        InHand {
            to_devices: self.requests.live(),
            from_devices: self.upstream.live(),
            set_aside: self.upstream.quarantined(),
            queues: self.held.count(),
        }
    }

    /// Whether nothing can happen here before it is bound.
    pub(super) fn is_asleep(&self) -> bool {
        self.binding.is_none()
            && self.removal.is_none()
            && self.held.is_empty()
            && self.requests.live() == 0
            && self.upstream.live() == 0
    }

    /// Whether this function, by number in the binding, has answered nothing since it was flushed.
    #[inline]
    pub(super) fn is_flushed(&self, function: usize) -> bool {
        self.flushed >> function & 1 != 0 && !planted(Canary::KeepStale)
    }

    /// How many functions are lent.
    pub(super) fn functions(&self) -> usize {
        self.binding.as_ref().map_or(0, |bound| bound.channels.len())
    }

    /// The channel of the n-th function that is lent.
    pub(super) fn target_of(&self, index: usize) -> Option<Target> {
        let bound = self.binding.as_ref()?;
        let (key, channel) = bound.channels.get(index)?;
        Some(Target {
            peer: bound.peer,
            node: bound.request.box_node,
            channel: *channel,
            key: *key,
        })
    }

    /// Notes that the operating system has enumerated the device; `true` the first time.
    pub(super) fn configured(&mut self) -> bool {
        self.binding.as_mut().is_some_and(|b| !core::mem::replace(&mut b.configured, true))
    }

    /// Notes what the operating system writes into a base address register.
    pub(super) fn bar_written(&mut self, now: Instant, bar: Bar, value: u32) {
        if let Some(bound) = &mut self.binding {
            bound.bars.written(bar, value);
            bound.settles = bound.bars.are_placed().then(|| now + SETTLES);
        }
    }

    /// Notes what the device answers of one.
    pub(super) fn bar_read(&mut self, bar: Bar, value: u32) {
        if let Some(bound) = &mut self.binding {
            bound.bars.read(bar, value);
        }
    }

    /// When a device that was given its addresses, and is not enabled, counts as enumerated.
    pub(super) fn settles(&self) -> Option<Instant> {
        self.binding.as_ref().filter(|bound| bound.plugged && !bound.configured)?.settles
    }

    /// Whether the operating system has enumerated the device that is there.
    pub(super) fn is_configured(&self) -> bool {
        !self.failed && self.binding.as_ref().is_some_and(|b| b.plugged && b.configured)
    }

    pub(super) fn removal_deadline(&self) -> Option<Instant> {
        let removal = self.removal.as_ref()?;
        Some(removal.next_press.map_or(removal.deadline, |at| at.min(removal.deadline)))
    }

    /// Whoever was asked to let go of the device is gone: another one is asked, or nobody is there. Software
    /// that only recovers from a hot reset goes on with it.
    pub(super) fn asks_anew(&mut self, now: Instant) {
        if let Some(removal) = &mut self.removal {
            removal.next_press = Some(now);
        }
    }

    pub(super) fn forget_operation(&mut self) {
        if let Some(removal) = &mut self.removal {
            removal.operation = None;
        }
    }
}

/// Which binding the manager means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meant {
    pub(super) box_node: NodeId,
    pub(super) slot: SlotId,
    pub(super) epoch: Epoch,
}

impl Meant {
    fn is(&self, request: &PortBinding) -> bool {
        (request.box_node, request.slot) == (self.box_node, self.slot)
            && request.functions.iter().any(|(_, epoch)| *epoch == self.epoch)
    }
}

impl HostRole {
    /// Binds a function of a box to a port and plugs it when the link is up.
    pub(super) fn bind_port(
        &mut self,
        now: Instant,
        request: &PortBinding,
    ) -> Result<Answer, ControlError> {
        let index = request.port.get() as usize;
        let port = self.ports.get(index).ok_or(ControlError::NoSuchPort(request.port))?;
        let Some(&(_, first_epoch)) = request.functions.first() else {
            return Err(ControlError::NoSuchSlot(request.slot));
        };
        if let Some(bound) = &port.binding {
            return if bound.request == *request && !port.failed {
                Ok(Answer::Done)
            } else {
                Err(ControlError::InUse(
                    bound.request.functions.first().map_or(first_epoch, |f| f.1),
                ))
            };
        }
        let peer = self
            .node
            .peer_index(request.box_node)
            .ok_or(ControlError::UnknownPeer(request.box_node))?;
        let mut channels = Vec::new();
        for &(function, epoch) in &request.functions {
            let key = BindingKey { slot: request.slot, function, epoch };
            match self.node.open_channel(peer, key, request.path_set, request.share) {
                Ok(channel) => {
                    let _ = channels.push((key, channel));
                }
                Err(error) => {
                    for (_, channel) in channels {
                        self.node.link(peer).close_channel(channel);
                    }
                    return Err(error);
                }
            }
        }
        self.awake |= 1 << index;
        self.ports[index].binding = Some(Bound {
            peer,
            request: request.clone(),
            channels,
            plugged: false,
            configured: false,
            bars: Bars::default(),
            settles: None,
            let_go: None,
        });
        self.ports[index].failed = false;
        self.ports[index].flushed = 0;
        self.ports[index].hold = Hold::default();
        self.port_event(request.port);
        self.plug_ready(now, peer);
        Ok(Answer::Done)
    }

    /// Plugs every port bound over this link that waits for it, if the link is up.
    fn plug_ready(&mut self, now: Instant, peer: usize) {
        if self.node.link(peer).state() != LinkState::Up {
            return;
        }
        for index in 0..self.ports.len() {
            let port = PortId::new(index as u8).expect("at most 32 ports");
            let entry = &mut self.ports[index];
            match &mut entry.binding {
                Some(bound) if bound.peer == peer && !bound.plugged && !entry.failed => {
                    bound.plugged = true;
                }
                _ => continue,
            }
            self.switch.plug(now, port, &mut self.to_root);
            self.port_event(port);
        }
        self.process_switch_events(now);
    }

    /// Begins to take the device out of a port. `None`: the answer comes later.
    pub(super) fn unbind_port(
        &mut self,
        now: Instant,
        id: OperationId,
        port: PortId,
        meant: Meant,
        mode: Removal,
    ) -> Option<Result<Answer, ControlError>> {
        let Some(entry) = self.ports.get_mut(port.get() as usize) else {
            return Some(Err(ControlError::NoSuchPort(port)));
        };
        if !entry.binding.as_ref().is_some_and(|b| meant.is(&b.request)) {
            return Some(Ok(Answer::Removed { orderly: true }));
        }
        let plugged = entry.binding.as_ref().is_some_and(|b| b.plugged);
        match mode {
            Removal::Orderly { within_ms } if plugged && !entry.failed => {
                let deadline = now + Duration::from_millis(within_ms.into());
                match &mut entry.removal {
                    // Asked again: who asked last gets the answer.
                    Some(removal) => removal.operation = Some(id),
                    None => {
                        entry.removal =
                            Some(Removing { operation: Some(id), deadline, next_press: Some(now) });
                        self.port_event(port);
                    }
                }
                self.continue_removals(now);
                None
            }
            _ => {
                if let Some(removal) = &mut entry.removal {
                    removal.operation = Some(id);
                    self.finish_removal(now, port, false);
                    return None;
                }
                self.take_out(now, port);
                Some(Ok(Answer::Removed { orderly: false }))
            }
        }
    }

    /// Tells of devices that were given their addresses and have no driver.
    pub(super) fn settle(&mut self, now: Instant) {
        for index in 0..self.ports.len() {
            if self.ports[index].settles().is_some_and(|at| at <= now)
                && self.ports[index].configured()
            {
                let port = PortId::new(index as u8).expect("at most 32 ports");
                self.node.event(Event::DeviceConfigured { port });
            }
        }
    }

    /// Presses buttons that can be pressed now, and forces what is over its bound.
    pub(super) fn continue_removals(&mut self, now: Instant) {
        for index in 0..self.ports.len() {
            let port = PortId::new(index as u8).expect("at most 32 ports");
            let Some(removal) = &self.ports[index].removal else { continue };
            if now >= removal.deadline {
                self.finish_removal(now, port, false);
                continue;
            }
            if removal.next_press.is_some_and(|at| at <= now) {
                match self.switch.request_removal(now, port, &mut self.to_root) {
                    // Nobody listens, or nobody is there to be let go of.
                    RemovalRequest::Unattended | RemovalRequest::Empty => {
                        self.finish_removal(now, port, false);
                    }
                    RemovalRequest::LetGo => self.finish_removal(now, port, true),
                    answer => {
                        let again = answer == RemovalRequest::MustWait;
                        if let Some(removal) = &mut self.ports[index].removal {
                            removal.next_press = again.then(|| now + PRESS_RETRY);
                        }
                    }
                }
            }
        }
    }

    fn finish_removal(&mut self, now: Instant, port: PortId, orderly: bool) {
        let removal = self.ports[port.get() as usize].removal.take();
        self.take_out(now, port);
        if let Some(operation) = removal.and_then(|r| r.operation) {
            self.node.answer(operation, Ok(Answer::Removed { orderly }));
        }
    }

    /// Takes the device out: presence goes first, then everything outstanding ends, then the
    /// binding is gone.
    fn take_out(&mut self, now: Instant, port: PortId) {
        self.unplug(now, port);
        self.close_channels(port.get() as usize);
        let entry = &mut self.ports[port.get() as usize];
        entry.failed = false;
        entry.binding = None;
        self.port_event(port);
    }

    /// Nothing goes to or comes from the device any more. What it asked the root complex is
    /// answered too late now.
    fn close_channels(&mut self, index: usize) {
        self.give_up_on_all(index);
        let entry = &mut self.ports[index];
        entry.pending.clear();
        let Some(bound) = &mut entry.binding else { return };
        for (_, channel) in core::mem::take(&mut bound.channels) {
            self.node.link(bound.peer).close_channel(channel);
        }
    }

    fn unplug(&mut self, now: Instant, port: PortId) {
        let entry = &mut self.ports[port.get() as usize];
        let Some(bound) = &mut entry.binding else { return };
        if core::mem::take(&mut bound.plugged) {
            self.switch.surprise_remove(now, port, &mut self.to_root);
        }
        entry.requests.expire_where(now, |_| true);
        self.synthesised_at = None;
        entry.held.clear();
        self.synthesise(now);
        self.process_switch_events(now);
    }

    pub(super) fn process_link_events(&mut self, now: Instant) {
        while let Some((peer, event)) = self.node.poll_link_event() {
            let node = self.node.peer_node(peer);
            match event {
                LinkEvent::Up => {
                    self.node.event_for(node, |peer| Event::LinkUp { peer });
                    self.plug_ready(now, peer);
                }
                LinkEvent::Down(reason) => {
                    self.node.event_for(node, |peer| Event::LinkDown { peer, reason });
                    self.fail_ports(now, BindingFailure::LinkDown, |b| b.peer == peer);
                }
                LinkEvent::PathLost(path) => {
                    self.node.event_for(node, |peer| Event::PathLost { peer, path });
                }
                LinkEvent::PathFound(path) => {
                    self.node.event_for(node, |peer| Event::PathFound { peer, path });
                }
                LinkEvent::ChannelFailed { key, reason, .. } => {
                    self.fail_ports(now, reason, |b| {
                        let its = b.channels.iter().any(|(k, _)| *k == key);
                        b.peer == peer && (its || planted(Canary::FailNeighbours))
                    });
                }
            }
        }
        self.process_sideband(now);
    }

    fn process_sideband(&mut self, now: Instant) {
        for peer in self.node.known() {
            while let Some(taken) = self.node.link(peer).poll_sideband() {
                let TakenSideband { channel, record, .. } = taken;
                if matches!(record, Sideband::LinkDown | Sideband::DeviceGone) {
                    self.fail_ports(now, BindingFailure::DeviceGone, |b| {
                        b.peer == peer && b.channels.iter().any(|(_, c)| *c == channel)
                    });
                } else {
                    self.counters.sideband_ignored += 1;
                }
            }
        }
    }

    /// The bindings that `which` wants are dead: surprise removal, and terminal until unbound.
    fn fail_ports(&mut self, now: Instant, reason: BindingFailure, which: impl Fn(&Bound) -> bool) {
        for index in 0..self.ports.len() {
            let port = PortId::new(index as u8).expect("at most 32 ports");
            let entry = &mut self.ports[index];
            let Some(bound) = entry.binding.as_mut().filter(|b| which(b)) else { continue };
            if core::mem::replace(&mut entry.failed, true) {
                continue;
            }
            let peer = bound.request.box_node;
            let key = bound.channels.first().map(|(key, _)| *key);
            bound.let_go = key.filter(|_| reason == BindingFailure::HostLetGo);
            self.close_channels(index);
            self.unplug(now, port);
            if let Some(key) = key {
                self.node.event(Event::BindingFailed { peer, key, reason });
            }
            self.port_event(port);
            if self.ports[index].removal.is_some() {
                self.finish_removal(now, port, false);
            }
        }
    }

    /// The operating system let go of the device: because it was asked to, or by itself.
    fn let_go(&mut self, now: Instant, port: PortId) {
        if self.ports[port.get() as usize].removal.is_some() {
            self.finish_removal(now, port, true);
            return;
        }
        self.fail_ports(now, BindingFailure::HostLetGo, |b| b.request.port == port);
    }

    /// Tells again what the operating system let go of by itself. Whoever was told may not have heard it,
    /// and would plug it again.
    pub(super) fn tell_let_go(&mut self) {
        for bound in self.ports.iter().filter_map(|port| port.binding.as_ref()) {
            let Some(key) = bound.let_go else { continue };
            let (peer, reason) = (bound.request.box_node, BindingFailure::HostLetGo);
            self.node.event(Event::BindingFailed { peer, key, reason });
        }
    }

    pub(super) fn process_switch_events(&mut self, now: Instant) {
        while let Some(event) = self.switch.poll_event() {
            self.refused = None;
            match event {
                SwitchEvent::LetGo { port, .. } => self.let_go(now, port),
                SwitchEvent::SecondaryBusReset { port, asserted: true } => {
                    self.tell_box(now, port, Wanted::HotReset);
                }
                SwitchEvent::LinkDisabled { port, disabled } => {
                    self.tell_box(now, port, Wanted::Link { disabled });
                    if !disabled {
                        self.switch.set_ready(port, true);
                    }
                }
                // What comes now reaches the device after its reset: it answers for itself.
                SwitchEvent::SecondaryBusReset { port, asserted: false } => {
                    self.switch.set_ready(port, true);
                }
                _ => {}
            }
        }
    }

    fn port_event(&mut self, port: PortId) {
        let state = self.port_state(port);
        self.node.event(Event::Port { port, state });
    }

    pub(super) fn port_state(&self, port: PortId) -> PortState {
        let entry = &self.ports[port.get() as usize];
        match &entry.binding {
            None if self.switch.port_state(port) == PortState::Placeholder => {
                PortState::Placeholder
            }
            None => PortState::Empty,
            Some(_) if entry.failed => PortState::Failed,
            Some(_) if entry.removal.is_some() => PortState::Removing,
            Some(bound) if bound.plugged => PortState::Present,
            Some(_) => PortState::Linking,
        }
    }
}
