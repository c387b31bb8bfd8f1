//! What must hold, written without a look at how the proxies do it.
//!
//! | file | promise |
//! |---|---|
//! | `order` | 1: at most once, undamaged, in an order that the base specification allows |
//! | `binding` | 2 and 4: nothing crosses from one binding to another; who is bound to whom |
//! | `peers` | 1 and 3: what devices of one host ask of each other |
//! | `completion` | 3: each non-posted request completes once, in time, with what was answered |
//! | `bounds` | 5: nothing grows |
//! | `counted` | 6: frames are taken or dropped, and counted |
//! | `progress` | 3: how far requests are, which says what may keep them from their answers |
//! | `said` | 3: what a device that lies has said, of which alone something may come out |
//! | `spells` | 3: when a device misbehaved, which excuses what was asked of it meanwhile |
//! | `tags` | 3: which tags a device leaves to be asked under |
//! | `wire` | 4 and 5: a binding's limit and its paths, in the frames that are sent |
//! | `blocks` | 1 and 3: what every block of a drive may hold, across all its users |
//!
//! What a read may return is checked where it was asked for: by the model of the driver
//! (`host::driver`) and by the model of the device (`device::engine`).

pub(crate) mod access;
pub(crate) mod binding;
pub(crate) mod blocks;
pub(crate) mod bounds;
pub(crate) mod completion;
pub(crate) mod counted;
pub(crate) mod order;
pub(crate) mod peers;
pub(crate) mod progress;
pub(crate) mod said;
pub(crate) mod spells;
pub(crate) mod tags;
pub(crate) mod wire;

/// Promises broken, in words. The number is that of `DESIGN.md`, "Promises"; 0 is liveness.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Which promise.
    pub promise: u8,
    /// What happened.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(promise: u8, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

/// What an oracle says.
pub(crate) type Verdict<T = ()> = Result<T, Violation>;
