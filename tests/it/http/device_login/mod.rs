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

const ANN: &str = "ann@example.com";
const BOB: &str = "bob@example.com";

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
        (made.text("device_code").to_owned(), made.text("user_code").to_owned())
    }

    /// Submits an address and returns the mail, which must come.
    pub fn mail(&self, code: &str, email: &str) -> Received {
        self.submit(code, email);
        self.next_mail(email)
    }

    /// A new login with its mail.
    fn mailed(&self, email: &str) -> (String, Received) {
        let code = self.code();
        let mail = self.mail(&code, email);
        (code, mail)
    }

    /// The next mail, which must be to this address.
    #[track_caller]
    fn next_mail(&self, email: &str) -> Received {
        let mail = self.mailbox.next();
        assert_eq!(mail.to, format!("TO:<{email}>"));
        mail
    }

    pub fn submit(&self, code: &str, email: &str) {
        assert_eq!(self.try_submit(code, email).expect(200), json!({"status": "email_sent"}));
    }

    fn try_submit(&self, code: &str, email: &str) -> Response {
        self.client().post(SUBMIT, &json!({"device_code": code, "email": email}))
    }

    /// As [`MailingServer::try_submit`], through a proxy that names the address of the client.
    fn submit_from(&self, address: &str, code: &str, email: &str) -> Response {
        let body = json!({"device_code": code, "email": email});
        self.client().post_with(SUBMIT, &[("X-Forwarded-For", address)], &body)
    }

    /// Submits an address like the form of the page.
    fn submit_form(&self, code: &str, email: &str) -> Response {
        post_form(&self.client(), "/auth/device", &[("code", code), ("email", email)])
    }

    /// Confirms like the form of the page.
    pub fn confirm(&self, code: &str, mail: &Received) -> Response {
        self.confirm_with(&[("token", &mail.token()), ("device_code", code)])
    }

    pub fn confirm_with(&self, pairs: &[(&str, &str)]) -> Response {
        post_form(&self.client(), "/v1/auth/verify", pairs)
    }

    /// Posts the values of a link's query, as the form of its page does, and more.
    fn post_link(&self, mail: &Received, more: &[(&str, &str)]) -> Response {
        let link = mail.link();
        let (path, query) = link.split_once('?').unwrap();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
        let pairs: Vec<_> = pairs.chain(more.iter().copied()).collect();
        post_form(&self.client(), path, &pairs)
    }

    /// The page that the link of a mail leads to.
    fn page(&self, mail: &Received) -> String {
        self.client().get(&mail.link()).text()
    }

    pub fn poll(&self, code: &str) -> Value {
        self.client().post(POLL, &json!({ "device_code": code })).expect(200)
    }

    pub fn status(&self, code: &str) -> String {
        self.poll(code).text("status").to_owned()
    }

    /// The client of a confirmed login.
    fn polled(&self, code: &str) -> Client {
        self.client().with_key(self.poll(code).text("api_key"))
    }

    pub fn advance(&self, span: &str) {
        self.client().advance(span);
    }
}

/// Sends a POST like a browser.
pub fn post_form(client: &Client, path: &str, pairs: &[(&str, &str)]) -> Response {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    client.call("POST", path, &headers, body.as_bytes()).unwrap()
}

#[track_caller]
fn assert_keys(user: &Client, count: usize) {
    let keys = user.read("/v1/auth/keys");
    assert_eq!(keys.list("keys").len(), count, "{keys}");
}

