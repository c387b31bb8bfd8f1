//! The network: a switch with cards at it, a DHCP server, and a manager's end of TCP. `tests/card` has it
//! between simulated cards (`tests/cost`).

use proxy_core::control::{
    CONTROL_VERSION, ControlError, Decoded, FromProxy, OperationId, PathAddress, Peer, Reply,
    Request, Term, ToProxy, Welcome, decode, encode,
};
use proxy_core::time::Instant;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv4Packet, Icmpv4Repr, IpCidr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr,
    UdpPacket, UdpRepr,
};
use soc::board::EthernetMac;
use soc::testing::WireMac;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::NodeId;

/// The manager and DHCP server.
pub(super) const SERVER: [u8; 4] = [10, 0, 2, 2];
pub(super) const PORT: u16 = 7781;
const SERVER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 0xfe]);

/// How long an address is leased: it is asked for again after half of that.
pub(super) const LEASE: Duration = Duration::from_secs(4);

/// Frames to and from the server's own stack.
#[derive(Default)]
struct Queues {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

struct Came(Vec<u8>);
struct Goes<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Came {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Goes<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Came;
    type TxToken<'a> = Goes<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Came, Goes<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Came(frame), Goes(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Goes<'_>> {
        Some(Goes(&mut self.outgoing))
    }
}

/// The manager's end of one card's connection.
struct Connection {
    socket: SocketHandle,
    /// Bytes that came and are no whole message yet, and those that have to go.
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
    /// Which card it is, and in which life, when it has said so.
    card: Option<usize>,
    incarnation: u32,
}

/// All of it.
pub(super) struct Net {
    cards: Vec<WireMac>,
    queues: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    answers: Vec<(OperationId, Result<Reply, ControlError>)>,
    next: u64,
    /// Hellos, leases, pongs, and frames of the fabric that went from one card to another.
    pub(super) joined: usize,
    pub(super) leases: usize,
    pub(super) pongs: usize,
    pub(super) carried: usize,
    /// Answers to echo requests: from which card, with which number, and what data.
    pub(super) echoes: Vec<(usize, u16, Vec<u8>)>,
    /// There is no DHCP server now.
    pub(super) leaseless: bool,
}

fn stack_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

impl Net {
    /// With these ends of the cards' wires; a card is called by its number.
    pub(super) fn new(now: Instant, cards: Vec<WireMac>) -> Self {
        let mut queues = Queues::default();
        let config = Config::new(SERVER_MAC.into());
        let mut interface = Interface::new(config, &mut queues, stack_time(now));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(Ipv4Address::from(SERVER).into(), 24);
            addresses.push(own).expect("there is room");
        });
        let storage = Box::leak(Box::new([const { smoltcp::iface::SocketStorage::EMPTY }; 4]));
        let mut sockets = SocketSet::new(&mut storage[..]);
        let buffer = || tcp::SocketBuffer::new(Box::leak(vec![0; 16384].into_boxed_slice()));
        let connections = cards
            .iter()
            .map(|_| Connection {
                socket: sockets.add(tcp::Socket::new(buffer(), buffer())),
                incoming: Vec::new(),
                outgoing: VecDeque::new(),
                card: None,
                incarnation: 0,
            })
            .collect();
        Self {
            cards,
            queues,
            interface,
            sockets,
            connections,
            answers: Vec::new(),
            next: 1,
            joined: 0,
            leases: 0,
            pongs: 0,
            carried: 0,
            echoes: Vec::new(),
            leaseless: false,
        }
    }

    /// Carries frames, and has manager and DHCP server do what is to be done.
    pub(super) fn turn(&mut self, now: Instant) {
        for from in 0..self.cards.len() {
            while let Some(frame) = self.cards[from].receive(|arrived| arrived.bytes.to_vec()) {
                self.switch(from, frame);
            }
        }
        self.interface.poll(stack_time(now), &mut self.queues, &mut self.sockets);
        self.talk();
        self.interface.poll(stack_time(now), &mut self.queues, &mut self.sockets);
        while let Some(frame) = self.queues.outgoing.pop_front() {
            self.deliver(&frame);
        }
    }

    fn switch(&mut self, from: usize, frame: Vec<u8>) {
        let header = EthernetFrame::new_checked(&frame[..]).expect("a card sends frames");
        let to = header.dst_addr();
        if u16::from(header.ethertype()) == tlp_codec::fabric::ETHERTYPE {
            self.carried += 1;
            return self.deliver(&frame);
        }
        if let Some(answer) = self.dhcp(from, &frame) {
            return self.deliver(&answer);
        }
        if let Some((number, data)) = echo_reply(&frame, address(from)) {
            return self.echoes.push((from, number, data));
        }
        assert!(to == SERVER_MAC || to.is_broadcast(), "{to}: cards have no IP for each other");
        self.queues.incoming.push_back(frame);
    }

    /// Gives a frame to the cards that it is for.
    fn deliver(&mut self, frame: &[u8]) {
        let to = EthernetFrame::new_unchecked(frame).dst_addr();
        for (number, card) in self.cards.iter_mut().enumerate() {
            if to.is_broadcast() || to.0 == mac(number) {
                card.transmit(frame.len(), |room| {
                    room.copy_from_slice(frame);
                    (frame.len(), ())
                });
            }
        }
    }

    /// A frame that nobody should send, to a card.
    pub(super) fn spoil(&mut self, to: usize, frame: &[u8]) {
        let sent = self.cards[to].transmit(frame.len(), |room| {
            room.copy_from_slice(frame);
            (frame.len(), ())
        });
        sent.expect("the wire has room");
    }

    /// The answer of the DHCP server, where a frame asks it.
    fn dhcp(&mut self, from: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let header = EthernetFrame::new_checked(frame).ok()?;
        if header.ethertype() != EthernetProtocol::Ipv4 {
            return None;
        }
        let ip = Ipv4Packet::new_checked(header.payload()).ok()?;
        if ip.next_header() != IpProtocol::Udp {
            return None;
        }
        let udp = UdpPacket::new_checked(ip.payload()).ok()?;
        let asked = DhcpPacket::new_checked(udp.payload()).ok()?;
        let asked = DhcpRepr::parse(&asked).ok()?;
        if self.leaseless {
            return None;
        }
        let message_type = match asked.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            DhcpMessageType::Request => DhcpMessageType::Ack,
            other => panic!("a card says {other:?}"),
        };
        self.leases += usize::from(message_type == DhcpMessageType::Ack);
        let server = Ipv4Address::from(SERVER);
        let answer = DhcpRepr {
            message_type,
            client_hardware_address: asked.client_hardware_address,
            transaction_id: asked.transaction_id,
            secs: 0,
            client_ip: asked.client_ip,
            your_ip: address(from),
            server_ip: server,
            router: Some(server),
            subnet_mask: Some(Ipv4Address::new(255, 255, 255, 0)),
            relay_agent_ip: Ipv4Address::UNSPECIFIED,
            broadcast: asked.broadcast,
            requested_ip: None,
            client_identifier: None,
            server_identifier: Some(server),
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: Some(LEASE.as_secs() as u32),
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let ports = UdpRepr { src_port: 67, dst_port: 68 };
        let ip = Ipv4Repr {
            src_addr: server,
            dst_addr: Ipv4Address::BROADCAST,
            next_header: IpProtocol::Udp,
            payload_len: ports.header_len() + answer.buffer_len(),
            hop_limit: 64,
        };
        Some(frame_to(from, &ip, |payload, checksums| {
            ports.emit(
                &mut UdpPacket::new_unchecked(payload),
                &server.into(),
                &Ipv4Address::BROADCAST.into(),
                answer.buffer_len(),
                |room| answer.emit(&mut DhcpPacket::new_unchecked(room)).expect("it has room"),
                checksums,
            );
        }))
    }

    fn talk(&mut self) {
        for connection in &mut self.connections {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(connection.socket);
            if !socket.is_open() {
                (connection.card, connection.incoming) = (None, Vec::new());
                connection.outgoing.clear();
                socket.listen(PORT).expect("it was closed");
            }
            if socket.can_recv() {
                let incoming = &mut connection.incoming;
                let take = |bytes: &mut [u8]| (bytes.len(), incoming.extend_from_slice(bytes));
                socket.recv(take).expect("it can");
            }
            while let Decoded::Message(message, used) =
                decode::<FromProxy>(&connection.incoming).expect("a card keeps the protocol")
            {
                connection.incoming.drain(..used);
                match message {
                    FromProxy::Hello(hello) => {
                        let card: usize = hello.name.parse().expect("cards have numbers");
                        (connection.card, connection.incarnation) = (Some(card), hello.incarnation);
                        self.joined += 1;
                        connection.say(&ToProxy::Welcome(Welcome {
                            version: CONTROL_VERSION,
                            node: node(card),
                            term: Term(1),
                        }));
                    }
                    FromProxy::Response { id, result } => self.answers.push((id, result)),
                    FromProxy::Pong => self.pongs += 1,
                    FromProxy::Event { .. } | FromProxy::Reset(_) => {}
                }
            }
            while socket.can_send()
                && let Some(byte) = connection.outgoing.pop_front()
            {
                socket.send_slice(&[byte]).expect("it can");
            }
        }
    }

    fn connection(&mut self, card: usize) -> &mut Connection {
        let connection = self.connections.iter_mut().find(|one| one.card == Some(card));
        connection.expect("the card has joined")
    }

    /// A card, as the other one is told of it.
    pub(super) fn peer(&mut self, card: usize) -> Peer {
        let path = PathAddress::Ethernet { mac: mac(card), vlan: None };
        let paths = [path].into_iter().collect();
        Peer { node: node(card), incarnation: self.incarnation(card), paths, mtu: 1500 }
    }

    /// The number of a card's life, as it has told it.
    pub(super) fn incarnation(&mut self, card: usize) -> u32 {
        self.connection(card).incarnation
    }

    /// Whether all cards have joined.
    pub(super) fn has_all(&self) -> bool {
        self.connections.iter().all(|connection| connection.card.is_some())
    }

    /// Asks a card for something.
    pub(super) fn ask(&mut self, card: usize, body: Request) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        self.connection(card).say(&ToProxy::Request { id, term: Term(1), body });
        id
    }

    /// The answer, once it came.
    pub(super) fn answer(&mut self, id: OperationId) -> Option<Result<Reply, ControlError>> {
        let at = self.answers.iter().position(|(of, _)| *of == id)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Asks a card for an echo (ICMP), by the address of the same card or of another one.
    pub(super) fn echo(&mut self, card: usize, addressed: usize, number: u16, data: &[u8]) {
        let request = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: number, data };
        let ip = Ipv4Repr {
            src_addr: SERVER.into(),
            dst_addr: address(addressed),
            next_header: IpProtocol::Icmp,
            payload_len: request.buffer_len(),
            hop_limit: 64,
        };
        let bytes = frame_to(card, &ip, |payload, checksums| {
            request.emit(&mut Icmpv4Packet::new_unchecked(payload), checksums);
        });
        self.deliver(&bytes);
    }

    /// Asks a card whether it still talks (the control protocol).
    pub(super) fn ping(&mut self, card: usize) {
        self.connection(card).say(&ToProxy::Ping);
    }

    /// Breaks all connections.
    pub(super) fn hang_up(&mut self) {
        for connection in &mut self.connections {
            self.sockets.get_mut::<tcp::Socket<'_>>(connection.socket).abort();
        }
    }
}

