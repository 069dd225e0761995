//! Fair shares of the delivery: the order of claims, herds, receivers that hang, large bodies, stop.

use std::collections::HashMap;
use std::sync::Condvar;

use cued::domain::ids::ExecutionId;
use cued::domain::row_keys::UserKey;
use cued::engine::EngineThread;
use cued::engine::delivery::dispatcher::{
    DeliveryService, Dispatcher, DispatcherMode, requeue_interrupted,
};
use cued::engine::delivery::threads::MAX_BYTES;
use cued::engine::webhook_client::{DeliveryError, WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::db::counters;
use rusqlite::Connection;

use crate::support::delivery_fixture::response;
use crate::support::*;

const HERD: &str = "https://herd.example/";

/// Receivers that answer at once, but for those whose name begins with `hang`: they answer when they are opened. The
/// host of the herd answers the first `quick` requests, then it is silent too, or lets the others time out.
struct Receivers {
    quick: usize,
    times_out: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_open: bool,
    /// The requests without an answer yet, their most, and the bytes of their bodies.
    held: usize,
    most_held: usize,
    held_bytes: usize,
    sent: HashMap<String, usize>,
    /// The executions with their attempts, in the order of sending.
    attempts: Vec<(String, String)>,
}

impl Receivers {
    fn start(
        fixture: &DeliveryFixture,
        quick: usize,
        times_out: bool,
    ) -> (Arc<Self>, EngineThread) {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let receivers = Arc::new(Self { quick, times_out, state, changed });
        let client = Arc::clone(&receivers) as Arc<dyn WebhookClient>;
        (receivers, DeliveryService::start(&fixture.app, client).unwrap().1)
    }

    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock().unwrap())
    }

    fn sent(&self, url: &str) -> usize {
        self.read(|state| state.sent.get(url).copied().unwrap_or(0))
    }

    fn until_held(&self, count: usize) {
        until("it hangs", || (self.read(|state| state.held) >= count).then_some(()));
    }
}

impl WebhookClient for Receivers {
    fn send(&self, request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        let sent = |name: &str| header(request.headers.expose(), name).unwrap().to_owned();
        let bytes = request.body.as_ref().map_or(0, |body| body.expose().len());
        let mut state = self.state.lock().unwrap();
        state.attempts.push((sent("X-CueAPI-Execution-Id"), sent("X-CueAPI-Attempt")));
        let url = request.url.expose();
        let of_host = state.sent.entry(url.clone()).or_default();
        *of_host += 1;
        let is_silent = url.contains("//hang") || (url == HERD && *of_host > self.quick);
        if is_silent && !state.is_open {
            if self.times_out {
                return Err(DeliveryError::Timeout { within: Duration::ZERO, status: None });
            }
            (state.held, state.held_bytes) = (state.held + 1, state.held_bytes + bytes);
            state.most_held = state.most_held.max(state.held);
            let mut state = self.changed.wait_while(state, |state| !state.is_open).unwrap();
            (state.held, state.held_bytes) = (state.held - 1, state.held_bytes - bytes);
        }
        response(200)
    }
}

/// Executions of one cue.
fn herd(fixture: &DeliveryFixture, user_key: UserKey, url: &str, count: usize) -> Vec<ExecutionId> {
    let cue = fixture.webhook_cue_of(user_key, url);
    (0..count).map(|_| fixture.due(cue)).collect()
}

fn count(fixture: &DeliveryFixture, status: &str) -> usize {
    let sql = format!("SELECT count(*) FROM executions WHERE status = '{status}'");
    let count: u32 = fixture.write(move |tx| tx.query_row(&sql, [], |row| row.get(0)).unwrap());
    count as usize
}

fn until_all(fixture: &DeliveryFixture, status: &'static str, all: usize) {
    until(status, || (count(fixture, status) == all).then_some(()));
}

