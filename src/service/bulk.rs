//! Actions on many objects, in several writes. Committed batches stay; if a later write fails, the response lists the
//! remaining objects (contract §4.15). With an `Idempotency-Key`, the first write stores a refusal and the last
//! replaces it by the response, so a repetition of an interrupted request does nothing twice.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::{CueRequest, RequestedStatus};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::UserKey;
use crate::domain::text::word_enum;
use crate::error::{Error, Result};
use crate::service::cues::{self, ChangeContext};
use crate::service::executions;
use crate::service::manual_runs::{FirePayload, FireRequest, RunContext};
use crate::store::accounts::idempotency::{
    IdempotencyRequest, StoredResponse, find_response, store_response,
};
use crate::store::accounts::users;
use crate::store::{Pending, WriteTx};

pub const MAX_IDS: usize = 500;

/// Most objects in a write. A due run waits for it, so it must take far less than 100 ms (contract §11.5).
const BATCH: usize = 100;

/// Bytes that are as much work as an object: to copy them takes a write as long.
const BYTES_OF_WORK: usize = 32 << 10;

/// Most objects that a filter may match: 100 writes, and a response of up to 3 MB.
pub const MAX_MATCHED: usize = 10_000;

/// An `Idempotency-Key`, and the response to repetitions while the request runs or after it was interrupted.
#[derive(Debug, Clone)]
pub struct BulkCall {
    pub request: IdempotencyRequest,
    pub in_progress: StoredResponse,
}

pub const IN_PROGRESS: &str = "A request with this Idempotency-Key has begun and its answer is not stored: it still runs, was interrupted, \
     or its answer found no room. Look at what was done before you send it with a new key";

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueAction {
        Pause = "pause",
        Resume = "resume",
        Delete = "delete",
        Fire = "fire",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    Cues(CueAction),
    Replay,
}

#[derive(Debug, Clone, Default)]
pub struct BulkResults {
    pub ids: Vec<String>,
    pub refused: Vec<(String, Refusal)>,
    pub execution_ids: Vec<ExecutionId>,
}

pub struct BulkRequest {
    pub action: BulkAction,
    pub ids: Vec<String>,
    pub call: Option<BulkCall>,
    pub render: fn(&BulkResults) -> Result<StoredResponse>,
    pub explain: Box<dyn Fn(Error) -> Refusal + Send + Sync>,
}

pub fn distinct<T: Clone + Eq + Hash>(targets: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    targets.into_iter().filter(|target| seen.insert(target.clone())).collect()
}

/// Call it before a filter is applied: what it matches has changed since.
pub fn find_repeated(
    app: &App,
    user_key: UserKey,
    call: BulkCall,
) -> Pending<Option<StoredResponse>> {
    let now = app.clock.now();
    app.store.read(move |read| find_response(read, user_key, Some(&call.request), now))
}

/// Checks the number of objects that a filter matches against the one that the caller expects. Errors: `invalid_state`.
pub fn check_expected(matched: usize, expected: Option<usize>) -> Result<()> {
    let Some(expected) = expected.filter(|expected| *expected != matched) else { return Ok(()) };
    let message = format!(
        "The filter matches {matched} and not the {expected} of `expected`; nothing was done: look at them, and send the \
         present number"
    );
    Err(Error::refused(ErrorCode::InvalidState, message))
}

pub async fn run(app: &App, caller: &Caller, request: BulkRequest) -> Result<StoredResponse> {
    let (user_key, request) = (caller.user_key, Arc::new(request));
    let (mut first, mut done) = (0, BulkResults::default());
    loop {
        let now = app.clock.now();
        let (changes, runs) =
            (ChangeContext::new(app, caller, now), RunContext::new(app, user_key, now));
        let batch = Batch { changes, runs, user_key, now, request: Arc::clone(&request), first };
        let earlier = done.clone();
        match app.store.write_for(user_key, move |tx| batch.write(tx, earlier)).await {
            Ok(BatchEnd::Answered(response)) => return Ok(response),
            Ok(BatchEnd::More { done: all, next }) => (done, first) = (all, next),
            Err(error) if first == 0 => return Err(error),
            Err(error) => {
                let refusal = (request.explain)(error);
                done.refused
                    .extend(request.ids.iter().skip(first).map(|id| (id.clone(), refusal.clone())));
                let response = (request.render)(&done)?;
                store_final_response(app, user_key, request.call.clone(), response.clone()).await;
                return Ok(response);
            }
        }
    }
}

