//! What the server is told: from the command line and environment, else from a TOML file, else
//! the defaults here.

use crate::api::MAX_WITHIN_MS;
use crate::health::HealthConfig;
use crate::records::Retention;
use crate::spares::SparesConfig;
use crate::types::EraseRule;
use proxy_core::control::SILENCE_BOUND;
use rustix::fs::{Access, access};
use serde::Deserialize;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the REST API listens unless told otherwise. Only this machine: the API asks nobody who
/// they are.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7780";
/// Where proxies dial in unless told otherwise.
pub const DEFAULT_CONTROL: &str = "0.0.0.0:7781";
/// Connections to the REST API at a time, if the file does not say.
const DEFAULT_CONNECTIONS: NonZeroU16 = NonZeroU16::new(1024).expect("not 0");

/// The longest of any other bound or interval, milliseconds: 30 days.
pub const MAX_TIME_MS: u64 = 30 * 24 * 3_600_000;

/// The store's file unless told otherwise.
pub const DEFAULT_STORE: &str = "dxpu-manager.redb";

/// Seconds that a host without a root complex keeps what it has, unless told otherwise.
pub const DEFAULT_HOST_GRACE_S: u32 = 60;

/// Bounds and intervals. But for `host_grace`, each has a default and a name in the file's `[timing]`, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `http_ms`: the head of a request to the REST API comes within this, and then its body. A
    /// connection without a request is closed after it.
    pub http_bound: Duration,
    /// `hello_ms`: a new connection says Hello within this.
    pub hello_bound: Duration,
    /// `request_ms`: a proxy answers a request that it can answer at once within this.
    pub request_bound: Duration,
    /// `unbind_ms`: a proxy takes a device back within this, besides the time that the operating
    /// system is given.
    pub unbind_bound: Duration,
    /// `ping_ms`: a proxy is pinged so often.
    pub ping_interval: Duration,
    /// `silence_ms`: a proxy of which nothing whole came for so long is gone.
    pub silence_bound: Duration,
    /// `doubt_ms`: as `silence_ms`, when another connection claims its name.
    pub doubt_bound: Duration,
    /// `reconcile_ms`: tables are compared so often, besides whenever there is a reason.
    pub reconcile_interval: Duration,
    /// `operation_ms`: an operation ends within this, besides the time that the operating system
    /// is given.
    pub operation_bound: Duration,
    /// `enumeration_ms`: the operating system has so long to enable a plugged device; then the
    /// allocation has failed.
    pub enumeration_bound: Duration,
    /// `orderly_ms`: the operating system has so long to let a device go, if the request does not
    /// say. It takes at least 5 s with an attention button (PCI Express hot-plug's blink time).
    pub orderly_bound: Duration,
    /// `lease_warning_ms`: a borrower is told so long before its lease ends.
    pub lease_warning: Duration,
    /// `lease_grace_ms`: the operating system has so long to let go of what a lease is over of.
    pub lease_grace: Duration,
    /// `[health]`: when something is unhealthy, and what follows.
    pub health: HealthConfig,
    /// `[spares]`: how many spares are needed, and kept.
    pub spares: SparesConfig,
    /// How long a host without a root complex keeps what it has; nothing: for ever. Set in seconds
    /// and not with the others: `host_grace_s`.
    pub host_grace: Option<Duration>,
    /// Connections to the REST API at a time; a quarter of them can be streams of events. Not
    /// among the bounds: `connections`.
    pub connections: NonZeroU16,
    /// How released devices are erased: the first rule that is for a device. Set in tables
    /// `[[erase]]`.
    pub erase: Vec<EraseRule>,
    /// `[keep]`: how long operations that have ended are kept.
    pub keep: Retention,
}

impl Default for Settings {
    fn default() -> Self {
        Timing::default().settings(DEFAULT_HOST_GRACE_S)
    }
}

