//! A look at all devices for a moment: how many requests, how long round trips take and what of
//! that the device, the network and the proxies take (as DxPU's Table 6 splits it), and which
//! were the slowest.

use super::HEADER;
use super::collect::Collected;
use super::join::{self, RoundTrip, Trip};
use super::tap::{self, Piece};
use crate::control::Session;
use crate::manager::Manager;
use crate::types::{BindingRecord, NodeName};
use manager_client::views::{DeviceLatency, Latency, SlowRequest, Split, StageTime};
use proxy_core::limits::MAX_RECORDED;
use proxy_core::recorder::Recorded;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The shortest look, milliseconds.
pub const MIN_WINDOW_MS: u32 = 10;

/// The longest look, milliseconds.
pub const MAX_WINDOW_MS: u32 = 10_000;

/// The most slow requests in one answer.
pub const MAX_SLOWEST: usize = 100;

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Question {
    /// How long.
    pub window: Duration,
    /// One request in so many is stamped.
    pub one_in: u32,
    /// How many slow requests are wanted.
    pub slowest: usize,
    /// Only this host's or this box's devices.
    pub node: Option<NodeName>,
}

/// One device, and what each end is to record of it.
struct Device {
    binding: BindingRecord,
    model: String,
    host: (Arc<Session>, Vec<Recorded>),
    boxed: (Arc<Session>, Vec<Recorded>),
}

/// What is recorded at each proxy.
type Lists = BTreeMap<NodeName, (Arc<Session>, Vec<Recorded>)>;

/// Looks.
pub async fn look(manager: &Arc<Manager>, question: &Question) -> Latency {
    let (devices, lists, mut missing) = choose(manager, question);
    let bound = manager.settings.request_bound;
    let mut looks = JoinSet::new();
    for (name, (session, list)) in lists {
        let window = question.window;
        looks.spawn(async move { (name, at_proxy(&session, list, window, bound).await) });
    }
    let mut pieces: BTreeMap<NodeName, Pieces> = BTreeMap::new();
    while let Some(done) = looks.join_next().await {
        match done.expect("no look panics") {
            (name, Ok(seen)) => {
                pieces.insert(name, seen);
            }
            (name, Err(why)) => missing.push(format!("{name}: {why}")),
        }
    }
    let mut latency = Latency {
        window_ms: question.window.as_millis() as u64,
        one_in: question.one_in,
        devices: Vec::new(),
        slowest: Vec::new(),
        missing,
    };
    for device in &devices {
        let of = |end: &(Arc<Session>, Vec<Recorded>)| {
            let seen = pieces.get(end.0.name())?;
            let mut collected = Collected::new(end.1.clone());
            seen.pieces.iter().for_each(|piece| collected.take(piece));
            Some((collected, seen.over))
        };
        if let (Some(host), Some(boxed)) = (of(&device.host), of(&device.boxed)) {
            device.evaluate(&host, &boxed, question, &mut latency);
        }
    }
    latency.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.total_ns));
    latency.slowest.truncate(question.slowest);
    latency
}

/// Every lent device that can be looked at.
fn choose(manager: &Manager, question: &Question) -> (Vec<Device>, Lists, Vec<String>) {
    let tables = manager.records.snapshot();
    let (mut devices, mut lists, mut missing) = (Vec::new(), Lists::new(), Vec::new());
    for binding in tables.bindings().values().filter(|b| b.phase.at_host()) {
        let (host, box_name) = (&binding.host, binding.slot.box_name());
        if question.node.as_ref().is_some_and(|node| node != host && node != box_name) {
            continue;
        }
        let ready = |name| manager.registry.ready(name);
        let (Some(host), Some(boxed)) = (ready(host), ready(box_name)) else {
            missing.push(format!("{}: a proxy of it is not connected", binding.id));
            continue;
        };
        let recorded = |peer: &Session, tlps| -> Vec<Recorded> {
            let (peer, one_in) = (peer.identity().node, question.one_in);
            binding.keys().map(|b| Recorded { peer, binding: b, one_in, tlps, frames: 0 }).collect()
        };
        let ends = [(&host, recorded(&boxed, HEADER)), (&boxed, recorded(&host, 0))];
        let room = |(session, list): &(&Arc<Session>, Vec<Recorded>)| {
            lists.get(session.name()).map_or(0, |(_, l)| l.len()) + list.len() <= MAX_RECORDED
        };
        if !ends.iter().all(room) {
            let why = format!("{}: a proxy looks at {MAX_RECORDED} functions at most", binding.id);
            missing.push(why);
            continue;
        }
        for (session, list) in &ends {
            let name = session.name().clone();
            let entry = lists.entry(name).or_insert_with(|| ((*session).clone(), Vec::new()));
            entry.1.extend_from_slice(list);
        }
        let [host_end, box_end] = ends.map(|(session, list)| (session.clone(), list));
        let model = tables.functions(&binding.slot).next().map(|d| d.model.clone());
        let model = model.unwrap_or_default();
        devices.push(Device { binding: binding.clone(), model, host: host_end, boxed: box_end });
    }
    (devices, lists, missing)
}

/// What one proxy gave.
struct Pieces {
    pieces: Vec<Arc<Piece>>,
    /// Between the first and the last answer.
    over: Duration,
}

