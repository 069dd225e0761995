//! Bulk changes of cues, and their faults.

mod bulk_replays;
mod waiting;

use cued::domain::api_error::ErrorCode;
use cued::http::message::to_refusal;
use cued::service::bulk::{BulkAction, BulkCall, BulkRequest, CueAction, run};
use cued::store::accounts::idempotency::{IdempotencyRequest, StoredResponse};

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

const BULK: &str = "/v1/cues/bulk";
const REPLAY: &str = "/v1/executions/replay";

/// A server that deletes no runs, and a user.
fn keeping_all() -> (Server, Client) {
    Server::with_user(&words(&format!("--dev --limits off --retain off --test-clock {START}")))
}

fn work(name: &str) -> Value {
    worker_cue(name, YEARLY)
}

/// A cue that is sent to `url` by request.
fn hook(url: &str) -> Value {
    let retry = json!({"retry": {"max_attempts": 3, "backoff_minutes": [60]}});
    with(webhook_cue("hook", YEARLY, url), retry)
}

fn status_of(user: &Client, cue: &Value) -> Value {
    user.cue(cue)["status"].clone()
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
    server.sql(&format!(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
         INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                                 attempts, created_at, updated_at)
         SELECT randomblob(16), cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                attempts, created_at, updated_at
           FROM number, (SELECT * FROM executions ORDER BY key LIMIT 1)"
    ));
}

fn bulk(user: &Client, body: &Value) -> Response {
    user.post(BULK, body)
}

/// A request with another number than the one that its filter matches is refused. Returns what a dry run says.
#[track_caller]
fn matching(user: &Client, path: &str, request: Value, matched: usize) -> Value {
    let other = with(request.clone(), json!({"expected": matched + 1}));
    user.post(path, &other).refuses(409, "invalid_state", &format!("matches {matched} "));
    let dry = user.post(path, &with(request, json!({"dry_run": true}))).expect(200);
    assert_has(&dry, json!({"matched": matched, "has_more": false}));
    dry
}

fn cues(user: &Client, count: usize) -> Vec<Value> {
    (0..count).map(|number| user.create(&work(&format!("cue {number}")))).collect()
}

fn ids(cues: &[Value]) -> Vec<&str> {
    cues.iter().map(id).collect()
}

#[test]
fn cues_are_paused_resumed_fired_and_deleted_by_id() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let (own, foreign) = (cues(&user, 3), other.create(&work("foreign")));
    let given = [id(&own[0]), id(&foreign), id(&own[1]), id(&own[0]), "cue_nothing", id(&own[2])];
    let missing = |id: &str| json!({"id": id, "code": "cue_not_found", "message": "Cue not found"});
    let failed = json!([missing(id(&foreign)), missing("cue_nothing")]);
    let done = json!({"matched": 5, "done": 3, "failed": failed});
    let act = |action: &str| bulk(&user, &json!({"ids": given, "action": action})).expect(200);
    for (action, status) in [("pause", "paused"), ("resume", "active")] {
        assert_eq!(act(action), done, "{action}");
        assert!(own.iter().all(|cue| status_of(&user, cue) == status), "{action}");
        server.assert_counters();
    }
    let fired = act("fire");
    let runs: Vec<Value> =
        own.iter().map(|cue| user.only_execution(id(cue))["id"].clone()).collect();
    assert_eq!(fired, with(done.clone(), json!({"execution_ids": runs})));
    assert_eq!(act("delete"), done);
    assert_eq!((user.total("/v1/cues"), user.total("/v1/executions")), (json!(0), json!(0)));
    let skipped = json!({"deleted": [], "skipped": [id(&foreign)]});
    let deleted = user.post("/v1/cues/bulk-delete", &json!({"ids": [id(&foreign)]})).expect(200);
    assert_eq!((deleted, status_of(&other, &foreign)), (skipped, json!("active")));
    let rows = "SELECT (SELECT count(*) FROM deleted_cues) + (SELECT count(*) FROM executions)";
    until_true("the rows of the deleted cues are deleted", || server.count(rows) == 0);
}

