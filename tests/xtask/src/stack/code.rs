//! What a function of a RISC-V program (RV32IMAC) does with its stack, and whom it calls.
//!
//! Instructions are told by the unprivileged ISA (20191213), chapters 2 and 16. Only those are
//! looked at that move the stack pointer, jump, or make a number in a register.

/// Registers by number: the return address, the stack pointer, and the other link register.
const RA: usize = 1;
const SP: usize = 2;
const T0: usize = 5;

/// What one function does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Bytes that it takes from the stack, at most.
    pub(crate) frame: u32,
    /// Those of them that it leaves to who called it by `t0`: it saves registers for that one, or is
    /// a piece that several functions have in common.
    pub(crate) leaves: u32,
    /// Where it calls.
    pub(crate) calls: Vec<u32>,
    /// Where it goes at its end, having given its bytes back.
    pub(crate) tails: Vec<u32>,
    /// It calls through a register whose contents are not known.
    pub(crate) calls_unknown: bool,
    /// It jumps through one: the places of a `match`, or another function's beginning.
    pub(crate) jumps_unknown: bool,
    /// Numbers that it makes in registers: the addresses of functions may be among them.
    pub(crate) numbers: Vec<u32>,
}

/// An instruction, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    /// `rd` is that number.
    Set(usize, u32),
    /// `rd` is `rs` and that number.
    Add(usize, usize, i32),
    /// `rd` is `rs1` and `rs2`, or less `rs2`.
    AddRegister { rd: usize, rs1: usize, rs2: usize, less: bool },
    /// `rd` is `rs`, so many bits to the left.
    Shift(usize, usize, u32),
    /// To that address, which is left in `rd`.
    Jump { link: usize, to: u32 },
    /// To what is in `rs` and that number.
    JumpRegister { link: usize, rs: usize, offset: i32 },
    /// Something else is in `rd`.
    Other(usize),
}

/// Bits `high` to `low`.
fn bits(word: u32, high: u32, low: u32) -> u32 {
    word >> low & ((1 << (high - low + 1)) - 1)
}

/// A number of so many bits, with its sign.
fn signed(value: u32, bits: u32) -> i32 {
    (value << (32 - bits)) as i32 >> (32 - bits)
}

fn register(word: u32, low: u32) -> usize {
    bits(word, low + 4, low) as usize
}

fn whole(word: u32, at: u32) -> Instruction {
    let (rd, rs1, rs2) = (register(word, 7), register(word, 15), register(word, 20));
    let upper = word & 0xffff_f000;
    let immediate = signed(word >> 20, 12);
    match (bits(word, 6, 0), bits(word, 14, 12)) {
        (0x37, _) => Instruction::Set(rd, upper),
        (0x17, _) => Instruction::Set(rd, at.wrapping_add(upper)),
        (0x13, 0) => Instruction::Add(rd, rs1, immediate),
        (0x13, 1) => Instruction::Shift(rd, rs1, bits(word, 24, 20)),
        (0x33, 0) if matches!(word >> 25, 0 | 0x20) => {
            Instruction::AddRegister { rd, rs1, rs2, less: word >> 25 == 0x20 }
        }
        (0x6f, _) => {
            let offset = bits(word, 31, 31) << 20
                | bits(word, 19, 12) << 12
                | bits(word, 20, 20) << 11
                | bits(word, 30, 21) << 1;
            Instruction::Jump { link: rd, to: at.wrapping_add_signed(signed(offset, 21)) }
        }
        (0x67, 0) => Instruction::JumpRegister { link: rd, rs: rs1, offset: immediate },
        // Stores and branches have no result.
        (0x23 | 0x63, _) => Instruction::Other(0),
        _ => Instruction::Other(rd),
    }
}

