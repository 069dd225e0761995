//! Bad bodies and bounds of the actions on many objects: each a clear error, nothing half done.

use serde_json::{Value, json};

use super::{START, execution, failed_runs, id, status_of, worker_cue};
use crate::support::client::Client;
use crate::support::server::Server;

const BULK: &str = "/v1/cues/bulk";
const REPLAY: &str = "/v1/executions/replay";
const DELETE: &str = "/v1/cues/bulk-delete";

#[track_caller]
fn problem(user: &Client, path: &str, body: &Value) -> (String, Value) {
    let refused = user.post(path, body).expect_error(422, "validation_error");
    let first = &refused["detail"][0];
    (first["type"].as_str().unwrap().to_owned(), first["loc"].clone())
}

#[test]
fn every_bad_body_names_its_field() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&worker_cue("cue"));
    let run = failed_runs(&user, &cue, 1).remove(0);
    let many = vec!["x"; 501];
    for (path, body, kind, loc) in [
        (BULK, json!({"ids": [id(&cue)]}), "missing", json!(["body", "action"])),
        (BULK, json!({"ids": [id(&cue)], "action": "stop"}), "literal_error", json!(["body", "action"])),
        (BULK, json!({"action": "delete"}), "value_error", json!(["body", "ids"])),
        (BULK, json!({"action": "delete", "ids": []}), "too_short", json!(["body", "ids"])),
        (BULK, json!({"action": "delete", "ids": many}), "too_long", json!(["body", "ids"])),
        (BULK, json!({"action": "delete", "ids": id(&cue)}), "list_type", json!(["body", "ids"])),
        (BULK, json!({"action": "delete", "ids": [id(&cue), 7]}), "string_type", json!(["body", "ids", 1])),
        (
            BULK,
            json!({"action": "delete", "ids": ["x".repeat(65)]}),
            "string_too_long",
            json!(["body", "ids", 0]),
        ),
        (
            BULK,
            json!({"action": "delete", "ids": [id(&cue)], "filter": {}}),
            "value_error",
            json!(["body", "filter"]),
        ),
        (
            BULK,
            json!({"action": "delete", "ids": [id(&cue)], "expected": 1}),
            "value_error",
            json!(["body", "expected"]),
        ),
        (BULK, json!({"action": "delete", "filter": {}}), "missing", json!(["body", "expected"])),
        (
            BULK,
            json!({"action": "delete", "filter": {}, "expected": -1}),
            "greater_than_equal",
            json!(["body", "expected"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {}, "expected": 10_001}),
            "less_than_equal",
            json!(["body", "expected"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {}, "expected": "1"}),
            "int_type",
            json!(["body", "expected"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": [], "expected": 1}),
            "model_attributes_type",
            json!(["body", "filter"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"statsu": "paused"}, "expected": 1}),
            "extra_forbidden",
            json!(["body", "filter", "statsu"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"status": "broken"}, "expected": 1}),
            "literal_error",
            json!(["body", "filter", "status"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"transport": "mail"}, "expected": 1}),
            "literal_error",
            json!(["body", "filter", "transport"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"failing": "yes"}, "expected": 1}),
            "bool_type",
            json!(["body", "filter", "failing"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"q": ""}, "expected": 1}),
            "string_too_short",
            json!(["body", "filter", "q"]),
        ),
        (
            BULK,
            json!({"action": "delete", "filter": {"q": "x".repeat(101)}, "expected": 1}),
            "string_too_long",
            json!(["body", "filter", "q"]),
        ),
        (
            BULK,
            json!({"action": "delete", "ids": [id(&cue)], "dry_runs": true}),
            "extra_forbidden",
            json!(["body", "dry_runs"]),
        ),
        (REPLAY, json!({}), "value_error", json!(["body", "ids"])),
        (REPLAY, json!({"ids": many}), "too_long", json!(["body", "ids"])),
        (
            REPLAY,
            json!({"filter": {"status": "success"}, "expected": 1}),
            "literal_error",
            json!(["body", "filter", "status"]),
        ),
        (
            REPLAY,
            json!({"filter": {"cause": "weather"}, "expected": 1}),
            "literal_error",
            json!(["body", "filter", "cause"]),
        ),
        (
            REPLAY,
            json!({"filter": {"since": "noon"}, "expected": 1}),
            "value_error",
            json!(["body", "filter", "since"]),
        ),
        (
            REPLAY,
            json!({"filter": {"since": START, "until": START}, "expected": 0}),
            "value_error",
            json!(["body", "filter", "until"]),
        ),
        (
            REPLAY,
            json!({"filter": {"until": 7}, "expected": 1}),
            "string_type",
            json!(["body", "filter", "until"]),
        ),
        (
            REPLAY,
            json!({"filter": {"cue": "x"}, "expected": 1}),
            "extra_forbidden",
            json!(["body", "filter", "cue"]),
        ),
        (REPLAY, json!({"ids": [run], "action": "x"}), "extra_forbidden", json!(["body", "action"])),
        (DELETE, json!({}), "missing", json!(["body", "ids"])),
        (DELETE, json!({"ids": many}), "too_long", json!(["body", "ids"])),
        (DELETE, json!({"ids": [id(&cue)], "filter": {}}), "extra_forbidden", json!(["body", "filter"])),
    ] {
        assert_eq!(problem(&user, path, &body), (kind.to_owned(), loc), "{path} {body}");
    }
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(user.get("/v1/executions").expect(200)["total"], 1);
}

