//! The pages of the device login as a browser gets them: what they show, their headers, and the limits behind them.

use serde_json::json;

use crate::http::device_login::flow::{Desk, post_form};
use crate::support::client::Response;
use crate::support::server::ALONE;

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
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let text = page.text();
    for banned in ["<script", "http://", "https://", " src=", " style=", " onclick"] {
        assert!(!text.contains(banned), "{banned} in {text}");
    }
}

#[test]
fn the_login_pages_work_with_plain_forms() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let asked = desk.client().get(&format!("/auth/device?code={code}"));
    assert_page(&asked, 200);
    assert!(asked.text().contains(r#"<form method="post" action="/auth/device">"#), "{}", asked.text());
    assert!(asked.text().contains(&format!(r#"name="code" value="{code}""#)), "{}", asked.text());
    assert!(asked.text().contains(r#"<label for="email">"#));

    let sent = post_form(&desk.client(), "/auth/device", &[("code", &code), ("email", " Ann@Example.com ")]);
    assert_page(&sent, 200);
    assert!(sent.text().contains("ann@example.com"));
    let mail = desk.mailbox.next();
    let shown = desk.client().get(&mail.link());
    assert_page(&shown, 200);
    for part in [&code, "ann@example.com", r#"<form method="post" action="/v1/auth/verify">"#, &mail.token()]
    {
        assert!(shown.text().contains(part), "{part} in {}", shown.text());
    }
    assert_page(&desk.confirm(&code, &mail), 200);
    assert_eq!(desk.status(&code), "approved");
    assert_page(&desk.confirm(&code, &mail), 410);
    assert_page(&desk.client().get(&mail.link()), 410);
    assert_page(&desk.client().get(&format!("/auth/device?code={code}")), 404);
}

#[test]
fn a_page_without_a_code_asks_for_it() {
    let desk = Desk::open(ALONE);
    let page = desk.client().get("/auth/device");
    assert_page(&page, 200);
    assert!(page.text().contains(r#"<label for="code">"#));
    let code = desk.code();
    let typed = format!(" {code} ");
    let sent = post_form(&desk.client(), "/auth/device", &[("code", &typed), ("email", "ann@example.com")]);
    assert_page(&sent, 200);
    assert_eq!(desk.status(&code), "email_sent");
}

#[test]
fn html_in_a_code_or_an_address_is_escaped() {
    let desk = Desk::open(ALONE);
    let encoded = "%3Cscript%3Ealert('x')%3C/script%3E%22%26";
    let page = desk.client().get(&format!("/auth/device?code={encoded}"));
    assert_page(&page, 404);
    assert!(page.text().contains(SHOWN), "{}", page.text());

    let code = desk.code();
    let page = post_form(&desk.client(), "/auth/device", &[("code", &code), ("email", NASTY)]);
    assert_page(&page, 422);
    assert!(page.text().contains(&format!("value=\"{SHOWN}\"")), "{}", page.text());
    let page = post_form(&desk.client(), "/auth/device", &[("code", NASTY), ("email", "ann@example.com")]);
    assert_page(&page, 404);
    assert!(page.text().contains(SHOWN), "{}", page.text());

    // An address may hold what HTML has a meaning for.
    let odd = "a&b'c@example.com";
    let page = post_form(&desk.client(), "/auth/device", &[("code", &code), ("email", odd)]);
    assert_page(&page, 200);
    assert!(page.text().contains("a&amp;b&#39;c@example.com"), "{}", page.text());
    let link = format!("/v1/auth/verify?token={encoded}&device_code={encoded}");
    assert_page(&desk.client().get(&link), 404);
    assert_page(
        &post_form(&desk.client(), "/v1/auth/verify", &[("token", NASTY), ("device_code", NASTY)]),
        404,
    );
}

#[test]
fn forms_post_below_the_path_of_the_public_url() {
    let desk = Desk::open(&[ALONE, &["--public-url", "http://example.com/cued/"]].concat());
    let code = desk.code();
    let page = desk.client().get(&format!("/auth/device?code={code}"));
    assert!(page.text().contains(r#"action="/cued/auth/device""#), "{}", page.text());
    let mail = desk.mail(&code, "ann@example.com");
    assert!(mail.message.contains("\nhttp://example.com/cued/v1/auth/verify?token="), "{}", mail.message);
}

#[test]
fn a_client_address_gets_5_codes_an_hour() {
    let desk = Desk::open(ALONE);
    for _ in 0..4 {
        desk.code();
    }
    desk.advance("PT10M");
    desk.code();
    let refused = desk.client().post("/v1/auth/device-code", &json!({}));
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("3000"));
    desk.advance("PT49M59S");
    assert_eq!(desk.client().post("/v1/auth/device-code", &json!({})).header("retry-after"), Some("1"));
    desk.advance("PT1S");
    for _ in 0..4 {
        desk.code();
    }
    desk.client().post("/v1/auth/device-code", &json!({})).expect_error(429, "rate_limit_exceeded");
}

#[test]
fn a_code_is_deleted_after_an_hour_and_can_be_reused() {
    let desk = Desk::open(ALONE);
    let own = json!({"device_code": "My-Laptop-1"});
    desk.client().post("/v1/auth/device-code", &own).expect(201);
    let mail = desk.mail("My-Laptop-1", "ann@example.com");
    desk.confirm("My-Laptop-1", &mail);
    assert_eq!(desk.status("My-Laptop-1"), "approved");
    desk.advance("PT59M59S");
    assert_eq!(desk.status("My-Laptop-1"), "claimed");
    desk.client().post("/v1/auth/device-code", &own).expect_error(409, "device_code_exists");
    desk.advance("PT2S");
    let kept = "SELECT (SELECT count(*) FROM device_logins) + (SELECT count(*) FROM login_mails)";
    let kept = || desk.server.sqlite().query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap();
    crate::support::server::until("the login is forgotten", || (kept() == 0).then_some(()));
    assert_eq!(desk.status("My-Laptop-1"), "expired");
    desk.client().post("/v1/auth/device-code", &own).expect(201);
}

#[test]
fn a_code_can_be_polled_30_times_a_minute() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let poll = || desk.client().post("/v1/auth/device-code/poll", &json!({ "device_code": code }));
    for _ in 0..30 {
        assert_eq!(poll().status, 200);
    }
    let refused = poll();
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("60"));
    desk.advance("PT60S");
    assert_eq!(poll().status, 200);
}

#[test]
fn codes_tokens_and_keys_are_not_stored_in_clear() {
    let desk = Desk::open(ALONE);
    let code = desk.code();
    let mail = desk.mail(&code, "ann@example.com");
    let stored = || -> String {
        let row = "SELECT hex(code_hash) || hex(coalesce(token_hash, '')) || client_network || state
                     FROM device_logins";
        desk.server.sqlite().query_row(row, [], |row| row.get(0)).unwrap()
    };
    assert!(stored().ends_with("127.0.0.1email_sent"), "{}", stored());
    for file in ["cued.db", "cued.db-wal"] {
        let bytes = std::fs::read(desk.server.db().with_file_name(file)).unwrap_or_default();
        for secret in [&code, &mail.token()] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} in {file}");
        }
    }
}
