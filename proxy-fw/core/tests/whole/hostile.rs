//! Whatever a device sends, and whatever the other node's records say: nothing panics, nothing that
//! is not a TLP gets out, and nobody else's requests are lost or get other data than their own.

use crate::world::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proxy_core::control::{FromProxy, OperationId, PortState, Reply, Request, SlotState, Term};
use proxy_core::limits::{MAX_FRAME, TLP_BUFFER};
use proxy_core::link::{ChannelId, ClassSet, Link, LinkConfig, LinkState, TlpMeta};
use proxy_core::role::Role;
use proxy_core::stamps::Stamps;
use std::time::Duration;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const CASES: u32 = 64;

/// Addresses that lead somewhere, and others.
fn address() -> impl Strategy<Value = u64> {
    let offset = 0..0x400_u64;
    prop_oneof![
        offset.clone().prop_map(|n| 0x1000 + 4 * n),
        offset.clone().prop_map(|n| FIRST_WINDOW + 4 * n),
        offset.prop_map(|n| SECOND_WINDOW + 4 * n),
        any::<u64>().prop_map(|n| n & !3),
    ]
}

fn requester() -> impl Strategy<Value = Bdf> {
    let known = prop::sample::select(vec![bdf(0, 0), bdf(1, 0), bdf(2, 0), bdf(3, 0), bdf(4, 0)]);
    prop_oneof![4 => known, 1 => any::<u16>().prop_map(Bdf::from_bits)]
}

fn status() -> impl Strategy<Value = CplStatus> {
    prop::sample::select(vec![
        CplStatus::Success,
        CplStatus::UnsupportedRequest,
        CplStatus::ConfigRetry,
        CplStatus::CompleterAbort,
    ])
}

/// A TLP that keeps the rules, if what was chosen does.
fn sound() -> impl Strategy<Value = Vec<u8>> {
    let ids = (requester(), requester(), 0..300_u16);
    (0..10_u8, ids, address(), 1..64_u16, status(), any::<[u8; 8]>(), any::<u8>()).prop_map(
        |(which, (requester, other, tag), address, dwords, status, bytes, small)| {
            let tag = Tag::new(tag).unwrap();
            let data = vec![small; usize::from(dwords) * 4];
            let enables = ByteEnables::all(dwords);
            let register = u16::from(small) * 4;
            let kind = match which {
                0 | 1 => mem_read(requester, tag.get(), address, dwords),
                2 => Kind::MemWrite { requester, tag, address, enables, hint: None, data: &data },
                3 => {
                    let op = AtomicOp::FetchAdd;
                    Kind::Atomic { op, requester, tag, address, hint: None, data: &data[..4] }
                }
                4 => Kind::IoRead { requester, tag, address: address as u32, first_be: 0xf },
                5 => Kind::ConfigRead {
                    type1: false,
                    requester,
                    tag,
                    destination: other,
                    register,
                    first_be: 0xf,
                },
                6 => Kind::ConfigWrite {
                    type1: false,
                    requester,
                    tag,
                    destination: other,
                    register,
                    first_be: bytes[0] & 0xf,
                    data: &data[..4],
                },
                7 => Kind::Message {
                    routing: MsgRouting::from_bits(bytes[1] & 7),
                    code: MsgCode::from_byte(small),
                    requester,
                    tag,
                    fields: bytes,
                    data: &[],
                },
                _ => Kind::Completion {
                    completer: other,
                    requester,
                    tag,
                    status,
                    bcm: false,
                    byte_count: if bytes[0] & 1 == 0 { dwords * 4 } else { dwords },
                    lower_address: bytes[2] & 0x7f,
                    locked: false,
                    data: if status == CplStatus::Success { &data } else { &[] },
                },
            };
            let repr = Repr::new(kind);
            let mut buf = vec![0; repr.buffer_len()];
            let length = repr.emit(&mut buf).unwrap_or(0);
            buf.truncate(length);
            buf
        },
    )
}

/// Anything: bytes, TLPs, and TLPs with bits turned over.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let flipped = (sound(), vec((any::<prop::sample::Index>(), any::<u8>()), 1..4));
    prop_oneof![
        4 => sound(),
        2 => flipped.prop_map(|(mut tlp, flips)| {
            for (at, mask) in flips {
                if !tlp.is_empty() {
                    let at = at.index(tlp.len());
                    tlp[at] ^= mask;
                }
            }
            tlp
        }),
        1 => vec(any::<u8>(), 0..TLP_BUFFER + 8),
    ]
}

