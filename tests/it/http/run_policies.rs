//! What happens to runs that overlap or take too long: `overlap`, `max_age_seconds` and `outcome_deadline_seconds`
//! (contract §4.16).

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

fn worker_cue(policies: Value) -> Value {
    let schedule = json!({"type": "recurring", "every": "5m"});
    with(json!({"name": "work", "transport": "worker", "schedule": schedule}), policies)
}

fn webhook_cue(receiver: &Receiver, policies: Value) -> Value {
    let schedule = json!({"type": "recurring", "every": "5m"});
    let retry = json!({"max_attempts": 3, "backoff_seconds": [420]});
    let callback = json!({"url": receiver.url()});
    with(
        json!({"name": "call", "schedule": schedule, "callback": callback, "retry": retry}),
        policies,
    )
}

fn with(mut cue: Value, policies: Value) -> Value {
    for (name, value) in policies.as_object().unwrap() {
        cue[name] = value.clone();
    }
    cue
}

pub fn path(cue: &Value) -> String {
    format!("/v1/cues/{}", id(cue))
}

/// The runs of a cue, oldest first: the minutes at which they were due, and their states.
fn runs(user: &Client, cue: &Value) -> Vec<(String, String)> {
    let mut runs: Vec<(String, String)> = user
        .executions_of(id(cue))
        .iter()
        .map(|run| {
            let at = run["scheduled_for"].as_str().unwrap();
            let waits = run["waits_for"]["reason"]
                .as_str()
                .map(|it| format!(" for {it}"))
                .unwrap_or_default();
            (at[11..16].to_owned(), format!("{}{waits}", run["status"].as_str().unwrap()))
        })
        .collect();
    runs.sort();
    runs
}

fn assert_runs(user: &Client, cue: &Value, expected: &[(&str, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(at, state)| ((*at).to_owned(), (*state).to_owned())).collect();
    assert_eq!(runs(user, cue), expected);
}

fn missed(user: &Client, cue: &Value) -> Vec<Value> {
    let missed = user.get(&format!("{}/missed", path(cue))).expect(200);
    missed["missed"].as_array().unwrap().clone()
}

/// Claims the next execution. Returns its id.
fn claim(user: &Client) -> String {
    let claimed = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    claimed["execution_id"].as_str().unwrap().to_owned()
}

pub fn execution_at(user: &Client, cue: &Value, at: &str) -> Value {
    let runs = user.executions_of(id(cue));
    runs.into_iter().find(|run| run["scheduled_for"].as_str().unwrap().contains(at)).unwrap()
}

#[test]
fn a_run_is_skipped_while_an_earlier_one_is_not_finished() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue(json!({"overlap": "skip"})));
    assert_eq!(cue["overlap"], "skip");
    user.advance("PT5M");
    let first = claim(&user);
    user.advance("PT10M");
    assert_runs(&user, &cue, &[("09:05", "delivering")]);
    let expected = json!({"first": "2026-01-05T09:10:00Z", "last": "2026-01-05T09:15:00Z", "count": 2, "reason": "overlap"});
    let ledger = missed(&user, &cue);
    assert_eq!(ledger.len(), 1, "runs that one execution skips are one row: {ledger:?}");
    assert_has(&ledger[0], expected);
    assert_has(
        &user.get(&path(&cue)).expect(200),
        json!({"run_count": 1, "missed_count": 2, "status": "active"}),
    );
    // A run by hand is not held up, and holds up the next by schedule.
    let by_hand = user.fire(&cue);
    user.report(&first, &json!({"success": true}));
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:15", "pending")]);
    assert_eq!(missed(&user, &cue)[0]["last"], "2026-01-05T09:20:00Z");
    user.report(&by_hand, &json!({"success": false}));
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:15", "failed"), ("09:25", "pending")]);
    // A run that waits for a later instant is none that is under way.
    user.post(
        &format!("/v1/executions/{}/cancel", id(&execution_at(&user, &cue, "09:25"))),
        &json!({}),
    )
    .expect(200);
    user.post(&format!("{}/fire", path(&cue)), &json!({"send_at": "2026-01-06T00:00:00Z"}))
        .expect(200);
    user.advance("PT5M");
    assert_eq!(execution_at(&user, &cue, "09:30")["status"], "pending");
}

