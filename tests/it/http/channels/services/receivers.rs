//! Doubles of the services that channels send to. Each takes a POST as its service does, or refuses it with the status,
//! the fields and the words of the service.

use cued::domain::channel::ChannelType::{
    self, Discord, Email, Gotify, Mattermost, Ntfy, Pushover, Slack, Teams, Telegram, Webhook,
};

use crate::support::*;

pub type Answer = (u16, Vec<(String, String)>, String);

pub const NTFY_TOKEN: &str = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2";
pub const BOT_TOKEN: &str = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_";
pub const GOTIFY_TOKEN: &str = "AWSF2n2Tb.4h_gk";
pub const PUSHOVER_TOKEN: &str = "azGDORePK8gMaC0QOYAMyEEuzJnyUi";
pub const PUSHOVER_USER: &str = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG";

/// The instant in `X-Limit-App-Reset`.
pub const PUSHOVER_RESET: i64 = 1_893_456_000;

/// Settings of a channel that these doubles accept, if they are reached at `base`: `http://127.0.0.1:4000`.
pub fn settings(service: ChannelType, base: &str) -> Vec<(&'static str, String)> {
    let url = |path: &str| ("url", format!("{base}{path}"));
    let text = |name: &'static str, value: &str| (name, value.to_owned());
    match service {
        Email => vec![text("to", "me@example.com")],
        Webhook => vec![url("/hook")],
        Ntfy => vec![url("/backups"), text("token", NTFY_TOKEN)],
        Slack => vec![url("/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX")],
        Discord => {
            vec![url("/api/webhooks/223704706495545344/3d89bb7572e0fb30d8128367b3b1b44f")]
        }
        Mattermost => vec![url("/hooks/abcdefghijklmnopqrstuvwxyz")],
        Teams => {
            vec![url(
                "/workflows/0123456789abcdef/triggers/manual/paths/invoke?api-version=2016-06-01&sig=s3cret",
            )]
        }
        Telegram => {
            vec![
                text("bot_token", BOT_TOKEN),
                text("chat_id", "-1001234567890"),
                text("api_url", base),
            ]
        }
        Gotify => vec![url(""), text("token", GOTIFY_TOKEN)],
        Pushover => {
            vec![text("token", PUSHOVER_TOKEN), text("user", PUSHOVER_USER), text("api_url", base)]
        }
    }
}

/// `path` is the target of the request, with its query.
pub fn receive(
    service: ChannelType,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Answer {
    let header = |name: &str| header(headers, name);
    assert_eq!(header("Content-Type"), Some("application/json"), "{service:?}");
    let text = std::str::from_utf8(body).unwrap();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let result = match service {
        Email => panic!("a mail is not sent to a service"),
        Webhook => webhook(text),
        Ntfy => ntfy(path, header("Authorization"), text),
        Slack => slack(path, text),
        Discord => discord(path, text),
        Mattermost => mattermost(path, text),
        Teams => teams(path, query, text),
        Telegram => telegram(path, text),
        Gotify => gotify(path, header("X-Gotify-Key"), text),
        Pushover => pushover(path, text),
    };
    result.unwrap_or_else(|refusal| refusal)
}

/// The answer to one request too many, with the pause in the field of the service.
pub fn limited(service: ChannelType) -> Answer {
    let after = |seconds: &str, answer: Answer| {
        (answer.0, vec![("Retry-After".to_owned(), seconds.to_owned())], answer.2)
    };
    match service {
        Ntfy => ntfy_error(429, 42901, "limit reached: too many requests, please be nice"),
        Slack => after("30", plain(429, "rate_limited")),
        Discord => {
            let body = json!({"message": "You are being rate limited.", "retry_after": 64.57, "global": false});
            after("65", answer(429, &body))
        }
        Teams => {
            let error = json!({"code": "TooManyRequests", "message": "Rate limit is exceeded. Try again in 12 seconds."});
            after("12", answer(429, &json!({"error": error})))
        }
        Telegram => {
            let parameters = json!({"retry_after": 35});
            telegram_error(429, "Too Many Requests: retry after 35", &parameters)
        }
        Pushover => {
            let (status, _, body) =
                pushover_error(429, "application", "application is over its quota");
            (status, vec![("X-Limit-App-Reset".to_owned(), PUSHOVER_RESET.to_string())], body)
        }
        Email | Webhook | Mattermost | Gotify => after("7", plain(429, "limit exceeded")),
    }
}

pub fn plain(http_status: u16, text: &str) -> Answer {
    (http_status, vec![("Content-Type".to_owned(), "text/plain".to_owned())], text.to_owned())
}

pub fn answer(http_status: u16, body: &Value) -> Answer {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    (http_status, headers, body.to_string())
}

/// Refuses with `answer` what is wrong.
fn refuse<E>(is_wrong: bool, answer: E) -> Result<(), E> {
    if is_wrong { Err(answer) } else { Ok(()) }
}

pub fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}

