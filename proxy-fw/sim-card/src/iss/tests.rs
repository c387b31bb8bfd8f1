//! Programs by hand, and compressed instructions against the 32-bit ones.

use proptest::prelude::*;

use super::{AccessFault, Bus, DebugCause, Hart, Interrupts, Step, Width, expand};

const BASE: u32 = 0x8000_0000;

/// 64 KB of memory.
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Memory {
    pub(crate) fn with(program: &[u32]) -> Self {
        let mut bytes: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(64 << 10, 0);
        Self(bytes)
    }

    fn range(&self, at: u32, width: Width) -> Result<std::ops::Range<usize>, AccessFault> {
        let start = at.checked_sub(BASE).ok_or(AccessFault)? as usize;
        let end = start + width.bytes() as usize;
        if end <= self.0.len() { Ok(start..end) } else { Err(AccessFault) }
    }
}

impl Bus for Memory {
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        assert!(at.is_multiple_of(width.bytes()), "the hart asks for aligned accesses only");
        let range = self.range(at, width)?;
        Ok(self.0[range].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        assert!(at.is_multiple_of(width.bytes()), "the hart asks for aligned accesses only");
        let range = self.range(at, width)?;
        self.0[range].copy_from_slice(&value.to_le_bytes()[..width.bytes() as usize]);
        Ok(())
    }
}

fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32) -> u32 {
    (imm as u32) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x13, 0, rd, rs1, imm)
}

fn add(rd: u32, rs1: u32, rs2: u32) -> u32 {
    rs2 << 20 | rs1 << 15 | rd << 7 | 0x33
}

fn m(funct3: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    1 << 25 | add(rd, rs1, rs2) | funct3 << 12
}

fn lui(rd: u32, high: u32) -> u32 {
    high << 12 | rd << 7 | 0x37
}

fn lw(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x03, 2, rd, rs1, imm)
}

fn sw(rs2: u32, rs1: u32, imm: u32) -> u32 {
    (imm >> 5) << 25 | rs2 << 20 | rs1 << 15 | 2 << 12 | (imm & 0x1f) << 7 | 0x23
}

fn branch(funct3: u32, rs1: u32, rs2: u32, offset: i32) -> u32 {
    let imm = offset as u32;
    (imm >> 12 & 1) << 31
        | (imm >> 5 & 0x3f) << 25
        | rs2 << 20
        | rs1 << 15
        | funct3 << 12
        | (imm >> 1 & 0xf) << 8
        | (imm >> 11 & 1) << 7
        | 0x63
}

fn jal(rd: u32, offset: i32) -> u32 {
    let imm = offset as u32;
    (imm >> 20 & 1) << 31
        | (imm >> 1 & 0x3ff) << 21
        | (imm >> 11 & 1) << 20
        | (imm >> 12 & 0xff) << 12
        | rd << 7
        | 0x6f
}

fn csrrw(rd: u32, csr: u32, rs1: u32) -> u32 {
    i(0x73, 1, rd, rs1, csr as i32)
}

fn csrr(rd: u32, csr: u32) -> u32 {
    i(0x73, 2, rd, 0, csr as i32)
}

const EBREAK: u32 = 0x0010_0073;
const ECALL: u32 = 0x73;
const WFI: u32 = 0x1050_0073;
const MRET: u32 = 0x3020_0073;

/// Runs until `count` steps are done and gives the hart.
fn run(program: &[u32], count: usize) -> Hart {
    let (mut hart, mut memory) = (Hart::new(BASE), Memory::with(program));
    for _ in 0..count {
        assert_eq!(hart.step(&mut memory), Step::Done);
    }
    hart
}

#[test]
fn a_loop_adds_up() {
    // x1 = 1 + … + 100
    let program = [addi(2, 0, 100), add(1, 1, 2), addi(2, 2, -1), branch(1, 2, 0, -8), jal(0, 0)];
    let hart = run(&program, 1 + 3 * 100 + 1);
    assert_eq!(hart.register(1), 5050);
    assert_eq!(hart.pc(), BASE + 16);
    assert_eq!(hart.retired(), 302);
}

