//! A TLP on its way from the adapter to the switch.

use super::Below;
use proxy_core::limits::{SYNTHESISED_COMPLETION, TLP_BUFFER};
use proxy_core::switch::{PortMapping, VirtualSwitch};
use proxy_core::time::Instant;
use tlp_codec::tlp::{Class, Packet};

/// How long the switch may have no room for a TLP. The device that it is for is hung then, and
/// everything that the machine does waits behind it.
const LONGEST_HOLD: std::time::Duration = SYNTHESISED_COMPLETION;

/// One TLP that waits until the switch has room for it.
pub(super) struct Lane {
    tlp: Box<[u8; TLP_BUFFER]>,
    held: Option<(usize, Instant)>,
}

/// What became of a lane's TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The switch has it.
    Taken,
    /// It waits.
    Held,
    /// It waited for too long and is gone.
    GivenUp,
}

impl Lane {
    pub(super) fn new() -> Self {
        Self { tlp: Box::new([0; TLP_BUFFER]), held: None }
    }

    /// The TLP that waits.
    pub(super) fn held(&self) -> Option<&[u8]> {
        self.held.map(|(length, _)| &self.tlp[..length])
    }

    pub(super) fn clear(&mut self) {
        self.held = None;
    }

    /// Takes the next TLP, if none waits. Whether one does now.
    pub(super) fn fill(
        &mut self,
        now: Instant,
        next: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        if self.held.is_none() {
            self.held = next(&mut self.tlp[..]).map(|length| (length, now));
        }
        self.held.is_some()
    }

    /// Hands the TLP that waits over.
    ///
    /// # Panics
    ///
    /// When none waits.
    pub(super) fn pass(&mut self, now: Instant, below: &mut impl Below) -> Passed {
        let (length, since) = self.held.take().expect("the caller filled the lane");
        if below.handle_tlp(now, &self.tlp[..length]).is_ok() {
            return Passed::Taken;
        }
        if now.saturating_since(since) >= LONGEST_HOLD {
            return Passed::GivenUp;
        }
        self.held = Some((length, since));
        Passed::Held
    }
}

/// Whether a completion may not pass a TLP that waits: when that is a write to the same device
/// (PCIe 5.0 section 2.4.1).
pub(super) fn must_wait(switch: &VirtualSwitch, completion: &[u8], held: &[u8]) -> bool {
    let (Ok(completion), Ok(held)) =
        (Packet::new_header_checked(completion), Packet::new_header_checked(held))
    else {
        return false;
    };
    if held.class() != Some(Class::Posted) || completion.class() != Some(Class::Completion) {
        return false;
    }
    let bus = completion.requester().bus().get();
    let ports = switch.port_ids().map(|port| switch.mapping(port));
    let mut of_the_write = ports.filter(|port| claims(port, held.address()));
    of_the_write.any(|port| (port.buses.0..=port.buses.1).contains(&bus))
}

fn claims(port: &PortMapping, address: u64) -> bool {
    let windows = [port.memory, port.prefetchable];
    windows.into_iter().flatten().any(|(first, last)| (first..=last).contains(&address))
}
