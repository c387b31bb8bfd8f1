//! The card's IP, and the stream to the manager on it.

use super::conversation::{Conversation, Heard};
use crate::board::EthernetMac;
use crate::log;
use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;
use proxy_core::control::{FromProxy, Hello};
use proxy_core::time::Instant;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{dhcpv4, tcp};
use smoltcp::wire::{DhcpPacket, EthernetAddress, IpAddress, IpCidr, Ipv4Address, Ipv4Cidr};

/// Bytes of the connection's buffers, in each direction: a long answer leaves in several pieces.
const STREAM_BUFFER: usize = 4096;

/// Largest Ethernet frame of the stack: an MTU of 1500 and its header.
const MAX_IP_FRAME: usize = 1514;

/// DHCP's option that names routers (RFC 2132, section 3.5).
const ROUTERS: u8 = 3;

/// A connection on which nothing is acknowledged for so long is gone.
const STREAM_BOUND: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(10);

/// First of the ports that connections are made from (RFC 6335, section 6: dynamic ports).
const FIRST_PORT: u16 = 49152;

/// The longest that the stack sleeps: what it has to do later it says itself.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The longest that what is due waits for room in the MAC's queue before it is looked for again: one
/// frame of 9000 bytes takes 7 us at 10 Gbit/s, and 7 ms at 10 Mbit/s.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// How the card gets its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// From a DHCP server (RFC 2131).
    Dhcp,
    /// A fixed one.
    Fixed {
        /// The address.
        address: [u8; 4],
        /// Length of the network's prefix in bits, at most 32.
        prefix: u8,
        /// Where other networks are reached.
        gateway: Option<[u8; 4]>,
    },
}

/// What the management needs to know.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// How the card gets its address.
    pub addressing: Addressing,
    /// The manager's address and port.
    pub manager: ([u8; 4], u16),
    /// Another number at each start, for ports and sequence numbers.
    pub seed: u64,
    /// What the card says of itself.
    pub hello: Hello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    None,
    Opening,
    Open,
}

/// Counts of the management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    frames: u64,
    lost: u64,
    streams: u64,
    leases: u64,
    lost_leases: u64,
}

/// IP and the conversation with the manager.
pub struct Management {
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    dhcp: Option<SocketHandle>,
    conversation: Conversation,
    manager: ([u8; 4], u16),
    stream: Stream,
    next_port: u16,
    /// A frame that arrived and was not looked at yet.
    pending: Option<usize>,
    frame: Box<[u8]>,
    /// When the stack has something to do.
    due: Instant,
    counts: Counts,
}

/// The MAC as the stack sees it: what arrives is the frame that was kept.
struct Wire<'a, M> {
    mac: &'a mut M,
    pending: &'a mut Option<usize>,
    frame: &'a [u8],
}

struct Received<'a>(&'a [u8]);
struct Sending<'a, M>(&'a mut M);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl<M: EthernetMac> TxToken for Sending<'_, M> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let sent = self.0.transmit(len, |room| (len, f(&mut room[..len])));
        sent.expect("there was room when the token was given")
    }
}

