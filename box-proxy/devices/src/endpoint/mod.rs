//! What every PCI Express endpoint function shares: configuration space, BARs, interrupts, a
//! completer, a DMA engine, resets.
//!
//! A device is an [`Endpoint`] around a [`Function`]: the endpoint speaks TLPs, the function sees
//! accesses to its BARs and does DMA through its [`Port`].
//!
//! - `config`, `layout`, [`registers`], `settings`: configuration space as a table, what is in
//!   it, and what software set;
//! - `interrupts`: MSI-X and MSI;
//! - `requester`: DMA reads; `outbound`: DMA writes, messages and completions;
//! - `errors`: device status, AER and error messages;
//! - `port`: what a function can do; `receive`: what comes.

mod access;
mod config;
mod counters;
mod errors;
mod interrupts;
mod layout;
mod outbound;
mod port;
mod receive;
pub mod registers;
mod requester;
mod settings;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use access::{read_registers, written_registers};
pub use layout::{BarLayout, Layout, MsixLayout};
pub use outbound::{COMPLETION_QUEUE, POSTED_QUEUE, WRITE_QUEUE_BYTES};
pub use port::{Port, Refused, Traffic};
pub use requester::{DmaError, MAX_TAGS, READ_JOBS, ReadDone, ReadTiming};

use crate::device::{Classes, Device, ResetKind};
use config::Depth;
use registers::{DEVICE_CONTROL, DEVICE_CONTROL_FLR};
use std::time::Duration;
use tlp_codec::tlp::Class;

/// Which reset a function is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionReset {
    /// Function-level reset.
    FunctionLevel,
    /// Hot reset or PERST#.
    Conventional,
    /// Power was off: what is volatile is lost.
    Power,
}

/// What makes one device different from another.
pub trait Function: Send {
    /// A read of `data.len()` bytes at `offset` of `bar`, all inside it and none of them in the
    /// MSI-X structures.
    fn read(&mut self, port: &mut Port, now: Duration, bar: usize, offset: u64, data: &mut [u8]);

    /// A write at `offset` of `bar`, all inside it and none of it in the MSI-X structures. A
    /// write TLP whose byte enables have gaps comes as several.
    fn write(&mut self, port: &mut Port, now: Duration, bar: usize, offset: u64, data: &[u8]);

    /// A DMA read ended.
    fn read_done(&mut self, port: &mut Port, now: Duration, done: ReadDone);

    /// The function was reset; the port already was, and forgot every DMA.
    fn reset(&mut self, port: &mut Port, now: Duration, reset: FunctionReset);

    /// Whether nothing from before a reset goes on any more. From a reset on, configuration
    /// requests are answered with retry status until it says yes.
    fn is_reset(&self) -> bool {
        true
    }

    /// Does a bounded amount of the function's own work. Called before each TLP is polled, so
    /// cheap when there is nothing to do.
    fn work(&mut self, port: &mut Port, now: Duration);

    /// When [`work`](Function::work) is to be called next although nothing came; in the past
    /// means at once.
    fn work_at(&self) -> Option<Duration>;

    /// What the function counts.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Whether the device takes part in its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Up,
    InReset,
    Off,
}

/// A function with what it shares with every other.
pub struct Endpoint<F: Function> {
    port: Port,
    function: F,
    link: LinkState,
    /// PERST# is asserted, with power or without.
    perst: bool,
    /// Until then configuration requests are answered with retry status.
    ready_at: Duration,
    /// The same, until the function is done with its reset.
    resetting: bool,
}

impl<F: Function> Endpoint<F> {
    /// A device with power, out of reset and ready at once.
    ///
    /// # Panics
    ///
    /// When the layout breaks a rule that its fields' documentation states.
    pub fn new(layout: Layout, function: F) -> Self {
        Self {
            port: Port::new(layout),
            function,
            link: LinkState::Up,
            perst: false,
            ready_at: Duration::ZERO,
            resetting: false,
        }
    }

