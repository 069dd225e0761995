//! Device login over HTTP: the flow, single use, expiry, limits, and that nothing tells whether an address is known.

use serde_json::{Value, json};

use crate::support::client::{Client, Response};
use crate::support::mailbox::{Mailbox, Received};
use crate::support::server::{ALONE, Server, run};

const CODE: &str = "/v1/auth/device-code";
const SUBMIT: &str = "/v1/auth/device-code/submit-email";
const POLL: &str = "/v1/auth/device-code/poll";
const BEGIN: &str = "2030-01-01T00:00:00Z";

/// A server that mails to a mailbox, on a clock that stands still.
pub struct Desk {
    pub server: Server,
    pub mailbox: Mailbox,
}

impl Desk {
    pub fn open(flags: &[&str]) -> Self {
        let mailbox = Mailbox::open();
        let url = mailbox.url();
        let mail = ["--smtp-url", &url, "--mail-from", "cued <cued@example.com>", "--test-clock", BEGIN];
        Self { server: Server::start(&[flags, &mail].concat()), mailbox }
    }

    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// A new code.
    pub fn code(&self) -> String {
        let made = self.client().post(CODE, &json!({})).expect(201);
        made["device_code"].as_str().unwrap().to_owned()
    }

    /// Gives an address, and reads the mail that must come.
    pub fn mail(&self, code: &str, email: &str) -> Received {
        self.submit(code, email);
        let mail = self.mailbox.next();
        assert_eq!(mail.to, format!("TO:<{email}>"));
        mail
    }

    pub fn submit(&self, code: &str, email: &str) {
        let sent = self.client().post(SUBMIT, &json!({"device_code": code, "email": email})).expect(200);
        assert_eq!(sent, json!({"status": "email_sent"}));
    }

    /// Confirms as the form of the page does.
    pub fn confirm(&self, code: &str, mail: &Received) -> Response {
        post_form(&self.client(), "/v1/auth/verify", &[("token", &mail.token()), ("device_code", code)])
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

/// Posts as a browser does.
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
    let desk = Desk::open(ALONE);
    let made = desk.client().post(CODE, &json!({})).expect(201);
    let code = made["device_code"].as_str().unwrap();
    let url = format!("{}/auth/device?code={code}", desk.server.url());
    assert_eq!(made, json!({"device_code": code, "verification_url": url, "expires_in": 900, "interval": 2}));
    assert_eq!(desk.poll(code), json!({"status": "pending"}));
    let mail = desk.mail(code, "ann@example.com");
    assert_eq!(mail.from, "FROM:<cued@example.com>");
    assert_eq!(mail.header("Date"), Some("Tue, 01 Jan 2030 00:00:00 +0000"));
    assert_eq!(mail.header("Auto-Submitted"), Some("auto-generated"));
    assert!(mail.message.contains(code), "{}", mail.message);
    assert_eq!(desk.poll(code), json!({"status": "email_sent"}));

    // Scanners of mail open links, some of them more than once.
    for method in ["GET", "HEAD", "GET"] {
        let shown = desk.client().call(method, &mail.link(), &[], b"").unwrap();
        assert_eq!(shown.status, 200);
        assert!(method == "HEAD" || shown.text().contains(code));
    }
    assert_eq!(desk.poll(code), json!({"status": "email_sent"}), "looking confirms nothing");

    assert_eq!(desk.confirm(code, &mail).status, 200);
    let approved = desk.poll(code);
    assert_eq!((&approved["status"], &approved["email"]), (&json!("approved"), &json!("ann@example.com")));
    assert_eq!(desk.poll(code), json!({"status": "claimed"}));

    let user = desk.client().with_key(approved["api_key"].as_str().unwrap());
    assert_eq!(user.get("/v1/auth/me").expect(200)["email"], "ann@example.com");
    let secret = user.get("/v1/auth/webhook-secret").expect(200);
    assert!(secret["webhook_secret"].as_str().unwrap().starts_with("whsec_"));
}

#[test]
fn the_link_can_be_posted_with_its_query() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let mail = desk.mail(&code, "ann@example.com");
    assert_eq!(desk.client().call("POST", &mail.link(), &[], b"").unwrap().status, 200);
    assert_eq!(desk.status(&code), "approved");
}

