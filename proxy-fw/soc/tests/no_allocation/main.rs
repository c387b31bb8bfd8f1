//! A card allocates in its constructors and never again: not for frames, TLPs and records, not for
//! its talk with the manager, and not when what is around it comes and goes.

// The device of the roles' own test, and what is said to it.
#[path = "../../../core/tests/world/build.rs"]
#[allow(dead_code, unreachable_pub)] // not all of it is used here
mod build;
#[path = "../../../core/tests/world/device.rs"]
#[allow(dead_code, unreachable_pub)] // not all of it is used here
mod device;
mod net;

use build::*;
use device::Registers;
use net::{Net, mac};
use proxy_core::boxes::{BoxRole, SlotSignal};
use proxy_core::control::*;
use proxy_core::host::HostRole;
use proxy_core::limits::MAX_FRAME;
use proxy_core::link::ClassSet;
use proxy_core::stamps::Sampling;
use proxy_core::time::Instant;
use soc::board::{
    Arrived, Board, EthernetMac, MacCounters, PcieSide, PlaceState, Places, SlotWire, Windows,
};
use soc::card::{Card, CardRole};
use soc::records::{Beside, Body, RecordPort};
use soc::start::{Bounds, Start};
use soc::testing::WireMac;
use soc::update::FirmwareAnswer;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// The nodes of the two cards, which are the first and the second of the network.
const HOST: u16 = 1;
const BOX: u16 = 2;

/// The device's memory.
const WINDOW: u64 = 0xe000_0000;

/// The system's allocator, counting what a card asks of it.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IN_A_CARD: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IN_A_CARD.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps `alloc`'s contract, which is this function's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract, and the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does something as a card, or as what is around it.
fn in_a_card<R>(is: bool, does: impl FnOnce() -> R) -> R {
    let was = IN_A_CARD.replace(is);
    let result = does();
    IN_A_CARD.set(was);
    result
}

/// A wire, which is not the card's and allocates.
struct Mac(WireMac);

impl EthernetMac for Mac {
    fn address(&self) -> [u8; 6] {
        self.0.address()
    }

    fn link_is_up(&mut self) -> bool {
        true
    }

    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn has_arrived(&mut self) -> bool {
        self.0.has_arrived()
    }

    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R> {
        let is = IN_A_CARD.get();
        in_a_card(false, || self.0.receive(|arrived| in_a_card(is, || sink(arrived))))
    }

    fn can_transmit(&mut self) -> bool {
        self.0.can_transmit()
    }

    fn transmit<R>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        let is = IN_A_CARD.get();
        in_a_card(false, || self.0.transmit(room, |room| in_a_card(is, || fill(room))))
    }

    fn counters(&self) -> MacCounters {
        self.0.counters()
    }
}

struct TestBoard {
    now: Instant,
    mac: Mac,
    pcie: RecordPort<Mac>,
    /// What is at the places.
    shown: Places,
    /// Turns that fed the watchdog.
    fed: u64,
}

impl Board for TestBoard {
    type Mac = Mac;
    type Pcie = RecordPort<Mac>;

    fn now(&mut self) -> Instant {
        self.now
    }

    fn mac(&mut self) -> &mut Mac {
        &mut self.mac
    }

    fn pcie(&mut self) -> &mut RecordPort<Mac> {
        &mut self.pcie
    }

    fn feed_watchdog(&mut self) {
        self.fed += 1;
    }

    fn stack_used(&mut self) -> Option<u64> {
        Some(1)
    }

    fn temperature(&mut self) -> Option<i32> {
        Some(40_000)
    }

    fn show(&mut self, _: Instant, places: impl FnOnce() -> Places) {
        self.shown = places();
    }

    fn clock_failed(&mut self) {
        panic!("the clock goes on");
    }

    fn joined(&mut self) {}

