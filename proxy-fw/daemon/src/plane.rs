//! The data plane: a role of proxy-core, its ports, its clock and its connection to the manager,
//! turned by one thread.

use crate::clock::Clock;
use crate::control::{ControlHandle, Inbound};
use crate::fabric::net_address;
use crate::hold::Hold;
use crate::idle::{Idle, Spin};
use proxy_core::limits::MAX_FRAME;
use proxy_core::role::{Outgoing, Role};
use proxy_core::time::Instant;
use proxy_net::{Counters, NetError, Port, Sent, Waiting};
use std::time::Duration;
use tracing::{debug, warn};

/// Longest sleep: how late a message of the manager or a command can be noticed by a data plane
/// that has nothing to do.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Looks at ports that show without a system call whether something came, before a turn goes on.
/// So what comes is seen within one look and not within one turn, which costs as much as many.
const LOOKS: usize = 128;

/// Looks between two hints to the processor that this is a loop that waits: a hint takes as long as
/// several looks.
const LOOKS_A_HINT: usize = 8;

/// How long frames that keep coming can keep timers and the manager's messages waiting.
const LOOK_AROUND: Duration = Duration::from_micros(5);

/// Frames sent in one turn, so that receiving is never starved.
const SEND_BATCH: usize = 64;

/// Messages of the manager handled in one turn.
const CONTROL_BATCH: usize = 16;

/// A frame that the role wrote.
#[derive(Clone, Copy)]
struct Written {
    outgoing: Outgoing,
    /// It is in the port's own place, not in the plane's buffer.
    placed: bool,
}

/// A role and everything around it.
pub struct Plane<R: Role> {
    /// The role.
    pub role: R,
    clock: Clock,
    /// The time as last read. Reading the clock is a good part of a turn that finds nothing, so
    /// such a turn reads it once.
    latest: Instant,
    /// One for each path; nothing where one is broken for good.
    ports: Vec<Option<Box<dyn Port>>>,
    control: ControlHandle,
    frame: Box<[u8; MAX_FRAME]>,
    /// A frame that the port had no room for.
    unsent: Option<Written>,
    /// Whether it is waited for still; one for each path.
    holds: Vec<Hold>,
    /// When timers and the manager's messages were last looked at.
    looked_around: Instant,
    idle: Idle,
    joined: bool,
    /// What ports that are broken for good had counted.
    gone: Vec<Counters>,
    frames_unroutable: u64,
    /// For a port that is broken for good.
    frames_lost: u64,
    frames_refused: u64,
    messages_unsent: u64,
    /// What devices behind the role counted, as last said.
    devices: Vec<(&'static str, u64)>,
}

impl<R: Role> Plane<R> {
    /// Puts the parts together.
    pub fn new(role: R, ports: Vec<Box<dyn Port>>, control: ControlHandle, spin: Spin) -> Self {
        Self {
            role,
            clock: Clock::default(),
            latest: Instant::ZERO,
            holds: ports.iter().map(|_| Hold::default()).collect(),
            ports: ports.into_iter().map(Some).collect(),
            control,
            frame: Box::new([0; MAX_FRAME]),
            unsent: None,
            looked_around: Instant::ZERO,
            idle: Idle::new(spin),
            joined: false,
            gone: Vec::new(),
            frames_unroutable: 0,
            frames_lost: 0,
            frames_refused: 0,
            messages_unsent: 0,
            devices: Vec::new(),
        }
    }

    /// The time now, by the plane's clock.
    pub fn now(&mut self) -> Instant {
        self.latest = self.clock.now();
        self.latest
    }

    /// The time as last read, by [`receive`](Self::receive) or [`now`](Self::now): the time of
    /// this turn, for what need not be more exact.
    pub fn latest(&self) -> Instant {
        self.latest
    }

