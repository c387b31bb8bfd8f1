//! The manager is killed at every request that a proxy sees, before and after it is obeyed, and at
//! every event that is recorded, in every kind of operation; and started again. Afterwards the
//! tables are what the records say, and nothing is leaked, doubled or stuck.

mod called_back;
mod erasures;
mod firmware;
mod operations;
mod pool;

use crate::common::fake::Script;
use pool::Pool;
use proxy_core::control::Request;
use serde_json::Value;

/// A kind of operation.
struct Kind {
    /// What is lent before it.
    before: &'static [&'static str],
    /// What else is so before it.
    prepare: Option<fn(&Pool)>,
    /// How it begins; words are separated by spaces.
    begin: &'static [&'static str],
    /// What is asked later.
    then: Option<Then>,
    /// How many slots are lent when it is over: any of these.
    lent: &'static [usize],
    /// Where the erasures stand that it begins, when it is over.
    erasures: &'static [&'static str],
    /// Kinds of events that are its own, besides those that name an operation.
    events: &'static [&'static str],
    /// Further lines of the manager's file.
    settings: &'static str,
    /// Bounds of the manager.
    timing: &'static [(&'static str, u32)],
    /// What brings it about beside commands; done again and again until it is over.
    cause: Option<fn(&Pool)>,
    /// What proxies say instead of obeying, by how often this has said something before: until what
    /// is asked later is done.
    answers: Option<fn(&Request, usize) -> Option<Script>>,
    /// Who goes before it begins, and comes back when it is over. It is over without them.
    away: &'static [&'static str],
    /// What else has to be so when it is over.
    over: fn(&Pool) -> bool,
    /// It has so many points at least.
    points: usize,
}

/// What is asked when a kind of operation has come so far. Who asked a manager that was killed
/// asks again.
struct Then {
    when: fn(&Pool) -> bool,
    what: &'static str,
}

impl Kind {
    const fn new(
        before: &'static [&'static str],
        begin: &'static [&'static str],
        lent: &'static [usize],
    ) -> Self {
        let none: &[&str] = &[];
        Self {
            before,
            prepare: None,
            begin,
            then: None,
            lent,
            erasures: none,
            events: none,
            settings: "",
            timing: &[("lease_warning_ms", 10), ("lease_grace_ms", 200)],
            cause: None,
            answers: None,
            away: none,
            over: |_| true,
            points: 2,
        }
    }

    /// Whether an event is of its own. Proxies that were slow to come back have theirs, too, which
    /// begin nothing.
    fn owns(&self, event: &Value) -> bool {
        event["operation"].is_string() || self.events.iter().any(|kind| event["kind"] == *kind)
    }
}

/// Where the manager is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// At this request, counted from 1, which is obeyed or not.
    Request(usize, Obeyed),
    /// After this event, counted from 1.
    Event(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obeyed {
    No,
    Yes,
}

/// Kills at one point after the other, until the operation is over before the point comes.
fn kill_everywhere(kind: &Kind, point: impl Fn(usize) -> Point) {
    let mut pool = Pool::new(kind);
    let mut points = 0;
    loop {
        let at = point(points + 1);
        let killed = pool.begin_and_kill(kind, at);
        if killed {
            pool.again(kind, at);
        } else {
            pool.obey();
        }
        pool.bring_back(at);
        pool.check(kind, at);
        if !killed {
            break;
        }
        points += 1;
        pool.clean();
    }
    assert!(points >= kind.points, "{points} points only");
}

fn at_every_step(kind: Kind) {
    std::thread::scope(|scope| {
        scope.spawn(|| at_every_request(&kind));
        scope.spawn(|| kill_everywhere(&kind, Point::Event));
    });
}

/// Of what records nothing on its way.
fn at_every_request(kind: &Kind) {
    std::thread::scope(|scope| {
        for obeyed in [Obeyed::No, Obeyed::Yes] {
            scope.spawn(move || kill_everywhere(kind, |n| Point::Request(n, obeyed)));
        }
    });
}

/// Of what asks nobody anything that changes a table.
fn at_every_event(kind: Kind) {
    kill_everywhere(&kind, Point::Event);
}

const ONE: &str = "allocate --host host1";
const TWO: &str = "allocate --host host1 --count 2";
const TWO_NO_WAIT: &str = "allocate --host host1 --count 2 --no-wait";

/// Requests that begin what has several steps: each is walked.
const STEPS: &[&str] = &[
    "post /v1/allocations",
    "delete /v1/allocations/{id}",
    "delete /v1/bindings/{id}",
    "post /v1/bindings/{id}/replace",
    "post /v1/boxes/{name}/slots/{slot}/erase",
    "post /v1/boxes/{name}/slots/{slot}/recover",
    "post /v1/drains",
    "post /v1/firmware/rollout",
    "delete /v1/nodes/{name}",
    "post /v1/operations/{id}/cancel",
    "post /v1/take-backs",
];

/// Those that are one change of the records, which is there or is not.
const ONE_CHANGE: &[&str] = &[
    "post /v1/allocations/{id}/lease",
    "post /v1/erasures/{id}/waive",
    "post /v1/firmware/images",
    "post /v1/holds",
    "delete /v1/holds",
    "put /v1/inventory",
];

/// Those of which the records keep nothing.
const NOT_KEPT: &[&str] = &[
    "put /v1/nodes/{name}/log-level",
    "put /v1/nodes/{name}/sampling",
    "post /v1/recordings",
    "delete /v1/recordings/{id}",
    "post /v1/recordings/{id}/stop",
];

#[test]
fn no_request_with_several_steps_is_left_out() {
    let description = serde_json::to_value(manager::api::description()).unwrap();
    let of_path = |(path, methods): (&String, &Value)| {
        let methods: Vec<String> = methods.as_object().unwrap().keys().cloned().collect();
        let path = path.clone();
        methods.into_iter().filter(|m| m != "get").map(move |method| format!("{method} {path}"))
    };
    let paths = description["paths"].as_object().unwrap();
    let mut there: Vec<String> = paths.iter().flat_map(of_path).collect();
    let mut known = [STEPS, ONE_CHANGE, NOT_KEPT].concat();
    there.sort();
    known.sort_unstable();
    assert_eq!(there, known, "a request that begins something with steps needs a walk");
}