fn webhook(body: &str) -> Result<Answer, Answer> {
    let body: Value = serde_json::from_str(body).map_err(|_| plain(400, "not JSON"))?;
    let fields = "id event alert_type severity title message text cue_id cue_name execution_id link metadata created_at";
    let missing = fields.split(' ').find(|name| body.get(name).is_none());
    missing.map_or_else(|| Ok(plain(200, "ok")), |name| Err(plain(422, name)))
}

fn ntfy_error(http_status: u16, code: u32, error: &str) -> Answer {
    let link = "https://ntfy.sh/docs/publish/#limitations";
    answer(http_status, &json!({"code": code, "http": http_status, "error": error, "link": link}))
}

fn ntfy(path: &str, authorization: Option<&str>, body: &str) -> Result<Answer, Answer> {
    refuse(path != "/", ntfy_error(404, 40401, "page not found"))?;
    refuse(
        authorization.is_some_and(|value| value != format!("Bearer {NTFY_TOKEN}")),
        ntfy_error(401, 40101, "unauthorized"),
    )?;
    refuse(body.len() > 2 * 4096, ntfy_error(413, 41303, "JSON body too large"))?;
    let invalid = |code, what: &str| ntfy_error(400, code, &format!("invalid request: {what}"));
    let body: Value = serde_json::from_str(body)
        .map_err(|_| invalid(40024, "request body must be valid JSON"))?;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let is_topic = |char: char| char.is_ascii_alphanumeric() || "-_".contains(char);
    refuse(
        !(1..=64).contains(&text("topic").len()) || !text("topic").chars().all(is_topic),
        invalid(40009, "topic invalid"),
    )?;
    refuse(text("topic") == "readonly", ntfy_error(403, 40301, "forbidden"))?;
    refuse(
        text("message").is_empty(),
        invalid(0, "a message of ours is never the default `triggered`"),
    )?;
    refuse(
        text("message").len() > 4096,
        ntfy_error(413, 41301, "attachment too large, or bandwidth limit reached"),
    )?;
    refuse(
        !(1..=5).contains(&body["priority"].as_i64().unwrap_or(3)),
        invalid(40007, "invalid priority parameter"),
    )?;
    let tags = body["tags"].as_array().map(|tags| tags.iter().all(Value::is_string));
    refuse(
        tags == Some(false) || (body.get("click").is_some() && !text("click").starts_with("http")),
        invalid(40024, "request body must be valid JSON"),
    )?;
    let actions = body["actions"].as_array().cloned().unwrap_or_default();
    let is_action = |action: &Value| {
        let filled = |name: &str| action[name].as_str().is_some_and(|text| !text.is_empty());
        action["action"] == "view" && filled("label") && filled("url")
    };
    refuse(actions.len() > 3 || !actions.iter().all(is_action), invalid(40018, "actions invalid"))?;
    Ok(answer(200, &json!({"id": "bUhbhgmmbeW0", "event": "message", "topic": text("topic")})))
}