    fn firmware(&mut self, _: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError> {
        Err(ControlError::NoFirmware)
    }

    fn restart(&mut self) {}

    fn idle(&mut self, _: Instant) -> u32 {
        0
    }

    fn cycles() -> u32 {
        0
    }
}

/// A card, and the other end of its PCIe side.
struct Place<R> {
    card: Card<R>,
    board: TestBoard,
    beyond: RecordPort<WireMac>,
}

impl<R: CardRole> Place<R> {
    /// Card `number`, and its end of the network.
    fn new(
        number: usize,
        places: core::ops::RangeInclusive<u8>,
        role: impl FnOnce(&Start) -> (R, RoleKind),
    ) -> (Self, WireMac) {
        let [.., last] = mac(number);
        let (wire, net) = WireMac::pair(last, 0xfd, 64);
        let (side, beyond) = WireMac::pair(3, 4, 64);
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut mac = Mac(wire);
        let [a, b, c, d] = net::SERVER;
        let settings =
            format!("name = {number}\nmanager = {a}.{b}.{c}.{d}:{}\nplaces = 2\n", net::PORT);
        let bounds = Bounds {
            resend: [Duration::from_millis(1), Duration::from_millis(2)],
            open_retry: Duration::from_millis(4),
            give_up: Duration::from_millis(10),
            completion: Duration::from_millis(30),
            completion_timeout: Duration::from_millis(50),
            peers: 2,
        };
        let start = Start::new(settings.parse().unwrap(), bounds, &mac, incarnation(number));
        let role = role(&start);
        let card = start.card(role, now, &mut mac, None, None);
        let windows = Windows([8, 2, 4]);
        let pcie = RecordPort::new(Mac(side), places.clone(), windows);
        let board = TestBoard { now, mac, pcie, shown: Places::new(), fed: 0 };
        (Self { card, board, beyond: RecordPort::new(beyond, places, windows) }, net)
    }

    fn turn(&mut self, now: Instant) {
        self.board.now = now;
        in_a_card(true, || self.card.turn(&mut self.board));
        self.beyond.look();
    }
}

/// The number of a card's only life.
fn incarnation(card: usize) -> u32 {
    card as u32 + 5
}

struct World {
    host: Place<HostRole>,
    boxes: Place<BoxRole>,
    net: Net,
    device: Registers,
    /// The device takes nothing and says nothing.
    hung: bool,
    now: Instant,
    tag: u16,
}

impl World {
    fn new() -> Self {
        let (host, first) = Place::new(0, 0..=0, |start| start.host_role().unwrap());
        let (boxes, second) = Place::new(1, 1..=2, |start| start.box_role().unwrap());
        let now = Instant::ZERO + Duration::from_secs(1);
        let net = Net::new(now, vec![first, second]);
        Self { host, boxes, net, device: Registers::new(), hung: false, now, tag: 0 }
    }

    fn turn(&mut self, step: Duration) {
        self.now = self.now + step;
        self.net.turn(self.now);
        self.host.turn(self.now);
        self.boxes.turn(self.now);
        if !self.hung {
            self.turn_device();
        }
    }

    /// The device in the first slot.
    fn turn_device(&mut self) {
        let (at, port) = (SlotWire(1), &mut self.boxes.beyond);
        while let Some((of, beside)) = port.beside() {
            match beside {
                Beside::Reset(signal) if of == at => self.device.signal(signal),
                other => panic!("{of:?}: {other:?}"),
            }
        }
        while let Some(tlp) = port.next(at, ClassSet::ALL) {
            self.device.handle(tlp);
            port.take(at);
        }
        while port.room(at) == ClassSet::ALL
            && let Some(tlp) = self.device.out.pop_front()
        {
            port.send(at, &tlp);
        }
        self.device.received.clear();
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.turn(Duration::from_micros(500));
        }
    }

    fn ask(&mut self, card: usize, request: Request) -> Result<Reply, ControlError> {
        let id = self.net.ask(card, request);
        for _ in 0..20_000 {
            if let Some(answer) = self.net.answer(id) {
                return answer;
            }
            self.turn(Duration::from_micros(200));
        }
        panic!("no answer");
    }

    fn join(&mut self) {
        for _ in 0..20_000 {
            if self.net.has_all() {
                return;
            }
            self.turn(Duration::from_millis(1));
        }
        panic!("the cards do not join");
    }

    /// What the root complex asks, and what it gets.
    fn request(&mut self, kind: Kind<'_>) -> (CplStatus, Vec<u8>) {
        let root = &mut self.host.beyond;
        assert_eq!(root.room(SlotWire::HOST), ClassSet::ALL);
        root.send(SlotWire::HOST, &emit(&Repr::new(kind)));
        for _ in 0..2000 {
            self.turn(Duration::from_micros(20));
            let root = &mut self.host.beyond;
            while let Some(tlp) = root.next(SlotWire::HOST, ClassSet::ALL) {
                let tlp = tlp.to_vec();
                root.take(SlotWire::HOST);
                let packet = Packet::new_checked(&tlp[..]).unwrap();
                if packet.class() == Some(Class::Completion) {
                    return (packet.status(), packet.payload().to_vec());
                }
            }
        }
        panic!("no completion");
    }

    fn tag(&mut self) -> Tag {
        self.tag = (self.tag + 1) % 32;
        Tag::new(self.tag).unwrap()
    }

    fn config_write(&mut self, destination: Bdf, register: u16, value: u32) {
        let (data, tag) = (value.to_le_bytes(), self.tag());
        let (status, _) = self.request(Kind::ConfigWrite {
            type1: destination.bus().get() != 1,
            requester: Bdf::default(),
            tag,
            destination,
            register,
            first_be: 0xf,
            data: &data,
        });
        assert_eq!(status, CplStatus::Success, "{destination:?} {register:#x}");
    }

