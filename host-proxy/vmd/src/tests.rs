//! The adapter between a machine of the tests and whatever is below.

mod memory;

use crate::*;
use proptest::prelude::*;
use proxy_core::config_space::ResetKind;
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::TLP_BUFFER;
use proxy_core::switch::SwitchConfig;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{
    ByteEnables, Class, CplStatus, Kind, MsgCode, MsgRouting, Packet, Repr, TlpType,
};

/// Memory from 0 on, a page behind it that is reached by messages, and what was signalled.
struct Machine {
    memory: Vec<u8>,
    far: Vec<u8>,
    /// The last page of the address space.
    last: Option<Last>,
    room: usize,
    asked: VecDeque<(Token, u64, usize)>,
    written: Vec<(u64, Vec<u8>)>,
    /// Writes that the machine has not said to be done.
    unanswered: VecDeque<Token>,
    /// Bytes of the longest message.
    longest: usize,
    signalled: Vec<u16>,
    next: u64,
}

#[derive(Clone)]
enum Last {
    Mapped(Vec<u8>),
    ByMessage,
}

const LAST: u64 = u64::MAX - 0xfff;
const NEAR: u64 = 0x1_0000;
const FAR: u64 = 0x1000;

impl Default for Machine {
    fn default() -> Self {
        Self {
            memory: (0..NEAR).map(|n| n as u8 ^ (n >> 8) as u8).collect(),
            far: (0..FAR).map(|n| !n as u8).collect(),
            last: None,
            room: usize::MAX,
            asked: VecDeque::new(),
            written: Vec::new(),
            unanswered: VecDeque::new(),
            longest: usize::MAX,
            signalled: Vec::new(),
            next: 0,
        }
    }
}

impl Machine {
    fn place(&mut self, address: u64, len: usize) -> Result<&mut [u8], MemoryFault> {
        let last = address.checked_add(len as u64 - 1).ok_or(MemoryFault::Nothing)?;
        let page = (address % FAR) as usize;
        match &mut self.last {
            Some(Last::Mapped(bytes)) if address >= LAST => return Ok(&mut bytes[page..page + len]),
            Some(Last::ByMessage) if address >= LAST => return Err(MemoryFault::ByMessage),
            _ => {}
        }
        match last {
            last if last < NEAR => Ok(&mut self.memory[address as usize..][..len]),
            last if last < NEAR + FAR && address >= NEAR => Err(MemoryFault::ByMessage),
            _ => Err(MemoryFault::Nothing),
        }
    }
}

impl Machine {
    fn message(&mut self, len: usize) -> Result<Token, NoMessage> {
        if len > self.longest {
            return Err(NoMessage::Never);
        }
        self.room = self.room.checked_sub(1).ok_or(NoMessage::Busy)?;
        self.next += 1;
        Ok(Token(self.next))
    }
}

