//! A card among parts that fail and lie.

mod explained;
mod watch;

use super::*;
use crate::board::{Arrived, Happening, MacCounters, PcieSide, PlaceState, Places, SlotWire};
use crate::records::{Beside, Body, RecordPort, Windows};
use crate::testing::{WireMac, at_fixed_address};
use proptest::prelude::*;
use proxy_core::boxes::SlotSignal;
use proxy_core::control::{CONTROL_VERSION, LogLevel, Term};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::link::ClassSet;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use tlp_codec::tlp::Class;

const WINDOWS: Windows = Windows([8, 2, 4]);

/// A MAC whose link can be pulled.
struct TestMac {
    wire: WireMac,
    link: bool,
}

impl EthernetMac for TestMac {
    fn address(&self) -> [u8; 6] {
        self.wire.address()
    }

    fn link_is_up(&mut self) -> bool {
        self.link
    }

    fn max_frame(&self) -> usize {
        self.wire.max_frame()
    }

    fn has_arrived(&mut self) -> bool {
        self.wire.has_arrived()
    }

    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R> {
        self.wire.receive(sink)
    }

    fn can_transmit(&mut self) -> bool {
        self.wire.can_transmit()
    }

    fn transmit<R>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        self.wire.transmit(room, fill)
    }

    fn counters(&self) -> MacCounters {
        self.wire.counters()
    }
}

/// The card's side of its root complex, which may have more to say whenever it is looked at.
struct TestPcie {
    port: RecordPort<WireMac>,
    root: Rc<RefCell<RecordPort<WireMac>>>,
    /// Writes that come at each look, and how many came.
    each: usize,
    came: usize,
}

impl PcieSide for TestPcie {
    fn happening(&mut self) -> Option<Happening> {
        let mut root = self.root.borrow_mut();
        for _ in 0..self.each {
            root.look();
            assert_eq!(root.room(SlotWire::HOST), ClassSet::ALL, "the card keeps up");
            root.send(SlotWire::HOST, &[0x40, 0, 0, 1, 0, 0, 0, 0x0f, 0, 0, 0, 0, 1, 2, 3, 4]);
            self.came += 1;
        }
        self.port.happening()
    }

    fn has_more(&self) -> bool {
        self.port.has_more()
    }

    fn next(&mut self, at: SlotWire, of: ClassSet) -> Option<&[u8]> {
        self.port.next(at, of)
    }

    fn take(&mut self, at: SlotWire) {
        self.port.take(at);
    }

    fn room(&mut self, at: SlotWire) -> ClassSet {
        self.port.room(at)
    }

    fn send_with(&mut self, at: SlotWire, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.port.send_with(at, write)
    }

    fn can_signal(&mut self, at: SlotWire) -> bool {
        self.port.can_signal(at)
    }

    fn signal(&mut self, at: SlotWire, signal: SlotSignal) {
        self.port.signal(at, signal);
    }

    fn stands_still(&mut self) -> bool {
        self.port.stands_still()
    }
}

std::thread_local! {
    /// Soon the count begins anew.
    static CYCLES: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX - 100) };
}

struct TestBoard {
    now: Instant,
    mac: TestMac,
    pcie: TestPcie,
    fed: u32,
    clock_failed: u32,
    /// What it was asked of its firmware, and how often it was told to start anew.
    asked: Vec<FirmwareRequest>,
    restarted: u32,
    /// What was at the card's places when it was shown last.
    shown: Vec<(SlotWire, PlaceState)>,
}

impl Board for TestBoard {
    type Mac = TestMac;
    type Pcie = TestPcie;

    fn now(&mut self) -> Instant {
        self.now
    }

    fn mac(&mut self) -> &mut TestMac {
        &mut self.mac
    }

    fn pcie(&mut self) -> &mut TestPcie {
        &mut self.pcie
    }

    fn feed_watchdog(&mut self) {
        self.fed += 1;
    }

    fn stack_used(&mut self) -> Option<u64> {
        None
    }

    fn temperature(&mut self) -> Option<i32> {
        Some(-250)
    }

