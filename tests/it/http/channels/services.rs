//! The formats of the services: each kind of message passes the double of its service and shows what it says, and each
//! answer means what the service says of it.

pub mod answers;
pub mod receivers;
pub mod rendering;

use cued::domain::channel::ChannelType::{
    self, Discord, Email, Gotify, Mattermost, Ntfy, Pushover, Slack, Teams, Telegram, Webhook,
};
use cued::domain::channel::Settings;
use cued::domain::channel::message::{Message, Mood};
use cued::domain::channel::services::{
    SERVICES, ServiceAnswer, ServiceRequest, SettingKind, Verdict, service, service_of_host,
};

use crate::http::channels::services::receivers::{Answer, receive, settings};
use crate::http::channels::services::rendering::{Shown, shown, without_blank_lines};
use crate::support::*;

const BASE: &str = "http://127.0.0.1:4000";
const LINK: &str = "https://cued.example.com/#/runs/0190a5c0-0000-7000-8000-000000000001";
const LOCAL_LINK: &str = "http://nas:8080/#/runs/0190a5c0-0000-7000-8000-000000000001";

fn message(title: &str, text: &str, link: Option<&str>) -> Message {
    Message {
        id: "7c1c3f0e-5b1c-4d0a-9a55-0c8f5a1b2c3d".to_owned(),
        event: "execution.failed".to_owned(),
        mood: Mood::Critical,
        title: title.to_owned(),
        text: text.to_owned(),
        link: link.map(str::to_owned),
        cue_id: Some("cue_abcdefghijkl".to_owned()),
        cue_name: Some("backup".to_owned()),
        execution_id: Some("0190a5c0-0000-7000-8000-000000000001".to_owned()),
        at: "2026-01-01T10:00:00Z".to_owned(),
        alert: None,
    }
}

fn settings_of(channel_type: ChannelType) -> Settings {
    let mut found = Settings::default();
    for (name, value) in settings(channel_type, BASE) {
        found.set(name, Some(value));
    }
    found
}

fn with_url(channel_type: ChannelType, path: &str) -> Settings {
    let mut settings = settings_of(channel_type);
    settings.set("url", Some(format!("{BASE}{path}")));
    settings
}

fn request(channel_type: ChannelType, settings: &Settings, message: &Message) -> ServiceRequest {
    service(channel_type).request.unwrap()(settings, message)
}

fn path_of(request: &ServiceRequest) -> &str {
    match request.url.expose().strip_prefix(BASE).unwrap() {
        "" => "/",
        path => path,
    }
}

fn send(
    channel_type: ChannelType,
    settings: &Settings,
    message: &Message,
) -> (ServiceRequest, Answer) {
    let request = request(channel_type, settings, message);
    let (headers, body) = (request.headers.expose(), request.body.expose());
    let answer = receive(channel_type, path_of(&request), headers, body.as_bytes());
    (request, answer)
}

fn read_at(
    channel_type: ChannelType,
    (http_status, headers, body): &Answer,
    now: Timestamp,
) -> Verdict {
    let answer = ServiceAnswer { http_status: *http_status, headers, body: body.as_bytes(), now };
    (service(channel_type).read)(&answer)
}

fn read(channel_type: ChannelType, answer: &Answer) -> Verdict {
    read_at(channel_type, answer, "2026-01-01T10:00:00Z".parse().unwrap())
}

fn posting_types() -> impl Iterator<Item = ChannelType> {
    ChannelType::ALL.into_iter().filter(|channel_type| *channel_type != Email)
}

/// Sends the message and returns what is shown of it.
fn accepted(channel_type: ChannelType, settings: &Settings, message: &Message) -> Shown {
    let (request, answer) = send(channel_type, settings, message);
    assert_eq!(
        read(channel_type, &answer),
        Verdict::Accepted,
        "{channel_type:?}: {answer:?}\n{}",
        request.body.expose()
    );
    shown(channel_type, path_of(&request), request.body.expose())
}

