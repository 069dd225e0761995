//! The pages of the device login in a browser: contents, headers and limits.

use serde_json::json;

use crate::http::device_login::flow::{MailingServer, post_form};
use crate::support::client::Response;
use crate::support::server::DEV_UNLIMITED;

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
    assert!(asked.text().contains(r#"<form method="post" action="/auth/device">"#), "{}", asked.text());
    assert!(asked.text().contains(&format!(r#"name="code" value="{shown_code}""#)), "{}", asked.text());
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
    for part in
        [&shown_code, "ann@example.com", r#"<form method="post" action="/v1/auth/verify">"#, &mail.token()]
    {
        assert!(shown.text().contains(part), "{part} in {}", shown.text());
    }
    assert_page(&mailing.confirm(&code, &mail), 200);
    assert_eq!(mailing.status(&code), "approved");
    assert_page(&mailing.confirm(&code, &mail), 410);
    assert_page(&mailing.client().get(&mail.link()), 410);
    assert_page(&mailing.client().get(&format!("/auth/device?code={code}")), 404);
}

#[test]
fn a_page_without_a_code_asks_for_it() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let page = mailing.client().get("/auth/device");
    assert_page(&page, 200);
    assert!(page.text().contains(r#"<label for="code">"#));
    let (code, shown) = mailing.codes();
    let typed = format!(" {} ", shown.to_lowercase());
    let sent =
        post_form(&mailing.client(), "/auth/device", &[("code", &typed), ("email", "ann@example.com")]);
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
    let page = post_form(&mailing.client(), "/auth/device", &[("code", NASTY), ("email", "ann@example.com")]);
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
        &post_form(&mailing.client(), "/v1/auth/verify", &[("token", NASTY), ("device_code", NASTY)]),
        404,
    );
}

#[test]
fn forms_post_below_the_path_of_the_public_url() {
    let mailing =
        MailingServer::open(&[DEV_UNLIMITED, &["--public-url", "http://example.com/cued/"]].concat());
    let code = mailing.code();
    let page = mailing.client().get(&format!("/auth/device?code={code}"));
    assert!(page.text().contains(r#"action="/cued/auth/device""#), "{}", page.text());
    let mail = mailing.mail(&code, "ann@example.com");
    assert!(mail.message.contains("\nhttp://example.com/cued/v1/auth/verify?token="), "{}", mail.message);
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
    assert_eq!(mailing.client().post("/v1/auth/device-code", &json!({})).header("retry-after"), Some("1"));
    mailing.advance("PT1S");
    for _ in 0..4 {
        mailing.code();
    }
    mailing.client().post("/v1/auth/device-code", &json!({})).expect_error(429, "rate_limit_exceeded");
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
    crate::support::server::until("the login is deleted", || (kept() == 0).then_some(()));
    assert_eq!(mailing.status("My-Laptop-1"), "expired");
    mailing.client().post("/v1/auth/device-code", &own).expect(201);
}

#[test]
fn a_code_can_be_polled_30_times_a_minute() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let poll = || mailing.client().post("/v1/auth/device-code/poll", &json!({ "device_code": code }));
    for _ in 0..30 {
        assert_eq!(poll().status, 200);
    }
    let refused = poll();
    refused.expect_error(429, "rate_limit_exceeded");
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
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} in {file}");
        }
    }
}
