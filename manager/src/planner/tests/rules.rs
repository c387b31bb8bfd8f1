use super::*;
use SlotStatus::{Empty, Free, Probing, Quarantined, Releasing, Stray, Used};
use serde_json::json;

/// host1 with ports 1 and 3 free of 4; box1: nvme free, nvme used, empty; box2: three cards free;
/// box3 (away): an nvme.
pub(super) fn pool() -> Pool {
    let mut pool = Pool::new();
    pool.host("host1", 4, &[0, 2]);
    pool.host("gone", 1, &[]);
    pool.away("gone");
    pool.add_box("box1", &[(Free, "nvme"), (Used, "nvme"), (Empty, "")]);
    pool.add_box("box2", &[(Free, "card"), (Free, "card"), (Free, "card")]);
    pool.add_box("box3", &[(Free, "nvme")]);
    pool.away("box3");
    pool
}

pub(super) fn of_model(count: u32, model: &str) -> PlanRequest {
    wish(count, |wishes| wishes.model = Some(model.into()))
}

fn selected(count: u32, selector: &str) -> PlanRequest {
    wish(count, |wishes| wishes.selector = selector.parse().unwrap())
}

fn by_cel(count: u32, cel: &str) -> PlanRequest {
    wish(count, |wishes| wishes.cel = Some(cel.into()))
}

fn chosen(pool: &Pool, request: &PlanRequest) -> Vec<String> {
    slots(&pool.plan(request).unwrap_or_else(|problem| panic!("{problem:?}")))
}

pub(super) fn refused(pool: &Pool, request: &PlanRequest) -> Vec<String> {
    let problem = pool.plan(request).unwrap_err();
    assert_eq!(problem.code, ProblemCode::NothingFits, "{problem}");
    problem.reasons
}

#[test]
fn one_slot_comes_from_the_box_that_has_the_fewest_left() {
    let plan = pool().plan(&ask(1)).unwrap();
    assert_eq!(slots(&plan), ["box1/1"]);
    assert_eq!(plan[0].port, PortId::new(1).unwrap());
    assert_eq!(plan[0].functions, [SlotFunction::ZERO]);
}

#[test]
fn several_come_from_one_box_if_it_has_them() {
    let plan = pool().plan(&ask(2)).unwrap();
    assert_eq!(slots(&plan), ["box2/1", "box2/2"]);
    let ports: Vec<u8> = plan.iter().map(|p| p.port.get()).collect();
    assert_eq!(ports, [1, 3]);
}

#[test]
fn else_from_as_few_boxes_as_can_be() {
    let mut pool = pool();
    pool.host("host2", 4, &[]);
    let request = PlanRequest { host: name("host2"), ..ask(4) };
    assert_eq!(chosen(&pool, &request), ["box2/1", "box2/2", "box2/3", "box1/1"]);
}

#[test]
fn a_model_is_obeyed_in_any_case_of_letters() {
    assert_eq!(chosen(&pool(), &of_model(1, "CARD")), ["box2/1"]);
}

#[test]
fn nothing_fits_names_every_constraint() {
    assert_eq!(
        refused(&pool(), &of_model(3, "nvme")),
        [
            "host host1 has 2 of 4 ports free, 3 needed",
            "1 of 3 with model \"nvme\" can be lent now, 3 needed",
            "box1/2: used by host other (alloc-9) since 2026-01-01T00:00:00.000Z",
            "box3/1: box box3 is not connected",
        ]
    );
}

#[test]
fn an_unknown_model_gets_the_list_of_models() {
    assert_eq!(
        refused(&pool(), &of_model(1, "tpu")),
        ["no device with model \"tpu\"", "models there are: \"card\" (3), \"nvme\" (3)"]
    );
}

