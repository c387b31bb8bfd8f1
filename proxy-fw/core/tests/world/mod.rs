//! A host role and a box role with frames carried between them under a virtual clock, and a device
//! that is just registers: 4 KB of configuration space with a PCI Express capability and one BAR.
//! Further boxes with such a device each can be there, too.
#![allow(dead_code, unreachable_pub)] // each test file uses its own part

use proxy_core::boxes::{BoxConfig, BoxRole, SlotSignal};
use proxy_core::control::{
    FromProxy, OperationId, PathSet, Peer, PortBinding, Removal, Reply, Request, Share,
    SlotBinding, SlotState, Term, Window,
};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::{MAX_FRAME, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::switch::SwitchConfig;
use proxy_core::time::Instant;
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

mod build;
mod device;

pub use build::*;
pub use device::*;

thread_local! {
    static IN_A_ROLE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a call of a role, for who watches what roles do.
pub fn in_a_role() -> bool {
    IN_A_ROLE.get()
}

/// A call of a role.
macro_rules! role {
    ($call:expr) => {{
        IN_A_ROLE.set(true);
        let result = $call;
        IN_A_ROLE.set(false);
        result
    }};
}

pub const HOST: u16 = 1;
pub const BOX: u16 = 2;
pub const OTHER_BOX: u16 = 3;

/// The device's memory on bus 3, as the operating system programmed it.
pub const FIRST_WINDOW: u64 = 0xe000_0000;
/// As [`FIRST_WINDOW`], of the second device, on bus 4.
pub const SECOND_WINDOW: u64 = FIRST_WINDOW + WINDOW;
/// Each device's memory is so much behind that of the one before.
pub const WINDOW: u64 = 0x10_0000;

/// A further box, with its device in slot 1.
pub struct Further {
    pub boxes: BoxRole,
    pub device: Registers,
    pub messages: Vec<FromProxy>,
    pub cut: bool,
}

pub struct World {
    pub host: HostRole,
    pub boxes: BoxRole,
    pub device: Registers,
    pub now: Instant,
    /// What the root complex got, and the classes of which it takes more.
    pub to_root: VecDeque<Vec<u8>>,
    pub root_room: ClassSet,
    pub host_messages: Vec<FromProxy>,
    pub box_messages: Vec<FromProxy>,
    /// Whether the cable to the first box is cut; what it loses is in `lost`.
    pub cut: bool,
    pub lost: VecDeque<(NodeId, Vec<u8>)>,
    /// The second box, and what comes after it.
    pub further: Vec<Further>,
    /// What the devices get of what the host sends.
    pub shares: Vec<Share>,
    next_id: u64,
    next_tag: u16,
}

impl World {
    pub fn new() -> Self {
        Self::with_ports(2)
    }

    fn with_ports(ports: u8) -> Self {
        let switch = SwitchConfig { ports, ..SwitchConfig::default() };
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
            root_room: ClassSet::ALL,
            host_messages: Vec::new(),
            box_messages: Vec::new(),
            cut: false,
            lost: VecDeque::new(),
            further: Vec::new(),
            shares: vec![Share::EVEN; 2],
            next_id: 1,
            next_tag: 0,
        }
    }

    /// With the device probed, bound to port 0 and visible on bus 3.
    pub fn bound() -> Self {
        Self::bound_with(None)
    }

    /// As [`World::bound`], of a device that has Precision Time Measurement there.
    pub fn bound_with(ptm: Option<u16>) -> Self {
        Self::bound_to(|device| device.ptm = ptm)
    }

    /// As [`World::bound`], of a device that is made different.
    pub fn bound_to(make: impl FnOnce(&mut Registers)) -> Self {
        let mut world = Self::new();
        make(&mut world.device);
        world.device.reset();
        world.device.resets = 0;
        world.make_bound();
        world
    }

    fn make_bound(&mut self) {
        self.insert();
        self.introduce();
        self.bind(1);
        self.assign_buses();
    }

    /// As [`World::pair`], with such shares of what the host sends.
    pub fn pair_with(shares: [Share; 2]) -> Self {
        Self::with_boxes(&shares)
    }

    /// As many boxes as there are shares of what the host sends, with a device each.
    pub fn with_boxes(shares: &[Share]) -> Self {
        let mut world = Self { shares: shares.to_vec(), ..Self::with_ports(shares.len() as u8) };
        world.make_bound();
        shares[1..].iter().for_each(|_| world.add_box());
        world
    }

    pub fn insert(&mut self) {
        self.boxes.device_inserted(self.now, slot(1), "regs".try_into().unwrap());
        self.run(Duration::from_millis(300));
        let entry = self.boxes.inventory().next().unwrap();
        assert_eq!(entry.state, SlotState::Free, "{entry:?}");
    }

    pub fn introduce(&mut self) {
        assert_eq!(self.ask_host(Request::SetPeer(peer(BOX, 7))), Ok(Reply::Done));
        assert_eq!(self.ask_box(Request::SetPeer(peer(HOST, 1))), Ok(Reply::Done));
    }

    pub fn bind(&mut self, counter: u32) {
        let key = key(counter);
        assert_eq!(self.ask_box(Request::BindSlot(slot_binding(key))), Ok(Reply::Done));
        let binding = PortBinding { share: self.shares[0], ..port_binding(key) };
        assert_eq!(self.ask_host(Request::BindPort(binding)), Ok(Reply::Done));
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

    /// Two devices in two boxes: one on bus 3 at [`FIRST_WINDOW`], one on bus 4 at
    /// [`SECOND_WINDOW`].
    pub fn pair() -> Self {
        let mut world = Self::bound();
        world.add_box();
        world
    }

    /// A further box and its device, bound to the next port and programmed.
    pub fn add_box(&mut self) {
        let world = self;
        let number = world.further.len() as u8 + 1;
        let (box_number, life) = (BOX + u16::from(number), 7 + u32::from(number));
        let config = BoxConfig { slots: 1, incarnation: life, ..BoxConfig::default() };
        let mut boxes = BoxRole::new(&config);
        boxes.set_node(node(box_number));
        boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
        let device = Registers::new();
        world.further.push(Further { boxes, device, messages: Vec::new(), cut: false });
        world.run(Duration::from_millis(300));
        assert_eq!(world.ask_host(Request::SetPeer(peer(box_number, life))), Ok(Reply::Done));
        assert_eq!(world.ask_last(Request::SetPeer(peer(HOST, 1))), Ok(Reply::Done));
        let key = key(number.into());
        assert_eq!(world.ask_last(Request::BindSlot(slot_binding(key))), Ok(Reply::Done));
        let (box_node, share) = (node(box_number), world.shares[usize::from(number)]);
        let binding = PortBinding { port: port(number), box_node, share, ..port_binding(key) };
        assert_eq!(world.ask_host(Request::BindPort(binding)), Ok(Reply::Done));
        world.run(Duration::from_millis(50));
        let (bus, at) = (3 + number, FIRST_WINDOW as u32 + WINDOW as u32 * u32::from(number));
        let (buses, memory) = (u32::from(bus) << 16 | u32::from(bus) << 8, at | at >> 16);
        world.config_write(bdf(1, 0), 0x18, u32::from(bus) << 16 | 0x0201);
        world.config_write(bdf(2, number), 0x18, buses | 2);
        world.config_write(bdf(2, number), 0x20, memory);
        world.config_write(bdf(1, 0), 0x20, at | FIRST_WINDOW as u32 >> 16);
        world.config_write(bdf(2, number), 0x04, 0x0006);
        world.config_write(bdf(bus, 0), 0x10, at);
        world.config_write(bdf(bus, 0), 0x04, 0x0006);
        world.forget_the_past();
    }

    /// Forgets what the root complex and the devices received so far.
    pub fn forget_the_past(&mut self) {
        self.to_root.clear();
        self.device.received.clear();
        self.further.iter_mut().for_each(|further| further.device.received.clear());
    }

    pub fn second(&mut self) -> &mut Further {
        self.further.first_mut().expect("a world with two devices")
    }

    /// Asks the box that came last.
    pub fn ask_last(
        &mut self,
        request: Request,
    ) -> Result<Reply, proxy_core::control::ControlError> {
        let id = self.id();
        let now = self.now;
        let last = self.further.last_mut().expect("a world with two devices");
        role!(last.boxes.handle_control(now, id, Term(1), &request));
        self.answer(id, |w| &w.further.last().unwrap().messages)
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
        role!(self.host.handle_control(self.now, id, Term(1), &request));
        self.answer(id, |w| &w.host_messages)
    }

    pub fn ask_box(
        &mut self,
        request: Request,
    ) -> Result<Reply, proxy_core::control::ControlError> {
        let id = self.id();
        role!(self.boxes.handle_control(self.now, id, Term(1), &request));
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
        let further = self.further.iter().filter_map(|further| further.boxes.poll_timeout()).min();
        let timers = [self.host.poll_timeout(), self.boxes.poll_timeout(), further];
        let next = timers.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE);
        // A timer that is due moves the clock a little, too: nothing stands still.
        let step = Duration::from_micros(1);
        self.now = next.max(self.now + step).min(self.now + most.max(step));
        role!(self.host.handle_timeout(self.now));
        role!(self.boxes.handle_timeout(self.now));
        for further in &mut self.further {
            role!(further.boxes.handle_timeout(self.now));
        }
    }

    /// Moves everything until nothing moves.
    pub fn turn(&mut self) {
        let mut frame = vec![0; MAX_FRAME];
        let mut tlp = vec![0; TLP_BUFFER];
        loop {
            let mut busy = false;
            let room = self.root_room;
            while let Some(length) = role!(self.host.poll_tlp_of(self.now, room, &mut tlp)) {
                busy = true;
                self.to_root.push_back(tlp[..length].to_vec());
            }
            while let Some(out) = role!(self.host.poll_transmit(self.now, &mut frame)) {
                busy = true;
                let number = usize::from(out.peer.get() - BOX);
                match number.checked_sub(1).map(|further| &mut self.further[further]) {
                    Some(further) => {
                        if !further.cut {
                            role!(further.boxes.handle_frame(self.now, &frame[..out.len]));
                        }
                    }
                    _ if self.cut => self.lost.push_back((out.peer, frame[..out.len].to_vec())),
                    _ => role!(self.boxes.handle_frame(self.now, &frame[..out.len])),
                }
            }
            busy |= self.turn_boxes();
            while let Some(message) = role!(self.host.poll_control()) {
                busy = true;
                self.host_messages.push(message);
            }
            self.host.mark(self.now);
            self.boxes.mark(self.now);
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
        let sent = emit(repr);
        role!(self.host.handle_tlp(self.now, &sent)).unwrap();
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
        let tlp = self.request(&config_write(tag, destination, register, &data), tag);
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

    /// Moves what the boxes and their devices have, once; whether there was anything.
    pub fn turn_boxes(&mut self) -> bool {
        let Self { host, boxes, device, box_messages, cut, now, .. } = self;
        let cable = if *cut { Err(&mut self.lost) } else { Ok(&mut *host) };
        let mut busy = turn_box(*now, boxes, device, box_messages, cable);
        for Further { boxes, device, messages, cut } in &mut self.further {
            let mut nowhere = VecDeque::new();
            let cable = if *cut { Err(&mut nowhere) } else { Ok(&mut *host) };
            busy |= turn_box(*now, boxes, device, messages, cable);
        }
        busy
    }

    pub fn mem_write(&mut self, address: u64, data: &[u8]) {
        let repr = Repr::new(mem_write(Bdf::default(), address, data));
        let sent = emit(&repr);
        role!(self.host.handle_tlp(self.now, &sent)).unwrap();
        self.turn();
    }

    pub fn counter(&self, name: &str) -> u64 {
        let further = self.further.iter().flat_map(|further| further.boxes.counters());
        let all = self.host.counters().chain(self.boxes.counters()).chain(further);
        all.filter(|(n, _)| *n == name).map(|(_, v)| v).sum()
    }
}

/// Moves what a box and its device have; whether there was anything.
fn turn_box(
    now: Instant,
    boxes: &mut BoxRole,
    device: &mut Registers,
    messages: &mut Vec<FromProxy>,
    mut cable: Result<&mut HostRole, &mut VecDeque<(NodeId, Vec<u8>)>>,
) -> bool {
    let mut busy = false;
    let mut frame = vec![0; MAX_FRAME];
    while let Some(out) = role!(boxes.poll_transmit(now, &mut frame)) {
        busy = true;
        match &mut cable {
            Ok(host) => role!(host.handle_frame(now, &frame[..out.len])),
            Err(lost) => lost.push_back((out.peer, frame[..out.len].to_vec())),
        }
    }
    while let Some(signal) = role!(boxes.poll_signal(slot(1))) {
        busy = true;
        device.signal(signal);
    }
    while let Some(length) = role!(boxes.poll_tlp(now, slot(1), device.room, &mut frame)) {
        busy = true;
        let class = Packet::new_checked(&frame[..length]).unwrap().class().unwrap();
        assert!(device.room.contains(class), "there is no room for a {class:?}");
        device.handle(&frame[..length]);
    }
    let (mut at, mut room) = (0, ClassSet::ALL);
    while at < device.out.len() {
        let class = Packet::new_checked(&device.out[at][..]).ok().and_then(|packet| packet.class());
        let class = class.unwrap_or(Class::Posted);
        let passes = room.contains(class);
        if passes && role!(boxes.handle_tlp(now, slot(1), &device.out[at])).is_ok() {
            device.out.remove(at);
            busy = true;
            continue;
        }
        // Nothing passes a posted one; a request that waits is passed by the others.
        room = if class == Class::Posted { ClassSet::NONE } else { room.without(class) };
        at += 1;
    }
    while let Some(message) = role!(boxes.poll_control()) {
        busy = true;
        messages.push(message);
    }
    busy
}
