//! Discord: <https://docs.discord.com/developers/resources/webhook>, "Execute Webhook", with one embed.

use serde_json::{Value, json};

use crate::domain::channel::message::Message;
use crate::domain::channel::services::answer::{
    failure, is_success, joined, json_body, names_any, pause, says, unconfirmed, words,
};
use crate::domain::channel::services::form::{
    colour, cut, has_dotted_name, instant, link, link_label, size_without_markdown, text, title,
    utf16_len, without_markdown,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, Verdict, host_label, own_target,
};
use crate::domain::channel::{ChannelType, Settings};
use crate::domain::time;

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Discord,
    name: "Discord",
    settings: &[Setting::webhook("https://discord.com/api/webhooks/…")],
    check,
    label: host_label,
    request: Some(request),
    read,
};

const MAX_TITLE: usize = 256;
const MAX_DESCRIPTION: usize = 4096;

/// `<` begins mentions and timestamps too.
const MARKUP: &str = "\\`*_~|[]<";

fn check(_: &str, url: &str) -> Result<(), String> {
    let target = own_target(ChannelType::Discord, url)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |text: &str| text.strip_prefix('v').is_some_and(digits);
    let mut path = target.path.strip_prefix("/api/").unwrap_or_default();
    if let Some((_, rest)) = path.split_once('/').filter(|(version, _)| is_version(version)) {
        path = rest;
    }
    let id_and_token = path.strip_prefix("webhooks/").and_then(|path| path.split_once('/'));
    match id_and_token {
        Some((id, token)) if digits(id) && !token.is_empty() && !token.contains('/') => Ok(()),
        _ => Err(
            "should be the URL of a webhook of Discord, as in https://discord.com/api/webhooks/123456/abcdef"
                .to_owned(),
        ),
    }
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let size = |char| size_without_markdown(char, MARKUP);
    let inert = |text: &str, max| without_markdown(&cut(text, max, size), MARKUP);
    let mut embed =
        json!({"title": inert(&title(message), MAX_TITLE), "color": colour(message.mood)});
    if let Some(at) = instant(message) {
        embed["timestamp"] = time::instant(at).into();
    }
    let mut parts = Vec::new();
    if let Some(link) = link(message) {
        let label = link_label(message);
        if has_dotted_name(&link) {
            parts.push(format!("[{label}]({link})"));
            embed["url"] = link.into();
        } else {
            // As `url`, Discord would refuse the whole message.
            parts.push(format!("{label}: {link}"));
        }
    }
    let text = text(message);
    if !text.is_empty() {
        let used: usize = parts.iter().map(|part| utf16_len(part) + "\n\n".len()).sum();
        parts.insert(0, inert(&text, MAX_DESCRIPTION.saturating_sub(used)));
    }
    if !parts.is_empty() {
        embed["description"] = parts.join("\n\n").into();
    }
    let body = json!({"embeds": [embed], "allowed_mentions": {"parse": []}});
    ServiceRequest::json(settings.text("url").to_owned(), &body)
}

/// "Webhooks posted to forum channels must have a thread_name or thread_id", and a `thread_id` in the URL that is wrong.
const OF_SETTINGS: [&str; 3] = ["webhook", "channel", "thread"];

/// A success is a 204, or with `?wait=true` the message, whose id can stand behind the part that is kept. An error is `{"code": 10015, "message": "Unknown Webhook"}`, with `errors` by field for an invalid message; a 429 is
/// `{"message": "You are being rate limited.", "retry_after": 64.57, "global": false}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if is_success(answer) {
        let is_posted = answer.http_status == 204
            || [r#""id":"#, r#""embeds":"#].iter().any(|name| says(answer, name));
        return if is_posted { Verdict::Accepted } else { unconfirmed(SERVICE.name, answer) };
    }
    let error = json_body(answer);
    let details = match words(&error, "/message") {
        // An error of the oldest versions: `{"embeds": ["0"]}`.
        "" if error.is_object() => error.to_string(),
        message => {
            let (field, problem) = first_error(&error["errors"], "").unwrap_or_default();
            joined(&[message, &field, &problem])
        }
    };
    let is_of_settings = names_any(&details, &OF_SETTINGS);
    failure(SERVICE.name, answer, &details, pause(&error["retry_after"]), is_of_settings)
}

/// The first problem in `{"embeds": {"0": {"title": {"_errors": [{"code": "…", "message": "…"}]}}}}`, with its field.
fn first_error(errors: &Value, field: &str) -> Option<(String, String)> {
    let below = |(name, errors): (&String, &Value)| match (name.as_str(), field) {
        ("_errors", _) => Some((field.to_owned(), words(errors, "/0/message").to_owned())),
        (name, "") => first_error(errors, name),
        (name, field) => first_error(errors, &format!("{field}.{name}")),
    };
    errors.as_object()?.iter().find_map(below)
}
