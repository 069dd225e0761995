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
    Err("should be the URL of an incoming webhook of Slack, as in https://hooks.slack.com/services/T0/B0/x"
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
