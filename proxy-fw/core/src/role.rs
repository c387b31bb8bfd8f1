//! What both roles have in common, for whoever runs one: frames, control messages and time.
//! The PCIe side differs: see [`crate::host::HostRole`] and [`crate::boxes::BoxRole`].

use crate::control::{ControlError, FromProxy, LogLevel, OperationId, PathAddress, Request, Term};
use crate::time::Instant;
use tlp_codec::ids::{NodeId, PathId};

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// To this node.
    pub peer: NodeId,
    /// By this path.
    pub path: PathId,
    /// The frame is so many bytes of the buffer.
    pub len: usize,
}

/// A proxy's role, as the loop around it sees it.
pub trait Role {
    /// The manager gave this node its number. A number once given does not change in this life.
    fn set_node(&mut self, node: NodeId);

    /// A frame came in. What is wrong with it is counted.
    fn handle_frame(&mut self, now: Instant, frame: &[u8]);

    /// As [`handle_frame`](Role::handle_frame), of a frame that came with Congestion Experienced
    /// in its IP header (RFC 3168): the peer is told, and slows down.
    fn handle_marked_frame(&mut self, now: Instant, frame: &[u8]);

    /// The next frame to send, written into `buf`, which holds the largest frame that the role's
    /// links make ([`LinkConfig::max_frame`](crate::link::LinkConfig::max_frame)).
    ///
    /// # Panics
    ///
    /// When `buf` is too short.
    fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Outgoing>;

    /// The manager asks for something. The answer comes out of [`Role::poll_control`], at once or
    /// when the operation has ended.
    fn handle_control(&mut self, now: Instant, id: OperationId, term: Term, request: &Request);

    /// Whether a manager of this term is obeyed, for requests that are not the role's but of what
    /// is around it: a card's firmware. Managers of earlier terms are not from then on.
    ///
    /// # Errors
    ///
    /// [`ControlError::StaleTerm`] when a later one was here.
    fn obey(&mut self, term: Term) -> Result<(), ControlError>;

    /// The connection to the manager was lost or made anew: answers to earlier requests are not
    /// wanted any more. What they began goes on. Whoever comes next is told of all paths, behind
    /// everything else that [`Role::poll_control`] has.
    fn control_reconnected(&mut self);

    /// The next message for the manager.
    fn poll_control(&mut self) -> Option<FromProxy>;

    /// Where frames to a peer go: its paths as the manager last told them. Nothing for a node that
    /// is no peer.
    fn peer_paths(&self, peer: NodeId) -> &[PathAddress];

    /// The proxy is about to stop: all links say goodbye, in what [`Role::poll_transmit`] gives
    /// next. They do not come back.
    fn close_links(&mut self, now: Instant);

    /// Whether the manager waits for counters, so that it is time to
    /// [`set_surroundings`](Role::set_surroundings).
    fn is_asked_for_counters(&self) -> bool;

    /// What is counted around the role, to be reported with its own: the port's counters, the
    /// devices'. At most [`SURROUNDINGS`](crate::limits::SURROUNDINGS) names; further ones are
    /// left out.
    fn set_surroundings(&mut self, counters: &[(&'static str, u64)]);

    /// The level that the manager wants logged from now on, once.
    fn poll_log_level(&mut self) -> Option<LogLevel>;

    /// When [`Role::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// A timer may have run out.
    fn handle_timeout(&mut self, now: Instant);

    /// Bytes of the packet pool: TLP buffers of all links, open or not, what says which of them is
    /// whose, and what the flight recorder keeps packets in. It was allocated when the role was made and
    /// stays as it is.
    fn packet_pool(&self) -> usize;

    /// Whether a stage ended that waits for its stamp.
    fn wants_mark(&self) -> bool;

    /// Gives the stages that ended since the last mark their time.
    fn mark(&mut self, now: Instant);
}

/// What a role has in hand: nothing of it is left when all is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InHand {
    /// Requests for devices that wait for a completion.
    pub to_devices: usize,
    /// Requests of devices that do.
    pub from_devices: usize,
    /// Tags of a host's ports that are used by nobody until what was asked under them has come.
    pub set_aside: usize,
    /// Queues, and rooms for one TLP, in which TLPs wait.
    pub queues: usize,
}

impl core::ops::Add for InHand {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            to_devices: self.to_devices + more.to_devices,
            from_devices: self.from_devices + more.from_devices,
            set_aside: self.set_aside + more.set_aside,
            queues: self.queues + more.queues,
        }
    }
}

/// Why a TLP was not taken from the PCIe side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backpressure;
