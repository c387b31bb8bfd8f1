//! A look at all devices for a moment: how many requests, how long round trips take and what of
//! that the device, the network and the proxies take (as DxPU's Table 6 splits it), and which
//! were the slowest.

use super::HEADER;
use super::clock::Anchor;
use super::collect::Collected;
use super::join::{self, RoundTrip, Trip};
use super::tap::{self, Upto};
use crate::control::Session;
use crate::manager::Manager;
use crate::types::{BindingRecord, NodeName, Role};
use manager_client::views::{DeviceLatency, Latency, NotRecorded, SlowRequest, Split, StageTime};
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

/// The most memory that a look keeps of one proxy, bytes; one that has so much is over.
const MAX_KEPT: usize = 64 << 20;

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
    host: End,
    boxed: End,
}

/// One end of a device: its proxy, and where its list stands among those of the proxy.
struct End {
    session: Arc<Session>,
    place: usize,
}

/// What is recorded at each proxy: a list for each device.
type Lists = BTreeMap<NodeName, (Arc<Session>, Vec<Vec<Recorded>>)>;

/// What there is of each of a proxy's devices, in the order of its lists; nothing of a proxy without a
/// recorder.
type Seen = BTreeMap<NodeName, Option<(Vec<Collected>, Duration)>>;

/// Looks.
pub async fn look(manager: &Arc<Manager>, question: &Question) -> Latency {
    let (devices, lists, mut missing) = choose(manager, question);
    let anchor = Anchor::now();
    let bound = manager.settings.request_bound;
    let mut looks = JoinSet::new();
    for (name, (session, list)) in lists {
        let window = question.window;
        looks.spawn(async move { (name, at_proxy(&session, list, window, bound, anchor).await) });
    }
    let (mut seen, mut cut_short) = (Seen::new(), Vec::new());
    while let Some(done) = looks.join_next().await {
        match done.expect("no look panics") {
            (name, Ok(of)) => {
                let over = of.as_ref().map_or(question.window, |(_, over)| *over);
                if over < question.window / 2 {
                    cut_short.push(format!(
                        "{name}: its devices do so much that it was looked at for {over:.0?} only: \
                         stamp fewer (one_in)"
                    ));
                }
                seen.insert(name, of);
            }
            (name, Err(why)) => missing.push(format!("{name}: {why}")),
        }
    }
    let question = question.clone();
    let latency = Latency {
        window_ms: question.window.as_millis() as u64,
        one_in: question.one_in,
        devices: Vec::new(),
        slowest: Vec::new(),
        missing,
        cut_short,
    };
    let evaluated =
        tokio::task::spawn_blocking(move || evaluate(&devices, seen, &question, latency));
    evaluated.await.expect("no evaluation panics")
}

