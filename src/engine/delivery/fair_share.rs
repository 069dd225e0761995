//! Fair sharing of the delivery threads among destinations: hosts that hang must not hold up the others.
//!
//! This file only counts. The dispatcher decides which execution to send next.

use std::collections::HashMap;

/// Idle destinations kept in memory because they timed out. Bounds the memory of a user whose every callback hangs.
const MAX_REMEMBERED: usize = 1_024;

/// Counts the threads that each destination (host and port) holds. An attempt holds one thread from its claim to its
/// end.
///
/// Three rules keep a thread free for the next destination:
/// - A destination that holds no thread may take any free one, and the last quarter of the threads is reserved for
///   such destinations. If several busy hosts stall at once, 16 of 64 threads still serve newcomers.
/// - A destination holds at most half of the threads that the others leave: the first gets half of all threads, the
///   second a quarter.
/// - A destination starts with a sixteenth of the threads and earns one more with each attempt that ends in time.
///   After a timeout it gets one thread at a time until an attempt ends in time. A host that hangs therefore holds
///   four of 64 threads once, and one from then on.
#[derive(Debug, Clone)]
pub struct FairShare {
    threads: usize,
    in_use: usize,
    destinations: HashMap<i64, DestinationSlots>,
}

#[derive(Debug, Clone, Copy)]
struct DestinationSlots {
    in_use: usize,
    /// Threads that the destination has earned.
    limit: usize,
}

impl FairShare {
    /// `threads` below one count as one.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), in_use: 0, destinations: HashMap::new() }
    }

    #[must_use]
    pub fn free(&self) -> usize {
        self.threads - self.in_use
    }

    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes a thread for `destination`. Returns `false` when the destination may not have one now.
    pub fn try_acquire(&mut self, destination: i64) -> bool {
        let (free, limit) = (self.free(), self.initial_limit());
        let half = |held: usize| (free + held).div_ceil(2);
        let reserve = self.threads / 4;
        let destination =
            self.destinations.entry(destination).or_insert(DestinationSlots { in_use: 0, limit });
        let may_have = match destination.in_use {
            0 => free > 0,
            held => free > reserve && held < destination.limit.min(half(held)),
        };
        if may_have {
            destination.in_use += 1;
            self.in_use += 1;
        }
        may_have
    }

    /// Returns the thread of an attempt to `destination` that has ended.
    pub fn release(&mut self, destination: i64, timed_out: bool) {
        let Some(destination) = self.destinations.get_mut(&destination) else { return };
        destination.in_use -= 1;
        destination.limit = if timed_out { 1 } else { self.threads.min(destination.limit + 1) };
        self.in_use -= 1;
    }

    /// Drops the counts of destinations that hold no thread, except of those that timed out.
    pub fn forget_idle(&mut self) {
        let initial_limit = self.initial_limit();
        self.destinations
            .retain(|_, destination| destination.in_use > 0 || destination.limit < initial_limit);
        if self.destinations.len() > MAX_REMEMBERED + self.in_use {
            self.destinations.retain(|_, destination| destination.in_use > 0);
        }
    }

    fn initial_limit(&self) -> usize {
        (self.threads / 16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire_all(slots: &mut FairShare, destination: i64) -> usize {
        std::iter::repeat_with(|| slots.try_acquire(destination)).take_while(|got| *got).count()
    }

    /// Lets `destination` earn its full limit.
    fn trusted(slots: &mut FairShare, destination: i64) {
        for _ in 0..64 {
            assert!(slots.try_acquire(destination));
            slots.release(destination, false);
        }
    }

    #[test]
    fn a_destination_starts_with_few_threads_and_earns_up_to_half() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_all(&mut slots, 1), 4);
        for _ in 0..4 {
            slots.release(1, false);
        }
        assert_eq!(acquire_all(&mut slots, 1), 8);
        for _ in 0..8 {
            slots.release(1, false);
        }
        trusted(&mut slots, 1);
        assert_eq!(acquire_all(&mut slots, 1), 32);
    }

    #[test]
    fn a_destination_that_timed_out_gets_one_thread_until_an_attempt_ends_in_time() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_all(&mut slots, 1), 4);
        for _ in 0..4 {
            slots.release(1, true);
        }
        slots.forget_idle();
        assert_eq!(acquire_all(&mut slots, 1), 1);
        slots.release(1, false);
        slots.forget_idle();
        assert_eq!(acquire_all(&mut slots, 1), 2);
    }

    #[test]
    fn busy_destinations_that_stall_leave_a_quarter_of_the_threads_to_newcomers() {
        let mut slots = FairShare::new(64);
        for destination in 1..=5 {
            trusted(&mut slots, destination);
        }
        let held: Vec<_> = (1..=5).map(|destination| acquire_all(&mut slots, destination)).collect();
        assert_eq!(held, [32, 16, 1, 1, 1]);
        let newcomers = (100..).take_while(|destination| slots.try_acquire(*destination)).count();
        assert_eq!(newcomers, 64 - 51);
        assert_eq!(slots.free(), 0);
    }

    #[test]
    fn two_threads_are_shared() {
        let mut slots = FairShare::new(2);
        assert_eq!(acquire_all(&mut slots, 1), 1);
        assert_eq!(acquire_all(&mut slots, 2), 1);
        assert!(FairShare::new(0).try_acquire(1));
    }

    #[test]
    fn idle_destinations_are_dropped_and_those_that_timed_out_are_kept_up_to_a_bound() {
        let mut slots = FairShare::new(64);
        let hang = |slots: &mut FairShare, destination| {
            assert!(slots.try_acquire(destination));
            slots.release(destination, true);
            slots.forget_idle();
        };
        trusted(&mut slots, 0);
        (0..10_000).for_each(|destination| hang(&mut slots, destination));
        assert!(slots.destinations.len() <= MAX_REMEMBERED + 1, "{}", slots.destinations.len());
        assert_eq!(slots.in_use(), 0);
    }
}
