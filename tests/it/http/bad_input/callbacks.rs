//! Invalid callbacks and schedules.

use serde_json::Map;

use crate::http::bad_input::{Case, check, server};
use crate::support::*;

/// Non-public addresses in every notation.
const BLOCKED: &str = "localhost LOCALHOST localhost. hooks.localhost 127.0.0.1 127.0.0.1. 127.255.255.254 127.1 127.0.1 \
    2130706433 0x7f000001 0x7f.1 0x7F.0x0.0x0.0x1 0177.0.0.1 017700000001 0 0.0.0.0 0.1.2.3 10.0.0.1 10.1 \
    172.16.0.1 172.31.255.255 192.168.1.1 3232235777 0300.0250.1.1 169.254.169.254 0xa9fea9fe 100.64.0.1 \
    100.127.255.255 192.0.0.1 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 \
    239.255.255.255 240.0.0.1 255.255.255.255 %31%32%37.0.0.1 \u{2460}\u{2461}\u{2466}.0.0.1 \
    \u{ff11}\u{ff12}\u{ff17}\u{3002}0.0.1 lo\u{ff43}alhost [::] [::1] [0:0:0:0:0:0:0:1] \
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:10.0.0.1] [::127.0.0.1] [64:ff9b::7f00:1] \
    [64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2002:a00:1::1] [fe80::1] [febf::1] [fc00::1] [fdff::1] \
    [ff02::1] [2001:db8::1] [100::1] [fe80::1%25eth0]";

fn url(text: &str) -> Case {
    let shown: String = text.chars().take(60).collect();
    Case::cue("callback.url", json!(text)).named(&format!("url {shown:?}"))
}

fn header(name: &str, value: Value) -> Case {
    let headers = Map::from_iter([(name.to_owned(), value)]);
    Case::cue("callback.headers", Value::Object(headers)).named(&format!("header {name:?}"))
}

#[test]
fn only_absolute_http_urls_are_accepted() {
    let urls =
        " | \x20 | not a url | /relative | hooks.example.com/cue | //example.com/x | http:// | https:// | \
        http:///path | http:example.com | http:/example.com | ftp://example.com/ | file:///etc/passwd | \
        javascript:alert(1) | gopher://example.com/ | data:text/plain,x | \
        https://user:secret@example.com/ | https://user@example.com/ | https://@example.com/ | \
        https://example.com:99999/ | https://example.com:port/ | https://exa mple.com/ | \
        https://example.com/a b | https://example.com/\r\nX-Evil: 1 | https://example.com/\n | \
        https://example.com/\tx | https://example.com\\@127.0.0.1/ | https://[::1 | https://[zz]/ | \
        https://xn--a.example.com/ | https://b\u{fc}cher%2e.example.com/ | https://.example.com/ | \
        https://example..com/"
            .split(" | ");
    let long = format!("https://example.com/{}", "a".repeat(2_029));
    let longest = format!("https://example.com/{}", "a".repeat(2_028));
    assert_eq!((long.len(), longest.len()), (2_049, 2_048));
    let rows = urls.map(|text| url(text).expect_error(400, "invalid_callback_url"));
    let bounds = [
        url(&long).expect_error(400, "invalid_callback_url"),
        url(&longest).accepted(201),
        url("http://example.com").accepted(201),
        url("https://example.com:8443/path?query=%20").accepted(201),
        url("https://b\u{fc}cher.example.com/").accepted(201),
        url("https://xn--bcher-kva.example.com/").accepted(201),
        Case::cue("callback.url", json!(5)).invalid("string_type", "body.callback.url"),
        Case::cue("callback", json!({})).invalid("missing", "body.callback.url"),
        Case::cue("callback", json!("https://example.com/"))
            .invalid("model_attributes_type", "body.callback"),
        Case::cue_without("callback").expect_error(422, "validation_error"),
    ];
    check(&server().user(), rows.into_iter().chain(bounds));
}

