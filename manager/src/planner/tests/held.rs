use super::rules::{of_model, pool, refused};
use super::*;
use crate::types::{
    HealthRecord, HealthState, OperationId, OperationKind, OperationRecord, OperationState, Subject,
};

fn hold(place: &str, kind: HoldKind, reason: &str) -> HoldRecord {
    HoldRecord {
        place: place.parse().unwrap(),
        kind,
        reason: reason.into(),
        since: time(),
        operation: None,
    }
}

#[test]
fn what_is_held_back_says_since_when_and_why() {
    let mut pool = pool();
    pool.txn.put_hold(hold("box2", HoldKind::Maintenance, "fan"));
    pool.txn.put_hold(hold("box2/2", HoldKind::Unhealthy, "errors"));
    let problem = pool.plan(&at("box2/1")).unwrap_err();
    assert_eq!(problem.code, ProblemCode::Held);
    let with =
        "slot box2/1 is held back with box2 since 2026-01-01T00:00:00.000Z (maintenance): fan";
    let off = "`dxpu-manager maintain box2 --off` lets box2 be used again";
    assert_eq!(problem.detail, format!("{with}; {off}"));
    let own = "slot box2/2 is held back since 2026-01-01T00:00:00.000Z (unhealthy): errors";
    let healthy = "box2/2 is used again when it is healthy; `dxpu-manager maintain box2/2 --off` \
                   lets it be used at once";
    let detail = pool.plan(&at("box2/2")).unwrap_err().detail;
    assert_eq!(detail, format!("{own}; {healthy}"));
    // What ends it is said once for all slots of a box.
    let reasons = refused(&pool, &of_model(1, "card"));
    assert_eq!((reasons.len(), &reasons[1..3]), (6, &[with.into(), own.into()][..]));
    assert_eq!(reasons[4..], [off, healthy]);
}

#[test]
fn what_is_held_back_says_what_ends_that() {
    let mut pool = pool();
    let detail = |pool: &Pool, request: &PlanRequest| pool.plan(request).unwrap_err().detail;
    let hold = |kind, operation| HoldRecord { operation, ..hold("host1", kind, "r") };
    for kind in [HoldKind::Maintenance, HoldKind::Drained, HoldKind::Replaced] {
        pool.txn.put_hold(hold(kind, None));
        let off = "): r; `dxpu-manager maintain host1 --off` lets host1 be used again";
        assert!(detail(&pool, &ask(1)).ends_with(off), "{}", detail(&pool, &ask(1)));
    }
    // What is being drained cannot be put back before.
    let mut drain = OperationRecord {
        id: OperationId(7),
        what: OperationKind::Drain {
            place: "host1".parse().unwrap(),
            slots: Vec::new(),
            replace: false,
            within_ms: 1,
            reason: "r".into(),
            former: None,
        },
        state: OperationState::Running,
        allocation: None,
        steps: Vec::new(),
        warnings: Vec::new(),
        error: None,
        client_key: None,
        started: time(),
        ended: None,
    };
    pool.txn.put_operation(drain.clone());
    pool.txn.put_hold(hold(HoldKind::Drained, Some(drain.id)));
    let first =
        "; op-7 empties it, and then `dxpu-manager maintain host1 --off` lets it be used again";
    assert!(detail(&pool, &ask(1)).ends_with(first), "{}", detail(&pool, &ask(1)));
    drain.state = OperationState::Succeeded;
    pool.txn.put_operation(drain);
    assert!(
        detail(&pool, &ask(1))
            .ends_with("; `dxpu-manager maintain host1 --off` lets host1 be used again")
    );
    // What recovers needs nobody.
    for (state, says) in [
        (HealthState::Failed, "; host1 is used again when"),
        (HealthState::Recovering, "; host1 is recovering, and is used again when"),
    ] {
        let reason = "lost".to_owned();
        let subject = Subject::Node { node: name("host1") };
        let device = None;
        pool.txn.put_health(HealthRecord {
            subject,
            device,
            state,
            reason,
            since: time(),
            holds: true,
        });
        pool.txn.put_hold(hold(HoldKind::Unhealthy, None));
        assert!(detail(&pool, &ask(1)).contains(says), "{}", detail(&pool, &ask(1)));
    }
}
