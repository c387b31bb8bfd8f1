//! What must hold, whatever the network does: each TLP at most once, with its own bytes, on its
//! own binding, and in an order that PCIe allows.

use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec::Vec;
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Delivered,
    /// A flush or an end overtakes it: it may come, once and in order, or not.
    Doubtful,
    /// Flushed, or its binding is over: it must not come any more.
    Dead,
}

#[derive(Debug)]
struct Tlp {
    class: Class,
    relaxed: bool,
    bytes: Vec<u8>,
    fate: Fate,
}

/// One binding and one direction: 0 is from end 0.
type FlowId = (BindingKey, usize);

#[derive(Default)]
pub(super) struct Oracle {
    flows: BTreeMap<FlowId, Vec<Tlp>>,
    pub(super) delivered: usize,
}

impl Oracle {
    /// The number of the next TLP of a flow: the caller writes it into the TLP's third word.
    pub(super) fn next_number(&self, flow: FlowId) -> u32 {
        self.flows.get(&flow).map_or(0, |f| f.len() as u32)
    }

    pub(super) fn sent(&mut self, flow: FlowId, class: Class, relaxed: bool, bytes: &[u8]) {
        let tlp = Tlp { class, relaxed, bytes: bytes.to_vec(), fate: Fate::Sent };
        self.flows.entry(flow).or_default().push(tlp);
    }

    pub(super) fn delivered(
        &mut self,
        flow: FlowId,
        class: Class,
        bytes: &[u8],
    ) -> Result<(), String> {
        let number = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let list = self.flows.entry(flow).or_default();
        let Some(tlp) = list.get(number).filter(|t| t.bytes == bytes && t.class == class) else {
            return Err(format!("TLP {number} of {flow:?} was never sent so"));
        };
        match tlp.fate {
            Fate::Sent | Fate::Doubtful => {}
            Fate::Delivered => return Err(format!("TLP {number} of {flow:?} came twice")),
            Fate::Dead => return Err(format!("TLP {number} of {flow:?} came after its end")),
        }
        for (n, other) in list.iter().enumerate() {
            let passed = n < number && other.fate == Fate::Sent && holds_back(other, tlp);
            let was_passed = n > number && other.fate == Fate::Delivered && holds_back(tlp, other);
            if passed || was_passed {
                let (is, was) = (class, other.class);
                return Err(format!("{is:?} {number} and {was:?} {n} of {flow:?} changed places"));
            }
        }
        list[number].fate = Fate::Delivered;
        self.delivered += 1;
        Ok(())
    }

    /// How many TLPs of a flow there were when something happened to it.
    pub(super) fn len(&self, flow: FlowId) -> usize {
        self.flows.get(&flow).map_or(0, Vec::len)
    }

    /// What was sent so far may come or not.
    pub(super) fn doubtful(&mut self, flow: FlowId) {
        for tlp in self.flows.entry(flow).or_default() {
            if tlp.fate == Fate::Sent {
                tlp.fate = Fate::Doubtful;
            }
        }
    }

    /// Of the first `count`, none may come any more.
    pub(super) fn dead(&mut self, flow: FlowId, count: usize) {
        for tlp in self.flows.entry(flow).or_default().iter_mut().take(count) {
            if tlp.fate != Fate::Delivered {
                tlp.fate = Fate::Dead;
            }
        }
    }

    /// What was sent and neither came nor ended.
    pub(super) fn missing(&self) -> usize {
        self.flows.values().flatten().filter(|t| t.fate == Fate::Sent).count()
    }
}

/// Whether `earlier` must be delivered before `later` (PCIe 5.0 table 2-40; within a class a link
/// keeps the order even where PCIe does not ask for it).
fn holds_back(earlier: &Tlp, later: &Tlp) -> bool {
    let relaxed_completion = later.relaxed && later.class == Class::Completion;
    earlier.class == later.class || earlier.class == Class::Posted && !relaxed_completion
}
