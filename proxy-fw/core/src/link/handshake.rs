//! Opening and closing a link (`wire.md`, "Opening", "Closing").
//!
//! An end believes that it talks to a certain life of its peer when that life has echoed a token
//! that this end made, for tokens are never used twice: an open frame that was held up somewhere
//! cannot echo one that is new.

use super::rtt::nanos;
use super::types::{FrameDropped, LinkConfig, LinkState, Transmit, Violation};
use super::{Link, path_id};
use crate::control::{LinkDownReason, PathSet};
use crate::limits::{LINK_WINDOW, MIN_FRAME, SAFE_FRAME, TLP_BUFFER};
use crate::time::Instant;
use core::num::NonZeroU64;
use core::time::Duration;
use tlp_codec::fabric::{
    Close, CloseReason, FRAME_CRC, FrameError, FrameKind, FrameWriter, HEADER, Header, Open,
    VERSION,
};
use tlp_codec::ids::PathId;

/// One life of a link's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// The process's.
    pub(super) incarnation: u32,
    /// The link's within it.
    pub(super) session: u32,
}

/// What the peer said that it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerLimits {
    /// Largest frame, smaller than ours or as large.
    pub(super) frame: usize,
    /// Records beyond its cumulative acknowledgement.
    pub(super) window: usize,
    /// Largest TLP.
    pub(super) tlp: usize,
}

impl PeerLimits {
    /// Bytes of a frame that every record fits: of one that gets through where larger ones do not.
    pub(super) fn record_frame(&self) -> usize {
        self.frame.min(SAFE_FRAME)
    }
}

/// An open frame that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Answer {
    to: Life,
    /// Ask for proof that `to` is alive now.
    asks: bool,
    /// The token that `to` asked with, or 0 not to prove anything.
    echo: u64,
    /// The path that `to` asked by.
    path: PathId,
}

/// The state of opening and closing.
#[derive(Debug)]
pub(super) struct Handshake {
    /// Our number for this link; set with the first call that says what time it is.
    pub(super) session: Option<u32>,
    /// The first and the last token that were made.
    tokens: Option<(NonZeroU64, NonZeroU64)>,
    /// The other end, once proven.
    pub(super) peer: Option<Life>,
    retry_at: Instant,
    /// How long after it the next one is, in nanoseconds.
    retry: u64,
    /// The path of the next try.
    retry_path: usize,
    answer: Option<Answer>,
    /// The first of the tokens of which another life of the peer has to echo one before it is
    /// believed: all that were made since the link was up. Any of them, because the other life may
    /// have asked again before it had the answer.
    challenge: Option<NonZeroU64>,
    goodbye: Option<CloseReason>,
    /// Paths by which it is still to be said, as bits.
    goodbye_due: u8,
    goodbye_at: Instant,
}

impl Handshake {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self {
            session: None,
            tokens: None,
            peer: None,
            retry_at: Instant::ZERO,
            retry: nanos(config.initial_rtt),
            retry_path: 0,
            answer: None,
            challenge: None,
            goodbye: None,
            goodbye_due: 0,
            goodbye_at: Instant::ZERO,
        }
    }

    /// When the next try to open is due.
    pub(super) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Whether there is something to say on a link that is up.
    pub(super) fn has_word(&self) -> bool {
        self.answer.is_some() || self.goodbye_due != 0
    }

    fn start(&mut self, now: Instant) -> u32 {
        // Microseconds, about: two links of one life are further apart, and no frame lives for
        // the hour after which it repeats.
        *self.session.get_or_insert((now.as_nanos() >> 10) as u32)
    }

    /// The next try to open is due after a first pause, if not before.
    fn begin_anew(&mut self, now: Instant, pause: Duration) {
        self.retry = nanos(pause);
        self.retry_at = self.retry_at.min(now + pause);
    }

    fn new_token(&mut self, now: Instant) -> NonZeroU64 {
        let now = NonZeroU64::new(now.as_nanos()).unwrap_or(NonZeroU64::MIN);
        let (first, token) = match self.tokens {
            None => (now, now),
            Some((first, last)) => (first, now.max(last.saturating_add(1))),
        };
        self.tokens = Some((first, token));
        token
    }

    fn is_ours(&self, echo: u64) -> bool {
        self.tokens.is_some_and(|(first, last)| (first.get()..=last.get()).contains(&echo))
    }

    fn is_challenge(&self, echo: u64) -> bool {
        self.challenge.is_some_and(|first| first.get() <= echo) && self.is_ours(echo)
    }
}

