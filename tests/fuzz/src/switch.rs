//! The virtual switch's configuration space: any accesses and TLPs, with hot-plug in between, and
//! what has to hold after each.

use crate::emit::emit;
use crate::input::Input;
use core::time::Duration;
use proxy_core::switch::{
    DownstreamVerdict, Placeholder, ResetKind, SwitchConfig, UpstreamVerdict, VirtualSwitch,
};
use proxy_core::time::Instant;
use tlp_codec::ids::{Bdf, PortId, Tag};
use tlp_codec::tlp::{Class, CplStatus, Kind, Packet, Repr};

const PORTS: u8 = 3;
/// The bus of the upstream port, that inside the switch, and the first one below a port.
const BUSES: [u8; 3] = [1, 2, 3];
/// Steps of one input; the rest of it is not used.
const STEPS: usize = 400;

/// Takes steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut host = Host::new();
    let mut input = Input::new(data);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        host.step(&mut input);
        host.check();
    }
    host.check_constants();
    let lost = host.switch.counters().find(|(name, _)| *name == "switch.completions_lost");
    assert_eq!(lost, Some(("switch.completions_lost", 0)));
}

fn port(n: u8) -> PortId {
    PortId::new(n % PORTS).expect("a port")
}

fn class_of(tlp: &[u8]) -> Option<Class> {
    Packet::new_checked(tlp).ok().and_then(|packet| packet.class())
}

fn completions(tlps: &[Vec<u8>]) -> usize {
    tlps.iter().filter(|tlp| class_of(tlp) == Some(Class::Completion)).count()
}

/// What the switch sends has to be right.
fn assert_right(tlps: &[Vec<u8>]) {
    for tlp in tlps {
        if let Err(error) = Repr::from_bytes(tlp) {
            panic!("the switch sends what is no TLP ({error}): {tlp:02x?}");
        }
    }
}

struct Host {
    switch: VirtualSwitch,
    now: Instant,
    /// To the root complex, and back to a device.
    out: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
    /// Identity and capabilities of the upstream port and of each downstream port, as they were at
    /// first: nothing changes them.
    constants: Vec<Vec<(u16, u32)>>,
}

impl Host {
    fn new() -> Self {
        let mut config = SwitchConfig { ports: PORTS, ..SwitchConfig::default() };
        config.placeholders[1] = Some(Placeholder::new(1 << 16, 1 << 30, 0x100).expect("a size"));
        let switch = VirtualSwitch::new(&config).expect("a switch");
        let mut host = Self {
            switch,
            now: Instant::from_nanos(1),
            out: Vec::new(),
            back: Vec::new(),
            constants: Vec::new(),
        };
        host.enumerate();
        host.constants = (0..=PORTS)
            .map(|function| host.constants_of(function).expect("it answers after enumeration"))
            .collect();
        host
    }

    /// As an operating system does it, so that most inputs find windows that are open.
    fn enumerate(&mut self) {
        let [root, internal, first] = BUSES;
        self.write(PORTS, 0x18, u32::from_le_bytes([root, internal, first + PORTS - 1, 0]));
        self.write(PORTS, 0x20, 0xe02f_e000 & 0xfff0_fff0);
        self.write(PORTS, 0x1c, 0x0000_f010);
        self.write(PORTS, 0x04, 0x7);
        for n in 0..PORTS {
            let bus = first + n;
            self.write(n, 0x18, u32::from_le_bytes([internal, bus, bus, 0]));
            let base = 0xe000_u32 + 0x10 * u32::from(n);
            self.write(n, 0x20, base << 16 | base);
            self.write(n, 0x04, 0x7);
        }
    }

    /// The ID of a function: the downstream ports' as they are numbered now, or the upstream
    /// port's.
    fn id(&self, function: u8) -> Bdf {
        match function {
            PORTS.. => Bdf::from_bits(u16::from(BUSES[0]) << 8),
            n => self.switch.port_id(port(n)),
        }
    }

    fn request(&mut self, function: u8, kind: Kind<'_>) -> Option<(CplStatus, Vec<u8>)> {
        let mut tlp = emit(kind);
        let verdict = self.down(&mut tlp);
        let of_switch = matches!(verdict, DownstreamVerdict::Consumed);
        let answer = self.out.iter().find(|tlp| class_of(tlp) == Some(Class::Completion))?;
        let Ok(Kind::Completion { status, data, .. }) = Repr::from_bytes(answer).map(|r| r.kind)
        else {
            panic!("function {function} answers {answer:02x?}");
        };
        of_switch.then(|| (status, data.to_vec()))
    }

