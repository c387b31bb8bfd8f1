//! The accelerator driven over TLPs, as a driver would.

use super::*;
use crate::device::{Classes, Device, ResetKind};
use crate::endpoint::registers::*;
use crate::endpoint::tests::tlp_bytes;
use crate::testing::*;
use proptest::prelude::*;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{CplStatus, Kind};

type Rig = Root<Endpoint<Accelerator>>;

struct Bench {
    root: Rig,
    regs: u64,
    memory: u64,
}

fn bench(config: Config) -> Bench {
    let mut root = Root::new(Accelerator::device(config).unwrap());
    let bars = root.enable();
    root.set_sizes(256, 512);
    root.enable_msix(bars[0] + regs::MSIX_TABLE, 8);
    Bench { root, regs: bars[0], memory: bars[2] }
}

fn small() -> Config {
    Config { memory_size: 1 << 20, ..Config::default() }
}

struct Job {
    operation: u32,
    host: u64,
    window: u64,
    device: u64,
    length: u64,
}

impl Bench {
    fn prepare(&mut self, slot: usize, job: &Job) {
        let at = |register| self.regs + regs::slot(slot, register);
        let vector = (slot as u32) << regs::COMMAND_VECTOR_SHIFT;
        let command = job.operation | regs::COMMAND_INTERRUPT | vector;
        let (host, window) = (at(regs::SLOT_HOST), at(regs::SLOT_HOST_WINDOW));
        let (device, length) = (at(regs::SLOT_DEVICE), at(regs::SLOT_LENGTH));
        let at_command = at(regs::SLOT_COMMAND);
        self.root.write64(host, job.host);
        self.root.write64(window, job.window);
        self.root.write64(device, job.device);
        self.root.write64(length, job.length);
        self.root.write32(at_command, command);
    }

    fn start(&mut self, slot: usize, job: &Job) {
        self.prepare(slot, job);
        self.root.write32(self.regs + regs::doorbell(slot), 0xbeef);
    }

    fn slot32(&mut self, slot: usize, register: u64) -> u32 {
        self.root.read32(self.regs + regs::slot(slot, register))
    }

    fn slot64(&mut self, slot: usize, register: u64) -> u64 {
        self.root.read64(self.regs + regs::slot(slot, register))
    }

    fn status(&mut self, slot: usize) -> (u8, u8) {
        let status = self.slot32(slot, regs::SLOT_STATUS);
        (status as u8, (status >> 8) as u8)
    }
}

const DONE: (u8, u8) = (regs::STATE_DONE, 0);

#[test]
fn the_registers_say_what_it_is() {
    let mut b = bench(Config::default());
    assert_eq!(b.root.config_read(VENDOR_ID), 0xd0ac_1b36);
    assert_eq!(b.root.config_read(REVISION_CLASS) >> 8, 0x12_0000);
    assert_eq!(b.root.read(b.regs, 4).unwrap(), b"DXAC");
    assert_eq!(b.root.read32(b.regs + regs::VERSION), 0x1_0001);
    assert_eq!(b.root.read32(b.regs + regs::CAPABILITIES), 140 << 16 | 8 << 8 | 4);
    assert_eq!(b.root.read32(b.regs + regs::PAYLOAD), 128 << 16 | 256);
    assert_eq!(b.root.read64(b.regs + regs::MEMORY_SIZE), 2 << 20);
    b.root.write32(b.regs + regs::SCRATCH, 0x1234_5678);
    assert_eq!(b.root.read(b.regs + regs::SCRATCH + 1, 2).unwrap(), [0x56, 0x34]);
}

#[test]
fn the_counter_is_cleared_by_reading_it() {
    let mut b = bench(small());
    b.root.write32(b.regs + regs::COUNTER_ADD, 3);
    b.root.write32(b.regs + regs::COUNTER_ADD, 4);
    assert_eq!(b.root.read32(b.regs + regs::COUNTER), 7);
    assert_eq!(b.root.read32(b.regs + regs::COUNTER), 0);
}