    fn introduce(&mut self) {
        for (card, other) in [(0, 1), (1, 0)] {
            let peer = self.net.peer(other);
            assert_eq!(self.ask(card, Request::SetPeer(peer)), Ok(Reply::Done));
        }
    }

    /// Lends the device, and uses it as an operating system does that has just found it.
    fn lend(&mut self, counter: u32) {
        let key = key(counter);
        assert_eq!(self.ask(1, Request::BindSlot(slot_binding(key))), Ok(Reply::Done));
        assert_eq!(self.ask(0, Request::BindPort(port_binding(key))), Ok(Reply::Done));
        self.run(Duration::from_millis(50));
        let (up, down, device) = (bdf(1, 0), bdf(2, 0), bdf(3, 0));
        self.config_write(up, 0x18, 0x0004_0201);
        self.config_write(down, 0x18, 0x0003_0302);
        for bridge in [up, down] {
            self.config_write(bridge, 0x20, 0xe000_e000);
            self.config_write(bridge, 0x04, 0x0006);
        }
        self.config_write(device, 0x10, WINDOW as u32);
        self.config_write(device, 0x04, 0x0006);
    }

    fn use_it(&mut self) {
        for n in 0..50_u8 {
            let write = emit(&Repr::new(mem_write(Bdf::default(), WINDOW + 0x20, &[n; 128])));
            self.host.beyond.send(SlotWire::HOST, &write);
            let tag = self.tag();
            let read = mem_read(Bdf::default(), tag.get(), WINDOW + 0x20, 32);
            assert_eq!(self.request(read), (CplStatus::Success, vec![n; 128]));
        }
        let in_use = |at| (SlotWire(at), PlaceState::InUse);
        assert_eq!(self.host.board.shown, [in_use(0)]);
        assert_eq!(self.boxes.board.shown, [in_use(1), (SlotWire(2), PlaceState::Empty)]);
    }

    fn take_back(&mut self, counter: u32) {
        let (port, key, mode) = (PortId::new(0).unwrap(), key(counter), Removal::Force);
        let (box_node, slot, epoch) = (net::node(1), key.slot, key.epoch);
        let unbind = Request::UnbindPort { port, box_node, slot, epoch, mode };
        self.ask(0, unbind).unwrap();
        self.ask(1, Request::UnbindSlot(key)).unwrap();
    }

    /// Everything that a manager reads.
    fn read_all(&mut self) {
        for card in 0..2 {
            for request in [
                Request::ReadTable { from: 0 },
                Request::ReadCounters { from: 0 },
                Request::SetSampling(Sampling::All),
                Request::ReadStamps { from: 0 },
                Request::SetLogLevel(LogLevel::Info),
            ] {
                self.ask(card, request).unwrap();
            }
            self.ask(card, Request::Firmware(FirmwareRequest::Status)).unwrap_err();
            self.net.ping(card);
        }
        self.ask(1, Request::ReadInventory { from: 0 }).unwrap();
    }

    fn counter(&mut self, card: usize, name: &str) -> u64 {
        let mut from = Some(0);
        while let Some(page) = from {
            let answer = self.ask(card, Request::ReadCounters { from: page });
            let Ok(Reply::Counters { entries, next }) = answer else { panic!("{answer:?}") };
            if let Some((_, value)) = entries.iter().find(|(counter, _)| counter.as_str() == name) {
                return *value;
            }
            from = next;
        }
        panic!("no counter {name}");
    }