#[test]
fn a_device_gets_its_key_once_after_the_link_is_confirmed() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let made = mailing.client().post(CODE, &json!({})).expect(201);
    let (code, shown) = (made.text("device_code"), made.text("user_code"));
    let url = format!("{}/auth/device?code={shown}", mailing.server.url());
    let expected = json!({"device_code": code, "user_code": shown, "verification_url": url, "expires_in": 900,
                          "interval": 2});
    assert_eq!(made, expected);
    assert_eq!(mailing.poll(code), json!({"status": "pending"}));
    let mail = mailing.mail(code, ANN);
    assert_eq!(mail.from, "FROM:<cued@example.com>");
    assert_eq!(mail.header("Date"), Some("Tue, 01 Jan 2030 00:00:00 +0000"));
    assert_eq!(mail.header("Auto-Submitted"), Some("auto-generated"));
    assert_contains(&mail.message, &[shown]);
    assert_eq!(mailing.poll(code), json!({"status": "email_sent"}));

    // Mail scanners open links, some of them more than once.
    for method in ["GET", "HEAD", "GET"] {
        let page = mailing.client().bare(method, &mail.link());
        assert_eq!(page.status, 200);
        assert!(method == "HEAD" || page.text().contains(shown));
    }
    assert_eq!(mailing.poll(code), json!({"status": "email_sent"}), "a GET confirms nothing");

    assert_eq!(mailing.confirm(code, &mail).status, 200);
    let approved = mailing.poll(code);
    assert_has(&approved, json!({"status": "approved", "email": ANN}));
    assert_eq!(mailing.poll(code), json!({"status": "claimed"}));

    let user = mailing.client().with_key(approved.text("api_key"));
    assert_eq!(user.email(), ANN);
    assert!(user.read("/v1/auth/webhook-secret").text("webhook_secret").starts_with("whsec_"));
}

#[test]
fn the_link_can_be_posted_with_its_query() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, mail) = mailing.mailed(ANN);
    assert_eq!(mailing.client().bare("POST", &mail.link()).status, 200);
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn only_the_newest_link_works_and_only_once() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, first) = mailing.mailed(ANN);
    let second = mailing.mail(&code, ANN);
    assert_ne!(first.token(), second.token());
    assert_eq!(mailing.confirm(&code, &first).status, 404, "a newer link has replaced it");
    assert_eq!(mailing.confirm(&mailing.code(), &second).status, 404, "the token of another code");
    assert_eq!(mailing.status(&code), "email_sent");
    assert_eq!(mailing.confirm(&code, &second).status, 200);
    assert_eq!(mailing.confirm(&code, &second).status, 410);
    assert_eq!(mailing.client().get(&second.link()).status, 410);
    mailing.try_submit(&code, "eve@example.com").expect_error(404, "device_code_not_found");
    assert_eq!(mailing.status(&code), "approved");
    assert_eq!(mailing.confirm(&code, &second).status, 410);
    assert_eq!(mailing.status(&code), "claimed");
}

#[test]
fn codes_and_links_expire_after_15_minutes() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let ((code, mail), (approved, other)) = (mailing.mailed(ANN), mailing.mailed(BOB));
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
    mailing.try_submit(&code, ANN).expect_error(404, "device_code_not_found");
    assert_eq!(mailing.client().get(&format!("/auth/device?code={code}")).status, 404);
}

#[test]
fn an_unknown_code_is_expired_and_accepts_no_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    for code in ["never-was", "", "<script>"] {
        assert_eq!(mailing.poll(code), json!({"status": "expired"}));
        mailing.try_submit(code, ANN).expect_error(404, "device_code_not_found");
    }
    for query in ["", "?token=abc&device_code=never-was"] {
        assert_eq!(mailing.client().get(&format!("/v1/auth/verify{query}")).status, 404);
    }
}

#[test]
fn a_device_may_choose_an_unused_valid_code() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (client, own) = (mailing.client(), json!({"device_code": "My-Laptop-1"}));
    assert_eq!(client.post(CODE, &own).expect(201)["device_code"], "My-Laptop-1");
    client.post(CODE, &own).expect_error(409, "device_code_exists");
    // No body is needed.
    assert_eq!(client.bare("POST", CODE).status, 201);
    for (path, bad) in [
        (CODE, json!({"device_code": "short"})),
        (CODE, json!({"device_code": "with space"})),
        (CODE, json!({"device_code": "<b>bold</b>"})),
        (CODE, json!({"device_code": "x".repeat(129)})),
        (SUBMIT, own),
        (SUBMIT, json!({"device_code": "My-Laptop-1", "email": "ann"})),
        (POLL, json!({})),
    ] {
        client.post(path, &bad).expect_error(422, "validation_error");
    }
}