fn sideband() -> impl Strategy<Value = Sideband> {
    prop::sample::select(vec![
        Sideband::HotReset,
        Sideband::PerstAssert,
        Sideband::PerstDeassert,
        Sideband::PowerOff,
        Sideband::PowerOn,
        Sideband::LinkDisable,
        Sideband::LinkEnable,
        Sideband::LinkDown,
        Sideband::Flush,
        Sideband::DeviceReady,
        Sideband::DeviceGone,
    ])
}

/// What a node that lies sends.
#[derive(Clone, Debug)]
enum Lie {
    Tlp { class: Class, outstanding: Option<OutstandingRef>, relaxed: bool, tlp: Vec<u8> },
    Sideband(Sideband),
}

fn lie() -> impl Strategy<Value = Lie> {
    let class = prop::sample::select(Class::ALL.to_vec());
    let entry =
        (0..70_u16, 0..4_u16).prop_map(|(index, generation)| OutstandingRef { index, generation });
    let any_tlp = (class, proptest::option::of(entry.clone()), any::<bool>(), noise()).prop_map(
        |(class, outstanding, relaxed, tlp)| Lie::Tlp { class, outstanding, relaxed, tlp },
    );
    // As an honest node would send it, so that it gets further.
    let plausible = (entry, noise()).prop_map(|(entry, tlp)| {
        let class = Packet::new_checked(&tlp[..]).ok().and_then(|packet| packet.class());
        let class = class.unwrap_or(Class::Posted);
        let outstanding = (class != Class::Posted).then_some(entry);
        Lie::Tlp { class, outstanding, relaxed: false, tlp }
    });
    prop_oneof![6 => plausible, 3 => any_tlp, 1 => sideband().prop_map(Lie::Sideband)]
}

/// What the second device has to do with others while the first one, or its box, goes wild: a read
/// of the host that it has not answered, and a read of its own that the host has not answered.
struct Bystander {
    asked: Tag,
    dma: Vec<u8>,
}

impl Bystander {
    fn begin(world: &mut World) -> Self {
        world.second().device.manner = Manner::Holds;
        let asked = Tag::new(77).unwrap();
        let read = mem_read(Bdf::default(), 77, SECOND_WINDOW + 0x80, 8);
        world.host.handle_tlp(world.now, &emit(&Repr::new(read))).unwrap();
        let own = mem_read(bdf(4, 0), 5, 0x7000, 4);
        world.second().device.out.push_back(emit(&Repr::new(own)));
        world.turn();
        let dma = world.to_root.pop_front().expect("the second device's read");
        Self { asked, dma }
    }

    /// Both are answered now, each with its own data.
    fn end(self, world: &mut World) {
        world.to_root.clear();
        world.second().device.received.clear();
        world.second().device.answer(Manner::Answers);
        let dma = Packet::new_checked(&self.dma[..]).unwrap();
        let answer = Repr::new(Kind::Completion {
            completer: Bdf::default(),
            requester: dma.requester(),
            tag: dma.tag(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: 16,
            lower_address: 0,
            locked: false,
            data: &[0x5a; 16],
        });
        world.host.handle_tlp(world.now, &emit(&answer)).unwrap();
        world.turn();
        let expected = world.second().device.memory[0x80..0xa0].to_vec();
        let completions = |tlps: Vec<Vec<u8>>, tag: Tag| -> Vec<Vec<u8>> {
            let packets = tlps.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
            packets
                .filter(|p| p.class() == Some(Class::Completion) && p.tag() == tag)
                .filter(|p| p.status() == CplStatus::Success)
                .map(|p| p.payload().to_vec())
                .collect()
        };
        let to_root: Vec<_> = world.to_root.iter().cloned().collect();
        assert_eq!(completions(to_root, self.asked), [expected]);
        let received = world.second().device.received.clone();
        assert_eq!(completions(received, Tag::new(5).unwrap()), [vec![0x5a; 16]]);
    }
}

/// Everything that got out is a TLP that keeps the rules.
fn check_all_sound<'a>(tlps: impl IntoIterator<Item = &'a Vec<u8>>) {
    for tlp in tlps {
        let packet = Packet::new_checked(&tlp[..]).expect("a TLP");
        Repr::parse(&packet).expect("one that keeps the rules");
    }
}

/// A node in the first box's or its host's place that says what it likes.
struct Liar {
    link: Link,
    stamps: Stamps,
    channel: ChannelId,
    is_host: bool,
}

