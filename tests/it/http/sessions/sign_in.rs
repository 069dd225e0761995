//! Sign-in by API key, and the cookie.

use std::slice;

use cued::clock::Clock;
use serde_json::{Value, json};

use crate::http::sessions::{Browser, cookie_of, send, sign_in, token_of};
use crate::support::api::Api;
use crate::support::client::Client;
use crate::support::fixture::{BEGIN, Fixture};
use crate::support::server::{DEV_UNLIMITED, Server};

fn anonymous(api: &Api) -> Client {
    Client::new(api.addr())
}

#[test]
fn a_session_stands_in_for_its_key() {
    let api = Api::start();
    let ada = api.user("ada");
    let response = sign_in(&anonymous(&api), &json!({"api_key": ada.key()}));
    let body = response.expect(201);
    let me = ada.get("/v1/auth/me").expect(200);
    assert_eq!((&body["user"]["id"], &body["user"]["email"]), (&me["id"], &me["email"]));
    assert_eq!(me["auth"], json!({"via": "key", "id": "ada"}));
    let browser = Browser::new(&anonymous(&api), &response);
    let mut by_session = browser.get("/v1/auth/me").expect(200);
    assert_eq!(by_session["auth"], json!({"via": "session", "id": body["session"]["id"]}));
    by_session["auth"] = me["auth"].clone();
    assert_eq!(by_session, me);
    let cue =
        json!({"name": "c", "schedule": {"type": "recurring", "cron": "0 0 * * *"}, "transport": "worker"});
    let created = browser.call("POST", "/v1/cues", &cue.to_string()).expect(201);
    assert_eq!(ada.get("/v1/cues").expect(200)["cues"][0]["id"], created["id"]);
    let keys = browser.get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"][0]["current"], false);
}

