//! From the start to the loop that never ends.

use crate::layout::{LAYOUT, RETAINED_ROOM};
use crate::machine::Virt;
use crate::virtio::{self, VirtioMac};
use crate::{clint, end, flash, retained, watchdog};
use board_common::memory::Arena;
use board_common::stack;
use core::fmt;
use core::time::Duration;
use proxy_core::control::{ResetCause, RoleKind};
use proxy_core::limits::{LINK_MAX_RTO, LINK_MIN_RTO, LINK_OPEN_RETRY};
use soc::board::{Board, Windows};
use soc::card::CardRole;
use soc::log;
use soc::records::RecordPort;
use soc::reset::{self, Started};
use soc::settings::{self, Settings, SettingsError};
use soc::slots::Slots;
use soc::start::{Bounds, Start};

/// What is allocated at the start.
#[global_allocator]
static ARENA: Arena<{ 3 << 20 }> = Arena::new();

/// The places of the interfaces.
const FABRIC: usize = 0;
const PCIE: usize = 1;

/// The emulator stands still whenever its computer has other things to do.
const BOUNDS: Bounds = Bounds {
    resend: [LINK_MIN_RTO, LINK_MAX_RTO],
    open_retry: LINK_OPEN_RETRY,
    give_up: Duration::from_secs(5),
    completion: Duration::from_secs(8),
    completion_timeout: Duration::from_secs(13),
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
    mac: VirtioMac,
    pcie: VirtioMac,
}

/// Does not start, and says why. A new image gives way to the one before at once: settings and machine
/// stay as they are while it waits, and each start counts. Any other stays, since a reset would change
/// nothing: a person has to do something first.
fn refuse(why: fmt::Arguments<'_>) -> ! {
    let life = retained::with(|kept| reset::life(kept));
    if life.and_then(|life| life.started).is_some_and(Started::gives_way) {
        end::end(ResetCause::Software, 0, format_args!("a new image does not start: {why}"));
    }
    log!(error, "{}", defmt::Display2Format(&why));
    log!(error, "the card waits for a reset");
    watchdog::stop();
    loop {
        riscv::asm::wfi();
    }
}

fn settings() -> Result<Result<Settings, SettingsError>, flash::Error> {
    let text = settings::load_twice(flash::open, LAYOUT.config())?;
    Ok(text.ok_or(SettingsError::None).and_then(|text| text.parse()))
}

fn begin() -> Begun {
    // The boot loader leaves them on, for what happens before this.
    riscv::interrupt::disable();
    stack::fill();
    board_common::log::start();
    // From here on: a new image that hangs while it starts costs a try, too.
    watchdog::start();
    let settings = match settings() {
        Ok(Ok(settings)) => settings,
        Ok(Err(error)) => refuse(format_args!("settings: {error}")),
        Err(error) => refuse(format_args!("{error}")),
    };
    // The longest part of the start is over: reading two erase blocks.
    watchdog::feed();
    log::set_level(settings.log);
    let (Some(mac), Some(pcie)) = (VirtioMac::at(FABRIC), VirtioMac::at(PCIE)) else {
        refuse(format_args!("the machine has not two network interfaces"))
    };
    // The time that QEMU took to start is different each time.
    let incarnation = clint::now().as_nanos() as u32 | 1;
    Begun { start: Start::new(settings, BOUNDS, &mac, incarnation), mac, pcie }
}

fn run<R: CardRole>(begun: Begun, role: (R, RoleKind), windows: Windows) -> ! {
    let Begun { start, mut mac, pcie } = begun;
    let (life, reset) = retained::with(|kept| (reset::life(kept), reset::report(kept)));
    let places = match role.1 {
        RoleKind::Host { .. } => 0..=0,
        RoleKind::Box { slots } => 1..=slots,
    };
    let (pool, kind) = (role.0.packet_pool(), role.1);
    let started = life.and_then(|life| life.started);
    let slots = started
        .map(|started| Slots::new(&flash::IMAGES, started, kind, start.settings(), clint::now()));
    let mut card = start.card(role, clint::now(), &mut mac, life.as_ref(), reset);
    let pcie = RecordPort::new(pcie, places, windows);
    let mut board = Virt::new(mac, pcie, slots);
    // Frames and TLPs, and what says which of them is whose.
    let pool = pool + board.pcie().packet_pool() + virtio::PACKET_POOL;
    let made = ARENA.variables() + ARENA.used() - pool + RETAINED_ROOM as usize;
    // These two lie on the stack, but as long as the firmware runs.
    let fixed = made + size_of_val(&card) + size_of_val(&board);
    let (made, kept) = (stack::used(), stack::in_use());
    log!(info, "up, with {=usize} B of memory, and a packet pool of {=usize} B", fixed, pool);
    log!(info, "on the stack: {=usize} B, and {=usize} B while it was made", kept, made);
    // From here on it counts what running takes.
    stack::fill();
    ARENA.close();
    watchdog::feed();
    card.run(&mut board)
}

/// A box card.
pub fn run_box() -> ! {
    let begun = begin();
    match begun.start.box_role() {
        Ok(role) => {
            let windows = SLOT_WINDOWS.of_each(begun.start.settings().places, HOST_WINDOWS);
            run(begun, role, windows)
        }
        Err(error) => refuse(format_args!("settings: {error}")),
    }
}

/// A host card.
pub fn run_host() -> ! {
    let begun = begin();
    match begun.start.host_role() {
        Ok(role) => run(begun, role, HOST_WINDOWS),
        Err(error) => refuse(format_args!("switch: {error}")),
    }
}
