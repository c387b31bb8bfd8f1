//! The two kinds of function that a switch is made of, put together from their capabilities.
//!
//! | offset | upstream port | downstream port |
//! |---|---|---|
//! | 0x000 | type 1 header | type 1 header |
//! | 0x040 | power management | power management |
//! | 0x050 | MSI | MSI |
//! | 0x070 | PCI Express, upstream port | PCI Express, downstream port, slot |
//! | 0x0b0 | subsystem ID | subsystem ID |
//! | 0x100 | AER | AER |
//! | 0x150 | serial number | ACS |
//! | 0x170 | Secondary PCI Express | Secondary PCI Express |

use super::{Layout, access_control, error_reporting, express, header, identity, msi, power, slot};

/// Where the list of capabilities begins.
pub(crate) const FIRST_CAPABILITY: u16 = power::AT;

/// The upstream port.
pub(crate) static UPSTREAM: Layout = Layout::new(&[
    header::REGISTERS,
    &power::registers(msi::AT),
    &msi::registers(express::AT),
    &express::upstream(identity::SUBSYSTEM_AT),
    identity::SUBSYSTEM_REGISTERS,
    &error_reporting::registers(identity::SERIAL_AT),
    &identity::serial(express::SECONDARY_AT),
    express::SECONDARY,
]);

/// A downstream port.
pub(crate) static DOWNSTREAM: Layout = Layout::new(&[
    header::REGISTERS,
    &power::registers(msi::AT),
    &msi::registers(express::AT),
    &express::downstream(identity::SUBSYSTEM_AT),
    slot::REGISTERS,
    identity::SUBSYSTEM_REGISTERS,
    &error_reporting::registers(access_control::AT),
    &access_control::registers(express::SECONDARY_AT),
    express::SECONDARY,
]);
