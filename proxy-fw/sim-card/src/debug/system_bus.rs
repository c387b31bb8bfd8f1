//! Access to memory and devices past the hart (section 3.10), halted or not.

use super::System;
use crate::iss::Width;

const VERSION: u32 = 1 << 29;
const READ_ON_ADDRESS: u32 = 1 << 20;
const ACCESS: u32 = 7 << 17;
const AUTOINCREMENT: u32 = 1 << 16;
const READ_ON_DATA: u32 = 1 << 15;
const ERROR: u32 = 7 << 12;
/// Addresses of 32 bits; accesses of 32, 16 and 8.
const CAN: u32 = 32 << 5 | 0b111;

/// `sberror`.
const BAD_ADDRESS: u32 = 2;
const MISALIGNED: u32 = 3;
const BAD_SIZE: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct SystemBus {
    /// The bits of `sbcs` that can be set.
    control: u32,
    error: u32,
    address: u32,
    data: u32,
}

impl Default for SystemBus {
    /// Accesses are of 32 bits.
    fn default() -> Self {
        Self { control: 2 << 17, error: 0, address: 0, data: 0 }
    }
}

impl SystemBus {
    pub(super) fn status(&self) -> u32 {
        VERSION | self.control | self.error << 12 | CAN
    }

    /// The error is cleared by ones.
    pub(super) fn set_control(&mut self, value: u32) {
        self.control = value & (READ_ON_ADDRESS | ACCESS | AUTOINCREMENT | READ_ON_DATA);
        self.error &= !((value & ERROR) >> 12);
    }

    pub(super) fn address(&self) -> u32 {
        self.address
    }

    pub(super) fn set_address(&mut self, value: u32, system: &mut impl System) {
        self.address = value;
        if self.error == 0 && self.control & READ_ON_ADDRESS != 0 {
            self.read(system);
        }
    }

    pub(super) fn read_data(&mut self, system: &mut impl System) -> u32 {
        let value = self.data;
        if self.error == 0 && self.control & READ_ON_DATA != 0 {
            self.read(system);
        }
        value
    }

    pub(super) fn write_data(&mut self, value: u32, system: &mut impl System) {
        self.data = value;
        if self.error != 0 {
            return;
        }
        let written = self.width().and_then(|width| {
            system.write(self.address, width, value & mask(width)).map_err(|_| BAD_ADDRESS)?;
            Ok(width)
        });
        self.done(written);
    }

    fn read(&mut self, system: &mut impl System) {
        let read = self.width().and_then(|width| {
            self.data = system.read(self.address, width).map_err(|_| BAD_ADDRESS)?;
            Ok(width)
        });
        self.done(read);
    }

    fn width(&self) -> Result<Width, u32> {
        let width = Width::from_log2((self.control & ACCESS) >> 17).ok_or(BAD_SIZE)?;
        if self.address.is_multiple_of(width.bytes()) { Ok(width) } else { Err(MISALIGNED) }
    }

    fn done(&mut self, result: Result<Width, u32>) {
        match result {
            Ok(width) if self.control & AUTOINCREMENT != 0 => {
                self.address = self.address.wrapping_add(width.bytes());
            }
            Ok(_) => {}
            Err(error) => self.error = error,
        }
    }
}

fn mask(width: Width) -> u32 {
    match width {
        Width::Byte => 0xff,
        Width::Half => 0xffff,
        Width::Word => u32::MAX,
    }
}
