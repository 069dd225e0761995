//! Failure mails while the mail server refuses, is silent or is away: they stay stored, are sent later and delay
//! nothing.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::{START, failing, fire, hook, work};
use crate::http::device_login::flow::MailingServer;
use crate::support::client::Client;
use crate::support::mailbox::{Mailbox, SILENCE};
use crate::support::server::{DEV_UNLIMITED, Server, until};

fn stored(server: &Server) -> i64 {
    server.sqlite().query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap()
}

/// Lets this number of executions of a worker cue fail, without waiting for notifications.
fn fail(user: &Client, runs: usize) {
    let cue = user.create(&work(Value::Null));
    let fire = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
    for _ in 0..runs {
        let fired = user.post(&fire, &json!({})).expect(200);
        let outcome = format!("/v1/executions/{}/outcome", fired["execution_id"].as_str().unwrap());
        user.post(&outcome, &json!({"success": false})).expect(200);
    }
}

/// A server that sends its mails to this port.
fn mailing_to(port: &TcpListener) -> Server {
    let url = format!("smtp://{}", port.local_addr().unwrap());
    let mail = ["--smtp-url", &url, "--mail-from", "cued@example.com", "--test-clock", START];
    Server::start(&[DEV_UNLIMITED, &mail].concat())
}

#[test]
fn a_temporarily_refused_mail_stays_stored_until_it_is_sent() {
    let (mut mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    // The second error is about the password, which the operator can correct.
    mailing.mailbox.refuse(&["451", "535", "451"]);
    fire(&user, &user.create(&hook(&receiver, Value::Null)));
    assert_eq!(stored(&mailing.server), 1);
    user.advance("PT1M");
    assert_eq!(stored(&mailing.server), 1);
    assert_eq!(mailing.server.stop(), Some(0));
    mailing.server.restart_at("2030-01-01T00:06:00Z");
    let user = user.at(mailing.server.addr());
    user.settle();
    assert_eq!(stored(&mailing.server), 1);
    mailing.server.kill();
    mailing.server.restart_at("2030-01-01T00:21:00Z");
    user.at(mailing.server.addr()).settle();
    assert_eq!(mailing.mailbox.next().to, "TO:<ann@example.com>");
    assert!(mailing.mailbox.is_empty());
    assert_eq!(stored(&mailing.server), 0);
}

#[test]
fn a_mail_is_dropped_and_logged_after_a_day_or_a_permanent_error() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    let cue = user.create(&hook(&receiver, Value::Null));
    let given_up = |why: &str| {
        let log = mailing.server.log();
        let line = log.lines().find(|line| line.contains("given up") && line.contains(why));
        assert!(
            line.is_some_and(|line| line.contains("notification_id=")
                && line.contains("kind=\"mail\"")
                && line.contains("user_id=")),
            "{log}"
        );
        assert_eq!(stored(&mailing.server), 0);
    };
    mailing.mailbox.refuse(&["550"]);
    fire(&user, &cue);
    given_up("answered 550");
    mailing.mailbox.refuse(&["451"; 100]);
    fire(&user, &cue);
    user.advance("PT23H");
    assert_eq!(stored(&mailing.server), 1);
    user.advance("PT1H");
    given_up("answered 451");
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn mails_interrupted_by_a_kill_are_sent_after_the_next_start() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = mailing_to(&port);
    fail(&server.client().register("ann@example.com"), 3);
    server.kill();
    let mailbox = Mailbox::on(port);
    server.restart();
    (0..3).for_each(|_| drop(mailbox.next()));
    assert!(mailbox.is_empty());
    until("none is left", || (stored(&server) == 0).then_some(()));
}

#[test]
fn login_mails_are_not_delayed_by_failure_mails() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register("ann@example.com");
    mailing.mailbox.refuse(&[SILENCE; 2]);
    fail(&user, 9);
    until("two are kept waiting", || (mailing.mailbox.hanging() == 2).then_some(()));
    mailing.mail(&mailing.code(), "bob@example.com");
    assert_eq!(mailing.mailbox.hanging(), 2, "it has waited for neither");
}

#[test]
fn a_silent_mail_server_delays_no_stop_and_loses_no_mail() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = mailing_to(&port);
    fail(&server.client().register("ann@example.com"), 10);
    for number in 0..5 {
        let code = server.client().post("/v1/auth/device-code", &json!({})).expect(201);
        let email = format!("user{number}@example.com");
        let login = json!({"device_code": code["device_code"], "email": email});
        server.client().post("/v1/auth/device-code/submit-email", &login).expect(200);
    }
    // The mail server never responds, so the stop ends only if it gives up on the mails.
    assert_eq!(server.stop(), Some(0));
    assert!(server.log().contains("are lost"), "{}", server.log());
    let mailbox = Mailbox::on(port);
    // Two attempts failed and are due again after a minute.
    server.restart_at("2026-01-05T00:01:00Z");
    (0..10).for_each(|_| assert_eq!(mailbox.next().to, "TO:<ann@example.com>"));
    until("none is left", || (stored(&server) == 0).then_some(()));
}