fn slack(path: &str, body: &str) -> Result<Answer, Answer> {
    let known = ["/services/", "/workflows/", "/triggers/"];
    refuse(
        path.contains("revoked") || !known.iter().any(|start| path.starts_with(start)),
        plain(404, "no_service"),
    )?;
    refuse(path.contains("archived"), plain(410, "channel_is_archived"))?;
    refuse(path.contains("prohibited"), plain(403, "action_prohibited"))?;
    let body: Value = serde_json::from_str(body).map_err(|_| plain(400, "invalid_payload"))?;
    if !path.starts_with("/services/") {
        let is_flat = body.as_object().is_some_and(|body| body.values().all(Value::is_string));
        let error = json!({"ok": false, "error": "invalid_payload"});
        return if is_flat {
            Ok(answer(200, &json!({"ok": true})))
        } else {
            Err(answer(400, &error))
        };
    }
    let text = body["text"].as_str().unwrap_or_default();
    refuse(text.is_empty() || utf16_len(text) > 40_000, plain(400, "no_text"))?;
    let blocks = body["blocks"].as_array().cloned().unwrap_or_default();
    refuse(blocks.len() > 50 || !blocks.iter().all(is_block), plain(400, "invalid_blocks"))?;
    Ok(plain(200, "ok"))
}

fn is_block(block: &Value) -> bool {
    let text = &block["text"];
    let (max, types): (usize, &[&str]) = match block["type"].as_str() {
        Some("header") => (150, &["plain_text"]),
        Some("section") => (3000, &["plain_text", "mrkdwn"]),
        _ => return false,
    };
    let text_type = text["type"].as_str().unwrap_or_default();
    // Each type has a field of its own.
    let other = if text_type == "mrkdwn" { "emoji" } else { "verbatim" };
    let length = text["text"].as_str().map_or(0, utf16_len);
    types.contains(&text_type) && text.get(other).is_none() && (1..=max).contains(&length)
}

fn discord_error(field: &str, problem: &str) -> Answer {
    let mut errors = json!({"_errors": [{"code": "BASE_TYPE_BAD_LENGTH", "message": problem}]});
    for name in field.rsplit('.') {
        errors = json!({name: errors});
    }
    answer(400, &json!({"message": "Invalid Form Body", "code": 50035, "errors": errors}))
}

fn discord(path: &str, body: &str) -> Result<Answer, Answer> {
    let unknown = || answer(404, &json!({"message": "Unknown Webhook", "code": 10015}));
    let (_, id_and_token) = path.split_once("/webhooks/").ok_or_else(unknown)?;
    let (id, token) = id_and_token.split_once('/').ok_or_else(unknown)?;
    refuse(id.parse::<u64>().is_err() || token == "unknown", unknown())?;
    refuse(
        token == "revoked",
        answer(401, &json!({"message": "Invalid Webhook Token", "code": 50027})),
    )?;
    let invalid = json!({"message": "The request body contains invalid JSON.", "code": 50109});
    let body: Value = serde_json::from_str(body).map_err(|_| answer(400, &invalid))?;
    refuse(
        body["allowed_mentions"]["parse"].as_array().is_none_or(|parse| !parse.is_empty()),
        discord_error("allowed_mentions.parse", "A message of ours mentions nobody."),
    )?;
    let embeds = body["embeds"].as_array().cloned().unwrap_or_default();
    refuse(
        embeds.is_empty() || embeds.len() > 10,
        answer(400, &json!({"message": "Cannot send an empty message", "code": 50006})),
    )?;
    for (index, embed) in embeds.iter().enumerate() {
        check_embed(embed).map_err(|(field, problem)| {
            // As its version 6, the default, does.
            if field == "url" {
                answer(400, &json!({"embeds": [index.to_string()]}))
            } else {
                discord_error(&format!("embeds.{index}.{field}"), problem)
            }
        })?;
    }
    Ok((204, Vec::new(), String::new()))
}

