//! Everything that runs while the demo does: a manager, and a host proxy and two box proxies, which
//! are programs, or firmware in emulated cards.

mod cards;

use crate::Cli;
use crate::fabric::Fabric;
use crate::place::Place;
use crate::programs::{Programs, text};
use crate::report::Report;
use anyhow::Result;
use emulated_card::firmware::Firmware;
use processes::{Daemon, quoted, wait_for};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub(crate) const HOST: &str = "host-1";
pub(crate) const DRIVE_BOX: &str = "box-a";
pub(crate) const ACCELERATOR_BOX: &str = "box-b";

/// Downstream ports of the host's switch.
const PORTS: u8 = 4;

/// Smallest drive that is made.
const SMALLEST_DRIVE: u64 = 16 << 20;

/// Where the proxies are.
enum Proxies {
    /// In programs.
    Programs(Fabric),
    /// In emulated cards.
    Cards(Firmware),
}

/// Everything that runs.
pub(crate) struct Running {
    pub(crate) programs: Programs,
    /// How long daemons and devices get to appear.
    pub(crate) appear: Duration,
    /// In the order of stopping.
    daemons: Vec<(&'static str, Daemon)>,
    /// What the daemons are on; the last to go.
    fabric: Option<Fabric>,
}

/// What the proxies and what is beside them are started with.
struct Setting<'a> {
    place: &'a Place,
    /// Where proxies find the manager.
    control: &'a str,
    /// Where `dxpu-host` finds the host.
    host_socket: &'a str,
    /// The boxes, and what is in their slot.
    boxes: [(&'static str, &'a str); 2],
    button_ms: String,
}

impl Running {
    /// Starts it, and waits until the manager knows the nodes and both devices.
    ///
    /// # Errors
    ///
    /// What is missing, and what to do; the end of the log of one that has ended.
    pub(crate) fn start(cli: &Cli, report: &mut Report, folder: &Path, bytes: u64) -> Result<Self> {
        let proxies = match (cli.card, cli.l2) {
            (true, _) => Proxies::Cards(Firmware::find()?),
            (false, true) => Proxies::Programs(Fabric::ethernet()?),
            (false, false) => Proxies::Programs(Fabric::Udp),
        };
        proxies.announce(report)?;
        let place = Place {
            programs: processes::own_folder()?,
            folder: folder.to_path_buf(),
            outlive: cli.keep,
        };
        let (programs, control, manager) = manager(&place, &proxies)?;
        let size = (bytes + (1 << 20)).next_multiple_of(1 << 20).max(SMALLEST_DRIVE);
        let drive = format!("1=nvme,image=drive.img,size={size},model=nvme");
        let setting = Setting {
            place: &place,
            control: &control,
            host_socket: &programs.host_socket,
            boxes: [(DRIVE_BOX, &drive), (ACCELERATOR_BOX, "1=accelerator")],
            button_ms: cli.button_ms.to_string(),
        };
        let mut daemons = match &proxies {
            Proxies::Programs(fabric) => in_programs(&setting, fabric)?,
            Proxies::Cards(firmware) => cards::start(&setting, firmware)?,
        };
        daemons.push(("manager", manager));
        let appear = Duration::from_secs(if cli.card { 120 } else { 20 });
        let fabric = match proxies {
            Proxies::Programs(fabric) => Some(fabric),
            Proxies::Cards(_) => None,
        };
        let mut running = Self { programs, appear, daemons, fabric };
        running.wait_ready()?;
        Ok(running)
    }

    fn wait_ready(&mut self) -> Result<()> {
        wait_for("two free devices and a host", self.appear, || {
            self.check()?;
            let nodes = self.programs.manager_json(&["nodes"])?;
            let free = self.programs.manager_json(&["list", "--free"])?;
            let count =
                |list: &Value| list.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
            Ok((count(&nodes) == 3 && count(&free) == 2).then_some(()))
        })
    }

