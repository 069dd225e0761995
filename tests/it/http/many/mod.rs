//! Bulk changes of cues, and their faults.

mod bulk_replays;
mod waiting;

use cued::domain::account::plan::PlanLimits;
use cued::domain::account::user::{Caller, Credential};
use cued::domain::api_error::ErrorCode;
use cued::http::message::to_refusal;
use cued::service::bulk::{BulkAction, BulkCall, BulkRequest, CueAction, run};
use cued::store::accounts::idempotency::{IdempotencyRequest, StoredResponse};
use cued::store::db::counters;

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

/// A server that deletes no runs, and a user.
fn keeping_all() -> (Server, Client) {
    Server::with_user(&words(&format!("--dev --limits off --retain off --test-clock {START}")))
}

/// A worker cue that runs at the beginning of a year.
fn worker_cue(name: &str) -> Value {
    json!({"name": name, "transport": "worker", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}})
}

/// A cue that is sent to `url` at the beginning of a year.
fn webhook_cue(url: &str) -> Value {
    json!({"name": "hook", "callback": {"url": url}, "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
           "retry": {"max_attempts": 3, "backoff_minutes": [60]}})
}

fn status_of(user: &Client, cue: &Value) -> Value {
    user.get(&format!("/v1/cues/{}", id(cue))).expect(200)["status"].clone()
}

/// Worker executions that failed, oldest first.
fn failed_runs(user: &Client, cue: &Value, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            let id = user.fire(cue);
            user.report(&id, &json!({"success": false}));
            id
        })
        .collect()
}

/// Adds copies of the first execution.
fn copy_failed(server: &Server, count: i64) {
    server
        .sqlite()
        .execute(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
             INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                                     attempts, created_at, updated_at)
             SELECT randomblob(16), cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                    attempts, created_at, updated_at
               FROM number, (SELECT * FROM executions ORDER BY key LIMIT 1)",
            [count],
        )
        .unwrap();
}

fn bulk(user: &Client, body: &Value) -> Response {
    user.post("/v1/cues/bulk", body)
}

fn cues(user: &Client, count: usize) -> Vec<Value> {
    (0..count).map(|number| user.create(&worker_cue(&format!("cue {number}")))).collect()
}

fn ids(cues: &[Value]) -> Vec<&str> {
    cues.iter().map(id).collect()
}

#[track_caller]
fn check_counters(server: &Server) {
    assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
}

#[test]
fn cues_are_paused_resumed_fired_and_deleted_by_id() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let (own, foreign) = (cues(&user, 3), other.create(&worker_cue("foreign")));
    let given = [id(&own[0]), id(&foreign), id(&own[1]), id(&own[0]), "cue_nothing", id(&own[2])];
    let missing = |id: &str| json!({"id": id, "code": "cue_not_found", "message": "Cue not found"});
    let failed = json!([missing(id(&foreign)), missing("cue_nothing")]);
    for (action, status) in [("pause", "paused"), ("resume", "active")] {
        let done = bulk(&user, &json!({"ids": given, "action": action})).expect(200);
        assert_eq!(done, json!({"matched": 5, "done": 3, "failed": failed}), "{action}");
        assert_eq!(
            own.iter().map(|cue| status_of(&user, cue)).collect::<Vec<_>>(),
            vec![json!(status); 3]
        );
        check_counters(&server);
    }
    let done = bulk(&user, &json!({"ids": given, "action": "fire"})).expect(200);
    let runs: Vec<Value> =
        own.iter().map(|cue| user.only_execution(id(cue))["id"].clone()).collect();
    assert_eq!(done, json!({"matched": 5, "done": 3, "failed": failed, "execution_ids": runs}));
    let done = bulk(&user, &json!({"ids": given, "action": "delete"})).expect(200);
    assert_eq!(done, json!({"matched": 5, "done": 3, "failed": failed}));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
    assert_eq!(user.get("/v1/executions").expect(200)["total"], 0);
    assert_eq!(status_of(&other, &foreign), "active");
    until("the rows of the deleted cues are deleted", || {
        let rows = "SELECT (SELECT count(*) FROM deleted_cues) + (SELECT count(*) FROM executions)";
        (server.sqlite().query_row(rows, [], |row| row.get::<_, i64>(0)).unwrap() == 0)
            .then_some(())
    });
}

