//! Telegram: <https://core.telegram.org/bots/api>, `sendMessage` with "HTML style".

use serde_json::{Value, json};

use crate::domain::channel::message::Message;
use crate::domain::channel::services::answer::{
    failure, is_success, json_body, names_any, pause, says, unconfirmed, words,
};
use crate::domain::channel::services::form::{
    cut, has_dotted_name, link, link_label, sign, text, title, utf16_len, with_entities,
};
use crate::domain::channel::services::{
    Service, ServiceAnswer, ServiceRequest, Setting, SettingKind, Verdict, check_base,
};
use crate::domain::channel::{ChannelType, Settings};

pub const SERVICE: Service = Service {
    channel_type: ChannelType::Telegram,
    name: "Telegram",
    settings: &[
        Setting::required("bot_token", SettingKind::Secret, "bot token", "123456789:AA…"),
        Setting {
            help: "A number, negative for a group, or the name of a public chat as in @backups.",
            ..Setting::required("chat_id", SettingKind::Text, "chat id", "")
        },
        Setting::optional(
            "api_url",
            SettingKind::Url,
            "API URL",
            API_URL,
            "Only for a Bot API server of your own.",
        ),
    ],
    check,
    label: |settings| settings.text("chat_id").to_owned(),
    request: Some(request),
    read,
};

const API_URL: &str = "https://api.telegram.org";

const MIN_TOKEN: usize = 30;
const MAX_USERNAME: usize = 32;

/// UTF-16 units of a message without its tags.
const MAX_MESSAGE: usize = 4096;
const MAX_TITLE: usize = 1000;

fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "bot_token" if !is_token(value) => {
            Err("must be the token that @BotFather gives for a bot, as in 123456789:AAH…".to_owned())
        }
        "chat_id" if !is_chat(value) => {
            Err("must be the number of a chat, as in -1001234567890, or the name of a public one, as in @backups"
                .to_owned())
        }
        "api_url" => check_base(ChannelType::Telegram, value, API_URL),
        _ => Ok(()),
    }
}

fn is_token(text: &str) -> bool {
    let is_secret = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.split_once(':').is_some_and(|(id, secret)| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_digit())
            && secret.len() >= MIN_TOKEN
            && secret.bytes().all(is_secret)
    })
}

fn is_chat(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match text.strip_prefix('@') {
        Some(name) => (1..=MAX_USERNAME).contains(&name.len()) && name.bytes().all(is_name),
        None => !text.starts_with('+') && text.parse::<i64>().is_ok(),
    }
}

fn request(settings: &Settings, message: &Message) -> ServiceRequest {
    let title = cut(&title(message), MAX_TITLE, char::len_utf16);
    let head = format!("{} <b>{}</b>", sign(message.mood), with_entities(&title));
    let mut parts = vec![head];
    let mut used = utf16_len(sign(message.mood)) + " ".len() + utf16_len(&title);
    if let Some(link) = link(message) {
        let label = link_label(message);
        // Telegram leaves out the link of a URL whose host has no dot.
        let (shown, part) = if has_dotted_name(&link) {
            (label.to_owned(), format!("<a href=\"{}\">{label}</a>", with_entities(&link)))
        } else {
            (format!("{label}: {link}"), format!("{label}: {}", with_entities(&link)))
        };
        used += "\n\n".len() + utf16_len(&shown);
        parts.push(part);
    }
    let text =
        cut(&text(message), MAX_MESSAGE.saturating_sub(used + "\n\n".len()), char::len_utf16);
    if !text.is_empty() {
        parts.insert(1, with_entities(&text));
    }
    let chat = settings.text("chat_id");
    let body = json!({
        "chat_id": chat.parse::<i64>().map_or_else(|_| Value::from(chat), Value::from),
        "text": parts.join("\n\n"),
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": true},
    });
    let api_url = settings.get("api_url").unwrap_or(API_URL).trim_end_matches('/');
    ServiceRequest::json(format!("{api_url}/bot{}/sendMessage", settings.text("bot_token")), &body)
}

/// What a 400 says of the message. All others are about the bot, the chat or its rights.
const REFUSALS: [&str; 5] = [
    "can't parse entities",
    "can't parse message text",
    "message is too long",
    "message text is empty",
    "text must be",
];

