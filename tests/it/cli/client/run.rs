//! `cued run list`, `show`, `attempts`, `request`, `retry`, `cancel` and `verify`.

use serde_json::json;

use super::Desk;
use crate::support::receiver::{Reaction, Receiver};

const UNKNOWN: &str = "0198c0de-7a10-7c3e-9d52-1f0a6b3c4d5e";

#[test]
fn runs_are_listed_newest_first_and_filtered() {
    let (desk, receiver) = (Desk::new(), Receiver::with(Reaction::Status(503)));
    let (report, hook) = (desk.worker_cue("report"), desk.webhook_cue("sync-inventory", &receiver.url()));
    let failed = desk.failed_run(&report);
    desk.user.advance("PT2H");
    let retrying = desk.fire(&hook);
    desk.user.settle();
    let shown = desk.home.ok(&["run", "list"]);
    let expected = format!(
        "ID                                    CUE             STATUS    RESULT       SCHEDULED\n\
         {retrying}  sync-inventory  retrying  503          01-01 02:00\n\
         {failed}  report          failed    exit code 3  01-01 00:00\n"
    );
    assert_eq!(shown, expected);
    let ids = |flags: &[&str]| desk.home.ok(&[&["run", "list", "-q"], flags].concat());
    let line = |id: &str| format!("{id}\n");
    assert_eq!(ids(&["--failed"]), line(&failed));
    assert_eq!(ids(&["--status", "retrying,pending"]), line(&retrying));
    assert_eq!(ids(&["--cue", "sync-inventory"]), line(&retrying));
    assert_eq!(ids(&["--cue", &report]), line(&failed));
    assert_eq!(ids(&["--since", "1h"]), line(&retrying));
    assert_eq!(ids(&["--until", "2030-01-01 01:00"]), line(&failed));
    assert_eq!(ids(&["--until", "2030-01-01 03:00", "--tz", "Europe/Berlin"]), line(&failed), "02:00 in UTC");
    assert_eq!(ids(&["--cause", "status_5xx"]), line(&retrying));
    assert_eq!(ids(&["--outcome", "reported_failure"]), line(&failed));
    assert_eq!(ids(&["--trigger", "schedule"]), "");
    assert_eq!(ids(&["--worker", "nobody"]), "");
    let one = desk.home.run(&["run", "list", "--limit", "1"]);
    assert_eq!((one.stdout.lines().count(), one.stderr.as_str()), (2, "1 of 2; --all shows the rest\n"));
    assert_eq!(desk.home.ok(&["run", "list", "--all"]).lines().count(), 3);
    let json = desk.user.get("/v1/executions?limit=20").text();
    assert_eq!(desk.home.ok(&["run", "list", "--json"]).trim_end(), json.trim_end());
    let wide = desk.home.ok(&["run", "list", "-o", "wide"]);
    assert!(
        wide.contains("1/3") && wide.contains("2030-01-01 02:00:00+00:00") && wide.contains(&hook),
        "{wide}"
    );
}

#[test]
fn a_bad_filter_is_refused() {
    let desk = Desk::new();
    let refused = desk.home.fails(&["run", "list", "--status", "broken"], 5);
    assert!(refused.contains("retrying"), "the known words: {refused}");
    desk.home.fails(&["run", "list", "--failed", "--status", "failed"], 2);
    assert_eq!(desk.home.json_error(&["run", "list", "--cue", "none"], 3)["code"], "not_found");
    let (one, two) = (desk.worker_cue("same"), desk.worker_cue("same"));
    desk.worker_cue("same-but-longer");
    let ambiguous = desk.home.fails(&["run", "list", "--cue", "same"], 5);
    assert!(ambiguous.contains(&one) && ambiguous.contains(&two), "{ambiguous}");
    assert_eq!(ambiguous.lines().count(), 3, "{ambiguous}");
}

