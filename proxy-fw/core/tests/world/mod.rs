//! A host role and a box role with frames carried between them under a virtual clock, and a device
//! that is just registers: 4 KB of configuration space with a PCI Express capability and one BAR.
#![allow(dead_code, unreachable_pub)] // each test file uses its own part

use proxy_core::boxes::{BoxConfig, BoxRole, SlotSignal};
use proxy_core::control::{
    FromProxy, OperationId, PathSet, Peer, PortBinding, Reply, Request, SlotBinding, SlotState,
    Term, Window,
};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::{MAX_FRAME, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::switch::SwitchConfig;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

pub const HOST: u16 = 1;
pub const BOX: u16 = 2;

pub fn node(n: u16) -> NodeId {
    NodeId::new(n).unwrap()
}

pub fn slot(n: u8) -> SlotId {
    SlotId::new(n).unwrap()
}

pub fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

pub fn key(counter: u32) -> BindingKey {
    let epoch = Epoch::new(0, counter).unwrap();
    BindingKey { slot: slot(1), function: SlotFunction::ZERO, epoch }
}

/// How the device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Answers,
    Silent,
    Twice,
    WrongTag,
}

pub struct Registers {
    pub config: Vec<u8>,
    pub memory: Vec<u8>,
    pub manner: Manner,
    pub out: VecDeque<Vec<u8>>,
    pub received: Vec<Vec<u8>>,
    pub resets: usize,
    pub bus: u16,
}

impl Registers {
    pub fn new() -> Self {
        let mut device = Self {
            config: vec![0; 4096],
            memory: vec![0; 4096],
            manner: Manner::Answers,
            out: VecDeque::new(),
            received: Vec::new(),
            resets: 0,
            bus: 0,
        };
        device.reset();
        device.resets = 0;
        device
    }

    fn reset(&mut self) {
        self.resets += 1;
        self.config.fill(0);
        self.put(0x00, 0xd0ac_1b36);
        self.put(0x08, 0x1200_0001);
        self.put(0x2c, 0x0001_1b36);
        self.config[0x06] = 0x10;
        self.config[0x34] = 0x40;
        self.put(0x40, 0x0002_0010);
        self.put(0x44, 1 << 28 | 1 << 15); // FLR, role-based errors
        self.put(0x64, 0x1f); // completion timeout ranges ABCD and disable
        self.put(0x100, 0x0001_0003);
        self.put(0x104, 0x5566_7788);
        self.put(0x108, 0x1122_3344);
        self.out.clear();
    }

    fn put(&mut self, at: usize, value: u32) {
        self.config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn get(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.config[at..at + 4].try_into().unwrap())
    }

    pub fn handle(&mut self, tlp: &[u8]) {
        self.received.push(tlp.to_vec());
        let packet = Packet::new_checked(tlp).unwrap();
        let repr = Repr::parse(&packet).unwrap();
        if self.manner == Manner::Silent && packet.class() == Some(Class::NonPosted) {
            return;
        }
        let mut data = [0; 4];
        let (tag, bytes): (Tag, &[u8]) = match repr.kind {
            Kind::ConfigRead { tag, register, .. } => {
                data.copy_from_slice(&self.config[register as usize..register as usize + 4]);
                (tag, &data)
            }
            Kind::ConfigWrite { tag, register, first_be, data, destination, .. } => {
                self.bus = destination.bits();
                self.write_config(register as usize, first_be, data);
                (tag, &[])
            }
            Kind::MemRead { tag, address, length_dw, .. } => {
                let at = address as usize & 0xfff;
                let bytes = self.memory[at..at + length_dw as usize * 4].to_vec();
                return self.complete(
                    &packet,
                    tag,
                    &bytes,
                    bytes.len() as u16,
                    address as u8 & 0x7f,
                );
            }
            Kind::MemWrite { address, data, .. } => {
                let at = address as usize & 0xfff;
                self.memory[at..at + data.len()].copy_from_slice(data);
                return;
            }
            _ => return,
        };
        let bytes = bytes.to_vec();
        self.complete(&packet, tag, &bytes, 4, 0);
    }

