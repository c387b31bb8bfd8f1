//! Files of each kind, written here, and what is read from them.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use rusqlite::Connection;

use super::*;

const PLAIN: Options = Options { format: None, salvage: false };
const SALVAGE: Options = Options { format: None, salvage: true };

/// A launch, its kernel, a copy back in another stream, and a wait for it; out of order.
const KINETO: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "a \"GPU\""}],
  "baseTimeNanoseconds": 1000,
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 9, "ts": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0,
     "tid": 8, "ts": 130, "dur": 5, "args": {"device": 0, "stream": 8, "correlation": 2,
     "bytes": 4096, "memory bandwidth (GB/s)": NaN}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
     "ts": 100.25, "dur": 4.5, "args": {"correlation": 1}},
    {"cat": "kernel", "name": "void k<\"x\">()", "pid": 0, "tid": 7, "ts": 110.125, "dur": 10,
     "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1]}, "ph": "X"},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 9, "ts": 1, "dur": 2},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 9, "tid": 9,
     "ts": 106, "dur": 30, "args": {"correlation": 2}},
    {"ph": "X", "cat": "cuda_driver", "name": "cuMemcpyDtoHAsync_v2", "pid": 9, "tid": 9,
     "ts": 107, "dur": 28, "args": {"correlation": 3}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 9, "tid": 9,
     "ts": 140, "dur": 3, "args": {"correlation": 4}},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 8, "ts": 141,
     "dur": 1, "args": {"cuda_sync_kind": "Stream Sync", "stream": 8, "correlation": 4,
     "device": 0}},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 9, "tid": 9,
     "ts": 99, "dur": 50}
  ],
  "traceName": "t.json"
}
"#;

const CSV: &str = "\
kind,start_ns,duration_ns,device,stream,bytes,name,correlation,thread,process,memory
dtoh,130000,5000,0,8,4096,\"Memcpy DtoH (Device -> Pageable)\",2,,,pageable
launch,100250,4500,,,,cudaLaunchKernel,1,9,9,
kernel,110125,10000,0,7,,\"void k<\"\"x\"\">()\",1,,,
call,106000,30000,,,,cudaMemcpyAsync,2,9,9,
call,107000,28000,,,,cuMemcpyDtoHAsync_v2,3,9,9,
sync,140000,3000,0,8,,cudaStreamSynchronize,4,9,9,
step,99000,50000,,,,ProfilerStep#3,,9,9,
";

