//! What a daemon is told: a TOML file, the environment, flags, in rising order of weight.

use crate::logs::LogFormat;
use proxy_net::{Address, Port, RawOptions, RawPort, UdpOptions, UdpPort};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The part of the configuration that both daemons have, as said: what is not said is `None`.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Said {
    /// Name of this proxy, unique in the fabric [default: the machine's host name]
    #[arg(long, env = "DXPU_NAME")]
    pub name: Option<String>,
    /// Where the manager takes proxies [default: 127.0.0.1:7781]
    #[arg(long, env = "DXPU_MANAGER_ADDRESS", value_name = "HOST:PORT")]
    pub manager: Option<String>,
    /// Where frames travel: udp:ADDRESS:PORT or eth:INTERFACE[.VLAN] [default: udp:127.0.0.1:0]
    #[arg(long, env = "DXPU_FABRIC", value_name = "SPEC")]
    pub fabric: Option<FabricSpec>,
    /// Address that other proxies reach this one at, if it is not the one bound (udp only)
    #[arg(long, env = "DXPU_ADVERTISE", value_name = "ADDRESS:PORT")]
    pub advertise: Option<SocketAddr>,
    /// Largest frame in bytes [default: what the interface takes, at most 9000]
    #[arg(long, env = "DXPU_MTU", value_name = "BYTES")]
    pub mtu: Option<usize>,
    /// How long the data plane spins before it sleeps, microseconds [default: 50]
    #[arg(long, env = "DXPU_SPIN_US", value_name = "US")]
    pub spin_us: Option<u64>,
    /// What is logged: a level, or target=level pairs [default: info]
    #[arg(long, env = "DXPU_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How logs look [default: text]
    #[arg(long, env = "DXPU_LOG_FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
}

/// The same, complete and checked.
#[derive(Clone, Debug)]
pub struct Common {
    /// Name of this proxy: 1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first.
    pub name: String,
    /// Where the manager takes proxies.
    pub manager: String,
    /// Where frames travel.
    pub fabric: FabricSpec,
    /// Address told to others, if not the one bound.
    pub advertise: Option<SocketAddr>,
    /// Largest frame in bytes; what the interface takes if nothing is said.
    pub mtu: Option<usize>,
    /// How long the data plane spins.
    pub spin: Duration,
    /// Log filter.
    pub log: String,
    /// How logs look.
    pub log_format: LogFormat,
}

impl Said {
    /// What was said here, else there.
    #[must_use]
    pub fn or(self, other: Said) -> Said {
        Said {
            name: self.name.or(other.name),
            manager: self.manager.or(other.manager),
            fabric: self.fabric.or(other.fabric),
            advertise: self.advertise.or(other.advertise),
            mtu: self.mtu.or(other.mtu),
            spin_us: self.spin_us.or(other.spin_us),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
        }
    }

    /// Whether everything was said that can be: what the file in the help is checked for.
    pub fn is_complete(&self) -> bool {
        // All by name, so that a new setting is not forgotten here.
        let Self { name, manager, fabric, advertise, mtu, spin_us, log, log_format } = self;
        name.is_some()
            && manager.is_some()
            && fabric.is_some()
            && advertise.is_some()
            && mtu.is_some()
            && spin_us.is_some()
            && log.is_some()
            && log_format.is_some()
    }

    /// Completes and checks.
    ///
    /// # Errors
    ///
    /// A text that names the setting, what is wrong with it and what is allowed.
    pub fn check(self) -> Result<Common, String> {
        let name = self.name.unwrap_or_else(host_name);
        if !is_name(&name) {
            return Err(format!(
                "name {name:?}: 1 to {} letters, digits, '.', '_' and '-', a letter or digit \
                 first; give another with --name",
                proxy_core::control::MAX_NAME
            ));
        }
        let limits = proxy_core::limits::MIN_FRAME..=proxy_core::limits::MAX_FRAME;
        if let Some(mtu) = self.mtu.filter(|mtu| !limits.contains(mtu)) {
            return Err(format!("mtu {mtu}: {} to {} bytes", limits.start(), limits.end()));
        }
        let manager = self.manager.unwrap_or_else(|| "127.0.0.1:7781".into());
        let port = manager
            .rsplit_once(':')
            .and_then(|(host, port)| if host.is_empty() { None } else { port.parse::<u16>().ok() });
        if port.unwrap_or(0) == 0 {
            return Err(format!("manager {manager:?}: a host and a port, such as manager-1:7781"));
        }
        Ok(Common {
            name,
            manager,
            fabric: self.fabric.unwrap_or(FabricSpec::Udp(([127, 0, 0, 1], 0).into())),
            advertise: self.advertise,
            mtu: self.mtu,
            spin: Duration::from_micros(self.spin_us.unwrap_or(50)),
            log: self.log.unwrap_or_else(|| "info".into()),
            log_format: self.log_format.unwrap_or_default(),
        })
    }
}

