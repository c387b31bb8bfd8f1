//! From the start to the loop that never ends.

use crate::layout::{BOARD, LAYOUT, MEMORY};
use crate::machine::Virt;
use crate::virtio::{self, VirtioMac};
use crate::{clint, end, flash, memory, retained, stack, watchdog};
use card_image::{AntiDowngrade, Demands, KeysOfBootLoader, Role, SecurityVersion, SlotId};
use core::time::Duration;
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{CONTROL_VERSION, Hello, PathAddress, RoleKind, Term};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::link::LinkConfig;
use proxy_core::switch::SwitchConfig;
use soc::board::{Board, EthernetMac};
use soc::card::{Card, CardConfig, CardRole};
use soc::ethernet;
use soc::log;
use soc::manage::{Management, ManagementConfig};
use soc::records::{RecordPort, Windows};
use soc::reset;
use soc::settings::{self, Settings, SettingsError};
use soc::update::Update;

/// The places of the interfaces.
const FABRIC: usize = 0;
const PCIE: usize = 1;

/// What waits for what, from the shortest bound to the longest: a link for its acknowledgements, a
/// request for its answer, a device for a completion. The emulator stands still whenever its
/// computer has other things to do.
const GIVE_UP: Duration = Duration::from_secs(5);
const COMPLETION_BOUND: Duration = Duration::from_secs(8);
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(13);

/// Boxes that a host uses at a time, and hosts that a box serves. A further one is refused.
const PEERS: usize = 4;

/// TLPs that wait in the card at the root port, and at each slot, by class.
const HOST_WINDOWS: Windows = Windows([32, 16, 32]);
const BOX_WINDOWS: Windows = Windows([4, 2, 4]);

/// What both roles start with.
struct Start {
    settings: Settings,
    mac: VirtioMac,
    pcie: VirtioMac,
    /// Another number at each start.
    incarnation: u32,
    link: LinkConfig,
    max_frame: usize,
}

/// Stays, since a reset would change nothing: a person has to do something first.
fn stay() -> ! {
    log!(error, "the card waits for a reset");
    loop {
        riscv::asm::wfi();
    }
}

fn settings() -> Result<Result<Settings, SettingsError>, flash::Error> {
    let text = settings::load(&mut flash::open()?, LAYOUT.config())?;
    Ok(text.ok_or(SettingsError::None).and_then(|text| text.parse()))
}

fn start() -> Start {
    // The boot loader leaves them on, for what happens before this.
    riscv::interrupt::disable();
    stack::fill();
    crate::log::start();
    let settings = match settings() {
        Ok(Ok(settings)) => settings,
        Ok(Err(error)) => {
            log!(error, "settings: {}", defmt::Display2Format(&error));
            stay()
        }
        Err(error) => {
            log!(error, "{}", defmt::Display2Format(&error));
            stay()
        }
    };
    log::set_level(settings.log);
    let (Some(mac), Some(pcie)) = (VirtioMac::at(FABRIC), VirtioMac::at(PCIE)) else {
        log!(error, "the machine has not two network interfaces");
        stay()
    };
    let tag = if settings.vlan.is_some() { ethernet::TAG } else { 0 };
    let max_frame = mac.max_frame() - ethernet::HEADER - tag;
    let channels = settings.places.into();
    let link = LinkConfig { give_up: GIVE_UP, max_frame, channels, ..LinkConfig::default() };
    // The time that QEMU took to start is different each time.
    let incarnation = clint::now().as_nanos() as u32 | 1;
    Start { settings, mac, pcie, incarnation, link, max_frame }
}

/// What may be written to the slots of a card that runs from this one.
fn update(running: SlotId, kind: RoleKind) -> Update {
    let role = match kind {
        RoleKind::Host { .. } => Role::Host,
        RoleKind::Box { .. } => Role::Box,
    };
    let demands = Demands {
        board: BOARD,
        role,
        memory: MEMORY,
        keys: KeysOfBootLoader,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    };
    Update::new(LAYOUT, running, demands)
}

