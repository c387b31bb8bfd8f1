//! Memory that kernels reach over PCIe by themselves: the host's, mapped into the GPU, and managed
//! memory whose pages move.
//!
//! No call says what a kernel touches. What it was given does: a parameter that is an address in
//! such memory. A kernel with mapped memory waits for one read of the host at least, and that is
//! what is added. A range of managed memory moves to the GPU once, when a kernel is first given an
//! address in it, and again after a prefetch moved it to the host. What the CPU touches is not seen.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use perf_core::{Kind, Nanos};

use crate::arch::Frame;
use crate::driver::{Result32, SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::number;
use crate::{delay, real};

/// Ranges that are known at a time; kernels with memory beyond them cost nothing more.
const RANGES: usize = 4096;

/// Parameters of a kernel that are looked at.
const PARAMETERS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    bytes: u64,
    managed: bool,
    /// Managed memory that is on the GPU.
    moved: bool,
}

/// The ranges of such memory that the program has.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// So that programs without any are not held up.
    count: AtomicUsize,
    ranges: Mutex<Vec<Range>>,
}

/// A range that the driver is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Where its address goes, or 0 for memory of the program's own.
    out: u64,
    address: u64,
    bytes: u64,
    managed: bool,
}

/// Before memory is allocated or registered.
pub(crate) fn asked(session: &Session, hook: &Hook, frame: &Frame) -> Option<Asked> {
    let managed = hook.class == Class::AllocateManaged;
    let kind = if managed { Kind::Managed } else { Kind::Mapped };
    if session.extra(kind, 1) == Nanos::ZERO {
        return None;
    }
    let at = |role| number(hook, frame, role);
    let bytes = at(Role::Bytes);
    Some(Asked { out: at(Role::AddressOut), address: at(Role::Address), bytes, managed })
}

impl Ranges {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<Range>) -> T) -> T {
        let mut ranges = self.ranges.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = what(&mut ranges);
        self.count.store(ranges.len(), Ordering::Release);
        result
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// After the driver gave a range.
    pub(crate) fn given(&self, asked: Asked, result: Result32) {
        if result != SUCCESS || asked.bytes == 0 {
            return;
        }
        let start = if asked.out == 0 {
            asked.address
        } else {
            // SAFETY: the driver has just written an address there.
            unsafe { *real::pointer(asked.out as usize).cast::<u64>() }
        };
        let range = Range { start, bytes: asked.bytes, managed: asked.managed, moved: false };
        self.with(|ranges| {
            ranges.retain(|other| other.start != start);
            if ranges.len() < RANGES {
                ranges.push(range);
            }
        });
    }

    /// A range goes.
    pub(crate) fn freed(&self, address: u64) {
        if !self.is_empty() {
            self.with(|ranges| ranges.retain(|range| range.start != address));
        }
    }

    /// A range was moved by a prefetch.
    pub(crate) fn moved(&self, address: u64, to_device: bool) {
        if self.is_empty() {
            return;
        }
        self.with(|ranges| {
            for range in ranges.iter_mut().filter(|range| range.managed && range.has(address)) {
                range.moved = to_device;
            }
        });
    }
}

impl Range {
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// Before a kernel: what it is given.
pub(crate) fn launch(session: &Session, hook: &Hook, frame: &Frame, stream: Stream) {
    if session.ranges.is_empty() {
        return;
    }
    let (mut mapped, mut managed) = (false, Vec::new());
    parameters(session, hook, frame, |address| {
        session.ranges.with(|ranges| {
            let Some(range) = ranges.iter_mut().find(|range| range.has(address)) else { return };
            if !range.managed {
                mapped = true;
            } else if !range.moved {
                range.moved = true;
                managed.push(range.bytes);
            }
        });
    });
    let bytes = if mapped { u64::from(session.settings.fabric.read_size.get()) } else { 0 };
    for (kind, bytes) in [(Kind::Mapped, bytes)]
        .into_iter()
        .chain(managed.into_iter().map(|bytes| (Kind::Managed, bytes)))
    {
        if bytes > 0 {
            session.ledger.did(kind, 1, bytes);
            delay::in_stream(session, kind, stream, session.extra(kind, bytes));
        }
    }
}

/// Each parameter of a kernel that can be an address. The driver says how many there are since
/// CUDA 12.4; before, none is known.
fn parameters(session: &Session, hook: &Hook, frame: &Frame, mut each: impl FnMut(u64)) {
    let function = number(hook, frame, Role::Function);
    let at = number(hook, frame, Role::KernelParameters);
    let Some(ask) = session.driver.parameter else { return };
    if at == 0 {
        return;
    }
    for index in 0..PARAMETERS {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the program gives the driver this function; both numbers are written here.
        let result =
            unsafe { ask(real::pointer(function as usize), index, &raw mut offset, &raw mut size) };
        if result != SUCCESS {
            return;
        }
        if size == size_of::<u64>() {
            // SAFETY: the program gives the driver the address of as many addresses as the kernel
            // has parameters, each of a value of the parameter's size.
            let value = unsafe {
                let place = *real::pointer(at as usize).cast::<*const u64>().add(index);
                place.read_unaligned()
            };
            each(value);
        }
    }
}