#[test]
fn a_read_job_moves_every_byte_and_proves_it() {
    let mut b = bench(small());
    for (at, len) in [(0, 1), (3, 4093), (4095, 2), (77, 300_001), (0, 1 << 20)] {
        let want = b.root.fill(at, len, len as u8);
        let host = MEMORY + at as u64;
        let length = len as u64;
        b.start(0, &Job { operation: regs::COMMAND_READ, host, window: 0, device: 0, length });
        assert_eq!(b.status(0), DONE);
        assert_eq!(b.slot32(0, regs::SLOT_CRC), crc32fast::hash(&want));
        assert_eq!(b.slot64(0, regs::SLOT_TRANSFERRED), length);
        assert_eq!(b.slot32(0, regs::SLOT_JOB_ID), 0xbeef);
        let got = b.root.read(b.memory, len.min(4096)).unwrap();
        assert_eq!(got, want[..len.min(4096)]);
    }
    assert_eq!(b.root.interrupts, [0x40; 5]);
    assert!(b.root.reads.iter().all(|&len| len <= 128), "the device's own limit");
}

#[test]
fn a_write_job_moves_every_byte_and_interrupts_behind_them() {
    let mut b = bench(small());
    let fill =
        Job { operation: regs::COMMAND_FILL, host: 42, window: 0, device: 5, length: 200_003 };
    b.start(0, &fill);
    let want = memory::pattern(42, 0, 200_003);
    assert_eq!(b.slot32(0, regs::SLOT_CRC), crc32fast::hash(&want));
    let write = Job { operation: regs::COMMAND_WRITE, host: MEMORY + 4093, ..fill };
    b.start(1, &write);
    assert_eq!(b.status(1), DONE);
    assert_eq!(b.root.memory[4093..4093 + 200_003], want);
    assert_eq!(b.slot32(1, regs::SLOT_CRC), crc32fast::hash(&want));
    assert_eq!(b.root.interrupts, [0x40, 0x41]);
    let tlps = b.slot64(1, regs::SLOT_REQUESTS);
    assert_eq!(tlps, b.root.writes.len() as u64 - 2, "all but the interrupts");
    assert_eq!(tlps, (4093 % 256 + 200_003_u64).div_ceil(256));
    let check = Job { operation: regs::COMMAND_CHECK, ..write };
    b.start(2, &check);
    assert_eq!(b.slot32(2, regs::SLOT_CRC), crc32fast::hash(&want));
}

#[test]
fn no_more_requests_are_outstanding_than_there_are_tags() {
    for (tags, read_request) in [(140, 128), (1, 64), (7, 256), (256, 512)] {
        let mut b = bench(Config { tags, read_request, ..small() });
        b.root.fill(0, 500_000, 3);
        b.root.max_read = read_request.into();
        b.root.answers = Answers::Held;
        let job = Job {
            operation: regs::COMMAND_READ,
            host: MEMORY,
            window: 0,
            device: 0,
            length: 500_000,
        };
        b.start(0, &job);
        assert_eq!(b.root.held.len(), usize::from(tags));
        while !b.root.held.is_empty() {
            let any = b.root.held.len() * 2 / 3;
            b.root.now += Duration::from_micros(1);
            b.root.answer(any);
            b.root.pump();
            assert!(b.root.held.len() <= usize::from(tags));
        }
        assert_eq!(b.root.peak_held, usize::from(tags), "the tags are kept busy");
        b.root.answers = Answers::Split;
        assert_eq!(b.status(0), DONE);
        assert_eq!(b.slot32(0, regs::SLOT_PEAK), u32::from(tags));
        let crc = crc32fast::hash(&b.root.memory[..500_000]);
        assert_eq!(b.slot32(0, regs::SLOT_CRC), crc);
        let requests = b.slot64(0, regs::SLOT_REQUESTS);
        assert_eq!(requests, 500_000_u64.div_ceil(read_request.into()));
        assert!(b.slot64(0, regs::SLOT_RTT_SUM) >= requests * 1000);
        assert!(b.slot32(0, regs::SLOT_RTT_MIN) >= 1000);
        assert!(b.slot64(0, regs::SLOT_ELAPSED) >= requests * 1000);
    }
}

