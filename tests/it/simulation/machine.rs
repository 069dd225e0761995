//! The program of a simulation: the real store, engine and HTTP server on a clock that stands still. Only the calls of
//! the simulation make it do anything, so that a run follows from its seed.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::Plans;
use cued::domain::account::user::RegistrationPolicy;
use cued::domain::cue::retention::Retention;
use cued::engine::delivery::dispatcher::{Dispatcher, requeue_interrupted};
use cued::engine::notifications::NotificationDispatcher;
use cued::engine::scheduler::Scheduler;
use cued::engine::scheduler::retention_sweeper::RetentionSweeper;
use cued::http::routes::ROUTES;
use cued::store::OpenError;
use rusqlite::{Connection, OpenFlags};

use crate::simulation::model::{MORE_ON_PRO, Model, Ms};
use crate::simulation::receivers::InFlight;
use crate::support::*;

/// Delivery threads: with the four receivers that are slow, at least one is always free for a receiver that is not.
pub const THREADS: usize = 16;

/// The storage of every plan: three large payloads fill it.
pub const STORAGE_MB: i64 = 1;

pub struct Machine {
    // Dropped in this order: the server and the engine use the app, and the app its folder.
    server: Option<HttpServer>,
    pub engine: Option<EngineParts>,
    /// A connection of its own, whose statements stay prepared.
    file: Option<Connection>,
    fixture: Option<Fixture>,
    pub clients: Vec<Client>,
    pub in_flight: Vec<InFlight>,
    /// The number of commits until one is refused; 0 is never.
    failing: Arc<AtomicU64>,
    refusals: Arc<AtomicU64>,
    config: Config,
    is_test_clock: bool,
    _folder: TempDir,
}

pub struct EngineParts {
    pub scheduler: Scheduler,
    pub dispatcher: Dispatcher,
    pub notifications: NotificationDispatcher,
    pub sweeper: RetentionSweeper,
}

impl Machine {
    pub fn start(model: &Model) -> Self {
        // The simulation is about the order of writes, not about the disk.
        let folder = folder_in_memory();
        let limits = |cues: usize| {
            json!({
                "cues": cues, "executions": model.monthly_limit, "requests_per_minute": null, "storage_mb": STORAGE_MB,
            })
        };
        let plans =
            json!({"free": limits(model.cue_limit), "pro": limits(model.cue_limit + MORE_ON_PRO)});
        let config = Config {
            registration: Some(RegistrationPolicy::Open),
            plans: Plans::from_json(&plans.to_string()).unwrap().trusting_unconfirmed(true),
            retention: Retention { age: None, runs: None },
            delivery_threads: THREADS,
            ..Config::new(folder.path().join("cued.db"))
        };
        let mut machine = Self {
            server: None,
            engine: None,
            file: None,
            fixture: None,
            clients: Vec::new(),
            in_flight: Vec::new(),
            failing: Arc::default(),
            refusals: Arc::default(),
            config,
            is_test_clock: model.is_test_clock,
            _folder: folder,
        };
        machine.open(model.now);
        machine
    }

    pub fn app(&self) -> &Arc<App> {
        &self.fixture.as_ref().unwrap().app
    }

    /// The file, to read it.
    pub fn file(&self) -> &Connection {
        self.file.as_ref().unwrap()
    }

    pub fn engine(&mut self) -> &mut EngineParts {
        self.engine.as_mut().unwrap()
    }

    /// A client without a key.
    pub fn client(&self) -> Client {
        Client::new(self.server.as_ref().unwrap().addr)
    }

    /// Refuses the `nth` commit from now; 0 refuses none.
    pub fn refuse_commit(&self, nth: u64) {
        self.failing.store(nth, Ordering::SeqCst);
        self.refusals.store(u64::from(nth > 0), Ordering::SeqCst);
    }

    /// The number of commits that will be refused.
    pub fn refusals_left(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// Ends the process; a crash leaves the files as they are now, an orderly stop closes them.
    pub fn restart(&mut self, is_crash: bool, now: Ms) {
        let files = if is_crash { self.files() } else { Vec::new() };
        self.engine = None;
        self.server = None;
        self.file = None;
        self.fixture = None;
        for (path, content) in files {
            fs::write(path, content).unwrap();
        }
        self.open(now);
        let server = self.server.as_ref().unwrap();
        self.clients = self.clients.iter().map(|client| client.at(server.addr)).collect();
    }

    /// The database and its log. No write is under way, because every caller waits for the commit.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let log = PathBuf::from(format!("{}-wal", self.config.db.display()));
        [self.config.db.clone(), log].map(|path| (path.clone(), fs::read(path).unwrap())).into()
    }

    fn open(&mut self, now: Ms) {
        let now = Model::timestamp(now);
        let clock = || if self.is_test_clock { Clock::test(Some(now)) } else { Clock::manual(now) };
        // A process that another test starts has the lock of the file too, between its fork and its program.
        let app = loop {
            match App::open(clock(), self.config.clone()) {
                Err(OpenError::InUse { .. }) => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        let fixture = Fixture::from_app(app).without_counter_check();
        self.refuse_commit(0);
        let (failing, refusals) = (Arc::clone(&self.failing), Arc::clone(&self.refusals));
        // Returns true, which refuses the commit, when the count reaches 0.
        let hook = move || {
            let left = failing.load(Ordering::SeqCst);
            failing.store(left.saturating_sub(1), Ordering::SeqCst);
            left == 1 && refusals.swap(0, Ordering::SeqCst) == 1
        };
        fixture.app.store.write(move |tx| Ok(tx.commit_hook(Some(hook))?)).wait().unwrap();
        requeue_interrupted(&fixture.app).unwrap();
        self.server = Some(HttpServer::start(Arc::clone(&fixture.app), ROUTES));
        self.engine = Some(EngineParts {
            scheduler: Scheduler::start(&fixture.app).unwrap(),
            dispatcher: Dispatcher::new(THREADS),
            notifications: NotificationDispatcher::new(8),
            sweeper: RetentionSweeper::default(),
        });
        let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = Connection::open_with_flags(&self.config.db, access).unwrap();
        file.set_prepared_statement_cache_capacity(16);
        self.file = Some(file);
        self.fixture = Some(fixture);
    }
}
