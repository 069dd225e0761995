//! Claims of workers that vanish, and late reports.

use cued::domain::api_error::ErrorCode;
use cued::domain::cue;
use cued::domain::execution::ExecutionStatus;
use cued::domain::ids::ExecutionId;
use cued::domain::row_keys::UserKey;
use cued::domain::schedule::Schedule;
use cued::engine::scheduler::Scheduler;
use cued::engine::scheduler::reaper::release_expired_claims;
use cued::service::executions::{claim, claim_next, extend};
use cued::store::executions::{attempts, claims, delivery_queue, execution_list};

use crate::support::*;

fn next_end(fixture: &Fixture) -> Option<Timestamp> {
    fixture.app.store.read_blocking(claims::next_end).unwrap()
}

fn release_expired(fixture: &Fixture) -> usize {
    release_expired_claims(&fixture.app, fixture.now()).unwrap().released
}

/// An execution that `w1` has claimed, and its user.
fn claimed() -> (Fixture, UserKey, ExecutionId) {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let id = fixture.run(&fixture.worker_cue(user, |_| ()), json!({}));
    fixture.claim(user, id, "w1");
    (fixture, user, id)
}

/// 450 executions, all claimed by one worker, and their user.
fn crowd(worker: &str) -> (Fixture, UserKey) {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    fixture.runs(&fixture.worker_cue(user, |_| ()), (0..450).map(|_| json!({})));
    let claim = |_| claim_next(&fixture.app, user, None, worker.to_owned());
    let claims: Vec<_> = (0..450).map(claim).collect();
    assert!(claims.into_iter().all(|claim| claim.wait().is_ok()));
    (fixture, user)
}

#[test]
fn a_claim_without_heartbeats_expires_with_its_lease() {
    let (fixture, user, id) = claimed();
    assert_eq!(next_end(&fixture), Some(after_begin(900)));
    fixture.advance(899);
    assert_eq!(release_expired(&fixture), 0);
    fixture.advance(1);
    let before = fixture.app.notifiers.claim.generation();
    assert_eq!(release_expired(&fixture), 1);
    // The notification follows the commit.
    fixture.app.clock.wait(&fixture.app.notifiers.claim, before, None);
    assert!(fixture.app.notifiers.claim.generation() > before, "waiting polls are notified");
    let released = fixture.execution(user, id).execution;
    assert_eq!(released.status, ExecutionStatus::Pending);
    assert_eq!(released.claimed_by_worker, None);
    assert_eq!(released.lease_expires_at, None);
    assert!(released.error_message.unwrap().contains("w1"));
    assert_eq!(fixture.claimable(user, None, None, 10)[0].attempt, 2);
    assert_eq!(fixture.claim(user, id, "w2"), 2);
    assert_eq!(fixture.execution(user, id).execution.started_at, Some(after_begin(0)));
}

#[test]
fn a_claim_outlasts_its_lease_while_its_worker_sends_heartbeats() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    let (held, other) = (fixture.run(&cue, json!({})), fixture.run(&cue, json!({})));
    fixture.claim(user, held, "alive");
    fixture.advance(1);
    fixture.claim(user, other, "silent");
    fixture.advance(849);
    fixture.heartbeat(user, "alive");
    // 850 s + 180 s: the claim of the worker with heartbeats expires after the later claim of the other.
    assert_eq!(next_end(&fixture), Some(after_begin(900)));
    fixture.advance(50);
    assert_eq!(release_expired(&fixture), 0);
    assert_eq!(next_end(&fixture), Some(after_begin(901)));
    fixture.advance(1);
    assert_eq!(release_expired(&fixture), 1);
    assert_eq!(fixture.execution(user, other).execution.status, ExecutionStatus::Pending);
    let lost_at = after_begin(1_030) + SignedDuration::from_millis(1);
    assert_eq!(next_end(&fixture), Some(lost_at));
    fixture.app.clock.set(after_begin(1_030));
    assert_eq!(release_expired(&fixture), 0);
    fixture.app.clock.set(lost_at);
    assert_eq!(release_expired(&fixture), 1);
    assert_eq!(fixture.execution(user, held).execution.status, ExecutionStatus::Pending);
}

#[test]
fn claims_that_overrun_are_looked_at_once_per_heartbeat_in_bounded_batches() {
    let (fixture, user) = crowd("alive");
    fixture.advance(899);
    fixture.heartbeat(user, "alive");
    fixture.advance(1);
    let turn = || release_expired_claims(&fixture.app, fixture.now()).unwrap();
    let turns: Vec<_> = (0..4).map(|_| turn()).map(|turn| (turn.released, turn.has_more)).collect();
    assert_eq!(turns, [(0, true), (0, true), (0, false), (0, false)], "200 each time, then none");
    let lost_at = after_begin(899 + 180) + SignedDuration::from_millis(1);
    assert_eq!(next_end(&fixture), Some(lost_at), "none of them before");
}

#[test]
fn a_heartbeat_of_a_clock_that_ran_ahead_does_not_keep_a_claim() {
    let (fixture, user, _) = claimed();
    fixture.advance(2_000_000_000);
    fixture.heartbeat(user, "w1");
    fixture.app.clock.set(after_begin(900));
    assert_eq!(release_expired(&fixture), 0);
    fixture.heartbeat(user, "w1");
    fixture.advance(181);
    assert_eq!(release_expired(&fixture), 1);
}