#[test]
fn more_than_256_requests_are_outstanding_with_ten_bit_tags_only() {
    const ALL: u16 = 768;
    for (tags, ten_bit, held) in
        [(ALL, false, 256), (ALL, true, 768), (300, true, 300), (256, true, 256)]
    {
        let mut b = bench(Config { tags, read_request: 64, ..small() });
        let capable = b.root.config_read(DEVICE_CAPABILITIES_2) >> 17 & 1 != 0;
        assert_eq!(capable, tags > 256);
        let control = if ten_bit { DEVICE_CONTROL_2_TEN_BIT_TAGS } else { 0 };
        b.root.config_write16(DEVICE_CONTROL_2, control);
        b.root.fill(0, 100_000, 3);
        b.root.max_read = 64;
        b.root.answers = Answers::Held;
        let (operation, length) = (regs::COMMAND_READ, 100_000);
        b.start(0, &Job { operation, host: MEMORY, window: 0, device: 0, length });
        assert_eq!(b.root.held.len(), held, "{tags} tags");
        let least = if ten_bit && capable { 256 } else { 0 };
        assert!(b.root.held.iter().all(|read| read.tag.get() >= least));
        while !b.root.held.is_empty() {
            b.root.answer(b.root.held.len() * 2 / 3);
            b.root.pump();
        }
        assert_eq!(b.status(0), DONE);
        assert_eq!(b.slot32(0, regs::SLOT_CRC), crc32fast::hash(&b.root.memory[..100_000]));
    }
}

#[test]
fn tags_and_request_size_can_be_set_and_device_control_limits_the_size() {
    let mut b = bench(small());
    b.root.write32(b.regs + regs::TAGS, 9);
    b.root.write32(b.regs + regs::READ_REQUEST, 1000);
    assert_eq!(b.root.read32(b.regs + regs::READ_REQUEST), 512);
    b.root.set_sizes(256, 256);
    assert_eq!(b.root.read32(b.regs + regs::PAYLOAD) >> 16, 256);
    b.root.answers = Answers::Held;
    let job =
        Job { operation: regs::COMMAND_READ, host: MEMORY, window: 0, device: 0, length: 50_000 };
    b.start(0, &job);
    assert_eq!(b.root.held.len(), 9);
    assert_eq!(b.root.held[0].len, 256);
    assert!(b.root.held[0].attributes.relaxed_ordering);
    b.root.write32(b.regs + regs::TAGS, 100_000);
    assert_eq!(b.root.read32(b.regs + regs::TAGS), 140);
    b.root.write32(b.regs + regs::READ_REQUEST, 0);
    assert_eq!(b.root.read32(b.regs + regs::READ_REQUEST), 64);
}

#[test]
fn writes_are_no_longer_than_what_was_set() {
    let mut b = bench(small());
    for (set, payload) in [(64, 64), (1000, 256), (0, 64), (4096, 256)] {
        b.root.write32(b.regs + regs::WRITE_PAYLOAD, set);
        assert_eq!(b.root.read32(b.regs + regs::PAYLOAD) & 0xffff, payload);
        b.root.writes.clear();
        let (operation, length) = (regs::COMMAND_WRITE, 10_000);
        b.start(0, &Job { operation, host: MEMORY, window: 0, device: 0, length });
        assert_eq!(b.status(0), DONE);
        assert!(b.root.writes.iter().all(|&bytes| bytes <= payload as usize));
        assert_eq!(b.slot64(0, regs::SLOT_REQUESTS), length.div_ceil(payload.into()));
    }
    assert_eq!(b.root.read32(b.regs + regs::WRITE_PAYLOAD), 4096);
}

#[test]
fn host_window_and_device_memory_go_around() {
    let mut b = bench(Config { memory_size: 4096, ..Config::default() });
    let window = b.root.fill(100, 1000, 9);
    let want: Vec<u8> = window.iter().copied().cycle().take(50_000).collect();
    let job = Job {
        operation: regs::COMMAND_READ,
        host: MEMORY + 100,
        window: 1000,
        device: 4000,
        length: 50_000,
    };
    b.start(0, &job);
    assert_eq!(b.slot32(0, regs::SLOT_CRC), crc32fast::hash(&want));
    let got = b.root.read(b.memory, 4096).unwrap();
    for (i, &byte) in want.iter().enumerate().skip(50_000 - 4096) {
        assert_eq!(got[(4000 + i) % 4096], byte, "byte {i}");
    }
    // And back.
    b.root.memory[..5000].fill(0);
    let back = Job { operation: regs::COMMAND_WRITE, window: 96, length: 4096 * 3, ..job };
    b.start(1, &back);
    assert_eq!(b.status(1), DONE);
    let last = &got[4000 - 96..4000];
    assert_eq!(b.root.memory[100..196], *last);
    assert!(b.root.memory[196..5000].iter().all(|&byte| byte == 0));
}

