//! The order of events. The ring of the newest ones is tested in `src/events.rs`.

use std::net::{IpAddr, Ipv4Addr};

use cued::domain::api_error::ErrorCode;
use cued::domain::notification::event::{Event, EventFilter, EventType};
use cued::domain::row_keys::UserKey;
use cued::error::Error;
use cued::events::EventStream;

use crate::http::events::types;
use crate::support::*;

const BEGIN: &str = "2030-01-01T00:00:00Z";

fn rig() -> (Server, Client) {
    Server::with_clock_and_user(BEGIN)
}

/// A cue without retries whose receiver fails, and what its failure does besides.
fn failing(receiver: &Receiver, pause: bool) -> Value {
    let on_failure = json!({"email": false, "webhook": null, "pause": pause});
    let more = json!({"retry": {"max_attempts": 1}, "on_failure": on_failure});
    with(webhook_cue("fails", "0 * * * *", &receiver.url()), more)
}

#[test]
fn a_run_that_succeeds_at_the_third_attempt_shows_each_step() {
    let (server, user) = rig();
    let receiver = Receiver::start();
    receiver.first([Reaction::Status(503), Reaction::Status(503)]);
    let mut stream = EventReader::follow(server.addr(), &user, "");
    let cue = user.create(&json!({
        "name": "sync", "schedule": {"type": "once", "at": "2030-01-01T01:00:00Z"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 4, "backoff_minutes": [1, 5, 15]},
    }));
    user.advance("PT2H");
    let events = stream.until_clock_moved();
    assert_eq!(
        types(&events),
        words(
            "cue.created execution.created execution.started execution.retrying execution.started execution.retrying execution.started execution.succeeded cue.completed"
        )
    );
    let execution = user.only_execution(id(&cue));
    for (_, data) in &events[1..8] {
        assert_has(
            data,
            json!({
                "execution_id": execution["id"], "cue_id": cue["id"], "cue_name": "sync", "max_attempts": 4,
                "triggered_by": "schedule", "scheduled_for": "2030-01-01T01:00:00Z",
            }),
        );
    }
    let fields = ["status", "attempt", "http_status", "next_retry", "late_ms", "at"];
    let step = |(_, data): &(String, Value)| json!(fields.map(|name| data[name].clone()));
    let steps: Vec<Value> = events[1..8].iter().map(step).collect();
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
    assert_eq!(events[3].1["error_message"], "the URL returned 503");
    assert_eq!(events[7].1["error_message"], Value::Null);
    assert_has(&events[8].1, json!({"status": "completed", "next_run": null}));
}

#[test]
fn failures_of_a_cue_lead_to_an_alert_and_a_pause() {
    let (server, user) = rig();
    let receiver = Receiver::with(Reaction::Status(500));
    user.create(&failing(&receiver, false));
    let once = json!({"schedule": {"type": "once", "at": "2030-01-01T00:30:00Z"}});
    let once = user.create(&with(failing(&receiver, true), once));
    let mut stream = EventReader::follow(server.addr(), &user, "?types=execution.failed,alert,cue");
    user.advance("PT3H");
    let events = stream.until(|event, _| event == "alert.created");
    assert_eq!(
        types(&events),
        words(
            "execution.failed cue.failed execution.failed execution.failed execution.failed alert.created"
        )
    );
    assert_eq!(events[1].1["cue_id"], once["id"]);
    let alerts = user.read("/v1/alerts");
    assert_eq!(events[5].1, alerts["alerts"][0]);
}

#[test]
fn a_failure_pauses_the_cue_that_asks_for_it() {
    let (server, user) = rig();
    let receiver = Receiver::with(Reaction::Status(500));
    user.create(&failing(&receiver, true));
    let mut stream =
        EventReader::follow(server.addr(), &user, "?types=execution.failed,cue,server");
    user.advance("PT3H");
    assert_eq!(types(&stream.until_clock_moved()), ["execution.failed", "cue.paused"]);
}

