//! An accelerator for measurements: a DMA engine with as many tags and as large read requests as
//! one wants, device memory, and registers that say how long it took and what came.
//!
//! `docs/accelerator.md` is the register map, [`regs`] the same as constants.

mod engine;
mod job;
mod memory;
pub mod regs;
#[cfg(test)]
mod tests;

use crate::endpoint::{
    BarLayout, Endpoint, Function, FunctionReset, Layout, MAX_TAGS, MsixLayout, Port, ReadDone,
    read_registers, written_registers,
};
use job::{Failure, Slot};
use memory::Memory;
use std::fmt;
use std::time::Duration;

/// What can be chosen about an accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of device memory: a power of two, 4 KB to 64 GB.
    pub memory_size: u64,
    /// Tags of the DMA engine, 1 to 768; with more than 256 it can use tags of 10 bits.
    pub tags: u16,
    /// Largest read request in bytes: a power of two, 64 to 4096.
    pub read_request: u16,
    /// Largest payload in bytes that the device is able of: a power of two, 128 to 4096.
    pub max_payload: u16,
    /// Device serial number.
    pub serial: u64,
    /// How long after a reset configuration requests are answered with retry status.
    pub ready_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_size: regs::DEFAULT_MEMORY_SIZE,
            tags: regs::DEFAULT_TAGS,
            read_request: regs::DEFAULT_READ_REQUEST,
            max_payload: 4096,
            serial: 0,
            ready_after: Duration::ZERO,
        }
    }
}

/// A value that an accelerator cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Which setting.
    pub setting: &'static str,
    /// Its value.
    pub value: u64,
    /// What it has to be.
    pub allowed: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, value, allowed } = self;
        write!(f, "accelerator: {setting} is {value}; it has to be {allowed}")
    }
}

impl std::error::Error for ConfigError {}

/// The accelerator's function. [`Accelerator::device`] makes a device of it.
pub struct Accelerator {
    memory: Memory,
    slots: [Slot; regs::SLOTS],
    /// Whose turn it is.
    turn: usize,
    /// Jobs started so far: tells one job's DMA from another's.
    generation: u32,
    scratch: u32,
    counter: u32,
    tags: u16,
    read_request: u16,
    write_payload: u16,
    config: Config,
    bad_doorbells: u32,
    stats: Stats,
}

