//! `/v1/overview`: the state of an account and its server in one request; `/v1/stats`: figures over time; `/v1/usage`:
//! usage and limits of the plan.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::App;
use crate::domain::account::plan::{NO_LIMIT, bytes_or_max, limit_or_max};
use crate::domain::account::stats::{Figures, Grid, GridError, KEPT_FOR, MAX_STEPS, Step};
use crate::domain::account::user::{User, month_bounds};
use crate::domain::schedule::EARLIEST;
use crate::domain::time::{instant, saturating_sub};
use crate::error::{Error, Result};
use crate::http::api::operations::{server_state, uptime_seconds};
use crate::http::list::Query;
use crate::http::message::{Request, Response};
use crate::service::cues::not_found;
use crate::store::accounts::users::{self, MonthlyUsage};
use crate::store::db::meta;
use crate::store::stats::{self, FailingCue, Overview};
use crate::store::{ReadTx, channels, cues};

/// Hours in the overview: a day.
const HOURS: i64 = 24;

pub async fn overview(request: Request) -> Result<Response> {
    let (user_key, now) = (request.user_key()?, request.now);
    let grid = Grid::last_hours(HOURS, now);
    let sends_mail = request.app.config.mail.reaches_people();
    let read = move |read: &ReadTx<'_>| {
        Ok((
            stats::overview(read, user_key, now)?,
            users::find(read, user_key)?,
            users::monthly_usage(read, user_key, now)?,
            stats::user_series(read, user_key, &grid)?,
            meta::held_since(read)?,
            (
                channels::count_reaching(read, user_key, sends_mail)?,
                channels::list_failing(read, user_key)?,
            ),
        ))
    };
    let ((found, user, month, series, held_since, (reaching, failing_channels)), _turn) =
        request.read_list(false, read).await?;
    let user = user.ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    let Overview { cues, failing_count, next, failing, missed, waiting, workers } = found;
    let mut cues = json!(cues);
    cues["failing"] = failing_count.into();
    Ok(Response::ok(&json!({
        "now": instant(now),
        "server": render_server(&request.app, held_since),
        "cues": cues,
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
        "waiting": waiting,
        "channels": {
            "count": reaching + i64::from(user.alert_webhook_url.is_some()),
            "failing": failing_channels.iter().map(|(id, name, last_error)| {
                json!({"id": id, "name": name, "last_error": last_error})
            }).collect::<Vec<_>>(),
        },
        "workers": workers,
        "usage": render_usage(&request, &user, &month),
        "hours": grid.begins().zip(&series).map(|(at, figures)| {
            json!({
                "at": instant(at),
                "succeeded": figures.succeeded,
                "failed": figures.failed,
                "late_max_ms": figures.late_max_ms(),
            })
        }).collect::<Vec<_>>(),
    })))
}

