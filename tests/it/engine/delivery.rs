//! Deliveries of webhooks, and their failures.

use std::sync::mpsc::channel;

use cued::domain::account::user::ACCOUNT_DISABLED;
use cued::domain::row_keys::{ExecutionKey, UserKey};
use cued::engine::delivery::dispatcher::{
    DeliveryService, Dispatcher, DispatcherMode, promote_batch, requeue_interrupted,
};
use cued::engine::webhook_client::{DeliveryError, WebhookClient, WebhookRequest, WebhookResponse};
use cued::error::Error;
use cued::store::maintenance::retention;

use crate::support::delivery_fixture::{at, response};
use crate::support::*;

const URL: &str = "https://example.com/hook";

fn due(fixture: &DeliveryFixture, id: cued::domain::ids::ExecutionId) -> Option<i64> {
    fixture.field(
        id,
        "due_at - (SELECT last_attempt_at FROM executions AS same WHERE same.key = executions.key)",
    )
}

#[test]
fn a_missing_payload_is_sent_as_an_empty_object_and_get_has_no_body() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let webhook_client = RecordingClient::default();
    fixture.due(cue);
    fixture.deliver(&webhook_client);
    fixture.sql("UPDATE cues SET callback_method = 'GET'");
    fixture.due(cue);
    fixture.deliver(&webhook_client);
    let bodies: Vec<_> =
        webhook_client.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [Some(b"{}".to_vec().into()), None]);
}

#[test]
fn a_success_after_failures_leaves_no_error() {
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    let timeout = DeliveryError::Timeout { within: Duration::from_secs(30), status: None };
    let webhook_client = RecordingClient::with([Err(timeout), response(200)]);
    fixture.deliver(&webhook_client);
    assert_eq!(fixture.field::<String>(id, "error_message"), "no response within 30 s");
    assert_eq!(fixture.field::<Option<i64>>(id, "http_status"), None);
    let started: i64 = fixture.field(id, "started_at");
    fixture.advance(60);
    promote_batch(&fixture.app).unwrap();
    fixture.deliver(&webhook_client);
    assert_eq!(fixture.state(id), ("success".to_owned(), 2));
    assert_eq!(fixture.field::<Option<String>>(id, "error_message"), None);
    assert_eq!(fixture.field::<i64>(id, "started_at"), started);
}

#[test]
fn retry_after_applies_when_it_is_longer_than_the_backoff() {
    for (status, wish, seconds) in
        [(429, "3600", 3600), (503, "7", 60), (500, "3600", 60), (429, "999999", 86_400)]
    {
        let fixture = DeliveryFixture::new(8);
        let id = fixture.due(fixture.webhook_cue(URL));
        let receipt = WebhookResponse {
            http_status: status,
            retry_after: Some(wish.to_owned()),
            headers: Vec::new(),
            body: Vec::new(),
            note: None,
        };
        fixture.deliver(&RecordingClient::with([Ok(receipt)]));
        assert_eq!(due(&fixture, id), Some(seconds * 1000), "{status} {wish}");
    }
}

#[test]
fn fractional_backoffs_are_kept_and_410_is_not_retried() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET backoff_minutes = '[0.05]'");
    let id = fixture.due(cue);
    fixture.deliver(&RecordingClient::with([response(500)]));
    assert_eq!(due(&fixture, id), Some(3_000));

    let id = fixture.due(cue);
    fixture.deliver(&RecordingClient::with([response(410)]));
    assert_eq!(fixture.state(id), ("failed".to_owned(), 1));

    fixture.sql("UPDATE cues SET max_attempts = 1");
    let id = fixture.due(cue);
    fixture.deliver(&RecordingClient::with([response(500)]));
    assert_eq!(fixture.state(id), ("failed".to_owned(), 1));
}

#[test]
fn a_panic_of_the_webhook_client_is_a_failed_attempt() {
    struct Panics;
    impl WebhookClient for Panics {
        fn send(&self, _: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
            panic!("on purpose")
        }
    }
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    fixture.deliver(&Panics);
    assert_eq!(fixture.state(id), ("retrying".to_owned(), 1));
}