fn read(text: &str) -> Trace {
    read_text(text.as_bytes(), &PLAIN).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> String {
    read_text(text.as_bytes(), &PLAIN).expect_err("it is wrong").to_string()
}

/// Everything in a trace, as text, without what only says where it came from.
fn shown(trace: &Trace) -> Vec<String> {
    let name = |id| trace.names.get(id);
    let mut lines = Vec::new();
    for operation in &trace.operations {
        let stream = trace.streams[operation.stream.index()];
        let process = stream.process.map(|process| trace.processes[process.index()]);
        lines.push(format!(
            "{} +{} {:?} {} B, device {} stream {} of {process:?}, call {:?}, {}",
            operation.start,
            operation.duration,
            operation.kind,
            operation.bytes,
            trace.devices[stream.device.index()].number,
            stream.number,
            operation.call.map(CallId::index),
            name(operation.name),
        ));
    }
    for call in &trace.calls {
        let thread = trace.threads[call.thread.index()];
        let target = match call.target {
            Target::Stream(stream) => {
                format!("stream {}", trace.streams[stream.index()].number)
            }
            other => format!("{other:?}"),
        };
        lines.push(format!(
            "{} +{} {:?}, thread {} of {}, {target}, {}",
            call.start,
            call.duration,
            call.kind,
            thread.id,
            trace.processes[thread.process.index()],
            name(call.name),
        ));
    }
    lines.extend(trace.steps.iter().map(|step| format!("step {} +{}", step.start, step.duration)));
    lines
}

/// The same as [`KINETO`], as Nsight Systems has it.
fn nsys(folder: &Path) -> PathBuf {
    let path = folder.join("trace.sqlite");
    let database = Connection::open(&path).unwrap();
    let process = 9_i64 << 24;
    database
        .execute_batch(&format!(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO StringIds VALUES (1, 'void k<\"x\">()'), (2, 'cudaLaunchKernel'),
               (3, 'cudaMemcpyAsync'), (4, 'cudaStreamSynchronize');
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER,
               deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
               demangledName INTEGER, shortName INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
               (110125, 120125, 0, 7, 1, {process}, 1, 77);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER,
               deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
               bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
               (130000, 135000, 0, 8, 2, {process}, 4096, 2, 2, 0),
               (131000, NULL, 0, 8, 2, {process}, 4096, 2, 2, 0),
               (131000, 132000, 0, 8, 2, {process}, 4096, 9, 0, 0);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,
               globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
               (100250, 104750, {process} + 9, 1, 2), (106000, 136000, {process} + 9, 2, 3),
               (140000, 143000, {process} + 9, 4, 4);
             CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER,
               deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
               syncType INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
               (141000, 142000, 0, 8, 4, {process}, 3);"
        ))
        .unwrap();
    path
}

#[test]
fn one_program_in_each_kind_of_file() {
    let kineto = read(KINETO);
    assert_eq!(
        shown(&kineto),
        [
            "11125 +10000 Kernel 0 B, device 0 stream 7 of Some(9), call Some(0), void k<\"x\">()",
            "31000 +5000 Copy(DeviceToHost, Pageable) 4096 B, device 0 stream 8 of Some(9), \
             call Some(1), Memcpy DtoH (Device -> Pageable)",
            "1250 +4500 Issue, thread 9 of 9, Unknown, cudaLaunchKernel",
            "7000 +30000 Issue, thread 9 of 9, Unknown, cudaMemcpyAsync",
            "41000 +3000 Synchronise(Stream), thread 9 of 9, stream 8, cudaStreamSynchronize",
            "step 0 +50000",
        ]
    );
    assert_eq!(kineto.origin_ns, 100_000, "with the base");
    assert_eq!(kineto.length_ns(), 44_000);

    let csv = read(CSV);
    assert_eq!(shown(&csv).len(), 6);
    for (one, other) in shown(&csv).iter().zip(shown(&kineto)) {
        // CSV says nothing of an operation's process, but its call does.
        assert_eq!(*one, other);
    }

    let folder = tempfile::tempdir().unwrap();
    let nsys = read_file(&nsys(folder.path()), &PLAIN).unwrap();
    // It marks no steps: the first call is the trace's begin.
    let mut expected = shown(&read(&CSV.replace("step,99000,50000,,,,ProfilerStep#3,,9,9,\n", "")));
    expected[1] = expected[1].replace("Memcpy DtoH (Device -> Pageable)", "memcpy DtoH (pageable)");
    assert_eq!(shown(&nsys), expected);
}

#[test]
fn copies_between_arrays_are_the_devices_and_those_within_the_host_are_nobodys() {
    let copy = |name: &str| KINETO.replace("Memcpy DtoH (Device -> Pageable)", name);
    let arrays = read(&copy("Memcpy AtoA (Array -> Array)"));
    let kind = OperationKind::Copy(Direction::DeviceToDevice, Memory::Pinned);
    assert_eq!(arrays.operations[1].kind, kind);
    assert_eq!(read(&copy("Memcpy HtoH (Pinned -> Pinned)")).operations.len(), 1);
    assert!(refused(&copy("Memcpy Unknown")).contains("from where to where"));
}

#[test]
fn arrays_alone_compressed_files_and_marks_are_read() {
    let (_, events) = KINETO.split_once("\"traceEvents\":").unwrap();
    let (events, _) = events.rsplit_once("\"traceName\"").unwrap();
    let events = events.trim().strip_suffix(',').unwrap();
    assert_eq!(shown(&read(events)), shown(&read(KINETO)));
    assert_eq!(shown(&read(&format!("\u{feff}{KINETO}"))), shown(&read(KINETO)));
    assert_eq!(shown(&read(&format!("\u{feff}{CSV}"))), shown(&read(CSV)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json.gz");
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(KINETO.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    std::fs::write(&path, &packed).unwrap();
    assert_eq!(shown(&read_file(&path, &PLAIN).unwrap()), shown(&read(KINETO)));
    std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    let error = read_file(&path, &PLAIN).unwrap_err();
    assert!(matches!(error, ReadError::Truncated { .. }), "{error}");
    assert!(read_text(&packed[..packed.len() / 2], &PLAIN).is_err());
}

#[test]
fn a_trace_that_is_cut_off_is_refused_with_the_place_or_salvaged() {
    let whole = shown(&read(KINETO)).len();
    for end in 0..KINETO.trim_end().len() {
        let cut = &KINETO.as_bytes()[..end];
        match read_text(cut, &PLAIN).unwrap_err() {
            ReadError::Truncated { place: Place::Byte { byte, line } } => {
                let lines = cut.iter().filter(|byte| **byte == b'\n').count() as u64;
                assert_eq!((byte, line), (end as u64, lines + 1));
            }
            ReadError::UnknownFormat => assert_eq!(end, 0),
            other => panic!("at {end}: {other}"),
        }
        if let Ok(trace) = read_text(cut, &SALVAGE) {
            assert!(shown(&trace).len() <= whole);
            assert!(trace.notes.remarks[0].contains("cut off"), "{:?}", trace.notes);
        }
    }
    // A number that was cut is a number.
    let cut = read("start_ns,kind,duration_ns\n0,kernel,10000\n20000,kernel,10");
    assert_eq!((cut.operations.len(), cut.operations[1].duration), (2, 10));
    assert!(cut.notes.remarks[0].contains("the file was cut off"), "{:?}", cut.notes);
    assert!(read("start_ns,kind,duration_ns\n0,kernel,10000\n").notes.remarks.is_empty());

    let most = &KINETO[..KINETO.find("{\"ph\": \"X\", \"cat\": \"user_annotation\"").unwrap()];
    assert_eq!(shown(&read_text(most.as_bytes(), &SALVAGE).unwrap()).len(), whole - 1);
}

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let event = |members: &str| format!("[{{\"ph\":\"X\",\"cat\":\"kernel\",{members}}}]");
    for (text, says) in [
        ("", "neither a Chrome trace"),
        ("what is this", "neither a Chrome trace"),
        ("{}", "no traceEvents"),
        ("{\"traceEvents\": 1}", "at byte 16 (line 1): traceEvents is no array"),
        ("[]", "no kernel, copy or call"),
        ("[] []", "at byte 3 (line 1): something comes after"),
        ("[{} {}]", "at byte 4 (line 1): a comma"),
        ("[1]", "an object is wanted"),
        (&event("\"name\":\"k\",\"ts\":1,\"dur\":-1,\"pid\":0,\"tid\":7"), "a negative duration"),
        (&event("\"name\":\"k\",\"ts\":1,\"dur\":NaN,\"pid\":0,\"tid\":7"), "dur is no number"),
        (&event("\"name\":\"k\",\"ts\":null,\"dur\":1,\"pid\":0,\"tid\":7"), "ts is no number"),
        (&event("\"name\":\"k\",\"ts\":1,\"pid\":0,\"tid\":7"), "no dur"),
        (&event("\"ts\":1,\"dur\":1,\"pid\":0,\"tid\":7"), "no name"),
        (&event("\"name\":\"k\",\"ts\":1,\"dur\":1,\"tid\":7"), "no number of a device"),
        (&event("\"name\":\"k\",\"ts\":9e30,\"dur\":1,\"pid\":0,\"tid\":7"), "ts is no number"),
        (&event("\"name\":\"k\",\"ts\":1,\"dur\":9e13,\"pid\":0,\"tid\":7"), "no trace can have"),
        ("start_ns,duration_ns,name\n1,2,k\n", "neither a Chrome trace"),
        ("start_ns,kind\n", "line 1, column duration_ns: there is no such column"),
        ("start,duration_us,kind\n1,2,kernel\n", "line 1, column start: the name has no unit"),
        ("start_us,duration,kind\n1,2,kernel\n", "column duration: the name has no unit; end it"),
        ("start_ns,duration_ns,kind\n1,2,kernel\n\n3,x,kernel\n", "line 4, column duration_ns"),
        ("start_ns,duration_ns,kind\r\n1,2,kernel\r\n3,x,kernel", "line 3, column duration_ns"),
        ("start_ns,duration_ns,kind,name\n1,2,kernel,k\n3,4,ker", "(line 3), in the middle"),
        ("start_ns,duration_ns,kind,name\n1,2,kernel,\"k\n\"\n3,-4,kernel,k", "line 4"),
        ("start_ns,duration_ns,kind\n1,-2,kernel\n", "line 2, column duration_ns: a negative"),
        ("start_ns,duration_ns,kind\n1,2,karnel\n", "line 2, column kind: none of kernel"),
        ("start_ns,duration_ns,kind\n1,,kernel\n", "nothing stands there"),
        ("start_ns,duration_ns,kind,bytes\n1,2,htod,-1\n", "column bytes: less than 0"),
        ("start_ns,duration_ns,kind,memory\n1,2,htod,best\n", "column memory: neither"),
        ("start_ns,duration_ns,kind,bytes\n1,2,htod,9000000000000000000\n", "more than 1 PiB"),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{text}: {error}");
    }
    let far = "start_us,duration_us,kind\n0,1,kernel\n1694039968955744.5,1,kernel\n";
    assert!(refused(far).contains("more than a year apart"));
}

#[test]
fn wrong_events_are_left_out_when_asked() {
    let text = CSV.replace("130000,5000", "130000,-5000");
    let trace = read_text(text.as_bytes(), &SALVAGE).unwrap();
    assert_eq!((trace.operations.len(), trace.notes.left_out), (1, 1));
    assert!(trace.notes.remarks[0].contains("line 2, column duration_ns"), "{:?}", trace.notes);
}

#[test]
fn versions_of_nsight_with_fewer_tables_and_columns_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.sqlite");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER,
               deviceId INTEGER, streamId INTEGER, shortName INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 30, 1, 7, 5);",
        )
        .unwrap();
    let trace = read_file(&path, &PLAIN).unwrap();
    assert_eq!(shown(&trace), ["0 +20 Kernel 0 B, device 1 stream 7 of None, call None, (name 5)"]);
    for (change, says) in [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 5", "KERNEL, row 1: a negative duration"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 'x'", "row 1: no whole number"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = NULL", "row 1: no start"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, streamId = NULL", "row 1: no whole"),
        ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "none of the tables"),
        ("CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS SELECT 1", "none of the tables"),
    ] {
        database.execute_batch(change).unwrap();
        let error = read_file(&path, &PLAIN).unwrap_err().to_string();
        assert!(error.contains(says), "{change}: {error}");
    }
    std::fs::write(&path, b"SQLite format 3\0 and no more").unwrap();
    assert!(matches!(read_file(&path, &PLAIN), Err(ReadError::Database(_))));
    let report = folder.path().join("t.nsys-rep");
    std::fs::write(&report, b"x").unwrap();
    assert!(matches!(read_file(&report, &PLAIN), Err(ReadError::NsysReport)));
}

