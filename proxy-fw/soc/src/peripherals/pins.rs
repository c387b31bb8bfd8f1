//! Wires that are pins: PERST# of a slot, presence of what can be plugged, and lights.
//!
//! Where the PCIe block has a slot's PERST# and presence (`hw/regs/card.md`, "slot"), they are its.

use core::time::Duration;
use embedded_hal::digital::{InputPin, OutputPin};
use proxy_core::time::Instant;

/// PERST# of a slot, low while the slot is held in reset (PCI Express CEM 5.0, section 2.2).
#[derive(Debug)]
pub struct Perst<P>(P);

impl<P: OutputPin> Perst<P> {
    /// Holds the slot in reset.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn new(mut pin: P) -> Result<Self, P::Error> {
        pin.set_low()?;
        Ok(Self(pin))
    }

    /// Holds the slot in reset, or lets it go.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn set(&mut self, reset: bool) -> Result<(), P::Error> {
        if reset { self.0.set_low() } else { self.0.set_high() }
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.0
    }
}

/// How long presence has to be the same before it counts: contacts bounce.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// A pin that is low while something is plugged: PRSNT# of a slot (PCI Express CEM 5.0, section
/// 3.2), Mod_ABS of an SFP cage, ModPrsL of a QSFP one.
#[derive(Debug)]
pub struct Presence<P> {
    pin: P,
    /// What counts.
    present: bool,
    /// Since when the pin says something else.
    since: Option<Instant>,
}

impl<P: InputPin> Presence<P> {
    /// Nothing counts as plugged before the pin was seen for a while.
    pub fn new(pin: P) -> Self {
        Self { pin, present: false, since: None }
    }

    /// What the pin says counts already: at the start of a board, whose contacts bounced before.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn settled(mut pin: P) -> Result<Self, P::Error> {
        let present = pin.is_low()?;
        Ok(Self { pin, present, since: None })
    }

    /// Whether something counts as plugged.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Looks at the pin. What counts from now on, when that has changed.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn poll(&mut self, now: Instant) -> Result<Option<bool>, P::Error> {
        let seen = self.pin.is_low()?;
        if seen == self.present {
            self.since = None;
            return Ok(None);
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_since(since) < DEBOUNCE {
            return Ok(None);
        }
        self.present = seen;
        self.since = None;
        Ok(Some(seen))
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.pin
    }
}

/// What a light shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Dark.
    Off,
    /// Lit for a quarter of each second.
    Flashing,
    /// Half a second each: 1 Hz, within what PCI Express asks of indicators (Base 5.0, section
    /// 6.7.1.1.1: 1 to 2 Hz, 50 % ± 5 %).
    Blinking,
    /// A quarter of a second each: 2 Hz.
    BlinkingFast,
    /// Lit.
    On,
}

/// What a light shows changes at multiples of this.
pub const QUARTER: Duration = Duration::from_millis(250);

impl Shows {
    /// Whether it is lit, in each quarter of a second.
    const fn quarters(self) -> [bool; 4] {
        match self {
            Self::Off => [false; 4],
            Self::Flashing => [true, false, false, false],
            Self::Blinking => [true, true, false, false],
            Self::BlinkingFast => [true, false, true, false],
            Self::On => [true; 4],
        }
    }
}

/// A light that is lit while its pin is high.
#[derive(Debug)]
pub struct Light<P> {
    pin: P,
    lit: bool,
}

impl<P: OutputPin> Light<P> {
    /// A light that is dark.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn new(mut pin: P) -> Result<Self, P::Error> {
        pin.set_low()?;
        Ok(Self { pin, lit: false })
    }

    /// Drives the pin; to be called again at the next multiple of [`QUARTER`] while it blinks.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn poll(&mut self, now: Instant, shows: Shows) -> Result<(), P::Error> {
        let quarter = now.as_nanos() / QUARTER.as_nanos() as u64 % 4;
        let lit = shows.quarters()[quarter as usize];
        if lit != self.lit {
            if lit { self.pin.set_high() } else { self.pin.set_low() }?;
            self.lit = lit;
        }
        Ok(())
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.pin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_hal_mock::eh1::digital::{Mock, State, Transaction};
    use std::vec::Vec;

    fn sets(levels: &[State]) -> Mock {
        let transactions: Vec<_> = levels.iter().map(|level| Transaction::set(*level)).collect();
        Mock::new(&transactions)
    }

    #[test]
    fn a_slot_is_in_reset_until_it_is_let_go() {
        let mut perst = Perst::new(sets(&[State::Low, State::High, State::Low])).unwrap();
        perst.set(false).unwrap();
        perst.set(true).unwrap();
        perst.release().done();
    }

    #[test]
    fn bounces_do_not_count() {
        // Low is present. Each pair: milliseconds, what counts then.
        let seen = [
            (0, State::Low, None),
            (40, State::High, None),
            (80, State::Low, None),
            (179, State::Low, None),
            (180, State::Low, Some(true)),
            (500, State::Low, None),
            (600, State::High, None),
            (700, State::High, Some(false)),
        ];
        let pin: Vec<_> = seen.iter().map(|(_, level, _)| Transaction::get(*level)).collect();
        let mut presence = Presence::new(Mock::new(&pin));
        for (at, _, expected) in seen {
            let now = Instant::ZERO + Duration::from_millis(at);
            assert_eq!(presence.poll(now).unwrap(), expected, "{at} ms");
        }
        presence.release().done();
    }

    #[test]
    fn what_is_plugged_at_the_start_counts_at_once() {
        for (level, present) in [(State::Low, true), (State::High, false)] {
            let pin = Mock::new(&[Transaction::get(level), Transaction::get(level)]);
            let mut presence = Presence::settled(pin).unwrap();
            assert_eq!(presence.is_present(), present);
            assert_eq!(presence.poll(Instant::ZERO).unwrap(), None);
            presence.release().done();
        }
    }

    #[test]
    fn lights_blink_once_a_second() {
        let levels = [State::Low, State::High, State::Low, State::High, State::Low];
        let mut light = Light::new(sets(&levels)).unwrap();
        for at in (0..1500).step_by(50) {
            light.poll(Instant::ZERO + Duration::from_millis(at), Shows::Blinking).unwrap();
        }
        light.poll(Instant::ZERO, Shows::On).unwrap();
        light.poll(Instant::ZERO, Shows::Off).unwrap();
        light.release().done();
    }
}
