//! Limits of accounts: cues, usage, and the addresses behind proxies.

mod rate;
mod storage;

use cued::domain::account::plan::PlanLimits;
use cued::service::accounts::change_plan;

use crate::support::*;

const START: &str = "2026-01-29T00:30:00Z";

/// A server with a clock at [`START`] and with plan limits.
fn limited() -> Server {
    Server::start(&["--dev", "--test-clock", START])
}

fn limited_user() -> (Server, Client) {
    Server::with_user(&["--dev", "--test-clock", START])
}

/// A file with a plan table whose limits are small enough to reach.
struct Plans(TempDir);

impl Plans {
    fn new(table: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("plans.json"), table.to_string()).unwrap();
        Self(folder)
    }

    /// Five executions and three cues on `free`, more of both on `pro`, fewer on `tiny`, with any number of requests.
    /// `plus` and `daily` have more executions than `free`.
    fn small() -> Self {
        Self::new(&json!({
            "free": {"cues": 3, "executions": 5, "requests_per_minute": null},
            "tiny": {"cues": 1, "executions": 2, "requests_per_minute": null},
            "plus": {"cues": 3, "executions": 6, "requests_per_minute": null},
            "daily": {"cues": 3, "executions": 30, "requests_per_minute": null},
            "pro": {"cues": 5, "executions": 1_000, "requests_per_minute": null},
        }))
    }

    fn path(&self) -> String {
        self.0.path().join("plans.json").to_str().unwrap().to_owned()
    }

    fn with_user(&self) -> (Server, Client) {
        let server = self.server();
        let user = server.user();
        (server, user)
    }

    fn server(&self) -> Server {
        Server::start(&["--dev", "--test-clock", START, "--plans", &self.path()])
    }
}