fn compressed(half: u32, at: u32) -> Instruction {
    let rd = register(half, 7);
    let small = signed(bits(half, 12, 12) << 5 | bits(half, 6, 2), 6);
    match (bits(half, 1, 0), bits(half, 15, 13)) {
        (1, 0) => Instruction::Add(rd, rd, small),
        (1, 1 | 5) => {
            let offset = bits(half, 12, 12) << 11
                | bits(half, 8, 8) << 10
                | bits(half, 10, 9) << 8
                | bits(half, 6, 6) << 7
                | bits(half, 7, 7) << 6
                | bits(half, 2, 2) << 5
                | bits(half, 11, 11) << 4
                | bits(half, 5, 3) << 1;
            let link = if bits(half, 15, 13) == 1 { RA } else { 0 };
            Instruction::Jump { link, to: at.wrapping_add_signed(signed(offset, 12)) }
        }
        (1, 2) => Instruction::Set(rd, small as u32),
        (1, 3) if rd == SP => {
            let offset = bits(half, 12, 12) << 9
                | bits(half, 4, 3) << 7
                | bits(half, 5, 5) << 6
                | bits(half, 2, 2) << 5
                | bits(half, 6, 6) << 4;
            Instruction::Add(SP, SP, signed(offset, 10))
        }
        (1, 3) => Instruction::Set(rd, (small as u32) << 12),
        (2, 4) => match (bits(half, 12, 12), register(half, 2)) {
            (0, 0) => Instruction::JumpRegister { link: 0, rs: rd, offset: 0 },
            (1, 0) if rd != 0 => Instruction::JumpRegister { link: RA, rs: rd, offset: 0 },
            (0, rs2) => Instruction::AddRegister { rd, rs1: 0, rs2, less: false },
            (_, rs2) => Instruction::AddRegister { rd, rs1: rd, rs2, less: false },
        },
        (2, 0) => Instruction::Shift(rd, rd, bits(half, 6, 2)),
        (2, 2) => Instruction::Other(rd),
        // Registers of these have three bits, from s0 on.
        (0, 0 | 2) => Instruction::Other(8 + bits(half, 4, 2) as usize),
        (1, 4) => Instruction::Other(8 + bits(half, 9, 7) as usize),
        _ => Instruction::Other(0),
    }
}

/// Reads a function's code, which lies at that address.
pub(crate) fn read(code: &[u8], start: u32) -> Function {
    let mut function = Function::default();
    let end = start + code.len() as u32;
    let inside = |to: u32| (start..end).contains(&to);
    // What is known to be in registers, from one instruction to the next.
    let mut known: [Option<u32>; 32] = [None; 32];
    known[0] = Some(0);
    let (mut place, mut left) = (0, 0);
    while let Some(half) = code.get(place..place + 2) {
        let at = start + place as u32;
        let half = u32::from(u16::from_le_bytes([half[0], half[1]]));
        let instruction = match (half & 3, code.get(place..place + 4)) {
            (3, Some(word)) => {
                place += 4;
                whole(u32::from_le_bytes([word[0], word[1], word[2], word[3]]), at)
            }
            _ => {
                place += 2;
                compressed(half, at)
            }
        };
        match instruction {
            Instruction::Set(rd, value) => {
                known[rd] = Some(value);
                function.numbers.push(value);
            }
            Instruction::Add(SP, SP, change) => {
                left += change;
                function.frame = function.frame.saturating_add(take(change));
            }
            Instruction::AddRegister { rd: SP, rs1: SP, rs2, less } => {
                // What is taken and not known is more than any stack has; what is added gives back.
                let unknown = if less { i32::MAX } else { 0 };
                let change = known[rs2].map_or(unknown, |by| by as i32);
                let taken = take(if less { change.wrapping_neg() } else { change });
                function.frame = function.frame.saturating_add(taken);
            }
            Instruction::Add(rd, rs, change) => {
                known[rd] = known[rs].map(|value| value.wrapping_add_signed(change));
                function.numbers.extend(known[rd]);
            }
            Instruction::Shift(rd, rs, by) => known[rd] = known[rs].map(|value| value << by),
            Instruction::AddRegister { rd, .. } => known[rd] = None,
            Instruction::Jump { link: 0, to } if inside(to) => {}
            Instruction::Jump { link: 0, to } => function.tails.push(to),
            Instruction::Jump { to, .. } => {
                function.calls.push(to);
                known = [None; 32];
            }
            Instruction::JumpRegister { link: 0, rs: T0, .. } => {
                function.leaves = function.leaves.max(take(left));
            }
            Instruction::JumpRegister { link: 0, rs: RA, .. } => {}
            Instruction::JumpRegister { link, rs, offset } => {
                match (known[rs].map(|value| value.wrapping_add_signed(offset)), link) {
                    (Some(to), 0) if inside(to) => {}
                    (Some(to), 0) => function.tails.push(to),
                    (Some(to), _) => function.calls.push(to),
                    (None, 0) => function.jumps_unknown = true,
                    (None, _) => function.calls_unknown = true,
                }
                known = [None; 32];
            }
            Instruction::Other(rd) => known[rd] = None,
        }
        known[0] = Some(0);
    }
    function.numbers.sort_unstable();
    function.numbers.dedup();
    function
}

