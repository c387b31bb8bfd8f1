//! A fabric on this machine for guests: a manager, boxes and host proxies, each a process.

mod cards;

use anyhow::{Context, Result, ensure};
use processes::{Daemon, wait_for};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest that programs of ours are waited for; far more than it takes.
const BOUND: Duration = Duration::from_secs(120);

/// Lines of a log that an error shows.
const LAST_LINES: usize = 40;

/// Manager, boxes and hosts. All of them end when this is dropped.
pub struct Fabric {
    /// The host proxies, by name.
    pub hosts: Vec<(String, Daemon)>,
    /// The box proxies, by name.
    pub boxes: Vec<(String, Daemon)>,
    /// What emulated cards are plugged into: their PCIe sides, and the network between them.
    beside: Vec<Daemon>,
    /// The manager.
    pub manager: Daemon,
    /// Where the next proxies' frames travel, as their flags; UDP on loopback when there are none.
    pub network: Vec<String>,
    programs: PathBuf,
    folder: PathBuf,
    server: String,
    control: String,
}

impl Fabric {
    /// Starts a manager; what it and the others write is in a folder.
    ///
    /// # Errors
    ///
    /// When the programs are not in their folder, or the manager does not start.
    pub fn start(programs: &Path, folder: &Path) -> Result<Self> {
        Self::start_with(programs, folder, &[])
    }