/// `cued user …` on the file of the server.
fn administer(server: &Server, arguments: &[&str]) {
    let db = server.db();
    let done = run(&[&["user", "--db", db.to_str().unwrap()], arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn email(user: &Client) -> String {
    user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned()
}

fn number(response: &Response, header: &str) -> i64 {
    response
        .header(header)
        .unwrap_or_else(|| panic!("{header} in {:?}", response.headers))
        .parse()
        .unwrap()
}

fn worker(cron: &str) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": cron}})
}

fn statuses(user: &Client, cues: &[Value]) -> Vec<String> {
    let status = |cue: &Value| {
        let shown = user.get(&format!("/v1/cues/{}", id(cue))).expect(200);
        assert_eq!(shown["status"] == "active", !shown["next_run"].is_null(), "{shown}");
        shown["status"].as_str().unwrap().to_owned()
    };
    cues.iter().map(status).collect()
}

#[test]
fn a_downgrade_pauses_the_newest_cues_above_the_limit() {
    let plans = Plans::small();
    let (server, user) = plans.with_user();
    let email = email(&user);
    administer(&server, &["set-plan", &email, "pro", "--plans", &plans.path()]);
    let cues: Vec<Value> = (0..5).map(|_| user.create(&worker("0 * * * *"))).collect();
    user.post("/v1/cues", &worker("0 * * * *")).expect_error(403, "cue_limit_exceeded");
    user.patch(&format!("/v1/cues/{}", id(&cues[0])), &json!({"status": "paused"})).expect(200);
    // Without limits a smaller plan pauses no cue.
    administer(&server, &["set-plan", &email, "free", "--plans", &plans.path(), "--limits", "off"]);
    assert_eq!(statuses(&user, &cues), ["paused", "active", "active", "active", "active"]);
    administer(&server, &["set-plan", &email, "free", "--plans", &plans.path()]);
    assert_eq!(statuses(&user, &cues), ["paused", "active", "active", "active", "paused"]);
    let usage = user.get("/v1/usage").expect(200)["cues"].clone();
    assert_has(&usage, json!({"active": 3, "limit": 3, "remaining": 0}));
    let newest = format!("/v1/cues/{}", id(&cues[4]));
    user.patch(&newest, &json!({"status": "active"})).expect_error(403, "cue_limit_exceeded");
    administer(&server, &["set-plan", &email, "pro", "--plans", &plans.path()]);
    user.patch(&newest, &json!({"status": "active"})).expect(200);
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
fn due_runs_of_a_cue_fire_before_a_downgrade_pauses_it() {
    assert_eq!(downgraded(false), [("active", 0, 0), ("paused", 3, 0), ("paused", 3, 0)]);
}

#[test]
fn due_runs_of_a_cue_paused_by_a_downgrade_of_a_held_database_are_recorded_as_missed() {
    assert_eq!(downgraded(true), [("active", 0, 0), ("paused", 0, 3), ("paused", 0, 3)]);
}

#[test]
fn a_due_run_fires_before_a_command_without_a_server_pauses_its_cue() {
    let plans = Plans::small();
    let (mut server, user) = Server::with_user(&["--dev", "--plans", &plans.path()]);
    let cues: Vec<Value> = (0..2).map(|_| user.create(&worker("0 0 1 1 *"))).collect();
    let email = email(&user);
    server.stop();
    let due_now = "UPDATE cues SET next_run = (SELECT max(created_at) FROM cues)";
    assert_eq!(server.sqlite().execute(due_now, []).unwrap(), 2);
    administer(&server, &["set-plan", &email, "tiny", "--plans", &plans.path()]);
    server.restart();
    let user = user.at(server.addr());
    assert_eq!(statuses(&user, &cues), ["active", "paused"]);
    let newest = user.get(&format!("/v1/cues/{}", id(&cues[1]))).expect(200);
    assert_eq!((&newest["run_count"], &newest["missed_count"]), (&json!(1), &json!(0)), "{newest}");
    let claimable = user.get("/v1/executions/claimable").expect(200);
    let cue_ids: Vec<&Value> =
        claimable["executions"].as_array().unwrap().iter().map(|run| &run["cue_id"]).collect();
    assert!(cue_ids.contains(&&cues[1]["id"]), "{claimable}");
}

/// Executions in the file by status and reason.
fn ends(server: &Server) -> Vec<(String, Option<String>)> {
    let file = server.sqlite();
    let mut all =
        file.prepare("SELECT status, error_message FROM executions ORDER BY key").unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_disabled_users_keys_cues_and_deliveries_stop() {
    let (server, receiver) =
        (Server::with_test_clock(crate::http::limits::START), Receiver::start());
    let (user, other) = (server.user(), server.user());
    let email = email(&user);
    receiver.first([Reaction::Status(500)]);
    let hook = json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                      "callback": {"url": receiver.url()}});
    let cue = user.create(&hook);
    user.create(&worker("0 * * * *"));
    user.create(&worker("0 * * * *"));
    let kept = other.create(&worker("0 * * * *"));
    // One delivery waits for its second attempt, one execution for its instant, one for a worker; one is claimed.
    user.advance("PT30M");
    user.post("/v1/executions/claim", &json!({})).expect(200);
    user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({"send_at": "2026-01-30T00:00:00Z"}))
        .expect(200);
    assert_eq!(receiver.deliveries().len(), 1);
    administer(&server, &["disable", &email]);
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let disabled = ("failed".to_owned(), Some("account_disabled".to_owned()));
    let pending = ("pending".to_owned(), None);
    let mut all = ends(&server);
    all.sort();
    assert_eq!(all, [vec![disabled.clone(); 4], vec![pending]].concat());
    let queue = other.get("/health").expect(200)["queue"].clone();
    assert_has(&queue, json!({"pending_retries": 0, "pending_worker_claims": 1}));
    let moved = other.advance("P1D");
    assert_eq!((&moved["delivered"], &moved["fired"]), (&json!(0), &json!(24)));
    assert_eq!(receiver.deliveries().len(), 1);
    assert_eq!(other.executions_of(id(&kept)).len(), 25);
}

#[test]
fn a_running_attempt_of_a_disabled_user_is_not_retried() {
    let (server, receiver) =
        (Server::with_test_clock(crate::http::limits::START), Receiver::start());
    let (user, other) = (server.user(), server.user());
    let email = email(&user);
    receiver.first([Reaction::Status(500)]);
    user.create(&json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                        "callback": {"url": receiver.url()}}));
    user.advance("PT30M");
    administer(&server, &["disable", &email]);
    // As if the response had arrived only now.
    let again =
        "UPDATE executions SET status = 'retrying', queue_name = 'waiting', due_at = last_attempt_at + 1000;
                 UPDATE backlog SET count = 1 WHERE name = 'retry'";
    server.sqlite().execute_batch(again).unwrap();
    other.advance("PT1H");
    assert_eq!(receiver.deliveries().len(), 1);
    let [(status, reason)] = &ends(&server)[..] else { panic!("more than one execution") };
    assert_eq!(status, "failed");
    assert!(reason.as_ref().unwrap().contains("account_disabled"), "{reason:?}");
}

