//! The ports of a proxy: where frames travel, one port for each path.

use crate::config::Common;
use proxy_core::control::PathAddress;
use proxy_core::limits::{MAX_FRAME, MAX_PATHS, MIN_FRAME};
use proxy_net::{Address, NetError, Port, RawOptions, RawPort, UdpOptions, UdpPort};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::str::FromStr;

/// The open ports of a proxy. Path *n* to a peer begins at the *n*-th and ends at the *n*-th of
/// the peer's.
pub struct Fabric {
    /// The ports, 1 to [`MAX_PATHS`].
    pub ports: Vec<Box<dyn Port>>,
    /// Where others reach each of them.
    pub addresses: Vec<Address>,
    /// Largest frame in bytes that all of them carry.
    pub mtu: usize,
}

impl Fabric {
    /// Opens the ports that the configuration names.
    ///
    /// # Errors
    ///
    /// A text that names the port, what the network said, and what to do about it.
    pub fn open(common: &Common) -> Result<Self, String> {
        let open = |spec: &FabricSpec| {
            spec.open(common).map_err(|error| format!("fabric {spec}: {error}"))
        };
        let ports: Vec<_> = common.fabric.iter().map(open).collect::<Result<_, _>>()?;
        for (spec, port) in common.fabric.iter().zip(&ports) {
            check_mtu(spec, port.mtu())?;
        }
        let mut told = common.advertise.iter().copied();
        let addresses = common.fabric.iter().zip(&ports).map(|(spec, port)| {
            let told = if spec.is_udp() { told.next() } else { None };
            told.map_or_else(|| port.local_address(), Address::Udp)
        });
        let mtu = ports.iter().map(|port| port.mtu()).min().unwrap_or(MAX_FRAME);
        Ok(Self { addresses: addresses.collect(), mtu: mtu.min(MAX_FRAME), ports })
    }

    /// The addresses as they are told to the manager.
    pub fn paths<T: FromIterator<PathAddress>>(&self) -> T {
        self.addresses.iter().map(path_address).collect()
    }
}

/// A link is not made with shorter frames, and the manager's first peer would end the daemon.
fn check_mtu(spec: &FabricSpec, mtu: usize) -> Result<(), String> {
    if mtu >= MIN_FRAME {
        return Ok(());
    }
    Err(format!(
        "fabric {spec}: the MTU of its interface has room for frames of {mtu} bytes, and they have \
         to have at least {MIN_FRAME}: raise that MTU, or name another address or interface"
    ))
}

/// Where frames travel, for a log.
impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Where one port takes frames to.
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

impl FabricSpec {
    fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(_))
    }

    /// Whether it is at all addresses of the machine, so that its own tells others nothing.
    fn is_bound_everywhere(&self) -> bool {
        matches!(self, Self::Udp(address) if address.ip().is_unspecified())
    }

    /// Whether it means the same port as one of others. Any free UDP port is another each time.
    fn is_any_of(&self, others: &[Self]) -> bool {
        !matches!(self, Self::Udp(address) if address.port() == 0) && others.contains(self)
    }
}

