//! What tests of claims, leases and reports do over and over, in a word each.

use cued::actions::executions::{claim, report};
use cued::actions::workers::beat;
use cued::domain::api_error::ErrorCode;
use cued::domain::execution::outcome::OutcomeReport;
use cued::domain::ids::ExecutionId;
use cued::error::{Error, Result};
use cued::lifecycle::verification::RecordedOutcome;
use cued::store::executions::claims;
use cued::store::executions::claims::{ClaimFilter, ClaimableExecution};
use jiff::{SignedDuration, Timestamp};

use crate::support::fixture::{BEGIN, World};

pub fn code<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub fn claimable(
    world: &World,
    user: i64,
    task: Option<&str>,
    agent: Option<&str>,
    limit: u32,
) -> Vec<ClaimableExecution> {
    let filter = ClaimFilter { task: task.map(str::to_owned), agent: agent.map(str::to_owned) };
    world.app.store.read(move |read| claims::list(read, user, &filter, limit)).wait().unwrap()
}

pub fn take(world: &World, user: i64, id: ExecutionId, worker: &str) -> u32 {
    claim(&world.app, user, id, worker.to_owned()).wait().unwrap().attempt
}

pub fn tell(world: &World, user: i64, id: ExecutionId, success: bool) -> Result<RecordedOutcome> {
    report(&world.app, user, id, OutcomeReport { success, ..OutcomeReport::default() }).wait()
}

pub fn heartbeat(world: &World, user: i64, worker: &str) {
    beat(&world.app, user, worker.to_owned(), vec!["resize".to_owned()]).wait().unwrap();
}

pub fn after_begin(seconds: i64) -> Timestamp {
    BEGIN.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}
