//! Bulk replays, and the bounds of bulk requests.

use crate::http::many::{
    START, check_counters, copy_failed, failed_runs, id, keeping_all, status_of, webhook_cue,
    worker_cue,
};
use crate::support::*;

fn replay(user: &Client, body: &Value) -> Response {
    user.post("/v1/executions/replay", body)
}

#[test]
fn executions_are_replayed_by_id_oldest_first() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let cue = user.create(&worker_cue("work"));
    let failed = failed_runs(&user, &cue, 3);
    let open = user.fire(&cue);
    let foreign = failed_runs(&other, &other.create(&worker_cue("foreign")), 1).remove(0);
    let ids =
        [&failed[2], &open, &failed[0], &foreign, &failed[0].to_uppercase(), &failed[1], "no id"];
    let done = replay(&user, &json!({"ids": ids})).expect(200);
    assert_eq!((&done["matched"], &done["replayed"]), (&json!(6), &json!(3)));
    let mut skipped = done["skipped"].as_array().unwrap().clone();
    skipped.sort_by_key(|it| it["code"].to_string());
    assert_eq!(skipped[0], json!({"id": open, "code": "execution_in_flight"}));
    assert_eq!(skipped[1]["code"], "execution_not_found");
    assert_eq!(skipped[2]["code"], "execution_not_found");
    let replays: Vec<Value> =
        user.get("/v1/executions?triggered_by=replay").expect(200)["executions"]
            .as_array()
            .unwrap()
            .iter()
            .rev()
            .map(|it| it["id"].clone())
            .collect();
    assert_eq!(done["execution_ids"], json!(replays), "in the order of their creation");
    assert_eq!(other.get("/v1/executions").expect(200)["total"], 1);
}

#[test]
fn a_filter_replays_what_failed_if_the_number_is_the_expected_one() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(410)));
    let (user, other) = (server.user(), server.user());
    let (work, deleted) = (user.create(&worker_cue("work")), user.create(&worker_cue("deleted")));
    let early = failed_runs(&user, &work, 2);
    failed_runs(&user, &deleted, 1);
    failed_runs(&other, &other.create(&worker_cue("foreign")), 1);
    user.delete(&format!("/v1/cues/{}", id(&deleted)));
    user.advance("PT1H");
    let late = failed_runs(&user, &work, 1);
    let hook = user.create(&webhook_cue(&receiver.url()));
    let gone = user.fire(&hook);
    user.fire(&work);
    user.settle();
    assert_eq!(user.execution(&gone)["status"], "failed");
    let total = || user.get("/v1/executions").expect(200)["total"].clone();
    let before = total();
    for (filter, matched) in [
        (json!({}), 4),
        (json!({"status": "failed"}), 4),
        (json!({"cue_id": id(&work)}), 3),
        (json!({"cue_id": id(&hook)}), 1),
        (json!({"cue_id": id(&deleted)}), 0),
        (json!({"cue_id": "cue_nothing"}), 0),
        (json!({"since": "2026-01-05T10:00:00Z"}), 2),
        (json!({"until": "2026-01-05T10:00:00Z"}), 2),
        (json!({"since": START, "until": "2026-01-05T11:00:00+01:00", "cue_id": id(&work)}), 2),
        (json!({"since": "2026-01-05T10:00:00.001"}), 0),
        (json!({"cause": "timeout"}), 0),
    ] {
        let refused = replay(&user, &json!({"filter": filter, "expected": matched + 1}));
        let refused = refused.expect_error(409, "invalid_state");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("matches {matched} ")), "{filter}: {message}");
        let dry = replay(&user, &json!({"filter": filter, "dry_run": true})).expect(200);
        let ids = dry["ids"].as_array().unwrap();
        assert_eq!((&dry["matched"], ids.len()), (&json!(matched), matched), "{filter}");
        assert!(ids.is_sorted_by_key(|id| id.as_str()), "oldest first: {ids:?}");
    }
    let dry = replay(&user, &json!({"ids": [&early[1], &early[0], &early[1]], "dry_run": true}))
        .expect(200);
    assert_eq!(dry, json!({"matched": 2, "dry_run": true, "ids": early, "has_more": false}));
    assert_eq!(total(), before, "nothing was done");
    let done = replay(&user, &json!({"filter": {"cue_id": id(&work)}, "expected": 3})).expect(200);
    assert_has(&done, json!({"matched": 3, "replayed": 3, "skipped": []}));
    assert_eq!(early.len() + late.len(), 3);
}

