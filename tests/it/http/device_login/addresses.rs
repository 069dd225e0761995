//! The owner of an address: unconfirmed addresses, the other keys of an account, and the mails of logins.

use crate::http::device_login::{MailingServer, post_form};
use crate::support::*;

const POLL: &str = "/v1/auth/device-code/poll";

/// A cue whose executions fail at their first attempt.
fn failing_cue(user: &Client) -> String {
    let cue = json!({
        "name": "a stranger's text", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}, "retry": {"max_attempts": 1},
        "transport": "worker",
    });
    user.create(&cue)["id"].as_str().unwrap().to_owned()
}

/// Runs the cue once; the run fails.
fn fail(user: &Client, cue: &str) {
    let fired = user.post(&format!("/v1/cues/{cue}/fire"), &json!({})).expect(200);
    let outcome = format!("/v1/executions/{}/outcome", fired["execution_id"].as_str().unwrap());
    user.post(&outcome, &json!({"success": false, "error": "a stranger's error"})).expect(200);
    user.settle();
}

fn subject(mail: &Received) -> &str {
    mail.header("Subject").unwrap()
}

/// The values of a link's query, as the form of its page posts them.
fn post_link(client: &Client, link: &str, more: &[(&str, &str)]) -> Response {
    let (path, query) = link.split_once('?').unwrap();
    let mut pairs: Vec<(&str, &str)> =
        query.split('&').map(|pair| pair.split_once('=').unwrap()).collect();
    pairs.extend(more);
    post_form(client, path, &pairs)
}

/// A server whose first user is another person.
fn open() -> MailingServer {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.client().register("first@example.com");
    mailing
}

#[test]
fn an_unconfirmed_address_gets_one_fixed_mail_until_it_is_confirmed() {
    let mailing = open();
    let bob = mailing.client().register("bob@example.com");
    let cue = failing_cue(&bob);
    (0..3).for_each(|_| fail(&bob, &cue));
    let asked = mailing.mailbox.next();
    assert_eq!(
        (asked.to.as_str(), subject(&asked)),
        ("TO:<bob@example.com>", "Confirm your email address")
    );
    assert!(!asked.message.contains("stranger"), "{}", asked.message);
    assert!(mailing.mailbox.is_empty(), "it is sent once");

    let link = asked.link();
    let page = mailing.client().get(&link);
    assert_eq!(page.status, 200);
    assert_contains(&page.text(), &["bob@example.com", "Confirm this address"]);
    fail(&bob, &cue);
    assert!(mailing.mailbox.is_empty(), "a GET confirms nothing");
    let wrong = link.replace("token=", "token=0");
    assert_eq!(mailing.client().get(&wrong).status, 404);
    assert_eq!(post_link(&mailing.client(), &wrong, &[]).status, 404);
    assert_eq!(post_link(&mailing.client(), &link, &[]).status, 200);
    assert_eq!(post_link(&mailing.client(), &link, &[]).status, 404, "the link works once");
    assert_eq!(mailing.client().get(&link).status, 404);
    fail(&bob, &cue);
    assert_eq!(subject(&mailing.mailbox.next()), "Cue a stranger's text failed");
}

