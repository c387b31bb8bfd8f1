use super::*;
use serde_json::json;

fn faults(document: serde_json::Value) -> Vec<String> {
    let inventory: Inventory = serde_json::from_value(document).unwrap();
    inventory.faults().iter().map(Fault::to_string).collect()
}

#[test]
fn a_whole_inventory_is_in_order() {
    let document = json!({
        "sites": { "hel": { "description": "first floor" } },
        "racks": { "r3": { "site": "hel" }, "r4": {} },
        "fabrics": { "a": { "paths": [0] }, "b": { "paths": [1, 2] } },
        "models": { "h200": { "memory": "141G", "demand": "1G", "attributes": { "arch": "hopper" } } },
        "boxes": { "box1": {
            "rack": "r3", "kind": "nvlink", "fabrics": ["a", "b"], "capacity": "12G",
            "islands": [{ "slots": [1, 2], "rate": "450G" }, { "slots": [3, 4] }],
            "slots": { "1": { "serial": "00ff", "firmware": "96.00", "attributes": { "lot": 7 } } },
        } },
        "hosts": { "host1": { "rack": "r3", "fabrics": ["a"], "capacity": 5_000_000_000_u64 } },
    });
    assert_eq!(faults(document.clone()), [""; 0]);
    let inventory: Inventory = serde_json::from_value(document).unwrap();
    let text = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
}

#[test]
fn every_fault_names_its_field() {
    for (document, fault) in [
        (
            json!({ "sites": { "s": { "description": "\u{1b}[2J" } } }),
            "sites.s.description: is a text of 1",
        ),
        (json!({ "racks": { "r": { "site": "x" } } }), "racks.r.site: there is no site x"),
        (json!({ "fabrics": { "a": { "paths": [] } } }), "fabrics.a.paths: names no path"),
        (json!({ "fabrics": { "a": { "paths": [0, 8] } } }), "fabrics.a.paths[1]: 8: paths"),
        (json!({ "models": { "": {} } }), "models.: is a text of 1"),
        (json!({ "models": { "A": {}, "a": {} } }), "models.a: stands there twice"),
        (json!({ "models": { "a": { "memory": 0 } } }), "models.a.memory: is 0"),
        (
            json!({ "models": { "a": { "attributes": { "memory": 1 } } } }),
            "models.a.attributes.memory: is an attribute that every device has",
        ),
        (
            json!({ "models": { "a": { "attributes": { "Big": 1 } } } }),
            "models.a.attributes.Big: an attribute's name",
        ),
        (json!({ "boxes": { "b": { "rack": "r" } } }), "boxes.b.rack: there is no rack r"),
        (json!({ "boxes": { "b": { "fabrics": ["f"] } } }), "boxes.b.fabrics[0]: there is no"),
        (json!({ "boxes": { "b": { "capacity": "0" } } }), "boxes.b.capacity: is 0"),
        (
            json!({ "boxes": { "b": { "islands": [{ "slots": [1] }] } } }),
            "boxes.b.islands[0].slots: an island has at least two",
        ),
        (
            json!({ "boxes": { "b": { "islands": [{ "slots": [1, 2] }, { "slots": [3, 2] }] } } }),
            "boxes.b.islands[1].slots[1]: slot 2 is in island 0 already",
        ),
        (
            json!({ "boxes": { "b": { "islands": [{ "slots": [0, 2] }] } } }),
            "boxes.b.islands[0].slots[0]: slots are numbered from 1",
        ),
        (
            json!({ "boxes": { "b": { "slots": { "1": { "serial": "xyz" } } } } }),
            "boxes.b.slots.1.serial: a serial number",
        ),
        (
            json!({ "boxes": { "b": { "slots": { "1": { "model": "two\nlines" } } } } }),
            "boxes.b.slots.1.model: is a text",
        ),
        (json!({ "hosts": { "h": { "rack": "r" } } }), "hosts.h.rack: there is no rack r"),
        (
            json!({ "boxes": { "x": {} }, "hosts": { "x": {} } }),
            "hosts.x: x is among the boxes, too",
        ),
    ] {
        let found = faults(document.clone());
        assert_eq!(found.len(), 1, "{document}: {found:?}");
        assert!(found[0].starts_with(fault), "{found:?}");
    }
}

#[test]
fn all_faults_are_named_at_once() {
    let document = json!({
        "racks": { "r": { "site": "x" } },
        "boxes": { "b": { "rack": "none", "islands": [{ "slots": [1, 1] }] } },
    });
    assert_eq!(faults(document).len(), 3);
}
