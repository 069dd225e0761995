//! `cued run`: list, show, replay and wait.

use crate::cli::client::Desk;
use crate::cli::client::sink::cue;
use crate::support::*;

const UNKNOWN: &str = "0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e";

/// The answer of a receiver is text of others: it must not control the terminal.
#[test]
fn control_characters_of_a_receiver_do_not_reach_the_terminal() {
    let desk = Desk::new();
    let answer = "HTTP/1.1 500 X\r\nContent-Length: 12\r\n\r\n\u{1b}[2Ja\r\n\u{7}b\tc\n";
    let receiver = Receiver::with(Reaction::bytes(answer));
    let run = desk.fire(&desk.webhook_cue("hook", &receiver.url()));
    desk.user.settle();
    let shown = ["run show RUN", "run list", "run attempts RUN --body"].map(|line| {
        let shown = desk.home.ok(&words(&line.replace("RUN", &run)));
        let is_unsafe = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        shown
    });
    assert_contains(&shown[2], &["\u{fffd}[2Ja\n\u{fffd}b    c\n"]);
}

#[test]
fn the_end_of_a_run_ends_the_wait_also_over_a_restart() {
    let ((mut server, user), receiver) =
        (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Hang));
    let home = ClientHome::signed_in(&server, &user);
    let cue = cue(&user, "report", &receiver, 1);
    let run = user.fire(&cue);
    receiver.wait_hanging(1);
    let mut wait = LiveCommand::start(&home, &["run", "wait", &run, "-q"]);
    receiver.release();
    assert_eq!(wait.end(), (Some(0), vec![run]), "{}", wait.stderr);
    receiver.react(Reaction::Hang);
    let run = user.fire(&cue);
    receiver.wait_hanging(1);
    let mut wait = LiveCommand::start(&home, &["run", "wait", &run, "-q"]);
    server.kill();
    receiver.release();
    server.restart_in_place();
    assert_eq!(wait.end(), (Some(0), vec![run]), "{}", wait.stderr);
}

