//! What one device sends another one and the switch redirects (access control): the root complex
//! passes it on as it is, as one does between its ports, with the requester's ID and tag.

use super::World;
use crate::host::{Purpose, first, port_name};
use crate::oracle::order::{Seen, is_made_up};
use crate::oracle::{Verdict, Violation};
use crate::trace::What;
use tlp_codec::tlp::{Class, Packet, TlpType};

impl World {
    /// Whether a TLP that came to a root complex is of one device for another one; then it is passed
    /// on.
    pub(super) fn is_passed_on(&mut self, index: usize, tlp: &[u8]) -> Verdict<bool> {
        let (Ok(packet), Some(seen)) = (Packet::new_checked(tlp), Seen::of(tlp)) else {
            return Ok(false);
        };
        let layout = *self.hosts[index].os.layout();
        let message = matches!(packet.tlp_type(), TlpType::Msg(_) | TlpType::MsgD(_));
        let Some(asker) = layout.port_of(packet.requester()) else { return Ok(false) };
        if message || !self.profile.work.has_peers() {
            return Ok(false);
        }
        let (port, mark) = if seen.class == Class::Completion {
            (asker, self.answer_at_root(index, (asker, packet.tag().get()), seen, tlp)?)
        } else {
            let Some(port) = layout.port_at(packet.address()) else { return Ok(false) };
            if first(port) == first(asker) {
                return Ok(false);
            }
            (port, self.request_at_root(index, (asker, port), packet.tag().get(), seen)?)
        };
        let (from, request, optional) = mark;
        self.trace.note(self.agenda.now(), index as u16 + 1, What::TlpOut, tlp);
        let to = self.bindings.state(self.hosts[index].ports[port]);
        let mark = Purpose::PassedOn { from, port, to, request, optional };
        self.hosts[index].out.push_bytes(seen.class, tlp.to_vec(), mark);
        Ok(true)
    }

    /// A request of the device behind a port for that behind another one: of which binding it is, its
    /// number, and whether it may be lost.
    fn request_at_root(
        &mut self,
        host: usize,
        (asker, port): (usize, usize),
        tag: u16,
        seen: Seen,
    ) -> Verdict<(Option<usize>, u64, bool)> {
        let Some(from) = self.bindings.sender_to_root(host, (asker, port), &seen, None) else {
            let name = port_name(asker);
            let what = format!("a {:?} TLP came from {name}, which is not under way", seen.class);
            return Err(Violation::new(1, what));
        };
        let sent = self.bindings.deliver_to_root((from, port), seen, None)?;
        if seen.class == Class::NonPosted {
            self.hosts[host].passes.insert((asker, tag), sent.request);
        }
        Ok((Some(from), sent.request, sent.is_optional()))
    }

    /// As [`World::request_at_root`], of what answers the device behind a port. What a proxy says by
    /// itself is of nobody; it is looked at where it comes.
    fn answer_at_root(
        &mut self,
        host: usize,
        (asker, tag): (usize, u16),
        seen: Seen,
        tlp: &[u8],
    ) -> Verdict<(Option<usize>, u64, bool)> {
        let completer = Packet::new_checked(tlp).expect("looked at above").completer();
        let from_port = self.hosts[host].os.layout().port_of(completer);
        // Without a number nobody has asked by the root complex; or an earlier one had the tag.
        let asked = self.hosts[host].passes.get(&(asker, tag)).copied();
        let found = from_port.and_then(|from_port| {
            [asked, None].into_iter().find_map(|request| {
                let way = (from_port, asker);
                Some((self.bindings.sender_to_root(host, way, &seen, request)?, request))
            })
        });
        if let Some((from, request)) = found {
            let sent = self.bindings.deliver_to_root((from, asker), seen, request)?;
            return Ok((Some(from), sent.request, sent.is_optional()));
        }
        if is_made_up(tlp) {
            return Ok((None, 0, true));
        }
        let name = port_name(asker);
        let what = format!("{name}'s device is answered at the root complex by no device");
        Err(Violation::new(3, what))
    }
}