    /// Whether everything runs still.
    ///
    /// # Errors
    ///
    /// With the end of the log of one that has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(|(_, daemon)| daemon.check())
    }

    /// What each process has resident, in bytes.
    pub(crate) fn resident(&self) -> Value {
        let of = |(name, daemon): &(&str, Daemon)| {
            ((*name).to_owned(), daemon.resident().unwrap_or(0).into())
        };
        Value::Object(self.daemons.iter().map(of).collect())
    }

    /// Leaves it running and says how to use and stop it. Whether it does: not when nobody reads
    /// that.
    pub(crate) fn keep(mut self, report: &Report) -> bool {
        report.step("left running; for example:");
        if processes::interrupted() {
            return false;
        }
        let folder = quoted(&self.programs.place.folder.display().to_string());
        let remove = self.fabric.as_mut().and_then(Fabric::keep);
        let remove = remove.map_or(String::new(), |remove| format!("; {remove}"));
        let ids: Vec<String> =
            self.daemons.iter().map(|(_, daemon)| daemon.id().to_string()).collect();
        self.daemons.iter_mut().for_each(|(_, daemon)| daemon.keep());
        let programs = quoted(&self.programs.place.programs.display().to_string());
        let enter = self.programs.namespace.as_deref();
        let enter = enter.map_or(String::new(), |space| format!("ip netns exec {space} "));
        report.text(&format!(
            "export PATH={programs}:$PATH DXPU_MANAGER={} DXPU_MODEL_HOST={}\n\
             {enter}dxpu-manager list\n\
             {enter}dxpu-manager allocate --host {HOST}\n\
             dxpu-host lspci\n\
             stop it: kill {}; sleep 2{remove}; rm -r {folder}",
            self.programs.server,
            quoted(&self.programs.host_socket),
            ids.join(" "),
        ));
        true
    }
}

impl Proxies {
    /// Says what is started, and where.
    fn announce(&self, report: &mut Report) -> Result<()> {
        let (what, fabric) = match self {
            Self::Programs(fabric) => {
                ("manager, host proxy and two box proxies", fabric.describe())
            }
            Self::Cards(_) => (
                "manager, and host proxy and two box proxies as firmware in emulated cards",
                "Ethernet between QEMU's riscv32 machines",
            ),
        };
        report.step(&format!("starting {what} ({fabric})"));
        report.record("fabric", fabric.into());
        if let Self::Cards(firmware) = self {
            let (text, value) = cards::describe(firmware)?;
            report.text(&text);
            report.record("cards", value);
        }
        Ok(())
    }

    fn host_namespace(&self) -> Option<&str> {
        match self {
            Self::Programs(fabric) => fabric.host_namespace(),
            Self::Cards(_) => None,
        }
    }

    fn manager_address(&self) -> &'static str {
        match self {
            Self::Programs(fabric) => fabric.manager_address(),
            // Cards have their own way to this computer's loopback network.
            Self::Cards(_) => "127.0.0.1",
        }
    }
}

/// Starts the manager: how to speak to it, where proxies find it, and its process.
fn manager(place: &Place, proxies: &Proxies) -> Result<(Programs, String, Daemon)> {
    let any = format!("{}:0", proxies.manager_address());
    let ready = place.folder.join("ready.json");
    let mut command = place.command("dxpu-manager", proxies.host_namespace());
    command.args(["serve", "--listen", &any, "--control", &any, "--store", "manager.redb"]);
    command.arg("--ready-file").arg(&ready);
    let mut manager = place.start("manager", command)?;
    let addresses = wait_for("the manager to listen", Duration::from_secs(20), || {
        manager.check()?;
        let text = std::fs::read_to_string(&ready).ok();
        Ok(text.and_then(|text| serde_json::from_str::<Value>(&text).ok()))
    })?;
    let programs = Programs {
        place: place.clone(),
        namespace: proxies.host_namespace().map(str::to_string),
        server: format!("http://{}", text(&addresses, "/listen")?),
        host_socket: place.folder.join("host.sock").display().to_string(),
    };
    Ok((programs, text(&addresses, "/control")?, manager))
}

/// Starts the proxies as programs.
fn in_programs(setting: &Setting<'_>, fabric: &Fabric) -> Result<Vec<(&'static str, Daemon)>> {
    let Setting { place, control, host_socket, boxes, button_ms } = setting;
    let mut command = place.command("host-proxy", fabric.host_namespace());
    command.args(["--name", HOST, "--manager", control, "--fabric", &fabric.host_setting()]);
    command.args(["--model-host", host_socket, "--ports", &PORTS.to_string()]);
    command.args(["--model-button-ms", button_ms]);
    let mut daemons = vec![(HOST, place.start(HOST, command)?)];
    for (name, slot) in boxes {
        let mut command = place.command("box-proxy", fabric.box_namespace());
        command.args(["--name", name, "--manager", control]);
        command.args(["--fabric", &fabric.box_setting(name)?, "--slot", slot]);
        daemons.push((name, place.start(name, command)?));
    }
    Ok(daemons)
}
