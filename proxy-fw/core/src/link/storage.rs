//! All that a link allocates.

use super::channel::Channels;
use super::counters::{BadFrames, Counters, Sums};
use super::flight::Flight;
use super::inbox::Inbox;
use super::path::Path;
use super::send::Outbox;
use super::types::LinkConfig;
use crate::limits::{GUARANTEED_CREDITS, LINK_WINDOW, MAX_CHANNELS, MAX_PATHS};
use alloc::boxed::Box;

/// What one link needs, allocated once; links that follow each other use the same. The counts of
/// all of them stay with it.
#[derive(Debug)]
pub struct LinkStorage {
    pub(super) paths: Box<[Path]>,
    pub(super) channels: Channels,
    pub(super) flight: Flight,
    pub(super) out: Outbox,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
    pub(super) bad_frames: BadFrames,
}

impl LinkStorage {
    /// Allocates what links of this configuration need; their frame sizes and times may differ.
    ///
    /// # Panics
    ///
    /// When `config` is outside the bounds that its fields name.
    #[inline(never)] // it is done once: short code counts
    pub fn new(config: &LinkConfig) -> Self {
        assert!((1..=MAX_CHANNELS).contains(&config.channels), "channels out of bounds");
        let guaranteed: u32 = GUARANTEED_CREDITS.iter().sum();
        let buffers = config.channels * guaranteed as usize + config.shared_receive;
        Self {
            paths: (0..MAX_PATHS).map(|_| Path::new(config)).collect(),
            channels: Channels::new(config.channels, config.shared_receive),
            flight: Flight::new(LINK_WINDOW),
            out: Outbox::new(config.channels, config.shared_send),
            inbox: Inbox::new(buffers, config.channels),
            counters: Counters::default(),
            bad_frames: BadFrames::default(),
        }
    }

    /// Bytes that it allocated: TLP buffers, and what says which of them is whose.
    pub(crate) fn allocated(&self) -> usize {
        let paths: usize = self.paths.iter().map(Path::allocated).sum();
        let queues = self.out.slab.allocated() + self.inbox.allocated() + self.flight.allocated();
        size_of_val(&*self.paths) + paths + queues + self.channels.allocated()
    }

    /// Empty but for the counts.
    pub(super) fn cleared(mut self, config: &LinkConfig) -> Self {
        assert!(
            self.channels.places() == config.channels
                && self.channels.shared.size() == config.shared_receive
                && self.out.shared == config.shared_send,
            "the storage is of another configuration"
        );
        for path in &mut self.paths {
            path.clear(config);
        }
        Self {
            channels: self.channels.cleared(),
            flight: self.flight.cleared(),
            out: self.out.cleared(),
            inbox: self.inbox.cleared(),
            ..self
        }
    }

    /// Adds what the links that used it counted.
    pub(crate) fn count_into(&self, sums: &mut Sums) {
        sums.add(&self.counters, &self.bad_frames);
    }
}
