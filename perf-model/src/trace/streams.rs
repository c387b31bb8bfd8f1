//! The streams and devices of a trace that is being built, by the names that its file gives them.

use std::collections::HashMap;

use super::model::{Device, DeviceId, ProcessId, Stream, StreamId, Trace};

/// The number of no device and of no stream (CUPTI_SYNCHRONIZATION_INVALID_VALUE).
const NONE: u32 = u32::MAX;

/// A stream as files name it: the process where it is known, the device's number, its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StreamKey {
    pub(super) process: Option<ProcessId>,
    pub(super) device: u32,
    pub(super) number: i64,
}

/// The streams of a trace that is being built.
#[derive(Debug, Default)]
pub(super) struct Streams {
    devices: HashMap<u32, DeviceId>,
    known: HashMap<StreamKey, StreamId>,
    /// The one that was asked for last: mostly it is so again.
    last: Option<(StreamKey, StreamId)>,
}

impl Streams {
    pub(super) fn enter(&mut self, trace: &mut Trace, key: StreamKey) -> StreamId {
        if let Some((_, stream)) = self.last.filter(|(last, _)| *last == key) {
            return stream;
        }
        let device = self.enter_device(trace, key.device);
        let stream = *self.known.entry(key).or_insert_with(|| {
            trace.streams.push(Stream { process: key.process, device, number: key.number });
            StreamId::of(trace.streams.len() - 1)
        });
        self.last = Some((key, stream));
        stream
    }

    /// The stream of a process that a file names, also where nothing was done in it. `None` for a
    /// number that means none, and where it is not known whose operations in a stream of this number
    /// are: they may be this one's.
    pub(super) fn named(
        &mut self,
        trace: &mut Trace,
        key: StreamKey,
        owner: ProcessId,
    ) -> Option<StreamId> {
        let is_none = [-1, i64::from(NONE)].contains(&key.number) || key.device == NONE;
        if is_none || self.known.contains_key(&StreamKey { process: None, ..key }) {
            return None;
        }
        Some(self.enter(trace, StreamKey { process: Some(owner), ..key }))
    }

    /// The device that a file names, also where nothing was done on it.
    pub(super) fn named_device(&mut self, trace: &mut Trace, number: u32) -> Option<DeviceId> {
        (number != NONE).then(|| self.enter_device(trace, number))
    }

    fn enter_device(&mut self, trace: &mut Trace, number: u32) -> DeviceId {
        *self.devices.entry(number).or_insert_with(|| {
            trace.devices.push(Device { file: 0, number });
            DeviceId::of(trace.devices.len() - 1)
        })
    }
}
