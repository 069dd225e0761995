//! Policies of a cue over HTTP: intervals, bounds and jitter of its schedule (contract §4.3), time-outs and pauses (§4.6).

use crate::support::*;

const START: &str = "2026-01-05T09:00:00Z";

fn work(schedule: Value) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": schedule})
}

fn path(cue: &Value) -> String {
    format!("/v1/cues/{}", id(cue))
}

fn upcoming(user: &Client, cue: &Value, limit: usize) -> Value {
    user.get(&format!("{}/upcoming?detail=true&limit={limit}", path(cue))).expect(200)
}

/// The instants at which the runs of a cue were due, oldest first.
fn ran(user: &Client, cue: &Value) -> Vec<String> {
    let executions = user.executions_of(id(cue));
    let instants = executions.iter().map(|it| it["scheduled_for"].as_str().unwrap().to_owned());
    let mut instants: Vec<String> = instants.collect();
    instants.sort();
    instants
}

#[test]
fn an_interval_counts_elapsed_time_from_the_creation() {
    let (_server, user) = Server::with_clock_and_user("2026-03-29T00:50:00Z");
    let schedule = json!({"type": "recurring", "every": "20m", "timezone": "Europe/Berlin"});
    let cue = user.create(&work(schedule));
    assert_has(
        &cue["schedule"],
        json!({"every": "20m", "cron": null, "at": null, "start": null, "end": null}),
    );
    let next = upcoming(&user, &cue, 3);
    // The clock jumps from 02:00 to 03:00 between the first two.
    let expected = json!(["2026-03-29T01:10:00Z", "2026-03-29T01:30:00Z", "2026-03-29T01:50:00Z"]);
    assert_eq!((&next["upcoming"], &next["occurrences"][0]["note"]), (&expected, &Value::Null));
    assert_eq!(next["description"], "Every 20 minutes, Europe/Berlin");
    // A pause, and a change of another part, leave the grid where it is.
    user.advance("PT25M");
    user.patch(&path(&cue), &json!({"status": "paused"})).expect(200);
    user.advance("PT50M");
    let resumed = user.patch(&path(&cue), &json!({"status": "active"})).expect(200);
    assert_eq!(resumed["next_run"], "2026-03-29T02:10:00+00:00");
    let patch = json!({"schedule": {"catch_up": "all"}});
    assert_eq!(
        user.patch(&path(&cue), &patch).expect(200)["next_run"],
        "2026-03-29T02:10:00+00:00"
    );
    let changed = user.patch(&path(&cue), &json!({"schedule": {"every": "PT1M30S"}})).expect(200);
    assert_eq!(changed["schedule"]["every"], "PT1M30S");
    assert_eq!(changed["next_run"], "2026-03-29T02:06:30+00:00");
    // A client that sends back what it has read changes nothing.
    let shown = user.get(&path(&cue)).expect(200);
    user.advance("PT1M");
    for schedule in [shown["schedule"].clone(), json!({"every": "90s", "start": null})] {
        let same = user.patch(&path(&cue), &json!({"schedule": schedule})).expect(200);
        assert_eq!(same["next_run"], changed["next_run"]);
    }
    user.advance("PT30S");
    let cron = user.patch(&path(&cue), &json!({"schedule": {"cron": "0 * * * *"}})).expect(200);
    assert_has(&cron["schedule"], json!({"every": null, "cron": "0 * * * *"}));
    // The form of crontabs.
    let pasted = user.create(&work(json!({"type": "recurring", "cron": "@every 1h30m"})));
    assert_has(&pasted["schedule"], json!({"every": "1h30m", "cron": null}));
    assert_eq!(pasted["next_run"], "2026-03-29T03:36:30+00:00");
}

#[test]
fn an_interval_stays_on_its_grid_after_a_downtime() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let cue = |catch_up: &str| {
        user.create(&work(json!({"type": "recurring", "every": "10m", "catch_up": catch_up})))
    };
    let (latest, all, none) = (cue("latest"), cue("all"), cue("none"));
    user.advance("PT10M");
    assert_eq!(server.stop(), Some(0));
    server.restart_at("2026-01-05T09:47:00Z");
    let user = user.at(server.addr());
    user.settle();
    let at = |minute: u32| format!("2026-01-05T09:{minute}:00Z");
    assert_eq!(ran(&user, &latest), [at(10), at(40)]);
    assert_eq!(ran(&user, &all), [at(10), at(20), at(30), at(40)]);
    assert_eq!(ran(&user, &none), [at(10)]);
    for (cue, missed) in [(&latest, 2), (&all, 0), (&none, 3)] {
        let cue = user.get(&path(cue)).expect(200);
        assert_has(&cue, json!({"missed_count": missed, "next_run": "2026-01-05T09:50:00+00:00"}));
    }
}

