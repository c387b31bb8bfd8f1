//! Streams, and events that say when something in them ended.

use std::time::Duration;

use crate::api::{self, check};
use crate::{CudaError, Gpu};

/// A stream of its own, which waits for no other.
#[derive(Debug)]
pub struct Stream<'a> {
    gpu: &'a Gpu,
    raw: api::RawStream,
}

/// An event with a time.
#[derive(Debug)]
pub struct Event<'a> {
    gpu: &'a Gpu,
    raw: api::RawEvent,
}

impl Gpu {
    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stream(&self) -> Result<Stream<'_>, CudaError> {
        let mut raw = std::ptr::null_mut();
        // CU_STREAM_NON_BLOCKING.
        check("cuStreamCreate", (self.api.stream_create)(&raw mut raw, 1))?;
        Ok(Stream { gpu: self, raw })
    }

    /// An event.
    ///
    /// # Errors
    /// What the driver says.
    pub fn event(&self) -> Result<Event<'_>, CudaError> {
        let mut raw = std::ptr::null_mut();
        check("cuEventCreate", (self.api.event_create)(&raw mut raw, 0))?;
        Ok(Event { gpu: self, raw })
    }
}

impl Stream<'_> {
    pub(crate) fn raw(&self) -> api::RawStream {
        self.raw
    }

    /// Waits until everything in it has ended.
    ///
    /// # Errors
    /// What the driver says, also of what was put into it before.
    pub fn wait(&self) -> Result<(), CudaError> {
        check("cuStreamSynchronize", (self.gpu.api.stream_wait)(self.raw))
    }

    /// How long the GPU works on what `work` puts into this stream.
    ///
    /// # Errors
    /// What `work` or the driver says.
    pub fn timed(
        &self,
        work: impl FnOnce(&Self) -> Result<(), CudaError>,
    ) -> Result<Duration, CudaError> {
        let (begin, end) = (self.gpu.event()?, self.gpu.event()?);
        begin.record(self)?;
        work(self)?;
        end.record(self)?;
        self.wait()?;
        begin.until(&end)
    }
}

impl Event<'_> {
    /// Puts it into `stream`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self, stream: &Stream<'_>) -> Result<(), CudaError> {
        check("cuEventRecord", (self.gpu.api.event_record)(self.raw, stream.raw))
    }

    /// The GPU's time from this event to `end`; both have happened.
    ///
    /// # Errors
    /// What the driver says.
    pub fn until(&self, end: &Event<'_>) -> Result<Duration, CudaError> {
        let mut millis = 0_f32;
        let status = (self.gpu.api.elapsed)(&raw mut millis, self.raw, end.raw);
        check("cuEventElapsedTime", status)?;
        Ok(Duration::try_from_secs_f64(f64::from(millis) / 1e3).unwrap_or_default())
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = (self.gpu.api.stream_destroy)(self.raw);
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let _ = (self.gpu.api.event_destroy)(self.raw);
    }
}
