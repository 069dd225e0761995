//! Bad input: each problem is named with its field, all at once, and nothing is changed.

use crate::http::channels::{CHANNELS, START, path, webhook};
use crate::support::*;

/// The last segment of the place of each problem, with its text.
fn problems(response: &Response) -> Vec<(String, String)> {
    let body = response.expect(422);
    let problems = body["detail"].as_array().unwrap().iter();
    let place = |problem: &Value| {
        problem["loc"]
            .as_array()
            .unwrap()
            .iter()
            .skip(1)
            .map(|part| part.to_string().replace('"', ""))
            .collect::<Vec<_>>()
            .join(".")
    };
    problems.map(|problem| (place(problem), problem["msg"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn an_address_that_callbacks_may_not_reach_is_refused() {
    let server = Server::start(&["--test-clock", START, "--allow-callbacks-to", "192.0.2.0/24"]);
    let user = server.user();
    for (body, value) in [
        (json!({"type": "webhook", "url": "http://127.0.0.1:9/"}), "loopback"),
        (json!({"type": "ntfy", "url": "http://localhost/topic"}), "loopback"),
        (
            json!({"type": "gotify", "url": "http://10.0.0.1/", "token": "AbcdefghijklmnO"}),
            "private",
        ),
        (
            json!({"type": "telegram", "bot_token": "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "chat_id": 5, "api_url": "http://169.254.169.254/"}),
            "ADDRESS",
        ),
    ] {
        let found = problems(&user.post(CHANNELS, &body));
        assert_eq!(found.len(), 1, "{body}: {found:?}");
        let remedy = format!(
            "the operator can allow it: `cued serve --allow-callbacks-to {value}` or CUED_"
        );
        assert!(found[0].1.contains(&remedy), "{found:?}");
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
    let body = json!({"type": "telegram", "bot_token": "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "chat_id": -100_123});
    let channel = user.post(CHANNELS, &body).expect(201);
    assert_has(
        &channel,
        json!({"chat_id": "-100123", "bot_token": "…AAAA", "api_url": null, "name": "telegram -100123"}),
    );
    let patch = json!({"type": "slack", "bot_token": null, "chat_id": "here", "quiet": 5, "status": "active"});
    let found = problems(&user.patch(&path(&channel), &patch));
    let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["type", "bot_token", "chat_id", "quiet", "status"], "{found:?}");
    assert_eq!(user.get(&path(&channel)).expect(200), channel);
}

#[test]
fn no_error_repeats_a_secret() {
    let (_server, user) = Server::with_clock_and_user(START);
    let slack = "https://hooks.slack.com/services/T0/B0/SECRET-x7Qz";
    let cases = [
        (
            json!({"type": "gotify", "token": "SECRET-TOKEN"}),
            json!({"type": "gotify", "token": "…OKEN"}),
        ),
        (json!({"token": "SECRET-TOKEN", "user": 5}), json!({"token": "…OKEN", "user": "…"})),
        (
            json!({"url": slack, "name": "n"}),
            json!({"url": "https://hooks.slack.com/…x7Qz", "name": "n"}),
        ),
        (
            json!({"type": "gotify", "settings": {"token": "SECRET"}}),
            json!({"type": "gotify", "settings": "…"}),
        ),
        (json!({"type": "carrier pigeon", "token": "SECRET-TOKEN"}), json!("carrier pigeon")),
        (json!({"type": "discord", "url": slack}), json!("https://hooks.slack.com/…x7Qz")),
        (json!({"type": "ntfy", "url": slack}), json!("https://hooks.slack.com/…x7Qz")),
        (json!({"type": "slack", "url": "hooks.slack.com/SECRET"}), json!("…CRET")),
        (json!({"type": "slack", "url": "https://me:SECRET@hooks.slack.com/x7Qz"}), json!("…x7Qz")),
        (json!({"type": "slack", "url": "https://hooks.slack.com:SECRET/x7Qz"}), json!("…x7Qz")),
        (json!({"type": "slack", "url": ["SECRET"]}), json!("…")),
        (json!({"type": "telegram", "chat_id": 5, "bot_token": "SECRET"}), json!("…")),
        (json!({"type": "ntfy", "url": "https://ntfy.sh/t", "priority": 6}), json!(6)),
        (json!({"type": "slack", "url": slack, "token": "SECRET"}), json!("token")),
    ];
    for (body, input) in cases {
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
fn a_name_is_one_line_that_shows_what_it_is() {
    let (_server, user) = Server::with_clock_and_user(START);
    let channel =
        user.post(CHANNELS, &json!({"type": "webhook", "url": "https://a.example"})).expect(201);
    for (name, part) in [
        ("   ", "more than white space"),
        ("\u{a0}", "more than white space"),
        ("a\nb", "one line"),
        ("a\u{1b}[2J", "one line"),
        ("a\u{2028}b", "one line"),
        ("a\u{202e}b", "one line"),
        ("\u{2066}", "one line"),
    ] {
        let body = json!({"type": "webhook", "url": "https://a.example", "name": name});
        for refused in
            [user.post(CHANNELS, &body), user.patch(&path(&channel), &json!({"name": name}))]
        {
            let found = problems(&refused);
            assert!(
                found.len() == 1 && found[0].0 == "name" && found[0].1.contains(part),
                "{found:?}"
            );
        }
    }
    let named = user.patch(&path(&channel), &json!({"name": "Büro 日本"})).expect(200);
    assert_eq!(named["name"], "Büro 日本");
}

#[test]
fn a_patch_does_not_take_null_for_what_every_channel_has() {
    let (_server, user) = Server::with_clock_and_user(START);
    let channel =
        user.post(CHANNELS, &json!({"type": "webhook", "url": "https://a.example"})).expect(201);
    let found = problems(
        &user.patch(&path(&channel), &json!({"name": null, "events": null, "tags": null})),
    );
    let text =
        |kind: &str| format!("Value error, should be a {kind}, not null; leave it out to keep it");
    assert_eq!(found, [("name".to_owned(), text("text")), ("events".to_owned(), text("list"))]);
}

#[test]
fn a_mail_needs_a_confirmed_address() {
    let (_server, first) = Server::with_clock_and_user(START);
    let user = first.register("bob@example.com");
    let found = problems(&user.post(CHANNELS, &json!({"type": "email", "to": "bob@example.com"})));
    assert_contains(&found[0].1, &["bob@example.com is not confirmed yet"]);
    assert_has(&user.get("/v1/channels/email").expect(200), json!({"status": "unconfirmed"}));
    user.post("/v1/channels/email/test", &json!({})).expect_error(409, "invalid_state");
}

#[test]
fn a_new_host_needs_the_secret_again() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (mine, other) = (Receiver::start(), Receiver::start());
    let bot = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_";
    let key = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG";
    let at = |receiver: &Receiver, path: &str| receiver.url_of(path);
    for (body, field, path, secrets) in [
        (
            json!({"type": "ntfy", "url": at(&mine, "/a"), "token": "tk_secret0000"}),
            "url",
            "/a",
            vec!["token"],
        ),
        (
            json!({"type": "gotify", "url": at(&mine, ""), "token": "AWSF2n2Tb.4h"}),
            "url",
            "",
            vec!["token"],
        ),
        (
            json!({"type": "telegram", "bot_token": bot, "chat_id": 5, "api_url": at(&mine, "")}),
            "api_url",
            "",
            vec!["bot_token"],
        ),
        (
            json!({"type": "telegram", "bot_token": bot, "chat_id": 5}),
            "api_url",
            "",
            vec!["bot_token"],
        ),
        (
            json!({"type": "pushover", "token": key, "user": key, "api_url": at(&mine, "")}),
            "api_url",
            "",
            vec!["token", "user"],
        ),
    ] {
        let channel = user.post(CHANNELS, &body).expect(201);
        let moved = json!({field: at(&other, path)});
        // A secret as it reads back is the stored one.
        let mut masked = moved.clone();
        for secret in &secrets {
            masked[*secret] = channel[*secret].clone();
        }
        for patch in [&moved, &masked] {
            let refused =
                user.patch(&super::path(&channel), patch).expect_error(422, "validation_error");
            let asked: Vec<&str> = refused["detail"]
                .as_array()
                .unwrap()
                .iter()
                .map(|problem| problem["loc"][1].as_str().unwrap())
                .collect();
            assert_eq!(asked, secrets, "{refused}");
        }
        assert_eq!(user.get(&super::path(&channel)).expect(200)[field], channel[field]);
        let mut given = moved.clone();
        for secret in &secrets {
            given[*secret] = body[*secret].clone();
        }
        user.patch(&super::path(&channel), &given).expect(200);
        // The same host, with another path, keeps them.
        if path == "/a" {
            user.patch(&super::path(&channel), &json!({"url": at(&other, "/b")})).expect(200);
            let removed = json!({"url": at(&mine, "/a"), "token": null});
            assert_eq!(
                user.patch(&super::path(&channel), &removed).expect(200)["token"],
                Value::Null
            );
        }
    }
    let http =
        json!({"type": "gotify", "url": "https://gotify.example.com", "token": "AWSF2n2Tb.4h"});
    let channel = user.post(CHANNELS, &http).expect(201);
    let plain = json!({"url": "http://gotify.example.com:443"});
    user.patch(&super::path(&channel), &plain).expect_error(422, "validation_error");
}
