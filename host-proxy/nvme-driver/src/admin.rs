//! Admin commands (NVMe 1.4 section 5).

use crate::command::{Command, Opcode};
use crate::controller::Controller;
use crate::error::Error;
use crate::function::{DmaBuffer, PAGE, PciFunction};
use crate::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace};
use crate::log_page::{self, ERROR_ENTRY_BYTES, ErrorEntry, SMART_BYTES, SmartLog};
use crate::nvm::Namespace;
use crate::queue::{CommandId, Data, QueueLayout, QueuePair};

/// Feature identifiers (figure 271).
pub mod feature {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
}

/// Every namespace.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;

impl Controller {
    /// Sends any admin command and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] with the status, or why it could not be sent.
    pub fn execute<F: PciFunction>(
        &mut self,
        f: &mut F,
        command: &Command,
        data: Option<Data<'_>>,
    ) -> Result<u32, Error> {
        self.admin.execute(f, command, data, self.config.command_timeout)
    }

    /// Sends an admin command that returns `len` bytes.
    fn fetch<F: PciFunction>(
        &mut self,
        f: &mut F,
        command: &Command,
        len: usize,
    ) -> Result<Vec<u8>, Error> {
        let buffer = f.dma_alloc(len.max(PAGE))?;
        let mut bytes = vec![0; len];
        let result = self
            .execute(f, command, Some(Data { buffer: &buffer, offset: 0, len }))
            .and_then(|_| Ok(f.dma_read(&buffer, 0, &mut bytes)?));
        release(f, buffer, &result);
        result.map(|()| bytes)
    }

    fn identify<F: PciFunction>(
        &mut self,
        f: &mut F,
        nsid: u32,
        structure: u32,
    ) -> Result<[u8; IDENTIFY_BYTES], Error> {
        let command = Command::new(Opcode::IDENTIFY, nsid).dword(10, structure);
        let bytes = self.fetch(f, &command, IDENTIFY_BYTES)?;
        let mut data = [0; IDENTIFY_BYTES];
        data.copy_from_slice(&bytes);
        Ok(data)
    }

