use super::super::request::{self, ReleaseMode, ReleaseTarget};
use super::*;
use crate::records::Txn;
use crate::types::{AllocationId, BindingId, BindingRecord};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00.000Z";

fn binding(number: u8) -> BindingRecord {
    let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
    serde_json::from_value(json!({
        "id": format!("bind-{number}"), "allocation": "alloc-1", "slot": format!("box1/{number}"),
        "host": "host1", "functions": [{ "function": 0, "epoch": epoch }], "port": number,
        "phase": "configured", "desired": "bound", "since": NOW, "changed": NOW,
    }))
    .unwrap()
}

/// `alloc-1` with two devices.
fn lent() -> Txn {
    let mut txn = Txn::new(Tables::default());
    let allocation = json!({ "id": "alloc-1", "host": "host1", "since": NOW });
    txn.put_allocation(serde_json::from_value(allocation).unwrap());
    txn.add_binding(binding(1));
    txn.add_binding(binding(2));
    txn
}

fn is_over(txn: &Txn, stages: &mut HashMap<OperationId, Stage>, id: OperationId) -> bool {
    over(&Settings::default(), stages, txn, &txn.operations()[&id]).is_some()
}

/// The host has not let go of it for a minute, and whoever waits loses patience.
#[tokio::test(start_paused = true)]
async fn a_release_that_goes_on_by_force_has_its_time_for_that() {
    let (mut txn, mut stages) = (lent(), HashMap::new());
    let bound = Settings::default().operation_bound;
    let release = |txn: &mut Txn, target, mode| request::release(txn, target, mode, None).unwrap();
    let all = ReleaseTarget::Allocation(AllocationId(1));
    let orderly = ReleaseMode::Orderly { within_ms: 600_000 };
    let id = release(&mut txn, all, orderly).id;
    assert!(!is_over(&txn, &mut stages, id));
    tokio::time::advance(2 * bound).await;
    let one = ReleaseTarget::Binding(BindingId(1));
    assert_eq!(release(&mut txn, one, ReleaseMode::Force).id, id);
    assert!(!is_over(&txn, &mut stages, id), "the other one is asked still");
    tokio::time::advance(2 * bound).await;
    assert_eq!(release(&mut txn, all, ReleaseMode::Force).id, id);
    assert!(!is_over(&txn, &mut stages, id));
    tokio::time::advance(bound).await;
    assert!(is_over(&txn, &mut stages, id));
}

/// Its old device has as long as the drain gives it that it waits for.
#[tokio::test(start_paused = true)]
async fn a_replacement_waits_as_long_as_another_operation_asks() {
    let (mut txn, mut stages) = (lent(), HashMap::new());
    let bound = Settings::default().operation_bound;
    let (desired, operation) = (Desired::Released { within_ms: 600_000 }, None);
    txn.update_binding(BindingRecord { desired, operation, ..binding(1) });
    let step = |name: &str, binding: &str, state: &str| -> Value {
        json!({ "name": name, "binding": binding, "target": "x", "state": state, "changed": NOW })
    };
    let replacing = json!({
        "id": "op-2", "state": "running", "started": NOW, "warnings": [],
        "steps": [step("bind-slot", "bind-2", "done"), step("unbind-port", "bind-1", "pending")],
        "what": {
            "kind": "replace", "host": "host1", "slots": ["box1/1", "box1/2"], "within_ms": 1000,
            "reason": "x",
        },
    });
    txn.put_operation(serde_json::from_value(replacing).unwrap());
    let id = OperationId(2);
    assert!(!is_over(&txn, &mut stages, id));
    tokio::time::advance(2 * bound).await;
    assert!(!is_over(&txn, &mut stages, id));
    tokio::time::advance(Duration::from_secs(600)).await;
    assert!(is_over(&txn, &mut stages, id));
}
