//! A program without threads or sockets: an app on a new database file, with a clock that is moved by hand.

use std::sync::Arc;

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::cue::{Cue, NewCue, OnFailure, Transport};
use cued::domain::execution::verification::VerificationMode;
use cued::domain::execution::{NewExecution, RetryPolicy, Trigger};
use cued::domain::ids::{CueId, ExecutionId};
use cued::domain::schedule::{CatchUp, Schedule};
use cued::random;
use cued::store::cues::payloads;
use cued::store::db::counters;
use cued::store::executions::{self, ExecutionDetails};
use cued::store::{WakeSet, cues};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The instant at which every world begins.
pub const BEGIN: &str = "2026-01-01T10:00:00Z";

/// An app and the folder that it lives in.
pub struct World {
    pub app: Arc<App>,
    _folder: Option<tempfile::TempDir>,
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.discrepancies(), Vec::<String>::new());
        }
    }
}

impl World {
    pub fn new() -> Self {
        Self::with_clock(Clock::test(Some(BEGIN.parse().unwrap())))
    }

    pub fn with_clock(clock: Clock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::open(clock, Config::new(folder.path().join("cued.db"))).unwrap();
        Self { app: Arc::new(app), _folder: Some(folder) }
    }

    /// A world whose file belongs to somebody else.
    pub fn of(app: App) -> Self {
        Self { app: Arc::new(app), _folder: None }
    }

    pub fn now(&self) -> Timestamp {
        self.app.clock.now()
    }

    pub fn advance(&self, seconds: i64) {
        self.app.clock.set(self.now() + SignedDuration::from_secs(seconds));
    }

    /// What is wrong with the file's counters: nothing, whatever a test has done.
    fn discrepancies(&self) -> Vec<String> {
        self.app.store.read(|file| counters::discrepancies(file)).wait().unwrap_or_default()
    }

    /// A new user's row.
    pub fn user(&self, name: &'static str) -> i64 {
        let insert = "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
                      VALUES (?1, ?1, 'free', 'whsec_', 'whsec_', 0, 0)";
        let user = self.app.store.write(move |tx| {
            tx.execute(insert, [name])?;
            Ok(tx.last_insert_rowid())
        });
        user.wait().unwrap()
    }

    /// A worker cue that runs every hour, but for what `change` makes of it.
    pub fn worker_cue(&self, user_key: i64, change: impl FnOnce(&mut NewCue)) -> Cue {
        let mut new = NewCue {
            name: "resize images".to_owned(),
            description: None,
            schedule: Schedule::recurring("0 * * * *", "UTC", CatchUp::Latest).unwrap(),
            transport: Transport::Worker,
            callback: None,
            payload: None,
            retry: RetryPolicy::default(),
            on_failure: OnFailure::default(),
            verification: VerificationMode::None,
            warning: None,
        };
        change(&mut new);
        let id = CueId::generate(random::fill).unwrap().to_string();
        let (cue, payload) = new.into_cue(id, user_key, self.now()).unwrap();
        self.app.store.write(move |tx| cues::insert(tx, cue, payload.as_ref())).wait().unwrap()
    }

    /// A run of `cue` by schedule at this instant, with a payload of its own.
    pub fn run(&self, cue: &Cue, payload: Value) -> ExecutionId {
        self.runs(cue, [payload])[0]
    }

    /// Runs of `cue` by schedule at this instant, one per payload.
    pub fn runs(&self, cue: &Cue, payloads: impl IntoIterator<Item = Value>) -> Vec<ExecutionId> {
        let runs: Vec<_> =
            payloads.into_iter().map(|payload| (self.new_execution(cue, &payload), payload)).collect();
        let ids = runs.iter().map(|(new, _)| new.id).collect();
        let stored = self.app.store.write(|tx| {
            for (mut new, payload) in runs {
                new.payload_key = Some(payloads::insert_single_use(tx, new.cue_key, &payload)?);
                executions::insert(tx, &new)?;
            }
            tx.wake(WakeSet { claim: true, ..WakeSet::default() });
            Ok(())
        });
        stored.wait().unwrap();
        ids
    }

    /// A run that is not stored yet.
    pub fn new_execution(&self, cue: &Cue, payload: &Value) -> NewExecution {
        let word = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
        NewExecution {
            id: self.app.ids.next(self.now()).unwrap(),
            cue_key: cue.key,
            user_key: cue.user_key,
            is_worker: cue.transport == Transport::Worker,
            destination: None,
            task: word("task"),
            agent: word("agent"),
            scheduled_for: self.now(),
            triggered_by: Trigger::Schedule,
            payload_key: None,
            now: self.now(),
        }
    }

    /// The user's execution as it stands.
    pub fn execution(&self, user_key: i64, id: ExecutionId) -> ExecutionDetails {
        self.app.store.read(move |read| executions::find(read, user_key, id)).wait().unwrap().unwrap()
    }

    /// The user's cue as it stands.
    pub fn cue(&self, key: i64) -> Cue {
        self.app.store.read(move |read| cues::find_by_key(read, key)).wait().unwrap().unwrap()
    }
}
