//! What happens to a host that its user wants to know.

use serde::Serialize;
use std::fmt;
use tlp_codec::ids::Bdf;

/// Something that the host's user wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HostEvent {
    /// A function was found and set up.
    DeviceAdded {
        /// The port that it is behind; none for what is on the root port's link.
        #[serde(serialize_with = "crate::report::optional_text")]
        port: Option<Bdf>,
        /// Where it is.
        #[serde(serialize_with = "crate::report::text")]
        bdf: Bdf,
        /// Vendor ID.
        vendor: u16,
        /// Device ID.
        device: u16,
        /// The driver that was bound, if any.
        driver: Option<&'static str>,
    },
    /// A function is not there any more.
    DeviceRemoved {
        /// The port that it was behind.
        #[serde(serialize_with = "crate::report::optional_text")]
        port: Option<Bdf>,
        /// Where it was.
        #[serde(serialize_with = "crate::report::text")]
        bdf: Bdf,
        /// Vendor ID.
        vendor: u16,
        /// Device ID.
        device: u16,
        /// Whether it went without a word.
        surprise: bool,
    },
    /// An error message came from below.
    ErrorMessage {
        /// Who sent it.
        #[serde(serialize_with = "crate::report::text")]
        requester: Bdf,
        /// `correctable`, `non-fatal` or `fatal`.
        severity: &'static str,
        /// The sender's Advanced Error Reporting status of that kind, which was cleared; none
        /// when it has no such capability or could not be read.
        status: Option<u32>,
    },
    /// Something does not work.
    Error {
        /// Where.
        #[serde(serialize_with = "crate::report::text")]
        bdf: Bdf,
        /// What, for people.
        reason: String,
    },
}

impl HostEvent {
    /// Whether something is not as it should be.
    pub const fn is_trouble(&self) -> bool {
        match self {
            Self::DeviceAdded { .. } | Self::DeviceRemoved { .. } => false,
            Self::ErrorMessage { .. } | Self::Error { .. } => true,
        }
    }
}

/// One line for people.
impl fmt::Display for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behind = |port: &Option<Bdf>| match port {
            Some(port) => format!("port {port}"),
            None => "the root port".into(),
        };
        match self {
            Self::DeviceAdded { port, bdf, vendor, device, driver } => {
                let port = behind(port);
                write!(f, "{bdf} was added behind {port}: {vendor:04x}:{device:04x}, ")?;
                match driver {
                    Some(driver) => write!(f, "driver {driver}"),
                    None => write!(f, "no driver"),
                }
            }
            Self::DeviceRemoved { port, bdf, vendor, device, surprise } => {
                let port = behind(port);
                write!(f, "{bdf} was removed from {port}: {vendor:04x}:{device:04x}")?;
                if *surprise { write!(f, ", by surprise") } else { Ok(()) }
            }
            Self::ErrorMessage { requester, severity, status } => {
                write!(f, "{requester} reports a {severity} error")?;
                match status {
                    Some(status) => write!(f, ", error status {status:#010x}"),
                    None => write!(f, ", without an error status"),
                }
            }
            Self::Error { bdf, reason } => {
                // What went wrong with an access to a function names it already.
                let own = bdf.to_string();
                if reason.contains(&own) {
                    f.write_str(reason)
                } else {
                    write!(f, "{own}: {reason}")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bdf(bits: u16) -> Bdf {
        Bdf::from_bits(bits)
    }

    #[test]
    fn an_event_is_one_line_that_names_its_function_once() {
        let (port, bdf) = (Some(bdf(0x0200)), bdf(0x0300));
        let added = HostEvent::DeviceAdded {
            port,
            bdf,
            vendor: 0x1b36,
            device: 0xd0ae,
            driver: Some("nvme"),
        };
        assert_eq!(
            added.to_string(),
            "03:00.0 was added behind port 02:00.0: 1b36:d0ae, driver nvme"
        );
        let removed =
            HostEvent::DeviceRemoved { port, bdf, vendor: 0x1b36, device: 0xd0ae, surprise: true };
        let line = removed.to_string();
        assert_eq!(line, "03:00.0 was removed from port 02:00.0: 1b36:d0ae, by surprise");
        let message =
            HostEvent::ErrorMessage { requester: bdf, severity: "fatal", status: Some(0x10) };
        assert_eq!(message.to_string(), "03:00.0 reports a fatal error, error status 0x00000010");
        for reason in ["no answer", "read of 03:00.0 failed"] {
            let error = HostEvent::Error { bdf, reason: reason.into() };
            assert_eq!(error.to_string().matches("03:00.0").count(), 1, "{error}");
            assert!(error.is_trouble() && !added.is_trouble());
        }
    }
}