#[test]
fn a_once_cue_ends_with_its_only_execution() {
    for (status, ends_as) in [(200, "completed"), (410, "failed")] {
        let fixture = DeliveryFixture::new(8);
        let cue = fixture.webhook_cue(URL);
        let now = fixture.app.clock.now().as_millisecond();
        fixture.sql(&format!("UPDATE cues SET cron = NULL, at = {now}, next_run = NULL"));
        let fired = fixture.due(cue);
        fixture.sql("UPDATE executions SET triggered_by = 'manual_fire'");
        fixture.deliver(&RecordingClient::with([response(status)]));
        assert_eq!(cue_status(&fixture), "active", "a run by hand says nothing about it");
        assert!(fixture.field::<Option<String>>(fired, "queue_name").is_none());
        fixture.due(cue);
        fixture.deliver(&RecordingClient::with([response(status)]));
        assert_eq!(cue_status(&fixture), ends_as);
    }
}

#[test]
fn on_failure_pauses_a_recurring_cue_only_after_its_last_attempt() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET on_failure = '{\"email\":true,\"webhook\":null,\"pause\":true}'");
    fixture.due(cue);
    fixture.deliver(&RecordingClient::with([response(500)]));
    assert_eq!(cue_status(&fixture), "active");
    fixture.due(cue);
    fixture.deliver(&RecordingClient::with([response(410)]));
    assert_eq!(cue_status(&fixture), "paused");
}

#[test]
fn a_later_execution_uses_the_callback_at_its_send_time() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let id = fixture.due_at(cue, at("2026-01-01T01:00:00Z"));
    let webhook_client = RecordingClient::default();
    assert_eq!(fixture.deliver(&webhook_client), 0);
    fixture.sql("UPDATE cues SET callback_url = 'https://example.org/', destination_hash = 77");
    fixture.advance(3600);
    assert_eq!(promote_batch(&fixture.app).unwrap(), 1);
    assert_eq!(fixture.field::<i64>(id, "destination_hash"), 77);
    assert_eq!(fixture.deliver(&webhook_client), 1);
    assert_eq!(webhook_client.requests()[0].url.expose(), "https://example.org/");
}

#[test]
fn a_worker_execution_becomes_claimable_and_is_never_sent() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture
        .sql("UPDATE cues SET transport = 'worker', destination_hash = NULL, callback_url = NULL");
    let id = fixture.due_at(cue, at("2026-01-01T00:00:05Z"));
    fixture.advance(5);
    // The writer notifies after it has returned the result and before the next write.
    let before = || {
        fixture.write(|_| ());
        [fixture.app.notifiers.claim.generation(), fixture.app.notifiers.send.generation()]
    };
    let [claim, send] = before();
    assert_eq!(promote_batch(&fixture.app).unwrap(), 1);
    assert_eq!(before(), [claim + 1, send]);
    assert_eq!(fixture.field::<String>(id, "queue_name"), "claim");
    assert_eq!(fixture.deliver(&RecordingClient::default()), 0);
}

fn cue_status(fixture: &DeliveryFixture) -> String {
    fixture.write(|tx| tx.query_row("SELECT status FROM cues", [], |row| row.get(0)).unwrap())
}

#[test]
fn an_interrupted_delivery_repeats_with_the_same_attempt_number() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let (first, second) = (fixture.due(cue), fixture.due(cue));
    let key: i64 = fixture.field(second, "key");
    fixture.sql(&format!("UPDATE executions SET attempts = 2, started_at = 5 WHERE key = {key}"));
    let claimed = fixture.claim_deliveries(&mut Dispatcher::new(64));
    assert_eq!(claimed.len(), 2);
    assert_eq!(fixture.state(first), ("delivering".to_owned(), 1));
    // Never two attempts at once.
    assert!(fixture.claim_deliveries(&mut Dispatcher::new(64)).is_empty());

    let fixture = fixture.restart();
    assert_eq!(requeue_interrupted(&fixture.app).unwrap(), 2);
    assert_eq!(fixture.state(first), ("pending".to_owned(), 0));
    assert_eq!(fixture.field::<Option<i64>>(first, "started_at"), None);
    assert_eq!(fixture.state(second), ("retrying".to_owned(), 2));
    assert_eq!(fixture.field::<Option<i64>>(second, "started_at"), Some(5));
    let webhook_client = RecordingClient::default();
    assert_eq!(fixture.deliver(&webhook_client), 2);
    let numbers = [0, 1].map(|request| webhook_client.header(request, "X-CueAPI-Attempt").unwrap());
    assert_eq!(numbers, ["1", "3"]);
    assert_eq!(fixture.state(second), ("success".to_owned(), 3));
}

