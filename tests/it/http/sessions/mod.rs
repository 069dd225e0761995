//! Sign-in: by API key, one-time link, mail, and in development mode; the cookie.

mod cross_site;
mod ends;

use std::slice;

use cued::clock::Clock;

use crate::cli::administration::{fails, ok};
use crate::support::*;

const ME: &str = "/v1/auth/me";
const SESSION: &str = "/v1/auth/session";
const SESSIONS: &str = "/v1/auth/sessions";

/// A request without a key, with these headers.
pub fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    client.call(method, path, headers, body.as_bytes()).unwrap()
}

/// A sign-in of a program: without the headers of a browser.
pub fn sign_in(client: &Client, credential: &Value) -> Response {
    client.post_with(SESSION, &[], credential)
}

/// The credential of a user.
fn key_of(user: &Client) -> Value {
    json!({"api_key": user.key()})
}

/// The credential in the address of a one-time link.
pub fn token_of(url: &str) -> Value {
    let (_, token) = url.trim().split_once("/#/enter/").expect(url);
    json!({ "link_token": token })
}

/// The credential of a new one-time link.
pub fn link_of(user: &Client) -> Value {
    token_of(user.post("/v1/auth/session-link", &json!({})).expect(201).text("url"))
}

/// Name and value of the cookie that a response sets.
pub fn cookie_of(response: &Response) -> String {
    let header = response.header("set-cookie").expect("a cookie");
    header.split(';').next().unwrap().to_owned()
}

/// A browser that has a cookie. `anonymous` has no key.
pub struct Browser {
    anonymous: Client,
    pub cookie: String,
}

impl Browser {
    pub fn new(anonymous: &Client, signed_in: &Response) -> Self {
        assert_eq!(signed_in.status, 201, "{}", signed_in.text());
        Self { anonymous: anonymous.clone(), cookie: cookie_of(signed_in) }
    }

    /// One that has signed in with the key of the user.
    pub fn of(user: &Client) -> Self {
        let anonymous = user.anonymous();
        Self::new(&anonymous, &sign_in(&anonymous, &key_of(user)))
    }

    /// A request of a page of this server.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Response {
        self.call_with(method, path, &[("Sec-Fetch-Site", "same-origin")], body)
    }

    pub fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let headers = [&[("Cookie", self.cookie.as_str())], headers].concat();
        send(&self.anonymous, method, path, &headers, body)
    }

    pub fn get(&self, path: &str) -> Response {
        self.call("GET", path, "")
    }

    /// The body of a GET that must succeed.
    #[track_caller]
    pub fn read(&self, path: &str) -> Value {
        self.get(path).expect(200)
    }

    /// A GET of a page of this site or another one.
    fn get_from(&self, site: &str, path: &str) -> Response {
        self.call_with("GET", path, &[("Sec-Fetch-Site", site)], "")
    }

    #[track_caller]
    pub fn me(&self) -> Value {
        self.read(ME)
    }

    pub fn is_signed_in(&self) -> bool {
        match self.get(ME).status {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }

    fn sign_out(&self) -> Response {
        let ended = self.call("DELETE", SESSION, "");
        assert_eq!(ended.status, 204);
        ended
    }
}

#[test]
fn a_session_stands_in_for_its_key() {
    let (_api, ada) = Api::with_user("ada");
    let response = sign_in(&ada.anonymous(), &key_of(&ada));
    let (body, me) = (response.expect(201), ada.me());
    assert_eq!((&body["user"]["id"], &body["user"]["email"]), (&me["id"], &me["email"]));
    assert_eq!(me["auth"], json!({"via": "key", "id": "ada"}));
    let browser = Browser::new(&ada.anonymous(), &response);
    let auth = json!({"via": "session", "id": body["session"]["id"]});
    assert_eq!(browser.me(), with(me, json!({"auth": auth})));
    let cue = worker_cue("c", "0 0 * * *").to_string();
    let created = browser.call("POST", "/v1/cues", &cue).expect(201);
    assert_eq!(ada.read("/v1/cues")["cues"][0]["id"], created["id"]);
    assert_eq!(browser.read("/v1/auth/keys")["keys"][0]["current"], false);
}

#[test]
fn a_value_that_a_client_has_chosen_never_becomes_a_session() {
    let (_api, ada) = Api::with_user("ada");
    let cookie = Browser::of(&ada).cookie;
    let chosen = format!("{}={}", cookie.split_once('=').unwrap().0, "A".repeat(43));
    let headers = [("Cookie", chosen.as_str())];
    let signed_in = ada.anonymous().post_with(SESSION, &headers, &key_of(&ada));
    assert_ne!(cookie_of(&signed_in), chosen);
    send(&ada.anonymous(), "GET", ME, &headers, "").expect_error(401, "invalid_api_key");
    assert!(Browser::new(&ada.anonymous(), &signed_in).is_signed_in());
}

