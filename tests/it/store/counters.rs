//! Accounts, attempts, figures and counters in the file.

use cued::domain::account::credentials::{ApiKey, Email};
use cued::domain::account::plan::Plans;
use cued::domain::account::stats::{KEPT_FOR, hour_of};
use cued::domain::account::user::{Caller, Credential, RegistrationPolicy};
use cued::domain::api_error::ErrorCode;
use cued::domain::row_keys::{ExecutionKey, UserKey};
use cued::engine::delivery::dispatcher::promote_batch;
use cued::engine::scheduler::reaper::Cleanup;
use cued::engine::webhook_client::WebhookResponse;
use cued::error::{Error, Result};
use cued::service::accounts::{self as actions, NewAccount};
use cued::store::accounts::users::{self, Owner};
use cued::store::db::counters;
use cued::store::executions::attempts;
use cued::store::maintenance::retention;

use crate::support::*;

const BEGIN: &str = "2026-01-01T10:30:00Z";

fn hook(schedule: &Value) -> Value {
    json!({"name": "hook", "schedule": schedule, "callback": {"url": "http://127.0.0.1:9/"},
           "retry": {"max_attempts": 3, "backoff_minutes": [10]}})
}

fn waiting(user: &Client) -> (Value, Value, Value) {
    let queue = user.read("/health")["queue"].clone();
    (
        queue["pending_outbox"].clone(),
        queue["pending_worker_claims"].clone(),
        queue["pending_retries"].clone(),
    )
}

#[test]
fn the_queue_counters_follow_every_transition_of_an_execution() {
    let (server, user) = Server::with_clock_and_user(BEGIN);
    let is = |claims: i64, retries: i64| {
        assert_eq!(waiting(&user), (json!(0), json!(claims), json!(retries)));
        assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    };
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    let work = user.create(&json!({"name": "work", "schedule": hourly, "transport": "worker"}));
    let call = user.create(&hook(&hourly));
    let fire = |cue: &Value, body: &Value| {
        let run = user.post(&format!("/v1/cues/{}/fire", id(cue)), body).expect(200);
        run.text("execution_id").to_owned()
    };
    fire(&work, &json!({"send_at": "2026-01-01T10:35:00Z"}));
    fire(&call, &json!({"send_at": "2026-01-01T10:35:00Z"}));
    is(0, 0); // a later `fire` is not a retry
    user.advance("PT5M");
    is(1, 1);
    user.advance("PT20M"); // the last attempt fails
    is(1, 0);
    let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    is(0, 0);
    user.advance("PT16M"); // the claim expires, and an hour begins
    is(2, 1);
    let outcome = format!("/v1/executions/{}/outcome", claim.text("execution_id"));
    user.post(&outcome, &json!({"success": true})).expect(200); // of an execution that is pending again
    is(1, 1);
    assert_eq!(user.delete(&format!("/v1/cues/{}", id(&work))).status, 204);
    is(0, 1);
    assert_eq!(user.delete(&format!("/v1/cues/{}", id(&call))).status, 204);
    is(0, 0);
}