fn check_embed(embed: &Value) -> Result<(), (&'static str, &'static str)> {
    let length = |name: &str| embed[name].as_str().map_or(0, |text| utf16_len(text.trim()));
    refuse(length("title") > 256, ("title", "Must be 256 or fewer in length."))?;
    refuse(length("description") > 4096, ("description", "Must be 4096 or fewer in length."))?;
    refuse(
        length("title") + length("description") > 6000 || length("title") == 0,
        ("title", "Embed size exceeds maximum size of 6000"),
    )?;
    refuse(
        embed
            .get("color")
            .is_some_and(|color| color.as_u64().is_none_or(|color| color > 0xFF_FF_FF)),
        ("color", "int value should be less than or equal to 16777215."),
    )?;
    let timestamp = embed["timestamp"].as_str().unwrap_or("2026-01-01T00:00:00Z");
    refuse(
        timestamp.parse::<jiff::Timestamp>().is_err(),
        ("timestamp", "Could not parse. Should be ISO8601."),
    )?;
    match embed.get("url").map(|url| url.as_str().unwrap_or_default()) {
        Some(url)
            if !url.starts_with("http")
                || !cued::domain::webhook::callback::host_of(url).contains('.') =>
        {
            Err(("url", "Not a well formed URL."))
        }
        _ => Ok(()),
    }
}

fn mattermost(path: &str, body: &str) -> Result<Answer, Answer> {
    let error = |id: &str, message: &str| {
        let id = format!("web.incoming_webhook.{id}.app_error");
        answer(
            400,
            &json!({"id": id, "message": message, "detailed_error": "", "status_code": 400}),
        )
    };
    let id = path.strip_prefix("/hooks/").unwrap_or_default();
    refuse(id.len() != 26, error("invalid", "Invalid webhook."))?;
    let body: Value =
        serde_json::from_str(body).map_err(|_| error("parse", "Unable to parse incoming data."))?;
    let attachments = body["attachments"].as_array().cloned().unwrap_or_default();
    refuse(
        body["text"].as_str().unwrap_or_default().is_empty() && attachments.is_empty(),
        error("text", "No text specified."),
    )?;
    for attachment in &attachments {
        let text = |name: &str| attachment[name].as_str().unwrap_or_default();
        let is_colour = text("color").len() == 7 && text("color").starts_with('#');
        assert!(
            is_colour && !text("fallback").is_empty() && !text("text").is_empty(),
            "{attachment}"
        );
        assert!(text("text").chars().count() < 40_000);
    }
    Ok(plain(200, "ok"))
}

fn teams(path: &str, query: &str, body: &str) -> Result<Answer, Answer> {
    let error = |http_status, code: &str, message: &str| {
        answer(http_status, &json!({"error": {"code": code, "message": message}}))
    };
    // An incoming webhook of a connector answers 200 in any case.
    let is_connector = path.starts_with("/webhookb2/");
    let delivery_failed = |http_status: u16| {
        let text = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error";
        let context = "ContextId tcid=385194272617051900,server=BL2PEPF000001C8,cv=wUmM9kBhpkiOZnT3ZEwhdg.0..";
        plain(200, &format!("{text} {http_status} with {context}"))
    };
    refuse(
        !is_connector && !query.split('&').any(|parameter| parameter == "sig=s3cret"),
        error(401, "AuthorizationFailed", "The authentication credentials are not valid."),
    )?;
    refuse(
        path.contains("deleted"),
        error(404, "WorkflowNotFound", "The workflow could not be found."),
    )?;
    if body.len() > 28 * 1024 {
        let too_large = error(413, "RequestEntityTooLarge", "The request is too large.");
        return Err(if is_connector { delivery_failed(413) } else { too_large });
    }
    let invalid = || {
        if is_connector {
            delivery_failed(400)
        } else {
            error(400, "InvalidRequest", "Invalid card.")
        }
    };
    let body: Value = serde_json::from_str(body).map_err(|_| invalid())?;
    let attachments = body["attachments"].as_array().cloned().unwrap_or_default();
    refuse(
        body["type"] != "message" || attachments.is_empty() || !attachments.iter().all(is_card),
        invalid(),
    )?;
    Ok(if is_connector { plain(200, "1") } else { (202, Vec::new(), String::new()) })
}

