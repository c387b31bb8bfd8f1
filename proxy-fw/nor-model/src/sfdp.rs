//! What a part says of itself: Serial Flash Discoverable Parameters (JEDEC JESD216B, 6.2 to 6.4).

use crate::part::Part;

/// Where the basic parameter table begins.
const BASIC: usize = 0x30;

/// Words of the basic parameter table.
const WORDS: usize = 16;

/// Bytes of the header and the table.
const LENGTH: usize = BASIC + 4 * WORDS;

/// The whole of a part's parameters. What is not there reads 0xff.
pub(crate) fn table(part: &Part) -> [u8; LENGTH] {
    let mut bytes = [0xff; LENGTH];
    bytes[..4].copy_from_slice(b"SFDP");
    // Revision 1.6, one parameter header.
    bytes[4..8].copy_from_slice(&[6, 1, 0, 0xff]);
    // The basic table, revision 1.6: its number, length and address.
    bytes[8..16].copy_from_slice(&[0, 6, 1, WORDS as u8, BASIC as u8, 0, 0, 0xff]);
    for (word, into) in words(part).iter().zip(bytes[BASIC..].chunks_exact_mut(4)) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words(part: &Part) -> [u32; WORDS] {
    let four_byte = part.size > 1 << 24;
    let smallest = part.erases[0];
    let mut words = [0; WORDS];
    // Uniform 4 KB erase (01) or none (11) with its command, 3-byte or 3- and 4-byte addresses;
    // bits that are reserved are 1.
    words[0] = 0xff80_0000 | u32::from(four_byte) << 17 | 1 << 2;
    words[0] |= match smallest.size {
        4096 => 1 | u32::from(smallest.opcode) << 8,
        _ => 3 | 0xff << 8,
    };
    words[1] = (u64::from(part.size) * 8 - 1) as u32;
    // Words 8 and 9: up to four erase types, as exponent and command.
    for (number, kind) in part.erases.iter().take(4).enumerate() {
        let kind = kind.size.trailing_zeros() | u32::from(kind.opcode) << 8;
        words[7 + number / 2] |= kind << (16 * (number % 2));
    }
    // Word 11: the page size, as an exponent.
    words[10] = part.page.trailing_zeros() << 4;
    if four_byte {
        // Word 16: command b7 enters 4-byte addressing, e9 leaves it.
        words[15] = 1 << 24 | 1 << 14;
    }
    words
}
