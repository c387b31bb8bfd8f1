//! Two cards with the firmware in them, wires that take a fixed time, a manager's end, devices and a root
//! complex: all in one thread and by one clock, which is the cards' instructions. So everything is the same
//! each time.

// Names and TLPs written short, and the network of another test: a switch, DHCP, and a manager's end of TCP.
#[path = "../../../../proxy-fw/core/tests/world/build.rs"]
#[allow(dead_code, unreachable_pub)] // not all of it is used here
pub(crate) mod build;
#[path = "../../../../proxy-fw/soc/tests/no_allocation/net.rs"]
#[allow(dead_code)] // not all of it is used here
mod net;

use crate::root::Root;
use anyhow::{Result, ensure};
use box_proxy::daemon::Seated;
use build::*;
use card::devices::Devices;
use card_image::{Header, Role};
use device_models::accelerator::{Accelerator, Config};
use emulated_card::firmware::Firmware;
use emulated_card::flash::CardFlash;
use net::{Net, mac};
use proxy_core::control::*;
use proxy_core::limits::MAX_FRAME;
use proxy_core::time::Instant;
use sim_card::card::{Board, Card, TICK_NANOS, Virt};
use soc::board::EthernetMac;
use soc::testing::WireMac;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// What a card counts, by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The cards, as they are numbered here, and their nodes.
pub(crate) const HOST_CARD: usize = 0;
pub(crate) const BOX_CARD: usize = 1;
const HOST: u16 = 1;
const BOX: u16 = 2;

/// The interfaces of a card: the fabric's, and the PCIe side's.
const FABRIC: usize = 0;
const SIDE: usize = 1;

/// Slots of the box, ports of the host.
const PLACES: u8 = 4;

/// How long a frame is on a wire.
const WIRE: u64 = ticks(Duration::from_micros(1));

/// How often the models look for what is to be done though no frame comes.
const LOOK: u64 = ticks(Duration::from_micros(500));

/// Turns of the devices at each look: the last of them finds nothing.
const TURNS: usize = 4;

/// What takes longer than this does not come.
const BOUND: Duration = Duration::from_secs(20);

/// Frames that a model's end of a wire has room for: more than ever wait there.
const ROOM: usize = 4096;

const fn ticks(time: Duration) -> u64 {
    time.as_nanos() as u64 / TICK_NANOS
}

/// A frame on a wire: when it arrives, which card's wire it is on and at which interface, and whether
/// it goes to the card.
struct Flight {
    arrives: u64,
    card: usize,
    interface: usize,
    to_card: bool,
    frame: Vec<u8>,
}

pub(crate) struct Lab {
    cards: [Card; 2],
    /// The models' ends of the cards' wires, by card and interface, from the wires' side.
    ends: [[WireMac; 2]; 2],
    /// In the order of their arrival.
    flights: VecDeque<Flight>,
    net: Net,
    devices: Devices<WireMac>,
    root: Root,
    now: u64,
    /// When the models looked last.
    looked: u64,
}

/// A card at the first instruction of its role's image, in memory already: a boot loader takes some hundred
/// million instructions to check the image's signature, of which nothing is counted here.
fn card(firmware: &Firmware, number: usize, role: Role) -> Result<Card> {
    let mut flash = CardFlash::new(&firmware.boot_loader())?;
    let ([a, b, c, d], port) = (net::SERVER, net::PORT);
    let text = format!("name = {number}\nmanager = {a}.{b}.{c}.{d}:{port}\nplaces = {PLACES}\n");
    flash.set_settings(&text)?;
    let [.., last] = mac(number);
    let mut card =
        Card::new().with_interface(FABRIC, mac(number)).with_interface(SIDE, [2, 0, 0, 0, 1, last]);
    card.board.nor(0).preload(0, flash.0.0.cells());
    let image = firmware.image(role)?;
    let header = Header::parse(&image)?;
    card.load(header.load, &image[image.len() - header.payload_len as usize..])?;
    card.hart.set_pc(header.entry);
    Ok(card)
}

/// The board, whose interfaces the wires are at.
fn board(card: &mut Card) -> &mut Virt {
    match &mut card.board {
        Board::Virt(board) => board,
        Board::Litex(_) => unreachable!("the cards are QEMU's machine"),
    }
}

impl Lab {
    /// Cards that have begun, with an accelerator in the box's first slot.
    pub(crate) fn new(firmware: &Firmware) -> Result<Self> {
        let cards = [card(firmware, HOST_CARD, Role::Host)?, card(firmware, BOX_CARD, Role::Box)?];
        let (fabric_0, net_0) = WireMac::pair(0xf0, 0xf1, ROOM);
        let (fabric_1, net_1) = WireMac::pair(0xf2, 0xf3, ROOM);
        let (side_0, root) = WireMac::pair(0xf4, 0xf5, ROOM);
        let (side_1, slots) = WireMac::pair(0xf6, 0xf7, ROOM);
        let seat = Seated {
            slot: slot(1),
            device: Box::new(Accelerator::device(Config::default())?),
            model: Name::try_from("accelerator")?,
        };
        Ok(Self {
            cards,
            ends: [[fabric_0, side_0], [fabric_1, side_1]],
            flights: VecDeque::new(),
            net: Net::new(Instant::ZERO, vec![net_0, net_1]),
            devices: Devices::new(slots, vec![seat]),
            root: Root::new(root),
            now: 0,
            looked: 0,
        })
    }

