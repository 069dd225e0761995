//! What happens to runs that overlap or take too long: `overlap`, `max_age_seconds` and `outcome_deadline_seconds`
//! (contract §4.16).

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

fn every(span: &str) -> Value {
    json!({"schedule": {"type": "recurring", "every": span}})
}

/// A worker cue that runs every five minutes, unless the policies say otherwise.
fn working(policies: Value) -> Value {
    with(with(worker_cue("work", YEARLY), every("5m")), policies)
}

/// A cue that calls the receiver every five minutes, and again seven minutes after a failure.
fn calling(receiver: &Receiver, policies: Value) -> Value {
    let retry = json!({"retry": {"max_attempts": 3, "backoff_seconds": [420]}});
    with(with(with(webhook_cue("call", YEARLY, &receiver.url()), every("5m")), retry), policies)
}

/// The runs of a cue, oldest first: the minutes at which they were due, and their states.
#[track_caller]
fn assert_runs(user: &Client, cue: &Value, expected: &[(&str, &str)]) {
    let mut runs: Vec<(String, String)> = user
        .executions_of(id(cue))
        .iter()
        .map(|run| {
            let waits = run["waits_for"]["reason"].as_str();
            let waits = waits.map(|it| format!(" for {it}")).unwrap_or_default();
            (run.text("scheduled_for")[11..16].to_owned(), format!("{}{waits}", run.text("status")))
        })
        .collect();
    runs.sort();
    let runs: Vec<_> = runs.iter().map(|(at, state)| (at.as_str(), state.as_str())).collect();
    assert_eq!(runs, expected);
}

/// The newest row of the ledger of missed runs.
#[track_caller]
fn assert_missed(user: &Client, cue: &Value, expected: Value) {
    let missed = user.read(&format!("{}/missed", cue_path(cue)));
    assert_has(&missed["missed"][0], expected);
}

pub fn execution_at(user: &Client, cue: &Value, at: &str) -> Value {
    let runs = user.executions_of(id(cue));
    runs.into_iter().find(|run| run.text("scheduled_for").contains(at)).unwrap()
}

/// The id of that run.
fn id_at(user: &Client, cue: &Value, at: &str) -> String {
    id(&execution_at(user, cue, at)).to_owned()
}

#[track_caller]
fn assert_run(user: &Client, cue: &Value, at: &str, expected: Value) {
    assert_has(&execution_at(user, cue, at), expected);
}

/// Stops the server and starts it again at an instant.
fn outage(server: &mut Server, user: &Client, until: &str) -> Client {
    assert_eq!(server.stop(), Some(0));
    let user = user.at(server.restart_at(until));
    user.settle();
    user
}

fn report(user: &Client, run: &str, success: bool) {
    user.report(run, &json!({"success": success}));
}

#[test]
fn a_run_is_skipped_while_an_earlier_one_is_not_finished() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&working(json!({"overlap": "skip"})));
    assert_eq!(cue["overlap"], "skip");
    user.advance("PT5M");
    let first = user.claim("w");
    user.advance("PT10M");
    assert_runs(&user, &cue, &[("09:05", "delivering")]);
    let ledger = user.read(&format!("{}/missed", cue_path(&cue)));
    let (begin, end) = ("2026-01-05T09:10:00Z", "2026-01-05T09:15:00Z");
    assert_eq!(ledger.list("missed").len(), 1, "runs that one execution skips are one row");
    assert_missed(
        &user,
        &cue,
        json!({"first": begin, "last": end, "count": 2, "reason": "overlap"}),
    );
    let counts = json!({"run_count": 1, "missed_count": 2, "status": "active"});
    assert_has(&user.cue(&cue), counts);
    // A run by hand is not held up, and holds up the next by schedule.
    let by_hand = user.fire(&cue);
    report(&user, &first, true);
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:15", "pending")]);
    assert_missed(&user, &cue, json!({"last": "2026-01-05T09:20:00Z"}));
    report(&user, &by_hand, false);
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:15", "failed"), ("09:25", "pending")]);
    // A run that waits for a later instant is none that is under way.
    user.act(&id_at(&user, &cue, "09:25"), "cancel").expect(200);
    user.fire_with(&cue, &json!({"send_at": "2026-01-06T00:00:00Z"}));
    user.advance("PT5M");
    assert_run(&user, &cue, "09:30", json!({"status": "pending"}));
}

