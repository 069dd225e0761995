//! What becomes of an execution by its attempts: success, retries, the last failure, and what the cue makes of it.

use std::time::Duration;

use cued::engine::delivery::delivery_service::promote;
use cued::engine::webhook_client::delivery_error::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::cues::payloads::set_payload;
use serde_json::json;

use crate::support::delivery_fixture::{Recorder, World, answer, at};

const URL: &str = "https://example.com/hook";

fn due(world: &World, id: cued::domain::ids::ExecutionId) -> Option<i64> {
    world.field(id, "due - (SELECT last_attempt_at FROM executions AS same WHERE same.key = executions.key)")
}

#[test]
fn a_success_is_recorded_with_the_response() {
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    assert_eq!(world.deliver(&Recorder::told([answer(202)])), 1);
    assert_eq!(world.state(id), ("success".to_owned(), 1));
    let now = Some(world.app.clock.now().as_millisecond());
    for column in ["started_at", "last_attempt_at", "delivered_at"] {
        assert_eq!(world.field::<Option<i64>>(id, column), now, "{column}");
    }
    assert_eq!(world.field::<Option<i64>>(id, "http_status"), Some(202));
    assert_eq!(world.field::<Option<String>>(id, "response_body").as_deref(), Some("body"));
    assert_eq!(world.field::<Option<String>>(id, "error_message"), None);
    assert_eq!(world.field::<Option<String>>(id, "queue"), None);
    assert_eq!(world.app.engine_stats.delivered(), 1);
}

#[test]
fn the_request_has_the_payload_and_the_attempt_number() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.write(move |tx| set_payload(tx, cue, Some(&json!({"b": 2, "a": "é"}))).unwrap());
    world.sql("UPDATE cues SET callback_headers = '[[\"X-Mine\",\"1\"]]'");
    let id = world.run(cue);
    let webhook_client = Recorder::told([answer(500)]);
    world.deliver(&webhook_client);
    world.advance(60);
    promote(&world.app).unwrap();
    world.deliver(&webhook_client);
    let parcels = webhook_client.parcels();
    assert_eq!(parcels[0].url, URL);
    assert_eq!(parcels[0].body.as_deref(), Some(br#"{"a": "\u00e9", "b": 2}"#.as_slice()));
    assert_eq!(webhook_client.header(0, "X-Mine").as_deref(), Some("1"));
    for (parcel, number, seconds) in [(0, "1", "1767225600"), (1, "2", "1767225660")] {
        assert_eq!(webhook_client.header(parcel, "X-CueAPI-Attempt").as_deref(), Some(number));
        assert_eq!(webhook_client.header(parcel, "X-CueAPI-Timestamp").as_deref(), Some(seconds));
        assert_eq!(webhook_client.header(parcel, "webhook-id"), Some(id.to_string()));
    }
}

#[test]
fn a_missing_payload_is_sent_as_an_empty_object_and_get_has_no_body() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let webhook_client = Recorder::default();
    world.run(cue);
    world.deliver(&webhook_client);
    world.sql("UPDATE cues SET callback_method = 'GET'");
    world.run(cue);
    world.deliver(&webhook_client);
    let bodies: Vec<_> = webhook_client.parcels().into_iter().map(|parcel| parcel.body).collect();
    assert_eq!(bodies, [Some(b"{}".to_vec()), None]);
}

#[test]
fn a_rotated_secret_keeps_signing_until_it_expires() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let expires = at("2026-01-02T00:00:00Z").as_millisecond();
    world.sql(&format!(
        "UPDATE users SET previous_secret = 'whsec_AAAA', previous_secret_expires = {expires}"
    ));
    let webhook_client = Recorder::default();
    for second in [0, 86_399, 1] {
        world.advance(second);
        world.run(cue);
        world.deliver(&webhook_client);
    }
    let count = |parcel| webhook_client.header(parcel, "webhook-signature").unwrap().split(' ').count();
    assert_eq!([count(0), count(1), count(2)], [2, 2, 1]);
}

#[test]
fn failures_are_retried_after_each_backoff_until_attempts_run_out() {
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    let webhook_client = Recorder::told([500, 404, 302, 503].map(answer));
    for (attempt, minutes) in [(1, 1), (2, 5), (3, 15)] {
        world.deliver(&webhook_client);
        assert_eq!(world.state(id), ("retrying".to_owned(), attempt));
        assert_eq!(due(&world, id), Some(minutes * 60_000));
        world.advance(minutes * 60 - 1);
        assert_eq!((promote(&world.app).unwrap(), world.deliver(&webhook_client)), (0, 0), "not early");
        world.advance(1);
        assert_eq!(promote(&world.app).unwrap(), 1);
        assert!(due(&world, id).is_some(), "shown until it is taken up");
    }
    world.deliver(&webhook_client);
    assert_eq!(world.state(id), ("failed".to_owned(), 4));
    assert_eq!(world.field::<Option<i64>>(id, "http_status"), Some(503));
    assert_eq!(world.field::<String>(id, "error_message"), "the callback answered 503");
    assert_eq!(world.field::<Option<i64>>(id, "delivered_at"), None);
    world.advance(100_000);
    assert_eq!((promote(&world.app).unwrap(), world.deliver(&webhook_client)), (0, 0));
    assert_eq!(world.app.engine_stats.delivered(), 4);
}