#[test]
fn no_run_is_before_the_start_or_at_the_end_and_then_the_cue_is_completed() {
    let (_server, user) = Server::with_clock_and_user(START);
    let bounds = |rule: &str, value: &str| {
        let mut schedule = json!({
            "type": "recurring", "timezone": "Europe/Berlin",
            "start": "2026-01-05T11:00:00", "end": "2026-01-05T10:30:00Z",
        });
        schedule[rule] = value.into();
        user.create(&work(schedule))
    };
    let (cron, every) = (bounds("cron", "*/15 * * * *"), bounds("every", "15m"));
    let expected = json!(["2026-01-05T10:00:00Z", "2026-01-05T10:15:00Z"]);
    for cue in [&cron, &every] {
        assert_has(
            &cue["schedule"],
            json!({"start": "2026-01-05T10:00:00Z", "end": "2026-01-05T10:30:00Z"}),
        );
        let next = upcoming(&user, cue, 5);
        assert_eq!((&next["upcoming"], &next["per_month"]), (&expected, &json!(2)));
    }
    let words = "Every 15 minutes from 5 January 2026 at 11:00 until 5 January 2026 at 11:30, Europe/Berlin";
    assert_eq!(upcoming(&user, &every, 1)["description"], words);
    user.advance("PT80M");
    let shown = user.get(&path(&cron)).expect(200);
    assert_has(&shown, json!({"status": "completed", "next_run": null, "run_count": 2}));
    assert_eq!(json!(ran(&user, &every)), expected);
    // A failure of the last run pauses nothing: no run is left.
    let refused = user.patch(&path(&every), &json!({"status": "active"})).expect(400);
    assert_has(&refused["error"], json!({"code": "invalid_schedule", "field": "end"}));
    let extended = user.patch(&path(&every), &json!({"schedule": {"end": null}})).expect(200);
    assert_has(&extended, json!({"status": "active", "next_run": "2026-01-05T10:30:00+00:00"}));
    // A pause over the end leaves nothing to resume.
    user.patch(&path(&every), &json!({"schedule": {"end": "2026-01-05T11:00:00Z"}})).expect(200);
    user.patch(&path(&every), &json!({"status": "paused"})).expect(200);
    user.advance("PT1H");
    user.patch(&path(&every), &json!({"status": "active"})).expect(400);
}

#[test]
fn a_cue_whose_last_runs_were_missed_is_completed() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let schedule = json!({"type": "recurring", "every": "10m", "catch_up": "none", "end": "2026-01-05T09:45:00Z"});
    let cue = user.create(&work(schedule));
    assert_eq!(server.stop(), Some(0));
    server.restart_at("2026-01-05T12:00:00Z");
    let user = user.at(server.addr());
    user.settle();
    let shown = user.get(&path(&cue)).expect(200);
    assert_has(
        &shown,
        json!({"status": "completed", "missed_count": 4, "run_count": 0, "next_run": null}),
    );
}

