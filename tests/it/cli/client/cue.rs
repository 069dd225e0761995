//! `cued cue …` without an editor.

use std::fs;

use serde_json::{Value, json};

use super::{add, start, stored};
use crate::support::client_command::ClientHome;
use crate::support::server::Server;

fn worker_cue(name: &str) -> Value {
    json!({"name": name, "schedule": {"type": "recurring", "cron": "0 9 * * *"}, "transport": "worker"})
}

#[test]
fn a_cue_is_added_with_all_its_fields() {
    let (_server, user, home) = start();
    fs::write(home.folder().join("token"), "Bearer t\n").unwrap();
    let run = home.run(&[
        "cue",
        "add",
        "--name",
        "nightly",
        "--cron",
        "0 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--catch-up",
        "none",
        "--url",
        "http://127.0.0.1:9/hook",
        "--method",
        "put",
        "--header",
        "X-A: a: b",
        "--header",
        "Authorization: @token",
        "--payload",
        "{a: 1, big: 123456789012345678901234567890}",
        "--retry",
        "3:1,2",
        "--on-failure",
        "pause,http://127.0.0.1:9/f",
        "--description",
        "d",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    let cue = &user.get("/v1/cues").expect(200)["cues"][0];
    let id = cue["id"].as_str().unwrap();
    let expected = format!(
        "id        {id}\nname      nightly\nschedule  At 02:00, every day, Europe/Berlin\n\
         next run  2030-01-01 02:00:00+01:00\n"
    );
    assert_eq!((run.stdout, run.stderr), (expected, String::new()));
    let cue = stored(&user, id);
    assert_eq!(cue["schedule"]["timezone"], "Europe/Berlin");
    assert_eq!(cue["schedule"]["catch_up"], "none");
    assert_eq!(cue["description"], "d");
    assert_eq!(cue["retry"], json!({"max_attempts": 3, "backoff_minutes": [1, 2]}));
    assert_eq!(cue["on_failure"], json!({"email": false, "pause": true, "webhook": "http://127.0.0.1:9/f"}));
    assert_eq!(cue["payload"]["big"].to_string(), "123456789012345678901234567890");
    let callback = &cue["callback"];
    assert_eq!(callback["headers"], json!({"Authorization": "Bearer t", "X-A": "a: b"}));
    assert_eq!((&callback["url"], &callback["method"]), (&json!("http://127.0.0.1:9/hook"), &json!("PUT")));
}

#[test]
fn a_worker_cue_has_its_task_and_the_warning_is_on_standard_error() {
    let (_server, user, home) = start();
    let run = home.run(&[
        "cue",
        "add",
        "--name",
        "w",
        "--every",
        "15m",
        "--worker",
        "--task",
        "t",
        "--claim-within",
        "30",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.starts_with("warning: No worker"), "{run:?}");
    assert!(run.stdout.contains("schedule  Every 15 minutes, UTC\n"), "{run:?}");
    let list = user.get("/v1/cues").expect(200);
    let cue = stored(&user, list["cues"][0]["id"].as_str().unwrap());
    assert_eq!((&cue["payload"], &cue["claim_within_minutes"]), (&json!({"task": "t"}), &json!(30)));
    assert_eq!((&cue["schedule"]["cron"], &cue["transport"]), (&json!("*/15 * * * *"), &json!("worker")));
}

#[test]
fn the_payload_comes_from_an_argument_a_file_or_standard_input() {
    let (_server, user, home) = start();
    fs::write(home.folder().join("p.yaml"), "from: file\n").unwrap();
    let add = ["cue", "add", "--name", "x", "--at", "2030-02-01T10:00", "--worker", "-q", "--payload"];
    let payload = |id: &str| stored(&user, id.trim())["payload"].clone();
    assert_eq!(payload(&home.ok(&[&add[..], &["@p.yaml"]].concat())), json!({"from": "file"}));
    let run = home.run_with_stdin(&[&add[..], &["-"]].concat(), "{\"from\": \"stdin\"}");
    assert_eq!(payload(&run.stdout), json!({"from": "stdin"}));
    let error = home.fails(&[&add[..], &["{a: 1, a: 2}"]].concat(), 2);
    assert_eq!(error, "cued: --payload: 1:8: the key \"a\" is repeated\n");
    assert!(home.fails(&[&add[..], &["@none"]].concat(), 2).contains("cannot read none"));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
}

#[test]
fn wrong_flags_of_a_new_cue_are_explained() {
    let (_server, user, home) = start();
    let add = |flags: &[&str]| home.fails(&[&["cue", "add", "--name", "x"], flags].concat(), 2);
    assert!(add(&["--worker"]).contains("--cron, --at or --every"));
    assert!(add(&["--every", "5m"]).contains("--url URL or --worker"));
    assert!(add(&["--every", "45m", "--worker"]).contains("30m is even"));
    assert!(add(&["--every", "5m", "--cron", "* * * * *", "--worker"]).contains("cannot be used with"));
    assert!(add(&["--every", "5m", "--url", "http://x/", "--worker"]).contains("cannot be used with"));
    assert!(add(&["--every", "5m", "--worker", "--retry", "x"]).contains("4:1,5,15"));
    assert!(add(&["--every", "5m", "--url", "http://x/", "--header", "x"]).contains("has no colon"));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn a_refused_cron_expression_has_a_mark_below_the_fault() {
    let (_server, _user, home) = start();
    let add = ["cue", "add", "--name", "x", "--worker", "--cron", "0 25 * * *"];
    let error = home.fails(&add, 5);
    assert!(error.ends_with("\n  0 25 * * *\n    ^^\n"), "{error}");
    assert_eq!(home.json_error(&add, 5)["span"], json!([2, 4]));
}

#[test]
fn the_server_of_a_new_cue_is_named_by_a_flag_of_its_own() {
    let (server, user, _home) = start();
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let url = server.url();
    let arguments = [
        "cue",
        "add",
        "--name",
        "x",
        "--every",
        "1h",
        "--url",
        "http://127.0.0.1:9/",
        "--server",
        &url,
        "-q",
    ];
    home.ok(&arguments);
    assert_eq!(home.json(&["cue", "list", "--url", &url])["total"], 1);
    assert_eq!(home.json(&["cue", "list", "--server", &url])["total"], 1);
    home.fails(&["cue", "list"], 1);
}

#[test]
fn cues_are_listed_by_filters_and_in_every_form() {
    let (_server, user, home) = start();
    let ids: Vec<String> = ["b", "a", "c"].map(|name| add(&home, name)).to_vec();
    home.ok(&["cue", "pause", "c"]);
    let table = home.ok(&["cue", "list", "--sort", "name"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID                NAME  STATUS  SCHEDULE   NEXT RUN"), "{table}");
    assert!(
        lines[1].starts_with(&format!("{}  a     active  0 9 * * *  2030-01-01 09:00:00+00:00  0", ids[1])),
        "{table}"
    );
    assert!(lines[3].contains("paused"), "{table}");
    assert_eq!(
        home.ok(&["cue", "list", "--sort", "-name", "-q"]),
        format!("{}\n{}\n{}\n", ids[2], ids[0], ids[1])
    );
    assert_eq!(home.ok(&["cue", "list", "--status", "paused", "-q"]), format!("{}\n", ids[2]));
    assert_eq!(home.ok(&["cue", "list", "--search", "A", "-o", "id"]), format!("{}\n", ids[1]));
    assert_eq!(home.ok(&["cue", "list", "--transport", "webhook", "-q"]), "");
    assert_eq!(home.ok(&["cue", "list", "--failing", "-q"]), "");
    assert_eq!(home.json(&["cue", "list"]), user.get("/v1/cues").expect(200));
    assert!(home.ok(&["cue", "list", "-o", "wide"]).contains("RECENT"));
    assert_eq!(home.ok(&["cue", "list", "-o", "jsonl"]).lines().count(), 3);
    assert!(home.ok(&["cue", "list", "-o", "yaml"]).starts_with("cues:\n"));
    let run = home.run(&["cue", "list", "--limit", "2"]);
    assert_eq!(run.stderr, "2 of 3; --all shows the rest\n");
    assert!(home.fails(&["cue", "list", "--status", "x"], 2).contains("[possible values: active"));
}

#[test]
fn all_cues_are_listed_over_pages() {
    let (_server, user, home) = start();
    for number in 0..105 {
        user.create(&worker_cue(&format!("n{number}")));
    }
    assert_eq!(home.ok(&["cue", "list", "--all", "-q"]).lines().count(), 105);
    assert_eq!(home.json(&["cue", "list", "--all"])["cues"].as_array().unwrap().len(), 105);
    // The exact name is on a later page of the search for it.
    assert!(home.ok(&["cue", "show", "n0"]).contains("name          n0\n"));
}

#[test]
fn a_cue_is_named_by_its_id_or_its_only_name() {
    let (_server, user, home) = start();
    let id = add(&home, "Nightly");
    assert_eq!(home.json(&["cue", "show", "Nightly"])["id"], json!(id));
    assert_eq!(home.json(&["cue", "show", &id])["id"], json!(id));
    assert!(home.fails(&["cue", "show", "nightly"], 3).contains("no cue has the id or name \"nightly\""));
    assert_eq!(home.json_error(&["cue", "show", "cue_000000000000"], 3)["code"], "cue_not_found");
    let second = user.create(&worker_cue("Nightly"))["id"].as_str().unwrap().to_owned();
    let error = home.fails(&["cue", "show", "Nightly"], 5);
    assert!(error.contains(&id) && error.contains(&second), "{error}");
    assert_eq!(home.json_error(&["cue", "rm", "Nightly", "-y"], 5)["code"], "refused");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
}

#[test]
fn a_cue_is_shown_with_its_latest_runs() {
    let (_server, _user, home) = start();
    let id = add(&home, "n");
    let execution = home.ok(&["cue", "fire", "n", "-q"]);
    let shown = home.ok(&["cue", "show", "n"]);
    assert!(
        shown.starts_with(&format!("id            {id}\nname          n\nstatus        active\n")),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("latest runs   {}  2030-01-01 00:00:00+00:00  pending\n", execution.trim())),
        "{shown}"
    );
    assert!(home.ok(&["cue", "show", "n", "-o", "yaml"]).contains("\nname: \"n\"\n"), "as YAML");
}

#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let (_server, user, home) = start();
    user.create(&worker_cue("a\u{1b}[2Jb\u{202e}c"));
    for arguments in [&["cue", "list"][..], &["cue", "list", "-o", "yaml"], &["cue", "pause", "--all", "-y"]]
    {
        let printed = home.ok(arguments);
        assert!(!printed.contains('\u{1b}') && !printed.contains('\u{202e}'), "{printed:?}");
    }
    let error = home.fails(&["cue", "rm", "a\u{1b}[2Jb\u{202e}c"], 2);
    assert!(!error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error:?}");
}

#[test]
fn missed_runs_are_listed_by_gaps() {
    let (mut server, _user, _home) = start();
    let user = server.user();
    let cue = json!({"name": "m", "schedule": {"type": "recurring", "cron": "0 * * * *", "catch_up": "none"}, "transport": "worker"});
    user.create(&cue);
    server.stop();
    server.restart_at("2030-01-01T05:30:00Z");
    let user = user.at(server.addr());
    user.settle();
    let home = ClientHome::signed_in(&server, &user);
    let expected = "FIRST                      LAST                       COUNT  REASON\n\
                    2030-01-01 01:00:00+00:00  2030-01-01 05:00:00+00:00  5      downtime\n";
    assert_eq!(home.ok(&["cue", "missed", "m"]), expected);
    assert_eq!(home.json(&["cue", "missed", "m"])["missed"][0]["count"], 5);
}

#[test]
fn each_failure_has_its_exit_code() {
    let (server, user, _home) = start();
    let add = ["cue", "add", "--name", "x", "--every", "1h", "--worker"];
    let commands = [
        &["cue", "list"][..],
        &["cue", "show", "x"],
        &["cue", "next", "x"],
        &["cue", "missed", "x"],
        &["cue", "edit", "x"],
        &["cue", "set", "x", "name=y"],
        &["cue", "pause", "x"],
        &["cue", "resume", "--all"],
        &["cue", "rm", "x", "-y"],
        &["cue", "fire", "x"],
        &add,
    ];
    let alone = ClientHome::without_server();
    let unknown = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    let home = ClientHome::signed_in(&server, &user);
    for command in &commands[..4] {
        assert_eq!(alone.json_error(command, 1)["code"], "unreachable");
    }
    for command in commands {
        assert_eq!(unknown.json_error(command, 4)["code"], "invalid_api_key", "{command:?}");
    }
    for command in &commands[1..10] {
        if command[1] != "resume" {
            assert_eq!(home.json_error(command, 3)["code"], "not_found", "{command:?}");
        }
    }
}

#[test]
fn a_limit_has_its_own_exit_code() {
    let server = Server::start(&["--dev"]);
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    let mut created = 0;
    while user.post("/v1/cues", &worker_cue("x")).status == 201 {
        created += 1;
        assert!(created < 1_000, "the plan has a limit of cues");
    }
    let add = ["cue", "add", "--name", "x", "--every", "1h", "--worker"];
    assert_eq!(home.json_error(&add, 6)["code"], "cue_limit_exceeded");
}