fn usage(user: &Client) -> Value {
    user.get("/v1/usage").expect(200)
}

#[test]
fn usage_of_a_free_account_has_all_fields_and_limits() {
    let (_server, user) = limited_user();
    user.create(&worker("0 * * * *"));
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
    let (_server, user) = Plans::small().with_user();
    let cue = user.create(&worker("0 * * * *"));
    user.advance("PT3H");
    let executions = user.executions_of(id(&cue));
    for (execution, success) in executions.iter().zip([true, false, true]) {
        let path = format!("/v1/executions/{}/outcome", id(execution));
        user.post(&path, &json!({"success": success})).expect(200);
        user.post(&path, &json!({"success": success}))
            .expect_error(409, "outcome_already_reported");
    }
    let figures = |user: &Client| {
        let usage = usage(user);
        (usage["executions"].clone(), usage["outcomes"].clone(), usage["cues"]["active"].clone())
    };
    let executions = json!({"used": 3, "limit": 5, "remaining": 2});
    let outcomes = json!({"reported": 3, "succeeded": 2, "failed": 1});
    assert_eq!(figures(&user), (executions.clone(), outcomes.clone(), json!(1)));
    assert_eq!(user.delete(&format!("/v1/cues/{}", id(&cue))).status, 204);
    assert_eq!(figures(&user), (executions, outcomes, json!(0)));
    user.advance_to("2026-02-01T00:00:00Z");
    let none = json!({"reported": 0, "succeeded": 0, "failed": 0});
    assert_eq!(figures(&user), (json!({"used": 0, "limit": 5, "remaining": 5}), none, json!(0)));
    assert_eq!(
        usage(&user)["billing_period"],
        json!({"start": "2026-02-01T00:00:00Z", "end": "2026-03-01T00:00:00Z"})
    );
}

#[test]
fn usage_shows_zero_remaining_above_the_quota_and_the_billing_interval() {
    let (server, user) = Plans::small().with_user();
    user.create(&worker("0 * * * *"));
    user.advance("PT7H");
    server.sqlite().execute("UPDATE users SET plan_interval = 'annual'", []).unwrap();
    let usage = usage(&user);
    assert_eq!(usage["executions"], json!({"used": 7, "limit": 5, "remaining": 0}));
    assert_eq!(usage["plan"], json!({"name": "free", "interval": "annual"}));
}