#[test]
fn jitter_delays_all_runs_of_a_cue_by_the_same_time() {
    let (_server, user) = Server::with_clock_and_user(START);
    let schedule = json!({"type": "recurring", "cron": "0 * * * *", "jitter_seconds": 600, "end": "2026-01-05T12:00:00Z"});
    let mut delays = BTreeSet::new();
    for _ in 0..20 {
        let cue = user.create(&work(schedule.clone()));
        let next = upcoming(&user, &cue, 5);
        let runs: Vec<jiff::Timestamp> = next["upcoming"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run.as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(
            cue["next_run"].as_str().unwrap().replace("+00:00", "Z"),
            next["upcoming"][0].as_str().unwrap()
        );
        let delay = runs[0].as_second() % 3_600;
        assert!((0..=600).contains(&delay), "{delay}");
        // Of 9:00, which is still to come if it is delayed, 10:00 and 11:00; that of 12:00 would be after the end.
        let count = 2 + usize::from(delay > 0);
        assert_eq!((runs.len(), runs[1].duration_since(runs[0]).as_secs()), (count, 3_600));
        let words = next["description"].as_str().unwrap();
        assert_eq!(words.contains(&format!(", {delay} s later, ")), delay > 0, "{words}");
        assert!(!words.contains("up to"), "{words}");
        delays.insert(delay);
    }
    assert!(delays.len() > 10, "{delays:?}");
    let cue = user.create(&work(schedule));
    let first = upcoming_run(&cue);
    user.advance("PT71M");
    assert_eq!(ran(&user, &cue)[0], first);
    // A cue with one run is delayed as well, and ends after it.
    let once = json!({"type": "once", "at": "2026-01-05T11:00:00Z", "jitter_seconds": 30});
    let once = user.create(&work(once));
    user.advance("PT50M");
    let run = user.only_execution(id(&once));
    assert_eq!(run["scheduled_for"], upcoming_run(&once));
    user.report(id(&run), &json!({"success": true}));
    assert_eq!(user.get(&path(&once)).expect(200)["status"], "completed");
    let preview =
        json!({"schedule": {"type": "recurring", "every": "5m", "jitter_seconds": 40}, "limit": 1});
    let preview = user.post("/v1/schedule/preview", &preview).expect(200);
    assert_eq!(preview["description"], "Every 5 minutes, up to 40 s later, UTC");
}

#[test]
fn another_jitter_moves_the_pending_run_and_repeats_none() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work(json!({"type": "recurring", "cron": "0 * * * *"})));
    user.advance("PT61M");
    assert_eq!(ran(&user, &cue), ["2026-01-05T10:00:00Z"]);
    let patch = |jitter: u32| {
        let patch = json!({"status": "active", "schedule": {"jitter_seconds": jitter}});
        upcoming_run(&user.patch(&path(&cue), &patch).expect(200))
    };
    // Not the run of 10:00 again, whose delay would be to come.
    let delayed = patch(3_600);
    assert!(delayed.as_str() >= "2026-01-05T11:00:00Z", "{delayed}");
    assert_eq!(patch(0), "2026-01-05T11:00:00Z");
    patch(3_600);
    user.advance("PT59M");
    // The run of 11:00 would be over without its delay: it keeps its time.
    let kept = if delayed.as_str() > "2026-01-05T11:00:00Z" {
        delayed
    } else {
        "2026-01-05T12:00:00Z".to_owned()
    };
    assert_eq!(patch(0), kept);
    user.advance("PT62M");
    assert_eq!(ran(&user, &cue).len(), 3);
}

#[test]
fn jitter_neither_revives_nor_repeats_a_single_run() {
    let (_server, user) = Server::with_clock_and_user(START);
    let once = |at: &str| work(json!({"type": "once", "at": at, "jitter_seconds": 3_600}));
    for _ in 0..4 {
        user.post("/v1/cues", &once("2026-01-05T08:59:00Z")).expect(400);
    }
    let cue = user.create(&once("2026-01-05T10:00:00Z"));
    user.advance("PT2H");
    let run = user.only_execution(id(&cue));
    // Another jitter during the execution does not keep the cue from its end.
    user.patch(&path(&cue), &json!({"status": "paused", "schedule": {"jitter_seconds": 0}}))
        .expect(200);
    user.report(id(&run), &json!({"success": true}));
    assert_eq!(user.get(&path(&cue)).expect(200)["status"], "completed");
    user.patch(&path(&cue), &json!({"schedule": {"jitter_seconds": 60}})).expect(400);
    assert_eq!(user.get(&path(&cue)).expect(200)["status"], "completed");
}

#[test]
fn a_failure_pauses_a_cue_with_an_interval() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let cue = user.create(&json!({
        "name": "fails", "schedule": {"type": "recurring", "every": "10m"}, "retry": {"max_attempts": 1},
        "callback": {"url": receiver.url()}, "on_failure": {"email": false, "pause": true},
    }));
    user.advance("PT11M");
    assert_has(&user.get(&path(&cue)).expect(200), json!({"status": "paused", "next_run": null}));
}