#[test]
fn an_authorization_header_wins_over_the_cookie() {
    let api = Api::start();
    let (ada, bob) = (api.user("ada"), api.user("bob"));
    let browser = Browser::of(&ada);
    let with = |value: &str| browser.call_with("GET", ME, &[("Authorization", value)], "");
    let both = with(&format!("Bearer {}", bob.key())).expect(200);
    assert_eq!(both["auth"], json!({"via": "key", "id": "bob"}));
    for invalid in ["Bearer cue_sk_00000000000000000000000000000000", "Basic eDp5", ""] {
        with(invalid).expect_error(401, "invalid_api_key");
    }
}

#[test]
fn exactly_one_credential_is_given() {
    let (_api, ada) = Api::with_user("ada");
    let two = json!({"api_key": ada.key(), "link_token": "x"});
    for body in
        [json!({}), two, json!({"dev": false}), json!({"api_key": 1}), json!({"api_key": ""})]
    {
        let refused = sign_in(&ada.anonymous(), &body);
        refused.expect_error(422, "validation_error");
        assert_eq!(refused.header("set-cookie"), None);
    }
}

#[test]
fn after_ten_failed_sign_ins_an_address_has_no_more_for_15_minutes() {
    let api =
        Api::from_fixture(Fixture::with_config(Clock::manual(BEGIN.parse().unwrap()), |_| {}));
    let ada = api.user("ada");
    let client = ada.anonymous();
    (0..5).for_each(|_| drop(sign_in(&client, &key_of(&ada)).expect(201)));
    let wrong = [
        json!({"api_key": "cue_sk_00000000000000000000000000000000"}),
        json!({"api_key": "no key"}),
        json!({"link_token": "A".repeat(43)}),
        json!({"link_token": "x"}),
    ];
    let device_code = json!({"device_code": "ABCD-EFGH"});
    for attempt in 0..9 {
        sign_in(&client, &wrong[attempt % wrong.len()]).expect_error(401, "invalid_api_key");
    }
    sign_in(&client, &device_code).expect_error(404, "device_code_not_found");
    for wrong in wrong.iter().chain([&device_code]) {
        sign_in(&client, wrong).refuses_for(900, 429, "rate_limit_exceeded");
    }
    // A valid credential of another device behind the same proxy.
    for valid in [key_of(&ada), link_of(&ada)] {
        sign_in(&client, &valid).expect(201);
    }
    sign_in(&client, &wrong[0]).expect_error(429, "rate_limit_exceeded");
    api.fixture.advance(900);
    sign_in(&client, &wrong[0]).expect_error(401, "invalid_api_key");
}

#[test]
fn sessions_have_a_window_of_240_requests_of_their_own() {
    let (api, ada) = Api::with_user("ada");
    let browsers = [(); 2].map(|()| Browser::of(&ada));
    for request in 0..240 {
        let answer = browsers[request % 2].get("/v1/auth/keys");
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("240")));
    }
    browsers[0].get("/v1/auth/keys").expect_error(429, "rate_limit_exceeded");
    let by_key = ada.get("/v1/auth/keys");
    assert_eq!((by_key.status, by_key.header("x-ratelimit-remaining")), (200, Some("59")));
    api.fixture.advance(60);
    browsers[0].read("/v1/auth/keys");
}

#[test]
fn a_cookie_of_another_program_on_the_host_signs_nobody_out() {
    let (_api, ada) = Api::with_user("ada");
    let cookie = Browser::of(&ada).cookie;
    let (name, _) = cookie.split_once('=').unwrap();
    let (own, tossed) = (slice::from_ref(&cookie), ["A", "B", "C", "D"]);
    let tossed = tossed.map(|it| format!("{name}={}", it.repeat(43)));
    for (cookies, status, what) in [
        (own.to_vec(), 200, "alone"),
        ([&tossed[..1], own].concat(), 200, "after one"),
        ([&tossed[..2], own].concat(), 200, "after two"),
        ([&tossed[..3], own].concat(), 200, "after three"),
        ([own, &tossed].concat(), 200, "before four"),
        ([&tossed, own].concat(), 401, "the look-ups are bounded"),
        (tossed.to_vec(), 401, "without it"),
    ] {
        let headers = [("Cookie", &*cookies.join("; "))];
        assert_eq!(send(&ada.anonymous(), "GET", ME, &headers, "").status, status, "{what}");
    }
}

