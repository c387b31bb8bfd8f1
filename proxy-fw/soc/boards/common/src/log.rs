//! Logs: defmt's frames on the board's console, and in memory where a probe fetches them (RTT,
//! channel 0).
//!
//! A board's crate gives two functions, by their names: `dxpu_console`, which sends bytes on the
//! console, and `dxpu_microseconds`, the time since the start.

use core::cell::UnsafeCell;
use rtt_target::{ChannelMode, UpChannel, rtt_init};

unsafe extern "Rust" {
    /// Sends bytes on the console.
    safe fn dxpu_console(bytes: &[u8]);

    /// Microseconds since the start.
    safe fn dxpu_microseconds() -> u64;
}

#[defmt::global_logger]
struct Log;

/// What the logger has.
struct State {
    encoder: defmt::Encoder,
    /// A frame is begun and not ended.
    in_frame: bool,
    /// Some of the last frame had no room for a probe.
    lost: bool,
    /// To a probe. Until there is one, what is full stays full: nobody waits.
    probe: Option<UpChannel>,
}

struct Shared(UnsafeCell<State>);

// SAFETY: only the functions below use it, on the one hart, each for a moment in which nothing
// else runs, or nothing that comes back: what ends a life.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    encoder: defmt::Encoder::new(),
    in_frame: false,
    lost: false,
    probe: None,
}));

/// Whether there was room for it.
#[inline(never)]
fn put(probe: &mut Option<UpChannel>, bytes: &[u8]) -> bool {
    dxpu_console(bytes);
    probe.as_mut().is_none_or(|probe| probe.write(bytes) == bytes.len())
}

impl State {
    fn encode(&mut self, encode: impl FnOnce(&mut defmt::Encoder, &mut dyn FnMut(&[u8]))) {
        let Self { encoder, probe, lost, .. } = self;
        encode(encoder, &mut |bytes| *lost |= !put(probe, bytes));
    }
}

/// Bytes that wait for a probe: what a card logs while it starts, several times.
const FOR_PROBE: usize = 2000;

/// A probe can fetch what is logged from now on. To be called once, before anything is logged.
pub fn start() {
    let channels = rtt_init! {
        up: { 0: { size: FOR_PROBE, mode: ChannelMode::NoBlockSkip, name: "defmt" } }
    };
    // SAFETY: as said above.
    unsafe { (*STATE.0.get()).probe = Some(channels.up.0) };
}

// SAFETY: acquire and release come in pairs around each frame, on the one hart.
unsafe impl defmt::Logger for Log {
    fn acquire() {
        // SAFETY: as said above.
        let state = unsafe { &mut *STATE.0.get() };
        let unended = core::mem::replace(&mut state.in_frame, true);
        if unended | core::mem::take(&mut state.lost) {
            // What ends a life may come in the middle of a frame, which stays a torn one, and so does
            // one that has no room where a probe does not fetch it: a new encoder marks where it ends.
            state.encoder = defmt::Encoder::new();
        }
        state.encode(|encoder, write| encoder.start_frame(write));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: as said above.
        let state = unsafe { &mut *STATE.0.get() };
        state.encode(|encoder, write| encoder.end_frame(write));
        state.in_frame = false;
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: as said above.
        let state = unsafe { &mut *STATE.0.get() };
        state.encode(|encoder, write| encoder.write(bytes, write));
    }
}

defmt::timestamp!("{=u64:us}", dxpu_microseconds());