    /// Identify Controller.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn identify_controller<F: PciFunction>(
        &mut self,
        f: &mut F,
    ) -> Result<IdentifyController, Error> {
        Ok(IdentifyController::parse(&self.identify(f, 0, 1)?))
    }

    /// The numbers of the active namespaces, at most 1024 of them.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn active_namespaces<F: PciFunction>(&mut self, f: &mut F) -> Result<Vec<u32>, Error> {
        let list = self.identify(f, 0, 2)?;
        let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
        Ok(ids.take_while(|id| *id != 0).collect())
    }

    /// Identify Namespace.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`], and [`Error::Unusable`] for a block size that cannot be.
    pub fn identify_namespace<F: PciFunction>(
        &mut self,
        f: &mut F,
        nsid: u32,
    ) -> Result<IdentifyNamespace, Error> {
        IdentifyNamespace::parse(&self.identify(f, nsid, 0)?).ok_or_else(|| {
            Error::Unusable(format!("namespace {nsid} has a block size that no format has"))
        })
    }

    /// A namespace to read from and write to.
    ///
    /// # Errors
    ///
    /// As [`Controller::identify_namespace`]; also when it is not active, or its format has
    /// metadata, which this driver does not move.
    pub fn namespace<F: PciFunction>(&mut self, f: &mut F, nsid: u32) -> Result<Namespace, Error> {
        let identify = self.identify_namespace(f, nsid)?;
        if identify.blocks == 0 {
            return Err(Error::Invalid(format!("namespace {nsid} is not active")));
        }
        if identify.metadata_size != 0 {
            return Err(Error::Unusable(format!(
                "namespace {nsid} has {} bytes of metadata with each block; format it without",
                identify.metadata_size
            )));
        }
        Ok(Namespace::new(nsid, &identify, self.max_transfer()))
    }

    /// Reads `len` bytes (a multiple of 4) of a log page, from the start.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn log_page<F: PciFunction>(
        &mut self,
        f: &mut F,
        page: u8,
        nsid: u32,
        len: usize,
    ) -> Result<Vec<u8>, Error> {
        if len == 0 || !len.is_multiple_of(4) {
            return Err(Error::Invalid(format!("a log is read in doublewords, not {len} bytes")));
        }
        let dwords = (len / 4 - 1) as u32;
        let command = Command::new(Opcode::GET_LOG_PAGE, nsid)
            .dword(10, u32::from(page) | (dwords & 0xffff) << 16)
            .dword(11, dwords >> 16);
        self.fetch(f, &command, len)
    }

    /// SMART / Health Information.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn smart_log<F: PciFunction>(&mut self, f: &mut F) -> Result<SmartLog, Error> {
        let bytes = self.log_page(f, log_page::SMART_HEALTH, ALL_NAMESPACES, SMART_BYTES)?;
        let mut data = [0; SMART_BYTES];
        data.copy_from_slice(&bytes);
        Ok(SmartLog::parse(&data))
    }

    /// The latest `count` entries of the error log that are in use, the newest first.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn error_log<F: PciFunction>(
        &mut self,
        f: &mut F,
        count: usize,
    ) -> Result<Vec<ErrorEntry>, Error> {
        let len = count * ERROR_ENTRY_BYTES;
        let bytes = self.log_page(f, log_page::ERROR_INFORMATION, ALL_NAMESPACES, len)?;
        let entries = bytes.chunks_exact(ERROR_ENTRY_BYTES).map(|chunk| {
            let mut entry = [0; ERROR_ENTRY_BYTES];
            entry.copy_from_slice(chunk);
            ErrorEntry::parse(&entry)
        });
        Ok(entries.filter(|entry| entry.count != 0).collect())
    }

    /// Get Features: the current value.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn get_feature<F: PciFunction>(&mut self, f: &mut F, feature: u8) -> Result<u32, Error> {
        let command = Command::new(Opcode::GET_FEATURES, 0).dword(10, feature.into());
        self.execute(f, &command, None)
    }

    /// Set Features, not saved over power cycles. Returns completion doubleword 0.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn set_feature<F: PciFunction>(
        &mut self,
        f: &mut F,
        feature: u8,
        value: u32,
    ) -> Result<u32, Error> {
        let command =
            Command::new(Opcode::SET_FEATURES, 0).dword(10, feature.into()).dword(11, value);
        self.execute(f, &command, None)
    }

    /// Asks for I/O queue pairs; says how many there are (Number of Queues is zero-based).
    pub(crate) fn request_io_queues<F: PciFunction>(
        &mut self,
        f: &mut F,
        wanted: u16,
    ) -> Result<u16, Error> {
        let ask = u32::from(wanted - 1);
        let granted = self.set_feature(f, feature::NUMBER_OF_QUEUES, ask << 16 | ask)?;
        let (submission, completion) = (granted & 0xffff, granted >> 16);
        Ok((submission.min(completion).min(ask) + 1) as u16)
    }

    /// Asks the controller to abort a command. `true` when it says that it did; the command
    /// completes in either case.
    ///
    /// # Errors
    ///
    /// As [`Controller::execute`].
    pub fn abort<F: PciFunction>(
        &mut self,
        f: &mut F,
        queue: u16,
        command: CommandId,
    ) -> Result<bool, Error> {
        let target = u32::from(command.get()) << 16 | u32::from(queue);
        let result = self.execute(f, &Command::new(Opcode::ABORT, 0).dword(10, target), None)?;
        Ok(result & 1 == 0)
    }

    /// Makes an I/O queue pair with `depth` entries (fewer if the controller's queues are
    /// smaller) that this function object uses.
    ///
    /// # Errors
    ///
    /// [`Error::NoQueues`] when all are in use, no memory, or the controller's refusal.
    pub fn create_queue_pair<F: PciFunction>(
        &mut self,
        f: &mut F,
        depth: u16,
    ) -> Result<QueuePair, Error> {
        let id = self.free_queue_id()?;
        let most = self.capabilities.max_queue_entries().min(u16::MAX.into()) as u16;
        let layout = QueueLayout {
            id,
            depth: depth.clamp(2, most),
            doorbell_stride: self.capabilities.doorbell_stride(),
            // Vector 0 is the admin queue's; when there are too few, queues share the last ones.
            vector: match self.vectors {
                0 => None,
                1 => Some(0),
                n => Some((id - 1) % (n - 1) + 1),
            },
        };
        let pair = QueuePair::allocate(f, layout)?;
        let (submission, completion) = (pair.submission_address(), pair.completion_address());
        match self.register_queue_pair(f, &layout, submission, completion) {
            Ok(()) => Ok(pair),
            // The controller may have the queues all the same: their memory stays its own.
            Err(error) if self.queues[usize::from(id)] => Err(error),
            Err(error) => {
                pair.free(f);
                Err(error)
            }
        }
    }

    /// A queue identifier that no queue pair has.
    ///
    /// # Errors
    ///
    /// [`Error::NoQueues`].
    pub fn free_queue_id(&self) -> Result<u16, Error> {
        let id = self.queues.iter().position(|used| !used);
        id.map(|id| id as u16).ok_or(Error::NoQueues(self.queue_limit))
    }

    /// Tells the controller of a queue pair whose rings are at these bus addresses, wherever that
    /// memory is: the admin half of sharing a drive.
    ///
    /// # Errors
    ///
    /// The controller's refusal, or an identifier that is not free. One that was free and is not any
    /// more after an error tells that the controller may have a queue all the same: the rings stay
    /// its own until it is reset.
    pub fn register_queue_pair<F: PciFunction>(
        &mut self,
        f: &mut F,
        layout: &QueueLayout,
        submission: u64,
        completion: u64,
    ) -> Result<(), Error> {
        let id = layout.id;
        if self.queues.get(usize::from(id)).is_none_or(|used| *used) {
            return Err(Error::Invalid(format!("queue identifier {id} is not free")));
        }
        if layout.depth < 2 || !(submission | completion).is_multiple_of(PAGE as u64) {
            return Err(Error::Invalid(format!(
                "rings start on a page and have 2 entries at least, not {} at {submission:#x} and \
                 {completion:#x}",
                layout.depth
            )));
        }
        let size = u32::from(layout.depth - 1) << 16 | u32::from(id);
        // Physically contiguous, and interrupts enabled where there is a vector.
        let interrupt = layout.vector.map_or(0, |vector| u32::from(vector) << 16 | 1 << 1);
        let create_cq = Command::new(Opcode::CREATE_CQ, 0).dword(10, size).dword(11, interrupt | 1);
        // In use until it is known that the controller has neither queue.
        self.queues[usize::from(id)] = true;
        if let Err(error) = self.execute_at(f, &create_cq, completion) {
            self.queues[usize::from(id)] = !was_not_carried_out(&error);
            return Err(error);
        }
        let create_sq =
            Command::new(Opcode::CREATE_SQ, 0).dword(10, size).dword(11, u32::from(id) << 16 | 1);
        if let Err(error) = self.execute_at(f, &create_sq, submission) {
            // A submission queue that may still come has the completion queue for its own.
            if was_not_carried_out(&error) {
                let delete = Command::new(Opcode::DELETE_CQ, 0).dword(10, id.into());
                let deleted = self.execute(f, &delete, None);
                self.queues[usize::from(id)] = deleted.is_err_and(|error| !error.is_gone());
            }
            return Err(error);
        }
        Ok(())
    }

    /// Sends a command whose first PRP is a given bus address.
    fn execute_at<F: PciFunction>(
        &mut self,
        f: &mut F,
        command: &Command,
        address: u64,
    ) -> Result<u32, Error> {
        // A handle to memory that belongs to somebody else; it is forgotten, not freed.
        let there = DmaBuffer::new(address, PAGE);
        self.execute(f, command, Some(Data { buffer: &there, offset: 0, len: PAGE }))
    }

    /// Deletes a queue pair at the controller; commands in flight on it are aborted.
    ///
    /// # Errors
    ///
    /// The controller's refusal.
    pub fn unregister_queue_pair<F: PciFunction>(
        &mut self,
        f: &mut F,
        id: u16,
    ) -> Result<(), Error> {
        for opcode in [Opcode::DELETE_SQ, Opcode::DELETE_CQ] {
            self.execute(f, &Command::new(opcode, 0).dword(10, id.into()), None)?;
        }
        if let Some(used) = self.queues.get_mut(usize::from(id)) {
            *used = false;
        }
        Ok(())
    }

    /// Deletes a queue pair and frees its memory.
    ///
    /// # Errors
    ///
    /// The controller's refusal; the memory stays the device's then.
    pub fn delete_queue_pair<F: PciFunction>(
        &mut self,
        f: &mut F,
        pair: QueuePair,
    ) -> Result<(), Error> {
        self.unregister_queue_pair(f, pair.layout().id)?;
        pair.free(f);
        Ok(())
    }
}

/// Whether the controller did not and will not carry out the command that ended so: it refused it,
/// never saw it, or is gone.
fn was_not_carried_out(error: &Error) -> bool {
    matches!(error, Error::Command { .. } | Error::QueueFull(_)) || error.is_gone()
}

/// Frees a command's buffer unless the device may still write to it.
pub(crate) fn release<F: PciFunction, T>(f: &mut F, buffer: DmaBuffer, result: &Result<T, Error>) {
    if !matches!(result, Err(Error::Timeout { .. })) {
        f.dma_free(buffer);
    }
}
