//! Device login over HTTP: the flow, its pages, single use, expiry, limits, and identical responses for unknown
//! addresses.

mod addresses;
mod ends;

use std::io::Write;

use crate::support::*;

const CODE: &str = "/v1/auth/device-code";
const SUBMIT: &str = "/v1/auth/device-code/submit-email";
const POLL: &str = "/v1/auth/device-code/poll";
const BEGIN: &str = "2030-01-01T00:00:00Z";

/// A server with a manual clock that mails to a mailbox.
pub struct MailingServer {
    pub server: Server,
    pub mailbox: Mailbox,
}

impl MailingServer {
    pub fn open(flags: &[&str]) -> Self {
        let mailbox = Mailbox::open();
        let url = mailbox.url();
        let mail =
            ["--smtp-url", &url, "--mail-from", "cued <cued@example.com>", "--test-clock", BEGIN];
        Self { server: Server::start(&[flags, &mail].concat()), mailbox }
    }

    pub fn client(&self) -> Client {
        self.server.client()
    }

    pub fn code(&self) -> String {
        self.codes().0
    }

    /// The device code and the user code of a new login.
    pub fn codes(&self) -> (String, String) {
        let made = self.client().post(CODE, &json!({})).expect(201);
        let code = |name: &str| made[name].as_str().unwrap().to_owned();
        (code("device_code"), code("user_code"))
    }

    /// Submits an address and returns the mail, which must come.
    pub fn mail(&self, code: &str, email: &str) -> Received {
        self.submit(code, email);
        let mail = self.mailbox.next();
        assert_eq!(mail.to, format!("TO:<{email}>"));
        mail
    }

    pub fn submit(&self, code: &str, email: &str) {
        let sent =
            self.client().post(SUBMIT, &json!({"device_code": code, "email": email})).expect(200);
        assert_eq!(sent, json!({"status": "email_sent"}));
    }

    /// Confirms like the form of the page.
    pub fn confirm(&self, code: &str, mail: &Received) -> Response {
        post_form(
            &self.client(),
            "/v1/auth/verify",
            &[("token", &mail.token()), ("device_code", code)],
        )
    }

    pub fn poll(&self, code: &str) -> Value {
        self.client().post(POLL, &json!({ "device_code": code })).expect(200)
    }

    pub fn status(&self, code: &str) -> String {
        self.poll(code)["status"].as_str().unwrap().to_owned()
    }

    pub fn advance(&self, span: &str) {
        self.client().advance(span);
    }
}

/// Sends a POST like a browser.
pub fn post_form(client: &Client, path: &str, pairs: &[(&str, &str)]) -> Response {
    let encoded = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b' ' => "+".to_owned(),
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect()
    };
    let body: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    client.call("POST", path, &headers, body.join("&").as_bytes()).unwrap()
}

#[test]
fn a_device_gets_its_key_once_after_the_link_is_confirmed() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let made = mailing.client().post(CODE, &json!({})).expect(201);
    let code = made["device_code"].as_str().unwrap();
    let shown = made["user_code"].as_str().unwrap();
    let url = format!("{}/auth/device?code={shown}", mailing.server.url());
    let expected = json!({"device_code": code, "user_code": shown, "verification_url": url, "expires_in": 900,
                          "interval": 2});
    assert_eq!(made, expected);
    assert_eq!(mailing.poll(code), json!({"status": "pending"}));
    let mail = mailing.mail(code, "ann@example.com");
    assert_eq!(mail.from, "FROM:<cued@example.com>");
    assert_eq!(mail.header("Date"), Some("Tue, 01 Jan 2030 00:00:00 +0000"));
    assert_eq!(mail.header("Auto-Submitted"), Some("auto-generated"));
    assert!(mail.message.contains(shown), "{}", mail.message);
    assert_eq!(mailing.poll(code), json!({"status": "email_sent"}));

    // Mail scanners open links, some of them more than once.
    for method in ["GET", "HEAD", "GET"] {
        let page = mailing.client().call(method, &mail.link(), &[], b"").unwrap();
        assert_eq!(page.status, 200);
        assert!(method == "HEAD" || page.text().contains(shown));
    }
    assert_eq!(mailing.poll(code), json!({"status": "email_sent"}), "a GET confirms nothing");

    assert_eq!(mailing.confirm(code, &mail).status, 200);
    let approved = mailing.poll(code);
    assert_has(&approved, json!({"status": "approved", "email": "ann@example.com"}));
    assert_eq!(mailing.poll(code), json!({"status": "claimed"}));

    let user = mailing.client().with_key(approved["api_key"].as_str().unwrap());
    assert_eq!(user.get("/v1/auth/me").expect(200)["email"], "ann@example.com");
    let secret = user.get("/v1/auth/webhook-secret").expect(200);
    assert!(secret["webhook_secret"].as_str().unwrap().starts_with("whsec_"));
}

