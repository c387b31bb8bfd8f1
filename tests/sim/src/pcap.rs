//! Frames as a capture that Wireshark opens: classic pcap with nanoseconds, link type Ethernet
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>).

use proxy_core::time::Instant;
use std::io::{self, Write};
use tlp_codec::fabric::ETHERTYPE;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const SNAP_LENGTH: u32 = 65_535;
const ETHERNET: u32 = 1;

/// A capture that is being written.
pub(crate) struct Capture {
    out: Box<dyn Write>,
}

impl Capture {
    pub(crate) fn new(mut out: Box<dyn Write>) -> io::Result<Self> {
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&2_u16.to_le_bytes())?;
        out.write_all(&4_u16.to_le_bytes())?;
        out.write_all(&[0; 8])?;
        out.write_all(&SNAP_LENGTH.to_le_bytes())?;
        out.write_all(&ETHERNET.to_le_bytes())?;
        Ok(Self { out })
    }

    /// One frame as it left its sender, between nodes by their numbers. Locally administered
    /// addresses: node and path.
    pub(crate) fn frame(
        &mut self,
        at: Instant,
        from: u16,
        to: u16,
        path: u8,
        frame: &[u8],
    ) -> io::Result<()> {
        let length = (frame.len() + 14) as u32;
        let nanos = at.as_nanos();
        let mut head = Vec::with_capacity(30);
        for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, length, length]
        {
            head.extend_from_slice(&word.to_le_bytes());
        }
        for node in [to, from] {
            head.extend_from_slice(&[0x02, 0xd0, 0xac, path]);
            head.extend_from_slice(&node.to_be_bytes());
        }
        head.extend_from_slice(&ETHERTYPE.to_be_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(frame)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