#[derive(Default)]
struct Stats {
    jobs_started: u64,
    jobs_done: u64,
    jobs_failed: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Accelerator {
    /// A device with power, out of reset.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the setting that is out of its range.
    pub fn device(config: Config) -> Result<Endpoint<Self>, ConfigError> {
        config.check()?;
        let function = Self {
            memory: Memory::new(config.memory_size),
            slots: std::array::from_fn(|_| Slot::new()),
            turn: 0,
            generation: 0,
            scratch: 0,
            counter: 0,
            tags: config.tags,
            read_request: config.read_request,
            write_payload: 4096,
            bad_doorbells: 0,
            stats: Stats::default(),
            config,
        };
        Ok(Endpoint::new(function.layout(), function))
    }

    fn layout(&self) -> Layout {
        let registers =
            BarLayout { size: regs::REGISTER_BAR_SIZE, wide: false, prefetchable: false };
        let memory = BarLayout { size: self.config.memory_size, wide: true, prefetchable: true };
        let mut bars = [None; 6];
        bars[regs::REGISTER_BAR] = Some(registers);
        bars[regs::MEMORY_BAR] = Some(memory);
        Layout {
            vendor: regs::VENDOR_ID,
            device: regs::DEVICE_ID,
            subsystem_vendor: regs::VENDOR_ID,
            subsystem: 1,
            revision: 1,
            class: regs::CLASS_CODE,
            serial: self.config.serial,
            bars,
            msix: Some(MsixLayout {
                vectors: regs::VECTORS,
                bar: regs::REGISTER_BAR,
                table: regs::MSIX_TABLE as u32,
                pba: regs::MSIX_PBA as u32,
            }),
            msi: regs::VECTORS as u8,
            max_payload: self.config.max_payload,
            tags: self.config.tags,
            max_read_request: self.config.read_request,
            no_snoop_data: false,
            link_speed: 4,
            link_width: 16,
            ready_after: self.config.ready_after,
        }
    }

    fn read_register(&mut self, port: &Port, now: Duration, at: u64) -> u32 {
        match at {
            regs::ID => regs::ID_VALUE,
            regs::VERSION => regs::VERSION_VALUE,
            regs::CAPABILITIES => {
                let fixed = regs::SLOTS as u32 | u32::from(regs::VECTORS) << 8;
                fixed | u32::from(self.config.tags) << 16
            }
            regs::PAYLOAD => port.max_write() as u32 | (port.max_read_request() as u32) << 16,
            regs::MEMORY_SIZE => self.memory.len() as u32,
            0x014 => (self.memory.len() >> 32) as u32,
            regs::SCRATCH => self.scratch,
            regs::COUNTER => std::mem::take(&mut self.counter),
            regs::RUNNING => {
                let bit = |(n, slot): (usize, &Slot)| u32::from(slot.run().is_some()) << n;
                self.slots.iter().enumerate().map(bit).sum()
            }
            regs::TAGS => self.tags.into(),
            regs::READ_REQUEST => self.read_request.into(),
            regs::BAD_DOORBELLS => self.bad_doorbells,
            regs::IN_FLIGHT => port.reads_in_flight().into(),
            regs::WRITE_PAYLOAD => self.write_payload.into(),
            _ => match slot_register(at) {
                Some((slot, register)) => self.slots[slot].read(now, register),
                None => 0,
            },
        }
    }

    fn write_register(&mut self, port: &mut Port, now: Duration, at: u64, value: u32) {
        match at {
            regs::SCRATCH => self.scratch = value,
            regs::COUNTER_ADD => self.counter = self.counter.wrapping_add(value),
            regs::CONTROL if value & regs::CONTROL_RESET != 0 => {
                port.cancel_reads(|_| true);
                port.drop_writes();
                self.reset_registers(port);
            }
            regs::ABORT => {
                for slot in (0..regs::SLOTS).filter(|slot| value >> slot & 1 != 0) {
                    self.abort(port, now, slot);
                }
            }
            regs::TAGS => {
                self.tags = value.clamp(1, self.config.tags.into()) as u16;
                port.set_tags(self.tags);
            }
            regs::READ_REQUEST => {
                let value = value.clamp(64, 4096);
                self.read_request = 1 << value.ilog2();
                port.set_max_read_request(self.read_request.into());
            }
            regs::WRITE_PAYLOAD => {
                self.write_payload = 1 << value.clamp(64, 4096).ilog2();
                port.set_max_write(self.write_payload.into());
            }
            _ => {
                if let Some((slot, register)) = slot_register(at) {
                    self.slots[slot].write(register, value);
                } else if let Some(slot) = doorbell_slot(at) {
                    self.doorbell(port, now, slot, value);
                }
            }
        }
    }

    fn doorbell(&mut self, port: &mut Port, now: Duration, index: usize, job_id: u32) {
        let slot = &mut self.slots[index];
        if slot.run().is_some() {
            self.bad_doorbells = self.bad_doorbells.wrapping_add(1);
            return;
        }
        self.generation = engine::Token::next_generation(self.generation);
        self.stats.jobs_started += 1;
        slot.start(now, job_id, self.generation);
        if let Err(failure) = slot.check(self.memory.len()) {
            self.end(port, now, index, Err(failure));
        }
    }

    fn abort(&mut self, port: &mut Port, now: Duration, index: usize) {
        let Some(run) = self.slots[index].run() else { return };
        let generation = run.generation;
        port.cancel_reads(|token| engine::Token::from_bits(token).generation == generation);
        self.slots[index].end(now, Err(Failure(regs::ERROR_ABORTED)));
        self.stats.jobs_failed += 1;
        self.check_bus(port, now);
    }

    /// Ends a job and tells the host, if it wants that.
    fn end(&mut self, port: &mut Port, now: Duration, index: usize, result: Result<(), Failure>) {
        let slot = &mut self.slots[index];
        match result {
            Ok(()) => self.stats.jobs_done += 1,
            Err(_) => self.stats.jobs_failed += 1,
        }
        slot.end(now, result);
        if let Some(vector) = slot.vector() {
            port.interrupt(vector);
        }
    }

    fn reset_registers(&mut self, port: &mut Port) {
        for slot in &mut self.slots {
            if slot.run().is_some() {
                self.stats.jobs_failed += 1;
            }
            *slot = Slot::new();
        }
        (self.turn, self.scratch, self.counter, self.bad_doorbells) = (0, 0, 0, 0);
        (self.tags, self.read_request) = (self.config.tags, self.config.read_request);
        port.set_tags(self.tags);
        port.set_max_read_request(self.read_request.into());
        self.write_payload = 4096;
        port.set_max_write(self.write_payload.into());
    }
}

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let power =
            |value: u64, low, high| value.is_power_of_two() && (low..=high).contains(&value);
        let error = |setting, value, allowed| Err(ConfigError { setting, value, allowed });
        if !power(self.memory_size, 4096, 64 << 30) {
            return error("memory_size", self.memory_size, "a power of two from 4096 to 64 GB");
        }
        if !(1..=MAX_TAGS).contains(&self.tags) {
            return error("tags", self.tags.into(), "1 to 768");
        }
        if !power(self.read_request.into(), 64, 4096) {
            let value = self.read_request.into();
            return error("read_request", value, "a power of two from 64 to 4096");
        }
        if !power(self.max_payload.into(), 128, 4096) {
            let value = self.max_payload.into();
            return error("max_payload", value, "a power of two from 128 to 4096");
        }
        Ok(())
    }
}