#[test]
fn the_link_can_be_posted_with_its_query() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    assert_eq!(mailing.client().call("POST", &mail.link(), &[], b"").unwrap().status, 200);
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn only_the_newest_link_works_and_only_once() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let (first, second) =
        (mailing.mail(&code, "ann@example.com"), mailing.mail(&code, "ann@example.com"));
    assert_ne!(first.token(), second.token());
    assert_eq!(mailing.confirm(&code, &first).status, 404, "a newer link has replaced it");
    assert_eq!(mailing.confirm(&mailing.code(), &second).status, 404, "the token of another code");
    assert_eq!(mailing.status(&code), "email_sent");
    assert_eq!(mailing.confirm(&code, &second).status, 200);
    assert_eq!(mailing.confirm(&code, &second).status, 410);
    assert_eq!(mailing.client().get(&second.link()).status, 410);
    let late = json!({"device_code": code, "email": "eve@example.com"});
    mailing.client().post(SUBMIT, &late).expect_error(404, "device_code_not_found");
    assert_eq!(mailing.status(&code), "approved");
    assert_eq!(mailing.confirm(&code, &second).status, 410);
    assert_eq!(mailing.status(&code), "claimed");
}

#[test]
fn codes_and_links_expire_after_15_minutes() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, approved) = (mailing.code(), mailing.code());
    let mail = mailing.mail(&code, "ann@example.com");
    let other = mailing.mail(&approved, "bob@example.com");
    mailing.confirm(&approved, &other);
    mailing.advance("PT14M59S");
    assert_eq!(mailing.client().get(&mail.link()).status, 200);
    assert_eq!(mailing.status(&code), "email_sent");
    mailing.advance("PT1S");
    assert_eq!(mailing.client().get(&mail.link()).status, 410);
    assert_eq!(mailing.confirm(&code, &mail).status, 410);
    assert_eq!(mailing.status(&code), "expired");
    // The key was not polled in time.
    assert_eq!(mailing.poll(&approved), json!({"status": "expired"}));
    let late = json!({"device_code": code, "email": "ann@example.com"});
    mailing.client().post(SUBMIT, &late).expect_error(404, "device_code_not_found");
    assert_eq!(mailing.client().get(&format!("/auth/device?code={code}")).status, 404);
}

#[test]
fn an_unknown_code_is_expired_and_accepts_no_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    for code in ["never-was", "", "<script>"] {
        assert_eq!(mailing.poll(code), json!({"status": "expired"}));
        let body = json!({"device_code": code, "email": "ann@example.com"});
        mailing.client().post(SUBMIT, &body).expect_error(404, "device_code_not_found");
    }
    assert_eq!(mailing.client().get("/v1/auth/verify").status, 404);
    assert_eq!(mailing.client().get("/v1/auth/verify?token=abc&device_code=never-was").status, 404);
}

#[test]
fn a_device_may_choose_an_unused_valid_code() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let own = json!({"device_code": "My-Laptop-1"});
    assert_eq!(mailing.client().post(CODE, &own).expect(201)["device_code"], "My-Laptop-1");
    mailing.client().post(CODE, &own).expect_error(409, "device_code_exists");
    for bad in ["short", "with space", "<b>bold</b>", &"x".repeat(129)] {
        mailing
            .client()
            .post(CODE, &json!({ "device_code": bad }))
            .expect_error(422, "validation_error");
    }
    // No body is needed.
    assert_eq!(mailing.client().call("POST", CODE, &[], b"").unwrap().status, 201);
    mailing
        .client()
        .post(SUBMIT, &json!({"device_code": "My-Laptop-1"}))
        .expect_error(422, "validation_error");
    let no_address = json!({"device_code": "My-Laptop-1", "email": "ann"});
    mailing.client().post(SUBMIT, &no_address).expect_error(422, "validation_error");
    mailing.client().post(POLL, &json!({})).expect_error(422, "validation_error");
}

