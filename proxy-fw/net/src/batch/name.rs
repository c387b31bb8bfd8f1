//! Socket addresses as the kernel has them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::sys::socklen;

/// Writes a C socket address and gives its length.
pub(super) fn write_name(
    name: &mut libc::sockaddr_storage,
    address: SocketAddr,
) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage has the size and alignment of every socket address, and
            // sockaddr_in is plain data.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = v4.port().to_be();
            name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            socklen::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above, for sockaddr_in6.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = v6.port().to_be();
            name.sin6_flowinfo = v6.flowinfo();
            name.sin6_addr.s6_addr = v6.ip().octets();
            name.sin6_scope_id = v6.scope_id();
            socklen::<libc::sockaddr_in6>()
        }
    }
}

/// Reads a C socket address, if it is an IP address.
pub(super) fn read_name(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in, which sockaddr_storage has the
            // size and alignment for; every bit pattern is valid.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn socket_addresses_survive(ip: std::net::IpAddr, port: u16, scope: u32) {
            // SAFETY: sockaddr_storage is plain data for which zeros are valid.
            let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let mut address = SocketAddr::new(ip, port);
            if let SocketAddr::V6(v6) = &mut address {
                v6.set_scope_id(scope);
            }
            write_name(&mut name, address);
            prop_assert_eq!(read_name(&name), Some(address));
        }
    }
}
