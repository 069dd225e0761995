//! Actions on many objects, in several writes. A write takes one batch, and an object that is refused does not stop the
//! others. A batch that is committed stays: if the process ends or the disk fills up between two writes, only the answer is
//! lost (contract §4.15).
//!
//! With an `Idempotency-Key` the first write stores a refusal of repetitions, which the last one replaces by the answer. A
//! repetition of an interrupted request therefore does nothing twice.

pub mod cues;
pub mod replays;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use crate::actions::idempotency::{IdempotencyRequest, StoredResponse, keep, repeated};
use crate::app::App;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::lifecycle::plan_limits::within_storage;
use crate::store::{Pending, WriteTx};

/// Most ids in a request.
pub const MAX_IDS: usize = 500;

/// Most objects in a write. All other writes wait for it, a due run too, so it must take far less than 100 ms (contract
/// §11.5).
const BATCH: usize = 100;

/// Most objects that a filter may match: 100 writes, and an answer of up to 3 MB.
pub const MAX_MATCHED: usize = 10_000;

/// An `Idempotency-Key`, and the response to repetitions while the request runs or after it was interrupted.
#[derive(Debug, Clone)]
pub struct BulkCall {
    pub request: IdempotencyRequest,
    pub begun: StoredResponse,
}

/// The message of [`BulkCall::begun`], a 409 `invalid_state`.
pub const BEGUN: &str = "A request with this Idempotency-Key has begun and its answer is not stored: it still runs, was interrupted, \
     or its answer found no room. Look at what was done before you send it with a new key";

/// An action on many objects that has not ended. `S` collects what was done.
#[derive(Debug)]
pub struct BulkRun<T, S> {
    waiting: VecDeque<T>,
    done: S,
    call: Option<BulkCall>,
    has_begun: bool,
}

/// What comes after a write.
#[derive(Debug)]
pub enum BulkStep<T, S> {
    /// Another write.
    More(BulkRun<T, S>),
    /// The answer, of this request or of an earlier one with the same `Idempotency-Key`.
    Done(StoredResponse),
}

impl<T, S> BulkRun<T, S> {
    #[must_use]
    pub fn new(targets: Vec<T>, done: S, call: Option<BulkCall>) -> Self {
        Self { waiting: targets.into(), done, call, has_begun: false }
    }
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
    app.store.read(move |read| repeated(read, user_key, Some(&call.request), now))
}

/// Checks the number of objects that a filter matches against the one that the caller expects.
///
/// # Errors
/// `invalid_state`.
pub fn check_expected(matched: usize, expected: usize) -> Result<()> {
    if matched == expected {
        return Ok(());
    }
    let message = format!(
        "The filter matches {matched} and not the {expected} of `expected`; nothing was done: look at them, and send the \
         present number"
    );
    Err(Error::refused(ErrorCode::InvalidState, message))
}

/// Runs one write of `run`: `apply` for each target, which returns the work that it did, 1 or more. A target that is refused
/// changes nothing, and is given to `refuse`. The answer is `render`ed when no target is left.
fn step<T, S>(
    app: &App,
    user_key: i64,
    mut run: BulkRun<T, S>,
    apply: impl Fn(&WriteTx<'_>, &T, &mut S) -> Result<usize> + Send + 'static,
    refuse: fn(&T, Refusal, &mut S),
    render: fn(&S) -> Result<StoredResponse>,
) -> Pending<BulkStep<T, S>>
where
    T: Send + 'static,
    S: Send + 'static,
{
    let (now, plans) = (app.clock.now(), app.config.plans.clone());
    app.store.write_for(user_key, move |tx| {
        if !run.has_begun
            && let Some(BulkCall { request, begun }) = &run.call
        {
            if let Some(response) = repeated(tx, user_key, Some(request), now)? {
                return Ok(BulkStep::Done(response));
            }
            within_storage(tx, &plans, user_key, || keep(tx, user_key, Some(request), begun, now))?;
        }
        run.has_begun = true;
        let mut work = 0;
        while work < BATCH
            && let Some(target) = run.waiting.pop_front()
        {
            match tx.part(|tx| apply(tx, &target, &mut run.done)) {
                Ok(did) => work += did,
                Err(Error::Refused(refusal)) => {
                    refuse(&target, refusal, &mut run.done);
                    work += 1;
                }
                Err(error) => return Err(error),
            }
        }
        if !run.waiting.is_empty() {
            return Ok(BulkStep::More(run));
        }
        let response = render(&run.done)?;
        if let Some(BulkCall { request, .. }) = &run.call {
            let store = || keep(tx, user_key, Some(request), &response, now);
            match tx.part(|tx| within_storage(tx, &plans, user_key, store)) {
                // The work is done, so a full account does not refuse it: repetitions get the first response.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BulkStep::Done(response))
    })
}
