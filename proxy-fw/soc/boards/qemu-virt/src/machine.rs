//! The machine as a board.

use crate::virtio::VirtioMac;
use crate::{clint, end, flash, plic, watchdog};
use board_common::stack;
use card_image::SlotId;
use proxy_core::control::{ControlError, FirmwareError, FirmwareRequest, ResetCause};
use proxy_core::time::Instant;
use soc::board::Board;
use soc::log;
use soc::records::RecordPort;
use soc::update::{FirmwareAnswer, Update};

/// Interrupts of the two interfaces: virtio-mmio places have the sources from 1 on.
const FABRIC: u32 = 1;
const PCIE: u32 = 2;

/// The machine.
pub(crate) struct Virt {
    mac: VirtioMac,
    pcie: RecordPort<VirtioMac>,
    /// The slots, where the boot loader started one of them.
    update: Option<Update>,
    /// The image that runs has yet to report that it is healthy.
    trying: bool,
    /// Until when it has to, where there is another image to go back to.
    trial: Option<Instant>,
}

impl Virt {
    pub(crate) fn new(
        mac: VirtioMac,
        pcie: RecordPort<VirtioMac>,
        update: Option<Update>,
        trying: bool,
        trial: Option<Instant>,
    ) -> Self {
        plic::enable(&[FABRIC, PCIE]);
        Self { mac, pcie, update, trying, trial }
    }
}

impl Virt {
    /// Whether a frame or a TLP came, or somebody found no room for one to be sent.
    fn is_wanted(&mut self) -> bool {
        self.mac.is_wanted() || self.pcie.mac().is_wanted()
    }

    /// Ends a life in which a new image has not joined by then, though it had its time.
    fn end_trial(&self, by: Instant) {
        if self.trial.is_some_and(|end| end <= by) {
            // The boot loader counts this try.
            end::end(
                ResetCause::Software,
                0,
                format_args!("a new image did not join in its trial"),
            );
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
        if self.trial.is_some() {
            // An image that always finds something to do is never idle.
            self.end_trial(clint::now());
        }
        watchdog::feed();
    }

    /// The machine has no thermometer.
    fn temperature(&mut self) -> Option<i32> {
        None
    }

    fn clock_failed(&mut self) {
        end::end(ResetCause::Clock, 0, format_args!("the timer stood still"));
    }

    fn joined(&mut self) {
        self.trial = None;
        let Some(update) = self.update.as_mut().filter(|_| self.trying) else { return };
        let slot = match update.running() {
            SlotId::A => "a",
            SlotId::B => "b",
        };
        if report_healthy(update) {
            log!(info, "the image in slot {=str} is healthy", slot);
            self.trying = false;
        } else {
            // It is tried again when the card joins again, and after the next reset.
            log!(error, "that slot {=str} is healthy was not recorded", slot);
        }
    }

    #[inline(never)] // its stack is needed seldom
    fn firmware(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError> {
        let update = self.update.as_mut().ok_or(ControlError::NoFirmware)?;
        let failed = ControlError::Firmware(FirmwareError::Flash);
        let mut flash = flash::open().map_err(|_| failed)?;
        update.handle(&mut flash, request).map_err(ControlError::Firmware)
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

/// Records that the image that runs is healthy. The card stands still meanwhile: some milliseconds,
/// and as long as an erase takes once in thousands of times.
#[inline(never)] // its stack is needed once
fn report_healthy(update: &mut Update) -> bool {
    let Ok(mut flash) = flash::open() else { return false };
    update.report_healthy(&mut flash).is_ok()
}
