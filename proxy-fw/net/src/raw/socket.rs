//! The socket behind a raw port: opened, filtered, bound.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use pnet::util::MacAddr;

use super::{RawOptions, system};
use crate::{NetError, SOCKET_BUFFER, sys};

/// Opens a socket that is bound to nothing and receives nothing yet.
///
/// # Errors
///
/// When raw sockets are not allowed, or what the system refused.
pub(super) fn create(interface: &str) -> Result<OwnedFd, NetError> {
    // SAFETY: a plain call without pointers. Protocol 0 receives nothing.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let source = io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                NetError::NotPermitted { interface: interface.to_owned() }
            }
            _ => system("opening a raw socket", interface, source),
        });
    }
    // SAFETY: the descriptor was just opened and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    sys::set_buffers(socket.as_fd(), SOCKET_BUFFER)
        .map_err(|source| system("setting buffer sizes", interface, source))?;
    Ok(socket)
}

/// Filters and only then binds a socket, so that no foreign frame is ever queued.
///
/// # Errors
///
/// What the system refused.
pub(super) fn join(socket: &OwnedFd, index: u32, options: &RawOptions) -> Result<(), NetError> {
    let fail = |what| move |source| system(what, &options.interface, source);
    attach_filter(socket, options).map_err(fail("attaching the filter"))?;
    bind(socket, index, options).map_err(fail("binding"))
}

/// Binds to the interface. Untagged frames come by their EtherType. A tagged frame, too, but the
/// kernel has forgotten the tag by then; so with a VLAN the socket taps all frames, where the tag
/// is still known, and the filter chooses.
fn bind(socket: &OwnedFd, index: u32, options: &RawOptions) -> io::Result<()> {
    let tap = libc::ETH_P_ALL as u16;
    let protocol = if options.vlan.is_some() { tap } else { options.ethertype };
    // SAFETY: sockaddr_ll is plain data for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = libc::c_int::try_from(index).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the address lives through the call and has that size.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            sys::socklen::<libc::sockaddr_ll>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The MAC address of the interface that a socket is bound to, whatever its name is by now. None when
/// the interface is gone.
///
/// # Errors
///
/// What the system refused.
pub(super) fn mac(socket: &OwnedFd) -> io::Result<Option<MacAddr>> {
    // SAFETY: sockaddr_ll is plain data for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = sys::socklen::<libc::sockaddr_ll>();
    // SAFETY: the kernel writes at most `length` bytes to the address, which has that size.
    let done =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &mut length) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let [a, b, c, d, e, f, ..] = address.sll_addr;
    Ok((address.sll_halen == 6).then_some(MacAddr(a, b, c, d, e, f)))
}

/// The ancillary values that a classic BPF program can load (linux/filter.h).
mod ancillary {
    pub(super) const PACKET_TYPE: u32 = -0x1000_i32 as u32 + 4;
    pub(super) const VLAN_TAG: u32 = -0x1000_i32 as u32 + 44;
    pub(super) const VLAN_TAG_PRESENT: u32 = -0x1000_i32 as u32 + 48;
}

/// Lets through what is for this host (not others' frames seen by a promiscuous interface, which
/// includes those of unknown VLANs, and not what this host sends), has our EtherType, and with a
/// VLAN its tag.
fn attach_filter(socket: &OwnedFd, options: &RawOptions) -> io::Result<()> {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    };
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let accept = op(BPF_RET | BPF_K, 0, 0, u32::MAX);
    let reject = op(BPF_RET | BPF_K, 0, 0, 0);
    let mut program = vec![
        op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::PACKET_TYPE),
        op(BPF_JMP | BPF_JGT | BPF_K, 0, 1, u32::from(libc::PACKET_MULTICAST)),
        reject,
        op(BPF_LD | BPF_H | BPF_ABS, 0, 0, 12),
        op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, u32::from(options.ethertype)),
        reject,
    ];
    if let Some(vlan) = options.vlan {
        program.extend([
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::VLAN_TAG_PRESENT),
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 1),
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::VLAN_TAG),
            op(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xFFF),
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, u32::from(vlan)),
            reject,
        ]);
    }
    program.push(accept);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: SO_ATTACH_FILTER takes a sock_fprog; its instructions are in a vector that outlives
    // the call, and the kernel checks them.
    unsafe { sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}