    fn counters(&mut self) -> impl Iterator<Item = (&'static str, u64)> {
        [("board: turns that fed the watchdog", self.fed.into())].into_iter()
    }

    fn show(&mut self, _now: Instant, places: impl FnOnce() -> Places) {
        self.shown = places().to_vec();
    }

    fn clock_failed(&mut self) {
        self.clock_failed += 1;
    }

    fn joined(&mut self) {}

    fn firmware(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError> {
        self.asked.push(request.clone());
        match request {
            FirmwareRequest::Piece { offset, bytes } => {
                Ok(FirmwareAnswer::Next(offset + bytes.len() as u32))
            }
            FirmwareRequest::Status => Err(ControlError::NoFirmware),
            _ => Ok(FirmwareAnswer::Done),
        }
    }

    fn restart(&mut self) {
        self.restarted += 1;
    }

    fn idle(&mut self, until: Instant) -> u32 {
        self.now = until;
        Self::cycles()
    }

    /// A cycle between any two looks.
    fn cycles() -> u32 {
        CYCLES.with(|count| count.replace(count.get().wrapping_add(1)))
    }
}

/// A host card, its root complex, and the other end of its network.
struct Bench<R = HostRole> {
    card: Card<R>,
    board: TestBoard,
    root: Rc<RefCell<RecordPort<WireMac>>>,
    net: WireMac,
}

impl Bench {
    /// The network has room for so many frames.
    fn new(room: usize) -> Self {
        Self::with(HostRole::new(&HostConfig::default()).unwrap(), room)
    }
}

impl<R: CardRole> Bench<R> {
    /// The same with another role.
    fn with(role: R, room: usize) -> Self {
        let (net, wire) = WireMac::pair(1, 2, room);
        let (root, side) = WireMac::pair(3, 4, 64);
        let mut mac = TestMac { wire, link: true };
        let now = Instant::ZERO + Duration::from_secs(1);
        let manage = Management::new(now, &mut mac, at_fixed_address());
        let resets = ResetCounts::default();
        let config = CardConfig { vlan: None, max_frame: 1500, reset: None, resets };
        let root = Rc::new(RefCell::new(RecordPort::new(root, 0..=0, WINDOWS)));
        let port = RecordPort::new(side, 0..=0, WINDOWS);
        let pcie = TestPcie { port, root: root.clone(), each: 0, came: 0 };
        let (fed, clock_failed, asked, restarted, shown) = (0, 0, Vec::new(), 0, Vec::new());
        let board = TestBoard { now, mac, pcie, fed, clock_failed, asked, restarted, shown };
        let card = Card::new(role, manage, config);
        Self { card, board, root, net }
    }

    /// One turn, a little later than the last.
    fn turn(&mut self) {
        self.board.now = self.board.now + Duration::from_micros(10);
        self.card.turn(&mut self.board);
        self.root.borrow_mut().look();
    }

    /// The root complex says something.
    fn say(&mut self, body: Body<'_>) {
        assert!(self.root.borrow_mut().say(SlotWire::HOST, body));
    }

