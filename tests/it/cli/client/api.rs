//! `cued api`.

use serde_json::{Value, json};

use super::Desk;
use crate::support::client_command::ClientHome;
use crate::support::server::Server;

#[test]
fn the_answer_is_printed_unchanged_whatever_its_status() {
    let desk = Desk::new();
    desk.worker_cue("report");
    let json = desk.user.get("/v1/cues?limit=5").text();
    for path in ["/v1/cues?limit=5", "v1/cues?limit=5", "cues?limit=5"] {
        assert_eq!(desk.home.ok(&["api", "GET", path]), json, "{path}");
    }
    assert_eq!(desk.home.ok(&["api", "get", "cues", "-f", "limit=5"]), json);
    let none = desk.home.ok(&["api", "GET", "cues", "-f", "q=a b&c", "--json"]);
    assert!(none.contains("\"total\":0"), "{none}");
    let missing = desk.user.get("/v1/cues/cue_000000000000").text();
    let run = desk.home.run(&["api", "GET", "cues/cue_000000000000"]);
    assert_eq!((run.code, run.stdout, run.stderr.starts_with("cued: ")), (3, missing, true));
    let refused = desk.home.run(&["api", "POST", "/v1/cues", "-f", "name=x", "--json"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    let (out, err): (Value, Value) =
        (serde_json::from_str(&refused.stdout).unwrap(), serde_json::from_str(&refused.stderr).unwrap());
    assert_eq!((&out, &out["error"]["code"]), (&err, &json!("validation_error")));
    let included = desk.home.ok(&["api", "GET", "health", "-i"]);
    let (head, body) = included.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-type: application/json"),
        "{head}"
    );
    assert!(serde_json::from_str::<Value>(body).is_ok(), "{body}");
}

#[test]
fn a_body_is_made_of_fields_or_given_as_text_a_file_or_standard_input() {
    let desk = Desk::new();
    let schedule = r#"schedule={"type": "recurring", "cron": "0 9 * * *"}"#;
    let fields = ["-f", "name=12", "-f", "name=by field", "-f", "transport=worker", "-f", schedule];
    let cue: Value =
        serde_json::from_str(&desk.home.ok(&[&["api", "POST", "cues"], &fields[..]].concat())).unwrap();
    assert_eq!((&cue["name"], &cue["transport"]), (&json!("by field"), &json!("worker")));
    let path = format!("cues/{}", cue["id"].as_str().unwrap());
    let name = || desk.user.get(&format!("/v1/{path}")).expect(200)["name"].clone();
    desk.home.ok(&["api", "PATCH", &path, "-d", r#"{"name": "by text"}"#]);
    assert_eq!(name(), "by text");
    std::fs::write(desk.home.folder().join("body.json"), r#"{"name": "by file"}"#).unwrap();
    desk.home.ok(&["api", "PATCH", &path, "-d", "@body.json"]);
    assert_eq!(name(), "by file");
    let run = desk.home.run_with_stdin(&["api", "PATCH", &path, "-d", "-"], r#"{"name": "by stdin"}"#);
    assert_eq!((run.code, name()), (0, json!("by stdin")), "{run:?}");
    let fire = ["api", "POST", &format!("{path}/fire"), "-H", "Idempotency-Key: once"];
    assert_eq!(desk.home.ok(&fire), desk.home.ok(&fire), "one run");
    assert_eq!(desk.user.get("/v1/executions").expect(200)["total"], 1);
    assert_eq!(desk.home.ok(&["api", "DELETE", &path]), "");
    assert!(desk.home.fails(&["api", "POST", "cues", "-d", "@missing.json"], 2).contains("missing.json"));
    assert!(desk.home.fails(&["api", "GET", "cues", "-d", "{}"], 2).contains("-f"));
    desk.home.fails(&["api", "FETCH", "cues"], 2);
}

#[test]
fn the_key_goes_to_no_other_server_and_is_not_shown() {
    let desk = Desk::new();
    for url in ["http://127.0.0.1:1/v1/cues", "https://evil.example/", "//evil.example/v1/cues"] {
        let usage = desk.home.fails(&["api", "GET", url], 2);
        assert!(usage.contains("give a path and no URL"), "{usage}");
    }
    let usage = desk.home.fails(&["api", "GET", "cues", "-H", "Authorization: Bearer x"], 2);
    assert!(usage.contains("CUED_API_KEY"), "{usage}");
    let curl = desk.home.ok(&["api", "POST", "cues", "-f", "name=it's", "-H", "X-A: b c", "--curl"]);
    let expected = format!(
        "curl -X POST {}/v1/cues -H \"Authorization: Bearer $CUED_API_KEY\" -H 'X-A: b c' -H 'Content-Type: application/json' \
         --data-raw '{{\"name\":\"it'\\''s\"}}'\n",
        desk.server.url()
    );
    assert_eq!(curl, expected);
    let run = desk.home.run(&["api", "GET", "cues", "-v"]);
    assert!(run.stderr.contains("/v1/cues 200") && !run.stderr.contains(desk.user.key()), "{}", run.stderr);
    assert!(desk.home.fails(&["api", "GET", "events"], 2).contains("cued tail"));
}

#[test]
fn without_a_key_the_server_decides() {
    let desk = Desk::new();
    let unsigned = ClientHome::new().env("CUED_URL", desk.server.url());
    assert!(unsigned.ok(&["api", "GET", "health"]).contains("\"status\""));
    let run = unsigned.run(&["api", "GET", "cues"]);
    assert_eq!((run.code, run.stdout.contains("invalid_api_key")), (4, true), "{run:?}");
}

#[test]
fn a_rate_limit_is_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let table = json!({"free": {"cues": 1, "executions": 1, "requests_per_minute": 1, "storage_mb": 1}});
    std::fs::write(&plans, table.to_string()).unwrap();
    let server = Server::start(&["--dev", "--plans", plans.to_str().unwrap()]);
    let user = server.user();
    user.get("/v1/auth/me").expect(200);
    let home = ClientHome::signed_in(&server, &user);
    // A POST without an Idempotency-Key is not sent again, so nothing waits for the end of the limit.
    let run = home.run(&["api", "POST", "cues", "-d", "{}"]);
    assert_eq!((run.code, run.stdout.contains("rate_limit_exceeded")), (6, true), "{run:?}");
    let cancel = ["run", "cancel", "0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e"];
    assert_eq!(home.json_error(&cancel, 6)["code"], "rate_limit_exceeded");
}
