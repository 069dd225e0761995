//! Test calls of a callback by request (contract §6.11): what bounds them, and the secrets that sign them.

use std::sync::Arc;

use jiff::Timestamp;

use crate::app::{App, Notifiers, TestCallLimiter};
use crate::domain::account::plan::MAX_UNCONFIRMED_CALLS;
use crate::domain::account::user::CONFIRM;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::Payload;
use crate::domain::row_keys::UserKey;
use crate::domain::test_call::{TEST_CUE_ID, TestCall, TestCallResult};
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::delivery::DeliverySpec;
use crate::domain::webhook::signature::WebhookSecrets;
use crate::error::{Error, Result};
use crate::store::ReadTx;
use crate::store::accounts::users;
use crate::store::db::meta;
use crate::store::executions::delivery_queue;

/// Seconds for `Retry-After` if the system gives no thread.
const NO_THREAD_RETRY_AFTER: u32 = 5;

/// The account that makes a test call.
pub struct TestSender {
    user_key: UserKey,
    secrets: WebhookSecrets,
    is_unconfirmed: bool,
}

/// Errors: `held` on a restored copy, which sends nothing.
pub fn find_sender(read: &ReadTx<'_>, user_key: UserKey) -> Result<TestSender> {
    meta::refuse_if_held(read, "sends nothing")?;
    let secrets = users::signing_secrets(read, user_key)?;
    Ok(TestSender {
        user_key,
        secrets,
        is_unconfirmed: delivery_queue::is_unconfirmed(read, user_key)?,
    })
}

/// Starts a test call. `on_result` gets its result, on another thread, unless the program ends before.
/// Errors: `rate_limit_exceeded`, `server_busy`.
pub fn start(
    app: &App,
    sender: TestSender,
    callback: Callback,
    payload: Option<Payload>,
    on_result: impl FnOnce(TestCallResult) + Send + 'static,
) -> Result<()> {
    let TestSender { user_key, secrets, is_unconfirmed } = sender;
    let now = app.clock.now();
    let place = Place::take(app, user_key, now)?;
    if is_unconfirmed {
        count_unconfirmed_call(app, user_key, now)?;
    }
    let call = TestCall {
        id: app.ids.next(now)?,
        started_at: now,
        spec: DeliverySpec {
            cue_id: TEST_CUE_ID.to_owned(),
            callback,
            payload: payload.map(|payload| payload.body.into()),
            secrets,
        },
    };
    let on_result = move |result| {
        // Before the response: the account may then make the next test call.
        drop(place);
        on_result(result);
    };
    let caller =
        app.test_caller.get().ok_or_else(|| Error::fault("a test call needs a running engine"))?;
    caller(call, Box::new(on_result)).map_err(|error| {
        tracing::warn!(%error, "cannot start a thread for a test call");
        let message = format!(
            "The server cannot start another thread; try again in {NO_THREAD_RETRY_AFTER} s"
        );
        Refusal::new(ErrorCode::ServerBusy, message).retry_after(NO_THREAD_RETRY_AFTER).into()
    })
}

/// Counts a call of an account with an unconfirmed address, as its runs do (contract §3.10).
fn count_unconfirmed_call(app: &App, user_key: UserKey, now: Timestamp) -> Result<()> {
    let calls = app.unconfirmed_calls.as_ref();
    let Some(seconds) = calls.and_then(|calls| calls.lock().admit(user_key, now)) else {
        return Ok(());
    };
    let message = format!(
        "An account with an unconfirmed address calls at most {MAX_UNCONFIRMED_CALLS} times an hour: wait {seconds} s, or \
         {CONFIRM}"
    );
    Err(Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds).into())
}

/// The place of an account among the test calls under way, until it is dropped.
struct Place {
    limits: TestCallLimiter,
    notifiers: Arc<Notifiers>,
    user_key: UserKey,
}

impl Place {
    fn take(app: &App, user_key: UserKey, now: Timestamp) -> Result<Self> {
        app.test_calls.lock().begin(user_key, now)?;
        let (limits, notifiers) = (Arc::clone(&app.test_calls), Arc::clone(&app.notifiers));
        Ok(Self { limits, notifiers, user_key })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.lock().end(self.user_key);
        self.notifiers.progress.notify();
    }
}