#[test]
fn health_counts_claimable_and_retrying_executions() {
    let (_server, user) = Plans::small().with_user();
    user.create(&worker("0 * * * *"));
    user.create(&json!({"name": "hook", "schedule": {"type": "recurring", "cron": "0 * * * *"},
                        "callback": {"url": "http://127.0.0.1:9/"}, "retry": {"backoff_minutes": [600]}}));
    let queue = |pending_worker_claims: i64, pending_retries: i64, oldest: i64| {
        json!({"pending_outbox": 0, "stale_executions": 0, "pending_retries": pending_retries,
               "pending_worker_claims": pending_worker_claims,
               "oldest_pending_claim_seconds": oldest})
    };
    user.advance("PT1H");
    assert_eq!(user.get("/health").expect(200)["queue"], queue(1, 1, 1_800));
    user.post("/v1/executions/claim", &json!({})).expect(200);
    assert_eq!(user.get("/health").expect(200)["queue"], queue(0, 1, 0));
    // The claim has expired and the next run has fired.
    user.advance("PT1H");
    assert_eq!(user.get("/health").expect(200)["queue"], queue(2, 2, 2_700));
}

/// The remaining requests of a client with this `X-Forwarded-For`.
fn left(client: &Client, hops: &str) -> i64 {
    let response = client.call("GET", "/v1/cues", &[("X-Forwarded-For", hops)], b"").unwrap();
    number(&response, "x-ratelimit-remaining")
}

#[test]
fn behind_a_trusted_proxy_each_client_has_its_own_rate_window() {
    let trusted = ["--trust-proxy", "127.0.0.1,10.0.0.0/8", "--trust-proxy", "fd00::/8"];
    let server = Server::start(&[DEV_UNLIMITED, &trusted].concat());
    let proxy = server.client();
    assert_eq!(left(&proxy, "203.0.113.1"), 59);
    assert_eq!(left(&proxy, "203.0.113.2"), 59);
    // Entries written by the client precede its address.
    assert_eq!(left(&proxy, "198.51.100.7, 203.0.113.1"), 58);
    assert_eq!(left(&proxy, "203.0.113.1, fd00::1, 10.1.2.3"), 57);
    let two = [("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-For", "203.0.113.1")];
    assert_eq!(
        number(&proxy.call("GET", "/v1/cues", &two, b"").unwrap(), "x-ratelimit-remaining"),
        56
    );
    assert_eq!(left(&proxy, "2001:db8:0:1::5"), 59);
    assert_eq!(left(&proxy, "2001:db8:0:1:ffff::9"), 58, "one /64 is one client");
    assert_eq!(left(&proxy, "2001:db8:0:2::5"), 59);
    assert_eq!(left(&proxy, "nonsense"), 59, "the proxy itself");
}

#[test]
fn empty_entries_of_a_proxy_do_not_count_and_unreadable_ones_are_not_skipped() {
    let server = Server::start(&[DEV_UNLIMITED, &["--trust-proxy", "127.0.0.1"]].concat());
    let proxy = server.client();
    let mut expected = 60;
    for hops in
        ["203.0.113.1", "203.0.113.1,", "203.0.113.1, ", "203.0.113.1 ,, ,", ",203.0.113.1,\t,"]
    {
        expected -= 1;
        assert_eq!(left(&proxy, hops), expected, "{hops:?}");
    }
    let more =
        [("X-Forwarded-For", "203.0.113.1"), ("X-Forwarded-For", ""), ("X-Forwarded-For", ",")];
    assert_eq!(
        number(&proxy.call("GET", "/v1/cues", &more, b"").unwrap(), "x-ratelimit-remaining"),
        54
    );
    // What a client sends that is no text hides nothing that the proxy appends.
    assert_eq!(left(&proxy, "Größe, 203.0.113.1"), 53);
    // The entries before one that cannot be read may be those of the client.
    assert_eq!(left(&proxy, "203.0.113.9, unknown"), 59, "the proxy itself");
    assert_eq!(left(&proxy, "203.0.113.9, unknown, "), 58, "the proxy itself");
    assert_eq!(left(&proxy, " , "), 57, "the proxy itself");
}

#[test]
fn without_a_trusted_proxy_the_header_is_ignored() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    for (hops, expected) in [("203.0.113.1", 59), ("203.0.113.2", 58), ("203.0.113.3", 57)] {
        assert_eq!(left(&client, hops), expected);
    }
}
