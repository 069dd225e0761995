//! Random numbers that a printed seed repeats.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Seeded by `CUED_TEST_SEED`, or else by the time; the seed is printed and so shown when the test fails.
    pub fn seeded(test: &str) -> Self {
        let given = std::env::var("CUED_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let nanos = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let seed = given.unwrap_or_else(|| u64::try_from(nanos() % 1_000_000_007).unwrap());
        eprintln!("{test}: CUED_TEST_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