#[test]
fn a_known_user_gets_an_additional_key_named_after_the_device() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register(ANN);
    let (code, mail) = mailing.mailed(ANN);
    mailing.confirm(&code, &mail);
    let keys = mailing.polled(&code).read("/v1/auth/keys");
    assert_eq!(user.get("/v1/auth/me").status, 200, "the other keys stay valid");
    assert_eq!(keys.column("keys", "name"), ["default", &format!("Device {code}")]);
}

#[test]
fn closed_registration_gives_an_unknown_address_the_same_responses_and_no_mail() {
    let mailing = MailingServer::open(&["--registration", "closed"]);
    for arguments in [["add", ANN], ["add", "gone@example.com"], ["disable", "gone@example.com"]] {
        mailing.server.administer(&arguments);
    }
    let responses = |email: &str| {
        let (code, shown) = mailing.codes();
        let sent = mailing.try_submit(&code, email);
        let page = mailing.submit_form(&code, email);
        let names: Vec<String> = sent.headers.iter().map(|(name, _)| name.clone()).collect();
        let page_text = page.text().replace(&shown, "CODE").replace(email, "EMAIL");
        (sent.status, sent.text(), names, page.status, page_text, mailing.poll(&code))
    };
    let known = responses(ANN);
    assert_eq!(known.5, json!({"status": "email_sent"}));
    assert_eq!(responses("eve@example.com"), known);
    assert_eq!(responses("gone@example.com"), known, "a disabled user is unknown");
    // One thread sends in order: mails to the others would precede the third.
    mailing.submit(&mailing.code(), ANN);
    (0..3).for_each(|_| drop(mailing.next_mail(ANN)));
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn the_first_user_closes_registration_even_for_holders_of_a_link() {
    let mailing = MailingServer::open(&[]);
    let (first, second) = (mailing.mailed(ANN), mailing.mailed(BOB));
    assert_eq!(mailing.confirm(&first.0, &first.1).status, 200);
    let refused = mailing.confirm(&second.0, &second.1);
    assert_eq!(refused.status, 403);
    assert_contains(&refused.text(), &["<!doctype html>"]);
    assert_eq!(mailing.status(&second.0), "email_sent");
    assert_eq!(mailing.status(&first.0), "approved");
}

#[test]
fn a_user_disabled_after_the_confirmation_gets_no_key() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, mail) = mailing.mailed(ANN);
    mailing.confirm(&code, &mail);
    mailing.server.administer(&["disable", ANN]);
    assert_eq!(mailing.poll(&code), json!({"status": "expired"}));
}

#[test]
fn of_concurrent_polls_exactly_one_gets_the_key() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, mail) = mailing.mailed(ANN);
    mailing.confirm(&code, &mail);
    let addr = mailing.server.addr();
    let poll = || Client::new(addr).post(POLL, &json!({ "device_code": code })).expect(200);
    let polls: Vec<Value> = thread::scope(|scope| {
        let polls: Vec<_> = (0..12).map(|_| scope.spawn(poll)).collect();
        polls.into_iter().map(|poll| poll.join().unwrap()).collect()
    });
    let count = |status: &str| polls.iter().filter(|poll| poll["status"] == status).count();
    assert_eq!((count("approved"), count("claimed")), (1, 11), "{polls:?}");
    let key = polls.iter().find_map(|poll| poll["api_key"].as_str()).unwrap();
    assert_keys(&mailing.client().with_key(key), 1);
}

/// The requests that the address of the client has left.
fn left(response: &Response) -> &str {
    response.header("x-ratelimit-remaining").unwrap()
}

