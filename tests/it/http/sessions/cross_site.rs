//! Requests of other web pages through a browser: host, origin, cookie and credential.

use cued::http::assets::BUILD;

use crate::http::sessions::{cookie_of, send, sign_in};
use crate::support::*;

/// The credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentCredentials {
    Nothing,
    Key,
    BadKey,
    Session,
    SessionAndKey,
    SessionAndBadKey,
}

const ALL: [SentCredentials; 6] = [
    SentCredentials::Nothing,
    SentCredentials::Key,
    SentCredentials::BadKey,
    SentCredentials::Session,
    SentCredentials::SessionAndKey,
    SentCredentials::SessionAndBadKey,
];
const SITES: [Option<&str>; 5] =
    [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")];
const ORIGINS: [Option<&str>; 4] = [None, Some("own"), Some("http://evil.example"), Some("null")];

/// The status of a request to a route that needs a key, by the rules of contract §2.13.
fn expected(
    sent: SentCredentials,
    site: Option<&str>,
    origin: Option<&str>,
    is_read: bool,
    success: u16,
) -> u16 {
    match sent {
        SentCredentials::Nothing | SentCredentials::BadKey | SentCredentials::SessionAndBadKey => {
            401
        }
        SentCredentials::Key | SentCredentials::SessionAndKey => success,
        SentCredentials::Session => {
            let is_own = match site {
                Some(site) => site == "same-origin" || is_read && site == "none",
                None => is_read || origin == Some("own"),
            };
            if is_own { success } else { 403 }
        }
    }
}

#[test]
fn a_page_of_one_account_makes_no_request_by_the_session_of_another() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = Client::new(api.addr());
    let id = |user: &User| user.get("/v1/auth/me").expect(200)["id"].as_str().unwrap().to_owned();
    let cookie = cookie_of(&sign_in(&client, &json!({"api_key": eve.key()})));
    for (account, status) in [(id(&eve), 200), (id(&ada), 401), (String::new(), 401)] {
        let headers = [("Cookie", cookie.as_str()), ("X-Account-Id", account.as_str())];
        assert_eq!(send(&client, "GET", "/v1/auth/me", &headers, "").status, status, "{account}");
    }
    // A program says by its key who it is.
    let key = format!("Bearer {}", eve.key());
    let headers = [("Authorization", key.as_str()), ("X-Account-Id", "another")];
    assert_eq!(send(&client, "GET", "/v1/auth/me", &headers, "").status, 200);
}

#[test]
fn a_page_of_another_site_makes_no_request_by_session() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let cookie = cookie_of(&sign_in(&client, &json!({"api_key": ada.key()})));
    let (own, good) = (format!("http://{}", api.addr()), format!("Bearer {}", ada.key()));
    let routes = [
        ("GET", "/v1/cues", "", 200),
        ("HEAD", "/v1/cues", "", 200),
        ("POST", "/v1/worker/heartbeat", r#"{"worker_id": "w", "handlers": []}"#, 200),
        ("PATCH", "/v1/auth/me", "{}", 200),
        ("DELETE", "/v1/workers/none", "", 404),
    ];
    let mut tried = 0;
    for (method, path, body, success) in routes {
        for (sent, site, origin) in ALL.iter().flat_map(|sent| {
            SITES.iter().flat_map(move |site| ORIGINS.map(|it| (*sent, *site, it)))
        }) {
            let mut headers = Vec::new();
            if matches!(
                sent,
                SentCredentials::Session
                    | SentCredentials::SessionAndKey
                    | SentCredentials::SessionAndBadKey
            ) {
                headers.push(("Cookie", cookie.as_str()));
            }
            match sent {
                SentCredentials::Key | SentCredentials::SessionAndKey => {
                    headers.push(("Authorization", good.as_str()))
                }
                SentCredentials::BadKey | SentCredentials::SessionAndBadKey => {
                    headers.push(("Authorization", "Bearer x"))
                }
                _ => {}
            }
            headers.extend(site.map(|site| ("Sec-Fetch-Site", site)));
            headers
                .extend(origin.map(|it| ("Origin", if it == "own" { own.as_str() } else { it })));
            let answer = send(&client, method, path, &headers, body);
            let is_read = matches!(method, "GET" | "HEAD");
            let status = expected(sent, site, origin, is_read, success);
            assert_eq!(answer.status, status, "{method} {path} {sent:?} {site:?} {origin:?}");
            if status == 403 && method != "HEAD" {
                answer.expect_error(403, "cross_site_request");
            }
            tried += 1;
            if tried % 50 == 0 {
                api.fixture.advance(61);
            }
        }
    }
    assert_eq!(tried, 600);
}

