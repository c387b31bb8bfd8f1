//! From the peer: frames checked, and acknowledged.

use super::path::Path;
use super::types::{FrameDropped, LinkState, Violation};
use super::{Fault, Link, path_id};
use crate::control::LinkDownReason;
use crate::stamps::Stamps;
use crate::time::Instant;
use tlp_codec::fabric::{Ack, CloseReason, Frame, FrameError, FrameKind, Header, Sacks};

impl Link {
    /// Takes a frame from the network: any bytes at all.
    ///
    /// # Errors
    ///
    /// [`FrameDropped`] says why nothing, or with [`FrameDropped::Violation`] not everything, was
    /// taken. Each reason is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        match Frame::new_checked(frame) {
            Ok(frame) => self.handle_checked_frame(now, &frame, stamps),
            Err(error) => {
                self.bad_frames.count(error);
                Err(FrameDropped::Malformed(error))
            }
        }
    }

    /// As [`handle_frame`](Self::handle_frame), for who has looked into the frame already to find
    /// the link that it is for.
    ///
    /// # Errors
    ///
    /// As [`handle_frame`](Self::handle_frame).
    pub fn handle_checked_frame(
        &mut self,
        now: Instant,
        frame: &Frame<&[u8]>,
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        let result = self.take_frame(now, frame, stamps);
        let counter = match &result {
            Ok(()) => &mut self.counters.frames_received,
            Err(FrameDropped::Malformed(error)) => {
                self.bad_frames.count(*error);
                return result;
            }
            Err(FrameDropped::NotForUs) => &mut self.counters.dropped_not_for_us,
            Err(FrameDropped::NotFromPeer) => &mut self.counters.dropped_not_from_peer,
            Err(FrameDropped::OtherIncarnation) => &mut self.counters.dropped_incarnation,
            Err(FrameDropped::OtherSession) => &mut self.counters.dropped_session,
            Err(FrameDropped::NotUp) => &mut self.counters.dropped_not_up,
            Err(FrameDropped::LinkDown) => &mut self.counters.dropped_link_down,
            Err(FrameDropped::Violation(_)) => &mut self.counters.violations,
        };
        *counter += 1;
        result
    }

    fn take_frame(
        &mut self,
        now: Instant,
        frame: &Frame<&[u8]>,
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        let header = frame.header();
        if header.destination != self.local {
            return Err(FrameDropped::NotForUs);
        }
        if header.source != self.peer {
            return Err(FrameDropped::NotFromPeer);
        }
        match header.kind {
            FrameKind::Open => {
                let open = frame.open().map_err(FrameDropped::Malformed)?;
                self.handle_open(now, &header, &open)
            }
            FrameKind::Close => {
                frame.close().map_err(FrameDropped::Malformed)?;
                self.handle_close(&header)
            }
            FrameKind::Data | FrameKind::Probe => self.take_data(now, &header, frame, stamps),
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        header: &Header,
        frame: &Frame<&[u8]>,
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        self.check_lives(header)?;
        match self.state {
            LinkState::Up => {}
            LinkState::Opening => return Err(FrameDropped::NotUp),
            LinkState::Down(_) => {
                self.say_goodbye_again(now);
                return Err(FrameDropped::LinkDown);
            }
        }
        let path = usize::from(header.path.get());
        if path >= self.path_count {
            return Err(FrameDropped::Malformed(FrameError::Path(header.path.get())));
        }
        self.paths[path].arrive(header.packet, now);
        self.last_heard = now;
        if let Some(ack) = &header.ack {
            self.handle_ack(now, ack).map_err(|v| self.violation(v))?;
        }
        if header.kind == FrameKind::Probe {
            self.paths[path].ack_now = true;
            self.paths[path].ack_at.start_if_stopped(now);
            return Ok(());
        }
        let mut sequence = header.sequence;
        for record in frame.records() {
            // Looked at where it is: what is taken out is moved.
            match &record {
                Ok(record) => self.arrive(now, sequence, record, stamps),
                Err(error) => Err(Violation::Record(*error)),
            }
            .map_err(|violation| self.violation(violation))?;
            sequence = sequence.wrapping_add(1);
        }
        if sequence == header.sequence {
            return Ok(());
        }
        self.take_in_order().map_err(|v| self.violation(v))?;
        let again = core::mem::take(&mut self.inbox.repeated);
        let missing = self.inbox.end != self.inbox.next;
        self.paths[path].want_ack(now, self.config.ack_delay, missing, again);
        Ok(())
    }

    /// The peer broke the protocol.
    pub(super) fn violation(&mut self, violation: Violation) -> FrameDropped {
        self.go_down(LinkDownReason::Protocol, Some(CloseReason::Protocol));
        let counters = &mut self.counters;
        *match violation {
            Violation::Record(_) => &mut counters.violations_record,
            Violation::Acknowledgement => &mut counters.violations_acknowledgement,
            Violation::Credit => &mut counters.violations_credit,
            Violation::TlpTooLong => &mut counters.violations_tlp_too_long,
            Violation::Split => &mut counters.violations_split,
            Violation::Open => &mut counters.violations_open,
        } += 1;
        FrameDropped::Violation(violation)
    }

    /// Whether an acknowledgement is to be sent at once.
    pub(super) fn is_ack_due(&self) -> bool {
        self.paths().iter().any(|path| path.ack_now)
    }

    /// The path that the next acknowledgement speaks of: one that must be spoken of now, or the
    /// one that waits for longest, or the one that a frame came by last.
    pub(super) fn path_to_acknowledge(&self) -> Option<usize> {
        if self.path_count == 1 {
            return Some(0);
        }
        let key = |path: &Path| {
            let waits = path.ack_at.at();
            (!path.ack_now, waits, core::cmp::Reverse(path.received_at))
        };
        let spoken = |path: &usize| self.paths[*path].received.is_some();
        (0..self.path_count).filter(spoken).min_by_key(|&path| key(&self.paths[path]))
    }

    /// A frame with the acknowledgement of [`acknowledgement`](Self::acknowledgement) left.
    pub(super) fn acknowledgement_left(&mut self) {
        if let Some(path) = self.path_to_acknowledge() {
            self.paths[path].acknowledgement_sent();
        }
    }

    /// The acknowledgement for a frame that leaves now.
    pub(super) fn acknowledgement(&self, now: Instant) -> Option<Ack> {
        let told = self.path_to_acknowledge()?;
        let path = &self.paths[told];
        let packet = path.received?;
        let delay = now.saturating_since(path.received_at).as_micros();
        let early = self.faulty(Fault::AcknowledgeEarly);
        Some(Ack {
            next: if early { self.inbox.end } else { self.inbox.next },
            path: path_id(told),
            packet,
            delay_us: u16::try_from(delay).unwrap_or(u16::MAX),
            ce: path.marked,
            sacks: if early { Sacks::default() } else { self.inbox.sacks() },
        })
    }
}
