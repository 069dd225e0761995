//! The events that each change causes, in their order and with their fields.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::types;
use crate::support::api::Api;
use crate::support::client::Client;
use crate::support::event_stream::EventReader;
use crate::support::fixture::Fixture;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::Server;

const BEGIN: &str = "2030-01-01T00:00:00Z";

fn rig() -> (Server, Client) {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    (server, user)
}

/// A stream after its greeting.
fn follow(server: &Server, user: &Client, query: &str) -> EventReader {
    let mut stream = EventReader::open(server.addr(), user, query);
    assert_eq!(stream.next().0, "hello");
    stream
}

fn id(cue: &Value) -> &str {
    cue["id"].as_str().unwrap()
}

fn worker_cue(user: &Client, more: Value) -> Value {
    let mut cue = json!({"name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 * * * *"}});
    for (name, value) in more.as_object().unwrap() {
        cue[name] = value.clone();
    }
    user.create(&cue)
}

#[test]
fn a_run_that_succeeds_at_the_third_attempt_shows_each_step() {
    let (server, user) = rig();
    let receiver = Receiver::start();
    receiver.first([Reaction::Status(503), Reaction::Status(503)]);
    let mut stream = follow(&server, &user, "");
    let cue = user.create(&json!({
        "name": "sync", "schedule": {"type": "once", "at": "2030-01-01T01:00:00Z"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 4, "backoff_minutes": [1, 5, 15]},
    }));
    user.advance("PT2H");
    let events = stream.until_clock_moved();
    assert_eq!(
        types(&events),
        [
            "cue.created",
            "execution.created",
            "execution.started",
            "execution.retrying",
            "execution.started",
            "execution.retrying",
            "execution.started",
            "execution.succeeded",
            "cue.completed",
        ]
    );
    let execution = user.only_execution(id(&cue));
    for (_, data) in &events[1..8] {
        assert_eq!(
            (&data["execution_id"], &data["cue_id"], &data["cue_name"]),
            (&execution["id"], &cue["id"], &json!("sync"))
        );
        assert_eq!((&data["max_attempts"], &data["triggered_by"]), (&json!(4), &json!("schedule")));
        assert_eq!(data["scheduled_for"], "2030-01-01T01:00:00Z");
    }
    let steps: Vec<Value> = events[1..8]
        .iter()
        .map(|(_, it)| {
            json!([it["status"], it["attempt"], it["http_status"], it["next_retry"], it["late_ms"], it["at"]])
        })
        .collect();
    assert_eq!(
        steps,
        [
            json!(["pending", 0, null, null, null, "2030-01-01T01:00:00Z"]),
            json!(["delivering", 1, null, null, 0, "2030-01-01T01:00:00Z"]),
            json!(["retrying", 1, 503, "2030-01-01T01:01:00Z", 0, "2030-01-01T01:00:00Z"]),
            json!(["delivering", 2, 503, null, 0, "2030-01-01T01:01:00Z"]),
            json!(["retrying", 2, 503, "2030-01-01T01:06:00Z", 0, "2030-01-01T01:01:00Z"]),
            json!(["delivering", 3, 503, null, 0, "2030-01-01T01:06:00Z"]),
            json!(["success", 3, 200, null, 0, "2030-01-01T01:06:00Z"]),
        ]
    );
    assert_eq!(events[3].1["error_message"], "the callback returned 503");
    assert_eq!(events[7].1["error_message"], Value::Null);
    assert_eq!((&events[8].1["status"], &events[8].1["next_run"]), (&json!("completed"), &Value::Null));
}

