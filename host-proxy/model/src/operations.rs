//! What people do with a host, with results that can be shown and serialised.

use crate::accelerator::{Accelerator, BandwidthReport, BandwidthTest, Prepared};
use crate::drivers::Driver;
use crate::error::AccessError;
use crate::host::{HostFunction, ModelHost};
use crate::latency::LatencyReport;
use crate::port::TlpPort;
use nvme_driver::{BlockStream, Controller, Namespace, Progress};
use serde::Serialize;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tlp_codec::ids::Bdf;

/// Most reads of one measurement that are outstanding at a time.
pub const MAX_OUTSTANDING: usize = 64;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Nothing is there.
    #[error("there is no function {0}; list the tree to see what is there")]
    NoFunction(Bdf),
    /// The function has another driver, or none.
    #[error("{bdf} is not driven by the {wanted} driver")]
    NotBound {
        /// The function.
        bdf: Bdf,
        /// The driver that the operation needs.
        wanted: &'static str,
    },
    /// An access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A drive.
    #[error(transparent)]
    Nvme(#[from] nvme_driver::Error),
    /// The machine below a driver.
    #[error(transparent)]
    Function(#[from] nvme_driver::FunctionError),
    /// A device that is not what its driver is for.
    #[error("{bdf} cannot be used: {reason}")]
    Unusable {
        /// The function.
        bdf: Bdf,
        /// Why, for people.
        reason: String,
    },
    /// A job of the accelerator ended with an error.
    #[error("{what} failed: {reason}")]
    Job {
        /// Which job.
        what: &'static str,
        /// Why, for people.
        reason: String,
    },
    /// Data came back other than it went.
    #[error("{what}: byte {offset:#x} is {found:#04x} where {expected:#04x} was expected")]
    Mismatch {
        /// What was compared.
        what: &'static str,
        /// Where the first difference is.
        offset: u64,
        /// What was found.
        found: u8,
        /// What was expected.
        expected: u8,
    },
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Invalid(String),
}

/// A drive and its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NvmeReport {
    /// Where it is.
    #[serde(serialize_with = "crate::report::text")]
    pub bdf: Bdf,
    /// What it says of itself.
    pub controller: nvme_driver::IdentifyController,
    /// I/O queue pairs that it granted.
    pub queues: u16,
    /// Interrupt vectors in use; 0 is polling.
    pub vectors: u16,
    /// Its active namespaces.
    pub namespaces: Vec<Namespace>,
}

/// Which part of a drive a stream goes to or comes from, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Namespace number.
    pub namespace: u32,
    /// First logical block.
    pub lba: u64,
    /// Commands in flight.
    pub queue_depth: u16,
    /// Bytes of a command.
    pub chunk: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { namespace: 1, lba: 0, queue_depth: 16, chunk: 128 * 1024 }
    }
}

/// What a stream moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StreamReport {
    /// Bytes.
    pub bytes: u64,
    /// How long it took.
    pub elapsed_ns: u64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// Commands in flight at most.
    pub queue_depth: usize,
    /// Bytes of a command.
    pub chunk: usize,
}

impl StreamReport {
    fn new(stream: &BlockStream, bytes: u64, elapsed: Duration) -> Self {
        Self {
            bytes,
            elapsed_ns: elapsed.as_nanos() as u64,
            bytes_per_second: bytes as f64 / elapsed.as_secs_f64().max(1e-9),
            queue_depth: stream.depth(),
            chunk: stream.chunk(),
        }
    }
}

impl<P: TlpPort> ModelHost<P> {
    /// Every drive that has its driver.
    ///
    /// # Errors
    ///
    /// When one of them does not answer.
    pub fn nvme_list(&mut self) -> Result<Vec<NvmeReport>, OperationError> {
        let drives: Vec<Bdf> = self
            .topology
            .iter()
            .filter(|node| self.drivers.name(node.instance) == Some("nvme"))
            .map(|node| node.bdf)
            .collect();
        drives.into_iter().map(|bdf| self.nvme_show(bdf)).collect()
    }

