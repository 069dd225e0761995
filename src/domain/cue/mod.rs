//! Cues: their fields, and the effect of creating, changing and ending on their state (contract §4).

pub mod list;
pub mod patch;
pub mod payload;
pub mod retention;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::api_error::{ErrorCode, FieldError, Refusal};
use crate::domain::cue::patch::{CuePatch, RequestedStatus, set};
use crate::domain::cue::payload::Payload;
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::time_zone::Zone;
use crate::domain::schedule::{CatchUp, Schedule, ScheduleError, ScheduleRule};
use crate::domain::text::word_enum::word_enum;
use crate::domain::webhook::callback::Callback;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueStatus {
        /// The schedule is running, or the only run has not ended.
        Active = "active",
        /// The schedule is suspended until the cue is resumed.
        Paused = "paused",
        /// The only run succeeded.
        Completed = "completed",
        /// The only run failed, or the next instant cannot be computed.
        Failed = "failed",
    }
}

word_enum! {
    /// The way of an execution to the program that does the work.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Transport {
        /// The payload is sent to the callback's URL.
        Webhook = "webhook",
        Worker = "worker",
    }
}

/// A stored cue without its payload, which has a row of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Cue {
    pub key: i64,
    pub id: String,
    pub user_key: i64,
    pub name: String,
    pub description: Option<String>,
    pub status: CueStatus,
    pub next_run: Option<Timestamp>,
    pub last_run: Option<Timestamp>,
    pub run_count: i64,
    pub missed_count: i64,
    pub schedule: StoredSchedule,
    pub transport: Transport,
    /// `None` for worker cues.
    pub callback: Option<Callback>,
    pub payload_key: Option<i64>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    /// The time for which an execution of a worker cue may wait for a claim; `None` is for ever.
    pub claim_within_minutes: Option<u32>,
    /// A hint for the owner: unknown fields in the create request, or the reason of a failure.
    pub warning: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The number of executions that failed since its last success.
    pub failing: i64,
}

#[derive(Debug, Clone)]
pub struct NewCue {
    pub name: String,
    pub description: Option<String>,
    pub schedule: Schedule,
    pub transport: Transport,
    pub callback: Option<Callback>,
    pub payload: Option<Payload>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    pub claim_within_minutes: Option<u32>,
    pub warning: Option<String>,
}

impl NewCue {
    /// The active cue created at `now`, and its payload. The row key is set by the store.
    /// Errors: `invalid_schedule` when the schedule has no run after `now`.
    pub fn into_cue(
        self,
        id: String,
        user_key: i64,
        now: Timestamp,
    ) -> Result<(Cue, Option<Payload>), Refusal> {
        let next_run = self.schedule.first_run(now)?;
        let cue = Cue {
            key: 0,
            id,
            user_key,
            name: self.name,
            description: self.description,
            status: CueStatus::Active,
            next_run: Some(next_run),
            last_run: None,
            run_count: 0,
            missed_count: 0,
            schedule: StoredSchedule::from_schedule(&self.schedule),
            transport: self.transport,
            callback: self.callback,
            payload_key: None,
            retry: self.retry,
            on_failure: self.on_failure,
            verification: self.verification,
            claim_within_minutes: self.claim_within_minutes,
            warning: self.warning,
            created_at: now,
            updated_at: now,
            failing: 0,
        };
        Ok((cue, self.payload))
    }
}