#[test]
fn the_work_of_a_worker_is_seen_claimed_reported_verified_and_lost() {
    let (server, user) = rig();
    let cue = user.create(&with(hourly_cue("work"), json!({"verification": {"mode": "manual"}})));
    let mut stream = EventReader::follow(server.addr(), &user, "");
    (0..2).for_each(|_| drop(user.beat("w1").expect(200)));
    user.fire(&cue);
    let execution = user.claim("w1");
    user.report(&execution, &json!({"success": true}));
    user.act(&execution, "verify").expect(200);
    user.fire(&cue);
    user.claim("w2");
    user.advance("PT20M");
    user.beat("w1").expect(200);
    user.advance("PT1S");
    let mut events = stream.until_clock_moved();
    events.extend(stream.until_clock_moved());
    events.retain(|(event, _)| event != "server.state");
    assert_eq!(
        types(&events),
        words(
            "worker.seen execution.created execution.claimed execution.succeeded execution.outcome execution.verified execution.created execution.claimed execution.claim_lost alert.created worker.seen"
        )
    );
    assert_eq!(events[0].1, json!({"worker_id": "w1", "last_heartbeat": null, "at": BEGIN}));
    assert_eq!(
        events[10].1,
        json!({"worker_id": "w1", "last_heartbeat": BEGIN, "at": "2030-01-01T00:20:00Z"})
    );
    assert_has(&events[2].1, json!({"worker_id": "w1", "status": "delivering"}));
    assert_eq!(events[4].1["outcome_state"], "verification_pending");
    assert_eq!(events[5].1["outcome_state"], "verified_success");
    assert_has(&events[8].1, json!({"worker_id": "w2", "status": "pending"}));
}

#[test]
fn changes_of_a_cue_by_request_are_events() {
    let (server, user) = rig();
    let mut stream = EventReader::follow(server.addr(), &user, "?types=cue");
    let cue = user.create(&hourly_cue("work"));
    for change in
        [json!({"name": "other"}), json!({"status": "paused"}), json!({"status": "active"})]
    {
        user.change(&cue, &change);
    }
    // Changes nothing.
    let wrong = user.patch(&cue_path(&cue), &json!({"status": "nonsense"}));
    wrong.expect_error(422, "validation_error");
    user.delete("/v1/cues/cue_000000000000").expect_error(404, "cue_not_found");
    user.delete(&cue_path(&cue)).expect(204);
    let events = stream.until(|event, _| event == "cue.deleted");
    assert_eq!(
        types(&events),
        ["cue.created", "cue.updated", "cue.paused", "cue.resumed", "cue.deleted"]
    );
    assert_eq!(
        events[0].1,
        json!({"cue_id": cue["id"], "cue_name": "work", "status": "active", "next_run": "2030-01-01T01:00:00Z", "at": BEGIN})
    );
    assert_has(&events[2].1, json!({"status": "paused", "next_run": null}));
    assert_eq!(events[4].1, json!({"cue_id": cue["id"], "cue_name": "other", "at": BEGIN}));
}

#[test]
fn a_quota_is_reported_when_it_is_near_and_when_it_is_exceeded() {
    let (api, ada) = Api::with_user("ada");
    let limit = i64::from(api.fixture.app.config.plans.limits("free").executions.unwrap());
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let fire = || drop(ada.fire(&json!({"id": cue.id})));
    let use_up =
        |used: i64| api.fixture.sql(&format!("UPDATE monthly_usage SET executions = {used}"));
    fire();
    let mut stream = EventReader::follow(api.addr(), &ada, "?types=quota");
    use_up(limit * 4 / 5 - 2);
    (0..3).for_each(|_| fire());
    use_up(limit - 1);
    (0..2).for_each(|_| fire());
    let near = json!({"used": limit * 4 / 5, "limit": limit, "at": "2026-01-01T10:00:00Z"});
    assert_eq!(stream.next(), ("quota.near".to_owned(), near));
    let exceeded = json!({"used": limit + 1, "limit": limit, "at": "2026-01-01T10:00:00Z"});
    assert_eq!(stream.next(), ("quota.exceeded".to_owned(), exceeded));
}

#[test]
fn missed_runs_are_an_event() {
    let fixture = Fixture::new();
    let ada = fixture.user("ada");
    let (mut stream, _) =
        fixture.app.events.subscribe(ada, Ipv4Addr::LOCALHOST.into(), None).unwrap();
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
    assert_has(&data, json!({"count": missed, "cue_id": cue.id, "reason": "downtime"}));
    assert!(data["first"].is_string() && data["last"].is_string(), "{data}");
}

