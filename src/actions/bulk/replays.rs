//! Replays many executions, oldest first. Each has the rules of a single replay.

use crate::actions::bulk::{BulkRun, BulkStep, step};
use crate::actions::executions::not_found;
use crate::actions::idempotency::StoredResponse;
use crate::actions::manual_runs::RunContext;
use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::{Pending, WriteTx};

/// What was done with the executions.
#[derive(Debug, Default)]
pub struct ReplaysDone {
    /// The new executions.
    pub execution_ids: Vec<ExecutionId>,
    pub skipped: Vec<(String, ErrorCode)>,
}

pub type ReplayRun = BulkRun<String, ReplaysDone>;

/// One write of `run`.
pub fn apply(
    app: &App,
    caller: &Caller,
    run: ReplayRun,
    render: fn(&ReplaysDone) -> Result<StoredResponse>,
) -> Pending<BulkStep<String, ReplaysDone>> {
    let user_key = caller.user_key;
    let runs = RunContext::new(app, user_key, app.clock.now());
    let one = move |tx: &WriteTx<'_>, id: &String, done: &mut ReplaysDone| {
        let run = runs.replay(tx, ExecutionId::parse(id).ok_or_else(not_found)?)?;
        done.execution_ids.push(run.execution_id);
        Ok(1)
    };
    let refuse = |id: &String, refusal: Refusal, done: &mut ReplaysDone| {
        done.skipped.push((id.clone(), refusal.code));
    };
    step(app, user_key, run, one, refuse, render)
}