impl Guest for Machine {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), MemoryFault> {
        buf.copy_from_slice(self.place(address, buf.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryFault> {
        self.place(address, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn is_readable(&mut self, address: u64, len: usize) -> bool {
        self.place(address, len) != Err(MemoryFault::Nothing)
    }

    fn is_writable(&mut self, address: u64, len: usize) -> bool {
        self.is_readable(address, len)
    }

    fn begin_read(&mut self, address: u64, len: usize) -> Result<Token, NoMessage> {
        let token = self.message(len)?;
        self.asked.push_back((token, address, len));
        Ok(token)
    }

    fn begin_write(&mut self, address: u64, data: &[u8]) -> Result<Token, NoMessage> {
        let token = self.message(data.len())?;
        self.written.push((address, data.to_vec()));
        self.unanswered.push_back(token);
        Ok(token)
    }

    fn signal(&mut self, vector: u16) {
        self.signalled.push(vector);
    }
}

/// An adapter with windows at 0xd000_0000 and 0x8_0000_0000, buses 1 to 16 and the first 16 MB of
/// each window behind the root port, everything enabled.
struct Bench {
    adapter: Adapter,
    machine: Machine,
    now: Instant,
    /// How long the machine has waited for earlier accesses.
    waited: Duration,
}

const WINDOW: u64 = 0xd000_0000;
const BUFFER: usize = TLP_BUFFER;

impl Bench {
    fn new(settings: &VmdConfig) -> Self {
        let adapter = Adapter::new(settings).unwrap();
        let (machine, now, waited) = (Machine::default(), Instant::ZERO, Duration::ZERO);
        let mut bench = Self { adapter, machine, now, waited };
        for (register, value) in [(0x18, WINDOW as u32), (0x1c, 0), (0x20, 0), (0x24, 8), (4, 6)] {
            bench.write(Region::Own, register, &u32::to_le_bytes(value));
        }
        if settings.interrupts == Interrupts::MemoryWrites {
            bench.write(Region::Own, 0x44, &2_u32.to_le_bytes());
        }
        for (register, value) in [
            (0x18, 0x0010_0100_u32),
            (0x20, 0xd0f0_d000),
            (0x24, 0x00f1_0001),
            (0x28, 8),
            (0x2c, 8),
            (0x3c, 1 << 17),
            (0x54, 0xfee0_3000),
            (0x5c, 0x31),
            (0x12c, 7),
            (0x78, 0xf),
            (0x04, 6),
        ] {
            bench.write(Region::Configuration, register, &value.to_le_bytes());
        }
        bench.write(Region::Configuration, 0x52, &[1, 0]);
        bench
    }

    /// An access that nobody below is asked for.
    fn write(&mut self, region: Region, offset: u64, data: &[u8]) {
        self.adapter.handle_write(region, offset, data);
        assert_eq!(self.request(), None);
        assert_eq!(self.adapter.poll_answer(), Some(&[][..]));
    }

    fn read(&mut self, region: Region, offset: u64, len: usize) -> Vec<u8> {
        self.adapter.handle_read(region, offset, len);
        assert_eq!(self.request(), None);
        self.adapter.poll_answer().unwrap().to_vec()
    }

    fn request(&mut self) -> Option<Vec<u8>> {
        let mut buf = [0; BUFFER];
        self.adapter
            .poll_request(self.now, self.waited, &mut buf)
            .map(|length| buf[..length].to_vec())
    }

    fn below_sends(&mut self, kind: Kind<'_>) {
        let mut buf = [0; BUFFER];
        let length = Repr::new(kind).emit(&mut buf).unwrap();
        self.adapter.handle_tlp(self.now, &buf[..length], &mut self.machine);
    }

    fn complete(&mut self, request: &[u8], status: CplStatus, data: &[u8]) {
        let repr = Repr::from_bytes(request).unwrap();
        let (requester, tag) = repr.transaction_id();
        let (byte_count, lower_address) = match repr.kind {
            Kind::MemRead { address, length_dw, enables, .. } => {
                let skip = enables.first.trailing_zeros() as u8;
                (enables.byte_count(length_dw), (address as u8 + skip) & 0x7f)
            }
            _ => (4, 0),
        };
        self.below_sends(Kind::Completion {
            completer: device(),
            requester,
            tag,
            status,
            bcm: false,
            byte_count,
            lower_address,
            locked: false,
            data,
        });
    }

    fn completions(&mut self) -> Vec<Vec<u8>> {
        let mut buf = [0; BUFFER];
        let mut all = Vec::new();
        while let Some(length) = self.adapter.poll_turned(&mut buf) {
            all.push(buf[..length].to_vec());
        }
        while let Some(length) = self.adapter.poll_completion(|_| true, &mut buf) {
            all.push(buf[..length].to_vec());
        }
        all
    }
}

fn device() -> Bdf {
    Bdf::from_bits(0x0300)
}

fn tag(number: u16) -> Tag {
    Tag::new(number).unwrap()
}

fn ecam(bdf: u16, register: u64) -> u64 {
    u64::from(bdf) << 12 | register
}

fn mem_read(address: u64, bytes: usize, number: u16) -> Kind<'static> {
    let (enables, length_dw) = ByteEnables::for_range(address, bytes);
    Kind::MemRead {
        requester: device(),
        tag: tag(number),
        address: address & !3,
        length_dw,
        enables,
        hint: None,
        locked: false,
    }
}

fn mem_write(address: u64, data: &[u8]) -> Kind<'_> {
    let (enables, _) = ByteEnables::for_range(address, data.len());
    Kind::MemWrite { requester: device(), tag: tag(0), address, enables, hint: None, data }
}

#[test]
fn the_root_port_is_the_only_function_of_its_bus() {
    let mut bench = Bench::new(&VmdConfig::default());
    assert_eq!(bench.read(Region::Configuration, 0, 4), 0xd0b2_1234_u32.to_le_bytes());
    assert_eq!(bench.read(Region::Configuration, 2, 1), [0xb2]);
    assert_eq!(bench.read(Region::Configuration, 1, 4), [0x12, 0xb2, 0xd0, 6], "two registers");
    for bdf in [1, 8, 0x1100, 0x0108] {
        assert_eq!(bench.read(Region::Configuration, ecam(bdf, 0), 4), [0xff; 4], "{bdf:#x}");
    }
}

#[test]
fn configuration_below_is_a_request_of_the_right_type() {
    let mut bench = Bench::new(&VmdConfig::default());
    for (bdf, kind) in [(0x0100, false), (0x0200, true), (0x1007, true)] {
        bench.adapter.handle_read(Region::Configuration, ecam(bdf, 0x0e), 1);
        let request = bench.request().unwrap();
        let Kind::ConfigRead { type1, destination, register, first_be, requester, .. } =
            Repr::from_bytes(&request).unwrap().kind
        else {
            panic!("not a configuration read")
        };
        assert_eq!((type1, destination.bits(), register, first_be), (kind, bdf, 0x0c, 0b0100));
        assert_eq!(requester, Bdf::default());
        assert_eq!(bench.request(), None, "one at a time");
        assert_eq!(bench.adapter.poll_answer(), None);
        bench.complete(&request, CplStatus::Success, &[0, 0, 0x81, 0]);
        assert_eq!(bench.adapter.poll_answer(), Some(&[0x81][..]));
    }
}

#[test]
fn a_configuration_write_is_done_when_it_is_completed() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_write(Region::Configuration, ecam(0x0100, 0x06), &[1, 2]);
    let request = bench.request().unwrap();
    let Kind::ConfigWrite { first_be, data, register, .. } =
        Repr::from_bytes(&request).unwrap().kind
    else {
        panic!("not a configuration write")
    };
    assert_eq!((register, first_be, data), (4, 0b1100, &[0, 0, 1, 2][..]));
    assert_eq!(bench.adapter.poll_answer(), None);
    bench.complete(&request, CplStatus::Success, &[]);
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
}

#[test]
fn memory_is_reached_at_the_windows_addresses() {
    let mut bench = Bench::new(&VmdConfig::default());
    for (region, base) in [(Region::Memory, WINDOW), (Region::Prefetchable, 0x8_0000_0000)] {
        bench.adapter.handle_read(region, 0x4004, 8);
        let request = bench.request().unwrap();
        let repr = Repr::from_bytes(&request).unwrap();
        let Kind::MemRead { address, length_dw, enables, .. } = repr.kind else { panic!() };
        assert_eq!((address, length_dw), (base + 0x4004, 2));
        assert_eq!(enables, ByteEnables::all(2));
        bench.complete(&request, CplStatus::Success, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bench.adapter.poll_answer(), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        bench.adapter.handle_write(region, 0x5003, &[9]);
        let request = bench.request().unwrap();
        let Kind::MemWrite { address, enables, data, .. } =
            Repr::from_bytes(&request).unwrap().kind
        else {
            panic!()
        };
        assert_eq!((address, enables.first, data), (base + 0x5000, 8, &[0, 0, 0, 9][..]));
        assert_eq!(bench.adapter.poll_answer(), Some(&[][..]), "posted");
    }
    // Outside of what the root port has, and the adapter's own pages.
    assert_eq!(bench.read(Region::Memory, 0x100_0000, 4), [0xff; 4]);
    assert_eq!(bench.read(Region::Prefetchable, 0x1000, 4), [0; 4]);
}

#[test]
fn long_and_crooked_reads_are_cut_and_put_together() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Memory, 0x3d, 200);
    let pattern = |address: u64| (address * 7) as u8;
    let mut requests = 0;
    while let Some(request) = bench.request() {
        let Kind::MemRead { address, length_dw, .. } = Repr::from_bytes(&request).unwrap().kind
        else {
            panic!()
        };
        requests += 1;
        let data: Vec<u8> = (0..u64::from(length_dw) * 4).map(|n| pattern(address + n)).collect();
        bench.complete(&request, CplStatus::Success, &data);
    }
    let wanted: Vec<u8> = (0..200).map(|n| pattern(WINDOW + 0x3d + n)).collect();
    assert_eq!(bench.adapter.poll_answer(), Some(&wanted[..]));
    assert_eq!(requests, 5);
}

