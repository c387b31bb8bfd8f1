//! Debug probes: which one is meant ([`ProbeName`]), and opening it.

use std::fmt;
use std::str::FromStr;

use probe_rs::probe::list::{Accessibility, Lister};
use probe_rs::probe::{DebugProbeError, DebugProbeSelector, Probe, WireProtocol};

use remote_bitbang::RemoteBitbang;

use crate::failure::{Failure, Kind, Outcome};

/// What probes over TCP begin with.
const REMOTE: &str = "remote-bitbang:";

/// A probe by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeName {
    /// One on USB: `VID:PID` or `VID:PID:SERIAL`.
    Usb(DebugProbeSelector),
    /// One over TCP: `remote-bitbang:HOST:PORT`.
    Remote(String),
}

/// A text that names no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a probe is VID:PID or VID:PID:SERIAL in hexadecimal, as `dxpu-flash list` prints it, or remote-bitbang:HOST:PORT"
)]
pub struct BadProbeName;

impl FromStr for ProbeName {
    type Err = BadProbeName;

    fn from_str(text: &str) -> Result<Self, BadProbeName> {
        if let Some(address) = text.strip_prefix(REMOTE) {
            let (host, port) = address.rsplit_once(':').ok_or(BadProbeName)?;
            let port: u16 = port.parse().map_err(|_| BadProbeName)?;
            return match host.is_empty() || port == 0 {
                true => Err(BadProbeName),
                false => Ok(Self::Remote(address.to_owned())),
            };
        }
        text.parse().map(Self::Usb).map_err(|_| BadProbeName)
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usb(selector) => selector.fmt(f),
            Self::Remote(address) => write!(f, "{REMOTE}{address}"),
        }
    }
}

/// A probe on USB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: ProbeName,
    /// What it is.
    pub what: String,
    /// Whether this user may open it.
    pub accessible: bool,
}

/// The probes on this computer's USB.
#[must_use]
pub fn on_usb() -> Vec<Found> {
    listed(None)
}

/// Those of them that a name may mean: one without a serial number fits several.
#[must_use]
pub fn that_fit(selector: &DebugProbeSelector) -> Vec<Found> {
    let found = listed(Some(selector));
    if !found.is_empty() || selector.interface.is_none() {
        return found;
    }
    // A channel of an FTDI chip can be named, and is not listed.
    let mut found = listed(Some(&DebugProbeSelector { interface: None, ..selector.clone() }));
    for found in &mut found {
        if let ProbeName::Usb(name) = &mut found.name {
            name.interface = selector.interface;
        }
    }
    found
}

fn listed(selector: Option<&DebugProbeSelector>) -> Vec<Found> {
    let items = Lister::new().list_with_access(selector).into_iter();
    items
        .map(|item| Found {
            name: ProbeName::Usb(DebugProbeSelector::from(&item.info)),
            what: format!("{} ({})", item.info.identifier, item.info.probe_type()),
            accessible: item.accessibility == Accessibility::Accessible,
        })
        .collect()
}

/// Opens a probe for JTAG. Without a name, the only one on USB.
///
/// # Errors
///
/// When there is none, more than one to choose from, or it cannot be opened.
pub fn open(name: Option<&ProbeName>) -> Outcome<(ProbeName, Probe)> {
    let name = match name {
        Some(name) => name.clone(),
        None => the_only_one(on_usb())?,
    };
    let mut probe = match &name {
        ProbeName::Remote(address) => Probe::new(connect(address)?),
        ProbeName::Usb(selector) => {
            // Of several that fit, probe-rs takes any: what is then written goes to any card.
            fits_one(&name, &that_fit(selector))?;
            Lister::new()
                .open(selector.clone())
                .map_err(|error| cannot_open(&name, that_fit(selector).first(), &error))?
        }
    };
    probe.select_protocol(WireProtocol::Jtag).map_err(|error| {
        Failure::new(Kind::Probe, format!("the probe {name} does not speak JTAG: {}", told(&error)))
            .check("use a probe with JTAG; ST-Link and others that only have SWD do not work")
    })?;
    Ok((name, probe))
}

fn the_only_one(mut found: Vec<Found>) -> Outcome<ProbeName> {
    match found.len() {
        1 => Ok(found.remove(0).name),
        0 => Err(none_connected()),
        several => {
            let what = format!("{several} probes are connected: say which one with --probe");
            Err(choose_among(&what, &found))
        }
    }
}

/// Whether a name means one probe at most, of those that it fits.
fn fits_one(name: &ProbeName, found: &[Found]) -> Outcome<()> {
    let Some((first, others)) = found.split_first() else { return Ok(()) };
    if others.iter().all(|other| is_one_device(&first.name, &other.name)) {
        return Ok(());
    }
    let what = format!("{} probes are connected that {name} may mean: say which one", found.len());
    Err(choose_among(&what, found))
}

/// Whether two names are surely of one device: it is listed once for each of its interfaces.
fn is_one_device(one: &ProbeName, other: &ProbeName) -> bool {
    let (ProbeName::Usb(one), ProbeName::Usb(other)) = (one, other) else { return one == other };
    let id = |of: &DebugProbeSelector| (of.vendor_id, of.product_id);
    let has_serial = one.serial_number.as_ref().is_some_and(|serial| !serial.is_empty());
    has_serial && one.serial_number == other.serial_number && id(one) == id(other)
}