#[test]
fn the_first_user_an_added_user_and_one_who_signed_in_are_confirmed() {
    let mailing = MailingServer::open(&["--registration", "open", "--limits", "off"]);
    let first = mailing.client().register("first@example.com");
    let db = mailing.server.db();
    let added = run(&["user", "add", "added@example.com", "--db", db.to_str().unwrap()]);
    let printed = String::from_utf8(added.stdout).unwrap();
    let key = printed.split_whitespace().find(|word| word.starts_with("cue_sk_")).unwrap();
    let code = mailing.code();
    let mail = mailing.mail(&code, "login@example.com");
    mailing.confirm(&code, &mail);
    let signed_in = mailing.poll(&code)["api_key"].as_str().unwrap().to_owned();
    for (user, email) in [
        (first, "first@example.com"),
        (mailing.client().with_key(key), "added@example.com"),
        (mailing.client().with_key(&signed_in), "login@example.com"),
    ] {
        fail(&user, &failing_cue(&user));
        let mail = mailing.mailbox.next();
        assert_eq!((mail.to, mail.message.contains("has failed")), (format!("TO:<{email}>"), true));
    }
    mailing.client().register("stranger@example.com");
    let listed = run(&["user", "list", "--db", db.to_str().unwrap()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let unconfirmed: Vec<&str> =
        listed.lines().filter(|line| line.contains("unconfirmed")).collect();
    assert_eq!(unconfirmed.len(), 1, "{listed}");
    assert!(unconfirmed[0].starts_with("stranger@example.com"), "{listed}");
}

#[test]
fn the_owner_of_an_unconfirmed_address_revokes_the_keys_of_whoever_registered_it() {
    let mailing = open();
    let stranger = mailing.client().register("ann@example.com");
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    let page = mailing.client().get(&mail.link()).text();
    let shown = [
        "<dt>default</dt>",
        &stranger.key()[..12],
        "made 2030-01-01T00:00:00Z",
        "never confirmed",
        r#"<option value="revoke" selected="selected">"#,
    ];
    for part in shown {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains(stranger.key()));
    // The form of an older page sends no choice.
    assert_eq!(mailing.confirm(&code, &mail).status, 200);
    let key = mailing.poll(&code)["api_key"].as_str().unwrap().to_owned();
    stranger.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let keys = mailing.client().with_key(&key).get("/v1/auth/keys").expect(200)["keys"].clone();
    assert_eq!(keys.as_array().unwrap().len(), 1, "{keys}");
}

#[test]
fn a_login_keeps_or_revokes_the_other_keys_as_asked() {
    let mailing = open();
    let stranger = mailing.client().register("bob@example.com");
    let login = |email: &str, choice: &[(&str, &str)]| {
        let code = mailing.code();
        let mail = mailing.mail(&code, email);
        let page = mailing.client().get(&mail.link()).text();
        assert_eq!(post_link(&mailing.client(), &mail.link(), choice).status, 200);
        (mailing.client().with_key(mailing.poll(&code)["api_key"].as_str().unwrap()), page)
    };
    // The registration was the owner's.
    let (_, page) = login("bob@example.com", &[("other_keys", "keep")]);
    assert!(page.contains("never confirmed"), "{page}");
    stranger.get("/v1/auth/me").expect(200);
    // From then on the address is confirmed, and the keys stay unless asked.
    let (laptop, page) = login("bob@example.com", &[]);
    assert!(page.contains(r#"<option value="keep" selected="selected">"#), "{page}");
    stranger.get("/v1/auth/me").expect(200);
    let (phone, _) = login("bob@example.com", &[("other_keys", "revoke")]);
    for revoked in [&stranger, &laptop] {
        revoked.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    }
    assert_eq!(phone.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
    // A new address has no other keys to show.
    let code = mailing.code();
    let page = mailing.client().get(&mailing.mail(&code, "new@example.com").link()).text();
    assert!(!page.contains("API keys"), "{page}");
}

#[test]
fn an_owner_who_revokes_the_keys_of_a_stranger_shares_nothing_with_them() {
    let mailing = open();
    let stranger = mailing.client().register("ann@example.com");
    let secrets = |user: &Client| {
        ["webhook-secret", "alert-webhook-secret"]
            .map(|path| user.get(&format!("/v1/auth/{path}")).expect(200))
    };
    stranger.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    let known = secrets(&stranger);
    stranger
        .patch("/v1/auth/me", &json!({"alert_webhook_url": "https://stranger.example.com/"}))
        .expect(200);
    let cue = failing_cue(&stranger);
    let later = stranger
        .post(&format!("/v1/cues/{cue}/fire"), &json!({"send_at": "2099-01-01T00:00:00Z"}))
        .expect(200);
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    let page = mailing.client().get(&mail.link()).text();
    assert!(
        page.contains("replaces both webhook secrets at once, removes the URL of alerts, pauses"),
        "{page}"
    );
    assert_eq!(mailing.confirm(&code, &mail).status, 200);
    let owner = mailing.client().with_key(mailing.poll(&code)["api_key"].as_str().unwrap());
    for (new, known) in secrets(&owner).iter().zip(&known) {
        assert_ne!(new, known);
    }
    let overlap: i64 = mailing
        .server
        .sqlite()
        .query_row("SELECT count(previous_webhook_secret) FROM users", [], |row| row.get(0))
        .unwrap();
    assert_eq!(overlap, 0, "the stranger's secret signs nothing");
    let me = owner.get("/v1/auth/me").expect(200);
    assert_eq!((&me["alert_webhook_url"], &me["active_cues"]), (&Value::Null, &json!(0)));
    assert_eq!(owner.get(&format!("/v1/cues/{cue}")).expect(200)["status"], "paused");
    let queued = format!("/v1/executions/{}", id(&later));
    assert_eq!(owner.get(&queued).expect(200)["error_message"], "keys_revoked");
}

#[test]
fn whoever_did_not_register_is_told_to_revoke_the_keys_and_can_after_a_confirmation() {
    let mailing = open();
    let stranger = mailing.client().register("bob@example.com");
    fail(&stranger, &failing_cue(&stranger));
    let asked = mailing.mailbox.next();
    assert!(asked.message.contains("If you did not register, do not open it"), "{}", asked.message);
    let page = mailing.client().get(&asked.link()).text();
    assert!(page.contains("do not confirm: somebody else has the keys"), "{page}");
    mailing.advance("PT1M");
    assert_eq!(post_link(&mailing.client(), &asked.link(), &[]).status, 200);
    let code = mailing.code();
    let mail = mailing.mail(&code, "bob@example.com");
    let page = mailing.client().get(&mail.link()).text();
    assert_contains(&page, &["before this address was confirmed", r#"value="revoke""#]);
    assert_eq!(post_link(&mailing.client(), &mail.link(), &[("other_keys", "revoke")]).status, 200);
    stranger.get("/v1/auth/me").expect_error(401, "invalid_api_key");
}

#[test]
fn an_account_from_before_addresses_were_confirmed_can_revoke_its_keys_at_a_login() {
    let mailing = open();
    let earlier = mailing.client().register("ann@example.com");
    mailing.server.sqlite().execute_batch("UPDATE users SET confirmed_at = created_at").unwrap();
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    let page = mailing.client().get(&mail.link()).text();
    for part in [
        &earlier.key()[..12],
        r#"<option value="keep" selected="selected">"#,
        r#"<option value="revoke""#,
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(post_link(&mailing.client(), &mail.link(), &[("other_keys", "revoke")]).status, 200);
    earlier.get("/v1/auth/me").expect_error(401, "invalid_api_key");
}

#[test]
fn at_100_keys_a_login_has_to_revoke_them() {
    let mailing = MailingServer::open(&["--registration", "open"]);
    mailing.client().register("ann@example.com");
    let add = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 100)
               INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
               SELECT 'id' || n, user_key, name, prefix, CAST('hash' || n AS BLOB), created_at FROM api_keys, n";
    mailing.server.sqlite().execute_batch(add).unwrap();
    let code = mailing.code();
    let mail = mailing.mail(&code, "ann@example.com");
    let refused = mailing.confirm(&code, &mail);
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("revoke one"), "{}", refused.text());
    let revoked = post_link(&mailing.client(), &mail.link(), &[("other_keys", "revoke")]);
    assert_eq!((revoked.status, mailing.status(&code)), (200, "approved".to_owned()));
}

#[test]
fn the_login_mail_names_the_address_and_the_time_of_the_request() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--trust-proxy", "127.0.0.1"]].concat());
    mailing.advance("PT90S");
    let code = mailing.code();
    let body = json!({"device_code": code, "email": "ann@example.com"}).to_string();
    let headers = [("X-Forwarded-For", "203.0.113.7"), ("Content-Type", "application/json")];
    let path = "/v1/auth/device-code/submit-email";
    mailing.client().call("POST", path, &headers, body.as_bytes()).unwrap().expect(200);
    let mail = mailing.mailbox.next();
    let line = "Requested from the address 203.0.113.7 at 2030-01-01T00:01:30Z.";
    assert!(mail.message.lines().any(|it| it == line), "{}", mail.message);
}

#[test]
fn whoever_sees_the_code_on_a_page_or_in_the_mail_cannot_poll() {
    let mailing = open();
    let (code, shown) = mailing.codes();
    assert!(!code.contains(&shown), "{code} {shown}");
    let pages = [
        mailing.client().get(&format!("/auth/device?code={shown}")).text(),
        // Some clients make the address of the page themselves.
        mailing.client().get(&format!("/auth/device?code={code}")).text(),
        post_form(
            &mailing.client(),
            "/auth/device",
            &[("code", &shown), ("email", "ann@example.com")],
        )
        .text(),
    ];
    let mail = mailing.mailbox.next();
    let confirmation = mailing.client().get(&mail.link()).text();
    for text in pages.iter().chain([&mail.message, &confirmation]) {
        assert!(text.contains(&shown) && !text.contains(&code), "{text}");
    }
    assert_eq!(post_link(&mailing.client(), &mail.link(), &[]).status, 200);
    let polled = mailing.client().post(POLL, &json!({"device_code": shown})).expect(200);
    assert_eq!(polled, json!({"status": "expired"}));
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn a_device_code_cannot_stand_in_for_the_code_that_another_device_shows() {
    let mailing = open();
    let (code, shown) = mailing.codes();
    let chosen = json!({"device_code": shown});
    mailing.client().post("/v1/auth/device-code", &chosen).expect(201);
    let page = post_form(
        &mailing.client(),
        "/auth/device",
        &[("code", &shown), ("email", "ann@example.com")],
    );
    assert_eq!(page.status, 200);
    let mail = mailing.mailbox.next();
    assert_eq!(post_link(&mailing.client(), &mail.link(), &[]).status, 200);
    assert_eq!(mailing.status(&shown), "pending", "the login of the stranger");
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn all_mails_together_have_an_hourly_limit() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--max-mails", "3"]].concat());
    let user = mailing.client().register("first@example.com");
    let cue = failing_cue(&user);
    let (first, second) = (mailing.code(), mailing.code());
    mailing.mail(&first, "ann@example.com");
    mailing.advance("PT10M");
    mailing.mail(&second, "bob@example.com");
    fail(&user, &cue);
    assert_eq!(mailing.mailbox.next().to, "TO:<first@example.com>");
    // Both halves are used up: a failure mail waits, and a login gets a time for its next attempt.
    fail(&user, &cue);
    let body = json!({"device_code": second, "email": "cid@example.com"});
    let submit = || mailing.client().post("/v1/auth/device-code/submit-email", &body);
    for _ in 0..2 {
        let refused = submit();
        refused.expect_error(429, "rate_limit_exceeded");
        assert_eq!(refused.header("retry-after"), Some("3000"));
    }
    let page = post_form(
        &mailing.client(),
        "/auth/device",
        &[("code", &second), ("email", "cid@example.com")],
    );
    assert_eq!(page.status, 429, "{}", page.text());
    assert!(mailing.mailbox.is_empty());
    let log = mailing.server.log();
    assert_eq!(log.matches("the hourly limit of this kind is reached").count(), 2, "{log}");
    mailing.advance("PT59M59S");
    assert!(mailing.mailbox.is_empty());
    mailing.advance("PT1S");
    // The failure mail was not lost.
    assert_eq!(mailing.mailbox.next().to, "TO:<first@example.com>");
}

#[test]
fn failures_of_many_accounts_leave_half_of_the_mails_for_logins() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--max-mails", "60"]].concat());
    let first = mailing.client().register("first@example.com");
    for number in 0..25 {
        let user = mailing.client().register(&format!("user{number}@example.com"));
        fail(&user, &failing_cue(&user));
    }
    (0..20)
        .for_each(|_| assert_eq!(subject(&mailing.mailbox.next()), "Confirm your email address"));
    let cue = failing_cue(&first);
    (0..10).for_each(|_| fail(&first, &cue));
    (0..10)
        .for_each(|_| assert_eq!(subject(&mailing.mailbox.next()), "Cue a stranger's text failed"));
    first.settle();
    // 20 mails in an hour ask to confirm, and 30 are not for logins.
    assert!(mailing.mailbox.is_empty());
    mailing.mail(&mailing.code(), "ann@example.com");
    mailing.advance("PT1H");
    (0..5).for_each(|_| assert_eq!(subject(&mailing.mailbox.next()), "Confirm your email address"));
}

#[test]
fn one_client_address_cannot_use_up_the_mails_for_logins() {
    let proxy = ["--max-mails", "40", "--trust-proxy", "127.0.0.1"];
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &proxy].concat());
    let code = mailing.code();
    let submit = |client: &str, number: u32| {
        let body =
            json!({"device_code": code, "email": format!("user{number}@example.com")}).to_string();
        let headers = [("X-Forwarded-For", client), ("Content-Type", "application/json")];
        let path = "/v1/auth/device-code/submit-email";
        mailing.client().call("POST", path, &headers, body.as_bytes()).unwrap()
    };
    for number in 0..5 {
        submit("192.0.2.1", number).expect(200);
        assert_eq!(mailing.mailbox.next().to, format!("TO:<user{number}@example.com>"));
    }
    let refused = submit("192.0.2.1", 5);
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("3600"));
    submit("192.0.2.2", 5).expect(200);
    assert_eq!(mailing.mailbox.next().to, "TO:<user5@example.com>");
}

const CODE: &str = "/v1/auth/device-code";
const SUBMIT: &str = "/v1/auth/device-code/submit-email";

/// A code with a submitted address.
fn ask(client: &Client, email: &str) -> String {
    let made = client.post(CODE, &json!({})).expect(201);
    let code = made["device_code"].as_str().unwrap().to_owned();
    client.post(SUBMIT, &json!({"device_code": code, "email": email})).expect(200);
    code
}

#[test]
fn an_address_gets_3_mails_an_hour_with_identical_responses() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mails: Vec<_> = (0..3).map(|_| mailing.mail(&code, "ann@example.com")).collect();
    mailing.submit(&code, "ann@example.com");
    let other = mailing.code();
    mailing.submit(&other, "ann@example.com");
    assert_eq!(mailing.status(&other), "email_sent");
    mailing.mail(&other, "bob@example.com");
    assert!(mailing.mailbox.is_empty());
    assert_eq!(mailing.confirm(&code, &mails[2]).status, 200, "the newest mailed link stays valid");
    mailing.advance("PT1H");
    mailing.mail(&mailing.code(), "ann@example.com");
}

#[test]
fn one_code_cannot_mail_many_addresses() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    for number in 0..10 {
        mailing.mail(&code, &format!("user{number}@example.com"));
    }
    mailing.submit(&code, "user10@example.com");
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn temporary_mail_errors_are_retried_and_permanent_ones_are_not() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.mailbox.refuse(&["451"]);
    let code = ask(&mailing.client(), "ann@example.com");
    let mail = mailing.mailbox.next();
    assert_eq!(mailing.confirm(&code, &mail).status, 200);
    mailing.mailbox.refuse(&["550"]);
    ask(&mailing.client(), "bob@example.com");
    until("the notification or mail is dropped", || {
        mailing.server.log().contains("mail not sent, giving up").then_some(())
    });
    ask(&mailing.client(), "cid@example.com");
    assert_eq!(mailing.mailbox.next().to, "TO:<cid@example.com>", "the next mail is sent");
}

