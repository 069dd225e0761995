//! Channels: failures, recoveries and alerts reach people where they are (contract §12).

mod bad_input;
mod once;
mod pace;
mod reminders;

use std::ops::Deref;

use cued::domain::channel::ChannelType;

use crate::support::*;

/// Monday.
const START: &str = "2026-01-05T09:00:00Z";

const CHANNELS: &str = "/v1/channels";

const REASON: &str = "500 from 127.0.0.1";

/// A user at [`START`], whose cues call `failing`, which fails, and who has a channel that POSTs to `phone`.
struct Rig {
    server: Server,
    user: Client,
    failing: Receiver,
    phone: Receiver,
    channel: Value,
}

impl Deref for Rig {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.user
    }
}

impl Rig {
    fn new() -> Self {
        Self::with(json!({}))
    }

    /// With other settings of the channel.
    fn with(change: Value) -> Self {
        Self::telling(Receiver::start(), change)
    }

    fn telling(phone: Receiver, change: Value) -> Self {
        let (server, user) = Server::with_clock_and_user(START);
        Self::of(server, user, phone, change)
    }

    fn of(server: Server, user: Client, phone: Receiver, change: Value) -> Self {
        let channel = webhook(&user, &phone, change);
        Self { server, user, failing: Receiver::with(Reaction::Status(500)), phone, channel }
    }

    /// A cue that fails at 09:01, 09:02, …
    fn every_minute(&self, name: &str, change: Value) -> Value {
        every_minute(&self.user, &self.failing, name, change)
    }

    /// A cue that fails at these times.
    fn failing_at(&self, cron: &str) -> Value {
        self.every_minute("backup", json!({"schedule": {"type": "recurring", "cron": cron}}))
    }

    /// As many cues that all fail at 09:01.
    fn failing_at_once(&self, count: usize) {
        for number in 0..count {
            let schedule = json!({"type": "once", "at": "2026-01-05T09:01:00Z"});
            self.every_minute(&format!("job {number}"), json!({"schedule": schedule}));
        }
    }

    /// The channel has these fields now.
    #[track_caller]
    fn assert_channel(&self, expected: Value) {
        assert_has(&self.read(&path(&self.channel)), expected);
    }

    fn change_channel(&self, patch: &Value) {
        self.patch(&path(&self.channel), patch).expect(200);
    }

    fn test(&self) -> Value {
        self.post(&format!("{}/test", path(&self.channel)), &json!({})).expect(200)
    }

    /// Kills the server and starts it again at `instant`.
    fn restart_after_kill(&mut self, instant: &str) {
        self.server.kill();
        self.user = self.user.at(self.server.restart_at(instant));
    }

    /// Kills the server in the middle of a move of the clock, while a message is under way.
    fn kill_while_telling(
        &mut self,
        span: &'static str,
        instant: &str,
        is_due: impl Fn(&Server) -> bool,
    ) {
        self.phone.react(Reaction::Hang);
        let advancing = self.user.clone();
        let advance =
            thread::spawn(move || advancing.try_post("/v1/test/clock", &json!({"advance": span})));
        self.phone.wait_hanging(1);
        until_true("all runs have failed", || is_due(&self.server));
        self.server.kill();
        drop(advance.join().unwrap());
        self.phone.release();
        self.user = self.user.at(self.server.restart_at(instant));
    }
}

/// A server with a test clock that sends its mails to the mailbox.
fn with_mail(mailbox: &Mailbox) -> (Server, Client) {
    let mail =
        ["--smtp-url", &mailbox.url(), "--mail-from", "cued@example.com", "--test-clock", START];
    Server::with_user(&[&mail[..], &["--allow-callbacks-to", "127.0.0.0/8"]].concat())
}

fn path(channel: &Value) -> String {
    format!("{CHANNELS}/{}", id(channel))
}

/// A channel of type `webhook` that POSTs to the receiver.
fn webhook(user: &Client, receiver: &Receiver, change: Value) -> Value {
    let body = with(json!({"type": "webhook", "url": receiver.url()}), change);
    user.post(CHANNELS, &body).expect(201)
}

/// A cue that calls the receiver at 09:01, 09:02, … with one attempt each.
fn every_minute(user: &Client, receiver: &Receiver, name: &str, change: Value) -> Value {
    let once = json!({"retry": {"max_attempts": 1}, "on_failure": {"email": false}});
    user.create(&with(with(webhook_cue(name, "* * * * *", &receiver.url()), once), change))
}

