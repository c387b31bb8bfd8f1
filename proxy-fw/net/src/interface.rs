//! Network interfaces of this machine.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use pnet::datalink::{self, NetworkInterface};

use crate::NetError;

/// Finds an interface by name.
///
/// # Errors
///
/// [`NetError::NoSuchInterface`] with the names that exist.
pub(crate) fn by_name(name: &str) -> Result<NetworkInterface, NetError> {
    let mut interfaces = datalink::interfaces();
    if let Some(at) = interfaces.iter().position(|interface| interface.name == name) {
        return Ok(interfaces.swap_remove(at));
    }
    let names: Vec<_> = interfaces.into_iter().map(|interface| interface.name).collect();
    Err(NetError::NoSuchInterface { interface: name.to_owned(), available: names.join(", ") })
}

/// The interfaces that datagrams to and from a local address pass: the one that has it, or, for
/// the unspecified address, all that are up and have an address of that IP version.
pub(crate) fn behind(ip: IpAddr) -> Vec<NetworkInterface> {
    let carries = |interface: &NetworkInterface| {
        interface.ips.iter().any(|network| {
            if ip.is_unspecified() { network.is_ipv4() == ip.is_ipv4() } else { network.ip() == ip }
        })
    };
    let mut interfaces = datalink::interfaces();
    interfaces.retain(|interface| interface.is_up() && carries(interface));
    interfaces
}

/// The largest payload of one frame on the interface, in bytes.
pub(crate) fn mtu(name: &str) -> io::Result<usize> {
    // Any socket will do for asking; this one is bound to nothing that another could want.
    let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: ifreq is plain data for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends in zero, and writes ifru_mtu of the same ifreq.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU, &mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU succeeded, so the union holds ifru_mtu.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_has_a_large_mtu() {
        assert!(by_name("lo").unwrap().is_loopback());
        assert!(mtu("lo").unwrap() >= 9028);
    }

    #[test]
    fn an_unknown_interface_is_named_with_those_that_exist() {
        let error = by_name("no-such-if").unwrap_err().to_string();
        assert!(error.contains("'no-such-if'") && error.contains("lo"), "{error}");
        assert_eq!(mtu("no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(mtu("a-name-that-is-too-long-for-an-interface").is_err());
    }

    #[test]
    fn an_address_leads_to_its_interface() {
        let names = |ip: &str| -> Vec<String> {
            behind(ip.parse().unwrap()).into_iter().map(|interface| interface.name).collect()
        };
        assert_eq!(names("127.0.0.1"), ["lo"]);
        assert!(names("0.0.0.0").contains(&"lo".to_owned()));
        assert!(names("192.0.2.1").is_empty());
    }
}
