//! The limits on storage, and those of unconfirmed accounts.

use crate::http::device_login::MailingServer;
use crate::http::limits::{LIMITED, START, small_plans, worker};
use crate::support::*;

/// A plan with one megabyte of storage and plenty of everything else.
fn one_megabyte() -> Plans {
    let entry = |storage: u32| json!({"cues": 1_000, "executions": null, "requests_per_minute": null, "storage_mb": storage});
    Plans::new(&json!({"free": entry(1), "pro": entry(2)}))
}

fn usage(user: &Client, group: &str, field: &str) -> i64 {
    user.read("/v1/usage")[group][field].as_i64().unwrap()
}

fn stored(user: &Client) -> i64 {
    usage(user, "storage", "used_bytes")
}

fn storage_limit(user: &Client) -> i64 {
    usage(user, "storage", "limit_bytes")
}

/// A cue of a worker with a payload of about `size` bytes.
fn cue_of(size: usize) -> Value {
    with(worker(YEARLY), json!({"payload": {"data": "x".repeat(size - 12)}}))
}

#[test]
fn cues_in_all_states_are_ten_times_the_active_ones_and_at_least_100() {
    let (server, user) = small_plans().with_user(LIMITED);
    let cues: Vec<Value> = (0..100)
        .map(|_| {
            let cue = user.create(&worker(YEARLY));
            user.change(&cue, &json!({"status": "paused"}));
            cue
        })
        .collect();
    let refused = user.post("/v1/cues", &worker(YEARLY));
    refused.refuses(403, "cue_limit_exceeded", "delete some");
    assert_eq!((usage(&user, "cues", "total"), usage(&user, "cues", "total_limit")), (100, 100));
    // Pausing and resuming need no room.
    user.change(&cues[0], &json!({"status": "active"}));
    server.user().create(&worker(YEARLY));
    user.delete(&cue_path(&cues[1])).expect(204);
    user.create(&worker(YEARLY));
}

#[test]
fn without_limits_the_bounds_on_cues_and_bytes_are_ten_times_those_of_the_largest_plan() {
    let (server, user) = small_plans().with_user(DEV_UNLIMITED);
    assert_eq!(usage(&user, "cues", "total_limit"), 1_000);
    assert_eq!(storage_limit(&user), 10_240_i64 << 20);
    let cue = user.create(&worker(YEARLY));
    server.sql("UPDATE users SET paused_cues = 999");
    user.post("/v1/cues", &worker(YEARLY)).expect_error(403, "cue_limit_exceeded");
    server.sql("UPDATE users SET paused_cues = 0, stored_bytes = 10737418240");
    user.post("/v1/cues", &cue_of(100)).expect_error(403, "storage_limit_exceeded");
    server.sql("UPDATE users SET stored_bytes = 0");
    user.delete(&cue_path(&cue)).expect(204);
}

