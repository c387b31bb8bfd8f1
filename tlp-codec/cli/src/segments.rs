//! Several frames in one UDP packet of a capture.
//!
//! A datagram has one frame. But a machine that sends gives its kernel several at once, and one that
//! receives is given several (segmentation offload and GRO), and a capture there has them as one
//! packet: all are as long as the first, and the last may be shorter.

use tlp_codec::fabric::{FRAME_CRC, HEADER, VERSION};

/// A frame with nothing in it.
const MIN_FRAME: usize = HEADER + FRAME_CRC;

/// What tells a frame: version, kind, length.
const SIGN: usize = 4;

/// How long bytes say to be that begin as a frame of this version, of a known kind.
pub(crate) fn length_said(bytes: &[u8]) -> Option<usize> {
    let [version, kind, low, high, ..] = *bytes else { return None };
    let length = usize::from(u16::from_le_bytes([low, high]));
    (version == VERSION && (1..=4).contains(&kind)).then_some(length)
}

/// How long each of several frames is, but the last, in the payload of a UDP packet that had so many
/// bytes when it was sent. `None` for one frame, and for what is none.
///
/// The first frame's length has to cut the payload into frames, and a later one to begin where it
/// says; so one of them that is damaged hides no other. Where the capture has the start of no later
/// one, the first says it all.
pub(crate) fn segment_size(payload: &[u8], sent: usize) -> Option<usize> {
    let size = length_said(payload).filter(|size| (MIN_FRAME..sent).contains(size))?;
    let last = sent % size;
    if last != 0 && last < MIN_FRAME {
        return None;
    }
    let payload = &payload[..payload.len().min(sent)];
    let mut later = payload.chunks(size).enumerate().skip(1);
    let begins = |(n, bytes): (usize, &[u8])| length_said(bytes) == Some(size.min(sent - n * size));
    let cut_before = payload.len() < size + SIGN;
    (cut_before || later.any(begins)).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a frame, and nothing of sense behind.
    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0xee; length];
        let [low, high] = (length as u16).to_le_bytes();
        frame[..SIGN].copy_from_slice(&[VERSION, 2, low, high]);
        frame
    }

    #[test]
    fn frames_of_one_length_are_told_apart_and_a_shorter_one_is_the_last() {
        let mut all = [frame(100), frame(100), frame(60)].concat();
        assert_eq!(segment_size(&all[..100], 100), None, "it is alone");
        assert_eq!(segment_size(&all[..200], 200), Some(100));
        assert_eq!(segment_size(&all, 260), Some(100));
        // Of which the capture has not all.
        for have in [4, 50, 100, 101, 104, 180, 203, 204, 259] {
            assert_eq!(segment_size(&all[..have], 260), Some(100), "{have}");
        }
        assert_eq!(segment_size(&all[..3], 260), None, "too little to tell");
        // One is damaged.
        all[100] ^= 1;
        assert_eq!(segment_size(&all, 260), Some(100));
        all[200] ^= 1;
        assert_eq!(segment_size(&all, 260), None, "nothing else of it is ours");
    }

    #[test]
    fn what_no_machine_sends_is_left_as_it_is() {
        assert_eq!(segment_size(&[], 0), None);
        assert_eq!(segment_size(&[7; 300], 300), None);
        let padded = [frame(52), vec![0; 60]].concat();
        assert_eq!(segment_size(&padded, 112), None);
        let longer = [frame(60), frame(100)].concat();
        assert_eq!(segment_size(&longer, 160), None);
        // Lengths that would never come to an end, or reach beyond it.
        assert_eq!(segment_size(&[VERSION, 2, 0, 0].repeat(40), 160), None);
        let beyond = [frame(100), frame(100)].concat();
        assert_eq!(segment_size(&beyond[..150], 150), None);
        // More than it says that it was when it was sent.
        assert_eq!(segment_size(&beyond, 100), None);
        assert_eq!(segment_size(&beyond, 90), None);
        assert_eq!(segment_size(&[frame(100), frame(60), frame(100)].concat(), 160), Some(100));
    }
}