#[test]
fn four_jobs_share_the_engine() {
    let mut b = bench(small());
    b.root.fill(0, 400_000, 1);
    for slot in 0..4 {
        let operation = if slot % 2 == 0 { regs::COMMAND_READ } else { regs::COMMAND_WRITE };
        let host = MEMORY + 1_000_000 * slot as u64;
        let device = 200_000 * slot as u64;
        b.prepare(slot, &Job { operation, host, window: 0, device, length: 100_000 });
    }
    for slot in 0..4 {
        let doorbell = b.regs + regs::doorbell(slot);
        b.root.post(doorbell, &[slot as u8, 0, 0, 0]);
    }
    b.root.post(b.regs + regs::doorbell(2), &[9, 0, 0, 0]);
    b.root.pump();
    for slot in 0..4 {
        assert_eq!(b.status(slot), DONE);
        assert_eq!(b.slot32(slot, regs::SLOT_JOB_ID), slot as u32);
    }
    assert_eq!(b.root.read32(b.regs + regs::BAD_DOORBELLS), 1);
    b.root.interrupts.sort_unstable();
    assert_eq!(b.root.interrupts, [0x40, 0x41, 0x42, 0x43]);
}

#[test]
fn errors_end_a_job_and_the_next_one_works() {
    let job =
        Job { operation: regs::COMMAND_READ, host: MEMORY, window: 0, device: 0, length: 100_000 };
    for (answers, error) in [
        (Answers::Status(CplStatus::UnsupportedRequest), regs::ERROR_UNSUPPORTED_REQUEST),
        (Answers::Status(CplStatus::CompleterAbort), regs::ERROR_COMPLETER_ABORT),
        (Answers::Poisoned, regs::ERROR_POISONED),
    ] {
        let mut b = bench(small());
        b.root.answers = answers;
        b.start(0, &job);
        assert_eq!(b.status(0), (regs::STATE_FAILED, error));
        assert_eq!(b.root.interrupts, [0x40]);
        b.root.answers = Answers::Split;
        b.start(0, &job);
        assert_eq!(b.status(0), DONE);
    }
}

#[test]
fn senseless_parameters_are_refused() {
    let good =
        Job { operation: regs::COMMAND_READ, host: MEMORY, window: 0, device: 0, length: 4096 };
    let mut b = bench(small());
    let refused = (regs::STATE_FAILED, regs::ERROR_PARAMETER);
    for job in [
        Job { length: 0, ..good },
        Job { length: regs::MAX_LENGTH + 1, ..good },
        Job { device: 1 << 20, ..good },
        Job { host: u64::MAX, ..good },
    ] {
        b.start(0, &job);
        assert_eq!(b.status(0), refused);
    }
    b.prepare(0, &good);
    let command = regs::COMMAND_INTERRUPT | 8 << regs::COMMAND_VECTOR_SHIFT;
    b.root.write32(b.regs + regs::slot(0, regs::SLOT_COMMAND), command);
    b.root.write32(b.regs + regs::doorbell(0), 1);
    assert_eq!(b.status(0), refused);
    b.root.config_write16(COMMAND, COMMAND_MEMORY);
    b.start(0, &good);
    assert_eq!(b.status(0), (regs::STATE_FAILED, regs::ERROR_BUS_MASTER_OFF));
}

#[test]
fn an_aborted_job_stops_and_leaves_the_others() {
    let mut b = bench(small());
    b.root.answers = Answers::Held;
    let job =
        Job { operation: regs::COMMAND_READ, host: MEMORY, window: 0, device: 0, length: 100_000 };
    b.start(0, &job);
    b.start(1, &Job { device: 500_000, ..job });
    assert_eq!(b.root.read32(b.regs + regs::RUNNING), 3);
    b.root.write32(b.regs + regs::ABORT, 1);
    assert_eq!(b.status(0), (regs::STATE_FAILED, regs::ERROR_ABORTED));
    b.root.answers = Answers::Split;
    while !b.root.held.is_empty() {
        b.root.answer(0);
    }
    b.root.pump();
    assert_eq!(b.status(1), DONE);
    assert_eq!(b.root.read(b.memory, 64).unwrap(), [0; 64], "nothing of the first one");
    assert_eq!(b.root.interrupts, [0x41]);
}

