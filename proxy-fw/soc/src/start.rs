//! From settings to a card: what is the same on every board.

use crate::board::EthernetMac;
use crate::card::{Card, CardConfig, CardRole};
use crate::ethernet;
use crate::log;
use crate::manage::{Management, ManagementConfig};
use crate::reset::{self, Life};
use crate::settings::{STRAY_GATEWAY, Settings};
use core::fmt;
use core::time::Duration;
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{CONTROL_VERSION, Hello, PathAddress, ResetReport, RoleKind, Term};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::{MAX_SLOTS, RECORDER_RING, SLOT_FUNCTIONS};
use proxy_core::link::LinkConfig;
use proxy_core::switch::{SwitchConfig, SwitchConfigError};
use proxy_core::time::Instant;

/// What waits for what, from the shortest bound to the longest, and how many a card works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A link for an acknowledgement before it sends again, at least and at most: several times before
    /// it gives up.
    pub resend: [Duration; 2],
    /// An end that opens a link, at most, before it tries again.
    pub open_retry: Duration,
    /// A link for its acknowledgements.
    pub give_up: Duration,
    /// A request for its answer.
    pub completion: Duration,
    /// A device for a completion (Completion Timeout).
    pub completion_timeout: Duration,
    /// Boxes that a host uses at a time, and hosts that a box serves. A further one is refused.
    pub peers: usize,
}

impl Bounds {
    /// These, if they suit each other: what a board has as a constant does not compile otherwise.
    ///
    /// # Panics
    ///
    /// When a link would give up before it has tried several times.
    #[must_use]
    pub const fn checked(self) -> Self {
        let [_, longest] = self.resend;
        assert!(longest.as_micros() * 4 < self.give_up.as_micros(), "it tries several times");
        self
    }
}

/// What a card starts with.
#[derive(Clone, Debug)]
pub struct Start {
    settings: Settings,
    bounds: Bounds,
    incarnation: u32,
    link: LinkConfig,
    max_frame: usize,
}

/// Bindings that a link of a box with so many slots has room for: one of each function that the slots
/// have room for, up to one of each slot of the largest box. Each takes guaranteed TLP buffers of each
/// host's link, and for more of them a card has no memory (`proxy-fw/soc/README.md`, "Memory").
fn channels(slots: u8) -> usize {
    (usize::from(slots) * SLOT_FUNCTIONS).min(MAX_SLOTS)
}

/// A box has no more slots than [`MAX_SLOTS`]: this many were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySlots(pub u8);

impl fmt::Display for TooManySlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "places = {}: a box has 1 to {MAX_SLOTS} slots; set places to that", self.0)
    }
}

impl core::error::Error for TooManySlots {}

impl Start {
    /// A card with these settings on this network. `incarnation` is another number at each start,
    /// and not 0.
    pub fn new(
        settings: Settings,
        bounds: Bounds,
        mac: &impl EthernetMac,
        incarnation: u32,
    ) -> Self {
        if settings.stray_gateway.is_some() {
            log!(warn, "settings: {=str}", STRAY_GATEWAY);
        }
        let tag = if settings.vlan.is_some() { ethernet::TAG } else { 0 };
        let max_frame = mac.max_frame() - ethernet::HEADER - tag;
        let channels = settings.places.into();
        let Bounds { resend: [min_rto, max_rto], open_retry: max_open_retry, give_up, .. } = bounds;
        let times = LinkConfig { min_rto, max_rto, max_open_retry, give_up, ..Default::default() };
        let link = LinkConfig { max_frame, channels, ..times };
        Self { settings, bounds, incarnation, link, max_frame }
    }

    /// What it was set to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The role of a box card, and what the manager is told of it.
    ///
    /// # Errors
    ///
    /// When a box cannot have so many slots.
    #[inline(never)] // its stack is needed once
    pub fn box_role(&self) -> Result<(BoxRole, RoleKind), TooManySlots> {
        let slots = self.settings.places;
        if usize::from(slots) > MAX_SLOTS {
            return Err(TooManySlots(slots));
        }
        let role = BoxRole::new(&BoxConfig {
            incarnation: self.incarnation,
            slots: slots.into(),
            link: LinkConfig { channels: channels(slots), ..self.link },
            peers: self.bounds.peers,
            recorder: RECORDER_RING,
            completion_bound: self.bounds.completion,
            completion_timeout: self.bounds.completion_timeout,
            ..BoxConfig::default()
        });
        Ok((role, RoleKind::Box { slots }))
    }

