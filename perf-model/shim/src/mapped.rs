//! Memory that kernels reach over PCIe by themselves: the host's, mapped into the GPU, and managed
//! memory whose pages move.
//!
//! No call says what a kernel touches. What it was given does: a parameter that is an address in
//! such memory. A kernel with mapped memory waits for one read of the host at least, and that is
//! what is added. A range of managed memory moves to the GPU once, when a kernel is first given an
//! address in it: what of it no prefetch has moved there before; and again what a prefetch moved to the
//! host since. What the CPU touches is not seen.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Mutex;

use perf_core::{Kind, Nanos};

use crate::arch::Frame;
use crate::driver::{Driver, Result32, SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::number;
use crate::{delay, real};

/// Ranges that are known at a time; kernels with memory beyond them cost nothing more.
const RANGES: usize = 4096;

/// Parameters of a kernel that are looked at.
const PARAMETERS: usize = 64;

#[derive(Debug)]
struct Range {
    start: u64,
    bytes: u64,
    managed: bool,
    /// Managed memory that is on the host.
    home: Parts,
}

/// Parts of a range, by where they begin and end: none touches another.
#[derive(Debug, Default)]
struct Parts(BTreeMap<u64, u64>);

impl Parts {
    /// Adds what lies between two addresses.
    fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        // Those that overlap it or touch it become one with it.
        while let Some((start, end)) = self.last_until(to).filter(|(_, end)| *end >= from) {
            self.0.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.0.insert(from, to);
    }

    /// Takes away what lies between two addresses.
    fn take(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        while let Some((start, end)) = self.last_until(to - 1).filter(|(_, end)| *end > from) {
            self.0.remove(&start);
            if end > to {
                self.0.insert(to, end);
            }
            if start < from {
                self.0.insert(start, from);
            }
        }
    }

    /// The last one that begins at an address or before it.
    fn last_until(&self, address: u64) -> Option<(u64, u64)> {
        self.0.range(..=address).next_back().map(|(start, end)| (*start, *end))
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
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
        let mut home = Parts::default();
        if asked.managed {
            home.add(start, start.saturating_add(asked.bytes));
        }
        let range = Range { start, bytes: asked.bytes, managed: asked.managed, home };
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

    /// A context may have gone, and its memory with it: what is allocated at its addresses later is
    /// other memory. Which memory that was the driver knows, and whether the context had other users.
    pub(crate) fn context_ended(&self, driver: &Driver) {
        if !self.is_empty() {
            self.with(|ranges| ranges.retain(|range| driver.memory_type(range.start).is_some()));
        }
    }

    /// So many bytes from an address on were moved by a prefetch.
    pub(crate) fn moved(&self, address: u64, bytes: u64, to_device: bool) {
        if self.is_empty() {
            return;
        }
        self.with(|ranges| {
            for range in ranges.iter_mut().filter(|range| range.managed) {
                range.moved(address, address.saturating_add(bytes), to_device);
            }
        });
    }
}

impl Range {
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    /// What of it lies between two addresses was moved.
    fn moved(&mut self, from: u64, to: u64, to_device: bool) {
        let (from, to) = (from.max(self.start), to.min(self.start.saturating_add(self.bytes)));
        if to_device { self.home.take(from, to) } else { self.home.add(from, to) }
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
            if range.managed {
                managed.push(core::mem::take(&mut range.home).bytes());
            } else {
                mapped = true;
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

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn parts_are_those_of_a_set_of_addresses() {
        let mut parts = Parts::default();
        let mut set = [false; 64];
        // Any order of steps: a full cycle of a generator modulo 2^16.
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            seed = (seed * 25_173 + 13_849) % (1 << 16);
            let (from, to, home) = (seed / 8 % 64, seed / 512 % 64, seed / 32_768 == 0);
            if home {
                parts.add(from.into(), to.into());
            } else {
                parts.take(from.into(), to.into());
            }
            (from..to).for_each(|at| set[at as usize] = home);
            let has = |at: u64| parts.0.iter().any(|(start, end)| (*start..*end).contains(&at));
            assert!((0..64).all(|at| has(at) == set[at as usize]), "{parts:?}");
            assert_eq!(parts.bytes(), set.iter().filter(|it| **it).count() as u64);
            let ends = parts.0.values().zip(parts.0.keys().skip(1));
            assert!(ends.into_iter().all(|(end, next)| end < next), "{parts:?}");
        }
    }
}
