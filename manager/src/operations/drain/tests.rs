use super::todo::todo;
use super::*;
use crate::types::Phase;
use serde_json::json;

/// The wall clock may go back between the drain and the binding that is made again.
#[test]
fn a_binding_that_was_made_again_ends_its_step_whatever_the_clock_says() {
    let (early, late) = ("2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z");
    let step = json!({
        "name": "rebind", "binding": "bind-1", "target": "host1 port 0", "state": "pending",
        "asked": late, "changed": late,
    });
    let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
    let operation: OperationRecord = serde_json::from_value(json!({
        "id": "op-2", "state": "running", "steps": [step], "started": late,
        "warnings": [], "what": { "kind": "release", "slots": ["box1/1"], "force": false },
    }))
    .unwrap();
    for (phase, desired, ends) in [
        ("failed", json!("bound"), false),
        ("reserved", json!("bound"), false),
        ("bound", json!("bound"), true),
        ("bound", json!("forced"), false),
    ] {
        let binding: BindingRecord = serde_json::from_value(json!({
            "id": "bind-1", "allocation": "alloc-1", "slot": "box1/1", "host": "host1",
            "functions": [{ "function": 0, "epoch": epoch }], "port": 0, "phase": phase,
            "desired": desired, "since": early, "changed": early,
        }))
        .unwrap();
        let mut txn = Txn::new(Tables::default());
        txn.add_binding(binding);
        let over = Todo::Over(operation.id, BindingId(1), StepName::Rebind, Ok(None));
        let expected = if ends { vec![over] } else { Vec::new() };
        assert_eq!(todo(&txn, &Registry::default(), &operation), expected, "{phase} {desired}");
    }
}

/// The old device goes by a release that began before the new one was in place.
#[test]
fn a_replacement_ends_when_another_operation_has_released_the_old_device() {
    let now = "2026-01-01T00:00:00.000Z";
    let step = |name: &str, binding: &str, state: &str| {
        json!({
            "name": name, "binding": binding, "target": "x", "state": state, "changed": now,
        })
    };
    let operation = |enumerated: &str| -> OperationRecord {
        let steps = [
            step("bind-slot", "bind-2", "done"),
            step("bind-port", "bind-2", "done"),
            step("enumerate", "bind-2", enumerated),
            step("unbind-port", "bind-1", "pending"),
            step("unbind-slot", "bind-1", "pending"),
        ];
        serde_json::from_value(json!({
            "id": "op-2", "state": "running", "steps": steps, "started": now, "warnings": [],
            "what": {
                "kind": "replace", "host": "host1", "slots": ["box1/1", "box1/2"],
                "within_ms": 1000, "reason": "x",
            },
        }))
        .unwrap()
    };
    let old: BindingRecord = serde_json::from_value(json!({
        "id": "bind-1", "allocation": "alloc-1", "slot": "box1/1", "host": "host1",
        "functions": [{ "function": 0, "epoch": tlp_codec::ids::Epoch::new(0, 2).unwrap() }],
        "port": 0, "phase": "configured", "desired": "forced", "operation": "op-3",
        "since": now, "changed": now,
    }))
    .unwrap();
    let mut txn = Txn::new(Tables::default());
    let registry = Registry::default();
    txn.add_binding(old.clone());
    txn.put_operation(operation("pending"));
    assert_eq!(everything(&txn, &registry), [], "until it has handed over, it makes the new one");
    txn.put_operation(operation("done"));
    let id = operation("done").id;
    let states = |txn: &Txn| {
        let steps = txn.operations()[&id].steps[3..].iter();
        (txn.operations()[&id].state, steps.map(|step| step.state).collect::<Vec<_>>())
    };
    use StepState::{Done, Pending};
    assert_eq!(everything(&txn, &registry), [], "it is still being asked to let go");
    let out = BindingRecord { phase: Phase::Withdrawn, ..old.clone() };
    txn.update_binding(out);
    assert_eq!(everything(&txn, &registry), [Todo::Gone(id)]);
    take_back::gone(&mut txn, id);
    assert_eq!(states(&txn), (OperationState::Running, vec![Done, Pending]));
    assert_eq!(everything(&txn, &registry), [], "nothing is written while its box resets it");
    txn.remove_binding(old.id);
    assert_eq!(everything(&txn, &registry), [Todo::Gone(id)]);
    take_back::gone(&mut txn, id);
    assert_eq!(states(&txn), (OperationState::Succeeded, vec![Done, Done]));
    assert_eq!(everything(&txn, &registry), []);
}
