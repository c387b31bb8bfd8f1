//! How much a program on a computer stores. Buffers are of the longest TLP, so that a link has some
//! 54 MB of address space; memory is what was in use at a time: a page at least for each TLP but
//! the short ones, of which twelve share a page. Those have up to 256 bytes of payload, which is
//! what most systems allow.

pub(super) const MAX_PAYLOAD_OFFERED: usize = 4096;
pub(super) const SHORT_TLP: usize = 320;
pub(super) const SLOT_FUNCTIONS: usize = super::MAX_FUNCTIONS;
pub(super) const CREDITS_POSTED: usize = 1024;
pub(super) const CREDITS_COMPLETION: usize = 256;
pub(super) const GUARANTEED_CREDITS: [u32; 3] = [16, HOST_OUTSTANDING as u32, 32];
pub(super) const SHARED_RECEIVE: usize = 3072;
pub(super) const GUARANTEED_SEND: usize = 8;
pub(super) const SEND_COMPLETIONS: usize = 2048;
pub(super) const SHARED_SEND: usize = 4096;
pub(super) const LINK_WINDOW: usize = 1024;
pub(super) const LOSS_TIMER: bool = true;
pub(super) const HOST_OUTSTANDING: usize = 64;
pub(super) const HOST_RESERVED: usize = 32;
pub(super) const DEVICE_OUTSTANDING: usize = 768;
pub(super) const DEVICE_TAGS: usize = 256;
pub(super) const STAMP_RING: usize = 4096;
pub(super) const EVENT_QUEUE: usize = 64;
pub(super) const ANSWER_QUEUE: usize = 32;
pub(super) const RECORDER_PIECE: usize = 10 * 1024;
pub(super) const RECORDED_FRAME: usize = super::MAX_FRAME;
pub(super) const RECORDER_RING: usize = 1 << 20;
pub(super) const MAX_ANSWER: usize = 16 * 1024;
pub(super) const PAGE: usize = 32;
