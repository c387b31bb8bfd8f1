//! A virtual machine's adapter at the PCIe side of a host card.

use crate::stream::StreamMac;
use host_proxy::front::vm::Below;
use proxy_core::boxes::SlotSignal;
use proxy_core::config_space::ResetKind;
use proxy_core::link::ClassSet;
use proxy_core::role::Backpressure;
use proxy_core::switch::VirtualSwitch;
use proxy_core::time::Instant;
use proxy_daemon::Clock;
use proxy_daemon::stop::Stop;
use proxy_net::{Waiting, wait_any};
use soc::board::{PcieSide, SlotWire, class_of};
use soc::records::{Beside, Body, RecordPort, Windows};
use std::collections::VecDeque;
use std::time::Duration;

/// TLPs that the machine's side stores, by class.
const WINDOWS: Windows = Windows([64, 32, 64]);

/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A host card below the adapter: the switch is in the card.
pub struct CardBelow {
    port: RecordPort<StreamMac>,
    clock: Clock,
    latest: Instant,
    /// Resets that wait to be said, at most three: PERST# comes and goes, and a hot reset behind it.
    resets: VecDeque<SlotSignal>,
    /// Whether a machine is there.
    present: bool,
    /// Which meeting the card was told of the machine in, and whether one was there.
    told: Option<(u64, bool)>,
    stop: Stop,
}

impl CardBelow {
    /// A card at a socket. When it goes, everything is told to stop.
    pub fn new(mac: StreamMac, stop: Stop) -> Self {
        Self {
            port: RecordPort::new(mac, 0..=0, WINDOWS),
            clock: Clock::default(),
            latest: Instant::ZERO,
            resets: VecDeque::new(),
            present: false,
            told: None,
            stop,
        }
    }

    /// Says what waits to be said, as far as there is room. Whether there was anything.
    fn say(&mut self) -> bool {
        let mut said = false;
        while self.port.is_met()
            && self.port.can_signal(SlotWire::HOST)
            && let Some(signal) = self.resets.pop_front()
        {
            self.port.signal(SlotWire::HOST, signal);
            said = true;
        }
        let now = (self.port.meetings(), self.present);
        let here = Body::Beside(Beside::RootComplex(self.present));
        if self.port.is_met() && self.told != Some(now) && self.port.say(SlotWire::HOST, here) {
            self.told = Some(now);
            said = true;
        }
        said
    }
}

impl Below for CardBelow {
    fn now(&mut self) -> Instant {
        self.latest = self.clock.now();
        self.latest
    }

    fn latest(&self) -> Instant {
        self.latest
    }

    fn receive(&mut self) -> Result<bool, String> {
        self.now();
        if self.port.mac().is_closed() {
            self.stop.request();
        }
        self.port.look();
        Ok(self.say())
    }

    fn handle_tlp(&mut self, _now: Instant, tlp: &[u8]) -> Result<(), Backpressure> {
        let class = class_of(tlp);
        // Nothing passes a reset.
        if !self.resets.is_empty() || !self.port.room(SlotWire::HOST).contains(class) {
            return Err(Backpressure);
        }
        self.port.send(SlotWire::HOST, tlp);
        Ok(())
    }

    fn poll_tlp(&mut self, _now: Instant, buf: &mut [u8]) -> Option<usize> {
        let tlp = self.port.next(SlotWire::HOST, ClassSet::ALL)?;
        let length = tlp.len();
        buf[..length].copy_from_slice(tlp);
        self.port.take(SlotWire::HOST);
        Some(length)
    }

    fn handle_reset(&mut self, kind: ResetKind) {
        let signals = match kind {
            // Nothing that waits is more than this.
            ResetKind::Fundamental => {
                self.resets.clear();
                &[SlotSignal::Perst { asserted: true }, SlotSignal::Perst { asserted: false }][..]
            }
            // None came behind the one that waits.
            ResetKind::Hot if self.resets.back() == Some(&SlotSignal::HotReset) => &[],
            ResetKind::Hot => &[SlotSignal::HotReset],
        };
        self.resets.extend(signals);
        self.say();
    }

    fn set_root_complex(&mut self, present: bool) {
        self.present = present;
        self.say();
    }

    fn switch(&self) -> Option<&VirtualSwitch> {
        None
    }

    fn wants_counters(&self) -> bool {
        false
    }

    fn set_counters(&mut self, _counters: Vec<(&'static str, u64)>) {}

    fn transmit(&mut self) -> Result<bool, String> {
        self.port.look();
        Ok(self.say())
    }

    fn rest(
        &mut self,
        busy: bool,
        timer: Option<Instant>,
        others: &[Waiting<'_>],
    ) -> Result<(), String> {
        if busy {
            return Ok(());
        }
        let until = timer.map_or(LONGEST_SLEEP, |at| at.saturating_since(self.latest));
        let (fd, write) = self.port.mac().waits_on();
        let card = Waiting { fd, read: true, write };
        let all: Vec<Waiting<'_>> = others.iter().copied().chain([card]).collect();
        wait_any(std::iter::empty(), &all, until.min(LONGEST_SLEEP)).map_err(|e| e.to_string())
    }
}