macro_rules! timing {
    ($($field:ident => $setting:ident = $default:literal,)+) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Timing {
            $($field: Option<u64>,)+
        }

        impl Timing {
            fn check(&self, path: &Path) -> Result<(), ConfigError> {
                let wrong = |reason| Err(ConfigError::Wrong { path: path.to_owned(), reason });
                $(if let Some(ms) = self.$field {
                    let (key, most) = (stringify!($field), most_of(stringify!($field)));
                    if ms == 0 {
                        return wrong(format!("timing.{key} is 0; it has to be at least 1"));
                    }
                    if ms > most {
                        return wrong(format!("timing.{key} is {ms}; it has to be at most {most}"));
                    }
                })+
                let Settings { ping_interval, silence_bound, .. } = self.settings(0);
                if silence_bound <= ping_interval {
                    return wrong(format!(
                        "timing.silence_ms is {}; it has to be more than timing.ping_ms, which is {}: \
                         every proxy would be gone between two pings",
                        silence_bound.as_millis(),
                        ping_interval.as_millis()
                    ));
                }
                if ping_interval > SILENCE_BOUND / 2 {
                    return wrong(format!(
                        "timing.ping_ms is {}; it has to be at most {}: a proxy takes its manager for \
                         gone when it hears nothing for {} s",
                        ping_interval.as_millis(),
                        (SILENCE_BOUND / 2).as_millis(),
                        SILENCE_BOUND.as_secs()
                    ));
                }
                Ok(())
            }

            fn settings(&self, host_grace_s: u32) -> Settings {
                let host_grace = Duration::from_secs(host_grace_s.into());
                Settings {
                    $($setting: Duration::from_millis(self.$field.unwrap_or($default)),)+
                    health: HealthConfig::default(),
                    spares: SparesConfig::default(),
                    host_grace: (!host_grace.is_zero()).then_some(host_grace),
                    connections: DEFAULT_CONNECTIONS,
                    erase: Vec::new(),
                    keep: Retention::default(),
                }
            }
        }
    };
}

/// The longest of a bound or interval, milliseconds. What an operating system is given is told to the
/// host in a smaller number, and no request can give it more either.
fn most_of(key: &str) -> u64 {
    match key {
        "orderly_ms" | "lease_grace_ms" => MAX_WITHIN_MS.into(),
        _ => MAX_TIME_MS,
    }
}

timing! {
    http_ms => http_bound = 10_000,
    hello_ms => hello_bound = 5_000,
    request_ms => request_bound = 10_000,
    unbind_ms => unbind_bound = 30_000,
    ping_ms => ping_interval = 5_000,
    silence_ms => silence_bound = 15_000,
    doubt_ms => doubt_bound = 2_000,
    reconcile_ms => reconcile_interval = 30_000,
    operation_ms => operation_bound = 30_000,
    enumeration_ms => enumeration_bound = 10_000,
    orderly_ms => orderly_bound = 15_000,
    lease_warning_ms => lease_warning = 60_000,
    lease_grace_ms => lease_grace = 15_000,
}

/// The file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<SocketAddr>,
    control: Option<SocketAddr>,
    store: Option<PathBuf>,
    ready_file: Option<PathBuf>,
    host_grace_s: Option<u32>,
    connections: Option<NonZeroU16>,
    log: Option<String>,
    log_format: Option<LogFormat>,
    #[serde(default)]
    erase: Vec<EraseRule>,
    #[serde(default)]
    timing: Timing,
    #[serde(default)]
    health: HealthConfig,
    #[serde(default)]
    spares: SparesConfig,
    #[serde(default)]
    keep: Retention,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What was said on the command line and in the environment.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Where the REST API listens.
    pub listen: Option<SocketAddr>,
    /// Where proxies dial in.
    pub control: Option<SocketAddr>,
    /// The store's file.
    pub store: Option<PathBuf>,
    /// A file to write when everything listens.
    pub ready_file: Option<PathBuf>,
    /// How many seconds a host without a root complex keeps what it has; 0: for ever.
    pub host_grace_s: Option<u32>,
    /// Which log lines.
    pub log: Option<String>,
    /// How they look.
    pub log_format: Option<LogFormat>,
}