#[test]
fn named_things_get_typed_problems() {
    let pool = pool();
    let code = |request: &PlanRequest| pool.plan(request).unwrap_err().code;
    let to = |host: &str| PlanRequest { host: name(host), ..ask(1) };
    assert_eq!(code(&to("nobody")), ProblemCode::NoSuchHost);
    assert_eq!(code(&to("box1")), ProblemCode::WrongRole);
    assert_eq!(code(&to("gone")), ProblemCode::NotConnected);
    assert_eq!(code(&at("nobox/1")), ProblemCode::NoSuchBox);
    assert_eq!(code(&at("host1/1")), ProblemCode::WrongRole);
    assert_eq!(code(&at("box3/1")), ProblemCode::NotConnected);
    assert_eq!(code(&at("box1/9")), ProblemCode::NoSuchSlot);
    assert_eq!(code(&at("box1/3")), ProblemCode::SlotEmpty);
    let in_use = pool.plan(&at("box1/2")).unwrap_err();
    assert_eq!(in_use.code, ProblemCode::SlotInUse);
    assert_eq!(in_use.owner.unwrap().host, name("other"));
    let mut wrong = at("box2/1");
    wrong.wishes.model = Some("nvme".into());
    assert_eq!(code(&wrong), ProblemCode::NothingFits);
    for (status, expected) in [
        (Quarantined, ProblemCode::SlotQuarantined),
        (Probing, ProblemCode::SlotBusy),
        (Stray, ProblemCode::SlotBusy),
        (Releasing, ProblemCode::SlotInUse),
    ] {
        let mut pool = Pool::new();
        pool.host("host1", 1, &[]);
        pool.add_box("box1", &[(status, "nvme")]);
        assert_eq!(pool.plan(&at("box1/1")).unwrap_err().code, expected);
    }
}

#[test]
fn what_is_not_free_says_since_when() {
    let mut pool = Pool::new();
    pool.host("host1", 1, &[]);
    pool.add_box("box1", &[(Probing, "nvme")]);
    let detail = |pool: &Pool| pool.plan(&at("box1/1")).unwrap_err().detail;
    let says = "slot box1/1 has a device that is not ready yet; try again in a moment";
    assert_eq!(detail(&pool), format!("{says} (since 2026-01-01T00:00:00.000Z)"));
    let reasons = pool.plan(&ask(1)).unwrap_err().reasons;
    assert!(reasons.contains(&detail(&pool)), "{reasons:?}");
    let slot = "box1/1".parse().unwrap();
    let function = FunctionAddress { slot, function: SlotFunction::ZERO };
    // It is so still.
    pool.txn.device_became(&function, DeviceState::Probing);
    assert_eq!(detail(&pool), format!("{says} (since 2026-01-01T00:00:00.000Z)"));
    pool.txn.device_became(&function, DeviceState::Quarantined);
    let now = pool.txn.now();
    assert!(detail(&pool).starts_with(&format!("slot box1/1 is quarantined (since {now}): its")));
}

#[test]
fn what_may_pass_by_itself_says_so() {
    let mut pool = pool();
    let to = |host: &str| PlanRequest { host: name(host), ..ask(1) };
    let transient = |pool: &Pool, request: &PlanRequest| pool.plan(request).unwrap_err().transient;
    assert!(transient(&pool, &to("gone")));
    assert!(transient(&pool, &at("box3/1")));
    for lasting in [to("nobody"), to("box1"), at("nobox/1"), at("box1/2"), at("box1/3"), ask(9)] {
        assert!(!transient(&pool, &lasting), "{lasting:?}");
    }
    for (status, passes) in
        [(Probing, true), (Releasing, true), (Stray, true), (Quarantined, false)]
    {
        let mut pool = Pool::new();
        pool.host("host1", 4, &[]);
        pool.add_box("box1", &[(status, "nvme")]);
        assert_eq!(transient(&pool, &at("box1/1")), passes, "{status}");
        assert_eq!(transient(&pool, &of_model(2, "nvme")), passes, "{status}");
        assert!(!transient(&pool, &of_model(2, "tpu")));
    }
    pool.connecting.insert(name("box3"));
    assert!(transient(&pool, &of_model(1, "tpu")));
}

#[test]
fn requests_are_checked() {
    let field = |request: PlanRequest| pool().plan(&request).unwrap_err().field.unwrap();
    assert_eq!(field(ask(0)), "count");
    assert_eq!(field(ask(MAX_COUNT + 1)), "count");
    assert_eq!(field(PlanRequest { slot: SlotId::new(1).ok(), ..ask(1) }), "slot");
    assert_eq!(field(PlanRequest { count: 2, ..at("box1/1") }), "count");
    let mut spread = at("box1/1");
    spread.wishes.together = Together::Spread;
    assert_eq!(field(PlanRequest { count: 2, slot: None, ..spread }), "together");
    assert_eq!(field(by_cel(1, "model ==")), "cel");
}