#[test]
fn the_cue_counters_follow_every_change_of_a_cue() {
    let (server, user) = Server::with_clock_and_user(BEGIN);
    let is = |counts: [i64; 4]| {
        assert_eq!(user.read("/v1/usage")["cues"]["active"], json!(counts[0]));
        for (status, count) in ["active", "paused", "completed", "failed"].iter().zip(counts) {
            let list = user.read(&format!("/v1/cues?limit=1&status={status}"));
            assert_eq!(list["total"], json!(count), "{status}");
        }
        assert_eq!(user.read("/v1/cues?limit=1")["total"], json!(counts.iter().sum::<i64>()));
        assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    };
    let path = |cue: &Value| format!("/v1/cues/{}", id(cue));
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    let mut pausing = hook(&hourly);
    pausing["retry"] = json!({"max_attempts": 1});
    pausing["on_failure"] = json!({"pause": true});
    let pausing = user.create(&pausing);
    let once = user.create(&hook(&json!({"type": "once", "at": "2026-01-01T10:45:00Z"})));
    let other = user.create(&hook(&hourly));
    is([3, 0, 0, 0]);
    user.patch(&path(&other), &json!({"status": "paused"})).expect(200);
    is([2, 1, 0, 0]);
    user.patch(&path(&other), &json!({"name": "still paused"})).expect(200);
    is([2, 1, 0, 0]);
    user.patch(&path(&other), &json!({"status": "active"})).expect(200);
    is([3, 0, 0, 0]);
    let mut work = hook(&json!({"type": "once", "at": "2026-01-01T10:45:00Z"}));
    work["transport"] = "worker".into();
    work.as_object_mut().unwrap().remove("callback");
    let work = user.create(&work);
    user.advance("PT40M"); // the once cue fails, the other is paused by its failure
    is([2, 1, 0, 1]);
    let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    let outcome = format!("/v1/executions/{}/outcome", claim.text("execution_id"));
    user.post(&outcome, &json!({"success": true})).expect(200);
    is([1, 1, 1, 1]);
    user.patch(&path(&once), &json!({"schedule": {"at": "2026-02-01T00:00:00Z"}})).expect(200);
    user.patch(&path(&pausing), &json!({"status": "active"})).expect(200);
    is([3, 0, 1, 0]);
    for (cue, counts) in [(&once, [2, 0, 1, 0]), (&work, [2, 0, 0, 0])] {
        assert_eq!(user.delete(&path(cue)).status, 204);
        is(counts);
    }
    user.patch(&path(&other), &json!({"status": "paused"})).expect(200);
    assert_eq!(user.delete(&path(&other)).status, 204);
    is([1, 0, 0, 0]);
}

#[test]
fn a_disabled_user_has_no_queued_work() {
    let server = Server::with_test_clock(BEGIN);
    let (user, other) = (server.user(), server.user());
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    for user in [&user, &other] {
        user.create(&json!({"name": "work", "schedule": hourly, "transport": "worker"}));
        user.create(&hook(&hourly));
    }
    other.advance("PT30M");
    assert_eq!(waiting(&other), (json!(0), json!(2), json!(2)));
    let email = user.read("/v1/auth/me").text("email").to_owned();
    let disabled = cued(&["user", "disable", &email, "--db"]).arg(server.db()).output().unwrap();
    assert!(disabled.status.success());
    assert_eq!(waiting(&other), (json!(0), json!(1), json!(1)));
}

#[test]
fn a_wrong_counter_is_found_and_named() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    user.create(&json!({"name": "work", "schedule": {"type": "recurring", "cron": "0 * * * *"}, "transport": "worker"}));
    let file = server.sqlite();
    let wrong =
        "UPDATE backlog SET count = 7 WHERE name = 'claim'; UPDATE users SET active_cues = 5";
    file.execute_batch(wrong).unwrap();
    let found = counters::discrepancies(&file).unwrap().join("\n");
    assert_contains(&found, &["backlog claim is 7 but must be 0", " is 5 but must be 1"]);
    file.execute_batch("UPDATE backlog SET count = 0; UPDATE users SET active_cues = 1").unwrap();
    for name in ["paused_cues", "completed_cues", "failed_cues"] {
        file.execute_batch(&format!("UPDATE users SET {name} = 4")).unwrap();
        let found = counters::discrepancies(&file).unwrap().join("\n");
        assert!(found.starts_with(&format!("{name} of user")), "{found}");
        assert!(found.ends_with(" is 4 but must be 0"), "{found}");
        file.execute_batch(&format!("UPDATE users SET {name} = 0")).unwrap();
    }
}

/// A row that refers to no cue is found while the deletion of another cue is in progress.
#[test]
fn a_reference_to_a_missing_cue_is_found_beside_a_pending_deletion() {
    let server = Server::start(DEV_UNLIMITED);
    let file = server.sqlite();
    // In one transaction: the sweeper of the server would delete the pending deletion, which has no cue.
    let orphan = "BEGIN IMMEDIATE;
         INSERT INTO missed_runs (cue_key, first, last, count, reason) VALUES (77, 1, 1, 1, 'clock');
         INSERT INTO deleted_cues (cue_key, user_key) VALUES (88, 1)";
    file.execute_batch(orphan).unwrap();
    let found = counters::discrepancies(&file).unwrap();
    assert_eq!(found, ["missed run 1 refers to cue 77, which does not exist"]);
    file.execute_batch("UPDATE missed_runs SET cue_key = 88").unwrap();
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new(), "of the deleted cue");
    file.execute_batch("ROLLBACK").unwrap();
}

