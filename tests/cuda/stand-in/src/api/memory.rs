//! Memory: allocating, pinning, and asking what an address is.

use super::driver_functions;
use crate::call::Call;
use crate::driver::{Array, Handle};
use crate::ffi::{In, Opaque, Out};
use crate::memory::{Kind, Range};
use crate::settings::settings;
use crate::status::{Answer, Status};

/// What lines of an allocation with a pitch are aligned to, in bytes.
const PITCH: usize = 512;

driver_functions! {
    Call fn cuMemAlloc_v2(call, address: Out<u64>, size: usize) {
        call.refuse_unsafe_while_capturing()?;
        let device = call.current_device()?;
        allocate(call, address, size, Kind::Device(device))
    }

    Call fn cuMemAllocManaged(call, address: Out<u64>, size: usize, flags: u32) {
        let device = call.current_device()?;
        // cuda.h, `CUmemAttach_flags`: global, host or single.
        if !matches!(flags, 1 | 2 | 4) {
            return Err(Status::INVALID_VALUE);
        }
        allocate(call, address, size, Kind::Managed(device))
    }

    Call fn cuMemAllocPitch_v2(
        call, address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, _element: u32,
    ) {
        let device = call.current_device()?;
        let line = width.next_multiple_of(PITCH);
        let size = line.checked_mul(height).ok_or(Status::OUT_OF_MEMORY)?;
        allocate(call, address, size, Kind::Device(device))?;
        pitch.put(line)
    }

    Call fn cuMemFree_v2(call, address: u64) {
        // It waits for whatever may use the memory.
        let context = call.context()?;
        let end = call.end_of_context(context);
        call.wait_until(end);
        if address == 0 {
            return Ok(());
        }
        call.memory.free(address, |kind| matches!(kind, Kind::Device(_) | Kind::Managed(_)))?;
        Ok(())
    }

    Call fn cuMemAllocHost_v2(call, address: Out<u64>, size: usize) {
        call.context()?;
        allocate(call, address, size, Kind::Pinned)
    }

    Call fn cuMemHostAlloc(call, address: Out<u64>, size: usize, flags: u32) {
        call.context()?;
        if flags & !7 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        allocate(call, address, size, Kind::Pinned)
    }

    Call fn cuMemFreeHost(call, address: u64) {
        call.context()?;
        call.memory.free(address, |kind| kind == Kind::Pinned)?;
        Ok(())
    }

    Call [cuMemHostRegister_v2] fn cuMemHostRegister(
        call, address: u64, size: usize, flags: u32,
    ) {
        call.context()?;
        if flags & !15 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        call.memory.register(address, size)
    }

    Call fn cuMemHostUnregister(call, address: u64) {
        call.context()?;
        let freed = call.memory.free(address, |kind| kind == Kind::Registered);
        freed.map(drop).map_err(|_| Status::HOST_MEMORY_NOT_REGISTERED)
    }

    Get fn cuMemHostGetDevicePointer_v2(call, out: Out<u64>, address: u64, _flags: u32) {
        call.context()?;
        let range = call.memory.find(address).ok_or(Status::INVALID_VALUE)?;
        if !matches!(range.kind, Kind::Pinned | Kind::Registered) {
            return Err(Status::INVALID_VALUE);
        }
        out.put(address)
    }

    Get fn cuMemHostGetFlags(call, flags: Out<u32>, address: u64) {
        call.memory.find(address).ok_or(Status::INVALID_VALUE)?;
        flags.put(2)
    }

    Get fn cuMemGetInfo_v2(call, free: Out<usize>, total: Out<usize>) {
        let device = call.current_device()?;
        let all = settings().memory;
        free.put_if_wanted((all - call.memory.used(device).min(all)) as usize);
        total.put_if_wanted(all as usize);
        Ok(())
    }

    Get fn cuMemGetAddressRange_v2(call, base: Out<u64>, size: Out<usize>, address: u64) {
        let range = call.memory.find(address).ok_or(Status::NOT_FOUND)?;
        base.put_if_wanted(range.base);
        size.put_if_wanted(range.size);
        Ok(())
    }

    Get fn cuPointerGetAttribute(call, value: Out<u64>, attribute: u32, address: u64) {
        let range = call.memory.find(address).ok_or(Status::INVALID_VALUE)?;
        attribute_of(call, value, attribute, Some(range), address)
    }

    Get fn cuPointerGetAttributes(
        call, count: u32, attributes: In<u32>, values: In<Out<u64>>, address: u64,
    ) {
        // Memory that is not known gives zeros, and no error (cuda.h).
        let range = call.memory.find(address);
        for index in 0..count as usize {
            attribute_of(call, values.at(index)?, attributes.at(index)?, range, address)?;
        }
        Ok(())
    }

    Call fn cuPointerSetAttribute(call, _value: Opaque, _attribute: u32, address: u64) {
        call.memory.find(address).map(drop).ok_or(Status::INVALID_VALUE)
    }

    Call [cuMemAdvise_v2] fn cuMemAdvise(
        call, address: u64, bytes: usize, _advice: u32, _location: u64,
    ) {
        managed(call, address, bytes)
    }

    Call fn cuArrayCreate_v2(call, array: Out<Handle>, description: In<ArrayDescription>) {
        let ArrayDescription { width, height, format, channels } = description.get()?;
        make_array(call, array, [width, height, 0], format, channels, 0)
    }

    Call fn cuArray3DCreate_v2(call, array: Out<Handle>, description: In<Array3dDescription>) {
        let d = description.get()?;
        make_array(call, array, [d.width, d.height, d.depth], d.format, d.channels, d.flags)
    }

    Get fn cuArray3DGetDescriptor_v2(
        call, description: Out<Array3dDescription>, array: Handle,
    ) {
        let array = *call.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?;
        let Array { width, height, depth, format, channels, flags, .. } = array;
        description.put(Array3dDescription { width, height, depth, format, channels, flags })
    }

    Call fn cuArrayDestroy(call, array: Handle) {
        let array = call.arrays.remove(&array).ok_or(Status::INVALID_HANDLE)?;
        call.memory.free(array.address, |kind| matches!(kind, Kind::Device(_)))?;
        Ok(())
    }
}

