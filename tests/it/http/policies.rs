//! Policies of a cue over HTTP: intervals, bounds and jitter of its schedule (contract §4.3), time-outs and pauses (§4.6).

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

fn work(schedule: Value) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": schedule})
}

/// A schedule of intervals, with other parts.
fn every(span: &str, more: Value) -> Value {
    with(json!({"type": "recurring", "every": span}), more)
}

fn once(at: &str, jitter_seconds: u32) -> Value {
    work(json!({"type": "once", "at": at, "jitter_seconds": jitter_seconds}))
}

/// A change of parts of a schedule.
fn schedule(parts: Value) -> Value {
    json!({ "schedule": parts })
}

/// A cue that calls the receiver every day, with other fields.
fn calling(receiver: &Receiver, more: Value) -> Value {
    let cue = json!({"name": "call", "callback": {"url": receiver.url()}});
    with(with(cue, schedule(every("1d", json!({})))), more)
}

fn upcoming(user: &Client, cue: &Value, limit: usize) -> Value {
    user.read(&format!("{}/upcoming?detail=true&limit={limit}", cue_path(cue)))
}

/// The instants at which the runs of a cue were due, oldest first.
fn ran(user: &Client, cue: &Value) -> Vec<String> {
    let executions = user.executions_of(id(cue));
    let mut instants: Vec<String> =
        executions.iter().map(|it| it.text("scheduled_for").to_owned()).collect();
    instants.sort();
    instants
}

/// The next run, as executions have it.
fn next_run(cue: &Value) -> String {
    cue.text("next_run").replace("+00:00", "Z")
}

fn succeed(user: &Client, cue: &Value) -> Value {
    let run = user.only_execution(id(cue));
    user.report(id(&run), &json!({"success": true}));
    run
}

#[test]
fn an_interval_counts_elapsed_time_from_the_creation() {
    let (_server, user) = Server::with_clock_and_user("2026-03-29T00:50:00Z");
    let cue = user.create(&work(every("20m", json!({"timezone": "Europe/Berlin"}))));
    assert_has(
        &cue["schedule"],
        json!({"every": "20m", "cron": null, "at": null, "start": null, "end": null}),
    );
    let next = upcoming(&user, &cue, 3);
    // The clock jumps from 02:00 to 03:00 between the first two.
    let expected = ["2026-03-29T01:10:00Z", "2026-03-29T01:30:00Z", "2026-03-29T01:50:00Z"];
    let words = "Every 20 minutes, Europe/Berlin";
    assert_has(&next, json!({"upcoming": expected, "description": words}));
    assert_eq!(next["occurrences"][0]["note"], Value::Null);
    let next_after = |patch: Value| next_run(&user.change(&cue, &patch));
    // A pause, and a change of another part, leave the grid where it is.
    user.advance("PT25M");
    user.change(&cue, &json!({"status": "paused"}));
    user.advance("PT50M");
    let grid = "2026-03-29T02:10:00Z";
    assert_eq!(next_after(json!({"status": "active"})), grid);
    assert_eq!(next_after(schedule(json!({"catch_up": "all"}))), grid);
    let changed = user.change(&cue, &schedule(json!({"every": "PT1M30S"})));
    assert_eq!(changed["schedule"]["every"], "PT1M30S");
    assert_eq!(next_run(&changed), "2026-03-29T02:06:30Z");
    // A client that sends back what it has read changes nothing.
    let shown = user.cue(&cue)["schedule"].clone();
    user.advance("PT1M");
    for same in [shown, json!({"every": "90s", "start": null})] {
        assert_eq!(next_after(schedule(same)), "2026-03-29T02:06:30Z");
    }
    user.advance("PT30S");
    let cron = user.change(&cue, &schedule(json!({"cron": "0 * * * *"})));
    assert_has(&cron["schedule"], json!({"every": null, "cron": "0 * * * *"}));
    // The form of crontabs.
    let pasted = user.create(&worker_cue("work", "@every 1h30m"));
    assert_has(&pasted["schedule"], json!({"every": "1h30m", "cron": null}));
    assert_eq!(next_run(&pasted), "2026-03-29T03:36:30Z");
}

#[test]
fn an_interval_stays_on_its_grid_after_a_downtime() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let cues = ["latest", "all", "none"]
        .map(|catch_up| user.create(&work(every("10m", json!({"catch_up": catch_up})))));
    user.advance("PT10M");
    assert_eq!(server.stop(), Some(0));
    let user = user.at(server.restart_at("2026-01-05T09:47:00Z"));
    user.settle();
    for (cue, (minutes, missed)) in
        cues.iter().zip([(&[10, 40][..], 2), (&[10, 20, 30, 40], 0), (&[10], 3)])
    {
        let expected: Vec<_> = minutes.iter().map(|it| format!("2026-01-05T09:{it}:00Z")).collect();
        assert_eq!(ran(&user, cue), expected);
        let next = "2026-01-05T09:50:00+00:00";
        assert_has(&user.cue(cue), json!({"missed_count": missed, "next_run": next}));
    }
}

