//! Sanitize (NVM Express 1.4 sections 5.24 and 8.15): block erase of everything that the controller
//! has. It goes on whatever resets come, and nothing is read or written meanwhile.

use super::Nvme;
use super::command::SANITIZE;
use super::entry::Sqe;
use super::events::Event;
use super::image::{ImageOp, Zeroing};
use super::status::Status;
use std::io;

const EXIT_FAILURE: u32 = 1;
const BLOCK_ERASE: u32 = 2;
/// Allow Unrestricted Sanitize Exit: a failure may be left without erasing after all.
const ALLOW_EXIT: u32 = 1 << 3;
/// No-Deallocate After Sanitize.
const NO_DEALLOCATE: u32 = 1 << 9;

/// Sanitize Capabilities: block erase. After it nothing more is done to the media, and storage is
/// always given up (No-Deallocate Inhibited).
pub(super) const CAPABILITIES: u32 = 1 << 1 | 1 << 29 | 0b01 << 30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Idle,
    /// It goes on: of so many namespaces it is not told yet.
    Running { outstanding: usize, failed: bool },
    /// It failed, and there may be blocks of before.
    Failed,
}

/// What came of the last operation, as the log page has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Never = 0,
    Done = 1,
    Running = 2,
    Failed = 3,
}

/// The last sanitize operation, and doubleword 10 of the command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sanitize {
    state: State,
    last: Last,
    command: u32,
}

impl Sanitize {
    /// Whether what reads and changes blocks is taken.
    ///
    /// # Errors
    ///
    /// Sanitize In Progress, Sanitize Failed.
    pub(super) fn check(&self) -> Result<(), Status> {
        match self.state {
            State::Idle => Ok(()),
            State::Running { .. } => Err(Status::SANITIZE_IN_PROGRESS),
            State::Failed => Err(Status::SANITIZE_FAILED),
        }
    }

    /// Whether it goes on.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Sanitize Status (section 5.14.1.16.2), of a controller with so many bytes, so many of
    /// which are still to be erased.
    pub(super) fn page(&self, capacity: u64, left: u64) -> Vec<u8> {
        // Together they may have more bytes than 64 bits have room for 65536 times.
        let [all, done] = [capacity.max(1), capacity.saturating_sub(left)].map(u128::from);
        let progress = match self.state {
            State::Running { .. } => (done * 65536 / all).min(65535) as u16,
            State::Idle | State::Failed => u16::MAX,
        };
        let mut page = vec![0; 512];
        page[..2].copy_from_slice(&progress.to_le_bytes());
        page[2] = self.last as u8;
        page[4..8].copy_from_slice(&self.command.to_le_bytes());
        // How long it takes, nobody says.
        page[8..32].fill(0xff);
        page
    }
}

impl Nvme {
    pub(super) fn capacity(&self) -> u64 {
        self.namespaces.iter().map(|namespace| namespace.image.size()).sum()
    }

    /// Bytes that a sanitize operation has still to erase.
    pub(super) fn left_to_sanitize(&self) -> u64 {
        self.namespaces.iter().map(|namespace| namespace.image.left(SANITIZE)).sum()
    }

    pub(super) fn sanitize(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let (command, sanitize) = (sqe.dword(10), &mut self.sanitize);
        if sanitize.is_running() {
            return Err(Status::SANITIZE_IN_PROGRESS);
        }
        // Whoever began the one that failed wanted no block of before to be read again.
        let restricted = sanitize.state == State::Failed && sanitize.command & ALLOW_EXIT == 0;
        match command & 0b111 {
            EXIT_FAILURE if restricted => return Err(Status::SANITIZE_FAILED),
            EXIT_FAILURE => {
                sanitize.state = State::Idle;
                return Ok(());
            }
            BLOCK_ERASE if command & NO_DEALLOCATE != 0 => return Err(Status::INVALID_FIELD),
            BLOCK_ERASE if restricted && command & ALLOW_EXIT != 0 => {
                return Err(Status::SANITIZE_FAILED);
            }
            BLOCK_ERASE => {}
            _ => return Err(Status::INVALID_FIELD),
        }
        self.namespaces.iter().try_for_each(super::namespace::Namespace::check_writable)?;
        self.sanitize.command = command;
        self.events.forget(Event::Sanitized);
        self.erase_blocks();
        Ok(())
    }

    /// Begins, or begins anew what a reset gave up.
    pub(super) fn erase_blocks(&mut self) {
        let (mut outstanding, mut failed) = (0, false);
        for namespace in &mut self.namespaces {
            let op = ImageOp::zero(0..namespace.image.size(), Zeroing::Deallocated, true);
            match namespace.start(SANITIZE, op) {
                Ok(()) => outstanding += 1,
                Err(_) => failed = true,
            }
        }
        self.sanitize.state = State::Running { outstanding, failed };
        self.sanitize.last = Last::Running;
        self.sanitize_goes_on();
    }

    /// A namespace is erased, or could not be.
    pub(super) fn sanitized(&mut self, namespace: usize, result: io::Result<()>) {
        let namespace = &mut self.namespaces[namespace];
        if let Err(error) = &result {
            namespace.failed("the erasing of a sanitize operation", error);
        } else {
            // What was lost of what is erased now is nobody's loss any more.
            namespace.image.take_loss();
        }
        if let State::Running { outstanding, failed } = &mut self.sanitize.state {
            *outstanding -= 1;
            *failed |= result.is_err();
        }
        self.sanitize_goes_on();
    }

    fn sanitize_goes_on(&mut self) {
        if let State::Running { outstanding: 0, failed } = self.sanitize.state {
            let (state, last) =
                if failed { (State::Failed, Last::Failed) } else { (State::Idle, Last::Done) };
            (self.sanitize.state, self.sanitize.last) = (state, last);
            self.raise_event(Event::Sanitized);
        }
    }
}
