//! Actions on many objects, in several writes. A write takes one batch, and an object that is refused does not stop the
//! others. A batch that is committed stays. If a later one fails, the answer says so of the objects that are left (contract
//! §4.15): an error would ask the caller to repeat what is done. If the process ends between two writes, only the answer is
//! lost.
//!
//! With an `Idempotency-Key` the first write stores a refusal of repetitions, which the last one replaces by the answer. A
//! repetition of an interrupted request therefore does nothing twice.

pub mod cues;
pub mod replays;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::app::App;
use crate::domain::account::plan::Plans;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::service::idempotency::{IdempotencyRequest, StoredResponse, find_response, store_response};
use crate::service::plan_limits::check_storage_quota;
use crate::store::{Pending, WriteTx};

pub const MAX_IDS: usize = 500;

/// Most objects in a write. All other writes wait for it, a due run too, so it must take far less than 100 ms (contract
/// §11.5).
const BATCH: usize = 100;

/// Bytes that are as much work as an object: to copy them takes a write as long.
const BYTES_OF_WORK: usize = 32 << 10;

/// Most objects that a filter may match: 100 writes, and an answer of up to 3 MB.
pub const MAX_MATCHED: usize = 10_000;

/// An `Idempotency-Key`, and the response to repetitions while the request runs or after it was interrupted.
#[derive(Debug, Clone)]
pub struct BulkCall {
    pub request: IdempotencyRequest,
    pub in_progress: StoredResponse,
}

/// The message of [`BulkCall::in_progress`], a 409 `invalid_state`.
pub const IN_PROGRESS: &str = "A request with this Idempotency-Key has begun and its answer is not stored: it still runs, was interrupted, \
     or its answer found no room. Look at what was done before you send it with a new key";

/// The objects of a request that were changed, and those that were refused.
pub trait BulkResults: Clone + Default + Send + Sync + 'static {
    /// Adds what the next write has done.
    fn append(&mut self, next: Self);

    /// Adds an object that was left as it was.
    fn refuse(&mut self, id: &str, refusal: Refusal);
}

/// A request for an action on many objects.
pub struct BulkRequest<D> {
    pub ids: Vec<String>,
    pub call: Option<BulkCall>,
    /// Renders the answer, when no object is left.
    pub render: fn(&D) -> Result<StoredResponse>,
    /// The reason to show for the objects that are left when a later write fails. It logs the error.
    pub explain: Box<dyn Fn(Error) -> Refusal + Send + Sync>,
}

/// The targets without repetitions, in their order.
pub fn distinct<T: Clone + Eq + Hash>(targets: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    targets.into_iter().filter(|target| seen.insert(target.clone())).collect()
}

/// The stored response to a request, if it is a repetition. Call it before a filter is applied: what it matches has
/// changed since.
pub fn find_repeated(app: &App, user_key: i64, call: BulkCall) -> Pending<Option<StoredResponse>> {
    let now = app.clock.now();
    app.store.read(move |read| find_response(read, user_key, Some(&call.request), now))
}

/// Checks the number of objects that a filter matches against the one that the caller expects. Errors: `invalid_state`.
pub fn check_expected(matched: usize, expected: Option<usize>) -> Result<()> {
    let Some(expected) = expected.filter(|expected| *expected != matched) else {
        return Ok(());
    };
    let message = format!(
        "The filter matches {matched} and not the {expected} of `expected`; nothing was done: look at them, and send the \
         present number"
    );
    Err(Error::refused(ErrorCode::InvalidState, message))
}

struct Batch<D> {
    user_key: i64,
    plans: Plans,
    now: jiff::Timestamp,
    request: Arc<BulkRequest<D>>,
    /// The place of its first object in the ids of the request.
    first: usize,
    /// The results of earlier writes.
    earlier: Arc<D>,
}

/// The step after a write.
enum BatchEnd<D> {
    /// Another write, from the object at place `next`.
    More { done: D, next: usize },
    /// The answer, of this request or of an earlier one with the same `Idempotency-Key`.
    Answered(StoredResponse),
}

