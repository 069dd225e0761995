//! Pushover: <https://pushover.net/api>, "Pushing Messages", `messages.json` with a body of JSON.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::domain::channel::message::{Message, Mood};
use crate::domain::channel::services::answer::{
    failure, header, is_success, json_body, unconfirmed,
};
use crate::domain::channel::services::form::{
    cut, instant, link, link_label, title_and_required_text,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, SettingKind, Verdict, check_base,
};
use crate::domain::channel::{ChannelType, Settings};
use crate::domain::execution::attempt::MAX_PAUSE;
use crate::domain::webhook::callback::host_of;

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Pushover,
    name: "Pushover",
    settings: &[
        Setting::required("token", SettingKind::Secret, "API token", ""),
        Setting::required("user", SettingKind::Secret, "user key", ""),
        Setting::optional(
            "api_url",
            SettingKind::Url,
            "API URL",
            API_URL,
            "Only if you reach Pushover through a proxy.",
        ),
    ],
    check,
    label: |settings| host_of(api_url(settings)),
    request: Some(request),
    read,
};

const API_URL: &str = "https://api.pushover.net";

/// Characters of a token and of a key.
const KEY: usize = 30;

const MAX_TITLE: usize = 250;
const MAX_MESSAGE: usize = 1024;
const MAX_LINK: usize = 512;

fn check(name: &str, value: &str) -> Result<(), String> {
    let is_key = value.len() == KEY && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match name {
        "token" if !is_key => Err(format!(
            "must be the API token of an application of yours at Pushover: {KEY} letters and digits"
        )),
        "user" if !is_key => Err(format!(
            "must be your user key at Pushover, or the key of a group: {KEY} letters and digits"
        )),
        "api_url" => check_base(ChannelType::Pushover, value, API_URL),
        _ => Ok(()),
    }
}

fn api_url(settings: &Settings) -> &str {
    settings.get("api_url").unwrap_or(API_URL)
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let (title, text) = title_and_required_text(message);
    let mut body = json!({
        "token": settings.text("token"),
        "user": settings.text("user"),
        "message": cut(&text, MAX_MESSAGE, |_| 1),
        "priority": priority(message.mood),
    });
    if let Some(title) = title {
        body["title"] = cut(&title, MAX_TITLE, |_| 1).into();
    }
    if let Some(at) = instant(message) {
        body["timestamp"] = at.as_second().into();
    }
    // A longer one could be cut to another address.
    if let Some(link) = link(message).filter(|link| link.len() <= MAX_LINK) {
        body["url"] = link.into();
        body["url_title"] = link_label(message).into();
    }
    let url = format!("{}/1/messages.json", api_url(settings).trim_end_matches('/'));
    ServiceRequest::json(url, &body)
}

/// -1 makes no sound, 0 is normal. 1 would break the quiet hours that the user has set at Pushover.
fn priority(mood: Mood) -> i8 {
    if mood == Mood::Good { -1 } else { 0 }
}

/// The first word of an error that is about the message. All others are about the token, the key or the device.
const OF_MESSAGE: [&str; 4] = ["message", "title", "url", "url_title"];

/// A success is `{"status": 1, …}`. An error is `{"status": 0, "errors": ["user identifier is invalid"], "request": "…"}`. A 429 is the end of the monthly
/// quota, and names the instant of the next one in a header.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    let error = json_body(answer);
    match error["status"].as_i64().filter(|_| is_success(answer)) {
        Some(1) => return Verdict::Accepted,
        None if is_success(answer) => return unconfirmed(SERVICE.name, answer),
        _ => {}
    }
    let errors: Vec<&str> =
        error["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_of_message =
        |error: &&str| error.split(' ').next().is_some_and(|word| OF_MESSAGE.contains(&word));
    let is_refused = !errors.is_empty() && errors.iter().all(is_of_message);
    match failure(SERVICE.name, answer, &errors.join("; "), until_reset(answer), !is_refused) {
        Verdict::Retry { reason, .. } if is_success(answer) && is_refused => {
            Verdict::Refused { reason }
        }
        verdict => verdict,
    }
}

