//! Numbers that wrap around.

/// Whether `a` is before `b`, of two numbers less than 2^31 apart (RFC 1982, section 3.2).
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The later of the two.
pub(super) const fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        assert!(before(1, 2));
        assert!(!before(2, 2));
        assert!(before(u32::MAX, 0));
        assert!(!before(0, u32::MAX));
        assert_eq!(later(u32::MAX, 3), 3);
    }
}
