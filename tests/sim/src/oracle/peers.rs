//! What devices of one host ask of each other, through its switch: the TLPs of one device for
//! another one, and the answers, are a flow of their own, with the order that the table demands of
//! everything that goes the same way.
//!
//! Either device can be reset, released or lost at any time. Then what is under way between the two
//! may come or not; at the other end it may even come to the port's next tenant, if it was behind
//! the switch already: addresses are the host's, and who is behind them is its affair.
//!
//! Where the switch redirects it (`access`), it comes to the root complex, which passes it on: that is
//! a flow of its own, too.

use super::binding::{Binding, Bindings};
use super::order::{Flow, Seen, Sent};
use super::{Verdict, Violation};
use crate::host::{first, port_name};
use proxy_core::time::Instant;

/// A binding, and how often it had been upset: what was sent to it before that may be lost.
pub(crate) type State = (usize, u64);

/// What a binding sends the device behind another port of its host.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    flow: Flow,
    /// What the root complex passed on of it.
    via: Flow,
    /// Who was there when something was sent last.
    target: Option<State>,
}

impl Aside {
    pub(super) fn relax(&mut self) {
        self.flow.relax();
        self.via.relax();
    }

    fn relax_unless(&mut self, target: Option<State>) {
        if self.target != target {
            self.relax();
        }
    }
}

impl Bindings {
    /// How a binding stands.
    pub(crate) fn state(&self, binding: Option<usize>) -> Option<State> {
        binding.map(|index| (index, self.all()[index].upsets))
    }

    /// Whether something has happened to a binding since it stood so, or it is not in use.
    pub(crate) fn is_upset(&self, before: Option<State>) -> bool {
        before.is_none_or(|(index, upsets)| {
            let binding = &self.all()[index];
            !binding.is_sound() || binding.upsets != upsets
        })
    }

    /// A device's TLP for the device behind another port was taken in, or its answer to that one.
    pub(crate) fn sent_aside(
        &mut self,
        now: Instant,
        sent: (Seen, u64),
        way: (usize, usize),
        target: Option<usize>,
        optional: bool,
    ) {
        let aside = self.aside_for(sent.1, way, target, optional);
        aside.0.flow.send(now, sent.0, sent.1, aside.1);
        self.aside += 1;
    }

    /// The root complex passes on what a device sent another one.
    pub(crate) fn passed_on(
        &mut self,
        now: Instant,
        sent: (Seen, u64),
        way: (usize, usize),
        target: Option<usize>,
        optional: bool,
    ) {
        let aside = self.aside_for(sent.1, way, target, optional);
        aside.0.via.send(now, sent.0, sent.1, aside.1);
        self.by_root += 1;
    }

    /// Where that is noted that a binding sends the device behind a port, and whether it need not come.
    fn aside_for(
        &mut self,
        request: u64,
        (from, port): (usize, usize),
        target: Option<usize>,
        optional: bool,
    ) -> (&mut Aside, bool) {
        let target = self.state(target);
        let gave_up = |index: usize| self.all()[index].has_given_up(request);
        let optional = optional
            || self.is_upset(target)
            || !self.all()[from].is_sound()
            || gave_up(from)
            || target.is_some_and(|target| {
                gave_up(target.0) || self.all()[target.0].has_forgotten(request)
            });
        let aside = self.get(from).aside.entry(port).or_default();
        aside.relax_unless(target);
        aside.target = target;
        (aside, optional)
    }

    /// The binding behind a port that has such a TLP under way to a binding of its host.
    pub(crate) fn sender_aside(
        &self,
        to: usize,
        from_port: usize,
        seen: &Seen,
        request: Option<u64>,
    ) -> Option<usize> {
        let (host, port) = (self.all()[to].host, self.all()[to].port?);
        self.sender_where(host, (from_port, port), |aside| {
            aside.flow.knows(seen, request) || aside.via.knows(seen, request)
        })
    }

    /// As [`Bindings::sender_aside`], to the binding that is behind a port of a host, of what no root
    /// complex has passed on.
    pub(crate) fn sender_to_root(
        &self,
        host: usize,
        (from_port, port): (usize, usize),
        seen: &Seen,
        request: Option<u64>,
    ) -> Option<usize> {
        self.sender_where(host, (from_port, port), |aside| aside.flow.knows(seen, request))
    }

    /// The last binding that is behind a port of a host and sends the device behind another one such
    /// things.
    fn sender_where(
        &self,
        host: usize,
        (from_port, port): (usize, usize),
        sends: impl Fn(&Aside) -> bool,
    ) -> Option<usize> {
        let is_sender = |binding: &Binding| {
            (binding.host, binding.port) == (host, Some(from_port))
                && binding.aside.get(&port).is_some_and(&sends)
        };
        self.all().iter().rposition(is_sender)
    }