#[test]
fn refusals_read_as_ones_and_a_hung_device_costs_one_timeout() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Memory, 0, 4);
    let request = bench.request().unwrap();
    bench.complete(&request, CplStatus::UnsupportedRequest, &[]);
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4][..]));

    bench.adapter.handle_read(Region::Memory, 0, 4096);
    let request = bench.request().unwrap();
    let deadline = bench.adapter.poll_timeout().unwrap();
    bench.now = deadline;
    bench.adapter.handle_timeout(deadline);
    assert_eq!(bench.request(), None, "the rest is not asked for");
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4096][..]));
    bench.complete(&request, CplStatus::Success, &[0; 64]);
    let counters = bench.adapter.counters();
    assert_eq!((counters.timed_out, counters.unexpected), (1, 1));
    // The root port tells: Completion Timeout, and its interrupt.
    assert_eq!(bench.read(Region::Configuration, 0x104, 4), (1_u32 << 14).to_le_bytes());
    assert_eq!(bench.machine.written, [(0xfee0_3000, 0x31_u32.to_le_bytes().to_vec())]);
}

/// The machine's patience is for all parts of an access together.
#[test]
fn parts_whose_answers_take_too_long_are_the_last() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 0x10), 8);
    let request = bench.request().unwrap();
    bench.now = bench.now + REQUEST_BOUND;
    bench.complete(&request, CplStatus::Success, &[1, 2, 3, 4]);
    assert_eq!(bench.request(), None, "the rest is not asked for");
    assert_eq!(bench.adapter.poll_answer(), Some(&[1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff][..]));
    // Of what is refused late, too.
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 0x10), 8);
    let request = bench.request().unwrap();
    bench.now = bench.now + RETRY_BOUND;
    bench.complete(&request, CplStatus::UnsupportedRequest, &[]);
    assert_eq!(bench.request(), None, "the rest is not asked for");
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 8][..]));
    // In time it is; and a write of memory is not waited for, however long each part takes.
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 0x10), 8);
    for _ in 0..2 {
        let request = bench.request().unwrap();
        bench.now = bench.now + RETRY_BOUND;
        bench.complete(&request, CplStatus::Success, &[1, 2, 3, 4]);
    }
    assert_eq!(bench.adapter.poll_answer(), Some(&[1, 2, 3, 4, 1, 2, 3, 4][..]));
    bench.adapter.handle_write(Region::Memory, 0, &[5; 256]);
    for _ in 0..4 {
        assert!(bench.request().is_some());
        bench.now = bench.now + RETRY_BOUND;
    }
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
}

