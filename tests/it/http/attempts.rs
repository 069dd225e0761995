//! The list of attempts of an execution, and the fields of an execution that summarize them.

use std::io::Write as _;

use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

fn cue(receiver: &Receiver) -> Value {
    json!({
        "name": "sync",
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *", "timezone": "UTC"},
        "callback": {"url": receiver.url()},
        "retry": {"max_attempts": 3, "backoff_minutes": [1]},
    })
}

fn worker() -> Value {
    let schedule = json!({"type": "recurring", "cron": "0 0 1 1 *", "timezone": "UTC"});
    let retry = json!({"max_attempts": 2, "backoff_minutes": [1]});
    json!({"name": "report", "transport": "worker", "schedule": schedule, "retry": retry})
}

/// Fires the cue and waits until the attempts that are due now have ended. Returns the path of the execution.
fn fire(user: &Client, cue: &Value) -> String {
    let fired = user.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({})).expect(200);
    user.settle();
    format!("/v1/executions/{}", id(&fired))
}

fn attempts(user: &Client, execution: &str) -> Vec<Value> {
    let list = user.get(&format!("{execution}/attempts")).expect(200);
    list.list("attempts").clone()
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
    assert_eq!(user.get(&execution).expect(200)["cause"], "status_5xx");
    user.advance("PT2M");
    let all = attempts(&user, &execution);
    assert_eq!(column(&all, "attempt"), [1, 2, 3]);
    assert_eq!(column(&all, "result"), ["retrying", "retrying", "success"]);
    assert_eq!(json!(column(&all, "cause")), json!(["status_5xx", "connection", null]));
    assert_eq!(json!(column(&all, "http_status")), json!([503, null, 200]));
    assert_eq!(json!(column(&all, "response_body")), json!(["come back later", null, ""]));
    assert_has(&all[0], json!({"error_message": "the URL returned 503", "started_at": START}));
    assert_eq!(
        json!(column(&all, "next_retry")),
        json!(["2026-01-05T00:01:00Z", "2026-01-05T00:02:00Z", null])
    );
    let kept = all[0].list("response_headers");
    assert!(kept.contains(&json!(["x-why", "maintenance"])), "{kept:?}");
    assert!(!json!(kept).to_string().contains("secret"), "{kept:?}");
    assert!(all[2]["response_headers"].is_null(), "a success keeps none");
    assert!(all.iter().all(|attempt| attempt["duration_ms"].as_i64().unwrap() >= 0), "{all:?}");
    assert!(
        all.iter().all(|attempt| attempt["worker_id"].is_null() && attempt["ended_at"].is_string())
    );
    let shown = user.get(&execution).expect(200);
    assert_eq!((&shown["cause"], &shown["max_attempts"]), (&Value::Null, &json!(3)));
    assert_has(
        &shown,
        json!({"cue_name": "sync", "late_ms": 0, "duration_ms": all[2]["duration_ms"]}),
    );
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
    assert_has(
        &user.get(&execution).expect(200),
        json!({"status": "success", "error_message": note}),
    );
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
        assert_eq!(user.get(&execution).expect(200)["response_body"], body[..shown]);
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
    let rows =
        server.sqlite().query_row("SELECT count(*) FROM attempts", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows.unwrap(), 0);
    assert_eq!(column(&attempts(&user, &good), "result"), ["success"]);
    assert_eq!(column(&attempts(&user, &gone), "result"), ["failed"]);
    assert_eq!(column(&attempts(&user, &gone), "cause"), ["status_4xx"]);
}

#[test]
fn a_running_attempt_has_no_result_and_shows_nothing_of_the_one_before() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let waiting = user
        .post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({"send_at": "2026-01-06T00:00:00Z"}));
    let path = format!("/v1/executions/{}", waiting.expect(200).text("id"));
    assert_eq!(attempts(&user, &path), [Value::Null; 0]);
    assert!(user.get(&path).expect(200)["late_ms"].is_null());
    let worker = user.create(&worker());
    let run = fire(&user, &worker);
    for number in [1, 2] {
        user.post(&format!("{run}/claim"), &json!({"worker_id": "w1"})).expect(200);
        let running = attempts(&user, &run).pop().unwrap();
        assert_eq!((&running["attempt"], &running["result"]), (&json!(number), &Value::Null));
        assert_has(&running, json!({"worker_id": "w1", "error_message": null}));
        assert!(running["ended_at"].is_null() && running["duration_ms"].is_null(), "{running}");
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
    let shown = user.get(&execution).expect(200);
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
    assert_eq!(user.get(&execution).expect(200)["status"], "failed");
    user.post(&format!("{execution}/outcome"), &json!({"success": true})).expect(200);
    assert_eq!(column(&attempts(&user, &execution), "result"), ["claim_lost", "claim_lost"]);
    assert_eq!(user.get(&execution).expect(200)["status"], "success");
}

