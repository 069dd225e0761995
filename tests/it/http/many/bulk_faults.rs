//! Actions on many objects of which a later write fails, or whose client disconnects (contract §4.15).

use std::sync::atomic::{AtomicUsize, Ordering};

use cued::domain::account::plan::PlanLimits;
use cued::domain::account::user::{Caller, Credential};
use cued::domain::api_error::ErrorCode;
use cued::http::response::to_refusal;
use cued::service::bulk::cues::{CueAction, CueResults, apply};
use cued::service::bulk::{BulkCall, BulkRequest};
use cued::service::idempotency::{IdempotencyRequest, StoredResponse};
use cued::store::db::counters;
use serde_json::{Value, json};

use super::{START, copy_failed, failed_runs, id, worker_cue};
use crate::support::client::{Client, Connection, Response};
use crate::support::fixture::Fixture;
use crate::support::server::{Server, until};

const REPLAY: &str = "/v1/executions/replay";

fn keyed(user: &Client, path: &str, body: &Value) -> Response {
    user.call("POST", path, &[("Idempotency-Key", "k")], body.to_string().as_bytes()).unwrap()
}

fn runs_by(server: &Server, trigger: &str) -> i64 {
    let count = "SELECT count(*) FROM executions WHERE triggered_by = ?1";
    server.sqlite().query_row(count, [trigger], |row| row.get(0)).unwrap()
}

/// Lets the file refuse the insertion of a run once there are `count` of its kind.
fn refuse_after(server: &Server, trigger: &str, count: usize) {
    let refuse = format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON executions
           WHEN new.triggered_by = '{trigger}'
                AND (SELECT count(*) FROM executions WHERE triggered_by = '{trigger}') >= {count}
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    );
    server.sqlite().execute_batch(&refuse).unwrap();
}

fn allow(server: &Server) {
    server.sqlite().execute_batch("DROP TRIGGER refuse").unwrap();
}

#[test]
fn a_fault_after_the_first_write_is_told_of_what_is_left() {
    let server = Server::start(&["--dev", "--limits", "off", "--test-clock", START, "--retain", "off"]);
    let user = server.user();
    let cue = user.create(&worker_cue("work"));
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 249);
    let all = json!({"filter": {"status": "failed"}, "expected": 250});
    refuse_after(&server, "replay", 50);
    keyed(&user, REPLAY, &all).expect_error(500, "internal_error");
    assert_eq!(runs_by(&server, "replay"), 0, "the first write did nothing");
    allow(&server);
    refuse_after(&server, "replay", 150);
    let first = keyed(&user, REPLAY, &all).expect(200);
    assert_eq!((&first["matched"], &first["replayed"]), (&json!(250), &json!(100)));
    assert_eq!(first["execution_ids"].as_array().unwrap().len(), 100);
    let skipped = first["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 150);
    assert!(skipped.iter().all(|it| it["code"] == "internal_error"), "{skipped:?}");
    assert!(server.log().contains("refused"), "the cause is logged");
    allow(&server);
    assert_eq!(keyed(&user, REPLAY, &all).expect(200), first);
    assert_eq!(runs_by(&server, "replay"), 100);
    let left: Vec<&Value> = skipped.iter().map(|it| &it["id"]).collect();
    assert_eq!(user.post(REPLAY, &json!({"ids": left})).expect(200)["replayed"], 150);
    assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_fault_after_the_first_write_of_fires_names_the_cues_that_were_not_fired() {
    let server = Server::start(&["--dev", "--limits", "off", "--test-clock", START, "--retain", "off"]);
    let user = server.user();
    let cues: Vec<Value> =
        (0..120).map(|number| user.create(&worker_cue(&format!("cue {number}")))).collect();
    let ids: Vec<&str> = cues.iter().map(id).collect();
    refuse_after(&server, "manual_fire", 110);
    let done = user.post("/v1/cues/bulk", &json!({"ids": ids, "action": "fire"})).expect(200);
    assert_eq!((&done["matched"], &done["done"]), (&json!(120), &json!(100)));
    let failed = done["failed"].as_array().unwrap();
    assert_eq!(failed.iter().map(|it| it["id"].as_str().unwrap()).collect::<Vec<_>>(), ids[100..]);
    assert!(failed[0]["message"].as_str().unwrap().contains("server log"), "{}", failed[0]);
    assert_eq!(runs_by(&server, "manual_fire"), 100);
}

/// Four replays with a payload of a megabyte of their own are as much work as a hundred without one.
#[test]
fn a_write_replays_fewer_executions_with_large_payloads() {
    let server = Server::start(&["--dev", "--limits", "off", "--test-clock", START, "--retain", "off"]);
    let user = server.user();
    let mut cue = worker_cue("work");
    cue["payload"] = json!({"data": "x".repeat(1_000_000)});
    let cue = user.create(&cue);
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 9);
    user.patch(&format!("/v1/cues/{}", id(&cue)), &json!({"payload": {}})).expect(200);
    refuse_after(&server, "replay", 5);
    let done = user.post(REPLAY, &json!({"filter": {}, "expected": 10})).expect(200);
    assert_eq!(done["replayed"], 4, "the second write failed");
    allow(&server);
    // Without a copy a write takes a hundred.
    copy_failed(&server, 140);
    server.sqlite().execute("UPDATE executions SET payload_key = NULL WHERE status = 'failed'", []).unwrap();
    refuse_after(&server, "replay", 144);
    let done = user.post(REPLAY, &json!({"filter": {}, "expected": 150})).expect(200);
    assert_eq!(done["replayed"], 100);
}

