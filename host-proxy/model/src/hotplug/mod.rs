//! Hot-plug service: what an operating system does when a slot's port interrupts.

mod slot;
mod state;

pub use state::SlotState;

use crate::enumerate::{Enumerator, Problem};
use crate::error::AccessError;
use crate::host::{HostEvent, ModelHost};
use crate::port::{PortError, TlpPort};
use crate::regs::slot::{Indicator, STA_BUTTON, STA_FAULT, STA_LINK_CHANGED, STA_PRESENCE_CHANGED};
use slot::Slot;
use state::{Action, Input, next};
use std::time::Instant;
use tlp_codec::ids::Bdf;

/// Every hot-plug port.
#[derive(Default)]
pub(crate) struct Slots {
    list: Vec<Slot>,
    /// Set while events are served: the waits in between serve no others.
    busy: bool,
}

impl Slots {
    /// When the next timer runs out.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.list.iter().filter_map(|slot| slot.timer).min()
    }

    /// The state of a port's slot.
    pub(crate) fn state(&self, port: Bdf) -> Option<SlotState> {
        self.list.iter().find(|slot| slot.port == port).map(|slot| slot.state)
    }
}

/// Only a port that cannot be spoken to through the root port ends the host's work; what goes
/// wrong with one slot is told as an event.
fn port_only(error: AccessError) -> Result<AccessError, PortError> {
    match error {
        AccessError::Port(error) => Err(error),
        other => Ok(other),
    }
}

impl<P: TlpPort> ModelHost<P> {
    /// Takes over every hot-plug port that enumeration found, and whatever is in its slot.
    pub(crate) fn start_slots(&mut self) -> Result<(), PortError> {
        self.slots.list.clear();
        self.slots.busy = true;
        let result = self.start_each_slot();
        self.slots.busy = false;
        result
    }

    fn start_each_slot(&mut self) -> Result<(), PortError> {
        let ports: Vec<_> = self
            .topology
            .iter()
            .filter_map(|node| {
                let bridge = node.bridge.filter(|bridge| bridge.hot_plug())?;
                let express = node.capability(crate::regs::CAP_EXPRESS)?;
                let vector = node.vectors.map(|vectors| vectors.first);
                Some((node.bdf, express, bridge.slot?, vector))
            })
            .collect();
        for (port, express, capabilities, vector) in ports {
            let occupied = self.topology.children(Some(port)).next().is_some();
            let state = if occupied { SlotState::On } else { SlotState::Off };
            let mut slot = Slot::new(port, express, capabilities, vector, state);
            let timeout = self.config.hot_plug.command_timeout;
            if let Err(error) = slot.start(&mut self.root, timeout) {
                let error = port_only(error)?;
                self.event(HostEvent::Error { bdf: port, reason: error.to_string() });
            }
            self.slots.list.push(slot);
            let index = self.slots.list.len() - 1;
            self.look(index, true)?;
        }
        Ok(())
    }

    /// Serves every slot that interrupted or whose time is over.
    pub(crate) fn serve_slots(&mut self) -> Result<(), PortError> {
        let due = self.slots.next_timer().is_some_and(|timer| Instant::now() >= timer);
        if self.slots.busy || !due && !self.root.interrupts().any_pending() {
            return Ok(());
        }
        self.slots.busy = true;
        let mut result = Ok(());
        for index in 0..self.slots.list.len() {
            result = self.serve_slot(index);
            if result.is_err() {
                break;
            }
        }
        self.slots.busy = false;
        result
    }

    fn serve_slot(&mut self, index: usize) -> Result<(), PortError> {
        let slot = &self.slots.list[index];
        let fired = slot.vector.is_some_and(|vector| self.root.interrupts().take(vector));
        if fired {
            self.look(index, false)?;
        }
        let slot = &self.slots.list[index];
        if slot.timer.is_some_and(|timer| Instant::now() >= timer) && !self.is_busy(slot.port) {
            self.slots.list[index].timer = None;
            let present = self.is_present(index)?;
            self.step(index, Input::Timer { present })?;
        }
        Ok(())
    }