#[test]
fn polls_of_a_known_code_do_not_count_for_the_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let poll = |code: &str| mailing.client().post(POLL, &json!({ "device_code": code }));
    assert_eq!(left(&poll(&code)), "59", "only the creation of the code counts");
    assert_eq!(left(&poll(&code)), "59");
    assert_eq!(left(&poll("unknown-code")), "58");
    assert_eq!(left(&mailing.client().post(POLL, &json!({}))), "57");
    while mailing.client().get("/v1/cues").status != 429 {}
    poll("unknown-code").expect_error(429, "rate_limit_exceeded");
    assert_eq!(poll(&code).expect(200), json!({"status": "pending"}));
}

#[test]
fn polls_without_a_valid_body_count_for_the_address() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let poll = |headers: &[(&str, &str)], body: &[u8]| {
        mailing.client().call("POST", POLL, headers, body).unwrap()
    };
    let too_large = poll(&[], &[b' '; 5_000]);
    assert_eq!((too_large.status, left(&too_large)), (413, "59"));
    let cross_site = poll(&[("Origin", "http://evil.example")], b"{}");
    assert_eq!((cross_site.status, left(&cross_site)), (403, "58"));
    // So does one whose body never comes.
    let head = format!("POST {POLL} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n");
    let mut silent = TcpStream::connect(mailing.server.addr()).unwrap();
    silent.write_all(head.as_bytes()).unwrap();
    until_true("it is read", || left(&mailing.client().get("/status")) == "57");
}

const NASTY: &str = "<script>alert('x')</script>\"&";
const SHOWN: &str = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;";

/// A page of the login that shows all of these parts.
#[track_caller]
fn assert_page(page: &Response, status: u16, parts: &[&str]) {
    assert_eq!(page.status, status, "{}", page.text());
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let policy = page.header("content-security-policy").unwrap();
    let rules = "default-src 'none'; style-src 'sha256-; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    assert_contains(policy, &rules.split("; ").collect::<Vec<_>>());
    assert!(!policy.contains("unsafe") && !policy.contains("script"), "{policy}");
    let text = page.text();
    for banned in ["<script", "http://", "https://", " src=", " style=", " onclick"] {
        assert!(!text.contains(banned), "{banned} in {text}");
    }
    assert_contains(&text, parts);
}

#[test]
fn the_login_pages_work_with_plain_forms() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, shown_code) = mailing.codes();
    let get = |path: &str| mailing.client().get(path);
    let value = format!(r#"name="code" value="{shown_code}""#);
    let form = r#"<form method="post" action="/auth/device">"#;
    let asked = get(&format!("/auth/device?code={shown_code}"));
    assert_page(&asked, 200, &[form, &value, r#"<label for="email">"#]);

    let sent = mailing.submit_form(&shown_code, " Ann@Example.com ");
    assert_page(&sent, 200, &[ANN]);
    let mail = mailing.mailbox.next();
    let form = r#"<form method="post" action="/v1/auth/verify">"#;
    assert_page(&get(&mail.link()), 200, &[&shown_code, ANN, form, &mail.token()]);
    assert_page(&mailing.confirm(&code, &mail), 200, &[]);
    assert_eq!(mailing.status(&code), "approved");
    assert_page(&mailing.confirm(&code, &mail), 410, &[]);
    assert_page(&get(&mail.link()), 410, &[]);
    assert_page(&get(&format!("/auth/device?code={code}")), 404, &[]);
}

#[test]
fn the_confirmation_says_whether_it_creates_an_account() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.client().register(ANN);
    for (email, is_new) in [(ANN, false), (BOB, true)] {
        let shown = mailing.page(&mailing.mailed(email).1);
        let (new, known) =
            ("This creates a new account for ", "The device can then use the account ");
        assert_eq!((shown.contains(new), shown.contains(known)), (is_new, !is_new), "{shown}");
    }
}

#[test]
fn a_page_without_a_code_asks_for_it() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let page = mailing.client().get("/auth/device");
    assert_page(&page, 200, &[r#"<label for="code">"#]);
    let (code, shown) = mailing.codes();
    assert_page(&mailing.submit_form(&format!(" {} ", shown.to_lowercase()), ANN), 200, &[]);
    assert_eq!(mailing.status(&code), "email_sent");
}

#[test]
fn html_in_a_code_or_an_address_is_escaped() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (encoded, code) = ("%3Cscript%3Ealert('x')%3C/script%3E%22%26", mailing.code());
    let get = |path: String| mailing.client().get(&path);
    assert_page(&get(format!("/auth/device?code={encoded}")), 404, &[SHOWN]);
    assert_page(&mailing.submit_form(&code, NASTY), 422, &[&format!("value=\"{SHOWN}\"")]);
    assert_page(&mailing.submit_form(NASTY, ANN), 404, &[SHOWN]);
    // An address may contain HTML characters.
    let odd = mailing.submit_form(&code, "a&b'c@example.com");
    assert_page(&odd, 200, &["a&amp;b&#39;c@example.com"]);
    assert_page(&get(format!("/v1/auth/verify?token={encoded}&device_code={encoded}")), 404, &[]);
    assert_page(&mailing.confirm_with(&[("token", NASTY), ("device_code", NASTY)]), 404, &[]);
}

#[test]
fn forms_post_below_the_path_of_the_public_url() {
    let public = ["--public-url", "http://example.com/cued/"];
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &public].concat());
    let (code, mail) = mailing.mailed(ANN);
    let page = mailing.client().get(&format!("/auth/device?code={code}"));
    assert_contains(&page.text(), &[r#"action="/cued/auth/device""#]);
    assert_contains(&mail.message, &["\nhttp://example.com/cued/v1/auth/verify?token="]);
}

#[test]
fn a_client_address_gets_5_codes_an_hour() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let ask = || mailing.client().post(CODE, &json!({}));
    (0..4).for_each(|_| drop(mailing.code()));
    mailing.advance("PT10M");
    mailing.code();
    ask().refuses_for(3_000, 429, "rate_limit_exceeded");
    mailing.advance("PT49M59S");
    ask().refuses_for(1, 429, "rate_limit_exceeded");
    mailing.advance("PT1S");
    (0..4).for_each(|_| drop(mailing.code()));
    ask().expect_error(429, "rate_limit_exceeded");
}

