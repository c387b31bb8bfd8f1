//! What `host-proxy` is told.

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use proxy_core::limits::MAX_PORTS;
use proxy_core::switch::Placeholder;
use proxy_daemon::config::{Common, PROXY_TABLE, Said, read_file};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use vmd_adapter::{Interrupts, VmdConfig};

const ROOT: &str = "\
The host itself is one of:
  --model-host SOCKET  a model of a host in this process, which acts as an operating system would;
                       dxpu-host talks to it through SOCKET
  --vm SOCKET          a virtual machine, whose adapter is at the vfio-user socket SOCKET: QEMU
                       attaches it with -device vfio-user-pci (docs/vm.md)
  --tlp-socket SOCKET  any other root complex, which connects to SOCKET (docs/tlp-socket.md)

Example:
  host-proxy --name host-1 --model-host /run/dxpu/host-1.sock
";

const HOST_TABLE: &str = r#"[host]
# Downstream ports of the virtual switch, 1 to 32.
ports = 8
# Room held at boot for devices to come: "PORT=MEMORY[,PREFETCHABLE]".
placeholders = ["0=16M,1G", "1=16M"]
# The host is a model of one; dxpu-host talks to it through this socket.
model-host = "/run/dxpu/host-1.sock"
# Its memory in MiB.
model-memory-mib = 64
# How long it waits after the attention button, in milliseconds.
model-button-ms = 5000
# Max_Payload_Size and Max_Read_Request_Size that it gives to devices at most: powers of two, 128 to
# 4096 bytes.
model-payload = 512
model-read-request = 512
# Or, in place of model-host, another root complex connects to this socket.
# tlp-socket = "/run/dxpu/tlp.sock"
# Or a virtual machine gets its adapter at this vfio-user socket.
# vm = "/run/dxpu/vm.sock"
# How interrupts reach it: "memory-writes", or "remapped" by the adapter's own vectors.
vm-interrupts = "memory-writes"
# Bus numbers behind the adapter, 32 to 256: each takes 1 MB of its BAR 0.
vm-buses = 256
# What the adapter can hold of devices' memory: 32-bit, and prefetchable. Powers of two.
vm-memory = "256M"
vm-prefetchable = "16G"
# Max_Payload_Size that the machine's firmware seems to have chosen: a power of two,
# 128 to 4096 bytes.
vm-payload = 128
"#;

const EXIT: &str = "Exit status: 0 stopped by a signal, 1 failed while running, 2 wrong settings.";

/// Makes PCIe devices in boxes elsewhere appear behind a switch of this host.
///
/// Settings come from the file named with --config (TOML), the environment, and flags; a flag
/// outweighs the environment, which outweighs the file.
#[derive(Debug, Parser)]
#[command(
    name = "host-proxy",
    version,
    after_help = format!("{ROOT}\n{EXIT}"),
    after_long_help = format!(
        "{ROOT}\n\
         Configuration file, complete:\n{PROXY_TABLE}\n{HOST_TABLE}\n{EXIT}"
    )
)]
pub struct Cli {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "DXPU_HOST_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    common: Said,
    #[command(flatten)]
    host: SaidHost,
}

