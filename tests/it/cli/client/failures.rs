//! Failed requests, exit codes, and secrets that are never shown.

use clap::CommandFactory as _;
use cued::cli::Cli;

use crate::support::*;

/// A run of each command that makes requests and ends by itself.
pub const COMMANDS: [&[&str]; 51] = [
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
    &["cue", "test", "cue_0123456789ab"],
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
    &["flow", "list"],
    &["alert", "list"],
    &["alert", "test"],
    &["channel", "list"],
    &["channel", "show", "chn_0123456789ab"],
    &["channel", "add", "ntfy", "--url", "https://ntfy.sh/backups"],
    &["channel", "set", "chn_0123456789ab", "--name", "b"],
    &["channel", "test", "chn_0123456789ab"],
    &["channel", "rm", "chn_0123456789ab"],
    &["apply", "-f", FILE],
    &["diff", "-f", FILE],
    &["export"],
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

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/cli/client/cues.yaml");

const RUN: &str = "0190a5c1-7b1e-7000-8000-000000000001";

/// Commands of the client that make no request, or go on until they are stopped (tests of their own).
const OTHERS: [&str; 8] =
    ["completions", "docs", "import crontab", "man", "mcp", "sink", "tail", "work"];

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
    let name =
        (1..=line.len()).map(|words| line[..words].join(" ")).find(|name| known.contains(name));
    name.unwrap_or_else(|| panic!("no command is called {line:?}"))
}

#[test]
fn the_table_has_every_command_of_the_client() {
    let server =
        ["serve", "user", "key", "billing", "backup", "check", "restore", "promote", "clock"];
    let mut known = BTreeSet::new();
    for command in Cli::command().get_subcommands().filter(|it| !server.contains(&it.get_name())) {
        leaves(command, "", &mut known);
    }
    let mut named: BTreeSet<String> = COMMANDS.iter().map(|line| name(line, &known)).collect();
    named.extend(OTHERS.map(str::to_owned));
    named.extend(["help", "complete"].map(str::to_owned));
    assert_eq!(named, known);
}

const KEY: &str = "cue_sk_some";

fn run_at(url: &str, line: &[&str]) -> ClientRun {
    let home = ClientHome::new().env("CUED_URL", url);
    let home =
        if ["login", "logout"].contains(&line[0]) { home } else { home.env("CUED_API_KEY", KEY) };
    if line[0] == "logout" {
        home.store(&json!({"current": "home", "profiles": {"home": {"url": url, "api_key": KEY}}}));
    }
    home.run_with_stdin(line, KEY)
}

/// The exit code is that of the error, standard output is empty, and standard error names the error; with `--json` it
/// is the error as JSON.
#[test]
fn every_error_of_a_server_has_its_exit_code_in_every_command() {
    let server = Receiver::start();
    let mut wrong = Vec::new();
    for (status, error_code, code) in [
        (429, "rate_limit_exceeded", 6),
        (401, "invalid_api_key", 4),
        (404, "cue_not_found", 3),
        (409, "invalid_state", 5),
        (503, "storage_unavailable", 1),
    ] {
        let body =
            json!({"error": {"code": error_code, "message": "no", "status": status}}).to_string();
        // The pauses between retries have tests of their own.
        let headers =
            vec![("Content-Type", "application/json".to_owned()), ("Retry-After", "0".to_owned())];
        server.react(Reaction::Full(status, headers, body));
        // A key that is not valid any more is no failure of `logout`, which has tests of its own.
        let lines = COMMANDS.iter().filter(|line| line[0] != "logout");
        for line in lines.flat_map(|line| [(*line).to_vec(), [line, &["--json"][..]].concat()]) {
            let run = run_at(&server.url(), &line);
            let names_the_error = match serde_json::from_str::<Value>(&run.stderr) {
                Ok(error) => error["error"]["code"] == error_code,
                Err(_) => !line.contains(&"--json") && !run.stderr.trim().is_empty(),
            };
            // `api` prints the answer of the server, whatever its status.
            let is_empty = run.stdout.is_empty() != (line[0] == "api");
            if run.code != code || !is_empty || !names_the_error || run.stderr.contains(KEY) {
                wrong.push(format!("{status} {line:?}: {run:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_without_a_server_exits_with_1_and_names_the_address() {
    // Each tries again for more than a second.
    let runs = thread::scope(|scope| {
        let run = |line| (line, scope.spawn(move || run_at("http://127.0.0.1:1", line)));
        COMMANDS.map(run).map(|(line, run)| (line, run.join().unwrap()))
    });
    let is_right = |run: &ClientRun| {
        (run.code, run.stdout.as_str()) == (1, "") && run.stderr.contains("127.0.0.1:1")
    };
    let wrong: Vec<_> = runs.iter().filter(|(_, run)| !is_right(run)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let said =
        "cued: cannot reach http://127.0.0.1:1: connection refused; is `cued serve` running there?";
    assert!(runs[0].1.stderr.starts_with(said), "{:?}", runs[0].1);
}

#[test]
fn a_command_without_a_key_exits_with_4_and_names_the_login() {
    let home = ClientHome::new().env("CUED_URL", "http://127.0.0.1:1");
    let lines = COMMANDS.iter().filter(|line| !KEYLESS.contains(&line[0]));
    let runs: Vec<_> = lines.map(|line| (line, home.run(line))).collect();
    let is_right = |run: &ClientRun| {
        (run.code, run.stdout.as_str()) == (4, "") && run.stderr.contains("cued login")
    };
    let wrong: Vec<_> = runs.iter().filter(|(_, run)| !is_right(run)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_output_and_no_log_has_the_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let given = ClientHome::new().env("CUED_URL", server.url());
    let login = given.run_with_stdin(&["login", "--key", "-", "--verbose"], user.key());
    assert_eq!(login.code, 0, "{}", login.stderr);
    assert_contains(&login.stderr, &["GET ", "/v1/auth/me 200"]);
    let elsewhere = ClientHome::signed_in(&server, &user).env("CUED_URL", "http://127.0.0.1:1");
    let unknown = ClientHome::new()
        .env("CUED_URL", server.url())
        .env("CUED_API_KEY", format!("{}0", user.key()));
    let runs = [
        login,
        home.run(&["whoami", "--verbose"]),
        home.run(&["whoami", "--curl"]),
        home.run(&["account", "keys", "--json", "--verbose"]),
        home.run(&["account", "keys", "revoke", user.key()]),
        given.run(&["whoami"]),
        given.run(&["logout", "--curl"]),
        elsewhere.run(&["whoami", "--verbose"]),
        unknown.run(&["whoami", "--verbose"]),
    ];
    for run in runs {
        assert!(!run.stdout.contains(user.key()) && !run.stderr.contains(user.key()), "{run:?}");
    }
    assert!(!server.log().contains(user.key()));
    let shown = home.ok(&["whoami", "--curl"]);
    assert!(shown.contains("Bearer $CUED_API_KEY"), "{shown}");
}

#[test]
fn the_list_of_processes_shows_no_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::new();
    let login = home.run_with_stdin(&["login", &server.url(), "--key", "-"], user.key());
    assert_eq!(login.code, 0, "{}", login.stderr);
    let tail = LiveCommand::following(&home, &["tail"]);
    let mut work = LiveCommand::start(&home, &["work", "--task", "report", "--", "true"]);
    work.wait_for_note("worker started");
    // What `ps` shows to every user.
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    let lines: Vec<String> =
        processes.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect();
    assert!(lines.iter().any(|line| line.contains("cued tail ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("cued work --task report ")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(user.key())), "{lines:?}");
    drop(tail);
}
