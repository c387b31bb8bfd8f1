//! The manager's Debian package: made, and installed into a clean root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::report::Done;
use crate::tools::{build_programs, cargo, output, root, run, target_dir};

/// What has to be there once the package is installed.
const INSTALLED: [&str; 9] = [
    "usr/bin/dxpu-manager",
    "etc/dxpu/manager.toml",
    "usr/lib/systemd/system/dxpu-manager.service",
    "usr/lib/systemd/system/dxpu-manager-backup.timer",
    "usr/share/man/man1/dxpu-manager.1.gz",
    "usr/share/man/man1/dxpu-manager-allocate.1.gz",
    "usr/share/bash-completion/completions/dxpu-manager",
    "usr/share/doc/dxpu-manager/dashboards/dxpu-manager.json",
    "usr/share/doc/dxpu-manager/copyright",
];

/// Makes the package, of the release build or, to try it, of the usual one, and installs it into
/// an empty root.
pub(crate) fn make(release: bool) -> Result<Done> {
    if let Err(reason) = output(&mut cargo(&["deb", "--version"])) {
        return Ok(Done::skipped(format!(
            "cargo-deb does not run ({reason:#}): run `cargo install cargo-deb --locked`"
        )));
    }
    // The package is installed as the root of a namespace, which not every machine lets a user be.
    for (program, arguments) in
        [("unshare", ["--map-root-user", "true"]), ("dpkg", ["--version", ""])]
    {
        let arguments = arguments.iter().filter(|argument| !argument.is_empty());
        if let Err(reason) = output(Command::new(program).args(arguments)) {
            return Ok(Done::skipped(format!("the package cannot be tried here: {reason:#}")));
        }
    }
    let (profile, folder) = if release {
        run(&mut cargo(&["build", "--package=manager", "--bins", "--release"]))?;
        ("release", "release")
    } else {
        build_programs(&["dxpu-manager"])?;
        ("dev", "debug")
    };
    let program = target_dir().join(folder).join("dxpu-manager");
    papers(&program, &root().join("target/deb"))?;
    let package = target_dir().join("deb/dxpu-manager.deb");
    fs::create_dir_all(target_dir().join("deb"))?;
    let mut make = cargo(&["deb", "--package=manager", "--no-build", "--profile", profile]);
    run(make.arg("--output").arg(&package))?;
    let clean = target_dir().join("deb/root");
    install(&package, &clean)?;
    let skipped = look(&clean)?;
    let size = fs::metadata(&package)?.len();
    let detail = format!("{}, {} kB, installs", package.display(), size / 1000);
    Ok(Done { skipped, ..Done::with(detail) })
}

/// What the package has besides what is in the tree: man pages and completions.
fn papers(program: &Path, folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder.join("man"));
    run(Command::new(program).args(["man", "--out"]).arg(folder.join("man")))?;
    for (shell, file) in
        [("bash", "dxpu-manager.bash"), ("zsh", "_dxpu-manager"), ("fish", "dxpu-manager.fish")]
    {
        let text = output(Command::new(program).args(["completions", shell]))?;
        fs::write(folder.join(file), text)?;
    }
    Ok(())
}

/// Installs a package into a root that has nothing else.
fn install(package: &Path, clean: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(clean);
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(clean.join(folder))?;
    }
    fs::write(clean.join("var/lib/dpkg/status"), "")?;
    // In a namespace where we are root. What the package depends on is not there.
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "dpkg", "--force-depends", "--force-not-root"]);
    command.arg(format!("--root={}", clean.display())).arg("--install").arg(package);
    output(&mut command).context("the package does not install")?;
    Ok(())
}

/// Looks at what was installed. What could not be looked at here, and why.
fn look(clean: &Path) -> Result<Option<String>> {
    for file in INSTALLED {
        ensure!(clean.join(file).is_file(), "the package has no /{file}");
    }
    let program = clean.join("usr/bin/dxpu-manager");
    output(Command::new(&program).arg("--version")).context("what was installed does not run")?;
    let config = fs::read_to_string(clean.join("etc/dxpu/manager.toml"))?;
    // The configuration as it is, but with a store that this user can make, and free ports.
    let store = clean.join("manager.redb");
    let text = config.replace("/var/lib/dxpu/manager.redb", &store.display().to_string());
    ensure!(text != config, "the configuration names the store in /var/lib/dxpu");
    let ours = clean.join("manager.toml");
    fs::write(&ours, text)?;
    serve(&program, &ours, &clean.join("ready"))?;
    verify(clean)
}

/// Starts the manager with a configuration and ends it.
fn serve(program: &Path, config: &Path, ready: &PathBuf) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--config"]);
    let mut manager = command.arg(config).arg("--ready-file").arg(ready).spawn()?;
    let mut result = Err(anyhow::anyhow!("the installed manager was not ready within 30 s"));
    for _ in 0..300 {
        if ready.exists() {
            result = Ok(());
            break;
        }
        if let Some(status) = manager.try_wait()? {
            bail!("the installed manager ended with {status}");
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    manager.kill()?;
    manager.wait()?;
    result
}

/// Has systemd look at the units, where it is.
fn verify(clean: &Path) -> Result<Option<String>> {
    if let Err(reason) = output(Command::new("systemd-analyze").arg("--version")) {
        return Ok(Some(format!("nobody has looked at the units: {reason:#}")));
    }
    // The shell that a unit runs is another package's.
    fs::create_dir_all(clean.join("bin"))?;
    fs::copy("/bin/sh", clean.join("bin/sh")).context("/bin/sh cannot be copied")?;
    let units = clean.join("usr/lib/systemd/system");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=no"]);
    command.arg(format!("--root={}", clean.display()));
    for unit in ["dxpu-manager.service", "dxpu-manager-backup.service", "dxpu-manager-backup.timer"]
    {
        command.arg(units.join(unit));
    }
    output(&mut command).context("systemd does not take the units")?;
    Ok(None)
}
