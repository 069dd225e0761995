//! The dispatcher of notifications, and outages of its receivers.

mod alerts;
mod webhooks;

use cued::domain::notification::alert::NewAlert;
use cued::domain::row_keys::{CueKey, UserKey};
use cued::domain::webhook::signature::{SigningSecrets, signature_v1, standard_signature};
use cued::engine::delivery::dispatcher::DispatcherMode;
use cued::engine::notifications::{NotificationDispatcher, NotificationResult, judge, send};
use cued::engine::webhook_client::WebhookRequest;
use cued::error::Error;
use cued::store::executions;
use cued::store::outbox::Notification;

use crate::http::device_login::MailingServer;
use crate::support::delivery_fixture::response;
use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

/// A receiver that responds with 500.
fn failing() -> Receiver {
    let receiver = Receiver::start();
    receiver.react(Reaction::Status(500));
    receiver
}

/// A user, a receiver whose deliveries fail, and one of notifications.
fn failing_scene() -> (Server, Client, Receiver, Receiver) {
    let (server, user) = Server::with_clock_and_user(START);
    (server, user, failing(), Receiver::start())
}

fn once(on_failure: Value) -> Value {
    json!({"retry": {"max_attempts": 1}, "on_failure": on_failure})
}

/// A cue for manual runs with a single attempt.
fn hook(receiver: &Receiver, on_failure: Value) -> Value {
    with(webhook_cue("nightly", YEARLY, &receiver.url()), once(on_failure))
}

/// The same as a worker cue.
fn work(on_failure: Value) -> Value {
    with(worker_cue("nightly", YEARLY), once(on_failure))
}

/// Runs a cue now and waits for everything that follows; returns the id of the execution.
fn fire(user: &Client, cue: &Value) -> String {
    let execution = user.fire(cue);
    user.settle();
    execution
}

/// Runs a worker cue and reports an outcome.
fn report(user: &Client, cue: &Value, outcome: &Value) -> String {
    let execution = fire(user, cue);
    user.report(&execution, outcome);
    user.settle();
    execution
}

fn secret(user: &Client, which: &str) -> String {
    let secret = user.read(&format!("/v1/auth/{which}-secret"));
    secret.text(&format!("{}_secret", which.replace('-', "_"))).to_owned()
}

/// Checks both signatures of a POST, each made with the given secrets.
#[track_caller]
pub fn signed(sent: &Delivery, current: &str, previous: Option<&str>) {
    let header = |name: &str| sent.header(name).unwrap();
    let seconds = header("x-cueapi-timestamp").parse().unwrap();
    assert_eq!(header("x-cueapi-signature"), signature_v1(current, seconds, &sent.body));
    let standard = standard_signature(
        SigningSecrets { current, previous },
        header("webhook-id"),
        seconds,
        &sent.body,
    );
    assert_eq!(header("webhook-signature"), standard);
    assert_eq!(header("webhook-timestamp"), header("x-cueapi-timestamp"));
    assert_eq!((header("content-type"), sent.method.as_str()), ("application/json", "POST"));
    let canonical = cued::domain::webhook::canonical_json::canonical(
        cued::domain::json::read(&sent.body).unwrap().get(),
    );
    // A receiver can sign the body it parsed and serialized again.
    assert_eq!(String::from_utf8_lossy(&sent.body), canonical);
}

/// A fixture with a single-attempt cue, whose failures are notified to `url` and by mail.
fn failing_cue(finished: &str) -> (DeliveryFixture, CueKey) {
    let fixture = DeliveryFixture::new(4);
    let cue = fixture.webhook_cue("http://127.0.0.1:1/hook");
    fixture.sql(&format!(
        "UPDATE cues SET max_attempts = 1, on_failure = '{{\"email\":true,\"webhook\":\"{finished}\",\"pause\":false}}'"
    ));
    (fixture, cue)
}

/// Lets this number of executions of `cue` fail.
fn fail(fixture: &DeliveryFixture, cue: CueKey, runs: usize) {
    fixture.due_times(cue, runs);
    // Of scheduled runs that fail in a row one is mailed.
    fixture.sql("UPDATE executions SET triggered_by = 'manual_fire'");
    assert_eq!(fixture.deliver(&RecordingClient::with((0..runs).map(|_| response(500)))), runs);
}

