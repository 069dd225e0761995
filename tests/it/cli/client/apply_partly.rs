//! `cued apply` where not all can be written: the limits of the plan, refusals of the server, and an end in between.

use std::io::{Read as _, Write as _};

use crate::cli::client::apply::{FILE, apply, slugs, write};
use crate::cli::client::{START, start};
use crate::support::*;

#[test]
fn the_limits_of_the_plan_come_before_the_first_write() {
    let (_server, user, home) = start_with_limits();
    let cues = |from: usize, to: usize| {
        let cues: String = (from..to)
            .map(|it| format!("  c{it}: {{schedule: '@daily', worker: true}}\n"))
            .collect();
        format!("namespace: n\ncues:\n{cues}")
    };
    write(&home, FILE, &cues(0, 12));
    let text = home.fails(&["apply", "-f", FILE], 6);
    let excess = "this needs 12 active cues, the plan has 10: pause or delete some, or start this server with --limits off";
    assert_eq!(text, format!("cued: {excess}; nothing was written\n"));
    let run = home.run(&["diff", "-f", FILE]);
    assert_eq!((run.code, run.stderr), (0, format!("{excess}\n")));
    assert_eq!(home.json_error(&["apply", "-f", FILE], 6)["code"], "cue_limit_exceeded");
    assert!(slugs(&user).is_empty());
    // The plan limits requests too.
    user.advance("PT2M");
    assert!(apply(&home, &cues(0, 10)).ends_with("Done: 10 created.\n"));
    let paused = cues(0, 11).replace("c10: {", "c10: {paused: true, ");
    // A paused cue takes no room.
    assert!(apply(&home, &paused).contains("+ n/c10\n    next run none\n"));
    user.advance("PT2M");
    // The old cues make room for the new ones.
    write(&home, FILE, &cues(10, 20));
    assert_eq!(
        home.ok(&["apply", "-f", FILE, "--prune", "-y"]).lines().last(),
        Some("Done: 9 created, 10 deleted, 1 unchanged.")
    );
    assert_eq!(slugs(&user).len(), 10);
}

/// A server with the limits of its plans, a user, a home.
fn start_with_limits() -> (Server, Client, ClientHome) {
    let server = Server::start(&["--dev", "--test-clock", START]);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    (server, user, home)
}

/// Active cues `{name}0`, … in a file, each with more fields.
fn numbered(name: &str, numbers: std::ops::Range<usize>, fields: &str) -> String {
    numbers
        .map(|it| format!("  {name}{it}: {{schedule: '@daily', worker: true{fields}}}\n"))
        .collect()
}

/// More changes than are written at a time: a new cue would be written before the pauses that make room for it.
#[test]
fn changes_that_make_room_are_written_first() {
    let (_server, user, home) = start_with_limits();
    apply(&home, &format!("cues:\n{}", numbered("old", 0..10, "")));
    user.advance("PT2M");
    let (new, old) = (numbered("new", 0..10, ""), numbered("old", 0..10, ", paused: true"));
    let done = apply(&home, &format!("cues:\n{new}{old}"));
    assert!(done.ends_with("Done: 10 created, 10 updated.\n"), "{done}");
}

#[test]
fn apply_that_keeps_going_writes_as_many_as_the_plan_has_room_for() {
    let (_server, user, home) = start_with_limits();
    write(&home, FILE, &format!("cues:\n{}", numbered("c", 10..22, "")));
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 6 && run.stdout.ends_with("Done: 10 created.\n"), "{run:?}");
    assert_eq!(
        run.stderr,
        "cued: 2 faults in the files; 10 changes were written; for more, start this server with --limits off\n\
         cues.yaml:12:3: no room for c20: the plan has 10 active cues\n\
         cues.yaml:13:3: no room for c21: the plan has 10 active cues\n"
    );
    assert_eq!(slugs(&user), (10..20).map(|it| format!("c{it}")).collect::<Vec<_>>());
    user.advance("PT2M");
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 6 && run.stdout == "= 10 unchanged\n", "{run:?}");
    assert!(run.stderr.contains("; nothing was written; for more, start this server"), "{run:?}");
}

/// Only the write finds that there are too many channels.
#[test]
fn a_refusal_of_a_write_stops_what_follows_and_names_the_place() {
    let (_server, user, home) = start();
    let channels: String = (0..21)
        .map(|it| format!("  c{it}: {{type: webhook, url: 'http://127.0.0.1:9000/{it}'}}\n"))
        .collect();
    write(
        &home,
        FILE,
        &format!("cues:\n  a: {{schedule: '@daily', worker: true}}\nchannels:\n{channels}"),
    );
    let run = home.run(&["apply", "-f", FILE]);
    assert!(run.code == 6 && run.stdout.ends_with("Done: 20 created.\n"), "{run:?}");
    assert!(run.stderr.starts_with("cued: cues.yaml:24:3: "), "{run:?}");
    assert!(run.stderr.ends_with(" (20 changes were written)\n"), "{run:?}");
    assert!(slugs(&user).is_empty(), "the cues follow the channels");
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 6 && run.stdout.ends_with("Done: 1 created, 20 unchanged.\n"), "{run:?}");
    assert_eq!(slugs(&user), ["a"]);
}

#[test]
fn an_apply_that_is_killed_is_completed_by_the_next() {
    let (_server, user, home) = start();
    let cues: String =
        (0..90).map(|it| format!("  c{it}: {{schedule: '@daily', worker: true}}\n")).collect();
    write(&home, FILE, &format!("namespace: n\ncues:\n{cues}"));
    let mut killed = LiveCommand::start(&home, &["apply", "-f", FILE]);
    killed.wait_for_note(" 201 ");
    killed.signal("-KILL");
    killed.end();
    let written = slugs(&user).len();
    assert!(written > 0);
    let done = home.ok(&["apply", "-f", FILE]);
    let unchanged =
        if written == 90 { "= 90 unchanged\n".to_owned() } else { "created".to_owned() };
    assert!(done.contains(&unchanged), "{done}");
    assert_eq!(slugs(&user).len(), 90);
    assert_eq!(home.ok(&["apply", "-f", FILE]), "= 90 unchanged\n");
}

#[test]
fn an_error_of_the_server_says_what_was_written_before_it() {
    let server = Receiver::on_accept(|connection| {
        let mut head = [0; 16 << 10];
        let length = connection.read(&mut head).unwrap_or(0);
        let head = String::from_utf8_lossy(&head[..length]);
        let answer =
            json!({"action": "created", "id": "cue_1", "status": "paused", "next_run": null})
                .to_string();
        let (status, answer) = match head.lines().next().unwrap_or_default() {
            line if line.contains("/b?source") => ("500 X", "{}".to_owned()),
            _ => ("200 OK", answer),
        };
        let length = answer.len();
        drop(write!(
            connection,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
        ));
    });
    let home = ClientHome::without_server()
        .env("CUED_URL", format!("http://{}", server.addr))
        .env("CUED_API_KEY", "cue_sk_0123456789abcdef0123456789abcdef");
    write(
        &home,
        FILE,
        "cues:\n  a: {schedule: '@daily', worker: true}\n  b: {schedule: '@daily', worker: true}\n",
    );
    let run = home.run(&["apply", "-f", FILE]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.starts_with("1 change was written; run it again\ncued: "), "{run:?}");
    let run = home.run(&["apply", "-f", FILE, "--json"]);
    assert!(
        run.code == 1 && run.stdout.contains("\"slug\":\"a\"") && run.stderr.starts_with('{'),
        "{run:?}"
    );
}
