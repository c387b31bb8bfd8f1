//! The kernels that delay and measure, as PTX: the driver compiles them for the GPU at hand.
//!
//! Each is launched with one thread. The measuring ones ask for PTX ISA 6.0 and sm_50, so that every
//! driver since CUDA 9 takes them for every GPU since Maxwell; the delaying one for 6.4 and sm_52.

use core::ffi::CStr;

/// Reads `hops` 64-bit words, each at the address that the one before it holds, the first at
/// `start`, and writes the last one to `out`: parameters `start`, `hops`, `out`. Its duration
/// divided by `hops` is the round trip of one read.
pub const CHASE: &CStr = c"dxpu_chase";

/// Ends at once: no parameters.
pub const EMPTY: &CStr = c"dxpu_empty";

/// Lasts as long as it is told: parameters nanoseconds (64 bits), the clock that the driver names in
/// kHz (32 bits). It learns from earlier delays how fast the clock is.
pub const DELAY: &CStr = c"dxpu_delay";

/// The module with [`DELAY`].
pub const DELAY_MODULE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("dxpu_delay.ptx"), "\0").as_bytes()) {
        Ok(module) => module,
        Err(_) => panic!("a text without a zero byte in it"),
    };

/// The module with [`CHASE`] and [`EMPTY`].
pub const MODULE: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.visible .entry dxpu_chase(.param .u64 start, .param .u64 hops, .param .u64 out)
{
    .reg .pred %more;
    .reg .b64 %at, %left, %to;
    ld.param.u64 %at, [start];
    ld.param.u64 %left, [hops];
    ld.param.u64 %to, [out];
NEXT:
    setp.eq.u64 %more, %left, 0;
    @%more bra DONE;
    ld.volatile.global.u64 %at, [%at];
    sub.u64 %left, %left, 1;
    bra NEXT;
DONE:
    st.global.u64 [%to], %at;
    ret;
}

.visible .entry dxpu_empty()
{
    ret;
}
";