#[test]
fn one_run_waits_and_starts_whatever_ends_the_earlier_one() {
    type End = fn(&Client, &Value);
    let ends: [(&str, End, &str); 5] = [
        ("success", |user, _| report(user, &user.claim("w"), true), "success"),
        ("failure", |user, _| report(user, &user.claim("w"), false), "failed"),
        (
            "cancel",
            |user, cue| drop(user.act(&id_at(user, cue, "09:05"), "cancel").expect(200)),
            "failed",
        ),
        ("age", |user, cue| drop(user.change(cue, &json!({"max_age_seconds": 400}))), "failed"),
        (
            "no claim",
            |user, cue| {
                user.change(cue, &json!({"claim_within_minutes": 11}));
                user.advance("PT4M");
            },
            "failed",
        ),
    ];
    for (what, end, state) in ends {
        let (_server, user) = Server::with_clock_and_user(START);
        let cue = user.create(&working(json!({"overlap": "buffer_one"})));
        user.advance("PT12M");
        assert_runs(&user, &cue, &[("09:05", "pending"), ("09:10", "pending for overlap")]);
        let claimable = user.read("/v1/executions/claimable");
        assert_eq!(claimable.list("executions").len(), 1, "{what}: the other one waits");
        end(&user, &cue);
        user.settle();
        let states = ["09:05", "09:10"].map(|at| execution_at(&user, &cue, at)["status"].clone());
        assert_eq!(states, [state, "pending"], "{what}: it starts");
        assert_eq!(user.claim("w"), id_at(&user, &cue, "09:10"), "{what}");
    }
}

#[test]
fn further_runs_are_skipped_while_one_waits_and_a_lost_claim_frees_the_way() {
    let (_server, user) = Server::with_clock_and_user(START);
    let [cue, retried] = [1, 3].map(|attempts| {
        let retry = json!({"max_attempts": attempts});
        user.create(&working(json!({"overlap": "buffer_one", "retry": retry})))
    });
    user.advance("PT5M");
    let claimed = [user.claim("w"), user.claim("w")];
    user.advance("PT10M");
    for cue in [&cue, &retried] {
        assert_runs(&user, cue, &[("09:05", "delivering"), ("09:10", "pending for overlap")]);
        assert_missed(&user, cue, json!({"count": 1, "reason": "overlap"}));
    }
    // The leases end at 09:20, after the runs of that instant; no heartbeat was sent.
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "failed"), ("09:10", "pending")]);
    user.advance("PT5M");
    let next = ("09:25", "pending for overlap");
    assert_runs(&user, &cue, &[("09:05", "failed"), ("09:10", "pending"), next]);
    assert_runs(&user, &retried, &[("09:05", "pending for overlap"), ("09:10", "pending")]);
    assert!(claimed.iter().all(|id| user.execution(id)["status"] != "delivering"));
}

#[test]
fn a_run_that_has_lost_its_claim_is_never_offered_beside_a_later_one() {
    for overlap in ["skip", "buffer_one"] {
        let (_server, user) = Server::with_clock_and_user(START);
        let cue = user.create(&with(working(every("16m")), json!({"overlap": overlap})));
        let offered = || user.read("/v1/executions/claimable").column("executions", "id");
        user.advance("PT16M");
        let first = user.claim("w");
        // The lease is over at 09:31.
        user.advance("PT15M30S");
        assert_eq!(offered(), [first.as_str()]);
        user.advance("PT8M30S");
        assert_runs(&user, &cue, &[("09:16", "pending for overlap"), ("09:32", "pending")]);
        assert_eq!(offered(), [id_at(&user, &cue, "09:32")], "{overlap}");
        user.act(&first, "claim").expect_error(409, "already_claimed");
        let second = user.claim("w");
        let none = user.post("/v1/executions/claim", &json!({"worker_id": "v"}));
        none.expect_error(409, "claim_failed");
        // It waits as the one run that may, and comes with the end of the other.
        user.advance("PT10M");
        assert_missed(&user, &cue, json!({"first": "2026-01-05T09:48:00Z", "reason": "overlap"}));
        report(&user, &second, true);
        assert_eq!(offered(), [first.as_str()], "{overlap}");
        assert_eq!(user.claim("w"), first, "{overlap}");
        user.advance("PT1M");
        assert_runs(&user, &cue, &[("09:16", "delivering"), ("09:32", "success")]);
    }
}

#[test]
fn a_run_by_hand_that_has_lost_its_claim_is_not_held_up() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&with(working(every("16m")), json!({"overlap": "skip"})));
    let by_hand = user.fire(&cue);
    assert_eq!(user.claim("w"), by_hand);
    // The lease is over at 09:15, and the next run starts at 09:16.
    user.advance("PT16M");
    assert_runs(&user, &cue, &[("09:00", "pending"), ("09:16", "pending")]);
    let claimed = [user.claim("w"), user.claim("w")];
    assert!(claimed.contains(&by_hand), "{claimed:?}");
}