/// The cookie of a server with these settings, for a request with these headers.
fn cookie_with(public_url: &str, headers: &[(&str, &str)]) -> String {
    let api = Api::configured(|config| {
        config.public_url = public_url.to_owned();
        config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    let ada = api.user("ada");
    let response = ada.anonymous().post_with(SESSION, headers, &key_of(&ada));
    Browser::new(&ada.anonymous(), &response).call_with("GET", ME, headers, "").expect(200);
    let (name, rest) = response.header("set-cookie").unwrap().split_once('=').unwrap();
    let (prefix, number) = name.split_once("cued_").unwrap();
    let (token, attributes) = rest.split_once("; ").unwrap();
    assert_eq!((number.len(), token.len()), (8, 43));
    format!("{prefix}{attributes}")
}

#[test]
fn the_attributes_of_the_cookie_follow_from_the_address_of_the_server() {
    const MONTH: &str = "Max-Age=2592000; HttpOnly; SameSite=Strict";
    let https = [("X-Forwarded-Proto", "https")];
    for (public_url, headers, before, after) in [
        ("http://127.0.0.1:8000", &[][..], "Path=/", ""),
        ("http://pi.lan/cued", &[], "Path=/cued", ""),
        ("https://cue.example.com", &[], "__Host-Path=/", "; Secure"),
        ("https://example.com/cued", &[], "Path=/cued", "; Secure"),
        ("http://127.0.0.1:8000", &https, "__Host-Path=/", "; Secure"),
    ] {
        let expected = format!("{before}; {MONTH}{after}");
        assert_eq!(cookie_with(public_url, headers), expected, "{public_url} {headers:?}");
    }
}

#[test]
fn a_header_of_a_proxy_that_is_not_trusted_changes_no_cookie() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let headers = [("X-Forwarded-Proto", "https")];
    let response = user.anonymous().post_with(SESSION, &headers, &key_of(&user));
    assert!(!response.header("set-cookie").unwrap().contains("Secure"));
}

#[test]
fn two_servers_on_one_host_do_not_sign_each_other_out() {
    let servers = [Server::start(DEV_UNLIMITED), Server::start(DEV_UNLIMITED)];
    let cookies = [0, 1].map(|number: usize| Browser::of(&servers[number].user()).cookie);
    let names = cookies.each_ref().map(|cookie| cookie.split_once('=').unwrap().0);
    assert_ne!(names[0], names[1]);
    // A browser sends the cookies of a host to all of its ports.
    let both = cookies.join("; ");
    for server in &servers {
        send(&server.client(), "GET", ME, &[("Cookie", &both)], "").expect(200);
    }
}

#[test]
fn a_sign_in_needs_json_and_no_other_site() {
    let (api, ada) = Api::with_user("ada");
    let own = format!("http://{}", api.addr());
    let (credential, client) = (key_of(&ada).to_string(), ada.anonymous());
    let json = ("Content-Type", "application/json; charset=utf-8");
    let of_type = |value| ("Content-Type", value);
    let of_site = |value| [json, ("Sec-Fetch-Site", value)];
    let of_origin = |value| [json, ("Origin", value)];
    let (wrong_type, foreign) = ((400, "invalid_request"), (403, "cross_site_request"));
    for (headers, (status, code)) in [
        (&[json][..], (201, "")),
        (&of_site("same-origin"), (201, "")),
        (&of_origin(&own), (201, "")),
        (&[], wrong_type),
        (&[of_type("text/plain")], wrong_type),
        (&[of_type("application/jsonp")], wrong_type),
        (&of_site("cross-site"), foreign),
        (&of_site("same-site"), foreign),
        (&of_site("none"), foreign),
        (&of_origin("http://evil.example"), foreign),
        (&of_origin("null"), foreign),
    ] {
        let answer = send(&client, "POST", SESSION, headers, &credential);
        assert_eq!(answer.status, status, "{headers:?}");
        assert_eq!(answer.json()["error"]["code"].as_str().unwrap_or(""), code, "{headers:?}");
        assert_eq!(answer.header("set-cookie").is_some(), status == 201, "{headers:?}");
    }
}

#[test]
fn a_one_time_link_works_once_within_five_minutes() {
    let (api, ada) = Api::with_user("ada");
    let client = ada.anonymous();
    let made = ada.post("/v1/auth/session-link", &json!({})).expect(201);
    let (url, begin) = (made.text("url"), format!("http://{}/#/enter/", api.addr()));
    assert!(url.starts_with(&begin), "{url}");
    let browser = Browser::new(&client, &sign_in(&client, &token_of(url)));
    assert_eq!(browser.read(SESSIONS)["sessions"][0]["via"], "link");
    sign_in(&client, &token_of(url)).expect_error(401, "invalid_api_key");
    let late = link_of(&ada);
    api.fixture.advance(300);
    sign_in(&client, &late).expect_error(401, "invalid_api_key");
    let in_time = link_of(&ada);
    api.fixture.advance(299);
    sign_in(&client, &in_time).expect(201);
    let of_old_key = link_of(&ada);
    let key = ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(!browser.is_signed_in(), "the session ends with the key that made its link");
    sign_in(&client, &of_old_key).expect_error(401, "invalid_api_key");
    let ada = ada.with_key(key.text("api_key"));
    let links: Vec<Value> = (0..11).map(|_| link_of(&ada)).collect();
    sign_in(&client, &links[0]).expect_error(401, "invalid_api_key");
    sign_in(&client, &links[1]).expect(201);
}

#[test]
fn a_link_changes_the_account_of_a_browser_only_if_that_is_asked_for() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let browser = Browser::of(&ada);
    let enter = |link: &Value| {
        let headers = [("Content-Type", "application/json"), ("Sec-Fetch-Site", "same-origin")];
        browser.call_with("POST", SESSION, &headers, &link.to_string())
    };
    let link = link_of(&eve);
    for _ in 0..11 {
        let refused = enter(&link);
        refused.expect_error(409, "invalid_state");
        assert_eq!(refused.header("set-cookie"), None);
    }
    // The same account.
    assert_eq!(enter(&link_of(&ada)).expect(201)["user"]["id"], "ada");
    let asked = with(link, json!({"switch_account": true}));
    assert_eq!(enter(&asked).expect(201)["user"]["id"], "eve", "the link was not used up");
    let third = link_of(&eve);
    browser.sign_out();
    assert_eq!(enter(&third).expect(201)["user"]["id"], "eve", "nobody is signed in");
    let odd = json!({"link_token": "x", "switch_account": 1});
    sign_in(&ada.anonymous(), &odd).expect_error(422, "validation_error");
}