fn register(
    fixture: &Fixture,
    email: &str,
    registration: RegistrationPolicy,
) -> Result<NewAccount> {
    let email = Email::parse(email).unwrap();
    actions::register(&fixture.app.store, email, "free", Some(registration), fixture.now())?.wait()
}

/// The owner of `key`, as the middleware finds it.
fn caller(fixture: &Fixture, key: &ApiKey) -> Option<Caller> {
    let (key_hash, now) = (key.hash(), fixture.now());
    let found = fixture.read(move |read| users::find_owner(read, &key_hash, now));
    found.map(|Owner { key, user_key, user_id, plan, is_operator, executions }| {
        let limits = Plans::default().limits(&plan);
        let credential = Credential::ApiKey { key, hash: key_hash };
        Caller { user_key, user_id, credential, plan, limits, is_operator, executions }
    })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, code: ErrorCode) {
    match result {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.code, code),
        other => panic!("{other:?} is no {code:?}"),
    }
}

#[test]
fn concurrent_regenerations_replace_a_key_once() {
    let fixture = Fixture::new();
    let old = register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap().api_key;
    let calling = caller(&fixture, &old).unwrap();
    let first = actions::regenerate_key(&fixture.app, &calling).unwrap().wait().unwrap();
    refused(
        actions::regenerate_key(&fixture.app, &calling).unwrap().wait(),
        ErrorCode::InvalidApiKey,
    );
    assert!(caller(&fixture, &first).is_some(), "the returned key is the valid one");
}

#[test]
fn regenerating_with_a_just_revoked_key_replaces_no_other_key() {
    let fixture = Fixture::new();
    let (ann, bob) = (
        register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap(),
        register(&fixture, "bob@example.com", RegistrationPolicy::Open).unwrap(),
    );
    let (ann, bob) =
        (caller(&fixture, &ann.api_key).unwrap(), caller(&fixture, &bob.api_key).unwrap());
    let make = |user_key, name: &str| {
        let made =
            actions::create_key(&fixture.app.store, user_key, name.to_owned(), None, fixture.now());
        made.unwrap().wait().unwrap()
    };
    let lost = make(ann.user_key, "laptop");
    let calling = caller(&fixture, &lost.api_key).unwrap();
    actions::revoke_key(&fixture.app.store, ann.user_key, lost.id).wait().unwrap();
    let bobs = make(bob.user_key, "server");
    let row = caller(&fixture, &bobs.api_key).unwrap().credential.api_key();
    assert_eq!(row, calling.credential.api_key(), "the row is used again");
    refused(
        actions::regenerate_key(&fixture.app, &calling).unwrap().wait(),
        ErrorCode::InvalidApiKey,
    );
    assert!(caller(&fixture, &bobs.api_key).is_some());
}

#[test]
fn executions_are_counted_by_utc_month_and_user() {
    let fixture = Fixture::new();
    let (ann, bob) = (fixture.user("ann"), fixture.user("bob"));
    let count = |user, executions| {
        let now = fixture.now();
        let counted = fixture.app.store.write(move |tx| {
            let mut quota = users::quota(tx, &Plans::default(), user, now)?.unwrap();
            (0..executions).for_each(|_| assert!(quota.try_use(now)));
            users::save_quota(tx, user, &quota, now)
        });
        counted.wait().unwrap();
    };
    let counted = |user| {
        let now = fixture.now();
        fixture.read(move |read| users::monthly_usage(read, user, now)).executions
    };
    count(ann, 2);
    count(ann, 3);
    count(bob, 7);
    assert_eq!((counted(ann), counted(bob)), (5, 7));
    fixture.app.clock.set("2026-01-31T23:59:59.999Z".parse().unwrap());
    assert_eq!(counted(ann), 5);
    fixture.app.clock.set("2026-02-01T00:00:00Z".parse().unwrap());
    assert_eq!(counted(ann), 0);
    count(ann, 1);
    assert_eq!(counted(ann), 1);
}

const URL: &str = "http://127.0.0.1:9/hook";