/// Nor for one that ends so because of another.
#[test]
fn an_abort_without_the_bus_ends_every_job_that_writes() {
    let mut b = bench(small());
    let job =
        Job { operation: regs::COMMAND_WRITE, host: MEMORY, window: 0, device: 0, length: 100_000 };
    (0..2).for_each(|slot| b.prepare(slot, &job));
    for slot in 0..2 {
        b.root.post(b.regs + regs::doorbell(slot), &[1, 0, 0, 0]);
    }
    b.root.post(b.memory, &[7; 64]);
    assert_eq!(b.root.pump_classes(Classes::NONE), []);
    // Three requests come before the device gets to its work.
    let command = |root: &mut Rig, tag: u16, value: u16| {
        root.send(Kind::ConfigWrite {
            type1: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(tag).unwrap(),
            destination: Bdf::from_bits(DEVICE),
            register: COMMAND,
            first_be: 0b11,
            data: &u32::from(value).to_le_bytes(),
        });
    };
    command(&mut b.root, 200, COMMAND_MEMORY);
    b.root.post(b.regs + regs::ABORT, &1_u32.to_le_bytes());
    command(&mut b.root, 201, COMMAND_MEMORY | COMMAND_BUS_MASTER);
    assert_eq!(b.status(0), (regs::STATE_FAILED, regs::ERROR_ABORTED));
    assert_eq!(b.status(1), (regs::STATE_FAILED, regs::ERROR_BUS_MASTER_OFF));
    assert_eq!(b.root.memory[..64], [0; 64]);
}

/// What a job had handed over and that has not left ends with it, when the bus is taken away.
#[test]
fn nothing_is_written_for_a_job_that_failed_without_the_bus() {
    let mut b = bench(small());
    let job =
        Job { operation: regs::COMMAND_FILL, host: 42, window: 0, device: 0, length: 100_000 };
    b.start(0, &job);
    b.root.interrupts.clear();
    b.prepare(0, &Job { operation: regs::COMMAND_WRITE, host: MEMORY, ..job });
    b.root.post(b.regs + regs::doorbell(0), &[1, 0, 0, 0]);
    assert_eq!(b.root.pump_classes(Classes::NONE), []);
    b.root.config_write16(COMMAND, COMMAND_MEMORY);
    assert_eq!(b.status(0), (regs::STATE_FAILED, regs::ERROR_BUS_MASTER_OFF));
    b.root.config_write16(COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER);
    assert_eq!(b.root.memory[..64], [0; 64]);
    assert!(b.root.counter("writes_dropped") > 0);
    assert_eq!(b.root.interrupts, [0x40], "it is told");
}

#[test]
fn resets_end_jobs_and_only_power_clears_memory() {
    let mut b = bench(small());
    b.root.post(b.memory, &[7; 8]);
    b.root.answers = Answers::Held;
    let job = Job {
        operation: regs::COMMAND_READ,
        host: MEMORY,
        window: 0,
        device: 4096,
        length: 100_000,
    };
    b.root.write32(b.regs + regs::TAGS, 3);
    b.start(0, &job);
    b.root.write32(b.regs + regs::CONTROL, regs::CONTROL_RESET);
    assert_eq!(b.status(0), (regs::STATE_IDLE, 0));
    assert_eq!(b.root.read32(b.regs + regs::TAGS), 140);
    b.start(0, &job);
    b.root.device.handle_reset(b.root.now, ResetKind::HotReset);
    b.root.held.clear();
    b.root.enable();
    assert_eq!(b.status(0), (regs::STATE_IDLE, 0));
    assert_eq!(b.root.read(b.memory, 8).unwrap(), [7; 8]);
    b.root.device.handle_reset(b.root.now, ResetKind::Power { on: false });
    b.root.device.handle_reset(b.root.now, ResetKind::Power { on: true });
    b.root.enable();
    assert_eq!(b.root.read(b.memory, 8).unwrap(), [0; 8]);
    assert_eq!(b.root.interrupts, []);
}