impl<M: EthernetMac> Device for Wire<'_, M> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sending<'b, M>
    where
        Self: 'b;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mac.max_frame().min(MAX_IP_FRAME);
        capabilities.max_burst_size = Some(1);
        capabilities
    }

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received<'_>, Sending<'_, M>)> {
        if !self.mac.can_transmit() {
            // What arrived may need an answer; it waits.
            return None;
        }
        let length = self.pending.take()?;
        Some((Received(&self.frame[..length]), Sending(self.mac)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Sending<'_, M>> {
        self.mac.can_transmit().then_some(Sending(self.mac))
    }
}

fn stack_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

impl Management {
    /// A stack on a MAC.
    ///
    /// # Panics
    ///
    /// When the prefix of a fixed address is longer than 32 bits, or the MAC's address is a
    /// group's.
    pub fn new<M: EthernetMac>(now: Instant, mac: &mut M, config: ManagementConfig) -> Self {
        let address = EthernetAddress(mac.address());
        let mut hardware = Config::new(address.into());
        hardware.random_seed = config.seed;
        let wire = &mut Wire { mac, pending: &mut None, frame: &[] };
        let mut interface = Interface::new(hardware, wire, stack_time(now));
        // The sockets live as long as the card is on.
        let storage = Box::leak(Box::new([SocketStorage::EMPTY; 2]));
        let mut sockets = SocketSet::new(&mut storage[..]);
        let buffer =
            || tcp::SocketBuffer::new(Box::leak(vec![0; STREAM_BUFFER].into_boxed_slice()));
        let mut stream = tcp::Socket::new(buffer(), buffer());
        stream.set_timeout(Some(STREAM_BOUND));
        stream.set_nagle_enabled(false);
        let tcp = sockets.add(stream);
        let dhcp = match config.addressing {
            Addressing::Dhcp => Some(sockets.add(dhcpv4::Socket::new())),
            Addressing::Fixed { address, prefix, gateway } => {
                let cidr = Ipv4Cidr::new(address.into(), prefix);
                set_address(&mut interface, Some((cidr, gateway.map(Into::into))));
                None
            }
        };
        let ports = u16::MAX - FIRST_PORT;
        Self {
            interface,
            sockets,
            tcp,
            dhcp,
            conversation: Conversation::new(config.hello),
            manager: config.manager,
            stream: Stream::None,
            next_port: FIRST_PORT + (config.seed % u64::from(ports)) as u16,
            pending: None,
            frame: vec![0; MAX_IP_FRAME].into_boxed_slice(),
            due: now,
            counts: Counts::default(),
        }
    }

    /// The conversation.
    pub fn conversation(&mut self) -> &mut Conversation {
        &mut self.conversation
    }

    /// Keeps a frame for the next [`turn`](Self::turn). One that comes before is lost, as on a
    /// wire: whoever sent it sends it again.
    pub fn handle_frame(&mut self, frame: &[u8]) {
        self.counts.frames += 1;
        // A DHCP server without an address could not be asked to renew a lease: the stack panics. Nobody
        // else without one has to say anything to a card.
        let from_nowhere = frame.get(26..30) == Some(&[0; 4]) && frame[12..14] == [8, 0];
        if from_nowhere || self.pending.is_some() || frame.len() > self.frame.len() {
            self.counts.lost += 1;
            return;
        }
        self.frame[..frame.len()].copy_from_slice(frame);
        self.pending = Some(frame.len());
    }

    /// Whether a frame waits for its [`turn`](Self::turn).
    pub fn holds_frame(&self) -> bool {
        self.pending.is_some()
    }

    /// When there is something to do.
    pub fn poll_timeout(&self) -> Instant {
        self.due.min(self.conversation.poll_timeout())
    }

    /// Moves what is to be moved. Whether there was anything.
    pub fn turn<M: EthernetMac>(&mut self, now: Instant, mac: &mut M) -> bool {
        // The stream of a conversation that has ended ends before another begins, however late this is.
        if self.stream == Stream::None || self.conversation.wants_stream() {
            self.conversation.handle_timeout(now);
        }
        // What does not fit the socket any more waits for an answer, which is a frame.
        let has_room = || self.sockets.get::<tcp::Socket<'_>>(self.tcp).can_send();
        let said =
            self.stream == Stream::Open && !self.conversation.outgoing().is_empty() && has_room();
        let changes = match (self.stream, self.conversation.wants_stream()) {
            (Stream::None, wanted) => wanted && self.can_dial(),
            (_, wanted) => !wanted,
        };
        if self.pending.is_none() && now < self.due && !said && !changes {
            return false;
        }
        if !mac.can_transmit() {
            // Nothing could be answered or sent. Whoever makes room wakes the card.
            self.due = self.due.max(now + ROOM_WAIT);
            return false;
        }
        self.drive_stream(now);
        self.poll_stack(now, mac);
        self.learn_address();
        // What just came, and what that was answered with.
        self.drive_stream(now);
        self.poll_stack(now, mac);
        true
    }

    /// Whether a connection can be begun: there is an address, and the last one's end is sent. Until then
    /// it is waited for, and the card sleeps.
    fn can_dial(&self) -> bool {
        let socket = self.sockets.get::<tcp::Socket<'_>>(self.tcp);
        self.interface.ipv4_addr().is_some() && !socket.is_open()
    }

    fn poll_stack<M: EthernetMac>(&mut self, now: Instant, mac: &mut M) {
        let Self { interface, sockets, pending, frame, .. } = self;
        let wire = &mut Wire { mac, pending, frame };
        interface.poll(stack_time(now), wire, sockets);
        let delay = interface.poll_delay(stack_time(now), sockets);
        let delay =
            delay.map_or(LONGEST_SLEEP, |delay| Duration::from_micros(delay.total_micros()));
        self.due = now + delay.min(LONGEST_SLEEP);
    }

    fn learn_address(&mut self) {
        let Some(dhcp) = self.dhcp else { return };
        match self.sockets.get_mut::<dhcpv4::Socket<'_>>(dhcp).poll() {
            None => {}
            Some(dhcpv4::Event::Configured(lease)) => {
                self.counts.leases += 1;
                let [a, b, c, d] = lease.address.address().octets();
                let prefix = lease.address.prefix_len();
                log!(info, "leased address {=u8}.{=u8}.{=u8}.{=u8}/{=u8}", a, b, c, d, prefix);
                let router = lease.router.or_else(|| first_router(&self.frame));
                set_address(&mut self.interface, Some((lease.address, router)));
            }
            Some(dhcpv4::Event::Deconfigured) => {
                // The stack says so, too, when it has had none yet.
                if self.interface.ipv4_addr().is_some() {
                    self.counts.lost_leases += 1;
                    log!(warn, "the leased address is lost: no DHCP server renews it");
                }
                set_address(&mut self.interface, None);
            }
        }
    }

    fn drive_stream(&mut self, now: Instant) {
        let can_dial = self.can_dial();
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.tcp);
        if !self.conversation.wants_stream() {
            if self.stream != Stream::None {
                socket.abort();
                self.stream = Stream::None;
            }
            return;
        }
        match self.stream {
            Stream::None => {
                if !can_dial {
                    return;
                }
                let (address, port) = self.manager;
                let address = Ipv4Address::from(address);
                let to = (IpAddress::Ipv4(address), port);
                self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
                let dialled = is_host(address)
                    && socket.connect(self.interface.context(), to, self.next_port).is_ok();
                if dialled {
                    self.stream = Stream::Opening;
                } else {
                    self.conversation.handle_closed(now);
                }
            }
            Stream::Opening => {
                if socket.may_send() {
                    self.stream = Stream::Open;
                    self.counts.streams += 1;
                    self.conversation.handle_open(now);
                    self.move_bytes(now);
                } else if !socket.is_active() {
                    self.conversation.handle_closed(now);
                    self.stream = Stream::None;
                    // The address may be another machine's by now: who has it is asked anew.
                    renew(&mut self.interface, None);
                }
            }
            Stream::Open => self.move_bytes(now),
        }
    }

    fn move_bytes(&mut self, now: Instant) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.tcp);
        while socket.can_recv() && !self.conversation.room().is_empty() {
            let got = socket.recv_slice(self.conversation.room());
            let Ok(got) = got else { panic!("it can") };
            self.conversation.handle_received(got);
        }
        while socket.can_send() && !self.conversation.outgoing().is_empty() {
            let sent = socket.send_slice(self.conversation.outgoing());
            let Ok(sent) = sent else { panic!("it can") };
            self.conversation.handle_sent(sent);
        }
        if !socket.may_recv() && !socket.can_recv() && !self.conversation.is_to_hear() {
            // The manager closed its end, or the connection is gone.
            socket.abort();
            self.stream = Stream::None;
            self.conversation.handle_closed(now);
        }
    }

    /// The next thing that the manager said.
    pub fn poll(&mut self, now: Instant) -> Option<Heard> {
        self.conversation.poll(now)
    }

    /// Says something to the manager; false when there is no room now.
    pub fn say(&mut self, message: &FromProxy) -> bool {
        self.conversation.say(message)
    }

    /// Whether all that was said has reached the manager's machine.
    pub fn is_acknowledged(&self) -> bool {
        let socket = self.sockets.get::<tcp::Socket<'_>>(self.tcp);
        self.conversation.outgoing().is_empty() && socket.send_queue() == 0
    }

    /// What was counted, by name.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        let counts = self.counts;
        [
            ("card: frames for its IP", counts.frames),
            ("card: frames for its IP that were lost", counts.lost),
            ("card: connections to the manager", counts.streams),
            ("card: addresses leased", counts.leases),
            ("card: leased addresses lost", counts.lost_leases),
        ]
    }
}

