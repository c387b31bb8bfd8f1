//! The debug module, spoken to through the pins.

use crate::card::{Card, RAM_BASE};
use crate::debug::{Place, TapState};

use super::jtag::IDCODE;

/// A probe that does not trust: it counts bits and compares.
struct Probe {
    card: Card,
    instruction: u32,
}

const NOP: u32 = 0x13;
const EBREAK: u32 = 0x0010_0073;
/// addi x1, x1, 1
const COUNT: u32 = 0x0010_8093;
/// Jump to itself.
const STAY: u32 = 0x6f;

impl Probe {
    fn new(program: &[u32]) -> Self {
        let mut card = Card::new();
        let bytes: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
        card.load(RAM_BASE, &bytes).unwrap();
        card.hart.set_pc(RAM_BASE);
        for _ in 0..5 {
            card.clock_jtag(true, false);
        }
        card.clock_jtag(false, false);
        let mut probe = Self { card, instruction: 0 };
        probe.write(0x10, 1);
        probe
    }

    /// Shifts so many bits, from Shift to Run-Test/Idle.
    fn shift(&mut self, value: u64, bits: u32) -> u64 {
        let mut taken = 0;
        for bit in 0..bits {
            let tdo = self.card.clock_jtag(bit == bits - 1, value >> bit & 1 == 1);
            taken |= u64::from(tdo) << bit;
        }
        self.card.clock_jtag(true, false);
        self.card.clock_jtag(false, false);
        taken
    }

    fn scan(&mut self, instruction: u32, value: u64, bits: u32) -> u64 {
        if self.instruction != instruction {
            for tms in [true, true, false, false] {
                self.card.clock_jtag(tms, false);
            }
            assert_eq!(self.shift(instruction.into(), 5), 1);
            self.instruction = instruction;
        }
        for tms in [true, false, false] {
            self.card.clock_jtag(tms, false);
        }
        self.shift(value, bits)
    }

    fn dmi(&mut self, operation: u64, address: u32, data: u32) -> u32 {
        self.scan(0x11, u64::from(address) << 34 | u64::from(data) << 2 | operation, 41);
        let answer = self.scan(0x11, 0, 41);
        assert_eq!(answer & 3, 0, "the access was done");
        assert_eq!(answer >> 34, u64::from(address));
        (answer >> 2) as u32
    }

    fn read(&mut self, address: u32) -> u32 {
        self.dmi(1, address, 0)
    }

    fn write(&mut self, address: u32, data: u32) {
        self.dmi(2, address, data);
    }

    fn halt(&mut self) {
        self.write(0x10, 1 << 31 | 1);
        assert_eq!(self.read(0x11) >> 8 & 0xf, 0b0011, "all harts are halted");
        self.write(0x10, 1);
    }

    fn error(&mut self) -> u32 {
        let error = self.read(0x16) >> 8 & 7;
        self.write(0x16, 7 << 8);
        error
    }

    fn register(&mut self, number: u32) -> u32 {
        self.write(0x17, 2 << 20 | 1 << 17 | number);
        self.read(0x04)
    }

    fn set_register(&mut self, number: u32, value: u32) {
        self.write(0x04, value);
        self.write(0x17, 2 << 20 | 1 << 17 | 1 << 16 | number);
    }
}

#[test]
fn five_ones_reset_the_port_from_every_state() {
    use TapState::*;
    let all = [
        TestLogicReset,
        RunTestIdle,
        SelectDr,
        CaptureDr,
        ShiftDr,
        Exit1Dr,
        PauseDr,
        Exit2Dr,
        UpdateDr,
        SelectIr,
        CaptureIr,
        ShiftIr,
        Exit1Ir,
        PauseIr,
        Exit2Ir,
        UpdateIr,
    ];
    for state in all {
        assert_eq!((0..5).fold(state, |state, _| state.next(true)), TestLogicReset);
    }
}

#[test]
fn the_port_says_what_it_is() {
    let mut probe = Probe::new(&[STAY]);
    assert_eq!(probe.scan(0x01, 0, 32), u64::from(IDCODE));
    // Version 0.13, 7 bits of address.
    assert_eq!(probe.scan(0x10, 0, 32) & 0xfff, 0x71);
    // What is not known is one bit of bypass: what goes in comes out a clock later.
    assert_eq!(probe.scan(0x1f, 0b1011_0101, 9), 0b1_0110_1010);
}

/// Scans a register of all of a chain, from Run-Test/Idle and back.
fn scan_chain(card: &mut Card, begin: &[bool], value: u128, bits: u32) -> u128 {
    for tms in begin {
        card.clock_jtag(*tms, false);
    }
    let taken = (0..bits).fold(0, |taken, bit| {
        let tdo = card.clock_jtag(bit == bits - 1, value >> bit & 1 == 1);
        taken | u128::from(tdo) << bit
    });
    card.clock_jtag(true, false);
    card.clock_jtag(false, false);
    taken
}

