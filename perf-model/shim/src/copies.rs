//! Copies: which way the bytes go, and who waits for them.
//!
//! Whose time a copy's delay is: the stream's, where the call only puts the copy into it; the CPU's,
//! where the call returns when the copy has ended. The driver copies pageable memory itself, through
//! buffers of its own (CUDA Driver API, "API synchronization behavior"): up to 64 KB to the device
//! is staged and the call returns; more, and any copy to pageable memory, holds up the call. A
//! synchronous one is staged when its turn in the stream has come: what was there is waited for.

use perf_core::{Fact, Kind, Nanos, STAGED_AT_ONCE};

use crate::arch::Frame;
use crate::call::After;
use crate::driver::{MEMORY_ARRAY, MEMORY_DEVICE, MEMORY_HOST, Result32, SUCCESS, Stream};
use crate::prefetch::{self, Pages};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::{doorbell, number, stream_of, stream_or_default};
use crate::{captures, delay, push, real};

/// The kinds that copies are of, in the order of [`Parts`].
const KINDS: [Kind; 5] = [
    Kind::HostToDevice,
    Kind::DeviceToHost,
    Kind::DeviceToDevice,
    Kind::PeerToPeer,
    Kind::HostToHost,
];

/// The copies of one kind that a call does.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    operations: u64,
    bytes: u64,
    /// What they take longer.
    extra: Nanos,
}

/// The copies of each kind that a call does.
type Parts = [Part; KINDS.len()];

/// The copies that a call does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    what: What,
    /// Where they go.
    stream: Stream,
    /// Whether the stream records them.
    captured: bool,
    /// Whether the call returns when they have ended.
    waits: bool,
    /// Whether it waits for what is in the stream before them, at least, and there is something.
    in_turn: bool,
}

/// One kind of copies, as nearly every call does, or several.
#[derive(Clone, Copy, Debug)]
enum What {
    One(Kind, Part),
    /// From [`Box::into_raw`]; [`end`] frees it, once.
    Several(*mut Parts),
    /// Managed memory. From [`Box::into_raw`], as above.
    Prefetches(*mut Vec<Pages>),
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Memory of the host at this address.
    Host(u64),
    /// Memory of a GPU at this address.
    Device(u64),
    /// An array, which has no address.
    Array,
    /// What the driver makes of this address.
    Unified(u64),
}

impl End {
    /// An end of this CUmemorytype.
    pub(crate) fn of(kind: u32, host: u64, device: u64) -> Self {
        match kind {
            MEMORY_HOST => Self::Host(host),
            MEMORY_DEVICE => Self::Device(device),
            MEMORY_ARRAY => Self::Array,
            _ => Self::Unified(device),
        }
    }

    /// This end, of which the driver was asked what it is.
    fn known(self, session: &Session) -> Self {
        let Self::Unified(address) = self else { return self };
        match session.driver.memory_type(address) {
            Some(MEMORY_DEVICE) => Self::Device(address),
            Some(MEMORY_ARRAY) => Self::Array,
            // Memory that the driver does not know is the host's.
            _ => Self::Host(address),
        }
    }
}

/// A copy of `bytes` from one end to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) bytes: u64,
}

impl Copy {
    /// Whether the driver takes all of it into its own buffer at once.
    fn is_small(&self) -> bool {
        self.bytes <= STAGED_AT_ONCE
    }

    /// A copy from an address to another, by a function of this class.
    pub(crate) fn linear(class: Class, from: u64, to: u64, bytes: u64) -> Self {
        match class {
            Class::HostToDevice => Self { from: End::Host(from), to: End::Device(to), bytes },
            _ => Self { from: End::Unified(from), to: End::Unified(to), bytes },
        }
    }

    /// Which way it goes.
    pub(crate) fn kind(&self, session: &Session) -> Kind {
        match (self.from.known(session), self.to.known(session)) {
            (End::Host(_), End::Host(_)) => Kind::HostToHost,
            (End::Host(_), _) => Kind::HostToDevice,
            (_, End::Host(_)) => Kind::DeviceToHost,
            (End::Device(from), End::Device(to)) if between_devices(session, from, to) => {
                Kind::PeerToPeer
            }
            _ => Kind::DeviceToDevice,
        }
    }
}

