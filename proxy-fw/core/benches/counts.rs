//! The hot paths, each some thousand times over, to have their instructions counted: by callgrind,
//! which gives the same number each time. `cargo xtask counts` runs it and compares.
//!
//! `counts PATH TIMES` does one path so often; without arguments, each once, to see that it works.

mod pair;
#[path = "../tests/world/mod.rs"]
mod world;

use pair::Pair;
use proxy_core::control::{Reply, Request};
use proxy_core::limits::{MAX_FRAME, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::recorder::Recorded;
use proxy_core::role::Role;
use std::hint::black_box;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Repr};
use world::{BOX, FIRST_WINDOW, HOST, World, bdf, key, node, slot};

/// Payload of TLPs that have one.
const DATA: [u8; 256] = [0x5a; 256];

/// A path's name, and what does it so often.
type Path = (&'static str, fn(usize));

const PATHS: &[Path] = &[
    ("codec: MRd emitted", |times| emit(&read(), times)),
    ("codec: MRd parsed", |times| parse(&read(), times)),
    ("codec: MWr of 256 B emitted", |times| emit(&write(), times)),
    ("codec: MWr of 256 B parsed", |times| parse(&write(), times)),
    ("codec: CplD of 256 B emitted", |times| emit(&completion(), times)),
    ("codec: CplD of 256 B parsed", |times| parse(&completion(), times)),
    ("link: MWr of 256 B in a stream, both ends", link_stream),
    ("link: MRd and its CplD alone, both ends", link_round_trip),
    ("roles: MRd of the host and its CplD", |times| Roles::new().reads(times)),
    ("roles: MRd of the host and its CplD, a recording over", |times| {
        Roles::after_a_recording().reads(times);
    }),
    ("roles: MRd of the host and its CplD, recorded", roles_read_recorded),
    ("roles: MWr of 128 B of the device, one of 16", roles_write),
    ("roles: MWr of 128 B of the device, in a stream", |times| Roles::new().writes(times)),
    ("roles: MWr of 128 B of the device, in a stream, a recording over", |times| {
        Roles::after_a_recording().writes(times);
    }),
    ("roles: MRd of the device and its CplD of 128 B, in a stream", roles_read_stream),
];

fn main() {
    // Cargo passes --bench or --test.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match &arguments[..] {
        [] => PATHS.iter().for_each(|(name, path)| {
            path(1);
            println!("{name}");
        }),
        [name, times] => {
            let path = PATHS.iter().find(|(known, _)| known == name).expect("a path's name").1;
            path(times.parse().expect("a number"));
        }
        _ => panic!("counts [PATH TIMES]"),
    }
}

fn tag() -> Tag {
    Tag::new(5).expect("a tag")
}

fn read() -> Repr<'static> {
    Repr::new(Kind::MemRead {
        requester: Bdf::from_bits(0x0100),
        tag: tag(),
        address: 0x1_2345_6000,
        length_dw: 1,
        enables: ByteEnables::all(1),
        hint: None,
        locked: false,
    })
}

fn write() -> Repr<'static> {
    Repr::new(Kind::MemWrite {
        requester: Bdf::from_bits(0x0100),
        tag: tag(),
        address: 0x1_2345_6000,
        enables: ByteEnables::all(64),
        hint: None,
        data: &DATA,
    })
}

fn completion() -> Repr<'static> {
    Repr::new(Kind::Completion {
        completer: Bdf::from_bits(0x0500),
        requester: Bdf::from_bits(0x0100),
        tag: tag(),
        status: CplStatus::Success,
        bcm: false,
        byte_count: 256,
        lower_address: 0,
        locked: false,
        data: &DATA,
    })
}

fn emit(repr: &Repr<'_>, times: usize) {
    let mut bytes = [0; 512];
    for _ in 0..times {
        black_box(black_box(repr).emit(black_box(&mut bytes)).expect("it fits"));
    }
}

fn parse(repr: &Repr<'_>, times: usize) {
    let mut bytes = [0; 512];
    let len = repr.emit(&mut bytes).expect("it fits");
    for _ in 0..times {
        black_box(Repr::from_bytes(black_box(&bytes[..len])).expect("a TLP"));
    }
}

fn link_stream(times: usize) {
    let mut bytes = [0; 512];
    let len = write().emit(&mut bytes).expect("it fits");
    Pair::new().stream(&bytes[..len], times);
}

fn link_round_trip(times: usize) {
    let mut pair = Pair::new();
    for _ in 0..times {
        pair.round_trip(&[0; 16], &[0; 16]);
    }
}

/// Both roles with a device lent, and the buffers between them.
struct Roles {
    world: World,
    frame: Vec<u8>,
    tlp: [u8; TLP_BUFFER],
}

impl Roles {
    fn new() -> Self {
        Self { world: World::bound(), frame: vec![0; MAX_FRAME], tlp: [0; TLP_BUFFER] }
    }

    /// As new, but the device was recorded, and is no more.
    fn after_a_recording() -> Self {
        let mut roles = Self::new();
        roles.record(true);
        roles.reads(16);
        roles.writes(16);
        assert!(roles.recorded() > 0, "it was recorded");
        roles.record(false);
        roles
    }

    /// Both roles record all there is of the device from now on, or nothing.
    fn record(&mut self, on: bool) {
        let list = |peer| {
            let every = Recorded {
                peer: node(peer),
                binding: key(1),
                one_in: 1,
                tlps: u16::MAX,
                frames: u16::MAX,
            };
            Request::SetRecorder(on.then_some(every).into_iter().collect())
        };
        self.world.ask_host(list(BOX)).expect("it has a recorder");
        self.world.ask_box(list(HOST)).expect("it has a recorder");
    }