#[test]
fn streams_that_wait_for_events_are_known() {
    let text = "\
start_ns,duration_ns,kind,stream,name,correlation,thread,event_stream,event_correlation
0,5,launch,,cuLaunchKernel,1,1,,
10,50,kernel,7,a,1,,,
12,1,call,,cuEventRecord,2,1,,
14,1,wait,8,cuStreamWaitEvent,3,1,7,2
16,5,launch,,cuLaunchKernel,4,1,,
60,9,kernel,8,b,4,,,
70,9,sync,,cuEventSynchronize,5,1,7,2
";
    let trace = read(text);
    let event = Event { stream: trace.operations[0].stream, recorded: CallId::of(1) };
    let stream = trace.operations[1].stream;
    assert_eq!(trace.waits, [Wait { call: CallId::of(2), stream, event }]);
    assert_eq!(trace.calls[4].target, Target::Event(event));
}

#[test]
fn two_processes_may_use_one_correlation() {
    let text = "\
start_ns,duration_ns,kind,device,stream,name,correlation,thread,process
0,5,launch,,,cuLaunchKernel,1,1,100
1,5,launch,,,cuLaunchKernel,1,1,200
10,50,kernel,0,7,a,1,,200
11,50,kernel,1,7,b,1,,100
20,5,launch,,,cuLaunchKernel,1,1,200
30,5,kernel,0,7,c,1,,200
";
    let trace = read(text);
    let calls: Vec<_> = trace.operations.iter().map(|o| o.call.unwrap().index()).collect();
    assert_eq!(calls, [1, 0, 2]);
    assert_eq!((trace.streams.len(), trace.devices.len()), (2, 2));
}

