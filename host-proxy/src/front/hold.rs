//! TLPs from above that the switch has no room for.

use super::routes::port_of;
use proxy_core::limits::{LINK_GIVE_UP, TLP_BUFFER};
use proxy_core::outstanding::RequestInfo;
use proxy_core::switch::VirtualSwitch;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{CplStatus, Packet};

/// How long the switch may have no room for a TLP: longer than a link takes to give up. The device
/// that it is for is hung then, and everything that comes from above waits behind it.
pub(super) const LONGEST_HOLD: Duration = Duration::from_millis(1500);

const _: () = assert!(LINK_GIVE_UP.as_nanos() < LONGEST_HOLD.as_nanos());

/// Ports whose device took nothing for too long, and has taken nothing since. What is for no one port
/// is not among them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck(u32);

impl Stuck {
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, port: Option<PortId>) -> bool {
        self.0 & bit_of(port) != 0
    }

    pub(super) fn add(&mut self, port: Option<PortId>) {
        self.0 |= bit_of(port);
    }

    pub(super) fn remove(&mut self, port: Option<PortId>) {
        self.0 &= !bit_of(port);
    }
}

fn bit_of(port: Option<PortId>) -> u32 {
    port.map_or(0, |port| 1 << port.get())
}

/// How long the TLP at the head of what comes from above may wait, and for whom nothing is waited
/// any more. A device that hangs is waited for once: everybody else's TLPs are behind its.
#[derive(Debug)]
pub(super) struct Hold {
    longest: Duration,
    since: Option<Instant>,
    stuck: Stuck,
}

impl Hold {
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, since: None, stuck: Stuck(0) }
    }

    /// The switch took a TLP.
    pub(super) fn taken(&mut self, switch: &VirtualSwitch, tlp: &[u8]) {
        self.since = None;
        // Mostly none is, and there is nothing to look for.
        if !self.stuck.is_empty() {
            self.stuck.remove(port_of(switch, tlp));
        }
    }

    /// The switch has no room for a TLP. Whether that is to be given up.
    pub(super) fn refused(&mut self, now: Instant, switch: &VirtualSwitch, tlp: &[u8]) -> bool {
        let since = *self.since.get_or_insert(now);
        let port = port_of(switch, tlp);
        if !self.stuck.has(port) && now.saturating_since(since) < self.longest {
            return false;
        }
        self.since = None;
        self.stuck.add(port);
        true
    }

    /// No device is to blame for how long the TLP has waited until now.
    pub(super) fn excuse(&mut self) {
        self.since = None;
    }

    /// Everything below was reset.
    pub(super) fn clear(&mut self) {
        (self.since, self.stuck) = (None, Stuck::default());
    }
}

/// The completion of a request that is given up, Unsupported Request as of one that a device never
/// answers; `None` for what has no completion.
pub(super) fn refusal(switch: &VirtualSwitch, tlp: &[u8]) -> Option<Vec<u8>> {
    let request = RequestInfo::of(&Packet::new_checked(tlp).ok()?)?;
    let completer = switch.device_id(port_of(switch, tlp)?);
    let mut buf = [0; TLP_BUFFER];
    let length = request.completion(completer, CplStatus::UnsupportedRequest, &mut buf).ok()?;
    Some(buf[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_core::host::{HostConfig, HostRole};
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{Class, Kind, Repr};

    fn bytes(kind: Kind<'_>) -> Vec<u8> {
        let mut buf = [0; TLP_BUFFER];
        let length = Repr::new(kind).emit(&mut buf).unwrap();
        buf[..length].to_vec()
    }

    fn write(at: u16, register: u16, value: u32) -> Vec<u8> {
        bytes(Kind::ConfigWrite {
            type1: at >= 0x0200,
            requester: Bdf::default(),
            tag: Tag::new(5).unwrap(),
            destination: Bdf::from_bits(at),
            register,
            first_be: 0xf,
            data: &value.to_le_bytes(),
        })
    }

    /// Two ports, to buses 3 and 4.
    fn role() -> HostRole {
        let mut role = HostRole::new(&HostConfig::default()).unwrap();
        for (at, buses) in [(0x0100, 0x0004_0201), (0x0200, 0x0003_0302), (0x0208, 0x0004_0402)] {
            role.handle_tlp(Instant::ZERO, &write(at, 0x18, buses)).unwrap();
        }
        role
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_device_that_hangs_is_waited_for_once_until_it_takes_something() {
        let role = role();
        let (switch, mut hold) = (role.switch(), Hold::new(Duration::from_millis(10)));
        let [hung, other] = [0x0300, 0x0400].map(|at| write(at, 0x04, 6));
        let waits = |hold: &mut Hold, tlp: &[u8], since: u64| {
            (since..).find(|now| hold.refused(at(*now), switch, tlp)).unwrap() - since
        };
        assert_eq!(waits(&mut hold, &hung, 0), 10);
        assert_eq!(waits(&mut hold, &hung, 20), 0);
        assert_eq!(waits(&mut hold, &other, 30), 10);
        hold.taken(switch, &hung);
        assert_eq!(waits(&mut hold, &hung, 50), 10);
        assert_eq!(waits(&mut hold, &other, 70), 0);
        hold.clear();
        assert_eq!(waits(&mut hold, &other, 80), 10);
        hold.clear();
        // Time for which no device is to blame does not count.
        assert!(!hold.refused(at(100), switch, &hung));
        hold.excuse();
        assert_eq!(waits(&mut hold, &hung, 200), 10);
    }

    #[test]
    fn a_request_that_is_given_up_is_answered() {
        let role = role();
        let answer = refusal(role.switch(), &write(0x0300, 0x04, 6)).unwrap();
        let answer = Packet::new_checked(&answer[..]).unwrap();
        assert_eq!(answer.class(), Some(Class::Completion));
        assert_eq!(answer.status(), CplStatus::UnsupportedRequest);
        assert_eq!((answer.tag().get(), answer.completer().bits()), (5, 0x0300));
        assert_eq!(refusal(role.switch(), &[0x40, 0, 0, 1]), None);
    }
}
