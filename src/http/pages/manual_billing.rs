//! The pages of billing (contract §9): a request is confirmed, a plan is looked at and cancelled, and where the payment
//! provider sends a browser back to. Whoever bears a link may use it.

use hyper::StatusCode;

use crate::actions::billing as actions;
use crate::actions::billing::PlanOverview;
use crate::domain::account::plan::{NO_LIMIT, PlanLimits, limit_or_max};
use crate::domain::billing::offer::{FREE, Offer, RequestStatus};
use crate::error::Result;
use crate::http::pages::{Form, NoticeKind, Page, action};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::billing::requests::BillingRequest;

const CHECKOUT: &str = "/billing/checkout";
const PORTAL: &str = "/billing/portal";

/// `GET /billing/checkout?token=`
pub async fn checkout(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let asked = actions::find_request_by_link(&request.app, token)?.await?;
    Ok(request_page(&request, &asked, token))
}

/// `POST /billing/checkout`
pub async fn confirm(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    let asked = actions::confirm_request(&request.app, token)?.await?;
    Ok(request_page(&request, &asked, token))
}

/// `GET /billing/portal?token=`
pub async fn portal(request: Request) -> Result<Response> {
    let query = request.query();
    let token = query.raw("token").unwrap_or_default();
    let portal = actions::find_plan_by_link(&request.app, token)?.await?;
    Ok(plan_page(&request, &portal, token))
}

/// `POST /billing/portal`: asks whether the plan is to end, and with `confirmed` ends it.
pub async fn cancel(request: Request) -> Result<Response> {
    let form = request.form();
    let token = form.raw("token").unwrap_or_default();
    if form.raw("confirmed") != Some("yes") {
        let portal = actions::find_plan_by_link(&request.app, token)?.await?;
        return Ok(question_page(&request, &portal, token));
    }
    let paused = actions::cancel_plan(&request.app, token)?.await?;
    let page = Page::new("Your plan has ended")
        .notice(NoticeKind::Good, "Your account is on the free plan now, and its limits are in force.")
        .facts(&facts(limits(&request, FREE)).each_ref().map(|(name, value)| (*name, value.as_str())));
    let page = match paused {
        0 => page,
        1 => page.text("Your newest active cue was paused: it is above the limit."),
        more => page.text(&format!("Your {more} newest active cues were paused: they are above the limit.")),
    };
    Ok(page.small("You can close this page.").reply(StatusCode::OK))
}

/// `GET /billing/thanks`
pub async fn thanks(_: Request) -> Result<Response> {
    let page = Page::new("Thank you")
        .notice(NoticeKind::Good, "Your payment was handed over. Your new plan is in force in a moment.")
        .small("You can close this page.");
    Ok(page.reply(StatusCode::OK))
}

/// `GET /billing/closed`
pub async fn closed(_: Request) -> Result<Response> {
    let page = Page::new("You are back")
        .text("There is nothing more to do here. Your account shows the plan that you have.")
        .small("You can close this page.");
    Ok(page.reply(StatusCode::OK))
}

fn request_page(request: &Request, asked: &BillingRequest, token: &str) -> Response {
    let offer = name_of(asked.offer);
    let page = match asked.status {
        RequestStatus::Offered => {
            let form = Form::post(&action(&request.app.config.public_url, CHECKOUT))
                .hidden("token", token)
                .button("Request this plan");
            return described(request, asked, Page::new("Request a plan"))
                .text("The operator of this server decides on your request. Nothing is charged by this page.")
                .form(&form)
                .reply(StatusCode::OK);
        }
        RequestStatus::Requested => described(request, asked, Page::new("Your request is on its way"))
            .notice(
                NoticeKind::Good,
                "The operator of this server has it. The plan is in force once it is approved.",
            ),
        RequestStatus::Approved => Page::new("Your request was approved")
            .notice(NoticeKind::Good, &format!("The operator approved your request for {offer}.")),
        RequestStatus::Declined => Page::new("Your request was declined").notice(
            NoticeKind::Bad,
            &format!("The operator declined your request for {offer}. Your plan has not changed."),
        ),
    };
    page.small("You can close this page.").reply(StatusCode::OK)
}

fn described(request: &Request, asked: &BillingRequest, page: Page) -> Page {
    let [cues, executions, rate] = facts(limits(request, asked.offer.plan.as_str()));
    page.facts(&[
        ("Account", &asked.email),
        ("Present plan", &asked.present_plan),
        ("Requested plan", &name_of(asked.offer)),
        (cues.0, &cues.1),
        (executions.0, &executions.1),
        (rate.0, &rate.1),
    ])
}

fn plan_page(request: &Request, portal: &PlanOverview, token: &str) -> Response {
    let (user, waiting) = (&portal.user, portal.waiting.as_ref());
    let [cues, executions, rate] = facts(limits(request, &user.plan));
    let page = Page::new("Your plan").facts(&[
        ("Account", &user.email),
        ("Plan", &user.plan),
        (cues.0, &cues.1),
        (executions.0, &executions.1),
        (rate.0, &rate.1),
    ]);
    let page = match waiting {
        Some(asked) => {
            page.text(&format!("Your request for {} waits for the operator.", name_of(asked.offer)))
        }
        None => page,
    };
    let label = match (user.plan.as_str(), waiting) {
        (FREE, None) => return page.small("There is nothing to cancel.").reply(StatusCode::OK),
        (FREE, Some(_)) => "Withdraw the request…",
        _ => "Cancel the plan…",
    };
    let form = Form::post(&action(&request.app.config.public_url, PORTAL)).hidden("token", token);
    page.form(&form.grave_button(label)).reply(StatusCode::OK)
}

fn question_page(request: &Request, portal: &PlanOverview, token: &str) -> Response {
    let limit = limits(request, FREE).cues;
    let above = portal.user.active_cues - i64::from(limit_or_max(limit));
    let page = match (&portal.waiting, portal.user.plan.as_str()) {
        (Some(_), FREE) => Page::new("Withdraw the request?").text("Your account stays on the free plan."),
        (_, plan) => Page::new("Cancel the plan?").text(&format!(
            "Your account goes from {plan} to the free plan at once. A request that waits is withdrawn."
        )),
    };
    let page = if above > 0 {
        page.notice(
            NoticeKind::Bad,
            &format!("The newest active cues above the limit are paused: {above} of yours."),
        )
    } else {
        page
    };
    let form = Form::post(&action(&request.app.config.public_url, PORTAL))
        .hidden("token", token)
        .hidden("confirmed", "yes")
        .grave_button("Yes, cancel");
    page.form(&form).small("To keep things as they are, close this page.").reply(StatusCode::OK)
}

fn limits(request: &Request, plan: &str) -> PlanLimits {
    request.app.config.plans.limits(plan)
}

fn facts(limits: PlanLimits) -> [(&'static str, String); 3] {
    let of = |limit| match limit_or_max(limit) {
        NO_LIMIT => "no limit".to_owned(),
        limit => limit.to_string(),
    };
    [
        ("Active cues", of(limits.cues)),
        ("Executions a month", of(limits.executions)),
        ("Requests a minute", of(limits.requests_per_minute)),
    ]
}

fn name_of(offer: Offer) -> String {
    format!("{}, {}", offer.plan.as_str(), offer.interval.as_str())
}
