//! A limited number of places for each key, such as the long polls of an account.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::locks::Mutex;

/// The places in use by key. Keys without one have no entry.
#[derive(Debug)]
pub struct Places<K>(Mutex<HashMap<K, u32>>);

/// A place in use. Dropping it makes room for another.
#[derive(Debug)]
pub struct Place<K: Copy + Eq + Hash> {
    places: Arc<Places<K>>,
    key: K,
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// Takes a place; `None` if `limit` are in use.
    pub fn take(self: &Arc<Self>, key: K, limit: u32) -> Option<Place<K>> {
        let mut used = self.0.lock();
        let count = used.entry(key).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Place { places: Arc::clone(self), key })
    }

    pub fn count(&self, key: &K) -> u32 {
        self.0.lock().get(key).copied().unwrap_or(0)
    }
}

impl<K: Copy + Eq + Hash> Place<K> {
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Copy + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut used = self.places.0.lock();
        if let Some(count) = used.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_limited_number_of_places() {
        let places = Arc::new(Places::default());
        let mut taken: Vec<_> = (0..3).map(|_| places.take('a', 3).unwrap()).collect();
        assert!(places.take('a', 3).is_none() && places.take('b', 3).is_some());
        taken.pop();
        taken.extend(places.take('a', 3));
        assert_eq!(places.count(&'a'), 3);
        taken.clear();
        assert!(places.0.lock().is_empty());
    }
}
