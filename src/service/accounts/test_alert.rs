//! Test alerts (contract §6.9).

use std::sync::Arc;

use crate::app::App;
use crate::domain::notification::alert::{TEST_KIND, TestAttempt};
use crate::domain::notification::notification_id;
use crate::error::Result;
use crate::service::alerts;
use crate::service::executions::refuse_if_held;
use crate::store::Pending;

/// A test alert of a user. While it exists, the user can send no other one.
pub struct TestAlert {
    pub id: String,
    app: Arc<App>,
    user_key: i64,
}

impl TestAlert {
    /// Refused with `rate_limit_exceeded` if the user waits for another test alert.
    /// Errors: the refusal, or the operating system returns no random bytes.
    pub fn begin(app: &Arc<App>, user_key: i64) -> Result<Self> {
        let now = app.clock.now();
        // No execution has this id: two tests within a millisecond have different ones.
        let id = notification_id(app.ids.next(now)?, TEST_KIND, now);
        app.test_alerts.lock().begin(user_key, id.clone())?;
        Ok(Self { id, app: Arc::clone(app), user_key })
    }

    /// Puts it into the outbox. The refusals are those of [`alerts::enqueue_test`], and `held` on a restored copy.
    pub fn enqueue(&self) -> Pending<()> {
        let (id, user_key, now) = (self.id.clone(), self.user_key, self.app.clock.now());
        self.app.store.write_for(user_key, move |tx| {
            refuse_if_held(tx, "sends nothing")?;
            alerts::enqueue_test(tx, user_key, id, now)
        })
    }

    /// The first attempt to send it, once it has ended; `notifiers.test_alerts` is notified then.
    pub fn attempt(&self) -> Option<TestAttempt> {
        self.app.test_alerts.lock().attempt(self.user_key)
    }
}

impl Drop for TestAlert {
    fn drop(&mut self) {
        self.app.test_alerts.lock().end(self.user_key);
    }
}