    /// Whether a device was lost while slots are being served, when a driver that is just being
    /// bound cannot be told otherwise: its port has interrupted, and the link is down.
    pub(crate) fn lost_while_serving(&mut self, bdf: Bdf) -> Result<bool, AccessError> {
        if !self.slots.busy {
            return Ok(false);
        }
        let mut at = self.topology.get(bdf).and_then(|node| node.parent);
        while let Some(port) = at {
            if let Some(slot) = self.slots.list.iter().find(|slot| slot.port == port)
                && slot.vector.is_some_and(|vector| self.root.interrupts().is_pending(vector))
                && slot.link(&mut self.root)? & crate::regs::LNKSTA_ACTIVE == 0
            {
                return Ok(true);
            }
            at = self.topology.get(port).and_then(|node| node.parent);
        }
        Ok(false)
    }

    /// A driver that is at work below a port is let finish before the port is turned off.
    fn is_busy(&self, port: Bdf) -> bool {
        self.topology.below(port).into_iter().any(|bdf| {
            self.topology.get(bdf).is_some_and(|node| self.drivers.is_at_work(node.instance))
        })
    }

    fn is_present(&mut self, index: usize) -> Result<bool, PortError> {
        let status = self.slots.list[index].take_events(&mut self.root);
        match status {
            Ok(status) => Ok(status.present || status.link_active),
            Err(error) => port_only(error).map(|_| false),
        }
    }

    /// Reads a slot's events and acts on them. `first` looks at what is there even without any.
    fn look(&mut self, index: usize, first: bool) -> Result<(), PortError> {
        let slot = &self.slots.list[index];
        let (port, was_on) = (slot.port, slot.state.is_on());
        let status = match slot.take_events(&mut self.root) {
            Ok(status) => status,
            Err(error) => {
                let reason = port_only(error)?.to_string();
                self.event(HostEvent::Error { bdf: port, reason });
                return Ok(());
            }
        };
        tracing::debug!(%port, ?status, "slot event");
        if status.events & STA_FAULT != 0 {
            let reason = "the slot reports a power fault".into();
            self.event(HostEvent::Error { bdf: port, reason });
        }
        if status.events & STA_BUTTON != 0 {
            self.step(index, Input::Button)?;
        }
        let present = status.present || status.link_active;
        let changed = status.events & (STA_PRESENCE_CHANGED | STA_LINK_CHANGED) != 0;
        if changed || first && present != was_on {
            self.step(index, Input::Changed { present })?;
        }
        Ok(())
    }

    /// Goes through the table once and does what it says.
    fn step(&mut self, index: usize, input: Input) -> Result<(), PortError> {
        let slot = &mut self.slots.list[index];
        let (port, before) = (slot.port, slot.state);
        let (state, action) = next(before, input);
        slot.state = state;
        if !matches!(state, SlotState::BlinkingOn | SlotState::BlinkingOff) {
            slot.timer = None;
        }
        if action != Action::Nothing {
            tracing::info!("slot of {port}: {}", action.told());
            tracing::debug!(%port, ?before, ?input, ?action, "hot-plug");
        }
        let result = match action {
            Action::Nothing => Ok(()),
            Action::StartTimer => self.start_timer(index),
            Action::Cancel => self.show(index, Some(Indicator::Off)),
            Action::Enable => self.enable(index),
            Action::Disable => self.disable(index, false),
            Action::Surprise => self.disable(index, true),
            Action::Replace => self.disable(index, true).and_then(|()| self.enable(index)),
        };
        if let Err(error) = result {
            let reason = port_only(error)?.to_string();
            self.event(HostEvent::Error { bdf: port, reason });
        }
        Ok(())
    }

