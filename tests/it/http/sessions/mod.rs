//! Sign-in: by API key, one-time link, mail, and in development mode; the cookie.

mod cross_site;
mod ends;

use std::slice;

use cued::clock::Clock;

use crate::cli::administration::{fails, ok};
use crate::support::*;

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
    let json = ("Content-Type", "application/json");
    send(client, "POST", "/v1/auth/session", &[json], &credential.to_string())
}

/// The credential in the address of a one-time link.
pub fn token_of(url: &str) -> Value {
    let (_, token) = url.trim().split_once("/#/enter/").expect(url);
    json!({ "link_token": token })
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

    pub fn is_signed_in(&self) -> bool {
        match self.get("/v1/auth/me").status {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }
}

fn anonymous(api: &Api) -> Client {
    Client::new(api.addr())
}

#[test]
fn a_session_stands_in_for_its_key() {
    let (api, ada) = Api::with_user("ada");
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
    let cue = json!({"name": "c", "schedule": {"type": "recurring", "cron": "0 0 * * *"}, "transport": "worker"});
    let created = browser.call("POST", "/v1/cues", &cue.to_string()).expect(201);
    assert_eq!(ada.get("/v1/cues").expect(200)["cues"][0]["id"], created["id"]);
    let keys = browser.get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"][0]["current"], false);
}

#[test]
fn a_value_that_a_client_has_chosen_never_becomes_a_session() {
    let (api, ada) = Api::with_user("ada");
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
    let browser =
        Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let bearer = format!("Bearer {}", bob.key());
    let both =
        browser.call_with("GET", "/v1/auth/me", &[("Authorization", &bearer)], "").expect(200);
    assert_eq!(both["auth"], json!({"via": "key", "id": "bob"}));
    for invalid in ["Bearer cue_sk_00000000000000000000000000000000", "Basic eDp5", ""] {
        let refused = browser.call_with("GET", "/v1/auth/me", &[("Authorization", invalid)], "");
        refused.expect_error(401, "invalid_api_key");
    }
}

#[test]
fn exactly_one_credential_is_given() {
    let (api, ada) = Api::with_user("ada");
    let two = json!({"api_key": ada.key(), "link_token": "x"});
    for body in
        [json!({}), two, json!({"dev": false}), json!({"api_key": 1}), json!({"api_key": ""})]
    {
        let refused = sign_in(&anonymous(&api), &body);
        refused.expect_error(422, "validation_error");
        assert_eq!(refused.header("set-cookie"), None);
    }
}

#[test]
fn after_ten_failed_sign_ins_an_address_has_no_more_for_15_minutes() {
    let api =
        Api::from_fixture(Fixture::with_config(Clock::manual(BEGIN.parse().unwrap()), |_| {}));
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
    sign_in(&client, &json!({"device_code": "ABCD-EFGH"}))
        .expect_error(404, "device_code_not_found");
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
    let (api, ada) = Api::with_user("ada");
    let first =
        Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let second =
        Browser::new(&anonymous(&api), &sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
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
    let (api, ada) = Api::with_user("ada");
    let cookie = cookie_of(&sign_in(&anonymous(&api), &json!({"api_key": ada.key()})));
    let (name, _) = cookie.split_once('=').unwrap();
    let status = |cookies: &[String]| {
        let cookies = cookies.join("; ");
        send(&anonymous(&api), "GET", "/v1/auth/me", &[("Cookie", &cookies)], "").status
    };
    let tossed: Vec<String> =
        ["A", "B", "C", "D"].map(|it| format!("{name}={}", it.repeat(43))).to_vec();
    for count in 0..4 {
        assert_eq!(
            status(&[&tossed[..count], slice::from_ref(&cookie)].concat()),
            200,
            "after {count} others"
        );
    }
    assert_eq!(status(&[slice::from_ref(&cookie), &tossed[..]].concat()), 200);
    // The look-ups are bounded.
    assert_eq!(status(&[&tossed[..], slice::from_ref(&cookie)].concat()), 401);
    assert_eq!(status(&tossed), 401);
}

/// The cookie of a server with these settings, for a request with these headers.
fn cookie_with(public_url: &str, headers: &[(&str, &str)]) -> String {
    let api = Api::configured(|config| {
        config.public_url = public_url.to_owned();
        config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    let ada = api.user("ada");
    let body = json!({"api_key": ada.key()}).to_string();
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let response = send(&anonymous(&api), "POST", "/v1/auth/session", &headers, &body);
    let text = response.header("set-cookie").expect("a cookie").to_owned();
    let browser = Browser::new(&anonymous(&api), &response);
    let forwarded: Vec<_> =
        headers.iter().filter(|(name, _)| name.starts_with("X-")).copied().collect();
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
    assert_eq!(
        cookie_with("https://cue.example.com", &[]),
        format!("__Host-Path=/; {MONTH}; Secure")
    );
    assert_eq!(
        cookie_with("https://example.com/cued", &[]),
        format!("Path=/cued; {MONTH}; Secure")
    );
    let https = [("X-Forwarded-Proto", "https")];
    assert_eq!(
        cookie_with("http://127.0.0.1:8000", &https),
        format!("__Host-Path=/; {MONTH}; Secure")
    );
}

#[test]
fn a_header_of_a_proxy_that_is_not_trusted_changes_no_cookie() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
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
        .map(|server| {
            cookie_of(&sign_in(&server.client(), &json!({"api_key": server.user().key()})))
        })
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
    let (api, ada) = Api::with_user("ada");
    let body = json!({"api_key": ada.key()}).to_string();
    let (client, host) = (anonymous(&api), api.addr().to_string());
    let own = format!("http://{host}");
    let try_with = |headers: &[(&str, &str)]| -> (u16, Value) {
        let answer = send(&client, "POST", "/v1/auth/session", headers, &body);
        assert_eq!(answer.header("set-cookie").is_some(), answer.status == 201);
        (answer.status, answer.json()["error"]["code"].clone())
    };
    let json = ("Content-Type", "application/json; charset=utf-8");
    for good in [&[json][..], &[json, ("Sec-Fetch-Site", "same-origin")], &[json, ("Origin", &own)]]
    {
        assert_eq!(try_with(good).0, 201, "{good:?}");
    }
    for types in
        [&[][..], &[("Content-Type", "text/plain")], &[("Content-Type", "application/jsonp")]]
    {
        assert_eq!(try_with(types), (400, json!("invalid_request")), "{types:?}");
    }
    for (name, value) in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "none"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
    ] {
        assert_eq!(
            try_with(&[json, (name, value)]),
            (403, json!("cross_site_request")),
            "{name}: {value}"
        );
    }
}

#[test]
fn a_one_time_link_works_once_within_five_minutes() {
    let (api, ada) = Api::with_user("ada");
    let client = Client::new(api.addr());
    let link = || {
        let link = ada.post("/v1/auth/session-link", &json!({})).expect(201);
        let url = link["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("http://{}/#/enter/", api.addr())), "{url}");
        token_of(&url)
    };
    let first = link();
    let signed_in = sign_in(&client, &first);
    let browser = Browser::new(&client, &signed_in);
    assert_eq!(browser.get("/v1/auth/sessions").expect(200)["sessions"][0]["via"], "link");
    sign_in(&client, &first).expect_error(401, "invalid_api_key");
    let late = link();
    api.fixture.advance(300);
    sign_in(&client, &late).expect_error(401, "invalid_api_key");
    let in_time = link();
    api.fixture.advance(299);
    sign_in(&client, &in_time).expect(201);
    let of_old_key = link();
    let key = ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(!browser.is_signed_in(), "the session ends with the key that made its link");
    sign_in(&client, &of_old_key).expect_error(401, "invalid_api_key");
    let ada = ada.with_key(key["api_key"].as_str().unwrap());
    let links: Vec<Value> = (0..11)
        .map(|_| {
            token_of(
                ada.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap(),
            )
        })
        .collect();
    sign_in(&client, &links[0]).expect_error(401, "invalid_api_key");
    sign_in(&client, &links[1]).expect(201);
}

#[test]
fn a_link_changes_the_account_of_a_browser_only_if_that_is_asked_for() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = Client::new(api.addr());
    let link_of = |user: &User| {
        token_of(
            user.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap(),
        )
    };
    let browser = Browser::new(&client, &sign_in(&client, &json!({"api_key": ada.key()})));
    let enter = |browser: &Browser, link: &Value| {
        let headers = [("Content-Type", "application/json"), ("Sec-Fetch-Site", "same-origin")];
        browser.call_with("POST", "/v1/auth/session", &headers, &link.to_string())
    };
    let mut link = link_of(&eve);
    for _ in 0..11 {
        let refused = enter(&browser, &link);
        refused.expect_error(409, "invalid_state");
        assert_eq!(refused.header("set-cookie"), None);
    }
    // The same account.
    assert_eq!(enter(&browser, &link_of(&ada)).expect(201)["user"]["id"], "ada");
    link["switch_account"] = json!(true);
    assert_eq!(enter(&browser, &link).expect(201)["user"]["id"], "eve", "the link was not used up");
    let third = link_of(&eve);
    assert_eq!(browser.call("DELETE", "/v1/auth/session", "").status, 204);
    assert_eq!(enter(&browser, &third).expect(201)["user"]["id"], "eve", "nobody is signed in");
    let odd = json!({"link_token": "x", "switch_account": 1});
    sign_in(&client, &odd).expect_error(422, "validation_error");
}

#[test]
fn a_link_leads_to_the_public_url_if_there_is_one() {
    let server =
        Server::start(&["--registration", "open", "--public-url", "https://example.com/cued"]);
    let link = server.user().post("/v1/auth/session-link", &json!({})).expect(201);
    assert!(
        link["url"].as_str().unwrap().starts_with("https://example.com/cued/#/enter/"),
        "{link}"
    );
}

#[test]
fn an_operator_makes_a_link_with_the_file_alone() {
    let (server, user) = Server::with_user(&["--registration", "open"]);
    let email = user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned();
    let printed = ok(&server.db(), &["user", "link", &email]);
    assert!(printed.starts_with("http://127.0.0.1:8000/#/enter/"), "{printed}");
    sign_in(&server.client(), &token_of(&printed)).expect(201);
    sign_in(&server.client(), &token_of(&printed)).expect_error(401, "invalid_api_key");
    let printed =
        ok(&server.db(), &["user", "link", &email, "--public-url", "https://cue.example.com/x/"]);
    assert!(printed.starts_with("https://cue.example.com/x/#/enter/"), "{printed}");
    assert!(fails(&server.db(), &["user", "link", "no@example.com"], 1).contains("cued user list"));
    ok(&server.db(), &["user", "disable", &email]);
    assert!(fails(&server.db(), &["user", "link", &email], 1).contains("disabled"));
    sign_in(&server.client(), &token_of(&printed)).expect_error(401, "invalid_api_key");
}

/// Starts a device login for `purpose` and returns its code, and the query of the link that is mailed to `email`.
fn mailed_link(server: &Server, purpose: &str, email: &Value) -> (Value, String) {
    let client = server.client();
    let code = client.post("/v1/auth/device-code", &json!({ "for": purpose })).expect(201);
    let by_code = json!({"device_code": code["device_code"]});
    sign_in(&client, &by_code).expect_error(
        if purpose == "session" { 409 } else { 404 },
        match purpose {
            "session" => "invalid_state",
            _ => "device_code_not_found",
        },
    );
    let submitted = json!({"device_code": code["device_code"], "email": email});
    client.post("/v1/auth/device-code/submit-email", &submitted).expect(200);
    let user_code = code["user_code"].as_str().unwrap();
    let link = until("the link is in the log", || {
        let log = server.log();
        let line =
            log.lines().find(|line| line.contains(user_code) && line.contains("verify?token="))?;
        let (_, rest) = line.split_once("verify?")?;
        Some(rest.split(|char: char| char == '"' || char.is_whitespace()).next()?.to_owned())
    });
    (by_code, link)
}

#[test]
fn a_mailed_link_begins_a_session_and_makes_no_key() {
    let server = Server::start(&["--registration", "open"]);
    let (client, user) = (server.client(), server.user());
    let email = user.get("/v1/auth/me").expect(200)["email"].clone();
    let (by_code, link) = mailed_link(&server, "session", &email);
    let confirm =
        |link: &str| send(&client, "POST", &format!("/v1/auth/verify?{link}"), &[], "").status;
    assert_eq!(confirm(&format!("{link}&other_keys=keep")), 200);
    for _ in 0..2 {
        let poll = client.post("/v1/auth/device-code/poll", &by_code).expect(200);
        assert_eq!(poll, json!({"status": "approved", "email": email}));
    }
    let signed_in = sign_in(&client, &by_code);
    let browser = Browser::new(&client, &signed_in);
    assert_eq!(browser.get("/v1/auth/sessions").expect(200)["sessions"][0]["via"], "mail");
    assert_eq!(browser.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
    assert_eq!(browser.get("/v1/auth/me").expect(200)["api_key_prefix"], Value::Null);
    sign_in(&client, &by_code).expect_error(404, "device_code_not_found");
    let refused = client.post("/v1/auth/device-code", &json!({"for": "cookie"}));
    refused.expect_error(422, "validation_error");

    let unused = token_of(
        user.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap(),
    );
    let (_, link) = mailed_link(&server, "key", &email);
    assert_eq!(confirm(&format!("{link}&other_keys=revoke")), 200);
    assert!(!browser.is_signed_in(), "who revokes the other keys shuts out browsers as well");
    sign_in(&client, &unused).expect_error(401, "invalid_api_key");
}

#[test]
fn in_development_mode_the_machine_of_the_server_signs_in_without_a_credential() {
    let server = Server::start(&["--dev"]);
    let client = server.client();
    let info = client.get("/v1/info").expect(200);
    assert_has(
        &info,
        json!({"dev": true, "users": false, "sign_in": ["key", "mail", "link", "dev"]}),
    );
    let signed_in = sign_in(&client, &json!({"dev": true}));
    assert_eq!(signed_in.expect(201)["user"]["email"], "dev@example.com");
    assert!(Browser::new(&client, &signed_in).is_signed_in());
    client.register("ann@example.com");
    let info = client.get("/v1/info").expect(200);
    assert_has(&info, json!({"users": true, "accounts": ["dev@example.com", "ann@example.com"]}));
    assert_eq!(
        sign_in(&client, &json!({"dev": true})).expect(201)["user"]["email"],
        "dev@example.com"
    );
}

#[test]
fn no_other_name_and_no_proxy_reaches_the_sign_in_of_development_mode() {
    let server = Server::start(&["--dev", "--allow-host", "pi.lan"]);
    let (client, port) = (server.client(), server.addr().port());
    let attempt = |host: &str, header: &str| {
        let body = r#"{"dev": true}"#;
        let request = format!(
            "POST /v1/auth/session HTTP/1.1\r\nHost: {host}\r\n{header}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.clone().send(request.as_bytes()).unwrap()
    };
    for host in ["localhost", "LOCALHOST:1", "[::1]", &format!("127.0.0.1:{port}")] {
        attempt(host, "").expect(201);
    }
    for host in ["pi.lan", "evil.example", "app.localhost", "2130706433"] {
        attempt(host, "").expect_error(403, "forbidden_host");
    }
    for header in
        ["X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n", "Via: 1.1 x\r\n"]
    {
        attempt("localhost", header).expect_error(403, "forbidden_host");
    }
    let info = |server: &Server, host: &str| {
        let request = format!("GET /v1/info HTTP/1.1\r\nHost: {host}\r\n\r\n");
        server.client().send(request.as_bytes()).unwrap().expect(200)
    };
    assert_eq!(info(&server, "localhost")["accounts"], json!(["dev@example.com"]));
    assert_eq!(info(&server, "pi.lan").get("accounts"), None);
    let plain = Server::start(&[]);
    plain.client().register("ann@example.com");
    assert_eq!(info(&plain, "localhost").get("accounts"), None);
    sign_in(&plain.client(), &json!({"dev": true})).expect_error(409, "invalid_state");
    assert_eq!(
        plain.client().get("/v1/info").expect(200)["sign_in"],
        json!(["key", "mail", "link"])
    );
}
