//! What a node is in either role: its links, its stamps, its talk with the manager.

mod turns;

use self::turns::{Turn, Turns};
use crate::answers::{Answer, Outbound, Page, page};
use crate::bits::{ones, ones_from};
use crate::canaries::{Canary, planted};
use crate::control::{
    ControlError, Event, FromProxy, Limit, LinkDownReason, LogLevel, OperationId, PathAddress,
    PathSet, Peer, Reply, Request, Share, Term,
};
use crate::counters::CounterList;
use crate::limits::{ANSWER_QUEUE, EVENT_QUEUE, MAX_PEERS, MIN_FRAME, OPERATIONS, SURROUNDINGS};
use crate::link::{
    BadFrames, ChannelError, ChannelId, Ends, Link, LinkConfig, LinkEvent, LinkState, LinkStorage,
    Sums,
};
use crate::malformed::Malformed;
use crate::role::Outgoing;
use crate::stamps::{StampId, StampKey, StampRecord, StampedTlp, Stamps};
use crate::time::{Earliest, Instant};
use alloc::boxed::Box;
use heapless::{Deque, Vec};
use tlp_codec::fabric::Frame;
use tlp_codec::ids::{BindingKey, NodeId};

/// A link and whom it leads to, made when the manager introduces the peer.
pub(crate) struct PeerLink {
    pub(crate) peer: Peer,
    pub(crate) link: Link,
    turn: Turn,
}

/// Where the TLPs of a binding go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Index of the peer.
    pub(crate) peer: usize,
    pub(crate) node: NodeId,
    pub(crate) channel: ChannelId,
    pub(crate) key: BindingKey,
}

impl Target {
    /// What joins the stamps of a TLP that goes there.
    pub(crate) fn stamp_key(&self, from_host: bool, tlp: StampedTlp) -> StampKey {
        StampKey { peer: self.node, binding: self.key, from_host, tlp }
    }
}

pub(crate) struct Node {
    id: Option<NodeId>,
    incarnation: u32,
    is_host: bool,
    link_config: LinkConfig,
    /// The index of a peer stays the same as long as it is known.
    pub(crate) peers: Box<[Option<PeerLink>]>,
    /// Which places have a peer, as bits: few do, and they lie far from each other.
    known: u32,
    /// Of every place without a peer.
    storages: alloc::vec::Vec<LinkStorage>,
    /// Bytes that all links together have.
    packet_pool: usize,
    pub(crate) stamps: Stamps,
    pub(crate) malformed: Malformed,
    term: Term,
    answers: Deque<(OperationId, Result<Answer, ControlError>), { ANSWER_QUEUE + OPERATIONS }>,
    events: Deque<(u64, Event), EVENT_QUEUE>,
    sequence: u64,
    turns: Turns,
    bad_frames: BadFrames,
    frames_from_strangers: u64,
    events_dropped: u64,
    requests_refused: u64,
    surroundings: Vec<(&'static str, u64), SURROUNDINGS>,
    /// What the manager wants logged, until somebody takes it.
    log_level: Option<LogLevel>,
}

impl Node {
    #[inline(never)] // it is done once: short code counts
    pub(crate) fn new(
        incarnation: u32,
        is_host: bool,
        peers: usize,
        link_config: LinkConfig,
        recorder: usize,
    ) -> Self {
        assert!((1..=MAX_PEERS).contains(&peers), "a node has 1 to {MAX_PEERS} peers");
        let storages: alloc::vec::Vec<_> =
            (0..peers).map(|_| LinkStorage::new(&link_config)).collect();
        let stamps = Stamps::with_recorder(recorder);
        Self {
            id: None,
            incarnation,
            is_host,
            link_config,
            peers: core::iter::repeat_with(|| None).take(peers).collect(),
            known: 0,
            packet_pool: storages.iter().map(LinkStorage::allocated).sum::<usize>()
                + stamps.recorder.allocated(),
            storages,
            stamps,
            malformed: Malformed::new(),
            term: Term(0),
            answers: Deque::new(),
            events: Deque::new(),
            sequence: 0,
            turns: Turns::default(),
            bad_frames: BadFrames::default(),
            frames_from_strangers: 0,
            events_dropped: 0,
            requests_refused: 0,
            surroundings: Vec::new(),
            log_level: None,
        }
    }

