//! Faults that deliveries survive: crashes, failing disks, unreadable rows, deleted cues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use cued::domain::account::user::ACCOUNT_DISABLED;
use cued::engine::delivery::dispatcher::{
    DeliveryService, Dispatcher, DispatcherMode, promote_batch, requeue_interrupted,
};
use cued::engine::webhook_client::WebhookClient;
use cued::error::Error;
use cued::store::maintenance::cue_deletion;

use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient, response};
use crate::support::server::until;

const URL: &str = "https://example.com/hook";

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
    assert!(fixture.claim_deliveries(&mut Dispatcher::new(64)).is_empty(), "never two attempts at once");

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
    fixture.sql("UPDATE cues SET transport = 'worker', destination_hash = NULL, callback_url = NULL");
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
    assert!(fixture.write(|tx| cue_deletion::delete(tx, 1, "cue_100000000000").unwrap()));
    let other = fixture.due(fixture.webhook_cue("https://example.org/"));
    assert_eq!(
        fixture.field::<i64>(other, "key"),
        returned.record.attempt_ref.key,
        "SQLite gives the key again"
    );
    let mut elsewhere = Dispatcher::new(64);
    assert_eq!(fixture.claim_deliveries(&mut elsewhere).len(), 1);

    dispatcher.run_once(&fixture.app, vec![returned], DispatcherMode::Draining).unwrap();
    assert_eq!(fixture.state(other), ("delivering".to_owned(), 1));
    assert_eq!(fixture.app.engine_stats.delivered(), 1, "counted, because the attempt has ended");
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
    assert_eq!((dispatcher.unfinished(), fixture.app.engine_stats.delivered()), (1, 0));

    fails.store(false, Ordering::SeqCst);
    assert_eq!(fixture.state(later), ("pending".to_owned(), 0), "nothing was claimed");
    let claimed = dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(fixture.state(id), ("success".to_owned(), 1));
    assert_eq!(fixture.app.engine_stats.delivered(), 1);
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
    let returned =
        claimed.iter().map(|delivery| fixture.attempt(&RecordingClient::default(), delivery)).collect();
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
    assert!(fixture.field::<String>(broken, "error_message").starts_with("the request cannot be built"));
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
        done.send(Dispatcher::new(8).run_once(&app, Vec::new(), DispatcherMode::Running).unwrap().len())
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
    let delivery = DeliveryService::start(&fixture.app, shared).unwrap();
    let state = |expected: (&str, i64)| {
        until("the attempt ends", || {
            (fixture.state(id) == (expected.0.to_owned(), expected.1)).then_some(())
        });
    };
    state(("retrying", 1));
    assert!(fixture.field::<String>(id, "error_message").starts_with("internal error in cued"));
    assert!(webhook_client.requests().is_empty());

    fixture.sql("ALTER TABLE cues RENAME COLUMN unreadable TO callback_method");
    fixture.advance(5);
    promote_batch(&fixture.app).unwrap();
    state(("success", 2));
    delivery.stop();
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
