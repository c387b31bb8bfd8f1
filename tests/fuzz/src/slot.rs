//! A device of two functions in a box's slot and two hosts that have one of them each, or both: what a
//! host asks and resets, how the device answers, when it is ready again after a reset, what the manager
//! wants, and time.
//!
//! All ends are honest: the device answers what it was asked once or not at all and forgets it with a
//! reset, a root complex likewise. So whoever gets an answer has asked for it, and it is the right one.

mod device;
mod host;

use crate::input::Input;
use core::time::Duration;
use device::{Device, FUNCTIONS, Manner};
use host::{HOSTS, Host, Root};
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{
    OperationId, PathSet, Peer, PortBinding, Removal, Request, Share, SlotBinding, SlotState, Term,
    Window,
};
use proxy_core::host::HostConfig;
use proxy_core::limits::{MAX_FRAME, TLP_BUFFER};
use proxy_core::link::{ClassSet, LinkConfig};
use proxy_core::role::Role;
use proxy_core::switch::{ResetKind, SwitchConfig};
use proxy_core::time::Instant;
use tlp_codec::fabric::Frame;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotFunction, SlotId};
use tlp_codec::tlp::{Class, Packet};

/// Steps of one input; the rest of it is not used.
const STEPS: usize = 200;

/// How long a function that is used may lack what is its proxy's, if it left a write of that unanswered.
const LACKS: Duration = Duration::from_millis(600);

/// Takes steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    // As a box of slow devices has it, and one of fast ones.
    let bounds = [Duration::from_secs(2), Duration::from_millis(30)];
    let kind = input.u8();
    let mut world = World::new(bounds[usize::from(kind & 1)], kind & 4 != 0);
    world.introduce(usize::from(kind >> 1 & 1));
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
}

struct World {
    hosts: [Host; HOSTS],
    boxes: BoxRole,
    device: Device,
    now: Instant,
    /// The host that each function was bound to last.
    host_of: [usize; FUNCTIONS],
    /// The epoch of each function's binding, while it has one.
    bound: [Option<Epoch>; FUNCTIONS],
    epochs: u32,
    operations: u64,
    /// Since when a function that is used and answers lacks what is its proxy's.
    lacks: [Option<Instant>; FUNCTIONS],
    /// The classes of which the device takes what comes.
    room: ClassSet,
    /// Where a frame or a TLP is.
    buf: Vec<u8>,
}

fn node(n: u16) -> NodeId {
    NodeId::new(n).expect("a node")
}

/// The box's node number; those of the hosts follow.
const BOX: u16 = 1;

fn host_node(host: usize) -> NodeId {
    node(BOX + 1 + host as u16)
}

fn slot() -> SlotId {
    SlotId::new(1).expect("a slot")
}

fn port() -> PortId {
    PortId::new(0).expect("a port")
}

impl World {
    fn new(completion_bound: Duration, ten_bit_tags: bool) -> Self {
        let link = LinkConfig {
            channels: 2 * FUNCTIONS,
            shared_receive: 16,
            shared_send: 16,
            ..LinkConfig::default()
        };
        let switch = SwitchConfig { ports: 1, ..SwitchConfig::default() };
        let config = HostConfig { switch, link, peers: 1, recorder: 0, ..HostConfig::default() };
        let mut hosts = [0, 1].map(|_| Host::new(&config));
        for (n, host) in hosts.iter_mut().enumerate() {
            host.role.set_node(host_node(n));
        }
        let config = BoxConfig {
            slots: 1,
            incarnation: 7,
            link,
            peers: HOSTS,
            recorder: 0,
            completion_bound,
            ..BoxConfig::default()
        };
        let mut boxes = BoxRole::new(&config);
        boxes.set_node(node(BOX));
        Self {
            hosts,
            boxes,
            device: Device::new(ten_bit_tags),
            now: Instant::from_nanos(1_000_000),
            host_of: [0; FUNCTIONS],
            bound: [None; FUNCTIONS],
            epochs: 0,
            operations: 0,
            lacks: [None; FUNCTIONS],
            room: ClassSet::ALL,
            buf: vec![0; MAX_FRAME.max(TLP_BUFFER)],
        }
    }

