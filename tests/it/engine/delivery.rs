//! Executions and their attempts: success, retries, the last failure, and the effect on the cue.

use std::time::Duration;

use cued::engine::delivery::dispatcher::promote_batch;
use cued::engine::webhook_client::DeliveryError;
use cued::engine::webhook_client::{WebhookClient, WebhookRequest, WebhookResponse};
use cued::store::cues::payloads::set_payload;
use serde_json::json;

use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient, at, response};

const URL: &str = "https://example.com/hook";

fn due(fixture: &DeliveryFixture, id: cued::domain::ids::ExecutionId) -> Option<i64> {
    fixture.field(
        id,
        "due_at - (SELECT last_attempt_at FROM executions AS same WHERE same.key = executions.key)",
    )
}

#[test]
fn a_success_is_recorded_with_the_response() {
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    assert_eq!(fixture.deliver(&RecordingClient::with([response(202)])), 1);
    assert_eq!(fixture.state(id), ("success".to_owned(), 1));
    let now = Some(fixture.app.clock.now().as_millisecond());
    for column in ["started_at", "last_attempt_at", "delivered_at"] {
        assert_eq!(fixture.field::<Option<i64>>(id, column), now, "{column}");
    }
    assert_eq!(fixture.field::<Option<i64>>(id, "http_status"), Some(202));
    assert_eq!(fixture.field::<Option<String>>(id, "response_body").as_deref(), Some("body"));
    assert_eq!(fixture.field::<Option<String>>(id, "error_message"), None);
    assert_eq!(fixture.field::<Option<String>>(id, "queue_name"), None);
    assert_eq!(fixture.app.engine_stats.delivered(), 1);
}

#[test]
fn the_request_has_the_payload_and_the_attempt_number() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.write(move |tx| set_payload(tx, cue, Some(&json!({"b": 2, "a": "é"}).into())).unwrap());
    fixture.sql("UPDATE cues SET callback_headers = '[[\"X-Mine\",\"1\"]]'");
    let id = fixture.due(cue);
    let webhook_client = RecordingClient::with([response(500)]);
    fixture.deliver(&webhook_client);
    fixture.advance(60);
    promote_batch(&fixture.app).unwrap();
    fixture.deliver(&webhook_client);
    let requests = webhook_client.requests();
    assert_eq!(requests[0].url, URL);
    assert_eq!(requests[0].body.as_deref(), Some(br#"{"a": "\u00e9", "b": 2}"#.as_slice()));
    assert_eq!(webhook_client.header(0, "X-Mine").as_deref(), Some("1"));
    for (request, number, seconds) in [(0, "1", "1767225600"), (1, "2", "1767225660")] {
        assert_eq!(webhook_client.header(request, "X-CueAPI-Attempt").as_deref(), Some(number));
        assert_eq!(webhook_client.header(request, "X-CueAPI-Timestamp").as_deref(), Some(seconds));
        assert_eq!(webhook_client.header(request, "webhook-id"), Some(id.to_string()));
    }
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
    let bodies: Vec<_> = webhook_client.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [Some(b"{}".to_vec()), None]);
}

#[test]
fn a_rotated_secret_keeps_signing_until_it_expires() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    let expires = at("2026-01-02T00:00:00Z").as_millisecond();
    fixture.sql(&format!(
        "UPDATE users SET previous_webhook_secret = 'whsec_AAAA', previous_webhook_secret_expires_at = {expires}"
    ));
    let webhook_client = RecordingClient::default();
    for second in [0, 86_399, 1] {
        fixture.advance(second);
        fixture.due(cue);
        fixture.deliver(&webhook_client);
    }
    let count = |request| webhook_client.header(request, "webhook-signature").unwrap().split(' ').count();
    assert_eq!([count(0), count(1), count(2)], [2, 2, 1]);
}

#[test]
fn failures_are_retried_after_each_backoff_until_attempts_run_out() {
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    let webhook_client = RecordingClient::with([500, 404, 302, 503].map(response));
    for (attempt, minutes) in [(1, 1), (2, 5), (3, 15)] {
        fixture.deliver(&webhook_client);
        assert_eq!(fixture.state(id), ("retrying".to_owned(), attempt));
        assert_eq!(due(&fixture, id), Some(minutes * 60_000));
        fixture.advance(minutes * 60 - 1);
        assert_eq!(
            (promote_batch(&fixture.app).unwrap(), fixture.deliver(&webhook_client)),
            (0, 0),
            "not early"
        );
        fixture.advance(1);
        assert_eq!(promote_batch(&fixture.app).unwrap(), 1);
        assert!(due(&fixture, id).is_some(), "shown until the claim");
    }
    fixture.deliver(&webhook_client);
    assert_eq!(fixture.state(id), ("failed".to_owned(), 4));
    assert_eq!(fixture.field::<Option<i64>>(id, "http_status"), Some(503));
    assert_eq!(fixture.field::<String>(id, "error_message"), "the callback returned 503");
    assert_eq!(fixture.field::<Option<i64>>(id, "delivered_at"), None);
    fixture.advance(100_000);
    assert_eq!((promote_batch(&fixture.app).unwrap(), fixture.deliver(&webhook_client)), (0, 0));
    assert_eq!(fixture.app.engine_stats.delivered(), 4);
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
    assert_eq!(webhook_client.requests()[0].url, "https://example.org/");
}

#[test]
fn a_worker_execution_becomes_claimable_and_is_never_sent() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET transport = 'worker', destination_hash = NULL, callback_url = NULL");
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