#[test]
fn x0_stays_zero() {
    let hart = run(&[addi(0, 0, 5), addi(1, 0, 0)], 2);
    assert_eq!((hart.register(0), hart.register(1)), (0, 0));
}

#[test]
fn misaligned_accesses_are_done_in_bytes() {
    let program = [lui(1, 0x80001), lui(2, 0x12345), addi(2, 2, 0x678), sw(2, 1, 3), lw(3, 1, 3)];
    assert_eq!(run(&program, 5).register(3), 0x1234_5678);
}

/// The trap that one instruction leads to: cause, value, and where it was.
fn trap_of(instruction: u32) -> (u32, u32, u32) {
    let mut memory = Memory::with(&[instruction]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x305, BASE + 0x100);
    hart.set_csr(0x300, 1 << 3);
    assert_eq!(hart.step(&mut memory), Step::Done);
    assert_eq!(hart.pc(), BASE + 0x100);
    // Interrupts are off in the handler, and were on before.
    assert_eq!(hart.csr(0x300, &memory), Some(3 << 11 | 1 << 7));
    assert_eq!(hart.csr(0x341, &memory), Some(BASE));
    let csr = |number| hart.csr(number, &memory).unwrap();
    (csr(0x342), csr(0x343), csr(0x341))
}

#[test]
fn what_is_no_atomic_instruction_is_illegal_at_any_address() {
    for (operation, wanted) in [(0_u32, 6), (2, 4), (3, 6), (5, 2)] {
        let atomic = operation << 27 | 1 << 15 | 2 << 12 | 0x2f;
        let mut memory = Memory::with(&[addi(1, 0, 2), atomic]);
        let mut hart = Hart::new(BASE);
        hart.set_csr(0x305, BASE + 0x100);
        assert_eq!(hart.step(&mut memory), Step::Done);
        assert_eq!(hart.step(&mut memory), Step::Done);
        assert_eq!(hart.csr(0x342, &memory), Some(wanted), "operation {operation}");
    }
}

#[test]
fn exceptions_say_what_and_where() {
    assert_eq!(trap_of(ECALL), (11, 0, BASE));
    assert_eq!(trap_of(EBREAK), (3, BASE, BASE));
    assert_eq!(trap_of(0xffff_ffff), (2, 0xffff_ffff, BASE));
    assert_eq!(trap_of(0), (2, 0, BASE));
    assert_eq!(trap_of(lw(1, 0, 8)), (5, 8, BASE));
    assert_eq!(trap_of(sw(1, 0, 12)), (7, 12, BASE));
    // lr.w and amoadd.w
    assert_eq!(trap_of(2 << 27 | 2 << 12 | 0x2f), (5, 0, BASE));
    assert_eq!(trap_of(2 << 12 | 0x2f), (7, 0, BASE));
}

#[test]
fn atomic_operations_have_to_be_aligned() {
    let mut memory = Memory::with(&[lui(1, 0x80001), addi(1, 1, 2), 1 << 15 | 2 << 12 | 0x2f]);
    let mut hart = Hart::new(BASE);
    for _ in 0..3 {
        hart.step(&mut memory);
    }
    assert_eq!(hart.csr(0x342, &memory), Some(6));
    assert_eq!(hart.csr(0x343, &memory), Some(0x8000_1002));
}

#[test]
fn registers_that_are_not_there_are_illegal() {
    for number in [0x100, 0x7b0, 0x7b1, 0x180, 0x302, 0xfff] {
        assert_eq!(trap_of(csrr(1, number)).0, 2, "{number:#x}");
    }
    // Read-only ones can be read, not written.
    assert_eq!(trap_of(csrrw(0, 0xf14, 1)).0, 2);
}

