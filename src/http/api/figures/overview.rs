//! `/v1/overview`: the state of an account and its server, in one request.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::instants::instant;
use crate::app::App;
use crate::domain::account::figures::{Figures, Grid};
use crate::error::{Error, Result};
use crate::http::api::operations::health::{server_state, uptime_seconds};
use crate::http::api::usage::render_usage;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::ReadTx;
use crate::store::accounts::{usage, users};
use crate::store::db::hold;
use crate::store::figures::overview::{FailingCue, Overview};
use crate::store::figures::{hours, overview as figures};

/// Hours in the overview: a day.
const HOURS: i64 = 24;

/// `GET /v1/overview`.
pub async fn overview(request: Request) -> Result<Response> {
    let (user_key, now) = (request.caller()?.user_key, request.now);
    let grid = Grid::last_hours(HOURS, now);
    let _turn = request.list_turn().await?;
    let read = move |read: &ReadTx<'_>| {
        Ok((
            figures::read(read, user_key, now)?,
            users::find(read, user_key)?,
            usage::find(read, user_key, now)?,
            hours::series(read, user_key, &grid)?,
            hold::held_since(read)?,
        ))
    };
    let (found, user, month, series, held_since) = request.app.store.read(read).await?;
    let user = user.ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    let Overview { cues, next, failing, missed, waiting, workers } = found;
    Ok(Response::ok(&json!({
        "now": instant(now),
        "server": render_server(&request.app, held_since),
        "cues": {
            "active": cues.active,
            "paused": cues.paused,
            "completed": cues.completed,
            "failed": cues.failed,
            "failing": cues.failing,
        },
        "next": next.iter().map(|next| {
            json!({"cue_id": next.cue_id, "name": next.name, "at": instant(next.at), "timezone": next.timezone})
        }).collect::<Vec<_>>(),
        "failing": failing.iter().map(render_failing).collect::<Vec<_>>(),
        "missed": missed.iter().map(|(cue_id, name, runs)| {
            json!({
                "cue_id": cue_id,
                "name": name,
                "first": instant(runs.first),
                "last": instant(runs.last),
                "count": runs.count,
                "reason": runs.reason,
            })
        }).collect::<Vec<_>>(),
        "waiting": {
            "send": waiting.send,
            "claim": waiting.claim,
            "retry": waiting.retry,
            "delivering": waiting.delivering,
        },
        "workers": {"active": workers.active, "stale": workers.stale, "dead": workers.dead},
        "usage": render_usage(&request, &user, &month),
        "hours": grid.begins().zip(&series).map(|(at, figures)| render_hour(at, figures)).collect::<Vec<_>>(),
    })))
}

fn render_server(app: &App, held_since: Option<Timestamp>) -> Value {
    let (status, reason) = server_state(app, held_since.is_some());
    json!({
        "status": status.as_str(),
        "reason": reason,
        "held_since": held_since.map(instant),
        "test_clock": app.clock.is_test(),
        "writable": app.store.is_writable(),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": uptime_seconds(app),
    })
}

fn render_failing(cue: &FailingCue) -> Value {
    let last = cue.last.as_ref();
    json!({
        "cue_id": cue.cue_id,
        "name": cue.name,
        "streak": cue.streak,
        "execution_id": last.map(|last| last.execution_id.to_string()),
        "at": last.map(|last| instant(last.at)),
        "cause": last.and_then(|last| last.cause.as_deref()),
        "http_status": last.and_then(|last| last.http_status),
        "error_message": last.and_then(|last| last.error_message.as_deref()),
    })
}

fn render_hour(at: Timestamp, figures: &Figures) -> Value {
    json!({
        "at": instant(at),
        "succeeded": figures.succeeded,
        "failed": figures.failed,
        "late_max_ms": figures.late_max_ms(),
    })
}
