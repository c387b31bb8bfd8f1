//! `dxpu-host`: commands for the model host that a host proxy runs.

use clap::Parser;
use host_proxy::shell::protocol::{Command, Line};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Commands for the model host that `host-proxy --model-host SOCKET` runs.
#[derive(Debug, Parser)]
#[command(
    name = "dxpu-host",
    version,
    after_help = "Exit status: 0 done, 1 the command failed, 2 wrong usage, 3 no host proxy there."
)]
struct Cli {
    /// The host proxy's command socket
    #[arg(long, short, value_name = "SOCKET", env = "DXPU_MODEL_HOST")]
    socket: PathBuf,
    /// Print the result as one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// Show how far it has got, a line each, where standard error is no terminal
    #[arg(long, global = true)]
    progress: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    if let Command::NvmeWrite { file, .. } | Command::NvmeRead { file, .. } = &mut cli.command {
        // The daemon may have another working directory.
        match std::path::absolute(&*file) {
            Ok(absolute) => *file = absolute,
            Err(error) => return fail(2, &format!("{}: {error}", file.display())),
        }
    }
    let stream = match UnixStream::connect(&cli.socket) {
        Ok(stream) => stream,
        Err(error) => {
            let socket = cli.socket.display();
            return fail(3, &format!("{socket}: {error}; {}", advice(&cli.socket, &error)));
        }
    };
    match converse(&stream, &cli) {
        Ok(code) => code,
        Err(error) => fail(3, &format!("the host proxy went away: {error}")),
    }
}

/// What to do when nobody can be reached there.
fn advice(socket: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return "is host-proxy --model-host running there?".to_owned();
    }
    let uid = std::fs::metadata(socket).map(|data| format!(" (uid {})", data.uid()));
    format!(
        "only the user that runs host-proxy{} may give it commands: be that user, or use sudo",
        uid.unwrap_or_default()
    )
}

fn converse(mut stream: &UnixStream, cli: &Cli) -> io::Result<ExitCode> {
    let mut request = serde_json::to_string(&cli.command)?;
    request.push('\n');
    // A proxy that refuses the connection says why without reading.
    let sent = stream.write_all(request.as_bytes());
    let terminal = io::stderr().is_terminal();
    let mut shown = None;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Line::Progress { done, total } if terminal || cli.progress => {
                let percent = (done * 100).checked_div(total).unwrap_or(100);
                if shown.replace(percent) == Some(percent) {
                    continue;
                }
                let mut err = io::stderr();
                // A standard error that is closed is no reason to stop.
                let _ = if terminal {
                    write!(err, "\r{percent:3} %")
                } else {
                    writeln!(err, "{percent} %")
                };
            }
            Line::Progress { .. } => {}
            Line::Result { text, value } => {
                if terminal {
                    clear();
                }
                return Ok(print(&if cli.json { value.to_string() } else { text }));
            }
            Line::Error(error) => {
                if terminal {
                    clear();
                }
                return Ok(fail(1, &error));
            }
        }
    }
    sent.and(Err(io::ErrorKind::UnexpectedEof.into()))
}

/// Takes the progress off the terminal's line.
fn clear() {
    let _ = write!(io::stderr(), "\r     \r");
}

/// Prints the result. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(1, &format!("standard output cannot be written: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn fail(status: u8, error: &str) -> ExitCode {
    // Where it cannot be said either, the status says it.
    let _ = writeln!(io::stderr(), "dxpu-host: {error}");
    ExitCode::from(status)
}
