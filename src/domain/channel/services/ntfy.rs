//! ntfy: <https://docs.ntfy.sh/publish/>, "Publish as JSON". A message is sent to the root of the server and names its
//! topic.

use serde_json::json;

use crate::domain::channel::message::{Message, Mood};
use crate::domain::channel::services::answer::{
    failure, is_success, json_body, names_any, says, unconfirmed, words,
};
use crate::domain::channel::services::form::{
    cut, link, link_label, size_in_json, title_and_required_text,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, SettingKind, Verdict, is_visible, own_target,
};
use crate::domain::channel::{ChannelType, Settings};

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Ntfy,
    name: "ntfy",
    settings: &[
        Setting::required("url", SettingKind::Url, "topic URL", "https://ntfy.sh/backups-x7qz"),
        Setting::optional("token", SettingKind::Secret, "access token", "", ""),
        Setting::optional("priority", SettingKind::Number(1..=5), "priority", "", ""),
    ],
    check,
    label: |settings| root_and_topic(settings.text("url")).1.to_owned(),
    request: Some(request),
    read,
};

const MAX_TOPIC: usize = 64;
const MAX_TOKEN: usize = 100;

/// Bytes of a message. A longer one becomes an attachment.
const MAX_MESSAGE: usize = 4096;
const MAX_TITLE: usize = 1000;
/// Bytes of a whole request, by default of the server; less than the two times 4096 that it reads.
const MAX_BODY: usize = 8000;

fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "url" => {
            own_target(ChannelType::Ntfy, value)?;
            let (_, topic) = root_and_topic(value);
            let is_topic = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if (1..=MAX_TOPIC).contains(&topic.len()) && topic.bytes().all(is_topic) {
                return Ok(());
            }
            Err("should be the URL of a topic, whose name has 1 to 64 letters, digits, - and _, as in \
                 https://ntfy.sh/backups"
                .to_owned())
        }
        "token" if !is_visible(value, MAX_TOKEN) => Err(format!(
            "should be an access token: 1 to {MAX_TOKEN} ASCII characters, as in tk_AgQdq7mVBoFD37zQ"
        )),
        _ => Ok(()),
    }
}

/// The root of the server, with its slash, and all that follows.
fn root_and_topic(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    url.split_at(url[host..].find('/').map_or(url.len(), |at| host + at + 1))
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let (root, topic) = root_and_topic(settings.text("url"));
    let (title, text) = title_and_required_text(message);
    let priority = settings.get("priority").and_then(|priority| priority.parse().ok());
    let mut body = json!({
        "topic": topic,
        "tags": [tag(message.mood)],
        "priority": priority.unwrap_or(default_priority(message.mood)),
    });
    if let Some(title) = title {
        body["title"] = cut(&title, MAX_TITLE, char::len_utf8).into();
    }
    if let Some(link) = link(message) {
        body["actions"] = json!([{"action": "view", "label": link_label(message), "url": link}]);
        body["click"] = link.into();
    }
    let room = MAX_BODY.saturating_sub(body.to_string().len());
    let text = cut(&text, MAX_MESSAGE, char::len_utf8);
    body["message"] = cut(&text, room, size_in_json).into();
    let request = ServiceRequest::json(root.to_owned(), &body);
    match settings.get("token") {
        Some(token) => request.with_header("Authorization", format!("Bearer {token}")),
        None => request,
    }
}

/// A tag with the name of an emoji is shown as it.
fn tag(mood: Mood) -> &'static str {
    match mood {
        Mood::Critical => "rotating_light",
        Mood::Warning => "warning",
        Mood::Good => "white_check_mark",
        Mood::Info => "information_source",
    }
}

/// 4 is high: it shows over other apps. 3 is the default.
fn default_priority(mood: Mood) -> i64 {
    if mood == Mood::Critical { 4 } else { 3 }
}

/// A success is the published message. An error is `{"code": 42901, "http": 429, "error": "limit reached: …", "link":
/// "…"}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if is_success(answer) {
        return if says(answer, r#""event":"message""#) {
            Verdict::Accepted
        } else {
            unconfirmed(SERVICE.name, answer)
        };
    }
    let error = json_body(answer);
    let words = words(&error, "/error");
    // "topic invalid" and "topic name is not allowed"
    failure(SERVICE.name, answer, words, None, names_any(words, &["topic"]))
}
