//! Real time cut where the local clock is changed, and the runs of a cron in each piece.
//!
//! Within a piece the clock runs evenly, so that looking ahead, looking back and counting are plain calendar
//! arithmetic. What a change of the clock skips or repeats is settled where two pieces meet (contract §4).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::domain::schedule::cron::CronExpr;
use crate::domain::schedule::time_zone::{Zone, last_nanosecond};

/// A piece of real time without a change of the clock, in readings of the local clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockSegment {
    offset: Offset,
    /// Times up to and including this one are not this piece's.
    floor: DateTime,
    /// Where the clock stood at the start: times above the floor and up to here run then, as one.
    landing: DateTime,
    /// The last reading of the piece.
    top: DateTime,
}

/// The first run strictly after an instant.
pub(super) fn next(cron: &CronExpr, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
    for stretch in between(cron, zone, after, Timestamp::MAX) {
        // Without a time left in the calendar no later piece holds one either.
        let time = cron.next_civil(stretch.floor)?;
        if let Some(run) = stretch.run_at(time) {
            return Some(run);
        }
    }
    None
}

/// The pieces of (`after`, `until`] in their order, with what this cron may count in each.
pub(super) fn between(
    cron: &CronExpr,
    zone: &Zone,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = ClockSegment> {
    // A job of every hour runs at each real minute whose reading matches. All others run when the clock first
    // reaches or passes a time: what has been reached before does not run again, what is skipped runs on landing.
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
        // Not simply the top: a further change may come before a repetition is over.
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
            // Times below the landing are one run with it.
            if *time <= self.landing { None } else { time_up_to(before(*time)) }
        })
        .filter_map(|time| self.run_at(time))
    }

    /// When a time above the floor runs, if it does in this piece.
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
