//! Bulk replays, and the bounds of bulk requests.

use crate::http::many::{
    BULK, REPLAY, START, bulk, copy_failed, failed_runs, hook, keeping_all, matching, status_of,
    work,
};
use crate::support::*;

fn replay(user: &Client, body: &Value) -> Value {
    user.post(REPLAY, body).expect(200)
}

#[test]
fn executions_are_replayed_by_id_oldest_first() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let cue = user.create(&work("work"));
    let failed = failed_runs(&user, &cue, 3);
    let open = user.fire(&cue);
    let foreign = failed_runs(&other, &other.create(&work("foreign")), 1).remove(0);
    let ids =
        [&failed[2], &open, &failed[0], &foreign, &failed[0].to_uppercase(), &failed[1], "no id"];
    let done = replay(&user, &json!({"ids": ids}));
    assert_has(&done, json!({"matched": 6, "replayed": 3}));
    let mut skipped = done.list("skipped").clone();
    skipped.sort_by_key(|it| it["code"].to_string());
    assert_eq!(skipped[0], json!({"id": open, "code": "execution_in_flight"}));
    assert!(skipped[1..].iter().all(|it| it["code"] == "execution_not_found"), "{skipped:?}");
    let mut replays = user.read("/v1/executions?triggered_by=replay").column("executions", "id");
    replays.reverse();
    assert_eq!(done["execution_ids"], json!(replays), "in the order of their creation");
    assert_eq!(other.total("/v1/executions"), 1);
}

#[test]
fn a_filter_replays_what_failed_if_the_number_is_the_expected_one() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(410)));
    let (user, other) = (server.user(), server.user());
    let (cue, deleted) = (user.create(&work("work")), user.create(&work("deleted")));
    let early = failed_runs(&user, &cue, 2);
    failed_runs(&user, &deleted, 1);
    failed_runs(&other, &other.create(&work("foreign")), 1);
    user.delete(&cue_path(&deleted));
    user.advance("PT1H");
    failed_runs(&user, &cue, 1);
    let hook = user.create(&hook(&receiver.url()));
    let gone = user.fire(&hook);
    user.fire(&cue);
    user.settle();
    assert_eq!(user.execution(&gone)["status"], "failed");
    let before = user.total("/v1/executions");
    for (filter, matched) in [
        (json!({}), 4),
        (json!({"status": "failed"}), 4),
        (json!({"cue_id": id(&cue)}), 3),
        (json!({"cue_id": id(&hook)}), 1),
        (json!({"cue_id": id(&deleted)}), 0),
        (json!({"cue_id": "cue_nothing"}), 0),
        (json!({"since": "2026-01-05T10:00:00Z"}), 2),
        (json!({"until": "2026-01-05T10:00:00Z"}), 2),
        (json!({"since": START, "until": "2026-01-05T11:00:00+01:00", "cue_id": id(&cue)}), 2),
        (json!({"since": "2026-01-05T10:00:00.001"}), 0),
        (json!({"cause": "timeout"}), 0),
    ] {
        let dry = matching(&user, REPLAY, json!({"filter": filter}), matched);
        let ids = dry.list("ids");
        assert_eq!(ids.len(), matched, "{filter}");
        assert!(ids.is_sorted_by_key(|id| id.as_str()), "oldest first: {ids:?}");
    }
    let dry = replay(&user, &json!({"ids": [&early[1], &early[0], &early[1]], "dry_run": true}));
    assert_eq!(dry, json!({"matched": 2, "dry_run": true, "ids": early, "has_more": false}));
    assert_eq!(user.total("/v1/executions"), before, "nothing was done");
    let done = replay(&user, &json!({"filter": {"cue_id": id(&cue)}, "expected": 3}));
    assert_has(&done, json!({"matched": 3, "replayed": 3, "skipped": []}));
}

#[test]
fn more_executions_than_a_write_takes_are_replayed_in_several() {
    let (server, user) = keeping_all();
    let cue = user.create(&with(work("work"), json!({"payload": {"task": "t"}})));
    failed_runs(&user, &cue, 1);
    copy_failed(&server, 1_199);
    let done = replay(&user, &json!({"filter": {"status": "failed"}, "expected": 1_200}));
    assert_has(&done, json!({"matched": 1_200, "replayed": 1_200, "skipped": []}));
    let ids = done.list("execution_ids");
    assert!(ids.is_sorted_by_key(|id| id.as_str()) && ids.len() == 1_200);
    let waiting = || user.read("/health")["queue"]["pending_worker_claims"].clone();
    assert_eq!(waiting(), 1_200);
    server.assert_counters();
    // More than the bound of a filter: nothing is done.
    copy_failed(&server, 8_801);
    let all = json!({"filter": {"status": "failed"}, "expected": 10_000});
    let refused = user.post(REPLAY, &all).expect_error(422, "validation_error");
    assert_eq!(refused["detail"][0]["loc"], json!(["body", "filter"]));
    assert_contains(refused["detail"][0].text("msg"), &["narrow since and until"]);
    let dry = replay(&user, &json!({"filter": {}, "dry_run": true}));
    assert_has(&dry, json!({"matched": 10_000, "has_more": true}));
    assert_eq!(waiting(), 1_200);
}

