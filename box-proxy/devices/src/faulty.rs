//! A device that misbehaves on purpose.

use crate::device::{Classes, Device, ResetKind};
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{Class, Packet};

/// What a [`Faulty`] device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends no completion.
    Silent,
    /// Sends each completion twice.
    Twice,
    /// Sends completions this much later.
    Late(Duration),
    /// Sends completions with the tag changed by exclusive or with this.
    WrongTag(u8),
    /// Sends everything that has data as poisoned.
    Poisoned,
    /// Sends TLPs whose Length does not say how much data there is.
    Malformed,
    /// Is gone: takes nothing, sends nothing, whatever happens to it.
    Gone,
}

/// TLPs that a [`Fault::Late`] or [`Fault::Twice`] device holds back. When it is full the device
/// is not polled, so that it holds back itself what there is more.
pub const HELD: usize = 256;

/// A device between which and its link something goes wrong, from the `n`th TLP on that the
/// fault concerns. Without a fault it is the device itself.
pub struct Faulty<D: Device> {
    device: D,
    fault: Option<Fault>,
    /// TLPs that the fault concerns and that are still to be left as they are.
    spared: u64,
    /// What is sent later, and when at the earliest.
    held: VecDeque<(Duration, Vec<u8>)>,
    injected: u64,
    ignored: u64,
}

impl<D: Device> Faulty<D> {
    /// A device that has no fault yet.
    pub fn new(device: D) -> Self {
        Self { device, fault: None, spared: 0, held: VecDeque::new(), injected: 0, ignored: 0 }
    }

    /// From the TLP on that comes after the next `spared` ones that it concerns, does this
    /// wrong; `None` makes the device well again. What is held back is still sent.
    pub fn set_fault(&mut self, fault: Option<Fault>, spared: u64) {
        (self.fault, self.spared) = (fault, spared);
        if fault == Some(Fault::Gone) {
            self.held.clear();
        }
    }

    /// The device inside.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device inside.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn is_gone(&self) -> bool {
        self.fault == Some(Fault::Gone)
    }

    /// The fault, if it concerns this TLP and its time has come.
    fn applies(&mut self, packet: &Packet<&[u8]>) -> Option<Fault> {
        let fault = self.fault?;
        let concerned = match fault {
            Fault::Silent | Fault::Twice | Fault::Late(_) | Fault::WrongTag(_) => {
                packet.class() == Some(Class::Completion)
            }
            Fault::Poisoned => packet.has_data(),
            Fault::Malformed => true,
            Fault::Gone => false,
        };
        if !concerned {
            return None;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        self.injected += 1;
        Some(fault)
    }

    /// The next TLP that was held back and may be sent now.
    fn take_held(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        if !classes.has(Class::Completion) || self.held.front().is_none_or(|&(at, _)| now < at) {
            return None;
        }
        let (_, tlp) = self.held.pop_front()?;
        buf[..tlp.len()].copy_from_slice(&tlp);
        Some(tlp.len())
    }

    /// Spoils the TLP in `buf`; its length then, or nothing if it is not to be sent now.
    fn spoil(&mut self, now: Duration, buf: &mut [u8], len: usize) -> Option<usize> {
        let Ok(packet) = Packet::new_checked(&buf[..len]) else { return Some(len) };
        let fault = self.applies(&packet);
        let (header, tag) = (packet.prefix_bytes().len(), packet.tag().get());
        let tlp = &mut buf[..len];
        match fault {
            None | Some(Fault::Gone) => {}
            Some(Fault::Silent) => return None,
            Some(Fault::Twice) => self.held.push_back((now, tlp.to_vec())),
            Some(Fault::Late(by)) => {
                self.held.push_back((now + by, tlp.to_vec()));
                return None;
            }
            Some(Fault::WrongTag(change)) => {
                if let (Ok(mut packet), Ok(tag)) =
                    (Packet::new_checked(tlp), Tag::new(tag ^ u16::from(change)))
                {
                    packet.set_tag(tag);
                }
            }
            Some(Fault::Poisoned) => {
                if let Ok(mut packet) = Packet::new_checked(tlp) {
                    packet.set_poisoned(true);
                }
            }
            // The lowest bit of Length; of a TLP without data that is how much is asked for, so
            // it claims to have data as well.
            Some(Fault::Malformed) => {
                tlp[header] |= 0x40;
                tlp[header + 3] ^= 1;
            }
        }
        Some(len)
    }
}

