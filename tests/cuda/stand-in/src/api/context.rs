//! Contexts, and each thread's stack of them.

use super::driver_functions;
use crate::call::{Call, with_contexts};
use crate::driver::{Handle, Primary};
use crate::ffi::{Opaque, Out};
use crate::status::{Answer, Status};

driver_functions! {
    Call fn cuDevicePrimaryCtxRetain(call, context: Out<Handle>, device: i32) {
        let device = call.device(device)?;
        let Primary { context: there, flags, .. } = call.primaries[device];
        let made = there.unwrap_or_else(|| call.make_context(device, flags, true));
        call.primaries[device].context = Some(made);
        call.primaries[device].retained += 1;
        context.put(made)
    }

    Call [cuDevicePrimaryCtxRelease_v2] fn cuDevicePrimaryCtxRelease(call, device: i32) {
        let device = call.device(device)?;
        let retained = &mut call.primaries[device].retained;
        *retained = retained.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if *retained == 0 {
            end_primary(call, device);
        }
        Ok(())
    }

    Call [cuDevicePrimaryCtxReset_v2] fn cuDevicePrimaryCtxReset(call, device: i32) {
        let device = call.device(device)?;
        end_primary(call, device);
        Ok(())
    }

    Get fn cuDevicePrimaryCtxGetState(
        call, device: i32, flags: Out<u32>, active: Out<i32>,
    ) {
        let device = call.device(device)?;
        let primary = &call.primaries[device];
        flags.put(primary.flags)?;
        active.put(i32::from(primary.context.is_some()))
    }

    Call [cuDevicePrimaryCtxSetFlags_v2] fn cuDevicePrimaryCtxSetFlags(
        call, device: i32, flags: u32,
    ) {
        let device = call.device(device)?;
        call.primaries[device].flags = flags;
        Ok(())
    }

    Call fn cuCtxCreate_v2(call, context: Out<Handle>, flags: u32, device: i32) {
        create(call, context, flags, device)
    }

    Call fn cuCtxCreate_v3(
        call, context: Out<Handle>, _affinity: Opaque, _count: i32, flags: u32, device: i32,
    ) {
        create(call, context, flags, device)
    }

    Call fn cuCtxCreate_v4(
        call, context: Out<Handle>, _parameters: Opaque, flags: u32, device: i32,
    ) {
        create(call, context, flags, device)
    }

    Call [cuCtxDestroy_v2] fn cuCtxDestroy(call, context: Handle) {
        match call.contexts.get(&context) {
            Some(known) if !known.is_primary => {}
            _ => return Err(Status::INVALID_CONTEXT),
        }
        let end = call.end_of_context(context);
        call.wait_until(end);
        call.end_context(context);
        with_contexts(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        Ok(())
    }

    Call [cuCtxPushCurrent_v2] fn cuCtxPushCurrent(call, context: Handle) {
        if !call.contexts.contains_key(&context) {
            return Err(Status::INVALID_CONTEXT);
        }
        with_contexts(|stack| stack.push(context));
        Ok(())
    }

    Call [cuCtxPopCurrent_v2] fn cuCtxPopCurrent(_call, context: Out<Handle>) {
        let popped = with_contexts(Vec::pop).ok_or(Status::INVALID_CONTEXT)?;
        context.put_if_wanted(popped);
        Ok(())
    }

    Call fn cuCtxSetCurrent(call, context: Handle) {
        if context != 0 && !call.contexts.contains_key(&context) {
            return Err(Status::INVALID_CONTEXT);
        }
        with_contexts(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    Get fn cuCtxGetCurrent(_call, context: Out<Handle>) {
        context.put(crate::call::current_context().unwrap_or(0))
    }

    Get fn cuCtxGetDevice(call, device: Out<i32>) {
        device.put(call.current_device()? as i32)
    }

    Get fn cuCtxGetDevice_v2(call, device: Out<i32>, context: Handle) {
        let context = given_or_current(call, context)?;
        device.put(call.contexts[&context].device as i32)
    }

    Get fn cuCtxGetFlags(call, flags: Out<u32>) {
        let context = call.context()?;
        flags.put(call.contexts[&context].flags)
    }

    Call fn cuCtxSetFlags(call, flags: u32) {
        let context = call.context()?;
        call.contexts.get_mut(&context).expect("it is current").flags = flags;
        Ok(())
    }

    Get fn cuCtxGetId(call, context: Handle, id: Out<u64>) {
        id.put(given_or_current(call, context)?)
    }

    Get fn cuCtxGetApiVersion(call, context: Handle, version: Out<u32>) {
        given_or_current(call, context)?;
        version.put(3020)
    }

    Get fn cuCtxGetStreamPriorityRange(call, least: Out<i32>, greatest: Out<i32>) {
        call.context()?;
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }

    Get fn cuCtxGetLimit(call, value: Out<usize>, limit: u32) {
        let context = call.context()?;
        value.put(call.contexts[&context].limits.get(&limit).copied().unwrap_or(1024))
    }

    Call fn cuCtxSetLimit(call, limit: u32, value: usize) {
        let context = call.context()?;
        call.contexts.get_mut(&context).expect("it is current").limits.insert(limit, value);
        Ok(())
    }

    Get fn cuCtxGetCacheConfig(call, config: Out<u32>) {
        call.context()?;
        config.put(0)
    }

    Call fn cuCtxSetCacheConfig(call, _config: u32) {
        call.context().map(drop)
    }

    Call fn cuCtxEnablePeerAccess(call, context: Handle, flags: u32) {
        let ours = call.current_device()?;
        let known = call.contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?;
        if known.device == ours || flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        Ok(())
    }

    Sync fn cuCtxSynchronize(call) {
        let context = call.context()?;
        synchronize(call, context)
    }

    Sync fn cuCtxSynchronize_v2(call, context: Handle) {
        let context = given_or_current(call, context)?;
        synchronize(call, context)
    }
}

fn create(call: &mut Call, context: Out<Handle>, flags: u32, device: i32) -> Answer {
    let device = call.device(device)?;
    let made = call.make_context(device, flags, false);
    with_contexts(|stack| stack.push(made));
    context.put(made)
}

/// A context, or the current one where null is given.
fn given_or_current(call: &Call, context: Handle) -> Result<Handle, Status> {
    match context {
        0 => call.context(),
        _ if call.contexts.contains_key(&context) => Ok(context),
        _ => Err(Status::INVALID_CONTEXT),
    }
}

fn synchronize(call: &mut Call, context: Handle) -> Answer {
    let captured = call.streams.iter().find(|(_, s)| s.context == context && s.capture.is_some());
    if let Some(stream) = captured.map(|(stream, _)| *stream) {
        return call.refuse_captured(stream);
    }
    let end = call.end_of_context(context);
    call.wait_until(end);
    Ok(())
}

fn end_primary(call: &mut Call, device: usize) {
    call.primaries[device].retained = 0;
    if let Some(context) = call.primaries[device].context.take() {
        let end = call.end_of_context(context);
        call.wait_until(end);
        call.end_context(context);
        call.memory.clear(device);
    }
}
