//! Several paths: which of them carries the next frame, and which of them carry anything.
//!
//! A path is *good* as long as what is sent on it is acknowledged. When a retransmission timeout
//! or a probe runs out on it, it is *suspect*: what was under way on it goes by the others, and
//! only probes are sent until one of them is acknowledged. Each end judges its own direction. When
//! no path is good, all are used.
//!
//! A good path that is silent for some round trips is *asked* by a probe, and the others are
//! preferred until it answers.

use super::faults::Fault;
use super::path::{Health, Path, Raise};
use super::rtt::nanos;
use super::sequence::before;
use super::types::{LinkState, Transmit};
use super::{Link, path_id};
use crate::control::PathSet;
use crate::limits::{LINK_RAISE, MAX_PATHS, SAFE_FRAME};
use crate::time::{Earliest, Instant};
use tlp_codec::fabric::{FrameKind, FrameWriter, Header};
use tlp_codec::ids::PathId;

/// Probes, or retransmission timeouts, in a row after which only frames of [`SAFE_FRAME`] bytes
/// are tried (RFC 8899, section 4.3, has three for what it calls a black hole).
const BLACK_HOLE: u8 = 2;

impl Link {
    /// The paths between the two nodes.
    pub(super) fn paths(&self) -> &[Path] {
        &self.paths[..self.path_count]
    }

    /// How many paths the peer has, from now on. The link uses as many as both ends have; what is
    /// under way on one that is no more is sent again.
    pub fn set_peer_paths(&mut self, now: Instant, count: usize) {
        let count = count.min(self.config.paths).clamp(1, MAX_PATHS);
        let before = core::mem::replace(&mut self.path_count, count);
        for path in count..before {
            self.lose_path(path);
            let pause = self.times.min;
            let entry = &mut self.paths[path];
            entry.stop_waiting();
            // Its timeouts are over with it, and nothing of any size passes.
            entry.heard_again(now, 0, 0);
            // It is not lost: if there is such a path again, it is a new one.
            entry.health =
                Health::Suspect { since: entry.next_packet, pause, tries: 0, lost: false };
        }
        let there = PathSet::first(count).0;
        (self.path_changes, self.paths_to_tell) =
            (self.path_changes & there, self.paths_to_tell & there);
        self.out.probe = None;
        if count == 1 {
            self.paths[0].is_alone();
        }
        if self.state == LinkState::Up {
            if before == 1 && count > 1 {
                // While it was alone it was not asked whether it comes back.
                self.paths[0].probe_at.start(now);
            }
            for path in before..count {
                self.paths[path].passes(self.peer_limits.frame, self.peer_limits.frame);
                self.suspect(now, path, false);
                self.paths_to_tell |= 1 << path;
            }
        }
        self.find_reach();
    }

    /// Whether a path carries what this end sends, as far as it knows.
    pub fn is_path_good(&self, path: PathId) -> bool {
        self.paths().get(path.get() as usize).is_some_and(Path::is_good)
    }

    /// The paths that are so, as bits.
    fn paths_that(&self, are: impl Fn(&Path) -> bool) -> u8 {
        let bit = |(index, path): (usize, &Path)| u8::from(are(path)) << index;
        self.paths().iter().enumerate().map(bit).fold(0, |all, one| all | one)
    }

    /// The good paths, as bits.
    fn good(&self) -> u8 {
        self.paths_that(Path::is_good)
    }

    /// The paths that records may take: the good ones of which no answer is waited for, or else the
    /// good ones, or else all.
    fn usable(&self) -> u8 {
        if self.faulty(Fault::UseDeadPaths) {
            return PathSet::first(self.path_count).0;
        }
        match (self.paths_that(|path| path.health == Health::Good { asked: false }), self.good()) {
            (0, 0) => PathSet::first(self.path_count).0,
            (0, good) => good,
            (sure, _) => sure,
        }
    }

    /// The link is up: the path that the proof came by works, the others are tried at once.
    pub(super) fn begin_paths(&mut self, now: Instant, proven: usize) {
        for path in 0..self.path_count {
            self.paths[path].passes(self.peer_limits.frame, self.peer_limits.frame);
            if path == proven {
                self.paths[path].health = Health::Good { asked: false };
                self.probe_later(now, path);
            } else {
                self.suspect(now, path, false);
            }
        }
        // Of the one that works and of those that never do nothing else would be heard.
        (self.path_changes, self.paths_to_tell) = (0, 0);
        self.tell_paths();
        self.find_reach();
    }

