//! What a network does to the bytes of a frame.

use crate::random::Random;
use tlp_codec::crc;
use tlp_codec::fabric::{FRAME_CRC, Frame, Record, RecordAddress};
use tlp_codec::ids::{BindingKey, SlotId};

/// Flips one to four bits: a damaged frame whose Ethernet FCS happens to be right, or was made so
/// by a switch whose memory flipped them before the FCS was computed anew. Those that are other than
/// they were sent are noted: a bit that is flipped twice is right again.
pub(super) fn flip(bytes: &mut [u8], flipped: &mut Vec<usize>, random: &mut Random) {
    for _ in 0..random.between(1, 4) {
        let bit = random.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        match flipped.iter().position(|before| *before == bit) {
            Some(at) => drop(flipped.swap_remove(at)),
            None => flipped.push(bit),
        }
    }
}

/// Changes a bit of one TLP in a frame, or of a part of one that is split, and makes the frame's own
/// CRC right again: memory that lies between the link and the wire. The binding, if there was a TLP.
pub(super) fn lie(bytes: &mut [u8], random: &mut Random) -> Option<BindingKey> {
    let frame = Frame::new_checked(&*bytes).ok()?;
    let covered = frame.frame_len() - FRAME_CRC;
    let tlps: Vec<(RecordAddress, usize, usize)> = frame
        .records()
        .filter_map(|record| {
            let (address, tlp) = match record.ok()? {
                Record::Tlp(record) => (record.address, record.tlp),
                Record::SplitHeader(record) => (record.address, record.bytes),
                Record::SplitData(record) => (record.address, record.bytes),
                _ => return None,
            };
            Some((address, tlp.as_ptr() as usize - bytes.as_ptr() as usize, tlp.len()))
        })
        .filter(|(_, _, length)| *length > 0)
        .collect();
    if tlps.is_empty() {
        return None;
    }
    let (address, at, length) = tlps[random.below(tlps.len() as u64) as usize];
    bytes[at + random.below(length as u64) as usize] ^= 1 << random.below(8);
    let crc = crc::frame(&bytes[..covered]);
    bytes[covered..covered + FRAME_CRC].copy_from_slice(&crc.to_le_bytes());
    Some(address.binding(address.source == SlotId::HOST))
}
