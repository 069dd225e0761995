//! Open registration: how many accounts an address makes, and what an account may do until its address is confirmed.

use cued::store::db::counters;
use serde_json::{Value, json};

use super::{Plans, START, administer, id, worker};
use crate::http::device_login::flow::{MailingServer, post_form};
use crate::support::client::{Client, Response};
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server, until};

/// Anybody may register, and callbacks reach this machine.
const OPEN: &[&str] = &["--registration", "open", "--allow-callbacks-to", "loopback"];

/// Any number of executions and requests, and 64 MiB.
fn plenty() -> Plans {
    let limits = json!({"cues": 500, "executions": null, "requests_per_minute": null, "storage_mb": 64});
    Plans::new(&json!({"free": limits}))
}

fn register_from(server: &Server, address: &str, email: &str) -> Response {
    let headers = [("X-Forwarded-For", address), ("Content-Type", "application/json")];
    let body = json!({ "email": email }).to_string();
    server.client().call("POST", "/v1/auth/register", &headers, body.as_bytes()).unwrap()
}

/// A cue with a payload of about `size` bytes.
fn cue_of(size: usize) -> Value {
    let mut cue = worker("0 0 1 1 *");
    cue["payload"] = json!({"data": "x".repeat(size)});
    cue
}

#[test]
fn ten_accounts_an_hour_are_registered_from_one_address() {
    let flags = [OPEN, &["--trust-proxy", "127.0.0.1", "--test-clock", START]].concat();
    let server = Server::start(&flags);
    let register =
        |address: &str, number: u32| register_from(&server, address, &format!("u{number}@example.com"));
    register("192.0.2.1", 0).expect(201);
    server.client().advance("PT20M");
    // Refused ones do not count.
    register("192.0.2.1", 0).expect_error(409, "duplicate_email");
    register_from(&server, "192.0.2.1", "nonsense").expect_error(422, "validation_error");
    (1..10).for_each(|number| drop(register("192.0.2.1", number).expect(201)));
    let refused = register("192.0.2.1", 10);
    let error = refused.expect_error(429, "rate_limit_exceeded");
    assert!(error["error"]["message"].as_str().unwrap().contains("cued user add"), "{error}");
    assert_eq!(refused.header("retry-after"), Some("2400"));
    register("192.0.2.2", 10).expect(201);
    (11..21).for_each(|number| drop(register("2001:db8::1", number).expect(201)));
    register("2001:db8::ffff", 21).expect_error(429, "rate_limit_exceeded");
    register("2001:db8:0:1::1", 21).expect(201);
    server.client().advance("PT40M");
    register("192.0.2.1", 22).expect(201);
    register("192.0.2.1", 23).expect_error(429, "rate_limit_exceeded");
    // The operator is not limited, and neither are trusted accounts.
    administer(&server, &["add", "u23@example.com"]);
    for flags in [DEV_UNLIMITED, &["--dev"], &["--registration", "open", "--limits", "off"]] {
        let server = Server::start(flags);
        (0..12).for_each(|_| drop(server.user()));
    }
}

/// Confirms the address of the user by signing in with a mailed link. The keys so far stay.
fn confirm(mailing: &MailingServer, email: &str) {
    let code = mailing.code();
    let token = mailing.mail(&code, email).token();
    let pairs = [("token", token.as_str()), ("device_code", &code), ("other_keys", "keep")];
    assert_eq!(post_form(&mailing.client(), "/v1/auth/verify", &pairs).status, 200);
}

fn storage_limit(user: &Client) -> i64 {
    user.get("/v1/usage").expect(200)["storage"]["limit_bytes"].as_i64().unwrap()
}

#[test]
fn an_unconfirmed_account_stores_one_mebibyte() {
    let mailing = MailingServer::open(OPEN);
    let (first, bob) =
        (mailing.client().register("ann@example.com"), mailing.client().register("bob@example.com"));
    assert_eq!([&first, &bob].map(storage_limit), [64 << 20, 1 << 20]);
    for user in [&first, &bob] {
        user.create(&cue_of(900_000));
    }
    first.create(&cue_of(900_000));
    let refused = bob.post("/v1/cues", &cue_of(200_000)).expect_error(403, "storage_limit_exceeded");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("confirm the address") && message.contains("1048576"), "{message}");
    bob.create(&cue_of(100_000));
    confirm(&mailing, "bob@example.com");
    assert_eq!(storage_limit(&bob), 64 << 20);
    bob.create(&cue_of(200_000));
}

/// A cue that calls the receiver every minute.
fn every_minute(receiver: &Receiver) -> Value {
    json!({
        "name": "call", "schedule": {"type": "recurring", "cron": "* * * * *"}, "callback": {"url": receiver.url()},
        "retry": {"max_attempts": 2, "backoff_minutes": [0.1]},
    })
}

