//! Frames of two links that talk through a network with losses.

use crate::capture::Captured;
use crate::random::Random;
use proxy_core::control::LinkDownReason;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::{ChannelId, ClassSet, Link, LinkConfig, LinkState, Taken, TlpMeta};
use proxy_core::stamps::Stamps;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::fabric::{DeviceState, Sideband};
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// One way through the network.
const DELAY: Duration = Duration::from_micros(30);
const STEP: Duration = Duration::from_micros(10);

struct End {
    link: Link,
    stamps: Stamps,
    channel: Option<ChannelId>,
    /// Frames on their way to this end.
    arriving: VecDeque<(Instant, Vec<u8>)>,
}

/// A host (end 0) that reads and writes a device in a box (end 1).
struct Fabric {
    ends: [End; 2],
    random: Random,
    now: Instant,
    /// Every frame, when it was sent.
    sent: Vec<Captured>,
    next_entry: u16,
    received: usize,
}

fn node(end: usize) -> NodeId {
    NodeId::new(end as u16 + 1).unwrap()
}

fn key() -> BindingKey {
    let epoch = Epoch::new(1, 5).unwrap();
    BindingKey { slot: SlotId::new(2).unwrap(), function: SlotFunction::ZERO, epoch }
}

impl Fabric {
    fn new(seed: u64, max_frame: usize) -> Self {
        let end = |end: usize| {
            let config = LinkConfig { max_frame, ..LinkConfig::default() };
            let life = 100 + end as u32;
            End {
                link: Link::new(node(end), life, node(1 - end), None, end == 0, config),
                stamps: Stamps::new(),
                channel: None,
                arriving: VecDeque::new(),
            }
        };
        Self {
            ends: [end(0), end(1)],
            random: Random::new(seed),
            now: Instant::from_nanos(1_000_000),
            sent: Vec::new(),
            next_entry: 0,
            received: 0,
        }
    }

    /// Lets everything happen that is due, and time pass by one step.
    fn step(&mut self, lossy: bool) {
        for end in 0..2 {
            while let Some((at, _)) = self.ends[end].arriving.front()
                && *at <= self.now
            {
                let (_, frame) = self.ends[end].arriving.pop_front().unwrap();
                let End { link, stamps, .. } = &mut self.ends[end];
                link.handle_frame(self.now, &frame, stamps).expect("the peer's frame");
            }
            if self.ends[end].link.poll_timeout().is_some_and(|at| at <= self.now) {
                self.ends[end].link.handle_timeout(self.now);
            }
            self.drain(end);
            self.transmit(end, lossy);
        }
        self.now = self.now + STEP;
    }

    fn transmit(&mut self, end: usize, lossy: bool) {
        let mut buffer = vec![0; 9000];
        loop {
            let End { link, stamps, .. } = &mut self.ends[end];
            let Some(transmit) = link.poll_transmit(self.now, &mut buffer, stamps) else { break };
            while link.poll_event().is_some() {}
            let frame = buffer[..transmit.len].to_vec();
            let at = Duration::from_nanos(self.now.as_nanos());
            self.sent.push(Captured::new(at, frame.clone()));
            if lossy && self.random.one_in(8) {
                continue;
            }
            let arriving = &mut self.ends[1 - end].arriving;
            arriving.push_back((self.now + DELAY, frame.clone()));
            if lossy && self.random.one_in(30) {
                // A switch sends it twice: the capture has it twice, too.
                arriving.push_back((self.now + DELAY, frame.clone()));
                self.sent.push(Captured::new(at, frame));
            }
        }
    }

