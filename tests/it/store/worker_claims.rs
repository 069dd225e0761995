//! Claims and reports on a real file.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

use cued::domain::api_error::ErrorCode;
use cued::domain::cue;
use cued::domain::execution::ExecutionStatus;
use cued::domain::execution::outcome::OutcomeReport;
use cued::domain::execution::verification::OutcomeState;
use cued::domain::ids::ExecutionId;
use cued::engine::scheduler::reaper;
use cued::error::Result;
use cued::service::executions::{claim, claim_next, extend, report};
use cued::service::outcome::RecordedOutcome;
use cued::service::workers::{record_heartbeat, remove};
use cued::store::cues::payloads;
use cued::store::executions;
use cued::store::executions::claims::ClaimableExecution;
use cued::store::executions::{execution_list, workers};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, after_begin, code};

#[test]
fn fifty_workers_claim_five_hundred_executions_each_exactly_once() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    let all: BTreeSet<ExecutionId> =
        fixture.runs(&cue, (0..500).map(|number| json!({"n": number}))).into_iter().collect();
    let start = Arc::new(Barrier::new(50));
    let workers: Vec<_> = (0..50)
        .map(|number| {
            let (app, start, all) = (Arc::clone(&fixture.app), Arc::clone(&start), all.clone());
            std::thread::spawn(move || {
                start.wait();
                let mut won = Vec::new();
                // Half of the workers claim the oldest execution, the others each execution by its id: they must not
                // collide.
                if number % 2 == 0 {
                    while let Ok(claimed) = claim_next(&app, user, None, format!("w{number}")).wait() {
                        won.push(claimed.id);
                    }
                } else {
                    let claims: Vec<_> = all
                        .iter()
                        .rev()
                        .map(|id| (*id, claim(&app, user, *id, format!("w{number}"))))
                        .collect();
                    won.extend(claims.into_iter().filter_map(|(id, claim)| claim.wait().ok().map(|_| id)));
                }
                won
            })
        })
        .collect();
    let won: Vec<ExecutionId> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(won.len(), 500);
    assert_eq!(won.into_iter().collect::<BTreeSet<_>>(), all);
    assert!(fixture.claimable(user, None, None, 100).is_empty());
}

#[test]
fn of_two_concurrent_reports_one_is_recorded() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    for round in 0..50 {
        let id = fixture.run(&cue, json!({}));
        let (yes, no) =
            (OutcomeReport { success: true, ..OutcomeReport::default() }, OutcomeReport::default());
        let responses =
            [report(&fixture.app, user, id, yes), report(&fixture.app, user, id, no)].map(|it| it.wait());
        let recorded: Vec<&RecordedOutcome> = responses.iter().flatten().collect();
        assert_eq!(recorded.len(), 1, "round {round}");
        let seen = fixture.execution(user, id);
        assert_eq!(seen.outcome.as_ref(), Some(&recorded[0].outcome));
        assert_eq!(seen.execution.status == ExecutionStatus::Success, recorded[0].outcome.report.success);
        let refused = responses.into_iter().find(Result::is_err).unwrap();
        assert_eq!(code(refused), ErrorCode::OutcomeAlreadyReported);
    }
}

#[test]
fn filters_apply_before_the_limit_and_the_oldest_comes_first() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    for number in 0..20 {
        fixture.run(
            &cue,
            json!({"task": "resize", "agent": if number % 2 == 0 { "a" } else { "b" }, "n": number}),
        );
    }
    let wanted =
        [20, 21, 22].map(|number| fixture.run(&cue, json!({"task": "mail", "agent": "a", "n": number})));
    let ids = |list: Vec<ClaimableExecution>| list.into_iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(ids(fixture.claimable(user, Some("mail"), None, 2)), wanted[..2]);
    assert_eq!(ids(fixture.claimable(user, Some("mail"), Some("b"), 2)), []);
    let numbers: Vec<_> = fixture
        .claimable(user, None, Some("b"), 3)
        .into_iter()
        .map(|it| serde_json::from_str::<Value>(&it.payload.unwrap()).unwrap()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 3, 5]);
    assert_eq!(fixture.claimable(user, None, None, 100).len(), 23);
    let next = claim_next(&fixture.app, user, Some("mail".to_owned()), "w".to_owned()).wait().unwrap();
    assert_eq!((next.id, next.attempt, next.cue_name), (wanted[0], 1, "resize images".to_owned()));
    assert_eq!(
        code(claim_next(&fixture.app, user, Some("none".to_owned()), "w".to_owned()).wait()),
        ErrorCode::ClaimFailed
    );
}

#[test]
fn a_list_of_large_payloads_is_shorter_than_its_limit_but_never_empty() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    for _ in 0..10 {
        fixture.run(&cue, json!({"blob": "x".repeat(1_000_000)}));
    }
    assert_eq!(fixture.claimable(user, None, None, 100).len(), 4);
}

#[test]
fn resources_of_other_users_do_not_exist() {
    let fixture = Fixture::new();
    let (ada, eve) = (fixture.user("ada"), fixture.user("eve"));
    let id = fixture.run(&fixture.worker_cue(ada, |_| ()), json!({}));
    assert!(fixture.claimable(eve, None, None, 10).is_empty());
    assert_eq!(code(claim(&fixture.app, eve, id, "w".to_owned()).wait()), ErrorCode::ExecutionNotFound);
    assert_eq!(code(claim_next(&fixture.app, eve, None, "w".to_owned()).wait()), ErrorCode::ClaimFailed);
    assert_eq!(code(extend(&fixture.app, eve, id, None).wait()), ErrorCode::ExecutionNotFound);
    assert_eq!(code(fixture.report(eve, id, true)), ErrorCode::ExecutionNotFound);
    fixture.heartbeat(ada, "w");
    assert_eq!(code(remove(&fixture.app, eve, "w".to_owned()).wait()), ErrorCode::WorkerNotFound);
    assert!(fixture.app.store.read(move |read| workers::list(read, eve)).wait().unwrap().0.is_empty());
}