#[test]
fn non_public_addresses_are_refused_in_every_notation() {
    let server = server();
    let user = server.user();
    let cue = format!("/v1/cues/{}", user.create(&super::good_cue())["id"].as_str().unwrap());
    // Every field with a URL that the server will send to.
    let rows = words(BLOCKED).into_iter().flat_map(|host| {
        let blocked = format!("http://{host}/hook");
        let on_failure = json!({"webhook": blocked});
        [
            url(&blocked),
            Case::cue("on_failure", on_failure.clone()),
            Case::new("PATCH", &cue, &json!({"on_failure": on_failure})),
            Case::new("PATCH", "/v1/auth/me", &json!({"alert_webhook_url": blocked})),
        ]
        .map(|case| case.expect_error(400, "invalid_callback_url"))
    });
    let public = ["8.8.8.8", "[2606:4700::1111]", "172.32.0.1", "100.128.0.1"];
    let good = public.map(|host| url(&format!("http://{host}/hook")).accepted(201));
    check(&user, rows.chain(good));
}

#[test]
fn unusable_callback_methods_and_headers_are_refused() {
    let own = "Host | content-length | Content-Length | Transfer-Encoding | connection | Upgrade | TE | \
        trailer | X-CueAPI-Signature | x-cueapi-anything | webhook-id | Webhook-Signature |  | \x20 | \
        X Y | X: | X\r\nEvil | X\n | N\u{e4}me | X\u{0} | (x)"
        .split(" | ");
    let values = ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\u{0}b", "a\u{7f}b"];
    let many: Map<String, Value> = (0..33).map(|number| (format!("X-{number}"), json!("v"))).collect();
    let most: Map<String, Value> = (0..32).map(|number| (format!("X-{number}"), json!("v"))).collect();
    let methods = ["TRACE", "HEAD", "CONNECT", "OPTIONS", "PO ST", "POST\r\n", "BREW"];
    let names = own.map(|name| header(name, json!("v")).expect_error(400, "invalid_callback"));
    let texts =
        values.map(|value| header("X-Own", json!(value)).named(value).expect_error(400, "invalid_callback"));
    let verbs = methods.map(|method| {
        Case::cue("callback.method", json!(method)).named(method).expect_error(400, "invalid_callback")
    });
    let rest = [
        Case::cue("callback.headers", Value::Object(many))
            .named("33 headers")
            .expect_error(400, "invalid_callback"),
        Case::cue("callback.headers", Value::Object(most)).named("32 headers").accepted(201),
        Case::cue("callback.headers", json!({"X-A": "1", "x-a": "2"}))
            .named("one header twice")
            .expect_error(400, "invalid_callback"),
        Case::cue("callback.headers", json!([])).invalid("dict_type", "body.callback.headers"),
        header("X-Own", json!(5)).invalid("string_type", "body.callback.headers.X-Own"),
        header("X-Own", Value::Null).invalid("string_type", "body.callback.headers.X-Own"),
        header("Authorization", json!("Bearer mine")).accepted(201),
        header("Content-Type", json!("application/vnd.mine+json")).accepted(201),
        Case::cue("callback.method", json!("PUT")).accepted(201),
        Case::cue("callback.method", json!(5)).invalid("string_type", "body.callback.method"),
    ];
    check(&server().user(), names.into_iter().chain(texts).chain(verbs).chain(rest));
}

fn cron(line: &str) -> Case {
    Case::cue("schedule.cron", json!(line)).named(&format!("cron {line:?}"))
}

fn at(instant: &str) -> Case {
    Case::cue("schedule", json!({"type": "once", "at": instant})).named(&format!("at {instant:?}"))
}

fn zone(name: &str) -> Case {
    Case::cue("schedule.timezone", json!(name)).named(&format!("zone {name:?}"))
}

fn schedule(value: Value) -> Case {
    let name = value.to_string();
    Case::cue("schedule", value).named(&name)
}

#[test]
fn invalid_or_never_matching_crons_are_invalid_schedules() {
    let lines =
        " | \x20 | abc | * * * * | * * * * * * | 0 9 * * * 2026 | 60 * * * * | * 24 * * * | * * 0 * * | \
        * * 32 * * | * * * 0 * | * * * 13 * | * * * * 8 | -1 * * * * | 0-60 * * * * | * * 1-32 * * | \
        */0 * * * * | 5/0 * * * * | */90 * * * * | * */25 * * * | 1- * * * * | -5 * * * * | \
        1,,2 * * * * | ,1 * * * * | 1, * * * * | 1-2-3 * * * * | */ * * * * | */2/3 * * * * | \
        ** * * * * | 1.5 * * * * | 0x1 * * * * | +1 * * * * | \u{0663} * * * * | * * L * * | \
        * * 15W * * | * * * * 5L | * * * * mon#2 | * * * jann * | * * * * funday | jan * * * * | \
        ? * * * * | * * * * mo | @reboot | @every | @fortnightly | 0 0 30 2 * | 0 0 31 4,6,9,11 * | \
        H * * * * | 99999999999999999999 * * * *"
            .split(" | ");
    let rows = lines.map(|line| cron(line).expect_error(400, "invalid_schedule"));
    check(&server().user(), rows.into_iter().chain([cron("0 9 * * 1-5").accepted(201)]));
}

