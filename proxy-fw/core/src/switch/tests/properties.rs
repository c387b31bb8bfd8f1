//! Whatever comes, in whatever order.

use super::*;
use core::time::Duration;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

#[derive(Clone, Debug)]
enum Step {
    /// Registers are picked among those that are there most of the time.
    Write {
        function: u8,
        register: u16,
        value: u32,
        enables: u8,
    },
    Down(Vec<u8>),
    Up(u8, Vec<u8>),
    Plug(u8),
    Ask(u8),
    Pull(u8),
    Ready(u8),
    Reset(bool),
    Wait(u16),
}

const PORTS: u8 = 3;

fn register() -> impl Strategy<Value = u16> {
    let telling = [0x04, 0x18, 0x1c, 0x20, 0x24, 0x3c, 0x44, 0x50, 0x78, 0x80, 0x88, 0x98, 0x154];
    prop_oneof![
        3 => proptest::sample::select(telling.to_vec()),
        1 => (0u16..1024).prop_map(|n| n * 4),
    ]
}

/// Bytes that are a TLP at first sight: a first byte of a known type and a length that fits.
fn tlp() -> impl Strategy<Value = Vec<u8>> {
    let first = proptest::sample::select(std::vec![
        0x00u8, 0x20, 0x40, 0x60, 0x01, 0x02, 0x42, 0x04, 0x44, 0x05, 0x45, 0x0a, 0x4a, 0x0b, 0x4b,
        0x4c, 0x6c, 0x4d, 0x4e, 0x5b, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x74, 0x70, 0x9e,
        0x1f,
    ]);
    let address = proptest::sample::select(std::vec![
        memory_of(0) as u32,
        memory_of(1) as u32 + 8,
        0x1000,
        0x0300_0000,
        0x0400_0000,
        0x0208_0004,
    ]);
    (first, vec(any::<u8>(), 19), 0u8..3, address, any::<bool>()).prop_map(
        |(first, rest, length, address, plain)| {
            let mut bytes = std::vec![first];
            bytes.extend(rest);
            if plain {
                // No digest, not poisoned, few doublewords: the header as most have it.
                bytes[1] = 0;
                bytes[2] = 0;
                bytes[4..6].copy_from_slice(&[bus(0), 0]);
                bytes[8..12].copy_from_slice(&address.to_be_bytes());
            }
            bytes[2] &= 0xfc;
            bytes[3] = length;
            let need = Packet::new_header_checked(&bytes[..]).map_or(20, |p| p.total_len());
            bytes.resize(need, 0x5a);
            bytes
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..=PORTS, register(), any::<u32>(), 0u8..16).prop_map(
            |(function, register, value, enables)| Step::Write { function, register, value, enables }
        ),
        4 => tlp().prop_map(Step::Down),
        4 => (0..PORTS, tlp()).prop_map(|(port, tlp)| Step::Up(port, tlp)),
        1 => vec(any::<u8>(), 0..40).prop_map(Step::Down),
        1 => (0..PORTS, vec(any::<u8>(), 0..40)).prop_map(|(port, tlp)| Step::Up(port, tlp)),
        2 => (0..PORTS).prop_map(Step::Plug),
        1 => (0..PORTS).prop_map(Step::Ask),
        1 => (0..PORTS).prop_map(Step::Pull),
        1 => (0..PORTS).prop_map(Step::Ready),
        1 => any::<bool>().prop_map(Step::Reset),
        2 => (0u16..12_000).prop_map(Step::Wait),
    ]
}

fn is_non_posted(tlp: &[u8]) -> bool {
    Packet::new_checked(tlp).is_ok_and(|packet| packet.class() == Some(Class::NonPosted))
}

fn completions(tlps: &Tlps) -> usize {
    tlps.iter().filter(|tlp| view(tlp).class() == Some(Class::Completion)).count()
}

fn configuration_write(function: u8, register: u16, value: u32, first_be: u8) -> Vec<u8> {
    let destination = if function == PORTS { UPSTREAM } else { Host::id(function) };
    emit(Kind::ConfigWrite {
        type1: function != PORTS,
        requester: bdf(ROOT),
        tag: tag(1),
        destination: bdf(destination),
        register,
        first_be,
        data: &value.to_le_bytes(),
    })
}

/// A TLP from the host: a non-posted request is passed on or answered, exactly once; nothing else
/// is answered.
fn check_down(host: &mut Host, mut tlp: Vec<u8>) {
    host.out.clear();
    let asks = is_non_posted(&tlp);
    let verdict = host.down(&mut tlp);
    let answered = completions(&host.out);
    let passed = matches!(verdict, DownstreamVerdict::Forward(_));
    assert_eq!(answered, usize::from(asks && !passed), "{verdict:?} {tlp:02x?}");
    if let DownstreamVerdict::Forward(port) = verdict {
        assert!(host.switch.is_link_up(port) && host.switch.is_present(port));
    }
}

