//! `./dx vm`: guests on a fabric, for people.

use crate::cache::{Cache, Kernel, News};
use crate::fabric::Fabric;
use crate::guest::{BOOT_BOUND, Guest, Options};
use crate::{guest_tools, terminal};
use anyhow::{Context, Result, anyhow, bail, ensure};
use emulated_card::firmware::Firmware;
use processes::quoted;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// Size of each drive.
const DRIVE_SIZE: &str = "256M";

/// Room that Linux keeps at each port for what is plugged later: for all eight together, half of
/// each of the adapter's windows as they are by default, 256 MB and 16 GB.
const ROOM: &str = "pci=hpmmiosize=16M,hpmmioprefsize=1G";

/// Longest that a command of `--run` runs.
const RUN_BOUND: Duration = Duration::from_secs(24 * 3600);

/// What `./dx vm` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ctrl-A X, or `poweroff` in the guest, ends everything. Exit status: 0, or that \
                  of the command of --run; 1 if something failed; 2 for wrong usage.\n\n\
                  QEMU and the kernels come from Debian, into DXPU_VM_CACHE (the folder `vm` in \
                  cargo's target folder if it is not set); DXPU_VM_MIRROR names a mirror other \
                  than this system's, DXPU_VM_ACCELERATOR=kvm uses KVM."
)]
pub struct Session {
    /// How many guests, each a host of its own on one fabric
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub hosts: u8,
    /// The guests' kernel
    #[arg(long, value_enum, default_value = "6.12")]
    pub kernel: Kernel,
    /// Memory of each guest, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..))]
    pub memory_mib: u32,
    /// More of the guests' kernel command line. It comes after what gives each port room for
    /// devices, pci=hpmmiosize=16M,hpmmioprefsize=1G, and where both say something it holds
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub append: String,
    /// Run a command in the first guest's shell, and end with its status
    #[arg(long, value_name = "COMMAND")]
    pub run: Option<String>,
    /// The proxies of the host and of both boxes are the card's firmware, in emulated cards (QEMU
    /// riscv32, package qemu-system-misc); much slower than programs
    #[arg(long, conflicts_with = "hosts")]
    pub card: bool,
    /// A slot, such as box-a/1, that is lent to the first guest before the command of --run
    #[arg(long, value_name = "SLOT", requires = "run")]
    pub lend: Vec<String>,
}

/// Starts everything, and gives the terminal to the first guest; the exit status.
///
/// # Errors
///
/// When something cannot be had, started or reached, with where the logs are.
pub fn run(session: &Session) -> Result<u8> {
    let firmware = session.card.then(Firmware::find).transpose()?;
    let cache = Cache::open(&[session.kernel], &mut show)?;
    let folder = tempfile::Builder::new().prefix("dxpu-vm-").tempdir()?;
    let result = in_folder(session, firmware.as_ref(), &cache, folder.path());
    if processes::interrupted() {
        return result;
    }
    result.map_err(|error| anyhow!("{error:#}\nthe logs are in {}", folder.keep().display()))
}

fn in_folder(
    session: &Session,
    firmware: Option<&Firmware>,
    cache: &Cache,
    folder: &Path,
) -> Result<u8> {
    let programs = processes::own_folder()?;
    show(News::Step("building dxpu-guest, for the guests"));
    let tools = guest_tools(&programs)?;
    let mut fabric = Fabric::start(&programs, folder)?;
    let boxes = ["box-a", "box-b"].map(|name| (name, slots(name)));
    if firmware.is_none() {
        for (name, slots) in &boxes {
            fabric.add_box(name, slots)?;
        }
    }
    let mut guests = Vec::new();
    for number in 1..=session.hosts {
        let host = format!("host-{number}");
        let socket = match firmware {
            Some(firmware) => fabric.add_cards(firmware, &host, &boxes)?,
            None => fabric.add_host(&host, &[])?,
        };
        let mut options = Options::new(&host, session.kernel).with_vfio_user(&socket);
        options.memory_mib = session.memory_mib;
        // What is said twice is so as it is said last.
        options.append = format!("{ROOM} {}", session.append).trim_end().to_owned();
        options.files = vec![("usr/bin/dxpu-guest".to_owned(), tools.clone())];
        guests.push(Guest::start(cache, &options, folder)?);
    }
    fabric.wait_ready()?;
    for (number, guest) in (1..).zip(&mut guests) {
        show(News::Step(&format!("host-{number} boots Linux {}", session.kernel)));
        guest.boot(BOOT_BOUND)?;
    }
    match &session.run {
        Some(command) => {
            let status = command_of(session, &fabric, &mut guests[0], command)?;
            fabric.check()?;
            Ok(status)
        }
        None => talk(&mut fabric, &mut guests),
    }
}