/// The host's part of the settings, as said.
#[derive(Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SaidHost {
    /// Downstream ports of the virtual switch, 1 to 32 [default: 8]
    #[arg(long, env = "DXPU_PORTS")]
    ports: Option<u8>,
    /// Run the model host, with its command socket at this path
    #[arg(long, value_name = "SOCKET", env = "DXPU_MODEL_HOST_LISTEN")]
    model_host: Option<PathBuf>,
    /// Memory of the model host in MiB [default: 64]
    #[arg(long, value_name = "MIB", env = "DXPU_MODEL_MEMORY_MIB")]
    model_memory_mib: Option<u64>,
    /// How long the model host waits after the attention button, milliseconds [default: 5000, as
    /// PCIe says]
    #[arg(long, value_name = "MS", env = "DXPU_MODEL_BUTTON_MS")]
    model_button_ms: Option<u64>,
    /// Max_Payload_Size that the model host gives to devices at most: a power of two, 128 to 4096
    /// bytes [default: 512]
    #[arg(long, value_name = "BYTES", env = "DXPU_MODEL_PAYLOAD")]
    model_payload: Option<u16>,
    /// Max_Read_Request_Size that the model host gives to devices: a power of two, 128 to 4096
    /// bytes [default: 512]
    #[arg(long, value_name = "BYTES", env = "DXPU_MODEL_READ_REQUEST")]
    model_read_request: Option<u16>,
    /// Hold room at boot behind a port for a device to come: PORT=MEMORY[,PREFETCHABLE], sizes
    /// in bytes or with K, M, G; a placeholder shows BARs of these sizes until the first plug
    #[arg(long = "placeholder", value_name = "SPEC")]
    #[serde(default)]
    placeholders: Vec<Reserve>,
    /// Take a root complex at this Unix socket
    #[arg(long, value_name = "SOCKET", env = "DXPU_TLP_SOCKET")]
    tlp_socket: Option<PathBuf>,
    /// Be a virtual machine's adapter, at this vfio-user socket
    #[arg(long, value_name = "SOCKET", env = "DXPU_VM_SOCKET")]
    vm: Option<PathBuf>,
    /// How interrupts reach the machine [default: memory-writes]
    #[arg(long, value_name = "HOW", env = "DXPU_VM_INTERRUPTS", value_enum)]
    vm_interrupts: Option<VmInterrupts>,
    /// Bus numbers behind the adapter: 32, 64, 128 or 256 [default: 256]
    #[arg(long, env = "DXPU_VM_BUSES", value_name = "BUSES")]
    vm_buses: Option<u16>,
    /// 32-bit window of the adapter: a power of two, 1M to 2G [default: 256M]
    #[arg(long, env = "DXPU_VM_MEMORY", value_name = "SIZE")]
    vm_memory: Option<Size>,
    /// Prefetchable window of the adapter: a power of two, 1M to 16T [default: 16G]
    #[arg(long, env = "DXPU_VM_PREFETCHABLE", value_name = "SIZE")]
    vm_prefetchable: Option<Size>,
    /// Max_Payload_Size that the machine's firmware seems to have chosen: a power of two, 128 to
    /// 4096 bytes [default: 128]
    #[arg(long, env = "DXPU_VM_PAYLOAD", value_name = "BYTES")]
    vm_payload: Option<usize>,
}

/// How interrupts reach a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum VmInterrupts {
    /// As memory writes
    MemoryWrites,
    /// By the adapter's own MSI-X vectors
    Remapped,
}

impl From<VmInterrupts> for Interrupts {
    fn from(said: VmInterrupts) -> Self {
        match said {
            VmInterrupts::MemoryWrites => Self::MemoryWrites,
            VmInterrupts::Remapped => Self::Remapped,
        }
    }
}

/// A number of bytes, as said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        bytes(text).map(Self).ok_or_else(|| format!("{text:?}: bytes, or with K, M, G or T: 256M"))
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    proxy: Said,
    #[serde(default)]
    host: SaidHost,
}

/// A placeholder behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Reserve {
    /// The downstream port.
    pub port: u8,
    /// What it shows.
    pub placeholder: Placeholder,
}

impl FromStr for Reserve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("placeholder {text:?}: {why}");
        let form = "PORT=MEMORY[,PREFETCHABLE], such as 0=16M,1G";
        let (port, sizes) = text.split_once('=').ok_or_else(|| wrong(form))?;
        let port = port.parse().map_err(|_| wrong(form))?;
        let (memory, prefetchable) = sizes.split_once(',').unwrap_or((sizes, "0"));
        let size = |text: &str| bytes(text).ok_or_else(|| wrong(form));
        let memory = u32::try_from(size(memory)?).map_err(|_| wrong("memory is below 4G"))?;
        let placeholder =
            Placeholder::new(memory, size(prefetchable)?, 0).map_err(|e| wrong(&e.to_string()))?;
        Ok(Self { port, placeholder })
    }
}