/// Whether two addresses are of different devices. It is not asked where nobody wants to know.
fn between_devices(session: &Session, from: u64, to: u64) -> bool {
    if session.is_native() || session.settings.off.has(Kind::PeerToPeer) {
        return false;
    }
    let device = |address| session.driver.device_of(address);
    matches!((device(from), device(to)), (Some(from), Some(to)) if from != to)
}

/// Before copies.
pub(crate) fn begin(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let stream = stream_or_default(hook, frame);
    let synchronous = stream_of(hook, frame).is_none();
    let captured = captures::is_captured(session, stream);
    let nothing = What::One(Kind::HostToHost, Part::default());
    let mut moves = Moves { what: nothing, stream, captured, waits: false, in_turn: false };
    // Forms from before CUDA 3.2 describe a copy otherwise; they are for 32-bit devices.
    if hook.since < 3020 && hook.position(Role::Description).is_some() {
        return After::Nothing;
    }
    if session.settings.push_copies.is_some() && push::push(session, hook, frame) {
        return After::Answered;
    }
    match hook.class {
        Class::Prefetch | Class::PrefetchBatch | Class::DiscardAndPrefetch => {
            let pages = Box::new(prefetch::pages(hook, frame));
            moves.what = What::Prefetches(Box::into_raw(pages));
        }
        // What is not counted and not delayed need not be known; but in a capture, and, above, where
        // managed memory is.
        _ if !captured && !session.ledger.in_range() => return After::Nothing,
        _ => each(hook, frame, |copy| moves.copy(session, copy, synchronous)),
    }
    if !captured {
        doorbell(session, stream);
    }
    After::Moves(moves)
}

/// Whether nothing is left to wait for before what a synchronous call puts into a default stream; it
/// is taken to be so where nobody wants to know, or where asking would spoil a capture.
pub(crate) fn turn_has_come(session: &Session, stream: Stream) -> bool {
    let driver = &session.driver;
    // The thread's own stream does not say that it waits for the legacy one, which does say for which
    // others it waits.
    let legacy = Stream { handle: real::pointer(0), per_thread: false };
    session.extra(Kind::Synchronise, 0) == Nanos::ZERO
        || captures::any(session)
        || (driver.is_idle(stream) && (!stream.per_thread || driver.is_idle(legacy)))
}

impl Moves {
    /// Adds one copy.
    fn copy(&mut self, session: &Session, copy: Copy, synchronous: bool) {
        let kind = copy.kind(session);
        let extra = session.extra(kind, copy.bytes);
        self.add(kind, copy.bytes, extra);
        // A wait costs what it does whether or not the copy costs more. For no bytes there is none.
        let costs = copy.bytes > 0
            && (extra != Nanos::ZERO || session.extra(Kind::Synchronise, 0) != Nanos::ZERO);
        if !costs || self.waits {
            return;
        }
        let pageable = |end: End| match end {
            End::Host(address) | End::Unified(address) => {
                session.driver.memory_type(address).is_none()
            }
            End::Device(_) | End::Array => false,
        };
        let is_pageable = match kind {
            // A small one is in the driver's buffer when the call returns: the call's kind says
            // enough, unless it is one that waits for pinned memory only.
            Kind::HostToDevice => (synchronous || !copy.is_small()) && pageable(copy.from),
            Kind::DeviceToHost => pageable(copy.to),
            _ => false,
        };
        self.waits = match kind {
            Kind::HostToDevice if copy.is_small() => synchronous && !is_pageable,
            Kind::HostToDevice | Kind::DeviceToHost => synchronous || is_pageable,
            _ => false,
        };
        let staged = kind == Kind::HostToDevice && is_pageable && !self.waits;
        self.in_turn = self.in_turn || (staged && !turn_has_come(session, self.stream));
        // Pinned, one that costs no more would save nothing.
        if is_pageable && self.waits && extra != Nanos::ZERO {
            session.ledger.add(Fact::PageableBytes, copy.bytes);
        }
    }