#[test]
fn a_value_that_a_client_has_chosen_never_becomes_a_session() {
    let api = Api::start();
    let ada = api.user("ada");
    let name = cookie_of(&sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let name = name.split_once('=').unwrap().0;
    let chosen = format!("{name}={}", "A".repeat(43));
    let headers = [("Cookie", chosen.as_str()), ("Content-Type", "application/json")];
    let body = json!({"api_key": ada.key()}).to_string();
    let signed_in = send(&anonymous(&api), "POST", "/v1/auth/session", &headers, &body);
    assert_ne!(cookie_of(&signed_in), chosen);
    send(&anonymous(&api), "GET", "/v1/auth/me", &[("Cookie", &chosen)], "")
        .expect_error(401, "invalid_api_key");
    assert!(Browser::new(&anonymous(&api), &signed_in).is_signed_in());
}

#[test]
fn an_authorization_header_wins_over_the_cookie() {
    let api = Api::start();
    let (ada, bob) = (api.user("ada"), api.user("bob"));
    let browser = Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let bearer = format!("Bearer {}", bob.key());
    let both = browser.call_with("GET", "/v1/auth/me", &[("Authorization", &bearer)], "").expect(200);
    assert_eq!(both["auth"], json!({"via": "key", "id": "bob"}));
    for invalid in ["Bearer cue_sk_00000000000000000000000000000000", "Basic eDp5", ""] {
        let refused = browser.call_with("GET", "/v1/auth/me", &[("Authorization", invalid)], "");
        refused.expect_error(401, "invalid_api_key");
    }
}

#[test]
fn exactly_one_credential_is_given() {
    let api = Api::start();
    let ada = api.user("ada");
    let two = json!({"api_key": ada.key(), "link_token": "x"});
    for body in [json!({}), two, json!({"dev": false}), json!({"api_key": 1}), json!({"api_key": ""})] {
        let refused = sign_in(&anonymous(&api), &body);
        refused.expect_error(422, "validation_error");
        assert_eq!(refused.header("set-cookie"), None);
    }
}

#[test]
fn after_ten_failed_sign_ins_an_address_has_no_more_for_15_minutes() {
    let api = Api::from_fixture(Fixture::with_config(Clock::manual(BEGIN.parse().unwrap()), |_| {}));
    let ada = api.user("ada");
    let client = anonymous(&api);
    for _ in 0..5 {
        sign_in(&client, &json!({"api_key": ada.key()})).expect(201);
    }
    let wrong = [
        json!({"api_key": "cue_sk_00000000000000000000000000000000"}),
        json!({"api_key": "no key"}),
        json!({"link_token": "A".repeat(43)}),
        json!({"link_token": "x"}),
    ];
    for attempt in 0..9 {
        sign_in(&client, &wrong[attempt % wrong.len()]).expect_error(401, "invalid_api_key");
    }
    sign_in(&client, &json!({"device_code": "ABCD-EFGH"})).expect_error(404, "device_code_not_found");
    let device_code = json!({"device_code": "ABCD-EFGH"});
    for refused in wrong.iter().chain([&device_code]).map(|wrong| sign_in(&client, wrong)) {
        refused.expect_error(429, "rate_limit_exceeded");
        assert_eq!(refused.header("retry-after"), Some("900"));
    }
    // A valid credential of another device behind the same proxy.
    sign_in(&client, &json!({"api_key": ada.key()})).expect(201);
    let link = ada.post("/v1/auth/session-link", &json!({})).expect(201);
    sign_in(&client, &token_of(link["url"].as_str().unwrap())).expect(201);
    sign_in(&client, &wrong[0]).expect_error(429, "rate_limit_exceeded");
    api.fixture.advance(900);
    sign_in(&client, &wrong[0]).expect_error(401, "invalid_api_key");
}

#[test]
fn sessions_have_a_window_of_240_requests_of_their_own() {
    let api = Api::start();
    let ada = api.user("ada");
    let first = Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let second = Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    for request in 0..240 {
        let browser = if request % 2 == 0 { &first } else { &second };
        let answer = browser.get("/v1/auth/keys");
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("240")));
    }
    first.get("/v1/auth/keys").expect_error(429, "rate_limit_exceeded");
    let by_key = ada.get("/v1/auth/keys");
    assert_eq!((by_key.status, by_key.header("x-ratelimit-remaining")), (200, Some("59")));
    api.fixture.advance(60);
    first.get("/v1/auth/keys").expect(200);
}