impl TryFrom<String> for Reserve {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A number of bytes, with or without K, M, G or T (powers of 1024).
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// What can be chosen about the model host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its memory, in bytes.
    pub memory: u64,
    /// How long it waits after the attention button.
    pub button_delay: Duration,
    /// Max_Payload_Size that it gives to devices at most, in bytes.
    pub payload: u16,
    /// Max_Read_Request_Size that it gives to devices, in bytes.
    pub read_request: u16,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            button_delay: Duration::from_secs(5),
            payload: 512,
            read_request: 512,
        }
    }
}

/// Where the root complex is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// The model host.
    Model {
        /// Its command socket.
        socket: PathBuf,
        /// What it is like.
        model: Model,
    },
    /// A root complex that connects to this socket.
    Socket(PathBuf),
    /// A virtual machine.
    Vm {
        /// The vfio-user socket of its adapter.
        socket: PathBuf,
        /// The adapter.
        adapter: VmdConfig,
    },
}

impl Front {
    /// The socket that it listens at.
    pub fn socket(&self) -> &Path {
        match self {
            Self::Model { socket, .. } | Self::Socket(socket) | Self::Vm { socket, .. } => socket,
        }
    }
}

/// Everything checked.
#[derive(Debug)]
pub struct Config {
    /// What both daemons have.
    pub common: Common,
    /// Downstream ports.
    pub ports: u8,
    /// What each port shows at boot.
    pub placeholders: [Option<Placeholder>; MAX_PORTS],
    /// Where the root complex is.
    pub front: Front,
}

