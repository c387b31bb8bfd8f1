//! Settings that a proxy cannot work with, and a manager that is not there.

use crate::harness::{Daemon, Ended, is_root, program, run, unprivileged, wait_for};
use std::fs::{File, Permissions};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// A port of this machine that nothing listens on: the discard service is on no machine of today.
const NO_MANAGER: &str = "127.0.0.1:9";

fn proxy_of(manager: &str, name: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program(name);
    command.current_dir(folder).args(["--name", "x", "--manager", manager]).args(arguments);
    command
}

fn proxy(name: &str, folder: &Path, arguments: &[&str]) -> Command {
    proxy_of(NO_MANAGER, name, folder, arguments)
}

fn boxed(folder: &Path, arguments: &[&str]) -> Ended {
    run(&mut proxy("box-proxy", folder, arguments))
}

fn host(folder: &Path, arguments: &[&str]) -> Ended {
    run(&mut proxy("host-proxy", folder, arguments))
}

fn started(name: &str, folder: &Path, arguments: &[&str]) -> Daemon {
    started_by(name, folder, &mut proxy(name, folder, arguments))
}

fn started_by(name: &str, folder: &Path, command: &mut Command) -> Daemon {
    let log = folder.join(format!("{name}.log"));
    // What an earlier one said is not this one's.
    let _ = std::fs::remove_file(&log);
    let mut daemon = Daemon::start(command, &log);
    wait_for("the proxy to be up", || {
        assert!(daemon.runs(), "{}", daemon.log());
        daemon.log().contains("no manager").then_some(())
    });
    daemon
}

#[test]
fn a_fabric_port_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().to_string();
    let fabric = format!("udp:{port}");
    boxed(folder.path(), &["--slot", "1=accelerator", "--fabric", &fabric]).fails(1, &[&port]);
    host(folder.path(), &["--model-host", "h.sock", "--fabric", &fabric]).fails(1, &[&port]);
}

#[test]
fn an_image_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    boxed(folder, &["--slot", "1=nvme,image=missing.img"])
        .fails(1, &["slot 1", "missing.img", "size=SIZE"]);
    let slot = "1=nvme,image=drive.img,size=1M";
    let _first = started("box-proxy", folder, &["--slot", slot]);
    boxed(folder, &["--slot", slot]).fails(1, &["slot 1", "drive.img", "in use"]);
    std::fs::create_dir(folder.join("folder.img")).unwrap();
    boxed(folder, &["--slot", "1=nvme,image=folder.img"]).fails(1, &["slot 1", "folder.img"]);
}

/// Who collects such lines would lose the one that says why.
#[test]
fn what_ends_a_proxy_is_json_where_its_log_is() {
    let folder = tempfile::tempdir().unwrap();
    for level in ["info", "off"] {
        let wrong = ["--slot", "1=nvme,image=missing.img", "--log-format", "json", "--log", level];
        let ended = boxed(folder.path(), &wrong);
        ended.fails(1, &["missing.img"]);
        let lines = ended.stderr.lines().map(serde_json::from_str::<serde_json::Value>);
        let lines: Vec<_> = lines.map(|line| line.expect("each line is JSON")).collect();
        let last = lines.last().unwrap();
        let message = last["fields"]["message"].as_str().unwrap();
        assert!(message.starts_with("box-proxy: slot 1: image missing.img"), "{last}");
        assert!(last["timestamp"].is_string() && last["level"] == "ERROR", "{last}");
    }
}

#[test]
fn slots_that_make_no_sense_are_named() {
    let folder = tempfile::tempdir().unwrap();
    boxed(folder.path(), &[]).fails(2, &["--slot"]);
    for slot in ["0=accelerator", "17=accelerator", "1=gpu", "1=nvme", "1=accelerator,tags=0"] {
        let ended = boxed(folder.path(), &["--slot", slot]);
        assert_eq!(ended.code, Some(2), "{slot}: {ended:?}");
        let named = ended.stderr.contains(slot) || ended.stderr.contains("slot 1");
        assert!(named, "{slot}: {ended:?}");
    }
}

#[test]
fn a_configuration_file_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("key.toml"), "nmae = \"x\"\n").unwrap();
    std::fs::write(folder.join("syntax.toml"), "[[[\n").unwrap();
    std::fs::create_dir(folder.join("folder.toml")).unwrap();
    for name in ["box-proxy", "host-proxy"] {
        let with = |file: &str| run(&mut proxy(name, folder, &["--config", file]));
        with("key.toml").fails(2, &["key.toml", "nmae"]);
        with("syntax.toml").fails(2, &["syntax.toml"]);
        with("none.toml").fails(2, &["none.toml", "--config"]);
        with("folder.toml").fails(2, &["folder.toml", "--config"]);
    }
}

#[test]
fn a_socket_path_that_cannot_be_used_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for option in ["--model-host", "--tlp-socket"] {
        let first = started("host-proxy", folder, &[option, "used.sock"]);
        host(folder, &[option, "used.sock"]).fails(1, &["used.sock", "in use"]);
        // A proxy that crashed leaves its socket behind; the next one takes the path.
        first.kill();
        assert!(folder.join("used.sock").exists());
        assert!(started("host-proxy", folder, &[option, "used.sock"]).stop().success());

        std::fs::write(folder.join("notes"), "mine").unwrap();
        host(folder, &[option, "notes"]).fails(1, &["notes", "not a socket"]);
        assert_eq!(std::fs::read_to_string(folder.join("notes")).unwrap(), "mine");
        host(folder, &[option, "none/x.sock"])
            .fails(1, &["none/x.sock", "its folder none is not there", "mkdir -p none"]);
        host(folder, &[option, "notes/x.sock"]).fails(1, &["notes is no folder"]);
    }
    host(folder, &["--vm", "none/x.sock"]).fails(1, &["its folder none is not there"]);
    host(folder, &[]).fails(2, &["--model-host", "--tlp-socket"]);
}

