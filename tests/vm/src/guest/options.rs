//! What a guest has, and QEMU's command line for it.

use crate::cache::{Cache, Kernel};
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that names QEMU's accelerator. Emulation works everywhere; `kvm` is much
/// faster where there is one that a guest gets past its early boot with.
const ACCELERATOR_VARIABLE: &str = "DXPU_VM_ACCELERATOR";

/// How much QEMU stands back for others, in nice(1)'s terms. The processors that it emulates take
/// all of the machine's own that there are; proxies that get none for a second are late, and a link
/// whose other end is late is down.
pub(super) const NICENESS: u8 = 5;

/// What a guest has.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its host name.
    pub name: String,
    /// Its kernel.
    pub kernel: Kernel,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Whether the memory is a file that a vfio-user server can map. Where it is not, each DMA is a
    /// message to QEMU.
    pub memory_shared: bool,
    /// How many processors.
    pub processors: u8,
    /// How much QEMU stands back for others, in nice(1)'s terms: 5, unless time is
    /// measured, which it makes longer.
    pub niceness: u8,
    /// Modules that are loaded at boot, in this order, each with what it needs. More of them can be
    /// loaded with `modprobe`.
    pub modules: Vec<String>,
    /// More of the kernel's command line.
    pub append: String,
    /// More files: the name in the guest, and the file.
    pub files: Vec<(String, PathBuf)>,
    /// Sockets of vfio-user servers. Each becomes a device on the root bus, from 00:05.0 on.
    pub vfio_user: Vec<PathBuf>,
    /// Our end of a network to another guest and the other one's: sockets that the two QEMUs make.
    /// The network card needs the module `virtio_net`.
    pub link: Option<(PathBuf, PathBuf)>,
    /// More of QEMU's command line.
    pub arguments: Vec<String>,
}

/// Device number of the first vfio-user device on the root bus.
const FIRST_DEVICE: usize = 5;

/// Device number of the network card.
const NETWORK: usize = 4;

impl Options {
    /// A guest with 1 GiB, two processors and the drivers for what is lent, and no device.
    pub fn new(name: &str, kernel: Kernel) -> Self {
        Self {
            name: name.to_owned(),
            kernel,
            memory_mib: 1024,
            memory_shared: true,
            processors: 2,
            niceness: NICENESS,
            modules: ["nvme", "ext4", "vmd"].map(str::to_owned).to_vec(),
            append: String::new(),
            files: Vec::new(),
            vfio_user: Vec::new(),
            link: None,
            arguments: Vec::new(),
        }
    }

    /// With more words for QEMU's command line.
    #[must_use]
    pub fn with_arguments<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.arguments.extend(words.map(str::to_owned));
        self
    }

    /// With a device that a vfio-user server has.
    #[must_use]
    pub fn with_vfio_user(mut self, socket: &Path) -> Self {
        self.vfio_user.push(socket.to_path_buf());
        self
    }

    /// With modules that are loaded at boot after the others.
    #[must_use]
    pub fn with_modules<const N: usize>(mut self, modules: [&str; N]) -> Self {
        self.modules.extend(modules.map(str::to_owned));
        self
    }
}

/// Where a guest's sockets and files are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

impl Place {
    /// What the guest says on its console, from its beginning.
    pub(crate) fn console_log(&self) -> PathBuf {
        self.path("console.log")
    }

    /// Its console, for one who types.
    pub(crate) fn console(&self) -> PathBuf {
        self.path("console.sock")
    }

    /// Its second serial line.
    pub(crate) fn commands(&self) -> PathBuf {
        self.path("commands.sock")
    }

    /// QEMU's monitor.
    pub(crate) fn monitor(&self) -> PathBuf {
        self.path("monitor.sock")
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.path("initramfs")
    }

    fn path(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}-{what}", self.name))
    }
}

