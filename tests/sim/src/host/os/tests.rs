//! The operating system alone, with somebody who answers.

use super::*;
use crate::egress::completion;
use crate::oracle::completion::Requests;
use std::convert::Infallible;
use tlp_codec::tlp::{Packet, TlpType};

/// An operating system of two ports, and the accesses that nobody has answered.
struct Alone {
    os: Os,
    profile: Profile,
    out: Egress<Purpose>,
    requests: Requests<Asker>,
    /// What it asked, and was answered.
    answered: Vec<(Bdf, u16)>,
}

impl Alone {
    fn new() -> Self {
        let profile = Profile::calm();
        let os = Os::new((1, 0), 2 * FUNCTIONS, &profile, Drives::new(std::iter::empty()));
        let (out, requests) = (Egress::new(), Requests::new());
        Self { os, profile, out, requests, answered: Vec::new() }
    }

    /// Answers every access, reads with zeros, but for those to `silent`, until there is no more.
    fn play(&mut self, silent: Option<Bdf>) {
        loop {
            let mut asked = Vec::new();
            self.os.work(Instant::ZERO, &mut self.out, &self.profile).unwrap();
            let taken = self.out.offer(|waiting| {
                let tag = Tag::new(self.requests.free_tag().unwrap()).unwrap();
                Packet::new_checked(&mut waiting.bytes[..]).unwrap().set_tag(tag);
                self.requests.ask(Instant::ZERO, &waiting.bytes, 1, (waiting.mark, None));
                asked.push(waiting.bytes.clone());
                Ok::<bool, Infallible>(true)
            });
            if !taken.unwrap() {
                return;
            }
            asked.iter().for_each(|tlp| self.answer(tlp, silent));
        }
    }

    fn answer(&mut self, tlp: &[u8], silent: Option<Bdf>) {
        let packet = Packet::new_checked(tlp).unwrap();
        let destination = packet.destination();
        if silent == Some(destination) {
            return;
        }
        self.answered.push((destination, packet.register()));
        let reads = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgRd1);
        let data = if reads { &[0; 4][..] } else { &[] };
        let id = (destination, packet.tag());
        let repr = completion(&packet, id, CplStatus::Success, (4, 0), data);
        let mut bytes = vec![0; repr.buffer_len()];
        let length = repr.emit(&mut bytes).unwrap();
        let done = self.requests.complete(&bytes[..length], false).unwrap();
        let Purpose::Access { port, boot, then, .. } = done.asked.purpose.0 else {
            panic!("{:?} is no access", done.asked.purpose.0)
        };
        self.os.accessed(Instant::ZERO, (port, boot), then, &done, data);
    }
}

#[test]
fn a_device_that_is_silent_keeps_no_other_slot_from_being_looked_at() {
    let mut alone = Alone::new();
    alone.os.boot();
    alone.play(Some(alone.os.layout().upstream()));
    assert_eq!(alone.answered, [], "the switch is not set up");

    let mut alone = Alone::new();
    alone.os.boot();
    alone.play(None);
    let layout = *alone.os.layout();
    for port in [0, FUNCTIONS] {
        let slot = (layout.port_id(port), SLOT);
        assert_eq!(alone.answered.iter().filter(|answered| **answered == slot).count(), 2);
    }
    // The first port waits for its device, and has something to tell the switch next.
    alone.os.write(0, layout.device_id(0), COMMAND, 0, 0b0011, Then::Nothing);
    alone.os.light(0, Light::Off, Then::Nothing);
    alone.play(Some(layout.device_id(0)));
    alone.answered.clear();
    alone.os.ports[FUNCTIONS].again = true;
    alone.play(Some(layout.device_id(0)));
    assert_eq!(alone.answered, [(layout.port_id(FUNCTIONS), SLOT)]);
}

#[test]
fn a_function_that_is_reset_is_left_alone_for_a_while_and_its_sibling_always() {
    let mut alone = Alone::new();
    alone.os.boot();
    alone.play(None);
    for port in [0, 1] {
        alone.os.ports[port].stage = Stage::Ready;
    }
    alone.os.functions = 2;
    alone.os.alarms.clear();
    assert!(!alone.os.reset_function(FUNCTIONS), "nothing is there");
    assert!(alone.os.reset_function(0));
    alone.answered.clear();
    alone.play(None);
    let device = alone.os.layout().device_id(0);
    let control = alone.os.device_control(0);
    assert_eq!(alone.answered, [(device, control)]);
    let [(at, alarm)] = alone.os.alarms[..] else { panic!("{:?}", alone.os.alarms) };
    assert_eq!(at, Instant::ZERO + Duration::from_millis(100));
    alone.os.alarm(at, alarm);
    alone.play(None);
    assert_eq!(alone.answered, [(device, control), (device, 0)], "then its ID is read");
    alone.os.find_others(0);
    assert_eq!((alone.os.stage(0), alone.os.stage(1)), (Stage::Enumerating, Stage::Ready));
}
