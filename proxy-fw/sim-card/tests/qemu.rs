//! QEMU as the judge of the instruction-set simulator: the same programs, and the state before
//! every instruction compared.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use fastrand::Rng;
use sim_card::card::{Card, RAM_BASE};
use sim_card::iss::Bus;

const PROGRAMS: usize = 300;
const INSTRUCTIONS: usize = 40;

/// Where loads and stores go: x8 has it, which nothing else writes.
const DATA: u32 = RAM_BASE + 0x20_0000;
const POINTER: u32 = 8;

/// Register, pc first.
type State = [u32; 33];

fn emit(code: &mut Vec<u8>, word: u32) {
    code.extend(word.to_le_bytes());
}

fn load_constant(code: &mut Vec<u8>, rd: u32, value: u32) {
    let high = value.wrapping_add(0x800) & 0xffff_f000;
    emit(code, high | rd << 7 | 0x37);
    emit(code, value.wrapping_sub(high) << 20 | rd << 15 | rd << 7 | 0x13);
}

/// A register that may be written.
fn target(rng: &mut Rng) -> u32 {
    loop {
        let register = rng.u32(0..32);
        if register != POINTER {
            return register;
        }
    }
}

fn register_register(rng: &mut Rng) -> u32 {
    let functions = [(0, 8), (1, 8), (0x20, 1)];
    let (funct7, kinds) = functions[rng.usize(0..3)];
    let funct3 = if funct7 == 0x20 { [0, 5][rng.usize(0..2)] } else { rng.u32(0..kinds) };
    funct7 << 25
        | rng.u32(0..32) << 20
        | rng.u32(0..32) << 15
        | funct3 << 12
        | target(rng) << 7
        | 0x33
}

fn immediate(rng: &mut Rng) -> u32 {
    let funct3 = rng.u32(0..8);
    let imm = match funct3 {
        1 => rng.u32(0..32),
        5 => rng.u32(0..32) | if rng.bool() { 0x400 } else { 0 },
        _ => rng.u32(0..4096),
    };
    imm << 20 | rng.u32(0..32) << 15 | funct3 << 12 | target(rng) << 7 | 0x13
}

/// Loads and stores around the pointer, misaligned ones, too.
fn memory(rng: &mut Rng) -> u32 {
    let offset = rng.u32(0..2048);
    if rng.bool() {
        let funct3 = [0, 1, 2, 4, 5][rng.usize(0..5)];
        return offset << 20 | POINTER << 15 | funct3 << 12 | target(rng) << 7 | 0x03;
    }
    (offset >> 5) << 25
        | rng.u32(0..32) << 20
        | POINTER << 15
        | rng.u32(0..3) << 12
        | (offset & 0x1f) << 7
        | 0x23
}

fn atomic(rng: &mut Rng) -> u32 {
    let operation = [0, 1, 4, 8, 0xc, 0x10, 0x14, 0x18, 0x1c][rng.usize(0..9)];
    operation << 27 | rng.u32(0..32) << 20 | POINTER << 15 | 2 << 12 | target(rng) << 7 | 0x2f
}

/// A branch over the next instruction, which has 4 bytes.
fn branch(rng: &mut Rng) -> u32 {
    let funct3 = [0, 1, 4, 5, 6, 7][rng.usize(0..6)];
    rng.u32(0..32) << 20 | rng.u32(0..32) << 15 | funct3 << 12 | 4 << 8 | 0x63
}

/// mscratch by every instruction for control and status registers.
fn scratch(rng: &mut Rng) -> u32 {
    let funct3 = [1, 2, 3, 5, 6, 7][rng.usize(0..6)];
    0x340 << 20 | rng.u32(0..32) << 15 | funct3 << 12 | target(rng) << 7 | 0x73
}

/// A compressed instruction that computes, and does not write the pointer.
fn compressed(rng: &mut Rng) -> u16 {
    loop {
        let half = rng.u16(..);
        let Some(expanded) = sim_card::iss::expand(half) else { continue };
        let computes = matches!(expanded & 0x7f, 0x13 | 0x33 | 0x37);
        if computes && half & 3 != 3 && expanded >> 7 & 0x1f != POINTER {
            return half;
        }
    }
}

