//! What a board has to offer.

mod patience;
mod pcie;
mod place;

pub use crate::waiting::class_of;
pub use patience::{Patience, wait_by};
pub use pcie::{Happening, PcieSide, SlotWire, Windows};
pub use place::{PlaceState, Places};

use crate::update::FirmwareAnswer;
use proxy_core::control::{ControlError, FirmwareRequest};
use proxy_core::time::Instant;

/// A media access controller with its queues. Frames are whole Ethernet frames without the frame
/// check sequence: destination, source, EtherType, payload.
pub trait EthernetMac {
    /// Its address.
    fn address(&self) -> [u8; 6];

    /// Whether there is a link partner.
    fn link_is_up(&mut self) -> bool;

    /// Bytes of the longest frame that it takes and gives.
    fn max_frame(&self) -> usize;

    /// Whether a frame has arrived, which may yet be found damaged. Where none has, the hardware is
    /// given all room for the next ones.
    fn has_arrived(&mut self) -> bool;

    /// Hands the oldest frame that arrived to `sink`, which says what it is for. Nothing has
    /// arrived: `None`, and all as for [`has_arrived`](Self::has_arrived).
    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R>;

    /// Whether there is room to send a frame.
    fn can_transmit(&mut self) -> bool;

    /// Sends a frame that `fill` writes into the queue's own memory: of the `room` bytes that it
    /// gets, as many as it says; none: no frame is sent. `None` when the queue is full, and `fill`
    /// is not called.
    fn transmit<R>(&mut self, room: usize, fill: impl FnOnce(&mut [u8]) -> (usize, R))
    -> Option<R>;

    /// What it counted, by name.
    fn counters(&self) -> MacCounters;
}

/// A frame that arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Its bytes. The receiver may change them: nobody reads them again.
    pub bytes: &'a mut [u8],
    /// Congestion Experienced was marked on the way, where the board can tell.
    pub marked: bool,
}

/// Counts of a [`EthernetMac`], since the board was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacCounters {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that arrived and for which there was no room.
    pub dropped: u64,
    /// Frames that arrived damaged, or whose length is none that a frame has.
    pub damaged: u64,
    /// Times that there was no room to send.
    pub full: u64,
}

/// What the loop needs beside the two sides.
pub trait Board {
    /// The network.
    type Mac: EthernetMac;
    /// The PCIe side.
    type Pcie: PcieSide;

    /// The time since the board was started. It may stand still or go back when the clock is
    /// broken, which [`clock_failed`](Self::clock_failed) then ends.
    fn now(&mut self) -> Instant;

    /// The network.
    fn mac(&mut self) -> &mut Self::Mac;

    /// The PCIe side.
    fn pcie(&mut self) -> &mut Self::Pcie;

    /// Tells the watchdog that there was progress.
    fn feed_watchdog(&mut self);

    /// The most bytes that the stack had since the card runs, where the board knows.
    fn stack_used(&mut self) -> Option<u64>;

    /// The board's temperature in thousandths of a degree Celsius, where it has a thermometer that
    /// answers.
    fn temperature(&mut self) -> Option<i32>;

    /// What the board counts beside its network's [`MacCounters`], by name.
    fn counters(&mut self) -> impl Iterator<Item = (&'static str, u64)> {
        core::iter::empty()
    }

    /// The end of a turn: what is at the card's places now can be shown, with lights for one. A
    /// board without any does not ask for it.
    fn show(&mut self, now: Instant, places: impl FnOnce() -> Places) {
        let _ = (now, places);
    }

    /// The clock has stood still for many turns. A board writes that down and starts anew; its
    /// watchdog may have no other clock.
    fn clock_failed(&mut self);

    /// The manager knows the card: the firmware does what it is for. Called each time that the card
    /// has joined; a board whose image has yet to report that it is healthy records that.
    fn joined(&mut self);

    /// The manager asks for this of the firmware in the board's slots. What is written is written
    /// before it returns; a restart is the card's to do, with [`restart`](Self::restart).
    ///
    /// # Errors
    ///
    /// Why not; [`ControlError::NoFirmware`] where no boot loader started it from a slot.
    fn firmware(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError>;

    /// The manager wants the card to start anew. A board that can do so does not return.
    fn restart(&mut self);

    /// Nothing is to be done until an interrupt or that time. [`cycles`](Self::cycles) as they were
    /// when the core woke.
    fn idle(&mut self, until: Instant) -> u32;

    /// Cycles of the core, as a difference between two readings: the count begins anew behind
    /// `u32::MAX`.
    fn cycles() -> u32;
}
