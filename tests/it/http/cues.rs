//! Cues over HTTP (contract §4), field by field: create, list, read, change.

use crate::support::*;

pub const START: &str = "2026-01-05T09:00:00Z";

#[test]
fn a_new_cue_has_every_field_with_its_default() {
    let (_server, user) = Server::with_clock_and_user(START);
    let url = "http://127.0.0.1:9/hook";
    let created = user.create(&webhook_cue("nightly", "30 9 * * *", url));
    assert!(id(&created).starts_with("cue_") && id(&created).len() == 16, "{created}");
    let expected = json!({
        "id": id(&created), "slug": null, "name": "nightly", "description": null, "tags": [], "status": "active",
        "next_run": "2026-01-05T09:30:00+00:00", "last_run": null,
        "schedule": {
            "type": "recurring", "cron": "30 9 * * *", "every": null, "at": null, "timezone": "UTC",
            "catch_up": "latest", "start": null, "end": null, "jitter_seconds": 0,
        },
        "callback": {
            "url": url, "method": "POST", "headers": {}, "outcome_from_response": false, "timeout_seconds": 30, "flow": null,
        },
        "transport": "webhook", "payload": null,
        "retry": {"max_attempts": 4, "backoff_minutes": [1, 5, 15]},
        "on_failure": created["on_failure"], "verification": created["verification"],
        "claim_within_minutes": null, "overlap": "allow", "max_age_seconds": null, "outcome_deadline_seconds": null,
        "run_count": 0, "fired_count": 0, "missed_count": 0, "failing": 0, "warning": null,
        "created_at": START, "updated_at": START,
    });
    assert_eq!(created, expected);
    let (listed, _) = without(&created, "payload");
    assert_eq!(
        user.read("/v1/cues"),
        json!({
            "cues": [listed], "total": 1, "limit": 20, "offset": 0, "has_more": false, "next_cursor": null,
        })
    );
    let (shown, executions) = without(&user.cue(&created), "executions");
    assert_eq!(executions, json!([]));
    for (name, value) in created.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    let work = user.create(&hourly_cue("work"));
    assert_eq!((&work["transport"], &work["callback"]["url"]), (&json!("worker"), &Value::Null));
}

#[test]
fn cues_can_be_filtered_by_status() {
    let (_server, user) = Server::with_clock_and_user(START);
    let once = json!({"type": "once", "at": "2026-01-05T10:00:00Z"});
    let [_, paused, done, lost] = ["active", "paused", "completed", "failed"].map(|name| {
        let mut cue = hourly_cue(name);
        if ["completed", "failed"].contains(&name) {
            cue["schedule"] = once.clone();
        }
        user.create(&cue)
    });
    user.change(&paused, &json!({"status": "paused"}));
    user.advance("PT1H");
    for (cue, success) in [(&done, true), (&lost, false)] {
        let execution = user.only_execution(id(cue));
        user.report(id(&execution), &json!({"success": success}));
    }
    for status in ["active", "paused", "completed", "failed"] {
        let list = user.read(&format!("/v1/cues?status={status}"));
        assert_eq!(list["total"], 1, "{status}");
        assert_eq!(list.list("cues").len(), 1, "{status}");
        let cue = &list["cues"][0];
        assert_eq!((&cue["name"], &cue["status"]), (&json!(status), &json!(status)));
    }
}

#[test]
fn a_patch_changes_only_the_fields_it_names() {
    let (_server, user) = Server::with_clock_and_user(START);
    let mut expected = user.create(&json!({
        "name": "nightly", "description": "why", "payload": {"a": 1}, "retry": {"max_attempts": 2},
        "schedule": {"type": "recurring", "cron": "0 12 * * *", "timezone": "Europe/Berlin"},
        "callback": {"url": "http://127.0.0.1:9/", "method": "PUT", "headers": {"X-A": "1"}},
    }));
    let path = cue_path(&expected);
    let once = json!({
        "type": "once", "cron": null, "at": "2026-02-01T00:00:00Z", "timezone": "UTC", "catch_up": "latest",
        "every": null, "start": null, "end": null, "jitter_seconds": 0,
    });
    let (eleven, url) = ("2026-01-05T11:00:00+00:00", "http://127.0.0.1:9/b");
    let (february, march) = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
    let callback = |name: &str, value: Value| json!({"callback": {name: value}});
    let schedule = |value: Value| json!({ "schedule": value });
    for (patch, place, new, next_run) in [
        (json!({"name": "daily"}), "/name", json!("daily"), eleven),
        (json!({"description": "so"}), "/description", json!("so"), eleven),
        (json!({"payload": {"b": 2}}), "/payload", json!({"b": 2}), eleven),
        (callback("method", json!("PATCH")), "/callback/method", json!("PATCH"), eleven),
        (
            callback("headers", json!({"X-B": "2"})),
            "/callback/headers",
            json!({"X-B": "2"}),
            eleven,
        ),
        (callback("url", json!(url)), "/callback/url", json!(url), eleven),
        (
            schedule(json!({"timezone": "UTC"})),
            "/schedule/timezone",
            json!("UTC"),
            "2026-01-05T12:00:00+00:00",
        ),
        (
            schedule(json!({"cron": "0 10 * * *"})),
            "/schedule/cron",
            json!("0 10 * * *"),
            "2026-01-05T10:00:00+00:00",
        ),
        (
            schedule(json!({"type": "once", "at": february})),
            "/schedule",
            once,
            "2026-02-01T00:00:00+00:00",
        ),
        (schedule(json!({"at": march})), "/schedule/at", json!(march), "2026-03-01T00:00:00+00:00"),
    ] {
        let patched = user.patch(&path, &patch).expect(200);
        *expected.pointer_mut(place).unwrap() = new;
        expected["next_run"] = json!(next_run);
        expected["updated_at"] = patched["updated_at"].clone();
        assert_eq!(patched, expected, "{patch}");
    }
    let shown = user.read(&path);
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
}