#[test]
fn a_chain_has_the_ports_before_and_after_the_cards_own() {
    const DATA: &[bool] = &[true, false, false];
    const INSTRUCTION: &[bool] = &[true, true, false, false];
    let mut card = Card::new().with_tap(Place::Before, 6).with_tap(Place::After, 4);
    let reset = |card: &mut Card| {
        for tms in [true, true, true, true, true, false] {
            card.clock_jtag(tms, false);
        }
    };
    reset(&mut card);
    // What is at TDO comes first.
    let idcodes = [Place::After.idcode(), IDCODE, Place::Before.idcode()];
    let together = idcodes.iter().rev().fold(0, |all, one| all << 32 | u128::from(*one));
    assert_eq!(scan_chain(&mut card, DATA, 0, 96), together);
    // All to BYPASS: a bit of 0 each, and then what went in.
    let captured = 0b01_0101 << 9 | 1 << 4 | 0b0101;
    assert_eq!(scan_chain(&mut card, INSTRUCTION, (1 << 15) - 1, 15), captured);
    assert_eq!(scan_chain(&mut card, DATA, 0b101_1011, 10), 0b101_1011 << 3);
    // The card's own alone has IDCODE.
    assert_eq!(scan_chain(&mut card, INSTRUCTION, 0x3f << 9 | 1 << 4 | 0xf, 15), captured);
    assert_eq!(scan_chain(&mut card, DATA, 0, 34) >> 1, u128::from(IDCODE));
    card.test_reset();
    reset(&mut card);
    assert_eq!(scan_chain(&mut card, DATA, 0, 96), together, "TRST# is everybody's");
}

#[test]
fn a_wrong_operation_sticks_until_it_is_cleared() {
    let mut probe = Probe::new(&[STAY]);
    probe.scan(0x11, 3, 41);
    assert_eq!(probe.scan(0x11, 0, 41) & 3, 2);
    assert_eq!(probe.scan(0x10, 1 << 16, 32) >> 10 & 3, 2);
    assert_eq!(probe.scan(0x11, 0, 41) & 3, 0);
}

#[test]
fn status_tells_of_one_hart() {
    let mut probe = Probe::new(&[STAY]);
    let status = probe.read(0x11);
    assert_eq!(status & 0xf, 2);
    assert_eq!(status >> 8 & 0xf, 0b1100, "it runs");
    assert_eq!(status >> 22 & 1, 1, "an ebreak is implied");
    // There is no other hart to select.
    probe.write(0x10, 0x03ff_ffc1);
    assert_eq!(probe.read(0x10), 1);
    probe.halt();
    assert_eq!(probe.read(0x40), 1);
}

#[test]
fn nothing_but_its_activation_works_while_it_is_inactive() {
    let mut probe = Probe::new(&[STAY]);
    probe.write(0x04, 5);
    probe.write(0x10, 0);
    probe.write(0x04, 7);
    assert_eq!((probe.read(0x04), probe.read(0x10)), (0, 0));
}

#[test]
fn registers_are_read_and_written() {
    let mut probe = Probe::new(&[STAY]);
    probe.halt();
    for number in 0x1001..0x1020 {
        probe.set_register(number, 0xdead_0000 + number);
    }
    probe.set_register(0x1000, 9);
    for number in 0x1001..0x1020 {
        assert_eq!(probe.register(number), 0xdead_0000 + number);
    }
    assert_eq!(probe.register(0x1000), 0);
    assert_eq!(probe.register(0x7b1), RAM_BASE);
    assert_eq!(probe.register(0x301), 0x4000_1105);
    probe.set_register(0x340, 0x55);
    assert_eq!(probe.register(0x340), 0x55);
    assert_eq!(probe.error(), 0);
}

#[test]
fn commands_that_cannot_be_done_say_why() {
    let mut probe = Probe::new(&[STAY]);
    probe.register(0x1001);
    assert_eq!(probe.error(), 4, "the hart runs");
    probe.halt();
    probe.write(0x17, 3 << 20 | 1 << 17 | 0x1001);
    assert_eq!(probe.error(), 2, "64 bits");
    probe.write(0x17, 2 << 24);
    assert_eq!(probe.error(), 2, "access to memory");
    probe.register(0x1020);
    assert_eq!(probe.error(), 3, "no floating point");
    // While an error stands nothing is done.
    probe.register(0x7ff);
    probe.write(0x04, 1);
    probe.write(0x17, 2 << 20 | 1 << 17 | 1 << 16 | 0x1001);
    assert_eq!(probe.error(), 3);
    assert_eq!(probe.register(0x1001), 0);
}

