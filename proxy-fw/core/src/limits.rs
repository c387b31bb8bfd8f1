//! Every limit of the core, with the relations between them checked at compile time.
//!
//! What happens when one is reached is said here, beside it.

use core::time::Duration;

/// Downstream ports of a host proxy's virtual switch. Binding to a further one is refused.
pub const MAX_PORTS: usize = 32;

/// Slots of a box proxy. Configuration with more is refused.
pub const MAX_SLOTS: usize = 16;

/// Functions of one slot that can be bound each on its own. Inventory beyond them is not reported.
pub const MAX_FUNCTIONS: usize = 8;

/// Nodes that one proxy has a link to at a time. A further peer is refused.
pub const MAX_PEERS: usize = 32;

/// Bindings (slot, function, epoch) on one link. A further one is refused.
pub const MAX_CHANNELS: usize = 64;

/// Paths between two nodes. One is used so far; header and state are ready for this many.
pub const MAX_PATHS: usize = 8;

/// DMA windows of one slot's function. A bind with more is refused.
pub const MAX_WINDOWS: usize = 8;

/// Data payload of one TLP that is offered to devices and hosts, in bytes (Device Capabilities'
/// Max_Payload_Size Supported). A larger TLP is malformed and dropped.
pub const MAX_PAYLOAD_OFFERED: usize = 512;

/// Bytes of storage for one TLP: prefixes, header, payload, digest, rounded up. TLPs that do not
/// fit are malformed and dropped.
pub const TLP_BUFFER: usize = 20 + 16 + MAX_PAYLOAD_OFFERED + 4;

/// TLPs of each class that a receiver stores for one binding: what it grants as credit. The
/// sender keeps what has no credit in its own class queue.
pub const CREDITS_POSTED: usize = 128;
/// As [`CREDITS_POSTED`], for non-posted requests.
pub const CREDITS_NON_POSTED: usize = 64;
/// As [`CREDITS_POSTED`], for completions.
pub const CREDITS_COMPLETION: usize = 256;

/// TLPs of each class that wait for credit at the sender, for one binding. When it is full the
/// PCIe side is told to wait (backpressure).
pub const SEND_QUEUE: usize = 128;

/// Records in flight on one link, sent and not acknowledged. Further records wait.
pub const LINK_WINDOW: usize = 1024;

/// Non-posted requests of the host outstanding at one downstream port. A further one waits
/// in front of the port.
pub const HOST_OUTSTANDING: usize = 64;

/// Non-posted requests of one slot's devices outstanding (8-bit tags). A further one waits.
pub const DEVICE_OUTSTANDING: usize = 256;

/// Largest frame that is built or taken, in bytes, without the Ethernet header.
pub const MAX_FRAME: usize = 9000;
/// Smallest MTU that is usable: a frame with one unsplit header record and some data.
pub const MIN_FRAME: usize = 512;

/// Sampled TLPs whose stage stamps are kept. The oldest is overwritten.
pub const STAMP_RING: usize = 4096;

/// Events for the manager that wait to be polled. When it is full the oldest is dropped and
/// counted; the manager sees the gap in the sequence numbers and reads the tables.
pub const EVENT_QUEUE: usize = 64;

/// Give-up of a link < synthesised completion < smallest completion timeout, for software
/// proxies. A card has 10, 20 and 50 ms.
pub const LINK_GIVE_UP: Duration = Duration::from_secs(1);
/// When an outstanding request is completed with Unsupported Request by the proxy itself.
pub const SYNTHESISED_COMPLETION: Duration = Duration::from_secs(2);
/// Smallest completion timeout that a device or host may have.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(4);

const _: () = {
    assert!(LINK_GIVE_UP.as_nanos() < SYNTHESISED_COMPLETION.as_nanos());
    assert!(SYNTHESISED_COMPLETION.as_nanos() < COMPLETION_TIMEOUT.as_nanos());
    assert!(MAX_FUNCTIONS * MAX_SLOTS <= 256);
    assert!(MIN_FRAME < MAX_FRAME);
    assert!(DEVICE_OUTSTANDING <= 256, "8-bit tags");
    assert!(HOST_OUTSTANDING <= CREDITS_NON_POSTED, "an admitted request never waits for credit");
};
