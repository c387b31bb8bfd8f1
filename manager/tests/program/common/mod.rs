//! What the tests of the whole program share: a manager to run and proxies that pretend.

pub mod card;
pub mod fake;

use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a test waits for what has to come. Only a broken manager takes so long.
pub const LONG: Duration = Duration::from_secs(60);

/// Bounds of the managers under test: short, so that what has to time out does so soon, but none
/// that a slow machine could miss while all goes well.
const TIMING: [(&str, u32); 5] = [
    ("ping_ms", 500),
    ("doubt_ms", 1000),
    ("reconcile_ms", 1000),
    ("enumeration_ms", 30_000),
    ("orderly_ms", 500),
];

/// An address that nobody listens at, and nobody else can while the socket is kept.
pub fn nobody() -> (tokio::net::TcpSocket, SocketAddr) {
    let kept = tokio::net::TcpSocket::new_v4().unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = kept.local_addr().unwrap();
    (kept, address)
}

/// A manager, run as its users run it.
pub struct Manager {
    pub folder: tempfile::TempDir,
    pub api: SocketAddr,
    pub control: SocketAddr,
    pub term: u64,
    child: Option<Child>,
    /// Writes its log, as long as it runs.
    scribe: Option<JoinHandle<()>>,
    settings: String,
}

/// Bytes of a connection's buffers, which are cleared for each request.
const BUFFER: usize = 16 << 10;

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.input_buffer_size(BUFFER).output_buffer_size(BUFFER).build().into()
}

impl Manager {
    pub fn start() -> Self {
        Self::with_timing(&[])
    }

    /// With these bounds instead.
    pub fn with_timing(timing: &[(&str, u32)]) -> Self {
        Self::with_settings("", timing)
    }

    /// With these other lines of the file, too.
    pub fn with_settings(other: &str, timing: &[(&str, u32)]) -> Self {
        let usual = TIMING.iter().filter(|(key, _)| timing.iter().all(|(other, _)| key != other));
        let lines = usual.chain(timing).map(|(key, value)| format!("{key} = {value}\n"));
        let nowhere = "127.0.0.1:0".parse().unwrap();
        let mut manager = Self {
            folder: tempfile::tempdir().unwrap(),
            api: nowhere,
            control: nowhere,
            term: 0,
            child: None,
            scribe: None,
            settings: format!("{other}[timing]\n{}", lines.collect::<String>()),
        };
        manager.run();
        manager
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-manager"));
        command.env_clear().current_dir(self.folder.path());
        command
    }

    /// Starts it; the second time on the same addresses, so that proxies find it again.
    pub fn run(&mut self) {
        std::fs::write(self.path("manager.toml"), &self.settings).unwrap();
        let ready = self.path("ready.json");
        let _ = std::fs::remove_file(&ready);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("log"));
        let mut log = log.unwrap();
        let mut child = self
            .command()
            .args(["serve", "--config", "manager.toml", "--store", "store.redb"])
            .args(["--ready-file", "ready.json", "--log", "debug"])
            .args(["--listen", &self.api.to_string(), "--control", &self.control.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Not by itself: where its files may not grow, the log still does.
        let mut says = child.stderr.take().unwrap();
        self.scribe = Some(std::thread::spawn(move || {
            let _ = std::io::copy(&mut says, &mut log);
        }));
        let text = eventually("the ready file", || {
            if let Some(status) = child.try_wait().unwrap() {
                self.written();
                panic!("the manager ended with {status}: {}", self.log());
            }
            std::fs::read_to_string(&ready).ok()
        });
        let ready: Value = serde_json::from_str(&text).unwrap();
        self.api = ready["listen"].as_str().unwrap().parse().unwrap();
        self.control = ready["control"].as_str().unwrap().parse().unwrap();
        self.term = ready["term"].as_u64().unwrap();
        assert_eq!(ready["pid"], child.id());
        self.child = Some(child);
    }

    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.path("log"));
        let bytes = bytes.unwrap_or_else(|error| format!("no log: {error}").into_bytes());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log says this.
    pub fn wait_log(&self, text: &str) {
        eventually(&format!("{text} in the log"), || self.log().contains(text).then_some(()));
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.written();
    }

