//! Whether the oracles are awake where something is excused.

use super::*;
use crate::device::Wrong;
use crate::egress::completion;
use crate::host::driver::OUTSTANDING;
use crate::host::driver::Task;
use crate::host::{HOST_ID, Purpose};
use crate::oracle::order::Seen;
use crate::oracle::spells::Fault;
use crate::oracle::tags;
use crate::run::Run;
use crate::schedule::{Act, Bad};
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Class, CplStatus, Kind, Packet, Repr};

const HANGS_MS: u64 = 5;
const MODELS: [u64; 3] = [1, 2, 3];

fn emit(repr: &Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn read() -> Vec<u8> {
    emit(&Repr::new(Kind::MemRead {
        requester: HOST_ID,
        tag: Tag::new(0).unwrap(),
        address: 0x8000_0000,
        length_dw: 1,
        enables: ByteEnables::all(1),
        hint: None,
        locked: false,
    }))
}

fn write() -> Vec<u8> {
    emit(&Repr::new(Kind::MemWrite {
        requester: HOST_ID,
        tag: Tag::new(0).unwrap(),
        address: 4,
        enables: ByteEnables::all(1),
        hint: None,
        data: &[0xbb; 4],
    }))
}

/// What a proxy says for a read that ran out.
fn made_up(tag: u16) -> Vec<u8> {
    made_up_for(HOST_ID, tag)
}

/// As [`made_up`], for what another one had asked.
fn made_up_for(requester: Bdf, tag: u16) -> Vec<u8> {
    let read = read();
    let asked = Packet::new_checked(&read[..]).unwrap();
    let id = (Bdf::from_bits(0), Tag::new(tag).unwrap());
    let mut bytes = emit(&completion(&asked, id, CplStatus::UnsupportedRequest, (4, 0), &[]));
    Packet::new_checked(&mut bytes[..]).unwrap().set_requester(requester);
    bytes
}

/// A calm fabric in which the driver of one device has work of that kind, and the device misbehaves
/// for a while, up to that time after it began.
fn world(task: Task, manner: Option<Bad>, ms: u64) -> World {
    let mut profile = Profile::calm();
    profile.time.busy_ms = 3000;
    let act = Act::Work { host: 0, port: 0, task, operations: 2_000_000 };
    let mut schedule = vec![Entry { id: 0, at_us: 0, for_us: 0, act }];
    if let Some(manner) = manner {
        let act = Act::Manner { at_box: 0, slot: 0, manner };
        let (at_us, for_us) = (100, HANGS_MS * 1000);
        schedule.push(Entry { id: 1, at_us, for_us, act });
    }
    let mut world = World::new(1, &profile, schedule);
    while world.began.is_none() {
        let until = world.now() + Duration::from_millis(1);
        world.step(until).unwrap();
    }
    let until = world.began.unwrap() + Duration::from_millis(ms);
    while world.step(until).unwrap() {}
    world
}

/// The device's binding.
fn bound(world: &World) -> usize {
    world.boxes[0].slots[0].binding.expect("it is lent")
}

/// A read of its driver that was asked after that time and waits.
fn waiting(world: &mut World, after_ms: u64) -> (usize, u16) {
    let binding = bound(world);
    let host = world.bindings.get(binding).host;
    let after = world.began.unwrap() + Duration::from_millis(after_ms);
    for _ in 0..1000 {
        let mut all = world.hosts[host].requests.waiting();
        let found = all.find(|(_, asked)| {
            matches!(asked.purpose, (Purpose::Driver { .. }, Some(b)) if b == binding)
                && asked.since > after
        });
        if let Some((tag, _)) = found {
            return (host, tag);
        }
        drop(all);
        let until = world.now() + Duration::from_micros(5);
        while world.step(until).unwrap() {}
    }
    panic!("its driver asks for nothing: {}", world.restless());
}

#[test]
fn a_device_that_hung_excuses_nothing_that_is_asked_afterwards() {
    // What has no answer runs out after two seconds, which the run until then has forgiven.
    let late = Bad::Late { by_us: 300 };
    let (wrong, after) = (Bad::Wrong { what: Wrong::Tag }, 2 * HANGS_MS);
    // Second answers come up to 20 ms later.
    let twice = (Bad::Twice, 40, 30);
    for (manner, ms, after) in
        [(Bad::Hangs, 2003, after), (late, 20, after), (wrong, 2003, after), twice]
    {
        // All that a driver asks at a time may be more than the tags that there are.
        if tags::ENOUGH <= OUTSTANDING && matches!(manner, Bad::Hangs | Bad::Wrong { .. }) {
            continue;
        }
        let mut world = world(Task::Registers, Some(manner), ms);
        let (host, tag) = waiting(&mut world, after);
        let said = world.at_root(host, &made_up(tag)).expect_err(&format!("{manner:?}"));
        assert!(said.promise == 3 && said.what.contains("without a cause"), "{manner:?}: {said:?}");
    }
}

#[test]
fn a_device_that_hangs_excuses_no_answer_before_the_time_is_over() {
    let mut world = world(Task::Registers, Some(Bad::Hangs), 2);
    let (host, tag) = waiting(&mut world, 0);
    let said = world.at_root(host, &made_up(tag)).unwrap_err();
    assert!(said.promise == 3 && said.what.contains("without a cause"), "{said:?}");
}

#[test]
fn a_device_of_which_all_tags_hang_is_refused_at_once_and_no_other() {
    for (hang, excused) in [(tags::ENOUGH, true), (tags::ENOUGH - 1, false)] {
        let mut world = world(Task::Registers, None, 1);
        let (host, tag) = waiting(&mut world, 0);
        let slot = &mut world.boxes[0].slots[0];
        slot.tags = tags::Tags::new();
        (0..hang as u16).for_each(|tag| slot.tags.asked(tag, Instant::ZERO));
        // The run is not as old as an answer may take.
        let now = world.now() + SYNTHESISED_COMPLETION;
        world.agenda.jump(now);
        let said = world.at_root(host, &made_up(tag));
        assert_eq!(said.is_ok(), excused, "{said:?}");
    }
}

#[test]
fn what_is_lost_after_a_device_hung_is_missed() {
    let mut world = world(Task::Registers, Some(Bad::Hangs), 2 * HANGS_MS);
    let (binding, now) = (bound(&world), world.now());
    world.bindings.get(binding).sent_down(now, Seen::of(&write()).unwrap(), 0, false);
    let said = world.run().unwrap_err();
    let ways = ["passed", "lost", "under way"];
    assert!(ways.iter().any(|way| said.what.contains(way)), "{said:?}");
}

/// What a proxy says for something that a device asked and that waits.
fn made_up_for_device(world: &mut World) -> Vec<u8> {
    loop {
        let until = world.now() + Duration::from_micros(5);
        while world.step(until).unwrap() {}
        let requests = &world.boxes[0].slots[0].device.end().requests;
        if let Some((tag, asked)) = requests.waiting().next() {
            return made_up_for(asked.requester, tag);
        }
    }
}

#[test]
fn a_devices_request_that_runs_out_needs_a_silence() {
    let mut world = world(Task::DmaReads, None, 1);
    let made_up = made_up_for_device(&mut world);
    let said = world.at_device(0, 0, &made_up).unwrap_err();
    assert!(said.promise == 3 && said.what.contains("its host did not give"), "{said:?}");
}

/// A host has sent a write and, behind it, an answer to another request that looks the same.
#[test]
fn what_a_proxy_says_by_itself_has_passed_nothing() {
    for (completer, passed) in [(Bdf::from_bits(0), false), (HOST_ID, true)] {
        let mut world = world(Task::DmaReads, None, 1);
        let mut answer = made_up_for_device(&mut world);
        Packet::new_checked(&mut answer[..]).unwrap().set_completer(completer);
        let (at, now) = (bound(&world), world.now());
        let (write, alike) = (Seen::of(&write()).unwrap(), Seen::of(&answer).unwrap());
        let binding = world.bindings.get(at);
        binding.unsettle();
        binding.sent_down(now, write, 0, false);
        binding.sent_down(now, alike, u64::MAX, false);
        let said = world.at_device(0, 0, &answer);
        let wrong = |said: &Violation| said.what.contains("its host did not give");
        assert!(!said.as_ref().is_err_and(wrong), "{said:?}");
        assert_eq!(world.bindings.get(at).down.knows(&write, None), !passed, "it may still come");
    }
}

#[test]
fn a_device_that_takes_nothing_is_refused_only_when_the_time_is_over() {
    for (waits, excused) in [(Duration::from_millis(1), false), (SYNTHESISED_COMPLETION, true)] {
        let mut world = world(Task::DmaReads, None, 1);
        let made_up = made_up_for_device(&mut world);
        let now = world.now();
        world.boxes[0].slots[0].spells.turn(now, Some(Fault::Stuck));
        world.agenda.jump(now + waits);
        let said = world.at_device(0, 0, &made_up);
        // It is made without looking at the attributes of what it answers.
        let wrong = |said: &Violation| said.what.contains("its host did not give");
        assert_eq!(!said.as_ref().is_err_and(wrong), excused, "{waits:?}: {said:?}");
    }
}

/// One device, of that kind, and a third of all frames is lost.
fn hardly_anything_comes_through(drives: usize, work: &str) -> Profile {
    let profile = format!(
        "about = \"a third is lost\"\n[fabric]\nhosts = 1\nboxes = 1\nslots = 1\ndrives = {drives}\n\
         frame = 1500\n[fabric.cable]\nrate_mbps = 10000\nqueue_kb = 256\n[always]\n\
         loss_ppm = 350000\n[work]\nbursts = [20, 60]\noperations = [1, 60]\n{work}\n[time]\n\
         busy_ms = 3000\nsettle_ms = 60000\n"
    );
    toml::from_str(&profile).unwrap()
}

/// Now and then a request's time is over before the link gives up.
#[test]
fn a_devices_request_may_run_out_where_hardly_anything_comes_through() {
    let drive = "block_writes = 3\nblock_reads = 3\nblock_zeroes = 1\nflushes = 1";
    let model = "registers = 2\ndoorbells = 1\ndma_reads = 3\ndma_atomics = 2";
    let runs = [(1, drive, [16, 57, 63]), (0, model, MODELS)];
    for (drives, work, seeds) in runs {
        let profile = hardly_anything_comes_through(drives, work);
        for seed in seeds {
            let outcome = Run::new(seed, &profile).go();
            let story = &outcome.story;
            assert_eq!(outcome.violation, None, "seed {seed}, {drives} drives: {story:#?}");
        }
    }
}

#[test]
fn an_answer_belongs_to_the_binding_that_asked() {
    let mut world = world(Task::Registers, None, 0);
    let before = bound(&world);
    let host = world.bindings.get(before).host;
    let port = world.hosts[host].ports.iter().position(|b| *b == Some(before)).unwrap();
    let next = world.bindings.find(host, 0, 0, 0xfff0).unwrap();
    world.bindings.get(next).settle();
    world.bindings.get(before).end();
    world.hosts[host].out.clear();
    let read = read();
    let asked = Packet::new_checked(&read[..]).unwrap();
    let answer =
        completion(&asked, (HOST_ID, Tag::new(0).unwrap()), CplStatus::Success, (4, 0), &[0; 4]);
    world.hosts[host].out.push(&answer, Purpose::Answer { binding: before, request: 7 });
    world.hosts[host].ports[port] = Some(next);
    let sent = Seen::of(&emit(&answer)).unwrap();
    world.pump(host).unwrap();
    assert!(world.bindings.get(before).down.knows(&sent, Some(7)));
    assert!(!world.bindings.get(next).down.knows(&sent, None), "the proxy drops it, rightly");
}

#[test]
fn a_proxy_that_began_anew_has_to_reset_its_devices() {
    let mut world = world(Task::Registers, None, 1);
    let node = world.hosts.len();
    world.crash(node, false).unwrap();
    let said = world.at_device(0, 0, &read()).unwrap_err();
    assert!(said.promise == 2 && said.what.contains("not reset"), "{said:?}");
    world.start(node).unwrap();
    assert!(!world.boxes[0].slots[0].is_stale(), "the proxy does so first of all");
}

/// The epochs in a proxy's tables.
fn epochs(world: &World, node: usize) -> Vec<u32> {
    match node.checked_sub(world.hosts.len()) {
        None => {
            let role = world.hosts[node].role.as_ref().unwrap();
            let entries = role.switch().port_ids().map(|port| role.mapping_entry(port));
            entries.flat_map(|e| e.functions.into_iter().map(|f| f.1.bits())).collect()
        }
        Some(at_box) => {
            let role = world.boxes[at_box].role.as_ref().unwrap();
            role.slot_entries().filter(|e| e.used).map(|e| e.epoch).collect()
        }
    }
}

#[test]
fn a_proxy_that_kept_its_tables_has_them_before_the_manager_speaks() {
    let mut world = world(Task::Registers, None, 1);
    for (node, kept) in [(0, true), (2, true), (0, false), (2, false)] {
        let before = epochs(&world, node);
        assert!(!before.is_empty());
        let term = world.lives[node].term;
        world.crash(node, kept).unwrap();
        world.start(node).unwrap();
        while !world.lives[node].connected {
            let until = world.now() + Duration::from_micros(10);
            world.step(until).unwrap();
        }
        let there = if kept { before.clone() } else { Vec::new() };
        assert_eq!(epochs(&world, node), there, "node {node}");
        assert_eq!(world.lives[node].term, if kept { term } else { 0 });
        // At rest it is before the manager has begun, too.
        let bound = world.now() + Duration::from_secs(10);
        while epochs(&world, node).len() < before.len() || !world.is_quiet() {
            let until = world.now() + Duration::from_millis(1);
            assert!(until < bound, "node {node} has {:?} again", epochs(&world, node));
            while world.step(until).unwrap() {}
        }
        let after = epochs(&world, node);
        assert_eq!(after.len(), before.len(), "node {node}");
        assert!(after.iter().zip(&before).all(|(now, then)| now > then), "{after:?}, {before:?}");
    }
    assert_eq!(world.run(), Ok(()));
}

#[test]
fn what_a_former_life_had_under_way_is_noticed_though_its_binding_is_there_again() {
    let mut world = world(Task::Registers, None, 1);
    waiting(&mut world, 0);
    let (binding, now, node) = (bound(&world), world.now(), world.hosts.len());
    world.bindings.get(binding).sent_down(now, Seen::of(&read()).unwrap(), 77, false);
    world.crash(node, true).unwrap();
    assert!(world.bindings.get(binding).down.knows(&Seen::of(&read()).unwrap(), Some(77)));
    world.start(node).unwrap();
    while !world.lives[node].connected {
        let until = world.now() + Duration::from_micros(10);
        world.step(until).unwrap();
    }
    assert_eq!(bound(&world), binding);
    let said = world.at_device(0, 0, &read()).unwrap_err();
    assert!(said.promise == 1 && said.what.contains("not under way"), "{said:?}");
}

#[test]
fn a_binding_that_is_over_cannot_stay_in_use() {
    let mut world = world(Task::Registers, None, 1);
    let binding = bound(&world);
    world.bindings.get(binding).end();
    let said = world.run().unwrap_err();
    assert!(said.what.contains("an epoch that is over"), "{said:?}");
}

#[test]
fn what_its_host_has_not_taken_yet_is_not_over() {
    let mut bindings = Bindings::default();
    let index = bindings.find(0, 0, 0, 1).unwrap();
    let binding = bindings.get(index);
    binding.end();
    binding.begin();
    assert!(!binding.is_over(), "its box's end began anew before anything was sent");
    binding.end();
    binding.begin();
    assert!(binding.is_over());
}

/// A device whose bus is being reset, the host and the tag of what its driver waited for, and a
/// write that was on its way.
fn bus_in_reset() -> (World, usize, u16, Vec<u8>) {
    let mut world = world(Task::Registers, None, 1);
    let (host, tag) = waiting(&mut world, 0);
    let binding = bound(&world);
    let port = world.hosts[host].ports.iter().position(|b| *b == Some(binding)).unwrap();
    let kind = Kind::MemWrite {
        requester: HOST_ID,
        tag: Tag::new(0).unwrap(),
        address: 4,
        enables: ByteEnables::all(1),
        hint: None,
        data: &[0xbb; 4],
    };
    let write = emit(&Repr::new(kind));
    let now = world.now();
    world.bindings.get(binding).sent_down(now, Seen::of(&write).unwrap(), 0, false);
    assert!(world.hosts[host].os.reset_bus(port));
    world.pump(host).unwrap();
    (world, host, tag, write)
}

#[test]
fn a_bus_reset_ends_what_is_outstanding_and_leaves_the_binding() {
    let (mut world, host, tag, _) = bus_in_reset();
    let (began, before, readied) =
        (world.now(), epochs(&world, host), world.hosts[host].os.readied);
    // So long its root complex may take nothing.
    let until = world.now() + Duration::from_millis(5);
    while world.step(until).unwrap() {}
    let mut left = world.hosts[host].requests.waiting();
    assert!(!left.any(|(t, asked)| t == tag && asked.since <= began), "it has ended");
    drop(left);
    let until = world.now() + Duration::from_secs(1);
    while world.step(until).unwrap() {}
    assert_eq!(world.hosts[host].os.readied, readied + 1);
    assert_eq!(epochs(&world, host), before, "it was not lent again");
    assert!(world.bindings.all()[bound(&world)].is_sound());
    assert_eq!(world.run(), Ok(()));
}

#[test]
fn what_was_on_its_way_before_a_bus_reset_is_noticed_after_it() {
    for late in [false, true] {
        let (mut world, _, _, write) = bus_in_reset();
        let was_reset = |world: &World| {
            let binding = &world.bindings.all()[bound(world)];
            !binding.down.knows(&Seen::of(&write).unwrap(), None)
        };
        while late && !was_reset(&world) {
            let until = world.now() + Duration::from_micros(10);
            while world.step(until).unwrap() {}
        }
        let said = world.at_device(0, 0, &write);
        assert_eq!(said.is_err(), late, "{said:?}");
    }
}

#[test]
fn another_operating_system_starts_without_perst() {
    let mut world = world(Task::Registers, None, 1);
    waiting(&mut world, 0);
    let readied = world.hosts[0].os.readied;
    let before = epochs(&world, 0);
    let local = world.local(0);
    world.hosts[0].reboot(local, false);
    assert!(world.hosts[0].requests.live() > 0, "answers to its predecessor still come");
    world.pump(0).unwrap();
    let until = world.now() + Duration::from_secs(1);
    while world.step(until).unwrap() {}
    let ports = world.hosts[0].ports.iter().flatten().count();
    assert_eq!(world.hosts[0].os.readied, readied + ports as u64);
    assert_eq!(epochs(&world, 0), before, "no binding ended of it");
    assert!(world.hosts[0].role.as_ref().unwrap().has_root_complex());
    // Registers that hold what the predecessor wrote would be noticed.
    let act = Act::Work { host: 0, port: 0, task: Task::Registers, operations: 500 };
    world.schedule.push(Entry { id: 8, at_us: 0, for_us: 0, act });
    world.begin(world.schedule.len() - 1).unwrap();
    assert_eq!(world.run(), Ok(()));
}

/// Whether something wanted crosses the fabric in a run without faults, to devices or from them:
/// model devices, or drives alone.
fn crosses(drives: bool, wanted: impl Fn(bool, (Class, bool, bool)) -> bool) -> bool {
    let mut profile = Profile::calm();
    profile.time.busy_ms = 20;
    if drives {
        profile = Profile::find("nvme").unwrap();
        profile.faults.clear();
        (profile.fabric.drives, profile.time.busy_ms) = (profile.fabric.slots, 100);
    }
    let schedule = crate::schedule::make(1, &profile);
    let mut world = World::new(1, &profile, schedule);
    let end = Instant::ZERO + Duration::from_secs(1);
    while world.step(end).unwrap() {
        for binding in world.bindings.all() {
            let (up, down) = (binding.up.marks(), binding.down.marks());
            let mut all = up.map(|mark| (true, mark)).chain(down.map(|mark| (false, mark)));
            if all.any(|(up, mark)| wanted(up, mark)) {
                return true;
            }
        }
    }
    false
}

fn crossing(wanted: impl Fn(bool, (Class, bool, bool)) -> bool) -> bool {
    crosses(false, wanted)
}

#[test]
fn drives_and_their_drivers_have_id_based_ordering_and_not_everywhere() {
    for (up, class) in [false, true].into_iter().flat_map(|up| Class::ALL.map(|c| (up, c))) {
        for by_id in [false, true] {
            let wanted = |goes_up, mark: (Class, bool, bool)| {
                (goes_up, mark.0, mark.1) == (up, class, by_id)
            };
            assert!(
                crosses(true, wanted),
                "{class:?}, from a drive: {up}, with ID-based ordering: {by_id}"
            );
        }
    }
}

#[test]
fn id_based_ordering_is_in_a_run_and_not_everywhere() {
    for (up, class) in [false, true].into_iter().flat_map(|up| Class::ALL.map(|c| (up, c))) {
        for by_id in [false, true] {
            let found = crossing(|goes_up, mark| (goes_up, mark.0, mark.1) == (up, class, by_id));
            assert!(found, "{class:?}, from a device: {up}, with ID-based ordering: {by_id}");
        }
    }
}

#[test]
fn completions_of_configuration_writes_are_known_and_no_others() {
    assert!(crossing(|up, (class, _, of_write)| up && class == Class::Completion && of_write));
    assert!(crossing(|up, (class, _, of_write)| up && class == Class::Completion && !of_write));
    assert!(!crossing(|up, (class, _, of_write)| of_write && (!up || class != Class::Completion)));
}

#[test]
fn a_short_schedule_ends_when_it_ends() {
    let mut profile = Profile::calm();
    profile.time.busy_ms = 1;
    // Wherever between two looks the schedule begins.
    for offset in 0..10 {
        let mut world = World::new(1, &profile, Vec::new());
        let until = world.now() + Duration::from_millis(offset);
        while world.step(until).unwrap() {}
        let end = world.run_to_faults_end().unwrap();
        assert_eq!(world.now(), end);
        assert_eq!(end, world.began.unwrap() + Duration::from_millis(1));
    }
}
