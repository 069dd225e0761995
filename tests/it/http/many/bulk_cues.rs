//! `POST /v1/cues/bulk` and `/v1/cues/bulk-delete` (contract §4.15).

use cued::store::db::counters;
use serde_json::{Value, json};

use super::{START, id, status_of, webhook_cue, worker_cue};
use crate::support::client::{Client, Response};
use crate::support::server::{Server, until};

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
        assert_eq!(own.iter().map(|cue| status_of(&user, cue)).collect::<Vec<_>>(), vec![json!(status); 3]);
        check_counters(&server);
    }
    let done = bulk(&user, &json!({"ids": given, "action": "fire"})).expect(200);
    let runs: Vec<Value> = own.iter().map(|cue| user.only_execution(id(cue))["id"].clone()).collect();
    assert_eq!(done, json!({"matched": 5, "done": 3, "failed": failed, "execution_ids": runs}));
    let done = bulk(&user, &json!({"ids": given, "action": "delete"})).expect(200);
    assert_eq!(done, json!({"matched": 5, "done": 3, "failed": failed}));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
    assert_eq!(user.get("/v1/executions").expect(200)["total"], 0);
    assert_eq!(status_of(&other, &foreign), "active");
    until("the rows of the deleted cues are deleted", || {
        let rows = "SELECT (SELECT count(*) FROM deleted_cues) + (SELECT count(*) FROM executions)";
        (server.sqlite().query_row(rows, [], |row| row.get::<_, i64>(0)).unwrap() == 0).then_some(())
    });
    check_counters(&server);
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
    let run = super::fire(&user, &own[3]);
    user.post(&format!("/v1/executions/{run}/outcome"), &json!({"success": false})).expect(200);
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
        let refused = bulk(&user, &json!({"filter": filter, "expected": expected, "action": "delete"}));
        let refused = refused.expect_error(409, "invalid_state");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("matches {matched} ")), "{filter}: {message}");
        let dry = bulk(&user, &json!({"filter": filter, "dry_run": true, "action": "delete"})).expect(200);
        assert_eq!((&dry["matched"], &dry["has_more"]), (&json!(matched), &json!(false)), "{filter}");
        assert_eq!(user.get("/v1/cues").expect(200)["total"], 6, "{filter}: nothing was done");
    }
    let pause = json!({"filter": {"q": "cue "}, "expected": 4, "action": "pause"});
    assert_eq!(bulk(&user, &pause).expect(200), json!({"matched": 4, "done": 4, "failed": []}));
    assert_eq!([status_of(&user, &hook), status_of(&user, &described)], [json!("active"), json!("active")]);
    let delete = json!({"filter": {"status": "paused"}, "expected": 4, "action": "delete"});
    assert_eq!(bulk(&user, &delete).expect(200)["done"], 4);
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
    assert_eq!(other.get("/v1/cues").expect(200)["total"], 1);
}

#[test]
fn each_cue_has_the_rules_of_its_own_route() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let once = json!({"name": "once", "transport": "worker", "schedule": {"type": "once", "at": "2026-01-05T10:00:00Z"}});
    let (ended, due, cue) =
        (user.create(&once), user.create(&worker_cue("due")), user.create(&worker_cue("cue")));
    user.patch(&format!("/v1/cues/{}", id(&due)), &json!({"schedule": {"cron": "30 9 * * *"}})).expect(200);
    user.advance("PT1H");
    let run = user.only_execution(id(&ended));
    user.post(&format!("/v1/executions/{}/outcome", id(&run)), &json!({"success": true})).expect(200);
    let all = [id(&ended), id(&due), id(&cue)];
    let paused = bulk(&user, &json!({"ids": all, "action": "pause"})).expect(200);
    assert_eq!((&paused["done"], &paused["failed"][0]["code"]), (&json!(2), &json!("invalid_state")));
    let resumed = bulk(&user, &json!({"ids": all, "action": "resume"})).expect(200);
    assert_eq!((&resumed["done"], &resumed["failed"][0]["code"]), (&json!(2), &json!("invalid_schedule")));
    assert_eq!(resumed["failed"][0]["id"], ended["id"]);
    assert_eq!(user.executions_of(id(&due)).len(), 1);
    // A paused cue fires too, and so does an ended one.
    bulk(&user, &json!({"ids": all, "action": "pause"})).expect(200);
    assert_eq!(bulk(&user, &json!({"ids": all, "action": "fire"})).expect(200)["done"], 3);
    check_counters(&server);
}

#[test]
fn more_cues_than_a_write_takes_are_changed_in_several() {
    let server = Server::start(&["--dev", "--limits", "off", "--test-clock", START]);
    let user = server.user();
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
        let done = bulk(&user, &json!({"filter": {}, "expected": 1_200, "action": action})).expect(200);
        assert_eq!(
            (&done["matched"], &done["done"], &done["failed"]),
            (&json!(1_200), &json!(1_200), &json!([]))
        );
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
    let body = json!({"ids": [id(&own[1]), "cue_x", id(&own[0]), id(&foreign), id(&own[1])]}).to_string();
    // The clients of the public service send this header; it is not needed.
    for headers in [&[("X-Confirm-Destructive", "true")][..], &[]] {
        let done = user.call("POST", "/v1/cues/bulk-delete", headers, body.as_bytes()).unwrap().expect(200);
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
    let server = Server::with_test_clock(START);
    let user = server.user();
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
    send("/v1/cues/bulk-delete", &json!({"ids": ids(&own)})).expect_error(409, "idempotency_conflict");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
    // A refused request is not stored.
    let wrong = json!({"filter": {}, "expected": 7, "action": "pause"}).to_string();
    for _ in 0..2 {
        let refused =
            user.call("POST", "/v1/cues/bulk", &[("Idempotency-Key", "k2")], wrong.as_bytes()).unwrap();
        refused.expect_error(409, "invalid_state");
    }
    user.call("POST", "/v1/cues/bulk", &[("Idempotency-Key", "k2")], other.to_string().as_bytes())
        .unwrap()
        .expect(200);
    check_counters(&server);
}

#[test]
fn a_resume_above_the_limit_of_active_cues_leaves_the_rest_paused() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let table = json!({"free": {"cues": 3, "executions": 5, "requests_per_minute": null}});
    std::fs::write(&plans, table.to_string()).unwrap();
    let server = Server::start(&["--dev", "--test-clock", START, "--plans", plans.to_str().unwrap()]);
    let user = server.user();
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
    assert_eq!(failed.iter().map(|it| &it["id"]).collect::<Vec<_>>(), [&own[3]["id"], &own[4]["id"]]);
    assert!(failed.iter().all(|it| it["code"] == "cue_limit_exceeded"), "{done}");
    assert!(failed[0]["message"].as_str().unwrap().contains("3 active cues"), "{done}");
    assert_eq!(user.get("/v1/auth/me").expect(200)["active_cues"], 3);
    // The quota of five runs and its day of grace are used up in the middle.
    for _ in 0..2 {
        assert_eq!(bulk(&user, &json!({"ids": ids(&own), "action": "fire"})).expect(200)["done"], 5);
    }
    user.advance("P1DT1M");
    let refused = bulk(&user, &json!({"ids": ids(&own), "action": "fire"})).expect(200);
    assert_eq!((&refused["done"], &refused["execution_ids"]), (&json!(0), &json!([])));
    assert_eq!(refused["failed"][4]["code"], "execution_limit_exceeded");
    check_counters(&server);
}