/// Writes of configuration space are answered, too, and a machine may have many on their way.
#[test]
fn a_machine_that_waited_for_long_is_not_made_to_wait_again() {
    let mut bench = Bench::new(&VmdConfig::default());
    let place = ecam(0x0100, 0x10);
    bench.waited = REQUEST_BOUND;
    bench.adapter.handle_write(Region::Configuration, place, &[1; 4]);
    assert_eq!(bench.request(), None, "it is given up");
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
    bench.adapter.handle_read(Region::Configuration, place, 4);
    assert_eq!(bench.request(), None);
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4][..]));
    bench.adapter.handle_write(Region::Memory, 0, &[5; 4]);
    assert!(bench.request().is_some(), "nothing is waited for");
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
    // Shortly before that it is asked once, and not again when it asks for a retry then.
    bench.waited = REQUEST_BOUND - Duration::from_millis(10);
    bench.adapter.handle_read(Region::Configuration, place, 4);
    let request = bench.request().unwrap();
    bench.now = bench.now + Duration::from_millis(20);
    bench.complete(&request, CplStatus::ConfigRetry, &[]);
    assert_eq!(bench.request(), None);
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4][..]));
}

#[test]
fn a_request_that_is_lost_on_its_way_is_not_waited_for() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Memory, 0, 4);
    let request = bench.request().unwrap();
    bench.adapter.request_lost();
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4][..]));
    bench.complete(&request, CplStatus::Success, &[0; 4]);
    let counters = bench.adapter.counters();
    assert_eq!((counters.timed_out, counters.unexpected), (1, 1));
    // Nothing of a write is waited for.
    bench.adapter.handle_write(Region::Memory, 0, &[5; 128]);
    assert!(bench.request().is_some());
    bench.adapter.request_lost();
    assert!(bench.request().is_some());
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
}

#[test]
fn a_device_that_is_not_ready_is_asked_again_or_shown() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 0), 4);
    for round in 0..3 {
        let request = bench.request().unwrap();
        bench.complete(&request, CplStatus::ConfigRetry, &[]);
        assert_eq!(bench.request(), None, "{round}: a pause");
        bench.now = bench.adapter.poll_timeout().unwrap();
    }
    let request = bench.request().unwrap();
    bench.complete(&request, CplStatus::Success, &[1, 2, 3, 4]);
    assert_eq!(bench.adapter.poll_answer(), Some(&[1, 2, 3, 4][..]));

    bench.write(Region::Configuration, 0x8c, &[0x10]);
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 0), 4);
    let request = bench.request().unwrap();
    bench.complete(&request, CplStatus::ConfigRetry, &[]);
    assert_eq!(bench.adapter.poll_answer(), Some(&[1, 0, 0xff, 0xff][..]));

    // Another register, for longer than there is time.
    bench.adapter.handle_read(Region::Configuration, ecam(0x0100, 8), 4);
    let began = bench.now;
    while let Some(request) = bench.request() {
        bench.complete(&request, CplStatus::ConfigRetry, &[]);
        bench.now = bench.adapter.poll_timeout().unwrap_or(bench.now);
    }
    assert_eq!(bench.adapter.poll_answer(), Some(&[0xff; 4][..]));
    assert!(bench.now - began < Duration::from_secs(2));
}

