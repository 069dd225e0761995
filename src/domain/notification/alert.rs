//! Alerts: a cue is in trouble beyond one failed execution, or runs of an account were late. Alerts of one type and cue
//! are deduplicated for five minutes, those about unclaimed executions for an hour.
//!
//! A user sends a test alert to see that the alert webhook works (contract §6.9). It is in no list of alerts.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::NextStep;
use crate::domain::execution::outcome::OutcomeState;
use crate::domain::execution::worker::ALERT_INTERVAL;
use crate::domain::ids::ExecutionId;
use crate::domain::notification::{BACKLOG_CLEARED, NotificationKind};
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::catch_up::CaughtUp;
use crate::domain::text::{one_line, word_enum};
use crate::domain::time::instant;

/// Consecutive failures of a cue that raise an alert; each further one raises it again.
pub const ALERT_THRESHOLD: i64 = 3;

const DEDUP_WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// Waiting executions that an alert counts: one write may raise 200 alerts.
pub const MAX_COUNTED_WAITING: u32 = 100;

/// Alerts kept per user; older ones are deleted. It bounds the table for a user whose cues all fail.
pub const MAX_KEPT: u32 = 1_000;

const MAX_QUOTED_CHARS: usize = 500;

/// Moved runs in the metadata of an alert, and in its message.
const MAX_LISTED_MOVES: usize = 20;
const MAX_NAMED_MOVES: usize = 3;

const MAX_MOVED_NAME: usize = 60;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AlertType {
        ConsecutiveFailures = "consecutive_failures",
        VerificationFailed = "verification_failed",
        /// A worker stopped sending heartbeats while it held an execution.
        ClaimLost = "claim_lost",
        /// Runs of the account that an outage has missed became executions after it.
        CatchUp = "catch_up",
        Unclaimed = "unclaimed",
        /// Nobody has reported the outcome of a delivered execution in time.
        OutcomeMissing = "outcome_missing",
        /// The clock of the server is behind: no cue of the account fires by schedule.
        ClockBehind = "clock_behind",
        /// Next runs of the account moved, because the rules of their zones changed.
        TimeZoneChanged = "time_zone_changed",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Severity {
        Critical = "critical",
        Warning = "warning",
    }
}

impl AlertType {
    pub fn severity(self) -> Severity {
        match self {
            Self::ConsecutiveFailures | Self::ClockBehind => Severity::Critical,
            Self::VerificationFailed
            | Self::ClaimLost
            | Self::CatchUp
            | Self::Unclaimed
            | Self::OutcomeMissing
            | Self::TimeZoneChanged => Severity::Warning,
        }
    }

    pub fn dedup_window(self) -> SignedDuration {
        if self == Self::Unclaimed { ALERT_INTERVAL } else { DEDUP_WINDOW }
    }
}

/// What an alert says, before it is raised.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAlert {
    pub alert_type: AlertType,
    message: String,
    metadata: Value,
}

impl NewAlert {
    fn new(alert_type: AlertType, message: String, metadata: Value) -> Self {
        Self { alert_type, message, metadata }
    }

    pub fn consecutive_failures(cue_name: &str, failures: i64) -> Self {
        Self::new(
            AlertType::ConsecutiveFailures,
            format!("{} has failed {failures} times in a row", quoted(cue_name)),
            failure_counts(failures),
        )
    }

    pub fn verification_failed(cue_name: &str, reason: &str) -> Self {
        let (cue_name, reason) = (quoted(cue_name), quoted(reason));
        Self::new(
            AlertType::VerificationFailed,
            format!("An outcome of {cue_name} was not verified: {reason}"),
            json!({"reason": reason, "outcome_state": OutcomeState::VerificationFailed.as_str()}),
        )
    }

    pub fn claim_lost(cue_name: &str, worker_id: &str, attempt: u32) -> Self {
        let message = format!(
            "Worker {} lost its claim on a run of {}: its lease ended without a report or a sign of life",
            quoted(worker_id),
            quoted(cue_name)
        );
        let metadata = json!({"worker_id": worker_id, "attempt": attempt});
        Self::new(AlertType::ClaimLost, message, metadata)
    }

    pub fn outcome_missing(cue_name: &str, deadline_seconds: u32) -> Self {
        Self::new(
            AlertType::OutcomeMissing,
            format!(
                "{} was delivered, but its outcome was not reported within {deadline_seconds} s",
                quoted(cue_name)
            ),
            json!({
                "outcome_deadline_seconds": deadline_seconds,
                "outcome_state": OutcomeState::Missing.as_str(),
            }),
        )
    }

