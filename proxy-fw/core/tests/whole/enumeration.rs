//! What the box finds in its slots, and what an operating system makes of a device that is plugged.

use crate::world::*;
use proxy_core::control::{Event, FromProxy, PortState, Reply, Request, SlotState};
use proxy_core::switch::ResetKind;
use std::time::Duration;
use tlp_codec::tlp::*;

const WINDOW: u64 = FIRST_WINDOW;

#[test]
fn the_box_finds_out_what_is_in_its_slots() {
    let mut world = World::new();
    world.insert();
    let entries: Vec<_> = world.boxes.inventory().collect();
    assert_eq!(entries[0].id, (0x1b36, 0xd0ac));
    assert_eq!(entries[0].class, 0x12_0000);
    assert_eq!(entries[0].serial, 0x1122_3344_5566_7788);
    assert_eq!(entries[0].bars, [4096, 0, 0, 0, 0, 0]);
    assert_eq!(entries[0].model.as_str(), "regs");
    assert_eq!(entries[1].state, SlotState::Empty);
    // The completion timeout is the proxy's: range D.
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
}

#[test]
fn a_lent_device_is_configured_read_and_written_through_the_switch() {
    let mut world = World::bound();
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    world.mem_write(WINDOW + 0x20, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let (status, data) = world.mem_read(WINDOW + 0x20, 2);
    assert_eq!((status, &data[..]), (CplStatus::Success, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    let entry = world.host.mapping_entry(port(0));
    assert_eq!(entry.state, PortState::Present);
    assert_eq!((entry.box_node, entry.slot, entry.buses), (BOX, 1, (3, 3)));
    assert_eq!(entry.memory, Some((WINDOW, WINDOW + 0xf_ffff)));
    let slots: Vec<_> = world.boxes.slot_entries().collect();
    assert!(slots[0].valid && slots[0].used);
    assert_eq!((slots[0].host_node, slots[0].epoch), (HOST, key(1).epoch.bits()));
}

/// How often the host proxy told that the operating system has enumerated the device.
fn told(world: &World) -> usize {
    let event = Event::DeviceConfigured { port: port(0) };
    let messages = world.host_messages.iter();
    messages.filter(|m| matches!(m, FromProxy::Event { event: e, .. } if *e == event)).count()
}

#[test]
fn that_the_operating_system_enabled_the_device_is_told_once() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    assert_eq!(told(&world), 1);
}

/// A device that was just plugged: the operating system has done nothing with it yet.
fn plugged_again() -> World {
    let mut world = World::bound();
    assert!(world.ask_host(super::ends::force(1)).is_ok());
    assert!(world.ask_box(Request::UnbindSlot(key(1))).is_ok());
    world.run(Duration::from_secs(1));
    world.bind(2);
    world.host_messages.clear();
    world
}

/// An operating system that has no driver for a device enumerates it, too.
#[test]
fn a_device_that_is_given_an_address_and_not_enabled_is_told_a_second_later() {
    let mut world = plugged_again();
    // Its size is asked for, and its register is as it was.
    for value in [u32::MAX, 0, 0x0c] {
        world.config_write(bdf(3, 0), 0x10, value);
    }
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 0, "it has no address");
    world.config_write(bdf(3, 0), 0x10, 0xe000_0000);
    world.run(Duration::from_millis(900));
    assert_eq!(told(&world), 0, "its driver may still come");
    world.run(Duration::from_millis(200));
    assert_eq!(told(&world), 1);
    assert!(world.host.mapping_entry(port(0)).configured);
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 1, "once");
}

/// An operating system whose windows are too small gives addresses to some of a device's memories,
/// and enables none.
#[test]
fn a_device_that_has_room_for_only_some_of_its_memories_is_not_told() {
    let mut world = plugged_again();
    // The device's second memory: read only, as if all that can be written were address.
    world.device.config[0x14..0x18].copy_from_slice(&0xffff_0000_u32.to_le_bytes());
    for register in [0x10, 0x14, 0x18] {
        world.config_write(bdf(3, 0), register, u32::MAX);
        world.config_read(bdf(3, 0), register);
        world.config_write(bdf(3, 0), register, 0);
    }
    world.config_write(bdf(3, 0), 0x10, 0xe000_0000);
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 0, "its second memory has no address");
    world.config_write(bdf(3, 0), 0x14, 0xe001_0000);
    world.run(Duration::from_millis(1100));
    assert_eq!(told(&world), 1);
}

/// Found by the simulator: a manager that died with this event in its hands never heard of it
/// again, and took the device for one that nobody uses.
#[test]
fn the_mapping_table_says_that_a_device_is_in_use() {
    let mut world = World::bound();
    let event = Event::DeviceConfigured { port: port(0) };
    let told = |m: &&FromProxy| matches!(m, FromProxy::Event { event: e, .. } if *e == event);
    assert_eq!(world.host_messages.iter().filter(told).count(), 1);
    assert!(world.host.mapping_entry(port(0)).configured);
    assert!(world.ask_host(super::ends::force(1)).is_ok());
    assert!(!world.host.mapping_entry(port(0)).configured, "nothing is there any more");
}

#[test]
fn that_the_root_complex_went_and_came_is_told_and_stands_in_the_table() {
    let mut world = World::bound();
    let told = |world: &World| -> Vec<bool> {
        let messages = world.host_messages.iter();
        let events = messages.filter_map(|message| match message {
            FromProxy::Event { event: Event::RootComplex { present }, .. } => Some(*present),
            _ => None,
        });
        events.collect()
    };
    let table = |world: &mut World| match world.ask_host(Request::ReadTable { from: 0 }).unwrap() {
        Reply::Mapping { root_complex, .. } => root_complex,
        reply => panic!("{reply:?}"),
    };
    assert!(!world.host.has_root_complex() && !table(&mut world), "none is there at first");
    for present in [true, true, false] {
        world.host.set_root_complex(present);
        assert_eq!((world.host.has_root_complex(), table(&mut world)), (present, present));
    }
    assert_eq!(told(&world), [true, false], "only what changes is told");

    // The device stays lent, and can be taken back although nobody is there to see it go.
    world.host.handle_reset(world.now, ResetKind::Fundamental);
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Present);
    assert_eq!(world.ask_host(super::ends::force(1)), Ok(Reply::Removed { orderly: false }));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Empty);
}
