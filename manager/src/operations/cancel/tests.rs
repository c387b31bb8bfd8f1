use super::super::request::{self, ReleaseMode, ReleaseTarget};
use super::super::take_back::{Lent, TakeBack};
use super::*;
use crate::records::Tables;
use crate::types::Phase;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00.000Z";

fn binding(number: u8, desired: &Value, operation: Option<&str>) -> BindingRecord {
    let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
    serde_json::from_value(json!({
        "id": format!("bind-{number}"), "allocation": "alloc-1", "slot": format!("box1/{number}"),
        "host": "host1", "functions": [{ "function": 0, "epoch": epoch }], "port": number,
        "phase": "configured", "desired": desired, "operation": operation, "since": NOW,
        "changed": NOW,
    }))
    .unwrap()
}

/// `alloc-1` with one device.
fn lent() -> Txn {
    let mut txn = Txn::new(Tables::default());
    let allocation = json!({ "id": "alloc-1", "host": "host1", "since": NOW });
    txn.put_allocation(serde_json::from_value(allocation).unwrap());
    txn.add_binding(binding(1, &json!("bound"), None));
    txn
}

fn first(txn: &Txn) -> (Desired, Option<OperationId>) {
    let binding = &txn.bindings()[&BindingId(1)];
    (binding.desired, binding.operation)
}

/// The borrower gives it back in time, and thinks better of it when that is over.
#[test]
fn a_release_that_is_called_back_does_not_keep_a_device_from_a_take_back() {
    let mut txn = lent();
    let how = TakeBack { grace_ms: 60_000, within_ms: 3_000, reason: "x".into() };
    let what = Lent::One(ReleaseTarget::Binding(BindingId(1)));
    let taken = take_back::take_back(&mut txn, &what, &how, None).unwrap().id;
    let orderly = ReleaseMode::Orderly { within_ms: 500 };
    let release = |txn: &mut Txn| {
        let target = ReleaseTarget::Binding(BindingId(1));
        request::release(txn, target, orderly, None).unwrap().id
    };
    let given = release(&mut txn);
    cancel(&mut txn, given).unwrap();
    assert_eq!(first(&txn), (Desired::Bound, None), "it still has its time");
    let given = release(&mut txn);
    take_back::due(&mut txn, taken);
    let cancelled = cancel(&mut txn, given).unwrap();
    assert_eq!(cancelled.state, OperationState::Cancelled);
    assert_eq!(cancelled.warnings, [format!("box1/1 is taken back by {taken}")]);
    assert_eq!(first(&txn), (Desired::Released { within_ms: 3_000 }, Some(taken)));
    take_back::force(&mut txn, taken);
    assert_eq!(first(&txn), (Desired::Forced, Some(taken)));
}

/// The borrower gives it back in time; only the take-back is called off.
#[test]
fn what_another_operation_releases_goes_though_a_take_back_is_called_back() {
    for is_due in [false, true] {
        let mut txn = lent();
        let how = TakeBack { grace_ms: 60_000, within_ms: 3_000, reason: "x".into() };
        let target = || ReleaseTarget::Binding(BindingId(1));
        let taken = take_back::take_back(&mut txn, &Lent::One(target()), &how, None).unwrap().id;
        let orderly = ReleaseMode::Orderly { within_ms: 500 };
        let given = request::release(&mut txn, target(), orderly, None).unwrap().id;
        if is_due {
            take_back::due(&mut txn, taken);
        }
        let cancelled = cancel(&mut txn, taken).unwrap();
        assert_eq!(cancelled.warnings, [format!("box1/1 is released by {given}")]);
        assert_eq!(first(&txn), (Desired::Released { within_ms: 500 }, Some(given)));
    }
}

