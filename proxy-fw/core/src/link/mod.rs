//! The reliable link between two nodes (`tlp-codec/docs/wire.md` is normative).
//!
//! A [`Link`] carries the TLPs and sideband records of all bindings between this node and one
//! peer. Each record is delivered at most once, in order, or the link goes down. It is sans-IO:
//! frames go in by [`Link::handle_frame`] and out by [`Link::poll_transmit`]; TLPs go in by
//! [`Link::send_tlp`] and out by [`Link::take_received`].
//!
//! | file | what |
//! |---|---|
//! | `types` | the small types of the interface |
//! | `handshake` | opening and closing: versions, limits, proof of life |
//! | `channel` | one binding: its queues and credits, both ways |
//! | `credit` | what a receiver has promised to store, and why it always can |
//! | `slab` | TLP buffers |
//! | `send` | what waits to be sent |
//! | `reserve` | room that is kept for what is still to come |
//! | `transmit` | which record is next, and frames |
//! | `share` | which binding's TLP is next |
//! | `flight` | records that are sent and not acknowledged |
//! | `acknowledge` | acknowledgements taken in, losses, timeouts |
//! | `path` | packet numbers, round-trip time (`rtt`) and congestion window of one path |
//! | `paths` | which path carries the next frame, and which of them carry anything |
//! | `receive` | frames checked, acknowledgements made |
//! | `inbox` | what came and is not drained |
//! | `store` | records stored under their sequence, once |
//! | `take` | stored records taken in order |
//! | `drain` | what is handed on, in an order that PCIe allows |
//! | `timers` | when it wants to be woken |
//! | `storage` | all that a link allocates |
//! | `counters` | everything that is dropped, retried or refused |
//!
//! **Storage.** Everything is allocated with a [`LinkStorage`], which serves one link after the
//! other ([`Link::with_storage`], [`Link::into_storage`]): in a program 30 MB for what is received
//! and 22 MB for what is sent, buffers and what says of each what it holds, and 0.1 MB of other
//! tables. Buffers are reused last in, first out and allocated zeroed, so on a system with virtual
//! memory only the most that was ever used at a time is resident; short TLPs share pages. `credit`
//! says why a sender with credit always finds room.

mod acknowledge;
mod channel;
mod congestion;
mod counters;
mod credit;
mod drain;
mod faults;
mod flight;
mod handshake;
mod inbox;
mod path;
mod paths;
mod receive;
mod reserve;
mod rtt;
mod send;
mod sequence;
mod share;
mod slab;
mod storage;
mod store;
mod take;
mod timers;
mod transmit;
mod types;

#[cfg(test)]
mod tests;

pub use storage::LinkStorage;
pub use types::{
    ChannelError, ChannelId, ClassSet, FrameDropped, LinkConfig, LinkEvent, LinkOrder, LinkState,
    SendError, Taken, TakenSideband, TlpMeta, Transmit, Violation,
};

use crate::control::{BindingFailure, LinkDownReason, PathSet, Share};
use crate::counters::CounterList;
use crate::limits::{LINK_WINDOW, MAX_FRAME, MAX_PATHS, MIN_FRAME, TLP_BUFFER, UNBIND_QUEUE};
use crate::stamps::Stamps;
use crate::time::{Instant, Timer};
use alloc::boxed::Box;
use channel::{Channels, Phase};
pub(crate) use counters::BadFrames;
use counters::Counters;
pub(crate) use counters::Sums;
use faults::Fault;
use flight::Flight;
use handshake::{Handshake, PeerLimits};
use inbox::Inbox;
use path::Path;
use rtt::Times;
use send::Outbox;
use tlp_codec::fabric::{CloseReason, MIN_TLP};
use tlp_codec::ids::{BindingKey, NodeId, PathId};

fn path_id(index: usize) -> PathId {
    PathId::new(index as u8).expect("paths are fewer than path numbers")
}

