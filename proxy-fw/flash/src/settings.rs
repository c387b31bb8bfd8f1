//! What of a card's settings can be written and read, but used by nobody: the card itself takes it,
//! and is then never seen by the manager.

use std::fmt;
use std::net::Ipv4Addr;

use card_image::Role;
use soc::manage::Addressing;
use soc::settings::{Settings, most_places};

/// A setting that nobody can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Its key.
    pub key: &'static str,
    /// Why.
    pub why: String,
    /// What to do, where it is more than giving it another value.
    pub advice: Option<&'static str>,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for Unusable {}

/// Looks for what nobody can use.
///
/// # Errors
///
/// The first such setting.
pub fn check(settings: &Settings) -> Result<(), Unusable> {
    let wrong = |key, why: String| Err(Unusable { key, why, advice: None });
    let name = &settings.name;
    if !is_node_name(name) {
        let why = format!(
            "{name:?} is no node's name, and the manager refuses it: 1 to 64 letters, digits, `.`, `_` \
             and `-`, a letter or digit first"
        );
        return wrong("name", why);
    }
    let (manager, port) = settings.manager;
    if let Some(what) = no_station(manager.into()) {
        let why = format!("{} is {what}, not a manager's address", Ipv4Addr::from(manager));
        return wrong("manager", why);
    }
    if port == 0 {
        return wrong(
            "manager",
            "nobody listens at port 0; the manager's is 7781 if nothing else was said".to_owned(),
        );
    }
    match settings.addressing {
        Addressing::Dhcp => check_no_gateway(settings.stray_gateway.map(Ipv4Addr::from)),
        Addressing::Fixed { address, prefix, gateway } => {
            let subnet = Subnet { address: address.into(), prefix };
            check_fixed(&subnet, gateway.map(Ipv4Addr::from), manager.into())
        }
    }
}

/// Looks whether a card with an image for this role can have as many places.
///
/// # Errors
///
/// When it has no room for them: it would not start.
pub fn check_places(places: u8, role: Role) -> Result<(), Unusable> {
    let places_are = match role {
        Role::Box => "slots",
        Role::Host => "ports",
        // It does not say which they are.
        Role::Any => return Ok(()),
    };
    let Some(most) = most_places(role).filter(|most| usize::from(places) > *most) else {
        return Ok(());
    };
    let why = format!(
        "a {role} has at most {most} {places_are}, not {places}, and would not start with them"
    );
    let advice = "give at most as many: dxpu-flash config set places=NUMBER";
    Err(Unusable { key: "places", why, advice: Some(advice) })
}

fn check_no_gateway(gateway: Option<Ipv4Addr>) -> Result<(), Unusable> {
    let Some(gateway) = gateway else { return Ok(()) };
    let why =
        format!("{gateway} would not be used: DHCP gives the card its gateway with its address");
    let advice = "for a fixed address: dxpu-flash config set address=ADDRESS/PREFIX; with DHCP take it \
                  away: dxpu-flash config set gateway=";
    Err(Unusable { key: "gateway", why, advice: Some(advice) })
}

/// A card's own address, and its network.
struct Subnet {
    address: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.mask() == 0
    }

    /// What an address in it is that no station has. Of two addresses or one each is a station's
    /// (RFC 3021).
    fn no_station(&self, address: Ipv4Addr) -> Option<String> {
        if self.prefix > 30 || !self.has(address) {
            return None;
        }
        let what = match address.to_bits() & !self.mask() {
            0 => "network",
            rest if rest == !self.mask() => "broadcast",
            _ => return None,
        };
        Some(format!("{address} is the {what} address of the subnet {self}"))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = Ipv4Addr::from_bits(self.address.to_bits() & self.mask());
        write!(f, "{network}/{}", self.prefix)
    }
}

