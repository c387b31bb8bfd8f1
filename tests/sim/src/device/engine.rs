//! The DMA engine of the model device: commands that a driver writes, transfers, and the
//! interrupts that come after them.

use super::{Errand, Mark, Model};
use crate::host::layout::is_registers;
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AtomicOp, Attributes, ByteEnables, CplStatus, Kind, Repr};

/// Bytes of a command, as the driver writes it at [`super::COMMANDS`].
pub(crate) const COMMAND: usize = 40;

/// In an interrupt's message: the transfer ended with an answer that was no success.
pub(crate) const FAILED: u32 = 1 << 31;

/// The same: what was read of another device is not what was expected. Whether it could be, its
/// driver knows: that one may have been reset.
pub(crate) const WRONG: u32 = 1 << 30;

/// Requests of one transfer that are outstanding at a time.
const READS: usize = 8;

/// Transfers that go on at a time; further ones wait in order.
const TRANSFERS: usize = 4;

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Write the pattern of the seed to host memory.
    Write,
    /// Read host memory and find the pattern of the seed there.
    Read,
    /// Add 1 to a counter in host memory, so many times.
    Add,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) job: Job,
    /// Data may pass what was written before it.
    pub(crate) relaxed: bool,
    /// ID-based ordering, of the interrupt, too: it is of the same requester as the data.
    pub(crate) by_id: bool,
    /// Of what is written a read of no bytes says that it is there, and nothing else does.
    pub(crate) flushes: bool,
    /// Which atomic it is, and whether of 4 bytes and not 8; each leaves one more than it found.
    pub(crate) op: AtomicOp,
    pub(crate) narrow: bool,
    pub(crate) address: u64,
    /// Bytes, or how many times.
    pub(crate) length: u32,
    pub(crate) seed: u64,
    /// Where and what the interrupt is.
    pub(crate) interrupt: (u64, u32),
}

impl Command {
    pub(crate) fn emit(&self) -> [u8; COMMAND] {
        let mut bytes = [0; COMMAND];
        bytes[0] = self.job as u8;
        bytes[1] = u8::from(self.relaxed)
            | u8::from(self.by_id) << 1
            | u8::from(self.flushes) << 2
            | u8::from(self.narrow) << 3;
        bytes[2] = self.op as u8;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.interrupt.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.interrupt.1.to_le_bytes());
        bytes
    }

    fn attributes(&self) -> Attributes {
        let (relaxed_ordering, id_based_ordering) = (self.relaxed, self.by_id);
        Attributes { relaxed_ordering, id_based_ordering, ..Attributes::default() }
    }

    fn parse(bytes: &[u8; COMMAND]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let job = match bytes[0] {
            0 => Job::Write,
            1 => Job::Read,
            2 => Job::Add,
            _ => return None,
        };
        Some(Self {
            job,
            relaxed: bytes[1] & 1 != 0,
            by_id: bytes[1] & 2 != 0,
            flushes: bytes[1] & 4 != 0,
            op: [AtomicOp::FetchAdd, AtomicOp::Swap, AtomicOp::Cas][usize::from(bytes[2] % 3)],
            narrow: bytes[1] & 8 != 0,
            address: word(8),
            length: (word(0) >> 32) as u32,
            seed: word(16),
            interrupt: (word(24), word(32) as u32),
        })
    }
}

/// A transfer that goes on.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    number: u64,
    command: Command,
    /// Bytes or additions that were asked for, and that are done.
    asked: u32,
    done: u32,
    /// Of all its TLPs.
    class: u8,
    outstanding: usize,
    /// Another device's memory did not hold what was expected.
    wrong: bool,
}

/// What one of the device's own requests is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    transfer: u64,
    at: u32,
}

#[derive(Debug, Default)]
pub(super) struct Engine {
    waiting: VecDeque<Command>,
    transfers: Vec<Transfer>,
    begun: u64,
    /// Failed while it might not say so: the interrupts are still to be sent.
    failed: Vec<(Command, u8)>,
}

impl Part {
    /// Of a device that knows by itself what its requests are for.
    pub(crate) const NONE: Self = Self { transfer: 0, at: 0 };
}

impl Engine {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.transfers.is_empty() && self.failed.is_empty()
    }

    /// Commands that are not done.
    pub(super) fn going(&self) -> u32 {
        (self.waiting.len() + self.transfers.len() + self.failed.len()) as u32
    }
}

impl Model {
    /// The driver wrote a command.
    pub(super) fn command(&mut self, bytes: &[u8]) {
        if let Some(command) = bytes.first_chunk().and_then(Command::parse) {
            self.engine.waiting.push_back(command);
        }
    }

