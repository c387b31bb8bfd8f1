//! A manager, a host proxy and a box proxy as processes of their own, each proxy on a processor.

use crate::network::{BOX, BOX_ADDRESS, HOST, HOST_ADDRESS, MANAGER_ADDRESS, Network};
use crate::process::{start, wait_for};
use anyhow::{Context, Result};
use processes::{Daemon, output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HOST_PROCESSOR: usize = 0;
pub(crate) const BOX_PROCESSOR: usize = 1;

/// What a system is made of.
pub(crate) struct Layout<'a> {
    /// The box's slots, as its command line has them.
    pub(crate) slots: &'a [&'a str],
    /// Paths between host and box.
    pub(crate) paths: usize,
    /// Whether the box is the one whose first device can be made to hang (see `hanging_box`).
    pub(crate) hanging: bool,
    /// What carries the frames.
    pub(crate) transport: Transport,
    /// Largest payload and read request that the host gives to devices, in bytes.
    pub(crate) payload: usize,
}

/// What carries the frames between host and box.
#[derive(Clone, Copy)]
pub(crate) enum Transport {
    /// Ethernet, by packet rings.
    Rings,
    /// UDP on the first path's interfaces.
    Udp {
        /// Whether the kernel takes many frames at once.
        segmentation: bool,
    },
}

impl Transport {
    /// What the settings of a proxy with these interfaces, or this address, say of it.
    fn settings(self, interfaces: &[&str], address: &str) -> [String; 2] {
        match self {
            Self::Rings => {
                let paths: Vec<_> = interfaces.iter().map(|name| format!("eth:{name}")).collect();
                [format!("--fabric={}", paths.join(",")), "--rings=true".into()]
            }
            Self::Udp { segmentation } => {
                [format!("--fabric=udp:{address}:0"), format!("--segmentation={segmentation}")]
            }
        }
    }
}

impl<'a> Layout<'a> {
    /// One path, and a box with these slots; payloads as usual servers have them.
    pub(crate) fn of(slots: &'a [&'a str]) -> Self {
        Self { slots, paths: 1, hanging: false, transport: Transport::Rings, payload: 512 }
    }
}

/// The running programs. The order is that of stopping.
pub(crate) struct System {
    pub(crate) host_proxy: Daemon,
    pub(crate) boxes: Daemon,
    manager: Daemon,
    programs: PathBuf,
    space: String,
    server: String,
    pub(crate) folder: tempfile::TempDir,
}

impl System {
    pub(crate) fn start(programs: &Path, network: &Network, layout: &Layout<'_>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("dxpu-bench-").tempdir()?;
        let path = folder.path();
        let command = |space: &str, program: &Path| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", space]).arg(program).current_dir(path);
            command
        };
        let any = format!("{MANAGER_ADDRESS}:0");
        let mut manager = command(&network.host, &programs.join("dxpu-manager"));
        manager.args(["serve", "--listen", &any, "--control", &any, "--store", "manager.redb"]);
        manager.args(["--ready-file", "ready.json"]);
        let manager = start("manager", path, manager, None)?;
        let ready = wait_for("the manager to listen", || {
            let text = std::fs::read_to_string(path.join("ready.json")).ok();
            Ok(text.and_then(|text| serde_json::from_str::<Value>(&text).ok()))
        })
        .with_context(|| manager.last_lines())?;
        let address = |pointer| {
            let found = ready.pointer(pointer).and_then(Value::as_str);
            found.map(str::to_owned).context("an address of the manager")
        };
        let control = address("/control")?;
        let common = |command: &mut Command, name: &str, interfaces: &[&str], address: &str| {
            command.args(["--name", name, "--manager", &control, "--log", "warn"]);
            command.args(layout.transport.settings(&interfaces[..layout.paths], address));
        };
        let ports = layout.slots.len().to_string();
        let mut host = command(&network.host, &programs.join("host-proxy"));
        common(&mut host, "host", &HOST, HOST_ADDRESS);
        host.args(["--model-host", "host.sock", "--ports", &ports, "--model-button-ms", "10"]);
        let payload = layout.payload.to_string();
        host.args(["--model-payload", &payload, "--model-read-request", &payload]);
        let mut boxes = if layout.hanging {
            let mut own = command(&network.boxes, &std::env::current_exe()?);
            own.arg("hanging-box");
            own
        } else {
            command(&network.boxes, &programs.join("box-proxy"))
        };
        common(&mut boxes, "box", &BOX, BOX_ADDRESS);
        if layout.hanging {
            boxes.args(["--accelerators", &ports]);
        } else {
            boxes.args(layout.slots.iter().flat_map(|slot| ["--slot", slot]));
        }
        let host_proxy = start("host", path, host, Some(HOST_PROCESSOR))?;
        let boxes = start("box", path, boxes, Some(BOX_PROCESSOR))?;
        let server = format!("http://{}", address("/listen")?);
        let (programs, space) = (programs.to_path_buf(), network.host.clone());
        let system = Self { host_proxy, boxes, manager, programs, space, server, folder };
        system.wait_ready(layout.slots.len()).with_context(|| system.logs())?;
        Ok(system)
    }

    fn wait_ready(&self, devices: usize) -> Result<()> {
        wait_for("the devices to be in the pool", || {
            let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
            let nodes = count(&self.manage(&["nodes"])?);
            let free = count(&self.manage(&["list", "--free"])?);
            Ok((nodes == 2 && free == devices).then_some(()))
        })
    }

    /// Ends of the daemons' logs.
    fn logs(&self) -> String {
        [&self.manager, &self.host_proxy, &self.boxes].map(Daemon::last_lines).join("\n")
    }

    fn manage(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]).arg(self.programs.join("dxpu-manager"));
        command.args(["--server", &self.server]).args(words).arg("--json");
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    /// What the model host says to a command.
    pub(crate) fn host(&self, words: &[&str]) -> Result<Value> {
        let text = output(&mut self.host_command(words)).with_context(|| self.logs())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// A command of the model host, not run yet.
    pub(crate) fn host_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("dxpu-host"));
        command.arg("--socket").arg(self.folder.path().join("host.sock"));
        command.arg("--json").args(words);
        command
    }

    /// Lends so many devices of a model to the host; where the host sees all of that class.
    pub(crate) fn lend(&self, model: &str, count: usize) -> Result<Vec<Function>> {
        for _ in 0..count {
            self.manage(&["allocate", "--host", "host", "--model", model])?;
        }
        let class = if model == "nvme" { 0x01_0802 } else { 0x12_0000 };
        wait_for("the host to find the devices", || {
            let mut found = Vec::new();
            find(&self.host(&["lspci"])?, class, &mut found);
            Ok((found.len() == count).then_some(found))
        })
    }
}

/// Where the host sees a function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Address of its first memory BAR.
    pub(crate) address: u64,
}

/// Functions of a class in a tree that have memory.
fn find(node: &Value, class: u64, found: &mut Vec<Function>) {
    let address = node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap_or(0);
    if node["class"].as_u64() == Some(class)
        && address != 0
        && let Some(name) = node["bdf"].as_str()
    {
        found.push(Function { name: name.to_owned(), address });
    }
    for list in ["devices", "children"] {
        for child in node[list].as_array().into_iter().flatten() {
            find(child, class, found);
        }
    }
}
