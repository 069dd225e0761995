//! The change that turns a cue into the one that a PUT describes, and the names of its fields (contract §4.17).

use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::cue::{
    CallbackPatch, Cue, CuePatch, CueStatus, NewCue, OnFailurePatch, Payload, RequestedStatus,
    RetryPatch, SchedulePatch, ScheduleSpec, StoredSchedule, Transport,
};
use crate::domain::cue_fields::PoliciesPatch;
use crate::domain::execution::RetryPolicy;
use crate::domain::time::instant;
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::flow::{Flow, FlowPatch};

/// A change, and the names of the fields that it sets, with dots before parts.
#[derive(Debug, Default)]
pub struct Difference {
    pub patch: CuePatch,
    pub fields: Vec<&'static str>,
}

impl Difference {
    /// The value that `wanted` gives a field, if the cue has another one.
    fn value<T: PartialEq>(&mut self, name: &'static str, stored: &T, wanted: T) -> Option<T> {
        if *stored == wanted {
            return None;
        }
        self.fields.push(name);
        Some(wanted)
    }

    /// The schedule and the status. A cue that has ended stays as it is until its rule or a bound differs: its instant has
    /// passed, so that a new zone or catch-up would have no run.
    fn compare_runs(
        &mut self,
        cue: &Cue,
        wanted: &StoredSchedule,
        status: Option<RequestedStatus>,
    ) {
        let current = match cue.status {
            CueStatus::Active => Some(RequestedStatus::Active),
            CueStatus::Paused => Some(RequestedStatus::Paused),
            CueStatus::Completed | CueStatus::Failed => None,
        };
        if current.is_none() && !is_restarted(&cue.schedule, wanted) {
            return;
        }
        self.patch.schedule = schedule(self, &cue.schedule, wanted);
        self.patch.status = match (current, status) {
            (Some(current), Some(status)) => self.value("status", &current, status),
            // The schedule makes it active.
            (None, Some(RequestedStatus::Paused)) => {
                self.fields.push("status");
                status
            }
            _ => None,
        };
    }
}

impl Cue {
    /// What is left out of `wanted` has its default. Without `status` that of the cue stays; one that a cue has after its
    /// last run stays too, so that a file with a `once` cue can be applied again.
    /// `payload` is the stored text.
    /// Errors: if the transport is another one.
    pub fn difference(
        &self,
        payload: Option<&str>,
        wanted: NewCue,
        status: Option<RequestedStatus>,
    ) -> Result<Difference, Refusal> {
        if wanted.transport != self.transport {
            return Err(other_transport(self.transport, wanted.transport));
        }
        let mut it = Difference::default();
        it.patch.name = it.value("name", &self.name, wanted.name);
        it.patch.description = it.value("description", &self.description, wanted.description);
        it.patch.tags = it.value("tags", &self.tags, wanted.tags);
        let schedule = StoredSchedule::from_schedule(&wanted.schedule);
        it.compare_runs(self, &schedule, status);
        if let (Some(stored), Some(wanted)) = (&self.callback, wanted.callback) {
            it.patch.callback = callback(&mut it, stored, wanted);
        }
        let body = |payload: &Payload| payload.body.clone();
        let stored_body = payload.map(str::to_owned);
        if it.value("payload", &stored_body, wanted.payload.as_ref().map(body)).is_some() {
            it.patch.payload = Some(wanted.payload);
        }
        it.patch.retry = retry(&mut it, &self.retry, wanted.retry);
        it.patch.on_failure = OnFailurePatch {
            email: it.value("on_failure.email", &self.on_failure.email, wanted.on_failure.email),
            webhook: it.value(
                "on_failure.webhook",
                &self.on_failure.webhook,
                wanted.on_failure.webhook,
            ),
            pause: it.value("on_failure.pause", &self.on_failure.pause, wanted.on_failure.pause),
        };
        it.patch.verification =
            it.value("verification.mode", &self.verification, wanted.verification);
        it.patch.policies =
            PoliciesPatch::between(&self.policies, &wanted.policies, |name| it.fields.push(name));
        Ok(it)
    }
}

/// Returns whether the rule or a bound differs.
fn is_restarted(stored: &StoredSchedule, wanted: &StoredSchedule) -> bool {
    let is_same_rule = match (&stored.when, &wanted.when) {
        (ScheduleSpec::Every(stored, _), ScheduleSpec::Every(wanted, _)) => stored == wanted,
        (stored, wanted) => stored == wanted,
    };
    let bounds = |schedule: &StoredSchedule| (schedule.bounds.start, schedule.bounds.end);
    !is_same_rule || bounds(stored) != bounds(wanted)
}

