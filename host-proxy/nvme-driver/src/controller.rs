//! A controller's life: bring-up, reset, shutdown (NVMe 1.4 sections 7.3 and 7.6).

use crate::error::Error;
use crate::function::{FunctionError, PAGE, PciFunction};
use crate::identify::IdentifyController;
use crate::queue::{MAX_TRANSFER, QueueLayout, QueuePair};
use crate::regs::{self, Capabilities};
use std::time::Duration;

/// How a controller is driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Entries of the admin queues, 2 to 4096.
    pub admin_depth: u16,
    /// I/O queue pairs to ask for; the controller may grant fewer.
    pub io_queues: u16,
    /// Whether completions are waited for by interrupt (else by polling).
    pub interrupts: bool,
    /// How long a command may take.
    pub command_timeout: Duration,
    /// How long an orderly shutdown may take (NVMe 1.4 leaves it to the device's RTD3 entry
    /// latency).
    pub shutdown_timeout: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            admin_depth: 32,
            io_queues: 4,
            interrupts: true,
            command_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// How long to let time pass between two looks at a status register.
const STATUS_INTERVAL: Duration = Duration::from_millis(1);

/// A controller that was brought up.
#[derive(Debug)]
pub struct Controller {
    pub(crate) config: ControllerConfig,
    pub(crate) capabilities: Capabilities,
    pub(crate) admin: QueuePair,
    pub(crate) identify: IdentifyController,
    pub(crate) vectors: u16,
    pub(crate) queue_limit: u16,
    /// Which queue identifiers are in use; 0 is the admin queue.
    pub(crate) queues: Vec<bool>,
}

impl Controller {
    /// Resets the controller, sets up its admin queue, identifies it and asks for I/O queues.
    /// Memory Space and Bus Master are enabled already.
    ///
    /// # Errors
    ///
    /// When the controller does not become ready, or cannot be used with 4 KiB pages and the NVM
    /// command set.
    pub fn attach<F: PciFunction>(f: &mut F, config: ControllerConfig) -> Result<Self, Error> {
        let capabilities = Capabilities(f.bar_read64(0, regs::CAP)?);
        check(capabilities)?;
        disable(f, capabilities)?;
        let vectors = if config.interrupts { request_vectors(f, &config)? } else { 0 };
        let most = capabilities.max_queue_entries().min(4096) as u16;
        let layout = QueueLayout {
            id: 0,
            depth: config.admin_depth.clamp(2, most),
            doorbell_stride: capabilities.doorbell_stride(),
            vector: (vectors > 0).then_some(0),
        };
        let admin = QueuePair::allocate(f, layout)?;
        let mut controller = Self {
            config,
            capabilities,
            admin,
            identify: IdentifyController::parse(&[0; 4096]),
            vectors,
            queue_limit: 0,
            queues: vec![true],
        };
        match controller.start(f) {
            Ok(()) => Ok(controller),
            Err(error) => {
                // Memory goes back only from a controller that is known to be idle.
                if disable(f, capabilities).is_ok() {
                    controller.admin.free(f);
                }
                Err(error)
            }
        }
    }

    fn start<F: PciFunction>(&mut self, f: &mut F) -> Result<(), Error> {
        let last = u32::from(self.admin.layout().depth - 1);
        f.bar_write32(0, regs::AQA, last << 16 | last)?;
        f.bar_write64(0, regs::ASQ, self.admin.submission_address())?;
        f.bar_write64(0, regs::ACQ, self.admin.completion_address())?;
        f.bar_write32(0, regs::CC, regs::CC_ENTRY_SIZES | regs::CC_ENABLE)?;
        wait_status(f, self.capabilities, "become ready", |csts| csts & regs::CSTS_READY != 0)?;
        self.identify = self.identify_controller(f)?;
        self.queue_limit = self.request_io_queues(f, self.config.io_queues.max(1))?;
        self.queues = vec![false; usize::from(self.queue_limit) + 1];
        self.queues[0] = true;
        Ok(())
    }

    /// Controller reset: every queue is gone, every command in flight forgotten; then bring-up
    /// anew. I/O queue pairs of before may be freed ([`QueuePair::free`]) and are made again by
    /// the caller.
    ///
    /// # Errors
    ///
    /// As [`Controller::attach`].
    pub fn reset<F: PciFunction>(&mut self, f: &mut F) -> Result<(), Error> {
        disable(f, self.capabilities)?;
        let fresh = QueuePair::allocate(f, *self.admin.layout())?;
        std::mem::replace(&mut self.admin, fresh).free(f);
        self.start(f)
    }

