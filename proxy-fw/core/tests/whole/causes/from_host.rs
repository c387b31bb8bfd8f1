//! A host's request to a device.

use super::*;
use proxy_core::role::Backpressure;
use std::time::Duration;

const SYNTHESISED: &str = "host: completions synthesised";
const MISMATCHED: &str = "box: completions from devices that do not fit their request";

pub(super) const CASES: &[Case] = &[
    Case {
        cause: "no window: no port has the address or bus number",
        run: |world| {
            let memory = world.mem_read(0x9000_0000, 1).0;
            Seen::Statuses(vec![memory, world.config_read(bdf(9, 0), 0).0])
        },
        counters: &["switch.no_window", "switch.no_bus"],
    },
    Case {
        cause: "memory or I/O space is disabled in the port",
        run: |world| {
            world.config_write(PORT, COMMAND, 0x0004);
            let memory = world.mem_read(FIRST_WINDOW, 1).0;
            let io = Kind::IoRead { requester: UPSTREAM, tag: tag(9), address: 16, first_be: 1 };
            Seen::Statuses(vec![memory, status_of(world, &Repr::new(io))])
        },
        counters: &["switch.no_window"],
    },
    Case {
        cause: "port is empty",
        run: |world| {
            let memory = world.mem_read(SECOND_WINDOW, 1).0;
            Seen::Statuses(vec![memory, world.config_read(bdf(4, 0), 0).0])
        },
        counters: &["switch.link_down"],
    },
    Case {
        cause: "unbound: released, or not bound yet",
        run: |world| {
            world.ask_host(force(0)).unwrap();
            clean(world);
            let memory = world.mem_read(FIRST_WINDOW, 1).0;
            Seen::Statuses(vec![memory, world.config_read(bdf(3, 0), 0).0])
        },
        counters: &["switch.link_down"],
    },
    Case {
        cause: "stale: sent under an epoch that is over",
        run: |world| {
            outstanding(world);
            world.ask_host(force(0)).unwrap();
            Seen::Statuses(statuses(&world.to_root))
        },
        counters: &[SYNTHESISED],
    },
    Case {
        cause: "link between the proxies down",
        run: |world| {
            outstanding(world);
            world.cut = true;
            world.run(Duration::from_millis(1900));
            ended_and_refused(world)
        },
        counters: &[SYNTHESISED, "switch.link_down"],
    },
    Case {
        cause: "binding failed (TLP CRC, unbound by the peer)",
        run: |world| {
            outstanding(world);
            world.ask_box(Request::UnbindSlot(key(1))).unwrap();
            ended_and_refused(world)
        },
        counters: &[SYNTHESISED, "switch.link_down"],
    },
    Case {
        cause: "device gone: pulled, its power off",
        run: |world| {
            outstanding(world);
            world.boxes.device_removed(world.now, slot(1));
            world.run(Duration::from_millis(10));
            ended_and_refused(world)
        },
        counters: &[SYNTHESISED, "switch.link_down"],
    },
    Case {
        cause: "the port's link is disabled",
        run: |world| {
            outstanding(world);
            world.config_write(PORT, LINK_CONTROL, 0x10);
            ended_and_refused(world)
        },
        counters: &[SYNTHESISED, "switch.link_down"],
    },
    Case {
        cause: "hot reset of what is below the port",
        run: |world| {
            outstanding(world);
            world.config_write(PORT, BRIDGE_CONTROL, 0x0040_0000);
            let seen = ended(world);
            world.config_write(PORT, BRIDGE_CONTROL, 0);
            seen
        },
        counters: &[SYNTHESISED],
    },
    Case {
        cause: "not ready: the device says so after reset or plug",
        run: |world| {
            world.device.manner = Manner::Refuses(CplStatus::ConfigRetry);
            let configuration = world.config_read(bdf(3, 0), 0).0;
            world.device.manner = Manner::Refuses(CplStatus::UnsupportedRequest);
            Seen::Statuses(vec![configuration, world.mem_read(FIRST_WINDOW, 1).0])
        },
        counters: &["switch.unsuccessful_completions"],
    },
    Case {
        cause: "timeout: no completion within the synthesised completion time",
        run: |world| {
            world.device.manner = Manner::Silent;
            Seen::Statuses(vec![world.mem_read(FIRST_WINDOW, 1).0])
        },
        counters: &[SYNTHESISED, "box: requests that a device did not answer"],
    },
    Case {
        cause: "device answers UR",
        run: |world| refused_by_device(world, CplStatus::UnsupportedRequest),
        counters: &["switch.unsuccessful_completions"],
    },
    Case {
        cause: "aborted: device answers CA",
        run: |world| refused_by_device(world, CplStatus::CompleterAbort),
        counters: &["switch.unsuccessful_completions"],
    },
    Case {
        cause: "device answers CRS to what is no configuration request",
        run: |world| refused_by_device(world, CplStatus::ConfigRetry),
        counters: &[MISMATCHED, SYNTHESISED],
    },
    Case {
        cause: "device's completion is poisoned",
        run: |world| {
            world.device.manner = Manner::Poisons;
            let tag = world.tag();
            let read = Repr::new(mem_read(Bdf::default(), tag.get(), FIRST_WINDOW, 1));
            let tlp = world.request(&read, tag);
            Seen::Passed { poisoned: Packet::new_checked(&tlp[..]).unwrap().is_poisoned() }
        },
        counters: &["switch.poisoned_passed"],
    },
    Case {
        cause: "device's completion does not fit its request (byte count, data or none, data without \
                success)",
        run: |world| {
            world.device.manner = Manner::Miscounts;
            Seen::Statuses(vec![world.mem_read(FIRST_WINDOW, 1).0])
        },
        counters: &[MISMATCHED, SYNTHESISED],
    },
    Case {
        cause: "device's completion is larger than the port's Max_Payload_Size",
        run: |world| Seen::Statuses(vec![world.mem_read(FIRST_WINDOW, 64).0]),
        counters: &["switch.payload_too_large", SYNTHESISED],
    },
    Case {
        cause: "request is poisoned",
        run: |world| {
            let mut write = Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[1; 4]));
            write.poisoned = true;
            world.host.handle_tlp(world.now, &emit(&write)).unwrap();
            world.turn();
            let tlp = world.device.received.pop().unwrap();
            Seen::Passed { poisoned: Packet::new_checked(&tlp[..]).unwrap().is_poisoned() }
        },
        counters: &["switch.poisoned_passed"],
    },
    Case {
        cause: "request is malformed",
        run: |world| {
            // A doubleword's data is missing.
            let write = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[1; 8])));
            send(world, &write[..write.len() - 4])
        },
        counters: &["host: malformed TLPs from the root complex"],
    },
    Case {
        cause: "payload larger than the upstream port's Max_Payload_Size",
        run: |world| {
            let write = Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[1; 256]));
            send(world, &emit(&write))
        },
        counters: &["switch.payload_too_large"],
    },
    Case {
        cause: "locked request",
        run: |world| send(world, &emit(&Repr::new(locked(Bdf::default(), FIRST_WINDOW)))),
        counters: &["switch.unsupported_type"],
    },
    Case {
        cause: "atomic or prefix that the port's Device Control 2 blocks",
        run: |world| {
            world.config_write(PORT, DEVICE_CONTROL_2, 0x80);
            world.to_root.clear();
            send(world, &emit(&Repr::new(fetch_add(Bdf::default(), FIRST_WINDOW))))
        },
        counters: &["switch.atomic_blocked"],
    },
    Case {
        cause: "queue full",
        run: |world| {
            world.device.manner = Manner::Silent;
            let read = |tag| emit(&Repr::new(mem_read(Bdf::default(), tag, FIRST_WINDOW, 1)));
            let mut full = false;
            for tag in 0..200 {
                full |= world.host.handle_tlp(world.now, &read(tag)) == Err(Backpressure);
                world.turn();
            }
            assert!(full);
            Seen::Statuses(statuses(&world.to_root))
        },
        counters: &["host: TLPs that had to wait for room"],
    },
];

