//! Hot-plug: what a slot's status tells, the button, and resets of what is behind a port.

use super::devices::FUNCTION_RESET;
use super::{Alarm, BRIDGE_CONTROL, COMMAND, Os, SLOT, Stage, Then};
use crate::host::driver::Driver;
use crate::host::{all_of, first};
use proxy_core::time::Instant;
use std::time::Duration;

/// How long it waits before it asks a device again that said "later".
const RETRY: Duration = Duration::from_millis(10);
/// How long a driver may take to end its work when its device is to go.
const STOP: Duration = Duration::from_millis(500);
/// How long a function is left alone after a reset of its own (PCIe 5.0 section 6.6.2).
const FUNCTION_RESETS: Duration = Duration::from_millis(100);
/// How often it asks.
const RETRIES: u32 = 500;
/// How often a function is told to reset itself before its bus is reset.
const FUNCTION_TRIES: u32 = 50;

/// Button, presence, link state and hot-plug interrupt.
pub(super) const SLOT_ENABLES: u32 = 1 | 1 << 3 | 1 << 5 | 1 << 12 | 0b11 << 6;
pub(super) const BUS_RESET: u32 = 1 << 22;
const BUTTON: u32 = 1 << 16;
const PRESENCE_CHANGED: u32 = 1 << 19;
const PRESENT: u32 = 1 << 22;
const LINK_CHANGED: u32 = 1 << 24;

/// Of a power indicator: the value that is reserved, which leaves it as it is.
pub(super) const AS_IS: u32 = 0b00;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Light {
    On = 0b01,
    Blink = 0b10,
    Off = 0b11,
}

impl Os {
    /// Resets the bus behind a port (Secondary Bus Reset) and begins anew with the device, as when a
    /// driver has given it up. Whether there is one to be reset.
    pub(crate) fn reset_bus(&mut self, port: usize) -> bool {
        let port = first(port);
        if self.stage(port) != Stage::Ready {
            return false;
        }
        self.drop_driver(port);
        self.lose_others(port);
        self.keep_script_of_slot(port);
        self.go(port, Stage::Enumerating);
        self.ports[port].retries = 0;
        self.ports[port].resetting = true;
        let at = self.layout.port_id(port);
        let [reset, none] = [BUS_RESET, 0].map(|bits| self.bridge_control(bits));
        self.write(port, at, BRIDGE_CONTROL, reset, 0b1100, Then::BusReset { behind: port });
        self.write(port, at, BRIDGE_CONTROL, none, 0b1100, Then::Nothing);
        // That the link was down is its own doing.
        self.write(port, at, SLOT, LINK_CHANGED, 0b1100, Then::Nothing);
        self.read(port, self.layout.device_id(port), 0, Then::Found);
        true
    }

    /// Resets one function of the device behind a port, of which the others go on, and begins anew
    /// with it. Whether there is one to be reset.
    pub(crate) fn reset_function(&mut self, port: usize) -> bool {
        if self.stage(port) != Stage::Ready {
            return false;
        }
        self.drop_driver(port);
        self.keep_script_of_slot(port);
        self.go(port, Stage::Resetting);
        self.ports[port].retries = 0;
        self.tell_to_reset(port);
        true
    }

    /// Begins anew with a function that was reset on its way from D3hot to D0. Whoever does nothing of
    /// that kind by itself leaves what it does not use as the reset has left it.
    pub(super) fn begin_anew(&mut self, now: Instant, port: usize) {
        if self.stage(port) != Stage::Ready {
            return;
        }
        self.drop_driver(port);
        self.keep_script_of_slot(port);
        self.go(port, Stage::Enumerating);
        self.ports[port].retries = 0;
        let turn = self.ports[port].turn;
        self.alarms.push((now + RETRY, Alarm { port, turn, driver: false }));
    }

    fn tell_to_reset(&mut self, port: usize) {
        let register = self.device_control(port);
        let then = Then::FunctionReset;
        self.write(port, self.layout.device_id(port), register, FUNCTION_RESET, 0b0011, then);
    }

    /// A function was told to reset itself, and has said that it does, or not.
    pub(super) fn function_reset(&mut self, now: Instant, port: usize, good: bool) {
        if self.stage(port) != Stage::Resetting || self.ports[port].retries >= RETRIES {
            return;
        }
        if good {
            self.go(port, Stage::Enumerating);
        }
        let entry = &mut self.ports[port];
        entry.retries = if good { 0 } else { entry.retries + 1 };
        if entry.retries >= FUNCTION_TRIES && self.reset_bus_instead(port) {
            return;
        }
        let turn = self.ports[port].turn;
        self.alarms.push((now + FUNCTION_RESETS, Alarm { port, turn, driver: false }));
    }

    /// A device of which nobody can be told anything any more, since it answers nothing under all of its
    /// tags, is reset with its bus. Whether that is done.
    fn reset_bus_instead(&mut self, port: usize) -> bool {
        if port == first(port) {
            self.go(port, Stage::Ready);
        }
        self.reset_bus(port)
    }

    /// What is planned for the device is of no use; its slot has nothing to do with that.
    fn keep_script_of_slot(&mut self, port: usize) {
        let slot = self.layout.port_id(port);
        self.ports[port].script.retain(|access| access.at == slot);
    }

