use super::*;
use proxy_core::config_space::ResetKind;
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::role::Backpressure;
use proxy_core::switch::SwitchConfig;
use proxy_net::Waiting;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Repr};

/// A switch whose ports lead to buses from 3 on and to a megabyte each, and which has no room for
/// TLPs to some of its ports.
pub(in super::super) struct Below {
    role: HostRole,
    /// By bit.
    pub(in super::super) full: u32,
    taken: usize,
    /// Whether the switch is at hand.
    here: bool,
}

pub(super) const WINDOW: u64 = 0x1000_0000;

impl Below {
    pub(in super::super) fn new() -> Self {
        Self::with(2)
    }

    pub(super) fn with(ports: u8) -> Self {
        let switch = SwitchConfig { ports, ..SwitchConfig::default() };
        let role = HostRole::new(&HostConfig { switch, ..HostConfig::default() }).unwrap();
        let mut below = Self { role, full: 0, taken: 0, here: true };
        below.write(0x0100, 0x18, 0x0002_0201 + (u32::from(ports) << 16));
        below.write(0x0100, 0x04, 7);
        for port in 0..u16::from(ports) {
            let at = 0x0200 | port << 3;
            below.write(at, 0x18, 0x02 | u32::from(3 + port) << 8 | u32::from(3 + port) << 16);
            let base = (WINDOW as u32 >> 16) + 0x10 * u32::from(port);
            below.write(at, 0x20, base | base << 16);
            below.write(at, 0x04, 7);
        }
        below
    }

    fn write(&mut self, at: u16, register: u16, value: u32) {
        let destination = Bdf::from_bits(at);
        let tlp = bytes(Kind::ConfigWrite {
            type1: at >= 0x0200,
            requester: Bdf::default(),
            tag: Tag::new(0).unwrap(),
            destination,
            register,
            first_be: 0xf,
            data: &value.to_le_bytes(),
        });
        self.role.handle_tlp(Instant::ZERO, &tlp).unwrap();
        let mut answer = [0; TLP_BUFFER];
        let length = self.role.poll_tlp(Instant::ZERO, &mut answer).expect("a completion");
        let status = Packet::new_checked(&answer[..length]).unwrap().status();
        assert_eq!(status, CplStatus::Success, "{at:x}:{register:x}");
    }
}

impl super::Below for Below {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn latest(&self) -> Instant {
        Instant::ZERO
    }

