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
    Err("must be the URL of a workflow of Teams that posts to a channel when a webhook request is received, \
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::test_support::*;

    fn reader() -> Reader {
        let url = "http://127.0.0.1:4000/workflows/0123456789abcdef/triggers/manual/paths/invoke?sig=s3cret";
        Reader { service: &SERVICE, settings: settings(&[("url", url)]), shown }
    }

    /// The text of a paragraph, whose only run is one line.
    fn run(block: &Value) -> String {
        assert_eq!(block["type"], "RichTextBlock");
        let [run] = &block["inlines"].as_array().unwrap()[..] else { panic!("{block}") };
        let text = text_of(&run["text"]);
        assert!(run["type"] == "TextRun" && !text.is_empty() && !text.contains('\n'), "{run}");
        text
    }

    fn shown(request: &ServiceRequest) -> Shown {
        assert!(request.body.expose().len() <= 28 * 1024, "{} bytes", request.body.expose().len());
        let body = body(request);
        let attachment = &body["attachments"][0];
        let card = &attachment["content"];
        assert_eq!(body["type"], "message");
        assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
        assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
        let (head, rest) = card["body"].as_array().unwrap().split_first().unwrap();
        assert_eq!((&head["type"], &head["style"]), (&json!("Container"), &json!("attention")));
        let link = link_of(&card["actions"][0]["url"]);
        let open = |url| json!([{"type": "Action.OpenUrl", "title": LABEL, "url": url}]);
        assert_eq!(card.get("actions"), link.as_ref().map(open).as_ref());
        let text = rest.iter().map(run).collect::<Vec<_>>().join("\n");
        Shown { title: run(&head["items"][0]), text, link }
    }

    #[test]
    fn a_message_is_shown_on_a_card_with_the_style_of_its_mood() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
        let warning = Message { mood: Mood::Warning, ..message("title", "text", None) };
        let card = body(&reader().request(&warning))["attachments"][0]["content"].clone();
        assert_eq!(card["body"][0]["style"], "warning");
    }

    #[test]
    fn the_url_is_checked() {
        let workflow = "workflows/1/triggers/manual/paths/invoke";
        let direct = format!("powerautomate/automations/direct/{workflow}");
        assert_checked(
            &SERVICE,
            "url",
            &[
                "https://prod-1.westeurope.logic.azure.com:443/workflows/1?sig=x",
                "https://x.environment.api.powerplatform.com/powerautomate/1",
                "https://acme.webhook.office.com/webhookb2/1",
                &format!("http://127.0.0.1:4000/{workflow}?sig=x"),
                &format!("https://x.logic.azure.us/{workflow}"),
                &format!("https://x.api.powerplatform.us/{direct}"),
                "https://outlook.office.com/webhook/1@2/IncomingWebhook/3/4",
                "https://acme.webhook.office.us/webhookb2/1@2/IncomingWebhook/3/4",
            ],
            &[
                "https://teams.example.com/",
                "https://teams.example.com",
                "https://example.com/hook",
                "https://teams.microsoft.com/l/channel/19%3ax%40thread.tacv2/General",
                "https://outlook.office.com/mail/",
            ],
        );
    }

    #[test]
    fn an_answer_is_read() {
        let error = |code: &str| json!({"error": {"code": code, "message": "x."}}).to_string();
        let failed = |status: u16| {
            format!(
                "{FAILED} with error: Microsoft Teams endpoint {INNER_STATUS}{status} with ContextId tcid=622824298674363899"
            )
        };
        assert_verdicts(
            &SERVICE,
            &[
                (202, "", "accepted"),
                (200, "1", "accepted"),
                (200, &failed(413), "refused: Teams answered 413 in the text of a 200"),
                (200, &failed(429), "retry: Teams answered 429 in the text of a 200"),
                (401, &error("Unauthorized"), "retry: Teams answered 401 Unauthorized: x."),
                (404, &error("NotFound"), "retry: Teams answered 404 NotFound: x."),
                (
                    400,
                    &error("WorkflowTriggerIsNotEnabled"),
                    "retry: Teams answered 400 WorkflowTriggerIsNotEnabled: x.",
                ),
                (400, &error("InvalidRequest"), "refused: Teams answered 400 InvalidRequest: x."),
            ],
        );
        let limited = verdict_with(&SERVICE, 429, ("Retry-After", "12"), &error("TooMany"));
        assert_eq!(limited, "retry after 12s: Teams answered 429 TooMany: x.");
    }
}
