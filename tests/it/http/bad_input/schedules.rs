//! Invalid schedules.

use serde_json::{Value, json};

use super::{Case, check, server};

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
    let lines = [
        "",
        " ",
        "abc",
        "* * * *",
        "* * * * * *",
        "0 9 * * * 2026",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "0-60 * * * *",
        "* * 1-32 * *",
        "*/0 * * * *",
        "5/0 * * * *",
        "*/90 * * * *",
        "* */25 * * *",
        "1- * * * *",
        "-5 * * * *",
        "1,,2 * * * *",
        ",1 * * * *",
        "1, * * * *",
        "1-2-3 * * * *",
        "*/ * * * *",
        "*/2/3 * * * *",
        "** * * * *",
        "1.5 * * * *",
        "0x1 * * * *",
        "+1 * * * *",
        "\u{0663} * * * *",
        "* * L * *",
        "* * 15W * *",
        "* * * * 5L",
        "* * * * mon#2",
        "* * * jann *",
        "* * * * funday",
        "jan * * * *",
        "? * * * *",
        "* * * * mo",
        "@reboot",
        "@every 5m",
        "@fortnightly",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "H * * * *",
        "99999999999999999999 * * * *",
    ];
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
    let instants = [
        "",
        "tomorrow",
        "2099-01-01",
        "12:00",
        "2099-13-01T00:00:00Z",
        "2099-02-30T00:00:00Z",
        "2099-01-01T25:00:00Z",
        "2099-01-01T00:60:00Z",
        "2099-01-01T12:30:60Z",
        "2099-12-31T23:59:60+01:00",
        "2099-01-01T00:00:00+25:00",
        "20990101T000000Zjunk",
        "4102444800",
        "2020-01-01T00:00:00Z",
        "2020-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "10000-01-01T00:00:00Z",
        "2099-01-01T00:00:00Z ; drop",
    ];
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
    assert_eq!(
        (&run["at"], &run["local"]),
        (&json!("2099-01-01T00:00:05.120Z"), &json!("2099-01-01T00:00:05.120"))
    );
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