#[test]
fn a_page_of_another_site_takes_nothing_from_the_window_of_the_session() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let cookie = cookie_of(&sign_in(&client, &json!({"api_key": ada.key()})));
    let ask = |site| {
        send(&client, "GET", "/v1/cues", &[("Cookie", &cookie), ("Sec-Fetch-Site", site)], "")
    };
    for _ in 0..300 {
        let refused = ask("cross-site");
        refused.expect_error(403, "cross_site_request");
        assert_eq!(refused.header("x-ratelimit-limit"), Some("60"), "the window of the address");
    }
    let own = ask("same-origin");
    assert_eq!((own.status, own.header("x-ratelimit-remaining")), (200, Some("239")));
}

#[test]
fn a_page_of_another_site_does_not_prolong_a_session() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let cookie = cookie_of(&sign_in(&client, &json!({"api_key": ada.key()})));
    api.fixture.advance(86_400);
    let ask = |site| {
        send(&client, "GET", "/v1/cues", &[("Cookie", &cookie), ("Sec-Fetch-Site", site)], "")
    };
    assert_eq!(ask("cross-site").header("set-cookie"), None);
    assert!(ask("same-origin").header("set-cookie").is_some());
}

#[test]
fn routes_without_a_key_do_not_look_at_the_cookie() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let cookie = cookie_of(&sign_in(&client, &json!({"api_key": ada.key()})));
    let headers = [("Cookie", cookie.as_str()), ("Sec-Fetch-Site", "cross-site")];
    let info = send(&client, "GET", "/v1/info", &headers, "");
    assert_eq!((info.status, info.header("x-ratelimit-limit")), (200, Some("60")));
    send(&client, "GET", "/health", &headers, "").expect(200);
    send(&client, "GET", "/v1/none", &headers, "").expect_error(404, "not_found");
}

#[test]
fn behind_a_trusted_proxy_the_forwarded_host_is_an_origin() {
    for (proxies, status) in [(vec!["127.0.0.1".parse().unwrap()], 200), (Vec::new(), 403)] {
        let api = Api::configured(|config| {
            config.http.trusted_proxies = proxies;
        });
        let ada = api.user("ada");
        let client = Client::new(api.addr());
        let forwarded = ("X-Forwarded-Host", "pi.lan");
        let credential = json!({"api_key": ada.key()}).to_string();
        let headers = [("Content-Type", "application/json"), forwarded];
        let cookie = cookie_of(&send(&client, "POST", "/v1/auth/session", &headers, &credential));
        let headers = [("Cookie", cookie.as_str()), ("Origin", "http://pi.lan"), forwarded];
        let answer = send(&client, "PATCH", "/v1/auth/me", &headers, "{}");
        assert_eq!(answer.status, status, "{}", answer.text());
        // Where the proxy is trusted, this is another origin than that of the sign-in.
        let (status, code) =
            if status == 200 { (401, "invalid_api_key") } else { (403, "cross_site_request") };
        send(&client, "PATCH", "/v1/auth/me", &headers[..2], "{}").expect_error(status, code);
    }
}

#[test]
fn a_session_is_of_no_use_at_another_port_or_name_or_scheme() {
    let api = Api::configured(|config| {
        config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        config.public_url = "http://pi.lan/below".to_owned();
    });
    let ada = api.user("ada");
    let client = Client::new(api.addr());
    let begun = [("X-Forwarded-Host", "pi.lan:8000"), ("X-Forwarded-Proto", "http")];
    let headers = [&[("Content-Type", "application/json")], &begun[..]].concat();
    let body = json!({"api_key": ada.key()}).to_string();
    let cookie = cookie_of(&send(&client, "POST", "/v1/auth/session", &headers, &body));
    for (host, scheme, status) in [
        ("pi.lan:8000", "http", 200),
        ("pi.lan:8001", "http", 401),
        ("pi.lan", "http", 401),
        ("pi.local:8000", "http", 401),
        ("pi.lan:8000", "https", 401),
    ] {
        let headers = [
            ("Cookie", cookie.as_str()),
            ("X-Forwarded-Host", host),
            ("X-Forwarded-Proto", scheme),
        ];
        assert_eq!(
            send(&client, "GET", "/v1/auth/me", &headers, "").status,
            status,
            "{scheme}://{host}"
        );
    }
}

#[test]
fn of_the_sessions_of_two_accounts_none_is_chosen() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = Client::new(api.addr());
    let cookie = |user: &User| cookie_of(&sign_in(&client, &json!({"api_key": user.key()})));
    let (own, planted) = (cookie(&ada), cookie(&eve));
    let both = format!("{planted}; {own}");
    for cookies in [&both, &format!("{own}; {planted}")] {
        send(&client, "GET", "/v1/auth/me", &[("Cookie", cookies)], "")
            .expect_error(401, "invalid_api_key");
        for id in ["ada", "eve"] {
            let headers = [("Cookie", cookies.as_str()), ("X-Account-Id", id)];
            assert_eq!(send(&client, "GET", "/v1/auth/me", &headers, "").expect(200)["id"], id);
        }
    }
    let of_one = format!("{own}; {}", cookie(&ada));
    assert_eq!(send(&client, "GET", "/v1/auth/me", &[("Cookie", &of_one)], "").status, 200);
    // A link of an account that the browser may not want asks first, whatever cookies were added.
    let link = eve.post("/v1/auth/session-link", &json!({})).expect(201);
    let link = crate::http::sessions::token_of(link["url"].as_str().unwrap()).to_string();
    let headers = [("Cookie", both.as_str()), ("Content-Type", "application/json")];
    send(&client, "POST", "/v1/auth/session", &headers, &link).expect_error(409, "invalid_state");
}