/// A read that the device does not answer.
fn outstanding(world: &mut World) {
    world.device.manner = Manner::Silent;
    let read = Repr::new(mem_read(Bdf::default(), 200, FIRST_WINDOW, 1));
    world.host.handle_tlp(world.now, &emit(&read)).unwrap();
    world.turn();
}

/// What the outstanding read got; it has waited less than the bound.
fn ended(world: &World) -> Seen {
    let of_read = |tlp: &&Vec<u8>| {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        packet.class() == Some(Class::Completion) && packet.tag() == tag(200)
    };
    Seen::Statuses(statuses(world.to_root.iter().filter(of_read)))
}

/// And what a new one gets, at once.
fn ended_and_refused(world: &mut World) -> Seen {
    let Seen::Statuses(mut got) = ended(world) else { unreachable!() };
    assert_eq!(got.len(), 1, "the outstanding one has ended");
    let before = world.now;
    got.push(world.mem_read(FIRST_WINDOW, 1).0);
    got.push(world.config_read(bdf(3, 0), 0).0);
    assert_eq!(world.now, before, "at once");
    Seen::Statuses(got)
}

fn refused_by_device(world: &mut World, status: CplStatus) -> Seen {
    world.device.manner = Manner::Refuses(status);
    Seen::Statuses(vec![world.mem_read(FIRST_WINDOW, 1).0])
}

fn status_of(world: &mut World, request: &Repr<'_>) -> CplStatus {
    let tlp = world.request(request, tag(9));
    Packet::new_checked(&tlp[..]).unwrap().status()
}

fn send(world: &mut World, tlp: &[u8]) -> Seen {
    world.host.handle_tlp(world.now, tlp).unwrap();
    world.turn();
    Seen::Statuses(statuses(&world.to_root))
}

pub(super) fn locked(requester: Bdf, address: u64) -> Kind<'static> {
    let enables = ByteEnables::all(1);
    let hint = None;
    Kind::MemRead { requester, tag: tag(9), address, length_dw: 1, enables, hint, locked: true }
}

pub(super) fn fetch_add(requester: Bdf, address: u64) -> Kind<'static> {
    let op = AtomicOp::FetchAdd;
    Kind::Atomic { op, requester, tag: tag(9), address, hint: None, data: &[1; 4] }
}