#[test]
fn no_run_is_before_the_start_or_at_the_end_and_then_the_cue_is_completed() {
    let (_server, user) = Server::with_clock_and_user(START);
    let [cron, every] = [("cron", "*/15 * * * *"), ("every", "15m")].map(|(rule, value)| {
        user.create(&work(json!({
            "type": "recurring", "timezone": "Europe/Berlin", rule: value,
            "start": "2026-01-05T11:00:00", "end": "2026-01-05T10:30:00Z",
        })))
    });
    let expected = json!(["2026-01-05T10:00:00Z", "2026-01-05T10:15:00Z"]);
    for cue in [&cron, &every] {
        let bounds = json!({"start": "2026-01-05T10:00:00Z", "end": "2026-01-05T10:30:00Z"});
        assert_has(&cue["schedule"], bounds);
        assert_has(&upcoming(&user, cue, 5), json!({"upcoming": expected, "per_month": 2}));
    }
    let words = "Every 15 minutes from 5 January 2026 at 11:00 until 5 January 2026 at 11:30, Europe/Berlin";
    assert_eq!(upcoming(&user, &every, 1)["description"], words);
    user.advance("PT80M");
    let completed = json!({"status": "completed", "next_run": null, "run_count": 2});
    assert_has(&user.cue(&cron), completed);
    assert_eq!(json!(ran(&user, &every)), expected);
    // A failure of the last run pauses nothing: no run is left.
    let resume = || user.patch(&cue_path(&every), &json!({"status": "active"}));
    assert_has(&resume().expect(400)["error"], json!({"code": "invalid_schedule", "field": "end"}));
    let extended = user.change(&every, &schedule(json!({"end": null})));
    assert_has(&extended, json!({"status": "active", "next_run": "2026-01-05T10:30:00+00:00"}));
    // A pause over the end leaves nothing to resume.
    user.change(&every, &schedule(json!({"end": "2026-01-05T11:00:00Z"})));
    user.change(&every, &json!({"status": "paused"}));
    user.advance("PT1H");
    resume().expect(400);
}

#[test]
fn a_cue_whose_last_runs_were_missed_is_completed() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let bounds = json!({"catch_up": "none", "end": "2026-01-05T09:45:00Z"});
    let cue = user.create(&work(every("10m", bounds)));
    assert_eq!(server.stop(), Some(0));
    let user = user.at(server.restart_at("2026-01-05T12:00:00Z"));
    user.settle();
    assert_has(
        &user.cue(&cue),
        json!({"status": "completed", "missed_count": 4, "run_count": 0, "next_run": null}),
    );
}

#[test]
fn jitter_delays_all_runs_of_a_cue_by_the_same_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let parts = json!({"jitter_seconds": 600, "end": "2026-01-05T12:00:00Z"});
    let hourly = json!({"type": "recurring", "cron": "0 * * * *"});
    let jittered = work(with(hourly, parts));
    let mut delays = BTreeSet::new();
    for _ in 0..20 {
        let cue = user.create(&jittered);
        let next = upcoming(&user, &cue, 5);
        let runs = next.list("upcoming").iter().map(|run| run.as_str().unwrap());
        let runs: Vec<Timestamp> = runs.map(|run| run.parse().unwrap()).collect();
        assert_eq!(next_run(&cue), runs[0].to_string());
        let delay = runs[0].as_second() % 3_600;
        assert!((0..=600).contains(&delay), "{delay}");
        // Of 9:00, which is still to come if it is delayed, 10:00 and 11:00; that of 12:00 would be after the end.
        let count = 2 + usize::from(delay > 0);
        assert_eq!((runs.len(), runs[1].duration_since(runs[0]).as_secs()), (count, 3_600));
        let words = next.text("description");
        assert_eq!(words.contains(&format!(", {delay} s later, ")), delay > 0, "{words}");
        assert!(!words.contains("up to"), "{words}");
        delays.insert(delay);
    }
    assert!(delays.len() > 10, "{delays:?}");
    let cue = user.create(&jittered);
    user.advance("PT71M");
    assert_eq!(ran(&user, &cue)[0], next_run(&cue));
    // A cue with one run is delayed as well, and ends after it.
    let once = user.create(&once("2026-01-05T11:00:00Z", 30));
    user.advance("PT50M");
    assert_eq!(succeed(&user, &once)["scheduled_for"], next_run(&once));
    assert_eq!(user.cue(&once)["status"], "completed");
    let preview = with(schedule(every("5m", json!({"jitter_seconds": 40}))), json!({"limit": 1}));
    let preview = user.post("/v1/schedule/preview", &preview).expect(200);
    assert_eq!(preview["description"], "Every 5 minutes, up to 40 s later, UTC");
}

