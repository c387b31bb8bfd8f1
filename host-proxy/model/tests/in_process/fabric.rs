//! What is below the host's root port in these tests: one device, or a virtual switch with
//! devices behind its ports.

use device_models::endpoint::registers::DEVICE_CONTROL_2;
use device_models::{Device, ResetKind};
use host_model::{HostConfig, HostEvent, ModelHost, PortError, TlpPort};
use proxy_core::control::PortState;
use proxy_core::switch::{
    DownstreamVerdict, RemovalRequest, SwitchConfig, SwitchEvent, UpstreamVerdict, VirtualSwitch,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, PortId, Tag};
use tlp_codec::tlp::{Class, CplStatus, Kind, MAX_TLP, Packet, Repr, TlpType};

/// Sleeps until something is due, so that waiting tests leave the processor to others.
fn rest(start: Instant, deadline: Instant, timers: impl Iterator<Item = Duration>) {
    let now = Instant::now();
    let next = timers.map(|timer| start + timer).min().unwrap_or(deadline).min(deadline);
    let pause = next.saturating_duration_since(now).min(Duration::from_millis(1));
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

/// Sets a device's completion timeout to 4 to 13 s, as its box does before it is lent: the default
/// of 50 ms is shorter than the pauses of a loaded machine.
fn lengthen_timeout(device: &mut dyn Device, now: Duration) {
    let write = Kind::ConfigWrite {
        type1: false,
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        destination: Bdf::from_bits(0x0100),
        register: DEVICE_CONTROL_2,
        first_be: 0x1,
        data: &[0xd, 0, 0, 0],
    };
    let mut buf = vec![0; MAX_TLP];
    let len = Repr::new(write).emit(&mut buf).unwrap();
    device.handle_tlp(now, &buf[..len]);
    let len = device.poll_tlp(now, &mut buf).expect("the device answers");
    assert_eq!(Packet::new_checked(&buf[..len]).unwrap().status(), CplStatus::Success);
}

/// A device right on the root port's link.
pub(crate) struct Direct<D> {
    pub(crate) device: D,
    start: Instant,
    /// How far the device's clock is ahead of the machine's.
    pub(crate) ahead: Duration,
    /// After so many more TLPs the clock jumps by this much.
    pub(crate) jump: Option<(usize, Duration)>,
}

impl<D: Device> Direct<D> {
    pub(crate) fn new(mut device: D) -> Self {
        lengthen_timeout(&mut device, Duration::ZERO);
        Self { device, start: Instant::now(), ahead: Duration::ZERO, jump: None }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed() + self.ahead
    }
}

impl<D: Device> TlpPort for Direct<D> {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        if let Some((left, by)) = &mut self.jump {
            *left -= 1;
            if *left == 0 {
                self.ahead += *by;
                self.jump = None;
            }
        }
        self.device.handle_tlp(self.now(), tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        loop {
            let now = self.now();
            if self.device.poll_timeout().is_some_and(|timer| timer <= now) {
                self.device.handle_timeout(now);
            }
            if let Some(len) = self.device.poll_tlp(now, buf) {
                return Ok(Some(len));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let timer = self.device.poll_timeout().map(|timer| timer.saturating_sub(self.ahead));
            rest(self.start, deadline, timer.into_iter());
        }
    }
}

/// TLPs of a device at a time: several, so that requests are outstanding together.
pub(crate) const TURN: usize = 16;

/// Something that is to happen at the switch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The device is pulled out.
    Surprise(PortId),
    /// The attention button.
    Press(PortId),
}

/// A virtual switch with devices behind its ports.
pub(crate) struct Fabric {
    pub(crate) switch: VirtualSwitch,
    pub(crate) devices: BTreeMap<PortId, Box<dyn Device>>,
    pub(crate) events: Vec<SwitchEvent>,
    /// Happens when so many more TLPs have come from devices.
    pub(crate) after_tlps: Option<(usize, Action)>,
    /// Happens when the clock says so.
    pub(crate) at: Option<(Instant, Action)>,
    /// Requests of the host that a device has and has not answered, as the proxy keeps them.
    outstanding: Vec<(PortId, Bdf, Tag)>,
    /// Which device read or wrote host memory, in order; interrupts are not in it.
    pub(crate) dma: Vec<(PortId, TlpType)>,
    /// TLPs for the root complex.
    up: VecDeque<Vec<u8>>,
    start: Instant,
}

pub(crate) fn port(number: u8) -> PortId {
    PortId::new(number).unwrap()
}

impl Fabric {
    fn now(&self) -> proxy_core::time::Instant {
        // The switch's clock does not start at 0, as no real one does.
        proxy_core::time::Instant::from_nanos(self.start.elapsed().as_nanos() as u64 + 1_000_000)
    }

    /// Puts a device behind a port and shows it to the host.
    pub(crate) fn plug(&mut self, port: PortId, mut device: Box<dyn Device>) {
        lengthen_timeout(&mut *device, self.start.elapsed());
        self.devices.insert(port, device);
        let (now, mut out) = (self.now(), Vec::new());
        self.switch.plug(now, port, &mut out);
        self.up.extend(out);
    }

    pub(crate) fn request_removal(&mut self, port: PortId) -> RemovalRequest {
        let (now, mut out) = (self.now(), Vec::new());
        let answer = self.switch.request_removal(now, port, &mut out);
        self.up.extend(out);
        answer
    }

    pub(crate) fn state(&self, port: PortId) -> PortState {
        self.switch.port_state(port)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Surprise(port) => {
                let (now, mut out) = (self.now(), Vec::new());
                self.switch.surprise_remove(now, port, &mut out);
                self.up.extend(out);
                self.devices.remove(&port);
                self.end_outstanding(port);
            }
            Action::Press(port) => {
                assert_eq!(self.request_removal(port), RemovalRequest::Pressed);
            }
        }
    }

    /// A device that the host let go of is reset, as its box would do.
    fn take_events(&mut self) {
        while let Some(event) = self.switch.poll_event() {
            if let SwitchEvent::LetGo { port, .. } = event
                && let Some(device) = self.devices.get_mut(&port)
            {
                device.handle_reset(self.start.elapsed(), ResetKind::HotReset);
            }
            self.events.push(event);
        }
    }

    /// What a device that is gone was asked is completed with Unsupported Request, as the proxy
    /// does it.
    fn end_outstanding(&mut self, gone: PortId) {
        let (ended, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.outstanding).into_iter().partition(|(port, ..)| *port == gone);
        self.outstanding = left;
        for (_, requester, tag) in ended {
            let completion = Repr::new(Kind::Completion {
                completer: Bdf::default(),
                requester,
                tag,
                status: CplStatus::UnsupportedRequest,
                bcm: false,
                byte_count: 4,
                lower_address: 0,
                locked: false,
                data: &[],
            });
            let mut buf = vec![0; completion.buffer_len()];
            completion.emit(&mut buf).unwrap();
            self.up.push_back(buf);
        }
    }

    /// Keeps account of the host's requests.
    fn account(&mut self, port: PortId, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).unwrap();
        let key = (port, packet.requester(), packet.tag());
        match packet.class() {
            Some(Class::NonPosted) => self.outstanding.push(key),
            // Several completions may belong to one read; the last one has all that is left.
            Some(Class::Completion)
                if packet.payload_len() == 0
                    || packet.payload_len() >= usize::from(packet.byte_count()) =>
            {
                self.outstanding.retain(|held| *held != key);
            }
            _ => {}
        }
    }

    fn down(&mut self, came: &[u8]) {
        let mut tlp = came.to_vec();
        let (now, mut out) = (self.now(), Vec::new());
        let verdict = self.switch.handle_downstream(now, &mut tlp, &mut out);
        self.up.extend(out);
        match verdict {
            DownstreamVerdict::Forward(port) => {
                if Packet::new_checked(&*tlp).unwrap().class() == Some(Class::NonPosted) {
                    self.account(port, &tlp);
                }
                self.hand(port, &tlp);
                let mut out = Vec::new();
                self.switch.forwarded(port, &Packet::known(came), &mut out);
                self.up.extend(out);
            }
            DownstreamVerdict::Broadcast => {
                let mut ports: Vec<PortId> = self.devices.keys().copied().collect();
                ports.retain(|port| self.switch.is_link_up(*port));
                for port in ports {
                    self.hand(port, &tlp);
                }
            }
            DownstreamVerdict::Consumed | DownstreamVerdict::Discarded(_) => {}
        }
        self.take_events();
    }

    /// Hands a TLP to a device, after it made room for it.
    fn hand(&mut self, port: PortId, tlp: &[u8]) {
        let class = Packet::new_checked(tlp).unwrap().class().unwrap();
        for _ in 0..100_000 {
            match self.devices.get(&port) {
                None => return,
                Some(device) if device.can_take(class) => break,
                Some(_) => self.turn(),
            }
        }
        let now = self.start.elapsed();
        if let Some(device) = self.devices.get_mut(&port) {
            assert!(device.can_take(class), "a device without room for long");
            device.handle_tlp(now, tlp);
        }
    }

    /// Everything that is due, once.
    fn turn(&mut self) {
        if let Some((when, action)) = self.at
            && Instant::now() >= when
        {
            self.at = None;
            self.act(action);
        }
        let (now, mut out) = (self.now(), Vec::new());
        if self.switch.poll_timeout().is_some_and(|timer| timer <= now) {
            self.switch.handle_timeout(now, &mut out);
            self.up.extend(out);
        }
        let ports: Vec<PortId> = self.devices.keys().copied().collect();
        for port in ports {
            for _ in 0..TURN {
                if !self.turn_device(port) {
                    break;
                }
            }
        }
        self.take_events();
    }

    /// Whether the device had something to send.
    fn turn_device(&mut self, port: PortId) -> bool {
        let mut buf = vec![0; MAX_TLP];
        let elapsed = self.start.elapsed();
        let Some(device) = self.devices.get_mut(&port) else { return false };
        if device.poll_timeout().is_some_and(|timer| timer <= elapsed) {
            device.handle_timeout(elapsed);
        }
        let Some(len) = device.poll_tlp(elapsed, &mut buf) else { return false };
        let tlp = &mut buf[..len];
        let (now, mut out, mut back) = (self.now(), Vec::new(), Vec::new());
        let verdict = self.switch.handle_upstream(now, port, tlp, &mut out, &mut back);
        self.up.extend(out);
        match verdict {
            UpstreamVerdict::ToRoot => {
                let tlp = tlp.to_vec();
                let packet = Packet::new_checked(&*tlp).unwrap();
                match packet.tlp_type() {
                    TlpType::MWr if packet.payload_len() <= 4 => {}
                    what @ (TlpType::MRd | TlpType::MWr) => self.dma.push((port, what)),
                    _ if packet.class() == Some(Class::Completion) => self.account(port, &tlp),
                    _ => {}
                }
                self.up.push_back(tlp);
            }
            UpstreamVerdict::ToPort(other) => self.hand(other, &buf[..len]),
            UpstreamVerdict::Consumed | UpstreamVerdict::Discarded(_) => {}
        }
        for answer in back {
            self.hand(port, &answer);
        }
        if let Some((left, action)) = &mut self.after_tlps {
            *left -= 1;
            let action = *action;
            if *left == 0 {
                self.after_tlps = None;
                self.act(action);
            }
        }
        true
    }
}

