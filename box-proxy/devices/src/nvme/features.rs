//! Features (NVM Express 1.4 section 5.21.1).

use super::Nvme;
use super::entry::Sqe;
use super::events::Event;
use super::logs::TEMPERATURE;
use super::status::Status;
use std::time::Duration;

const ARBITRATION: u8 = 0x01;
const POWER_MANAGEMENT: u8 = 0x02;
const TEMPERATURE_THRESHOLD: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
const WRITE_CACHE: u8 = 0x06;
const NUMBER_OF_QUEUES: u8 = 0x07;
const INTERRUPT_COALESCING: u8 = 0x08;
const INTERRUPT_VECTOR: u8 = 0x09;
const WRITE_ATOMICITY: u8 = 0x0a;
const EVENT_CONFIGURATION: u8 = 0x0b;

/// TMPSEL in doubleword 11 of the temperature threshold: Fh is all sensors when it is set, and
/// reserved when it is read.
const SENSORS: u32 = 0xf << 16;

/// Arbitration burst that the controller likes best, and the most that it makes of a larger one
/// (7 is no limit): 2^3 commands.
pub(super) const RECOMMENDED_BURST: u8 = 3;

/// What the host has set.
#[derive(Clone, Debug)]
pub(super) struct Features {
    most_queues: u16,
    io_queues: u16,
    arbitration: u32,
    over_threshold: u16,
    under_threshold: u16,
    error_recovery: u32,
    write_cache: bool,
    coalescing: u32,
    /// A bit for each vector that coalescing is off for.
    uncoalesced: u128,
    write_atomicity: u32,
    events: u32,
}

impl Features {
    pub(super) fn new(most_queues: u16) -> Self {
        Self {
            most_queues,
            io_queues: most_queues,
            arbitration: RECOMMENDED_BURST.into(),
            over_threshold: super::identify::WARNING_TEMPERATURE,
            under_threshold: 0,
            error_recovery: 0,
            write_cache: true,
            coalescing: 0,
            uncoalesced: 0,
            write_atomicity: 0,
            events: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.most_queues);
    }

    /// Pairs of I/O queues that the host has been given.
    pub(super) fn io_queues(&self) -> u16 {
        self.io_queues
    }

    /// Entries that are fetched from one queue before it is another's turn: the host's
    /// arbitration burst, as far as we like.
    pub(super) fn burst(&self) -> u16 {
        1 << (self.arbitration & 7).min(RECOMMENDED_BURST.into())
    }

    /// Whether writes may stay in the cache until a flush.
    pub(super) fn write_cache(&self) -> bool {
        self.write_cache
    }

    /// After how many completions, or how long after the first, a queue's interrupt is due.
    /// The admin queue's are never held back.
    pub(super) fn coalescing(&self, queue: usize, vector: u16) -> (u32, Duration) {
        let off = queue == 0 || self.uncoalesced >> (vector % 128) & 1 != 0;
        let time = Duration::from_micros(100) * (self.coalescing >> 8 & 0xff);
        if off || time.is_zero() { (1, time) } else { ((self.coalescing & 0xff) + 1, time) }
    }

    /// Critical warning bits for the health log: bit 1, temperature.
    pub(super) fn critical_warning(&self) -> u8 {
        let beyond = TEMPERATURE >= self.over_threshold || TEMPERATURE <= self.under_threshold;
        u8::from(beyond) << 1
    }

    fn wants_temperature_events(&self) -> bool {
        self.events & 2 != 0
    }

    fn threshold(&mut self, selector: u32) -> Option<&mut u16> {
        // Sensor 0 is the composite temperature, the only one.
        match (selector >> 16 & 0xf, selector >> 20 & 3) {
            (0, 0) => Some(&mut self.over_threshold),
            (0, 1) => Some(&mut self.under_threshold),
            _ => None,
        }
    }