/// Between whom a link is.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// This node.
    pub local: NodeId,
    /// Its life.
    pub local_incarnation: u32,
    /// The other node.
    pub peer: NodeId,
    /// The other node's life as the manager told it; without it, any life that proves to be alive
    /// is taken.
    pub peer_incarnation: Option<u32>,
    /// Whether this end is the host's.
    pub local_is_host: bool,
    /// How many ways onto the network the peer has, as the manager told.
    pub peer_paths: usize,
}

/// One node's end of the link to one peer.
///
/// Down is terminal. Whoever owns a link that went down polls it until [`Link::poll_transmit`]
/// has nothing left (it says goodbye), ends what was outstanding on its bindings, and makes a new
/// one for the same peer when there is to be one.
#[derive(Debug)]
pub struct Link {
    local: NodeId,
    local_incarnation: u32,
    peer: NodeId,
    told_incarnation: Option<u32>,
    local_is_host: bool,
    config: LinkConfig,
    /// Of that, what is looked at for each acknowledgement.
    times: Times,
    state: LinkState,
    handshake: Handshake,
    peer_limits: PeerLimits,
    /// All that there could be; those in use come first.
    paths: Box<[Path]>,
    path_count: usize,
    /// For each path the bindings that may use it now, as bits.
    reach: [u64; MAX_PATHS],
    /// Paths that were lost or found, not polled yet.
    path_changes: u8,
    /// Paths that somebody who was not there is still to be told of.
    paths_to_tell: u8,
    channels: Channels,
    flight: Flight,
    out: Outbox,
    inbox: Inbox,
    /// When credits that came back and were not told are told.
    credit_at: Timer,
    /// When a binding that has reached its limit may send again.
    share_at: Timer,
    /// When a frame of this link last came.
    last_heard: Instant,
    up_event: bool,
    down_event: bool,
    /// Places whose binding failed, not polled yet.
    failures: u64,
    counters: Counters,
    bad_frames: BadFrames,
    fault: Option<Fault>,
}

impl Link {
    /// A link from `local` to `peer`, which has as many paths, with storage of its own.
    /// `peer_incarnation` is the peer's life as the manager told it; without it, any life that
    /// proves to be alive is taken.
    ///
    /// # Panics
    ///
    /// When `config` is outside the bounds that its fields name.
    pub fn new(
        local: NodeId,
        local_incarnation: u32,
        peer: NodeId,
        peer_incarnation: Option<u32>,
        local_is_host: bool,
        config: LinkConfig,
    ) -> Self {
        let peer_paths = config.paths;
        let ends =
            Ends { local, local_incarnation, peer, peer_incarnation, local_is_host, peer_paths };
        Self::with_storage(ends, config, LinkStorage::new(&config))
    }

    /// As [`Link::new`], in the storage of a link that is over, whose counts go on.
    ///
    /// # Panics
    ///
    /// When `config` is outside the bounds that its fields name, or is not for as much storage.
    pub fn with_storage(ends: Ends, config: LinkConfig, storage: LinkStorage) -> Self {
        assert!((MIN_FRAME..=MAX_FRAME).contains(&config.max_frame), "frame size out of bounds");
        assert!(config.ack_delay < config.min_rto, "an acknowledgement is no loss");
        assert!((1..=MAX_PATHS).contains(&config.paths), "paths out of bounds");
        let Ends { local, local_incarnation, peer, peer_incarnation, local_is_host, peer_paths } =
            ends;
        let LinkStorage { paths, channels, flight, out, inbox, counters, bad_frames } =
            storage.cleared(&config);
        let peer_limits =
            PeerLimits { frame: config.max_frame, window: LINK_WINDOW, tlp: TLP_BUFFER };
        Self {
            local,
            local_incarnation,
            peer,
            told_incarnation: peer_incarnation,
            local_is_host,
            state: LinkState::Opening,
            handshake: Handshake::new(&config),
            peer_limits,
            paths,
            path_count: config.paths.min(peer_paths).max(1),
            reach: [0; MAX_PATHS],
            path_changes: 0,
            paths_to_tell: 0,
            channels,
            flight,
            out,
            inbox,
            credit_at: Timer::STOPPED,
            share_at: Timer::STOPPED,
            last_heard: Instant::ZERO,
            up_event: false,
            down_event: false,
            failures: 0,
            counters,
            bad_frames,
            fault: None,
            times: Times::new(&config),
            config,
        }
    }

