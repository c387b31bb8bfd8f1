//! The access that the caller works on.

use super::{Session, State, Step};
use crate::channel::Message;
use crate::wire::{MultiEntry, RegionAccess};
use rustix::io::Errno;

/// A request that the device takes part in.
#[derive(Debug)]
pub(super) enum InHand {
    Nothing,
    Read { message: Message, access: RegionAccess },
    Write { message: Message, access: RegionAccess },
    Reset { message: Message },
    Multi(Multi),
}

/// Several writes in one message. Each stands for itself, as if it had come alone: one that fails
/// does not stop those behind it.
#[derive(Debug)]
pub(super) struct Multi {
    message: Message,
    entries: usize,
    /// The next entry to look at.
    next: usize,
    /// Writes that succeeded.
    done: u64,
    /// The error of the first one that did not.
    error: Option<Errno>,
    /// The caller has one of them in hand.
    given: bool,
}

impl InHand {
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Whether the caller has to answer.
    pub(super) fn is_given(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Read { .. } | Self::Write { .. } | Self::Reset { .. } => true,
            Self::Multi(multi) => multi.given,
        }
    }

    /// Whether there are more accesses in the same message.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Self::Multi(multi) if multi.next < multi.entries)
    }

    pub(super) fn payload(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Read { message, .. } | Self::Write { message, .. } | Self::Reset { message } => {
                &message.payload
            }
            Self::Multi(multi) => &multi.message.payload,
        }
    }
}

impl Multi {
    pub(super) fn new(message: Message, entries: usize) -> Self {
        Self { message, entries, next: 0, done: 0, error: None, given: false }
    }

    pub(super) fn answered(&mut self, result: Result<(), Errno>) {
        assert!(self.given, "an answer, but no access is in hand");
        self.given = false;
        self.count(result);
    }

    fn count(&mut self, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.done += 1,
            Err(error) => self.error = self.error.or(Some(error)),
        }
    }
}

impl Session {
    /// The next write of several, or their reply.
    pub(super) fn next_of_multi(&mut self, state: &mut State) -> Option<Step> {
        let InHand::Multi(multi) = &mut self.in_hand else {
            return None;
        };
        while multi.next < multi.entries {
            let entry = MultiEntry::parse(&multi.message.payload, multi.next);
            multi.next += 1;
            let access = entry.access;
            if access.count as usize > MultiEntry::DATA {
                multi.count(Err(Errno::INVAL));
                continue;
            }
            match state.device.may_write(&access) {
                Ok(Some(region)) => {
                    multi.given = true;
                    let data = entry.data_at..entry.data_at + access.count as usize;
                    return Some(Step::Write { region, offset: access.offset, data });
                }
                Ok(None) => multi.count(Ok(())),
                Err(error) => multi.count(Err(error)),
            }
        }
        let InHand::Multi(multi) = std::mem::replace(&mut self.in_hand, InHand::Nothing) else {
            unreachable!("it was looked at");
        };
        let done = multi.done.to_ne_bytes();
        let result = match multi.error {
            Some(error) if multi.done == 0 => Err(error),
            _ => Ok((&done[..], &[][..])),
        };
        self.reply(state, &multi.message, result);
        None
    }
}