fn pending(user: &Client) -> Vec<Value> {
    let listed = user.get("/v1/executions?status=pending&limit=100").expect(200);
    listed["executions"].as_array().unwrap().clone()
}

#[test]
fn the_runs_of_an_unconfirmed_account_call_60_times_an_hour() {
    let (plans, receiver) = (plenty(), Receiver::start());
    let mailing = MailingServer::open(&[OPEN, &["--plans", &plans.path()]].concat());
    mailing.client().register("ann@example.com");
    let bob = mailing.client().register("bob@example.com");
    let cues: Vec<Value> = (0..2).map(|_| bob.create(&every_minute(&receiver))).collect();
    mailing.advance("PT29M");
    assert_eq!((receiver.count(), pending(&bob).len()), (58, 0));
    mailing.advance("PT21M");
    let waiting = pending(&bob);
    assert_eq!((receiver.count(), waiting.len()), (60, 40), "the others wait");
    assert!(waiting.iter().all(|it| it["error_message"] == "address_unconfirmed"), "{}", waiting[0]);
    assert_eq!(mailing.client().get("/health").expect(200)["status"], "healthy");
    let fire = |cue: &Value| bob.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({}));
    let refused = fire(&cues[0]).expect_error(403, "execution_limit_exceeded");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("60 times an hour: wait 660 s, or confirm the address"), "{message}");
    fire(&bob.create(&worker("0 0 1 1 *"))).expect(200);
    mailing.advance("PT1H");
    assert_eq!(receiver.count(), 120, "as many again, from the moment at which the first is an hour old");

    // A confirmed address lets go what waits. What is left waits for a worker.
    confirm(&mailing, "bob@example.com");
    bob.settle();
    assert_eq!((receiver.count(), pending(&bob).len()), (220, 1));
    for _ in 0..3 {
        fire(&cues[0]).expect(200);
    }
    assert_eq!(counters::discrepancies(&mailing.server.sqlite()).unwrap(), Vec::<String>::new());
}

#[test]
fn attempts_count_as_calls_and_wait_like_them() {
    let (plans, receiver) = (plenty(), Receiver::with(Reaction::Status(500)));
    let mailing = MailingServer::open(&[OPEN, &["--plans", &plans.path()]].concat());
    mailing.client().register("ann@example.com");
    let bob = mailing.client().register("bob@example.com");
    let mut cue = every_minute(&receiver);
    (cue["retry"]["max_attempts"], cue["on_failure"]) = (7.into(), json!({"email": false}));
    bob.create(&cue);
    mailing.advance("PT1H");
    assert_eq!(receiver.count(), 60, "seven attempts of eight runs, and four of the ninth");
    let shown = bob.get("/v1/executions?status=retrying").expect(200);
    assert_eq!(
        (&shown["total"], &shown["executions"][0]["http_status"]),
        (&json!(1), &json!(500)),
        "{shown}"
    );
    confirm(&mailing, "bob@example.com");
    mailing.advance("PT30S");
    let id = shown["executions"][0]["id"].as_str().unwrap();
    let shown = bob.get(&format!("/v1/executions/{id}")).expect(200);
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("failed"), &json!(7)), "no longer held up");
}

#[test]
fn an_unconfirmed_account_without_a_run_for_7_days_is_removed() {
    let server = Server::start(&[OPEN, &["--test-clock", START]].concat());
    let (first, idle, active) = (server.user(), server.user(), server.user());
    let cues = [&first, &idle, &active].map(|user| user.create(&cue_of(1_000)));
    for (user, cue) in [&first, &idle, &active].iter().zip(&cues) {
        user.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({})).expect(200);
    }
    administer(&server, &["add", "added@example.com"]);
    active.create(&worker("@daily"));
    let email = super::email(&idle);
    first.advance("P6DT23H");
    idle.get("/v1/auth/me").expect(200);
    first.advance("PT7H");
    until("the account is removed", || (idle.get("/v1/auth/me").status == 401).then_some(()));
    for user in [&first, &active] {
        user.get("/v1/auth/me").expect(200);
    }
    first.settle();
    let file = server.sqlite();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM users"), 3, "the operator's user is not removed");
    assert_eq!(count("SELECT count(*) FROM payloads"), 2);
    assert_eq!(count("SELECT count(*) FROM executions WHERE user_key NOT IN (SELECT key FROM users)"), 0);
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
    assert_eq!(
        server.client().post("/v1/auth/register", &json!({ "email": email })).status,
        201,
        "it is free again"
    );
}

#[test]
fn accounts_of_a_server_that_trusts_them_are_not_removed() {
    let server = Server::with_test_clock(START);
    let (first, idle) = (server.user(), server.user());
    first.advance("P9D");
    idle.get("/v1/auth/me").expect(200);
}