/// What is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where the REST API listens.
    pub listen: SocketAddr,
    /// Where proxies dial in.
    pub control: SocketAddr,
    /// The store's file.
    pub store: PathBuf,
    /// A file to write when everything listens.
    pub ready_file: Option<PathBuf>,
    /// Which log lines.
    pub log: String,
    /// How they look.
    pub log_format: LogFormat,
    /// Bounds and intervals.
    pub settings: Settings,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file does not say what it should.
    #[error("the configuration {} is wrong: {reason}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What and where.
        reason: String,
    },
}

impl Config {
    /// Puts together what was said and what the file says.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is wrong.
    pub fn from_said(said: Said) -> Result<Self, ConfigError> {
        let file = match &said.config {
            None => File::default(),
            Some(path) => read(path)?,
        };
        let default = |text: &str| text.parse().expect("the defaults are addresses");
        let host_grace_s = said.host_grace_s.or(file.host_grace_s);
        Ok(Self {
            listen: said.listen.or(file.listen).unwrap_or_else(|| default(DEFAULT_LISTEN)),
            control: said.control.or(file.control).unwrap_or_else(|| default(DEFAULT_CONTROL)),
            store: said.store.or(file.store).unwrap_or_else(|| DEFAULT_STORE.into()),
            ready_file: said.ready_file.or(file.ready_file),
            log: said.log.or(file.log).unwrap_or_else(|| "info".into()),
            log_format: said.log_format.or(file.log_format).unwrap_or_default(),
            settings: Settings {
                connections: file.connections.unwrap_or(DEFAULT_CONNECTIONS),
                erase: file.erase,
                health: file.health,
                spares: file.spares,
                keep: file.keep,
                ..file.timing.settings(host_grace_s.unwrap_or(DEFAULT_HOST_GRACE_S))
            },
        })
    }
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let wrong = |error: toml::de::Error| ConfigError::Wrong {
        path: path.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    };
    let file: File = toml::from_str(&text).map_err(wrong)?;
    file.timing.check(path)?;
    for (index, rule) in file.erase.iter().enumerate() {
        check_erase(rule).map_err(|what| {
            let reason = format!("erase[{index}].{what}");
            ConfigError::Wrong { path: path.to_owned(), reason }
        })?;
    }
    for checked in [file.health.check(), file.spares.check(), file.keep.check()] {
        checked.map_err(|reason| ConfigError::Wrong { path: path.to_owned(), reason })?;
    }
    Ok(file)
}

/// What is wrong with a rule, if anything is.
fn check_erase(rule: &EraseRule) -> Result<(), String> {
    let mut seen = Vec::new();
    for means in &rule.means {
        if seen.contains(means) {
            return Err(format!("means: {means} is there twice"));
        }
        seen.push(*means);
    }
    match &rule.hook {
        None if rule.means.is_empty() => Err("means: name at least one, or a hook".into()),
        Some(_) if !rule.means.is_empty() => Err("hook: a rule has means or a hook".into()),
        Some(hook) if !hook.is_absolute() => {
            Err(format!("hook: {} is no absolute path", hook.display()))
        }
        _ if rule.within_s == 0 => Err("within_s: at least 1".into()),
        _ if rule.class.is_some_and(|class| class > 0xff_ffff) => {
            Err("class: a class code has 24 bits, such as 0x010802".into())
        }
        None => Ok(()),
        Some(hook) => {
            check_program(hook).map_err(|what| format!("hook: {} {what}", hook.display()))
        }
    }
}

