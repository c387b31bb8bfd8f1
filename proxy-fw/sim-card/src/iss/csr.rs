//! Control and status registers (volume II, chapters 2 and 3; debug specification, section 4.8).

use super::Bus;
use super::hart::{Hart, MIE, MPIE};

/// `mstatus`: the mode before the trap, which can only be machine mode.
const MPP: u32 = 3 << 11;
/// `mie` and `mip`: software, timer and external interrupts.
const INTERRUPTS: u32 = 1 << 3 | 1 << 7 | 1 << 11;
/// RV32 with A, C, I and M.
const MISA: u32 = 1 << 30 | 1 | 1 << 2 | 1 << 8 | 1 << 12;
/// `tinfo`: triggers are of type 2.
const TINFO: u32 = 1 << 2;

impl Hart {
    /// Registers from 0x7b0 on are there in debug mode only.
    pub(super) fn read_csr(&self, number: u32, bus: &impl Bus) -> Option<u32> {
        let cycles = self.retired.wrapping_add(self.mcycle_offset);
        let instructions = self.retired.wrapping_add(self.minstret_offset);
        Some(match number {
            0x300 => self.mstatus | MPP,
            0x301 => MISA,
            0x304 => self.mie,
            0x305 => self.mtvec,
            0x340 => self.mscratch,
            0x341 => self.mepc,
            0x342 => self.mcause,
            0x343 => self.mtval,
            0x344 => self.mip,
            // mstatush, mcountinhibit, events and counters 3 to 31, memory protection without
            // entries, and who made the core.
            0x310 | 0x320 | 0x323..=0x33f | 0x3a0..=0x3a3 | 0x3b0..=0x3bf => 0,
            0xb03..=0xb1f | 0xb83..=0xb9f | 0xf11..=0xf15 => 0,
            0x7a0 => self.triggers.select(),
            0x7a1 => self.triggers.control(),
            0x7a2 => self.triggers.address(),
            0x7a4 => TINFO,
            0x7b0 if self.debugging => self.dcsr,
            0x7b1 if self.debugging => self.dpc,
            0x7b2 | 0x7b3 if self.debugging => self.dscratch[number as usize & 1],
            0xbc0 => return self.external_mask(),
            0xfc0 => return self.external_lines(),
            0xb00 | 0xc00 => cycles as u32,
            0xb80 | 0xc80 => (cycles >> 32) as u32,
            0xb02 | 0xc02 => instructions as u32,
            0xb82 | 0xc82 => (instructions >> 32) as u32,
            0xc01 => bus.time() as u32,
            0xc81 => (bus.time() >> 32) as u32,
            _ => return None,
        })
    }

    /// `None` when it is not there, or is read-only by its number.
    pub(super) fn write_csr(&mut self, number: u32, value: u32) -> Option<()> {
        let replace = |count: u64, low: Option<u32>, high: Option<u32>| {
            let low = low.unwrap_or(count as u32);
            let high = high.unwrap_or((count >> 32) as u32);
            u64::from(high) << 32 | u64::from(low)
        };
        let cycles = self.retired.wrapping_add(self.mcycle_offset);
        let instructions = self.retired.wrapping_add(self.minstret_offset);
        match number {
            0x300 => self.mstatus = value & (MIE | MPIE),
            0x304 => self.mie = value & INTERRUPTS,
            // Mode 0 or 1; others are not taken over.
            0x305 if value & 2 == 0 => self.mtvec = value,
            0x305 => {}
            0x340 => self.mscratch = value,
            0x341 => self.mepc = value & !1,
            0x342 => self.mcause = value,
            0x343 => self.mtval = value,
            // What they hold cannot be changed.
            0x301 | 0x344 | 0x310 | 0x320 | 0x323..=0x33f | 0x3a0..=0x3a3 | 0x3b0..=0x3bf => {}
            0xb03..=0xb1f | 0xb83..=0xb9f | 0x7a4 => {}
            0x7a0 => self.triggers.set_select(value),
            0x7a1 => self.triggers.set_control(value, self.debugging),
            0x7a2 => self.triggers.set_address(value, self.debugging),
            0x7b0 if self.debugging => self.set_dcsr(value),
            0x7b1 if self.debugging => self.dpc = value & !1,
            0x7b2 | 0x7b3 if self.debugging => self.dscratch[number as usize & 1] = value,
            0xbc0 => return self.set_external_mask(value),
            0xb00 => self.mcycle_offset = self.offset(replace(cycles, Some(value), None)),
            0xb80 => self.mcycle_offset = self.offset(replace(cycles, None, Some(value))),
            0xb02 => self.minstret_offset = self.offset(replace(instructions, Some(value), None)),
            0xb82 => self.minstret_offset = self.offset(replace(instructions, None, Some(value))),
            _ => return None,
        }
        Some(())
    }

    /// So that the counter shows `value` at the next instruction (volume II, section 3.1.10: a
    /// write takes effect after the instruction that does it).
    fn offset(&self, value: u64) -> u64 {
        let running = if self.debugging { 0 } else { 1 };
        value.wrapping_sub(self.retired.wrapping_add(running))
    }
}
