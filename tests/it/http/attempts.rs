//! The list of attempts of an execution, and the fields of an execution that summarize them.

use std::io::Write as _;

use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

/// A cue with three attempts.
fn cue(receiver: &Receiver) -> Value {
    let retry = json!({"retry": {"max_attempts": 3, "backoff_minutes": [1]}});
    with(webhook_cue("sync", YEARLY, &receiver.url()), retry)
}

/// One for workers, with two.
fn worker() -> Value {
    with(worker_cue("report", YEARLY), json!({"retry": {"max_attempts": 2}}))
}

/// Fires the cue and waits until the attempts that are due now have ended. Returns the path of the execution.
fn fire(user: &Client, cue: &Value) -> String {
    let execution = user.fire(cue);
    user.settle();
    format!("/v1/executions/{execution}")
}

fn attempts(user: &Client, execution: &str) -> Vec<Value> {
    user.read(&format!("{execution}/attempts")).list("attempts").clone()
}

/// The paths of the executions of a list.
fn listed(user: &Client, query: &str) -> Vec<String> {
    let list = user.read(&format!("/v1/executions?{query}"));
    list.list("executions").iter().map(|it| format!("/v1/executions/{}", id(it))).collect()
}

fn column(attempts: &[Value], name: &str) -> Vec<Value> {
    attempts.iter().map(|attempt| attempt[name].clone()).collect()
}

#[test]
fn every_attempt_is_listed_with_its_cause_and_the_answer_of_the_receiver() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let headers = vec![("X-Why", "maintenance".to_owned()), ("Set-Cookie", "id=secret".to_owned())];
    receiver.first([Reaction::Full(503, headers, "come back later".to_owned()), Reaction::HangUp]);
    let execution = fire(&user, &cue);
    let first = attempts(&user, &execution);
    assert_eq!(column(&first, "result"), ["retrying"], "it is not listed twice while it waits");
    assert_eq!(user.read(&execution)["cause"], "status_5xx");
    user.advance("PT2M");
    let all = attempts(&user, &execution);
    assert_eq!(column(&all, "attempt"), [1, 2, 3]);
    assert_eq!(column(&all, "result"), ["retrying", "retrying", "success"]);
    assert_eq!(json!(column(&all, "cause")), json!(["status_5xx", "connection", null]));
    assert_eq!(json!(column(&all, "http_status")), json!([503, null, 200]));
    assert_eq!(json!(column(&all, "response_body")), json!(["come back later", null, ""]));
    assert_has(&all[0], json!({"error_message": "the URL returned 503", "started_at": START}));
    let next = json!(["2026-01-05T00:01:00Z", "2026-01-05T00:02:00Z", null]);
    assert_eq!(json!(column(&all, "next_retry")), next);
    let kept = all[0].list("response_headers");
    assert!(kept.contains(&json!(["x-why", "maintenance"])), "{kept:?}");
    assert!(!json!(kept).to_string().contains("secret"), "{kept:?}");
    assert!(all[2]["response_headers"].is_null(), "a success keeps none");
    assert!(all.iter().all(|attempt| attempt["duration_ms"].as_i64().unwrap() >= 0), "{all:?}");
    assert!(
        all.iter().all(|attempt| attempt["worker_id"].is_null() && attempt["ended_at"].is_string())
    );
    let shown = user.read(&execution);
    let last = json!({"cause": null, "max_attempts": 3, "cue_name": "sync", "late_ms": 0});
    assert_has(&shown, with(last, json!({"duration_ms": all[2]["duration_ms"]})));
}

#[test]
fn a_closed_kept_connection_is_no_attempt_and_a_body_that_breaks_off_no_failure() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    fire(&user, &cue);
    let cut = Reaction::script(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
    });
    receiver.first([Reaction::script(|_| ()), cut]);
    let execution = fire(&user, &cue);
    let all = attempts(&user, &execution);
    let note = "returned 200, but the connection was closed before the response was complete";
    assert_eq!((all.len(), receiver.count()), (1, 3));
    assert_has(
        &all[0],
        json!({"result": "success", "http_status": 200, "cause": null, "error_message": note, "response_body": "half"}),
    );
    assert_has(&user.read(&execution), json!({"status": "success", "error_message": note}));
}