/// QEMU with a guest.
///
/// # Errors
///
/// When the cache cannot be read.
pub(crate) fn qemu(cache: &Cache, options: &Options, place: &Place) -> Result<Command> {
    let mut command = program(&cache.qemu(), options.niceness)?;
    let accelerator = std::env::var(ACCELERATOR_VARIABLE).unwrap_or_else(|_| "tcg".to_owned());
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command.arg("-name").arg(escaped(Path::new(&options.name))?);
    command.args(["-machine", "q35,memory-backend=memory,usb=off,vmport=off"]);
    command.args(["-accel", &accelerator]);
    command.args(["-cpu", if accelerator == "kvm" { "host" } else { "qemu64" }]);
    command.args(["-smp", &options.processors.to_string()]);
    let memory = options.memory_mib;
    command.args(["-m", &format!("{memory}M"), "-object"]);
    let (kind, share) = match options.memory_shared {
        true => ("memfd", "on"),
        false => ("ram", "off"),
    };
    command.arg(format!("memory-backend-{kind},id=memory,size={memory}M,share={share}"));
    // So that firmware leaves hot-plug to the guest's own pciehp.
    command.args(["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]);

    let (console, log) = (escaped(&place.console())?, escaped(&place.console_log())?);
    let commands = escaped(&place.commands())?;
    let monitor = escaped(&place.monitor())?;
    // A line that nobody is connected to is drained all the same: otherwise the guest stalls.
    let console = format!("socket,id=console,path={console},server=on,wait=off,logfile={log}");
    command.args(["-chardev", &console, "-serial", "chardev:console"]);
    let commands = format!("socket,id=commands,path={commands},server=on,wait=off");
    command.args(["-chardev", &commands, "-serial", "chardev:commands"]);
    command.args(["-qmp", &format!("unix:{monitor},server=on,wait=off")]);

    command.arg("-kernel").arg(cache.kernel(options.kernel).join("vmlinuz"));
    command.arg("-initrd").arg(place.image());
    command.arg("-append").arg(kernel_line(options));
    for (index, socket) in options.vfio_user.iter().enumerate() {
        let path = socket.to_str().context("the socket's path is not UTF-8")?;
        let device = json!({
            "driver": "vfio-user-pci",
            "id": format!("vfio-user-{index}"),
            "bus": "pcie.0",
            "addr": format!("{:x}", FIRST_DEVICE + index),
            "socket": { "type": "unix", "path": path },
        });
        command.args(["-device", &device.to_string()]);
    }
    if let Some((own, other)) = &options.link {
        let (own, other) = (escaped(own)?, escaped(other)?);
        let ends = format!("local.type=unix,local.path={own},remote.type=unix,remote.path={other}");
        command.args(["-netdev", &format!("dgram,id=link,{ends}")]);
        let card = format!("virtio-net-pci,netdev=link,bus=pcie.0,addr={NETWORK:x},romfile=");
        command.args(["-device", &card]);
    }
    command.args(&options.arguments);
    Ok(command)
}

/// Debian's QEMU with its own libraries, which are newer than this system's.
fn program(root: &Path, niceness: u8) -> Result<Command> {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut folders = vec![libraries.clone()];
    for entry in std::fs::read_dir(&libraries)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    // nice(1) becomes what it runs.
    let mut command = Command::new("nice");
    command.args(["-n", &niceness.to_string()]).arg(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(std::env::join_paths(folders)?);
    command.arg(root.join("usr/bin/qemu-system-x86_64"));
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(root.join(firmware));
    }
    for variable in ["LD_PRELOAD", "LD_LIBRARY_PATH", "QEMU_MODULE_DIR"] {
        command.env_remove(variable);
    }
    Ok(command)
}

/// The kernel's command line.
fn kernel_line(options: &Options) -> String {
    let mut words = vec![
        "console=ttyS0,115200",
        // All of what a test wants to read has room.
        "log_buf_len=4M",
        // An emulated processor on a busy machine looks stalled, and that is no news.
        "nowatchdog",
        "rcupdate.rcu_cpu_stall_suppress=1",
        "clocksource=hpet",
        "mitigations=off",
        "random.trust_cpu=on",
        "panic=0",
    ];
    if !options.append.is_empty() {
        words.push(&options.append);
    }
    words.join(" ")
}

/// A path in one of QEMU's lists, in which a comma is written twice.
fn escaped(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_is_written_twice() {
        assert_eq!(escaped(Path::new("/a,b/c")).unwrap(), "/a,,b/c");
    }

    #[test]
    fn what_is_asked_for_is_on_the_kernels_line() {
        let mut options = Options::new("guest", Kernel::V6_1);
        assert!(kernel_line(&options).starts_with("console=ttyS0"));
        options.append = "pci=hpbussize=4".to_owned();
        assert!(kernel_line(&options).ends_with(" pci=hpbussize=4"));
    }
}
