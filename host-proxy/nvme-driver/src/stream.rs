//! A stream of bytes to or from a namespace, several commands in flight.

use crate::controller::Controller;
use crate::error::Error;
use crate::function::{DmaBuffer, PciFunction};
use crate::nvm::{Blocks, Namespace};
use crate::queue::{CommandId, Data, QueuePair};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Duration;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived.
    pub done: u64,
    /// Bytes in all, where that is known.
    pub total: Option<u64>,
}

/// A namespace, a queue pair to reach it by and buffers for a number of commands in flight.
#[derive(Debug)]
pub struct BlockStream {
    namespace: Namespace,
    queue: QueuePair,
    buffers: Vec<DmaBuffer>,
    chunk: usize,
    timeout: Duration,
}

struct InFlight {
    id: CommandId,
    buffer: usize,
    /// Bytes of it that the caller sees: less than the blocks at the end.
    bytes: usize,
}

impl BlockStream {
    /// Makes a queue pair and `depth` buffers of up to `chunk` bytes (rounded down to blocks, and
    /// to what one command can move).
    ///
    /// # Errors
    ///
    /// No queue, no memory, or the controller's refusal.
    pub fn open<F: PciFunction>(
        f: &mut F,
        controller: &mut Controller,
        namespace: Namespace,
        depth: u16,
        chunk: usize,
    ) -> Result<Self, Error> {
        let depth = depth.max(1);
        let queue = controller.create_queue_pair(f, depth.saturating_add(1))?;
        let block = namespace.block_size() as usize;
        let chunk = (chunk / block).max(1) * block;
        let chunk = chunk.min(namespace.max_transfer());
        let timeout = controller.config().command_timeout;
        let mut stream = Self { namespace, queue, buffers: Vec::new(), chunk, timeout };
        for _ in 0..stream.queue.capacity().min(depth.into()) {
            match f.dma_alloc(chunk) {
                Ok(buffer) => stream.buffers.push(buffer),
                // Fewer in flight is slower, not wrong.
                Err(error) if stream.buffers.is_empty() => {
                    stream.close(f, controller)?;
                    return Err(error.into());
                }
                Err(_) => break,
            }
        }
        Ok(stream)
    }

    /// The namespace.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Commands in flight at most.
    pub fn depth(&self) -> usize {
        self.buffers.len()
    }

    /// Bytes of one command.
    pub const fn chunk(&self) -> usize {
        self.chunk
    }

    /// Deletes the queue pair and frees the buffers.
    ///
    /// # Errors
    ///
    /// The controller's refusal; the memory stays the device's then.
    pub fn close<F: PciFunction>(
        self,
        f: &mut F,
        controller: &mut Controller,
    ) -> Result<(), Error> {
        controller.delete_queue_pair(f, self.queue)?;
        for buffer in self.buffers {
            f.dma_free(buffer);
        }
        Ok(())
    }

    /// Frees everything without a word to the controller, which is gone or was reset.
    pub fn abandon<F: PciFunction>(self, f: &mut F) {
        self.queue.free(f);
        for buffer in self.buffers {
            f.dma_free(buffer);
        }
    }

