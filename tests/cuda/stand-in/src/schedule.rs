//! When things happen on a device: its copy engines and its kernels.

use std::collections::VecDeque;

/// Spans that an engine remembers. Work is asked for in nearly the order that it is done in, so
/// what would go before the oldest of as many goes behind it.
const SPANS: usize = 4096;

/// A span of virtual time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Does one thing at a time: whichever is ready first.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    /// In order of time.
    busy: VecDeque<Span>,
    /// The end of what is forgotten.
    horizon: u64,
}

impl Engine {
    /// Does something that is ready at a time in the first gap that it fits in.
    pub(crate) fn place(&mut self, ready: u64, duration: u64) -> Span {
        let mut start = ready.max(self.horizon);
        let mut index = self.busy.partition_point(|span| span.end <= start);
        while let Some(span) = self.busy.get(index) {
            if start + duration <= span.start {
                break;
            }
            start = start.max(span.end);
            index += 1;
        }
        let span = Span { start, end: start + duration };
        if duration > 0 {
            self.busy.insert(index, span);
        }
        if self.busy.len() > SPANS {
            self.horizon = self.busy.pop_front().map_or(self.horizon, |span| span.end);
        }
        span
    }
}

/// Several engines of a kind: what is ready goes to the one that does it first.
#[derive(Debug)]
struct Engines(Vec<Engine>);

impl Engines {
    fn place(&mut self, ready: u64, duration: u64) -> Span {
        let mut best = 0;
        for index in 0..self.0.len() {
            // An engine that does it at once is as good as any.
            let idle = self.0[index].busy.back().is_none_or(|last| last.end <= ready);
            if idle {
                return self.0[index].place(ready, duration);
            }
            let end = |engine: &Engine| engine.busy.back().map_or(0, |last| last.end);
            if end(&self.0[index]) < end(&self.0[best]) {
                best = index;
            }
        }
        self.0[best].place(ready, duration)
    }
}

/// What a piece of work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A place among the kernels.
    Kernel,
    /// The copy engine from host to device.
    ToDevice,
    /// The copy engine from device to host.
    ToHost,
}

/// The engines of a device.
#[derive(Debug)]
pub(crate) struct Device {
    kernels: Engines,
    to_device: Engine,
    to_host: Engine,
}

impl Device {
    /// A device that runs `concurrent` kernels at the same time.
    pub(crate) fn new(concurrent: usize) -> Self {
        let kernels = (0..concurrent.max(1)).map(|_| Engine::default()).collect();
        Self { kernels: Engines(kernels), to_device: Engine::default(), to_host: Engine::default() }
    }

    /// Does something that is ready at a time.
    pub(crate) fn place(&mut self, need: Need, ready: u64, duration: u64) -> Span {
        match need {
            Need::Kernel => self.kernels.place(ready, duration),
            Need::ToDevice => self.to_device.place(ready, duration),
            Need::ToHost => self.to_host.place(ready, duration),
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn spans(engine: &mut Engine, work: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let place = |(ready, duration): &(u64, u64)| {
            let span = engine.place(*ready, *duration);
            (span.start, span.end)
        };
        work.iter().map(place).collect()
    }

    #[test]
    fn an_engine_does_one_thing_at_a_time() {
        let work = [(0, 10), (5, 10), (100, 10)];
        assert_eq!(spans(&mut Engine::default(), &work), [(0, 10), (10, 20), (100, 110)]);
    }

    #[test]
    fn what_is_ready_first_goes_first_where_there_is_room() {
        let work = [(100, 10), (20, 80), (0, 30), (0, 20), (0, 0)];
        let wanted = [(100, 110), (20, 100), (110, 140), (0, 20), (0, 0)];
        assert_eq!(spans(&mut Engine::default(), &work), wanted);
    }

    #[test]
    fn what_is_forgotten_is_past() {
        let mut engine = Engine::default();
        for index in 0..2 * SPANS as u64 {
            engine.place(index * 10, 5);
        }
        assert_eq!(engine.busy.len(), SPANS);
        // The gaps of the forgotten half are gone, those of the other half are not.
        let start = engine.place(0, 1).start;
        assert_eq!(start, (SPANS as u64 - 1) * 10 + 5);
    }

    #[test]
    fn kernels_run_beside_each_other_up_to_the_limit() {
        let mut device = Device::new(2);
        let place = |device: &mut Device| device.place(Need::Kernel, 0, 10).start;
        assert_eq!([place(&mut device), place(&mut device)], [0, 0]);
        assert_eq!([place(&mut device), place(&mut device)], [10, 10]);
        // Copies have engines of their own, one for each direction.
        assert_eq!(device.place(Need::ToDevice, 0, 10).start, 0);
        assert_eq!(device.place(Need::ToHost, 0, 10).start, 0);
        assert_eq!(device.place(Need::ToDevice, 0, 10).start, 10);
    }
}
