//! Schedules over long times: daylight saving, outages, a simulated year.

use std::sync::mpsc;

use cued::store::db::counters;
use rusqlite::Connection;

use crate::journeys::{at, cron, due_instants, id, in_zone, instants_of, webhook, worker};
use crate::support::*;

#[test]
fn a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-01-05T08:59:00Z"), Receiver::start());
    let cue = user.create(&webhook(&receiver, cron("0 9 * * 1-5")));
    assert_has(
        &cue,
        json!({"status": "active", "run_count": 0, "next_run": "2026-01-05T09:00:00+00:00"}),
    );
    let moved = user.advance("P7D");
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(5), &json!(5)), "{moved}");
    assert_eq!(
        due_instants(&receiver.deliveries()),
        ["05", "06", "07", "08", "09"].map(|day| format!("2026-01-{day}T09:00:00Z"))
    );
    let seen = user.cue(&cue);
    assert_has(&seen, json!({"run_count": 5, "last_run": "2026-01-09T09:00:00Z"}));
    assert_eq!(seen["next_run"], "2026-01-12T09:00:00+00:00");
    let newest = &seen["executions"][0];
    assert_has(newest, json!({"status": "success", "attempts": 1, "http_status": 200}));
    assert_eq!(user.delete(&format!("/v1/cues/{}", id(&cue))).status, 204);
    assert_eq!(user.advance("P7D")["fired"], 0);
}

#[test]
fn a_skipped_hour_runs_its_cue_once_after_the_gap() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-03-27T12:00:00Z"), Receiver::start());
    let schedule = in_zone("30 2 * * *", "Europe/Berlin");
    user.create(&webhook(&receiver, schedule));
    user.advance_to("2026-03-30T12:00:00Z");
    assert_eq!(
        due_instants(&receiver.deliveries()),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    );
}

#[test]
fn a_repeated_hour_runs_a_daily_cue_once_and_an_hourly_cue_each_hour() {
    let (_server, user) = Server::with_clock_and_user("2026-10-24T22:00:00Z");
    let in_berlin = |line: &str| user.create(&worker(in_zone(line, "Europe/Berlin")));
    let (nightly, quarters, even_hours) =
        (in_berlin("30 2 * * *"), in_berlin("*/15 * * * *"), in_berlin("0 */2 * * *"));
    // One local day of 25 hours.
    user.advance_to("2026-10-25T22:59:00Z");
    assert_eq!(instants_of(&user.executions_of(id(&nightly))), ["2026-10-25T00:30:00Z"]);
    assert_eq!(user.cue(&quarters)["run_count"], 99, "the clock started at midnight");
    let hours = user.executions_of(id(&even_hours));
    assert_eq!(hours.len(), 11, "{:?}", instants_of(&hours));
}

#[test]
fn runs_skipped_by_a_pause_are_not_missed() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-01-05T00:00:30Z"), Receiver::start());
    let cue = user.create(&webhook(&receiver, cron("*/10 * * * *")));
    let path = format!("/v1/cues/{}", id(&cue));
    user.advance("PT10M");
    let paused = user.patch(&path, &json!({"status": "paused"})).expect(200);
    assert_eq!((&paused["status"], &paused["next_run"]), (&json!("paused"), &Value::Null));
    assert_eq!(user.advance("PT1H")["fired"], 0);
    let resumed = user.patch(&path, &json!({"status": "active"})).expect(200);
    assert_eq!(resumed["next_run"], "2026-01-05T01:20:00+00:00");
    user.advance("PT10M");
    assert_eq!(
        due_instants(&receiver.deliveries()),
        ["2026-01-05T00:10:00Z", "2026-01-05T01:20:00Z"]
    );
    let missed = user.read(&format!("{path}/missed"));
    assert_eq!((&missed["missed"], &missed["total"]), (&json!([]), &json!(0)));
    assert_eq!(user.cue(&cue)["missed_count"], 0);
}

#[test]
fn a_paused_cue_rejects_a_past_instant() {
    let (_server, user) = Server::with_clock_and_user("2026-01-05T00:00:00Z");
    let cue = user.create(&worker(cron("0 9 * * *")));
    let path = format!("/v1/cues/{}", id(&cue));
    user.patch(&path, &json!({"status": "paused"})).expect(200);
    let past = json!({"schedule": at("2026-01-04T00:00:00Z")});
    user.patch(&path, &past).expect_error(400, "invalid_schedule");
    assert_eq!(user.cue(&cue)["schedule"], cue["schedule"]);
    let future = user.patch(&path, &json!({"schedule": at("2026-01-06T00:00:00Z")})).expect(200);
    assert_eq!((&future["status"], &future["next_run"]), (&json!("paused"), &Value::Null));
    user.advance("P2D");
    // The instant has passed by now: other fields may change, but the cue cannot be resumed.
    user.patch(&path, &json!({"schedule": {"catch_up": "none"}})).expect(200);
    user.patch(&path, &json!({"status": "active"})).expect_error(400, "invalid_schedule");
}