    /// Works out which bindings may send on which path: those that name it, and those none of
    /// whose paths is usable.
    pub(super) fn find_reach(&mut self) {
        let (usable, good) = (self.usable(), self.good());
        self.reach = [0; MAX_PATHS];
        for index in 0..self.channels.count() {
            let PathSet(wanted) = match self.faulty(Fault::IgnorePathSet) {
                false => self.channels.place(index).paths,
                true => PathSet::ALL,
            };
            let set = match (wanted & usable, wanted & good) {
                // Those that it names are as good as any.
                _ if good == 0 => usable,
                (0, 0) => usable,
                (0, asked) => asked,
                (set, _) => set,
            };
            for (path, reach) in self.reach.iter_mut().enumerate() {
                *reach |= u64::from(set >> path & 1) << index;
            }
        }
    }

    /// The path by which a frame is expected to arrive first, of those in `set`.
    fn soonest(&self, set: u8) -> Option<usize> {
        let inside = (0..self.path_count).filter(|path| set >> path & 1 != 0);
        inside.min_by_key(|&path| self.paths[path].expected_delay())
    }

    /// The path for a frame without records: the one that it speaks of, by which something came just
    /// now. Whether the quickest one is still there nobody here may have noticed, with nothing under way
    /// to miss its answer: then every path seems dead to the peer, not only that one.
    pub(super) fn path_for_word(&self) -> usize {
        if self.path_count == 1 {
            return 0;
        }
        let (told, good) = (self.path_to_acknowledge(), self.good());
        if let Some(path) = told.filter(|path| good == 0 || good >> path & 1 != 0)
            && !self.faulty(Fault::AnswerByQuickest)
        {
            return path;
        }
        self.soonest(self.usable()).expect("some path is usable")
    }

    /// The path for the next frame with records, not one of `tried`: one whose congestion window
    /// is open, or that a timeout lets one frame through.
    pub(super) fn path_for_records(&self, tried: u8) -> Option<usize> {
        let open = |path: usize| {
            let Path { congestion, in_flight, .. } = &self.paths[path];
            self.out.probe == Some(path as u8) || congestion.allows(*in_flight)
        };
        if self.path_count == 1 {
            return (tried == 0 && open(0)).then_some(0);
        }
        let (usable, good) = (self.usable(), self.good());
        // A suspect path carries none as long as any is good.
        let mut set = (usable | good) & !tried;
        for path in 0..self.path_count {
            if set >> path & 1 != 0 && !open(path) {
                set &= !(1 << path);
            }
        }
        // When none is good they are tried in turn, and the quickest of before may be the dead one.
        if let Some(next) = self.out.probe.map(usize::from)
            && good == 0
            && set >> next & 1 != 0
            && !self.faulty(Fault::AnswerByQuickest)
        {
            return Some(next);
        }
        // One that is asked is for the bindings that want no other.
        let sure = set & usable;
        self.soonest(if sure != 0 { sure } else { set })
    }

    /// Nothing comes back from a path: something is `lost`, or nothing was sent yet.
    pub(super) fn suspect(&mut self, now: Instant, path: usize, lost: bool) {
        if self.path_count == 1 {
            return;
        }
        let pause = self.times.min;
        let forgotten = self.faulty(Fault::ForgetPath);
        let entry = &mut self.paths[path];
        if entry.is_good() {
            self.path_changes |= 1 << path;
            self.counters.paths_lost += 1;
        }
        entry.health = Health::Suspect { since: entry.next_packet, pause, tries: 0, lost };
        // What leaves by it does not count for the link's turns.
        (entry.sent_by, entry.heard) = (0, 0);
        entry.probe_at.stop();
        if !forgotten {
            entry.probe_at.start(now);
        }
        self.find_reach();
    }

