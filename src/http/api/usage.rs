//! `/v1/usage`: usage and limits of the plan.

use serde_json::{Value, json};

use crate::api::instants::instant;
use crate::domain::account::plan::{NO_LIMIT, bytes_or_max, limit_or_max};
use crate::domain::account::user::{User, month_bounds};
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::accounts::usage::MonthlyUsage;
use crate::store::accounts::{usage, users};

/// `GET /v1/usage`
pub async fn usage(request: Request) -> Result<Response> {
    let (caller, now) = (request.caller()?, request.now);
    let user_key = caller.user_key;
    let (user, month) = request
        .app
        .store
        .read(move |read| Ok((users::find(read, user_key)?, usage::find(read, user_key, now)?)))
        .await?;
    let user = user.ok_or_else(|| Error::fault("the user of a request does not exist"))?;
    Ok(Response::ok(&render_usage(&request, &user, &month)))
}

/// The body of `GET /v1/usage`.
pub fn render_usage(request: &Request, user: &User, month: &MonthlyUsage) -> Value {
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

/// Renders a used amount, its limit and the rest.
fn render_quota(name: &'static str, used: i64, limit: Option<u32>) -> Value {
    let limit = limit_or_max(limit);
    json!({name: used, "limit": limit, "remaining": (i64::from(limit) - used).max(0)})
}
