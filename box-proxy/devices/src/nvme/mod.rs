//! An NVM Express 1.4 controller over image files.
//!
//! - [`regs`], `registers`: controller registers and what writing them does;
//! - `queue`, `entry`, `prp`: queues, their entries, where a command's data is;
//! - `engine`: how commands advance: fetch, data, execution, completion, interrupt;
//! - `admin`, `queues`, `features`, `identify`, `logs`, `events`, `sanitize`: admin commands;
//! - `failures`: what the log is told of what goes wrong;
//! - `io`: NVM commands; `namespace`, [`image`]: the blocks; `background`: threads for what waits
//!   for storage; `at_image`: what commands wait for there.

mod admin;
mod at_image;
mod background;
mod command;
mod engine;
mod entry;
mod events;
mod failures;
mod features;
mod identify;
pub mod image;
mod io;
mod logs;
mod namespace;
mod prp;
mod queue;
mod queues;
mod registers;
pub mod regs;
mod sanitize;
pub mod status;
#[cfg(test)]
mod tests;

pub use namespace::BlockSize;

use crate::endpoint::{
    BarLayout, Endpoint, Function, FunctionReset, Layout, MsixLayout, Port, ReadDone,
    read_registers, written_registers,
};
use at_image::Looks;
use command::Commands;
use events::Events;
use failures::Failures;
use features::Features;
use image::Image;
use logs::{ErrorLog, Health};
use namespace::Namespace;
use queues::Queues;
use registers::Registers;
use sanitize::Sanitize;
use std::time::Duration;

/// Pairs of I/O queues that a controller can have.
pub const MAX_IO_QUEUES: u16 = 64;
/// Namespaces that a controller can have.
pub const MAX_NAMESPACES: usize = 32;
/// Largest data transfer of a command in bytes, as a power of two of 4 KB pages (MDTS).
pub const MDTS: u8 = 5;

/// What can be chosen about a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Serial number, 1 to 20 printable ASCII characters.
    pub serial_number: String,
    /// Model number, 1 to 40 printable ASCII characters.
    pub model: String,
    /// Pairs of I/O queues, 1 to [`MAX_IO_QUEUES`]. Vectors are one more.
    pub io_queues: u16,
    /// Device serial number capability, from which namespaces' identifiers follow too.
    pub serial: u64,
    /// Largest payload in bytes that the device is able of: a power of two, 128 to 4096.
    pub max_payload: u16,
    /// Tags for DMA reads, 1 to 256.
    pub tags: u16,
    /// How long after a reset configuration requests are answered with retry status.
    pub ready_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            serial_number: "DXPU0001".into(),
            model: "DxPU NVMe model".into(),
            io_queues: 16,
            serial: 0x1b36_00ff_fe00_0001,
            max_payload: 4096,
            tags: 64,
            ready_after: Duration::ZERO,
        }
    }
}

/// A setting that a controller cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("NVMe: {setting} is {value}; it has to be {allowed}")]
    Range {
        /// Which setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// What it has to be.
        allowed: &'static str,
    },
    /// A text is too long, empty, or not printable ASCII.
    #[error("NVMe: {setting} is {value:?}; it has to be 1 to {most} printable ASCII characters")]
    Text {
        /// Which setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Most characters.
        most: usize,
    },
}

/// The controller's function. [`Nvme::device`] makes a device of it.
pub struct Nvme {
    config: Config,
    namespaces: Vec<Namespace>,
    registers: Registers,
    queues: Queues,
    commands: Commands,
    features: Features,
    events: Events,
    errors: ErrorLog,
    health: Health,
    /// Of reading submission queues.
    unreadable: Failures,
    sanitize: Sanitize,
    /// Flushes that the shutdown waits for.
    shutdown_flushes: usize,
    /// A shutdown was asked for whose flushes are still to be started.
    shutdown_wanted: bool,
    /// When images are asked again for what was started.
    looks: Looks,
    /// When there is something to do although nothing comes.
    work_at: Option<Duration>,
    /// Interrupt vectors held back by the mask register.
    held_interrupts: u32,
}