fn is_card(attachment: &Value) -> bool {
    let card = &attachment["content"];
    let is_run = |run: &Value| {
        run["type"] == "TextRun"
            && run["text"].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n'))
    };
    let is_paragraph = |block: &Value| {
        block["type"] == "RichTextBlock"
            && block["inlines"]
                .as_array()
                .is_some_and(|runs| !runs.is_empty() && runs.iter().all(is_run))
    };
    let styles = ["default", "emphasis", "good", "attention", "warning", "accent"];
    let is_container = |block: &Value| {
        block["type"] == "Container"
            && styles.contains(&block["style"].as_str().unwrap_or("default"))
            && block["items"].as_array().is_some_and(|items| items.iter().all(is_paragraph))
    };
    let is_action = |action: &Value| {
        action["type"] == "Action.OpenUrl"
            && action["title"].as_str().is_some_and(|title| title.is_ascii() && !title.is_empty())
            && action["url"].as_str().is_some_and(|url| url.starts_with("http"))
    };
    let blocks = card["body"].as_array().cloned().unwrap_or_default();
    let actions = card["actions"].as_array().cloned().unwrap_or_default();
    attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        && card["type"] == "AdaptiveCard"
        && card["version"] == "1.4"
        && !blocks.is_empty()
        && blocks.iter().all(|block| is_paragraph(block) || is_container(block))
        && actions.len() <= 6
        && actions.iter().all(is_action)
}

fn telegram_error(code: u16, description: &str, parameters: &Value) -> Answer {
    let body = json!({"ok": false, "error_code": code, "description": description, "parameters": parameters});
    answer(code, &body)
}

fn telegram(path: &str, body: &str) -> Result<Answer, Answer> {
    let error = |code, description: &str| telegram_error(code, description, &json!({}));
    let token = path.strip_prefix("/bot").and_then(|path| path.strip_suffix("/sendMessage"));
    let token = token.ok_or_else(|| error(404, "Not Found"))?;
    refuse(token != BOT_TOKEN, error(401, "Unauthorized"))?;
    let bad = |what: &str| error(400, &format!("Bad Request: {what}"));
    let body: Value = serde_json::from_str(body).map_err(|_| bad("can't parse JSON object"))?;
    match (body["chat_id"].as_i64(), body["chat_id"].as_str()) {
        (Some(-1), _) => {
            let parameters = json!({"migrate_to_chat_id": -1_009_876_543_210_i64});
            let description = "Bad Request: group chat was upgraded to a supergroup chat";
            return Err(telegram_error(400, description, &parameters));
        }
        (Some(-2), _) => return Err(error(403, "Forbidden: bot was kicked from the group chat")),
        (Some(_), _) | (_, Some("@backups")) => {}
        _ => return Err(bad("chat not found")),
    }
    refuse(
        body["parse_mode"] != "HTML" || body["link_preview_options"]["is_disabled"] != true,
        bad("unsupported parse_mode"),
    )?;
    let text = telegram_text(body["text"].as_str().unwrap_or_default());
    let text = text.map_err(|problem| bad(&format!("can't parse entities: {problem}")))?;
    refuse(text.trim().is_empty(), bad("message text is empty"))?;
    refuse(utf16_len(&text) > 4096, bad("message is too long"))?;
    Ok(answer(200, &json!({"ok": true, "result": {"message_id": 1, "text": text}})))
}

