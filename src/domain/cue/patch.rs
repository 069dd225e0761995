//! Partial input: the fields of a cue that a create request gives and a PATCH may change.

use crate::domain::api_error::{ErrorCode, Refusal, SchedulePart};
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{OnFailure, ScheduleSpec, StoredSchedule};
use crate::domain::execution::attempt::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{CatchUp, Schedule, ScheduleError, ScheduleRule, parse_instant};
use crate::domain::text::word_enum::word_enum;
use crate::domain::webhook::callback::{Callback, Method};

word_enum! {
    /// The status that a PATCH may request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestedStatus {
        Active = "active",
        Paused = "paused",
    }
}

/// Changes to a cue. `None` and empty parts leave the field unchanged.
#[derive(Debug, Clone, Default)]
pub struct CuePatch {
    pub status: Option<RequestedStatus>,
    pub name: Option<String>,
    /// `Some(None)` removes the description.
    pub description: Option<Option<String>>,
    pub schedule: SchedulePatch,
    pub callback: CallbackPatch,
    /// `Some(None)` removes the payload.
    pub payload: Option<Option<Payload>>,
    pub retry: RetryPatch,
    pub on_failure: OnFailurePatch,
    pub verification: Option<VerificationMode>,
    /// `Some(None)` removes the limit.
    pub claim_within_minutes: Option<Option<u32>>,
}

word_enum! {
    /// `schedule.type`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ScheduleKind {
        Recurring = "recurring",
        Once = "once",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulePatch {
    pub kind: Option<ScheduleKind>,
    pub cron: Option<String>,
    /// As the caller wrote it; without an offset it is a local time of the zone.
    pub at: Option<String>,
    pub timezone: Option<String>,
    pub catch_up: Option<CatchUp>,
}

impl SchedulePatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A new schedule of type `kind`. The zone defaults to UTC.
    pub fn schedule(&self, kind: ScheduleKind) -> Result<Schedule, Refusal> {
        self.resolve(kind, None)
    }

    /// `current` with the given parts replaced. A cron expression or an instant alone implies the type; both together
    /// need `schedule.type`.
    pub fn applied_to(&self, current: &StoredSchedule) -> Result<Schedule, Refusal> {
        if self.kind.is_none() && self.cron.is_some() && self.at.is_some() {
            return Err(incomplete(
                "type",
                "schedule.cron and schedule.at are both set; set schedule.type, or only one of them",
            ));
        }
        let kind = self.kind.unwrap_or(match (&self.cron, &self.at, &current.when) {
            (Some(_), _, _) => ScheduleKind::Recurring,
            (None, Some(_), _) => ScheduleKind::Once,
            (None, None, ScheduleSpec::Recurring(_)) => ScheduleKind::Recurring,
            (None, None, ScheduleSpec::Once(_)) => ScheduleKind::Once,
        });
        self.resolve(kind, Some(current))
    }

    fn resolve(&self, kind: ScheduleKind, current: Option<&StoredSchedule>) -> Result<Schedule, Refusal> {
        let zone = self.timezone.as_deref().or(current.map(|it| it.timezone.as_str())).unwrap_or("UTC");
        let catch_up = self.catch_up.or(current.map(|it| it.catch_up)).unwrap_or_default();
        let find_zone = || Zone::find(zone).map_err(ScheduleError::from);
        let once = |at, zone| Ok(Schedule { rule: ScheduleRule::Once(at), zone, catch_up });
        match (kind, &self.cron, &self.at, current.map(|it| &it.when)) {
            (ScheduleKind::Recurring, Some(cron), ..)
            | (ScheduleKind::Recurring, None, _, Some(ScheduleSpec::Recurring(cron))) => {
                Ok(Schedule::recurring(cron, zone, catch_up)?)
            }
            (ScheduleKind::Once, _, Some(at), _) => {
                let zone = find_zone()?;
                once(parse_instant(at, &zone)?, zone)
            }
            (ScheduleKind::Once, _, None, Some(ScheduleSpec::Once(at))) => once(*at, find_zone()?),
            (ScheduleKind::Recurring, ..) => Err(incomplete(
                "expression",
                "A recurring schedule needs schedule.cron, such as \"0 9 * * *\"",
            )),
            (ScheduleKind::Once, ..) => {
                Err(incomplete("at", "A once schedule needs schedule.at, such as \"2030-01-31T09:00:00Z\""))
            }
        }
    }
}

fn incomplete(field: &'static str, message: &'static str) -> Refusal {
    Refusal { schedule_part: SchedulePart::of(field), ..Refusal::new(ErrorCode::InvalidSchedule, message) }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallbackPatch {
    pub url: Option<String>,
    pub method: Option<Method>,
    pub headers: Option<Vec<(String, String)>>,
    pub outcome_from_response: Option<bool>,
}

impl CallbackPatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A new callback; `None` without a URL.
    pub fn callback(self) -> Option<Callback> {
        let method = self.method.unwrap_or(Method::Post);
        self.url.map(|url| Callback {
            url,
            method,
            headers: self.headers.unwrap_or_default(),
            outcome_from_response: self.outcome_from_response.unwrap_or_default(),
        })
    }

    pub fn apply_to(&self, callback: &mut Callback) {
        set(&mut callback.url, &self.url);
        set(&mut callback.method, &self.method);
        set(&mut callback.headers, &self.headers);
        set(&mut callback.outcome_from_response, &self.outcome_from_response);
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetryPatch {
    pub max_attempts: Option<u32>,
    pub backoff_minutes: Option<Vec<f64>>,
}

impl RetryPatch {
    pub fn apply_to(&self, retry: &mut RetryPolicy) {
        set(&mut retry.max_attempts, &self.max_attempts);
        set(&mut retry.backoff_minutes, &self.backoff_minutes);
    }
}

/// Changes a field if there is a value for it.
pub(in crate::domain::cue) fn set<T: Clone>(field: &mut T, change: &Option<T>) {
    if let Some(value) = change {
        field.clone_from(value);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnFailurePatch {
    pub email: Option<bool>,
    /// `Some(None)` removes the URL.
    pub webhook: Option<Option<String>>,
    pub pause: Option<bool>,
}

impl OnFailurePatch {
    pub fn apply_to(&self, on_failure: &mut OnFailure) {
        set(&mut on_failure.email, &self.email);
        set(&mut on_failure.webhook, &self.webhook);
        set(&mut on_failure.pause, &self.pause);
    }
}
