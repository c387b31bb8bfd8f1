//! Settings of a device, or of the port that it is behind, that are changed while there is work, and
//! changed back: Bus Master Enable, Memory Space Enable, the power state, and where a function's registers
//! are.
//!
//! Roughly, drivers go on meanwhile and know what may be lost. Gently, they bring what they have begun to
//! an end before, and begin nothing before it is over: then nothing may be lost.

use super::devices::DEVICE_BAR;
use super::{COMMAND, Kind, Os, Stage, Then};
use crate::host::driver::{Driver, Losses, ModelDriver};
use crate::host::layout::{PLACE, PLACES};
use crate::host::{all_of, first};
use proxy_core::time::Instant;
use std::ops::Range;

/// Power Management Control/Status, of the model device and of a port.
pub(super) const DEVICE_POWER: u16 = 0x84;
pub(super) const PORT_POWER: u16 = 0x44;
const D3_HOT: u32 = 0b11;
pub(super) const NO_SOFT_RESET: u32 = 1 << 3;
/// Of Command: memory space and bus master.
const MEMORY: u32 = 1 << 1;
const MASTER: u32 = 1 << 2;
/// In the first base address register: it has an upper half.
const WIDE: u32 = 0b1100;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    BusMaster,
    Memory,
    Power,
    /// Where a function's registers are.
    Place,
}

/// How it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Change {
    pub(crate) setting: Setting,
    /// Of the port, and not of the function.
    pub(crate) of_port: bool,
    /// When drivers have brought what they have begun to an end.
    pub(crate) gently: bool,
}

/// A write to a register of a port on which it depends what passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateWrite {
    Command { memory: bool, masters: bool },
    Power { awake: bool },
}

impl GateWrite {
    pub(super) fn of(register: u16, value: u32) -> Self {
        if register == COMMAND {
            Self::Command { memory: value & MEMORY != 0, masters: value & MASTER != 0 }
        } else {
            Self::Power { awake: value & D3_HOT == 0 }
        }
    }
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Drivers bring what they have begun to an end.
    Waits,
    Made,
    /// It is changed back.
    Ends,
}

/// A change that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changing {
    id: u32,
    change: Change,
    progress: Progress,
    /// A function did not take a write.
    failed: bool,
}

impl Change {
    /// What may come to nothing meanwhile.
    fn losses(self) -> Losses {
        let down = matches!(self.setting, Setting::Memory | Setting::Power);
        let up = self.of_port && matches!(self.setting, Setting::BusMaster | Setting::Power);
        Losses { down, up }
    }

    /// Whether drivers leave their devices alone.
    fn pauses(self) -> bool {
        self.gently || self.setting == Setting::Place
    }

    /// Whether a driver has left its device alone for long enough. Transfers go on while registers
    /// move.
    fn may_begin(self, driver: &ModelDriver) -> bool {
        driver.waits_for_nothing() && (self.setting == Setting::Place || driver.is_drained())
    }

    /// The ports whose devices it is about.
    fn about(self, port: usize) -> Range<usize> {
        if self.of_port { all_of(port) } else { port..port + 1 }
    }

    /// The register, and what it holds meanwhile and otherwise.
    fn register(self) -> (u16, [u32; 2]) {
        match self.setting {
            Setting::BusMaster => (COMMAND, [MEMORY, MEMORY | MASTER]),
            Setting::Memory | Setting::Place => (COMMAND, [MASTER, MEMORY | MASTER]),
            Setting::Power if self.of_port => (PORT_POWER, [D3_HOT, 0]),
            Setting::Power => (DEVICE_POWER, [D3_HOT, 0]),
        }
    }
}

impl Os {
    /// A setting of the device behind a port, or of the port, is to be changed. Not while one is.
    pub(crate) fn begin_change(&mut self, port: usize, id: u32, change: Change) {
        let at = if change.of_port { first(port) } else { port };
        let busy = all_of(port).any(|port| self.ports[port].changing.is_some());
        if busy || self.stage(port) != Stage::Ready || self.ports[port].kind != Kind::Model {
            return;
        }
        let progress = Progress::Waits;
        self.ports[at].changing = Some(Changing { id, change, progress, failed: false });
        change.about(at).for_each(|port| self.join_change(port));
        self.go_on_changing(at);
    }

    /// Whether a function is reset by a change.
    fn forgets_by(&self, port: usize, change: Change) -> bool {
        change.setting == Setting::Power && !change.of_port && self.ports[port].forgets
    }

    /// The change that a port's device is in, and where it is noted.
    fn change_of(&self, port: usize) -> Option<(usize, Changing)> {
        let all = all_of(port).filter_map(|at| Some((at, self.ports[at].changing?)));
        all.into_iter().find(|(at, changing)| changing.change.about(*at).contains(&port))
    }

    fn model_driver(&mut self, port: usize) -> Option<&mut ModelDriver> {
        match self.ports[port].driver.as_mut()? {
            Driver::Model(driver) => Some(driver),
            Driver::Drive(_) => None,
        }
    }

