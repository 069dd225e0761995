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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::test_support::*;

    fn sent(message: &Message) -> ServiceRequest {
        let reader = Reader {
            service: &SERVICE,
            settings: settings(&[("url", "http://127.0.0.1:4000/hook")]),
            shown: |_| Shown::default(),
        };
        reader.assert_has_label("127.0.0.1");
        reader.request(message)
    }

    #[test]
    fn a_receiver_gets_the_fields_of_an_alert() {
        let failed = message("backup failed", "text", Some(LINK));
        let expected = json!({
            "id": failed.id, "event": failed.event, "alert_type": null, "severity": "critical",
            "title": "backup failed", "message": "backup failed", "text": "text", "link": LINK,
            "cue_id": failed.cue_id, "cue_name": failed.cue_name, "execution_id": failed.execution_id,
            "metadata": {}, "created_at": failed.at,
        });
        assert_eq!(body(&sent(&failed)), expected);
        let mut alert = json!({
            "alert_type": "claim_lost", "severity": "warning", "cue_id": "cue_1", "execution_id": null,
            "message": "Worker w lost its claim", "metadata": {"attempt": 1}, "created_at": "2026-01-01T09:00:00Z",
        });
        let mut expected = expected;
        expected.as_object_mut().unwrap().extend(alert.as_object().unwrap().clone());
        alert["id"] = "of the alert".into();
        let request = sent(&Message { alert: Some(alert), ..failed });
        assert_eq!(body(&request), expected);
        assert_eq!(sent_header(&request, "X-CueAPI-Alert-Type"), Some("claim_lost"));
    }

    #[test]
    fn the_url_is_any_but_that_of_another_service() {
        let workflow = "https://x.logic.azure.com/workflows/1/triggers/manual/paths/invoke";
        assert_checked(&SERVICE, "url", &["https://example.com/discord", workflow], &[]);
    }

    #[test]
    fn an_answer_is_read() {
        assert_verdicts(
            &SERVICE,
            &[
                (200, "", "accepted"),
                (422, "no", "refused: the receiver answered 422"),
                (302, "", "retry: the receiver answered 302"),
            ],
        );
        let limited = verdict_with(&SERVICE, 429, ("Retry-After", "7"), "limit exceeded");
        assert_eq!(limited, "retry after 7s: the receiver answered 429");
    }
}
