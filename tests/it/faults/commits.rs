//! A day of three cues and a channel, repeated with another failing write each time: the N-th commit for N = 1, 2, 3, …, then the
//! N-th page that the file grows by. A failed write is repeated, as clients and the engine do. The final state is
//! always the same as without a failure.

use cued::clock::Clock;
use cued::domain::channel::{ChannelEvents, ChannelFields, ChannelType, Repeat, Settings};
use cued::domain::cue::tags::Tags;
use cued::domain::cue::{CueFields, CueRequest, OnFailure, Payload, Transport};
use cued::domain::execution::RetryPolicy;
use cued::domain::execution::outcome::OutcomeReport;
use cued::domain::row_keys::UserKey;
use cued::domain::schedule::Schedule;
use cued::domain::webhook::callback::{Callback, Method};
use cued::engine::delivery::attempt::deliver;
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, promote_batch};
use cued::engine::notifications;
use cued::engine::scheduler::Scheduler;
use cued::engine::scheduler::reaper;
use cued::engine::webhook_client::{DeliveryError, WebhookResponse};
use cued::error::{Error, Result};
use cued::service;
use cued::service::executions::{claim_next, report};
use cued::store::executions::delivery_queue;
use cued::store::outbox::Notification;
use cued::store::{Pending, cues};
use rusqlite::types::Value;

use crate::faults::disk::assert_sound;
use crate::support::*;

/// The fault of one run.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Nothing,
    /// The disk refuses this commit, counted from 1.
    Commit(usize),
    /// The file may grow by this number of pages and is then full until a write has failed.
    Pages(usize),
}

/// A program on a disk that fails once.
struct Trial {
    fixture: Fixture,
    webhook_client: RecordingClient,
    dispatcher: Dispatcher,
    notifications: notifications::NotificationDispatcher,
    scheduler: Scheduler,
    failures: usize,
}

impl Trial {
    fn begin(fault: Fault) -> Self {
        let fixture = Fixture::with_clock(Clock::test(Some(BEGIN.parse().unwrap())));
        fixture.user("ann");
        let (dispatcher, notifications) =
            (Dispatcher::new(8), notifications::NotificationDispatcher::new(8));
        let webhook_client =
            RecordingClient::with([500, 503, 200, 200, 200, 200, 200].map(long_answer));
        let scheduler = Scheduler::start(&fixture.app).unwrap();
        let trial =
            Self { fixture, webhook_client, dispatcher, notifications, scheduler, failures: 0 };
        match fault {
            Fault::Nothing => {}
            Fault::Commit(number) => trial.fail_commit(number),
            Fault::Pages(pages) => trial.limit_growth(pages),
        }
        trial
    }

    fn fail_commit(&self, number: usize) {
        let commits = AtomicUsize::new(0);
        // The commit that installs the hook is the first to call it.
        let refuses = move || commits.fetch_add(1, Ordering::SeqCst) == number;
        self.fixture.app.store.write(move |tx| Ok(tx.commit_hook(Some(refuses))?)).wait().unwrap();
    }

