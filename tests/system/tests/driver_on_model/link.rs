//! A device on a link of its own, as its driver's machine.

use device_models::Device;
use nvme_driver::function::PAGE;
use nvme_driver::{DmaBuffer, FunctionError, PciFunction};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, MAX_TLP, Packet, Repr};

const MEMORY: u64 = 0x1_0000_0000;
const MEMORY_SIZE: usize = 16 << 20;
const BAR: u64 = 0x8000_0000;
const INTERRUPTS: u64 = 0xfee0_0000;
const VECTORS: usize = 8;
/// The device's routing ID.
const DEVICE: u16 = 0x0100;

/// What a completion of ours brought.
type Answer = (CplStatus, Vec<u8>);

pub(crate) struct Link<D: Device> {
    device: D,
    start: Instant,
    memory: Vec<u8>,
    /// Pages in use, by first page; the value is their number.
    used: BTreeMap<usize, usize>,
    answer: Option<Answer>,
    signalled: [bool; VECTORS],
    pub(crate) interrupts: u64,
}

impl<D: Device> Link<D> {
    /// Puts the device on the link, gives its first BAR an address and enables it.
    pub(crate) fn new(device: D) -> Self {
        let mut this = Self {
            device,
            start: Instant::now(),
            memory: vec![0; MEMORY_SIZE],
            used: BTreeMap::new(),
            answer: None,
            signalled: [false; VECTORS],
            interrupts: 0,
        };
        this.config_write(0x10, BAR as u32).unwrap();
        this.config_write(0x14, 0).unwrap();
        this.config_write(0x04, 6).unwrap();
        this
    }

    /// Buffers that were not given back.
    pub(crate) fn allocated(&self) -> usize {
        self.used.len()
    }

    fn send(&mut self, kind: Kind) {
        let mut buf = [0; MAX_TLP];
        let len = Repr::new(kind).emit(&mut buf).unwrap();
        self.device.handle_tlp(self.start.elapsed(), &buf[..len]);
        self.pump();
    }

    /// Takes what the device sends until it has nothing more to do now.
    fn pump(&mut self) {
        let mut buf = [0; MAX_TLP];
        loop {
            let now = self.start.elapsed();
            match self.device.poll_tlp(now, &mut buf) {
                Some(len) => self.take(&buf[..len]),
                None if self.device.poll_timeout().is_some_and(|at| at <= now) => {
                    self.device.handle_timeout(now);
                }
                None => return,
            }
        }
    }