/// A success is `{"ok": true, …}`. An error is `{"ok": false, "error_code": 429, "description": "…", "parameters": {"retry_after": 35}}`.
fn read(answer: &ServiceAnswer<'_>) -> Verdict {
    let error = json_body(answer);
    if is_success(answer) && error["ok"] != false {
        let is_sent = says(answer, r#""ok":true"#);
        return if is_sent { Verdict::Accepted } else { unconfirmed(SERVICE.name, answer) };
    }
    let mut description = words(&error, "/description").to_owned();
    if let Some(chat) = error["parameters"]["migrate_to_chat_id"].as_i64() {
        description += &format!("; its chat_id is now {chat}");
    }
    let http_status = error["error_code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let answer =
        ServiceAnswer { http_status: http_status.unwrap_or(answer.http_status), ..*answer };
    let is_of_settings = !names_any(&description, &REFUSALS);
    failure(
        SERVICE.name,
        &answer,
        &description,
        pause(&error["parameters"]["retry_after"]),
        is_of_settings,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::services::test_support::*;

    const TOKEN: &str = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_";

    fn reader() -> Reader {
        let (chat, base) = ("-1001234567890", "http://127.0.0.1:4000");
        let given = [("bot_token", TOKEN), ("chat_id", chat), ("api_url", base)];
        Reader { service: &SERVICE, settings: settings(&given), shown }
    }

    /// The text without its tags. Panics if one is unknown or not closed.
    fn without_tags(html: &str) -> String {
        let (mut text, mut rest, mut open) = (String::new(), html, Vec::new());
        while let Some((before, tag_and_rest)) = rest.split_once('<') {
            text += before;
            let (tag, after) = tag_and_rest.split_once('>').expect("a closed tag");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{html}"),
                None if tag == "b" => open.push("b"),
                None if tag.starts_with("a href=\"") && tag.ends_with('"') => open.push("a"),
                None => panic!("<{tag}> in {html}"),
            }
            rest = after;
        }
        assert!(open.is_empty(), "{html}");
        without_entities(&(text + rest))
    }

    fn shown(request: &ServiceRequest) -> Shown {
        assert_eq!(*request.url.expose(), format!("http://127.0.0.1:4000/bot{TOKEN}/sendMessage"));
        let body = body(request);
        assert_eq!(body["chat_id"], -1_001_234_567_890_i64);
        assert_eq!(body["parse_mode"], "HTML");
        assert_eq!(body["link_preview_options"]["is_disabled"], true);
        let html = text_of(&body["text"]);
        assert!((1..=MAX_MESSAGE).contains(&utf16_len(&without_tags(&html))), "{html}");
        let (head, rest) = html.split_once("\n\n").unwrap_or((&html, ""));
        let title = head.strip_prefix("🔴 <b>").and_then(|head| head.strip_suffix("</b>"));
        let title = without_tags(title.unwrap());
        let (before, last) = rest.rsplit_once("\n\n").unwrap_or(("", rest));
        let url = last.strip_prefix("<a href=\"");
        match url.and_then(|last| last.strip_suffix(&format!("\">{LABEL}</a>"))) {
            Some(url) => {
                Shown { title, text: without_tags(before), link: Some(without_entities(url)) }
            }
            None => Shown::with_link_in_text(&title, &without_tags(rest)),
        }
    }

    #[test]
    fn a_message_is_shown_and_cut_in_utf_16_units_without_entities() {
        reader().assert_has_label("-1001234567890");
        reader().assert_shows_every_message();
        // "🔴 title" and an empty line are 10 units.
        reader().assert_cuts_text("🔥", (MAX_MESSAGE - 10) / 2);
        reader().assert_cuts_text("<", MAX_MESSAGE - 10);
        let public = settings(&[("bot_token", TOKEN), ("chat_id", "@backups")]);
        let request = request(&public, &message("title", "", None));
        assert_eq!(body(&request)["chat_id"], "@backups");
        assert!(request.url.expose().starts_with("https://api.telegram.org/bot"));
    }

    #[test]
    fn settings_are_checked() {
        assert_checked(
            &SERVICE,
            "bot_token",
            &[TOKEN],
            &[
                "123456789:short",
                "x:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
                "1:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsa/../x",
            ],
        );
        let chats = ["42", "-1001234567890", "@backups_1", "@b"];
        assert_checked(&SERVICE, "chat_id", &chats, &["", "+1", "backups", "@back ups"]);
        assert_checked(&SERVICE, "api_url", &["http://127.0.0.1:8081"], &[]);
    }

    #[test]
    fn an_answer_is_read() {
        let sent = format!(r#"{{"ok":true,"result":{{"text":"{}"#, "x".repeat(3_000));
        let upgraded = r#"{"ok":false,"description":"upgraded","parameters":{"migrate_to_chat_id":-1009876543210}}"#;
        // Its beginning alone is kept.
        assert_verdicts(
            &SERVICE,
            &[
                (200, &sent, "accepted"),
                (200, r#"{"ok":false,"error_code":400}"#, "retry: Telegram answered 400"),
                (
                    400,
                    upgraded,
                    "retry: Telegram answered 400 upgraded; its chat_id is now -1009876543210",
                ),
                (
                    429,
                    r#"{"ok":false,"description":"Slower","parameters":{"retry_after":35}}"#,
                    "retry after 35s: Telegram answered 429 Slower",
                ),
            ],
        );
        for (http_status, description, verdict) in [
            (401, "Unauthorized", "retry"),
            (403, "Forbidden: bot was kicked from the group chat", "retry"),
            (400, "Bad Request: chat not found", "retry"),
            (400, "Bad Request: not enough rights to send text messages to the chat", "retry"),
            (400, "Bad Request: TOPIC_CLOSED", "retry"),
            (400, "Bad Request: can't parse entities: Unclosed start tag", "refused"),
            (400, "Bad Request: message is too long", "refused"),
            (400, "Bad Request: message text is empty", "refused"),
        ] {
            let body = json!({"ok": false, "error_code": http_status, "description": description});
            let expected = format!("{verdict}: Telegram answered {http_status} {description}");
            assert_eq!(verdict_on(&SERVICE, http_status, &body.to_string()), expected);
        }
    }
}
