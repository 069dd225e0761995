//! A webhook of the user: the JSON of an alert as `alert_webhook_url` gets it (contract §6.8), with the event, title, text
//! and link of the message. The sender signs it.

use serde_json::{Value, json};

use crate::domain::channel::message::Message;
use crate::domain::channel::services::answer::{failure, is_success};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, SettingKind, Verdict, host_label, own_target,
    teams,
};
use crate::domain::channel::{ChannelType, Settings};
use crate::domain::json::JsonText;
use crate::domain::webhook::callback::CallbackTarget;
use crate::domain::webhook::canonical_json::canonical;

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Webhook,
    name: "webhook",
    settings: &[Setting::required("url", SettingKind::Url, "URL", "https://example.com/cued")],
    check,
    label: host_label,
    request: Some(request),
    read,
};

/// Any URL of a callback, except one of a service with a format of its own.
fn check(_: &str, url: &str) -> Result<(), String> {
    // A workflow of the user's own takes any JSON; it is not always for Teams.
    if CallbackTarget::parse(url).is_ok_and(|target| teams::is_workflow(&target.path)) {
        return Ok(());
    }
    own_target(ChannelType::Webhook, url).map(drop)
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let Message { id, event, mood, title, text, link, cue_id, cue_name, execution_id, at, alert } =
        message;
    let mut body = json!({
        "id": id,
        "event": event,
        "alert_type": null,
        "severity": mood,
        "title": title,
        "message": title,
        "text": text,
        "cue_id": cue_id,
        "cue_name": cue_name,
        "execution_id": execution_id,
        "link": link,
        "metadata": {},
        "created_at": at,
    });
    for (name, value) in alert.as_ref().and_then(Value::as_object).into_iter().flatten() {
        // A message that stands for a failure and its alert has an id of its own.
        if name != "id" {
            body[name] = value.clone();
        }
    }
    let alert_type = body["alert_type"].as_str().map(str::to_owned);
    // A receiver may verify the body that it has parsed and written again.
    let body = canonical(JsonText::from(&body).get());
    let request = ServiceRequest {
        body: body.into(),
        ..ServiceRequest::json(settings.text("url").to_owned(), &Value::Null)
    };
    match alert_type {
        // As an alert to `alert_webhook_url`.
        Some(alert_type) => request
            .with_header("X-CueAPI-Alert-Id", id.clone())
            .with_header("X-CueAPI-Alert-Type", alert_type),
        None => request,
    }
}

fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if is_success(answer) {
        return Verdict::Accepted;
    }
    // Its body is not for the reason: a receiver of the user's own may say anything.
    failure("the receiver", answer, "", None, false)
}
