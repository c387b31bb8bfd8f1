//! A manager that is killed, its host and its box.

use super::{Kind, Obeyed, Point};
use crate::common::fake::{Fake, Script, Spec, State, boxed, host};
use crate::common::{LONG, Manager, eventually};
use proxy_core::control::{PathAddress, PortBinding, Request};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) struct Pool {
    pub(super) manager: Manager,
    /// The host first, then the box, if neither is away.
    proxies: Vec<Fake>,
    /// Those that are away.
    away: Vec<(Spec, Arc<Mutex<State>>)>,
    /// Whether what brings it about was done already, for causes that are done once.
    pub(super) caused: Cell<bool>,
    /// Epochs that the box has had when the operation begins.
    epochs: Cell<u32>,
    /// How many erasures there were when it began.
    erasures: Cell<usize>,
    /// What is asked later, with its names.
    then: RefCell<String>,
    /// Whether proxies do what they are asked, whatever the kind has them answer.
    willing: Arc<AtomicBool>,
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn items(manager: &Manager, path: &str) -> Vec<Value> {
    manager.get(path)["items"].as_array().unwrap().clone()
}

fn states(erasures: &[Value]) -> Vec<&str> {
    erasures.iter().map(|erasure| erasure["state"].as_str().unwrap()).collect()
}

/// Whether a request changes what a proxy has.
fn changes(request: &Request) -> bool {
    use Request::{BindPort, BindSlot, Erase, Recover, UnbindPort, UnbindSlot};
    let binds = matches!(request, BindSlot(_) | BindPort(_));
    binds || matches!(request, UnbindPort { .. } | UnbindSlot(_) | Erase(_) | Recover(_))
}

impl Pool {
    pub(super) fn new(kind: &Kind) -> Self {
        let manager = Manager::with_settings(kind.settings, kind.timing);
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
        Self {
            manager,
            proxies: vec![at_host, at_box],
            away: Vec::new(),
            caused: Cell::new(false),
            epochs: Cell::new(0),
            erasures: Cell::new(0),
            then: RefCell::default(),
            willing: Arc::default(),
        }
    }

    fn proxy(&self, name: &str) -> &Fake {
        self.proxies.iter().find(|proxy| proxy.spec.name.as_str() == name).unwrap()
    }

    pub(super) fn at_host(&self) -> &Fake {
        self.proxy("host1")
    }

    pub(super) fn at_box(&self) -> &Fake {
        self.proxy("box1")
    }

    /// Where a slot of the box stands.
    pub(super) fn slot(&self, number: u8) -> String {
        let slot = self.manager.get(&format!("/v1/boxes/box1/slots/{number}"));
        slot["status"].as_str().unwrap().to_owned()
    }

    pub(super) fn nothing_is_held(&self) -> bool {
        items(&self.manager, "/v1/holds").is_empty()
    }

    fn highest_epochs(&self) -> u32 {
        let all = |state: &mut State| state.slots.iter().map(|slot| slot.highest).sum::<u32>();
        self.proxies.iter().map(|proxy| proxy.with(all)).sum()
    }

    /// Whether something of the box got a new epoch since it began.
    pub(super) fn has_new_epochs(&self) -> bool {
        self.highest_epochs() > self.epochs.get()
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
        let erasing = items(&self.manager, "/v1/erasures?state=running");
        running.is_empty() && erasing.is_empty() && bindings.iter().all(standing) && !leased
    }

    /// Whether it is over as this kind is, not as before it began.
    fn is_over_as(&self, kind: &Kind) -> bool {
        let lent = items(&self.manager, "/v1/bindings").len();
        let as_it_should = kind.lent.contains(&lent) && (kind.over)(self);
        self.is_over() && as_it_should && states(&self.begun_erasures()) == kind.erasures
    }

    /// The erasures that were begun since it began, first ones first.
    fn begun_erasures(&self) -> Vec<Value> {
        let mut all = items(&self.manager, "/v1/erasures?limit=1000");
        all.reverse();
        all.split_off(self.erasures.get())
    }

    /// Begins an operation and kills the manager at a point of it. Whether the point came before the
    /// operation was over.
    pub(super) fn begin_and_kill(&mut self, kind: &Kind, point: Point) -> bool {
        self.prepare(kind);
        let seen = self.answer(kind, Some(point));
        let since = self.manager.get("/v1/events?limit=1000")["next"].as_u64().unwrap();
        *self.then.borrow_mut() = kind.then.as_ref().map_or(String::new(), |t| self.named(t.what));
        let begin = |args: &&str| self.manager.begin(&words(&self.named(args)));
        let mut commands: Vec<Child> = kind.begin.iter().map(begin).collect();
        let begun = Instant::now();
        let mut then = None;
        let killed = loop {
            // In this order: what is over has had all its points.
            let mut asked = commands.iter_mut().all(|c| c.try_wait().unwrap().is_some());
            let mut ended = None;
            if let Some(later) = kind.then.as_ref().filter(|_| asked) {
                if then.is_none() && (later.when)(self) {
                    then = Some(self.manager.begin(&words(&self.then.borrow())));
                }
                ended = then.as_mut().and_then(|then| then.try_wait().unwrap());
                asked = ended.is_some();
                if ended.is_some_and(|status| status.success()) {
                    self.be_willing();
                }
            }
            let is_over = asked && self.is_over_as(kind);
            let came = match point {
                Point::Request(at, _) => seen.load(Ordering::SeqCst) >= at,
                Point::Event(at) => {
                    let path = format!("/v1/events?since={since}&limit=1000");
                    items(&self.manager, &path).iter().filter(|e| kind.owns(e)).count() >= at
                }
            };
            if came {
                self.manager.kill();
                break true;
            }
            // A proxy that vanishes at the point makes it fail.
            let went_well = ended.is_none_or(|status| status.success());
            assert!(went_well, "{}: {ended:?}", self.then.borrow());
            if is_over {
                break false;
            }
            kind.cause.iter().for_each(|cause| cause(self));
            assert!(begun.elapsed() < LONG, "{point:?} does not come and nothing is over");
        };
        // Who gets no answer asks the next manager, by the same key.
        if killed {
            self.manager.run();
        }
        for mut command in commands.into_iter().chain(then) {
            command.wait().unwrap();
        }
        killed
    }

    fn prepare(&mut self, kind: &Kind) {
        for args in kind.before {
            self.manager.text(&words(args));
        }
        kind.prepare.iter().for_each(|prepare| prepare(self));
        self.caused.set(false);
        self.willing.store(false, Ordering::SeqCst);
        self.epochs.set(self.highest_epochs());
        self.erasures.set(0);
        self.erasures.set(self.begun_erasures().len());
        for name in kind.away {
            let at = self.proxies.iter().position(|p| p.spec.name.as_str() == *name).unwrap();
            self.away.push(self.proxies.remove(at).leave());
            let path = format!("/v1/nodes/{name}");
            let is_away = || self.manager.get(&path)["connection"].is_null();
            eventually("the proxy to go", || is_away().then_some(()));
        }
    }

    /// Has proxies answer as the kind says, and no more from a point on. Counts what comes.
    fn answer(&self, kind: &Kind, point: Option<Point>) -> Arc<AtomicUsize> {
        let all = Arc::new(AtomicUsize::new(0));
        for proxy in &self.proxies {
            let (mut times, willing, seen) = (0, self.willing.clone(), all.clone());
            let answers = kind.answers;
            proxy.rule(move |request| {
                let said = answers.and_then(|answers| answers(request, times));
                let said = said.filter(|_| !willing.load(Ordering::SeqCst));
                times += usize::from(said.is_some());
                let Some(Point::Request(at, obeyed)) = point.filter(|_| changes(request)) else {
                    return said;
                };
                let now = seen.fetch_add(1, Ordering::SeqCst) + 1;
                match (now.cmp(&at), obeyed, said) {
                    (std::cmp::Ordering::Less, _, said) => said,
                    (std::cmp::Ordering::Equal, Obeyed::Yes, None) => Some(Script::ObeyAndVanish),
                    // What it says is lost.
                    (std::cmp::Ordering::Equal, Obeyed::Yes, Some(_)) => Some(Script::Vanish),
                    _ => Some(Script::Ignore),
                }
            });
        }
        all
    }

    /// From now on, proxies do not answer as the kind says.
    pub(super) fn be_willing(&self) {
        self.willing.store(true, Ordering::SeqCst);
    }

    fn is_willing(&self) -> bool {
        self.willing.load(Ordering::SeqCst)
    }

    /// From now on, proxies do what they are asked.
    pub(super) fn obey(&self) {
        self.proxies.iter().for_each(|proxy| proxy.with(|state| state.rules.clear()));
    }

    /// The proxies find the manager that was started again, and whoever asked it asks again.
    pub(super) fn again(&mut self, kind: &Kind, point: Point) {
        let left: Vec<_> = self.proxies.drain(..).map(Fake::leave).collect();
        for (spec, state) in left {
            state.lock().unwrap().rules.clear();
            self.proxies.push(Fake::insist(self.manager.control, spec, state));
        }
        self.answer(kind, None);
        if kind.then.is_none() && kind.cause.is_none() {
            return;
        }
        eventually(&format!("the rest after {point:?}"), || {
            kind.cause.iter().for_each(|cause| cause(self));
            // It may be done already, without an answer.
            let asks = kind.then.as_ref().filter(|then| !self.is_willing() && (then.when)(self));
            if asks.is_some() && self.manager.cli(&words(&self.then.borrow())).status.success() {
                self.be_willing();
            }
            self.is_over_as(kind).then_some(())
        });
        self.be_willing();
    }

    /// Who is away comes back when it is over without them.
    pub(super) fn bring_back(&mut self, point: Point) {
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
    pub(super) fn check(&self, kind: &Kind, point: Point) {
        let what = format!("the end after {point:?}");
        eventually(&what, || (self.is_over() && self.is_cleared()).then_some(()));
        let what = format!("tables as the records after {point:?}");
        eventually(&what, || self.has_what_the_records_say().then_some(()));
        let begun = self.begun_erasures();
        assert_eq!(states(&begun), kind.erasures, "{begun:?} after {point:?}");
        // What is brought about by a cause may have been before it.
        let is_over = kind.cause.is_some() || (kind.over)(self);
        assert!(is_over, "it is not over as it should be after {point:?}");
        let lent = items(&self.manager, "/v1/bindings").len();
        assert!(kind.lent.contains(&lent), "{lent} are lent after {point:?}");
    }

    /// Whether no slot waits for anything.
    fn is_cleared(&self) -> bool {
        let slots = items(&self.manager, "/v1/slots");
        slots.iter().all(|s| ["free", "used", "held"].iter().any(|status| s["status"] == *status))
    }

    fn has_what_the_records_say(&self) -> bool {
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
        let ports = self.at_host().with(|s| {
            let port = |(port, (binding, _)): (&u8, &(PortBinding, _))| {
                let epoch = binding.functions[0].1.to_string();
                (u64::from(*port), format!("box1/{}", binding.slot), epoch)
            };
            let mut ports: Vec<_> = s.ports.iter().map(port).collect();
            ports.sort();
            ports
        });
        let mut bound: Vec<(String, String)> = (1..=3)
            .filter_map(|slot| self.at_box().bound(slot))
            .map(|key| (format!("box1/{}", key.slot), key.epoch.to_string()))
            .collect();
        bound.sort();
        let mut slots: Vec<_> =
            wanted.iter().map(|(_, slot, epoch)| (slot.clone(), epoch.clone())).collect();
        slots.sort();
        ports == wanted && bound == slots
    }

    /// Everything free again.
    pub(super) fn clean(&self) {
        self.obey();
        self.at_host().with(|s| s.enumerates = true);
        if !self.at_host().with(|s| s.root_complex) {
            self.at_host().set_root_complex(true);
        }
        eventually("the root complex", || {
            let host = self.manager.get("/v1/nodes/host1");
            (host["root_complex"]["present"] == true).then_some(())
        });
        for allocation in items(&self.manager, "/v1/allocations") {
            self.manager.text(&["release", allocation["id"].as_str().unwrap(), "--force"]);
        }
        // What is not healthy would be replaced again.
        let healthy = || items(&self.manager, "/v1/health").is_empty();
        eventually("health", || healthy().then_some(()));
        for hold in items(&self.manager, "/v1/holds") {
            // One for its health may end by itself before this.
            self.manager.cli(&["maintain", hold["place"].as_str().unwrap(), "--off"]);
        }
        for slot in ["box1/1", "box1/2", "box1/3"] {
            self.manager.wait_slot(slot, "free");
        }
    }
}