    fn write_config(&mut self, at: usize, enables: u8, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            if enables >> i & 1 == 0 {
                continue;
            }
            match at + i {
                0x10 => self.config[0x10] = 0,
                0x11 => self.config[0x11] = byte & 0xf0,
                at @ (0x04 | 0x05 | 0x12 | 0x13 | 0x68 | 0x69) => self.config[at] = *byte,
                0x49 if byte & 0x80 != 0 => {
                    self.reset();
                    return;
                }
                _ => {}
            }
        }
    }

    fn complete(&mut self, request: &Packet<&[u8]>, tag: Tag, data: &[u8], count: u16, lower: u8) {
        let tag = match self.manner {
            Manner::WrongTag => Tag::new(tag.get() ^ 0x55).unwrap(),
            _ => tag,
        };
        let repr = Repr::new(Kind::Completion {
            completer: Bdf::from_bits(self.bus),
            requester: request.requester(),
            tag,
            status: CplStatus::Success,
            bcm: false,
            byte_count: count,
            lower_address: lower,
            locked: false,
            data,
        });
        let times = if self.manner == Manner::Twice { 2 } else { 1 };
        for _ in 0..times {
            self.out.push_back(emit(&repr));
        }
    }
}

pub fn emit(repr: &Repr<'_>) -> Vec<u8> {
    let mut buf = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut buf).unwrap();
    buf.truncate(length);
    buf
}

pub struct World {
    pub host: HostRole,
    pub boxes: BoxRole,
    pub device: Registers,
    pub now: Instant,
    /// What the root complex got.
    pub to_root: VecDeque<Vec<u8>>,
    pub host_messages: Vec<FromProxy>,
    pub box_messages: Vec<FromProxy>,
    pub cut: bool,
    pub corrupt: bool,
    next_id: u64,
    next_tag: u16,
}

impl World {
    pub fn new() -> Self {
        let switch = SwitchConfig { ports: 2, ..SwitchConfig::default() };
        let mut host = HostRole::new(&HostConfig { switch, ..HostConfig::default() }).unwrap();
        let mut boxes =
            BoxRole::new(&BoxConfig { slots: 2, incarnation: 7, ..BoxConfig::default() });
        host.set_node(node(HOST));
        boxes.set_node(node(BOX));
        Self {
            host,
            boxes,
            device: Registers::new(),
            now: Instant::from_nanos(1_000_000),
            to_root: VecDeque::new(),
            host_messages: Vec::new(),
            box_messages: Vec::new(),
            cut: false,
            corrupt: false,
            next_id: 1,
            next_tag: 0,
        }
    }

    /// With the device probed, bound to port 0 and visible on bus 3.
    pub fn bound() -> Self {
        let mut world = Self::new();
        world.insert();
        world.introduce();
        world.bind(1);
        world.assign_buses();
        world
    }

    pub fn insert(&mut self) {
        self.boxes.device_inserted(self.now, slot(1), "regs".try_into().unwrap());
        self.run(Duration::from_millis(300));
        let entry = self.boxes.inventory().next().unwrap();
        assert_eq!(entry.state, SlotState::Free, "{entry:?}");
    }

    pub fn introduce(&mut self) {
        let peer = |n, incarnation| Peer {
            node: node(n),
            incarnation,
            paths: Default::default(),
            mtu: MAX_FRAME as u16,
        };
        assert_eq!(self.ask_host(Request::SetPeer(peer(BOX, 7))), Ok(Reply::Done));
        assert_eq!(self.ask_box(Request::SetPeer(peer(HOST, 1))), Ok(Reply::Done));
    }

    pub fn bind(&mut self, counter: u32) {
        let key = key(counter);
        assert_eq!(self.ask_box(Request::BindSlot(slot_binding(key))), Ok(Reply::Done));
        assert_eq!(self.ask_host(Request::BindPort(port_binding(key))), Ok(Reply::Done));
        self.run(Duration::from_millis(50));
    }