fn render_server(app: &App, held_since: Option<Timestamp>) -> Value {
    let (status, reason) = server_state(app, held_since.is_some());
    json!({
        "status": status,
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

/// `GET /v1/stats?from&to&step&cue_id`.
pub async fn stats(request: Request) -> Result<Response> {
    let (user_key, query, now) = (request.user_key()?, request.query(), request.now);
    let cue_id = query.cue_id();
    let grid = parse_grid(&query, now);
    query.finish()?;
    // `finish` has returned an error if there is none.
    let Some(grid) = grid else { return Response::from_body(&()) };
    let is_slow = cue_id.is_some();
    let read = move |read: &ReadTx<'_>| match cue_id {
        None => {
            let (kept_from, (first, _)) = (saturating_sub(now, KEPT_FOR), grid.millis());
            Ok((stats::user_series(read, user_key, &grid)?, first < kept_from.as_millisecond()))
        }
        Some(cue_id) => {
            let cue_key = cues::find_key(read, user_key, &cue_id)?.ok_or_else(not_found)?;
            stats::cue_series(read, cue_key, &grid)
        }
    };
    let ((series, truncated), _turn) = request.read_list(is_slow, read).await?;
    let mut totals = Figures::default();
    series.iter().for_each(|figures| totals.add(figures));
    let series = grid.begins().zip(&series);
    Ok(Response::ok(&json!({
        "step": grid.step.as_str(),
        "series": series.map(|(at, figures)| render_figures(Some(at), figures)).collect::<Vec<_>>(),
        "totals": render_figures(None, &totals),
        "truncated": truncated,
    })))
}

/// `None` if the query has an error.
fn parse_grid(query: &Query, now: Timestamp) -> Option<Grid> {
    let (from, to) = (query.instant("from"), query.instant("to"));
    let step = match query.raw("step") {
        None => Some(Step::Hour),
        Some(_) => query.one_of("step", &Step::WORDS).and_then(Step::parse),
    };
    let is_invalid = |name, time: Option<Timestamp>| time.is_none() && query.raw(name).is_some();
    if is_invalid("from", from) || is_invalid("to", to) {
        return None;
    }
    let step = step?;
    match Grid::new(step, from, to, now) {
        Ok(grid) if grid.millis().0 < EARLIEST.as_millisecond() => {
            let name = if from.is_some() { "from" } else { "to" };
            query.reject(name, "must be later: the span may not begin before the year 0001");
            None
        }
        Ok(grid) => Some(grid),
        Err(GridError::Empty) => {
            query.reject("from", "must be before to, which is the current time if it is left out");
            None
        }
        Err(GridError::TooLong) => {
            let (name, largest) = (step.as_str(), MAX_STEPS);
            let other = if step == Step::Hour { ", or ask for step=day" } else { "" };
            query.reject("from", &format!("must be at most {largest} {name}s before to{other}"));
            None
        }
    }
}

/// Figures, and the begin of their step if they are not those of the whole span.
fn render_figures(at: Option<Timestamp>, figures: &Figures) -> Value {
    let mut body = json!({
        "succeeded": figures.succeeded,
        "failed": figures.failed,
        "retried": figures.retried,
        "missed": figures.missed,
        "late_avg_ms": figures.late_avg_ms(),
        "late_max_ms": figures.late_max_ms(),
        "took_avg_ms": figures.took_avg_ms(),
    });
    if let Some(at) = at {
        body["at"] = instant(at).into();
    }
    body
}

pub async fn usage(request: Request) -> Result<Response> {
    let now = request.now;
    let find = move |read: &ReadTx<'_>, user_key| {
        Ok((users::find(read, user_key)?, users::monthly_usage(read, user_key, now)?))
    };
    let (user, month) = request.read_own(find).await?;
    let user = user.ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    Ok(Response::ok(&render_usage(&request, &user, &month)))
}

fn render_usage(request: &Request, user: &User, month: &MonthlyUsage) -> Value {
    let limits = request.app.config.plans.limits(&user.plan);
    let bounds = request.app.config.plans.storage_bounds(&user.plan, user.confirmed_at.is_some());
    let mut cues = render_quota("active", user.active_cues, limits.cues);
    cues["total"] = user.cue_count.into();
    cues["total_limit"] = bounds.cues.unwrap_or(i64::from(NO_LIMIT)).into();
    let (start, end) = month_bounds(request.now);
    json!({
        "plan": {"name": user.plan, "interval": user.plan_interval},
        "cues": cues,
        "executions": render_quota("used", month.executions, limits.executions),
        "storage": {"used_bytes": user.stored_bytes, "limit_bytes": bytes_or_max(bounds.bytes)},
        "rate_limit": {
            "limit": limit_or_max(limits.requests_per_minute),
            "current_usage": request.rate_limit.used,
        },
        "outcomes": {
            "reported": month.outcomes_succeeded + month.outcomes_failed,
            "succeeded": month.outcomes_succeeded,
            "failed": month.outcomes_failed,
        },
        "billing_period": {"start": instant(start), "end": instant(end)},
    })
}

fn render_quota(name: &'static str, used: i64, limit: Option<u32>) -> Value {
    let limit = limit_or_max(limit);
    json!({name: used, "limit": limit, "remaining": (i64::from(limit) - used).max(0)})
}
