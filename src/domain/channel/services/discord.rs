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
            "must be a Discord webhook URL, as in https://discord.com/api/webhooks/123456/abcdef"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::message::Mood;
    use crate::domain::channel::services::test_support::*;

    fn reader() -> Reader {
        let url = "http://127.0.0.1:4000/api/webhooks/223704706495545344/3d89bb7572e0fb30d8128367b3b1b44f";
        Reader { service: &SERVICE, settings: settings(&[("url", url)]), shown }
    }

    fn shown(request: &ServiceRequest) -> Shown {
        let body = body(request);
        // It mentions nobody.
        assert_eq!(body["allowed_mentions"], json!({"parse": []}));
        let embed = &body["embeds"][0];
        let (title, text) = (text_of(&embed["title"]), text_of(&embed["description"]));
        let [title_size, size] = [&title, &text].map(|part| utf16_len(part.trim()));
        assert!((1..=MAX_TITLE).contains(&title_size) && size <= MAX_DESCRIPTION, "{embed}");
        assert!(title_size + size <= 6000, "{embed}");
        assert!(embed["color"].as_u64().unwrap() <= 0xFF_FF_FF, "{embed}");
        assert!(embed["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        let shown = Shown::with_link_in_text(&without_backslashes(&title, MARKUP), &text);
        // Discord refuses a message whose URL has no name with a dot.
        let url = shown.link.as_deref().filter(|link| has_dotted_name(link));
        assert_eq!(embed["url"].as_str(), url);
        Shown { text: without_backslashes(&shown.text, MARKUP), ..shown }
    }

    #[test]
    fn a_message_is_shown_and_cut_in_utf_16_units_with_escapes() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
        reader().assert_cuts_text("🔥", MAX_DESCRIPTION / 2);
        reader().assert_cuts_text("<", MAX_DESCRIPTION / 2);
        reader().assert_cuts_title("🔥", MAX_TITLE / 2);
        let good = Message { mood: Mood::Good, ..message("title", "", None) };
        assert_eq!(body(&reader().request(&good))["embeds"][0]["color"], 0x1E_8E_3E);
    }

    #[test]
    fn the_number_of_a_list_is_no_markup() {
        let text = "5. five\n 12) twelve\n1.5 of 3.\na 5. b\n=====";
        let embed = body(&reader().request(&message("5. five failed", text, None)));
        let embed = &embed["embeds"][0];
        assert_eq!(embed["title"], "5\\. five failed");
        let escaped = "5\\. five\n 12\\) twelve\n1\\.5 of 3.\na 5. b\n\\=====";
        assert_eq!(embed["description"], escaped);
    }

    #[test]
    fn the_url_is_checked() {
        assert_checked(
            &SERVICE,
            "url",
            &[
                "https://discord.com/api/webhooks/123/abc-_",
                "https://canary.discord.com/api/v10/webhooks/123/abc?thread_id=1",
            ],
            &[
                "https://discord.com/api/webhooks/abc/123",
                "https://discord.com/api/webhooks/123",
                "https://discord.com/api/webhooks/123/abc/slack",
                "https://discord.com/api/vx/webhooks/123/abc",
                "https://discord.com/channels/123/456",
            ],
        );
    }

    #[test]
    fn an_answer_is_read() {
        let message = format!(r#"{{"type":0,"id":"1","embeds":"{}"#, "x".repeat(3_000));
        let form = r#"{"message":"Invalid Form Body","errors":{"embeds":{"0":{"title":{"_errors":[{"message":"Too long."}]}}}}}"#;
        let limited = |pause: &str| format!(r#"{{"message":"Slower.","retry_after":{pause}}}"#);
        assert_verdicts(
            &SERVICE,
            &[
                (204, "", "accepted"),
                // Its beginning alone is kept.
                (200, &message, "accepted"),
                (
                    404,
                    r#"{"message":"Unknown Webhook"}"#,
                    "retry: Discord answered 404 Unknown Webhook",
                ),
                (401, r#"{"message":"Bad Token"}"#, "retry: Discord answered 401 Bad Token"),
                (
                    400,
                    form,
                    "refused: Discord answered 400 Invalid Form Body: embeds.0.title: Too long.",
                ),
                (400, r#"{"embeds":["0"]}"#, r#"refused: Discord answered 400 {"embeds":["0"]}"#),
                (400, r#"{"message":"No thread_id"}"#, "retry: Discord answered 400 No thread_id"),
                (429, &limited("64.57"), "retry after 1m 4s 570ms: Discord answered 429 Slower."),
                // A pause is a day at most, and none without sense counts.
                (429, &limited("1e9"), "retry after 24h: Discord answered 429 Slower."),
                (429, &limited("-1"), "retry after 0s: Discord answered 429 Slower."),
                (429, &limited("\"1\""), "retry: Discord answered 429 Slower."),
            ],
        );
        // Its own field counts before the header.
        let both = verdict_with(&SERVICE, 429, ("Retry-After", "65"), &limited("2"));
        assert_eq!(both, "retry after 2s: Discord answered 429 Slower.");
    }
}
