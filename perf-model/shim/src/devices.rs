//! Which device a context is of: a device's primary context goes by the device's number, and is not
//! named.

use std::sync::{Mutex, MutexGuard};

use crate::driver::Driver;
use crate::real;

/// The contexts that something is kept for, each with its device.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Vec<(usize, i32)>>);

impl Devices {
    fn known(&self) -> MutexGuard<'_, Vec<(usize, i32)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Something is kept for a context from now on. Its device is asked for once.
    pub(crate) fn note(&self, driver: &Driver, context: usize) {
        if self.known().iter().any(|known| known.0 == context) {
            return;
        }
        let device = driver.within(real::pointer(context), || driver.current_device()).flatten();
        let mut known = self.known();
        if let Some(device) = device
            && known.iter().all(|known| known.0 != context)
        {
            known.push((context, device));
        }
    }

    /// Those of a device.
    pub(crate) fn of(&self, device: i32) -> Vec<usize> {
        let known = self.known();
        known.iter().filter(|known| known.1 == device).map(|known| known.0).collect()
    }

    /// A context goes.
    pub(crate) fn forget(&self, context: usize) {
        self.known().retain(|known| known.0 != context);
    }
}