#[test]
fn only_the_newest_link_works_and_only_once() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let (first, second) = (desk.mail(&code, "ann@example.com"), desk.mail(&code, "ann@example.com"));
    assert_ne!(first.token(), second.token());
    assert_eq!(desk.confirm(&code, &first).status, 404, "a newer one has replaced it");
    assert_eq!(desk.confirm(&desk.code(), &second).status, 404, "the token of another code");
    assert_eq!(desk.status(&code), "email_sent");
    assert_eq!(desk.confirm(&code, &second).status, 200);
    assert_eq!(desk.confirm(&code, &second).status, 410);
    assert_eq!(desk.client().get(&second.link()).status, 410);
    let late = json!({"device_code": code, "email": "eve@example.com"});
    desk.client().post(SUBMIT, &late).expect_error(404, "device_code_not_found");
    assert_eq!(desk.status(&code), "approved");
    assert_eq!(desk.confirm(&code, &second).status, 410);
    assert_eq!(desk.status(&code), "claimed");
}

#[test]
fn codes_and_links_expire_after_15_minutes() {
    let desk = Desk::open(ALONE);
    let (code, approved) = (desk.code(), desk.code());
    let mail = desk.mail(&code, "ann@example.com");
    let other = desk.mail(&approved, "bob@example.com");
    desk.confirm(&approved, &other);
    desk.advance("PT14M59S");
    assert_eq!(desk.client().get(&mail.link()).status, 200);
    assert_eq!(desk.status(&code), "email_sent");
    desk.advance("PT1S");
    assert_eq!(desk.client().get(&mail.link()).status, 410);
    assert_eq!(desk.confirm(&code, &mail).status, 410);
    assert_eq!(desk.status(&code), "expired");
    assert_eq!(desk.poll(&approved), json!({"status": "expired"}), "nobody came for the key in time");
    let late = json!({"device_code": code, "email": "ann@example.com"});
    desk.client().post(SUBMIT, &late).expect_error(404, "device_code_not_found");
    assert_eq!(desk.client().get(&format!("/auth/device?code={code}")).status, 404);
}

#[test]
fn an_unknown_code_is_expired_and_accepts_no_address() {
    let desk = Desk::open(ALONE);
    for code in ["never-was", "", "<script>"] {
        assert_eq!(desk.poll(code), json!({"status": "expired"}));
        let body = json!({"device_code": code, "email": "ann@example.com"});
        desk.client().post(SUBMIT, &body).expect_error(404, "device_code_not_found");
    }
    assert_eq!(desk.client().get("/v1/auth/verify").status, 404);
    assert_eq!(desk.client().get("/v1/auth/verify?token=abc&device_code=never-was").status, 404);
}

#[test]
fn a_device_may_choose_an_unused_valid_code() {
    let desk = Desk::open(ALONE);
    let own = json!({"device_code": "My-Laptop-1"});
    assert_eq!(desk.client().post(CODE, &own).expect(201)["device_code"], "My-Laptop-1");
    desk.client().post(CODE, &own).expect_error(409, "device_code_exists");
    for bad in ["short", "with space", "<b>bold</b>", &"x".repeat(129)] {
        desk.client().post(CODE, &json!({ "device_code": bad })).expect_error(422, "validation_error");
    }
    assert_eq!(desk.client().call("POST", CODE, &[], b"").unwrap().status, 201, "no body is needed");
    desk.client().post(SUBMIT, &json!({"device_code": "My-Laptop-1"})).expect_error(422, "validation_error");
    let no_address = json!({"device_code": "My-Laptop-1", "email": "ann"});
    desk.client().post(SUBMIT, &no_address).expect_error(422, "validation_error");
    desk.client().post(POLL, &json!({})).expect_error(422, "validation_error");
}