#[test]
fn recovery_keeps_claims_of_workers() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture
        .sql("UPDATE cues SET transport = 'worker', destination_hash = NULL, callback_url = NULL");
    let id = fixture.due(cue);
    fixture.sql(
        "UPDATE executions SET status = 'delivering', queue_name = NULL, attempts = 1, last_attempt_at = 1",
    );
    assert_eq!(requeue_interrupted(&fixture.app).unwrap(), 0);
    assert_eq!(fixture.state(id), ("delivering".to_owned(), 1));
}

#[test]
fn the_result_of_a_deleted_cue_is_dropped_even_if_its_row_id_is_reused() {
    let fixture = DeliveryFixture::new(8);
    fixture.due(fixture.webhook_cue(URL));
    let mut dispatcher = Dispatcher::new(64);
    let webhook_client = RecordingClient::with([response(500)]);
    let returned = fixture.attempt(&webhook_client, &fixture.claim_deliveries(&mut dispatcher)[0]);
    assert!(
        fixture.write(|tx| retention::delete_cue(tx, UserKey::new(1), "cue_100000000000").unwrap())
    );
    let other = fixture.due(fixture.webhook_cue("https://example.org/"));
    // SQLite gives the key again.
    assert_eq!(fixture.field::<ExecutionKey>(other, "key"), returned.record.attempt_ref.key);
    let mut elsewhere = Dispatcher::new(64);
    assert_eq!(fixture.claim_deliveries(&mut elsewhere).len(), 1);

    dispatcher.run_once(&fixture.app, vec![returned], DispatcherMode::Draining).unwrap();
    assert_eq!(fixture.state(other), ("delivering".to_owned(), 1));
    // Counted, because the attempt has ended.
    assert_eq!(fixture.app.engine_stats.delivered.get(), 1);
    assert_eq!(dispatcher.unfinished(), 0);
}

#[test]
fn an_unstored_result_is_kept_and_nothing_is_claimed_meanwhile() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let id = fixture.due(cue);
    let mut dispatcher = Dispatcher::new(64);
    let returned =
        fixture.attempt(&RecordingClient::default(), &fixture.claim_deliveries(&mut dispatcher)[0]);
    let later = fixture.due(cue);

    let fails = fixture.refuse_commits();
    let refused = dispatcher.run_once(&fixture.app, vec![returned], DispatcherMode::Running);
    assert!(matches!(refused, Err(Error::Storage(_))));
    assert!(dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).is_err());
    assert_eq!((dispatcher.unfinished(), fixture.app.engine_stats.delivered.get()), (1, 0));

    fails.store(false, Ordering::SeqCst);
    assert_eq!(fixture.state(later), ("pending".to_owned(), 0), "nothing was claimed");
    let claimed = dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(fixture.state(id), ("success".to_owned(), 1));
    assert_eq!(fixture.app.engine_stats.delivered.get(), 1);
}

#[test]
fn an_unrecordable_result_does_not_block_the_others() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let ids = [fixture.due(cue), fixture.due(cue), fixture.due(cue)];
    let poisoned: i64 = fixture.field(ids[1], "key");
    fixture.sql(&format!(
        "CREATE TRIGGER poison BEFORE UPDATE ON executions WHEN new.key = {poisoned} AND new.status = 'success'
         BEGIN SELECT raise(ABORT, 'poison'); END"
    ));
    let mut dispatcher = Dispatcher::new(64);
    let claimed = fixture.claim_deliveries(&mut dispatcher);
    let returned = claimed
        .iter()
        .map(|delivery| fixture.attempt(&RecordingClient::default(), delivery))
        .collect();
    assert!(matches!(
        dispatcher.run_once(&fixture.app, returned, DispatcherMode::Running),
        Err(Error::Fault(_))
    ));
    assert_eq!(dispatcher.unfinished(), 0);
    assert_eq!(ids.map(|id| fixture.state(id).0), ["success", "delivering", "success"]);
}

