//! The operating system: it numbers buses, sets windows, serves hot-plug interrupts and lets go of
//! devices, in the way of Linux's pciehp, one configuration access after the other for each port.

mod boot;
mod change;
mod devices;
mod hotplug;

use super::driver::{Burst, Driver, Failure, Others, Question, Task};
use super::layout::Layout;
use super::memory::Memory;
use super::{Asker, FUNCTIONS, Purpose};
use crate::device::ID;
use crate::egress::Egress;
use crate::oracle::Verdict;
use crate::oracle::blocks::Drives;
use crate::oracle::completion::Completed;
use crate::profile::{Dress, Profile};
pub(crate) use change::{Change, GateWrite, Setting};
use change::{Changing, NO_SOFT_RESET};
use devices::{CLASS, DRIVE_CLASS, DRIVE_ID};
use hotplug::Light;
use proxy_core::limits::MAX_PAYLOAD_OFFERED;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{CplStatus, Kind as TlpKind, Repr};

const COMMAND: u16 = 0x04;
const BRIDGE_CONTROL: u16 = 0x3c;
const SLOT: u16 = 0x88;

/// What follows an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// The switch is set up.
    Booted,
    /// The bus behind that port is in reset.
    BusReset {
        behind: usize,
    },
    /// Access control of that port is as the bits say.
    AccessControl {
        behind: usize,
        bits: u16,
    },
    /// That register of a port, on which it depends what passes it, holds what was written; it is the
    /// last write of a change.
    Gate {
        behind: usize,
        write: GateWrite,
        ends: Option<u32>,
    },
    /// Whether it is reset between power states is here.
    Power,
    /// A setting of a function is changed, or changed back.
    Changed {
        id: u32,
        ends: bool,
    },
    /// The function is in reset.
    FunctionReset,
    /// Slot Status is here.
    Status,
    /// The device's ID is here.
    Found,
    /// What its first base address register can hold is here.
    Sized,
    /// The class of what is no model device is here.
    Class,
    /// Something that the device does not work without was set.
    Set,
    /// The device is enabled.
    Enabled,
    /// The indicator is off: the device may go.
    LetGo,
    /// The indicator is off: the device does not work, or another one came in its place.
    GaveUp,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    at: Bdf,
    register: u16,
    /// `None`: a read.
    write: Option<(u32, u8)>,
    then: Then,
}

/// Where a port's device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Empty,
    Enumerating,
    /// It was told to reset itself.
    Resetting,
    Ready,
    /// The button was pressed; the indicator blinks.
    Blinking,
    /// The driver ends what it has begun.
    Stopping,
    LettingGo,
}

/// What is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Model,
    Drive,
}

struct OsPort {
    stage: Stage,
    kind: Kind,
    /// Its registers are above 4 GB.
    high: bool,
    /// It is reset when it comes back from D3hot.
    forgets: bool,
    script: VecDeque<Access>,
    busy: bool,
    /// An interrupt came while the slot's status was being read.
    again: bool,
    retries: u32,
    /// The device became ready, and nobody was told.
    settled: bool,
    /// It has reset the bus itself, and the device is not ready again.
    resetting: bool,
    /// Counts up with each stage, so that a timer of an earlier one is known.
    turn: u32,
    driver: Option<Driver>,
    /// What is being changed: of the function, or with the first one of the port.
    changing: Option<Changing>,
    /// When the driver is to be woken, if that is planned.
    wakes: Option<Instant>,
}

/// A wait that the operating system asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) port: usize,
    turn: u32,
    /// It is the driver's.
    driver: bool,
}

/// The operating system of one host.
pub(crate) struct Os {
    ports: Vec<OsPort>,
    /// Where it has put what is behind them.
    layout: Layout,
    /// The seed and the host that its layouts are drawn for, and whether each start has another one.
    draws: (u64, usize),
    moves: bool,
    pub(crate) memory: Memory,
    /// Alarms to be set.
    pub(crate) alarms: Vec<(Instant, Alarm)>,
    /// Ports whose binding is not what it was: their devices may lose something.
    pub(crate) unsettled: Vec<usize>,
    blink: Duration,
    /// What the profile says of payloads.
    payload: usize,
    dress: Dress,
    /// Whether it has error messages come.
    pub(crate) errors: bool,
    /// Whether model devices have power states.
    power_states: bool,
    drives: Drives,
    /// Functions of each model device.
    functions: usize,
    /// How often it has started.
    boots: u32,
    /// The switch is not set up since; until then nothing is asked of its slots.
    booting: bool,
    /// Drivers of drives that there were.
    lives: u32,
    /// Operations that ended well, of drivers that are gone.
    done: u64,
    /// Transfers that were lost, of these.
    lost: u64,
    /// Devices that were found and made ready, and let go in order.
    pub(crate) readied: u64,
    pub(crate) let_go: u64,
    /// TLPs of devices that go nowhere.
    pub(crate) strays: u64,
    /// Writes to where devices that flood write.
    pub(crate) flooded: u64,
    pub(crate) messages: u64,
    /// Settings that were changed: of functions and of ports, in the order of [`Setting`].
    pub(crate) changed: [[u64; 4]; 2],
}

