//! TLPs from devices towards the root complex.

use super::{DeviceRequest, HostRole, ROOT_RESERVE};
use crate::limits::TLP_BUFFER;
use crate::link::{ClassSet, TlpMeta};
use crate::node::is_as_said;
use crate::outstanding::{Progress, RequestInfo};
use crate::stamps::Stage;
use crate::switch::UpstreamVerdict as Verdict;
use crate::time::Instant;
use tlp_codec::ids::{BindingKey, OutstandingRef, PortId, Tag};
use tlp_codec::tlp::{Class, CplStatus, Packet};

/// What came with a TLP of a device.
#[derive(Clone, Copy)]
struct Origin {
    port: PortId,
    key: BindingKey,
    function: usize,
    outstanding: Option<OutstandingRef>,
    sampled: bool,
}

impl HostRole {
    /// The next TLP for the root complex, written into `buf`, which holds
    /// [`TLP_BUFFER`] bytes; its length. Ports are served in turn.
    pub fn poll_tlp(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.synthesise(now);
        if let Some(length) = self.to_root.pop(buf) {
            return Some(length);
        }
        let count = self.ports.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if let Some(length) = self.poll_port(now, index, buf) {
                self.turn = index + 1;
                return Some(length);
            }
        }
        // Handling a device's TLP may have made the switch speak.
        self.to_root.pop(buf)
    }

    fn poll_port(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Option<usize> {
        self.retry_stalled(now, index);
        let mut function = 0;
        while let Some(target) = self.ports[index].target_of(function) {
            while self.to_root.room() >= ROOT_RESERVE && self.ports[index].stalled.is_none() {
                let port = &self.ports[index];
                let link = self.node.link(target.peer);
                let mut ready = ClassSet::ALL;
                if !port.upstream.has_room() || !link.can_send(target.channel, Class::Completion) {
                    ready = ready.without(Class::NonPosted);
                }
                let Some(received) = link.next_received(target.channel, ready) else { break };
                let length = received.tlp.len();
                buf[..length].copy_from_slice(received.tlp);
                let (handle, class, stamp) = (received.handle, received.class, received.stamp);
                let outstanding = received.outstanding;
                link.release_received(handle);
                let port = PortId::new(index as u8).expect("at most 32 ports");
                let key = target.key;
                let sampled = stamp.is_some();
                let origin = Origin { port, key, function, outstanding, sampled };
                if !is_as_said(&buf[..length], class, outstanding) {
                    self.counters.malformed_from_device += 1;
                    continue;
                }
                let out = match class {
                    Class::Completion => self.complete(origin, &mut buf[..length]),
                    _ => self.request_from_device(now, origin, &mut buf[..length]),
                };
                if let Some(id) = stamp.filter(|_| out) {
                    self.node.stamps.ends(id, Stage::Delivered);
                }
                self.process_switch_events(now);
                if out {
                    return Some(length);
                }
            }
            function += 1;
        }
        None
    }

    /// A completion for a request of the host: gives it the requester's identity back. Whether
    /// it is to be delivered.
    fn complete(&mut self, origin: Origin, tlp: &mut [u8]) -> bool {
        let Ok(mut packet) = Packet::new_checked(tlp) else {
            self.counters.malformed_from_device += 1;
            return false;
        };
        let requests = &mut self.ports[origin.port.get() as usize].requests;
        let Some((reference, request)) =
            origin.outstanding.and_then(|o| requests.get_mut(o).map(|request| (o, request)))
        else {
            self.counters.unexpected_from_device += 1;
            return false;
        };
        let Ok(progress) = request.info.accept(&packet) else {
            self.counters.mismatched_from_device += 1;
            return false;
        };
        packet.set_requester(request.info.requester);
        packet.set_tag(request.info.tag);
        packet.update_digest();
        if progress == Progress::Final {
            requests.remove(reference);
        }
        true
    }

    /// A request or message of a device: the switch decides. Whether it goes to the root complex.
    fn request_from_device(&mut self, now: Instant, origin: Origin, tlp: &mut [u8]) -> bool {
        let verdict =
            self.switch.handle_upstream(now, origin.port, tlp, &mut self.to_root, &mut self.bounce);
        self.send_bounced(now, origin);
        match verdict {
            Verdict::ToRoot => {
                self.take_tag(now, origin, tlp);
                true
            }
            Verdict::ToPort(target) => {
                if self.refuse_peer_read(now, origin, tlp) {
                    return false;
                }
                self.take_tag(now, origin, tlp);
                if self.send_to_device(now, target, tlp).is_err() {
                    let port = &mut self.ports[origin.port.get() as usize];
                    port.stalled = Some((target, tlp.len()));
                    port.stalled_bytes[..tlp.len()].copy_from_slice(tlp);
                }
                false
            }
            _ => false,
        }
    }

    /// A device that asks another one is told that it cannot: only writes and messages travel
    /// between ports. Whether it was such a request.
    fn refuse_peer_read(&mut self, now: Instant, origin: Origin, tlp: &[u8]) -> bool {
        let packet = Packet::new_checked(tlp).expect("checked by the caller");
        let Some(info) = RequestInfo::of(&packet) else { return false };
        let completer = self.switch.port_id(origin.port);
        let mut buf = [0; 16];
        let length = info
            .completion(completer, CplStatus::UnsupportedRequest, &mut buf)
            .expect("a completion without data has three doublewords");
        let pushed = self.bounce.push(&buf[..length]);
        assert!(pushed, "it was emptied just now");
        self.counters.peer_reads += 1;
        self.send_bounced(now, origin);
        true
    }

    /// Gives a non-posted request of a device a tag of the port's own.
    fn take_tag(&mut self, now: Instant, origin: Origin, tlp: &mut [u8]) {
        let mut packet = Packet::new_checked(tlp).expect("checked by the caller");
        let Some(info) = RequestInfo::of(&packet) else { return };
        let Some(outstanding) = origin.outstanding else { return };
        let Origin { key, function, sampled, .. } = origin;
        let request = DeviceRequest { info, key, outstanding, function, sampled };
        let deadline = now + self.completion_bound;
        let entry = self.ports[origin.port.get() as usize]
            .upstream
            .insert(deadline, request)
            .expect("only a port with room is asked for non-posted requests");
        packet.set_tag(Tag::new(entry.index).expect("the table has at most 256 entries"));
        packet.update_digest();
    }

    /// Sends what the switch answered a device's request with back to the device.
    fn send_bounced(&mut self, now: Instant, origin: Origin) {
        let mut buf = [0; TLP_BUFFER];
        while let Some(length) = self.bounce.pop(&mut buf) {
            let Some(target) = self.ports[origin.port.get() as usize].target_of(origin.function)
            else {
                continue;
            };
            let meta = TlpMeta {
                class: Class::Completion,
                outstanding: origin.outstanding,
                relaxed: false,
                stamp: None,
            };
            // Room was checked before the request was taken; a dying link ends it at the box.
            let _ = self.node.link(target.peer).send_tlp(now, target.channel, meta, &buf[..length]);
        }
    }

    /// Tries again to hand a TLP to the other device it is for.
    fn retry_stalled(&mut self, now: Instant, index: usize) {
        let Some((target, length)) = self.ports[index].stalled else { return };
        let mut buf = [0; TLP_BUFFER];
        buf[..length].copy_from_slice(&self.ports[index].stalled_bytes[..length]);
        if self.send_to_device(now, target, &mut buf[..length]).is_ok() {
            self.ports[index].stalled = None;
        }
    }
}
