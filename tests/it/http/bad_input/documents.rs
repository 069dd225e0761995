//! Bodies that are not JSON, not an object, too deep or too large.

use std::io;

use serde_json::{Value, json};

use super::{Case, check, good_cue, server};
use crate::support::client::{Client, Response};

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
