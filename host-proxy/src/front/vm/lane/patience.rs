//! A machine has many writes on their way and reads behind them: whatever devices do, the answer
//! comes before QEMU gives up. Adapter and lane as they work together, in milliseconds that nobody
//! waits for.

use super::Below as _;
use super::tests::Below;
use super::{Lane, PATIENCE, Passed, SYNTHESISED_COMPLETION, is_posted, port_of};
use proptest::prelude::*;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::{CplStatus, Kind, Repr};
use vmd_adapter::{Adapter, Guest, MemoryFault, NoMessage, Region, VmdConfig};

const PORTS: u8 = 4;

/// A device, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// It takes no TLPs from then on.
    full_from: u64,
    /// It takes TLPs from then on again.
    takes_from: u64,
    /// For so long after it was first asked it asks for retries.
    not_ready: u64,
    /// So long after a request it answers: for a longer time than the role below waits, never.
    answers_after: u64,
}

/// What a machine does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Memory {
        port: u8,
    },
    ConfigWrite {
        port: u8,
    },
    /// Of two doublewords.
    ConfigRead {
        port: u8,
    },
    MemoryRead {
        port: u8,
    },
}

/// A machine without memory.
struct NoMemory;

impl Guest for NoMemory {
    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), MemoryFault> {
        unreachable!("no device asks")
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), MemoryFault> {
        unreachable!("no device asks")
    }

    fn is_readable(&mut self, _: u64, _: usize) -> bool {
        false
    }

    fn is_writable(&mut self, _: u64, _: usize) -> bool {
        false
    }

    fn begin_read(&mut self, _: u64, _: usize) -> Result<vmd_adapter::Token, NoMessage> {
        unreachable!("no device asks")
    }

    fn begin_write(&mut self, _: u64, _: &[u8]) -> Result<vmd_adapter::Token, NoMessage> {
        unreachable!("no device asks")
    }

    fn signal(&mut self, _: u16) {}
}

struct Machine {
    adapter: Adapter,
    lane: Lane,
    below: Below,
    devices: Vec<Device>,
    asked_first: Vec<Option<u64>>,
    /// The request that waits for its answer, and since when.
    out: Option<(Vec<u8>, u64)>,
    /// Whether the machine has more on its way.
    more: bool,
    now: u64,
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

impl Machine {
    fn new(devices: Vec<Device>) -> Self {
        let mut machine = Self {
            adapter: Adapter::new(&VmdConfig::default()).unwrap(),
            lane: Lane::of_requests(),
            below: Below::with(PORTS),
            asked_first: vec![None; devices.len()],
            devices,
            out: None,
            more: false,
            now: 0,
        };
        // The adapter's windows and decoding; the root port's buses, window and decoding.
        for (region, register, value) in [
            (Region::Own, 0x18, super::tests::WINDOW as u32),
            (Region::Own, 0x04, 6),
            (Region::Configuration, 0x18, 0x0010_0100),
            (Region::Configuration, 0x20, 0x1ff0_1000),
            (Region::Configuration, 0x04, 6),
        ] {
            machine.adapter.handle_write(region, register, &u32::to_le_bytes(value));
            assert_eq!(machine.answered(), Some(vec![]));
        }
        machine
    }

    fn begin(&mut self, act: Act) {
        let ecam = |port| u64::from(3 + port) << 20 | 0x10;
        let window = |port| u64::from(port) << 20 | 0x40;
        match act {
            Act::Memory { port } => {
                self.adapter.handle_write(Region::Memory, window(port), &[0; 4]);
            }
            Act::ConfigWrite { port } => {
                self.adapter.handle_write(Region::Configuration, ecam(port), &[0; 4]);
            }
            Act::ConfigRead { port } => {
                self.adapter.handle_read(Region::Configuration, ecam(port), 8);
            }
            Act::MemoryRead { port } => self.adapter.handle_read(Region::Memory, window(port), 4),
        }
    }