fn until_reset(answer: &ServiceAnswer<'_>) -> Option<SignedDuration> {
    let reset = header(answer, "X-Limit-App-Reset").filter(|_| answer.http_status == 429)?;
    let reset = Timestamp::from_second(reset.parse().ok()?).ok()?;
    Some(reset.duration_since(answer.now).clamp(SignedDuration::ZERO, MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::test_support::*;

    const TOKEN: &str = "azGDORePK8gMaC0QOYAMyEEuzJnyUi";
    const USER: &str = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG";

    fn reader() -> Reader {
        let given = [("token", TOKEN), ("user", USER), ("api_url", "http://127.0.0.1:4000")];
        Reader { service: &SERVICE, settings: settings(&given), shown }
    }

    fn shown(request: &ServiceRequest) -> Shown {
        assert_eq!(request.url.expose(), "http://127.0.0.1:4000/1/messages.json");
        let body = body(request);
        assert_eq!((&body["token"], &body["user"]), (&json!(TOKEN), &json!(USER)));
        for (name, max) in [("message", MAX_MESSAGE), ("title", MAX_TITLE), ("url", MAX_LINK)] {
            assert!(text_of(&body[name]).chars().count() <= max, "{name}: {body}");
        }
        assert_eq!(body.get("url").is_some(), body["url_title"] == LABEL);
        assert_eq!((&body["priority"], &body["timestamp"]), (&json!(0), &json!(1_767_261_600)));
        let text = text_of(&body["message"]);
        assert!(!text.is_empty());
        Shown::with_optional_title(&body["title"], text, link_of(&body["url"]))
    }

    #[test]
    fn a_message_is_shown_and_cut_in_characters() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
        reader().assert_cuts_text("🔥", MAX_MESSAGE);
        reader().assert_cuts_title("🔥", MAX_TITLE);
        assert_eq!((SERVICE.label)(&Settings::default()), "api.pushover.net");
        let good = Message { mood: Mood::Good, ..message("title", "", None) };
        assert_eq!(body(&reader().request(&good))["priority"], -1);
    }

    #[test]
    fn settings_are_checked() {
        assert_checked(&SERVICE, "token", &[TOKEN], &["azGDORePK8gMaC0QOYAMyEEuzJnyU"]);
        assert_checked(&SERVICE, "user", &[TOKEN], &["azGDORePK8gMaC0QOYAMyEEuzJnyU-"]);
        assert_checked(&SERVICE, "api_url", &["https://api.pushover.net/"], &[]);
    }

    #[test]
    fn an_answer_is_read() {
        assert_verdicts(&SERVICE, &[(200, r#"{"status":1,"request":"x"}"#, "accepted")]);
        let body = |errors: &[&str]| json!({"status": 0, "errors": errors}).to_string();
        for (http_status, errors, verdict) in [
            (400, &["application token is invalid, see https://pushover.net/api"][..], "retry"),
            (400, &["user identifier is invalid"], "retry"),
            (200, &["user is inactive", "and more"], "retry"),
            (400, &["message cannot be blank", "user key is invalid"], "retry"),
            (200, &["message cannot be blank"], "refused"),
            (400, &["message cannot be blank", "title is too long"], "refused"),
        ] {
            let found = verdict_on(&SERVICE, http_status, &body(errors));
            let start = format!("{verdict}: Pushover answered {http_status} {}", &errors[0][..16]);
            assert!(found.starts_with(&start), "{found}");
            assert_eq!(found.matches("; ").count(), errors.len() - 1, "{found}");
        }
        let limited = verdict_with(&SERVICE, 429, ("X-Limit-App-Reset", "90"), &body(&["over"]));
        assert_eq!(limited, "retry after 1m 30s: Pushover answered 429 over");
    }
}