#[test]
fn a_body_is_truncated_only_where_something_was_cut() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let x = |count: usize| "x".repeat(count);
    let cue = user.create(&cue(&receiver));
    for (body, shown, truncated) in [
        (x(1_996), 1_996, false),
        (x(1_997), 1_997, false),
        (x(2_000), 2_000, false),
        (x(2_001), 2_000, true),
        (x(100_000), 2_000, true),
        ("é".repeat(1_000), 2_000, false),
        (x(1) + &"é".repeat(1_000), 1_999, true),
        (x(1_996) + "🦀", 2_000, false),
        (x(1_997) + "🦀", 1_997, true),
        (x(1_999) + "🦀", 1_999, true),
        (x(2_000) + "🦀", 2_000, true),
    ] {
        let answer = |status| Reaction::Full(status, Vec::new(), body.clone());
        receiver.first([answer(503), answer(200)]);
        let execution = fire(&user, &cue);
        user.advance("PT2M");
        let all = attempts(&user, &execution);
        assert_eq!(column(&all, "response_body"), [&body[..shown]; 2]);
        assert_eq!(column(&all, "response_truncated"), [truncated; 2], "{} bytes", body.len());
        assert_eq!(user.read(&execution)["response_body"], body[..shown]);
    }
    // Each byte that is no text is shown as three.
    let bytes =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 667\r\n\r\n".as_slice(), &[0xff; 667]].concat();
    receiver.first([Reaction::Bytes(bytes.into())]);
    let last = attempts(&user, &fire(&user, &cue)).remove(0);
    assert_eq!(last["response_body"], "\u{fffd}".repeat(666));
    assert_eq!(last["response_truncated"], true);
}

#[test]
fn a_run_that_ends_at_once_writes_no_row_of_an_attempt() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    receiver.first([Reaction::Status(200), Reaction::Status(410)]);
    let (good, gone) = (fire(&user, &cue), fire(&user, &cue));
    assert_eq!(server.count("SELECT count(*) FROM attempts"), 0);
    assert_eq!(column(&attempts(&user, &good), "result"), ["success"]);
    assert_eq!(column(&attempts(&user, &gone), "result"), ["failed"]);
    assert_eq!(column(&attempts(&user, &gone), "cause"), ["status_4xx"]);
}

#[test]
fn a_running_attempt_has_no_result_and_shows_nothing_of_the_one_before() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let waiting = user.fire_with(&cue, &json!({"send_at": "2026-01-06T00:00:00Z"}));
    let path = format!("/v1/executions/{waiting}");
    assert_eq!(attempts(&user, &path), [Value::Null; 0]);
    assert!(user.read(&path)["late_ms"].is_null());
    let worker = user.create(&worker());
    let run = fire(&user, &worker);
    for number in [1, 2] {
        user.post(&format!("{run}/claim"), &json!({"worker_id": "w1"})).expect(200);
        let running = attempts(&user, &run).pop().unwrap();
        let none =
            json!({"result": null, "error_message": null, "ended_at": null, "duration_ms": null});
        assert_has(&running, with(none, json!({"attempt": number, "worker_id": "w1"})));
        user.advance("PT15M");
    }
}

#[test]
fn a_lost_claim_and_a_report_are_attempts_of_their_workers() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker());
    let execution = fire(&user, &cue);
    user.post(&format!("{execution}/claim"), &json!({"worker_id": "w1"})).expect(200);
    user.advance("PT15M");
    user.post(&format!("{execution}/claim"), &json!({"worker_id": "w2"})).expect(200);
    user.advance("PT90S");
    let error = "x".repeat(3_000);
    user.post(&format!("{execution}/outcome"), &json!({"success": false, "error": error}))
        .expect(200);
    let all = attempts(&user, &execution);
    assert_eq!(column(&all, "result"), ["claim_lost", "failed"]);
    assert_eq!(column(&all, "worker_id"), ["w1", "w2"]);
    assert_eq!(column(&all, "duration_ms"), [900_000, 90_000]);
    // No time is planned for a worker.
    assert_eq!(column(&all, "next_retry"), [Value::Null, Value::Null]);
    assert!(all[0].text("error_message").contains("the claim of worker w1 expired"));
    let shown = user.read(&execution);
    assert_eq!(shown["error_message"], "x".repeat(2_000), "the reported error, shortened");
    assert_eq!(shown["outcome"]["error"], error);
    assert_eq!((&shown["duration_ms"], &shown["cause"]), (&json!(90_000), &Value::Null));
}