#[test]
fn the_first_run_of_an_interval_with_jitter_is_not_the_creation() {
    let (_server, user) = Server::with_clock_and_user(START);
    for _ in 0..5 {
        let cue = user
            .create(&work(json!({"type": "recurring", "every": "1d", "jitter_seconds": 3_600})));
        let next = cue["next_run"].as_str().unwrap();
        assert!(
            next.starts_with("2026-01-06T09:") || next == "2026-01-06T10:00:00+00:00",
            "{next}"
        );
    }
}

fn upcoming_run(cue: &Value) -> String {
    cue["next_run"].as_str().unwrap().replace("+00:00", "Z")
}

#[test]
fn the_end_of_a_schedule_is_in_the_zone_of_its_cue_and_in_the_future() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work(json!({"type": "recurring", "every": "1m"})));
    user.patch(&path(&cue), &json!({"schedule": {"timezone": "America/New_York"}})).expect(200);
    let bounds = json!({"start": "2027-01-01T09:00:00Z", "end": "2027-01-01T08:00:00"});
    user.patch(&path(&cue), &json!({"schedule": bounds})).expect(200);
    let past = work(json!({"type": "recurring", "every": "5m", "end": "2026-01-05T09:05:00Z"}));
    let refused = user.post("/v1/cues", &past).expect(400);
    assert_has(&refused["error"], json!({"code": "invalid_schedule", "field": "end"}));
    let unused =
        json!({"type": "once", "at": "2027-01-01T00:00:00Z", "start": START, "every": "5m"});
    let warning = "Ignored fields: schedule.every (not used by a once schedule), schedule.start (not used by a once schedule)";
    let created = user.create(&work(unused));
    assert!(created["warning"].as_str().unwrap().starts_with(warning), "{created}");
}

#[test]
fn an_attempt_has_the_time_of_its_cue() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Hang);
    let cue = user.create(&json!({
        "name": "slow", "schedule": {"type": "recurring", "every": "1d"},
        "callback": {"url": receiver.url(), "timeout_seconds": 1}, "retry": {"max_attempts": 1},
    }));
    assert_eq!(cue["callback"]["timeout_seconds"], 1);
    let execution = user.fire(&cue);
    let failed = until("the time-out", || {
        Some(user.execution(&execution)).filter(|execution| execution["status"] == "failed")
    });
    assert_eq!(failed["cause"], "timeout");
    assert!(failed["error_message"].as_str().unwrap().contains("1 s"), "{failed}");
    let patched =
        user.patch(&path(&cue), &json!({"callback": {"timeout_seconds": 300}})).expect(200);
    assert_has(&patched["callback"], json!({"timeout_seconds": 300, "url": receiver.url()}));
}

#[test]
fn pauses_in_seconds_take_the_place_of_minutes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(500));
    let cue = user.create(&json!({
        "name": "flaky", "schedule": {"type": "recurring", "every": "1d"},
        "callback": {"url": receiver.url()}, "retry": {"max_attempts": 3, "backoff_seconds": [5, 90]},
    }));
    let retry = json!({"max_attempts": 3, "backoff_minutes": [1, 2], "backoff_seconds": [5, 90]});
    assert_eq!(cue["retry"], retry);
    let execution = user.fire(&cue);
    user.settle();
    assert_eq!(user.execution(&execution)["next_retry"], "2026-01-05T09:00:05Z");
    user.advance("PT5S");
    assert_eq!(user.execution(&execution)["next_retry"], "2026-01-05T09:01:35Z");
    // A client that does not know the seconds sends the minutes back.
    let patch = |retry: Value| {
        user.patch(&path(&cue), &json!({"retry": retry})).expect(200)["retry"].clone()
    };
    assert_eq!(patch(json!({"max_attempts": 3, "backoff_minutes": [1, 2]})), retry);
    let minutes = json!({"max_attempts": 3, "backoff_minutes": [4]});
    assert_eq!(patch(json!({"backoff_minutes": [4]})), minutes);
    assert_eq!(patch(json!({"backoff_seconds": [61]}))["backoff_minutes"], json!([2]));
    assert_eq!(patch(json!({"backoff_seconds": null}))["backoff_seconds"], Value::Null);
}