#[test]
fn a_known_user_gets_an_additional_key_named_after_the_device() {
    let desk = Desk::open(ALONE);
    let user = desk.client().register("ann@example.com");
    let code = desk.code();
    let mail = desk.mail(&code, "ann@example.com");
    desk.confirm(&code, &mail);
    let key = desk.poll(&code)["api_key"].as_str().unwrap().to_owned();
    assert_eq!(user.get("/v1/auth/me").status, 200, "the others keep working");
    let keys = desk.client().with_key(&key).get("/v1/auth/keys").expect(200);
    let names: Vec<&str> =
        keys["keys"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", &format!("Device {code}")]);
}

#[test]
fn closed_registration_gives_an_unknown_address_the_same_responses_and_no_mail() {
    let desk = Desk::open(&["--registration", "closed"]);
    let db = desk.server.db();
    run(&["user", "add", "ann@example.com", "--db", db.to_str().unwrap()]);
    run(&["user", "add", "gone@example.com", "--db", db.to_str().unwrap()]);
    run(&["user", "disable", "gone@example.com", "--db", db.to_str().unwrap()]);
    let answers = |email: &str| {
        let code = desk.code();
        let body = json!({"device_code": code, "email": email});
        let sent = desk.client().post(SUBMIT, &body);
        let page = post_form(&desk.client(), "/auth/device", &[("code", &code), ("email", email)]);
        let names: Vec<String> = sent.headers.iter().map(|(name, _)| name.clone()).collect();
        let page_text = page.text().replace(&code, "CODE").replace(email, "EMAIL");
        (sent.status, sent.text(), names, page.status, page_text, desk.poll(&code))
    };
    let known = answers("ann@example.com");
    assert_eq!(known.5, json!({"status": "email_sent"}));
    assert_eq!(answers("eve@example.com"), known);
    assert_eq!(answers("gone@example.com"), known, "a disabled user is unknown");
    // One thread sends in order: had there been mails to the others, one would stand before the third.
    let last = desk.code();
    desk.submit(&last, "ann@example.com");
    for _ in 0..3 {
        assert_eq!(desk.mailbox.next().to, "TO:<ann@example.com>");
    }
    assert!(desk.mailbox.is_empty());
}

#[test]
fn the_first_user_closes_registration_even_for_holders_of_a_link() {
    let desk = Desk::open(&[]);
    let (first, second) = (desk.code(), desk.code());
    let mails = (desk.mail(&first, "ann@example.com"), desk.mail(&second, "bob@example.com"));
    assert_eq!(desk.confirm(&first, &mails.0).status, 200);
    let refused = desk.confirm(&second, &mails.1);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("<!doctype html>"), "{}", refused.text());
    assert_eq!(desk.status(&second), "email_sent");
    assert_eq!(desk.status(&first), "approved");
}

#[test]
fn a_user_disabled_after_the_confirmation_gets_no_key() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let mail = desk.mail(&code, "ann@example.com");
    desk.confirm(&code, &mail);
    run(&["user", "disable", "ann@example.com", "--db", desk.server.db().to_str().unwrap()]);
    assert_eq!(desk.poll(&code), json!({"status": "expired"}));
}

#[test]
fn of_concurrent_polls_exactly_one_gets_the_key() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let mail = desk.mail(&code, "ann@example.com");
    desk.confirm(&code, &mail);
    let addr = desk.server.addr();
    let poll = || Client::new(addr).post(POLL, &json!({ "device_code": code })).expect(200);
    let polls: Vec<Value> = std::thread::scope(|scope| {
        let polls: Vec<_> = (0..12).map(|_| scope.spawn(poll)).collect();
        polls.into_iter().map(|poll| poll.join().unwrap()).collect()
    });
    assert_eq!(polls.iter().filter(|poll| poll["status"] == "approved").count(), 1, "{polls:?}");
    assert_eq!(polls.iter().filter(|poll| poll["status"] == "claimed").count(), 11, "{polls:?}");
    let user = polls.iter().find_map(|poll| poll["api_key"].as_str()).unwrap();
    let keys = desk.client().with_key(user).get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
}
