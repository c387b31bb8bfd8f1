//! A proxy that pretends to be a card: with the slots, the updates and the boot loader of real
//! ones, on a flash in memory. It restarts when it is told to, and by itself when its image is one
//! that never joins.

use super::eventually;
use super::fake::{Fake, Script, Spec, State, fresh};
use card_image::{
    AntiDowngrade, BoardName, Demands, Header, ImageParts, KeyId, KeysOfBootLoader, Layout,
    LayoutParts, Region, Requirements, Role, SecurityVersion, SlotId, TrustedKey, Version,
    public_key, seal,
};
use nor_model::{Direct, Nor, Part};
use proxy_core::control::{
    ControlError, FirmwareError, FirmwareRequest, Request, RoleKind, SlotState,
};
use soc::boot::choose;
use soc::reset::{self, RETAINED};
use soc::update::{FirmwareAnswer, Update};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECRET: [u8; 32] = [3; 32];
const KEY: KeyId = KeyId(1);
const MEMORY: Region = Region { start: 0x8000_0000, len: 4096 };

/// Images from this major version on never join.
pub const BROKEN: u16 = 100;

/// Slots of 4 KB, and progress that is recorded every KB.
fn layout() -> Layout {
    let packed = Layout::packed(16 << 10, 1 << 10, 1 << 10, 4 << 10).unwrap();
    Layout::new(LayoutParts { progress: 1 << 10, ..*packed.parts() }).unwrap()
}

fn demands<K>(role: Role, keys: K, anti_downgrade: AntiDowngrade) -> Demands<K> {
    Demands {
        board: BoardName::new("small").unwrap(),
        role,
        memory: MEMORY,
        keys,
        anti_downgrade,
        lowest_security: SecurityVersion(0),
    }
}

/// What an image says of itself.
#[derive(Clone, Copy)]
pub struct Label {
    pub board: &'static str,
    pub role: Role,
    pub major: u16,
    pub security: u32,
    pub length: usize,
}

impl Label {
    /// One that every card here takes.
    pub fn version(major: u16) -> Self {
        Self { board: "small", role: Role::Any, major, security: 1, length: 3000 }
    }

    pub fn unsigned(self) -> (Header, Vec<u8>) {
        let payload: Vec<u8> =
            (0..self.length).map(|at| (at * 7 + usize::from(self.major)) as u8).collect();
        let parts = ImageParts {
            board: BoardName::new(self.board).unwrap(),
            role: self.role,
            version: Version { major: self.major, ..Version::default() },
            security: SecurityVersion(self.security),
            load: MEMORY.start,
            entry: MEMORY.start,
        };
        (parts.unsigned(&payload).unwrap(), payload)
    }

    /// The image, signed with the key that cards trust.
    pub fn image(self) -> Vec<u8> {
        let (header, payload) = self.unsigned();
        [&seal(header, KEY, &SECRET).unwrap().emit()[..], &payload].concat()
    }
}

/// What a card keeps, and what happened to it.
struct Inside {
    flash: Direct<4, 1024>,
    update: Option<Update>,
    role: Role,
    /// As its settings have it.
    anti_downgrade: AntiDowngrade,
    restart: bool,
    /// How long it takes for a piece.
    slow: Duration,
    /// Offsets of the pieces that came.
    pieces: Vec<u32>,
    /// When it was told to restart and when it had joined again.
    away: Vec<(Instant, Option<Instant>)>,
    /// How long it stays connected after it was told to restart.
    lingers: Duration,
    /// It does not come back when it restarts.
    stays_away: bool,
    /// What it does instead of what it is asked.
    instead: Option<Instead>,
}

type Instead = Box<dyn FnMut(&FirmwareRequest) -> Option<Script> + Send>;

impl Inside {
    /// What the boot loader starts; whether that joins.
    fn boot(&mut self) -> bool {
        let keys = [TrustedKey { id: KEY, key: public_key(&SECRET) }];
        let requirements: Requirements<'_> = demands(Role::Any, &keys[..], self.anti_downgrade);
        let life = reset::begin(&mut [0; RETAINED], None);
        let mut said = String::new();
        let chosen = choose(&mut self.flash, layout(), &requirements, true, &life, &mut said);
        let chosen = chosen.unwrap_or_else(|| panic!("{said}"));
        self.run(chosen.started.slot);
        chosen.boot.header.version.major < BROKEN
    }

    /// The firmware that was started from this slot.
    fn run(&mut self, slot: SlotId) {
        let demands = demands(self.role, KeysOfBootLoader, self.anti_downgrade);
        self.update = Some(Update::new(layout(), slot, demands));
    }

    fn healthy(&mut self) {
        let update = self.update.as_mut().unwrap();
        update.report_healthy(&mut self.flash).unwrap();
        if let Some((_, back)) = self.away.last_mut() {
            back.get_or_insert_with(Instant::now);
        }
    }