/// Two plain boxes and two with islands of four and two, of GPUs that need nothing.
fn joined() -> Pool {
    let mut pool = Pool::new();
    pool.host("host1", 16, &[]);
    pool.inventory(json!({
        "sites": { "s1": {}, "s2": {} },
        "racks": { "r1": { "site": "s1" }, "r2": { "site": "s1" }, "r3": { "site": "s2" } },
        "fabrics": { "a": { "paths": [0] }, "b": { "paths": [1] } },
        "models": {
            "gpu": { "demand": 1, "memory": "80G", "attributes": { "arch": "hopper" } },
            "gpu-big": { "demand": 1, "memory": "141G", "attributes": { "arch": "hopper", "lot": 7 } },
            "gpu-fast": { "demand": "4G" },
        },
        "boxes": {
            "plain1": { "rack": "r1", "fabrics": ["a"] },
            "plain2": { "rack": "r2" },
            "nv1": { "rack": "r3", "kind": "nvlink", "fabrics": ["b"],
                "islands": [{ "slots": [1, 2, 3, 4] }, { "slots": [5, 6] }] },
            "nv2": { "rack": "r3", "kind": "nvlink",
                "islands": [{ "slots": [1, 2, 3, 4] }, { "slots": [5, 6] }] },
        },
        "hosts": { "host1": { "rack": "r2", "capacity": "100G" } },
    }));
    pool.add_box("plain1", &[(Free, "gpu"); 3]);
    pool.add_box("plain2", &[(Free, "gpu-big"); 2]);
    pool.add_box("nv1", &[(Free, "gpu"); 6]);
    pool.add_box("nv2", &[(Free, "gpu"); 6]);
    pool
}

#[test]
fn single_ones_come_from_plain_boxes_as_long_as_there_are() {
    let mut pool = joined();
    assert_eq!(chosen(&pool, &of_model(1, "gpu")), ["plain1/1"]);
    for slot in 1..=3 {
        pool.slot(&format!("plain1/{slot}"), Used, "gpu");
    }
    // Of two islands that would be broken, no matter which: the first box's larger one.
    assert_eq!(chosen(&pool, &of_model(1, "gpu")).len(), 1);
    pool.slot("nv2/1", Used, "gpu");
    assert_eq!(chosen(&pool, &of_model(1, "gpu")), ["nv2/2"], "the island that is broken already");
    assert_eq!(chosen(&pool, &of_model(4, "gpu")), ["nv2/2", "nv2/3", "nv2/4", "nv2/5"]);
}

#[test]
fn an_island_is_the_one_that_is_left_with_the_fewest() {
    let mut pool = joined();
    let island = |count| {
        wish(count, |wishes| {
            wishes.together = Together::Island;
            wishes.model = Some("gpu".into());
        })
    };
    assert_eq!(chosen(&pool, &island(2)), ["nv1/5", "nv1/6"]);
    assert_eq!(chosen(&pool, &island(3)), ["nv1/1", "nv1/2", "nv1/3"]);
    pool.slot("nv2/4", Used, "gpu");
    assert_eq!(chosen(&pool, &island(3)), ["nv2/1", "nv2/2", "nv2/3"]);
    assert_eq!(
        refused(&pool, &island(5)),
        ["no island has 5 of them; the nearest, island 0 of nv1, has 4"]
    );
}

/// A slot that is named is no reason to pass over what is wished of its island.
#[test]
fn a_named_slot_outside_of_islands_is_refused_to_who_wants_one() {
    let pool = joined();
    let at_rate = |slot: &str, together, island_rate| {
        let mut request = at(slot);
        (request.wishes.together, request.wishes.island_rate) = (together, island_rate);
        request
    };
    let says = |slot, rate| {
        let problem = pool.plan(&at_rate(slot, Together::Island, rate)).unwrap_err();
        assert_eq!(problem.code, ProblemCode::NothingFits);
        assert!(problem.reasons.len() == 1 && problem.reasons[0] == problem.detail);
        problem.detail
    };
    let none = "slot plain1/1 is in no island, so what is lent there is together with nothing; leave \
                `together` out, or name no slot";
    assert_eq!(says("plain1/1", None), none);
    let slow = "slot nv1/1 is in an island of which no inventory says how fast it is; wish for no rate, \
                or name no slot";
    assert_eq!(says("nv1/1", Some(1)), slow);
    // One device is in one box and in one island, and is spread.
    for together in Together::ALL {
        assert_eq!(chosen(&pool, &at_rate("nv1/1", together, None)), ["nv1/1"]);
        if together != Together::Island {
            assert_eq!(chosen(&pool, &at_rate("plain1/1", together, None)), ["plain1/1"]);
        }
    }
}

