//! `retry` and `cancel` of an execution that waits (contract §5.4).

use crate::http::many::{START, hook, status_of, work};
use crate::support::*;

const LATER: &str = "2026-02-01T00:00:00Z";

fn retry(user: &Client, id: &str) -> Response {
    user.act(id, "retry")
}

fn cancel(user: &Client, id: &str) -> Response {
    user.act(id, "cancel")
}

#[test]
fn a_retry_is_sent_now_and_the_retry_policy_goes_on() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(503)));
    let (user, other) = (server.user(), server.user());
    let cue = user.create(&hook(&receiver.url()));
    let run = user.fire(&cue);
    user.settle();
    let waits = |attempts: u32, next: &str| json!({"status": "retrying", "attempts": attempts, "next_retry": next});
    assert_has(&user.execution(&run), waits(1, "2026-01-05T10:00:00Z"));
    retry(&other, &run).expect_error(404, "execution_not_found");
    user.advance("PT10M");
    assert_eq!(receiver.count(), 1, "not due yet");
    assert_eq!(
        retry(&user, &run).expect(200),
        json!({"id": run, "execution_id": run, "cue_id": id(&cue), "scheduled_for": START, "status": "retrying",
               "triggered_by": "manual_fire"})
    );
    user.settle();
    // An hour after the second attempt.
    assert_has(&user.execution(&run), waits(2, "2026-01-05T10:10:00Z"));
    server.assert_counters();
    receiver.react(Reaction::Status(200));
    retry(&user, &run).expect(200);
    user.settle();
    assert_eq!(user.execution(&run)["status"], "success");
    retry(&user, &run).refuses(409, "invalid_state", "replay");
}

#[test]
fn a_run_that_waits_for_its_send_at_is_sent_now() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    for cue in [user.create(&hook(&receiver.url())), user.create(&work("work"))] {
        let run = user.fire_with(&cue, &json!({"send_at": LATER}));
        user.advance("PT1M");
        let now = user.read("/v1/test/clock")["now"].clone();
        let sent = json!({"status": "pending", "scheduled_for": now});
        assert_has(&retry(&user, &run).expect(200), sent);
        assert_eq!(user.execution(&run)["scheduled_for"], now);
        user.settle();
        if cue["transport"] == "worker" {
            retry(&user, &run).refuses(409, "invalid_state", "due already");
            assert_eq!(user.claim("w"), run);
            retry(&user, &run).expect_error(409, "execution_in_flight");
        } else {
            assert_eq!(user.execution(&run)["status"], "success");
        }
    }
}

#[test]
fn a_cancelled_execution_fails_without_the_consequences_of_a_failure() {
    let (server, receiver) =
        (Server::with_test_clock(START), Receiver::with(Reaction::Status(503)));
    let (user, other, reports) = (server.user(), server.user(), Receiver::start());
    let on_failure = json!({"email": false, "webhook": reports.url(), "pause": true});
    let cue = user.create(&with(hook(&receiver.url()), json!({"on_failure": on_failure})));
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": reports.url()})).expect(200);
    let retrying = user.fire(&cue);
    user.settle();
    let future = user.fire_with(&cue, &json!({"send_at": LATER}));
    let work = user.create(&work("work"));
    let claimable = user.fire(&work);
    for run in [&retrying, &future, &claimable] {
        cancel(&other, run).expect_error(404, "execution_not_found");
        let cancelled = cancel(&user, run).expect(200);
        assert_has(
            &cancelled,
            json!({"status": "failed", "error_message": "cancelled", "next_retry": null}),
        );
        assert_eq!(cancelled, user.execution(run));
        cancel(&user, run).refuses(409, "invalid_state", "ended");
        retry(&user, run).expect_error(409, "invalid_state");
    }
    server.assert_counters();
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    user.advance("P60D");
    assert_eq!((receiver.count(), reports.count()), (1, 0), "nothing more is sent or reported");
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(user.total("/v1/alerts"), 0);
    // Two cancelled runs and two failures are no three failures in a row.
    for _ in 0..2 {
        user.report(&user.fire(&work), &json!({"success": false}));
        cancel(&user, &user.fire(&work)).expect(200);
    }
    assert_eq!(user.total("/v1/alerts"), 0);
    assert_eq!(user.read("/health")["queue"]["pending_worker_claims"], 0);
}

#[test]
fn an_attempt_or_a_claim_cannot_be_cancelled() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user(START), Receiver::with(Reaction::Hang));
    let sent = user.fire(&user.create(&hook(&receiver.url())));
    receiver.wait_hanging(1);
    cancel(&user, &sent).expect_error(409, "execution_in_flight");
    retry(&user, &sent).expect_error(409, "execution_in_flight");
    let claimed = user.fire(&user.create(&work("work")));
    user.act(&claimed, "claim").expect(200);
    cancel(&user, &claimed).expect_error(409, "execution_in_flight");
    receiver.react(Reaction::Status(200));
    receiver.release();
    user.settle();
    assert_ne!(user.execution(&sent)["error_message"], "cancelled");
}

#[test]
fn a_once_cue_ends_with_its_cancelled_run() {
    let (server, user) = Server::with_clock_and_user(START);
    let once = json!({"schedule": {"type": "once", "at": "2026-01-05T10:00:00Z"}});
    let cue = user.create(&with(work("once"), once));
    user.advance("PT1H");
    let run = user.only_execution(id(&cue));
    assert_eq!(status_of(&user, &cue), "active");
    // A manual run does not end it.
    for (run, status) in [(user.fire(&cue), "active"), (id(&run).to_owned(), "failed")] {
        cancel(&user, &run).expect(200);
        assert_eq!(status_of(&user, &cue), status);
    }
    server.assert_counters();
    assert_eq!(user.me()["active_cues"], 0);
}

/// A delivery that a thread has taken is never cancelled, and a cancelled one is never sent.
#[test]
fn cancel_and_delivery_exclude_each_other() {
    let ((_server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let cue = user.create(&hook(&receiver.url()));
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
    let runs: BTreeMap<String, bool> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let sent = runs.values().filter(|is_cancelled| !**is_cancelled).count();
    receiver.wait_for(sent);
    let has_ended =
        |run: &String| ["success", "failed"].contains(&user.execution(run).text("status"));
    until_true("all runs end", || runs.keys().all(has_ended));
    let received: Vec<String> =
        receiver.deliveries().into_iter().map(|delivery| delivery.execution_id).collect();
    assert_eq!(received.len(), sent);
    for (run, is_cancelled) in &runs {
        assert_eq!(received.contains(run), !is_cancelled, "{run}");
        assert_eq!(user.execution(run)["status"], if *is_cancelled { "failed" } else { "success" });
    }
}