    /// A driver, which may be new, is told of a change.
    pub(super) fn join_change(&mut self, port: usize) {
        let Some((_, Changing { change, .. })) = self.change_of(port) else { return };
        let Some(driver) = self.model_driver(port) else { return };
        if change.pauses() {
            driver.pause();
        } else {
            driver.expect(change.losses());
        }
    }

    /// Goes on as soon as drivers have come to an end.
    pub(super) fn go_on_changing(&mut self, at: usize) {
        let waits = |changing: &Changing| changing.progress == Progress::Waits;
        let Some(Changing { id, change, .. }) = self.ports[at].changing.filter(waits) else {
            return;
        };
        let may_begin = |driver: &Driver| match driver {
            Driver::Model(driver) => change.may_begin(driver),
            Driver::Drive(_) => true,
        };
        let mut drivers = change.about(at).filter_map(|port| self.driver(port));
        if change.pauses() && !drivers.all(may_begin) {
            return;
        }
        self.set_progress(at, Progress::Made);
        self.changed[usize::from(change.of_port)][change.setting as usize] += 1;
        self.set(at, id, change, false);
        if change.setting == Setting::Place {
            self.move_registers(at, id);
        }
    }

    fn set_progress(&mut self, at: usize, progress: Progress) {
        if let Some(changing) = &mut self.ports[at].changing {
            changing.progress = progress;
        }
    }

    /// Writes what is changed, or changed back.
    fn set(&mut self, at: usize, id: u32, change: Change, ends: bool) {
        let (register, values) = change.register();
        let mut value = values[usize::from(ends)];
        if change.of_port {
            if register == COMMAND {
                value |= u32::from(self.errors) << 8;
            }
            let write = GateWrite::of(register, value);
            let then = Then::Gate { behind: at, write, ends: ends.then_some(id) };
            self.write(at, self.layout.port_id(at), register, value, 0b0011, then);
        } else {
            let then = Then::Changed { id, ends };
            self.write(at, self.layout.device_id(at), register, value, 0b0011, then);
        }
    }

    /// To the next place in their port's window.
    fn move_registers(&mut self, port: usize, id: u32) {
        let high = self.ports[port].high;
        let Some(driver) = self.model_driver(port) else { return };
        let slid = (driver.slid() + PLACE) % (PLACES * PLACE);
        driver.slide_to(slid);
        let place = self.layout.registers(port, high) + slid;
        let at = self.layout.device_id(port);
        let then = Then::Changed { id, ends: false };
        // Above 4 GB are those of 64 bits, and all of them.
        let kind = if high { WIDE } else { 0 };
        self.write(port, at, DEVICE_BAR, place as u32 | kind, 0xf, then);
        if high {
            self.write(port, at, DEVICE_BAR + 4, (place >> 32) as u32, 0xf, then);
        }
    }

    /// A change is to end, if it goes on still.
    pub(crate) fn end_change(&mut self, id: u32) {
        let is_it = |entry: &super::OsPort| entry.changing.is_some_and(|c| c.id == id);
        let Some(at) = self.ports.iter().position(is_it) else { return };
        let Some(Changing { change, progress, .. }) = self.ports[at].changing else { return };
        match progress {
            Progress::Waits => self.leave_change(at),
            Progress::Made => {
                self.set_progress(at, Progress::Ends);
                self.set(at, id, change, true);
            }
            Progress::Ends => {}
        }
    }

    /// A function took a write, or did not.
    pub(super) fn note_change(&mut self, at: usize, id: u32, good: bool) {
        if let Some(changing) = self.ports[at].changing.as_mut().filter(|c| c.id == id) {
            changing.failed |= !good;
        }
    }

    /// All is as before. A function that did not take what was written is reset. Of what happened meanwhile
    /// in a slot whose port could not interrupt, that tells by itself now.
    pub(super) fn changed_back(&mut self, now: Instant, at: usize, id: u32, good: bool) {
        let Some(changing) = self.ports[at].changing.filter(|c| c.id == id) else { return };
        if !changing.change.of_port && (changing.failed || !good) {
            self.ports[at].changing = None;
            if !self.reset_function(at) {
                self.leave_to(at..at + 1);
            }
            return;
        }
        if self.forgets_by(at, changing.change) {
            self.begin_anew(now, at);
        }
        self.leave_change(at);
    }

    fn leave_change(&mut self, at: usize) {
        if let Some(changing) = self.ports[at].changing.take() {
            self.leave_to(changing.change.about(at));
        }
    }

    fn leave_to(&mut self, ports: Range<usize>) {
        for port in ports {
            if let Some(driver) = self.model_driver(port) {
                driver.go_on();
            }
        }
    }

    /// A driver is gone, and with it what was changed of its function alone.
    pub(super) fn forget_change(&mut self, port: usize) {
        self.ports[port].changing = self.ports[port].changing.filter(|c| c.change.of_port);
    }
}