impl Nvme {
    /// A drive with power, out of reset, with a namespace for each image, numbered from 1.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the setting that cannot be.
    pub fn device(
        config: Config,
        namespaces: Vec<(Box<dyn Image>, BlockSize)>,
    ) -> Result<Endpoint<Self>, ConfigError> {
        config.check(namespaces.len())?;
        let numbered = (1..).zip(namespaces);
        let namespaces: Vec<Namespace> =
            numbered.map(|(nsid, (image, block))| Namespace::new(nsid, image, block)).collect();
        let function = Self {
            registers: Registers::default(),
            queues: Queues::new(config.io_queues),
            commands: Commands::new(),
            features: Features::new(config.io_queues),
            events: Events::default(),
            errors: ErrorLog::default(),
            health: Health::default(),
            unreadable: Failures::default(),
            sanitize: Sanitize::default(),
            shutdown_flushes: 0,
            shutdown_wanted: false,
            looks: Looks::default(),
            work_at: None,
            held_interrupts: 0,
            namespaces,
            config,
        };
        Ok(Endpoint::new(function.layout(), function))
    }

    fn layout(&self) -> Layout {
        let registers =
            BarLayout { size: regs::REGISTER_BAR_SIZE, wide: true, prefetchable: false };
        Layout {
            vendor: regs::VENDOR_ID,
            device: regs::DEVICE_ID,
            subsystem_vendor: regs::VENDOR_ID,
            subsystem: 1,
            revision: 1,
            class: regs::CLASS_CODE,
            serial: self.config.serial,
            bars: [Some(registers), None, None, None, None, None],
            msix: Some(MsixLayout {
                vectors: self.config.io_queues + 1,
                bar: regs::REGISTER_BAR,
                table: regs::MSIX_TABLE as u32,
                pba: regs::MSIX_PBA as u32,
            }),
            msi: 32,
            max_payload: self.config.max_payload,
            tags: self.config.tags,
            max_read_request: 4096,
            no_snoop_data: false,
            link_speed: 4,
            link_width: 4,
            ready_after: self.config.ready_after,
        }
    }

    /// Whether nothing that a reset gave up can change a block any more.
    fn images_are_settled(&self) -> bool {
        self.namespaces.iter().all(|namespace| namespace.image.is_settled())
    }

    /// The namespace of that number.
    ///
    /// # Errors
    ///
    /// Invalid Namespace or Format.
    fn namespace(&mut self, nsid: u32) -> Result<&mut Namespace, status::Status> {
        let index = (nsid as usize).wrapping_sub(1);
        self.namespaces.get_mut(index).ok_or(status::Status::INVALID_NAMESPACE)
    }
}

impl Config {
    fn check(&self, namespaces: usize) -> Result<(), ConfigError> {
        let range = |holds, setting, value, allowed| {
            if holds { Ok(()) } else { Err(ConfigError::Range { setting, value, allowed }) }
        };
        let queues = (1..=MAX_IO_QUEUES).contains(&self.io_queues);
        range(queues, "io_queues", self.io_queues.into(), "1 to 64")?;
        let tags = (1..=256).contains(&self.tags);
        range(tags, "tags", self.tags.into(), "1 to 256")?;
        let payload =
            self.max_payload.is_power_of_two() && (128..=4096).contains(&self.max_payload);
        let allowed = "a power of two from 128 to 4096";
        range(payload, "max_payload", self.max_payload.into(), allowed)?;
        let some = (1..=MAX_NAMESPACES).contains(&namespaces);
        range(some, "the number of namespaces", namespaces as u64, "1 to 32")?;
        let texts = [("serial_number", &self.serial_number, 20), ("model", &self.model, 40)];
        for (setting, value, most) in texts {
            let printable = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
            if value.is_empty() || value.len() > most || !printable {
                return Err(ConfigError::Text { setting, value: value.clone(), most });
            }
        }
        Ok(())
    }
}

impl Function for Nvme {
    fn read(
        &mut self,
        _port: &mut Port,
        _now: Duration,
        _bar: usize,
        offset: u64,
        data: &mut [u8],
    ) {
        read_registers(offset, data, |at| self.registers.read(at));
    }

    fn write(&mut self, port: &mut Port, now: Duration, _bar: usize, offset: u64, data: &[u8]) {
        for (at, value) in written_registers(offset, data) {
            self.write_register(port, now, at, value);
        }
    }

    fn read_done(&mut self, port: &mut Port, now: Duration, done: ReadDone) {
        self.dma_done(port, now, done);
    }

    fn reset(&mut self, port: &mut Port, _now: Duration, reset: FunctionReset) {
        if reset == FunctionReset::Power {
            self.health.power_lost(self.registers.shut_down_well());
        }
        self.reset_controller(port);
        self.registers = Registers::default();
    }

    fn is_reset(&self) -> bool {
        self.images_are_settled()
    }

    fn work(&mut self, port: &mut Port, now: Duration) {
        self.advance(port, now);
    }

    fn work_at(&self) -> Option<Duration> {
        self.work_at
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.health.counters(self.errors.count())
    }
}
