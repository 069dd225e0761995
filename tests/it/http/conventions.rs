//! What holds for every route: headers, methods, health and status.

use crate::http::cues::{START, without, worker_cue};
use crate::support::*;

#[test]
fn each_plan_has_its_rate_limit_and_name() {
    let server = Server::start(&["--dev", "--test-clock", START]);
    let user = server.client().register("ann@example.com");
    let db = server.db();
    for (plan, rate) in [("free", 60), ("pro", 200), ("scale", 500)] {
        let done =
            run(&["user", "--db", db.to_str().unwrap(), "set-plan", "ann@example.com", plan]);
        assert!(done.status.success(), "{plan}: {}", String::from_utf8_lossy(&done.stderr));
        let response = user.get("/v1/auth/me");
        assert_eq!(response.header("x-ratelimit-limit"), Some(rate.to_string().as_str()));
        assert_eq!(response.expect(200)["plan"], plan);
        let usage = user.get("/v1/usage").expect(200);
        assert_eq!(usage["plan"]["name"], json!(plan));
        assert_eq!(usage["rate_limit"]["limit"], json!(rate));
    }
}

#[test]
fn a_leap_second_is_taken_wherever_an_instant_is() {
    let (_server, user) = Server::with_clock_and_user("2026-01-01T00:00:00Z");
    for (at, zone) in [
        ("2026-06-30T23:59:60Z", "UTC"),
        ("2026-07-01T05:29:60+05:30", "UTC"),
        ("2026-07-01T01:59:60", "Europe/Berlin"),
    ] {
        let schedule = json!({"type": "once", "at": at, "timezone": zone});
        let cue = user.create(&json!({"name": at, "schedule": schedule, "transport": "worker"}));
        assert_eq!(cue["schedule"]["at"], "2026-07-01T00:00:00Z", "{at}");
        let path = format!("/v1/cues/{}/fire", id(&cue));
        let run = user.post(&path, &json!({"send_at": at})).expect(200);
        assert_eq!(run["scheduled_for"], "2026-07-01T00:00:00Z", "{at}");
    }
    assert_eq!(user.get("/v1/executions?since=2025-12-31T23:59:60Z").expect(200)["total"], 3);
    assert_eq!(user.get("/v1/executions?since=2026-06-30T23:59:60Z").expect(200)["total"], 0);
    user.get("/v1/executions?since=2026-06-30T12:30:60Z").expect_error(422, "validation_error");
}

fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn health_has_every_field_and_ignores_workers_in_its_status() {
    let (server, user) = Server::with_clock_and_user(START);
    user.create(&worker_cue("work"));
    user.advance("PT1H");
    let health = || {
        let (mut rest, poller) = without(&server.client().get("/health").expect(200), "poller");
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
    assert_eq!(names(&poller), ["cues_last_cycle", "cycle_duration_ms", "last_run", "seconds_ago"]);
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
    assert_eq!(server.client().get("/status").expect(200), json!({"status": "healthy"}));
}

#[test]
fn health_shows_lateness_uptime_and_the_disk() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let (user, client) = (server.user(), server.client());
    let health = |name: &str| client.get("/health").expect(200)[name].clone();
    assert_eq!(
        health("lateness"),
        json!({"count": 0, "p50_ms": null, "p99_ms": null, "max_ms": null})
    );
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "* * * * *"}, "callback": {"url": receiver.url()},
    }));
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
        let health = client.get("/health").expect(200);
        health["status"] == status && health["services"]["database"] == database
    };
    assert!(is("healthy", "ok"));
    let file = server.sqlite();
    file.execute_batch("ALTER TABLE workers RENAME TO elsewhere").unwrap();
    until("health is degraded", || is("degraded", "down").then_some(()));
    file.execute_batch("ALTER TABLE elsewhere RENAME TO workers").unwrap();
    until("health recovers", || is("healthy", "ok").then_some(()));
}