#[test]
fn a_jump_to_nowhere_faults_there() {
    let mut memory = Memory::with(&[lui(1, 0x12345), i(0x67, 0, 0, 1, 0)]);
    let mut hart = Hart::new(BASE);
    for _ in 0..3 {
        hart.step(&mut memory);
    }
    assert_eq!(hart.csr(0x342, &memory), Some(1));
    assert_eq!(hart.csr(0x341, &memory), Some(0x1234_5000));
    assert_eq!(hart.csr(0x343, &memory), Some(0x1234_5000));
}

#[test]
fn interrupts_by_priority_and_vector() {
    let mut memory = Memory::with(&[addi(1, 1, 1); 8]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x305, BASE + 0x101);
    hart.set_csr(0x304, 1 << 3 | 1 << 7 | 1 << 11);
    hart.set_interrupts(Interrupts { software: true, timer: true, external: true });
    // They are off.
    hart.step(&mut memory);
    assert_eq!(hart.pc(), BASE + 4);
    hart.set_csr(0x300, 1 << 3);
    let mut order = Vec::new();
    for lines in [
        Interrupts { software: true, timer: true, external: true },
        Interrupts { software: true, timer: true, external: false },
        Interrupts { software: false, timer: true, external: false },
    ] {
        hart.set_interrupts(lines);
        hart.set_csr(0x300, 1 << 3);
        hart.set_pc(BASE);
        let mut memory = Memory::with(&[]);
        // The first instruction of the handler is none, which is a trap of its own: look before.
        memory.0[0x100..0x200].copy_from_slice(&addi(0, 0, 0).to_le_bytes().repeat(64));
        hart.step(&mut memory);
        order.push((hart.csr(0x342, &memory).unwrap(), hart.pc()));
    }
    let of = |number: u32| (1 << 31 | number, BASE + 0x100 + 4 * number + 4);
    assert_eq!(order, [of(11), of(3), of(7)]);
}

#[test]
fn wfi_waits_also_with_interrupts_off() {
    let mut memory = Memory::with(&[WFI, addi(1, 0, 1)]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x304, 1 << 7);
    assert_eq!(hart.step(&mut memory), Step::Done);
    assert_eq!(hart.step(&mut memory), Step::Waiting);
    hart.set_interrupts(Interrupts { external: true, ..Interrupts::default() });
    assert_eq!(hart.step(&mut memory), Step::Waiting);
    hart.set_interrupts(Interrupts { timer: true, ..Interrupts::default() });
    assert_eq!(hart.step(&mut memory), Step::Done);
    assert_eq!(hart.register(1), 1);
}

#[test]
fn mret_goes_back_with_interrupts_as_before() {
    let mut memory = Memory::with(&[MRET]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x341, BASE + 0x40);
    hart.set_csr(0x300, 1 << 7);
    hart.step(&mut memory);
    assert_eq!(hart.pc(), BASE + 0x40);
    assert_eq!(hart.csr(0x300, &memory), Some(3 << 11 | 1 << 7 | 1 << 3));
}

#[test]
fn store_conditional_needs_its_reservation() {
    let lr = |rd: u32, rs1: u32| 2 << 27 | rs1 << 15 | 2 << 12 | rd << 7 | 0x2f;
    let sc =
        |rd: u32, rs1: u32, rs2: u32| 3 << 27 | rs2 << 20 | rs1 << 15 | 2 << 12 | rd << 7 | 0x2f;
    let program = [lui(1, 0x80001), addi(2, 0, 7), lr(3, 1), sc(4, 1, 2), sc(5, 1, 2), lw(6, 1, 0)];
    let hart = run(&program, 6);
    assert_eq!((hart.register(4), hart.register(5), hart.register(6)), (0, 1, 7));
}

#[test]
fn counters_can_be_set() {
    // minstret = 100, and the instruction after the write counts on from it.
    let program = [addi(1, 0, 100), csrrw(0, 0xb02, 1), csrr(2, 0xb02), csrr(3, 0xc02)];
    let hart = run(&program, 4);
    assert_eq!((hart.register(2), hart.register(3)), (100, 101));
}