#[test]
fn a_proxy_without_a_manager_keeps_trying_and_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [(&str, &[&str]); 3] = [
        ("box-proxy", &["--slot", "1=accelerator"]),
        ("host-proxy", &["--model-host", "h.sock"]),
        ("host-proxy", &["--tlp-socket", "t.sock"]),
    ];
    // What hangs up is no manager either.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    for (name, arguments) in commands {
        let mut command = proxy_of(&address, name, folder.path(), arguments);
        let daemon = started_by(name, folder.path(), &mut command);
        for _ in 0..3 {
            drop(nobody.accept().unwrap());
        }
        let said = daemon.log().matches(&address).count();
        assert!(said <= 2, "the same is said once: {}", daemon.log());
        let status = daemon.stop();
        assert!(status.success(), "{name}: {status}");
    }
    for socket in ["h.sock", "t.sock"] {
        assert!(!folder.path().join(socket).exists(), "{socket} was left behind");
    }
}

/// A file that nobody but root may read.
fn secret(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
}

#[test]
fn files_without_permission_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    secret(folder, "secret.img", "12345678");
    secret(folder, "secret.toml", "");
    let mut image = unprivileged("box-proxy", folder);
    image.args(["--name", "x", "--manager", NO_MANAGER, "--slot", "1=nvme,image=secret.img"]);
    run(&mut image).fails(1, &["slot 1", "secret.img", "Permission denied"]);
    let with_config = ["--name", "x", "--manager", NO_MANAGER, "--config", "secret.toml"];
    for (name, arguments) in [
        ("box-proxy", &with_config[..]),
        ("host-proxy", &with_config),
        ("dxpu-manager", &["serve", "--config", "secret.toml"]),
    ] {
        let ended = run(unprivileged(name, folder).args(arguments));
        ended.fails(2, &["secret.toml", "Permission denied"]);
    }
}

/// What belongs to another user: a folder for sockets, and a command socket.
#[test]
fn sockets_without_permission_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let closed = folder.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    for option in ["--model-host", "--tlp-socket", "--vm"] {
        let mut proxy = unprivileged("host-proxy", folder);
        proxy.args(["--name", "x", "--manager", NO_MANAGER, option, "closed/x.sock"]);
        run(&mut proxy).fails(1, &["closed/x.sock", "no socket can be made in its folder closed"]);
    }
    let _proxy = started("host-proxy", folder, &["--model-host", "h.sock"]);
    // Who is not root is the same user here.
    if is_root() {
        let mut command = unprivileged("dxpu-host", folder);
        command.args(["--socket", "h.sock", "lspci"]);
        run(&mut command).fails(3, &["only the user that runs host-proxy (uid 0)", "use sudo"]);
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let full = Path::new("/dev/full");
    let mut manager = program("dxpu-manager");
    manager.current_dir(folder).args(["serve", "--store", "s.redb", "--ready-file", "ready"]);
    manager.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
    let mut daemons = [
        (Daemon::start(&mut manager, full), "ready"),
        (
            Daemon::start(&mut proxy("host-proxy", folder, &["--model-host", "h.sock"]), full),
            "h.sock",
        ),
        (
            Daemon::start(
                &mut proxy("box-proxy", folder, &["--slot", "1=nvme,image=drive.img,size=1M"]),
                full,
            ),
            "drive.img",
        ),
    ];
    for (daemon, sign) in &mut daemons {
        let sign = *sign;
        wait_for("a sign of life", || {
            assert!(daemon.runs(), "{sign}");
            folder.join(sign).exists().then_some(())
        });
    }
    for (daemon, sign) in daemons {
        assert!(daemon.stop().success(), "{sign}");
    }
}

/// A pipe by name that nobody reads, and that takes no byte more. It is one as long as the file is
/// open.
fn full_pipe(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    let mut pipe = File::options();
    pipe.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut pipe = pipe.open(path).unwrap();
    for piece in [&[b'.'; 4096][..], b"."] {
        while pipe.write(piece).is_ok() {}
    }
    pipe
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let log = folder.join("log");
    let _full = full_pipe(&log);
    let talkative = ["--model-host", "h.sock", "--log", "trace"];
    let mut host = Daemon::start(&mut proxy("host-proxy", folder, &talkative), &log);
    let talkative = ["--slot", "1=nvme,image=drive.img,size=1M", "--log", "trace"];
    let mut boxed = Daemon::start(&mut proxy("box-proxy", folder, &talkative), &log);
    for (daemon, sign) in [(&mut host, "h.sock"), (&mut boxed, "drive.img")] {
        wait_for("a sign of life", || {
            assert!(daemon.runs(), "{sign}");
            folder.join(sign).exists().then_some(())
        });
    }
    // What the data plane answers.
    let mut list = program("dxpu-host");
    let listed = run(list.current_dir(folder).args(["--socket", "h.sock", "lspci"]));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(host.stop().success() && boxed.stop().success());
    // Nor is one held up that ends by itself, and has nobody to say it to.
    let wrong = ["--slot", "1=nvme,image=nowhere.img"];
    let mut wrong = Daemon::start(&mut proxy("box-proxy", folder, &wrong), &log);
    wait_for("a daemon to end", || (!wrong.runs()).then_some(()));
}
