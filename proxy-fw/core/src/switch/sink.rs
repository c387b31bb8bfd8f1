//! Where the switch puts the TLPs that it makes itself.

/// A queue that takes TLPs.
pub trait TlpSink {
    /// Takes a copy of a TLP; `false` when there is no room, and then nothing is taken.
    fn push(&mut self, tlp: &[u8]) -> bool;
}

#[cfg(any(test, feature = "std"))]
impl TlpSink for std::vec::Vec<std::vec::Vec<u8>> {
    /// Always has room: for tests and tools.
    fn push(&mut self, tlp: &[u8]) -> bool {
        self.push(tlp.to_vec());
        true
    }
}
