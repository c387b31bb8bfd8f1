//! What a person in front of the card sees and plugs: a light for each place of the PCIe side, and
//! the network module's cage.

use crate::hardware::{Registers, card, modules};
use crate::layout::{LIGHTS, MODULE_ABSENT};
use proxy_core::time::Instant;
use soc::blocks::gpio::Pin;
use soc::board::{Places, SlotWire};
use soc::log;
use soc::peripherals::cage::{Cage, Seen};
use soc::peripherals::lights::Lights;

/// Lights and cage.
pub(crate) struct Panel {
    lights: Lights<Pin<Registers>>,
    cage: Cage<Pin<Registers>>,
}

impl Panel {
    /// With dark lights of so many places, and what is in the cage told.
    pub(crate) fn new(now: Instant, first: SlotWire, places: u8) -> Self {
        let block = card().gpio();
        let pins = (LIGHTS..).take(places.into()).map(|number| Pin::output(block, number, false));
        let Ok(lights) = Lights::new(first, pins);
        let Ok(cage) = Cage::new(Pin::input(block, MODULE_ABSENT));
        let mut panel = Self { lights, cage };
        panel.look_at_cage(now);
        panel
    }

    /// Shows what is at the places, and tells what is new in the cage.
    pub(crate) fn show(&mut self, now: Instant, places: impl FnOnce() -> Places) {
        let Ok(shown) = self.lights.show(now, places);
        if shown {
            self.look_at_cage(now);
        }
    }

    /// When there may be something to show.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.lights.poll_timeout()
    }

    #[inline(never)] // its stack is needed seldom
    fn look_at_cage(&mut self, now: Instant) {
        let Ok(seen) = self.cage.poll(now, modules);
        match seen {
            None => {}
            Some(Seen::Empty) => log!(info, "no network module"),
            Some(Seen::Module(said)) => {
                log!(info, "network module: {}", defmt::Display2Format(&said));
            }
            Some(Seen::Unknown(why)) => {
                log!(warn, "what the network module is: {}", defmt::Display2Format(&why));
            }
        }
    }
}