/// The model is not blamed for an island that there is not, or that is too slow.
#[test]
fn a_missing_island_is_what_stands_in_the_way() {
    let island = |rate, model: Option<&str>| {
        wish(2, |wishes| {
            (wishes.together, wishes.island_rate) = (Together::Island, rate);
            wishes.model = model.map(str::to_owned);
        })
    };
    let none = "none of them is in an island; the inventory says which are";
    let mut pool = Pool::new();
    pool.host("host1", 4, &[]);
    pool.add_box("box1", &[(Free, "gpu"); 3]);
    let alone = "in an island: alone leaves 0 of 3";
    assert_eq!(refused(&pool, &island(None, None)), ["no device that will do", alone, none]);
    let of_model = "no device with model \"gpu\" that will do";
    assert_eq!(refused(&pool, &island(None, Some("gpu"))), [of_model, alone, none]);
    let other = refused(&pool, &island(None, Some("tpu")));
    assert_eq!(other.last().unwrap(), "models there are: \"gpu\" (3)");
    assert!(!other.iter().any(|why| why.as_str() == none), "{other:?}");
    assert_eq!(pool.explain(&island(None, None)).reasons, ["no device that will do", alone, none]);
    let islands = json!([{ "slots": [1, 2], "rate": "450G" }]);
    pool.inventory(json!({ "boxes": { "box1": { "kind": "nvlink", "islands": islands } } }));
    let slow = "none of them is in an island whose devices reach each other at 900G bytes/s; the \
                inventory says how fast they do";
    let fast = island(Some(900_000_000_000), Some("gpu"));
    let rate = "at 900G in its island: alone leaves 0 of 3";
    let alone = "in an island: alone leaves 2 of 3";
    assert_eq!(refused(&pool, &fast), [of_model, alone, rate, slow]);
    assert_eq!(chosen(&pool, &island(Some(450_000_000_000), Some("gpu"))).len(), 2);
    // Not as many as there are in all.
    pool.slot("box1/2", Quarantined, "gpu");
    let reasons = refused(&pool, &island(None, Some("gpu")));
    assert_eq!(reasons[0], "1 of 2 with model \"gpu\" that will do can be lent now, 2 needed");
    assert_eq!(reasons[1], alone);
}

#[test]
fn what_joins_an_island_is_in_it_and_what_moves_has_room_for_all() {
    let mut pool = joined();
    let island = |change: fn(&mut PlanRequest)| {
        let mut request = wish(1, |wishes| {
            wishes.together = Together::Island;
            wishes.model = Some("gpu".into());
        });
        change(&mut request);
        request
    };
    let joins = island(|request| {
        request.wishes.box_name = Some(name("nv2"));
        request.island_of = Some("nv2/1".parse().unwrap());
    });
    let (two, five) = (island(|request| request.beside = 1), island(|request| request.beside = 4));
    assert_eq!(chosen(&pool, &island(|_| ())), ["nv1/5"]);
    assert_eq!(chosen(&pool, &joins), ["nv2/1"]);
    pool.slot("nv1/5", Used, "gpu");
    assert_eq!(chosen(&pool, &island(|_| ())), ["nv1/6"]);
    assert_eq!(chosen(&pool, &two), ["nv2/5"], "nv1/6 is alone");
    for slot in 1..=4 {
        pool.slot(&format!("nv2/{slot}"), Used, "gpu");
    }
    let reasons = refused(&pool, &joins);
    assert!(reasons[1..].iter().any(|why| why.contains("in the island of nv2/1")), "{reasons:?}");
    assert_eq!(
        refused(&pool, &five),
        ["no island has 5 of them; the nearest, island 0 of nv1, has 4"]
    );
    let box_of = |beside| {
        let mut request = island(|_| ());
        (request.wishes.together, request.beside) = (Together::Box, beside);
        request
    };
    assert_eq!(chosen(&pool, &box_of(4))[0].split('/').next(), Some("nv1"));
    let why =
        "no box has 6 of them with bandwidth for all; the nearest, nv1, has 5 and bandwidth for 5";
    assert_eq!(refused(&pool, &box_of(5)), [why]);
}

/// What is said counts what the choice counts.
#[test]
fn what_moves_together_is_told_whose_bandwidth_is_short() {
    let moves = |together, beside, host: &str| {
        let mut request = wish(1, |wishes| wishes.together = together);
        (request.beside, request.host) = (beside, name(host));
        request
    };
    let settings = ["boxes.NAME.capacity", "hosts.host1.capacity"];
    // The host is asked for one at a time.
    for (of_box, of_host, short) in [(3, 100, settings[0]), (100, 1, settings[1])] {
        let mut pool = Pool::new();
        pool.host("host1", 8, &[]);
        pool.host("host2", 1, &[0]);
        pool.inventory(json!({
            "models": { "gpu": { "demand": 2 } },
            "boxes": { "nv1": { "kind": "nvlink", "capacity": of_box,
                "islands": [{ "slots": [1, 2, 3, 4] }] } },
            "hosts": { "host1": { "capacity": of_host } },
        }));
        pool.add_box("nv1", &[(Free, "gpu"); 4]);
        for together in [Together::Box, Together::Island] {
            assert_eq!(pool.plan(&moves(together, 0, "host1")).is_ok(), of_host > 1);
            let reasons = refused(&pool, &moves(together, 1, "host1"));
            let says = |text: &&str| reasons.iter().any(|reason| reason.contains(text));
            assert_eq!(
                settings.into_iter().filter(says).collect::<Vec<_>>(),
                [short],
                "{reasons:?}"
            );
            assert!(!says(&"no island has"), "{reasons:?}");
            let no_port = ["host host2 has 0 of 1 ports free, 1 needed"];
            assert_eq!(refused(&pool, &moves(together, 0, "host2")), no_port);
        }
    }
}

