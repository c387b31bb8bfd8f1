//! All proxies, in one thread of their own.

use crate::Options;
use crate::proxy::{Counters, Proxy};
use anyhow::{Result, bail};
use proxy_core::control::RoleKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The simulated proxies.
pub(crate) struct Pool {
    pub(crate) boxes: Vec<Arc<Proxy>>,
    pub(crate) hosts: Vec<Arc<Proxy>>,
    counters: Arc<Counters>,
    // Stops the proxies when it goes.
    _runtime: tokio::runtime::Runtime,
}

impl Pool {
    /// Makes them and lets them dial.
    pub(crate) fn start(options: &Options, control: SocketAddr) -> Result<Self> {
        let counters: Arc<Counters> = Arc::default();
        let slots = u32::from(options.boxes) * u32::from(options.slots);
        let ports = slots.div_ceil(options.hosts.into()).min(32) as u8;
        let make = |count: u16, name: &str, offset: u16, role| -> Vec<Arc<Proxy>> {
            let name = |index| format!("{name}{index:04}");
            let proxy = |index| Proxy::new(name(index), offset + index, role, &counters);
            (0..count).map(|index| Arc::new(proxy(index))).collect()
        };
        let boxes = make(options.boxes, "box", 0, RoleKind::Box { slots: options.slots });
        let hosts = make(options.hosts, "host", options.boxes, RoleKind::Host { ports });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        for proxy in boxes.iter().chain(&hosts) {
            runtime.spawn(proxy.clone().run(control));
        }
        Ok(Self { boxes, hosts, counters, _runtime: runtime })
    }

    pub(crate) fn count(&self) -> usize {
        self.boxes.len() + self.hosts.len()
    }

    /// Waits until the tables of all have been read since they last connected, but not longer than
    /// this.
    pub(crate) fn wait_read(&self, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let read = self.counters.read.load(Ordering::Relaxed) as usize;
            if read == self.count() {
                return Ok(());
            }
            if begun.elapsed() > bound {
                bail!("after {bound:?}, {read} of {} proxies have been read", self.count());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until none has its tables read: all know that their manager is gone.
    pub(crate) fn wait_alone(&self, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        while self.counters.read.load(Ordering::Relaxed) > 0 {
            if begun.elapsed() > bound {
                bail!("after {bound:?} some proxies still have a manager");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Requests so far that changed a table.
    pub(crate) fn writes(&self) -> u64 {
        self.counters.writes.load(Ordering::Relaxed)
    }

    /// Slots that are bound, and ports.
    pub(crate) fn bound(&self) -> (usize, usize) {
        let slots = |proxy: &Arc<Proxy>| {
            proxy.with(|state| state.slots.iter().filter(|slot| slot.bound.is_some()).count())
        };
        let ports = |proxy: &Arc<Proxy>| proxy.with(|state| state.ports.iter().flatten().count());
        (self.boxes.iter().map(slots).sum(), self.hosts.iter().map(ports).sum())
    }

    /// Checks that what the hosts have and what the boxes have is the same.
    ///
    /// # Errors
    ///
    /// With the first difference.
    pub(crate) fn check_agreement(&self) -> Result<()> {
        let mut at_boxes = std::collections::BTreeSet::new();
        for proxy in &self.boxes {
            let node = proxy.node().map_or(0, |node| node.get());
            proxy.with(|state| {
                for binding in state.slots.iter().filter_map(|slot| slot.bound.as_ref()) {
                    let key = binding.key;
                    at_boxes.insert((node, key.slot, key.epoch, binding.host.get()));
                }
            });
        }
        let mut count = 0;
        for proxy in &self.hosts {
            let node = proxy.node().map_or(0, |node| node.get());
            let ports = proxy.with(|state| state.ports.clone());
            for port in ports.into_iter().flatten() {
                count += 1;
                let key = (port.box_node.get(), port.slot, port.functions[0].1, node);
                if !at_boxes.contains(&key) {
                    bail!("{} has {key:?}, and the box has not", proxy.name());
                }
            }
        }
        if count != at_boxes.len() {
            bail!("the boxes have {} bindings, the hosts {count}", at_boxes.len());
        }
        Ok(())
    }
}