#[test]
fn a_trigger_halts_before_the_instruction() {
    let mut memory = Memory::with(&[addi(1, 1, 1), addi(1, 1, 1), addi(1, 1, 1)]);
    let mut hart = Hart::new(BASE);
    hart.halt(DebugCause::HaltRequest);
    hart.set_csr(0x7a0, 1);
    hart.set_csr(0x7a2, BASE + 4);
    // dmode, action 1, machine mode, execute
    hart.set_csr(0x7a1, 2 << 28 | 1 << 27 | 1 << 12 | 1 << 6 | 1 << 2);
    hart.resume();
    for _ in 0..3 {
        hart.step(&mut memory);
    }
    assert!(hart.is_halted());
    assert_eq!((hart.pc(), hart.register(1)), (BASE + 4, 1));
    assert_eq!(hart.csr(0x7b0, &memory).unwrap() >> 6 & 7, DebugCause::Trigger as u32);
    // Firmware cannot touch what is the debugger's.
    hart.set_csr(0x7a0, 5);
    assert_eq!(hart.csr(0x7a0, &memory), Some(1));
    hart.resume();
    hart.set_csr(0x7a1, 0);
    assert_eq!(hart.csr(0x7a1, &memory).unwrap() >> 27 & 1, 1);
}

#[test]
fn firmware_may_have_triggers_with_exceptions() {
    let mut memory = Memory::with(&[addi(1, 1, 1), addi(1, 1, 1)]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x305, BASE + 0x100);
    hart.set_csr(0x7a2, BASE + 4);
    hart.set_csr(0x7a1, 1 << 27 | 1 << 12 | 1 << 6 | 1 << 2);
    // Neither the debugger's nor into debug mode.
    assert_eq!(hart.csr(0x7a1, &memory), Some(2 << 28 | 1 << 6 | 1 << 2));
    hart.set_csr(0x300, 1 << 3);
    hart.step(&mut memory);
    hart.step(&mut memory);
    assert_eq!((hart.pc(), hart.csr(0x342, &memory)), (BASE + 0x100, Some(3)));
}

#[test]
fn a_step_ends_before_the_handler_of_a_trigger() {
    let mut memory = Memory::with(&[addi(1, 1, 1), addi(1, 1, 1)]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x305, BASE + 0x100);
    hart.set_csr(0x7a2, BASE);
    hart.set_csr(0x7a1, 1 << 6 | 1 << 2);
    hart.set_csr(0x300, 1 << 3);
    hart.halt(DebugCause::HaltRequest);
    hart.set_csr(0x7b0, 1 << 2);
    hart.resume();
    hart.step(&mut memory);
    assert!(hart.is_halted());
    assert_eq!((hart.pc(), hart.register(1)), (BASE + 0x100, 0));
    assert_eq!(hart.csr(0x7b0, &memory).unwrap() >> 6 & 7, DebugCause::Step as u32);
}

#[test]
fn stepping_does_one_instruction_and_no_interrupt() {
    let mut memory = Memory::with(&[addi(1, 1, 1), WFI, addi(1, 1, 1)]);
    let mut hart = Hart::new(BASE);
    hart.set_csr(0x304, 1 << 7);
    hart.set_csr(0x300, 1 << 3);
    hart.set_interrupts(Interrupts { timer: true, ..Interrupts::default() });
    hart.halt(DebugCause::HaltRequest);
    hart.set_csr(0x7b0, 1 << 2);
    for count in 1..=3 {
        hart.resume();
        hart.step(&mut memory);
        assert!(hart.is_halted());
        assert_eq!(hart.pc(), BASE + 4 * count);
    }
    assert_eq!(hart.register(1), 2);
}

