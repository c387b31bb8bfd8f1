//! A counter for everything that is dropped, retried or refused, and for what goes through.

use crate::counters::{CounterList, Counters as _, counters};
use tlp_codec::fabric::FrameError;

counters! {
    /// Bytes that came as a frame and are none. A node counts them for all its links: whose they
    /// are cannot be told.
    pub(crate) struct BadFrames {
        /// Frames shorter than they say or than a header.
        dropped_cut_short = "link.dropped_cut_short",
        /// Frames of another version.
        dropped_version = "link.dropped_version",
        /// Frames whose length field is smaller than a frame.
        dropped_length = "link.dropped_length",
        /// Frames that are authenticated under a key.
        dropped_key = "link.dropped_key",
        /// Frames of an unknown kind.
        dropped_kind = "link.dropped_kind",
        /// Frames from or to what is no node number.
        dropped_node = "link.dropped_node",
        /// Frames of a path that there is not.
        dropped_path = "link.dropped_path",
        /// Frames whose ranges of selective acknowledgement are wrong.
        dropped_ranges = "link.dropped_ranges",
        /// Open and close frames whose body is wrong.
        dropped_body = "link.dropped_body",
        /// Frames with a wrong CRC.
        dropped_frame_crc = "link.dropped_frame_crc",
    }
}

/// What several links counted, added up.
#[derive(Default)]
pub(crate) struct Sums {
    counters: Counters,
    bad_frames: BadFrames,
    /// TLP buffers that hold something at this moment, or are kept for something.
    held: u64,
}

impl Sums {
    pub(super) fn add(&mut self, counters: &Counters, bad_frames: &BadFrames) {
        self.counters.add(counters);
        self.bad_frames.add(bad_frames);
    }

    /// With TLP buffers that hold something, or are kept for something.
    pub(super) fn hold(&mut self, buffers: usize) {
        self.held += buffers as u64;
    }

    /// With frames that belong to no link.
    pub(crate) fn add_frames(&mut self, bad_frames: &BadFrames) {
        self.bad_frames.add(bad_frames);
    }

    /// Every counter with its name.
    pub(crate) fn list(&self, list: &mut CounterList) {
        list.add_all(&self.counters);
        list.add_all(&self.bad_frames);
        list.add([("link.buffers_in_use", self.held)]);
    }
}

impl BadFrames {
    /// Counts one.
    pub(crate) fn count(&mut self, error: FrameError) {
        *match error {
            FrameError::CutShort { .. } => &mut self.dropped_cut_short,
            FrameError::Version(_) => &mut self.dropped_version,
            FrameError::Crc { .. } => &mut self.dropped_frame_crc,
            FrameError::Length(_) => &mut self.dropped_length,
            FrameError::Key(_) => &mut self.dropped_key,
            FrameError::Kind(_) => &mut self.dropped_kind,
            FrameError::Node(_) => &mut self.dropped_node,
            FrameError::Path(_) => &mut self.dropped_path,
            FrameError::Sacks => &mut self.dropped_ranges,
            FrameError::Body => &mut self.dropped_body,
        } += 1;
    }
}

counters! {
    /// The counters of one link.
    pub(crate) struct Counters {
        /// Frames sent, of any kind.
        frames_sent = "link.frames_sent",
        /// Frames that were taken.
        frames_received = "link.frames_received",
        /// Frames that asked whether a path carries anything.
        probes_sent = "link.probes_sent",
        /// Times that a path was found not to carry what was sent on it.
        paths_lost = "link.paths_lost",
        /// Times that a frame took another path, too, because nothing came back from its own.
        paths_doubted = "link.paths_doubted",
        /// Times that the oldest frame of the only path was sent once more because nothing came back.
        tails_probed = "link.tails_probed",
        /// Times that a path was found to carry frames, again or for the first time.
        paths_found = "link.paths_found",
        /// Times that frames were made smaller because nothing came back.
        frames_shrunk = "link.frames_shrunk",
        /// TLPs put into frames for the first time.
        tlps_sent = "link.tlps_sent",
        /// TLPs received and stored.
        tlps_received = "link.tlps_received",
        /// TLPs that were split because a frame is smaller.
        tlps_split = "link.tlps_split",
        /// Times that a binding with something to send had reached its limit.
        sends_limited = "link.sends_limited",
        /// Sideband records sent.
        sideband_sent = "link.sideband_sent",
        /// Sideband records received.
        sideband_received = "link.sideband_received",
        /// Records sent again.
        records_retransmitted = "link.records_retransmitted",
        /// Losses that later frames gave away.
        losses_detected = "link.losses_detected",
        /// Retransmission timeouts.
        timeouts = "link.timeouts",
        /// Frames that only acknowledge.
        acks_sent = "link.acks_sent",
        /// Signs of life asked for.
        keep_alives = "link.keep_alives",
        /// Frames for another node.
        dropped_not_for_us = "link.dropped_not_for_us",
        /// Frames of another node.
        dropped_not_from_peer = "link.dropped_not_from_peer",
        /// Frames of another life of either end.
        dropped_incarnation = "link.dropped_incarnation",
        /// Frames of an earlier link between the same lives.
        dropped_session = "link.dropped_session",
        /// Data frames before the link was up.
        dropped_not_up = "link.dropped_not_up",
        /// Frames after the link went down.
        dropped_link_down = "link.dropped_link_down",
        /// Frames that broke the protocol and took the link down.
        violations = "link.violations",
        /// Of these: bytes that are no record.
        violations_record = "link.violations_record",
        /// Of these: an acknowledgement of what was never sent.
        violations_acknowledgement = "link.violations_acknowledgement",
        /// Of these: a record without credit.
        violations_credit = "link.violations_credit",
        /// Of these: a TLP that is larger than this end takes.
        violations_tlp_too_long = "link.violations_tlp_too_long",
        /// Of these: parts of a split TLP that do not make one.
        violations_split = "link.violations_split",
        /// Of these: limits in an open frame that cannot work.
        violations_open = "link.violations_open",
        /// Records that had come before.
        records_duplicate = "link.records_duplicate",
        /// Records further ahead than can be stored.
        records_beyond_window = "link.records_beyond_window",
        /// Records of a binding that was closed.
        records_stale = "link.records_stale",
        /// Records of a binding that is not open here.
        records_unknown = "link.records_unknown",
        /// Records of a binding that failed.
        records_failed_binding = "link.records_failed_binding",
        /// TLPs whose own CRC was wrong in a right frame.
        tlp_crc_errors = "link.tlp_crc_errors",
        /// Split TLPs whose rest never came.
        splits_abandoned = "link.splits_abandoned",
        /// Queued TLPs that a reset, a failure or the end of their binding dropped before they were
        /// sent.
        flushed_unsent = "link.flushed_unsent",
        /// Stored TLPs that a reset, a failure or the end of their binding dropped before they were
        /// drained.
        flushed_received = "link.flushed_received",
        /// Records that were not taken because what they ask for has no room now.
        records_no_room = "link.records_no_room",
        /// TLPs and sideband records that were refused because a queue was full.
        refused_full = "link.refused_full",
        /// TLPs that were refused because they are none, or too large.
        refused_tlp = "link.refused_tlp",
        /// Bindings that could not be opened.
        refused_channel = "link.refused_channel",
    }
}