    /// As the front does it.
    fn answered(&mut self) -> Option<Vec<u8>> {
        let Self { adapter, lane, below, now, .. } = self;
        let waited = lane.waited(at(*now));
        if lane.fill(at(*now), |buf| adapter.poll_request(at(*now), waited, buf)) {
            lane.note_request(adapter.asks_since());
            let tlp = lane.held().expect("it was filled").to_vec();
            match lane.pass(at(*now), below) {
                Passed::GivenUp => adapter.request_lost(),
                Passed::Taken if !is_posted(&tlp) => self.out = Some((tlp, *now)),
                Passed::Taken | Passed::Held => {}
            }
        }
        let since = self.adapter.asks_since();
        let answer = self.adapter.poll_answer()?.to_vec();
        if let Some(since) = since {
            self.lane.note_answer(since, at(self.now));
        }
        if self.lane.has_waited(at(self.now)) && !self.more {
            self.lane.note_idle();
        }
        Some(answer)
    }

    /// A device answers, or the role below for it.
    fn answer(&mut self) {
        let Some((tlp, since)) = self.out.take() else { return };
        let request = Repr::from_bytes(&tlp).unwrap();
        let port = port_of(self.below.switch().unwrap(), &tlp).expect("it is a device's").get();
        let device = self.devices[usize::from(port)];
        let first = *self.asked_first[usize::from(port)].get_or_insert(since);
        let synthesised = SYNTHESISED_COMPLETION.as_millis() as u64;
        let ready =
            self.now >= first + device.not_ready || matches!(request.kind, Kind::MemRead { .. });
        let (due, status) = match ready {
            _ if self.now >= since + synthesised => (self.now, CplStatus::UnsupportedRequest),
            false => (since + 1, CplStatus::ConfigRetry),
            true => (since + device.answers_after, CplStatus::Success),
        };
        if self.now < due {
            self.out = Some((tlp, since));
            return;
        }
        let (requester, tag) = request.transaction_id();
        let writes = matches!(request.kind, Kind::ConfigWrite { .. });
        let with_data = status == CplStatus::Success && !writes;
        let completion = Repr::new(Kind::Completion {
            completer: Bdf::default(),
            requester,
            tag,
            status,
            bcm: false,
            byte_count: 4,
            lower_address: if matches!(request.kind, Kind::MemRead { .. }) { 0x40 } else { 0 },
            locked: false,
            data: if with_data { &[1; 4] } else { &[] },
        });
        let mut buf = [0; 64];
        let length = completion.emit(&mut buf).unwrap();
        self.adapter.handle_tlp(at(self.now), &buf[..length], &mut NoMemory);
    }