#[test]
fn one_box_or_each_in_another_if_so_wished() {
    let pool = joined();
    let together = |count, together| wish(count, |wishes| wishes.together = together);
    assert_eq!(chosen(&pool, &together(2, Together::Box)), ["plain2/1", "plain2/2"]);
    assert_eq!(refused(&pool, &together(7, Together::Box)).len(), 1);
    let spread = chosen(&pool, &together(4, Together::Spread));
    let boxes: BTreeSet<&str> = spread.iter().map(|slot| slot.split('/').next().unwrap()).collect();
    assert_eq!(boxes.len(), 4, "{spread:?}");
    assert_eq!(
        refused(&pool, &together(5, Together::Spread)),
        ["they are in 4 boxes, 5 needed to spread them"]
    );
}

#[test]
fn near_ones_come_first() {
    let near = |count, model: Option<&str>| {
        wish(count, |wishes| {
            wishes.near = true;
            wishes.model = model.map(str::to_owned);
        })
    };
    let pool = joined();
    assert_eq!(chosen(&pool, &near(1, None)), ["plain2/1"], "the same rack");
    assert_eq!(chosen(&pool, &near(1, Some("gpu"))), ["plain1/1"], "the same site");
    assert_eq!(chosen(&pool, &near(5, Some("gpu")))[0], "nv1/1", "anywhere");
}

#[test]
fn selectors_ask_for_what_devices_boxes_and_slots_are() {
    let pool = joined();
    for (selector, first) in [
        ("memory>100G", "plain2/1"),
        ("lot=7", "plain2/1"),
        ("lot", "plain2/1"),
        ("!lot", "plain1/1"),
        ("arch=hopper,model=gpu,rack=r1", "plain1/1"),
        ("rack=R3", "nv1/5"),
        ("site=s2,box!=nv1", "nv2/5"),
        ("kind=nvlink,slot=3", "nv1/3"),
        ("vendor=10de,device=2330,class=030200,functions=1", "plain2/1"),
        ("model=gpu,serial=302", "plain1/2"),
    ] {
        assert_eq!(chosen(&pool, &selected(1, selector))[0], first, "{selector}");
    }
    for selector in ["memory>200G", "serial=1", "firmware", "rack=r9", "model=gpu,lot"] {
        let reasons = refused(&pool, &selected(1, selector));
        assert_eq!(reasons[0], "no device that will do", "{selector}: {reasons:?}");
        assert!(reasons[1].contains("alone leaves"), "{selector}: {reasons:?}");
    }
}

#[test]
fn expressions_ask_for_the_rest() {
    let pool = joined();
    for (cel, first) in [
        ("memory / functions > 100000000000", "plain2/1"),
        ("'lot' in attributes && attributes.lot == 7", "plain2/1"),
        ("has(attributes.lot)", "plain2/1"),
        ("box.endsWith('1') && kind == 'nonesuch'", ""),
        ("box.startsWith('nv') && slot >= 5", "nv1/5"),
        ("rack in ['r1', 'r9']", "plain1/1"),
        ("model == 'gpu' && serial == '0000000000000302'", "plain1/2"),
        ("firmware == null && site == 's2'", "nv1/5"),
    ] {
        match pool.plan(&by_cel(1, cel)) {
            Ok(plan) => assert_eq!(slots(&plan)[0], first, "{cel}"),
            Err(problem) => {
                assert_eq!(problem.code, ProblemCode::NothingFits, "{cel}");
                assert_eq!(first, "", "{cel}: {problem}");
            }
        }
    }
}

