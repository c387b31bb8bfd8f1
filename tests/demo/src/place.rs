//! Where the project's programs are.

use anyhow::Result;
use processes::Daemon;
use std::path::PathBuf;
use std::process::Command;

/// Where the programs are and where they leave what they write.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Folder of the programs.
    pub(crate) programs: PathBuf,
    /// Folder for logs, stores, images and sockets.
    pub(crate) folder: PathBuf,
    /// Whether daemons go on when the demo is gone; otherwise even SIGKILL ends them with it.
    pub(crate) outlive: bool,
}

impl Place {
    /// A command for one of the project's programs, in a network namespace or not, free of settings from
    /// the environment.
    pub(crate) fn command(&self, program: &str, namespace: Option<&str>) -> Command {
        let path = self.programs.join(program);
        let mut command = match namespace {
            None => Command::new(path),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(path);
                command
            }
        };
        processes::without_settings(&mut command).current_dir(&self.folder);
        command
    }

    /// Starts a daemon; its output goes to `NAME.log`.
    pub(crate) fn start(&self, name: &str, command: Command) -> Result<Daemon> {
        Daemon::start(name, &self.folder, command, self.outlive)
    }
}