#[test]
fn failures_of_a_cue_lead_to_an_alert_and_a_pause() {
    let (server, user) = rig();
    let receiver = Receiver::with(Reaction::Status(500));
    user.create(&json!({
        "name": "fails", "schedule": {"type": "recurring", "cron": "0 * * * *"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 1},
        "on_failure": {"email": false, "webhook": null, "pause": false},
    }));
    let once = user.create(&json!({
        "name": "once", "schedule": {"type": "once", "at": "2030-01-01T00:30:00Z"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 1},
        "on_failure": {"email": false, "webhook": null, "pause": true},
    }));
    let mut stream = follow(&server, &user, "?types=execution.failed,alert,cue");
    user.advance("PT3H");
    let events = stream.until(|event, _| event == "alert.created");
    assert_eq!(
        types(&events),
        [
            "execution.failed",
            "cue.failed",
            "execution.failed",
            "execution.failed",
            "execution.failed",
            "alert.created"
        ]
    );
    assert_eq!(events[1].1["cue_id"], once["id"]);
    let alerts = user.get("/v1/alerts").expect(200);
    assert_eq!(events[5].1, alerts["alerts"][0]);
}

#[test]
fn a_failure_pauses_the_cue_that_asks_for_it() {
    let (server, user) = rig();
    let receiver = Receiver::with(Reaction::Status(500));
    user.create(&json!({
        "name": "fails", "schedule": {"type": "recurring", "cron": "0 * * * *"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 1},
        "on_failure": {"email": false, "webhook": null, "pause": true},
    }));
    let mut stream = follow(&server, &user, "?types=execution.failed,cue,server");
    user.advance("PT3H");
    assert_eq!(types(&stream.until_clock_moved()), ["execution.failed", "cue.paused"]);
}

#[test]
fn the_work_of_a_worker_is_seen_claimed_reported_verified_and_lost() {
    let (server, user) = rig();
    let cue = worker_cue(&user, json!({"verification": {"mode": "manual"}}));
    let mut stream = follow(&server, &user, "");
    let beat =
        |worker: &str| user.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": []}));
    beat("w1").expect(200);
    beat("w1").expect(200);
    user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    let claimed = user.post("/v1/executions/claim", &json!({"worker_id": "w1"})).expect(200);
    let execution = claimed["execution_id"].as_str().unwrap();
    let path = |action: &str| format!("/v1/executions/{execution}/{action}");
    user.post(&path("outcome"), &json!({"success": true})).expect(200);
    user.post(&path("verify"), &json!({"valid": true})).expect(200);
    user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    user.post("/v1/executions/claim", &json!({"worker_id": "w2"})).expect(200);
    user.advance("PT20M");
    beat("w1").expect(200);
    user.advance("PT1S");
    let mut events = stream.until_clock_moved();
    events.extend(stream.until_clock_moved());
    events.retain(|(event, _)| event != "server.state");
    assert_eq!(
        types(&events),
        [
            "worker.seen",
            "execution.created",
            "execution.claimed",
            "execution.succeeded",
            "execution.outcome",
            "execution.verified",
            "execution.created",
            "execution.claimed",
            "execution.claim_lost",
            "alert.created",
            "worker.seen",
        ]
    );
    assert_eq!(events[0].1, json!({"worker_id": "w1", "last_heartbeat": null, "at": BEGIN}));
    assert_eq!(
        events[10].1,
        json!({"worker_id": "w1", "last_heartbeat": BEGIN, "at": "2030-01-01T00:20:00Z"})
    );
    assert_eq!((&events[2].1["worker_id"], &events[2].1["status"]), (&json!("w1"), &json!("delivering")));
    assert_eq!(events[4].1["outcome_state"], "verification_pending");
    assert_eq!(events[5].1["outcome_state"], "verified_success");
    assert_eq!((&events[8].1["worker_id"], &events[8].1["status"]), (&json!("w2"), &json!("pending")));
}