    /// How many milliseconds it takes until the last of these is answered, all of which were made at
    /// once.
    fn takes(&mut self, acts: &[Act]) -> u64 {
        let mut left = acts.iter();
        loop {
            let full = |d: &Device| (d.full_from..d.takes_from).contains(&self.now);
            let full = self.devices.iter().enumerate().filter(|(_, device)| full(device));
            self.below.full = full.map(|(port, _)| 1 << port).sum();
            self.answer();
            self.adapter.handle_timeout(at(self.now));
            // Several things may happen at once.
            for _ in 0..8 {
                if self.adapter.is_busy() {
                    self.answered();
                } else if let Some(act) = left.next() {
                    self.more = !left.as_slice().is_empty();
                    self.begin(*act);
                } else {
                    return self.now;
                }
            }
            self.now += 1;
        }
    }
}

fn devices() -> impl Strategy<Value = Vec<Device>> {
    let often = |most: u64| prop_oneof![3 => Just(0), 1 => Just(10_000), 2 => 1..most];
    let full = (prop_oneof![1 => Just(0), 1 => 0..4000_u64], often(2000));
    let device =
        (full, often(2000), often(2500)).prop_map(|((full_from, full), not_ready, answer)| {
            let takes_from = full_from + full;
            Device { full_from, takes_from, not_ready, answers_after: answer }
        });
    prop::collection::vec(device, usize::from(PORTS))
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = (0..4, 0..PORTS).prop_map(|(what, port)| match what {
        0 => Act::Memory { port },
        1 => Act::ConfigWrite { port },
        2 => Act::ConfigRead { port },
        _ => Act::MemoryRead { port },
    });
    prop::collection::vec(act, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_comes_later_than_it_is_waited_for(devices in devices(), acts in acts()) {
        let took = Machine::new(devices).takes(&acts);
        prop_assert!(took < PATIENCE.as_millis() as u64, "{took} ms");
    }
}

const WELL: Device = Device { full_from: 0, takes_from: 0, not_ready: 0, answers_after: 0 };
const SILENT: Device = Device { answers_after: 10_000, ..WELL };

fn machine(devices: [Device; 4]) -> Machine {
    Machine::new(devices.to_vec())
}

fn after(answers_after: u64) -> Device {
    Device { answers_after, ..WELL }
}

const WRITE: Act = Act::ConfigWrite { port: 0 };

#[test]
fn writes_to_a_silent_device_end_before_the_read_behind_them() {
    let took = machine([SILENT, WELL, WELL, WELL]).takes(&[WRITE, Act::ConfigRead { port: 1 }]);
    assert!((2000..2010).contains(&took), "{took} ms");
    let took = machine([SILENT, WELL, WELL, WELL]).takes(&[WRITE; 20]);
    assert!((4000..4010).contains(&took), "two of them are made: {took} ms");
    // Short waits are waits, too.
    let took = machine([after(4), SILENT, WELL, WELL]).takes(&[WRITE; 1300]);
    assert!((2700..2900).contains(&took), "the rest is given up: {took} ms");
}

#[test]
fn a_machine_that_has_waited_is_patient_again_when_nothing_is_on_its_way() {
    let mut slow = machine([SILENT, after(10), WELL, WELL]);
    for round in 1..4 {
        let began = slow.now;
        slow.takes(&[WRITE; 9]);
        let took = slow.now - began;
        assert!((4000..4010).contains(&took), "{round}: {took} ms");
    }
    // One after the other, for as long as it likes.
    for _ in 0..400 {
        let began = slow.now;
        slow.takes(&[Act::ConfigRead { port: 1 }]);
        assert!(slow.now - began >= 20, "both its parts are asked for");
    }
}

/// What has an answer is not held for as long as a write: the answer is to come after that.
#[test]
fn a_request_is_held_only_as_long_as_there_is_time_for_its_answer() {
    let late = Device { takes_from: 2650, ..WELL };
    let later = Device { takes_from: 3250, ..SILENT };
    let acts = [WRITE, Act::Memory { port: 1 }, Act::ConfigRead { port: 2 }];
    let took = machine([SILENT, late, later, WELL]).takes(&acts);
    assert!((2650..2710).contains(&took), "{took} ms");
    // Its own access has waited, too: for retries, or for the first of two parts.
    let acts = [WRITE, Act::ConfigWrite { port: 1 }];
    let unready =
        Device { not_ready: 890, full_from: 2291, takes_from: 3780, answers_after: 10_000 };
    let took = machine([after(1400), unready, WELL, WELL]).takes(&acts);
    assert!(took < 4710, "{took} ms");
    let acts = [WRITE, Act::ConfigRead { port: 1 }];
    let halves = Device { full_from: 2480, takes_from: 3980, answers_after: 1990, ..WELL };
    let took = machine([after(500), halves, WELL, WELL]).takes(&acts);
    assert!(took < 4710, "{took} ms");
}

#[test]
fn a_healthy_devices_write_is_not_lost_for_a_moment_without_room() {
    let mut both = machine([SILENT, WELL, WELL, WELL]);
    both.takes(&[WRITE; 2]);
    let full = both.now + 3;
    both.devices[1] = Device { full_from: 0, takes_from: full, ..WELL };
    both.lane.note_answer(Instant::ZERO, at(4000));
    both.takes(&[Act::Memory { port: 1 }]);
    while both.lane.held().is_some() {
        both.takes(&[]);
        both.now += 1;
        both.below.full = if both.now < full { 2 } else { 0 };
        both.answered();
    }
    assert!((full..full + 3).contains(&both.now), "it was held until there was room");
}