    /// `waiting` executions of the cue, counted up to [`MAX_COUNTED_WAITING`], wait for a worker. `held_up` is how often
    /// the cue was due while the execution held it up, and since when.
    pub fn unclaimed(
        cue_name: &str,
        pending_minutes: i64,
        waiting: u32,
        task: Option<&str>,
        held_up: Option<(u64, Timestamp)>,
    ) -> Self {
        let rest = match (held_up, waiting) {
            (Some((due, _)), _) => format!("; the cue was due {due} times and has not run"),
            (None, 0 | 1) => String::new(),
            (None, MAX_COUNTED_WAITING..) => format!("; {MAX_COUNTED_WAITING} or more are waiting"),
            (None, _) => format!("; {waiting} are waiting"),
        };
        let cue_name = quoted(cue_name);
        let message = format!(
            "No worker has claimed a run of {cue_name} for {pending_minutes} minutes{rest}"
        );
        let mut metadata = json!({"pending_minutes": pending_minutes, "waiting_executions": waiting, "task": task});
        if let Some((due, since)) = held_up {
            metadata["due_runs"] = due.into();
            metadata["due_since"] = instant(since).into();
        }
        Self::new(AlertType::Unclaimed, message, metadata)
    }

    /// The runs of an account that caught up after an outage.
    pub fn catch_up(caught_up: CaughtUp) -> Self {
        let CaughtUp { runs, first, last } = caught_up;
        let (from, to) = (instant(first), instant(last));
        let noun = if runs == 1 { "run" } else { "runs" };
        Self::new(
            AlertType::CatchUp,
            format!("{runs} missed {noun} caught up after an outage: due from {from} to {to}"),
            json!({"runs": runs, "from": from, "to": to}),
        )
    }

    pub fn clock_behind(newest: Timestamp, now: Timestamp) -> Self {
        let until = instant(newest);
        let message = format!(
            "The clock of the server went back to {}: no cue fires by schedule before {until}, or until the operator \
             runs `cued clock accept`",
            instant(now)
        );
        Self::new(AlertType::ClockBehind, message, json!({"until": until}))
    }

    pub fn time_zone_changed(moved: &MovedRuns) -> Self {
        let runs =
            if moved.count == 1 { "a next run" } else { &format!("{} next runs", moved.count) };
        let moves = moved.first.iter().map(|run| {
            json!({"cue_id": run.cue_id, "timezone": run.zone, "from": instant(run.from), "to": instant(run.to)})
        });
        Self::new(
            AlertType::TimeZoneChanged,
            format!("The rules of time zones changed, and {runs} moved: {}", moved.named()),
            json!({"runs": moved.count, "moved": moves.collect::<Vec<_>>()}),
        )
    }

    /// The alert of an account, about no single cue.
    pub fn of_account(self, id: String, created_at: Timestamp) -> Alert {
        let Self { alert_type, message, metadata } = self;
        Alert { id, alert_type, cue_id: None, execution_id: None, message, metadata, created_at }
    }
}

/// The text of a user or a worker in the sentence of an alert.
fn quoted(text: &str) -> String {
    one_line(text, MAX_QUOTED_CHARS)
}

/// Receivers of the public service read `consecutive_failures`.
fn failure_counts(failures: i64) -> Value {
    json!({"failure_count": failures, "consecutive_failures": failures})
}

/// The next run of a cue after a change of the rules of its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedRun {
    pub cue_id: String,
    pub name: String,
    pub zone: String,
    pub from: Timestamp,
    pub to: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovedRuns {
    pub count: usize,
    /// At most `MAX_LISTED_MOVES`.
    pub first: Vec<MovedRun>,
}

impl MovedRuns {
    pub fn push(&mut self, run: MovedRun) {
        self.count += 1;
        if self.first.len() < MAX_LISTED_MOVES {
            self.first.push(run);
        }
    }

    fn named(&self) -> String {
        let named = self.first.iter().take(MAX_NAMED_MOVES).map(
            |MovedRun { name, zone, from, to, .. }| {
                let name = one_line(name, MAX_MOVED_NAME);
                format!("{name} ({zone}) from {} to {}", instant(*from), instant(*to))
            },
        );
        let more = self.count.saturating_sub(MAX_NAMED_MOVES);
        let more = (more > 0).then(|| format!("and {more} more"));
        named.chain(more).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    pub id: String,
    pub alert_type: AlertType,
    pub cue_id: Option<String>,
    pub execution_id: Option<ExecutionId>,
    pub message: String,
    pub metadata: Value,
    pub created_at: Timestamp,
}

impl Alert {
    /// The runs of an alert that [`NewAlert::catch_up`] made.
    /// Errors: text for the operator, if the metadata is not that of such an alert.
    pub fn caught_up(&self) -> Result<CaughtUp, String> {
        let read = |field: &str| -> Result<Timestamp, String> {
            let text =
                self.metadata[field].as_str().ok_or_else(|| format!("{field} is not a text"))?;
            text.parse().map_err(|error| format!("{field} {text:?} is not an instant: {error}"))
        };
        let runs = self.metadata["runs"].as_u64().ok_or("runs is not a number")?;
        Ok(CaughtUp { runs, first: read("from")?, last: read("to")? })
    }

    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "alert_type": self.alert_type.as_str(),
            "severity": self.alert_type.severity().as_str(),
            "cue_id": self.cue_id,
            "execution_id": self.execution_id.map(|id| id.to_string()),
            "message": self.message,
            "metadata": self.metadata,
            "created_at": instant(self.created_at),
        })
    }
}

