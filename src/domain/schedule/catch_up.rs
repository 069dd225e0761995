//! What becomes of the runs that fell into a gap: time in which nothing could fire (contract §4, `catch_up`).

use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::{CatchUp, Occurrences, Schedule, ScheduleRule};

/// How many missed runs `catch_up: all` still fires.
const NEWEST: usize = 100;

/// How far the wall clock may run ahead of the monotonic one before it counts as a jump.
const JUMP: SignedDuration = SignedDuration::from_secs(60);

/// Why nothing fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissReason {
    /// The server did not run.
    Downtime,
    /// The wall clock jumped over the time.
    Clock,
}

impl MissReason {
    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Downtime => "downtime",
            Self::Clock => "clock",
        }
    }
}

/// Time up to and including `until` in which nothing could fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// The last instant of it.
    pub until: Timestamp,
    /// Why.
    pub reason: MissReason,
}

impl Outage {
    /// The gap that ends just before `now`.
    #[must_use]
    pub fn before(now: Timestamp, reason: MissReason) -> Self {
        Self { until: now.checked_sub(SignedDuration::from_millis(1)).unwrap_or(now), reason }
    }
}

/// Whether the wall clock jumped forward: `wall` passed on it while `real` passed on the monotonic one.
#[must_use]
pub fn jumped(wall: SignedDuration, real: SignedDuration) -> bool {
    wall.saturating_sub(real) > JUMP
}

/// The gap in which a cue lies that is due at `due` and has not fired by `now`: the one that is `known`, or one that
/// nobody has noticed yet, for what runs in time is never as late as a jump.
#[must_use]
pub fn gap_of(known: Option<Outage>, due: Timestamp, now: Timestamp) -> Option<Outage> {
    match known {
        Some(gap) if due <= gap.until => Some(gap),
        _ if now.duration_since(due) > JUMP => Some(Outage::before(now, MissReason::Clock)),
        known => known,
    }
}

/// What a due cue does: the runs to make now, those that are accounted for as missed, and when it is due again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirePlan {
    /// The instants that become executions, oldest first.
    pub runs: Vec<Timestamp>,
    /// The instants that do not.
    pub missed: Occurrences,
    /// The next instant; none when the schedule is over.
    pub next_run: Option<Timestamp>,
}

/// The step of a cue that was due at `due`, which may lie in a gap.
#[must_use]
pub fn step(schedule: &Schedule, due: Timestamp, gap: Option<Outage>) -> FirePlan {
    let recurring = matches!(schedule.timing, ScheduleRule::Recurring(_));
    match gap {
        Some(gap) if recurring && due <= gap.until => catch_up(schedule, due, gap.until),
        // A `once` cue always fires, however late.
        _ => FirePlan { runs: vec![due], missed: Occurrences::default(), next_run: schedule.next_after(due) },
    }
}

fn catch_up(schedule: &Schedule, due: Timestamp, until: Timestamp) -> FirePlan {
    let before_due = just_before(due);
    let runs = match schedule.catch_up {
        CatchUp::Latest => schedule.newest(before_due, until, 1),
        CatchUp::All => schedule.newest(before_due, until, NEWEST),
        CatchUp::None => Vec::new(),
    };
    let missed_until = runs.first().map_or(until, |oldest| just_before(*oldest));
    let missed = schedule.occurrences(before_due, missed_until);
    FirePlan { runs, missed, next_run: schedule.next_after(until) }
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_millis(1)).unwrap_or(at)
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

    fn gap(until: &str) -> Option<Outage> {
        Some(Outage { until: at(until), reason: MissReason::Downtime })
    }

    #[test]
    fn a_cue_late_by_over_a_minute_is_in_an_outage() {
        let known = gap("04:00:00");
        assert_eq!(gap_of(known, at("03:59:00"), at("09:00:00")), known);
        assert_eq!(gap_of(known, at("08:59:30"), at("09:00:00")), known);
        let unnoticed = Some(Outage { until: at("08:59:59.999"), reason: MissReason::Clock });
        assert_eq!(gap_of(known, at("08:58:00"), at("09:00:00")), unnoticed);
        assert_eq!(gap_of(None, at("08:58:00"), at("09:00:00")), unnoticed);
        assert_eq!(gap_of(None, at("08:59:00"), at("09:00:00")), None);
    }

    #[test]
    fn without_an_outage_a_late_cue_runs_for_every_instant_in_order() {
        let step = step(&hourly(CatchUp::None), at("01:00:00"), None);
        assert_eq!((step.runs, step.next_run), (vec![at("01:00:00")], Some(at("02:00:00"))));
        assert_eq!(step.missed.count, 0);
    }

    #[test]
    fn latest_fires_the_newest_and_records_the_others_as_missed() {
        let step = step(&hourly(CatchUp::Latest), at("01:00:00"), gap("04:30:00"));
        assert_eq!((step.runs, step.next_run), (vec![at("04:00:00")], Some(at("05:00:00"))));
        let missed = Occurrences { first: Some(at("01:00:00")), last: Some(at("03:00:00")), count: 3 };
        assert_eq!(step.missed, missed);
    }

    #[test]
    fn none_fires_nothing_and_records_all_as_missed() {
        let step = step(&hourly(CatchUp::None), at("01:00:00"), gap("04:30:00"));
        assert_eq!((step.runs.len(), step.missed.count, step.next_run), (0, 4, Some(at("05:00:00"))));
    }

    #[test]
    fn all_fires_the_newest_hundred_oldest_first() {
        let minutely = Schedule::recurring("* * * * *", "UTC", CatchUp::All).unwrap();
        let step = step(&minutely, at("01:00:00"), gap("02:59:30"));
        assert_eq!((step.runs.len(), step.runs[0], step.runs[99]), (100, at("01:20:00"), at("02:59:00")));
        assert_eq!((step.missed.count, step.missed.last), (20, Some(at("01:19:00"))));
    }

    #[test]
    fn a_run_due_after_the_outage_is_not_missed() {
        let step = step(&hourly(CatchUp::None), at("05:00:00"), gap("04:30:00"));
        assert_eq!((step.runs, step.missed.count), (vec![at("05:00:00")], 0));
    }

    #[test]
    fn a_once_cue_fires_under_every_catch_up_policy() {
        let mut once = Schedule::once("2026-03-01T01:00:00Z", "UTC").unwrap();
        once.catch_up = CatchUp::None;
        let step = step(&once, at("01:00:00"), gap("04:30:00"));
        assert_eq!((step.runs, step.next_run, step.missed.count), (vec![at("01:00:00")], None, 0));
    }

    #[test]
    fn only_a_step_of_over_a_minute_is_a_jump() {
        let seconds = SignedDuration::from_secs;
        assert!(!jumped(seconds(65), seconds(5)));
        assert!(jumped(seconds(66), seconds(5)));
        assert!(!jumped(seconds(-900), seconds(5)));
    }
}