#[test]
fn a_cron_error_names_the_field() {
    let server = server();
    let client = server.user();
    for (line, field) in [
        ("61 * * * *", "minute"),
        ("* 25 * * *", "hour"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 9", "day of week"),
    ] {
        let cue = super::changed(super::good_cue(), "schedule.cron", Some(json!(line)));
        let body = client.post("/v1/cues", &cue).expect_error(400, "invalid_schedule");
        let message = body["error"]["message"].as_str().unwrap().replace(['-', '_'], " ").to_lowercase();
        assert!(message.contains(field), "{line}: {message}");
    }
}

#[test]
fn invalid_or_past_instants_are_invalid_schedules() {
    let instants = " | tomorrow | 2099-01-01 | 12:00 | 2099-13-01T00:00:00Z | 2099-02-30T00:00:00Z | \
        2099-01-01T25:00:00Z | 2099-01-01T00:60:00Z | 2099-01-01T12:30:60Z | 2099-12-31T23:59:60+01:00 | \
        2099-01-01T00:00:00+25:00 | 20990101T000000Zjunk | 4102444800 | 2020-01-01T00:00:00Z | \
        2020-01-01T00:00:00 | 1969-12-31T23:59:59Z | 10000-01-01T00:00:00Z | 2099-01-01T00:00:00Z ; drop"
        .split(" | ");
    let rows = instants.map(|instant| at(instant).expect_error(400, "invalid_schedule"));
    let good = ["2099-01-01T00:00:00Z", "2099-01-01T00:00:00.125+05:30", "2099-01-01T00:00:00"];
    check(&server().user(), rows.into_iter().chain(good.map(|instant| at(instant).accepted(201))));
}

#[test]
fn unknown_zones_and_invalid_schedules_have_different_codes() {
    let zones = ["", "Mars/Olympus", "UTC+25", "../../etc/passwd", "Europe", "Europe/Berlin ", "CET-1CEST"];
    let rows = zones.map(|name| zone(name).expect_error(400, "invalid_timezone"));
    let shapes = [
        zone("Europe/Berlin").accepted(201),
        schedule(json!({"type": "recurring"})).expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "recurring", "at": "2099-01-01T00:00:00Z"}))
            .expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "recurring", "cron": null})).expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "once"})).expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "once", "cron": "* * * * *"})).expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "once", "at": null})).expect_error(400, "invalid_schedule"),
        schedule(json!({"type": "recurring", "cron": 5})).invalid("string_type", "body.schedule.cron"),
        schedule(json!({"type": "once", "at": 4_102_444_800_u64})).invalid("string_type", "body.schedule.at"),
        schedule(json!({"type": "recurring", "cron": "* * * * *", "timezone": 1}))
            .invalid("string_type", "body.schedule.timezone"),
        schedule(json!({"cron": "* * * * *"})).invalid("missing", "body.schedule.type"),
        schedule(json!({"type": "hourly", "cron": "* * * * *"}))
            .invalid("literal_error", "body.schedule.type"),
        schedule(json!({"type": 1, "cron": "* * * * *"})).invalid("literal_error", "body.schedule.type"),
        schedule(json!({"type": "recurring", "cron": "* * * * *", "catch_up": "some"}))
            .invalid("literal_error", "body.schedule.catch_up"),
        schedule(json!("* * * * *")).invalid("model_attributes_type", "body.schedule"),
        schedule(json!([])).invalid("model_attributes_type", "body.schedule"),
        Case::cue_without("schedule").invalid("missing", "body.schedule"),
    ];
    check(&server().user(), rows.into_iter().chain(shapes));
}

