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
    /// Errors: `invalid_schedule` or `invalid_timezone`.
    pub fn schedule(&self, kind: ScheduleKind) -> Result<Schedule, Refusal> {
        let zone = self.timezone.as_deref().unwrap_or("UTC");
        let catch_up = self.catch_up.unwrap_or_default();
        match (kind, &self.cron, &self.at) {
            (ScheduleKind::Recurring, Some(cron), _) => Ok(Schedule::recurring(cron, zone, catch_up)?),
            (ScheduleKind::Once, _, Some(at)) => Ok(Schedule { catch_up, ..Schedule::once(at, zone)? }),
            (ScheduleKind::Recurring, None, _) => Err(incomplete(
                "expression",
                "A recurring schedule needs schedule.cron, such as \"0 9 * * *\"",
            )),
            (ScheduleKind::Once, _, None) => {
                Err(incomplete("at", "A once schedule needs schedule.at, such as \"2030-01-31T09:00:00Z\""))
            }
        }
    }

    /// `current` with the given parts replaced. A cron expression or an instant alone implies the type; both together
    /// need `schedule.type`.
    /// Errors: `invalid_schedule` or `invalid_timezone`.
    pub fn applied_to(&self, current: &StoredSchedule) -> Result<Schedule, Refusal> {
        let timezone = self.timezone.as_deref().unwrap_or(&current.timezone);
        let catch_up = self.catch_up.unwrap_or(current.catch_up);
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
        match (kind, &self.cron, &self.at, &current.when) {
            (ScheduleKind::Recurring, Some(cron), _, _)
            | (ScheduleKind::Recurring, None, _, ScheduleSpec::Recurring(cron)) => {
                Ok(Schedule::recurring(cron, timezone, catch_up)?)
            }
            (ScheduleKind::Once, _, Some(at), _) => {
                let zone = Zone::find(timezone).map_err(ScheduleError::from)?;
                Ok(Schedule { rule: ScheduleRule::Once(parse_instant(at, &zone)?), zone, catch_up })
            }
            (ScheduleKind::Once, _, None, ScheduleSpec::Once(at)) => {
                let zone = Zone::find(timezone).map_err(ScheduleError::from)?;
                Ok(Schedule { rule: ScheduleRule::Once(*at), zone, catch_up })
            }
            (ScheduleKind::Recurring, None, _, ScheduleSpec::Once(_)) => {
                Err(incomplete("expression", "A recurring schedule needs schedule.cron"))
            }
            (ScheduleKind::Once, _, None, ScheduleSpec::Recurring(_)) => {
                Err(incomplete("at", "A once schedule needs schedule.at"))
            }
        }
    }
}

/// The refusal of a schedule without the value of `field`.
fn incomplete(field: &'static str, message: &'static str) -> Refusal {
    Refusal { schedule_part: SchedulePart::of(field), ..Refusal::new(ErrorCode::InvalidSchedule, message) }
}

/// The validated parts of a callback.
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
        if let Some(url) = &self.url {
            callback.url.clone_from(url);
        }
        if let Some(method) = self.method {
            callback.method = method;
        }
        if let Some(headers) = &self.headers {
            callback.headers.clone_from(headers);
        }
        if let Some(outcome_from_response) = self.outcome_from_response {
            callback.outcome_from_response = outcome_from_response;
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetryPatch {
    pub max_attempts: Option<u32>,
    pub backoff_minutes: Option<Vec<f64>>,
}

impl RetryPatch {
    pub fn apply_to(&self, retry: &mut RetryPolicy) {
        if let Some(max_attempts) = self.max_attempts {
            retry.max_attempts = max_attempts;
        }
        if let Some(backoff_minutes) = &self.backoff_minutes {
            retry.backoff_minutes.clone_from(backoff_minutes);
        }
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
        if let Some(email) = self.email {
            on_failure.email = email;
        }
        if let Some(webhook) = &self.webhook {
            on_failure.webhook.clone_from(webhook);
        }
        if let Some(pause) = self.pause {
            on_failure.pause = pause;
        }
    }
}
