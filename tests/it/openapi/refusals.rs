//! Refusals that every operation of a kind gives.

use std::fs;

use serde_json::json;

use crate::openapi::document::{OPERATIONS, Operation};
use crate::support::client::{Client, Response};
use crate::support::server::Server;

/// A path of the operation with parameters that name nothing.
fn path(it: &Operation) -> String {
    let execution = it.path.replace("{execution_id}", "0190a5c0-0000-7000-8000-000000000001");
    execution.replace("{token}", "a-token-of-20-letters").replace(['{', '}'], "")
}

fn call(client: &Client, it: &Operation) -> Response {
    client.call(&it.method.to_ascii_uppercase(), &path(it), &[], b"").unwrap()
}

#[test]
fn every_operation_with_a_key_refuses_a_request_without_one() {
    let server = Server::start(&["--dev", "--trust-proxy", "127.0.0.1/32"]);
    let client = server.client();
    let with_key: Vec<&Operation> = OPERATIONS.iter().filter(|it| it.has_key()).collect();
    assert!(with_key.len() > 30);
    for (number, it) in with_key.into_iter().enumerate() {
        // Each from an address of its own: requests without a key share a window of 60.
        let address = format!("10.0.0.{}", number + 1);
        let headers = [("X-Forwarded-For", address.as_str())];
        let response = client.call(&it.method.to_ascii_uppercase(), &path(it), &headers, b"").unwrap();
        assert_eq!(response.expect_error(401, "invalid_api_key")["detail"], json!(null), "{}", it.id);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{}", it.id);
    }
}

#[test]
fn operations_without_a_key_serve_requests_without_one() {
    let server = Server::start(&["--dev"]);
    for it in OPERATIONS.iter().filter(|it| !it.has_key()) {
        let status = call(&server.client(), it).status;
        assert!(![401, 405].contains(&status), "{}: {status}", it.id);
    }
}

#[test]
fn a_path_parameter_that_is_no_text_names_nothing() {
    let server = Server::start(&["--dev", "--limits", "off"]);
    let user = server.user();
    let with_parameter: Vec<&Operation> = OPERATIONS.iter().filter(|it| it.path.contains('{')).collect();
    assert!(with_parameter.len() > 20);
    for it in with_parameter {
        let (begin, end) = (it.path.find('{').unwrap(), it.path.find('}').unwrap());
        let path = format!("{}%FF{}", &it.path[..begin], &it.path[end + 1..]);
        let body: &[u8] = if it.json["requestBody"].is_null() { b"" } else { b"{}" };
        let response = user.call(&it.method.to_ascii_uppercase(), &path, &[], body).unwrap();
        let code = response.code();
        assert_ne!(code, "not_found", "{}", it.id);
        assert!(code.ends_with("_not_found") || response.status == 422, "{}: {code}", it.id);
    }
}

#[test]
fn operations_refuse_values_outside_of_their_bounds() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let user = server.user();
    let due = json!({"type": "once", "at": "2030-01-01T01:00:00Z"});
    let cue = user.create(&json!({"name": "a", "transport": "worker", "schedule": due}));
    let path = format!("/v1/cues/{}", cue["id"].as_str().unwrap());
    user.get(&format!("{path}/missed?limit=0")).expect_error(422, "validation_error");
    user.post("/v1/test/clock", &json!({"advance": "soon"})).expect_error(422, "validation_error");
    let large = json!({"text": "x".repeat(1 << 20)});
    user.patch(&path, &json!({"payload": large})).expect_error(400, "invalid_payload_size");
    let fire = json!({"payload_override": large});
    user.post(&format!("{path}/fire"), &fire).expect_error(400, "invalid_payload_size");
    user.advance("PT1H");
    let execution = user.only_execution(cue["id"].as_str().unwrap());
    let report = format!("/v1/executions/{}/outcome", execution["id"].as_str().unwrap());
    user.post(&report, &json!({"success": true})).expect(200);
    user.patch(&path, &json!({"status": "paused"})).expect_error(409, "invalid_state");
}

#[test]
fn evidence_and_verdicts_are_refused_when_the_storage_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let free = json!({"cues": 10, "executions": 300, "requests_per_minute": 60, "storage_mb": 1});
    fs::write(&plans, json!({"free": free}).to_string()).unwrap();
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

#[test]
fn the_return_pages_of_the_provider_refuse_a_body() {
    let server = Server::start(&["--dev"]);
    for path in ["/billing/thanks", "/billing/closed"] {
        let response = server.client().call("GET", path, &[], b"x").unwrap();
        assert_eq!((response.status, response.header("x-frame-options")), (400, Some("DENY")), "{path}");
    }
}