fn run<R: CardRole>(start: Start, role: R, kind: RoleKind, windows: Windows) -> ! {
    let Start { settings, mut mac, pcie, incarnation, max_frame, .. } = start;
    let (life, reset) = retained::with(|kept| (reset::life(kept), reset::report(kept)));
    if let Some(reset) = &reset {
        let (cause, text) = (end::name(reset.cause), reset.text.as_str());
        log!(
            info,
            "start {=u32}: {=str} {=u32:#010x} {=str}",
            reset.boots,
            cause,
            reset.place,
            text
        );
    }
    let resets = life.map_or_else(Default::default, |life| life.counts);
    let places = match kind {
        RoleKind::Host { .. } => 0..=0,
        RoleKind::Box { slots } => 1..=slots,
    };
    let path = PathAddress::Ethernet { mac: mac.address(), vlan: settings.vlan };
    let hello = Hello {
        version: CONTROL_VERSION,
        name: settings.name,
        role: kind,
        incarnation,
        node: None,
        paths: [path].into_iter().collect(),
        mtu: max_frame as u16,
        term: Term(0),
    };
    let config = ManagementConfig {
        addressing: settings.addressing,
        manager: settings.manager,
        seed: u64::from(incarnation),
        hello,
    };
    let pool = role.packet_pool();
    let manage = Management::new(clint::now(), &mut mac, config);
    let mut card =
        Card::new(role, manage, CardConfig { vlan: settings.vlan, max_frame, reset, resets });
    let started = life.and_then(|life| life.started);
    let update = started.map(|started| update(started.slot, kind));
    let trying = started.is_some_and(|started| started.trying);
    let trial = started.filter(|started| started.trying && started.fallback);
    let trial = trial.map(|_| clint::now() + Duration::from_secs(settings.trial.into()));
    let pcie = RecordPort::new(pcie, places, windows);
    let mut board = Virt::new(mac, pcie, update, trying, trial);
    // Frames and TLPs, and what says which of them is whose.
    let pool = pool + board.pcie().packet_pool() + virtio::PACKET_POOL;
    let made = memory::variables() + memory::used() - pool;
    // These two lie on the stack, but as long as the firmware runs.
    let fixed = made + size_of_val(&card) + size_of_val(&board);
    let (made, kept) = (stack::used(), stack::in_use());
    log!(info, "up, with {=usize} B of memory, and a packet pool of {=usize} B", fixed, pool);
    log!(info, "on the stack: {=usize} B, and {=usize} B while it was made", kept, made);
    // From here on it counts what running takes.
    stack::fill();
    watchdog::start();
    card.run(&mut board)
}

/// A box card.
pub fn run_box() -> ! {
    let start = start();
    let slots = start.settings.places;
    let role = BoxRole::new(&BoxConfig {
        incarnation: start.incarnation,
        slots: slots.into(),
        link: start.link,
        peers: PEERS,
        recorder: 0,
        completion_bound: COMPLETION_BOUND,
        completion_timeout: COMPLETION_TIMEOUT,
        ..BoxConfig::default()
    });
    run(start, role, RoleKind::Box { slots }, BOX_WINDOWS)
}

/// A host card.
pub fn run_host() -> ! {
    let start = start();
    let ports = start.settings.places;
    let switch = SwitchConfig { ports, ..SwitchConfig::default() };
    let role = HostRole::new(&HostConfig {
        incarnation: start.incarnation,
        switch,
        link: start.link,
        peers: PEERS,
        recorder: 0,
        completion_bound: COMPLETION_BOUND,
    });
    match role {
        Ok(role) => run(start, role, RoleKind::Host { ports }, HOST_WINDOWS),
        Err(error) => {
            log!(error, "switch: {}", defmt::Display2Format(&error));
            stay()
        }
    }
}
