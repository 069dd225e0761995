//! The pages of billing (contract §9): confirm a plan request, show or cancel a plan, and return from the payment
//! provider. A link works without a login: its token is the credential.

use hyper::StatusCode;

use crate::domain::account::plan::{NO_LIMIT, PlanLimits, limit_or_max};
use crate::domain::billing::offer::{FREE, Offer, RequestStatus};
use crate::error::Result;
use crate::http::pages::{Form, NoticeKind, Page, form_action};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;
use crate::service::billing::PlanOverview;
use crate::store::billing::requests::BillingRequest;

const CHECKOUT: &str = "/billing/checkout";
const PORTAL: &str = "/billing/portal";

/// `GET /billing/checkout?token=`
pub async fn checkout(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let plan_request = service::billing::find_request_by_link(&request.app, token)?.await?;
    Ok(request_page(&request, &plan_request, token))
}

pub async fn confirm(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    let plan_request = service::billing::confirm_request(&request.app, token)?.await?;
    Ok(request_page(&request, &plan_request, token))
}

/// `GET /billing/portal?token=`
pub async fn portal(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let overview = service::billing::find_plan_by_link(&request.app, token)?.await?;
    Ok(plan_page(&request, &overview, token))
}

/// `POST /billing/portal`: asks for confirmation; with `confirmed`, cancels the plan.
pub async fn cancel(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    if form.raw("confirmed") != Some("yes") {
        let overview = service::billing::find_plan_by_link(&request.app, token)?.await?;
        return Ok(confirmation_page(&request, &overview, token));
    }
    let paused = service::billing::cancel_plan(&request.app, token)?.await?;
    let page = Page::new("Your plan has ended")
        .notice(NoticeKind::Success, "Your account is now on the free plan. These limits apply:")
        .facts(&limit_facts(limits(&request, FREE)).each_ref().map(|(name, value)| (*name, value.as_str())));
    let page = match paused {
        0 => page,
        1 => page.text("Your newest active cue was paused, because it exceeds the limit."),
        count => {
            page.text(&format!("Your {count} newest active cues were paused, because they exceed the limit."))
        }
    };
    Ok(page.small("You can close this page.").into_response(StatusCode::OK))
}

pub async fn thanks(_: Request) -> Result<Response> {
    let page = Page::new("Thank you")
        .notice(NoticeKind::Success, "Your payment was submitted. Your new plan starts in a moment.")
        .small("You can close this page.");
    Ok(page.into_response(StatusCode::OK))
}

pub async fn closed(_: Request) -> Result<Response> {
    let page =
        Page::new("All done").text("Your account shows your current plan.").small("You can close this page.");
    Ok(page.into_response(StatusCode::OK))
}

fn request_page(request: &Request, plan_request: &BillingRequest, token: &str) -> Response {
    let offer = offer_name(plan_request.offer);
    let page = match plan_request.status {
        RequestStatus::Offered => {
            let form = Form::post(&form_action(&request.app.config.public_url, CHECKOUT))
                .hidden("token", token)
                .button("Request this plan");
            return with_summary(request, plan_request, Page::new("Request a plan"))
                .text("The operator of this server reviews your request. This page does not charge you.")
                .form(&form)
                .into_response(StatusCode::OK);
        }
        RequestStatus::Requested => with_summary(request, plan_request, Page::new("Your request was sent"))
            .notice(
                NoticeKind::Success,
                "Your plan changes as soon as the operator of this server approves it.",
            ),
        RequestStatus::Approved => Page::new("Your request was approved")
            .notice(NoticeKind::Success, &format!("The operator approved your request for {offer}.")),
        RequestStatus::Declined => Page::new("Your request was declined").notice(
            NoticeKind::Error,
            &format!("The operator declined your request for {offer}. Your plan has not changed."),
        ),
    };
    page.small("You can close this page.").into_response(StatusCode::OK)
}

fn with_summary(request: &Request, plan_request: &BillingRequest, page: Page) -> Page {
    let [cues, executions, rate] = limit_facts(limits(request, plan_request.offer.plan.as_str()));
    page.facts(&[
        ("Account", &plan_request.email),
        ("Current plan", &plan_request.current_plan),
        ("Requested plan", &offer_name(plan_request.offer)),
        (cues.0, &cues.1),
        (executions.0, &executions.1),
        (rate.0, &rate.1),
    ])
}

fn plan_page(request: &Request, overview: &PlanOverview, token: &str) -> Response {
    let (user, pending) = (&overview.user, overview.pending_request.as_ref());
    let [cues, executions, rate] = limit_facts(limits(request, &user.plan));
    let page = Page::new("Your plan").facts(&[
        ("Account", &user.email),
        ("Plan", &user.plan),
        (cues.0, &cues.1),
        (executions.0, &executions.1),
        (rate.0, &rate.1),
    ]);
    let page = match pending {
        Some(plan_request) => page.text(&format!(
            "Your request for {} is waiting for the operator.",
            offer_name(plan_request.offer)
        )),
        None => page,
    };
    let label = match (user.plan.as_str(), pending) {
        (FREE, None) => return page.small("You have nothing to cancel.").into_response(StatusCode::OK),
        (FREE, Some(_)) => "Withdraw the request…",
        _ => "Cancel the plan…",
    };
    let form = Form::post(&form_action(&request.app.config.public_url, PORTAL)).hidden("token", token);
    page.form(&form.danger_button(label)).into_response(StatusCode::OK)
}

fn confirmation_page(request: &Request, overview: &PlanOverview, token: &str) -> Response {
    let limit = limits(request, FREE).cues;
    let excess = overview.user.active_cues - i64::from(limit_or_max(limit));
    let page = match (&overview.pending_request, overview.user.plan.as_str()) {
        (Some(_), FREE) => Page::new("Withdraw the request?").text("Your account stays on the free plan."),
        (_, plan) => Page::new("Cancel the plan?").text(&format!(
            "Your account changes from {plan} to the free plan immediately. A pending request is withdrawn."
        )),
    };
    let page = if excess > 0 {
        page.notice(
            NoticeKind::Error,
            &format!(
                "{excess} of your active cues exceed the limit of the free plan. The newest are paused."
            ),
        )
    } else {
        page
    };
    let form = Form::post(&form_action(&request.app.config.public_url, PORTAL))
        .hidden("token", token)
        .hidden("confirmed", "yes")
        .danger_button("Yes, cancel");
    page.form(&form).small("To keep your plan, close this page.").into_response(StatusCode::OK)
}

fn limits(request: &Request, plan: &str) -> PlanLimits {
    request.app.config.plans.limits(plan)
}

fn limit_facts(limits: PlanLimits) -> [(&'static str, String); 3] {
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
