//! What each answer of a service means for the message, and its reason.

use cued::domain::channel::ChannelType::{
    Discord, Gotify, Mattermost, Ntfy, Pushover, Slack, Teams, Telegram, Webhook,
};
use cued::domain::channel::Settings;
use cued::domain::channel::services::Verdict;

use crate::http::channels::services::receivers::{PUSHOVER_RESET, answer, limited, plain};
use crate::http::channels::services::{
    message, posting_types, read, read_at, send, settings_of, with_url,
};
use crate::support::*;

fn retry(reason: &str) -> Verdict {
    Verdict::Retry { after: None, reason: reason.to_owned() }
}

fn refused(reason: &str) -> Verdict {
    Verdict::Refused { reason: reason.to_owned() }
}

#[test]
fn an_error_of_a_service_is_read_with_its_words() {
    let judged = |channel_type, settings: &Settings| {
        read(channel_type, &send(channel_type, settings, &message("title", "text", None)).1)
    };
    let changed = |channel_type, name: &str, value: &str| {
        let mut settings = settings_of(channel_type);
        settings.set(name, Some(value.to_owned()));
        judged(channel_type, &settings)
    };
    let at = |channel_type, path: &str| judged(channel_type, &with_url(channel_type, path));
    for (found, expected) in [
        (at(Slack, "/services/T0/B0/revoked"), retry("Slack answered 404 no_service")),
        (at(Slack, "/services/T0/B0/archived"), retry("Slack answered 410 channel_is_archived")),
        (at(Slack, "/services/T0/B0/prohibited"), retry("Slack answered 403 action_prohibited")),
        (at(Discord, "/api/webhooks/1/unknown"), retry("Discord answered 404 Unknown Webhook")),
        (
            at(Discord, "/api/v10/webhooks/1/revoked"),
            retry("Discord answered 401 Invalid Webhook Token"),
        ),
        (at(Mattermost, "/hooks/short"), retry("Mattermost answered 400 Invalid webhook.")),
        (
            at(Teams, "/workflows/1?sig=wrong"),
            retry(
                "Teams answered 401 AuthorizationFailed: The authentication credentials are not valid.",
            ),
        ),
        (
            at(Teams, "/workflows/deleted?sig=s3cret"),
            retry("Teams answered 404 WorkflowNotFound: The workflow could not be found."),
        ),
        (at(Teams, "/webhookb2/1"), Verdict::Accepted),
        (at(Ntfy, "/readonly"), retry("ntfy answered 403 forbidden")),
        (changed(Ntfy, "token", "tk_wrong"), retry("ntfy answered 401 unauthorized")),
        (
            changed(Gotify, "token", "wrong"),
            retry(
                "Gotify answered 401 Unauthorized: you need to provide a valid access token or user credentials to \
                 access this api",
            ),
        ),
        (changed(Telegram, "bot_token", "1:x"), retry("Telegram answered 401 Unauthorized")),
        (
            changed(Telegram, "chat_id", "@nobody"),
            retry("Telegram answered 400 Bad Request: chat not found"),
        ),
        (
            changed(Telegram, "chat_id", "-1"),
            retry(
                "Telegram answered 400 Bad Request: group chat was upgraded to a supergroup chat; its chat_id is now \
                 -1009876543210",
            ),
        ),
        (
            changed(Telegram, "chat_id", "-2"),
            retry("Telegram answered 403 Forbidden: bot was kicked from the group chat"),
        ),
        (changed(Telegram, "chat_id", "@backups"), Verdict::Accepted),
        (
            changed(Pushover, "token", "x"),
            retry("Pushover answered 400 application token is invalid"),
        ),
        (changed(Pushover, "user", "x"), retry("Pushover answered 400 user identifier is invalid")),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_message_that_a_service_does_not_take_is_refused() {
    let too_large = json!({"code": 41303, "http": 413, "error": "JSON body too large"});
    let embeds = json!({"embeds": {"0": {"title": {"_errors": [{"code": "X", "message": "Must be 256 or fewer."}]}}}});
    let form = json!({"message": "Invalid Form Body", "code": 50035, "errors": embeds});
    let connector = |status: &str| {
        let text = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error";
        plain(
            200,
            &format!(
                "{text} {status} with ContextId tcid=622824298674363899,server=DB5PEPF00003FC8."
            ),
        )
    };
    for (channel_type, answer, expected) in [
        (Slack, plain(400, "invalid_payload"), refused("Slack answered 400 invalid_payload")),
        (Slack, answer(200, &json!({"ok": false, "error": "x"})), retry("Slack answered 200 x")),
        (Ntfy, answer(413, &too_large), refused("ntfy answered 413 JSON body too large")),
        (
            Discord,
            answer(400, &form),
            refused(
                "Discord answered 400 Invalid Form Body: embeds.0.title: Must be 256 or fewer.",
            ),
        ),
        (
            Discord,
            answer(400, &json!({"embeds": ["0"]})),
            refused("Discord answered 400 {\"embeds\":[\"0\"]}"),
        ),
        (Teams, connector("413"), refused("Teams answered 413 in the text of a 200")),
        (Teams, connector("429"), retry("Teams answered 429 in the text of a 200")),
        (
            Telegram,
            answer(200, &json!({"ok": false, "error_code": 400})),
            retry("Telegram answered 400"),
        ),
        (
            Pushover,
            answer(200, &json!({"status": 0, "errors": ["user is inactive", "and more"]})),
            retry("Pushover answered 200 user is inactive; and more"),
        ),
        (
            Pushover,
            answer(200, &json!({"status": 0, "errors": ["message cannot be blank"]})),
            refused("Pushover answered 200 message cannot be blank"),
        ),
        (Webhook, plain(422, "no"), refused("the receiver answered 422")),
        (Webhook, plain(302, ""), retry("the receiver answered 302")),
    ] {
        assert_eq!(read(channel_type, &answer), expected);
    }
    for channel_type in posting_types() {
        for http_status in [401, 403, 404, 408, 410, 425, 429, 500, 502, 503, 504, 301] {
            let found = read(channel_type, &plain(http_status, ""));
            assert!(
                matches!(found, Verdict::Retry { after: None, .. }),
                "{channel_type:?} {http_status}: {found:?}"
            );
        }
        for http_status in [413, 422] {
            let found = read(channel_type, &plain(http_status, ""));
            assert!(
                matches!(found, Verdict::Refused { .. }),
                "{channel_type:?} {http_status}: {found:?}"
            );
        }
        let is_retried = matches!(read(channel_type, &plain(400, "")), Verdict::Retry { .. });
        assert_eq!(
            is_retried,
            [Mattermost, Telegram, Pushover].contains(&channel_type),
            "{channel_type:?}"
        );
    }
}

#[test]
fn a_400_is_repeated_if_it_is_about_the_settings_of_the_channel() {
    let telegram =
        |description: &str| json!({"ok": false, "error_code": 400, "description": description});
    let mattermost = |id: &str| json!({"id": id, "message": "Ungültig.", "status_code": 400});
    let pushover = |errors: &[&str]| json!({"status": 0, "errors": errors});
    for (channel_type, body) in [
        (Telegram, telegram("Bad Request: not enough rights to send text messages to the chat")),
        (Telegram, telegram("Bad Request: TOPIC_CLOSED")),
        (Mattermost, mattermost("web.incoming_webhook.channel.app_error")),
        (Pushover, pushover(&["application token is invalid, see https://pushover.net/api"])),
        (Pushover, pushover(&["message cannot be blank", "user key is invalid"])),
        (Ntfy, json!({"code": 40009, "http": 400, "error": "invalid request: topic invalid"})),
        (Slack, json!({"ok": false, "error": "channel_not_found"})),
        (
            Discord,
            json!({"message": "Webhooks posted to forum channels must have a thread_id", "code": 220_001}),
        ),
        (Gotify, json!({"error": "Bad Request", "errorDescription": "the token is not valid"})),
        (Teams, json!({"error": {"code": "WorkflowTriggerIsNotEnabled", "message": "x"}})),
    ] {
        let found = read(channel_type, &answer(400, &body));
        assert!(matches!(found, Verdict::Retry { .. }), "{body}: {found:?}");
    }
    for word in ["invalid_token", "user_not_found", "no_service", "no_active_hooks"] {
        assert_eq!(read(Slack, &plain(400, word)), retry(&format!("Slack answered 400 {word}")));
    }
    for (channel_type, body) in [
        (
            Telegram,
            telegram("Bad Request: can't parse entities: Unclosed start tag at byte offset 4"),
        ),
        (Telegram, telegram("Bad Request: message is too long")),
        (Telegram, telegram("Bad Request: message text is empty")),
        (Mattermost, mattermost("web.incoming_webhook.parse.app_error")),
        (Mattermost, json!({"message": "Unable to parse incoming data."})),
        (Pushover, pushover(&["message cannot be blank", "title is too long"])),
        (Ntfy, json!({"code": 40018, "http": 400, "error": "invalid request: actions invalid"})),
        (Slack, json!({"ok": false, "error": "invalid_payload"})),
        (Teams, json!({"error": {"code": "InvalidRequest", "message": "Invalid card."}})),
    ] {
        let found = read(channel_type, &answer(400, &body));
        assert!(matches!(found, Verdict::Refused { .. }), "{body}: {found:?}");
    }
}

#[test]
fn a_limit_of_the_rate_is_read_from_the_field_of_the_service() {
    let now = Timestamp::from_second(PUSHOVER_RESET - 90).unwrap();
    for (channel_type, millis, reason) in [
        (Ntfy, None, "ntfy answered 429 limit reached: too many requests, please be nice"),
        (Slack, Some(30_000), "Slack answered 429 rate_limited"),
        (Discord, Some(64_570), "Discord answered 429 You are being rate limited."),
        (Mattermost, Some(7_000), "Mattermost answered 429"),
        (
            Teams,
            Some(12_000),
            "Teams answered 429 TooManyRequests: Rate limit is exceeded. Try again in 12 seconds.",
        ),
        (Telegram, Some(35_000), "Telegram answered 429 Too Many Requests: retry after 35"),
        (Gotify, Some(7_000), "Gotify answered 429"),
        (Pushover, Some(90_000), "Pushover answered 429 application is over its quota"),
        (Webhook, Some(7_000), "the receiver answered 429"),
    ] {
        let after = millis.map(SignedDuration::from_millis);
        let expected = Verdict::Retry { after, reason: reason.to_owned() };
        assert_eq!(read_at(channel_type, &limited(channel_type), now), expected);
    }
    // A pause is a day at most, and none without sense counts.
    let wait = |seconds: Value| {
        let found = read(Discord, &answer(429, &json!({"message": "x", "retry_after": seconds})));
        let Verdict::Retry { after, .. } = found else { panic!("{found:?}") };
        after.map(|pause| pause.as_secs())
    };
    assert_eq!(
        [wait(json!(1e9)), wait(json!(-1)), wait(json!("1"))],
        [Some(86_400), Some(0), None]
    );
}

#[test]
fn a_reason_is_one_line_without_a_secret() {
    let echo = "no\r\nway https://hooks.slack.com/services/T0/B0/x /services/T0/B0/x token=azGDORePK8gMaC0QOYAMyEEuzJnyUi";
    assert_eq!(read(Slack, &plain(403, echo)), retry("Slack answered 403 no way … … …"),);
    let page = plain(502, "<html><body>Bad Gateway</body></html>");
    for channel_type in posting_types() {
        let Verdict::Retry { reason, .. } = read(channel_type, &page) else {
            panic!("{channel_type:?}")
        };
        assert!(reason.ends_with(" answered 502"), "{reason}");
    }
    let long = read(Slack, &plain(500, &"word ".repeat(1_000)));
    let Verdict::Retry { reason, .. } = long else { panic!("{long:?}") };
    assert!(reason.len() < 300 && reason.ends_with('…'), "{reason}");
}

#[test]
fn delivered_is_what_the_service_confirms() {
    let html = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>ok</body></html>";
    for channel_type in posting_types() {
        for (http_status, body) in [
            (200, html),
            (201, html),
            (202, html),
            (200, ""),
            (200, "{}"),
            (200, r#"{"error":"x"}"#),
            (200, "OK!"),
        ] {
            let found = read(channel_type, &plain(http_status, body));
            if channel_type == Webhook {
                assert_eq!(found, Verdict::Accepted);
                continue;
            }
            let Verdict::Retry { reason, .. } = found else {
                panic!("{channel_type:?} {body}: {found:?}")
            };
            assert!(
                reason.contains(&format!(" answered {http_status}")) || body.contains("error"),
                "{channel_type:?}: {reason}"
            );
        }
        let Verdict::Retry { reason, .. } = read(channel_type, &plain(200, html)) else { continue };
        assert!(reason.contains("login page"), "{reason}");
    }
    let long = "x".repeat(3_000);
    for (channel_type, http_status, body) in [
        (Slack, 200, "ok".to_owned()),
        (Slack, 200, r#"{"ok":true}"#.to_owned()),
        (Mattermost, 200, "ok\n".to_owned()),
        (Discord, 204, String::new()),
        (Discord, 200, format!(r#"{{"type":0,"content":"","id":"1","embeds":"{long}"#)),
        (Teams, 202, String::new()),
        (Teams, 200, "1".to_owned()),
        // Their beginning alone is kept.
        (Telegram, 200, format!(r#"{{"ok":true,"result":{{"text":"{long}"#)),
        (Gotify, 200, format!(r#"{{"id": 25, "appid": 5, "message": "{long}"#)),
        (
            Ntfy,
            200,
            format!(r#"{{"id":"x","time":1,"event":"message","topic":"t","message":"{long}"#),
        ),
        (Pushover, 200, r#"{"status":1,"request":"x"}"#.to_owned()),
    ] {
        assert_eq!(
            read(channel_type, &plain(http_status, &body)),
            Verdict::Accepted,
            "{channel_type:?} {body}"
        );
    }
}
