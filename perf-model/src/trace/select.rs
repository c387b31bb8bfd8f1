//! Traces put together, and parts of them.

use std::collections::HashSet;

use super::model::{
    Call, CallId, Device, DeviceId, Event, NameId, Operation, ProcessId, StreamId, Target,
    ThreadId, Trace, Wait,
};

impl Trace {
    /// Several files as one trace, such as those of a job's ranks: each has its own processes and
    /// devices. Where their clocks say that they ran at the same time, they do so here; else all
    /// begin together.
    #[must_use]
    pub fn together(traces: Vec<Trace>) -> Trace {
        let begin = traces.iter().map(|trace| trace.origin_ns).min().unwrap_or(0);
        let offset = |trace: &Trace| trace.origin_ns.abs_diff(begin);
        // At the same time: each begins before the first of them ends.
        let end = |trace: &Trace| offset(trace).saturating_add(trace.length_ns());
        let first_end = traces.iter().map(end).min();
        let aligned = first_end.is_some_and(|end| traces.iter().all(|it| offset(it) < end));
        let mut whole = Trace { origin_ns: begin, ..Trace::default() };
        if !aligned {
            let remark = "The files' clocks do not agree: all are taken to begin together.";
            whole.notes.remarks.push(remark.to_owned());
        }
        for (file, trace) in (0..).zip(traces) {
            let offset = if aligned { offset(&trace) } else { 0 };
            whole.append(trace, file, offset);
        }
        whole.sort();
        whole
    }

    fn append(&mut self, other: Trace, file: u32, offset: u64) {
        let (processes, threads) = (self.processes.len(), self.threads.len());
        let (devices, streams) = (self.devices.len(), self.streams.len());
        let calls = self.calls.len();
        let names: Vec<NameId> = (0..other.names.len())
            .map(|at| other.names.get(NameId::of(at)))
            .map(|name| self.names.enter(name).unwrap_or_else(|| self.names.overflow()))
            .collect();
        let process = |id: ProcessId| ProcessId::of(processes + id.index());
        let thread = |id: ThreadId| ThreadId::of(threads + id.index());
        let device = |id: DeviceId| DeviceId::of(devices + id.index());
        let stream = |id: StreamId| StreamId::of(streams + id.index());
        let call = |id: CallId| CallId::of(calls + id.index());
        let event = |it: Event| Event { stream: stream(it.stream), recorded: call(it.recorded) };

        self.processes.extend(other.processes);
        for mut it in other.threads {
            it.process = process(it.process);
            self.threads.push(it);
        }
        self.devices.extend(other.devices.iter().map(|it| Device { file, ..*it }));
        for mut it in other.streams {
            it.process = it.process.map(process);
            it.device = device(it.device);
            self.streams.push(it);
        }
        for mut it in other.operations {
            it.start += offset;
            it.stream = stream(it.stream);
            it.call = it.call.map(call);
            it.name = names[it.name.index()];
            self.operations.push(it);
        }
        for mut it in other.calls {
            it.start += offset;
            it.thread = thread(it.thread);
            it.name = names[it.name.index()];
            it.target = match it.target {
                Target::Unknown => Target::Unknown,
                Target::Stream(it) => Target::Stream(stream(it)),
                Target::Device(it) => Target::Device(device(it)),
                Target::Event(it) => Target::Event(event(it)),
            };
            self.calls.push(it);
        }
        for it in other.waits {
            let (call, stream) = (call(it.call), stream(it.stream));
            self.waits.push(Wait { call, stream, event: event(it.event) });
        }
        for mut it in other.steps {
            it.thread = thread(it.thread);
            it.start += offset;
            self.steps.push(it);
        }
        self.notes.left_out += other.notes.left_out;
        self.notes.remarks.extend(other.notes.remarks);
    }

    /// Puts everything in order again.
    fn sort(&mut self) {
        self.operations.sort_by_key(|operation| (operation.start, operation.duration));
        self.steps.sort_by_key(|step| step.start);
        let calls = std::mem::take(&mut self.calls);
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by_key(|at| calls[*at].start);
        self.take_calls(&calls, &order);
    }