/// Why a program cannot be run, and what to do. Else nobody would know before the first release.
fn check_program(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            "does not exist; put the program that erases there, or name another one".to_owned()
        }
        _ => format!("cannot be run: {error}; this user has to reach it"),
    })?;
    if !metadata.is_file() {
        return Err("is no file; name the program that erases".into());
    }
    access(path, Access::EXEC_OK).map_err(|error| {
        format!("cannot be run: {error}; let this user execute it (chmod +x {})", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(text: &str, said: Said) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager.toml");
        std::fs::write(&path, text).unwrap();
        Config::from_said(Said { config: Some(path), ..said })
    }

    #[test]
    fn what_was_said_goes_before_the_file_and_the_file_before_defaults() {
        let file = "listen = \"127.0.0.1:1\"\nstore = \"/a\"\n[timing]\nping_ms = 7\n";
        let said = Said { store: Some("/b".into()), ..Said::default() };
        let config = with_file(file, said).unwrap();
        assert_eq!(config.listen, "127.0.0.1:1".parse().unwrap());
        assert_eq!(config.control, DEFAULT_CONTROL.parse().unwrap());
        assert_eq!(config.store, PathBuf::from("/b"));
        assert_eq!(config.settings.ping_interval, Duration::from_millis(7));
        assert_eq!(config.settings.request_bound, Settings::default().request_bound);
    }

    #[test]
    fn a_host_keeps_what_it_has_for_the_seconds_that_are_set() {
        let grace = |file: &str, host_grace_s: Option<u32>| {
            let config = with_file(file, Said { host_grace_s, ..Said::default() }).unwrap();
            config.settings.host_grace.map(|grace| grace.as_secs())
        };
        assert_eq!(grace("", None), Some(u64::from(DEFAULT_HOST_GRACE_S)));
        assert_eq!(grace("host_grace_s = 7", None), Some(7));
        assert_eq!(grace("host_grace_s = 7", Some(9)), Some(9));
        assert_eq!(grace("host_grace_s = 7", Some(0)), None);
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_name_with_their_range() {
        let all = u64::MAX >> 1; // As high as TOML can say.
        let cases = [
            (
                "[timing]\norderly_ms = 4294967296",
                "timing.orderly_ms is 4294967296;",
                "most 600000",
            ),
            (
                "[timing]\nlease_grace_ms = 600001",
                "timing.lease_grace_ms is 600001;",
                "most 600000",
            ),
            (&*format!("[timing]\nhttp_ms = {all}"), "timing.http_ms is ", "at most 2592000000"),
            (
                "[timing]\nping_ms = 15000",
                "timing.silence_ms is 15000;",
                "timing.ping_ms, which is",
            ),
            ("[timing]\nping_ms = 7501", "timing.ping_ms is 7501;", "at most 7500"),
            ("[health]\nloss_permille = 1001", "health.loss_permille is 1001;", "at most 1000"),
            ("[health]\nloss_permille = 0", "health.loss_permille is 0;", "at least 1"),
            (&*format!("[health]\ncounters_ms = {all}"), "health.counters_ms is ", "2592000000"),
            ("[spares]\nrun_out_ppm = 1000000", "spares.run_out_ppm is 1000000;", "1 to 999999"),
            (
                "[spares.models]\ngpu = { keep = 2 }\nGPU = { keep = 3 }",
                "spares.models.gpu: stands there twice",
                "in small letters and large",
            ),
            ("[spares]\nrepair_hours = 0", "spares.repair_hours is 0;", "1 to 87660"),
            (
                "[spares.models.h100]\nannual_failure_permille = 1000001",
                "spares.models.h100.annual_failure_permille is 1000001;",
                "at most 1000000",
            ),
        ];
        for (text, named, range) in cases {
            let error = with_file(text, Said::default()).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains(range), "{text}: {error}");
        }
        let most = "[timing]\norderly_ms = 600000\nhttp_ms = 2592000000\n[health]\n\
                    loss_permille = 1000\n[spares]\nrepair_hours = 87660\n";
        with_file(most, Said::default()).unwrap();
    }

    #[test]
    fn errors_name_the_file_and_the_place() {
        let error = with_file("lisen = 1", Said::default()).unwrap_err().to_string();
        assert!(error.contains("manager.toml") && error.contains("lisen"), "{error}");
        let error = with_file("[timing]\nping_ms = 0", Said::default()).unwrap_err().to_string();
        assert!(error.contains("timing.ping_ms"), "{error}");
        let said = Said { config: Some("/nowhere/x.toml".into()), ..Said::default() };
        let error = Config::from_said(said).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.toml"), "{error}");
    }
}
