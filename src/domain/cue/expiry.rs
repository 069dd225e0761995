//! Which executions are old enough to be deleted. A date is believed only if a clock that was set can have shown it, and if
//! it is not before an instant that was trusted when the execution was created. Row keys grow with time, so an execution
//! with another date is older than every later one (contract §1.7).

use jiff::{SignedDuration, Timestamp};

use crate::domain::cue::retention_clock::AgingTime;
use crate::domain::time::EARLIEST_CLOCK;
use crate::domain::time::saturating_sub;

/// An end that is up to this much before the creation is taken for the creation: time services set clocks back a little.
const MAX_SET_BACK: SignedDuration = SignedDuration::from_hours(24);

/// The limits by which executions are old enough to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Dates between these two are believed.
    earliest: Timestamp,
    latest: Timestamp,
    by_date: AgeLimits,
    /// The limits by the newest trusted instant, for executions whose date is before one that was trusted then. `None`
    /// if every date is believed.
    by_trust: Option<AgeLimits>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AgeLimits {
    /// Executions that ended at or before this instant are deleted.
    expired: Timestamp,
    /// The same for a creation, if the end is not known.
    expired_without_end: Timestamp,
}

impl AgeLimits {
    fn new(age: SignedDuration, now: Timestamp) -> Self {
        let expired = saturating_sub(now, age);
        Self { expired, expired_without_end: saturating_sub(expired, age) }
    }
}

/// The dates of an execution, and trusted instants between which it was created, as far as the file has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionDates {
    pub created_at: Timestamp,
    pub ended_at: Timestamp,
    pub trusted_before: Option<Timestamp>,
    pub trusted_after: Option<Timestamp>,
}

/// The verdict on the dates of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dating {
    /// No clock that was set can have shown its creation.
    Undated,
    /// Created too recently to be deleted, as all later ones.
    Fresh,
    /// Created long enough ago. `has_ended_long_ago` says the same of its end, if it is finished.
    Old { has_ended_long_ago: bool },
}

impl Expiry {
    /// The limits at `time`, for history of `age`. `None` if nothing can have expired, because the clock was not set.
    pub fn new(age: SignedDuration, time: &AgingTime) -> Option<Self> {
        let by_date = AgeLimits::new(age, time.now);
        let by_trust = time.newest.map(|newest| AgeLimits::new(age, newest));
        (by_date.expired >= EARLIEST_CLOCK).then_some(Self {
            earliest: EARLIEST_CLOCK,
            latest: time.wall,
            by_date,
            by_trust,
        })
    }

    /// The limits under a test clock, which is moved on purpose: every date is believed.
    pub fn of_test_clock(age: SignedDuration, now: Timestamp) -> Self {
        let by_date = AgeLimits::new(age, now);
        Self { earliest: Timestamp::MIN, latest: Timestamp::MAX, by_date, by_trust: None }
    }

    /// Judges an execution. `is_before_expired` says that a later one is old, so that this one is as well.
    pub fn judge(&self, dates: &ExecutionDates, is_before_expired: bool) -> Dating {
        let ExecutionDates { created_at, ended_at, .. } = *dates;
        if let Some(dating) = self.judge_made_behind(dates, is_before_expired) {
            return dating;
        }
        let is_dated = self.is_believable(created_at);
        if !is_before_expired {
            if !is_dated {
                return Dating::Undated;
            }
            if created_at > self.by_date.expired {
                return Dating::Fresh;
            }
        }
        let follows = !is_dated || created_at.duration_since(ended_at) <= MAX_SET_BACK;
        let has_ended_long_ago = if self.is_believable(ended_at) && follows {
            ended_at <= self.by_date.expired
        } else {
            // The end is later than the creation and else unknown. It gets the age once more.
            !is_dated || created_at <= self.by_date.expired_without_end
        };
        Dating::Old { has_ended_long_ago }
    }