/// Returns whether `part` is `whole`, or a beginning of it that was cut.
fn is_whole_or_cut(part: &str, whole: &str) -> bool {
    part == whole
        || part.strip_suffix('…').is_some_and(|start| !start.is_empty() && whole.starts_with(start))
}

#[test]
fn each_type_has_its_row_in_the_table() {
    for (channel_type, row) in ChannelType::ALL.into_iter().zip(SERVICES) {
        assert_eq!(row.channel_type, channel_type);
        assert_eq!(service(channel_type).channel_type, channel_type);
        assert_eq!(row.request.is_none(), channel_type == Email);
        let given = settings_of(channel_type);
        for setting in row.settings {
            if let Some(value) = given.get(setting.name) {
                assert_eq!(
                    (row.check)(setting.name, value),
                    Ok(()),
                    "{channel_type:?} {}",
                    setting.name
                );
            }
            assert!(
                !setting.is_required || given.get(setting.name).is_some(),
                "{channel_type:?} {}",
                setting.name
            );
        }
    }
    let names = |channel_type: ChannelType| -> Vec<&str> {
        service(channel_type).settings.iter().map(|setting| setting.name).collect()
    };
    assert_eq!(names(Ntfy), ["url", "token", "priority"]);
    assert_eq!(names(Telegram), ["bot_token", "chat_id", "api_url"]);
    assert_eq!(names(Pushover), ["token", "user", "api_url"]);
    assert_eq!(service(Ntfy).settings[2].kind, SettingKind::Number(1..=5));
}

#[test]
fn a_label_names_the_topic_host_or_chat() {
    for (channel_type, label) in [
        (Email, "me@example.com"),
        (Webhook, "127.0.0.1"),
        (Ntfy, "backups"),
        (Slack, "127.0.0.1"),
        (Telegram, "-1001234567890"),
        (Gotify, "127.0.0.1"),
        (Pushover, "127.0.0.1"),
    ] {
        assert_eq!(
            (service(channel_type).label)(&settings_of(channel_type)),
            label,
            "{channel_type:?}"
        );
    }
    assert_eq!((service(Pushover).label)(&Settings::default()), "api.pushover.net");
}

#[test]
fn every_message_passes_its_service_and_shows_what_it_says() {
    let hostile = "<b>&lt; *bold* _it_ ~s~ `code` ||x|| @everyone <!channel> <@U123> [x](http://evil) \"q\" \\ 🔥";
    let control = " a\r\nBcc:\tx\u{1b}[31m\u{7}\u{202e} z\u{2028} ";
    let lines = "# head\n- item\n+ more\n> quote\r\n1. one\t<script>alert(1)</script>\u{7}\n\n`*_~|[]\\<>&\"@here\n  - in";
    let shown_lines = "# head\n- item\n+ more\n> quote\n1. one <script>alert(1)</script>\n`*_~|[]\\<>&\"@here\n  - in";
    let long = |text: &str| text.repeat(20_000 / text.chars().count());
    let no_text = String::new();
    let mut cases = vec![
        ("backup failed 3 times: 503 from nas.lan".to_owned(), no_text.clone()),
        (
            "backup failed".to_owned(),
            "The run of Thu 1 Jan 2026, 10:00 UTC will not be retried.".to_owned(),
        ),
        (hostile.to_owned(), hostile.to_owned()),
        (control.to_owned(), lines.to_owned()),
        (long("t"), no_text.clone()),
        (long("🔥"), "short".to_owned()),
    ];
    for text in [
        "x",
        "é",
        "🔥",
        "<",
        "&",
        "*",
        "\"",
        "\\",
        "@",
        "- ",
        "line\n",
        "\n\nx",
        "<!channel> ",
        "[x](http://e) ",
    ] {
        cases.push(("title".to_owned(), long(text)));
        cases.push((long(text), long(text)));
    }
    for channel_type in posting_types().filter(|channel_type| *channel_type != Webhook) {
        for (title, text) in &cases {
            for link in [None, Some(LINK), Some(LOCAL_LINK)] {
                let found =
                    accepted(channel_type, &settings_of(channel_type), &message(title, text, link));
                let whole = title.replace(control, "a Bcc: x [31m z");
                let whole = whole.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    is_whole_or_cut(&found.title, &whole),
                    "{channel_type:?}: {:?}",
                    found.title
                );
                let whole = without_blank_lines(text.replace(lines, shown_lines).trim());
                assert!(
                    is_whole_or_cut(&found.text, &whole),
                    "{channel_type:?}: {:?} of {text:.80}",
                    found.text
                );
                assert_eq!(found.link.as_deref(), link, "{channel_type:?}");
            }
        }
    }
}