/// The bodies that arrived.
fn told(receiver: &Receiver) -> Vec<Value> {
    receiver.deliveries().iter().map(Delivery::json).collect()
}

/// A field of each of them.
fn fields(receiver: &Receiver, name: &str) -> Vec<String> {
    told(receiver).iter().map(|body| body.text(name).to_owned()).collect()
}

fn titles(receiver: &Receiver) -> Vec<String> {
    fields(receiver, "title")
}

fn subject(mailbox: &Mailbox) -> String {
    mailbox.next().header("Subject").unwrap().to_owned()
}

#[test]
fn a_failure_and_the_recovery_are_told_with_what_and_why() {
    let rig = Rig::new();
    assert_has(
        &rig.channel,
        json!({
            "type": "webhook", "url": rig.phone.url(), "events": ["execution.failed", "cue.recovered", "alert.*"], "tags": [],
            "quiet": null, "status": "active", "failures": 0, "waiting": 0, "last_sent_at": null, "built_in": false,
            "created_at": START,
        }),
    );
    rig.failing.react(Reaction::Status(503));
    let cue = rig.every_minute(
        "backup",
        json!({"schedule": {"type": "recurring", "cron": "1 * * * *"},
               "retry": {"max_attempts": 3, "backoff_seconds": [10]}}),
    );
    rig.advance("PT1M19.999S");
    assert_eq!(rig.phone.count(), 0, "two attempts are left");
    rig.advance("PT0.001S");
    let execution = rig.executions_of(id(&cue))[0].clone();
    assert_has(
        &told(&rig.phone)[0],
        json!({
            "event": "execution.failed", "title": "backup failed 3 times: 503 from 127.0.0.1", "cue_id": cue["id"],
            "cue_name": "backup", "execution_id": execution["id"], "severity": "critical", "alert_type": null, "link": null,
            "created_at": "2026-01-05T09:01:20Z",
        }),
    );
    rig.failing.react(Reaction::Status(200));
    rig.advance("PT2H");
    assert_eq!(titles(&rig.phone)[1..], ["backup recovered after 59 min 40 s"]);
    rig.assert_channel(
        json!({"last_sent_at": "2026-01-05T10:01:00Z", "waiting": 0, "last_error": null}),
    );
}

#[test]
fn an_earlier_reason_is_named_beside_the_last() {
    let rig = Rig::new();
    rig.failing.first([Reaction::Status(500), Reaction::Status(503)]);
    rig.every_minute("backup", json!({"retry": {"max_attempts": 2, "backoff_seconds": [1]}}));
    rig.advance("PT1M1S");
    assert_eq!(titles(&rig.phone), ["backup failed 2 times: 503 from 127.0.0.1 (500 before)"]);
}

#[test]
fn a_failure_and_the_alert_that_it_raises_are_one_message() {
    let (rig, alerts) = (Rig::with(json!({"repeat": "every"})), Receiver::start());
    webhook(&rig, &alerts, json!({"events": ["alert.consecutive_failures"]}));
    rig.every_minute("backup", json!({}));
    rig.advance("PT3M10S");
    assert_eq!(rig.phone.count(), 3);
    let third = &told(&rig.phone)[2];
    assert_has(third, json!({"event": "execution.failed", "alert_type": "consecutive_failures"}));
    assert_contains(third.text("message"), &["3 times in a row"]);
    assert_eq!(fields(&alerts, "execution_id"), [third.text("execution_id")]);
}

#[test]
fn events_and_tags_select_what_a_channel_tells() {
    let rig = Rig::with(json!({"events": ["cue.recovered"]}));
    let [nas, pauses] = [(); 2].map(|()| Receiver::start());
    webhook(&rig, &nas, json!({"tags": ["nas", "disk"], "events": ["execution.failed"]}));
    webhook(&rig, &pauses, json!({"events": ["cue.paused"]}));
    let tagged = rig.every_minute("tagged", json!({"tags": ["daily", "nas"]}));
    rig.every_minute("other", json!({"on_failure": {"email": false, "pause": true}}));
    rig.advance("PT1M30S");
    assert_eq!(titles(&nas), [format!("tagged failed: {REASON}")]);
    assert_eq!(titles(&pauses), ["other was paused because a run failed"]);
    assert_eq!(rig.phone.count(), 0);
    rig.failing.react(Reaction::Status(200));
    rig.advance("PT1M");
    // No channel that was told of the failure of `other` would hear of its end: it is paused.
    assert_eq!(titles(&rig.phone), ["tagged recovered after 1 min"]);
    rig.change(&tagged, &json!({"status": "paused"}));
    rig.advance("PT1M");
    assert_eq!(titles(&pauses)[1..], ["tagged was paused by request"]);
}

