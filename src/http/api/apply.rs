//! `POST /v1/apply`: many cues and channels, as files have them (contract §4.18).

use std::sync::Arc;

use hyper::StatusCode;

use crate::api::apply::{ApplyErrors, changed_fields, read_all};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::apply::{Apply, MAX_CUES};
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{Request, Response, run_blocking, to_json};
use crate::service::apply::{self, Applied, Attempt};
use crate::store::ReadTx;
use crate::store::accounts::idempotency::StoredResponse;

/// Bytes of the `fields` of an answer: of any, and more for each object. What does not fit is left out.
const FIELDS: usize = 64 << 10;
const FIELDS_OF_OBJECT: usize = 2 << 10;

/// Bytes of a change without its `fields`.
const CHANGE: usize = 1 << 10;

/// Turns to find the cues as they were seen.
const MAX_TURNS: usize = 5;

pub async fn apply(request: Request) -> Result<Response> {
    let mut errors = ApplyErrors::default();
    match try_apply(request, &mut errors).await {
        Ok(Some(response)) => return Ok(Response::stored(response)),
        Ok(None) => {}
        Err(Error::Refused(refusal)) if refusal.code == ErrorCode::ValidationError => {
            let part = refusal.problems.first().and_then(|problem| problem.loc.first());
            errors.add(&[&part.map(ToString::to_string).unwrap_or_default()], &refusal);
        }
        Err(error) => return Err(error),
    }
    Ok(Response::json(StatusCode::UNPROCESSABLE_ENTITY, errors.to_json().to_string()))
}

/// `None` if there are errors.
async fn try_apply(request: Request, errors: &mut ApplyErrors) -> Result<Option<StoredResponse>> {
    let (caller, app) = (request.caller()?, Arc::clone(&request.app));
    // Hundreds of cues take longer than the thread of other connections may be held.
    let read = move || {
        let read = read_all(request.fields()?, &request.app.config.callbacks);
        Ok((request, read))
    };
    let (mut request, (wanted, found)) = run_blocking(read).await?;
    *errors = found;
    let call = request.idempotency("POST /v1/apply", None)?;
    request.drop_body();
    let room = room(&wanted);
    let pruned = if wanted.prunes { MAX_CUES } else { 0 };
    let objects = wanted.cues.len() + wanted.channels.len() + pruned;
    request.reserve_response(room + objects * CHANGE)?;
    let (wanted, user_key) = (Arc::new(wanted), caller.user_key);
    for _ in 0..MAX_TURNS {
        let (of_read, now) = (Arc::clone(&wanted), app.clock.now());
        let look = move |read: &ReadTx<'_>| apply::look(read, user_key, &of_read, now, room);
        let (seen, turn) = request.read_list(false, look).await?;
        drop(turn);
        let (of_write, call) = (Arc::clone(&wanted), call.clone());
        let (done, undone) = apply::apply(&app, &caller, of_write, seen, call, render)?;
        let attempt = match (done.await, undone.try_recv()) {
            (Err(Error::Refused(_)), Ok(undone)) => undone,
            (done, _) => done?,
        };
        match attempt {
            Attempt::Answered(response) => return Ok(Some(response)),
            Attempt::Done(applied) => {
                for (about, refusal) in &applied.refused {
                    let about = about.iter().flat_map(|(section, key)| [*section, key]);
                    let around: Vec<&str> = std::iter::once("body").chain(about).collect();
                    errors.add(&around, refusal);
                }
                return errors.is_empty().then(|| render_with_fields(applied, room)).transpose();
            }
            Attempt::Stale => {}
        }
    }
    let message = "Other requests or runs change these cues at the same time, and nothing was done; repeat the request";
    Err(Refusal::new(ErrorCode::InvalidState, message).into())
}

fn room(wanted: &Apply) -> usize {
    FIELDS + (wanted.cues.len() + wanted.channels.len()) * FIELDS_OF_OBJECT
}

/// The answer with at most `room` bytes of `fields`.
fn render_with_fields(mut applied: Applied, mut room: usize) -> Result<StoredResponse> {
    for change in &mut applied.changes {
        let Some(difference) = change.difference.take() else { continue };
        let fields = changed_fields(&difference);
        if let Some(left) = room.checked_sub(to_json(&fields)?.len()) {
            (room, change.fields) = (left, fields);
        }
    }
    render(&applied)
}

/// The answer to repetitions: of short texts alone, because it is made in the write and stored.
fn render(applied: &Applied) -> Result<StoredResponse> {
    let body = ListBody::new("changes", &applied.changes)?.with("errors", "[]");
    Ok(StoredResponse { status: 200, body: body.into_text() })
}
