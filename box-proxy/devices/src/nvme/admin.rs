//! Admin commands.

use super::Nvme;
use super::command::{Outcome, Plan, State};
use super::entry::Sqe;
use super::events::REQUESTS;
use super::image::{ImageOp, Zeroing};
use super::namespace::LBA_SHIFTS;
use super::status::Status;
use super::{MDTS, identify, logs};
use crate::endpoint::Port;
use std::time::Duration;

const DELETE_SQ: u8 = 0x00;
const CREATE_SQ: u8 = 0x01;
const GET_LOG_PAGE: u8 = 0x02;
const DELETE_CQ: u8 = 0x04;
const CREATE_CQ: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const EVENT_REQUEST: u8 = 0x0c;
const FORMAT: u8 = 0x80;
const SANITIZE: u8 = 0x84;

/// Every namespace.
const ALL: u32 = 0xffff_ffff;

impl Nvme {
    /// What an admin command needs.
    pub(super) fn plan_admin(&mut self, sqe: &Sqe) -> Result<Plan, Status> {
        match sqe.opcode() {
            IDENTIFY => Ok(Plan::ToHost(identify::LEN)),
            GET_LOG_PAGE => {
                logs::log_page(sqe)?;
                let len = logs::log_len(sqe);
                if len > 4096 << MDTS {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(Plan::ToHost(len as usize))
            }
            EVENT_REQUEST if self.event_requests() >= REQUESTS => {
                Err(Status::EVENT_REQUEST_LIMIT_EXCEEDED)
            }
            EVENT_REQUEST => Ok(Plan::Event),
            DELETE_SQ | CREATE_SQ | DELETE_CQ | CREATE_CQ | ABORT | SET_FEATURES | GET_FEATURES
            | FORMAT | SANITIZE => Ok(Plan::Nothing),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Carries an admin command out.
    pub(super) fn run_admin(
        &mut self,
        port: &mut Port,
        now: Duration,
        index: u16,
        sqe: &Sqe,
    ) -> Result<Outcome, Status> {
        self.health.other_commands += 1;
        let done = |()| Outcome::Done(0);
        match sqe.opcode() {
            IDENTIFY => self.identify(sqe).map(Outcome::Data),
            GET_LOG_PAGE => {
                let data = self.get_log_page(sqe)?;
                self.deliver_events(port);
                Ok(Outcome::Data(data))
            }
            CREATE_CQ => self.create_cq(sqe).map(done),
            CREATE_SQ => self.create_sq(sqe).map(done),
            DELETE_SQ => {
                let result = self.delete_sq(port, index, sqe);
                self.post_completions(port, now);
                result
            }
            DELETE_CQ => self.delete_cq(sqe).map(done),
            GET_FEATURES => self.get_feature(sqe).map(Outcome::Done),
            SET_FEATURES => {
                let result = self.set_feature(sqe)?;
                self.deliver_events(port);
                Ok(Outcome::Done(result))
            }
            ABORT => Ok(Outcome::Done(self.abort(port, sqe))),
            SANITIZE => {
                let result = self.sanitize(sqe).map(done);
                self.deliver_events(port);
                result
            }
            _ => self.format(index, sqe),
        }
    }

    /// Aborts a command, unless it is too late or too early for it: doubleword 0 says 1 then.
    fn abort(&mut self, port: &mut Port, sqe: &Sqe) -> u32 {
        let (sq, command_id) = (sqe.dword(10) as u16, (sqe.dword(10) >> 16) as u16);
        let Some(index) = self.commands.by_id(sq, command_id) else { return 1 };
        let early = |state| matches!(state, State::List | State::Receiving | State::Event);
        if !self.commands.get(index).is_some_and(|command| early(command.state)) {
            return 1;
        }
        self.stop_command(port, index, Status::ABORT_REQUESTED);
        0
    }

    /// Format NVM: everything reads as zeros, in the format asked for.
    fn format(&mut self, index: u16, sqe: &Sqe) -> Result<Outcome, Status> {
        self.sanitize.check()?;
        let options = sqe.dword(10);
        let (format, erase) = (options & 0xf, options >> 9 & 7);
        if format as usize >= LBA_SHIFTS.len() || options >> 4 & 0x1f != 0 {
            return Err(Status::INVALID_FORMAT);
        }
        // No erase or user data erase; there is no cryptographic one.
        if erase > 1 {
            return Err(Status::INVALID_FIELD);
        }
        let chosen = self.chosen(sqe.nsid())?;
        for &nsid in &chosen {
            let namespace = self.namespace(nsid)?;
            namespace.check_writable()?;
            if namespace.formatting {
                return Err(Status::FORMAT_IN_PROGRESS);
            }
            // A namespace without a block is none.
            if namespace.image.size() >> LBA_SHIFTS[format as usize] == 0 {
                return Err(Status::INVALID_FORMAT);
            }
        }
        for (started, &nsid) in chosen.iter().enumerate() {
            let namespace = self.namespace(nsid)?;
            // Whoever was told that it is erased may lend it to somebody else, and power may fail then.
            let op = ImageOp::zero(0..namespace.image.size(), Zeroing::Deallocated, true);
            match self.start_slow(index, &[nsid], &op) {
                Ok(_) => self.namespace(nsid)?.formatting = true,
                Err(status) if started == 0 => return Err(status),
                Err(status) => {
                    self.cancel_slow(index, status);
                    return Ok(Outcome::Slow(started as u16));
                }
            }
        }
        Ok(Outcome::Slow(chosen.len() as u16))
    }

    /// A format's erasing has ended.
    pub(super) fn format_ended(&mut self, sqe: &Sqe, good: bool) {
        for nsid in self.chosen(sqe.nsid()).unwrap_or_default() {
            if let Ok(namespace) = self.namespace(nsid) {
                namespace.formatting = false;
                if good {
                    // What was lost of what is erased now is nobody's loss any more.
                    namespace.image.take_loss();
                    namespace.format = (sqe.dword(10) & 0xf) as u8;
                }
            }
        }
    }

    /// The namespaces that a number means.
    pub(super) fn chosen(&mut self, nsid: u32) -> Result<Vec<u32>, Status> {
        if nsid == ALL {
            return Ok((1..=self.namespaces.len() as u32).collect());
        }
        self.namespace(nsid)?;
        Ok(vec![nsid])
    }
}