    /// The plane's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Whether the manager knows this proxy at present.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// Takes in what arrived: frames, messages of the manager, timers that ran out. Whether there
    /// was anything.
    ///
    /// # Errors
    ///
    /// When the last port is broken for good.
    pub fn receive(&mut self) -> Result<bool, NetError> {
        let mut frames = 0;
        for index in 0..self.ports.len() {
            let (role, clock, latest) = (&mut self.role, &self.clock, &mut self.latest);
            let Some(port) = &mut self.ports[index] else { continue };
            let received = port.receive(&mut |from, frame| {
                *latest = clock.now();
                if from.congestion_experienced {
                    role.handle_marked_frame(*latest, frame);
                } else {
                    role.handle_frame(*latest, frame);
                }
                if role.wants_mark() {
                    role.mark(clock.now());
                }
            });
            frames += received.or_else(|error| self.broken(index, error).map(|()| 0))?;
        }
        let now = if frames == 0 { self.now() } else { self.latest };
        if frames > 0 && now.saturating_since(self.looked_around) < LOOK_AROUND {
            self.note(true);
            return Ok(true);
        }
        self.looked_around = now;
        let control = self.receive_control(now);
        let timer = self.role.poll_timeout().is_some_and(|at| at <= now);
        if timer {
            self.role.handle_timeout(now);
        }
        let busy = frames > 0 || control || timer;
        self.note(busy);
        Ok(busy)
    }

    /// A port is broken for good: the paths of the others carry its frames.
    fn broken(&mut self, index: usize, error: NetError) -> Result<(), NetError> {
        if let Some(port) = self.ports[index].take() {
            self.gone.push(port.counters());
        }
        if self.ports.iter().all(Option::is_none) {
            return Err(error);
        }
        warn!("path {index} is gone until this proxy is started again: {error}");
        Ok(())
    }

    /// What was done ends an idle spell at once: whoever turns the plane may have no reason to
    /// [`rest`](Self::rest) after a busy turn.
    fn note(&mut self, busy: bool) {
        if busy {
            self.idle.end();
        }
    }

    /// A processor reads a register, through this proxy: more of that comes soon.
    pub fn note_read(&mut self) {
        self.idle.note_read(self.latest);
    }

    fn receive_control(&mut self, now: Instant) -> bool {
        let mut any = false;
        for _ in 0..CONTROL_BATCH {
            if self.control.is_asked() && !self.may_be_asked() {
                break;
            }
            let Some(message) = self.control.try_recv() else { break };
            any = true;
            match message {
                Inbound::Joined(welcome) => {
                    self.joined = true;
                    self.role.set_node(welcome.node);
                    self.role.control_reconnected();
                }
                Inbound::Lost => {
                    self.joined = false;
                    self.role.control_reconnected();
                }
                Inbound::Request { id, term, body } => {
                    debug!(id = id.0, ?body, "request");
                    self.role.handle_control(now, id, term, &body);
                }
            }
        }
        any
    }

    /// Whether the answer to one more request has room: in the role, whose own answers go first, and
    /// towards the manager. One that is not taken holds back those behind it, and at last the manager.
    fn may_be_asked(&mut self) -> bool {
        // Whoever turns the plane says before that answer what the devices counted.
        if self.role.is_asked_for_counters() {
            return false;
        }
        self.tell_manager();
        self.control.has_room()
    }

    /// Hands over what the role has to say to the manager, as far as there is room. Whether there was
    /// anything.
    fn tell_manager(&mut self) -> bool {
        let mut any = false;
        while self.control.has_room() {
            let Some(message) = self.role.poll_control() else { break };
            any = true;
            debug!(?message, "to the manager");
            if !self.joined {
                self.messages_unsent += 1;
            } else if !self.control.try_send(message) {
                warn!("a message for the manager found no room");
            }
        }
        any
    }

    /// Sends what is to be sent: frames and messages for the manager. Whether there was anything.
    /// Frames leave at the [`latest`](Self::latest) time; after long work it is to be read anew.
    ///
    /// # Errors
    ///
    /// When the last port is broken for good.
    pub fn transmit(&mut self) -> Result<bool, NetError> {
        let mut any = false;
        for _ in 0..SEND_BATCH {
            let frame = match self.unsent.take() {
                Some(unsent) => unsent,
                None => match self.next_frame()? {
                    Some(frame) => frame,
                    None => break,
                },
            };
            any = true;
            if !self.send(frame)? {
                self.unsent = Some(frame);
                break;
            }
        }
        // Also what the transport had no room for the last time: nobody may say anything behind it.
        if any || self.holds_back() {
            self.flush()?;
        }
        if self.role.is_asked_for_counters() {
            let mut around = self.counters();
            around.extend_from_slice(&self.devices);
            self.role.set_surroundings(&around);
        }
        if let Some(level) = self.role.poll_log_level() {
            crate::logs::set_level(level);
        }
        any |= self.tell_manager();
        self.note(any);
        Ok(any)
    }

