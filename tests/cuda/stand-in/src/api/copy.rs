//! Copies, in all forms.

use super::driver_functions;
use crate::call::Call;
use crate::copy::{Copy, Direction, End, Extent};
use crate::driver::Handle;
use crate::ffi::{In, Opaque, Out};
use crate::graph::Operation;
use crate::memory::Memory;
use crate::status::{Answer, Status};

/// Pageable memory of up to as many bytes is taken over before the call returns, and copied to the
/// device later; more is copied before it returns (CUDA Driver API, "API synchronization
/// behavior").
const STAGED: u64 = 64 << 10;

const TO_DEVICE: &[Direction] = &[Direction::ToDevice];
const TO_HOST: &[Direction] = &[Direction::ToHost];
const ON_DEVICE: &[Direction] = &[Direction::OnDevice, Direction::Peer];

driver_functions! {
    Launch [cuMemcpy_ptds] fn cuMemcpy(call, to: u64, from: u64, bytes: usize) {
        let copy = flat(call, to, from, bytes)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyAsync_ptsz] fn cuMemcpyAsync(
        call, to: u64, from: u64, bytes: usize, stream: Handle,
    ) {
        let copy = flat(call, to, from, bytes)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyHtoD_v2_ptds] fn cuMemcpyHtoD_v2(call, to: u64, from: u64, bytes: usize) {
        let copy = flat(call, to, from, bytes)?.wanted(TO_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyHtoDAsync_v2_ptsz] fn cuMemcpyHtoDAsync_v2(
        call, to: u64, from: u64, bytes: usize, stream: Handle,
    ) {
        let copy = flat(call, to, from, bytes)?.wanted(TO_DEVICE)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyDtoH_v2_ptds] fn cuMemcpyDtoH_v2(call, to: u64, from: u64, bytes: usize) {
        let copy = flat(call, to, from, bytes)?.wanted(TO_HOST)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyDtoHAsync_v2_ptsz] fn cuMemcpyDtoHAsync_v2(
        call, to: u64, from: u64, bytes: usize, stream: Handle,
    ) {
        let copy = flat(call, to, from, bytes)?.wanted(TO_HOST)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyDtoD_v2_ptds] fn cuMemcpyDtoD_v2(call, to: u64, from: u64, bytes: usize) {
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyDtoDAsync_v2_ptsz] fn cuMemcpyDtoDAsync_v2(
        call, to: u64, from: u64, bytes: usize, stream: Handle,
    ) {
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyPeer_ptds] fn cuMemcpyPeer(
        call, to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize,
    ) {
        contexts(call, [to_context, from_context])?;
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyPeerAsync_ptsz] fn cuMemcpyPeerAsync(
        call, to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize,
        stream: Handle,
    ) {
        contexts(call, [to_context, from_context])?;
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyHtoA_v2_ptds] fn cuMemcpyHtoA_v2(
        call, to: Handle, offset: u64, from: u64, bytes: usize,
    ) {
        let to = array(call, to, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(TO_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyHtoAAsync_v2_ptsz] fn cuMemcpyHtoAAsync_v2(
        call, to: Handle, offset: u64, from: u64, bytes: usize, stream: Handle,
    ) {
        let to = array(call, to, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(TO_DEVICE)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyAtoH_v2_ptds] fn cuMemcpyAtoH_v2(
        call, to: u64, from: Handle, offset: u64, bytes: usize,
    ) {
        let from = array(call, from, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(TO_HOST)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyAtoHAsync_v2_ptsz] fn cuMemcpyAtoHAsync_v2(
        call, to: u64, from: Handle, offset: u64, bytes: usize, stream: Handle,
    ) {
        let from = array(call, from, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(TO_HOST)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyDtoA_v2_ptds] fn cuMemcpyDtoA_v2(
        call, to: Handle, offset: u64, from: u64, bytes: usize,
    ) {
        let to = array(call, to, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyAtoD_v2_ptds] fn cuMemcpyAtoD_v2(
        call, to: u64, from: Handle, offset: u64, bytes: usize,
    ) {
        let from = array(call, from, offset)?;
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpyAtoA_v2_ptds] fn cuMemcpyAtoA_v2(
        call, to: Handle, to_offset: u64, from: Handle, from_offset: u64, bytes: usize,
    ) {
        let (to, from) = (array(call, to, to_offset)?, array(call, from, from_offset)?);
        let copy = flat(call, to, from, bytes)?.wanted(ON_DEVICE)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpy2D_v2_ptds] fn cuMemcpy2D_v2(call, what: In<Copy2d>) {
        let copy = what.get()?.in_3d().copy(call)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpy2DUnaligned_v2_ptds] fn cuMemcpy2DUnaligned_v2(call, what: In<Copy2d>) {
        let copy = what.get()?.in_3d().copy(call)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpy2DAsync_v2_ptsz] fn cuMemcpy2DAsync_v2(
        call, what: In<Copy2d>, stream: Handle,
    ) {
        let copy = what.get()?.in_3d().copy(call)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpy3D_v2_ptds cuMemcpy3DPeer cuMemcpy3DPeer_ptds] fn cuMemcpy3D_v2(
        call, what: In<Copy3d>,
    ) {
        let copy = what.get()?.copy(call)?;
        and_wait(call, copy)
    }

    Launch [cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz] fn cuMemcpy3DAsync_v2(call, what: In<Copy3d>, stream: Handle)
    {
        let copy = what.get()?.copy(call)?;
        in_stream(call, copy, stream)
    }

    Launch [cuMemcpyBatchAsync_ptsz] fn cuMemcpyBatchAsync(
        call, to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: Opaque,
        _indices: Opaque, _attribute_count: usize, failed: Out<usize>, stream: Handle,
    ) {
        batch(call, count, stream, failed, |call, index| {
            flat(call, to.at(index)?, from.at(index)?, sizes.at(index)?)
        })
    }

    Launch [cuMemcpyBatchAsync_v2_ptsz] fn cuMemcpyBatchAsync_v2(
        call, to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: Opaque,
        _indices: Opaque, _attribute_count: usize, stream: Handle,
    ) {
        batch(call, count, stream, Out::unwanted(), |call, index| {
            flat(call, to.at(index)?, from.at(index)?, sizes.at(index)?)
        })
    }

    Launch [cuMemcpy3DBatchAsync_ptsz] fn cuMemcpy3DBatchAsync(
        call, count: usize, copies: In<BatchCopy>, failed: Out<usize>, _flags: u64,
        stream: Handle,
    ) {
        batch(call, count, stream, failed, |call, index| copies.at(index)?.copy(call))
    }

    Launch [cuMemcpy3DBatchAsync_v2_ptsz] fn cuMemcpy3DBatchAsync_v2(
        call, count: usize, copies: In<BatchCopy>, _flags: u64, stream: Handle,
    ) {
        batch(call, count, stream, Out::unwanted(), |call, index| copies.at(index)?.copy(call))
    }

    Launch [cuMemPrefetchAsync_ptsz] fn cuMemPrefetchAsync(
        call, address: u64, bytes: usize, device: i32, stream: Handle,
    ) {
        // -1 is the host (cuda.h: `CU_DEVICE_CPU`).
        prefetch(call, address, bytes, device != -1, stream)
    }

    Launch [cuMemPrefetchAsync_v2_ptsz] fn cuMemPrefetchAsync_v2(
        call, address: u64, bytes: usize, location: u64, _flags: u32, stream: Handle,
    ) {
        // The location's first word is its type (cuda.h: `CUmemLocationType`), 1 a device.
        prefetch(call, address, bytes, location as u32 == 1, stream)
    }
}

fn flat(call: &Call, to: u64, from: u64, bytes: usize) -> Result<Copy, Status> {
    call.context()?;
    let extent = Extent::flat(bytes as u64);
    Copy::new(&call.memory, End::flat(to), End::flat(from), extent)
}

fn contexts(call: &Call, given: [Handle; 2]) -> Answer {
    let known = given.iter().all(|context| call.contexts.contains_key(context));
    if known { Ok(()) } else { Err(Status::INVALID_CONTEXT) }
}

fn array(call: &Call, array: Handle, offset: u64) -> Result<u64, Status> {
    let array = call.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?;
    array.address.checked_add(offset).ok_or(Status::INVALID_VALUE)
}

/// A copy in the default stream, which the call waits for unless the host has no part in it.
fn and_wait(call: &mut Call, copy: Copy) -> Answer {
    let stream = call.stream(0)?;
    call.refuse_captured(stream)?;
    let waits = !matches!(copy.direction, Direction::OnDevice | Direction::Peer);
    let end = call.submit(stream, Operation::Copy(copy))?;
    if let (Some(end), true) = (end, waits) {
        call.wait_until(end);
    }
    Ok(())
}

/// A copy in a stream. It is waited for only where pageable memory asks for it.
fn in_stream(call: &mut Call, copy: Copy, stream: Handle) -> Answer {
    let stream = call.stream(stream)?;
    let waits = copy.pageable
        && match copy.direction {
            Direction::ToDevice => copy.bytes > STAGED,
            Direction::ToHost | Direction::OnHost => true,
            Direction::OnDevice | Direction::Peer => false,
        };
    let end = call.submit(stream, Operation::Copy(copy))?;
    if let (Some(end), true) = (end, waits) {
        call.wait_until(end);
    }
    Ok(())
}

fn batch(
    call: &mut Call,
    count: usize,
    stream: Handle,
    failed: Out<usize>,
    copy: impl Fn(&Call, usize) -> Result<Copy, Status>,
) -> Answer {
    let copies: Result<Vec<Copy>, (usize, Status)> =
        (0..count).map(|index| copy(call, index).map_err(|status| (index, status))).collect();
    match copies {
        Ok(copies) if !copies.is_empty() => {
            copies.into_iter().try_for_each(|copy| in_stream(call, copy, stream))
        }
        Ok(_) => Err(Status::INVALID_VALUE),
        Err((index, status)) => {
            failed.put_if_wanted(index);
            Err(status)
        }
    }
}

/// Managed memory moves in whole, as if none of it were there yet. Its bytes stay where they are.
fn prefetch(
    call: &mut Call,
    address: u64,
    bytes: usize,
    to_device: bool,
    stream: Handle,
) -> Answer {
    super::memory::managed(call, address, bytes)?;
    let mut copy = flat(call, address, address, bytes)?;
    copy.direction = if to_device { Direction::ToDevice } else { Direction::ToHost };
    in_stream(call, copy, stream)
}

/// An end of a copy as C describes it (cuda.h: `CUDA_MEMCPY3D`), source or destination.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: u64,
    y: u64,
    z: u64,
    level: u64,
    /// cuda.h: `CUmemorytype`.
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    /// A context in `CUDA_MEMCPY3D_PEER`.
    context: u64,
    pitch: u64,
    height: u64,
}

/// An end that is none, to be filled in.
const NOWHERE: Side = Side {
    x: 0,
    y: 0,
    z: 0,
    level: 0,
    kind: 0,
    host: 0,
    device: 0,
    array: 0,
    context: 0,
    pitch: 0,
    height: 0,
};

/// cuda.h: `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Copy3d {
    from: Side,
    to: Side,
    width: u64,
    height: u64,
    depth: u64,
}

impl Side {
    fn end(&self, call: &Call, extent: &Extent) -> Result<End, Status> {
        let (base, pitch, height) = match self.kind {
            1 => (self.host, self.pitch, self.height),
            2 | 4 => (self.device, self.pitch, self.height),
            3 => {
                let array = call.arrays.get(&self.array).ok_or(Status::INVALID_HANDLE)?;
                (array.address, array.pitch, array.height.max(1))
            }
            _ => return Err(Status::INVALID_VALUE),
        };
        // 0 stands for lines, and layers, one behind the other.
        let pitch = if pitch == 0 { extent.width } else { pitch };
        let height = if height == 0 { extent.height } else { height };
        if base == 0 || pitch < extent.width {
            return Err(Status::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(height).ok_or(Status::INVALID_VALUE)?;
        let parts = [Some(self.x), self.y.checked_mul(pitch), self.z.checked_mul(slice)];
        let address = parts.into_iter().try_fold(base, |sum, part| sum.checked_add(part?));
        Ok(End { address: address.ok_or(Status::INVALID_VALUE)?, pitch, slice })
    }
}

impl Copy3d {
    /// The description of a copy: of one of bytes in a row too.
    pub(super) fn of(copy: &Copy, memory: &Memory) -> Self {
        let (from, to, Extent { width, height, depth }) = copy.parts();
        let side = |End { address, pitch, slice }| {
            let pitch = if pitch == 0 { width } else { pitch };
            let is_device = memory.device(address).is_some();
            Side {
                kind: if is_device { 2 } else { 1 },
                host: if is_device { 0 } else { address },
                device: if is_device { address } else { 0 },
                pitch,
                height: slice.checked_div(pitch).unwrap_or(0).max(height),
                ..NOWHERE
            }
        };
        Self { from: side(from), to: side(to), width, height, depth }
    }

    pub(super) fn copy(&self, call: &Call) -> Result<Copy, Status> {
        call.context()?;
        let extent = Extent { width: self.width, height: self.height, depth: self.depth };
        let (to, from) = (self.to.end(call, &extent)?, self.from.end(call, &extent)?);
        Copy::new(&call.memory, to, from, extent)
    }
}

/// An end of a copy of lines (cuda.h: `CUDA_MEMCPY2D`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Side2d {
    x: u64,
    y: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    pitch: u64,
}

/// cuda.h: `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy2d {
    from: Side2d,
    to: Side2d,
    width: u64,
    height: u64,
}

impl Copy2d {
    fn in_3d(self) -> Copy3d {
        let side = |Side2d { x, y, kind, host, device, array, pitch }| Side {
            x,
            y,
            kind,
            host,
            device,
            array,
            pitch,
            ..NOWHERE
        };
        let Self { from, to, width, height } = self;
        Copy3d { from: side(from), to: side(to), width, height, depth: 1 }
    }
}

/// An end of a copy in a batch (cuda.h: `CUmemcpy3DOperand`).
#[repr(C)]
#[derive(Clone, Copy)]
struct BatchSide {
    /// 1 an address, 2 an array.
    kind: u32,
    /// The address, elements of a line and lines of a layer, and a location; or the array, and
    /// where in it.
    what: [u64; 4],
}

/// cuda.h: `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BatchCopy {
    from: BatchSide,
    to: BatchSide,
    width: u64,
    height: u64,
    depth: u64,
    order: u32,
    flags: u32,
}

impl BatchCopy {
    fn copy(&self, call: &Call) -> Result<Copy, Status> {
        let side = |BatchSide { kind, what }| match kind {
            1 => Side { kind: 4, device: what[0], pitch: what[1], height: what[2], ..NOWHERE },
            2 => Side { kind: 3, array: what[0], x: what[1], y: what[2], z: what[3], ..NOWHERE },
            _ => NOWHERE,
        };
        let (from, to) = (side(self.from), side(self.to));
        let Self { width, height, depth, .. } = *self;
        Copy3d { from, to, width, height, depth }.copy(call)
    }
}
