//! The firmware's `memcpy`, carried out by the simulated card's core: every alignment of both ends,
//! and nothing is touched that is not its own.

use crate::Bench;
use crate::firmware::Program;
use anyhow::{Context, Result, ensure};
use sim_card::iss::{AccessFault, Bus, Hart, Width};
use std::ops::Range;

/// Where it returns to.
const BACK: u32 = 0xffff_f000;

/// Where the bytes are.
const FROM: u32 = 0x1_0000;
const TO: u32 = 0x2_0000;

/// Longest copy: that of the longest TLP.
const LONGEST: u32 = proxy_core::limits::TLP_BUFFER as u32;

/// Instructions beyond which it does not end any more.
const MOST: u64 = 100 * LONGEST as u64;

/// A function's code and two pieces of memory.
struct Memory {
    code: Vec<u8>,
    start: u32,
    from: Vec<u8>,
    to: Vec<u8>,
    /// What may be read: whole words.
    readable: Range<u32>,
    writable: Range<u32>,
}

impl Bus for Memory {
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        let end = at + width.bytes();
        if at < self.readable.start || end > self.readable.end {
            return Err(AccessFault);
        }
        let bytes = &self.from[(at - FROM) as usize..(end - FROM) as usize];
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        let end = at + width.bytes();
        if at < self.writable.start || end > self.writable.end {
            return Err(AccessFault);
        }
        let bytes = &mut self.to[(at - TO) as usize..(end - TO) as usize];
        bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        Ok(())
    }

    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        let at = at.checked_sub(self.start).ok_or(AccessFault)? as usize;
        let half = self.code.get(at..at + 2).ok_or(AccessFault)?;
        Ok(u16::from_le_bytes([half[0], half[1]]))
    }
}

impl Memory {
    /// Copies; how many instructions it took.
    fn copy(&mut self, from: u32, to: u32, length: u32) -> Result<u64> {
        let what = format!("{length} bytes from {from:#x} to {to:#x}");
        self.readable = from & !3..(from + length).next_multiple_of(4);
        self.writable = to..to + length;
        self.to.fill(0);
        let mut hart = Hart::new(self.start);
        for (register, value) in [(1, BACK), (10, to), (11, from), (12, length)] {
            hart.set_register(register, value);
        }
        while hart.pc() != BACK {
            ensure!(hart.pc() >= self.start, "{what}: a trap");
            ensure!(hart.retired() < MOST, "{what}: it does not end");
            hart.step(self);
        }
        let copied = &self.to[(to - TO) as usize..][..length as usize];
        ensure!(copied == &self.from[(from - FROM) as usize..][..length as usize], "{what}");
        ensure!(hart.register(10) == to, "{what}: what it gives");
        Ok(hart.retired())
    }
}

#[test]
fn copies_are_right_and_quick_however_their_ends_lie() -> Result<()> {
    let Some(bench) = Bench::new() else { return Ok(()) };
    let program = Program::new(std::fs::read(bench.firmware.join("fw-box"))?);
    let (start, code) = program.function("memcpy")?;
    let room = (LONGEST + 8) as usize;
    let from = (0..room).map(|at| (at * 167 % 251) as u8 + 1).collect();
    let (readable, writable) = (0..0, 0..0);
    let mut memory = Memory { code, start, from, to: vec![0; room], readable, writable };
    for length in (0..80).chain([255, 256, 264, 511, LONGEST]) {
        for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
            memory.copy(FROM + from, TO + to, length)?;
        }
    }
    // A write of 256 bytes: the one of the compiler takes 345, and 730 where the ends lie otherwise.
    // What is moved of a record takes 66 in it.
    for (from, length, bound) in [(0, 268, 180), (1, 268, 530), (0, 56, 50), (0, 12, 25)] {
        let took = memory.copy(FROM + from, TO, length).context("how many instructions")?;
        ensure!(took <= bound, "{length} bytes: {took} instructions of {bound}");
    }
    Ok(())
}