impl Os {
    /// Largest payload of the device behind a port, in bytes.
    pub(crate) fn payload(&self, port: usize) -> usize {
        let wanted = if self.payload == 0 { 4096 >> (port / FUNCTIONS % 4) } else { self.payload };
        wanted.min(MAX_PAYLOAD_OFFERED)
    }

    /// Of that host in the run of a seed.
    pub(crate) fn new(
        (seed, host): (u64, usize),
        ports: usize,
        profile: &Profile,
        drives: Drives,
    ) -> Self {
        let port = || OsPort {
            stage: Stage::Empty,
            kind: Kind::Model,
            high: false,
            forgets: false,
            script: VecDeque::new(),
            busy: false,
            again: false,
            retries: 0,
            settled: false,
            resetting: false,
            turn: 0,
            driver: None,
            changing: None,
            wakes: None,
        };
        Self {
            ports: (0..ports).map(|_| port()).collect(),
            layout: Layout::draw(seed, host, 0, ports / FUNCTIONS),
            draws: (seed, host),
            // Devices that ask each other are known by where they are, also when that was before.
            moves: !profile.work.has_peers(),
            memory: Memory::new(ports),
            alarms: Vec::new(),
            unsettled: Vec::new(),
            blink: Duration::from_millis(profile.time.blink_ms),
            payload: profile.work.payload,
            dress: profile.work.dress,
            errors: profile.work.errors,
            power_states: profile.work.power_states,
            drives,
            functions: profile.fabric.functions,
            boots: 0,
            booting: false,
            lives: 0,
            done: 0,
            lost: 0,
            readied: 0,
            let_go: 0,
            strays: 0,
            flooded: 0,
            messages: 0,
            changed: [[0; 4]; 2],
        }
    }

    /// Of Bridge Control, with these bits beside: errors below come up.
    fn bridge_control(&self, bits: u32) -> u32 {
        bits | u32::from(self.errors) << 17
    }

    fn write(&mut self, port: usize, at: Bdf, register: u16, value: u32, enables: u8, then: Then) {
        let access = Access { at, register, write: Some((value, enables)), then };
        self.ports[port].script.push_back(access);
    }

    fn read(&mut self, port: usize, at: Bdf, register: u16, then: Then) {
        self.ports[port].script.push_back(Access { at, register, write: None, then });
    }

    /// The driver of a port's device is not there any more.
    pub(crate) fn drop_driver(&mut self, port: usize) {
        if let Some(driver) = self.ports[port].driver.take() {
            self.done += driver.done();
            self.lost += driver.lost();
        }
        self.ports[port].settled = false;
        self.unsettled.push(port);
        self.forget_change(port);
    }

    fn go(&mut self, port: usize, stage: Stage) {
        self.ports[port].stage = stage;
        self.ports[port].turn += 1;
        self.ports[port].resetting = false;
    }