/// Whether the manager takes this as a proxy's name. It refuses others, and would only say so once
/// the proxy is connected.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= proxy_core::control::MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "proxy".into(),
        name => name.into(),
    }
}

/// Where frames travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricSpec {
    /// UDP, bound to this address.
    Udp(SocketAddr),
    /// Raw Ethernet on this interface, with an 802.1Q tag or without.
    Ethernet {
        /// The interface's name.
        interface: String,
        /// VLAN, 1 to 4094.
        vlan: Option<u16>,
    },
}

impl FromStr for FabricSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("fabric {text:?}: {why}");
        match text.split_once(':') {
            Some(("udp", address)) => address
                .parse()
                .map(Self::Udp)
                .map_err(|_| wrong("after udp: an address and port, such as udp:0.0.0.0:7790")),
            Some(("eth", interface)) => {
                let (interface, vlan) = match interface.rsplit_once('.') {
                    Some((name, vlan)) => match vlan.parse() {
                        Ok(vlan @ 1..=4094) => (name, Some(vlan)),
                        _ => return Err(wrong("the VLAN after the dot is 1 to 4094")),
                    },
                    None => (interface, None),
                };
                if interface.is_empty() {
                    return Err(wrong(
                        "after eth: an interface, such as eth:enp3s0 or eth:enp3s0.100",
                    ));
                }
                Ok(Self::Ethernet { interface: interface.into(), vlan })
            }
            _ => Err(wrong("udp:ADDRESS:PORT or eth:INTERFACE[.VLAN]")),
        }
    }
}

impl fmt::Display for FabricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Ethernet { interface, vlan: None } => write!(f, "eth:{interface}"),
            Self::Ethernet { interface, vlan: Some(vlan) } => write!(f, "eth:{interface}.{vlan}"),
        }
    }
}

impl<'de> Deserialize<'de> for FabricSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FabricSpec {
    /// Opens the port that frames travel through.
    ///
    /// # Errors
    ///
    /// What the network said, with what to do about it.
    pub fn open(&self, frame_size: Option<usize>) -> Result<Box<dyn Port>, proxy_net::NetError> {
        Ok(match self {
            Self::Udp(bind) => Box::new(UdpPort::open(&UdpOptions { bind: *bind, frame_size })?),
            Self::Ethernet { interface, vlan } => {
                let interface = interface.clone();
                Box::new(RawPort::open(&RawOptions {
                    vlan: *vlan,
                    frame_size,
                    ..RawOptions::new(interface)
                })?)
            }
        })
    }
}

/// How an address is told to the manager.
pub fn path_address(address: &Address) -> proxy_core::control::PathAddress {
    use proxy_core::control::PathAddress;
    match *address {
        Address::Ethernet { mac, vlan } => PathAddress::Ethernet { mac, vlan },
        Address::Udp(SocketAddr::V4(a)) => {
            PathAddress::Udp4 { ip: a.ip().octets(), port: a.port() }
        }
        Address::Udp(SocketAddr::V6(a)) => {
            PathAddress::Udp6 { ip: a.ip().octets(), port: a.port() }
        }
        // In-memory ports exist in tests alone; their number travels as a port on no address.
        Address::Memory(number) => PathAddress::Udp4 { ip: [0; 4], port: number },
    }
}

