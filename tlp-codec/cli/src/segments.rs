//! Several frames in one UDP packet of a capture.
//!
//! A datagram has one frame. But a machine that sends gives its kernel several at once, and one that
//! receives is given several (segmentation offload and GRO), and a capture there has them as one
//! packet: all are as long as the first, and the last may be shorter.

use tlp_codec::fabric::{FRAME_CRC, HEADER, VERSION};

/// A frame with nothing in it.
const MIN_FRAME: usize = HEADER + FRAME_CRC;

/// How long bytes say to be that begin as a frame of this version, of a known kind.
pub(crate) fn length_said(bytes: &[u8]) -> Option<usize> {
    let [version, kind, low, high, ..] = *bytes else { return None };
    let length = usize::from(u16::from_le_bytes([low, high]));
    (version == VERSION && (1..=4).contains(&kind)).then_some(length)
}

/// Takes the payload of a UDP packet apart, of `length` bytes when it was sent: what the capture has
/// of each frame, and how long that was. What is no frame is given as it is.
pub(crate) fn segments(payload: &[u8], length: usize) -> impl Iterator<Item = (&[u8], usize)> {
    let size = length_said(payload).filter(|size| *size >= MIN_FRAME);
    let mut rest = Some((payload, length));
    std::iter::from_fn(move || {
        let (bytes, length) = rest.take()?;
        let Some((one, behind)) = size.and_then(|size| bytes.split_at_checked(size)) else {
            return Some((bytes, length));
        };
        let more = length.saturating_sub(one.len());
        let next = length_said(behind);
        if next.is_none_or(|next| !(MIN_FRAME..=more.min(one.len())).contains(&next)) {
            return Some((bytes, length));
        }
        rest = Some((behind, more));
        Some((one, one.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a frame, and nothing of sense behind.
    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0xee; length];
        let [low, high] = (length as u16).to_le_bytes();
        frame[..4].copy_from_slice(&[VERSION, 2, low, high]);
        frame
    }

    fn lengths(payload: &[u8], length: usize) -> Vec<(usize, usize)> {
        segments(payload, length).map(|(bytes, length)| (bytes.len(), length)).collect()
    }

    #[test]
    fn frames_of_one_length_are_told_apart_and_a_shorter_one_is_the_last() {
        let all = [frame(100), frame(100), frame(60), frame(60)].concat();
        assert_eq!(lengths(&all[..100], 100), [(100, 100)]);
        assert_eq!(lengths(&all[..200], 200), [(100, 100), (100, 100)]);
        assert_eq!(lengths(&all[..260], 260), [(100, 100), (100, 100), (60, 60)]);
        // Of which the capture has not all.
        assert_eq!(lengths(&all[..220], 260), [(100, 100), (100, 100), (20, 60)]);
        assert_eq!(lengths(&all[..101], 260), [(101, 260)], "too little to tell");
        // No machine sends this.
        assert_eq!(lengths(&all, 320), [(100, 100), (100, 100), (120, 120)]);
        let longer = [frame(60), frame(100)].concat();
        assert_eq!(lengths(&longer, 160), [(160, 160)]);
    }

    #[test]
    fn what_is_no_frame_is_left_as_it_is() {
        assert_eq!(lengths(&[], 0), [(0, 0)]);
        assert_eq!(lengths(&[7; 300], 300), [(300, 300)]);
        let padded = [frame(52), vec![0; 60]].concat();
        assert_eq!(lengths(&padded, 112), [(112, 112)]);
        // Lengths that would never come to an end, or reach beyond it.
        assert_eq!(lengths(&[VERSION, 2, 0, 0].repeat(40), 160), [(160, 160)]);
        let beyond = [frame(100), frame(100)].concat();
        assert_eq!(lengths(&beyond[..150], 150), [(150, 150)]);
    }
}
