//! How commands advance: fetched, their PRP lists read, their data moved, carried out, completed.
//!
//! Each call does a bounded amount of work; what it cuts short is said by `work_at`.

use super::Nvme;
use super::at_image::LONGEST_LOOK;
use super::command::{Command, Outcome, Plan, State, Token};
use super::entry::{CQE_LEN, Completion, SQE_LEN, Sqe};
use super::events::Event;
use super::prp::{Next, Prps};
use super::status::Status;
use crate::endpoint::{DmaError, Port, ReadDone, Refused, Traffic};
use std::time::Duration;

/// Commands that one call carries out. Each reads or writes 128 KB of the image at most.
const COMMANDS_A_CALL: usize = 2;
/// Commands whose data waits for the link: beyond them no command is carried out. What images have been
/// asked for by then comes all the same.
const SENDING: usize = 8;
/// Bytes of DMA writes that wait in front of the link, beyond which no data is added.
const WRITE_BACKLOG: usize = 64 * 1024;

/// Starts the DMA reads that a command waits for, as far as there is room.
fn start_reads(port: &mut Port, index: u16, command: &mut Command) -> Result<(), Refused> {
    let serial = command.serial;
    if let Some(list) = command.list {
        let token = Token::List { index, serial };
        port.dma_read(list.address, list.len, token.bits(), Traffic::Control)?;
        command.list = None;
        return Ok(());
    }
    while let Some(&segment) = command.prps.segments().get(command.segment) {
        let token = Token::Data { index, serial, at: command.at as u32 };
        port.dma_read(segment.address, segment.len, token.bits(), Traffic::Data)?;
        command.segment += 1;
        command.at += segment.len;
        command.outstanding += 1;
    }
    Ok(())
}

impl Nvme {
    /// Does what can be done now.
    pub(super) fn advance(&mut self, port: &mut Port, now: Duration) {
        self.work_at = None;
        if !self.settle() {
            self.wake(now + LONGEST_LOOK);
        }
        if !self.registers.is_ready() {
            self.look_at_images(port, now);
            return;
        }
        self.continue_receiving(port);
        self.run_commands(port, now);
        self.look_at_images(port, now);
        self.continue_sending(port, now);
        self.post_completions(port, now);
        if self.registers.is_running() {
            self.fetch(port);
        }
        if !self.commands.runnable.is_empty() && self.commands.sending.len() < SENDING {
            self.wake(now);
        }
    }