fn number(fixture: &DeliveryFixture, sql: &'static str) -> i64 {
    fixture.write(move |tx| tx.query_row(sql, [], |row| row.get(0)).unwrap())
}

fn send_one(
    fixture: &DeliveryFixture,
    webhook_client: &RecordingClient,
    notification: &Notification,
) -> NotificationResult {
    let (now, route) = (fixture.app.clock.now(), &fixture.app.config.mail);
    let sent = send(webhook_client, route, "http://cued", true, notification, now);
    judge(notification, &sent, now).0
}

/// Sends all notifications; returns the requests.
fn send_all(fixture: &DeliveryFixture) -> Vec<WebhookRequest> {
    let (webhook_client, mut dispatcher, mut finished) =
        (RecordingClient::default(), NotificationDispatcher::new(4), Vec::new());
    for _ in 0..10_000 {
        let posts = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        if posts.is_empty()
            && number(fixture, "SELECT count(*) FROM outbox WHERE due_at IS NULL") == 0
        {
            return webhook_client.requests();
        }
        finished = posts
            .iter()
            .map(|notification| send_one(fixture, &webhook_client, notification))
            .collect();
    }
    panic!("the rest is never sent")
}

#[test]
fn a_notification_is_stored_with_the_failure_and_outlives_process_and_cue() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fail(&fixture, cue, 1);
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox"), 2, "a POST and a mail");
    // No notification was sent before the end of the process.
    let fixture = fixture.restart();
    fixture.sql("PRAGMA foreign_keys = ON; DELETE FROM cues");
    let sent = send_all(&fixture);
    let [sent] = &sent[..] else { panic!("{} POSTs", sent.len()) };
    assert_eq!(sent.url.expose(), "http://127.0.0.1:2/notify");
    let body: Value = serde_json::from_slice(sent.body.as_ref().unwrap().expose()).unwrap();
    assert_eq!(body["event"], "cue.failed");
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox"), 0);
}

#[test]
fn a_running_notification_is_not_claimed_twice_and_destinations_alternate() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    let other = fixture.webhook_cue("http://127.0.0.1:1/hook");
    fixture.sql(
        "UPDATE cues SET max_attempts = 1, on_failure = '{\"email\":false,\"webhook\":\"http://127.0.0.1:3/\",\"pause\":false}'
          WHERE on_failure ->> 'webhook' IS NULL",
    );
    fail(&fixture, cue, 20);
    fail(&fixture, other, 1);
    let mut dispatcher = NotificationDispatcher::new(4);
    let first = dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap();
    let mails = first.iter().filter(|notification| notification.url.is_none()).count();
    assert_eq!(mails, 2);
    let mut urls: Vec<_> =
        first.iter().filter_map(|notification| Some(notification.url.as_ref()?.expose())).collect();
    urls.sort();
    assert_eq!(urls, ["http://127.0.0.1:2/notify", "http://127.0.0.1:3/"]);
    let again = dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap();
    assert!(
        again
            .iter()
            .all(|notification| first.iter().all(|earlier| earlier.key != notification.key))
    );
    assert!(dispatcher.unfinished() > 0);
    assert!(
        dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Draining).unwrap().is_empty(),
        "a draining dispatcher claims nothing"
    );
}

#[test]
fn at_most_a_thousand_notifications_of_a_kind_are_queued_per_user() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fixture.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 998)
         INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, created_at)
         SELECT i, 1, 'failure', 'http://127.0.0.1:2/', 7, '{}', 0, 1767225600000 FROM n",
    );
    fail(&fixture, cue, 5);
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox WHERE kind = 'failure'"), 1_000);
    // Mails have a limit of their own.
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox WHERE kind = 'mail'"), 5);
    assert_eq!(send_all(&fixture).len(), 1_000);
}

#[test]
fn notifications_a_day_old_or_of_a_disabled_user_are_dropped() {
    for change in
        ["UPDATE outbox SET created_at = created_at - 86400000", "UPDATE users SET disabled_at = 1"]
    {
        let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
        fail(&fixture, cue, 3);
        fixture.sql(change);
        assert_eq!(send_all(&fixture), [], "{change}");
        assert_eq!(number(&fixture, "SELECT count(*) FROM outbox"), 0, "{change}");
    }
}

