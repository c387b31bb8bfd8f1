//! Every limit of the core, with the relations between them checked at compile time.
//!
//! What happens when one is reached is said here, beside it. How much is stored is another matter
//! in a program with megabytes than on a card: the numbers for the one are in `software.rs`, those
//! for the other in `card.rs`, which `--cfg dxpu_limits="card"` chooses. (It is no feature of the
//! crate: features of one build are united, and one build would have a card's limits for all.)
//! Nodes with different numbers work together: what a peer must know, a link tells it.

#[cfg(dxpu_limits = "card")]
#[path = "card.rs"]
mod sizes;
#[cfg(not(dxpu_limits = "card"))]
#[path = "software.rs"]
mod sizes;

use core::time::Duration;

/// Downstream ports of a host proxy's virtual switch. Binding to a further one is refused.
pub const MAX_PORTS: usize = 32;

/// Slots of a box proxy. Configuration with more is refused.
pub const MAX_SLOTS: usize = 16;

/// Functions of one slot that can be bound each on its own.
pub const MAX_FUNCTIONS: usize = 8;

/// Functions of one slot that a box keeps. Inventory beyond them is not reported.
pub const SLOT_FUNCTIONS: usize = sizes::SLOT_FUNCTIONS;

/// Nodes that one proxy has a link to at a time. A further peer is refused.
pub const MAX_PEERS: usize = 32;

/// Bindings (slot, function, epoch) on one link. A further one is refused.
pub const MAX_CHANNELS: usize = 32;

/// Closed bindings of one link that the peer was not told of yet, with those that are open and may
/// be closed next. When there are so many, opening a further one is refused.
pub const UNBIND_QUEUE: usize = 2 * MAX_CHANNELS;

/// Functions of a box that are ever lent on one link: what a box has. Opening a binding of a
/// further one is refused.
pub const LINK_FUNCTIONS: usize = MAX_SLOTS * MAX_FUNCTIONS;

/// Paths between two nodes. A link uses as many as both ends have; configuration with more is
/// refused.
pub const MAX_PATHS: usize = 8;

/// DMA windows of one slot's function. A bind with more is refused.
pub const MAX_WINDOWS: usize = 8;

/// Data payload of one TLP that is offered to devices and hosts, in bytes (Device Capabilities'
/// Max_Payload_Size Supported): a power of two, 128 to 4096. A larger TLP is malformed and dropped.
pub const MAX_PAYLOAD_OFFERED: usize = sizes::MAX_PAYLOAD_OFFERED;

/// Bytes of storage for one TLP: prefixes, header, payload, digest, rounded up. TLPs that do not
/// fit are malformed and dropped.
pub const TLP_BUFFER: usize = 20 + 16 + MAX_PAYLOAD_OFFERED + 4;

/// Bytes of the longest TLP that is stored closer to others than [`TLP_BUFFER`] would have it. None
/// on a card: it has no pages, and no memory to spare.
pub const SHORT_TLP: usize = sizes::SHORT_TLP;

/// Bytes of the longest TLP that a proxy makes on its own account: four doublewords of header, and
/// one of data.
pub const OWN_TLP: usize = 20;

/// Posted TLPs that a receiver stores for one binding at most: what it grants as credit while the
/// binding is busy. The sender keeps what has no credit in its own class queue.
pub const CREDITS_POSTED: usize = sizes::CREDITS_POSTED;
/// As [`CREDITS_POSTED`], for non-posted requests: as many as a device can have outstanding, since
/// they bound its reads' bandwidth.
pub const CREDITS_NON_POSTED: usize = DEVICE_OUTSTANDING;
/// As [`CREDITS_POSTED`], for completions.
pub const CREDITS_COMPLETION: usize = sizes::CREDITS_COMPLETION;

/// The three above, by class.
pub const CREDIT_TARGETS: [u32; 3] =
    [CREDITS_POSTED as u32, CREDITS_NON_POSTED as u32, CREDITS_COMPLETION as u32];

/// Credits, by class, that every binding has whatever the others do. The rest, up to the targets,
/// comes out of [`SHARED_RECEIVE`].
pub const GUARANTEED_CREDITS: [u32; 3] = sizes::GUARANTEED_CREDITS;

/// TLP buffers of one link's receiver beyond the guarantees of [`MAX_CHANNELS`] bindings. When
/// they are all lent, no binding is granted more than it has.
pub const SHARED_RECEIVE: usize = sizes::SHARED_RECEIVE;

/// TLPs of each class that wait at the sender or are sent and not acknowledged, for one binding.
/// When so many are there the PCIe side is told to wait (backpressure).
/// Completions are more than a receiver stores: room is kept here for all that a read may be
/// answered with before it is let through to the root complex.
pub const SEND_QUEUES: [usize; 3] = [CREDITS_POSTED, CREDITS_NON_POSTED, sizes::SEND_COMPLETIONS];

