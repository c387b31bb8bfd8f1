//! Memsets, in all forms.

use super::driver_functions;
use crate::call::Call;
use crate::copy::Set;
use crate::driver::Handle;
use crate::graph::Operation;
use crate::status::Answer;

driver_functions! {
    Launch [cuMemsetD8_v2_ptds] fn cuMemsetD8_v2(call, address: u64, value: u8, count: usize) {
        flat(call, address, 1, value.into(), count, 0)
    }

    Launch [cuMemsetD8Async_ptsz] fn cuMemsetD8Async(
        call, address: u64, value: u8, count: usize, stream: Handle,
    ) {
        flat(call, address, 1, value.into(), count, stream)
    }

    Launch [cuMemsetD16_v2_ptds] fn cuMemsetD16_v2(call, address: u64, value: u16, count: usize) {
        flat(call, address, 2, value.into(), count, 0)
    }

    Launch [cuMemsetD16Async_ptsz] fn cuMemsetD16Async(
        call, address: u64, value: u16, count: usize, stream: Handle,
    ) {
        flat(call, address, 2, value.into(), count, stream)
    }

    Launch [cuMemsetD32_v2_ptds] fn cuMemsetD32_v2(call, address: u64, value: u32, count: usize) {
        flat(call, address, 4, value, count, 0)
    }

    Launch [cuMemsetD32Async_ptsz] fn cuMemsetD32Async(
        call, address: u64, value: u32, count: usize, stream: Handle,
    ) {
        flat(call, address, 4, value, count, stream)
    }

    Launch [cuMemsetD2D8_v2_ptds] fn cuMemsetD2D8_v2(
        call, address: u64, pitch: usize, value: u8, width: usize, height: usize,
    ) {
        lines(call, [address, pitch as u64], (1, value.into()), [width, height], 0)
    }

    Launch [cuMemsetD2D8Async_ptsz] fn cuMemsetD2D8Async(
        call, address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle,
    ) {
        lines(call, [address, pitch as u64], (1, value.into()), [width, height], stream)
    }

    Launch [cuMemsetD2D16_v2_ptds] fn cuMemsetD2D16_v2(
        call, address: u64, pitch: usize, value: u16, width: usize, height: usize,
    ) {
        lines(call, [address, pitch as u64], (2, value.into()), [width, height], 0)
    }

    Launch [cuMemsetD2D16Async_ptsz] fn cuMemsetD2D16Async(
        call, address: u64, pitch: usize, value: u16, width: usize, height: usize,
        stream: Handle,
    ) {
        lines(call, [address, pitch as u64], (2, value.into()), [width, height], stream)
    }

    Launch [cuMemsetD2D32_v2_ptds] fn cuMemsetD2D32_v2(
        call, address: u64, pitch: usize, value: u32, width: usize, height: usize,
    ) {
        lines(call, [address, pitch as u64], (4, value), [width, height], 0)
    }

    Launch [cuMemsetD2D32Async_ptsz] fn cuMemsetD2D32Async(
        call, address: u64, pitch: usize, value: u32, width: usize, height: usize,
        stream: Handle,
    ) {
        lines(call, [address, pitch as u64], (4, value), [width, height], stream)
    }
}

fn flat(
    call: &mut Call,
    address: u64,
    element: u32,
    value: u32,
    count: usize,
    stream: Handle,
) -> Answer {
    lines(call, [address, 0], (element, value), [count, 1], stream)
}

/// A memset, which no call waits for.
fn lines(
    call: &mut Call,
    [address, pitch]: [u64; 2],
    (element, value): (u32, u32),
    [width, height]: [usize; 2],
    stream: Handle,
) -> Answer {
    call.context()?;
    let (width, height) = (width as u64, height as u64);
    let set = Set { address, pitch, value, element, width, height }.checked(&call.memory)?;
    let stream = call.stream(stream)?;
    call.submit(stream, Operation::Set(set))?;
    Ok(())
}