    /// Takes these of the calls, by their old places in the new order; what spoke of others does so
    /// no more.
    fn take_calls(&mut self, calls: &[Call], order: &[usize]) {
        let mut place: Vec<Option<CallId>> = vec![None; calls.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = Some(CallId::of(new));
        }
        let event = |it: Event| {
            let recorded = place[it.recorded.index()]?;
            Some(Event { recorded, ..it })
        };
        self.calls = order.iter().map(|old| calls[*old]).collect();
        for call in &mut self.calls {
            if let Target::Event(it) = call.target {
                call.target = event(it).map_or(Target::Unknown, Target::Event);
            }
        }
        for operation in &mut self.operations {
            operation.call = operation.call.and_then(|call| place[call.index()]);
        }
        let waits = std::mem::take(&mut self.waits);
        self.waits = waits
            .into_iter()
            .filter_map(|it| {
                let (call, event) = (place[it.call.index()]?, event(it.event)?);
                Some(Wait { call, event, ..it })
            })
            .collect();
        self.waits.sort_by_key(|wait| wait.call);
    }

    /// Keeps only what was done on some devices (by the numbers that the files give them) and asked
    /// for by some processes; empty lists keep all.
    pub fn keep(&mut self, devices: &[u32], processes: &[i64]) {
        let is_device = |number: u32| devices.is_empty() || devices.contains(&number);
        let is_process =
            |id: ProcessId| processes.is_empty() || processes.contains(&self.processes[id.index()]);
        let operations = std::mem::take(&mut self.operations);
        let kept = operations.into_iter().filter(|operation| {
            let stream = self.streams[operation.stream.index()];
            let process = stream.process.or(operation.call.map(|call| self.process_of(call)));
            is_device(self.devices[stream.device.index()].number)
                && process.map_or(processes.is_empty(), is_process)
        });
        let kept: Vec<_> = kept.collect();

        // Calls and steps of processes that are kept; with devices chosen, of those with something on
        // them.
        let process_of = |it: &Operation| {
            let of_stream = self.streams[it.stream.index()].process;
            it.call.map(|call| self.process_of(call)).or(of_stream)
        };
        let owners: HashSet<ProcessId> = kept.iter().filter_map(process_of).collect();
        let is_kept = |thread: ThreadId| {
            let process = self.threads[thread.index()].process;
            is_process(process) && (devices.is_empty() || owners.contains(&process))
        };
        let calls = self.calls.iter().enumerate();
        let order: Vec<usize> =
            calls.filter(|(_, call)| is_kept(call.thread)).map(|(at, _)| at).collect();
        self.steps = self.steps.iter().filter(|step| is_kept(step.thread)).copied().collect();
        self.operations = kept;
        let calls = std::mem::take(&mut self.calls);
        self.take_calls(&calls, &order);
        self.begin_with_first();
    }

    /// Counts times from the first call or operation that is left, or the step before it that it is in.
    fn begin_with_first(&mut self) {
        let operations = self.operations.iter().map(|operation| operation.start);
        let Some(first) = operations.chain(self.calls.iter().map(|call| call.start)).min() else {
            return;
        };
        // What was a step of what is not left is none any more.
        self.steps.retain(|step| step.end() > first);
        let first = self.steps.iter().map(|step| step.start).chain([first]).min().unwrap_or(first);
        self.origin_ns = self.origin_ns.saturating_add_unsigned(first);
        self.operations.iter_mut().for_each(|operation| operation.start -= first);
        self.calls.iter_mut().for_each(|call| call.start -= first);
        self.steps.iter_mut().for_each(|step| step.start -= first);
    }
}

#[cfg(test)]
mod unit_tests {
    use super::super::{Options, read_text};
    use super::*;

    const TEXT: &str = "\
start_ns,duration_ns,kind,device,stream,name,correlation,thread,process,event_stream,event_correlation
100,5,launch,,,cuLaunchKernel,1,1,100,,
101,5,launch,,,cuLaunchKernel,2,1,200,,
110,50,kernel,0,7,a,1,,100,,
111,50,kernel,1,7,b,2,,200,,
120,5,wait,1,8,cuStreamWaitEvent,3,1,200,7,2
130,5,launch,,,cuLaunchKernel,4,1,200,,
170,5,kernel,1,8,c,4,,200,,
180,5,sync,1,8,cuStreamSynchronize,5,1,200,,
99,90,step,,,ProfilerStep#1,,1,200,,
";