/// Of [`SEND_QUEUES`], what every class of every binding has whatever the others do. The rest
/// comes out of [`SHARED_SEND`], and no class of a binding has more than that divided by the open
/// bindings.
pub const GUARANTEED_SEND: usize = sizes::GUARANTEED_SEND;

/// TLP buffers of one link's sender beyond the guarantees. When they are all in use, the PCIe side
/// is told to wait (backpressure).
pub const SHARED_SEND: usize = sizes::SHARED_SEND;

/// Sideband records of one binding that wait at the sender, and that a receiver stores. A further
/// one is refused.
pub const SIDEBAND_QUEUE: usize = 8;

/// Records in flight on one link, sent and not acknowledged. Further records wait.
pub const LINK_WINDOW: usize = sizes::LINK_WINDOW;

/// Whether what a later frame has overtaken is lost when its time is over, although nothing more comes
/// back by then; otherwise that waits until the path is doubted, or for the retransmission timeout.
pub const LOSS_TIMER: bool = sizes::LOSS_TIMER;

/// Frames with records that one acknowledgement waits for at most.
pub const ACK_EVERY: u16 = 8;

/// Non-posted requests of the host outstanding at one downstream port. A further one waits
/// in front of the port.
pub const HOST_OUTSTANDING: usize = sizes::HOST_OUTSTANDING;

/// Of [`HOST_OUTSTANDING`], what other devices' requests leave to the host. A request between
/// devices that finds no more than this waits, and so does what comes behind it.
pub const HOST_RESERVED: usize = sizes::HOST_RESERVED;

/// Non-posted requests of one function of a box outstanding. A further one waits. More than the 256
/// that 8-bit tags tell apart are for functions that can use 10-bit tags, of which there are 768
/// (PCIe 5.0 section 2.2.6.2).
pub const DEVICE_OUTSTANDING: usize = sizes::DEVICE_OUTSTANDING;

/// Whether a function that can use 10-bit tags is allowed to.
pub const TEN_BIT_TAGS: bool = DEVICE_OUTSTANDING > 256;

/// Non-posted requests of the devices of one port outstanding at the root complex, which may know
/// 8-bit tags only. A further one waits in the link's receive storage, close to the root complex.
pub const ROOT_OUTSTANDING: usize = if TEN_BIT_TAGS { 256 } else { DEVICE_OUTSTANDING };

/// Requests of hosts outstanding at one slot's device: device-side tags (8 bits). A further one
/// waits in the link's receive storage.
pub const DEVICE_TAGS: usize = sizes::DEVICE_TAGS;

/// Largest frame that is built or taken, in bytes, without the Ethernet header.
pub const MAX_FRAME: usize = 9000;
/// Smallest MTU that is usable: a frame with one unsplit header record and some data.
pub const MIN_FRAME: usize = 512;

/// Frames of at most so many bytes are sent on a path that larger ones seem not to get through
/// (BASE_PLPMTU of RFC 8899). Every record fits into one: a TLP that does not is split.
pub const SAFE_FRAME: usize = 1200;

/// Sampled TLPs whose stage stamps are kept. The oldest is overwritten.
pub const STAMP_RING: usize = sizes::STAMP_RING;

/// Bindings that are recorded at a time. A list with more does not decode.
pub const MAX_RECORDED: usize = 32;

/// Bytes of entries that a recorder keeps for the manager by default. When they are full, what is
/// new is lost and counted.
pub const RECORDER_RING: usize = sizes::RECORDER_RING;

/// Bytes of recorded entries in one answer. A longer entry is lost and counted; the longest frame's
/// is shorter. No more than makes an answer as large as other answers are: all are moved alike. None
/// where there is no recorder.
pub const RECORDER_PIECE: usize = sizes::RECORDER_PIECE;

/// Bytes of the longest frame that is recorded. A longer one is lost and counted: a program has none,
/// and a card none whose Ethernet carries 1500 bytes.
pub const RECORDED_FRAME: usize = sizes::RECORDED_FRAME;

const _: () =
    assert!(!HAS_RECORDER || RECORDED_FRAME + 128 < RECORDER_PIECE, "an entry fits an answer");

/// Whether there is a recorder. Where there is none, no code of it is left.
pub const HAS_RECORDER: bool = RECORDER_PIECE > 0;

/// Entries of a table in one answer to the manager; more are read with the cursor.
pub const PAGE: usize = sizes::PAGE;

/// Bytes of the longest message of a proxy to the manager, without its length: a whole page.
pub const MAX_ANSWER: usize = sizes::MAX_ANSWER;

/// Events for the manager that wait to be polled. When it is full the oldest is dropped and
/// counted; the manager sees the gap in the sequence numbers and reads the tables.
pub const EVENT_QUEUE: usize = sizes::EVENT_QUEUE;