fn check_fixed(
    subnet: &Subnet,
    gateway: Option<Ipv4Addr>,
    manager: Ipv4Addr,
) -> Result<(), Unusable> {
    let wrong = |key, why: String| Err(Unusable { key, why, advice: None });
    let address = subnet.address;
    for (key, station, of) in [("address", Some(address), "card"), ("gateway", gateway, "gateway")]
    {
        if let Some((station, what)) = station.and_then(|it| Some((it, no_station(it)?))) {
            return wrong(key, format!("{station} is {what}, not an address for a {of}"));
        }
    }
    for (key, station) in
        [("address", Some(address)), ("gateway", gateway), ("manager", Some(manager))]
    {
        if let Some(what) = station.and_then(|station| subnet.no_station(station)) {
            return wrong(key, format!("{what}, which is nobody's own"));
        }
    }
    if manager == address {
        return wrong("manager", format!("{manager} is the card's own address"));
    }
    let Some(gateway) = gateway else { return check_reaches(subnet, manager) };
    if !subnet.has(gateway) {
        let why = format!(
            "{gateway} is not in the subnet {subnet} of the card's address {address}, so the card \
             cannot reach it"
        );
        return wrong("gateway", why);
    }
    if gateway == address {
        return wrong("gateway", format!("{gateway} is the card's own address"));
    }
    Ok(())
}

/// Whether a card without a gateway reaches its manager.
fn check_reaches(subnet: &Subnet, manager: Ipv4Addr) -> Result<(), Unusable> {
    if subnet.has(manager) {
        return Ok(());
    }
    let why = format!(
        "without one the card does not reach its manager {manager}, which is not in its subnet {subnet}"
    );
    let advice = "give the router in that subnet: dxpu-flash config set gateway=ADDRESS; or is it \
                  `address`, its prefix, or `manager` that is wrong?";
    Err(Unusable { key: "gateway", why, advice: Some(advice) })
}

/// Whether it can be the name of a node: what the manager and the daemons take (`NodeName` of
/// `manager-client`).
fn is_node_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
}

