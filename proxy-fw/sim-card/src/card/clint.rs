//! Timer and software interrupt (SiFive's CLINT, as QEMU has it).

use super::TICK_NANOS;
use crate::iss::AccessFault;

/// Ticks of a step of `mtime`, which counts at 10 MHz.
const STEP: u64 = 100 / TICK_NANOS;

const MSIP: u32 = 0;
const MTIMECMP: u32 = 0x4000;
const MTIMECMP_HIGH: u32 = 0x4004;
const MTIME: u32 = 0xbff8;
const MTIME_HIGH: u32 = 0xbffc;

#[derive(Debug)]
pub(super) struct Clint {
    software: bool,
    compare: u64,
    /// What firmware set `mtime` to, as the difference to the time since power came on.
    offset: u64,
}

impl Default for Clint {
    fn default() -> Self {
        Self { software: false, compare: u64::MAX, offset: 0 }
    }
}

impl Clint {
    /// The time goes on.
    pub(super) fn reset(&mut self) {
        *self = Self { offset: self.offset, ..Self::default() };
    }

    pub(super) fn software(&self) -> bool {
        self.software
    }

    pub(super) fn time(&self, ticks: u64) -> u64 {
        (ticks / STEP).wrapping_add(self.offset)
    }

    /// The tick from which on the timer's interrupt is there.
    pub(super) fn due(&self) -> u64 {
        // Firmware may have set the time back, or on beyond what is compared.
        let steps = i128::from(self.compare) - i128::from(self.offset as i64);
        u64::try_from(steps.max(0)).unwrap_or(u64::MAX).saturating_mul(STEP)
    }

    pub(super) fn read(&self, register: u32, ticks: u64) -> Result<u32, AccessFault> {
        Ok(match register {
            MSIP => self.software.into(),
            MTIMECMP => self.compare as u32,
            MTIMECMP_HIGH => (self.compare >> 32) as u32,
            MTIME => self.time(ticks) as u32,
            MTIME_HIGH => (self.time(ticks) >> 32) as u32,
            // Of further harts.
            _ => 0,
        })
    }

    pub(super) fn write(
        &mut self,
        register: u32,
        value: u32,
        ticks: u64,
    ) -> Result<(), AccessFault> {
        let low = |count: u64| count & !0xffff_ffff | u64::from(value);
        let high = |count: u64| count & 0xffff_ffff | u64::from(value) << 32;
        let now = self.time(ticks);
        match register {
            MSIP => self.software = value & 1 != 0,
            MTIMECMP => self.compare = low(self.compare),
            MTIMECMP_HIGH => self.compare = high(self.compare),
            MTIME => self.offset = low(now).wrapping_sub(ticks / STEP),
            MTIME_HIGH => self.offset = high(now).wrapping_sub(ticks / STEP),
            _ => {}
        }
        Ok(())
    }
}