#[test]
fn payloads_headers_and_kept_responses_share_the_storage_of_the_plan() {
    let (server, user) = one_megabyte().with_user(LIMITED);
    let cue = user.create(&cue_of(400_000));
    assert_eq!(stored(&user), 400_000);
    let callback = json!({"url": "http://127.0.0.1:9/", "headers": {"X-A": "v".repeat(1_000)}});
    let hook = with(webhook_cue("hook", YEARLY, ""), json!({"callback": callback}));
    let hook_cue = user.create(&hook);
    let with_headers = stored(&user);
    assert!((401_000..401_100).contains(&with_headers), "{with_headers}");
    user.change(&hook_cue, &json!({"callback": {"headers": {}}}));
    assert_eq!(stored(&user), 400_000, "a change of the headers is counted");

    // An override and the copy of a replay count; the payload of a cue that its executions share counts once.
    user.fire(&cue);
    assert_eq!(stored(&user), 400_000);
    let data = json!({"data": "y".repeat(500_000)});
    let own = json!({"payload_override": data});
    user.fire_with(&cue, &own);
    assert!(stored(&user) > 900_000);
    user.try_fire(&cue, &own).refuses(403, "storage_limit_exceeded", "delete cues");
    for refused in [
        user.post("/v1/cues", &cue_of(300_000)),
        user.patch(&cue_path(&hook_cue), &json!({"payload": data})),
        user.post("/v1/cues", &with(hook, json!({"payload": data}))),
    ] {
        refused.expect_error(403, "storage_limit_exceeded");
    }
    assert_eq!(usage(&user, "cues", "total"), 2, "a refused request stores nothing");
    // What stores nothing goes on, and others have their own storage.
    user.fire(&cue);
    user.change(&cue, &json!({"name": "renamed"}));
    server.user().create(&cue_of(400_000));

    // Deleting a cue gives the storage back.
    user.delete(&cue_path(&cue)).expect(204);
    user.settle();
    assert_eq!(stored(&user), 0);
    user.keyed("/v1/cues", "twelve-bytes", &worker(YEARLY)).expect(201);
    assert!(stored(&user) > 12, "the kept response counts: {}", stored(&user));
    user.advance("P1DT1S");
    until_true("the kept response is deleted", || stored(&user) == 0);
}

#[test]
fn results_count_and_a_report_without_them_is_never_refused() {
    let plans = one_megabyte();
    let (server, user) = plans.with_user(LIMITED);
    let cue = user.create(&worker(YEARLY));
    let report = |result: &Value| {
        let run = user.fire(&cue);
        user.claim("w");
        (user.post(&format!("/v1/executions/{run}/outcome"), result), run)
    };
    let large = json!({"success": true, "result": "r".repeat(60_000), "metadata": {"m": "x".repeat(1_000)}});
    for number in 1..=17 {
        assert_eq!(report(&large).0.status, 200, "report {number}");
    }
    // 17 times 61,008 bytes are stored; another 61,008 would be more than a megabyte.
    assert_eq!(stored(&user), 17 * 61_008);
    let (refused, run) = report(&large);
    refused.expect_error(403, "storage_limit_exceeded");
    user.report(&run, &json!({"success": true}));
    let evidence = json!({"summary": "z".repeat(400)});
    user.patch(&format!("/v1/executions/{run}/evidence"), &evidence).expect(200);
    assert!(stored(&user) > 17 * 61_008 + 400, "evidence counts");
    server.assert_counters();
    // A larger plan has room.
    plans.set(&server, &user.email(), "pro");
    assert_eq!(report(&large).0.status, 200);
}

#[test]
fn of_a_response_without_room_the_success_alone_is_the_outcome() {
    let (plans, receiver) = (one_megabyte(), Receiver::start());
    let (server, user) = plans.with_user(LIMITED);
    let large = json!({"success": true, "result": "r".repeat(60_000), "external_id": "7"});
    receiver.react(Reaction::Full(200, Vec::new(), large.to_string()));
    let callback = json!({"url": receiver.url(), "outcome_from_response": true});
    let more = json!({"callback": callback, "verification": {"mode": "require_external_id"}});
    let cue = user.create(&with(webhook_cue("hook", YEARLY, ""), more));
    let shown = || {
        let run = user.fire(&cue);
        user.settle();
        user.execution(&run)
    };
    for number in 1..=17 {
        let shown = shown();
        assert_eq!(shown["outcome_state"], "verified_success", "response {number}");
        assert_eq!(shown["outcome"].text("result").len(), 60_000);
    }
    let before = stored(&user);
    let bare = shown();
    assert_has(&bare["outcome"], json!({"success": true, "result": null}));
    let state = "verification_failed"; // its evidence had no room
    assert_has(&bare, json!({"status": "success", "evidence": null, "outcome_state": state}));
    assert_eq!(stored(&user), before);
    server.assert_counters();
    assert_eq!(usage(&user, "outcomes", "reported"), 18);
    // Evidence that finds room later proves it.
    let evidence = format!("/v1/executions/{}/evidence", id(&bare));
    let proved = user.patch(&evidence, &json!({"external_id": "7"})).expect(200);
    assert_eq!(proved["outcome_state"], "verified_success");
}

