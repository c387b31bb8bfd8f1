//! The host: root complex, topology, slots, drivers and what happens to them.

mod event;
mod function;
mod messages;
mod removal;

pub use event::HostEvent;
pub use function::HostFunction;

use crate::config::{ConfigError, HostConfig};
use crate::drivers::Drivers;
use crate::enumerate::Enumerator;
use crate::error::{Access, AccessError};
use crate::hotplug::{SlotState, Slots};
use crate::memory::HostMemory;
use crate::port::{PortError, TlpPort};
use crate::root::{Message, RootComplex};
use crate::topology::Topology;
use std::collections::VecDeque;
use std::time::Instant;
use tlp_codec::ids::Bdf;

/// Messages of devices that are looked at in a row, before anything else is.
const MESSAGES_AT_ONCE: usize = 32;
/// Events that wait to be polled; the oldest is dropped for a new one, with a warning.
pub const EVENTS: usize = 1024;

/// A model of a host over a [`TlpPort`].
pub struct ModelHost<P> {
    pub(crate) config: HostConfig,
    pub(crate) root: RootComplex<P>,
    pub(crate) topology: Topology,
    pub(crate) slots: Slots,
    pub(crate) drivers: Drivers,
    events: VecDeque<HostEvent>,
    messages: VecDeque<Message>,
}

impl<P: TlpPort> ModelHost<P> {
    /// A host that knows nothing yet of what is below its root port.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be.
    pub fn new(port: P, config: HostConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let memory = HostMemory::new(config.memory_base, config.memory_size)?;
        Ok(Self {
            root: RootComplex::new(port, config.root.clone(), memory),
            config,
            topology: Topology::default(),
            slots: Slots::default(),
            drivers: Drivers::default(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
        })
    }

    /// Finds everything below the root port and sets it up, as an operating system does when it
    /// starts; drivers are bound, hot-plug ports served from now on. What was known before is
    /// forgotten.
    ///
    /// # Errors
    ///
    /// When the port fails, or a function's configuration space cannot be read. An empty link is
    /// no error.
    pub fn enumerate(&mut self) -> Result<(), AccessError> {
        let old: Vec<Bdf> = self.topology.children(None).map(|node| node.bdf).collect();
        for bdf in old {
            self.remove_below(bdf, true);
            self.remove_function(bdf, true);
        }
        let mut enumerator = Enumerator {
            root: &mut self.root,
            topology: &mut self.topology,
            config: &self.config,
            problems: Vec::new(),
        };
        let result = enumerator.everything();
        let problems = enumerator.problems;
        self.report(problems);
        result?;
        let found: Vec<Bdf> = self.topology.iter().map(|node| node.bdf).collect();
        self.announce(&found);
        self.start_slots()?;
        Ok(())
    }

    /// Binds drivers to functions that have come, and tells of them.
    pub(crate) fn announce(&mut self, found: &[Bdf]) {
        for bdf in found {
            let driver = self.bind(*bdf);
            // A device may be gone again by the time that its driver is bound.
            let Some(node) = self.topology.get(*bdf) else { continue };
            let (port, vendor, device) = (node.parent, node.vendor, node.device);
            self.event(HostEvent::DeviceAdded { port, bdf: *bdf, vendor, device, driver });
        }
    }

    /// Serves interrupts, DMA and timers until `deadline`, or until there is an event to poll.
    ///
    /// # Errors
    ///
    /// The port's.
    pub fn service(&mut self, deadline: Instant) -> Result<(), PortError> {
        loop {
            self.serve_once()?;
            if !self.events.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            let until = self.slots.next_timer().map_or(deadline, |timer| timer.min(deadline));
            self.root.pump(until)?;
        }
    }

    /// What is to be done between two TLPs.
    pub(crate) fn serve_once(&mut self) -> Result<(), PortError> {
        // A device may send more while these are looked at.
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(message) = self.root.poll_message() else { break };
            self.serve_message(message)?;
        }
        self.serve_slots()
    }

    pub(crate) fn event(&mut self, event: HostEvent) {
        if event.is_trouble() {
            tracing::warn!("{event}");
        } else {
            tracing::info!("{event}");
        }
        if self.events.len() == EVENTS {
            tracing::warn!("an event that nobody polled is dropped");
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The oldest event that was not polled yet.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    /// The latest messages that came from below, at most
    /// [`MESSAGE_LOG`](crate::root::MESSAGE_LOG), the oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// Every function that is known.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The root complex.
    pub const fn root(&self) -> &RootComplex<P> {
        &self.root
    }

    /// The root complex, for accesses that no function of this type offers.
    pub const fn root_mut(&mut self) -> &mut RootComplex<P> {
        &mut self.root
    }

    /// How the host is set up.
    pub const fn config(&self) -> &HostConfig {
        &self.config
    }

    /// The state of a hot-plug port's slot; `None` where there is no such port.
    pub fn slot_state(&self, port: Bdf) -> Option<SlotState> {
        self.slots.state(port)
    }

    /// One function, to be driven; `None` when there is none.
    pub fn function(&mut self, bdf: Bdf) -> Option<HostFunction<'_, P>> {
        let instance = self.topology.get(bdf)?.instance;
        Some(HostFunction::new(self, bdf, instance))
    }

    /// Reads memory space at a bus address. What could not be read is all ones.
    ///
    /// # Errors
    ///
    /// How the first request that failed ended.
    pub fn mmio_read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), AccessError> {
        self.root.read(address, buf)
    }

    /// Writes memory space at a bus address, in TLPs as large as the function there takes.
    ///
    /// # Errors
    ///
    /// The port's, or a range that wraps around. The write is posted: nobody says whether it
    /// arrived.
    pub fn mmio_write(&mut self, address: u64, data: &[u8]) -> Result<(), AccessError> {
        let target = self.topology.decode(address).map(|(node, _, _)| node.bdf);
        let payload = target.map_or(128, |bdf| self.root.payload(bdf));
        self.root.write(address, data, payload)
    }

    /// Reads 1, 2 or 4 bytes of configuration space.
    ///
    /// # Errors
    ///
    /// How the request ended, if not well; [`AccessError::Invalid`] when it is not inside one
    /// doubleword.
    pub fn config_read(&mut self, bdf: Bdf, register: u16, len: usize) -> Result<u32, AccessError> {
        let at = register & 3;
        if !matches!(len, 1 | 2 | 4) || usize::from(at) + len > 4 {
            return Err(AccessError::Invalid(Access::Config { bdf, register, write: false }));
        }
        let value = self.root.config_read(bdf, register)? >> (8 * at);
        Ok(if len == 4 { value } else { value & ((1 << (8 * len)) - 1) })
    }

    /// Writes 1, 2 or 4 bytes of configuration space.
    ///
    /// # Errors
    ///
    /// As [`ModelHost::config_read`].
    pub fn config_write(
        &mut self,
        bdf: Bdf,
        register: u16,
        len: usize,
        value: u32,
    ) -> Result<(), AccessError> {
        self.root.config_write(bdf, register, len, value)
    }
}
