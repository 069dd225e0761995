//! What every command of the client does when the server refuses it or does not answer.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use cued::cli::Cli;
use serde_json::{Value, json};

use crate::support::client_command::{ClientHome, ClientRun};
use crate::support::receiver::Receiver;
use crate::support::receiver::reaction::Reaction;

/// A run of each command that makes requests and ends by itself.
pub const COMMANDS: [&[&str]; 40] = [
    &["login", "--key", "-"],
    &["logout"],
    &["whoami"],
    &["cue", "list"],
    &["cue", "show", "cue_0123456789ab"],
    &["cue", "add", "--name", "a", "--cron", "0 9 * * *", "--worker"],
    &["cue", "edit", "cue_0123456789ab"],
    &["cue", "set", "cue_0123456789ab", "name=b"],
    &["cue", "pause", "cue_0123456789ab"],
    &["cue", "resume", "cue_0123456789ab"],
    &["cue", "rm", "cue_0123456789ab", "-y"],
    &["cue", "fire", "cue_0123456789ab"],
    &["cue", "next", "cue_0123456789ab"],
    &["cue", "missed", "cue_0123456789ab"],
    &["run", "list"],
    &["run", "show", RUN],
    &["run", "attempts", RUN],
    &["run", "request", RUN],
    &["run", "replay", RUN],
    &["run", "retry", RUN],
    &["run", "cancel", RUN, "-y"],
    &["run", "verify", RUN],
    &["run", "wait", RUN],
    &["open", "--no-browser"],
    &["preview", "0 9 * * *"],
    &["worker", "list"],
    &["worker", "rm", "w1", "-y"],
    &["alert", "list"],
    &["alert", "test"],
    &["account", "usage"],
    &["account", "keys", "list"],
    &["account", "keys", "add", "laptop"],
    &["account", "keys", "revoke", "key_0123456789ab", "-y"],
    &["account", "sessions", "list"],
    &["account", "sessions", "rm", "ses_0123456789ab", "-y"],
    &["account", "secret", "show"],
    &["account", "secret", "regenerate", "-y"],
    &["api", "GET", "/v1/cues"],
    &["health"],
    &["info"],
];

const RUN: &str = "0190a5c1-7b1e-7000-8000-000000000001";

/// Commands of the client that make no request, or go on until they are stopped (tests of their own).
const OTHERS: [&str; 5] = ["completions", "man", "sink", "tail", "work"];

/// Commands that need no key.
const KEYLESS: [&str; 4] = ["api", "health", "info", "login"];

fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    if command.get_subcommands().next().is_none() {
        found.insert(path);
    } else {
        for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
            leaves(part, &path, found);
        }
    }
}

/// The words of a command line that name the command.
fn name(line: &[&str], known: &BTreeSet<String>) -> String {
    let name = (1..=line.len()).map(|words| line[..words].join(" ")).find(|name| known.contains(name));
    name.unwrap_or_else(|| panic!("no command is called {line:?}"))
}

#[test]
fn the_table_has_every_command_of_the_client() {
    let server =
        ["serve", "bench", "user", "key", "billing", "backup", "check", "restore", "promote", "clock"];
    let mut known = BTreeSet::new();
    for command in Cli::command().get_subcommands().filter(|it| !server.contains(&it.get_name())) {
        leaves(command, "", &mut known);
    }
    let mut named: BTreeSet<String> = COMMANDS.iter().map(|line| name(line, &known)).collect();
    named.extend(OTHERS.map(str::to_owned));
    named.extend(["help".to_owned()].into_iter().filter(|it| known.contains(it)));
    assert_eq!(named, known);
}

/// Runs every command against a server that answers each request with this error. The exit code is `code`, standard output
/// is empty, and standard error names the error; with `--json` it is the error as JSON.
#[track_caller]
fn check_all(status: u16, error_code: &str, code: i32) {
    let server = Receiver::start();
    let body = json!({"error": {"code": error_code, "message": "no", "status": status}}).to_string();
    // The pauses between retries have tests of their own.
    let headers = vec![("Content-Type", "application/json".to_owned()), ("Retry-After", "0".to_owned())];
    server.react(Reaction::Full(status, headers, body));
    // A key that is not valid any more is no failure of `logout`, which has tests of its own.
    let wrong: Vec<String> = COMMANDS
        .iter()
        .filter(|line| line[0] != "logout")
        .flat_map(|line| [(*line).to_vec(), [line, &["--json"][..]].concat()])
        .filter_map(|line| {
            let run = run_at(&server.url(), &line);
            let names_the_error = match serde_json::from_str::<Value>(&run.stderr) {
                Ok(error) => error["error"]["code"] == error_code,
                Err(_) => !line.contains(&"--json") && !run.stderr.trim().is_empty(),
            };
            // `api` prints the answer of the server, whatever its status.
            let is_empty = run.stdout.is_empty() != (line[0] == "api");
            let is_right = run.code == code && is_empty && names_the_error;
            (!is_right || run.stderr.contains(KEY)).then(|| format!("{line:?}: {run:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const KEY: &str = "cue_sk_some";

fn run_at(url: &str, line: &[&str]) -> ClientRun {
    let home = ClientHome::new().env("CUED_URL", url);
    let home = if ["login", "logout"].contains(&line[0]) { home } else { home.env("CUED_API_KEY", KEY) };
    if line[0] == "logout" {
        home.store(&json!({"current": "home", "profiles": {"home": {"url": url, "api_key": KEY}}}));
    }
    home.run_with_stdin(line, KEY)
}

#[test]
fn a_command_that_reached_a_limit_exits_with_6() {
    check_all(429, "rate_limit_exceeded", 6);
}

#[test]
fn a_command_with_a_wrong_key_exits_with_4() {
    check_all(401, "invalid_api_key", 4);
}

#[test]
fn a_command_whose_thing_is_unknown_exits_with_3() {
    check_all(404, "cue_not_found", 3);
}

#[test]
fn a_command_that_the_server_refuses_exits_with_5() {
    check_all(409, "invalid_state", 5);
}

#[test]
fn a_command_whose_server_cannot_write_exits_with_1() {
    check_all(503, "storage_unavailable", 1);
}

#[test]
fn a_command_without_a_server_exits_with_1_and_names_the_address() {
    let runs = COMMANDS.map(|line| (line, run_at("http://127.0.0.1:1", line)));
    let is_right =
        |run: &ClientRun| (run.code, run.stdout.as_str()) == (1, "") && run.stderr.contains("127.0.0.1:1");
    let wrong: Vec<_> = runs.iter().filter(|(_, run)| !is_right(run)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_command_without_a_key_exits_with_4_and_names_the_login() {
    let home = ClientHome::new().env("CUED_URL", "http://127.0.0.1:1");
    let lines = COMMANDS.iter().filter(|line| !KEYLESS.contains(&line[0]));
    let runs: Vec<_> = lines.map(|line| (line, home.run(line))).collect();
    let is_right =
        |run: &ClientRun| (run.code, run.stdout.as_str()) == (4, "") && run.stderr.contains("cued login");
    let wrong: Vec<_> = runs.iter().filter(|(_, run)| !is_right(run)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