    fn add(&mut self, kind: Kind, bytes: u64, extra: Nanos) {
        let more = Part { operations: 1, bytes, extra };
        match &mut self.what {
            What::One(_, part) if part.operations == 0 => self.what = What::One(kind, more),
            What::One(same, part) if *same == kind => part.add(more),
            What::One(other, part) => {
                let mut parts = Box::new(Parts::default());
                parts[place(*other)] = *part;
                parts[place(kind)].add(more);
                self.what = What::Several(Box::into_raw(parts));
            }
            // SAFETY: it comes from `Box::into_raw`, and only `end`, which comes later, frees it.
            What::Several(parts) => unsafe { (&mut **parts)[place(kind)].add(more) },
            What::Prefetches(_) => unreachable!("a call that prefetches copies nothing"),
        }
    }

    /// Counts copies of one kind, and delays what waits for them.
    fn did(&self, session: &Session, kind: Kind, part: &Part) {
        if part.operations == 0 {
            return;
        }
        if !self.captured {
            session.ledger.did(kind, part.operations, part.bytes);
        }
        if part.extra == Nanos::ZERO {
            return;
        }
        if self.captured {
            delay::recorded(session, self.stream, part.extra);
        } else if self.waits {
            delay::on_cpu(session, kind, part.extra);
        } else {
            delay::in_stream(session, kind, self.stream, part.extra);
        }
    }
}

impl Part {
    fn add(&mut self, more: Self) {
        self.operations += more.operations;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.extra = self.extra.saturating_add(more.extra);
    }
}

/// A kind's place in [`KINDS`].
fn place(kind: Kind) -> usize {
    KINDS.iter().position(|other| *other == kind).expect("a kind of copy")
}

/// After copies.
pub(crate) fn end(session: &Session, moves: &Moves, result: Result32) {
    match moves.what {
        What::One(kind, part) => {
            if result == SUCCESS {
                moves.did(session, kind, &part);
            }
        }
        What::Several(parts) => {
            // SAFETY: from `Box::into_raw` in `add`, and this is the one end of the call.
            let parts = unsafe { Box::from_raw(parts) };
            if result == SUCCESS {
                for (kind, part) in KINDS.into_iter().zip(&*parts) {
                    moves.did(session, kind, part);
                }
            }
        }
        What::Prefetches(pages) => {
            // SAFETY: from `Box::into_raw` in `begin`, and this is the one end of the call.
            let pages = unsafe { Box::from_raw(pages) };
            // What the driver refuses stays where it is.
            if result == SUCCESS {
                let mut all = Part::default();
                for pages in *pages {
                    let (bytes, extra) = prefetch::moved(session, pages);
                    all.add(Part { operations: 1, bytes, extra });
                }
                moves.did(session, Kind::Managed, &all);
            }
        }
    }
    if result != SUCCESS {
        return;
    }
    if (moves.waits || moves.in_turn) && !moves.captured {
        delay::on_cpu(session, Kind::Synchronise, session.extra(Kind::Synchronise, 0));
        session.ledger.tick();
    }
}

/// Each copy that a call asks for.
fn each(hook: &Hook, frame: &Frame, mut copy: impl FnMut(Copy)) {
    let at = |role| number(hook, frame, role);
    let bytes = at(Role::Bytes);
    let (source, destination) = (at(Role::Source), at(Role::Destination));
    let device = |role, address| match hook.position(role) {
        Some(_) => End::Array,
        None => End::Device(address),
    };
    match hook.class {
        Class::HostToDevice => copy(Copy {
            from: End::Host(source),
            to: device(Role::DestinationArray, destination),
            bytes,
        }),
        Class::DeviceToHost => copy(Copy {
            from: device(Role::SourceArray, source),
            to: End::Host(destination),
            bytes,
        }),
        Class::DeviceToDevice => copy(Copy {
            from: device(Role::SourceArray, source),
            to: device(Role::DestinationArray, destination),
            bytes,
        }),
        Class::CopyPeer => {
            copy(Copy { from: End::Device(source), to: End::Device(destination), bytes });
        }
        Class::Copy => {
            copy(Copy { from: End::Unified(source), to: End::Unified(destination), bytes });
        }
        Class::Copy2d => described::<Plane>(hook, frame, |plane| copy(plane.copy())),
        Class::Copy3d | Class::Copy3dPeer => {
            described::<Volume>(hook, frame, |volume| copy(volume.copy()));
        }
        Class::Copy3dBatch => described::<Operation>(hook, frame, |one| copy(one.copy())),
        Class::CopyBatch => batch(hook, frame, copy),
        _ => {}
    }
}