/// What an expression said before is used again, but not of what changed since.
#[test]
fn expressions_that_were_asked_before_say_the_same() {
    let mut pool = joined();
    let expressions = [
        "box.startsWith('nv') && slot >= 5",
        "rack in ['r1', 'r9']",
        "model == 'gpu' && serial == '0000000000000302'",
        "memory / functions > 100000000000",
        "site == 's9'",
    ];
    let mut asked: Vec<Prepared> =
        expressions.iter().map(|cel| Prepared::read(by_cel(1, cel)).unwrap()).collect();
    for prepared in &mut asked {
        prepared.ask_devices(&pool.txn, &pool);
    }
    let by_profile = asked.iter().map(|prepared| !prepared.asks_devices());
    assert_eq!(by_profile.collect::<Vec<_>>(), [false, false, false, true, false]);
    let same = |pool: &Pool| {
        for (prepared, cel) in asked.iter().zip(expressions) {
            let chosen = choose(prepared, &pool.txn, pool).unwrap();
            let planned = pool.plan(&by_cel(1, cel));
            assert_eq!(chosen.as_ref().map(slots), planned.as_ref().ok().map(slots), "{cel}");
            let again = plan_prepared(prepared, &pool.txn, pool);
            assert_eq!(again, planned, "{cel}");
        }
    };
    same(&pool);
    // Another device in a slot that was asked; then all boxes stand elsewhere.
    pool.slot("plain1/2", Free, "gpu-x");
    same(&pool);
    let racks = json!({ "r9": { "site": "s9" } });
    let boxes = json!({ "plain2": { "rack": "r9" } });
    pool.inventory(json!({ "sites": { "s9": {} }, "racks": racks, "boxes": boxes }));
    same(&pool);
    assert_eq!(slots(&pool.plan(&by_cel(1, "site == 's9'")).unwrap()), ["plain2/1"]);
}

#[test]
fn a_rack_that_has_nothing_free_has_nothing() {
    let mut pool = joined();
    assert_eq!(chosen(&pool, &selected(1, "rack=r1,model=gpu")), ["plain1/1"]);
    for slot in 1..=3 {
        pool.slot(&format!("plain1/{slot}"), Quarantined, "gpu");
    }
    refused(&pool, &selected(1, "rack=r1"));
    refused(
        &pool,
        &wish(1, |wishes| {
            wishes.near = true;
            wishes.selector = "rack=r1".parse().unwrap();
        }),
    );
}

#[test]
fn expressions_without_a_bound_are_refused_with_their_place() {
    let pool = joined();
    for (cel, why) in [
        ("model ==", "at line 1"),
        ("colour == 'red'", "there is no \"colour\", at character 1"),
        ("[1, 2].all(x, x > 0)", "not allowed"),
        ("attributes.exists(k, k == 'lot')", "not allowed"),
        (&"(".repeat(500), "deeper than 24"),
        ("kind == 'plain'.replace('a', 'b')", "there is no function \"replace\""),
        (&format!("{}true{}", "(".repeat(200), ")".repeat(200)), "deeper than 24"),
        (&"a".repeat(513), "at most 512"),
        // What could not be said of any device.
        ("memory + 1", "it is Int, not true or false"),
        ("model", "it is String, not true or false"),
        ("firmware > 3", "'_>_' applied to '(string, int)'"),
        ("size(model, 3) == 1", "'size' applied to '(string, int)'"),
        ("model.nonesuch('x')", "there is no function \"nonesuch\""),
        ("attributes.lot > 3 && nonesuch(1)", "there is no function \"nonesuch\""),
        ("model == 'gpu' && model.startWith('g')", "there is no function \"startWith\""),
        ("model == 'gpu' && !(firmware > 3)", "'_>_' applied to '(string, int)'"),
        ("slot == 9 ? model == 'gpu' : memory", "it is Int, not true or false"),
    ] {
        let problem = pool.plan(&by_cel(1, cel)).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("cel"), "{cel}: {problem}");
        assert!(problem.detail.contains(why), "{cel}: {problem}");
    }
    // An expression that says nothing of these devices says no.
    refused(&pool, &by_cel(1, "100 / int(model.size() - 8) > 5"));
    refused(&pool, &by_cel(1, "attributes.nonesuch > 5"));
}

#[test]
fn what_is_excluded_is_not_taken() {
    let pool = joined();
    let request = wish(1, |wishes| {
        wishes.model = Some("gpu".into());
        wishes.exclude.boxes = vec![name("nv1")];
        wishes.exclude.racks = vec!["r1".parse().unwrap()];
        wishes.exclude.slots = vec!["nv2/5".parse().unwrap()];
    });
    assert_eq!(chosen(&pool, &request), ["nv2/6"]);
}