#[test]
fn a_claim_is_recorded_and_a_report_ends_it() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let id = fixture.run(&fixture.worker_cue(user, |_| ()), json!({"n": 1}));
    fixture.advance(10);
    let claimed = claim(&fixture.app, user, id, "w1".to_owned()).wait().unwrap();
    let (cue, key) = (claimed.cue_key, claimed.payload_key.unwrap());
    let payload = fixture.app.store.read(move |read| payloads::find(read, cue, key)).wait().unwrap();
    assert_eq!((payload.as_deref(), claimed.attempt), (Some(r#"{"n": 1}"#), 1));
    let of_other = fixture.app.store.read(move |read| payloads::find(read, cue + 1, key)).wait().unwrap();
    assert_eq!(of_other, None, "the row belongs to another cue");
    assert_eq!(claimed.scheduled_for, after_begin(0));
    let held = fixture.execution(user, id).execution;
    assert_eq!((held.status, held.attempts, held.delivered_at), (ExecutionStatus::Delivering, 1, None));
    assert_eq!((held.claimed_by_worker.as_deref(), held.claimed_at), (Some("w1"), Some(after_begin(10))));
    assert_eq!((held.started_at, held.lease_expires_at), (Some(after_begin(10)), Some(after_begin(910))));
    assert_eq!(code(claim(&fixture.app, user, id, "w2".to_owned()).wait()), ErrorCode::AlreadyClaimed);
    fixture.advance(5);
    fixture.report(user, id, true).unwrap();
    let over = fixture.execution(user, id).execution;
    assert_eq!(
        (over.status, over.delivered_at, over.lease_expires_at),
        (ExecutionStatus::Success, Some(after_begin(15)), None)
    );
    assert_eq!(over.outcome_state, Some(OutcomeState::ReportedSuccess));
    assert_eq!(code(claim(&fixture.app, user, id, "w2".to_owned()).wait()), ErrorCode::AlreadyClaimed);
    assert_eq!(code(extend(&fixture.app, user, id, None).wait()), ErrorCode::ExecutionNotClaiming);
    assert_eq!(reaper::next(&fixture.app.store).unwrap(), None);
}

#[test]
fn a_report_keeps_the_status_of_a_webhook_execution() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let mut cue = fixture.worker_cue(user, |_| ());
    cue.transport = cue::Transport::Webhook;
    let id = fixture.run(&cue, json!({}));
    assert_eq!(code(claim(&fixture.app, user, id, "w".to_owned()).wait()), ErrorCode::AlreadyClaimed);
    fixture.report(user, id, false).unwrap();
    let seen = fixture.execution(user, id).execution;
    assert_eq!(
        (seen.status, seen.outcome_state),
        (ExecutionStatus::Pending, Some(OutcomeState::ReportedFailure))
    );
    assert_eq!(code(fixture.report(user, id, true)), ErrorCode::OutcomeAlreadyReported);
}

#[test]
fn executions_of_a_cue_are_paged_newest_first() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let (cue, other) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    let ids: Vec<ExecutionId> = (0..5).map(|number| fixture.run(&cue, json!({"n": number}))).collect();
    fixture.run(&other, json!({}));
    let page = |limit, offset| {
        let key = cue.key;
        let (page, total) = fixture
            .app
            .store
            .read(move |read| execution_list::list_by_cue(read, key, limit, offset))
            .wait()
            .unwrap();
        assert_eq!(total, 5);
        page.into_iter().map(|listed| listed.execution.id).collect::<Vec<_>>()
    };
    assert_eq!(page(2, 0), [ids[4], ids[3]]);
    assert_eq!(page(2, 4), [ids[0]]);
    assert_eq!(page(2, 6), []);
}

#[test]
fn a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    fixture.heartbeat(user, "w1");
    fixture.advance(60);
    record_heartbeat(&fixture.app, user, "w1".to_owned(), "[]".to_owned()).wait().unwrap();
    let list = || fixture.app.store.read(move |read| workers::list(read, user)).wait().unwrap().0;
    let workers = list();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].handlers.as_str(), "[]");
    assert_eq!((workers[0].registered_since, workers[0].last_heartbeat), (after_begin(0), after_begin(60)));
    remove(&fixture.app, user, "w1".to_owned()).wait().unwrap();
    assert!(list().is_empty());
    assert_eq!(code(remove(&fixture.app, user, "w1".to_owned()).wait()), ErrorCode::WorkerNotFound);
}

#[test]
fn a_later_execution_cannot_be_claimed_before_its_time() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let mut new = fixture.new_execution(&fixture.worker_cue(user, |_| ()), &json!({}));
    let id = new.id;
    new.scheduled_for = after_begin(60);
    fixture.app.store.write(move |tx| executions::insert(tx, &new)).wait().unwrap();
    assert!(fixture.claimable(user, None, None, 10).is_empty());
    assert_eq!(code(claim(&fixture.app, user, id, "w".to_owned()).wait()), ErrorCode::AlreadyClaimed);
    assert_eq!(code(claim_next(&fixture.app, user, None, "w".to_owned()).wait()), ErrorCode::ClaimFailed);
    assert_eq!(fixture.execution(user, id).execution.next_retry, None);
    // A worker that did the work nevertheless may report it: then the execution is never listed.
    fixture.report(user, id, true).unwrap();
    assert_eq!(fixture.execution(user, id).execution.status, ExecutionStatus::Success);
}
