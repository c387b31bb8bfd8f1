//! Running other programs.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The workspace's root folder: that of the checkout that cargo runs this program for, which is
/// not always the one it was built in (a folder that was moved, a target folder that is shared).
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = std::env::var_os("CARGO_MANIFEST_DIR");
        let here = here.map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        here.ancestors().nth(2).expect("xtask lives two folders below the root").into()
    })
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs this program, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

/// What has cargo choose the features of all that is compiled as for the tests of the whole
/// workspace, of which this names one that is small: what tests are made of is compiled once, and
/// not again, with fewer features, for programs.
pub(crate) const AS_FOR_TESTS: [&str; 3] = ["--workspace", "--test", "wire_doc"];

/// Builds programs of the workspace, not optimised.
///
/// # Errors
///
/// When they do not build.
pub(crate) fn build_programs(names: &[&str]) -> Result<()> {
    let mut command = cargo(&["build"]);
    command.args(AS_FOR_TESTS);
    names.iter().for_each(|name| {
        command.args(["--bin", name]);
    });
    run(&mut command)
}

/// A compiler for cargo's `RUSTC_WORKSPACE_WRAPPER`, in a folder of that name below the target folder:
/// with these flags for the workspace's own packages, but what runs while they are compiled. What
/// they depend on stays as it is everywhere else, and is not compiled again.
///
/// # Errors
///
/// When it cannot be written.
pub(crate) fn compiler_with(folder: &str, flags: &[&str]) -> Result<PathBuf> {
    let folder = target_dir().join(folder);
    let path = folder.join("rustc");
    let flags: String = flags.iter().map(|flag| format!(" '{flag}'")).collect();
    // Not sh, which may drop variables with a hyphen: cargo tells tests of programs by such.
    let text = format!(
        "#!/usr/bin/env bash\ncase \" $* \" in\n\
         *' --crate-name build_script_'* | *' --crate-type proc-macro '*) exec \"$@\" ;;\n\
         esac\nexec \"$@\"{flags}\n"
    );
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Runs a program to its end, its output shown.
///
/// # Errors
///
/// When it does not start or says that it failed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed ({status}){}", shown(command), short_of_room());
    }
    Ok(())
}

/// With less than so many MB, what is built may have found no room.
const LITTLE_ROOM: u64 = 512;

/// That the disk is nearly full, if it is: what fails then says so somewhere else, or nowhere.
fn short_of_room() -> String {
    let mut command = Command::new("df");
    command.arg("-Pm").arg(target_dir());
    let free = output(&mut command).ok().and_then(|table| free_megabytes(&table));
    match free.filter(|&free| free < LITTLE_ROOM) {
        Some(free) => format!("; {free} MB of disk are free below {}", target_dir().display()),
        None => String::new(),
    }
}

/// The fourth column of the last line of `df -P`.
fn free_megabytes(table: &str) -> Option<u64> {
    table.lines().last()?.split_whitespace().nth(3)?.parse().ok()
}

/// Runs a program to its end, its output shown, and says how it ended.
///
/// # Errors
///
/// When it does not start.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("`{}` does not start", shown(command)))
}

/// Runs a program quietly and gives its standard output.
///
/// # Errors
///
/// When it does not start or says that it failed; with what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{}` does not start", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}): {}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A text file.
///
/// # Errors
///
/// When it cannot be read: with its path.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// The text of a Rust file as rustfmt.toml has it.
///
/// # Errors
///
/// When rustfmt does not run, or the text is no Rust.
pub(crate) fn rustfmt(text: &str) -> Result<String> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024", "--config-path"]).arg(root().join("rustfmt.toml"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("`{}` does not start", shown(&command)))?;
    // It reads all before it writes, so neither waits for the other.
    child.stdin.take().expect("it is piped").write_all(text.as_bytes())?;
    let done = child.wait_with_output()?;
    if !done.status.success() {
        bail!("`{}` failed ({})", shown(&command), done.status);
    }
    Ok(String::from_utf8(done.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::free_megabytes;

    #[test]
    fn free_room_is_read_from_a_table() {
        let table = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n\
                     /dev/vda 257897 15000 480 97% /\n";
        assert_eq!(free_megabytes(table), Some(480));
        assert_eq!(free_megabytes(""), None);
    }
}