#[test]
fn a_once_cue_completes_with_its_execution() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-01-05T00:00:00Z"), Receiver::start());
    let delivered = user.create(&webhook(&receiver, at("2026-01-05T02:00:00+01:00")));
    let done = user.create(&worker(at("2026-01-05T01:00:00Z")));
    let botched = user.create(&worker(at("2026-01-05T01:00:00Z")));
    assert_eq!(delivered["next_run"], "2026-01-05T01:00:00+00:00");
    user.advance("PT1H");
    assert_eq!(user.cue(&delivered)["status"], "completed");
    for (cue, success, status) in [(&done, true, "completed"), (&botched, false, "failed")] {
        let under_way = user.cue(cue);
        assert_has(&under_way, json!({"status": "active", "next_run": null}));
        let execution = user.only_execution(id(cue));
        assert_eq!((&execution["status"], &execution["attempts"]), (&json!("pending"), &json!(0)));
        let path = format!("/v1/executions/{}", id(&execution));
        user.post(&format!("{path}/claim"), &json!({"worker_id": "w"})).expect(200);
        assert_eq!(user.read(&path)["status"], "delivering");
        user.post(&format!("{path}/outcome"), &json!({"success": success, "result": "as it went"}))
            .expect(200);
        let over = user.read(&path);
        assert_eq!(over["status"], json!(if success { "success" } else { "failed" }));
        assert_eq!(over["outcome"]["result"], "as it went");
        assert_eq!(user.cue(cue)["status"], status);
    }
    for (status, total) in [("active", 0), ("completed", 2), ("failed", 1)] {
        assert_eq!(user.read(&format!("/v1/cues?status={status}"))["total"], total, "{status}");
    }
}

#[test]
fn runs_missed_during_downtime_follow_the_catch_up_policy() {
    let (mut server, user) = Server::with_clock_and_user("2026-01-05T00:00:30Z");
    let create = |line: &str, catch_up: &str| {
        let mut schedule = cron(line);
        schedule["catch_up"] = json!(catch_up);
        user.create(&worker(schedule))
    };
    let (latest, all, none) = (
        create("*/5 * * * *", "latest"),
        create("*/5 * * * *", "all"),
        create("*/5 * * * *", "none"),
    );
    let minutes = create("* * * * *", "all");
    let once = user.create(&worker(at("2026-01-05T00:30:00Z")));
    user.settle();
    server.kill();
    let user = user.at(server.restart_at("2026-01-05T02:00:30Z"));
    user.settle();

    let missed = |cue: &Value| user.read(&format!("/v1/cues/{}/missed", id(cue)));
    let gap = |first: &str, last: &str, count: u32| {
        let row = json!({"first": first, "last": last, "count": count, "reason": "downtime"});
        json!({"missed": [row], "total": 1, "has_more": false})
    };
    assert_eq!(instants_of(&user.executions_of(id(&latest))), ["2026-01-05T02:00:00Z"]);
    assert_eq!(missed(&latest), gap("2026-01-05T00:05:00Z", "2026-01-05T01:55:00Z", 23));
    assert_eq!(user.cue(&latest)["missed_count"], 23);

    let executions = user.executions_of(id(&all));
    assert_eq!(executions.len(), 24);
    assert_eq!(executions[0]["scheduled_for"], "2026-01-05T02:00:00Z");
    assert_eq!(executions[23]["scheduled_for"], "2026-01-05T00:05:00Z");
    assert_eq!(missed(&all)["total"], 0);

    assert_eq!(user.executions_of(id(&none)).len(), 0);
    assert_eq!(missed(&none), gap("2026-01-05T00:05:00Z", "2026-01-05T02:00:00Z", 24));

    assert_eq!(user.executions_of(id(&minutes)).len(), 100, "the newest hundred");
    assert_eq!(missed(&minutes), gap("2026-01-05T00:01:00Z", "2026-01-05T00:20:00Z", 20));

    // A `once` cue always fires.
    assert_eq!(instants_of(&user.executions_of(id(&once))), ["2026-01-05T00:30:00Z"]);
    for cue in [&latest, &all, &none] {
        assert_eq!(user.cue(cue)["next_run"], "2026-01-05T02:05:00+00:00");
    }
}