#[test]
fn results_are_kept_while_the_disk_is_full_and_no_notification_repeats() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fail(&fixture, cue, 2);
    let (webhook_client, mut dispatcher) =
        (RecordingClient::default(), NotificationDispatcher::new(4));
    let pass = |dispatcher: &mut NotificationDispatcher, finished| {
        dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running)
    };
    let first = pass(&mut dispatcher, Vec::new()).unwrap();
    let finished = first
        .iter()
        .map(|notification| send_one(&fixture, &webhook_client, notification))
        .collect();
    let fails = fixture.refuse_commits();
    assert!(matches!(pass(&mut dispatcher, finished), Err(Error::Storage(_))));
    assert!(pass(&mut dispatcher, Vec::new()).is_err());
    fails.store(false, Ordering::SeqCst);
    let next = pass(&mut dispatcher, Vec::new()).unwrap();
    assert_eq!(first.len(), 3, "two mails and a POST of this destination, then the other POST");
    assert_eq!(next.len(), 1, "two mails and a POST of this destination, then the other POST");
    assert!(first.iter().all(|earlier| earlier.id != next[0].id));
    assert_eq!(webhook_client.requests().len(), 1);
}

#[test]
fn a_result_is_not_that_of_a_later_notification_in_the_same_row() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fail(&fixture, cue, 1);
    let webhook_client = RecordingClient::with([response(500)]);
    let mut dispatcher = NotificationDispatcher::new(4);
    let mut pass =
        |finished| dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
    let sent = pass(Vec::new());
    assert_eq!(sent.len(), 2, "a mail, which is sent, and a POST, which is not");
    assert!(!fixture.app.engine_stats.is_idle());
    // As after a reset: the row keys of an empty table are used again.
    fixture.sql("UPDATE outbox SET id = 'other ' || key");
    let next = pass(sent.iter().map(|it| send_one(&fixture, &webhook_client, it)).collect());
    assert_eq!(next.len(), 2, "both others are sent");
    assert_eq!(
        number(&fixture, "SELECT count(*) FROM outbox WHERE due_at IS NULL AND attempts = 0"),
        2
    );
}

#[test]
fn an_unreadable_or_unrecordable_row_blocks_no_other() {
    for poison in [
        "UPDATE outbox SET created_at = 9223372036854775807 WHERE key IN (1, 2)",
        "CREATE TRIGGER poison BEFORE DELETE ON outbox WHEN old.key IN (1, 2) BEGIN SELECT raise(ABORT, 'x'); END",
    ] {
        let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
        fail(&fixture, cue, 5);
        fixture.sql(poison);
        let (webhook_client, mut dispatcher, mut finished) =
            (RecordingClient::default(), NotificationDispatcher::new(4), Vec::new());
        until("the others are sent", || {
            let notifications = dispatcher
                .run_once(&fixture.app, std::mem::take(&mut finished), DispatcherMode::Running)
                .unwrap();
            finished = notifications
                .iter()
                .map(|notification| send_one(&fixture, &webhook_client, notification))
                .collect();
            (number(&fixture, "SELECT count(*) FROM outbox") == 2).then_some(())
        });
        assert_eq!(number(&fixture, "SELECT sum(key) FROM outbox"), 3, "{poison}");
        let sent = webhook_client.requests().len();
        assert!(
            dispatcher
                .run_once(&fixture.app, finished, DispatcherMode::Running)
                .unwrap()
                .is_empty(),
            "{poison}"
        );
        // A stop waits for neither row.
        assert!(dispatcher.unfinished() == 0 && webhook_client.requests().len() == sent);
    }
}

#[test]
fn a_pass_over_an_empty_outbox_writes_nothing() {
    let fixture = DeliveryFixture::new(4);
    let changes = || -> i64 { number(&fixture, "SELECT total_changes()") };
    let before = changes();
    assert!(send_all(&fixture).is_empty());
    assert_eq!(changes(), before);
}

#[test]
fn at_most_two_mails_are_sent_at_a_time() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fixture.sql("UPDATE cues SET on_failure = '{\"email\":true,\"webhook\":null,\"pause\":false}'");
    fail(&fixture, cue, 5);
    let mut dispatcher = NotificationDispatcher::new(4);
    let first = dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap();
    assert_eq!(first.len(), 2);
    assert!(
        dispatcher.run_once(&fixture.app, Vec::new(), DispatcherMode::Running).unwrap().is_empty()
    );
    // Mails stay stored until they are sent.
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox"), 5);
    let finished = vec![send_one(&fixture, &RecordingClient::default(), &first[0])];
    assert_eq!(
        dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap().len(),
        1
    );
}

