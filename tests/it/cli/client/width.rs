//! The output for a person at a terminal of some width, and for a program that reads a pipe.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::{Desk, add, start};
use crate::support::*;

/// Names that a table has to shorten: long, wide, in another order, without a blank.
const NAMES: [&str; 4] = [
    "nightly backup of the photos, the mail and everything else that is on the old machine below the stairs",
    "日本語の名前はどの端末でも二倍の幅がありますから表は短くしなければなりません日本語の名前",
    "a\u{202e}txt.exe 🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉",
    "home/nas/photos/2029/december/thumbnails/large/without-a-blank-in-it/and-so-on/and-so-forth/to-the-end",
];

/// An account with cues of all kinds, and runs that have failed, wait, were retried and have succeeded.
fn crowded(receiver: &Receiver) -> Desk {
    let desk = Desk::new();
    for name in NAMES {
        let cue = desk.user.create(&json!({
            "name": name, "description": name, "tags": ["photos", "nas", "backup"],
            "schedule": {"type": "recurring", "cron": "*/20 3,4,5,6 * * 1-5", "timezone": "America/Argentina/Buenos_Aires"},
            "callback": {"url": format!("{}{}", receiver.url(), "/a/long/path".repeat(9)), "headers": {"X-Trace": "y".repeat(90)}},
            "payload": {"words": "one two three ".repeat(20), "word": "z".repeat(200)},
            "retry": {"max_attempts": 2, "backoff_minutes": [60]}, "on_failure": {"webhook": "http://127.0.0.1:9/failed"},
        }));
        desk.user.fire(&cue);
        desk.user.settle();
        let worker = desk.worker_cue(name);
        desk.failed_run(&worker);
        desk.fire(&worker);
    }
    desk.user.create(&json!({
        "name": "once", "transport": "worker", "schedule": {"type": "once", "at": "2030-07-01T09:00:00Z"},
    }));
    desk.user.advance("PT3H");
    desk
}

/// Every command that prints lines for people, with the names of objects filled in.
fn commands(desk: &Desk) -> Vec<Vec<String>> {
    let lines = "cue list | cue list --failing | cue show CUE | cue missed CUE | run list | run list --failed | \
                 run show RUN | run attempts RUN | alert list | worker list | health | info | account usage | whoami";
    let list = |path: &str, key: &str| desk.user.read(path)[key].as_array().unwrap().clone();
    let (cues, runs) = (list("/v1/cues", "cues"), list("/v1/executions", "executions"));
    let mut commands = Vec::new();
    for line in lines.split(" | ") {
        let of = |word: &str, things: &[Value]| -> Vec<String> {
            if line.contains(word) {
                things.iter().map(|it| id(it).to_owned()).collect()
            } else {
                Vec::new()
            }
        };
        let ids = [of("CUE", &cues), of("RUN", &runs)].concat();
        let filled = |id: &str| line.replace("CUE", id).replace("RUN", id);
        let lines = if ids.is_empty() {
            vec![line.to_owned()]
        } else {
            ids.iter().map(|id| filled(id)).collect()
        };
        commands.extend(
            lines
                .iter()
                .map(|line| words(line))
                .map(|line| line.into_iter().map(str::to_owned).collect()),
        );
    }
    commands
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let receiver = Receiver::with(Reaction::Status(503));
    let mut desk = crowded(&receiver);
    let commands = commands(&desk);
    for columns in [60, 80, 120] {
        desk.home = desk.home.env("CUED_COLUMNS", columns.to_string());
        for command in &commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let shown = desk.home.ok(&words);
            for line in shown.lines() {
                assert!(line.width() <= columns, "{command:?} at {columns}: {line}\n{shown}");
            }
        }
    }
}

#[test]
fn lines_of_live_events_and_deliveries_fit_the_terminal() {
    let receiver = Receiver::with(Reaction::Full(503, Vec::new(), "b".repeat(500)));
    let desk = crowded(&receiver);
    for columns in ["60", "80", "120"] {
        let home = ClientHome::signed_in(&desk.server, &desk.user).env("CUED_COLUMNS", columns);
        let mut tail = LiveCommand::following(&home, &["tail", "--since", "1d", "--body"]);
        for line in tail.lines(16) {
            assert!(line.width() <= columns.parse().unwrap(), "{line}");
        }
        let mut sink =
            Sink::start(&home.env("CUED_WEBHOOK_SECRET", "whsec_AAAA"), &["--exit-after", "1"]);
        let headers = [
            ("x-cueapi-execution-id", "018cc251-f400-7abc-8000-0123456789ab"),
            ("x-cueapi-attempt", "1"),
        ];
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(sink.post(&headers, &"word ".repeat(90)).status, 200);
        let line = sink.line();
        assert!(
            line.contains("456789ab") && !line.contains("018cc251") && line.ends_with("→ 200"),
            "{line}"
        );
        let (_, rest, _) = sink.end();
        for line in rest.lines().chain([line.as_str()]) {
            assert!(line.width() <= columns.parse().unwrap(), "{line}");
        }
    }
}

