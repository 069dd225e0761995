//! Invalid documents, paths, methods and queries.

use std::io;

use crate::http::bad_input::{Case, check, good_cue, server};
use crate::support::*;

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
    let fired = owner.fire(&work);
    owner.post("/v1/worker/heartbeat", &json!({"worker_id": "mine", "handlers": []})).expect(200);
    let keys = owner.get("/v1/auth/keys").expect(200);
    let mut rows = Vec::new();
    for id in [id(&cue), "cue_000000000000", "cue_", "x", "cue_0123456789ab'--", "%00", "..%2f"] {
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
    for id in [&fired, SOME_UUID, "not-a-uuid"] {
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
        for action in ["claim", "heartbeat", "replay", "verify", "verification-pending", "retry", "cancel"] {
            rows.push(
                Case::post(&format!("{path}/{action}"), &json!({})).expect_error(404, "execution_not_found"),
            );
        }
    }
    rows.extend([
        Case::post("/v1/executions/claim", &json!({})).expect_error(409, "claim_failed"),
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
    assert_eq!(owner.get(&format!("/v1/cues/{}", id(&cue))).expect(200)["name"], "nightly");
}

#[test]
fn a_resource_in_another_state_is_a_conflict() {
    let server = server();
    let user = server.user();
    let cue = user.create(&json!({
        "name": "w", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"},
    }));
    let fire = format!("/v1/cues/{}/fire", id(&cue));
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

const MAX_BODY: usize = 2_097_152;
const MAX_PAYLOAD: usize = 1_048_576;

fn body(name: &str, bytes: impl Into<Vec<u8>>) -> Case {
    Case::raw("POST", "/v1/cues", bytes).named(name)
}

/// A valid cue with the payload `{"a": VALUE}`, where `value` is inserted byte for byte.
fn payload(value: impl AsRef<[u8]>) -> Vec<u8> {
    let cue = super::changed(good_cue(), "payload", Some(json!({"a": "HERE"}))).to_string();
    let (before, after) = cue.split_once("\"HERE\"").unwrap();
    [before.as_bytes(), value.as_ref(), after.as_bytes()].concat()
}

/// Nested arrays with `levels` levels. Those of the payload start two levels below the top of the body.
fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

#[test]
fn invalid_json_and_non_objects_have_different_errors() {
    let broken: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("blank", b"  \n"),
        ("open brace", b"{"),
        ("closing brace", b"}"),
        ("single quotes", b"{'name': 'x'}"),
        ("bare name", b"{name: 1}"),
        ("comma at the end", b"{\"name\": \"x\",}"),
        ("comma in an array", b"{\"name\": [1,]}"),
        ("comment", b"{\"name\": \"x\" /* why */}"),
        ("two objects", b"{} {}"),
        ("text behind", b"{\"name\": \"x\"} x"),
        ("form", b"name=x&schedule=y"),
        ("byte order mark", b"\xef\xbb\xbf{}"),
        ("UTF-16", b"\xff\xfe{\0}\0"),
        ("control character", b"{\"name\": \"a\nb\"}"),
        ("unknown escape", b"{\"name\": \"\\x41\"}"),
        ("cut escape", b"{\"name\": \"\\u00\"}"),
        ("upper-case word", b"{\"name\": TRUE}"),
    ];
    let rows = broken.iter().map(|(name, bytes)| body(name, *bytes).expect_error(400, "invalid_json"));
    let others = ["[]", "[{}]", "\"text\"", "5", "true", "null"];
    let not_objects = others.map(|text| body(text, text).invalid("model_attributes_type", "body"));
    check(&server().user(), rows.chain(not_objects));
}

#[test]
fn values_that_cannot_be_stored_exactly_are_refused() {
    let values: &[(&str, &[u8])] = &[
        ("NaN", b"NaN"),
        ("Infinity", b"-Infinity"),
        ("beyond a double", b"1e400"),
        ("beyond a double, negative", b"-1e400"),
        ("beyond a double, deep", b"[[{\"x\": 1.5e309}]]"),
        ("leading zero", b"01"),
        ("plus sign", b"+1"),
        ("no digit before the point", b".5"),
        ("no digit after the point", b"1."),
        ("hexadecimal", b"0x10"),
        ("high surrogate alone", b"\"\\ud800\""),
        ("low surrogate alone", b"\"\\udc00\""),
        ("surrogates in the wrong order", b"\"\\udc00\\ud800\""),
        ("surrogate before a letter", b"\"\\ud83dx\""),
        ("surrogate in a name", b"{\"\\ud800\": 1}"),
        ("invalid UTF-8", b"\"\xff\""),
        ("overlong UTF-8", b"\"\xc0\xaf\""),
        ("surrogate in UTF-8", b"\"\xed\xa0\x80\""),
        ("cut UTF-8", b"\"\xe2\x82\""),
    ];
    let rows =
        values.iter().map(|(name, value)| body(name, payload(value)).expect_error(400, "invalid_json"));
    let deep = [
        body("depth 64", payload(nested(62))).accepted(201),
        body("depth 65", payload(nested(63))).expect_error(400, "invalid_json"),
        body("depth 100,000", payload(nested(100_000))).expect_error(400, "invalid_json"),
        body("objects 65 deep", payload("{\"x\":".repeat(63) + "1" + &"}".repeat(63)))
            .expect_error(400, "invalid_json"),
        body("a pair of surrogates", payload(b"\"\\ud83d\\ude00\"")).accepted(201),
        body("thirty digits", payload(b"123456789012345678901234567890")).accepted(201),
        body("the largest double", payload(b"1.7976931348623157e308")).accepted(201),
    ];
    check(&server().user(), rows.chain(deep));
}

#[test]
fn a_payload_is_an_object_of_at_most_one_mebibyte() {
    let sized = |name: &str, bytes: usize| {
        let text = "x".repeat(bytes - "{\"a\":\"\"}".len());
        Case::cue("payload", json!({ "a": text })).named(name)
    };
    // 300,000 times `é` as an escape: 1.8 MB on the wire, 0.6 MB as counted.
    let escaped = format!("\"{}\"", "\\u00e9".repeat(300_000));
    check(
        &server().user(),
        [
            Case::cue("payload", json!([])).invalid("dict_type", "body.payload"),
            Case::cue("payload", json!("text")).invalid("dict_type", "body.payload"),
            Case::cue("payload", json!(5)).invalid("dict_type", "body.payload"),
            Case::cue("payload", json!(false)).invalid("dict_type", "body.payload"),
            Case::cue("payload", Value::Null).accepted(201),
            Case::cue("payload", json!({})).accepted(201),
            sized("1 MiB", MAX_PAYLOAD).accepted(201),
            sized("1 MiB and a byte", MAX_PAYLOAD + 1).expect_error(400, "invalid_payload_size"),
            body("escapes count as the characters that they are", payload(escaped)).accepted(201),
        ],
    );
}

#[test]
fn a_body_over_two_megabytes_is_refused() {
    let server = server();
    let user = server.user();
    let filled = |bytes: usize| {
        let cue = super::changed(good_cue(), "description", Some(json!("")));
        let missing = bytes - cue.to_string().len();
        super::changed(cue, "description", Some(json!("x".repeat(missing)))).to_string().into_bytes()
    };
    let at_the_limit = user.call("POST", "/v1/cues", &[], &filled(MAX_BODY)).unwrap();
    assert_ne!(at_the_limit.status, 413, "{}", at_the_limit.text());
    announced(&user, MAX_BODY + 1).unwrap().expect_error(413, "payload_too_large");
    announced(&user, 4_000_000_000).unwrap().expect_error(413, "payload_too_large");
    chunked(&user, &filled(MAX_BODY + 1)).unwrap().expect_error(413, "payload_too_large");
    let chunked_at_the_limit = chunked(&user, &filled(MAX_BODY)).unwrap();
    assert_eq!(chunked_at_the_limit.status, at_the_limit.status, "{}", chunked_at_the_limit.text());
    assert_eq!(user.get("/v1/cues").expect(200)["limit"], 20);
}

/// Announces a body and sends none of it: the error must come without it.
fn announced(user: &Client, length: usize) -> io::Result<Response> {
    let key = user.key();
    let head = format!(
        "POST /v1/cues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
    );
    user.clone().send(head.as_bytes())
}

fn chunked(user: &Client, body: &[u8]) -> io::Result<Response> {
    let mut bytes = Vec::with_capacity(body.len() + 1_000);
    for chunk in body.chunks(60_000) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    user.clone().call("POST", "/v1/cues", &[("Transfer-Encoding", "chunked")], &bytes)
}
