//! What a model device does with another one of its host, through the switch: it writes, reads and
//! adds in a part of the other's memory that is its own. The driver looks at what was left there.
//!
//! The order that this rests on is that of what passes the switch. The driver's writes to the other
//! device come there before what its own device asks of that one when it is told to, and what its
//! device wrote there before what the driver asks of that one after the interrupt. So neither of
//! those requests has ID-based ordering, which would let it pass.
//!
//! What a device asked of another one before it was reset may be on its way to that one for as long
//! as that one takes nothing. Its next driver begins with a read of its part there: no request of
//! before comes behind that.

use super::model::ModelDriver;
use super::{Failure, Others, Question};
use crate::clock::may_have_given_up;
use crate::device::{self, Command, Job, PART, PARTS, part};
use crate::egress::Egress;
use crate::host::Asker;
use crate::host::memory;
use crate::host::{Purpose, first, port_name};
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::random::Random;
use proxy_core::time::Instant;
use tlp_codec::tlp::{AtomicOp, ByteEnables, CplStatus, Kind};

/// Where a transfer between devices stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The other device is asked for something, before anything else.
    Settling,
    /// Its interrupt is to come.
    Told,
    /// It came: what was left is to be read. Whether its device found something else than it should.
    Done { wrong: bool },
    /// It is being read.
    Asked,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    command: Command,
    since: Instant,
    /// The driver of the other device when it began; another one knows nothing of it.
    life: u32,
    step: Step,
}

/// What a transfer that failed leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Spoilt {
    #[default]
    Nothing,
    /// The device of this driver may still do what was asked of it.
    Device(u32),
    /// So may whoever is behind the port: the request's time was over, and it may be anywhere.
    Port,
}

/// Transfers with other devices, one with each.
#[derive(Debug, Default)]
pub(super) struct Peers {
    transfers: [Option<Transfer>; PARTS],
    spoilt: [Spoilt; PARTS],
    /// Devices, by their drivers, that have answered this driver: what its device had asked of them
    /// before it was reset was behind the switch and came before that.
    settled: [Option<u32>; PARTS],
    /// Of which it was looked at what they left.
    pub(super) checked: u64,
}

impl Peers {
    pub(super) fn is_idle(&self) -> bool {
        self.transfers.iter().all(Option::is_none)
    }
}

impl ModelDriver {
    /// Begins a transfer with another device. Whether there was room for it; where there is no other
    /// device it is done.
    pub(super) fn with_peer(
        &mut self,
        job: Job,
        random: &mut Random,
        out: &mut Egress<Purpose>,
        others: &Others,
    ) -> bool {
        let peers = &self.peers;
        let there = |port: &usize| {
            let other = others[*port].filter(|_| first(*port) != first(self.port));
            let spoilt = peers.spoilt[*port];
            other.is_some_and(|life| ![Spoilt::Port, Spoilt::Device(life)].contains(&spoilt))
        };
        let all: Vec<usize> = (0..PARTS).filter(there).collect();
        let free: Vec<usize> =
            all.iter().copied().filter(|port| self.peers.transfers[*port].is_none()).collect();
        if free.is_empty() || self.port >= PARTS {
            return all.is_empty() || self.port >= PARTS;
        }
        let target = free[random.below(free.len() as u64) as usize];
        let life = others[target].expect("looked at above");
        let length = random.between(1, PART);
        let at = match job {
            Job::Add => random.below(PART / 8) * 8,
            _ => random.below(PART - length + 1),
        };
        let buffer = memory::BUFFERS + target as u64;
        let command = Command {
            job,
            // What is written or added would pass what the driver writes before it.
            relaxed: job == Job::Read && random.chance(400_000),
            by_id: false,
            flushes: false,
            op: AtomicOp::FetchAdd,
            narrow: false,
            address: self.layout.window(target) + part(self.port) + at,
            length: if job == Job::Add { random.between(1, 8) as u32 } else { length as u32 },
            seed: if job == Job::Add { 0 } else { random.next() },
            interrupt: (memory::interrupt(self.port, buffer), buffer as u32),
        };
        let since = self.now;
        if self.peers.settled[target] != Some(life) {
            let step = Step::Settling;
            self.peers.transfers[target] = Some(Transfer { command, since, life, step });
            self.ask_for_part(out, target);
            return true;
        }
        self.peers.transfers[target] = Some(Transfer { command, since, life, step: Step::Told });
        // What is to be found there, or something else than what is to be left.
        let mut before = [0; PART as usize];
        match job {
            Job::Write => pattern::fill(!command.seed, 0, &mut before),
            Job::Read => {
                pattern::fill(command.seed, 0, &mut before[at as usize..][..length as usize]);
            }
            Job::Add => {}
        }
        let by_id = random.chance(400_000);
        self.write_to(out, (target, part(self.port)), &before, by_id);
        self.write_to(out, (self.port, device::COMMANDS), &command.emit(), by_id);
        true
    }