#[test]
fn an_unreachable_mail_server_delays_no_response() {
    // No program listens on port 9 of loopback.
    let flags =
        [DEV_UNLIMITED, &["--smtp-url", "smtp://127.0.0.1:9", "--mail-from", "cued@example.com"]]
            .concat();
    let mut server = Server::start(&flags);
    ask(&server.client(), "ann@example.com");
    until("a try fails", || server.log().contains("mail not sent, will be retried").then_some(()));
    assert_eq!(server.stop(), Some(0));
    assert!(server.log().contains("giving up"), "{}", server.log());
}

#[test]
fn mails_waiting_for_a_retry_are_tried_once_more_at_shutdown() {
    let mut mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.mailbox.refuse(&["451"]);
    ask(&mailing.client(), "ann@example.com");
    until("an attempt fails", || {
        mailing.server.log().contains("mail not sent, will be retried").then_some(())
    });
    assert_eq!(mailing.server.stop(), Some(0));
    assert_eq!(mailing.mailbox.next().to, "TO:<ann@example.com>");
}

#[test]
fn no_link_token_key_or_password_reaches_the_log_at_any_level() {
    let mailbox = Mailbox::open();
    let url = mailbox.url_for("post%40example.com:hunter%2F2");
    let mail = ["--smtp-url", &url, "--mail-from", "cued@example.com", "--log-level", "trace"];
    let mut server = Server::start(&[DEV_UNLIMITED, &mail].concat());
    let client = server.client();
    // The responses of this server repeat the mail and thus its link.
    mailbox.refuse(&["451", "550"]);
    ask(&client, "ann@example.com");
    until("the mail is given up", || server.log().contains("giving up").then_some(()));
    let code = ask(&client, "ann@example.com");
    let mail = mailbox.next();
    assert_eq!(mail.login, Some(("post@example.com".to_owned(), "hunter/2".to_owned())));
    assert_eq!(client.get(&mail.link()).status, 200);
    assert_eq!(client.call("POST", &mail.link(), &[], b"").unwrap().status, 200);
    let polled =
        client.post("/v1/auth/device-code/poll", &json!({ "device_code": code })).expect(200);
    let user = client.with_key(polled["api_key"].as_str().unwrap());
    let secret = user.get("/v1/auth/webhook-secret").expect(200)["webhook_secret"].clone();
    user.get("/v1/auth/me").expect(200);
    assert_eq!(server.stop(), Some(0));
    let output = server.log() + &server.stdout();
    assert!(output.contains("DEBUG mail sent"), "the log level is not the most detailed: {output}");
    let token = mail.token();
    for hidden in
        [token.as_str(), user.key(), secret.as_str().unwrap(), "/v1/auth/verify?", "hunter"]
    {
        assert!(!output.contains(hidden), "{hidden} in {output}");
    }
}