fn check_counters(fixture: &DeliveryFixture) {
    let file = Connection::open(&fixture.app.config.db).unwrap();
    // The fixture inserts cues without counting them.
    let of_queues =
        counters::discrepancies(&file).unwrap().into_iter().filter(|it| !it.contains("of user"));
    assert_eq!(of_queues.collect::<Vec<_>>(), Vec::<String>::new());
}

/// The URLs of all requests, in the order of passes that claim and send.
fn delivered(fixture: &DeliveryFixture) -> Vec<String> {
    let client = RecordingClient::default();
    fixture.deliver(&client);
    client.requests().into_iter().map(|request| request.url.into_exposed()).collect()
}

#[test]
fn accounts_take_turns_and_destinations_take_turns_within_an_account_oldest_first() {
    let fixture = DeliveryFixture::new(64);
    let cues = ["a", "b", "c"].map(|host| fixture.webhook_cue(&format!("https://{host}.example/")));
    let other = fixture.webhook_cue_of(UserKey::new(2), "https://d.example/");
    fixture.sql("UPDATE cues SET destination_hash = key * 10");
    for cue in [cues[0], cues[0], cues[0], cues[1], cues[2], cues[2], other, other] {
        fixture.due(cue);
    }
    let claimed = fixture.claim_deliveries(&mut Dispatcher::new(64));
    let order: Vec<_> = claimed
        .iter()
        .map(|it| (it.attempt_ref.destination, it.attempt_ref.key.number()))
        .collect();
    assert_eq!(order, [(10, 1), (40, 7), (20, 4), (40, 8), (30, 5), (10, 2), (30, 6), (10, 3)]);
}

#[test]
fn the_next_pass_continues_after_the_last_destination() {
    let fixture = DeliveryFixture::new(1);
    let cues = ["a", "b"].map(|host| fixture.webhook_cue(&format!("https://{host}.example/")));
    fixture.sql("UPDATE cues SET destination_hash = key * 10");
    for cue in [cues[0], cues[0], cues[1]] {
        fixture.due(cue);
    }
    assert_eq!(delivered(&fixture), ["a", "b", "a"].map(|host| format!("https://{host}.example/")));
}

#[test]
fn one_account_with_many_executions_and_hosts_delays_no_other() {
    let fixture = DeliveryFixture::new(8);
    for host in 0..20 {
        herd(&fixture, UserKey::new(2), &format!("https://{host}.example/"), 50);
    }
    herd(&fixture, UserKey::new(3), "https://victim.example/", 5);
    let last = delivered(&fixture).iter().rposition(|url| url.contains("victim")).unwrap();
    assert!(last < 120, "{last}");
}

#[test]
fn runs_that_fall_due_now_are_sent_before_those_of_an_outage() {
    let fixture = DeliveryFixture::new(8);
    let cues: Vec<_> =
        (0..30).map(|host| fixture.webhook_cue(&format!("https://{host}.example/"))).collect();
    fixture.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
         INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, destination_hash, scheduled_for,
             triggered_by, attempts, created_at, updated_at, is_catch_up)
         SELECT randomblob(16), key, user_key, 'webhook', 'pending', 'send', destination_hash, 0, 'schedule', 0, 0, 0, 1
         FROM cues, n",
    );
    // One at the host of a backlog, one at a new host.
    let now = [fixture.due(cues[29]), fixture.due(fixture.webhook_cue("https://new.example/"))];
    let (client, mut dispatcher) = (RecordingClient::default(), Dispatcher::new(8));
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    let finished = claimed.iter().map(|claimed| fixture.attempt(&client, claimed)).collect();
    dispatcher.run_once(&fixture.app, finished, DispatcherMode::Draining).unwrap();
    for id in now {
        assert_eq!(fixture.state(id), ("success".to_owned(), 1));
    }
}