#[test]
fn a_link_leads_to_the_public_url_if_there_is_one() {
    let server =
        Server::start(&["--registration", "open", "--public-url", "https://example.com/cued"]);
    let link = server.user().post("/v1/auth/session-link", &json!({})).expect(201);
    assert!(link.text("url").starts_with("https://example.com/cued/#/enter/"), "{link}");
}

#[test]
fn an_operator_makes_a_link_with_the_file_alone() {
    let (server, user) = Server::with_user(&["--registration", "open"]);
    let (client, db, email) = (server.client(), server.db(), user.email());
    let printed = ok(&db, &["user", "link", &email]);
    assert!(printed.starts_with("http://127.0.0.1:8000/#/enter/"), "{printed}");
    sign_in(&client, &token_of(&printed)).expect(201);
    sign_in(&client, &token_of(&printed)).expect_error(401, "invalid_api_key");
    let public = ["--public-url", "https://cue.example.com/x/"];
    let printed = ok(&db, &[&["user", "link", &email], &public[..]].concat());
    assert!(printed.starts_with("https://cue.example.com/x/#/enter/"), "{printed}");
    assert_contains(&fails(&db, &["user", "link", "no@example.com"], 1), &["cued user list"]);
    server.administer(&["disable", &email]);
    assert_contains(&fails(&db, &["user", "link", &email], 1), &["disabled"]);
    sign_in(&client, &token_of(&printed)).expect_error(401, "invalid_api_key");
}

/// Starts a device login for `purpose` and returns its code, and the query of the link that is mailed to `email`.
fn mailed_link(server: &Server, purpose: &str, email: &str) -> (Value, String) {
    let client = server.client();
    let code = client.post("/v1/auth/device-code", &json!({ "for": purpose })).expect(201);
    let by_code = json!({"device_code": code["device_code"]});
    let (status, refusal) =
        if purpose == "session" { (409, "invalid_state") } else { (404, "device_code_not_found") };
    sign_in(&client, &by_code).expect_error(status, refusal);
    let submitted = with(by_code.clone(), json!({"email": email}));
    client.post("/v1/auth/device-code/submit-email", &submitted).expect(200);
    let link = until("the link is in the log", || {
        let log = server.log();
        let is_it =
            |line: &&str| line.contains(code.text("user_code")) && line.contains("verify?token=");
        let (_, rest) = log.lines().find(is_it)?.split_once("verify?")?;
        Some(rest.split(|char: char| char == '"' || char.is_whitespace()).next()?.to_owned())
    });
    (by_code, link)
}

