//! `catch_up` (contract §4): which runs of an outage still fire, and which are recorded as missed.

use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::{CatchUp, Occurrences, Schedule, ScheduleRule};
use crate::domain::text::word_enum;
use crate::domain::time::just_before;

/// Missed runs that `catch_up: all` still fires (contract §4).
const MAX_CATCH_UP_RUNS: usize = 100;

/// A cue that is later was missed, and a wall clock that gains more than this on the monotonic one has jumped: above
/// any delay of a working scheduler and any correction of a time service.
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(60);

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MissReason {
        Downtime = "downtime",
        Clock = "clock",
        /// An earlier execution of the cue was not finished (`overlap`).
        Overlap = "overlap",
    }
}

/// A span without firing, up to and including `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    pub until: Timestamp,
    pub reason: MissReason,
}

impl Outage {
    pub fn before(now: Timestamp, reason: MissReason) -> Self {
        Self { until: just_before(now), reason }
    }
}

/// The reason for which cues missed their runs while none fired, if the span was long: the wall clock, which advanced by
/// `wall`, jumped forward, or in `real` time the process was stopped or could not write.
pub fn gap(wall: SignedDuration, real: SignedDuration) -> Option<MissReason> {
    let has_jumped = wall.saturating_sub(real) > MAX_DELAY;
    (wall > MAX_DELAY).then_some(if has_jumped { MissReason::Clock } else { MissReason::Downtime })
}

/// The outage in which a cue missed its run, if any: the `known` one, or one inferred from the delay.
pub fn outage_at(known: Option<Outage>, due: Timestamp, now: Timestamp) -> Option<Outage> {
    match known {
        Some(outage) if due <= outage.until => Some(outage),
        _ if now.duration_since(due) > MAX_DELAY => Some(Outage::before(now, MissReason::Clock)),
        known => known,
    }
}

/// The effect of a due cue: the runs to create now, the runs to record as missed, and the next due instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirePlan {
    pub runs: Vec<Timestamp>,
    pub missed: Occurrences,
    pub next_run: Option<Timestamp>,
}

/// The runs of an account that an outage has missed and that became executions after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaughtUp {
    pub runs: u64,
    /// The first and the last instant at which they were due.
    pub first: Timestamp,
    pub last: Timestamp,
}

impl CaughtUp {
    /// The runs in `runs`, which are sorted, up to the end of `outage`.
    pub fn from_runs(runs: &[Timestamp], outage: Outage) -> Option<Self> {
        let runs = &runs[..runs.partition_point(|run| *run <= outage.until)];
        let (first, last) = (*runs.first()?, *runs.last()?);
        Some(Self { runs: u64::try_from(runs.len()).unwrap_or(u64::MAX), first, last })
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            runs: self.runs.saturating_add(other.runs),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// The plan of a cue that was due at `due`, possibly during an outage.
pub fn fire_plan(schedule: &Schedule, due: Timestamp, outage: Option<Outage>) -> FirePlan {
    let recurring = !matches!(schedule.rule, ScheduleRule::Once(_));
    match outage {
        Some(outage) if recurring && due <= outage.until => catch_up(schedule, due, outage.until),
        // A `once` cue always fires, however late (contract §4).
        _ => FirePlan {
            runs: vec![due],
            missed: Occurrences::default(),
            next_run: schedule.next_after(due),
        },
    }
}

fn catch_up(schedule: &Schedule, due: Timestamp, until: Timestamp) -> FirePlan {
    let before_due = just_before(due);
    let runs = match schedule.catch_up {
        CatchUp::Latest => schedule.newest(before_due, until, 1),
        CatchUp::All => schedule.newest(before_due, until, MAX_CATCH_UP_RUNS),
        CatchUp::None => Vec::new(),
    };
    let missed_until = runs.first().map_or(until, |oldest| just_before(*oldest));
    let missed = schedule.occurrences(before_due, missed_until);
    FirePlan { runs, missed, next_run: schedule.next_after(until) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-03-01T{text}Z").parse().unwrap()
    }

    fn hourly(catch_up: CatchUp) -> Schedule {
        Schedule::recurring("0 * * * *", "UTC", catch_up).unwrap()
    }

    fn outage(until: &str) -> Option<Outage> {
        Some(Outage { until: at(until), reason: MissReason::Downtime })
    }

    #[test]
    fn a_plan_fires_and_records_as_missed_by_the_policy() {
        let (none, known) = (None, outage("04:30:00"));
        for (policy, due, outage, run, next, missed) in [
            (CatchUp::None, "01:00:00", none, Some("01:00:00"), "02:00:00", 0),
            (CatchUp::Latest, "01:00:00", known, Some("04:00:00"), "05:00:00", 3),
            (CatchUp::None, "01:00:00", known, None, "05:00:00", 4),
            // Due after the outage.
            (CatchUp::None, "05:00:00", known, Some("05:00:00"), "06:00:00", 0),
        ] {
            let plan = fire_plan(&hourly(policy), at(due), outage);
            let runs: Vec<Timestamp> = run.map(at).into_iter().collect();
            assert_eq!((plan.runs, plan.next_run), (runs, Some(at(next))), "{policy:?} {due}");
            let first = (missed > 0).then(|| at("01:00:00"));
            assert_eq!((plan.missed.first, plan.missed.count), (first, missed), "{policy:?} {due}");
        }
        let minutely = Schedule::recurring("* * * * *", "UTC", CatchUp::All).unwrap();
        let plan = fire_plan(&minutely, at("01:00:00"), outage("02:59:30"));
        assert_eq!(
            (plan.runs.len(), plan.runs[0], plan.runs[99]),
            (100, at("01:20:00"), at("02:59:00"))
        );
        assert_eq!((plan.missed.count, plan.missed.last), (20, Some(at("01:19:00"))));
        // A once cue fires under every policy.
        let once = Schedule::once("2026-03-01T01:00:00Z", "UTC").unwrap();
        let plan = fire_plan(&Schedule { catch_up: CatchUp::None, ..once }, at("01:00:00"), known);
        assert_eq!((plan.runs, plan.next_run, plan.missed.count), (vec![at("01:00:00")], None, 0));
    }
}
