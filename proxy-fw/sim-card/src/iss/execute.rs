//! What each instruction does.

use super::hart::{Hart, MIE, MPIE};
use super::{AccessFault, Bus, Width};

/// An exception, with what `mtval` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    FetchFault(u32),
    Illegal(u32),
    Breakpoint,
    LoadMisaligned(u32),
    LoadFault(u32),
    StoreMisaligned(u32),
    StoreFault(u32),
    EnvironmentCall,
}

impl Trap {
    /// `mcause` (volume II, table 3.6) and `mtval`.
    pub(super) fn cause_and_value(self, pc: u32) -> (u32, u32) {
        match self {
            Self::FetchFault(at) => (1, at),
            Self::Illegal(instruction) => (2, instruction),
            Self::Breakpoint => (3, pc),
            Self::LoadMisaligned(at) => (4, at),
            Self::LoadFault(at) => (5, at),
            Self::StoreMisaligned(at) => (6, at),
            Self::StoreFault(at) => (7, at),
            Self::EnvironmentCall => (11, 0),
        }
    }
}

fn rd(instruction: u32) -> usize {
    (instruction >> 7 & 0x1f) as usize
}

fn funct3(instruction: u32) -> u32 {
    instruction >> 12 & 7
}

fn imm_i(instruction: u32) -> u32 {
    (instruction as i32 >> 20) as u32
}

fn imm_s(instruction: u32) -> u32 {
    (instruction as i32 >> 25 << 5) as u32 | instruction >> 7 & 0x1f
}

fn imm_b(instruction: u32) -> u32 {
    (instruction as i32 >> 31 << 12) as u32
        | (instruction >> 7 & 1) << 11
        | (instruction >> 25 & 0x3f) << 5
        | (instruction >> 8 & 0xf) << 1
}

fn imm_j(instruction: u32) -> u32 {
    (instruction as i32 >> 31 << 20) as u32
        | instruction & 0xf_f000
        | (instruction >> 20 & 1) << 11
        | (instruction >> 21 & 0x3ff) << 1
}

impl Hart {
    fn rs1(&self, instruction: u32) -> u32 {
        self.x[(instruction >> 15 & 0x1f) as usize]
    }

    fn rs2(&self, instruction: u32) -> u32 {
        self.x[(instruction >> 20 & 0x1f) as usize]
    }

    fn put(&mut self, instruction: u32, value: u32) {
        self.x[rd(instruction)] = value;
        self.x[0] = 0;
    }

    /// Carries out an instruction that took `length` bytes and gives the address of the next.
    #[inline]
    pub(super) fn execute(
        &mut self,
        word: u32,
        length: u32,
        bus: &mut impl Bus,
    ) -> Result<u32, Trap> {
        let next = self.pc.wrapping_add(length);
        match word & 0x7f {
            0x37 => self.put(word, word & 0xffff_f000),
            0x17 => self.put(word, self.pc.wrapping_add(word & 0xffff_f000)),
            0x6f => {
                self.put(word, next);
                return Ok(self.pc.wrapping_add(imm_j(word)));
            }
            0x67 if funct3(word) == 0 => {
                let to = self.rs1(word).wrapping_add(imm_i(word)) & !1;
                self.put(word, next);
                return Ok(to);
            }
            0x63 => {
                let taken = self.branch(word)?;
                return Ok(if taken { self.pc.wrapping_add(imm_b(word)) } else { next });
            }
            0x03 => self.load(word, bus)?,
            0x23 => self.store(word, bus)?,
            0x13 => self.immediate(word)?,
            0x33 => self.register_register(word)?,
            // Fences: everything is in order already. Fields that are reserved are ignored.
            0x0f if funct3(word) < 2 => {}
            0x2f if funct3(word) == 2 => self.atomic(word, bus)?,
            0x73 => return self.system(word, next, bus),
            _ => return Err(Trap::Illegal(word)),
        }
        Ok(next)
    }

