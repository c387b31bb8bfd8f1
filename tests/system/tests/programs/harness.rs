//! Starts the programs, talks to them, and ends them.

use serde_json::Value;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that anything is waited for. Far more than it takes, so that a slow machine passes.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Where the programs are: beside the folder of this test's executable.
fn programs() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its executable");
    own.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_path_buf()
}

/// A command for one of the project's programs, free of settings from the environment.
pub(crate) fn program(name: &str) -> Command {
    let path = programs().join(name);
    assert!(path.is_file(), "{} is not there: run `cargo build --workspace` first", path.display());
    let mut command = Command::new(path);
    processes::without_settings(&mut command).stdin(Stdio::null());
    command
}

/// The same for a user who may not do everything: copied into `folder`, where that user finds it,
/// and run as `nobody` if this runs as root.
pub(crate) fn unprivileged(name: &str, folder: &Path) -> Command {
    const NOBODY: u32 = 65534;
    let original = program(name);
    let copy = folder.join(name);
    // By a process of its own: a file that this one has open for writing is inherited by whatever
    // another thread starts just then, and cannot be run as long as that has not begun.
    let copied = Command::new("cp").arg(original.get_program()).arg(&copy).status();
    assert!(copied.expect("cp").success(), "a copy of {name}");
    let mut command = Command::new(copy);
    for (variable, value) in original.get_envs() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command.stdin(Stdio::null()).current_dir(folder).env("TMPDIR", "/tmp");
    if is_root() {
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("our own folder");
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Whether this runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid(2) only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// What a program ended with.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The JSON on its standard output.
    ///
    /// # Panics
    ///
    /// When it failed or printed something else.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Asserts the exit status, and that standard error says each of these.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in says {
            assert!(self.stderr.contains(text), "`{text}` is not said: {self:?}");
        }
    }
}

/// Runs a command to its end.
///
/// # Panics
///
/// When it does not end within the bound.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    end(child.unwrap_or_else(|e| panic!("{command:?}: {e}")), BOUND)
}

