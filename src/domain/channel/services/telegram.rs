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
            Err("should be the token that @BotFather gives for a bot, as in 123456789:AAH…".to_owned())
        }
        "chat_id" if !is_chat(value) => {
            Err("should be the number of a chat, as in -1001234567890, or the name of a public one, as in @backups"
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
