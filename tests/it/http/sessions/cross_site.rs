//! Requests of other web pages through a browser: host, origin, cookie and credential.

use cued::http::assets::BUILD;

use crate::http::sessions::{Browser, ME, SESSION, cookie_of, key_of, link_of, send};
use crate::support::*;

const SITES: [Option<&str>; 5] =
    [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")];
const ORIGINS: [Option<&str>; 4] = [None, Some("own"), Some("http://evil.example"), Some("null")];

/// Whether a request with a cookie alone is one of the own pages, by the rules of contract §2.13.
fn is_own(site: Option<&str>, origin: Option<&str>, is_read: bool) -> bool {
    match site {
        Some(site) => site == "same-origin" || is_read && site == "none",
        None => is_read || origin == Some("own"),
    }
}

/// The status of `GET /v1/auth/me` with these headers.
fn status_with(client: &Client, headers: &[(&str, &str)]) -> u16 {
    send(client, "GET", ME, headers, "").status
}

#[test]
fn a_page_of_one_account_makes_no_request_by_the_session_of_another() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = eve.anonymous();
    let (cookie, key) = (Browser::of(&eve).cookie, format!("Bearer {}", eve.key()));
    let (by_session, by_key) = (("Cookie", &*cookie), ("Authorization", &*key));
    for (credential, account, status) in [
        (by_session, id(&eve.me()), 200),
        (by_session, id(&ada.me()), 401),
        (by_session, "", 401),
        // A program says by its key who it is.
        (by_key, "another", 200),
    ] {
        let headers = [credential, ("X-Account-Id", account)];
        assert_eq!(status_with(&client, &headers), status, "{account}");
    }
}

