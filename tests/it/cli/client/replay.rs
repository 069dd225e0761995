//! `cued run replay`.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::Desk;
use crate::support::client_command::ClientHome;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{bounded, signal, skip, until};

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
    let count =
        "SELECT count(*), count(DISTINCT replayed_from) FROM executions WHERE triggered_by = 'replay'";
    desk.server.sqlite().query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn runs_are_replayed_by_their_ids() {
    let desk = Desk::new();
    let cue = desk.worker_cue("report");
    let (first, second, open) = (desk.failed_run(&cue), desk.failed_run(&cue), desk.fire(&cue));
    let done = desk.home.ok(&["run", "replay", &first]);
    let new = done.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(done, format!("replayed run {first} as {new}\n"));
    assert_eq!(desk.user.get(&format!("/v1/executions/{new}")).expect(200)["replayed_from"], json!(first));
    assert_eq!(desk.home.json_error(&["run", "replay", &open], 5)["code"], "execution_in_flight");
    // Several at once, some of which cannot be replayed.
    assert_eq!(desk.home.ok(&["run", "replay", &first, &second]), "replayed 2 of 2 runs\n");
    let some = desk.home.run(&["run", "replay", &first, &open]);
    assert_eq!((some.code, some.stdout.as_str()), (5, "replayed 1 of 2 runs\n"), "{some:?}");
    assert!(some.stderr.contains(&format!("  {open}  execution_in_flight\n")), "{}", some.stderr);
    let json = desk.home.run(&["run", "replay", &first, &open, "--json"]);
    let (out, err): (Value, Value) =
        (serde_json::from_str(&json.stdout).unwrap(), serde_json::from_str(&json.stderr).unwrap());
    assert_eq!((&out["replayed"], &err["error"]["code"]), (&json!(1), &json!("refused")));
    let none = ["0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e", "0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5f"];
    assert_eq!(desk.home.run(&["run", "replay", none[0], none[1]]).code, 3);
    let ids = desk.home.ok(&["run", "replay", &first, &second, "-q"]);
    assert_eq!(ids.lines().count(), 2, "{ids}");
    assert_eq!(replays(&desk), (7, 2));
}

#[test]
fn failed_runs_are_counted_before_they_are_replayed() {
    let desk = Desk::new();
    let (report, other) = (desk.worker_cue("report"), desk.worker_cue("other"));
    desk.failed_run(&report);
    desk.user.advance("PT2H");
    for cue in [&report, &report, &other] {
        desk.failed_run(cue);
    }
    // Lists count a cancelled run, and a replay of all failed ones leaves it out.
    let cancelled = desk.fire(&report);
    desk.user.post(&format!("/v1/executions/{cancelled}/cancel"), &json!({})).expect(200);
    let replay = ["run", "replay", "--failed"];
    let with = |flags: &[&'static str]| [&replay[..], flags].concat();
    assert_eq!(desk.home.ok(&with(&["--dry-run"])), "would replay 4 failed runs\n");
    assert_eq!(desk.home.ok(&with(&["--dry-run", "--cue", "other"])), "would replay 1 failed run\n");
    assert_eq!(desk.home.json(&with(&["--dry-run", "--since", "1h"])), json!({"matched": 3}));
    assert_eq!(desk.home.ok(&with(&["--dry-run", "--cause", "timeout"])), "would replay 0 failed runs\n");
    let unanswered = desk.home.fails(&with(&[]), 2);
    assert!(unanswered.contains("Replay 4 failed runs?") && unanswered.contains("-y"), "{unanswered}");
    assert_eq!(replays(&desk), (0, 0), "nobody was asked, nothing is done");
    let curl = desk.home.ok(&with(&["--curl", "--cue", "other"]));
    assert!(curl.contains("/v1/executions/replay") && curl.contains(r#""expected":1"#), "{curl}");
    assert_eq!(desk.home.ok(&with(&["--since", "1h", "--cue", "report", "-y"])), "replayed 2 of 2 runs\n");
    let none = desk.home.ok(&with(&["--until", "2029-01-01", "-y"]));
    assert_eq!(none, "nothing to replay: no failed run matches\n");
    let json = desk.home.json(&with(&["--until", "2030-01-01 01:00", "-y"]));
    assert_eq!((&json["matched"], &json["replayed"]), (&json!(1), &json!(1)));
    assert_eq!(replays(&desk), (3, 3));
    for usage in
        [&["run", "replay"][..], &["run", "replay", "--since", "1h"], &["run", "replay", "--failed", "x"]]
    {
        desk.home.fails(usage, 2);
    }
    assert_eq!(desk.home.json_error(&with(&["-y", "--cause", "nonsense"]), 5)["code"], "validation_error");
}

#[test]
fn many_failed_runs_are_replayed_in_parts_each_once() {
    let desk = Desk::without_retention();
    desk.failed_run(&desk.worker_cue("report"));
    copy_failed(&desk, 1_000, 1);
    // More than a part has, all of one millisecond.
    copy_failed(&desk, 1_499, 0);
    assert_eq!(desk.home.ok(&["run", "replay", "--failed", "--dry-run"]), "would replay 2500 failed runs\n");
    let done = desk.home.json(&["run", "replay", "--failed", "-y"]);
    assert_eq!(
        (&done["matched"], &done["replayed"], &done["skipped"]),
        (&json!(2_500), &json!(2_500), &json!([]))
    );
    assert_eq!(done["execution_ids"].as_array().unwrap().len(), 2_500);
    assert_eq!(replays(&desk), (2_500, 2_500));
}

#[test]
fn an_interrupted_replay_says_how_the_rest_is_replayed() {
    let desk = Desk::without_retention();
    desk.failed_run(&desk.worker_cue("report"));
    copy_failed(&desk, 4_999, 1);
    let mut command = desk.home.command(&["run", "replay", "--failed", "--until", "2031-01-01", "-y"]);
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
    let said = format!("cued: interrupted after {done} of 5000 failed runs. To replay the rest: cued ");
    let rest = stderr.trim_end().strip_prefix(&said).unwrap_or_else(|| panic!("{stderr}"));
    let rest: Vec<&str> = rest.split(' ').chain(["-y"]).collect();
    assert_eq!(desk.home.ok(&rest), format!("replayed {left} of {left} runs\n", left = 5_000 - done));
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
            let count = body["ids"].as_array().unwrap().len();
            json!({"matched": count, "replayed": count, "skipped": [], "execution_ids": body["ids"]})
        };
        Reaction::Full(200, vec![("Content-Type", "application/json".to_owned())], answer.to_string())
    }))
}

