//! Actions on many objects: `/v1/cues/bulk`, `/v1/cues/bulk-delete` and `/v1/executions/replay`. The objects are a list
//! of ids, or those that match a filter, with the number that it must match.

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::cue::read_tags;
use crate::api::fields::JsonFields;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::list::{CueFilter, MAX_SEARCH, fold};
use crate::domain::cue::slug::SlugFilter;
use crate::domain::cue::{CueStatus, Transport};
use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::ids::ExecutionId;
use crate::domain::schedule::{Zone, parse_instant};
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{Request, Response, to_json, to_refusal};
use crate::service::bulk::{
    BulkAction, BulkCall, BulkRequest, BulkResults, CueAction, IN_PROGRESS, MAX_IDS, MAX_MATCHED,
    check_expected, distinct, find_repeated, run,
};
use crate::store::ReadTx;
use crate::store::accounts::idempotency::StoredResponse;
use crate::store::cues::cue_list;
use crate::store::executions::execution_list::{self, CreatedRange, ExecutionFilter};

/// Most characters of an id. Ids of other forms are answered as unknown, and repeated in the answer.
const MAX_ID: usize = 64;

/// Bytes of the answer for each object, with the sentence why it was refused.
const ANSWER_BYTES: usize = 300;

/// The objects of an action.
enum Targets<F> {
    Ids(Vec<String>),
    /// All that match, if they are `expected` many: the number that a person has seen and confirmed. It may be missing
    /// in a dry run.
    Matching {
        filter: F,
        expected: Option<usize>,
    },
}

/// The ids of the objects to change, or the answer to a repeated request or a dry run.
type Resolution = std::result::Result<Vec<String>, Response>;

/// The names in an answer, and what it says beside the numbers.
struct AnswerForm {
    changed: &'static str,
    refused: &'static str,
    has_messages: bool,
    has_executions: bool,
}

const DONE: AnswerForm =
    AnswerForm { changed: "done", refused: "failed", has_messages: true, has_executions: false };

const FIRED: AnswerForm = AnswerForm { has_executions: true, ..DONE };

const REPLAYED: AnswerForm = AnswerForm {
    changed: "replayed",
    refused: "skipped",
    has_messages: false,
    has_executions: true,
};

#[derive(Debug, Serialize)]
struct RefusedView<'a> {
    id: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

pub async fn change_cues(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let action = fields.required().one_of("action", &CueAction::WORDS).and_then(CueAction::parse);
    let targets = read_targets(&mut fields, distinct, read_cue_filter);
    fields.forbid_unknown();
    let (action, (targets, is_dry_run)) = fields.finish_with(action.zip(targets))?;
    let call = bulk_call(&request, "POST /v1/cues/bulk")?;
    let user_key = request.user_key()?;
    let select = |filter| {
        move |read: &ReadTx<'_>| cue_list::select(read, user_key, &filter, MAX_MATCHED + 1)
    };
    let ids = targets.resolve(&request, call.as_ref(), is_dry_run, "narrow it", select).await?;
    let render = if action == CueAction::Fire {
        |done: &BulkResults| render(done, done.ids.len(), &FIRED)
    } else {
        |done: &BulkResults| render(done, done.ids.len(), &DONE)
    };
    run_to_end(request, BulkAction::Cues(action), ids, call, render).await
}

/// `POST /v1/cues/bulk-delete`, with the answer of the public service. Its header `X-Confirm-Destructive` has no
/// effect.
pub async fn delete_cues(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let ids = read_ids(&mut fields);
    fields.forbid_unknown();
    let ids = distinct(fields.finish_with(ids)?);
    let call = bulk_call(&request, "POST /v1/cues/bulk-delete")?;
    request.reserve_response(ids.len() * ANSWER_BYTES)?;
    run_to_end(request, BulkAction::Cues(CueAction::Delete), Ok(ids), call, render_deleted).await
}

pub async fn replay(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let mut fields = request.fields()?;
    let targets = read_targets(&mut fields, oldest_first, read_execution_filter);
    fields.forbid_unknown();
    let (targets, is_dry_run) = fields.finish_with(targets)?;
    let call = bulk_call(&request, "POST /v1/executions/replay")?;
    let narrower = "narrow since and until, and replay one part after the other";
    let select = |filter| {
        move |read: &ReadTx<'_>| {
            let ids = execution_list::select_for_replay(read, user_key, &filter, MAX_MATCHED + 1)?;
            Ok(ids.iter().map(ToString::to_string).collect())
        }
    };
    let ids = targets.resolve(&request, call.as_ref(), is_dry_run, narrower, select).await?;
    let render = |done: &BulkResults| render(done, done.execution_ids.len(), &REPLAYED);
    run_to_end(request, BulkAction::Replay, ids, call, render).await
}

