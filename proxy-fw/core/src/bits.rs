//! Words whose bits are numbers of places.

/// The numbers of the bits that are set, the lowest first.
pub(crate) fn ones(mut word: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then_some(word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// As [`ones`], those from a place on first.
pub(crate) fn ones_from(start: usize, word: u32) -> impl Iterator<Item = usize> {
    ones(word.rotate_right(start as u32)).map(move |step| (start + step) % u32::BITS as usize)
}

#[cfg(test)]
mod tests {
    use super::{ones, ones_from};
    use std::vec::Vec;

    #[test]
    fn the_lowest_comes_first_and_the_highest_is_not_forgotten() {
        assert_eq!(ones(1 << 31 | 0b1010).collect::<Vec<_>>(), [1, 3, 31]);
        assert_eq!(ones(0).next(), None);
        assert_eq!(ones(u32::MAX).count(), 32);
    }

    #[test]
    fn after_the_last_place_comes_the_first() {
        assert_eq!(ones_from(3, 0b1010).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(ones_from(4, 0b1010).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(ones_from(32, 1 << 31 | 1).collect::<Vec<_>>(), [0, 31]);
    }
}