#[test]
fn the_last_lost_claim_is_the_last_attempt_even_after_a_late_report() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker());
    let execution = fire(&user, &cue);
    for _ in 0..2 {
        user.post(&format!("{execution}/claim"), &json!({"worker_id": "w1"})).expect(200);
        user.advance("PT15M");
    }
    assert_eq!(user.read(&execution)["status"], "failed");
    user.post(&format!("{execution}/outcome"), &json!({"success": true})).expect(200);
    assert_eq!(column(&attempts(&user, &execution), "result"), ["claim_lost", "claim_lost"]);
    assert_eq!(user.read(&execution)["status"], "success");
}

#[test]
fn replays_are_found_by_the_execution_that_they_repeat() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let original = fire(&user, &cue);
    let id = original.rsplit('/').next().unwrap();
    let replay = user.post(&format!("{original}/replay"), &json!({})).expect(200);
    assert_eq!(user.read(&original)["replayed_from"], Value::Null);
    let list = user.read(&format!("/v1/executions?replayed_from={id}"));
    assert_eq!((&list["total"], &list["executions"][0]["id"]), (&json!(1), &replay["id"]));
    assert_eq!(list["executions"][0]["replayed_from"], id);
    let other = server.client().register("eve@example.com");
    assert_eq!(other.read(&format!("/v1/executions?replayed_from={id}"))["total"], 0);
    other.get(&format!("{original}/attempts")).expect_error(404, "execution_not_found");
    user.get("/v1/executions/none/attempts").expect_error(404, "execution_not_found");
}

#[test]
fn lists_are_filtered_by_time_cause_and_failing_cues() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let (good, bad) = (user.create(&cue(&receiver)), user.create(&cue(&receiver)));
    receiver.first([Reaction::Status(200), Reaction::Status(410)]);
    let first = &fire(&user, &good);
    user.advance("PT1H");
    let second = &fire(&user, &bad);
    let ids = |query: &str| listed(&user, query);
    assert_eq!(ids("since=2026-01-05T00:30:00Z"), [second.as_str()]);
    // The end is not in the range.
    assert_eq!(ids("until=2026-01-05T02:00:00+01:00"), [first.as_str()]);
    assert_eq!(
        ids("since=2026-01-05T00:00:00Z&until=2026-01-05T01:00:00.001Z"),
        [second.as_str(), first]
    );
    assert_eq!(ids("cause=status_4xx"), [second.as_str()]);
    assert_eq!(ids("cause=timeout"), [""; 0]);
    assert_eq!(ids("failing_cues=true"), [second.as_str()]);
    assert_eq!(ids("failing_cues=false"), [second.as_str(), first]);
}

#[test]
fn the_request_of_an_attempt_is_built_as_it_was_sent() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = with(cue(&receiver), json!({"payload": {"text": "ü \"quoted\""}}));
    cue["callback"]["headers"] = json!({"Authorization": "Bearer own"});
    let cue = user.create(&cue);
    receiver.first([Reaction::Status(500)]);
    let execution = fire(&user, &cue);
    let next = user.read(&format!("{execution}/request?attempt=2"));
    assert!(next.text("why").starts_with("not sent yet"), "{next}");
    assert!(!next["headers"].to_string().contains("ignature"), "{next}");
    user.advance("PT1M");
    let sent = receiver.deliveries();
    for (number, sent) in [("1", &sent[0]), ("2", &sent[1])] {
        let shown = user.read(&format!("{execution}/request?attempt={number}"));
        assert_eq!((&shown["method"], &shown["url"]), (&json!("POST"), &json!(receiver.url())));
        assert_eq!(shown["body"], String::from_utf8_lossy(&sent.body).as_ref());
        // The test clock stood still, so time and signatures are the same too.
        for pair in shown.list("headers") {
            let (name, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            assert_eq!(sent.header(&name.to_lowercase()), Some(value), "{name}");
        }
        assert_eq!(shown["exact"], false);
        assert!(!shown.text("why").contains("changed since"), "{shown}");
    }
    let [latest, second] =
        ["", "?attempt=2"].map(|query| user.read(&format!("{execution}/request{query}")));
    assert_eq!(latest, second, "the latest attempt is the default");
    user.advance("PT1M");
    user.change(&cue, &json!({"callback": {"method": "GET"}}));
    user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    let shown = user.read(&format!("{execution}/request"));
    assert_eq!((&shown["method"], &shown["body"]), (&json!("GET"), &Value::Null));
    let changes = "the cue may have been changed since; the webhook secret was replaced since";
    assert_contains(shown.text("why"), &[changes]);
}