    /// A device that is lent, its second function to such a host; and buses and windows as an operating
    /// system gives them.
    fn introduce(&mut self, second: usize) {
        let peer = |node, incarnation| {
            let paths = Default::default();
            Request::SetPeer(Peer { node, incarnation, paths, mtu: MAX_FRAME as u16 })
        };
        for host in 0..HOSTS {
            self.ask_host(host, &peer(node(BOX), 7));
            self.ask_box(&peer(host_node(host), 1));
        }
        self.insert();
        self.run(Duration::from_millis(300));
        assert_eq!(self.states(), [SlotState::Free; FUNCTIONS], "a device that answers is lent");
        self.bind_slot(0, 0);
        self.bind_slot(1, second);
        (0..HOSTS).for_each(|host| self.bind_port(host));
        self.run(Duration::from_millis(50));
        (0..HOSTS).for_each(|host| self.enumerate(host));
        self.run(Duration::from_millis(10));
    }

    fn insert(&mut self) {
        self.boxes.device_inserted(self.now, slot(), "any".try_into().expect("a short name"));
    }

    fn states(&self) -> Vec<SlotState> {
        self.boxes.inventory().map(|entry| entry.state).collect()
    }

    fn ask_host(&mut self, host: usize, request: &Request) {
        self.operations += 1;
        let operation = OperationId(self.operations);
        self.hosts[host].role.handle_control(self.now, operation, Term(1), request);
        self.turn();
    }

    fn ask_box(&mut self, request: &Request) {
        self.operations += 1;
        self.boxes.handle_control(self.now, OperationId(self.operations), Term(1), request);
        self.turn();
    }

    fn key(function: usize, epoch: Epoch) -> BindingKey {
        let function = SlotFunction::new(function as u16).expect("a function");
        BindingKey { slot: slot(), function, epoch }
    }

    fn bind_slot(&mut self, function: usize, host: usize) {
        self.epochs += 1;
        let epoch = Epoch::new(0, self.epochs).expect("few");
        let window = Window::everything(host_node(host), PathSet::FIRST, epoch);
        self.ask_box(&Request::BindSlot(SlotBinding {
            key: Self::key(function, epoch),
            host: host_node(host),
            path_set: PathSet::FIRST,
            share: Share::EVEN,
            windows: [window].into_iter().collect(),
        }));
        if self.states().get(function) == Some(&SlotState::Bound) && self.bound[function].is_none()
        {
            (self.bound[function], self.host_of[function]) = (Some(epoch), host);
        }
    }

    /// The functions that a host has, with their epochs.
    fn of_host(&self, host: usize) -> impl Iterator<Item = (usize, Epoch)> {
        let functions = (0..FUNCTIONS).filter(move |f| self.host_of[*f] == host);
        functions.filter_map(|f| Some((f, self.bound[f]?)))
    }

    /// All that a host has of the device.
    fn bind_port(&mut self, host: usize) {
        let functions = self.of_host(host).map(|(f, epoch)| (Self::key(f, epoch).function, epoch));
        let binding = PortBinding {
            port: port(),
            box_node: node(BOX),
            slot: slot(),
            functions: functions.collect(),
            path_set: PathSet::FIRST,
            share: Share::EVEN,
        };
        if !binding.functions.is_empty() {
            self.ask_host(host, &Request::BindPort(binding));
        }
    }

    fn unbind_port(&mut self, host: usize) {
        let epochs: Vec<_> = self.of_host(host).map(|(_, epoch)| epoch).collect();
        for epoch in epochs {
            let (port, box_node, slot, mode) = (port(), node(BOX), slot(), Removal::Force);
            self.ask_host(host, &Request::UnbindPort { port, box_node, slot, epoch, mode });
        }
    }

    fn unbind_slot(&mut self, function: usize) {
        if let Some(epoch) = self.bound[function] {
            self.ask_box(&Request::UnbindSlot(Self::key(function, epoch)));
        }
    }