#[test]
fn without_a_mail_server_the_link_is_logged_and_printed_under_dev() {
    for (flags, printed) in [(DEV_UNLIMITED, true), (&["--registration", "open"][..], false)] {
        let server = Server::start(flags);
        let code = ask(&server.client(), "ann@example.com");
        let link = |text: &str| -> Option<String> {
            let (_, rest) =
                text.split_once("ann@example.com").filter(|(_, rest)| rest.contains('\n'))?;
            rest[rest.find("/v1/auth/verify")?..].lines().next().map(str::to_owned)
        };
        let logged = until("the link is logged", || link(&server.log()));
        if printed {
            assert_eq!(until("the link is printed", || link(&server.stdout())), logged);
            assert!(
                server.stdout().starts_with("mail to ann@example.com: http://"),
                "{}",
                server.stdout()
            );
        } else {
            assert_eq!(server.stdout(), "");
        }
        assert_eq!(server.client().call("POST", &logged, &[], b"").unwrap().status, 200);
        let polled =
            server.client().post("/v1/auth/device-code/poll", &json!({ "device_code": code }));
        assert_eq!(polled.expect(200)["status"], "approved");
    }
}

#[test]
fn a_mail_server_requires_a_sender_and_its_password_is_never_shown() {
    let serve = |flags: &[&str]| {
        let output = cued(&["serve", "--ephemeral"]).args(flags).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = serve(&["--smtp-url", "smtp://a:hunter2@h"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--mail-from") && !stderr.contains("hunter2"), "{stderr}");
    let (code, stderr) = serve(&["--smtp-url", "mail://a:hunter2@h", "--mail-from", "a@b.c"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("smtp://") && !stderr.contains("hunter2"), "{stderr}");
    for url in [
        "smtp://h?tls=off",
        "smtp://h?tls=",
        "smtp://h?ssl=none",
        "smtps://h?tls=none",
        "smtp://a:b@h?tls=none",
    ] {
        let (code, stderr) = serve(&["--smtp-url", url, "--mail-from", "a@b.c"]);
        assert_eq!(code, Some(2), "{url}");
        assert!(stderr.contains("?tls=none"), "{url}: {stderr}");
    }
    let help = cued(&["serve", "--help"]).env("CUED_SMTP_URL", "smtps://a:hunter2@h").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("CUED_SMTP_URL") && !help.contains("hunter2"), "{help}");
}

#[test]
fn strangers_and_many_client_addresses_leave_the_sign_in_mails_of_users() {
    let proxy = ["--max-mails", "40", "--trust-proxy", "127.0.0.1"];
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &proxy].concat());
    mailing.client().register("first@example.com");
    let codes = [0; 3].map(|_| mailing.code());
    let submit = |client: &str, number: usize, email: &str| {
        let body = json!({"device_code": codes[number / 10], "email": email}).to_string();
        let headers = [("X-Forwarded-For", client), ("Content-Type", "application/json")];
        mailing.client().call("POST", SUBMIT, &headers, body.as_bytes()).unwrap()
    };
    for number in 0..19 {
        let client = format!("192.0.2.{}", number / 5);
        // The same response with and without a mail.
        submit(&client, number, &format!("user{number}@example.com")).expect(200);
    }
    for number in 0..15 {
        assert_eq!(mailing.mailbox.next().to, format!("TO:<user{number}@example.com>"));
    }
    // The networks of one customer are one client.
    for number in 0..4 {
        submit(&format!("2001:db8:0:{number:x}::1"), 20, "first@example.com").expect(200);
    }
    (0..3).for_each(|_| assert_eq!(mailing.mailbox.next().to, "TO:<first@example.com>"));
    submit("2001:db8:0:ff::1", 20, "first@example.com").expect(200);
    submit("2001:db8:0:10::1", 20, "first@example.com").expect_error(429, "rate_limit_exceeded");
    submit("2001:db8:0:100::1", 20, "first@example.com").expect(200);
    assert!(mailing.mailbox.is_empty());
}