/// Bytes that a change of the stack pointer takes.
fn take(change: i32) -> u32 {
    if change < 0 { change.unsigned_abs() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[(u32, usize)]) -> Vec<u8> {
        words.iter().flat_map(|(word, bytes)| word.to_le_bytes()[..*bytes].to_vec()).collect()
    }

    #[test]
    fn a_frame_in_two_steps_and_a_call() {
        // addi sp,sp,-2032; lui a0,3; addi a0,a0,-16; sub sp,sp,a0; jal ra,+0x100; c.addi16sp 32; ret
        let code = code(&[
            (0x8101_0113, 4),
            (0x0000_3537, 4),
            (0xff05_0513, 4),
            (0x40a1_0133, 4),
            (0x1000_00ef, 4),
            (0x6105, 2),
            (0x8082, 2),
        ]);
        let function = read(&code, 0x8000_0000);
        assert_eq!(function.frame, 2032 + 3 * 4096 - 16);
        assert_eq!(function.calls, [0x8000_0110]);
        assert!(function.tails.is_empty() && !function.calls_unknown && !function.jumps_unknown);
    }

    #[test]
    fn a_frame_of_a_shifted_number_and_one_that_is_not_known() {
        // c.li a1,25; c.slli a1,8; sub sp,sp,a1; sub sp,sp,a5
        let mut words = vec![(0x45e5, 2), (0x05a2, 2), (0x40b1_0133, 4)];
        assert_eq!(read(&code(&words), 0x8000_0000).frame, 6400);
        words.push((0x40f1_0133, 4));
        assert!(read(&code(&words), 0x8000_0000).frame > 1 << 30);
    }

    #[test]
    fn far_calls_tail_calls_and_unknown_ones() {
        // auipc ra,0x10; jalr ra,-16(ra); c.jalr a5; auipc t1,0; jr 0x200(t1)
        let code = code(&[
            (0x0001_0097, 4),
            (0xff00_80e7, 4),
            (0x9782, 2),
            (0x0000_0317, 4),
            (0x2003_0067, 4),
        ]);
        let function = read(&code, 0x8000_0000);
        assert_eq!(function.calls, [0x8000_fff0]);
        assert_eq!(function.tails, [0x8000_020a]);
        assert!(function.calls_unknown && !function.jumps_unknown);
    }

    #[test]
    fn what_a_routine_leaves_to_who_called_it_by_the_other_link_register() {
        // c.addi16sp -64; c.jr t0
        let saves = code(&[(0x7139, 2), (0x8282, 2)]);
        assert_eq!(read(&saves, 0x8000_0000).leaves, 64);
        // c.addi16sp -64; c.addi16sp 32; c.jr t0
        let both = code(&[(0x7139, 2), (0x6105, 2), (0x8282, 2)]);
        assert_eq!(read(&both, 0x8000_0000).leaves, 32);
        // c.addi16sp -64; c.addi16sp 32; ret
        let function = code(&[(0x7139, 2), (0x6105, 2), (0x8082, 2)]);
        assert_eq!(read(&function, 0x8000_0000).leaves, 0);
    }

    #[test]
    fn jumps_inside_are_no_calls() {
        // c.j +4; c.nop; c.jr a0 (a match); c.jal +0x20; c.addi16sp -64
        let code = code(&[(0xa011, 2), (0x0001, 2), (0x8502, 2), (0x2005, 2), (0x7139, 2)]);
        let function = read(&code, 0x8000_0000);
        assert_eq!((function.frame, &function.calls[..]), (64, &[0x8000_0026][..]));
        assert!(function.tails.is_empty() && function.jumps_unknown && !function.calls_unknown);
    }
}
