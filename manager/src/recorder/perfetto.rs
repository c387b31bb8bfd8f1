//! Recordings as a trace that ui.perfetto.dev and Chrome open: the Trace Event Format in JSON.
//!
//! A device's function is a process; requests are slices in it, on as many tracks as there are
//! at a time, and the stages of a request are slices inside. No two clocks are compared: a slice
//! begins and ends by the clock of the requester's proxy, and what the other proxy saw, which is
//! known only as differences, stands in the middle of the gap that it left. Of a request that the
//! requester's proxy did not stamp, as a card without a recorder does not, what the other one saw stands
//! alone, by that one's clock.

use super::collect::Collected;
use super::join::{Far, Part, RoundTrip, Trip};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tlp_codec::ids::BindingKey;

/// What a trace says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// What was recorded, and why it ended, for a person.
    pub comment: String,
    /// The slot, such as `box-a/1`.
    pub slot: String,
    /// The host.
    pub host: String,
    /// Entries that were lost at the host proxy and the box proxy.
    pub lost: (u64, u64),
}

/// A stretch of time, nanoseconds since the trace's beginning.
struct Slice {
    name: &'static str,
    start: u64,
    length: u64,
}

/// A request as it stands in the trace.
struct Drawn {
    binding: BindingKey,
    from_host: bool,
    posted: bool,
    name: String,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    date: u64,
    length: u64,
    inside: Vec<Slice>,
    args: Map<String, Value>,
}

/// Slices that follow each other.
struct Row {
    at: u64,
    slices: Vec<Slice>,
}

impl Row {
    fn push(&mut self, name: &'static str, length: u64) {
        self.slices.push(Slice { name, start: self.at, length });
        // What two proxies say may be more together than there is time.
        self.at = self.at.saturating_add(length);
    }

