//! `callback.flow`: limits that cues share (contract §4.16).

use crate::http::run_policies::{execution_at, path};
use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

fn in_flow(receiver: &Receiver, name: &str, flow: Value) -> Value {
    json!({
        "name": name,
        "schedule": {"type": "once", "at": "2026-01-05T09:01:00Z"},
        "callback": {"url": receiver.url(), "flow": flow},
    })
}

fn flows(user: &Client) -> Vec<Value> {
    user.get("/v1/flows").expect(200)["flows"].as_array().unwrap().clone()
}

#[test]
fn a_flow_spaces_the_starts_of_its_attempts() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (little, other) = (Receiver::start(), Receiver::start());
    let authority = little.url().split('/').nth(2).unwrap().to_owned();
    let cues: Vec<Value> = (0..5)
        .map(|number| {
            user.create(&in_flow(&little, &format!("{number}"), json!({"per_minute": 10})))
        })
        .collect();
    assert_eq!(
        cues[0]["callback"]["flow"],
        json!({"key": authority, "parallelism": null, "per_minute": 10})
    );
    user.create(&in_flow(&other, "other", Value::Null));
    user.advance("PT1M");
    assert_eq!(little.count(), 1, "another cue of the account is not delayed");
    assert_eq!(other.count(), 1, "another cue of the account is not delayed");
    let waiting = execution_at(&user, &cues[1], "09:01");
    assert_has(
        &waiting,
        json!({"status": "pending", "waits_for": {"reason": "flow", "key": authority}}),
    );
    let expected = json!([{"key": authority, "parallelism": null, "per_minute": 10, "cues": 5, "waiting": 4, "running": 0}]);
    assert_eq!(json!(flows(&user)), expected);
    user.advance("PT11.999S");
    assert_eq!(little.count(), 2);
    user.advance("PT0.001S");
    assert_eq!(little.count(), 3);
    // A restart does not exceed the rate.
    assert_eq!(server.stop(), Some(0));
    server.restart_at("2026-01-05T09:01:13Z");
    let user = user.at(server.addr());
    user.settle();
    assert_eq!(little.count(), 3);
    user.advance_to("2026-01-05T09:01:18Z");
    assert_eq!(little.count(), 4);
    // What waits is sent in its order, at its turn.
    user.advance("PT1M");
    let starts: Vec<Value> =
        cues.iter().map(|cue| execution_at(&user, cue, "09:01")["started_at"].clone()).collect();
    let expected = [0, 6, 12, 18, 24].map(|second| format!("2026-01-05T09:01:{second:02}Z"));
    assert_eq!(json!(starts), json!(expected));
    assert_eq!(flows(&user)[0]["waiting"], 0);
}

#[test]
fn the_strictest_limits_of_the_cues_of_a_flow_hold_and_change_at_once() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let flow = |per_minute: u32| json!({"key": "nas", "per_minute": per_minute});
    let fast = user.create(&in_flow(&receiver, "fast", flow(60)));
    let slow = user.create(&in_flow(&receiver, "slow", flow(1)));
    let third = user.create(&in_flow(&receiver, "third", flow(60)));
    user.advance("PT1M30S");
    assert_eq!(receiver.count(), 1);
    user.patch(&path(&slow), &json!({"callback": {"flow": {"key": "nas", "per_minute": 30}}}))
        .expect(200);
    user.settle();
    assert_eq!(receiver.count(), 2, "the last start is longer ago than the new interval");
    user.patch(&path(&third), &json!({"callback": {"flow": null}})).expect(200);
    user.settle();
    assert_eq!(receiver.count(), 3, "it has left the flow");
    assert_eq!(flows(&user)[0]["cues"], 2);
    // A key that was the host and port follows the URL.
    let mut cue = in_flow(&receiver, "moved", json!({"parallelism": 2}));
    cue["schedule"] = json!({"type": "recurring", "every": "5m"});
    let moved = user.create(&cue);
    let patch = json!({"callback": {"url": "http://127.0.0.1:9/"}});
    let moved = user.patch(&path(&moved), &patch).expect(200);
    assert_eq!(moved["callback"]["flow"]["key"], "127.0.0.1:9");
    drop(fast);
}

