//! The small types of a link's interface.

use crate::control::{BindingFailure, LinkDownReason};
use crate::limits;
use crate::stamps::StampId;
use core::fmt;
use core::time::Duration;
use tlp_codec::fabric::{FrameError, RecordError, Sideband};
use tlp_codec::ids::{BindingKey, OutstandingRef, PathId};
use tlp_codec::tlp::Class;

/// Sizes and times of a link. The default is what software proxies use, from [`limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bound on the age of the oldest record that is not acknowledged.
    pub give_up: Duration,
    /// Largest frame that is built or taken, in bytes with its CRC; the peer's own bound counts
    /// too. At least [`limits::MIN_FRAME`], at most [`limits::MAX_FRAME`].
    pub max_frame: usize,
    /// The round trip that is assumed before one was measured.
    pub initial_rtt: Duration,
    /// Shortest retransmission timeout; longer than `ack_delay`.
    pub min_rto: Duration,
    /// Longest retransmission timeout that back-off reaches.
    pub max_rto: Duration,
    /// How long an acknowledgement waits for a frame that it can travel in.
    pub ack_delay: Duration,
    /// How long a few returned credits wait to become many.
    pub credit_delay: Duration,
    /// Silence on a link with open bindings after which the peer is asked for a sign of life.
    pub keep_alive: Duration,
    /// Longest pause between two tries to open; the first is `initial_rtt` long.
    pub max_open_retry: Duration,
    /// Ways that this node has onto the network, 1 to [`limits::MAX_PATHS`]. A link has as many
    /// paths as both its ends have.
    pub paths: usize,
    /// Bindings at a time, at most [`limits::MAX_CHANNELS`].
    pub channels: usize,
    /// TLP buffers that a receiver lends beyond each binding's guarantee.
    pub shared_receive: usize,
    /// TLP buffers that senders share beyond each class's guarantee.
    pub shared_send: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            give_up: limits::LINK_GIVE_UP,
            max_frame: limits::MAX_FRAME,
            initial_rtt: limits::LINK_INITIAL_RTT,
            min_rto: limits::LINK_MIN_RTO,
            max_rto: limits::LINK_MAX_RTO,
            ack_delay: limits::LINK_ACK_DELAY,
            credit_delay: limits::LINK_CREDIT_DELAY,
            keep_alive: limits::LINK_KEEP_ALIVE,
            max_open_retry: limits::LINK_OPEN_RETRY,
            paths: 1,
            channels: limits::MAX_CHANNELS,
            shared_receive: limits::SHARED_RECEIVE,
            shared_send: limits::SHARED_SEND,
        }
    }
}

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// The peer has not answered yet.
    Opening,
    /// Both ends know each other.
    Up,
    /// Terminal: a further link to the same peer is a new [`super::Link`].
    Down(LinkDownReason),
}

/// One binding on a link, for as long as it is open. A later binding never equals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelId {
    pub(super) index: u8,
    pub(super) life: u16,
}

/// Why a binding cannot be opened on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// All places are taken.
    Full,
    /// It is open already.
    AlreadyOpen,
    /// It was open once; an epoch has one life.
    WasClosed,
    /// Slot 0 is a host's end and no device.
    NotASlot,
    /// The link is down.
    LinkDown,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the link has no room for a further binding",
            Self::AlreadyOpen => "the binding is open already",
            Self::WasClosed => "the binding was open once; bind again under a new epoch",
            Self::NotASlot => "slot 0 is the host's end and cannot be bound",
            Self::LinkDown => "the link is down",
        })
    }
}

impl core::error::Error for ChannelError {}