#[test]
fn a_limit_that_is_reached_in_the_middle_skips_the_rest() {
    let plan = |executions: u32| json!({"cues": 3, "executions": executions, "requests_per_minute": null, "storage_mb": 1});
    let plans = Plans::new(&json!({"free": plan(3), "big": plan(100)}));
    let (server, user) = plans.with_user(&["--dev", "--test-clock", START]);
    let failed = failed_runs(&user, &user.create(&work("work")), 4);
    // The fourth run is above the quota of three, which ends a day later.
    user.advance("P1DT1M");
    let done = replay(&user, &json!({"ids": failed}));
    let skip = |id: &String, code: &str| json!({"id": id, "code": code});
    let skipped: Vec<_> = failed.iter().map(|id| skip(id, "execution_limit_exceeded")).collect();
    assert_has(&done, json!({"replayed": 0, "execution_ids": [], "skipped": skipped}));
    // Replays with a payload of their own: 300 kB each, so three fit into one megabyte.
    server.sql("UPDATE users SET plan = 'big'");
    user.advance("P31D");
    let payload = json!({"payload": {"data": "x".repeat(250_000)}});
    let large = user.create(&with(work("large"), payload));
    let failed = failed_runs(&user, &large, 4);
    user.change(&large, &json!({"payload": {"now": "small"}}));
    let skipped = [skip(&failed[3], "storage_limit_exceeded")];
    assert_has(
        &replay(&user, &json!({"ids": failed})),
        json!({"matched": 4, "replayed": 3, "skipped": skipped}),
    );
}

/// A process that ends between two writes leaves what was done; a repetition with the key does nothing twice.
#[test]
fn an_interrupted_replay_is_not_repeated_by_its_key() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    failed_runs(&user, &user.create(&work("work")), 1);
    copy_failed(&server, 9_999);
    let body = json!({"filter": {"status": "failed"}, "expected": 10_000});
    let (sender, text) = (user.clone(), body.to_string());
    let request = thread::spawn(move || {
        sender.call("POST", REPLAY, &[("Idempotency-Key", "k")], text.as_bytes())
    });
    let replays = "SELECT count(*) FROM executions WHERE triggered_by = 'replay'";
    until_true("the first write", || server.count(replays) > 0);
    server.kill();
    let response = request.join().unwrap();
    server.restart();
    let done = server.count(replays);
    assert_eq!(done % 100, 0, "whole writes");
    let again = user.at(server.addr()).keyed(REPLAY, "k", &body);
    match response.ok().filter(|response| response.status == 200) {
        Some(response) => assert_eq!(again.expect(200), response.json(), "the kill came too late"),
        // The answer may have been stored, but not sent.
        None if done == 10_000 => assert_eq!(again.expect(200)["replayed"], 10_000),
        None => drop(again.refuses(409, "invalid_state", "has begun")),
    }
    assert_eq!(server.count(replays), done);
}

#[test]
fn a_filter_leaves_cancelled_runs_out() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work("work"));
    let failed = failed_runs(&user, &cue, 1);
    // A worker may report the same word.
    let reported = user.fire(&cue);
    user.report(&reported, &json!({"success": false, "error": "cancelled"}));
    let cancelled = user.fire(&cue);
    user.act(&cancelled, "cancel").expect(200);
    for filter in [json!({}), json!({"cue_id": id(&cue)})] {
        matching(&user, REPLAY, json!({"filter": filter}), 2);
    }
    let done = replay(&user, &json!({"filter": {}, "expected": 2}));
    let replayed: Vec<Value> = done
        .list("execution_ids")
        .iter()
        .map(|it| user.execution(it.as_str().unwrap())["replayed_from"].clone())
        .collect();
    assert_eq!(replayed, [json!(failed[0]), json!(reported)]);
    assert_eq!(replay(&user, &json!({"ids": [cancelled]}))["replayed"], 1, "by its id");
}

#[test]
fn five_hundred_ids_are_taken_and_unknown_ones_answered() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work("cue"));
    let run = failed_runs(&user, &cue, 1).remove(0);
    let unknown: Vec<String> = (0..499).map(|number| format!("{number:0>64}")).collect();
    let all = |known: &str| [&unknown[..], &[known.to_owned()]].concat();
    let done = replay(&user, &json!({"ids": all(&run)}));
    assert_has(&done, json!({"matched": 500, "replayed": 1}));
    let done = bulk(&user, &json!({"ids": all(id(&cue)), "action": "pause"})).expect(200);
    assert_has(&done, json!({"matched": 500, "done": 1}));
    let last = json!({"id": unknown[498], "code": "cue_not_found", "message": "Cue not found"});
    assert_eq!(done["failed"][498], last);
    let done = user.post("/v1/cues/bulk-delete", &json!({"ids": all(id(&cue))})).expect(200);
    assert_has(&done, json!({"deleted": [id(&cue)], "skipped": unknown}));
}

#[test]
fn a_key_without_room_for_its_answer_is_refused_before_anything_is_done() {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work("cue"));
    server.sql("UPDATE users SET stored_bytes = 1 << 50");
    let body = json!({"ids": [id(&cue)], "action": "pause"});
    user.keyed(BULK, "k", &body).expect_error(403, "storage_limit_exceeded");
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(bulk(&user, &body).expect(200)["done"], 1);
    server.sql("UPDATE users SET stored_bytes = 0");
    assert_eq!(user.keyed(BULK, "k", &body).expect(200)["done"], 1);
}
