//! A program's trace as an SQLite export of Nsight Systems: what is read of it is played as the
//! program's own trace is.

use std::fmt::Write;
use std::path::Path;

use rusqlite::Connection;

use super::*;
use crate::trace::{CallKind, Direction, OperationKind};

/// Writes a trace of one process, one thread and one device as an export, whose rows of events say
/// which record of theirs is meant, have a column for that and nothing in it, or have none.
fn export(trace: &Trace, path: &Path, syncs: Syncs) {
    let mut rows = String::new();
    for operation in &trace.operations {
        let (start, end) = (operation.start, operation.end());
        let stream = trace.streams[operation.stream.index()].number;
        let correlation = operation.call.unwrap().index() + 1;
        let common = format!("{start}, {end}, 0, {stream}, {correlation}, 1");
        match operation.kind {
            OperationKind::Copy(Direction::HostToDevice, _) => {
                let bytes = operation.bytes;
                writeln!(
                    rows,
                    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({common}, {bytes}, 1);"
                )
            }
            _ => writeln!(rows, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({common}, 1);"),
        }
        .unwrap();
    }
    for (correlation, call) in (1..).zip(&trace.calls) {
        let (start, end, name) = (call.start, call.end(), call.name.index());
        writeln!(
            rows,
            "INSERT OR IGNORE INTO StringIds VALUES ({name} + 1000, '{}');
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, 1, {correlation}, {name} + 1000);",
            trace.names.get(call.name)
        )
        .unwrap();
    }
    rows += &events(trace, syncs);
    let of_operations = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, \
                         correlationId INTEGER, globalPid INTEGER";
    let of_events = "deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, \
                     eventId INTEGER";
    let sync = if syncs == Syncs::NoColumn { "" } else { ", eventSyncId INTEGER" };
    let tables = format!(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
         INSERT INTO StringIds VALUES (1, 'kernel');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({of_operations}, shortName INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({of_operations}, bytes INTEGER, copyKind INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
           correlationId INTEGER, nameId INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT ({of_events}{sync});
         CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ({of_events}{sync}, syncType INTEGER);
         BEGIN; {rows} COMMIT;"
    );
    Connection::open(path).unwrap().execute_batch(&tables).unwrap();
}

/// The rows of events and of waits for them: all are records of one event, as of a program that uses
/// it again for each batch.
fn events(trace: &Trace, syncs: Syncs) -> String {
    let mut rows = String::new();
    for (sync, wait) in (1..).zip(&trace.waits) {
        assert_eq!(trace.calls[wait.call.index()].kind, CallKind::StreamWait);
        let sync = match syncs {
            Syncs::Named => format!(", {sync}"),
            Syncs::Null => ", NULL".to_owned(),
            Syncs::NoColumn => String::new(),
        };
        for (table, kind, stream, call) in [
            ("CUDA_EVENT", "", wait.event.stream, wait.event.recorded),
            ("SYNCHRONIZATION", ", 2", wait.stream, wait.call),
        ] {
            let (stream, call) = (trace.streams[stream.index()].number, call.index() + 1);
            writeln!(
                rows,
                "INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (0, {stream}, {call}, 1, 5{sync}{kind});"
            )
            .unwrap();
        }
    }
    rows
}

/// Whether an export says which record of an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    Named,
    Null,
    NoColumn,
}

#[test]
fn a_wait_is_for_the_record_before_it_whether_the_export_says_so_or_not() {
    let (_, program) = programs()
        .into_iter()
        .find(|(name, _)| *name == "the next batch is copied meanwhile")
        .unwrap();
    let (_, text) = Machine::run(&program, &settings(NATIVE), Written::with(true));
    let trace = read(&text);
    let played = Graph::of(&trace).play(&scenario(settings(6_800))).length_ns();
    let folder = tempfile::tempdir().unwrap();
    for syncs in [Syncs::Named, Syncs::Null, Syncs::NoColumn] {
        let path = folder.path().join(format!("{syncs:?}.sqlite"));
        export(&trace, &path, syncs);
        let exported = read_file(&path, &Options::default()).unwrap();
        assert_eq!(exported.waits, trace.waits, "{syncs:?}");
        let graph = Graph::of(&exported);
        assert_eq!(graph.play(&scenario(settings(6_800))).length_ns(), played, "{syncs:?}");
    }
}