proptest! {
    #[test]
    fn multiplication_and_division(a: i32, b in prop_oneof![any::<i32>(), -2..3]) {
        let (mut hart, mut memory) = (
            Hart::new(BASE),
            Memory::with(&std::array::from_fn::<u32, 8, _>(|f| m(f as u32, 10 + f as u32, 1, 2))),
        );
        hart.set_register(1, a as u32);
        hart.set_register(2, b as u32);
        for _ in 0..8 {
            hart.step(&mut memory);
        }
        let (ua, ub) = (i128::from(a as u32), i128::from(b as u32));
        let (a, b) = (i128::from(a), i128::from(b));
        let wide = [
            a * b,
            (a * b) >> 32,
            (a * ub) >> 32,
            (ua * ub) >> 32,
            if b == 0 { -1 } else { a / b },
            if ub == 0 { -1 } else { ua / ub },
            if b == 0 { a } else { a % b },
            if ub == 0 { ua } else { ua % ub },
        ];
        for (index, value) in wide.into_iter().enumerate() {
            prop_assert_eq!(hart.register(10 + index), value as u32, "funct3 {}", index);
        }
    }

    /// Whatever is executed, nothing panics, and x0 is 0.
    #[test]
    fn any_bytes_can_be_executed(words in prop::collection::vec(any::<u32>(), 1..64)) {
        let (mut hart, mut memory) = (Hart::new(BASE), Memory::with(&words));
        for _ in 0..200 {
            hart.step(&mut memory);
            prop_assert_eq!(hart.register(0), 0);
            prop_assert!(hart.pc().is_multiple_of(2));
        }
    }
}

/// A form of the compressed instructions as the manual prints it (volume I, table 16.5 to 16.7):
/// 16 letters from bit 15 down, `0` and `1` as they are, letters name what is filled in.
struct Form {
    pattern: &'static str,
    /// Bits of the immediate, in the order of the letter `n` in the pattern.
    immediate: &'static [u32],
    /// The sign's bit; 0 when the immediate has none.
    sign: u32,
    /// The 32-bit instruction from rd or rs1 (letter `d`), rs2 (letter `s`) and immediate.
    expands: fn(u32, u32, i32) -> u32,
}

const fn form(
    pattern: &'static str,
    immediate: &'static [u32],
    sign: u32,
    expands: fn(u32, u32, i32) -> u32,
) -> Form {
    Form { pattern, immediate, sign, expands }
}

const JUMP: &[u32] = &[11, 4, 9, 8, 10, 6, 7, 3, 2, 1, 5];
const BRANCH: &[u32] = &[8, 4, 3, 7, 6, 2, 1, 5];

/// Three letters are one of x8 to x15, five any register.
const FORMS: &[Form] = &[
    form("000nnnnnnnnsss00", &[5, 4, 9, 8, 7, 6, 2, 3], 0, |_, s, n| addi(s, 2, n)),
    form("010nnndddnnsss00", &[5, 4, 3, 2, 6], 0, |d, s, n| lw(s, d, n)),
    form("110nnndddnnsss00", &[5, 4, 3, 2, 6], 0, |d, s, n| sw(s, d, n as u32)),
    form("000ndddddnnnnn01", &[5, 4, 3, 2, 1, 0], 5, |d, _, n| addi(d, d, n)),
    form("001nnnnnnnnnnn01", JUMP, 11, |_, _, n| jal(1, n)),
    form("010ndddddnnnnn01", &[5, 4, 3, 2, 1, 0], 5, |d, _, n| addi(d, 0, n)),
    form("011n00010nnnnn01", &[9, 4, 6, 8, 7, 5], 9, |_, _, n| addi(2, 2, n)),
    form("100000dddnnnnn01", &[4, 3, 2, 1, 0], 0, |d, _, n| i(0x13, 5, d, d, n)),
    form("100001dddnnnnn01", &[4, 3, 2, 1, 0], 0, |d, _, n| i(0x13, 5, d, d, n | 0x400)),
    form("100n10dddnnnnn01", &[5, 4, 3, 2, 1, 0], 5, |d, _, n| i(0x13, 7, d, d, n)),
    form("100011ddd00sss01", &[], 0, |d, s, _| 0x20 << 25 | add(d, d, s)),
    form("100011ddd01sss01", &[], 0, |d, s, _| 4 << 12 | add(d, d, s)),
    form("100011ddd10sss01", &[], 0, |d, s, _| 6 << 12 | add(d, d, s)),
    form("100011ddd11sss01", &[], 0, |d, s, _| 7 << 12 | add(d, d, s)),
    form("101nnnnnnnnnnn01", JUMP, 11, |_, _, n| jal(0, n)),
    form("110nnndddnnnnn01", BRANCH, 8, |d, _, n| branch(0, d, 0, n)),
    form("111nnndddnnnnn01", BRANCH, 8, |d, _, n| branch(1, d, 0, n)),
    form("0000dddddnnnnn10", &[4, 3, 2, 1, 0], 0, |d, _, n| i(0x13, 1, d, d, n)),
    form("010ndddddnnnnn10", &[5, 4, 3, 2, 7, 6], 0, |d, _, n| lw(d, 2, n)),
    form("1000ddddd0000010", &[], 0, |d, _, _| i(0x67, 0, 0, d, 0)),
    form("1000dddddsssss10", &[], 0, |d, s, _| add(d, 0, s)),
    form("1001000000000010", &[], 0, |_, _, _| EBREAK),
    form("1001ddddd0000010", &[], 0, |d, _, _| i(0x67, 0, 1, d, 0)),
    form("1001dddddsssss10", &[], 0, |d, s, _| add(d, d, s)),
    form("110nnnnnnsssss10", &[5, 4, 3, 2, 7, 6], 0, |_, s, n| sw(s, 2, n as u32)),
];

