//! The two kinds of function that a switch is made of, and the root port above it, put together
//! from their capabilities.
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
//!
//! A root port is as an upstream port, with the root registers of PCI Express and AER.

use super::{Layout, access_control, error_reporting, express, header, identity, msi, power, slot};

/// Where the list of capabilities begins.
pub(crate) const FIRST_CAPABILITY: u16 = power::AT;

/// The upstream port.
pub(crate) static UPSTREAM: Layout = crate::layout!(&[
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
pub(crate) static DOWNSTREAM: Layout = crate::layout!(&[
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

/// A root port.
pub(crate) static ROOT_PORT: Layout = crate::layout!(&[
    header::REGISTERS,
    &power::registers(msi::AT),
    &msi::registers(express::AT),
    &express::root(identity::SUBSYSTEM_AT),
    express::ROOT_REGISTERS,
    identity::SUBSYSTEM_REGISTERS,
    &error_reporting::registers(identity::SERIAL_AT),
    error_reporting::ROOT_REGISTERS,
    &identity::serial(express::SECONDARY_AT),
    express::SECONDARY,
]);
