//! A device's writes take a short way where nobody stamps them. Where somebody might, they take the
//! long one: whatever a device sends, both say the same to it, count the same, and bring the host the
//! same.

use crate::world::*;
use proptest::prelude::*;
use proxy_core::control::{PathSet, Reply, Request, SlotBinding, Window};
use proxy_core::stamps::Sampling;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// Windows as they are, moved, and for reading only, with gaps between them; one is above 4 GB.
fn windows(epoch: Epoch) -> impl Iterator<Item = Window> {
    let window = |base, target, write| Window {
        base,
        limit: base + 0xfff,
        node: node(HOST),
        path_set: PathSet::FIRST,
        epoch,
        target,
        read: true,
        write,
    };
    let high = 5 << 32;
    [
        window(0x1000, 0x1000, true),
        window(0x2000, 0x2000, true),
        window(0x3000, 0xa000, true),
        window(0x5000, 0x5000, false),
        window(high, high, true),
    ]
    .into_iter()
}

/// A device that is lent with these windows; its second function is not.
fn lent(sampling: Sampling) -> World {
    let mut world = World::new();
    world.device = Registers::with_functions(2, true);
    world.insert();
    world.introduce();
    let key = key(1);
    let binding = SlotBinding { windows: windows(key.epoch).collect(), ..slot_binding(key) };
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    assert_eq!(world.ask_host(Request::BindPort(port_binding(key))), Ok(Reply::Done));
    world.run(std::time::Duration::from_millis(50));
    world.assign_buses();
    assert_eq!(world.ask_box(Request::SetSampling(sampling)), Ok(Reply::Done));
    world.forget_the_past();
    world
}

/// What a device may send, mostly writes at the windows' edges.
fn tlps() -> impl Strategy<Value = Vec<u8>> {
    let requester = prop_oneof![6 => Just(0), 1 => Just(1), 1 => Just(5)]
        .prop_map(|function| Bdf::from_bits(bdf(3, 0).bits() | function));
    let base = prop_oneof![
        Just(0x1000_u64),
        Just(0x2000),
        Just(0x3000),
        Just(0x4000),
        Just(0x5000),
        Just(5 << 32),
    ];
    let place = (base, prop_oneof![Just(0_u64), Just(0xf80), Just(0xffc), 0..0x1000_u64]);
    let address = place.prop_map(|(base, offset)| (base + offset) & !3);
    let header = (0..8_u8, any::<[bool; 3]>(), 0..8_u8, prop::bool::weighted(0.1), 0..3_u8);
    (requester, address, prop_oneof![Just(1_usize), Just(2), Just(32), Just(64)], header, 0..8_u8)
        .prop_map(|(requester, address, dwords, (class, bits, at, poisoned, digest), what)| {
            let data = vec![address as u8 ^ class; 4 * dwords];
            let block = address & !0xfff;
            let kind = match what {
                0 => mem_read(requester, u16::from(class), block, dwords as u16),
                _ => mem_write(requester, block, &data),
            };
            let mut repr = Repr::new(kind);
            repr.traffic_class = class;
            let [relaxed_ordering, no_snoop, id_based_ordering] = bits;
            repr.attributes = Attributes { relaxed_ordering, no_snoop, id_based_ordering };
            repr.address_type =
                if at == 0 { AddressType::Translated } else { AddressType::Untranslated };
            repr.poisoned = poisoned;
            repr.digest = (digest == 0).then_some(0x1234_5678);
            let mut bytes = vec![0; repr.buffer_len()];
            let length = repr.emit(&mut bytes).unwrap();
            bytes.truncate(length);
            // Some cross a boundary of 4 KB, and are malformed.
            let last = if bytes[0] & 0x20 == 0 { 8 } else { 12 };
            bytes[last + 2] |= (address >> 8) as u8 & 0xf;
            bytes[last + 3] |= address as u8;
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_do_the_same(
        rounds in prop::collection::vec(prop::collection::vec(tlps(), 1..60), 1..6),
    ) {
        let never = Sampling::OneIn(u32::MAX);
        let mut worlds = [lent(Sampling::Off), lent(never)];
        worlds[1].now = worlds[0].now.max(worlds[1].now);
        worlds[0].now = worlds[1].now;
        for round in rounds {
            for tlp in &round {
                let [short, long] = &mut worlds;
                let said = [short, long].map(|w| w.boxes.handle_tlp(w.now, slot(1), tlp));
                prop_assert_eq!(said[0], said[1]);
            }
            worlds.iter_mut().for_each(World::turn);
        }
        let [short, long] = &worlds;
        prop_assert_eq!(&short.to_root, &long.to_root);
        prop_assert!(short.boxes.counters().eq(long.boxes.counters()));
    }
}

#[test]
fn both_ways_find_no_room_at_the_same_write() {
    let write = emit(&Repr::new(mem_write(bdf(3, 0), 0x1000, &[7; 128])));
    let taken = [Sampling::Off, Sampling::OneIn(u32::MAX)].map(|sampling| {
        let mut world = lent(sampling);
        let now = world.now;
        let taken = (0..).find(|_| world.boxes.handle_tlp(now, slot(1), &write).is_err());
        assert_eq!(world.counter("box: TLPs that had to wait for room"), 1);
        world.turn();
        assert_eq!(world.to_root.len(), taken.unwrap());
        taken
    });
    assert_eq!(taken[0], taken[1]);
}
