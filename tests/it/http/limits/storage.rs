//! The limits on storage, and those of unconfirmed accounts.

use cued::store::db::counters;

use crate::http::device_login::{MailingServer, post_form};
use crate::http::limits::{Plans, START, administer, email, id, worker};
use crate::support::*;

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
    let (server, user) = Plans::small().with_user();
    let pause = |cue: &Value| user.patch(&path(cue), &json!({"status": "paused"})).expect(200);
    let cues: Vec<Value> = (0..100)
        .map(|_| {
            let cue = user.create(&worker("0 0 1 1 *"));
            pause(&cue);
            cue
        })
        .collect();
    let refused =
        user.post("/v1/cues", &worker("0 0 1 1 *")).expect_error(403, "cue_limit_exceeded");
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
    let (server, user) = Server::with_user(&["--dev", "--limits", "off", "--plans", &plans.path()]);
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
    let (server, user) = one_megabyte().with_user();
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
    let created =
        user.call("POST", "/v1/cues", &key, worker("0 0 1 1 *").to_string().as_bytes()).unwrap();
    created.expect(201);
    assert!(stored(&user) > 12, "the kept response counts: {}", stored(&user));
    user.advance("P1DT1S");
    until("the kept response is deleted", || (stored(&user) == 0).then_some(()));
}

#[test]
fn results_count_and_a_report_without_them_is_never_refused() {
    let plans = one_megabyte();
    let (server, user) = plans.with_user();
    let cue = user.create(&worker("0 0 1 1 *"));
    let report = |result: &Value| {
        user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
        let claimed = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
        let outcome =
            format!("/v1/executions/{}/outcome", claimed["execution_id"].as_str().unwrap());
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
    run(&[
        "user",
        "--db",
        db.to_str().unwrap(),
        "set-plan",
        &email(&user),
        "pro",
        "--plans",
        &plan,
    ]);
    assert_eq!(report(&large).0.status, 200);
}

#[test]
fn of_a_response_without_room_the_success_alone_is_the_outcome() {
    let (plans, receiver) = (one_megabyte(), Receiver::start());
    let (server, user) = plans.with_user();
    let large =
        json!({"success": true, "result": "r".repeat(60_000), "external_id": "7"}).to_string();
    receiver.react(Reaction::Full(200, Vec::new(), large));
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": receiver.url(), "outcome_from_response": true},
        "verification": {"mode": "require_external_id"},
    }));
    let shown = || {
        let fired = user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
        user.settle();
        user.execution(id(&fired))
    };
    for number in 1..=17 {
        let shown = shown();
        assert_eq!(shown["outcome_state"], "verified_success", "response {number}");
        assert_eq!(shown["outcome"]["result"].as_str().unwrap().len(), 60_000);
    }
    let before = stored(&user);
    let bare = shown();
    assert_has(&bare["outcome"], json!({"success": true, "result": null}));
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
    let (_server, user) =
        Server::with_user(&["--dev", "--test-clock", START, "--plans", &one_megabyte().path()]);
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

fn beat(user: &Client, worker: &str, handlers: &Value) -> Response {
    user.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": handlers}))
}

