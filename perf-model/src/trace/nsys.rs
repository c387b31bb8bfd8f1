//! SQLite exports of Nsight Systems (`nsys export --type sqlite`).
//!
//! Tables `CUPTI_ACTIVITY_KIND_KERNEL`, `_MEMCPY`, `_MEMSET`, `_GRAPH_TRACE`, `_RUNTIME`,
//! `_SYNCHRONIZATION` and `_CUDA_EVENT`; names are in `StringIds`. Tables are left out of an export where nothing was
//! recorded, and columns differ by version: what is there is asked of the database.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::builder::{Builder, FoundCall, FoundOperation, FoundTarget, FoundWait, StreamKey};
use super::error::{Place, ReadError};
use super::model::{Direction, Memory, NameId, OperationKind, ProcessId};

const KERNEL: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const MEMCPY: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const MEMSET: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPH_TRACE: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const RUNTIME: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const SYNCHRONIZATION: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
const CUDA_EVENT: &str = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";

/// Reads a trace of this kind.
pub(super) fn read(path: &Path, builder: &mut Builder) -> Result<(), ReadError> {
    let database = open(path)?;
    let (names, records, contexts) = (HashMap::new(), BTreeMap::new(), HashMap::new());
    let mut reader = Reader { database: &database, builder, names, records, contexts, graphs: 0 };
    let mut tables = 0;
    let takes: [(&str, Take); 5] = [
        (KERNEL, |reader, row| reader.kernel(row)),
        (MEMCPY, |reader, row| reader.memcpy(row)),
        (MEMSET, |reader, row| reader.memset(row)),
        (GRAPH_TRACE, |reader, row| reader.graph(row)),
        (RUNTIME, |reader, row| reader.call(row)),
    ];
    for (table, take) in takes {
        tables += usize::from(reader.table(table, take)?);
    }
    if tables == 0 {
        let reason = "none of the tables CUPTI_ACTIVITY_KIND_…: was it recorded with \
                      --trace=cuda, and is it an export of Nsight Systems?";
        return Err(ReadError::wrong(Place::File, reason));
    }
    // What calls waited for, where that was recorded: records first, which waits speak of.
    reader.table(CUDA_EVENT, |reader, row| reader.record(row))?;
    reader.table(SYNCHRONIZATION, |reader, row| reader.wait(row))?;
    if reader.graphs > 0 {
        let remark = format!(
            "{} launches of graphs were traced as wholes: what is in them is not known, and each costs \
             a kernel's end, whatever it copies (nsys profile --cuda-graph-trace=node says more).",
            reader.graphs
        );
        builder.remark(remark);
    }
    Ok(())
}

/// Opens a database to be read, and nothing else: what it holds is from outside.
fn open(path: &Path) -> Result<Connection, ReadError> {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    database.pragma_update(None, "trusted_schema", false)?;
    // Names lie all over the file: 32 MiB of it are kept.
    database.pragma_update(None, "cache_size", -32_768)?;
    Ok(database)
}

/// What is done with a row.
type Take = for<'r> fn(&mut Reader<'_>, &Fields<'r>) -> Result<Result<(), &'static str>, ReadError>;

struct Reader<'a> {
    database: &'a Connection,
    builder: &'a mut Builder,
    /// Names that were needed, by their IDs in `StringIds`.
    names: HashMap<i64, NameId>,
    /// Streams in which events were recorded, by the correlations of the calls that did it.
    records: BTreeMap<(Option<ProcessId>, EventRecord, u64), StreamKey>,
    /// The devices of contexts in which something was done.
    contexts: HashMap<(Option<ProcessId>, i64), u32>,
    /// How many graphs ran of which nobody recorded what was in them.
    graphs: u64,
}

/// The columns that are looked for; each table has some of them.
const COLUMNS: [&str; 20] = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
    "globalPid",
    "globalTid",
    "bytes",
    "copyKind",
    "srcKind",
    "dstKind",
    "demangledName",
    "shortName",
    "nameId",
    "syncType",
    "eventId",
    "eventSyncId",
    "graphId",
    "rowid",
];

/// A row, and which of [`COLUMNS`] it has where.
struct Fields<'r> {
    row: &'r Row<'r>,
    places: &'r [Option<usize>; COLUMNS.len()],
}