    fn write_bytes(&mut self, function: u8, register: u16, value: u32, first_be: u8) {
        let kind = Kind::ConfigWrite {
            type1: function < PORTS,
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).expect("a tag"),
            destination: self.id(function),
            register,
            first_be,
            data: &value.to_le_bytes(),
        };
        self.request(function, kind);
    }

    fn write(&mut self, function: u8, register: u16, value: u32) {
        self.write_bytes(function, register, value, 0xf);
    }

    /// A register, where the function can be reached.
    fn read(&mut self, function: u8, register: u16) -> Option<u32> {
        let kind = Kind::ConfigRead {
            type1: function < PORTS,
            requester: Bdf::from_bits(0),
            tag: Tag::new(1).expect("a tag"),
            destination: self.id(function),
            register,
            first_be: 0xf,
        };
        match self.request(function, kind)? {
            (CplStatus::Success, data) => {
                let data: [u8; 4] = data.try_into().expect("a register has four bytes");
                Some(u32::from_le_bytes(data))
            }
            (status, data) => {
                assert!(data.is_empty(), "{status} with data");
                None
            }
        }
    }

    /// A TLP from the root complex: a non-posted one is passed on or answered, exactly once, and
    /// nothing else is answered.
    fn down(&mut self, tlp: &mut [u8]) -> DownstreamVerdict {
        self.out.clear();
        let (asks, came) = (class_of(tlp) == Some(Class::NonPosted), tlp.to_vec());
        let verdict = self.switch.handle_downstream(self.now, tlp, &mut self.out);
        let passed = matches!(verdict, DownstreamVerdict::Forward(_));
        // Or there is no room, as half of the times.
        if let DownstreamVerdict::Forward(to) = verdict
            && (tlp.len() / 4).is_multiple_of(2)
        {
            self.switch.forwarded(to, &Packet::known(&came), &mut self.out);
        }
        let answers = completions(&self.out);
        assert_eq!(answers, usize::from(asks && !passed), "{verdict:?} {tlp:02x?}");
        if let DownstreamVerdict::Forward(to) = verdict {
            assert!(self.switch.is_link_up(to) && self.switch.is_present(to));
        }
        assert_right(&self.out);
        verdict
    }

    /// The same of a TLP from a device.
    fn up(&mut self, from: PortId, tlp: &mut [u8]) {
        self.out.clear();
        self.back.clear();
        let class = class_of(tlp);
        let before = self.switch.mapping(from);
        let verdict =
            self.switch.handle_upstream(self.now, from, tlp, &mut self.out, &mut self.back);
        let passed = matches!(verdict, UpstreamVerdict::ToRoot | UpstreamVerdict::ToPort(_));
        let asks = class == Some(Class::NonPosted);
        assert_eq!(completions(&self.back), usize::from(asks && !passed), "{verdict:?} {tlp:02x?}");
        assert_eq!(completions(&self.out), 0, "{verdict:?}");
        assert_right(&self.out);
        assert_right(&self.back);
        if passed {
            assert!(self.switch.is_link_up(from), "{verdict:?}");
        }
        if verdict == UpstreamVerdict::ToRoot && asks {
            assert!(before.bus_master, "a request passed a port that is off: {tlp:02x?}");
        }
        if let UpstreamVerdict::ToPort(to) = verdict {
            assert_ne!(to, from, "a device asked itself: {tlp:02x?}");
            assert!(self.switch.is_link_up(to));
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let n = what >> 4;
        match what & 0xf {
            // Registers, those of the port's own header and capabilities most.
            0..=4 => {
                let (register, enables) = (u16::from(input.u8()) << 2, input.u8());
                let register =
                    if enables & 0x80 == 0 { register } else { register + 0x100 } & 0xffc;
                let value = input.u32();
                self.write_bytes(n % (PORTS + 1), register, value, enables & 0xf);
            }
            5 => {
                let register = input.u16() & 0xffc;
                self.read(n % (PORTS + 1), register);
            }
            6 | 7 => {
                let mut tlp = tlp(input);
                let _ = self.down(&mut tlp);
            }
            8 | 9 => {
                let mut tlp = tlp(input);
                self.up(port(n), &mut tlp);
            }
            10 => self.switch.plug(self.now, port(n), &mut self.out),
            11 => drop(self.switch.request_removal(self.now, port(n), &mut self.out)),
            12 => self.switch.surprise_remove(self.now, port(n), &mut self.out),
            13 => self.switch.set_ready(port(n), n & 8 == 0),
            14 => match n {
                0 => self.switch.handle_reset(ResetKind::Fundamental),
                1 => self.switch.handle_reset(ResetKind::Hot),
                n if n < 8 => self.switch.grant_translation(port(n), n & 1 == 0),
                _ => self.enumerate(),
            },
            _ => {
                let wait = Duration::from_millis(u64::from(input.u8()) << (n & 7));
                self.now = self.now + wait;
                if self.switch.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.switch.handle_timeout(self.now, &mut self.out);
                }
                assert!(self.switch.poll_timeout().is_none_or(|due| due > self.now));
            }
        }
    }

    /// Where the capability with this ID is, by the list; every list ends.
    fn capabilities(&mut self, function: u8) -> Option<Vec<(u16, u32)>> {
        let mut list = Vec::new();
        let mut at = self.read(function, 0x34)? as u16 & 0xfc;
        while at != 0 {
            assert!(at >= 0x40 && list.len() < 48, "the list of capabilities does not end");
            let head = self.read(function, at)?;
            list.push((at, head & 0xffff));
            at = (head >> 8) as u16 & 0xfc;
        }
        let mut at = 0x100;
        while at != 0 {
            assert!(at >= 0x100 && list.len() < 96, "the extended list does not end");
            let head = self.read(function, at)?;
            list.push((at, head));
            at = (head >> 20) as u16 & 0xffc;
        }
        Some(list)
    }

    fn constants_of(&mut self, function: u8) -> Option<Vec<(u16, u32)>> {
        let mut constants = self.capabilities(function)?;
        constants.push((0x00, self.read(function, 0x00)?));
        constants.push((0x08, self.read(function, 0x08)?));
        constants.push((0x0c, self.read(function, 0x0c)? & 0x00ff_0000));
        Some(constants)
    }

    /// What holds at all times.
    fn check(&mut self) {
        let mut events = 0;
        while self.switch.poll_event().is_some() {
            events += 1;
            assert!(events < 100, "events do not end");
        }
        for n in 0..PORTS {
            self.check_port(n);
        }
    }

    fn check_constants(&mut self) {
        for function in 0..=PORTS {
            // Where the upstream port passes nothing on, or forgot its buses, nobody answers.
            if let Some(constants) = self.constants_of(function) {
                assert_eq!(constants, self.constants[usize::from(function)], "of {function}");
            }
        }
    }

    fn check_port(&mut self, n: u8) {
        let id = port(n);
        let express = self.constants[usize::from(n)].iter().find(|(_, head)| head & 0xff == 0x10);
        let express = express.expect("a port has the PCI Express capability").0;
        let (Some(link), Some(slot)) = (self.read(n, express + 0x10), self.read(n, express + 0x18))
        else {
            return;
        };
        let (present, active) = (slot & 1 << 22 != 0, link & 1 << 29 != 0);
        assert!(present || !active, "a link without a device");
        assert!(present || !self.switch.is_present(id));
        assert!(active || !self.switch.is_link_up(id), "a link that is up and not active");
        assert_eq!(link & 1 << 27, 0, "link training");
        assert_ne!(link >> 20 & 0x3f, 0, "link width");
        assert_ne!(slot >> 8 & 0b11, 0, "a reserved indicator value");
        assert_ne!(slot >> 6 & 0b11, 0, "a reserved indicator value");
        // The mapping that others see is what the registers say.
        let mapping = self.switch.mapping(id);
        let (Some(buses), Some(memory)) = (self.read(n, 0x18), self.read(n, 0x20)) else { return };
        assert_eq!(mapping.buses, ((buses >> 8) as u8, (buses >> 16) as u8));
        let base = u64::from(memory & 0xfff0) << 16;
        let limit = u64::from(memory & 0xfff0_0000) | 0xf_ffff;
        let window = (base <= limit).then_some((base, limit));
        assert_eq!(mapping.memory, window, "{memory:#x}");
        let payload = self.switch.max_payload(id);
        assert!((128..=4096).contains(&payload) && payload.is_power_of_two());
    }
}