/// A test has the type of a real alert: receivers need no case for a type that no other alert has.
pub const TEST_KIND: NotificationKind = NotificationKind::Alert(AlertType::ConsecutiveFailures);

/// Waiting POSTs of [`TEST_KIND`] above which there is no test. Half of those that may wait: tests never displace an
/// alert.
pub const MAX_WAITING_BEFORE_TEST: u32 = BACKLOG_CLEARED;

/// Seconds for `Retry-After`: most receivers answer within this time.
const RETRY_AFTER: u32 = 5;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TestStatus {
        Delivered = "delivered",
        Failed = "failed",
        Waiting = "waiting",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestAttempt {
    pub http_status: Option<u16>,
    pub duration: SignedDuration,
    pub error_message: Option<String>,
    /// The beginning of the answer.
    pub response: Option<String>,
    pub next: NextStep,
}

/// Tests whose requests wait for the first attempt, at most one per user: the id of the notification, and what gets the
/// attempt.
#[derive(Default)]
pub struct RunningTests {
    of_users: HashMap<UserKey, (String, OnAttempt)>,
}

pub type OnAttempt = Box<dyn FnOnce(TestAttempt) + Send>;

/// The body of the test alert `id`: an alert after the third failure, without a cue and an execution, and with `test`.
pub fn test_alert(id: &str, now: Timestamp) -> Value {
    let message = "This is a test alert, sent by request: nothing has failed".to_owned();
    let metadata = failure_counts(ALERT_THRESHOLD);
    let alert = NewAlert::new(AlertType::ConsecutiveFailures, message, metadata);
    let mut body = alert.of_account(id.to_owned(), now).json();
    body["test"] = true.into();
    body
}

impl TestAttempt {
    pub fn status(&self) -> TestStatus {
        if self.next == NextStep::Success { TestStatus::Delivered } else { TestStatus::Failed }
    }
}

impl RunningTests {
    /// Begins to wait for the notification `id`, whose first attempt `on_attempt` gets; [`RunningTests::end`] must follow.
    pub fn begin(
        &mut self,
        user_key: UserKey,
        id: String,
        on_attempt: OnAttempt,
    ) -> Result<(), Refusal> {
        if self.of_users.contains_key(&user_key) {
            let message =
                "A test alert of the account is being sent; wait for its answer, then send another";
            return Err(
                Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(RETRY_AFTER)
            );
        }
        self.of_users.insert(user_key, (id, on_attempt));
        Ok(())
    }

    /// Passes the first attempt to send the user's notification `id` to the request that waits for it, if one does.
    pub fn pass(&mut self, user_key: UserKey, id: &str, attempt: TestAttempt) {
        if let Some(on_attempt) = self.end(user_key, id) {
            on_attempt(attempt);
        }
    }

    pub fn end(&mut self, user_key: UserKey, id: &str) -> Option<OnAttempt> {
        self.of_users.get(&user_key).filter(|(running, _)| running == id)?;
        self.of_users.remove(&user_key).map(|(_, on_attempt)| on_attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_about_late_runs_is_read_back_and_extended() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (first, last) = (at("2026-01-01T10:00:00Z"), at("2026-01-01T12:00:00Z"));
        let caught_up = CaughtUp { runs: 3, first, last };
        let alert =
            NewAlert::catch_up(caught_up).of_account("id".to_owned(), at("2026-01-01T12:30:00Z"));
        assert_eq!(alert.caught_up(), Ok(caught_up));
        let damaged =
            Alert { metadata: json!({"runs": 3, "from": "noon", "to": null}), ..alert.clone() };
        assert!(damaged.caught_up().unwrap_err().starts_with("from \"noon\" is not an instant"));
        assert!(alert.message.starts_with("3 missed runs caught up"), "{}", alert.message);
        let more =
            caught_up.and(CaughtUp { runs: 1, first: at("2026-01-01T09:00:00Z"), last: first });
        assert_eq!(more, CaughtUp { runs: 4, first: at("2026-01-01T09:00:00Z"), last });
    }
}
