//! Firmware on its way to cards.

use super::{Obeyed, Point};
use crate::common::card::{BROKEN, Card, Label};
use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{LONG, Manager, eventually};
use manager::types::RolloutKind;
use proxy_core::control::FirmwareRequest;
use serde_json::Value;
use std::cmp::Ordering::{Equal, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A kind of rollout that has no walk does not compile.
const _: fn(&RolloutKind) -> &'static [fn()] = |kind| match kind {
    RolloutKind::Push { .. } => &[
        at_every_request_of_an_image,
        at_every_request_of_an_image_that_never_joins,
        at_every_request_of_an_image_with_a_power_cut,
        at_every_event,
    ],
    RolloutKind::RollBack => &[
        at_every_request_of_a_way_back,
        at_every_request_of_a_way_back_with_a_power_cut,
        at_every_event_of_a_way_back,
        a_way_back_to_the_same_version,
    ],
};

/// What is done to cards.
#[derive(Clone, Copy)]
struct Rollout {
    cards: &'static [&'static str],
    /// Whether the only one goes back to the image before instead of getting a new one.
    back: bool,
    /// Whether the image is one that never joins.
    broken: bool,
    /// Whether the power is cut, so that the cards lose what they know, too.
    power: bool,
    /// Whether a device of the first one is lent, which is interrupted.
    lent: bool,
}

struct Pool {
    manager: Manager,
    rollout: Rollout,
    cards: Vec<Card>,
    at_host: Option<Fake>,
    /// The major version that the cards run, and their other one.
    versions: (u16, u16),
    /// How many rollouts there were.
    rollouts: usize,
}

impl Pool {
    fn new(rollout: Rollout) -> Self {
        let manager = Manager::start();
        let start = |name: &&str| Card::start(manager.control, boxed(name, 1));
        let cards = rollout.cards.iter().map(start).collect();
        let at_host = Fake::join(manager.control, host("host1", 2), "");
        manager.wait_ready(&[rollout.cards, &["host1"]].concat());
        let at_host = Some(at_host);
        let mut pool = Self { manager, rollout, cards, at_host, versions: (1, 1), rollouts: 0 };
        if rollout.back {
            pool.manager.text(&["firmware", "push", &pool.image(2), "--all"]);
            (pool.versions, pool.rollouts) = ((2, 1), 1);
        }
        if rollout.lent {
            pool.manager.text(&["allocate", "--host", "host1", "--box", rollout.cards[0]]);
        }
        pool
    }

    fn image(&self, major: u16) -> String {
        let name = format!("v{major}.img");
        std::fs::write(self.manager.path(&name), Label::version(major).image()).unwrap();
        name
    }

    /// The version that comes, and the command for it.
    fn command(&self) -> (u16, Vec<String>) {
        let (runs, other) = self.versions;
        let mut words = vec!["firmware".to_owned()];
        let next = match self.rollout {
            Rollout { back: true, .. } => other,
            Rollout { broken: true, .. } => BROKEN + self.rollouts as u16,
            _ => runs + 1,
        };
        if self.rollout.back {
            words.push("rollback".into());
            words.push(self.rollout.cards[0].into());
        } else {
            words.extend(["push".into(), self.image(next), "--all".into()]);
        }
        words.extend(["--no-wait", "--interrupt"].map(String::from));
        (next, words)
    }

    /// The rollout that comes now, when there is one.
    fn latest(&self) -> Option<Value> {
        let (status, rollout) = self.manager.request("GET", "/v1/firmware/rollout", None);
        let id = format!("roll-{}", self.rollouts + 1);
        (status == 200 && rollout["id"] == *id).then_some(rollout)
    }

    fn is_over(&self) -> bool {
        self.latest().is_some_and(|rollout| rollout["state"] != "running")
    }

    fn events(&self, since: u64) -> Vec<String> {
        let page = self.manager.get(&format!("/v1/events?since={since}&limit=1000"));
        let kinds = page["items"].as_array().unwrap().iter().map(|event| &event["kind"]);
        let kinds = kinds.map(|kind| kind.as_str().unwrap().to_owned());
        kinds.filter(|kind| kind.starts_with("firmware-")).collect()
    }