#[test]
fn a_waiting_run_can_be_cancelled_or_started_by_hand_and_starts_without_the_policy() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&working(json!({"overlap": "buffer_one"})));
    let waits_for = |at: &str, expected: Value| {
        assert_run(&user, &cue, at, json!({"status": "pending", "waits_for": expected}));
    };
    let overlap = json!({"reason": "overlap"});
    user.advance("PT10M");
    user.act(&id_at(&user, &cue, "09:10"), "cancel").expect(200);
    user.advance("PT5M");
    let next = ("09:15", "pending for overlap");
    assert_runs(&user, &cue, &[("09:05", "pending"), ("09:10", "failed"), next]);
    user.act(&id_at(&user, &cue, "09:15"), "retry").expect(200);
    user.settle();
    waits_for("09:15", Value::Null);
    user.advance("PT5M");
    waits_for("09:20", overlap);
    user.change(&cue, &json!({"overlap": "allow"}));
    waits_for("09:20", Value::Null);
    user.advance("PT5M");
    waits_for("09:25", Value::Null);
    // The policy holds for the runs that were created without it.
    user.change(&cue, &json!({"overlap": "skip"}));
    user.advance("PT5M");
    assert_missed(&user, &cue, json!({"first": "2026-01-05T09:30:00Z"}));
}

#[test]
fn a_delivery_that_is_retried_holds_up_the_next_run() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let cue = user.create(&calling(&receiver, json!({"overlap": "buffer_one"})));
    user.advance("PT11M");
    assert_runs(&user, &cue, &[("09:05", "retrying"), ("09:10", "pending for overlap")]);
    assert_eq!(receiver.count(), 1);
    receiver.react(Reaction::Status(200));
    user.advance("PT1M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:10", "success")]);
    // The waiting run was sent as soon as the earlier one had ended.
    assert_eq!(receiver.count(), 3);
}

/// A schedule of five minutes that catches up all runs.
fn catching_up() -> Value {
    json!({"schedule": {"type": "recurring", "every": "5m", "catch_up": "all"}})
}

#[test]
fn missed_runs_that_catch_up_do_not_overlap_either() {
    let (first, second) = (("09:05", "pending"), ("09:10", "pending for overlap"));
    for (overlap, expected, skipped) in
        [("skip", &[first][..], 5), ("buffer_one", &[first, second], 4)]
    {
        let (mut server, user) = Server::with_clock_and_user(START);
        let cue = user.create(&with(working(catching_up()), json!({"overlap": overlap})));
        user.settle();
        let user = outage(&mut server, &user, "2026-01-05T09:31:00Z");
        assert_runs(&user, &cue, expected);
        assert_missed(&user, &cue, json!({"count": skipped, "reason": "overlap"}));
    }
}

#[test]
fn a_once_cue_whose_run_is_skipped_has_failed() {
    let (_server, user) = Server::with_clock_and_user(START);
    let schedule = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    let cue = user.create(&working(json!({"overlap": "skip", "schedule": schedule})));
    user.fire(&cue);
    user.advance("PT1H");
    let ended = json!({"status": "failed", "missed_count": 1, "next_run": null});
    assert_has(&user.cue(&cue), ended);
}

#[test]
fn an_execution_that_is_too_old_fails_on_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (receiver, hook) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    let old = with(every("1h"), json!({"max_age_seconds": 600}));
    let told = json!({"on_failure": {"webhook": hook.url()}});
    let webhook = user.create(&calling(&receiver, with(old.clone(), told)));
    let worker = user.create(&working(old));
    user.advance("PT1H");
    let expires = |status: &str| json!({"status": status, "expires_at": "2026-01-05T10:10:00Z"});
    // The next attempt would be at 10:14.
    user.advance("PT9M59.999S");
    assert_run(&user, &webhook, "10:00", expires("retrying"));
    assert_run(&user, &worker, "10:00", expires("pending"));
    user.advance("PT0.001S");
    let failed = execution_at(&user, &webhook, "10:00");
    let expired = |attempts: u32| json!({"status": "failed", "cause": "expired", "attempts": attempts, "expires_at": null});
    assert_has(&failed, expired(2));
    assert_contains(
        failed.text("error_message"),
        &["600 s", "max_age_seconds", "the URL returned 500"],
    );
    assert_run(&user, &worker, "10:00", expired(0));
    // `on_failure` acts.
    assert_eq!(hook.deliveries()[0].json()["last_error"], failed["error_message"]);
    assert_eq!(receiver.count(), 2, "it is not tried again");
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    assert_eq!(user.total("/v1/executions?cause=expired"), 2);
}