#[test]
fn changes_of_a_cue_by_request_are_events() {
    let (server, user) = rig();
    let mut stream = follow(&server, &user, "?types=cue");
    let cue = worker_cue(&user, json!({}));
    let path = format!("/v1/cues/{}", id(&cue));
    user.patch(&path, &json!({"name": "other"})).expect(200);
    user.patch(&path, &json!({"status": "paused"})).expect(200);
    user.patch(&path, &json!({"status": "active"})).expect(200);
    // Changes nothing.
    user.patch(&path, &json!({"status": "nonsense"})).expect_error(422, "validation_error");
    user.delete("/v1/cues/cue_000000000000").expect_error(404, "cue_not_found");
    assert_eq!(user.delete(&path).status, 204);
    let events = stream.until(|event, _| event == "cue.deleted");
    assert_eq!(types(&events), ["cue.created", "cue.updated", "cue.paused", "cue.resumed", "cue.deleted"]);
    assert_eq!(
        events[0].1,
        json!({"cue_id": cue["id"], "cue_name": "work", "status": "active", "next_run": "2030-01-01T01:00:00Z", "at": BEGIN})
    );
    assert_eq!((&events[2].1["status"], &events[2].1["next_run"]), (&json!("paused"), &Value::Null));
    assert_eq!(events[4].1, json!({"cue_id": cue["id"], "cue_name": "other", "at": BEGIN}));
}

#[test]
fn a_quota_is_reported_when_it_is_near_and_when_it_is_exceeded() {
    let api = Api::start();
    let ada = api.user("ada");
    let limit = i64::from(api.fixture.app.config.plans.limits("free").executions.unwrap());
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let fire = || ada.post(&format!("/v1/cues/{}/fire", cue.id), &json!({})).expect(200);
    let use_up = |used: i64| api.fixture.sql(&format!("UPDATE monthly_usage SET executions = {used}"));
    fire();
    let mut stream = EventReader::open(api.addr(), &ada, "?types=quota");
    assert_eq!(stream.next().0, "hello");
    use_up(limit * 4 / 5 - 2);
    fire();
    fire();
    fire();
    use_up(limit - 1);
    fire();
    fire();
    let near = json!({"used": limit * 4 / 5, "limit": limit, "at": "2026-01-01T10:00:00Z"});
    assert_eq!(stream.next(), ("quota.near".to_owned(), near));
    let exceeded = json!({"used": limit + 1, "limit": limit, "at": "2026-01-01T10:00:00Z"});
    assert_eq!(stream.next(), ("quota.exceeded".to_owned(), exceeded));
}

#[test]
fn missed_runs_are_an_event() {
    let fixture = Fixture::new();
    let ada = fixture.user("ada");
    let (mut stream, _) = fixture.app.events.subscribe(ada, Ipv4Addr::LOCALHOST.into(), None).unwrap();
    let cue = fixture.worker_cue(ada, |_| ());
    let now = fixture.now() + jiff::SignedDuration::from_hours(2);
    let key = cue.key;
    let missed = fixture.write(move |tx| {
        let cue = cued::store::cues::find_by_key(tx, key).unwrap().unwrap();
        cued::service::finish::record_overdue_as_missed(tx, &cue, now).unwrap()
    });
    assert!(missed > 0);
    let filter = cued::domain::notification::event::EventFilter::new(Some("missed"), None).unwrap();
    let taken = stream.take(&filter).unwrap();
    let data: Value = serde_json::from_str(&taken[0].data).unwrap();
    assert_eq!(
        (&data["count"], &data["cue_id"], &data["reason"]),
        (&json!(missed), &json!(cue.id), &json!("downtime"))
    );
    assert!(data["first"].is_string() && data["last"].is_string(), "{data}");
}

#[test]
fn a_hold_and_its_end_are_events_for_everybody() {
    let server = Server::start(&["--dev"]);
    let (ada, eve) = (server.user(), server.user());
    let mut streams = [&ada, &eve].map(|user| follow(&server, user, "?types=server"));
    server.sqlite().execute("INSERT INTO meta (name, value) VALUES ('held_since', 1000)", []).unwrap();
    for stream in &mut streams {
        assert_eq!(stream.next().1["state"], "held");
    }
    let mut late = EventReader::open(server.addr(), &ada, "");
    assert_eq!(late.next().1["held"], true);
    server.sqlite().execute("DELETE FROM meta WHERE name = 'held_since'", []).unwrap();
    for stream in &mut streams {
        assert_eq!(stream.next().1["state"], "promoted");
    }
}