#[test]
fn a_text_is_cut_at_the_limit_in_the_unit_that_the_service_counts() {
    let uncut = |channel_type, title: &str, text: &str| {
        let found = accepted(channel_type, &settings_of(channel_type), &message(title, text, None));
        let is_cut = |part: &str| part.ends_with('…');
        (!is_cut(&found.title), !is_cut(&found.text))
    };
    // Bytes, UTF-16 units and characters: 4, 2 and 1 for each of these.
    let fire = |count: usize| "🔥".repeat(count);
    for (channel_type, most) in [
        (Ntfy, 4096 / 4),
        (Slack, 3000 / 2),
        (Discord, 4096 / 2),
        // "🔴 title" and an empty line are 10 units.
        (Telegram, (4096 - 10) / 2),
        (Pushover, 1024),
    ] {
        assert_eq!(uncut(channel_type, "title", &fire(most)), (true, true), "{channel_type:?}");
        assert_eq!(
            uncut(channel_type, "title", &fire(most + 1)),
            (true, false),
            "{channel_type:?}"
        );
    }
    for (channel_type, most) in [(Discord, 256 / 2), (Pushover, 250)] {
        assert_eq!(uncut(channel_type, &fire(most), "text"), (true, true), "{channel_type:?}");
        assert_eq!(uncut(channel_type, &fire(most + 1), "text"), (false, true), "{channel_type:?}");
    }
    // Escapes count: `<` is `&lt;` for Slack, and `\<` for Discord.
    assert_eq!(uncut(Slack, "title", &"<".repeat(750)), (true, true));
    assert_eq!(uncut(Slack, "title", &"<".repeat(751)), (true, false));
    assert_eq!(uncut(Discord, "title", &"<".repeat(2048)), (true, true));
    assert_eq!(uncut(Discord, "title", &"<".repeat(2049)), (true, false));
    // Entities do not count for Telegram.
    assert_eq!(uncut(Telegram, "title", &"<".repeat(4086)), (true, true));
}

#[test]
fn a_header_of_slack_that_is_cut_is_repeated_in_whole() {
    let title = "x".repeat(200);
    let (request, _) = send(Slack, &settings_of(Slack), &message(&title, "text", None));
    let body: Value = serde_json::from_str(request.body.expose()).unwrap();
    assert_eq!(body["blocks"][0]["text"]["text"], format!("🔴 {}…", "x".repeat(146)));
    assert_eq!(body["blocks"][1]["text"]["text"], format!("🔴 {title}\ntext"));
}

#[test]
fn a_workflow_of_slack_gets_flat_texts() {
    for path in [
        "/triggers/T0123456789/3141592653589/c6e6c0d868b3054ca0f4611a5dbadaf",
        "/workflows/T0/A0/1/x",
    ] {
        let settings = with_url(Slack, path);
        let found = accepted(Slack, &settings, &message("a <!channel>", "b", Some(LINK)));
        assert_eq!(found.title.as_str(), "a <\u{200b}!channel>");
        assert_eq!(found.link.as_deref(), Some(LINK));
    }
}

