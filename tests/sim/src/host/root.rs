//! The root complex: what devices ask of host memory.

use super::memory::Memory;
use super::{HOST_ID, Purpose};
use crate::device::atomic;
use crate::dress::Dresser;
use crate::egress::{Egress, Piece, completion, pieces};
use crate::oracle::Verdict;
use crate::random::Random;
use tlp_codec::tlp::{AtomicOp, CplStatus, Packet, TlpType};

/// Read Completion Boundary.
const BOUNDARY: usize = 64;

/// Answers a non-posted request of the device behind a port, in completions of such a payload at
/// most, which carry that purpose. Whether there was something at its address.
pub(crate) fn answer(
    packet: &Packet<&[u8]>,
    port: usize,
    (memory, payload, purpose): (&mut Memory, usize, Purpose),
    out: &mut Egress<Purpose>,
    (random, dresser): (&mut Random, &mut Dresser),
) -> Verdict<bool> {
    let length = usize::from(packet.length_dw()) * 4;
    let id = (HOST_ID, packet.tag());
    let refuse = |out: &mut Egress<Purpose>, dresser: &mut Dresser| {
        let mut repr = completion(packet, id, CplStatus::UnsupportedRequest, (4, 0), &[]);
        dresser.answer(&mut repr);
        out.push(&repr, purpose);
    };
    match packet.tlp_type() {
        TlpType::MRd => {
            let Some(bytes) = memory.reach(port, packet.address(), length)? else {
                refuse(out, dresser);
                return Ok(false);
            };
            read(packet, (purpose, payload), bytes, out, (random, dresser));
        }
        TlpType::FetchAdd | TlpType::Swap | TlpType::Cas => {
            let operands = packet.payload();
            let (op, width) = match packet.tlp_type() {
                TlpType::FetchAdd => (AtomicOp::FetchAdd, operands.len()),
                TlpType::Swap => (AtomicOp::Swap, operands.len()),
                _ => (AtomicOp::Cas, operands.len() / 2),
            };
            let Some(bytes) = memory.reach(port, packet.address(), width)? else {
                refuse(out, dresser);
                return Ok(false);
            };
            let old = atomic(bytes, op, operands);
            let count = old.len() as u16;
            let mut repr = completion(packet, id, CplStatus::Success, (count, 0), &old);
            repr.attributes.id_based_ordering = random.chance(400_000);
            dresser.answer(&mut repr);
            out.push(&repr, purpose);
        }
        _ => refuse(out, dresser),
    }
    Ok(true)
}

/// A read in one or several completions.
fn read(
    packet: &Packet<&[u8]>,
    (purpose, payload): (Purpose, usize),
    bytes: &[u8],
    out: &mut Egress<Purpose>,
    (random, dresser): (&mut Random, &mut Dresser),
) {
    // The completer's own choice, as are the boundaries.
    let by_id = random.chance(400_000);
    for Piece { at, length, says, .. } in pieces(packet, (payload, BOUNDARY), random) {
        let id = (HOST_ID, packet.tag());
        let data = &bytes[at..at + length];
        let mut repr = completion(packet, id, CplStatus::Success, says, data);
        repr.attributes.id_based_ordering = by_id;
        dresser.answer(&mut repr);
        out.push(&repr, purpose);
    }
}
