//! Unknown paths, methods and keys, and resources of other users.

use serde_json::{Value, json};

use super::{Case, check, good_cue, server};
use crate::support::server::{DEV_UNLIMITED, Server};

const SOME_UUID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[test]
fn paths_and_methods_are_checked_before_the_key() {
    let server = server();
    let cue = "/v1/cues/cue_0123456789ab";
    let rows = |keyless: bool| {
        let unknown = [
            "/nope",
            "/v1",
            "/v1/nope",
            "/v2/cues",
            "/v1/cues/a/b/c",
            "/v1/executions/a/b/c",
            "/v1/test/clock",
            "/V1/CUES",
        ];
        let wrong = [
            ("PUT", "/v1/cues"),
            ("DELETE", "/v1/cues"),
            ("PUT", cue),
            ("POST", cue),
            ("GET", "/v1/auth/register"),
            ("PATCH", "/v1/executions/claimable"),
            ("DELETE", "/health"),
            ("POST", "/status"),
            ("BREW", "/v1/cues"),
        ];
        let unknown = unknown.map(|path| Case::get(path).expect_error(404, "not_found"));
        let wrong =
            wrong.map(|(method, path)| Case::raw(method, path, "").expect_error(405, "method_not_allowed"));
        unknown
            .into_iter()
            .chain(wrong)
            .map(move |case| case.named(if keyless { "without key" } else { "with key" }))
    };
    check(&server.user(), rows(false));
    check(&server.client(), rows(true));
}

#[test]
fn the_path_of_the_test_clock_exists_only_with_a_test_clock() {
    let server = Server::start(DEV_UNLIMITED);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
        for body in ["", "{}", r#"{"advance": "PT1H"}"#] {
            let response = server.client().call(method, "/v1/test/clock", &[], body.as_bytes()).unwrap();
            assert_eq!(response.status, 404, "{method} {body}");
        }
        let announced = [("Content-Length", "3000000")];
        assert_eq!(
            server.client().call(method, "/v1/test/clock", &announced, b"").unwrap().status,
            404,
            "{method}"
        );
    }
    let clock = Server::with_test_clock("2030-01-01T00:00:00Z");
    clock.client().advance("PT1H");
    let long = json!({"advance": "x".repeat(1_024)});
    clock.client().post("/v1/test/clock", &long).expect_error(413, "payload_too_large");
    clock.client().call("PUT", "/v1/test/clock", &[], b"").unwrap().expect_error(405, "method_not_allowed");
}

#[test]
fn a_wrong_method_lists_the_allowed_ones() {
    let server = server();
    let allowed = |method: &str, path: &str| {
        let response = server.client().call(method, path, &[], b"").unwrap();
        response.expect_error(405, "method_not_allowed");
        let mut words: Vec<String> =
            response.header("allow").unwrap().split(',').map(|it| it.trim().to_owned()).collect();
        words.sort();
        words.retain(|word| word != "HEAD" && word != "OPTIONS");
        words
    };
    assert_eq!(allowed("PUT", "/v1/cues"), ["GET", "POST"]);
    assert_eq!(allowed("POST", "/v1/cues/cue_0123456789ab"), ["DELETE", "GET", "PATCH"]);
    assert_eq!(allowed("GET", "/v1/auth/register"), ["POST"]);
}

#[test]
fn a_missing_or_invalid_key_gets_401() {
    let server = server();
    let user = server.user();
    let key = user.key().to_owned();
    let stranger = format!("cue_sk_{}", "0".repeat(32));
    let cut = &key[..key.len() - 1];
    let mut rows: Vec<Case> = [
        "",
        "Bearer",
        "Bearer ",
        &key,
        "Basic dXNlcjpwYXNz",
        "Bearer nonsense",
        &format!("Token {key}"),
        &format!("Bearer {stranger}"),
        &format!("Bearer {cut}"),
        &format!("Bearer {key}0"),
        &format!("Bearer {}", key.to_uppercase()),
        &format!("Bearer cue_sk_{}", "a".repeat(5_000)),
        &format!("Bearer {key}, Bearer {key}"),
        "Bearer cue_sk_' OR 1=1 --",
    ]
    .map(|value| {
        Case::get("/v1/auth/me")
            .header("Authorization", value)
            .named(value)
            .expect_error(401, "invalid_api_key")
    })
    .into();
    rows.push(Case::get("/v1/auth/me").named("no header").expect_error(401, "invalid_api_key"));
    rows.push(
        Case::raw("POST", "/v1/cues", "{")
            .named("before the body is read")
            .expect_error(401, "invalid_api_key"),
    );
    rows.push(Case::get("/v1/cues?limit=0").named("before the query").expect_error(401, "invalid_api_key"));
    rows.push(Case::get("/v1/auth/me").header("Authorization", &format!("Bearer {key}")).accepted(200));
    check(&server.client(), rows);
}

