//! A hot-plug port's registers.

use super::state::SlotState;
use crate::error::AccessError;
use crate::interrupts::Vector;
use crate::port::TlpPort;
use crate::regs::{self, slot, slot::Indicator};
use crate::root::RootComplex;
use std::time::{Duration, Instant};
use tlp_codec::ids::Bdf;

/// Between two looks at a register that is to change.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// One hot-plug port and what the host has told it.
pub(crate) struct Slot {
    pub(crate) port: Bdf,
    pub(crate) state: SlotState,
    /// When the time after the attention button is over.
    pub(crate) timer: Option<Instant>,
    pub(crate) vector: Option<Vector>,
    express: u16,
    capabilities: u32,
    control: u16,
}

/// What Slot Status and Link Status say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) events: u16,
    pub(crate) present: bool,
    pub(crate) link_active: bool,
}

impl Slot {
    /// A slot that has something in use, or nothing; nothing is written yet.
    pub(crate) fn new(
        port: Bdf,
        express: u16,
        capabilities: u32,
        vector: Option<Vector>,
        state: SlotState,
    ) -> Self {
        let has = |bit| capabilities & bit != 0;
        let mut control = slot::CTL_INTERRUPT | slot::CTL_LINK;
        // As pciehp: with a button, presence alone is no reason to interrupt.
        control |= if has(slot::CAP_BUTTON) { slot::CTL_BUTTON } else { slot::CTL_PRESENCE };
        Self { port, state, timer: None, vector, express, capabilities, control }
    }

    const fn has(&self, bit: u32) -> bool {
        self.capabilities & bit != 0
    }

    /// Forgets old events, sets the indicators for the state and turns interrupts on.
    pub(crate) fn start<P: TlpPort>(
        &mut self,
        root: &mut RootComplex<P>,
        command_timeout: Duration,
    ) -> Result<(), AccessError> {
        let events = slot::STA_EVENTS;
        root.config_write(self.port, self.express + regs::EXP_SLTSTA, 2, events.into())?;
        let power = if self.state.is_on() { Indicator::On } else { Indicator::Off };
        self.indicate(root, power, Some(Indicator::Off), command_timeout)
    }

    /// Sets power and attention indicators, where they are.
    pub(crate) fn indicate<P: TlpPort>(
        &mut self,
        root: &mut RootComplex<P>,
        power: Indicator,
        attention: Option<Indicator>,
        command_timeout: Duration,
    ) -> Result<(), AccessError> {
        if self.has(slot::CAP_INDICATOR) {
            self.field(slot::CTL_INDICATOR_SHIFT, power as u16);
        }
        if let Some(attention) = attention.filter(|_| self.has(slot::CAP_ATTENTION)) {
            self.field(slot::CTL_ATTENTION_SHIFT, attention as u16);
        }
        self.write_control(root, command_timeout)
    }

    fn field(&mut self, shift: u16, value: u16) {
        self.control = self.control & !(3 << shift) | value << shift;
    }

    /// Turns the slot's power on or off, where there is a power controller.
    pub(crate) fn power<P: TlpPort>(
        &mut self,
        root: &mut RootComplex<P>,
        on: bool,
        command_timeout: Duration,
    ) -> Result<(), AccessError> {
        if !self.has(slot::CAP_POWER) {
            return Ok(());
        }
        if on {
            self.control &= !slot::CTL_POWER_OFF;
        } else {
            self.control |= slot::CTL_POWER_OFF;
        }
        self.write_control(root, command_timeout)
    }

    /// Writes Slot Control and, where the port says when it is done, waits for that.
    fn write_control<P: TlpPort>(
        &mut self,
        root: &mut RootComplex<P>,
        command_timeout: Duration,
    ) -> Result<(), AccessError> {
        root.config_write(self.port, self.express + regs::EXP_SLTCTL, 2, self.control.into())?;
        if self.has(slot::CAP_NCCS) {
            return Ok(());
        }
        let deadline = Instant::now() + command_timeout;
        while Instant::now() < deadline {
            if self.read_status(root)? & slot::STA_COMMAND != 0 {
                let done = slot::STA_COMMAND.into();
                return root.config_write(self.port, self.express + regs::EXP_SLTSTA, 2, done);
            }
            root.idle(Instant::now() + LOOK_AGAIN)?;
        }
        // As pciehp: said and gone on.
        tracing::warn!(port = %self.port, "the port did not complete a slot command in time");
        Ok(())
    }

    fn read_status<P: TlpPort>(&self, root: &mut RootComplex<P>) -> Result<u16, AccessError> {
        let both = root.config_read(self.port, self.express + regs::EXP_SLTCTL)?;
        Ok((both >> 16) as u16)
    }

    /// Link Status.
    pub(crate) fn link<P: TlpPort>(&self, root: &mut RootComplex<P>) -> Result<u16, AccessError> {
        let both = root.config_read(self.port, self.express + regs::EXP_LNKCTL)?;
        Ok((both >> 16) as u16)
    }

    /// Reads what happened since the last time and clears it.
    pub(crate) fn take_events<P: TlpPort>(
        &self,
        root: &mut RootComplex<P>,
    ) -> Result<Status, AccessError> {
        let mut events = 0;
        let mut status = self.read_status(root)?;
        // What happens while this is written makes another interrupt only after all is clear: look
        // again until nothing new is there, but not for ever at a port that does not clear.
        for _ in 0..16 {
            let new = status & slot::STA_EVENTS;
            if new == 0 {
                break;
            }
            events |= new;
            root.config_write(self.port, self.express + regs::EXP_SLTSTA, 2, new.into())?;
            status = self.read_status(root)?;
        }
        let link_active = self.link(root)? & regs::LNKSTA_ACTIVE != 0;
        Ok(Status { events, present: status & slot::STA_PRESENT != 0, link_active })
    }

    /// Waits until the link is up and trained. `false` when it did not come in time.
    pub(crate) fn wait_for_link<P: TlpPort>(
        &self,
        root: &mut RootComplex<P>,
        timeout: Duration,
    ) -> Result<bool, AccessError> {
        let deadline = Instant::now() + timeout;
        loop {
            let link = self.link(root)?;
            let width = link >> 4 & 0x3f;
            if link & regs::LNKSTA_ACTIVE != 0 && link & regs::LNKSTA_TRAINING == 0 && width != 0 {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            root.idle(Instant::now() + LOOK_AGAIN)?;
        }
    }
}