impl Liar {
    fn new(is_host: bool) -> Self {
        let (local, life, peer, peer_life) =
            if is_host { (HOST, 1, BOX, 7) } else { (BOX, 7, HOST, 1) };
        let config = LinkConfig::default();
        let mut link = Link::new(node(local), life, node(peer), Some(peer_life), is_host, config);
        let channel = link.open_channel(key(1)).unwrap();
        Self { link, stamps: Stamps::new(), channel, is_host }
    }

    /// Moves frames between the liar and the world until nothing moves.
    fn turn(&mut self, world: &mut World) {
        let own = node(if self.is_host { HOST } else { BOX });
        let mut frame = vec![0; MAX_FRAME];
        let mut busy = true;
        while busy {
            world.turn();
            busy = false;
            while let Some((to, lost)) = world.lost.pop_front() {
                if to == own {
                    busy = true;
                    let _ = self.link.handle_frame(world.now, &lost, &mut self.stamps);
                }
            }
            let mut tlp = [0; TLP_BUFFER];
            while self.link.take_received(self.channel, ClassSet::ALL, &mut tlp).is_some() {}
            while self.link.poll_sideband().is_some() {}
            let now = world.now;
            while let Some(out) = self.link.poll_transmit(now, &mut frame, &mut self.stamps) {
                busy = true;
                match self.is_host {
                    true => world.boxes.handle_frame(now, &frame[..out.len]),
                    false => world.host.handle_frame(now, &frame[..out.len]),
                }
            }
        }
    }

    fn open(&mut self, world: &mut World) {
        for _ in 0..100 {
            self.turn(world);
            if self.link.state() == LinkState::Up {
                return;
            }
            world.run(Duration::from_millis(5));
            self.link.handle_timeout(world.now);
        }
        panic!("the link does not open");
    }

    /// Lets time go by, in which it keeps its link.
    fn waits(&mut self, world: &mut World, time: Duration) {
        let step = Duration::from_millis(20);
        for _ in 0..time.as_millis() / step.as_millis() {
            world.run(step);
            self.link.handle_timeout(world.now);
            self.turn(world);
        }
    }

    fn say(&mut self, world: &mut World, lie: &Lie) {
        // What the link itself refuses to send (no TLP's size) is no record.
        let _ = match lie {
            Lie::Sideband(record) => self.link.send_sideband(world.now, self.channel, *record),
            Lie::Tlp { class, outstanding, relaxed, tlp } => {
                let meta = TlpMeta {
                    class: *class,
                    outstanding: *outstanding,
                    relaxed: *relaxed,
                    stamp: None,
                };
                self.link.send_tlp(world.now, self.channel, meta, tlp)
            }
        };
        self.turn(world);
    }
}

/// The device lent to a host that is a liar.
fn lent_to_a_liar() -> (World, Liar) {
    lends_to_a_liar(World::new())
}

/// The same of the first function of a device of two.
fn half_lent_to_a_liar() -> (World, Liar) {
    let mut world = World::new();
    world.device = Registers::with_functions(2, true);
    lends_to_a_liar(world)
}

fn lends_to_a_liar(mut world: World) -> (World, Liar) {
    world.insert();
    world.cut = true;
    let mut liar = Liar::new(true);
    assert_eq!(world.ask_box(Request::SetPeer(peer(HOST, 1))), Ok(Reply::Done));
    let binding = slot_binding(key(1));
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    liar.open(&mut world);
    (world, liar)
}

/// It reaches the function that it was lent, and no other one, by whichever number it has.
#[test]
fn a_liar_configures_no_function_but_its_own() {
    let (mut world, mut liar) = lent_to_a_liar();
    let mut reaches = |function: u8| {
        world.device.received.clear();
        let destination = Bdf::from_bits(bdf(3, 0).bits() | u16::from(function));
        let write = Repr::new(Kind::ConfigWrite {
            type1: false,
            requester: bdf(0, 0),
            tag: Tag::new(1).unwrap(),
            destination,
            register: 0x48,
            first_be: 0xf,
            data: &[0, 0x80, 0, 0],
        });
        let outstanding = Some(OutstandingRef { index: function.into(), generation: 1 });
        let tlp = emit(&write);
        let lie = Lie::Tlp { class: Class::NonPosted, outstanding, relaxed: false, tlp };
        liar.say(&mut world, &lie);
        !world.device.received.is_empty()
    };
    assert!(reaches(0));
    for function in [1, 7, 8, 0x80] {
        assert!(!reaches(function), "function {function}");
    }
}