#[test]
fn a_recovery_after_failures_that_no_channel_told_is_not_told() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    webhook(&user, &phone, json!({}));
    failing.react(Reaction::Status(200));
    user.advance("PT5M");
    assert_eq!(phone.count(), 0);
}

#[test]
fn a_channel_is_read_changed_and_deleted() {
    let (server, user) = Server::with_clock_and_user(START);
    let (url, token) = ("http://127.0.0.1:9/backups", "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2");
    let body = json!({"type": "ntfy", "url": url, "token": token, "priority": 4});
    let channel = user.post(CHANNELS, &body).expect(201);
    let expected = json!({"name": "ntfy backups", "token": "…NIz2", "priority": 4, "url": url});
    assert_has(&channel, expected);
    // A client sends back what it has read.
    let mut back = channel.clone();
    let read_only = "id status failures waiting last_sent_at last_failed_at last_error built_in created_at updated_at";
    words(read_only).into_iter().for_each(|name| drop(back.as_object_mut().unwrap().remove(name)));
    let quiet = |zone: &str| json!({"from": "22:00", "to": "07:00", "timezone": zone});
    let back = with(back, json!({"quiet": quiet("europe/berlin"), "priority": null}));
    let changed = user.patch(&path(&channel), &back).expect(200);
    let quiet = quiet("Europe/Berlin");
    assert_has(
        &changed,
        json!({"token": "…NIz2", "priority": null, "quiet": quiet, "name": "ntfy backups"}),
    );
    let stored: String =
        server.sqlite().query_row("SELECT settings FROM channels", [], |row| row.get(0)).unwrap();
    assert_contains(&stored, &[token]);
    let fields = json!({"quiet": null, "token": null, "name": "phone"});
    assert_has(&user.patch(&path(&channel), &fields).expect(200), fields);
    let other = user.register("bob@example.com");
    for response in [
        other.get(&path(&channel)),
        other.delete(&path(&channel)),
        other.patch(&path(&channel), &json!({})),
    ] {
        response.expect_error(404, "channel_not_found");
    }
    assert_eq!(other.total(CHANNELS), 1, "the failure mails");
    user.delete(&path(&channel)).expect(204);
    user.get(&path(&channel)).expect_error(404, "channel_not_found");
    let test = format!("{}/test", path(&channel));
    user.post(&test, &json!({})).expect_error(404, "channel_not_found");
}

#[test]
fn failure_mails_and_the_alert_webhook_are_shown_as_channels() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
    let listed = user.read(CHANNELS);
    assert_has(&listed, json!({"total": 2, "has_more": false}));
    assert_has(
        &listed["channels"][0],
        json!({
            "id": "email", "type": "email", "to": user.email(), "built_in": true, "status": "active",
            "events": ["execution.failed"],
        }),
    );
    assert_has(
        &listed["channels"][1],
        json!({"id": "alert_webhook", "type": "webhook", "url": receiver.url(), "events": ["alert.*"]}),
    );
    for built_in in ["email", "alert_webhook"] {
        let path = format!("{CHANNELS}/{built_in}");
        user.read(&path);
        user.patch(&path, &json!({"name": "x"})).expect_error(409, "invalid_state");
        user.delete(&path).expect_error(409, "invalid_state");
    }
    let tested = user.post("/v1/channels/alert_webhook/test", &json!({})).expect(200);
    assert_has(&tested, json!({"status": "delivered", "http_status": 200}));
    assert_eq!(told(&receiver)[0]["test"], true);
    let overview = || user.read("/v1/overview")["channels"].clone();
    assert_eq!(overview(), json!({"count": 1, "failing": []}));
    let mails = json!({"type": "email", "to": user.email(), "events": ["alert.*"]});
    user.post(CHANNELS, &mails).expect(201);
    assert_eq!(overview(), json!({"count": 1, "failing": []}), "no mail is sent here");
}

