//! Test alerts: a user sends one to see that the alert webhook works (contract §6.9). They are in no list of alerts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::NextStep;
use crate::domain::notification::alert::{ALERT_THRESHOLD, Alert, AlertType, NewAlert};
use crate::domain::notification::{BACKLOG_CLEARED, NotificationKind};
use crate::domain::text::word_enum::word_enum;

/// A test has the type of a real alert: receivers need no case for a type that no other alert has.
pub const KIND: NotificationKind = NotificationKind::Alert(AlertType::ConsecutiveFailures);

/// Waiting POSTs of [`KIND`] above which there is no test. Half of those that may wait: tests never displace an alert.
pub const MAX_WAITING_BEFORE_TEST: u32 = BACKLOG_CLEARED;

/// Seconds for `Retry-After`: most receivers answer within this time.
const RETRY_AFTER: u32 = 5;

word_enum! {
    /// The state of a test alert when its request is answered.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TestStatus {
        /// The receiver has accepted it.
        Delivered = "delivered",
        /// The first attempt has failed.
        Failed = "failed",
        /// The first attempt has not ended.
        Waiting = "waiting",
    }
}

/// The first attempt to send a test alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestAttempt {
    pub http_status: Option<u16>,
    pub duration: SignedDuration,
    /// Why it failed, in the words of a delivery.
    pub error_message: Option<String>,
    pub next: NextStep,
}

/// Test alerts whose requests wait for the first attempt: at most one per user, so that their number is bounded by that of
/// open requests.
#[derive(Debug, Default)]
pub struct RunningTests {
    of_users: HashMap<i64, RunningTest>,
}

#[derive(Debug)]
struct RunningTest {
    id: String,
    attempt: Option<TestAttempt>,
}

/// The body of the test alert `id`: an alert after the third failure, without a cue and an execution, and with `test`.
pub fn test_alert(id: &str, now: Timestamp) -> Value {
    let alert = Alert {
        id: id.to_owned(),
        alert_type: AlertType::ConsecutiveFailures,
        cue_id: None,
        execution_id: None,
        message: "This is a test alert, sent by request: nothing has failed".to_owned(),
        metadata: NewAlert::ConsecutiveFailures { failures: ALERT_THRESHOLD }.metadata(),
        created_at: now,
    };
    let mut body = alert.json();
    body["test"] = true.into();
    body
}

impl TestAttempt {
    pub fn status(&self) -> TestStatus {
        if self.next == NextStep::Success { TestStatus::Delivered } else { TestStatus::Failed }
    }
}

impl RunningTests {
    /// Begins to wait for the test alert `id`; [`RunningTests::end`] must follow.
    /// Errors: 429 if the user waits for another one.
    pub fn begin(&mut self, user_key: i64, id: String) -> Result<(), Refusal> {
        match self.of_users.entry(user_key) {
            Entry::Vacant(place) => {
                place.insert(RunningTest { id, attempt: None });
                Ok(())
            }
            Entry::Occupied(_) => {
                let message =
                    "A test alert of the account is being sent; wait for its answer, then send another";
                let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
                Err(Refusal { retry_after: Some(RETRY_AFTER), ..refusal })
            }
        }
    }

    /// Records an attempt to send the user's notification `id`. Returns whether a request waits for it.
    pub fn record(&mut self, user_key: i64, id: &str, attempt: impl FnOnce() -> TestAttempt) -> bool {
        let Some(test) = self.of_users.get_mut(&user_key).filter(|test| test.id == id) else { return false };
        test.attempt.get_or_insert_with(attempt);
        true
    }

    /// The attempt to send the user's test alert, once it has ended.
    pub fn attempt(&self, user_key: i64) -> Option<TestAttempt> {
        self.of_users.get(&user_key)?.attempt.clone()
    }

    /// Stops waiting for the user's test alert.
    pub fn end(&mut self, user_key: i64) {
        self.of_users.remove(&user_key);
    }
}