    /// The interrupt of a transfer with the device behind that port.
    pub(super) fn peer_interrupt(&mut self, target: usize, message: u32) -> Verdict {
        let place = self.peers.transfers.get_mut(target);
        let Some(transfer) = place.and_then(Option::as_mut).filter(|t| t.step == Step::Told) else {
            let what = format!(
                "an interrupt of a transfer with {} that nobody waits for",
                port_name(target)
            );
            return Err(Violation::new(1, what));
        };
        if message & device::FAILED != 0 {
            let Transfer { command, since, life, .. } = *transfer;
            self.peers.transfers[target] = None;
            let over = may_have_given_up(since, self.now);
            self.peers.spoilt[target] = if over { Spoilt::Port } else { Spoilt::Device(life) };
            let what = format!(
                "a transfer with the device of {} failed: {:?}",
                port_name(target),
                command.job
            );
            self.failure.get_or_insert(Failure { since, what });
            return Ok(());
        }
        transfer.step = Step::Done { wrong: message & device::WRONG != 0 };
        Ok(())
    }

    /// Reads what transfers left, of devices that are still in use.
    pub(super) fn look_at_peers(&mut self, out: &mut Egress<Purpose>, others: &Others) -> Verdict {
        for (target, other) in others.iter().enumerate() {
            let Some(transfer) = &mut self.peers.transfers[target] else { continue };
            let Step::Done { wrong } = transfer.step else { continue };
            if *other != Some(transfer.life) {
                self.peers.transfers[target] = None;
                continue;
            }
            if wrong {
                let Command { job, length, address, .. } = transfer.command;
                let what = format!(
                    "a device found wrong data in another one: {job:?} {length} at {address:#x}"
                );
                return Err(Violation::new(3, what));
            }
            transfer.step = Step::Asked;
            self.ask_for_part(out, target);
        }
        Ok(())
    }

    /// Reads what is in its device's part of another one's memory.
    fn ask_for_part(&mut self, out: &mut Egress<Purpose>, target: usize) {
        let length_dw = (PART / 4) as u16;
        let address = self.layout.window(target) + part(self.port);
        self.ask_of(out, (target, false), Question::Left { target }, |requester, tag| {
            Kind::MemRead {
                requester,
                tag,
                address,
                length_dw,
                enables: ByteEnables::all(length_dw),
                hint: None,
                locked: false,
            }
        });
    }

    /// What a transfer left is here.
    pub(super) fn left(
        &mut self,
        target: usize,
        done: &Completed<Asker>,
        payload: &[u8],
        others: &Others,
    ) -> Verdict {
        let Some(Transfer { command, life, step, .. }) = self.peers.transfers[target].take() else {
            return Err(Violation::new(3, "an answer about a transfer that is over"));
        };
        let the_same = others[target] == Some(life);
        if done.status != CplStatus::Success || done.doubtful || !the_same {
            return Ok(());
        }
        self.done += 1;
        if step == Step::Settling {
            self.peers.settled[target] = Some(life);
            return Ok(());
        }
        self.peers.checked += 1;
        let mut expected = [0; PART as usize];
        let at = (command.address - self.layout.window(target) - part(self.port)) as usize;
        match command.job {
            Job::Write => {
                pattern::fill(!command.seed, 0, &mut expected);
                pattern::fill(command.seed, 0, &mut expected[at..][..command.length as usize]);
            }
            Job::Read => {
                pattern::fill(command.seed, 0, &mut expected[at..][..command.length as usize]);
            }
            Job::Add => {
                expected[at..][..8].copy_from_slice(&u64::from(command.length).to_le_bytes());
            }
        }
        match payload.iter().zip(&expected).position(|(found, right)| found != right) {
            None if payload.len() == expected.len() => Ok(()),
            wrong => {
                let what = format!(
                    "after {:?} of {} bytes at {at}, byte {wrong:?} of the part of {}'s device in the \
                     device of {} is wrong",
                    command.job,
                    command.length,
                    port_name(self.port),
                    port_name(target)
                );
                Err(Violation::new(1, what))
            }
        }
    }
}