#[test]
fn a_success_after_failures_leaves_no_error() {
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    let timeout = DeliveryError::Timeout { within: Duration::from_secs(30), status: None };
    let webhook_client = Recorder::told([Err(timeout), answer(200)]);
    world.deliver(&webhook_client);
    assert_eq!(world.field::<String>(id, "error_message"), "no answer within 30 s");
    assert_eq!(world.field::<Option<i64>>(id, "http_status"), None);
    let started: i64 = world.field(id, "started_at");
    world.advance(60);
    promote(&world.app).unwrap();
    world.deliver(&webhook_client);
    assert_eq!(world.state(id), ("success".to_owned(), 2));
    assert_eq!(world.field::<Option<String>>(id, "error_message"), None);
    assert_eq!(world.field::<i64>(id, "started_at"), started);
}

#[test]
fn retry_after_applies_when_it_is_longer_than_the_backoff() {
    for (status, wish, seconds) in
        [(429, "3600", 3600), (503, "7", 60), (500, "3600", 60), (429, "999999", 86_400)]
    {
        let world = World::new(8);
        let id = world.run(world.cue(URL));
        let receipt =
            WebhookResponse { http_status: status, retry_after: Some(wish.to_owned()), body: Vec::new() };
        world.deliver(&Recorder::told([Ok(receipt)]));
        assert_eq!(due(&world, id), Some(seconds * 1000), "{status} {wish}");
    }
}

#[test]
fn fractional_backoffs_are_kept_and_410_is_not_retried() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.sql("UPDATE cues SET backoff_minutes = '[0.05]'");
    let id = world.run(cue);
    world.deliver(&Recorder::told([answer(500)]));
    assert_eq!(due(&world, id), Some(3_000));

    let id = world.run(cue);
    world.deliver(&Recorder::told([answer(410)]));
    assert_eq!(world.state(id), ("failed".to_owned(), 1));

    world.sql("UPDATE cues SET max_attempts = 1");
    let id = world.run(cue);
    world.deliver(&Recorder::told([answer(500)]));
    assert_eq!(world.state(id), ("failed".to_owned(), 1));
}

#[test]
fn a_panic_of_the_webhook_client_is_a_failed_attempt() {
    struct Panics;
    impl WebhookClient for Panics {
        fn send(&self, _: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
            panic!("on purpose")
        }
    }
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    world.deliver(&Panics);
    assert_eq!(world.state(id), ("retrying".to_owned(), 1));
}

#[test]
fn a_body_cut_inside_a_character_ends_before_that_character() {
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    let mut body = "x".repeat(1999).into_bytes();
    body.push("é".as_bytes()[0]);
    world.deliver(&Recorder::told([Ok(WebhookResponse { http_status: 200, retry_after: None, body })]));
    assert_eq!(world.field::<String>(id, "response_body"), "x".repeat(1999));
}

#[test]
fn a_once_cue_ends_with_its_only_execution() {
    for (status, ends_as) in [(200, "completed"), (410, "failed")] {
        let world = World::new(8);
        let cue = world.cue(URL);
        let now = world.app.clock.now().as_millisecond();
        world.sql(&format!("UPDATE cues SET cron = NULL, at = {now}, next_run = NULL"));
        let fired = world.run(cue);
        world.sql("UPDATE executions SET triggered_by = 'manual_fire'");
        world.deliver(&Recorder::told([answer(status)]));
        assert_eq!(cue_status(&world), "active", "a run by hand says nothing about it");
        assert!(world.field::<Option<String>>(fired, "queue").is_none());
        world.run(cue);
        world.deliver(&Recorder::told([answer(status)]));
        assert_eq!(cue_status(&world), ends_as);
    }
}

#[test]
fn on_failure_pauses_a_recurring_cue_only_after_its_last_attempt() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.sql("UPDATE cues SET on_failure = '{\"email\":true,\"webhook\":null,\"pause\":true}'");
    world.run(cue);
    world.deliver(&Recorder::told([answer(500)]));
    assert_eq!(cue_status(&world), "active");
    world.run(cue);
    world.deliver(&Recorder::told([answer(410)]));
    assert_eq!(cue_status(&world), "paused");
}

#[test]
fn a_later_execution_uses_the_callback_at_its_send_time() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let id = world.run_at(cue, at("2026-01-01T01:00:00Z"));
    let webhook_client = Recorder::default();
    assert_eq!(world.deliver(&webhook_client), 0);
    world.sql("UPDATE cues SET callback_url = 'https://example.org/', lane = 77");
    world.advance(3600);
    assert_eq!(promote(&world.app).unwrap(), 1);
    assert_eq!(world.field::<i64>(id, "lane"), 77);
    assert_eq!(world.deliver(&webhook_client), 1);
    assert_eq!(webhook_client.parcels()[0].url, "https://example.org/");
}

#[test]
fn a_worker_execution_becomes_claimable_and_is_never_sent() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.sql("UPDATE cues SET transport = 'worker', lane = NULL, callback_url = NULL");
    let id = world.run_at(cue, at("2026-01-01T00:00:05Z"));
    world.advance(5);
    // The writer rings after it has answered, and before it takes the next write.
    let rung = || {
        world.write(|_| ());
        [world.app.notifiers.claim.generation(), world.app.notifiers.send.generation()]
    };
    let [claim, send] = rung();
    assert_eq!(promote(&world.app).unwrap(), 1);
    assert_eq!(rung(), [claim + 1, send]);
    assert_eq!(world.field::<String>(id, "queue"), "claim");
    assert_eq!(world.deliver(&Recorder::default()), 0);
}

fn cue_status(world: &World) -> String {
    world.write(|tx| tx.query_row("SELECT status FROM cues", [], |row| row.get(0)).unwrap())
}
