//! Other rules for a zone, as governments decide them: where a cue goes on, and the first run that differs.

use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::{Schedule, ScheduleRule, Zone, next_unless_shown};
use crate::domain::time::{just_before, saturating_add};

impl Schedule {
    /// The next run of a cue that had the rules of `old` when its last run up to `changed_at` fired. The new rules are a
    /// clock change at that instant (contract §4.5): a time that the clock had shown does not run again, and those that
    /// it then skips run together, at `now`.
    pub fn next_after_change(
        &self,
        old: &Zone,
        changed_at: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (after, until) = self.rule_span(changed_at, Timestamp::MAX);
        let ScheduleRule::Recurring(cron) = &self.rule else { return self.next_after(changed_at) };
        if cron.covers_every_hour() || self.bounds.start.is_some_and(|start| start > after) {
            return self.next_after(changed_at);
        }
        let shown = old.latest_local_time(after);
        let run = next_unless_shown(cron, &self.zone, after, shown).filter(|run| *run <= until);
        let run = run.map(|run| self.bounds.delayed(run));
        let skips = cron.next_civil(shown).is_some_and(|time| time <= self.zone.reading(after));
        if skips && now <= until { Some(run.map_or(now, |run| run.min(now))) } else { run }
    }

    pub fn in_zone(&self, zone: &Zone) -> Self {
        Self { zone: zone.clone(), ..self.clone() }
    }
}

/// The first instant in [`from`, `until`) at which the clocks differ.
pub fn first_difference(
    one: &Zone,
    other: &Zone,
    from: Timestamp,
    until: Timestamp,
) -> Option<Timestamp> {
    let differ = |at: &Timestamp| one.offset(*at) != other.offset(*at);
    let of_zone = |zone: &Zone| zone.changes_after(from).take_while(|at| *at < until).find(differ);
    let changes = [Some(from).filter(differ), of_zone(one), of_zone(other)];
    changes.into_iter().flatten().min()
}

/// The first runs in [`from`, `until`) of two schedules that are not at the same instant.
pub fn first_other_run(
    one: &Schedule,
    other: &Schedule,
    from: Timestamp,
    until: Timestamp,
) -> Option<[Option<Timestamp>; 2]> {
    let mut after = just_before(from);
    while after < until {
        // Counted by days: most runs of a frequent schedule are at the same instants under both.
        let end = saturating_add(after, SignedDuration::from_hours(24));
        if one.occurrences(after, end) != other.occurrences(after, end) {
            let mut runs = [one.next_after(after), other.next_after(after)];
            while let [Some(run), Some(same)] = runs
                && run == same
            {
                runs = [one.next_after(run), other.next_after(run)];
            }
            return Some(runs);
        }
        after = end;
    }
    None
}