    fn ask_device(&mut self, host: usize, tlp: &[u8]) {
        let Host { role, root } = &mut self.hosts[host];
        if role.handle_tlp(self.now, tlp).is_err() {
            root.not_sent(tlp);
        }
        self.turn();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let (function, n) = (usize::from(what >> 4 & 1), usize::from(what >> 5));
        let host = self.host_of[function];
        match what & 0xf {
            0..=3 => {
                let root = &mut self.hosts[host].root;
                if let Some(tlp) = root.write(function, n, input.u8(), input.u16()) {
                    self.ask_device(host, &tlp);
                }
            }
            4 | 5 => {
                if let Some(tlp) = self.hosts[host].root.read(function, n, input.u8()) {
                    self.ask_device(host, &tlp);
                }
            }
            6 | 7 => self.device.set_manner(function, Manner::of(n)),
            8 => {
                // One answer, or those to a whole conversation but for its end.
                for _ in 0..if n == 7 { usize::from(input.u8()) } else { 1 } {
                    self.device.answer(n);
                    self.turn();
                }
            }
            9 => {
                let tag = u16::from(input.u8());
                self.device.ask(function, tag, n);
                self.turn();
            }
            10 => {
                if let Some(tlp) = self.hosts[host].root.answer(n) {
                    self.ask_device(host, &tlp);
                }
            }
            11 => match n {
                0..=2 => self.bind_slot(function, n & 1),
                3 | 4 => self.bind_port(n - 3),
                5 => self.unbind_port(host),
                6 => self.unbind_slot(function),
                _ => self.ask_box(&Request::Recover(slot())),
            },
            12 => match n {
                0..=2 => self.hosts[host].root.holds = n & 1 != 0,
                3 => self.reset(host, ResetKind::Hot),
                4 => self.reset(host, ResetKind::Fundamental),
                5 if function == 1 => {
                    let classes = Class::ALL.into_iter().enumerate();
                    let taken = input.u8();
                    let taken = classes.filter(|(bit, _)| taken >> bit & 1 != 0);
                    self.room = taken.map(|(_, class)| class).collect();
                    self.turn();
                }
                5 => self.device.after_reset = Manner::of(usize::from(input.u8())),
                6 => {
                    self.device.pull();
                    self.boxes.device_removed(self.now, slot());
                    self.turn();
                }
                _ => {
                    self.device.put_in();
                    self.insert();
                    self.turn();
                }
            },
            _ => {
                let wait = Duration::from_millis(u64::from(input.u8()) << n);
                self.run(wait);
            }
        }
        self.check_owned();
        self.check_counters();
    }

    /// A root complex is reset, and its operating system begins anew.
    fn reset(&mut self, host: usize, kind: ResetKind) {
        self.hosts[host].role.handle_reset(self.now, kind);
        self.turn();
        self.hosts[host].root = Root::default();
        self.enumerate(host);
    }

    fn enumerate(&mut self, host: usize) {
        for tlp in self.hosts[host].root.enumeration() {
            self.ask_device(host, &tlp);
        }
    }