#[test]
fn a_mailed_link_begins_a_session_and_makes_no_key() {
    let server = Server::start(&["--registration", "open"]);
    let (client, user) = (server.client(), server.user());
    let email = user.email();
    let (by_code, link) = mailed_link(&server, "session", &email);
    let confirm =
        |link: &str| send(&client, "POST", &format!("/v1/auth/verify?{link}"), &[], "").status;
    assert_eq!(confirm(&format!("{link}&other_keys=keep")), 200);
    for _ in 0..2 {
        let poll = client.post("/v1/auth/device-code/poll", &by_code).expect(200);
        assert_eq!(poll, json!({"status": "approved", "email": email}));
    }
    let browser = Browser::new(&client, &sign_in(&client, &by_code));
    assert_eq!(browser.read(SESSIONS)["sessions"][0]["via"], "mail");
    assert_eq!(browser.read("/v1/auth/keys").list("keys").len(), 1);
    assert_eq!(browser.me()["api_key_prefix"], Value::Null);
    sign_in(&client, &by_code).expect_error(404, "device_code_not_found");
    let refused = client.post("/v1/auth/device-code", &json!({"for": "cookie"}));
    refused.expect_error(422, "validation_error");

    let unused = link_of(&user);
    let (_, link) = mailed_link(&server, "key", &email);
    assert_eq!(confirm(&format!("{link}&other_keys=revoke")), 200);
    assert!(!browser.is_signed_in(), "who revokes the other keys shuts out browsers as well");
    sign_in(&client, &unused).expect_error(401, "invalid_api_key");
}

#[test]
fn in_development_mode_the_machine_of_the_server_signs_in_without_a_credential() {
    let server = Server::start(&["--dev"]);
    let (client, dev) = (server.client(), json!({"dev": true}));
    assert_has(
        &client.read("/v1/info"),
        json!({"dev": true, "users": false, "sign_in": ["key", "mail", "link", "dev"]}),
    );
    let signed_in = sign_in(&client, &dev);
    assert_eq!(signed_in.expect(201)["user"]["email"], "dev@example.com");
    assert!(Browser::new(&client, &signed_in).is_signed_in());
    client.register("ann@example.com");
    assert_has(
        &client.read("/v1/info"),
        json!({"users": true, "accounts": ["dev@example.com", "ann@example.com"]}),
    );
    assert_eq!(sign_in(&client, &dev).expect(201)["user"]["email"], "dev@example.com");
}

#[test]
fn no_other_name_and_no_proxy_reaches_the_sign_in_of_development_mode() {
    let server = Server::start(&["--dev", "--allow-host", "pi.lan"]);
    let own = format!("127.0.0.1:{}", server.addr().port());
    for (host, header, status) in [
        ("localhost", "", 201),
        ("LOCALHOST:1", "", 201),
        ("[::1]", "", 201),
        (&own, "", 201),
        ("pi.lan", "", 403),
        ("evil.example", "", 403),
        ("app.localhost", "", 403),
        ("2130706433", "", 403),
        ("localhost", "X-Forwarded-For: 127.0.0.1\r\n", 403),
        ("localhost", "Forwarded: for=127.0.0.1\r\n", 403),
        ("localhost", "Via: 1.1 x\r\n", 403),
    ] {
        let request = format!(
            "POST {SESSION} HTTP/1.1\r\nHost: {host}\r\n{header}Content-Type: application/json\r\n\
             Content-Length: 13\r\n\r\n{{\"dev\": true}}"
        );
        let answer = server.client().send(request.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{host} {header}");
        assert!(status == 201 || answer.code() == "forbidden_host", "{host} {header}");
    }
    let info = |server: &Server, host: &str| {
        let request = format!("GET /v1/info HTTP/1.1\r\nHost: {host}\r\n\r\n");
        server.client().send(request.as_bytes()).unwrap().expect(200)
    };
    assert_eq!(info(&server, "localhost")["accounts"], json!(["dev@example.com"]));
    assert_eq!(info(&server, "pi.lan").get("accounts"), None);
    let plain = Server::start(&[]);
    plain.client().register("ann@example.com");
    let shown = info(&plain, "localhost");
    assert_eq!((shown.get("accounts"), &shown["sign_in"]), (None, &json!(["key", "mail", "link"])));
    sign_in(&plain.client(), &json!({"dev": true})).expect_error(409, "invalid_state");
}
