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
    world.field(
        id,
        "due_at - (SELECT last_attempt_at FROM executions AS same WHERE same.key = executions.key)",
    )
}

#[test]
fn a_success_is_recorded_with_the_answer() {
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
    assert_eq!(world.field::<Option<String>>(id, "queue_name"), None);
    assert_eq!(world.app.engine_stats.delivered(), 1);
}

#[test]
fn the_message_has_the_payload_and_the_number_of_the_attempt() {
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
fn no_payload_is_an_empty_object_and_get_has_no_body() {
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
fn a_rotated_secret_signs_beside_the_new_one_for_as_long_as_the_clock_says() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let expires = at("2026-01-02T00:00:00Z").as_millisecond();
    world.sql(&format!(
        "UPDATE users SET previous_webhook_secret = 'whsec_AAAA', previous_webhook_secret_expires_at = {expires}"
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
fn failures_are_retried_after_each_backoff_and_then_given_up() {
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
    assert_eq!(world.field::<String>(id, "error_message"), "the callback returned 503");
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
fn the_receivers_wish_counts_when_it_is_longer_than_the_backoff() {
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
fn fractions_of_a_minute_are_kept_and_410_and_a_single_attempt_end_at_once() {
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
fn a_panic_of_the_courier_is_a_failed_attempt() {
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
fn a_body_that_is_cut_within_a_character_ends_before_it() {
    let world = World::new(8);
    let id = world.run(world.cue(URL));
    let mut body = "x".repeat(1999).into_bytes();
    body.push("é".as_bytes()[0]);
    world.deliver(&Recorder::told([Ok(WebhookResponse { http_status: 200, retry_after: None, body })]));
    assert_eq!(world.field::<String>(id, "response_body"), "x".repeat(1999));
}

#[test]
fn the_end_of_its_only_run_ends_a_once_cue() {
    for (status, ends_as) in [(200, "completed"), (410, "failed")] {
        let world = World::new(8);
        let cue = world.cue(URL);
        let now = world.app.clock.now().as_millisecond();
        world.sql(&format!("UPDATE cues SET cron = NULL, at = {now}, next_run = NULL"));
        let fired = world.run(cue);
        world.sql("UPDATE executions SET triggered_by = 'manual_fire'");
        world.deliver(&Recorder::told([answer(status)]));
        assert_eq!(cue_status(&world), "active", "a run by hand says nothing about it");
        assert!(world.field::<Option<String>>(fired, "queue_name").is_none());
        world.run(cue);
        world.deliver(&Recorder::told([answer(status)]));
        assert_eq!(cue_status(&world), ends_as);
    }
}

#[test]
fn a_recurring_cue_that_asks_for_it_is_paused_by_a_last_failure_only() {
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
fn an_execution_of_later_waits_and_goes_where_the_cue_leads_by_then() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let id = world.run_at(cue, at("2026-01-01T01:00:00Z"));
    let webhook_client = Recorder::default();
    assert_eq!(world.deliver(&webhook_client), 0);
    world.sql("UPDATE cues SET callback_url = 'https://example.org/', destination_hash = 77");
    world.advance(3600);
    assert_eq!(promote(&world.app).unwrap(), 1);
    assert_eq!(world.field::<i64>(id, "destination_hash"), 77);
    assert_eq!(world.deliver(&webhook_client), 1);
    assert_eq!(webhook_client.parcels()[0].url, "https://example.org/");
}

#[test]
fn a_worker_execution_becomes_claimable_and_is_never_sent() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.sql("UPDATE cues SET transport = 'worker', destination_hash = NULL, callback_url = NULL");
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
    assert_eq!(world.field::<String>(id, "queue_name"), "claim");
    assert_eq!(world.deliver(&Recorder::default()), 0);
}

fn cue_status(world: &World) -> String {
    world.write(|tx| tx.query_row("SELECT status FROM cues", [], |row| row.get(0)).unwrap())
}
