//! The response to a delivery as the outcome of the execution (contract §6.10).

use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

/// A longer response is no outcome.
const MAX_BODY: usize = 65_536;

fn cue(receiver: &Receiver, mode: &str) -> Value {
    let more = json!({
        "callback": {"url": receiver.url(), "outcome_from_response": true}, "verification": {"mode": mode},
        "retry": {"max_attempts": 2, "backoff_minutes": [1]},
    });
    with(worker_cue("sync", YEARLY), with(more, json!({"transport": "webhook"})))
}

/// Fires the cue. Returns the path of the execution.
fn fire(user: &Client, cue: &Value) -> String {
    format!("/v1/executions/{}", user.fire(cue))
}

fn answer(status: u16, body: &str) -> Reaction {
    Reaction::Full(status, vec![("Content-Type", "text/plain".to_owned())], body.to_owned())
}

/// Fires the cue, whose receiver answers 200 with this body. Returns the execution after it.
fn shown_after(user: &Client, cue: &Value, receiver: &Receiver, body: &str) -> Value {
    receiver.first([answer(200, body)]);
    let execution = fire(user, cue);
    user.settle();
    user.read(&execution)
}

fn report() -> Value {
    json!({
        "success": true, "result": "charged", "metadata": {"cents": 4_200}, "external_id": "charge:ch_1",
        "result_url": "https://example.com/charges/ch_1", "artifacts": [{"url": "https://example.com/log"}],
        "more": [1, {"fields": "are ignored"}],
    })
}