#[test]
fn dma_reads_are_completed_in_parts_of_the_payload_size() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_read(0x103e, 300, 9));
    let mut got = Vec::new();
    for completion in bench.completions() {
        let repr = Repr::from_bytes(&completion).unwrap();
        let Kind::Completion {
            requester,
            tag: number,
            status,
            byte_count,
            lower_address,
            data,
            ..
        } = repr.kind
        else {
            panic!()
        };
        assert_eq!((requester, number, status), (device(), tag(9), CplStatus::Success));
        assert_eq!(usize::from(byte_count), 300 - got.len());
        assert_eq!(u64::from(lower_address), (0x103e + got.len() as u64) & 0x7f);
        assert!(data.len() <= 128);
        let skip = usize::from(lower_address & 3);
        let len = (data.len() - skip).min(300 - got.len());
        got.extend_from_slice(&data[skip..skip + len]);
    }
    assert_eq!(got, bench.machine.memory[0x103e..0x103e + 300]);
    assert!(!bench.adapter.may_complete());
}

#[test]
fn dma_to_nothing_is_refused_and_told() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_read(NEAR + FAR, 8, 3));
    let completions = bench.completions();
    let Kind::Completion { status, byte_count, .. } =
        Repr::from_bytes(&completions[0]).unwrap().kind
    else {
        panic!()
    };
    assert_eq!((completions.len(), status), (1, CplStatus::UnsupportedRequest));
    assert_eq!(byte_count, 8);
    bench.below_sends(mem_write(0x5000_0000, &[0; 4]));
    assert_eq!(bench.adapter.counters().writes_dropped, 1);
    assert_eq!(bench.machine.written.len(), 1, "the root port's interrupt");
    // Bus Master of the adapter, and of the root port.
    let before = bench.machine.memory.clone();
    bench.write(Region::Own, 4, &[2, 0]);
    bench.below_sends(mem_write(0x100, &[0xee; 4]));
    bench.write(Region::Own, 4, &[6, 0]);
    bench.write(Region::Configuration, 4, &[2, 0]);
    bench.below_sends(mem_write(0x100, &[0xee; 4]));
    assert_eq!(bench.machine.memory, before);
}

#[test]
fn memory_by_message_waits_for_its_answer_while_others_go_on() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_read(NEAR + 0x12, 6, 1));
    bench.below_sends(mem_read(0x20, 4, 2));
    let completions = bench.completions();
    assert_eq!(completions.len(), 1);
    assert_eq!(Repr::from_bytes(&completions[0]).unwrap().transaction_id().1, tag(2));
    let (token, address, len) = bench.machine.asked.pop_front().unwrap();
    assert_eq!((address, len), (NEAR + 0x10, 8));
    let data = bench.machine.far[0x10..0x18].to_vec();
    bench.adapter.handle_memory(token, Ok(&data));
    let completions = bench.completions();
    let Kind::Completion { data: got, byte_count, lower_address, .. } =
        Repr::from_bytes(&completions[0]).unwrap().kind
    else {
        panic!()
    };
    assert_eq!((got, byte_count, lower_address), (&data[..], 6, 0x12));
    bench.adapter.handle_memory(token, Ok(&data));
    assert_eq!(bench.adapter.counters().unexpected, 1, "an answer to nothing");
    // A read that the machine refuses.
    bench.below_sends(mem_read(NEAR, 4, 1));
    let (token, ..) = bench.machine.asked.pop_front().unwrap();
    bench.adapter.handle_memory(token, Err(()));
    assert_eq!(Packet::new_checked(&bench.completions()[0][..]).unwrap().payload_len(), 0);
}

#[test]
fn an_interrupt_comes_after_the_writes_before_it() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.room = 0;
    bench.below_sends(mem_write(NEAR, &[5; 4]));
    for _ in 0..3 {
        bench.below_sends(mem_write(0xfee0_1000, &0x42_u32.to_le_bytes()));
    }
    assert!(bench.machine.written.is_empty());
    bench.machine.room = 9;
    bench.adapter.handle_guest(&mut bench.machine);
    let interrupt = (0xfee0_1000, 0x42_u32.to_le_bytes().to_vec());
    assert_eq!(bench.machine.written, [(NEAR, vec![5; 4]), interrupt], "three are one");
}

#[test]
fn remapped_interrupts_are_vectors() {
    let settings = VmdConfig { interrupts: Interrupts::Remapped, ..VmdConfig::default() };
    let mut bench = Bench::new(&settings);
    bench.below_sends(mem_write(0xfee0_b000, &[0; 4]));
    assert_eq!((&bench.machine.signalled[..], bench.machine.written.len()), (&[11][..], 0));
    // A write of half a doubleword is none.
    bench.below_sends(Kind::MemWrite {
        requester: device(),
        tag: tag(0),
        address: 0xfee0_b000,
        enables: ByteEnables { first: 3, last: 0 },
        hint: None,
        data: &[0; 4],
    });
    assert_eq!(bench.adapter.counters().unsupported, 1);
}