/// That one of several is to be named.
fn choose_among(what: &str, found: &[Found]) -> Failure {
    let mut names: Vec<String> = found.iter().map(|found| found.name.to_string()).collect();
    names.sort();
    names.dedup();
    let are_apart = names.len() == found.len();
    let failure = Failure::new(Kind::Input, what);
    let failure =
        names.into_iter().fold(failure, |failure, name| failure.check(format!("--probe {name}")));
    match are_apart {
        true => failure,
        false => failure.check("of those with one name in common, unplug all but the one meant"),
    }
}

/// That there is no probe.
#[must_use]
pub fn none_connected() -> Failure {
    Failure::new(Kind::Probe, "no probe is connected to this computer").checks(&[
        "is the probe's USB cable plugged in at both ends, and its light on?",
        "does `lsusb` show it? If not, try another cable or port: some cables only charge",
        "for the simulated card say --probe remote-bitbang:HOST:PORT",
    ])
}

fn connect(address: &str) -> Outcome<RemoteBitbang> {
    RemoteBitbang::connect(address).map_err(|error| {
        Failure::new(Kind::Probe, format!("nobody answers at {address}: {error}")).checks(&[
            "is the simulated card running? `dxpu-sim-card` prints its probe's address",
            "is the port the one of its probe (--bitbang), not of its console?",
        ])
    })
}

fn cannot_open(name: &ProbeName, there: Option<&Found>, error: &DebugProbeError) -> Failure {
    let failure =
        Failure::new(Kind::Probe, format!("the probe {name} cannot be opened: {}", told(error)));
    match there {
        Some(found) if !found.accessible => failure.check(
            "this user may not use it: install probe-rs's udev rules (https://probe.rs/docs/getting-started/probe-setup), \
             plug it in again, and log in again if that asks for a group",
        ),
        Some(_) => failure.checks(&[
            "does another program have it open: OpenOCD, a debugger, the vendor's tool?",
            "unplug it and plug it in again",
        ]),
        None => failure.checks(&[
            "it is not connected: `dxpu-flash list` shows what is",
            "is its USB cable plugged in at both ends?",
        ]),
    }
}

/// An error and what it came from, in a line.
#[must_use]
pub fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_and_printed() {
        for text in [
            "remote-bitbang:127.0.0.1:3335",
            "remote-bitbang:[::1]:1",
            "0403:6010",
            "0403:6010:FT1",
        ] {
            assert_eq!(text.parse::<ProbeName>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "remote-bitbang:",
            "remote-bitbang:host",
            "remote-bitbang::1",
            "remote-bitbang:h:0",
            "remote-bitbang:h:99999",
            "0403",
            "g:h",
            "usb",
        ] {
            assert_eq!(wrong.parse::<ProbeName>(), Err(BadProbeName), "{wrong:?}");
        }
    }

    fn found(name: &str) -> Found {
        Found { name: name.parse().unwrap(), what: String::new(), accessible: true }
    }

    #[test]
    fn the_only_probe_is_taken() {
        assert_eq!(the_only_one(vec![found("1:2")]).unwrap(), found("1:2").name);
        assert_eq!(the_only_one(Vec::new()).unwrap_err().kind, Kind::Probe);
        let two = the_only_one(vec![found("1:2"), found("3:4:S")]).unwrap_err();
        assert_eq!(two.check, ["--probe 0001:0002", "--probe 0003:0004:S"]);
    }

    #[test]
    fn a_name_that_fits_several_opens_none() {
        let name = "0403:6010".parse().unwrap();
        let fits = |names: &[&str]| {
            fits_one(&name, &names.iter().map(|name| found(name)).collect::<Vec<_>>())
        };
        // One that is not listed may still be there, which opening it shows.
        assert!(fits(&[]).is_ok() && fits(&["0403:6010:FT1"]).is_ok());
        let two = fits(&["0403:6010:FT1", "0403:6010:FT2"]).unwrap_err();
        assert_eq!(two.kind, Kind::Input);
        assert!(two.what.contains("2 probes") && two.what.contains("0403:6010"), "{two}");
        assert_eq!(two.check, ["--probe 0403:6010:FT1", "--probe 0403:6010:FT2"]);
        // Two interfaces of one device are one probe; without serial numbers nobody knows.
        assert!(fits(&["0403:6010-0:FT1", "0403:6010-1:FT1"]).is_ok());
        let alike = fits(&["0403:6010", "0403:6010"]).unwrap_err();
        assert_eq!(alike.check[0], "--probe 0403:6010");
        assert!(alike.check[1].contains("unplug all but the one"), "{alike:?}");
    }

    #[test]
    fn a_probe_that_may_not_be_opened_is_told_from_one_that_is_not_there() {
        let name = "0403:6010".parse().unwrap();
        let error = DebugProbeError::Timeout;
        let advice = |there: Option<&Found>| cannot_open(&name, there, &error).check[0].clone();
        let there = found("0403:6010:FT1");
        assert!(advice(Some(&Found { accessible: false, ..there.clone() })).contains("udev"));
        assert!(advice(Some(&there)).contains("another program"));
        assert!(advice(None).contains("not connected"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_not(text in "(remote-bitbang:)?[0-9a-f:.\\[\\]x-]{0,20}") {
            if let Ok(name) = text.parse::<ProbeName>() {
                prop_assert_eq!(name.to_string().parse::<ProbeName>(), Ok(name));
            }
        }
    }
}
