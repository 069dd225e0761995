//! A server whose every text tries to control the terminal of its client.

use std::process::Stdio;

use cued::domain::text::is_order_mark;
use serde_json::{Map, Value, json};

use crate::cli::client::failures::COMMANDS;
use crate::support::client_command::ClientHome;
use crate::support::live_command::LiveCommand;
use crate::support::receiver::Receiver;
use crate::support::receiver::reaction::Reaction;
use crate::support::server::bounded;
use crate::support::sink::Sink;

/// The title of the terminal, a colour, and a text in another order.
const EVIL: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{7f}\u{202e}\u{8}";

/// Fields of answers that are texts, and those that are lists of objects.
const TEXTS: [&str; 47] = [
    "address",
    "api_key",
    "at",
    "body",
    "callback",
    "cause",
    "code",
    "created_at",
    "cue_id",
    "cue_name",
    "description",
    "device",
    "device_code",
    "email",
    "error_message",
    "execution_id",
    "id",
    "key",
    "last_seen",
    "local",
    "mail",
    "message",
    "method",
    "name",
    "next_run",
    "note",
    "offset",
    "outcome",
    "plan",
    "prefix",
    "public_url",
    "reason",
    "registration",
    "result",
    "schedule",
    "scheduled_for",
    "status",
    "task",
    "transport",
    "type",
    "url",
    "user_code",
    "version",
    "via",
    "webhook_secret",
    "why",
    "worker_id",
];
const LISTS: [&str; 12] = [
    "alerts",
    "attempts",
    "cues",
    "detail",
    "executions",
    "keys",
    "missed",
    "occurrences",
    "sessions",
    "transitions",
    "warnings",
    "workers",
];

fn thing() -> Map<String, Value> {
    TEXTS.iter().map(|field| ((*field).to_owned(), json!(EVIL))).collect()
}

fn answer() -> Value {
    let mut answer = thing();
    answer.extend(LISTS.iter().map(|field| ((*field).to_owned(), json!([thing()]))));
    answer.insert("headers".to_owned(), json!([[EVIL, EVIL]]));
    answer.insert("upcoming".to_owned(), json!([EVIL]));
    Value::Object(answer)
}

fn json_answer(status: u16, body: &Value) -> Reaction {
    let headers =
        vec![("Content-Type", "application/json".to_owned()), ("X-Request-Id", "\u{9b}31m".to_owned())];
    Reaction::Full(status, headers, body.to_string())
}

/// The answers of the server: a result, an error, a redirection, no JSON.
fn reactions() -> [Reaction; 4] {
    let error = json!({"error": {"code": EVIL, "message": EVIL}, "detail": [{"loc": [EVIL], "msg": EVIL}]});
    [
        json_answer(200, &answer()),
        json_answer(409, &error),
        Reaction::Full(302, vec![("Location", format!("http://x/{}", "\u{9b}31m\u{202e}"))], EVIL.to_owned()),
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

#[test]
fn nothing_of_a_server_controls_what_reads_a_pipe() {
    let server = Receiver::start();
    let home = home(&server);
    let (mut wrong, mut escaped) = (Vec::new(), 0);
    for (reaction, formats) in reactions().into_iter().zip([
        &["table", "wide", "json", "yaml", "id"][..],
        &["wide", "json"],
        &["wide"],
        &["wide"],
    ]) {
        server.react(reaction);
        for (line, format) in commands().flat_map(|line| formats.iter().map(move |format| (line, *format))) {
            let format = if line[0] == "api" { "json" } else { format };
            let run = home.run(&[line, &["--verbose", "--output", format]].concat());
            // Of what is no JSON, `api` is for a program that wants the bytes.
            let is_raw = line[0] == "api" && run.stdout == EVIL;
            if is_unsafe(&run.stdout) && !is_raw || is_unsafe(&run.stderr) {
                wrong.push(format!("{line:?} {format}: {run:?}"));
            }
            escaped += usize::from(format!("{}{}", run.stdout, run.stderr).contains("u009b31m"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(escaped > 100, "only {escaped} runs showed a text of the server");
    server.react(json_answer(200, &answer()));
    assert_eq!(home.json(&["cue", "show", "cue_0123456789ab"]), answer(), "the same JSON");
}

#[test]
fn nothing_of_a_server_controls_the_terminal() {
    let server = Receiver::start();
    let home = home(&server);
    let mut wrong = Vec::new();
    for (reaction, formats) in
        reactions().into_iter().zip([&["table", "json"][..], &["table"], &["table"], &[]])
    {
        server.react(reaction);
        for (line, format) in commands().flat_map(|line| formats.iter().map(move |format| (line, *format))) {
            let format = if line[0] == "api" { "json" } else { format };
            let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
            let Some(mut command) = home.at_terminal(&format!("{} --output {format}", words.join(" ")))
            else {
                return;
            };
            command.stdout(Stdio::piped());
            let output = bounded(&format!("{line:?}"), move || command.output().unwrap());
            let shown = String::from_utf8(output.stdout).unwrap();
            if is_unsafe(&shown) || shown.is_empty() {
                wrong.push(format!("{line:?} {format}: {shown:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
        assert!(!stdout.is_empty() && !is_unsafe(&stdout) && !is_unsafe(&stderr), "{stdout:?} {stderr:?}");
    }
    server.react(reactions()[1].clone());
    let mut work = LiveCommand::start(&home, &["work", "--task", "t", "--", "true"]);
    work.wait_for_note("31m");
    assert!(!is_unsafe(&work.stderr), "{:?}", work.stderr);
}