    /// Writes everything that `source` gives from block `lba` on, the last block filled up with
    /// zeroes, then flushes. `total` is for the progress only. Returns the bytes of the source.
    ///
    /// # Errors
    ///
    /// The source's or a command's error, after all commands in flight have ended. When the
    /// source has more than the namespace holds, what fits was written.
    pub fn write<F: PciFunction>(
        &mut self,
        f: &mut F,
        lba: u64,
        source: &mut dyn Read,
        total: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, Error> {
        let result = self.write_all(f, lba, source, total, progress);
        self.settle(f, result).and_then(|bytes| {
            self.namespace.flush(f, &mut self.queue, self.timeout)?;
            Ok(bytes)
        })
    }

    fn write_all<F: PciFunction>(
        &mut self,
        f: &mut F,
        mut lba: u64,
        source: &mut dyn Read,
        total: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, Error> {
        let mut window = VecDeque::new();
        let mut chunk = vec![0; self.chunk];
        let (mut done, mut next, mut ended) = (0, 0, false);
        loop {
            while !ended && window.len() < self.buffers.len() {
                let bytes = fill(source, &mut chunk)?;
                ended = bytes < chunk.len();
                if bytes == 0 {
                    break;
                }
                let blocks = self.blocks(lba, bytes);
                let len = blocks.count as usize * self.namespace.block_size() as usize;
                chunk[bytes..len].fill(0);
                let buffer = &self.buffers[next];
                f.dma_write(buffer, 0, &chunk[..len])?;
                let data = Data { buffer, offset: 0, len };
                let id = self.namespace.submit_write(f, &mut self.queue, blocks, data)?;
                window.push_back(InFlight { id, buffer: next, bytes });
                next = (next + 1) % self.buffers.len();
                lba += blocks.count;
            }
            self.queue.ring(f)?;
            let Some(oldest) = window.pop_front() else { return Ok(done) };
            self.queue.wait(f, oldest.id, self.timeout)?.ok()?;
            done += oldest.bytes as u64;
            progress(Progress { done, total });
        }
    }

    /// Reads `bytes` bytes from block `lba` on into `sink`.
    ///
    /// # Errors
    ///
    /// The sink's or a command's error, after all commands in flight have ended.
    pub fn read<F: PciFunction>(
        &mut self,
        f: &mut F,
        lba: u64,
        bytes: u64,
        sink: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let result = self.read_all(f, lba, bytes, sink, progress);
        self.settle(f, result)
    }

    fn read_all<F: PciFunction>(
        &mut self,
        f: &mut F,
        mut lba: u64,
        total: u64,
        sink: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let mut window: VecDeque<InFlight> = VecDeque::new();
        let mut chunk = vec![0; self.chunk];
        let (mut asked, mut done, mut next) = (0, 0, 0);
        loop {
            while asked < total && window.len() < self.buffers.len() {
                let bytes = (total - asked).min(self.chunk as u64) as usize;
                let blocks = self.blocks(lba, bytes);
                let len = blocks.count as usize * self.namespace.block_size() as usize;
                let data = Data { buffer: &self.buffers[next], offset: 0, len };
                let id = self.namespace.submit_read(f, &mut self.queue, blocks, data)?;
                window.push_back(InFlight { id, buffer: next, bytes });
                next = (next + 1) % self.buffers.len();
                lba += blocks.count;
                asked += bytes as u64;
            }
            self.queue.ring(f)?;
            let Some(oldest) = window.pop_front() else { return Ok(()) };
            self.queue.wait(f, oldest.id, self.timeout)?.ok()?;
            let chunk = &mut chunk[..oldest.bytes];
            f.dma_read(&self.buffers[oldest.buffer], 0, chunk)?;
            sink.write_all(chunk)?;
            done += oldest.bytes as u64;
            progress(Progress { done, total: Some(total) });
        }
    }

    fn blocks(&self, lba: u64, bytes: usize) -> Blocks {
        Blocks { lba, count: bytes.div_ceil(self.namespace.block_size() as usize) as u64 }
    }

    /// After an error, waits for what is in flight, so that the buffers can be used again.
    fn settle<F: PciFunction, T>(
        &mut self,
        f: &mut F,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        if let Err(error) = &result
            && !error.is_gone()
        {
            // Submitted but not rung commands must reach the controller to end.
            self.queue.ring(f)?;
            if let Err(late) = self.queue.drain(f, self.timeout) {
                tracing::warn!(%late, "commands in flight did not end after an error");
            }
        }
        result
    }
}

/// Reads until the chunk is full or the source ends.
fn fill(source: &mut dyn Read, chunk: &mut [u8]) -> std::io::Result<usize> {
    let mut at = 0;
    while at < chunk.len() {
        match source.read(&mut chunk[at..]) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