#[test]
fn paths_that_are_wished_are_there() {
    let pool = joined();
    let on = |path| PlanRequest {
        link: LinkUse { paths: vec![path], ..LinkUse::default() },
        ..of_model(6, "gpu")
    };
    assert_eq!(chosen(&pool, &on(1))[0], "nv1/1", "nv1 is on path 1");
    assert_eq!(chosen(&pool, &on(0))[0], "nv2/1", "nv1 is not on path 0; of nv2 it is not said");
    assert_eq!(chosen(&pool, &PlanRequest { count: 1, ..on(1) })[0], "nv1/5");
}

#[test]
fn no_proxy_gets_more_than_it_carries() {
    let mut pool = joined();
    pool.add_box("fast", &[(Free, "gpu-fast"); 4]);
    // A usual proxy carries 4.9 GB/s.
    let fast = |count| of_model(count, "gpu-fast");
    assert_eq!(chosen(&pool, &fast(1)), ["fast/1"]);
    assert!(refused(&pool, &fast(2))[0].contains("bandwidth is enough for 1 of 4"));
    let limited = PlanRequest {
        link: LinkUse { limit: Some(1_000_000_000), ..LinkUse::default() },
        ..fast(4)
    };
    assert_eq!(chosen(&pool, &limited).len(), 4);
    let guaranteed = PlanRequest {
        link: LinkUse { guarantee: Some(5_000_000_000), ..LinkUse::default() },
        ..fast(1)
    };
    assert!(refused(&pool, &guaranteed)[1].contains("4900M bytes/s left, 5G needed"));
    // What is lent is counted; and when it is given back, it is not.
    pool.slot("fast/1", Used, "gpu-fast");
    let reasons = refused(&pool, &fast(1));
    assert!(reasons.iter().any(|r| r.contains("900M of 4900M bytes/s left")), "{reasons:?}");
}

#[test]
fn four_gpus_fit_under_a_proxy_of_which_nothing_is_known() {
    let mut pool = Pool::new();
    pool.host("host1", 16, &[]);
    pool.add_box("box1", &[(Free, "gpu"); 8]);
    pool.add_box("box2", &[(Free, "nvme"); 8]);
    assert_eq!(chosen(&pool, &of_model(4, "gpu")).len(), 4);
    let reasons = refused(&pool, &of_model(5, "gpu"));
    assert!(reasons[0].contains("hosts.host1.capacity"), "{reasons:?}");
    assert_eq!(chosen(&pool, &of_model(8, "nvme")).len(), 8);
}

#[test]
fn a_host_without_bandwidth_is_named_whatever_else_stands_in_the_way() {
    let mut pool = Pool::new();
    pool.host("host1", 16, &[]);
    // More than are named one by one.
    pool.add_box("box1", &[(Used, "gpu"); 10]);
    pool.add_box("box2", &[(Free, "gpu"); 8]);
    pool.add_box("box3", &[(Free, "gpu"); 4]);
    for slot in 1..=4 {
        pool.bind(&format!("box3/{slot}"), "host1", slot, Desired::Bound);
    }
    let reasons = refused(&pool, &of_model(1, "gpu"));
    assert!(reasons[0].starts_with("0 of 22 "), "{reasons:?}");
    assert!(reasons[1].contains("hosts.host1.capacity"), "{reasons:?}");
}