/// Each id once and in its usual spelling. Ids sort by the time of creation.
fn oldest_first(ids: Vec<String>) -> Vec<String> {
    let usual = |id: String| ExecutionId::parse(&id).map_or(id, |id| id.to_string());
    let mut ids = distinct(ids.into_iter().map(usual).collect());
    ids.sort_unstable();
    ids
}

fn read_cue_filter(fields: &mut JsonFields<'_>) -> CueFilter {
    let namespace = fields.string("namespace", 0..=usize::MAX);
    let slug = SlugFilter::parse(None, namespace.as_deref()).unwrap_or_else(|(name, reason)| {
        fields.reject(name, reason);
        None
    });
    CueFilter {
        slug,
        q: fields.string("q", 1..=MAX_SEARCH).map(|text| fold(&text)),
        status: fields.one_of("status", &CueStatus::WORDS).and_then(CueStatus::parse),
        transport: fields.one_of("transport", &Transport::WORDS).and_then(Transport::parse),
        tags: read_tags(fields).unwrap_or_default(),
        failing: fields.boolean("failing"),
    }
}

fn read_execution_filter(fields: &mut JsonFields<'_>) -> ExecutionFilter {
    // The only status that is replayed by a filter, so it is the default too.
    fields.one_of("status", &[ExecutionStatus::Failed.as_str()]);
    let (since, until) = (read_instant(fields, "since"), read_instant(fields, "until"));
    if since.is_some_and(|since| until.is_some_and(|until| until <= since)) {
        fields.reject("until", "must be later than since");
    }
    ExecutionFilter {
        cue_id: fields.string("cue_id", 1..=255),
        statuses: vec![ExecutionStatus::Failed],
        created: CreatedRange { since, until },
        cause: fields.one_of("cause", &FailureCause::WORDS).and_then(FailureCause::parse),
        tags: read_tags(fields).unwrap_or_default(),
        ..ExecutionFilter::default()
    }
}

fn read_instant(fields: &mut JsonFields<'_>, name: &'static str) -> Option<jiff::Timestamp> {
    let text = fields.string(name, 1..=64)?;
    parse_instant(&text, &Zone::UTC).map_err(|error| fields.reject(name, &error.to_string())).ok()
}

fn read_ids(fields: &mut JsonFields<'_>) -> Option<Vec<String>> {
    fields.required().strings("ids", 1..=MAX_IDS, 1..=MAX_ID)
}

