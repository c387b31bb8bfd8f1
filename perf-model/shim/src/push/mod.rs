//! Copies to the device as writes of the CPU into the device's memory (DxPU, section 5.1): posted,
//! they wait for no round trip.
//!
//! A copy is pushed when it is of a size that was asked for, its destination can be mapped, and its
//! place in the stream's order has come: a synchronous copy waits for it, as the driver's own does;
//! an asynchronous one is pushed if its stream has nothing left to do, and is the driver's otherwise.
//! What the program does next comes behind the writes: they are in the device's memory, or on the way
//! there before any doorbell.

mod mapping;
mod store;

use core::sync::atomic::Ordering;
use std::sync::Mutex;

use perf_core::{Fabric, Fact, Kind, PushCopies, Text};

use crate::arch::Frame;
use crate::copies::turn_has_come;
use crate::driver::{SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::{number, stream_of, stream_or_default};
use crate::{captures, delay, real};
use mapping::Mapping;

/// Allocations that are mapped at a time. Copies into others are the driver's.
const MAPPINGS: usize = 1024;

/// The allocations that copies were pushed into, or could not be.
#[derive(Debug, Default)]
pub(crate) struct Pushes(Mutex<Vec<Mapping>>);

impl Pushes {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<Mapping>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Before memory is freed.
    pub(crate) fn freed(&self, address: u64) {
        self.with(|mappings| mappings.retain(|mapping| mapping.base != address));
    }

    /// Before a context goes, whose memory this may be.
    pub(crate) fn forget(&self) {
        self.with(Vec::clear);
    }
}

/// Does a copy instead of the driver. False if it is the driver's to do.
pub(crate) fn push(session: &Session, hook: &Hook, frame: &Frame) -> bool {
    let Some(PushCopies { least, most }) = session.settings.push_copies else { return false };
    if !session.ledger.in_range() {
        return false;
    }
    let at = |role| number(hook, frame, role);
    let (to, from, bytes) = (at(Role::Destination), at(Role::Source), at(Role::Bytes));
    let linear = matches!(hook.class, Class::HostToDevice | Class::Copy)
        && hook.position(Role::Destination).is_some();
    if !linear || from == 0 || bytes == 0 || !(least..=most).contains(&bytes) {
        return false;
    }
    if session.injected.load(Ordering::Acquire) {
        no(session, "CUPTI only reports calls, it does not replace them: use LD_PRELOAD");
        return false;
    }
    let stream = stream_or_default(hook, frame);
    let copy = crate::copies::Copy::linear(hook.class, from, to, bytes);
    if captures::any(session) || copy.kind(session) != Kind::HostToDevice {
        return false;
    }
    // The wait for its turn may be for other threads: it holds no lock, and what is mapped is looked
    // up again after it.
    if session.pushes.with(|mappings| place(session, mappings, to, bytes)).is_none() {
        return false;
    }
    let Some(waited) = in_turn(session, stream, stream_of(hook, frame).is_none()) else {
        return false;
    };
    let pushed = session.pushes.with(|mappings| {
        let known = mappings.iter().find(|mapping| mapping.has(to));
        let Some(place) = known.and_then(|known| known.place(to, bytes)) else { return false };
        // SAFETY: `place` is so many bytes of a mapping, which stays while the mappings are held.
        // The program promises that so many can be read at `from`, as for the copy.
        unsafe { store::write(place, real::pointer(from as usize).cast(), bytes as usize) };
        true
    });
    if pushed {
        // The end of the stream's work is seen late, as by any wait.
        if waited {
            delay::on_cpu(session, Kind::Synchronise, session.extra(Kind::Synchronise, 0));
        }
        count(session, bytes);
    }
    pushed
}

/// What a pushed copy costs, and that it was.
fn count(session: &Session, bytes: u64) {
    session.ledger.did(Kind::HostToDevice, 1, bytes);
    session.ledger.add(Fact::PushedCopies, 1);
    session.ledger.add(Fact::PushedBytes, bytes);
    if session.settings.off.has(Kind::HostToDevice) {
        return;
    }
    let fabric = session.settings.fabric;
    let push = Some(fabric.push.unwrap_or(Fabric::DXPU_PUSH));
    let extra = Fabric { push, ..fabric }.htod_extra(bytes);
    session.ledger.add(Fact::PushedNanos, extra.0);
    delay::on_cpu(session, Kind::HostToDevice, extra);
}

/// Whether there was something to wait for until the copy's turn in its stream came; none where it has
/// not come. Only where the call may wait is anything waited for.
fn in_turn(session: &Session, stream: Stream, may_wait: bool) -> Option<bool> {
    let driver = &session.driver;
    if may_wait {
        let waits = !turn_has_come(session, stream);
        // Recorded in the default stream, an event comes after all that the copy would.
        return driver.wait_for(stream).then_some(waits);
    }
    // A default stream waits for others: nobody but the driver keeps the order of those.
    let legacy = Stream { handle: real::pointer(0), per_thread: false };
    let is_free = !stream.is_default() && driver.is_idle(stream) && driver.is_idle(legacy);
    is_free.then_some(false)
}

/// Where in a mapping `bytes` at the device's address `to` lie.
fn place(session: &Session, mappings: &mut Vec<Mapping>, to: u64, bytes: u64) -> Option<*mut u8> {
    if let Some(known) = mappings.iter().find(|mapping| mapping.has(to)) {
        return known.place(to, bytes);
    }
    let (mut base, mut length) = (0_u64, 0_usize);
    // SAFETY: both numbers are written here.
    let result = unsafe { session.driver.address_range?(&raw mut base, &raw mut length, to) };
    let no_memory = |why: &str| {
        let which = session.driver.which(session.driver.device_of(to));
        no(session, &format!("on {which}: {why}"));
    };
    if result != SUCCESS {
        no_memory("a copy's destination is no allocation of cuMemAlloc");
        return None;
    }
    if !session.driver.stays_in_place(to) {
        no_memory("a copy's destination is no allocation of cuMemAlloc, so its place may change");
        return None;
    }
    if mappings.len() == MAPPINGS {
        no(session, &format!("more than {MAPPINGS} allocations: those beyond are not mapped"));
        return None;
    }
    let mapping = Mapping::new(&session.driver, base, length as u64);
    if let Some(why) = mapping.why_not() {
        no_memory(why);
    }
    let place = mapping.place(to, bytes);
    mappings.push(mapping);
    place
}

fn no(session: &Session, why: &str) {
    session.ledger.say(Text::NoPush, why);
}
