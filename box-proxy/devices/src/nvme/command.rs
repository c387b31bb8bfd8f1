//! Commands on their way, and what their DMA is called.

use super::entry::Sqe;
use super::prp::{Prps, Segment};
use super::status::Status;
use std::collections::VecDeque;

/// Commands that the controller works on at a time. Further ones stay in their queues.
pub(super) const MAX_COMMANDS: usize = 128;
/// Of those, how many only the admin queue may use.
pub(super) const ADMIN_RESERVE: usize = 8;

/// What the flushes of a shutdown are called.
pub(super) const SHUTDOWN: u64 = 1 << 63;
/// As [`SHUTDOWN`], of a sanitize operation.
pub(super) const SANITIZE: u64 = 1 << 62;

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for a PRP list.
    List,
    /// Waits for data from the host.
    Receiving,
    /// Can be carried out.
    Runnable,
    /// Waits for what an image takes long for.
    Slow,
    /// Waits for an image to read or write its blocks.
    Transfer,
    /// Has data that the host has not all got.
    Sending,
    /// An asynchronous event request that waits for an event.
    Event,
}

impl State {
    /// Whether it waits for an image.
    pub(super) fn is_at_image(self) -> bool {
        matches!(self, Self::Slow | Self::Transfer)
    }
}

/// What a command needs before it can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// No data.
    Nothing,
    /// The host gets that many bytes.
    ToHost(usize),
    /// The host gives that many bytes.
    FromHost(usize),
    /// It waits for an event.
    Event,
}

impl Plan {
    /// Bytes of data, either way.
    pub(super) fn len(self) -> usize {
        match self {
            Self::ToHost(len) | Self::FromHost(len) => len,
            Self::Nothing | Self::Event => 0,
        }
    }
}

/// What came of carrying a command out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is done; doubleword 0 of the completion.
    Done(u32),
    /// It is done when the host has this.
    Data(Vec<u8>),
    /// It is done when that many slow operations are.
    Slow(u16),
    /// It goes on when its blocks are read or written. This data is kept for it.
    Transfer(Vec<u8>),
}

/// A command that was fetched and not yet completed.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) sq: u16,
    pub(super) sqe: Sqe,
    /// Tells its DMA from that of an earlier command in the same place.
    pub(super) serial: u32,
    pub(super) state: State,
    pub(super) plan: Plan,
    pub(super) prps: Prps,
    /// The PRP list that is to be read next.
    pub(super) list: Option<Segment>,
    pub(super) data: Vec<u8>,
    /// First segment that no DMA was started for, and where its bytes are in `data`.
    pub(super) segment: usize,
    pub(super) at: usize,
    /// DMA reads or slow operations that have not ended.
    pub(super) outstanding: u16,
    /// Of one that writes what is to be durable: flushes of the image that had failed before.
    pub(super) failed_flushes: u64,
    pub(super) error: Option<Status>,
}

/// What a DMA read of ours is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Entries of a submission queue.
    Fetch { sq: u16 },
    /// A command's PRP list.
    List { index: u16, serial: u32 },
    /// A command's data, from byte `at` on.
    Data { index: u16, serial: u32, at: u32 },
}

/// Serial numbers have 24 bits, commands' places 8, offsets in data 28.
const SERIAL_MASK: u32 = 0xff_ffff;
const _: () = assert!(MAX_COMMANDS <= 256);

impl Token {
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Fetch { sq } => u64::from(sq),
            Self::List { index, serial } => 1 << 60 | u64::from(serial) << 8 | u64::from(index),
            Self::Data { index, serial, at } => {
                2 << 60 | u64::from(at) << 32 | u64::from(serial) << 8 | u64::from(index)
            }
        }
    }

    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let (index, serial) = (bits as u16 & 0xff, (bits >> 8) as u32 & SERIAL_MASK);
        match bits >> 60 {
            0 => Some(Self::Fetch { sq: bits as u16 }),
            1 => Some(Self::List { index, serial }),
            2 => Some(Self::Data { index, serial, at: (bits >> 32) as u32 & 0xfff_ffff }),
            _ => None,
        }
    }

    /// The command it belongs to.
    pub(super) fn command(self) -> Option<(u16, u32)> {
        match self {
            Self::Fetch { .. } => None,
            Self::List { index, serial } | Self::Data { index, serial, .. } => {
                Some((index, serial))
            }
        }
    }
}

/// Every command on its way.
pub(super) struct Commands {
    slots: Vec<Option<Command>>,
    used: usize,
    /// Of those, how many wait for the image.
    slow: usize,
    /// Places kept for entries that are being fetched, by submission queue.
    fetching: Vec<(u16, u16)>,
    serial: u32,
    /// Can be carried out, in order.
    pub(super) runnable: VecDeque<u16>,
    /// Have DMA reads to be started, of a list or of data.
    pub(super) receiving: VecDeque<u16>,
    /// Have data for the host.
    pub(super) sending: VecDeque<u16>,
}