#[test]
fn more_executions_than_a_write_takes_are_replayed_in_several() {
    let (server, user) = keeping_all();
    let mut cue = worker_cue("work");
    cue["payload"] = json!({"task": "t"});
    let cue = user.create(&cue);
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 1_199);
    let done =
        replay(&user, &json!({"filter": {"status": "failed"}, "expected": 1_200})).expect(200);
    assert_has(&done, json!({"matched": 1_200, "replayed": 1_200, "skipped": []}));
    let ids: Vec<String> = done["execution_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    assert!(ids.is_sorted() && ids.len() == 1_200);
    assert_eq!(user.get("/health").expect(200)["queue"]["pending_worker_claims"], 1_200);
    check_counters(&server);
    // More than the bound of a filter: nothing is done.
    copy_failed(&server, 8_801);
    let expected = json!({"filter": {"status": "failed"}, "expected": 10_000});
    let refused = replay(&user, &expected).expect_error(422, "validation_error");
    assert_eq!(refused["detail"][0]["loc"], json!(["body", "filter"]));
    assert_contains(refused["detail"][0]["msg"].as_str().unwrap(), &["narrow since and until"]);
    let dry = replay(&user, &json!({"filter": {}, "dry_run": true})).expect(200);
    assert_eq!((&dry["matched"], &dry["has_more"]), (&json!(10_000), &json!(true)));
    assert_eq!(user.get("/health").expect(200)["queue"]["pending_worker_claims"], 1_200);
}

#[test]
fn a_limit_that_is_reached_in_the_middle_skips_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let table = json!({"free": {"cues": 3, "executions": 3, "requests_per_minute": null, "storage_mb": 1},
                       "big": {"cues": 3, "executions": 100, "requests_per_minute": null, "storage_mb": 1}});
    std::fs::write(&plans, table.to_string()).unwrap();
    let (server, user) =
        Server::with_user(&["--dev", "--test-clock", START, "--plans", plans.to_str().unwrap()]);
    let cue = user.create(&worker_cue("work"));
    let failed = failed_runs(&user, &cue, 4);
    // The fourth run is above the quota of three, which ends a day later.
    user.advance("P1DT1M");
    let done = replay(&user, &json!({"ids": failed})).expect(200);
    assert_eq!((&done["replayed"], &done["execution_ids"]), (&json!(0), &json!([])));
    for (skipped, id) in done["skipped"].as_array().unwrap().iter().zip(&failed) {
        assert_eq!(skipped, &json!({"id": id, "code": "execution_limit_exceeded"}));
    }
    // Replays with a payload of their own: 300 kB each, so three fit into one megabyte.
    server.sqlite().execute("UPDATE users SET plan = 'big'", []).unwrap();
    user.advance("P31D");
    let mut large = worker_cue("large");
    large["payload"] = json!({"data": "x".repeat(250_000)});
    let large = user.create(&large);
    let failed = failed_runs(&user, &large, 4);
    user.patch(&format!("/v1/cues/{}", id(&large)), &json!({"payload": {"now": "small"}}))
        .expect(200);
    let done = replay(&user, &json!({"ids": failed})).expect(200);
    assert_eq!((&done["matched"], &done["replayed"]), (&json!(4), &json!(3)), "{done}");
    assert_eq!(done["skipped"], json!([{"id": failed[3], "code": "storage_limit_exceeded"}]));
}

/// A process that ends between two writes leaves what was done; a repetition with the key does nothing twice.
#[test]
fn an_interrupted_replay_is_not_repeated_by_its_key() {
    let (mut server, user) = Server::with_user(&["--dev", "--limits", "off"]);
    let cue = user.create(&worker_cue("work"));
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 9_999);
    let body = json!({"filter": {"status": "failed"}, "expected": 10_000}).to_string();
    let (sender, text) = (user.clone(), body.clone());
    let request = std::thread::spawn(move || {
        sender.call("POST", "/v1/executions/replay", &[("Idempotency-Key", "k")], text.as_bytes())
    });
    let count = |server: &Server| {
        let replays = "SELECT count(*) FROM executions WHERE triggered_by = 'replay'";
        server.sqlite().query_row(replays, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    until("the first write", || (count(&server) > 0).then_some(()));
    server.kill();
    let response = request.join().unwrap();
    server.restart();
    let user = user.at(server.addr());
    let done = count(&server);
    assert_eq!(done % 100, 0, "whole writes");
    let again = user
        .call("POST", "/v1/executions/replay", &[("Idempotency-Key", "k")], body.as_bytes())
        .unwrap();
    match response.ok().filter(|response| response.status == 200) {
        Some(response) => assert_eq!(again.expect(200), response.json(), "the kill came too late"),
        // The answer may have been stored, but not sent.
        None if done == 10_000 => assert_eq!(again.expect(200)["replayed"], 10_000),
        None => {
            let refused = again.expect_error(409, "invalid_state");
            assert_contains(refused["error"]["message"].as_str().unwrap(), &["has begun"]);
        }
    }
    assert_eq!(count(&server), done);
}

#[test]
fn a_filter_leaves_cancelled_runs_out() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("work"));
    let failed = failed_runs(&user, &cue, 1);
    // A worker may report the same word.
    let reported = user.fire(&cue);
    let report = json!({"success": false, "error": "cancelled"});
    user.report(&reported, &report);
    let cancelled = user.fire(&cue);
    user.post(&format!("/v1/executions/{cancelled}/cancel"), &json!({})).expect(200);
    for filter in [json!({}), json!({"cue_id": id(&cue)})] {
        let refused = replay(&user, &json!({"filter": filter, "expected": 3}));
        let refused = refused.expect_error(409, "invalid_state");
        assert!(refused["error"]["message"].as_str().unwrap().contains("matches 2 "), "{refused}");
    }
    let done = replay(&user, &json!({"filter": {}, "expected": 2})).expect(200);
    let replayed: Vec<Value> = done["execution_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| user.execution(it.as_str().unwrap())["replayed_from"].clone())
        .collect();
    assert_eq!(replayed, [json!(failed[0]), json!(reported)]);
    assert_eq!(replay(&user, &json!({"ids": [cancelled]})).expect(200)["replayed"], 1, "by its id");
}

