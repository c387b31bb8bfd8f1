use super::view::{BoxView, HostView, PoolView, SlotView};
use super::*;
use crate::types::{AllocationId, Owner, SlotStatus, Timestamp};
use proptest::prelude::*;

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn slot(text: &str, status: SlotStatus, model: &str) -> SlotView {
    let used = matches!(status, SlotStatus::Used | SlotStatus::Releasing);
    SlotView {
        address: text.parse().unwrap(),
        status,
        model: model.to_owned(),
        functions: match status {
            SlotStatus::Empty => vec![],
            _ => vec![SlotFunction::ZERO],
        },
        owner: used.then(|| Owner {
            host: name("other"),
            allocation: AllocationId(9),
            since: Timestamp::try_from("2026-01-01T00:00:00.000Z".to_owned()).unwrap(),
        }),
    }
}

fn host(ports: u8, free: &[u8]) -> HostView {
    let free_ports = free.iter().map(|p| PortId::new(*p).unwrap()).collect();
    HostView { connected: true, ports, free_ports }
}

/// host1 with ports 1 and 3 free of 4; box1: nvme free, nvme used, empty; box2: three gpus free;
/// box3 (away): an nvme.
fn pool() -> PoolView {
    use SlotStatus::{Empty, Free, Used};
    let boxes = [
        (
            "box1",
            true,
            vec![("box1/1", Free, "nvme"), ("box1/2", Used, "nvme"), ("box1/3", Empty, "")],
        ),
        (
            "box2",
            true,
            vec![("box2/1", Free, "gpu"), ("box2/2", Free, "gpu"), ("box2/3", Free, "gpu")],
        ),
        ("box3", false, vec![("box3/1", Free, "nvme")]),
    ];
    let mut pool = PoolView::default();
    pool.hosts.insert(name("host1"), host(4, &[1, 3]));
    pool.hosts.insert(name("gone"), HostView { connected: false, ..host(1, &[0]) });
    for (box_name, connected, slots) in boxes {
        let slots: Vec<_> = slots.into_iter().map(|(a, s, m)| slot(a, s, m)).collect();
        let size = slots.len() as u8;
        pool.boxes.insert(name(box_name), BoxView { connected, connecting: false, size, slots });
    }
    pool
}

fn ask(count: u32) -> PlanRequest {
    PlanRequest { host: name("host1"), count, model: None, box_name: None, slot: None }
}

fn at(text: &str) -> PlanRequest {
    let address: SlotAddress = text.parse().unwrap();
    let box_name = Some(address.box_name().clone());
    PlanRequest { box_name, slot: Some(address.slot()), ..ask(1) }
}

fn slots(plan: &Plan) -> Vec<String> {
    plan.iter().map(|p| p.slot.to_string()).collect()
}

#[test]
fn one_slot_comes_from_the_box_that_has_the_fewest_left() {
    let plan = plan(&ask(1), &pool()).unwrap();
    assert_eq!(slots(&plan), ["box1/1"]);
    assert_eq!(plan[0].port, PortId::new(1).unwrap());
    assert_eq!(plan[0].functions, [SlotFunction::ZERO]);
}

#[test]
fn several_come_from_one_box_if_it_has_them() {
    let plan = plan(&ask(2), &pool()).unwrap();
    assert_eq!(slots(&plan), ["box2/1", "box2/2"]);
    let ports: Vec<u8> = plan.iter().map(|p| p.port.get()).collect();
    assert_eq!(ports, [1, 3]);
}

#[test]
fn else_from_as_few_boxes_as_can_be() {
    let mut pool = pool();
    pool.hosts.insert(name("host1"), host(4, &[0, 1, 2, 3]));
    let plan = plan(&ask(4), &pool).unwrap();
    assert_eq!(slots(&plan), ["box2/1", "box2/2", "box2/3", "box1/1"]);
}

#[test]
fn a_model_is_obeyed_in_any_case_of_letters() {
    let request = PlanRequest { model: Some("GPU".into()), ..ask(1) };
    assert_eq!(slots(&plan(&request, &pool()).unwrap()), ["box2/1"]);
}

#[test]
fn nothing_fits_names_every_constraint() {
    let request = PlanRequest { model: Some("nvme".into()), ..ask(3) };
    let problem = plan(&request, &pool()).unwrap_err();
    assert_eq!(problem.code, ProblemCode::NothingFits);
    assert_eq!(
        problem.reasons,
        [
            "host host1 has 2 of 4 ports free, 3 needed",
            "1 free of 3 with model \"nvme\", 3 needed",
            "box1/2: used by host other (alloc-9) since 2026-01-01T00:00:00.000Z",
            "box3/1: box box3 is not connected",
        ]
    );
}

#[test]
fn an_unknown_model_gets_the_list_of_models() {
    let request = PlanRequest { model: Some("tpu".into()), ..ask(1) };
    let problem = plan(&request, &pool()).unwrap_err();
    assert_eq!(
        problem.reasons,
        ["no device with model \"tpu\"", "models there are: \"gpu\" (3), \"nvme\" (3)"]
    );
}

