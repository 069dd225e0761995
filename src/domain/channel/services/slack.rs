//! Slack: <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>, with blocks (Block Kit), and
//! "Creating webhook triggers", which start workflows.

use serde_json::{Value, json};

use crate::domain::channel::message::Message;
use crate::domain::channel::services::answer::{
    failure, is_success, json_body, names_any, plain_text, unconfirmed, words,
};
use crate::domain::channel::services::form::{
    cut, link, link_label, sign, size_with_entities, text, title, with_entities,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, Verdict, host_label, own_target,
};
use crate::domain::channel::{ChannelType, Settings};
use crate::domain::webhook::callback::CallbackTarget;

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Slack,
    name: "Slack",
    settings: &[Setting::webhook("https://hooks.slack.com/services/…")],
    check,
    label: host_label,
    request: Some(request),
    read,
};

const INCOMING_WEBHOOKS: &str = "/services/";
/// Workflows take a flat object of texts in place of a message.
const WORKFLOWS: [&str; 2] = ["/workflows/", "/triggers/"];

/// UTF-16 units with entities. A title that is longer than a header begins the section.
const MAX_TITLE: usize = 1000;
const MAX_HEADER: usize = 150;
const MAX_SECTION: usize = 3000;

fn check(_: &str, url: &str) -> Result<(), String> {
    let CallbackTarget { path, .. } = own_target(ChannelType::Slack, url)?;
    let mut starts = WORKFLOWS.into_iter().chain([INCOMING_WEBHOOKS]);
    if starts.any(|start| path.len() > start.len() && path.starts_with(start)) {
        return Ok(());
    }
    Err("must be a Slack incoming-webhook URL, as in https://hooks.slack.com/services/T0/B0/x"
        .to_owned())
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let url = settings.text("url");
    let path = CallbackTarget::parse(url).map(|target| target.path).unwrap_or_default();
    let is_workflow = WORKFLOWS.iter().any(|start| path.starts_with(start));
    let body = if is_workflow { workflow_input(message) } else { blocks(message) };
    ServiceRequest::json(url.to_owned(), &body)
}

/// The top-level text is that of the notification. The link is no button: Slack expects an app behind each button, and
/// shows a warning beside one that is used.
fn blocks(message: &Message) -> Value {
    let title = format!("{} {}", sign(message.mood), title(message));
    let title = cut(&title, MAX_TITLE, size_with_entities);
    let header = cut(&title, MAX_HEADER, size_with_entities);
    let mut text = text(message);
    if header != title {
        text = format!("{title}\n{text}");
    }
    let mut blocks = vec![json!({"type": "header", "text": plain(&header)})];
    if !text.is_empty() {
        let text = cut(text.trim_end(), MAX_SECTION, size_with_entities);
        blocks.push(json!({"type": "section", "text": plain(&text)}));
    }
    if let Some(link) = link(message) {
        let link = format!("<{}|{}>", with_entities(&link), link_label(message));
        blocks.push(
            json!({"type": "section", "text": {"type": "mrkdwn", "text": link, "verbatim": true}}),
        );
    }
    json!({"text": with_entities(&title), "blocks": blocks})
}

/// Without the markup of `mrkdwn`, which has no escapes for `*`, `_`, `~` and backticks.
fn plain(text: &str) -> Value {
    json!({"type": "plain_text", "text": with_entities(text), "emoji": true})
}

/// The variables that a workflow can use.
fn workflow_input(message: &Message) -> Value {
    // Whether the workflow treats a variable as markup depends on its steps: `<!channel>` is broken up.
    let inert = |text: &str| cut(&text.replace('<', "<\u{200b}"), MAX_SECTION, char::len_utf16);
    json!({
        "title": inert(&title(message)),
        "text": inert(&text(message)),
        "link": link(message).unwrap_or_default(),
        "event": message.event,
    })
}

/// Parts of the words for a URL, a channel or a workspace that does not take messages: `invalid_token`,
/// `channel_not_found`, `no_active_hooks`.
const OF_SETTINGS: [&str; 8] =
    ["token", "auth", "account", "user_not_found", "channel", "service", "team", "hook"];