    /// Bytes that both roles have recorded, of which none were lost.
    fn recorded(&mut self) -> u64 {
        let read = Request::ReadRecorder { from: 0 };
        let answers = [self.world.ask_host(read.clone()), self.world.ask_box(read)];
        let kept = answers.map(|answer| match answer {
            Ok(Reply::Recorder(page)) if page.lost == 0 => page.end - page.first,
            other => panic!("all that was recorded: {other:?}"),
        });
        kept.into_iter().sum()
    }

    /// Frames go both ways until there are none. TLPs for the device go to it, those for the root
    /// complex are counted.
    fn turn(&mut self) -> usize {
        let Self { world: World { host, boxes, device, now, .. }, frame, tlp } = self;
        *now = *now + Duration::from_micros(5);
        let (mut came, mut busy) = (0, true);
        while busy {
            busy = false;
            while let Some(out) = host.poll_transmit(*now, frame) {
                boxes.handle_frame(*now, &frame[..out.len]);
                busy = true;
            }
            while let Some(length) = boxes.poll_tlp(*now, slot(1), ClassSet::ALL, tlp) {
                device.handle(&tlp[..length]);
            }
            while let Some(tlp) = device.out.pop_front() {
                boxes.handle_tlp(*now, slot(1), &tlp).expect("room for it");
            }
            while let Some(out) = boxes.poll_transmit(*now, frame) {
                host.handle_frame(*now, &frame[..out.len]);
                busy = true;
            }
            while host.poll_tlp(*now, tlp).is_some() {
                came += 1;
            }
        }
        for role in [host as &mut dyn Role, boxes] {
            if role.poll_timeout().is_some_and(|at| at <= *now) {
                role.handle_timeout(*now);
            }
        }
        came
    }
}

impl Roles {
    /// The host reads so often, one after the other.
    fn reads(&mut self, times: usize) {
        let tlps: Vec<Vec<u8>> = (0..32)
            .map(|tag| world::emit(&Repr::new(world::mem_read(bdf(0, 0), tag, FIRST_WINDOW, 1))))
            .collect();
        for number in 0..times {
            let now = self.world.now;
            self.world.host.handle_tlp(now, &tlps[number % tlps.len()]).expect("room for it");
            assert_eq!(self.turn(), 1, "the device answers");
        }
    }

    /// The device writes so often, as fast as it goes.
    fn writes(&mut self, times: usize) {
        let mut tlp = world::emit(&Repr::new(world::mem_write(bdf(3, 0), 0x1000, &DATA[..128])));
        // Until the congestion window is as large as it has to be.
        self.stream(8 * STREAM, &mut tlp, |_, _| None);
        self.stream(times, &mut tlp, |_, _| None);
    }
}

/// With everything recorded that can be, and nothing lost of it.
fn roles_read_recorded(times: usize) {
    let mut roles = Roles::new();
    roles.record(true);
    roles.reads(times);
    assert!(roles.recorded() > 0, "it was recorded");
}

fn roles_write(times: usize) {
    let mut roles = Roles::new();
    let tlp = world::emit(&Repr::new(world::mem_write(bdf(3, 0), 0x1000, &DATA[..128])));
    let mut came = 0;
    for number in 1..=times {
        roles.world.device.out.push_back(tlp.clone());
        if number % 16 == 0 || number == times {
            came += roles.turn();
        }
    }
    assert_eq!(came, times, "each write reaches the host");
}

/// TLPs that the device has at a time in a stream.
const STREAM: usize = 240;

impl Roles {
    /// The device sends the same TLP so often, with ever other tags. The host may have an answer to
    /// what comes, `length` bytes in the same buffer.
    fn stream(
        &mut self,
        times: usize,
        tlp: &mut [u8],
        mut answer: impl FnMut(&mut [u8], usize) -> Option<usize>,
    ) {
        let (mut sent, mut over) = (0, 0);
        while over < times {
            let Self { world: World { host: root, boxes, now, .. }, frame, tlp: buf } = self;
            *now = *now + Duration::from_micros(5);
            let until = times.min(over + STREAM);
            while sent < until {
                tlp[6] = sent as u8;
                if boxes.handle_tlp(*now, slot(1), tlp).is_err() {
                    break;
                }
                sent += 1;
            }
            while let Some(out) = boxes.poll_transmit(*now, frame) {
                root.handle_frame(*now, &frame[..out.len]);
            }
            while let Some(length) = root.poll_tlp(*now, buf) {
                match answer(buf, length) {
                    Some(length) => root.handle_tlp(*now, &buf[..length]).expect("room for it"),
                    None => over += 1,
                }
            }
            while let Some(out) = root.poll_transmit(*now, frame) {
                boxes.handle_frame(*now, &frame[..out.len]);
            }
            while boxes.poll_tlp(*now, slot(1), ClassSet::ALL, buf).is_some() {
                over += 1;
            }
            for role in [root as &mut dyn Role, boxes] {
                if role.poll_timeout().is_some_and(|at| at <= *now) {
                    role.handle_timeout(*now);
                }
            }
        }
    }
}

fn roles_read_stream(times: usize) {
    let mut tlp = world::emit(&Repr::new(world::mem_read(bdf(3, 0), 0, 0x1000, 32)));
    Roles::new().stream(times, &mut tlp, |buf, length| {
        let Kind::MemRead { requester, tag, .. } =
            Repr::from_bytes(&buf[..length]).expect("a TLP").kind
        else {
            panic!("the device only reads")
        };
        let kind = Kind::Completion {
            completer: bdf(0, 0),
            requester,
            tag,
            status: CplStatus::Success,
            bcm: false,
            byte_count: 128,
            lower_address: 0,
            locked: false,
            data: &DATA[..128],
        };
        Some(Repr::new(kind).emit(buf).expect("it fits"))
    });
}