    /// What `ping` sees: each echo request is answered with its own data, and one for another card's
    /// address is not.
    fn ping_all(&mut self) {
        for card in 0..2 {
            for (number, length) in [(1, 0), (2, 56), (3, 1472)] {
                let data: Vec<u8> = (0..length).map(|at| at as u8 ^ card as u8).collect();
                self.net.echo(card, card, number, &data);
                self.run(Duration::from_millis(5));
                assert_eq!(self.net.echoes.pop(), Some((card, number, data)), "{length} bytes");
            }
            self.net.echo(card, 1 - card, 4, b"not for you");
            self.run(Duration::from_millis(5));
            assert_eq!(self.net.echoes, []);
        }
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    in_a_card(true, || drop(Box::new(1)));
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 1, "what a card asks for is counted");
    let mut world = World::new();
    world.join();
    let inserted = Body::Beside(Beside::Inserted("regs".try_into().unwrap()));
    assert!(world.boxes.beyond.say(SlotWire(1), inserted.clone()));
    assert!(world.host.beyond.say(SlotWire::HOST, Body::Beside(Beside::RootComplex(true))));
    world.run(Duration::from_millis(300));
    let shown = |at, state| [(SlotWire(at), state)];
    assert_eq!(world.host.board.shown, shown(0, PlaceState::Free));
    assert_eq!(world.boxes.board.shown[..1], shown(1, PlaceState::Free));
    world.introduce();
    world.ping_all();
    for counter in [1, 3, 5] {
        world.lend(counter);
        world.use_it();
        world.read_all();
        world.take_back(counter);
        // Connections break, and leases are asked for again.
        world.net.hang_up();
        world.run(Duration::from_secs(3));
        world.join();
        // A root complex and a device that go and come, the latter while it is lent.
        world.lend(counter + 1);
        let reset = SlotSignal::Perst { asserted: true };
        assert!(world.host.beyond.say(SlotWire::HOST, Body::Beside(Beside::Reset(reset))));
        assert!(world.boxes.beyond.say(SlotWire(1), Body::Beside(Beside::Removed)));
        world.run(Duration::from_millis(100));
        world.take_back(counter + 1);
        world.device.reset();
        assert!(world.boxes.beyond.say(SlotWire(1), inserted.clone()));
        world.run(Duration::from_millis(300));
        // Frames of all kinds that nobody should send.
        for kind in [[0x88, 0xb5], [0x08, 0x00], [0x08, 0x06], [0x81, 0x00]] {
            for length in [14, 15, 60, 1514] {
                let mut frame = vec![0x5a; length];
                frame[..6].copy_from_slice(&mac(counter as usize % 2));
                frame[12..14].copy_from_slice(&kind);
                world.net.spoil(counter as usize % 2, &frame);
                world.run(Duration::from_millis(1));
            }
        }
    }
    let Net { joined, leases, pongs, carried, .. } = world.net;
    assert_eq!((joined, pongs), (8, 6), "each card joins four times");
    assert!(leases > 4, "{leases}");
    assert!(carried > 300, "{carried}");
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "allocations in turns of cards");
}

/// The device's place in the box has no room, so nor have the box's links, so nor has the host: the root
/// complex waits at the host's PCIe side, once and for a moment. Both cards live.
#[test]
fn a_device_that_hangs_holds_its_host_up_once_and_no_watchdog_bites() {
    let mut world = World::new();
    world.join();
    let inserted = Body::Beside(Beside::Inserted("regs".try_into().unwrap()));
    assert!(world.boxes.beyond.say(SlotWire(1), inserted));
    assert!(world.host.beyond.say(SlotWire::HOST, Body::Beside(Beside::RootComplex(true))));
    world.run(Duration::from_millis(300));
    world.introduce();
    world.lend(1);
    world.use_it();
    world.hung = true;
    let write = emit(&Repr::new(mem_write(Bdf::default(), WINDOW + 0x20, &[7; 128])));
    let (mut sent, mut waited) = (0, 0);
    for _ in 0..20_000 {
        if world.host.beyond.room(SlotWire::HOST).contains(Class::Posted) {
            world.host.beyond.send(SlotWire::HOST, &write);
            sent += 1;
        } else {
            waited += 1;
        }
        world.turn(Duration::from_micros(100));
    }
    assert!((100..1000).contains(&waited), "{waited} turns without room, {sent} writes sent");
    let waits = |world: &mut World| {
        world.host.board.pcie.next(SlotWire::HOST, ClassSet::ALL).map(<[u8]>::to_vec)
    };
    assert_eq!(waits(&mut world), None, "what the device does not take is given up");
    let fed = |world: &World| [world.host.board.fed, world.boxes.board.fed];
    let (before, turns) = (fed(&world), 20_000);
    for _ in 0..turns {
        world.turn(Duration::from_millis(1));
    }
    assert_eq!(fed(&world), before.map(|fed| fed + turns), "each turn fed both watchdogs");
    // The device goes on, and so does all the rest.
    world.hung = false;
    world.run(Duration::from_millis(500));
    assert_eq!(waits(&mut world), None);
    world.use_it();
}

#[test]
fn a_lease_that_nobody_renews_is_lost_and_counted() {
    let mut world = World::new();
    world.join();
    world.net.leaseless = true;
    world.run(net::LEASE + Duration::from_secs(1));
    world.net.echo(0, 0, 1, b"who has it now?");
    world.run(Duration::from_millis(5));
    assert_eq!(world.net.echoes, [], "the address is not the card's any more");
    world.net.leaseless = false;
    world.net.hang_up();
    world.run(Duration::from_secs(20));
    world.join();
    for card in 0..2 {
        assert_eq!(world.counter(card, "card: leased addresses lost"), 1);
    }
}
