//! The bytes of messages: QEMU's `docs/interop/vfio-user.rst`, as of QEMU 11. All numbers are in
//! the machine's own byte order.

mod payload;

pub(crate) use payload::{
    Action, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Feature, IrqInfo, IrqSet, MultiEntry,
    RegionAccess, RegionInfo, RegionIoFds, Which, multi_entries,
};

use rustix::io::Errno;

/// Bytes of the header that every message has.
pub(crate) const HEADER: usize = 16;

const TYPE_MASK: u32 = 0xf;
const TYPE_COMMAND: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// What a message says or asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Version,
    DmaMap,
    DmaUnmap,
    DeviceGetInfo,
    DeviceGetRegionInfo,
    DeviceGetRegionIoFds,
    DeviceGetIrqInfo,
    DeviceSetIrqs,
    RegionRead,
    RegionWrite,
    DmaRead,
    DmaWrite,
    DeviceReset,
    RegionWriteMulti,
    DeviceFeature,
    MigDataRead,
    MigDataWrite,
    Unknown(u16),
}

/// The numbers of the commands; 14 was in drafts of the specification.
const COMMANDS: [(u16, Command); 17] = [
    (1, Command::Version),
    (2, Command::DmaMap),
    (3, Command::DmaUnmap),
    (4, Command::DeviceGetInfo),
    (5, Command::DeviceGetRegionInfo),
    (6, Command::DeviceGetRegionIoFds),
    (7, Command::DeviceGetIrqInfo),
    (8, Command::DeviceSetIrqs),
    (9, Command::RegionRead),
    (10, Command::RegionWrite),
    (11, Command::DmaRead),
    (12, Command::DmaWrite),
    (13, Command::DeviceReset),
    (15, Command::RegionWriteMulti),
    (16, Command::DeviceFeature),
    (17, Command::MigDataRead),
    (18, Command::MigDataWrite),
];

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        let known = COMMANDS.iter().find(|(known, _)| *known == number);
        known.map_or(Self::Unknown(number), |(_, command)| *command)
    }
}

impl From<Command> for u16 {
    fn from(command: Command) -> Self {
        if let Command::Unknown(number) = command {
            return number;
        }
        let known = COMMANDS.iter().find(|(_, known)| *known == command);
        known.expect("every command is in the table").0
    }
}

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Command {
        no_reply: bool,
    },
    Reply {
        error: Option<Errno>,
    },
    /// Of a type that the specification does not have.
    Unknown(u8),
}

/// A message's header. Reserved bits are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) command: Command,
    /// The whole message's, this header included.
    pub(crate) size: u32,
    pub(crate) kind: Kind,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Self {
        let flags = u32_at(bytes, 8);
        let kind = match flags & TYPE_MASK {
            TYPE_COMMAND => Kind::Command { no_reply: flags & NO_REPLY != 0 },
            TYPE_REPLY => {
                Kind::Reply { error: (flags & ERROR != 0).then(|| errno(u32_at(bytes, 12))) }
            }
            // Of four bits.
            other => Kind::Unknown(other as u8),
        };
        Self {
            id: u16_at(bytes, 0),
            command: u16_at(bytes, 2).into(),
            size: u32_at(bytes, 4),
            kind,
        }
    }

    pub(crate) fn emit(&self) -> [u8; HEADER] {
        let (flags, error) = match self.kind {
            Kind::Command { no_reply } => (TYPE_COMMAND | if no_reply { NO_REPLY } else { 0 }, 0),
            Kind::Reply { error: None } => (TYPE_REPLY, 0),
            Kind::Reply { error: Some(error) } => (TYPE_REPLY | ERROR, error.raw_os_error()),
            Kind::Unknown(kind) => (u32::from(kind), 0),
        };
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&u16::from(self.command).to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&error.to_ne_bytes());
        bytes
    }
}

/// The errno of an error reply. It may be 0 (the specification's "Header"), and a client may write
/// what is none: then it is EIO.
fn errno(raw: u32) -> Errno {
    match i32::try_from(raw) {
        Ok(raw @ 1..=4095) => Errno::from_raw_os_error(raw),
        _ => Errno::IO,
    }
}

/// A message, ready to be sent.
pub(crate) fn message(id: u16, command: Command, kind: Kind, payload: &[&[u8]]) -> Vec<u8> {
    let size = HEADER + payload.iter().map(|part| part.len()).sum::<usize>();
    let size32 = u32::try_from(size).expect("messages are within MAX_MESSAGE");
    let mut bytes = Vec::with_capacity(size);
    bytes.extend(Header { id, command, size: size32, kind }.emit());
    payload.iter().for_each(|part| bytes.extend(*part));
    bytes
}

// The callers have looked at the length.

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