#[test]
fn an_unreadable_row_fails_alone() {
    let fixture = DeliveryFixture::new(8);
    let (broken, sound) = (fixture.webhook_cue(URL), fixture.webhook_cue(URL));
    fixture.sql("UPDATE cues SET callback_headers = 'nonsense' WHERE key = 1");
    let (broken, sound) = (fixture.due(broken), fixture.due(sound));
    assert_eq!(fixture.deliver(&RecordingClient::default()), 2);
    assert_eq!(fixture.state(broken).0, "failed");
    assert!(
        fixture.field::<String>(broken, "error_message").starts_with("the request cannot be built")
    );
    assert_eq!(fixture.state(sound).0, "success");
}

#[test]
fn a_pass_without_work_waits_for_no_write() {
    let fixture = DeliveryFixture::new(8);
    let (release, hold) = channel::<()>();
    let held = fixture.app.store.write(move |_| Ok(hold.recv().is_ok()));
    let (done, ended) = channel();
    let app = Arc::clone(&fixture.app);
    std::thread::spawn(move || {
        done.send(
            Dispatcher::new(8).run_once(&app, Vec::new(), DispatcherMode::Running).unwrap().len(),
        )
    });
    let claimed = ended.recv_timeout(Duration::from_secs(10));
    release.send(()).unwrap();
    assert!(held.wait().unwrap());
    assert_eq!(claimed, Ok(0));
}

#[test]
fn a_request_that_cannot_be_read_is_tried_again() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET max_attempts = 1");
    let id = fixture.due(cue);
    // The claim does not read this column.
    fixture.sql("ALTER TABLE cues RENAME COLUMN callback_method TO unreadable");
    let webhook_client = Arc::new(RecordingClient::default());
    let shared = Arc::clone(&webhook_client) as Arc<dyn WebhookClient>;
    let (_, delivery) = DeliveryService::start(&fixture.app, shared).unwrap();
    let state = |expected: (&str, i64)| {
        until_true("the attempt ends", || fixture.state(id) == (expected.0.to_owned(), expected.1));
    };
    state(("retrying", 1));
    assert!(fixture.field::<String>(id, "error_message").starts_with("internal error in cued"));
    assert!(webhook_client.requests().is_empty());

    fixture.sql("ALTER TABLE cues RENAME COLUMN unreadable TO callback_method");
    fixture.advance(5);
    promote_batch(&fixture.app).unwrap();
    state(("success", 2));
    delivery.stop(&fixture.app.notifiers.send);
    assert_eq!(webhook_client.header(0, "X-CueAPI-Attempt").unwrap(), "2");
}

#[test]
fn what_changes_after_the_claim_applies_to_the_attempt() {
    let change = |sql: &str| {
        let fixture = DeliveryFixture::new(8);
        let id = fixture.due(fixture.webhook_cue(URL));
        let mut dispatcher = Dispatcher::new(8);
        let claimed = fixture.claim_deliveries(&mut dispatcher);
        fixture.sql(sql);
        let webhook_client = RecordingClient::default();
        let ended = fixture.attempt(&webhook_client, &claimed[0]);
        dispatcher.run_once(&fixture.app, vec![ended], DispatcherMode::Draining).unwrap();
        assert_eq!(dispatcher.unfinished(), 0);
        (fixture, id, webhook_client.requests().len())
    };
    let (fixture, id, sent) = change("UPDATE users SET disabled_at = 1");
    assert_eq!((fixture.state(id), sent), (("failed".to_owned(), 1), 0));
    assert!(fixture.field::<String>(id, "error_message").contains(ACCOUNT_DISABLED));
    let (fixture, id, sent) = change("DELETE FROM cues");
    assert_eq!((fixture.state(id), sent), (("failed".to_owned(), 1), 0));
    // Its row is gone, and another execution may have the key.
    let (_, _, sent) = change("UPDATE executions SET id = zeroblob(16)");
    assert_eq!(sent, 0);
}