#[test]
fn one_run_waits_and_starts_whatever_ends_the_earlier_one() {
    type End = fn(&Client, &Server, &Value);
    let first = |user: &Client, cue: &Value| id(&execution_at(user, cue, "09:05")).to_owned();
    let ends: [(&str, End, &str); 5] = [
        (
            "success",
            |user, _, _| drop(user.report(&claim(user), &json!({"success": true}))),
            "success",
        ),
        (
            "failure",
            |user, _, _| drop(user.report(&claim(user), &json!({"success": false}))),
            "failed",
        ),
        (
            "cancel",
            |user, _, cue| {
                let first = execution_at(user, cue, "09:05");
                user.post(&format!("/v1/executions/{}/cancel", id(&first)), &json!({})).expect(200);
            },
            "failed",
        ),
        (
            "age",
            |user, _, cue| {
                drop(user.patch(&path(cue), &json!({"max_age_seconds": 400})).expect(200))
            },
            "failed",
        ),
        (
            "no claim",
            |user, _, cue| {
                user.patch(&path(cue), &json!({"claim_within_minutes": 11})).expect(200);
                user.advance("PT4M");
            },
            "failed",
        ),
    ];
    for (what, end, state) in ends {
        let (server, user) = Server::with_clock_and_user(START);
        let cue = user.create(&worker_cue(json!({"overlap": "buffer_one"})));
        user.advance("PT12M");
        assert_runs(&user, &cue, &[("09:05", "pending"), ("09:10", "pending for overlap")]);
        let claimable = user.get("/v1/executions/claimable").expect(200);
        assert_eq!(
            claimable["executions"].as_array().unwrap().len(),
            1,
            "{what}: the other one waits"
        );
        let _ = first(&user, &cue);
        end(&user, &server, &cue);
        user.settle();
        let runs = runs(&user, &cue);
        assert_eq!(runs[0].1, state, "{what}");
        assert_eq!(runs[1].1, "pending", "{what}: it starts");
        assert_eq!(claim(&user), id(&execution_at(&user, &cue, "09:10")), "{what}");
    }
}

#[test]
fn further_runs_are_skipped_while_one_waits_and_a_lost_claim_frees_the_way() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue =
        user.create(&worker_cue(json!({"overlap": "buffer_one", "retry": {"max_attempts": 1}})));
    let retried =
        user.create(&worker_cue(json!({"overlap": "buffer_one", "retry": {"max_attempts": 3}})));
    user.advance("PT5M");
    let claimed = [claim(&user), claim(&user)];
    user.advance("PT10M");
    for cue in [&cue, &retried] {
        assert_runs(&user, cue, &[("09:05", "delivering"), ("09:10", "pending for overlap")]);
        assert_has(&missed(&user, cue)[0], json!({"count": 1, "reason": "overlap"}));
    }
    // The leases end at 09:20, after the runs of that instant; no heartbeat was sent.
    user.advance("PT5M");
    assert_runs(&user, &cue, &[("09:05", "failed"), ("09:10", "pending")]);
    user.advance("PT5M");
    assert_runs(
        &user,
        &cue,
        &[("09:05", "failed"), ("09:10", "pending"), ("09:25", "pending for overlap")],
    );
    let lost = [("09:05", "pending for overlap"), ("09:10", "pending")];
    assert_runs(&user, &retried, &lost);
    assert!(claimed.iter().all(|id| user.execution(id)["status"] != "delivering"));
}