    fn part(&mut self, names: [&'static str; 2], part: Part) {
        self.push(names[0], part.first);
        self.push(names[1], part.second);
    }
}

const SENDING: [&str; 2] = ["arrived → encoded", "encoded → sent"];
const RECEIVING: [&str; 2] = ["received → decoded", "decoded → delivered"];

fn draw_round_trip(trip: &RoundTrip, from_host: bool) -> Vec<Slice> {
    let mut row = Row { at: 0, slices: Vec::new() };
    row.part(SENDING, trip.request);
    match trip.far {
        // What the other clock says is longer than the gap has no room in it.
        Some(far) if far.total() <= trip.away => draw_far(&mut row, trip.away, &far, from_host),
        _ => row.push("away", trip.away),
    }
    row.part(RECEIVING, trip.answer);
    row.slices
}

fn draw_far(row: &mut Row, away: u64, far: &Far, from_host: bool) {
    let network = away - far.total();
    row.push("network", network / 2);
    draw_there(row, far, from_host);
    row.push("network", network - network / 2);
}

/// What the other proxy saw.
fn draw_there(row: &mut Row, far: &Far, from_host: bool) {
    row.part(RECEIVING, far.request);
    row.push(if from_host { "device" } else { "host memory" }, far.original);
    row.part(SENDING, far.answer);
}

fn draw(trip: &Trip<'_>, host: &Collected, boxed: &Collected) -> Option<Drawn> {
    let request = &trip.request;
    let described = request.describe();
    let mut args = Map::new();
    let times = |times: &[Option<u64>; 6]| -> Value { json!(times) };
    if let Some(address) = described.address {
        args.insert("address".into(), format!("{address:#x}").into());
    }
    args.insert("bytes".into(), described.bytes.into());
    args.insert("epoch".into(), request.binding.epoch.to_string().into());
    args.insert("request at host (ns)".into(), times(&request.host));
    args.insert("request at box (ns)".into(), times(&request.boxed));
    if let Some(last) = trip.completions.last() {
        args.insert("completions".into(), trip.completions.len().into());
        args.insert("last completion at host (ns)".into(), times(&last.host));
        args.insert("last completion at box (ns)".into(), times(&last.boxed));
    }
    let (near, far) = if request.from_host { (host, boxed) } else { (boxed, host) };
    let posted = matches!(request.what, proxy_core::stamps::StampedTlp::Posted(_));
    let (date, length, inside) = match trip.round_trip() {
        Some(round_trip) => {
            args.insert("network (ns)".into(), round_trip.network().into());
            let inside = draw_round_trip(&round_trip, request.from_host);
            (near.date(round_trip.start), round_trip.total(), inside)
        }
        None => {
            let mut row = Row { at: 0, slices: Vec::new() };
            let (date, answered) = match trip.one_way() {
                Some((start, sending, receiving)) => {
                    row.part(SENDING, sending);
                    if let Some(receiving) = receiving {
                        // How long the network took cannot be known: nothing comes back.
                        row.part(RECEIVING, receiving);
                    }
                    (near.date(start), false)
                }
                None => {
                    let (start, receiving, answered) = trip.seen_at_receiver()?;
                    match &answered {
                        Some(there) => draw_there(&mut row, there, request.from_host),
                        None => row.part(RECEIVING, receiving),
                    }
                    (far.date(start), answered.is_some())
                }
            };
            args.insert("network (ns)".into(), Value::Null);
            args.insert("answered".into(), if posted { Value::Null } else { answered.into() });
            (date, row.at, row.slices)
        }
    };
    let (binding, from_host, name) = (request.binding, request.from_host, described.line());
    Some(Drawn { binding, from_host, posted, name, date, length, inside, args })
}

/// The trace. Requests are drawn one after the other into its text, so that it takes little memory
/// beside that.
pub fn trace(about: &About, host: &Collected, boxed: &Collected, trips: &[Trip<'_>]) -> Vec<u8> {
    let drawn = |trip| draw(trip, host, boxed);
    let dates = trips.iter().enumerate().filter_map(|(n, trip)| Some((drawn(trip)?.date, n)));
    let mut order: Vec<(u64, usize)> = dates.collect();
    order.sort_unstable();
    let begin = order.first().map_or(0, |(date, _)| *date);
    let mut tracks = Tracks::default();
    let mut events = Events::new(about, begin);
    for (date, number) in order {
        let request = drawn(&trips[number]).expect("it has a date");
        let start = date - begin;
        let (process, track) = tracks.place(&request, start);
        let slice = |name: &str, start: u64, length: u64| {
            json!({ "ph": "X", "pid": process, "tid": track, "name": name,
                "ts": microseconds(start), "dur": microseconds(length) })
        };
        let mut whole = slice(&request.name, start, request.length);
        whole["cat"] = if request.from_host { "from host" } else { "from device" }.into();
        whole["args"] = Value::Object(request.args);
        events.push(&whole);
        for inner in &request.inside {
            events.push(&slice(inner.name, start.saturating_add(inner.start), inner.length));
        }
    }
    for name in tracks.names(about) {
        events.push(&name);
    }
    events.end()
}

/// A trace as text, one event after the other.
struct Events {
    text: Vec<u8>,
    any: bool,
}

impl Events {
    fn new(about: &About, begin: u64) -> Self {
        let about = json!({
            "recorder": concat!("dxpu-manager ", env!("CARGO_PKG_VERSION")),
            "comment": about.comment,
            "begin_unix_ns": begin.to_string(),
            "lost_at_host": about.lost.0,
            "lost_at_box": about.lost.1,
            "clocks": "each slice is by the clock of the requester's proxy; what the other proxy \
                       saw is known as differences and stands in the middle of the gap, or, of \
                       posted requests, right behind the sending; what the requester's proxy did \
                       not stamp is by the other one's clock, and only what that one saw",
        });
        let head = format!(r#"{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":["#);
        Self { text: head.into_bytes(), any: false }
    }

    fn push(&mut self, event: &Value) {
        if std::mem::replace(&mut self.any, true) {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, event).expect("it is JSON");
    }

    fn end(mut self) -> Vec<u8> {
        self.text.extend_from_slice(b"]}");
        self.text
    }
}

/// Nanoseconds as the format counts: in microseconds, with a fraction.
fn microseconds(nanoseconds: u64) -> Value {
    json!(nanoseconds as f64 / 1000.0)
}

/// Which tracks there are, and until when each is taken.
#[derive(Default)]
struct Tracks {
    processes: BTreeMap<Place, u64>,
    by_kind: BTreeMap<(u64, Kind), Vec<(u64, u64)>>,
}

/// A binding's slot, function and epoch, in an order.
type Place = (u8, u16, u32);

/// What is on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    HostRequests,
    HostPosted,
    DeviceRequests,
    DevicePosted,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::HostRequests => "host asks",
            Self::HostPosted => "host writes",
            Self::DeviceRequests => "device asks",
            Self::DevicePosted => "device writes",
        }
    }

