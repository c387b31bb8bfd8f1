//! The loop that turns a card.

mod cycles;
mod places;
mod progress;
mod roles;

pub use progress::PlaceBits;
pub use roles::{CardRole, Exchanged};

use crate::board::{Board, EthernetMac, PcieSide};
use crate::ethernet::{self, HEADER, Purpose, TAG};
use crate::log;
use crate::manage::{Heard, Management};
use crate::reset::{self, ResetCounts};
use crate::update::FirmwareAnswer;
use core::time::Duration;
use cycles::{Cycles, Stage};
use progress::{Hang, PcieWatch};
use proxy_core::control::{
    ControlError, FirmwareRequest, FromProxy, OperationId, PathAddress, Reply, Request,
    ResetReport, Term,
};
use proxy_core::limits::SURROUNDINGS;
use proxy_core::time::Instant;

/// Frames that one turn takes in, or sends, before it looks at the other side.
const FRAMES_A_TURN: usize = 16;

/// Exchanges with the PCIe side of one turn at most.
const EXCHANGES_A_TURN: usize = 4;

/// With so many TLPs moved in an exchange, others are expected to follow at once. One alone is not
/// held up for them.
const STREAM: usize = 2;

/// Messages for the manager, or of it, that one turn moves.
const MESSAGES_A_TURN: usize = 4;

/// How long frames may wait for a MAC that has a link and takes none, before the watchdog is left
/// to bite.
const STUCK: Duration = Duration::from_secs(2);

/// The longest that the loop sleeps.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Turns without a tick of the clock after which it is taken for broken: each takes many ticks of
/// one that goes.
const STANDSTILL: u32 = 1000;

/// How long a card that was told to restart has for its answer, and for its links to say goodbye.
const GOODBYE: Duration = Duration::from_millis(500);

/// How a card is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardConfig {
    /// The VLAN of the fabric's frames, 1 to 4094, if they are tagged.
    pub vlan: Option<u16>,
    /// Bytes of the longest fabric frame: that of the role's links.
    pub max_frame: usize,
    /// Why this life began, until the manager was told.
    pub reset: Option<ResetReport>,
    /// Resets by cause.
    pub resets: ResetCounts,
}

/// What went nowhere in the loop itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    for_nobody: u64,
    unroutable: u64,
    unsaid: u64,
    /// Turns at which the clock had gone back.
    clock_back: u64,
}

/// A card: a role, and what is around it.
pub struct Card<R> {
    role: R,
    manage: Management,
    config: CardConfig,
    /// Since when the MAC took no frame.
    stuck_since: Option<Instant>,
    watch: PcieWatch,
    latest: Instant,
    /// Turns since the clock ticked.
    standing: u32,
    /// When the role wants to be woken, as it was when the last turn ended.
    due: Instant,
    counts: Counts,
    cycles: Cycles,
    /// What came of the last request for the firmware, until it is said.
    firmware: Option<(OperationId, Result<FirmwareAnswer, ControlError>)>,
    /// When it starts anew, if it was told to.
    restart: Option<Instant>,
    /// Why this life began was said in this conversation; whether it has gone out is not known yet.
    explained: bool,
}

impl<R: CardRole> Card<R> {
    /// Puts the parts together.
    pub fn new(role: R, manage: Management, config: CardConfig) -> Self {
        let (stuck_since, latest, due) = (None, Instant::ZERO, Instant::ZERO);
        let (standing, counts, cycles) = (0, Counts::default(), Cycles::default());
        let (firmware, restart) = (None, None);
        Self {
            role,
            manage,
            config,
            stuck_since,
            watch: PcieWatch::new(),
            latest,
            standing,
            due,
            counts,
            cycles,
            firmware,
            restart,
            explained: false,
        }
    }

