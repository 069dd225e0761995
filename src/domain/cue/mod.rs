//! A cue: what it is, and what creating, changing, firing and ending does to its state (contract §4).

pub mod on_failure;
pub mod patch;
pub mod retention;
pub mod stored_schedule;

use jiff::Timestamp;
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::patch::{CuePatch, RequestedStatus};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::Schedule;
use crate::domain::webhook::callback::Callback;
use crate::domain::word_enum::word_enum;

pub use self::on_failure::OnFailure;
pub use self::stored_schedule::{ScheduleSpec, StoredSchedule};

word_enum! {
    /// Where a cue stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueStatus {
        /// Its schedule runs, or its only run is under way.
        Active = "active",
        /// Its schedule rests until it is resumed.
        Paused = "paused",
        /// Its only run succeeded.
        Completed = "completed",
        /// Its only run failed, or its next instant cannot be computed.
        Failed = "failed",
    }
}

word_enum! {
    /// How a run reaches whoever does the work.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Transport {
        /// The payload is sent to the callback's URL.
        Webhook = "webhook",
        /// A worker claims the execution.
        Worker = "worker",
    }
}

/// A stored cue, but for its payload, which has a row of its own.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Cue {
    /// Its row.
    pub key: i64,
    pub id: String,
    /// The owner's row.
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
    /// None for worker cues.
    pub callback: Option<Callback>,
    /// The row of its payload.
    pub payload_key: Option<i64>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    /// Who or what verifies the successes of its runs.
    pub verification: VerificationMode,
    /// What the owner should know: unknown fields of its creation, or why it failed.
    pub warning: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The fields of a cue that its creation gives.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct NewCue {
    pub name: String,
    pub description: Option<String>,
    pub schedule: Schedule,
    pub transport: Transport,
    pub callback: Option<Callback>,
    pub payload: Option<Value>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    pub warning: Option<String>,
}

impl NewCue {
    /// The active cue that this makes at `now`; its row is not known yet.
    ///
    /// # Errors
    /// `invalid_schedule` when the schedule is never due after `now`.
    pub fn into_cue(
        self,
        id: String,
        user_key: i64,
        now: Timestamp,
    ) -> Result<(Cue, Option<Value>), Refusal> {
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
            warning: self.warning,
            created_at: now,
            updated_at: now,
        };
        Ok((cue, self.payload))
    }
}

impl Cue {
    /// Applies `change`, but for the payload. A changed schedule of an ended cue makes it active again.
    ///
    /// # Errors
    /// `invalid_schedule` when the cue would be active and never due, `invalid_state` for the pause of an ended one,
    /// `invalid_callback` for a callback of a worker cue.
    pub fn apply(&mut self, change: &CuePatch, now: Timestamp) -> Result<(), Refusal> {
        if let Some(name) = &change.name {
            self.name.clone_from(name);
        }
        if let Some(description) = &change.description {
            self.description.clone_from(description);
        }
        if let Some(verification) = change.verification {
            self.verification = verification;
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
            // A paused cue takes no instant either that it could never run at.
            if change.schedule.at.is_some() {
                schedule.first_run(now)?;
            }
            self.schedule = StoredSchedule::from_schedule(&schedule);
        }
        let over = matches!(self.status, CueStatus::Completed | CueStatus::Failed);
        let revived = over && rescheduled;
        match change.status {
            Some(RequestedStatus::Paused) if over && !revived => Err(Refusal::new(
                ErrorCode::InvalidState,
                "The cue is over: give it a new schedule to make it run again",
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

    /// Makes the schedule run from `now`.
    fn activate(&mut self, now: Timestamp) -> Result<(), Refusal> {
        self.next_run = Some(self.schedule.read()?.first_run(now)?);
        self.status = CueStatus::Active;
        Ok(())
    }
}

/// The status of a `once` cue of the instant `at` whose execution, due at `scheduled_for` by schedule, has ended;
/// `None` where the end of that execution says nothing about the cue: it has been given another instant since.
#[must_use]
pub fn after_only_run(
    at: Timestamp,
    is_due: bool,
    scheduled_for: Timestamp,
    success: bool,
) -> Option<CueStatus> {
    let its_only_run = at == scheduled_for && !is_due;
    its_only_run.then_some(if success { CueStatus::Completed } else { CueStatus::Failed })
}