    /// It came to the root complex of its host.
    pub(crate) fn deliver_to_root(
        &mut self,
        (from, port): (usize, usize),
        seen: Seen,
        request: Option<u64>,
    ) -> Verdict<Sent> {
        let binding = &self.all()[from];
        let place = (binding.host, first(binding.port.expect("it was found by that")));
        let upset = self.is_upset(binding.aside.get(&port).and_then(|aside| aside.target));
        self.access.came_to_root(place, &seen)?;
        let apart = self.access.parts(place, true);
        let aside = self.get(from).aside.get_mut(&port).expect("it was found there");
        // Whom it was for is gone, or another one by now, who need not get it.
        if upset {
            aside.relax();
        }
        aside.flow.deliver_by(seen, request, apart)
    }

    /// It came there. Who sent it, and what it was.
    pub(crate) fn deliver_aside(
        &mut self,
        to: usize,
        from_port: usize,
        seen: Seen,
        request: Option<u64>,
    ) -> Verdict<(usize, Sent)> {
        let Some(from) = self.sender_aside(to, from_port, &seen, request) else {
            let what = format!(
                "a {:?} TLP of the device of {} came to another device, which is not under way: never \
                 sent so, or twice",
                seen.class,
                port_name(from_port)
            );
            return Err(Violation::new(1, what));
        };
        let (port, target) = (self.all()[to].port.expect("looked at above"), self.state(Some(to)));
        let place = (self.all()[to].host, first(from_port));
        let apart = self.access.parts(place, false);
        let aside = self.get(from).aside.get_mut(&port).expect("looked at above");
        aside.relax_unless(target);
        // Which way it came shows only where two that are alike are under way: the one that is owed.
        let passed = if aside.flow.owes(&seen, request) {
            aside.via.owes(&seen, request)
        } else {
            aside.via.knows(&seen, request)
        };
        if passed {
            return Ok((from, aside.via.deliver(seen, request)?));
        }
        let sent = aside.flow.deliver_by(seen, request, apart)?;
        self.access.came_aside(place, &seen, &sent)?;
        Ok((from, sent))
    }

    /// A request to the device behind a port ended with a cause, but without its answer, which may
    /// come from the port's next tenant, too.
    pub(crate) fn give_up_aside(&mut self, now: Instant, from: usize, port: usize, request: u64) {
        self.get(from).give_up(now, request);
        let Binding { host, port: asker, .. } = self.all()[from];
        let behind = |binding: &&mut Binding| (binding.host, binding.port) == (host, Some(port));
        for binding in self.all_mut().iter_mut().filter(behind) {
            if let Some(aside) = asker.and_then(|asker| binding.aside.get_mut(&asker)) {
                aside.relax_request(request);
            }
        }
    }

    /// TLPs of a binding for other devices that are under way and may not be lost, and since when the
    /// oldest is.
    pub(crate) fn owed_aside(&self, from: usize) -> (usize, Option<Instant>) {
        let asides = self.all()[from].aside.values();
        let sound = asides.filter(|aside| !self.is_upset(aside.target));
        let owed = sound.flat_map(|aside| [aside.flow.owed(), aside.via.owed()]);
        owed.fold((0, None), |(count, since), (more, at)| {
            (count + more, since.into_iter().chain(at).min())
        })
    }
}

impl Aside {
    pub(super) fn relax_request(&mut self, request: u64) {
        self.flow.relax_request(request);
        self.via.relax_request(request);
    }

    /// TLPs that came, to the root complex those that it had to pass on.
    pub(super) fn delivered(&self) -> u64 {
        self.flow.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::AS_LINUX;
    use super::*;
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{ByteEnables, Kind, Repr};

    const HOST: usize = 0;
    const ASKER: usize = 1;
    const ASKED: usize = 2;

    fn write() -> Seen {
        let mut bytes = [0; 32];
        let repr = Repr::new(Kind::MemWrite {
            requester: Bdf::from_bits(0x300),
            tag: Tag::new(0).unwrap(),
            address: 0x1000,
            enables: ByteEnables::all(1),
            hint: None,
            data: &[0; 4],
        });
        let length = repr.emit(&mut bytes).unwrap();
        Seen::of(&bytes[..length]).unwrap()
    }

    /// Two devices of a host behind a switch that redirects what they ask one another.
    fn pair() -> (Bindings, [usize; 2]) {
        let mut bindings = Bindings::default();
        let pair = [ASKER, ASKED].map(|port| {
            let index = bindings.find(HOST, port, 0, 1).unwrap();
            bindings.get(index).port = Some(port);
            bindings.get(index).settle();
            index
        });
        for port in [ASKER, ASKED] {
            bindings.access.set(Instant::ZERO, (HOST, first(port)), AS_LINUX);
        }
        (bindings, pair)
    }

    #[test]
    fn what_a_root_complex_passes_on_need_not_come_to_the_next_tenant_of_a_port() {
        for is_reset in [false, true] {
            let (mut bindings, [asker, asked]) = pair();
            let now = Instant::ZERO;
            bindings.sent_aside(now, (write(), 0), (asker, ASKED), Some(asked), false);
            assert_eq!(bindings.owed_aside(asker).0, 1);
            if is_reset {
                bindings.get(asked).unsettle();
                bindings.get(asked).settle();
            }
            let sent = bindings.deliver_to_root((asker, ASKED), write(), None).unwrap();
            assert_eq!(sent.is_optional(), is_reset);
        }
    }
}
