//! Nothing grows: what a proxy took and has not given out lies in a queue that has a limit.

use super::binding::Binding;
use super::{Verdict, Violation};
use proxy_core::limits::{
    CREDIT_TARGETS, GUARANTEED_CREDITS, GUARANTEED_SEND, LINK_WINDOW, SEND_QUEUES,
};
use std::collections::BTreeMap;
use tlp_codec::tlp::Class;

/// What a proxy may hold besides the link's queues: one TLP in the middle of each role, and
/// records of requests that end meanwhile.
const SLACK: usize = 8;

/// No more TLPs are under way than the sender's queues and the receiver's storage hold together, of
/// each binding and class, and of all bindings between two nodes: beyond the guarantees they share
/// so many buffers at either end of their link. What was lost on purpose is not under way, so
/// only sound bindings are looked at.
pub(crate) fn check(bindings: &[Binding], shared: usize) -> Verdict {
    let mut borrowed = BTreeMap::<_, usize>::new();
    for binding in bindings.iter().filter(|binding| binding.is_sound()) {
        for (flow, way) in [(&binding.down, "to"), (&binding.up, "from")] {
            for class in Class::ALL {
                let held = flow.held(class);
                let bound = bound(class, shared);
                if held > bound {
                    let what = format!(
                        "{held} {class:?} TLPs {way} a device are held; the queues have room for {bound}"
                    );
                    return Err(Violation::new(5, what));
                }
                let link = (binding.host, binding.at_box, way);
                *borrowed.entry(link).or_default() += held.saturating_sub(guaranteed(class));
            }
        }
    }
    match borrowed.into_iter().find(|(_, held)| *held > 2 * shared) {
        None => Ok(()),
        Some(((host, at_box, way), held)) => {
            let what = format!(
                "{held} TLPs {way} the devices of box {at_box} for host {host} are held beyond what \
                 each of them is guaranteed; either end shares {shared} buffers"
            );
            Err(Violation::new(5, what))
        }
    }
}

/// What a class of every binding has at both ends whatever the others do.
fn guaranteed(class: Class) -> usize {
    GUARANTEED_SEND + GUARANTEED_CREDITS[class as usize] as usize + SLACK
}

/// What a class of a binding has at most.
fn bound(class: Class, shared: usize) -> usize {
    let sends = (GUARANTEED_SEND + shared).min(SEND_QUEUES[class as usize]);
    let stores = GUARANTEED_CREDITS[class as usize] as usize + shared;
    sends + stores.min(CREDIT_TARGETS[class as usize] as usize) + SLACK
}

/// No more frames are under way than all links' windows allow, with acknowledgements and doubles.
pub(crate) fn check_frames(in_flight: usize, links: usize) -> Verdict {
    let bound = links * LINK_WINDOW * 4 + 1024;
    if in_flight <= bound {
        return Ok(());
    }
    Err(Violation::new(
        5,
        format!("{in_flight} frames are under way between {links} pairs of nodes"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::binding::Bindings;
    use crate::oracle::order::Seen;
    use proxy_core::time::Instant;
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{ByteEnables, Kind, Repr};

    const SHARED: usize = 8;

    /// Sound bindings of two slots of a box to one host.
    fn two() -> Bindings {
        let mut bindings = Bindings::default();
        for slot in 0..2 {
            let index = bindings.find(0, 0, slot, 1).unwrap();
            bindings.get(index).settle();
        }
        bindings
    }

    /// So many writes of a device more are under way.
    fn write(bindings: &mut Bindings, index: usize, count: usize) {
        let kind = Kind::MemWrite {
            requester: Bdf::from_bits(0x300),
            tag: Tag::new(0).unwrap(),
            address: 0x1000,
            enables: ByteEnables::all(1),
            hint: None,
            data: &[1, 2, 3, 4],
        };
        let repr = Repr::new(kind);
        let mut bytes = vec![0; repr.buffer_len()];
        let length = repr.emit(&mut bytes).unwrap();
        let seen = Seen::of(&bytes[..length]).unwrap();
        (0..count).for_each(|_| bindings.get(index).sent_up(Instant::ZERO, seen, 0, false));
    }

    #[test]
    fn a_binding_holds_what_its_queues_hold() {
        let mut bindings = two();
        write(&mut bindings, 0, bound(Class::Posted, SHARED));
        assert_eq!(check(bindings.all(), SHARED), Ok(()));
        write(&mut bindings, 0, 1);
        assert_eq!(check(bindings.all(), SHARED).unwrap_err().promise, 5);
        assert_eq!(check(bindings.all(), SHARED + 1), Ok(()), "they were larger");
        bindings.get(0).unsettle();
        assert_eq!(check(bindings.all(), SHARED), Ok(()), "it may all be lost");
    }

    #[test]
    fn what_is_shared_is_there_once() {
        let mut bindings = two();
        write(&mut bindings, 0, bound(Class::Posted, SHARED));
        write(&mut bindings, 1, guaranteed(Class::Posted));
        assert_eq!(check(bindings.all(), SHARED), Ok(()));
        write(&mut bindings, 1, 1);
        assert_eq!(check(bindings.all(), SHARED).unwrap_err().promise, 5);
    }
}
