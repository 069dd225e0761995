//! Time split at the changes of the local clock, and the runs of a cron expression in each segment.
//!
//! Within a segment the clock runs evenly, so that searching forward, searching backward and counting are plain
//! calendar arithmetic. Times that a clock change skips or repeats are handled at the boundary of two segments
//! (contract §4).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::domain::schedule::cron::CronExpr;
use crate::domain::schedule::time_zone::{Zone, last_nanosecond};

/// A span of time without a clock change. All bounds are local times.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockSegment {
    offset: Offset,
    /// Exclusive lower bound: local times up to this one belong to earlier segments.
    floor: DateTime,
    /// The local time at the start. Times in (`floor`, `landing`] were skipped and run together at the start, as one
    /// run.
    landing: DateTime,
    /// Inclusive upper bound.
    top: DateTime,
}

/// The first run strictly after an instant.
pub(super) fn next(cron: &CronExpr, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
    // A floor, and the first match above it. A rare match lies many clock changes ahead, and is searched once.
    let mut found: Option<(DateTime, DateTime)> = None;
    for segment in between(cron, zone, after, Timestamp::MAX) {
        let known = found.filter(|(floor, time)| *floor <= segment.floor && segment.floor < *time);
        let time = match known {
            Some((_, time)) => time,
            // If the calendar has no later match, no later segment has one either.
            None => cron.next_civil(segment.floor)?,
        };
        found = Some((segment.floor, time));
        if let Some(run) = segment.run_at(time) {
            return Some(run);
        }
    }
    None
}

/// The segments of (`after`, `until`] in order, with the local times that `cron` may match in each.
pub(super) fn between(
    cron: &CronExpr,
    zone: &Zone,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = ClockSegment> {
    // A cron expression that covers every hour runs at each real minute whose local time matches. All others run when
    // the local clock first reaches or passes a time: a repeated time does not run again, a skipped time runs when
    // the clock lands.
    let every_hour = cron.covers_every_hour();
    let mut furthest = if every_hour { zone.reading(after) } else { zone.latest_local_time(after) };
    let mut start = Some(after);
    std::iter::from_fn(move || {
        let began = start?;
        start = zone.changes_after(began).next().filter(|change| *change <= until);
        let last = start.map_or(until, last_nanosecond);
        let offset = zone.offset(began);
        let landing = offset.to_datetime(began);
        let top = offset.to_datetime(last);
        let floor = if every_hour && began != after { before(landing) } else { furthest };
        // `max`, because another change may follow before a repetition has ended.
        furthest = furthest.max(top);
        let landing = if every_hour { floor } else { landing };
        Some(ClockSegment { offset, floor, landing, top })
    })
}

impl ClockSegment {
    pub(super) fn first(&self, cron: &CronExpr) -> Option<Timestamp> {
        self.run_at(cron.next_civil(self.floor)?)
    }

    pub(super) fn last(&self, cron: &CronExpr) -> Option<Timestamp> {
        self.newest_first(cron).next()
    }

    pub(super) fn count(&self, cron: &CronExpr) -> u64 {
        let skipped = cron.count_civil(self.floor, self.landing).min(1);
        skipped + cron.count_civil(self.floor.max(self.landing), self.top)
    }

    pub(super) fn newest_first(&self, cron: &CronExpr) -> impl Iterator<Item = Timestamp> {
        let time_up_to = |top| cron.last_civil(self.floor, top);
        std::iter::successors(time_up_to(self.top), move |time| {
            // All times up to the landing are one run.
            if *time <= self.landing { None } else { time_up_to(before(*time)) }
        })
        .filter_map(|time| self.run_at(time))
    }

    /// The instant of a local time above the floor, if it lies in this segment.
    fn run_at(&self, time: DateTime) -> Option<Timestamp> {
        if time > self.top {
            return None;
        }
        self.offset.to_timestamp(time.max(self.landing)).ok()
    }
}

fn before(reading: DateTime) -> DateTime {
    reading.checked_sub(jiff::SignedDuration::from_nanos(1)).unwrap_or(reading)
}
