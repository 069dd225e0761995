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
    Err("must be a Mattermost incoming-webhook URL, as in https://chat.example.com/hooks/xxx"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::message::Mood;
    use crate::domain::channel::services::test_support::*;

    fn reader() -> Reader {
        let url = "http://127.0.0.1:4000/hooks/abcdefghijklmnopqrstuvwxyz";
        Reader { service: &SERVICE, settings: settings(&[("url", url)]), shown }
    }

    fn shown(request: &ServiceRequest) -> Shown {
        let attachment = &body(request)["attachments"][0];
        let (colour, all) = (text_of(&attachment["color"]), text_of(&attachment["text"]));
        assert!(colour.len() == 7 && colour.starts_with('#'), "{attachment}");
        assert!(!text_of(&attachment["fallback"]).is_empty(), "{attachment}");
        assert!((1..40_000).contains(&all.chars().count()), "{attachment}");
        assert_eq!(all.matches('@').count(), all.matches("@\u{200b}").count(), "{all}");
        let shown = Shown::with_link_in_text("", &all.replace("@\u{200b}", "@"));
        let (title, text) = shown.text.split_once("\n\n").unwrap_or((&shown.text, ""));
        let title = title.strip_prefix("**").and_then(|title| title.strip_suffix("**")).unwrap();
        let inert = |text: &str| without_entities(&without_backslashes(text, "`*_~|[]<>"));
        Shown { title: inert(title), text: inert(text), link: shown.link }
    }

    #[test]
    fn a_message_is_shown_without_markup() {
        reader().assert_has_label("127.0.0.1");
        reader().assert_shows_every_message();
        let text = "5. five\n 12) twelve\n1.5 of 3.\na 5. b\n=====";
        let warning = Message { mood: Mood::Warning, ..message("5. five failed", text, None) };
        let attachment = body(&reader().request(&warning))["attachments"][0].clone();
        assert_eq!(attachment["color"], "#F29900");
        let escaped = "5\\. five\n 12\\) twelve\n1\\.5 of 3.\na 5. b\n\\=====";
        assert_eq!(attachment["text"], format!("**5\\. five failed**\n\n{escaped}"));
    }

    #[test]
    fn the_url_is_checked() {
        let bad = ["https://chat.example.com/hooks/", "https://chat.example.com/hooks/a/b"];
        assert_checked(&SERVICE, "url", &["https://chat.example.com/team/hooks/abc123"], &bad);
    }

    #[test]
    fn an_answer_is_read() {
        let error = |id: &str| json!({"id": id, "message": "Ungültig."}).to_string();
        let unreadable = r#"{"message":"Unable to parse incoming data."}"#;
        assert_verdicts(
            &SERVICE,
            &[
                (200, "ok", "accepted"),
                (200, "ok\n", "accepted"),
                (
                    400,
                    r#"{"message":"Invalid webhook."}"#,
                    "retry: Mattermost answered 400 Invalid webhook.",
                ),
                (
                    400,
                    &error("web.incoming_webhook.channel.app_error"),
                    "retry: Mattermost answered 400 Ungültig.",
                ),
                (
                    400,
                    &error("web.incoming_webhook.parse.app_error"),
                    "refused: Mattermost answered 400 Ungültig.",
                ),
                (
                    400,
                    unreadable,
                    "refused: Mattermost answered 400 Unable to parse incoming data.",
                ),
            ],
        );
        let limited = verdict_with(&SERVICE, 429, ("Retry-After", "7"), "limit exceeded");
        assert_eq!(limited, "retry after 7s: Mattermost answered 429");
    }
}