#[test]
fn a_filter_takes_what_it_matches_if_the_number_is_the_expected_one() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let own = cues(&user, 4);
    let hook = user.create(&webhook_cue("http://Hooks.example.com/secret"));
    let mut described = worker_cue("other");
    described["description"] = json!("Sends the STRASSE report");
    let described = user.create(&described);
    other.create(&worker_cue("cue of another user"));
    let run = user.fire(&own[3]);
    user.report(&run, &json!({"success": false}));
    user.patch(&format!("/v1/cues/{}", id(&own[0])), &json!({"status": "paused"})).expect(200);
    for (filter, matched) in [
        (json!({"q": "CUE "}), 4),
        (json!({"q": "cue_"}), 6),
        (json!({"q": id(&own[1])}), 1),
        (json!({"q": "hooks.EXAMPLE"}), 1),
        (json!({"q": "secret"}), 0),
        (json!({"q": "straße"}), 1),
        (json!({"q": "cue ", "status": "active"}), 3),
        (json!({"status": "paused"}), 1),
        (json!({"transport": "webhook"}), 1),
        (json!({"failing": true}), 1),
        (json!({"failing": false, "status": "active", "transport": "worker", "q": null}), 3),
        (json!({}), 6),
    ] {
        let expected = if matched == 0 { 1 } else { matched - 1 };
        let refused =
            bulk(&user, &json!({"filter": filter, "expected": expected, "action": "delete"}));
        let refused = refused.expect_error(409, "invalid_state");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("matches {matched} ")), "{filter}: {message}");
        let dry = bulk(&user, &json!({"filter": filter, "dry_run": true, "action": "delete"}))
            .expect(200);
        assert_eq!(dry["matched"], json!(matched), "{filter}");
        assert_eq!(dry["has_more"], false, "{filter}");
        assert_eq!(user.get("/v1/cues").expect(200)["total"], 6, "{filter}: nothing was done");
    }
    let pause = json!({"filter": {"q": "cue "}, "expected": 4, "action": "pause"});
    assert_eq!(bulk(&user, &pause).expect(200), json!({"matched": 4, "done": 4, "failed": []}));
    assert_eq!(
        [status_of(&user, &hook), status_of(&user, &described)],
        [json!("active"), json!("active")]
    );
    let delete = json!({"filter": {"status": "paused"}, "expected": 4, "action": "delete"});
    assert_eq!(bulk(&user, &delete).expect(200)["done"], 4);
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
    assert_eq!(other.get("/v1/cues").expect(200)["total"], 1);
}

#[test]
fn each_cue_has_the_rules_of_its_own_route() {
    let (_server, user) = Server::with_clock_and_user(START);
    let once = json!({"name": "once", "transport": "worker", "schedule": {"type": "once", "at": "2026-01-05T10:00:00Z"}});
    let (ended, due, cue) =
        (user.create(&once), user.create(&worker_cue("due")), user.create(&worker_cue("cue")));
    user.patch(&format!("/v1/cues/{}", id(&due)), &json!({"schedule": {"cron": "30 9 * * *"}}))
        .expect(200);
    user.advance("PT1H");
    let run = user.only_execution(id(&ended));
    user.report(id(&run), &json!({"success": true}));
    let all = [id(&ended), id(&due), id(&cue)];
    let paused = bulk(&user, &json!({"ids": all, "action": "pause"})).expect(200);
    assert_eq!(paused["done"], 2);
    assert_eq!(paused["failed"][0]["code"], "invalid_state");
    let resumed = bulk(&user, &json!({"ids": all, "action": "resume"})).expect(200);
    assert_eq!(resumed["done"], 2);
    assert_eq!(resumed["failed"][0]["code"], "invalid_schedule");
    assert_eq!(resumed["failed"][0]["id"], ended["id"]);
    assert_eq!(user.executions_of(id(&due)).len(), 1);
    // A paused cue fires too, and so does an ended one.
    bulk(&user, &json!({"ids": all, "action": "pause"})).expect(200);
    assert_eq!(bulk(&user, &json!({"ids": all, "action": "fire"})).expect(200)["done"], 3);
}

