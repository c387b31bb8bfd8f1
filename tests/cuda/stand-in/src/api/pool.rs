//! Memory in the order of a stream, and the pools that it comes from.

use std::collections::HashMap;

use super::driver_functions;
use crate::call::Call;
use crate::driver::{Handle, Pool};
use crate::ffi::{Opaque, Out};
use crate::graph::Operation;
use crate::memory::Kind;
use crate::settings::settings;
use crate::status::{Answer, Status};

driver_functions! {
    Call [cuMemAllocAsync_ptsz] fn cuMemAllocAsync(
        call, address: Out<u64>, size: usize, stream: Handle,
    ) {
        let device = call.current_device()?;
        allocate(call, address, size, device, stream)
    }

    Call [cuMemAllocFromPoolAsync_ptsz] fn cuMemAllocFromPoolAsync(
        call, address: Out<u64>, size: usize, pool: Handle, stream: Handle,
    ) {
        let device = call.pools.get(&pool).ok_or(Status::INVALID_VALUE)?.device;
        allocate(call, address, size, device, stream)
    }

    Call [cuMemFreeAsync_ptsz] fn cuMemFreeAsync(call, address: u64, stream: Handle) {
        let stream = call.stream(stream)?;
        let is_free = call.submit(stream, Operation::Free)?.is_some();
        if is_free {
            call.memory.free(address, |kind| matches!(kind, Kind::Device(_)))?;
        }
        Ok(())
    }

    Get fn cuDeviceGetDefaultMemPool(call, pool: Out<Handle>, device: i32) {
        let device = call.device(device)?;
        pool.put(default(call, device))
    }

    Get fn cuDeviceGetMemPool(call, pool: Out<Handle>, device: i32) {
        let device = call.device(device)?;
        pool.put(default(call, device))
    }

    Call fn cuDeviceSetMemPool(call, device: i32, pool: Handle) {
        call.device(device)?;
        call.pools.get(&pool).map(drop).ok_or(Status::INVALID_VALUE)
    }

    Call fn cuMemPoolCreate(call, pool: Out<Handle>, _properties: Opaque) {
        let device = call.device_of_thread();
        let handle = call.handle();
        call.pools.insert(handle, Pool { device, attributes: HashMap::new() });
        pool.put(handle)
    }

    Call fn cuMemPoolDestroy(call, pool: Handle) {
        let device = call.pools.get(&pool).ok_or(Status::INVALID_VALUE)?.device;
        if default(call, device) == pool {
            return Err(Status::INVALID_VALUE);
        }
        call.pools.remove(&pool);
        Ok(())
    }

    Get fn cuMemPoolGetAttribute(call, pool: Handle, attribute: u32, value: Out<u64>) {
        let pool = call.pools.get(&pool).ok_or(Status::INVALID_VALUE)?;
        let set = pool.attributes.get(&attribute).copied();
        match attribute {
            // Whether freed memory is used again: numbers of four bytes, 1 at first.
            1..=3 => value.of::<u32>().put(set.unwrap_or(1) as u32),
            4..=8 => value.put(set.unwrap_or(0)),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    Call fn cuMemPoolSetAttribute(call, pool: Handle, attribute: u32, value: Out<u64>) {
        let value = match attribute {
            1..=3 => u64::from(value.of::<u32>().get()?),
            4..=8 => value.get()?,
            _ => return Err(Status::INVALID_VALUE),
        };
        let pool = call.pools.get_mut(&pool).ok_or(Status::INVALID_VALUE)?;
        pool.attributes.insert(attribute, value);
        Ok(())
    }

    Call fn cuMemPoolSetAccess(call, pool: Handle, _access: Opaque, _count: usize) {
        call.pools.get(&pool).map(drop).ok_or(Status::INVALID_VALUE)
    }

    Call fn cuMemPoolTrimTo(call, pool: Handle, _keep: usize) {
        call.pools.get(&pool).map(drop).ok_or(Status::INVALID_VALUE)
    }
}

fn allocate(
    call: &mut Call,
    address: Out<u64>,
    size: usize,
    device: usize,
    stream: Handle,
) -> Answer {
    let stream = call.stream(stream)?;
    let made = call.memory.allocate(size, Kind::Device(device), settings().memory)?;
    call.submit(stream, Operation::Allocate)?;
    address.put(made)
}

/// The pool that a device has from the beginning: its oldest.
fn default(call: &Call, device: usize) -> Handle {
    let of_device = call.pools.iter().filter(|(_, pool)| pool.device == device);
    of_device.map(|(handle, _)| *handle).min().expect("every device has one")
}
