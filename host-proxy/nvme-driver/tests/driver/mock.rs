//! A mock of the register and queue protocol of NVMe 1.4, for the driver's tests: memory, BAR 0
//! and a block store in one object. Commands are carried out when their doorbell is written,
//! except where a test says otherwise.

use nvme_driver::{DmaBuffer, FunctionError, PciFunction};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const MEMORY_BASE: u64 = 0x8_0000_0000;
const BLOCK: usize = 512;

#[derive(Default, Clone, Copy)]
struct Ring {
    address: u64,
    depth: u32,
    at: u32,
    tail: u32,
    phase: bool,
}

/// Which commands go wrong, by opcode of I/O queues.
#[derive(Default)]
pub(crate) struct Faults {
    /// Ends with this status field.
    pub(crate) fail: HashMap<u8, u16>,
    /// Never completes.
    pub(crate) swallow: Option<u8>,
    /// Admin commands that end with this status field, by opcode.
    pub(crate) fail_admin: HashMap<u8, u16>,
    /// An admin command that is carried out, and whose completion is lost.
    pub(crate) mute_admin: Option<u8>,
    /// Completions of one doorbell ring come in reverse.
    pub(crate) reverse: bool,
    /// CSTS.RDY never follows CC.EN.
    pub(crate) never_ready: bool,
    /// Reads give all ones and waits say that the device is gone.
    pub(crate) gone: bool,
}

pub(crate) struct Mock {
    pub(crate) faults: Faults,
    pub(crate) disk: Vec<u8>,
    pub(crate) flushes: u32,
    pub(crate) doorbells: u32,
    pub(crate) deepest: u32,
    /// Time goes on by this much with each wait: a lost command does not hold up the test.
    clock: Instant,
    memory: Vec<u8>,
    pub(crate) allocated: BTreeMap<u64, usize>,
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    submission: BTreeMap<u16, Ring>,
    completion: BTreeMap<u16, Ring>,
}

