//! Mail over TLS from the start and over STARTTLS.

use std::time::Duration;

use cued::mail::queue::LoginMailer;
use cued::mail::{Mail, MailTransport, Smtp, SmtpTls};
use serde_json::json;

use super::authority::Authority;
use super::mail_server::{Security, TlsMailServer};
use crate::support::server::{DEV_UNLIMITED, Server, until};

const LOGIN: &str = "post:hunter2@";

/// A route to the mail server by the name `localhost`, with the rules of a server elsewhere.
fn route(scheme: &str, login: &str, server: &TlsMailServer, authority: &Authority) -> MailTransport {
    route_to(&format!("{scheme}://{login}localhost:{}", server.port()), authority)
}

fn route_to(url: &str, authority: &Authority) -> MailTransport {
    let rules = SmtpTls { authority: Some(authority.pem().into_bytes()), trusts_this_machine: false };
    MailTransport::Smtp(Box::new(Smtp::with_tls(url, "cued@example.com", &rules).unwrap()))
}

fn mail() -> Mail {
    Mail {
        to: "ann@example.com".to_owned(),
        subject: "Sign in".to_owned(),
        text: "The link of this mail".to_owned(),
        log_line: String::new(),
        at: "2030-01-01T00:00:00Z".parse().unwrap(),
        log_only: false,
    }
}

#[test]
fn smtps_sends_nothing_outside_tls() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Implicit, authority.server("localhost"));
    route("smtps", LOGIN, &server, &authority).send(&mail()).unwrap();
    assert_eq!(server.verbs(false), [""; 0]);
    assert!(server.verbs(true).contains(&"AUTH".to_owned()), "{:?}", server.verbs(true));
    assert!(server.mails()[0].contains("The link of this mail"));
}

#[test]
fn starttls_comes_before_the_login_and_the_mail() {
    let authority = Authority::new();
    for login in [LOGIN, ""] {
        let server = TlsMailServer::start(Security::StartTls, authority.server("localhost"));
        route("smtp", login, &server, &authority).send(&mail()).unwrap();
        assert_eq!(server.verbs(false), ["EHLO", "STARTTLS"], "{login}");
        let secure = server.verbs(true);
        assert_eq!(secure.contains(&"AUTH".to_owned()), !login.is_empty(), "{secure:?}");
        assert!(secure.contains(&"DATA".to_owned()) && server.mails().len() == 1);
    }
}

#[test]
fn a_server_without_starttls_gets_no_password() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Plain, authority.server("localhost"));
    let error = route("smtp", LOGIN, &server, &authority).send(&mail()).unwrap_err();
    assert!(error.is_transient, "the operator can correct it while the mail waits: {error}");
    assert!(error.to_string().contains("STARTTLS"), "{error}");
    let sent = server.verbs(false);
    assert!(!sent.iter().any(|verb| ["AUTH", "MAIL", "DATA"].contains(&verb.as_str())), "{sent:?}");
}

#[test]
fn a_server_without_starttls_gets_a_mail_only_where_the_url_says_so() {
    let authority = Authority::new();
    let server = TlsMailServer::start(Security::Plain, authority.server("localhost"));
    let error = route("smtp", "", &server, &authority).send(&mail()).unwrap_err();
    assert!(error.is_transient && error.to_string().contains("STARTTLS"), "{error}");
    assert_eq!(server.mails().len(), 0);
    let url = format!("smtp://localhost:{}?tls=none", server.port());
    route_to(&url, &authority).send(&mail()).unwrap();
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn the_log_says_whether_mail_is_sent_over_tls() {
    for (url, tls) in [
        ("smtps://mail.example.com", Some("implicit")),
        ("smtp://mail.example.com", Some("starttls")),
        ("smtp://mail.example.com?tls=none", Some("none")),
        ("smtp://127.0.0.1", None),
    ] {
        let server =
            Server::start(&[DEV_UNLIMITED, &["--smtp-url", url, "--mail-from", "a@example.com"]].concat());
        let log = server.log();
        let line = log.lines().find(|line| line.contains("mail is sent by SMTP"));
        assert_eq!(line.and_then(|line| line.split('"').nth(1)), tls, "{url}: {log}");
    }
}

#[test]
fn a_wrong_certificate_gets_neither_password_nor_mail() {
    let (own, other) = (Authority::new(), Authority::new());
    for (scheme, security) in [("smtps", Security::Implicit), ("smtp", Security::StartTls)] {
        for (config, says) in [
            (other.server("localhost"), "UnknownIssuer"),
            (own.server("other.example"), "not valid for name"),
            (own.server_until("localhost", 2020), "expired"),
        ] {
            for login in [LOGIN, ""] {
                let server = TlsMailServer::start(security, config.clone());
                let error = route(scheme, login, &server, &own).send(&mail()).unwrap_err();
                assert!(error.is_transient, "{error}");
                let text = error.to_string();
                assert!(text.contains("certificate") && text.contains(says), "{scheme}: {text}");
                let sent = [server.verbs(false), server.verbs(true)].concat();
                assert!(
                    !sent.iter().any(|verb| ["AUTH", "MAIL", "DATA"].contains(&verb.as_str())),
                    "{sent:?}"
                );
            }
        }
    }
}

#[test]
fn a_mail_stays_in_the_queue_until_the_certificate_is_right() {
    let (own, other) = (Authority::new(), Authority::new());
    let server = TlsMailServer::start(Security::Implicit, other.server("localhost"));
    let mailer = LoginMailer::start(route("smtps", LOGIN, &server, &own)).unwrap();
    mailer.enqueue(Some(mail()));
    until("the first attempt ends", || (server.connections() > 0).then_some(()));
    server.use_config(own.server("localhost"));
    // The queue tries every mail once more when it stops, or the first retry comes before.
    mailer.stop(Duration::from_secs(10));
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn the_log_says_why_a_mail_server_is_not_trusted() {
    let authority = Authority::new();
    let mail = TlsMailServer::start(Security::Implicit, authority.server("localhost"));
    let url = format!("smtps://{LOGIN}localhost:{}", mail.port());
    let server =
        Server::start(&[DEV_UNLIMITED, &["--smtp-url", &url, "--mail-from", "cued@example.com"]].concat());
    let client = server.client();
    let code = client.post("/v1/auth/device-code", &json!({})).expect(201)["device_code"].clone();
    client
        .post("/v1/auth/device-code/submit-email", &json!({"device_code": code, "email": "ann@example.com"}))
        .expect(200);
    let line = until("the failure is logged", || {
        server.log().lines().find(|line| line.contains("will be retried")).map(str::to_owned)
    });
    assert!(line.contains("certificate") && line.contains("UnknownIssuer"), "{line}");
    assert!(!line.contains("hunter2") && !line.contains("ann@"), "{line}");
    assert!(!mail.verbs(true).contains(&"AUTH".to_owned()));
}
