//! `retry` and `cancel` of an execution that waits (contract §5.4).

use crate::http::many::{START, check_counters, id, status_of, webhook_cue, worker_cue};
use crate::support::*;

fn retry(user: &Client, id: &str) -> Response {
    user.post(&format!("/v1/executions/{id}/retry"), &json!({}))
}

fn cancel(user: &Client, id: &str) -> Response {
    user.post(&format!("/v1/executions/{id}/cancel"), &json!({}))
}

fn backlog(user: &Client) -> Value {
    user.get("/health").expect(200)["queue"].clone()
}

#[test]
fn a_retry_is_sent_now_and_the_retry_policy_goes_on() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(503)));
    let (user, other) = (server.user(), server.user());
    let cue = user.create(&webhook_cue(&receiver.url()));
    let run = user.fire(&cue);
    user.settle();
    let waiting = user.execution(&run);
    assert_eq!((&waiting["status"], &waiting["attempts"]), (&json!("retrying"), &json!(1)));
    assert_eq!(waiting["next_retry"], "2026-01-05T10:00:00Z");
    retry(&other, &run).expect_error(404, "execution_not_found");
    user.advance("PT10M");
    assert_eq!(receiver.count(), 1, "not due yet");
    assert_eq!(
        retry(&user, &run).expect(200),
        json!({"id": run, "execution_id": run, "cue_id": id(&cue), "scheduled_for": START, "status": "retrying",
               "triggered_by": "manual_fire"})
    );
    user.settle();
    let again = user.execution(&run);
    assert_eq!((&again["status"], &again["attempts"]), (&json!("retrying"), &json!(2)));
    assert_eq!(again["next_retry"], "2026-01-05T10:10:00Z", "an hour after the second attempt");
    check_counters(&server);
    receiver.react(Reaction::Status(200));
    retry(&user, &run).expect(200);
    user.settle();
    assert_eq!(user.execution(&run)["status"], "success");
    let over = retry(&user, &run).expect_error(409, "invalid_state");
    assert!(over["error"]["message"].as_str().unwrap().contains("replay"), "{over}");
}

#[test]
fn a_run_that_waits_for_its_send_at_is_sent_now() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    let hook = user.create(&webhook_cue(&receiver.url()));
    let work = user.create(&worker_cue("work"));
    for cue in [&hook, &work] {
        let later = json!({"send_at": "2026-02-01T00:00:00Z"});
        let run = user.post(&format!("/v1/cues/{}/fire", id(cue)), &later).expect(200);
        user.advance("PT1M");
        let sent = retry(&user, id(&run)).expect(200);
        let now = user.get("/v1/test/clock").expect(200)["now"].clone();
        assert_eq!((&sent["status"], &sent["scheduled_for"]), (&json!("pending"), &now));
        assert_eq!(user.execution(id(&run))["scheduled_for"], now);
        user.settle();
        if cue == &work {
            let due = retry(&user, id(&run)).expect_error(409, "invalid_state");
            assert!(due["error"]["message"].as_str().unwrap().contains("due already"), "{due}");
            let claim = user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
            assert_eq!(claim["execution_id"], run["id"]);
            retry(&user, id(&run)).expect_error(409, "execution_in_flight");
        } else {
            assert_eq!(user.execution(id(&run))["status"], "success");
        }
    }
}