#[test]
fn a_named_slot_that_a_wish_rules_out_is_refused_for_that_wish() {
    let pool = joined();
    let named = |change: &dyn Fn(&mut Wishes)| {
        let wishes = |wishes: &mut Wishes| {
            wishes.box_name = Some(name("plain1"));
            change(wishes);
        };
        PlanRequest { slot: SlotId::new(1).ok(), ..wish(1, wishes) }
    };
    assert_eq!(chosen(&pool, &named(&|_| ())), ["plain1/1"]);
    type Change<'a> = &'a dyn Fn(&mut Wishes);
    let cases: [(Change<'_>, &str); 3] = [
        (&|wishes| wishes.exclude.slots = vec!["plain1/1".parse().unwrap()], "not excluded: "),
        (&|wishes| wishes.selector = "slot=2".parse().unwrap(), "slot=2: "),
        (&|wishes| wishes.cel = Some("slot == 2".into()), "cel slot == 2: "),
    ];
    for (change, why) in cases {
        let reasons = refused(&pool, &named(change));
        assert_eq!(reasons[0], "no device in slot plain1/1 that will do", "{reasons:?}");
        assert!(reasons.iter().any(|reason| reason.starts_with(why)), "{reasons:?}");
        assert!(!reasons.iter().any(|reason| reason.contains("bandwidth")), "{reasons:?}");
    }
    // Nor is it counted what else is in the box.
    let much = LinkUse { guarantee: Some(900_000_000_000), ..LinkUse::default() };
    let reasons = refused(&pool, &PlanRequest { link: much, ..named(&|_| ()) });
    assert_eq!(reasons[0], "0 of 1 in slot plain1/1 can be lent now, 1 needed", "{reasons:?}");
}

#[test]
fn an_explanation_counts_what_each_constraint_leaves() {
    let pool = joined();
    let why = pool.explain(&selected(2, "memory>=80G,rack=r3|r1"));
    assert_eq!(why.devices, 17);
    let of = |text: &str| why.constraints.iter().find(|c| c.constraint == text).unwrap();
    assert_eq!((of("memory>=80G").removes, of("memory>=80G").left), (0, 17));
    assert_eq!((of("rack=r3|r1").removes, of("rack=r3|r1").left), (2, 15));
    assert_eq!((of("free").removes, of("free").left), (0, 15));
    assert_eq!(why.slots.len(), 2);
    assert_eq!(why.candidate_boxes, 3);
    assert!(why.reasons[1].contains("plain1"), "{:?}", why.reasons);
    let none = pool.explain(&selected(2, "memory>=80G,lot=8"));
    assert_eq!(none.slots, []);
    assert!(none.reasons.contains(&"lot=8: alone leaves 0 of 17".to_owned()), "{none:?}");
}

#[test]
fn what_is_kept_as_spares_is_not_taken_where_another_will_do() {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    pool.add_box("box1", &[(Free, "nv"), (Free, "acc")]);
    pool.keep("nv", 1);
    assert_eq!(slots(&pool.plan(&ask(1)).unwrap()), ["box1/2"]);
    let why = pool.explain(&ask(1));
    assert_eq!(why.slots[0].slot.to_string(), "box1/2");
    let kept = why.constraints.iter().find(|c| c.constraint == "not kept as spares").unwrap();
    assert_eq!((kept.removes, kept.left), (1, 1));
    for request in [ask(2), at("box1/1"), wish(1, |wishes| wishes.model = Some("nv".to_owned()))] {
        let problem = pool.plan(&request).unwrap_err();
        assert_eq!(problem.code, ProblemCode::NothingFits);
        let said = problem.reasons.iter().any(|r| r.starts_with("1 of \"nv\" are kept as spares"));
        assert!(said, "{problem:?}");
    }
    // As many as are above the spares, wherever they are; what is in a box that is away is no spare.
    pool.add_box("box2", &[(Free, "nv"), (Free, "nv")]);
    assert_eq!(slots(&pool.plan(&ask(3)).unwrap()).len(), 3);
    pool.plan(&ask(4)).unwrap_err();
    let three = wish(3, |wishes| wishes.model = Some("nv".to_owned()));
    let why = pool.explain(&three);
    let kept = why.constraints.iter().find(|c| c.constraint == "not kept as spares").unwrap();
    assert_eq!((why.slots.len(), kept.removes, kept.left), (0, 1, 2));
    pool.away("box2");
    pool.plan(&at("box1/1")).unwrap_err();
    // However a box writes the model.
    pool.add_box("box3", &[(Free, "NV")]);
    pool.plan(&at("box1/1")).unwrap();
    pool.plan(&wish(2, |wishes| wishes.model = Some("nv".to_owned()))).unwrap_err();
}

/// The one box that has both gives what the other one has not.
#[test]
fn where_two_models_are_short_boxes_give_what_others_need_not() {
    let mut pool = Pool::new();
    pool.host("host1", 8, &[]);
    let model = json!({ "demand": 1 });
    pool.inventory(json!({
        "models": { "m1": model, "m2": model },
        "boxes": { "a": { "capacity": 1 }, "b": { "capacity": 1 }, "c": { "capacity": 1 } },
    }));
    pool.add_box("a", &[(Free, "m1"), (Free, "m2")]);
    pool.add_box("b", &[(Free, "m1"), (Free, "m1"), (Free, "m1")]);
    pool.add_box("c", &[(Free, "m2")]);
    pool.keep("m1", 3);
    pool.keep("m2", 1);
    for together in [Together::Spread, Together::Any] {
        let two = wish(2, |wishes| {
            wishes.together = together;
            wishes.exclude.boxes = [NodeName::new("c").unwrap()].into();
        });
        let mut chosen = slots(&pool.plan(&two).unwrap());
        chosen.sort();
        assert_eq!(chosen, ["a/2", "b/1"], "{together:?}");
        let three = wish(3, |wishes| wishes.together = together);
        pool.plan(&three).unwrap_err();
    }
}