    /// Takes what has come; the box answers the host's reads.
    fn drain(&mut self, end: usize) {
        while self.ends[end].link.poll_sideband().is_some() {}
        let Some(channel) = self.ends[end].channel else { return };
        let mut tlp = [0; TLP_BUFFER];
        while let Some(Taken { outstanding, length, .. }) =
            self.ends[end].link.take_received(channel, ClassSet::ALL, &mut tlp)
        {
            self.received += 1;
            let Ok(repr) = Repr::from_bytes(&tlp[..length]) else { panic!("a TLP of our own") };
            if let Kind::MemRead { requester, tag, length_dw, .. } = repr.kind {
                let data = self.random.bytes(usize::from(length_dw) * 4);
                let completion = Repr::new(Kind::Completion {
                    completer: Bdf::from_bits(0x0200),
                    requester,
                    tag,
                    status: CplStatus::Success,
                    bcm: false,
                    byte_count: data.len() as u16,
                    lower_address: 0,
                    locked: false,
                    data: &data,
                });
                self.send(end, &completion, outstanding);
            }
        }
    }

    fn send(&mut self, end: usize, repr: &Repr<'_>, outstanding: Option<OutstandingRef>) {
        let mut bytes = vec![0; repr.buffer_len()];
        let length = repr.emit(&mut bytes).expect("a right TLP");
        let class = repr.class();
        let meta = TlpMeta { class, outstanding, relaxed: false, stamp: None };
        let channel = self.ends[end].channel.expect("it is bound");
        // When it is full the TLP is let go: this is not what is tested here.
        let _ = self.ends[end].link.send_tlp(self.now, channel, meta, &bytes[..length]);
    }

    fn read(&mut self, end: usize, dwords: u16) {
        let entry =
            OutstandingRef { index: self.next_entry % 64, generation: self.next_entry / 64 };
        self.next_entry += 1;
        let repr = Repr::new(Kind::MemRead {
            requester: Bdf::from_bits(0x0010),
            tag: Tag::new(entry.index).unwrap(),
            address: 0xfe00_0000,
            length_dw: dwords,
            enables: ByteEnables::all(dwords),
            hint: None,
            locked: false,
        });
        self.send(end, &repr, Some(entry));
    }

    fn write(&mut self, end: usize, len: usize) {
        let data = self.random.bytes(len);
        let repr = Repr::new(Kind::MemWrite {
            requester: Bdf::from_bits(0x0200),
            tag: Tag::new(0).unwrap(),
            address: 0x1_2345_6000,
            enables: ByteEnables::all(len as u16 / 4),
            hint: None,
            data: &data,
        });
        self.send(end, &repr, None);
    }

    fn sideband(&mut self, end: usize, record: Sideband) {
        let channel = self.ends[end].channel.expect("it is bound");
        let _ = self.ends[end].link.send_sideband(self.now, channel, record);
    }
}

/// What two links send each other from the first open frame to the close frame, some of which is
/// lost or comes twice. The largest TLPs do not fit a frame.
pub(crate) fn of_a_link(seed: u64) -> Vec<Captured> {
    let mut fabric = Fabric::new(seed, 512);
    for _ in 0..400 {
        fabric.step(false);
    }
    for end in [1, 0] {
        assert_eq!(fabric.ends[end].link.state(), LinkState::Up);
        fabric.ends[end].channel = fabric.ends[end].link.open_channel(key()).ok();
    }
    for round in 0..4000 {
        match fabric.random.below(24) {
            0 | 1 => fabric.read(0, 1),
            2 => fabric.read(1, 128),
            3 => fabric.write(1, 512),
            4 => fabric.write(0, 64),
            5 if round % 7 == 0 => fabric.sideband(1, Sideband::LinkUp { speed: 3, width: 16 }),
            6 if round % 7 == 0 => {
                fabric.sideband(1, Sideband::PowerState(DeviceState::D3Hot));
            }
            _ => {}
        }
        fabric.step(true);
    }
    // What was lost is sent again; then the binding and the link are closed.
    for _ in 0..30_000 {
        fabric.step(false);
    }
    assert!(fabric.received > 400, "{} TLPs came", fabric.received);
    fabric.ends[0].link.close_channel(fabric.ends[0].channel.take().unwrap());
    for _ in 0..200 {
        fabric.step(false);
    }
    fabric.ends[0].link.close(fabric.now, LinkDownReason::Removed);
    fabric.transmit(0, false);
    fabric.sent
}
