//! An app on a new database file, without threads of the engine or sockets, with a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::PlanLimits;
use cued::domain::account::user::{Caller, Credential};
use cued::domain::api_error::ErrorCode;
use cued::domain::cue::{Cue, CueFields, CueRequest, Transport};
use cued::domain::execution::outcome::OutcomeReport;
use cued::domain::execution::{NewExecution, Trigger};
use cued::domain::ids::{CueId, ExecutionId};
use cued::domain::notification::alert::Alert;
use cued::domain::row_keys::{CueKey, UserKey};
use cued::domain::schedule::{CatchUp, Schedule};
use cued::error::{Error, Result};
use cued::service::executions::{claim, report};
use cued::service::finish::RecordedOutcome;
use cued::service::workers;
use cued::store::alerts::{self, AlertFilter};
use cued::store::db::counters;
use cued::store::executions::claims::{self, ClaimFilter, ClaimableExecution};
use cued::store::executions::{self, ExecutionDetails};
use cued::store::{ReadTx, WakeSet, WriteTx, cues};
use cued::system::random;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

/// The instant of the clock of a new fixture.
pub const BEGIN: &str = "2026-01-01T10:00:00Z";

/// An app and the folder of its database.
pub struct Fixture {
    pub app: Arc<App>,
    folder: Option<TempDir>,
    /// True if the counters are checked at the end: not if a test writes rows without them.
    checks_counters: bool,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.checks_counters && !std::thread::panicking() {
            let wrong = self
                .app
                .store
                .read(|file| counters::discrepancies(file))
                .wait()
                .unwrap_or_default();
            // The counters of the file are right after every test.
            assert_eq!(wrong, Vec::<String>::new());
        }
    }
}

impl Fixture {
    pub fn new() -> Self {
        Self::with_clock(Clock::test(Some(BEGIN.parse().unwrap())))
    }

    pub fn with_clock(clock: Clock) -> Self {
        Self::with_config(clock, |_| ())
    }

    pub fn with_config(clock: Clock, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(folder.path().join("cued.db"));
        // Most of its users register themselves and are never confirmed.
        config.plans = config.plans.trusting_unconfirmed(true);
        change(&mut config);
        let app = Arc::new(App::open(clock, config).unwrap());
        Self { app, folder: Some(folder), checks_counters: true }
    }

    /// A fixture on a file in a folder of the test.
    pub fn from_app(app: App) -> Self {
        Self { app: Arc::new(app), folder: None, checks_counters: true }
    }

    /// For tests that write rows without their counters.
    pub fn without_counter_check(mut self) -> Self {
        self.checks_counters = false;
        self
    }

    /// The same file and instant in a new app, as after a restart of the process.
    pub fn restart(mut self) -> Self {
        let (now, config, checks_counters) =
            (self.now(), self.app.config.clone(), self.checks_counters);
        let folder = self.folder.take();
        // One app at a time may open the file.
        drop(self);
        let app = Arc::new(App::open(Clock::test(Some(now)), config).unwrap());
        Self { app, folder, checks_counters }
    }

    pub fn now(&self) -> Timestamp {
        self.app.clock.now()
    }

    pub fn advance(&self, seconds: i64) {
        self.app.clock.set(self.now() + SignedDuration::from_secs(seconds));
    }