    /// Bytes that all links together have, open or not.
    pub(crate) fn packet_pool(&self) -> usize {
        self.packet_pool
    }

    pub(crate) fn set_id(&mut self, id: NodeId) {
        assert!(self.id.is_none_or(|old| old == id), "a node's number changed in its life");
        self.id = Some(id);
    }

    pub(crate) fn peer_index(&self, node: NodeId) -> Option<usize> {
        self.known_peers().find(|(_, p)| p.peer.node == node).map(|(index, _)| index)
    }

    /// The indices of all peers.
    pub(crate) fn known(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.known)
    }

    /// All peers, and their indices.
    fn known_peers(&self) -> impl Iterator<Item = (usize, &PeerLink)> {
        ones(self.known).filter_map(|index| Some((index, self.peers[index].as_ref()?)))
    }

    pub(crate) fn link(&mut self, index: usize) -> &mut Link {
        &mut self.peers[index].as_mut().expect("an index is used while its peer is known").link
    }

    /// As [`link`](Self::link), to look at.
    pub(crate) fn link_of(&self, index: usize) -> &Link {
        &self.peers[index].as_ref().expect("an index is used while its peer is known").link
    }

    /// Gives a frame to the link that it came over.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        marked: bool,
    ) -> Option<usize> {
        let frame = match Frame::new_checked(frame) {
            Ok(frame) => frame,
            Err(error) => {
                if !planted(Canary::DropUncounted) {
                    self.bad_frames.count(error);
                }
                return None;
            }
        };
        let Some(index) = self.peer_index(frame.source()) else {
            self.frames_from_strangers += 1;
            return None;
        };
        if self.stamps.recorder.wants_frames() {
            let peer = frame.source();
            self.stamps.recorder.frame(now, peer, true, !self.is_host, &frame);
        }
        // The link counts what it drops.
        let PeerLink { link, .. } = self.peers[index].as_mut().expect("it was found just now");
        let taken = link.handle_checked_frame(now, &frame, &mut self.stamps);
        if marked && taken.is_ok() {
            link.handle_congestion_mark(frame.header().path);
        }
        Some(index)
    }

    /// The next frame of any link. Links take turns as bindings of a link do: as many bytes each as those
    /// weigh that send by it. What is guaranteed goes before all turns, and an acknowledgement that waited
    /// for as long as it may.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Outgoing> {
        let several = self.known & self.known.wrapping_sub(1) != 0;
        if several
            && self.turns.may_go_first()
            && let Some(outgoing) = self.poll_first(now, buf)
        {
            return Some(outgoing);
        }
        let mut asked = self.known;
        loop {
            let mut owing = 0;
            for index in ones_from(self.turns.next, asked) {
                if several && !self.has_turn(index) {
                    owing |= 1 << index;
                } else if let Some(outgoing) = self.poll_peer(now, index, false, buf) {
                    return Some(outgoing);
                }
            }
            if owing == 0 {
                return None;
            }
            // The others have nothing to send.
            asked = owing;
        }
    }

    /// The next frame of a link that waits for no turn.
    #[inline(never)] // few nodes have several links that all want to send: short code counts
    fn poll_first(&mut self, now: Instant, buf: &mut [u8]) -> Option<Outgoing> {
        for index in ones_from(self.turns.first, self.known) {
            if self.link(index).goes_first(now)
                && let Some(outgoing) = self.poll_peer(now, index, true, buf)
            {
                return Some(outgoing);
            }
        }
        None
    }

    /// Whether a link may send in its turn, which may begin with that.
    fn has_turn(&mut self, index: usize) -> bool {
        let with = self.peers[index].as_mut();
        with.is_some_and(|PeerLink { link, turn, .. }| turn.begins(link.weight()))
    }

    /// The next frame of a link, in its turn or before all turns. What it has left of its turn when it has
    /// none is lost.
    fn poll_peer(
        &mut self,
        now: Instant,
        index: usize,
        first: bool,
        buf: &mut [u8],
    ) -> Option<Outgoing> {
        let PeerLink { peer, link, turn } = self.peers[index].as_mut()?;
        let sent = match first {
            true => link.poll_first(now, buf, &mut self.stamps),
            false => link.poll_transmit(now, buf, &mut self.stamps),
        };
        let Some(transmit) = sent else {
            if !first {
                turn.ends();
            }
            return None;
        };
        match first {
            true => self.turns.went_first(index, turn, transmit.len),
            false => self.turns.sent(index, turn, transmit.len),
        }
        if self.stamps.recorder.wants_frames() {
            let sent = &buf[..transmit.len];
            self.stamps.recorder.sent_frame(now, peer.node, self.is_host, sent);
        }
        Some(Outgoing { peer: peer.node, path: transmit.path, len: transmit.len })
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut first = Earliest::NONE;
        self.known_peers().for_each(|(_, p)| first.or(p.link.poll_timeout()));
        first.get()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for index in ones(self.known) {
            let link = self.link(index);
            if link.poll_timeout().is_some_and(|at| at <= now) {
                link.handle_timeout(now);
            }
        }
    }

    /// Whether TLPs of any peer are stored.
    pub(crate) fn has_received(&self) -> bool {
        self.known_peers().any(|(_, p)| p.link.next_with_received(None).is_some())
    }

    pub(crate) fn poll_link_event(&mut self) -> Option<(usize, LinkEvent)> {
        ones(self.known).find_map(|index| Some((index, self.link(index).poll_event()?)))
    }

    /// Whether a request may be begun: its term is not stale and its answer has room.
    pub(crate) fn admit(&mut self, id: OperationId, term: Term) -> bool {
        if self.answers.len() >= ANSWER_QUEUE {
            self.requests_refused += 1;
            return false;
        }
        let obeyed = self.obey(term);
        if let Err(stale) = obeyed {
            self.answer(id, Err(stale));
        }
        obeyed.is_ok()
    }

    /// As [`Role::obey`](crate::role::Role::obey).
    pub(crate) fn obey(&mut self, term: Term) -> Result<(), ControlError> {
        if term < self.term && !planted(Canary::IgnoreTerm) {
            return Err(ControlError::StaleTerm(self.term));
        }
        self.term = term;
        Ok(())
    }

    pub(crate) fn answer(&mut self, id: OperationId, result: Result<Answer, ControlError>) {
        if id.0 % 8 == 5 && planted(Canary::SwallowAnswer) {
            return;
        }
        let room = self.answers.push_back((id, result)).is_ok();
        assert!(room, "`admit` keeps room");
    }

    /// Takes the requests that are the same for both roles. `None`: not one of those. That a
    /// peer to be removed is not in use is the role's to check.
    pub(crate) fn handle_common(
        &mut self,
        now: Instant,
        request: &Request,
    ) -> Option<Result<Answer, ControlError>> {
        Some(match request {
            Request::SetPeer(peer) => self.set_peer(now, peer),
            Request::RemovePeer(node) => {
                if let Some(index) = self.peer_index(*node) {
                    self.link(index).close(now, LinkDownReason::Removed);
                    self.end_link(index);
                }
                Ok(Answer::Done)
            }
            Request::SetSampling(sampling) => {
                self.stamps.clear();
                self.stamps.set_sampling(*sampling);
                Ok(Answer::Done)
            }
            Request::ReadTable { from } => Ok(Answer::Page(Page::Table, *from)),
            Request::ReadInventory { from } => Ok(Answer::Page(Page::Inventory, *from)),
            Request::ReadCounters { from } => Ok(Answer::Page(Page::Counters, *from)),
            Request::ReadStamps { from } => Ok(Answer::Page(Page::Stamps, *from)),
            Request::SetRecorder(list) if list.is_empty() || self.stamps.recorder.has_room() => {
                self.stamps.recorder.set(list);
                Ok(Answer::Done)
            }
            Request::SetRecorder(_) => Err(ControlError::NoRecorder),
            Request::ReadRecorder { from } => Ok(Answer::Recorder(*from, now)),
            Request::SetLogLevel(level) => {
                self.log_level = Some(*level);
                Ok(Answer::Done)
            }
            // A card takes it before it gets here.
            Request::Firmware(_) => Err(ControlError::NoFirmware),
            _ => return None,
        })
    }

    /// Closes the link to a peer that the manager introduces with another life than the one the
    /// link is with. The role hears of it by the link's event, before the new link is made.
    pub(crate) fn close_earlier_life(&mut self, now: Instant, peer: &Peer) {
        if let Some(index) = self.peer_index(peer.node)
            && self.peers[index].as_ref().is_some_and(|p| p.peer.incarnation != peer.incarnation)
        {
            self.link(index).close(now, LinkDownReason::PeerRestarted);
        }
    }

    fn set_peer(&mut self, now: Instant, peer: &Peer) -> Result<Answer, ControlError> {
        let local = self.id.expect("requests come after Welcome");
        if peer.node == local {
            return Err(ControlError::UnknownPeer(peer.node));
        }
        let known = self.peer_index(peer.node);
        if let Some(PeerLink { peer: before, link, .. }) =
            known.and_then(|i| self.peers[i].as_mut())
            && before.incarnation == peer.incarnation
            && !matches!(link.state(), LinkState::Down(_))
        {
            *before = peer.clone();
            link.set_peer_paths(now, peer.paths.len());
            return Ok(Answer::Done);
        }
        let free = || self.peers.iter().position(Option::is_none);
        let index = known.or_else(free).ok_or(ControlError::Limit(Limit::Peers))?;
        let mut config = self.link_config;
        config.max_frame = config.max_frame.min((peer.mtu as usize).max(MIN_FRAME));
        let ends = Ends {
            local,
            local_incarnation: self.incarnation,
            peer: peer.node,
            peer_incarnation: Some(peer.incarnation),
            local_is_host: self.is_host,
            peer_paths: peer.paths.len(),
        };
        self.end_link(index);
        let storage = self.storages.pop().expect("each place without a peer has storage");
        let link = Link::with_storage(ends, config, storage);
        self.peers[index] = Some(PeerLink { peer: peer.clone(), link, turn: Turn::default() });
        self.known |= 1 << index;
        Ok(Answer::Done)
    }

    /// Forgets a peer, if there is one at the index, and keeps the storage of its link.
    fn end_link(&mut self, index: usize) {
        self.known &= !(1 << index);
        if let Some(PeerLink { link, .. }) = self.peers[index].take() {
            self.storages.push(link.into_storage());
        }
    }

    /// Opens a binding on the link to a peer.
    pub(crate) fn open_channel(
        &mut self,
        peer: usize,
        key: BindingKey,
        paths: PathSet,
        share: Share,
    ) -> Result<ChannelId, ControlError> {
        let node = self.peer_node(peer).expect("an index is used while its peer is known");
        let link = self.link(peer);
        let channel = link.open_channel(key).map_err(|error| match error {
            ChannelError::LinkDown => ControlError::LinkDown(node),
            ChannelError::WasClosed => ControlError::StaleEpoch(key.epoch),
            ChannelError::AlreadyOpen => ControlError::InUse(key.epoch),
            ChannelError::NotASlot => ControlError::NoSuchSlot(key.slot),
            ChannelError::Full => ControlError::Limit(Limit::Channels),
        })?;
        link.set_paths(channel, paths);
        link.set_share(channel, share);
        Ok(channel)
    }

    /// As [`Role::peer_paths`](crate::role::Role::peer_paths).
    pub(crate) fn peer_paths(&self, peer: NodeId) -> &[PathAddress] {
        let known = self.known_peers().find(|(_, p)| p.peer.node == peer);
        known.map_or(&[], |(_, p)| &p.peer.paths)
    }

    /// As [`Role::close_links`](crate::role::Role::close_links).
    pub(crate) fn close_links(&mut self, now: Instant) {
        for peer in self.peers.iter_mut().flatten() {
            peer.link.close(now, LinkDownReason::Removed);
        }
    }

    /// As [`Role::is_asked_for_counters`](crate::role::Role::is_asked_for_counters).
    pub(crate) fn is_asked_for_counters(&self) -> bool {
        self.answers.iter().any(|(_, a)| matches!(a, Ok(Answer::Page(Page::Counters, _))))
    }

    /// As [`Role::set_surroundings`](crate::role::Role::set_surroundings).
    pub(crate) fn set_surroundings(&mut self, counters: &[(&'static str, u64)]) {
        self.surroundings.clear();
        for &(name, value) in counters {
            match self.surroundings.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                // Further ones are left out.
                None => _ = self.surroundings.push((name, value)),
            }
        }
    }

    /// As [`Role::poll_log_level`](crate::role::Role::poll_log_level).
    pub(crate) fn poll_log_level(&mut self) -> Option<LogLevel> {
        self.log_level.take()
    }

    /// Number of the peer at an index.
    pub(crate) fn peer_node(&self, index: usize) -> Option<NodeId> {
        self.peers[index].as_ref().map(|p| p.peer.node)
    }

    /// Queues an event about a peer, if there is one.
    pub(crate) fn event_for(&mut self, peer: Option<NodeId>, event: impl FnOnce(NodeId) -> Event) {
        if let Some(peer) = peer {
            self.event(event(peer));
        }
    }

    /// Queues an event; the oldest one gives way when there is no room.
    pub(crate) fn event(&mut self, event: Event) {
        if self.events.is_full() {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        let _ = self.events.push_back((self.sequence, event));
        self.sequence += 1;
    }

    /// Nobody waits for answers any more, and nobody reads what is recorded: whoever comes next
    /// says what is to be, and is told of paths, which are in no table.
    pub(crate) fn forget_conversation(&mut self) {
        self.answers.clear();
        self.stamps.recorder.stop();
        for peer in self.known() {
            self.link(peer).tell_paths();
        }
    }

    fn poll_told_path(&mut self) -> Option<Event> {
        ones(self.known).find_map(|index| {
            let PeerLink { peer, link, .. } = self.peers[index].as_mut()?;
            let peer = peer.node;
            let (path, is_good) = link.poll_told_path()?;
            Some(match is_good {
                true => Event::PathFound { peer, path },
                false => Event::PathLost { peer, path },
            })
        })
    }

    /// The next thing for the manager: an answer, else an event, else a path that it missed.
    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        if let Some((id, result)) = self.answers.pop_front() {
            let result = match result {
                Ok(Answer::Page(page, from)) => return Some(Outbound::Page(id, page, from)),
                Ok(Answer::Done) => Ok(Reply::Done),
                Ok(Answer::Slot(state)) => Ok(Reply::Slot(state)),
                Ok(Answer::Erasure(erasure)) => Ok(Reply::Erasure(erasure)),
                Ok(Answer::Removed { orderly }) => Ok(Reply::Removed { orderly }),
                Ok(Answer::Recorder(from, asked)) => {
                    return Some(Outbound::Recorder(id, from, asked));
                }
                Err(error) => Err(error),
            };
            return Some(Outbound::Message(FromProxy::Response { id, result }));
        }
        // What the manager missed of paths comes behind everything that waits: nothing gives way.
        if self.events.is_empty()
            && let Some(path) = self.poll_told_path()
        {
            self.event(path);
        }
        let (sequence, event) = self.events.pop_front()?;
        Some(Outbound::Message(FromProxy::Event { sequence, event }))
    }

    /// Stamps of a request that the PCIe side hands in now, if it is one that is to be stamped.
    pub(crate) fn sample(&mut self, now: Instant, key: StampKey) -> Option<StampId> {
        let mut sampled = self.stamps.sample();
        if self.stamps.recorder.wants_stamps() {
            sampled |= self.stamps.recorder.sample(&key);
        }
        sampled.then(|| self.stamps.arrived(key, now))
    }

    /// A page of the stamps.
    pub(crate) fn stamps_page(&self, from: u16) -> Reply {
        let entries = self.stamps.places().map(|record| record.map(StampRecord::entry));
        let (entries, next) = page(entries, from);
        Reply::Stamps { entries, next }
    }

    /// The counters of the node and of all its links together, each once.
    pub(crate) fn list_counters(&self, list: &mut CounterList) {
        list.add([
            ("frames dropped: from an unknown node", self.frames_from_strangers),
            ("events dropped: queue full", self.events_dropped),
            ("requests of the manager not begun: answers wait", self.requests_refused),
            ("stamps not taken: too many stages at once", self.stamps.lost()),
            ("recorder: entries lost for lack of room", self.stamps.recorder.lost()),
        ]);
        list.add(self.surroundings.iter().copied());
        self.malformed.list(list);
        let mut links = Sums::default();
        links.add_frames(&self.bad_frames);
        self.peers.iter().flatten().for_each(|p| p.link.count_into(&mut links));
        self.storages.iter().for_each(|storage| storage.count_into(&mut links));
        links.list(list);
    }
}

const _: () = assert!(MAX_PEERS <= u32::BITS as usize, "peers are bits of a word");