    fn of(request: &Drawn) -> Self {
        match (request.from_host, request.posted) {
            (true, false) => Self::HostRequests,
            (true, true) => Self::HostPosted,
            (false, false) => Self::DeviceRequests,
            (false, true) => Self::DevicePosted,
        }
    }
}

/// Tracks of one kind in a process are numbered from a multiple of this on. There are no more than
/// requests that are under way at a time.
const PER_KIND: u64 = 1_000_000;

impl Tracks {
    /// A process and a track on which nothing is at that time. Requests come in their order.
    fn place(&mut self, request: &Drawn, start: u64) -> (u64, u64) {
        let BindingKey { slot, function, epoch } = request.binding;
        let count = self.processes.len() as u64;
        let key = (slot.get(), function.get(), epoch.bits());
        let process = *self.processes.entry(key).or_insert(count + 1);
        let kind = Kind::of(request);
        let tracks = self.by_kind.entry((process, kind)).or_default();
        let end = start.saturating_add(request.length);
        let track = match tracks.iter_mut().find(|(_, until)| *until <= start) {
            Some(track) => {
                track.1 = end;
                track.0
            }
            None => {
                let number = PER_KIND * (kind as u64 + 1) + tracks.len() as u64;
                tracks.push((number, end));
                number
            }
        };
        (process, track)
    }

    /// The events that name processes and tracks.
    fn names(&self, about: &About) -> Vec<Value> {
        let mut events = Vec::new();
        let mut name = |what: &str, process: u64, track: u64, name: String| {
            events.push(json!({ "ph": "M", "name": what, "pid": process, "tid": track,
                "args": { "name": name } }));
        };
        for ((_, function, epoch), process) in &self.processes {
            let epoch = tlp_codec::ids::Epoch::from_bits(*epoch).expect("it was one");
            let text = format!(
                "{} function {function} lent to {} (epoch {epoch})",
                about.slot, about.host
            );
            name("process_name", *process, 0, text);
        }
        for ((process, kind), tracks) in &self.by_kind {
            for (number, _) in tracks {
                name("thread_name", *process, *number, kind.name().to_owned());
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{Epoch, SlotFunction, SlotId};

    /// A proxy may say anything, and two of them in a row.
    #[test]
    fn times_without_end_have_a_place() {
        let mut row = Row { at: 0, slices: Vec::new() };
        row.part(SENDING, Part { first: u64::MAX, second: 0 });
        row.part(RECEIVING, Part { first: 1, second: 1 });
        let slot = SlotId::new(1).unwrap();
        let epoch = Epoch::new(0, 1).unwrap();
        let drawn = Drawn {
            binding: BindingKey { slot, function: SlotFunction::ZERO, epoch },
            from_host: true,
            posted: true,
            name: String::new(),
            date: 0,
            length: row.at,
            inside: row.slices,
            args: Map::new(),
        };
        let mut tracks = Tracks::default();
        let [first, second] = [5, 6].map(|start| tracks.place(&drawn, start).1);
        assert_ne!(first, second, "the first has not ended");
    }
}