#[test]
fn a_schedule_can_be_previewed() {
    let (_server, user) = Server::with_clock_and_user("2026-03-28T12:00:00Z");
    let schedule = in_zone("30 2 * * *", "Europe/Berlin");
    let upcoming = json!(["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]);
    let expected = json!({
        "upcoming": upcoming,
        "description": "Every day at 02:30, Europe/Berlin",
        "occurrences": [
            {"at": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00", "offset": "+02:00",
             "note": "gap: 02:30 does not exist, runs at 03:00"},
            {"at": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00", "offset": "+02:00", "note": null},
            {"at": "2026-03-31T00:30:00Z", "local": "2026-03-31T02:30:00", "offset": "+02:00", "note": null},
        ],
        "transitions": [{"at": "2026-03-29T01:00:00Z", "from": "+01:00", "to": "+02:00"}],
        "per_month": 31,
    });
    let preview =
        user.post("/v1/schedule/preview", &json!({"schedule": schedule, "limit": 3})).expect(200);
    assert_eq!(preview, expected);
    let cue = user.create(&worker(schedule));
    let path = format!("/v1/cues/{}/upcoming?limit=3", id(&cue));
    assert_eq!(user.read(&path), json!({ "upcoming": upcoming }));
    assert_eq!(user.read(&format!("{path}&detail=false")), json!({ "upcoming": upcoming }));
    assert_eq!(user.read(&format!("{path}&detail=true")), expected);
}

#[test]
fn the_runs_of_another_date_can_be_previewed() {
    let (_server, user) = Server::with_clock_and_user("2026-03-28T12:00:00Z");
    let schedule = in_zone("30 2 * * *", "Europe/Berlin");
    let preview = |from: &str| {
        let body = json!({"schedule": schedule, "limit": 2, "from": from});
        user.post("/v1/schedule/preview", &body).expect(200)
    };
    let autumn = preview("2026-10-25T02:30:00+02:00");
    // The instant of `from` is included.
    assert_eq!(autumn["upcoming"], json!(["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]));
    assert_eq!(autumn["occurrences"][0]["note"], "fold: 02:30 comes twice, runs the first time");
    assert_eq!(autumn["transitions"][0]["at"], "2026-10-25T01:00:00Z");
    // An instant of the past is taken as any other.
    assert_eq!(preview("2020-01-01T00:00:00")["upcoming"][0], "2020-01-01T01:30:00Z");
    let last = preview("9999-12-30T00:00:00Z");
    assert!(last.list("upcoming").len() <= 2, "{last}");

    let cue = user.create(&worker(schedule.clone()));
    let path = format!("/v1/cues/{}/upcoming", id(&cue));
    let query = "limit=2&detail=1&from=2026-10-25T02:30:00%2B02:00";
    assert_eq!(user.read(&format!("{path}?{query}")), autumn);
    let refused = user.get(&format!("{path}?from=noon")).expect_error(422, "validation_error");
    assert_eq!(refused["detail"][0]["loc"], json!(["query", "from"]));
    let refused = user
        .post("/v1/schedule/preview", &json!({"schedule": schedule, "from": "noon"}))
        .expect_error(422, "validation_error");
    assert_eq!(refused["detail"][0]["loc"], json!(["body", "from"]));

    user.patch(&format!("/v1/cues/{}", id(&cue)), &json!({"status": "paused"})).expect(200);
    let paused = user.read(&format!("{path}?{query}"));
    let nothing = json!({"upcoming": [], "description": autumn["description"], "occurrences": [],
                         "transitions": [], "per_month": 0});
    assert_eq!(paused, nothing, "a paused cue does not run");
}

#[test]
fn the_preview_of_a_once_schedule_says_what_a_clock_change_does_to_its_local_time() {
    let (_server, user) = Server::with_clock_and_user("2026-03-28T12:00:00Z");
    let once = |at: &str| json!({"type": "once", "at": at, "timezone": "Europe/Berlin"});
    let skipped = "gap: 02:30 does not exist, runs at 03:00";
    let (first, second) = (
        "fold: 02:30 comes twice, runs the first time",
        "fold: 02:30 comes twice, runs the second time",
    );
    for (at, instant, previewed, stored) in [
        ("2026-03-29T02:30:00", "2026-03-29T01:00:00Z", json!(skipped), Value::Null),
        // The same instant, but nothing is skipped.
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00Z", Value::Null, Value::Null),
        ("2026-03-29T02:30:00+01:00", "2026-03-29T01:30:00Z", Value::Null, Value::Null),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00Z", json!(first), json!(first)),
        ("2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z", json!(second), json!(second)),
    ] {
        let preview = user.post("/v1/schedule/preview", &json!({"schedule": once(at)})).expect(200);
        assert_eq!(preview["upcoming"], json!([instant]), "{at}");
        assert_eq!(preview["occurrences"][0]["note"], previewed, "{at}");
        let cue = user.create(&worker(once(at)));
        let path = format!("/v1/cues/{}/upcoming?detail=true", id(&cue));
        let upcoming = user.read(&path);
        assert_eq!(upcoming["upcoming"], json!([instant]));
        assert_eq!(upcoming["occurrences"][0]["note"], stored);
    }
    let later = json!({"schedule": once("2026-03-29T02:30:00"), "from": "2026-04-01T00:00:00Z"});
    assert_eq!(user.post("/v1/schedule/preview", &later).expect(200)["occurrences"], json!([]));
}

#[test]
fn a_schedule_in_words_is_previewed_and_created_as_it_was_understood() {
    let (_server, user) = Server::with_clock_and_user("2026-11-26T12:00:00Z");
    let preview = |text: &str| {
        let body = json!({"text": text, "timezone": "europe/berlin", "limit": 1});
        user.post("/v1/schedule/preview", &body).expect(200)
    };
    let weekdays = preview("every weekday at 9");
    assert_has(
        &weekdays,
        json!({"description": "At 09:00, Monday to Friday, Europe/Berlin", "upcoming": ["2026-11-27T08:00:00Z"]}),
    );
    for (text, schedule, next_run) in [
        (
            "every weekday at 9",
            json!({"type": "recurring", "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}),
            "2026-11-27T08:00:00+00:00",
        ),
        (
            "@every 5m",
            json!({"type": "recurring", "every": "5m", "timezone": "Europe/Berlin"}),
            "2026-11-26T12:05:00+00:00",
        ),
        (
            "in 10 minutes",
            json!({"type": "once", "at": "2026-11-26T12:10:00Z", "timezone": "Europe/Berlin"}),
            "2026-11-26T12:10:00+00:00",
        ),
    ] {
        let understood = preview(text)["schedule"].clone();
        assert_eq!(understood, schedule, "{text}");
        let cue = user.create(&worker(understood));
        assert_eq!(cue["next_run"], next_run, "{text}");
    }
    let utc = user.post("/v1/schedule/preview", &json!({"text": "daily 9:00"})).expect(200);
    assert_eq!(utc["schedule"]["timezone"], "UTC", "the default of the API");
    assert_eq!(
        preview("2027-03-28 02:30")["occurrences"][0]["note"],
        "gap: 02:30 does not exist, runs at 03:00"
    );

    let refused = |body: &Value| {
        user.post("/v1/schedule/preview", body).expect_error(400, "invalid_schedule")
    };
    let error = refused(&json!({"text": "every fortnight"}))["error"].clone();
    assert_eq!((&error["field"], &error["span"]), (&json!("text"), &json!([6, 15])), "{error}");
    assert_eq!(refused(&json!({"text": "0 25 * * *"}))["error"]["field"], "hour");
    assert_eq!(refused(&json!({"text": "today 11:00"}))["error"]["field"], "at", "it has passed");
    // A cue takes no words, and says who does.
    let words = worker(json!({"type": "recurring", "cron": "every weekday at 9"}));
    let error = user.post("/v1/cues", &words).expect_error(400, "invalid_schedule");
    let message = error["error"].text("message");
    assert_contains(message, &["as `text` to the preview"]);
    let berlin = worker(json!({"type": "recurring", "cron": "0 9 * * *", "timezone": "Berlin"}));
    let error = user.post("/v1/cues", &berlin).expect_error(400, "invalid_timezone");
    assert_eq!(
        error["error"]["message"],
        "`Berlin` is not a time zone; did you mean Europe/Berlin?"
    );
}

const START: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z
const STEP: i64 = 900;

fn instant(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

#[test]
fn every_due_instant_runs_once_or_is_missed_once() {
    let mut random = Random::seeded("year");
    let (days, kills) = if is_full_run() { (365, 80) } else { (7, 12) };
    let end = START + days * 86_400;
    // The end of the test counts all of the history. No worker claims it, so that the retained part would be scanned
    // for years.
    let begin = instant(START);
    let flags = [DEV_UNLIMITED, &["--test-clock", &begin, "--retain", "off"]].concat();
    let folder = folder_in_memory();
    let mut server = Server::start_on(&folder.path().join("cued.db"), &flags);
    let mut user = server.user();
    let cues = ["latest", "all", "none"].map(|catch_up| {
        let schedule = json!({"type": "recurring", "cron": "*/15 * * * *", "catch_up": catch_up});
        let cue =
            user.create(&json!({"name": catch_up, "transport": "worker", "schedule": schedule}));
        id(&cue).to_owned()
    });
    let mut now = START;
    for kill in 0..kills {
        let left = end - now;
        let target = now
            + left / (kills - kill) / 2
            + i64::try_from(random.below(1 + left.unsigned_abs() / 16)).unwrap();
        if random.below(2) == 0 {
            move_to(&user, now, target);
        } else {
            // The kill comes at a random point of the move, from its start to its usual duration.
            kill_while_moving(
                &user,
                target,
                Duration::from_micros(random.below(150_000)),
                &mut server,
            );
        }
        server.kill();
        // From seconds to more than the hundred runs of a catch-up.
        let away = [10, 1_200, 7_200, 200_000][usize::try_from(random.below(4)).unwrap()];
        now = (target + i64::try_from(random.below(away)).unwrap()).min(end);
        user = user.at(server.restart_at(&instant(now)));
    }
    move_to(&user, now, end);
    // Started at the end, the server still has to catch up.
    user.settle();
    assert_eq!(server.stop(), Some(0));
    let file = server.sqlite();
    let integrity: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
    for cue in &cues {
        account_for(&file, cue, end);
    }
}

/// Moves the clock a day at a time: a busy machine needs more than the client's patience for the runs of weeks.
fn move_to(user: &Client, from: i64, target: i64) {
    let mut now = from;
    while now < target {
        now = (now + 86_400).min(target);
        user.advance_to(&instant(now));
    }
}

fn kill_while_moving(user: &Client, target: i64, patience: Duration, server: &mut Server) {
    let (done, waiting) = mpsc::channel();
    let moving = user.clone();
    let mover = thread::spawn(move || {
        // The kill ends the request more often than its response.
        drop(moving.try_post("/v1/test/clock", &json!({"to": instant(target)})));
        done.send(()).unwrap_or_default();
    });
    waiting.recv_timeout(patience).unwrap_or_default();
    server.kill();
    mover.join().unwrap();
}

/// Checks that every due instant of the cue from its creation to `end` occurs exactly once.
fn account_for(file: &Connection, cue: &str, end: i64) {
    let mut left: BTreeSet<i64> =
        (1..=(end - START) / STEP).map(|step| START + step * STEP).collect();
    let due = left.len();
    let sql =
        "SELECT e.scheduled_for FROM executions e JOIN cues c ON c.key = e.cue_key WHERE c.id = ?1";
    let mut statement = file.prepare(sql).unwrap();
    let executed: Vec<i64> =
        statement.query_map([cue], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for scheduled_for in &executed {
        assert!(
            left.remove(&(scheduled_for / 1_000)),
            "{cue}: not due or run twice: {}",
            instant(scheduled_for / 1_000)
        );
    }
    let sql = "SELECT m.first, m.last, m.count FROM missed_runs m JOIN cues c ON c.key = m.cue_key WHERE c.id = ?1";
    let mut statement = file.prepare(sql).unwrap();
    let rows =
        statement.query_map([cue], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    for (first, last, count) in rows.map(Result::<(i64, i64, i64), _>::unwrap) {
        let gap: Vec<i64> = left.range(first / 1_000..=last / 1_000).copied().collect();
        let bounds = (gap.first().copied(), gap.last().copied());
        assert_eq!(
            bounds,
            (Some(first / 1_000), Some(last / 1_000)),
            "{cue}: the gap's ends are due and not yet counted"
        );
        assert_eq!(
            i64::try_from(gap.len()).unwrap(),
            count,
            "{cue}: {}..{}",
            instant(first / 1_000),
            instant(last / 1_000)
        );
        for counted in gap {
            left.remove(&counted);
        }
    }
    let lost: Vec<String> = left.into_iter().map(instant).collect();
    assert!(
        lost.is_empty(),
        "{cue}: {} of {due} due instants are lost: {:?}",
        lost.len(),
        &lost[..lost.len().min(5)]
    );
    eprintln!("{cue}: {due} due, {} run, {} missed", executed.len(), due - executed.len());
}
