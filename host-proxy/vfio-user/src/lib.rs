//! A vfio-user server: one PCI device that lives in this process, for one client at a time (QEMU's
//! `vfio-user-pci`, libvfio-user's client, cloud-hypervisor) at a Unix socket. The protocol is
//! QEMU's `docs/interop/vfio-user.rst`, version 0.1.
//!
//! The server has no thread and no run-time: whoever has the device polls it, answers the accesses
//! that it brings, reads and writes the client's memory and triggers its interrupts. It looks at
//! the clock only while clients cannot be accepted.
//!
//! ```no_run
//! use vfio_user_server::{Access, Device, Event, Irq, Region, Server, CONFIG};
//! let mut device = Device::default();
//! device.regions[usize::from(CONFIG)] = Region { size: 4096, access: Access::ReadWrite };
//! device.irqs[Irq::Msix.index()] = 1;
//! let mut server = Server::listen("/tmp/device.sock".as_ref(), device)?;
//! loop {
//!     match server.poll() {
//!         Some(Event::Read { len, .. }) => server.answer(Ok(&vec![0xff; len])),
//!         Some(Event::Write { .. } | Event::Reset) => server.answer(Ok(&[])),
//!         Some(_) => {}
//!         None => { /* poll(2) on server.waits_on(), for server.waits_at_most() */ }
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), vfio_user_server::OpenError>(())
//! ```
//!
//! # What a client can rely on
//!
//! - Requests are done in the order in which they came, one after the other.
//! - What is wrong with a request is an error reply, and the session goes on. Only a message whose
//!   size is none, another major version and a client that reads nothing end it.
//! - Where the specification names no errno: EINVAL for what has a wrong form or is not there,
//!   E2BIG for more data than a message moves, EPERM for a region's other direction, EEXIST and
//!   ENOENT for DMA maps that overlap or are none, ENOSPC and ENOMEM for too many of them, EACCES
//!   for a file that cannot be what it is to be, EMFILE when this process has no file descriptor
//!   left, EOPNOTSUPP for what is not offered: migration, dirty pages, unknown commands.
//!
//! # What a hostile client cannot do
//!
//! Every length and number is looked at before it is used; everything that a client can make grow
//! is bounded ([`limits`]). File descriptors are closed unless they belong where they came. A
//! client's memory is mapped only from files that never shrink, and is otherwise read and written
//! as a file or asked for with messages; an eventfd is signalled without waiting for it. Whatever a
//! client does ends with its session.
//!
//! One thing is the kernel's: a file descriptor is closed here, and closing may wait for whoever
//! keeps the file (FUSE, a TCP socket that lingers) until that one answers or dies.

mod channel;
mod device;
mod irqs;
pub mod limits;
mod listen;
mod memory;
mod server;
mod session;
mod signals;
mod version;
mod wire;

pub use device::{Access, CONFIG, Device, IRQS, Irq, REGIONS, ROM, Region};
pub use listen::OpenError;
pub use memory::{Memory, MemoryError};
pub use rustix::io::Errno;
pub use server::{Event, Server};
pub use session::{DmaRefused, DmaToken, Gone};