#[test]
fn a_code_is_deleted_after_an_hour_and_can_be_reused() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (laptop, own) = ("My-Laptop-1", json!({"device_code": "My-Laptop-1"}));
    mailing.client().post(CODE, &own).expect(201);
    mailing.confirm(laptop, &mailing.mail(laptop, ANN));
    assert_eq!(mailing.status(laptop), "approved");
    mailing.advance("PT59M59S");
    assert_eq!(mailing.status(laptop), "claimed");
    mailing.client().post(CODE, &own).expect_error(409, "device_code_exists");
    mailing.advance("PT2S");
    let kept = "SELECT (SELECT count(*) FROM device_logins) + (SELECT count(*) FROM login_mails)";
    until_true("the login is deleted", || mailing.server.count(kept) == 0);
    assert_eq!(mailing.status(laptop), "expired");
    mailing.client().post(CODE, &own).expect(201);
}

#[test]
fn a_code_can_be_polled_30_times_a_minute() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let poll = || mailing.client().post(POLL, &json!({ "device_code": code }));
    (0..30).for_each(|_| assert_eq!(poll().status, 200));
    let refused = poll().refuses_for(60, 429, "rate_limit_exceeded");
    assert_contains(refused.message(), &["Poll at most"]);
    mailing.advance("PT60S");
    assert_eq!(poll().status, 200);
}

#[test]
fn codes_tokens_and_keys_are_not_stored_in_clear() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let (code, mail) = mailing.mailed(ANN);
    let row = "SELECT hex(code_hash) || hex(coalesce(token_hash, '')) || client_network || state FROM device_logins";
    let stored: String = mailing.server.sqlite().query_row(row, [], |row| row.get(0)).unwrap();
    assert!(stored.ends_with("127.0.0.1email_sent"), "{stored}");
    for file in ["cued.db", "cued.db-wal"] {
        let bytes = fs::read(mailing.server.db().with_file_name(file)).unwrap_or_default();
        for secret in [&code, &mail.token()] {
            let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_there, "{secret} in {file}");
        }
    }
}