impl Fields<'_> {
    /// The whole number in a column; `None` where there is no such column, or nothing in it.
    fn get(&self, column: &str) -> Result<Option<i64>, &'static str> {
        let known = COLUMNS.iter().position(|it| *it == column).expect("one of COLUMNS");
        let Some(place) = self.places[known] else { return Ok(None) };
        match self.row.get_ref(place) {
            Ok(ValueRef::Integer(number)) => Ok(Some(number)),
            Ok(ValueRef::Null) => Ok(None),
            _ => Err("no whole number where one is wanted"),
        }
    }

    fn times(&self) -> Result<Option<(i64, i64)>, &'static str> {
        let start = self.get("start")?.ok_or("no start")?;
        // What was going on when recording stopped has no end.
        let Some(end) = self.get("end")? else { return Ok(None) };
        let duration = end.checked_sub(start).ok_or("a time that no trace can have")?;
        Ok(Some((start, duration)))
    }

    fn correlation(&self) -> Result<Option<u64>, &'static str> {
        let correlation = self.get("correlationId")?.and_then(|it| u64::try_from(it).ok());
        Ok(correlation.filter(|it| *it > 0))
    }

    /// The process: its global ID has the process in all but the last 24 bits.
    fn process(&self, builder: &mut Builder) -> Result<Option<ProcessId>, &'static str> {
        let global = match self.get("globalPid")? {
            Some(global) => Some(global),
            None => self.get("globalTid")?,
        };
        Ok(global.map(|global| builder.process(global >> THREAD_BITS & PROCESS_MASK)))
    }

    /// The event, where there is one.
    fn event(&self) -> Result<Option<EventRecord>, &'static str> {
        Ok(self.get("eventId")?.zip(Some(self.get("eventSyncId")?.unwrap_or(0))))
    }

    fn stream(&self, process: Option<ProcessId>) -> Result<Option<StreamKey>, &'static str> {
        let device = self.get("deviceId")?.map(u32::try_from).transpose();
        let device = device.map_err(|_| "no number of a device")?;
        let number = self.get("streamId")?;
        Ok(device.zip(number).map(|(device, number)| StreamKey { process, device, number }))
    }
}

/// An event's ID, and which of its records: 0 where the export does not say, as older ones do not.
type EventRecord = (i64, i64);

/// Of a global thread ID, the bits of the thread, and above them those of its process.
const THREAD_BITS: u32 = 24;
const PROCESS_MASK: i64 = 0xff_ffff;

