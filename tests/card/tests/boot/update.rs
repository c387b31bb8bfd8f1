//! A card that gets its firmware from the manager.

use super::{BOUND, Bench};
use crate::images::{Label, image, relabelled};
use anyhow::{Context, Result, ensure};
use card_image::{BoardName, SlotId};
use emulated_card::emulator::{CardOptions, Network};
use processes::{Daemon, own_folder, wait_for};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Bytes that are written before it is recorded that they are there: an erase block.
const BLOCK: u64 = 256 << 10;

/// Where a program of the project is.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    // Beside the folder of tests.
    let programs = own_folder()?.parent().context("a test is in a folder")?.to_owned();
    Ok(programs.join(name))
}

/// A box card, a manager, and the network between them.
pub(crate) struct Scene {
    pub(crate) bench: Bench,
    network: Network,
    manager: Option<Daemon>,
    card: Option<Daemon>,
    listen: String,
    control: String,
    _hub: Daemon,
    _side: UnixListener,
}

impl Scene {
    /// With a card whose flash was made at once. `None` where there is no firmware or no emulator.
    pub(crate) fn new() -> Option<Self> {
        Self::with_card(|bench, settings| {
            let mut flash = bench.new_flash()?;
            flash.set_settings(&(settings.join("\n") + "\n"))?;
            flash.put_image(SlotId::A, &bench.box_image()?);
            flash.write(&bench.path("flash"))
        })
    }

    /// With a card whose flash is made from settings. `None` where there is no firmware or no
    /// emulator.
    fn with_card(flash: impl FnOnce(&Bench, &[String]) -> Result<()>) -> Option<Self> {
        let bench = Bench::new()?;
        let (network, hub) = Network::start(bench.folder.path(), 1, false).unwrap();
        let side = UnixListener::bind(bench.path("side")).unwrap();
        let nowhere = "127.0.0.1:0".to_owned();
        let mut scene = Self {
            bench,
            network,
            manager: None,
            card: None,
            listen: nowhere.clone(),
            control: nowhere,
            _hub: hub,
            _side: side,
        };
        scene.start_manager().unwrap();
        let [a, b, c, d] = Network::HERE;
        let port = scene.control.rsplit(':').next().unwrap();
        let manager = format!("manager={a}.{b}.{c}.{d}:{port}");
        let settings = ["name=card-1", &manager, "places=2", "trial=20"].map(str::to_owned);
        flash(&scene.bench, &settings).unwrap();
        scene.start_card().unwrap();
        scene.until_runs("0.1.0+0").unwrap();
        Some(scene)
    }

    /// The second time on the same addresses.
    fn start_manager(&mut self) -> Result<()> {
        let ready = self.bench.path("ready.json");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(program("dxpu-manager")?);
        command.args(["serve", "--listen", &self.listen, "--control", &self.control]);
        command.arg("--store").arg(self.bench.path("store")).arg("--ready-file").arg(&ready);
        let mut manager = Daemon::start("manager", self.bench.folder.path(), command, false)?;
        wait_for("the manager", BOUND, || {
            manager.check()?;
            Ok(ready.exists().then_some(()))
        })?;
        let ready: Value = serde_json::from_slice(&std::fs::read(ready)?)?;
        let said = |key: &str| ready[key].as_str().context("it says so").map(str::to_owned);
        (self.listen, self.control) = (said("listen")?, said("control")?);
        self.manager = Some(manager);
        Ok(())
    }

    fn start_card(&mut self) -> Result<()> {
        let options = CardOptions {
            name: "card".into(),
            flash: self.bench.path("flash"),
            pcie: self.bench.path("side"),
        };
        self.card = Some(self.network.start_card(0, &options)?);
        Ok(())
    }

    /// Ends a process as a power cut would.
    fn kill(daemon: &mut Option<Daemon>) {
        let daemon = daemon.take().unwrap();
        daemon.signal(libc::SIGKILL);
    }

