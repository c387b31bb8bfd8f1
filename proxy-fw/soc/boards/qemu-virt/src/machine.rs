//! The machine as a board.

use crate::layout::LAYOUT;
use crate::virtio::VirtioMac;
use crate::{clint, end, flash, plic, stack, watchdog};
use card_image::{AntiDowngrade, BootStore, SlotId, StoreError};
use proxy_core::control::ResetCause;
use proxy_core::time::Instant;
use soc::board::Board;
use soc::log;
use soc::records::RecordPort;

/// Interrupts of the two interfaces: virtio-mmio places have the sources from 1 on.
const FABRIC: u32 = 1;
const PCIE: u32 = 2;

/// The machine.
pub(crate) struct Virt {
    mac: VirtioMac,
    pcie: RecordPort<VirtioMac>,
    /// Whose image runs and has yet to report that it is healthy.
    trying: Option<SlotId>,
    /// Until when it has to, where there is another image to go back to.
    trial: Option<Instant>,
}

impl Virt {
    pub(crate) fn new(
        mac: VirtioMac,
        pcie: RecordPort<VirtioMac>,
        trying: Option<SlotId>,
        trial: Option<Instant>,
    ) -> Self {
        plic::enable(&[FABRIC, PCIE]);
        Self { mac, pcie, trying, trial }
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
        let Some(slot) = self.trying else { return };
        match report_healthy(slot) {
            Ok(()) => {
                log!(info, "the image in slot {=str} is healthy", name(slot));
                self.trying = None;
            }
            // It is tried again when the card joins again, and after the next reset.
            Err(_) => log!(error, "that slot {=str} is healthy was not recorded", name(slot)),
        }
    }

    fn idle(&mut self, until: Instant) -> u32 {
        if self.trial.is_some_and(|end| end <= until) {
            // The boot loader counts this try.
            end::end(
                ResetCause::Software,
                0,
                format_args!("a new image did not join in its trial"),
            );
        }
        let woken = watchdog::sleep(until);
        plic::claim(|source| match source {
            FABRIC => self.mac.acknowledge_interrupt(),
            PCIE => self.pcie.mac().acknowledge_interrupt(),
            _ => {}
        });
        woken
    }

    fn cycles() -> u32 {
        riscv::register::mcycle::read() as u32
    }
}

fn name(slot: SlotId) -> &'static str {
    match slot {
        SlotId::A => "a",
        SlotId::B => "b",
    }
}

/// Records that a slot's image is healthy. The card stands still meanwhile: some milliseconds, and
/// as long as an erase takes once in thousands of times.
#[inline(never)] // its stack is needed once
fn report_healthy(slot: SlotId) -> Result<(), StoreError<flash::Error>> {
    let mut flash = flash::open().map_err(StoreError::Flash)?;
    let mut store = BootStore::open(&mut flash, LAYOUT).map_err(StoreError::Flash)?;
    store.report_healthy(&mut flash, slot, AntiDowngrade::BySecurityVersion)
}