fn workers(user: &Client) -> Vec<String> {
    let listed = user.get("/v1/workers").expect(200)["workers"].clone();
    listed
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["worker_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn at_1000_workers_the_oldest_dead_one_gives_way() {
    let (server, user) = one_megabyte().with_user();
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
    let (server, user) = one_megabyte().with_user();
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
    until("the idle worker is forgotten", || {
        (workers(&user) == ["talking", "holder"]).then_some(())
    });
    let outcome = format!("/v1/executions/{}/outcome", claim["execution_id"].as_str().unwrap());
    user.post(&outcome, &json!({"success": true})).expect(200);
    user.advance("PT1H");
    until("the other one too", || (workers(&user) == ["talking"]).then_some(()));
}

#[test]
fn the_handlers_of_a_worker_have_at_most_16_kib() {
    let (_server, user) = one_megabyte().with_user();
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
    let (_server, user) = Server::with_user(&["--dev", "--plans", plans.to_str().unwrap()]);
    let schedule = json!({"type": "recurring", "cron": "0 0 1 1 *"});
    let cue = json!({"name": "a", "transport": "worker", "schedule": schedule, "payload": {"a": "x".repeat(1_040_000)}});
    let cue = user.create(&cue);
    let run = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    let path = |last: &str| format!("/v1/executions/{}/{last}", id(&run));
    user.post(&path("outcome"), &json!({"success": true})).expect(200);
    let long = "x".repeat(60_000);
    user.patch(&path("evidence"), &json!({"summary": long}))
        .expect_error(403, "storage_limit_exceeded");
    user.post(&path("verify"), &json!({"reason": long}))
        .expect_error(403, "storage_limit_exceeded");
    let keyed = |id: &str| {
        let body = json!({"ids": [id]}).to_string();
        user.call("POST", "/v1/executions/replay", &[("Idempotency-Key", "small")], body.as_bytes())
            .unwrap()
    };
    keyed("a").expect(200);
    keyed("b").expect_error(409, "idempotency_conflict");
}

/// Anybody may register, and callbacks reach this machine.
const OPEN: &[&str] = &["--registration", "open", "--allow-callbacks-to", "loopback"];

/// Any number of executions and requests, and 64 MiB.
fn plenty() -> Plans {
    let limits =
        json!({"cues": 500, "executions": null, "requests_per_minute": null, "storage_mb": 64});
    Plans::new(&json!({"free": limits}))
}

fn register_from(server: &Server, address: &str, email: &str) -> Response {
    let headers = [("X-Forwarded-For", address), ("Content-Type", "application/json")];
    let body = json!({ "email": email }).to_string();
    server.client().call("POST", "/v1/auth/register", &headers, body.as_bytes()).unwrap()
}

#[test]
fn ten_accounts_an_hour_are_registered_from_one_address() {
    let flags = [OPEN, &["--trust-proxy", "127.0.0.1", "--test-clock", START]].concat();
    let server = Server::start(&flags);
    let register = |address: &str, number: u32| {
        register_from(&server, address, &format!("u{number}@example.com"))
    };
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
    let (first, bob) = (
        mailing.client().register("ann@example.com"),
        mailing.client().register("bob@example.com"),
    );
    assert_eq!([&first, &bob].map(storage_limit), [64 << 20, 1 << 20]);
    for user in [&first, &bob] {
        user.create(&cue_of(900_000 + 12));
    }
    first.create(&cue_of(900_000 + 12));
    let refused =
        bob.post("/v1/cues", &cue_of(200_000 + 12)).expect_error(403, "storage_limit_exceeded");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("confirm the address") && message.contains("1048576"), "{message}");
    bob.create(&cue_of(100_000 + 12));
    confirm(&mailing, "bob@example.com");
    assert_eq!(storage_limit(&bob), 64 << 20);
    bob.create(&cue_of(200_000 + 12));
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
    assert!(
        waiting.iter().all(|it| it["error_message"] == "address_unconfirmed"),
        "{}",
        waiting[0]
    );
    assert_eq!(mailing.client().get("/health").expect(200)["status"], "healthy");
    let fire = |cue: &Value| bob.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({}));
    let refused = fire(&cues[0]).expect_error(403, "execution_limit_exceeded");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("60 times an hour: wait 660 s, or confirm the address"), "{message}");
    fire(&bob.create(&worker("0 0 1 1 *"))).expect(200);
    mailing.advance("PT1H");
    // As many again, from the moment at which the first is an hour old.
    assert_eq!(receiver.count(), 120);

    // A confirmed address lets go what waits. What is left waits for a worker.
    confirm(&mailing, "bob@example.com");
    bob.settle();
    assert_eq!((receiver.count(), pending(&bob).len()), (220, 1));
    for _ in 0..3 {
        fire(&cues[0]).expect(200);
    }
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
    assert_eq!(shown["total"], 1, "{shown}");
    assert_eq!(shown["executions"][0]["http_status"], 500, "{shown}");
    confirm(&mailing, "bob@example.com");
    mailing.advance("PT30S");
    let id = shown["executions"][0]["id"].as_str().unwrap();
    let shown = bob.execution(id);
    assert_eq!(shown["status"], "failed", "no longer held up");
    assert_eq!(shown["attempts"], 7, "no longer held up");
}

#[test]
fn an_unconfirmed_account_without_a_run_for_7_days_is_removed() {
    let server = Server::start(&[OPEN, &["--test-clock", START]].concat());
    let (first, idle, active) = (server.user(), server.user(), server.user());
    let cues = [&first, &idle, &active].map(|user| user.create(&cue_of(1_000 + 12)));
    for (user, cue) in [&first, &idle, &active].iter().zip(&cues) {
        user.fire(cue);
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
    assert_eq!(
        count("SELECT count(*) FROM executions WHERE user_key NOT IN (SELECT key FROM users)"),
        0
    );
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
    // The address is free again.
    assert_eq!(server.client().post("/v1/auth/register", &json!({ "email": email })).status, 201);
}

#[test]
fn accounts_of_a_server_that_trusts_them_are_not_removed() {
    let server = Server::with_test_clock(START);
    let (first, idle) = (server.user(), server.user());
    first.advance("P9D");
    idle.get("/v1/auth/me").expect(200);
}