#[test]
fn a_request_that_cannot_be_shown_is_refused() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let execution = fire(&user, &user.create(&cue(&receiver)));
    for (attempt, message) in
        [("2", "has 1 attempts so far"), ("0", "greater than or equal to 1"), ("x", "integer")]
    {
        let refused = user.get(&format!("{execution}/request?attempt={attempt}"));
        let refused = refused.expect_error(422, "validation_error");
        assert!(refused["detail"][0].text("msg").contains(message), "{refused}");
    }
    let run = fire(&user, &user.create(&worker()));
    user.get(&format!("{run}/request")).expect_error(409, "invalid_state");
    let other = server.client().register("eve@example.com");
    other.get(&format!("{execution}/request")).expect_error(404, "execution_not_found");
}

/// Ends the program during a delivery, and holds the file, so that the run waits after the restart.
fn cut_off_and_hold(server: &mut Server) {
    server.kill();
    server.sql("INSERT INTO meta (name, value) VALUES ('held_since', 0)");
    server.restart();
}

#[test]
fn an_attempt_that_was_cut_off_is_listed_once_and_changes_no_other() {
    let ((mut server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    receiver.first([Reaction::Status(503), Reaction::Hang]);
    let execution = fire(&user, &cue);
    let first = user.read(&format!("{execution}/request?attempt=1"))["headers"].clone();
    user.post("/v1/test/clock", &json!({"advance": "PT30S"})).expect(200);
    user.post(&format!("{execution}/retry"), &json!({})).expect(200);
    receiver.wait_hanging(1);
    receiver.react(Reaction::Hang);
    let other = format!("/v1/executions/{}", user.fire(&cue));
    receiver.wait_hanging(2);
    cut_off_and_hold(&mut server);
    let user = user.at(server.addr());
    let all = attempts(&user, &execution);
    assert_eq!(column(&all, "attempt"), [1, 2]);
    assert_eq!(column(&all, "result"), ["retrying", "cut"]);
    assert_eq!(json!(column(&all, "started_at")), json!([START, "2026-01-05T00:00:30Z"]));
    let again = user.read(&format!("{execution}/request?attempt=1"));
    assert_eq!(again["headers"], first, "signed at its own start");
    // The first attempt of the other run was cut off.
    let shown = user.read(&format!("{other}/request"));
    assert_contains(shown.text("why"), &["may have been sent, and was then cut off"]);
    assert!(!shown["headers"].to_string().contains("ignature"), "{shown}");
    for run in [&execution, &other] {
        user.post(&format!("{run}/cancel"), &json!({})).expect(200);
    }
    assert_eq!(attempts(&user, &execution), all);
    let shown = user.read(&format!("{other}/request"));
    assert!(shown.text("why").contains("the execution has ended since"), "{shown}");
}

#[test]
fn the_request_of_a_run_that_ended_before_its_first_attempt_is_shown() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&with(cue(&receiver), json!({"payload": {"n": 1}})));
    let later = json!({"send_at": "2026-01-06T00:00:00Z"});
    let run = format!("/v1/executions/{}", user.fire_with(&cue, &later));
    user.post(&format!("{run}/cancel"), &json!({})).expect(200);
    let shown = user.read(&format!("{run}/request"));
    assert!(shown.text("why").starts_with("it was never sent"), "{shown}");
    assert_eq!((&shown["url"], &shown["body"]), (&json!(receiver.url()), &json!("{\"n\": 1}")));
    assert!(!shown["headers"].to_string().contains("ignature"), "{shown}");
    user.get(&format!("{run}/request?attempt=1")).expect_error(422, "validation_error");
}

#[test]
fn a_range_of_time_tells_both_passes_of_a_repeated_hour_apart() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-10-25T00:30:00Z"), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let first = fire(&user, &cue);
    user.advance("PT1H");
    let second = fire(&user, &cue);
    // In Berlin both were created at 02:30.
    for (query, expected) in [
        ("since=2026-10-25T02:30:00%2B02:00", vec![&second, &first]),
        ("since=2026-10-25T02:30:00%2B01:00", vec![&second]),
        ("until=2026-10-25T02:30:00%2B01:00", vec![&first]),
        ("until=2026-10-25T02:30:00%2B02:00", vec![]),
        ("since=2026-10-25T02:30:00%2B02:00&until=2026-10-25T02:30:00%2B01:00", vec![&first]),
    ] {
        assert_eq!(listed(&user, query).iter().collect::<Vec<_>>(), expected, "{query}");
    }
}