#[test]
fn a_herd_arrives_completely_and_once_in_the_order_of_its_creation() {
    for threads in [1, 64] {
        let fixture = DeliveryFixture::new(threads);
        let executions = herd(&fixture, UserKey::new(1), HERD, 1_000);
        let (receivers, delivery) = Receivers::start(&fixture, usize::MAX, false);
        until_all(&fixture, "success", executions.len());
        delivery.stop(&fixture.app.notifiers.send);
        let mut attempts = receivers.read(|state| state.attempts.clone());
        if threads > 1 {
            attempts.sort_unstable();
        }
        let once = executions.iter().map(|id| (id.to_string(), "1".to_owned()));
        assert!(attempts.into_iter().eq(once), "{threads} threads");
        check_counters(&fixture);
    }
}

#[test]
fn a_hanging_receiver_does_not_delay_another() {
    let fixture = DeliveryFixture::new(16);
    herd(&fixture, UserKey::new(1), "https://hang.example/", 100);
    let (receivers, delivery) = Receivers::start(&fixture, 0, false);
    receivers.until_held(2);
    herd(&fixture, UserKey::new(1), "https://quick.example/", 200);
    until_all(&fixture, "success", 200);
    assert_eq!(receivers.sent("https://hang.example/"), 2, "an eighth of the threads");
    receivers.open();
    until_all(&fixture, "success", 300);
    delivery.stop(&fixture.app.notifiers.send);
}

#[test]
fn a_host_that_begins_to_hang_amid_a_herd_delays_no_other() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, UserKey::new(1), HERD, 1_000);
    let (receivers, delivery) = Receivers::start(&fixture, 300, false);
    receivers.until_held(1);
    for user_key in [1, 2].map(UserKey::new) {
        herd(&fixture, user_key, "https://quick.example/", 100);
    }
    until_all(&fixture, "success", 300 + 200);
    assert_eq!(receivers.read(|state| state.most_held), 8);
    assert!(count(&fixture, "pending") > 500, "few others are claimed");
    receivers.open();
    until_all(&fixture, "success", executions.len() + 200);
    delivery.stop(&fixture.app.notifiers.send);
    assert_eq!(receivers.read(|state| state.attempts.len()), executions.len() + 200, "each once");
    check_counters(&fixture);
}

#[test]
fn a_host_that_times_out_gets_one_attempt_at_a_time_until_it_answers() {
    let fixture = DeliveryFixture::new(64);
    let mut dispatcher = Dispatcher::new(64);
    herd(&fixture, UserKey::new(1), HERD, 100);
    let timeout = || Err(DeliveryError::Timeout { within: Duration::from_secs(30), status: None });
    let mut pass = |answers: &dyn Fn() -> Result<WebhookResponse, DeliveryError>| {
        let claimed = fixture.claim_deliveries(&mut dispatcher);
        let client = RecordingClient::with(claimed.iter().map(|_| answers()));
        let finished = claimed.iter().map(|claimed| fixture.attempt(&client, claimed)).collect();
        dispatcher.run_once(&fixture.app, finished, DispatcherMode::Draining).unwrap();
        claimed.len()
    };
    assert_eq!((pass(&timeout), pass(&timeout), pass(&|| response(200))), (8, 1, 1));
    assert!(pass(&|| response(200)) >= 8);
}

#[test]
fn a_herd_whose_host_begins_to_time_out_is_tried_once_and_repeated_later() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, UserKey::new(1), HERD, 400);
    let (receivers, delivery) = Receivers::start(&fixture, 200, true);
    until_all(&fixture, "retrying", 200);
    delivery.stop(&fixture.app.notifiers.send);
    assert_eq!(receivers.read(|state| state.attempts.len()), executions.len());
    check_counters(&fixture);
}