#[test]
fn an_email_channel_replaces_the_failure_mail_and_adds_alerts_and_recoveries() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let name = format!("email {}", user.email());
    let channel = user.post(CHANNELS, &json!({"type": "email", "to": user.email()})).expect(201);
    assert_eq!(channel["name"], name);
    every_minute(&user, &failing, "backup", json!({"on_failure": {"email": true}}));
    user.advance("PT1M");
    assert_eq!(subject(&mailbox), format!("backup failed: {REASON}"));
    user.advance("PT10S");
    assert!(mailbox.is_empty(), "it is mailed once");
    failing.react(Reaction::Status(200));
    user.advance("PT1M");
    assert_eq!(subject(&mailbox), "backup recovered after 1 min");
    let tested = user.post(&format!("{}/test", path(&channel)), &json!({})).expect(200);
    assert_has(&tested, json!({"status": "delivered", "http_status": null, "error_message": null}));
    let mail = mailbox.next();
    assert_eq!(mail.header("Subject"), Some(format!("Test of the channel \"{name}\"").as_str()));
    assert_contains(&mail.message, &["`cued channel list` shows your channels."]);
    // Without the channel the cue mails its failures again.
    user.delete(&path(&channel)).expect(204);
    failing.react(Reaction::Status(500));
    user.advance("PT1M");
    assert_eq!(subject(&mailbox), "Cue backup failed");
}

#[test]
fn a_mail_that_only_the_log_of_the_server_gets_is_not_delivered() {
    let (_server, user) = Server::with_clock_and_user(START);
    let failing = Receiver::with(Reaction::Status(500));
    let channel = user.post(CHANNELS, &json!({"type": "email", "to": user.email()})).expect(201);
    let why = "this server sends no mail (--smtp-url): the message went to its log";
    for id in ["email", id(&channel)] {
        let tested = user.post(&format!("{CHANNELS}/{id}/test"), &json!({})).expect(200);
        assert_has(&tested, json!({"status": "failed", "error_message": why}));
    }
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    assert_has(
        &user.read(&path(&channel)),
        json!({"failures": 2, "waiting": 0, "last_sent_at": null, "last_error": why}),
    );
}

#[test]
fn a_link_leads_to_the_run_if_the_server_has_a_public_url() {
    let flags = "--public-url https://cued.example.com/x --allow-callbacks-to 127.0.0.0/8";
    let (server, user) = Server::with_user(&[&["--test-clock", START], &words(flags)[..]].concat());
    let rig = Rig::of(server, user, Receiver::start(), json!({}));
    let cue = rig.every_minute("backup", json!({}));
    rig.advance("PT1M");
    let execution = rig.executions_of(id(&cue))[0].clone();
    let link = format!("https://cued.example.com/x/#/runs/{}", id(&execution));
    assert_eq!(told(&rig.phone)[0]["link"], link);
}

#[test]
fn a_webhook_channel_is_signed_as_the_alert_webhook() {
    let rig = Rig::new();
    rig.every_minute("backup", json!({}));
    rig.advance("PT1M");
    let secret = rig.read("/v1/auth/alert-webhook-secret");
    let sent = &rig.phone.deliveries()[0];
    crate::engine::notifications::signed(sent, secret.text("alert_webhook_secret"), None);
    assert_eq!(sent.header("webhook-id"), told(&rig.phone)[0]["id"].as_str());
}

#[test]
fn a_test_says_what_came_back_and_is_not_repeated() {
    let rig = Rig::telling(Receiver::with(Reaction::Status(403)), json!({}));
    let answer = rig.test();
    assert_has(&answer, json!({"status": "failed", "http_status": 403}));
    assert_contains(answer.text("error_message"), &["403"]);
    rig.settle();
    rig.assert_channel(json!({"failures": 1, "waiting": 0}));
    rig.advance("PT2H");
    assert_eq!(rig.phone.count(), 1);
    rig.phone.react(Reaction::Status(200));
    assert_has(&rig.test(), json!({"status": "delivered", "http_status": 200}));
    rig.settle();
    let told_at = "2026-01-05T11:00:00Z";
    rig.assert_channel(json!({"failures": 0, "last_error": null, "last_sent_at": told_at}));
    assert_has(&told(&rig.phone)[1], json!({"event": "test", "cue_id": null}));
}