/// What an address is that no station in a network has.
fn no_station(address: Ipv4Addr) -> Option<&'static str> {
    match address {
        address if address.is_unspecified() => Some("no address at all"),
        address if address.is_loopback() => Some("every computer's own"),
        address if address.is_broadcast() => Some("everybody's"),
        address if address.is_multicast() => Some("a group's"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager_client::types::names::NodeName;
    use proptest::prelude::*;

    /// The key that is wrong, and why.
    fn wrong(name: &str, manager: &str, more: &str) -> Option<(&'static str, String)> {
        let text = format!("name = {name}\nmanager = {manager}\n{more}");
        let settings: Settings = text.parse().unwrap();
        check(&settings).err().map(|unusable| (unusable.key, unusable.why))
    }

    #[test]
    fn what_can_be_used_is_taken() {
        for more in [
            "",
            "address = dhcp",
            "address = 10.0.0.20/24\ngateway = 10.0.0.1",
            "address = 10.0.0.20/0\ngateway = 192.168.0.1",
            "address = 192.168.7.20/24",
            // The ends of two addresses are stations, and those of another network may be.
            "address = 192.168.7.0/31",
            "address = 10.0.0.20/31\ngateway = 10.0.0.21",
        ] {
            assert_eq!(wrong("box-1.a_B", "192.168.7.1:7781", more), None, "{more}");
        }
        let gateway = "address = 10.0.0.20/24\ngateway = 10.0.0.1";
        assert_eq!(wrong("a", "192.168.7.255:7781", gateway), None);
    }

    #[test]
    fn what_no_station_has_is_nobodys() {
        let good = "10.0.0.1:7781";
        for (address, manager, gateway, key, what) in [
            ("10.0.0.0/24", good, "10.0.0.2", "address", "10.0.0.0 is the network address of"),
            ("10.0.0.255/24", good, "10.0.0.2", "address", "10.0.0.255 is the broadcast address"),
            ("10.0.0.2/30", good, "10.0.0.3", "gateway", "10.0.0.3 is the broadcast address"),
            (
                "10.0.0.2/30",
                good,
                "10.0.0.0",
                "gateway",
                "the network address of the subnet 10.0.0.0/30",
            ),
            ("10.0.1.2/23", "10.0.1.255:7781", "10.0.0.1", "manager", "the broadcast address"),
        ] {
            let more = format!("address = {address}\ngateway = {gateway}");
            let (found, told) = wrong("a", manager, &more).expect(what);
            assert!(found == key && told.contains(what), "{found}: {told}");
        }
    }

    #[test]
    fn a_manager_that_is_never_reached_is_told() {
        for (address, manager, key, why) in [
            (
                "10.0.0.20/24",
                "192.168.7.1:7781",
                "gateway",
                "does not reach its manager 192.168.7.1",
            ),
            ("10.0.0.20/32", "10.0.0.1:7781", "gateway", "not in its subnet 10.0.0.20/32"),
            ("10.0.0.20/24", "10.0.0.20:7781", "manager", "10.0.0.20 is the card's own address"),
        ] {
            let (found, told) = wrong("a", manager, &format!("address = {address}")).expect(why);
            assert!(found == key && told.contains(why), "{found}: {told}");
        }
    }

    #[test]
    fn what_nobody_can_use_is_named_with_its_reason() {
        let good = "10.0.0.1:7781";
        let fixed = |gateway| format!("address = 10.0.0.20/24\ngateway = {gateway}");
        for (name, manager, more, key, why) in [
            ("a b", good, "", "name", "\"a b\" is no node's name"),
            ("-\u{fc}", good, "", "name", "letter or digit first"),
            ("a", "10.0.0.1:0", "", "manager", "port 0"),
            ("a", "0.0.0.0:7781", "", "manager", "0.0.0.0 is no address at all"),
            ("a", "127.0.0.1:7781", "", "manager", "every computer's own"),
            ("a", "255.255.255.255:7781", "", "manager", "everybody's"),
            ("a", "224.0.0.1:7781", "", "manager", "a group's"),
            ("a", good, "address = 0.0.0.0/24", "address", "no address at all"),
            ("a", good, "address = 192.0.0.5/2\ngateway = 224.0.0.1", "gateway", "is a group's"),
            (
                "a",
                good,
                "address = 10.0.0.5/0\ngateway = 127.0.0.1",
                "gateway",
                "is every computer's",
            ),
            ("a", good, &fixed("255.255.255.255"), "gateway", "255.255.255.255 is everybody's"),
            ("a", good, &fixed("10.0.1.1"), "gateway", "not in the subnet 10.0.0.0/24"),
            ("a", good, &fixed("10.0.0.20"), "gateway", "the card's own"),
            ("a", good, "gateway = 10.0.0.1", "gateway", "10.0.0.1 would not be used: DHCP"),
            ("a", good, "address = dhcp\ngateway = 10.0.0.1", "gateway", "would not be used"),
        ] {
            let (found, told) = wrong(name, manager, more).expect(why);
            assert!(found == key && told.contains(why), "{found}: {told}");
        }
    }

    #[test]
    fn a_box_has_fewer_places_than_a_host() {
        for (role, most) in [(Role::Box, 16), (Role::Host, 32)] {
            assert_eq!(check_places(most, role), Ok(()));
            let unusable = check_places(most + 1, role).unwrap_err();
            assert!(
                unusable.to_string().starts_with(&format!("places: a {role} has at most {most}"))
            );
            assert!(unusable.advice.unwrap().contains("config set places="), "{unusable:?}");
        }
    }

    proptest! {
        /// One rule for a node's name: the manager's.
        #[test]
        fn a_name_is_what_the_manager_takes(name in "[A-Za-z0-9._ü -]{0,70}") {
            prop_assert_eq!(is_node_name(&name), NodeName::new(&*name).is_ok());
        }
    }
}