fn program(rng: &mut Rng, code: &mut Vec<u8>) {
    const CORNERS: [u32; 5] = [0, 1, u32::MAX, 1 << 31, i32::MAX as u32];
    for register in (1..32).filter(|register| *register != POINTER) {
        let value = if rng.u8(0..4) == 0 { CORNERS[rng.usize(0..5)] } else { rng.u32(..) };
        load_constant(code, register, value);
    }
    load_constant(code, POINTER, DATA + 4 * rng.u32(0..64));
    for _ in 0..INSTRUCTIONS {
        let word = match rng.u8(0..12) {
            0..4 => register_register(rng),
            4..6 => immediate(rng),
            6 => memory(rng),
            // In between, a store of the hart's own may end the reservation or not.
            7 if rng.bool() => {
                emit(code, 2 << 27 | POINTER << 15 | 2 << 12 | target(rng) << 7 | 0x2f);
                3 << 27 | atomic(rng) & 0x07ff_ffff
            }
            7 => atomic(rng),
            8 => scratch(rng),
            9 => {
                emit(code, branch(rng));
                register_register(rng)
            }
            10 => rng.u32(..) & 0xffff_f000 | target(rng) << 7 | [0x37, 0x17][rng.usize(0..2)],
            _ => {
                code.extend(compressed(rng).to_le_bytes());
                continue;
            }
        };
        emit(code, word);
    }
}

/// All programs, one behind the other, and an end by the test finisher.
fn image(seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut code = Vec::new();
    for _ in 0..PROGRAMS {
        program(&mut rng, &mut code);
    }
    load_constant(&mut code, 5, 0x10_0000);
    load_constant(&mut code, 6, 0x5555);
    emit(&mut code, 6 << 20 | 5 << 15 | 2 << 12 | 0x23);
    emit(&mut code, 0x6f);
    code
}

/// The states that QEMU logs: a line with pc, and lines with four registers each.
fn states(log: &str) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |word: &str| u32::from_str_radix(word, 16).ok();
        match words[..] {
            ["pc", pc] => {
                let mut state = [0; 33];
                state[32] = hex(pc).expect("a number");
                states.push(state);
            }
            // x0/zero 00000000 x1/ra 00000000 …
            [name, _, ..] if name.starts_with('x') && name.contains('/') => {
                let state = states.last_mut().expect("registers come behind the pc");
                for pair in words.chunks_exact(2) {
                    let number = pair[0][1..].split('/').next().expect("a name");
                    let number: usize = number.parse().expect("a number");
                    state[number] = hex(pair[1]).expect("a number");
                }
            }
            _ => {}
        }
    }
    states
}

fn state(card: &Card) -> State {
    let mut state =
        std::array::from_fn(|index| if index < 32 { card.hart.register(index) } else { 0 });
    state[32] = card.hart.pc();
    state
}

/// What is executed next; of a compressed one the upper half is what follows.
fn instruction(card: &mut Card) -> u32 {
    let pc = card.hart.pc();
    let mut half = |at| card.board.fetch(at).expect("the program is there");
    u32::from(half(pc + 2)) << 16 | u32::from(half(pc))
}

fn differences(ours: &State, theirs: &State) -> String {
    let mut all = String::new();
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        if ours != theirs {
            let name = if index == 32 { "pc".into() } else { format!("x{index}") };
            write!(all, " {name}: {ours:#010x}, QEMU {theirs:#010x};").expect("it is a string");
        }
    }
    all
}

#[test]
fn the_simulator_does_what_qemu_does() {
    let dir = tempfile::tempdir().expect("there is a folder for temporary files");
    let (path, log) = (dir.path().join("image"), dir.path().join("log"));
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let code = image(seed);
    std::fs::write(&path, &code).expect("it can be written");
    let run = Command::new("timeout")
        .args(["300", "qemu-system-riscv32", "-M", "virt", "-display", "none", "-serial", "none"])
        .args(["-monitor", "none", "-bios"])
        .arg(&path)
        .args(["-singlestep", "-d", "cpu,nochain", "-D"])
        .arg(&log)
        .stdin(Stdio::null())
        .status();
    match run {
        Ok(status) if status.code() == Some(127) => {
            eprintln!("SKIPPED: no qemu-system-riscv32 (Debian: apt-get install qemu-system-misc)");
            return;
        }
        Ok(status) => assert!(status.success(), "QEMU ended with {status}"),
        Err(error) => panic!("cannot run timeout: {error}"),
    }
    let all = states(&std::fs::read_to_string(&log).expect("QEMU wrote it"));
    let begin = all.iter().position(|state| state[32] == RAM_BASE).expect("it began there");
    let mut card = Card::new();
    card.load(RAM_BASE, &code).expect("it fits");
    card.hart.set_pc(RAM_BASE);
    for (register, value) in all[begin][..32].iter().enumerate() {
        card.hart.set_register(register, *value);
    }
    let (mut compared, mut word) = (0, 0);
    for theirs in &all[begin..] {
        let ours = state(&card);
        assert!(
            ours == *theirs,
            "seed {seed}, behind instruction {compared}, {word:#010x}:{}",
            differences(&ours, theirs)
        );
        word = instruction(&mut card);
        card.hart.step(&mut card.board);
        compared += 1;
    }
    println!("{compared} instructions alike");
    assert!(compared > PROGRAMS * INSTRUCTIONS, "only {compared} instructions were compared");
}