#[test]
fn a_run_that_has_lost_its_claim_is_never_offered_beside_a_later_one() {
    for overlap in ["skip", "buffer_one"] {
        let (_server, user) = Server::with_clock_and_user(START);
        let policies =
            json!({"overlap": overlap, "schedule": {"type": "recurring", "every": "16m"}});
        let cue = user.create(&worker_cue(policies));
        let offered = || -> Vec<String> {
            let list = user.get("/v1/executions/claimable").expect(200);
            list["executions"].as_array().unwrap().iter().map(|run| id(run).to_owned()).collect()
        };
        user.advance("PT16M");
        let first = claim(&user);
        // The lease is over at 09:31.
        user.advance("PT15M30S");
        assert_eq!(offered(), [first.as_str()]);
        user.advance("PT8M30S");
        assert_runs(&user, &cue, &[("09:16", "pending for overlap"), ("09:32", "pending")]);
        assert_eq!(offered(), [id(&execution_at(&user, &cue, "09:32"))], "{overlap}");
        let path = format!("/v1/executions/{first}/claim");
        user.post(&path, &json!({"worker_id": "v"})).expect_error(409, "already_claimed");
        let second = claim(&user);
        user.post("/v1/executions/claim", &json!({"worker_id": "v"}))
            .expect_error(409, "claim_failed");
        // It waits as the one run that may, and comes with the end of the other.
        user.advance("PT10M");
        assert_has(
            &missed(&user, &cue)[0],
            json!({"first": "2026-01-05T09:48:00Z", "reason": "overlap"}),
        );
        user.report(&second, &json!({"success": true}));
        assert_eq!((offered(), claim(&user)), (vec![first.clone()], first), "{overlap}");
        user.advance("PT1M");
        assert_runs(&user, &cue, &[("09:16", "delivering"), ("09:32", "success")]);
    }
}

#[test]
fn a_run_by_hand_that_has_lost_its_claim_is_not_held_up() {
    let (_server, user) = Server::with_clock_and_user(START);
    let policies = json!({"overlap": "skip", "schedule": {"type": "recurring", "every": "16m"}});
    let cue = user.create(&worker_cue(policies));
    user.post(&format!("{}/fire", path(&cue)), &json!({})).expect(200);
    let by_hand = claim(&user);
    // The lease is over at 09:15, and the next run starts at 09:16.
    user.advance("PT16M");
    assert_runs(&user, &cue, &[("09:00", "pending"), ("09:16", "pending")]);
    let claimed = [claim(&user), claim(&user)];
    assert!(claimed.contains(&by_hand), "{claimed:?}");
}

#[test]
fn a_waiting_run_can_be_cancelled_or_started_by_hand_and_starts_without_the_policy() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue(json!({"overlap": "buffer_one"})));
    user.advance("PT10M");
    let waiting = id(&execution_at(&user, &cue, "09:10")).to_owned();
    user.post(&format!("/v1/executions/{waiting}/cancel"), &json!({})).expect(200);
    user.advance("PT5M");
    assert_runs(
        &user,
        &cue,
        &[("09:05", "pending"), ("09:10", "failed"), ("09:15", "pending for overlap")],
    );
    let waiting = id(&execution_at(&user, &cue, "09:15")).to_owned();
    user.post(&format!("/v1/executions/{waiting}/retry"), &json!({})).expect(200);
    user.settle();
    assert_eq!(user.execution(&waiting)["waits_for"], Value::Null);
    user.advance("PT5M");
    assert_eq!(execution_at(&user, &cue, "09:20")["waits_for"], json!({"reason": "overlap"}));
    user.patch(&path(&cue), &json!({"overlap": "allow"})).expect(200);
    assert_eq!(execution_at(&user, &cue, "09:20")["waits_for"], Value::Null);
    user.advance("PT5M");
    assert_eq!(execution_at(&user, &cue, "09:25")["status"], "pending");
    // The policy holds for the runs that were created without it.
    user.patch(&path(&cue), &json!({"overlap": "skip"})).expect(200);
    user.advance("PT5M");
    assert_eq!(missed(&user, &cue)[0]["first"], "2026-01-05T09:30:00Z");
}

#[test]
fn a_delivery_that_is_retried_holds_up_the_next_run() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let cue = user.create(&webhook_cue(&receiver, json!({"overlap": "buffer_one"})));
    user.advance("PT11M");
    assert_runs(&user, &cue, &[("09:05", "retrying"), ("09:10", "pending for overlap")]);
    assert_eq!(receiver.count(), 1);
    receiver.react(Reaction::Status(200));
    user.advance("PT1M");
    assert_runs(&user, &cue, &[("09:05", "success"), ("09:10", "success")]);
    // The waiting run was sent as soon as the earlier one had ended.
    assert_eq!(receiver.count(), 3);
}

