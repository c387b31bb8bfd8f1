//! Controller registers and what writing them does.

use super::Nvme;
use super::command::SHUTDOWN;
use super::events::Event;
use super::image::ImageOp;
use super::namespace::Namespace;
use super::queue::{CompletionQueue, SubmissionQueue};
use super::regs;
use crate::endpoint::Port;
use std::time::Duration;

/// Registers that hold something.
#[derive(Clone, Debug, Default)]
pub(super) struct Registers {
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    interrupt_mask: u32,
    /// What CC and CSTS wait for until nothing from before a reset goes on any more.
    unsettled: Unsettled,
}

/// What is put off until the images are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unsettled {
    #[default]
    Nothing,
    /// CC.EN went to 0: CSTS.RDY still reads as 1.
    Disable,
    /// CC.EN went to 1 as well, before CSTS.RDY had fallen: CSTS.RDY reads as 0.
    Enable,
}

impl Registers {
    /// A doubleword.
    pub(super) fn read(&self, at: u64) -> u32 {
        let half = |value: u64| (value >> (8 * (at & 4))) as u32;
        match at {
            regs::VS => regs::VERSION,
            regs::INTMS | regs::INTMC => self.interrupt_mask,
            regs::CC => self.cc,
            regs::CSTS if self.unsettled == Unsettled::Disable => self.csts | regs::CSTS_RDY,
            regs::CSTS => self.csts,
            regs::AQA => self.aqa,
            _ => match at & !4 {
                regs::CAP => half(regs::CAP_VALUE),
                regs::ASQ => half(self.asq),
                regs::ACQ => half(self.acq),
                _ => 0,
            },
        }
    }

    /// Whether commands are taken.
    pub(super) fn is_running(&self) -> bool {
        self.csts & (regs::CSTS_RDY | regs::CSTS_CFS | regs::CSTS_SHST) == regs::CSTS_RDY
    }

    /// Whether completions of commands already taken can be posted.
    pub(super) fn is_ready(&self) -> bool {
        self.csts & (regs::CSTS_RDY | regs::CSTS_CFS) == regs::CSTS_RDY
    }

    /// Whether nothing is lost if power goes now.
    pub(super) fn shut_down_well(&self) -> bool {
        let shutdown = self.csts & (regs::CSTS_SHST | regs::CSTS_CFS);
        self.cc & regs::CC_EN == 0 || shutdown == regs::CSTS_SHST_COMPLETE
    }

    /// Bytes of a host memory page.
    pub(super) fn page(&self) -> usize {
        4096 << (self.cc >> 7 & 0xf).min(regs::MAX_PAGE_SHIFT)
    }

    /// Whether CC has the sizes of queue entries that there are, 64 and 16 bytes.
    pub(super) fn entry_sizes_are_set(&self) -> bool {
        self.cc >> 16 & 0xff == 0x46
    }

    pub(super) fn is_masked(&self, vector: u16) -> bool {
        vector < 32 && self.interrupt_mask >> vector & 1 != 0
    }

    pub(super) fn set_fatal(&mut self) {
        self.csts |= regs::CSTS_CFS;
    }

    pub(super) fn shutdown_complete(&mut self) {
        self.csts = self.csts & !regs::CSTS_SHST | regs::CSTS_SHST_COMPLETE;
    }
}

fn set_half(register: &mut u64, at: u64, value: u32, mask: u64) {
    let shift = 8 * (at & 4);
    *register = (*register & !(0xffff_ffff << shift) | u64::from(value) << shift) & mask;
}

impl Nvme {
    pub(super) fn write_register(&mut self, port: &mut Port, now: Duration, at: u64, value: u32) {
        let registers = &mut self.registers;
        // The admin queue can be changed only while the controller is off.
        let enabled = registers.cc & regs::CC_EN != 0;
        match at {
            regs::INTMS => registers.interrupt_mask |= value,
            regs::INTMC => {
                registers.interrupt_mask &= !value;
                self.release_interrupts(port);
            }
            regs::CC => self.configure(port, value),
            regs::CSTS if value & regs::CSTS_NSSRO != 0 => registers.csts &= !regs::CSTS_NSSRO,
            regs::NSSR if value == regs::NSSR_VALUE => {
                self.reset_controller(port);
                self.registers = Registers { csts: regs::CSTS_NSSRO, ..Registers::default() };
            }
            regs::AQA if !enabled => registers.aqa = value & 0x0fff_0fff,
            _ if at >= regs::DOORBELLS => self.doorbell(port, now, at - regs::DOORBELLS, value),
            _ if enabled => {}
            _ => match at & !4 {
                regs::ASQ => set_half(&mut registers.asq, at, value, !0xfff),
                regs::ACQ => set_half(&mut registers.acq, at, value, !0xfff),
                _ => {}
            },
        }
    }

