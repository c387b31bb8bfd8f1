//! A device's request to a host.

use super::from_host::{fetch_add, locked};
use super::*;
use proxy_core::control::{PathSet, Reply, SlotBinding, Window};
use proxy_core::link::ClassSet;
use proxy_core::switch::ResetKind;
use std::time::Duration;

const DEVICE: Bdf = Bdf::from_bits(0x0300);
const FOR_DEVICE: &str = "box: completions synthesised for devices";

pub(super) const CASES: &[Case] = &[
    Case {
        cause: "no window: the address is in none of the function's DMA windows",
        run: |world| {
            narrow(world, true, false);
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x5000, 1)))
        },
        counters: &["box: reads outside every DMA window"],
    },
    Case {
        cause: "window does not allow reading, or writing",
        run: |world| {
            // An atomic operation reads, too.
            narrow(world, false, true);
            let refused = Seen::Statuses(vec![CplStatus::UnsupportedRequest]);
            assert_eq!(send(world, &Repr::new(fetch_add(DEVICE, 0x1000))), refused);
            narrow(world, true, false);
            let write = Repr::new(mem_write(DEVICE, 0x1000, &[1; 4]));
            assert_eq!(send(world, &write), Seen::Statuses(vec![]));
            assert!(world.to_root.is_empty());
            send(world, &Repr::new(fetch_add(DEVICE, 0x1000)))
        },
        counters: &["box: reads outside every DMA window", "box: writes outside every DMA window"],
    },
    Case {
        cause: "AT is not 0: translation is granted to no device",
        run: |world| {
            let mut read = Repr::new(mem_read(DEVICE, 9, 0x1000, 1));
            read.address_type = AddressType::Translated;
            send(world, &read)
        },
        counters: &["box: requests with a translated address"],
    },
    Case {
        cause: "bus master off in the port",
        run: |world| {
            world.config_write(PORT, COMMAND, 0x0002);
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)))
        },
        counters: &["switch.bus_master_off"],
    },
    Case {
        cause: "bus master off in the upstream port",
        run: |world| {
            world.config_write(UPSTREAM, COMMAND, 0x0002);
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)))
        },
        counters: &["switch.bus_master_off"],
    },
    Case {
        cause: "the port's own window: the device means itself",
        run: |world| send(world, &Repr::new(mem_read(DEVICE, 9, FIRST_WINDOW, 1))),
        counters: &["switch.own_window"],
    },
    Case {
        cause: "blocked by ACS Source Validation",
        run: |world| {
            world.config_write(PORT, ACS_CONTROL, 1 << 16);
            send(world, &Repr::new(mem_read(bdf(9, 0), 9, 0x1000, 1)))
        },
        counters: &["switch.acs_source_validation"],
    },
    Case {
        cause: "stale, unbound",
        run: |world| {
            world.ask_host(force(0)).unwrap();
            world.ask_box(Request::UnbindSlot(key(1))).unwrap();
            clean(world);
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)))
        },
        counters: &["box: non-posted requests of functions that are not lent"],
    },
    Case {
        cause: "link between the proxies down, binding failed",
        run: |world| {
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)));
            world.cut = true;
            world.run(Duration::from_millis(1900));
            let Seen::Statuses(mut got) = received(world) else { unreachable!() };
            world.device.received.clear();
            let Seen::Statuses(after) = send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)))
            else {
                unreachable!()
            };
            assert_eq!((got.len(), after.len()), (1, 1));
            got.extend(after);
            Seen::Statuses(got)
        },
        counters: &[FOR_DEVICE, "box: non-posted requests of functions that are not lent"],
    },
    Case {
        cause: "asked before the device was reset",
        run: |world| {
            world.root_room = ClassSet::ALL.without(Class::NonPosted);
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)));
            world.host.handle_reset(world.now, ResetKind::Fundamental);
            world.assign_buses();
            world.run(Duration::from_millis(2100));
            received(world)
        },
        counters: &["host: TLPs from devices from before their reset"],
    },
    Case {
        cause: "timeout: the host does not answer",
        run: |world| {
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)));
            world.run(Duration::from_millis(2100));
            received(world)
        },
        counters: &[FOR_DEVICE, "host: device requests timed out at the root complex"],
    },
    Case {
        cause: "no memory there in the host",
        run: |world| answered_by_host(world, CplStatus::UnsupportedRequest),
        counters: &["switch.unsuccessful_completions"],
    },
    Case {
        cause: "aborted: the host cannot do it",
        run: |world| answered_by_host(world, CplStatus::CompleterAbort),
        counters: &["switch.unsuccessful_completions"],
    },
    Case {
        cause: "request is poisoned",
        run: |world| {
            world.config_write(UPSTREAM, COMMAND, 0x0047);
            let mut write = Repr::new(mem_write(DEVICE, 0x1000, &[1; 4]));
            write.poisoned = true;
            send(world, &write);
            let passed =
                |tlp: &&Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::MWr;
            let tlp = world.to_root.iter().find(passed).unwrap();
            Seen::Passed { poisoned: Packet::new_checked(&tlp[..]).unwrap().is_poisoned() }
        },
        counters: &["switch.poisoned_passed"],
    },
    Case {
        cause: "request is malformed",
        run: |world| {
            let write = emit(&Repr::new(mem_write(DEVICE, 0x1000, &[1; 8])));
            world.device.out.push_back(write[..write.len() - 4].to_vec());
            world.turn();
            received(world)
        },
        counters: &["box: malformed TLPs from devices"],
    },
    Case {
        cause: "payload larger than the port's Max_Payload_Size",
        run: |world| {
            let write = Repr::new(mem_write(DEVICE, 0x1000, &[1; 256]));
            send(world, &write)
        },
        counters: &["switch.payload_too_large"],
    },
    Case {
        cause: "locked request",
        run: |world| send(world, &Repr::new(locked(DEVICE, 0x1000))),
        counters: &["switch.unsupported_type"],
    },
    Case {
        cause: "configuration request",
        run: |world| {
            send(
                world,
                &Repr::new(Kind::ConfigRead {
                    type1: false,
                    requester: DEVICE,
                    tag: tag(9),
                    destination: bdf(4, 0),
                    register: 0,
                    first_be: 0xf,
                }),
            )
        },
        counters: &["box: requests that no device may make"],
    },
    Case {
        cause: "PTM request, or a message that is not supported",
        run: |world| send(world, &message(MsgCode::PtmRequest)),
        counters: &["switch.unsupported_message"],
    },
    Case {
        cause: "vendor-defined message of type 1 that nobody takes",
        run: |world| send(world, &message(MsgCode::VendorDefined1)),
        counters: &["switch.ignored_message"],
    },
    Case {
        cause: "tag that is in use, or above 255 where 10-bit tags are off",
        run: |world| {
            send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)));
            send(world, &Repr::new(mem_read(DEVICE, 0x109, 0x1000, 1)));
            let seen = send(world, &Repr::new(mem_read(DEVICE, 9, 0x2000, 1)));
            assert_eq!(world.to_root.len(), 1, "only the first one went out");
            seen
        },
        counters: &["box: requests with a tag that is in use"],
    },
];