/// Runs all writes of `request`. `action` returns, for the present time, the change of one object in a write, which returns
/// its work, 1 or more. An object that is refused changes nothing.
async fn run<D, A>(
    app: &App,
    user_key: i64,
    request: BulkRequest<D>,
    action: impl Fn(jiff::Timestamp) -> A,
) -> Result<StoredResponse>
where
    D: BulkResults,
    A: Fn(&WriteTx<'_>, &str, &mut D) -> Result<usize> + Send + 'static,
{
    let (request, mut first, mut earlier) = (Arc::new(request), 0, Arc::<D>::default());
    loop {
        let now = app.clock.now();
        let batch = Batch {
            user_key,
            plans: app.config.plans.clone(),
            now,
            request: Arc::clone(&request),
            first,
            earlier: Arc::clone(&earlier),
        };
        let apply = action(now);
        match app.store.write_for(user_key, move |tx| batch.write(tx, &apply)).await {
            Ok(BatchEnd::Answered(response)) => return Ok(response),
            Ok(BatchEnd::More { done, next }) => {
                let mut all = Arc::unwrap_or_clone(earlier);
                all.append(done);
                (earlier, first) = (Arc::new(all), next);
            }
            Err(error) if first == 0 => return Err(error),
            Err(error) => {
                let refusal = (request.explain)(error);
                let mut done = Arc::unwrap_or_clone(earlier);
                for id in request.ids.iter().skip(first) {
                    done.refuse(id, refusal.clone());
                }
                let response = (request.render)(&done)?;
                keep_answer(app, user_key, request.call.clone(), response.clone()).await;
                return Ok(response);
            }
        }
    }
}

/// Stores the answer of a request of which a write has failed. If that fails too, a repetition stays refused.
async fn keep_answer(app: &App, user_key: i64, call: Option<BulkCall>, response: StoredResponse) {
    let Some(BulkCall { request, .. }) = call else { return };
    let (now, plans) = (app.clock.now(), app.config.plans.clone());
    let kept = app.store.write_for(user_key, move |tx| {
        check_storage_quota(tx, &plans, user_key, || {
            store_response(tx, user_key, Some(&request), &response, now)
        })
    });
    if let Err(error) = kept.await {
        tracing::warn!(error = %error, "the answer to an interrupted request is not stored for repetitions");
    }
}

impl<D: BulkResults> Batch<D> {
    fn write(
        &self,
        tx: &WriteTx<'_>,
        apply: &impl Fn(&WriteTx<'_>, &str, &mut D) -> Result<usize>,
    ) -> Result<BatchEnd<D>> {
        if self.first == 0
            && let Some(BulkCall { request, in_progress }) = &self.request.call
        {
            if let Some(response) = find_response(tx, self.user_key, Some(request), self.now)? {
                return Ok(BatchEnd::Answered(response));
            }
            self.keep(tx, request, in_progress)?;
        }
        let (mut work, mut next, mut done) = (0, self.first, D::default());
        while work < BATCH
            && let Some(id) = self.request.ids.get(next)
        {
            match tx.part(|tx| apply(tx, id, &mut done)) {
                Ok(did) => work += did,
                Err(Error::Refused(refusal)) => {
                    done.refuse(id, refusal);
                    work += 1;
                }
                Err(error) => return Err(error),
            }
            next += 1;
        }
        if next < self.request.ids.len() {
            return Ok(BatchEnd::More { done, next });
        }
        let mut all = D::clone(&self.earlier);
        all.append(done);
        let response = (self.request.render)(&all)?;
        if let Some(BulkCall { request, .. }) = &self.request.call {
            match tx.part(|tx| self.keep(tx, request, &response)) {
                // The work is done, so a full account does not refuse it: repetitions get the first response.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BatchEnd::Answered(response))
    }

    fn keep(&self, tx: &WriteTx<'_>, request: &IdempotencyRequest, response: &StoredResponse) -> Result<()> {
        let store = || store_response(tx, self.user_key, Some(request), response, self.now);
        check_storage_quota(tx, &self.plans, self.user_key, store)
    }
}

/// The work of an object for which `bytes` were copied.
fn work_of(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_WORK
}