#[test]
fn a_cookie_of_another_program_on_the_host_signs_nobody_out() {
    let api = Api::start();
    let ada = api.user("ada");
    let cookie = cookie_of(&sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let (name, _) = cookie.split_once('=').unwrap();
    let status = |cookies: &[String]| {
        let cookies = cookies.join("; ");
        send(&anonymous(&api), "GET", "/v1/auth/me", &[("Cookie", &cookies)], "").status
    };
    let tossed: Vec<String> = ["A", "B", "C", "D"].map(|it| format!("{name}={}", it.repeat(43))).to_vec();
    for count in 0..4 {
        assert_eq!(
            status(&[&tossed[..count], slice::from_ref(&cookie)].concat()),
            200,
            "after {count} others"
        );
    }
    assert_eq!(status(&[slice::from_ref(&cookie), &tossed[..]].concat()), 200);
    assert_eq!(status(&[&tossed[..], slice::from_ref(&cookie)].concat()), 401, "the look-ups are bounded");
    assert_eq!(status(&tossed), 401);
}

/// The cookie of a server with these settings, for a request with these headers.
fn cookie_with(public_url: &str, headers: &[(&str, &str)]) -> String {
    let api = Api::from_fixture(Fixture::with_config(Clock::test(Some(BEGIN.parse().unwrap())), |config| {
        config.public_url = public_url.to_owned();
        config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    }));
    let ada = api.user("ada");
    let body = json!({"api_key": ada.key()}).to_string();
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let response = send(&anonymous(&api), "POST", "/v1/auth/session", &headers, &body);
    let text = response.header("set-cookie").expect("a cookie").to_owned();
    let browser = Browser::new(&anonymous(&api), &response);
    let forwarded: Vec<_> = headers.iter().filter(|(name, _)| name.starts_with("X-")).copied().collect();
    browser.call_with("GET", "/v1/auth/me", &forwarded, "").expect(200);
    let (name, rest) = text.split_once('=').unwrap();
    let (prefix, number) = name.split_once("cued_").unwrap();
    let (token, attributes) = rest.split_once("; ").unwrap();
    assert_eq!((number.len(), token.len()), (8, 43));
    format!("{prefix}{attributes}")
}

#[test]
fn the_attributes_of_the_cookie_follow_from_the_address_of_the_server() {
    const MONTH: &str = "Max-Age=2592000; HttpOnly; SameSite=Strict";
    assert_eq!(cookie_with("http://127.0.0.1:8000", &[]), format!("Path=/; {MONTH}"));
    assert_eq!(cookie_with("http://pi.lan/cued", &[]), format!("Path=/cued; {MONTH}"));
    assert_eq!(cookie_with("https://cue.example.com", &[]), format!("__Host-Path=/; {MONTH}; Secure"));
    assert_eq!(cookie_with("https://example.com/cued", &[]), format!("Path=/cued; {MONTH}; Secure"));
    let https = [("X-Forwarded-Proto", "https")];
    assert_eq!(cookie_with("http://127.0.0.1:8000", &https), format!("__Host-Path=/; {MONTH}; Secure"));
}

#[test]
fn a_header_of_a_proxy_that_is_not_trusted_changes_no_cookie() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let headers = [("Content-Type", "application/json"), ("X-Forwarded-Proto", "https")];
    let body = json!({"api_key": user.key()}).to_string();
    let response = send(&server.client(), "POST", "/v1/auth/session", &headers, &body);
    assert!(!response.header("set-cookie").unwrap().contains("Secure"));
}

#[test]
fn two_servers_on_one_host_do_not_sign_each_other_out() {
    let servers = [Server::start(DEV_UNLIMITED), Server::start(DEV_UNLIMITED)];
    let cookies: Vec<String> = servers
        .iter()
        .map(|server| cookie_of(&sign_in(&server.client(), &json!({"api_key": server.user().key()}))))
        .collect();
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    assert_ne!(name(&cookies[0]), name(&cookies[1]));
    // A browser sends the cookies of a host to all of its ports.
    let both = cookies.join("; ");
    for server in &servers {
        send(&server.client(), "GET", "/v1/auth/me", &[("Cookie", &both)], "").expect(200);
    }
}

#[test]
fn a_sign_in_needs_json_and_no_other_site() {
    let api = Api::start();
    let ada = api.user("ada");
    let body = json!({"api_key": ada.key()}).to_string();
    let (client, host) = (anonymous(&api), api.addr().to_string());
    let own = format!("http://{host}");
    let try_with = |headers: &[(&str, &str)]| -> (u16, Value) {
        let answer = send(&client, "POST", "/v1/auth/session", headers, &body);
        assert_eq!(answer.header("set-cookie").is_some(), answer.status == 201);
        (answer.status, answer.json()["error"]["code"].clone())
    };
    let json = ("Content-Type", "application/json; charset=utf-8");
    for good in [&[json][..], &[json, ("Sec-Fetch-Site", "same-origin")], &[json, ("Origin", &own)]] {
        assert_eq!(try_with(good).0, 201, "{good:?}");
    }
    for types in [&[][..], &[("Content-Type", "text/plain")], &[("Content-Type", "application/jsonp")]] {
        assert_eq!(try_with(types), (400, json!("invalid_request")), "{types:?}");
    }
    for (name, value) in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "none"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
    ] {
        assert_eq!(try_with(&[json, (name, value)]), (403, json!("cross_site_request")), "{name}: {value}");
    }
}
