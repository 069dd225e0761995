//! Limits of accounts: cues, usage, and the addresses behind proxies.

mod rate;
mod storage;

use std::slice;

use cued::domain::account::plan::PlanLimits;
use cued::service::accounts::change_plan;

use crate::support::*;

const START: &str = "2026-01-29T00:30:00Z";

/// The limits of plans are in force, and the clock is at [`START`].
const LIMITED: &[&str] = &["--dev", "--test-clock", START];

const HOURLY: &str = "0 * * * *";

/// Five executions and three cues on `free`, more of both on `pro`, fewer on `tiny`, with any number of requests.
/// `plus` and `daily` have more executions than `free`.
fn small_plans() -> Plans {
    let plan = |cues: u32, executions: u32| json!({"cues": cues, "executions": executions, "requests_per_minute": null});
    Plans::new(&json!({
        "free": plan(3, 5), "tiny": plan(1, 2), "plus": plan(3, 6), "daily": plan(3, 30), "pro": plan(5, 1_000),
    }))
}

fn number(response: &Response, header: &str) -> i64 {
    let value = response.header(header);
    value.unwrap_or_else(|| panic!("{header} in {:?}", response.headers)).parse().unwrap()
}

fn worker(cron: &str) -> Value {
    worker_cue("work", cron)
}

#[track_caller]
fn assert_statuses(user: &Client, cues: &[Value], expected: &[&str]) {
    for (cue, status) in cues.iter().zip(expected) {
        let shown = user.cue(cue);
        assert_eq!(shown["status"], *status, "{shown}");
        assert_eq!(shown["status"] == "active", !shown["next_run"].is_null(), "{shown}");
    }
}

#[test]
fn a_downgrade_pauses_the_newest_cues_above_the_limit() {
    let plans = small_plans();
    let (server, user) = plans.with_user(LIMITED);
    let email = user.email();
    plans.set(&server, &email, "pro");
    let cues: Vec<Value> = (0..5).map(|_| user.create(&worker(HOURLY))).collect();
    user.post("/v1/cues", &worker(HOURLY)).expect_error(403, "cue_limit_exceeded");
    user.change(&cues[0], &json!({"status": "paused"}));
    // Without limits a smaller plan pauses no cue.
    let path = plans.path();
    server.administer(&["set-plan", &email, "free", "--plans", &path, "--limits", "off"]);
    assert_statuses(&user, &cues, &["paused", "active", "active", "active", "active"]);
    plans.set(&server, &email, "free");
    assert_statuses(&user, &cues, &["paused", "active", "active", "active", "paused"]);
    assert_has(&usage(&user)["cues"], json!({"active": 3, "limit": 3, "remaining": 0}));
    let resume = || user.patch(&cue_path(&cues[4]), &json!({"status": "active"}));
    resume().expect_error(403, "cue_limit_exceeded");
    plans.set(&server, &email, "pro");
    resume().expect(200);
    assert_eq!(user.advance("PT1H")["fired"], 4, "only the active ones");
}