/// A request that names `host`, with further headers.
fn call(
    client: &Client,
    method: &str,
    path: &str,
    host: &str,
    headers: &str,
    body: &str,
) -> Response {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n{body}");
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
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.7"]
        {
            let refused = status_from(&server, &format!("{host}:{port}"));
            let error = refused.expect_error(403, "forbidden_host");
            assert_contains(error["error"]["message"].as_str().unwrap(), &["--allow-host"]);
            let module = format!("/ui/{BUILD}/app/main.js");
            for path in ["/health", "/v1/cues", "/x", "/", &module] {
                call(&server.client(), "GET", path, host, "", "")
                    .expect_error(403, "forbidden_host");
            }
            let register = call(&server.client(), "POST", "/v1/auth/register", host, "", "");
            register.expect_error(403, "forbidden_host");
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
    let flags = words(
        "--test-clock 2030-01-01T00:00:00Z --registration open --public-url https://cue.example.com/x",
    );
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
    for origin in [
        "http://evil.example",
        "https://127.0.0.1",
        "http://localhost:1",
        "http://cue.example.com",
        "null",
    ] {
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

/// A sandboxed frame of any site has the origin `null`, and browsers send no `Sec-Fetch-Site` to an address in plain
/// text that is not loopback. The forms of the own pages have the origin of the server, for they permit it
/// (`Referrer-Policy: same-origin`).
#[test]
fn the_forms_of_the_own_pages_pass_and_those_of_sandboxed_frames_do_not() {
    let server = Server::start(DEV_UNLIMITED);
    let (host, client) = (server.addr().to_string(), server.client());
    let made = client.post("/v1/auth/device-code", &json!({})).expect(201);
    let form = format!("code={}&email=ann%40example.com", made["device_code"].as_str().unwrap());
    for site in ["", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
        let headers = format!("Origin: null\r\n{site}");
        assert_eq!(
            call(&client, "POST", "/auth/device", &host, &headers, &form).status,
            403,
            "{site}"
        );
        let headers = format!("Origin: http://{host}\r\n{site}");
        let sent = call(&client, "POST", "/auth/device", &host, &headers, &form);
        assert_eq!(sent.status, 200, "{site}");
        assert_eq!(sent.header("referrer-policy"), Some("same-origin"));
    }
}

#[test]
fn a_page_by_http_makes_no_request_at_a_host_that_has_https() {
    let (public, host) = ("https://cue.example.com/x", "cue.example.com");
    for (public_url, is_trusted, scheme, host, origin, status) in [
        (public, false, "", host, "https://cue.example.com", 200),
        (public, false, "", host, "http://cue.example.com", 403),
        (public, false, "", "127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("http://127.0.0.1:8000", true, "https", host, "https://cue.example.com", 200),
        ("http://127.0.0.1:8000", true, "https", host, "http://cue.example.com", 403),
        ("http://127.0.0.1:8000", true, "http", host, "http://cue.example.com", 200),
        // A proxy that nobody has named, or one behind another.
        ("http://127.0.0.1:8000", false, "https", host, "https://cue.example.com", 200),
        ("http://127.0.0.1:8000", false, "https", host, "http://cue.example.com", 200),
        ("http://127.0.0.1:8000", true, "http", host, "https://cue.example.com", 200),
    ] {
        let api = Api::configured(|config| {
            config.public_url = public_url.to_owned();
            config.http.trusted_proxies =
                is_trusted.then(|| "127.0.0.1".parse().unwrap()).into_iter().collect();
        });
        let (ada, client) = (api.user("ada"), Client::new(api.addr()));
        let proto = if scheme.is_empty() {
            String::new()
        } else {
            format!("X-Forwarded-Proto: {scheme}\r\n")
        };
        let sign_in = format!("{proto}Content-Type: application/json\r\n");
        let body = json!({"api_key": ada.key()}).to_string();
        let cookie = cookie_of(&call(&client, "POST", "/v1/auth/session", host, &sign_in, &body));
        let headers = format!("{proto}Origin: {origin}\r\nCookie: {cookie}\r\n");
        for (method, path, body) in [
            ("PATCH", "/v1/auth/me", "{}"),
            ("POST", "/v1/auth/device-code/poll", r#"{"device_code": "none-such"}"#),
        ] {
            let answer = call(&client, method, path, host, &headers, body);
            assert_eq!(
                answer.status,
                status,
                "{public_url} {scheme} {host} {origin}: {}",
                answer.text()
            );
        }
    }
}