    /// The upstream port on bus 1, downstream ports on bus 2, the device on bus 3, a memory window
    /// at 0xe000_0000, everything enabled.
    pub fn assign_buses(&mut self) {
        let (up, down, device) = (bdf(1, 0), bdf(2, 0), bdf(3, 0));
        self.config_write(up, 0x18, 0x0004_0201);
        self.config_write(down, 0x18, 0x0003_0302);
        for bridge in [up, down] {
            self.config_write(bridge, 0x20, 0xe000_e000);
            self.config_write(bridge, 0x04, 0x0006);
        }
        self.config_write(device, 0x10, 0xe000_0000);
        self.config_write(device, 0x04, 0x0006);
    }

    fn id(&mut self) -> OperationId {
        self.next_id += 1;
        OperationId(self.next_id)
    }

    pub fn ask_host(
        &mut self,
        request: Request,
    ) -> Result<Reply, proxy_core::control::ControlError> {
        let id = self.id();
        self.host.handle_control(self.now, id, Term(1), &request);
        self.answer(id, |w| &w.host_messages)
    }

    pub fn ask_box(
        &mut self,
        request: Request,
    ) -> Result<Reply, proxy_core::control::ControlError> {
        let id = self.id();
        self.boxes.handle_control(self.now, id, Term(1), &request);
        self.answer(id, |w| &w.box_messages)
    }

    fn answer(
        &mut self,
        id: OperationId,
        of: impl Fn(&World) -> &Vec<FromProxy>,
    ) -> Result<Reply, proxy_core::control::ControlError> {
        for _ in 0..4000 {
            self.turn();
            for message in of(self) {
                if let FromProxy::Response { id: got, result } = message
                    && *got == id
                {
                    return result.clone();
                }
            }
            self.jump(Duration::from_millis(5));
        }
        panic!("no answer to {id:?}");
    }

