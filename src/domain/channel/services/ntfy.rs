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
            Err("add the topic, 1 to 64 letters, digits, - and _, as in \
                 https://ntfy.sh/backups"
                .to_owned())
        }
        "token" if !is_visible(value, MAX_TOKEN) => Err(format!(
            "must be an access token: 1 to {MAX_TOKEN} ASCII characters, as in tk_AgQdq7mVBoFD37zQ"
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::domain::channel::services::test_support::*;

    const TOKEN: &str = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2";

    fn reader() -> Reader {
        let url = "http://127.0.0.1:4000/backups";
        Reader { service: &SERVICE, settings: settings(&[("url", url), ("token", TOKEN)]), shown }
    }

    fn shown(request: &ServiceRequest) -> Shown {
        assert_eq!(request.url.expose(), "http://127.0.0.1:4000/");
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(sent_header(request, "Authorization"), Some(bearer.as_str()));
        assert!(request.body.expose().len() <= 2 * MAX_MESSAGE);
        let body = body(request);
        assert_eq!(body["topic"], "backups");
        let text = text_of(&body["message"]);
        // A message without a text is shown as "triggered".
        assert!((1..=MAX_MESSAGE).contains(&text.len()), "{text}");
        assert!((1..=5).contains(&body["priority"].as_i64().unwrap()), "{body}");
        assert!(body["tags"].as_array().unwrap().iter().all(Value::is_string), "{body}");
        let link = link_of(&body["click"]);
        let action =
            link.as_ref().map(|url| json!([{"action": "view", "label": LABEL, "url": url}]));
        assert_eq!(body.get("actions"), action.as_ref());
        Shown::with_optional_title(&body["title"], text, link)
    }

    #[test]
    fn a_message_is_shown_and_cut_in_bytes() {
        reader().assert_has_label("backups");
        reader().assert_shows_every_message();
        reader().assert_cuts_text("🔥", MAX_MESSAGE / 4);
    }

    #[test]
    fn the_mood_or_the_setting_gives_the_priority() {
        let sent = |settings: &Settings, mood| {
            let request = request(settings, &Message { mood, ..message("title", "text", None) });
            (body(&request), sent_header(&request, "Authorization").is_some())
        };
        let mut settings = reader().settings;
        assert_eq!(sent(&settings, Mood::Critical).0["priority"], 4);
        assert_eq!(sent(&settings, Mood::Good).0["tags"], json!(["white_check_mark"]));
        settings.set("priority", Some("5".to_owned()));
        settings.set("token", None);
        let (body, is_signed) = sent(&settings, Mood::Good);
        assert_eq!((&body["priority"], is_signed), (&json!(5), false));
    }

    #[test]
    fn settings_are_checked() {
        let longest = format!("https://ntfy.sh/{}", "x".repeat(MAX_TOPIC));
        let too_long = format!("{longest}x");
        assert_checked(
            &SERVICE,
            "url",
            &["https://ntfy.sh/backups", "http://10.0.0.1:2586/back-ups_1", &longest],
            &[
                "https://ntfy.sh",
                "https://ntfy.sh/",
                "https://ntfy.sh/a/b",
                "https://ntfy.sh/backups/",
                "https://ntfy.sh/backups?auth=x",
                "https://ntfy.sh/b%20",
                &too_long,
            ],
        );
        assert!(check("url", &too_long).unwrap_err().contains("1 to 64 letters"));
        assert_checked(&SERVICE, "token", &["tk_x"], &["tk_\n"]);
    }

    #[test]
    fn an_answer_is_read() {
        let published = format!(r#"{{"id":"x","event":"message","message":"{}"#, "x".repeat(3_000));
        let error = |code, text: &str| {
            let link = "https://ntfy.sh/docs/publish/#limitations";
            json!({"code": code, "http": code / 100, "error": text, "link": link}).to_string()
        };
        assert_verdicts(
            &SERVICE,
            &[
                // Its beginning alone is kept.
                (200, &published, "accepted"),
                (401, &error(40101, "unauthorized"), "retry: ntfy answered 401 unauthorized"),
                (403, &error(40301, "forbidden"), "retry: ntfy answered 403 forbidden"),
                (413, &error(41303, "body too large"), "refused: ntfy answered 413 body too large"),
                (400, &error(40009, "topic invalid"), "retry: ntfy answered 400 topic invalid"),
                (400, &error(40018, "bad actions"), "refused: ntfy answered 400 bad actions"),
                (429, &error(42901, "be nice"), "retry: ntfy answered 429 be nice"),
            ],
        );
    }
}