/// The text without its tags, of which `b` and `a` are known here.
pub fn telegram_text(html: &str) -> Result<String, String> {
    let (mut text, mut rest, mut open) = (String::new(), html, Vec::new());
    while let Some(char) = rest.chars().next() {
        let entity = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&')]
            .iter()
            .find(|(name, _)| rest.starts_with(name));
        if let Some((name, shown)) = entity {
            text.push(*shown);
            rest = &rest[name.len()..];
        } else if char == '<' {
            let (tag, after) = rest[1..].split_once('>').ok_or("Unclosed start tag")?;
            match tag.strip_prefix('/') {
                Some(name) if open.pop() == Some(name) => {}
                Some(name) => return Err(format!("Unexpected end tag \"{name}\"")),
                None if tag == "b" => open.push("b"),
                None if tag.starts_with("a href=\"") && tag.ends_with('"') => open.push("a"),
                None => return Err(format!("Unsupported start tag \"{tag}\"")),
            }
            rest = after;
        } else {
            text.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    if open.is_empty() { Ok(text) } else { Err("Can't find end tag".to_owned()) }
}

fn gotify(path: &str, key: Option<&str>, body: &str) -> Result<Answer, Answer> {
    let error = |code: u16, word: &str, description: &str| {
        answer(code, &json!({"error": word, "errorCode": code, "errorDescription": description}))
    };
    refuse(!path.ends_with("/message"), error(404, "Not Found", "page not found"))?;
    if key != Some(GOTIFY_TOKEN) {
        let description =
            "you need to provide a valid access token or user credentials to access this api";
        return Err(error(401, "Unauthorized", description));
    }
    let bad = |description: &str| error(400, "Bad Request", description);
    let body: Value = serde_json::from_str(body).map_err(|_| bad("invalid character"))?;
    refuse(
        body["message"].as_str().unwrap_or_default().is_empty(),
        bad("Field 'message' is required"),
    )?;
    let extras = body["extras"].as_object().cloned().unwrap_or_default();
    let is_known =
        |name: &String| ["client::display", "client::notification"].contains(&name.as_str());
    let priority = body["priority"].as_i64().unwrap_or(-1);
    refuse(
        !(0..=10).contains(&priority) || !extras.keys().all(is_known),
        bad("Field 'extras' is not valid"),
    )?;
    Ok(answer(
        200,
        &json!({"id": 25, "appid": 5, "message": body["message"], "priority": priority}),
    ))
}

fn pushover_error(http_status: u16, field: &str, error: &str) -> Answer {
    let request = "5042853c-402d-4a18-abcb-168734a801de";
    answer(
        http_status,
        &json!({field: "invalid", "errors": [error], "status": 0, "request": request}),
    )
}

fn pushover(path: &str, body: &str) -> Result<Answer, Answer> {
    let invalid = |field: &str, error: &str| pushover_error(400, field, error);
    refuse(path != "/1/messages.json", pushover_error(404, "path", "path is invalid"))?;
    let body: Value = serde_json::from_str(body).map_err(|_| invalid("body", "body is invalid"))?;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    refuse(text("token") != PUSHOVER_TOKEN, invalid("token", "application token is invalid"))?;
    refuse(text("user") != PUSHOVER_USER, invalid("user", "user identifier is invalid"))?;
    refuse(text("message").is_empty(), invalid("message", "message cannot be blank"))?;
    for (field, max) in [("message", 1024), ("title", 250), ("url", 512), ("url_title", 100)] {
        refuse(text(field).chars().count() > max, invalid(field, &format!("{field} is too long")))?;
    }
    refuse(
        !(-2..=1).contains(&body["priority"].as_i64().unwrap_or_default()),
        invalid("priority", "retry and expire are required for priority 2"),
    )?;
    refuse(body["timestamp"].as_i64().is_none(), invalid("timestamp", "timestamp is invalid"))?;
    Ok(answer(200, &json!({"status": 1, "request": "647d2300-702c-4b38-8b2f-d56326ae460b"})))
}