    /// Orderly shutdown: the controller puts its cache on the medium; then it is disabled and its
    /// memory is free. I/O queues were deleted before.
    ///
    /// # Errors
    ///
    /// When the controller does not follow in time. The admin queue's memory stays the device's
    /// then.
    pub fn shutdown<F: PciFunction>(self, f: &mut F) -> Result<(), Error> {
        let cc = f.bar_read32(0, regs::CC)?;
        f.bar_write32(0, regs::CC, cc & !regs::CC_SHUTDOWN_MASK | regs::CC_SHUTDOWN_NORMAL)?;
        let timeout = self.config.shutdown_timeout;
        wait_status_for(f, timeout, "shut down", |csts| {
            csts & regs::CSTS_SHUTDOWN_MASK == regs::CSTS_SHUTDOWN_COMPLETE
        })?;
        disable(f, self.capabilities)?;
        self.admin.free(f);
        Ok(())
    }

    /// What Identify Controller said.
    pub const fn identity(&self) -> &IdentifyController {
        &self.identify
    }

    /// Controller Capabilities.
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// How it is driven.
    pub const fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// The most bytes of one I/O command: the controller's limit and the driver's.
    pub fn max_transfer(&self) -> usize {
        let limit = self.identify.max_transfer.unwrap_or(u64::MAX);
        limit.min(MAX_TRANSFER as u64) as usize
    }

    /// I/O queue pairs that the controller granted.
    pub const fn queue_limit(&self) -> u16 {
        self.queue_limit
    }

    /// Interrupt vectors in use; 0 means polling.
    pub const fn vectors(&self) -> u16 {
        self.vectors
    }
}

fn check(capabilities: Capabilities) -> Result<(), Error> {
    if capabilities.0 == u64::MAX {
        return Err(FunctionError::Gone.into());
    }
    if capabilities.min_page_size() > PAGE {
        return Err(Error::Unusable(format!(
            "its smallest page is {} bytes, the driver uses {PAGE}",
            capabilities.min_page_size()
        )));
    }
    if !capabilities.nvm_command_set() {
        return Err(Error::Unusable("it does not support the NVM command set".into()));
    }
    if capabilities.max_queue_entries() < 2 {
        return Err(Error::Unusable("its queues have no room (CAP.MQES is 0)".into()));
    }
    Ok(())
}

/// Vectors for the admin queue and the I/O queues; without any, the driver polls.
fn request_vectors<F: PciFunction>(f: &mut F, config: &ControllerConfig) -> Result<u16, Error> {
    match f.enable_interrupts(config.io_queues.saturating_add(1)) {
        Ok(vectors) => Ok(vectors),
        Err(FunctionError::NoInterrupts(reason)) => {
            tracing::warn!(reason, "no interrupts, polling");
            Ok(0)
        }
        Err(error) => Err(error.into()),
    }
}

fn disable<F: PciFunction>(f: &mut F, capabilities: Capabilities) -> Result<(), Error> {
    let cc = f.bar_read32(0, regs::CC)?;
    if cc & regs::CC_ENABLE != 0 {
        f.bar_write32(0, regs::CC, cc & !(regs::CC_ENABLE | regs::CC_SHUTDOWN_MASK))?;
    }
    let timeout = capabilities.ready_timeout().max(STATUS_INTERVAL);
    poll_status(f, timeout, "become idle", |csts| csts & regs::CSTS_READY == 0)
}

fn wait_status<F: PciFunction>(
    f: &mut F,
    capabilities: Capabilities,
    what: &'static str,
    done: impl Fn(u32) -> bool,
) -> Result<(), Error> {
    let timeout = capabilities.ready_timeout().max(STATUS_INTERVAL);
    wait_status_for(f, timeout, what, done)
}

/// As [`poll_status`], but a fatal status ends the wait.
fn wait_status_for<F: PciFunction>(
    f: &mut F,
    timeout: Duration,
    what: &'static str,
    done: impl Fn(u32) -> bool,
) -> Result<(), Error> {
    let mut fatal = None;
    poll_status(f, timeout, what, |csts| {
        fatal = (csts & regs::CSTS_FATAL != 0).then_some(csts);
        fatal.is_some() || done(csts)
    })?;
    fatal.map_or(Ok(()), |csts| Err(Error::Fatal { csts }))
}

fn poll_status<F: PciFunction>(
    f: &mut F,
    timeout: Duration,
    what: &'static str,
    mut done: impl FnMut(u32) -> bool,
) -> Result<(), Error> {
    let start = f.now();
    loop {
        let csts = f.bar_read32(0, regs::CSTS)?;
        if csts == u32::MAX {
            return Err(FunctionError::Gone.into());
        }
        if done(csts) {
            return Ok(());
        }
        let waited = f.now().saturating_duration_since(start);
        if waited >= timeout {
            return Err(Error::NotReady { what, waited, csts });
        }
        let next = f.now() + STATUS_INTERVAL;
        while f.now() < next {
            f.wait(None, next)?;
        }
    }
}