#[test]
fn the_number_of_a_list_is_no_markup() {
    let text = "5. five\n 12) twelve\n1.5 of 3.\na 5. b\n=====";
    let sent = message("5. five failed", text, None);
    let body = |channel_type| -> Value {
        let request = request(channel_type, &settings_of(channel_type), &sent);
        serde_json::from_str(request.body.expose()).unwrap()
    };
    let escaped = "5\\. five\n 12\\) twelve\n1\\.5 of 3.\na 5. b\n\\=====";
    let embed = body(Discord)["embeds"][0].clone();
    assert_has(&embed, json!({"title": "5\\. five failed", "description": escaped}));
    let attachment = body(Mattermost)["attachments"][0].clone();
    assert_eq!(attachment["text"], format!("**5\\. five failed**\n\n{escaped}"));
}

#[test]
fn moods_and_settings_choose_priority_and_colour() {
    let body = |channel_type, settings: &Settings, mood| -> Value {
        let message = Message { mood, ..message("title", "text", Some(LINK)) };
        serde_json::from_str(request(channel_type, settings, &message).body.expose()).unwrap()
    };
    let mut ntfy = settings_of(Ntfy);
    assert_eq!(body(Ntfy, &ntfy, Mood::Critical)["priority"], 4);
    assert_eq!(body(Ntfy, &ntfy, Mood::Good)["tags"], json!(["white_check_mark"]));
    ntfy.set("priority", Some("5".to_owned()));
    assert_eq!(body(Ntfy, &ntfy, Mood::Good)["priority"], 5);
    let of = |channel_type, mood| body(channel_type, &settings_of(channel_type), mood);
    assert_eq!(of(Gotify, Mood::Critical)["priority"], 8);
    assert_eq!(of(Pushover, Mood::Good)["priority"], -1);
    assert_eq!(of(Pushover, Mood::Info)["url_title"], "Open the run");
    assert_eq!(of(Discord, Mood::Good)["embeds"][0]["color"], 0x1E_8E_3E);
    assert_eq!(of(Mattermost, Mood::Warning)["attachments"][0]["color"], "#F29900");
    let card = of(Teams, Mood::Warning)["attachments"][0]["content"].clone();
    assert_eq!(card["body"][0]["style"], "warning");
    // Without a token there is no header.
    ntfy.set("token", None);
    let headers = request(Ntfy, &ntfy, &message("title", "", None)).headers;
    assert!(headers.expose().iter().all(|(name, _)| name != "Authorization"));
}

#[test]
fn a_webhook_gets_the_fields_of_an_alert() {
    let settings = settings_of(Webhook);
    let body = |message: &Message| -> Value {
        let (request, answer) = send(Webhook, &settings, message);
        assert_eq!(read(Webhook, &answer), Verdict::Accepted, "{answer:?}");
        serde_json::from_str(request.body.expose()).unwrap()
    };
    let failed = message("backup failed", "text", Some(LINK));
    let found = body(&failed);
    assert_eq!(found["message"], "backup failed");
    assert_eq!((&found["alert_type"], &found["severity"]), (&Value::Null, &json!("critical")));
    assert_has(&found, json!({"metadata": {}, "link": LINK, "created_at": failed.at}));
    let alert = json!({
        "id": "of the alert", "alert_type": "claim_lost", "severity": "warning", "cue_id": "cue_1", "execution_id": null,
        "message": "Worker w lost its claim", "metadata": {"attempt": 1}, "created_at": "2026-01-01T09:00:00Z",
    });
    let found = body(&Message { alert: Some(alert.clone()), ..failed.clone() });
    for name in
        ["alert_type", "severity", "cue_id", "execution_id", "message", "metadata", "created_at"]
    {
        assert_eq!(found[name], alert[name], "{name}");
    }
    assert_eq!((&found["id"], &found["title"]), (&json!(failed.id), &json!("backup failed")));
    let headers = request(Webhook, &settings, &Message { alert: Some(alert), ..failed }).headers;
    let headers = headers.expose();
    assert!(
        headers.contains(&("X-CueAPI-Alert-Type".to_owned(), "claim_lost".to_owned())),
        "{headers:?}"
    );
}