/// Adds what was seen of the devices.
fn evaluate(
    devices: &[Device],
    mut seen: Seen,
    question: &Question,
    mut latency: Latency,
) -> Latency {
    for device in devices {
        let mut of = |end: &End| {
            let seen = seen.get_mut(end.session.name())?.as_mut();
            Some(seen.map(|(seen, over)| (std::mem::take(&mut seen[end.place]), *over)))
        };
        if let (Some(host), Some(boxed)) = (of(&device.host), of(&device.boxed)) {
            device.evaluate(host, boxed, question, &mut latency);
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
        // What is asked is read at the host, or at the box where the host may have no recorder.
        let at_box = if host.tap.has_recorder() { 0 } else { HEADER };
        let ends = [(&host, recorded(&boxed, HEADER)), (&boxed, recorded(&host, at_box))];
        let room = |(session, list): &(&Arc<Session>, Vec<Recorded>)| {
            lists.get(session.name()).map_or(0, |(_, l)| l.iter().map(Vec::len).sum()) + list.len()
                <= MAX_RECORDED
        };
        if !ends.iter().all(room) {
            let why = format!("{}: a proxy looks at {MAX_RECORDED} functions at most", binding.id);
            missing.push(why);
            continue;
        }
        let [host_end, box_end] = ends.map(|(session, list)| {
            let lists = lists.entry(session.name().clone());
            let (_, lists) = lists.or_insert_with(|| (session.clone(), Vec::new()));
            lists.push(list);
            End { session: session.clone(), place: lists.len() - 1 }
        });
        let model = tables.functions(&binding.slot).next().map(|d| d.model.clone());
        let model = model.unwrap_or_default();
        devices.push(Device { binding: binding.clone(), model, host: host_end, boxed: box_end });
    }
    (devices, lists, missing)
}

/// Looks at what one proxy does for each of these lists. Nothing of a proxy that has no recorder; else
/// what was kept, and the time between the first and the last answer.
async fn at_proxy(
    session: &Arc<Session>,
    lists: Vec<Vec<Recorded>>,
    window: Duration,
    bound: Duration,
    anchor: Anchor,
) -> Result<Option<(Vec<Collected>, Duration)>, String> {
    let mut watch = match tap::watch(session, lists.concat(), bound).await {
        Ok(watch) => watch,
        Err(error) if error.is_for_want_of_a_recorder() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut kept: Vec<_> = lists.into_iter().map(|list| Collected::new(list, anchor)).collect();
    let until = Instant::now() + window;
    let (mut upto, mut first, mut last) = (Upto::new(until), None, None);
    // What was asked for before the end may come a little later.
    let all = async {
        while let Some(piece) = watch.next().await {
            kept.iter_mut().for_each(|kept| kept.take(&piece));
            first.get_or_insert(piece.clock.asked);
            last = Some(piece.clock.asked);
            let bytes: usize = kept.iter().map(|kept| kept.bytes).sum();
            if upto.is_reached(&piece) || bytes > MAX_KEPT {
                return true;
            }
        }
        false
    };
    let whole = tokio::time::timeout_at(until + window + bound, all).await;
    match whole {
        Ok(false) => Err("its connection ended".to_owned()),
        _ => {
            let over = first.zip(last).map_or(window, |(first, last)| last - first);
            Ok(Some((kept, over)))
        }
    }
}

impl Device {
    fn evaluate(
        &self,
        host: Option<(Collected, Duration)>,
        boxed: Option<(Collected, Duration)>,
        question: &Question,
        latency: &mut Latency,
    ) {
        let (host_name, box_name) = (self.host.session.name(), self.boxed.session.name());
        let not_recorded = match (&host, &boxed) {
            (Some(_), Some(_)) => None,
            (None, Some(_)) => Some((Role::Host, host_name)),
            (Some(_), None) => Some((Role::Box, box_name)),
            (None, None) => {
                latency.missing.push(format!(
                    "{}: neither {host_name} nor {box_name} has memory for a flight recorder",
                    self.binding.id
                ));
                return;
            }
        };
        let not_recorded = not_recorded.map(|(end, name)| {
            let detail = format!("{name} has no memory for a flight recorder");
            NotRecorded { end, detail }
        });
        let per_s = |end: &Option<(Collected, Duration)>| {
            let (collected, over) = end.as_ref()?;
            let counts = self.binding.keys().map(|key| collected.requests(&key));
            let count = counts.fold(0, u64::saturating_add);
            Some(count as f64 / over.as_secs_f64().max(0.001))
        };
        let (host_requests_per_s, device_requests_per_s) = (per_s(&host), per_s(&boxed));
        let at_host = host.is_some();
        let kept =
            |end: Option<(Collected, Duration)>| end.map(|(kept, _)| kept).unwrap_or_default();
        let (host, boxed) = (kept(host), kept(boxed));
        let trips = join::trips(join::tlps(&host, &boxed, at_host));
        let mut round_trips: Vec<(&Trip<'_>, RoundTrip)> =
            trips.iter().filter_map(|trip| Some((trip, trip.round_trip()?))).collect();
        let of = |from_host| {
            let of = round_trips.iter().filter(|(t, _)| t.request.from_host == from_host);
            split(of.map(|(_, round_trip)| *round_trip), from_host)
        };
        latency.devices.push(DeviceLatency {
            binding: self.binding.id,
            slot: self.binding.slot.clone(),
            host: self.binding.host.clone(),
            model: self.model.clone(),
            host_requests_per_s,
            device_requests_per_s,
            from_host: of(true),
            from_device: of(false),
            not_recorded,
            lost: host.lost.saturating_add(boxed.lost),
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

/// Of round trips that the asker's end saw whole; what the other end saw, where it did. The slowest are
/// those of which stamps of the other end are missing: without them the percentiles were of the others.
fn split(trips: impl Iterator<Item = RoundTrip>, from_host: bool) -> Option<Split> {
    let [mut total, mut near, mut original, mut network, mut far, mut conversion]: [Vec<u64>; 6] =
        Default::default();
    for trip in trips {
        let here = trip.request.total() + trip.answer.total();
        total.push(trip.total());
        near.push(here);
        if let (Some(there), Some(between)) = (trip.far, trip.network()) {
            original.push(there.original);
            network.push(between);
            let beyond = there.request.total() + there.answer.total();
            far.push(beyond);
            conversion.push(here + beyond);
        }
    }
    // The nearest rank: the smallest value that so many are not above.
    let rank = |all: &mut Vec<u64>, of_100: usize| {
        all.sort_unstable();
        all.get((all.len() * of_100).div_ceil(100).max(1) - 1).copied()
    };
    let (near, far) = (rank(&mut near, 50), rank(&mut far, 50));
    let (host, boxed) = if from_host { (near, far) } else { (far, near) };
    Some(Split {
        samples: total.len(),
        p50_ns: rank(&mut total, 50)?,
        p99_ns: rank(&mut total, 99)?,
        original_ns: rank(&mut original, 50),
        network_ns: rank(&mut network, 50),
        conversion_ns: rank(&mut conversion, 50),
        host_conversion_ns: host,
        box_conversion_ns: boxed,
    })
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::recorder::join::{Far, Part};

    /// A round trip with so much at each end, and so much with the device if the far end saw it.
    fn trip(near: u64, away: u64, far: Option<(u64, u64)>) -> RoundTrip {
        let part = |ns| Part { first: 0, second: ns };
        let far = far.map(|(far, original)| Far {
            request: part(far),
            original,
            answer: Part::default(),
        });
        RoundTrip { start: 0, request: part(near), away, answer: Part::default(), far }
    }

    #[test]
    fn a_round_trip_that_the_far_end_is_not_known_of_counts_with_the_others() {
        let quick = (0..980).map(|_| trip(40, 500, Some((40, 180))));
        // So late that what the far end stamped is not taken to be of the same request.
        let held = (0..20).map(|_| trip(60, 300_000_000, None));
        let split = split(quick.chain(held), true).unwrap();
        assert_eq!((split.samples, split.p50_ns, split.p99_ns), (1000, 540, 300_000_060));
        assert_eq!((split.original_ns, split.network_ns), (Some(180), Some(280)));
        assert_eq!((split.host_conversion_ns, split.box_conversion_ns), (Some(40), Some(40)));
        assert_eq!(split.conversion_ns, Some(80));
    }

    #[test]
    fn conversion_is_the_median_of_what_both_ends_took_of_each_round_trip() {
        let trips = [(100, 500), (200, 100), (300, 200)];
        let trips = trips.map(|(near, far)| trip(near, 1_000, Some((far, 10))));
        let split = split(trips.into_iter(), true).unwrap();
        assert_eq!((split.host_conversion_ns, split.box_conversion_ns), (Some(200), Some(200)));
        assert_eq!(split.conversion_ns, Some(500));
    }
}