#[test]
fn a_client_that_disconnects_stops_nothing_and_a_repetition_gets_the_answer() {
    let server = Server::start(&["--dev", "--limits", "off", "--test-clock", START, "--retain", "off"]);
    let user = server.user();
    let cue = user.create(&worker_cue("work"));
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 9_999);
    let body = json!({"filter": {"status": "failed"}, "expected": 10_000});
    let text = body.to_string();
    let mut connection = Connection::open(server.addr()).unwrap();
    connection.send(&format!(
        "POST {REPLAY} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        user.key(),
        text.len()
    ));
    until("the first write", || (runs_by(&server, "replay") > 0).then_some(()));
    drop(connection);
    until("the last write", || (runs_by(&server, "replay") == 10_000).then_some(()));
    let again = keyed(&user, REPLAY, &body).expect(200);
    assert_eq!((&again["matched"], &again["replayed"]), (&json!(10_000), &json!(10_000)));
    assert_eq!(runs_by(&server, "replay"), 10_000);
}

/// A disk that is full for a moment refuses the second write; the answer says so and is kept for repetitions.
#[test]
fn a_disk_that_is_full_after_the_first_write_is_told_of_what_is_left() {
    let fixture = Fixture::new();
    let user_key = fixture.user("ann");
    let ids: Vec<String> = (0..150).map(|_| fixture.worker_cue(user_key, |_| ()).id).collect();
    let commits = AtomicUsize::new(0);
    // The first commit is that of the hook.
    let refuses = move || commits.fetch_add(1, Ordering::SeqCst) == 2;
    fixture.app.store.write(move |tx| Ok(tx.commit_hook(Some(refuses))?)).wait().unwrap();
    let begun = StoredResponse { status: 409, body: "{}".to_owned() };
    let key = IdempotencyRequest { key: "k".to_owned(), fingerprint: [0; 32] };
    let call = BulkCall { request: key, in_progress: begun };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pause = || {
        let request = BulkRequest::<CueResults> {
            ids: ids.clone(),
            call: Some(call.clone()),
            render: |done| {
                let refused = done.refused.iter().all(|it| it.refusal.code == ErrorCode::StorageUnavailable);
                assert!(refused, "{:?}", done.refused);
                Ok(StoredResponse { status: 200, body: format!("{} {}", done.ids.len(), done.refused.len()) })
            },
            explain: Box::new(|error| to_refusal(error, "id")),
        };
        let caller = Caller {
            user_key,
            user_id: "ann".to_owned(),
            credential: Credential::ApiKey { key: 1, hash: [0; 32] },
            plan: "free".to_owned(),
            limits: PlanLimits::NONE,
            executions: 0,
        };
        runtime.block_on(apply(&fixture.app, &caller, CueAction::Pause, request)).unwrap()
    };
    assert_eq!(pause(), StoredResponse { status: 200, body: "100 50".to_owned() });
    assert_eq!(pause().body, "100 50", "the answer is kept");
}