#[test]
fn a_configuration_out_of_range_is_named() {
    let error = Accelerator::device(Config { tags: 0, ..small() }).err().unwrap();
    assert_eq!(error.to_string(), "accelerator: tags is 0; it has to be 1 to 768");
    assert!(Accelerator::device(Config { memory_size: 5000, ..small() }).is_err());
    assert!(Accelerator::device(Config { read_request: 32, ..small() }).is_err());
    assert!(Accelerator::device(Config { max_payload: 64, ..small() }).is_err());
}

/// The page that drivers are written from and the constants say the same.
#[test]
fn the_page_has_the_constants() {
    let page = include_str!("../../docs/accelerator.md");
    let has = |offset: String, name: &str| {
        let row = page.lines().find(|line| line.contains(&format!("| `{name}` |")));
        assert!(row.unwrap_or_else(|| panic!("{name}")).starts_with(&format!("| {offset} |")));
    };
    let size = format!("a power of two, {} MB by default |", regs::DEFAULT_MEMORY_SIZE >> 20);
    assert!(page.lines().any(|line| line.starts_with("| BAR2 |") && line.ends_with(&size)));
    for (name, at) in [
        ("ID", regs::ID),
        ("VERSION", regs::VERSION),
        ("CAPABILITIES", regs::CAPABILITIES),
        ("PAYLOAD", regs::PAYLOAD),
        ("MEMORY_SIZE", regs::MEMORY_SIZE),
        ("SCRATCH", regs::SCRATCH),
        ("COUNTER", regs::COUNTER),
        ("COUNTER_ADD", regs::COUNTER_ADD),
        ("CONTROL", regs::CONTROL),
        ("RUNNING", regs::RUNNING),
        ("ABORT", regs::ABORT),
        ("TAGS", regs::TAGS),
        ("READ_REQUEST", regs::READ_REQUEST),
        ("BAD_DOORBELLS", regs::BAD_DOORBELLS),
        ("IN_FLIGHT", regs::IN_FLIGHT),
        ("WRITE_PAYLOAD", regs::WRITE_PAYLOAD),
    ] {
        has(format!("{at:03X}h"), name);
    }
    for (name, at) in [
        ("HOST", regs::SLOT_HOST),
        ("HOST_WINDOW", regs::SLOT_HOST_WINDOW),
        ("DEVICE", regs::SLOT_DEVICE),
        ("LENGTH", regs::SLOT_LENGTH),
        ("COMMAND", regs::SLOT_COMMAND),
        ("JOB_ID", regs::SLOT_JOB_ID),
        ("STATUS", regs::SLOT_STATUS),
        ("CRC", regs::SLOT_CRC),
        ("ELAPSED", regs::SLOT_ELAPSED),
        ("TRANSFERRED", regs::SLOT_TRANSFERRED),
        ("REQUESTS", regs::SLOT_REQUESTS),
        ("RTT_SUM", regs::SLOT_RTT_SUM),
        ("RTT_MIN", regs::SLOT_RTT_MIN),
        ("RTT_MAX", regs::SLOT_RTT_MAX),
        ("PEAK", regs::SLOT_PEAK),
    ] {
        has(format!("+{at:02X}h"), name);
    }
}

proptest! {
    #[test]
    fn no_register_contents_or_tlp_make_it_panic(
        writes in prop::collection::vec((0_u64..0x400, any::<u32>(), any::<bool>()), 0..40),
        tlps in prop::collection::vec(tlp_bytes(), 0..30),
    ) {
        let mut b = bench(Config { memory_size: 4096, ..Config::default() });
        let mut buf = vec![0; tlp_codec::tlp::MAX_TLP];
        for (at, value, small) in writes {
            let value = if small { value & 0xffff } else { value };
            b.root.post(b.regs + at / 4 * 4, &value.to_le_bytes());
            b.root.post(b.regs + regs::doorbell(at as usize % 4), &value.to_le_bytes());
            for _ in 0..20 {
                b.root.device.poll_tlp(b.root.now, &mut buf);
            }
        }
        for tlp in tlps {
            b.root.device.handle_tlp(b.root.now, &tlp);
            b.root.device.poll_tlp(b.root.now, &mut buf);
            b.root.now += Duration::from_millis(5);
            b.root.device.handle_timeout(b.root.now);
        }
    }
}
