//! Sanitize (NVM Express 1.4 sections 5.24 and 8.15): block erase of everything that the controller
//! has. It goes on whatever resets come, and nothing is read or written meanwhile.

use super::Nvme;
use super::command::SANITIZE;
use super::entry::Sqe;
use super::image::{ImageOp, Zeroing};
use super::status::Status;
use std::io;

const EXIT_FAILURE: u32 = 1;
const BLOCK_ERASE: u32 = 2;

/// The last sanitize operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// There was none.
    #[default]
    Never,
    /// It goes on: so many bytes are done, and of so many namespaces it is not told yet.
    Running { done: u64, outstanding: usize, failed: bool },
    /// It ended well.
    Done,
    /// It did not.
    Failed,
}

/// The last sanitize operation, and doubleword 10 of the command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sanitize {
    pub(super) state: State,
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
            State::Never | State::Done => Ok(()),
            State::Running { .. } => Err(Status::SANITIZE_IN_PROGRESS),
            State::Failed => Err(Status::SANITIZE_FAILED),
        }
    }

    /// Whether it goes on.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Sanitize Status (section 5.14.1.16.2), of a controller with so many bytes.
    pub(super) fn page(&self, capacity: u64) -> Vec<u8> {
        let (progress, status) = match self.state {
            State::Never => (u16::MAX, 0),
            State::Running { done, .. } => ((done * 65536 / capacity.max(1)).min(65535) as u16, 2),
            State::Done => (u16::MAX, 1),
            State::Failed => (u16::MAX, 3),
        };
        let mut page = vec![0; 512];
        page[..2].copy_from_slice(&progress.to_le_bytes());
        page[2] = status;
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

    pub(super) fn sanitize(&mut self, sqe: &Sqe) -> Result<(), Status> {
        if self.sanitize.is_running() {
            return Err(Status::SANITIZE_IN_PROGRESS);
        }
        match sqe.dword(10) & 0b111 {
            EXIT_FAILURE => {
                if self.sanitize.state == State::Failed {
                    self.sanitize.state = State::Never;
                }
                return Ok(());
            }
            BLOCK_ERASE => {}
            _ => return Err(Status::INVALID_FIELD),
        }
        self.namespaces.iter().try_for_each(super::namespace::Namespace::check_writable)?;
        self.sanitize.command = sqe.dword(10);
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
        self.sanitize.state = State::Running { done: 0, outstanding, failed };
        self.sanitize_goes_on();
    }

    /// A namespace is erased, or could not be.
    pub(super) fn sanitized(&mut self, namespace: usize, result: io::Result<()>) {
        let bytes = self.namespaces[namespace].image.size();
        if let Err(error) = &result {
            tracing::warn!("NVMe image of namespace {}: sanitize: {error}", namespace + 1);
        }
        if let State::Running { done, outstanding, failed } = &mut self.sanitize.state {
            *done += bytes;
            *outstanding -= 1;
            *failed |= result.is_err();
        }
        self.sanitize_goes_on();
    }

    fn sanitize_goes_on(&mut self) {
        if let State::Running { outstanding: 0, failed, .. } = self.sanitize.state {
            self.sanitize.state = if failed { State::Failed } else { State::Done };
        }
    }
}