    /// News of a path: the peer received `packet`.
    pub(super) fn path_heard(&mut self, now: Instant, path: usize, packet: u32) {
        let entry = &mut self.paths[path];
        entry.arrived(packet, self.peer_limits.frame);
        match entry.health {
            // What was sent earlier says nothing, nor is anything said of a path that is no more.
            Health::Suspect { since, .. } if before(packet, since) || path >= self.path_count => {
                return;
            }
            Health::Suspect { .. } => {
                entry.health = Health::Good { asked: false };
                self.path_changes |= 1 << path;
                self.counters.paths_found += 1;
                self.find_reach();
            }
            Health::Good { asked: false } => {}
            Health::Good { asked: true } => {
                // What nobody had to tell of is told late: what left before it was asked is no answer.
                let answered = entry.carried_at.after_nanos(entry.timeout(&self.times));
                if answered.max(entry.carried_at + self.config.keep_alive) <= now {
                    return;
                }
                entry.health = Health::Good { asked: false };
                self.find_reach();
            }
        }
        self.probe_later(self.paths[path].carried_at, path);
    }

    /// A path is asked when nothing of what left since then has come out for the keep-alive time.
    fn probe_later(&mut self, carried: Instant, path: usize) {
        if self.path_count > 1 {
            self.paths[path].probe_at.start(carried + self.config.keep_alive);
        }
    }

    /// Nothing has come back from a path for some time: what it carries that is next in order takes
    /// another one, too, and whether this one is still good is asked at once. A timeout decides that;
    /// neither a lone request nor those behind it, one after the other, wait for it. On the only path
    /// that goes once more.
    pub(super) fn doubt_path(&mut self, now: Instant, path: usize) {
        if self.path_count == 1 {
            return self.probe_tail(now, path);
        }
        let entry = &mut self.paths[path];
        let again = entry.patience(entry.timeout(&self.times), true).max(self.times.min);
        entry.doubt_at.start(now.after_nanos(again));
        if self.good() & !(1 << path) == 0 {
            return;
        }
        self.counters.paths_doubted += 1;
        self.lose_oldest_frame(path);
        let entry = &mut self.paths[path];
        if entry.health == (Health::Good { asked: false }) {
            entry.probe_at.start(now);
        }
    }

    /// What the only path carries that is next in order goes once more, if it went only once: of what was
    /// lost behind all else no later frame tells (RFC 8985, section 7). That larger frames do not pass a
    /// timeout shows.
    fn probe_tail(&mut self, now: Instant, path: usize) {
        let Some(oldest) = self.oldest_on(path) else { return };
        if oldest.tries > 1 || self.paths[path].is_try(oldest.packet) {
            return;
        }
        // What waits for room to go again may as well be that.
        if self.flight.first_lost().is_none() {
            self.counters.tails_probed += 1;
            self.lose_oldest_frame(path);
            // It has a round trip's time for its answer.
            self.restart_timeout(now, path);
        }
        self.out.probe = Some(path as u8);
    }

    /// Starts a path's timers over, or stops them when nothing is under way there.
    pub(super) fn restart_timeout(&mut self, now: Instant, path: usize) {
        let several = self.path_count > 1;
        self.paths[path].restart_timeout(now, &self.times, several);
    }

    /// A retransmission timeout has run out on a path.
    pub(super) fn path_timed_out(&mut self, now: Instant, path: usize) {
        self.counters.timeouts += 1;
        let entry = &mut self.paths[path];
        entry.backoff = entry.backoff.saturating_add(1);
        let backoff = entry.backoff;
        if backoff == 1 {
            entry.shrunk_from = 0;
        }
        // That a frame is too large is no sign of congestion.
        if !self.oldest_is_try(path) {
            self.paths[path].congestion.timed_out(now);
        }
        if backoff >= BLACK_HOLE {
            self.shrink_frames(now, path, true);
        }
        if self.good() & !(1 << path) != 0 {
            self.lose_path(path);
        } else {
            self.lose_oldest_frame(path);
            let next = (path + 1) % self.path_count;
            self.out.probe = Some(next as u8);
        }
        self.suspect(now, path, true);
        self.restart_timeout(now, path);
    }

    /// Large frames may be what the path does not carry any more; a mere `guess` where nothing came back.
    pub(super) fn shrink_frames(&mut self, now: Instant, path: usize, guess: bool) {
        let entry = &mut self.paths[path];
        if entry.frame > SAFE_FRAME {
            entry.shrunk_from = if guess { entry.frame as u16 } else { 0 };
            entry.frame = SAFE_FRAME;
            entry.raise_at.start(now + LINK_RAISE);
            self.counters.frames_shrunk += 1;
        }
    }

