//! Attempts that are claimed ahead of a free thread: all are made once, and those at a host that begins to hang are given
//! back.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cued::domain::ids::ExecutionId;
use cued::engine::delivery::delivery_service::{DeliveryService, requeue_interrupted};
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode};
use cued::engine::delivery::fair_share::FairShare;
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::db::counters;
use cued::store::executions::queue_changes;
use cued::store::fair_queue::Grant;
use rusqlite::Connection;

use crate::support::client::header;
use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient, response};
use crate::support::random::Random;
use crate::support::server::until;

const URL: &str = "https://herd.example/";

/// How the host of the herd answers after its first requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Not before it is opened.
    Hangs,
    /// Never before it is opened, and its time is over at once.
    TimesOut,
}

/// Counts the requests by execution. The host of the herd answers the first `quick` ones at once.
struct Host {
    quick: usize,
    then: Then,
    state: Mutex<HostState>,
    changed: Condvar,
}

#[derive(Default)]
struct HostState {
    herd: usize,
    held: usize,
    is_open: bool,
    /// The attempt numbers by execution.
    attempts: HashMap<String, Vec<String>>,
}

impl Host {
    fn new(quick: usize, then: Then) -> Arc<Self> {
        Arc::new(Self { quick, then, state: Mutex::default(), changed: Condvar::new() })
    }

    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    /// Requests without an answer yet.
    fn held(&self) -> usize {
        self.state.lock().unwrap().held
    }

    fn attempts(&self, id: ExecutionId) -> Vec<String> {
        self.state.lock().unwrap().attempts.get(&id.to_string()).cloned().unwrap_or_default()
    }
}

impl WebhookClient for Host {
    fn send(&self, request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        let sent = |name: &str| header(&request.headers, name).unwrap().to_owned();
        let mut state = self.state.lock().unwrap();
        let attempts = state.attempts.entry(sent("X-CueAPI-Execution-Id")).or_default();
        attempts.push(sent("X-CueAPI-Attempt"));
        if request.url != URL {
            return response(200);
        }
        state.herd += 1;
        if state.herd <= self.quick || state.is_open {
            return response(200);
        }
        if self.then == Then::TimesOut {
            return Err(DeliveryError::Timeout { within: Duration::ZERO, status: None });
        }
        state.held += 1;
        let mut state = self.changed.wait_while(state, |state| !state.is_open).unwrap();
        state.held -= 1;
        response(200)
    }
}

/// A herd of executions at one host.
fn herd(fixture: &DeliveryFixture, count: usize) -> Vec<ExecutionId> {
    let cue = fixture.webhook_cue(URL);
    (0..count).map(|_| fixture.due(cue)).collect()
}

fn start(fixture: &DeliveryFixture, host: &Arc<Host>) -> DeliveryService {
    DeliveryService::start(&fixture.app, Arc::clone(host) as Arc<dyn WebhookClient>).unwrap()
}

fn count(fixture: &DeliveryFixture, status: &str) -> usize {
    let sql = format!("SELECT count(*) FROM executions WHERE status = '{status}'");
    let count: u32 = fixture.write(move |tx| tx.query_row(&sql, [], |row| row.get(0)).unwrap());
    count as usize
}

fn all_have(fixture: &DeliveryFixture, status: &'static str, all: usize) {
    until(status, || (count(fixture, status) == all).then_some(()));
}

fn check_counters(fixture: &DeliveryFixture) {
    let file = Connection::open(&fixture.app.config.db).unwrap();
    // The fixture inserts cues without counting them.
    let of_queues = counters::discrepancies(&file).unwrap().into_iter().filter(|it| !it.contains("of user"));
    assert_eq!(of_queues.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_herd_at_a_host_that_answers_arrives_completely_and_once() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, 2_000);
    let host = Host::new(usize::MAX, Then::Hangs);
    let delivery = start(&fixture, &host);
    all_have(&fixture, "success", executions.len());
    delivery.stop();
    assert!(executions.iter().all(|id| host.attempts(*id) == ["1"]));
    check_counters(&fixture);
}

#[test]
fn a_herd_is_claimed_ahead_of_the_threads_oldest_first() {
    let fixture = DeliveryFixture::new(16);
    let executions = herd(&fixture, 100);
    let client = RecordingClient::default();
    let mut dispatcher = Dispatcher::new(16);
    let (mut order, mut finished, mut most) = (Vec::new(), Vec::new(), 0);
    loop {
        let claimed = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        if claimed.is_empty() {
            break;
        }
        most = most.max(claimed.len());
        assert_eq!(dispatcher.unfinished(), claimed.len());
        order.extend(claimed.iter().map(|it| it.attempt_ref.id));
        finished = claimed.iter().map(|claimed| fixture.attempt(&client, claimed)).collect();
    }
    assert_eq!(order, executions);
    assert!(most > 8, "{most}: half of the threads, and some ahead");
}