#[test]
fn missed_runs_that_catch_up_do_not_overlap_either() {
    for (overlap, expected, skipped) in [
        ("skip", vec![("09:05", "pending")], 5),
        ("buffer_one", vec![("09:05", "pending"), ("09:10", "pending for overlap")], 4),
    ] {
        let (mut server, user) = Server::with_clock_and_user(START);
        let mut cue = worker_cue(json!({"overlap": overlap}));
        cue["schedule"]["catch_up"] = "all".into();
        let cue = user.create(&cue);
        user.settle();
        assert_eq!(server.stop(), Some(0));
        server.restart_at("2026-01-05T09:31:00Z");
        let user = user.at(server.addr());
        user.settle();
        assert_runs(&user, &cue, &expected);
        assert_has(&missed(&user, &cue)[0], json!({"count": skipped, "reason": "overlap"}));
    }
}

#[test]
fn a_once_cue_whose_run_is_skipped_has_failed() {
    let (_server, user) = Server::with_clock_and_user(START);
    let schedule = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    let cue = user.create(&worker_cue(json!({"overlap": "skip", "schedule": schedule})));
    user.fire(&cue);
    user.advance("PT1H");
    assert_has(
        &user.get(&path(&cue)).expect(200),
        json!({"status": "failed", "missed_count": 1, "next_run": null}),
    );
}

#[test]
fn an_execution_that_is_too_old_fails_on_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let hook = Receiver::start();
    let policies = json!({"max_age_seconds": 600, "on_failure": {"webhook": hook.url()}});
    let every_hour = json!({"type": "recurring", "every": "1h"});
    let mut cue = webhook_cue(&receiver, policies);
    cue["schedule"] = every_hour.clone();
    let webhook = user.create(&cue);
    let mut cue = worker_cue(json!({"max_age_seconds": 600}));
    cue["schedule"] = every_hour;
    let worker = user.create(&cue);
    user.advance("PT1H");
    let expires_at = json!("2026-01-05T10:10:00Z");
    for cue in [&webhook, &worker] {
        assert_eq!(execution_at(&user, cue, "10:00")["expires_at"], expires_at);
    }
    // The next attempt would be at 10:14.
    user.advance("PT9M59.999S");
    assert_eq!(execution_at(&user, &webhook, "10:00")["status"], "retrying");
    assert_eq!(execution_at(&user, &worker, "10:00")["status"], "pending");
    user.advance("PT0.001S");
    let failed = execution_at(&user, &webhook, "10:00");
    assert_has(
        &failed,
        json!({"status": "failed", "cause": "expired", "attempts": 2, "expires_at": null}),
    );
    let message = failed["error_message"].as_str().unwrap();
    assert_contains(message, &["600 s", "max_age_seconds", "the URL returned 500"]);
    let never_claimed = execution_at(&user, &worker, "10:00");
    assert_has(&never_claimed, json!({"status": "failed", "cause": "expired", "attempts": 0}));
    // `on_failure` acts.
    assert_eq!(hook.deliveries()[0].json()["last_error"], failed["error_message"]);
    assert_eq!(receiver.count(), 2, "it is not tried again");
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    let list = user.get("/v1/executions?cause=expired").expect(200);
    assert_eq!(list["total"], 2);
}

#[test]
fn an_attempt_that_began_in_time_may_still_succeed() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue =
        user.create(&worker_cue(json!({"max_age_seconds": 60, "claim_within_minutes": null})));
    user.advance("PT5M");
    let claimed = claim(&user);
    user.advance("PT3M");
    assert_eq!(user.execution(&claimed)["status"], "delivering");
    user.report(&claimed, &json!({"success": true}));
    assert_has(&user.execution(&claimed), json!({"status": "success", "cause": null}));
    // One that loses its claim after its age does not wait for another worker.
    user.advance("PT2M");
    let claimed = claim(&user);
    user.advance("PT16M");
    assert_has(&user.execution(&claimed), json!({"status": "failed", "cause": "expired"}));
    drop(cue);
}