#[test]
fn a_run_in_a_sentence_has_its_short_id_at_a_terminal_and_the_next_step() {
    let (receiver, desk) = (Receiver::with(Reaction::Status(503)), Desk::new());
    let cue = desk.webhook_cue("hook", &receiver.url());
    let ended = desk.failed_run(&desk.worker_cue("work"));
    let terminal = ClientHome::signed_in(&desk.server, &desk.user).env("CUED_COLUMNS", "80");
    let fired = terminal.run(&["cue", "fire", "hook"]);
    let run =
        desk.user.read(&format!("/v1/executions?cue_id={cue}"))["executions"][0]["id"].clone();
    let short = |id: &str| id[id.len() - 8..].to_owned();
    let run = short(run.as_str().unwrap());
    assert_eq!(fired.stderr, format!("Follow it: cued run wait {run}\n"));
    assert_eq!(terminal.run(&["cue", "fire", "hook", "-q"]).stderr, "");
    assert_eq!(desk.home.run(&["cue", "fire", "hook"]).stderr, "", "in a pipe");
    let replayed = terminal.ok(&["run", "replay", &ended]);
    assert!(replayed.starts_with(&format!("replayed run {} as ", short(&ended))), "{replayed}");
    assert_eq!(replayed.trim().rsplit(' ').next().unwrap().len(), 8, "{replayed}");
    desk.user.settle();
    // A terminal takes and shows the short id.
    assert!(terminal.ok(&["run", "retry", &run]).starts_with(&format!("sending run {run} now")));
    let long = "home/nas/photos/without-a-blank/".repeat(5);
    let id = add(&desk.home, &long);
    let question = terminal.fails(&["cue", "rm", &id], 2);
    assert!(question.contains("Delete home/nas/") && question.contains("… ("), "{question}");
    assert!(question.split(' ').all(|word| word.width() <= 40), "{question}");
}

#[test]
fn the_short_ids_of_a_table_name_the_cue_and_the_run() {
    let (_server, user, home) = start();
    let (cue, _) = (add(&home, "one"), add(&home, "two"));
    let runs =
        ["one", "one", "two"].map(|name| home.ok(&["cue", "fire", name, "-q"]).trim().to_owned());
    let terminal = home.env("CUED_COLUMNS", "80");
    let first = |table: &str, with: &str| {
        let line = table.lines().find(|line| line.contains(with)).unwrap();
        line.split(' ').next().unwrap().to_owned()
    };
    let short = first(&terminal.ok(&["cue", "list"]), "one");
    assert_eq!((short.len(), short.as_str()), (8, &cue[4..12]));
    let of_cue = short.clone();
    for name in [short.clone(), format!("cue_{short}"), cue[..14].to_owned()] {
        assert_eq!(terminal.json(&["cue", "show", &name])["id"], json!(cue), "{name}");
    }
    assert_eq!(terminal.ok(&["cue", "pause", &short]), format!("paused one ({cue})\n"));
    // Runs of one moment have the same beginning.
    let short = first(&terminal.ok(&["run", "list"]), "two");
    assert_eq!((short.len(), short.as_str()), (8, &runs[2][28..]));
    assert_eq!(terminal.json(&["run", "show", &short])["id"], json!(runs[2]));
    let beginning = terminal.fails(&["run", "show", &runs[2][..8]], 5);
    assert!(runs.iter().all(|run| beginning.contains(run.as_str())), "the candidates: {beginning}");
    assert_eq!(
        terminal.json(&["run", "show", &runs[0].to_uppercase()[20..]])["id"],
        json!(runs[0])
    );
    // A name counts before the beginning of an id.
    let named = user.create(&json!({"name": of_cue, "transport": "worker", "schedule": {"type": "recurring", "cron": "0 9 * * *"}}));
    assert_eq!(terminal.json(&["cue", "show", &of_cue])["id"], named["id"]);
    terminal.fails(&["cue", "show", "zzzzzzzz"], 3);
    terminal.fails(&["cue", "show", &cue[4..11]], 3);
}
