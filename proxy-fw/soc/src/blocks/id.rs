//! What the gateware is (`hw/regs/card.md`, "id").

use card_regs::id::{Capabilities, Id as Block};
use card_regs::values::PayloadSize;
use card_regs::{Bus, id};
use core::fmt;
use proxy_core::limits::MAX_PAYLOAD_OFFERED;

/// What `id.magic` says.
const MAGIC: u32 = id::Magic::RESET.bits();

/// Version of the map that the drivers are made for.
const MAJOR: u16 = id::Version::RESET.major();
const MINOR: u16 = id::Version::RESET.minor();

/// Bytes of a board's name.
const NAME: usize = 16;

/// Which side of the fabric a firmware is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Slot 0 faces a host.
    Host,
    /// So many slots face devices.
    Box(u8),
}

/// Why a firmware does not run on a gateware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdError {
    /// The card's registers are not where the board has them.
    NotThere {
        /// What was read for the magic number.
        read: u32,
    },
    /// The map has another version.
    Version {
        /// Major.
        major: u16,
        /// Minor.
        minor: u16,
    },
    /// It is the gateware of another board.
    Board([u8; NAME]),
    /// It cannot be this side.
    Side(Side),
    /// Its slots take smaller payloads than the firmware offers, or its queues have fewer
    /// descriptors than the firmware gives.
    TooSmall(Capabilities),
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere { read } => {
                write!(f, "no card's registers are there: {read:#010x} was read")
            }
            Self::Version { major, minor } => write!(
                f,
                "the gateware has version {major}.{minor} of the registers, the firmware is made \
                 for {MAJOR}.{MINOR}"
            ),
            Self::Board(name) => {
                f.write_str("the gateware is another board's: ")?;
                name.iter()
                    .take_while(|byte| **byte != 0)
                    .try_for_each(|byte| write!(f, "{}", byte.escape_ascii()))
            }
            Self::Side(Side::Host) => f.write_str("the gateware cannot be a host's"),
            Self::Side(Side::Box(slots)) => {
                write!(f, "the gateware cannot be a box's with {slots} slots")
            }
            Self::TooSmall(has) => write!(
                f,
                "the gateware's slots take too small payloads, or its queues too few descriptors: \
                 its capabilities are {:#010x}",
                has.bits()
            ),
        }
    }
}

/// Looks whether a firmware for the board `name`, of this side, with queues of 2 to the power of
/// `queue_order` descriptors, can run on this gateware: what it can do.
///
/// # Errors
///
/// Why it cannot.
#[inline(never)] // its stack is needed once
pub fn check<B: Bus + Copy>(
    block: Block<B>,
    name: &str,
    side: Side,
    queue_order: u32,
) -> Result<Capabilities, IdError> {
    let read = block.magic().read().bits();
    if read != MAGIC {
        return Err(IdError::NotThere { read });
    }
    let version = block.version().read();
    let (major, minor) = (version.major(), version.minor());
    if major != MAJOR || !(MINOR..).contains(&minor) {
        return Err(IdError::Version { major, minor });
    }
    let mut of = [0; NAME];
    for (index, bytes) in of.chunks_exact_mut(4).enumerate() {
        let word = block.board(index).expect("a name has four words").read();
        bytes.copy_from_slice(&word.bits().to_le_bytes());
    }
    let (used, rest) = of.split_at(name.len().min(NAME));
    if used != name.as_bytes() || rest.iter().any(|byte| *byte != 0) {
        return Err(IdError::Board(of));
    }
    let has = block.capabilities().read();
    let can = match side {
        Side::Host => has.host_role(),
        Side::Box(slots) => has.box_role() && u32::from(slots) <= has.slots().get(),
    };
    if !can {
        return Err(IdError::Side(side));
    }
    if bytes(has.max_payload()) < MAX_PAYLOAD_OFFERED || has.queue_order().get() < queue_order {
        return Err(IdError::TooSmall(has));
    }
    Ok(has)
}

/// Bytes of a payload.
fn bytes(size: PayloadSize) -> usize {
    match size {
        PayloadSize::Unknown(_) => 0,
        known => 128 << known.bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::testing::Hardware;
    use card_regs::Bits;
    use std::string::ToString;

    /// A gateware that is everything that is asked for.
    fn gateware() -> Hardware {
        let hardware = Hardware::new();
        hardware.set("id.board[0]", u32::from_le_bytes(*b"lite"));
        hardware.set("id.board[1]", u32::from(b'x'));
        set(&hardware, |has| has);
        hardware
    }

    fn set(hardware: &Hardware, change: fn(Capabilities) -> Capabilities) {
        let has = Capabilities::from_bits(0).with_host_role(true).with_box_role(true);
        let has = has.with_slots(Bits::new(4).unwrap()).with_queue_order(Bits::new(8).unwrap());
        let has = has.with_max_payload(PayloadSize::Bytes4096);
        hardware.set("id.capabilities", change(has).bits());
    }

    fn check_all(hardware: &Hardware) -> Result<Capabilities, IdError> {
        check(hardware.card().id(), "litex", Side::Host, 8)?;
        check(hardware.card().id(), "litex", Side::Box(4), 8)
    }

    #[test]
    fn the_right_gateware_is_taken() {
        let hardware = gateware();
        assert_eq!(check_all(&hardware).unwrap().slots().get(), 4);
        hardware.set("id.version", 0x0001_0005);
        check_all(&hardware).unwrap();
    }

    #[test]
    fn every_other_is_refused_with_a_reason() {
        type Change = fn(&Hardware);
        let cases: [(Change, &str); 9] = [
            (|h| h.set("id.magic", 0xffff_ffff), "no card's registers are there: 0xffffffff"),
            (|h| h.set("id.version", 0x0002_0000), "version 2.0 of the registers"),
            (|h| h.set("id.board[1]", 0x7974_7178), "another board's: litexqty"),
            (|h| h.set("id.board[3]", 1), "another board's: litex"),
            (|h| set(h, |has| has.with_host_role(false)), "cannot be a host's"),
            (|h| set(h, |has| has.with_box_role(false)), "a box's with 4 slots"),
            (|h| set(h, |has| has.with_slots(Bits::new(3).unwrap())), "a box's with 4 slots"),
            (|h| set(h, |has| has.with_max_payload(PayloadSize::Bytes128)), "too small payloads"),
            (|h| set(h, |has| has.with_queue_order(Bits::new(7).unwrap())), "too few descriptors"),
        ];
        for (change, reason) in cases {
            let hardware = gateware();
            change(&hardware);
            let error = check_all(&hardware).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