    /// The role's next frame: in the port's own place, if the frame cannot be another port's.
    fn next_frame(&mut self) -> Result<Option<Written>, NetError> {
        let place = match &mut self.ports[..] {
            [Some(port)] => port.place(),
            _ => Ok(None),
        };
        let (placed, buf) = match place {
            Ok(Some(place)) => (true, place),
            Ok(None) => (false, &mut self.frame[..]),
            Err(error) => return self.broken(0, error).map(|()| None),
        };
        let Some(outgoing) = self.role.poll_transmit(self.latest, buf) else { return Ok(None) };
        // What the system takes to send it is the network's time: the other end may have answered
        // before the call returns.
        if self.role.wants_mark() {
            self.role.mark(self.clock.now());
        }
        Ok(Some(Written { outgoing, placed }))
    }

    /// Whether a port still has frames that its transport did not take.
    fn holds_back(&self) -> bool {
        self.ports.iter().flatten().any(|port| port.interest().is_some_and(|(_, held)| held))
    }

    fn flush(&mut self) -> Result<(), NetError> {
        for index in 0..self.ports.len() {
            let Some(port) = &mut self.ports[index] else { continue };
            port.flush().or_else(|error| self.broken(index, error))?;
        }
        Ok(())
    }

    /// Whether the port took the frame, or nobody can: else it is to be sent again.
    fn send(&mut self, Written { outgoing, placed }: Written) -> Result<bool, NetError> {
        let path = outgoing.path.get() as usize;
        let address = self.role.peer_paths(outgoing.peer).get(path).map(net_address);
        let (Some(address), Some(port)) = (address, self.ports.get_mut(path)) else {
            self.frames_unroutable += 1;
            return Ok(true);
        };
        let Some(port) = port else {
            self.frames_lost += 1;
            return Ok(true);
        };
        let sent = if placed {
            port.send_placed(&address, outgoing.len)
        } else {
            port.send(&address, &self.frame[..outgoing.len])
        };
        match sent {
            Ok(Sent::Queued) => Ok(true),
            Ok(Sent::Full) => {
                let counted = port.counters();
                let others = self.ports.iter().flatten().count() > 1;
                let lost = self.holds[path].is_over(self.latest, counted.sent_frames, others);
                self.frames_refused += u64::from(lost);
                Ok(lost)
            }
            Err(error @ (NetError::WrongAddress { .. } | NetError::TooLong { .. })) => {
                // The link sends again, and gives up in its time.
                self.frames_refused += 1;
                debug!("a frame was not sent: {error}");
                Ok(true)
            }
            Err(error) => self.broken(path, error).map(|()| true),
        }
    }

    /// To be called with whether the turn did anything, and with the time (since the clock's
    /// origin) that something outside the plane waits for: spins for a while, then sleeps until a
    /// frame comes or a timer runs out.
    ///
    /// # Errors
    ///
    /// When the last port is broken for good.
    pub fn rest(&mut self, busy: bool, timer: Option<Duration>) -> Result<(), NetError> {
        let timer = timer.map(|at| Instant::from_nanos(at.as_nanos() as u64));
        self.rest_with(busy, timer, &[])
    }