    /// Judges an execution that was created while the clock was behind: it is as old as the next trusted instant.
    fn judge_made_behind(&self, dates: &ExecutionDates, is_before_expired: bool) -> Option<Dating> {
        let limits = self.by_trust?;
        let before = dates.trusted_before.filter(|before| dates.created_at < *before)?;
        let is_until = |limit: Timestamp| dates.trusted_after.is_some_and(|after| after <= limit);
        if !is_before_expired && !is_until(limits.expired) {
            return Some(Dating::Fresh);
        }
        let has_ended_long_ago = if dates.ended_at >= before && self.is_believable(dates.ended_at) {
            dates.ended_at <= self.by_date.expired
        } else {
            is_until(limits.expired_without_end)
        };
        Some(Dating::Old { has_ended_long_ago })
    }

    fn is_believable(&self, at: Timestamp) -> bool {
        self.earliest <= at && at <= self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: SignedDuration = SignedDuration::from_hours(90 * 24);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn dates(created: &str, ended: &str) -> ExecutionDates {
        let (created_at, ended_at) = (at(created), at(ended));
        ExecutionDates { created_at, ended_at, trusted_before: None, trusted_after: None }
    }

    #[test]
    fn dates_that_no_clock_can_have_shown_are_judged_by_the_order_of_creation() {
        let now = at("2026-06-01T00:00:00Z");
        let expiry = Expiry::new(AGE, &AgingTime { now, newest: Some(now), wall: now }).unwrap();
        let judge = |created, ended, is_before| expiry.judge(&dates(created, ended), is_before);
        let old = |has_ended_long_ago| Dating::Old { has_ended_long_ago };
        let (january, may) = ("2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z");
        let (never_set, ahead) = ("1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
        assert_eq!(judge(january, january, false), old(true));
        assert_eq!(judge(january, may, false), old(false));
        assert_eq!(judge(may, may, false), Dating::Fresh);
        for wrong in [never_set, ahead] {
            assert_eq!(judge(wrong, wrong, false), Dating::Undated);
            assert_eq!(judge(wrong, wrong, true), old(true));
            assert_eq!(judge(wrong, may, true), old(false));
            // Created by a clock that was right, ended by one that was wrong: kept for the age once more.
            assert_eq!(judge(january, wrong, false), old(false));
            assert_eq!(judge("2025-11-01T00:00:00Z", wrong, false), old(true));
        }
        assert_eq!(judge(january, "2025-12-31T23:59:58Z", false), old(true), "set back by two seconds");
        let unset = AgingTime { now: at(never_set), newest: None, wall: at(never_set) };
        assert_eq!(Expiry::new(AGE, &unset), None);
        let test = Expiry::of_test_clock(AGE, at("1999-01-01T00:00:00Z"));
        assert_eq!(test.judge(&dates(never_set, never_set), false), old(true));
    }

    #[test]
    fn what_was_made_while_the_clock_was_behind_is_as_old_as_the_next_trusted_instant() {
        let (behind, before) = ("2024-05-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let judge = |after: Option<&str>, ended, now| {
            let time = AgingTime { now: at(now), newest: Some(at(now)), wall: at(now) };
            let bounds = (Some(at(before)), after.map(at));
            let dates =
                ExecutionDates { trusted_before: bounds.0, trusted_after: bounds.1, ..dates(behind, ended) };
            Expiry::new(AGE, &time).unwrap().judge(&dates, false)
        };
        let old = |has_ended_long_ago| Dating::Old { has_ended_long_ago };
        let after = Some("2026-01-02T00:00:00Z");
        assert_eq!(judge(None, behind, "2026-01-01T00:30:00Z"), Dating::Fresh);
        assert_eq!(judge(after, behind, "2026-04-01T00:00:00Z"), Dating::Fresh);
        assert_eq!(judge(after, behind, "2026-04-03T00:00:00Z"), old(false), "its end is not known");
        assert_eq!(judge(after, behind, "2026-07-03T00:00:00Z"), old(true));
        assert_eq!(judge(after, "2026-01-03T00:00:00Z", "2026-04-02T12:00:00Z"), old(false));
        assert_eq!(judge(after, "2026-01-03T00:00:00Z", "2026-04-03T12:00:00Z"), old(true));
    }
}