    /// Up to the next arrival of a frame, and no further than a frame could arrive that is sent meanwhile.
    fn step(&mut self) {
        let next = self.flights.front().map_or(u64::MAX, |flight| flight.arrives);
        let until = next.min(self.now + WIRE);
        let mut sent = Vec::new();
        for (number, card) in self.cards.iter_mut().enumerate() {
            card.run(until - self.now);
            for interface in [FABRIC, SIDE] {
                let frames = board(card).take_sent(interface);
                sent.extend(frames.into_iter().map(|(at, frame)| Flight {
                    arrives: at + WIRE,
                    card: number,
                    interface,
                    to_card: false,
                    frame,
                }));
            }
        }
        self.now = until;
        sent.sort_by_key(|flight| flight.arrives);
        self.flights.extend(sent);
        let mut arrived = false;
        while self.flights.front().is_some_and(|flight| flight.arrives <= self.now)
            && let Some(flight) = self.flights.pop_front()
        {
            arrived |= !flight.to_card;
            self.arrive(flight);
        }
        if arrived || self.now - self.looked >= LOOK {
            self.turn_models();
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { card, interface, to_card, frame, .. } = flight;
        if to_card {
            return board(&mut self.cards[card]).deliver(interface, frame);
        }
        let put = self.ends[card][interface].transmit(frame.len(), |room| {
            room.copy_from_slice(&frame);
            (frame.len(), ())
        });
        put.expect("a model's end has room");
    }

    /// Everything but the cards does what is to be done.
    fn turn_models(&mut self) {
        self.looked = self.now;
        let passed = Duration::from_nanos(self.now * TICK_NANOS);
        self.net.turn(Instant::ZERO + passed);
        for _ in 0..TURNS {
            self.devices.turn(passed);
        }
        self.root.turn();
        for (card, ends) in self.ends.iter_mut().enumerate() {
            for (interface, end) in ends.iter_mut().enumerate() {
                while let Some(frame) = end.receive(|arrived| arrived.bytes.to_vec()) {
                    let arrives = self.now + WIRE;
                    let to_card = true;
                    self.flights.push_back(Flight { arrives, card, interface, to_card, frame });
                }
            }
        }
    }

    /// Steps until something is there.
    pub(crate) fn until<R>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Self) -> Option<R>,
    ) -> R {
        let end = self.now + ticks(BOUND);
        while self.now < end {
            if let Some(found) = found(self) {
                return found;
            }
            self.step();
        }
        panic!("{what} does not come in {BOUND:?}: {}", self.consoles());
    }

    /// So long goes by.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + ticks(time);
        while self.now < end {
            self.step();
        }
    }

    /// What the boot loaders said, and the firmware, which is encoded.
    fn consoles(&mut self) -> String {
        let said = self.cards.iter_mut().map(|card| card.board.take_console());
        said.map(|said| String::from_utf8_lossy(&said).into_owned()).collect::<Vec<_>>().join("\n")
    }

    /// The root complex, for what it asks. What it has to send goes with the next turn.
    pub(crate) fn root<R>(&mut self, user: impl FnOnce(&mut Root) -> R) -> R {
        let result = user(&mut self.root);
        self.turn_models();
        result
    }

    /// The same, where nothing is asked.
    pub(crate) fn root_mut(&mut self) -> &mut Root {
        &mut self.root
    }

    fn ask(&mut self, card: usize, request: Request) -> Result<Reply> {
        let id = self.net.ask(card, request);
        Ok(self.until("an answer", |lab| lab.net.answer(id))?)
    }

    /// The cards know the manager, and each other; what is at their PCIe sides is there.
    pub(crate) fn join(&mut self) -> Result<()> {
        self.until("the cards' hello", |lab| lab.net.has_all().then_some(()));
        for (card, other) in [(0, 1), (1, 0)] {
            let peer = self.net.peer(other);
            self.ask(card, Request::SetPeer(peer))?;
        }
        // What is at the PCIe sides was heard of, too.
        self.pass(Duration::from_millis(100));
        Ok(())
    }

    /// The device becomes the host's, as an operating system sets it up.
    pub(crate) fn lend(&mut self) -> Result<()> {
        let key = key(1);
        self.ask(BOX_CARD, Request::BindSlot(slot_binding(key)))?;
        self.ask(HOST_CARD, Request::BindPort(port_binding(key)))?;
        // The link between the cards opens.
        self.pass(Duration::from_millis(100));
        Root::set_up(self)
    }

    /// What a card counts.
    pub(crate) fn counters(&mut self, card: usize) -> Result<Counters> {
        let (mut counters, mut from) = (Counters::new(), Some(0));
        while let Some(page) = from {
            let Reply::Counters { entries, next } =
                self.ask(card, Request::ReadCounters { from: page })?
            else {
                anyhow::bail!("counters are told in no other way");
            };
            counters.extend(entries.iter().map(|(name, value)| (name.as_str().to_owned(), *value)));
            from = next;
        }
        Ok(counters)
    }

    /// All of it went well: nothing was lost, and no card began anew.
    pub(crate) fn check(&mut self) -> Result<()> {
        for card in &mut self.cards {
            ensure!(card.resets() == 0, "a card began anew");
            ensure!(board(card).frames_lost() == 0, "a card had no room for a frame");
        }
        Ok(())
    }
}