#[test]
fn a_url_is_checked_for_its_service() {
    let long_topic = format!("https://ntfy.sh/{}", "x".repeat(64));
    for (channel_type, name, url) in [
        (Slack, "url", "https://hooks.slack.com/services/T0/B0/x"),
        (Slack, "url", "https://hooks.slack.com/triggers/T0/1/x"),
        (Slack, "url", "https://hooks.slack.com/workflows/T0/A0/1/x"),
        (Discord, "url", "https://discord.com/api/webhooks/123/abc-_"),
        (Discord, "url", "https://canary.discord.com/api/v10/webhooks/123/abc?thread_id=1"),
        (Mattermost, "url", "https://chat.example.com/team/hooks/abc123"),
        (Teams, "url", "https://prod-1.westeurope.logic.azure.com:443/workflows/1?sig=x"),
        (Teams, "url", "https://x.environment.api.powerplatform.com/powerautomate/1"),
        (Teams, "url", "https://acme.webhook.office.com/webhookb2/1"),
        (Ntfy, "url", "https://ntfy.sh/backups"),
        (Ntfy, "url", "http://10.0.0.1:2586/back-ups_1"),
        (Ntfy, "url", long_topic.as_str()),
        (Gotify, "url", "https://gotify.example.com"),
        (Gotify, "url", "https://example.com/gotify/"),
        (Telegram, "api_url", "http://127.0.0.1:8081"),
        (Pushover, "api_url", "https://api.pushover.net/"),
        (Teams, "url", "http://127.0.0.1:4000/workflows/1/triggers/manual/paths/invoke?sig=x"),
        (Teams, "url", "https://x.logic.azure.us/workflows/1/triggers/manual/paths/invoke"),
        (
            Teams,
            "url",
            "https://x.api.powerplatform.us/powerautomate/automations/direct/workflows/1/triggers/manual/paths/invoke",
        ),
        (Teams, "url", "https://outlook.office.com/webhook/1@2/IncomingWebhook/3/4"),
        (Teams, "url", "https://acme.webhook.office.us/webhookb2/1@2/IncomingWebhook/3/4"),
        (Webhook, "url", "https://example.com/discord"),
        (Webhook, "url", "https://x.logic.azure.com/workflows/1/triggers/manual/paths/invoke"),
    ] {
        assert_eq!((service(channel_type).check)(name, url), Ok(()), "{url}");
    }
    for (channel_type, url) in [
        (Slack, "https://hooks.slack.com/services/"),
        (Slack, "https://hooks.slack.com/"),
        (Slack, "https://example.com/x/services/T0"),
        (Discord, "https://discord.com/api/webhooks/abc/123"),
        (Discord, "https://discord.com/api/webhooks/123"),
        (Discord, "https://discord.com/api/webhooks/123/abc/slack"),
        (Discord, "https://discord.com/api/vx/webhooks/123/abc"),
        (Discord, "https://discord.com/channels/123/456"),
        (Mattermost, "https://chat.example.com/hooks/"),
        (Mattermost, "https://chat.example.com/hooks/a/b"),
        (Teams, "https://teams.example.com/"),
        (Teams, "https://teams.example.com"),
        (Teams, "https://example.com/hook"),
        (Teams, "https://teams.microsoft.com/l/channel/19%3ax%40thread.tacv2/General"),
        (Teams, "https://outlook.office.com/mail/"),
        (Ntfy, "https://ntfy.sh"),
        (Ntfy, "https://ntfy.sh/"),
        (Ntfy, "https://ntfy.sh/a/b"),
        (Ntfy, "https://ntfy.sh/backups/"),
        (Ntfy, "https://ntfy.sh/backups?auth=x"),
        (Ntfy, "https://ntfy.sh/b%20"),
        (Gotify, "https://gotify.example.com/?token=x"),
    ] {
        let problem = (service(channel_type).check)("url", url).unwrap_err();
        assert!(problem.starts_with("should be "), "{url}: {problem}");
    }
    let problem = (service(Ntfy).check)("url", &format!("{long_topic}x")).unwrap_err();
    assert!(problem.contains("1 to 64 letters"), "{problem}");
}

