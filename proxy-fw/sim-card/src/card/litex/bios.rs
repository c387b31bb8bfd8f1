//! What LiteX's BIOS does with the flash after a reset (litex/soc/software/bios/boot.c, `flashboot`). It
//! is played here: a card's ROM has the BIOS's program.

/// Bytes of a program that it starts.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=16 << 20;

/// Bytes in front of the program: its length and its CRC, 32 bits each and little-endian.
const FRONT: usize = 8;

/// The ROM where it has started a program: what is at an address is entered.
pub(super) const fn enter(at: u32) -> [u32; 2] {
    [
        at & 0xffff_f000 | 0x2b7, // lui t0, at
        0x0002_8067,              // jr  t0
    ]
}

/// The ROM where it has not: a person is waited for.
pub(super) const WAIT: [u32; 2] = [
    0x1050_0073, // wfi
    0xffdf_f06f, // j .-4
];

/// The program that it finds in a flash, from where it looks on, if it starts it.
pub(super) fn program(flash: &[u8]) -> Option<&[u8]> {
    let (&front, rest) = flash.split_first_chunk::<FRONT>()?;
    let [length, crc] = [&front[..4], &front[4..]]
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let length = usize::try_from(length).ok().filter(|length| LENGTHS.contains(length))?;
    let program = rest.get(..length)?;
    (crc32fast::hash(program) == crc).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flash(program: &[u8]) -> Vec<u8> {
        let front = [program.len() as u32, crc32fast::hash(program)].map(u32::to_le_bytes).concat();
        [&front, program, &[0xff; 8]].concat()
    }

    #[test]
    fn a_program_with_the_right_words_in_front_is_started_and_no_other() {
        // The check value of CRC-32/ISO-HDLC is that of these nine bytes.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        let right = in_flash(&[7; 40]);
        assert_eq!(program(&right), Some(&[7; 40][..]));
        for at in 0..FRONT + 40 {
            let mut damaged = right.clone();
            damaged[at] ^= 1;
            assert_eq!(program(&damaged), None, "{at}");
        }
        assert_eq!(program(&in_flash(&[7; 31])), None, "it is too short");
        assert_eq!(program(&right[..FRONT + 39]), None, "the flash has not all of it");
        assert_eq!(program(&[0xff; 64]), None, "nothing is there");
    }
}