    fn take(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("a TLP");
        match Repr::parse(&packet).expect("a valid TLP").kind {
            Kind::MemWrite { address, data, .. } if address < MEMORY => {
                assert_eq!(address & !0xfff, INTERRUPTS);
                self.signalled[usize::from(data[0])] = true;
                self.interrupts += 1;
            }
            Kind::MemWrite { address, data, enables, .. } => {
                assert_eq!(enables, ByteEnables::all((data.len() / 4) as u16));
                let at = (address - MEMORY) as usize;
                self.memory[at..at + data.len()].copy_from_slice(data);
            }
            Kind::MemRead { requester, tag, address, length_dw, .. } => {
                self.complete(requester, tag, address, usize::from(length_dw) * 4);
            }
            Kind::Completion { status, data, .. } => {
                self.answer = Some((status, data.to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers a read in pieces of up to 128 bytes, which is the payload after reset.
    fn complete(&mut self, requester: Bdf, tag: Tag, mut address: u64, mut left: usize) {
        while left > 0 {
            let len = left.min(128 - (address % 128) as usize);
            let at = (address - MEMORY) as usize;
            let data = self.memory[at..at + len].to_vec();
            let completion = Kind::Completion {
                completer: Bdf::from_bits(0),
                requester,
                tag,
                status: CplStatus::Success,
                bcm: false,
                byte_count: left as u16,
                lower_address: (address & 0x7f) as u8,
                locked: false,
                data: &data,
            };
            let mut buf = [0; MAX_TLP];
            let n = Repr::new(completion).emit(&mut buf).unwrap();
            self.device.handle_tlp(self.start.elapsed(), &buf[..n]);
            (address, left) = (address + len as u64, left - len);
        }
    }

    fn answered(&mut self, what: &str) -> Result<Vec<u8>, FunctionError> {
        match self.answer.take() {
            Some((CplStatus::Success, data)) => Ok(data),
            answer => {
                Err(FunctionError::Access { what: what.into(), reason: format!("{answer:?}") })
            }
        }
    }

    fn read(&mut self, offset: u64, dwords: u16) -> Result<Vec<u8>, FunctionError> {
        self.send(Kind::MemRead {
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).unwrap(),
            address: BAR + offset,
            length_dw: dwords,
            enables: ByteEnables::all(dwords),
            hint: None,
            locked: false,
        });
        self.answered("a register")
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.send(Kind::MemWrite {
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).unwrap(),
            address: BAR + offset,
            enables: ByteEnables::all((data.len() / 4) as u16),
            hint: None,
            data,
        });
    }

    fn place(
        &self,
        buffer: &DmaBuffer,
        offset: usize,
        len: usize,
    ) -> Result<std::ops::Range<usize>, FunctionError> {
        let size = buffer.len();
        if offset + len > size {
            return Err(FunctionError::OutsideBuffer { offset, len, size });
        }
        let at = (buffer.address() - MEMORY) as usize + offset;
        Ok(at..at + len)
    }
}

impl<D: Device> PciFunction for Link<D> {
    fn config_read(&mut self, offset: u16) -> Result<u32, FunctionError> {
        self.send(Kind::ConfigRead {
            type1: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).unwrap(),
            destination: Bdf::from_bits(DEVICE),
            register: offset,
            first_be: 15,
        });
        let data = self.answered("configuration space")?;
        Ok(u32::from_le_bytes(data.try_into().unwrap()))
    }

    fn config_write(&mut self, offset: u16, value: u32) -> Result<(), FunctionError> {
        self.send(Kind::ConfigWrite {
            type1: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).unwrap(),
            destination: Bdf::from_bits(DEVICE),
            register: offset,
            first_be: 15,
            data: &value.to_le_bytes(),
        });
        self.answered("configuration space").map(drop)
    }

    fn bar_read32(&mut self, _bar: u8, offset: u64) -> Result<u32, FunctionError> {
        Ok(u32::from_le_bytes(self.read(offset, 1)?.try_into().unwrap()))
    }

    fn bar_read64(&mut self, _bar: u8, offset: u64) -> Result<u64, FunctionError> {
        Ok(u64::from_le_bytes(self.read(offset, 2)?.try_into().unwrap()))
    }

    fn bar_write32(&mut self, _bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.write(offset, &value.to_le_bytes());
        Ok(())
    }

    fn bar_write64(&mut self, _bar: u8, offset: u64, value: u64) -> Result<(), FunctionError> {
        self.write(offset, &value.to_le_bytes());
        Ok(())
    }

    fn dma_alloc(&mut self, bytes: usize) -> Result<DmaBuffer, FunctionError> {
        let pages = bytes.div_ceil(PAGE).max(1);
        let mut first = 0;
        for (&at, &count) in &self.used {
            if at - first >= pages {
                break;
            }
            first = at + count;
        }
        if (first + pages) * PAGE > MEMORY_SIZE {
            return Err(FunctionError::NoMemory(bytes));
        }
        self.used.insert(first, pages);
        self.memory[first * PAGE..(first + pages) * PAGE].fill(0);
        Ok(DmaBuffer::new(MEMORY + (first * PAGE) as u64, pages * PAGE))
    }

    fn dma_free(&mut self, buffer: DmaBuffer) {
        self.used.remove(&((buffer.address() - MEMORY) as usize / PAGE)).expect("allocated");
    }

    fn dma_read(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), FunctionError> {
        let place = self.place(buffer, offset, to.len())?;
        to.copy_from_slice(&self.memory[place]);
        Ok(())
    }

    fn dma_write(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), FunctionError> {
        let place = self.place(buffer, offset, from.len())?;
        self.memory[place].copy_from_slice(from);
        Ok(())
    }

    fn enable_interrupts(&mut self, wanted: u16) -> Result<u16, FunctionError> {
        let mut at = self.config_read(0x34)? as u16 & 0xff;
        while at != 0 && self.config_read(at)? & 0xff != 0x11 {
            at = (self.config_read(at)? >> 8) as u16 & 0xff;
        }
        let size = (self.config_read(at)? >> 16 & 0x7ff) as u16 + 1;
        let table = u64::from(self.config_read(at + 4)? & !7);
        let vectors = size.min(wanted).min(VECTORS as u16);
        for v in 0..u64::from(vectors) {
            self.bar_write64(0, table + 16 * v, INTERRUPTS)?;
            self.bar_write64(0, table + 16 * v + 8, v)?;
        }
        self.config_write(at, 1 << 31)?;
        Ok(vectors)
    }

    fn wait(&mut self, vector: Option<u16>, deadline: Instant) -> Result<(), FunctionError> {
        loop {
            self.pump();
            let came = match vector {
                Some(vector) => std::mem::take(&mut self.signalled[usize::from(vector)]),
                None => true,
            };
            if came || Instant::now() >= deadline {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