    /// The first function is ready: the others are looked for. Those that are there have nothing to
    /// do with its reset.
    pub(super) fn find_others(&mut self, port: usize) {
        for other in all_of(port).take(self.functions).skip(1) {
            if self.stage(other) != Stage::Empty {
                continue;
            }
            self.ports[other].retries = 0;
            self.go(other, Stage::Enumerating);
            self.read(other, self.layout.device_id(other), 0, Then::Found);
        }
    }

    /// What becomes of the first function becomes of the others.
    fn lose_others(&mut self, port: usize) {
        for other in all_of(port).skip(1) {
            self.drop_driver(other);
            self.ports[other].script.clear();
            self.go(other, Stage::Empty);
        }
    }

    /// Only the first function has a port of its own.
    pub(super) fn light(&mut self, port: usize, light: Light, then: Then) {
        if port != first(port) {
            return;
        }
        let value = SLOT_ENABLES | (light as u32) << 8;
        self.write(port, self.layout.port_id(port), SLOT, value, 0b0011, then);
    }

    /// The device said "later", or nothing that makes sense.
    pub(super) fn not_yet(&mut self, now: Instant, port: usize) {
        let entry = &mut self.ports[port];
        if entry.stage != Stage::Enumerating || entry.retries >= RETRIES {
            return;
        }
        entry.retries += 1;
        entry.turn += 1;
        let turn = entry.turn;
        self.alarms.push((now + RETRY, Alarm { port, turn, driver: false }));
    }

    pub(super) fn status(&mut self, now: Instant, port: usize, value: u32) {
        let changed = value & (BUTTON | PRESENCE_CHANGED | LINK_CHANGED);
        if changed != 0 {
            self.write(port, self.layout.port_id(port), SLOT, changed, 0b1100, Then::Nothing);
            // What happened meanwhile has set the bits again, without an interrupt.
            self.ports[port].again = true;
        }
        let present = value & PRESENT != 0;
        // A reset of its own takes the link down and up again.
        let counts = if self.ports[port].resetting {
            PRESENCE_CHANGED
        } else {
            PRESENCE_CHANGED | LINK_CHANGED
        };
        let moved = changed & counts != 0;
        if self.stage(port) != Stage::Empty && (moved || !present) {
            self.gone(port);
        }
        match self.stage(port) {
            Stage::Empty if present => {
                self.ports[port].retries = 0;
                self.go(port, Stage::Enumerating);
                self.light(port, Light::Blink, Then::Nothing);
                self.read(port, self.layout.device_id(port), 0, Then::Found);
            }
            Stage::Ready if changed & BUTTON != 0 => {
                self.go(port, Stage::Blinking);
                self.light(port, Light::Blink, Then::Nothing);
                let turn = self.ports[port].turn;
                self.alarms.push((now + self.blink, Alarm { port, turn, driver: false }));
            }
            _ => {}
        }
    }

    pub(super) fn let_go(&mut self, port: usize) {
        self.drop_driver(port);
        self.lose_others(port);
        for other in all_of(port).take(self.functions).skip(1) {
            self.write(other, self.layout.device_id(other), COMMAND, 0, 0b0011, Then::Nothing);
        }
        self.go(port, Stage::LettingGo);
        self.write(port, self.layout.device_id(port), COMMAND, 0, 0b0011, Then::Nothing);
        self.light(port, Light::Off, Then::LetGo);
    }

    /// Time is over.
    pub(crate) fn alarm(&mut self, now: Instant, alarm: Alarm) {
        let Alarm { port, turn, driver } = alarm;
        if driver {
            // It is looked after whenever anything happens.
            self.ports[port].wakes = None;
            return;
        }
        if self.ports[port].turn != turn {
            return;
        }
        match self.stage(port) {
            Stage::Enumerating => self.read(port, self.layout.device_id(port), 0, Then::Found),
            Stage::Resetting => self.tell_to_reset(port),
            Stage::Blinking if self.ports[port].driver.as_mut().is_some_and(Driver::stop) => {
                self.go(port, Stage::Stopping);
                let turn = self.ports[port].turn;
                self.alarms.push((now + STOP, Alarm { port, turn, driver: false }));
            }
            Stage::Blinking | Stage::Stopping => self.let_go(port),
            _ => {}
        }
    }

    /// What was found did not take what it was to be set to. A further function is looked for again: nobody
    /// hears that it alone does not work.
    pub(super) fn not_made_ready(&mut self, now: Instant, port: usize) {
        if port == first(port) {
            return self.gone(port);
        }
        self.ports[port].script.clear();
        self.not_yet(now, port);
    }

    /// The device is not there any more, or does not work.
    pub(super) fn gone(&mut self, port: usize) {
        self.drop_driver(port);
        self.go(port, Stage::Empty);
        if port != first(port) {
            self.ports[port].script.clear();
            return;
        }
        self.lose_others(port);
        self.keep_script_of_slot(port);
        // Another device may be there by now, and may have been taken up for the one that is gone.
        self.light(port, Light::Off, Then::GaveUp);
        self.ports[port].again = true;
    }
}