#[test]
fn a_flow_has_no_more_attempts_under_way_than_it_may() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let (receiver, other) = (Receiver::with(Reaction::Hang), Receiver::start());
    let cue = |receiver: &Receiver, flow: Value| {
        user.create(&json!({
            "name": "flow", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
            "callback": {"url": receiver.url(), "flow": flow},
        }))
    };
    let limited = cue(&receiver, json!({"key": "two", "parallelism": 2}));
    let runs: Vec<String> = (0..5).map(|_| user.fire(&limited)).collect();
    receiver.wait_hanging(2);
    user.fire(&cue(&other, Value::Null));
    other.wait_for(1);
    let flow = until("two run", || flows(&user).into_iter().find(|flow| flow["running"] == 2));
    assert_eq!((&flow["waiting"], receiver.hanging()), (&json!(3), 2));
    receiver.react(Reaction::Status(200));
    receiver.release();
    receiver.wait_for(5);
    assert!(runs.iter().all(|run| until("it is over", || {
        (user.execution(run)["status"] != "pending").then_some(true)
    })));
}

#[test]
fn what_waits_keeps_the_limits_when_the_key_of_its_flow_changes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let flow = |key: &str| json!({"flow": {"key": key, "per_minute": 1}});
    let mut cue = in_flow(&receiver, "many", flow("old")["flow"].clone());
    cue["schedule"] = json!({"type": "recurring", "every": "1d"});
    let cue = user.create(&cue);
    // The newest 1,000 follow in the write of the change.
    for _ in 0..1_100 {
        user.fire(&cue);
    }
    user.settle();
    assert_eq!(receiver.count(), 1);
    user.patch(&path(&cue), &json!({"callback": flow("new")})).expect(200);
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
    let mut cue = in_flow(&receiver, "late", Value::Null);
    cue["schedule"] = json!({"type": "recurring", "every": "1d"});
    let cue = user.create(&cue);
    for _ in 0..3 {
        user.fire(&cue);
    }
    receiver.wait_hanging(3);
    user.patch(&path(&cue), &json!({"callback": {"flow": {"key": "one", "parallelism": 1}}}))
        .expect(200);
    server.kill();
    server.restart();
    let user = user.at(server.addr());
    let flow = until("one runs", || flows(&user).into_iter().find(|flow| flow["running"] == 1));
    assert_eq!(flow["waiting"], 2);
    receiver.react(Reaction::Status(200));
    receiver.release();
}

#[test]
fn a_default_key_that_is_sent_back_follows_the_url() {
    let (_server, user) = Server::with_clock_and_user(START);
    let host = format!("{}.{}.example.com", "a".repeat(60), "b".repeat(60));
    let cue = user.create(&json!({
        "name": "long", "schedule": {"type": "recurring", "every": "1d"},
        "callback": {"url": format!("https://{host}/a"), "flow": {"parallelism": 1}},
    }));
    let mut callback = cue["callback"].clone();
    assert_eq!(callback["flow"]["key"], format!("{host}:443"));
    let same = user.patch(&path(&cue), &json!({"callback": callback})).expect(200);
    assert_eq!(same["callback"], cue["callback"]);
    callback["url"] = "https://example.com/b".into();
    let moved = user.patch(&path(&cue), &json!({"callback": callback})).expect(200);
    assert_eq!(moved["callback"]["flow"]["key"], "example.com:443");
}

#[test]
fn the_limits_of_a_deleted_cue_hold_no_longer() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let cue = |per_minute: u32| {
        let flow = json!({"key": "nas", "per_minute": per_minute});
        user.create(&in_flow(&receiver, "limited", flow))
    };
    let (strict, _other, _third) = (cue(1), cue(60), cue(60));
    user.advance("PT1M2S");
    assert_eq!(receiver.count(), 1);
    user.delete(&path(&strict)).expect(204);
    user.settle();
    assert_eq!(receiver.count(), 2);
}