/// The root port above a [`Fabric`].
pub(crate) struct Switched(Rc<RefCell<Fabric>>);

impl TlpPort for Switched {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        self.0.borrow_mut().down(tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        let mut fabric = self.0.borrow_mut();
        loop {
            if let Some(tlp) = fabric.up.pop_front() {
                buf[..tlp.len()].copy_from_slice(&tlp);
                return Ok(Some(tlp.len()));
            }
            fabric.turn();
            if !fabric.up.is_empty() {
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let timers = fabric.devices.values().filter_map(|device| device.poll_timeout());
            rest(fabric.start, deadline, timers);
        }
    }
}

/// Waits that a test has the time for.
pub(crate) fn quick() -> HostConfig {
    let mut config = HostConfig::default();
    config.hot_plug.button_delay = Duration::from_millis(30);
    config.hot_plug.settle = Duration::from_millis(1);
    config.hot_plug.link_timeout = Duration::from_millis(200);
    config
}

/// A host above a switch with so many ports, enumerated.
pub(crate) fn host_and_switch(ports: u8) -> (ModelHost<Switched>, Rc<RefCell<Fabric>>) {
    host_above(SwitchConfig { ports, ..SwitchConfig::default() })
}

pub(crate) fn host_above(config: SwitchConfig) -> (ModelHost<Switched>, Rc<RefCell<Fabric>>) {
    let (port, fabric) = port_above(config);
    let mut host = ModelHost::new(port, quick()).unwrap();
    host.enumerate().unwrap();
    while let Some(event) = host.poll_event() {
        assert!(matches!(event, HostEvent::DeviceAdded { .. }), "{event:?}");
    }
    (host, fabric)
}

/// A root port above a switch.
pub(crate) fn port_above(config: SwitchConfig) -> (Switched, Rc<RefCell<Fabric>>) {
    let fabric = Rc::new(RefCell::new(Fabric {
        switch: VirtualSwitch::new(&config).unwrap(),
        devices: BTreeMap::new(),
        events: Vec::new(),
        after_tlps: None,
        at: None,
        outstanding: Vec::new(),
        dma: Vec::new(),
        up: VecDeque::new(),
        start: Instant::now(),
    }));
    (Switched(Rc::clone(&fabric)), fabric)
}
