//! Nothing grows: what a proxy took and has not given out lies in a queue that has a limit.

use super::binding::Binding;
use super::order::Flow;
use super::{Verdict, Violation};
use proxy_core::limits::{
    CREDIT_TARGETS, GUARANTEED_CREDITS, GUARANTEED_SEND, LINK_WINDOW, SEND_QUEUES,
};
use tlp_codec::tlp::Class;

/// What a proxy may hold besides the link's queues: one TLP in the middle of each role, and
/// records of requests that end meanwhile.
const SLACK: usize = 8;

/// Where TLPs of a binding go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    FromDevice,
}

impl Way {
    fn flow(self, binding: &Binding) -> &Flow {
        match self {
            Self::ToDevice => &binding.down,
            Self::FromDevice => &binding.up,
        }
    }
}

/// No more TLPs are under way than the sender's queues and the receiver's storage hold together, of
/// each binding and class, and of all bindings between two nodes: beyond the guarantees they share
/// so many buffers at either end of their link. What was lost on purpose is not under way, so
/// only sound bindings are looked at.
pub(crate) fn check<'a>(
    bindings: impl Iterator<Item = &'a Binding> + Clone,
    way: Way,
    shared: usize,
) -> Verdict {
    // Counting exactly what is held takes long, and there is nearly always far less.
    if fits(bindings.clone(), way, shared, Flow::most_held).is_ok() {
        return Ok(());
    }
    fits(bindings, way, shared, Flow::held)
}

fn fits<'a>(
    bindings: impl Iterator<Item = &'a Binding>,
    way: Way,
    shared: usize,
    held: impl Fn(&Flow, Class) -> usize,
) -> Verdict {
    // Of each link, which a binding's two nodes name.
    let mut borrowed = Vec::<((usize, usize), usize)>::new();
    for binding in bindings.filter(|binding| binding.is_sound()) {
        let mut beyond = 0;
        for class in Class::ALL {
            let (held, bound) = (held(way.flow(binding), class), bound(class, shared));
            if held > bound {
                let what = format!(
                    "{held} {class:?} TLPs {way:?} are held; the queues have room for {bound}"
                );
                return Err(Violation::new(5, what));
            }
            beyond += held.saturating_sub(guaranteed(class));
        }
        if beyond == 0 {
            continue;
        }
        let link = (binding.host, binding.at_box);
        match borrowed.iter_mut().find(|(of, _)| *of == link) {
            Some((_, sum)) => *sum += beyond,
            None => borrowed.push((link, beyond)),
        }
    }
    match borrowed.into_iter().find(|(_, held)| *held > 2 * shared) {
        None => Ok(()),
        Some(((host, at_box), held)) => {
            let what = format!(
                "{held} TLPs {way:?} of box {at_box} and host {host} are held beyond what each of them \
                 is guaranteed; either end shares {shared} buffers"
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

    fn from_devices(bindings: &Bindings, shared: usize) -> Verdict {
        check(bindings.all().iter(), Way::FromDevice, shared)
    }

    #[test]
    fn a_binding_holds_what_its_queues_hold() {
        let mut bindings = two();
        write(&mut bindings, 0, bound(Class::Posted, SHARED));
        assert_eq!(from_devices(&bindings, SHARED), Ok(()));
        write(&mut bindings, 0, 1);
        assert_eq!(from_devices(&bindings, SHARED).unwrap_err().promise, 5);
        assert_eq!(from_devices(&bindings, SHARED + 1), Ok(()), "they were larger");
        assert_eq!(check(bindings.all().iter(), Way::ToDevice, SHARED), Ok(()), "the other way");
        bindings.get(0).unsettle();
        assert_eq!(from_devices(&bindings, SHARED), Ok(()), "it may all be lost");
    }

    #[test]
    fn what_is_shared_is_there_once() {
        let mut bindings = two();
        write(&mut bindings, 0, bound(Class::Posted, SHARED));
        write(&mut bindings, 1, guaranteed(Class::Posted));
        assert_eq!(from_devices(&bindings, SHARED), Ok(()));
        write(&mut bindings, 1, 1);
        assert_eq!(from_devices(&bindings, SHARED).unwrap_err().promise, 5);
    }
}