    fn start_timer(&mut self, index: usize) -> Result<(), AccessError> {
        let delay = self.config.hot_plug.button_delay;
        self.slots.list[index].timer = Some(Instant::now() + delay);
        self.set_indicators(index, Indicator::Blink, Some(Indicator::Off))
    }

    /// The power indicator as the state wants it.
    fn show(&mut self, index: usize, attention: Option<Indicator>) -> Result<(), AccessError> {
        let on = self.slots.list[index].state.is_on();
        let power = if on { Indicator::On } else { Indicator::Off };
        self.set_indicators(index, power, attention)
    }

    fn set_indicators(
        &mut self,
        index: usize,
        power: Indicator,
        attention: Option<Indicator>,
    ) -> Result<(), AccessError> {
        let timeout = self.config.hot_plug.command_timeout;
        self.slots.list[index].indicate(&mut self.root, power, attention, timeout)
    }

    /// Turns a slot on: power, link, enumeration, drivers. What fails leaves the slot off with its
    /// attention indicator on.
    fn enable(&mut self, index: usize) -> Result<(), AccessError> {
        let port = self.slots.list[index].port;
        match self.bring_up(index) {
            Ok(Ok(found)) => {
                self.show(index, Some(Indicator::Off))?;
                self.announce(&found);
                Ok(())
            }
            Ok(Err(reason)) => self.give_up(index, port, reason),
            Err(AccessError::Port(error)) => Err(error.into()),
            Err(error) => self.give_up(index, port, error.to_string()),
        }
    }

    fn give_up(&mut self, index: usize, port: Bdf, reason: String) -> Result<(), AccessError> {
        self.remove_below(port, true);
        self.event(HostEvent::Error { bdf: port, reason });
        self.slots.list[index].state = next(self.slots.list[index].state, Input::Failed).0;
        let timeout = self.config.hot_plug.command_timeout;
        self.slots.list[index].power(&mut self.root, false, timeout)?;
        self.set_indicators(index, Indicator::Off, Some(Indicator::On))
    }

    /// The functions that came, or why none did.
    fn bring_up(&mut self, index: usize) -> Result<Result<Vec<Bdf>, String>, AccessError> {
        let config = self.config.hot_plug.clone();
        let slot = &mut self.slots.list[index];
        let port = slot.port;
        slot.power(&mut self.root, true, config.command_timeout)?;
        slot.indicate(
            &mut self.root,
            Indicator::Blink,
            Some(Indicator::Off),
            config.command_timeout,
        )?;
        if !slot.wait_for_link(&mut self.root, config.link_timeout)? {
            return Ok(Err(format!(
                "the link did not come up within {:?}; the slot is turned off",
                config.link_timeout
            )));
        }
        self.root.idle(Instant::now() + config.settle)?;
        let mut enumerator = Enumerator {
            root: &mut self.root,
            topology: &mut self.topology,
            config: &self.config,
            problems: Vec::new(),
        };
        let found = enumerator.behind(port);
        let problems = enumerator.problems;
        self.report(problems);
        match found {
            Ok(found) if found.is_empty() => {
                Ok(Err("the link is up but no device answers; the slot is turned off".into()))
            }
            other => other.map(Ok),
        }
    }

    /// Turns a slot off, in order or because the device is gone.
    fn disable(&mut self, index: usize, gone: bool) -> Result<(), AccessError> {
        let port = self.slots.list[index].port;
        self.remove_below(port, gone);
        let timeout = self.config.hot_plug.command_timeout;
        self.slots.list[index].power(&mut self.root, false, timeout)?;
        // After a surprise the attention indicator stays as it is.
        self.set_indicators(index, Indicator::Off, (!gone).then_some(Indicator::Off))
    }

    pub(crate) fn report(&mut self, problems: Vec<(Bdf, Problem)>) {
        for (bdf, problem) in problems {
            self.event(HostEvent::Error { bdf, reason: problem.to_string() });
        }
    }
}