#[test]
fn a_cancelled_execution_fails_without_the_consequences_of_a_failure() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(503)));
    let (user, other, reports) = (server.user(), server.user(), Receiver::start());
    let mut cue = webhook_cue(&receiver.url());
    cue["on_failure"] = json!({"email": false, "webhook": reports.url(), "pause": true});
    let cue = user.create(&cue);
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": reports.url()})).expect(200);
    let retrying = user.fire(&cue);
    user.settle();
    let future = json!({"send_at": "2026-02-01T00:00:00Z"});
    let future = user.post(&format!("/v1/cues/{}/fire", id(&cue)), &future).expect(200);
    let work = user.create(&worker_cue("work"));
    let claimable = user.fire(&work);
    for run in [&retrying, id(&future), &claimable] {
        cancel(&other, run).expect_error(404, "execution_not_found");
        let cancelled = cancel(&user, run).expect(200);
        assert_has(
            &cancelled,
            json!({
                "status": "failed", "error_message": "cancelled", "next_retry": null,
            }),
        );
        assert_eq!(cancelled, user.execution(run));
        let over = cancel(&user, run).expect_error(409, "invalid_state");
        assert!(over["error"]["message"].as_str().unwrap().contains("ended"), "{over}");
        retry(&user, run).expect_error(409, "invalid_state");
    }
    check_counters(&server);
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    user.advance("P60D");
    assert_eq!((receiver.count(), reports.count()), (1, 0), "nothing more is sent or reported");
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
    // Two cancelled runs and two failures are no three failures in a row.
    for _ in 0..2 {
        let run = user.fire(&work);
        user.report(&run, &json!({"success": false}));
        cancel(&user, &user.fire(&work)).expect(200);
    }
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
    assert_eq!(backlog(&user)["pending_worker_claims"], 0);
}

#[test]
fn an_attempt_or_a_claim_cannot_be_cancelled() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user(START), Receiver::with(Reaction::Hang));
    let hook = user.fire(&user.create(&webhook_cue(&receiver.url())));
    receiver.wait_hanging(1);
    cancel(&user, &hook).expect_error(409, "execution_in_flight");
    retry(&user, &hook).expect_error(409, "execution_in_flight");
    let work = user.fire(&user.create(&worker_cue("work")));
    user.post(&format!("/v1/executions/{work}/claim"), &json!({"worker_id": "w"})).expect(200);
    cancel(&user, &work).expect_error(409, "execution_in_flight");
    receiver.react(Reaction::Status(200));
    receiver.release();
    user.settle();
    assert_ne!(user.execution(&hook)["error_message"], "cancelled");
}

#[test]
fn a_once_cue_ends_with_its_cancelled_run() {
    let (server, user) = Server::with_clock_and_user(START);
    let once = json!({"name": "once", "transport": "worker", "schedule": {"type": "once", "at": "2026-01-05T10:00:00Z"}});
    let cue = user.create(&once);
    user.advance("PT1H");
    let run = user.only_execution(id(&cue));
    assert_eq!(status_of(&user, &cue), "active");
    // A manual run does not end it.
    cancel(&user, &user.fire(&cue)).expect(200);
    assert_eq!(status_of(&user, &cue), "active");
    cancel(&user, id(&run)).expect(200);
    assert_eq!(status_of(&user, &cue), "failed");
    check_counters(&server);
    assert_eq!(user.get("/v1/auth/me").expect(200)["active_cues"], 0);
}

/// A delivery that a thread has taken is never cancelled, and a cancelled one is never sent.
#[test]
fn cancel_and_delivery_exclude_each_other() {
    let ((_server, user), receiver) =
        (Server::with_user(&["--dev", "--limits", "off"]), Receiver::start());
    let cue = user.create(&webhook_cue(&receiver.url()));
    let mut expected = BTreeMap::new();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (user, cue) = (user.clone(), cue.clone());
            thread::spawn(move || {
                let attempt = |_| {
                    let run = user.fire(&cue);
                    let response = cancel(&user, &run);
                    assert!([200, 409].contains(&response.status), "{}", response.text());
                    (run, response.status == 200)
                };
                (0..50).map(attempt).collect::<Vec<_>>()
            })
        })
        .collect();
    for client in clients {
        expected.extend(client.join().unwrap());
    }
    let sent = expected.values().filter(|is_cancelled| !**is_cancelled).count();
    receiver.wait_for(sent);
    let ends = || {
        expected.keys().all(|run| {
            ["success", "failed"].contains(&user.execution(run)["status"].as_str().unwrap())
        })
    };
    until("all runs end", || ends().then_some(()));
    let received: Vec<String> = receiver
        .deliveries()
        .iter()
        .map(|it| it.header("x-cueapi-execution-id").unwrap().to_owned())
        .collect();
    assert_eq!(received.len(), sent);
    for (run, is_cancelled) in &expected {
        assert_eq!(received.contains(run), !is_cancelled, "{run}");
        assert_eq!(user.execution(run)["status"], if *is_cancelled { "failed" } else { "success" });
    }
}