impl Cue {
    /// Applies `change`, except for the payload, which the store replaces. A new schedule reactivates an ended cue.
    /// Errors: `invalid_schedule` when the cue would be active without a next run, `invalid_state` for pausing an
    /// ended cue, `invalid_callback` for a callback of a worker cue, `validation_error` for a limit on claims of a
    /// webhook cue.
    pub fn apply(&mut self, change: &CuePatch, now: Timestamp) -> Result<(), Refusal> {
        set(&mut self.name, &change.name);
        set(&mut self.description, &change.description);
        set(&mut self.verification, &change.verification);
        if let Some(minutes) = change.claim_within_minutes {
            if let (Transport::Webhook, Some(minutes)) = (self.transport, minutes) {
                return Err(no_claims(minutes));
            }
            self.claim_within_minutes = minutes;
        }
        if !change.callback.is_empty() {
            let Some(callback) = &mut self.callback else {
                return Err(Refusal::new(
                    ErrorCode::InvalidCallback,
                    "A worker cue has no callback to change",
                ));
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
        if rescheduled {
            let schedule = change.schedule.applied_to(&self.schedule)?;
            // An instant in the past is rejected for a paused cue too, because it could never run.
            if change.schedule.at.is_some() {
                schedule.first_run(now)?;
            }
            self.schedule = StoredSchedule::from_schedule(&schedule);
        }
        let has_ended = matches!(self.status, CueStatus::Completed | CueStatus::Failed);
        let revived = has_ended && rescheduled;
        match change.status {
            Some(RequestedStatus::Paused) if has_ended && !revived => Err(Refusal::new(
                ErrorCode::InvalidState,
                "The cue has ended; give it a new schedule to run it again",
            )),
            Some(RequestedStatus::Paused) => {
                self.status = CueStatus::Paused;
                self.next_run = None;
                Ok(())
            }
            Some(RequestedStatus::Active) if self.status != CueStatus::Active || rescheduled => {
                self.activate(now)
            }
            None if rescheduled && self.status != CueStatus::Paused => self.activate(now),
            _ => Ok(()),
        }
    }

    fn activate(&mut self, now: Timestamp) -> Result<(), Refusal> {
        self.next_run = Some(self.schedule.read()?.first_run(now)?);
        self.status = CueStatus::Active;
        Ok(())
    }
}

/// Why a webhook cue has no limit on claims.
pub const NO_CLAIMS: &str =
    "only executions of a worker cue wait for a claim: leave claim_within_minutes out, or null";

fn no_claims(minutes: u32) -> Refusal {
    Refusal::invalid(vec![FieldError {
        kind: "value_error",
        loc: vec!["body".into(), "claim_within_minutes".into()],
        msg: format!("Value error, {NO_CLAIMS}"),
        input: minutes.into(),
    }])
}

/// The status of a `once` cue at `at` after its scheduled execution of `scheduled_for` has ended. `None` if that
/// execution is not the current run: the cue has been given another instant since.
pub fn after_only_run(
    at: Timestamp,
    is_due: bool,
    scheduled_for: Timestamp,
    success: bool,
) -> Option<CueStatus> {
    let is_current_run = at == scheduled_for && !is_due;
    is_current_run.then_some(if success { CueStatus::Completed } else { CueStatus::Failed })
}

/// The reactions to an execution's final failure (contract §6). Serializes to the contract's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFailure {
    /// Send mail to the account's address.
    pub email: bool,
    /// Send a signed POST to this URL.
    pub webhook: Option<String>,
    pub pause: bool,
}

impl Default for OnFailure {
    fn default() -> Self {
        Self { email: true, webhook: None, pause: false }
    }
}

/// A schedule as text. [`Self::read`] parses it for computing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSchedule {
    pub when: ScheduleSpec,
    /// The IANA name.
    pub timezone: String,
    pub catch_up: CatchUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// The cron expression as the user wrote it.
    Recurring(String),
    Once(Timestamp),
}

impl StoredSchedule {
    /// The parsed schedule.
    /// Errors: the zone or the cron expression is unknown, which an upgrade of the zone database can cause.
    pub fn read(&self) -> Result<Schedule, ScheduleError> {
        match &self.when {
            ScheduleSpec::Recurring(cron) => Schedule::recurring(cron, &self.timezone, self.catch_up),
            ScheduleSpec::Once(at) => {
                let zone = Zone::find(&self.timezone)?;
                Ok(Schedule { rule: ScheduleRule::Once(*at), zone, catch_up: self.catch_up })
            }
        }
    }

    pub fn from_schedule(schedule: &Schedule) -> Self {
        let when = match &schedule.rule {
            ScheduleRule::Recurring(cron) => ScheduleSpec::Recurring(cron.text().to_owned()),
            ScheduleRule::Once(at) => ScheduleSpec::Once(*at),
        };
        Self { when, timezone: schedule.zone.name().to_owned(), catch_up: schedule.catch_up }
    }
}