#[test]
fn a_stream_is_one_also_where_calls_are_missing() {
    let text = "\
start_ns,duration_ns,kind,device,stream,name,correlation,thread,process
0,5,launch,,,cuLaunchKernel,1,1,100
1,5,launch,,,cuLaunchKernel,3,1,200
10,10,kernel,0,7,a,,,
20,10,kernel,0,7,b,1,,
30,10,kernel,0,7,c,2,,
40,10,kernel,1,7,d,2,,
";
    let streams = |text: &str| {
        let trace = read(text);
        let of = |it: &Operation| trace.streams[it.stream.index()];
        let process = |it: &Operation| of(it).process.map(|it| trace.processes[it.index()]);
        (trace.streams.len(), trace.operations.iter().map(process).collect::<Vec<_>>())
    };
    assert_eq!(streams(text), (2, vec![Some(100), Some(100), Some(100), None]));
    // Two processes have one of this number: whose the others are nobody knows.
    let two = text.replace("40,10,kernel,1,7,d,2", "40,10,kernel,0,7,d,3");
    assert_eq!(streams(&two), (3, vec![None, Some(100), None, Some(200)]));
}

#[test]
fn long_names_are_kept_whole() {
    let name = "k".repeat(3 << 20);
    let text = format!(
        "[{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"{name}\",\"ts\":1,\"dur\":1,\"pid\":0,\"tid\":7}}]"
    );
    let trace = read(&text);
    assert_eq!(trace.names.get(trace.operations[0].name), name);
}

