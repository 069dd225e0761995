//! Actions on many objects: which ones, by a list of ids or by a filter and the number that it must match, and the run to the
//! end.

use serde::Serialize;
use serde_json::json;

use crate::api::fields::{JsonFields, Presence};
use crate::domain::api_error::{ErrorCode, FieldError, Refusal};
use crate::error::{Error, Result};
use crate::http::api::idempotency::{from_stored, idempotency_request};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::bulk::{BulkCall, IN_PROGRESS, MAX_IDS, MAX_MATCHED, check_expected, find_repeated};
use crate::service::idempotency::StoredResponse;

/// Most characters of an id. Ids of other forms are answered as unknown, and repeated in the answer.
const MAX_ID: usize = 64;

/// Bytes of the answer for each object, with the sentence why it was refused.
pub const ANSWER_BYTES: usize = 300;

/// The objects of an action.
#[derive(Debug)]
pub enum Targets<F> {
    Ids(Vec<String>),
    /// All that match, if they are `expected` many: the number that a person has seen and confirmed. It may be missing in a
    /// dry run.
    Matching {
        filter: F,
        expected: Option<usize>,
    },
}

pub fn read_ids(fields: &mut JsonFields<'_>) -> Option<Vec<String>> {
    fields.required_strings("ids", 1..=MAX_IDS, 1..=MAX_ID)
}

/// Reads either `ids`, or `filter` and `expected`; and `dry_run`, which is returned too. `None` after an error, which is in
/// the list of errors. A misspelled condition of the filter would match more, so unknown fields are errors.
pub fn read_targets<F>(
    fields: &mut JsonFields<'_>,
    normalized: fn(Vec<String>) -> Vec<String>,
    read_filter: fn(&mut JsonFields<'_>) -> F,
) -> Option<(Targets<F>, bool)> {
    let is_dry_run = fields.boolean("dry_run") == Some(true);
    let has_ids = fields.presence("ids") == Presence::Given;
    let filter = fields.object("filter").map(|mut filter| {
        let read = read_filter(&mut filter);
        filter.forbid_unknown();
        read
    });
    let has_filter = fields.presence("filter") == Presence::Given;
    let has_expected = fields.presence("expected") == Presence::Given;
    let most = i64::try_from(MAX_MATCHED).unwrap_or(i64::MAX);
    let expected = fields.integer("expected", 0..=most);
    match (has_ids, has_filter) {
        (true, true) => fields.reject("filter", "send either ids or filter, not both"),
        (false, false) => {
            fields.reject("ids", "send ids, or filter and expected, the number of objects that it matches");
        }
        (true, false) if has_expected => fields.reject("expected", "expected goes with filter, not with ids"),
        (true, false) => return Some((Targets::Ids(normalized(read_ids(fields)?)), is_dry_run)),
        (false, true) if !has_expected && !is_dry_run => fields.add_missing("expected"),
        (false, true) => {
            let expected = expected.and_then(|expected| usize::try_from(expected).ok());
            return filter.map(|filter| (Targets::Matching { filter, expected }, is_dry_run));
        }
    }
    None
}

/// The ids of the objects to change, for whose answer memory is reserved, or the answer to a repeated request or a dry run.
pub enum Resolved {
    Ids(Vec<String>),
    Answer(Response),
}

impl<F> Targets<F> {
    /// Finds the objects. `select` reads the ids that match a filter, one more than there may be; `narrower` is the advice for too
    /// many.
    pub async fn resolve<S: Future<Output = Result<Vec<String>>>>(
        self,
        request: &Request,
        (call, is_dry_run): (Option<&BulkCall>, bool),
        narrower: &str,
        select: impl FnOnce(F) -> S,
    ) -> Result<Resolved> {
        let ids = match self {
            Self::Ids(ids) => ids,
            Self::Matching { filter, .. } if is_dry_run => select(filter).await?,
            Self::Matching { filter, expected } => {
                if let Some(call) = call
                    && let user_key = request.caller()?.user_key
                    && let Some(response) = find_repeated(&request.app, user_key, call.clone()).await?
                {
                    return Ok(Resolved::Answer(from_stored(response)));
                }
                let ids = select(filter).await?;
                check_bound(ids.len(), narrower)?;
                check_expected(ids.len(), expected)?;
                ids
            }
        };
        if is_dry_run {
            return dry_run(request, ids).map(Resolved::Answer);
        }
        request.reserve_response(ids.len() * ANSWER_BYTES)?;
        Ok(Resolved::Ids(ids))
    }
}

/// Checks how many objects a filter matches.
/// Errors: 422 if there are more than [`MAX_MATCHED`].
fn check_bound(matched: usize, narrower: &str) -> Result<()> {
    if matched <= MAX_MATCHED {
        return Ok(());
    }
    let msg = format!("Value error, the filter matches more than {MAX_MATCHED}; {narrower}");
    let loc = vec!["body".into(), "filter".into()];
    Err(Refusal::invalid(vec![FieldError { kind: "value_error", loc, msg, input: serde_json::Value::Null }])
        .into())
}

/// As [`idempotency_request`], for an action on many objects.
pub fn bulk_call(request: &Request, route: &str) -> Result<Option<BulkCall>> {
    let (code, status) = ErrorCode::InvalidState.text_and_status();
    let body = json!({"error": {"code": code, "message": IN_PROGRESS, "status": status}}).to_string();
    let in_progress = StoredResponse { status, body };
    let call = idempotency_request(request, route, None)?;
    Ok(call.map(|request| BulkCall { request, in_progress }))
}

/// Runs an action on many objects to its end, also if the client disconnects: a half of it would be done, and a repetition
/// with the same key would find no answer. The stop of the program ends it between two writes.
pub async fn run_to_end(
    action: impl Future<Output = Result<StoredResponse>> + Send + 'static,
) -> Result<Response> {
    let done = tokio::spawn(action).await;
    let done = done.map_err(|error| Error::fault_from("an action on many objects was interrupted", error))?;
    done.map(from_stored)
}

/// The objects that a request is for, without a change.
#[derive(Debug, Serialize)]
struct DryRunView<'a> {
    matched: usize,
    dry_run: bool,
    ids: &'a [String],
    has_more: bool,
}

/// The answer to a dry run. Of the objects that match it names as many as a request may change.
fn dry_run(request: &Request, mut ids: Vec<String>) -> Result<Response> {
    let has_more = ids.len() > MAX_MATCHED;
    ids.truncate(MAX_MATCHED);
    request.reserve_response(ids.len() * ANSWER_BYTES)?;
    Response::from_body(&DryRunView { matched: ids.len(), dry_run: true, ids: &ids, has_more })
}
