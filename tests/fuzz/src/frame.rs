//! The frame and record parsers: what they take they write back, and what they do not take gives a
//! reason.

use crate::input::Input;
use tlp_codec::crc;
use tlp_codec::fabric::{FRAME_CRC, Frame, FrameKind, FrameWriter, HEADER, Record};

/// Takes one byte that says what is made right, and a frame's bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let repairs = input.u8();
    let mut bytes = input.rest().to_vec();
    records(&bytes);
    if repairs & 1 != 0 {
        seal(&mut bytes, repairs & 2 != 0);
    }
    let Ok(frame) = Frame::new_checked(&bytes[..]) else { return };
    let (header, body) = (frame.header(), frame.body());
    let length = frame.frame_len();
    assert!(length <= bytes.len());
    match frame.kind() {
        FrameKind::Open => {
            if let Ok(open) = frame.open() {
                let again = tlp_codec::fabric::Open::parse(&open.emit());
                assert_eq!(again, Ok(open));
            }
        }
        FrameKind::Close => {
            if let Ok(close) = frame.close() {
                assert_eq!(close.emit()[0], body[0]);
            }
        }
        FrameKind::Data => records(body),
        // Any number of bytes that nobody reads.
        FrameKind::Probe => {}
    }
    // What is reserved is written as 0, so it is the meaning that is compared. Ranges that are
    // sent without an acknowledgement are not written.
    if header.ack.is_none() && bytes[43] != 0 {
        return;
    }
    let mut again = vec![0; bytes.len()];
    let mut writer = FrameWriter::new(&mut again, &header).expect("it was a frame of that size");
    writer.body(body).expect("as long as it was");
    assert_eq!(writer.finish(), length);
    let again = Frame::new_checked(&again[..]).expect("a frame of our own");
    assert_eq!((again.header(), again.body()), (header, body));
}

/// Makes a frame's CRC right, and its length if that is asked for, too.
pub(crate) fn seal(bytes: &mut Vec<u8>, length_too: bool) {
    if bytes.len() < HEADER + FRAME_CRC {
        bytes.resize(HEADER + FRAME_CRC, 0);
    }
    if length_too {
        bytes.truncate(usize::from(u16::MAX));
        let length = bytes.len() as u16;
        bytes[0] = tlp_codec::fabric::VERSION;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
    }
    let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    if (HEADER + FRAME_CRC..=bytes.len()).contains(&length) {
        let (covered, rest) = bytes.split_at_mut(length - FRAME_CRC);
        rest[..FRAME_CRC].copy_from_slice(&crc::frame(covered).to_le_bytes());
    }
}

/// Records one behind the other, up to the first that is none.
fn records(mut bytes: &[u8]) {
    let mut buffer = vec![0; bytes.len()];
    while !bytes.is_empty() {
        let Ok((record, length)) = Record::parse(bytes) else { return };
        assert_eq!(record.emitted_len(), length);
        let written = record.emit(&mut buffer).expect("as long as it was");
        assert_eq!(written, length);
        let again = Record::parse(&buffer[..written]);
        assert_eq!(again, Ok((record, length)));
        assert!(record.emit(&mut buffer[..length - 1]).is_err());
        bytes = &bytes[length..];
    }
}
