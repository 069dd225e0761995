//! HTTP/1.1 over real sockets: limits, keep-alive and the headers of every response.

use crate::http::wire::test_routes::{TestServer, get, post};
use crate::support::*;

const ON_EVERY_RESPONSE: [&str; 7] = [
    "cache-control",
    "date",
    "x-content-type-options",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
];
const ON_SOME: [&str; 8] = [
    "allow",
    "connection",
    "content-length",
    "content-security-policy",
    "content-type",
    "referrer-policy",
    "www-authenticate",
    "x-frame-options",
];

pub fn assert_headers(response: &Response) {
    for name in ON_EVERY_RESPONSE {
        let values = response.headers.iter().filter(|(known, _)| known == name).count();
        assert_eq!(values, 1, "{name} in {response:?}");
    }
    for (name, _) in &response.headers {
        let known = ON_EVERY_RESPONSE.contains(&name.as_str()) || ON_SOME.contains(&name.as_str());
        assert!(known, "{name} in {response:?}");
    }
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("x-ratelimit-limit"), Some("60"));
    assert_eq!(response.body.is_empty(), response.header("content-type").is_none(), "{response:?}");
}

#[test]
fn every_response_carries_the_same_headers_and_every_error_the_same_body() {
    let server = TestServer::start();
    let cases = [
        (post("/echo", "{}"), 200, ""),
        (get("/items/a"), 200, ""),
        (post("/named", r#"{"name": "a"}"#), 201, ""),
        (get("/items/a").replace("GET", "DELETE"), 204, ""),
        (get("/page"), 200, ""),
        (get("/nowhere"), 404, "not_found"),
        (get("/items/a/"), 404, "not_found"),
        (get("/items/a").replace("GET /items/a", "CONNECT x:1"), 404, "not_found"),
        (get("*").replace("GET", "OPTIONS"), 404, "not_found"),
        (get("/echo"), 405, "method_not_allowed"),
        (get("/locked"), 401, "invalid_api_key"),
        (
            get("/locked").replace("Host", "Authorization: Bearer cue_sk_0\r\nHost"),
            401,
            "invalid_api_key",
        ),
        (post("/named", "{"), 400, "invalid_json"),
        (post("/named", "[]"), 422, "validation_error"),
        (post("/named", r#"{"name": "a", "b": 1}"#), 422, "validation_error"),
        (get("/items/a?limit=0"), 422, "validation_error"),
        (post("/small", "12345678901"), 413, "payload_too_large"),
        (get("/panic"), 500, "internal_error"),
    ];
    for (request, status, code) in cases {
        let response = server.request(&request);
        assert_eq!(response.status, status, "{request} → {response:?}");
        assert_headers(&response);
        if status >= 400 {
            assert_eq!(response.code(), code, "{request}");
            assert_eq!(response.json()["error"]["status"], status);
            assert!(response.json()["error"]["message"].is_string());
            let error = response.json()["error"].as_object().unwrap().clone();
            let mut names: Vec<&String> = error.keys().collect();
            names.retain(|name| *name != "docs_url");
            assert_eq!(names, ["code", "message", "status"], "{request}");
            let has_docs = ["invalid_api_key", "invalid_json", "validation_error"].contains(&code);
            assert_eq!(error.contains_key("docs_url"), has_docs, "{request}");
            assert_eq!(response.json().get("detail").is_some(), status == 422);
            assert_eq!(response.header("content-type"), Some("application/json"));
        }
    }
}

#[test]
fn pages_have_their_security_headers() {
    let response = TestServer::start().request(&get("/page"));
    assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(response.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert_eq!(response.header("referrer-policy"), Some("same-origin"));
    assert_eq!(response.header("x-frame-options"), Some("DENY"));
}

#[test]
fn a_wrong_method_gets_an_allow_header() {
    let server = TestServer::start();
    for method in ["POST", "OPTIONS", "PATCH", "BREW"] {
        let response = server.request(&get("/items/a").replace("GET", method));
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.header("allow"), Some("GET, HEAD, DELETE"), "{method}");
    }
}

#[test]
fn head_returns_the_headers_of_get_without_a_body() {
    let server = TestServer::start();
    let mut connection = server.connect();
    connection.send(&get("/items/a"));
    let mut expected = connection.response();
    connection.send(&get("/items/a").replace("GET", "HEAD"));
    let head = connection.response_without_body();
    expected.body.clear();
    let but_the_id = |response: &Response| {
        let headers = response.headers.iter().filter(|(name, _)| {
            !["x-request-id", "date", "x-ratelimit-remaining", "x-ratelimit-reset"]
                .contains(&name.as_str())
        });
        (response.status, headers.cloned().collect::<Vec<_>>())
    };
    assert_eq!(but_the_id(&head), but_the_id(&expected));
    // The next response starts right after the head.
    assert_eq!(connection.ask(&get("/items/b")).json()["id"], "b");
}

#[test]
fn a_connection_serves_sequential_and_pipelined_requests() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for id in ["a", "b"] {
        assert_eq!(connection.ask(&get(&format!("/items/{id}"))).json()["id"], id);
    }
    let together =
        [get("/items/1"), get("/nowhere"), post("/echo", "12345"), get("/items/2")].concat();
    assert_eq!(connection.ask(&together).json()["id"], "1");
    assert_eq!(connection.response().status, 404);
    assert_eq!(connection.response().json()["length"], 5);
    assert_eq!(connection.response().json()["id"], "2");
}

#[test]
fn a_head_that_is_not_http_gets_a_status_alone_and_ends_the_connection() {
    let server = TestServer::start();
    let many_headers: String = (0..120).map(|number| format!("X-{number}: y\r\n")).collect();
    for (head, status) in [
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
        (get("/items/a").replace("Host: x", "Host x"), 400),
        (post("/echo", "{}").replace("Length: 2", "Length: two"), 400),
        (get("/items/a").replace("Host: x\r\n", &many_headers), 431),
        (get("/items/a").replace("Host: x", &format!("Host: {}", "x".repeat(70_000))), 431),
    ] {
        for good_ones in [0, 1] {
            let mut connection = server.connect();
            (0..good_ones).for_each(|_| assert_eq!(connection.ask(&get("/items/1")).status, 200));
            let response = connection.ask(&head);
            assert_eq!(response.status, status, "{head} → {response:?}");
            assert_eq!(response.body.len(), 0, "{head} → {response:?}");
            connection.stream().shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(connection.rest(), "");
        }
    }
}

#[test]
fn a_body_declared_too_large_is_refused_before_it_is_sent() {
    let server = TestServer::start();
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut connection = server.connect();
        let response = connection.ask(&format!(
            "POST /echo HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 2097153\r\n\r\n"
        ));
        response.expect_error(413, "payload_too_large");
        assert_eq!(response.header("connection"), Some("close"));
        assert_headers(&response);
        connection.stream().shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(connection.rest(), "");
    }
}

#[test]
fn a_client_that_sends_a_large_body_first_still_gets_the_response() {
    let response = TestServer::start().request(&post("/echo", &"x".repeat(4_000_000)));
    response.expect_error(413, "payload_too_large");
}

#[test]
fn a_body_at_the_limit_is_accepted() {
    let response = TestServer::start().request(&post("/echo", &"x".repeat(2_097_152)));
    assert_eq!(response.json()["length"], 2_097_152);
}

#[test]
fn a_chunked_body_is_refused_once_it_exceeds_the_limit() {
    let server = TestServer::start();
    let head = "POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut connection = server.connect();
    assert_eq!(
        connection.ask(&format!("{head}5\r\n12345\r\n5\r\n12345\r\n0\r\n\r\n")).json()["length"],
        10
    );
    let response = connection.ask(&format!("{head}5\r\n12345\r\n6\r\n123456\r\n"));
    response.expect_error(413, "payload_too_large");
    assert_headers(&response);
}

#[test]
fn expect_continue_gets_100_continue() {
    let server = TestServer::start();
    let mut connection = server.connect();
    assert_eq!(connection.ask(
        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    ).status, 100);
    assert_eq!(connection.ask("12345").json()["length"], 5);
}

#[test]
fn a_refused_request_with_a_body_keeps_the_connection_usable() {
    let server = TestServer::start();
    let mut connection = server.connect();
    assert_eq!(connection.ask(&post("/nowhere", "some body")).status, 404);
    assert_eq!(connection.ask(&get("/items/a")).status, 200);
}

#[test]
fn a_panic_fails_only_its_request_with_500() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let response = connection.ask(&get("/panic"));
    assert_eq!(
        response.json()["error"],
        json!({
            "code": "internal_error",
            "message": "Internal error; the server log has the details under the request id",
            "status": 500,
        })
    );
    assert_eq!(connection.ask(&get("/items/a")).status, 200);
}
