//! The drivers of devices: what they ask for, and what the answers may be.
//!
//! | file | what |
//! |---|---|
//! | `model` | of the model device |
//! | `kinds` | writes, reads and messages of every kind |
//! | `unsure` | what it does not know of a model device whose configuration was changed under it |
//! | `wide` | blocks of a model device, and its further atomics |
//! | `peers` | what a model device does with another one |
//! | `drive`, `commands`, `queue`, `pages` | of an NVMe drive: bring-up, commands, queues, memory for data |

mod commands;
mod drive;
mod kinds;
mod model;
mod pages;
mod peers;
mod queue;
mod unsure;
mod wide;

pub(crate) use drive::{DriveDriver, PATIENCE as DRIVE_PATIENCE, Register};
pub(crate) use model::ModelDriver;
#[cfg(test)]
pub(crate) use model::OUTSTANDING;
pub(crate) use unsure::Losses;

use super::Asker;
use super::Purpose;
use super::memory::Memory;
use crate::device;
use crate::egress::Egress;
use crate::oracle::Verdict;
use crate::oracle::completion::Completed;
use crate::profile::Work;
use crate::random::Random;
use proxy_core::time::Instant;

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    Registers,
    Doorbells,
    Atomics,
    DmaWrites,
    DmaReads,
    DmaAtomics,
    /// With another device of the host.
    PeerWrites,
    PeerReads,
    PeerAtomics,
    Configuration,
    /// Transfers after which a read of no bytes says that they are done.
    DmaFlushes,
    /// Atomics of other kinds and widths.
    DmaSwaps,
    /// Writes and reads of many bytes in the device's memory.
    Wide,
    /// Reads of no bytes.
    EmptyReads,
    /// Of the device, and to it.
    Messages,
    HostMessages,
    /// Of drives only, as are the next ones.
    BlockWrites,
    BlockReads,
    BlockZeroes,
    Flushes,
}

impl Task {
    /// With the weights of a profile.
    pub(crate) fn weighed(work: &Work) -> [(Task, u32); 20] {
        [
            (Self::Registers, work.registers),
            (Self::Doorbells, work.doorbells),
            (Self::Atomics, work.atomics),
            (Self::DmaWrites, work.dma_writes),
            (Self::DmaReads, work.dma_reads),
            (Self::DmaAtomics, work.dma_atomics),
            (Self::PeerWrites, work.peer_writes),
            (Self::PeerReads, work.peer_reads),
            (Self::PeerAtomics, work.peer_atomics),
            (Self::Configuration, work.configuration),
            (Self::DmaFlushes, work.dma_flushes),
            (Self::DmaSwaps, work.dma_swaps),
            (Self::Wide, work.wide),
            (Self::EmptyReads, work.empty_reads),
            (Self::Messages, work.messages),
            (Self::HostMessages, work.host_messages),
            (Self::BlockWrites, work.block_writes),
            (Self::BlockReads, work.block_reads),
            (Self::BlockZeroes, work.block_zeroes),
            (Self::Flushes, work.flushes),
        ]
    }

    fn is_for_drives(self) -> bool {
        matches!(self, Self::BlockWrites | Self::BlockReads | Self::BlockZeroes | Self::Flushes)
    }
}

/// Some work of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    pub(crate) task: Task,
    pub(crate) left: u64,
    pub(crate) random: Random,
}

/// What a driver asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// A register, which had this version when it was asked for.
    Cell { cell: usize, version: u32 },
    /// How often the doorbell was rung since the last time.
    Rung { rung: u64 },
    /// The atomic counter.
    Add,
    /// The one of 4 bytes.
    Narrow,
    /// What was swapped in last.
    Swap,
    /// What is there, to be replaced by the one above.
    Cas { compare: u64 },
    /// Bytes of its block, from there on.
    Block { from: u16 },
    /// Bytes of its memory, from there on.
    Wide { from: u16 },
    /// No bytes.
    Nothing,
    /// Vendor and device ID.
    Id,
    /// How many commands are not done, to know which of those up to this number are lost.
    Going { upto: u64 },
    /// What a transfer left in another device's memory.
    Left { target: usize },
    /// A register of a drive's controller.
    Drive { register: Register },
}