#[test]
fn more_cues_than_a_write_takes_are_changed_in_several() {
    let (server, user) = Server::with_user(&["--dev", "--limits", "off", "--test-clock", START]);
    let mut made = cues(&user, 30);
    made.truncate(0);
    let file = server.sqlite();
    // Copies of the first cue: to make a thousand by request would take longer.
    file.execute_batch(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1170)
         INSERT INTO cues (id, user_key, status, next_run, run_count, missed_count, transport, cron, timezone, catch_up,
                           max_attempts, backoff_minutes, on_failure, verification, callback_method, callback_headers,
                           name, created_at, updated_at)
         SELECT printf('cue_%012d', n), user_key, status, next_run, 0, 0, transport, cron, timezone, catch_up,
                max_attempts, backoff_minutes, on_failure, verification, callback_method, callback_headers, name,
                created_at, updated_at FROM number, (SELECT * FROM cues ORDER BY key LIMIT 1);
         UPDATE users SET active_cues = 1200",
    )
    .unwrap();
    for (action, active) in [("pause", 0), ("resume", 1_200), ("fire", 1_200), ("delete", 0)] {
        let done =
            bulk(&user, &json!({"filter": {}, "expected": 1_200, "action": action})).expect(200);
        assert_has(&done, json!({"matched": 1_200, "done": 1_200, "failed": []}));
        assert_eq!(user.get("/v1/auth/me").expect(200)["active_cues"], active, "{action}");
        if action == "fire" {
            assert_eq!(done["execution_ids"].as_array().unwrap().len(), 1_200);
            assert_eq!(user.get("/health").expect(200)["queue"]["pending_worker_claims"], 1_200);
        }
        check_counters(&server);
    }
    assert_eq!(user.get("/v1/executions").expect(200)["total"], 0);
}

#[test]
fn bulk_delete_answers_with_the_ids() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let (own, foreign) = (cues(&user, 3), other.create(&worker_cue("foreign")));
    let body =
        json!({"ids": [id(&own[1]), "cue_x", id(&own[0]), id(&foreign), id(&own[1])]}).to_string();
    // The clients of the public service send this header; it is not needed.
    for headers in [&[("X-Confirm-Destructive", "true")][..], &[]] {
        let done = user
            .call("POST", "/v1/cues/bulk-delete", headers, body.as_bytes())
            .unwrap()
            .expect(200);
        let (deleted, skipped) = match headers {
            [] => (json!([]), json!([id(&own[1]), "cue_x", id(&own[0]), id(&foreign)])),
            _ => (json!([id(&own[1]), id(&own[0])]), json!(["cue_x", id(&foreign)])),
        };
        assert_eq!(done, json!({"deleted": deleted, "skipped": skipped}));
    }
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
    assert_eq!(status_of(&other, &foreign), "active");
}

#[test]
fn a_repeated_request_with_its_key_is_answered_and_does_nothing() {
    let (_server, user) = Server::with_clock_and_user(START);
    let own = cues(&user, 2);
    let send = |path: &str, body: &Value| {
        user.call("POST", path, &[("Idempotency-Key", "k1")], body.to_string().as_bytes()).unwrap()
    };
    let delete = json!({"filter": {"q": "cue 0"}, "expected": 1, "action": "delete"});
    let first = send("/v1/cues/bulk", &delete);
    assert_eq!(first.expect(200)["done"], 1);
    // The filter matches nothing any more; the answer is the first one all the same.
    assert_eq!(send("/v1/cues/bulk", &delete).expect(200), first.json());
    let other = json!({"ids": ids(&own), "action": "fire"});
    send("/v1/cues/bulk", &other).expect_error(409, "idempotency_conflict");
    send("/v1/cues/bulk-delete", &json!({"ids": ids(&own)}))
        .expect_error(409, "idempotency_conflict");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
    // A refused request is not stored.
    let wrong = json!({"filter": {}, "expected": 7, "action": "pause"}).to_string();
    for _ in 0..2 {
        let refused = user
            .call("POST", "/v1/cues/bulk", &[("Idempotency-Key", "k2")], wrong.as_bytes())
            .unwrap();
        refused.expect_error(409, "invalid_state");
    }
    user.call("POST", "/v1/cues/bulk", &[("Idempotency-Key", "k2")], other.to_string().as_bytes())
        .unwrap()
        .expect(200);
}

