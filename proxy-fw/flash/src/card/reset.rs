//! A reset of the card.

use std::time::Duration;

use probe_rs::architecture::riscv::Dmcontrol;
use probe_rs::architecture::riscv::communication_interface::RiscvCommunicationInterface;
use probe_rs::architecture::riscv::sequences::RiscvDebugSequence;

/// A reset of the whole card. probe-rs resets the core alone where the debug module can do that; the
/// SPI block and the flash would go on with what they were told before, and the boot loader would find
/// a window that does not show the flash.
#[derive(Debug)]
pub(super) struct WholeReset;

impl RiscvDebugSequence for WholeReset {
    fn reset_system_and_halt(
        &self,
        interface: &mut RiscvCommunicationInterface<'_>,
        timeout: Duration,
    ) -> Result<(), probe_rs::Error> {
        let mut control = Dmcontrol::from(0);
        control.set_dmactive(true);
        // It stops at its first instruction.
        control.set_haltreq(true);
        control.set_ndmreset(true);
        interface.write_dm_register(control)?;
        control.set_ndmreset(false);
        interface.write_dm_register(control)?;
        // The core once more: this waits for it, and has breakpoints halt again.
        interface.reset_hart_and_halt(timeout)?;
        Ok(())
    }
}