#[test]
fn a_run_is_shown_with_the_reason_of_its_state() {
    let (desk, receiver) = (Desk::new(), Receiver::with(Reaction::Status(503)));
    let hook = desk.webhook_cue("hook", &receiver.url());
    let run = desk.fire(&hook);
    desk.user.settle();
    let shown = desk.home.ok(&["run", "show", &run]);
    for line in [
        format!("run            {run}"),
        format!("cue            hook ({hook})"),
        "status         retrying".to_owned(),
        "why            attempt 1 failed (503); the next one is at 2030-01-01 01:00:00+00:00".to_owned(),
        "attempts       1 of 3".to_owned(),
        "HTTP status    503".to_owned(),
        "cause          status_5xx".to_owned(),
        "trigger        manual_fire".to_owned(),
    ] {
        assert!(shown.lines().any(|it| it == line), "{line} in {shown}");
    }
    let json = desk.user.get(&format!("/v1/executions/{run}")).text();
    assert_eq!(desk.home.ok(&["run", "show", &run, "--json"]).trim_end(), json.trim_end());
    assert!(desk.home.ok(&["run", "show", &run, "-o", "yaml"]).contains("status: retrying\n"));
    // Of a worker.
    let waiting = desk.fire(&desk.worker_cue("report"));
    assert!(desk.home.ok(&["run", "show", &waiting]).contains("no worker has claimed it yet"));
    let claim = json!({"worker_id": "pi-1"});
    desk.user.post(&format!("/v1/executions/{waiting}/claim"), &claim).expect(200);
    let claimed = desk.home.ok(&["run", "show", &waiting]);
    assert!(claimed.contains("claimed by     pi-1, since 2030-01-01 00:00:00+00:00"), "{claimed}");
    assert!(claimed.contains("lease until    2030-01-01 00:15:00+00:00"), "{claimed}");
    let report =
        json!({"success": true, "result": "4 pages", "external_id": "job-7", "metadata": {"pages": 4}});
    desk.user.post(&format!("/v1/executions/{waiting}/outcome"), &report).expect(200);
    let done = desk.home.ok(&["run", "show", &waiting]);
    for text in
        ["outcome        reported_success", "result         4 pages", "external id    job-7", "\"pages\": 4"]
    {
        assert!(done.contains(text), "{text} in {done}");
    }
    assert!(!done.contains("why  "), "a success needs no reason: {done}");
    assert_eq!(desk.home.json_error(&["run", "show", UNKNOWN], 3)["code"], "execution_not_found");
}

#[test]
fn a_run_is_named_by_a_unique_beginning_of_its_id() {
    let desk = Desk::new();
    let cue = desk.worker_cue("report");
    let first = desk.fire(&cue);
    desk.user.advance("PT1H");
    let (second, third) = (desk.fire(&cue), desk.fire(&cue));
    let found = |beginning: &str| desk.home.ok(&["run", "show", beginning, "-q"]);
    assert_eq!(found(&first[..8]), format!("{first}\n"), "also an old one");
    assert_eq!(found(&first[..8].to_uppercase()), format!("{first}\n"));
    assert_eq!(found(&first[..20]), format!("{first}\n"));
    let differ = second.bytes().zip(third.bytes()).position(|(one, two)| one != two).unwrap();
    assert_eq!(found(&second[..=differ]), format!("{second}\n"));
    let ambiguous = desk.home.fails(&["run", "show", &second[..8]], 5);
    assert!(ambiguous.contains(&second) && ambiguous.contains(&third), "{ambiguous}");
    assert_eq!(desk.home.json_error(&["run", "show", &second[..8]], 5)["code"], "refused");
    for missing in ["0198c0de", "ffffffff", &first[..7], "no-run", ""] {
        assert_eq!(desk.home.json_error(&["run", "show", missing], 3)["code"], "not_found", "{missing}");
    }
}

