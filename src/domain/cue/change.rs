//! What a request does to a cue: its fields, its state and its next run (contract §4.2, §4.9, §4.17).

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::{
    Cue, CueFields, CueRequest, CueStatus, RequestedStatus, ScheduleSpec, StoredSchedule,
    Transport, jitter_delay,
};
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{Bounds, ScheduleRule};
use crate::domain::time::saturating_add;
use crate::domain::webhook::callback::Callback;

impl Cue {
    /// Makes the cue what the request says, except for the payload, which the store replaces. Returns the names of the
    /// fields that it changes, with dots before parts.
    pub fn apply(
        &mut self,
        request: &CueRequest,
        now: Timestamp,
    ) -> Result<Vec<&'static str>, Refusal> {
        if request.fields.transport != self.fields.transport {
            return Err(other_transport(self.fields.transport, request.fields.transport));
        }
        let has_ended = matches!(self.status, CueStatus::Completed | CueStatus::Failed);
        let is_restarted = differs_in_runs(&self.fields.schedule, &request.fields.schedule);
        // A PATCH of the schedule plans the next run again, also if nothing in it differs.
        let is_planned = request.names_schedule && !request.is_whole;
        let is_revived = has_ended && (is_restarted || is_planned);
        let mut wanted = request.fields.clone();
        let mut status = request.status;
        if has_ended && !is_revived {
            // Its instant has passed, so that a new zone or catch-up would have no run.
            wanted.schedule = self.fields.schedule.clone();
            // A file with a cue that has ended can be applied again.
            status = status.filter(|_| !request.is_whole);
        } else {
            wanted.schedule = self.counted(&wanted.schedule, now)?;
        }
        if is_revived && status == Some(RequestedStatus::Paused) {
            // It could never be resumed.
            wanted.schedule.read()?.first_run(now)?;
        }
        let before = std::mem::replace(&mut self.fields, wanted);
        let mut changed = self.fields.changed_since(&before);
        let was = (self.status, before.schedule);
        let is_rescheduled = is_revived || is_planned || self.fields.schedule != was.1;
        self.change_runs(&was, status, is_rescheduled, now)?;
        self.updated_at = now;
        let asks_for_other = match status {
            Some(RequestedStatus::Paused) => was.0 != CueStatus::Paused,
            Some(RequestedStatus::Active) => was.0 == CueStatus::Paused,
            None => false,
        };
        changed.extend(asks_for_other.then_some("status"));
        Ok(changed)
    }

    /// The schedule with the delay of this cue and the instant from which the runs of an interval are counted: unless it
    /// is another interval or has another start, that of before.
    fn counted(&self, wanted: &StoredSchedule, now: Timestamp) -> Result<StoredSchedule, Refusal> {
        let before = &self.fields.schedule;
        // One that cannot be read any more must not block another change.
        if wanted == before {
            return Ok(before.clone());
        }
        let mut schedule = wanted.read()?;
        match (&mut schedule.rule, &before.when) {
            (ScheduleRule::Every(interval), ScheduleSpec::Every(every, from))
                if before.bounds.start == wanted.bounds.start
                    && Interval::parse(every, *from)
                        .is_ok_and(|it| it.period() == interval.period()) =>
            {
                interval.count_from(*from);
            }
            _ => schedule.begin(now),
        }
        let jitter_seconds = schedule.bounds.jitter_seconds;
        schedule.bounds.delay_seconds = Some(jitter_delay(&self.id, jitter_seconds));
        let counted = StoredSchedule::from(&schedule);
        // An instant in the past is rejected for a paused cue too, because it could never run.
        let is_new_instant =
            matches!(counted.when, ScheduleSpec::Once(_)) && counted.when != before.when;
        let is_new_end = counted.bounds.end.is_some() && counted.bounds.end != before.bounds.end;
        if is_new_instant || is_new_end {
            schedule.first_run(now)?;
        }
        Ok(counted)
    }

    /// Changes the state and the next run after the fields. `was` is the status and the schedule before.
    fn change_runs(
        &mut self,
        (was, before): &(CueStatus, StoredSchedule),
        status: Option<RequestedStatus>,
        is_rescheduled: bool,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let has_ended = matches!(was, CueStatus::Completed | CueStatus::Failed);
        let is_delayed =
            *was == CueStatus::Active && differs_in_jitter(before, &self.fields.schedule);
        match status {
            Some(RequestedStatus::Paused) if has_ended && !is_rescheduled => Err(Refusal::new(
                ErrorCode::InvalidState,
                "The cue has ended; give it a new schedule to run it again",
            )),
            Some(RequestedStatus::Paused) => {
                self.status = CueStatus::Paused;
                self.next_run = None;
                Ok(())
            }
            _ if is_delayed => {
                self.delay_next_run(before.bounds.delay(), now);
                Ok(())
            }
            Some(RequestedStatus::Active) if *was != CueStatus::Active || is_rescheduled => {
                self.activate(now)
            }
            None if is_rescheduled && *was != CueStatus::Paused => self.activate(now),
            _ => Ok(()),
        }
    }

    /// Moves the pending run to its new delay. If that instant has passed, the run keeps its time, so that it is not lost.
    fn delay_next_run(&mut self, before: SignedDuration, now: Timestamp) {
        let bounds = &self.fields.schedule.bounds;
        let delay = bounds.delay() - before;
        let moved = self.next_run.map(|next| saturating_add(next, delay));
        let is_before_end = |run: &Timestamp| bounds.end.is_none_or(|end| *run < end);
        self.next_run = moved.filter(|run| *run > now).filter(is_before_end).or(self.next_run);
    }

    fn activate(&mut self, now: Timestamp) -> Result<(), Refusal> {
        self.next_run = Some(self.fields.schedule.read()?.first_run(now)?);
        self.status = CueStatus::Active;
        Ok(())
    }
}

