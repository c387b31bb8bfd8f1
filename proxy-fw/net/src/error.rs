//! What can go wrong with a port, in words that say what to do.

use std::io;
use std::net::SocketAddr;

use pnet::util::MacAddr;

use crate::Address;

/// Why a port could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The interface is not there.
    #[error("there is no network interface '{interface}' (there are: {available})")]
    NoSuchInterface {
        /// The name that was asked for.
        interface: String,
        /// The names that exist.
        available: String,
    },
    /// The interface has no MAC address, so it is not Ethernet.
    #[error("interface '{interface}' is not Ethernet: use another interface, or UDP")]
    NotEthernet {
        /// Its name.
        interface: String,
    },
    /// The interface is switched off.
    #[error("interface '{interface}' is down: switch it on with `ip link set dev {interface} up`")]
    InterfaceDown {
        /// Its name.
        interface: String,
    },
    /// The interface's MTU is smaller than the frame size that was asked for.
    #[error(
        "interface '{interface}' carries {mtu} bytes and frames of {wanted} are wanted: raise it \
         with `ip link set dev {interface} mtu {wanted}`, or set a frame size of {mtu} at most"
    )]
    MtuTooSmall {
        /// Its name.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The frame size asked for, in bytes.
        wanted: usize,
    },
    /// The frame size that was asked for is not possible with this transport.
    #[error("a frame size of {wanted} bytes is not possible: choose one from 1 to {max}")]
    FrameSize {
        /// The frame size asked for, in bytes.
        wanted: usize,
        /// Largest possible, in bytes.
        max: usize,
    },
    /// A VLAN ID that names no VLAN.
    #[error("VLAN {0} does not exist: choose one from 1 to 4094")]
    NoSuchVlan(u16),
    /// Raw sockets are not allowed to this process.
    #[error(
        "raw Ethernet on '{interface}' needs the capability CAP_NET_RAW: run as root, or \
         `setcap cap_net_raw+ep` the program, or use UDP instead"
    )]
    NotPermitted {
        /// The interface's name.
        interface: String,
    },
    /// A UDP address that cannot be used here.
    #[error("UDP port {address} cannot be opened: {}", bind_advice(.source))]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A destination of another transport, IP version or VLAN than the port's own.
    #[error("{to} cannot be reached from the port {from}: both ends of a path are of one kind")]
    WrongAddress {
        /// The destination.
        to: Address,
        /// The port's own address.
        from: Address,
    },
    /// A frame that is longer than the port's frame size.
    #[error("a frame of {len} bytes was to be sent on a port whose frames have {mtu} at most")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// [`Port::mtu`](crate::Port::mtu).
        mtu: usize,
    },
    /// The port number is taken on this memory switch.
    #[error("port {0} of the memory switch is in use: give each port its own number")]
    MemoryPortInUse(u16),
    /// The interface was removed while the port was open.
    #[error("interface '{interface}' was removed: bring it back and start again")]
    InterfaceRemoved {
        /// Its name.
        interface: String,
    },
    /// The interface got another MAC address while the port was open: the other ends of its path
    /// know the one from before, and nothing that they send arrives.
    #[error(
        "interface '{interface}' had the MAC address {before} and has {now} now: start again, so that \
         the others learn it"
    )]
    AddressChanged {
        /// Its name.
        interface: String,
        /// The address that the port was opened with.
        before: MacAddr,
        /// The address that it has.
        now: MacAddr,
    },
    /// Anything else that the system refused.
    #[error("{what} failed on {port}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The port, as a person knows it.
        port: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// What a person can do about an address that cannot be bound.
fn bind_advice(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses it; stop that or choose another port".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface has this address; choose one that `ip address` shows".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are for root; choose a higher one".to_owned()
        }
        _ => source.to_string(),
    }
}