#[test]
fn named_things_get_typed_problems() {
    let mut pool = pool();
    let code = |request: &PlanRequest, pool: &PoolView| plan(request, pool).unwrap_err().code;
    let to = |host: &str| PlanRequest { host: name(host), ..ask(1) };
    assert_eq!(code(&to("nobody"), &pool), ProblemCode::NoSuchHost);
    assert_eq!(code(&to("box1"), &pool), ProblemCode::WrongRole);
    assert_eq!(code(&to("gone"), &pool), ProblemCode::NotConnected);
    assert_eq!(code(&at("nobox/1"), &pool), ProblemCode::NoSuchBox);
    assert_eq!(code(&at("host1/1"), &pool), ProblemCode::WrongRole);
    assert_eq!(code(&at("box3/1"), &pool), ProblemCode::NotConnected);
    assert_eq!(code(&at("box1/9"), &pool), ProblemCode::NoSuchSlot);
    assert_eq!(code(&at("box1/3"), &pool), ProblemCode::SlotEmpty);
    let in_use = plan(&at("box1/2"), &pool).unwrap_err();
    assert_eq!(in_use.code, ProblemCode::SlotInUse);
    assert_eq!(in_use.owner.unwrap().host, name("other"));
    for (status, expected) in [
        (SlotStatus::Quarantined, ProblemCode::SlotQuarantined),
        (SlotStatus::Probing, ProblemCode::SlotBusy),
        (SlotStatus::Stray, ProblemCode::SlotBusy),
        (SlotStatus::Releasing, ProblemCode::SlotInUse),
    ] {
        pool.boxes.get_mut(&name("box1")).unwrap().slots[0] = slot("box1/1", status, "nvme");
        assert_eq!(code(&at("box1/1"), &pool), expected);
    }
    let wrong = PlanRequest { model: Some("nvme".into()), ..at("box2/1") };
    assert_eq!(code(&wrong, &pool), ProblemCode::NothingFits);
}

#[test]
fn what_may_pass_by_itself_says_so() {
    let mut pool = pool();
    let transient =
        |request: &PlanRequest, pool: &PoolView| plan(request, pool).unwrap_err().transient;
    let to = |host: &str| PlanRequest { host: name(host), ..ask(1) };
    assert!(transient(&to("gone"), &pool));
    assert!(transient(&at("box3/1"), &pool));
    for lasting in [to("nobody"), to("box1"), at("nobox/1"), at("box1/2"), at("box1/3"), ask(9)] {
        assert!(!transient(&lasting, &pool), "{lasting:?}");
    }
    for (status, passes) in [
        (SlotStatus::Probing, true),
        (SlotStatus::Releasing, true),
        (SlotStatus::Stray, true),
        (SlotStatus::Quarantined, false),
    ] {
        pool.boxes.get_mut(&name("box1")).unwrap().slots[0] = slot("box1/1", status, "nvme");
        assert_eq!(transient(&at("box1/1"), &pool), passes, "{status}");
        let of_model = |model: &str| PlanRequest { model: Some(model.into()), ..ask(2) };
        assert_eq!(transient(&of_model("nvme"), &pool), passes, "{status}");
        assert!(!transient(&of_model("tpu"), &pool));
    }
    pool.boxes.get_mut(&name("box3")).unwrap().connecting = true;
    assert!(transient(&PlanRequest { model: Some("tpu".into()), ..ask(1) }, &pool));
}

#[test]
fn requests_are_checked() {
    let field = |request: PlanRequest| plan(&request, &pool()).unwrap_err().field.unwrap();
    assert_eq!(field(ask(0)), "count");
    assert_eq!(field(ask(MAX_COUNT + 1)), "count");
    assert_eq!(field(PlanRequest { slot: SlotId::new(1).ok(), ..ask(1) }), "slot");
    assert_eq!(field(PlanRequest { count: 2, ..at("box1/1") }), "count");
}

fn any_status() -> impl Strategy<Value = SlotStatus> {
    use SlotStatus::*;
    prop::sample::select(vec![
        Free,
        Free,
        Free,
        Used,
        Releasing,
        Probing,
        Stray,
        Quarantined,
        Empty,
    ])
}

proptest! {
    /// Whatever the pool: all or nothing, every slot free and once, every port free and once.
    #[test]
    fn plans_are_sound(
        boxes in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((any_status(), 0..3u8), 1..6)), 0..5),
        ports in prop::collection::btree_set(0..32u8, 0..12),
        count in 1..8u32,
        model in prop::option::of(0..3u8),
    ) {
        let mut pool = PoolView::default();
        pool.hosts.insert(name("host1"), host(32, &ports.iter().copied().collect::<Vec<_>>()));
        let mut fitting = 0;
        for (index, (connected, statuses)) in boxes.iter().enumerate() {
            let slots: Vec<_> = statuses.iter().enumerate().map(|(n, (status, m))| {
                if *connected && *status == SlotStatus::Free && model.is_none_or(|w| w == *m) {
                    fitting += 1;
                }
                slot(&format!("box{index}/{}", n + 1), *status, &format!("m{m}"))
            }).collect();
            let size = slots.len() as u8;
            pool.boxes.insert(name(&format!("box{index}")), BoxView { connected: *connected, connecting: false, size, slots });
        }
        let request = PlanRequest { model: model.map(|m| format!("m{m}")), ..ask(count) };
        match plan(&request, &pool) {
            Ok(plan) => {
                prop_assert_eq!(plan.len(), count as usize);
                let mut seen = std::collections::BTreeSet::new();
                let mut used_ports = std::collections::BTreeSet::new();
                for place in &plan {
                    let found = &pool.boxes[place.slot.box_name()];
                    prop_assert!(found.connected);
                    let view = found.slots.iter().find(|s| s.address == place.slot).unwrap();
                    prop_assert_eq!(view.status, SlotStatus::Free);
                    prop_assert!(view.has_model(request.model.as_deref()));
                    prop_assert!(seen.insert(place.slot.clone()));
                    prop_assert!(ports.contains(&place.port.get()) && used_ports.insert(place.port));
                }
            }
            Err(problem) => {
                prop_assert_eq!(problem.code, ProblemCode::NothingFits);
                prop_assert!(!problem.reasons.is_empty());
                prop_assert!(fitting < count as usize || ports.len() < count as usize);
            }
        }
    }
}
