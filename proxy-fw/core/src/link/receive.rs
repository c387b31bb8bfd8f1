//! From the peer: frames checked, and acknowledged.

use super::types::{FrameDropped, LinkState, Violation};
use super::{Fault, Link, path_id};
use crate::control::LinkDownReason;
use crate::limits::ACK_EVERY;
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
            FrameKind::Data => self.take_data(now, &header, frame, stamps),
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
        let Some(path) = self.paths.get_mut(header.path.get() as usize) else {
            return Err(FrameDropped::Malformed(FrameError::Path(header.path.get())));
        };
        path.arrive(header.packet, now);
        self.last_heard = now;
        if let Some(ack) = &header.ack {
            self.handle_ack(now, ack).map_err(|v| self.violation(v))?;
        }
        let mut sequence = header.sequence;
        for record in frame.records() {
            let record = record.map_err(|e| self.violation(Violation::Record(e)))?;
            self.arrive(now, sequence, &record, stamps).map_err(|v| self.violation(v))?;
            sequence = sequence.wrapping_add(1);
        }
        if sequence == header.sequence {
            return Ok(());
        }
        self.take_in_order().map_err(|v| self.violation(v))?;
        self.want_ack(now);
        Ok(())
    }

    /// The peer broke the protocol.
    pub(super) fn violation(&mut self, violation: Violation) -> FrameDropped {
        self.go_down(LinkDownReason::Protocol, Some(CloseReason::Protocol));
        FrameDropped::Violation(violation)
    }

    /// A frame with records came; with a gap in the sequence, or many frames, at once.
    fn want_ack(&mut self, now: Instant) {
        let inbox = &mut self.inbox;
        inbox.unacknowledged += 1;
        inbox.ack_now |= inbox.end != inbox.next || inbox.unacknowledged >= ACK_EVERY;
        inbox.ack_at.get_or_insert(now + self.config.ack_delay);
    }

    /// The acknowledgement for a frame that leaves now.
    pub(super) fn acknowledgement(&self, now: Instant) -> Option<Ack> {
        let (packet, came_at) = self.paths[0].received?;
        let delay = now.saturating_since(came_at).as_micros();
        let early = self.faulty(Fault::AcknowledgeEarly);
        Some(Ack {
            next: if early { self.inbox.end } else { self.inbox.next },
            path: path_id(0),
            packet,
            delay_us: u16::try_from(delay).unwrap_or(u16::MAX),
            ce: self.paths[0].marked,
            sacks: if early { Sacks::default() } else { self.inbox.sacks() },
        })
    }
}
