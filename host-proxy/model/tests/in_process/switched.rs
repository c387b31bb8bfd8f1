//! Enumeration of the virtual switch.

use crate::fabric::{host_above, host_and_switch, port};
use device_models::accelerator::{Accelerator, Config};
use host_model::topology::{PortType, Range};
use host_model::{HostEvent, SlotState};
use proxy_core::control::WindowRange;
use proxy_core::switch::{Placeholder, SwitchConfig};
use std::time::{Duration, Instant};
use tlp_codec::ids::Bdf;

const SWITCH: Bdf = Bdf::from_bits(0x0100);

fn is_window(range: Option<Range>, window: WindowRange) -> bool {
    window == range.map(|range| (range.base, range.limit()))
}

#[test]
fn every_port_is_found_and_the_switch_decodes_what_it_was_given() {
    for ports in [1, 8, 32] {
        let (host, fabric) = host_and_switch(ports);
        let topology = host.topology();
        assert_eq!(topology.iter().count(), 1 + usize::from(ports));
        let switch = topology.get(SWITCH).unwrap();
        assert_eq!(switch.port_type, Some(PortType::Upstream));
        let outer = switch.bridge.unwrap();
        assert_eq!(outer.secondary, 2);
        let fabric = fabric.borrow();
        assert_eq!(fabric.switch.upstream_id(), SWITCH);
        let mut next_bus = 3;
        let (mut next32, mut next64) = (0, 0);
        for (number, node) in topology.children(Some(SWITCH)).enumerate() {
            let id = port(number as u8);
            assert_eq!(node.bdf, fabric.switch.port_id(id));
            let bridge = node.bridge.unwrap();
            let mapping = fabric.switch.mapping(id);
            assert_eq!(mapping.buses, (bridge.secondary, bridge.subordinate));
            assert_eq!(bridge.secondary, next_bus);
            assert_eq!(bridge.subordinate, next_bus + 3, "four buses for each port");
            next_bus = bridge.subordinate + 1;
            assert!(is_window(bridge.memory, mapping.memory), "{mapping:?}");
            assert!(is_window(bridge.prefetch, mapping.prefetchable), "{mapping:?}");
            let (memory, prefetch) = (bridge.memory.unwrap(), bridge.prefetch.unwrap());
            assert!(memory.base >= next32 && prefetch.base >= next64, "windows are apart");
            (next32, next64) = (memory.limit() + 1, prefetch.limit() + 1);
            assert!(outer.memory.unwrap().contains(memory.base));
            assert!(outer.prefetch.unwrap().contains(prefetch.limit()));
            assert!(mapping.bus_master && mapping.memory_enabled);
            assert_eq!(host.slot_state(node.bdf), Some(SlotState::Off));
            assert!(node.vectors.is_some(), "each port has its interrupt");
        }
        assert_eq!(outer.subordinate, next_bus - 1);
    }
}

#[test]
fn too_little_room_below_4_gb_is_told_and_the_rest_works() {
    let mut config = crate::fabric::quick();
    config.window32.size = 16 << 20;
    let port = crate::fabric::port_above(SwitchConfig { ports: 4, ..SwitchConfig::default() }).0;
    let mut host = host_model::ModelHost::new(port, config).unwrap();
    host.enumerate().unwrap();
    let events: Vec<HostEvent> = std::iter::from_fn(|| host.poll_event()).collect();
    assert!(events.iter().any(|event| matches!(event, HostEvent::Error { .. })), "{events:?}");
    assert_eq!(host.topology().iter().count(), 5);
}

#[test]
fn a_placeholder_keeps_room_and_makes_way() {
    let mut config = SwitchConfig { ports: 2, ..SwitchConfig::default() };
    config.placeholders[1] = Some(Placeholder::new(32 << 20, 8 << 30, 0).unwrap());
    let (mut host, fabric) = host_above(config);
    let places: Vec<Bdf> = host.topology().children(Some(SWITCH)).map(|node| node.bdf).collect();
    let bridge = host.topology().get(places[1]).unwrap().bridge.unwrap();
    assert!(bridge.memory.unwrap().size >= 32 << 20);
    assert!(bridge.prefetch.unwrap().size >= 8 << 30);
    assert_eq!(host.slot_state(places[1]), Some(SlotState::On));

    let device = Accelerator::device(Config::default()).unwrap();
    fabric.borrow_mut().plug(port(1), Box::new(device));
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = Vec::new();
    while seen.len() < 2 && Instant::now() < deadline {
        host.service(deadline).unwrap();
        seen.extend(std::iter::from_fn(|| host.poll_event()));
    }
    let [HostEvent::DeviceRemoved { surprise: false, .. }, HostEvent::DeviceAdded { driver, .. }] =
        seen.as_slice()
    else {
        panic!("{seen:?}");
    };
    assert_eq!(*driver, Some("accelerator"));
}
