//! Two emulated cards with the firmware in them, a real manager between them, a model host at one
//! and model devices at the other.

mod tap;

use anyhow::{Context, ensure};
use card_image::Role;
use emulated_card::emulator::{BadCable, Network, NewCard};
use emulated_card::firmware::Firmware;
use processes::{Daemon, own_folder, wait_for};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
pub(crate) use tap::Tap;

pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    folder: tempfile::TempDir,
    programs: PathBuf,
    manager: String,
    daemons: Vec<Daemon>,
    /// What watches the cards' cables and may misbehave, where that was asked for: the box's, the
    /// host's.
    pub(crate) cables: Vec<BadCable>,
    /// In the wires between the cards and their PCIe sides, in the same order, where they were asked for.
    pub(crate) taps: Vec<Tap>,
}

/// How the cards run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cards {
    /// As they are.
    Plain,
    /// With something in their cables that can misbehave; the seed says how.
    BadCables(u64),
    /// Their fabric's frames in this VLAN, and a watch at their cables.
    InVlan(u16),
    /// As they are, with a tap between each and its PCIe side.
    Tapped,
}

pub(crate) type Counters = BTreeMap<String, u64>;

fn line(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {text}{error}");
    Ok(text)
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for daemon in &self.daemons {
                eprintln!("{}", daemon.last_lines());
            }
        }
    }
}

/// The firmware; without it this says that the test is skipped.
pub(crate) fn firmware() -> Option<Firmware> {
    Firmware::find().inspect_err(|reason| println!("SKIPPED: {reason}")).ok()
}

impl Scene {
    pub(crate) fn manager(&self, arguments: &[&str]) -> anyhow::Result<String> {
        line(&mut self.manager_command(arguments))
    }

    /// The manager's command line, to be run.
    pub(crate) fn manager_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("dxpu-manager"));
        command.args(["--server", &self.manager]).args(arguments);
        command
    }

    pub(crate) fn host(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.join("dxpu-host"));
        line(command.arg("--socket").arg(self.path("shell")).args(arguments))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn daemon(&mut self, name: &str, command: Command) -> anyhow::Result<()> {
        let daemon = Daemon::start(name, self.folder.path(), command, false)?;
        self.daemons.push(daemon);
        Ok(())
    }

    fn until_there(&mut self, path: &Path) -> anyhow::Result<()> {
        let daemons = &mut self.daemons;
        wait_for(&path.display().to_string(), BOUND, || {
            daemons.iter_mut().try_for_each(Daemon::check)?;
            Ok(path.exists().then_some(()))
        })
    }

    /// Starts everything.
    pub(crate) fn start(firmware: &Firmware, cards: Cards) -> anyhow::Result<Self> {
        // Beside the folder of tests.
        let programs = own_folder()?.parent().context("a test is in a folder")?.to_owned();
        let folder = tempfile::tempdir()?;
        let (manager, daemons, cables) = (String::new(), Vec::new(), Vec::new());
        let mut scene = Self { folder, programs, manager, daemons, cables, taps: Vec::new() };
        let ready = scene.path("ready.json");
        let mut command = Command::new(scene.programs.join("dxpu-manager"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
        command.arg("--store").arg(scene.path("store")).arg("--ready-file").arg(&ready);
        if matches!(cards, Cards::BadCables(_)) {
            // What loses one frame in fifty is held back, and nothing would be lent there again.
            let config = scene.path("manager.toml");
            std::fs::write(&config, "[health]\nloss_permille = 1000\n")?;
            command.arg("--config").arg(config);
        }
        scene.daemon("manager", command)?;
        scene.until_there(&ready)?;
        let ready: serde_json::Value = serde_json::from_slice(&std::fs::read(ready)?)?;
        let said =
            |key: &str| ready[key].as_str().context("the manager says it").map(str::to_owned);
        scene.manager = format!("http://{}", said("listen")?);
        let control = said("control")?;
        let manager = control.rsplit(':').next().context("a port")?.parse()?;

        let mut command = Command::new(scene.programs.join("dxpu-card-devices"));
        command.arg("--card").arg(scene.path("box-side"));
        let image = scene.path("disk.img");
        command.arg("--slot").arg(format!("1=nvme,size=16M,image={}", image.display()));
        command.args(["--slot", "2=accelerator"]);
        scene.daemon("devices", command)?;
        let mut command = Command::new(scene.programs.join("dxpu-card-host"));
        command.arg("--card").arg(scene.path("host-side"));
        command.arg("--model-host").arg(scene.path("shell")).args(["--model-button-ms", "100"]);
        scene.daemon("host", command)?;
        scene.until_there(&scene.path("box-side"))?;
        scene.until_there(&scene.path("host-side"))?;

        let (mut network, process) = Network::start(scene.folder.path(), 2, false)?;
        scene.daemons.push(process);
        let sides = [("card-box", Role::Box, "box-side"), ("card-host", Role::Host, "host-side")];
        for (cable, (name, role, side)) in sides.into_iter().enumerate() {
            let mut pcie = scene.path(side);
            if cards == Cards::Tapped {
                let side = std::mem::replace(&mut pcie, scene.path(&format!("{name}-tap")));
                scene.taps.push(Tap::between(&pcie, &side)?);
            }
            let (seed, vlan) = match cards {
                Cards::BadCables(seed) => (Some(seed), None),
                Cards::InVlan(vlan) => (Some(0), Some(vlan)),
                Cards::Plain | Cards::Tapped => (None, None),
            };
            if let Some(seed) = seed {
                scene.cables.push(network.make_bad(cable, seed + 2 * cable as u64)?);
            }
            let new = NewCard { name, role, places: 4, manager, vlan, pcie: &pcie };
            let card = network.start_new_card(cable, firmware, &new)?;
            scene.daemons.push(card);
        }
        Ok(scene)
    }

    /// What a card counts, by name.
    pub(crate) fn counters(&self, card: &str) -> Counters {
        let text = self.manager(&["counters", card]).unwrap();
        let lines = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.trim().to_owned(), value.parse().ok()?))
        });
        lines.collect()
    }

    /// The device of this model of the card with the devices becomes the host's first device.
    pub(crate) fn lend(&mut self, model: &str) {
        self.until(model, &["list"], model).unwrap();
        // The host has enumerated when it answers.
        self.host(&["lspci"]).unwrap();
        self.manager(&["allocate", "--host", "card-host", "--model", model]).unwrap();
        self.host(&["wait", "--devices", "1", "--seconds", "60"]).unwrap();
    }

    pub(crate) fn until(
        &mut self,
        what: &str,
        arguments: &[&str],
        found: &str,
    ) -> anyhow::Result<String> {
        let mut last = String::new();
        let outcome = wait_for(what, BOUND, || {
            last = self.manager(arguments).unwrap_or_else(|error| error.to_string());
            Ok(last.contains(found).then(|| last.clone()))
        });
        outcome.with_context(|| last.clone())
    }
}
