//! A device for tests.

use crate::types::{
    DeviceRecord, DeviceState, FunctionAddress, PciIdentity, SlotAddress, Timestamp,
};
use tlp_codec::ids::SlotFunction;

/// A function of a GPU that is free.
pub(crate) fn gpu(
    slot: &SlotAddress,
    function: SlotFunction,
    serial: u64,
    since: Timestamp,
) -> DeviceRecord {
    let (device, subsystem_vendor, subsystem, revision) = (1, 0, 0, 0);
    let (vendor, class) = (0x10de, 0x03_0200);
    DeviceRecord {
        address: FunctionAddress { slot: slot.clone(), function },
        state: DeviceState::Free,
        model: "gpu".into(),
        pci: PciIdentity { vendor, device, subsystem_vendor, subsystem, class, revision },
        serial,
        bars: [0; 6],
        since,
    }
}