    /// Where it has put what is behind its ports.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn stage(&self, port: usize) -> Stage {
        self.ports[port].stage
    }

    pub(crate) fn is_ready(&self, port: usize) -> bool {
        self.ports[port].stage == Stage::Ready
    }

    pub(crate) fn driver(&self, port: usize) -> Option<&Driver> {
        self.ports[port].driver.as_ref()
    }

    /// The drivers of model devices in use.
    fn others(&self) -> Others {
        let mut others = Others::default();
        for (other, port) in others.iter_mut().zip(&self.ports) {
            let model = port.stage == Stage::Ready && port.kind == Kind::Model;
            *other = port.driver.as_ref().filter(|_| model).map(Driver::life);
        }
        others
    }

    /// Whether the device behind a port does work of that kind.
    pub(crate) fn suits(&self, port: usize, task: Task) -> bool {
        self.driver(port).is_some_and(|driver| driver.suits(task))
    }

    /// What went wrong behind a port, and may have a cause.
    pub(crate) fn take_failure(&mut self, port: usize) -> Option<Failure> {
        self.ports[port].driver.as_mut().and_then(Driver::take_failure)
    }

    /// Whether the device behind a port has become ready since the last call.
    pub(crate) fn take_settled(&mut self, port: usize) -> bool {
        std::mem::take(&mut self.ports[port].settled)
    }

    /// Operations that ended well.
    pub(crate) fn done(&self) -> u64 {
        self.done + self.ports.iter().flat_map(|p| &p.driver).map(Driver::done).sum::<u64>()
    }

    /// Transfers that were lost with a change of a setting.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.ports.iter().flat_map(|p| &p.driver).map(Driver::lost).sum::<u64>()
    }

    /// Transfers between devices of which what they left was looked at, of drivers that are there.
    pub(crate) fn peers_right(&self) -> u64 {
        self.ports.iter().flat_map(|p| &p.driver).map(Driver::peers_right).sum()
    }

    /// Work for the device behind a port, if one is ready there.
    pub(crate) fn begin(&mut self, port: usize, burst: Burst) -> bool {
        let driver = self.ports[port].driver.as_mut();
        driver.map(|driver| driver.begin(burst)).is_some()
    }

    /// Goes on: scripts, then drivers.
    pub(crate) fn work(
        &mut self,
        now: Instant,
        out: &mut Egress<Purpose>,
        profile: &Profile,
    ) -> Verdict {
        let booting = self.booting;
        let others = self.others();
        for port in 0..self.ports.len() {
            let entry = &mut self.ports[port];
            if entry.again && !entry.busy && entry.script.is_empty() && !booting {
                entry.again = false;
                self.read(port, self.layout.port_id(port), SLOT, Then::Status);
            }
            let entry = &mut self.ports[port];
            if !entry.busy
                && let Some(access) = entry.script.pop_front()
            {
                entry.busy = true;
                emit_access((port, self.boots), &self.layout, access, out);
            }
            if let Some(driver) = &mut entry.driver {
                driver.work(now, &mut self.memory, out, &profile.work, &others)?;
                if let Some(at) = driver.next_at()
                    && entry.wakes.is_none_or(|planned| at < planned)
                {
                    entry.wakes = Some(at);
                    self.alarms.push((at, Alarm { port, turn: entry.turn, driver: true }));
                }
                if entry.stage == Stage::Stopping && driver.has_stopped() {
                    self.let_go(port);
                }
            }
            self.go_on_changing(port);
        }
        Ok(())
    }

    /// A configuration access ended.
    pub(crate) fn accessed(
        &mut self,
        now: Instant,
        (port, boot): (usize, u32),
        then: Then,
        done: &Completed<Asker>,
        payload: &[u8],
    ) {
        if boot != self.boots {
            return;
        }
        self.ports[port].busy = false;
        let value = payload.first_chunk().map_or(u32::MAX, |word| u32::from_le_bytes(*word));
        let good = done.status == CplStatus::Success;
        match then {
            Then::Nothing | Then::BusReset { .. } | Then::AccessControl { .. } | Then::GaveUp => {}
            Then::FunctionReset => self.function_reset(now, port, good && !done.doubtful),
            Then::Gate { behind, ends, .. } => {
                if let Some(id) = ends {
                    self.changed_back(now, behind, id, good);
                }
            }
            Then::Changed { id, ends: true } => self.changed_back(now, port, id, good),
            Then::Changed { id, ends: false } => self.note_change(port, id, good),
            Then::Booted => self.booting = false,
            Then::Set if good => {}
            Then::Power if good => self.ports[port].forgets = value & NO_SOFT_RESET == 0,
            Then::Status if good => self.status(now, port, value),
            Then::Status => {}
            Then::Found if good && value == ID => self.configure(port),
            Then::Found if good && value == DRIVE_ID => {
                self.read(port, self.layout.device_id(port), CLASS, Then::Class);
            }
            Then::Class if good && value >> 8 == DRIVE_CLASS => self.configure_drive(port),
            Then::Sized if good => self.place(port, value),
            Then::Found | Then::Class => self.not_yet(now, port),
            Then::Enabled if good => self.ready(port),
            Then::Enabled | Then::Set | Then::Sized | Then::Power
                if self.stage(port) == Stage::Enumerating =>
            {
                self.not_made_ready(now, port);
            }
            Then::Enabled | Then::Set | Then::Sized | Then::Power => {}
            Then::LetGo => {
                self.let_go += 1;
                self.go(port, Stage::Empty);
            }
        }
    }

    /// A driver's question was answered; the driver may be gone, and another one there.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        (port, life): (usize, u32),
        question: Question,
        done: &Completed<Asker>,
        payload: &[u8],
    ) -> Verdict {
        let others = self.others();
        match &mut self.ports[port].driver {
            Some(driver) if driver.life() == life => {
                driver.answered(now, question, done, payload, &others)
            }
            _ => Ok(()),
        }
    }
}

fn emit_access(
    (port, boot): (usize, u32),
    layout: &Layout,
    access: Access,
    out: &mut Egress<Purpose>,
) {
    let Access { at, register, write, then } = access;
    let (requester, tag) = (super::HOST_ID, Tag::new(0).expect("a tag"));
    let type1 = at != layout.upstream();
    let data = write.unwrap_or_default().0.to_le_bytes();
    let kind = match write {
        None => {
            TlpKind::ConfigRead { type1, requester, tag, destination: at, register, first_be: 0xf }
        }
        Some((_, first_be)) => {
            let destination = at;
            TlpKind::ConfigWrite {
                type1,
                requester,
                tag,
                destination,
                register,
                first_be,
                data: &data,
            }
        }
    };
    let device = layout.is_device(at);
    out.push(&Repr::new(kind), Purpose::Access { port, boot, device, then });
}

#[cfg(test)]
mod tests;