    fn configure(&mut self, port: &mut Port, value: u32) {
        let before = self.registers.cc;
        self.registers.cc = value & 0x00ff_fff1;
        match (before & regs::CC_EN, value & regs::CC_EN) {
            (0, 1) => {
                // A shutdown that was asked for while it was off is over with that.
                if self.registers.csts & regs::CSTS_SHST != 0 {
                    self.reset_controller(port);
                    self.registers.csts &= !regs::CSTS_SHST;
                }
                self.registers.unsettled = Unsettled::Enable;
                self.settle_soon();
            }
            (1, 0) => {
                let ready = self.registers.csts & regs::CSTS_RDY != 0;
                self.reset_controller(port);
                self.registers.csts &= regs::CSTS_NSSRO;
                self.registers.interrupt_mask = 0;
                self.registers.unsettled =
                    if ready { Unsettled::Disable } else { Unsettled::Nothing };
                self.settle_soon();
            }
            _ => {}
        }
        let shutdown = |cc: u32| cc >> 14 & 3 != 0;
        if shutdown(value) && !shutdown(before) {
            self.shut_down();
        }
    }

    /// Does what waits for nothing from before a reset to go on; whether it is done. Software may
    /// enable a controller again when CSTS.RDY has become 0 (NVM Express 1.4 section 3.1.6), and
    /// data is lost if an operation from before runs after that.
    pub(super) fn settle(&mut self) -> bool {
        if self.registers.unsettled == Unsettled::Nothing {
            return true;
        }
        let settled = self.images_are_settled();
        if settled && std::mem::take(&mut self.registers.unsettled) == Unsettled::Enable {
            self.enable();
        }
        settled
    }

    /// The same, and looked at again if it is not done.
    fn settle_soon(&mut self) {
        if !self.settle() {
            self.work_at = Some(Duration::ZERO);
        }
    }

    /// CC.EN went to 1. What it cannot work with is a fatal status (NVM Express 1.4 section
    /// 3.1.5 leaves that to the controller).
    fn enable(&mut self) {
        let r = &self.registers;
        let (sq_size, cq_size) = ((r.aqa & 0xfff) as u16 + 1, (r.aqa >> 16) as u16 + 1);
        let page = r.page() as u64;
        let known =
            r.cc >> 4 & 7 == 0 && r.cc >> 11 & 7 == 0 && r.cc >> 7 & 0xf <= regs::MAX_PAGE_SHIFT;
        let aligned = r.asq.is_multiple_of(page) && r.acq.is_multiple_of(page);
        if !known || !aligned || sq_size < 2 || cq_size < 2 {
            self.registers.set_fatal();
            return;
        }
        self.queues.set_cq(0, CompletionQueue::new(r.acq, cq_size, Some(0)));
        self.queues.set_sq(0, SubmissionQueue::new(r.asq, sq_size, 0));
        self.registers.csts |= regs::CSTS_RDY;
    }

    /// CC.SHN asks for a shutdown: everything written becomes durable.
    fn shut_down(&mut self) {
        self.registers.csts = self.registers.csts & !regs::CSTS_SHST | regs::CSTS_SHST_OCCURRING;
        self.shutdown_wanted = true;
        self.continue_shutdown();
        self.work_at = Some(Duration::ZERO);
    }

    /// Starts the flushes of a shutdown behind those of an earlier one, or ends it.
    pub(super) fn continue_shutdown(&mut self) {
        if self.shutdown_flushes > 0 {
            return;
        }
        if !std::mem::take(&mut self.shutdown_wanted) {
            self.registers.shutdown_complete();
            return;
        }
        for namespace in &mut self.namespaces {
            match namespace.start(SHUTDOWN, ImageOp::Flush) {
                Ok(()) => self.shutdown_flushes += 1,
                // The image takes no more: everything once more, later.
                Err(_) => self.shutdown_wanted = true,
            }
        }
    }

    /// Drops every command and queue, gives up what the images do for them, and sets features to their defaults: what every
    /// controller-level reset does (NVM Express 1.4 section 7.3.2).
    pub(super) fn reset_controller(&mut self, port: &mut Port) {
        port.cancel_reads(|_| true);
        port.drop_writes();
        self.commands.clear();
        self.queues.clear();
        self.events.clear();
        self.features.reset();
        (self.shutdown_flushes, self.shutdown_wanted) = (0, false);
        self.held_interrupts = 0;
        self.work_at = None;
        self.namespaces.iter_mut().for_each(Namespace::abandon);
        if self.sanitize.is_running() {
            self.erase_blocks();
            self.work_at = Some(Duration::ZERO);
        }
    }

    fn doorbell(&mut self, port: &mut Port, now: Duration, offset: u64, value: u32) {
        if !self.registers.is_ready() {
            return;
        }
        let (id, of_cq) = ((offset / 8) as usize, offset & 4 != 0);
        let known = if of_cq {
            self.queues.cq_mut(id).map(|cq| cq.set_head(value))
        } else {
            self.queues.sq_mut(id).map(|sq| sq.set_tail(value))
        };
        match known {
            Some(true) => {}
            Some(false) => self.raise_event(Event::InvalidDoorbellValue),
            None => self.raise_event(Event::InvalidDoorbell),
        }
        self.deliver_events(port);
        self.post_completions(port, now);
    }
}