/// A success is the word `ok`, that of a workflow `{"ok": true}`. An error is a word in plain text, as `no_service`; that
/// of a workflow is `{"ok": false, "error": "…"}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    let error = json_body(answer);
    if is_success(answer) && error["ok"] != false {
        let is_posted = plain_text(answer) == "ok" || error["ok"] == true;
        return if is_posted { Verdict::Accepted } else { unconfirmed(SERVICE.name, answer) };
    }
    let word = match words(&error, "/error") {
        "" => plain_text(answer),
        word => word.to_owned(),
    };
    failure(SERVICE.name, answer, &word, None, names_any(&word, &OF_SETTINGS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::form::utf16_len;
    use crate::domain::channel::services::test_support::*;

    const HOST: &str = "http://127.0.0.1:4000";

    fn reader_at(path: &str) -> Reader {
        let url = format!("{HOST}{path}");
        Reader { service: &SERVICE, settings: settings(&[("url", &url)]), shown }
    }

    fn reader() -> Reader {
        reader_at("/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX")
    }

    fn shown(request: &ServiceRequest) -> Shown {
        let body = body(request);
        let notification = text_of(&body["text"]);
        assert!((1..=40_000).contains(&utf16_len(&notification)), "{notification}");
        let mut shown = Shown::default();
        for block in body["blocks"].as_array().unwrap() {
            let text = &block["text"];
            let (kind, form, inner) = (&block["type"], &text["type"], text_of(&text["text"]));
            let max = if kind == "header" { MAX_HEADER } else { MAX_SECTION };
            assert!((1..=max).contains(&utf16_len(&inner)), "{block}");
            // Each form of text has a field of its own.
            assert!(text.get(if form == "mrkdwn" { "emoji" } else { "verbatim" }).is_none());
            match (kind.as_str().unwrap(), form.as_str().unwrap()) {
                ("header", "plain_text") => shown.title = without_entities(&inner),
                ("section", "plain_text") => shown.text = without_entities(&inner),
                ("section", "mrkdwn") => {
                    let end = format!("|{LABEL}>");
                    let url = inner.strip_prefix('<').and_then(|link| link.strip_suffix(&end));
                    shown.link = Some(without_entities(url.unwrap()));
                }
                _ => panic!("{block}"),
            }
        }
        if shown.title != without_entities(&notification) {
            // The whole title is the first line of the text.
            assert!(shown.title.ends_with('…'), "{shown:?}");
            let (whole, rest) = shown.text.split_once('\n').unwrap_or((&shown.text, ""));
            (shown.title, shown.text) = (whole.to_owned(), rest.to_owned());
        }
        shown.title = shown.title.strip_prefix("🔴 ").unwrap().to_owned();
        shown
    }

    #[test]
    fn a_message_is_shown_and_cut_in_utf_16_units_with_entities() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
        reader().assert_cuts_text("🔥", MAX_SECTION / 2);
        reader().assert_cuts_text("<", MAX_SECTION / 4);
    }

    #[test]
    fn a_header_that_is_cut_is_repeated_in_whole() {
        let title = "x".repeat(200);
        let body = body(&reader().request(&message(&title, "text", None)));
        assert_eq!(body["blocks"][0]["text"]["text"], format!("🔴 {}…", "x".repeat(146)));
        assert_eq!(body["blocks"][1]["text"]["text"], format!("🔴 {title}\ntext"));
    }

    #[test]
    fn a_workflow_gets_flat_texts() {
        for path in ["/triggers/T0123456789/3141592653589/c6e6c0", "/workflows/T0/A0/1/x"] {
            let body = body(&reader_at(path).request(&message("a <!channel>", "b", Some(LINK))));
            let (title, event) = ("a <\u{200b}!channel>", "execution.failed");
            assert_eq!(body, json!({"title": title, "text": "b", "link": LINK, "event": event}));
        }
    }

    #[test]
    fn the_url_is_checked() {
        assert_checked(
            &SERVICE,
            "url",
            &[
                "https://hooks.slack.com/services/T0/B0/x",
                "https://hooks.slack.com/triggers/T0/1/x",
                "https://hooks.slack.com/workflows/T0/A0/1/x",
            ],
            &[
                "https://hooks.slack.com/services/",
                "https://hooks.slack.com/",
                "https://example.com/x/services/T0",
            ],
        );
    }

    #[test]
    fn an_answer_is_read() {
        assert_verdicts(
            &SERVICE,
            &[
                (200, "ok", "accepted"),
                (200, r#"{"ok":true}"#, "accepted"),
                (200, r#"{"ok":false,"error":"x"}"#, "retry: Slack answered 200 x"),
                (404, "no_service", "retry: Slack answered 404 no_service"),
                (410, "channel_is_archived", "retry: Slack answered 410 channel_is_archived"),
                (403, "action_prohibited", "retry: Slack answered 403 action_prohibited"),
                (400, "invalid_payload", "refused: Slack answered 400 invalid_payload"),
                (
                    400,
                    r#"{"error":"invalid_payload"}"#,
                    "refused: Slack answered 400 invalid_payload",
                ),
                (400, r#"{"error":"channel_gone"}"#, "retry: Slack answered 400 channel_gone"),
                (400, "invalid_token", "retry: Slack answered 400 invalid_token"),
                (400, "user_not_found", "retry: Slack answered 400 user_not_found"),
                (400, "no_service", "retry: Slack answered 400 no_service"),
                (400, "no_active_hooks", "retry: Slack answered 400 no_active_hooks"),
            ],
        );
        let limited = verdict_with(&SERVICE, 429, ("Retry-After", "30"), "rate_limited");
        assert_eq!(limited, "retry after 30s: Slack answered 429 rate_limited");
    }

    #[test]
    fn a_reason_is_one_line_without_a_secret() {
        let echo = "no\r\nway https://hooks.slack.com/services/T0/B0/x /services/T0/B0/x token=azGDORePK8gMaC0QOYAMyEEuzJnyUi";
        assert_eq!(verdict_on(&SERVICE, 403, echo), "retry: Slack answered 403 no way … … …");
        let long = verdict_on(&SERVICE, 500, &"word ".repeat(1_000));
        assert!(long.len() < 300 && long.ends_with('…'), "{long}");
    }
}