/// Traces of real programs, beside the repository; their licences are others'.
#[test]
fn real_traces_are_read_where_there_are_some() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let (kineto, nsys) = (folder.join("kineto-alexnet.json.gz"), "nsys-h100-2gpu-1s.sqlite");
    if !kineto.exists() {
        eprintln!("SKIPPED: there is no folder {}", folder.display());
        return;
    }
    let trace = read_file(&kineto, &PLAIN).unwrap();
    assert_eq!(trace.operations.len(), 79 + 16 + 3);
    assert!(trace.operations.iter().all(|operation| operation.call.is_some()));
    let trace = read_file(&folder.join(nsys), &PLAIN).unwrap();
    assert_eq!((trace.operations.len(), trace.devices.len()), (3442 + 904 + 22, 2));
    let joined = trace.operations.iter().filter(|operation| operation.call.is_some()).count();
    // The calls for the others were made before the second that the trace is of.
    assert_eq!(joined, 1632 + 438 + 22);
}

/// Changes some bytes of a text.
fn damaged(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (0..text.len(), prop_oneof![any::<u8>(), Just(b'"'), Just(b','), Just(b'9')]);
    prop::collection::vec(change, 1..6).prop_map(move |changes| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes
    })
}

/// What every trace that is read promises.
fn is_sound(trace: &Trace) {
    let length = trace.length_ns();
    assert!(trace.operations.is_sorted_by_key(|operation| operation.start));
    assert!(trace.calls.is_sorted_by_key(|call| call.start));
    for operation in &trace.operations {
        assert!(operation.end() <= length);
        assert!(trace.streams.len() > operation.stream.index());
        assert!(operation.call.is_none_or(|call| call.index() < trace.calls.len()));
        assert!(operation.name.index() < trace.names.len());
    }
    let mut ends = vec![0; trace.threads.len()];
    for call in &trace.calls {
        let end = &mut ends[call.thread.index()];
        assert!(call.start >= *end, "calls of a thread overlap");
        *end = call.end();
    }
    for wait in &trace.waits {
        assert!(wait.event.recorded.index() < trace.calls.len());
    }
}

proptest! {
    #[test]
    fn damaged_text_is_read_or_refused(
        bytes in prop_oneof![damaged(KINETO), damaged(CSV), prop::collection::vec(any::<u8>(), 0..200)],
        salvage: bool,
    ) {
        if let Ok(trace) = read_text(bytes.as_slice(), &Options { format: None, salvage }) {
            is_sound(&trace);
        }
    }

    #[test]
    fn damaged_databases_are_read_or_refused(
        changes in prop::collection::vec((0.0..1.0, any::<u8>()), 1..8),
        salvage: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = nsys(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] = byte;
        }
        std::fs::write(&path, bytes).unwrap();
        if let Ok(trace) = read_file(&path, &Options { format: None, salvage }) {
            is_sound(&trace);
        }
    }

    #[test]
    fn any_calls_and_operations_make_a_sound_trace(
        rows in prop::collection::vec(
            (0_i64..2000, 0_i64..500, 0_usize..8, 0_i64..4, 0_u64..30, 0_i64..3), 1..80),
    ) {
        let kinds = ["kernel", "htod", "dtoh", "memset", "launch", "sync", "call", "wait"];
        let mut text = String::from("start_ns,duration_ns,kind,stream,correlation,thread,name\n");
        for (start, duration, kind, stream, correlation, thread) in rows {
            let kind = kinds[kind];
            text += &format!("{start},{duration},{kind},{stream},{correlation},{thread},x\n");
        }
        is_sound(&read(&text));
    }
}