#[test]
fn replays_are_found_by_the_execution_that_they_repeat() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver));
    let original = fire(&user, &cue);
    let id = original.rsplit('/').next().unwrap();
    let replay = user.post(&format!("{original}/replay"), &json!({})).expect(200);
    assert_eq!(user.get(&original).expect(200)["replayed_from"], Value::Null);
    let list = user.get(&format!("/v1/executions?replayed_from={id}")).expect(200);
    assert_eq!((&list["total"], &list["executions"][0]["id"]), (&json!(1), &replay["id"]));
    assert_eq!(list["executions"][0]["replayed_from"], id);
    let other = server.client().register("eve@example.com");
    assert_eq!(other.get(&format!("/v1/executions?replayed_from={id}")).expect(200)["total"], 0);
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
    let ids = |query: &str| -> Vec<String> {
        let list = user.get(&format!("/v1/executions?{query}")).expect(200);
        let ids = list.list("executions").iter();
        ids.map(|it| format!("/v1/executions/{}", id(it))).collect()
    };
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
    for query in
        ["cause=bad_luck", "since=yesterday", "until=1", "failing_cues=some", "replayed_from=7"]
    {
        let refused =
            user.get(&format!("/v1/executions?{query}")).expect_error(422, "validation_error");
        assert_eq!(refused["detail"][0]["loc"][1], query.split('=').next().unwrap(), "{refused}");
    }
    let swapped = user.get("/v1/executions?since=2026-01-06T00:00:00Z&until=2026-01-05T00:00:00Z");
    assert!(swapped.expect(422)["detail"][0].text("msg").contains("later than since"));
}

#[test]
fn the_request_of_an_attempt_is_built_as_it_was_sent() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = cue(&receiver);
    cue["payload"] = json!({"text": "ü \"quoted\""});
    cue["callback"]["headers"] = json!({"Authorization": "Bearer own"});
    let cue = user.create(&cue);
    receiver.first([Reaction::Status(500)]);
    let execution = fire(&user, &cue);
    let next = user.get(&format!("{execution}/request?attempt=2")).expect(200);
    assert!(next.text("why").starts_with("not sent yet"), "{next}");
    assert!(!next["headers"].to_string().contains("ignature"), "{next}");
    user.advance("PT1M");
    let sent = receiver.deliveries();
    for (number, sent) in [("1", &sent[0]), ("2", &sent[1])] {
        let shown = user.get(&format!("{execution}/request?attempt={number}")).expect(200);
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
    assert_eq!(
        user.get(&format!("{execution}/request")).expect(200),
        user.get(&format!("{execution}/request?attempt=2")).expect(200),
        "the latest attempt is the default"
    );
    user.advance("PT1M");
    user.change(&cue, &json!({"callback": {"method": "GET"}}));
    user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    let shown = user.get(&format!("{execution}/request")).expect(200);
    assert_eq!((&shown["method"], &shown["body"]), (&json!("GET"), &Value::Null));
    let why = shown.text("why");
    assert!(
        why.contains("the cue may have been changed since; the webhook secret was replaced since"),
        "{why}"
    );
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
    let first = user.get(&format!("{execution}/request?attempt=1")).expect(200)["headers"].clone();
    user.post("/v1/test/clock", &json!({"advance": "PT30S"})).expect(200);
    user.post(&format!("{execution}/retry"), &json!({})).expect(200);
    receiver.wait_hanging(1);
    receiver.react(Reaction::Hang);
    let other = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    receiver.wait_hanging(2);
    cut_off_and_hold(&mut server);
    let user = user.at(server.addr());
    let all = attempts(&user, &execution);
    assert_eq!(
        (column(&all, "attempt"), column(&all, "result")),
        (vec![json!(1), json!(2)], vec![json!("retrying"), json!("cut")])
    );
    assert_eq!(json!(column(&all, "started_at")), json!([START, "2026-01-05T00:00:30Z"]));
    let again = user.get(&format!("{execution}/request?attempt=1")).expect(200);
    assert_eq!(again["headers"], first, "signed at its own start");
    // The first attempt of the other run was cut off.
    let other = format!("/v1/executions/{}", id(&other));
    let shown = user.get(&format!("{other}/request")).expect(200);
    assert_contains(shown.text("why"), &["may have been sent, and was then cut off"]);
    assert!(!shown["headers"].to_string().contains("ignature"), "{shown}");
    for run in [&execution, &other] {
        user.post(&format!("{run}/cancel"), &json!({})).expect(200);
    }
    assert_eq!(attempts(&user, &execution), all);
    let shown = user.get(&format!("{other}/request")).expect(200);
    assert!(shown.text("why").contains("the execution has ended since"), "{shown}");
}

#[test]
fn the_request_of_a_run_that_ended_before_its_first_attempt_is_shown() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let mut cue = cue(&receiver);
    cue["payload"] = json!({"n": 1});
    let cue = user.create(&cue);
    let later = json!({"send_at": "2026-01-06T00:00:00Z"});
    let run = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &later).expect(200);
    let run = format!("/v1/executions/{}", id(&run));
    user.post(&format!("{run}/cancel"), &json!({})).expect(200);
    let shown = user.get(&format!("{run}/request")).expect(200);
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
    let found = |query: &str| -> Vec<String> {
        let list = user.get(&format!("/v1/executions?{query}")).expect(200);
        let list = list.list("executions").iter();
        list.map(|it| format!("/v1/executions/{}", id(it))).collect()
    };
    for (query, expected) in [
        ("since=2026-10-25T02:30:00%2B02:00", vec![&second, &first]),
        ("since=2026-10-25T02:30:00%2B01:00", vec![&second]),
        ("until=2026-10-25T02:30:00%2B01:00", vec![&first]),
        ("until=2026-10-25T02:30:00%2B02:00", vec![]),
        ("since=2026-10-25T02:30:00%2B02:00&until=2026-10-25T02:30:00%2B01:00", vec![&first]),
    ] {
        assert_eq!(found(query).iter().collect::<Vec<_>>(), expected, "{query}");
    }
}
