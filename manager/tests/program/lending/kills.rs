//! The manager is killed at every request that a proxy sees, before and after it is obeyed, and at
//! every event that is recorded, in every kind of operation; and started again. Afterwards the
//! tables are what the records say, and nothing is leaked, doubled or stuck.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{LONG, Manager, eventually};
use proxy_core::control::Request;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A kind of operation.
struct Kind {
    /// What is lent before it.
    before: &'static [&'static str],
    /// How it begins; words are separated by spaces.
    begin: &'static [&'static str],
    /// How many slots are lent when it is over: any of these.
    lent: &'static [usize],
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

struct Pool {
    manager: Manager,
    proxies: Vec<Fake>,
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn items(manager: &Manager, path: &str) -> Vec<Value> {
    manager.get(path)["items"].as_array().unwrap().clone()
}

fn changes_a_table(request: &Request) -> bool {
    use Request::{BindPort, BindSlot, UnbindPort, UnbindSlot};
    matches!(request, BindSlot(_) | BindPort(_) | UnbindPort { .. } | UnbindSlot(_))
}

impl Pool {
    fn new() -> Self {
        let timing = [("lease_warning_ms", 10), ("lease_grace_ms", 200)];
        let manager = Manager::with_timing(&timing);
        let at_host = Fake::join(manager.control, host("host1", 4), "");
        let at_box = Fake::join(manager.control, boxed("box1", 3), "nvme");
        manager.wait_ready(&["host1", "box1"]);
        Self { manager, proxies: vec![at_host, at_box] }
    }

    /// A command with the names of what is lent, and of the operation that comes next.
    fn named(&self, args: &str) -> String {
        let first = |path: &str| {
            let list = items(&self.manager, path);
            list.first().map_or("none".to_owned(), |item| item["id"].as_str().unwrap().to_owned())
        };
        let latest = first("/v1/operations");
        let next: u64 =
            latest.trim_start_matches("op-").parse().map_or(1, |number: u64| number + 1);
        args.replace("ALLOC", &first("/v1/allocations"))
            .replace("BIND", &first("/v1/bindings"))
            .replace("NEXT", &format!("op-{next}"))
    }

    fn is_over(&self) -> bool {
        let bindings = items(&self.manager, "/v1/bindings");
        let standing = |b: &Value| b["phase"] == "configured" && b["desired"] == "bound";
        let leased = items(&self.manager, "/v1/allocations").iter().any(|a| a["lease"].is_object());
        let running = items(&self.manager, "/v1/operations?running=true");
        running.is_empty() && bindings.iter().all(standing) && !leased
    }

    /// Begins an operation and kills the manager at a point of it. Whether the point came before the
    /// operation was over.
    fn begin_and_kill(&mut self, kind: &Kind, point: Point) -> bool {
        for args in kind.before {
            self.manager.text(&words(args));
        }
        let seen = Arc::new(AtomicUsize::new(0));
        if let Point::Request(at, obeyed) = point {
            for proxy in &self.proxies {
                let seen = seen.clone();
                proxy.rule(move |request| {
                    if !changes_a_table(request) {
                        return None;
                    }
                    let now = seen.fetch_add(1, Ordering::SeqCst) + 1;
                    match (now.cmp(&at), obeyed) {
                        (std::cmp::Ordering::Less, _) => None,
                        (std::cmp::Ordering::Equal, Obeyed::Yes) => Some(Script::ObeyAndVanish),
                        _ => Some(Script::Ignore),
                    }
                });
            }
        }
        let since = self.manager.get("/v1/events?limit=1000")["next"].as_u64().unwrap();
        let begin = |args: &&str| self.manager.begin(&words(&self.named(args)));
        let mut commands: Vec<_> = kind.begin.iter().map(begin).collect();
        let begun = Instant::now();
        let killed = loop {
            // Before the point is looked for: what is over stays over, and how far it came is kept.
            let asked = commands.iter_mut().all(|c| c.try_wait().unwrap().is_some());
            let over = asked && self.is_over();
            let came = match point {
                Point::Request(at, _) => seen.load(Ordering::SeqCst) >= at,
                Point::Event(at) => {
                    // Proxies that were slow to come back have theirs, too, which begin nothing.
                    let path = format!("/v1/events?since={since}&limit=1000");
                    let own = |event: &&Value| event["operation"].is_string();
                    items(&self.manager, &path).iter().filter(own).count() >= at
                }
            };
            if came {
                self.manager.kill();
                break true;
            }
            if over {
                break false;
            }
            assert!(begun.elapsed() < LONG, "{point:?} does not come and nothing is over");
        };
        for mut command in commands {
            command.wait().unwrap();
        }
        killed
    }

    fn again(&mut self) {
        let left: Vec<_> = self.proxies.drain(..).map(Fake::leave).collect();
        self.manager.run();
        for (spec, state) in left {
            state.lock().unwrap().rules.clear();
            self.proxies.push(Fake::insist(self.manager.control, spec, state));
        }
    }

