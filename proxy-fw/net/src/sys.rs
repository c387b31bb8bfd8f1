//! System calls in a safe shape.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::Waiting;

/// The size of a `T`, as the socket calls want it.
pub(crate) const fn socklen<T>() -> libc::socklen_t {
    assert!(size_of::<T>() <= u32::MAX as usize);
    size_of::<T>() as libc::socklen_t
}

/// A socket option whose value is a plain C structure or integer.
///
/// # Safety
///
/// `T` is the structure that the kernel expects for this option (or an integer), and pointers in
/// it are valid for the call.
pub(crate) unsafe fn set_option<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads size_of::<T>()
    // bytes from a live reference; the caller vouches for what they mean.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), socklen::<T>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket option that is an integer.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: all options that are set through here take an int without pointers.
    unsafe { set_option(fd, level, name, &value) }
}

/// Asks for large socket buffers: beyond the system's limit where that is allowed, else up to it.
pub(crate) fn set_buffers(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_int(fd, libc::SOL_SOCKET, forced, bytes).is_err() {
            set_int(fd, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

/// Frames that the kernel threw away because the socket's receive buffer was full.
///
/// `SO_MEMINFO` gives an array of 32-bit numbers; `SK_MEMINFO_DROPS` is the ninth
/// (linux/sock_diag.h). Zero where the kernel does not have the option.
pub(crate) fn receive_drops(fd: BorrowedFd<'_>) -> u64 {
    const SK_MEMINFO_DROPS: usize = 8;
    const SK_MEMINFO_VARS: usize = 9;
    let mut values = [0u32; SK_MEMINFO_VARS];
    let mut length = socklen::<[u32; SK_MEMINFO_VARS]>();
    // SAFETY: the kernel writes at most `length` bytes to the array, which has that size.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if done == 0 { u64::from(values[SK_MEMINFO_DROPS]) } else { 0 }
}

/// Frames that found a packet ring full since this was last asked (`PACKET_STATISTICS` starts
/// anew each time). Zero where the kernel does not say.
pub(crate) fn take_ring_drops(fd: BorrowedFd<'_>) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = socklen::<libc::tpacket_stats>();
    // SAFETY: the kernel writes at most `length` bytes to the structure, which has that size.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &mut length,
        )
    };
    if done == 0 { u64::from(stats.tp_drops) } else { 0 }
}

/// The error that the socket would report next, if there is one; it reports it once.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let mut code: libc::c_int = 0;
    let mut length = socklen::<libc::c_int>();
    // SAFETY: SO_ERROR is an int, which the kernel writes to.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut code).cast(),
            &mut length,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
}

/// Sleeps until the descriptor is readable (or writable, when asked for) or the time is over.
pub(crate) fn wait(fd: BorrowedFd<'_>, writable: bool, timeout: Duration) -> io::Result<()> {
    wait_any(&[Waiting { fd, read: true, write: writable }], timeout)
}

/// Descriptors that are waited for at once. More is an error.
const MOST_WAITED_FOR: usize = 16;

/// As [`wait`], for the first of several.
pub(crate) fn wait_any(fds: &[Waiting<'_>], timeout: Duration) -> io::Result<()> {
    let mut polls = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MOST_WAITED_FOR];
    let polls = polls.get_mut(..fds.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (poll, waiting) in polls.iter_mut().zip(fds) {
        poll.fd = waiting.fd.as_raw_fd();
        poll.events = if waiting.read { libc::POLLIN } else { 0 };
        poll.events |= if waiting.write { libc::POLLOUT } else { 0 };
    }
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: `count` pollfds and one timespec that live through the call; no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), count, &timeout, std::ptr::null()) };
    if ready >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // A signal ends the sleep early, which the caller cannot tell from a frame that came.
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