/// A new account gets its deliveries although `accounts` others have `hosts` hosts each that do not answer.
fn deliver_beside(accounts: i64, hosts: usize) {
    let fixture = DeliveryFixture::new(64);
    for user_key in (2..2 + accounts).map(UserKey::new) {
        for host in 0..hosts {
            herd(&fixture, user_key, &format!("https://hang{user_key}-{host}.example/"), 2);
        }
    }
    let (receivers, delivery) = Receivers::start(&fixture, 0, false);
    // An account has at most half of the threads, and those that do not answer leave a quarter.
    let all = usize::try_from(accounts).unwrap() * hosts * 2;
    receivers.until_held(all.min(20));
    let cue = fixture.webhook_cue("https://quick.example/");
    for delivered in 1..=20 {
        fixture.due(cue);
        until_all(&fixture, "success", delivered);
    }
    let most_held = receivers.read(|state| state.most_held);
    assert!(most_held <= if accounts == 1 { 32 } else { 48 }, "{most_held}");
    receivers.open();
    delivery.stop(&fixture.app.notifiers.send);
}

#[test]
fn accounts_whose_hosts_hang_delay_no_other_account() {
    for (accounts, hosts) in [(1, 7), (1, 100), (7, 10), (4, 100)] {
        deliver_beside(accounts, hosts);
    }
}

#[test]
fn large_payloads_under_way_are_bounded_and_hold_up_no_small_one() {
    let fixture = DeliveryFixture::new(64);
    for user_key in (2..10).map(UserKey::new) {
        let cue = fixture.webhook_cue_of(user_key, &format!("https://hang{user_key}.example/"));
        fixture.sql(&format!(
            "INSERT INTO payloads (cue_key, is_single_use, body) VALUES ({cue}, 0, hex(zeroblob(1500000)));
             UPDATE cues SET payload_key = last_insert_rowid() WHERE key = {cue}"
        ));
        fixture.due_times(cue, 4);
    }
    let (receivers, delivery) = Receivers::start(&fixture, 0, false);
    receivers.until_held(4);
    herd(&fixture, UserKey::new(1), "https://small.example/", 100);
    until_all(&fixture, "success", 100);
    let (held, bytes) = receivers.read(|state| (state.held, state.held_bytes));
    assert!(held >= 4 && bytes <= MAX_BYTES, "{held} bodies of {bytes} bytes");
    receivers.open();
    until_all(&fixture, "success", 100 + 8 * 4);
    delivery.stop(&fixture.app.notifiers.send);
}

#[test]
fn claims_that_are_not_committed_take_nothing_from_the_next_ones() {
    let fixture = DeliveryFixture::new(64);
    let executions = herd(&fixture, UserKey::new(1), HERD, 8);
    let mut dispatcher = Dispatcher::new(64);
    let fails = fixture.refuse_commits();
    for _ in 0..3 {
        assert!(dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).is_err());
        assert_eq!(dispatcher.unfinished(), 0);
    }
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    assert_eq!(claimed.iter().map(|it| it.attempt_ref.id).collect::<Vec<_>>(), executions);
}

#[test]
fn a_stop_claims_nothing_more_and_loses_nothing() {
    let fixture = DeliveryFixture::new(16);
    let executions = herd(&fixture, UserKey::new(1), HERD, 500);
    let (receivers, delivery) = Receivers::start(&fixture, 100, false);
    receivers.until_held(1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| delivery.stop(&fixture.app.notifiers.send));
        // The other attempts are still held, and what is due now waits for the next start.
        herd(&fixture, UserKey::new(1), HERD, 400);
        receivers.open();
        stopping.join().unwrap();
    });
    let (all, sent) = (executions.len() + 400, receivers.read(|state| state.attempts.len()));
    assert!(sent < all && count(&fixture, "success") == sent, "{sent}");
    assert_eq!(count(&fixture, "pending"), all - sent, "none is left in between");
    check_counters(&fixture);
    let fixture = fixture.restart();
    assert_eq!(requeue_interrupted(&fixture.app).unwrap(), 0);
    assert_eq!(delivered(&fixture).len(), all - sent);
}
