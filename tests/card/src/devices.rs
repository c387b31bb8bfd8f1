//! Models of devices at the PCIe side of a box card.

use crate::LONGEST;
use crate::stream::StreamMac;
use box_proxy::daemon::Seated;
use device_models::{Classes, Device, ResetKind};
use proxy_core::boxes::SlotSignal;
use proxy_core::link::ClassSet;
use proxy_daemon::stop::Stop;
use soc::board::{EthernetMac, PcieSide, SlotWire};
use soc::records::{Beside, Body, RecordPort, Windows};
use std::time::{Duration, Instant};
use tlp_codec::tlp::{Class, MAX_TLP};

/// TLPs that a device's side stores, by class.
const WINDOWS: Windows = Windows([16, 16, 16]);

/// TLPs moved in either direction in one turn of a device.
const BATCH: usize = 64;

/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Devices in slots, at the end of a wire.
pub struct Devices<M> {
    port: RecordPort<M>,
    seats: Vec<Seated>,
    /// How many of the devices the card was told of since it was met.
    told: usize,
    /// Times that it was met.
    met: u64,
}

impl Devices<StreamMac> {
    /// Serves until told to stop, or the card is gone.
    pub fn run(&mut self, stop: &Stop) {
        let origin = Instant::now();
        while !stop.requested() && !self.port.mac().is_closed() {
            if !self.turn(origin.elapsed()) {
                self.port.mac().wait(LONGEST_SLEEP);
            }
        }
    }
}

impl<M: EthernetMac> Devices<M> {
    /// Devices at a wire.
    pub fn new(mac: M, seats: Vec<Seated>) -> Self {
        let highest = seats.iter().map(|seat| seat.slot.get()).max().unwrap_or(1);
        let port = RecordPort::new(mac, 1..=highest, WINDOWS);
        Self { port, seats, told: 0, met: 0 }
    }

    /// One turn, so long after the first. Whether there was anything.
    pub fn turn(&mut self, now: Duration) -> bool {
        self.port.look();
        let mut busy = self.introduce();
        while let Some((at, beside)) = self.port.beside() {
            busy = true;
            let seat = self.seats.iter_mut().find(|seat| seat.slot.get() == at.0);
            if let (Some(seat), Beside::Reset(signal)) = (seat, beside) {
                let kind = match signal {
                    SlotSignal::HotReset => ResetKind::HotReset,
                    SlotSignal::Perst { asserted } => ResetKind::Perst { asserted },
                };
                seat.device.handle_reset(now, kind);
            }
        }
        let Self { port, seats, .. } = self;
        for seat in seats {
            let at = SlotWire(seat.slot.get());
            busy |= feed(port, at, &mut *seat.device, now);
            if seat.device.poll_timeout().is_some_and(|due| due <= now) {
                seat.device.handle_timeout(now);
                busy = true;
            }
            busy |= drain(port, at, &mut *seat.device, now);
        }
        busy
    }

    /// Tells a card that has just come what is in the slots.
    fn introduce(&mut self) -> bool {
        let met = self.port.meetings();
        if met != self.met {
            (self.met, self.told) = (met, 0);
        }
        let mut any = false;
        while self.port.is_met()
            && let Some(seat) = self.seats.get(self.told)
        {
            let inserted = Body::Beside(Beside::Inserted(seat.model.clone()));
            if !self.port.say(SlotWire(seat.slot.get()), inserted) {
                break;
            }
            self.told += 1;
            any = true;
        }
        any
    }
}

fn feed<M: EthernetMac>(
    port: &mut RecordPort<M>,
    at: SlotWire,
    device: &mut dyn Device,
    now: Duration,
) -> bool {
    for moved in 0..BATCH {
        let takes = |class: &Class| device.can_take(*class);
        let takes: ClassSet = Class::ALL.into_iter().filter(takes).collect();
        let Some(tlp) = port.next(at, takes) else { return moved > 0 };
        device.handle_tlp(now, tlp);
        port.take(at);
    }
    true
}

fn drain<M: EthernetMac>(
    port: &mut RecordPort<M>,
    at: SlotWire,
    device: &mut dyn Device,
    now: Duration,
) -> bool {
    let mut buf = [0; MAX_TLP];
    for moved in 0..BATCH {
        let room = port.room(at);
        let mut classes = Classes::NONE;
        for class in Class::ALL {
            if room.contains(class) {
                classes = classes.with(class);
            }
        }
        let Some(length) = device.poll_tlp_of(now, classes, &mut buf) else { return moved > 0 };
        // A card takes no longer ones, and a model that is set up as the card says sends none.
        if length <= LONGEST {
            port.send(at, &buf[..length]);
        }
    }
    true
}
