//! The kernels that measure, as PTX: the driver compiles them for the GPU at hand.
//!
//! They ask for PTX ISA 6.0 and sm_50, so that every driver since CUDA 9 takes them for every GPU
//! since Maxwell. Each is launched with one thread and takes 64-bit numbers.

use core::ffi::CStr;

/// Reads `hops` 64-bit words, each at the address that the one before it holds, the first at
/// `start`, and writes the last one to `out`: parameters `start`, `hops`, `out`. Its duration
/// divided by `hops` is the round trip of one read.
pub const CHASE: &CStr = c"dxpu_chase";

/// Ends at once: no parameters.
pub const EMPTY: &CStr = c"dxpu_empty";

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
