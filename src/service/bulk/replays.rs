//! Replays many executions, oldest first. Each has the rules of a single replay.

use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::service::bulk::{BulkRequest, BulkResults, run, work_of};
use crate::service::executions::not_found;
use crate::service::idempotency::StoredResponse;
use crate::service::manual_runs::RunContext;
use crate::store::WriteTx;

/// The executions that were replayed, and those that were skipped.
#[derive(Debug, Clone, Default)]
pub struct ReplayResults {
    pub execution_ids: Vec<ExecutionId>,
    pub skipped: Vec<(String, ErrorCode)>,
}

impl BulkResults for ReplayResults {
    fn append(&mut self, next: Self) {
        self.execution_ids.extend(next.execution_ids);
        self.skipped.extend(next.skipped);
    }

    fn refuse(&mut self, id: &str, refusal: Refusal) {
        self.skipped.push((id.to_owned(), refusal.code));
    }
}

pub async fn apply(
    app: &App,
    caller: &Caller,
    request: BulkRequest<ReplayResults>,
) -> Result<StoredResponse> {
    let user_key = caller.user_key;
    let action = |now| {
        let runs = RunContext::new(app, user_key, now);
        move |tx: &WriteTx<'_>, id: &str, done: &mut ReplayResults| {
            let (run, copied) = runs.replay(tx, ExecutionId::parse(id).ok_or_else(not_found)?)?;
            done.execution_ids.push(run.execution_id);
            Ok(work_of(copied))
        }
    };
    run(app, user_key, request, action).await
}
