//! Functions for tests, which the driver does not have.

use crate::call::Call;
use crate::ffi::Name;
use crate::names::missed;

/// The calling thread's virtual time, in nanoseconds.
// SAFETY: nothing else has a name like it.
#[unsafe(no_mangle)]
extern "C" fn standInNow() -> u64 {
    Call::of_test().now()
}

/// Lets the calling thread's virtual time go on by nanoseconds: it computes for as long. In a host
/// callback, the callback lasts as long. Gives 0, as the driver's functions do.
// SAFETY: nothing else has a name like it.
#[unsafe(no_mangle)]
extern "C" fn standInAdvanceCpu(nanoseconds: u64) -> i32 {
    let mut call = Call::of_test();
    let then = call.now() + nanoseconds;
    call.wait_until(then);
    0
}

/// When the work of a stream ends, in nanoseconds of virtual time; 0 for what is no stream.
// SAFETY: nothing else has a name like it.
#[unsafe(no_mangle)]
extern "C" fn standInStreamEnd(stream: u64) -> u64 {
    let mut call = Call::of_test();
    call.stream(stream).map_or(0, |stream| call.streams[&stream].end)
}

/// How often a function of the driver was called, by its symbol.
// SAFETY: nothing else has a name like it.
#[unsafe(no_mangle)]
extern "C" fn standInCalls(symbol: Name) -> u64 {
    let call = Call::of_test();
    symbol.get().ok().and_then(|symbol| call.calls.get(symbol.as_str()).copied()).unwrap_or(0)
}

/// Prints the functions that were called and that the stand-in does not have, and says how many
/// those are.
// SAFETY: nothing else has a name like it.
#[unsafe(no_mangle)]
extern "C" fn standInMissed() -> u64 {
    let mut count = 0;
    for symbol in missed() {
        eprintln!("stand-in CUDA driver: {symbol} was called, and is not there");
        count += 1;
    }
    count
}