    fn receive(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn handle_tlp(&mut self, _: Instant, tlp: &[u8]) -> Result<(), Backpressure> {
        let port = port_of(self.role.switch(), tlp);
        if port.is_some_and(|port| self.full & 1 << port.get() != 0) {
            return Err(Backpressure);
        }
        self.taken += 1;
        Ok(())
    }

    fn poll_tlp(&mut self, _: Instant, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn handle_reset(&mut self, _: ResetKind) {}

    fn switch(&self) -> Option<&VirtualSwitch> {
        self.here.then(|| self.role.switch())
    }

    fn wants_counters(&self) -> bool {
        false
    }

    fn set_counters(&mut self, _: Vec<(&'static str, u64)>) {}

    fn transmit(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn rest(&mut self, _: bool, _: Option<Instant>, _: &[Waiting<'_>]) -> Result<(), String> {
        Ok(())
    }
}

fn bytes(kind: Kind<'_>) -> Vec<u8> {
    let mut buf = [0; TLP_BUFFER];
    let length = Repr::new(kind).emit(&mut buf).unwrap();
    buf[..length].to_vec()
}

/// A write to the window of a port.
pub(in super::super) fn write(port: u64) -> Vec<u8> {
    bytes(Kind::MemWrite {
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        address: WINDOW + (port << 20) + 0x40,
        enables: ByteEnables::all(1),
        hint: None,
        data: &[0; 4],
    })
}

/// A completion for a device behind a port.
fn completion(port: u16) -> Vec<u8> {
    bytes(Kind::Completion {
        completer: Bdf::default(),
        requester: Bdf::from_bits((3 + port) << 8),
        tag: Tag::new(0).unwrap(),
        status: CplStatus::Success,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[0; 4],
    })
}

/// When a read has to be on its way that the machine made at first.
fn latest() -> Instant {
    Instant::ZERO + (PATIENCE - vmd_adapter::COMPLETION_TIMEOUT)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn fill(lane: &mut Lane, tlp: &[u8], now: u64) {
    lane.fill(at(now), |room| {
        room[..tlp.len()].copy_from_slice(tlp);
        Some(tlp.len())
    });
}

/// What becomes of a TLP, tried every millisecond from a time on, and when.
pub(in super::super) fn pass(
    lane: &mut Lane,
    below: &mut Below,
    tlp: &[u8],
    from: u64,
) -> (Passed, u64) {
    late(lane, below, tlp, from, u64::MAX)
}

/// The same where there is room for every TLP after so many milliseconds.
fn late(lane: &mut Lane, below: &mut Below, tlp: &[u8], from: u64, after: u64) -> (Passed, u64) {
    let full = below.full;
    for now in from.. {
        below.full = if now - from < after { full } else { 0 };
        fill(lane, tlp, now);
        match lane.pass(at(now), below) {
            Passed::Held => {}
            passed => {
                below.full = full;
                return (passed, now - from);
            }
        }
    }
    unreachable!("it ends")
}

#[test]
fn a_hung_device_is_waited_for_once() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    below.full = 0b01;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 0), (Passed::GivenUp, 1500));
    for again in 0..100 {
        assert_eq!(pass(&mut lane, &mut below, &write(0), 2000 + again), (Passed::GivenUp, 0));
    }
    assert_eq!(pass(&mut lane, &mut below, &write(1), 3000), (Passed::Taken, 0), "another one");
    assert_eq!(pass(&mut lane, &mut below, &write(0), 3001), (Passed::GivenUp, 0), "known still");
    below.full = 0;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 4000), (Passed::Taken, 0));
    below.full = 0b01;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 6499), (Passed::GivenUp, 75), "not so soon");
    assert_eq!(pass(&mut lane, &mut below, &write(0), 6600), (Passed::GivenUp, 0));
    below.full = 0;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 6700), (Passed::Taken, 0));
    below.full = 0b01;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 11_574), (Passed::GivenUp, 1500), "anew");
}

#[test]
fn several_hung_devices_cost_little_more_than_one() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    below.full = 0b11;
    assert_eq!(pass(&mut lane, &mut below, &write(0), 0), (Passed::GivenUp, 1500));
    assert_eq!(pass(&mut lane, &mut below, &write(1), 1500), (Passed::GivenUp, 75));
    lane.clear();
    assert_eq!(pass(&mut lane, &mut below, &write(1), 9000), (Passed::GivenUp, 1500), "anew");
}

/// What the machine wrote before it read is all in the socket, and the read waits for it.
#[test]
fn all_hung_devices_together_leave_time_for_a_read() {
    const PORTS: u64 = MAX_PORTS as u64;
    // All hung, or every second one, with writes to the healthy ones in between.
    for healthy in [0, 0xaaaa_aaaa_u32] {
        let (mut lane, mut below) = (Lane::of_requests(), Below::with(MAX_PORTS as u8));
        let mut now = 0;
        for port in 0..PORTS {
            below.full = !healthy;
            let (passed, held) = pass(&mut lane, &mut below, &write(port), now);
            let taken = healthy & 1 << port != 0;
            assert_eq!(passed == Passed::Taken, taken, "{port}");
            now += held;
        }
        assert!(at(now) < latest(), "{now} ms");
    }
}

#[test]
fn a_device_that_hangs_again_and_again_leaves_time_for_a_read() {
    for here in [true, false] {
        let (mut lane, mut below) = (Lane::of_requests(), Below::new());
        below.here = here;
        let mut now = 0;
        for _ in 0..1000 {
            below.full = 0b01;
            let (passed, held) = pass(&mut lane, &mut below, &write(0), now);
            assert_eq!(passed, Passed::GivenUp);
            now += held;
            below.full = 0;
            assert_eq!(pass(&mut lane, &mut below, &write(0), now), (Passed::Taken, 0));
        }
        assert!(at(now) < latest(), "{now} ms");
    }
}

