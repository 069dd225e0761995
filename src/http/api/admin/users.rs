//! `/v1/admin/users`: the users of the server.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::domain::account::plan::Plans;
use crate::domain::account::user::User;
use crate::domain::api_error::ErrorCode;
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::http::api::account::required_email;
use crate::http::api::sessions::link_response;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::service::operator::{UserChange, find_user, update_user};
use crate::service::{accounts, sessions};
use crate::store::ReadTx;
use crate::store::accounts::users;

/// Characters of a search: an address has no more.
const MAX_SEARCH: usize = 254;

/// `GET /v1/admin/users?q&limit&offset`, oldest first.
pub async fn list(request: Request) -> Result<Response> {
    let (now, query) = (request.now, request.query());
    let part = query.text("q", 0..=MAX_SEARCH).unwrap_or_default().trim().to_lowercase();
    let pagination = query.pagination(50);
    query.finish()?;
    let Pagination { limit, offset } = pagination;
    let read = move |read: &ReadTx<'_>| users::list_page(read, &part, now, limit, offset);
    let ((page, total), _turn) = request.read_list(false, read).await?;
    let list =
        ListBody::new("users", page.iter().map(|(user, executions)| render(user, *executions)))?;
    Ok(list.with_page("", total, pagination).into_response())
}

/// `POST /v1/admin/users {email, plan}`: the address counts as confirmed.
pub async fn create(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let email = required_email(&mut fields);
    let plan = fields.string("plan", 1..=255);
    fields.forbid_unknown();
    let email = fields.finish_with(email)?;
    let plans = &request.app.config.plans;
    let plan = plan.unwrap_or_else(|| plans.default_plan().to_owned());
    require_plan(plans, &plan)?;
    let new = accounts::add_user(&request.app.store, email, &plan, request.now)?.await?;
    let mut body = find(&request, new.id).await?;
    body["api_key"] = new.api_key.expose().into();
    Ok(Response::created(&body))
}

/// `PATCH /v1/admin/users/{user_id} {plan, is_disabled, is_operator}`
pub async fn update(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let change = UserChange {
        plan: fields.string("plan", 1..=255),
        is_disabled: fields.boolean("is_disabled"),
        is_operator: fields.boolean("is_operator"),
    };
    fields.forbid_unknown();
    fields.finish()?;
    if let Some(plan) = &change.plan {
        require_plan(&request.app.config.plans, plan)?;
    }
    let id = request.param("user_id").to_owned();
    update_user(&request.app, id.clone(), change, request.now).await?;
    Ok(Response::json(StatusCode::OK, find(&request, id).await?.to_string()))
}

/// `POST /v1/admin/users/{user_id}/link`: an address that signs the user in to the page, once.
pub async fn create_link(request: Request) -> Result<Response> {
    let (app, id) = (&request.app, request.param("user_id").to_owned());
    let user = app.store.read(move |read| find_user(read, &id)).await?;
    if user.disabled_at.is_some() {
        let message = "This user is disabled: set `is_disabled` to false first";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    let link = sessions::create_link(&app.store, user.key, None, request.now)?.await?;
    Ok(link_response(&request, &link))
}

fn require_plan(plans: &Plans, plan: &str) -> Result<()> {
    plans
        .ensure_exists(plan)
        .map_err(|error| Error::refused(ErrorCode::InvalidPlan, error.to_string()))
}

async fn find(request: &Request, id: String) -> Result<Value> {
    let now = request.now;
    let read = move |read: &ReadTx<'_>| {
        let user = find_user(read, &id)?;
        let executions = users::monthly_usage(read, user.key, now)?.executions;
        Ok(render(&user, executions))
    };
    request.app.store.read(read).await
}

fn render(user: &User, executions: i64) -> Value {
    json!({
        "id": user.id,
        "email": user.email,
        "plan": user.plan,
        "is_operator": user.is_operator,
        "is_disabled": user.disabled_at.is_some(),
        "is_confirmed": user.confirmed_at.is_some(),
        "active_cues": user.active_cues,
        "executions_this_month": executions,
        "created_at": instant(user.created_at),
    })
}
