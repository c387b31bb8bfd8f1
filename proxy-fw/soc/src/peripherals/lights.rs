//! A light at each place of the PCIe side, which tells whoever stands before the card what is there.

use super::pins::{Light, QUARTER, Shows};
use crate::board::{PlaceState, Places, SlotWire};
use embedded_hal::digital::OutputPin;
use proxy_core::limits::MAX_SLOTS;
use proxy_core::time::Instant;

/// The lights.
#[derive(Debug)]
pub struct Lights<P> {
    lights: heapless::Vec<Light<P>, MAX_SLOTS>,
    first: SlotWire,
    due: Instant,
}

impl<P: OutputPin> Lights<P> {
    /// A dark light for each pin: of the place `first`, and of those behind it.
    ///
    /// # Errors
    ///
    /// What a pin says.
    ///
    /// # Panics
    ///
    /// When there are more than [`MAX_SLOTS`] pins.
    pub fn new(first: SlotWire, pins: impl IntoIterator<Item = P>) -> Result<Self, P::Error> {
        let lights = pins.into_iter().map(Light::new).collect::<Result<_, _>>()?;
        Ok(Self { lights, first, due: Instant::ZERO })
    }

    /// Shows what is at the places, which it asks for where a light may have to change. Whether it
    /// did; to be called again at [`poll_timeout`](Self::poll_timeout).
    ///
    /// # Errors
    ///
    /// What a pin says.
    pub fn show(
        &mut self,
        now: Instant,
        places: impl FnOnce() -> Places,
    ) -> Result<bool, P::Error> {
        if now < self.due {
            return Ok(false);
        }
        let quarter = QUARTER.as_nanos() as u64;
        self.due = Instant::from_nanos((now.as_nanos() / quarter + 1).saturating_mul(quarter));
        for (at, state) in places() {
            let index = at.0.checked_sub(self.first.0).map(usize::from);
            if let Some(light) = index.and_then(|index| self.lights.get_mut(index)) {
                light.poll(now, shows(state))?;
            }
        }
        Ok(true)
    }

    /// When a light may have to change next.
    pub fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// Gives the pins back.
    pub fn release(self) -> impl Iterator<Item = P> {
        self.lights.into_iter().map(Light::release)
    }
}

/// What the light of a place shows.
fn shows(state: PlaceState) -> Shows {
    match state {
        PlaceState::Empty => Shows::Off,
        PlaceState::Free => Shows::Flashing,
        PlaceState::Failed => Shows::BlinkingFast,
        PlaceState::Changing => Shows::Blinking,
        PlaceState::InUse => Shows::On,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlaceState::{Changing, Empty, Failed, Free, InUse};
    use core::time::Duration;
    use embedded_hal_mock::eh1::digital::{Mock, State, Transaction};
    use std::vec::Vec;

    fn pin(levels: &[State]) -> Mock {
        let transactions: Vec<_> = levels.iter().map(|level| Transaction::set(*level)).collect();
        Mock::new(&transactions)
    }

    #[test]
    fn each_state_of_a_place_is_seen_at_its_light() {
        use State::{High, Low};
        // In two seconds, each from dark on.
        let expected: [&[State]; 5] = [
            &[Low],
            &[Low, High, Low, High, Low],
            &[Low, High, Low, High, Low, High, Low, High, Low],
            &[Low, High, Low, High, Low],
            &[Low, High],
        ];
        let pins = expected.map(pin);
        let mut lights = Lights::new(SlotWire(1), pins).unwrap();
        let states = [Empty, Free, Failed, Changing, InUse];
        // One is of a place without a light.
        let places = || (1..).map(SlotWire).zip(states.into_iter().chain([InUse])).collect();
        let (mut asked, mut now) = (0, Instant::ZERO);
        while now < Instant::ZERO + Duration::from_secs(2) {
            let shown = lights.show(now, || {
                asked += 1;
                places()
            });
            assert!(shown.unwrap());
            assert!(!lights.show(now, || panic!("nothing can have changed")).unwrap());
            // Somebody looks earlier, too.
            now = lights.poll_timeout();
            let early = Instant::from_nanos(now.as_nanos() - 1);
            assert!(!lights.show(early, || panic!("it is not time yet")).unwrap());
        }
        assert_eq!(asked, 8, "four times a second");
        lights.release().for_each(|mut pin| pin.done());
    }

    #[test]
    fn a_light_goes_with_its_place() {
        let levels = [State::Low, State::High, State::Low];
        let mut lights = Lights::new(SlotWire::HOST, [pin(&levels)]).unwrap();
        for (number, state) in [Empty, InUse, InUse, Empty].into_iter().enumerate() {
            // Late, and never at the same part of a period.
            let now = Instant::ZERO + Duration::from_millis(390 * number as u64);
            let places = [(SlotWire::HOST, state)];
            assert!(lights.show(now, || places.into_iter().collect()).unwrap());
        }
        lights.release().for_each(|mut pin| pin.done());
    }
}