impl Form {
    /// What stands in the places of a letter, from the highest bit down.
    fn letter(&self, letter: char, half: u16) -> (u32, u32) {
        let places = self.pattern.chars().enumerate().filter(|(_, c)| *c == letter);
        places.fold((0, 0), |(value, count), (place, _)| {
            (value << 1 | u32::from(half >> (15 - place) & 1), count + 1)
        })
    }

    fn is_of(&self, half: u16) -> bool {
        self.pattern.chars().enumerate().all(|(place, c)| match c {
            '0' | '1' => (half >> (15 - place) & 1 == 1) == (c == '1'),
            _ => true,
        })
    }

    fn register(&self, letter: char, half: u16) -> u32 {
        match self.letter(letter, half) {
            (value, 3) => 8 + value,
            (value, _) => value,
        }
    }

    fn number(&self, half: u16) -> i32 {
        let (raw, count) = self.letter('n', half);
        let bits = self.immediate.iter().enumerate();
        let value =
            bits.fold(0, |sum, (index, bit)| sum | (raw >> (count - 1 - index as u32) & 1) << bit);
        if self.sign > 0 && value >> self.sign & 1 == 1 {
            value as i32 - (1 << (self.sign + 1))
        } else {
            value as i32
        }
    }
}

/// C.LUI is the one form whose immediate is not that of its 32-bit form.
fn c_lui(half: u16) -> Option<u32> {
    let rd = u32::from(half >> 7 & 0x1f);
    let number = i32::from(half >> 2 & 0x1f) - 32 * i32::from(half >> 12 & 1);
    (rd != 2 && number != 0).then(|| lui(rd, number as u32 & 0xf_ffff))
}

/// What the manual says for a half: reserved encodings are none.
fn judged(half: u16) -> Option<u32> {
    if half >> 13 == 0b011 && half & 3 == 1 && half >> 7 & 0x1f != 2 {
        return c_lui(half);
    }
    let form = FORMS.iter().find(|form| form.is_of(half))?;
    let (d, number) = (form.register('d', half), form.number(half));
    let reserved = match form.pattern {
        "000nnnnnnnnsss00" | "011n00010nnnnn01" => number == 0,
        "010ndddddnnnnn10" | "1000ddddd0000010" => d == 0,
        _ => false,
    };
    (!reserved).then(|| (form.expands)(d, form.register('s', half), number))
}

/// Not a sample: there are only so many.
#[test]
fn every_compressed_instruction_is_that_of_the_manual() {
    for half in 0..=u16::MAX {
        if half & 3 != 3 {
            assert_eq!(expand(half), judged(half), "{half:#06x} {half:#018b}");
        }
    }
}
