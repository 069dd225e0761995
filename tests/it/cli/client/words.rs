//! Schedules in words, and the time zone of the person.

use crate::cli::client::{id, start, stored};
use crate::support::*;

/// The lines of standard error and the new cue, of a worker.
fn added(user: &Client, home: &ClientHome, flags: &str) -> (String, Value) {
    let run = home.run(&[&["cue", "add", "--name", "w", "--worker"][..], &words(flags)].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let value = |name: &str| {
        let line = run.stdout.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().to_owned()
    };
    (value("schedule"), stored(user, &value("id")))
}

#[test]
fn a_new_cue_has_the_schedule_that_its_words_mean() {
    let (_server, user, home) = start();
    for (flags, note, schedule) in [
        (
            "--cron 'every weekday at 9' --tz Europe/Berlin",
            "At 09:00, Monday to Friday, Europe/Berlin: 0 9 * * 1-5",
            json!({"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}),
        ),
        ("--cron '@every 5m'", "Every 5 minutes, UTC", json!({"every": "5m", "cron": null})),
        ("--every '20 min'", "Every 20 minutes, UTC", json!({"every": "20m"})),
        (
            "--every 90m --start 2030-03-01T08:00",
            "Every 1 h 30 min from 1 March 2030 at 08:00, UTC",
            json!({"every": "90m", "start": "2030-03-01T08:00:00Z"}),
        ),
        (
            "--cron '0 9 24 12 *' --tz 'new york'",
            "At 09:00, on 24 December, America/New_York: 0 9 24 12 *",
            json!({"timezone": "America/New_York"}),
        ),
        (
            "--at +10m",
            "Once, on Tuesday 1 January 2030 at 00:10, UTC",
            json!({"type": "once", "at": "2030-01-01T00:10:00Z"}),
        ),
        (
            "--at 'tomorrow 9am' --tz berlin",
            "Once, on Wednesday 2 January 2030 at 09:00, Europe/Berlin",
            json!({"at": "2030-01-02T08:00:00Z"}),
        ),
        (
            "--at '2030-03-31 02:30' --tz Berlin",
            "Once, on Sunday 31 March 2030 at 03:00, Europe/Berlin",
            json!({"at": "2030-03-31T01:00:00Z"}),
        ),
    ] {
        let (line, cue) = added(&user, &home, flags);
        assert_eq!(line, note, "{flags}");
        assert_has(&cue["schedule"], schedule);
    }
}

#[test]
fn a_text_that_is_not_understood_is_marked_and_adds_nothing() {
    let (_server, user, home) = start();
    let add = ["cue", "add", "--name", "w", "--worker"];
    let error = home.fails(&[&add[..], &["--cron", "every fortnight"]].concat(), 5);
    assert_contains(&error, &["`fortnight` is not understood here", "`every weekday at 9`"]);
    assert!(error.ends_with("\n  every fortnight\n        ^^^^^^^^^\n"), "{error}");
    let error = home.fails(&[&add[..], &["--cron", "last day of the month at 18:00"]].concat(), 5);
    assert!(error.contains("a cron has no last day of a month"), "{error}");
    let error = home.fails(&["preview", "every month on the last friday"], 5);
    let advice = "a cron has no last friday of a month: write `every friday at 9`, and have the receiver check that a week later \
                  is in another month; or add a single run for each date";
    assert!(error.contains(advice), "{error}");
    home.ok(&["preview", "every friday at 9"]);
    for (flags, reason) in [
        ("--at 'every day at 9'", "--at: \"every day at 9\" repeats; use --cron"),
        ("--cron 'monday 9:00'", "--cron: \"monday 9:00\" is a single run; use --at"),
        (
            "--cron '0 9 * * *' --tz Brelin",
            "there is no time zone \"Brelin\"; did you mean Europe/Berlin?",
        ),
        ("--cron '0 9 * * *' --tz Eastern", "did you mean Canada/Eastern or US/Eastern?"),
    ] {
        let error = home.fails(&[&add[..], &words(flags)].concat(), 2);
        assert!(error.contains(reason), "{flags}: {error}");
    }
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn a_change_and_a_run_are_in_the_zone_of_the_cue() {
    let (_server, user, home) = start();
    let (_, cue) = added(&user, &home, "--cron 'daily 9:00' --tz Asia/Tokyo");
    let id = id(&cue);
    let run = home.run(&["cue", "set", id, "schedule.cron=weekends at 10:30"]);
    assert_eq!(run.stderr, "At 10:30, on Saturdays and Sundays, Asia/Tokyo: 30 10 * * 0,6\n");
    assert_has(
        &stored(&user, id)["schedule"],
        json!({"cron": "30 10 * * 0,6", "timezone": "Asia/Tokyo"}),
    );
    home.ok(&["cue", "set", id, "schedule.every=2 hours", "schedule.timezone=Berlin"]);
    assert_has(&stored(&user, id)["schedule"], json!({"every": "2h", "timezone": "Europe/Berlin"}));
    let run = home.run(&["cue", "fire", id, "--at", "tomorrow 9:00"]);
    assert_eq!(run.stderr, "Once, on Wednesday 2 January 2030 at 09:00, Europe/Berlin\n");
    assert!(run.stdout.contains("scheduled for  2030-01-02 08:00:00+00:00\n"), "{run:?}");
    assert!(home.fails(&["cue", "fire", id, "--at", "daily"], 2).contains("repeats"));
    home.fails(&["cue", "fire", id, "--at", "today 0:00"], 5);
}

#[test]
fn a_preview_understands_words_and_says_how() {
    let (_server, _user, home) = start();
    let run = home.run(&["preview", "mon,wed 18:30", "--tz", "Berlin", "-n", "1"]);
    assert_eq!(run.stderr, "");
    let summary =
        "At 18:30, on Mondays and Wednesdays, Europe/Berlin: 30 18 * * 1,3 (9 runs in 31 days)\n";
    assert!(run.stdout.starts_with(summary), "{run:?}");
    assert!(run.stdout.contains("\nWed 2030-01-02 18:30  +01:00\n"), "{run:?}");
    let json = home.run(&["preview", "every 5m", "--json"]);
    assert_eq!(json.stderr, "", "a program gets the answer and nothing else");
    let answer: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(answer["schedule"], json!({"type": "recurring", "every": "5m", "timezone": "UTC"}));
    let bounded =
        home.json(&words("preview 'daily 9:00' --start 2030-03-01T00:00 --tz Berlin -n 1"));
    assert_eq!(bounded["upcoming"], json!(["2030-03-01T08:00:00Z"]));
    let later = home.run(&["preview", "daily 9:00", "--from", "2030-07-01", "-n", "1"]);
    assert!(later.stdout.starts_with("Every day at 09:00, UTC: 0 9 * * * ("), "{later:?}");
    let single = home.ok(&["preview", "2030-12-24 9:00", "--tz", "Berlin"]);
    let expected = "Once, on Tuesday 24 December 2030 at 09:00, Europe/Berlin\n\nRUN                   OFFSET  NOTE\n\
                    Tue 2030-12-24 09:00  +01:00\n";
    assert_eq!(single, expected);
    let shown = home.ok(&["preview", "every weekday at 9", "--curl"]);
    assert!(shown.contains("every weekday at 9"), "{shown}");
}

#[test]
fn the_zone_is_that_of_the_machine_unless_it_is_named() {
    let (server, user, _home) = start();
    let in_zone = |zone: &str| ClientHome::signed_in(&server, &user).env("TZ", zone);
    let bad = in_zone("Nowhere/Bad").run(&["cue", "list"]);
    let warning = "TZ is \"Nowhere/Bad\", which is no time zone: UTC is used\n";
    assert!(bad.code == 0 && bad.stderr.starts_with(warning), "{bad:?}");
    assert_eq!(
        in_zone("Nowhere/Bad").run(&["cue", "list", "--tz", "Berlin"]).stderr.matches("TZ").count(),
        0
    );
    let (note, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00'");
    assert_eq!(note, "Every day at 09:00, Europe/Berlin: 0 9 * * *");
    assert_eq!(cue["schedule"]["timezone"], "Europe/Berlin");
    let (_, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00' --tz tokyo");
    assert_eq!(cue["schedule"]["timezone"], "Asia/Tokyo");
    let (_, cue) = added(&user, &in_zone("Europe/Berlin"), "--cron 'daily 9:00' --utc");
    assert_eq!(cue["schedule"]["timezone"], "UTC");
    let (note, _) = added(&user, &in_zone("XYZ-3"), "--cron 'daily 9:00'");
    assert!(note.contains(", UTC: "), "a machine whose rules have no name: {note}");
    let shown = in_zone("America/New_York").ok(&[
        "preview",
        "0 9 * * *",
        "-n",
        "1",
        "--from",
        "2030-01-02",
    ]);
    assert!(shown.starts_with("Every day at 09:00, America/New_York"), "{shown}");
    assert!(shown.contains("\nWed 2030-01-02 09:00  -05:00\n"), "{shown}");
}

#[test]
fn times_of_a_cue_are_in_the_zone_of_the_person_in_every_answer() {
    let (server, user, _home) = start();
    let home = ClientHome::signed_in(&server, &user).env("TZ", "Europe/Berlin");
    let next = "2030-01-02 01:00:00+01:00";
    let added = home.ok(&words("cue add --name t --cron '0 9 * * *' --tz Tokyo --url http://x/"));
    assert!(added.contains(&format!("next run  {next}\n")), "{added}");
    for line in
        ["cue set t --cron '0 9 * * *' --tz Tokyo", "cue set t --cron '0 9 * * *'", "cue show t"]
    {
        let shown = home.ok(&words(line));
        assert!(shown.contains(next), "{line}: {shown}");
    }
    home.ok(&words("cue pause t"));
    assert!(home.ok(&words("cue resume t")).contains(next), "resume");
    let named = home.ok(&words("cue show t --tz Tokyo"));
    assert!(
        named.contains("2030-01-02 09:00:00+09:00"),
        "--tz of other commands is that of the output: {named}"
    );
}

#[test]
fn a_list_shows_the_zone_of_a_schedule_unless_it_is_that_of_the_reader() {
    let (server, user, home) = start();
    for zone in ["UTC", "Europe/Berlin"] {
        added(&user, &home, &format!("--cron '0 9 * * *' --tz {zone}"));
    }
    let shown = |zone: &str| {
        let home = ClientHome::signed_in(&server, &user).env("TZ", zone);
        let list = home.ok(&["cue", "list"]);
        list.lines()
            .skip(1)
            .map(|row| row.split('\t').nth(3).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown("UTC"), ["0 9 * * * Europe/Berlin", "0 9 * * *"]);
    assert_eq!(shown("Europe/Berlin"), ["0 9 * * *", "0 9 * * * UTC"]);
}

#[test]
fn a_refused_time_has_advice_that_fits_its_flag() {
    let (_server, _user, home) = start();
    for (flags, expected) in [
        ("--at 10m", "--at: \"10m\" is no time; did you mean +10m?"),
        ("--at yesterday", "examples are `+10m`, `tomorrow 9:00`"),
        ("--every fortnight", "expected a time such as 5m"),
        ("--cron fortnightly", "`every weekday at 9` and `0 9 * * 1-5`"),
        ("--every 5m --jitter soon", "examples are 90s, 10m, 2h and 1d"),
        (
            "--every 5m --retry 4:x",
            "4:30s,5m,15m, 4 attempts with pauses of 30 seconds, 5 and 15 minutes",
        ),
    ] {
        let run = home.run(&words(&format!("cue add --name w --worker {flags}")));
        assert!(run.code != 0 && run.stderr.contains(expected), "{flags}: {run:?}");
    }
    let past = words("cue add --name w --worker --at 2020-01-01 --tz Europe/Berlin");
    let text = home.run(&past).stderr;
    assert!(text.contains("--at: 2020-01-01 00:00:00+01:00 is not in the future"), "{text}");
}

/// Without a server, so that scripts can be written anywhere.
#[test]
fn curl_shows_a_schedule_of_the_api_without_a_request() {
    let home = ClientHome::without_server();
    let shown = home.ok(&words("cue add --name n --cron '0 9 * * *' --tz berlin --worker --curl"));
    assert!(shown.contains("\"cron\":\"0 9 * * *\"") && shown.contains("Europe/Berlin"), "{shown}");
}