    /// The answers to one configuration read of the card's own function, and how they end.
    fn configuration_read(&mut self, tag: u8) -> Vec<Vec<u8>> {
        let read = [0x04, 0, 0, 1, 0, 0, tag, 0x0f, 0, 0, 0, 0];
        let room = self.root.borrow_mut().room(SlotWire::HOST);
        assert_eq!(room, ClassSet::ALL, "the card takes it");
        self.root.borrow_mut().send(SlotWire::HOST, &read);
        let mut answers = Vec::new();
        for _ in 0..10 {
            self.turn();
            let mut root = self.root.borrow_mut();
            while let Some(answer) = root.next(SlotWire::HOST, ClassSet::ALL) {
                answers.push(answer.to_vec());
                root.take(SlotWire::HOST);
            }
        }
        answers
    }
}

#[test]
fn progress_feeds_the_watchdog() {
    let mut bench = Bench::new(64);
    for _ in 0..100 {
        bench.turn();
    }
    assert_eq!((bench.board.fed, bench.board.clock_failed), (100, 0));
}

#[test]
fn each_turn_shows_what_is_at_the_places() {
    let mut bench = Bench::new(64);
    for _ in 0..8 {
        bench.turn();
    }
    assert_eq!(bench.board.shown, [(SlotWire::HOST, PlaceState::Empty)]);
    bench.say(Body::Beside(Beside::RootComplex(true)));
    bench.turn();
    assert_eq!(bench.board.shown, [(SlotWire::HOST, PlaceState::Free)]);
}

#[test]
fn what_a_board_counts_is_reported_with_the_rest() {
    let mut bench = Bench::new(64);
    bench.turn();
    let counters = bench.card.surroundings(&mut bench.board);
    assert!(counters.contains(&("board: turns that fed the watchdog", 1)), "{counters:?}");
    assert!(counters.contains(&("card: temperature in millikelvins", 272_900)), "{counters:?}");
}

#[test]
fn cycles_are_counted_by_stage_and_begin_anew_behind_the_last_number() {
    let mut bench = Bench::new(64);
    let begin = TestBoard::cycles();
    for _ in 0..50 {
        bench.turn();
    }
    let all = TestBoard::cycles().wrapping_sub(begin);
    let counters: Vec<_> = bench.card.cycles.counters().map(|(_, value)| value).collect();
    let [stages @ .., turns, answer] = &counters[..] else { panic!("{counters:?}") };
    // A cycle at each look; the first of a turn is none of its own.
    assert_eq!((*turns, u64::from(all) - 1), (50, stages.iter().sum::<u64>() + 50));
    assert_eq!(*answer, 0, "nothing woke it");
    assert!(all > 100, "it went past the last number");

    let woken = bench.board.idle(bench.board.now);
    bench.card.cycles.woken(woken);
    bench.turn();
    bench.turn();
    let answer = bench.card.cycles.counters().last().unwrap().1;
    assert!((1..10).contains(&answer), "{answer}");
}

#[test]
fn what_is_asked_of_the_firmware_goes_to_the_board_if_the_term_is_right() {
    let mut bench = Bench::new(64);
    let now = bench.board.now;
    let mut ask = |term, request| {
        let Bench { card, board, .. } = &mut bench;
        let answer = card.see_to_firmware(now, board, Term(term), &request);
        (answer, card.restart)
    };
    let bytes = [1, 2, 3].into_iter().collect();
    let piece = FirmwareRequest::Piece { offset: 512, bytes };
    assert_eq!(ask(5, piece.clone()), (Ok(FirmwareAnswer::Next(515)), None));
    assert_eq!(ask(4, piece), (Err(ControlError::StaleTerm(Term(5))), None));
    let no = Err(ControlError::NoFirmware);
    assert_eq!(ask(5, FirmwareRequest::Status), (no, None));
    let restart = |incarnation| FirmwareRequest::Restart { incarnation };
    assert_eq!(ask(5, restart(2)), (Ok(FirmwareAnswer::Done), None), "another life");
    let at = Some(now + GOODBYE);
    assert_eq!(ask(5, restart(1)), (Ok(FirmwareAnswer::Done), at));
    assert_eq!(bench.board.asked.len(), 4);
    while bench.board.now < now + GOODBYE {
        assert_eq!(bench.board.restarted, 0, "it has time for its answer");
        bench.turn();
    }
    assert!(bench.board.restarted > 0);
}

#[test]
fn a_clock_that_stands_still_is_noticed() {
    let mut bench = Bench::new(64);
    bench.turn();
    let fed = bench.board.fed;
    for _ in 0..STANDSTILL {
        bench.card.turn(&mut bench.board);
    }
    assert_eq!((bench.board.fed, bench.board.clock_failed), (fed, 1));
    // It was only a long moment.
    bench.turn();
    assert_eq!(bench.board.fed, fed + 1);
}

#[test]
fn a_clock_that_goes_back_moves_nothing_back() {
    let mut bench = Bench::new(64);
    for _ in 0..10 {
        bench.turn();
    }
    let (before, fed) = (bench.board.now, bench.board.fed);
    bench.board.now = Instant::ZERO;
    for _ in 0..10 {
        bench.turn();
    }
    assert_eq!(bench.card.latest, before);
    assert_eq!((bench.board.fed, bench.card.counts.clock_back), (fed, 10));
    // Where it stays behind, the card starts anew.
    for _ in 0..STANDSTILL {
        bench.turn();
    }
    assert_eq!(bench.board.clock_failed, 1);
    // It goes on from where it was.
    bench.board.now = before;
    bench.turn();
    assert_eq!(bench.board.fed, fed + 1);
}

#[test]
fn a_mac_that_takes_nothing_is_no_progress_unless_its_link_is_down() {
    let mut bench = Bench::new(0);
    let pass = |bench: &mut Bench, time: Duration| {
        bench.board.now = bench.board.now + time;
        bench.turn();
    };
    pass(&mut bench, Duration::ZERO);
    pass(&mut bench, STUCK);
    let fed = bench.board.fed;
    assert!(fed > 0, "it may take a while");
    pass(&mut bench, STUCK);
    assert_eq!(bench.board.fed, fed);
    bench.board.mac.link = false;
    pass(&mut bench, STUCK);
    assert_eq!(bench.board.fed, fed + 1, "without a partner that is so");
}

#[test]
fn a_root_complex_that_resets_in_the_middle_of_a_tlp_is_served_again() {
    let mut bench = Bench::new(64);
    for _ in 0..8 {
        bench.turn();
    }
    assert!(bench.root.borrow().is_met());
    bench.say(Body::Beside(Beside::RootComplex(true)));
    bench.turn();
    let whole = bench.configuration_read(1);
    assert_eq!(whole.len(), 1, "{whole:02x?}");
    for cut in 1..12 {
        let read = [0x04, 0, 0, 1, 0, 0, 2, 0x0f, 0, 0, 0, 0];
        // What was there of it when PERST# came.
        bench.say(Body::Tlp(&read[..cut]));
        bench.say(Body::Beside(Beside::Reset(SlotSignal::Perst { asserted: true })));
        for _ in 0..10 {
            bench.turn();
            let answer = bench.root.borrow_mut().next(SlotWire::HOST, ClassSet::ALL).map(drop);
            assert_eq!(answer, None, "cut at {cut}");
        }
        let again = bench.configuration_read(1);
        assert_eq!(again, whole, "cut at {cut}");
    }
    assert_eq!(bench.board.clock_failed, 0);
}

#[test]
fn a_turn_goes_on_with_a_stream_but_holds_one_tlp_alone_up_for_nothing() {
    let mut bench = Bench::new(64);
    for _ in 0..8 {
        bench.turn();
    }
    bench.say(Body::Beside(Beside::RootComplex(true)));
    bench.turn();
    for (each, in_a_turn) in [(0, 0), (1, 1), (2, 8)] {
        (bench.board.pcie.each, bench.board.pcie.came) = (each, 0);
        bench.turn();
        assert_eq!(bench.board.pcie.came, in_a_turn, "{each} at each look");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Frames of lengths that no frame has, with headers that are right and with others.
    #[test]
    fn frames_of_any_length_are_taken(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..80), 0_usize..4000, 0_usize..4),
            1..20,
        ),
    ) {
        let mut bench = Bench::new(64);
        let own = bench.board.mac.address();
        for (mut bytes, longer, kind) in frames {
            bytes.resize(bytes.len() + longer, 0x5a);
            let ethertype = [[0x88, 0xb5], [0x08, 0], [0x08, 0x06], [0x81, 0]][kind];
            for (at, byte) in own.into_iter().chain([0; 6]).chain(ethertype).enumerate() {
                if let Some(there) = bytes.get_mut(at) {
                    *there = byte;
                }
            }
            let sent = bench.net.transmit(bytes.len(), |room| {
                room.copy_from_slice(&bytes);
                (bytes.len(), ())
            });
            prop_assert!(sent.is_some());
            bench.turn();
        }
        let fed = bench.board.fed;
        bench.turn();
        prop_assert_eq!(bench.board.fed, fed + 1);
    }
}