#[test]
fn each_cue_has_the_rules_of_its_own_route() {
    let (_server, user) = Server::with_clock_and_user(START);
    let once = json!({"schedule": {"type": "once", "at": "2026-01-05T10:00:00Z"}});
    let ended = user.create(&with(work("once"), once));
    let (due, cue) = (user.create(&work("due")), user.create(&work("cue")));
    user.change(&due, &json!({"schedule": {"cron": "30 9 * * *"}}));
    user.advance("PT1H");
    user.report(id(&user.only_execution(id(&ended))), &json!({"success": true}));
    let all = [id(&ended), id(&due), id(&cue)];
    let act = |action: &str| bulk(&user, &json!({"ids": all, "action": action})).expect(200);
    for (action, code) in [("pause", "invalid_state"), ("resume", "invalid_schedule")] {
        let done = act(action);
        assert_eq!(done["done"], 2, "{action}");
        assert_has(&done["failed"][0], json!({"id": ended["id"], "code": code}));
    }
    assert_eq!(user.executions_of(id(&due)).len(), 1);
    // A paused cue fires too, and so does an ended one.
    act("pause");
    assert_eq!(act("fire")["done"], 3);
}

#[test]
fn more_cues_than_a_write_takes_are_changed_in_several() {
    let (server, user) = Server::with_clock_and_user(START);
    cues(&user, 30);
    let other = server.user();
    let foreign = other.create(&work("foreign"));
    // Copies of the first cue: to make a thousand by request would take longer.
    server.sql(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1170)
         INSERT INTO cues (id, user_key, status, next_run, run_count, missed_count, transport, cron, timezone, catch_up,
                           max_attempts, backoff_minutes, on_failure, verification, callback_method, callback_headers,
                           name, created_at, updated_at)
         SELECT printf('cue_%012d', n), user_key, status, next_run, 0, 0, transport, cron, timezone, catch_up,
                max_attempts, backoff_minutes, on_failure, verification, callback_method, callback_headers, name,
                created_at, updated_at FROM number, (SELECT * FROM cues ORDER BY key LIMIT 1);
         UPDATE users SET active_cues = 1200 WHERE active_cues = 30",
    );
    for (action, active) in [("pause", 0), ("resume", 1_200), ("fire", 1_200), ("delete", 0)] {
        let done = json!({"filter": {}, "expected": 1_200, "action": action});
        let done = bulk(&user, &done).expect(200);
        assert_has(&done, json!({"matched": 1_200, "done": 1_200, "failed": []}));
        assert_eq!(user.me()["active_cues"], active, "{action}");
        if action == "fire" {
            assert_eq!(done.list("execution_ids").len(), 1_200);
            assert_eq!(user.read("/health")["queue"]["pending_worker_claims"], 1_200);
        }
        server.assert_counters();
    }
    assert_eq!(user.total("/v1/executions"), 0);
    assert_has(&other.cue(&foreign), json!({"status": "active", "run_count": 0}));
}

#[test]
fn a_resume_above_the_limit_of_active_cues_leaves_the_rest_paused() {
    let plans = Plans::free(&json!({"cues": 3, "executions": 5, "requests_per_minute": null}));
    let (_server, user) = plans.with_user(&["--dev", "--test-clock", START]);
    let own: Vec<Value> = (0..5)
        .map(|_| {
            let cue = user.create(&work("cue"));
            user.change(&cue, &json!({"status": "paused"}));
            cue
        })
        .collect();
    let act = |action: &str| bulk(&user, &json!({"ids": ids(&own), "action": action})).expect(200);
    let done = act("resume");
    assert_has(&done, json!({"matched": 5, "done": 3}));
    assert_eq!(done.column("failed", "id"), [&own[3]["id"], &own[4]["id"]].map(Value::clone));
    assert_eq!(done.column("failed", "code"), ["cue_limit_exceeded"; 2]);
    assert_contains(done["failed"][0].text("message"), &["3 active cues"]);
    assert_eq!(user.me()["active_cues"], 3);
    // The quota of five runs and its day of grace are used up in the middle.
    (0..2).for_each(|_| assert_eq!(act("fire")["done"], 5));
    user.advance("P1DT1M");
    let refused = act("fire");
    assert_has(&refused, json!({"done": 0, "execution_ids": []}));
    assert_eq!(refused["failed"][4]["code"], "execution_limit_exceeded");
}

fn runs_by(server: &Server, trigger: &str) -> i64 {
    server.count(&format!("SELECT count(*) FROM executions WHERE triggered_by = '{trigger}'"))
}

