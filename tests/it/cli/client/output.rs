//! The output of all commands: its form, its readers, its errors.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use serde_json::{Value, json};

use super::{Desk, add, start, stored};
use crate::support::client_command::ClientHome;
use crate::support::receiver::Receiver;
use crate::support::receiver::reaction::Reaction;
use crate::support::server::{DEV_UNLIMITED, Server};

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let (_server, user, home) = start();
    let payload = json!({"text": "x".repeat(10_000)});
    for number in 0..30 {
        user.create(&json!({"name": format!("cue {number}"), "transport": "worker", "payload": payload,
                            "schedule": {"type": "recurring", "cron": "0 9 * * *"}}));
    }
    for line in [
        "cue list --all --json",
        "cue list --all -q",
        "cue list --all -o jsonl",
        "cue list --all -o yaml",
        "api GET /v1/cues",
        "completions bash",
        "man serve",
    ] {
        // `head` ends before the command has written all.
        let script = format!("{} {line} | head -c 1", env!("CARGO_BIN_EXE_cued"));
        let output = home.shell(&script).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(output.stderr, b"", "{line}");
    }
}

#[test]
fn a_flag_counts_before_the_form_of_the_environment() {
    let (_server, _user, home) = start();
    let home = home.env("CUED_OUTPUT", "json");
    let json: Value = serde_json::from_str(&home.ok(&["whoami"])).unwrap();
    assert_eq!(home.ok(&["whoami", "-q"]).trim(), json["id"].as_str().unwrap());
    assert_eq!(serde_json::from_str::<Value>(&home.ok(&["whoami", "--json"])).unwrap(), json);
    assert!(home.ok(&["whoami", "-o", "yaml"]).contains("\nemail: "));
    let home = home.env("CUED_OUTPUT", "");
    assert!(serde_json::from_str::<Value>(&home.ok(&["whoami"])).is_err());
    let home = home.env("CUED_OUTPUT", "xml");
    assert!(home.fails(&["whoami"], 2).contains("CUED_OUTPUT"), "the variable is named");
    home.ok(&["whoami", "--json"]);
}

#[test]
fn wrong_usage_is_json_for_a_program() {
    let home = ClientHome::without_server();
    for line in [&["cue", "list", "--limit", "x"][..], &["cue", "no"], &["whoami", "--no"]] {
        assert_eq!(home.json_error(line, 2)["code"], "usage", "{line:?}");
        assert!(home.fails(line, 2).starts_with("error: "), "{line:?}");
    }
}

#[test]
fn a_macro_of_cron_is_set_as_it_is() {
    let (_server, user, home) = start();
    let id = add(&home, "nightly");
    home.ok(&["cue", "set", &id, "schedule.cron=@hourly", "name=@home"]);
    let cue = stored(&user, &id);
    assert_eq!(cue["schedule"]["cron"], "@hourly");
    assert_eq!(cue["name"], "@home");
    fs::write(home.folder().join("size"), "12").unwrap();
    home.ok(&["cue", "set", &id, "payload.size=@size"]);
    assert_eq!(stored(&user, &id)["payload"]["size"], 12);
}

#[test]
fn a_list_shows_the_end_of_a_long_message() {
    let desk = Desk::new();
    let run = desk.fire(&desk.worker_cue("report"));
    let error = format!("{}\nexit code 3\n", "line of a trace\n".repeat(50));
    let report = json!({"success": false, "error": error});
    desk.user.post(&format!("/v1/executions/{run}/outcome"), &report).expect(200);
    let list = desk.home.ok(&["run", "list"]);
    assert!(list.contains("exit code 3") && !list.contains("trace"), "{list}");
    assert!(list.lines().all(|line| line.trim_end().chars().count() < 160), "{list}");
    assert!(desk.home.ok(&["run", "show", &run]).contains("line of a trace"));
}

#[test]
fn a_server_cannot_move_the_cursor_of_the_terminal() {
    let server = Receiver::start();
    let body =
        json!({"error": {"code": "invalid_state", "message": "bad \u{1b}[31mred\u{7}\nline"}}).to_string();
    server.react(Reaction::Full(409, vec![("Content-Type", "application/json".to_owned())], body));
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_some");
    assert_eq!(home.fails(&["cue", "list"], 5), "cued: bad \\u001b[31mred\\u0007\nline\n");
}

#[test]
fn an_answer_that_is_no_object_is_not_that_of_cued() {
    let server = Receiver::start();
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_some");
    for body in ["null", "[]", "<html>"] {
        server.react(Reaction::Full(200, Vec::new(), body.to_owned()));
        for command in ["whoami", "info", "health"] {
            assert!(home.fails(&[command], 1).contains("check --url"), "{command}: {body}");
            assert_eq!(home.json_error(&[command], 1)["code"], "unexpected_answer", "{command}: {body}");
        }
    }
}

#[test]
fn logins_at_the_same_time_keep_the_profile_of_each_other() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let key = user.key();
    let home = &ClientHome::new().env("CUED_URL", server.url());
    let names: Vec<String> = (0..12).map(|number| format!("c{number:02}")).collect();
    thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || {
                let login = home.run_with_stdin(&["login", "--key", "-", "--profile", name], key);
                assert_eq!(login.code, 0, "{login:?}");
            });
        }
    });
    let stored = home.stored();
    let profiles: Vec<&String> = stored["profiles"].as_object().unwrap().keys().collect();
    assert_eq!(profiles, names.iter().collect::<Vec<_>>());
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_an_account_is_made() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_CONFIG", "/proc/none/credentials.json");
    let stderr = home.fails(&["login", &server.url(), "--email", "ann@example.com"], 4);
    assert!(stderr.contains("/proc/none"), "{stderr}");
    server.client().register("ann@example.com");
}

#[test]
fn a_linked_file_is_changed_and_stays_linked() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::new().env("CUED_URL", server.url());
    let linked = home.folder().join("secrets.json");
    home.store(&json!({"current": null, "profiles": {}}));
    fs::rename(home.credentials(), &linked).unwrap();
    symlink(&linked, home.credentials()).unwrap();
    let login = home.run_with_stdin(&["login", "--key", "-"], user.key());
    assert_eq!(login.code, 0, "{login:?}");
    assert!(fs::read_to_string(&linked).unwrap().contains(user.key()));
    assert!(home.credentials().is_symlink());
}