/// The number of the driver of each port with a model device that is in use.
pub(crate) type Others = [Option<u32>; device::PARTS];

/// Something went wrong that may have a cause outside of the device.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// When what failed was begun.
    pub(crate) since: Instant,
    pub(crate) what: String,
}

/// The driver of one device.
pub(crate) enum Driver {
    Model(Box<ModelDriver>),
    Drive(Box<DriveDriver>),
}

impl Driver {
    /// Whether its device does work of that kind.
    pub(crate) fn suits(&self, task: Task) -> bool {
        matches!(self, Self::Drive(_)) == task.is_for_drives()
    }

    pub(crate) fn begin(&mut self, burst: Burst) {
        match self {
            Self::Model(driver) => driver.begin(burst),
            Self::Drive(driver) => driver.begin(burst),
        }
    }

    /// Goes on with its work as far as there is room; `others`: the drivers of model devices that
    /// are there, by port.
    pub(crate) fn work(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
        others: &Others,
    ) -> Verdict {
        match self {
            Self::Model(driver) => driver.work(now, memory, out, work, others),
            Self::Drive(driver) => driver.work(now, memory, out, work),
        }
    }

    /// When it wants to go on although nothing comes.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        match self {
            Self::Model(_) => None,
            Self::Drive(driver) => driver.next_at(),
        }
    }

    /// An interrupt of its device, with the message that it has.
    pub(crate) fn interrupt(&mut self, index: usize, message: u32, memory: &mut Memory) -> Verdict {
        match self {
            Self::Model(driver) => driver.interrupt(index, message, memory),
            Self::Drive(driver) => driver.interrupt(index, message, memory),
        }
    }

    /// A question was answered.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        question: Question,
        done: &Completed<Asker>,
        payload: &[u8],
        others: &Others,
    ) -> Verdict {
        match self {
            Self::Model(driver) => driver.answered(question, done, payload, others),
            Self::Drive(driver) => {
                driver.answered(now, question, done, payload);
                Ok(())
            }
        }
    }

    /// Its device is to be let go: it begins nothing more. Whether that takes a while.
    pub(crate) fn stop(&mut self) -> bool {
        match self {
            Self::Model(_) => false,
            Self::Drive(driver) => {
                driver.stop();
                true
            }
        }
    }

    /// Whether its device can be let go.
    pub(crate) fn has_stopped(&self) -> bool {
        match self {
            Self::Model(_) => true,
            Self::Drive(driver) => driver.has_stopped(),
        }
    }

    /// What went wrong that may have a cause outside of the device.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        match self {
            Self::Model(driver) => driver.take_failure(),
            Self::Drive(driver) => driver.take_failure(),
        }
    }

    /// Its number: the driver that was there before it may have left questions.
    pub(crate) fn life(&self) -> u32 {
        match self {
            Self::Model(driver) => driver.life,
            Self::Drive(driver) => driver.life,
        }
    }

    /// Whether everything that was begun is done.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Model(driver) => driver.is_idle(),
            Self::Drive(driver) => driver.is_idle(),
        }
    }

    /// What is not done, for a person.
    pub(crate) fn leftover(&self) -> String {
        match self {
            Self::Model(driver) => driver.leftover(),
            Self::Drive(driver) => driver.leftover(),
        }
    }

    /// Transfers with other devices of which what they left was looked at.
    pub(crate) fn peers_right(&self) -> u64 {
        match self {
            Self::Model(driver) => driver.peers.checked,
            Self::Drive(_) => 0,
        }
    }

    /// Transfers of which nothing is heard any more.
    pub(crate) fn lost(&self) -> u64 {
        match self {
            Self::Model(driver) => driver.unsure.lost,
            Self::Drive(_) => 0,
        }
    }

    /// Operations that ended well.
    pub(crate) fn done(&self) -> u64 {
        match self {
            Self::Model(driver) => driver.done,
            Self::Drive(driver) => driver.done,
        }
    }
}
