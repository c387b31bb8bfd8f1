//! Compressed instructions (volume I, chapter 16, "C"), as the 32-bit ones that they stand for.

use std::sync::LazyLock;

/// What each compressed instruction stands for, as [`expand`] says; 0, which is no instruction,
/// where it stands for none.
pub(super) static EXPANDED: LazyLock<Box<[u32]>> =
    LazyLock::new(|| (0..=u16::MAX).map(|half| expand(half).unwrap_or(0)).collect());

const LOAD: u32 = 0x03;
const OP_IMM: u32 = 0x13;
const STORE: u32 = 0x23;
const OP: u32 = 0x33;
const LUI: u32 = 0x37;
const BRANCH: u32 = 0x63;
const JALR: u32 = 0x67;
const JAL: u32 = 0x6f;
const EBREAK: u32 = 0x0010_0073;

const ZERO: u32 = 0;
const RA: u32 = 1;
const SP: u32 = 2;

fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: u32) -> u32 {
    imm << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn r(funct7: u32, funct3: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | OP
}

fn s(rs1: u32, rs2: u32, imm: u32) -> u32 {
    (imm >> 5 & 0x7f) << 25 | rs2 << 20 | rs1 << 15 | 2 << 12 | (imm & 0x1f) << 7 | STORE
}

fn b(funct3: u32, rs1: u32, imm: u32) -> u32 {
    let (high, low) = ((imm >> 12 & 1) << 6 | (imm >> 5 & 0x3f), imm & 0x1e | imm >> 11 & 1);
    high << 25 | rs1 << 15 | funct3 << 12 | low << 7 | BRANCH
}

fn j(rd: u32, imm: u32) -> u32 {
    let imm =
        (imm >> 20 & 1) << 19 | (imm >> 1 & 0x3ff) << 9 | (imm >> 11 & 1) << 8 | imm >> 12 & 0xff;
    imm << 12 | rd << 7 | JAL
}

/// Copies bits of an instruction into an immediate: (highest bit, lowest bit, where the lowest
/// goes).
fn gather(half: u32, fields: &[(u32, u32, u32)]) -> u32 {
    fields
        .iter()
        .map(|&(high, low, to)| (half >> low & ((1 << (high - low + 1)) - 1)) << to)
        .fold(0, |sum, part| sum | part)
}

/// The same, extended by its sign, which is bit `sign` of the immediate.
fn gather_signed(half: u32, sign: u32, fields: &[(u32, u32, u32)]) -> u32 {
    let shift = 31 - sign;
    ((gather(half, fields) << shift) as i32 >> shift) as u32
}

/// The 32-bit instruction that a compressed one stands for; `None` when there is no such
/// instruction on RV32 without floating point.
#[must_use]
pub fn expand(half: u16) -> Option<u32> {
    let half = u32::from(half);
    match half & 3 {
        0 => quadrant0(half),
        1 => quadrant1(half),
        2 => quadrant2(half),
        _ => None,
    }
}

fn quadrant0(half: u32) -> Option<u32> {
    let (rd, rs1) = (8 + (half >> 2 & 7), 8 + (half >> 7 & 7));
    let offset = gather(half, &[(12, 10, 3), (6, 6, 2), (5, 5, 6)]);
    match half >> 13 {
        0b000 => {
            let imm = gather(half, &[(12, 11, 4), (10, 7, 6), (6, 6, 2), (5, 5, 3)]);
            (imm != 0).then(|| i(OP_IMM, 0, rd, SP, imm))
        }
        0b010 => Some(i(LOAD, 2, rd, rs1, offset)),
        0b110 => Some(s(rs1, rd, offset)),
        _ => None,
    }
}

fn quadrant1(half: u32) -> Option<u32> {
    let rd = half >> 7 & 0x1f;
    let imm = gather_signed(half, 5, &[(12, 12, 5), (6, 2, 0)]);
    let jump = || {
        let fields = [
            (12, 12, 11),
            (11, 11, 4),
            (10, 9, 8),
            (8, 8, 10),
            (7, 7, 6),
            (6, 6, 7),
            (5, 3, 1),
            (2, 2, 5),
        ];
        gather_signed(half, 11, &fields)
    };
    let branch = |funct3| {
        let fields = [(12, 12, 8), (11, 10, 3), (6, 5, 6), (4, 3, 1), (2, 2, 5)];
        b(funct3, 8 + (half >> 7 & 7), gather_signed(half, 8, &fields))
    };
    match half >> 13 {
        0b000 => Some(i(OP_IMM, 0, rd, rd, imm)),
        0b001 => Some(j(RA, jump())),
        0b010 => Some(i(OP_IMM, 0, rd, ZERO, imm)),
        0b011 if imm == 0 => None,
        0b011 if rd == SP => {
            let fields = [(12, 12, 9), (6, 6, 4), (5, 5, 6), (4, 3, 7), (2, 2, 5)];
            Some(i(OP_IMM, 0, SP, SP, gather_signed(half, 9, &fields)))
        }
        0b011 => Some(imm << 12 | rd << 7 | LUI),
        0b100 => arithmetic(half, imm),
        0b101 => Some(j(ZERO, jump())),
        0b110 => Some(branch(0)),
        _ => Some(branch(1)),
    }
}

fn arithmetic(half: u32, imm: u32) -> Option<u32> {
    let (rd, rs2) = (8 + (half >> 7 & 7), 8 + (half >> 2 & 7));
    let long_shift = half & 1 << 12 != 0;
    match half >> 10 & 3 {
        0 | 1 if long_shift => None,
        0 => Some(i(OP_IMM, 5, rd, rd, imm)),
        1 => Some(i(OP_IMM, 5, rd, rd, imm | 0x400)),
        2 => Some(i(OP_IMM, 7, rd, rd, imm)),
        _ if half & 1 << 12 != 0 => None,
        _ => Some(match half >> 5 & 3 {
            0 => r(0x20, 0, rd, rd, rs2),
            1 => r(0, 4, rd, rd, rs2),
            2 => r(0, 6, rd, rd, rs2),
            _ => r(0, 7, rd, rd, rs2),
        }),
    }
}

fn quadrant2(half: u32) -> Option<u32> {
    let (rd, rs2) = (half >> 7 & 0x1f, half >> 2 & 0x1f);
    let bit12 = half & 1 << 12 != 0;
    match half >> 13 {
        0b000 if bit12 => None,
        0b000 => Some(i(OP_IMM, 1, rd, rd, rs2)),
        0b010 if rd == 0 => None,
        0b010 => Some(i(LOAD, 2, rd, SP, gather(half, &[(12, 12, 5), (6, 4, 2), (3, 2, 6)]))),
        0b100 => match (bit12, rd, rs2) {
            (false, 0, 0) => None,
            (false, _, 0) => Some(i(JALR, 0, ZERO, rd, 0)),
            (false, _, _) => Some(r(0, 0, rd, ZERO, rs2)),
            (true, 0, 0) => Some(EBREAK),
            (true, _, 0) => Some(i(JALR, 0, RA, rd, 0)),
            (true, _, _) => Some(r(0, 0, rd, rd, rs2)),
        },
        0b110 => Some(s(SP, rs2, gather(half, &[(12, 9, 2), (8, 7, 6)]))),
        _ => None,
    }
}
