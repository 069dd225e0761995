//! Test calls of a callback (contract §6.11): a request as a delivery sends it, made by request and stored nowhere. Their
//! limits, their request and their result; the engine sends it.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::rate_limit::SlidingWindows;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::attempt::FailureCause;
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::secret::Secret;
use crate::domain::webhook::delivery::{AttemptRef, DeliverySpec, SignedRequest, signed_request};

/// Test calls of an account in any minute. Each calls an address that the account chooses, outside of its quota.
pub const MAX_TEST_CALLS: u32 = 10;
const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// Test calls at a time. Each has a thread of its own, so that they take none from deliveries; with its buffers it takes
/// some 200 KiB.
const MAX_AT_ONCE: usize = 32;

/// Longest test call: clients give up a response after 30 s.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(25);

/// Seconds for `Retry-After` while other test calls are under way: most receivers answer within this time.
const RETRY_AFTER: u32 = 5;

/// The cue id in the headers: that of no cue, in the form of all.
pub const TEST_CUE_ID: &str = "cue_000000000000";

/// The header that tells a receiver that it is a test.
const TEST_HEADER: (&str, &str) = ("X-CueAPI-Test", "true");

/// A test call before it is signed.
#[derive(Debug)]
pub struct TestCall {
    /// No execution has this id.
    pub id: ExecutionId,
    pub started_at: Timestamp,
    pub spec: DeliverySpec,
}

impl TestCall {
    /// The request: that of a first attempt at the start of the test, with the header of a test.
    pub fn into_request(self) -> SignedRequest {
        let attempt = AttemptRef {
            key: ExecutionKey::default(),
            id: self.id,
            cue_key: CueKey::default(),
            user_key: UserKey::default(),
            destination: 0,
            attempt: 1,
            scheduled_for: self.started_at,
            by_schedule: false,
            started_at: self.started_at,
        };
        let mut request = signed_request(&attempt, self.spec, self.started_at);
        let (name, value) = TEST_HEADER;
        request.headers.expose_mut().push((name.to_owned(), value.to_owned()));
        request
    }
}

/// The result of a test call, with the parts of an attempt (contract §5.8).
#[derive(Debug)]
pub struct TestCallResult {
    pub started_at: Timestamp,
    pub duration: Duration,
    /// `None` for a success.
    pub cause: Option<FailureCause>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
    pub response_headers: Option<JsonText>,
    /// The beginning, with more than is shown of a body that is longer.
    pub response_body: Option<String>,
    pub request_headers: Secret<Vec<(String, String)>>,
}

/// The test calls of accounts: those of the last minute, and those under way.
#[derive(Debug)]
pub struct TestCallLimits {
    calls: SlidingWindows<UserKey>,
    running: HashSet<UserKey>,
}

impl Default for TestCallLimits {
    fn default() -> Self {
        Self { calls: SlidingWindows::new(MAX_TEST_CALLS, WINDOW), running: HashSet::new() }
    }
}

impl TestCallLimits {
    /// Begins a test call of the account; [`TestCallLimits::end`] must follow.
    /// Errors: `rate_limit_exceeded` during another one of the account, and after [`MAX_TEST_CALLS`] in a minute;
    /// `server_busy` if too many of all accounts are under way.
    pub fn begin(&mut self, user_key: UserKey, now: Timestamp) -> Result<(), Refusal> {
        if self.running.contains(&user_key) {
            let message =
                "A test call of the account is under way; wait for its end, then make another";
            return Err(
                Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(RETRY_AFTER)
            );
        }
        if self.running.len() >= MAX_AT_ONCE {
            let message =
                format!("Too many test calls are under way; try again in {RETRY_AFTER} s");
            return Err(Refusal::new(ErrorCode::ServerBusy, message).retry_after(RETRY_AFTER));
        }
        if let Some(seconds) = self.calls.admit(user_key, now) {
            let message = format!(
                "An account can make {MAX_TEST_CALLS} test calls in a minute; make the next one in {seconds} s"
            );
            return Err(Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds));
        }
        self.running.insert(user_key);
        Ok(())
    }

    /// Forgets the calls that have ended.
    pub fn clear(&mut self) {
        self.calls.clear();
    }

    pub fn any_running(&self) -> bool {
        !self.running.is_empty()
    }

    pub fn end(&mut self, user_key: UserKey) {
        self.running.remove(&user_key);
    }
}