#[test]
fn a_fire_waits_for_the_end_of_its_run() {
    let ((server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let home = ClientHome::signed_in(&server, &user);
    cue(&user, "report", &receiver, 1);
    let run = home.json(&["cue", "fire", "report", "--wait"]);
    assert_eq!((&run["status"], &run["cue_name"]), (&json!("success"), &json!("report")));
    receiver.react(Reaction::Status(500));
    let failed = home.run(&["cue", "fire", "report", "--wait"]);
    assert_eq!(failed.code, 8, "{failed:?}");
    assert!(
        failed.stderr.ends_with(" failed\n") && failed.stdout.contains("the URL returned 500"),
        "{failed:?}"
    );
    receiver.react(Reaction::Hang);
    let late = home.fails(&["cue", "fire", "report", "--wait", "--timeout", "1s"], 1);
    assert!(late.contains("stopped waiting; the run continues: "), "{late}");
    receiver.release();
}

#[test]
fn a_wait_ends_with_its_time_or_with_its_cue() {
    let ((server, user), receiver) =
        (Server::with_user(DEV_UNLIMITED), Receiver::with(Reaction::Status(500)));
    let home = ClientHome::signed_in(&server, &user);
    let cue = cue(&user, "report", &receiver, 2);
    let run = user.fire(&cue);
    let error = home.fails(&["run", "wait", &run, "--timeout", "1s"], 1);
    assert_contains(&error, &[&format!("stopped waiting; the run continues: cued run wait {run}")]);
    assert_eq!(home.json_error(&["run", "wait", UNKNOWN], 3)["code"], "execution_not_found");
    home.fails(&["run", "wait", UNKNOWN, "--timeout", "never"], 2);
    assert!(home.ok(&["run", "wait", UNKNOWN, "--curl"]).contains(UNKNOWN));
    let mut wait = LiveCommand::start(&home, &["run", "wait", &run]);
    user.delete(&cue_path(&cue)).expect(204);
    assert_eq!(wait.end(), (Some(3), vec![]), "{}", wait.stderr);
}

/// Adds failed runs, each created a millisecond after the one before, or all at once.
fn copy_failed(desk: &Desk, count: i64, spread: i64) {
    desk.server
        .sqlite()
        .execute(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
             INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                                     attempts, error_message, created_at, updated_at)
             SELECT unhex(printf('%012x', created_at + n * ?2) || '70008000' || hex(randomblob(6))), cue_key, user_key,
                    transport, status, scheduled_for, triggered_by, payload_key, attempts, 'x', created_at + n * ?2,
                    updated_at
               FROM number, (SELECT * FROM executions ORDER BY key LIMIT 1)",
            (count, spread),
        )
        .unwrap();
    desk.user.advance("PT1H");
}

fn replays(desk: &Desk) -> (i64, i64) {
    let count = "SELECT count(*), count(DISTINCT replayed_from) FROM executions WHERE triggered_by = 'replay'";
    desk.server.sqlite().query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn many_failed_runs_are_replayed_in_parts_each_once() {
    let desk = Desk::without_retention();
    desk.failed_run(&desk.worker_cue("report"));
    copy_failed(&desk, 1_000, 1);
    // More than a part has, all of one millisecond.
    copy_failed(&desk, 1_499, 0);
    assert_eq!(
        desk.home.ok(&["run", "replay", "--failed", "--dry-run"]),
        "would replay 2500 failed runs\n"
    );
    let done = desk.home.json(&["run", "replay", "--failed", "-y"]);
    assert_has(&done, json!({"matched": 2_500, "replayed": 2_500, "skipped": []}));
    assert_eq!(done.list("execution_ids").len(), 2_500);
    assert_eq!(replays(&desk), (2_500, 2_500));
}

#[test]
fn an_interrupted_replay_says_how_the_rest_is_replayed() {
    let desk = Desk::without_retention();
    desk.failed_run(&desk.worker_cue("report"));
    copy_failed(&desk, 4_999, 1);
    let mut command =
        desk.home.command(&["run", "replay", "--failed", "--until", "2031-01-01", "-y"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the first part has begun", || (replays(&desk).0 > 0).then_some(()));
    signal("-INT", child.id());
    let output = bounded("the interrupted command", move || child.wait_with_output().unwrap());
    let (done, _) = replays(&desk);
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{stdout}{stderr}");
    assert!(done % 500 == 0 && done < 5_000, "whole parts: {done}");
    assert_eq!(stdout, format!("replayed {done} of {done} runs\n"));
    let said =
        format!("cued: interrupted after {done} of 5000 failed runs. To replay the rest: cued ");
    let rest = stderr.trim_end().strip_prefix(&said).unwrap_or_else(|| panic!("{stderr}"));
    let rest: Vec<&str> = rest.split(' ').chain(["-y"]).collect();
    assert_eq!(
        desk.home.ok(&rest),
        format!("replayed {left} of {left} runs\n", left = 5_000 - done)
    );
    assert_eq!(replays(&desk), (5_000, 5_000), "each once");
}

/// A server that names `pages` of runs by a dry run, one after the other, and replays what it is asked to.
fn naming_server(pages: Vec<Vec<String>>) -> Receiver {
    let requests = AtomicUsize::new(0);
    Receiver::with(Reaction::choose(move |request| {
        let body = request.json();
        let answer = if body["dry_run"] == true {
            let page = requests.fetch_add(1, Ordering::Relaxed);
            json!({"matched": pages[page].len(), "dry_run": true, "ids": pages[page], "has_more": page + 1 < pages.len()})
        } else {
            let count = body.list("ids").len();
            json!({"matched": count, "replayed": count, "skipped": [], "execution_ids": body["ids"]})
        };
        Reaction::Full(
            200,
            vec![("Content-Type", "application/json".to_owned())],
            answer.to_string(),
        )
    }))
}

/// The server names at most 10,000 runs at a time. The last ones of a page are named again, because the next page
/// begins with their millisecond.
#[test]
fn the_runs_of_several_pages_are_replayed_each_once() {
    let id = |number: usize| format!("018cc251-{number:04x}-7000-8000-000000000000");
    let ids: Vec<String> = (0..700).map(id).collect();
    let server = naming_server(vec![ids[..400].to_vec(), ids[390..700].to_vec()]);
    let home = ClientHome::new()
        .env("CUED_URL", server.url().trim_end_matches('/'))
        .env("CUED_API_KEY", "cue_sk_x");
    let done = home.json(&["run", "replay", "--failed", "-y"]);
    assert_eq!((&done["matched"], &done["execution_ids"]), (&json!(700), &json!(ids)));
    assert_eq!(server.count(), 4, "two pages, two parts");
}

/// What a command in a terminal of `columns` columns prints, with the answer `input` to its question.
fn in_terminal(home: &ClientHome, arguments: &str, columns: u16, input: &str) -> Option<String> {
    // There is a `script`.
    home.at_terminal(arguments)?;
    let line = format!("stty cols {columns}; {} {arguments}", env!("CARGO_BIN_EXE_cued"));
    let mut script = home.other("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = bounded("script", move || child.wait_with_output().unwrap());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_terminal_shows_a_question_and_a_bar() {
    let desk = Desk::without_retention();
    desk.failed_run(&desk.worker_cue("report"));
    copy_failed(&desk, 1_499, 1);
    let Some(no) = in_terminal(&desk.home, "run replay --failed", 80, "n\n") else { return };
    assert_contains(&no, &["Replay 1500 failed runs? [y/N]", "nothing was changed"]);
    assert_eq!(replays(&desk), (0, 0));
    let yes = in_terminal(&desk.home, "run replay --failed", 60, "y\n").unwrap();
    let bars: Vec<&str> = yes.split('\r').filter(|line| line.contains(" % ")).collect();
    assert_eq!(bars.len(), 3, "{yes:?}");
    assert!(bars[2].contains("replay  66 % 1000 of 1500 failed runs"), "{yes:?}");
    assert!(yes.contains("\r\u{1b}[Kreplayed 1500 of 1500 runs"), "the bar is cleared: {yes:?}");
    let table = in_terminal(&desk.home, "run list --color never", 80, "").unwrap();
    let longest = table.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(longest <= Some(80) && table.contains("SCHEDULED"), "{table}");
}
