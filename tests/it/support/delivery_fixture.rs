//! Webhook cues and their executions, delivered by a client without a network.

use std::collections::VecDeque;
use std::ops::Deref;

use cued::clock::Clock;
use cued::domain::cue_fields::Policies;
use cued::domain::execution::{NewExecution, Trigger};
use cued::domain::ids::ExecutionId;
use cued::domain::row_keys::{CueKey, UserKey};
use cued::domain::webhook::callback::destination_hash;
use cued::engine::delivery::attempt::{FinishedAttempt, deliver};
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode};
use cued::engine::webhook_client::{DeliveryError, WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::WakeSet;
use cued::store::executions::delivery_queue::ClaimedDelivery;
use cued::store::executions::{self, delivery_queue};
use rusqlite::types::FromSql;

use crate::support::*;

pub const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A fixture with one user, whose key is 1.
pub struct DeliveryFixture(Fixture);

impl Deref for DeliveryFixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.0
    }
}

impl DeliveryFixture {
    /// With this number of delivery threads, and a test clock at the start of 2026.
    pub fn new(threads: usize) -> Self {
        let clock = Clock::test(Some(at("2026-01-01T00:00:00Z")));
        let fixture = Fixture::with_config(clock, |config| config.delivery_threads = threads);
        fixture.sql(&format!(
            "INSERT INTO users (key, id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
             VALUES (1, 'u', 'a@example.com', 'free', '{SECRET}', '{SECRET}', 0, 0)"
        ));
        Self(fixture.without_counter_check())
    }

    pub fn restart(self) -> Self {
        Self(self.0.restart())
    }

    /// A recurring webhook cue of the first user, with the default retries.
    pub fn webhook_cue(&self, url: &str) -> CueKey {
        self.webhook_cue_of(UserKey::new(1), url)
    }

    /// The same of the user in row `user_key`, who is created if there is none.
    pub fn webhook_cue_of(&self, user_key: UserKey, url: &str) -> CueKey {
        let insert = format!(
            "INSERT OR IGNORE INTO users (key, id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
             VALUES ({user_key}, '{user_key}', '{user_key}@example.com', 'free', '{SECRET}', '{SECRET}', 0, 0)"
        );
        self.sql(&insert);
        let (url, destination) = (url.to_owned(), destination_hash(url));
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO cues (id, user_key, status, next_run, run_count, missed_count, transport,
                     destination_hash, cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification,
                     callback_url, callback_method, callback_headers, name, created_at, updated_at)
                 VALUES ('cue_' || (SELECT 100000000000 + count(*) FROM cues), ?3, 'active', 4102444800000, 0, 0, 'webhook', ?1,
                     '* * * * *', 'UTC', 'latest', 4, '[1,5,15]', '{\"email\":true,\"webhook\":null,\"pause\":false}',
                     'none', ?2, 'POST', '[]', 'c', 0, 0)",
                (destination, url, user_key),
            )
            .unwrap();
            CueKey::new(tx.last_insert_rowid())
        })
    }

    /// An execution of a cue, due now.
    pub fn due(&self, cue: CueKey) -> ExecutionId {
        self.due_at(cue, self.now())
    }

    pub fn due_times(&self, cue: CueKey, count: usize) {
        for _ in 0..count {
            self.due(cue);
        }
    }

    pub fn due_at(&self, cue_key: CueKey, scheduled_for: Timestamp) -> ExecutionId {
        let now = self.now();
        let id = self.app.ids.next(now).unwrap();
        self.write(move |tx| {
            let (destination, payload_key, user_key): (Option<i64>, Option<i64>, UserKey) = tx
                .query_row(
                    "SELECT destination_hash, payload_key, user_key FROM cues WHERE key = ?1",
                    [cue_key],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .unwrap();
            let new = NewExecution {
                id,
                cue_key,
                user_key,
                is_worker: destination.is_none(),
                destination,
                task: None,
                agent: None,
                scheduled_for,
                triggered_by: Trigger::Schedule,
                payload_key,
                replayed_from: None,
                is_catch_up: false,
                is_buffered: false,
                policies: Policies::default(),
                now,
            };
            executions::insert(tx, &new).unwrap();
            tx.wake(WakeSet { send: true, claim: true, ..WakeSet::default() });
        });
        id
    }

    pub fn field<T: FromSql + Send + 'static>(&self, id: ExecutionId, column: &str) -> T {
        let sql = format!("SELECT {column} FROM executions WHERE id = ?1");
        self.write(move |tx| tx.query_row(&sql, [id.bytes()], |row| row.get(0)).unwrap())
    }

    pub fn state(&self, id: ExecutionId) -> (String, i64) {
        (self.field(id, "status"), self.field(id, "attempts"))
    }

    pub fn claim_deliveries(&self, dispatcher: &mut Dispatcher) -> Vec<ClaimedDelivery> {
        dispatcher.run_once(&self.app, Vec::new(), DispatcherMode::Running).unwrap()
    }

    pub fn attempt(
        &self,
        webhook_client: &dyn WebhookClient,
        claimed: &ClaimedDelivery,
    ) -> FinishedAttempt {
        let loaded = self
            .app
            .store
            .read_blocking(|read| delivery_queue::load_request(read, *claimed))
            .unwrap();
        deliver(webhook_client, loaded, || Some(self.now())).unwrap()
    }

    /// Delivers until nothing is ready; returns the number of attempts.
    pub fn deliver(&self, webhook_client: &dyn WebhookClient) -> usize {
        let mut dispatcher = Dispatcher::new(self.app.config.delivery_threads);
        let (mut attempts, mut finished) = (0, Vec::new());
        loop {
            let claimed =
                dispatcher.run_once(&self.app, finished, DispatcherMode::Running).unwrap();
            if claimed.is_empty() {
                assert_eq!(dispatcher.unfinished(), 0);
                return attempts;
            }
            attempts += claimed.len();
            finished =
                claimed.iter().map(|claimed| self.attempt(webhook_client, claimed)).collect();
        }
    }
}

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn response(http_status: u16) -> Result<WebhookResponse, DeliveryError> {
    Ok(WebhookResponse {
        http_status,
        retry_after: None,
        headers: Vec::new(),
        body: b"body".to_vec(),
        note: None,
    })
}

/// A webhook client without a network: records requests and returns the given responses in order, then 200.
#[derive(Default)]
pub struct RecordingClient {
    responses: Mutex<VecDeque<Result<WebhookResponse, DeliveryError>>>,
    requests: Mutex<Vec<WebhookRequest>>,
}

impl RecordingClient {
    pub fn with(
        responses: impl IntoIterator<Item = Result<WebhookResponse, DeliveryError>>,
    ) -> Self {
        Self { responses: Mutex::new(responses.into_iter().collect()), requests: Mutex::default() }
    }

    pub fn requests(&self) -> Vec<WebhookRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// A header of a request, by its place in the order of sending.
    pub fn header(&self, request: usize, name: &str) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        let mut headers = requests[request].headers.expose().iter();
        headers.find(|(it, _)| it == name).map(|(_, value)| value.clone())
    }
}

impl WebhookClient for RecordingClient {
    fn send(&self, request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        self.requests.lock().unwrap().push(request.clone());
        self.responses.lock().unwrap().pop_front().unwrap_or_else(|| response(200))
    }
}
