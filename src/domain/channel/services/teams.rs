//! Microsoft Teams: <https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook>
//! and "Create incoming webhooks with Workflows", with an Adaptive Card. The older connectors take the same.

use serde_json::{Value, json};

use crate::domain::channel::message::{Message, Mood};
use crate::domain::channel::services::answer::{
    failure, is_success, joined, json_body, names_any, plain_text, unconfirmed, verdict, words,
};
use crate::domain::channel::services::form::{cut, link, link_label, size_in_json, text, title};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, Verdict, host_label, own_target,
    service_of_host,
};
use crate::domain::channel::{ChannelType, Settings};

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Teams,
    name: "Teams",
    settings: &[Setting::webhook("https://….logic.azure.com/workflows/…")],
    check,
    label: host_label,
    request: Some(request),
    read,
};

/// Bytes in JSON, which leave room for the card: a message has 28 KB at most.
const MAX_TITLE: usize = 1000;
const MAX_TEXT: usize = 12_000;
const MAX_LINES: usize = 40;

fn check(_: &str, url: &str) -> Result<(), String> {
    let target = own_target(ChannelType::Teams, url)?;
    let is_own_host = service_of_host(&target.host) == Some(ChannelType::Teams);
    // Its other hosts are many: those of national clouds, and `outlook.office.com` of the older connectors.
    if is_workflow(&target.path)
        || is_connector(&target.path)
        || (is_own_host && target.path != "/")
    {
        return Ok(());
    }
    Err("should be the URL of a workflow of Teams that posts to a channel when a webhook request is received, \
         as in https://prod-00.westeurope.logic.azure.com/workflows/…"
        .to_owned())
}

/// `/workflows/…/triggers/manual/paths/invoke`, also below `/powerautomate/automations/direct`.
pub(in crate::domain::channel::services) fn is_workflow(path: &str) -> bool {
    path.to_ascii_lowercase().find("/triggers/").is_some_and(|at| at > 0)
}

/// `/webhook/…/IncomingWebhook/…` or `/webhookb2/…`
fn is_connector(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.starts_with("/webhook") && path.contains("/incomingwebhook/")
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let title = cut(&title(message), MAX_TITLE, size_in_json);
    let title =
        paragraph(json!({"type": "TextRun", "text": title, "weight": "Bolder", "size": "Medium"}));
    let style = style(message.mood);
    let mut body =
        vec![json!({"type": "Container", "style": style, "bleed": true, "items": [title]})];
    let text = cut(&text(message), MAX_TEXT, size_in_json);
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let shown = lines
        .by_ref()
        .take(MAX_LINES)
        .map(|line| paragraph(json!({"type": "TextRun", "text": line})));
    body.extend(shown);
    if lines.next().is_some() {
        body.push(paragraph(json!({"type": "TextRun", "text": "…"})));
    }
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    });
    if let Some(link) = link(message) {
        card["actions"] =
            json!([{"type": "Action.OpenUrl", "title": link_label(message), "url": link}]);
    }
    let attachment =
        json!({"contentType": "application/vnd.microsoft.card.adaptive", "content": card});
    let body = json!({"type": "message", "attachments": [attachment]});
    ServiceRequest::json(settings.text("url").to_owned(), &body)
}

/// A block whose runs have no Markdown, unlike a `TextBlock`.
fn paragraph(run: Value) -> Value {
    json!({"type": "RichTextBlock", "inlines": [run]})
}

fn style(mood: Mood) -> &'static str {
    match mood {
        Mood::Critical => "attention",
        Mood::Warning => "warning",
        Mood::Good => "good",
        Mood::Info => "accent",
    }
}

/// A workflow that is switched off answers 400 `WorkflowTriggerIsNotEnabled`.
const OF_SETTINGS: [&str; 5] =
    ["notenabled", "disabled", "suspended", "signature", "authorization"];

const FAILED: &str = "Webhook message delivery failed";
const INNER_STATUS: &str = "returned HTTP error ";

/// A workflow answers 202, and an error as `{"error": {"code": "…", "message": "…"}}`. A connector answers 200 with `1`, and also for a
/// message that Teams has not taken, and says so in the body.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if !is_success(answer) {
        let error = json_body(answer);
        let text = plain_text(answer);
        let details =
            joined(&[words(&error, "/error/code"), words(&error, "/error/message"), &text]);
        return failure(SERVICE.name, answer, &details, None, names_any(&details, &OF_SETTINGS));
    }
    let body = String::from_utf8_lossy(answer.body);
    if !body.contains(FAILED) {
        let is_accepted = answer.http_status == 202 && !body.trim_start().starts_with('<');
        let is_posted = is_accepted || body.trim() == "1";
        return if is_posted { Verdict::Accepted } else { unconfirmed(SERVICE.name, answer) };
    }
    let status = body.split_once(INNER_STATUS).map(|(_, rest)| rest.get(..3).unwrap_or_default());
    match status.and_then(|status| status.parse().ok()) {
        Some(http_status) => {
            verdict(SERVICE.name, http_status, "in the text of a 200", None, false)
        }
        None => verdict(SERVICE.name, answer.http_status, &body, None, false),
    }
}
