//! What a box proxy sees of a device: TLPs, resets and time.

use std::time::Duration;
use tlp_codec::tlp::Class;

/// What happens to a device beside TLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetKind {
    /// The link's hot reset (PCIe 5.0 section 6.6.1), done by the time the call returns.
    HotReset,
    /// PERST# changed. While it is asserted the device neither takes nor sends TLPs.
    Perst {
        /// Whether it is asserted now.
        asserted: bool,
    },
    /// Main power changed. Without power the device neither takes nor sends TLPs and forgets what
    /// is volatile.
    Power {
        /// Whether there is power now.
        on: bool,
    },
}

/// A set of TLP classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Classes(u8);

impl Classes {
    /// Posted, non-posted and completions.
    pub const ALL: Classes = Classes(7);
    /// None.
    pub const NONE: Classes = Classes(0);

    /// This set and `class`.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class as u8)
    }

    /// This set without `class`.
    #[must_use]
    pub const fn without(self, class: Class) -> Self {
        Self(self.0 & !(1 << class as u8))
    }

    /// Whether `class` is in it.
    pub const fn has(self, class: Class) -> bool {
        self.0 & 1 << class as u8 != 0
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// A PCIe device as its link sees it: it speaks TLPs and nothing else.
///
/// There is no clock, socket or thread in the interface: `now` is the time since an origin that
/// the caller chose once, and the caller asks for what the device has to send. The caller's loop
/// is: hand in what came while [`can_take`](Device::can_take) allows, poll until `None` (and again
/// when more classes may be sent than before), sleep
/// until [`poll_timeout`](Device::poll_timeout), call
/// [`handle_timeout`](Device::handle_timeout), poll again.
pub trait Device: Send {
    /// A TLP from the link. Never blocks. What is malformed, unexpected or finds no room is
    /// dropped and counted, or completed with the status that PCIe says.
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]);

    /// Whether the device has room for one more TLP of `class`: its flow-control credit. One that
    /// is handed in all the same may be dropped and counted as receiver overflow.
    fn can_take(&self, class: Class) -> bool;

    /// The next TLP that the device sends, of one of `classes`, into `buf`; its length. Does a
    /// bounded amount of the device's own work. PCIe's ordering rules hold whatever the classes:
    /// what may not pass an earlier TLP of another class waits for it.
    ///
    /// # Panics
    ///
    /// May panic if `buf` is shorter than [`MAX_TLP`](tlp_codec::tlp::MAX_TLP).
    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize>;

    /// The next TLP of any class that the device sends: [`poll_tlp_of`](Device::poll_tlp_of) all.
    fn poll_tlp(&mut self, now: Duration, buf: &mut [u8]) -> Option<usize> {
        self.poll_tlp_of(now, Classes::ALL, buf)
    }

    /// Reset or power.
    fn handle_reset(&mut self, now: Duration, kind: ResetKind);

    /// When [`handle_timeout`](Device::handle_timeout) is to be called at the latest. A time in
    /// the past means at once: the device has work left that it cut short to keep its bound.
    fn poll_timeout(&self) -> Option<Duration>;

    /// Time passed. Harmless when it is early.
    fn handle_timeout(&mut self, now: Duration);

    /// A name and a number for everything that the device counts. Names do not change.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]) {
        (**self).handle_tlp(now, tlp);
    }

    fn can_take(&self, class: Class) -> bool {
        (**self).can_take(class)
    }

    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        (**self).poll_tlp_of(now, classes, buf)
    }

    fn handle_reset(&mut self, now: Duration, kind: ResetKind) {
        (**self).handle_reset(now, kind);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        (**self).poll_timeout()
    }

    fn handle_timeout(&mut self, now: Duration) {
        (**self).handle_timeout(now);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}