#[test]
fn a_known_user_gets_an_additional_key_named_after_the_device() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register("ann@example.com");
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    mailing.confirm(&code, &mail);
    let key = mailing.poll(&code)["api_key"].as_str().unwrap().to_owned();
    assert_eq!(user.get("/v1/auth/me").status, 200, "the other keys stay valid");
    let keys = mailing.client().with_key(&key).get("/v1/auth/keys").expect(200);
    let names: Vec<&str> =
        keys["keys"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", &format!("Device {code}")]);
}

#[test]
fn closed_registration_gives_an_unknown_address_the_same_responses_and_no_mail() {
    let mailing = MailingServer::open(&["--registration", "closed"]);
    let db = mailing.server.db();
    run(&["user", "add", "ann@example.com", "--db", db.to_str().unwrap()]);
    run(&["user", "add", "gone@example.com", "--db", db.to_str().unwrap()]);
    run(&["user", "disable", "gone@example.com", "--db", db.to_str().unwrap()]);
    let responses = |email: &str| {
        let (code, shown) = mailing.codes();
        let body = json!({"device_code": code, "email": email});
        let sent = mailing.client().post(SUBMIT, &body);
        let page =
            post_form(&mailing.client(), "/auth/device", &[("code", &code), ("email", email)]);
        let names: Vec<String> = sent.headers.iter().map(|(name, _)| name.clone()).collect();
        let page_text = page.text().replace(&shown, "CODE").replace(email, "EMAIL");
        (sent.status, sent.text(), names, page.status, page_text, mailing.poll(&code))
    };
    let known = responses("ann@example.com");
    assert_eq!(known.5, json!({"status": "email_sent"}));
    assert_eq!(responses("eve@example.com"), known);
    assert_eq!(responses("gone@example.com"), known, "a disabled user is unknown");
    // One thread sends in order: mails to the others would precede the third.
    let last = mailing.code();
    mailing.submit(&last, "ann@example.com");
    for _ in 0..3 {
        assert_eq!(mailing.mailbox.next().to, "TO:<ann@example.com>");
    }
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn the_first_user_closes_registration_even_for_holders_of_a_link() {
    let mailing = MailingServer::open(&[]);
    let (first, second) = (mailing.code(), mailing.code());
    let mails = (mailing.mail(&first, "ann@example.com"), mailing.mail(&second, "bob@example.com"));
    assert_eq!(mailing.confirm(&first, &mails.0).status, 200);
    let refused = mailing.confirm(&second, &mails.1);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("<!doctype html>"), "{}", refused.text());
    assert_eq!(mailing.status(&second), "email_sent");
    assert_eq!(mailing.status(&first), "approved");
}

#[test]
fn a_user_disabled_after_the_confirmation_gets_no_key() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    mailing.confirm(&code, &mail);
    run(&["user", "disable", "ann@example.com", "--db", mailing.server.db().to_str().unwrap()]);
    assert_eq!(mailing.poll(&code), json!({"status": "expired"}));
}

#[test]
fn of_concurrent_polls_exactly_one_gets_the_key() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    mailing.confirm(&code, &mail);
    let addr = mailing.server.addr();
    let poll = || Client::new(addr).post(POLL, &json!({ "device_code": code })).expect(200);
    let polls: Vec<Value> = std::thread::scope(|scope| {
        let polls: Vec<_> = (0..12).map(|_| scope.spawn(poll)).collect();
        polls.into_iter().map(|poll| poll.join().unwrap()).collect()
    });
    assert_eq!(polls.iter().filter(|poll| poll["status"] == "approved").count(), 1, "{polls:?}");
    assert_eq!(polls.iter().filter(|poll| poll["status"] == "claimed").count(), 11, "{polls:?}");
    let user = polls.iter().find_map(|poll| poll["api_key"].as_str()).unwrap();
    let keys = mailing.client().with_key(user).get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
}

#[test]
fn polls_of_a_known_code_do_not_count_for_the_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let poll = |code: &str| mailing.client().post(POLL, &json!({ "device_code": code }));
    let left = |response: &Response| {
        response.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(left(&poll(&code)), 59, "only the creation of the code counts");
    assert_eq!(left(&poll(&code)), 59);
    assert_eq!(left(&poll("unknown-code")), 58);
    assert_eq!(left(&mailing.client().post(POLL, &json!({}))), 57);
    while mailing.client().get("/v1/cues").status != 429 {}
    poll("unknown-code").expect_error(429, "rate_limit_exceeded");
    assert_eq!(poll(&code).expect(200), json!({"status": "pending"}));
}