    pub(super) fn wake(&mut self, at: Duration) {
        self.work_at = Some(self.work_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Starts fetches, one queue after the other.
    fn fetch(&mut self, port: &mut Port) {
        let burst = self.features.burst();
        for _ in 0..self.queues.count() {
            let Some(id) = self.queues.next_to_fetch() else { return };
            let room = self.commands.room(id as u16);
            let Some(sq) = self.queues.sq_mut(id).filter(|_| room > 0) else { continue };
            let (address, count) = sq.next_entries(room.min(burst));
            let len = usize::from(count) * SQE_LEN;
            let token = Token::Fetch { sq: id as u16 };
            if port.dma_read(address, len, token.bits(), Traffic::Control).is_err() {
                return;
            }
            sq.start_fetch(count);
            self.commands.start_fetch(id as u16, count);
        }
    }

    /// A DMA read ended.
    pub(super) fn dma_done(&mut self, port: &mut Port, now: Duration, done: ReadDone) {
        match Token::from_bits(done.token) {
            Some(Token::Fetch { sq }) => self.fetched(port, sq, done.result),
            Some(Token::List { index, serial }) => {
                self.list_came(port, (index, serial), done.result);
            }
            Some(Token::Data { index, serial, at }) => {
                self.data_came(port, (index, serial), at as usize, done.result);
            }
            None => {}
        }
        self.post_completions(port, now);
    }

    fn fetched(&mut self, port: &mut Port, id: u16, result: Result<Vec<u8>, DmaError>) {
        self.commands.cancel_fetch(id);
        let Some(sq) = self.queues.sq_mut(id.into()) else { return };
        sq.end_fetch(result.is_ok());
        match result {
            Ok(entries) => {
                for entry in entries.chunks_exact(SQE_LEN) {
                    self.start_command(port, id, Sqe::new(entry));
                }
            }
            // The host took the bus away; it may give it back.
            Err(DmaError::BusMasterOff) => {}
            // A controller that cannot read its queues cannot go on.
            Err(error) => {
                let what = format_args!("submission queue {id}: a read");
                self.unreadable.add(what, format_args!("{error:?}"));
                self.registers.set_fatal();
            }
        }
    }

    fn start_command(&mut self, port: &mut Port, sq: u16, sqe: Sqe) {
        let conflict = self.commands.by_id(sq, sqe.command_id()).is_some();
        let index = self.commands.insert(sq, sqe);
        let plan = if conflict {
            Err(Status::COMMAND_ID_CONFLICT)
        } else if sqe.is_fused_or_sgl() {
            Err(Status::INVALID_FIELD)
        } else if sq == 0 {
            self.plan_admin(&sqe)
        } else {
            self.plan_io(&sqe)
        };
        match plan {
            Ok(plan) => self.start_plan(port, index, plan),
            Err(status) => self.complete(port, index, Err(status)),
        }
    }

    fn start_plan(&mut self, port: &mut Port, index: u16, plan: Plan) {
        let page = self.registers.page();
        let Some(command) = self.commands.get(index) else { return };
        command.plan = plan;
        let len = match plan {
            Plan::Event => {
                command.state = State::Event;
                self.deliver_events(port);
                return;
            }
            Plan::Nothing | Plan::ToHost(0) | Plan::FromHost(0) => {
                self.commands.runnable.push_back(index);
                return;
            }
            Plan::ToHost(len) | Plan::FromHost(len) => len,
        };
        match Prps::new(command.sqe.prp1(), command.sqe.prp2(), len, page) {
            Ok((prps, next)) => {
                command.prps = prps;
                self.prps_advanced(port, index, next);
            }
            Err(status) => self.complete(port, index, Err(status)),
        }
    }

    fn prps_advanced(&mut self, port: &mut Port, index: u16, next: Next) {
        let Some(command) = self.commands.get(index) else { return };
        match (next, command.plan) {
            (Next::List(list), _) => {
                command.state = State::List;
                command.list = Some(list);
                self.commands.receiving.push_back(index);
                self.continue_receiving(port);
            }
            (Next::Ready, Plan::FromHost(len)) => {
                command.state = State::Receiving;
                command.data = vec![0; len];
                self.commands.receiving.push_back(index);
                self.continue_receiving(port);
            }
            (Next::Ready, _) => {
                command.state = State::Runnable;
                self.commands.runnable.push_back(index);
            }
        }
    }

    fn list_came(
        &mut self,
        port: &mut Port,
        (index, serial): (u16, u32),
        result: Result<Vec<u8>, DmaError>,
    ) {
        let Some(command) = self.commands.find(index, serial) else { return };
        let next = match result {
            Ok(list) => command.prps.take_list(&list),
            Err(_) => Err(Status::DATA_TRANSFER_ERROR),
        };
        match next {
            Ok(next) => self.prps_advanced(port, index, next),
            Err(status) => self.complete(port, index, Err(status)),
        }
    }

    /// Starts DMA reads of PRP lists and data, for the oldest command first.
    fn continue_receiving(&mut self, port: &mut Port) {
        while let Some(&index) = self.commands.receiving.front() {
            let Some(command) = self.commands.get(index) else { return };
            match start_reads(port, index, command) {
                Ok(()) => {
                    self.commands.receiving.pop_front();
                }
                Err(Refused::Full) => return,
                Err(Refused::BusMasterOff) => {
                    self.stop_command(port, index, Status::DATA_TRANSFER_ERROR);
                }
            }
        }
    }

    fn data_came(
        &mut self,
        port: &mut Port,
        (index, serial): (u16, u32),
        at: usize,
        result: Result<Vec<u8>, DmaError>,
    ) {
        let Some(command) = self.commands.find(index, serial) else { return };
        command.outstanding -= 1;
        match result {
            Ok(data) => command.data[at..at + data.len()].copy_from_slice(&data),
            Err(_) => {
                self.stop_command(port, index, Status::DATA_TRANSFER_ERROR);
                return;
            }
        }
        if command.outstanding == 0 && command.segment == command.prps.segments().len() {
            command.state = State::Runnable;
            self.commands.runnable.push_back(index);
        }
    }

    /// Carries out commands that have all they need.
    fn run_commands(&mut self, port: &mut Port, now: Duration) {
        for _ in 0..COMMANDS_A_CALL {
            if self.commands.sending.len() >= SENDING {
                return;
            }
            let Some(index) = self.commands.runnable.pop_front() else { return };
            let Some(command) = self.commands.get(index) else { continue };
            let (sq, sqe, planned) = (command.sq, command.sqe, command.plan.len());
            let data = std::mem::take(&mut command.data);
            let outcome = if sq == 0 {
                self.run_admin(port, now, index, &sqe)
            } else {
                self.run_io(index, &sqe, planned, data)
            };
            self.go_on(port, index, outcome);
        }
    }

    /// A command goes on with what came of carrying it out, or of a part of that.
    pub(super) fn go_on(&mut self, port: &mut Port, index: u16, outcome: Result<Outcome, Status>) {
        match outcome {
            Err(status) => self.complete(port, index, Err(status)),
            Ok(Outcome::Done(result)) => self.complete(port, index, Ok(result)),
            Ok(Outcome::Slow(count)) => self.wait_for_image(index, State::Slow, count),
            Ok(Outcome::Transfer(data)) => {
                if let Some(command) = self.commands.get(index) {
                    command.data = data;
                }
                self.wait_for_image(index, State::Transfer, 1);
            }
            Ok(Outcome::Data(data)) => self.commands.set_sending(index, data),
        }
    }

    /// Hands data for the host to the link, for the oldest command first.
    fn continue_sending(&mut self, port: &mut Port, _now: Duration) {
        while let Some(&index) = self.commands.sending.front() {
            let Some(command) = self.commands.get(index) else { return };
            while let Some(&segment) = command.prps.segments().get(command.segment) {
                if port.write_backlog() >= WRITE_BACKLOG {
                    return;
                }
                let data = &command.data[command.at..command.at + segment.len];
                match port.dma_write(segment.address, data, Traffic::Data) {
                    Ok(()) => {}
                    Err(Refused::Full) => return,
                    Err(Refused::BusMasterOff) => {
                        self.complete(port, index, Err(Status::DATA_TRANSFER_ERROR));
                        return;
                    }
                }
                command.segment += 1;
                command.at += segment.len;
            }
            self.complete(port, index, Ok(0));
        }
    }

    /// Ends a command that may have DMA under way.
    pub(super) fn stop_command(&mut self, port: &mut Port, index: u16, status: Status) {
        let Some(command) = self.commands.get(index) else { return };
        let ours = (index, command.serial);
        port.cancel_reads(|token| Token::from_bits(token).and_then(Token::command) == Some(ours));
        self.complete(port, index, Err(status));
    }

    /// Ends a command: its completion waits for a free entry, its place is free.
    pub(super) fn complete(&mut self, _port: &mut Port, index: u16, result: Result<u32, Status>) {
        let Some(command) = self.commands.remove(index) else { return };
        let status = result.err().unwrap_or(Status::SUCCESS);
        if !status.is_success() {
            self.errors.add(command.sq, &command.sqe, status);
        }
        let Some(sq) = self.queues.sq_mut(command.sq.into()) else { return };
        let completion = Completion {
            result: result.unwrap_or(0),
            sq_head: sq.head(),
            sq: command.sq,
            command_id: command.sqe.command_id(),
            status,
        };
        let cq = sq.cq;
        if let Some(cq) = self.queues.cq_mut(cq.into()) {
            cq.waiting.push_back(completion);
        }
    }

    /// Writes completions that have a free entry, and raises interrupts for them.
    pub(super) fn post_completions(&mut self, port: &mut Port, now: Duration) {
        if !self.registers.is_ready() {
            return;
        }
        let mut raised = Vec::new();
        let mut wake = None;
        for (id, cq) in self.queues.cqs_mut() {
            while !cq.is_full() && port.check_write(CQE_LEN).is_ok() {
                let Some(completion) = cq.waiting.pop_front() else { break };
                let (address, phase) = cq.next_entry();
                let entry = completion.entry(phase);
                if port.dma_write(address, entry, Traffic::Control).is_err() {
                    cq.waiting.push_front(completion);
                    break;
                }
                cq.advance();
                cq.unsignalled += 1;
                if cq.unsignalled == 1 {
                    cq.since = now;
                }
            }
            let Some(vector) = cq.vector.filter(|_| cq.unsignalled > 0) else { continue };
            let (threshold, time) = self.features.coalescing(id, vector);
            let due = cq.since + time;
            if cq.unsignalled >= threshold || now >= due {
                cq.unsignalled = 0;
                raised.push(vector);
            } else {
                wake = Some(wake.map_or(due, |at: Duration| at.min(due)));
            }
        }
        for vector in raised {
            self.interrupt(port, vector);
        }
        if let Some(at) = wake {
            self.wake(at);
        }
    }

    fn interrupt(&mut self, port: &mut Port, vector: u16) {
        if !port.msix_enabled() && self.registers.is_masked(vector) {
            self.held_interrupts |= 1 << vector;
        } else {
            port.interrupt(vector);
        }
    }

    /// Raises what the mask register held back and now lets through, if there still is something
    /// to be read.
    pub(super) fn release_interrupts(&mut self, port: &mut Port) {
        let held = std::mem::take(&mut self.held_interrupts);
        for vector in (0..32).filter(|vector| held >> vector & 1 != 0) {
            let unread =
                |cq: &super::queue::CompletionQueue| cq.vector == Some(vector) && cq.has_unread();
            if self.queues.cqs_mut().any(|(_, cq)| unread(cq)) {
                self.interrupt(port, vector);
            }
        }
    }

    /// Something happened that the host may want to know.
    pub(super) fn raise_event(&mut self, event: Event) {
        if event.is_error() {
            self.errors.add_event();
        }
        self.events.add(event);
    }

    /// Completes asynchronous event requests for which there is an event.
    pub(super) fn deliver_events(&mut self, port: &mut Port) {
        while let Some(index) = self.waiting_event_request() {
            let Some(result) = self.events.take() else { return };
            self.complete(port, index, Ok(result));
        }
    }

    fn waiting_event_request(&mut self) -> Option<u16> {
        let of_admin = self.commands.of_queue(0);
        of_admin
            .into_iter()
            .find(|&index| self.commands.get(index).is_some_and(|c| c.state == State::Event))
    }

    /// Asynchronous event requests that wait.
    pub(super) fn event_requests(&mut self) -> usize {
        let mut of_admin = self.commands.of_queue(0);
        of_admin.retain(|&i| self.commands.get(i).is_some_and(|c| c.state == State::Event));
        of_admin.len()
    }
}