/// Each description that a call was given: as many as it says, or one.
fn described<T>(hook: &Hook, frame: &Frame, each: impl FnMut(&T)) {
    let at = number(hook, frame, Role::Description) as usize;
    let count = match hook.position(Role::Count) {
        Some(_) => number(hook, frame, Role::Count) as usize,
        None => 1,
    };
    list::<T>(at as u64, count).iter().for_each(each);
}

/// A list that the program gives the driver in a call.
pub(crate) fn list<'a, T>(at: u64, count: usize) -> &'a [T] {
    let at: *const T = real::pointer(at as usize).cast();
    if at.is_null() || !at.is_aligned() || count == 0 {
        return &[];
    }
    // SAFETY: the call's contract with the driver is that so many lie there until it returns, and
    // the result is used before.
    unsafe { core::slice::from_raw_parts(at, count) }
}

fn batch(hook: &Hook, frame: &Frame, mut copy: impl FnMut(Copy)) {
    let count = number(hook, frame, Role::Count) as usize;
    let words = |role| list::<u64>(number(hook, frame, role), count);
    let ends = words(Role::Sources).iter().zip(words(Role::Destinations));
    for ((from, to), bytes) in ends.zip(words(Role::Sizes)) {
        copy(Copy { from: End::Unified(*from), to: End::Unified(*to), bytes: *bytes });
    }
}

/// A `CUDA_MEMCPY2D` (cuda.h, since CUDA 3.2).
#[repr(C)]
struct Plane {
    from: PlaneEnd,
    to: PlaneEnd,
    width: u64,
    height: u64,
}

#[repr(C)]
struct PlaneEnd {
    x: u64,
    y: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

impl Plane {
    fn copy(&self) -> Copy {
        let end = |end: &PlaneEnd| End::of(end.kind, end.host, end.device);
        Copy {
            from: end(&self.from),
            to: end(&self.to),
            bytes: self.width.saturating_mul(self.height),
        }
    }
}

/// A `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER` (cuda.h, since CUDA 3.2 and 4.0).
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Volume {
    from: VolumeEnd,
    to: VolumeEnd,
    width: u64,
    height: u64,
    depth: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
struct VolumeEnd {
    x: u64,
    y: u64,
    z: u64,
    level: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    /// A context in a copy between devices.
    context: u64,
    pitch: u64,
    height: u64,
}

impl Volume {
    /// The copy that it describes.
    pub(crate) fn copy(&self) -> Copy {
        let end = |end: &VolumeEnd| End::of(end.kind, end.host, end.device);
        let area = self.width.saturating_mul(self.height);
        Copy { from: end(&self.from), to: end(&self.to), bytes: area.saturating_mul(self.depth) }
    }
}

/// A `CUDA_MEMCPY3D_BATCH_OP` (cuda.h, since CUDA 12.8). The extent of an array is in elements, of
/// which the call does not say how long they are: they are counted as bytes.
#[repr(C)]
struct Operation {
    from: Operand,
    to: Operand,
    extent: [u64; 3],
    order: u32,
    flags: u32,
}

/// A `CUmemcpy3DOperand`: an address (type 1) or an array (type 2), then what belongs to it.
#[repr(C)]
struct Operand {
    kind: u32,
    value: u64,
    rest: [u64; 3],
}

impl Operation {
    fn copy(&self) -> Copy {
        let end = |end: &Operand| match end.kind {
            1 => End::Unified(end.value),
            _ => End::Array,
        };
        let [width, height, depth] = self.extent;
        let bytes = width.saturating_mul(height).saturating_mul(depth);
        Copy { from: end(&self.from), to: end(&self.to), bytes }
    }
}

const _: () = assert!(size_of::<Plane>() == 128);
const _: () = assert!(size_of::<Volume>() == 200);
const _: () = assert!(size_of::<Operation>() == 112);