#[test]
fn polls_without_a_valid_body_count_for_the_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let left = |response: &Response| response.header("x-ratelimit-remaining").unwrap().to_owned();
    let too_large = mailing.client().call("POST", POLL, &[], &[b' '; 5_000]).unwrap();
    assert_eq!((too_large.status, left(&too_large).as_str()), (413, "59"));
    let cross_site =
        mailing.client().call("POST", POLL, &[("Origin", "http://evil.example")], b"{}").unwrap();
    assert_eq!((cross_site.status, left(&cross_site).as_str()), (403, "58"));
    // So does one whose body never comes.
    let head = format!("POST {POLL} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n");
    let mut silent = TcpStream::connect(mailing.server.addr()).unwrap();
    silent.write_all(head.as_bytes()).unwrap();
    until("it is read", || (left(&mailing.client().get("/status")) == "57").then_some(()));
}

const NASTY: &str = "<script>alert('x')</script>\"&";
const SHOWN: &str = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;";

#[track_caller]
fn assert_page(page: &Response, status: u16) {
    assert_eq!(page.status, status, "{}", page.text());
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "style-src 'sha256-",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("script"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let text = page.text();
    for banned in ["<script", "http://", "https://", " src=", " style=", " onclick"] {
        assert!(!text.contains(banned), "{banned} in {text}");
    }
}

#[test]
fn the_login_pages_work_with_plain_forms() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, shown_code) = mailing.codes();
    let asked = mailing.client().get(&format!("/auth/device?code={shown_code}"));
    assert_page(&asked, 200);
    assert!(
        asked.text().contains(r#"<form method="post" action="/auth/device">"#),
        "{}",
        asked.text()
    );
    assert_contains(&asked.text(), &[&format!(r#"name="code" value="{shown_code}""#)]);
    assert!(asked.text().contains(r#"<label for="email">"#));

    let sent = post_form(
        &mailing.client(),
        "/auth/device",
        &[("code", &shown_code), ("email", " Ann@Example.com ")],
    );
    assert_page(&sent, 200);
    assert!(sent.text().contains("ann@example.com"));
    let mail = mailing.mailbox.next();
    let shown = mailing.client().get(&mail.link());
    assert_page(&shown, 200);
    for part in [
        &shown_code,
        "ann@example.com",
        r#"<form method="post" action="/v1/auth/verify">"#,
        &mail.token(),
    ] {
        assert!(shown.text().contains(part), "{part} in {}", shown.text());
    }
    assert_page(&mailing.confirm(&code, &mail), 200);
    assert_eq!(mailing.status(&code), "approved");
    assert_page(&mailing.confirm(&code, &mail), 410);
    assert_page(&mailing.client().get(&mail.link()), 410);
    assert_page(&mailing.client().get(&format!("/auth/device?code={code}")), 404);
}

#[test]
fn the_confirmation_says_whether_it_creates_an_account() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.client().register("ann@example.com");
    for (email, is_new) in [("ann@example.com", false), ("bob@example.com", true)] {
        let mail = mailing.mail(&mailing.code(), email);
        let shown = mailing.client().get(&mail.link()).text();
        let (new, known) =
            ("This creates a new account for ", "The device can then use the account ");
        assert_eq!((shown.contains(new), shown.contains(known)), (is_new, !is_new), "{shown}");
    }
}

#[test]
fn a_page_without_a_code_asks_for_it() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let page = mailing.client().get("/auth/device");
    assert_page(&page, 200);
    assert!(page.text().contains(r#"<label for="code">"#));
    let (code, shown) = mailing.codes();
    let typed = format!(" {} ", shown.to_lowercase());
    let sent = post_form(
        &mailing.client(),
        "/auth/device",
        &[("code", &typed), ("email", "ann@example.com")],
    );
    assert_page(&sent, 200);
    assert_eq!(mailing.status(&code), "email_sent");
}

#[test]
fn html_in_a_code_or_an_address_is_escaped() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let encoded = "%3Cscript%3Ealert('x')%3C/script%3E%22%26";
    let page = mailing.client().get(&format!("/auth/device?code={encoded}"));
    assert_page(&page, 404);
    assert!(page.text().contains(SHOWN), "{}", page.text());

    let code = mailing.code();
    let page = post_form(&mailing.client(), "/auth/device", &[("code", &code), ("email", NASTY)]);
    assert_page(&page, 422);
    assert!(page.text().contains(&format!("value=\"{SHOWN}\"")), "{}", page.text());
    let page = post_form(
        &mailing.client(),
        "/auth/device",
        &[("code", NASTY), ("email", "ann@example.com")],
    );
    assert_page(&page, 404);
    assert!(page.text().contains(SHOWN), "{}", page.text());

    // An address may contain HTML characters.
    let odd = "a&b'c@example.com";
    let page = post_form(&mailing.client(), "/auth/device", &[("code", &code), ("email", odd)]);
    assert_page(&page, 200);
    assert!(page.text().contains("a&amp;b&#39;c@example.com"), "{}", page.text());
    let link = format!("/v1/auth/verify?token={encoded}&device_code={encoded}");
    assert_page(&mailing.client().get(&link), 404);
    assert_page(
        &post_form(
            &mailing.client(),
            "/v1/auth/verify",
            &[("token", NASTY), ("device_code", NASTY)],
        ),
        404,
    );
}

#[test]
fn forms_post_below_the_path_of_the_public_url() {
    let mailing = MailingServer::open(
        &[DEV_UNLIMITED, &["--public-url", "http://example.com/cued/"]].concat(),
    );
    let code = mailing.code();
    let page = mailing.client().get(&format!("/auth/device?code={code}"));
    assert!(page.text().contains(r#"action="/cued/auth/device""#), "{}", page.text());
    let mail = mailing.mail(&code, "ann@example.com");
    assert_contains(&mail.message, &["\nhttp://example.com/cued/v1/auth/verify?token="]);
}

#[test]
fn a_client_address_gets_5_codes_an_hour() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    for _ in 0..4 {
        mailing.code();
    }
    mailing.advance("PT10M");
    mailing.code();
    let refused = mailing.client().post("/v1/auth/device-code", &json!({}));
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("3000"));
    mailing.advance("PT49M59S");
    assert_eq!(
        mailing.client().post("/v1/auth/device-code", &json!({})).header("retry-after"),
        Some("1")
    );
    mailing.advance("PT1S");
    for _ in 0..4 {
        mailing.code();
    }
    mailing
        .client()
        .post("/v1/auth/device-code", &json!({}))
        .expect_error(429, "rate_limit_exceeded");
}

#[test]
fn a_code_is_deleted_after_an_hour_and_can_be_reused() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let own = json!({"device_code": "My-Laptop-1"});
    mailing.client().post("/v1/auth/device-code", &own).expect(201);
    let mail = mailing.mail("My-Laptop-1", "ann@example.com");
    mailing.confirm("My-Laptop-1", &mail);
    assert_eq!(mailing.status("My-Laptop-1"), "approved");
    mailing.advance("PT59M59S");
    assert_eq!(mailing.status("My-Laptop-1"), "claimed");
    mailing.client().post("/v1/auth/device-code", &own).expect_error(409, "device_code_exists");
    mailing.advance("PT2S");
    let kept = "SELECT (SELECT count(*) FROM device_logins) + (SELECT count(*) FROM login_mails)";
    let kept = || mailing.server.sqlite().query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap();
    until("the login is deleted", || (kept() == 0).then_some(()));
    assert_eq!(mailing.status("My-Laptop-1"), "expired");
    mailing.client().post("/v1/auth/device-code", &own).expect(201);
}

#[test]
fn a_code_can_be_polled_30_times_a_minute() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let poll =
        || mailing.client().post("/v1/auth/device-code/poll", &json!({ "device_code": code }));
    for _ in 0..30 {
        assert_eq!(poll().status, 200);
    }
    let refused = poll();
    refused.expect_error(429, "rate_limit_exceeded");
    assert!(refused.text().contains("Poll at most"), "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("60"));
    mailing.advance("PT60S");
    assert_eq!(poll().status, 200);
}

#[test]
fn codes_tokens_and_keys_are_not_stored_in_clear() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    let stored = || -> String {
        let row = "SELECT hex(code_hash) || hex(coalesce(token_hash, '')) || client_network || state FROM device_logins";
        mailing.server.sqlite().query_row(row, [], |row| row.get(0)).unwrap()
    };
    assert!(stored().ends_with("127.0.0.1email_sent"), "{}", stored());
    for file in ["cued.db", "cued.db-wal"] {
        let bytes = std::fs::read(mailing.server.db().with_file_name(file)).unwrap_or_default();
        for secret in [&code, &mail.token()] {
            assert!(
                !bytes.windows(secret.len()).any(|part| part == secret.as_bytes()),
                "{secret} in {file}"
            );
        }
    }
}
