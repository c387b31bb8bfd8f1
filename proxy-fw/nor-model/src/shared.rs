//! One part in several hands: a driver's bus and its delay, and the test that looks on.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{ErrorType, Operation, SpiDevice};

use crate::cfi::CfiNor;
use crate::spi::SpiNor;

/// A handle on a part; clones are handles on the same one. As a delay it lets the part's time
/// pass, as a bus it reaches the part.
#[derive(Debug)]
pub struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Shares a part.
    pub fn new(part: T) -> Self {
        Self(Arc::new(Mutex::new(part)))
    }

    /// The part, for as long as the guard lives.
    ///
    /// # Panics
    ///
    /// When another thread panicked with it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nobody panicked with the flash in hand")
    }
}

impl DelayNs for Shared<SpiNor> {
    fn delay_ns(&mut self, ns: u32) {
        self.lock().nor.advance(Duration::from_nanos(ns.into()));
    }
}

impl DelayNs for Shared<CfiNor> {
    fn delay_ns(&mut self, ns: u32) {
        self.lock().nor.advance(Duration::from_nanos(ns.into()));
    }
}

impl ErrorType for Shared<SpiNor> {
    type Error = Infallible;
}

impl SpiDevice for Shared<SpiNor> {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), Infallible> {
        let mut chip = self.lock();
        chip.select();
        for operation in operations {
            match operation {
                Operation::Read(bytes) => {
                    bytes.iter_mut().for_each(|byte| *byte = chip.exchange(0));
                }
                Operation::Write(bytes) => bytes.iter().for_each(|&byte| {
                    chip.exchange(byte);
                }),
                Operation::Transfer(read, write) => {
                    for at in 0..read.len().max(write.len()) {
                        let byte = chip.exchange(write.get(at).copied().unwrap_or(0));
                        if let Some(into) = read.get_mut(at) {
                            *into = byte;
                        }
                    }
                }
                Operation::TransferInPlace(bytes) => {
                    bytes.iter_mut().for_each(|byte| *byte = chip.exchange(*byte));
                }
                Operation::DelayNs(ns) => chip.nor.advance(Duration::from_nanos((*ns).into())),
            }
        }
        chip.deselect();
        Ok(())
    }
}