fn slot_register(at: u64) -> Option<(usize, u64)> {
    let offset = at.checked_sub(regs::SLOT_BASE)?;
    let slot = (offset / regs::SLOT_STRIDE) as usize;
    (slot < regs::SLOTS).then_some((slot, offset % regs::SLOT_STRIDE))
}

fn doorbell_slot(at: u64) -> Option<usize> {
    let slot = (at.checked_sub(regs::DOORBELL_BASE)? / 4) as usize;
    (slot < regs::SLOTS).then_some(slot)
}

impl Function for Accelerator {
    fn read(&mut self, port: &mut Port, now: Duration, bar: usize, offset: u64, data: &mut [u8]) {
        if bar == regs::MEMORY_BAR {
            data.copy_from_slice(self.memory.run(offset, data.len() as u64));
            return;
        }
        read_registers(offset, data, |at| self.read_register(port, now, at));
    }

    fn write(&mut self, port: &mut Port, now: Duration, bar: usize, offset: u64, data: &[u8]) {
        if bar == regs::MEMORY_BAR {
            self.memory.put(offset, data);
            return;
        }
        for (at, value) in written_registers(offset, data) {
            self.write_register(port, now, at, value);
        }
    }

    fn read_done(&mut self, port: &mut Port, now: Duration, done: ReadDone) {
        self.piece_came(port, now, done);
    }

    fn reset(&mut self, port: &mut Port, _now: Duration, reset: FunctionReset) {
        self.reset_registers(port);
        if reset == FunctionReset::Power {
            self.memory.clear();
        }
    }

    fn work(&mut self, port: &mut Port, now: Duration) {
        self.advance(port, now);
    }

    fn work_at(&self) -> Option<Duration> {
        self.computes().then_some(Duration::ZERO)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("device.jobs_started", self.stats.jobs_started),
            ("device.jobs_done", self.stats.jobs_done),
            ("device.jobs_failed", self.stats.jobs_failed),
            ("device.bad_doorbells", self.bad_doorbells.into()),
            ("device.job_bytes_read", self.stats.bytes_read),
            ("device.job_bytes_written", self.stats.bytes_written),
        ]
    }
}
