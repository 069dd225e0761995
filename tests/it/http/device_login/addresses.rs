//! The owner of an address: unconfirmed addresses, the other keys of an account, and the mails of logins.

use crate::http::device_login::{ANN, BOB, CODE, MailingServer, POLL, SUBMIT, assert_keys};
use crate::support::*;

const REVOKE: &[(&str, &str)] = &[("other_keys", "revoke")];

/// The first choice of a page that asks what becomes of the other keys.
const KEEP_FIRST: &str = r#"<option value="keep" selected="selected">"#;
const REVOKE_FIRST: &str = r#"<option value="revoke" selected="selected">"#;

const CONFIRM: &str = "Confirm your email address";
const FAILED: &str = "Cue a stranger's text failed";

/// A cue whose executions fail at their first attempt.
fn failing_cue(user: &Client) -> Value {
    let cue = worker_cue("a stranger's text", YEARLY);
    user.create(&with(cue, json!({"retry": {"max_attempts": 1}})))
}

/// Runs the cue once; the run fails.
fn fail(user: &Client, cue: &Value) {
    let run = user.fire(cue);
    user.report(&run, &json!({"success": false, "error": "a stranger's error"}));
    user.settle();
}

fn subject(mail: &Received) -> &str {
    mail.header("Subject").unwrap()
}

/// A server whose first user is another person.
fn open() -> MailingServer {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.client().register("first@example.com");
    mailing
}

/// Logs in, with a choice for the other keys; returns the client and the page that asked.
fn login(mailing: &MailingServer, email: &str, choice: &[(&str, &str)]) -> (Client, String) {
    let (code, mail) = mailing.mailed(email);
    let page = mailing.page(&mail);
    assert_eq!(mailing.post_link(&mail, choice).status, 200);
    (mailing.polled(&code), page)
}

#[track_caller]
fn assert_revoked(user: &Client) {
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
}

/// The next mails have this subject, and there is no other one.
#[track_caller]
fn assert_mails(mailing: &MailingServer, count: usize, expected: &str) {
    (0..count).for_each(|_| assert_eq!(subject(&mailing.mailbox.next()), expected));
    assert!(mailing.mailbox.is_empty(), "more than {count} {expected}");
}

fn wait_for_log(server: &Server, text: &str) {
    until_true(text, || server.log().contains(text));
}

#[test]
fn an_unconfirmed_address_gets_one_fixed_mail_until_it_is_confirmed() {
    let mailing = open();
    let bob = mailing.client().register(BOB);
    let cue = failing_cue(&bob);
    (0..3).for_each(|_| fail(&bob, &cue));
    let asked = mailing.next_mail(BOB);
    assert_eq!(subject(&asked), CONFIRM);
    assert!(!asked.message.contains("stranger"), "{}", asked.message);
    assert!(mailing.mailbox.is_empty(), "it is sent once");

    let page = mailing.client().get(&asked.link());
    assert_eq!(page.status, 200);
    assert_contains(&page.text(), &[BOB, "Confirm this address"]);
    fail(&bob, &cue);
    assert!(mailing.mailbox.is_empty(), "a GET confirms nothing");
    let wrong = Received { message: asked.message.replace("token=", "token=0"), ..asked.clone() };
    assert_eq!(mailing.client().get(&wrong.link()).status, 404);
    for (mail, status, what) in
        [(&wrong, 404, "another token"), (&asked, 200, "the link"), (&asked, 404, "a second time")]
    {
        assert_eq!(mailing.post_link(mail, &[]).status, status, "{what}");
    }
    assert_eq!(mailing.client().get(&asked.link()).status, 404);
    fail(&bob, &cue);
    assert_mails(&mailing, 1, FAILED);
}

#[test]
fn the_first_user_an_added_user_and_one_who_signed_in_are_confirmed() {
    let mailing = MailingServer::open(&["--registration", "open", "--limits", "off"]);
    let first = mailing.client().register("first@example.com");
    let db = mailing.server.db();
    let printed = crate::cli::administration::ok(&db, &["user", "add", "added@example.com"]);
    let key = printed.split_whitespace().find(|word| word.starts_with("cue_sk_")).unwrap();
    let (signed_in, _) = login(&mailing, "login@example.com", &[]);
    for (user, email) in [
        (first, "first@example.com"),
        (mailing.client().with_key(key), "added@example.com"),
        (signed_in, "login@example.com"),
    ] {
        fail(&user, &failing_cue(&user));
        assert_contains(&mailing.next_mail(email).message, &["has failed"]);
    }
    mailing.client().register("stranger@example.com");
    let listed = crate::cli::administration::ok(&db, &["user", "list"]);
    let unconfirmed: Vec<&str> =
        listed.lines().filter(|line| line.contains("unconfirmed")).collect();
    assert_eq!(unconfirmed.len(), 1, "{listed}");
    assert!(unconfirmed[0].starts_with("stranger@example.com"), "{listed}");
}