#[test]
fn verification_raises_alerts_and_the_newest_thousand_are_kept() {
    let (fixture, cue) = failing_cue("http://127.0.0.1:2/notify");
    fixture.sql("UPDATE users SET alert_webhook_url = 'http://127.0.0.1:4/alerts'");
    let id = fixture.due(cue);
    let raise = |reason: &'static str| {
        let now = fixture.app.clock.now();
        fixture.write(move |tx| {
            let execution = executions::find(tx, UserKey::new(1), id).unwrap().unwrap().execution;
            let alert = |cue_name: &str| NewAlert::verification_failed(cue_name, reason);
            cued::service::notify::raise_alert(tx, execution.key, alert, now).unwrap()
        })
    };
    assert!(raise("external_id is missing"));
    assert!(!raise("result_url is missing"), "one of its type stands for the cue");
    let sent = send_all(&fixture);
    let body: Value = serde_json::from_slice(sent[0].body.as_ref().unwrap().expose()).unwrap();
    assert_eq!(body["alert_type"], "verification_failed");
    assert_eq!(body["severity"], "warning");
    assert_eq!(body["execution_id"], id.to_string());
    assert_eq!(body["message"], "An outcome of c was not verified: external_id is missing");
    for _ in 0..1_003 {
        fixture.advance(300);
        assert!(raise("again"));
    }
    assert_eq!(number(&fixture, "SELECT count(*) FROM alerts"), 1_000);
    assert_eq!(
        number(&fixture, "SELECT min(created_at) FROM alerts"),
        1_767_225_600_000 + 4 * 300_000
    );
}

fn stored(server: &Server) -> i64 {
    server.count("SELECT count(*) FROM outbox")
}

/// Lets this number of executions of a worker cue fail, without waiting for notifications.
fn fail_runs(user: &Client, runs: usize) {
    let cue = user.create(&work(Value::Null));
    for _ in 0..runs {
        user.report(&user.fire(&cue), &json!({"success": false}));
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
    let user = user.at(mailing.server.restart_at("2030-01-01T00:06:00Z"));
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
    given_up("returned 550");
    mailing.mailbox.refuse(&["451"; 100]);
    fire(&user, &cue);
    user.advance("PT23H");
    assert_eq!(stored(&mailing.server), 1);
    user.advance("PT1H");
    given_up("returned 451");
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn mails_interrupted_by_a_kill_are_sent_after_the_next_start() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = mailing_to(&port);
    fail_runs(&server.client().register("ann@example.com"), 3);
    server.kill();
    let mailbox = Mailbox::on(port);
    server.restart();
    (0..3).for_each(|_| drop(mailbox.next()));
    assert!(mailbox.is_empty());
    until("no mail is left", || (stored(&server) == 0).then_some(()));
}

#[test]
fn login_mails_are_not_delayed_by_failure_mails() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register("ann@example.com");
    mailing.mailbox.refuse(&[SILENCE; 2]);
    fail_runs(&user, 9);
    until("two mails wait for a response", || (mailing.mailbox.hanging() == 2).then_some(()));
    mailing.mail(&mailing.code(), "bob@example.com");
    assert_eq!(mailing.mailbox.hanging(), 2, "the login mail waited for neither");
}

#[test]
fn a_silent_mail_server_delays_no_stop_and_loses_no_mail() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = mailing_to(&port);
    fail_runs(&server.client().register("ann@example.com"), 10);
    for number in 0..5 {
        let code = server.client().post("/v1/auth/device-code", &json!({})).expect(201);
        let email = format!("user{number}@example.com");
        let login = json!({"device_code": code["device_code"], "email": email});
        server.client().post("/v1/auth/device-code/submit-email", &login).expect(200);
    }
    // The mail server never responds, so the stop ends only if it gives up on the mails.
    assert_eq!(server.stop(), Some(0));
    assert!(server.log().contains("mail lost at shutdown"), "{}", server.log());
    let mailbox = Mailbox::on(port);
    // Two attempts failed and are due again after a minute.
    server.restart_at("2026-01-05T00:01:00Z");
    (0..10).for_each(|_| assert_eq!(mailbox.next().to, "TO:<ann@example.com>"));
    until("no mail is left", || (stored(&server) == 0).then_some(()));
}