impl Reader<'_> {
    /// Gives each row of a table to a function. `false`: there is no such table.
    fn table(&mut self, table: &str, take: Take) -> Result<bool, ReadError> {
        if !self.has(table)? {
            return Ok(false);
        }
        let mut listed = self.database.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let present: Vec<String> =
            listed.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut places = [None; COLUMNS.len()];
        let mut wanted = Vec::new();
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            if column == "rowid" || present.iter().any(|it| it.eq_ignore_ascii_case(column)) {
                *place = Some(wanted.len());
                wanted.push(format!("\"{column}\""));
            }
        }
        // A table's name here is one of ours, and so are its columns'.
        let query = format!("SELECT {} FROM \"{table}\"", wanted.join(", "));
        let mut statement = self.database.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let fields = Fields { row, places: &places };
            if let Err(reason) = take(self, &fields)? {
                let row = fields.get("rowid").ok().flatten().unwrap_or(0);
                self.builder.wrong(Place::Row { table: table.to_owned(), row }, reason)?;
            }
        }
        Ok(true)
    }

    /// Whether there is such a table: a view could be anything.
    fn has(&self, table: &str) -> Result<bool, ReadError> {
        let query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1 \
                     AND sql NOT LIKE 'CREATE VIRTUAL%'";
        let count: i64 = self.database.query_row(query, [table], |row| row.get(0))?;
        Ok(count > 0)
    }

    /// The name with an ID of `StringIds`; one that is not there is shown by its number.
    fn name(&mut self, id: Option<i64>) -> Result<NameId, ReadError> {
        let Some(id) = id else { return self.builder.name("(no name)") };
        if let Some(name) = self.names.get(&id) {
            return Ok(*name);
        }
        let text = if self.has("StringIds")? {
            let mut statement =
                self.database.prepare_cached("SELECT value FROM StringIds WHERE id = ?1")?;
            let mut rows = statement.query([id])?;
            match rows.next()?.map(|row| row.get_ref(0)).transpose()? {
                Some(ValueRef::Text(text)) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            }
        } else {
            None
        };
        let name = self.builder.name(&text.unwrap_or_else(|| format!("(name {id})")))?;
        self.names.insert(id, name);
        Ok(name)
    }

    fn kernel(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        let name = match row.get("demangledName") {
            Ok(None) => row.get("shortName"),
            other => other,
        };
        self.operation(row, OperationKind::Kernel, name)
    }

    fn memset(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        let name = self.builder.name("memset")?;
        Ok(self.named_operation(row, OperationKind::Memset, name))
    }

    fn memcpy(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        let kind = match copy_kind(row) {
            Ok(Some(kind)) => kind,
            // From host memory to host memory: no device has to do with it.
            Ok(None) => return Ok(Ok(())),
            Err(reason) => return Ok(Err(reason)),
        };
        let name = self.builder.name(copy_name(kind))?;
        Ok(self.named_operation(row, kind, name))
    }

    /// A graph ran, with nothing recorded of what was in it.
    fn graph(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        let (times, id) = match (row.times(), row.get("graphId")) {
            (Ok(times), Ok(id)) => (times, id),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        // Where times were not to be had CUPTI gives 0 and 0.
        if times.is_none_or(|times| times == (0, 0)) {
            return Ok(Ok(()));
        }
        let name = self.builder.name(&format!("graph {}", id.unwrap_or(0)))?;
        let entered = self.named_operation(row, OperationKind::Graph, name);
        self.graphs += u64::from(entered.is_ok());
        Ok(entered)
    }

    fn operation(
        &mut self,
        row: &Fields<'_>,
        kind: OperationKind,
        name: Result<Option<i64>, &'static str>,
    ) -> Result<Result<(), &'static str>, ReadError> {
        let name = match name {
            Ok(id) => self.name(id)?,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(self.named_operation(row, kind, name))
    }

    fn named_operation(
        &mut self,
        row: &Fields<'_>,
        kind: OperationKind,
        name: NameId,
    ) -> Result<(), &'static str> {
        let Some((start, duration)) = row.times()? else { return Ok(()) };
        let process = row.process(self.builder)?;
        let stream = row.stream(process)?.ok_or("no device or no stream")?;
        if let Some(context) = row.get("contextId")? {
            self.contexts.insert((process, context), stream.device);
        }
        let bytes = row.get("bytes")?.unwrap_or(0);
        let bytes = u64::try_from(bytes).map_err(|_| "a negative number of bytes")?;
        let correlation = row.correlation()?;
        self.builder.operation(FoundOperation {
            start,
            duration,
            bytes,
            correlation,
            stream,
            name,
            kind,
        })
    }

    fn call(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        let name = match row.get("nameId") {
            Ok(id) => self.name(id)?,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(self.named_call(row, name))
    }

    fn named_call(&mut self, row: &Fields<'_>, name: NameId) -> Result<(), &'static str> {
        let Some((start, duration)) = row.times()? else { return Ok(()) };
        let process = row.process(self.builder)?.unwrap_or_else(|| self.builder.process(0));
        let thread = row.get("globalTid")?.unwrap_or(0) & ((1 << THREAD_BITS) - 1);
        let thread = self.builder.thread(process, thread);
        let correlation = row.correlation()?;
        self.builder.call(FoundCall {
            start,
            duration,
            correlation,
            thread,
            name,
            kind: None,
            target: None,
        })
    }

    /// An event was recorded in a stream.
    fn record(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        Ok(self.enter_record(row))
    }

    fn enter_record(&mut self, row: &Fields<'_>) -> Result<(), &'static str> {
        let process = row.process(self.builder)?;
        let (stream, correlation) = (self.waited_stream(row, process)?, row.correlation()?);
        if let (Some(event), Some(stream), Some(correlation)) = (row.event()?, stream, correlation)
        {
            self.records.insert((process, event, correlation), stream);
        }
        Ok(())
    }

    /// A call waited, or made a stream wait.
    fn wait(&mut self, row: &Fields<'_>) -> Result<Result<(), &'static str>, ReadError> {
        Ok(self.enter_wait(row))
    }

    fn enter_wait(&mut self, row: &Fields<'_>) -> Result<(), &'static str> {
        let process = row.process(self.builder)?;
        let Some(correlation) = row.correlation()? else { return Ok(()) };
        // An event is recorded again and again: a call waits for what was recorded last before it,
        // and correlations count up. Where the export says which record that is, there is but one.
        let event = row.event()?.and_then(|event| {
            let before = (process, event, 0)..(process, event, correlation);
            let ((_, _, recorded), stream) = self.records.range(before).next_back()?;
            Some((*stream, *recorded))
        });
        let device = match self.device_of_context(row, process)? {
            Some(device) => Some(device),
            None => row.get("deviceId")?.and_then(|it| u32::try_from(it).ok()),
        };
        let target = FoundTarget { stream: self.waited_stream(row, process)?, device, event };
        self.builder.wait(FoundWait { correlation, process, target })
    }

    /// The stream of a row of waits or events. CUPTI does not give these a device, and exports have 0
    /// there: what was done in the same context says which it is.
    fn waited_stream(
        &self,
        row: &Fields<'_>,
        process: Option<ProcessId>,
    ) -> Result<Option<StreamKey>, &'static str> {
        let device = self.device_of_context(row, process)?;
        let stream = row.stream(process)?;
        Ok(stream.map(|stream| StreamKey { device: device.unwrap_or(stream.device), ..stream }))
    }

    fn device_of_context(
        &self,
        row: &Fields<'_>,
        process: Option<ProcessId>,
    ) -> Result<Option<u32>, &'static str> {
        let context = row.get("contextId")?;
        Ok(context.and_then(|context| self.contexts.get(&(process, context)).copied()))
    }
}

/// What a copy was, by the numbers that exports explain in their tables `ENUM_CUDA_MEMCPY_OPER` and
/// `ENUM_CUDA_MEM_KIND`. `None` for one from host to host.
fn copy_kind(row: &Fields<'_>) -> Result<Option<OperationKind>, &'static str> {
    const PAGEABLE: i64 = 0;
    let direction = match row.get("copyKind")?.ok_or("no copyKind")? {
        1 | 3 | 11 => Direction::HostToDevice,
        2 | 4 | 12 => Direction::DeviceToHost,
        5..=8 | 13 => Direction::DeviceToDevice,
        9 => return Ok(None),
        10 => Direction::PeerToPeer,
        _ => return Err("a copyKind that is not known"),
    };
    let host = match direction {
        Direction::HostToDevice => row.get("srcKind")?,
        Direction::DeviceToHost => row.get("dstKind")?,
        Direction::DeviceToDevice | Direction::PeerToPeer => None,
    };
    let memory = if host == Some(PAGEABLE) { Memory::Pageable } else { Memory::Pinned };
    Ok(Some(OperationKind::Copy(direction, memory)))
}

fn copy_name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Copy(Direction::HostToDevice, Memory::Pinned) => "memcpy HtoD",
        OperationKind::Copy(Direction::HostToDevice, Memory::Pageable) => "memcpy HtoD (pageable)",
        OperationKind::Copy(Direction::DeviceToHost, Memory::Pinned) => "memcpy DtoH",
        OperationKind::Copy(Direction::DeviceToHost, Memory::Pageable) => "memcpy DtoH (pageable)",
        OperationKind::Copy(Direction::PeerToPeer, _) => "memcpy PtoP",
        OperationKind::Copy(Direction::DeviceToDevice, _)
        | OperationKind::Kernel
        | OperationKind::Graph
        | OperationKind::Memset
        | OperationKind::Callback => "memcpy DtoD",
    }
}

#[cfg(test)]
mod unit_tests {
    use super::super::{OperationKind, Options, Target, read_file};
    use super::Connection;

    #[test]
    fn a_wait_is_on_the_device_of_its_context_whatever_device_stands_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("second-gpu.sqlite");
        let text = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO StringIds VALUES (1, 'cudaStreamSynchronize'),
               (2, 'cudaDeviceSynchronize');
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,
               globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
               (1000, 6000, 1, 1, 1), (7000, 9000, 1, 2, 2);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER,
               deviceId INTEGER, contextId INTEGER, streamId INTEGER, globalPid INTEGER,
               shortName INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
               (100, 5000, 1, 2, 15, 1, 9), (100, 5000, 0, 1, 7, 1, 9);
             CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (deviceId INTEGER,
               contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
               syncType INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
               (0, 2, 15, 1, 1, 3), (0, 2, 4294967295, 2, 1, 4);";
        Connection::open(&path).unwrap().execute_batch(text).unwrap();
        let trace = read_file(&path, &Options::default()).unwrap();
        let kernel = &trace.operations[0];
        assert_eq!(trace.devices[trace.device_of(kernel).index()].number, 1);
        assert_eq!(trace.calls[0].target, Target::Stream(kernel.stream));
        assert_eq!(trace.calls[1].target, Target::Device(trace.device_of(kernel)));
        assert_eq!(trace.streams.len(), 2);
    }

    #[test]
    fn graphs_that_were_traced_as_wholes_are_operations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graphs.sqlite");
        let process = 9_i64 << 24;
        let database = Connection::open(&path).unwrap();
        let text = format!(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000');
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,
               globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
               (1000, 6000, {process} + 9, 1, 1), (7000, 9000, {process} + 9, 2, 1);
             CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER,
               deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
               graphId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES
               (8000, 58000, 0, 7, 1, {process}, 3), (0, 0, 0, 7, 2, {process}, 3);"
        );
        database.execute_batch(&text).unwrap();
        let trace = read_file(&path, &Options::default()).unwrap();
        assert_eq!(trace.operations.len(), 1);
        let graph = &trace.operations[0];
        assert_eq!(
            (graph.kind, graph.start, graph.duration),
            (OperationKind::Graph, 7_000, 50_000)
        );
        assert_eq!(graph.call.map(|call| call.index()), Some(0));
        assert_eq!(trace.names.get(graph.name), "graph 3");
        assert!(trace.notes.remarks[0].starts_with("1 launches of graphs were traced as wholes"));

        // Without that table there is nothing to predict anything from.
        database.execute_batch("DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE").unwrap();
        let trace = read_file(&path, &Options::default()).unwrap();
        assert!(trace.notes.remarks[0].contains("no kernel, copy or graph"));
    }
}
