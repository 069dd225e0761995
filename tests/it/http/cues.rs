//! Cues over HTTP (contract §4): a change of one field leaves all others. Their fields and lists are promised in
//! `tests/conformance`.

use crate::support::*;

pub const START: &str = "2026-01-05T09:00:00Z";

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
    let eleven = "2026-01-05T11:00:00+00:00";
    let callback = |name: &str, value: Value| json!({"callback": {name: value}});
    let schedule = |name: &str, value: &str| json!({"schedule": {name: value}});
    let february = json!({"schedule": {"type": "once", "at": once["at"]}});
    for (patch, place, next_run) in [
        (json!({"name": "daily"}), "/name", eleven),
        (json!({"description": "so"}), "/description", eleven),
        (json!({"payload": {"b": 2}}), "/payload", eleven),
        (callback("method", json!("PATCH")), "/callback/method", eleven),
        (callback("headers", json!({"X-B": "2"})), "/callback/headers", eleven),
        (callback("url", json!("http://127.0.0.1:9/b")), "/callback/url", eleven),
        (schedule("timezone", "UTC"), "/schedule/timezone", "2026-01-05T12:00:00+00:00"),
        (schedule("cron", "0 10 * * *"), "/schedule/cron", "2026-01-05T10:00:00+00:00"),
        (february.clone(), "/schedule", "2026-02-01T00:00:00+00:00"),
        (schedule("at", "2026-03-01T00:00:00Z"), "/schedule/at", "2026-03-01T00:00:00+00:00"),
    ] {
        let patched = user.patch(&path, &patch).expect(200);
        let new = if patch == february { &once } else { patch.pointer(place).unwrap() };
        *expected.pointer_mut(place).unwrap() = new.clone();
        expected["next_run"] = json!(next_run);
        expected["updated_at"] = patched["updated_at"].clone();
        assert_eq!(patched, expected, "{patch}");
    }
    assert_has(&user.read(&path), expected);
}
