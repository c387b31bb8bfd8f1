//! A PCIe side that hangs, and one that only waits.

use super::*;
use crate::card::progress::BOUND;
use proxy_core::control::{OperationId, PathAddress, Request};
use proxy_core::role::{Outgoing, Role};
use tlp_codec::ids::NodeId;

/// Time between two turns of a card that has nothing to do.
const STEP: Duration = Duration::from_millis(10);

impl<R: CardRole> Bench<R> {
    /// Turns for so long; whether each turn fed the watchdog.
    fn is_fed_for(&mut self, time: Duration) -> bool {
        let (until, mut all) = (self.board.now + time, true);
        while self.board.now < until {
            let fed = self.board.fed;
            self.board.now = self.board.now + STEP;
            self.turn();
            all &= self.board.fed == fed + 1;
        }
        all
    }

    /// A root complex is there that has met the card.
    fn meet(&mut self) {
        for _ in 0..8 {
            self.turn();
        }
        self.say(Body::Beside(Beside::RootComplex(true)));
        self.turn();
    }

    /// The root complex reads the card's configuration as long as the card takes it in.
    fn read_while_there_is_room(&mut self) -> usize {
        let mut sent = 0;
        while self.root.borrow_mut().room(SlotWire::HOST).contains(Class::NonPosted) {
            let read = [0x04, 0, 0, 1, 0, 0, sent as u8, 0x0f, 0, 0, 0, 0];
            self.root.borrow_mut().send(SlotWire::HOST, &read);
            sent += 1;
            self.turn();
        }
        sent
    }
}

/// A host whose loop may forget its PCIe side.
struct Forgetful {
    role: HostRole,
    forgets: bool,
}

impl CardRole for Forgetful {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> Exchanged {
        if self.forgets {
            // What came is seen, and left there.
            let more = pcie.happening().is_some();
            return Exchanged { more, ..Exchanged::default() };
        }
        self.role.exchange(now, pcie)
    }

    fn places(&self) -> Places {
        self.role.places()
    }
}

/// What is not the PCIe side's is the role's.
impl Role for Forgetful {
    fn set_node(&mut self, node: NodeId) {
        self.role.set_node(node);
    }

    fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        self.role.handle_frame(now, frame);
    }

    fn handle_marked_frame(&mut self, now: Instant, frame: &[u8]) {
        self.role.handle_marked_frame(now, frame);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Outgoing> {
        self.role.poll_transmit(now, buf)
    }

    fn handle_control(&mut self, now: Instant, id: OperationId, term: Term, request: &Request) {
        self.role.handle_control(now, id, term, request);
    }

    fn obey(&mut self, term: Term) -> Result<(), ControlError> {
        self.role.obey(term)
    }

    fn control_reconnected(&mut self) {
        self.role.control_reconnected();
    }

    fn poll_control(&mut self) -> Option<FromProxy> {
        self.role.poll_control()
    }

    fn peer_paths(&self, peer: NodeId) -> &[PathAddress] {
        self.role.peer_paths(peer)
    }

    fn close_links(&mut self, now: Instant) {
        self.role.close_links(now);
    }

    fn is_asked_for_counters(&self) -> bool {
        self.role.is_asked_for_counters()
    }

    fn set_surroundings(&mut self, counters: &[(&'static str, u64)]) {
        self.role.set_surroundings(counters);
    }

    fn poll_log_level(&mut self) -> Option<LogLevel> {
        self.role.poll_log_level()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.role.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.role.handle_timeout(now);
    }

    fn packet_pool(&self) -> usize {
        self.role.packet_pool()
    }

    fn wants_mark(&self) -> bool {
        self.role.wants_mark()
    }

    fn mark(&mut self, now: Instant) {
        self.role.mark(now);
    }
}

#[test]
fn a_loop_that_leaves_what_came_in_at_the_pcie_side_does_not_feed_the_watchdog() {
    let role = HostRole::new(&HostConfig::default()).unwrap();
    let mut bench = Bench::with(Forgetful { role, forgets: false }, 64);
    bench.meet();
    assert_eq!(bench.configuration_read(1).len(), 1);
    bench.card.role.forgets = true;
    assert!(bench.is_fed_for(2 * BOUND), "nothing came");
    assert!(bench.read_while_there_is_room() > 0);
    assert!(bench.is_fed_for(BOUND / 2), "it may take a while");
    bench.is_fed_for(BOUND / 2);
    let fed = bench.board.fed;
    bench.is_fed_for(2 * BOUND);
    assert_eq!(bench.board.fed, fed, "the watchdog is left to bite");
    // It was only a long moment.
    bench.card.role.forgets = false;
    bench.is_fed_for(BOUND);
    assert!(bench.is_fed_for(BOUND));
}

#[test]
fn a_root_complex_that_takes_no_answers_holds_the_card_up_and_is_no_hang() {
    let mut bench = Bench::new(64);
    bench.meet();
    // Its answers stay where the root complex has room for them; then the card's own room is used up.
    let asked = bench.read_while_there_is_room();
    let waits = bench.board.pcie.next(SlotWire::HOST, ClassSet::ALL).is_some();
    assert!(waits, "{asked} were asked, and all of them taken");
    assert!(bench.is_fed_for(10 * BOUND));
    // It has room again: all is answered.
    let mut answers = 0;
    for _ in 0..1000 {
        bench.turn();
        let mut root = bench.root.borrow_mut();
        while root.next(SlotWire::HOST, ClassSet::ALL).is_some() {
            root.take(SlotWire::HOST);
            answers += 1;
        }
    }
    assert_eq!(answers, asked);
    assert!(bench.is_fed_for(BOUND));
}

#[test]
fn a_pcie_side_that_takes_nothing_does_not_feed_the_watchdog() {
    let mut bench = Bench::new(64);
    // A wire with room for one record, which the hello has; nobody is at its end.
    let (_, side) = WireMac::pair(5, 6, 1);
    bench.board.pcie.port = RecordPort::new(side.clone(), 0..=0, WINDOWS);
    assert!(bench.is_fed_for(BOUND / 2), "it may take a while");
    bench.is_fed_for(BOUND / 2);
    let fed = bench.board.fed;
    bench.is_fed_for(2 * BOUND);
    assert_eq!(bench.board.fed, fed, "the watchdog is left to bite");
}