#[test]
fn an_account_has_at_most_100_keys() {
    let (_server, user) = one_megabyte().with_user(LIMITED);
    let make = |user: &Client| user.post("/v1/auth/keys", &json!({"name": "device"}));
    let made: Vec<Value> = (1..100).map(|_| make(&user).expect(201)).collect();
    make(&user).refuses(409, "key_limit_exceeded", "revoke");
    assert_eq!(user.delete(&format!("/v1/auth/keys/{}", id(&made[0]))).status, 204);
    make(&user).expect(201);
    make(&user).expect_error(409, "key_limit_exceeded");
    user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    let (_server, unlimited) = Server::with_user(DEV_UNLIMITED);
    (0..105).for_each(|_| drop(make(&unlimited).expect(201)));
}

fn workers(user: &Client) -> Vec<Value> {
    user.read("/v1/workers").column("workers", "worker_id")
}

#[test]
fn at_1000_workers_the_oldest_dead_one_gives_way() {
    let (server, user) = one_megabyte().with_user(LIMITED);
    user.beat("oldest").expect(200);
    user.advance("PT1S");
    server.sql(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 999)
         INSERT INTO workers SELECT user_key, 'w' || n, handlers, last_heartbeat + 1000, registered_since FROM workers, n",
    );
    user.beat("one-more").refuses(409, "worker_limit_exceeded", "worker_id");
    user.beat("w7").expect(200);
    server.user().beat("one-more").expect(200);
    user.advance("PT14M59S");
    user.beat("one-more").expect(200);
    let left = workers(&user);
    assert_eq!((left.len(), left.contains(&json!("oldest"))), (1_000, false));
    user.beat("another").expect_error(409, "worker_limit_exceeded");
}

#[test]
fn a_worker_that_is_silent_for_30_days_and_holds_nothing_is_forgotten() {
    let (server, user) = one_megabyte().with_user(LIMITED);
    user.fire(&user.create(&worker(YEARLY)));
    let claimed = user.claim("holder");
    for name in ["idle", "holder", "talking"] {
        user.beat(name).expect(200);
    }
    // A lease of a month: the test does not renew it a thousand times.
    server.sql("UPDATE executions SET lease_expires_at = lease_expires_at + 5184000000");
    user.advance("P29DT23H");
    user.beat("talking").expect(200);
    assert_eq!(workers(&user).len(), 3);
    user.advance("PT1H");
    until_true("the idle worker is forgotten", || workers(&user) == ["talking", "holder"]);
    user.report(&claimed, &json!({"success": true}));
    user.advance("PT1H");
    until_true("the other one too", || workers(&user) == ["talking"]);
}

#[test]
fn the_handlers_of_a_worker_have_at_most_16_kib() {
    let (_server, user) = one_megabyte().with_user(LIMITED);
    let beat = |count: usize| {
        let handlers = vec!["h".repeat(200); count];
        user.post("/v1/worker/heartbeat", &json!({"worker_id": "w", "handlers": handlers}))
    };
    beat(80).expect(200);
    beat(90).refuses(422, "validation_error", "16384 bytes");
}

#[test]
fn evidence_and_verdicts_are_refused_when_the_storage_is_used_up() {
    let (_server, user) = one_megabyte().with_user(&["--dev"]);
    let run = user.fire(&user.create(&cue_of(1_040_012)));
    let path = |last: &str| format!("/v1/executions/{run}/{last}");
    user.report(&run, &json!({"success": true}));
    let long = "x".repeat(60_000);
    user.patch(&path("evidence"), &json!({"summary": long}))
        .expect_error(403, "storage_limit_exceeded");
    user.post(&path("verify"), &json!({"reason": long}))
        .expect_error(403, "storage_limit_exceeded");
    let keyed = |id: &str| user.keyed("/v1/executions/replay", "small", &json!({"ids": [id]}));
    keyed("a").expect(200);
    keyed("b").expect_error(409, "idempotency_conflict");
}