/// Three cues whose runs of the last three hours are due, but not fired, and what a change to a plan for one cue leaves
/// of each: status, runs and missed runs.
fn downgraded(hold: bool) -> [(&'static str, i64, i64); 3] {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cues = [(); 3].map(|()| fixture.worker_cue(user, |_| ()).key);
    fixture.advance(3 * 3_600);
    let (now, limits) = (fixture.now(), PlanLimits { cues: Some(1), ..PlanLimits::NONE });
    let firer = cued::service::fire::CueFirer::new(&fixture.app, now);
    let change = fixture.app.store.write(move |tx| {
        if hold {
            tx.execute("INSERT INTO meta (name, value) VALUES ('held_since', 0)", [])?;
        }
        change_plan(tx, user, "pro", limits, &firer)
    });
    assert_eq!(change.wait().unwrap(), 2);
    cues.map(|key| {
        let cue = fixture.cue(key);
        (cue.status.as_str(), cue.run_count, cue.missed_count)
    })
}

#[test]
fn due_runs_of_a_cue_fire_before_a_downgrade_pauses_it_and_are_missed_in_a_held_database() {
    assert_eq!(downgraded(false), [("active", 0, 0), ("paused", 3, 0), ("paused", 3, 0)]);
    assert_eq!(downgraded(true), [("active", 0, 0), ("paused", 0, 3), ("paused", 0, 3)]);
}

#[test]
fn a_due_run_fires_before_a_command_without_a_server_pauses_its_cue() {
    let plans = small_plans();
    let (mut server, user) = plans.with_user(&["--dev"]);
    let cues: Vec<Value> = (0..2).map(|_| user.create(&worker(YEARLY))).collect();
    let email = user.email();
    server.stop();
    server.sql("UPDATE cues SET next_run = (SELECT max(created_at) FROM cues)");
    plans.set(&server, &email, "tiny");
    let user = user.at(server.restart());
    assert_statuses(&user, &cues, &["active", "paused"]);
    assert_has(&user.cue(&cues[1]), json!({"run_count": 1, "missed_count": 0}));
    let claimable = user.read("/v1/executions/claimable").column("executions", "cue_id");
    assert!(claimable.contains(&cues[1]["id"]), "{claimable:?}");
}

/// Executions in the file by status and reason.
fn ends(server: &Server) -> Vec<(String, Option<String>)> {
    let file = server.sqlite();
    let mut all =
        file.prepare("SELECT status, error_message FROM executions ORDER BY status, key").unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Two users; the first has a cue that calls the receiver every hour, which fails once.
fn failing_once() -> (Server, Client, Client, Receiver, Value) {
    let (server, user) = Server::with_clock_and_user(START);
    let (other, receiver) = (server.user(), Receiver::start());
    receiver.first([Reaction::Status(500)]);
    let cue = user.create(&webhook_cue("hook", HOURLY, &receiver.url()));
    (server, user, other, receiver, cue)
}

#[test]
fn a_disabled_users_keys_cues_and_deliveries_stop() {
    let (server, user, other, receiver, cue) = failing_once();
    let email = user.email();
    (0..2).for_each(|_| drop(user.create(&worker(HOURLY))));
    let kept = other.create(&worker(HOURLY));
    // One delivery waits for its second attempt, one execution for its instant, one for a worker; one is claimed.
    user.advance("PT30M");
    user.claim("w");
    user.fire_with(&cue, &json!({"send_at": "2026-01-30T00:00:00Z"}));
    assert_eq!(receiver.count(), 1);
    server.administer(&["disable", &email]);
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let disabled = ("failed".to_owned(), Some("account_disabled".to_owned()));
    assert_eq!(ends(&server), [vec![disabled; 4], vec![("pending".to_owned(), None)]].concat());
    let queue = other.read("/health")["queue"].clone();
    assert_has(&queue, json!({"pending_retries": 0, "pending_worker_claims": 1}));
    assert_has(&other.advance("P1D"), json!({"delivered": 0, "fired": 24}));
    assert_eq!(receiver.count(), 1);
    assert_eq!(other.executions_of(id(&kept)).len(), 25);
}

#[test]
fn a_running_attempt_of_a_disabled_user_is_not_retried() {
    let (server, user, other, receiver, _) = failing_once();
    let email = user.email();
    user.advance("PT30M");
    server.administer(&["disable", &email]);
    // As if the response had arrived only now.
    server.sql(
        "UPDATE executions SET status = 'retrying', queue_name = 'waiting', due_at = last_attempt_at + 1000;
         UPDATE backlog SET count = 1 WHERE name = 'retry'",
    );
    other.advance("PT1H");
    assert_eq!(receiver.count(), 1);
    let [(status, reason)] = &ends(&server)[..] else { panic!("more than one execution") };
    assert_eq!(status, "failed");
    assert_contains(reason.as_ref().unwrap(), &["account_disabled"]);
}

fn usage(user: &Client) -> Value {
    user.read("/v1/usage")
}

#[test]
fn usage_of_a_free_account_has_all_fields_and_limits() {
    let (_server, user) = Server::with_user(LIMITED);
    user.create(&worker(HOURLY));
    assert_eq!(
        usage(&user),
        json!({
            "plan": {"name": "free", "interval": null},
            "cues": {"active": 1, "limit": 10, "remaining": 9, "total": 1, "total_limit": 100},
            "executions": {"used": 0, "limit": 300, "remaining": 300},
            "storage": {"used_bytes": 0, "limit_bytes": 64 << 20},
            "rate_limit": {"limit": 60, "current_usage": 2},
            "outcomes": {"reported": 0, "succeeded": 0, "failed": 0},
            "billing_period": {"start": "2026-01-01T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
        })
    );
}

#[test]
fn usage_of_the_month_outlives_deleted_cues() {
    let (_server, user) = small_plans().with_user(LIMITED);
    let cue = user.create(&worker(HOURLY));
    user.advance("PT3H");
    for (execution, success) in user.executions_of(id(&cue)).iter().zip([true, false, true]) {
        let (path, report) =
            (format!("/v1/executions/{}/outcome", id(execution)), json!({"success": success}));
        user.post(&path, &report).expect(200);
        user.post(&path, &report).expect_error(409, "outcome_already_reported");
    }
    let assert_usage = |used: i64, outcomes: [i64; 3], active: i64| {
        let ([reported, succeeded, failed], usage) = (outcomes, usage(&user));
        assert_has(
            &usage,
            json!({
                "executions": {"used": used, "limit": 5, "remaining": 5 - used},
                "outcomes": {"reported": reported, "succeeded": succeeded, "failed": failed},
            }),
        );
        assert_eq!(usage["cues"]["active"], active);
    };
    assert_usage(3, [3, 2, 1], 1);
    user.delete(&cue_path(&cue)).expect(204);
    assert_usage(3, [3, 2, 1], 0);
    user.advance_to("2026-02-01T00:00:00Z");
    assert_usage(0, [0, 0, 0], 0);
    let period = json!({"start": "2026-02-01T00:00:00Z", "end": "2026-03-01T00:00:00Z"});
    assert_eq!(usage(&user)["billing_period"], period);
}

#[test]
fn usage_shows_zero_remaining_above_the_quota_and_the_billing_interval() {
    let (server, user) = small_plans().with_user(LIMITED);
    user.create(&worker(HOURLY));
    user.advance("PT7H");
    server.sql("UPDATE users SET plan_interval = 'annual'");
    assert_has(
        &usage(&user),
        json!({
            "executions": {"used": 7, "limit": 5, "remaining": 0}, "plan": {"name": "free", "interval": "annual"},
        }),
    );
}

#[test]
fn health_counts_claimable_and_retrying_executions() {
    let (_server, user) = small_plans().with_user(LIMITED);
    user.create(&worker(HOURLY));
    let hook = webhook_cue("hook", HOURLY, "http://127.0.0.1:9/");
    user.create(&with(hook, json!({"retry": {"backoff_minutes": [600]}})));
    let assert_queue = |pending_worker_claims: i64, pending_retries: i64, oldest: i64| {
        let expected = json!({
            "pending_outbox": 0, "stale_executions": 0, "pending_retries": pending_retries,
            "pending_worker_claims": pending_worker_claims, "oldest_pending_claim_seconds": oldest,
        });
        assert_eq!(user.read("/health")["queue"], expected);
    };
    user.advance("PT1H");
    assert_queue(1, 1, 1_800);
    user.claim("w");
    assert_queue(0, 1, 0);
    // The claim has expired and the next run has fired.
    user.advance("PT1H");
    assert_queue(2, 2, 2_700);
}

/// Sends requests with these lines of `X-Forwarded-For`, and compares how many each client has left.
#[track_caller]
fn assert_left(flags: &[&str], rows: &[(&[&str], i64, &str)]) {
    let server = Server::start(&[DEV_UNLIMITED, flags].concat());
    for (lines, left, what) in rows {
        let headers: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
        let response = server.client().call("GET", "/v1/cues", &headers, b"").unwrap();
        assert_eq!(number(&response, "x-ratelimit-remaining"), *left, "{lines:?}: {what}");
    }
}

#[test]
fn behind_a_trusted_proxy_each_client_has_its_own_rate_window() {
    assert_left(
        &["--trust-proxy", "127.0.0.1,10.0.0.0/8", "--trust-proxy", "fd00::/8"],
        &[
            (&["203.0.113.1"], 59, "a client"),
            (&["203.0.113.2"], 59, "another client"),
            (
                &["198.51.100.7, 203.0.113.1"],
                58,
                "what the client has written precedes its address",
            ),
            (&["203.0.113.1, fd00::1, 10.1.2.3"], 57, "proxies of the operator"),
            (&["198.51.100.7", "203.0.113.1"], 56, "two headers"),
            (&["2001:db8:0:1::5"], 59, "a client"),
            (&["2001:db8:0:1:ffff::9"], 58, "one /64 is one client"),
            (&["2001:db8:0:2::5"], 59, "another client"),
            (&["203.0.113.1", "", " , "], 55, "empty entries"),
            (&["Größe, 203.0.113.1"], 54, "no text hides what the proxy appends"),
            (&["203.0.113.1, nonsense"], 59, "the proxy itself"),
        ],
    );
}

#[test]
fn without_a_trusted_proxy_the_header_is_ignored() {
    let rows = [("203.0.113.1", 59), ("203.0.113.2", 58), ("203.0.113.3", 57)];
    let rows = rows.each_ref().map(|(hops, left)| (slice::from_ref(hops), *left, "ignored"));
    assert_left(&[], &rows);
}
