//! `cued apply` where not all can be written: the limits of the plan, refusals of the server, and an end in between; and the
//! requests that it makes.

use std::io::{Read as _, Write as _};

use crate::cli::client::apply::{FILE, apply, slugs, write};
use crate::cli::client::{START, start};
use crate::support::*;

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

/// The requests that a command makes; it must succeed.
#[track_caller]
fn requests(home: &ClientHome, arguments: &[&str]) -> usize {
    let run = home.run(&[arguments, &["-v"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    run.stderr.lines().filter(|line| line.contains("/v1/")).count()
}

#[test]
fn a_file_is_compared_and_written_by_one_request() {
    let (_server, user, home) = start();
    let file = |changed: &str| {
        let (first, rest) = (numbered("a", 0..10, changed), numbered("b", 0..90, ""));
        format!("namespace: n\ncues:\n{first}{rest}")
    };
    write(&home, FILE, &file(""));
    assert_eq!(requests(&home, &["diff", "-f", FILE]), 1);
    assert_eq!(requests(&home, &["apply", "-f", FILE]), 1);
    assert_eq!(user.total("/v1/cues"), 100);
    write(&home, FILE, &file(", tags: [a]"));
    assert_eq!(requests(&home, &["apply", "-f", FILE]), 1);
    assert_eq!(home.ok(&["apply", "-f", FILE]), "= 100 unchanged\n");
    write(&home, FILE, "namespace: n\ncues: {}\n");
    assert_eq!(requests(&home, &["apply", "-f", FILE, "--prune", "-y"]), 1);
    assert_eq!(user.total("/v1/cues"), 0);
}

#[test]
fn a_file_of_many_cues_is_pruned_as_a_whole() {
    let (_server, user, home) = start();
    let file = |numbers| format!("namespace: n\ncues:\n{}", numbered("c", numbers, ""));
    write(&home, FILE, &file(0..501));
    // A look at both parts, and both.
    assert_eq!(requests(&home, &["apply", "-f", FILE]), 4);
    write(&home, FILE, &file(1..502));
    let done = home.ok(&["apply", "-f", FILE, "--prune", "-y"]);
    assert!(done.ends_with("Done: 1 created, 1 deleted, 500 unchanged.\n"), "{done}");
    assert_eq!(user.total("/v1/cues"), 501);
    assert_eq!(home.ok(&["diff", "-f", FILE, "--prune"]), "= 501 unchanged\n");
}

#[test]
fn the_limits_of_the_plan_come_before_the_first_write() {
    let (_server, user, home) = start_with_limits();
    let cues = |from, to| format!("namespace: n\ncues:\n{}", numbered("c", from..to, ""));
    write(&home, FILE, &cues(0, 12));
    let text = home.fails(&["apply", "-f", FILE], 6);
    let excess = "cued: cues.yaml:11:3: The plan allows 10 active cues: pause or delete one, or start this server with \
                  --limits off; this is the first of 2 cues without room";
    assert_eq!(text, format!("{excess} (nothing was written)\n"));
    assert_eq!(home.fails(&["diff", "-f", FILE], 6), format!("{excess}\n"));
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

/// The new cues come before the pauses that make room for them.
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
        "cued: cues.yaml:12:3: The plan allows 10 active cues: pause or delete one, or start this server with --limits off; \
         this is the first of 2 cues without room (10 changes were written)\n"
    );
    assert_eq!(slugs(&user), (10..20).map(|it| format!("c{it}")).collect::<Vec<_>>());
    user.advance("PT2M");
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 6 && run.stdout == "= 10 unchanged\n", "{run:?}");
    assert!(run.stderr.contains(" cues without room (nothing was written)"), "{run:?}");
}

#[test]
fn a_refusal_of_the_server_names_the_place_and_nothing_is_written() {
    let (_server, user, home) = start();
    let channels: String = (10..31)
        .map(|it| format!("  c{it}: {{type: webhook, url: 'http://127.0.0.1:9000/{it}'}}\n"))
        .collect();
    write(
        &home,
        FILE,
        &format!("cues:\n  a: {{schedule: '@daily', worker: true}}\nchannels:\n{channels}"),
    );
    let run = home.run(&["apply", "-f", FILE]);
    assert!(run.code == 6 && run.stdout.is_empty(), "{run:?}");
    assert!(run.stderr.starts_with("cued: cues.yaml:24:3: "), "{run:?}");
    assert!(run.stderr.ends_with(" (nothing was written)\n"), "{run:?}");
    assert!(slugs(&user).is_empty());
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 6 && run.stdout.ends_with("Done: 21 created.\n"), "{run:?}");
    assert!(run.stderr.ends_with(" (21 changes were written)\n"), "{run:?}");
    assert_eq!(slugs(&user), ["a"]);
}

