//! Section 12 of the wire specification, line by line: every cause is brought about with the real
//! roles and switch, and what the requester gets, what the ports report and what is counted is held
//! against the table. A line without a case fails, and so does a case without a line.

mod from_device;
mod from_host;
mod to_peer;

use crate::world::*;
use proxy_core::control::{Event, FromProxy, Removal, Request};
use std::collections::BTreeMap;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const DOCUMENT: &str = include_str!("../../../../../tlp-codec/docs/wire.md");

const UPSTREAM: Bdf = Bdf::from_bits(0x0100);
const PORT: Bdf = Bdf::from_bits(0x0200);
const PEER_PORT: Bdf = Bdf::from_bits(0x0208);

const COMMAND: u16 = 0x04;
const SECONDARY_STATUS: u16 = 0x1c;
const BRIDGE_CONTROL: u16 = 0x3c;
const DEVICE_CONTROL: u16 = 0x78;
const LINK_CONTROL: u16 = 0x80;
const SLOT_CONTROL: u16 = 0x88;
const DEVICE_CONTROL_2: u16 = 0x98;
const AER_STATUS: u16 = 0x104;
const AER_CORRECTABLE_MASK: u16 = 0x114;
const ACS_CONTROL: u16 = 0x154;

const LINK_STATE_CHANGED: u32 = 1 << 24;
const MASTER_DATA_PARITY: u32 = 1 << 24;
const RECEIVED_TARGET_ABORT: u32 = 1 << 28;
const RECEIVED_MASTER_ABORT: u32 = 1 << 29;

/// What the requester of a case saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// These completions, all that came.
    Statuses(Vec<CplStatus>),
    /// What was passed on, poisoned or not.
    Passed { poisoned: bool },
}

/// A cause: the table's line, how it is brought about, and the counters that rise.
struct Case {
    cause: &'static str,
    run: fn(&mut World) -> Seen,
    counters: &'static [&'static str],
}

/// A line of a table.
struct Line {
    cause: &'static str,
    completion: &'static str,
    reported: &'static str,
}

/// The lines of the table behind the paragraph that begins with `heading`.
fn table(heading: &str) -> Vec<Line> {
    let at = DOCUMENT.find(heading).unwrap_or_else(|| panic!("no table {heading}"));
    let rest = DOCUMENT[at..].lines().skip_while(|line| !line.starts_with('|'));
    let lines = rest.take_while(|line| line.starts_with('|')).skip(2);
    lines
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let &[cause, completion, reported] = &cells[..] else { panic!("{line}") };
            Line { cause, completion, reported }
        })
        .collect()
}

fn check(heading: &str, cases: &[Case]) {
    let lines = table(heading);
    for case in cases {
        let there = lines.iter().filter(|line| line.cause == case.cause).count();
        assert_eq!(there, 1, "the table has this line once: {}", case.cause);
    }
    for line in &lines {
        let found: Vec<_> = cases.iter().filter(|case| case.cause == line.cause).collect();
        assert!(!found.is_empty(), "no case for: {}", line.cause);
        found.into_iter().for_each(|case| check_line(line, case));
    }
}

fn check_line(line: &Line, case: &Case) {
    let mut world = World::bound();
    prepare(&mut world);
    let before = counters(&world);
    let seen = (case.run)(&mut world);
    let after = counters(&world);
    check_completion(line, &seen);
    assert!(!case.counters.is_empty(), "{}: nothing counts it", line.cause);
    for name in case.counters {
        let rise = |c: &BTreeMap<_, _>| *c.get(name).unwrap_or_else(|| panic!("counter {name}"));
        assert!(rise(&after) > rise(&before), "{}: {name} does not rise", line.cause);
    }
    check_reported(line, &mut world);
}

fn check_completion(line: &Line, seen: &Seen) {
    let cell = line.completion;
    let fits = match seen {
        Seen::Passed { poisoned } => cell.contains("EP set") && *poisoned,
        Seen::Statuses(got)
            if cell.starts_with("CRS for configuration requests, UR for others") =>
        {
            *got == [CplStatus::ConfigRetry, CplStatus::UnsupportedRequest]
        }
        Seen::Statuses(got) if cell.starts_with("none") => got.is_empty(),
        Seen::Statuses(got) => {
            let status = match cell.split([' ', ',', ':']).next() {
                Some("UR") => CplStatus::UnsupportedRequest,
                Some("CA") => CplStatus::CompleterAbort,
                _ => panic!("what is meant by: {cell}"),
            };
            !got.is_empty() && got.iter().all(|s| *s == status)
        }
    };
    assert!(fits, "{}: {cell}, but {seen:?}", line.cause);
}

