use super::*;
use crate::records::Tables;
use crate::types::{BindingId, BindingRecord, Desired, OperationId};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00.000Z";
const ID: OperationId = OperationId(2);

fn step(name: &str, binding: &str, state: &str) -> Value {
    json!({ "name": name, "binding": binding, "target": "x", "state": state, "changed": NOW })
}

/// An operation with these steps, and what it works on.
fn txn(what: &Value, steps: &[Value], bindings: &[(u8, Value)]) -> Txn {
    let mut txn = Txn::new(Tables::default());
    let operation = json!({
        "id": "op-2", "state": "running", "steps": steps, "started": NOW, "warnings": [],
        "what": what,
    });
    txn.put_operation(serde_json::from_value(operation).unwrap());
    for (number, desired) in bindings {
        let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
        let binding: BindingRecord = serde_json::from_value(json!({
            "id": format!("bind-{number}"), "allocation": "alloc-1",
            "slot": format!("box1/{number}"), "host": "host1", "port": number,
            "functions": [{ "function": 0, "epoch": epoch }], "phase": "configured",
            "desired": desired, "operation": "op-2", "since": NOW, "changed": NOW,
        }))
        .unwrap();
        txn.add_binding(binding);
    }
    txn
}

/// The operating system enables it right when its time is over.
#[test]
fn a_replacement_that_has_just_handed_over_is_not_undone() {
    let what = json!({
        "kind": "replace", "host": "host1", "slots": ["box1/1", "box1/2"], "within_ms": 1000,
        "reason": "x",
    });
    let steps = [
        step("bind-slot", "bind-2", "done"),
        step("bind-port", "bind-2", "done"),
        step("enumerate", "bind-2", "done"),
        step("unbind-port", "bind-1", "pending"),
        step("unbind-slot", "bind-1", "pending"),
    ];
    let released = json!({ "released": { "within_ms": 1000 } });
    let mut txn = txn(&what, &steps, &[(1, released)]);
    let mut seen = txn.operations()[&ID].clone();
    seen.steps[2].state = StepState::Pending;
    not_enumerated(&mut txn, &seen, Duration::from_secs(1));
    assert_eq!(txn.operations()[&ID].state, OperationState::Running);
    let old = &txn.bindings()[&BindingId(1)];
    assert_eq!(old.desired, Desired::Released { within_ms: 1_000 }, "it is not taken by force");
}

/// What is left by then may have a bound of its own.
#[test]
fn what_got_on_right_when_its_time_was_over_does_not_expire() {
    let lend = json!({
        "kind": "allocate", "host": "host1", "slots": ["box1/1"], "keep_unenumerated": false,
    });
    let lending = |plugged: &str| {
        let steps = [
            step("bind-slot", "bind-1", "done"),
            step("bind-port", "bind-1", plugged),
            step("enumerate", "bind-1", "pending"),
        ];
        txn(&lend, &steps, &[(1, json!("bound"))])
    };
    let release = json!({ "kind": "release", "slots": ["box1/1"], "force": false });
    let releasing = |freed: &str| {
        let steps = [
            step("unbind-port", "bind-1", "done"),
            step("unbind-slot", "bind-1", freed),
            step("erase", "bind-1", "pending"),
        ];
        txn(&release, &steps, &[])
    };
    use OperationState::{Failed, RollingBack, Running};
    for (seen, mut txn, expected) in [
        (lending("pending"), lending("pending"), RollingBack),
        (lending("pending"), lending("done"), Running),
        (releasing("pending"), releasing("pending"), Failed),
        (releasing("pending"), releasing("done"), Running),
    ] {
        expire(&mut txn, &Registry::default(), &seen.operations()[&ID]);
        assert_eq!(txn.operations()[&ID].state, expected);
    }
}