#[test]
fn the_owner_of_an_unconfirmed_address_revokes_the_keys_of_whoever_registered_it() {
    let mailing = open();
    let stranger = mailing.client().register(ANN);
    let (code, mail) = mailing.mailed(ANN);
    let page = mailing.page(&mail);
    let (key, made) = (&stranger.key()[..12], "made 2030-01-01T00:00:00Z");
    assert_contains(&page, &["<dt>default</dt>", key, made, "never confirmed", REVOKE_FIRST]);
    assert!(!page.contains(stranger.key()));
    // The form of an older page sends no choice.
    assert_eq!(mailing.confirm(&code, &mail).status, 200);
    assert_keys(&mailing.polled(&code), 1);
    assert_revoked(&stranger);
}

#[test]
fn a_login_keeps_or_revokes_the_other_keys_as_asked() {
    let mailing = open();
    let stranger = mailing.client().register(BOB);
    // The registration was the owner's.
    let (_, page) = login(&mailing, BOB, &[("other_keys", "keep")]);
    assert_contains(&page, &["never confirmed"]);
    stranger.me();
    // From then on the address is confirmed, and the keys stay unless asked.
    let (laptop, page) = login(&mailing, BOB, &[]);
    assert_contains(&page, &[KEEP_FIRST]);
    stranger.me();
    let (phone, _) = login(&mailing, BOB, REVOKE);
    [&stranger, &laptop].into_iter().for_each(assert_revoked);
    assert_keys(&phone, 1);
    // A new address has no other keys to show.
    let page = mailing.page(&mailing.mailed("new@example.com").1);
    assert!(!page.contains("API keys"), "{page}");
}

#[test]
fn an_owner_who_revokes_the_keys_of_a_stranger_shares_nothing_with_them() {
    let mailing = open();
    let stranger = mailing.client().register(ANN);
    let secrets = |user: &Client| {
        ["webhook-secret", "alert-webhook-secret"]
            .map(|path| user.read(&format!("/v1/auth/{path}")))
    };
    stranger.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    let known = secrets(&stranger);
    let alerts = json!({"alert_webhook_url": "https://stranger.example.com/"});
    stranger.patch("/v1/auth/me", &alerts).expect(200);
    let cue = failing_cue(&stranger);
    let later = stranger.fire_with(&cue, &json!({"send_at": "2099-01-01T00:00:00Z"}));
    let (owner, page) = login(&mailing, ANN, &[]);
    let what = "replaces both webhook secrets at once, removes the URL of alerts, pauses";
    assert_contains(&page, &[what]);
    for (new, known) in secrets(&owner).iter().zip(&known) {
        assert_ne!(new, known);
    }
    let overlap = mailing.server.count("SELECT count(previous_webhook_secret) FROM users");
    assert_eq!(overlap, 0, "the stranger's secret signs nothing");
    assert_has(&owner.me(), json!({"alert_webhook_url": null, "active_cues": 0}));
    assert_eq!(owner.cue(&cue)["status"], "paused");
    assert_eq!(owner.execution(&later)["error_message"], "keys_revoked");
}

