//! `POST /v1/apply`: many cues and channels, as files have them (contract §4.18).

use std::sync::Arc;

use hyper::StatusCode;

use crate::api::apply::{
    ApplyErrors, ChangeView, FieldView, ReadApply, channel_fields, cue_fields, payload_fields,
    read_apply,
};
use crate::domain::api_error::ErrorCode;
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{Request, Response, run_blocking};
use crate::service::apply::{self, Applied, ApplyRequest, Attempt, Prune, SeenPayload, Target};
use crate::service::cues::{FileOrigin, PutAction, PutCue};
use crate::store::ReadTx;
use crate::store::accounts::idempotency::StoredResponse;

/// Bytes of the answer for each object, beside the values of the body that it repeats.
const ANSWER_BYTES: usize = 1 << 10;

pub async fn apply(request: Request) -> Result<Response> {
    let mut errors = ApplyErrors::default();
    match try_apply(request, &mut errors).await {
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::ValidationError => {
            let part = refusal.problems.first().and_then(|problem| problem.loc.first());
            errors.add(&[&part.map(ToString::to_string).unwrap_or_default()], &refusal);
        }
        Ok(Some(response)) => return Ok(Response::stored(response)),
        Ok(None) => {}
        Err(error) => return Err(error),
    }
    Ok(Response::json(StatusCode::UNPROCESSABLE_ENTITY, errors.to_json().to_string()))
}

/// `None` if there are errors.
async fn try_apply(request: Request, errors: &mut ApplyErrors) -> Result<Option<StoredResponse>> {
    let caller = request.caller()?;
    // Hundreds of cues take longer than the thread of other connections may be held.
    let read = move || {
        let read = read_apply(request.fields()?, &request.app.config.callbacks);
        Ok((request, read))
    };
    let (mut request, read) = run_blocking(read).await?;
    let read = match read {
        Ok(read) => read,
        Err(found) => {
            *errors = found;
            return Ok(None);
        }
    };
    let call = request.idempotency("POST /v1/apply", None)?;
    let bytes = request.body().len() + (read.cues.len() + read.channels.len()) * ANSWER_BYTES;
    request.drop_body();
    request.reserve_response(bytes)?;
    let (keys, namespace) = (keys(&read), read.namespace.clone());
    let wanted = Arc::new(wanted(read));
    loop {
        let (of_read, user_key) = (Arc::clone(&wanted), caller.user_key);
        let look = move |read: &ReadTx<'_>| look(read, user_key, &of_read);
        let (seen, payloads) = request.app.store.read(look).await?;
        let answer = Answer {
            wanted: Arc::clone(&wanted),
            keys: keys.clone(),
            namespace: namespace.clone(),
            payloads,
        };
        let answer = Arc::new(answer);
        let of_write = Arc::clone(&answer);
        let render = move |applied: &Applied| of_write.render(applied);
        let done =
            apply::apply(&request.app, &caller, Arc::clone(&wanted), seen, call.clone(), render)?;
        match done.await? {
            Attempt::Answered(response) => return Ok(Some(response)),
            Attempt::Done(applied) if applied.refused.is_empty() => {
                return answer.render(&applied).map(Some);
            }
            Attempt::Done(applied) => {
                *errors = answer.errors(&applied);
                return Ok(None);
            }
            Attempt::Stale => {}
        }
    }
}

/// The keys of the cues.
fn keys(read: &ReadApply) -> Arc<[String]> {
    read.cues.iter().map(|(key, _)| key.clone()).collect()
}

fn wanted(read: ReadApply) -> ApplyRequest {
    let ReadApply { namespace, cues, channels, prunes, kept, adopts, is_dry_run } = read;
    let origin = FileOrigin { namespace: namespace.clone(), adopts };
    let put = |request| PutCue { request, origin: Some(origin.clone()) };
    let prune = prunes.then(|| Prune { namespace, kept: kept.into_iter().collect() });
    let cues = cues.into_iter().map(|(_, request)| put(request)).collect();
    ApplyRequest { cues, channels, prune, is_dry_run }
}

/// Compares the payloads with the stored ones.
fn look(
    read: &ReadTx<'_>,
    user_key: UserKey,
    wanted: &ApplyRequest,
) -> Result<(Vec<SeenPayload>, Vec<Vec<FieldView>>)> {
    let look_at = |put: &PutCue| {
        let Some((found, stored)) = put.find(read, user_key)? else {
            return Ok((SeenPayload::default(), Vec::new()));
        };
        let is_other = found.has_other_payload;
        let new = put.payload().map(|payload| payload.body.as_str());
        let fields = if is_other { payload_fields(stored.as_deref(), new) } else { Vec::new() };
        Ok((SeenPayload { keys: Some((found.cue.key, found.cue.payload_key)), is_other }, fields))
    };
    let looked: Result<Vec<_>> = wanted.cues.iter().map(look_at).collect();
    Ok(looked?.into_iter().unzip())
}

/// What the answer needs of the request.
struct Answer {
    wanted: Arc<ApplyRequest>,
    keys: Arc<[String]>,
    namespace: String,
    /// The changed fields of the payload of each cue.
    payloads: Vec<Vec<FieldView>>,
}

impl Answer {
    fn render(&self, applied: &Applied) -> Result<StoredResponse> {
        let is_dry_run = self.wanted.is_dry_run;
        let channels = applied.channels.iter().map(|channel| {
            let new = &self.wanted.channels[channel.index];
            let fields = channel.before.as_ref().map(|before| channel_fields(before, new));
            let action = match &channel.before {
                None => "create",
                Some(before) if before == new => "unchanged",
                Some(_) => "change",
            };
            ChangeView {
                kind: "channel",
                key: &new.name,
                action,
                id: (action != "create" || !is_dry_run).then_some(&channel.id),
                fields: fields.unwrap_or_default(),
                next_run: None,
                next_run_before: None,
            }
        });
        let cues = applied.cues.iter().map(|it| {
            let action = match it.action {
                PutAction::Created => "create",
                PutAction::Updated => "change",
                PutAction::Unchanged => "unchanged",
            };
            let payload = &self.payloads[it.index];
            let fields = |before| cue_fields(before, &it.cue, &it.changed, payload);
            ChangeView {
                kind: "cue",
                key: &self.keys[it.index],
                action,
                id: (action != "create" || !is_dry_run).then_some(&it.cue.id),
                fields: it.before.as_ref().map(fields).unwrap_or_default(),
                next_run: it.cue.next_run,
                next_run_before: it.before.as_ref().and_then(|before| before.next_run),
            }
        });
        let pruned = applied.pruned.iter().map(|cue| ChangeView {
            kind: "cue",
            key: cue.slug.get(self.namespace.len() + 1..).unwrap_or_default(),
            action: "delete",
            id: Some(&cue.id),
            fields: Vec::new(),
            next_run: None,
            next_run_before: cue.next_run,
        });
        let body = ListBody::new("changes", channels.chain(cues).chain(pruned))?;
        Ok(StoredResponse { status: 200, body: body.with("errors", "[]").into_text() })
    }

    fn errors(&self, applied: &Applied) -> ApplyErrors {
        let mut errors = ApplyErrors::default();
        for (target, refusal) in &applied.refused {
            let around: &[&str] = match target {
                Target::Whole => &["body"],
                Target::Prune => &["body"],
                Target::Channel(index) => &["body", "channels", &self.wanted.channels[*index].name],
                Target::Cue(index) => &["body", "cues", &self.keys[*index]],
            };
            errors.add(around, refusal);
        }
        errors
    }
}
