//! Nothing grows: what a proxy took and has not given out lies in a queue that has a limit.

use super::binding::Binding;
use super::{Verdict, Violation};
use proxy_core::limits::{CREDIT_TARGETS, LINK_WINDOW, SEND_QUEUES};
use tlp_codec::tlp::Class;

/// What a proxy may hold besides the link's queues: one TLP in the middle of each role, and
/// records of requests that end meanwhile.
const SLACK: usize = 8;

/// No more TLPs of a binding are under way than its sender's queue and its receiver's storage
/// hold together. What was lost on purpose is not under way, so only sound bindings are looked at.
pub(crate) fn check(binding: &Binding) -> Verdict {
    if !binding.is_sound() {
        return Ok(());
    }
    for (flow, name) in [(&binding.down, "to"), (&binding.up, "from")] {
        for class in Class::ALL {
            let bound =
                SEND_QUEUES[class as usize] + CREDIT_TARGETS[class as usize] as usize + SLACK;
            let held = flow.held(class);
            if held > bound {
                let what = format!(
                    "{held} {class:?} TLPs {name} a device are held; the queues have room for {bound}"
                );
                return Err(Violation::new(5, what));
            }
        }
    }
    Ok(())
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