/// Anybody may register, and callbacks reach this machine.
const OPEN: &[&str] = &["--registration", "open", "--allow-callbacks-to", "loopback"];

#[test]
fn ten_accounts_an_hour_are_registered_from_one_address() {
    let flags = [OPEN, &["--trust-proxy", "127.0.0.1", "--test-clock", START]].concat();
    let server = Server::start(&flags);
    let register_as = |address: &str, email: &str| {
        let headers = [("X-Forwarded-For", address)];
        server.client().post_with("/v1/auth/register", &headers, &json!({ "email": email }))
    };
    let register =
        |address: &str, number: u32| register_as(address, &format!("u{number}@example.com"));
    register("192.0.2.1", 0).expect(201);
    server.client().advance("PT20M");
    // Refused ones do not count.
    register("192.0.2.1", 0).expect_error(409, "duplicate_email");
    register_as("192.0.2.1", "nonsense").expect_error(422, "validation_error");
    (1..10).for_each(|number| drop(register("192.0.2.1", number).expect(201)));
    let refused = register("192.0.2.1", 10).refuses_for(2_400, 429, "rate_limit_exceeded");
    assert_contains(refused.message(), &["cued user add"]);
    register("192.0.2.2", 10).expect(201);
    (11..21).for_each(|number| drop(register("2001:db8::1", number).expect(201)));
    register("2001:db8::ffff", 21).expect_error(429, "rate_limit_exceeded");
    register("2001:db8:0:1::1", 21).expect(201);
    server.client().advance("PT40M");
    register("192.0.2.1", 22).expect(201);
    register("192.0.2.1", 23).expect_error(429, "rate_limit_exceeded");
    // The operator is not limited, and neither are trusted accounts.
    server.administer(&["add", "u23@example.com"]);
    for flags in [DEV_UNLIMITED, &["--dev"], &["--registration", "open", "--limits", "off"]] {
        let server = Server::start(flags);
        (0..12).for_each(|_| drop(server.user()));
    }
}

/// A server with any number of executions and requests, and 64 MiB; its first user, and one who is unconfirmed.
fn unconfirmed() -> (MailingServer, Client, Client) {
    let plans = Plans::free(
        &json!({"cues": 500, "executions": null, "requests_per_minute": null, "storage_mb": 64}),
    );
    let mailing = MailingServer::open(&[OPEN, &["--plans", &plans.path()]].concat());
    let [first, bob] =
        ["ann@example.com", "bob@example.com"].map(|email| mailing.client().register(email));
    (mailing, first, bob)
}

/// Confirms the address of the unconfirmed user by signing in with a mailed link. The keys so far stay.
fn confirm(mailing: &MailingServer) {
    let code = mailing.code();
    let token = mailing.mail(&code, "bob@example.com").token();
    let pairs = [("token", token.as_str()), ("device_code", &code), ("other_keys", "keep")];
    assert_eq!(mailing.confirm_with(&pairs).status, 200);
}

#[test]
fn an_unconfirmed_account_stores_one_mebibyte() {
    let (mailing, first, bob) = unconfirmed();
    assert_eq!([&first, &bob].map(storage_limit), [64 << 20, 1 << 20]);
    for user in [&first, &bob, &first] {
        user.create(&cue_of(900_012));
    }
    let refused = bob.post("/v1/cues", &cue_of(200_012));
    let refused = refused.refuses(403, "storage_limit_exceeded", "confirm the address");
    assert_contains(refused.message(), &["1048576"]);
    bob.create(&cue_of(100_012));
    confirm(&mailing);
    assert_eq!(storage_limit(&bob), 64 << 20);
    bob.create(&cue_of(200_012));
}

