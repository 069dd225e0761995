//! `/v1/billing`: links to the pages of the payment provider, and the events that it sends. `/billing`: the pages
//! (contract §9) on which a plan is requested, shown or cancelled. A link to them works without a login: its token is
//! the credential.

use hyper::StatusCode;
use serde_json::json;

use crate::domain::account::plan::{NO_LIMIT, limit_or_max};
use crate::domain::billing::{FREE, Offer, RequestStatus};
use crate::error::Result;
use crate::http::message::{Request, Response, run_blocking};
use crate::http::pages::{Form, NoticeKind, Page, form_action};
use crate::service::billing::{self, PlanOverview};
use crate::store::billing::BillingRequest;

const CHECKOUT: &str = "/billing/checkout";
const PORTAL: &str = "/billing/portal";
const CLOSE: &str = "You can close this page.";

/// `POST /v1/billing/checkout {plan, interval}`
pub async fn checkout(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let plan = fields.required().string("plan", 0..=255);
    let interval = fields.required().string("interval", 0..=255);
    let (plan, interval) = fields.finish_with(plan.zip(interval))?;
    let offer = Offer::from_request(&plan, &interval)?;
    let url = run_blocking(move || billing::checkout(&request.app, &caller, offer)).await?;
    Ok(Response::ok(&json!({"checkout_url": url})))
}

pub async fn portal(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let url = run_blocking(move || billing::portal(&request.app, &caller)).await?;
    Ok(Response::ok(&json!({"portal_url": url})))
}

pub async fn webhook(request: Request) -> Result<Response> {
    billing::receive_stripe_event(
        &request.app,
        request.header("stripe-signature"),
        request.body(),
    )?
    .await?;
    Ok(Response::ok(&json!({"received": true})))
}

/// `GET /billing/checkout?token=`
pub async fn checkout_page(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let plan_request = billing::find_request_by_link(&request.app, token)?.await?;
    Ok(request_page(&request, &plan_request, token).into_response(StatusCode::OK))
}

pub async fn confirm(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    let plan_request = billing::confirm_request(&request.app, token)?.await?;
    Ok(request_page(&request, &plan_request, token).into_response(StatusCode::OK))
}

/// `GET /billing/portal?token=`
pub async fn portal_page(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let overview = billing::find_plan_by_link(&request.app, token)?.await?;
    Ok(plan_page(&request, &overview, token).into_response(StatusCode::OK))
}

/// `POST /billing/portal`: asks for confirmation; with `confirmed`, cancels the plan.
pub async fn cancel(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    if form.raw("confirmed") != Some("yes") {
        let overview = billing::find_plan_by_link(&request.app, token)?.await?;
        return Ok(confirmation_page(&request, &overview, token).into_response(StatusCode::OK));
    }
    let paused = billing::cancel_plan(&request.app, token)?.await?;
    let page = Page::new("Your plan has ended")
        .notice(NoticeKind::Success, "Your account is now on the free plan. These limits apply:")
        .facts(&limit_facts(&request, FREE));
    let page = match paused {
        0 => page,
        1 => page.text("Your newest active cue was paused, because it exceeds the limit."),
        count => page.text(&format!(
            "Your {count} newest active cues were paused, because they exceed the limit."
        )),
    };
    Ok(page.small(CLOSE).into_response(StatusCode::OK))
}

pub async fn thanks(_: Request) -> Result<Response> {
    let page = Page::new("Thank you").notice(
        NoticeKind::Success,
        "Your payment was submitted. Your new plan starts in a moment.",
    );
    Ok(page.small(CLOSE).into_response(StatusCode::OK))
}

pub async fn closed(_: Request) -> Result<Response> {
    let page = Page::new("All done").text("Your account shows your current plan.");
    Ok(page.small(CLOSE).into_response(StatusCode::OK))
}

fn request_page(request: &Request, plan_request: &BillingRequest, token: &str) -> Page {
    let offer = offer_name(plan_request.offer);
    let with_summary = |title| {
        let facts = [
            ("Account", plan_request.email.clone()),
            ("Current plan", plan_request.current_plan.clone()),
            ("Requested plan", offer.clone()),
        ];
        let limits = limit_facts(request, plan_request.offer.plan.as_str());
        Page::new(title).facts(&[&facts[..], &limits].concat())
    };
    let page = match plan_request.status {
        RequestStatus::Offered => {
            let form = post(request, CHECKOUT, token).button("Request this plan");
            return with_summary("Request a plan")
                .text("The operator of this server reviews your request. This page does not charge you.")
                .form(&form);
        }
        RequestStatus::Requested => with_summary("Your request was sent").notice(
            NoticeKind::Success,
            "Your plan changes as soon as the operator of this server approves it.",
        ),
        RequestStatus::Approved => Page::new("Your request was approved").notice(
            NoticeKind::Success,
            &format!("The operator approved your request for {offer}."),
        ),
        RequestStatus::Declined => Page::new("Your request was declined").notice(
            NoticeKind::Error,
            &format!("The operator declined your request for {offer}. Your plan has not changed."),
        ),
    };
    page.small(CLOSE)
}

fn plan_page(request: &Request, overview: &PlanOverview, token: &str) -> Page {
    let (user, pending) = (&overview.user, overview.pending_request.as_ref());
    let facts = [("Account", user.email.clone()), ("Plan", user.plan.clone())];
    let mut page =
        Page::new("Your plan").facts(&[&facts[..], &limit_facts(request, &user.plan)].concat());
    if let Some(plan_request) = pending {
        let offer = offer_name(plan_request.offer);
        page = page.text(&format!("Your request for {offer} is waiting for the operator."));
    }
    let label = match (user.plan.as_str(), pending) {
        (FREE, None) => return page.small("You have nothing to cancel."),
        (FREE, Some(_)) => "Withdraw the request…",
        _ => "Cancel the plan…",
    };
    page.form(&post(request, PORTAL, token).danger_button(label))
}

fn confirmation_page(request: &Request, overview: &PlanOverview, token: &str) -> Page {
    let limit = request.app.config.plans.limits(FREE).cues;
    let excess = overview.user.active_cues - i64::from(limit_or_max(limit));
    let mut page = match (&overview.pending_request, overview.user.plan.as_str()) {
        (Some(_), FREE) => Page::new("Withdraw the request?").text("Your account stays on the free plan."),
        (_, plan) => Page::new("Cancel the plan?").text(&format!(
            "Your account changes from {plan} to the free plan immediately. A pending request is withdrawn."
        )),
    };
    if excess > 0 {
        let text = format!(
            "{excess} of your active cues exceed the limit of the free plan. The newest are paused."
        );
        page = page.notice(NoticeKind::Error, &text);
    }
    let form = post(request, PORTAL, token).hidden("confirmed", "yes").danger_button("Yes, cancel");
    page.form(&form).small("To keep your plan, close this page.")
}

fn post(request: &Request, path: &str, token: &str) -> Form {
    Form::post(&form_action(&request.app.config.public_url, path)).hidden("token", token)
}

fn limit_facts(request: &Request, plan: &str) -> [(&'static str, String); 3] {
    let limits = request.app.config.plans.limits(plan);
    let format_limit = |limit| match limit_or_max(limit) {
        NO_LIMIT => "no limit".to_owned(),
        limit => limit.to_string(),
    };
    [
        ("Active cues", format_limit(limits.cues)),
        ("Executions per month", format_limit(limits.executions)),
        ("Requests per minute", format_limit(limits.requests_per_minute)),
    ]
}

fn offer_name(offer: Offer) -> String {
    format!("{}, {}", offer.plan.as_str(), offer.interval.as_str())
}