    fn branch(&self, word: u32) -> Result<bool, Trap> {
        let (a, b) = (self.rs1(word), self.rs2(word));
        Ok(match funct3(word) {
            0 => a == b,
            1 => a != b,
            4 => (a as i32) < b as i32,
            5 => a as i32 >= b as i32,
            6 => a < b,
            7 => a >= b,
            _ => return Err(Trap::Illegal(word)),
        })
    }

    fn load(&mut self, word: u32, bus: &mut impl Bus) -> Result<(), Trap> {
        let at = self.rs1(word).wrapping_add(imm_i(word));
        let read = |width, bus| read(at, width, bus).map_err(|AccessFault| Trap::LoadFault(at));
        let value = match funct3(word) {
            0 => read(Width::Byte, bus)? as i8 as u32,
            1 => read(Width::Half, bus)? as i16 as u32,
            2 => read(Width::Word, bus)?,
            4 => read(Width::Byte, bus)?,
            5 => read(Width::Half, bus)?,
            _ => return Err(Trap::Illegal(word)),
        };
        self.put(word, value);
        Ok(())
    }

    fn store(&mut self, word: u32, bus: &mut impl Bus) -> Result<(), Trap> {
        let at = self.rs1(word).wrapping_add(imm_s(word));
        let width = Width::from_log2(funct3(word)).ok_or(Trap::Illegal(word))?;
        write(at, width, self.rs2(word), bus).map_err(|AccessFault| Trap::StoreFault(at))
    }

    fn immediate(&mut self, word: u32) -> Result<(), Trap> {
        let (a, b) = (self.rs1(word), imm_i(word));
        let value = match (funct3(word), word >> 25) {
            (0, _) => a.wrapping_add(b),
            (1, 0) => a << (b & 0x1f),
            (2, _) => ((a as i32) < b as i32).into(),
            (3, _) => (a < b).into(),
            (4, _) => a ^ b,
            (5, 0) => a >> (b & 0x1f),
            (5, 0x20) => (a as i32 >> (b & 0x1f)) as u32,
            (6, _) => a | b,
            (7, _) => a & b,
            _ => return Err(Trap::Illegal(word)),
        };
        self.put(word, value);
        Ok(())
    }

    fn register_register(&mut self, word: u32) -> Result<(), Trap> {
        let (a, b) = (self.rs1(word), self.rs2(word));
        let value = match (word >> 25, funct3(word)) {
            (0, 0) => a.wrapping_add(b),
            (0x20, 0) => a.wrapping_sub(b),
            (0, 1) => a << (b & 0x1f),
            (0, 2) => ((a as i32) < b as i32).into(),
            (0, 3) => (a < b).into(),
            (0, 4) => a ^ b,
            (0, 5) => a >> (b & 0x1f),
            (0x20, 5) => (a as i32 >> (b & 0x1f)) as u32,
            (0, 6) => a | b,
            (0, 7) => a & b,
            (1, operation) => multiply_divide(operation, a, b),
            _ => return Err(Trap::Illegal(word)),
        };
        self.put(word, value);
        Ok(())
    }

    /// Volume I, chapter 8. There is one hart: an operation is atomic as it is.
    fn atomic(&mut self, word: u32, bus: &mut impl Bus) -> Result<(), Trap> {
        let (at, operand) = (self.rs1(word), self.rs2(word));
        let operation = word >> 27;
        let is_load = operation == 2;
        if is_load && word >> 20 & 0x1f != 0 {
            return Err(Trap::Illegal(word));
        }
        // What is no instruction is that first, whatever its address (Volume II, table 3.7).
        let combine = match operation {
            2 | 3 => None,
            _ => Some(read_modify_write(operation).ok_or(Trap::Illegal(word))?),
        };
        if !at.is_multiple_of(4) {
            return Err(if is_load { Trap::LoadMisaligned(at) } else { Trap::StoreMisaligned(at) });
        }
        let store_fault = |AccessFault| Trap::StoreFault(at);
        if is_load {
            let value = bus.read(at, Width::Word).map_err(|AccessFault| Trap::LoadFault(at))?;
            self.reservation = Some(at);
            self.put(word, value);
            return Ok(());
        }
        let Some(combine) = combine else {
            let reserved = self.reservation.take() == Some(at);
            if reserved {
                bus.write(at, Width::Word, operand).map_err(store_fault)?;
            }
            self.put(word, (!reserved).into());
            return Ok(());
        };
        let value = bus.read(at, Width::Word).map_err(store_fault)?;
        bus.write(at, Width::Word, combine(value, operand)).map_err(store_fault)?;
        self.put(word, value);
        Ok(())
    }