    /// One drive.
    ///
    /// # Errors
    ///
    /// When it does not answer, or is none.
    pub fn nvme_show(&mut self, bdf: Bdf) -> Result<NvmeReport, OperationError> {
        self.with_nvme(bdf, |function, controller| {
            let active = controller.active_namespaces(function)?;
            let namespaces = active
                .into_iter()
                .map(|nsid| controller.namespace(function, nsid))
                .collect::<Result<_, _>>()?;
            Ok(NvmeReport {
                bdf,
                controller: controller.identity().clone(),
                queues: controller.queue_limit(),
                vectors: controller.vectors(),
                namespaces,
            })
        })
    }

    /// Writes everything that `source` gives to a drive, and flushes it. `total` is for the
    /// progress only.
    ///
    /// # Errors
    ///
    /// The source's or the drive's. A drive that lost a command is reset.
    pub fn nvme_write(
        &mut self,
        bdf: Bdf,
        options: StreamOptions,
        source: &mut dyn Read,
        total: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<StreamReport, OperationError> {
        self.with_stream(bdf, options, |function, stream| {
            stream.write(function, options.lba, source, total, progress)
        })
    }

    /// Reads `bytes` bytes of a drive into `sink`.
    ///
    /// # Errors
    ///
    /// The sink's or the drive's. A drive that lost a command is reset.
    pub fn nvme_read(
        &mut self,
        bdf: Bdf,
        options: StreamOptions,
        bytes: u64,
        sink: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<StreamReport, OperationError> {
        self.with_stream(bdf, options, |function, stream| {
            stream.read(function, options.lba, bytes, sink, progress).map(|()| bytes)
        })
    }

    fn with_stream(
        &mut self,
        bdf: Bdf,
        options: StreamOptions,
        work: impl FnOnce(&mut HostFunction<'_, P>, &mut BlockStream) -> Result<u64, nvme_driver::Error>,
    ) -> Result<StreamReport, OperationError> {
        self.with_nvme(bdf, |function, controller| {
            let namespace = controller.namespace(function, options.namespace)?;
            let (depth, chunk) = (options.queue_depth, options.chunk);
            let mut stream = BlockStream::open(function, controller, namespace, depth, chunk)?;
            let start = Instant::now();
            let result = work(function, &mut stream);
            let report = result.map(|bytes| StreamReport::new(&stream, bytes, start.elapsed()));
            if matches!(report, Err(nvme_driver::Error::Timeout { .. })) {
                // A command that is lost may still come: only a reset makes its memory free.
                controller.reset(function)?;
                stream.abandon(function);
            } else {
                let closed = stream.close(function, controller);
                if report.is_ok() {
                    closed?;
                }
            }
            Ok(report?)
        })
    }

    /// Works with a drive.
    ///
    /// # Errors
    ///
    /// When the function is no drive with its driver, and what the work ends with.
    pub fn with_nvme<R>(
        &mut self,
        bdf: Bdf,
        work: impl FnOnce(&mut HostFunction<'_, P>, &mut Controller) -> Result<R, OperationError>,
    ) -> Result<R, OperationError> {
        self.with_driver(bdf, "nvme", |function, driver| match driver {
            Driver::Nvme(controller) => work(function, controller),
            Driver::Accelerator(_) => Err(OperationError::NotBound { bdf, wanted: "nvme" }),
        })
    }

    /// Works with an accelerator.
    ///
    /// # Errors
    ///
    /// When the function is no accelerator with its driver, and what the work ends with.
    pub fn with_accelerator<R>(
        &mut self,
        bdf: Bdf,
        work: impl FnOnce(&mut HostFunction<'_, P>, &mut Accelerator) -> Result<R, OperationError>,
    ) -> Result<R, OperationError> {
        self.with_driver(bdf, "accelerator", |function, driver| match driver {
            Driver::Accelerator(accelerator) => work(function, accelerator),
            Driver::Nvme(_) => Err(OperationError::NotBound { bdf, wanted: "accelerator" }),
        })
    }

    /// Takes a function's driver, works with it and puts it back, unless the function has gone.
    fn with_driver<R>(
        &mut self,
        bdf: Bdf,
        wanted: &'static str,
        work: impl FnOnce(&mut HostFunction<'_, P>, &mut Driver) -> Result<R, OperationError>,
    ) -> Result<R, OperationError> {
        let node = self.topology.get(bdf).ok_or(OperationError::NoFunction(bdf))?;
        let instance = node.instance;
        let not_bound = OperationError::NotBound { bdf, wanted };
        let mut driver = self.drivers.take(instance).ok_or(not_bound)?;
        let result = work(&mut HostFunction::new(self, bdf, instance), &mut driver);
        self.drivers.put(instance, driver);
        result
    }

    /// Measures an accelerator's DMA and compares what it moved.
    ///
    /// # Errors
    ///
    /// The accelerator's, or a difference.
    pub fn accelerator_bandwidth(
        &mut self,
        bdf: Bdf,
        test: &BandwidthTest,
    ) -> Result<BandwidthReport, OperationError> {
        self.with_accelerator(bdf, |function, accelerator| accelerator.bandwidth(function, test))
    }

    /// As [`accelerator_bandwidth`](Self::accelerator_bandwidth), of several accelerators at the
    /// same time; what each gave, in their order.
    ///
    /// # Errors
    ///
    /// The first one's that failed, with where it is. The others' tests are ended.
    pub fn accelerators_bandwidth(
        &mut self,
        devices: &[Bdf],
        test: &BandwidthTest,
    ) -> Result<Vec<BandwidthReport>, (Bdf, OperationError)> {
        let mut prepared = Vec::new();
        let result = self.measure(devices, test, &mut prepared);
        for (bdf, test) in prepared {
            let end = |f: &mut HostFunction<'_, P>, accelerator: &mut Accelerator| {
                accelerator.end(f, test, result.is_ok());
                Ok(())
            };
            // A device that is gone took its memory with it.
            let _ = self.with_accelerator(bdf, end);
        }
        result
    }

    /// Each step of all devices before the next of any: they move at the same time, and nothing
    /// else is done meanwhile.
    fn measure(
        &mut self,
        devices: &[Bdf],
        test: &BandwidthTest,
        prepared: &mut Vec<(Bdf, Prepared)>,
    ) -> Result<Vec<BandwidthReport>, (Bdf, OperationError)> {
        for &bdf in devices {
            let begun = self.with_accelerator(bdf, |f, accelerator| accelerator.prepare(f, test));
            prepared.push((bdf, begun.map_err(|error| (bdf, error))?));
        }
        for (bdf, test) in &*prepared {
            let started = self.with_accelerator(*bdf, |f, accelerator| accelerator.start(f, test));
            started.map_err(|error| (*bdf, error))?;
        }
        let mut reports = Vec::with_capacity(prepared.len());
        for (bdf, test) in &*prepared {
            let report = self.with_accelerator(*bdf, |f, accelerator| accelerator.wait(f, test));
            reports.push(report.map_err(|error| (*bdf, error))?);
        }
        for ((bdf, test), report) in prepared.iter().zip(&reports) {
            self.with_accelerator(*bdf, |f, accelerator| accelerator.check(f, test, report))
                .map_err(|error| (*bdf, error))?;
        }
        Ok(reports)
    }

    /// The round trip of 4-byte reads of a device's registers: `reads` of them at an offset of a
    /// base address register, `outstanding` at a time.
    ///
    /// # Errors
    ///
    /// When there is no such register, more than [`MAX_OUTSTANDING`] are to be
    /// outstanding, or a read is not answered with data.
    pub fn mmio_latency(
        &mut self,
        bdf: Bdf,
        bar: u8,
        offset: u64,
        reads: usize,
        outstanding: usize,
    ) -> Result<LatencyReport, OperationError> {
        let function = self.function(bdf).ok_or(OperationError::NoFunction(bdf))?;
        let address = function.bar_address(bar, offset, 4)?;
        if !(1..=MAX_OUTSTANDING).contains(&outstanding) {
            let reason = format!("1 to {MAX_OUTSTANDING} reads are outstanding, not {outstanding}");
            return Err(OperationError::Invalid(reason));
        }
        let begun = Instant::now();
        let times = self.root_mut().read_again(address, reads, outstanding)?;
        LatencyReport::new(times, begun.elapsed())
            .ok_or_else(|| OperationError::Invalid("a measurement needs one read at least".into()))
    }
}