    /// The role of a host card, and what the manager is told of it.
    ///
    /// # Errors
    ///
    /// When there is no such switch.
    #[inline(never)] // its stack is needed once
    pub fn host_role(&self) -> Result<(HostRole, RoleKind), SwitchConfigError> {
        let ports = self.settings.places;
        let role = HostRole::new(&HostConfig {
            incarnation: self.incarnation,
            switch: SwitchConfig { ports, ..SwitchConfig::default() },
            link: self.link,
            peers: self.bounds.peers,
            recorder: RECORDER_RING,
            completion_bound: self.bounds.completion,
            longest_hold: (self.bounds.completion + self.bounds.completion_timeout) / 2,
        })?;
        Ok((role, RoleKind::Host { ports }))
    }

    /// The card. `life` is what the boot loader began, `reset` why, which is logged.
    #[inline(never)] // its stack is needed once
    pub fn card<R: CardRole>(
        self,
        (role, kind): (R, RoleKind),
        now: Instant,
        mac: &mut impl EthernetMac,
        life: Option<&Life>,
        reset: Option<ResetReport>,
    ) -> Card<R> {
        let Self { settings, incarnation, max_frame, .. } = self;
        if let Some(reset) = &reset {
            let (cause, text) = (reset::name(reset.cause), reset.text.as_str());
            log!(
                info,
                "start {=u32}: {=str} {=u32:#010x} {=str}",
                reset.boots,
                cause,
                reset.place,
                text
            );
        }
        let resets = life.map_or_else(Default::default, |life| life.counts);
        let path = PathAddress::Ethernet { mac: mac.address(), vlan: settings.vlan };
        let hello = Hello {
            version: CONTROL_VERSION,
            name: settings.name,
            role: kind,
            incarnation,
            node: None,
            paths: [path].into_iter().collect(),
            mtu: max_frame as u16,
            term: Term(0),
        };
        let config = ManagementConfig {
            addressing: settings.addressing,
            manager: settings.manager,
            seed: u64::from(incarnation),
            hello,
        };
        let manage = Management::new(now, mac, config);
        Card::new(role, manage, CardConfig { vlan: settings.vlan, max_frame, reset, resets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::WireMac;
    use std::format;
    use std::string::ToString;

    fn start(places: u8) -> Start {
        let text = format!("name = card-1\nmanager = 10.0.2.2:7781\nplaces = {places}\n");
        let second = Duration::from_secs(1);
        let bounds = Bounds {
            resend: [second / 100, second / 10],
            open_retry: second / 10,
            give_up: second,
            completion: second,
            completion_timeout: second,
            peers: 1,
        };
        let (mac, _) = WireMac::pair(1, 2, 1);
        Start::new(text.parse().unwrap(), bounds, &mac, 1)
    }

    #[test]
    fn one_host_may_use_all_functions_of_a_few_slots_and_a_function_of_each_of_many() {
        for (slots, bindings) in [(1, SLOT_FUNCTIONS), (16, 16)] {
            assert_eq!(channels(slots), bindings);
        }
        assert!((1..=16).all(|slots| channels(slots) >= slots.into()));
        assert!(channels(4) > 4, "a device with several functions is lent as a whole");
    }

    #[test]
    fn a_box_with_more_slots_than_there_can_be_is_refused_with_words() {
        for places in [1, 16] {
            assert_eq!(start(places).box_role().unwrap().1, RoleKind::Box { slots: places });
        }
        for places in [17, 32] {
            let why = start(places).box_role().err().unwrap();
            assert_eq!(why, TooManySlots(places));
            let said = format!("places = {places}: a box has 1 to 16 slots; set places to that");
            assert_eq!(why.to_string(), said);
        }
        // A host may have as many ports.
        assert_eq!(start(32).host_role().unwrap().1, RoleKind::Host { ports: 32 });
    }
}
