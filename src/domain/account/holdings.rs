//! What each holder has of something that all share, such as bytes or threads, and the sum.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub struct Holdings<K> {
    total: usize,
    /// Those that hold something.
    by_holder: HashMap<K, usize>,
}

impl<K: Copy + Eq + Hash> Holdings<K> {
    pub fn none() -> Self {
        Self { total: 0, by_holder: HashMap::new() }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn of(&self, holder: K) -> usize {
        self.by_holder.get(&holder).copied().unwrap_or(0)
    }

    pub fn add(&mut self, holder: K, amount: usize) {
        self.total += amount;
        *self.by_holder.entry(holder).or_default() += amount;
    }

    pub fn remove(&mut self, holder: K, amount: usize) {
        debug_assert!(self.of(holder) >= amount, "given back twice");
        self.total = self.total.saturating_sub(amount);
        let Some(held) = self.by_holder.get_mut(&holder) else { return };
        *held = held.saturating_sub(amount);
        if *held == 0 {
            self.by_holder.remove(&holder);
        }
    }

    #[cfg(test)]
    pub fn holders(&self) -> usize {
        self.by_holder.len()
    }
}