/// Waits for a command that was started with pipes.
///
/// # Panics
///
/// When it does not end within the bound.
#[track_caller]
pub(crate) fn end(child: Child, bound: Duration) -> Ended {
    let id = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(bound) {
        Ok(output) => ended(output.expect("its output can be read")),
        Err(_) => {
            signal(id, libc::SIGKILL);
            panic!("a command did not end within {bound:?}");
        }
    }
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn signal(id: u32, signal: i32) {
    // SAFETY: kill(2) has no memory effects; the callers' children are not reaped yet.
    unsafe { libc::kill(id as libc::pid_t, signal) };
}

/// Asks until there is an answer.
///
/// # Panics
///
/// When there is none within the bound.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {BOUND:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that is killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it, with its output in a log.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log");
        command.stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Self { child, log: log.into() }
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it runs still.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops it where it is.
    pub(crate) fn freeze(&self) {
        signal(self.child.id(), libc::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        signal(self.child.id(), libc::SIGCONT);
    }

    /// SIGKILL: the end of a process that crashed.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child");
    }

    /// SIGTERM, and the exit status.
    pub(crate) fn stop(mut self) -> ExitStatus {
        signal(self.child.id(), libc::SIGTERM);
        wait_for("a daemon to stop", || self.child.try_wait().expect("it is a child"))
    }

    /// Memory that it has resident, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("has memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A manager with proxies around it, in a folder of its own.
pub(crate) struct Pool {
    // Before the folder, so that they end first.
    pub(crate) manager: Option<Daemon>,
    folder: tempfile::TempDir,
    listen: String,
    pub(crate) control: String,
    /// More lines of the manager's configuration.
    settings: &'static str,
}

impl Pool {
    /// A manager that listens.
    pub(crate) fn new() -> Self {
        Self::with_settings("")
    }

    /// As [`Pool::new`], with these lines of its configuration.
    pub(crate) fn with_settings(settings: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let any = "127.0.0.1:0".to_string();
        let mut pool = Self { manager: None, folder, listen: any.clone(), control: any, settings };
        pool.start_manager();
        pool
    }

    /// Starts the manager on the store and addresses that it had before, if it was there before.
    pub(crate) fn start_manager(&mut self) {
        let ready = self.path("ready.json");
        let _ = std::fs::remove_file(&ready);
        let config = self.path("manager.toml");
        // Short periods, so that a test does not wait for them.
        let timing = "[timing]\nping_ms = 500\nsilence_ms = 5000\nreconcile_ms = 1000\n";
        std::fs::write(&config, format!("{}{timing}", self.settings)).expect("a file");
        let mut command = program("dxpu-manager");
        command.args(["serve", "--listen", &self.listen, "--control", &self.control]);
        command.arg("--config").arg(&config).arg("--store").arg(self.path("manager.redb"));
        command.arg("--ready-file").arg(&ready);
        let mut manager = Daemon::start(&mut command, &self.path("manager.log"));
        let addresses: Value = wait_for("the manager to listen", || {
            assert!(manager.runs(), "{}", manager.log());
            serde_json::from_str(&std::fs::read_to_string(&ready).ok()?).ok()
        });
        self.listen = text(&addresses, "/listen");
        self.control = text(&addresses, "/control");
        self.manager = Some(manager);
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the folder, as an argument.
    pub(crate) fn argument(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Starts a host proxy with a model host.
    pub(crate) fn host(&self, name: &str) -> Daemon {
        self.host_with_ports(name, 4)
    }

    /// As [`Pool::host`], with so many ports.
    pub(crate) fn host_with_ports(&self, name: &str, ports: u8) -> Daemon {
        let mut command = self.host_command_line(name, "--model-host", ports);
        self.start(command.args(["--model-button-ms", "100"]), name)
    }

    /// Starts a host proxy for a root complex at a TLP socket, with four ports.
    pub(crate) fn socket_host(&self, name: &str) -> Daemon {
        self.start(&mut self.host_command_line(name, "--tlp-socket", 4), name)
    }

    /// Its front-end has its socket in the folder.
    fn host_command_line(&self, name: &str, front: &str, ports: u8) -> Command {
        let mut command = program("host-proxy");
        command.args(["--name", name, "--manager", &self.control, "--fabric", "udp:127.0.0.1:0"]);
        command.arg(front).arg(self.path(&format!("{name}.sock")));
        command.args(["--ports", &ports.to_string()]);
        command
    }

    /// Starts a box proxy with these slots.
    pub(crate) fn boxed(&self, name: &str, slots: &[String]) -> Daemon {
        let mut command = program("box-proxy");
        command.args(["--name", name, "--manager", &self.control, "--fabric", "udp:127.0.0.1:0"]);
        for slot in slots {
            command.args(["--slot", slot]);
        }
        self.start(&mut command, name)
    }

    /// A slot setting: an NVMe drive of 16 MiB in a file of the folder.
    pub(crate) fn drive(&self, slot: u8, image: &str) -> String {
        format!("{slot}=nvme,image={},size=16M,model=nvme", self.argument(image))
    }

    fn start(&self, command: &mut Command, name: &str) -> Daemon {
        Daemon::start(command, &self.path(&format!("{name}.log")))
    }

    /// Waits until the manager knows so many nodes, all ready, and their devices, too.
    pub(crate) fn wait_ready(&self, count: usize) {
        wait_for("all proxies to be ready", || {
            let nodes = self.manager_json(&["nodes"]);
            let ready = |node: &&Value| node.pointer("/connection/ready") == Some(&true.into());
            let all = items(&nodes).iter().filter(ready).count() == count;
            let list = self.manager_json(&["list"]);
            let settled = |slot: &Value| slot["status"] != "probing";
            (all && items(&list).iter().all(settled)).then_some(())
        });
    }

    /// Where the manager's REST API listens.
    pub(crate) fn listen(&self) -> &str {
        &self.listen
    }

    /// A command to the manager.
    pub(crate) fn manager(&self, arguments: &[&str]) -> Ended {
        let server = format!("http://{}", self.listen);
        run(program("dxpu-manager").args(["--server", &server]).args(arguments))
    }

    /// The JSON that a command to the manager prints.
    #[track_caller]
    pub(crate) fn manager_json(&self, arguments: &[&str]) -> Value {
        self.manager(&[arguments, &["--json"]].concat()).json()
    }

    /// Lends one slot, such as `box-a/1`; the allocation's name.
    #[track_caller]
    pub(crate) fn allocate(&self, host: &str, slot: &str) -> String {
        let (name, number) = slot.split_once('/').expect("BOX/SLOT");
        let answer =
            self.manager_json(&["allocate", "--host", host, "--box", name, "--slot", number]);
        text(&answer, "/id")
    }

    /// As [`Pool::allocate`], to a host whose operating system may not enable it.
    #[track_caller]
    pub(crate) fn lend_plugged(&self, host: &str, slot: &str) -> String {
        let (name, number) = slot.split_once('/').expect("BOX/SLOT");
        let lend = ["allocate", "--host", host, "--box", name, "--slot", number];
        text(&self.manager_json(&[&lend[..], &["--keep-unenumerated"]].concat()), "/id")
    }

    /// The slot as `list` has it.
    #[track_caller]
    pub(crate) fn slot(&self, slot: &str) -> Value {
        let list = self.manager_json(&["list"]);
        let found = items(&list).iter().find(|item| item["slot"] == slot);
        found.unwrap_or_else(|| panic!("{slot} is not in {list}")).clone()
    }

    /// A counter of a proxy, read through the manager; 0 for one that is not there.
    #[track_caller]
    pub(crate) fn counter(&self, node: &str, name: &str) -> u64 {
        let counters = self.manager_json(&["counters", node]);
        counters["counters"][name].as_u64().unwrap_or_default()
    }

    /// A command to a model host.
    pub(crate) fn host_command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = program("dxpu-host");
        command.arg("--socket").arg(self.path(&format!("{host}.sock")));
        command.arg("--json").args(arguments);
        command
    }

    /// Runs a command to a model host.
    pub(crate) fn host_run(&self, host: &str, arguments: &[&str]) -> Ended {
        run(&mut self.host_command(host, arguments))
    }

    /// What a command to a model host results in.
    #[track_caller]
    pub(crate) fn host_json(&self, host: &str, arguments: &[&str]) -> Value {
        self.host_run(host, arguments).json()
    }

    /// Bus addresses of the host's functions of a class, once there are so many.
    #[track_caller]
    pub(crate) fn find(&self, host: &str, class: u64, count: usize) -> Vec<String> {
        wait_for("devices to appear", || {
            let ended = self.host_run(host, &["lspci"]);
            let mut found = Vec::new();
            walk(&serde_json::from_str(&ended.stdout).ok()?, &mut |node| {
                if node["class"] == class && !node["driver"].is_null() {
                    found.push(text(node, "/bdf"));
                }
            });
            (found.len() == count).then_some(found)
        })
    }

    /// Writes bytes to a drive, reads them back, and asserts that they are the same.
    #[track_caller]
    pub(crate) fn round_trip(&self, host: &str, drive: &str, bytes: usize) {
        let (sent, back) = (self.argument("sent"), self.argument("back"));
        std::fs::write(&sent, noise(bytes)).expect("a file");
        self.host_json(host, &["nvme-write", drive, &sent]);
        self.host_json(host, &["nvme-read", drive, &back, "--bytes", &bytes.to_string()]);
        let same = std::fs::read(&sent).expect("a file") == std::fs::read(&back).expect("a file");
        assert!(same, "what was read from {drive} is not what was written");
    }
}

/// Class code of an NVMe controller.
pub(crate) const NVME: u64 = 0x01_0802;
/// Class code of a processing accelerator.
pub(crate) const ACCELERATOR: u64 = 0x12_0000;

/// Asks for an event of this kind about this node.
#[track_caller]
pub(crate) fn wait_event(pool: &Pool, kind: &str, node: &str) {
    wait_for(&format!("an event {kind} of {node}"), || {
        let events = pool.manager(&["events", "--limit", "1000", "--json"]).stdout;
        events.lines().any(|line| line.contains(kind) && line.contains(node)).then_some(())
    });
}

fn walk(node: &Value, visit: &mut dyn FnMut(&Value)) {
    visit(node);
    for list in ["devices", "children"] {
        for child in node.get(list).and_then(Value::as_array).into_iter().flatten() {
            walk(child, visit);
        }
    }
}

/// The items of a list.
#[track_caller]
pub(crate) fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap_or_else(|| panic!("no items: {list}"))
}

/// A text in JSON.
#[track_caller]
pub(crate) fn text(value: &Value, path: &str) -> String {
    let found = value.pointer(path).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {path}: {value}")).to_string()
}

/// Numbers without a pattern, the same each time (xorshift).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// The next one.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Bytes without a pattern.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    (0..bytes).map(|_| noise.next() as u8).collect()
}