    fn system(&mut self, word: u32, next: u32, bus: &mut impl Bus) -> Result<u32, Trap> {
        match (funct3(word), word) {
            (0, 0x0000_0073) => Err(Trap::EnvironmentCall),
            (0, 0x0010_0073) => Err(Trap::Breakpoint),
            // mret, which is not for debug mode.
            (0, 0x3020_0073) if !self.debugging => {
                let before = if self.mstatus & MPIE != 0 { MIE } else { 0 };
                self.mstatus = before | MPIE;
                Ok(self.mepc)
            }
            (0, 0x1050_0073) => {
                self.waiting = true;
                Ok(next)
            }
            (0 | 4, _) => Err(Trap::Illegal(word)),
            _ => {
                self.csr_instruction(word, bus).ok_or(Trap::Illegal(word))?;
                Ok(next)
            }
        }
    }

    fn csr_instruction(&mut self, word: u32, bus: &impl Bus) -> Option<()> {
        let (number, source) = (word >> 20, word >> 15 & 0x1f);
        let operand = if funct3(word) & 4 != 0 { source } else { self.x[source as usize] };
        let before = self.read_csr(number, bus)?;
        let after = match funct3(word) & 3 {
            1 => Some(operand),
            2 => (source != 0).then_some(before | operand),
            _ => (source != 0).then_some(before & !operand),
        };
        if let Some(after) = after {
            self.write_csr(number, after)?;
        }
        self.put(word, before);
        Some(())
    }
}

/// Volume I, chapter 7: nothing traps, a division by zero gives all ones or the dividend.
fn multiply_divide(operation: u32, a: u32, b: u32) -> u32 {
    let (signed_a, signed_b) = (a as i32, b as i32);
    match operation {
        0 => a.wrapping_mul(b),
        1 => ((i64::from(signed_a) * i64::from(signed_b)) >> 32) as u32,
        2 => ((i64::from(signed_a) * i64::from(b)) >> 32) as u32,
        3 => ((u64::from(a) * u64::from(b)) >> 32) as u32,
        4 if b == 0 => u32::MAX,
        4 => signed_a.wrapping_div(signed_b) as u32,
        5 => a.checked_div(b).unwrap_or(u32::MAX),
        6 if b == 0 => a,
        6 => signed_a.wrapping_rem(signed_b) as u32,
        _ => a.checked_rem(b).unwrap_or(a),
    }
}

fn read_modify_write(operation: u32) -> Option<fn(u32, u32) -> u32> {
    Some(match operation {
        0x00 => u32::wrapping_add,
        0x01 => |_, operand| operand,
        0x04 => |value, operand| value ^ operand,
        0x08 => |value, operand| value | operand,
        0x0c => |value, operand| value & operand,
        0x10 => |value, operand| (value as i32).min(operand as i32) as u32,
        0x14 => |value, operand| (value as i32).max(operand as i32) as u32,
        0x18 => u32::min,
        0x1c => u32::max,
        _ => return None,
    })
}

/// A read that may be misaligned.
fn read(at: u32, width: Width, bus: &mut impl Bus) -> Result<u32, AccessFault> {
    if at.is_multiple_of(width.bytes()) {
        return bus.read(at, width);
    }
    (0..width.bytes()).try_fold(0, |sum, index| {
        Ok(sum | bus.read(at.wrapping_add(index), Width::Byte)? << (8 * index))
    })
}

/// A write that may be misaligned.
fn write(at: u32, width: Width, value: u32, bus: &mut impl Bus) -> Result<(), AccessFault> {
    if at.is_multiple_of(width.bytes()) {
        return bus.write(at, width, value);
    }
    (0..width.bytes()).try_for_each(|index| {
        bus.write(at.wrapping_add(index), Width::Byte, value >> (8 * index) & 0xff)
    })
}
