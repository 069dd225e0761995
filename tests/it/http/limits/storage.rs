//! What an account may store: cues in all states, bytes, API keys and workers.

use cued::store::db::counters;
use serde_json::{Value, json};

use super::{Plans, START, email, id, worker};
use crate::support::client::Client;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server, run, until};

/// A plan with one megabyte of storage and plenty of everything else.
fn one_megabyte() -> Plans {
    let entry = |storage: u32| json!({"cues": 1_000, "executions": null, "requests_per_minute": null, "storage_mb": storage});
    Plans::new(&json!({"free": entry(1), "pro": entry(2)}))
}

fn usage(user: &Client, group: &str, field: &str) -> i64 {
    user.get("/v1/usage").expect(200)[group][field].as_i64().unwrap()
}

fn stored(user: &Client) -> i64 {
    usage(user, "storage", "used_bytes")
}

/// A cue of a worker with a payload of about `size` bytes.
fn cue_of(size: usize) -> Value {
    let mut cue = worker("0 0 1 1 *");
    cue["payload"] = json!({"data": "x".repeat(size - 12)});
    cue
}

fn path(cue: &Value) -> String {
    format!("/v1/cues/{}", id(cue))
}

#[test]
fn cues_in_all_states_are_ten_times_the_active_ones_and_at_least_100() {
    let plans = Plans::small();
    let server = plans.server();
    let user = server.user();
    let pause = |cue: &Value| user.patch(&path(cue), &json!({"status": "paused"})).expect(200);
    let cues: Vec<Value> = (0..100)
        .map(|_| {
            let cue = user.create(&worker("0 0 1 1 *"));
            pause(&cue);
            cue
        })
        .collect();
    let refused = user.post("/v1/cues", &worker("0 0 1 1 *")).expect_error(403, "cue_limit_exceeded");
    assert!(refused["error"]["message"].as_str().unwrap().contains("delete some"), "{refused}");
    assert_eq!((usage(&user, "cues", "total"), usage(&user, "cues", "total_limit")), (100, 100));
    // Pausing and resuming need no room.
    user.patch(&path(&cues[0]), &json!({"status": "active"})).expect(200);
    server.user().create(&worker("0 0 1 1 *"));
    assert_eq!(user.delete(&path(&cues[1])).status, 204);
    user.create(&worker("0 0 1 1 *"));
}

#[test]
fn without_limits_the_bounds_on_cues_and_bytes_are_ten_times_those_of_the_largest_plan() {
    let plans = Plans::small();
    let server = Server::start(&["--dev", "--limits", "off", "--plans", &plans.path()]);
    let user = server.user();
    assert_eq!(usage(&user, "cues", "total_limit"), 1_000);
    assert_eq!(usage(&user, "storage", "limit_bytes"), 10_240_i64 << 20);
    let cue = user.create(&worker("0 0 1 1 *"));
    let file = server.sqlite();
    file.execute_batch("UPDATE users SET paused_cues = 999").unwrap();
    user.post("/v1/cues", &worker("0 0 1 1 *")).expect_error(403, "cue_limit_exceeded");
    file.execute_batch("UPDATE users SET paused_cues = 0, stored_bytes = 10737418240").unwrap();
    user.post("/v1/cues", &cue_of(100)).expect_error(403, "storage_limit_exceeded");
    file.execute_batch("UPDATE users SET stored_bytes = 0").unwrap();
    assert_eq!(user.delete(&path(&cue)).status, 204);
}

#[test]
fn payloads_headers_and_kept_responses_share_the_storage_of_the_plan() {
    let plans = one_megabyte();
    let server = plans.server();
    let user = server.user();
    let cue = user.create(&cue_of(400_000));
    assert_eq!(stored(&user), 400_000);
    let mut hook = json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
                          "callback": {"url": "http://127.0.0.1:9/", "headers": {"X-A": "v".repeat(1_000)}}});
    let hook_cue = user.create(&hook);
    let with_headers = stored(&user);
    assert!((401_000..401_100).contains(&with_headers), "{with_headers}");
    user.patch(&path(&hook_cue), &json!({"callback": {"headers": {}}})).expect(200);
    assert_eq!(stored(&user), 400_000, "a change of the headers is counted");

    // An override and the copy of a replay count; the payload of a cue that its executions share counts once.
    let fire = format!("{}/fire", path(&cue));
    user.post(&fire, &json!({})).expect(200);
    assert_eq!(stored(&user), 400_000);
    let data = "y".repeat(500_000);
    user.post(&fire, &json!({"payload_override": {"data": data}})).expect(200);
    assert!(stored(&user) > 900_000);
    let refused = user.post(&fire, &json!({"payload_override": {"data": data}}));
    let refused = refused.expect_error(403, "storage_limit_exceeded");
    assert!(refused["error"]["message"].as_str().unwrap().contains("delete cues"), "{refused}");
    user.post("/v1/cues", &cue_of(300_000)).expect_error(403, "storage_limit_exceeded");
    user.patch(&path(&hook_cue), &json!({"payload": {"data": data}}))
        .expect_error(403, "storage_limit_exceeded");
    hook["payload"] = json!({"data": data});
    user.post("/v1/cues", &hook).expect_error(403, "storage_limit_exceeded");
    assert_eq!(usage(&user, "cues", "total"), 2, "a refused request stores nothing");
    // What stores nothing goes on, and others have their own storage.
    user.post(&fire, &json!({})).expect(200);
    user.patch(&path(&cue), &json!({"name": "renamed"})).expect(200);
    server.user().create(&cue_of(400_000));

    // Deleting a cue gives the storage back.
    assert_eq!(user.delete(&path(&cue)).status, 204);
    user.settle();
    assert_eq!(stored(&user), 0);
    let key = [("Idempotency-Key", "twelve-bytes"), ("Content-Type", "application/json")];
    let created = user.call("POST", "/v1/cues", &key, worker("0 0 1 1 *").to_string().as_bytes()).unwrap();
    created.expect(201);
    assert!(stored(&user) > 12, "the kept response counts: {}", stored(&user));
    user.advance("P1DT1S");
    until("the kept response is deleted", || (stored(&user) == 0).then_some(()));
}

