//! Web pages that reach the server through their visitor's browser: `Host` and `Origin`.

use serde_json::json;

use crate::support::client::{Client, Response};
use crate::support::server::{DEV_UNLIMITED, Server};

/// A request that names `host`, with further headers.
fn call(client: &Client, method: &str, path: &str, host: &str, headers: &str, body: &str) -> Response {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n{body}");
    client.clone().send(request.as_bytes()).unwrap()
}

fn status_from(server: &Server, host: &str) -> Response {
    call(&server.client(), "GET", "/status", host, "", "")
}

#[test]
fn a_developers_server_answers_only_to_names_of_its_machine() {
    for flags in [DEV_UNLIMITED, &[], &["--dev", "--public-url", "https://cue.example.com"]] {
        let server = Server::start(flags);
        let port = server.addr().port();
        for host in ["localhost", "127.0.0.1", "[::1]", "app.localhost"] {
            status_from(&server, &format!("{host}:{port}")).expect(200);
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.7"] {
            let refused = status_from(&server, &format!("{host}:{port}"));
            let error = refused.expect_error(403, "forbidden_host");
            assert!(error["error"]["message"].as_str().unwrap().contains("--allow-host"), "{error}");
            for (method, path) in
                [("GET", "/health"), ("GET", "/v1/cues"), ("POST", "/v1/auth/register"), ("GET", "/x")]
            {
                call(&server.client(), method, path, host, "", "").expect_error(403, "forbidden_host");
            }
        }
    }
}

#[test]
fn an_operator_may_allow_further_hosts() {
    let flags = ["--allow-host", "cue.test,10.0.0.5", "--allow-host", "[fd00::5]"];
    let server = Server::start(&[DEV_UNLIMITED, &flags].concat());
    for host in ["cue.test", "CUE.TEST:8000", "10.0.0.5:80", "[fd00::5]:80", "localhost"] {
        status_from(&server, host).expect(200);
    }
    for host in ["a.cue.test", "10.0.0.6", "[fd00::6]"] {
        status_from(&server, host).expect_error(403, "forbidden_host");
    }
}

#[test]
fn a_server_with_a_public_url_answers_to_every_name() {
    let public = Server::start(&["--public-url", "https://cue.example.com"]);
    status_from(&public, "internal-name").expect(200);
    status_from(&public, "cue.example.com").expect(200);
}

#[test]
fn a_page_of_another_site_cannot_change_anything_without_a_key() {
    let flags = [
        "--test-clock",
        "2030-01-01T00:00:00Z",
        "--registration",
        "open",
        "--public-url",
        "https://cue.example.com/x",
    ];
    let server = Server::start(&flags);
    let (host, client) = (server.addr().to_string(), server.client());
    let register = r#"{"email": "ann@example.com"}"#;
    let routes = [
        ("/v1/auth/register", register),
        ("/v1/auth/device-code", "{}"),
        ("/v1/auth/device-code/submit-email", "{}"),
        ("/v1/auth/device-code/poll", "{}"),
        ("/v1/auth/verify", "token=a"),
        ("/auth/device", "code=a"),
        ("/billing/checkout", "token=a"),
        ("/billing/portal", "token=a"),
        ("/v1/billing/webhook", "{}"),
        ("/v1/echo/0123456789abcdef", "{}"),
        ("/v1/test/clock", r#"{"advance": "PT1H"}"#),
    ];
    for origin in
        ["http://evil.example", "https://127.0.0.1", "http://localhost:1", "http://cue.example.com", "null"]
    {
        for (path, body) in routes {
            let headers = format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n");
            let refused = call(&client, "POST", path, &host, &headers, body);
            assert_eq!(refused.status, 403, "{origin} {path}: {}", refused.text());
            let is_page = refused.header("content-type").unwrap().starts_with("text/html");
            assert!(is_page || refused.code() == "cross_site_request", "{}", refused.text());
        }
    }
    assert_eq!(client.get("/v1/test/clock").expect(200)["now"], "2030-01-01T00:00:00Z");
    for (number, origin) in
        [format!("http://{host}"), "https://cue.example.com".to_owned()].iter().enumerate()
    {
        let body = json!({"email": format!("{number}@example.com")}).to_string();
        call(&client, "POST", "/v1/auth/register", &host, &format!("Origin: {origin}\r\n"), &body)
            .expect(201);
    }
    // A request with a key proves more than its origin, and reading changes nothing.
    let user = client.register("bob@example.com");
    let key = format!("Origin: http://evil.example\r\nAuthorization: Bearer {}\r\n", user.key());
    call(&client, "POST", "/v1/auth/keys", &host, &key, r#"{"name": "a"}"#).expect(201);
    call(&client, "GET", "/v1/info", &host, "Origin: http://evil.example\r\n", "").expect(200);
}

/// A sandboxed frame of any site has the origin `null`, and browsers send no `Sec-Fetch-Site` to an address in plain text
/// that is not loopback. The forms of the own pages have the origin of the server, for they permit it
/// (`Referrer-Policy: same-origin`).
#[test]
fn the_forms_of_the_own_pages_pass_and_those_of_sandboxed_frames_do_not() {
    let server = Server::start(DEV_UNLIMITED);
    let (host, client) = (server.addr().to_string(), server.client());
    let made = client.post("/v1/auth/device-code", &json!({})).expect(201);
    let form = format!("code={}&email=ann%40example.com", made["device_code"].as_str().unwrap());
    for site in ["", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
        let headers = format!("Origin: null\r\n{site}");
        assert_eq!(call(&client, "POST", "/auth/device", &host, &headers, &form).status, 403, "{site}");
        let headers = format!("Origin: http://{host}\r\n{site}");
        let sent = call(&client, "POST", "/auth/device", &host, &headers, &form);
        assert_eq!(sent.status, 200, "{site}");
        assert_eq!(sent.header("referrer-policy"), Some("same-origin"));
    }
}