    /// As [`rest`](Self::rest), with descriptors that end the sleep, too. A time is of this
    /// plane's [clock](Self::clock).
    ///
    /// # Errors
    ///
    /// When the last port is broken for good.
    pub fn rest_with(
        &mut self,
        busy: bool,
        timer: Option<Instant>,
        others: &[Waiting<'_>],
    ) -> Result<(), NetError> {
        self.note(busy);
        if busy {
            return Ok(());
        }
        let now = self.latest;
        if self.idle.looks(now) {
            self.idle.let_others(now);
            self.look();
            return Ok(());
        }
        let next = timer.into_iter().chain(self.role.poll_timeout()).min();
        let until = next.map_or(LONGEST_SLEEP, |at| at.saturating_since(now));
        let ports = self.ports.iter_mut().flatten();
        proxy_net::wait_any(ports, others, until.min(LONGEST_SLEEP))
    }

    /// Spins for a moment, until something came.
    fn look(&self) {
        for look in 0..LOOKS {
            if look % LOOKS_A_HINT == 0 {
                std::hint::spin_loop();
            }
            if self.ports.iter().flatten().any(|port| port.may_receive()) {
                return;
            }
        }
    }

    /// To be called with what the devices counted when [`Role::is_asked_for_counters`]; equal
    /// names are added up in the report.
    pub fn set_device_counters(&mut self, counters: Vec<(&'static str, u64)>) {
        self.devices = counters;
    }

    /// Counters of the plane itself, and of its ports together.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let of_ports = |count: fn(&Counters) -> u64| -> u64 {
            let there = self.ports.iter().flatten().map(|port| port.counters());
            there.chain(self.gone.iter().copied()).map(|counters| count(&counters)).sum()
        };
        let broken = self.ports.iter().filter(|port| port.is_none()).count();
        vec![
            ("plane: frames to a node without an address", self.frames_unroutable),
            ("plane: frames for a port that is broken for good", self.frames_lost),
            ("plane: frames that the port did not take", self.frames_refused),
            ("plane: messages to a manager that is away", self.messages_unsent),
            ("plane: ports that are broken for good", broken as u64),
            ("port: frames sent", of_ports(|port| port.sent_frames)),
            ("port: frames that had to wait for room", of_ports(|port| port.send_full)),
            ("port: frames that the network refused", of_ports(|port| port.send_refused)),
            ("port: frames received", of_ports(|port| port.received_frames)),
            ("port: frames thrown away as invalid", of_ports(|port| port.receive_invalid)),
            ("port: frames lost for lack of room", of_ports(|port| port.receive_dropped)),
        ]
    }
}

/// A plane that ends says goodbye to its peers, which need not find out by waiting.
impl<R: Role> Drop for Plane<R> {
    fn drop(&mut self) {
        let now = self.now();
        self.role.close_links(now);
        // Whoever does not hear it finds out.
        let _ = self.transmit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_core::boxes::{BoxConfig, BoxRole};
    use proxy_core::control::{
        CONTROL_VERSION, FromProxy, OperationId, PathAddress, Peer, Request, Term, Welcome,
    };
    use proxy_net::{Address, MemoryPort};
    use tlp_codec::ids::{NodeId, PathId};

    fn plane() -> (Plane<BoxRole>, MemoryPort) {
        let (port, other) = MemoryPort::pair(MAX_FRAME, 8);
        let (control, ..) = ControlHandle::pair();
        let role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        (
            Plane::new(
                role,
                vec![Box::new(port)],
                control,
                Spin::always(Duration::from_secs(3600)),
            ),
            other,
        )
    }

    #[test]
    fn a_frame_ends_the_idle_spell_without_a_rest() {
        let (mut plane, mut other) = plane();
        assert!(!plane.receive().unwrap());
        plane.rest(false, None).unwrap();
        assert!(plane.idle.since.is_some());
        let to = plane.ports[0].as_ref().unwrap().local_address();
        assert_eq!(other.send(&to, &[0; 64]).unwrap(), Sent::Queued);
        other.flush().unwrap();
        assert!(plane.receive().unwrap());
        assert_eq!(plane.idle.since, None);
    }

    #[test]
    fn what_a_port_had_counted_stays_when_it_breaks() {
        let (mut plane, mut other) = plane();
        let to = plane.ports[0].as_ref().unwrap().local_address();
        assert_eq!(other.send(&to, &[0; 64]).unwrap(), Sent::Queued);
        other.flush().unwrap();
        assert!(plane.receive().unwrap());
        let received = |plane: &Plane<BoxRole>| {
            let counters = plane.counters();
            counters.iter().find(|counter| counter.0 == "port: frames received").unwrap().1
        };
        assert_eq!(received(&plane), 1);
        plane.broken(0, NetError::NoSuchVlan(0)).unwrap_err();
        assert_eq!(received(&plane), 1);
    }

    #[test]
    fn a_frame_for_a_broken_port_is_no_frame_without_an_address() {
        let (mut plane, _other) = plane();
        plane.ports.push(Some(Box::new(MemoryPort::pair(MAX_FRAME, 8).0)));
        let [own, peer] = [7, 8].map(|node| NodeId::new(node).unwrap());
        plane.role.set_node(own);
        let there = |port| PathAddress::Udp4 { ip: [192, 0, 2, 1], port };
        let paths = [1, 2].map(there).into_iter().collect();
        let request = Request::SetPeer(Peer { node: peer, incarnation: 1, paths, mtu: 1500 });
        plane.role.handle_control(Instant::ZERO, OperationId(1), Term(1), &request);
        plane.broken(1, NetError::NoSuchVlan(0)).unwrap();
        for (path, counted) in [(1, [0, 1]), (2, [1, 1])] {
            let path = PathId::new(path).unwrap();
            let outgoing = Outgoing { peer, path, len: 64 };
            assert!(plane.send(Written { outgoing, placed: false }).unwrap());
            assert_eq!([plane.frames_unroutable, plane.frames_lost], counted);
        }
    }

    /// A port of an interface that throws away what it is given: now and then it has room for another
    /// frame, and none leaves it.
    struct Wasteful(MemoryPort, u32);

    impl Port for Wasteful {
        fn local_address(&self) -> Address {
            self.0.local_address()
        }

        fn mtu(&self) -> usize {
            self.0.mtu()
        }

        fn send(&mut self, _: &Address, _: &[u8]) -> Result<Sent, NetError> {
            self.1 += 1;
            Ok(if self.1.is_multiple_of(3) { Sent::Queued } else { Sent::Full })
        }

        fn flush(&mut self) -> Result<(), NetError> {
            Ok(())
        }

        fn receive(
            &mut self,
            _: &mut dyn FnMut(&proxy_net::Origin, &[u8]),
        ) -> Result<usize, NetError> {
            Ok(0)
        }

        fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
            self.0.wait(timeout)
        }

        fn interest(&self) -> Option<(std::os::fd::BorrowedFd<'_>, bool)> {
            None
        }

        fn counters(&self) -> proxy_net::Counters {
            self.0.counters()
        }
    }

