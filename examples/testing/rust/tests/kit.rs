//! Tests of the kit itself: you need not copy them.

mod common {
    pub mod cued;
}

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::Command;
use std::time::Duration;

use common::cued::{Answer, Cued, Match};
use serde_json::{json, Value};

fn hourly() -> Value {
    json!({"type": "recurring", "cron": "@hourly"})
}

/// Why a step fails the test.
fn failure<T>(step: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(_) => panic!("it does not fail"),
        Err(reason) => match reason.downcast::<String>() {
            Ok(text) => *text,
            Err(reason) => reason.downcast::<&str>().expect("it has a text").to_string(),
        },
    }
}

fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{text}\nwithout {part}");
}

#[test]
fn an_expectation_that_fails_says_what_was_delivered_instead() {
    let cued = Cued::at("2030-01-31T22:30:00Z");
    let receiver = cued.receiver();
    receiver.answer([Answer::status(503), Answer::hang_up()]);
    let callback = json!({"url": format!("{}/a", receiver.url)});
    cued.create(
        json!({"name": "invoices", "schedule": hourly(), "callback": callback, "payload": {"send": 1}}),
    );
    assert_eq!(
        failure(|| receiver.expect_deliveries(1, Match::all().cue("invoices"))),
        "expected 1 delivery of cue 'invoices', got 0; it is 2030-01-31T22:30:00Z
deliveries:
  none
runs:
  none
cues:
  'invoices' active, next run at 2030-01-31T23:00:00+00:00"
    );
    cued.advance("PT31M");
    assert_eq!(
        failure(|| receiver.expect_deliveries(3, Match::all().cue("invoices"))),
        "expected 3 deliveries of cue 'invoices', got 2; it is 2030-01-31T23:01:00Z
deliveries:
  2030-01-31T23:00:00Z POST /a attempt 1 of 'invoices' → 503 {\"send\":1}
  2030-01-31T23:01:00Z POST /a attempt 2 of 'invoices' → hung up {\"send\":1}
runs:
  2030-01-31T23:00:00Z 'invoices' retrying, 2 of 4 attempts, the connection was closed before the response was \
complete, next attempt at 2030-01-31T23:06:00Z"
    );
    let soon = Duration::from_millis(10);
    let waited = failure(|| receiver.wait_for_delivery(1, Match::all().path("/b").timeout(soon)));
    assert_contains(
        &waited,
        "expected 1 delivery at /b, got 0 in 10ms; it is 2030-01-31T23:01:00Z\n",
    );
    assert_contains(&waited, "attempt 2 of 'invoices'");
}

#[test]
fn a_request_that_is_not_signed_is_no_delivery() {
    let cued = Cued::new();
    let receiver = cued.receiver();
    let mut forger = TcpStream::connect(receiver.url.trim_start_matches("http://")).unwrap();
    forger
        .write_all(b"POST /forged HTTP/1.1\r\nContent-Length: 17\r\n\r\n{\"send\": \"money\"}")
        .unwrap();
    let mut status = [0; 12];
    forger.read_exact(&mut status).unwrap();
    assert_eq!(status, *b"HTTP/1.1 401");
    let failed = failure(|| receiver.expect_deliveries(1, Match::all()));
    assert_contains(&failed, "no time POST /forged → 401, not signed {\"send\":\"money\"}");
}

#[test]
fn an_alert_is_signed_too() {
    let cued = Cued::new();
    let receiver = cued.receiver();
    cued.patch("/v1/auth/me", json!({"alert_webhook_url": format!("{}/alert", receiver.url)}));
    cued.post("/v1/alerts/test", Value::Null);
    assert_eq!(receiver.wait_for_delivery(1, Match::all().path("/alert")).body["test"], true);
}

#[test]
fn an_answer_has_headers_and_a_body() {
    let cued = Cued::at("2030-01-31T22:30:00Z");
    let receiver = cued.receiver();
    let headers = vec![("Retry-After".to_owned(), "7200".to_owned())];
    receiver.answer([Answer { body: "too many".to_owned(), headers, ..Answer::status(429) }]);
    cued.create(json!({"name": "a", "schedule": hourly(), "callback": {"url": receiver.url}}));
    cued.fire("a");
    let run = &cued.runs("a")[0];
    assert_eq!(run["response_body"], "too many");
    assert_eq!(run["next_retry"], "2030-02-01T00:30:00Z");
}

#[test]
fn an_application_that_panics_answers_500() {
    let cued = Cued::new();
    let receiver = cued.receiver();
    receiver.always(|_| panic!("no paper"));
    cued.create(json!({"name": "a", "schedule": hourly(), "callback": {"url": receiver.url}}));
    cued.fire("a");
    assert_eq!(receiver.wait_for_delivery(1, Match::all()).answer.status, 500);
    assert_eq!(cued.runs("a")[0]["http_status"], 500);
}

#[test]
fn the_clock_of_a_shared_server_only_moves_forward() {
    let cued = Cued::new();
    let before = cued.now();
    cued.advance("PT1H");
    assert_contains(&failure(|| cued.advance_to(&before)), "Cued::at(INSTANT) gives");
}

#[test]
fn a_cue_of_another_test_is_never_due_again() {
    let other = Cued::new();
    other.create(json!({"name": "a", "schedule": hourly(), "transport": "worker"}));
    drop(other);
    assert_eq!(Cued::new().until_next()["next"], Value::Null);
}

#[test]
fn a_reset_leaves_an_empty_server_and_a_new_account() {
    let cued = Cued::new();
    cued.create(json!({"name": "a", "schedule": hourly(), "transport": "worker"}));
    let (key, now) = (cued.key(), cued.now());
    cued.reset();
    assert_eq!(cued.get("/v1/cues")["total"], 0);
    assert_eq!(cued.now(), now);
    assert_ne!(cued.key(), key);
}

#[test]
fn an_unknown_name_and_a_refused_request_say_so() {
    let cued = Cued::new();
    assert_eq!(failure(|| cued.fire("a")), "the account has no cues with the name 'a'");
    let failed = failure(|| cued.create(json!({"schedule": hourly()})));
    assert!(
        failed.starts_with("POST /v1/cues: 422 validation_error: ") && failed.contains("name"),
        "{failed}"
    );
    assert_contains(
        &failure(Cued::new),
        "a test has one Cued::new(); Cued::at(INSTANT) gives it more servers",
    );
}

#[test]
fn a_server_that_does_not_start_says_why() {
    assert_contains(
        &failure(|| Cued::at("soon")),
        "serve did not start: cued: --test-clock \"soon\" is not a timestamp",
    );
    // In processes of their own: the other tests need their environment.
    let output_of = |change: fn(&mut Command) -> &mut Command| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        change(command.args(["--ignored", "--exact", "the_server_does_not_start"]));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let named = output_of(|command| command.env("CUED_BIN", "/nowhere/cued"));
    assert_contains(&named, "twice: CUED_BIN is /nowhere/cued, which is no program");
    let searched = output_of(|command| command.env_remove("CUED_BIN").env("PATH", "/nowhere"));
    assert_contains(
        &searched,
        "there is no cued on the PATH: install it, or set CUED_BIN to its path",
    );
}

#[test]
#[ignore = "the test above runs it"]
fn the_server_does_not_start() {
    let first = failure(Cued::new);
    assert_eq!(failure(Cued::new), first, "tests may share a thread");
    panic!("twice: {first}");
}

#[test]
fn mails_about_many_failures_do_not_stop_the_server() {
    let cued = Cued::at("2030-01-01T00:00:00Z");
    let receiver = cued.receiver();
    receiver.always(|_| Answer::status(500));
    for number in 0..10 {
        cued.create(json!({
            "name": number.to_string().repeat(100),
            "schedule": hourly(),
            "callback": {"url": receiver.url},
            "retry": {"max_attempts": 1, "backoff_minutes": [1]},
        }));
    }
    // Ten mails an hour of some 200 bytes: more than a pipe holds.
    cued.advance("PT40H");
    receiver.expect_deliveries(400, Match::all());
}

#[test]
fn ten_cues_in_each_of_a_hundred_tests() {
    for _ in 0..100 {
        let cued = Cued::new();
        let receiver = cued.receiver();
        for number in 0..10 {
            let cue = cued.create(json!({
                "name": format!("cue-{number}"),
                "schedule": hourly(),
                "callback": {"url": receiver.url},
                "payload": {"number": number},
            }));
            cued.fire(cue["id"].as_str().unwrap());
        }
        let delivered = receiver.expect_deliveries(10, Match::all());
        let mut numbers: Vec<u64> =
            delivered.iter().filter_map(|one| one.body["number"].as_u64()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    }
}
