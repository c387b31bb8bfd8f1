//! Ethernet for software proxies.
//!
//! A [`Port`] is where one path of this node ends. It carries *fabric frames* (`docs/wire.md` in
//! `tlp-codec`) without looking into them; each kind of transport adds and strips its own headers:
//!
//! - [`RawPort`]: Ethernet II frames with EtherType [`ETHERTYPE`] on an `AF_PACKET` socket, with an
//!   802.1Q tag if wanted. Needs `CAP_NET_RAW`.
//! - [`UdpPort`]: the same frames in UDP datagrams, where raw Ethernet is not to be had.
//! - [`MemoryPort`]: a switch in this process, for tests.
//!
//! A raw port has packet rings in memory that it shares with the kernel, where the kernel gives
//! them: what comes is seen without a system call, and one call sends what was written. Other
//! socket ports send up to [`BATCH`] frames with one system call and receive as many. A UDP port
//! makes one message of frames in a row that have one length, which the kernel or the network device
//! cuts into datagrams, where it can: most of what a datagram costs is then spent once for all of
//! them. It receives eight messages with one call, each of as many frames as the kernel put together.
//! A sleep until the next frame costs about 20 µs to wake from, so a data
//! plane first spins on [`Port::receive`] and calls [`Port::wait`] (or [`wait_any`]) only when
//! spinning found nothing.

mod address;
mod batch;
mod error;
pub mod floor;
mod interface;
mod memory;
mod patience;
mod port;
mod raw;
mod sys;
mod udp;

pub use address::{Address, ParseAddressError};
pub use error::NetError;
pub use memory::{MemoryPort, MemorySwitch};
pub use port::{Counters, Origin, Port, Sent, Waiting, wait_any};
pub use raw::{RawOptions, RawPort};
pub use udp::{UdpOptions, UdpPort};

/// The EtherType of fabric frames: IEEE 802's first local experimental EtherType
/// (IEEE Std 802-2014, clause 9.2).
pub const ETHERTYPE: u16 = 0x88B5;

/// Frames that one system call sends at most, and the number of frames that a socket port keeps
/// for sending. When they are all in use and the kernel takes none, [`Port::send`] answers
/// [`Sent::Full`]. One call also receives so many at most, but for a UDP port whose messages the
/// kernel puts together.
pub const BATCH: usize = 32;

/// Frames that wait in a raw port's receive ring at least. When it is full, what comes is lost and
/// counted ([`Counters::receive_dropped`]). With [`MAX_FRAME`] it takes 9.7 MB.
pub const RING_RECEIVE_SLOTS: usize = 1024;

/// Frames that a raw port's send ring holds at least, until the interface has sent them. When it
/// is full, [`Port::send`] answers [`Sent::Full`]. With [`MAX_FRAME`] it takes 2.5 MB.
pub const RING_SEND_SLOTS: usize = 256;

/// Largest fabric frame that a port carries, in bytes, whatever its transport would allow: the
/// payload of a jumbo Ethernet frame.
pub const MAX_FRAME: usize = 9000;

/// Receive and send buffer that is asked of the kernel for each socket, in bytes. Without
/// `CAP_NET_ADMIN` the kernel gives at most `net.core.rmem_max` and `net.core.wmem_max`.
pub const SOCKET_BUFFER: usize = 8 << 20;
