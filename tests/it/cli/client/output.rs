//! The output of commands: formats, hostile texts, and `cued api`.

use std::os::unix::fs::symlink;

use cued::domain::text::is_order_mark;
use serde_json::Map;

use crate::cli::client::failures::COMMANDS;
use crate::cli::client::{Desk, start};
use crate::support::*;

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let (_server, user, home) = start();
    let payload = json!({"text": "x".repeat(10_000)});
    for number in 0..30 {
        let cue = worker_cue(&format!("cue {number}"), YEARLY);
        user.create(&with(cue, json!({ "payload": payload })));
    }
    for line in
        "cue list --all --json | cue list --all -q | cue list --all -o jsonl | cue list --all -o yaml | \
        api GET /v1/cues | completions bash | man serve"
            .split(" | ")
    {
        // `head` ends before the command has written all.
        let script = format!("{} {line} | head -c 1", env!("CARGO_BIN_EXE_cued"));
        let output = home.shell(&script).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(output.stderr, b"", "{line}");
    }
}

#[test]
fn a_list_is_whole_for_a_program_and_short_for_a_person() {
    let desk = Desk::new();
    let cues: Vec<String> =
        (0..103).map(|number| desk.worker_cue(&format!("cue {number}"))).collect();
    cues.iter().for_each(|cue| drop(desk.fire(cue)));
    for list in ["cue list", "run list"] {
        let run = |flags: &str| desk.home.run(&words(&format!("{list} {flags}")));
        for (flags, lines) in [("", 104), ("-q", 103), ("-o jsonl", 103), ("-o wide", 104)] {
            let run = run(flags);
            assert_eq!(run.stdout.lines().count(), lines, "{list} {flags}");
            assert_eq!(run.stderr.as_str(), "", "{list} {flags}");
        }
        let json: Value = serde_json::from_str(&run("--json").stdout).unwrap();
        assert_eq!(
            json[if list == "cue list" { "cues" } else { "executions" }].as_array().unwrap().len(),
            103
        );
        for (flags, lines, note) in [("", 4, "3 of 103; --all shows the rest\n"), ("-q", 3, "")] {
            let run = run(&format!("--limit 3 {flags}"));
            assert_eq!(run.stdout.lines().count(), lines, "{list} {flags}");
            assert_eq!(run.stderr.as_str(), note, "{list} {flags}");
        }
        for (flags, note) in [("", true), ("-q", false), ("--json", false)] {
            let Some(mut command) = desk.home.at_terminal(&format!("{list} {flags}")) else {
                continue;
            };
            let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert_eq!(
                shown.contains("20 of 103; --all shows the rest"),
                note,
                "{list} {flags}: {shown}"
            );
        }
    }
}

#[test]
fn a_list_that_is_cut_for_a_program_says_so() {
    let server = Receiver::start();
    let home = home(&server);
    let alerts = vec![json!({"id": "alert", "type": "run_failed"}); 100];
    let page =
        json!({"alerts": alerts, "total": 12_345, "limit": 100, "offset": 0, "has_more": true});
    server.react(json_answer(200, &page));
    for (flags, note) in [("-q", "10000 of 12345; --all shows the rest\n"), ("-q --limit 7", "")] {
        let run = home.run(&words(&format!("alert list {flags}")));
        assert_eq!((run.code, run.stderr.as_str()), (0, note), "{flags}");
    }
    assert_eq!(server.count(), 101, "no more than are needed");
}