/// Why something cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The class's queue is full; try again when [`super::Link::can_send`] says so.
    Full,
    /// The binding is not open.
    Closed,
    /// The binding failed; only closing it is left.
    Failed,
    /// The link is down.
    LinkDown,
    /// The TLP is larger than one buffer of this end or of the peer.
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The most that can be sent, in bytes.
        max: usize,
    },
    /// Fewer bytes than a header, or no multiple of four.
    NotATlp,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the class's queue is full"),
            Self::Closed => f.write_str("the binding is not open"),
            Self::Failed => f.write_str("the binding failed"),
            Self::LinkDown => f.write_str("the link is down"),
            Self::TooLong { length, max } => {
                write!(f, "a TLP of {length} bytes is larger than a buffer ({max} bytes)")
            }
            Self::NotATlp => f.write_str("the bytes cannot be a TLP"),
        }
    }
}

impl core::error::Error for SendError {}

/// Why a frame was not taken. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDropped {
    /// It is no right frame.
    Malformed(FrameError),
    /// Its destination is another node.
    NotForUs,
    /// Its source is not the peer of this link.
    NotFromPeer,
    /// It belongs to another life of either end.
    OtherIncarnation,
    /// It belongs to an earlier link between the same two lives.
    OtherSession,
    /// The link is not up yet.
    NotUp,
    /// The link is down.
    LinkDown,
    /// It came from the peer and is right, but says what the protocol forbids: the link is down
    /// from now on.
    Violation(Violation),
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A right frame holds bytes that are no record.
    Record(RecordError),
    /// It acknowledges what was never sent.
    Acknowledgement,
    /// It sent more than it had credit for.
    Credit,
    /// A TLP is larger than this end said it takes.
    TlpTooLong,
    /// The parts of a split TLP do not make one.
    Split,
    /// No version in common, or limits that cannot work.
    Open,
}

/// What the link must know of a TLP that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpMeta {
    /// Ordering and flow-control class.
    pub class: Class,
    /// The request's entry, of non-posted requests and completions.
    pub outstanding: Option<OutstandingRef>,
    /// Relaxed ordering (RO): a completion may pass posted TLPs.
    pub relaxed: bool,
    /// Its stamps, if it is sampled; the record's flag tells the other end.
    pub stamp: Option<StampId>,
}

/// Some of the three classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassSet(u8);

impl ClassSet {
    /// None.
    pub const NONE: ClassSet = ClassSet(0);
    /// All three.
    pub const ALL: ClassSet = ClassSet(0b111);

    /// With one more.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class as u8)
    }

    /// Without one.
    #[must_use]
    pub const fn without(self, class: Class) -> Self {
        Self(self.0 & !(1 << class as u8))
    }

    /// Those that another one has, too.
    #[must_use]
    pub const fn and(self, other: ClassSet) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether a class is in it.
    pub const fn contains(self, class: Class) -> bool {
        self.0 & 1 << class as u8 != 0
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// What came with a TLP that was [taken](super::Link::take_received).
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Its class, as the sender said.
    pub class: Class,
    /// The request's entry, as the sender said.
    pub outstanding: Option<OutstandingRef>,
    /// Its stamps, if it is sampled.
    pub stamp: Option<StampId>,
    /// Its bytes.
    pub length: usize,
}

/// A place in the order of what a link has taken, to be compared with others of that link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkOrder(pub(super) u64);

impl LinkOrder {
    /// Behind all that can be taken.
    pub(super) const END: Self = Self(u64::MAX);
}

/// A sideband record that was [taken](super::Link::poll_sideband).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSideband {
    /// Whose it is.
    pub channel: ChannelId,
    /// What it says.
    pub record: Sideband,
    /// Where it came: what was taken before it is of before what it tells.
    pub at: LinkOrder,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The path to send it on.
    pub path: PathId,
    /// Its length in bytes.
    pub len: usize,
}

/// What a link tells by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Both ends know each other.
    Up,
    /// The link is down for good: everything on it is over.
    Down(LinkDownReason),
    /// What this end sends by a path does not arrive: the others carry it.
    PathLost(PathId),
    /// What this end sends by a path arrives, or does again.
    PathFound(PathId),
    /// One binding is over; the link goes on.
    ChannelFailed {
        /// Which.
        channel: ChannelId,
        /// Its name.
        key: BindingKey,
        /// Why.
        reason: BindingFailure,
    },
}
