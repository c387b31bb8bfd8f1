//! What commands wait for at images, and when the images are asked for it.

use super::Nvme;
use super::command::{Commands, Outcome, SANITIZE, SHUTDOWN, State};
use super::entry::Sqe;
use super::image::{Ended, ImageOp};
use super::io::{FLUSH, WRITE};
use super::status::Status;
use crate::endpoint::Port;
use std::time::Duration;

/// When the images are asked first whether something has ended, after it was started or after
/// something else has.
const FIRST_LOOK: Duration = Duration::from_micros(2);
/// Each time they are asked in vain, it takes twice as long until they are asked again: at most this.
pub(super) const LONGEST_LOOK: Duration = Duration::from_micros(200);

/// What has ended and is gone on with in one look: 128 KB are compared for each at most.
const ENDED_A_LOOK: usize = 8;

/// When the images are asked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    pause: Duration,
    at: Option<Duration>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { pause: FIRST_LOOK, at: None }
    }
}

impl Looks {
    /// They were asked in vain. When they are asked next.
    fn next(&mut self, now: Duration) -> Duration {
        match self.at {
            // Something else than the time led to a look.
            Some(at) if now < at => return at,
            Some(_) => self.pause = (self.pause * 2).min(LONGEST_LOOK),
            None => {}
        }
        *self.at.insert(now + self.pause)
    }
}

impl Nvme {
    /// A command waits for its operations.
    pub(super) fn wait_for_image(&mut self, index: u16, state: State, count: u16) {
        self.commands.wait_for_image(index, state, count);
        self.looks = Looks::default();
    }

    /// Takes what the images have finished.
    pub(super) fn look_at_images(&mut self, port: &mut Port, now: Duration) {
        if !self.waits_for_images() {
            return;
        }
        let mut taken = 0;
        for namespace in 0..self.namespaces.len() {
            while taken < ENDED_A_LOOK
                && let Some(ended) = self.namespaces[namespace].image.finished()
            {
                taken += 1;
                self.looks = Looks::default();
                self.ended(port, now, namespace + 1, ended);
            }
        }
        if self.shutdown_wanted {
            self.continue_shutdown();
        }
        if self.waits_for_images() {
            let at = self.looks.next(now);
            self.wake(at);
        }
    }

    fn waits_for_images(&self) -> bool {
        self.shutdown_flushes > 0
            || self.shutdown_wanted
            || self.sanitize.is_running()
            || self.commands.has_slow()
    }

    fn ended(&mut self, port: &mut Port, now: Duration, nsid: usize, (id, result): Ended) {
        if id == SHUTDOWN {
            if let Err(error) = self.namespaces[nsid - 1].flushed(result) {
                self.namespaces[nsid - 1].failed("the flush of a shutdown", &error);
                // The shutdown is over all the same; there is no other way to say that power takes
                // something with it (NVM Express 1.4 section 3.1.6).
                self.registers.set_fatal();
            }
            self.shutdown_flushes -= 1;
            return self.continue_shutdown();
        }
        if id == SANITIZE {
            self.sanitized(nsid - 1, result.map(|_| ()));
            return self.deliver_events(port);
        }
        let (index, serial) = Commands::of_slow_id(id);
        let Some(command) = self.commands.find(index, serial) else { return };
        command.outstanding -= 1;
        let (sq, sqe, failed_before) = (command.sq, command.sqe, command.failed_flushes);
        let outcome = match (command.error, command.state) {
            (None, State::Transfer) => {
                let data = std::mem::take(&mut command.data);
                self.transferred(index, &sqe, &data, result)
            }
            (error, _) => {
                let tells_of_loss = matches!(error, None | Some(Status::FLUSH_FAULT));
                let namespace = &mut self.namespaces[nsid - 1];
                let (result, status) = match (sq != 0).then(|| sqe.opcode()) {
                    Some(FLUSH) if tells_of_loss => {
                        (namespace.flushed(result), Status::FLUSH_FAULT)
                    }
                    Some(WRITE) => (namespace.stored(result, failed_before), Status::WRITE_FAULT),
                    _ => (result.map(|_| ()), Status::WRITE_FAULT),
                };
                if let (Err(error), None) = (result, error) {
                    command.error = Some(status);
                    namespace.failed("a flush or zeroing", &error);
                }
                if command.outstanding > 0 {
                    return;
                }
                command.error.map_or(Ok(Outcome::Done(0)), Err)
            }
        };
        if sq == 0 {
            self.format_ended(&sqe, outcome.is_ok());
        }
        self.go_on(port, index, outcome);
        if let Some(deletion) = self.take_deleted(sq) {
            self.post_completions(port, now);
            self.complete(port, deletion, Ok(0));
        }
    }

    /// Starts to read or write a command's blocks. `data` is kept for when it has ended.
    pub(super) fn start_transfer(
        &mut self,
        index: u16,
        sqe: &Sqe,
        op: ImageOp,
        data: Vec<u8>,
    ) -> Result<Outcome, Status> {
        let id = self.id_at_image(index);
        self.namespace(sqe.nsid())?.start(id, op)?;
        Ok(Outcome::Transfer(data))
    }

    /// What images know a command's operations by.
    fn id_at_image(&mut self, index: u16) -> u64 {
        let serial = self.commands.get(index).map_or(0, |command| command.serial);
        Commands::slow_id(index, serial)
    }

    /// Starts an operation of a command in the images of some namespaces, one in each.
    pub(super) fn start_slow(
        &mut self,
        index: u16,
        chosen: &[u32],
        op: &ImageOp,
    ) -> Result<Outcome, Status> {
        let id = self.id_at_image(index);
        for (started, &nsid) in chosen.iter().enumerate() {
            let Err(status) = self.namespace(nsid)?.start(id, op.clone()) else { continue };
            if started == 0 {
                return Err(status);
            }
            // It fails when those that were started have ended.
            self.cancel_slow(index, status);
            return Ok(Outcome::Slow(started as u16));
        }
        Ok(Outcome::Slow(chosen.len() as u16))
    }

    /// Takes a command's operations back. It ends with that status when they have.
    pub(super) fn cancel_slow(&mut self, index: u16, status: Status) {
        let Some(command) = self.commands.get(index) else { return };
        command.error = Some(status);
        let id = Commands::slow_id(index, command.serial);
        for namespace in &mut self.namespaces {
            namespace.image.cancel(id);
        }
    }
}
