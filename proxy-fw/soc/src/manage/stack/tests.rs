//! The card's IP against a manager's.

mod dhcp;
mod ping;

use super::*;
use crate::testing::{WireMac, at_fixed_address};
use proxy_core::control::{
    CONTROL_VERSION, Decoded, Refused, Term, ToProxy, Welcome, decode, encode,
};
use std::vec::Vec;
use tlp_codec::ids::NodeId;

/// What a manager's machine is: an address, and a connection that it waits for.
struct Manager {
    mac: WireMac,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    frame: Vec<u8>,
}

impl Manager {
    fn new(mut mac: WireMac) -> Self {
        let address = EthernetAddress(mac.address());
        let wire = &mut Wire { mac: &mut mac, pending: &mut None, frame: &[] };
        let now = stack_time(Instant::ZERO);
        let mut interface = Interface::new(Config::new(address.into()), wire, now);
        let address = Ipv4Cidr::new(Ipv4Address::new(10, 0, 0, 1), 24);
        set_address(&mut interface, Some((address, None)));
        let mut sockets = SocketSet::new(&mut Box::leak(Box::new([SocketStorage::EMPTY]))[..]);
        let buffer = || tcp::SocketBuffer::new(&mut Box::leak(Box::new([0; 4096]))[..]);
        let tcp = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self { mac, interface, sockets, tcp, frame: Vec::new() }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }

    fn turn(&mut self, now: Instant) {
        if !self.socket().is_open() {
            self.socket().listen(7781).unwrap();
        }
        loop {
            let mut pending = self.mac.receive(|arrived| arrived.bytes.to_vec()).map(|frame| {
                self.frame = frame;
                self.frame.len()
            });
            let more = pending.is_some();
            let Self { mac, interface, sockets, frame, .. } = self;
            let wire = &mut Wire { mac, pending: &mut pending, frame };
            interface.poll(stack_time(now), wire, sockets);
            if !more {
                break;
            }
        }
    }

    /// The next message of the card, if it is there.
    fn hears(&mut self) -> Option<FromProxy> {
        let mut bytes = [0; 4096];
        let there = self.socket().peek_slice(&mut bytes).ok()?;
        let Ok(Decoded::Message(message, used)) = decode(&bytes[..there]) else { return None };
        self.socket().recv_slice(&mut bytes[..used]).unwrap();
        Some(message)
    }

    fn says(&mut self, message: &ToProxy) {
        let mut bytes = [0; 4096];
        let bytes = encode(message, &mut bytes).unwrap();
        assert_eq!(self.socket().send_slice(bytes), Ok(bytes.len()));
    }
}

/// A card, its manager, and the time.
struct Bench {
    manage: Management,
    mac: WireMac,
    manager: Manager,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let (manager, mut mac) = WireMac::pair(1, 2, 64);
        let now = Instant::ZERO + Duration::from_secs(1);
        let manage = Management::new(now, &mut mac, at_fixed_address());
        Self { manage, mac, manager: Manager::new(manager), now }
    }

    /// So long later, both look.
    fn turn(&mut self, later: Duration) {
        self.now = self.now + later;
        self.manager.turn(self.now);
        while !self.manage.holds_frame()
            && let Some(frame) = self.mac.receive(|arrived| arrived.bytes.to_vec())
        {
            self.manage.handle_frame(&frame);
            self.manage.turn(self.now, &mut self.mac);
        }
        self.manage.turn(self.now, &mut self.mac);
    }

    /// Turns until the manager is heard, or lost.
    fn heard(&mut self) -> Heard {
        for _ in 0..100 {
            self.turn(Duration::from_millis(10));
            if let Some(heard) = self.manage.poll(self.now) {
                return heard;
            }
        }
        panic!("nothing is heard");
    }

    /// Turns until the card has said hello.
    fn is_greeted(&mut self) -> bool {
        for _ in 0..100 {
            self.turn(Duration::from_millis(10));
            if let Some(said) = self.manager.hears() {
                assert!(matches!(said, FromProxy::Hello(_)), "{said:?}");
                return true;
            }
        }
        false
    }
}

