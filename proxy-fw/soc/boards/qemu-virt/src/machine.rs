//! The machine as a board.

use crate::virtio::VirtioMac;
use crate::{clint, end, flash, plic, watchdog};
use board_common::stack;
use proxy_core::control::{ControlError, FirmwareRequest, ResetCause};
use proxy_core::time::Instant;
use soc::board::Board;
use soc::records::RecordPort;
use soc::slots::{self, Slots};
use soc::update::FirmwareAnswer;

/// Interrupts of the two interfaces: virtio-mmio places have the sources from 1 on.
const FABRIC: u32 = 1;
const PCIE: u32 = 2;

/// The machine.
pub(crate) struct Virt {
    mac: VirtioMac,
    pcie: RecordPort<VirtioMac>,
    /// Where the boot loader started it from one of them.
    slots: Option<Slots>,
}

impl Virt {
    pub(crate) fn new(mac: VirtioMac, pcie: RecordPort<VirtioMac>, slots: Option<Slots>) -> Self {
        plic::enable(&[FABRIC, PCIE]);
        Self { mac, pcie, slots }
    }
}

impl Virt {
    /// Whether a frame or a TLP came, or somebody found no room for one to be sent.
    fn is_wanted(&mut self) -> bool {
        self.mac.is_wanted() || self.pcie.mac().is_wanted()
    }

    /// Ends a life in which a new image has not joined by then, though it had its time.
    fn end_trial(&self, by: Instant) {
        if self.slots.as_ref().is_some_and(|slots| slots.trial_is_over(by)) {
            end::end(ResetCause::Software, 0, format_args!("{}", slots::TRIAL_IS_OVER));
        }
    }
}

impl Board for Virt {
    type Mac = VirtioMac;
    type Pcie = RecordPort<VirtioMac>;

    fn now(&mut self) -> Instant {
        clint::now()
    }

    fn mac(&mut self) -> &mut VirtioMac {
        &mut self.mac
    }

    fn pcie(&mut self) -> &mut RecordPort<VirtioMac> {
        &mut self.pcie
    }

    fn stack_used(&mut self) -> Option<u64> {
        Some(stack::used() as u64)
    }

    fn feed_watchdog(&mut self) {
        assert!(stack::is_within_budget(), "the stack has its {} bytes", stack::BUDGET);
        if self.slots.as_ref().is_some_and(Slots::is_on_trial) {
            // An image that always finds something to do is never idle.
            self.end_trial(clint::now());
        }
        watchdog::feed();
    }

    /// The machine has no thermometer.
    fn temperature(&mut self) -> Option<i32> {
        None
    }

    fn counters(&mut self) -> impl Iterator<Item = (&'static str, u64)> {
        self.pcie.counters().into_iter()
    }

    fn clock_failed(&mut self) {
        end::end(ResetCause::Clock, 0, format_args!("the timer stood still"));
    }

    #[inline(never)] // its stack is needed once
    fn joined(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.joined(flash::open);
        }
    }

    #[inline(never)] // its stack is needed seldom
    fn firmware(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError> {
        self.slots.as_mut().ok_or(ControlError::NoFirmware)?.handle(flash::open, request)
    }

    fn restart(&mut self) {
        end::end(ResetCause::Software, 0, format_args!("the manager wanted it"));
    }

    fn idle(&mut self, until: Instant) -> u32 {
        self.end_trial(until);
        loop {
            // Those of the last sleep, too: what ended it is seen to first. What comes from here on
            // ends the next one.
            plic::claim(|source| match source {
                FABRIC => self.mac.acknowledge_interrupt(),
                PCIE => self.pcie.mac().acknowledge_interrupt(),
                _ => {}
            });
            if self.is_wanted() {
                return Self::cycles();
            }
            let woken = watchdog::sleep(until);
            // Most interrupts say no more than that a frame was sent.
            if self.is_wanted() || clint::now() >= until {
                return woken;
            }
        }
    }

    fn cycles() -> u32 {
        riscv::register::mcycle::read() as u32
    }
}