#[test]
fn the_body_of_a_2xx_response_is_the_outcome_of_the_execution() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver, "none"));
    let shown = shown_after(&user, &cue, &receiver, &report().to_string());
    assert_has(
        &shown,
        json!({
            "status": "success", "outcome_state": "reported_success",
            "outcome": {"success": true, "result": "charged", "metadata": {"cents": 4_200}, "recorded_at": START},
        }),
    );
    let mut evidence = report();
    for name in ["success", "result", "metadata", "more"] {
        evidence.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(shown["evidence"], evidence);
    assert_eq!(shown["response_body"], report().to_string(), "it is kept as before");

    let failed =
        shown_after(&user, &cue, &receiver, r#" {"success": false, "error": "no funds"} "#);
    assert_has(&failed, json!({"status": "success", "outcome_state": "reported_failure"}));
    assert_eq!(failed["outcome"]["error"], "no funds");
    assert_eq!(failed["error_message"], Value::Null);
    assert_eq!(failed["attempts"], 1, "it is not retried");
    assert_eq!(failed["next_retry"], Value::Null, "it is not retried");
    let outcomes = &user.read("/v1/usage")["outcomes"];
    assert_eq!((&outcomes["succeeded"], &outcomes["failed"]), (&json!(1), &json!(1)), "{outcomes}");
    assert_eq!(user.cue(&cue)["failing"], 0, "the deliveries have succeeded");
}

#[test]
fn a_response_is_verified_like_a_report() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let id = r#"{"success": true, "external_id": "charge:ch_1"}"#;
    for (mode, body, state) in [
        ("require_external_id", id, "verified_success"),
        ("require_external_id", r#"{"success": true, "external_id": " "}"#, "verification_failed"),
        ("require_result_url", id, "verification_failed"),
        ("manual", id, "verification_pending"),
        ("manual", r#"{"success": false}"#, "reported_failure"),
    ] {
        let shown = shown_after(&user, &user.create(&cue(&receiver, mode)), &receiver, body);
        assert_eq!(shown["outcome_state"], state, "{mode}: {body}");
    }
    let alerts = user.read("/v1/alerts?alert_type=verification_failed");
    assert_eq!(alerts["total"], 2, "{alerts}");
}

/// Each body goes both ways.
#[test]
fn a_response_is_an_outcome_if_the_same_body_would_be_accepted_as_a_report() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver, "none"));
    let metadata = |bytes: usize| {
        json!({"success": true, "metadata": {"a": "x".repeat(bytes - 8)}}).to_string()
    };
    let artifacts =
        |count: usize| json!({"success": true, "artifacts": vec![0; count]}).to_string();
    // As its shortest text, each number has 18 characters.
    let numbers = |count: usize| {
        format!(r#"{{"success": true, "artifacts": [[{}]]}}"#, vec!["1e15"; count].join(","))
    };
    for (accepted, body) in [
        (true, r#"{"success": true}"#.to_owned()),
        (
            true,
            r#"{"success":false,"result":null,"error":null,"metadata":null,"artifacts":null}"#
                .to_owned(),
        ),
        (true, r#"{"success": true, "result_url": " ", "summary": ""}"#.to_owned()),
        (true, r#"{"success": false, "success": true, "other": 1e300}"#.to_owned()),
        (true, r#"{"success": true, "result": "a\u0000b", "summary": "\u0000"}"#.to_owned()),
        (true, metadata(10_240)),
        (true, artifacts(100)),
        (true, numbers(3_000)),
        (false, metadata(10_241)),
        (false, artifacts(101)),
        (false, numbers(4_000)),
        (false, r#"{"success": true, "artifacts": [{"url": "javascript:alert(1)"}]}"#.to_owned()),
        (false, r#"{"success": true, "artifacts": {}}"#.to_owned()),
        (false, r#"{"success": true, "result_url": "no address"}"#.to_owned()),
        (false, r#"{"success": true, "error": {}}"#.to_owned()),
        (false, r#"{"success": true, "metadata": []}"#.to_owned()),
        (false, r#"{"success": true, "external_id": 7}"#.to_owned()),
        (false, r#"{"success": "true"}"#.to_owned()),
        (false, r#"{"success": null}"#.to_owned()),
        (false, r#"{"result": "done"}"#.to_owned()),
        (false, r#"[{"success": true}]"#.to_owned()),
        (false, r#"{"success": true"#.to_owned()),
        (false, "\u{feff}{\"success\": true}".to_owned()),
        (false, "ok".to_owned()),
    ] {
        let what: String = body.chars().take(100).collect();
        let shown = shown_after(&user, &cue, &receiver, &body);
        assert_eq!(shown.get("outcome").is_some(), accepted, "{what}");
        assert_eq!(shown["status"], "success", "{what}");
        assert_eq!(shown["cause"], Value::Null, "{what}");
        let kept: String = body.chars().take(2_000).collect();
        assert_eq!(shown["response_body"], kept, "it shows why: {what}");
        let other = format!("{}/outcome", fire(&user, &cue));
        user.settle();
        let headers = [("Content-Type", "application/json")];
        let reported = user.call("POST", &other, &headers, body.as_bytes()).unwrap();
        assert_eq!(reported.status == 200, accepted, "{what}: {reported:?}");
    }
}

#[test]
fn a_response_above_the_limit_is_no_outcome() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&cue(&receiver, "none"));
    let of_size = |bytes: usize| {
        let empty = json!({"result": "", "success": true}).to_string().len();
        json!({"result": "x".repeat(bytes - empty), "success": true}).to_string()
    };
    let largest = shown_after(&user, &cue, &receiver, &of_size(MAX_BODY));
    assert_eq!(largest["outcome"].text("result").len(), MAX_BODY - 28);
    assert_eq!(largest.text("response_body").len(), 2_000);
    for bytes in [MAX_BODY + 1, 10 * MAX_BODY] {
        let shown = shown_after(&user, &cue, &receiver, &of_size(bytes));
        assert_eq!((&shown["status"], shown.get("outcome")), (&json!("success"), None), "{bytes}");
        assert_eq!(shown.text("response_body").len(), 2_000, "{bytes}");
    }
}

#[test]
fn only_successful_responses_of_cues_that_ask_for_it_are_outcomes() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let body = r#"{"success": true}"#;
    let mut new = cue(&receiver, "none");
    new["callback"].as_object_mut().unwrap().remove("outcome_from_response");
    let cue = user.create(&new);
    let is_on = |cue: &Value| cue["callback"]["outcome_from_response"].as_bool().unwrap();
    let has_outcome = || shown_after(&user, &cue, &receiver, body).get("outcome").is_some();
    assert!(!is_on(&cue) && !has_outcome(), "it is off by default");
    let patch = |callback: Value| user.change(&cue, &json!({"callback": callback}));
    assert!(is_on(&patch(json!({"outcome_from_response": true}))) && has_outcome());

    // A failed attempt reports nothing; the one that succeeds does.
    receiver.first([answer(500, r#"{"success": false}"#), answer(201, body)]);
    let execution = fire(&user, &cue);
    user.settle();
    assert_eq!(user.read(&execution).get("outcome"), None);
    user.advance("PT1M");
    assert_eq!(user.read(&execution)["outcome"]["success"], true);
    receiver.first([answer(410, body)]);
    let gone = fire(&user, &cue);
    user.settle();
    let gone = user.read(&gone);
    assert_eq!((&gone["status"], gone.get("outcome")), (&json!("failed"), None));

    assert!(!is_on(&patch(json!({"outcome_from_response": false}))) && !has_outcome());
}

#[test]
fn a_report_during_the_delivery_wins_over_the_response() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let reporter = Mutex::new(user.clone());
    // The receiver reports before it answers.
    receiver.react(Reaction::choose(move |delivery| {
        let report = json!({"success": false, "error": "reported by request"});
        let outcome = format!("/v1/executions/{}/outcome", delivery.execution_id);
        reporter.lock().unwrap().post(&outcome, &report).expect(200);
        answer(200, r#"{"success": true, "result": "reported by response"}"#)
    }));
    let cue = user.create(&cue(&receiver, "none"));
    let execution = fire(&user, &cue);
    user.settle();
    let shown = user.read(&execution);
    assert_eq!(shown["status"], "success");
    assert_eq!(shown["outcome"]["success"], false);
    assert_eq!(shown["outcome"]["error"], "reported by request");
    let outcomes = &user.read("/v1/usage")["outcomes"];
    assert_eq!((&outcomes["succeeded"], &outcomes["failed"]), (&json!(0), &json!(1)), "{outcomes}");

    receiver.react(answer(200, r#"{"success": true}"#));
    let execution = fire(&user, &cue);
    user.settle();
    user.post(&format!("{execution}/outcome"), &json!({"success": false}))
        .expect_error(409, "outcome_already_reported");
}

#[test]
fn the_event_of_the_outcome_follows_that_of_the_success() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(answer(200, r#"{"success": false}"#));
    let cue = user.create(&cue(&receiver, "none"));
    let mut stream = EventReader::open(server.addr(), &user, "");
    fire(&user, &cue);
    user.settle();
    user.advance("PT1M");
    let mut events = stream.until_clock_moved();
    events.retain(|(event, _)| event.starts_with("execution."));
    let types: Vec<&str> = events.iter().map(|(event, _)| event.as_str()).collect();
    let expected =
        ["execution.created", "execution.started", "execution.succeeded", "execution.outcome"];
    assert_eq!(types, expected);
    assert_eq!(events.last().unwrap().1["outcome_state"], "reported_failure", "{events:?}");
}