#[test]
fn a_preview_validates_like_a_create() {
    let preview = |schedule: Value| Case::post("/v1/schedule/preview", &json!({ "schedule": schedule }));
    check(
        &server().user(),
        [
            preview(json!({"type": "recurring", "cron": "0 9 * * *"})).accepted(200),
            preview(json!({"type": "recurring", "cron": "61 * * * *"})).expect_error(400, "invalid_schedule"),
            preview(json!({"type": "recurring", "cron": "0 0 30 2 *"})).expect_error(400, "invalid_schedule"),
            preview(json!({"type": "once", "at": "2020-01-01T00:00:00Z"}))
                .expect_error(400, "invalid_schedule"),
            preview(json!({"type": "recurring", "cron": "0 9 * * *", "timezone": "Nowhere"}))
                .expect_error(400, "invalid_timezone"),
            preview(json!({"type": "daily"})).invalid("literal_error", "body.schedule.type"),
            Case::post("/v1/schedule/preview", &json!({})).invalid("missing", "body.schedule"),
            Case::post(
                "/v1/schedule/preview",
                &json!({"schedule": {"type": "recurring", "cron": "0 9 * * *"}, "limit": 0}),
            )
            .invalid("greater_than_equal", "body.limit"),
            Case::post(
                "/v1/schedule/preview",
                &json!({"schedule": {"type": "recurring", "cron": "0 9 * * *"}, "from": "0000-01-01T00:00:00Z"}),
            )
            .invalid("value_error", "body.from"),
        ],
    );
}

#[test]
fn the_local_time_of_a_run_has_the_milliseconds_of_its_instant() {
    let server = server();
    let client = server.user();
    let once = json!({"schedule": {"type": "once", "at": "2099-01-01T00:00:05.12Z"}});
    let preview = client.post("/v1/schedule/preview", &once).expect(200);
    let run = &preview["occurrences"][0];
    assert_has(run, json!({"at": "2099-01-01T00:00:05.120Z", "local": "2099-01-01T00:00:05.120"}));
}

#[test]
fn a_schedule_error_marks_its_part_on_every_route() {
    let server = server();
    let client = server.user();
    let path = format!("/v1/cues/{}", client.create(&super::good_cue())["id"].as_str().unwrap());
    let recurring = |cron: &str| json!({"type": "recurring", "cron": cron});
    for (schedule, code, field, span) in [
        (recurring("0 25 * * *"), "invalid_schedule", "hour", json!([2, 4])),
        (recurring("0 9 é * *"), "invalid_schedule", "day-of-month", json!([4, 5])),
        (recurring("* * *"), "invalid_schedule", "expression", json!([5, 5])),
        (recurring("0 0 30 2 *"), "invalid_schedule", "day-of-month", json!([4, 6])),
        (json!({"type": "once", "at": "noon"}), "invalid_schedule", "at", Value::Null),
        (json!({"type": "once", "at": "2020-01-01T00:00:00Z"}), "invalid_schedule", "at", Value::Null),
        (
            json!({"type": "recurring", "cron": "@daily", "timezone": "Nowhere"}),
            "invalid_timezone",
            "timezone",
            Value::Null,
        ),
    ] {
        let cue = super::changed(super::good_cue(), "schedule", Some(schedule.clone()));
        let only = json!({ "schedule": schedule });
        for refused in [
            client.post("/v1/cues", &cue),
            client.patch(&path, &only),
            client.post("/v1/schedule/preview", &only),
        ] {
            let error = &refused.expect_error(400, code)["error"];
            assert_eq!((&error["field"], &error["span"]), (&json!(field), &span), "{schedule}");
        }
    }
    for (schedule, field) in [(json!({"type": "recurring"}), "expression"), (json!({"type": "once"}), "at")] {
        let cue = super::changed(super::good_cue(), "schedule", Some(schedule));
        let refused = client.post("/v1/cues", &cue).expect_error(400, "invalid_schedule");
        assert_eq!((&refused["error"]["field"], &refused["error"]["span"]), (&json!(field), &Value::Null));
    }
    let refused = client.post(&format!("{path}/fire"), &json!({"send_at": "noon"}));
    assert_eq!(refused.expect_error(400, "invalid_schedule")["error"]["field"], "send_at");
    let both = json!({"schedule": {"cron": "@daily", "at": "2099-01-01T00:00:00Z"}});
    assert_eq!(client.patch(&path, &both).expect_error(400, "invalid_schedule")["error"]["field"], "type");
}
