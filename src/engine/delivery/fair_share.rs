//! How the delivery threads are shared out among destinations, so that those that hang cannot hold up the others.
//!
//! A pure count: who is sent what is decided in `dispatcher`.

use std::collections::HashMap;

/// Idle lanes that are remembered for having hung.
const MAX_REMEMBERED: usize = 1_024;

/// Who holds how many threads. Every attempt that is taken up has a thread of its own from the start.
///
/// Three rules together keep a thread for the receiver that comes next:
/// - A lane (a host and port) that holds nothing may always have a free thread; the last quarter of the threads is
///   for such lanes only. So even if several busy hosts stall at once, sixteen newcomers of sixty-four get through.
/// - A lane holds at most half of what the others leave. One alone has half of the threads, a second a quarter.
/// - A lane begins with few threads and earns one more with each attempt that comes back in time; after a time-out
///   it may have one at a time until an answer comes. So a host that hangs holds four threads once, then one.
#[derive(Debug, Clone)]
pub struct FairShare {
    threads: usize,
    under_way: usize,
    lanes: HashMap<i64, DestinationSlots>,
}

#[derive(Debug, Clone, Copy)]
struct DestinationSlots {
    under_way: usize,
    /// The most that its conduct has earned it.
    earned: usize,
}

impl FairShare {
    /// Shares of this many threads, at least one.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), under_way: 0, lanes: HashMap::new() }
    }

    /// Threads that nobody holds.
    #[must_use]
    pub fn free(&self) -> usize {
        self.threads - self.under_way
    }

    /// Attempts that are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Gives `lane` a thread; `false` when it may not have one now.
    pub fn try_acquire(&mut self, lane: i64) -> bool {
        let (free, earned) = (self.free(), self.first_share());
        let half = |held: usize| (free + held).div_ceil(2);
        let reserve = self.threads / 4;
        let lane = self.lanes.entry(lane).or_insert(DestinationSlots { under_way: 0, earned });
        let may_have = match lane.under_way {
            0 => free > 0,
            held => free > reserve && held < lane.earned.min(half(held)),
        };
        if may_have {
            lane.under_way += 1;
            self.under_way += 1;
        }
        may_have
    }

    /// Takes back the thread of an attempt of `lane` that has ended.
    pub fn release(&mut self, lane: i64, timed_out: bool) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        lane.under_way -= 1;
        lane.earned = if timed_out { 1 } else { self.threads.min(lane.earned + 1) };
        self.under_way -= 1;
    }

    /// Forgets lanes that hold nothing, but for those that have to earn their way back.
    pub fn forget_idle(&mut self) {
        let first_share = self.first_share();
        self.lanes.retain(|_, lane| lane.under_way > 0 || lane.earned < first_share);
        if self.lanes.len() > MAX_REMEMBERED + self.under_way {
            self.lanes.retain(|_, lane| lane.under_way > 0);
        }
    }

    fn first_share(&self) -> usize {
        (self.threads / 16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_all(shares: &mut FairShare, lane: i64) -> usize {
        std::iter::repeat_with(|| shares.try_acquire(lane)).take_while(|got| *got).count()
    }

    /// A lane whose receiver has always answered.
    fn trusted(shares: &mut FairShare, lane: i64) {
        for _ in 0..64 {
            assert!(shares.try_acquire(lane));
            shares.release(lane, false);
        }
    }

    #[test]
    fn a_destination_starts_with_few_threads_and_can_earn_half() {
        let mut shares = FairShare::new(64);
        assert_eq!(claim_all(&mut shares, 1), 4);
        for _ in 0..4 {
            shares.release(1, false);
        }
        assert_eq!(claim_all(&mut shares, 1), 8);
        for _ in 0..8 {
            shares.release(1, false);
        }
        trusted(&mut shares, 1);
        assert_eq!(claim_all(&mut shares, 1), 32);
    }

    #[test]
    fn a_destination_that_timed_out_has_one_thread_until_it_responds() {
        let mut shares = FairShare::new(64);
        assert_eq!(claim_all(&mut shares, 1), 4);
        for _ in 0..4 {
            shares.release(1, true);
        }
        shares.forget_idle();
        assert_eq!(claim_all(&mut shares, 1), 1);
        shares.release(1, false);
        shares.forget_idle();
        assert_eq!(claim_all(&mut shares, 1), 2);
    }

    #[test]
    fn stalled_destinations_leave_a_quarter_for_new_ones() {
        let mut shares = FairShare::new(64);
        for lane in 1..=5 {
            trusted(&mut shares, lane);
        }
        let held: Vec<_> = (1..=5).map(|lane| claim_all(&mut shares, lane)).collect();
        assert_eq!(held, [32, 16, 1, 1, 1]);
        let newcomers = (100..).take_while(|lane| shares.try_acquire(*lane)).count();
        assert_eq!(newcomers, 64 - 51);
        assert_eq!(shares.free(), 0);
    }

    #[test]
    fn a_small_pool_is_shared_too() {
        let mut shares = FairShare::new(2);
        assert_eq!(claim_all(&mut shares, 1), 1);
        assert_eq!(claim_all(&mut shares, 2), 1);
        assert!(FairShare::new(0).try_acquire(1));
    }

    #[test]
    fn idle_destinations_are_dropped_and_timed_out_ones_are_bounded() {
        let mut shares = FairShare::new(64);
        let hang = |shares: &mut FairShare, lane| {
            assert!(shares.try_acquire(lane));
            shares.release(lane, true);
            shares.forget_idle();
        };
        trusted(&mut shares, 0);
        (0..10_000).for_each(|lane| hang(&mut shares, lane));
        assert!(shares.lanes.len() <= MAX_REMEMBERED + 1, "{}", shares.lanes.len());
        assert_eq!(shares.under_way(), 0);
    }
}
