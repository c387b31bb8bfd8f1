//! What an emulated card starts, from the boot loader in its flash on.

mod copy;
mod firmware;
mod images;
mod litex;
mod manager;
mod panic;
mod simulated;
mod start;
mod update;

use anyhow::{Context, Result};
use board_qemu_virt::layout::LAYOUT;
use card_image::{
    AntiDowngrade, BoardName, BootState, BootStore, Header, Journal, KeyId, Requirements,
    STATE_RECORD, SecurityVersion, SlotId, SlotState, public_key,
};
use emulated_card::emulator::{CardOptions, Network, machine};
use emulated_card::firmware::Firmware;
use emulated_card::flash::CardFlash;
use firmware::Program;
use images::{Label, crashes, hangs, image, image_by, relabelled, says};
use manager::Welcomer;
use processes::{Daemon, wait_for};
use proxy_core::control::{FromProxy, ResetCause, ResetReport};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(120);

/// A card that is off, in a folder of its own.
struct Bench {
    folder: tempfile::TempDir,
    firmware: PathBuf,
}

impl Bench {
    /// `None` where there is no firmware or no emulator; the reason is printed.
    fn new() -> Option<Self> {
        match Firmware::find() {
            Ok(firmware) => Some(Self {
                folder: tempfile::tempdir().unwrap(),
                firmware: firmware.folder().to_owned(),
            }),
            Err(reason) => {
                println!("SKIPPED: {reason}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn new_flash(&self) -> Result<CardFlash> {
        CardFlash::new(&self.firmware.join("boot.bin"))
    }

    fn flash(&self) -> Result<CardFlash> {
        CardFlash::open(&self.path("flash"))
    }

    fn program(&self) -> Result<Program> {
        Ok(Program::new(std::fs::read(self.firmware.join("fw-box"))?))
    }

    /// What the firmware has logged since the card was started.
    fn log(&self) -> Result<Vec<String>> {
        self.program()?.log(&std::fs::read(self.path("card.uart"))?)
    }

    fn box_image(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.firmware.join("fw-box.img"))?)
    }

    /// Starts the card on its own; what it says from then on is in the console's file.
    fn start(&self, flash: &CardFlash) -> Result<Daemon> {
        flash.write(&self.path("flash"))?;
        self.start_again()
    }

    fn start_again(&self) -> Result<Daemon> {
        let _ = std::fs::remove_file(self.path("card.uart"));
        let command = machine(self.folder.path(), "card", &self.path("flash"));
        Daemon::start("card", self.folder.path(), command, false)
    }

    fn console(&self) -> String {
        let bytes = std::fs::read(self.path("card.uart")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the card has said something.
    fn until_said(&self, card: &mut Daemon, words: &str) -> Result<String> {
        let said = wait_for(words, BOUND, || {
            card.check()?;
            let console = self.console();
            Ok(console.contains(words).then_some(console))
        });
        said.with_context(|| self.console())
    }

    /// What the card says until it has said something.
    fn says(&self, flash: &CardFlash, words: &str) -> Result<String> {
        let mut card = self.start(flash)?;
        self.until_said(&mut card, words)
    }
}

/// The boot state of a card whose slot a has an image that was healthy, and whose slot b has one
/// that is to be started next.
fn healthy_and_staged(old: &[u8], new: &[u8]) -> Result<BootState> {
    let id = |image: &[u8]| Header::parse(image).map(|header| header.id());
    Ok(BootState {
        slots: [SlotState::Healthy { image: id(old)? }, SlotState::Staged { image: id(new)? }],
        wanted: SlotId::B,
        lowest_security: SecurityVersion(0),
    })
}

/// A card with a small image in slot a that was healthy, and another one in slot b that is to be
/// started next.
fn with_update(bench: &Bench, new: &[u8]) -> Result<CardFlash> {
    let mut flash = bench.new_flash()?;
    let old = image(Label::version(1), &says(b'A'))?;
    flash.put_image(SlotId::A, &old);
    flash.put_image(SlotId::B, new);
    let state = healthy_and_staged(&old, new)?;
    let mut journal: Journal<STATE_RECORD> =
        Journal::open(&mut flash.0, LAYOUT.boot_state(), |_| true)?;
    journal.append(&mut flash.0, &state.emit())?;
    Ok(flash)
}

#[test]
fn a_new_image_that_is_not_right_is_not_started() {
    let Some(bench) = Bench::new() else { return };
    let good = image(Label::version(2), &says(b'B')).unwrap();
    let changed = |at: usize| {
        let mut image = good.clone();
        image[at] ^= 1;
        image
    };
    let other = Label { board: BoardName::new("litex").unwrap(), ..Label::version(2) };
    let mut resigned = Header::parse(&good).unwrap();
    resigned.signature[3] ^= 1;
    let resigned = [&resigned.emit()[..], &good[256..]].concat();
    for (new, why) in [
        (resigned, "the image's signature is wrong"),
        (image(other, &says(b'B')).unwrap(), "the image is for the board litex"),
        (changed(good.len() - 1), "the image's payload is damaged"),
    ] {
        let flash = with_update(&bench, &new).unwrap();
        let console = bench.says(&flash, "starting slot a").unwrap();
        assert!(console.contains(&format!("slot b: {why}")), "{console}");
        assert!(!console.contains("starting slot b"), "{console}");
    }
    // Not all of it is there: the rest of the slot is blank.
    let mut long = says(b'B');
    long.resize(5000, 0);
    let mut flash = with_update(&bench, &image(Label::version(2), &long).unwrap()).unwrap();
    flash.0.0.preload(LAYOUT.slot(SlotId::B).start + 3000, &[0xff; 3000]);
    let console = bench.says(&flash, "starting slot a").unwrap();
    assert!(console.contains("slot b: the image's payload is damaged"), "{console}");
}

#[test]
fn an_older_security_version_is_not_started() {
    let Some(bench) = Bench::new() else { return };
    // One that was healthy raised the lowest.
    let secure = Label { security: 5, ..Label::version(1) };
    let mut flash = bench.new_flash().unwrap();
    flash.put_image(SlotId::A, &image(secure, &says(b'A')).unwrap());
    let mut card = bench.start(&flash).unwrap();
    bench.until_said(&mut card, "starting slot a").unwrap();
    drop(card);
    let mut flash = bench.flash().unwrap();
    let mut store = flash.store().unwrap();
    store.report_healthy(&mut flash.0, SlotId::A).unwrap();
    assert_eq!(store.state().lowest_security, SecurityVersion(5));
    // A probe writes an older one, and has it started.
    let old = image(Label { security: 4, ..Label::version(9) }, &says(b'B')).unwrap();
    flash.put_image(SlotId::B, &old);
    let keys = images::trusted();
    let careless =
        Requirements { anti_downgrade: AntiDowngrade::Off, ..images::requirements(&keys) };
    store.adopt(&mut flash.0, SlotId::B, &careless).unwrap();
    let console = bench.says(&flash, "starting slot a").unwrap();
    assert!(console.contains("slot b: the image has security version 4"), "{console}");
    // Where the settings allow it, it is.
    flash.set_settings("name = a\nmanager = 10.0.0.1:1\ndowngrade = allow\n").unwrap();
    bench.says(&flash, "starting slot b: any 9").unwrap();
}

#[test]
fn the_settings_say_whose_images_are_started_beside_the_built_in() {
    let Some(bench) = Bench::new() else { return };
    let (key, secret) = (KeyId(7), [9; 32]);
    let hex = |key: [u8; 32]| key.map(|byte| format!("{byte:02x}")).concat();
    let mut flash = bench.new_flash().unwrap();
    let theirs = image_by(key, &secret, Label::version(3), &says(b'T')).unwrap();
    flash.put_image(SlotId::A, &theirs);
    let console = bench.says(&flash, "recovery: ").unwrap();
    assert!(
        console.contains("slot a: the image is signed with key 0x00000007, which"),
        "{console}"
    );
    let trust = |flash: &mut CardFlash, key: &str| {
        let settings = format!("name = a\nmanager = 10.0.0.1:1\ntrust = {key}\n");
        flash.set_settings(&settings).unwrap();
    };
    trust(&mut flash, &format!("7:{}", hex([1; 32])));
    bench.says(&flash, "slot a: the image's signature is wrong").unwrap();
    trust(&mut flash, &format!("5:{},7:{}", hex([1; 32]), hex(public_key(&secret))));
    let console = bench.says(&flash, "starting slot a: any 3").unwrap();
    assert!(console.contains("the settings trust the key 0x00000007"), "{console}");
    // The built-in key keeps its number, and its images.
    trust(&mut flash, &format!("1:{},7:{}", hex([1; 32]), hex(public_key(&secret))));
    flash.put_image(SlotId::B, &image(Label::version(4), &says(b'O')).unwrap());
    let mut store = flash.store().unwrap();
    let keys = images::trusted();
    store.adopt(&mut flash.0, SlotId::B, &images::requirements(&keys)).unwrap();
    bench.says(&flash, "starting slot b: any 4").unwrap();
}

#[test]
fn an_image_that_crashes_or_hangs_at_once_is_given_up() {
    let Some(bench) = Bench::new() else { return };
    for (payload, cause) in [(crashes(), "trap"), (hangs(), "watchdog")] {
        let flash = with_update(&bench, &image(Label::version(2), &payload).unwrap()).unwrap();
        let console = bench.says(&flash, "starting slot a").unwrap();
        for words in ["slot b is new, with 2 more", "with 1 more", "with 0 more"] {
            assert!(console.contains(words), "{console}");
        }
        assert!(console.contains(&format!("start 4: {cause}")), "{console}");
        assert!(console.contains("slot b: its image never reported that it is healthy"));
        // The old one runs.
        let mut card = bench.start_again().unwrap();
        bench.until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
        assert!(!bench.console().contains("slot b"), "slot a is the wanted one from then on");
    }
}

#[test]
fn where_nothing_can_be_started_it_says_so_and_waits() {
    let Some(bench) = Bench::new() else { return };
    let mut flash = bench.new_flash().unwrap();
    let mut torn = image(Label::version(1), &says(b'A')).unwrap();
    torn[100] ^= 1;
    flash.put_image(SlotId::B, &torn);
    let console = bench.says(&flash, "then reset the card").unwrap();
    assert!(console.contains("slot a: the slot is empty"), "{console}");
    assert!(console.contains("slot b: the image's header is damaged"), "{console}");
    assert!(console.contains("dxpu-flash write"), "{console}");
}

#[test]
fn an_update_that_loses_its_power_leaves_a_card_that_starts() {
    let Some(bench) = Bench::new() else { return };
    let new = image(Label::version(2), &says(b'B')).unwrap();
    // The host's tests of card-image cut at each step; these few start the whole card.
    let mut before = bench.new_flash().unwrap();
    before.put_image(SlotId::A, &image(Label::version(1), &says(b'A')).unwrap());
    let mut card = bench.start(&before).unwrap();
    bench.until_said(&mut card, "+0\r\nA").unwrap();
    drop(card);
    let mut started = [0, 0];
    for cut in [1, 40, 300, 900, u64::MAX] {
        let mut flash = bench.flash().unwrap();
        let mut store = flash.store().unwrap();
        store.report_healthy(&mut flash.0, SlotId::A).unwrap();
        flash.0.0.cut_after(cut);
        let _ = update(&mut store, &mut flash, &new);
        flash.0.0.power_on();
        let console = bench.says(&flash, "+0\r\n").unwrap();
        let new_one = console.contains("starting slot b: any 2");
        assert!(new_one || console.contains("starting slot a: any 1"), "cut at {cut}: {console}");
        started[usize::from(new_one)] += 1;
        before.write(&bench.path("flash")).unwrap();
        let mut card = bench.start_again().unwrap();
        bench.until_said(&mut card, "+0\r\nA").unwrap();
    }
    assert!(started[0] > 0 && started[1] > 0, "{started:?}");
}

#[test]
fn a_card_that_is_switched_off_at_any_moment_of_its_start_starts_again() {
    let Some(bench) = Bench::new() else { return };
    // From power on to long after the image runs; the boot loader records each start.
    for millis in [0, 60, 120, 180, 240, 300, 400, 600, 900] {
        let new = image(Label::version(2), &says(b'B')).unwrap();
        let flash = with_update(&bench, &new).unwrap();
        let card = bench.start(&flash).unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        card.signal(libc::SIGKILL);
        drop(card);
        let mut card = bench.start_again().unwrap();
        let console = bench.until_said(&mut card, "+0\r\nB").unwrap();
        assert!(console.contains("starting slot b"), "after {millis} ms: {console}");
    }
}

fn update(store: &mut BootStore, flash: &mut CardFlash, image: &[u8]) -> Result<()> {
    let keys = images::trusted();
    let requirements = images::requirements(&keys);
    let flash = &mut flash.0;
    store.begin(flash, SlotId::B, Some(SlotId::A), image, &requirements)?;
    store.write(flash, 256, &image[256..])?;
    store.finish(flash, &requirements)?;
    store.want(flash, SlotId::B, &requirements)?;
    Ok(())
}

/// A card in a network with a manager.
struct Connected {
    bench: Bench,
    manager: Welcomer,
    network: Network,
    _hub: Daemon,
    _side: UnixListener,
}

impl Connected {
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let manager = Welcomer::start().unwrap();
        let (network, hub) = Network::start(bench.folder.path(), 1, false).unwrap();
        let side = UnixListener::bind(bench.path("side")).unwrap();
        Some(Self { bench, manager, network, _hub: hub, _side: side })
    }

    /// Settings with this manager's port, or another one where nobody listens.
    fn settings(&self, port: u16) -> String {
        let [a, b, c, d] = Network::HERE;
        format!("name = card-1\nmanager = {a}.{b}.{c}.{d}:{port}\nplaces = 2\ntrial = 5\n")
    }

    fn start(&self) -> Result<Daemon> {
        let _ = std::fs::remove_file(self.bench.path("card.uart"));
        self.start_with_console()
    }

    /// Starts the card with the console that there is.
    fn start_with_console(&self) -> Result<Daemon> {
        self.network.start_card(
            0,
            &CardOptions {
                name: "card".into(),
                flash: self.bench.path("flash"),
                pcie: self.bench.path("side"),
            },
        )
    }

    /// Waits until the card has joined: why its life began.
    fn until_joined(&self) -> Result<ResetReport> {
        let next = || {
            let said = self.manager.said.recv_timeout(BOUND);
            said.with_context(|| self.bench.console())
        };
        let hello = next()?;
        assert!(matches!(hello, FromProxy::Hello(_)), "{hello:?}");
        match next()? {
            FromProxy::Reset(report) => Ok(report),
            other => panic!("a card says first why it was reset, not {other:?}"),
        }
    }

    /// Waits until the card has joined, and then until its flash says so.
    fn until_healthy(&self, slot: SlotId) -> Result<()> {
        let report = self.until_joined()?;
        assert_eq!((report.cause, report.boots), (ResetCause::Power, 1));
        wait_for("a healthy image", BOUND, || {
            let state = *self.bench.flash()?.store()?.state();
            let healthy = matches!(state.slot(slot), SlotState::Healthy { .. });
            Ok((healthy && state.wanted == slot).then_some(()))
        })
    }
}

#[test]
fn a_card_that_has_joined_keeps_its_image() {
    let Some(scene) = Connected::new() else { return };
    let firmware = scene.bench.box_image().unwrap();
    let mut flash = scene.bench.new_flash().unwrap();
    flash.set_settings(&scene.settings(scene.manager.port)).unwrap();
    flash.put_image(SlotId::A, &firmware);
    flash.write(&scene.bench.path("flash")).unwrap();
    let card = scene.start().unwrap();
    scene.until_healthy(SlotId::A).unwrap();
    drop(card);
    let log = scene.bench.log().unwrap();
    for words in ["start 1: power on", "up, with", "joined as node 1", "slot a is healthy"] {
        assert!(log.iter().any(|line| line.contains(words)), "{words}: {log:#?}");
    }

    // A newer one is written, joins, and is kept.
    let mut flash = scene.bench.flash().unwrap();
    let mut store = flash.store().unwrap();
    let new = relabelled(&firmware, Label::version(7)).unwrap();
    update(&mut store, &mut flash, &new).unwrap();
    flash.write(&scene.bench.path("flash")).unwrap();
    let card = scene.start().unwrap();
    scene.until_healthy(SlotId::B).unwrap();
    drop(card);

    // One that cannot join is given up, and the one before is started.
    let mut flash = scene.bench.flash().unwrap();
    flash.set_settings(&(scene.settings(1) + "log = error\n")).unwrap();
    let mut store = flash.store().unwrap();
    let newest = relabelled(&firmware, Label::version(8)).unwrap();
    let keys = images::trusted();
    let requirements = images::requirements(&keys);
    let slot = SlotId::A;
    store.begin(&mut flash.0, slot, Some(SlotId::B), &newest, &requirements).unwrap();
    store.write(&mut flash.0, 256, &newest[256..]).unwrap();
    store.finish(&mut flash.0, &requirements).unwrap();
    store.want(&mut flash.0, slot, &requirements).unwrap();
    flash.write(&scene.bench.path("flash")).unwrap();
    let mut card = scene.start().unwrap();
    let console = scene.bench.until_said(&mut card, "starting slot b: any 7").unwrap();
    assert!(console.contains("slot a: its image never reported"), "{console}");
    assert!(console.contains("start 4: asked for"), "{console}");
    drop(card);
    let log = scene.bench.log().unwrap();
    assert!(log.iter().any(|line| line.contains("did not join in its trial")), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("up, with")), "errors only: {log:#?}");
}

/// `dxpu-flash` does not write such settings; a card has them from an earlier one, or another program. It
/// can do without, so it goes on, and says what a person should do.
#[test]
fn a_gateway_without_a_fixed_address_is_explained_and_the_card_joins() {
    let Some(scene) = Connected::new() else { return };
    let mut flash = scene.bench.new_flash().unwrap();
    let settings = scene.settings(scene.manager.port);
    let write = |flash: &mut CardFlash, more: &str| {
        flash.set_settings(&(settings.clone() + more)).unwrap();
        flash.write(&scene.bench.path("flash")).unwrap();
    };
    flash.put_image(SlotId::A, &scene.bench.box_image().unwrap());
    let told = |log: &[String]| {
        let lines: Vec<_> = log.iter().filter(|line| line.contains("gateway")).cloned().collect();
        lines
    };
    write(&mut flash, "gateway = 10.0.2.99\n");
    let card = scene.start().unwrap();
    scene.until_joined().unwrap();
    drop(card);
    let lines = told(&scene.bench.log().unwrap());
    let said = "settings: gateway is not used: DHCP gives the card its own; add `address = \
                ADDRESS/PREFIX` for a fixed address, or take gateway away";
    assert_eq!(lines, [said]);
    // With an address it is used, and nothing is to be said.
    write(&mut flash, "address = 10.0.2.77/24\ngateway = 10.0.2.2\n");
    let card = scene.start().unwrap();
    scene.until_joined().unwrap();
    drop(card);
    assert_eq!(told(&scene.bench.log().unwrap()), [""; 0]);
}

#[test]
fn a_line_that_is_logged_has_the_place_that_logs_it() {
    let Some(bench) = Bench::new() else { return };
    let places = bench.program().unwrap().places().unwrap();
    let logs = |file| places.iter().filter(|place| place.ends_with(file)).count();
    assert!(logs("qemu-virt/src/run.rs") > 0 && logs("soc/src/slots.rs") > 0, "{places:#?}");
    // The macro is no place.
    assert_eq!(logs("soc/src/log.rs"), 0);
}

/// Bytes that a box with sixteen slots may have of variables and of all that is made at the start,
/// beside the packet pool.
const MEMORY: u64 = 192 << 10;
/// Bytes of the packet pool: frames and TLPs of links to four hosts.
const PACKET_POOL: u64 = 2304 << 10;

#[test]
fn a_box_with_sixteen_slots_has_memory_enough() {
    let Some(scene) = Connected::new() else { return };
    let mut flash = scene.bench.new_flash().unwrap();
    let settings = scene.settings(scene.manager.port).replace("places = 2", "places = 16");
    flash.set_settings(&settings).unwrap();
    flash.put_image(SlotId::A, &scene.bench.box_image().unwrap());
    flash.write(&scene.bench.path("flash")).unwrap();
    let card = scene.start().unwrap();
    scene.until_joined().unwrap();
    drop(card);
    let log = scene.bench.log().unwrap();
    let line = log.iter().find(|line| line.contains("up, with")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (memory, pool) = (numbers.next().unwrap(), numbers.next().unwrap());
    println!(
        "FIGURE: a box with 16 slots: {memory} of {MEMORY} B, packet pool {pool} of {PACKET_POOL} B"
    );
    assert!(memory <= MEMORY, "{memory} of {MEMORY} B: {line}");
    assert!(pool <= PACKET_POOL, "{pool} of {PACKET_POOL} B: {line}");
}

#[test]
fn what_ended_a_life_is_logged_and_told() {
    let Some(scene) = Connected::new() else { return };
    let good = scene.bench.box_image().unwrap();
    let program = scene.bench.program().unwrap();
    let (unimp, hang) = (0xc000_1073, 0x0000_006f);
    for (instruction, cause, text) in [
        (unimp, ResetCause::Trap, "exception 2 with 0xc0001073"),
        (hang, ResetCause::Watchdog, "no progress"),
    ] {
        let spoiled = program.spoiled(&good, program.turn().unwrap(), instruction).unwrap();
        let spoiled = image(Label::version(9), &spoiled).unwrap();
        let mut flash = with_update(&scene.bench, &spoiled).unwrap();
        flash.put_image(SlotId::A, &good);
        let mut journal: Journal<STATE_RECORD> =
            Journal::open(&mut flash.0, LAYOUT.boot_state(), |_| true).unwrap();
        let state = healthy_and_staged(&good, &spoiled).unwrap();
        journal.append(&mut flash.0, &state.emit()).unwrap();
        flash.set_settings(&scene.settings(scene.manager.port)).unwrap();
        flash.write(&scene.bench.path("flash")).unwrap();
        let card = scene.start().unwrap();
        let report = scene.until_joined().unwrap();
        drop(card);
        let console = scene.bench.console();
        assert!(console.contains("slot b is new, with 0 more starts"), "{console}");
        assert_eq!((report.cause, report.boots), (cause, 4), "{report:?}");
        assert_eq!(report.place, program.turn().unwrap(), "{report:?}");
        assert!(report.text.contains(text), "{report:?}");
        assert!(report.lived_ms > 0, "{report:?}");
        let log = scene.bench.log().unwrap();
        let found = |words: &str| log.iter().any(|line| line.contains(words));
        assert!(found(&report.text), "{log:#?}");
        assert!(found("start 4: "), "{log:#?}");
    }
}
