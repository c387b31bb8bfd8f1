//! A counter for everything that is dropped, retried or refused, and for what goes through.

use tlp_codec::fabric::FrameError;

macro_rules! counters {
    ($(#[$about:meta])* $struct:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $struct {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        impl $struct {
            /// Every counter with its name.
            pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((concat!("link.", stringify!($name)), self.$name),)*].into_iter()
            }

            /// Adds what another counted.
            fn add(&mut self, other: &Self) {
                // A loop: a sum for each of so many would be kilobytes of a card's code.
                let sums = [$(&mut self.$name),*];
                for (sum, more) in sums.into_iter().zip([$(&other.$name),*]) {
                    *sum += more;
                }
            }
        }
    };
}

counters! {
    /// Bytes that came as a frame and are none. A node counts them for all its links: whose they
    /// are cannot be told.
    BadFrames:
    /// Frames shorter than they say or than a header.
    dropped_cut_short,
    /// Frames of another version.
    dropped_version,
    /// Frames whose length field is smaller than a frame.
    dropped_length,
    /// Frames that are authenticated under a key.
    dropped_key,
    /// Frames of an unknown kind.
    dropped_kind,
    /// Frames from or to what is no node number.
    dropped_node,
    /// Frames of a path that there is not.
    dropped_path,
    /// Frames whose ranges of selective acknowledgement are wrong.
    dropped_ranges,
    /// Open and close frames whose body is wrong.
    dropped_body,
    /// Frames with a wrong CRC.
    dropped_frame_crc,
}

/// What several links counted, added up.
#[derive(Default)]
pub(crate) struct Sums {
    counters: Counters,
    bad_frames: BadFrames,
    /// TLP buffers that hold something at this moment.
    held: u64,
}

impl Sums {
    pub(super) fn add(&mut self, counters: &Counters, bad_frames: &BadFrames) {
        self.counters.add(counters);
        self.bad_frames.add(bad_frames);
    }

    /// With TLP buffers that hold something.
    pub(super) fn hold(&mut self, buffers: usize) {
        self.held += buffers as u64;
    }

    /// With frames that belong to no link.
    pub(crate) fn add_frames(&mut self, bad_frames: &BadFrames) {
        self.bad_frames.add(bad_frames);
    }

    /// Every counter with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let held = ("link.buffers_in_use", self.held);
        self.counters.iter().chain(self.bad_frames.iter()).chain([held])
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
    Counters:
    /// Frames sent, of any kind.
    frames_sent,
    /// Frames that were taken.
    frames_received,
    /// Frames that asked whether a path carries anything.
    probes_sent,
    /// Times that a path was found not to carry what was sent on it.
    paths_lost,
    /// Times that a path was found to carry frames, again or for the first time.
    paths_found,
    /// Times that frames were made smaller because nothing came back.
    frames_shrunk,
    /// TLPs put into frames for the first time.
    tlps_sent,
    /// TLPs received and stored.
    tlps_received,
    /// TLPs that were split because a frame is smaller.
    tlps_split,
    /// Times that a binding with something to send had reached its limit.
    sends_limited,
    /// Sideband records sent.
    sideband_sent,
    /// Sideband records received.
    sideband_received,
    /// Records sent again.
    records_retransmitted,
    /// Losses that later frames gave away.
    losses_detected,
    /// Retransmission timeouts.
    timeouts,
    /// Frames that only acknowledge.
    acks_sent,
    /// Signs of life asked for.
    keep_alives,
    /// Frames for another node.
    dropped_not_for_us,
    /// Frames of another node.
    dropped_not_from_peer,
    /// Frames of another life of either end.
    dropped_incarnation,
    /// Frames of an earlier link between the same lives.
    dropped_session,
    /// Data frames before the link was up.
    dropped_not_up,
    /// Frames after the link went down.
    dropped_link_down,
    /// Frames that broke the protocol and took the link down.
    violations,
    /// Of these: bytes that are no record.
    violations_record,
    /// Of these: an acknowledgement of what was never sent.
    violations_acknowledgement,
    /// Of these: a record without credit.
    violations_credit,
    /// Of these: a TLP that is larger than this end takes.
    violations_tlp_too_long,
    /// Of these: parts of a split TLP that do not make one.
    violations_split,
    /// Of these: limits in an open frame that cannot work.
    violations_open,
    /// Records that had come before.
    records_duplicate,
    /// Records further ahead than can be stored.
    records_beyond_window,
    /// Records of a binding that was closed.
    records_stale,
    /// Records of a binding that is not open here.
    records_unknown,
    /// Records of a binding that failed.
    records_failed_binding,
    /// TLPs whose own CRC was wrong in a right frame.
    tlp_crc_errors,
    /// Split TLPs whose rest never came.
    splits_abandoned,
    /// Queued TLPs that a reset, a failure or the end of their binding dropped before they were
    /// sent.
    flushed_unsent,
    /// Stored TLPs that a reset, a failure or the end of their binding dropped before they were
    /// drained.
    flushed_received,
    /// Records that were not taken because what they ask for has no room now.
    records_no_room,
    /// TLPs and sideband records that were refused because a queue was full.
    refused_full,
    /// TLPs that were refused because they are none, or too large.
    refused_tlp,
    /// Bindings that could not be opened.
    refused_channel,
}