impl Mock {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            faults: Faults::default(),
            disk: vec![0xa5; blocks * BLOCK],
            flushes: 0,
            doorbells: 0,
            deepest: 0,
            clock: Instant::now(),
            memory: vec![0; 8 << 20],
            allocated: BTreeMap::new(),
            cc: 0,
            csts: 0,
            aqa: 0,
            asq: 0,
            acq: 0,
            submission: BTreeMap::new(),
            completion: BTreeMap::new(),
        }
    }

    fn mem(&mut self, address: u64, len: usize) -> &mut [u8] {
        let at = (address - MEMORY_BASE) as usize;
        &mut self.memory[at..at + len]
    }

    fn write_cc(&mut self, value: u32) {
        let rose = value & !self.cc & 1 != 0;
        self.cc = value;
        if rose && !self.faults.never_ready {
            let ring = |address, depth| Ring { address, depth, phase: true, ..Ring::default() };
            self.submission.insert(0, ring(self.asq, (self.aqa & 0xfff) + 1));
            self.completion.insert(0, ring(self.acq, (self.aqa >> 16) + 1));
            self.csts = 1;
        } else if value & 1 == 0 {
            self.submission.clear();
            self.completion.clear();
            self.csts = 0;
        }
        if value >> 14 & 3 == 1 {
            self.csts |= 2 << 2;
        }
    }

    fn doorbell(&mut self, offset: u64, value: u32) {
        self.doorbells += 1;
        let (index, is_completion) = ((offset / 8) as u16, !offset.is_multiple_of(8));
        if is_completion {
            return;
        }
        let mut ring = self.submission[&index];
        ring.tail = value;
        let mut results = Vec::new();
        self.deepest = self.deepest.max((value + ring.depth - ring.at) % ring.depth);
        while ring.at != ring.tail {
            let entry = self.mem(ring.address + u64::from(ring.at) * 64, 64).to_vec();
            ring.at = (ring.at + 1) % ring.depth;
            let id = u16::from_le_bytes([entry[2], entry[3]]);
            if let Some((status, result)) = self.run(index, &entry) {
                results.push((id, status, result));
            }
        }
        self.submission.insert(index, ring);
        if self.faults.reverse {
            results.reverse();
        }
        for (id, status, result) in results {
            self.complete(index, id, status, result);
        }
    }

    fn complete(&mut self, queue: u16, id: u16, status: u16, result: u32) {
        let Some(mut ring) = self.completion.get(&queue).copied() else { return };
        let entry = self.mem(ring.address + u64::from(ring.at) * 16, 16);
        entry[0..4].copy_from_slice(&result.to_le_bytes());
        entry[12..14].copy_from_slice(&id.to_le_bytes());
        entry[14..16].copy_from_slice(&(status << 1 | u16::from(ring.phase)).to_le_bytes());
        ring.at += 1;
        if ring.at == ring.depth {
            ring.at = 0;
            ring.phase = !ring.phase;
        }
        self.completion.insert(queue, ring);
    }

    fn run(&mut self, queue: u16, entry: &[u8]) -> Option<(u16, u32)> {
        let dword = |n: usize| u32::from_le_bytes(entry[4 * n..4 * n + 4].try_into().unwrap());
        let prp = [6, 8].map(|n| u64::from(dword(n)) | u64::from(dword(n + 1)) << 32);
        let (low, high) = (dword(10) & 0xffff, dword(10) >> 16);
        if queue == 0 {
            if let Some(status) = self.faults.fail_admin.get(&entry[0]) {
                return Some((*status, 0));
            }
            let result = self.admin(entry[0], dword(10), low as u16, high, prp[0]);
            return (self.faults.mute_admin != Some(entry[0])).then_some(result);
        }
        if self.faults.swallow == Some(entry[0]) {
            return None;
        }
        if let Some(status) = self.faults.fail.get(&entry[0]) {
            return Some((*status, 0));
        }
        let first = (u64::from(dword(10)) | u64::from(dword(11)) << 32) as usize * BLOCK;
        let len = (dword(12) as usize + 1) * BLOCK;
        match entry[0] {
            0x00 => self.flushes += 1,
            0x01 | 0x02 => {
                let mut at = first;
                for (address, len) in self.prps(prp, len) {
                    if entry[0] == 1 {
                        let data = self.mem(address, len).to_vec();
                        self.disk[at..at + len].copy_from_slice(&data);
                    } else {
                        let data = self.disk[at..at + len].to_vec();
                        self.mem(address, len).copy_from_slice(&data);
                    }
                    at += len;
                }
            }
            0x08 => self.disk[first..first + len].fill(0),
            0x09 => {
                for range in 0..dword(10) as u64 + 1 {
                    let range = self.mem(prp[0] + range * 16, 16).to_vec();
                    let count = u32::from_le_bytes(range[4..8].try_into().unwrap()) as usize;
                    let lba = u64::from_le_bytes(range[8..16].try_into().unwrap()) as usize;
                    self.disk[lba * BLOCK..(lba + count) * BLOCK].fill(0);
                }
            }
            _ => return Some((0x4001, 0)),
        }
        Some((0, 0))
    }

    fn prps(&mut self, prp: [u64; 2], len: usize) -> Vec<(u64, usize)> {
        let mut list = vec![prp[0]];
        let first = 4096 - (prp[0] % 4096) as usize;
        if len > first + 4096 {
            let count = (len - first).div_ceil(4096);
            let bytes = self.mem(prp[1], count * 8).to_vec();
            list.extend(bytes.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())));
        } else if len > first {
            list.push(prp[1]);
        }
        let mut left = len;
        let mut parts = Vec::new();
        for address in list {
            let part = left.min(4096 - (address % 4096) as usize);
            parts.push((address, part));
            left -= part;
        }
        assert_eq!(left, 0, "the PRPs cover the data");
        parts
    }

    fn admin(&mut self, opcode: u8, cdw10: u32, id: u16, high: u32, prp: u64) -> (u16, u32) {
        let ring = |address| Ring { address, depth: high + 1, phase: true, ..Ring::default() };
        match opcode {
            0x00 => drop(self.submission.remove(&id)),
            // Invalid Queue Identifier, Invalid Queue Deletion.
            0x01 if self.submission.contains_key(&id) => return (0x4101, 0),
            0x05 if self.completion.contains_key(&id) => return (0x4101, 0),
            0x04 if self.submission.contains_key(&id) => return (0x410c, 0),
            0x01 => drop(self.submission.insert(id, ring(prp))),
            0x04 => drop(self.completion.remove(&id)),
            0x05 => drop(self.completion.insert(id, ring(prp))),
            0x06 => self.identify(cdw10, prp),
            0x02 if cdw10 & 0xff == 2 => self.mem(prp, 512)[1] = 40,
            0x02 => return (0x4109, 0),
            0x08 => return (0, 1),
            0x09 => return (0, 1 << 16 | 1),
            0x0a => return (0, 0x77),
            _ => return (0x4001, 0),
        }
        (0, 0)
    }

    fn identify(&mut self, structure: u32, prp: u64) {
        let blocks = (self.disk.len() / BLOCK) as u64;
        let data = self.mem(prp, 4096);
        data.fill(0);
        match structure {
            0 => {
                data[0..8].copy_from_slice(&blocks.to_le_bytes());
                data[130] = 9;
            }
            1 => {
                data[24..28].copy_from_slice(b"Mock");
                data[77] = 4;
                data[516] = 1;
            }
            _ => data[0] = 1,
        }
    }
}

