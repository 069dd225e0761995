//! What a PATCH does to a cue: its fields, its state and its next run (contract §4.2, §4.9).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, FieldError, Refusal};
use crate::domain::cue::{
    Cue, CuePatch, CueStatus, RequestedStatus, ScheduleKind, SchedulePatch, ScheduleSpec,
    StoredSchedule, bounds_errors, jitter_delay, set,
};
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{Bounds, Schedule, ScheduleRule};
use crate::domain::time::saturating_add;

impl Cue {
    /// Applies `change`, except for the payload, which the store replaces. A new schedule reactivates an ended cue.
    pub fn apply(&mut self, change: &CuePatch, now: Timestamp) -> Result<(), Refusal> {
        set(&mut self.slug, &change.slug);
        set(&mut self.name, &change.name);
        set(&mut self.description, &change.description);
        set(&mut self.tags, &change.tags);
        set(&mut self.verification, &change.verification);
        for (field, value) in change.policies.given() {
            if let Some(reason) = field.misfit(self.transport) {
                return Err(unusable(field.name, &reason, value));
            }
        }
        change.policies.apply_to(&mut self.policies);
        if !change.callback.is_empty() {
            let Some(callback) = &mut self.callback else {
                return Err(Refusal::new(ErrorCode::InvalidCallback, "A worker cue calls no URL"));
            };
            change.callback.apply_to(callback);
        }
        change.retry.apply_to(&mut self.retry);
        change.on_failure.apply_to(&mut self.on_failure);
        self.apply_schedule(change, now)?;
        self.updated_at = now;
        Ok(())
    }

    fn apply_schedule(&mut self, change: &CuePatch, now: Timestamp) -> Result<(), Refusal> {
        let rescheduled = !change.schedule.is_empty();
        // Set if only the delay of the runs changes: the delay until now.
        let mut other_delay = None;
        if rescheduled {
            let mut schedule = change.schedule.applied_to(&self.schedule)?;
            if restarts_interval(&self.schedule, &schedule) {
                schedule.begin(now);
            }
            schedule.bounds.delay_seconds =
                Some(jitter_delay(&self.id, schedule.bounds.jitter_seconds));
            // An instant in the past is rejected for a paused cue too, because it could never run.
            if change.schedule.at.is_some() || matches!(change.schedule.end, Some(Some(_))) {
                schedule.first_run(now)?;
            }
            let new = StoredSchedule::from_schedule(&schedule);
            let is_active = self.status == CueStatus::Active;
            other_delay = (is_active && differs_in_jitter(&self.schedule, &new))
                .then_some(self.schedule.bounds.delay());
            self.schedule = new;
        }
        let has_ended = matches!(self.status, CueStatus::Completed | CueStatus::Failed);
        let revived = has_ended && rescheduled;
        match (change.status, other_delay) {
            (Some(RequestedStatus::Paused), _) if has_ended && !revived => Err(Refusal::new(
                ErrorCode::InvalidState,
                "The cue has ended; give it a new schedule to run it again",
            )),
            (Some(RequestedStatus::Paused), _) => {
                self.status = CueStatus::Paused;
                self.next_run = None;
                Ok(())
            }
            (_, Some(delay)) => {
                self.delay_next_run(delay, now);
                Ok(())
            }
            (Some(RequestedStatus::Active), _)
                if self.status != CueStatus::Active || rescheduled =>
            {
                self.activate(now)
            }
            (None, _) if rescheduled && self.status != CueStatus::Paused => self.activate(now),
            _ => Ok(()),
        }
    }

    /// Moves the pending run to its new delay. If that instant has passed, the run keeps its time, so that it is not lost.
    fn delay_next_run(&mut self, before: SignedDuration, now: Timestamp) {
        let delay = self.schedule.bounds.delay() - before;
        let moved = self.next_run.map(|next| saturating_add(next, delay));
        let is_before_end = |run: &Timestamp| self.schedule.bounds.end.is_none_or(|end| *run < end);
        self.next_run = moved.filter(|run| *run > now).filter(is_before_end).or(self.next_run);
    }

    fn activate(&mut self, now: Timestamp) -> Result<(), Refusal> {
        self.next_run = Some(self.schedule.read()?.first_run(now)?);
        self.status = CueStatus::Active;
        Ok(())
    }
}

impl SchedulePatch {
    /// The bounds that contradict other given parts, and why. Those of a PATCH, which is not `whole`, may depend on parts
    /// of the cue as well: [`Self::applied_to`] checks them.
    pub fn contradictions(&self, is_whole: bool) -> Vec<(&'static str, &'static str)> {
        let is_instant = |bound: &Option<Option<String>>| {
            bound.iter().flatten().all(|text| text.parse::<Timestamp>().is_ok())
        };
        // A local time needs the zone of the cue.
        let is_zone_known =
            self.timezone.is_some() || (is_instant(&self.start) && is_instant(&self.end));
        let has_bounds =
            self.start.is_some() || self.end.is_some() || self.jitter_seconds.is_some();
        if !has_bounds || !(is_whole || is_zone_known) {
            return Vec::new();
        }
        let recurs = self.cron.is_some() || self.every.is_some();
        let schedule =
            match self.kind.filter(|_| is_whole).or(recurs.then_some(ScheduleKind::Recurring)) {
                Some(kind) => self.schedule(kind),
                // Any rule serves to compare the bounds with each other.
                None => Self { every: Some("366d".to_owned()), ..self.clone() }
                    .schedule(ScheduleKind::Recurring),
            };
        schedule.map_or_else(|_| Vec::new(), |schedule| bounds_errors(&schedule))
    }
}

/// Returns whether the interval is another one or has another start, so that its runs are counted again.
fn restarts_interval(before: &StoredSchedule, after: &Schedule) -> bool {
    let ScheduleRule::Every(interval) = &after.rule else { return false };
    let is_same = |every: &str| {
        Interval::parse(every, interval.from()).is_ok_and(|it| it.period() == interval.period())
    };
    let is_same_interval = matches!(&before.when, ScheduleSpec::Every(every, _) if is_same(every));
    !is_same_interval || before.bounds.start != after.bounds.start
}

/// Returns whether the jitter is all that differs.
fn differs_in_jitter(before: &StoredSchedule, after: &StoredSchedule) -> bool {
    let Bounds { jitter_seconds, delay_seconds, .. } = after.bounds;
    let bounds = Bounds { jitter_seconds, delay_seconds, ..before.bounds };
    before != after && StoredSchedule { bounds, ..before.clone() } == *after
}

/// A field that has no meaning for the transport of the cue.
fn unusable(field: &'static str, reason: &str, input: Value) -> Refusal {
    Refusal::invalid(vec![FieldError {
        kind: "value_error",
        loc: vec!["body".into(), field.into()],
        msg: format!("Value error, {reason}"),
        input,
    }])
}