    /// A plane with these ports, which knows a peer behind as many; and a frame for it on each path.
    fn plane_to_peer(ports: Vec<Box<dyn Port>>) -> (Plane<BoxRole>, impl Fn(u8) -> Written) {
        let (control, ..) = ControlHandle::pair();
        let role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        let [own, peer] = [7, 8].map(|node| NodeId::new(node).unwrap());
        // In memory: the port with number 1.
        let there = PathAddress::Udp4 { ip: [0; 4], port: 1 };
        let paths = ports.iter().map(|_| there).collect();
        let mut plane = Plane::new(role, ports, control, Spin::always(LONGEST_SLEEP));
        plane.role.set_node(own);
        let request = Request::SetPeer(Peer { node: peer, incarnation: 1, paths, mtu: 1500 });
        plane.role.handle_control(Instant::ZERO, OperationId(1), Term(1), &request);
        let frame = move |path| {
            let path = PathId::new(path).unwrap();
            Written { outgoing: Outgoing { peer, path, len: 64 }, placed: false }
        };
        (plane, frame)
    }

    #[test]
    fn a_port_that_is_stuck_holds_up_the_others_once() {
        let hold = Duration::from_millis(1);
        for wasteful in [false, true] {
            let (stuck, mut reader) = MemoryPort::pair(MAX_FRAME, 1);
            let (other, mut far) = MemoryPort::pair(MAX_FRAME, 100);
            let stuck: Box<dyn Port> =
                if wasteful { Box::new(Wasteful(stuck, 0)) } else { Box::new(stuck) };
            let (mut plane, frame) = plane_to_peer(vec![stuck, Box::new(other)]);
            // One that its queue still has room for.
            assert!(wasteful || plane.send(frame(0)).unwrap());
            assert!(!plane.send(frame(0)).unwrap(), "it is waited for");
            plane.latest = plane.latest + hold;
            for _ in 0..30 {
                assert!(plane.send(frame(0)).unwrap() && plane.send(frame(1)).unwrap());
            }
            assert_eq!(plane.frames_refused, if wasteful { 20 } else { 30 });
            assert_eq!(far.receive(&mut |_, _| {}).unwrap(), 30);
            if !wasteful {
                // It goes on, and is waited for again.
                assert_eq!(reader.receive(&mut |_, _| {}).unwrap(), 1);
                assert!(plane.send(frame(0)).unwrap() && !plane.send(frame(0)).unwrap());
                assert_eq!(plane.frames_refused, 30);
            }
        }
    }

    #[test]
    fn where_there_is_one_port_each_frame_waits_for_it() {
        let (port, _reader) = MemoryPort::pair(MAX_FRAME, 1);
        let (mut plane, frame) = plane_to_peer(vec![Box::new(port)]);
        assert!(plane.send(frame(0)).unwrap());
        for refused in 0..3 {
            assert!(!plane.send(frame(0)).unwrap());
            assert_eq!(plane.frames_refused, refused);
            plane.latest = plane.latest + Duration::from_millis(1);
            assert!(plane.send(frame(0)).unwrap());
        }
        assert_eq!(plane.frames_refused, 3);
    }

    /// A port whose transport has no room once.
    struct Hesitant {
        port: MemoryPort,
        descriptor: std::os::fd::OwnedFd,
        full: bool,
        held: Option<(Address, Vec<u8>)>,
    }