    /// Waits until all that it said is in its log.
    fn written(&mut self) {
        self.scribe.take().unwrap().join().unwrap();
    }

    /// Asks it to stop and waits until it did.
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = eventually("the end of the manager", || child.try_wait().unwrap());
        self.written();
        status
    }

    /// Runs a command against it.
    pub fn cli(&self, args: &[&str]) -> Output {
        let mut command = self.command();
        command.env("DXPU_MANAGER", format!("http://{}", self.api)).args(args);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that has to succeed and gives what it printed.
    pub fn text(&self, args: &[&str]) -> String {
        let output = self.cli(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// As [`Manager::text`], with `--json`.
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["--json"], args].concat())).unwrap()
    }

    /// Runs a command that has to fail and gives its exit code and its problem.
    pub fn failure(&self, args: &[&str]) -> (i32, Value) {
        let output = self.cli(&[&["--json"], args].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        let problem = error.lines().rev().find_map(|line| serde_json::from_str(line).ok());
        (output.status.code().unwrap(), problem.unwrap_or_else(|| panic!("{args:?}: {error}")))
    }

    /// Begins a command and does not wait for it.
    pub fn begin(&self, args: &[&str]) -> Child {
        let mut command = self.command();
        command.env("DXPU_MANAGER", format!("http://{}", self.api)).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A request to the API: status and body.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, text) = self.raw(method, path, &[], body.map(Value::to_string).as_deref());
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    /// A request with headers, byte for byte: status and body.
    pub fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> (u16, String) {
        let agent = agent();
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.api));
        if body.is_some() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = match body {
            Some(body) => agent.run(request.body(body.to_owned()).unwrap()).unwrap(),
            None => agent.run(request.body(()).unwrap()).unwrap(),
        };
        let body = response.body_mut().read_to_vec().unwrap();
        (response.status().as_u16(), String::from_utf8_lossy(&body).into_owned())
    }

    /// Posts a file: status and body.
    pub fn post_file(&self, path: &str, bytes: &[u8]) -> (u16, Value) {
        let agent = agent();
        let request = agent.post(format!("http://{}{path}", self.api));
        let mut response = request.send(bytes).unwrap();
        let body = response.body_mut().read_to_vec().unwrap();
        (response.status().as_u16(), serde_json::from_slice(&body).unwrap())
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Waits until the proxies of these names are connected and their tables have been read.
    pub fn wait_ready(&self, names: &[&str]) {
        for name in names {
            eventually(&format!("{name} to be ready"), || {
                let (status, node) = self.request("GET", &format!("/v1/nodes/{name}"), None);
                (status == 200 && node["connection"]["ready"] == true).then_some(())
            });
        }
    }

    /// Waits until a slot has a status.
    pub fn wait_slot(&self, slot: &str, status: &str) {
        let (name, number) = slot.split_once('/').unwrap();
        let path = format!("/v1/boxes/{name}/slots/{number}");
        eventually(&format!("{slot} to be {status}"), || {
            (self.get(&path)["status"] == status).then_some(())
        });
    }

    /// Waits until the only binding there is has a phase, and gives it.
    pub fn wait_phase(&self, phase: &str) -> Value {
        eventually(&format!("the binding to be {phase}"), || {
            let list = self.get("/v1/bindings");
            let [binding] = list["items"].as_array().unwrap().as_slice() else { return None };
            (binding["phase"] == phase).then(|| binding.clone())
        })
    }

    /// Whether an event of this kind whose detail has this text was recorded.
    pub fn has_event(&self, kind: &str, text: &str) -> bool {
        let page = self.get("/v1/events?limit=1000");
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["kind"] == kind && event["detail"].as_str().unwrap().contains(text))
    }

    pub fn wait_event(&self, kind: &str, text: &str) {
        eventually(&format!("an event {kind} with {text:?}"), || {
            self.has_event(kind, text).then_some(())
        });
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = self.scribe.take().map(JoinHandle::join);
        }
        if std::thread::panicking() {
            eprintln!("--- the manager's log\n{}", self.log());
        }
    }
}

/// Waits for something that has to come.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