impl FromStr for FabricSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("fabric {text:?}: {why}");
        match text.split_once(':') {
            Some(("udp", address)) => address
                .parse()
                .map(Self::Udp)
                .map_err(|_| wrong("after udp: an address and port, such as udp:192.0.2.1:7790")),
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

impl FabricSpec {
    /// Opens the port that frames travel through, as the configuration has it.
    ///
    /// # Errors
    ///
    /// What the network said, with what to do about it.
    fn open(&self, common: &Common) -> Result<Box<dyn Port>, NetError> {
        Ok(match self {
            Self::Udp(bind) => Box::new(UdpPort::open(&UdpOptions {
                frame_size: common.mtu,
                segmentation: common.segmentation,
                ..UdpOptions::new(*bind)
            })?),
            Self::Ethernet { interface, vlan } => {
                let interface = interface.clone();
                Box::new(RawPort::open(&RawOptions {
                    vlan: *vlan,
                    frame_size: common.mtu,
                    ring: common.rings,
                    ..RawOptions::new(interface)
                })?)
            }
        })
    }
}

/// How an address is told to the manager.
pub fn path_address(address: &Address) -> PathAddress {
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
pub fn net_address(address: &PathAddress) -> Address {
    match *address {
        PathAddress::Ethernet { mac, vlan } => Address::Ethernet { mac, vlan },
        PathAddress::Udp4 { ip: [0, 0, 0, 0], port } => Address::Memory(port),
        PathAddress::Udp4 { ip, port } => Address::Udp((ip, port).into()),
        PathAddress::Udp6 { ip, port } => Address::Udp((ip, port).into()),
    }
}

/// As many ports as there may be paths, as many advertised addresses as UDP ports, or none, and each port
/// somewhere that others can send to.
///
/// # Errors
///
/// A text that says which setting is wrong, and what is allowed.
pub fn check(fabric: &[FabricSpec], advertise: &[SocketAddr]) -> Result<(), String> {
    if fabric.is_empty() || fabric.len() > MAX_PATHS {
        return Err(format!("fabric: {} ports named; 1 to {MAX_PATHS} are possible", fabric.len()));
    }
    if let Some(twice) = fabric.iter().enumerate().find(|(n, spec)| spec.is_any_of(&fabric[..*n])) {
        return Err(format!("fabric {}: named twice; each path has a port of its own", twice.1));
    }
    let udp = fabric.iter().filter(|spec| spec.is_udp()).count();
    if !advertise.is_empty() && advertise.len() != udp {
        return Err(format!(
            "advertise: {} addresses for {udp} udp ports; name one for each of them, or none",
            advertise.len()
        ));
    }
    if let Some(wrong) = advertise.iter().find(|address| address.ip().is_unspecified()) {
        return Err(format!(
            "advertise {wrong}: no address that others can send to; name one of this machine's"
        ));
    }
    if let Some(wrong) = advertise.iter().find(|address| address.port() == 0) {
        return Err(format!(
            "advertise {wrong}: no port that others can send to; name the one that leads to this \
             machine's"
        ));
    }
    let everywhere = fabric.iter().find(|spec| spec.is_bound_everywhere());
    if let Some(spec) = everywhere.filter(|_| advertise.is_empty()) {
        return Err(format!(
            "fabric {spec}: bound to every address, of which others have to be told one: give \
             --advertise ADDRESS:PORT, or name here the address that they reach this machine at"
        ));
    }
    Ok(())
}

/// In a configuration file: one text, or a list of them.
///
/// # Errors
///
/// What is wrong with one of them.
pub fn one_or_many<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    struct Texts<T>(PhantomData<T>);

    impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for Texts<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                all.push(text.parse().map_err(de::Error::custom)?);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_any(Texts(PhantomData)).map(Some)
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
    fn a_port_for_each_path_and_an_address_for_each_port() {
        let ports = |texts: &[&str]| -> Vec<FabricSpec> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let address = "192.0.2.1:7790".parse().unwrap();
        assert!(check(&ports(&["eth:a", "eth:b"]), &[]).is_ok());
        assert!(check(&ports(&["udp:127.0.0.1:0", "udp:127.0.0.1:0"]), &[address; 2]).is_ok());
        assert!(check(&[], &[]).unwrap_err().contains("0 ports"));
        assert!(
            check(&ports(&["eth:a", "eth:a"]), &[]).unwrap_err().contains("eth:a: named twice")
        );
        assert!(check(&ports(&["eth:a"; 9]), &[]).unwrap_err().contains("9 ports"));
        let error = check(&ports(&["eth:a", "eth:b"]), &[address]).unwrap_err();
        assert!(error.contains("1 addresses for 0 udp ports"), "{error}");
        // An interface's own address is the one that it has.
        assert!(check(&ports(&["eth:a", "udp:0.0.0.0:7790"]), &[address]).is_ok());
        let error = check(&ports(&["eth:a", "udp:0.0.0.0:7790"]), &[address; 2]).unwrap_err();
        assert!(error.contains("2 addresses for 1 udp ports"), "{error}");
    }

    #[test]
    fn an_interface_with_too_small_an_mtu_is_named() {
        for text in ["udp:192.0.2.1:7790", "eth:enp3s0"] {
            let spec: FabricSpec = text.parse().unwrap();
            assert_eq!(check_mtu(&spec, MIN_FRAME), Ok(()));
            let error = check_mtu(&spec, MIN_FRAME - 1).unwrap_err();
            for said in [text, "511", "at least 512"] {
                assert!(error.contains(said), "{error}");
            }
        }
    }

    #[test]
    fn a_port_at_every_address_says_where_others_reach_it() {
        let ports = |text: &str| -> Vec<FabricSpec> { vec![text.parse().unwrap()] };
        let address: SocketAddr = "192.0.2.1:7790".parse().unwrap();
        for text in ["udp:0.0.0.0:7790", "udp:[::]:7790", "udp:0.0.0.0:0"] {
            let error = check(&ports(text), &[]).unwrap_err();
            assert!(error.contains(text) && error.contains("--advertise"), "{error}");
            assert!(check(&ports(text), &[address]).is_ok(), "{text}");
        }
        // One of several is enough to have a path that never comes up.
        let mut both = ports("eth:a");
        both.extend(ports("udp:0.0.0.0:7790"));
        assert!(check(&both, &[]).unwrap_err().contains("udp:0.0.0.0:7790"));
        for nowhere in ["0.0.0.0:7790", "[::]:7790", "192.0.2.1:0"] {
            let error = check(&ports("udp:192.0.2.1:0"), &[nowhere.parse().unwrap()]).unwrap_err();
            assert!(error.contains(nowhere), "{error}");
        }
    }
}