impl Cli {
    /// What this program was told. What cannot be read ends it.
    pub fn from_args() -> Self {
        Self::read(Self::command(), std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// A root complex that a flag names outweighs another one that the environment names.
    fn read(
        command: clap::Command,
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = command.try_get_matches_from(args)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let SaidHost { model_host, tlp_socket, vm, .. } = &mut cli.host;
        let fronts = [("model_host", model_host), ("tlp_socket", tlp_socket), ("vm", vm)]
            .map(|(id, said)| (matches.value_source(id) == Some(ValueSource::CommandLine), said));
        if fronts.iter().any(|(by_flag, _)| *by_flag) {
            let others = fronts.into_iter().filter(|(by_flag, _)| !by_flag);
            others.for_each(|(_, said)| *said = None);
        }
        Ok(cli)
    }

    /// Reads the file and puts all together.
    ///
    /// # Errors
    ///
    /// A text that names the setting, what is wrong with it and what is allowed.
    pub fn check(self) -> Result<Config, String> {
        let file: File = read_file(self.config.as_deref())?;
        let ports = self.host.ports.or(file.host.ports).unwrap_or(8);
        if !(1..=MAX_PORTS).contains(&(ports as usize)) {
            return Err(format!("ports {ports}: 1 to {MAX_PORTS}"));
        }
        let mut placeholders = [None; MAX_PORTS];
        for Reserve { port, placeholder } in
            file.host.placeholders.iter().chain(&self.host.placeholders)
        {
            if *port >= ports {
                return Err(format!(
                    "placeholder for port {port}: ports are numbered 0 to {}",
                    ports - 1
                ));
            }
            placeholders[*port as usize] = Some(*placeholder);
        }
        let front = front(self.host, file.host)?;
        Ok(Config { common: self.common.or(file.proxy).check()?, ports, placeholders, front })
    }
}

/// Where the root complex is: as said by flags and environment, else by the file.
fn front(said: SaidHost, file: SaidHost) -> Result<Front, String> {
    let model = model(&said, &file)?;
    let adapter = adapter(&said, &file)?;
    let said_here = said.model_host.is_some() || said.tlp_socket.is_some() || said.vm.is_some();
    let said = if said_here { said } else { file };
    match (said.model_host, said.tlp_socket, said.vm) {
        (Some(socket), None, None) => Ok(Front::Model { socket, model }),
        (None, Some(socket), None) => Ok(Front::Socket(socket)),
        (None, None, Some(socket)) => Ok(Front::Vm { socket, adapter }),
        (None, None, None) => Err("no root complex: give --model-host SOCKET, --vm SOCKET or \
                                   --tlp-socket SOCKET"
            .into()),
        _ => Err("model-host, vm and tlp-socket: there can be one root complex; give one of them \
                  (in the environment: DXPU_MODEL_HOST_LISTEN, DXPU_VM_SOCKET, DXPU_TLP_SOCKET)"
            .into()),
    }
}

fn model(said: &SaidHost, file: &SaidHost) -> Result<Model, String> {
    let default = Model::default();
    let mib = said.model_memory_mib.or(file.model_memory_mib).unwrap_or(default.memory >> 20);
    if !(16..=65536).contains(&mib) {
        return Err(format!("model-memory-mib {mib}: 16 to 65536"));
    }
    let size = |name, bytes: u16| match bytes {
        bytes if bytes.is_power_of_two() && (128..=4096).contains(&bytes) => Ok(bytes),
        bytes => Err(format!("{name} {bytes}: a power of two, 128 to 4096")),
    };
    let payload = said.model_payload.or(file.model_payload).unwrap_or(default.payload);
    let read_request =
        said.model_read_request.or(file.model_read_request).unwrap_or(default.read_request);
    let button = said.model_button_ms.or(file.model_button_ms).map(Duration::from_millis);
    Ok(Model {
        memory: mib << 20,
        button_delay: button.unwrap_or(default.button_delay),
        payload: size("model-payload", payload)?,
        read_request: size("model-read-request", read_request)?,
    })
}

fn adapter(said: &SaidHost, file: &SaidHost) -> Result<VmdConfig, String> {
    let default = VmdConfig::default();
    let interrupts = said.vm_interrupts.or(file.vm_interrupts).map(Interrupts::from);
    let size = |said: Option<Size>, file: Option<Size>, default: u64| {
        said.or(file).map_or(default, |size| size.0)
    };
    let adapter = VmdConfig {
        interrupts: interrupts.unwrap_or(default.interrupts),
        buses: said.vm_buses.or(file.vm_buses).unwrap_or(default.buses),
        memory: size(said.vm_memory, file.vm_memory, default.memory),
        prefetchable: size(said.vm_prefetchable, file.vm_prefetchable, default.prefetchable),
        payload: said.vm_payload.or(file.vm_payload).unwrap_or(default.payload),
    };
    adapter.check().map_err(|e| format!("vm: {e}"))?;
    Ok(adapter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_daemon::config::file_in_help;

    fn parse(args: &[&str]) -> Result<Config, String> {
        parse_as(Cli::command(), args)
    }

    fn parse_as(command: clap::Command, args: &[&str]) -> Result<Config, String> {
        let cli = Cli::read(command, [&["host-proxy"], args].concat());
        cli.map_err(|e| e.to_string())?.check()
    }

    #[test]
    fn one_front_end_is_needed() {
        assert!(parse(&[]).unwrap_err().contains("--model-host"));
        assert!(parse(&["--model-host", "a", "--tlp-socket", "b"]).is_err());
        let config = parse(&["--tlp-socket", "b", "--ports", "32"]).unwrap();
        assert_eq!((config.front, config.ports), (Front::Socket("b".into()), 32));
    }

    #[test]
    fn a_flag_outweighs_another_front_end_of_the_environment() {
        // A variable that is always there stands for DXPU_VM_SOCKET.
        let path = std::env::var("PATH").unwrap();
        let command = || Cli::command().mut_arg("vm", |arg| arg.env("PATH"));
        let front = |args: &[&str]| parse_as(command(), args).map(|config| config.front);
        assert!(matches!(front(&[]), Ok(Front::Vm { socket, .. }) if socket == Path::new(&path)));
        assert_eq!(front(&["--tlp-socket", "b"]), Ok(Front::Socket("b".into())));
        assert!(matches!(front(&["--model-host", "a"]), Ok(Front::Model { .. })));
        assert!(
            matches!(front(&["--vm", "c"]), Ok(Front::Vm { socket, .. }) if socket == Path::new("c"))
        );
        let command = command().mut_arg("tlp_socket", |arg| arg.env("PATH"));
        let error = parse_as(command, &[]).unwrap_err();
        assert!(error.contains("one root complex") && error.contains("DXPU_VM_SOCKET"), "{error}");
    }

    #[test]
    fn a_virtual_machine_s_adapter_has_sizes() {
        let config = parse(&["--vm", "a"]).unwrap();
        let adapter = VmdConfig::default();
        assert_eq!(config.front, Front::Vm { socket: "a".into(), adapter: adapter.clone() });
        let said = ["--vm", "a", "--vm-memory", "1G", "--vm-interrupts", "remapped"];
        let Front::Vm { adapter: other, .. } = parse(&said).unwrap().front else { panic!() };
        assert_eq!((other.memory, other.interrupts), (1 << 30, Interrupts::Remapped));
        assert_eq!(other.prefetchable, adapter.prefetchable);
        for (wrong, named) in [
            (["--vm-memory", "3G"], "power of two"),
            (["--vm-memory", "x"], "256M"),
            (["--vm-buses", "7"], "32 to 256"),
            (["--vm-payload", "1000"], "128 to 4096"),
            (["--vm-interrupts", "x"], "memory-writes"),
            (["--tlp-socket", "b"], "one root complex"),
        ] {
            let error = parse(&[&["--vm", "a"], &wrong[..]].concat()).unwrap_err();
            assert!(error.contains(named), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn placeholders_hold_room_behind_their_ports() {
        let config =
            parse(&["--tlp-socket", "b", "--placeholder", "1=16M,1G", "--placeholder", "0=4096"]);
        let placeholders = config.unwrap().placeholders;
        assert_eq!(placeholders[1], Placeholder::new(16 << 20, 1 << 30, 0).ok());
        assert!(placeholders[0].is_some() && placeholders[2].is_none());
        for (spec, named) in
            [("8=16M", "0 to 7"), ("0=x", "16M,1G"), ("0=4G", "below 4G"), ("0", "16M,1G")]
        {
            let error = parse(&["--tlp-socket", "b", "--placeholder", spec]).unwrap_err();
            assert!(error.contains(named), "{spec}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parse(&["--model-host", "a", "--ports", "33"]).unwrap_err().contains("1 to 32"));
        assert!(parse(&["--model-host", "a", "--fabric", "x"]).unwrap_err().contains("udp:"));
        let error = parse(&["--model-host", "a", "--model-memory-mib", "1"]).unwrap_err();
        assert!(error.contains("16 to 65536"));
        for (option, wrong) in [
            ("--model-payload", "64"),
            ("--model-payload", "8192"),
            ("--model-read-request", "1000"),
        ] {
            let error = parse(&["--model-host", "a", option, wrong]).unwrap_err();
            assert!(error.contains(wrong) && error.contains("128 to 4096"), "{error}");
        }
    }

    #[test]
    fn the_file_that_help_shows_is_complete_and_can_be_read() {
        let help = <Cli as clap::CommandFactory>::command().render_long_help().to_string();
        let text = file_in_help(&help);
        // The other root complex stands there behind a `#`.
        let other = text.replace("\nmodel-host", "\n# model-host");
        let vm = other.replace("\n# vm =", "\nvm =");
        let other = other.replace("\n# tlp-socket", "\ntlp-socket");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file: File = read_file(Some(&path)).unwrap();
            (file, parse(&["--config", path.to_str().unwrap()]).unwrap())
        };
        let (file, config) = read(text);
        assert!(file.proxy.is_complete(), "{:?}", file.proxy);
        assert!(file.host.ports.is_some() && file.host.placeholders.len() == 2);
        assert!(file.host.model_memory_mib.is_some() && file.host.model_button_ms.is_some());
        assert!(file.host.model_payload.is_some() && file.host.model_read_request.is_some());
        assert!(file.host.vm_interrupts.is_some() && file.host.vm_buses.is_some());
        assert!(file.host.vm_memory.is_some() && file.host.vm_prefetchable.is_some());
        assert!(file.host.vm_payload.is_some());
        assert!(matches!(config.front, Front::Model { .. }));
        assert!(matches!(read(&vm).1.front, Front::Vm { .. }));
        assert!(matches!(read(&other).1.front, Front::Socket(_)));
    }
}