#[test]
fn a_hold_and_its_end_are_events_for_everybody() {
    let server = Server::start(&["--dev"]);
    let (ada, eve) = (server.user(), server.user());
    let mut streams =
        [&ada, &eve].map(|user| EventReader::follow(server.addr(), user, "?types=server"));
    server.sql("INSERT INTO meta (name, value) VALUES ('held_since', 1000)");
    for stream in &mut streams {
        assert_eq!(stream.next().1["state"], "held");
    }
    let mut late = EventReader::open(server.addr(), &ada, "");
    assert_eq!(late.next().1["held"], true);
    server.sql("DELETE FROM meta WHERE name = 'held_since'");
    for stream in &mut streams {
        assert_eq!(stream.next().1["state"], "promoted");
    }
}

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ADA: UserKey = UserKey::new(1);
const EVE: UserKey = UserKey::new(2);

fn single(number: usize) -> Event {
    Event::new(EventType::CueUpdated, ADA, None, &json!({"n": number}))
}

/// All that waits in a stream, as the texts of its data.
fn drain(stream: &mut EventStream) -> Vec<String> {
    let takes = std::iter::repeat_with(|| stream.take(&EventFilter::default()).unwrap());
    takes.take_while(|taken| !taken.is_empty()).flatten().map(|event| event.data).collect()
}

fn numbers(range: impl IntoIterator<Item = usize>) -> Vec<String> {
    range.into_iter().map(|number| json!({ "n": number }).to_string()).collect()
}

#[test]
fn a_write_that_is_rolled_back_emits_nothing() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    let emit = |tx: &cued::store::WriteTx<'_>, number| {
        tx.emit(ADA, EventType::CueUpdated, || Ok(Some(single(number))));
    };
    // All in one batch or not: each write is rolled back alone.
    let writes: Vec<_> = (0..20)
        .map(|number| {
            fixture.app.store.write(move |tx| {
                emit(tx, number);
                if number % 2 == 0 {
                    Ok(())
                } else {
                    Err(Error::refused(ErrorCode::CueNotFound, "no"))
                }
            })
        })
        .collect();
    for write in writes {
        drop(write.wait());
    }
    assert_eq!(drain(&mut stream), numbers((0..20).step_by(2)));
    let fails = fixture.refuse_commits();
    let refused = fixture.app.store.write(move |tx| {
        emit(tx, 99);
        tx.execute("INSERT INTO meta (name, value) VALUES ('x', 1)", [])?;
        Ok(())
    });
    refused.wait().unwrap_err();
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(drain(&mut stream), Vec::<String>::new(), "the commit has failed");
}

#[test]
fn an_event_that_cannot_be_built_does_not_fail_its_write() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    fixture.write(|tx| tx.emit(ADA, EventType::CueUpdated, || Err(Error::fault("no"))));
    assert_eq!(drain(&mut stream), Vec::<String>::new());
}

#[test]
fn nothing_is_built_for_a_user_whom_nobody_follows() {
    let fixture = Fixture::new();
    let _stream = fixture.app.events.subscribe(EVE, HOME, None).unwrap();
    fixture.write(|tx| tx.emit(ADA, EventType::CueUpdated, || panic!("built for nobody")));
}

#[test]
fn events_come_in_the_order_of_the_commits_of_concurrent_writers() {
    let fixture = Fixture::new();
    let (mut stream, _) = fixture.app.events.subscribe(ADA, HOME, None).unwrap();
    let app = Arc::clone(&fixture.app);
    fixture.sql("CREATE TABLE numbers (n INTEGER PRIMARY KEY AUTOINCREMENT)");
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let app = Arc::clone(&app);
            thread::spawn(move || {
                for _ in 0..30 {
                    let write = app.store.write(|tx| {
                        tx.execute("INSERT INTO numbers DEFAULT VALUES", [])?;
                        let number = usize::try_from(tx.last_insert_rowid()).unwrap();
                        tx.emit(ADA, EventType::CueUpdated, || Ok(Some(single(number))));
                        Ok(())
                    });
                    write.wait().unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    fixture.sql("DROP TABLE numbers");
    assert_eq!(drain(&mut stream), numbers(1..=120));
}