#[test]
fn the_program_buffer_ends_by_itself_and_tells_of_exceptions() {
    let mut probe = Probe::new(&[STAY]);
    probe.halt();
    probe.set_register(0x1001, 41);
    for index in 0..8 {
        probe.write(0x20 + index, if index == 7 { COUNT } else { NOP });
    }
    probe.write(0x17, 1 << 18);
    assert_eq!(probe.error(), 0);
    assert_eq!(probe.register(0x1001), 42);
    // lw x1, 0(x0): nothing is there.
    probe.write(0x20, 0x0000_2083);
    probe.write(0x17, 1 << 18);
    assert_eq!(probe.error(), 3);
    // An endless one is given up.
    probe.write(0x20, STAY);
    probe.write(0x17, 1 << 18);
    assert_eq!(probe.error(), 3);
    probe.write(0x20, EBREAK);
    probe.write(0x17, 1 << 18);
    assert_eq!(probe.error(), 0);
    assert_eq!(probe.register(0x7b1), RAM_BASE, "the program counter is where it was");
}

#[test]
fn accesses_to_data_start_the_command_again() {
    let mut probe = Probe::new(&[STAY]);
    probe.halt();
    probe.write(0x20, COUNT);
    probe.write(0x21, EBREAK);
    // x1 to data0, then the program.
    probe.write(0x17, 2 << 20 | 1 << 17 | 1 << 18 | 0x1001);
    probe.write(0x18, 1);
    let first: Vec<u32> = (0..4).map(|_| probe.read(0x04)).collect();
    assert_eq!(first, [0, 1, 2, 3]);
    probe.write(0x18, 0);
    assert_eq!(probe.read(0x04), 4);
    assert_eq!(probe.read(0x04), 4);
}

#[test]
fn the_system_bus_counts_on_and_knows_its_errors() {
    let mut probe = Probe::new(&[STAY]);
    // 32 bits, with autoincrement; the hart runs.
    probe.write(0x38, 2 << 17 | 1 << 16);
    probe.write(0x39, RAM_BASE + 0x100);
    for value in 1..=4 {
        probe.write(0x3c, 0x0101_0101 * value);
    }
    assert_eq!(probe.read(0x39), RAM_BASE + 0x110);
    // Bytes, read when the address is written and when data is taken.
    probe.write(0x38, 1 << 20 | 1 << 16 | 1 << 15);
    probe.write(0x39, RAM_BASE + 0x103);
    assert_eq!([probe.read(0x3c), probe.read(0x3c), probe.read(0x3c)], [1, 2, 2]);
    for (control, address, error) in [
        (2 << 17, RAM_BASE + 2, 3),
        (1 << 17, RAM_BASE + 1, 3),
        (2 << 17, 0, 2),
        (3 << 17, RAM_BASE, 4),
    ] {
        probe.write(0x38, 1 << 20 | control);
        probe.write(0x39, address);
        assert_eq!(probe.read(0x38) >> 12 & 7, error);
        // It stands, and nothing is done, until it is cleared.
        probe.write(0x3c, 9);
        assert_eq!(probe.read(0x38) >> 12 & 7, error);
        probe.write(0x38, 7 << 12);
        assert_eq!(probe.read(0x38) >> 12 & 7, 0);
    }
}

#[test]
fn resume_step_and_ebreak() {
    let mut probe = Probe::new(&[COUNT, COUNT, EBREAK, STAY]);
    probe.halt();
    probe.set_register(0x7b1, RAM_BASE);
    probe.set_register(0x1001, 0);
    // Step, and ebreak into debug mode.
    probe.set_register(0x7b0, 1 << 15 | 1 << 2);
    probe.write(0x10, 1 << 30 | 1);
    assert_eq!(probe.read(0x11) >> 16 & 3, 3, "it resumed");
    assert_eq!((probe.register(0x7b1), probe.register(0x1001)), (RAM_BASE + 4, 1));
    assert_eq!(probe.register(0x7b0) >> 6 & 7, 4);
    probe.set_register(0x7b0, 1 << 15);
    probe.write(0x10, 1 << 30 | 1);
    assert_eq!((probe.register(0x7b1), probe.register(0x1001)), (RAM_BASE + 8, 2));
    assert_eq!(probe.register(0x7b0) >> 6 & 7, 1);
}

#[test]
fn a_reset_shows_and_can_be_halted_out_of() {
    let mut probe = Probe::new(&[STAY]);
    assert_eq!(probe.read(0x11) >> 18 & 3, 0);
    probe.write(0x10, 1 << 1 | 1);
    assert_eq!(probe.read(0x11) >> 8 & 0xff, 0b11_0000, "unavailable while it is in reset");
    probe.write(0x10, 1 << 31 | 1);
    assert_eq!(probe.read(0x11) >> 18 & 3, 3);
    probe.write(0x10, 1 << 31 | 1 << 28 | 1);
    assert_eq!(probe.read(0x11) >> 18 & 3, 0);
    assert_eq!(probe.register(0x7b1), 0x2000_0000, "before the first instruction");
    // The hart alone, with a halt that was asked for before.
    probe.write(0x10, 1 << 3 | 1);
    probe.write(0x10, 1 << 29 | 1);
    probe.write(0x10, 1);
    assert_eq!(probe.register(0x7b0) >> 6 & 7, 5);
}
