//! `callback.flow`: limits that cues share (contract §4.16).

use crate::http::run_policies::execution_at;
use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

/// A change of the flow of a cue.
fn flow(flow: Value) -> Value {
    json!({"callback": {"flow": flow}})
}

/// A cue in a flow that calls the receiver at the times of `schedule`.
fn cue_of(receiver: &Receiver, name: &str, schedule: Value, flow: Value) -> Value {
    json!({"name": name, "schedule": schedule, "callback": {"url": receiver.url(), "flow": flow}})
}

/// One that calls it at 09:01.
fn in_flow(receiver: &Receiver, name: &str, flow: Value) -> Value {
    cue_of(receiver, name, json!({"type": "once", "at": "2026-01-05T09:01:00Z"}), flow)
}

/// One that calls it every day.
fn daily(receiver: &Receiver, name: &str, flow: Value) -> Value {
    cue_of(receiver, name, json!({"type": "recurring", "every": "1d"}), flow)
}

fn flows(user: &Client) -> Vec<Value> {
    user.read("/v1/flows").list("flows").clone()
}

/// Waits until so many attempts of a flow are under way.
fn running(user: &Client, count: u32) -> Value {
    let is_it = |flow: &Value| flow["running"] == count;
    until("attempts run", || flows(user).into_iter().find(is_it))
}

#[test]
fn a_flow_spaces_the_starts_of_its_attempts() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (little, other) = (Receiver::start(), Receiver::start());
    let authority = little.url().split('/').nth(2).unwrap().to_owned();
    let limits = json!({"per_minute": 10});
    let cues = [0, 1, 2, 3, 4]
        .map(|number| user.create(&in_flow(&little, &number.to_string(), limits.clone())));
    let limits = json!({"key": authority, "parallelism": null, "per_minute": 10});
    assert_eq!(cues[0]["callback"]["flow"], limits);
    user.create(&in_flow(&other, "other", Value::Null));
    user.advance("PT1M");
    assert_eq!((little.count(), other.count()), (1, 1), "another cue is not delayed");
    assert_has(
        &execution_at(&user, &cues[1], "09:01"),
        json!({"status": "pending", "waits_for": {"reason": "flow", "key": authority}}),
    );
    let expected = with(limits, json!({"cues": 5, "waiting": 4, "running": 0}));
    assert_eq!(flows(&user), [expected]);
    user.advance("PT11.999S");
    assert_eq!(little.count(), 2);
    user.advance("PT0.001S");
    assert_eq!(little.count(), 3);
    // A restart does not exceed the rate.
    assert_eq!(server.stop(), Some(0));
    let user = user.at(server.restart_at("2026-01-05T09:01:13Z"));
    user.settle();
    assert_eq!(little.count(), 3);
    user.advance_to("2026-01-05T09:01:18Z");
    assert_eq!(little.count(), 4);
    // What waits is sent in its order, at its turn.
    user.advance("PT1M");
    for (cue, second) in cues.iter().zip([0, 6, 12, 18, 24]) {
        let start = format!("2026-01-05T09:01:{second:02}Z");
        assert_eq!(execution_at(&user, cue, "09:01")["started_at"], start);
    }
    assert_eq!(flows(&user)[0]["waiting"], 0);
}

#[test]
fn the_strictest_limits_of_the_cues_of_a_flow_hold_and_change_at_once() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let nas = |per_minute: u32| json!({"key": "nas", "per_minute": per_minute});
    let [_, slow, third] = [("fast", 60), ("slow", 1), ("third", 60)]
        .map(|(name, per_minute)| user.create(&in_flow(&receiver, name, nas(per_minute))));
    user.advance("PT1M30S");
    assert_eq!(receiver.count(), 1);
    for (cue, change, count, what) in [
        (&slow, nas(30), 2, "the last start is longer ago than the new interval"),
        (&third, Value::Null, 3, "it has left the flow"),
    ] {
        user.change(cue, &flow(change));
        user.settle();
        assert_eq!(receiver.count(), count, "{what}");
    }
    assert_eq!(flows(&user)[0]["cues"], 2);
}

#[test]
fn a_flow_has_no_more_attempts_under_way_than_it_may() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let (receiver, other) = (Receiver::with(Reaction::Hang), Receiver::start());
    let two = json!({"key": "two", "parallelism": 2});
    let limited = user.create(&daily(&receiver, "limited", two));
    let runs: Vec<String> = (0..5).map(|_| user.fire(&limited)).collect();
    receiver.wait_hanging(2);
    user.fire(&user.create(&daily(&other, "other", Value::Null)));
    other.wait_for(1);
    assert_eq!((&running(&user, 2)["waiting"], receiver.hanging()), (&json!(3), 2));
    receiver.react(Reaction::Status(200));
    receiver.release();
    receiver.wait_for(5);
    for run in &runs {
        until_true("it is over", || user.execution(run)["status"] != "pending");
    }
}

#[test]
fn what_waits_keeps_the_limits_when_the_key_of_its_flow_changes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let keyed = |key: &str| json!({"key": key, "per_minute": 1});
    let cue = user.create(&daily(&receiver, "many", keyed("old")));
    // The newest 1,000 follow in the write of the change.
    (0..1_100).for_each(|_| drop(user.fire(&cue)));
    user.settle();
    assert_eq!(receiver.count(), 1);
    user.change(&cue, &flow(keyed("new")));
    user.settle();
    assert_eq!(receiver.count(), 2, "the other flow has not had an attempt");
    assert_eq!(flows(&user)[0]["waiting"], 1_098);
    user.advance("PT1M");
    assert_eq!(receiver.count(), 3);
}

#[test]
fn attempts_that_a_crash_cut_off_are_repeated_within_the_flow_of_their_cue() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    let receiver = Receiver::with(Reaction::Hang);
    let cue = user.create(&daily(&receiver, "late", Value::Null));
    (0..3).for_each(|_| drop(user.fire(&cue)));
    receiver.wait_hanging(3);
    user.change(&cue, &flow(json!({"key": "one", "parallelism": 1})));
    server.kill();
    server.restart();
    assert_eq!(running(&user.at(server.addr()), 1)["waiting"], 2);
    receiver.react(Reaction::Status(200));
    receiver.release();
}

#[test]
fn the_limits_of_a_deleted_cue_hold_no_longer() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let [strict, ..] = [1, 60, 60].map(|per_minute| {
        let limits = json!({"key": "nas", "per_minute": per_minute});
        user.create(&in_flow(&receiver, "limited", limits))
    });
    user.advance("PT1M2S");
    assert_eq!(receiver.count(), 1);
    user.delete(&cue_path(&strict)).expect(204);
    user.settle();
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_flow_gets_its_turn_among_more_waiting_ones_than_a_pass_tries() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (slow, quick) = (Receiver::start(), Receiver::start());
    let fire_twice = |receiver: &Receiver, key: &str, per_minute: u32| {
        let cue = user.create(&daily(receiver, key, json!({"key": key, "per_minute": per_minute})));
        (0..2).for_each(|_| drop(user.fire(&cue)));
    };
    (0..200).for_each(|number| fire_twice(&slow, &format!("slow-{number}"), 1));
    fire_twice(&quick, "quick", 30);
    user.settle();
    assert_eq!((slow.count(), quick.count()), (200, 1));
    user.advance("PT2S");
    assert_eq!((slow.count(), quick.count()), (200, 2));
}
