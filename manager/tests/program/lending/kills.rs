//! The manager is killed at every request that a proxy sees, before and after it is obeyed, and at
//! every event that is recorded, in every kind of operation; and started again. Afterwards the
//! tables are what the records say, and nothing is leaked, doubled or stuck.

use crate::common::fake::{Fake, Script, Spec, State, boxed, host};
use crate::common::{LONG, Manager, eventually};
use proxy_core::control::{ControlError, PathAddress, Request};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A kind of operation.
struct Kind {
    /// What is lent before it.
    before: &'static [&'static str],
    /// How it begins; words are separated by spaces.
    begin: &'static [&'static str],
    /// How many slots are lent when it is over: any of these.
    lent: &'static [usize],
    /// Further lines of the manager's file.
    settings: &'static str,
    /// What brings it about beside commands; done again and again until it is over.
    cause: Option<fn(&Pool)>,
    /// What proxies refuse.
    refuses: Option<fn(&Request) -> bool>,
    /// Who goes before it begins, and comes back when it is over. It is over without them.
    away: &'static [&'static str],
    /// What else has to be so when it is over without a kill.
    over: fn(&Pool) -> bool,
}

impl Kind {
    const fn new(
        before: &'static [&'static str],
        begin: &'static [&'static str],
        lent: &'static [usize],
    ) -> Self {
        let over = |_: &Pool| true;
        let (settings, away): (_, &[_]) = ("", &[]);
        Self { before, begin, lent, settings, cause: None, refuses: None, away, over }
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

struct Pool {
    manager: Manager,
    /// The host first, then the box.
    proxies: Vec<Fake>,
    /// Those that are away.
    away: Vec<(Spec, Arc<Mutex<State>>)>,
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn items(manager: &Manager, path: &str) -> Vec<Value> {
    manager.get(path)["items"].as_array().unwrap().clone()
}

fn changes_a_table(request: &Request) -> bool {
    use Request::{BindPort, BindSlot, Erase, UnbindPort, UnbindSlot};
    matches!(request, BindSlot(_) | BindPort(_) | UnbindPort { .. } | UnbindSlot(_) | Erase(_))
}

impl Pool {
    fn new(kind: &Kind) -> Self {
        let timing = [("lease_warning_ms", 10), ("lease_grace_ms", 200)];
        let manager = Manager::with_settings(kind.settings, &timing);
        let two_paths = |mut spec: Spec, number| {
            spec.paths = vec![PathAddress::Udp4 { ip: [127, 0, 1, number], port: 4000 }];
            spec
        };
        let at_host = Fake::join(manager.control, two_paths(host("host1", 4), 1), "");
        let at_box = Fake::join(manager.control, two_paths(boxed("box1", 3), 2), "nvme");
        manager.wait_ready(&["host1", "box1"]);
        let inventory = r#"{"racks":{"r1":{}},"boxes":{"box1":{"rack":"r1"}}}"#;
        let json = [("content-type", "application/json")];
        let (status, text) = manager.raw("PUT", "/v1/inventory", &json, Some(inventory));
        assert_eq!(status, 200, "{text}");
        Self { manager, proxies: vec![at_host, at_box], away: Vec::new() }
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
        for name in kind.away {
            let at = self.proxies.iter().position(|p| p.spec.name.as_str() == *name).unwrap();
            self.away.push(self.proxies.remove(at).leave());
            let path = format!("/v1/nodes/{name}");
            let is_away = || self.manager.get(&path)["connection"].is_null();
            eventually("the proxy to go", || is_away().then_some(()));
        }
        self.refuse(kind);
        let seen = Arc::new(AtomicUsize::new(0));
        let rules = |proxy: &Fake| proxy.with(|state| std::mem::take(&mut state.rules));
        let refusals: Vec<_> = self.proxies.iter().map(rules).collect();
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
        // After what counts, which has to see all of them.
        for (proxy, refusals) in self.proxies.iter().zip(refusals) {
            proxy.with(|state| state.rules.extend(refusals));
        }
        let since = self.manager.get("/v1/events?limit=1000")["next"].as_u64().unwrap();
        let begin = |args: &&str| self.manager.begin(&words(&self.named(args)));
        let mut commands: Vec<_> = kind.begin.iter().map(begin).collect();
        let begun = Instant::now();
        let killed = loop {
            // In this order: what is over has had all its points.
            let asked = commands.iter_mut().all(|c| c.try_wait().unwrap().is_some());
            let lent = items(&self.manager, "/v1/bindings").len();
            let is_over = asked && self.is_over() && kind.lent.contains(&lent) && (kind.over)(self);
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
            if is_over {
                break false;
            }
            kind.cause.iter().for_each(|cause| cause(self));
            assert!(begun.elapsed() < LONG, "{point:?} does not come and nothing is over");
        };
        for mut command in commands {
            command.wait().unwrap();
        }
        killed
    }

    fn refuse(&self, kind: &Kind) {
        let Some(which) = kind.refuses else { return };
        for proxy in &self.proxies {
            proxy.rule(move |r| which(r).then_some(Script::Refuse(ControlError::BadWindows)));
        }
    }

    fn again(&mut self, kind: &Kind) {
        let left: Vec<_> = self.proxies.drain(..).map(Fake::leave).collect();
        self.manager.run();
        for (spec, state) in left {
            state.lock().unwrap().rules.clear();
            self.proxies.push(Fake::insist(self.manager.control, spec, state));
        }
        self.refuse(kind);
    }

    /// Who is away comes back when it is over without them.
    fn bring_back(&mut self, point: Point) {
        if !self.away.is_empty() {
            let what = format!("the end without proxies after {point:?}");
            eventually(&what, || self.is_over().then_some(()));
        }
        for (spec, state) in self.away.drain(..) {
            self.proxies.push(Fake::insist(self.manager.control, spec, state));
        }
        self.proxies.sort_by_key(|proxy| proxy.spec.name.as_str() != "host1");
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
        for erasure in items(&self.manager, "/v1/erasures") {
            assert_eq!(erasure["state"], "done", "{erasure} after {point:?}");
        }
        let lent = items(&self.manager, "/v1/bindings").len();
        assert!(kind.lent.contains(&lent), "{lent} are lent after {point:?}");
    }

    /// Everything free again.
    fn clean(&self) {
        self.proxies.iter().for_each(|proxy| proxy.with(|s| s.rules.clear()));
        if !self.proxies[0].with(|s| s.root_complex) {
            self.proxies[0].set_root_complex(true);
        }
        eventually("the root complex", || {
            let host = self.manager.get("/v1/nodes/host1");
            (host["root_complex"]["present"] == true).then_some(())
        });
        for allocation in items(&self.manager, "/v1/allocations") {
            self.manager.text(&["release", allocation["id"].as_str().unwrap(), "--force"]);
        }
        // What is not healthy would be replaced again.
        eventually("health", || items(&self.manager, "/v1/health").is_empty().then_some(()));
        for hold in items(&self.manager, "/v1/holds") {
            // One for its health may end by itself before this.
            self.manager.cli(&["maintain", hold["place"].as_str().unwrap(), "--off"]);
        }
        for slot in ["box1/1", "box1/2", "box1/3"] {
            self.manager.wait_slot(slot, "free");
        }
    }
}

/// Kills at one point after the other, until the operation is over before the point comes.
fn kill_everywhere(kind: &Kind, point: impl Fn(usize) -> Point) {
    let mut pool = Pool::new(kind);
    let mut points = 0;
    loop {
        let at = point(points + 1);
        let killed = pool.begin_and_kill(kind, at);
        if killed {
            pool.again(kind);
        } else {
            pool.proxies.iter().for_each(|proxy| proxy.with(|s| s.rules.clear()));
        }
        pool.bring_back(at);
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
    at_every_step(Kind::new(&[], &[TWO_NO_WAIT], &[2]));
}

#[test]
fn of_a_release() {
    at_every_step(Kind::new(&[TWO], &["release ALLOC --no-wait"], &[0]));
}

#[test]
fn of_a_release_by_force() {
    at_every_step(Kind::new(&[TWO], &["release ALLOC --force --no-wait"], &[0]));
}

/// It may come too early or too late; then everything is lent.
#[test]
fn of_an_allocation_that_is_called_back() {
    let begin = &[TWO_NO_WAIT, "cancel NEXT --no-wait"];
    at_every_step(Kind::new(&[], begin, &[0, 2]));
}

#[test]
fn of_a_drain() {
    let begin = &["drain box1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_drain_of_a_rack() {
    let begin = &["drain rack:r1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

/// The host comes back when it is forgotten, and is a new one.
#[test]
fn of_a_host_that_is_forgotten() {
    let forget = Kind::new(&[TWO], &["forget host1 --force --no-wait"], &[0]);
    at_every_step(Kind { away: &["host1"], ..forget });
}

/// So does the box, and what it still has is taken out of it.
#[test]
fn of_a_box_that_is_forgotten() {
    let forget = Kind::new(&[TWO], &["forget box1 --force --no-wait"], &[0]);
    at_every_step(Kind { away: &["box1"], ..forget });
}

/// Nobody is asked anything.
#[test]
fn of_a_box_that_is_forgotten_while_its_host_is_away() {
    let forget = Kind::new(&[TWO], &["forget box1 --force --no-wait"], &[0]);
    kill_everywhere(&Kind { away: &["host1", "box1"], ..forget }, Point::Event);
}

#[test]
fn of_a_replacement() {
    let begin = &["replace BIND --reason x --no-wait"];
    at_every_step(Kind::new(&[ONE], begin, &[1]));
}

#[test]
fn of_a_drain_that_replaces() {
    let begin = &["drain box1/1 --replace --reason x --no-wait"];
    at_every_step(Kind::new(&[ONE], begin, &[1]));
}

#[test]
fn of_a_take_back() {
    let begin = &["take-back host1 --grace 50ms --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_take_back_of_a_rack() {
    let begin = &["take-back rack:r1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_lease_that_is_over() {
    let begin = &["allocate --host host1 --lease 200ms --no-wait"];
    at_every_step(Kind::new(&[], begin, &[0]));
}

/// Its devices are erased, and the release waits for that.
#[test]
fn of_a_release_that_erases() {
    let settings = "[[erase]]\nmeans = [\"format-user\"]\n";
    let release = Kind::new(&[TWO], &["release ALLOC --no-wait"], &[0]);
    at_every_step(Kind { settings, ..release });
}

/// The box does not take one of two slots, and the other one is given back.
#[test]
fn of_an_allocation_that_is_rolled_back() {
    let refuses = |r: &Request| matches!(r, Request::BindSlot(b) if b.key.slot.get() == 2);
    let allocate = Kind::new(&[], &[TWO_NO_WAIT], &[0]);
    at_every_step(Kind { refuses: Some(refuses), ..allocate });
}

/// What was wished to use this path only is made again by the other.
#[test]
fn of_a_path_that_is_drained() {
    let before = &["allocate --host host1 --paths 1"];
    let drain = Kind::new(before, &["drain path:1 --reason x --no-wait"], &[1]);
    let over = |pool: &Pool| {
        let left = |b: &proxy_core::control::SlotBinding| b.path_set.0 & 2 == 0;
        pool.proxies[1].with(|s| s.slots.iter().filter_map(|slot| slot.bound.as_ref()).all(left))
    };
    at_every_step(Kind { over, ..drain });
}

/// A host has no root complex for longer than its grace.
#[test]
fn of_a_host_that_is_gone() {
    let cause = |pool: &Pool| {
        if pool.proxies[0].with(|s| s.root_complex) {
            pool.proxies[0].set_root_complex(false);
        }
    };
    let gone = Kind::new(&[TWO], &[], &[0]);
    at_every_step(Kind { settings: "host_grace_s = 1\n", cause: Some(cause), ..gone });
}

/// A device sends error messages, and the policy has it replaced.
#[test]
fn of_a_replacement_by_the_policy() {
    let settings = "[health]\ninterval_ms = 20\ncounters_ms = 20\npolicy = \"replace\"\n\
                    device_window_ms = 300\n\
                    thresholds = { suspect_after = 1, failed_after = 1, recover_after = 2 }\n";
    let cause = |pool: &Pool| {
        if pool.proxies[1].bound(1).is_some() {
            pool.proxies[1].count("slot 1: fatal errors", 1);
        }
    };
    let replace = Kind::new(&[ONE], &[], &[1]);
    let over = |pool: &Pool| pool.proxies[1].bound(1).is_none();
    at_every_step(Kind { settings, cause: Some(cause), over, ..replace });
}