    /// Counts what cards are asked, and has none of it answered from the point on.
    fn count(&self, point: Point) -> Arc<AtomicUsize> {
        let all = Arc::new(AtomicUsize::new(0));
        let Point::Request(at, obeyed) = point else { return all };
        for card in &self.cards {
            let seen = all.clone();
            card.does_instead(move |_| {
                let now = seen.fetch_add(1, Ordering::SeqCst) + 1;
                match (now.cmp(&at), obeyed) {
                    (Less, _) => None,
                    (Equal, Obeyed::Yes) => Some(Script::ObeyAndVanish),
                    _ => Some(Script::Ignore),
                }
            });
        }
        all
    }

    /// Whether the point came before the rollout was over.
    fn begin_and_kill(&mut self, words: &[&str], since: u64, point: Point) -> bool {
        let seen = self.count(point);
        let mut command = self.manager.begin(words);
        let begun = Instant::now();
        let killed = loop {
            let is_over = command.try_wait().unwrap().is_some() && self.is_over();
            let came = match point {
                Point::Request(at, _) => seen.load(Ordering::SeqCst) >= at,
                Point::Event(at) => self.events(since).len() >= at,
            };
            if came || is_over {
                break came;
            }
            assert!(begun.elapsed() < LONG, "{point:?} does not come and nothing is over");
        };
        if killed {
            self.manager.kill();
            self.cards.iter().for_each(Card::obeys);
            if self.rollout.power {
                self.cards.iter().for_each(Card::power_cycle);
            }
            self.manager.run();
            let (spec, state) = self.at_host.take().unwrap().leave();
            self.at_host = Some(Fake::insist(self.manager.control, spec, state));
        }
        let status = command.wait().unwrap();
        assert!(killed || status.success(), "{words:?}: {status}");
        self.cards.iter().for_each(Card::obeys);
        killed
    }

    /// One rollout, with a kill in it if the point comes.
    fn roll_out(&mut self, point: Point) -> bool {
        let (next, words) = self.command();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let counts = |card: &Card| (card.restarts(), card.pieces().len());
        let before: Vec<_> = self.cards.iter().map(counts).collect();
        let since = self.manager.get("/v1/events?limit=1000")["next"].as_u64().unwrap();
        let killed = self.begin_and_kill(&words, since, point);
        if self.latest().is_none() {
            // It was not begun yet, and whoever asked for it asks again.
            self.manager.wait_ready(self.rollout.cards);
            self.manager.text(&words);
        }
        eventually(&format!("the end after {point:?}"), || self.is_over().then_some(()));
        self.manager.wait_ready(self.rollout.cards);
        self.check(next, point);
        let said = self.events(since);
        let count = |kind: &str| said.iter().filter(|said| *said == kind).count();
        let counted = ["rollout-started", "updated", "failed", "rollout-ended"];
        let counted = counted.map(|kind| count(&format!("firmware-{kind}")));
        let (well, badly) =
            if self.rollout.broken { (0, self.cards.len()) } else { (self.cards.len(), 0) };
        assert_eq!(counted, [1, well, badly, 1], "{said:?} after {point:?}");
        for (card, (restarts, pieces)) in self.cards.iter().zip(before) {
            let told = card.restarts() - restarts;
            // One that has lost its power has restarted by itself.
            let by_itself = self.rollout.power && killed && told == 0;
            assert!(told == 1 || by_itself, "told to restart {told} times after {point:?}");
            // Six, and once more what came since the last whole KB.
            assert!(
                card.pieces().len() <= pieces + 8,
                "{:?} after {point:?}",
                &card.pieces()[pieces..]
            );
        }
        if self.rollout.lent {
            self.manager.wait_phase("configured");
        }
        if !self.rollout.broken {
            self.versions = (next, self.versions.0);
        }
        self.rollouts += 1;
        killed
    }