    pub fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&WriteTx<'_>) -> T + Send + 'static,
    ) -> T {
        self.app.store.write(move |tx| Ok(job(tx))).wait().unwrap()
    }

    pub fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ReadTx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        self.app.store.read(job).wait().unwrap()
    }

    /// The alerts of a user, newest first.
    pub fn alerts(&self, user: UserKey) -> Vec<Alert> {
        self.read(move |read| alerts::list(read, user, &AlertFilter::default(), 100, 0)).0
    }

    /// A caller for whom no limit holds.
    pub fn caller(&self, user_key: UserKey) -> Caller {
        Caller {
            user_key,
            user_id: "u".to_owned(),
            credential: Credential::ApiKey { key: 1, hash: [0; 32] },
            plan: "free".to_owned(),
            limits: PlanLimits::NONE,
            is_operator: false,
            executions: 0,
        }
    }

    pub fn sql(&self, sql: &str) {
        let sql = sql.to_owned();
        self.write(move |tx| tx.execute_batch(&sql).unwrap());
    }

    /// Makes commits fail as on a full disk while the returned flag is true.
    pub fn refuse_commits(&self) -> Arc<AtomicBool> {
        let fails = Arc::new(AtomicBool::new(true));
        let hook = Arc::clone(&fails);
        self.read(|_| Ok(()));
        // The hook already refuses the commit that installs it.
        let installed = self
            .app
            .store
            .write(move |tx| Ok(tx.commit_hook(Some(move || hook.load(Ordering::SeqCst)))?));
        drop(installed.wait());
        fails
    }

    /// A new user; returns the key of its row.
    pub fn user(&self, name: &'static str) -> UserKey {
        let insert = "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
                      VALUES (?1, ?1, 'free', 'whsec_', 'whsec_', 0, 0)";
        self.write(move |tx| {
            tx.execute(insert, [name]).unwrap();
            UserKey::new(tx.last_insert_rowid())
        })
    }

    /// A worker cue that runs every hour, unless `change` says otherwise.
    pub fn worker_cue(&self, user_key: UserKey, change: impl FnOnce(&mut CueFields)) -> Cue {
        let mut fields = hourly_worker_cue("resize images");
        change(&mut fields);
        let id = CueId::generate(self.now(), random::fill).unwrap().to_string();
        let request = CueRequest { fields, ..CueRequest::default() };
        let cue = request.into_cue(id, user_key, self.now()).unwrap();
        self.app.store.write(move |tx| cues::insert(tx, cue, None)).wait().unwrap()
    }

    /// A scheduled execution of `cue`, due now, with a payload of its own.
    pub fn run(&self, cue: &Cue, payload: Value) -> ExecutionId {
        self.runs(cue, [payload])[0]
    }

    /// Scheduled executions of `cue`, due now, one per payload.
    pub fn runs(&self, cue: &Cue, payloads: impl IntoIterator<Item = Value>) -> Vec<ExecutionId> {
        let runs: Vec<_> = payloads
            .into_iter()
            .map(|payload| (self.new_execution(cue, &payload), payload))
            .collect();
        let ids = runs.iter().map(|(new, _)| new.id).collect();
        let stored = self.app.store.write(|tx| {
            for (mut new, payload) in runs {
                new.payload_key =
                    Some(cues::insert_single_use_payload(tx, new.cue_key, &payload.into())?);
                executions::insert(tx, &new)?;
            }
            tx.wake(WakeSet { claim: true, ..WakeSet::default() });
            Ok(())
        });
        stored.wait().unwrap();
        ids
    }

    /// An execution that is not stored yet.
    pub fn new_execution(&self, cue: &Cue, payload: &Value) -> NewExecution {
        let word = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
        NewExecution {
            id: self.app.ids.next(self.now()).unwrap(),
            cue_key: cue.key,
            user_key: cue.user_key,
            is_worker: cue.fields.transport == Transport::Worker,
            destination: None,
            task: word("task"),
            agent: word("agent"),
            scheduled_for: self.now(),
            triggered_by: Trigger::Schedule,
            payload_key: None,
            replayed_from: None,
            is_catch_up: false,
            is_buffered: false,
            policies: cue.fields.policies,
            now: self.now(),
        }
    }

    pub fn execution(&self, user_key: UserKey, id: ExecutionId) -> ExecutionDetails {
        self.read(move |read| executions::find(read, user_key, id)).unwrap()
    }

    pub fn cue(&self, key: CueKey) -> Cue {
        self.read(move |read| cues::find_by_key(read, key)).unwrap()
    }

    pub fn claimable(
        &self,
        user: UserKey,
        task: Option<&str>,
        agent: Option<&str>,
        limit: u32,
    ) -> Vec<ClaimableExecution> {
        let filter = ClaimFilter { task: task.map(str::to_owned), agent: agent.map(str::to_owned) };
        self.read(move |read| claims::list(read, user, &filter, limit)).executions
    }

    /// Claims an execution; returns the number of the attempt.
    pub fn claim(&self, user: UserKey, id: ExecutionId, worker: &str) -> u32 {
        claim(&self.app, user, id, worker.to_owned()).wait().unwrap().attempt
    }

    pub fn report(&self, user: UserKey, id: ExecutionId, success: bool) -> Result<RecordedOutcome> {
        report(&self.app, user, id, OutcomeReport { success, ..OutcomeReport::default() }).wait()
    }

    pub fn heartbeat(&self, user: UserKey, worker: &str) {
        workers::record_heartbeat(&self.app, user, worker.to_owned(), r#"["resize"]"#.to_owned())
            .wait()
            .unwrap();
    }
}

/// The code of an action's error.
#[track_caller]
pub fn code<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub fn after_begin(seconds: i64) -> Timestamp {
    BEGIN.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub fn hourly_worker_cue(name: &str) -> CueFields {
    CueFields {
        name: name.to_owned(),
        schedule: (&Schedule::recurring("0 * * * *", "UTC", CatchUp::Latest).unwrap()).into(),
        transport: Transport::Worker,
        ..CueFields::default()
    }
}