#[test]
fn whoever_did_not_register_is_told_to_revoke_the_keys_and_can_after_a_confirmation() {
    let mailing = open();
    let stranger = mailing.client().register(BOB);
    fail(&stranger, &failing_cue(&stranger));
    let asked = mailing.mailbox.next();
    assert_contains(&asked.message, &["If you did not register, do not open it"]);
    assert_contains(&mailing.page(&asked), &["do not confirm: somebody else has the keys"]);
    mailing.advance("PT1M");
    assert_eq!(mailing.post_link(&asked, &[]).status, 200);
    let (_, page) = login(&mailing, BOB, REVOKE);
    assert_contains(&page, &["before this address was confirmed", r#"value="revoke""#]);
    assert_revoked(&stranger);
}

#[test]
fn an_account_from_before_addresses_were_confirmed_can_revoke_its_keys_at_a_login() {
    let mailing = open();
    let earlier = mailing.client().register(ANN);
    mailing.server.sql("UPDATE users SET confirmed_at = created_at");
    let (_, page) = login(&mailing, ANN, REVOKE);
    assert_contains(&page, &[&earlier.key()[..12], KEEP_FIRST, r#"<option value="revoke""#]);
    assert_revoked(&earlier);
}

#[test]
fn at_100_keys_a_login_has_to_revoke_them() {
    let mailing = MailingServer::open(&["--registration", "open"]);
    mailing.client().register(ANN);
    mailing.server.sql(
        "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 100)
         INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
         SELECT 'id' || n, user_key, name, prefix, CAST('hash' || n AS BLOB), created_at FROM api_keys, n",
    );
    let (code, mail) = mailing.mailed(ANN);
    let refused = mailing.confirm(&code, &mail);
    assert_eq!(refused.status, 409);
    assert_contains(&refused.text(), &["revoke one"]);
    assert_eq!(mailing.post_link(&mail, REVOKE).status, 200);
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn the_login_mail_names_the_address_and_the_time_of_the_request() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--trust-proxy", "127.0.0.1"]].concat());
    mailing.advance("PT90S");
    mailing.submit_from("203.0.113.7", &mailing.code(), ANN).expect(200);
    let mail = mailing.mailbox.next();
    let line = "Requested from the address 203.0.113.7 at 2030-01-01T00:01:30Z.";
    assert!(mail.message.lines().any(|it| it == line), "{}", mail.message);
}

#[test]
fn whoever_sees_the_code_on_a_page_or_in_the_mail_cannot_poll() {
    let mailing = open();
    let (code, shown) = mailing.codes();
    assert!(!code.contains(&shown), "{code} {shown}");
    let page = |code: &str| mailing.client().get(&format!("/auth/device?code={code}")).text();
    // Some clients make the address of the page themselves.
    let pages = [page(&shown), page(&code), mailing.submit_form(&shown, ANN).text()];
    let mail = mailing.mailbox.next();
    let confirmation = mailing.page(&mail);
    for text in pages.iter().chain([&mail.message, &confirmation]) {
        assert!(text.contains(&shown) && !text.contains(&code), "{text}");
    }
    assert_eq!(mailing.post_link(&mail, &[]).status, 200);
    assert_eq!(mailing.poll(&shown), json!({"status": "expired"}));
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn a_device_code_cannot_stand_in_for_the_code_that_another_device_shows() {
    let mailing = open();
    let (code, shown) = mailing.codes();
    mailing.client().post(CODE, &json!({"device_code": shown})).expect(201);
    assert_eq!(mailing.submit_form(&shown, ANN).status, 200);
    assert_eq!(mailing.post_link(&mailing.mailbox.next(), &[]).status, 200);
    assert_eq!(mailing.status(&shown), "pending", "the login of the stranger");
    assert_eq!(mailing.status(&code), "approved");
}

#[test]
fn all_mails_together_have_an_hourly_limit() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--max-mails", "3"]].concat());
    let user = mailing.client().register("first@example.com");
    let cue = failing_cue(&user);
    let (first, second) = (mailing.code(), mailing.code());
    mailing.mail(&first, ANN);
    mailing.advance("PT10M");
    mailing.mail(&second, BOB);
    fail(&user, &cue);
    mailing.next_mail("first@example.com");
    // Both halves are used up: a failure mail waits, and a login gets a time for its next attempt.
    fail(&user, &cue);
    let late = "cid@example.com";
    for _ in 0..2 {
        mailing.try_submit(&second, late).refuses_for(3_000, 429, "rate_limit_exceeded");
    }
    assert_eq!(mailing.submit_form(&second, late).status, 429);
    assert!(mailing.mailbox.is_empty());
    let log = mailing.server.log();
    assert_eq!(log.matches("the hourly limit of this kind is reached").count(), 2, "{log}");
    mailing.advance("PT59M59S");
    assert!(mailing.mailbox.is_empty());
    mailing.advance("PT1S");
    // The failure mail was not lost.
    mailing.next_mail("first@example.com");
}

#[test]
fn failures_of_many_accounts_leave_half_of_the_mails_for_logins() {
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &["--max-mails", "60"]].concat());
    let first = mailing.client().register("first@example.com");
    for number in 0..25 {
        let user = mailing.client().register(&format!("user{number}@example.com"));
        fail(&user, &failing_cue(&user));
    }
    assert_mails(&mailing, 20, CONFIRM);
    let cue = failing_cue(&first);
    (0..10).for_each(|_| fail(&first, &cue));
    first.settle();
    // 20 mails in an hour ask to confirm, and 30 are not for logins.
    assert_mails(&mailing, 10, FAILED);
    mailing.mailed(ANN);
    mailing.advance("PT1H");
    assert_mails(&mailing, 5, CONFIRM);
}

#[test]
fn one_client_address_cannot_use_up_the_mails_for_logins() {
    let proxy = ["--max-mails", "40", "--trust-proxy", "127.0.0.1"];
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &proxy].concat());
    let code = mailing.code();
    let email = |number: u32| format!("user{number}@example.com");
    for number in 0..5 {
        mailing.submit_from("192.0.2.1", &code, &email(number)).expect(200);
        mailing.next_mail(&email(number));
    }
    let refused = mailing.submit_from("192.0.2.1", &code, &email(5));
    refused.refuses_for(3_600, 429, "rate_limit_exceeded");
    mailing.submit_from("192.0.2.2", &code, &email(5)).expect(200);
    mailing.next_mail(&email(5));
}

