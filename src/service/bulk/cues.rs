//! Pauses, resumes, deletes or fires many cues. Each cue has the rules of its own route.

use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::Refusal;
use crate::domain::cue::patch::{CuePatch, RequestedStatus};
use crate::domain::ids::ExecutionId;
use crate::domain::text::word_enum::word_enum;
use crate::error::{Error, Result};
use crate::service::bulk::{BulkRequest, BulkResults, run};
use crate::service::cues::{ChangeContext, not_found};
use crate::service::events;
use crate::service::idempotency::StoredResponse;
use crate::service::manual_runs::{FirePayload, FireRequest, RunContext};
use crate::store::WriteTx;
use crate::store::maintenance::cue_deletion;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueAction {
        Pause = "pause",
        Resume = "resume",
        Delete = "delete",
        Fire = "fire",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RefusedCue {
    pub id: String,
    pub refusal: Refusal,
}

/// The cues that were changed, and those that were refused.
#[derive(Debug, Clone, Default)]
pub struct CueResults {
    pub ids: Vec<String>,
    pub refused: Vec<RefusedCue>,
    /// The executions that were created, in the order of `ids`.
    pub execution_ids: Vec<ExecutionId>,
}

impl BulkResults for CueResults {
    fn append(&mut self, next: Self) {
        self.ids.extend(next.ids);
        self.refused.extend(next.refused);
        self.execution_ids.extend(next.execution_ids);
    }

    fn refuse(&mut self, id: &str, refusal: Refusal) {
        self.refused.push(RefusedCue { id: id.to_owned(), refusal });
    }
}

pub async fn apply(
    app: &App,
    caller: &Caller,
    action: CueAction,
    request: BulkRequest<CueResults>,
) -> Result<StoredResponse> {
    let user_key = caller.user_key;
    let action = |now| {
        let changes = ChangeContext::new(app, caller, now);
        let runs = RunContext::new(app, user_key, now);
        move |tx: &WriteTx<'_>, id: &str, done: &mut CueResults| {
            let mut work = 1;
            match action {
                CueAction::Pause => work = change_status(tx, &changes, id, RequestedStatus::Paused)?,
                CueAction::Resume => work = change_status(tx, &changes, id, RequestedStatus::Active)?,
                CueAction::Delete => {
                    events::cue_deleted(tx, user_key, id, now);
                    if !cue_deletion::delete_later(tx, user_key, id)? {
                        return Err(not_found().into());
                    }
                }
                CueAction::Fire => {
                    let request = FireRequest { send_at: None, payload: FirePayload::OfCue };
                    let run = runs.fire(tx, id, request)?;
                    let run = run.ok_or_else(|| Error::fault("a run without an override was not created"))?;
                    done.execution_ids.push(run.execution_id);
                }
            }
            done.ids.push(id.to_owned());
            Ok(work)
        }
    };
    run(app, user_key, request, action).await
}

/// Returns the work of the change: a run that was overdue is as much as a cue.
fn change_status(
    tx: &WriteTx<'_>,
    changes: &ChangeContext,
    id: &str,
    status: RequestedStatus,
) -> Result<usize> {
    let change = CuePatch { status: Some(status), ..CuePatch::default() };
    let (_, fired) = changes.change(tx, id, &change)?;
    Ok(1 + fired)
}
