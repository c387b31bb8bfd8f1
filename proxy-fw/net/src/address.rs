//! Where a path ends, and how people write it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where a path ends.
///
/// People write `02:00:5e:00:00:01`, with a VLAN `02:00:5e:00:00:01@100`; `10.0.0.1:4791` or
/// `[fd00::1]:4791`; and `memory:3`. [`fmt::Display`] and [`FromStr`] agree on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Raw Ethernet.
    Ethernet {
        /// MAC address.
        mac: [u8; 6],
        /// 802.1Q VLAN ID, 1 to 4094, if frames are tagged.
        vlan: Option<u16>,
    },
    /// UDP.
    Udp(SocketAddr),
    /// A port of a [`MemorySwitch`](crate::MemorySwitch).
    Memory(u16),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ethernet { mac: [a, b, c, d, e, g], vlan } => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")?;
                vlan.map_or(Ok(()), |vlan| write!(f, "@{vlan}"))
            }
            Address::Udp(address) => address.fmt(f),
            Address::Memory(port) => write!(f, "memory:{port}"),
        }
    }
}

/// Text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no path address: write a MAC address (02:00:5e:00:00:01, with a VLAN \
     02:00:5e:00:00:01@100) or an IP address with a port (10.0.0.1:4791)"
)]
pub struct ParseAddressError(String);

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let parsed = if let Some(port) = text.strip_prefix("memory:") {
            port.parse().ok().map(Address::Memory)
        } else if let Ok(address) = text.parse() {
            Some(Address::Udp(address))
        } else {
            parse_ethernet(text)
        };
        parsed.ok_or_else(|| ParseAddressError(text.to_owned()))
    }
}

fn parse_ethernet(text: &str) -> Option<Address> {
    let (mac, vlan) = match text.split_once('@') {
        Some((mac, vlan)) => (mac, Some(vlan.parse().ok().filter(|vlan| is_vlan(*vlan))?)),
        None => (text, None),
    };
    let mac: pnet::util::MacAddr = mac.parse().ok()?;
    Some(Address::Ethernet { mac: mac.octets(), vlan })
}

/// Whether a VLAN ID names a VLAN (IEEE 802.1Q-2018, table 9-2: 0 and 4095 are reserved).
pub(crate) const fn is_vlan(vlan: u16) -> bool {
    matches!(vlan, 1..=4094)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_kind_is_written_and_read() {
        for (text, address) in [
            ("02:00:5e:00:00:fe", Address::Ethernet { mac: [2, 0, 0x5e, 0, 0, 0xfe], vlan: None }),
            (
                "02:00:5e:00:00:01@100",
                Address::Ethernet { mac: [2, 0, 0x5e, 0, 0, 1], vlan: Some(100) },
            ),
            ("10.0.0.1:4791", Address::Udp(([10, 0, 0, 1], 4791).into())),
            ("[::1]:4791", Address::Udp((std::net::Ipv6Addr::LOCALHOST, 4791).into())),
            ("memory:65535", Address::Memory(65535)),
        ] {
            assert_eq!(address.to_string(), text);
            assert_eq!(text.parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_is_named_in_the_error() {
        for text in
            ["", "eth0", "10.0.0.1", "memory:65536", "02:00:00:00:00", "02:00:00:00:00:01@0"]
        {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_ethernet_address_survives(mac: [u8; 6], vlan in proptest::option::of(1u16..4095)) {
            let address = Address::Ethernet { mac, vlan };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = text.parse::<Address>();
        }
    }
}
