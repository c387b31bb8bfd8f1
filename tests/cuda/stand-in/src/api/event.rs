//! Events.

use super::driver_functions;
use crate::driver::{Event, Handle};
use crate::ffi::Out;
use crate::graph::Operation;
use crate::status::{Answer, Status};

driver_functions! {
    Call fn cuEventCreate(call, event: Out<Handle>, flags: u32) {
        let context = call.context()?;
        if flags & !7 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        // cuda.h, `CUevent_flags`: 2 is without timing.
        let (handle, timing) = (call.handle(), flags & 2 == 0);
        let (time, recorded, captured) = (None, None, None);
        call.events.insert(handle, Event { context, timing, time, recorded, captured });
        event.put(handle)
    }

    Call [cuEventDestroy_v2] fn cuEventDestroy(call, event: Handle) {
        call.events.remove(&event).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    Call [cuEventRecord_ptsz] fn cuEventRecord(call, event: Handle, stream: Handle) {
        record(call, event, stream)
    }

    Call [cuEventRecordWithFlags_ptsz] fn cuEventRecordWithFlags(
        call, event: Handle, stream: Handle, _flags: u32,
    ) {
        record(call, event, stream)
    }

    Query fn cuEventQuery(call, event: Handle) {
        let known = call.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
        if known.captured.is_some() {
            return Err(Status::CAPTURED_EVENT);
        }
        if known.time.unwrap_or(0) > call.now() { Err(Status::NOT_READY) } else { Ok(()) }
    }

    Sync fn cuEventSynchronize(call, event: Handle) {
        let known = call.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
        if known.captured.is_some() {
            return Err(Status::CAPTURED_EVENT);
        }
        let (time, recorded) = (known.time.unwrap_or(0), known.recorded);
        call.event = recorded;
        call.wait_until(time);
        Ok(())
    }

    Call [cuEventElapsedTime_v2] fn cuEventElapsedTime(
        call, milliseconds: Out<f32>, start: Handle, end: Handle,
    ) {
        let time = |event: Handle| {
            let known = call.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
            match known.time {
                Some(time) if known.timing => Ok(time),
                _ => Err(Status::INVALID_HANDLE),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        if end.max(start) > call.now() {
            return Err(Status::NOT_READY);
        }
        milliseconds.put(((end as f64 - start as f64) / 1e6) as f32)
    }
}

fn record(call: &mut crate::call::Call, event: Handle, stream: Handle) -> Answer {
    let stream = call.stream(stream)?;
    if !call.events.contains_key(&event) {
        return Err(Status::INVALID_HANDLE);
    }
    call.submit(stream, Operation::Record(event))?;
    Ok(())
}
