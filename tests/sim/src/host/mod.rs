//! A host: root complex, operating system and drivers, above a host proxy.

pub(crate) mod driver;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod root;

use crate::oracle::peers::State;
use driver::Question;
use os::Then;
use tlp_codec::ids::Bdf;

/// Functions of a device that can be in use. A function counts as a slot and as a port: number `n`
/// is function `n % FUNCTIONS` of what is in slot, or behind port, `n / FUNCTIONS`. The first one
/// stands for its slot or port, too.
pub(crate) const FUNCTIONS: usize = 2;

/// The first function of the same device.
pub(crate) const fn first(port: usize) -> usize {
    port - port % FUNCTIONS
}

/// A slot as its box calls it, with the function that is meant where it is not the first.
pub(crate) fn slot_name(slot: usize) -> String {
    format!("slot {}{}", slot / FUNCTIONS + 1, function_name(slot))
}

/// A port as its host calls it, with the function of its device that is meant.
pub(crate) fn port_name(port: usize) -> String {
    format!("port {}{}", port / FUNCTIONS, function_name(port))
}

/// A host, which is that node, too.
pub(crate) fn host_name(host: usize) -> String {
    format!("host {host} (node {})", host + 1)
}

fn function_name(place: usize) -> String {
    match place % FUNCTIONS {
        0 => String::new(),
        function => format!(", function {function}"),
    }
}

/// All functions of the same device.
pub(crate) fn all_of(port: usize) -> std::ops::Range<usize> {
    first(port)..first(port) + FUNCTIONS
}

/// The root complex's own ID. Not 0: that is what a box proxy calls itself towards its devices.
pub(crate) const HOST_ID: Bdf = Bdf::from_bits(1 << 3);

/// What a TLP of the root complex is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A write to the device behind a port.
    Posted {
        port: usize,
    },
    /// A message to everything below the switch, and one that ends there.
    Broadcast,
    Ends,
    /// A question of a port's driver, the one of that number, to its device or to another port's.
    Driver {
        port: usize,
        life: u32,
        to: usize,
        question: Question,
    },
    /// A configuration access in a port's script: to the device, or to the switch. Of which start
    /// of the operating system.
    Access {
        port: usize,
        boot: u32,
        device: bool,
        then: Then,
    },
    /// What one device sends another one and the switch has redirected: the binding that it is of, if
    /// that is known, the port that it is for and who was behind it when it came to the root complex, the
    /// request, and whether it may be lost.
    PassedOn {
        from: Option<usize>,
        port: usize,
        to: Option<State>,
        request: u64,
        optional: bool,
    },
    /// An answer to the device that was behind a port when it asked: under which binding, and the
    /// request.
    Answer {
        binding: usize,
        request: u64,
    },
    /// An answer too many, or a wrong one.
    Lie,
}

/// What a request of the root complex is for, and the binding that it was sent on.
pub(crate) type Asker = (Purpose, Option<usize>);

impl Purpose {
    /// The port whose device it goes to, if it goes where the port leads.
    pub(crate) fn device(&self) -> Option<usize> {
        match self {
            Self::Posted { port } | Self::Driver { to: port, .. } => Some(*port),
            Self::Access { port, device, .. } => device.then_some(*port),
            Self::Answer { .. }
            | Self::Lie
            | Self::PassedOn { .. }
            | Self::Broadcast
            | Self::Ends => None,
        }
    }
}
