//! Signalling eventfds of the client without ever waiting for it.
//!
//! A write to an eventfd blocks while its counter is full. The file descriptor that the client sent
//! shares its flags with the client's own, so that whether writes block is the client's to decide,
//! and it could fill the counter between any look at it and the write. The kernel itself signals an
//! eventfd without waiting when an asynchronous request of `io_submit(2)` is done, and stays at a
//! counter's end. So a read of nothing is submitted, which is done at once.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Requests between two times that their results, which nobody needs, are taken out.
const RING: u16 = 32;

/// How eventfds are signalled.
#[derive(Debug)]
pub(crate) enum Signals {
    /// By the kernel.
    Submitted(Context),
    /// By writing, where the kernel, or who confines this process, has no `io_submit(2)`. A counter
    /// that is full is not written, but there is a moment between looking and writing.
    Written,
}

/// A context of `io_setup(2)`.
#[derive(Debug)]
pub(crate) struct Context {
    /// The kernel's name for it: an address that is not used as one.
    context: libc::c_ulong,
    /// A file without bytes.
    empty: OwnedFd,
    /// Results that were not taken out.
    results: u16,
}

/// `struct iocb` of `<linux/aio_abi.h>`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// Key and flags; which is first depends on the byte order, and both are 0.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// `struct io_event` of `<linux/aio_abi.h>`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Done {
    data: u64,
    request: u64,
    results: [i64; 2],
}

const PREAD: u16 = 0;
const SIGNALS_EVENTFD: u32 = 1;

impl Signals {
    pub(crate) fn new() -> Self {
        Context::new().map_or(Self::Written, Self::Submitted)
    }

    /// Adds 1 to an eventfd, unless its counter is full: then the client is told already that
    /// there is something. False: it could not be signalled.
    pub(crate) fn signal(&mut self, eventfd: BorrowedFd<'_>) -> bool {
        match self {
            Self::Submitted(context) => context.signal(eventfd).is_ok(),
            Self::Written => write(eventfd),
        }
    }
}

fn write(eventfd: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(eventfd, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut ready, Some(&at_once)) {
        Ok(0) => true,
        Ok(_) => rustix::io::write(eventfd, &1_u64.to_ne_bytes()).is_ok(),
        Err(_) => false,
    }
}

/// What a system call says.
fn checked(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

impl Context {
    fn new() -> Result<Self, Errno> {
        let empty = memfd_create("empty", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        let requests = libc::c_long::from(RING);
        // SAFETY: the kernel writes the context's name there, and what it maps for the results it
        // places itself.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut context) })?;
        Ok(Self { context, empty, results: 0 })
    }

    fn signal(&mut self, eventfd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.results == RING {
            self.take_results()?;
        }
        // File descriptors are not negative.
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd() as u32;
        let mut request = Request {
            opcode: PREAD,
            file: number(self.empty.as_fd()),
            flags: SIGNALS_EVENTFD,
            eventfd: number(eventfd),
            ..Request::default()
        };
        let mut requests = [&raw mut request];
        let one: libc::c_long = 1;
        // SAFETY: there is one request. It reads no bytes, so that it needs no buffer, and is done
        // before the call returns, so that it may go then.
        let submitted =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, one, requests.as_mut_ptr()) };
        checked(submitted)?;
        self.results += 1;
        Ok(())
    }

    /// Makes room for further results.
    fn take_results(&mut self) -> Result<(), Errno> {
        let mut results = [Done::default(); RING as usize];
        let (least, most) = (libc::c_long::from(0_u16), libc::c_long::from(RING));
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for as many results as it says, and it does not wait for any.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                most,
                results.as_mut_ptr(),
                &raw const at_once,
            )
        };
        checked(taken)?;
        self.results = 0;
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing that was submitted is still to be done.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    /// The counter, which is then 0; it is not empty.
    fn counter(fd: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(fd, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    /// Where the kernel has what takes eventfds in one call.
    fn context() -> Option<Context> {
        let said = |error: &_| println!("SKIPPED: signals that are submitted: {error}");
        Context::new().inspect_err(said).ok()
    }

    fn each_way() -> Vec<Signals> {
        let mut ways = vec![Signals::Written];
        ways.extend(context().map(Signals::Submitted));
        ways
    }

    #[test]
    fn each_signal_counts() {
        for mut signals in each_way() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            for _ in 0..1000 {
                assert!(signals.signal(fd.as_fd()));
            }
            assert_eq!(counter(&fd), 1000);
        }
    }

    /// The counter is full and the file descriptor one that blocks: nobody waits.
    #[test]
    fn a_full_counter_is_not_waited_for() {
        for mut signals in each_way() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            for _ in 0..100 {
                assert!(signals.signal(fd.as_fd()));
            }
            assert!(counter(&fd) >= u64::MAX - 1);
            assert!(signals.signal(fd.as_fd()));
            assert_eq!(counter(&fd), 1);
        }
    }

    #[test]
    fn what_is_no_eventfd_is_not_signalled() {
        if let Some(mut context) = context() {
            let file = memfd_create("none", MemfdFlags::CLOEXEC).unwrap();
            assert_eq!(context.signal(file.as_fd()), Err(Errno::INVAL));
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
        }
    }
}
