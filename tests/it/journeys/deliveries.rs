//! Deliveries: requests, retries, and manual runs and replays.

use crate::journeys::{at, cron, due_instants, id, in_zone, webhook, worker};
use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";
const DUE: &str = "2026-01-05T01:00:00Z";

#[test]
fn a_delivery_has_the_payload_and_identifies_its_execution() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = webhook(&receiver, at(DUE));
    cue["payload"] = json!({"b": 1, "a": {"z": [1.5, "ü"]}});
    cue["callback"]["headers"] = json!({"X-Own": "mine", "User-Agent": "my-agent"});
    cue["callback"]["method"] = json!("PUT");
    let cue = user.create(&cue);
    user.advance("PT1H");
    let execution = user.only_execution(id(&cue));
    let deliveries = receiver.deliveries();
    let [sent] = &deliveries[..] else { panic!("{} deliveries", deliveries.len()) };
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"a": {"z": [1.5, "\u00fc"]}, "b": 1}"#);
    assert_eq!((sent.method.as_str(), sent.path.as_str(), sent.attempt), ("PUT", "/hook", 1));
    assert_eq!((sent.cue_id.as_str(), sent.execution_id.as_str()), (id(&cue), id(&execution)));
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-cueapi-scheduled-for", DUE),
        ("x-cueapi-timestamp", "1767574800"),
        ("webhook-timestamp", "1767574800"),
        ("webhook-id", id(&execution)),
        ("x-own", "mine"),
        ("user-agent", "my-agent"),
    ] {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    assert!(sent.header("x-cueapi-signature").unwrap().starts_with("v1="));
    assert!(sent.header("webhook-signature").unwrap().starts_with("v1,"));
}

#[test]
fn a_failed_delivery_is_retried_after_each_backoff() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let busy =
        Reaction::Full(503, vec![("Retry-After", "1200".to_owned())], "come back later".to_owned());
    receiver.first([Reaction::Status(500), Reaction::HangUp, busy]);
    let cue = user.create(&webhook(&receiver, at(DUE)));
    user.advance("PT1H");
    let first = user.only_execution(id(&cue));
    assert_has(
        &first,
        json!({
            "status": "retrying", "attempts": 1, "http_status": 500, "next_retry": "2026-01-05T01:01:00Z",
        }),
    );
    assert_eq!(user.advance("PT59S")["delivered"], 0, "a minute is a minute");
    assert_eq!(user.advance("PT1S")["delivered"], 1);
    let second = user.only_execution(id(&cue));
    assert_eq!((&second["attempts"], &second["http_status"]), (&json!(2), &Value::Null));
    assert!(second["error_message"].is_string(), "{second}");
    user.advance("PT5M");
    let third = user.only_execution(id(&cue));
    assert_has(&third, json!({"http_status": 503, "response_body": "come back later"}));
    // Retry-After is longer than 15 minutes.
    assert_eq!(third["next_retry"], "2026-01-05T01:26:00Z");
    assert_eq!(user.cue(&cue)["status"], "active");
    user.advance("PT20M");
    let fourth = user.only_execution(id(&cue));
    assert_has(&fourth, json!({"status": "success", "attempts": 4, "http_status": 200}));
    assert_eq!(user.cue(&cue)["status"], "completed");
    let deliveries = receiver.deliveries();
    assert_eq!(deliveries.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(deliveries.iter().all(|it| it.execution_id == id(&first)));
    assert_eq!(due_instants(&deliveries), [DUE; 4], "it stays the run of its time");
}

#[test]
fn a_failing_delivery_ends_after_its_attempts_and_410_ends_it_at_once() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(Reaction::Status(302));
    let mut stubborn = webhook(&receiver, at(DUE));
    stubborn["retry"] = json!({"max_attempts": 3, "backoff_minutes": [0.5]});
    let stubborn = user.create(&stubborn);
    user.advance("PT2H");
    let failed = user.only_execution(id(&stubborn));
    assert_has(&failed, json!({"status": "failed", "attempts": 3, "http_status": 302}));
    assert_eq!(user.cue(&stubborn)["status"], "failed");
    receiver.react(Reaction::Status(410));
    let gone = user.create(&webhook(&receiver, at("2026-01-05T03:00:00Z")));
    user.advance("P1D");
    assert_eq!(
        (&user.only_execution(id(&gone))["status"], receiver.count()),
        (&json!("failed"), 4)
    );
}