#[test]
fn five_hundred_ids_are_taken_and_unknown_ones_answered() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&worker_cue("cue"));
    let run = failed_runs(&user, &cue, 1).remove(0);
    let unknown: Vec<String> = (0..499).map(|number| format!("{number:0>64}")).collect();
    let with = |known: &str| [&unknown[..], &[known.to_owned()]].concat();
    let done = user.post(REPLAY, &json!({"ids": with(&run)})).expect(200);
    assert_eq!((&done["matched"], &done["replayed"]), (&json!(500), &json!(1)));
    let done = user.post(BULK, &json!({"ids": with(id(&cue)), "action": "pause"})).expect(200);
    assert_eq!((&done["matched"], &done["done"]), (&json!(500), &json!(1)));
    assert_eq!(
        done["failed"][498],
        json!({"id": unknown[498], "code": "cue_not_found", "message": "Cue not found"})
    );
    let done = user.post(DELETE, &json!({"ids": with(id(&cue))})).expect(200);
    assert_eq!((&done["deleted"], &done["skipped"]), (&json!([id(&cue)]), &json!(unknown)));
}

#[test]
fn the_key_of_a_fire_is_taken_from_the_body_too() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&worker_cue("cue"));
    let path = format!("/v1/cues/{}/fire", id(&cue));
    let body = json!({"idempotency_key": "k 1"});
    let first = user.post(&path, &body).expect(200);
    assert_eq!(user.post(&path, &body).expect(200), first);
    let both = user.call("POST", &path, &[("Idempotency-Key", "k 1")], body.to_string().as_bytes()).unwrap();
    assert_eq!(both.expect(200), first, "the same key in both places");
    let other = user.call("POST", &path, &[("Idempotency-Key", "k2")], body.to_string().as_bytes()).unwrap();
    let other = other.expect_error(422, "validation_error");
    assert_eq!(other["detail"][0]["loc"], json!(["body", "idempotency_key"]));
    user.post(&path, &json!({"idempotency_key": "k 1", "payload_override": {}}))
        .expect_error(409, "idempotency_conflict");
    for bad in [json!(""), json!("x".repeat(256)), json!("é"), json!("a\nb"), json!(7)] {
        let refused =
            user.post(&path, &json!({"idempotency_key": bad})).expect_error(422, "validation_error");
        assert_eq!(refused["detail"][0]["loc"], json!(["body", "idempotency_key"]), "{bad}");
    }
    assert_eq!(user.post(&path, &json!({"idempotency_key": null})).expect(200)["status"], "pending");
    assert_eq!(user.executions_of(id(&cue)).len(), 2);
    assert_eq!(execution(&user, id(&first))["triggered_by"], "manual_fire");
}

#[test]
fn a_key_without_room_for_its_answer_is_refused_before_anything_is_done() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let cue = user.create(&worker_cue("cue"));
    server.sqlite().execute("UPDATE users SET stored_bytes = 1 << 50", []).unwrap();
    let body = json!({"ids": [id(&cue)], "action": "pause"}).to_string();
    let keyed = user.call("POST", BULK, &[("Idempotency-Key", "k")], body.as_bytes()).unwrap();
    keyed.expect_error(403, "storage_limit_exceeded");
    assert_eq!(status_of(&user, &cue), "active");
    assert_eq!(user.call("POST", BULK, &[], body.as_bytes()).unwrap().expect(200)["done"], 1);
    server.sqlite().execute("UPDATE users SET stored_bytes = 0", []).unwrap();
    let keyed = user.call("POST", BULK, &[("Idempotency-Key", "k")], body.as_bytes()).unwrap();
    assert_eq!(keyed.expect(200)["done"], 1);
}
