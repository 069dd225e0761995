//! Bad input: each problem is named with its field, all at once, and nothing is changed.

use crate::http::channels::{CHANNELS, START, path, webhook};
use crate::support::*;

const BOT: &str = "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The place of each problem behind `body`, with its text.
fn problems(response: &Response) -> Vec<(String, String)> {
    let body = response.expect(422);
    let place = |problem: &Value| {
        let parts = problem.list("loc").iter().skip(1);
        parts.map(|part| part.to_string().replace('"', "")).collect::<Vec<_>>().join(".")
    };
    let problems = body.list("detail").iter();
    problems.map(|problem| (place(problem), problem.text("msg").to_owned())).collect()
}

#[test]
fn an_address_that_callbacks_may_not_reach_is_refused() {
    let server = Server::start(&["--test-clock", START, "--allow-callbacks-to", "192.0.2.0/24"]);
    let user = server.user();
    let (gotify, telegram) = ("http://10.0.0.1/", "http://169.254.169.254/");
    for (value, body) in [
        ("loopback", json!({"type": "webhook", "url": "http://127.0.0.1:9/"})),
        ("loopback", json!({"type": "ntfy", "url": "http://localhost/topic"})),
        ("private", json!({"type": "gotify", "url": gotify, "token": "AbcdefghijklmnO"})),
        (
            "ADDRESS",
            json!({"type": "telegram", "bot_token": BOT, "chat_id": 5, "api_url": telegram}),
        ),
    ] {
        let found = problems(&user.post(CHANNELS, &body));
        assert_eq!(found.len(), 1, "{body}: {found:?}");
        let remedy = "the operator can allow it: `cued serve --allow-callbacks-to";
        assert_contains(&found[0].1, &[&format!("{remedy} {value}` or CUED_")]);
    }
}

#[test]
fn the_21st_channel_is_refused() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let channels: Vec<Value> = (0..20).map(|_| webhook(&user, &receiver, json!({}))).collect();
    let body = json!({"type": "webhook", "url": receiver.url()});
    let refused = user.post(CHANNELS, &body).expect_error(403, "channel_limit_exceeded");
    assert_contains(&refused.to_string(), &["20 channels"]);
    user.delete(&path(&channels[3])).expect(204);
    user.post(CHANNELS, &body).expect(201);
}

#[test]
fn a_patch_with_bad_values_changes_nothing() {
    let (_server, user) = Server::with_clock_and_user(START);
    let body = json!({"type": "telegram", "bot_token": BOT, "chat_id": -100_123});
    let channel = user.post(CHANNELS, &body).expect(201);
    assert_has(
        &channel,
        json!({"chat_id": "-100123", "bot_token": "…AAAA", "api_url": null, "name": "telegram -100123"}),
    );
    let patch = json!({"type": "slack", "bot_token": null, "chat_id": "here", "quiet": 5, "status": "active"});
    let found = problems(&user.patch(&path(&channel), &patch));
    let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["type", "bot_token", "chat_id", "quiet", "status"], "{found:?}");
    assert_eq!(user.read(&path(&channel)), channel);
}

#[test]
fn no_error_repeats_a_secret() {
    let (_server, user) = Server::with_clock_and_user(START);
    let slack = "https://hooks.slack.com/services/T0/B0/SECRET-x7Qz";
    let of_slack = |url: Value| json!({"type": "slack", "url": url});
    let shown_slack = json!("https://hooks.slack.com/…x7Qz");
    let gotify = |name: &str, value: Value| json!({"type": "gotify", name: value});
    for (body, input) in [
        (gotify("token", json!("SECRET-TOKEN")), gotify("token", json!("…OKEN"))),
        (json!({"token": "SECRET-TOKEN", "user": 5}), json!({"token": "…OKEN", "user": "…"})),
        (json!({"url": slack, "name": "n"}), json!({"url": shown_slack, "name": "n"})),
        (gotify("settings", json!({"token": "SECRET"})), gotify("settings", json!("…"))),
        (json!({"type": "carrier pigeon", "token": "SECRET-TOKEN"}), json!("carrier pigeon")),
        (json!({"type": "discord", "url": slack}), shown_slack.clone()),
        (json!({"type": "ntfy", "url": slack}), shown_slack),
        (of_slack(json!("hooks.slack.com/SECRET")), json!("…CRET")),
        (of_slack(json!("https://me:SECRET@hooks.slack.com/x7Qz")), json!("…x7Qz")),
        (of_slack(json!("https://hooks.slack.com:SECRET/x7Qz")), json!("…x7Qz")),
        (of_slack(json!(["SECRET"])), json!("…")),
        (json!({"type": "telegram", "chat_id": 5, "bot_token": "SECRET"}), json!("…")),
        (json!({"type": "ntfy", "url": "https://ntfy.sh/t", "priority": 6}), json!(6)),
        (json!({"type": "slack", "url": slack, "token": "SECRET"}), json!("token")),
    ] {
        let refused = user.post(CHANNELS, &body).expect(422);
        assert_eq!(refused["detail"][0]["input"], input, "{body}: {refused}");
        assert!(!refused.to_string().replace("…CRET", "").contains("SECRET"), "{body}: {refused}");
    }
    let gotify = json!({"type": "gotify", "url": "https://a.example", "token": "AbcdefghijklmnO"});
    let channel = user.post(CHANNELS, &gotify).expect(201);
    let refused = user.patch(&path(&channel), &json!({"token": "SECRET TOKEN"})).expect(422);
    assert_eq!(refused["detail"][0]["input"], "…OKEN");
}

