//! The generator of random input: pseudo-random numbers that a seed repeats.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// The same sequence in every run.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by `CUED_TEST_SEED`, otherwise by the time. Prints the seed, which a failing test shows.
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

    /// An index of a collection with `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.index(choices.len())]
    }
}