/// The server names at most 10,000 runs at a time. The last ones of a page are named again, because the next page begins
/// with their millisecond.
#[test]
fn the_runs_of_several_pages_are_replayed_each_once() {
    let id = |number: usize| format!("018cc251-{number:04x}-7000-8000-000000000000");
    let ids: Vec<String> = (0..700).map(id).collect();
    let server = naming_server(vec![ids[..400].to_vec(), ids[390..700].to_vec()]);
    let home =
        ClientHome::new().env("CUED_URL", server.url().trim_end_matches('/')).env("CUED_API_KEY", "cue_sk_x");
    let done = home.json(&["run", "replay", "--failed", "-y"]);
    assert_eq!((&done["matched"], &done["execution_ids"]), (&json!(700), &json!(ids)));
    assert_eq!(server.count(), 4, "two pages, two parts");
}

/// What a command in a terminal of `columns` columns prints, with the answer `input` to its question.
fn in_terminal(home: &ClientHome, arguments: &[&str], columns: u16, input: &str) -> Option<String> {
    Command::new("script").arg("--version").output().ok()?;
    let program = home.command(arguments);
    let words: Vec<String> = std::iter::once(program.get_program())
        .chain(program.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = Command::new("script");
    script.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm");
    script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.args(["-qec", &format!("stty cols {columns}; {}", words.join(" ")), "/dev/null"]);
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
    let no = in_terminal(&desk.home, &["run", "replay", "--failed"], 80, "n\n");
    let Some(no) = no else { return skip("there is no `script`") };
    assert!(no.contains("Replay 1500 failed runs? [y/N]") && no.contains("nothing was changed"), "{no}");
    assert_eq!(replays(&desk), (0, 0));
    let yes = in_terminal(&desk.home, &["run", "replay", "--failed"], 60, "y\n").unwrap();
    let bars: Vec<&str> = yes.split('\r').filter(|line| line.contains(" % ")).collect();
    assert_eq!(bars.len(), 3, "{yes:?}");
    assert!(bars[2].contains("replay  66 % 1000 of 1500 failed runs"), "{yes:?}");
    assert!(yes.contains("\r\u{1b}[Kreplayed 1500 of 1500 runs"), "the bar is cleared: {yes:?}");
    let table = in_terminal(&desk.home, &["run", "list", "--color", "never"], 80, "").unwrap();
    let longest = table.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(longest <= Some(80) && table.contains("01-01 01:00"), "{table}");
}