    fn ask(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, FirmwareError> {
        match request {
            FirmwareRequest::Piece { offset, .. } => {
                std::thread::sleep(self.slow);
                self.pieces.push(*offset);
            }
            FirmwareRequest::Restart { .. } if !self.restart => {
                self.restart = true;
                self.away.push((Instant::now(), None));
            }
            _ => {}
        }
        self.update.as_mut().unwrap().handle(&mut self.flash, request)
    }

    fn answer(&mut self, request: &FirmwareRequest) -> Script {
        match self.instead.as_mut().and_then(|instead| instead(request)) {
            Some(Script::ObeyAndVanish) => {
                let _ = self.ask(request);
                Script::Vanish
            }
            Some(other) => other,
            None => match self.ask(request) {
                Ok(answer) => Script::Answer(Box::new(answer.into())),
                Err(error) => Script::Refuse(ControlError::Firmware(error)),
            },
        }
    }
}

/// A card that runs until it is dropped.
pub struct Card {
    inside: Arc<Mutex<Inside>>,
    off: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Card {
    /// One that runs version 1.
    pub fn start(control: SocketAddr, spec: Spec) -> Self {
        let role = match spec.role {
            RoleKind::Host { .. } => Role::Host,
            RoleKind::Box { .. } => Role::Box,
        };
        let mut nor = Nor::new(Part::small(16 << 10), 1);
        nor.preload(layout().slot(SlotId::A).start, &Label::version(1).image());
        let inside = Arc::new(Mutex::new(Inside {
            flash: Direct(nor),
            update: None,
            role,
            anti_downgrade: AntiDowngrade::default(),
            restart: false,
            slow: Duration::ZERO,
            pieces: Vec::new(),
            away: Vec::new(),
            lingers: Duration::from_millis(50),
            stays_away: false,
            instead: None,
        }));
        let off = Arc::new(AtomicBool::new(false));
        let (life, end) = (inside.clone(), off.clone());
        let thread = std::thread::spawn(move || live(control, spec, &life, &end));
        Self { inside, off, thread: Some(thread) }
    }

    pub fn is_slow(&self, piece: Duration) {
        self.inside.lock().unwrap().slow = piece;
    }

    pub fn lingers(&self, after: Duration) {
        self.inside.lock().unwrap().lingers = after;
    }

    pub fn stays_away(&self, stays: bool) {
        self.inside.lock().unwrap().stays_away = stays;
    }

    /// Its settings say `downgrade = allow` from now on.
    pub fn allows_downgrade(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.anti_downgrade = AntiDowngrade::Off;
        let slot = inside.update.as_ref().unwrap().running();
        inside.run(slot);
    }

    /// Offsets of the pieces that came.
    pub fn pieces(&self) -> Vec<u32> {
        self.inside.lock().unwrap().pieces.clone()
    }

    /// From when to when it was away, once.
    pub fn away(&self) -> (Instant, Instant) {
        let away = self.inside.lock().unwrap().away.clone();
        let [(from, Some(to))] = away[..] else { panic!("{away:?}") };
        (from, to)
    }

    /// How often it was told to restart.
    pub fn restarts(&self) -> usize {
        self.inside.lock().unwrap().away.len()
    }

    /// Does something else than what it is asked, until it is told to obey.
    pub fn does_instead(
        &self,
        instead: impl FnMut(&FirmwareRequest) -> Option<Script> + Send + 'static,
    ) {
        self.inside.lock().unwrap().instead = Some(Box::new(instead));
    }

    pub fn obeys(&self) {
        self.inside.lock().unwrap().instead = None;
    }

    /// Loses its power and gets it back; whatever connects from here on has started anew.
    pub fn power_cycle(&self) {
        self.inside.lock().unwrap().restart = true;
        eventually("the start of a card", || (!self.inside.lock().unwrap().restart).then_some(()));
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.off.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn live(control: SocketAddr, mut spec: Spec, inside: &Arc<Mutex<Inside>>, off: &AtomicBool) {
    let state = fresh(&spec, "nvme");
    let is_off = || off.load(Ordering::Relaxed);
    let restarts = || inside.lock().unwrap().restart;
    start(inside, off);
    while !is_off() {
        if restarts() {
            spec.incarnation += 1;
            restart(&state, inside, off);
            continue;
        }
        // The manager may be away just now.
        if std::net::TcpStream::connect(control).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        // It may be asked as soon as it is connected.
        let asked = inside.clone();
        state.lock().unwrap().rules = vec![Box::new(move |request| {
            let Request::Firmware(request) = request else { return None };
            Some(asked.lock().unwrap().answer(request))
        })];
        let Ok(fake) = Fake::connect(control, spec.clone(), state.clone()) else { continue };
        inside.lock().unwrap().healthy();
        while !is_off() && !fake.is_over() && !restarts() {
            std::thread::sleep(Duration::from_millis(10));
        }
        if restarts() {
            // It has said so.
            let lingers = inside.lock().unwrap().lingers;
            std::thread::sleep(lingers);
        }
        fake.leave();
    }
}

/// Starts images, until one joins.
fn start(inside: &Mutex<Inside>, off: &AtomicBool) {
    while !inside.lock().unwrap().boot() && !off.load(Ordering::Relaxed) {}
}

/// Is away for as long as a start takes, and has forgotten what it held in memory.
fn restart(state: &Mutex<State>, inside: &Mutex<Inside>, off: &AtomicBool) {
    let mut tables = state.lock().unwrap();
    tables.ports.clear();
    tables.peers.clear();
    for slot in &mut tables.slots {
        slot.bound = None;
        slot.state = SlotState::Free;
    }
    drop(tables);
    while inside.lock().unwrap().stays_away && !off.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    start(inside, off);
    inside.lock().unwrap().restart = false;
}

/// Waits until a card has had so many pieces.
pub fn wait_pieces(card: &Card, count: usize) {
    eventually("pieces of an image", || (card.pieces().len() >= count).then_some(()));
}
