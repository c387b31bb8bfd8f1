//! Choices of which the shapes of the boxes do not say everything.

use super::*;
use SlotStatus::{Free, Used};
use serde_json::json;

fn gpu_of(demand: &str) -> serde_json::Value {
    json!({ "gpu": { "demand": demand } })
}

fn named(pool: &Pool, request: &PlanRequest) -> Vec<String> {
    slots(&pool.plan(request).unwrap_or_else(|problem| panic!("{problem:?}")))
}

/// A box of which one device is lent, noted with this demand; each takes all that the box carries.
fn one_lent(demand: Option<u64>) -> Pool {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    let boxes = json!({ "box1": { "capacity": "1G" } });
    pool.inventory(json!({ "models": gpu_of("1G"), "boxes": boxes }));
    pool.add_box("box1", &[(Used, "gpu"), (Free, "gpu")]);
    let binding = pool.txn.binding_at_slot(&"box1/1".parse().unwrap()).unwrap().clone();
    let record = BindingRecord { model: "gpu".to_owned(), demand, ..binding };
    pool.txn.remove_binding(record.id);
    pool.txn.add_binding(record);
    pool
}

/// The slot has the device again before its box knows what it is.
#[test]
fn a_device_that_was_pulled_keeps_the_bandwidth_that_it_was_lent_with() {
    for demand in [None, Some(1_000_000_000)] {
        let mut pool = one_lent(demand);
        let slot: SlotAddress = "box1/1".parse().unwrap();
        let lent = pool.txn.functions(&slot).next().unwrap().clone();
        let none = PciIdentity { vendor: 0, class: 0, ..lent.pci };
        let blank = DeviceRecord { model: String::new(), pci: none, serial: 0, ..lent.clone() };
        let is_full = |pool: &Pool, what: &str| {
            assert!(pool.plan(&ask(1)).is_err(), "{demand:?}: {what}");
            let other = pool.txn.host_bandwidth(&name("other"));
            assert_eq!(other.1, 1_000_000_000, "{demand:?}: {what}");
        };
        is_full(&pool, "lent");
        pool.txn.device_became(&lent.address, DeviceState::Empty);
        is_full(&pool, "pulled");
        pool.txn.put_device(DeviceRecord { state: DeviceState::Empty, ..blank.clone() });
        is_full(&pool, "pulled, and its box has said so again");
        if demand.is_some() {
            pool.txn.put_device(DeviceRecord { state: DeviceState::Probing, ..blank });
            is_full(&pool, "looked at");
            pool.txn.remove_device(&lent.address);
            is_full(&pool, "not said anything of");
        }
        pool.txn.put_device(lent);
        is_full(&pool, "back");
        // What is in force counts where it is known what the device is.
        let boxes = json!({ "box1": { "capacity": "1G" } });
        pool.inventory(json!({ "models": gpu_of("400M"), "boxes": boxes }));
        assert_eq!(named(&pool, &ask(1)), ["box1/2"]);
    }
}

/// What moves out of a box or island, with one more of it.
fn moves(together: Together) -> PlanRequest {
    let mut request = wish(1, |wishes| {
        wishes.together = together;
        wishes.model = Some("gpu".to_owned());
    });
    request.beside = 1;
    request
}

#[test]
fn what_moves_together_finds_room_for_all_in_what_is_not_excluded() {
    for together in [Together::Box, Together::Island] {
        let mut pool = Pool::new();
        pool.host("host1", 8, &[]);
        let islands = match together {
            Together::Island => json!([{ "slots": [1, 2] }]),
            _ => json!([]),
        };
        let boxes = json!({ "box1": { "islands": islands }, "box2": { "islands": islands } });
        pool.inventory(json!({ "models": gpu_of("1"), "boxes": boxes }));
        pool.add_box("box1", &[(Free, "gpu"); 2]);
        pool.add_box("box2", &[(Free, "gpu"); 4]);
        assert_eq!(named(&pool, &moves(together)), ["box1/1"]);
        let mut request = moves(together);
        request.wishes.exclude.slots = vec!["box1/2".parse().unwrap()];
        assert_eq!(named(&pool, &request)[0].split('/').next(), Some("box2"), "{together:?}");
        let mut request = moves(together);
        request.wishes.cel = Some("box != 'box1' || slot == 1".to_owned());
        assert_eq!(named(&pool, &request)[0].split('/').next(), Some("box2"), "{together:?}");
    }
}

/// Each gives back what it had there before the next one comes.
#[test]
fn what_moves_together_needs_the_hosts_bandwidth_for_one_at_a_time() {
    for together in [Together::Box, Together::Island] {
        for (of_box, of_host, fits) in [(2, 1, true), (1, 2, false), (2, 0, false)] {
            let mut pool = Pool::new();
            pool.host("host1", 8, &[]);
            let facts = json!({ "islands": [{ "slots": [1, 2] }], "capacity": of_box });
            let hosts = json!({ "host1": { "capacity": of_host + 1 } });
            pool.inventory(
                json!({ "models": gpu_of("1"), "boxes": { "box1": facts }, "hosts": hosts }),
            );
            pool.add_box("box1", &[(Free, "gpu"); 2]);
            pool.add_box("box0", &[(Free, "gpu")]);
            pool.bind("box0/1", "host1", 0, Desired::Bound);
            let plan = pool.plan(&moves(together));
            assert_eq!(plan.is_ok(), fits, "{together:?} {of_box} {of_host}: {plan:?}");
        }
    }
}