/// cuda.h: `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayDescription {
    width: u64,
    height: u64,
    format: u32,
    channels: u32,
}

/// cuda.h: `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Array3dDescription {
    width: u64,
    height: u64,
    depth: u64,
    format: u32,
    channels: u32,
    flags: u32,
}

fn allocate(call: &mut Call, address: Out<u64>, size: usize, kind: Kind) -> Answer {
    if !address.is_wanted() {
        return Err(Status::INVALID_VALUE);
    }
    let allocated = call.memory.allocate(size, kind, settings().memory)?;
    address.put(allocated)
}

/// Refuses a range that is not in one allocation of managed memory.
pub(super) fn managed(call: &Call, address: u64, bytes: usize) -> Answer {
    let range = call.memory.find(address).ok_or(Status::INVALID_VALUE)?;
    if matches!(range.kind, Kind::Managed(_)) && call.memory.reaches(address, bytes as u64) {
        return Ok(());
    }
    Err(Status::INVALID_VALUE)
}

/// cuda.h: `CUpointer_attribute`. Each writes as many bytes as its type has.
fn attribute_of(
    call: &Call,
    value: Out<u64>,
    attribute: u32,
    range: Option<Range>,
    address: u64,
) -> Answer {
    let device = range.and_then(|range| match range.kind {
        Kind::Device(device) | Kind::Managed(device) => Some(device),
        Kind::Pinned | Kind::Registered => None,
    });
    let is_managed = range.is_some_and(|range| matches!(range.kind, Kind::Managed(_)));
    let on_host = range.is_some() && (device.is_none() || is_managed);
    match attribute {
        // The context.
        1 => value.put(call.context().unwrap_or(0)),
        // The kind of memory: 1 the host's, 2 a device's.
        2 => value.of::<u32>().put(range.map_or(0, |_| if device.is_some() { 2 } else { 1 })),
        // The device's address, and the host's.
        3 => value.put(range.map_or(0, |_| address)),
        4 => value.put(if on_host { address } else { 0 }),
        // A number of the allocation's own.
        7 => value.put(range.map_or(0, |range| range.base)),
        8 => value.of::<u8>().put(u8::from(is_managed)),
        // The device.
        9 => value.of::<i32>().put(range.map_or(-2, |_| device.unwrap_or(0) as i32)),
        10 | 15 | 6 => value.of::<u8>().put(0),
        11 => value.put(range.map_or(0, |range| range.base)),
        12 => value.put(range.map_or(0, |range| range.size as u64)),
        13 => value.of::<u8>().put(u8::from(range.is_some())),
        14 => value.put(0),
        // Readable and writable.
        16 => value.of::<u32>().put(range.map_or(0, |_| 3)),
        17 => value.put(0),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Bytes of an element's channel (cuda.h: `CUarray_format`).
fn channel_bytes(format: u32) -> Option<u64> {
    match format {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0A | 0x20 => Some(4),
        _ => None,
    }
}

fn make_array(
    call: &mut Call,
    out: Out<Handle>,
    [width, height, depth]: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
) -> Answer {
    let device = call.current_device()?;
    let channel = channel_bytes(format).ok_or(Status::INVALID_VALUE)?;
    if width == 0 || !matches!(channels, 1 | 2 | 4) {
        return Err(Status::INVALID_VALUE);
    }
    let pitch = width.checked_mul(channel * u64::from(channels)).ok_or(Status::OUT_OF_MEMORY)?;
    let lines = height.max(1).checked_mul(depth.max(1)).ok_or(Status::OUT_OF_MEMORY)?;
    let size = pitch.checked_mul(lines).ok_or(Status::OUT_OF_MEMORY)?;
    let limit = settings().memory;
    let address = call.memory.allocate(size as usize, Kind::Device(device), limit)?;
    let handle = call.handle();
    let made = Array { address, width, height, depth, format, channels, flags, pitch };
    call.arrays.insert(handle, made);
    out.put(handle)
}