/// The device sends this; what it got when nothing moves any more.
fn send(world: &mut World, repr: &Repr<'_>) -> Seen {
    world.device.out.push_back(emit(repr));
    world.turn();
    received(world)
}

fn received(world: &World) -> Seen {
    let own = |tlp: &&Vec<u8>| {
        // The proxy's own configuration requests are no answers.
        Packet::new_checked(&tlp[..]).unwrap().class() == Some(Class::Completion)
    };
    Seen::Statuses(statuses(world.device.received.iter().filter(own)))
}

fn answered_by_host(world: &mut World, status: CplStatus) -> Seen {
    send(world, &Repr::new(mem_read(DEVICE, 9, 0x1000, 1)));
    let read = world.to_root.pop_front().unwrap();
    let read = Packet::new_checked(&read[..]).unwrap();
    let answer = Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: read.requester(),
        tag: read.tag(),
        status,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[],
    });
    world.host.handle_tlp(world.now, &emit(&answer)).unwrap();
    world.turn();
    received(world)
}

fn message(code: MsgCode) -> Repr<'static> {
    Repr::new(Kind::Message {
        routing: MsgRouting::Local,
        code,
        requester: DEVICE,
        tag: tag(0),
        fields: [0; 8],
        data: &[],
    })
}

/// Another world, where the device may read, or write, 4 KB of the host's memory and nothing else.
fn narrow(world: &mut World, read: bool, write: bool) {
    *world = World::new();
    world.insert();
    world.introduce();
    let window = Window {
        base: 0x1000,
        limit: 0x1fff,
        target: 0x1000,
        read,
        write,
        ..Window::everything(node(HOST), PathSet::FIRST, key(1).epoch)
    };
    let binding = SlotBinding { windows: [window].into_iter().collect(), ..slot_binding(key(1)) };
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    assert_eq!(world.ask_host(Request::BindPort(port_binding(key(1)))), Ok(Reply::Done));
    world.run(Duration::from_millis(50));
    world.assign_buses();
    prepare(world);
}