/// Lets the file refuse the insertion of a run once there are `count` of its kind.
fn refuse_after(server: &Server, trigger: &str, count: usize) {
    server.sql(&format!(
        "DROP TRIGGER IF EXISTS refuse;
         CREATE TRIGGER refuse BEFORE INSERT ON executions
           WHEN new.triggered_by = '{trigger}'
                AND (SELECT count(*) FROM executions WHERE triggered_by = '{trigger}') >= {count}
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    ));
}

fn allow(server: &Server) {
    server.sql("DROP TRIGGER refuse");
}

#[test]
fn a_fault_after_the_first_write_is_told_of_what_is_left() {
    let (server, user) = keeping_all();
    failed_runs(&user, &user.create(&work("work")), 1);
    copy_failed(&server, 249);
    let all = json!({"filter": {"status": "failed"}, "expected": 250});
    refuse_after(&server, "replay", 50);
    user.keyed(REPLAY, "k", &all).expect_error(500, "internal_error");
    assert_eq!(runs_by(&server, "replay"), 0, "the first write did nothing");
    refuse_after(&server, "replay", 150);
    let first = user.keyed(REPLAY, "k", &all).expect(200);
    assert_has(&first, json!({"matched": 250, "replayed": 100}));
    assert_eq!(first.list("execution_ids").len(), 100);
    assert_eq!(first.column("skipped", "code"), ["internal_error"; 150]);
    assert_contains(&server.log(), &["refused"]);
    allow(&server);
    assert_eq!(user.keyed(REPLAY, "k", &all).expect(200), first);
    assert_eq!(runs_by(&server, "replay"), 100);
    let left = json!({"ids": first.column("skipped", "id")});
    assert_eq!(user.post(REPLAY, &left).expect(200)["replayed"], 150);
}

#[test]
fn a_fault_after_the_first_write_of_fires_names_the_cues_that_were_not_fired() {
    let (server, user) = keeping_all();
    let cues = cues(&user, 120);
    refuse_after(&server, "manual_fire", 110);
    let done = bulk(&user, &json!({"ids": ids(&cues), "action": "fire"})).expect(200);
    assert_has(&done, json!({"matched": 120, "done": 100}));
    assert_eq!(done.column("failed", "id"), ids(&cues)[100..]);
    assert_contains(done["failed"][0].text("message"), &["server log"]);
    assert_eq!(runs_by(&server, "manual_fire"), 100);
}

/// Four replays with a payload of a megabyte of their own are as much work as a hundred without one.
#[test]
fn a_write_replays_fewer_executions_with_large_payloads() {
    let (server, user) = keeping_all();
    let payload = json!({"payload": {"data": "x".repeat(1_000_000)}});
    let cue = user.create(&with(work("work"), payload));
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 9);
    user.change(&cue, &json!({"payload": {}}));
    let replayed = |expected: usize| {
        let all = json!({"filter": {}, "expected": expected});
        user.post(REPLAY, &all).expect(200)["replayed"].clone()
    };
    refuse_after(&server, "replay", 5);
    assert_eq!(replayed(10), 4, "the second write failed");
    allow(&server);
    // Without a copy a write takes a hundred.
    copy_failed(&server, 140);
    server.sql("UPDATE executions SET payload_key = NULL WHERE status = 'failed'");
    refuse_after(&server, "replay", 144);
    assert_eq!(replayed(150), 100);
}

#[test]
fn a_client_that_disconnects_stops_nothing_and_a_repetition_gets_the_answer() {
    let (server, user) = keeping_all();
    failed_runs(&user, &user.create(&work("work")), 1);
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
    until_true("the first write", || runs_by(&server, "replay") > 0);
    drop(connection);
    until_true("the last write", || runs_by(&server, "replay") == 10_000);
    let again = user.keyed(REPLAY, "k", &body).expect(200);
    assert_has(&again, json!({"matched": 10_000, "replayed": 10_000}));
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
                let mut codes = done.refused.iter().map(|(_, refusal)| refusal.code);
                let refused = codes.all(|code| code == ErrorCode::StorageUnavailable);
                assert!(refused, "{:?}", done.refused);
                let body = format!("{} {}", done.ids.len(), done.refused.len());
                Ok(StoredResponse { status: 200, body })
            },
            explain: Box::new(|error| to_refusal(error, "id")),
        };
        let caller = fixture.caller(user_key);
        runtime.block_on(run(&fixture.app, &caller, request)).unwrap()
    };
    assert_eq!(pause(), StoredResponse { status: 200, body: "100 50".to_owned() });
    assert_eq!(pause().body, "100 50", "the answer is kept");
}