#[test]
fn an_attempt_that_began_in_time_may_still_succeed() {
    let (_server, user) = Server::with_clock_and_user(START);
    user.create(&working(json!({"max_age_seconds": 60, "claim_within_minutes": null})));
    user.advance("PT5M");
    let claimed = user.claim("w");
    user.advance("PT3M");
    assert_eq!(user.execution(&claimed)["status"], "delivering");
    report(&user, &claimed, true);
    assert_has(&user.execution(&claimed), json!({"status": "success", "cause": null}));
    // One that loses its claim after its age does not wait for another worker.
    user.advance("PT2M");
    let claimed = user.claim("w");
    user.advance("PT16M");
    assert_has(&user.execution(&claimed), json!({"status": "failed", "cause": "expired"}));
}

#[test]
fn the_age_counts_from_the_scheduled_instant_also_after_a_downtime() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&with(working(catching_up()), json!({"max_age_seconds": 720})));
    user.advance("PT5M");
    let user = outage(&mut server, &user, "2026-01-05T09:23:00Z");
    let (failed, pending) = (|at| (at, "failed"), |at| (at, "pending"));
    let expected = [failed("09:05"), failed("09:10"), pending("09:15"), pending("09:20")];
    assert_runs(&user, &cue, &expected);
    // A change holds for those that wait.
    user.change(&cue, &json!({"max_age_seconds": 240}));
    user.settle();
    assert_run(&user, &cue, "09:15", json!({"cause": "expired"}));
    user.change(&cue, &json!({"max_age_seconds": null}));
    assert_run(&user, &cue, "09:20", json!({"expires_at": null}));
    user.advance("PT1M30S");
    assert_run(&user, &cue, "09:20", json!({"status": "pending"}));
}

#[test]
fn nobody_has_reported_the_outcome_in_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (receiver, hook) = (Receiver::start(), Receiver::start());
    let on_failure = json!({"webhook": hook.url(), "pause": true});
    let policies = json!({"outcome_deadline_seconds": 60, "on_failure": on_failure});
    let cue = user.create(&calling(&receiver, policies));
    assert_eq!(cue["outcome_deadline_seconds"], 60);
    user.advance("PT5M");
    let run = id_at(&user, &cue, "09:05");
    let state = |outcome: Value, due: Value| {
        let expected =
            json!({"status": "success", "outcome_state": outcome, "outcome_due_at": due});
        assert_has(&user.execution(&run), expected);
    };
    state(Value::Null, json!("2026-01-05T09:06:00Z"));
    user.advance("PT59.999S");
    state(Value::Null, json!("2026-01-05T09:06:00Z"));
    user.advance("PT0.001S");
    state(json!("missing"), Value::Null);
    let alert = user.read("/v1/alerts")["alerts"][0].clone();
    assert_has(
        &alert,
        json!({"alert_type": "outcome_missing", "execution_id": run, "severity": "warning"}),
    );
    assert_contains(alert.text("message"), &["call", "60 s"]);
    assert_contains(hook.deliveries()[0].json().text("last_error"), &["no outcome", "60 s"]);
    // The delivery has succeeded.
    assert_has(&user.cue(&cue), json!({"status": "paused", "failing": 0}));
    assert_eq!(user.total("/v1/executions?outcome_state=missing"), 1);
    user.act(&run, "verify").expect_error(409, "invalid_state");
    report(&user, &run, true);
    assert_eq!(user.execution(&run)["outcome_state"], "reported_success");
}

#[test]
fn a_report_in_time_and_a_response_with_an_outcome_meet_the_deadline() {
    let (_server, user) = Server::with_clock_and_user(START);
    let success = Reaction::Full(200, Vec::new(), r#"{"success": true}"#.to_owned());
    let (plain, reporting) = (Receiver::start(), Receiver::with(success));
    let deadline = json!({"outcome_deadline_seconds": 60});
    let reported = user.create(&calling(&plain, deadline.clone()));
    let callback = json!({"url": reporting.url(), "outcome_from_response": true});
    let responding = calling(&reporting, with(deadline, json!({"callback": callback})));
    let responding = user.create(&responding);
    let silent = user.create(&calling(&plain, json!({})));
    user.advance("PT5M");
    report(&user, &id_at(&user, &reported, "09:05"), false);
    user.advance("PT2M");
    for (cue, state) in [
        (&reported, json!("reported_failure")),
        (&responding, json!("reported_success")),
        (&silent, Value::Null),
    ] {
        assert_run(&user, cue, "09:05", json!({"outcome_state": state}));
    }
    assert_eq!(user.total("/v1/alerts"), 0);
    // Another deadline holds for deliveries that wait, and none removes it.
    user.advance("PT3M");
    for (seconds, due) in
        [(json!(3_600), json!("2026-01-05T10:10:00Z")), (Value::Null, Value::Null)]
    {
        user.change(&reported, &json!({"outcome_deadline_seconds": seconds}));
        assert_run(&user, &reported, "09:10", json!({"outcome_due_at": due}));
    }
}