#[test]
fn a_page_of_another_site_makes_no_request_by_session() {
    let (api, ada) = Api::with_user("ada");
    let (client, cookie) = (ada.anonymous(), Browser::of(&ada).cookie);
    let (own, good) = (format!("http://{}", api.addr()), format!("Bearer {}", ada.key()));
    let (session, key, bad_key) =
        (("Cookie", &*cookie), ("Authorization", &*good), ("Authorization", "Bearer x"));
    // The credentials, and the status if it is not that of a session alone.
    let credentials = [
        (vec![], Some(401)),
        (vec![key], None),
        (vec![bad_key], Some(401)),
        (vec![session], None),
        (vec![session, key], None),
        (vec![session, bad_key], Some(401)),
    ];
    let mut tried = 0;
    for (method, path, body, success) in [
        ("GET", "/v1/cues", "", 200),
        ("HEAD", "/v1/cues", "", 200),
        ("POST", "/v1/worker/heartbeat", r#"{"worker_id": "w", "handlers": []}"#, 200),
        ("PATCH", ME, "{}", 200),
        ("DELETE", "/v1/workers/none", "", 404),
    ] {
        for ((sent, refused), site, origin) in credentials.iter().flat_map(|sent| {
            SITES.iter().flat_map(move |site| ORIGINS.map(|origin| (sent, *site, origin)))
        }) {
            let mut headers = sent.clone();
            headers.extend(site.map(|site| ("Sec-Fetch-Site", site)));
            headers.extend(origin.map(|it| ("Origin", if it == "own" { &*own } else { it })));
            let answer = send(&client, method, path, &headers, body);
            let is_read = matches!(method, "GET" | "HEAD");
            let is_allowed = sent.contains(&key) || is_own(site, origin, is_read);
            let status = refused.unwrap_or(if is_allowed { success } else { 403 });
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
    let (_api, ada) = Api::with_user("ada");
    let browser = Browser::of(&ada);
    for _ in 0..300 {
        let refused = browser.get_from("cross-site", "/v1/cues");
        refused.expect_error(403, "cross_site_request");
        assert_eq!(refused.header("x-ratelimit-limit"), Some("60"), "the window of the address");
    }
    let own = browser.get_from("same-origin", "/v1/cues");
    assert_eq!((own.status, own.header("x-ratelimit-remaining")), (200, Some("239")));
}

#[test]
fn a_page_of_another_site_does_not_prolong_a_session() {
    let (api, ada) = Api::with_user("ada");
    let browser = Browser::of(&ada);
    api.fixture.advance(86_400);
    assert_eq!(browser.get_from("cross-site", "/v1/cues").header("set-cookie"), None);
    assert!(browser.get_from("same-origin", "/v1/cues").header("set-cookie").is_some());
}

#[test]
fn routes_without_a_key_do_not_look_at_the_cookie() {
    let (_api, ada) = Api::with_user("ada");
    let browser = Browser::of(&ada);
    let info = browser.get_from("cross-site", "/v1/info");
    assert_eq!((info.status, info.header("x-ratelimit-limit")), (200, Some("60")));
    browser.get_from("cross-site", "/health").expect(200);
    browser.get_from("cross-site", "/v1/none").expect_error(404, "not_found");
}

#[test]
fn behind_a_trusted_proxy_the_forwarded_host_is_an_origin() {
    let forwarded = ("X-Forwarded-Host", "pi.lan");
    let foreign = (403, "cross_site_request");
    // Where the proxy is trusted, its own address is another origin than that of the sign-in.
    for (proxy, with_host, without_host) in
        [(Some("127.0.0.1"), (200, ""), (401, "invalid_api_key")), (None, foreign, foreign)]
    {
        let api = Api::configured(|config| {
            let proxies = proxy.into_iter().map(|proxy| proxy.parse().unwrap());
            config.http.trusted_proxies = proxies.collect();
        });
        let ada = api.user("ada");
        let cookie = cookie_of(&ada.anonymous().post_with(SESSION, &[forwarded], &key_of(&ada)));
        let headers = [("Cookie", cookie.as_str()), ("Origin", "http://pi.lan"), forwarded];
        for (headers, (status, code)) in [(&headers[..], with_host), (&headers[..2], without_host)]
        {
            let answer = send(&ada.anonymous(), "PATCH", ME, headers, "{}");
            assert_eq!(answer.status, status, "{proxy:?} {headers:?}");
            assert!(status == 200 || answer.code() == code, "{proxy:?} {headers:?}");
        }
    }
}

#[test]
fn a_session_is_of_no_use_at_another_port_or_name_or_scheme() {
    let api = Api::configured(|config| {
        config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        config.public_url = "http://pi.lan/below".to_owned();
    });
    let ada = api.user("ada");
    let client = ada.anonymous();
    let begun = [("X-Forwarded-Host", "pi.lan:8000"), ("X-Forwarded-Proto", "http")];
    let cookie = cookie_of(&client.post_with(SESSION, &begun, &key_of(&ada)));
    for (host, scheme, status) in [
        ("pi.lan:8000", "http", 200),
        ("pi.lan:8001", "http", 401),
        ("pi.lan", "http", 401),
        ("pi.local:8000", "http", 401),
        ("pi.lan:8000", "https", 401),
    ] {
        let forwarded = [("X-Forwarded-Host", host), ("X-Forwarded-Proto", scheme)];
        let headers = [&[("Cookie", &*cookie)], &forwarded[..]].concat();
        assert_eq!(status_with(&client, &headers), status, "{scheme}://{host}");
    }
}

#[test]
fn of_the_sessions_of_two_accounts_none_is_chosen() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = ada.anonymous();
    let (own, planted) = (Browser::of(&ada).cookie, Browser::of(&eve).cookie);
    let both = format!("{planted}; {own}");
    for cookies in [&both, &format!("{own}; {planted}")] {
        send(&client, "GET", ME, &[("Cookie", cookies)], "").expect_error(401, "invalid_api_key");
        for id in ["ada", "eve"] {
            let headers = [("Cookie", cookies.as_str()), ("X-Account-Id", id)];
            assert_eq!(send(&client, "GET", ME, &headers, "").expect(200)["id"], id);
        }
    }
    let of_one = format!("{own}; {}", Browser::of(&ada).cookie);
    assert_eq!(status_with(&client, &[("Cookie", &of_one)]), 200);
    // A link of an account that the browser may not want asks first, whatever cookies were added.
    let entered = client.post_with(SESSION, &[("Cookie", &both)], &link_of(&eve));
    entered.expect_error(409, "invalid_state");
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

fn get_at(server: &Server, host: &str, path: &str) -> Response {
    call(&server.client(), "GET", path, host, "", "")
}

/// Every form of a host is in the inline tests of `src/http/middleware/authentication.rs`.
#[test]
fn a_server_answers_to_names_of_its_machine_to_those_allowed_and_with_a_public_url_to_all() {
    let (local, foreign) =
        ("localhost 127.0.0.1 [::1]", "evil.example localhost.evil.example 192.168.0.7");
    let public = ["--public-url", "https://cue.example.com"];
    let allowed = ["--allow-host", "cue.test,10.0.0.5", "--allow-host", "[fd00::5]"];
    for (flags, answered, refused) in [
        (DEV_UNLIMITED.to_vec(), local, foreign),
        (vec![], local, foreign),
        ([&["--dev"], &public[..]].concat(), local, foreign),
        (
            [DEV_UNLIMITED, &allowed].concat(),
            "cue.test CUE.TEST 10.0.0.5 [fd00::5] localhost",
            "a.cue.test 10.0.0.6 [fd00::6]",
        ),
        (public.to_vec(), "internal-name cue.example.com", ""),
    ] {
        let server = Server::start(&flags);
        let port = server.addr().port();
        for host in words(answered) {
            for host in [host, &format!("{host}:{port}")] {
                assert_eq!(get_at(&server, host, "/status").status, 200, "{flags:?} {host}");
            }
        }
        let module = format!("/ui/{BUILD}/app/main.js");
        for host in words(refused) {
            let refused = get_at(&server, &format!("{host}:{port}"), "/status");
            refused.refuses(403, "forbidden_host", "--allow-host");
            for path in ["/health", "/v1/cues", "/x", "/", &module] {
                get_at(&server, host, path).expect_error(403, "forbidden_host");
            }
            let register = call(&server.client(), "POST", "/v1/auth/register", host, "", "");
            register.expect_error(403, "forbidden_host");
        }
    }
}

#[test]
fn a_page_of_another_site_cannot_change_anything_without_a_key() {
    let server = Server::start(&words(
        "--test-clock 2030-01-01T00:00:00Z --registration open --public-url https://cue.example.com/x",
    ));
    let (host, client) = (server.addr().to_string(), server.client());
    let routes = [
        ("/v1/auth/register", r#"{"email": "ann@example.com"}"#),
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
    let foreign = words(
        "http://evil.example https://127.0.0.1 http://localhost:1 http://cue.example.com null",
    );
    for origin in foreign {
        for (path, body) in routes {
            let headers = format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n");
            let refused = call(&client, "POST", path, &host, &headers, body);
            assert_eq!(refused.status, 403, "{origin} {path}: {}", refused.text());
            let is_page = refused.header("content-type").unwrap().starts_with("text/html");
            assert!(is_page || refused.code() == "cross_site_request", "{}", refused.text());
        }
    }
    assert_eq!(client.read("/v1/test/clock")["now"], "2030-01-01T00:00:00Z");
    for (number, origin) in
        [&*format!("http://{host}"), "https://cue.example.com"].iter().enumerate()
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
    let form = format!("code={}&email=ann%40example.com", made.text("device_code"));
    for site in ["", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
        let post = |origin: &str| {
            let headers = format!("Origin: {origin}\r\n{site}");
            call(&client, "POST", "/auth/device", &host, &headers, &form)
        };
        assert_eq!(post("null").status, 403, "{site}");
        let sent = post(&format!("http://{host}"));
        assert_eq!(sent.status, 200, "{site}");
        assert_eq!(sent.header("referrer-policy"), Some("same-origin"));
    }
}

#[test]
fn a_page_by_http_makes_no_request_at_a_host_that_has_https() {
    let (public, local, host) =
        ("https://cue.example.com/x", "http://127.0.0.1:8000", "cue.example.com");
    for (public_url, is_trusted, scheme, host, origin, status) in [
        (public, false, "", host, "https://cue.example.com", 200),
        (public, false, "", host, "http://cue.example.com", 403),
        (public, false, "", "127.0.0.1:8000", local, 200),
        (local, true, "https", host, "https://cue.example.com", 200),
        (local, true, "https", host, "http://cue.example.com", 403),
        (local, true, "http", host, "http://cue.example.com", 200),
        // A proxy that nobody has named, or one behind another.
        (local, false, "https", host, "https://cue.example.com", 200),
        (local, false, "https", host, "http://cue.example.com", 200),
        (local, true, "http", host, "https://cue.example.com", 200),
    ] {
        let api = Api::configured(|config| {
            config.public_url = public_url.to_owned();
            config.http.trusted_proxies =
                is_trusted.then(|| "127.0.0.1".parse().unwrap()).into_iter().collect();
        });
        let ada = api.user("ada");
        let proto = match scheme {
            "" => String::new(),
            scheme => format!("X-Forwarded-Proto: {scheme}\r\n"),
        };
        let client = ada.anonymous();
        let (json, body) = ("Content-Type: application/json\r\n", key_of(&ada).to_string());
        let sign_in = call(&client, "POST", SESSION, host, &format!("{proto}{json}"), &body);
        let cookie = cookie_of(&sign_in);
        let headers = format!("{proto}Origin: {origin}\r\nCookie: {cookie}\r\n");
        for (method, path, body) in [
            ("PATCH", ME, "{}"),
            ("POST", "/v1/auth/device-code/poll", r#"{"device_code": "none-such"}"#),
        ] {
            let answer = call(&client, method, path, host, &headers, body);
            let what = format!("{public_url} {scheme} {host} {origin}: {}", answer.text());
            assert_eq!(answer.status, status, "{what}");
        }
    }
}
