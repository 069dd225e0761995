//! Bad input where the addresses that callbacks may reach, other accounts and single bytes matter. What else every server
//! refuses is promised in `tests/conformance`, and so are the headers of each response.

use crate::support::*;

/// Non-public addresses in every notation.
const BLOCKED: &str = "localhost LOCALHOST localhost. hooks.localhost 127.0.0.1 127.0.0.1. 127.255.255.254 127.1 127.0.1 \
    2130706433 0x7f000001 0x7f.1 0x7F.0x0.0x0.0x1 0177.0.0.1 017700000001 0 0.0.0.0 0.1.2.3 10.0.0.1 10.1 \
    172.16.0.1 172.31.255.255 192.168.1.1 3232235777 0300.0250.1.1 169.254.169.254 0xa9fea9fe 100.64.0.1 \
    100.127.255.255 192.0.0.1 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 \
    239.255.255.255 240.0.0.1 255.255.255.255 %31%32%37.0.0.1 \u{2460}\u{2461}\u{2466}.0.0.1 \
    \u{ff11}\u{ff12}\u{ff17}\u{3002}0.0.1 lo\u{ff43}alhost [::] [::1] [0:0:0:0:0:0:0:1] \
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:10.0.0.1] [::127.0.0.1] [64:ff9b::7f00:1] \
    [64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2002:a00:1::1] [fe80::1] [febf::1] [fc00::1] [fdff::1] \
    [ff02::1] [2001:db8::1] [100::1] [fe80::1%25eth0]";

/// A webhook cue that any server accepts.
fn good_cue() -> Value {
    webhook_cue("nightly", YEARLY, "https://hooks.example.com/cue")
}

/// A server with the default address policy and without limits.
fn server() -> Server {
    Server::start(&["--registration", "open", "--limits", "off"])
}

#[test]
fn non_public_addresses_are_refused_in_every_notation() {
    let server = server();
    let user = server.user();
    let cue = cue_path(&user.create(&good_cue()));
    for host in words(BLOCKED) {
        let blocked = format!("http://{host}/hook");
        let on_failure = json!({"on_failure": {"webhook": blocked}});
        // Every field with a URL that the server will send to.
        for (field, response) in [
            ("callback", user.post("/v1/cues", &webhook_cue("n", YEARLY, &blocked))),
            ("on_failure", user.post("/v1/cues", &with(good_cue(), on_failure.clone()))),
            ("change", user.patch(&cue, &on_failure)),
            ("alerts", user.patch("/v1/auth/me", &json!({"alert_webhook_url": blocked}))),
        ] {
            let code = &response.json()["error"]["code"];
            assert_eq!(code, "invalid_callback_url", "{field} of {host}");
        }
    }
    for host in ["8.8.8.8", "[2606:4700::1111]", "172.32.0.1", "100.128.0.1"] {
        user.create(&webhook_cue("n", YEARLY, &format!("http://{host}/hook")));
    }
}

#[test]
fn a_422_lists_at_most_a_hundred_problems() {
    let server = server();
    let user = server.user();
    let unknown: Value = (0..150).map(|number| (format!("field_{number}"), json!(1))).collect();
    let refused = user.patch(&cue_path(&user.create(&good_cue())), &unknown);
    assert_eq!(refused.expect_error(422, "validation_error").list("detail").len(), 100);
}

#[test]
fn registration_requires_a_new_valid_address() {
    let server = server();
    let anyone = server.client();
    anyone.register("known@example.com");
    for (body, problem) in [
        (json!({}), "missing"),
        (json!({"email": 5}), "string_type"),
        (json!({"email": null}), "string_type"),
        (json!({"email": ""}), "value_error"),
        (json!({"email": "no-address"}), "value_error"),
        (json!({"email": "a@b.com\r\nBcc: c@d.com"}), "value_error"),
        (json!({"email": "known@example.com"}), "duplicate_email"),
        (json!({"email": " KNOWN@example.COM "}), "duplicate_email"),
    ] {
        let refused = anyone.post("/v1/auth/register", &body).json();
        if problem == "duplicate_email" {
            assert_has(&refused["error"], json!({"code": problem, "status": 409}));
        } else {
            assert_has(&refused["detail"][0], json!({"type": problem, "loc": ["body", "email"]}));
        }
    }
    anyone.register("new@example.com");
}