/// What a service makes of a message is tested beside its format, in `src/domain/channel/services`.
#[test]
fn each_service_gets_a_message_and_confirms_it() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let (at, key) = (|path: &str| receiver.url_of(path), "azGDORePK8gMaC0QOYAMyEEuzJnyUi");
    let bot = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";
    let workflow = "/workflows/1/triggers/manual/paths/invoke?sig=x";
    // The settings of a channel, the path of its messages, and the answer that confirms one.
    let rows = [
        (json!({"type": "webhook", "url": at("/hook")}), "/hook", "<html>"),
        (json!({"type": "ntfy", "url": at("/backups")}), "/", r#"{"event":"message"}"#),
        (json!({"type": "slack", "url": at("/services/T0/B0/x")}), "/services/T0/B0/x", "ok"),
        (
            json!({"type": "discord", "url": at("/api/webhooks/1/abc")}),
            "/api/webhooks/1/abc",
            r#"{"id":"1"}"#,
        ),
        (json!({"type": "mattermost", "url": at("/hooks/abc")}), "/hooks/abc", "ok"),
        (json!({"type": "teams", "url": at(workflow)}), workflow, "1"),
        (
            json!({"type": "telegram", "bot_token": bot, "chat_id": 5, "api_url": at("")}),
            &format!("/bot{bot}/sendMessage"),
            r#"{"ok":true}"#,
        ),
        (
            json!({"type": "gotify", "url": at(""), "token": "AWSF2n2Tb.4h"}),
            "/message",
            r#"{"id":25}"#,
        ),
        (
            json!({"type": "pushover", "token": key, "user": key, "api_url": at("")}),
            "/1/messages.json",
            r#"{"status":1}"#,
        ),
    ];
    let types = rows.iter().map(|(settings, ..)| settings.text("type"));
    let all = ChannelType::ALL.iter().skip(1).map(|it| it.as_str());
    assert_eq!(types.collect::<Vec<_>>(), all.collect::<Vec<_>>(), "all but email");
    for (settings, path, confirmation) in rows {
        let own = self::path(&user.post(CHANNELS, &settings).expect(201));
        // The page of a login confirms a message to a webhook alone.
        for (answer, is_confirmed) in [(confirmation, true), ("<html>", confirmation == "<html>")] {
            receiver.react(Reaction::Full(200, Vec::new(), answer.to_owned()));
            let tested = user.post(&format!("{own}/test"), &json!({})).expect(200);
            let status = if is_confirmed { "delivered" } else { "failed" };
            assert_has(&tested, json!({ "status": status }));
        }
        let sent = receiver.deliveries().pop().unwrap();
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", path));
        assert_contains(&sent.json().to_string(), &["Test of the channel"]);
    }
}

#[test]
fn neither_a_test_nor_an_error_shows_a_secret_that_the_service_repeats() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let (token, bot_token) = ("AWSF2n2Tb.4hXyz", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw");
    let (base, hook) = (receiver.url_of(""), receiver.url_of("/services/T0/B0/x7QzMc21"));
    for (body, said) in [
        (
            json!({"type": "gotify", "url": base, "token": token}),
            json!({"error": "Unauthorized", "errorDescription": format!("bad token {token}")}).to_string(),
        ),
        (
            json!({"type": "telegram", "bot_token": bot_token, "chat_id": 5, "api_url": base}),
            json!({"ok": false, "description": format!("bad token: no route /bot{bot_token}/sendMessage")})
                .to_string(),
        ),
        (
            json!({"type": "slack", "url": hook}),
            format!("bad token: no route {hook}, /services/T0/B0/x7QzMc21"),
        ),
    ] {
        let channel = user.post(CHANNELS, &body).expect(201);
        receiver.react(Reaction::Full(401, Vec::new(), said));
        let tested = user.post(&format!("{}/test", path(&channel)), &json!({})).expect(200);
        user.settle();
        let shown = user.read(&path(&channel));
        for text in [tested.text("response"), tested.text("error_message"), shown.text("last_error")] {
            assert_contains(text, &["bad token"]);
            for secret in [token, "AAHdqTcv", "x7QzMc21"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
}
