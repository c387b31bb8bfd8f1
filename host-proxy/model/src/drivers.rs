//! Which driver has which function.

use crate::accelerator::{self, Accelerator};
use crate::host::{HostEvent, HostFunction, ModelHost};
use crate::operations::OperationError;
use crate::port::TlpPort;
use crate::topology::Node;
use nvme_driver::Controller;
use std::collections::BTreeMap;
use tlp_codec::ids::Bdf;

/// Class code of an NVMe I/O controller (PCI Code and ID Assignment).
const NVME_CLASS: u32 = 0x01_0802;

/// A driver that is bound to a function.
pub(crate) enum Driver {
    Nvme(Box<Controller>),
    Accelerator(Box<Accelerator>),
}

impl Driver {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Nvme(_) => "nvme",
            Self::Accelerator(_) => "accelerator",
        }
    }

    /// Binds the driver that knows a function; `None` when none does.
    fn attach<P: TlpPort>(
        function: &mut HostFunction<'_, P>,
        node: &Node,
    ) -> Option<Result<Self, OperationError>> {
        if node.class == NVME_CLASS {
            let config = function.host().config.nvme.clone();
            let controller = Controller::attach(function, config);
            return Some(controller.map(|c| Self::Nvme(Box::new(c))).map_err(Into::into));
        }
        if (node.vendor, node.device)
            == (accelerator::regs::VENDOR_ID, accelerator::regs::DEVICE_ID)
        {
            let accelerator = Accelerator::attach(function);
            return Some(accelerator.map(|a| Self::Accelerator(Box::new(a))));
        }
        None
    }

    /// Lets the device come to rest.
    fn shutdown<P: TlpPort>(self, f: &mut HostFunction<'_, P>) -> Result<(), OperationError> {
        match self {
            Self::Nvme(controller) => Ok(controller.shutdown(f)?),
            Self::Accelerator(accelerator) => accelerator.shutdown(f),
        }
    }
}

/// The bound drivers by their function's instance; `None` while one is at work.
#[derive(Default)]
pub(crate) struct Drivers {
    bound: BTreeMap<u64, Option<Driver>>,
    names: BTreeMap<u64, &'static str>,
}

impl Drivers {
    pub(crate) fn is_at_work(&self, instance: u64) -> bool {
        matches!(self.bound.get(&instance), Some(None))
    }

    /// The name of the driver that a function has.
    pub(crate) fn name(&self, instance: u64) -> Option<&'static str> {
        self.names.get(&instance).copied()
    }

    /// Takes a driver to work with it.
    pub(crate) fn take(&mut self, instance: u64) -> Option<Driver> {
        self.bound.get_mut(&instance)?.take()
    }

    /// Puts it back, unless its function went away meanwhile.
    pub(crate) fn put(&mut self, instance: u64, driver: Driver) {
        if let Some(place) = self.bound.get_mut(&instance) {
            *place = Some(driver);
        }
    }

    fn add(&mut self, instance: u64, driver: Driver) {
        self.names.insert(instance, driver.name());
        self.bound.insert(instance, Some(driver));
    }

    fn remove(&mut self, instance: u64) -> Option<Driver> {
        self.names.remove(&instance);
        self.bound.remove(&instance)?
    }
}

impl<P: TlpPort> ModelHost<P> {
    /// Binds a driver to a function, if there is one for it; its name.
    pub(crate) fn bind(&mut self, bdf: Bdf) -> Option<&'static str> {
        if !self.config.bind_drivers {
            return None;
        }
        let node = self.topology.get(bdf)?.clone();
        let result = Driver::attach(&mut self.function(bdf)?, &node)?;
        match result {
            Ok(driver) => {
                // The device may have gone while its driver was bound.
                self.topology.get(bdf).filter(|now| now.instance == node.instance)?;
                let name = driver.name();
                self.drivers.add(node.instance, driver);
                Some(name)
            }
            Err(error) => {
                let reason = format!("no driver could be bound: {error}");
                self.event(HostEvent::Error { bdf, reason });
                None
            }
        }
    }

    /// Takes a function's driver away. A driver at work finds out by itself that its device is
    /// gone.
    pub(crate) fn unbind(&mut self, bdf: Bdf, gone: bool) {
        let Some(instance) = self.topology.get(bdf).map(|node| node.instance) else { return };
        let Some(driver) = self.drivers.remove(instance) else { return };
        if gone {
            return;
        }
        if let Some(mut function) = self.function(bdf)
            && let Err(error) = driver.shutdown(&mut function)
        {
            let reason = format!("the device did not come to rest: {error}");
            self.event(HostEvent::Error { bdf, reason });
        }
    }
}