impl CueFields {
    /// The names of the fields that differ from those of before, with dots before parts.
    fn changed_since(&self, before: &Self) -> Vec<&'static str> {
        let mut changed = Changed(Vec::new());
        changed.add("slug", self.slug != before.slug);
        changed.add("name", self.name != before.name);
        changed.add("description", self.description != before.description);
        changed.add("tags", self.tags != before.tags);
        changed.add_schedule(&self.schedule, &before.schedule);
        if let (Some(callback), Some(before)) = (&self.callback, &before.callback) {
            changed.add_callback(callback, before);
        }
        let (retry, retry_before) = (&self.retry, &before.retry);
        changed.add("retry.max_attempts", retry.max_attempts != retry_before.max_attempts);
        changed.add("retry.backoff_minutes", retry.backoff_minutes != retry_before.backoff_minutes);
        changed.add("retry.backoff_seconds", retry.backoff_seconds != retry_before.backoff_seconds);
        let (reaction, reaction_before) = (&self.on_failure, &before.on_failure);
        changed.add("on_failure.email", reaction.email != reaction_before.email);
        changed.add("on_failure.webhook", reaction.webhook != reaction_before.webhook);
        changed.add("on_failure.pause", reaction.pause != reaction_before.pause);
        changed.add("verification.mode", self.verification != before.verification);
        changed.0.extend(self.policies.changed_since(&before.policies));
        changed.0
    }
}

struct Changed(Vec<&'static str>);

impl Changed {
    fn add(&mut self, name: &'static str, differs: bool) {
        self.0.extend(differs.then_some(name));
    }

    fn add_schedule(&mut self, now: &StoredSchedule, before: &StoredSchedule) {
        // A rule that replaces one of another kind has the names of both.
        let is_other_rule = !now.when.is_same_rule(&before.when);
        for name in ["schedule.cron", "schedule.every", "schedule.at"] {
            let has = |schedule: &StoredSchedule| schedule.when.field() == name;
            self.add(name, is_other_rule && (has(now) || has(before)));
        }
        self.add("schedule.timezone", now.timezone != before.timezone);
        self.add("schedule.catch_up", now.catch_up != before.catch_up);
        self.add("schedule.start", now.bounds.start != before.bounds.start);
        self.add("schedule.end", now.bounds.end != before.bounds.end);
        let jitter = |schedule: &StoredSchedule| schedule.bounds.jitter_seconds;
        self.add("schedule.jitter_seconds", jitter(now) != jitter(before));
    }

    fn add_callback(&mut self, now: &Callback, before: &Callback) {
        self.add("callback.url", now.url != before.url);
        self.add("callback.method", now.method != before.method);
        self.add("callback.headers", normal(now) != normal(before));
        let takes_outcome = |callback: &Callback| callback.outcome_from_response;
        self.add("callback.outcome_from_response", takes_outcome(now) != takes_outcome(before));
        self.add("callback.timeout_seconds", now.timeout_seconds != before.timeout_seconds);
        self.add("callback.flow", now.flow != before.flow);
    }
}

/// Headers without what changes nothing that is sent: the case of the names, and their order.
fn normal(callback: &Callback) -> Vec<(String, &str)> {
    let headers = callback.headers.expose().iter();
    let mut headers: Vec<(String, &str)> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())).collect();
    headers.sort_unstable();
    headers
}

impl ScheduleSpec {
    /// Whether the text or the instant is the same. The instant from which intervals are counted follows from the start,
    /// or from when it was stored.
    fn is_same_rule(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every(every, _), Self::Every(other, _)) => every == other,
            (rule, other) => rule == other,
        }
    }

    fn field(&self) -> &'static str {
        match self {
            Self::Recurring(_) => "schedule.cron",
            Self::Every(..) => "schedule.every",
            Self::Once(_) => "schedule.at",
        }
    }
}

/// Returns whether the rule or a bound differs.
fn differs_in_runs(before: &StoredSchedule, wanted: &StoredSchedule) -> bool {
    let bounds = |schedule: &StoredSchedule| (schedule.bounds.start, schedule.bounds.end);
    !wanted.when.is_same_rule(&before.when) || bounds(before) != bounds(wanted)
}

/// Returns whether the jitter is all that differs.
fn differs_in_jitter(before: &StoredSchedule, after: &StoredSchedule) -> bool {
    let Bounds { jitter_seconds, delay_seconds, .. } = after.bounds;
    let bounds = Bounds { jitter_seconds, delay_seconds, ..before.bounds };
    before != after && StoredSchedule { bounds, ..before.clone() } == *after
}

fn other_transport(stored: Transport, wanted: Transport) -> Refusal {
    let reason = format!(
        "must be {}, that of the cue with this slug, which cannot be changed: delete it first, or use another slug",
        stored.as_str()
    );
    Refusal::invalid_value(["body", "transport"], &reason, wanted.as_str())
}