/// Everything that a TLP can change: counters, registers, events.
fn traces(switch: &mut VirtualSwitch) -> (Vec<(&'static str, u64)>, Vec<u32>, Option<SwitchEvent>) {
    let bridges = switch.ports.iter().map(|port| &port.bridge).chain([&switch.upstream]);
    let registers = bridges.flat_map(|bridge| (0..1024).map(|n| bridge.config.read(4 * n)));
    let registers = registers.collect();
    (switch.counters().collect(), registers, switch.poll_event())
}

fn check_up(host: &mut Host, from: u8, mut tlp: Vec<u8>) {
    host.back.clear();
    host.out.clear();
    let asks = is_non_posted(&tlp);
    let before = host.switch.mapping(port(from));
    let through =
        Packet::new_sound(&tlp).is_ok_and(|packet| host.switch.passes_write(port(from), &packet));
    let before_it = through.then(|| traces(&mut host.switch));
    let verdict = host.up(from, &mut tlp);
    if let Some(before) = before_it {
        // The long way finds the same, and leaves no trace.
        assert_eq!(verdict, UpstreamVerdict::ToRoot, "{tlp:02x?}");
        assert!(host.out.is_empty() && host.back.is_empty());
        assert!(traces(&mut host.switch) == before, "{tlp:02x?}");
    }
    let passed = matches!(verdict, UpstreamVerdict::ToRoot | UpstreamVerdict::ToPort(_));
    assert_eq!(completions(&host.back), usize::from(asks && !passed), "{verdict:?} {tlp:02x?}");
    assert_eq!(completions(&host.out), 0);
    if passed {
        assert!(host.switch.is_link_up(port(from)));
        let packet = view(&tlp);
        let request = asks || packet.tlp_type() == TlpType::MWr;
        let rises = verdict == UpstreamVerdict::ToRoot;
        assert!(!(request && rises) || before.bus_master, "a request passed a port that is off");
    }
}

/// What must hold at all times.
fn check_state(host: &mut Host) {
    for n in 0..PORTS {
        let slot = host.switch.port(port(n)).bridge.config.get(0x88);
        let link = host.switch.port(port(n)).bridge.config.get(0x80);
        let present = slot & 1 << 22 != 0;
        assert!(present || link & 1 << 29 == 0, "a link without a device");
        assert!(present || !host.switch.is_present(port(n)));
        assert_eq!(link & 1 << 27, 0, "link training");
        assert_ne!(link >> 20 & 0x3f, 0, "link width");
        assert_ne!(slot >> 8 & 0b11, 0, "a reserved indicator value");
        assert_ne!(slot >> 6 & 0b11, 0, "a reserved indicator value");
    }
    // The look-up table says what the registers say.
    for address in [0, memory_of(0), memory_of(1) + 8, prefetchable_of(2), u64::MAX] {
        let switch = &host.switch;
        let claimed = switch.port_where(|bridge| bridge.decoded.claims_memory(address));
        let found = switch.port_of_address(super::super::downstream::Space::Memory, address);
        assert_eq!(found, claimed, "{address:#x}");
    }
    let events = host.events();
    assert!(events.len() <= 12 * usize::from(PORTS));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_everything_is_answered(steps in vec(step(), 1..80)) {
        let mut config = SwitchConfig { ports: PORTS, ..SwitchConfig::default() };
        config.placeholders[1] = Some(Placeholder::new(1 << 16, 1 << 30, 0).unwrap());
        let mut host = Host::new(&config);
        host.enumerate();
        for step in steps {
            let (now, out) = (host.now, &mut host.out);
            match step {
                Step::Write { function, register, value, enables } => {
                    check_down(&mut host, configuration_write(function, register, value, enables));
                }
                Step::Down(tlp) => check_down(&mut host, tlp),
                Step::Up(from, tlp) => check_up(&mut host, from, tlp),
                Step::Plug(n) => host.switch.plug(now, port(n), out),
                Step::Ask(n) => drop(host.switch.request_removal(now, port(n), out)),
                Step::Pull(n) => host.switch.surprise_remove(now, port(n), out),
                Step::Ready(n) => host.switch.set_ready(port(n), true),
                Step::Reset(hot) => {
                    let kind = if hot { ResetKind::Hot } else { ResetKind::Fundamental };
                    host.switch.handle_reset(kind);
                }
                Step::Wait(ms) => {
                    host.now = host.now + Duration::from_millis(u64::from(ms));
                    if host.switch.poll_timeout().is_some_and(|due| due <= host.now) {
                        host.switch.handle_timeout(host.now, &mut host.out);
                    }
                    prop_assert!(host.switch.poll_timeout().is_none_or(|due| due > host.now));
                }
            }
            check_state(&mut host);
        }
        prop_assert_eq!(host.counter("switch.completions_lost"), 0);
    }
}
