//! A tunnel to the core's debug transport through the JTAG port of an FPGA: the FPGA has the one port
//! that a cable reaches, and one of its instructions leads to a data register of what is configured into
//! it (BSCANE2 of AMD's 7 series is such a register).
//!
//! What is scanned through that register carries a header at its end, since the end is all that an FPGA
//! among others on a chain knows of a scan: the last bit says whether a data register (1) or the
//! instruction register (0) behind the tunnel is meant, and the seven before it how long that is. OpenOCD
//! calls this kind `DATA_REGISTER` (`riscv use_bscan_tunnel WIDTH 1`); probe-rs knows no other. Soft cores
//! of the VexRiscv family are reached by it.

/// Bits behind what is for a register: one of which nobody makes use, and the header.
const TRAILER: u32 = 1 + HEADER;

/// Bits of the header: a width, which this end does not need, and which register is meant.
const HEADER: u32 = 7 + 1;

/// Clocks that what comes out of a register lags behind.
const LAG: u32 = 4;

/// What a tunnel is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelParts {
    /// Bits of the FPGA's instruction register, 2 to 32.
    pub ir_length: u32,
    /// The instruction that reaches the tunnel: neither IDCODE (1) nor BYPASS (all ones).
    pub instruction: u32,
    /// Bits of the instruction register behind the tunnel, 5 to 32: it has the debug transport's
    /// instructions (RISC-V external debug support 0.13.2, section 6.1.2).
    pub ir_width: u32,
}

impl TunnelParts {
    /// Whether there can be such a tunnel.
    ///
    /// # Errors
    ///
    /// What is wrong, for a person.
    pub fn check(&self) -> Result<(), String> {
        let Self { ir_length, instruction, ir_width } = *self;
        if !super::IR_LENGTHS.contains(&ir_length) {
            return Err(format!("an instruction register of {ir_length} bits: give 2 to 32"));
        }
        if !(5..=32).contains(&ir_width) {
            return Err(format!(
                "{ir_width} bits of instruction register behind the tunnel: give 5 to 32"
            ));
        }
        let bypass = u32::MAX >> (32 - ir_length);
        if instruction > bypass {
            return Err(format!("the instruction {instruction:#x} has more than {ir_length} bits"));
        }
        if instruction == bypass || instruction == super::jtag::IR_IDCODE {
            return Err(format!(
                "the instruction {instruction:#x} is IDCODE or BYPASS of the FPGA: give another"
            ));
        }
        Ok(())
    }
}

/// What an end of a scan means behind the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// There is another instruction.
    Instruction,
    /// The instruction's data register was written.
    Data(u64),
}

/// The tunnel, from the data register of the FPGA's port on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    parts: TunnelParts,
    /// The instruction behind it.
    pub(super) instruction: u32,
    /// The last bits of the scan, the last one at the top of so many: an instruction and the header.
    last: u64,
    /// Bits that came and have not reached the register, the latest the lowest.
    late: u32,
    /// The data register that is shifted, and its bits.
    register: (u64, u32),
    /// What came out of it and is not at the port yet, the latest the lowest.
    out: u32,
}

impl Tunnel {
    pub(super) fn new(parts: TunnelParts) -> Self {
        Self { parts, instruction: 0, last: 0, late: 0, register: (0, 1), out: 0 }
    }

    pub(super) fn parts(&self) -> TunnelParts {
        self.parts
    }

    /// The FPGA's port is reset.
    pub(super) fn reset(&mut self) {
        self.instruction = 0;
    }

    /// A scan begins: the instruction's data register has this value and length.
    pub(super) fn capture(&mut self, register: (u64, u32)) {
        self.register = register;
    }

    /// Bits of an instruction and the header.
    fn last_bits(&self) -> u32 {
        self.parts.ir_width + HEADER
    }

    /// A bit comes in.
    pub(super) fn shift(&mut self, tdi: bool) {
        self.last = self.last >> 1 | u64::from(tdi) << (self.last_bits() - 1);
        let reaches = self.late >> (TRAILER - 1) & 1;
        self.late = self.late << 1 | u32::from(tdi);
        let (value, bits) = &mut self.register;
        self.out = self.out << 1 | (*value & 1) as u32;
        *value = *value >> 1 | u64::from(reaches) << (*bits - 1);
    }

    /// What the FPGA's port gets of it.
    pub(super) fn tdo(&self) -> bool {
        self.out >> (LAG - 1) & 1 != 0
    }

    /// The scan has ended.
    pub(super) fn update(&mut self) -> Update {
        if self.last >> (self.last_bits() - 1) & 1 != 0 {
            return Update::Data(self.register.0);
        }
        self.instruction = self.last as u32 & u32::MAX >> (32 - self.parts.ir_width);
        Update::Instruction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: TunnelParts = TunnelParts { ir_length: 6, instruction: 0x23, ir_width: 5 };

    #[test]
    fn tunnels_that_cannot_be_are_refused() {
        PARTS.check().unwrap();
        for (parts, why) in [
            (TunnelParts { ir_length: 1, ..PARTS }, "an instruction register of 1 bits"),
            (TunnelParts { ir_length: 33, ..PARTS }, "an instruction register of 33 bits"),
            (TunnelParts { ir_width: 4, ..PARTS }, "4 bits of instruction register behind"),
            (TunnelParts { instruction: 0x40, ..PARTS }, "has more than 6 bits"),
            (TunnelParts { instruction: 0x3f, ..PARTS }, "is IDCODE or BYPASS"),
            (TunnelParts { instruction: 1, ..PARTS }, "is IDCODE or BYPASS"),
        ] {
            let told = parts.check().unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        TunnelParts { ir_length: 32, instruction: u32::MAX - 1, ir_width: 32 }.check().unwrap();
    }

    /// Shifts so many bits; what comes out.
    fn scan(tunnel: &mut Tunnel, bits: u128, count: u32) -> u128 {
        let mut out = 0;
        for bit in 0..count {
            out |= u128::from(tunnel.tdo()) << bit;
            tunnel.shift(bits >> bit & 1 != 0);
        }
        out
    }

    #[test]
    fn the_end_of_a_scan_says_what_it_is_for() {
        for ir_width in [5, 6, 32] {
            let mut tunnel = Tunnel::new(TunnelParts { ir_width, ..PARTS });
            // Bits of others on the chain may come before.
            for before in 0..3 {
                let instruction =
                    u128::from(0x11_u32) << 3 | u128::from(ir_width) << (3 + ir_width);
                scan(&mut tunnel, instruction << before, before + 3 + ir_width + 8);
                assert_eq!(tunnel.update(), Update::Instruction);
                assert_eq!(tunnel.instruction, 0x11);

                tunnel.capture((0x1_2345_6789, 41));
                let written = 0x0fe_dcba_9876_u128;
                let data = written << 3 | 41 << (3 + 42) | 1 << (3 + 42 + 7);
                let out = scan(&mut tunnel, data << before, before + 3 + 42 + 8);
                assert_eq!(tunnel.update(), Update::Data(0x0fe_dcba_9876));
                assert_eq!(out >> 4 & ((1 << 41) - 1), 0x1_2345_6789);
                assert_eq!(tunnel.instruction, 0x11, "as it was");
            }
            tunnel.reset();
            assert_eq!(tunnel.instruction, 0);
        }
    }
}