    /// One turn: takes in what arrived, moves TLPs, sends what is to be sent. Whether there may be
    /// more to do at once: a part came to its limit, or did what an earlier one can go on with.
    /// What else is left waits for an interrupt or the time.
    #[inline(never)] // tests spoil a firmware where this is
    pub fn turn<B: Board>(&mut self, board: &mut B) -> bool {
        self.cycles.turn::<B>();
        let now = self.look_at_the_clock(board);
        let mut more = self.receive_frames(now, board);
        self.cycles.end::<B>(Stage::FramesIn);
        self.cycles.act::<B>();
        // What is stamped from here on did not happen when the turn began.
        let now = self.later(board);
        more |= self.exchange(now, board);
        self.cycles.end::<B>(Stage::Pcie);
        if self.due <= now {
            self.role.handle_timeout(now);
            more = true;
        }
        more |= self.manage.turn(now, board.mac());
        more |= self.talk(now, board);
        if self.watch.is_due(now) {
            self.watch_pcie(now, board.pcie());
        }
        if self.is_well(now, board.mac()) {
            board.feed_watchdog();
        }
        board.show(now, || self.role.places());
        self.cycles.end::<B>(Stage::Management);
        more |= self.send_frames(now, board);
        self.due = self.role.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.cycles.end::<B>(Stage::FramesOut);
        if self.restart.is_some_and(|at| at <= now) {
            board.restart();
        }
        more
    }

    /// Turns for ever, and sleeps when there is nothing to do.
    pub fn run<B: Board>(&mut self, board: &mut B) -> ! {
        loop {
            if !self.turn(board) {
                let until = self.poll_timeout(board.now());
                let woken = board.idle(until);
                self.cycles.woken(woken);
            }
        }
    }

    /// The time, which never goes back for anybody else.
    fn look_at_the_clock<B: Board>(&mut self, board: &mut B) -> Instant {
        let read = board.now();
        if read > self.latest {
            self.standing = 0;
            self.latest = read;
            return read;
        }
        self.counts.clock_back += u64::from(read < self.latest);
        self.standing = self.standing.saturating_add(1);
        if self.standing == STANDSTILL {
            board.clock_failed();
        }
        self.latest
    }

    /// The time further on in a turn.
    fn later<B: Board>(&mut self, board: &mut B) -> Instant {
        self.latest = self.latest.max(board.now());
        self.latest
    }

    /// Stamps the TLPs of a frame that was just read or written.
    fn mark<B: Board>(&mut self, board: &mut B) {
        if self.role.wants_mark() {
            let now = self.later(board);
            self.role.mark(now);
        }
    }

