//! How much a card stores: its memory is counted in kilobytes.

pub(super) const MAX_PAYLOAD_OFFERED: usize = 512;
pub(super) const SHORT_TLP: usize = 0;
pub(super) const SLOT_FUNCTIONS: usize = 4;
pub(super) const CREDITS_POSTED: usize = 32;
pub(super) const CREDITS_COMPLETION: usize = 32;
pub(super) const GUARANTEED_CREDITS: [u32; 3] = [8, HOST_OUTSTANDING as u32, 8];
pub(super) const SHARED_RECEIVE: usize = 64;
pub(super) const GUARANTEED_SEND: usize = 4;
pub(super) const SEND_COMPLETIONS: usize = 64;
pub(super) const SHARED_SEND: usize = 64;
pub(super) const LINK_WINDOW: usize = 128;
// Its shortest retransmission timeout is hardly longer, and the code has no room.
pub(super) const LOSS_TIMER: bool = false;
pub(super) const HOST_OUTSTANDING: usize = 16;
pub(super) const HOST_RESERVED: usize = 8;
pub(super) const DEVICE_OUTSTANDING: usize = 16;
pub(super) const DEVICE_TAGS: usize = 16;
pub(super) const STAMP_RING: usize = 32;
pub(super) const EVENT_QUEUE: usize = 32;
pub(super) const ANSWER_QUEUE: usize = 8;
// A whole frame of 1500 bytes and what is said of it. None where the program has no room for its code.
pub(super) const RECORDER_PIECE: usize = if cfg!(feature = "card-recorder") { 2 * 1024 } else { 0 };
pub(super) const RECORDED_FRAME: usize = 1536;
pub(super) const RECORDER_RING: usize = 16 * 1024;
pub(super) const MAX_ANSWER: usize = 4 * 1024;
pub(super) const PAGE: usize = 8;
