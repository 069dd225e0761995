//! The mails of the device login: limits, errors of the mail server, the contents of the log.

use serde_json::json;

use crate::http::device_login::flow::MailingServer;
use crate::support::client::Client;
use crate::support::mailbox::Mailbox;
use crate::support::server::{DEV_UNLIMITED, Server, until};

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
        [DEV_UNLIMITED, &["--smtp-url", "smtp://127.0.0.1:9", "--mail-from", "cued@example.com"]].concat();
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
    let polled = client.post("/v1/auth/device-code/poll", &json!({ "device_code": code })).expect(200);
    let user = client.with_key(polled["api_key"].as_str().unwrap());
    let secret = user.get("/v1/auth/webhook-secret").expect(200)["webhook_secret"].clone();
    user.get("/v1/auth/me").expect(200);
    assert_eq!(server.stop(), Some(0));
    let output = server.log() + &server.stdout();
    assert!(output.contains("DEBUG mail sent"), "the log level is not the most detailed: {output}");
    let token = mail.token();
    for hidden in [token.as_str(), user.key(), secret.as_str().unwrap(), "/v1/auth/verify?", "hunter"] {
        assert!(!output.contains(hidden), "{hidden} in {output}");
    }
}

#[test]
fn without_a_mail_server_the_link_is_logged_and_printed_under_dev() {
    for (flags, printed) in [(DEV_UNLIMITED, true), (&["--registration", "open"][..], false)] {
        let server = Server::start(flags);
        let code = ask(&server.client(), "ann@example.com");
        let link = |text: &str| -> Option<String> {
            let (_, rest) = text.split_once("ann@example.com").filter(|(_, rest)| rest.contains('\n'))?;
            rest[rest.find("/v1/auth/verify")?..].lines().next().map(str::to_owned)
        };
        let logged = until("the link is logged", || link(&server.log()));
        if printed {
            assert_eq!(until("the link is printed", || link(&server.stdout())), logged);
            assert!(server.stdout().starts_with("mail to ann@example.com: http://"), "{}", server.stdout());
        } else {
            assert_eq!(server.stdout(), "");
        }
        assert_eq!(server.client().call("POST", &logged, &[], b"").unwrap().status, 200);
        let polled = server.client().post("/v1/auth/device-code/poll", &json!({ "device_code": code }));
        assert_eq!(polled.expect(200)["status"], "approved");
    }
}

#[test]
fn a_mail_server_requires_a_sender_and_its_password_is_never_shown() {
    let serve = |flags: &[&str]| {
        let output = crate::support::server::cued(&["serve", "--ephemeral"]).args(flags).output().unwrap();
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
    let help = crate::support::server::cued(&["serve", "--help"])
        .env("CUED_SMTP_URL", "smtps://a:hunter2@h")
        .output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("CUED_SMTP_URL") && !help.contains("hunter2"), "{help}");
}