    /// As [`start`](Self::start), with more of the manager's flags.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(programs: &Path, folder: &Path, flags: &[&str]) -> Result<Self> {
        for name in ["dxpu-manager", "host-proxy", "box-proxy"] {
            let program = programs.join(name);
            ensure!(
                program.is_file(),
                "{} is not there: run `cargo build --workspace --bins` first",
                program.display()
            );
        }
        let ready = folder.join("ready.json");
        let any = "127.0.0.1:0";
        let mut command = own(&programs.join("dxpu-manager"), folder);
        command.args(["serve", "--listen", any, "--control", any, "--store", "manager.redb"]);
        command.arg("--ready-file").arg(&ready).args(flags);
        let mut manager = Daemon::start("manager", folder, command, false)?;
        let addresses = wait_for("the manager to listen", BOUND, || {
            manager.check()?;
            let text = std::fs::read_to_string(&ready).ok();
            Ok(text.and_then(|text| serde_json::from_str::<Value>(&text).ok()))
        })?;
        Ok(Self {
            hosts: Vec::new(),
            boxes: Vec::new(),
            beside: Vec::new(),
            manager,
            network: Vec::new(),
            programs: programs.to_path_buf(),
            folder: folder.to_path_buf(),
            server: format!("http://{}", text(&addresses, "/listen")?),
            control: text(&addresses, "/control")?,
        })
    }

    /// Starts a box proxy with slots as its flag `--slot` has them.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn add_box(&mut self, name: &str, slots: &[String]) -> Result<()> {
        let mut command = self.proxy("box-proxy", name);
        for slot in slots {
            command.args(["--slot", slot]);
        }
        let daemon = Daemon::start(name, &self.folder, command, false)?;
        self.boxes.push((name.to_owned(), daemon));
        Ok(())
    }

    /// Starts a host proxy for a guest, with more of its flags; the socket for the guest.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn add_host(&mut self, name: &str, flags: &[&str]) -> Result<PathBuf> {
        let socket = self.folder.join(format!("{name}.sock"));
        let mut command = self.proxy("host-proxy", name);
        command.arg("--vm").arg(&socket).args(flags);
        let mut daemon = Daemon::start(name, &self.folder, command, false)?;
        wait_for("a host proxy's socket", BOUND, || {
            daemon.check()?;
            Ok(socket.exists().then_some(()))
        })?;
        self.hosts.push((name.to_owned(), daemon));
        Ok(socket)
    }

    fn proxy(&self, program: &str, name: &str) -> Command {
        let mut command = own(&self.programs.join(program), &self.folder);
        command.args(["--name", name, "--manager", &self.control]);
        if self.network.is_empty() {
            command.args(["--fabric", "udp:127.0.0.1:0"]);
        }
        command.args(&self.network);
        command
    }

    /// Waits until all proxies are connected and their slots known.
    ///
    /// # Errors
    ///
    /// When one has ended, or it takes too long.
    pub fn wait_ready(&mut self) -> Result<()> {
        let count = self.hosts.len() + self.boxes.len();
        wait_for("all proxies to be ready", BOUND, || {
            self.check()?;
            let nodes = self.manager(&["nodes"])?;
            let ready = |node: &&Value| node.pointer("/connection/ready") == Some(&true.into());
            let all = items(&nodes)?.iter().filter(ready).count() == count;
            let slots = self.manager(&["list"])?;
            let settled = items(&slots)?.iter().all(|slot| slot["status"] != "probing");
            Ok((all && settled).then_some(()))
        })
    }

    /// Whether everything runs still.
    ///
    /// # Errors
    ///
    /// With the end of the log of one that has ended.
    pub fn check(&mut self) -> Result<()> {
        self.daemons().try_for_each(Daemon::check)
    }

    /// Those that have ended: for each how, and the end of its log.
    pub fn ended(&mut self) -> Vec<String> {
        let errors = self.daemons().filter_map(|daemon| daemon.check().err());
        errors.map(|error| format!("{error:#}")).collect()
    }

    /// The ends of all logs in its folder, those of guests as well: for errors.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        let mut logs: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for log in logs {
            let said = std::fs::read(&log).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let lines: Vec<&str> = said.lines().collect();
            let end = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            text.push_str(&format!("--- {} ends:\n{end}\n", log.display()));
        }
        text
    }

    fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let proxies = self.hosts.iter_mut().chain(&mut self.boxes).map(|(_, daemon)| daemon);
        std::iter::once(&mut self.manager).chain(proxies).chain(&mut self.beside)
    }

    /// What a command to the manager results in.
    ///
    /// # Errors
    ///
    /// When it fails, with what it said.
    pub fn manager(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = own(&self.programs.join("dxpu-manager"), &self.folder);
        command.args(["--server", &self.server]).args(arguments).arg("--json");
        let text = processes::output(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("dxpu-manager {arguments:?}: {text}"))
    }

    /// Counters of a proxy, by their names.
    ///
    /// # Errors
    ///
    /// When the manager fails, or the proxy has not such a counter.
    pub fn counters<const N: usize>(&self, proxy: &str, names: [&str; N]) -> Result<[u64; N]> {
        let all = self.manager(&["counters", proxy])?;
        let mut counts = [0; N];
        for (count, name) in counts.iter_mut().zip(names) {
            *count = all["counters"][name].as_u64().with_context(|| format!("{name}: {all}"))?;
        }
        Ok(counts)
    }

    /// Lends a slot, such as `box-a/1`, to a host; the allocation's name.
    ///
    /// # Errors
    ///
    /// When the manager does not.
    pub fn allocate(&self, host: &str, slot: &str) -> Result<String> {
        let (name, number) = slot.split_once('/').context("a slot is BOX/NUMBER")?;
        // A guest that is not up, or has no room for a device, does not enumerate it.
        let lend = ["allocate", "--host", host, "--box", name, "--slot", number];
        let answer = self.manager(&[&lend[..], &["--keep-unenumerated"]].concat())?;
        text(&answer, "/id")
    }

    /// Takes back what was lent.
    ///
    /// # Errors
    ///
    /// When the manager does not.
    pub fn release(&self, allocation: &str) -> Result<()> {
        self.manager(&["release", allocation]).map(drop)
    }

    /// A slot as the manager's list has it.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn slot(&self, slot: &str) -> Result<Value> {
        let list = self.manager(&["list"])?;
        let found = items(&list)?.iter().find(|item| item["slot"] == slot);
        found.with_context(|| format!("{slot} is not in {list}")).cloned()
    }

    /// Ends a box proxy at once, as a crash does.
    ///
    /// # Errors
    ///
    /// When there is no such box.
    pub fn kill_box(&mut self, name: &str) -> Result<()> {
        let place = self.boxes.iter().position(|(own, _)| own == name);
        let (_, daemon) = self.boxes.remove(place.with_context(|| format!("no box {name}"))?);
        daemon.signal(SIGKILL);
        drop(daemon);
        Ok(())
    }

    /// Where the manager is asked: what `DXPU_MANAGER` is set to.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The folder of the programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }
}

/// signal(7).
const SIGKILL: i32 = 9;

/// A command for one of our programs, free of settings from the environment.
fn own(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    processes::without_settings(&mut command).current_dir(folder);
    command
}

/// The items of a list of the manager's.
///
/// # Errors
///
/// When it is no list.
pub fn items(list: &Value) -> Result<&Vec<Value>> {
    list["items"].as_array().with_context(|| format!("no items: {list}"))
}

fn text(value: &Value, path: &str) -> Result<String> {
    let found = value.pointer(path).and_then(Value::as_str);
    Ok(found.with_context(|| format!("no text at {path} in {value}"))?.to_owned())
}