#[test]
fn attempts_and_requests_are_shown() {
    let (desk, receiver) = (Desk::new(), Receiver::with(Reaction::Status(503)));
    let run = desk.fire(&desk.webhook_cue("hook", &receiver.url()));
    desk.user.settle();
    receiver.react(Reaction::Status(200));
    desk.user.advance("PT1H");
    let shown = desk.home.ok(&["run", "attempts", &run]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("ATTEMPT  STARTED") && lines.len() == 3, "{shown}");
    assert!(
        lines[1].starts_with("1        2030-01-01 00:00:00+00:00") && lines[1].contains("retrying  503 "),
        "{shown}"
    );
    assert!(
        lines[2].starts_with("2        2030-01-01 01:00:00+00:00") && lines[2].contains("success   200"),
        "{shown}"
    );
    let body = desk.home.ok(&["run", "attempts", &run, "--body"]);
    assert!(body.contains("\nattempt 1: 503\n") && body.starts_with(&shown), "{body}");
    let path = format!("/v1/executions/{run}/attempts");
    assert_eq!(
        desk.home.ok(&["run", "attempts", &run, "--json"]).trim_end(),
        desk.user.get(&path).text().trim_end()
    );
    let sent = desk.home.run(&["run", "request", &run, "--attempt", "1"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stdout.starts_with(&format!("POST {}\n", receiver.url())), "{}", sent.stdout);
    assert!(
        sent.stdout.contains("X-CueAPI-Attempt: 1\n") && sent.stdout.contains("\n\n{"),
        "{}",
        sent.stdout
    );
    assert!(sent.stderr.starts_with("not exact: "), "{}", sent.stderr);
    assert!(desk.home.json(&["run", "request", &run])["headers"].is_array());
    assert_eq!(
        desk.home.json_error(&["run", "request", &run, "--attempt", "9"], 5)["code"],
        "validation_error"
    );
    let of_worker = desk.fire(&desk.worker_cue("report"));
    assert_eq!(desk.home.json_error(&["run", "request", &of_worker], 5)["code"], "invalid_state");
}

/// The answer of a receiver is text of others: it must not control the terminal.
#[test]
fn control_characters_of_a_receiver_do_not_reach_the_terminal() {
    let desk = Desk::new();
    let answer = "HTTP/1.1 500 X\r\nContent-Length: 12\r\n\r\n\u{1b}[2Ja\r\n\u{7}b\tc\n";
    let receiver = Receiver::with(Reaction::bytes(answer));
    let run = desk.fire(&desk.webhook_cue("hook", &receiver.url()));
    desk.user.settle();
    for command in [&["run", "show", &run][..], &["run", "attempts", &run, "--body"], &["run", "list"]] {
        let shown = desk.home.ok(command);
        assert!(!shown.contains(|char: char| char.is_control() && char != '\n'), "{shown:?}");
    }
    assert!(desk.home.ok(&["run", "attempts", &run, "--body"]).contains("\u{fffd}[2Ja\n\u{fffd}b    c\n"));
}

#[test]
fn a_waiting_run_is_sent_now_or_cancelled() {
    let (desk, receiver) = (Desk::new(), Receiver::with(Reaction::Status(503)));
    let hook = desk.webhook_cue("hook", &receiver.url());
    let run = desk.fire(&hook);
    desk.user.settle();
    let sent = desk.home.ok(&["run", "retry", &run]);
    assert!(sent.starts_with(&format!("sending run {run} now")), "{sent}");
    desk.user.settle();
    assert_eq!(receiver.count(), 2);
    assert_eq!(desk.home.ok(&["run", "cancel", &run]), format!("cancelled run {run} of hook\n"));
    assert_eq!(desk.run_status(&run), "failed");
    assert!(desk.home.ok(&["run", "show", &run]).contains("why            it was cancelled\n"));
    for command in ["retry", "cancel"] {
        assert_eq!(desk.home.json_error(&["run", command, &run], 5)["code"], "invalid_state", "{command}");
        assert_eq!(desk.home.json_error(&["run", command, UNKNOWN], 3)["code"], "execution_not_found");
    }
    let waiting = desk.fire(&desk.worker_cue("report"));
    assert_eq!(desk.home.json(&["run", "cancel", &waiting])["status"], "failed");
}

#[test]
fn an_outcome_is_accepted_rejected_and_reopened() {
    let desk = Desk::new();
    let cue = json!({"name": "report", "transport": "worker", "verification": {"mode": "manual"},
                     "schedule": {"type": "recurring", "cron": "0 0 1 7 *"}});
    let run = desk.fire(desk.user.create(&cue)["id"].as_str().unwrap());
    assert_eq!(desk.home.json_error(&["run", "verify", &run], 5)["code"], "invalid_state");
    desk.user.post(&format!("/v1/executions/{run}/outcome"), &json!({"success": true})).expect(200);
    assert_eq!(desk.home.ok(&["run", "verify", &run]), format!("run {run} is verified_success\n"));
    assert_eq!(desk.home.json_error(&["run", "verify", &run], 5)["code"], "invalid_state");
    assert_eq!(
        desk.home.ok(&["run", "verify", &run, "--reopen"]),
        format!("run {run} is verification_pending\n")
    );
    let rejected = desk.home.ok(&["run", "verify", &run, "--invalid", "--reason", "wrong month"]);
    assert_eq!(rejected, format!("run {run} is verification_failed\n"));
    let shown = desk.home.ok(&["run", "show", &run]);
    assert!(shown.contains("verdict        not valid: wrong month\n"), "{shown}");
    desk.home.fails(&["run", "verify", &run, "--reopen", "--invalid"], 2);
}

#[test]
fn an_unknown_run_exits_with_3() {
    let desk = Desk::new();
    for command in ["show", "attempts", "request", "replay", "retry", "cancel", "verify"] {
        assert_eq!(desk.home.json_error(&["run", command, UNKNOWN], 3)["code"], "execution_not_found");
    }
}