    /// When a probe is wanted next: by who has a binding, or something under way still, such as the
    /// word that the last one is over.
    pub(super) fn probe_timeout(&self) -> Option<Instant> {
        let mut first = Earliest::NONE;
        if self.channels.shared.open() > 0 || !self.flight.is_empty() {
            for path in self.paths() {
                first.timer(path.probe_at);
                first.timer(path.raise_at);
            }
        }
        first.get()
    }

    /// Decides which probes are to be sent.
    pub(super) fn handle_probe_timeout(&mut self, now: Instant) {
        if self.probe_timeout().is_none_or(|at| now < at) {
            return;
        }
        for path in 0..self.path_count {
            let wanted = self.peer_limits.frame;
            let entry = &mut self.paths[path];
            if entry.raise_at.is_due(now) {
                entry.raise_at.start(now + LINK_RAISE);
                // Behind a probe comes more if there is a load: another packet is named then. So it
                // is records that try, unless there are too few for such a frame.
                let has_load = entry.in_flight > 0 || self.out.has_work(self.reach[path]);
                if has_load && entry.raise != Raise::Wanted {
                    entry.raise = Raise::Wanted;
                } else {
                    // One that asks for a sign of life and has not left yet goes first, ...
                    entry.probe.get_or_insert(wanted);
                }
            }
            // ... and takes this one's place: what may be too large says nothing of whether the path is
            // there.
            if entry.probe_at.is_due(now) {
                self.probe(now, path);
            }
        }
    }

    fn probe(&mut self, now: Instant, path: usize) {
        let entry = &mut self.paths[path];
        match &mut entry.health {
            Health::Good { asked: true } => {
                self.suspect(now, path, true);
                if self.good() != 0 {
                    self.lose_path(path);
                    self.restart_timeout(now, path);
                }
                return;
            }
            Health::Good { asked } => {
                *asked = true;
                entry.probe_at.start(now.after_nanos(entry.timeout(&self.times)));
                self.find_reach();
            }
            Health::Suspect { pause, tries, lost, .. } => {
                *lost |= *tries > 0;
                *tries = tries.saturating_add(1);
                entry.probe_at.start(now.after_nanos(*pause));
                *pause = pause.saturating_mul(2).min(nanos(self.config.max_open_retry));
                if *tries > BLACK_HOLE {
                    self.shrink_frames(now, path, true);
                }
            }
        }
        let entry = &mut self.paths[path];
        entry.probe = Some(entry.frame);
    }

    /// Somebody was not there: how each path is will be told, if there are several and the link is
    /// up.
    pub fn tell_paths(&mut self) {
        if self.state == LinkState::Up && self.path_count > 1 {
            self.paths_to_tell = PathSet::first(self.path_count).0;
        }
    }

    /// The next path that [`tell_paths`](Link::tell_paths) has told, and whether it is good. One that
    /// was not tried yet waits until it was.
    pub fn poll_told_path(&mut self) -> Option<(PathId, bool)> {
        if self.paths_to_tell == 0 || self.state != LinkState::Up {
            return None;
        }
        let can_be_told = |&path: &usize| {
            let untried = matches!(self.paths[path].health, Health::Suspect { lost: false, .. });
            self.paths_to_tell >> path & 1 != 0 && !untried
        };
        let path = (0..self.path_count).find(can_be_told)?;
        Some(self.told(path))
    }

    /// A path whose state is told now, and whether it is good.
    pub(super) fn told(&mut self, path: usize) -> (PathId, bool) {
        self.path_changes &= !(1 << path);
        self.paths_to_tell &= !(1 << path);
        (path_id(path), self.paths[path].is_good())
    }

    /// Writes a probe if one is due.
    pub(super) fn poll_probe(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let path = self.paths().iter().position(|path| path.probe.is_some())?;
        let length = self.paths[path].probe.take()?;
        let header =
            Header { kind: FrameKind::Probe, ..self.header(now, path, self.flight.next()) };
        let mut writer = FrameWriter::new(buffer, &header).ok()?;
        writer.pad(length);
        let entry = &mut self.paths[path];
        if length > entry.frame {
            entry.raise = Raise::Tried { packet: header.packet, length };
        }
        entry.depart(now);
        self.counters.probes_sent += 1;
        // What it says of other paths may not arrive by one that carries nothing.
        if self.usable() >> path & 1 != 0 {
            self.acknowledgement_left();
        }
        Some(Transmit { path: path_id(path), len: writer.finish() })
    }
}