#[test]
fn the_age_counts_from_the_scheduled_instant_also_after_a_downtime() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let mut cue = worker_cue(json!({"max_age_seconds": 720}));
    cue["schedule"]["catch_up"] = "all".into();
    let cue = user.create(&cue);
    user.advance("PT5M");
    assert_eq!(server.stop(), Some(0));
    server.restart_at("2026-01-05T09:23:00Z");
    let user = user.at(server.addr());
    user.settle();
    assert_runs(
        &user,
        &cue,
        &[("09:05", "failed"), ("09:10", "failed"), ("09:15", "pending"), ("09:20", "pending")],
    );
    // A change holds for those that wait.
    user.patch(&path(&cue), &json!({"max_age_seconds": 240})).expect(200);
    user.settle();
    assert_eq!(execution_at(&user, &cue, "09:15")["cause"], "expired");
    user.patch(&path(&cue), &json!({"max_age_seconds": null})).expect(200);
    assert_eq!(execution_at(&user, &cue, "09:20")["expires_at"], Value::Null);
    user.advance("PT1M30S");
    assert_eq!(execution_at(&user, &cue, "09:20")["status"], "pending");
}

#[test]
fn nobody_has_reported_the_outcome_in_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (receiver, hook) = (Receiver::start(), Receiver::start());
    let policies = json!({"outcome_deadline_seconds": 60, "on_failure": {"webhook": hook.url(), "pause": true}});
    let cue = user.create(&webhook_cue(&receiver, policies));
    assert_eq!(cue["outcome_deadline_seconds"], 60);
    user.advance("PT5M");
    let run = execution_at(&user, &cue, "09:05");
    assert_has(
        &run,
        json!({"status": "success", "outcome_state": null, "outcome_due_at": "2026-01-05T09:06:00Z"}),
    );
    user.advance("PT59.999S");
    assert_eq!(user.execution(id(&run))["outcome_state"], Value::Null);
    user.advance("PT0.001S");
    assert_has(
        &user.execution(id(&run)),
        json!({"status": "success", "outcome_state": "missing", "outcome_due_at": null}),
    );
    let alerts = user.get("/v1/alerts").expect(200);
    assert_has(
        &alerts["alerts"][0],
        json!({"alert_type": "outcome_missing", "execution_id": run["id"], "severity": "warning"}),
    );
    assert_contains(alerts["alerts"][0]["message"].as_str().unwrap(), &["call", "60 s"]);
    assert_contains(
        hook.deliveries()[0].json()["last_error"].as_str().unwrap(),
        &["no outcome", "60 s"],
    );
    let shown = user.get(&path(&cue)).expect(200);
    assert_eq!(shown["status"], "paused", "the delivery has succeeded");
    assert_eq!(shown["failing"], 0, "the delivery has succeeded");
    assert_eq!(user.get("/v1/executions?outcome_state=missing").expect(200)["total"], 1);
    user.post(&format!("/v1/executions/{}/verify", id(&run)), &json!({}))
        .expect_error(409, "invalid_state");
    user.report(id(&run), &json!({"success": true}));
    assert_eq!(user.execution(id(&run))["outcome_state"], "reported_success");
}

#[test]
fn a_report_in_time_and_a_response_with_an_outcome_meet_the_deadline() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (plain, reporting) = (
        Receiver::start(),
        Receiver::with(Reaction::Full(200, Vec::new(), r#"{"success": true}"#.to_owned())),
    );
    let reported = user.create(&webhook_cue(&plain, json!({"outcome_deadline_seconds": 60})));
    let mut cue = webhook_cue(&reporting, json!({"outcome_deadline_seconds": 60}));
    cue["callback"]["outcome_from_response"] = true.into();
    let responding = user.create(&cue);
    let silent = user.create(&webhook_cue(&plain, json!({})));
    user.advance("PT5M");
    user.report(id(&execution_at(&user, &reported, "09:05")), &json!({"success": false}));
    user.advance("PT2M");
    let states = [&reported, &responding, &silent]
        .map(|cue| execution_at(&user, cue, "09:05")["outcome_state"].clone());
    assert_eq!(states, [json!("reported_failure"), json!("reported_success"), Value::Null]);
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
    // Another deadline holds for deliveries that wait, and none removes it.
    user.advance("PT3M");
    user.patch(&path(&reported), &json!({"outcome_deadline_seconds": 3600})).expect(200);
    let run = execution_at(&user, &reported, "09:10");
    assert_eq!(run["outcome_due_at"], "2026-01-05T10:10:00Z");
    user.patch(&path(&reported), &json!({"outcome_deadline_seconds": null})).expect(200);
    assert_eq!(user.execution(id(&run))["outcome_due_at"], Value::Null);
}