#[test]
fn a_vector_waits_for_the_answer_to_every_write_before_it() {
    let settings = VmdConfig { interrupts: Interrupts::Remapped, ..VmdConfig::default() };
    let mut bench = Bench::new(&settings);
    bench.below_sends(mem_write(NEAR, &[5; 4]));
    bench.below_sends(mem_write(NEAR + 8, &[6; 4]));
    bench.below_sends(mem_write(0xfee0_b000, &[0; 4]));
    assert_eq!(bench.machine.written.len(), 2);
    for left in [1, 0] {
        assert_eq!(bench.machine.signalled, [], "data may still be on its way");
        let token = bench.machine.unanswered.pop_front().unwrap();
        bench.adapter.handle_memory(token, Ok(&[]));
        bench.adapter.handle_guest(&mut bench.machine);
        assert_eq!(bench.machine.unanswered.len(), left);
    }
    assert_eq!(bench.machine.signalled, [11]);
    assert_eq!(bench.adapter.counters().unexpected, 0);
}

#[test]
fn reads_by_message_wait_for_room_and_pass_no_write() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.room = 0;
    bench.below_sends(mem_write(NEAR, &[5; 4]));
    bench.below_sends(mem_read(NEAR, 4, 1));
    bench.below_sends(mem_read(NEAR + 8, 4, 2));
    bench.machine.room = 1;
    bench.adapter.handle_guest(&mut bench.machine);
    assert_eq!((bench.machine.written.len(), bench.machine.asked.len()), (1, 0));
    bench.machine.room = 1;
    bench.adapter.handle_guest(&mut bench.machine);
    assert_eq!(bench.machine.asked.len(), 1, "the first has room, the second waits");
    bench.machine.room = 9;
    bench.adapter.handle_guest(&mut bench.machine);
    let asked: Vec<_> = bench.machine.asked.iter().map(|(_, address, _)| *address).collect();
    assert_eq!(asked, [NEAR, NEAR + 8]);
    assert!(bench.completions().is_empty());
    for (token, ..) in std::mem::take(&mut bench.machine.asked) {
        bench.adapter.handle_memory(token, Ok(&[7; 4]));
    }
    assert_eq!(bench.completions().len(), 2);
    assert_eq!(bench.adapter.counters().unsupported, 0);
}

#[test]
fn what_a_machine_takes_in_no_message_is_refused() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.longest = 8;
    bench.below_sends(mem_write(NEAR, &[5; 12]));
    bench.below_sends(mem_read(NEAR, 12, 1));
    bench.below_sends(mem_read(NEAR, 8, 2));
    assert_eq!(bench.adapter.counters().writes_dropped, 1);
    assert_eq!(bench.adapter.counters().unsupported, 1);
    let refused = bench.completions();
    let Kind::Completion { status, .. } = Repr::from_bytes(&refused[0]).unwrap().kind else {
        panic!()
    };
    assert_eq!((refused.len(), status), (1, CplStatus::UnsupportedRequest));
    assert_eq!(bench.machine.asked.len(), 1, "the short one is asked for");
}

#[test]
fn an_answer_after_a_reset_is_for_nobody_and_no_surprise() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_write(NEAR, &[5; 4]));
    bench.below_sends(mem_read(NEAR, 4, 1));
    let (read, ..) = bench.machine.asked.pop_front().unwrap();
    let write = bench.machine.unanswered.pop_front().unwrap();
    bench.adapter.handle_reset();
    bench.adapter.handle_memory(read, Ok(&[0; 4]));
    bench.adapter.handle_memory(write, Ok(&[]));
    assert_eq!(bench.adapter.counters().unexpected, 0);
    bench.adapter.handle_memory(Token(read.0 + 9), Ok(&[]));
    assert_eq!(bench.adapter.counters().unexpected, 1);
}

#[test]
fn a_device_that_takes_no_completions_holds_up_no_other() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_read(0, 4, 1));
    let mut other = mem_read(0, 4, 2);
    let Kind::MemRead { requester, .. } = &mut other else { panic!() };
    *requester = Bdf::from_bits(0x0400);
    bench.below_sends(other);
    let mut buf = [0; BUFFER];
    let length = bench.adapter.poll_completion(|of| of != device(), &mut buf).unwrap();
    assert_eq!(Repr::from_bytes(&buf[..length]).unwrap().transaction_id().1, tag(2));
    assert_eq!(bench.adapter.poll_completion(|of| of != device(), &mut buf), None);
    assert_eq!(bench.completions().len(), 1);
}

#[test]
fn the_answer_to_the_machine_comes_through_what_devices_sent_before_it() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.adapter.handle_read(Region::Configuration, ecam(device().bits(), 0), 4);
    let request = bench.request().unwrap();
    // The machine takes no messages until it has its answer.
    bench.machine.room = 0;
    for n in 0..2 * POSTED as u64 {
        bench.below_sends(mem_write(NEAR + n % 512 * 4, &[1; 4]));
        bench.below_sends(mem_read(NEAR, 4, (n % 256) as u16));
    }
    bench.complete(&request, CplStatus::Success, &[1, 2, 3, 4]);
    assert_eq!(bench.adapter.poll_answer(), Some(&[1, 2, 3, 4][..]));
    assert!(!bench.adapter.has_room(), "and then they wait again");
    bench.machine.room = usize::MAX;
    bench.adapter.handle_guest(&mut bench.machine);
    assert_eq!(bench.machine.written.len(), 2 * POSTED);
}