/// A frame of the server's to a card, whose packet's payload somebody writes.
fn frame_to(
    card: usize,
    ip: &Ipv4Repr,
    write: impl FnOnce(&mut [u8], &ChecksumCapabilities),
) -> Vec<u8> {
    let checksums = ChecksumCapabilities::default();
    let ethernet = EthernetRepr {
        src_addr: SERVER_MAC,
        dst_addr: EthernetAddress(mac(card)),
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut bytes = vec![0; ethernet.buffer_len() + ip.buffer_len() + ip.payload_len];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.emit(&mut frame);
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut packet, &checksums);
    write(packet.payload_mut(), &checksums);
    bytes
}

impl Connection {
    fn say(&mut self, message: &ToProxy) {
        let mut bytes = [0; 8192];
        self.outgoing.extend(encode(message, &mut bytes).expect("it is short"));
    }
}

/// Number and data of an answer to one of the server's echo requests, from this address and with right
/// checksums.
fn echo_reply(frame: &[u8], from: Ipv4Address) -> Option<(u16, Vec<u8>)> {
    let header = EthernetFrame::new_checked(frame).ok()?;
    if header.ethertype() != EthernetProtocol::Ipv4 || header.dst_addr() != SERVER_MAC {
        return None;
    }
    let checksums = ChecksumCapabilities::default();
    let ip = Ipv4Packet::new_checked(header.payload()).ok()?;
    let said = Ipv4Repr::parse(&ip, &checksums).ok()?;
    if said.next_header != IpProtocol::Icmp {
        return None;
    }
    assert_eq!((said.src_addr, said.dst_addr), (from, SERVER.into()));
    let packet = Icmpv4Packet::new_checked(ip.payload()).expect("a card sends whole packets");
    match Icmpv4Repr::parse(&packet, &checksums).expect("its checksum is right") {
        Icmpv4Repr::EchoReply { ident: IDENT, seq_no, data } => Some((seq_no, data.to_vec())),
        other => panic!("a card says {other:?}"),
    }
}

/// What the server's echo requests have in common.
const IDENT: u16 = 0x1dea;

/// A card's IP address.
fn address(card: usize) -> Ipv4Address {
    Ipv4Address::new(10, 0, 2, 20 + card as u8)
}

/// A card's address.
pub(super) fn mac(card: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, card as u8 + 1]
}

/// The number that the manager gives a card.
pub(super) fn node(card: usize) -> NodeId {
    NodeId::new(card as u16 + 1).expect("a small number")
}
