//! A small driver for the tests.

use super::super::image::{Image, MemoryImage};
use super::super::status::Status;
use super::super::{BlockSize, Config, Nvme, regs};
use crate::endpoint::Endpoint;
use crate::testing::{MEMORY, Root};

pub(super) const WRITE: u8 = 0x01;
pub(super) const READ: u8 = 0x02;
pub(super) const COMPARE: u8 = 0x05;

/// Where queues are in the root's memory: 16 KB for each identifier.
const QUEUES: usize = 0x10_0000;
/// Where PRP lists are.
const LISTS: usize = 0x20_0000;
/// Where data is.
pub(super) const DATA: usize = 0x30_0000;
const ENTRIES: u16 = 32;

/// A submission queue entry that is put together.
#[derive(Clone, Copy)]
pub(super) struct Sqe(pub(super) [u32; 16]);

impl Sqe {
    pub(super) fn admin(opcode: u8) -> Self {
        Self([0; 16]).opcode(opcode).prp1(MEMORY + DATA as u64)
    }

    pub(super) fn nvm(opcode: u8) -> Self {
        Self::admin(opcode)
    }

    pub(super) fn feature(feature: u32, value: u32) -> Self {
        Self::admin(0x09).dword(10, feature).dword(11, value)
    }

    pub(super) fn opcode(self, opcode: u8) -> Self {
        self.dword(0, self.0[0] & !0xff | u32::from(opcode))
    }

    pub(super) fn dword(mut self, n: usize, value: u32) -> Self {
        self.0[n] = value;
        self
    }

    pub(super) fn or_dword(self, n: usize, bits: u32) -> Self {
        self.dword(n, self.0[n] | bits)
    }

    pub(super) fn prp1(self, address: u64) -> Self {
        self.dword(6, address as u32).dword(7, (address >> 32) as u32)
    }