    fn limit_growth(&self, pages: usize) {
        let limit = self.fixture.app.store.write(move |tx| {
            let count: usize = tx
                .query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))?
                .try_into()
                .unwrap();
            let limit = format!("PRAGMA max_page_count = {}", count + pages);
            Ok(tx.query_row(&limit, [], |row| row.get::<_, i64>(0))?)
        });
        limit.wait().unwrap();
    }

    /// Repeats a write until it is stored.
    fn insist<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T>) -> T {
        loop {
            match attempt(self) {
                Ok(done) => return done,
                Err(Error::Storage(_)) => {
                    self.failures += 1;
                    assert!(self.failures < 3, "the disk fails once and then recovers");
                    self.limit_growth(10_000);
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn create(&mut self, number: u32, change: impl Fn(&mut CueFields) + Send + Clone + 'static) {
        self.insist(|trial| {
            let (now, change) = (trial.fixture.now(), change.clone());
            let stored = trial.fixture.app.store.write(move |tx| {
                let retry = RetryPolicy {
                    max_attempts: 2,
                    backoff_minutes: vec![1.0],
                    backoff_seconds: None,
                };
                let mut fields = CueFields { retry, ..hourly_worker_cue("n") };
                change(&mut fields);
                let request = CueRequest { fields, ..CueRequest::default() };
                let cue = request.into_cue(format!("cue_{number:012}"), UserKey::new(1), now)?;
                let payload = Payload::from(json!({"text": "x".repeat(3_000)}));
                cues::insert(tx, cue, Some(&payload))
            });
            stored.wait()
        });
    }

    /// A channel that is told of the failure, reminded of it, and told of the recovery.
    fn create_channel(&mut self) {
        self.insist(|trial| {
            let mut settings = Settings::default();
            settings.set("url", Some("http://127.0.0.1:1/".to_owned()));
            let new = ChannelFields {
                channel_type: ChannelType::Webhook,
                name: "n".to_owned(),
                settings,
                events: ChannelEvents::default(),
                tags: Tags::default(),
                quiet: None,
                repeat: Repeat::First,
                // It falls due while the cue is failing.
                remind_after_seconds: 900,
            };
            service::channels::create(&trial.fixture.app, UserKey::new(1), new)
                .and_then(Pending::wait)
        });
    }

    /// Advances the clock and does everything that becomes due.
    fn pass(&mut self, seconds: i64) {
        self.fixture.advance(seconds);
        self.insist(|trial| trial.scheduler.run_once(&trial.fixture.app));
        self.insist(|trial| promote_batch(&trial.fixture.app));
        self.insist(|trial| {
            reaper::release_expired_claims(&trial.fixture.app, trial.fixture.now())
        });
        self.deliver();
        self.send_notifications();
    }

    fn deliver(&mut self) {
        let mut returned = Vec::new();
        loop {
            let claimed = self.insist(|trial| {
                trial.dispatcher.run_once(
                    &trial.fixture.app,
                    std::mem::take(&mut returned),
                    DispatcherMode::Running,
                )
            });
            if claimed.is_empty() && self.dispatcher.unfinished() == 0 {
                return;
            }
            let fixture = &self.fixture;
            returned = claimed
                .into_iter()
                .map(|claimed| {
                    let loaded = fixture
                        .app
                        .store
                        .read_blocking(|read| delivery_queue::load_request(read, claimed));
                    deliver(&self.webhook_client, loaded.unwrap(), || Some(fixture.now())).unwrap()
                })
                .collect();
        }
    }

    fn send_notifications(&mut self) {
        let mut finished = Vec::new();
        loop {
            let posts = self.insist(|trial| {
                trial.notifications.run_once(
                    &trial.fixture.app,
                    std::mem::take(&mut finished),
                    DispatcherMode::Running,
                )
            });
            if posts.is_empty() && self.notifications.unfinished() == 0 {
                return;
            }
            let now = self.fixture.now();
            let route = &self.fixture.app.config.mail;
            let send_one = |notification: &Notification| {
                let client = &self.webhook_client;
                let sent =
                    notifications::send(client, route, "http://cued", true, notification, now);
                notifications::judge(notification, &sent, now).0
            };
            finished = posts.iter().map(send_one).collect();
        }
    }

    fn work(&mut self, reports: bool) {
        let claimed = self.insist(|trial| {
            claim_next(&trial.fixture.app, UserKey::new(1), None, "w".to_owned()).wait()
        });
        if reports {
            // The failed write was not recorded, so the repetition is not a duplicate.
            self.insist(|trial| {
                report(
                    &trial.fixture.app,
                    UserKey::new(1),
                    claimed.id,
                    OutcomeReport { success: true, ..OutcomeReport::default() },
                )
                .wait()
            });
        }
    }

    /// The contents of the file, except random ids.
    fn dump(&self) -> Vec<String> {
        let file = rusqlite::Connection::open(&self.fixture.app.config.db).unwrap();
        assert_sound(&file);
        let mut names = file
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .unwrap();
        let names: Vec<String> =
            names.query_map([], |row| row.get(0)).unwrap().map(|it| it.unwrap()).collect();
        let all = names.iter().flat_map(|table| rows(&file, table));
        // Random in each file.
        all.filter(|line| !line.starts_with("meta name=Text(\"instance\")")).collect()
    }
}

fn rows(file: &rusqlite::Connection, table: &str) -> Vec<String> {
    let mut statement = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut dumped = Vec::new();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let mut line = table.to_owned();
        for (place, column) in columns.iter().enumerate() {
            let value: Value = row.get(place).unwrap();
            let is_notification_id =
                matches!(table, "alerts" | "outbox" | "channels") && column == "id";
            if !(is_notification_id || matches!(value, Value::Blob(_))) {
                line += &format!(" {column}={value:?}");
            }
        }
        dumped.push(line);
    }
    dumped
}

/// A write that makes the file grow.
fn long_answer(http_status: u16) -> std::result::Result<WebhookResponse, DeliveryError> {
    Ok(WebhookResponse {
        http_status,
        retry_after: None,
        headers: Vec::new(),
        body: vec![b'x'; 2_000],
        note: None,
    })
}

/// Two hours: executions that are delivered, retried, failed with notifications, claimed, reported and expired.
fn day(fault: Fault) -> (Vec<String>, usize, usize) {
    let mut trial = Trial::begin(fault);
    trial.create(1, |new| {
        new.transport = Transport::Webhook;
        let url = "http://127.0.0.1:1/".to_owned();
        new.callback = Some(Callback {
            url: url.clone(),
            method: Method::Post,
            headers: Vec::new().into(),
            outcome_from_response: false,
            timeout_seconds: 30,
            flow: None,
        });
        new.on_failure = OnFailure { email: true, webhook: Some(url), pause: false };
    });
    trial.create_channel();
    trial.create(2, |_| ());
    trial.create(3, |new| {
        new.schedule = (&Schedule::once("2026-01-01T11:30:00Z", "UTC").unwrap()).into()
    });
    trial.pass(3_600); // 500
    trial.work(true);
    trial.pass(60); // 503, the last failure, with a notification
    trial.pass(1_800);
    trial.work(false);
    trial.pass(1_800); // 200; the claim goes on
    trial.pass(901); // the claim expires
    let sent = Arc::new(trial.webhook_client.requests()).len();
    (trial.dump(), trial.failures, sent)
}

#[track_caller]
fn ends_alike(fault: impl Fn(usize) -> Fault) -> usize {
    let (expected, _, sent) = day(Fault::Nothing);
    for number in 1.. {
        let (end, failures, requests) = day(fault(number));
        for (line, wanted) in end.iter().zip(&expected) {
            assert_eq!(line, wanted, "{:?}", fault(number));
        }
        assert_eq!(end.len(), expected.len(), "{:?}", fault(number));
        assert_eq!(requests, sent, "{:?}: each attempt was made once", fault(number));
        if failures == 0 {
            return number;
        }
    }
    unreachable!()
}

#[test]
fn any_failing_commit_leads_to_the_same_final_state() {
    let commits = ends_alike(Fault::Commit);
    assert!(commits > 15, "only {commits}");
}

#[test]
fn a_disk_full_at_any_page_leads_to_the_same_final_state() {
    let pages = ends_alike(Fault::Pages);
    assert!(pages > 5, "only {pages}");
}