#[test]
fn a_move_of_the_test_clock_has_a_short_body() {
    let server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let clock = server.client();
    let long = json!({"advance": "x".repeat(1_024)});
    clock.post("/v1/test/clock", &long).expect_error(413, "payload_too_large");
    clock.bare("PUT", "/v1/test/clock").expect_error(405, "method_not_allowed");
}

#[test]
fn missing_resources_and_those_of_other_users_are_indistinguishable() {
    let server = server();
    let (owner, stranger) = (server.user(), server.user());
    let cue = owner.create(&good_cue());
    let run = owner.fire(&owner.create(&worker_cue("w", YEARLY)));
    owner.beat("mine").expect(200);
    let key = owner.read("/v1/auth/keys")["keys"][0].text("id").to_owned();
    let (path, run, query) =
        (cue_path(&cue), format!("/v1/executions/{run}"), format!("?cue_id={}", id(&cue)));
    let mut rows = vec![
        ("PATCH", path.clone(), json!({"name": "mine"}), "cue_not_found"),
        ("GET", format!("/v1/stats{query}"), Value::Null, "cue_not_found"),
        ("GET", format!("/v1/events{query}"), Value::Null, "cue_not_found"),
        ("GET", run.clone(), Value::Null, "execution_not_found"),
        ("POST", format!("{run}/outcome"), json!({"success": true}), "execution_not_found"),
        ("PATCH", format!("{run}/evidence"), json!({"summary": "mine"}), "execution_not_found"),
        ("POST", "/v1/executions/claim".to_owned(), json!({}), "claim_failed"),
        ("DELETE", "/v1/workers/mine".to_owned(), Value::Null, "worker_not_found"),
        ("DELETE", "/v1/auth/keys/nope".to_owned(), Value::Null, "key_not_found"),
        ("DELETE", format!("/v1/auth/keys/{key}"), Value::Null, "key_not_found"),
    ];
    for (method, part) in [("GET", ""), ("DELETE", ""), ("GET", "/missed"), ("GET", "/upcoming")] {
        rows.push((method, format!("{path}{part}"), Value::Null, "cue_not_found"));
    }
    rows.push(("POST", format!("{path}/fire"), json!({}), "cue_not_found"));
    for action in words("claim heartbeat replay verify verification-pending retry cancel") {
        rows.push(("POST", format!("{run}/{action}"), json!({}), "execution_not_found"));
    }
    for (method, path, body, code) in rows {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let refused = stranger.call(method, &path, &[], body.as_bytes()).unwrap();
        assert_eq!(refused.json()["error"]["code"], code, "{method} {path}");
    }
    assert_eq!(
        (stranger.total("/v1/cues"), stranger.total("/v1/executions")),
        (json!(0), json!(0))
    );
    assert_eq!(stranger.read("/v1/executions/claimable")["executions"], json!([]));
    assert_eq!(owner.cue(&cue)["name"], "nightly");
}

/// A valid cue with the payload `{"a": VALUE}`, where `value` is inserted byte for byte.
fn payload(value: &[u8]) -> Vec<u8> {
    let cue = with(good_cue(), json!({"payload": {"a": "HERE"}})).to_string();
    let (before, after) = cue.split_once("\"HERE\"").unwrap();
    [before.as_bytes(), value, after.as_bytes()].concat()
}

#[test]
fn bytes_that_are_no_json_are_refused_and_escapes_count_as_their_characters() {
    let server = server();
    let user = server.user();
    let post = |value: &[u8]| user.call("POST", "/v1/cues", &[], &payload(value)).unwrap();
    let deep = [&b"{\"x\":".repeat(63)[..], b"1", &b"}".repeat(63)].concat();
    for (name, bytes) in [
        ("UTF-16", &b"\xff\xfe{\0}\0"[..]),
        ("invalid UTF-8", b"\"\xff\""),
        ("overlong UTF-8", b"\"\xc0\xaf\""),
        ("surrogate in UTF-8", b"\"\xed\xa0\x80\""),
        ("cut UTF-8", b"\"\xe2\x82\""),
        ("objects 65 deep", &deep),
    ] {
        assert_eq!(post(bytes).json()["error"]["code"], "invalid_json", "{name}");
    }
    // 300,000 times `é` as an escape: 1.8 MB on the wire, 0.6 MB as counted.
    post(format!("\"{}\"", "\\u00e9".repeat(300_000)).as_bytes()).expect(201);
}