/// What is in a box: two drives and two accelerators.
fn slots(name: &str) -> Vec<String> {
    let drive = |n: u8| format!("{n}=nvme,image={name}-{n}.img,size={DRIVE_SIZE},model=nvme");
    vec![drive(1), drive(2), "3=accelerator".to_owned(), "4=accelerator".to_owned()]
}

fn command_of(session: &Session, fabric: &Fabric, guest: &mut Guest, command: &str) -> Result<u8> {
    for slot in &session.lend {
        fabric.allocate("host-1", slot).with_context(|| format!("{slot} was not lent"))?;
    }
    let output = guest.sh(command, RUN_BOUND)?;
    let mut out = std::io::stdout();
    out.write_all(output.text.as_bytes())?;
    out.flush()?;
    Ok(u8::try_from(output.status).unwrap_or(u8::MAX))
}

/// What is told to the one at the terminal before it is the first guest's.
fn welcome(fabric: &Fabric, guests: &[Guest]) -> Result<String> {
    let programs = quoted(&fabric.programs().display().to_string());
    let own = std::env::current_exe()?;
    let mut text = format!(
        "\nIn another terminal:\n\n  export DXPU_MANAGER={} PATH={programs}:$PATH\n  \
         dxpu-manager list\n  dxpu-manager allocate --host host-1 --model nvme\n  \
         dxpu-manager release alloc-1\n",
        fabric.server()
    );
    for (number, guest) in (1..).zip(guests.iter()).skip(1) {
        let own = quoted(&own.display().to_string());
        let socket = quoted(&guest.console_socket().display().to_string());
        text.push_str(&format!("  {own} console {socket}     # host-{number}'s shell\n"));
    }
    text.push_str(
        "\nHere: host-1's shell, with lspci, setpci, nvme, mkfs.ext4, fio, dmesg. The switch is in \
         PCI\ndomain 10000. An accelerator (`allocate --host host-1 --model accelerator`) needs no \
         driver:\n\n  lspci -D -d 1b36:d0ac                     # its address\n  \
         dxpu-guest accelerator 10000:03:00.0      # bandwidth test; --help says more\n\n\
         Ctrl-A X, or `poweroff`, ends everything.\n",
    );
    Ok(text)
}

fn talk(fabric: &mut Fabric, guests: &mut [Guest]) -> Result<u8> {
    eprintln!("{}", welcome(fabric, guests)?);
    if let Some((rows, columns)) = terminal::size() {
        for guest in guests.iter_mut() {
            guest.ok(&format!("stty rows {rows} cols {columns} < /dev/ttyS0"))?;
        }
    }
    let console = guests[0].console_socket();
    let mut told = Vec::new();
    let left = terminal::attach(&console, &mut || {
        let mut new = fabric.ended();
        new.extend(guests[1..].iter_mut().filter_map(|guest| guest.failed().err()).map(text_of));
        new.retain(|text| !told.contains(text));
        told.extend_from_slice(&new);
        new
    })?;
    eprintln!("\r\ndxpu-vm: ending");
    if processes::interrupted() {
        bail!("interrupted");
    }
    ensure!(told.is_empty(), "not everything ran to the end:\n{}", told.join("\n"));
    if left == terminal::Left::Ended {
        // Switched off, or QEMU failed: it says which.
        guests[0].wait_off(Duration::from_secs(60))?;
    }
    Ok(0)
}

fn text_of(error: anyhow::Error) -> String {
    format!("{error:#}")
}

/// Shows what is told, on standard error; progress only to a person.
pub fn show(news: News<'_>) {
    let mut out = std::io::stderr();
    let _ = match news {
        News::Step(text) if out.is_terminal() => writeln!(out, "\r\x1b[K{text}"),
        News::Step(text) => writeln!(out, "{text}"),
        News::Progress(text) if out.is_terminal() => write!(out, "\r\x1b[K  {text}"),
        News::Progress(_) => Ok(()),
    };
    let _ = out.flush();
}