#[test]
fn a_cue_deleted_during_its_delivery_leaves_nothing() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(Reaction::Hang);
    let cue = user.create(&webhook(&receiver, at(DUE)));
    let claimed = user.create(&worker(at(DUE)));
    let moving = user.clone();
    let moved = thread::spawn(move || moving.advance("PT1H"));
    receiver.wait_hanging(1);
    let execution = user.only_execution(id(&claimed));
    let execution = format!("/v1/executions/{}", id(&execution));
    user.post(&format!("{execution}/claim"), &json!({})).expect(200);
    for cue in [&cue, &claimed] {
        let response = user.delete(&format!("/v1/cues/{}", id(cue)));
        assert_eq!((response.status, response.body.len()), (204, 0));
    }
    receiver.release();
    assert_eq!(moved.join().unwrap()["fired"], 2);
    user.get(&format!("/v1/cues/{}", id(&cue))).expect_error(404, "cue_not_found");
    user.post(&format!("{execution}/outcome"), &json!({"success": true}))
        .expect_error(404, "execution_not_found");
    assert_eq!(user.read("/v1/executions")["total"], 0);
    assert_eq!(user.advance("P1D")["delivered"], 0);
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_repeated_idempotency_key_creates_one_cue() {
    let (_server, user) = Server::with_clock_and_user(START);
    let send = || user.keyed("/v1/cues", "order-17", &worker_cue("work", YEARLY)).expect(201);
    let first = send();
    user.advance("PT23H59M59S");
    assert_eq!(send(), first);
    assert_eq!(user.total("/v1/cues"), 1);
    user.advance("PT2S");
    assert_ne!(send()["id"], first["id"], "a key lasts a day");
}

#[test]
fn a_repeated_create_returns_the_first_response_though_its_payload_is_not_kept() {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = r#"{"name":"n","transport":"worker","schedule":{"type":"once","at":"2026-01-05T08:00:00Z"},
                  "payload":{"word":"unmistakable","n":1E2}}"#;
    let send =
        || user.call("POST", "/v1/cues", &[("Idempotency-Key", "k")], cue.as_bytes()).unwrap();
    let first = send();
    let path = format!("/v1/cues/{}", id(&first.expect(201)));
    let kept: String = server
        .sqlite()
        .query_row("SELECT response_body FROM idempotency_keys", [], |row| row.get(0))
        .unwrap();
    assert!(!kept.contains("unmistakable"), "{kept}");
    user.patch(&path, &json!({"name": "another", "payload": null})).expect(200);
    assert_eq!(send().body, first.body, "after a change");
    user.delete(&path);
    user.advance_to("2026-01-05T09:00:00Z");
    assert_eq!(send().body, first.body, "after the removal, and after the instant of the schedule");
    assert_eq!(user.read("/v1/cues")["total"], 0);
}

#[test]
fn a_cue_can_be_fired_now_or_later_with_another_payload() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = webhook(&receiver, cron("0 9 * * *"));
    cue["payload"] = json!({"keep": {"x": 1, "y": 2}, "change": 1});
    let cue = user.create(&cue);
    user.change(&cue, &json!({"status": "paused"}));
    let fire = |body: Value| user.try_fire(&cue, &body).expect(200);
    let now = fire(json!({}));
    assert_has(
        &now,
        json!({"triggered_by": "manual_fire", "cue_id": cue["id"], "scheduled_for": START}),
    );
    fire(json!({"payload_override": {"change": 2, "keep": {"x": 9}}}));
    fire(json!({"payload_override": {"only": true}, "merge_strategy": "replace"}));
    let later = fire(json!({"send_at": "2026-01-05T06:00:00Z"}));
    user.settle();
    let mut bodies: Vec<String> =
        receiver.deliveries().iter().map(|it| it.json().to_string()).collect();
    bodies.sort();
    assert_eq!(
        bodies,
        [
            r#"{"change":1,"keep":{"x":1,"y":2}}"#,
            r#"{"change":2,"keep":{"x":9}}"#,
            r#"{"only":true}"#
        ]
    );
    user.advance("PT6H");
    let last = receiver.deliveries().pop().unwrap();
    assert_eq!(last.execution_id.as_str(), later.text("execution_id"));
    assert_eq!(receiver.count(), 4);
    let seen = user.cue(&cue);
    assert_has(&seen, json!({"status": "paused", "next_run": null, "run_count": 4}));
}

#[test]
fn send_at_without_an_offset_uses_the_zone_of_the_schedule() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker(in_zone("0 9 * * *", "Asia/Kolkata")));
    for (send_at, instant) in [
        ("2026-01-06T09:00:00", "2026-01-06T03:30:00Z"),
        ("2026-01-06T09:00:00Z", "2026-01-06T09:00:00Z"),
        ("2026-01-06T09:00:00+01:00", "2026-01-06T08:00:00Z"),
    ] {
        let fired = user.try_fire(&cue, &json!({"send_at": send_at})).expect(200);
        assert_eq!(fired["scheduled_for"], instant);
    }
}

#[test]
fn a_replay_has_the_payload_of_its_execution() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&webhook(&receiver, at(DUE)));
    user.advance("PT1H");
    let original = user.only_execution(id(&cue));
    user.change(&cue, &json!({"payload": {"task": "changed"}}));
    let replay = user.act(id(&original), "replay").expect(200);
    assert_has(&replay, json!({"triggered_by": "replay", "replayed_from": original["id"]}));
    user.settle();
    let bodies: Vec<Value> = receiver.deliveries().iter().map(|it| it.json()).collect();
    assert_eq!(bodies, [json!({"task": "greet"}), json!({"task": "greet"})]);
}