const BULK: &str = "/v1/cues/bulk";
const REPLAY: &str = "/v1/executions/replay";
const DELETE: &str = "/v1/cues/bulk-delete";

#[test]
fn five_hundred_ids_are_taken_and_unknown_ones_answered() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("cue"));
    let run = failed_runs(&user, &cue, 1).remove(0);
    let unknown: Vec<String> = (0..499).map(|number| format!("{number:0>64}")).collect();
    let with = |known: &str| [&unknown[..], &[known.to_owned()]].concat();
    let done = user.post(REPLAY, &json!({"ids": with(&run)})).expect(200);
    assert_eq!((&done["matched"], &done["replayed"]), (&json!(500), &json!(1)));
    let done = user.post(BULK, &json!({"ids": with(id(&cue)), "action": "pause"})).expect(200);
    assert_eq!((&done["matched"], &done["done"]), (&json!(500), &json!(1)));
    assert_eq!(
        done["failed"][498],
        json!({"id": unknown[498], "code": "cue_not_found", "message": "Cue not found"})
    );
    let done = user.post(DELETE, &json!({"ids": with(id(&cue))})).expect(200);
    assert_eq!((&done["deleted"], &done["skipped"]), (&json!([id(&cue)]), &json!(unknown)));
}

#[test]
fn the_key_of_a_fire_is_taken_from_the_body_too() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("cue"));
    let path = format!("/v1/cues/{}/fire", id(&cue));
    let body = json!({"idempotency_key": "k 1"});
    let first = user.post(&path, &body).expect(200);
    assert_eq!(user.post(&path, &body).expect(200), first);
    let both = user
        .call("POST", &path, &[("Idempotency-Key", "k 1")], body.to_string().as_bytes())
        .unwrap();
    assert_eq!(both.expect(200), first, "the same key in both places");
    let other = user
        .call("POST", &path, &[("Idempotency-Key", "k2")], body.to_string().as_bytes())
        .unwrap();
    let other = other.expect_error(422, "validation_error");
    assert_eq!(other["detail"][0]["loc"], json!(["body", "idempotency_key"]));
    user.post(&path, &json!({"idempotency_key": "k 1", "payload_override": {}}))
        .expect_error(409, "idempotency_conflict");
    for bad in [json!(""), json!("x".repeat(256)), json!("é"), json!("a\nb"), json!(7)] {
        let refused = user
            .post(&path, &json!({"idempotency_key": bad}))
            .expect_error(422, "validation_error");
        assert_eq!(refused["detail"][0]["loc"], json!(["body", "idempotency_key"]), "{bad}");
    }
    assert_eq!(
        user.post(&path, &json!({"idempotency_key": null})).expect(200)["status"],
        "pending"
    );
    assert_eq!(user.executions_of(id(&cue)).len(), 2);
    assert_eq!(user.execution(id(&first))["triggered_by"], "manual_fire");
}

#[test]
fn a_key_without_room_for_its_answer_is_refused_before_anything_is_done() {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("cue"));
    server.sqlite().execute("UPDATE users SET stored_bytes = 1 << 50", []).unwrap();
    let body = json!({"ids": [id(&cue)], "action": "pause"}).to_string();
    let keyed = user.call("POST", BULK, &[("Idempotency-Key", "k")], body.as_bytes()).unwrap();
    keyed.expect_error(403, "storage_limit_exceeded");
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(user.call("POST", BULK, &[], body.as_bytes()).unwrap().expect(200)["done"], 1);
    server.sqlite().execute("UPDATE users SET stored_bytes = 0", []).unwrap();
    let keyed = user.call("POST", BULK, &[("Idempotency-Key", "k")], body.as_bytes()).unwrap();
    assert_eq!(keyed.expect(200)["done"], 1);
}
