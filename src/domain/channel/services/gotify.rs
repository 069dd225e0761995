//! Gotify: <https://gotify.net/docs/pushmsg> and "Message Extras", `POST /message`.

use serde_json::json;

use crate::domain::channel::message::{Message, Mood};
use crate::domain::channel::services::answer::{
    failure, is_success, joined, json_body, names_any, says, unconfirmed, words,
};
use crate::domain::channel::services::form::{cut, link, link_label, title_and_required_text};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, SettingKind, Verdict, check_base, host_label,
    is_visible,
};
use crate::domain::channel::{ChannelType, Settings};

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Gotify,
    name: "Gotify",
    settings: &[
        Setting::required("url", SettingKind::Url, "server URL", "https://gotify.example.com"),
        Setting::required("token", SettingKind::Secret, "application token", ""),
    ],
    check,
    label: host_label,
    request: Some(request),
    read,
};

const MAX_TOKEN: usize = 100;

/// Gotify itself has no limit: this is what one reads.
const MAX_TITLE: usize = 500;
const MAX_TEXT: usize = 4000;

fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "url" => check_base(ChannelType::Gotify, value, "https://gotify.example.com"),
        "token" if !is_visible(value, MAX_TOKEN) => Err(format!(
            "must be the token of an application: 1 to {MAX_TOKEN} ASCII characters, as in AWSF2n2Tb.4h"
        )),
        _ => Ok(()),
    }
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let (title, text) = title_and_required_text(message);
    let mut text = cut(&text, MAX_TEXT, |_| 1);
    let mut body = json!({"priority": priority(message.mood)});
    let mut extras = json!({"client::display": {"contentType": "text/plain"}});
    if let Some(link) = link(message) {
        // Only the app for Android opens `click`.
        text += &format!("\n\n{}: {link}", link_label(message));
        extras["client::notification"] = json!({"click": {"url": link}});
    }
    if let Some(title) = title {
        body["title"] = cut(&title, MAX_TITLE, |_| 1).into();
    }
    body["message"] = text.into();
    body["extras"] = extras;
    let url = format!("{}/message", settings.text("url").trim_end_matches('/'));
    ServiceRequest::json(url, &body).with_header("X-Gotify-Key", settings.text("token").to_owned())
}

/// From 4 on a phone makes a sound, from 8 on it vibrates too.
fn priority(mood: Mood) -> u8 {
    match mood {
        Mood::Critical => 8,
        Mood::Warning => 6,
        Mood::Good | Mood::Info => 4,
    }
}

/// A success is the stored message, with an `id`. An error is `{"error": "Unauthorized", "errorCode": 401,
/// "errorDescription": "you need to provide a valid …"}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    if is_success(answer) {
        return if says(answer, r#""id":"#) {
            Verdict::Accepted
        } else {
            unconfirmed(SERVICE.name, answer)
        };
    }
    let error = json_body(answer);
    let details = joined(&[words(&error, "/error"), words(&error, "/errorDescription")]);
    failure(SERVICE.name, answer, &details, None, names_any(&details, &["token"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::test_support::*;

    const TOKEN: &str = "AWSF2n2Tb.4h_gk";

    fn reader() -> Reader {
        let given = [("url", "http://127.0.0.1:4000"), ("token", TOKEN)];
        Reader { service: &SERVICE, settings: settings(&given), shown }
    }

    fn shown(request: &ServiceRequest) -> Shown {
        assert_eq!(request.url.expose(), "http://127.0.0.1:4000/message");
        assert_eq!(sent_header(request, "X-Gotify-Key"), Some(TOKEN));
        let body = body(request);
        assert_eq!(body["priority"], 8);
        let link = link_of(&body["extras"]["client::notification"]["click"]["url"]);
        let mut extras = json!({"client::display": {"contentType": "text/plain"}});
        let mut text = text_of(&body["message"]);
        if let Some(url) = &link {
            extras["client::notification"] = json!({"click": {"url": url}});
            let end = format!("\n\n{LABEL}: {url}");
            text = text.strip_suffix(&end).unwrap().to_owned();
        }
        assert!(body["extras"] == extras && !text.is_empty(), "{body}");
        Shown::with_optional_title(&body["title"], text, link)
    }

    #[test]
    fn a_message_is_shown() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
    }

    #[test]
    fn settings_are_checked() {
        let good = ["https://gotify.example.com", "https://example.com/gotify/"];
        assert_checked(&SERVICE, "url", &good, &["https://gotify.example.com/?token=x"]);
        let long = "x".repeat(MAX_TOKEN + 1);
        assert_checked(&SERVICE, "token", &["A.b-_", &long[1..]], &["a b", &long]);
    }

    #[test]
    fn an_answer_is_read() {
        let stored = format!(r#"{{"id": 25, "appid": 5, "message": "{}"#, "x".repeat(3_000));
        let error = |text: &str| json!({"error": "Bad", "errorDescription": text}).to_string();
        assert_verdicts(
            &SERVICE,
            &[
                // Its beginning alone is kept.
                (200, &stored, "accepted"),
                (401, &error("no valid token"), "retry: Gotify answered 401 Bad: no valid token"),
                (400, &error("a wrong token"), "retry: Gotify answered 400 Bad: a wrong token"),
                (400, &error("no message"), "refused: Gotify answered 400 Bad: no message"),
            ],
        );
        let limited = verdict_with(&SERVICE, 429, ("Retry-After", "7"), "limit exceeded");
        assert_eq!(limited, "retry after 7s: Gotify answered 429");
    }
}