    /// Lets time pass, doing everything that is due on the way.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn();
            self.jump(end.saturating_since(self.now));
        }
        self.turn();
    }

    /// To the next timer, or so far if none comes earlier.
    fn jump(&mut self, most: Duration) {
        let timers = [self.host.poll_timeout(), self.boxes.poll_timeout()];
        let next = timers.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE);
        // A timer that is due moves the clock a little, too: nothing stands still.
        let step = Duration::from_micros(1);
        self.now = next.max(self.now + step).min(self.now + most.max(step));
        self.host.handle_timeout(self.now);
        self.boxes.handle_timeout(self.now);
    }

    /// Moves everything until nothing moves.
    pub fn turn(&mut self) {
        let mut frame = vec![0; MAX_FRAME];
        let mut tlp = vec![0; TLP_BUFFER];
        loop {
            let mut busy = false;
            while let Some(out) = self.host.poll_transmit(self.now, &mut frame) {
                busy = true;
                if !self.cut {
                    self.boxes.handle_frame(self.now, &frame[..out.len]);
                }
            }
            while let Some(out) = self.boxes.poll_transmit(self.now, &mut frame) {
                busy = true;
                if !self.cut {
                    self.host.handle_frame(self.now, &frame[..out.len]);
                }
            }
            while let Some(length) = self.host.poll_tlp(self.now, &mut tlp) {
                busy = true;
                self.to_root.push_back(tlp[..length].to_vec());
            }
            while let Some(signal) = self.boxes.poll_signal(slot(1)) {
                busy = true;
                assert_eq!(signal, SlotSignal::HotReset);
                self.device.reset();
            }
            while let Some(length) = self.boxes.poll_tlp(self.now, slot(1), ClassSet::ALL, &mut tlp)
            {
                busy = true;
                self.device.handle(&tlp[..length]);
            }
            while let Some(tlp) = self.device.out.pop_front() {
                busy = true;
                self.boxes.handle_tlp(self.now, slot(1), &tlp).unwrap();
            }
            while let Some(message) = self.host.poll_control() {
                busy = true;
                self.host_messages.push(message);
            }
            while let Some(message) = self.boxes.poll_control() {
                busy = true;
                self.box_messages.push(message);
            }
            if !busy {
                return;
            }
        }
    }

    pub fn tag(&mut self) -> Tag {
        self.next_tag = (self.next_tag + 1) % 256;
        Tag::new(self.next_tag).unwrap()
    }

    /// Sends a request as the root complex and waits for its completion.
    pub fn request(&mut self, repr: &Repr<'_>, tag: Tag) -> Vec<u8> {
        self.host.handle_tlp(self.now, &emit(repr)).unwrap();
        for _ in 0..4000 {
            self.turn();
            let wanted = |tlp: &Vec<u8>| {
                let packet = Packet::new_checked(&tlp[..]).unwrap();
                packet.class() == Some(Class::Completion) && packet.tag() == tag
            };
            if let Some(at) = self.to_root.iter().position(wanted) {
                return self.to_root.remove(at).unwrap();
            }
            self.jump(Duration::from_millis(20));
        }
        panic!("no completion for {repr:?}");
    }

    pub fn config_read(&mut self, destination: Bdf, register: u16) -> (CplStatus, u32) {
        let tag = self.tag();
        let type1 = destination.bus().get() != 1;
        let repr = Repr::new(Kind::ConfigRead {
            type1,
            requester: Bdf::default(),
            tag,
            destination,
            register,
            first_be: 0xf,
        });
        let tlp = self.request(&repr, tag);
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        let value = packet.payload().try_into().map_or(u32::MAX, u32::from_le_bytes);
        (packet.status(), value)
    }

    pub fn config_write(&mut self, destination: Bdf, register: u16, value: u32) -> CplStatus {
        let tag = self.tag();
        let data = value.to_le_bytes();
        let repr = Repr::new(Kind::ConfigWrite {
            type1: destination.bus().get() != 1,
            requester: Bdf::default(),
            tag,
            destination,
            register,
            first_be: 0xf,
            data: &data,
        });
        let tlp = self.request(&repr, tag);
        Packet::new_checked(&tlp[..]).unwrap().status()
    }

    pub fn mem_read(&mut self, address: u64, dwords: u16) -> (CplStatus, Vec<u8>) {
        let tag = self.tag();
        let repr = Repr::new(Kind::MemRead {
            requester: Bdf::default(),
            tag,
            address,
            length_dw: dwords,
            enables: ByteEnables::all(dwords),
            hint: None,
            locked: false,
        });
        let tlp = self.request(&repr, tag);
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        (packet.status(), packet.payload().to_vec())
    }

    pub fn mem_write(&mut self, address: u64, data: &[u8]) {
        let repr = Repr::new(mem_write(Bdf::default(), address, data));
        self.host.handle_tlp(self.now, &emit(&repr)).unwrap();
        self.turn();
    }

    pub fn counter(&self, name: &str) -> u64 {
        let all = self.host.counters().chain(self.boxes.counters());
        all.filter(|(n, _)| *n == name).map(|(_, v)| v).sum()
    }
}

pub fn mem_write<'a>(requester: Bdf, address: u64, data: &'a [u8]) -> Kind<'a> {
    let enables = ByteEnables::all((data.len() / 4) as u16);
    let tag = Tag::new(0).unwrap();
    Kind::MemWrite { requester, tag, address, enables, hint: None, data }
}

pub fn mem_read(requester: Bdf, tag: u16, address: u64, dwords: u16) -> Kind<'static> {
    Kind::MemRead {
        requester,
        tag: Tag::new(tag).unwrap(),
        address,
        length_dw: dwords,
        enables: ByteEnables::all(dwords),
        hint: None,
        locked: false,
    }
}

pub fn bdf(bus: u8, device: u8) -> Bdf {
    Bdf::from_bits(u16::from(bus) << 8 | u16::from(device) << 3)
}

pub fn slot_binding(key: BindingKey) -> SlotBinding {
    let window = Window::everything(node(HOST), PathSet::FIRST, key.epoch);
    SlotBinding {
        key,
        host: node(HOST),
        path_set: PathSet::FIRST,
        windows: [window].into_iter().collect(),
    }
}

pub fn port_binding(key: BindingKey) -> PortBinding {
    PortBinding {
        port: port(0),
        box_node: node(BOX),
        slot: key.slot,
        functions: [(key.function, key.epoch)].into_iter().collect(),
        path_set: PathSet::FIRST,
    }
}