/// Forgets the addresses of neighbours, and changes its own if there is a new one, or to be none.
#[inline(never)]
fn renew(interface: &mut Interface, own: Option<Option<Ipv4Cidr>>) {
    interface.update_ip_addrs(|addresses| {
        let Some(own) = own else { return };
        addresses.clear();
        if let Some(own) = own {
            let pushed = addresses.push(IpCidr::Ipv4(own));
            assert!(pushed.is_ok(), "there is room");
        }
    });
}

/// The router that a server prefers, of the frame that brought the lease: it was the last that came. The
/// stack has found none when there are several.
fn first_router(frame: &[u8]) -> Option<Ipv4Address> {
    // Ethernet, IP with its options, UDP.
    let udp = 14 + 4 * usize::from(frame.get(14)? & 0xf);
    let message = DhcpPacket::new_checked(frame.get(udp + 8..)?).ok()?;
    let routers = message.options().find(|option| option.kind == ROUTERS)?;
    routers.data.first_chunk().map(|first| Ipv4Address::from_octets(*first))
}

/// Whether it is an address that one host can have. Who gives a card its settings, or a lease, is not to
/// be trusted: to send to no host, or from none, is a panic of the stack's.
fn is_host(address: Ipv4Address) -> bool {
    IpAddress::from(address).is_unicast()
}

fn set_address(interface: &mut Interface, address: Option<(Ipv4Cidr, Option<Ipv4Address>)>) {
    let address = address.filter(|(own, _)| is_host(own.address()));
    renew(interface, Some(address.map(|(own, _)| own)));
    match address.and_then(|(_, gateway)| gateway) {
        Some(gateway) if is_host(gateway) => {
            let added = interface.routes_mut().add_default_ipv4_route(gateway);
            assert!(added.is_ok(), "there is room");
        }
        unusable => {
            if unusable.is_some() {
                log!(warn, "the gateway is not used: no host has such an address");
            }
            interface.routes_mut().remove_default_ipv4_route();
        }
    }
}

#[cfg(test)]
mod tests;
