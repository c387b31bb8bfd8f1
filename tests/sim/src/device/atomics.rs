//! Atomic operations, for the models of both ends (PCIe 5.0 section 6.15).

use tlp_codec::tlp::AtomicOp;

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Does it in place, which has 4 or 8 bytes, with the operand or operands of a request; what was there.
pub(crate) fn atomic(place: &mut [u8], op: AtomicOp, operands: &[u8]) -> Vec<u8> {
    let (before, width) = (place.to_vec(), place.len());
    let new = match op {
        AtomicOp::FetchAdd if operands.len() == width => {
            Some(word(&before).wrapping_add(word(operands)))
        }
        AtomicOp::Swap if operands.len() == width => Some(word(operands)),
        AtomicOp::Cas if operands.len() == 2 * width && before == operands[..width] => {
            Some(word(&operands[width..]))
        }
        _ => None,
    };
    if let Some(new) = new {
        place.copy_from_slice(&new.to_le_bytes()[..width]);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_does_what_it_says() {
        let mut place = [0xff, 0xff, 0xff, 0xff];
        assert_eq!(atomic(&mut place, AtomicOp::FetchAdd, &[2, 0, 0, 0]), [0xff; 4]);
        assert_eq!(place, [1, 0, 0, 0], "without a carry into what is beside it");
        assert_eq!(atomic(&mut place, AtomicOp::Swap, &[7, 7, 7, 7]), [1, 0, 0, 0]);
        let mut place = 5_u64.to_le_bytes();
        let operands =
            |compare: u64, swap: u64| [compare.to_le_bytes(), swap.to_le_bytes()].concat();
        assert_eq!(word(&atomic(&mut place, AtomicOp::Cas, &operands(4, 9))), 5);
        assert_eq!(word(&atomic(&mut place, AtomicOp::Cas, &operands(5, 9))), 5);
        assert_eq!(word(&place), 9);
    }
}