    /// Where the manager's API is.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.listen)
    }

    fn firmware(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(program("dxpu-manager")?);
        command.args(["--server", &self.address()]);
        Ok(command.args(["--json", "firmware"]).args(arguments).output()?)
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.firmware(arguments)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {error}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Exit code and standard error of something that is not done.
    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.firmware(arguments).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The card, as the manager has it; null while it is away.
    pub(crate) fn card(&self) -> Result<Value> {
        Ok(self.json(&["list"])?["cards"].get(0).cloned().unwrap_or_default())
    }

    pub(crate) fn until_runs(&self, version: &str) -> Result<()> {
        wait_for(version, BOUND, || {
            let card = self.card()?;
            let slot = usize::from(card["running"] == "b");
            Ok((card["slots"][slot]["version"] == version).then_some(()))
        })
        .with_context(|| self.bench.console())
    }

    /// Writes an image to a file, and gives its name.
    fn file(&self, name: &str, image: &[u8]) -> String {
        let path = self.bench.path(name);
        std::fs::write(&path, image).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Waits until the card has more than so many bytes of an image.
    fn until_written(&self, bytes: u64) -> Result<()> {
        wait_for("bytes of the image", BOUND, || {
            let status = self.json(&["status"])?;
            ensure!(status["state"] == "running", "it is over: {status}");
            let written = status["written"]["card-1"].as_u64().unwrap_or(0);
            Ok((written > bytes).then_some(()))
        })
    }
}

#[test]
fn a_card_is_updated_over_the_network_whoever_dies_meanwhile() {
    let Some(mut scene) = Scene::new() else { return };
    let firmware = scene.bench.box_image().unwrap();
    // Nearly two erase blocks, so that there is time between the first's end and the image's: what
    // lies behind the program is cleared when it starts.
    let mut payload = firmware[256..].to_vec();
    payload.resize(2 * BLOCK as usize - 10_000, 0);
    let new = scene.file("7.img", &image(Label::version(7), &payload).unwrap());
    let begun = scene.json(&["push", &new, "--all", "--no-wait"]).unwrap();
    assert_eq!(begun["state"], "running");
    scene.until_written(20_000).unwrap();
    Scene::kill(&mut scene.manager);
    scene.start_manager().unwrap();
    scene.until_written(BLOCK).unwrap();
    Scene::kill(&mut scene.card);
    // It recorded the block that was whole.
    let mut flash = scene.bench.flash().unwrap();
    let state = flash.store().unwrap().state().slot(SlotId::B);
    let done = u32::try_from(BLOCK).unwrap();
    assert!(
        matches!(state, card_image::SlotState::Writing { done: there, .. } if there == done),
        "{state:?}"
    );
    scene.start_card().unwrap();
    let ended = scene.json(&["status", "--watch"]).unwrap();
    let card = &ended["cards"][0];
    assert_eq!((&ended["state"], &card["state"]), (&"succeeded".into(), &"updated".into()));
    assert_eq!((&card["before"], &card["runs"]), (&"0.1.0+0".into(), &"7.0.0+0".into()));
    scene.until_runs("7.0.0+0").unwrap();
    let console = scene.bench.console();
    assert!(console.contains("starting slot b: any 7.0.0+0"), "{console}");

    let back = scene.json(&["rollback", "card-1"]).unwrap();
    assert_eq!(back["cards"][0]["runs"], "0.1.0+0");
    scene.until_runs("0.1.0+0").unwrap();
}

#[test]
fn a_card_goes_back_from_an_image_that_is_broken_and_takes_none_that_is_not_for_it() {
    let Some(scene) = Scene::new() else { return };
    let firmware = scene.bench.box_image().unwrap();
    let unimp = 0xc000_1073;
    let program = scene.bench.program().unwrap();
    let spoiled = program.spoiled(&firmware, program.turn().unwrap(), unimp).unwrap();
    let broken = scene.file("9.img", &image(Label::version(9), &spoiled).unwrap());
    let (code, error) = scene.refused(&["push", &broken, "--all"]);
    assert_eq!(code, Some(7), "{error}");
    assert!(error.contains("it runs 0.1.0+0 and not 9.0.0+0"), "{error}");
    assert_eq!(scene.card().unwrap()["slots"][1]["state"], "failed");
    let console = scene.bench.console();
    assert!(console.contains("slot b: its image never reported that it is healthy"), "{console}");

    // Signed by somebody whom the boot loader does not trust.
    let mut forged = relabelled(&firmware, Label::version(8)).unwrap();
    forged[200] ^= 1;
    let forged = scene.file("8.img", &forged);
    let (code, error) = scene.refused(&["push", &forged, "--all"]);
    assert_eq!(code, Some(7), "{error}");
    let console = scene.bench.console();
    assert!(console.contains("slot b: the image's signature is wrong"), "{console}");

    let litex = Label { board: BoardName::new("litex").unwrap(), ..Label::version(9) };
    let other = scene.file("litex.img", &relabelled(&firmware, litex).unwrap());
    let (code, error) = scene.refused(&["push", &other, "--node", "card-1"]);
    assert_eq!(code, Some(4), "{error}");
    assert!(error.contains("the image is for the board litex"), "{error}");
    let host = scene.bench.firmware.join("fw-host.img");
    let (code, error) = scene.refused(&["push", host.to_str().unwrap(), "--node", "card-1"]);
    assert_eq!(code, Some(4), "{error}");
    assert!(error.contains("the image is for a host"), "{error}");
    scene.until_runs("0.1.0+0").unwrap();
}

/// Does what a person at a bench does with a card that has nothing in its flash: by a probe, which is
/// at a simulated card.
fn flash_by_probe(bench: &Bench, settings: &[String]) -> Result<()> {
    let (flash, ready) = (bench.path("flash"), bench.path("probe"));
    let mut command = Command::new(program("dxpu-sim-card")?);
    command.arg("--flash").arg(&flash).arg("--uart").arg(bench.path("bench.uart"));
    command.arg("--ready-file").arg(&ready);
    let mut card = Daemon::start("bench", bench.folder.path(), command, false)?;
    wait_for("the simulated card", BOUND, || {
        card.check()?;
        Ok(ready.exists().then_some(()))
    })?;
    let probe = format!("remote-bitbang:{}", std::fs::read_to_string(&ready)?.trim());
    let run = |arguments: &[&str]| -> Result<()> {
        let mut command = Command::new(program("dxpu-flash")?);
        let output = command.args(["--probe", &probe]).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {error}");
        Ok(())
    };
    let (boot, image) = (bench.firmware.join("boot.bin"), bench.firmware.join("fw-box.img"));
    let path = |path: &'_ std::path::Path| path.to_str().context("text").map(str::to_owned);
    let (boot, image) = (path(&boot)?, path(&image)?);
    run(&["write", "--erase-all", "--boot-loader", &boot, &image, "--no-start"])?;
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    run(&[&["config", "set", "--no-start"][..], &settings].concat())?;
    // It writes what is in its flash when it is told to stop.
    card.signal(libc::SIGTERM);
    wait_for("the simulated card's end", BOUND, || Ok(card.check().is_err().then_some(())))
}

#[test]
fn a_card_that_a_person_flashed_joins_by_itself_and_is_updated_over_the_network() {
    let Some(scene) = Scene::with_card(flash_by_probe) else { return };
    let console = scene.bench.console();
    assert!(console.contains("slot a is new"), "{console}");
    let firmware = scene.bench.box_image().unwrap();
    let new = scene.file("2.img", &relabelled(&firmware, Label::version(2)).unwrap());
    let ended = scene.json(&["push", &new, "--node", "card-1"]).unwrap();
    assert_eq!(ended["cards"][0]["runs"], "2.0.0+0", "{ended}");
    scene.until_runs("2.0.0+0").unwrap();
}