async fn at_proxy(
    session: &Arc<Session>,
    list: Vec<Recorded>,
    window: Duration,
    bound: Duration,
) -> Result<Pieces, String> {
    let mut watch = tap::watch(session, list, bound).await.map_err(|error| error.to_string())?;
    let (begin, mut pieces) = (Instant::now(), Vec::new());
    let until = begin + window;
    // What was asked for before the end may come a little later.
    let all = async {
        while let Some(piece) = watch.next().await {
            let over = piece.complete && piece.asked >= until;
            pieces.push(piece);
            if over {
                return true;
            }
        }
        false
    };
    let whole = tokio::time::timeout_at(until + window + bound, all).await;
    match whole {
        Ok(false) => Err("its connection ended".to_owned()),
        _ => {
            let over = pieces.last().map_or(window, |last| last.asked - pieces[0].asked);
            Ok(Pieces { pieces, over })
        }
    }
}

impl Device {
    fn evaluate(
        &self,
        (host, host_over): &(Collected, Duration),
        (boxed, box_over): &(Collected, Duration),
        question: &Question,
        latency: &mut Latency,
    ) {
        let trips = join::trips(join::tlps(host, boxed, true));
        let mut round_trips: Vec<(&Trip<'_>, RoundTrip)> =
            trips.iter().filter_map(|trip| Some((trip, trip.round_trip()?))).collect();
        let per_s = |end: &Collected, over: &Duration| {
            let count: u64 = self.binding.keys().map(|key| end.requests(&key)).sum();
            count as f64 / over.as_secs_f64().max(0.001)
        };
        let of = |from_host| {
            let of = round_trips.iter().filter(|(t, _)| t.request.from_host == from_host);
            split(of.map(|(_, round_trip)| *round_trip), from_host)
        };
        latency.devices.push(DeviceLatency {
            binding: self.binding.id,
            slot: self.binding.slot.clone(),
            host: self.binding.host.clone(),
            model: self.model.clone(),
            host_requests_per_s: per_s(host, host_over),
            device_requests_per_s: per_s(boxed, box_over),
            from_host: of(true),
            from_device: of(false),
            lost: host.lost + boxed.lost,
        });
        round_trips.sort_by_key(|(_, round_trip)| std::cmp::Reverse(round_trip.total()));
        for (trip, round_trip) in round_trips.iter().take(question.slowest) {
            latency.slowest.push(self.slow(trip, round_trip));
        }
    }

    fn slow(&self, trip: &Trip<'_>, round_trip: &RoundTrip) -> SlowRequest {
        let described = trip.request.describe();
        let from_host = trip.request.from_host;
        SlowRequest {
            binding: self.binding.id,
            slot: self.binding.slot.clone(),
            host: self.binding.host.clone(),
            asker: if from_host { "host" } else { "device" }.to_owned(),
            kind: described.kind,
            address: described.address,
            target: described.target,
            bytes: described.bytes,
            completions: trip.completions.len(),
            total_ns: round_trip.total(),
            stages: stages(round_trip, from_host),
        }
    }
}

fn stages(trip: &RoundTrip, from_host: bool) -> Vec<StageTime> {
    let (near, far) = if from_host { ("host", "box") } else { ("box", "host") };
    let stage = |place: &str, name: &str, ns| StageTime { stage: format!("{place}: {name}"), ns };
    let mut stages = vec![
        stage(near, "arrived to encoded", trip.request.first),
        stage(near, "encoded to sent", trip.request.second),
    ];
    match (trip.far, trip.network()) {
        (Some(there), Some(network)) => stages.extend([
            StageTime { stage: "network, both ways".to_owned(), ns: network },
            stage(far, "received to decoded", there.request.first),
            stage(far, "decoded to delivered", there.request.second),
            StageTime {
                stage: if from_host { "device" } else { "host memory" }.to_owned(),
                ns: there.original,
            },
            stage(far, "arrived to encoded", there.answer.first),
            stage(far, "encoded to sent", there.answer.second),
        ]),
        _ => stages.push(StageTime { stage: "away".to_owned(), ns: trip.away }),
    }
    stages.extend([
        stage(near, "received to decoded", trip.answer.first),
        stage(near, "decoded to delivered", trip.answer.second),
    ]);
    stages
}

/// Of round trips that both ends saw.
fn split(trips: impl Iterator<Item = RoundTrip>, from_host: bool) -> Option<Split> {
    let mut parts: [Vec<u64>; 5] = Default::default();
    for trip in trips {
        let (Some(far), Some(network)) = (trip.far, trip.network()) else { continue };
        let near = trip.request.total() + trip.answer.total();
        let far_part = far.request.total() + far.answer.total();
        let (host, boxed) = if from_host { (near, far_part) } else { (far_part, near) };
        let values = [trip.total(), far.original, network, host, boxed];
        parts.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
    }
    parts.iter_mut().for_each(|all| all.sort_unstable());
    let samples = parts[0].len();
    if samples == 0 {
        return None;
    }
    let [total, original, network, host, boxed] = &parts;
    // The nearest rank: the smallest value that so many are not above.
    let rank = |all: &Vec<u64>, of_100: usize| all[(samples * of_100).div_ceil(100).max(1) - 1];
    Some(Split {
        samples,
        p50_ns: rank(total, 50),
        p99_ns: rank(total, 99),
        original_ns: rank(original, 50),
        network_ns: rank(network, 50),
        host_conversion_ns: rank(host, 50),
        box_conversion_ns: rank(boxed, 50),
    })
}