/// A TLP: a header of a type that is known most of the time, and as much data as it says.
fn tlp(input: &mut Input<'_>) -> Vec<u8> {
    const FIRST: [u8; 32] = [
        0x00, 0x20, 0x40, 0x60, 0x01, 0x02, 0x42, 0x04, 0x44, 0x05, 0x45, 0x0a, 0x4a, 0x0b, 0x4b,
        0x4c, 0x6c, 0x4d, 0x4e, 0x5b, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x74, 0x70, 0x72,
        0x9e, 0x1f,
    ];
    let how = input.u8();
    if how & 0xe0 == 0xe0 {
        return input.bytes(usize::from(how & 0x1f) + 1).to_vec();
    }
    let mut tlp = vec![FIRST[usize::from(how & 0x1f)]];
    tlp.extend(input.bytes(15));
    tlp.resize(16, 0);
    if how & 0x20 != 0 {
        // No digest, no hints, not poisoned, one doubleword, from behind the first port.
        tlp[1..4].copy_from_slice(&[0, 0, 1]);
        tlp[4..6].copy_from_slice(&[BUSES[2], 0]);
    }
    if how & 0x40 != 0 {
        // Into the second port's window, or to its bus.
        let to: [u8; 4] =
            if tlp[0] & 0x1f == 0 { [0xe0, 0x10, 0, 0] } else { [BUSES[2] + 1, 0, 0, 0] };
        tlp[8..12].copy_from_slice(&to);
    }
    tlp[2] &= 0xfc;
    let need = Packet::new_header_checked(&tlp[..]).map_or(tlp.len(), |packet| packet.total_len());
    tlp.resize(need, 0x5a);
    tlp
}