impl Link {
    /// An open frame came. It is right as a frame and comes from the peer's node.
    pub(super) fn handle_open(
        &mut self,
        now: Instant,
        header: &Header,
        open: &Open,
    ) -> Result<(), FrameDropped> {
        self.handshake.start(now);
        if header.destination_incarnation.is_some_and(|i| i != self.local_incarnation) {
            return Err(FrameDropped::OtherIncarnation);
        }
        let life = Life { incarnation: header.source_incarnation, session: open.session };
        // Only who knows this life of ours can have had a token of it.
        let echo = if header.destination_incarnation.is_some() { open.echo } else { 0 };
        let open = Open { echo, ..*open };
        let no_such_path = usize::from(header.path.get()) >= self.path_count;
        match self.state {
            LinkState::Down(_) => Err(FrameDropped::LinkDown),
            _ if no_such_path => Err(FrameDropped::Malformed(FrameError::Path(header.path.get()))),
            LinkState::Opening => self.open_while_opening(now, life, header.path, &open),
            LinkState::Up => {
                self.open_while_up(now, life, header.path, &open);
                Ok(())
            }
        }
    }

    fn open_while_opening(
        &mut self,
        now: Instant,
        life: Life,
        path: PathId,
        open: &Open,
    ) -> Result<(), FrameDropped> {
        if self.told_incarnation.is_some_and(|i| i != life.incarnation) {
            return Err(FrameDropped::OtherIncarnation);
        }
        let proven = self.handshake.is_ours(open.echo);
        if proven {
            self.handshake.peer = Some(life);
            self.peer_limits = self.agree(open)?;
            self.state = LinkState::Up;
            self.up_event = true;
            self.last_heard = now;
            self.begin_paths(now, path.get().into());
            // One for another life would tell it that this end is its peer.
            self.handshake.answer = None;
        } else {
            // It is there: if the answer is lost it is not let wait as if it were not.
            self.handshake.begin_anew(now, self.config.initial_rtt);
        }
        if open.token != 0 {
            let answer = Answer { to: life, asks: !proven, echo: open.token, path };
            self.handshake.answer = Some(answer);
        }
        Ok(())
    }

    /// What both ends can do.
    fn agree(&mut self, open: &Open) -> Result<PeerLimits, FrameDropped> {
        if !(open.min_version..=open.max_version).contains(&VERSION) {
            self.go_down(LinkDownReason::Protocol, Some(CloseReason::Version));
            return Err(FrameDropped::Violation(Violation::Open));
        }
        let frame = usize::from(open.max_frame).min(self.config.max_frame);
        // What was queued before the peer said what it takes was let in by our own bound.
        let queued = self.out.longest.max(super::MIN_TLP);
        if frame < MIN_FRAME || open.window == 0 || usize::from(open.max_tlp) < queued {
            return Err(self.violation(Violation::Open));
        }
        let (window, tlp) = (usize::from(open.window), usize::from(open.max_tlp).min(TLP_BUFFER));
        Ok(PeerLimits { frame, window, tlp })
    }

    fn open_while_up(&mut self, now: Instant, life: Life, path: PathId, open: &Open) {
        let known = self.handshake.peer == Some(life);
        if known {
            if open.token != 0 {
                let answer = Answer { to: life, asks: false, echo: open.token, path };
                self.handshake.answer = Some(answer);
            }
        } else if self.handshake.is_challenge(open.echo) {
            let same = self.handshake.peer.is_some_and(|p| p.incarnation == life.incarnation);
            let reason =
                if same { LinkDownReason::PeerClosed } else { LinkDownReason::PeerRestarted };
            self.go_down(reason, None);
        } else {
            // No echo: the new life must not take this end, which is about to go, for its peer.
            let token = self.handshake.new_token(now);
            self.handshake.challenge.get_or_insert(token);
            self.handshake.answer = Some(Answer { to: life, asks: true, echo: 0, path });
        }
    }

    /// A close frame came from the peer's node.
    pub(super) fn handle_close(&mut self, header: &Header) -> Result<(), FrameDropped> {
        self.check_lives(header)?;
        if matches!(self.state, LinkState::Down(_)) {
            return Err(FrameDropped::LinkDown);
        }
        self.go_down(LinkDownReason::PeerClosed, None);
        Ok(())
    }

    /// Whether a frame belongs to this link between these two lives.
    pub(super) fn check_lives(&self, header: &Header) -> Result<(), FrameDropped> {
        let Some(peer) = self.handshake.peer else { return Err(FrameDropped::NotUp) };
        if header.destination_incarnation != Some(self.local_incarnation)
            || header.source_incarnation != peer.incarnation
        {
            return Err(FrameDropped::OtherIncarnation);
        }
        if self.handshake.session != Some(header.session) {
            return Err(FrameDropped::OtherSession);
        }
        Ok(())
    }

