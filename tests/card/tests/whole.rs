//! Two emulated cards with the firmware in them, a real manager between them, a model host at one
//! and model devices at the other.

use anyhow::{Context, ensure};
use card_image::Role;
use emulated_card::emulator::{Network, NewCard};
use emulated_card::firmware::Firmware;
use processes::{Daemon, own_folder, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(60);

struct Scene {
    folder: tempfile::TempDir,
    programs: PathBuf,
    manager: String,
    daemons: Vec<Daemon>,
}

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

impl Scene {
    fn manager(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.join("dxpu-manager"));
        line(command.args(["--server", &self.manager]).args(arguments))
    }

    fn host(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.join("dxpu-host"));
        line(command.arg("--socket").arg(self.path("shell")).args(arguments))
    }

    fn path(&self, name: &str) -> PathBuf {
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

    fn start(firmware: &Firmware) -> anyhow::Result<Self> {
        // Beside the folder of tests.
        let programs = own_folder()?.parent().context("a test is in a folder")?.to_owned();
        let folder = tempfile::tempdir()?;
        let (manager, daemons) = (String::new(), Vec::new());
        let mut scene = Self { folder, programs, manager, daemons };
        let ready = scene.path("ready.json");
        let mut command = Command::new(scene.programs.join("dxpu-manager"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
        command.arg("--store").arg(scene.path("store")).arg("--ready-file").arg(&ready);
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

        let (network, process) = Network::start(scene.folder.path(), 2, false)?;
        scene.daemons.push(process);
        let sides = [("card-box", Role::Box, "box-side"), ("card-host", Role::Host, "host-side")];
        for (cable, (name, role, side)) in sides.into_iter().enumerate() {
            let pcie = &scene.path(side);
            let new = NewCard { name, role, places: 4, manager, pcie };
            let card = network.start_new_card(cable, firmware, &new)?;
            scene.daemons.push(card);
        }
        Ok(scene)
    }

    fn until(&mut self, what: &str, arguments: &[&str], found: &str) -> anyhow::Result<String> {
        let mut last = String::new();
        let outcome = wait_for(what, BOUND, || {
            last = self.manager(arguments).unwrap_or_else(|error| error.to_string());
            Ok(last.contains(found).then(|| last.clone()))
        });
        outcome.with_context(|| last.clone())
    }
}

/// The same bytes each time, none of them regular.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn the_whole_path_through_two_cards() {
    let firmware = match Firmware::find() {
        Ok(firmware) => firmware,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    let mut scene = Scene::start(&firmware).unwrap();
    for address in ["ethernet 02:00:00:00:00:00", "ethernet 02:00:00:00:00:01"] {
        scene.until("a card's path", &["nodes"], address).unwrap();
    }
    scene.until("the drive", &["list"], "nvme").unwrap();
    // The host has enumerated when it answers.
    scene.host(&["lspci"]).unwrap();
    for model in ["nvme", "accelerator"] {
        scene.manager(&["allocate", "--host", "card-host", "--model", model]).unwrap();
    }
    scene.host(&["wait", "--devices", "2", "--seconds", "60"]).unwrap();
    let tree = scene.host(&["lspci"]).unwrap();
    for words in ["NVMe controller 1b36:d0ae, driver nvme", "d0ac, driver accelerator"] {
        assert!(tree.contains(words), "{tree}");
    }

    let (sent, read) = (scene.path("sent"), scene.path("read"));
    std::fs::write(&sent, content(1 << 20)).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    scene.host(&["nvme-write", "03:00.0", &name(&sent)]).unwrap();
    scene.host(&["nvme-read", "03:00.0", &name(&read), "--bytes", "1048576"]).unwrap();
    assert!(std::fs::read(&sent).unwrap() == std::fs::read(&read).unwrap(), "the file came back");
    println!("{}", scene.host(&["latency", "07:00.0", "--reads", "200"]).unwrap());

    let counters = scene.manager(&["counters", "card-box"]).unwrap();
    println!("{counters}");
    for name in ["port: frames received", "resets: power came on", "card: bytes of stack"] {
        assert!(counters.contains(name), "{counters}");
    }
    for card in ["card-box", "card-host"] {
        let told = format!("{card} was reset: power came on (start 1 since power came on)");
        scene.until("why a card started", &["events"], &told).unwrap();
    }
    // What the manager asks for is logged at one level, and not at another.
    let logged = |scene: &Scene| std::fs::metadata(scene.path("card-box.uart")).unwrap().len();
    let asks = |scene: &Scene, level: &str| {
        scene.manager(&["log-level", "card-box", level]).unwrap();
        let before = logged(scene);
        scene.manager(&["counters", "card-box"]).unwrap();
        before
    };
    let before = asks(&scene, "debug");
    wait_for("a longer log", BOUND, || Ok((logged(&scene) > before).then_some(()))).unwrap();
    let before = asks(&scene, "error");
    assert_eq!(logged(&scene), before);
    scene.manager(&["release", "alloc-1", "alloc-2"]).unwrap();
    let tree = scene.host(&["lspci"]).unwrap();
    assert!(!tree.contains("slot in use"), "{tree}");
}
