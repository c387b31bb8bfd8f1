//! Accesses of any size to registers of 32 bits.

/// Fills `data`, read at `offset`, from the registers that it touches, each read once.
pub(crate) fn read_registers(offset: u64, data: &mut [u8], mut read: impl FnMut(u64) -> u32) {
    let end = offset + data.len() as u64;
    for at in (offset & !3..end).step_by(4) {
        let value = read(at).to_le_bytes();
        for (i, byte) in (at..at + 4).zip(value) {
            if (offset..end).contains(&i) {
                data[(i - offset) as usize] = byte;
            }
        }
    }
}

/// The registers that a write of `data` at `offset` covers whole, with their values. Parts of
/// registers are left out: registers take whole doublewords.
pub(crate) fn written_registers(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, u32)> + '_ {
    let lead = (offset.wrapping_neg() & 3) as usize;
    let words = data.get(lead..).unwrap_or(&[]).chunks_exact(4);
    let value = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    (offset + lead as u64..).step_by(4).zip(words.map(value))
}