/// Stores the response to an interrupted request: the write that should have stored it failed.
async fn store_final_response(
    app: &App,
    user_key: UserKey,
    call: Option<BulkCall>,
    response: StoredResponse,
) {
    let Some(BulkCall { request, .. }) = call else { return };
    let (now, plans) = (app.clock.now(), app.config.plans.clone());
    let stored = app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, &plans, user_key, || {
            store_response(tx, user_key, Some(&request), &response, now)
        })
    });
    if let Err(error) = stored.await {
        tracing::warn!(error = %error, "the answer to an interrupted request is not stored for repetitions");
    }
}

struct Batch {
    changes: ChangeContext,
    runs: RunContext,
    user_key: UserKey,
    now: Timestamp,
    request: Arc<BulkRequest>,
    first: usize,
}

enum BatchEnd {
    More { done: BulkResults, next: usize },
    Answered(StoredResponse),
}

impl Batch {
    fn write(&self, tx: &WriteTx<'_>, mut done: BulkResults) -> Result<BatchEnd> {
        let call = self.request.call.as_ref();
        if self.first == 0
            && let Some(BulkCall { request, in_progress }) = call
        {
            if let Some(response) = find_response(tx, self.user_key, Some(request), self.now)? {
                return Ok(BatchEnd::Answered(response));
            }
            self.store_response(tx, request, in_progress)?;
        }
        let (mut work, mut next) = (0, self.first);
        while work < BATCH
            && let Some(id) = self.request.ids.get(next)
        {
            match tx.part(|tx| self.apply(tx, id)) {
                Ok((execution_id, did)) => {
                    done.ids.push(id.clone());
                    done.execution_ids.extend(execution_id);
                    work += did;
                }
                Err(Error::Refused(refusal)) => {
                    done.refused.push((id.clone(), refusal));
                    work += 1;
                }
                Err(error) => return Err(error),
            }
            next += 1;
        }
        if next < self.request.ids.len() {
            return Ok(BatchEnd::More { done, next });
        }
        let response = (self.request.render)(&done)?;
        if let Some(BulkCall { request, .. }) = call {
            match tx.part(|tx| self.store_response(tx, request, &response)) {
                // The work is done, so a full account does not refuse it: repetitions get the first response.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BatchEnd::Answered(response))
    }

    /// Returns the created execution and the work: 1, and more for overdue runs that fire and for copied bytes.
    fn apply(&self, tx: &WriteTx<'_>, id: &str) -> Result<(Option<ExecutionId>, usize)> {
        let set_status = |status| {
            let cue = cues::find(tx, self.user_key, id)?;
            let request = CueRequest::of_status(&cue, status);
            let (_, fired) = self.changes.change(tx, cue, &request)?;
            Ok((None, 1 + fired))
        };
        match self.request.action {
            BulkAction::Cues(CueAction::Pause) => set_status(RequestedStatus::Paused),
            BulkAction::Cues(CueAction::Resume) => set_status(RequestedStatus::Active),
            BulkAction::Cues(CueAction::Delete) => {
                cues::delete_later(tx, self.user_key, id, self.now)?;
                Ok((None, 1))
            }
            BulkAction::Cues(CueAction::Fire) => {
                let request = FireRequest { send_at: None, payload: FirePayload::OfCue };
                Ok((Some(self.runs.fire(tx, id, request)?.execution_id), 1))
            }
            BulkAction::Replay => {
                let id = ExecutionId::parse(id).ok_or_else(executions::not_found)?;
                let (run, copied) = self.runs.replay(tx, id)?;
                Ok((Some(run.execution_id), 1 + copied / BYTES_OF_WORK))
            }
        }
    }

    fn store_response(
        &self,
        tx: &WriteTx<'_>,
        request: &IdempotencyRequest,
        response: &StoredResponse,
    ) -> Result<()> {
        let store = || store_response(tx, self.user_key, Some(request), response, self.now);
        users::check_storage_quota(tx, self.runs.plans(), self.user_key, store)
    }
}