#[test]
fn a_resume_above_the_limit_of_active_cues_leaves_the_rest_paused() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let table = json!({"free": {"cues": 3, "executions": 5, "requests_per_minute": null}});
    std::fs::write(&plans, table.to_string()).unwrap();
    let (_server, user) =
        Server::with_user(&["--dev", "--test-clock", START, "--plans", plans.to_str().unwrap()]);
    let own: Vec<Value> = (0..5)
        .map(|_| {
            let cue = user.create(&worker_cue("cue"));
            bulk(&user, &json!({"ids": [id(&cue)], "action": "pause"})).expect(200);
            cue
        })
        .collect();
    let done = bulk(&user, &json!({"ids": ids(&own), "action": "resume"})).expect(200);
    assert_eq!((&done["matched"], &done["done"]), (&json!(5), &json!(3)));
    let failed = done["failed"].as_array().unwrap();
    assert_eq!(
        failed.iter().map(|it| &it["id"]).collect::<Vec<_>>(),
        [&own[3]["id"], &own[4]["id"]]
    );
    assert!(failed.iter().all(|it| it["code"] == "cue_limit_exceeded"), "{done}");
    assert!(failed[0]["message"].as_str().unwrap().contains("3 active cues"), "{done}");
    assert_eq!(user.get("/v1/auth/me").expect(200)["active_cues"], 3);
    // The quota of five runs and its day of grace are used up in the middle.
    for _ in 0..2 {
        assert_eq!(
            bulk(&user, &json!({"ids": ids(&own), "action": "fire"})).expect(200)["done"],
            5
        );
    }
    user.advance("P1DT1M");
    let refused = bulk(&user, &json!({"ids": ids(&own), "action": "fire"})).expect(200);
    assert_eq!((&refused["done"], &refused["execution_ids"]), (&json!(0), &json!([])));
    assert_eq!(refused["failed"][4]["code"], "execution_limit_exceeded");
}

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
    let (server, user) = keeping_all();
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
}

#[test]
fn a_fault_after_the_first_write_of_fires_names_the_cues_that_were_not_fired() {
    let (server, user) = keeping_all();
    let cues: Vec<Value> =
        (0..120).map(|number| user.create(&worker_cue(&format!("cue {number}")))).collect();
    let ids: Vec<&str> = cues.iter().map(id).collect();
    refuse_after(&server, "manual_fire", 110);
    let done = user.post("/v1/cues/bulk", &json!({"ids": ids, "action": "fire"})).expect(200);
    assert_eq!((&done["matched"], &done["done"]), (&json!(120), &json!(100)));
    let failed = done["failed"].as_array().unwrap();
    assert_eq!(failed.iter().map(id).collect::<Vec<_>>(), ids[100..]);
    assert!(failed[0]["message"].as_str().unwrap().contains("server log"), "{}", failed[0]);
    assert_eq!(runs_by(&server, "manual_fire"), 100);
}

/// Four replays with a payload of a megabyte of their own are as much work as a hundred without one.
#[test]
fn a_write_replays_fewer_executions_with_large_payloads() {
    let (server, user) = keeping_all();
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
    server
        .sqlite()
        .execute("UPDATE executions SET payload_key = NULL WHERE status = 'failed'", [])
        .unwrap();
    refuse_after(&server, "replay", 144);
    let done = user.post(REPLAY, &json!({"filter": {}, "expected": 150})).expect(200);
    assert_eq!(done["replayed"], 100);
}

#[test]
fn a_client_that_disconnects_stops_nothing_and_a_repetition_gets_the_answer() {
    let (server, user) = keeping_all();
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
        let request = BulkRequest {
            action: BulkAction::Cues(CueAction::Pause),
            ids: ids.clone(),
            call: Some(call.clone()),
            render: |done| {
                let refused = done
                    .refused
                    .iter()
                    .all(|(_, refusal)| refusal.code == ErrorCode::StorageUnavailable);
                assert!(refused, "{:?}", done.refused);
                Ok(StoredResponse {
                    status: 200,
                    body: format!("{} {}", done.ids.len(), done.refused.len()),
                })
            },
            explain: Box::new(|error| to_refusal(error, "id")),
        };
        let caller = Caller {
            user_key,
            user_id: "ann".to_owned(),
            credential: Credential::ApiKey { key: 1, hash: [0; 32] },
            plan: "free".to_owned(),
            limits: PlanLimits::NONE,
            is_operator: false,
            executions: 0,
        };
        runtime.block_on(run(&fixture.app, &caller, request)).unwrap()
    };
    assert_eq!(pause(), StoredResponse { status: 200, body: "100 50".to_owned() });
    assert_eq!(pause().body, "100 50", "the answer is kept");
}