    /// Checks what the record says of the rollout and its cards.
    fn check(&self, next: u16, point: Point) {
        let rollout = self.latest().unwrap();
        let (ended, stands, runs) = match self.rollout.broken {
            true => ("failed", "failed", self.versions.0),
            false => ("succeeded", "updated", next),
        };
        assert_eq!(rollout["state"], ended, "{rollout} after {point:?}");
        for card in rollout["cards"].as_array().unwrap() {
            assert_eq!(card["state"], stands, "{rollout} after {point:?}");
            let before = format!("{}.0.0+0", self.versions.0);
            assert_eq!(card["before"], before, "{rollout} after {point:?}");
        }
        let listed = self.manager.json(&["firmware", "list"]);
        let cards = listed["cards"].as_array().unwrap();
        assert_eq!(cards.len(), self.cards.len(), "{listed} after {point:?}");
        for card in cards {
            let slot = usize::from(card["running"] == "b");
            let version = format!("{runs}.0.0+0");
            assert_eq!(card["slots"][slot]["version"], version, "{listed} after {point:?}");
        }
    }
}

/// Kills at one point after the other, until the rollout is over before the point comes.
fn kill_everywhere(rollout: Rollout, point: impl Fn(usize) -> Point) -> usize {
    let mut pool = Pool::new(rollout);
    (1..).find(|&at| !pool.roll_out(point(at))).unwrap() - 1
}

fn at_every_request(rollout: Rollout, least: usize) {
    std::thread::scope(|scope| {
        for obeyed in [Obeyed::No, Obeyed::Yes] {
            scope.spawn(move || {
                let points = kill_everywhere(rollout, |n| Point::Request(n, obeyed));
                assert!(points >= least, "{points} points only");
            });
        }
    });
}

const ONE: Rollout =
    Rollout { cards: &["box1"], back: false, broken: false, power: false, lent: false };

/// Its pieces, its restart, and what is asked about it.
#[test]
fn at_every_request_of_an_image() {
    at_every_request(ONE, 12);
}

/// The boot loader goes back to the image before, and the card says so once.
#[test]
fn at_every_request_of_an_image_that_never_joins() {
    at_every_request(Rollout { broken: true, ..ONE }, 12);
}

/// Once too often would be forward again.
#[test]
fn at_every_request_of_a_way_back() {
    at_every_request(Rollout { back: true, ..ONE }, 5);
}

#[test]
fn at_every_request_of_an_image_with_a_power_cut() {
    at_every_request(Rollout { power: true, ..ONE }, 10);
}

/// It has gone back before that could be recorded.
#[test]
fn at_every_request_of_a_way_back_with_a_power_cut() {
    at_every_request(Rollout { back: true, power: true, ..ONE }, 5);
}

/// One card after the other; a device of one is lent, and is again.
#[test]
fn at_every_event() {
    let image = Rollout { cards: &["box1", "box2"], lent: true, ..ONE };
    let points = kill_everywhere(image, Point::Event);
    assert!(points >= 4, "{points} points only");
}

#[test]
fn at_every_event_of_a_way_back() {
    let points = kill_everywhere(Rollout { back: true, lent: true, ..ONE }, Point::Event);
    assert!(points >= 3, "{points} points only");
}

/// Two builds that say the same of themselves: that the card went back is told by the image.
#[test]
fn a_way_back_to_the_same_version() {
    let mut manager = Manager::start();
    let card = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    for length in [3000, 2900] {
        let image = Label { length, ..Label::version(2) }.image();
        std::fs::write(manager.path("v2.img"), image).unwrap();
        manager.text(&["firmware", "push", "v2.img", "--all"]);
    }
    let running = |manager: &Manager| manager.json(&["firmware", "list"])["cards"][0].clone();
    let before = running(&manager);
    assert_eq!(before["slots"][0]["version"], before["slots"][1]["version"], "{before}");
    let told = Arc::new(AtomicUsize::new(0));
    let seen = told.clone();
    card.does_instead(move |request| match request {
        FirmwareRequest::RollBack(_) => {
            // Its answer does not come.
            let first = seen.fetch_add(1, Ordering::SeqCst) == 0;
            Some(if first { Script::ObeyAndVanish } else { Script::Ignore })
        }
        _ => None,
    });
    manager.text(&["firmware", "rollback", "box1", "--no-wait"]);
    eventually("the way back", || (told.load(Ordering::SeqCst) > 0).then_some(()));
    manager.kill();
    card.obeys();
    card.power_cycle();
    manager.run();
    eventually("the end", || {
        let rollout = manager.get("/v1/firmware/rollout");
        (rollout["state"] == "succeeded").then_some(())
    });
    assert_eq!(card.restarts(), 2, "it was not told to go forward again");
    assert_ne!(running(&manager)["running"], before["running"]);
}
