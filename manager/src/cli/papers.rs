//! What a packager asks for: completions for shells, and man pages.

use super::args::Args;
use super::{Failure, write_line};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Prints what a shell needs to complete our command line.
pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "dxpu-manager", &mut text);
    write_line(String::from_utf8_lossy(&text).trim_end())
}

/// Writes a man page for the program and one for each command into a folder.
pub(super) fn man(folder: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(folder).and_then(|()| {
        clap_mangen::generate_to(Args::command().disable_help_subcommand(true), folder)
    });
    written.map_err(|error| {
        Failure::Argument(format!("{} cannot be written: {error}", folder.display()))
    })
}