    /// When the next turn is due if nothing happens.
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        self.due.min(self.manage.poll_timeout()).min(now + LONGEST_SLEEP)
    }

    /// Whether it came to its limit.
    fn receive_frames<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        if !board.mac().has_arrived() {
            return false;
        }
        self.cycles.act::<B>();
        (0..FRAMES_A_TURN).all(|_| self.receive_frame(now, board))
    }

    /// Whether there was one. What it takes to handle one is not got ready where none came.
    #[inline(never)]
    fn receive_frame<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        let own = board.mac().address();
        let Self { role, manage, config, counts, .. } = self;
        let received = board.mac().receive(|arrived| {
            match ethernet::purpose(arrived.bytes, own, config.vlan) {
                Purpose::Fabric(at) if arrived.marked => {
                    role.handle_marked_frame(now, &arrived.bytes[at..]);
                }
                Purpose::Fabric(at) => role.handle_frame(now, &arrived.bytes[at..]),
                Purpose::Ip => manage.handle_frame(arrived.bytes),
                Purpose::Nobody => counts.for_nobody += 1,
            }
        });
        if received.is_none() {
            return false;
        }
        self.mark(board);
        if self.manage.holds_frame() {
            self.manage.turn(now, board.mac());
        }
        true
    }

    /// Moves TLPs, as often as they come one after the other: what was moved by the time that a
    /// frame is made travels in it. Whether there may be more to do at once.
    fn exchange<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        let mut more = false;
        for _ in 0..EXCHANGES_A_TURN {
            let exchanged = self.role.exchange(now, board.pcie());
            self.watch.moved(exchanged.places);
            more = exchanged.more;
            if exchanged.moved < STREAM {
                break;
            }
        }
        more
    }

    /// Whether it came to its limit.
    fn send_frames<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        let own = board.mac().address();
        let header = HEADER + if self.config.vlan.is_some() { TAG } else { 0 };
        let room = header + self.config.max_frame;
        for _ in 0..FRAMES_A_TURN {
            let Self { role, config, counts, .. } = self;
            let fill = |room: &mut [u8]| {
                let Some(out) = role.poll_transmit(now, &mut room[header..]) else {
                    return (0, false);
                };
                let path = role.peer_paths(out.peer).get(out.path.get() as usize);
                let Some(PathAddress::Ethernet { mac, .. }) = path else {
                    // The peer is on another kind of network; its link gives up in its time.
                    counts.unroutable += 1;
                    return (0, true);
                };
                ethernet::emit(*mac, own, config.vlan, room);
                (header + out.len, true)
            };
            match board.mac().transmit(room, fill) {
                None => {
                    self.stuck_since.get_or_insert(now);
                    return false;
                }
                Some(any) => {
                    self.stuck_since = None;
                    if !any {
                        return false;
                    }
                    self.mark(board);
                }
            }
        }
        true
    }

    /// What the manager asks for and is told.
    fn talk<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        let mut busy = false;
        for _ in 0..MESSAGES_A_TURN {
            if !self.manage.conversation().has_room() || !self.hear(now, board) {
                break;
            }
            busy = true;
            self.say_firmware();
        }
        if self.role.is_asked_for_counters() {
            self.count(board);
        }
        if let Some(level) = self.role.poll_log_level() {
            log!(info, "logging from {=str} on", level.max(log::COMPILED).name());
            log::set_level(level);
        }
        if self.config.reset.is_some() && self.manage.conversation().is_joined() {
            busy |= self.explain();
            self.manage.turn(now, board.mac());
        }
        for _ in 0..MESSAGES_A_TURN {
            if !self.manage.conversation().has_room() || !self.answer() {
                break;
            }
            busy = true;
            self.manage.turn(now, board.mac());
        }
        busy
    }

    // Messages are large. Each of these has its own on the stack, one after the other.

    /// Takes in one thing that the manager says.
    #[inline(never)]
    fn hear<B: Board>(&mut self, now: Instant, board: &mut B) -> bool {
        if !self.manage.conversation().has_news() {
            return false;
        }
        let Some(heard) = self.manage.poll(now) else { return false };
        match heard {
            Heard::Joined(welcome) => {
                log!(info, "joined as node {=u16}", welcome.node.get());
                self.explained = false;
                self.role.set_node(welcome.node);
                self.role.control_reconnected();
                board.joined();
            }
            Heard::Lost(why) => {
                log!(warn, "no manager: {=str}", why.brief());
                self.role.control_reconnected();
            }
            Heard::Request { id, term, body: Request::Firmware(request) } => {
                self.firmware = Some((id, self.see_to_firmware(now, board, term, &request)));
            }
            Heard::Request { id, term, body } => {
                log!(debug, "request {=u64}", id.0);
                self.role.handle_control(now, id, term, &body);
            }
        }
        true
    }

    fn see_to_firmware<B: Board>(
        &mut self,
        now: Instant,
        board: &mut B,
        term: Term,
        request: &FirmwareRequest,
    ) -> Result<FirmwareAnswer, ControlError> {
        self.role.obey(term)?;
        let answer = board.firmware(request)?;
        if let FirmwareRequest::Restart { incarnation } = *request
            && incarnation == self.manage.conversation().incarnation()
            && self.restart.is_none()
        {
            log!(info, "the manager wants a restart");
            self.role.close_links(now);
            self.restart = Some(now + GOODBYE);
        }
        Ok(answer)
    }

    /// Tells the manager what came of its request for the firmware.
    #[inline(never)]
    fn say_firmware(&mut self) {
        let Some((id, answer)) = self.firmware.take() else { return };
        let said = self.manage.say(&FromProxy::Response { id, result: answer.map(Reply::from) });
        assert!(said, "there is room for an answer");
    }

    /// Tells the role what is counted around it.
    #[inline(never)]
    fn count<B: Board>(&mut self, board: &mut B) {
        let counters = self.surroundings(board);
        self.role.set_surroundings(&counters);
    }

    /// Tells the manager why this life began, in each conversation until all of it has arrived in one.
    #[inline(never)]
    fn explain(&mut self) -> bool {
        if !self.manage.is_acknowledged() {
            return false;
        }
        let explained = core::mem::replace(&mut self.explained, true);
        let report = if explained { None } else { self.config.reset.clone() };
        let Some(report) = report else {
            self.config.reset = None;
            return false;
        };
        let said = self.manage.say(&FromProxy::Reset(report));
        assert!(said, "there was room");
        true
    }

    /// Gives the manager one thing that the role has to say.
    #[inline(never)]
    fn answer(&mut self) -> bool {
        let Some(message) = self.role.poll_control() else { return false };
        if !self.manage.conversation().is_joined() {
            self.counts.unsaid += 1;
            return true;
        }
        let said = self.manage.say(&message);
        assert!(said, "there was room");
        true
    }

    fn surroundings<B: Board>(
        &self,
        board: &mut B,
    ) -> heapless::Vec<(&'static str, u64), SURROUNDINGS> {
        let counts = board.mac().counters();
        // Counters have no sign, so the temperature is in kelvins.
        let temperature = board
            .temperature()
            .map(|celsius| u64::from(celsius.saturating_add(273_150).unsigned_abs()));
        let temperature = temperature.map(|kelvins| ("card: temperature in millikelvins", kelvins));
        let mut all = heapless::Vec::new();
        all.extend([
            ("card: frames for nobody here", self.counts.for_nobody),
            ("card: frames to a node without an address", self.counts.unroutable),
            ("card: messages to a manager that is away", self.counts.unsaid),
            ("card: turns at which the clock had gone back", self.counts.clock_back),
            ("port: frames sent", counts.sent),
            ("port: frames that had to wait for room", counts.full),
            ("port: frames received", counts.received),
            ("port: frames thrown away as invalid", counts.damaged),
            ("port: frames lost for lack of room", counts.dropped),
        ]);
        let stack = board.stack_used().map(|bytes| ("card: bytes of stack, at most", bytes));
        let resets = self.config.resets.map(u64::from);
        let resets = reset::COUNTERS.into_iter().zip(resets);
        all.extend(self.manage.counters());
        all.extend(self.cycles.counters());
        all.extend(board.counters());
        all.extend(resets);
        all.extend(temperature);
        all.extend(stack);
        all
    }

    /// Whether there is progress: the clock goes, the MAC takes frames when it has a link, and the PCIe
    /// side gives and takes TLPs.
    fn is_well<M: EthernetMac>(&mut self, now: Instant, mac: &mut M) -> bool {
        let stuck = self.stuck_since.is_some_and(|since| now.saturating_since(since) > STUCK);
        self.standing == 0 && !(stuck && mac.link_is_up()) && self.watch.is_well()
    }

    /// Looks whether the PCIe side goes on. Where it does not, the log says what hangs before the
    /// watchdog bites, which knows no more than that something does.
    #[inline(never)] // some times a second
    fn watch_pcie(&mut self, now: Instant, pcie: &mut impl PcieSide) {
        match self.watch.look(now, pcie) {
            None => {}
            Some(Hang::Incoming(at)) => {
                log!(
                    error,
                    "place {=u8}: a TLP came in that nobody takes; unless one does, a reset follows",
                    at.0
                );
            }
            Some(Hang::Side) => {
                log!(error, "the PCIe side stands still; unless it goes on, a reset follows");
            }
        }
    }
}

#[cfg(test)]
mod tests;