/// How an address that the manager told is used.
pub fn net_address(address: &proxy_core::control::PathAddress) -> Address {
    use proxy_core::control::PathAddress;
    match *address {
        PathAddress::Ethernet { mac, vlan } => Address::Ethernet { mac, vlan },
        PathAddress::Udp4 { ip: [0, 0, 0, 0], port } => Address::Memory(port),
        PathAddress::Udp4 { ip, port } => Address::Udp((ip, port).into()),
        PathAddress::Udp6 { ip, port } => Address::Udp((ip, port).into()),
    }
}

/// Reads a TOML file into `T`, or its default when no file was named.
///
/// # Errors
///
/// A text that names the file, the line, and what is wrong there.
pub fn read_file<T: DeserializeOwned + Default>(path: Option<&Path>) -> Result<T, String> {
    let Some(path) = path else { return Ok(T::default()) };
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("configuration file {name}: {e}; check --config"))?;
    toml::from_str(&text)
        .map_err(|e| format!("configuration file {name}: {e}\n--help shows a complete file"))
}

/// The `[proxy]` table of a configuration file, complete, as both daemons' help shows it.
pub const PROXY_TABLE: &str = r#"[proxy]
# Unique in the fabric; the machine's host name if it is not given.
name = "rack-1"
# Where the manager takes proxies.
manager = "127.0.0.1:7781"
# Where frames travel: "udp:ADDRESS:PORT" or "eth:INTERFACE[.VLAN]".
fabric = "udp:0.0.0.0:7790"
# Where other proxies reach this one, if not at the address bound (udp only).
advertise = "192.0.2.1:7790"
# Largest frame in bytes; what the interface takes, at most 9000, if not given.
mtu = 1500
# How long the data plane spins before it sleeps, in microseconds.
spin-us = 50
# A level, or target=level pairs.
log = "info"
# "text" or "json".
log-format = "text"
"#;

/// The configuration file that a daemon's long help shows: the text between the line
/// `Configuration file ...:` and the line `Exit status...`. Daemons check with it that what they
/// show can be read.
///
/// # Panics
///
/// When the help has no such lines.
pub fn file_in_help(help: &str) -> &str {
    let (_, behind) = help.split_once("\nConfiguration file").expect("help shows a file");
    let (_, file) = behind.split_once(":\n").expect("its title is a line");
    file.split_once("\nExit status").expect("the exit status stands behind it").0
}

/// A path as given, relative to the folder of the file that names it.
pub fn relative_to(file: Option<&Path>, path: &Path) -> PathBuf {
    match file.and_then(Path::parent) {
        Some(folder) if path.is_relative() => folder.join(path),
        _ => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_read_back_as_written() {
        for text in ["udp:127.0.0.1:7790", "udp:[::1]:7790", "eth:veth0", "eth:enp3s0.100"] {
            assert_eq!(text.parse::<FabricSpec>().unwrap().to_string(), text);
        }
        for text in ["", "udp:", "udp:localhost", "eth:", "eth:x.0", "eth:x.4095", "ib:0"] {
            let error = text.parse::<FabricSpec>().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn flags_outweigh_the_file() {
        let flags = Said { mtu: Some(1500), ..Said::default() };
        let file: Said = toml::from_str("mtu = 4000\nname = \"b\"\nfabric = \"eth:x\"").unwrap();
        let common = flags.or(file).check().unwrap();
        assert_eq!((common.mtu, common.name.as_str()), (Some(1500), "b"));
        assert!(toml::from_str::<Said>("fabrik = 1").is_err());
        for manager in ["nonsense", ":7781", "host:", "host:0", "host:99999"] {
            let said = Said { manager: Some(manager.into()), ..Said::default() };
            assert!(said.check().unwrap_err().contains(manager));
        }
        assert!(Said { mtu: Some(20), ..Said::default() }.check().unwrap_err().contains("mtu 20"));
    }

    #[test]
    fn names_are_those_that_the_manager_takes() {
        for good in ["box1", "0", "rack-3.host_2", &"x".repeat(64)] {
            let said = Said { name: Some(good.into()), ..Said::default() };
            assert_eq!(said.check().unwrap().name, good);
        }
        for bad in ["", "-x", ".", "a/b", "a b", "ä", &"x".repeat(65)] {
            let error = Said { name: Some(bad.into()), ..Said::default() }.check().unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
            assert!(error.contains("letter or digit first"), "{error}");
        }
    }
}