#[test]
fn a_mail_needs_a_confirmed_address() {
    let (_server, first) = Server::with_clock_and_user(START);
    let user = first.register("bob@example.com");
    let found = problems(&user.post(CHANNELS, &json!({"type": "email", "to": "bob@example.com"})));
    assert_contains(&found[0].1, &["bob@example.com is not confirmed yet"]);
    assert_has(&user.read("/v1/channels/email"), json!({"status": "unconfirmed"}));
    user.post("/v1/channels/email/test", &json!({})).expect_error(409, "invalid_state");
}

#[test]
fn a_new_host_needs_the_secret_again() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (mine, other) = (Receiver::start(), Receiver::start());
    let bot = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_";
    let key = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG";
    let at = |receiver: &Receiver, path: &str| receiver.url_of(path);
    // The fields of a channel of this type, its field with the host, the path there, and its secrets.
    let ntfy = json!({"url": at(&mine, "/a"), "token": "tk_secret0000"});
    let gotify = json!({"url": at(&mine, ""), "token": "AWSF2n2Tb.4h"});
    let telegram = json!({"bot_token": bot, "chat_id": 5, "api_url": at(&mine, "")});
    let public_telegram = json!({"bot_token": bot, "chat_id": 5});
    let pushover = json!({"token": key, "user": key, "api_url": at(&mine, "")});
    for (kind, fields, field, path, secrets) in [
        ("ntfy", ntfy, "url", "/a", vec!["token"]),
        ("gotify", gotify, "url", "", vec!["token"]),
        ("telegram", telegram, "api_url", "", vec!["bot_token"]),
        ("telegram", public_telegram, "api_url", "", vec!["bot_token"]),
        ("pushover", pushover, "api_url", "", vec!["token", "user"]),
    ] {
        let body = with(json!({"type": kind}), fields);
        let channel = user.post(CHANNELS, &body).expect(201);
        let own = super::path(&channel);
        let moved = json!({field: at(&other, path)});
        let with_secrets = |from: &Value| {
            let pairs = secrets.iter().map(|secret| ((*secret).to_owned(), from[*secret].clone()));
            with(moved.clone(), Value::Object(pairs.collect()))
        };
        // A secret as it reads back is the stored one.
        for patch in [&moved, &with_secrets(&channel)] {
            let refused = user.patch(&own, patch).expect_error(422, "validation_error");
            let asked: Vec<&str> =
                refused.list("detail").iter().map(|it| it["loc"][1].as_str().unwrap()).collect();
            assert_eq!(asked, secrets, "{refused}");
        }
        assert_eq!(user.read(&own)[field], channel[field]);
        user.patch(&own, &with_secrets(&body)).expect(200);
        // The same host, with another path, keeps them.
        if path == "/a" {
            user.patch(&own, &json!({"url": at(&other, "/b")})).expect(200);
            let removed = json!({"url": at(&mine, "/a"), "token": null});
            assert_eq!(user.patch(&own, &removed).expect(200)["token"], Value::Null);
        }
    }
    let url = "https://gotify.example.com";
    let https = json!({"type": "gotify", "url": url, "token": "AWSF2n2Tb.4h"});
    let channel = user.post(CHANNELS, &https).expect(201);
    let plain = json!({"url": "http://gotify.example.com:443"});
    user.patch(&super::path(&channel), &plain).expect_error(422, "validation_error");
}
