//! What a proxy tells a manager that was not there: of a host with many boxes and several paths.

use crate::world::{HOST, key, node, peer, port, port_binding};
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{
    Event, FromProxy, OperationId, PathAddress, Peer, PortBinding, Request, Term,
};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::{EVENT_QUEUE, MAX_FRAME};
use proxy_core::link::LinkConfig;
use proxy_core::role::Role;
use proxy_core::switch::SwitchConfig;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::PathId;

/// A host and boxes around it, node 2 and on.
struct Star {
    host: HostRole,
    boxes: Vec<BoxRole>,
    now: Instant,
    /// By this path nothing of the host's arrives.
    dead: Option<PathId>,
    sequence: u64,
    /// What the host told, not looked at yet.
    told: Vec<Event>,
}

impl Star {
    /// With all links up and nothing bound, and everything told.
    fn new(boxes: usize, paths: usize) -> Self {
        let link = LinkConfig { paths, ..LinkConfig::default() };
        let switch = SwitchConfig { ports: boxes as u8, ..SwitchConfig::default() };
        let config = HostConfig { switch, link, peers: boxes, ..HostConfig::default() };
        let mut host = HostRole::new(&config).unwrap();
        host.set_node(node(HOST));
        let made = |index| {
            let mut role =
                BoxRole::new(&BoxConfig { link, peers: 1, slots: 1, ..BoxConfig::default() });
            role.set_node(box_node(index));
            role
        };
        let boxes: Vec<_> = (0..boxes).map(made).collect();
        let now = Instant::from_nanos(1_000_000);
        let mut star = Self { host, boxes, now, dead: None, sequence: 0, told: Vec::new() };
        let address = |path| PathAddress::Udp4 { ip: [127, 0, 0, 1], port: path as u16 };
        let met = |met| Peer { paths: (0..paths).map(address).collect(), ..met };
        for index in 0..star.boxes.len() {
            star.ask(&Request::SetPeer(met(peer(box_node(index).get(), 1))));
            let host = Request::SetPeer(met(peer(HOST, 1)));
            star.boxes[index].handle_control(star.now, OperationId(1), Term(1), &host);
        }
        star.run(Duration::from_millis(100));
        star.events();
        star
    }

    /// Something for the host, whose answer does not matter.
    fn ask(&mut self, request: &Request) {
        self.host.handle_control(self.now, OperationId(1), Term(1), request);
        self.hear();
    }

    fn bind_all(&mut self) {
        for index in 0..self.boxes.len() {
            let port = port(index as u8);
            let binding = PortBinding { port, box_node: box_node(index), ..port_binding(key(1)) };
            self.ask(&Request::BindPort(binding));
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut buf = vec![0; MAX_FRAME];
        while self.now < end {
            let mut busy = true;
            while std::mem::take(&mut busy) {
                while let Some(out) = self.host.poll_transmit(self.now, &mut buf) {
                    busy = true;
                    let to = usize::from(out.peer.get() - HOST - 1);
                    if self.dead != Some(out.path) {
                        self.boxes[to].handle_frame(self.now, &buf[..out.len]);
                    }
                }
                for index in 0..self.boxes.len() {
                    while let Some(out) = self.boxes[index].poll_transmit(self.now, &mut buf) {
                        busy = true;
                        self.host.handle_frame(self.now, &buf[..out.len]);
                        self.hear();
                    }
                    while self.boxes[index].poll_control().is_some() {}
                }
            }
            self.hear();
            let timers = self.boxes.iter().filter_map(Role::poll_timeout);
            let next = timers.chain(self.host.poll_timeout()).min().unwrap_or(end);
            self.now = next.max(self.now + Duration::from_micros(1)).min(end);
            self.host.handle_timeout(self.now);
            self.boxes.iter_mut().for_each(|role| role.handle_timeout(self.now));
        }
    }

    /// Takes what the host has to tell, of which nothing is missing.
    fn hear(&mut self) {
        while let Some(message) = self.host.poll_control() {
            let FromProxy::Event { sequence, event } = message else { continue };
            assert_eq!(sequence, self.sequence, "before {event:?}");
            self.sequence += 1;
            self.told.push(event);
        }
    }

    /// What the host told since the last call.
    fn events(&mut self) -> Vec<Event> {
        self.hear();
        std::mem::take(&mut self.told)
    }
}

fn box_node(index: usize) -> tlp_codec::ids::NodeId {
    node(HOST + 1 + index as u16)
}

fn path(index: u8) -> PathId {
    PathId::new(index).unwrap()
}

#[test]
fn who_joins_is_told_of_all_paths() {
    let mut star = Star::new(1, 2);
    let peer = box_node(0);
    star.bind_all();
    star.run(Duration::from_millis(100));
    assert!(star.events().contains(&Event::PathFound { peer, path: path(1) }));
    star.dead = Some(path(1));
    star.run(Duration::from_secs(1));
    let lost = || Event::PathLost { peer, path: path(1) };
    assert_eq!(star.events(), [lost()]);
    star.host.control_reconnected();
    assert_eq!(star.events(), [Event::PathFound { peer, path: path(0) }, lost()]);
    star.run(Duration::from_secs(1));
    assert_eq!(star.events(), [], "once");
}

#[test]
fn a_path_that_was_never_tried_is_told_when_it_was() {
    for dead in [None, Some(path(1))] {
        let mut star = Star::new(1, 2);
        let peer = box_node(0);
        star.dead = dead;
        star.host.control_reconnected();
        star.run(Duration::from_secs(1));
        assert_eq!(star.events(), [Event::PathFound { peer, path: path(0) }]);
        star.bind_all();
        star.run(Duration::from_secs(1));
        let of_paths =
            |event: &Event| matches!(event, Event::PathFound { .. } | Event::PathLost { .. });
        let told: Vec<_> = star.events().into_iter().filter(of_paths).collect();
        let path = path(1);
        match dead {
            None => assert_eq!(told, [Event::PathFound { peer, path }]),
            Some(_) => assert_eq!(told, [Event::PathLost { peer, path }]),
        }
    }
}

#[test]
fn paths_that_are_told_push_nothing_out() {
    let (boxes, paths) = (17, 4);
    assert!(boxes * paths > EVENT_QUEUE);
    let mut star = Star::new(boxes, paths);
    star.bind_all();
    star.run(Duration::from_secs(1));
    star.events();
    star.host.control_reconnected();
    star.host.set_root_complex(true);
    star.ask(&Request::ReadTable { from: 0 });
    let events = star.events();
    assert_eq!(events[0], Event::RootComplex { present: true });
    let each = |index| (0..paths as u8).map(move |path| (box_node(index), path));
    let all = (0..boxes).flat_map(each).map(|(peer, index)| (peer, path(index)));
    let found: Vec<_> = all.map(|(peer, path)| Event::PathFound { peer, path }).collect();
    assert_eq!(events[1..], found);
}