#[test]
fn a_flush_answers_what_the_device_asked_and_does_not_reset_it() {
    for record in [Sideband::Flush, Sideband::PowerOff] {
        let (mut world, mut liar) = lent_to_a_liar();
        let (resets, now) = (world.device.resets, world.now);
        world.device.out.push_back(emit(&Repr::new(mem_read(bdf(0, 0), 9, 0x1000, 4))));
        world.turn();
        world.device.received.clear();
        liar.say(&mut world, &Lie::Sideband(record));
        let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
        assert_eq!((answer.status(), answer.tag().get()), (CplStatus::UnsupportedRequest, 9));
        assert_eq!((world.device.resets, world.now), (resets, now));
    }
}

#[test]
fn perst_ends_with_the_binding_of_the_host_that_holds_it() {
    let (mut world, mut liar) = lent_to_a_liar();
    liar.say(&mut world, &Lie::Sideband(Sideband::PerstAssert));
    assert!(world.device.perst);
    world.device.received.clear();
    let id = OperationId(u64::MAX);
    world.boxes.handle_control(world.now, id, Term(1), &Request::UnbindSlot(key(1)));
    world.run(Duration::from_millis(99));
    assert!(!world.device.perst);
    // PCIe 5.0 section 6.6.1.
    assert!(world.device.received.is_empty(), "a device just out of reset is left alone");
    world.run(Duration::from_millis(2));
    let released = Ok(Reply::Slot(SlotState::Free));
    assert!(world.box_messages.contains(&FromProxy::Response { id, result: released }));
    let again = world.ask_box(Request::BindSlot(slot_binding(key(2))));
    assert_eq!(again, Ok(Reply::Done), "free is free");
}

fn second() -> BindingKey {
    BindingKey { function: SlotFunction::new(1).unwrap(), ..key(1) }
}

fn state_of_second(world: &World) -> SlotState {
    world.boxes.inventory().find(|e| e.function == second().function).unwrap().state
}

/// It answers nothing meanwhile, which is not its fault.
#[test]
fn a_host_that_holds_perst_puts_no_other_function_into_quarantine() {
    let (mut world, mut liar) = half_lent_to_a_liar();
    liar.say(&mut world, &Lie::Sideband(Sideband::PerstAssert));
    liar.waits(&mut world, Duration::from_secs(10));
    assert_eq!(state_of_second(&world), SlotState::Free);
    liar.say(&mut world, &Lie::Sideband(Sideband::PerstDeassert));
    liar.waits(&mut world, Duration::from_secs(1));
    assert_eq!(state_of_second(&world), SlotState::Free);
    let binding = slot_binding(second());
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    // One that is given back while it is in reset is ready when that is over.
    liar.say(&mut world, &Lie::Sideband(Sideband::PerstAssert));
    // Asked again it is answered again.
    for _ in 0..2 {
        let released = world.ask_box(Request::UnbindSlot(second()));
        assert_eq!(released, Ok(Reply::Slot(SlotState::Releasing)));
    }
    liar.waits(&mut world, Duration::from_secs(10));
    liar.say(&mut world, &Lie::Sideband(Sideband::PerstDeassert));
    liar.waits(&mut world, Duration::from_secs(1));
    assert_eq!(state_of_second(&world), SlotState::Free);
}