/// Reads either `ids`, or `filter` and `expected`; and `dry_run`, which is returned too. `None` after an error, which
/// is in the list of errors. A misspelled condition of the filter would match more, so unknown fields are errors.
fn read_targets<F>(
    fields: &mut JsonFields<'_>,
    normalized: fn(Vec<String>) -> Vec<String>,
    read_filter: fn(&mut JsonFields<'_>) -> F,
) -> Option<(Targets<F>, bool)> {
    let is_dry_run = fields.boolean("dry_run") == Some(true);
    let filter = fields.object("filter").map(|mut filter| {
        let read = read_filter(&mut filter);
        filter.forbid_unknown();
        read
    });
    let [has_ids, has_filter, has_expected] =
        ["ids", "filter", "expected"].map(|name| fields.any(name).is_some());
    let most = i64::try_from(MAX_MATCHED).unwrap_or(i64::MAX);
    let expected = fields.integer("expected", 0..=most);
    match (has_ids, has_filter) {
        (true, true) => fields.reject("filter", "must be left out beside ids"),
        (false, false) => {
            fields.reject(
                "ids",
                "send ids, or filter together with expected, the number of objects that filter matches",
            );
        }
        (true, false) if has_expected => {
            fields.reject("expected", "goes with filter, not with ids")
        }
        (true, false) => return Some((Targets::Ids(normalized(read_ids(fields)?)), is_dry_run)),
        (false, true) if !has_expected && !is_dry_run => fields.add_missing("expected"),
        (false, true) => {
            let expected = expected.and_then(|expected| usize::try_from(expected).ok());
            return filter.map(|filter| (Targets::Matching { filter, expected }, is_dry_run));
        }
    }
    None
}

impl<F> Targets<F> {
    /// Finds the objects, and reserves memory for the answer. The read that `select` returns finds the ids that match a
    /// filter, one more than there may be; `narrower` is the advice for too many.
    async fn resolve<S>(
        self,
        request: &Request,
        call: Option<&BulkCall>,
        is_dry_run: bool,
        narrower: &str,
        select: impl FnOnce(F) -> S,
    ) -> Result<Resolution>
    where
        S: FnOnce(&ReadTx<'_>) -> Result<Vec<String>> + Send + 'static,
    {
        let mut ids = match self {
            Self::Ids(ids) => ids,
            Self::Matching { filter, expected } => {
                if let (Some(call), false) = (call, is_dry_run)
                    && let user_key = request.user_key()?
                    && let Some(response) =
                        find_repeated(&request.app, user_key, call.clone()).await?
                {
                    return Ok(Err(Response::stored(response)));
                }
                let (ids, _turn) = request.read_list(true, select(filter)).await?;
                if !is_dry_run {
                    check_bound(ids.len(), narrower)?;
                    check_expected(ids.len(), expected)?;
                }
                ids
            }
        };
        let has_more = ids.len() > MAX_MATCHED;
        ids.truncate(MAX_MATCHED);
        request.reserve_response(ids.len() * ANSWER_BYTES)?;
        if is_dry_run {
            let body =
                json!({"matched": ids.len(), "dry_run": true, "ids": ids, "has_more": has_more});
            return Ok(Err(Response::ok(&body)));
        }
        Ok(Ok(ids))
    }
}

/// Checks how many objects a filter matches.
/// Errors: 422 if there are more than [`MAX_MATCHED`].
fn check_bound(matched: usize, narrower: &str) -> Result<()> {
    if matched <= MAX_MATCHED {
        return Ok(());
    }
    let reason = format!("matches more than {MAX_MATCHED}; {narrower}");
    Err(Refusal::invalid_value(["body", "filter"], &reason, Value::Null).into())
}

/// As [`Request::idempotency`], for an action on many objects.
fn bulk_call(request: &Request, route: &str) -> Result<Option<BulkCall>> {
    let (code, status) = ErrorCode::InvalidState.text_and_status();
    let body =
        json!({"error": {"code": code, "message": IN_PROGRESS, "status": status}}).to_string();
    let in_progress = StoredResponse { status, body };
    let call = request.idempotency(route, None)?;
    Ok(call.map(|request| BulkCall { request, in_progress }))
}

/// Runs an action on many objects to its end, also if the client disconnects: a half of it would be done, and a
/// repetition with the same key would find no answer. The stop of the program ends it between two writes.
async fn run_to_end(
    request: Request,
    action: BulkAction,
    ids: Resolution,
    call: Option<BulkCall>,
    render: fn(&BulkResults) -> Result<StoredResponse>,
) -> Result<Response> {
    let ids = match ids {
        Ok(ids) => ids,
        Err(response) => return Ok(response),
    };
    let caller = request.caller()?;
    let request_id = request.id.clone();
    let explain = Box::new(move |error| to_refusal(error, &request_id));
    let bulk = BulkRequest { action, ids, call, render, explain };
    // The request moves into the task, because the memory for the answer is reserved as long as it exists.
    let done = tokio::spawn(async move { run(&request.app, &caller, bulk).await }).await;
    let done = done
        .map_err(|error| Error::fault_from("an action on many objects was interrupted", error))?;
    done.map(Response::stored)
}

/// `matched` is the sum of those that were changed and those that were refused.
fn render(done: &BulkResults, changed: usize, form: &AnswerForm) -> Result<StoredResponse> {
    let matched = changed + done.refused.len();
    let counts = format!("{{\"matched\":{matched},\"{}\":{changed}}}", form.changed);
    let refused = done.refused.iter().map(|(id, refusal)| RefusedView {
        id,
        code: refusal.code.text_and_status().0,
        message: form.has_messages.then_some(&*refusal.message),
    });
    let mut body = ListBody::after(&counts, form.refused, refused)?;
    if form.has_executions {
        let ids: Vec<String> = done.execution_ids.iter().map(ToString::to_string).collect();
        body = body.with("execution_ids", &to_json(&ids)?);
    }
    Ok(StoredResponse { status: 200, body: body.into_text() })
}

fn render_deleted(done: &BulkResults) -> Result<StoredResponse> {
    let skipped: Vec<&str> = done.refused.iter().map(|(id, _)| id.as_str()).collect();
    let body = json!({"deleted": done.ids, "skipped": skipped}).to_string();
    Ok(StoredResponse { status: 200, body })
}