    /// Goes on with what it was told to do.
    pub(crate) fn work(&mut self) {
        if self.engine.is_idle() || !self.config.masters() {
            return;
        }
        for (command, class) in std::mem::take(&mut self.engine.failed) {
            self.interrupt(command, class);
        }
        while self.engine.transfers.len() < TRANSFERS
            && let Some(command) = self.engine.waiting.pop_front()
        {
            self.engine.begun += 1;
            let number = self.engine.begun;
            let class = self.dresser.class();
            let transfer = Transfer {
                number,
                command,
                asked: 0,
                done: 0,
                class,
                outstanding: 0,
                wrong: false,
            };
            self.engine.transfers.push(transfer);
        }
        let mut at = 0;
        while at < self.engine.transfers.len() {
            let mut transfer = self.engine.transfers[at];
            self.go_on(&mut transfer);
            self.engine.transfers[at] = transfer;
            let flushing = transfer.command.flushes && transfer.outstanding > 0;
            if transfer.done >= transfer.command.length && !flushing {
                let Command { interrupt: (address, message), .. } = transfer.command;
                let message = message | if transfer.wrong { WRONG } else { 0 };
                let command = Command { interrupt: (address, message), ..transfer.command };
                self.interrupt(command, transfer.class);
                self.engine.transfers.remove(at);
            } else {
                at += 1;
            }
        }
        self.config.set_pending(self.end.requests.live() > 0);
    }

    fn go_on(&mut self, transfer: &mut Transfer) {
        match transfer.command.job {
            Job::Write if transfer.done == 0 => {
                self.write_all(transfer);
                if transfer.command.flushes {
                    self.flush(transfer);
                }
            }
            Job::Write => {}
            Job::Read => {
                while transfer.asked < transfer.command.length && transfer.outstanding < READS {
                    self.read_next(transfer);
                }
            }
            Job::Add => {
                if transfer.outstanding == 0 && transfer.asked < transfer.command.length {
                    self.add(transfer);
                }
            }
        }
    }

    /// Length of the next piece: no further than its size, and not across 4 KB.
    fn piece(transfer: &Transfer, most: usize) -> (u64, usize) {
        let address = transfer.command.address + u64::from(transfer.asked);
        let left = (transfer.command.length - transfer.asked) as usize;
        // A piece that does not begin at a doubleword takes one more of them.
        let room = most - (address & 3) as usize;
        (address, left.min(room).min(4096 - (address & 4095) as usize))
    }

    fn write_all(&mut self, transfer: &mut Transfer) {
        let mut data = [0; 4096];
        while transfer.asked < transfer.command.length {
            let (address, length) = Self::piece(transfer, self.config.max_payload());
            let (enables, dwords) = ByteEnables::for_range(address, length);
            let front = (address & 3) as usize;
            let bytes = &mut data[..usize::from(dwords) * 4];
            pattern::fill(
                transfer.command.seed,
                transfer.asked as usize,
                &mut bytes[front..front + length],
            );
            let kind = Kind::MemWrite {
                requester: Bdf::from_bits(self.id),
                tag: Tag::new(0).expect("a tag"),
                address: address & !3,
                enables,
                hint: None,
                data: bytes,
            };
            let mut repr = Repr::new(kind);
            repr.attributes = transfer.command.attributes();
            self.dresser.request(&mut repr, transfer.class);
            self.end.out.push(&repr, Mark::Own);
            transfer.asked += length as u32;
            transfer.done += length as u32;
        }
    }

    fn read_next(&mut self, transfer: &mut Transfer) {
        let (address, length) = Self::piece(transfer, self.config.max_read());
        self.ask_for(transfer, address, ByteEnables::for_range(address, length));
        transfer.asked += length as u32;
    }

    /// A read of no bytes, which passes nothing that is posted, and so is not answered before that is
    /// there (PCIe 5.0 section 2.2.5).
    fn flush(&mut self, transfer: &mut Transfer) {
        let nothing = (ByteEnables { first: 0, last: 0 }, 1);
        self.ask_for(transfer, transfer.command.address, nothing);
    }