/// A reset is told by the record of one function; those of the others may still be on their way.
#[test]
fn what_was_sent_to_any_function_before_a_reset_does_not_come_after_it() {
    let (mut world, mut liar) = half_lent_to_a_liar();
    let binding = slot_binding(second());
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    let of_second = liar.link.open_channel(second()).unwrap();
    let write = |world: &mut World, liar: &mut Liar, value: u8| {
        let (tag, enables) = (Tag::new(0).unwrap(), ByteEnables::all(1));
        let (requester, address, data) = (bdf(0, 0), SECOND_WINDOW, &[value; 4]);
        let kind = Kind::MemWrite { requester, tag, address, enables, hint: None, data };
        let meta = TlpMeta { class: Class::Posted, outstanding: None, relaxed: false, stamp: None };
        liar.link.send_tlp(world.now, of_second, meta, &emit(&Repr::new(kind))).unwrap();
        liar.turn(world);
    };
    world.device.room = ClassSet::NONE;
    write(&mut world, &mut liar, 1);
    liar.say(&mut world, &Lie::Sideband(Sideband::HotReset));
    write(&mut world, &mut liar, 2);
    world.device.received.clear();
    world.device.room = ClassSet::ALL;
    liar.waits(&mut world, Duration::from_secs(1));
    let received = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let writes = received.filter(|tlp| tlp.class() == Some(Class::Posted));
    assert_eq!(writes.map(|tlp| tlp.payload()[0]).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_host_that_resets_again_and_again_keeps_nobody_waiting_for_an_answer() {
    let (mut world, mut liar) = half_lent_to_a_liar();
    let binding = slot_binding(second());
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    let id = OperationId(u64::MAX);
    world.boxes.handle_control(world.now, id, Term(1), &Request::UnbindSlot(second()));
    for _ in 0..40 {
        world.run(Duration::from_millis(50));
        liar.say(&mut world, &Lie::Sideband(Sideband::HotReset));
    }
    let releasing = Ok(Reply::Slot(SlotState::Releasing));
    let answer = FromProxy::Response { id, result: releasing };
    assert!(world.box_messages.contains(&answer));
    world.run(Duration::from_secs(2));
    assert_eq!(state_of_second(&world), SlotState::Free);
}

#[test]
fn records_that_mean_nothing_to_a_box_are_counted() {
    let (mut world, mut liar) = lent_to_a_liar();
    let nothing = [
        Sideband::PerstDeassert,
        Sideband::LinkUp { speed: 3, width: 16 },
        Sideband::PowerOn,
        Sideband::DeviceReady,
        Sideband::Unknown { code: 200, argument: 0 },
    ];
    for record in nothing {
        liar.say(&mut world, &Lie::Sideband(record));
    }
    assert_eq!(world.counter("box: sideband records that mean nothing here"), 5);
    assert_eq!(world.device.resets, 1, "as it was put in");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    })]

    #[test]
    fn a_device_that_says_anything_harms_nobody_else(tlps in vec(noise(), 1..60)) {
        let mut world = World::pair();
        let bystander = Bystander::begin(&mut world);
        for tlp in tlps {
            world.device.out.push_back(tlp);
            world.turn();
        }
        check_all_sound(&world.to_root);
        check_all_sound(&world.second().device.received);
        bystander.end(&mut world);
        world.second().device.manner = Manner::Answers;
        world.run(Duration::from_secs(3));
        check_all_sound(&world.to_root);
        prop_assert_eq!(world.mem_read(SECOND_WINDOW, 1).0, CplStatus::Success);
    }

    #[test]
    fn a_box_that_says_anything_harms_no_other_box(lies in vec(lie(), 1..60)) {
        let mut world = World::new();
        world.cut = true;
        // Before the liar has a port: its link does not wait for all that.
        world.assign_buses();
        world.add_box();
        let mut liar = Liar::new(false);
        prop_assert_eq!(world.ask_host(Request::SetPeer(peer(BOX, 7))), Ok(Reply::Done));
        prop_assert_eq!(world.ask_host(Request::BindPort(port_binding(key(1)))), Ok(Reply::Done));
        liar.open(&mut world);
        world.forget_the_past();
        // Requests of the host for the liar to answer wrongly.
        let bystander = Bystander::begin(&mut world);
        for tag in 0..8 {
            let read = mem_read(Bdf::default(), tag, FIRST_WINDOW, 4);
            let _ = world.host.handle_tlp(world.now, &emit(&Repr::new(read)));
        }
        assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Present, "it is heard");
        for lie in &lies {
            liar.say(&mut world, lie);
        }
        check_all_sound(&world.to_root);
        check_all_sound(&world.second().device.received);
        bystander.end(&mut world);
        world.second().device.manner = Manner::Answers;
        world.run(Duration::from_secs(3));
        check_all_sound(&world.to_root);
        prop_assert_eq!(world.mem_read(SECOND_WINDOW, 1).0, CplStatus::Success);
    }

    #[test]
    fn a_host_that_says_anything_leaves_a_device_that_can_be_lent_again(
        lies in vec(lie(), 1..60),
    ) {
        let (mut world, mut liar) = lent_to_a_liar();
        // Requests of the device for the liar to answer wrongly.
        for tag in 0..8 {
            let read = mem_read(bdf(0, 0), tag, 0x1000, 4);
            world.device.out.push_back(emit(&Repr::new(read)));
        }
        for lie in &lies {
            liar.say(&mut world, lie);
        }
        check_all_sound(&world.device.received);
        let released = world.ask_box(Request::UnbindSlot(key(1)));
        prop_assert_eq!(released, Ok(Reply::Slot(SlotState::Free)));
        check_all_sound(&world.device.received);
    }
}