#[test]
fn results_count_and_a_report_without_them_is_never_refused() {
    let plans = one_megabyte();
    let server = plans.server();
    let user = server.user();
    let cue = user.create(&worker("0 0 1 1 *"));
    let report = |result: &Value| {
        user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
        let claimed = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
        let outcome = format!("/v1/executions/{}/outcome", claimed["execution_id"].as_str().unwrap());
        (user.post(&outcome, result), outcome)
    };
    let large = json!({"success": true, "result": "r".repeat(60_000), "metadata": {"m": "x".repeat(1_000)}});
    for number in 1..=17 {
        assert_eq!(report(&large).0.status, 200, "report {number}");
    }
    // 17 times 61,008 bytes are stored; another 61,008 would be more than a megabyte.
    assert_eq!(stored(&user), 17 * 61_008);
    let (refused, outcome) = report(&large);
    refused.expect_error(403, "storage_limit_exceeded");
    user.post(&outcome, &json!({"success": true})).expect(200);
    let execution = outcome.strip_suffix("/outcome").unwrap();
    let evidence = json!({"summary": "z".repeat(400)});
    let append = || user.patch(&format!("{execution}/evidence"), &evidence);
    append().expect(200);
    assert!(stored(&user) > 17 * 61_008 + 400, "evidence counts");
    assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    // A larger plan has room.
    let db = server.db();
    let plan = plans.path();
    run(&["user", "--db", db.to_str().unwrap(), "set-plan", &email(&user), "pro", "--plans", &plan]);
    assert_eq!(report(&large).0.status, 200);
}

#[test]
fn of_a_response_without_room_the_success_alone_is_the_outcome() {
    let (plans, receiver) = (one_megabyte(), Receiver::start());
    let server = plans.server();
    let user = server.user();
    let large = json!({"success": true, "result": "r".repeat(60_000), "external_id": "7"}).to_string();
    receiver.react(Reaction::Full(200, Vec::new(), large));
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": receiver.url(), "outcome_from_response": true},
        "verification": {"mode": "require_external_id"},
    }));
    let shown = || {
        let fired = user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
        user.settle();
        user.get(&format!("/v1/executions/{}", id(&fired))).expect(200)
    };
    for number in 1..=17 {
        let shown = shown();
        assert_eq!(shown["outcome_state"], "verified_success", "response {number}");
        assert_eq!(shown["outcome"]["result"].as_str().unwrap().len(), 60_000);
    }
    let before = stored(&user);
    let bare = shown();
    assert_eq!((&bare["outcome"]["success"], &bare["outcome"]["result"]), (&json!(true), &Value::Null));
    assert_eq!((&bare["status"], &bare["evidence"]), (&json!("success"), &Value::Null));
    assert_eq!(bare["outcome_state"], "verification_failed", "its evidence had no room");
    assert_eq!(stored(&user), before);
    assert_eq!(counters::discrepancies(&server.sqlite()).unwrap(), Vec::<String>::new());
    assert_eq!(user.get("/v1/usage").expect(200)["outcomes"]["reported"], 18);
    // Evidence that finds room later proves it.
    let evidence = format!("/v1/executions/{}/evidence", id(&bare));
    let proved = user.patch(&evidence, &json!({"external_id": "7"})).expect(200);
    assert_eq!(proved["outcome_state"], "verified_success");
}

#[test]
fn an_account_has_at_most_100_keys() {
    let server = Server::start(&["--dev", "--test-clock", START, "--plans", &one_megabyte().path()]);
    let user = server.user();
    let make = || user.post("/v1/auth/keys", &json!({"name": "device"}));
    let mut made: Vec<Value> = (1..100).map(|_| make().expect(201)).collect();
    let refused = make().expect_error(409, "key_limit_exceeded");
    assert!(refused["error"]["message"].as_str().unwrap().contains("revoke"), "{refused}");
    let revoked = format!("/v1/auth/keys/{}", id(&made.remove(0)));
    assert_eq!(user.delete(&revoked).status, 204);
    make().expect(201);
    make().expect_error(409, "key_limit_exceeded");
    user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    let server = Server::start(DEV_UNLIMITED);
    let unlimited = server.user();
    for _ in 0..105 {
        unlimited.post("/v1/auth/keys", &json!({"name": "device"})).expect(201);
    }
}