fn schedule(
    it: &mut Difference,
    stored: &StoredSchedule,
    wanted: &StoredSchedule,
) -> SchedulePatch {
    let cron = |schedule: &StoredSchedule| match &schedule.when {
        ScheduleSpec::Recurring(cron) => Some(cron.clone()),
        _ => None,
    };
    // Not the instant from which intervals are counted: it follows from the start, or from when it was stored.
    let every = |schedule: &StoredSchedule| match &schedule.when {
        ScheduleSpec::Every(every, _) => Some(every.clone()),
        _ => None,
    };
    let at = |schedule: &StoredSchedule| match &schedule.when {
        ScheduleSpec::Once(at) => Some(instant(*at)),
        _ => None,
    };
    let bound = |it: &mut Difference, name, stored: Option<_>, wanted: Option<_>| {
        it.value(name, &stored, wanted).map(|bound| bound.map(instant))
    };
    SchedulePatch {
        kind: None,
        cron: it.value("schedule.cron", &cron(stored), cron(wanted)).flatten(),
        every: it.value("schedule.every", &every(stored), every(wanted)).flatten(),
        at: it.value("schedule.at", &at(stored), at(wanted)).flatten(),
        timezone: it.value("schedule.timezone", &stored.timezone, wanted.timezone.clone()),
        catch_up: it.value("schedule.catch_up", &stored.catch_up, wanted.catch_up),
        start: bound(it, "schedule.start", stored.bounds.start, wanted.bounds.start),
        end: bound(it, "schedule.end", stored.bounds.end, wanted.bounds.end),
        jitter_seconds: it.value(
            "schedule.jitter_seconds",
            &stored.bounds.jitter_seconds,
            wanted.bounds.jitter_seconds,
        ),
    }
}

fn retry(it: &mut Difference, stored: &RetryPolicy, wanted: RetryPolicy) -> RetryPatch {
    let max_attempts = it.value("retry.max_attempts", &stored.max_attempts, wanted.max_attempts);
    let minutes =
        it.value("retry.backoff_minutes", &stored.backoff_minutes, wanted.backoff_minutes.clone());
    match it.value("retry.backoff_seconds", &stored.backoff_seconds, wanted.backoff_seconds) {
        Some(seconds) => RetryPatch {
            max_attempts,
            // Seconds that are removed leave the pauses in minutes.
            backoff_minutes: seconds.is_none().then_some(wanted.backoff_minutes),
            backoff_seconds: Some(seconds),
        },
        None => RetryPatch { max_attempts, backoff_minutes: minutes, backoff_seconds: None },
    }
}

fn other_transport(stored: Transport, wanted: Transport) -> Refusal {
    Refusal::invalid(vec![FieldError {
        kind: "value_error",
        loc: vec!["body".into(), "transport".into()],
        msg: format!(
            "Value error, should be {}, that of the cue with this slug, which cannot be changed: delete it first, or use \
             another slug",
            stored.as_str()
        ),
        input: wanted.as_str().into(),
    }])
}

/// Neither the case of a name nor the order changes what is sent.
fn has_same_headers(stored: &[(String, String)], wanted: &[(String, String)]) -> bool {
    let normal = |headers: &[(String, String)]| {
        let mut headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .collect();
        headers.sort_unstable();
        headers
    };
    normal(stored) == normal(wanted)
}

fn callback(it: &mut Difference, stored: &Callback, wanted: Callback) -> CallbackPatch {
    let whole = |flow: Flow| FlowPatch {
        key: Some(flow.key),
        parallelism: flow.parallelism,
        per_minute: flow.per_minute,
    };
    CallbackPatch {
        url: it.value("callback.url", &stored.url, wanted.url),
        method: it.value("callback.method", &stored.method, wanted.method),
        headers: match has_same_headers(&stored.headers, &wanted.headers) {
            true => None,
            false => it.value("callback.headers", &stored.headers, wanted.headers),
        },
        outcome_from_response: it.value(
            "callback.outcome_from_response",
            &stored.outcome_from_response,
            wanted.outcome_from_response,
        ),
        timeout_seconds: it.value(
            "callback.timeout_seconds",
            &stored.timeout_seconds,
            wanted.timeout_seconds,
        ),
        flow: it.value("callback.flow", &stored.flow, wanted.flow).map(|flow| flow.map(whole)),
    }
}