    fn get(&mut self, feature: u8, dword11: u32) -> Result<u32, Status> {
        Ok(match feature {
            ARBITRATION => self.arbitration,
            POWER_MANAGEMENT => 0,
            TEMPERATURE_THRESHOLD => {
                (*self.threshold(dword11).ok_or(Status::INVALID_FIELD)?).into()
            }
            ERROR_RECOVERY => self.error_recovery,
            WRITE_CACHE => self.write_cache.into(),
            NUMBER_OF_QUEUES => {
                let zero_based = u32::from(self.io_queues) - 1;
                zero_based << 16 | zero_based
            }
            INTERRUPT_COALESCING => self.coalescing,
            INTERRUPT_VECTOR => {
                let vector = dword11 & 0xffff;
                if vector > self.most_queues.into() {
                    return Err(Status::INVALID_FIELD);
                }
                vector | u32::from(self.uncoalesced >> vector & 1 != 0) << 16
            }
            WRITE_ATOMICITY => self.write_atomicity,
            EVENT_CONFIGURATION => self.events,
            _ => return Err(Status::INVALID_FIELD),
        })
    }
}

impl Nvme {
    pub(super) fn get_feature(&mut self, sqe: &Sqe) -> Result<u32, Status> {
        let feature = sqe.dword(10) as u8;
        let mut defaults = Features::new(self.config.io_queues);
        match sqe.dword(10) >> 8 & 7 {
            0 => self.features.get(feature, sqe.dword(11)),
            // Nothing is saved, so that the saved value is the default one.
            1 | 2 => defaults.get(feature, sqe.dword(11)),
            // Supported capabilities: changeable.
            3 => defaults.get(feature, sqe.dword(11)).map(|_| 1 << 2),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set_feature(&mut self, sqe: &Sqe) -> Result<u32, Status> {
        let (feature, mut value) = (sqe.dword(10) as u8, sqe.dword(11));
        if feature == TEMPERATURE_THRESHOLD && value & SENSORS == SENSORS {
            // To set them all is to set the only one.
            value &= !SENSORS;
        }
        let f = &mut self.features;
        f.get(feature, value)?;
        if sqe.dword(10) >> 31 != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        match feature {
            ARBITRATION => f.arbitration = value,
            // There is power state 0 only.
            POWER_MANAGEMENT if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            TEMPERATURE_THRESHOLD => {
                let threshold = f.threshold(value).ok_or(Status::INVALID_FIELD)?;
                *threshold = value as u16;
                if f.critical_warning() != 0 && f.wants_temperature_events() {
                    self.raise_event(Event::Temperature);
                }
            }
            ERROR_RECOVERY => f.error_recovery = value & 0x1_ffff,
            WRITE_CACHE => f.write_cache = value & 1 != 0,
            NUMBER_OF_QUEUES => return self.set_queues(value),
            INTERRUPT_COALESCING => f.coalescing = value & 0xffff,
            INTERRUPT_VECTOR => {
                let bit = 1 << (value & 0x7f);
                f.uncoalesced = f.uncoalesced & !bit | if value >> 16 & 1 != 0 { bit } else { 0 };
            }
            WRITE_ATOMICITY => f.write_atomicity = value & 1,
            EVENT_CONFIGURATION => {
                f.events = value;
                if f.critical_warning() != 0 && f.wants_temperature_events() {
                    self.raise_event(Event::Temperature);
                }
            }
            _ => {}
        }
        Ok(0)
    }

    /// Submission and completion queues come in pairs here: the host gets the larger number of
    /// both kinds, as far as there are that many.
    fn set_queues(&mut self, value: u32) -> Result<u32, Status> {
        let (sqs, cqs) = (value & 0xffff, value >> 16);
        if sqs == 0xffff || cqs == 0xffff {
            return Err(Status::INVALID_FIELD);
        }
        if self.queues.has_io_queues() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let wanted = sqs.max(cqs) + 1;
        self.features.io_queues = wanted.min(self.config.io_queues.into()) as u16;
        self.features.get(NUMBER_OF_QUEUES, 0)
    }
}
