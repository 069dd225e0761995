//! Pauses, resumes, deletes or fires many cues. Each cue has the rules of its own route.

use crate::actions::bulk::{BulkRun, BulkStep, step};
use crate::actions::cues::{ChangeContext, not_found};
use crate::actions::idempotency::StoredResponse;
use crate::actions::manual_runs::{FirePayload, FireRequest, RunContext};
use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::Refusal;
use crate::domain::cue::patch::{CuePatch, RequestedStatus};
use crate::domain::ids::ExecutionId;
use crate::domain::text::word_enum::word_enum;
use crate::error::{Error, Result};
use crate::lifecycle::events;
use crate::store::maintenance::cue_deletion;
use crate::store::{Pending, WriteTx};

word_enum! {
    /// `action`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueAction {
        Pause = "pause",
        Resume = "resume",
        Delete = "delete",
        Fire = "fire",
    }
}

/// A cue that was left as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedCue {
    pub id: String,
    pub refusal: Refusal,
}

/// What was done with the cues.
#[derive(Debug, Default)]
pub struct CuesDone {
    pub ids: Vec<String>,
    pub refused: Vec<RefusedCue>,
    /// The executions that were created, in the order of `ids`.
    pub execution_ids: Vec<ExecutionId>,
}

pub type CueRun = BulkRun<String, CuesDone>;

/// One write of `run`.
pub fn apply(
    app: &App,
    caller: &Caller,
    action: CueAction,
    run: CueRun,
    render: fn(&CuesDone) -> Result<StoredResponse>,
) -> Pending<BulkStep<String, CuesDone>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let changes = ChangeContext::new(app, caller, now);
    let runs = RunContext::new(app, user_key, now);
    let one = move |tx: &WriteTx<'_>, id: &String, done: &mut CuesDone| {
        let work = match action {
            CueAction::Pause => change_status(tx, &changes, id, RequestedStatus::Paused)?,
            CueAction::Resume => change_status(tx, &changes, id, RequestedStatus::Active)?,
            CueAction::Delete => {
                events::cue_deleted(tx, user_key, id, now);
                if !cue_deletion::delete_later(tx, user_key, id)? {
                    return Err(not_found().into());
                }
                1
            }
            CueAction::Fire => {
                let request = FireRequest { send_at: None, payload: FirePayload::OfCue };
                let run = runs.fire(tx, id, request)?;
                let run = run.ok_or_else(|| Error::fault("a run without an override was not created"))?;
                done.execution_ids.push(run.execution_id);
                1
            }
        };
        done.ids.push(id.clone());
        Ok(work)
    };
    let refuse = |id: &String, refusal, done: &mut CuesDone| {
        done.refused.push(RefusedCue { id: id.clone(), refusal });
    };
    step(app, user_key, run, one, refuse, render)
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
