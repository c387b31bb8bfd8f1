//! Numbers for those who misbehave on purpose: the same each time from one seed.

/// SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, 2014).
pub struct Random(pub u64);

impl Random {
    /// The next one, of all there are.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From 0 up to and without 1.
    pub fn share(&mut self) -> f64 {
        self.next() as f64 / 2_f64.powi(64)
    }
}
