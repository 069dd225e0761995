//! Whole journeys of users through the program.

mod crash;
mod deliveries;
mod documentation;
mod examples;
pub mod monitoring;
mod paging;
mod readme;
mod schedules;
mod stops;
mod time_zones;

use crate::support::*;

fn webhook(receiver: &Receiver, schedule: Value) -> Value {
    json!({"name": "hook", "schedule": schedule, "callback": {"url": receiver.url()}, "payload": {"task": "greet"}})
}

fn worker(schedule: Value) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": {"task": "greet"}})
}

fn cron(line: &str) -> Value {
    json!({"type": "recurring", "cron": line})
}

fn in_zone(line: &str, zone: &str) -> Value {
    json!({"type": "recurring", "cron": line, "timezone": zone})
}

fn at(instant: &str) -> Value {
    json!({"type": "once", "at": instant})
}

/// The due instants of the deliveries, in the order of arrival.
fn due_instants(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|it| it.header("x-cueapi-scheduled-for").unwrap().to_owned()).collect()
}

fn instants_of(executions: &[Value]) -> Vec<&str> {
    executions.iter().map(|it| it.text("scheduled_for")).collect()
}

const START: &str = "2026-01-05T00:00:00Z";
const LATER: &str = "2026-01-05T02:00:00Z";

#[test]
fn a_delivered_execution_is_verified_by_the_evidence_of_its_receiver() {
    let ((mut server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = webhook(&receiver, at("2026-01-05T01:00:00Z"));
    cue["verification"] = json!({"mode": "require_result_url"});
    let cue = user.create(&cue);
    user.advance("PT1H");
    // The receiver identifies the execution by the header of its delivery.
    let run = format!("/v1/executions/{}", receiver.deliveries()[0].execution_id);
    let state = |it: &Value| it["outcome_state"].as_str().map(str::to_owned);
    assert_eq!(state(&user.read(&run)), None, "delivered, without an outcome");
    let report = json!({"success": true, "result": "posted"});
    let response = user.post(&format!("{run}/outcome"), &report).expect(200);
    assert_eq!(state(&response).as_deref(), Some("verification_failed"));
    let evidence = json!({"result_url": "https://example.com/posts/7", "result_type": "post"});
    let response = user.patch(&format!("{run}/evidence"), &evidence).expect(200);
    assert_eq!(state(&response).as_deref(), Some("verified_success"));
    user.post(&format!("{run}/verification-pending"), &json!({})).expect(200);
    let no = json!({"valid": false, "reason": "the post is empty"});
    user.post(&format!("{run}/verify"), &no).expect(200);

    assert_eq!(server.stop(), Some(0));
    let user = user.at(server.restart_at(LATER));
    let shown = user.cue(&cue);
    assert_eq!(shown["status"], "completed", "the delivery counts, whatever its outcome");
    let execution = &shown["executions"][0];
    assert_eq!(state(execution).as_deref(), Some("verification_failed"));
    assert_eq!(execution["evidence"], evidence);
    let verdict = json!({"valid": false, "reason": "the post is empty", "verified_at": "2026-01-05T01:00:00Z"});
    assert_has(execution, json!({"verdict": verdict, "id": user.read(&run)["id"]}));
}

fn create(user: &Client, count: usize, receiver: &Receiver) {
    let cue = webhook(receiver, at("2026-01-05T01:00:00Z"));
    (0..count).for_each(|_| drop(user.create(&cue)));
}

#[test]
fn five_hundred_deliveries_to_a_hanging_host_delay_no_other_host() {
    let server = Server::with_test_clock("2026-01-05T00:00:00Z");
    let (hanging, other) = (Receiver::start(), Receiver::start());
    hanging.react(Reaction::Hang);
    let user = server.user();
    create(&user, 500, &hanging); // all due before the first of the others
    create(&user, 100, &other);
    let moving = user.clone();
    let moved = thread::spawn(move || moving.advance("PT1H"));
    hanging.wait_hanging(1);
    other.wait_for(100);
    // The first one still hangs when all the others have arrived.
    assert_eq!(hanging.hanging(), hanging.count());
    assert!(hanging.count() < 500);
    hanging.release();
    let moved = moved.join().unwrap();
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(600), &json!(600)));
    assert_eq!((hanging.count(), other.count()), (500, 100));
    assert_eq!([hanging.overlaps(), other.overlaps()].concat(), Vec::<String>::new());
}