#[test]
fn a_host_that_begins_to_hang_amid_a_herd_gives_its_attempts_back() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, 1_000);
    let same_account = fixture.webhook_cue("https://quick.example/");
    let other_account = fixture.webhook_cue_of(2, "https://quick.example/");
    let host = Host::new(300, Then::Hangs);
    let delivery = start(&fixture, &host);
    until("it hangs", || (host.held() > 0).then_some(()));
    let mut quick = 0;
    until("only attempts that were sent are under way", || {
        quick += 2;
        fixture.due(same_account);
        fixture.due(other_account);
        // The host still hangs: the herd completes nothing.
        all_have(&fixture, "success", 300 + quick);
        (count(&fixture, "delivering") == host.held()).then_some(())
    });
    let waiting = executions.iter().filter(|id| host.attempts(**id).is_empty()).copied();
    let waiting: Vec<_> = waiting.collect();
    assert!(waiting.len() > 600 && host.held() <= 28, "{} and {}", waiting.len(), host.held());
    for id in &waiting {
        assert_eq!(fixture.state(*id), ("pending".to_owned(), 0));
        assert_eq!(fixture.field::<Option<i64>>(*id, "started_at"), None);
    }
    check_counters(&fixture);

    host.open();
    all_have(&fixture, "success", executions.len() + quick);
    delivery.stop();
    assert!(executions.iter().all(|id| host.attempts(*id) == ["1"]));
    check_counters(&fixture);
}

#[test]
fn claimed_executions_of_an_account_whose_keys_are_revoked_are_not_sent() {
    let fixture = DeliveryFixture::new(64);
    let own = herd(&fixture, 3);
    let other = fixture.due(fixture.webhook_cue_of(2, URL));
    let mut dispatcher = Dispatcher::new(64);
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    let (client, now) = (RecordingClient::default(), fixture.now());
    fixture.write(move |tx| queue_changes::fail_delivering(tx, 1, "keys_revoked", now).unwrap());
    let finished = claimed.iter().map(|claimed| fixture.attempt(&client, claimed)).collect();
    assert_eq!(client.requests().len(), 1);
    dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
    assert_eq!(dispatcher.unfinished(), 0);
    assert_eq!(fixture.state(other), ("success".to_owned(), 1));
    for id in own {
        assert_eq!(fixture.state(id), ("failed".to_owned(), 1));
        assert_eq!(fixture.field::<String>(id, "error_message"), "keys_revoked");
    }
    check_counters(&fixture);
}

#[test]
fn attempts_that_time_out_amid_a_herd_give_the_others_back() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, 400);
    let host = Host::new(200, Then::TimesOut);
    let delivery = start(&fixture, &host);
    // A host that hangs is tried by one attempt at a time, each of which another one follows later.
    all_have(&fixture, "retrying", 200);
    assert!(executions.iter().all(|id| host.attempts(*id) == ["1"]), "each is tried once, given back or not");
    check_counters(&fixture);
    delivery.stop();
}

#[test]
fn a_stop_gives_back_what_has_not_begun() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, 1_000);
    let host = Host::new(300, Then::Hangs);
    let delivery = start(&fixture, &host);
    until("it hangs", || (host.held() > 0).then_some(()));
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| delivery.stop());
        until("only attempts that were sent are under way", || {
            (count(&fixture, "delivering") == host.held()).then_some(())
        });
        host.open();
        stopping.join().unwrap();
    });
    assert_eq!(count(&fixture, "delivering"), 0);
    for id in &executions {
        let state = match host.attempts(*id).len() {
            0 => ("pending".to_owned(), 0),
            _ => ("success".to_owned(), 1),
        };
        assert_eq!(fixture.state(*id), state);
    }
    check_counters(&fixture);
    let fixture = fixture.restart();
    assert_eq!(requeue_interrupted(&fixture.app).unwrap(), 0);
    assert_eq!(fixture.deliver(&RecordingClient::default()), count(&fixture, "success") - host_total(&host));
    assert_eq!(count(&fixture, "success"), executions.len());
}

fn host_total(host: &Host) -> usize {
    host.state.lock().unwrap().herd
}