#[test]
fn an_address_gets_3_mails_an_hour_with_identical_responses() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    let mails: Vec<_> = (0..3).map(|_| mailing.mail(&code, ANN)).collect();
    mailing.submit(&code, ANN);
    let other = mailing.code();
    mailing.submit(&other, ANN);
    assert_eq!(mailing.status(&other), "email_sent");
    mailing.mail(&other, BOB);
    assert!(mailing.mailbox.is_empty());
    assert_eq!(mailing.confirm(&code, &mails[2]).status, 200, "the newest mailed link stays valid");
    mailing.advance("PT1H");
    mailing.mailed(ANN);
}

#[test]
fn one_code_cannot_mail_many_addresses() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let code = mailing.code();
    (0..10).for_each(|number| drop(mailing.mail(&code, &format!("user{number}@example.com"))));
    mailing.submit(&code, "user10@example.com");
    assert!(mailing.mailbox.is_empty());
}

/// A code with a submitted address.
fn ask(client: &Client, email: &str) -> String {
    let code = client.post(CODE, &json!({})).expect(201).text("device_code").to_owned();
    client.post(SUBMIT, &json!({"device_code": code, "email": email})).expect(200);
    code
}

#[test]
fn temporary_mail_errors_are_retried_and_permanent_ones_are_not() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.mailbox.refuse(&["451"]);
    let (code, mail) = mailing.mailed(ANN);
    assert_eq!(mailing.confirm(&code, &mail).status, 200);
    mailing.mailbox.refuse(&["550"]);
    ask(&mailing.client(), BOB);
    wait_for_log(&mailing.server, "mail not sent, giving up");
    ask(&mailing.client(), "cid@example.com");
    mailing.next_mail("cid@example.com");
}

#[test]
fn an_unreachable_mail_server_delays_no_response() {
    // No program listens on port 9 of loopback.
    let mail = ["--smtp-url", "smtp://127.0.0.1:9", "--mail-from", "cued@example.com"];
    let mut server = Server::start(&[DEV_UNLIMITED, &mail].concat());
    ask(&server.client(), ANN);
    wait_for_log(&server, "mail not sent, will be retried");
    assert_eq!(server.stop(), Some(0));
    assert_contains(&server.log(), &["giving up"]);
}