/// Answers that are given at once and wait to be polled. With so many waiting no request is begun:
/// the manager asks again.
pub const ANSWER_QUEUE: usize = sizes::ANSWER_QUEUE;

/// Operations that go on at a time and answer later: removals from ports, releases of functions.
pub const OPERATIONS: usize = MAX_SLOTS * MAX_FUNCTIONS;

/// Names of counters that are reported for what is around a role. Further ones are left out.
pub const SURROUNDINGS: usize = 128;

/// Give-up of a link < synthesised completion < smallest completion timeout, for software
/// proxies. A card has 10, 30 and 50 ms.
pub const LINK_GIVE_UP: Duration = Duration::from_secs(1);
/// Round trip that is assumed before one was measured.
pub const LINK_INITIAL_RTT: Duration = Duration::from_millis(2);
/// Shortest retransmission timeout: above what a busy machine makes a process wait.
pub const LINK_MIN_RTO: Duration = Duration::from_millis(5);
/// Longest retransmission timeout.
pub const LINK_MAX_RTO: Duration = Duration::from_millis(100);
/// How long an acknowledgement waits for a frame that it can travel in.
pub const LINK_ACK_DELAY: Duration = Duration::from_micros(100);
/// How long a few returned credits wait to become many.
pub const LINK_CREDIT_DELAY: Duration = Duration::from_millis(1);
/// Silence after which a peer with open bindings is asked for a sign of life.
pub const LINK_KEEP_ALIVE: Duration = Duration::from_millis(500);
/// How often it is tried whether a path that frames were made smaller for carries large ones.
pub const LINK_RAISE: Duration = Duration::from_secs(1);
/// Longest pause between two tries to open a link.
pub const LINK_OPEN_RETRY: Duration = Duration::from_millis(250);
/// How long a device may have no room for what is next for it while others' TLPs wait behind that:
/// longer than a link takes to give up. A card has 40 ms, which is less than the smallest completion
/// timeout of who waits.
pub const LONGEST_HOLD: Duration = Duration::from_millis(1500);
/// When an outstanding request is completed with Unsupported Request by the proxy itself.
pub const SYNTHESISED_COMPLETION: Duration = Duration::from_secs(2);
/// Smallest completion timeout that a device or host may have.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(4);

const _: () = {
    assert!(LINK_GIVE_UP.as_nanos() < SYNTHESISED_COMPLETION.as_nanos());
    assert!(SYNTHESISED_COMPLETION.as_nanos() < COMPLETION_TIMEOUT.as_nanos());
    assert!(LINK_GIVE_UP.as_nanos() < LONGEST_HOLD.as_nanos());
    assert!(MAX_FUNCTIONS * MAX_SLOTS <= 256);
    assert!(SLOT_FUNCTIONS <= MAX_FUNCTIONS);
    assert!(MAX_PORTS <= OPERATIONS, "an operation at each port");
    assert!(MIN_FRAME < MAX_FRAME);
    assert!(MAX_PAYLOAD_OFFERED.is_power_of_two());
    assert!(MAX_PAYLOAD_OFFERED >= 128 && MAX_PAYLOAD_OFFERED <= 4096);
    assert!(DEVICE_OUTSTANDING <= 768, "10-bit tags");
    assert!(ROOT_OUTSTANDING <= 256 && DEVICE_TAGS <= 256, "8-bit tags");
    assert!(HOST_RESERVED < HOST_OUTSTANDING, "devices can ask each other");
    assert!(
        HOST_OUTSTANDING <= GUARANTEED_CREDITS[1] as usize,
        "an admitted request never waits for credit"
    );
    assert!(MAX_CHANNELS <= 64, "channels are bits of a word");
    assert!(LINK_WINDOW.is_power_of_two() && LINK_WINDOW <= u16::MAX as usize);
    assert!(
        GUARANTEED_CREDITS[0] <= CREDIT_TARGETS[0]
            && GUARANTEED_CREDITS[1] <= CREDIT_TARGETS[1]
            && GUARANTEED_CREDITS[2] <= CREDIT_TARGETS[2]
    );
    assert!(
        MAX_CHANNELS
            * (GUARANTEED_CREDITS[0] + GUARANTEED_CREDITS[1] + GUARANTEED_CREDITS[2]) as usize
            + SHARED_RECEIVE
            < u16::MAX as usize,
        "buffers are numbered with 16 bits"
    );
    assert!(MAX_CHANNELS * 3 * GUARANTEED_SEND + SHARED_SEND < u16::MAX as usize);
    assert!(
        LINK_ACK_DELAY.as_nanos() * 4 < LINK_MIN_RTO.as_nanos(),
        "a held-back acknowledgement is no loss, and no doubt"
    );
    assert!(
        LINK_MAX_RTO.as_nanos() * 4 < LINK_GIVE_UP.as_nanos(),
        "several tries before giving up"
    );
    assert!(MIN_FRAME >= 256, "a split TLP's header record fits, whatever its prefixes");
};