    fn read(text: &str) -> Trace {
        read_text(text.as_bytes(), &Options::default()).unwrap()
    }

    fn names(trace: &Trace) -> Vec<&str> {
        trace.operations.iter().map(|operation| trace.names.get(operation.name)).collect()
    }

    #[test]
    fn parts_are_kept_with_what_belongs_to_them() {
        let mut trace = read(TEXT);
        trace.keep(&[1], &[]);
        assert_eq!((names(&trace), trace.calls.len()), (vec!["b", "c"], 4));
        assert_eq!((trace.waits.len(), trace.steps.len(), trace.busy_devices()), (1, 1, 1));
        assert_eq!(trace.waits[0].call, CallId::of(1));
        assert_eq!(trace.operations[1].call, Some(CallId::of(2)));

        let mut trace = read(TEXT);
        trace.keep(&[], &[100]);
        assert_eq!((names(&trace), trace.calls.len()), (vec!["a"], 1));
        assert_eq!((trace.waits.len(), trace.steps.len()), (0, 0));

        // What process 200 marks is no step of what is on device 0.
        let mut trace = read(TEXT);
        trace.keep(&[0], &[]);
        assert_eq!((names(&trace), trace.calls.len()), (vec!["a"], 1));
        assert_eq!((trace.steps.len(), trace.busy_devices()), (0, 1));

        let mut trace = read(TEXT);
        trace.keep(&[0], &[200]);
        assert_eq!((trace.operations.len(), trace.calls.len()), (0, 0));
    }

    #[test]
    fn a_part_is_as_if_it_were_alone() {
        let alone: String =
            TEXT.split_inclusive('\n').filter(|line| !line.contains(",100,,")).collect();
        let alone = read(&alone);
        let later = TEXT.replace("100,5,launch", "0,5,launch").replace("110,50", "10,50");
        let mut part = read(&later);
        part.keep(&[], &[200]);
        assert_eq!((part.origin_ns, part.length_ns()), (alone.origin_ns, alone.length_ns()));
        let times = |it: &Trace| {
            let operations = it.operations.iter().map(|it| (it.start, it.duration));
            operations.chain(it.steps.iter().map(|it| (it.start, it.duration))).collect::<Vec<_>>()
        };
        assert_eq!(times(&part), times(&alone));
    }

    #[test]
    fn files_are_put_together_by_their_clocks() {
        let later = TEXT.replace("100,5,launch", "105,5,launch").replace("99,90", "101,90");
        let whole = Trace::together(vec![read(TEXT), read(&later)]);
        assert_eq!((whole.processes.len(), whole.devices.len(), whole.streams.len()), (4, 4, 6));
        assert_eq!(whole.devices[3], Device { file: 1, number: 1 });
        assert_eq!((whole.origin_ns, whole.notes.remarks.len()), (99, 0));
        assert!(whole.operations.is_sorted_by_key(|it| it.start));
        assert!(whole.calls.is_sorted_by_key(|it| it.start));
        for operation in &whole.operations {
            let call = operation.call.unwrap();
            let stream = whole.streams[operation.stream.index()];
            assert_eq!(stream.process, Some(whole.process_of(call)));
        }
        for wait in &whole.waits {
            assert_eq!(whole.names.get(whole.calls[wait.call.index()].name), "cuStreamWaitEvent");
        }
        assert_eq!((whole.waits.len(), whole.steps.len(), whole.names.len()), (2, 2, 6));

        let tomorrow = "start_ns,duration_ns,kind\n86400000000000,5,kernel\n";
        let whole = Trace::together(vec![read(TEXT), read(tomorrow)]);
        assert!(whole.notes.remarks[0].contains("do not agree"));
        assert_eq!(whole.length_ns(), 86);
        // Clocks as far from each other as can be.
        let at = |origin_ns: i64| Trace { origin_ns, ..read(TEXT) };
        let whole = Trace::together(vec![at(i64::MAX), at(i64::MIN)]);
        assert_eq!((whole.length_ns(), whole.notes.remarks.len()), (86, 1));
    }
}