impl Commands {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..MAX_COMMANDS).map(|_| None).collect(),
            used: 0,
            slow: 0,
            fetching: Vec::new(),
            serial: 0,
            runnable: VecDeque::new(),
            receiving: VecDeque::new(),
            sending: VecDeque::new(),
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = None);
        (self.used, self.slow) = (0, 0);
        self.fetching.clear();
        self.runnable.clear();
        self.receiving.clear();
        self.sending.clear();
    }

    /// Places that entries of a queue can be fetched into.
    pub(super) fn room(&self, sq: u16) -> u16 {
        let fetching: usize = self.fetching.iter().map(|&(_, count)| usize::from(count)).sum();
        let reserve = if sq == 0 { 0 } else { ADMIN_RESERVE };
        (MAX_COMMANDS - reserve).saturating_sub(self.used + fetching) as u16
    }

    pub(super) fn start_fetch(&mut self, sq: u16, count: u16) {
        self.fetching.push((sq, count));
    }

    pub(super) fn cancel_fetch(&mut self, sq: u16) {
        self.fetching.retain(|&(q, _)| q != sq);
    }

    /// A new command's place.
    pub(super) fn insert(&mut self, sq: u16, sqe: Sqe) -> u16 {
        let index = self.slots.iter().position(Option::is_none).expect("fetches keep places");
        self.serial = (self.serial + 1) & SERIAL_MASK;
        self.used += 1;
        self.slots[index] = Some(Command {
            sq,
            sqe,
            serial: self.serial,
            state: State::Runnable,
            plan: Plan::Nothing,
            prps: Prps::default(),
            list: None,
            data: Vec::new(),
            segment: 0,
            at: 0,
            outstanding: 0,
            failed_flushes: 0,
            error: None,
        });
        index as u16
    }

    pub(super) fn get(&mut self, index: u16) -> Option<&mut Command> {
        self.slots.get_mut(usize::from(index))?.as_mut()
    }

    /// The command that a token or a slow operation means, if it is still there.
    pub(super) fn find(&mut self, index: u16, serial: u32) -> Option<&mut Command> {
        self.get(index).filter(|command| command.serial == serial)
    }

    pub(super) fn remove(&mut self, index: u16) -> Option<Command> {
        let command = self.slots.get_mut(usize::from(index))?.take()?;
        self.used -= 1;
        self.slow -= usize::from(command.state.is_at_image());
        for list in [&mut self.runnable, &mut self.receiving, &mut self.sending] {
            list.retain(|&i| i != index);
        }
        Some(command)
    }

    /// Places of a queue's commands.
    pub(super) fn of_queue(&self, sq: u16) -> Vec<u16> {
        let of_queue = |slot: &Option<Command>| slot.as_ref().is_some_and(|c| c.sq == sq);
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| of_queue(slot)).map(|(i, _)| i as u16).collect()
    }

    /// The place of a queue's command with that identifier.
    pub(super) fn by_id(&self, sq: u16, command_id: u16) -> Option<u16> {
        let wanted = |slot: &Option<Command>| {
            slot.as_ref().is_some_and(|c| c.sq == sq && c.sqe.command_id() == command_id)
        };
        self.slots.iter().position(wanted).map(|i| i as u16)
    }

    /// What the image knows a command's slow operation by.
    pub(super) fn slow_id(index: u16, serial: u32) -> u64 {
        u64::from(serial) << 8 | u64::from(index)
    }

    /// The command whose slow operation that is.
    pub(super) fn of_slow_id(id: u64) -> (u16, u32) {
        (id as u16 & 0xff, (id >> 8) as u32 & SERIAL_MASK)
    }

    /// A command waits from now on for that many operations of the image.
    pub(super) fn wait_for_image(&mut self, index: u16, state: State, count: u16) {
        debug_assert!(state.is_at_image());
        if let Some(command) = self.get(index) {
            let before = std::mem::replace(&mut command.state, state);
            command.outstanding = count;
            self.slow += usize::from(!before.is_at_image());
        }
    }

    /// A command has data for the host from now on.
    pub(super) fn set_sending(&mut self, index: u16, data: Vec<u8>) {
        if let Some(command) = self.get(index) {
            assert_eq!(data.len(), command.plan.len(), "data is as long as its PRPs were made for");
            let before = std::mem::replace(&mut command.state, State::Sending);
            command.data = data;
            self.slow -= usize::from(before.is_at_image());
            self.sending.push_back(index);
        }
    }

    /// Whether any command waits for the image.
    pub(super) fn has_slow(&self) -> bool {
        self.slow > 0
    }
}