#[test]
fn without_room_nothing_more_is_taken() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.room = 0;
    let mut sent = 0_u64;
    while bench.adapter.has_room() {
        bench.below_sends(mem_write(NEAR + sent % 512 * 4, &[1; 4]));
        sent += 1;
        assert!(sent <= POSTED as u64);
    }
    bench.machine.room = usize::MAX;
    bench.adapter.handle_guest(&mut bench.machine);
    assert_eq!(bench.machine.written.len() as u64, sent);
    let mut reads = 0;
    while bench.adapter.has_room() {
        bench.below_sends(mem_read(0, 4, 0));
        reads += 1;
    }
    assert_eq!(reads, READS);
}

#[test]
fn what_is_for_another_device_turns_round() {
    let mut bench = Bench::new(&VmdConfig::default());
    let long = [3; 128];
    bench.below_sends(mem_write(WINDOW + 0x100, &long));
    let turned = bench.completions();
    assert_eq!(Repr::from_bytes(&turned[0]).unwrap().kind, mem_write(WINDOW + 0x100, &long));
    bench.below_sends(Kind::Completion {
        completer: Bdf::from_bits(0x0400),
        requester: device(),
        tag: tag(7),
        status: CplStatus::Success,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[1, 2, 3, 4],
    });
    assert_eq!(bench.completions().len(), 1);
    assert_eq!(bench.adapter.counters().turned, 2);
}

fn non_fatal_error() -> Kind<'static> {
    Kind::Message {
        routing: MsgRouting::ToRootComplex,
        code: MsgCode::ErrNonFatal,
        requester: device(),
        tag: tag(0),
        fields: [0; 8],
        data: &[],
    }
}

#[test]
fn error_messages_reach_the_root_port_s_registers_and_interrupt() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(non_fatal_error());
    assert_eq!(bench.read(Region::Configuration, 0x136, 2), [0, 3], "who");
    assert_eq!(bench.machine.written.len(), 1);
}

/// The root port's own interrupt is none of what a reset below it takes away.
#[test]
fn a_reset_below_keeps_the_root_port_s_interrupt() {
    let settings = VmdConfig { interrupts: Interrupts::Remapped, ..VmdConfig::default() };
    let mut bench = Bench::new(&settings);
    bench.below_sends(mem_write(NEAR, &[5; 4]));
    bench.below_sends(non_fatal_error());
    assert_eq!(bench.machine.signalled, [], "data may still be on its way");
    bench.adapter.handle_write(Region::Configuration, 0x3e, &[0x42, 0]);
    assert_eq!(bench.request(), None);
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
    assert_eq!(bench.adapter.poll_reset(), Some(ResetKind::Hot));
    let token = bench.machine.unanswered.pop_front().unwrap();
    bench.adapter.handle_memory(token, Ok(&[]));
    bench.adapter.handle_guest(&mut bench.machine);
    assert_eq!(bench.machine.signalled, [3]);
}

#[test]
fn resets_are_told_once_and_nothing_of_before_comes_after() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_read(0, 64, 1));
    bench.adapter.handle_write(Region::Configuration, 0x3e, &[0x42, 0]);
    assert_eq!(bench.request(), None);
    assert_eq!(bench.adapter.poll_answer(), Some(&[][..]));
    assert!(bench.completions().is_empty());
    assert_eq!(bench.adapter.poll_reset(), Some(ResetKind::Hot));
    assert_eq!(bench.adapter.poll_reset(), None);
    assert!(bench.completions().is_empty());
    assert_eq!(bench.read(Region::Configuration, ecam(0x100, 0), 4), [0xff; 4], "in reset");
    bench.adapter.handle_reset();
    assert_eq!(bench.adapter.poll_reset(), Some(ResetKind::Fundamental));
    assert_eq!(bench.read(Region::Configuration, 0x18, 4), [0; 4]);
}