/// However many are hung, and whether they hang again or not.
#[test]
fn a_healthy_device_among_hung_ones_has_a_few_turns_to_take_a_write() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::with(MAX_PORTS as u8));
    below.full = u32::MAX;
    let mut now = 0;
    for port in 0..MAX_PORTS as u64 - 1 {
        let (passed, held) = pass(&mut lane, &mut below, &write(port), now);
        assert_eq!(passed, Passed::GivenUp, "{port}");
        now += held;
        let healthy = write(MAX_PORTS as u64 - 1);
        assert_eq!(late(&mut lane, &mut below, &healthy, now, 4), (Passed::Taken, 4), "{port}");
        now += 4;
    }
}

#[test]
fn writes_that_are_taken_late_leave_time_for_a_read_too() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    below.full = 0b11;
    let mut now = 0;
    let mut passed = Vec::new();
    for port in [0, 1, 0, 1] {
        let (what, held) = late(&mut lane, &mut below, &write(port), now, 1400);
        passed.push(what);
        now += held;
    }
    assert!(at(now) < latest(), "{now} ms");
    assert_eq!(passed, [Passed::Taken, Passed::GivenUp, Passed::GivenUp, Passed::GivenUp]);
}

#[test]
fn a_slow_device_loses_nothing_while_nobody_waits_behind_its_writes() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    below.full = 0b01;
    for again in 0..100 {
        let passed = late(&mut lane, &mut below, &write(0), again * 1400, 1400);
        assert_eq!(passed, (Passed::Taken, 1400), "{again}");
        lane.note_idle();
    }
    assert_eq!(pass(&mut lane, &mut below, &write(0), 200_000), (Passed::GivenUp, 1500));
    // One that is held may be waited for.
    below.full = 0b11;
    fill(&mut lane, &write(1), 201_500);
    lane.note_idle();
    assert_eq!(pass(&mut lane, &mut below, &write(1), 201_500), (Passed::GivenUp, 75));
}

#[test]
fn a_device_that_is_sent_more_than_it_takes_at_once_loses_nothing() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    below.full = 0b01;
    for again in 0..10_000 {
        let passed = late(&mut lane, &mut below, &write(0), again * 4, 4);
        assert_eq!(passed, (Passed::Taken, 4), "{again}");
    }
    assert_eq!(pass(&mut lane, &mut below, &write(0), 40_000), (Passed::GivenUp, 1500));
}

/// As completions are.
#[test]
fn what_the_machine_does_not_wait_behind_is_always_held_as_long() {
    let (mut lane, mut below) = (Lane::new(), Below::new());
    let mut now = 0;
    for port in [0, 1, 0, 1] {
        below.full = 0b11;
        assert_eq!(pass(&mut lane, &mut below, &write(port), now), (Passed::GivenUp, 1500));
        below.full = 0;
        assert_eq!(pass(&mut lane, &mut below, &write(port), now + 1500), (Passed::Taken, 0));
        now += 1500;
    }
}

#[test]
fn a_completion_waits_for_a_write_to_the_same_device_alone() {
    let below = Below::new();
    let switch = Some(below.role.switch());
    assert!(must_wait(switch, &completion(0), &write(0)));
    assert!(!must_wait(switch, &completion(1), &write(0)));
    let read = bytes(Kind::MemRead {
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        address: WINDOW,
        length_dw: 1,
        enables: ByteEnables::all(1),
        hint: None,
        locked: false,
    });
    assert!(!must_wait(switch, &completion(0), &read));
    assert!(!must_wait(switch, &completion(0), &[0; 3]));
    // Where nobody can tell whose it is, for any.
    assert!(must_wait(None, &completion(1), &write(0)));
    assert!(!must_wait(None, &completion(0), &read));
}

#[test]
fn what_a_switch_elsewhere_does_not_take_is_given_up_whoever_it_is_for() {
    let (mut lane, mut below) = (Lane::of_requests(), Below::new());
    (below.here, below.full) = (false, 0b01);
    assert_eq!(pass(&mut lane, &mut below, &write(0), 0), (Passed::GivenUp, 1500));
    assert_eq!(pass(&mut lane, &mut below, &write(0), 2000), (Passed::GivenUp, 75));
    assert_eq!(pass(&mut lane, &mut below, &write(1), 3000), (Passed::Taken, 0));
    assert_eq!(pass(&mut lane, &mut below, &write(0), 8000), (Passed::GivenUp, 1500), "anew");
}