#[test]
fn an_answer_that_is_no_object_is_not_that_of_cued() {
    let server = Receiver::start();
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_some");
    for body in ["null", "[]", "<html>"] {
        server.react(Reaction::Full(200, Vec::new(), body.to_owned()));
        for command in ["whoami", "info", "health"] {
            assert!(home.fails(&[command], 1).contains("check --url"), "{command}: {body}");
            assert_eq!(
                home.json_error(&[command], 1)["code"],
                "unexpected_answer",
                "{command}: {body}"
            );
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

/// The title of the terminal, a colour, and a text in another order.
const EVIL: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{7f}\u{202e}\u{8}";

/// Fields of answers that are texts, and those that are lists of objects.
const TEXTS: &str = "address api_key api_url at body bot_token callback cause chat_id code created_at cue_id cue_name \
    description device device_code email error_message execution_id id key last_error last_seen local mail \
    message method name next_run note offset outcome plan prefix public_url reason registration response \
    result schedule scheduled_for status task to token transport type url user user_code version via \
    webhook_secret why worker_id";
const LISTS: &str = "alerts attempts channels cues detail executions keys missed occurrences sessions transitions warnings workers";

fn thing() -> Map<String, Value> {
    words(TEXTS).into_iter().map(|field| (field.to_owned(), json!(EVIL))).collect()
}

fn answer() -> Value {
    let mut answer = thing();
    answer.extend(words(LISTS).into_iter().map(|field| (field.to_owned(), json!([thing()]))));
    answer.insert("headers".to_owned(), json!([[EVIL, EVIL]]));
    answer.insert("upcoming".to_owned(), json!([EVIL]));
    Value::Object(answer)
}

fn json_answer(status: u16, body: &Value) -> Reaction {
    let headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("X-Request-Id", "\u{9b}31m".to_owned()),
    ];
    Reaction::Full(status, headers, body.to_string())
}

/// The answers of the server: a result, an error, a redirection, no JSON.
fn reactions() -> [Reaction; 4] {
    let error =
        json!({"error": {"code": EVIL, "message": EVIL}, "detail": [{"loc": [EVIL], "msg": EVIL}]});
    [
        json_answer(200, &answer()),
        json_answer(409, &error),
        Reaction::Full(
            302,
            vec![("Location", format!("http://x/{}", "\u{9b}31m\u{202e}"))],
            EVIL.to_owned(),
        ),
        Reaction::Full(400, vec![("Content-Type", "text/html".to_owned())], EVIL.to_owned()),
    ]
}

/// The home of a person who uses the server, without colours of the program's own.
fn home(server: &Receiver) -> ClientHome {
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_some");
    home.env("NO_COLOR", "1").env("TERM", "xterm").env("EDITOR", "true")
}

/// The text has what a terminal would execute, beside the end of a progress bar.
fn is_unsafe(text: &str) -> bool {
    let is_control = |char: char| char.is_control() && !matches!(char, '\n' | '\r' | '\t');
    text.replace("\r\u{1b}[K", "").contains(|char| is_control(char) || is_order_mark(char))
}

/// The commands that end by themselves after any answer, and need no person.
fn commands() -> impl Iterator<Item = &'static [&'static str]> {
    COMMANDS.into_iter().filter(|line| !line.starts_with(&["run", "wait"]) && line[0] != "login")
}

/// Runs every command in some forms of its output for each reaction of the server. `output` returns a text that is not
/// safe.
fn assert_all_safe(
    formats: [&[&str]; 4],
    output: impl Fn(&ClientHome, &[&str], &str) -> Option<String>,
) {
    let server = Receiver::start();
    let home = home(&server);
    let mut wrong = Vec::new();
    for (reaction, formats) in reactions().into_iter().zip(formats) {
        server.react(reaction);
        for (line, format) in
            commands().flat_map(|line| formats.iter().map(move |format| (line, *format)))
        {
            let format = if line[0] == "api" { "json" } else { format };
            wrong.extend(
                output(&home, line, format).map(|text| format!("{line:?} {format}: {text}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_of_a_server_controls_what_reads_a_pipe() {
    let escaped = std::cell::Cell::new(0);
    let formats =
        [&["table", "wide", "json", "yaml", "id"][..], &["wide", "json"], &["wide"], &["wide"]];
    assert_all_safe(formats, |home, line, format| {
        let run = home.run(&[line, &["--verbose", "--output", format]].concat());
        escaped.set(
            escaped.get()
                + usize::from(format!("{}{}", run.stdout, run.stderr).contains("u009b31m")),
        );
        // Of what is no JSON, `api` is for a program that wants the bytes.
        let is_raw = line[0] == "api" && run.stdout == EVIL;
        (is_unsafe(&run.stdout) && !is_raw || is_unsafe(&run.stderr)).then(|| format!("{run:?}"))
    });
    assert!(escaped.get() > 100, "only {escaped:?} runs showed a text of the server");
    let server = Receiver::start();
    server.react(json_answer(200, &answer()));
    assert_eq!(home(&server).json(&["cue", "show", "cue_0123456789ab"]), answer(), "the same JSON");
}

#[test]
fn nothing_of_a_server_controls_the_terminal() {
    assert_all_safe([&["table", "json"][..], &["table"], &["table"], &[]], |home, line, format| {
        let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
        let mut command = home.at_terminal(&format!("{} --output {format}", words.join(" ")))?;
        command.stdout(Stdio::piped());
        let output = bounded(&format!("{line:?}"), move || command.output().unwrap());
        let shown = String::from_utf8(output.stdout).unwrap();
        (is_unsafe(&shown) || shown.is_empty()).then_some(shown)
    });
}

#[test]
fn nothing_of_a_stream_or_a_delivery_controls_the_terminal() {
    let server = Receiver::start();
    let home = home(&server);
    let event = Value::Object(thing());
    let stream = format!(
        "event: hello\nid: 1-1\ndata: {event}\n\nevent: execution.failed\nid: 1-2\ndata: {event}\n\n"
    );
    let headers = vec![("Content-Type", "text/event-stream".to_owned())];
    let stream = Reaction::Full(200, headers, stream);
    server.react(Reaction::choose(move |request| match request.path.contains("/events") {
        true => stream.clone(),
        false => json_answer(200, &answer()),
    }));
    for format in ["wide", "json", "yaml"] {
        let mut tail = LiveCommand::start(&home, &["tail", "--output", format]);
        let lines = tail.lines(if format == "yaml" { 4 } else { 1 });
        tail.wait_for_note("connection lost");
        assert!(
            !lines.iter().any(|line| is_unsafe(line)) && !is_unsafe(&tail.stderr),
            "{lines:?} {}",
            tail.stderr
        );
        let environment = ClientHome::new().env("CUED_WEBHOOK_SECRET", "whsec_AAAA");
        let sink = Sink::start(&environment, &["--exit-after", "1", "-o", format]);
        assert_eq!(sink.post(&[("X-A", "\u{9b}31m".to_owned())], EVIL).status, 200);
        let (_, stdout, stderr) = sink.end();
        assert!(
            !stdout.is_empty() && !is_unsafe(&stdout) && !is_unsafe(&stderr),
            "{stdout:?} {stderr:?}"
        );
    }
    server.react(reactions()[1].clone());
    let mut work = LiveCommand::start(&home, &["work", "--task", "t", "--", "true"]);
    work.wait_for_note("31m");
    assert!(!is_unsafe(&work.stderr), "{:?}", work.stderr);
}