fn beat(user: &Client, worker: &str, handlers: &Value) -> crate::support::client::Response {
    user.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": handlers}))
}

fn workers(user: &Client) -> Vec<String> {
    let listed = user.get("/v1/workers").expect(200)["workers"].clone();
    listed.as_array().unwrap().iter().map(|worker| worker["worker_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn at_1000_workers_the_oldest_dead_one_gives_way() {
    let plans = one_megabyte();
    let server = plans.server();
    let user = server.user();
    beat(&user, "oldest", &json!([])).expect(200);
    user.advance("PT1S");
    let add = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 999)
               INSERT INTO workers SELECT user_key, 'w' || n, handlers, last_heartbeat + 1000, registered_since FROM workers, n";
    server.sqlite().execute_batch(add).unwrap();
    let refused = beat(&user, "one-more", &json!([])).expect_error(409, "worker_limit_exceeded");
    assert!(refused["error"]["message"].as_str().unwrap().contains("worker_id"), "{refused}");
    beat(&user, "w7", &json!(["known"])).expect(200);
    beat(&server.user(), "one-more", &json!([])).expect(200);
    user.advance("PT14M59S");
    beat(&user, "one-more", &json!([])).expect(200);
    let left = workers(&user);
    assert_eq!((left.len(), left.contains(&"oldest".to_owned())), (1_000, false));
    beat(&user, "another", &json!([])).expect_error(409, "worker_limit_exceeded");
}

#[test]
fn a_worker_that_is_silent_for_30_days_and_holds_nothing_is_forgotten() {
    let plans = one_megabyte();
    let server = plans.server();
    let user = server.user();
    let cue = user.create(&worker("0 0 1 1 *"));
    user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
    let claim = user.post("/v1/executions/claim", &json!({"worker_id": "holder"})).expect(200);
    for name in ["idle", "holder", "talking"] {
        beat(&user, name, &json!([])).expect(200);
    }
    let days = || {
        user.advance("P29DT23H");
        // A lease of a month: the test does not renew it a thousand times.
        beat(&user, "talking", &json!([])).expect(200);
    };
    server
        .sqlite()
        .execute_batch("UPDATE executions SET lease_expires_at = lease_expires_at + 5184000000")
        .unwrap();
    days();
    assert_eq!(workers(&user).len(), 3);
    user.advance("PT1H");
    until("the idle worker is forgotten", || (workers(&user) == ["talking", "holder"]).then_some(()));
    let outcome = format!("/v1/executions/{}/outcome", claim["execution_id"].as_str().unwrap());
    user.post(&outcome, &json!({"success": true})).expect(200);
    user.advance("PT1H");
    until("the other one too", || (workers(&user) == ["talking"]).then_some(()));
}

#[test]
fn the_handlers_of_a_worker_have_at_most_16_kib() {
    let plans = one_megabyte();
    let server = plans.server();
    let user = server.user();
    let names = |count: usize| json!(vec!["h".repeat(200); count]);
    beat(&user, "w", &names(80)).expect(200);
    let refused = beat(&user, "w", &names(90)).expect_error(422, "validation_error");
    assert!(refused["error"]["message"].as_str().unwrap().contains("16384 bytes"), "{refused}");
}

#[test]
fn evidence_and_verdicts_are_refused_when_the_storage_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let free = json!({"cues": 10, "executions": 300, "requests_per_minute": 60, "storage_mb": 1});
    std::fs::write(&plans, json!({"free": free}).to_string()).unwrap();
    let server = Server::start(&["--dev", "--plans", plans.to_str().unwrap()]);
    let user = server.user();
    let schedule = json!({"type": "recurring", "cron": "0 0 1 1 *"});
    let cue = json!({"name": "a", "transport": "worker", "schedule": schedule, "payload": {"a": "x".repeat(1_040_000)}});
    let cue = user.create(&cue);
    let run = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    let path = |last: &str| format!("/v1/executions/{}/{last}", run["id"].as_str().unwrap());
    user.post(&path("outcome"), &json!({"success": true})).expect(200);
    let long = "x".repeat(60_000);
    user.patch(&path("evidence"), &json!({"summary": long})).expect_error(403, "storage_limit_exceeded");
    user.post(&path("verify"), &json!({"reason": long})).expect_error(403, "storage_limit_exceeded");
    let keyed = |id: &str| {
        let body = json!({"ids": [id]}).to_string();
        user.call("POST", "/v1/executions/replay", &[("Idempotency-Key", "small")], body.as_bytes()).unwrap()
    };
    keyed("a").expect(200);
    keyed("b").expect_error(409, "idempotency_conflict");
}