    /// Sends a read, of so many doublewords.
    fn ask_for(
        &mut self,
        transfer: &mut Transfer,
        address: u64,
        (enables, length_dw): (ByteEnables, u16),
    ) {
        let kind = Kind::MemRead {
            requester: Bdf::from_bits(self.id),
            // It is chosen when its proxy takes it.
            tag: Tag::new(0).expect("a tag"),
            address: address & !3,
            length_dw,
            enables,
            hint: None,
            locked: false,
        };
        let mut repr = Repr::new(kind);
        repr.attributes = transfer.command.attributes();
        self.dresser.request(&mut repr, transfer.class);
        let part = Part { transfer: transfer.number, at: transfer.asked };
        self.end.out.push(&repr, Mark::Asks(part));
        transfer.outstanding += 1;
    }

    fn add(&mut self, transfer: &mut Transfer) {
        let tag = Tag::new(0).expect("a tag");
        let Command { op, narrow, seed, .. } = transfer.command;
        let found = seed + u64::from(transfer.asked);
        let operands = match op {
            AtomicOp::FetchAdd => [1, 0],
            AtomicOp::Swap => [found + 1, 0],
            AtomicOp::Cas => [found, found + 1],
        };
        let width = if narrow { 4 } else { 8 };
        let count = if op == AtomicOp::Cas { 2 } else { 1 };
        let mut data = [0; 16];
        for (place, operand) in data.chunks_exact_mut(width).zip(&operands[..count]) {
            place.copy_from_slice(&operand.to_le_bytes()[..width]);
        }
        let kind = Kind::Atomic {
            op,
            requester: Bdf::from_bits(self.id),
            tag,
            address: transfer.command.address,
            hint: None,
            data: &data[..width * count],
        };
        let part = Part { transfer: transfer.number, at: transfer.asked };
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = transfer.command.by_id;
        self.dresser.request(&mut repr, transfer.class);
        self.end.out.push(&repr, Mark::Asks(part));
        transfer.asked += 1;
        transfer.outstanding += 1;
    }

    /// The interrupt, which may not pass the data: a posted write without relaxed ordering, or of what
    /// was flushed with it.
    fn interrupt(&mut self, command: Command, class: u8) {
        let (address, message) = command.interrupt;
        let flushed = command.flushes && message & FAILED == 0;
        let kind = Kind::MemWrite {
            requester: Bdf::from_bits(self.id),
            tag: Tag::new(0).expect("a tag"),
            address,
            enables: ByteEnables::all(1),
            hint: None,
            data: &message.to_le_bytes(),
        };
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = command.by_id;
        repr.attributes.relaxed_ordering = flushed;
        self.dresser.plain(&mut repr, class);
        self.end.out.push(&repr, Mark::Own);
    }

    /// An answer to one of its own requests. What it holds must be what the driver put there.
    pub(super) fn answered(&mut self, done: &Completed<Errand>, payload: &[u8]) -> Verdict {
        let Part { transfer, at } = done.asked.purpose.part;
        let place = self.engine.transfers.iter().position(|t| t.number == transfer);
        let Some(place) = place else { return Ok(()) };
        let Transfer { command, class, .. } = self.engine.transfers[place];
        if done.status != CplStatus::Success {
            self.engine.transfers.remove(place);
            let (address, message) = command.interrupt;
            let interrupt = (address, message | FAILED);
            let command = Command { interrupt, ..command };
            if self.config.may_ask() {
                self.interrupt(command, class);
            } else {
                self.engine.failed.push((command, class));
            }
            return Ok(());
        }
        let of_peer = is_registers(command.address);
        let going = &mut self.engine.transfers[place];
        match command.job {
            Job::Read => {
                // The last doubleword may hold bytes that were not asked for.
                let asked = done.bytes.expect("a read");
                let data = &payload[done.skip..][..asked];
                let from = at as usize + done.offset;
                let wrong = pattern::differs(command.seed, from, data).filter(|_| !done.doubtful);
                going.wrong |= wrong.is_some() && of_peer;
                if let Some(wrong) = wrong.filter(|_| !of_peer) {
                    let what = format!(
                        "a device read wrong data: byte {} of {} from {:#x}, seed {:#x}",
                        from + wrong,
                        command.length,
                        command.address,
                        command.seed
                    );
                    return Err(Violation::new(3, what));
                }
                going.done += data.len() as u32;
            }
            Job::Add => {
                let old = payload.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                let wrong = old != command.seed + u64::from(at) && !done.doubtful;
                going.wrong |= wrong && of_peer;
                if wrong && !of_peer {
                    let what = format!(
                        "a device's atomic number {at} found {old}, not {}",
                        command.seed + u64::from(at)
                    );
                    return Err(Violation::new(3, what));
                }
                going.done += 1;
            }
            Job::Write => {}
        }
        going.outstanding -= usize::from(done.last);
        Ok(())
    }
}