#[test]
fn missing_resources_and_those_of_other_users_are_indistinguishable() {
    let server = server();
    let (owner, stranger) = (server.user(), server.user());
    let cue = owner.create(&good_cue());
    let work = owner.create(
        &json!({"name": "w", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"}}),
    );
    let fired =
        owner.post(&format!("/v1/cues/{}/fire", work["id"].as_str().unwrap()), &json!({})).expect(200);
    owner.post("/v1/worker/heartbeat", &json!({"worker_id": "mine", "handlers": []})).expect(200);
    let keys = owner.get("/v1/auth/keys").expect(200);
    let mut rows = Vec::new();
    for id in
        [cue["id"].as_str().unwrap(), "cue_000000000000", "cue_", "x", "cue_0123456789ab'--", "%00", "..%2f"]
    {
        let path = format!("/v1/cues/{id}");
        rows.extend([
            Case::get(&path).expect_error(404, "cue_not_found"),
            Case::new("PATCH", &path, &json!({"name": "mine"})).expect_error(404, "cue_not_found"),
            Case::new("DELETE", &path, &Value::Null).expect_error(404, "cue_not_found"),
            Case::get(&format!("{path}/missed")).expect_error(404, "cue_not_found"),
            Case::get(&format!("{path}/upcoming")).expect_error(404, "cue_not_found"),
            Case::post(&format!("{path}/fire"), &json!({})).expect_error(404, "cue_not_found"),
        ]);
    }
    for id in [fired["execution_id"].as_str().unwrap(), SOME_UUID, "not-a-uuid"] {
        let path = format!("/v1/executions/{id}");
        rows.push(Case::get(&path).expect_error(404, "execution_not_found"));
        rows.push(
            Case::post(&format!("{path}/outcome"), &json!({"success": true}))
                .expect_error(404, "execution_not_found"),
        );
        rows.push(
            Case::new("PATCH", &format!("{path}/evidence"), &json!({"summary": "mine"}))
                .expect_error(404, "execution_not_found"),
        );
        for action in ["claim", "heartbeat", "replay", "verify", "verification-pending"] {
            rows.push(
                Case::post(&format!("{path}/{action}"), &json!({})).expect_error(404, "execution_not_found"),
            );
        }
    }
    rows.extend([
        Case::new("DELETE", "/v1/workers/mine", &Value::Null).expect_error(404, "worker_not_found"),
        Case::new("DELETE", "/v1/auth/keys/nope", &Value::Null).expect_error(404, "key_not_found"),
        Case::new(
            "DELETE",
            &format!("/v1/auth/keys/{}", keys["keys"][0]["id"].as_str().unwrap()),
            &Value::Null,
        )
        .expect_error(404, "key_not_found"),
    ]);
    check(&stranger, rows);
    assert_eq!(stranger.get("/v1/cues").expect(200)["total"], 0);
    assert_eq!(stranger.get("/v1/executions").expect(200)["total"], 0);
    assert_eq!(stranger.get("/v1/executions/claimable").expect(200)["executions"], json!([]));
    assert_eq!(
        owner.get(&format!("/v1/cues/{}", cue["id"].as_str().unwrap())).expect(200)["name"],
        "nightly"
    );
}

#[test]
fn a_resource_in_another_state_is_a_conflict() {
    let server = server();
    let user = server.user();
    let cue = user.create(&json!({
        "name": "w", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"},
    }));
    let fire = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
    let fired = user.post(&fire, &json!({})).expect(200);
    let execution = format!("/v1/executions/{}", fired["execution_id"].as_str().unwrap());
    let keys = user.get("/v1/auth/keys").expect(200);
    let own_key = format!("/v1/auth/keys/{}", keys["keys"][0]["id"].as_str().unwrap());
    let act = |action: &str, body: Value| Case::post(&format!("{execution}/{action}"), &body);
    check(
        &user,
        [
            act("heartbeat", json!({})).expect_error(409, "execution_not_claiming"),
            act("replay", json!({})).expect_error(409, "execution_in_flight"),
            act("verify", json!({})).expect_error(409, "invalid_state"),
            act("verification-pending", json!({})).expect_error(409, "invalid_state"),
            Case::new("PATCH", &format!("{execution}/evidence"), &json!({"summary": "done"}))
                .expect_error(409, "invalid_state"),
            act("claim", json!({"worker_id": "a"})).accepted(200),
            act("claim", json!({"worker_id": "a"})).expect_error(409, "already_claimed"),
            act("heartbeat", json!({})).header("X-Worker-Id", "b").expect_error(403, "not_execution_owner"),
            act("outcome", json!({"success": true})).accepted(200),
            act("outcome", json!({"success": false})).expect_error(409, "outcome_already_reported"),
            act("verify", json!({"valid": false})).accepted(200),
            act("verify", json!({"valid": true})).expect_error(409, "invalid_state"),
            Case::new("DELETE", &own_key, &Value::Null).expect_error(409, "last_key"),
            Case::post(&fire, &json!({})).header("Idempotency-Key", "k").accepted(200),
            Case::post(&fire, &json!({"payload_override": {"a": 1}}))
                .header("Idempotency-Key", "k")
                .expect_error(409, "idempotency_conflict"),
        ],
    );
}
