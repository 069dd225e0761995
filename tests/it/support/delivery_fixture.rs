//! A database with one user, its cues and their runs, and a courier that answers as it is told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::execution::{NewExecution, Trigger};
use cued::domain::ids::ExecutionId;
use cued::domain::webhook::callback_url::destination_hash;
use cued::engine::delivery::attempt::{classify, send};
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, FinishedAttempt};
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::executions::delivery_queue::ClaimedDelivery;
use cued::store::{WakeSet, WriteTx, executions};
use jiff::{Timestamp, ToSpan};
use rusqlite::types::FromSql;
use tempfile::TempDir;

pub const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub struct World {
    pub app: Arc<App>,
    folder: TempDir,
}

impl World {
    /// A test clock at the start of 2026.
    pub fn new(threads: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = open(&folder, threads, at("2026-01-01T00:00:00Z"));
        let world = Self { app, folder };
        world.sql(&format!(
            "INSERT INTO users (key, id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
             VALUES (1, 'u', 'a@example.com', 'free', '{SECRET}', '{SECRET}', 0, 0)"
        ));
        world
    }

    /// The same file, opened by a new process as it were.
    pub fn restart(self) -> Self {
        let (threads, now) = (self.app.config.delivery_threads, self.app.clock.now());
        drop(self.app);
        Self { app: open(&self.folder, threads, now), folder: self.folder }
    }

    pub fn write<T: Send + 'static>(&self, job: impl FnOnce(&WriteTx<'_>) -> T + Send + 'static) -> T {
        self.app.store.write(move |tx| Ok(job(tx))).wait().unwrap()
    }

    pub fn sql(&self, sql: &str) {
        let sql = sql.to_owned();
        self.write(move |tx| tx.execute_batch(&sql).unwrap());
    }

    /// Makes commits fail as on a full disk, as long as the answer is true.
    pub fn refuse_commits(&self) -> Arc<AtomicBool> {
        let fails = Arc::new(AtomicBool::new(true));
        let hook = Arc::clone(&fails);
        self.app.store.read(|_| Ok(())).wait().unwrap();
        // The commit that installs the hook is refused by it already.
        let installed =
            self.app.store.write(move |tx| Ok(tx.commit_hook(Some(move || hook.load(Ordering::SeqCst)))?));
        drop(installed.wait());
        fails
    }

    /// A recurring webhook cue with the default retries.
    pub fn cue(&self, url: &str) -> i64 {
        let (url, destination) = (url.to_owned(), destination_hash(url));
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO cues (id, user_key, status, next_run, run_count, missed_count, transport,
                     destination_hash, cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification,
                     callback_url, callback_method, callback_headers, name, created_at, updated_at)
                 VALUES ('cue_' || (SELECT 100000000000 + count(*) FROM cues), 1, 'active', 0, 0, 0, 'webhook', ?1,
                     '* * * * *', 'UTC', 'latest', 4, '[1,5,15]', '{\"email\":true,\"webhook\":null,\"pause\":false}',
                     'none', ?2, 'POST', '[]', 'c', 0, 0)",
                (destination, url),
            )
            .unwrap();
            tx.last_insert_rowid()
        })
    }

    /// A run of `cue`, due now.
    pub fn run(&self, cue: i64) -> ExecutionId {
        self.run_at(cue, self.app.clock.now())
    }

    pub fn runs(&self, cue: i64, count: usize) {
        for _ in 0..count {
            self.run(cue);
        }
    }

    pub fn run_at(&self, cue_key: i64, scheduled_for: Timestamp) -> ExecutionId {
        let now = self.app.clock.now();
        let id = self.app.ids.next(now).unwrap();
        self.write(move |tx| {
            let (destination, payload_key): (Option<i64>, Option<i64>) = tx
                .query_row(
                    "SELECT destination_hash, payload_key FROM cues WHERE key = ?1",
                    [cue_key],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .unwrap();
            let new = NewExecution {
                id,
                cue_key,
                user_key: 1,
                is_worker: destination.is_none(),
                destination,
                task: None,
                agent: None,
                scheduled_for,
                triggered_by: Trigger::Schedule,
                payload_key,
                now,
            };
            executions::insert(tx, &new).unwrap();
            tx.wake(WakeSet { send: true, claim: true, ..WakeSet::default() });
        });
        id
    }

    /// One column of an execution.
    pub fn field<T: FromSql + Send + 'static>(&self, id: ExecutionId, column: &str) -> T {
        let sql = format!("SELECT {column} FROM executions WHERE id = ?1");
        self.write(move |tx| tx.query_row(&sql, [id.bytes()], |row| row.get(0)).unwrap())
    }

    /// Status and attempts of an execution.
    pub fn state(&self, id: ExecutionId) -> (String, i64) {
        (self.field(id, "status"), self.field(id, "attempts"))
    }

    pub fn advance(&self, seconds: i64) {
        self.app.clock.set(self.app.clock.now() + seconds.seconds());
    }

    pub fn take(&self, dispatcher: &mut Dispatcher) -> Vec<ClaimedDelivery> {
        dispatcher.run_once(&self.app, Vec::new(), DispatcherMode::Running).unwrap()
    }

    pub fn carry(&self, webhook_client: &dyn WebhookClient, taken: &ClaimedDelivery) -> FinishedAttempt {
        let now = self.app.clock.now();
        classify(taken, send(webhook_client, taken, now), now)
    }

    /// Delivers whatever is ready, until nothing is; answers how many attempts there were.
    pub fn deliver(&self, webhook_client: &dyn WebhookClient) -> usize {
        let mut dispatcher = Dispatcher::new(self.app.config.delivery_threads);
        let (mut attempts, mut returned) = (0, Vec::new());
        loop {
            let taken = dispatcher.run_once(&self.app, returned, DispatcherMode::Running).unwrap();
            if taken.is_empty() {
                assert_eq!(dispatcher.unfinished(), 0);
                return attempts;
            }
            attempts += taken.len();
            returned = taken.iter().map(|taken| self.carry(webhook_client, taken)).collect();
        }
    }
}

fn open(folder: &TempDir, threads: usize, now: Timestamp) -> Arc<App> {
    let mut config = Config::new(folder.path().join("cued.db"));
    config.delivery_threads = threads;
    Arc::new(App::open(Clock::test(Some(now)), config).unwrap())
}

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn answer(http_status: u16) -> Result<WebhookResponse, DeliveryError> {
    Ok(WebhookResponse { http_status, retry_after: None, body: b"body".to_vec() })
}

/// Notes what it is given; answers with what it was told, in order, then with 200.
#[derive(Default)]
pub struct Recorder {
    answers: Mutex<VecDeque<Result<WebhookResponse, DeliveryError>>>,
    parcels: Mutex<Vec<WebhookRequest>>,
}

impl Recorder {
    pub fn told(answers: impl IntoIterator<Item = Result<WebhookResponse, DeliveryError>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), parcels: Mutex::default() }
    }

    pub fn parcels(&self) -> Vec<WebhookRequest> {
        self.parcels.lock().unwrap().clone()
    }

    pub fn header(&self, parcel: usize, name: &str) -> Option<String> {
        let parcels = self.parcels.lock().unwrap();
        parcels[parcel].headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone())
    }
}

impl WebhookClient for Recorder {
    fn send(&self, parcel: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        self.parcels.lock().unwrap().push(parcel.clone());
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| answer(200))
    }
}