    /// The function.
    pub fn function(&self) -> &F {
        &self.function
    }

    /// The function, to be changed from the device's own side.
    pub fn function_mut(&mut self) -> &mut F {
        &mut self.function
    }

    fn reset(&mut self, now: Duration, depth: Depth, reset: FunctionReset) {
        self.port.reset(now, depth);
        self.function.reset(&mut self.port, now, reset);
        self.ready_at = now + self.port.layout.ready_after;
        self.resetting = true;
    }

    /// Whether configuration requests are taken after the last reset.
    fn is_ready(&mut self, now: Duration) -> bool {
        self.resetting = self.resetting && !self.function.is_reset();
        now >= self.ready_at && !self.resetting
    }

    /// Starts the function-level reset that a configuration write asked for.
    fn check_function_reset(&mut self, now: Duration) {
        let control = self.port.config.get16(DEVICE_CONTROL);
        if control & DEVICE_CONTROL_FLR != 0 {
            self.port.counters.function_resets += 1;
            self.reset(now, Depth::Function, FunctionReset::FunctionLevel);
        }
    }

    fn finish_reads(&mut self, now: Duration) {
        while let Some(done) = self.port.take_done() {
            self.function.read_done(&mut self.port, now, done);
        }
    }
}

impl<F: Function> Device for Endpoint<F> {
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]) {
        if self.link != LinkState::Up {
            self.port.counters.dropped_in_reset += 1;
            return;
        }
        self.port.counters.tlps_received += 1;
        self.receive(now, tlp);
        self.finish_reads(now);
    }

    fn can_take(&self, class: Class) -> bool {
        class != Class::NonPosted || self.link != LinkState::Up || self.port.completions.has_room()
    }

    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        if self.link != LinkState::Up {
            return None;
        }
        self.finish_reads(now);
        self.function.work(&mut self.port, now);
        self.port.send_interrupts();
        self.port.emit(now, classes, buf)
    }

    fn handle_reset(&mut self, now: Duration, kind: ResetKind) {
        self.port.counters.conventional_resets += 1;
        if let ResetKind::Perst { asserted } = kind {
            self.perst = asserted;
        }
        let (link, depth, reset) = match (kind, self.link) {
            (ResetKind::Power { on: false }, _) => {
                (LinkState::Off, Depth::Fundamental, FunctionReset::Power)
            }
            (ResetKind::Power { on: true }, LinkState::Off) => {
                // Everything was forgotten when it went.
                self.link = if self.perst { LinkState::InReset } else { LinkState::Up };
                self.ready_at = now + self.port.layout.ready_after;
                return;
            }
            // Nothing happens to a device without power, or to one that gets what it has.
            (_, LinkState::Off) | (ResetKind::Power { on: true }, _) => return,
            (ResetKind::Perst { asserted: true }, _) => {
                (LinkState::InReset, Depth::Fundamental, FunctionReset::Conventional)
            }
            (ResetKind::Perst { asserted: false }, _) => {
                (LinkState::Up, Depth::Fundamental, FunctionReset::Conventional)
            }
            (ResetKind::HotReset, LinkState::InReset) => return,
            (ResetKind::HotReset, LinkState::Up) => {
                (LinkState::Up, Depth::Hot, FunctionReset::Conventional)
            }
        };
        self.link = link;
        self.reset(now, depth, reset);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.link != LinkState::Up {
            return None;
        }
        if self.port.requester.has_done() {
            return Some(Duration::ZERO);
        }
        let work = self.function.work_at();
        let reads = self.port.requester.next_deadline();
        [work, reads].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Duration) {
        if self.link == LinkState::Up {
            self.port.expire(now);
            self.finish_reads(now);
            self.function.work(&mut self.port, now);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut list = self.port.counters.list();
        list.extend(self.function.counters());
        list
    }
}