/// What the third column names is there, and what it does not name is not.
fn check_reported(line: &Line, world: &mut World) {
    let fatal = |tlp: &Vec<u8>| {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        packet.class() == Some(Class::Posted)
            && matches!(packet.tlp_type(), TlpType::Msg(_))
            && packet.message_code() == MsgCode::ErrFatal
    };
    let fatal = world.to_root.iter().any(fatal);
    let cell = line.reported;
    assert_eq!(fatal, cell.contains("ERR_FATAL"), "{}: {cell}", line.cause);
    let expected = cell.split("AER bit ").nth(1).map(|rest| {
        let (bit, place) = rest.split_once(" in ").expect("AER bit N in a port");
        let port = if place.starts_with("the upstream port") { UPSTREAM } else { PORT };
        (port, 1 << bit.parse::<u32>().unwrap())
    });
    for port in [UPSTREAM, PORT] {
        let wanted = expected.filter(|(at, _)| *at == port).map_or(0, |(_, bit)| bit);
        let got = world.config_read(port, AER_STATUS).1;
        assert_eq!(got, wanted, "{}: AER of {port:?}: {cell}", line.cause);
    }
    for (name, bit) in [
        ("Master Data Parity Error", MASTER_DATA_PARITY),
        ("Received Target Abort", RECEIVED_TARGET_ABORT),
        ("Received Master Abort", RECEIVED_MASTER_ABORT),
    ] {
        let (port, register) = match cell {
            _ if cell.contains("upstream port's status") => (UPSTREAM, COMMAND),
            _ if cell.contains("target's port's secondary") => (PEER_PORT, SECONDARY_STATUS),
            _ => (PORT, SECONDARY_STATUS),
        };
        let got = world.config_read(port, register).1 & bit != 0;
        assert_eq!(got, cell.contains(name), "{}: {name}: {cell}", line.cause);
    }
    let upstream = world.config_read(UPSTREAM, SECONDARY_STATUS).1;
    let passed = cell.starts_with("Received") && cell.contains("in the port's secondary status");
    let aborts = RECEIVED_MASTER_ABORT | RECEIVED_TARGET_ABORT;
    assert_eq!(upstream & aborts != 0, passed, "{}: what passes the upstream port", line.cause);
    let changed = world.config_read(PORT, SLOT_CONTROL).1 & LINK_STATE_CHANGED != 0;
    assert_eq!(changed, cell.contains("DLLSC"), "{}: {cell}", line.cause);
    if cell.contains("event") {
        let failed = |m: &FromProxy| {
            matches!(m, FromProxy::Event { event: Event::BindingFailed { .. }, .. })
        };
        assert!(world.host_messages.iter().any(failed), "{}: {cell}", line.cause);
    }
}

fn counters(world: &World) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    let further = world.further.iter().flat_map(|further| further.boxes.counters());
    for (name, value) in world.host.counters().chain(world.boxes.counters()).chain(further) {
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// Lets the ports tell everything, and the second port be programmed although nothing is there.
fn prepare(world: &mut World) {
    world.config_write(PEER_PORT, 0x18, 0x0004_0402);
    world.config_write(PEER_PORT, 0x20, 0xe010_e010);
    world.config_write(UPSTREAM, 0x20, 0xe010_e000);
    world.config_write(PEER_PORT, COMMAND, 0x0006);
    for port in [UPSTREAM, PORT, PEER_PORT] {
        world.config_write(port, DEVICE_CONTROL, 0x000f);
        world.config_write(port, AER_CORRECTABLE_MASK, 0);
        // Parity Error Response and SERR# Enable.
        world.config_write(port, BRIDGE_CONTROL, 0x0003_0000);
    }
    clean(world);
}

/// Clears what the ports have latched, and forgets what everybody received.
fn clean(world: &mut World) {
    for port in [UPSTREAM, PORT, PEER_PORT] {
        world.config_write(port, AER_STATUS, u32::MAX);
        let command = world.config_read(port, COMMAND).1 & 0xffff;
        world.config_write(port, COMMAND, 0xffff_0000 | command);
        let io = world.config_read(port, SECONDARY_STATUS).1 & 0xffff;
        world.config_write(port, SECONDARY_STATUS, 0xffff_0000 | io);
    }
    for port in [PORT, PEER_PORT] {
        let slot = world.config_read(port, SLOT_CONTROL).1;
        world.config_write(port, SLOT_CONTROL, slot);
    }
    world.forget_the_past();
}

/// The statuses of the completions among these.
fn statuses<'a>(tlps: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<CplStatus> {
    let packets = tlps.into_iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    packets.filter(|p| p.class() == Some(Class::Completion)).map(|p| p.status()).collect()
}

fn force(n: u8) -> Request {
    unbind_port_of(BOX + u16::from(n), port(n), key(1).epoch, Removal::Force)
}

fn tag(n: u16) -> Tag {
    Tag::new(n).unwrap()
}

#[test]
fn a_host_sees_what_the_table_says() {
    check("**A host's request to a device.**", from_host::CASES);
}

#[test]
fn a_device_sees_what_the_table_says() {
    check("**A device's request to a host.**", from_device::CASES);
}

#[test]
fn a_device_that_asks_another_sees_what_the_table_says() {
    check("**A device's request to another device of the same host**", to_peer::CASES);
}
