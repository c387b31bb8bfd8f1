//! `dxpu-vm`, as people and scripts run it.

use emulated_card::firmware::Firmware;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use vm::{BOOT_BOUND, Kernel, Stage};

fn dxpu_vm(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"));
    command.args(arguments).env("TMPDIR", folder);
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn stage() -> Option<Stage> {
    Stage::take(&[Kernel::V6_12]).unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn a_command_runs_in_the_guest_and_nothing_is_left() {
    runs_a_command(&[]);
}

#[test]
#[ignore = "long: a guest and four more machines, all emulated"]
fn a_command_runs_in_a_guest_behind_a_card_and_nothing_is_left() {
    match Firmware::find() {
        Ok(_) => runs_a_command(&["--card"]),
        Err(reason) => println!("SKIPPED: no emulated cards: {reason:#}"),
    }
}

fn runs_a_command(options: &[&str]) {
    let Some(_stage) = stage() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wait = "until test -b /dev/nvme0n1; do sleep 0.1; done; \
                cat /sys/class/nvme/nvme0/model; echo done >&2; exit 7";
    let arguments = [&["run", "--lend", "box-a/1", "--run", wait], options].concat();
    let output = dxpu_vm(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.ends_with("done\n") && said.lines().count() == 2, "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_slot_that_is_not_there_is_named() {
    let Some(_stage) = stage() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = dxpu_vm(folder.path(), &["run", "--lend", "box-z/1", "--run", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("box-z/1 was not lent") && said.contains("the logs are in"), "{said}");
}

#[test]
fn what_is_cached_needs_no_network() {
    let Some(_stage) = stage() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"))
        .args(["fetch", "--kernel", "6.12"])
        .env("DXPU_VM_MIRROR", "http://127.0.0.1:9/debian")
        // No apt-get, nor anything else.
        .env("PATH", "/none")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("qemu-system-x86 "), "{}", text(&output.stdout));
}

#[test]
fn what_is_missing_says_what_to_do_and_leaves_nothing_half_made() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |path: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"))
            .args(["fetch", "--cache"])
            .arg(folder.path())
            .env("DXPU_VM_MIRROR", "http://127.0.0.1:9/debian")
            .env("PATH", path)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let said = fetch("/none");
    let reasons = ["there is no apt-get", "comes from Debian", "come from Debian"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    let path = std::env::var("PATH").unwrap_or_default();
    let said = fetch(&path);
    let reasons = ["DXPU_VM_MIRROR", "debian-archive-keyring", "come from Debian"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == "lock"), "{left:?}");
}

/// `./dx vm` as a person has it, whose keys and screen are pipes.
struct Session {
    child: Child,
    keys: ChildStdin,
    screen: Screen,
    said: Screen,
}

/// What a program has written so far.
struct Screen(Arc<Mutex<String>>);

impl Screen {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let own = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(taken @ 1..) = pipe.read(&mut buffer) {
                own.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..taken]));
            }
        });
        Self(text)
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl Session {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"));
        command.arg("run").args(options).env("TMPDIR", folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let keys = child.stdin.take().unwrap();
        let screen = Screen::of(child.stdout.take().unwrap());
        let said = Screen::of(child.stderr.take().unwrap());
        Self { child, keys, screen, said }
    }

    /// Waits until something is there, of which the description is `what`.
    fn until<T>(&mut self, what: &str, ask: impl Fn(&Self) -> Option<T>) -> T {
        let found = processes::wait_for(what, BOOT_BOUND, || Ok(ask(self)));
        found.unwrap_or_else(|error| {
            let _ = self.child.kill();
            panic!("{error:#}\n{}\n{}", self.said.text(), self.screen.text())
        })
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Runs the manager's command line as the session says it is to be run.
    fn manager(&self, arguments: &[&str]) -> Output {
        let said = self.said.text();
        let server = said.split("DXPU_MANAGER=").nth(1).and_then(|rest| rest.split(' ').next());
        let programs = said.split(" PATH=").nth(1).and_then(|rest| rest.split(':').next());
        Command::new(Path::new(programs.unwrap()).join("dxpu-manager"))
            .env("DXPU_MANAGER", server.unwrap())
            .args(arguments)
            .output()
            .expect("it starts")
    }
}

/// The process that has all of these words on its command line.
fn process(words: &[&str]) -> Option<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = text(&line);
        let found = words.iter().all(|word| line.contains(word));
        found.then(|| entry.file_name().to_string_lossy().into_owned())
    })
    .find(|name| name.parse::<u32>().is_ok())
}

#[test]
fn an_accelerator_is_plugged_and_a_daemon_that_dies_is_told() {
    let Some(_stage) = stage() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(folder.path(), &[]);
    session.until("the shell", |session| session.screen.text().contains(":~# ").then_some(()));

    // What is offered can be used, as it is said.
    let lent = session.manager(&["allocate", "--host", "host-1", "--model", "accelerator"]);
    assert!(lent.status.success(), "{}", text(&lent.stderr));
    session.types(
        "until a=$(lspci -D -d 1b36:d0ac | cut -d' ' -f1); test -n \"$a\"; do sleep 0.1; done\r\
         lspci -vv -s $a; dxpu-guest accelerator $a --mib 1; echo status-$?\r",
    );
    session.until("the bandwidth test", |session| {
        session.screen.text().contains("status-0").then_some(())
    });
    let screen = session.screen.text();
    for expected in ["Region 0: Memory at ", "Region 2: Memory at ", "every byte was right"] {
        assert!(screen.contains(expected), "{screen}");
    }
    assert!(!screen.contains("<unassigned>") && !screen.contains("<ignored>"), "{screen}");

    // One that dies is told at once, and in the end.
    let place = folder.path().to_str().unwrap();
    let proxy = process(&["host-proxy", "--vm", place]).expect("there is a host proxy");
    assert!(Command::new("kill").args(["-9", &proxy]).status().unwrap().success());
    let end = "\r\ndxpu-vm: host-1 ended with signal: 9 (SIGKILL)";
    session.until("the news", |session| session.said.text().contains(end).then_some(()));
    session.types("\u{1}x");
    let status = session.child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    session.until("the last words", |session| {
        session.said.text().contains("the logs are in ").then_some(())
    });
    let said = session.said.text();
    assert!(said.contains("not everything ran to the end:\nhost-1 ended with signal: 9"), "{said}");
    let logs = said.rsplit("the logs are in ").next().unwrap().trim();
    assert!(Path::new(logs).join("host-1.log").is_file(), "{said}");
}

/// A device is lent once the guest's driver has it: so each of them is up, and a host of its own.
#[test]
#[ignore = "long: two guests"]
fn two_guests_are_two_hosts_of_one_fabric() {
    let Some(_stage) = stage() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(folder.path(), &["--hosts", "2"]);
    session.until("the shell", |session| session.screen.text().contains(":~# ").then_some(()));
    for (host, device) in [("host-2", "nvme"), ("host-1", "accelerator")] {
        session.until("a device to be lent", |session| {
            let lent = session.manager(&["allocate", "--host", host, "--model", device]);
            lent.status.success().then_some(())
        });
    }
    let list = text(&session.manager(&["list"]).stdout);
    let of = |host: &str| list.lines().filter(|line| line.contains(host)).count();
    assert_eq!((of("host-1"), of("host-2")), (1, 1), "{list}");
    session.types("poweroff\r");
    let status = session.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", session.said.text());
}