    fn prp2(self, address: u64) -> Self {
        self.dword(8, address as u32).dword(9, (address >> 32) as u32)
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub(super) fn memory(size: usize) -> Vec<(Box<dyn Image>, BlockSize)> {
    vec![(Box::new(MemoryImage::new(size)), BlockSize::B512)]
}

#[derive(Clone, Copy)]
struct Pair {
    tail: u16,
    head: u16,
    phase: bool,
    rung: u16,
}

const NEW: Pair = Pair { tail: 0, head: 0, phase: true, rung: 0 };

pub(super) struct Drive {
    pub(super) root: Root<Endpoint<Nvme>>,
    pub(super) bar: u64,
    pairs: Vec<Pair>,
    next_id: u16,
    /// Completions that came while another was waited for.
    stash: Vec<(u16, [u8; 16])>,
}

impl Drive {
    /// A controller that is not enabled.
    pub(super) fn off(config: Config, images: Vec<(Box<dyn Image>, BlockSize)>) -> Self {
        let root = Root::new(Nvme::device(config, images).unwrap());
        let mut this = Self { root, bar: 0, pairs: Vec::new(), next_id: 100, stash: Vec::new() };
        this.configure();
        this
    }

    fn configure(&mut self) {
        self.bar = self.root.enable()[0];
        self.root.set_sizes(256, 512);
        self.root.enable_msix(self.bar + regs::MSIX_TABLE, 5);
    }

    pub(super) fn on(config: Config, images: Vec<(Box<dyn Image>, BlockSize)>) -> Self {
        let mut this = Self::off(config, images);
        this.enable();
        this
    }

    pub(super) fn with_queues(images: Vec<(Box<dyn Image>, BlockSize)>, count: u16) -> Self {
        let mut this = Self::on(Config::default(), images);
        this.make_queues(count);
        this
    }

    /// Configures and enables anew, after a reset of the function.
    pub(super) fn restart(&mut self) {
        self.configure();
        self.enable();
    }

    pub(super) fn csts(&mut self) -> u32 {
        self.root.read32(self.bar + regs::CSTS)
    }

    pub(super) fn enable(&mut self) {
        self.ask_to_enable();
        assert_eq!(self.csts() & regs::CSTS_RDY, regs::CSTS_RDY);
    }

    /// Enables, and leaves open whether it is ready then.
    pub(super) fn ask_to_enable(&mut self) {
        let sizes = u32::from(ENTRIES - 1);
        self.root.write32(self.bar + regs::AQA, sizes << 16 | sizes);
        self.root.write64(self.bar + regs::ASQ, sq_base(0));
        self.root.write64(self.bar + regs::ACQ, cq_base(0));
        self.root.memory[QUEUES..LISTS].fill(0);
        self.pairs = vec![NEW];
        self.root.write32(self.bar + regs::CC, 4 << 20 | 6 << 16 | 1);
    }

    pub(super) fn disable(&mut self) {
        self.root.write32(self.bar + regs::CC, 0);
    }

    pub(super) fn make_queues(&mut self, count: u16) {
        for id in 1..=u32::from(count) {
            let size = u32::from(ENTRIES - 1) << 16;
            let cq = Sqe::admin(0x05).dword(10, size | id).dword(11, 3 | id << 16);
            assert_eq!(self.admin(cq.prp1(cq_base(id as u16))), Ok(0));
            let sq = Sqe::admin(0x01).dword(10, size | id).dword(11, 1 | id << 16);
            assert_eq!(self.admin(sq.prp1(sq_base(id as u16))), Ok(0));
            self.pairs.push(NEW);
        }
    }

    /// Puts an entry into a queue without ringing; its command identifier.
    pub(super) fn post_command(&mut self, queue: u16, sqe: Sqe) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        self.post_command_as(queue, sqe, self.next_id);
        self.next_id
    }

    pub(super) fn post_command_as(&mut self, queue: u16, sqe: Sqe, id: u16) {
        self.post_raw(queue, sqe.dword(0, sqe.0[0] & 0xffff | u32::from(id) << 16).0);
    }

    pub(super) fn post_raw(&mut self, queue: u16, dwords: [u32; 16]) {
        let pair = &mut self.pairs[usize::from(queue)];
        let at = (sq_base(queue) - MEMORY) as usize + usize::from(pair.tail) * 64;
        pair.tail = (pair.tail + 1) % ENTRIES;
        for (i, dword) in dwords.into_iter().enumerate() {
            self.root.memory[at + 4 * i..at + 4 * i + 4].copy_from_slice(&dword.to_le_bytes());
        }
    }

    /// Rings the doorbells of all queues that have something new, then lets the device work.
    pub(super) fn ring_all(&mut self) {
        self.ring_all_unpumped();
        self.root.pump();
    }

    pub(super) fn ring_all_unpumped(&mut self) {
        for (id, pair) in self.pairs.iter_mut().enumerate() {
            if pair.rung != pair.tail {
                pair.rung = pair.tail;
                let doorbell = self.bar + regs::DOORBELLS + 8 * id as u64;
                self.root.post(doorbell, &u32::from(pair.tail).to_le_bytes());
            }
        }
    }

    fn take_entry(&mut self, queue: u16) -> Option<[u8; 16]> {
        if let Some(at) = self.stash.iter().position(|&(q, _)| q == queue) {
            return Some(self.stash.remove(at).1);
        }
        self.take_new_entry(queue)
    }

    fn take_new_entry(&mut self, queue: u16) -> Option<[u8; 16]> {
        let pair = &mut self.pairs[usize::from(queue)];
        let at = (cq_base(queue) - MEMORY) as usize + usize::from(pair.head) * 16;
        let entry: [u8; 16] = self.root.memory[at..at + 16].try_into().unwrap();
        if (entry[14] & 1 != 0) != pair.phase {
            return None;
        }
        assert_eq!(u16_at(&entry, 10), queue);
        assert!(u16_at(&entry, 8) < ENTRIES);
        pair.head += 1;
        if pair.head == ENTRIES {
            (pair.head, pair.phase) = (0, !pair.phase);
        }
        let doorbell = self.bar + regs::DOORBELLS + 8 * u64::from(queue) + 4;
        self.root.post(doorbell, &u32::from(pair.head).to_le_bytes());
        Some(entry)
    }

    /// The next completion of a queue: doubleword 0 and status.
    pub(super) fn take(&mut self, queue: u16) -> Option<(u32, Status)> {
        let entry = self.take_entry(queue)?;
        Some((u32_at(&entry, 0), status(u16_at(&entry, 14))))
    }

    /// The next completion of the admin queue, after letting the device work.
    pub(super) fn take_late(&mut self) -> Option<(u32, Status)> {
        self.root.pump();
        self.take(0)
    }

    pub(super) fn take_ids(&mut self, queue: u16) -> Vec<u16> {
        let mut ids = Vec::new();
        while let Some(entry) = self.take_entry(queue) {
            ids.push(u16_at(&entry, 12));
        }
        ids
    }

    /// Queues in the order in which their completions were written: by their interrupts.
    pub(super) fn completed_order(&mut self) -> Vec<u32> {
        let order: Vec<u32> = self.root.interrupts.drain(..).map(|data| data - 0x40).collect();
        let order = order.into_iter().filter(|&queue| queue > 0).collect();
        for queue in 1..self.pairs.len() as u16 {
            while let Some((_, status)) = self.take(queue) {
                assert!(status.is_success());
            }
        }
        self.root.pump();
        order
    }

    fn run(&mut self, queue: u16, sqe: Sqe) -> Result<u32, Status> {
        let id = self.post_command(queue, sqe);
        self.ring_all();
        let entry = loop {
            let entry = self.take_new_entry(queue).expect("a completion");
            if u16_at(&entry, 12) == id {
                break entry;
            }
            self.stash.push((queue, entry));
        };
        self.root.pump();
        let status = status(u16_at(&entry, 14));
        if status.is_success() { Ok(u32_at(&entry, 0)) } else { Err(status) }
    }

    pub(super) fn admin(&mut self, sqe: Sqe) -> Result<u32, Status> {
        self.run(0, sqe)
    }

    pub(super) fn io(&mut self, queue: u16, sqe: Sqe) -> Result<u32, Status> {
        self.run(queue, sqe)
    }

    pub(super) fn identify(&mut self, nsid: u32, cns: u32) -> Result<Vec<u8>, Status> {
        self.admin(Sqe::admin(0x06).dword(1, nsid).dword(10, cns))?;
        Ok(self.root.memory[DATA..DATA + 4096].to_vec())
    }

    pub(super) fn log_page(&mut self, page: u32, len: usize) -> Result<Vec<u8>, Status> {
        let dwords = (len as u32 / 4 - 1) << 16;
        self.admin(Sqe::admin(0x02).dword(1, !0).dword(10, dwords | page))?;
        Ok(self.root.memory[DATA..DATA + len].to_vec())
    }

    /// A command of blocks, with data `offset` bytes into the data area and a PRP list (where one
    /// is needed) `list` bytes into its page.
    pub(super) fn io_sqe(
        &mut self,
        opcode: u8,
        slba: u64,
        blocks: u64,
        offset: usize,
        len: usize,
        list: usize,
    ) -> Sqe {
        let first = MEMORY + (DATA + offset) as u64;
        let mut sqe = Sqe::nvm(opcode)
            .dword(1, 1)
            .dword(10, slba as u32)
            .dword(11, (slba >> 32) as u32)
            .dword(12, blocks as u32 - 1)
            .prp1(first);
        let in_first = 4096 - (first % 4096) as usize;
        let pages: Vec<u64> = (0..len.saturating_sub(in_first).div_ceil(4096) as u64)
            .map(|i| first - first % 4096 + 4096 * (i + 1))
            .collect();
        match pages.len() {
            0 => {}
            1 => sqe = sqe.prp2(pages[0]),
            _ => {
                self.write_list(&pages, LISTS + list);
                sqe = sqe.prp2(MEMORY + (LISTS + list) as u64);
            }
        }
        sqe
    }

    /// A command of 256 blocks whose data is in pages from the last to the first.
    pub(super) fn scattered(&mut self, opcode: u8, slba: u64) -> Sqe {
        let page = |i: u64| MEMORY + DATA as u64 + 4096 * (31 - i);
        let rest: Vec<u64> = (1..32).map(page).collect();
        self.write_list(&rest, LISTS);
        let sqe = Sqe::nvm(opcode).dword(1, 1).dword(10, slba as u32).dword(12, 255);
        sqe.prp1(page(0)).prp2(MEMORY + LISTS as u64)
    }

    fn write_list(&mut self, pages: &[u64], at: usize) {
        let room = (4096 - at % 4096) / 8;
        let (here, rest) =
            if pages.len() <= room { (pages, &[][..]) } else { pages.split_at(room - 1) };
        let mut entries = here.to_vec();
        if !rest.is_empty() {
            let next = at / 4096 * 4096 + 2 * 4096;
            entries.push(MEMORY + next as u64);
            self.write_list(rest, next);
        }
        for (i, entry) in entries.into_iter().enumerate() {
            self.root.memory[at + 8 * i..at + 8 * i + 8].copy_from_slice(&entry.to_le_bytes());
        }
    }
}

fn sq_base(queue: u16) -> u64 {
    MEMORY + (QUEUES + 0x4000 * usize::from(queue)) as u64
}

fn cq_base(queue: u16) -> u64 {
    sq_base(queue) + 0x2000
}

/// A status as a constant, from a completion's last 16 bits. More is set on all errors.
fn status(bits: u16) -> Status {
    let field = bits >> 1;
    assert_eq!(field & 0x2000 != 0, field & 0x7ff != 0, "errors are in the log");
    Status::from_field(field & !0x2000)
}
