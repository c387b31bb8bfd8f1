//! Beginning, errors, and the resolver.

use std::ffi::c_char;

use super::driver_functions;
use crate::call::Call;
use crate::ffi::{Name, Opaque, Out};
use crate::names::{Found, resolve};
use crate::settings::settings;
use crate::status::{Answer, Status, described};

driver_functions! {
    Ask fn cuInit(call, flags: u32) {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        call.initialize()
    }

    Ask fn cuDriverGetVersion(_call, version: Out<i32>) {
        version.put(settings().version as i32)
    }

    Ask fn cuGetErrorName(_call, code: i32, name: Out<*const c_char>) {
        let described = described(code);
        name.put(described.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        described.map(drop).ok_or(Status::INVALID_VALUE)
    }

    Ask fn cuGetErrorString(_call, code: i32, words: Out<*const c_char>) {
        let described = described(code);
        words.put(described.map_or(std::ptr::null(), |(_, words)| words.as_ptr()))?;
        described.map(drop).ok_or(Status::INVALID_VALUE)
    }

    Ask fn cuGetProcAddress(call, name: Name, function: Out<*const ()>, version: i32, flags: u64) {
        match look_up(call, name, version, flags)? {
            Found::Function(found) => function.put(found),
            Found::Unknown | Found::TooOld => Err(Status::NOT_FOUND),
        }
    }

    Ask fn cuGetProcAddress_v2(
        call,
        name: Name,
        function: Out<*const ()>,
        version: i32,
        flags: u64,
        status: Out<i32>,
    ) {
        // cuda.h: `CUdriverProcAddressQueryResult`.
        let (found, said) = match look_up(call, name, version, flags)? {
            Found::Function(found) => (found, 0),
            Found::Unknown => (std::ptr::null(), 1),
            Found::TooOld => (std::ptr::null(), 2),
        };
        function.put(found)?;
        status.put_if_wanted(said);
        Ok(())
    }

    Get fn cuGetExportTable(_call, _table: Out<*const ()>, _id: Opaque) {
        // Its tables are documented nowhere.
        Err(Status::NOT_FOUND)
    }

    Call fn cuProfilerStart(_call) { Ok(()) }

    Call fn cuProfilerStop(_call) { Ok(()) }
}

/// The flags ask for the legacy default stream (1), the thread's own (2), or neither.
fn look_up(call: &mut Call, name: Name, version: i32, flags: u64) -> Result<Found, Status> {
    if flags & !3 != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let name = name.get()?;
    let found = resolve(&name, u32::try_from(version).unwrap_or(0), flags & 2 != 0);
    call.record.look_up(&name, version, flags, matches!(found, Found::Function(_)));
    Ok(found)
}