/// The largest answer of a receiver: bytes that are no text, and long headers.
fn large() -> WebhookResponse {
    let header = |number: usize| (format!("x-{number}"), "\"".repeat(300));
    let headers = (0..5).map(header).collect();
    WebhookResponse {
        http_status: 500,
        retry_after: None,
        headers,
        body: vec![0xFF; 2_000],
        note: None,
    }
}

fn rows(fixture: &DeliveryFixture) -> (i64, i64, i64) {
    let sql = "SELECT count(*), coalesce(min(attempt), 0), coalesce(max(octet_length(response_body)
                   + octet_length(response_headers) + octet_length(error_message)), 0) FROM attempts";
    fixture.write(move |tx| {
        tx.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    })
}

#[test]
fn an_execution_keeps_ten_bounded_attempts_which_are_deleted_with_it() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET max_attempts = 14, backoff_minutes = '[0]'");
    let id = fixture.due(cue);
    let webhook_client = RecordingClient::with((0..14).map(|_| Ok(large())));
    for _ in 0..14 {
        fixture.deliver(&webhook_client);
        promote_batch(&fixture.app).unwrap();
    }
    assert_eq!(fixture.state(id), ("failed".to_owned(), 14));
    let (count, oldest, bytes) = rows(&fixture);
    assert_eq!((count, oldest), (10, 4));
    assert!(bytes <= 2_000 + 1_024 + 100, "a row has {bytes} bytes of text");
    let list = fixture.read(move |read| attempts::list(read, UserKey::new(1), id)).unwrap();
    assert_eq!(list.iter().map(|it| it.number).collect::<Vec<_>>(), (4..=14).collect::<Vec<_>>());
    let key: ExecutionKey = fixture.field(id, "key");
    assert_eq!(fixture.write(move |tx| retention::delete_executions(tx, &[key]).unwrap()), 1);
    assert_eq!(rows(&fixture).0, 0);
}

#[test]
fn a_check_reports_an_attempt_that_was_never_made() {
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    let key: i64 = fixture.field(id, "key");
    let insert = "INSERT INTO attempts (execution_key, attempt, is_counted, started_at) VALUES (?1, 1, ?2, 0)";
    let problems = |fixture: &DeliveryFixture| {
        let problems = fixture.write(|tx| counters::discrepancies(tx).unwrap());
        problems.into_iter().filter(|problem| problem.starts_with("attempt")).collect::<Vec<_>>()
    };
    fixture.write(move |tx| tx.execute(insert, [key, 0]).unwrap());
    assert_eq!(problems(&fixture), [""; 0], "one that was cut off is not counted yet");
    fixture.write(move |tx| tx.execute(insert, [key, 1]).unwrap());
    assert_eq!(
        problems(&fixture),
        [format!("attempt 1 of execution {key} is kept, but it has had only 0")]
    );
}

fn count(fixture: &Fixture, filter: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM hourly_stats WHERE {filter}");
    fixture.write(move |tx| tx.query_row(&sql, [], |row| row.get(0)).unwrap())
}

#[test]
fn hours_are_deleted_in_batches_when_they_are_older_than_400_days() {
    let fixture = Fixture::new();
    let users = [fixture.user("ada"), fixture.user("bob")];
    let first_kept = hour_of(fixture.now() - KEPT_FOR);
    for user in users {
        fixture.sql(&format!(
            "INSERT INTO hourly_stats SELECT {user}, {first_kept} + 10 - value, 1, 0, 0, 0, 0, 0, 0, 0
               FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 710) SELECT value FROM n)"
        ));
    }
    let mut cleanup = Cleanup::default();
    let mut run = || cleanup.delete_hours(&fixture.app.store, fixture.now()).unwrap();
    assert!(run() && run());
    assert_eq!(count(&fixture, &format!("hour < {first_kept}")), 1_400 - 2 * 500, "two batches");
    while run() {}
    assert_eq!(count(&fixture, "true"), 20);
    assert_eq!(count(&fixture, &format!("hour < {first_kept}")), 0);
    // The next round begins a day later.
    fixture.advance(23 * 3_600);
    assert!(!cleanup.delete_hours(&fixture.app.store, fixture.now()).unwrap());
    let day = SignedDuration::from_hours(1);
    while cleanup.delete_hours(&fixture.app.store, fixture.now() + day).unwrap() {}
    assert_eq!(count(&fixture, "true"), 0, "ten hours have grown too old since");
}