#[test]
fn a_url_of_another_service_names_its_type() {
    for (channel_type, name, url, other) in [
        (Webhook, "url", "https://discord.com/api/webhooks/1/abc", "Discord; use the type discord"),
        (Webhook, "url", "https://hooks.slack.com/triggers/T0/1/x", "Slack; use the type slack"),
        (Webhook, "url", "https://ntfy.sh/backups", "ntfy; use the type ntfy"),
        (Webhook, "url", "https://a.webhook.office.com/webhookb2/1", "Teams; use the type teams"),
        (Slack, "url", "https://discord.com/api/webhooks/123/abc", "Discord; use the type discord"),
        (
            Mattermost,
            "url",
            "https://hooks.slack.com/services/T0/B0/x",
            "Slack; use the type slack",
        ),
        (
            Teams,
            "url",
            "https://discordapp.com/api/webhooks/123/abc",
            "Discord; use the type discord",
        ),
        (Discord, "url", "https://x.logic.azure.com/workflows/1", "Teams; use the type teams"),
        (Gotify, "url", "https://ntfy.sh/backups", "ntfy; use the type ntfy"),
        (Ntfy, "url", "https://api.telegram.org/bot1:x", "Telegram; use the type telegram"),
        (Telegram, "api_url", "https://api.pushover.net", "Pushover; use the type pushover"),
    ] {
        assert_eq!(
            (service(channel_type).check)(name, url),
            Err(format!("this is a URL of {other}"))
        );
    }
    for (host, expected) in [
        ("hooks.slack.com", Some(Slack)),
        ("ptb.discord.com", Some(Discord)),
        ("ntfy.sh", Some(Ntfy)),
        ("notntfy.sh", None),
        ("ntfy.sh.example.com", None),
        ("127.0.0.1", None),
    ] {
        assert_eq!(service_of_host(host), expected, "{host}");
    }
}

#[test]
fn tokens_and_chats_are_checked() {
    let key = "azGDORePK8gMaC0QOYAMyEEuzJnyUi";
    let long = "x".repeat(101);
    for (channel_type, name, good, bad) in [
        (Telegram, "bot_token", receivers::BOT_TOKEN, "123456789:short"),
        (Telegram, "bot_token", receivers::BOT_TOKEN, "x:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"),
        (Telegram, "bot_token", receivers::BOT_TOKEN, "1:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsa/../x"),
        (Telegram, "chat_id", "42", ""),
        (Telegram, "chat_id", "-1001234567890", "+1"),
        (Telegram, "chat_id", "@backups_1", "backups"),
        (Telegram, "chat_id", "@b", "@back ups"),
        (Pushover, "token", key, "azGDORePK8gMaC0QOYAMyEEuzJnyU"),
        (Pushover, "user", key, "azGDORePK8gMaC0QOYAMyEEuzJnyU-"),
        (Gotify, "token", "A.b-_", "a b"),
        (Gotify, "token", &long[..100], long.as_str()),
        (Ntfy, "token", "tk_x", "tk_\n"),
    ] {
        let check = service(channel_type).check;
        assert_eq!(check(name, good), Ok(()), "{channel_type:?} {good}");
        let problem = check(name, bad).unwrap_err();
        assert!(problem.starts_with("should be "), "{channel_type:?} {bad}: {problem}");
    }
}
