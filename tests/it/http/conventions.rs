//! The conventions of all endpoints (contract §2): keys, the version prefix, errors, the rate of a plan.

use serde_json::json;

use super::cues::START;
use crate::support::server::{DEV_UNLIMITED, Server, run};

const SOME_CUE: &str = "/v1/cues/cue_0123456789ab";
const SOME_EXECUTION: &str = "/v1/executions/01890a5d-ac96-774b-bcce-b302099a8057";

/// Endpoints that require a key (contract §2.10, §2.12).
const KEYED: [(&str, &str); 16] = [
    ("POST", "/v1/cues"),
    ("GET", "/v1/cues"),
    ("GET", SOME_CUE),
    ("PATCH", SOME_CUE),
    ("DELETE", SOME_CUE),
    ("GET", "/v1/executions/claimable"),
    ("POST", "/v1/executions/01890a5d-ac96-774b-bcce-b302099a8057/claim"),
    ("POST", "/v1/executions/01890a5d-ac96-774b-bcce-b302099a8057/outcome"),
    ("POST", "/v1/worker/heartbeat"),
    ("POST", "/v1/auth/key/regenerate"),
    ("GET", "/v1/auth/me"),
    ("GET", "/v1/auth/webhook-secret"),
    ("POST", "/v1/auth/webhook-secret/regenerate"),
    ("POST", "/v1/billing/checkout"),
    ("POST", "/v1/billing/portal"),
    ("GET", "/v1/usage"),
];

/// Endpoints that require none, apart from the health checks.
const OPEN: [(&str, &str); 5] = [
    ("POST", "/v1/auth/register"),
    ("POST", "/v1/auth/device-code"),
    ("POST", "/v1/auth/device-code/poll"),
    ("POST", "/v1/auth/device-code/submit-email"),
    ("GET", "/v1/auth/verify"),
];

#[test]
fn every_endpoint_requires_a_key_except_the_public_ones() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    for (method, path) in KEYED {
        client.call(method, path, &[], b"").unwrap().expect_error(401, "invalid_api_key");
    }
    for (method, path) in OPEN {
        let response = client.call(method, path, &[], b"").unwrap();
        assert!(![401, 405].contains(&response.status), "{method} {path}: {}", response.text());
        assert!(!response.text().contains("\"not_found\""), "{method} {path}: {}", response.text());
    }
    for path in ["/health", "/status"] {
        client.get(path).expect(200);
    }
}

#[test]
fn every_path_except_the_health_checks_has_the_version_prefix() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    for (method, path) in KEYED.into_iter().chain(OPEN) {
        let bare = path.strip_prefix("/v1").unwrap();
        // The pages of billing have the same paths without the prefix.
        if !bare.starts_with("/billing/") {
            user.call(method, bare, &[], b"").unwrap().expect_error(404, "not_found");
        }
    }
    for path in ["/v1/health", "/v1/status"] {
        user.get(path).expect_error(404, "not_found");
    }
}

#[test]
fn each_plan_has_its_rate_limit_and_name() {
    let server = Server::start(&["--dev", "--test-clock", START]);
    let user = server.client().register("ann@example.com");
    let db = server.db();
    for (plan, rate) in [("free", 60), ("pro", 200), ("scale", 500)] {
        let done = run(&["user", "--db", db.to_str().unwrap(), "set-plan", "ann@example.com", plan]);
        assert!(done.status.success(), "{plan}: {}", String::from_utf8_lossy(&done.stderr));
        let response = user.get("/v1/auth/me");
        assert_eq!(response.header("x-ratelimit-limit"), Some(rate.to_string().as_str()));
        assert_eq!(response.expect(200)["plan"], plan);
        let usage = user.get("/v1/usage").expect(200);
        assert_eq!((&usage["plan"]["name"], &usage["rate_limit"]["limit"]), (&json!(plan), &json!(rate)));
    }
}

#[test]
fn an_error_has_exactly_code_message_and_status() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let outcome = format!("{SOME_EXECUTION}/outcome");
    for (response, status, code) in [
        (server.client().get("/v1/auth/me"), 401, "invalid_api_key"),
        (user.get(SOME_CUE), 404, "cue_not_found"),
        (user.delete(SOME_CUE), 404, "cue_not_found"),
        (user.post(&outcome, &json!({"success": true})), 404, "execution_not_found"),
        (
            user.post("/v1/billing/checkout", &json!({"plan": "free", "interval": "annual"})),
            400,
            "invalid_plan",
        ),
    ] {
        let refused = response.expect_error(status, code);
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(refused, json!({"error": {"code": code, "message": message, "status": status}}));
    }
}

#[test]
fn regenerating_a_key_returns_a_message_and_revokes_the_old_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let response = user.call("POST", "/v1/auth/key/regenerate", &[], b"").unwrap().expect(200);
    assert!(response["message"].as_str().is_some_and(|text| !text.is_empty()), "{response}");
    let key = response["api_key"].as_str().unwrap();
    assert!(key.starts_with("cue_sk_") && key != user.key());
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let me = user.with_key(key).get("/v1/auth/me").expect(200);
    assert!(!me.to_string().contains(key), "the key is shown once");
}

#[test]
fn a_leap_second_is_taken_wherever_an_instant_is() {
    let server = Server::with_test_clock("2026-01-01T00:00:00Z");
    let user = server.user();
    for (at, zone) in [
        ("2026-06-30T23:59:60Z", "UTC"),
        ("2026-07-01T05:29:60+05:30", "UTC"),
        ("2026-07-01T01:59:60", "Europe/Berlin"),
    ] {
        let schedule = json!({"type": "once", "at": at, "timezone": zone});
        let cue = user.create(&json!({"name": at, "schedule": schedule, "transport": "worker"}));
        assert_eq!(cue["schedule"]["at"], "2026-07-01T00:00:00Z", "{at}");
        let path = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
        let run = user.post(&path, &json!({"send_at": at})).expect(200);
        assert_eq!(run["scheduled_for"], "2026-07-01T00:00:00Z", "{at}");
    }
    assert_eq!(user.get("/v1/executions?since=2025-12-31T23:59:60Z").expect(200)["total"], 3);
    assert_eq!(user.get("/v1/executions?since=2026-06-30T23:59:60Z").expect(200)["total"], 0);
    user.get("/v1/executions?since=2026-06-30T12:30:60Z").expect_error(422, "validation_error");
}