#[test]
fn an_attempt_that_is_given_back_leaves_the_execution_as_it_was() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let (first, later) = (fixture.due(cue), fixture.due(cue));
    let key: i64 = fixture.field(later, "key");
    fixture.sql(&format!(
        "UPDATE executions SET status = 'retrying', attempts = 2, started_at = 5, last_attempt_at = 7 WHERE key = {key};
         INSERT INTO attempts (execution_key, attempt, is_counted, started_at) VALUES ({key}, 2, 1, 7)"
    ));
    let mut dispatcher = Dispatcher::new(64);
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    assert_eq!(claimed.len(), 2);
    let gone = fixture.due(cue);
    dispatcher.give_back(claimed.clone());
    assert_eq!(dispatcher.unfinished(), 2);
    let fails = fixture.refuse_commits();
    assert!(dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Draining).is_err());
    assert_eq!(dispatcher.unfinished(), 2, "kept until they are back in the queue");
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Draining).unwrap();
    assert_eq!(dispatcher.unfinished(), 0);
    assert_eq!(fixture.state(first), ("pending".to_owned(), 0));
    assert_eq!(fixture.state(later), ("retrying".to_owned(), 2));
    let times =
        |id| -> [Option<i64>; 2] { ["started_at", "last_attempt_at"].map(|it| fixture.field(id, it)) };
    assert_eq!((times(first), times(later)), ([None, None], [Some(5), Some(7)]));
    check_counters(&fixture);

    // One that is no longer under way is not changed.
    dispatcher.give_back(claimed);
    dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Draining).unwrap();
    assert_eq!(fixture.state(later), ("retrying".to_owned(), 2));
    let client = RecordingClient::default();
    assert_eq!(fixture.deliver(&client), 3);
    let numbers = [0, 1, 2].map(|request| client.header(request, "X-CueAPI-Attempt").unwrap());
    assert_eq!(numbers, ["1", "3", "1"]);
    assert_eq!(fixture.state(gone), ("success".to_owned(), 1));
}

#[test]
fn a_large_body_is_not_claimed_ahead() {
    let fixture = DeliveryFixture::new(16);
    let cue = fixture.webhook_cue(URL);
    fixture.sql(&format!(
        "INSERT INTO payloads (cue_key, is_single_use, body) VALUES ({cue}, 0, hex(zeroblob(20000)));
         UPDATE cues SET payload_key = last_insert_rowid() WHERE key = {cue}"
    ));
    fixture.due_times(cue, 60);
    let mut dispatcher = Dispatcher::new(16);
    let mut finished = Vec::new();
    loop {
        let claimed = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        if claimed.is_empty() {
            break;
        }
        assert_eq!(dispatcher.threads_of(&claimed[0]), claimed.len());
        finished =
            claimed.iter().map(|claimed| fixture.attempt(&RecordingClient::default(), claimed)).collect();
    }
    assert_eq!(count(&fixture, "success"), 60);
}

/// Attempts of a destination that are under way.
#[derive(Default)]
struct Claimed(HashMap<(i64, i64), usize>);

#[test]
fn in_any_order_of_events_the_counts_are_those_of_the_attempts_under_way() {
    let mut random = Random::seeded("attempts ahead");
    for threads in [1, 2, 7, 64] {
        let (mut slots, mut claimed) = (FairShare::new(threads), Claimed::default());
        for _ in 0..20_000 {
            let of = (1 + random.index(4) as i64, random.index(5) as i64);
            let (user, destination) = of;
            let under_way = claimed.0.entry(of).or_default();
            match random.index(8) {
                0..=3 => {
                    let grant = slots.grant(user, destination);
                    if grant == Grant::Granted {
                        slots.acquire(user, destination);
                        *under_way += 1;
                    } else if slots.grant_ahead(user, destination, grant) == Grant::Granted {
                        slots.acquire_ahead(user, destination);
                        *under_way += 1;
                    }
                }
                4 => slots.begin_pass(),
                5 => slots.forget_idle(),
                6 if *under_way > 0 && random.index(4) == 0 => {
                    slots.give_back(user, destination);
                    *under_way -= 1;
                }
                _ if *under_way > 0 => {
                    slots.release(user, destination, random.index(20) == 0);
                    slots.count_pace(user, destination, Duration::from_millis(random.below(55)));
                    *under_way -= 1;
                }
                _ => {}
            }
            let all: usize = claimed.0.values().sum();
            assert_eq!(slots.in_use() + slots.ahead(), all);
            assert!(slots.in_use() <= threads && slots.ahead() <= threads * 2);
        }
        for ((user, destination), under_way) in claimed.0 {
            (0..under_way).for_each(|_| slots.give_back(user, destination));
        }
        assert_eq!((slots.in_use(), slots.ahead()), (0, 0));
    }
}