#[test]
fn a_conversation_that_begins_late_has_a_stream_of_its_own() {
    let mut bench = Bench::new();
    assert!(bench.is_greeted());
    let welcome = ToProxy::Welcome(Welcome {
        version: CONTROL_VERSION,
        node: NodeId::new(4).unwrap(),
        term: Term(1),
    });
    bench.manager.says(&welcome);
    assert!(matches!(bench.heard(), Heard::Joined(_)));
    // The manager breaks the protocol, and the card is kept from its next turn for long.
    bench.manager.says(&welcome);
    assert!(matches!(bench.heard(), Heard::Lost(_)));
    bench.turn(Duration::from_millis(500));
    assert!(bench.is_greeted(), "on a stream of its own");
    assert_eq!(bench.manage.counters()[2], ("card: connections to the manager", 2));
}

/// Settings of another program than `dxpu-flash`. The card goes on, and says that it finds no manager.
#[test]
fn an_address_that_is_no_hosts_is_no_panic() {
    let (card, manager) = ([10, 0, 0, 2], [10, 0, 0, 1]);
    for nobody in [[0; 4], [255; 4], [224, 0, 0, 1]] {
        for (address, gateway, manager, reaches) in [
            (card, Some(nobody), manager, true),
            (card, Some(nobody), [192, 0, 2, 1], false),
            (nobody, None, manager, false),
            (card, None, nobody, false),
            (card, Some(manager), nobody, false),
        ] {
            let mut bench = Bench::new();
            let addressing = Addressing::Fixed { address, prefix: 24, gateway };
            let config =
                ManagementConfig { addressing, manager: (manager, 7781), ..at_fixed_address() };
            bench.manage = Management::new(bench.now, &mut bench.mac, config);
            assert_eq!(bench.is_greeted(), reaches, "{address:?} {gateway:?} {manager:?}");
        }
    }
}

/// It says why and hangs up, and the card looks at both in one turn.
#[test]
fn who_is_refused_knows_why() {
    let mut bench = Bench::new();
    assert!(bench.is_greeted());
    let reason = "the name is taken".try_into().unwrap();
    bench.manager.says(&ToProxy::Refused(Refused { reason }));
    bench.manager.socket().close();
    let Heard::Lost(why) = bench.heard() else { panic!("it is not lost") };
    assert_eq!(why.brief(), "it refuses this card");
    // One that hangs up in the middle of a word has said nothing.
    assert!((0..50).any(|_| bench.is_greeted()));
    assert_eq!(bench.manager.socket().send_slice(&[9, 0, 0]), Ok(3));
    bench.manager.socket().close();
    let why = (0..100).find_map(|_| {
        bench.turn(Duration::from_millis(100));
        bench.manage.poll(bench.now)
    });
    let Some(Heard::Lost(why)) = why else { panic!("it goes on: {why:?}") };
    assert_eq!(why.brief(), "no answer, or no address");
}

#[test]
fn a_card_sleeps_while_what_it_says_has_no_room() {
    let mut bench = Bench::new();
    assert!(bench.is_greeted());
    let version = CONTROL_VERSION;
    let welcome = Welcome { version, node: NodeId::new(4).unwrap(), term: Term(1) };
    bench.manager.says(&ToProxy::Welcome(welcome));
    assert!(matches!(bench.heard(), Heard::Joined(_)));
    // The manager's machine answers nothing, until the connection takes no more.
    let Bench { manage, mac, now, .. } = &mut bench;
    let said = (0..10_000).find(|_| !manage.say(&FromProxy::Pong) && !manage.turn(*now, mac));
    assert!(said.is_some(), "it always finds something to do");
    assert!(manage.poll_timeout() > *now);
    // Nor does the network take frames, and one waits that would have to be answered.
    while mac.transmit(60, |room| (room.len(), ())).is_some() {}
    *now = *now + Duration::from_secs(2);
    manage.handle_frame(&[0xff; 60]);
    assert!(!manage.turn(*now, mac) && manage.holds_frame());
    assert!(manage.poll_timeout() > *now);
    // With room all of it goes on.
    for _ in 0..100 {
        bench.turn(Duration::from_millis(10));
        while bench.manager.hears().is_some() {}
    }
    assert!(!bench.manage.holds_frame() && bench.manage.is_acknowledged());
}
