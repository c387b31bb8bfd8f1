//! What a daemon is told: a TOML file, the environment, flags, in rising order of weight.

use crate::fabric::{self, FabricSpec};
use crate::idle::Spin;
use crate::logs::LogFormat;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    /// Where frames travel: udp:ADDRESS:PORT or eth:INTERFACE[.VLAN]; several, for as many paths,
    /// with commas between them or in several options [default: udp:127.0.0.1:0]
    #[arg(long, env = "DXPU_FABRIC", value_name = "SPEC", value_delimiter = ',')]
    #[serde(default, deserialize_with = "fabric::one_or_many")]
    pub fabric: Option<Vec<FabricSpec>>,
    /// Address that other proxies reach this one at, if it is not the one bound (udp only), as for
    /// one bound to every address (0.0.0.0 or ::); one for each port
    #[arg(long, env = "DXPU_ADVERTISE", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    #[serde(default, deserialize_with = "fabric::one_or_many")]
    pub advertise: Option<Vec<SocketAddr>>,
    /// Largest frame in bytes [default: what the interface takes, at most 9000]
    #[arg(long, env = "DXPU_MTU", value_name = "BYTES")]
    pub mtu: Option<usize>,
    /// Whether eth ports use packet rings, if the kernel has them [default: true]
    #[arg(long, env = "DXPU_RINGS", value_name = "BOOL")]
    pub rings: Option<bool>,
    /// Whether udp ports have frames segmented, if the kernel can: several of one length are then
    /// one message for it [default: true]
    #[arg(long, env = "DXPU_SEGMENTATION", value_name = "BOOL")]
    pub segmentation: Option<bool>,
    /// How long the data plane spins before it sleeps, microseconds [default: 50]
    #[arg(long, env = "DXPU_SPIN_US", value_name = "US")]
    pub spin_us: Option<u64>,
    /// The same after a processor has read a device's register, if longer: it stands still until it
    /// has the answer, and drivers seldom read only one [default: 200]
    #[arg(long, env = "DXPU_SPIN_AFTER_READ_US", value_name = "US")]
    pub spin_after_read_us: Option<u64>,
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
    /// Where frames travel: a port for each path.
    pub fabric: Vec<FabricSpec>,
    /// Addresses told to others, one for each port, if not those that are bound.
    pub advertise: Vec<SocketAddr>,
    /// Largest frame in bytes; what the interface takes if nothing is said.
    pub mtu: Option<usize>,
    /// Whether raw Ethernet uses packet rings.
    pub rings: bool,
    /// Whether UDP has the kernel segment several frames at once.
    pub segmentation: bool,
    /// How long the data plane spins.
    pub spin: Spin,
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
            rings: self.rings.or(other.rings),
            segmentation: self.segmentation.or(other.segmentation),
            spin_us: self.spin_us.or(other.spin_us),
            spin_after_read_us: self.spin_after_read_us.or(other.spin_after_read_us),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
        }
    }

    /// Whether everything was said that can be: what the file in the help is checked for.
    pub fn is_complete(&self) -> bool {
        // All by name, so that a new setting is not forgotten here.
        let Self {
            name,
            manager,
            fabric,
            advertise,
            mtu,
            rings,
            segmentation,
            spin_us,
            spin_after_read_us,
            log,
            log_format,
        } = self;
        name.is_some()
            && manager.is_some()
            && fabric.is_some()
            && advertise.is_some()
            && mtu.is_some()
            && rings.is_some()
            && segmentation.is_some()
            && spin_us.is_some()
            && spin_after_read_us.is_some()
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
        let loopback = || vec![FabricSpec::Udp(([127, 0, 0, 1], 0).into())];
        let fabric = self.fabric.unwrap_or_else(loopback);
        let advertise = self.advertise.unwrap_or_default();
        fabric::check(&fabric, &advertise)?;
        let (spin, us) = (Spin::default(), Duration::from_micros);
        let spin = Spin {
            usual: self.spin_us.map_or(spin.usual, us),
            after_read: self.spin_after_read_us.map_or(spin.after_read, us),
        };
        Ok(Common {
            name,
            manager,
            fabric,
            advertise,
            mtu: self.mtu,
            rings: self.rings.unwrap_or(true),
            segmentation: self.segmentation.unwrap_or(true),
            spin,
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
# Where frames travel: "udp:ADDRESS:PORT" or "eth:INTERFACE[.VLAN]"; a list makes several paths.
fabric = ["udp:0.0.0.0:7790", "udp:0.0.0.0:7791"]
# Where other proxies reach this one, if not at the addresses bound; one for each udp port.
advertise = ["192.0.2.1:7790", "198.51.100.1:7791"]
# Largest frame in bytes; what the interface takes, at most 9000, if not given.
mtu = 1500
# Whether eth ports use packet rings, if the kernel has them.
rings = true
# Whether udp ports have frames segmented, if the kernel can: several of one length are then one
# message for it.
segmentation = true
# How long the data plane spins before it sleeps, in microseconds.
spin-us = 50
# The same after a processor has read a device's register, if longer.
spin-after-read-us = 200
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