impl<D: Device> Device for Faulty<D> {
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]) {
        if self.is_gone() {
            self.ignored += 1;
        } else {
            self.device.handle_tlp(now, tlp);
        }
    }

    fn can_take(&self, class: Class) -> bool {
        self.is_gone() || self.device.can_take(class)
    }

    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        if self.is_gone() {
            return None;
        }
        if let Some(len) = self.take_held(now, classes, buf) {
            return Some(len);
        }
        while self.held.len() < HELD {
            let len = self.device.poll_tlp_of(now, classes, buf)?;
            if let Some(len) = self.spoil(now, buf, len) {
                return Some(len);
            }
        }
        None
    }

    fn handle_reset(&mut self, now: Duration, kind: ResetKind) {
        if !self.is_gone() {
            // What was on its way is lost with the link.
            self.held.clear();
            self.device.handle_reset(now, kind);
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.is_gone() {
            return None;
        }
        let held = self.held.front().map(|&(at, _)| at);
        [held, self.device.poll_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Duration) {
        if !self.is_gone() {
            self.device.handle_timeout(now);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut list = self.device.counters();
        list.push(("faults_injected", self.injected));
        list.push(("ignored_while_gone", self.ignored));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::{Accelerator, Config};
    use crate::endpoint::Endpoint;
    use tlp_codec::ids::Bdf;
    use tlp_codec::tlp::{Kind, MAX_TLP, Repr};

    type Rig = Faulty<Endpoint<Accelerator>>;

    fn device(fault: Fault) -> Rig {
        let config = Config { memory_size: 4096, ..Config::default() };
        let mut device = Faulty::new(Accelerator::device(config).unwrap());
        device.set_fault(Some(fault), 1);
        device
    }

    /// Asks for the vendor ID; everything that comes back at `now`.
    fn ask(device: &mut Rig, now: Duration, tag: u16) -> Vec<Vec<u8>> {
        let mut buf = [0; MAX_TLP];
        let read = Kind::ConfigRead {
            type1: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(tag).unwrap(),
            destination: Bdf::from_bits(0x100),
            register: 0,
            first_be: 15,
        };
        let len = Repr::new(read).emit(&mut buf).unwrap();
        device.handle_tlp(now, &buf[..len]);
        poll(device, now)
    }

    fn poll(device: &mut Rig, now: Duration) -> Vec<Vec<u8>> {
        let mut buf = [0; MAX_TLP];
        let mut came = Vec::new();
        while let Some(len) = device.poll_tlp(now, &mut buf) {
            came.push(buf[..len].to_vec());
        }
        came
    }

    fn tag(tlp: &[u8]) -> u16 {
        Packet::new_checked(tlp).unwrap().tag().get()
    }

    const T0: Duration = Duration::from_secs(1);

    #[test]
    fn each_fault_spares_what_it_is_told_to_and_then_shows() {
        let second = |fault| {
            let mut d = device(fault);
            let first = ask(&mut d, T0, 1);
            assert_eq!((first.len(), tag(&first[0])), (1, 1));
            (ask(&mut d, T0, 2), d)
        };
        assert!(second(Fault::Silent).0.is_empty());
        let (twice, _) = second(Fault::Twice);
        assert_eq!(twice.len(), 2);
        assert_eq!(twice[0], twice[1]);
        let (wrong, _) = second(Fault::WrongTag(0x30));
        assert_eq!(tag(&wrong[0]), 0x32);
        let (poisoned, _) = second(Fault::Poisoned);
        assert!(Packet::new_checked(&poisoned[0][..]).unwrap().is_poisoned());
        let (malformed, d) = second(Fault::Malformed);
        assert!(Packet::new_checked(&malformed[0][..]).is_err());
        assert!(d.counters().contains(&("faults_injected", 1)));
    }

    #[test]
    fn a_late_device_says_when_it_will_be_ready() {
        let mut d = device(Fault::Late(Duration::from_millis(30)));
        d.set_fault(d.fault, 0);
        assert!(ask(&mut d, T0, 7).is_empty());
        let at = d.poll_timeout().unwrap();
        assert_eq!(at, T0 + Duration::from_millis(30));
        assert!(poll(&mut d, at - Duration::from_nanos(1)).is_empty());
        let late = poll(&mut d, at);
        assert_eq!(tag(&late[0]), 7);
    }

    #[test]
    fn a_device_that_is_gone_stays_gone_until_told_otherwise() {
        let mut d = device(Fault::Gone);
        assert!(ask(&mut d, T0, 1).is_empty());
        d.handle_reset(T0, ResetKind::HotReset);
        assert_eq!(d.poll_timeout(), None);
        assert!(d.counters().contains(&("ignored_while_gone", 1)));
        d.set_fault(None, 0);
        assert_eq!(ask(&mut d, T0, 2).len(), 1);
    }
}