    /// Ends the link and gives its storage to the next.
    pub fn into_storage(self) -> LinkStorage {
        let Self { paths, channels, flight, out, inbox, counters, bad_frames, .. } = self;
        LinkStorage { paths, channels, flight, out, inbox, counters, bad_frames }
    }

    /// Where the link stands.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The peer's node number.
    pub fn peer(&self) -> NodeId {
        self.peer
    }

    /// Opens a binding. Both ends open the same one, in any order: TLPs wait at their sender until
    /// the other end has it open.
    ///
    /// # Errors
    ///
    /// [`ChannelError`].
    pub fn open_channel(&mut self, key: BindingKey) -> Result<ChannelId, ChannelError> {
        let opened = if matches!(self.state, LinkState::Down(_)) {
            Err(ChannelError::LinkDown)
        } else if self.out.unbinds.len() + self.channels.shared.open() as usize >= UNBIND_QUEUE {
            // Each that is open may be closed before the peer hears of those that were.
            Err(ChannelError::Full)
        } else {
            self.channels.open(key)
        };
        match opened {
            Ok(id) => {
                self.out.credits |= 1 << id.index;
                self.find_reach();
                self.share_buffers();
                self.failures &= !(1 << id.index);
            }
            Err(_) => self.counters.refused_channel += 1,
        }
        opened
    }