#[test]
fn another_jitter_moves_the_pending_run_and_repeats_none() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("work", "0 * * * *"));
    user.advance("PT61M");
    assert_eq!(ran(&user, &cue), ["2026-01-05T10:00:00Z"]);
    let patch = |jitter: u32| {
        let patch = json!({"status": "active", "schedule": {"jitter_seconds": jitter}});
        next_run(&user.change(&cue, &patch))
    };
    // Not the run of 10:00 again, whose delay would be to come.
    let (eleven, noon) = ("2026-01-05T11:00:00Z", "2026-01-05T12:00:00Z");
    let delayed = patch(3_600);
    assert!(delayed.as_str() >= eleven, "{delayed}");
    assert_eq!(patch(0), eleven);
    patch(3_600);
    user.advance("PT59M");
    // The run of 11:00 would be over without its delay: it keeps its time.
    let kept = if delayed.as_str() > eleven { delayed.as_str() } else { noon };
    assert_eq!(patch(0), kept);
    user.advance("PT62M");
    assert_eq!(ran(&user, &cue).len(), 3);
}

#[test]
fn jitter_neither_revives_nor_repeats_a_single_run() {
    let (_server, user) = Server::with_clock_and_user(START);
    for _ in 0..4 {
        user.post("/v1/cues", &once("2026-01-05T08:59:00Z", 3_600)).expect(400);
    }
    let cue = user.create(&once("2026-01-05T10:00:00Z", 3_600));
    user.advance("PT2H");
    // Another jitter during the execution does not keep the cue from its end.
    user.change(&cue, &json!({"status": "paused", "schedule": {"jitter_seconds": 0}}));
    succeed(&user, &cue);
    assert_eq!(user.cue(&cue)["status"], "completed");
    let patch = schedule(json!({"jitter_seconds": 60}));
    user.patch(&cue_path(&cue), &patch).expect(400);
    assert_eq!(user.cue(&cue)["status"], "completed");
}

#[test]
fn a_failure_pauses_a_cue_with_an_interval() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let on_failure = json!({"email": false, "pause": true});
    let more = json!({"retry": {"max_attempts": 1}, "on_failure": on_failure});
    let often = schedule(every("10m", json!({})));
    let cue = user.create(&calling(&receiver, with(often, more)));
    user.advance("PT11M");
    assert_has(&user.cue(&cue), json!({"status": "paused", "next_run": null}));
}

#[test]
fn the_first_run_of_an_interval_with_jitter_is_not_the_creation() {
    let (_server, user) = Server::with_clock_and_user(START);
    for _ in 0..5 {
        let next = next_run(&user.create(&work(every("1d", json!({"jitter_seconds": 3_600})))));
        assert!(next.starts_with("2026-01-06T09:") || next == "2026-01-06T10:00:00Z", "{next}");
    }
}

#[test]
fn an_attempt_has_the_time_of_its_cue() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Hang);
    let callback = json!({"url": receiver.url(), "timeout_seconds": 1});
    let more = json!({"callback": callback, "retry": {"max_attempts": 1}});
    let cue = user.create(&calling(&receiver, more));
    assert_eq!(cue["callback"]["timeout_seconds"], 1);
    let execution = user.fire(&cue);
    let failed = until("the time-out", || {
        Some(user.execution(&execution)).filter(|execution| execution["status"] == "failed")
    });
    assert_eq!(failed["cause"], "timeout");
    assert_contains(failed.text("error_message"), &["1 s"]);
    let patched = user.change(&cue, &json!({"callback": {"timeout_seconds": 300}}));
    assert_has(&patched["callback"], json!({"timeout_seconds": 300, "url": receiver.url()}));
}

#[test]
fn pauses_in_seconds_take_the_place_of_minutes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let seconds = json!({"max_attempts": 3, "backoff_seconds": [5, 90]});
    let cue = user.create(&calling(&receiver, json!({"retry": seconds})));
    let minutes = json!({"max_attempts": 3, "backoff_minutes": [1, 2]});
    let retry = with(seconds, minutes.clone());
    assert_eq!(cue["retry"], retry);
    let execution = user.fire(&cue);
    user.settle();
    assert_eq!(user.execution(&execution)["next_retry"], "2026-01-05T09:00:05Z");
    user.advance("PT5S");
    assert_eq!(user.execution(&execution)["next_retry"], "2026-01-05T09:01:35Z");
    let patch = |retry: Value| user.change(&cue, &json!({"retry": retry}))["retry"].clone();
    // A client that does not know the seconds sends the minutes back.
    assert_eq!(patch(minutes), retry);
    let other = json!({"max_attempts": 3, "backoff_minutes": [4]});
    assert_eq!(patch(json!({"backoff_minutes": [4]})), other);
    assert_eq!(patch(json!({"backoff_seconds": [61]}))["backoff_minutes"], json!([2]));
    assert_eq!(patch(json!({"backoff_seconds": null}))["backoff_seconds"], Value::Null);
}
