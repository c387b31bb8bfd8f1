//! A namespace: an image seen as logical blocks.

use super::background::lost_beside;
use super::failures::Failures;
use super::image::{Image, ImageOp};
use super::status::Status;
use std::fmt::Display;
use std::io;

/// The two LBA formats, by their index: 512 and 4096 bytes, no metadata.
pub(super) const LBA_SHIFTS: [u32; 2] = [9, 12];

/// Size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes, LBA format 0.
    B512,
    /// 4096 bytes, LBA format 1.
    B4096,
}

/// A namespace of the controller.
pub(super) struct Namespace {
    pub(super) image: Box<dyn Image>,
    /// Index into [`LBA_SHIFTS`].
    pub(super) format: u8,
    /// Commands that the namespace does not take meanwhile.
    pub(super) formatting: bool,
    number: u32,
    failures: Failures,
}

impl Namespace {
    pub(super) fn new(number: u32, image: Box<dyn Image>, block: BlockSize) -> Self {
        let failures = Failures::default();
        Self { image, format: block as u8, formatting: false, number, failures }
    }

    pub(super) fn shift(&self) -> u32 {
        LBA_SHIFTS[usize::from(self.format)]
    }

    /// Logical blocks in all.
    pub(super) fn blocks(&self) -> u64 {
        self.image.size() >> self.shift()
    }

    /// Bytes that its blocks have: of a file that ends in the middle of one, not all.
    pub(super) fn capacity(&self) -> u64 {
        self.blocks() << self.shift()
    }

    /// Byte offset and length of blocks.
    ///
    /// # Errors
    ///
    /// LBA Out of Range.
    pub(super) fn extent(&self, slba: u64, blocks: u64) -> Result<(u64, u64), Status> {
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks() => Ok((slba << self.shift(), blocks << self.shift())),
            _ => Err(Status::LBA_OUT_OF_RANGE),
        }
    }

    /// Whether it may be written.
    ///
    /// # Errors
    ///
    /// Namespace is Write Protected.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.image.is_read_only() { Err(Status::NAMESPACE_WRITE_PROTECTED) } else { Ok(()) }
    }

    /// Reads, unless that would have to wait.
    ///
    /// # Errors
    ///
    /// Unrecovered Read Error.
    pub(super) fn read_now(&mut self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, Status> {
        let mut data = vec![0; len];
        match self.image.read_now(offset, &mut data) {
            Ok(done) => Ok(done.then_some(data)),
            Err(error) => Err(self.read_failed(offset, &error)),
        }
    }

    /// Writes, unless that would have to wait; whether it is done.
    ///
    /// # Errors
    ///
    /// Write Fault.
    pub(super) fn write_now(&mut self, offset: u64, data: &[u8]) -> Result<bool, Status> {
        self.image.write_now(offset, data).map_err(|error| self.write_failed(offset, &error))
    }

    /// What a command ends with whose blocks cannot be read. Every failure is a media error in the
    /// health log.
    pub(super) fn read_failed(&mut self, offset: u64, error: &io::Error) -> Status {
        self.failed(format_args!("read at byte {offset}"), error);
        Status::UNRECOVERED_READ_ERROR
    }

    /// As [`read_failed`](Self::read_failed), of blocks that cannot be written.
    pub(super) fn write_failed(&mut self, offset: u64, error: &io::Error) -> Status {
        self.failed(format_args!("write at byte {offset}"), error);
        Status::WRITE_FAULT
    }

    /// What a host is told of a flush: it is good if no flush before it has failed of which no host was
    /// told (NVM Express 1.4 section 6.8).
    pub(super) fn flushed(&mut self, result: io::Result<Vec<u8>>) -> io::Result<()> {
        let lost = self.image.take_loss();
        match result {
            Ok(_) if lost => Err(io::Error::other(
                "an earlier flush failed, and what was written before it may be lost",
            )),
            result => result.map(|_| ()),
        }
    }

    /// What comes of the flush behind a write, before which so many had failed: another one that failed
    /// meanwhile may have been the one to hear that its blocks could not be stored.
    pub(super) fn stored(&self, result: io::Result<Vec<u8>>, failed_before: u64) -> io::Result<()> {
        match result {
            Ok(_) if self.image.failed_flushes() != failed_before => Err(lost_beside()),
            result => result.map(|_| ()),
        }
    }

    /// Something failed at the image.
    pub(super) fn failed(&mut self, what: impl Display, error: &io::Error) {
        let number = self.number;
        self.failures.add(format_args!("image of namespace {number}: {what}"), error);
    }

    /// Starts what may have to wait for storage.
    ///
    /// # Errors
    ///
    /// Internal Error, which a host may try again, when the image takes no more.
    pub(super) fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Status> {
        self.image.start(id, op).map_err(|_| Status::INTERNAL_ERROR)
    }

    /// Gives up everything that was started, as a reset does.
    pub(super) fn abandon(&mut self) {
        self.image.abandon();
        self.formatting = false;
    }
}