#[test]
fn near_ones_come_first_also_by_their_serial_numbers() {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    pool.inventory(json!({
        "sites": { "s1": {} },
        "racks": { "r1": {}, "r2": { "site": "s1" }, "r3": { "site": "s1" } },
        "boxes": { "a": { "rack": "r1" }, "b": { "rack": "r2" }, "c": { "rack": "r3" } },
        "hosts": { "host1": { "rack": "r3" } },
    }));
    let mut serials = Vec::new();
    for text in ["a", "b", "c"] {
        pool.add_box(text, &[(Free, "nvme")]);
        let slot: SlotAddress = format!("{text}/1").parse().unwrap();
        let serial = pool.txn.functions(&slot).next().unwrap().serial;
        serials.push(format!("{serial:x}"));
    }
    let near = |serials: &[String], together| {
        wish(1, |wishes| {
            (wishes.near, wishes.together) = (true, together);
            wishes.selector = format!("serial={}", serials.join("|")).parse().unwrap();
        })
    };
    for together in [Together::Any, Together::Box, Together::Spread] {
        assert_eq!(named(&pool, &near(&serials, together)), ["c/1"], "{together:?}");
        assert_eq!(named(&pool, &near(&serials[..2], together)), ["b/1"], "{together:?}");
        assert_eq!(named(&pool, &near(&serials[..1], together)), ["a/1"], "{together:?}");
    }
}

/// A box with an island and a plain slot, one with plain slots, and the host's rack with islands.
fn islands_and_plain() -> Pool {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    pool.inventory(json!({
        "racks": { "r1": {}, "r2": {} },
        "models": gpu_of("1"),
        "boxes": {
            "box1": { "islands": [{ "slots": [1, 2, 3] }] },
            "near1": { "rack": "r1", "islands": [{ "slots": [1, 2] }] },
        },
        "hosts": { "host1": { "rack": "r1" } },
    }));
    pool.add_box("box1", &[(Free, "gpu"); 4]);
    pool.add_box("box2", &[(Free, "gpu"); 4]);
    pool.add_box("near1", &[(Free, "gpu"); 2]);
    pool
}

#[test]
fn no_island_is_broken_for_a_slot_that_is_excluded() {
    let pool = islands_and_plain();
    let reason = |request: &PlanRequest| pool.explain(request).reasons.pop().unwrap();
    let most = "one box has enough; it breaks the fewest islands";
    let mut request = wish(1, |wishes| wishes.selector = "box=box1|box2".parse().unwrap());
    assert_eq!(named(&pool, &request), ["box1/4"]);
    let fewest = format!("{most}, and of those the box that is left with the fewest");
    assert!(reason(&request).ends_with(&fewest), "{}", reason(&request));
    request.wishes.exclude.slots = vec!["box1/4".parse().unwrap()];
    assert_eq!(named(&pool, &request), ["box2/1"]);
    assert!(reason(&request).ends_with(most), "{}", reason(&request));
    for wish_for in ["slot<4,box=box1|box2", "slot=1|2|3,box=box1|box2"] {
        let request = wish(1, |wishes| wishes.selector = wish_for.parse().unwrap());
        assert_eq!(named(&pool, &request), ["box2/1"], "{wish_for}");
    }
    // With as many as only the island has, it is broken.
    request.count = 3;
    request.wishes.exclude.boxes = vec![name("box2"), name("near1")];
    assert_eq!(named(&pool, &request), ["box1/1", "box1/2", "box1/3"]);
}

#[test]
fn the_reason_says_among_which_the_fewest_islands_are_broken() {
    let pool = islands_and_plain();
    let why = pool.explain(&wish(1, |wishes| wishes.near = true));
    assert_eq!(why.slots[0].slot.to_string(), "near1/1");
    let of_rack = "of those in the host's rack it breaks the fewest islands";
    assert!(why.reasons.last().unwrap().contains(of_rack), "{:?}", why.reasons);
    let why = pool.explain(&wish(4, |wishes| wishes.near = true));
    assert!(why.reasons.last().unwrap().contains("; it breaks the fewest"), "{:?}", why.reasons);
}

/// An inventory has drawn the islands anew since.
#[test]
fn what_was_lent_in_an_island_that_is_no_more_goes_to_no_other() {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    pool.inventory(json!({ "boxes": { "box1": { "islands": [{ "slots": [3, 4] }] } } }));
    pool.add_box("box1", &[(Used, "gpu"), (Used, "gpu"), (Free, "gpu"), (Free, "gpu")]);
    let beside = |slot: &str| {
        let mut request = wish(1, |wishes| {
            (wishes.together, wishes.box_name) = (Together::Island, Some(name("box1")));
        });
        request.island_of = Some(slot.parse().unwrap());
        request
    };
    assert_eq!(named(&pool, &beside("box1/4")), ["box1/3"]);
    let problem = pool.plan(&beside("box1/1")).unwrap_err();
    assert_eq!(problem.code, ProblemCode::NothingFits);
    let why = "in the island of box1/1, which is in none by the inventory: alone leaves 0 of 4";
    assert!(problem.reasons.iter().any(|reason| reason == why), "{:?}", problem.reasons);
}