/// A cue that calls the receiver every minute.
fn every_minute(receiver: &Receiver, max_attempts: u32) -> Value {
    let retry = json!({"max_attempts": max_attempts, "backoff_minutes": [0.1]});
    let more = json!({"retry": retry, "on_failure": {"email": false}});
    with(webhook_cue("call", "* * * * *", &receiver.url()), more)
}

#[test]
fn the_runs_of_an_unconfirmed_account_call_60_times_an_hour() {
    let (receiver, (mailing, _, bob)) = (Receiver::start(), unconfirmed());
    let cues: Vec<Value> = (0..2).map(|_| bob.create(&every_minute(&receiver, 2))).collect();
    let pending = || bob.read("/v1/executions?status=pending&limit=100");
    let assert_sent = |sent: usize, waiting: usize| {
        assert_eq!((receiver.count(), pending().list("executions").len()), (sent, waiting));
    };
    mailing.advance("PT29M");
    assert_sent(58, 0);
    mailing.advance("PT21M");
    assert_sent(60, 40);
    let reasons = pending().column("executions", "error_message");
    assert!(reasons.iter().all(|reason| reason == "address_unconfirmed"), "{reasons:?}");
    assert_eq!(mailing.client().read("/health")["status"], "healthy");
    let wait = "60 times an hour: wait 660 s, or confirm the address";
    bob.try_fire(&cues[0], &json!({})).refuses(403, "execution_limit_exceeded", wait);
    bob.fire(&bob.create(&worker(YEARLY)));
    mailing.advance("PT1H");
    // As many again, from the moment at which the first is an hour old.
    assert_eq!(receiver.count(), 120);

    // A confirmed address lets go what waits. What is left waits for a worker.
    confirm(&mailing);
    bob.settle();
    assert_sent(220, 1);
    (0..3).for_each(|_| drop(bob.fire(&cues[0])));
}

#[test]
fn attempts_count_as_calls_and_wait_like_them() {
    let (receiver, (mailing, _, bob)) = (Receiver::with(Reaction::Status(500)), unconfirmed());
    bob.create(&every_minute(&receiver, 7));
    mailing.advance("PT1H");
    assert_eq!(receiver.count(), 60, "seven attempts of eight runs, and four of the ninth");
    let shown = bob.read("/v1/executions?status=retrying");
    assert_eq!(shown["total"], 1, "{shown}");
    assert_eq!(shown["executions"][0]["http_status"], 500, "{shown}");
    confirm(&mailing);
    mailing.advance("PT30S");
    // No longer held up.
    let shown = bob.execution(id(&shown["executions"][0]));
    assert_has(&shown, json!({"status": "failed", "attempts": 7}));
}

#[test]
fn an_unconfirmed_account_without_a_run_for_7_days_is_removed() {
    let server = Server::start(&[OPEN, &["--test-clock", START]].concat());
    let (first, idle, active) = (server.user(), server.user(), server.user());
    for user in [&first, &idle, &active] {
        user.fire(&user.create(&cue_of(1_012)));
    }
    server.administer(&["add", "added@example.com"]);
    active.create(&worker("@daily"));
    let email = idle.email();
    first.advance("P6DT23H");
    idle.me();
    first.advance("PT7H");
    until_true("the account is removed", || idle.get("/v1/auth/me").status == 401);
    first.me();
    active.me();
    first.settle();
    assert_eq!(server.count("SELECT count(*) FROM users"), 3, "that of the operator stays");
    assert_eq!(server.count("SELECT count(*) FROM payloads"), 2);
    let left = "SELECT count(*) FROM executions WHERE user_key NOT IN (SELECT key FROM users)";
    assert_eq!(server.count(left), 0);
    server.assert_counters();
    // The address is free again.
    server.client().register(&email);
}

#[test]
fn accounts_of_a_server_that_trusts_them_are_not_removed() {
    let server = Server::with_test_clock(START);
    let (first, idle) = (server.user(), server.user());
    first.advance("P9D");
    idle.me();
}
