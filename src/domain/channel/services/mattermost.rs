//! Mattermost: <https://developers.mattermost.com/integrate/webhooks/incoming/>, with a message attachment.

use serde_json::json;

use crate::domain::channel::message::Message;
use crate::domain::channel::services::answer::{
    failure, is_success, json_body, names_any, plain_text, unconfirmed, words,
};
use crate::domain::channel::services::form::{
    colour, cut, link, link_label, text, title, with_entities, without_markdown,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, Verdict, host_label, own_target,
};
use crate::domain::channel::{ChannelType, Settings};

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Mattermost,
    name: "Mattermost",
    settings: &[Setting::webhook("https://mattermost.example.com/hooks/…")],
    check,
    label: host_label,
    request: Some(request),
    read,
};

/// Characters before escapes. A post has 16,383 at most, an attachment more; this is what one reads.
const MAX_TITLE: usize = 500;
const MAX_TEXT: usize = 4000;

const MARKUP: &str = "\\`*_~|[]";

fn check(_: &str, url: &str) -> Result<(), String> {
    let target = own_target(ChannelType::Mattermost, url)?;
    let id = target.path.rsplit_once("/hooks/").map(|(_, id)| id).unwrap_or_default();
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err("should be the URL of an incoming webhook of Mattermost, as in https://chat.example.com/hooks/xxx"
        .to_owned())
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let title = cut(&title(message), MAX_TITLE, |_| 1);
    let mut parts = vec![format!("**{}**", inert(&title))];
    let text = cut(&text(message), MAX_TEXT, |_| 1);
    if !text.is_empty() {
        parts.push(inert(&text));
    }
    if let Some(link) = link(message) {
        parts.push(format!("[{}]({link})", link_label(message)));
    }
    let attachment = json!({
        "fallback": unmentioned(&title),
        "color": format!("#{:06X}", colour(message.mood)),
        "text": parts.join("\n\n"),
    });
    ServiceRequest::json(settings.text("url").to_owned(), &json!({"attachments": [attachment]}))
}

/// The text without markup. Entities keep `<!channel>` and `<@user>` from becoming mentions, as those of Slack do.
fn inert(text: &str) -> String {
    unmentioned(&without_markdown(&with_entities(text), MARKUP))
}

/// An attachment can mention `@all`, which no backslash prevents: a character without width does.
fn unmentioned(text: &str) -> String {
    text.replace('@', "@\u{200b}")
}

/// What a 400 says of the message: by its id, since the words are in the language of the server, or by its words.
const REFUSALS: [&str; 5] = [
    "incoming_webhook.parse.",
    "incoming_webhook.text.",
    "model.post.is_valid.",
    "unable to parse incoming data",
    "no text specified",
];

/// A success is the word `ok`. An error is `{"id": "…", "message": "Invalid webhook.", "status_code": 400}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if is_success(answer) {
        let is_posted = plain_text(answer) == "ok";
        return if is_posted { Verdict::Accepted } else { unconfirmed(SERVICE.name, answer) };
    }
    let error = json_body(answer);
    let (id, message) = (words(&error, "/id"), words(&error, "/message"));
    let is_refused = names_any(id, &REFUSALS) || names_any(message, &REFUSALS);
    failure(SERVICE.name, answer, message, None, !is_refused)
}