#[test]
fn mails_waiting_for_a_retry_are_tried_once_more_at_shutdown() {
    let mut mailing = MailingServer::open(DEV_UNLIMITED);
    mailing.mailbox.refuse(&["451"]);
    ask(&mailing.client(), ANN);
    wait_for_log(&mailing.server, "mail not sent, will be retried");
    assert_eq!(mailing.server.stop(), Some(0));
    mailing.next_mail(ANN);
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
    ask(&client, ANN);
    wait_for_log(&server, "giving up");
    let code = ask(&client, ANN);
    let mail = mailbox.next();
    assert_eq!(mail.login, Some(("post@example.com".to_owned(), "hunter/2".to_owned())));
    for method in ["GET", "POST"] {
        assert_eq!(client.bare(method, &mail.link()).status, 200);
    }
    let polled = client.post(POLL, &json!({ "device_code": code })).expect(200);
    let user = client.with_key(polled.text("api_key"));
    let secret = user.read("/v1/auth/webhook-secret");
    user.me();
    assert_eq!(server.stop(), Some(0));
    let output = server.log() + &server.stdout();
    assert_contains(&output, &["DEBUG mail sent"]);
    let (token, secret) = (mail.token(), secret.text("webhook_secret"));
    for hidden in [&token, user.key(), secret, "/v1/auth/verify?", "hunter"] {
        assert!(!output.contains(hidden), "{hidden} in {output}");
    }
}

#[test]
fn without_a_mail_server_the_link_is_logged_and_printed_under_dev() {
    for (flags, printed) in [(DEV_UNLIMITED, true), (&["--registration", "open"][..], false)] {
        let server = Server::start(flags);
        let code = ask(&server.client(), ANN);
        let link = |text: &str| -> Option<String> {
            let (_, rest) = text.split_once(ANN).filter(|(_, rest)| rest.contains('\n'))?;
            rest[rest.find("/v1/auth/verify")?..].lines().next().map(str::to_owned)
        };
        let logged = until("the link is logged", || link(&server.log()));
        if printed {
            assert_eq!(until("the link is printed", || link(&server.stdout())), logged);
            let stdout = server.stdout();
            assert!(stdout.starts_with("mail to ann@example.com: http://"), "{stdout}");
        } else {
            assert_eq!(server.stdout(), "");
        }
        assert_eq!(server.client().bare("POST", &logged).status, 200);
        let polled = server.client().post(POLL, &json!({ "device_code": code }));
        assert_eq!(polled.expect(200)["status"], "approved");
    }
}

#[test]
fn a_mail_server_requires_a_sender_and_its_password_is_never_shown() {
    let sender = ["--mail-from", "a@b.c"];
    for (url, sender, named) in [
        ("smtp://a:hunter2@h", &[][..], "--mail-from"),
        ("mail://a:hunter2@h", &sender, "smtp://"),
        ("smtp://h?tls=off", &sender, "?tls=none"),
        ("smtp://h?tls=", &sender, "?tls=none"),
        ("smtp://h?ssl=none", &sender, "?tls=none"),
        ("smtps://h?tls=none", &sender, "?tls=none"),
        ("smtp://a:b@h?tls=none", &sender, "?tls=none"),
    ] {
        let output = run(&[&["serve", "--ephemeral", "--smtp-url", url], sender].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}");
        assert!(stderr.contains(named) && !stderr.contains("hunter2"), "{url}: {stderr}");
    }
    let help = cued(&["serve", "--help"]).env("CUED_SMTP_URL", "smtps://a:hunter2@h").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("CUED_SMTP_URL") && !help.contains("hunter2"), "{help}");
}

#[test]
fn strangers_and_many_client_addresses_leave_the_sign_in_mails_of_users() {
    let proxy = ["--max-mails", "40", "--trust-proxy", "127.0.0.1"];
    let mailing = MailingServer::open(&[DEV_UNLIMITED, &proxy].concat());
    let first = "first@example.com";
    mailing.client().register(first);
    let codes = [0; 3].map(|_| mailing.code());
    let submit = |client: &str, number: usize, email: &str| {
        mailing.submit_from(client, &codes[number / 10], email)
    };
    let email = |number: usize| format!("user{number}@example.com");
    for number in 0..19 {
        // The same response with and without a mail.
        submit(&format!("192.0.2.{}", number / 5), number, &email(number)).expect(200);
    }
    (0..15).for_each(|number| drop(mailing.next_mail(&email(number))));
    // The networks of one customer are one client.
    for number in 0..4 {
        submit(&format!("2001:db8:0:{number:x}::1"), 20, first).expect(200);
    }
    (0..3).for_each(|_| drop(mailing.next_mail(first)));
    submit("2001:db8:0:ff::1", 20, first).expect(200);
    submit("2001:db8:0:10::1", 20, first).expect_error(429, "rate_limit_exceeded");
    submit("2001:db8:0:100::1", 20, first).expect(200);
    assert!(mailing.mailbox.is_empty());
}