/// The take-back is told of while it is being made again, and out of its host for that.
#[test]
fn a_device_that_was_being_made_again_does_not_get_away_from_a_take_back() {
    let mut txn = lent();
    let phase = |txn: &mut Txn, phase: Phase| {
        let binding = txn.bindings()[&BindingId(1)].clone();
        txn.update_binding(BindingRecord { phase, ..binding });
    };
    let target = || ReleaseTarget::Binding(BindingId(1));
    let how = TakeBack { grace_ms: 60_000, within_ms: 3_000, reason: "x".into() };
    phase(&mut txn, Phase::Withdrawn);
    let taken = take_back::take_back(&mut txn, &Lent::One(target()), &how, None).unwrap().id;
    let is_out = |txn: &Txn| {
        let step = &txn.operations()[&taken].steps[0];
        assert_eq!(step.name, StepName::UnbindPort);
        step.state
    };
    assert_eq!(is_out(&txn), StepState::Pending);
    for made in [Phase::Reserved, Phase::SlotBound, Phase::Bound, Phase::Configured] {
        phase(&mut txn, made);
    }
    let orderly = ReleaseMode::Orderly { within_ms: 500 };
    let given = request::release(&mut txn, target(), orderly, None).unwrap().id;
    take_back::due(&mut txn, taken);
    cancel(&mut txn, given).unwrap();
    assert_eq!(first(&txn), (Desired::Released { within_ms: 3_000 }, Some(taken)));
    assert_eq!(is_out(&txn), StepState::Pending);
}

/// It is out of its host when its time is over: nobody is asked to let go of it.
#[test]
fn a_device_that_is_being_made_again_when_it_is_taken_is_out_already() {
    let mut txn = lent();
    let binding = txn.bindings()[&BindingId(1)].clone();
    txn.update_binding(BindingRecord { phase: Phase::Withdrawn, ..binding });
    let how = TakeBack { grace_ms: 60_000, within_ms: 3_000, reason: "x".into() };
    let what = Lent::One(ReleaseTarget::Binding(BindingId(1)));
    let taken = take_back::take_back(&mut txn, &what, &how, None).unwrap().id;
    take_back::due(&mut txn, taken);
    let states: Vec<StepState> = txn.operations()[&taken].steps.iter().map(|s| s.state).collect();
    assert_eq!(states, [StepState::Done, StepState::Pending]);
    let problem = cancel(&mut txn, taken).unwrap_err();
    assert!(problem.detail.contains("host1 port 1 has let go"), "{problem}");
}

/// It goes by force then, though another operation has begun it.
#[test]
fn a_take_back_that_takes_by_force_cannot_be_called_back() {
    let mut txn = lent();
    let target = || ReleaseTarget::Binding(BindingId(1));
    let orderly = ReleaseMode::Orderly { within_ms: 500 };
    let how = TakeBack { grace_ms: 60_000, within_ms: 3_000, reason: "x".into() };
    let taken = take_back::take_back(&mut txn, &Lent::One(target()), &how, None).unwrap().id;
    let given = request::release(&mut txn, target(), orderly, None).unwrap().id;
    take_back::due(&mut txn, taken);
    take_back::force(&mut txn, taken);
    assert_eq!(first(&txn), (Desired::Forced, Some(given)));
    for id in [taken, given] {
        let problem = cancel(&mut txn, id).unwrap_err();
        assert_eq!(problem.code, ProblemCode::TooLate, "{id}");
        assert!(problem.detail.contains("box1/1 is taken by force"), "{problem}");
    }
}

/// The old device of a replacement waits for its host, which is away.
#[test]
fn a_replacement_that_has_handed_over_cannot_be_called_back() {
    let mut txn = lent();
    let released = json!({ "released": { "within_ms": 1000 } });
    txn.update_binding(binding(1, &released, Some("op-2")));
    txn.add_binding(binding(2, &json!("bound"), None));
    let step = |name: &str, binding: &str, state: &str| json!({ "name": name, "binding": binding, "target": "x", "state": state, "changed": NOW });
    let steps = [
        step("bind-slot", "bind-2", "done"),
        step("bind-port", "bind-2", "done"),
        step("enumerate", "bind-2", "done"),
        step("unbind-port", "bind-1", "pending"),
        step("unbind-slot", "bind-1", "pending"),
    ];
    let operation = json!({
        "id": "op-2", "state": "running", "steps": steps, "started": NOW, "warnings": [],
        "what": {
            "kind": "replace", "host": "host1", "slots": ["box1/1", "box1/2"], "within_ms": 1000,
            "reason": "x",
        },
    });
    txn.put_operation(serde_json::from_value(operation).unwrap());
    let problem = cancel(&mut txn, OperationId(2)).unwrap_err();
    assert_eq!(problem.code, ProblemCode::TooLate);
    assert!(problem.detail.contains("box1/2 is in the place of box1/1"), "{problem}");
    let within = Desired::Released { within_ms: 1_000 };
    assert_eq!(first(&txn), (within, Some(OperationId(2))));
}
