//! Invalid documents, paths, methods and queries.

use crate::http::bad_input::{Case, check, good_cue, server};
use crate::support::*;

#[test]
fn the_path_of_the_test_clock_exists_only_with_a_test_clock() {
    let server = Server::start(DEV_UNLIMITED);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
        for body in ["", "{}", r#"{"advance": "PT1H"}"#] {
            let response =
                server.client().call(method, "/v1/test/clock", &[], body.as_bytes()).unwrap();
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
    clock
        .client()
        .call("PUT", "/v1/test/clock", &[], b"")
        .unwrap()
        .expect_error(405, "method_not_allowed");
}

#[test]
fn missing_resources_and_those_of_other_users_are_indistinguishable() {
    let server = server();
    let (owner, stranger) = (server.user(), server.user());
    let cue = owner.create(&good_cue());
    let work = owner.create(
        &json!({"name": "w", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"}}),
    );
    let fired = owner.fire(&work);
    owner.beat("mine").expect(200);
    let keys = owner.get("/v1/auth/keys").expect(200);
    let mut rows = Vec::new();
    let path = cue_path(&cue);
    rows.extend([
        Case::get(&path).expect_error(404, "cue_not_found"),
        Case::new("PATCH", &path, &json!({"name": "mine"})).expect_error(404, "cue_not_found"),
        Case::new("DELETE", &path, &Value::Null).expect_error(404, "cue_not_found"),
        Case::get(&format!("{path}/missed")).expect_error(404, "cue_not_found"),
        Case::get(&format!("{path}/upcoming")).expect_error(404, "cue_not_found"),
        Case::post(&format!("{path}/fire"), &json!({})).expect_error(404, "cue_not_found"),
        Case::get(&format!("/v1/stats?cue_id={}", id(&cue))).expect_error(404, "cue_not_found"),
        Case::get(&format!("/v1/events?cue_id={}", id(&cue))).expect_error(404, "cue_not_found"),
    ]);
    let path = format!("/v1/executions/{fired}");
    rows.extend([
        Case::get(&path).expect_error(404, "execution_not_found"),
        Case::post(&format!("{path}/outcome"), &json!({"success": true}))
            .expect_error(404, "execution_not_found"),
        Case::new("PATCH", &format!("{path}/evidence"), &json!({"summary": "mine"}))
            .expect_error(404, "execution_not_found"),
    ]);
    let actions =
        ["claim", "heartbeat", "replay", "verify", "verification-pending", "retry", "cancel"];
    rows.extend(actions.map(|action| {
        Case::post(&format!("{path}/{action}"), &json!({})).expect_error(404, "execution_not_found")
    }));
    rows.extend([
        Case::post("/v1/executions/claim", &json!({})).expect_error(409, "claim_failed"),
        Case::new("DELETE", "/v1/workers/mine", &Value::Null).expect_error(404, "worker_not_found"),
        Case::new("DELETE", "/v1/auth/keys/nope", &Value::Null).expect_error(404, "key_not_found"),
        Case::new("DELETE", &format!("/v1/auth/keys/{}", keys["keys"][0].text("id")), &Value::Null)
            .expect_error(404, "key_not_found"),
    ]);
    check(&stranger, rows);
    assert_eq!(stranger.get("/v1/cues").expect(200)["total"], 0);
    assert_eq!(stranger.get("/v1/executions").expect(200)["total"], 0);
    assert_eq!(stranger.get("/v1/executions/claimable").expect(200)["executions"], json!([]));
    assert_eq!(owner.cue(&cue)["name"], "nightly");
}

fn body(name: &str, bytes: impl Into<Vec<u8>>) -> Case {
    Case::raw("POST", "/v1/cues", bytes).named(name)
}

/// A valid cue with the payload `{"a": VALUE}`, where `value` is inserted byte for byte.
fn payload(value: impl AsRef<[u8]>) -> Vec<u8> {
    let cue = super::changed(good_cue(), "payload", Some(json!({"a": "HERE"}))).to_string();
    let (before, after) = cue.split_once("\"HERE\"").unwrap();
    [before.as_bytes(), value.as_ref(), after.as_bytes()].concat()
}

#[test]
fn bytes_that_are_no_json_are_refused_and_escapes_count_as_their_characters() {
    let broken: [(&str, &[u8]); 6] = [
        ("UTF-16", b"\xff\xfe{\0}\0"),
        ("invalid UTF-8", b"\"\xff\""),
        ("overlong UTF-8", b"\"\xc0\xaf\""),
        ("surrogate in UTF-8", b"\"\xed\xa0\x80\""),
        ("cut UTF-8", b"\"\xe2\x82\""),
        ("objects 65 deep", &[&b"{\"x\":".repeat(63)[..], b"1", &b"}".repeat(63)].concat()),
    ];
    let rows = broken
        .iter()
        .map(|(name, bytes)| body(name, payload(bytes)).expect_error(400, "invalid_json"));
    // 300,000 times `é` as an escape: 1.8 MB on the wire, 0.6 MB as counted.
    let escaped = format!("\"{}\"", "\\u00e9".repeat(300_000));
    check(&server().user(), rows.chain([body("escapes", payload(escaped)).accepted(201)]));
}