    /// Names the paths that a binding's TLPs take as long as one of them is usable: all, if
    /// nothing is said. What is sent again takes any.
    pub fn set_paths(&mut self, channel: ChannelId, paths: PathSet) {
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.paths = paths;
            self.find_reach();
        }
    }

    /// Says what a binding's device may send beside the others, with all its functions: as much as
    /// each of them, if nothing is said.
    pub fn set_share(&mut self, channel: ChannelId, share: Share) {
        if self.channels.get(channel).is_some() {
            let places = self.channels.turn(usize::from(channel.index)).set(share);
            self.out.guaranteed &= !places;
            self.out.guaranteed |= if share.guarantee > 0 { places } else { 0 };
            self.out.tlps |= places;
        }
    }

    /// Closes a binding: what is queued or stored for it is dropped, the peer is told, and what
    /// still comes for it is acknowledged, counted as stale and dropped. Nothing happens when it
    /// is closed already.
    pub fn close_channel(&mut self, channel: ChannelId) {
        let Some(key) = self.channels.get(channel).and_then(|c| c.key) else { return };
        self.abandon_sent(channel);
        self.abandon_reserved(channel);
        self.abandon_received(channel);
        self.channels.close(channel);
        self.share_buffers();
        let bit = 1 << channel.index;
        // Before the link is up the peer has heard nothing of it.
        if self.state == LinkState::Up {
            let kept = self.out.unbinds.push_back(key);
            assert!(kept.is_ok(), "there was room at its opening");
        }
        self.out.tlps &= !bit;
        self.out.sidebands &= !bit;
        self.out.guaranteed &= !bit;
        for path in &mut self.paths {
            path.sent_by &= !bit;
            path.heard &= !bit;
        }
        self.out.limited &= !bit;
        self.out.credits &= !bit;
        self.out.behind &= !bit;
        self.failures &= !bit;
    }

    /// The open or failed binding of this name.
    pub fn channel_of(&self, key: &BindingKey) -> Option<ChannelId> {
        self.channels.find(key)
    }

    /// Whether the peer has this binding open too, so that what is sent reaches it.
    pub fn is_peer_open(&self, channel: ChannelId) -> bool {
        self.channels.get(channel).is_some_and(|c| c.peer_open)
    }

    /// Takes the link down, and tells the peer if it is there.
    pub fn close(&mut self, _now: Instant, reason: LinkDownReason) {
        let goodbye = match reason {
            LinkDownReason::GaveUp => Some(CloseReason::GaveUp),
            LinkDownReason::PeerRestarted => Some(CloseReason::PeerRestarted),
            LinkDownReason::PeerClosed => None,
            LinkDownReason::Removed => Some(CloseReason::Removed),
            LinkDownReason::Protocol => Some(CloseReason::Protocol),
        };
        self.go_down(reason, goodbye);
    }

    /// Writes the next frame into `buffer`, which takes at least `config.max_frame` bytes. Call it
    /// until it gives nothing, after every other call that changes something.
    ///
    /// # Panics
    ///
    /// When `buffer` is too short.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        stamps: &mut Stamps,
    ) -> Option<Transmit> {
        if (self.state != LinkState::Up || self.handshake.has_word())
            && let Some(transmit) = self.poll_handshake(now, buffer)
        {
            return Some(transmit);
        }
        if self.state != LinkState::Up {
            return None;
        }
        self.poll_data(now, buffer, stamps)
    }

    /// As [`poll_transmit`](Self::poll_transmit), before other links' turns: no TLPs leave but those that
    /// are guaranteed to.
    pub(crate) fn poll_first(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        stamps: &mut Stamps,
    ) -> Option<Transmit> {
        self.out.first = true;
        let sent = self.poll_transmit(now, buffer, stamps);
        self.out.first = false;
        sent
    }

    /// What happened since the last call; `None` when everything was told.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        if core::mem::take(&mut self.up_event) {
            return Some(LinkEvent::Up);
        }
        if self.path_changes != 0 {
            let (path, is_good) = self.told(self.path_changes.trailing_zeros() as usize);
            let event = if is_good { LinkEvent::PathFound } else { LinkEvent::PathLost };
            return Some(event(path));
        }
        while self.failures != 0 {
            let index = self.failures.trailing_zeros() as usize;
            self.failures &= self.failures - 1;
            let channel = self.channels.id_at(index);
            if let Some(place) = self.channels.get(channel)
                && let (Phase::Failed(reason), Some(key)) = (place.phase, place.key)
            {
                return Some(LinkEvent::ChannelFailed { channel, key, reason });
            }
        }
        match self.state {
            LinkState::Down(reason) if core::mem::take(&mut self.down_event) => {
                Some(LinkEvent::Down(reason))
            }
            _ => None,
        }
    }

    /// A frame of this link came with Congestion Experienced in its IP header (RFC 3168); the
    /// peer is told and slows down.
    pub fn handle_congestion_mark(&mut self, path: PathId) {
        if let Some(path) = self.paths.get_mut(path.get() as usize) {
            path.marked = path.marked.wrapping_add(1);
        }
    }

    /// Every counter with its name: what went through, and a reason for each thing that was
    /// dropped, retried or refused.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut list = CounterList::default();
        list.add_all(&self.counters);
        list.add_all(&self.bad_frames);
        list.into_iter()
    }

    /// Adds what it counted.
    pub(crate) fn count_into(&self, sums: &mut Sums) {
        sums.add(&self.counters, &self.bad_frames);
        sums.hold(self.out.slab.in_use() + self.reserved() + self.inbox.slab.in_use());
    }

    /// By each path that was sent on since the link came up: frames sent, and of these how many the
    /// peer's acknowledgements showed to be lost.
    pub fn path_traffic(&self) -> impl Iterator<Item = (PathId, u64, u32)> {
        let used = self.paths().iter().enumerate().filter(|(_, path)| path.frames_sent > 0);
        used.map(|(index, path)| (path_id(index), path.frames_sent, path.losses))
    }

    /// Marks a binding as failed, because of something that only its owner can see.
    pub fn fail_channel(&mut self, channel: ChannelId, reason: BindingFailure) {
        if self.channels.get(channel).is_some() {
            self.fail(channel, reason);
        }
    }
}