/// A refused cue has not left the file.
#[test]
fn a_cue_that_is_refused_is_not_pruned() {
    let (_server, user, home) = start();
    apply(&home, "namespace: n\ncues:\n  a: {schedule: '@daily', worker: true}\n");
    let file = "namespace: n\ncues:\n  a: {schedule: '@daily', url: 'http://a'}\n  b: {schedule: '@daily', worker: true}\n";
    write(&home, FILE, file);
    let run = home.run(&["apply", "-f", FILE, "--prune", "-y", "--keep-going"]);
    assert!(run.code == 5 && run.stdout.ends_with("Done: 1 created.\n"), "{run:?}");
    assert_eq!(slugs(&user), ["n/a", "n/b"]);
}

#[test]
fn nothing_is_pruned_without_a_question_because_every_cue_is_refused() {
    let (_server, user, home) = start();
    apply(&home, "namespace: n\ncues:\n  old: {schedule: '@daily', worker: true}\n");
    write(
        &home,
        FILE,
        "namespace: n\ncues:\n  a: {schedule: '@daily', worker: true, overlap: never}\n",
    );
    let run = home.run(&["apply", "-f", FILE, "--prune", "--keep-going"]);
    assert!(run.code != 0 && run.stdout.is_empty(), "{run:?}");
    assert_contains(&run.stderr, &["overlap", "nothing was written"]);
    assert_eq!(slugs(&user), ["n/old"]);
}

#[test]
fn an_apply_that_is_killed_is_completed_by_the_next() {
    let (_server, user, home) = start();
    write(&home, FILE, &format!("namespace: n\ncues:\n{}", numbered("c", 0..501, "")));
    let mut killed = LiveCommand::start(&home, &["apply", "-f", FILE]);
    killed.wait_for_note(" 200 ");
    killed.signal("-KILL");
    killed.end();
    let written = user.total("/v1/cues");
    assert!([0, 500, 501].contains(&written.as_u64().unwrap()), "{written}");
    home.ok(&["apply", "-f", FILE]);
    assert_eq!(user.total("/v1/cues"), 501);
    assert_eq!(home.ok(&["apply", "-f", FILE]), "= 501 unchanged\n");
}

/// Answers each request of a kind as `status` says of its body.
fn fake(status: fn(&str) -> &'static str) -> Receiver {
    Receiver::on_accept(move |connection| {
        // The body ends the request.
        let mut request = String::new();
        while !request.ends_with('}') {
            let mut part = vec![0; 64 << 10];
            match connection.read(&mut part).unwrap_or(0) {
                0 => return,
                length => request += &String::from_utf8_lossy(&part[..length]),
            }
        }
        let change = |key: &str| json!({"kind": "cue", "key": key, "action": "create", "id": "cue_1", "fields": [], "next_run": null, "next_run_before": null});
        let keys = ["a", "b"].into_iter().filter(|key| request.contains(&format!("\"{key}\":{{")));
        let answer =
            json!({"changes": keys.map(change).collect::<Vec<_>>(), "errors": []}).to_string();
        let (status, answer) = match status(&request) {
            "200 OK" => ("200 OK", answer),
            other => (other, "{}".to_owned()),
        };
        let length = answer.len();
        drop(write!(
            connection,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
        ));
    })
}

#[test]
fn an_error_of_the_server_says_what_was_written_before_it() {
    let server = fake(|request| {
        let is_second = request.contains("\"namespace\":\"second\"");
        if is_second && !request.contains("dry_run") { "500 X" } else { "200 OK" }
    });
    let home = ClientHome::without_server()
        .env("CUED_URL", format!("http://{}", server.addr))
        .env("CUED_API_KEY", "cue_sk_0123456789abcdef0123456789abcdef");
    for (namespace, key) in [("first", "a"), ("second", "b")] {
        let file = format!(
            "namespace: {namespace}\ncues:\n  {key}: {{schedule: '@daily', worker: true}}\n"
        );
        write(&home, &format!("{namespace}.yaml"), &file);
    }
    let files = ["apply", "-f", "first.yaml", "-f", "second.yaml"];
    let run = home.run(&files);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("+ first/a\n"), "{run:?}");
    assert!(run.stderr.starts_with("1 change was written; run it again\ncued: "), "{run:?}");
    let run = home.run(&[&files[..], &["--json"]].concat());
    assert!(
        run.code == 1 && run.stdout.contains("\"slug\":\"first/a\"") && run.stderr.starts_with('{'),
        "{run:?}"
    );
}
