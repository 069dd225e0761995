//! The planned runs of many cues within hours from an instant (contract §4.13). Rare cues have their times, frequent ones
//! a count for each hour: work and bytes stay bounded, whatever the schedules are.

use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::Schedule;
use crate::domain::time::{just_before, saturating_add};

/// A week.
pub const MAX_HOURS: u32 = 168;

/// Cues in one answer. With a count for each of 168 hours they take under 1 MB.
pub const MAX_CUES: usize = 1_000;

/// Times in one answer: under 500 KB.
const MAX_TIMES: u64 = 20_000;

/// A cue with more runs an hour, on average, has no times: `*/15 * * * *` still has.
const MAX_PER_HOUR: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourSpan {
    pub from: Timestamp,
    pub hours: u32,
}

impl HourSpan {
    pub fn until(&self) -> Timestamp {
        self.start_of(self.hours)
    }

    fn start_of(&self, hour: u32) -> Timestamp {
        saturating_add(self.from, SignedDuration::from_hours(hour.into()))
    }
}

/// The runs of a cue that are to come: `next_run`, and those of the schedule after it.
#[derive(Debug, Clone)]
pub struct RunsToCome {
    pub schedule: Schedule,
    pub next_run: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedTimes {
    At(Vec<Timestamp>),
    PerHour(Vec<u64>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRuns {
    pub count: u64,
    pub times: PlannedTimes,
}

impl RunsToCome {
    /// The runs at and after `from`, and before `until`.
    pub fn count(&self, from: Timestamp, until: Timestamp) -> u64 {
        let others = self
            .schedule
            .occurrences(just_before(from).max(self.next_run), just_before(until))
            .count;
        u64::from(from <= self.next_run && self.next_run < until) + others
    }

    fn times(&self, span: &HourSpan) -> Vec<Timestamp> {
        let next = Some(self.next_run).filter(|next| span.from <= *next && *next < span.until());
        let after = just_before(span.from).max(self.next_run);
        let others = self.schedule.newest(after, just_before(span.until()), usize::MAX);
        next.into_iter().chain(others).collect()
    }

    fn per_hour(&self, span: &HourSpan) -> Vec<u64> {
        (0..span.hours)
            .map(|hour| self.count(span.start_of(hour), span.start_of(hour + 1)))
            .collect()
    }
}

/// The runs of each cue that has any in the span, those with the fewest first. Returns also whether cues were left out.
pub fn plan<T>(
    cues: impl IntoIterator<Item = (T, RunsToCome)>,
    span: &HourSpan,
) -> (Vec<(T, PlannedRuns)>, bool) {
    let counted =
        cues.into_iter().map(|(cue, runs)| (runs.count(span.from, span.until()), cue, runs));
    let mut counted: Vec<_> = counted.filter(|(count, ..)| *count > 0).collect();
    counted.sort_by_key(|(count, ..)| *count);
    let is_cut = counted.len() > MAX_CUES;
    counted.truncate(MAX_CUES);
    let mut room = MAX_TIMES;
    let planned = counted.into_iter().map(|(count, cue, runs)| {
        let times = if count <= room.min(MAX_PER_HOUR * u64::from(span.hours)) {
            PlannedTimes::At(runs.times(span))
        } else {
            PlannedTimes::PerHour(runs.per_hour(span))
        };
        if matches!(times, PlannedTimes::At(_)) {
            room -= count;
        }
        (cue, PlannedRuns { count, times })
    });
    (planned.collect(), is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::CatchUp;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cue(cron: &str, from: &str) -> RunsToCome {
        let schedule = Schedule::recurring(cron, "Europe/Berlin", CatchUp::Latest).unwrap();
        let next_run = schedule.next_after(just_before(at(from))).unwrap();
        RunsToCome { schedule, next_run }
    }

    #[test]
    fn the_end_is_not_included_and_runs_before_the_next_one_do_not_come() {
        let span = HourSpan { from: at("2026-01-05T00:00:00Z"), hours: 3 };
        let hourly = cue("0 * * * *", "2026-01-05T00:00:00Z");
        assert_eq!(hourly.per_hour(&span), [1, 1, 1]);
        let late = RunsToCome { next_run: at("2026-01-05T02:00:00Z"), ..hourly.clone() };
        assert_eq!(late.per_hour(&span), [0, 0, 1]);
        let overdue = RunsToCome { next_run: at("2026-01-04T20:00:00Z"), ..hourly };
        assert_eq!(overdue.times(&span).len(), 3, "runs that are overdue are not in the span");
    }

    #[test]
    fn times_and_cues_are_bounded_and_the_rarest_cues_come_first() {
        let from = "2026-01-05T00:00:00Z";
        let span = HourSpan { from: at(from), hours: 168 };
        let many = (0..1_200).map(|number| {
            (number, cue(if number < 600 { "0 * * * *" } else { "5 0 * * *" }, from))
        });
        let (planned, is_cut) = plan(many, &span);
        assert!(is_cut);
        let numbers: Vec<i32> = planned.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (600..1_200).chain(0..400).collect::<Vec<_>>());
        let times = planned.iter().map(|(_, runs)| match &runs.times {
            PlannedTimes::At(times) => times.len() as u64,
            PlannedTimes::PerHour(counts) => {
                assert_eq!((counts.len(), counts.iter().sum::<u64>()), (168, runs.count));
                0
            }
        });
        let times = times.sum::<u64>();
        assert!(times <= MAX_TIMES && times > MAX_TIMES - 168, "{times}");
    }
}
