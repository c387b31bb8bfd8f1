//! From the start to the loop that never ends.

use crate::end;
use crate::hardware::{self, IMAGES, card, now};
use crate::layout::{MAX_FRAME, NAME, RETAINED_ROOM, TLP_RECEIVE};
use crate::machine::{self, Soc};
use crate::panel::Panel;
use crate::shared::{self, Mac, Parts, Pcie};
use board_common::memory::Arena;
use board_common::stack;
use core::time::Duration;
use proxy_core::control::{Name, ResetCause, RoleKind};
use soc::blocks::id::{self, Side};
use soc::blocks::mac::MacPort;
use soc::blocks::tlp::TlpPort;
use soc::board::{Board, SlotWire, Windows};
use soc::card::CardRole;
use soc::log;
use soc::reset::{self, Started};
use soc::slots::Slots;
use soc::start::{Bounds, Start};

/// What is allocated at the start.
#[global_allocator]
static ARENA: Arena<{ 3 << 20 }> = Arena::new();

/// On a network of some microseconds, and with devices whose Completion Timeout is 50 ms.
const BOUNDS: Bounds = Bounds {
    // Not below what a program takes that holds acknowledgements back.
    resend: [Duration::from_millis(1), Duration::from_millis(2)],
    open_retry: Duration::from_millis(4),
    give_up: Duration::from_millis(10),
    completion: Duration::from_millis(30),
    completion_timeout: Duration::from_millis(50),
    peers: 4,
}
.checked();

/// TLPs that wait in the card at the root port, and at each slot of sixteen, by class: as many writes of
/// a device as its share of the packet pool has room for.
const HOST_WINDOWS: Windows = Windows([32, 16, 32]);
const SLOT_WINDOWS: Windows = Windows([7, 2, 4]);

/// What both roles start with.
struct Begun {
    start: Start,
    mac: Mac,
    parts: PcieParts,
    watchdog: machine::Watchdog,
}

/// What the PCIe side is made of.
type PcieParts = (soc::blocks::tlp::TlpRings<shared::Words>, shared::SharedBuffers);

/// Does not start, and says why. A new image gives way to the one before at once: settings and gateware
/// stay as they are while it waits, and each start counts. Any other stays, since a reset would change
/// nothing: a person has to do something first.
fn refuse(watchdog: machine::Watchdog, why: &dyn core::fmt::Display) -> ! {
    let life = shared::with_retained(|kept| reset::life(kept));
    if life.and_then(|life| life.started).is_some_and(Started::gives_way) {
        end::end(ResetCause::Software, 0, format_args!("a new image does not start: {why}"));
    }
    log!(error, "{}", defmt::Display2Format(why));
    log!(error, "the card waits for a reset");
    machine::wait_for_reset(watchdog)
}

#[inline(never)] // its stack is needed once
fn begin(side: impl FnOnce(u8) -> Side) -> Begun {
    // The boot loader leaves them on, for what happens before this.
    riscv::interrupt::disable();
    stack::fill();
    board_common::log::start();
    if !machine::is_started_by_boot_loader() {
        // One of LiteX's own loaders started this firmware, from no slot.
        shared::with_retained(|kept| reset::begin(kept, end::hardware_cause()));
    }
    // From here on: what hangs while the card starts is a hang, too.
    let watchdog = machine::start_watchdog();
    let settings = match hardware::settings() {
        Ok(Ok(settings)) => settings,
        Ok(Err(error)) => refuse(watchdog, &format_args!("settings: {error}")),
        Err(error) => refuse(watchdog, &error),
    };
    log::set_level(settings.log);
    let has = match id::check(card().id(), NAME, side(settings.places), TLP_RECEIVE) {
        Ok(has) => has,
        Err(error) => refuse(watchdog, &error),
    };
    if has.crc_engine() {
        hardware::use_crc_engine();
    }
    let address = match hardware::address() {
        Ok(address) => address,
        Err(_) => refuse(watchdog, &"the identity EEPROM on I2C bus 0 does not answer"),
    };
    hardware::tell_of_card();
    let Parts { mac_rings, frames, tlp_rings, tlps } = shared::take();
    let block = card().mac(0).expect("there is one");
    let mac = MacPort::new(block, mac_rings, frames, address, MAX_FRAME);
    // How long all this took, to the nanosecond, and how often the card was started.
    let started = u32::from(card().reset().status().read().count()) << 24;
    let incarnation = (now().as_nanos() as u32).wrapping_add(started) | 1;
    Begun {
        start: Start::new(settings, BOUNDS, &mac, incarnation),
        mac,
        parts: (tlp_rings, tlps),
        watchdog,
    }
}

#[inline(never)] // its stack is needed once
fn run<R: CardRole>(
    watchdog: machine::Watchdog,
    start: Start,
    (mut mac, pcie): (Mac, Pcie),
    role: (R, RoleKind),
) -> ! {
    let (life, reset) = shared::with_retained(|kept| (reset::life(kept), reset::report(kept)));
    let (links, kind) = (role.0.packet_pool(), role.1);
    let pool = links + mac.packet_pool() + pcie.packet_pool();
    let slots = life
        .and_then(|life| life.started)
        .map(|started| Slots::new(&IMAGES, started, kind, start.settings(), now()));
    let mut card = start.card(role, now(), &mut mac, life.as_ref(), reset);
    // What links have is in the arena, and the packet pool's; what the shared memory has is not among the
    // variables.
    let shared = (shared::RINGS + RETAINED_ROOM) as usize;
    let made = ARENA.variables() + ARENA.used() - links + shared;
    let (first, places) = match kind {
        RoleKind::Host { .. } => (SlotWire::HOST, 1),
        RoleKind::Box { slots } => (SlotWire(1), slots),
    };
    let mut board = Soc::new(mac, pcie, Panel::new(now(), first, places), watchdog, slots);
    let fixed = made + size_of_val(&card) + size_of_val(&board);
    log!(info, "up, with {=usize} B of memory, and a packet pool of {=usize} B", fixed, pool);
    // From here on it counts what running takes.
    stack::fill();
    ARENA.close();
    board.feed_watchdog();
    card.run(&mut board)
}

/// What the devices are called until they say what they are.
fn models(slots: u8) -> impl Iterator<Item = Name> {
    (0..slots).map(|_| Name::try_from("device").expect("a name"))
}

/// A box card.
pub fn run_box() -> ! {
    let Begun { start, mac, parts: (rings, memory), watchdog } = begin(Side::Box);
    let role = match start.box_role() {
        Ok(role) => role,
        Err(error) => refuse(watchdog, &format_args!("settings: {error}")),
    };
    let models = models(start.settings().places);
    let windows = SLOT_WINDOWS.of_each(start.settings().places, HOST_WINDOWS);
    let pcie = TlpPort::of_box(card(), rings, memory, windows, models);
    run(watchdog, start, (mac, pcie), role)
}

/// A host card.
pub fn run_host() -> ! {
    let Begun { start, mac, parts: (rings, memory), watchdog } = begin(|_| Side::Host);
    let pcie = TlpPort::of_host(card(), rings, memory, HOST_WINDOWS);
    match start.host_role() {
        Ok(role) => run(watchdog, start, (mac, pcie), role),
        Err(error) => refuse(watchdog, &error),
    }
}