    impl Port for Hesitant {
        fn local_address(&self) -> Address {
            self.port.local_address()
        }

        fn mtu(&self) -> usize {
            self.port.mtu()
        }

        fn send(&mut self, to: &Address, frame: &[u8]) -> Result<Sent, NetError> {
            self.held = Some((*to, frame.to_vec()));
            Ok(Sent::Queued)
        }

        fn flush(&mut self) -> Result<(), NetError> {
            if std::mem::take(&mut self.full) {
                return Ok(());
            }
            if let Some((to, frame)) = self.held.take() {
                assert_eq!(self.port.send(&to, &frame)?, Sent::Queued);
            }
            self.port.flush()
        }

        fn receive(
            &mut self,
            sink: &mut dyn FnMut(&proxy_net::Origin, &[u8]),
        ) -> Result<usize, NetError> {
            self.port.receive(sink)
        }

        fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
            self.port.wait(timeout)
        }

        fn interest(&self) -> Option<(std::os::fd::BorrowedFd<'_>, bool)> {
            Some((std::os::fd::AsFd::as_fd(&self.descriptor), self.held.is_some()))
        }

        fn counters(&self) -> proxy_net::Counters {
            self.port.counters()
        }
    }

    #[test]
    fn what_a_transport_had_no_room_for_is_sent_though_nothing_comes_behind_it() {
        let (mut plane, _) = plane();
        let (port, mut other) = MemoryPort::pair(MAX_FRAME, 8);
        let descriptor = std::fs::File::open("/dev/null").unwrap().into();
        let mut hesitant = Hesitant { port, descriptor, full: true, held: None };
        let to = other.local_address();
        assert_eq!(hesitant.send(&to, &[0; 64]).unwrap(), Sent::Queued);
        hesitant.flush().unwrap();
        plane.ports[0] = Some(Box::new(hesitant));
        let came = |other: &mut MemoryPort| other.receive(&mut |_, _| {}).unwrap();
        assert_eq!(came(&mut other), 0);
        assert!(!plane.transmit().unwrap(), "the role says nothing");
        assert_eq!(came(&mut other), 1);
    }

    #[test]
    fn a_read_keeps_the_plane_awake() {
        let (mut plane, _other) = plane();
        let after_read = Duration::from_secs(3600);
        plane.idle = Idle::new(Spin { usual: Duration::ZERO, after_read });
        let now = plane.now();
        assert!(!plane.idle.looks(now));
        plane.note_read();
        assert!(plane.idle.looks(now));
    }

    /// Else the role, which has room for a few answers, drops requests.
    #[test]
    fn a_manager_that_does_not_read_is_answered_all_that_it_asked() {
        let (port, _other) = MemoryPort::pair(MAX_FRAME, 8);
        let (control, asks, mut answers) = ControlHandle::pair();
        let role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        let mut plane =
            Plane::new(role, vec![Box::new(port)], control, Spin::always(LONGEST_SLEEP));
        let node = NodeId::new(7).unwrap();
        let welcome = Welcome { version: CONTROL_VERSION, node, term: Term(1) };
        asks.try_send(Inbound::Joined(welcome)).unwrap();
        const ALL: u64 = 1000;
        let (mut asked, mut answered) = (0, Vec::new());
        for turn in 0..10 * ALL {
            let body = match asked % 3 {
                0 => Request::ReadCounters { from: u16::MAX },
                _ => Request::ReadTable { from: u16::MAX },
            };
            let request = Inbound::Request { id: OperationId(asked), term: Term(1), body };
            if asked < ALL && asks.try_send(request).is_ok() {
                asked += 1;
                // More of them come before the plane looks.
                if asked % 7 != 0 {
                    continue;
                }
            }
            plane.receive().unwrap();
            plane.transmit().unwrap();
            if turn > ALL
                && let Ok((_, FromProxy::Response { id, .. })) = answers.try_recv()
            {
                answered.push(id.0);
            }
            if answered.len() as u64 == ALL {
                break;
            }
        }
        answered.sort_unstable();
        assert_eq!(answered, (0..ALL).collect::<Vec<_>>());
    }

    #[test]
    fn each_turn_reads_the_time() {
        let (mut plane, _other) = plane();
        assert_eq!(plane.latest(), Instant::ZERO);
        plane.receive().unwrap();
        let first = plane.latest();
        std::thread::sleep(Duration::from_millis(1));
        plane.receive().unwrap();
        assert!(plane.latest().saturating_since(first) >= Duration::from_millis(1));
    }
}