    /// The end of this link, with or without a word to the peer.
    pub(super) fn go_down(&mut self, reason: LinkDownReason, goodbye: Option<CloseReason>) {
        if matches!(self.state, LinkState::Down(_)) {
            return;
        }
        self.state = LinkState::Down(reason);
        self.down_event = true;
        self.handshake.answer = None;
        self.handshake.goodbye = goodbye;
        if goodbye.is_some() && self.handshake.peer.is_some() {
            self.say_goodbye();
        }
    }

    /// A peer that still sends has not heard the goodbye: it is said again, now and then.
    pub(super) fn say_goodbye_again(&mut self, now: Instant) {
        let again = self.handshake.goodbye.is_some()
            && now >= self.handshake.goodbye_at.after_nanos(self.times.min);
        if again {
            self.say_goodbye();
        }
    }

    /// Says goodbye by every path: which of them the peer hears of is not known.
    fn say_goodbye(&mut self) {
        self.handshake.goodbye_due = PathSet::first(self.path_count).0;
    }

    /// Writes an open or close frame if one is due.
    pub(super) fn poll_handshake(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.handshake.start(now);
        if self.handshake.goodbye_due != 0 {
            return self.send_goodbye(now, buffer);
        }
        if matches!(self.state, LinkState::Down(_)) {
            return None;
        }
        if let Some(answer) = self.handshake.answer.take() {
            let token = match (self.handshake.challenge, self.handshake.tokens) {
                (Some(_), Some((_, last))) if answer.asks => last.get(),
                _ if answer.asks => self.handshake.new_token(now).get(),
                _ => 0,
            };
            let path = answer.path.get().into();
            let to = Some(answer.to.incarnation);
            return self.send_open(now, buffer, path, to, token, answer.echo);
        }
        if self.state == LinkState::Opening && now >= self.handshake.retry_at {
            self.handshake.retry_at = now.after_nanos(self.handshake.retry);
            let longest = nanos(self.config.max_open_retry);
            self.handshake.retry = self.handshake.retry.saturating_mul(2).min(longest);
            let token = self.handshake.new_token(now).get();
            let path = self.handshake.retry_path % self.path_count;
            self.handshake.retry_path = path + 1;
            return self.send_open(now, buffer, path, self.told_incarnation, token, 0);
        }
        None
    }

    fn send_open(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        path: usize,
        to: Option<u32>,
        token: u64,
        echo: u64,
    ) -> Option<Transmit> {
        let body = Open {
            min_version: VERSION,
            max_version: VERSION,
            max_frame: self.config.max_frame as u16,
            window: LINK_WINDOW as u16,
            max_tlp: TLP_BUFFER as u16,
            session: self.handshake.start(now),
            token,
            echo,
        };
        let header = self.handshake_header(FrameKind::Open, path, to, 0);
        self.send_handshake(now, buffer, &header, &body.emit())
    }

    fn send_goodbye(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let path = self.handshake.goodbye_due.trailing_zeros() as usize;
        self.handshake.goodbye_due &= self.handshake.goodbye_due - 1;
        self.handshake.goodbye_at = now;
        let (reason, peer) = (self.handshake.goodbye?, self.handshake.peer?);
        let body = Close { reason }.emit();
        let to = Some(peer.incarnation);
        let header = self.handshake_header(FrameKind::Close, path, to, peer.session);
        self.send_handshake(now, buffer, &header, &body)
    }

    fn handshake_header(
        &self,
        kind: FrameKind,
        path: usize,
        destination_incarnation: Option<u32>,
        session: u32,
    ) -> Header {
        Header {
            kind,
            destination: self.peer,
            source: self.local,
            source_incarnation: self.local_incarnation,
            destination_incarnation,
            session,
            path: path_id(path),
            packet: self.paths[path].next_packet,
            sequence: self.flight.next(),
            ack: None,
        }
    }

    fn send_handshake(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        header: &Header,
        body: &[u8],
    ) -> Option<Transmit> {
        assert!(buffer.len() >= HEADER + Open::LEN + FRAME_CRC, "the caller's buffer is a frame's");
        let mut writer = FrameWriter::new(buffer, header).ok()?;
        writer.body(body).ok()?;
        self.paths[usize::from(header.path.get())].depart(now);
        self.counters.frames_sent += 1;
        Some(Transmit { path: header.path, len: writer.finish() })
    }
}
