//! What holds for every route: headers, methods, health and status.

use crate::http::cues::START;
use crate::support::*;

#[test]
fn each_plan_has_its_rate_limit_and_name() {
    let server = Server::start(&["--dev", "--test-clock", START]);
    let user = server.client().register("ann@example.com");
    for (plan, rate) in [("free", 60), ("pro", 200), ("scale", 500)] {
        server.administer(&["set-plan", "ann@example.com", plan]);
        let response = user.get("/v1/auth/me");
        assert_eq!(response.header("x-ratelimit-limit"), Some(rate.to_string().as_str()));
        assert_eq!(response.expect(200)["plan"], plan);
        let usage = user.read("/v1/usage");
        assert_eq!(usage["plan"]["name"], json!(plan));
        assert_eq!(usage["rate_limit"]["limit"], json!(rate));
    }
}

#[test]
fn health_has_every_field_and_ignores_workers_in_its_status() {
    let (server, user) = Server::with_clock_and_user(START);
    user.create(&hourly_cue("work"));
    user.advance("PT1H");
    let health = || {
        let (mut rest, poller) = without(&server.client().read("/health"), "poller");
        // They change from one request to the next.
        rest = ["lateness", "uptime_seconds", "database"]
            .iter()
            .fold(rest, |rest, name| without(&rest, name).0);
        (rest, poller)
    };
    let (rest, poller) = health();
    let expected = |worker: &str, active: u32, now: &str, waited: u32| {
        json!({
            "status": "healthy", "version": env!("CARGO_PKG_VERSION"), "timestamp": now,
            "services": {"database": "ok", "cache": "ok", "poller": "ok", "worker": worker},
            "workers": {"active_count": active},
            "queue": {
                "pending_outbox": 0, "stale_executions": 0, "pending_retries": 0, "pending_worker_claims": 1,
                "oldest_pending_claim_seconds": waited,
            },
        })
    };
    assert_eq!(rest, expected("none", 0, "2026-01-05T10:00:00", 0));
    assert_has(&poller, json!({"last_run": "2026-01-05T10:00:00Z", "seconds_ago": 0}));
    assert!(poller["cues_last_cycle"].is_u64() && poller["cycle_duration_ms"].is_u64(), "{poller}");

    let beat = json!({"worker_id": "w", "handlers": ["greet"]});
    assert_eq!(user.post("/v1/worker/heartbeat", &beat).expect(200)["acknowledged"], true);
    assert_eq!(health().0, expected("ok", 1, "2026-01-05T10:00:00", 0));
    user.advance("PT14M59S");
    assert_eq!(health().0, expected("stale", 0, "2026-01-05T10:14:59", 899));
    user.advance("PT5M1S");
    assert_eq!(health().0, expected("waiting", 0, "2026-01-05T10:20:00", 1_200));
    user.claim("w");
    let rest = health().0;
    assert_eq!(rest["services"]["worker"], "stale");
    assert_eq!(rest["status"], "healthy");
    assert_eq!(rest["queue"]["oldest_pending_claim_seconds"], 0);
    assert_eq!(server.client().read("/status"), json!({"status": "healthy"}));
}

#[test]
fn health_shows_lateness_uptime_and_the_disk() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let (user, client) = (server.user(), server.client());
    let health = |name: &str| client.read("/health")[name].clone();
    assert_eq!(
        health("lateness"),
        json!({"count": 0, "p50_ms": null, "p99_ms": null, "max_ms": null})
    );
    let cue = user.create(&webhook_cue("hook", "* * * * *", &receiver.url()));
    user.advance("PT3M");
    // On a test clock nothing is late.
    assert_eq!(
        health("lateness"),
        json!({"count": 3, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0})
    );
    user.change(&cue, &json!({"status": "paused"}));
    assert!(health("uptime_seconds").is_u64());
    let database = health("database");
    let bytes = ["bytes", "wal_bytes", "free_disk_bytes"].map(|name| database[name].as_u64());
    assert!(bytes.iter().all(Option::is_some) && bytes[0] > Some(0), "{database}");
}

#[test]
fn an_unreadable_database_degrades_health_until_it_recovers() {
    let server = Server::with_test_clock(START);
    let client = server.client();
    let is = |status: &str, database: &str| {
        let health = client.read("/health");
        health["status"] == status && health["services"]["database"] == database
    };
    assert!(is("healthy", "ok"));
    let file = server.sqlite();
    file.execute_batch("ALTER TABLE workers RENAME TO elsewhere").unwrap();
    until("health is degraded", || is("degraded", "down").then_some(()));
    file.execute_batch("ALTER TABLE elsewhere RENAME TO workers").unwrap();
    until("health recovers", || is("healthy", "ok").then_some(()));
}