#[test]
fn an_extended_lease_runs_from_the_extension() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let id = fixture.run(&fixture.worker_cue(user, |_| ()), json!({}));
    assert_eq!(code(extend(&fixture.app, user, id, None).wait()), ErrorCode::ExecutionNotClaiming);
    fixture.claim(user, id, "w1");
    fixture.advance(800);
    assert_eq!(
        code(extend(&fixture.app, user, id, Some("w2".to_owned())).wait()),
        ErrorCode::NotExecutionOwner
    );
    let until = extend(&fixture.app, user, id, Some("w1".to_owned())).wait().unwrap();
    assert_eq!(until, after_begin(1_700));
    fixture.advance(899);
    assert_eq!(release_expired(&fixture), 0);
    assert_eq!(extend(&fixture.app, user, id, None).wait().unwrap(), after_begin(2_599));
}

#[test]
fn the_last_expired_claim_fails_the_execution_and_its_cue() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |new| {
        new.retry.max_attempts = 2;
        new.on_failure.pause = true;
    });
    let id = fixture.run(&cue, json!({}));
    for expected in [ExecutionStatus::Pending, ExecutionStatus::Failed] {
        fixture.claim(user, id, "w1");
        fixture.advance(900);
        assert_eq!(release_expired(&fixture), 1);
        assert_eq!(fixture.execution(user, id).execution.status, expected);
    }
    let failed = fixture.execution(user, id).execution;
    assert_eq!((failed.attempts, failed.claimed_by_worker.as_deref()), (2, Some("w1")));
    assert_eq!(fixture.cue(cue.key).status, cue::CueStatus::Paused);
    assert!(fixture.claimable(user, None, None, 10).is_empty());
}

#[test]
fn more_expired_claims_than_one_batch_are_all_released() {
    let (fixture, _) = crowd("w1");
    fixture.advance(900);
    let passes: Vec<usize> = (0..4).map(|_| release_expired(&fixture)).collect();
    assert_eq!(passes, [200, 200, 50, 0]);
}

/// An execution whose claim by `w1` has expired and been released, and its user.
fn with_expired_claim() -> (Fixture, UserKey, ExecutionId) {
    let (fixture, user, id) = claimed();
    fixture.advance(900);
    assert_eq!(release_expired(&fixture), 1);
    (fixture, user, id)
}

#[test]
fn a_late_report_ends_a_released_execution() {
    let (fixture, user, id) = with_expired_claim();
    fixture.report(user, id, true).unwrap();
    let over = fixture.execution(user, id).execution;
    assert_eq!((over.status, over.error_message), (ExecutionStatus::Success, None));
    assert!(fixture.claimable(user, None, None, 10).is_empty());
    assert_eq!(
        code(claim(&fixture.app, user, id, "w2".to_owned()).wait()),
        ErrorCode::AlreadyClaimed
    );
    assert_eq!(code(fixture.report(user, id, false)), ErrorCode::OutcomeAlreadyReported);
}

#[test]
fn a_late_report_ends_an_execution_claimed_by_another_worker() {
    let (fixture, user, id) = with_expired_claim();
    fixture.claim(user, id, "w2");
    fixture.report(user, id, false).unwrap();
    assert_eq!(code(fixture.report(user, id, true)), ErrorCode::OutcomeAlreadyReported);
    assert_eq!(
        code(extend(&fixture.app, user, id, Some("w2".to_owned())).wait()),
        ErrorCode::ExecutionNotClaiming
    );
    assert_eq!(fixture.execution(user, id).execution.status, ExecutionStatus::Failed);
    fixture.advance(2_000);
    assert_eq!(release_expired(&fixture), 0);
}

#[test]
fn a_once_cue_takes_the_outcome_of_a_late_report() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let ends = [true, false].map(|success| {
        let cue = fixture.worker_cue(user, |new| {
            new.schedule = (&Schedule::once("2026-01-01T10:00:10Z", "UTC").unwrap()).into();
            new.retry.max_attempts = 1;
        });
        (cue.key, success)
    });
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(10);
    assert_eq!(scheduler.run_once(&fixture.app).unwrap().executions, 2);
    for (cue_key, success) in ends {
        let (runs, total) =
            fixture.read(move |read| execution_list::list_by_cue(read, cue_key, 10, 0));
        assert_eq!((runs.len(), total), (1, 1));
        let id = runs[0].execution.id;
        fixture.claim(user, id, "w");
        if success {
            // The claim expires at the only attempt first; the late report then counts.
            fixture.advance(900);
            assert_eq!(release_expired(&fixture), 1);
            assert_eq!(fixture.cue(cue_key).status, cue::CueStatus::Failed);
        }
        fixture.report(user, id, success).unwrap();
        let expected = if success { cue::CueStatus::Completed } else { cue::CueStatus::Failed };
        assert_eq!(fixture.cue(cue_key).status, expected);
    }
}

#[test]
fn a_claim_that_ends_with_the_account_has_its_own_duration() {
    let (fixture, user, id) = with_expired_claim();
    fixture.claim(user, id, "w2");
    fixture.advance(60);
    let now = fixture.now();
    fixture.write(move |tx| delivery_queue::fail_all_for_user(tx, user, "disabled", now).unwrap());
    let list = fixture.read(move |read| attempts::list(read, user, id)).unwrap();
    let seconds: Vec<_> = list.iter().map(|it| it.duration.unwrap().as_secs()).collect();
    assert_eq!(seconds, [900, 60]);
}