impl PciFunction for Mock {
    fn config_read(&mut self, _: u16) -> Result<u32, FunctionError> {
        Ok(u32::MAX)
    }

    fn config_write(&mut self, _: u16, _: u32) -> Result<(), FunctionError> {
        Ok(())
    }

    fn bar_read32(&mut self, _: u8, offset: u64) -> Result<u32, FunctionError> {
        Ok(match offset {
            _ if self.faults.gone => u32::MAX,
            0x14 => self.cc,
            0x1c => self.csts,
            _ => 0,
        })
    }

    fn bar_read64(&mut self, _: u8, offset: u64) -> Result<u64, FunctionError> {
        assert_eq!(offset, 0);
        // 64 entries, 1 s, stride 4, NVM command set.
        Ok(if self.faults.gone { u64::MAX } else { 63 | 2 << 24 | 1 << 37 })
    }

    fn bar_write32(&mut self, _: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        match offset {
            0x14 => self.write_cc(value),
            0x24 => self.aqa = value,
            0x1000.. => self.doorbell(offset - 0x1000, value),
            _ => {}
        }
        Ok(())
    }

    fn bar_write64(&mut self, _: u8, offset: u64, value: u64) -> Result<(), FunctionError> {
        match offset {
            0x28 => self.asq = value,
            0x30 => self.acq = value,
            _ => panic!("no 8-byte register at {offset:#x}"),
        }
        Ok(())
    }

    fn dma_alloc(&mut self, bytes: usize) -> Result<DmaBuffer, FunctionError> {
        let bytes = bytes.next_multiple_of(4096);
        let mut at = MEMORY_BASE;
        for (used, len) in &self.allocated {
            if at + bytes as u64 <= *used {
                break;
            }
            at = used + *len as u64;
        }
        if at + bytes as u64 > MEMORY_BASE + self.memory.len() as u64 {
            return Err(FunctionError::NoMemory(bytes));
        }
        self.allocated.insert(at, bytes);
        self.mem(at, bytes).fill(0);
        Ok(DmaBuffer::new(at, bytes))
    }

    fn dma_free(&mut self, buffer: DmaBuffer) {
        assert_eq!(self.allocated.remove(&buffer.address()), Some(buffer.len()));
    }

    fn dma_read(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), FunctionError> {
        to.copy_from_slice(self.mem(buffer.address() + offset as u64, to.len()));
        Ok(())
    }

    fn dma_write(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), FunctionError> {
        self.mem(buffer.address() + offset as u64, from.len()).copy_from_slice(from);
        Ok(())
    }

    fn enable_interrupts(&mut self, wanted: u16) -> Result<u16, FunctionError> {
        Ok(wanted.min(3))
    }

    fn wait(&mut self, _: Option<u16>, deadline: Instant) -> Result<(), FunctionError> {
        if self.faults.gone {
            return Err(FunctionError::Gone);
        }
        self.clock = deadline.max(self.clock + Duration::from_micros(1));
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock
    }
}