    /// Waits until everything is over, and checks that the tables are what the records say.
    fn check(&self, kind: &Kind, point: Point) {
        eventually(&format!("the end after {point:?}"), || self.is_over().then_some(()));
        eventually(&format!("tables as the records after {point:?}"), || {
            let records = items(&self.manager, "/v1/bindings");
            let mut wanted: Vec<(u64, String, String)> = records
                .iter()
                .map(|b| {
                    let slot = b["slot"].as_str().unwrap().to_owned();
                    let epoch = b["functions"][0]["epoch"].as_str().unwrap().to_owned();
                    (b["port"].as_u64().unwrap(), slot, epoch)
                })
                .collect();
            wanted.sort();
            let ports = self.proxies[0].with(|s| {
                let port = |(port, (binding, _)): (&u8, &(proxy_core::control::PortBinding, _))| {
                    let epoch = binding.functions[0].1.to_string();
                    (u64::from(*port), format!("box1/{}", binding.slot), epoch)
                };
                let mut ports: Vec<_> = s.ports.iter().map(port).collect();
                ports.sort();
                ports
            });
            let mut bound: Vec<(String, String)> = (1..=3)
                .filter_map(|slot| self.proxies[1].bound(slot))
                .map(|key| (format!("box1/{}", key.slot), key.epoch.to_string()))
                .collect();
            bound.sort();
            let mut slots: Vec<_> =
                wanted.iter().map(|(_, slot, epoch)| (slot.clone(), epoch.clone())).collect();
            slots.sort();
            let clean = items(&self.manager, "/v1/slots")
                .iter()
                .all(|s| ["free", "used", "held"].iter().any(|status| s["status"] == *status));
            (ports == wanted && bound == slots && clean).then_some(())
        });
        let lent = items(&self.manager, "/v1/bindings").len();
        assert!(kind.lent.contains(&lent), "{lent} are lent after {point:?}");
    }

    /// Everything free again.
    fn clean(&self) {
        for allocation in items(&self.manager, "/v1/allocations") {
            self.manager.text(&["release", allocation["id"].as_str().unwrap(), "--force"]);
        }
        for hold in items(&self.manager, "/v1/holds") {
            self.manager.text(&["maintain", hold["place"].as_str().unwrap(), "--off"]);
        }
        for slot in ["box1/1", "box1/2", "box1/3"] {
            self.manager.wait_slot(slot, "free");
        }
    }
}

/// Kills at one point after the other, until the operation is over before the point comes.
fn kill_everywhere(kind: &Kind, point: impl Fn(usize) -> Point) {
    let mut pool = Pool::new();
    let mut points = 0;
    loop {
        let at = point(points + 1);
        let killed = pool.begin_and_kill(kind, at);
        if killed {
            pool.again();
        } else {
            pool.proxies.iter().for_each(|proxy| proxy.with(|s| s.rules.clear()));
        }
        pool.check(kind, at);
        if !killed {
            break;
        }
        points += 1;
        pool.clean();
    }
    assert!(points >= 2, "{points} points only");
}

fn at_every_step(kind: Kind) {
    let kind = &kind;
    std::thread::scope(|scope| {
        for obeyed in [Obeyed::No, Obeyed::Yes] {
            scope.spawn(move || kill_everywhere(kind, |n| Point::Request(n, obeyed)));
        }
        scope.spawn(move || kill_everywhere(kind, Point::Event));
    });
}

const ONE: &str = "allocate --host host1";
const TWO: &str = "allocate --host host1 --count 2";
const TWO_NO_WAIT: &str = "allocate --host host1 --count 2 --no-wait";

#[test]
fn of_an_allocation() {
    at_every_step(Kind { before: &[], begin: &[TWO_NO_WAIT], lent: &[2] });
}

#[test]
fn of_a_release() {
    at_every_step(Kind { before: &[TWO], begin: &["release ALLOC --no-wait"], lent: &[0] });
}

#[test]
fn of_a_release_by_force() {
    at_every_step(Kind { before: &[TWO], begin: &["release ALLOC --force --no-wait"], lent: &[0] });
}

/// It may come too early or too late; then everything is lent.
#[test]
fn of_an_allocation_that_is_called_back() {
    let begin = &[TWO_NO_WAIT, "cancel NEXT --no-wait"];
    at_every_step(Kind { before: &[], begin, lent: &[0, 2] });
}

#[test]
fn of_a_drain() {
    let begin = &["drain box1 --reason x --no-wait"];
    at_every_step(Kind { before: &[TWO], begin, lent: &[0] });
}

#[test]
fn of_a_replacement() {
    let begin = &["replace BIND --reason x --no-wait"];
    at_every_step(Kind { before: &[ONE], begin, lent: &[1] });
}

#[test]
fn of_a_drain_that_replaces() {
    let begin = &["drain box1/1 --replace --reason x --no-wait"];
    at_every_step(Kind { before: &[ONE], begin, lent: &[1] });
}

#[test]
fn of_a_take_back() {
    let begin = &["take-back host1 --grace 50ms --reason x --no-wait"];
    at_every_step(Kind { before: &[TWO], begin, lent: &[0] });
}

#[test]
fn of_a_lease_that_is_over() {
    let begin = &["allocate --host host1 --lease 200ms --no-wait"];
    at_every_step(Kind { before: &[], begin, lent: &[0] });
}
