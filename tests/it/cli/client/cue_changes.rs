//! `cued cue set`, `pause`, `resume`, `rm` and `fire`.

use std::fs;

use serde_json::{Value, json};

use super::{add, start, stored};

#[test]
fn cues_are_paused_and_resumed_one_by_one_and_together() {
    let (_server, user, home) = start();
    let (a, b) = (add(&home, "a"), add(&home, "b"));
    assert_eq!(home.ok(&["cue", "pause", "a"]), format!("paused a ({a})\n"));
    assert_eq!(
        home.ok(&["cue", "resume", "a"]),
        format!("resumed a ({a}); next run 2030-01-01 09:00:00+00:00\n")
    );
    assert_eq!(home.ok(&["cue", "pause", "a", "b", "a"]), format!("paused a ({a})\npaused b ({b})\n"));
    assert_eq!(home.json(&["cue", "resume", "a", "b"]), json!({"matched": 2, "done": 2, "failed": []}));
    assert!(
        home.fails(&["cue", "pause", "--all"], 2).contains("Pause all 2 active cues? Nobody can be asked")
    );
    assert_eq!(stored(&user, &a)["status"], "active");
    assert_eq!(home.ok(&["cue", "pause", "--all", "-y"]), "paused 2 cues\n");
    assert_eq!(home.ok(&["cue", "pause", "--all"]), "paused 0 cues\n");
    assert_eq!(stored(&user, &b)["status"], "paused");
    let run = home.run(&["cue", "resume", "a", "cue_000000000000"]);
    assert_eq!((run.code, run.stderr.as_str()), (3, "cued: 1 of 2 cues was refused\n"));
    assert!(run.stdout.starts_with(&format!("resumed a ({a})\nrefused cue_000000000000: ")), "{run:?}");
}

#[test]
fn a_refused_cue_among_several_is_told_in_json_too() {
    let (_server, _user, home) = start();
    add(&home, "a");
    let run = home.run(&["cue", "pause", "a", "cue_000000000000", "--json"]);
    let (out, error): (Value, Value) =
        (serde_json::from_str(&run.stdout).unwrap(), serde_json::from_str(&run.stderr).unwrap());
    assert_eq!((run.code, &out["done"], &error["error"]["code"]), (3, &json!(1), &json!("not_found")));
}

#[test]
fn cues_are_deleted_only_when_it_is_confirmed() {
    let (_server, user, home) = start();
    let ids = ["a", "b", "c"].map(|name| add(&home, name));
    let error = home.fails(&["cue", "rm", "a"], 2);
    assert!(error.contains(&format!("Delete a ({}), active, with 0 executions?", ids[0])), "{error}");
    assert!(home.fails(&["cue", "rm", "a", "b"], 2).contains("These 2 cues are deleted:\n  a ("), "a list");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 3);
    assert_eq!(home.ok(&["cue", "rm", "a", "-y"]), format!("deleted a ({})\n", ids[0]));
    let run = home.run(&["cue", "rm", "b", &ids[2], &ids[0], "-y"]);
    let expected = format!("deleted b ({})\ndeleted {}\nrefused {}: Cue not found\n", ids[1], ids[2], ids[0]);
    assert_eq!((run.code, run.stdout), (3, expected));
    assert_eq!(run.stderr, "cued: 1 of 3 cues was refused\n");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn a_cue_is_fired_with_a_payload_and_at_an_instant() {
    let (_server, user, home) = start();
    let id = add(&home, "n");
    user.patch(&format!("/v1/cues/{id}"), &json!({"payload": {"a": 1, "b": 2}})).expect(200);
    let shown = home.ok(&["cue", "fire", "n", "--payload", "{\"b\": 3}", "--at", "2030-01-05T08:00"]);
    assert!(
        shown.contains(&format!("cue            n ({id})\nscheduled for  2030-01-05 08:00:00+00:00\n")),
        "{shown}"
    );
    let payloads = || {
        let list = user.get("/v1/executions/claimable").expect(200);
        let items = list["executions"].as_array().unwrap().clone();
        items.iter().map(|execution| execution["payload"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(payloads(), Vec::<Value>::new(), "the run is later");
    home.ok(&["cue", "fire", "n", "--payload", "{\"b\": 3}"]);
    assert_eq!(payloads(), [json!({"a": 1, "b": 3})]);
    home.ok(&["cue", "fire", &id, "--payload", "{}", "--replace"]);
    assert!(payloads().contains(&json!({})));
    assert_eq!(home.json_error(&["cue", "fire", "n", "--at", "soon"], 5)["code"], "invalid_schedule");
    home.fails(&["cue", "fire", "none"], 3);
}

#[test]
fn fields_are_set_one_by_one() {
    let (_server, user, home) = start();
    let id = home.ok(&[
        "cue",
        "add",
        "--name",
        "n",
        "--cron",
        "0 9 * * *",
        "--url",
        "http://127.0.0.1:9/",
        "--header",
        "X-A: 1",
        "--payload",
        "{a: 1, b: 2}",
        "--description",
        "d",
        "-q",
    ]);
    let id = id.trim();
    fs::write(home.folder().join("text"), "from a file\n").unwrap();
    let changed = home.ok(&[
        "cue",
        "set",
        "n",
        "name=123",
        "schedule.cron=0 3 * * *",
        "retry.max_attempts=3",
        "payload.b=null",
        "payload.c={\"d\": [1]}",
        "callback.headers.X-B=2",
        "description=@text",
    ]);
    let expected = format!(
        "changed 123 ({id}): callback, description, name, payload, retry, schedule; next run 2030-01-01 03:00:00+00:00\n"
    );
    assert_eq!(changed, expected);
    let cue = stored(&user, id);
    assert_eq!((&cue["name"], &cue["description"]), (&json!("123"), &json!("from a file")));
    assert_eq!(cue["payload"], json!({"a": 1, "c": {"d": [1]}}));
    assert_eq!(cue["callback"]["headers"], json!({"X-A": "1", "X-B": "2"}));
    assert_eq!(cue["retry"]["max_attempts"], 3);
    home.ok(&["cue", "set", id, "description=null", "payload={x: 1}"]);
    assert_eq!(
        (&stored(&user, id)["description"], &stored(&user, id)["payload"]),
        (&json!(null), &json!({"x": 1}))
    );
    assert!(
        home.fails(&["cue", "set", id, "schedule.cron=61 * * * *"], 5).ends_with("\n  61 * * * *\n  ^^\n")
    );
    assert!(home.fails(&["cue", "set", id, "retry.max_attempts=x"], 5).contains("retry.max_attempts"));
    assert!(home.fails(&["cue", "set", id, "colour=red"], 5).contains("colour"));
    assert!(home.fails(&["cue", "set", id, "name"], 2).contains("name=nightly"));
}

#[test]
fn a_request_can_be_shown_instead_of_made() {
    let (_server, user, home) = start();
    let id = add(&home, "n");
    let shown = home.ok(&["cue", "pause", "n", "--curl"]);
    assert!(
        shown.starts_with("curl -X PATCH ") && shown.contains(&id) && !shown.contains(user.key()),
        "{shown}"
    );
    home.ok(&["cue", "rm", "n", "--curl"]);
    assert_eq!(stored(&user, &id)["status"], "active");
}
