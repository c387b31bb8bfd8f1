//! MSI capability: one vector, 64-bit address, maskable (PCIe 5.0 section 7.7.1).

use super::{ConfigSpace, Register, capability};

/// Where it is; the upper half is Message Control.
pub(crate) const AT: u16 = 0x50;
const ID: u8 = 0x05;
/// Message Control: MSI Enable.
pub(crate) const ENABLE: u32 = 1 << 16;
const MULTIPLE_MESSAGE_ENABLE: u32 = 0b111 << 20;
const ADDRESS_64: u16 = 1 << 7;
const MASKABLE: u16 = 1 << 8;

/// Message Address.
pub(crate) const ADDRESS: u16 = AT + 0x04;
/// Message Upper Address.
pub(crate) const UPPER_ADDRESS: u16 = AT + 0x08;
/// Message Data.
pub(crate) const DATA: u16 = AT + 0x0c;
/// Mask Bits.
pub(crate) const MASK: u16 = AT + 0x10;
/// Pending Bits.
pub(crate) const PENDING: u16 = AT + 0x14;
/// The one vector, in Mask Bits and Pending Bits.
pub(crate) const VECTOR: u32 = 1;

/// The capability; the next one is at `next`.
pub(crate) const fn registers(next: u16) -> [Register; 6] {
    [
        Register::read_only(AT, capability(ID, next, ADDRESS_64 | MASKABLE))
            .writable(ENABLE | MULTIPLE_MESSAGE_ENABLE),
        Register::read_only(ADDRESS, 0).writable(!0b11),
        Register::read_only(UPPER_ADDRESS, 0).writable(u32::MAX),
        Register::read_only(DATA, 0).writable(0xffff),
        Register::read_only(MASK, 0).writable(VECTOR),
        Register::read_only(PENDING, 0),
    ]
}

/// Address and data of the interrupt write.
pub(crate) fn message(config: &ConfigSpace) -> (u64, u32) {
    let address = u64::from(config.get(UPPER_ADDRESS)) << 32 | u64::from(config.get(ADDRESS));
    (address, config.get(DATA))
}