    /// Lets time pass, doing what is due on the way.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.turn();
        while self.now < end {
            let next = self.timers().min().unwrap_or(Instant::FAR_FUTURE);
            self.now = next.max(self.now).min(end);
            let mut stands = 0;
            while self.is_due() {
                // Each at its own time only: nothing else reminds it.
                for Host { role, .. } in &mut self.hosts {
                    if role.poll_timeout().is_some_and(|due| due <= self.now) {
                        role.handle_timeout(self.now);
                    }
                }
                if self.boxes.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.boxes.handle_timeout(self.now);
                }
                self.turn();
                // No clock stands still.
                self.now = self.now + Duration::from_micros(1);
                stands += 1;
                assert!(stands < 100, "what is due is never done");
            }
            self.check_owned();
        }
    }

    fn timers(&self) -> impl Iterator<Item = Instant> {
        let hosts = self.hosts.iter().filter_map(|host| host.role.poll_timeout());
        hosts.chain(self.boxes.poll_timeout())
    }

    fn is_due(&self) -> bool {
        self.timers().any(|due| due <= self.now)
    }

    /// Moves everything until nothing moves.
    fn turn(&mut self) {
        let mut buf = core::mem::take(&mut self.buf);
        let mut busy = true;
        while busy {
            busy = false;
            for Host { role, root } in &mut self.hosts {
                while let Some(length) = role.poll_tlp(self.now, &mut buf) {
                    busy = true;
                    if let Some(answer) = root.take(&buf[..length]) {
                        let _ = role.handle_tlp(self.now, &answer);
                    }
                }
                while let Some(out) = role.poll_transmit(self.now, &mut buf) {
                    busy = true;
                    self.boxes.handle_frame(self.now, &buf[..out.len]);
                }
                busy |= role.poll_control().is_some();
            }
            while let Some(out) = self.boxes.poll_transmit(self.now, &mut buf) {
                busy = true;
                let frame = Frame::new_checked(&buf[..out.len]).expect("the box sends frames");
                let to = frame.header().destination;
                let host = (0..HOSTS).find(|n| host_node(*n) == to).expect("to one of its peers");
                self.hosts[host].role.handle_frame(self.now, &buf[..out.len]);
            }
            let may_poll = self.boxes.may_poll(slot());
            while let Some(signal) = self.boxes.poll_signal(slot()) {
                assert!(may_poll, "nobody would look for {signal:?}");
                busy = true;
                self.device.signal(signal);
            }
            while let Some(length) = self.boxes.poll_tlp(self.now, slot(), self.room, &mut buf) {
                assert!(may_poll, "nobody would look for {:02x?}", &buf[..length]);
                let class = Packet::new_checked(&buf[..length]).ok().and_then(|tlp| tlp.class());
                assert!(class.is_some_and(|class| self.room.contains(class)), "no room");
                busy = true;
                self.device.take(&buf[..length]);
            }
            while let Some(tlp) = self.device.out.front() {
                if self.boxes.handle_tlp(self.now, slot(), tlp).is_err() {
                    break;
                }
                self.device.out.pop_front();
                busy = true;
            }
            busy |= self.boxes.poll_control().is_some();
        }
        self.buf = buf;
        self.forget_bindings();
    }

    fn forget_bindings(&mut self) {
        let states = self.states();
        for (function, bound) in self.bound.iter_mut().enumerate() {
            if states.get(function) != Some(&SlotState::Bound) {
                *bound = None;
            }
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let found = self.boxes.counters().find(|(of, _)| *of == name);
        found.unwrap_or_else(|| panic!("no counter {name:?}")).1
    }

    /// An honest device is not taken for another one.
    fn check_counters(&self) {
        for name in [
            "box: unexpected completions from devices",
            "box: completions from devices that do not fit their request",
            "box: malformed TLPs from devices",
        ] {
            assert_eq!(self.counter(name), 0, "{name}");
        }
    }

    /// A function that is used has what is its proxy's.
    fn check_owned(&mut self) {
        for function in 0..FUNCTIONS {
            let lent = self.bound[function].is_some();
            let takes = self.room == ClassSet::ALL;
            if !lent || !takes || !self.device.lacks_what_is_the_proxys(function) {
                self.lacks[function] = None;
                continue;
            }
            let since = *self.lacks[function].get_or_insert(self.now);
            let most = if self.device.is_prompt(function) { Duration::ZERO } else { LACKS };
            assert!(self.now <= since + most, "function {function} has its own completion timeout");
        }
    }

    /// The device comes to itself; then everything is as it should be, and the box has nothing in hand.
    fn end(&mut self) {
        self.device.put_in();
        if self.boxes.inventory().all(|entry| entry.state == SlotState::Empty) {
            self.insert();
        }
        self.device.recover();
        self.room = ClassSet::ALL;
        for host in 0..HOSTS {
            self.hosts[host].root.holds = false;
            while let Some(tlp) = self.hosts[host].root.answer(0) {
                self.ask_device(host, &tlp);
            }
        }
        self.run(Duration::from_secs(8));
        self.hosts.iter().for_each(|host| host.root.assert_nothing_outstanding());
        (0..HOSTS).for_each(|host| self.unbind_port(host));
        (0..FUNCTIONS).for_each(|f| self.unbind_slot(f));
        // A quarantined device may have to be tried twice: looked at, then reset.
        for _ in 0..3 {
            self.run(Duration::from_secs(3));
            self.ask_box(&Request::Recover(slot()));
        }
        self.run(Duration::from_secs(3));
        self.check_counters();
        assert_eq!(self.states(), [SlotState::Free; FUNCTIONS], "of a device that answers");
        for function in 0..FUNCTIONS {
            assert!(self.device.has_what_is_the_proxys(function), "function {function}");
        }
        let in_hand = self.boxes.in_hand();
        assert_eq!((in_hand.to_devices, in_hand.from_devices), (0, 0));
    }
}