/// The virtual switch itself, without any box, as Linux finds it.
#[test]
fn the_switch_is_found_through_the_adapter() {
    let mut role = HostRole::new(&HostConfig {
        switch: SwitchConfig { ports: 4, ..SwitchConfig::default() },
        ..HostConfig::default()
    })
    .unwrap();
    let mut bench = Bench::new(&VmdConfig::default());
    let mut access = |bench: &mut Bench, bdf: u16, register: u64, data: Option<u32>| {
        let at = ecam(bdf, register);
        match data {
            Some(data) => {
                let data = data.to_le_bytes();
                bench.adapter.handle_write(Region::Configuration, at, &data);
            }
            None => bench.adapter.handle_read(Region::Configuration, at, 4),
        }
        let mut buf = [0; BUFFER];
        loop {
            if let Some(data) = bench.adapter.poll_answer() {
                return data.try_into().map_or(0, u32::from_le_bytes);
            }
            if let Some(request) = bench.request() {
                role.handle_tlp(bench.now, &request).unwrap();
            }
            while let Some(length) = role.poll_tlp(bench.now, &mut buf) {
                bench.adapter.handle_tlp(bench.now, &buf[..length], &mut bench.machine);
            }
        }
    };
    assert_eq!(access(&mut bench, 0x0100, 0, None), 0xd0b0_1234);
    access(&mut bench, 0x0100, 0x18, Some(0x0010_0201));
    let found: Vec<u16> = (0..32)
        .filter(|device| access(&mut bench, 0x0200 | device << 3, 0, None) == 0xd0b1_1234)
        .collect();
    assert_eq!(found, [0, 1, 2, 3]);
    assert_eq!(access(&mut bench, 0x0300, 0, None), u32::MAX, "nothing is plugged");
}

#[derive(Clone, Debug)]
enum Step {
    Read(u8, u64, usize),
    Write(u8, u64, Vec<u8>),
    Tlp(Vec<u8>),
    Answer(bool, u8),
    Time(u64),
    Room(usize),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..0x2000_u64, any::<u64>(), (0..0x20_0000_u64)];
    prop_oneof![
        4 => (0..9_u8, offset.clone(), 0..300_usize).prop_map(|(r, o, l)| Step::Read(r, o, l)),
        4 => (0..9_u8, offset, proptest::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(r, o, d)| Step::Write(r, o, d)),
        4 => proptest::collection::vec(any::<u8>(), 0..80).prop_map(Step::Tlp),
        4 => (any::<bool>(), any::<u8>()).prop_map(|(right, status)| Step::Answer(right, status)),
        1 => (0..2_000_000_000_u64).prop_map(Step::Time),
        1 => (0..9_usize).prop_map(Step::Room),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    /// Whatever the machine and the devices do, the adapter stands, and every access ends.
    #[test]
    fn anything_goes(steps in proptest::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new(&VmdConfig::default());
        let mut last: Option<Vec<u8>> = None;
        for step in steps {
            let busy = bench.adapter.is_busy();
            match step {
                Step::Read(region, offset, len) if !busy => {
                    if let Some(region) = Region::from_index(region) {
                        bench.adapter.handle_read(region, offset, len);
                    }
                }
                Step::Write(region, offset, data) if !busy => {
                    if let Some(region) = Region::from_index(region) {
                        bench.adapter.handle_write(region, offset, &data);
                    }
                }
                Step::Tlp(bytes) if bench.adapter.has_room() => {
                    bench.adapter.handle_tlp(bench.now, &bytes, &mut bench.machine);
                }
                Step::Answer(right, status) if bench.adapter.has_room() => {
                    if let Some(mut request) = last.take() {
                        let status = match status % 4 {
                            0 => CplStatus::ConfigRetry,
                            1 => CplStatus::UnsupportedRequest,
                            _ => CplStatus::Success,
                        };
                        let mut packet = Packet::new_checked(&mut request[..]).unwrap();
                        if !right {
                            let other = packet.tag().get() ^ 1;
                            packet.set_tag(tag(other));
                        }
                        let reads = packet.tlp_type() != TlpType::CfgWr0
                            && packet.tlp_type() != TlpType::CfgWr1;
                        let reads = reads && status == CplStatus::Success;
                        let data = vec![7; usize::from(packet.length_dw()) * 4];
                        if packet.class() == Some(Class::NonPosted) {
                            bench.complete(&request, status, if reads { &data } else { &[] });
                        }
                    }
                }
                Step::Time(nanos) => {
                    bench.now = bench.now + Duration::from_nanos(nanos);
                    bench.adapter.handle_timeout(bench.now);
                }
                Step::Room(room) => bench.machine.room = room,
                Step::Reset => bench.adapter.handle_reset(),
                _ => {}
            }
            bench.adapter.poll_reset();
            if let Some(request) = bench.request() {
                last = Some(request);
            }
            bench.completions();
            bench.adapter.handle_guest(&mut bench.machine);
            if let Some((token, ..)) = bench.machine.asked.pop_front() {
                bench.adapter.handle_memory(token, Err(()));
            }
            bench.adapter.poll_answer();
        }
        let began = bench.now;
        while bench.adapter.is_busy() && bench.adapter.poll_answer().is_none() {
            bench.adapter.poll_reset();
            bench.request();
            if let Some(at) = bench.adapter.poll_timeout() {
                bench.now = bench.now.max(at);
                bench.adapter.handle_timeout(bench.now);
            }
            prop_assert!(bench.now - began < Duration::from_secs(5), "an access never ends");
        }
    }
}
