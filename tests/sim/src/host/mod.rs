//! A host: root complex, operating system and drivers, above a host proxy.

pub(crate) mod driver;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod root;

use driver::Question;
use os::Then;
use tlp_codec::ids::Bdf;

/// The root complex's own ID. Not 0: that is what a box proxy calls itself towards its devices.
pub(crate) const HOST_ID: Bdf = Bdf::from_bits(1 << 3);

/// A downstream port's ID.
pub(crate) fn port_id(port: usize) -> Bdf {
    Bdf::from_bits(2 << 8 | (port as u16) << 3)
}

/// The ID of the device behind a port.
pub(crate) fn device_id(port: usize) -> Bdf {
    Bdf::from_bits((3 + port as u16) << 8)
}

/// Where the registers of the device behind a port are.
pub(crate) fn window(port: usize) -> u64 {
    0xc000_0000 + port as u64 * 0x10_0000
}

/// The port whose device has registers at an address.
pub(crate) fn port_at(address: u64) -> Option<usize> {
    let port = address.checked_sub(window(0))? / 0x10_0000;
    (port < 256).then_some(port as usize)
}

/// The port that the device of that ID is behind.
pub(crate) fn port_of(id: Bdf) -> Option<usize> {
    usize::from(id.bus().get()).checked_sub(3)
}

/// What a TLP of the root complex is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A write to the device behind a port.
    Posted { port: usize },
    /// A question of a port's driver, the one of that number, to its device or to another port's.
    Driver { port: usize, life: u32, to: usize, question: Question },
    /// A configuration access in a port's script: to the device, or to the switch. Of which start
    /// of the operating system.
    Access { port: usize, boot: u32, device: bool, then: Then },
    /// An answer to the device that was behind a port when it asked: under which binding, and the
    /// request.
    Answer { binding: usize, request: u64 },
}

/// What a request of the root complex is for, and the binding that it was sent on.
pub(crate) type Asker = (Purpose, Option<usize>);

impl Purpose {
    /// The port whose device it goes to, if it goes where the port leads.
    pub(crate) fn device(&self) -> Option<usize> {
        match self {
            Self::Posted { port } | Self::Driver { to: port, .. } => Some(*port),
            Self::Access { port, device, .. } => device.then_some(*port),
            Self::Answer { .. } => None,
        }
    }
}
