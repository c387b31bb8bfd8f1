//! Every limit of the server, and what happens beyond it.

use crate::wire::{HEADER, RegionAccess};
use std::time::Duration;

/// Bytes that one region or DMA message moves. A client whose own limit is lower gets no longer
/// DMA messages than that: what is longer is several. The protocol's default.
pub const MAX_DATA_XFER: usize = 1 << 20;

/// A client whose limit is lower than this gets EINVAL for its version: everything would be too
/// many messages.
pub const MIN_DATA_XFER: usize = 64;

/// Messages that one DMA access is cut into at most, and one more where it begins in the middle of
/// a word. What would be more is refused.
pub const MAX_DMA_PIECES: usize = 64;

/// Longest message, header included. A header that says more ends the session: nobody can say
/// where the next message begins without taking in what it claims.
pub const MAX_MESSAGE: usize = HEADER + RegionAccess::LEN + MAX_DATA_XFER;

/// File descriptors that come with one message, as QEMU's own limit is. What is beyond is closed,
/// and the request gets EINVAL.
pub const MAX_MSG_FDS: usize = 16;

/// What a client that names no `max_msg_fds` sends with one message at most.
pub const DEFAULT_MSG_FDS: usize = 1;

/// DMA maps at one time, of 65,535 that the protocol has at most: each may take one of the
/// process's 65,530 memory areas (Linux, `vm.max_map_count`). One more gets ENOSPC.
pub const MAX_DMA_MAPS: usize = 1024;

/// DMA maps that are reached through their file, and so hold a file descriptor of the process. One
/// more gets ENOSPC.
pub const MAX_DMA_FILES: usize = 64;

/// Address space for what is mapped, of the 128 TiB that a process has. More gets ENOMEM.
pub const MAX_MAPPED: u64 = 16 << 40;

/// Bytes of memory that is let go of at once. More is in a thread of its own.
pub const MAX_LET_GO_AT_ONCE: u64 = 16 << 20;

/// Threads that let go of memory, which the limits above do not count any more. What would need one more is
/// let go of at once, too, and the server waits for it.
pub const MAX_LEAVING: usize = 4;

/// The granule of DMA maps: the protocol's default for `pgsizes`. Others get EINVAL.
pub const PAGE: u64 = 4096;

/// Interrupts of one kind: those of an MSI-X table at its largest (PCIe 6.0, 7.7.2.2).
pub const MAX_VECTORS: u32 = 2048;

/// Messages that wait behind the access in hand. At this or either of the next two limits nothing
/// more is read from the client, so that its replies to DMA messages wait, too, where they have no
/// socket of their own: an access must not wait for such a reply for ever.
pub const MAX_QUEUED_MESSAGES: usize = 1024;

/// Their bytes; the last one may go beyond it.
pub const MAX_QUEUED_BYTES: usize = 4 << 20;

/// Their file descriptors; the last one may go beyond it.
pub const MAX_QUEUED_FDS: usize = 64;

/// Bytes that the client has not taken in, beyond which its next request waits.
pub const PAUSE_UNSENT: usize = 1 << 20;

/// Bytes that the client has not taken in, beyond which it is let go.
pub const MAX_UNSENT: usize = 8 << 20;

/// DMA messages without their reply; the last access may go beyond it. One more is refused.
pub const MAX_DMA_OUTSTANDING: usize = 256;

/// System calls that read from the client in one poll, so that a client that never stops sending
/// does not keep the caller.
pub const READS_A_POLL: usize = 128;

/// How long nobody is accepted after accepting failed, as it does without a file descriptor left:
/// whoever wants to connect waits meanwhile, and makes no work.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(MAX_QUEUED_BYTES >= MAX_MESSAGE && MAX_UNSENT >= PAUSE_UNSENT + MAX_MESSAGE);
const _: () = assert!(DEFAULT_MSG_FDS <= MAX_MSG_FDS && MAX_MSG_FDS <= MAX_QUEUED_FDS);
