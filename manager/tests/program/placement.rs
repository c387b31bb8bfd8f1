//! Placement by what devices are and where, through API and command line.

use crate::common::Manager;
use crate::common::fake::{Fake, boxed, host};
use serde_json::{Value, json};

const POOL: &str = r#"
[sites.hel]
[racks.r1]
site = "hel"
[racks.r2]
site = "hel"
[models.nvme]
memory = "2T"
attributes = { media = "tlc" }
[boxes.box1]
rack = "r1"
[boxes.box2]
rack = "r2"
kind = "nvlink"
islands = [{ slots = [1, 2], rate = "450G" }]
[boxes.box2.slots.3]
firmware = "1.2.3"
attributes = { lot = 7 }
[hosts.host1]
rack = "r2"
"#;

/// host1 with four ports, box1 with two slots, box2 with three.
fn pool(manager: &Manager) -> [Fake; 3] {
    let proxies = [
        Fake::join(manager.control, host("host1", 4), ""),
        Fake::join(manager.control, boxed("box1", 2), "nvme"),
        Fake::join(manager.control, boxed("box2", 3), "nvme"),
    ];
    manager.wait_ready(&["host1", "box1", "box2"]);
    proxies
}

fn apply(manager: &Manager, name: &str, text: &str) -> String {
    let file = manager.path(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn slots_of(allocation: &Value) -> Vec<&str> {
    let bindings = allocation["bindings"].as_array().unwrap();
    bindings.iter().map(|binding| binding["slot"].as_str().unwrap()).collect()
}

#[test]
fn an_inventory_is_taken_whole_shown_and_kept() {
    let mut manager = Manager::start();
    assert_eq!(manager.get("/v1/inventory")["revision"], 0);
    let file = apply(&manager, "pool.toml", POOL);
    assert!(manager.text(&["inventory", "apply", &file]).contains("revision 1"));
    // The same again changes nothing; what `show` prints is the same inventory.
    assert!(manager.text(&["inventory", "apply", &file]).contains("revision 1"));
    let shown = manager.text(&["inventory", "show"]);
    let again = apply(&manager, "again.yaml", &shown);
    assert!(manager.text(&["inventory", "apply", &again]).contains("revision 1"), "{shown}");
    let inventory = manager.get("/v1/inventory");
    assert_eq!(inventory["inventory"]["boxes"]["box2"]["islands"][0]["rate"], 450_000_000_000_u64);

    let (status, problem) = manager.request(
        "PUT",
        "/v1/inventory",
        Some(&json!({ "boxes": { "b": { "islands": [{ "slots": [1, 2] }, { "slots": [3, 1] }] } },
            "hosts": { "h": { "rack": "nowhere" } } })),
    );
    assert_eq!((status, &problem["field"]), (400, &json!("boxes.b.islands[1].slots[1]")));
    assert_eq!(problem["reasons"][1], "hosts.h.rack: there is no rack nowhere in racks");
    for (document, field) in [
        (
            json!({ "boxes": { "b": { "islands": [{ "slots": [1, "x"] }] } } }),
            "boxes.b.islands[0].slots[1]",
        ),
        (json!({ "boxes": { "b": { "capacity": "much" } } }), "boxes.b.capacity"),
        (json!({ "boxes": { "b": { "kind": "round" } } }), "boxes.b.kind"),
        (json!({ "models": { "m": { "memory": -1 } } }), "models.m.memory"),
        (json!({ "boxes": { "b": { "colour": 1 } } }), "boxes.b.colour"),
        (json!(3), "body"),
    ] {
        let (status, problem) = manager.request("PUT", "/v1/inventory", Some(&document));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
    }
    let bad = apply(&manager, "bad.toml", "boxes = 3\n[boxes");
    assert_eq!(manager.failure(&["inventory", "apply", &bad]).0, 2);
    let unknown = apply(&manager, "pool.txt", POOL);
    assert_eq!(manager.failure(&["inventory", "apply", &unknown]).0, 2);

    manager.kill();
    manager.run();
    assert_eq!(manager.get("/v1/inventory"), inventory);
}

#[test]
fn what_the_file_says_is_shown_with_what_the_proxy_reports() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    let file = apply(&manager, "pool.toml", POOL);
    manager.text(&["inventory", "apply", &file]);
    let slot = manager.get("/v1/boxes/box2/slots/3");
    let facts = &slot["facts"];
    assert_eq!(
        (&facts["memory"], &facts["firmware"], &facts["rack"], &facts["site"]),
        (&json!(2_000_000_000_000_u64), &json!("1.2.3"), &json!("r2"), &json!("hel"))
    );
    assert_eq!(facts["attributes"], json!({ "lot": 7, "media": "tlc" }));
    assert_eq!(manager.get("/v1/boxes/box2/slots/1")["facts"]["island"], 0);
    assert!(manager.text(&["show", "box2/3"]).contains("firmware: 1.2.3"));

    let wrong = "boxes: {box2: {slots: {3: {model: h200, serial: '1'}}}}";
    let file = apply(&manager, "wrong.yaml", wrong);
    let said = manager.text(&["inventory", "apply", &file]);
    assert!(
        said.contains("box2/3: the inventory says model \"h200\", the proxy reports \"nvme\""),
        "{said}"
    );
    assert!(manager.has_event("inventory-contradicted", "box2/3"));
    assert_eq!(manager.get("/v1/boxes/box2/slots/3")["model"], "nvme", "the proxy is right");
    assert_eq!(manager.get("/v1/inventory")["warnings"].as_array().unwrap().len(), 2);
}

#[test]
fn what_the_file_says_of_what_is_not_there_is_told() {
    let manager = Manager::start();
    let [_host, box1, _box2] = pool(&manager);
    let wrong = "boxes: {box1: {slots: {99: {}}, islands: [{slots: [1, 77]}]}, host1: {}, box9: {}}\n\
                 hosts: {box2: {}, host9: {}}";
    let file = apply(&manager, "wrong.yaml", wrong);
    let said = manager.text(&["inventory", "apply", &file]);
    for warning in [
        "boxes.box1.slots: slot 99, and box1 has slots 1 to ",
        "boxes.box1.islands[0]: slot 77, and box1 has slots 1 to ",
        "boxes.host1: host1 is a host",
        "hosts.box2: box2 is a box",
        "not here yet, or forgotten: box9, host9",
    ] {
        assert!(said.contains(&format!("\nwarning: {warning}")), "{warning}: {said}");
    }
    assert!(manager.has_event("inventory-contradicted", "hosts.box2"));
    // One of two would vanish.
    for (name, twice) in [
        ("twice.json", r#"{"boxes": {"box1": {"kind": "nvlink"}, "box1": {}}}"#),
        ("twice.yaml", "boxes: {box1: {slots: {1: {}, 1: {}}}}"),
        ("twice.toml", "[boxes.box1]\n[boxes.box1]\n"),
    ] {
        let file = apply(&manager, name, twice);
        let (code, said) = manager.failure(&["inventory", "apply", &file]);
        let detail = said["detail"].as_str().unwrap();
        assert!(code == 2 && (detail.contains("twice") || detail.contains("duplicate")), "{said}");
    }
    let body = r#"{"boxes": {"box1": {"kind": "nvlink"}, "box1": {}}}"#;
    let (status, said) = manager.raw("PUT", "/v1/inventory", &[], Some(body));
    assert!(status == 400 && said.contains(r#""field":"boxes""#), "{said}");
    assert!(!manager.has_event("inventory-contradicted", "not here yet"), "it may come yet");
    // What comes later and is not as it was said.
    let _later = Fake::join(manager.control, host("box9", 4), "");
    manager.wait_ready(&["box9"]);
    assert!(manager.has_event("inventory-contradicted", "boxes.box9: box9 is a host"));
    drop(box1);
    let _smaller = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_event("inventory-contradicted", "slot 77, and box1 has slots 1 to 1");
}

#[test]
fn devices_are_chosen_by_what_they_are_and_where() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    let file = apply(&manager, "pool.toml", POOL);
    manager.text(&["inventory", "apply", &file]);
    let allocate = |more: &[&str]| manager.json(&[&["allocate", "--host", "host1"], more].concat());
    for (wish, slots) in [
        (&["--selector", "memory>=1T,lot=7"][..], &["box2/3"][..]),
        (&["--cel", "rack == 'r1' && attributes.media == 'tlc'"], &["box1/1"]),
        (&["--together", "island", "--count", "2"], &["box2/1", "box2/2"]),
        (&["--together", "spread", "--count", "2"], &["box1/1", "box2/3"]),
        (&["--near"], &["box2/3"]),
        (&["--exclude-box", "box1", "--exclude-slot", "box2/3"], &["box2/1"]),
        (&["--exclude-rack", "r1,r2"], &[]),
    ] {
        if slots.is_empty() {
            assert_eq!(manager.failure(&[&["allocate", "--host", "host1"], wish].concat()).0, 5);
            continue;
        }
        let lent = allocate(wish);
        let mut found = slots_of(&lent);
        found.sort_unstable();
        assert_eq!(found, slots, "{wish:?}");
        manager.text(&["release", lent["id"].as_str().unwrap()]);
    }
    let lent = allocate(&["--tenant", "lab7", "--reason", "training", "--selector", "lot"]);
    assert_eq!((&lent["tenant"], &lent["wishes"]["selector"]), (&json!("lab7"), &json!("lot")));
    let count = |path: &str| manager.get(path)["items"].as_array().unwrap().len();
    assert_eq!(count("/v1/allocations?tenant=lab7&reason=training"), 1);
    assert_eq!(count("/v1/allocations?tenant=lab8"), 0);
    let said = manager.json(&["allocate", "--host", "host1", "--paths", "3", "--dry-run"]);
    let told = "of the paths 3 that are wished box1 and the host have none";
    assert!(said["reasons"].to_string().contains(told), "{said}");
    let some = allocate(&["--paths", "0,3", "--dry-run"]).to_string();
    assert!(!some.contains("of the paths"), "{some}");
    // What is to be excluded and does not exist would exclude nothing.
    for (wish, field, why) in [
        (&["--exclude-box", "box1,bax2"][..], "exclude.boxes[1]", "no box bax2"),
        (&["--exclude-rack", "r9"], "exclude.racks[0]", "no rack r9"),
        (&["--exclude-slot", "box1/99"], "exclude.slots[0]", "no slot box1/99"),
        (&["--dry-run", "--exclude-slot", "bax1/1"], "exclude.slots[0]", "no slot bax1/1"),
    ] {
        let (code, said) = manager.failure(&[&["allocate", "--host", "host1"], wish].concat());
        assert_eq!((code, &said["field"]), (2, &json!(field)), "{said}");
        assert!(said["detail"].as_str().unwrap().contains(why), "{said}");
    }
}

#[test]
fn a_dry_run_lends_nothing_and_says_why() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    let file = apply(&manager, "pool.toml", POOL);
    manager.text(&["inventory", "apply", &file]);
    let dry = ["allocate", "--host", "host1", "--dry-run", "--count", "2"];
    let why = manager.json(&[&dry[..], &["--selector", "lot!=7"]].concat());
    assert_eq!(why["slots"][0]["slot"], "box1/1");
    assert_eq!(why["constraints"][0], json!({ "constraint": "lot!=7", "removes": 1, "left": 4 }));
    let text = manager.text(&dry);
    assert!(text.contains("box1/1") && text.contains("box's bandwidth"), "{text}");
    assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
    let none = manager.cli(&[&dry[..], &["--selector", "memory>3T"]].concat());
    assert_eq!(none.status.code(), Some(5));
    let said = String::from_utf8(none.stdout).unwrap();
    assert!(said.contains("memory>3T: alone leaves 0 of 5"), "{said}");
}

#[test]
fn every_field_is_checked() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    for (body, field, why) in [
        (json!({ "cel": "colour" }), "cel", "there is no \"colour\", at character 1"),
        (json!({ "cel": "model ==" }), "cel", "at line 1"),
        (json!({ "cel": "[1].all(x, true)" }), "cel", "not allowed"),
        (json!({ "cel": "" }), "cel", "1 to 512"),
        (json!({ "selector": "model>3" }), "selector", "model has no order"),
        (json!({ "selector": [{ "attribute": "a", "is": "=" }] }), "selector", "1 to 32 values"),
        (json!({ "together": "near" }), "together", "together"),
        (json!({ "near": 1 }), "near", "near"),
        (json!({ "exclude": { "boxes": ["?"] } }), "exclude.boxes[0]", "exclude.boxes[0]"),
        (json!({ "exclude": { "slots": vec!["box1/1"; 300] } }), "exclude.slots", "at most 256"),
        (json!({ "tenant": "" }), "tenant", "1 to 64"),
        (json!({ "count": 2, "together": "spread", "box": "box1" }), "together", "one box"),
    ] {
        let mut whole = json!({ "host": "host1" });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let (status, problem) = manager.request("POST", "/v1/allocations", Some(&whole));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
}
